/* Rotary position settings, as the configs of several families write them. */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "format/config.h"

typedef enum bt_rope_type { BT_ROPE_DEFAULT, BT_ROPE_YARN } bt_rope_type;

typedef struct bt_rope {
    bt_rope_type type;
    double theta;
    double factor, beta_fast, beta_slow, original_positions; /* YaRN */
    double attention_factor;                                 /* on cos and sin; 1 for the default type */
    bool truncate;
    struct { /* what the block, where there is one, leaves to a default */
        bool type, theta, beta_fast, beta_slow, truncate, attention_factor;
    } is_default;
    bool
        is_given; /* false: neither rope_parameters, rope_scaling nor rope_theta is there; all other fields are unset */
} bt_rope;

/* Reads rope_parameters or rope_scaling, and rope_theta inside it or at the top (case C16). Contradictions, unknown
 * types and unknown keys are refused by name. theta_default: for a config that states no theta; 0: then refused. */
bt_status bt_rope_read(const bt_config *c, double theta_default, bt_rope *r, bt_error *e);

/* Radians per position of pair j, for n_pairs pairs of a rotation over `dim` elements (docs/k2_horizon.md, c.3, c.4).
 * */
void bt_rope_frequencies(const bt_rope *r, size_t dim, size_t n_pairs, double *frequency);

#endif
