/*
 * The tape: what a model family writes once and a backend replays for every step. Ops are plain structs without
 * pointers; nothing on a tape depends on a position, a token or a timeline: these are in the step block (bt_step).
 *
 * An activation (bt_act) is a place in the engine's scratch: one row per token of the step. Weights are indices into
 * the model's weight table; expert ops take a first index and a stride. The builder checks every shape against that
 * table (a mismatch is our own mistake: an assertion), and finds where an op must wait for earlier ones (op.barrier).
 */
#ifndef TAPE_TAPE_H
#define TAPE_TAPE_H

#include "format/dtype.h"

/* ---- activations ------------------------------------------------------------------------------------------------- */

typedef enum bt_space {
    BT_SPACE_ROWS,   /* max_rows rows: one per token of the step */
    BT_SPACE_LOGITS, /* max_logit_rows rows: one per row of the current slice of the head */
} bt_space;

typedef struct bt_act {
    uint64_t offset; /* of row 0, in 4-byte words from the start of scratch; a multiple of 16 */
    uint32_t stride; /* words from row to row; a multiple of 16 */
    uint32_t width;  /* elements used */
    uint8_t space;   /* bt_space */
    uint8_t dtype;   /* BT_F32 or BT_I32 */
} bt_act;

/* The experts chosen for each row, in the order of selection. */
typedef struct bt_routes {
    bt_act ids;     /* I32 [k] */
    bt_act weights; /* F32 [k] */
} bt_routes;

/* ---- per-timeline state ------------------------------------------------------------------------------------------ */

/* One kind of state of one layer. Lies in each slot at `offset`: [n_strips][context][width] elements of dtype where it
 * grows with the position (keys: a strip per KV head), [n_strips][width] where it is fixed (recurrent state). */
typedef struct bt_state {
    uint64_t offset;      /* bytes from the start of the slot; a multiple of 64 */
    uint64_t strip_bytes; /* from strip to strip */
    uint32_t n_strips, width;
    uint8_t dtype; /* bt_dtype */
    bool per_position;
} bt_state;

/* ---- ops --------------------------------------------------------------------------------------------------------- */

typedef enum bt_op_kind {
    BT_OP_EMBED,        /* y = row id of table w, widened */
    BT_OP_RMS_NORM,     /* y = grouped norm of x times w */
    BT_OP_LINEAR,       /* y (+)= W x */
    BT_OP_ROPE_ANGLES,  /* y = cos and sin of position * frequency, times a factor */
    BT_OP_ROPE,         /* rotates each head of x in place */
    BT_OP_STORE,        /* appends each head of x to a per-position state */
    BT_OP_ATTENTION,    /* causal softmax attention over the states k, v */
    BT_OP_GATE_MUL,     /* y *= act(g) */
    BT_OP_ACT_MUL,      /* y = act(g) * u */
    BT_OP_ROUTE,        /* router logits -> routes */
    BT_OP_MOE_UP_GATE,  /* h[s] = silu(Wgate_e x) * (Wup_e x) for each selected e = ids[s] */
    BT_OP_MOE_DOWN_SUM, /* y (+)= sum_s weights[s] * (Wdown_e h[s]), in order of s, then + shared */
    BT_OP_MOE_VALUES,   /* y = sum_s weights[s] * silu(W_e x), in order of s */
    BT_OP_SELECT_ROWS,  /* y (logits space) = rows of x that want logits */
    BT_OP_CONV_SILU,    /* y = silu of a causal depthwise convolution of x, whose tail is a state */
    BT_OP_KDA_GATES,    /* q, k of unit length, q scaled; decay = exp(gate of decay); beta = sigmoid(beta) */
    BT_OP_KDA_STEP,     /* the gated delta rule over the rows of each segment */
    BT_OP_MLA_ABSORB,   /* y_h = (W_h^T of q_h's first part, q_h's rest): queries of the latent space */
    BT_OP_MLA_VALUES,   /* y_h = W_h x_h: values out of the latent space */
    BT_OP_RES_MIX,      /* y = attention over depth: a softmax-weighted sum of earlier streams */
#ifdef BT_TEST_BUILD
    BT_OP_KEEP, /* y = x in a range of columns, 0 elsewhere: faults on purpose */
#endif
    BT_N_OPS,
} bt_op_kind;

/* Elementwise functions and router scores; the values are those of the kernel table's enums. */
typedef enum bt_fn { BT_FN_SIGMOID, BT_FN_SILU, BT_FN_SOFTPLUS2, BT_FN_SITU } bt_fn; /* SITU: with a bt_situ */
typedef enum bt_router { BT_ROUTER_SOFTMAX, BT_ROUTER_SIGMOID } bt_router;

/* What bytes read from weights are counted as (the benchmark's classes). */
typedef enum bt_class {
    BT_CLASS_EMBEDDING,
    BT_CLASS_NORM,
    BT_CLASS_ATTENTION,
    BT_CLASS_VALUES, /* routed value experts */
    BT_CLASS_ROUTER,
    BT_CLASS_DENSE,
    BT_CLASS_EXPERTS,
    BT_CLASS_SHARED,
    BT_CLASS_HEAD,
    BT_N_CLASSES,
} bt_class;

/* The caps of SiTU: beta tanh(g / beta) sigmoid(g) * linear_beta tanh(u / linear_beta); linear_beta 0: u uncapped. */
typedef struct bt_situ {
    float beta, linear_beta;
} bt_situ;

typedef struct bt_op {
    uint8_t kind;  /* bt_op_kind */
    bool barrier;  /* all threads must have finished every earlier op */
    int16_t layer; /* -1: outside the layers; for traces */
    union {
        struct {
            bt_act y;
            uint32_t weight;
        } embed;
        struct {
            bt_act y, x;
            uint32_t weight, n_groups;
            float eps;
        } rms_norm;
        struct {
            bt_act y, x;
            uint32_t weight;
            bool add; /* y += */
        } linear;
        struct {
            bt_act y;       /* F32 [2 n]: cos, then sin */
            uint32_t table; /* f64 [n]: radians per position */
            double factor;
        } rope_angles;
        struct {
            bt_act x, angles;
            uint32_t n_heads, head_dim, n_pairs; /* pairs (j, j + head_dim / 2), j < n_pairs */
        } rope;
        struct {
            bt_act x; /* [n_strips * width] */
            uint32_t state;
        } store;
        struct {
            bt_act y, q;   /* [n_heads * head_dim] */
            uint32_t k, v; /* states; a strip per KV head; query head h reads strip h / (n_heads / n_strips) */
            uint32_t n_heads, head_dim;
            uint32_t v_dim; /* y: [n_heads * v_dim]; below head_dim, v is k, whose rows begin with the values */
            float scale;
        } attention;
        struct {
            bt_act y, g;
            uint32_t act; /* bt_fn */
        } gate_mul;
        struct {
            bt_act y, g, u;
            uint32_t act;
            bt_situ situ;
        } act_mul;
        struct {
            bt_routes routes;
            bt_act logits;
            uint32_t bias;  /* weight index of the selection bias, BT_NONE */
            uint32_t score; /* bt_router */
            bool renormalise;
            float scale;
            uint32_t n_groups, n_active_groups; /* n_groups <= 1: none */
            int32_t force;                      /* -1 */
        } route;
        struct {
            bt_act h, x; /* h: [k * width], slot s at s * width */
            bt_routes routes;
            uint32_t gate, up, stride, n_experts; /* expert e: weights gate + e * stride, up + e * stride */
            uint32_t act;
            bt_situ situ;
        } moe_up_gate;
        struct {
            bt_act y, h, shared; /* shared.width 0: none */
            bt_routes routes;
            uint32_t down, stride, n_experts;
            bool add; /* y += */
        } moe_down_sum;
        struct {
            bt_act y, x;
            bt_routes routes;
            uint32_t first, stride, n_experts;
            uint32_t act;
        } moe_values;
        struct {
            bt_act y, x;
        } select_rows;
        struct {
            bt_act y, x;     /* [n] */
            uint32_t weight; /* [n, n_taps] */
            uint32_t tail;   /* fixed state [n_taps - 1][n] */
        } conv_silu;
        struct {
            bt_act q, k, decay, beta; /* [n_heads * key_dim] in place; beta: [n_heads] */
            uint32_t bias, rate;      /* weights: vector [n_heads * key_dim]; its first n_heads are log rates */
            uint32_t n_heads;
            float lower; /* the decay's lower bound, below 0; 0: none, the softplus form */
        } kda_gates;
        struct {
            bt_act y, q, k, v, decay, beta; /* y, v: [n_heads * value_dim] */
            uint32_t state;                 /* fixed [n_heads][value_dim * key_dim] */
            uint32_t n_heads;
        } kda_step;
        struct {
            bt_act y, x;     /* absorb: [n_heads * (latent + rest)], [n_heads * (nope + rest)];
                                values: [n_heads * v_dim], [n_heads * latent] */
            uint32_t weight; /* [n_heads * (nope + v_dim), latent] */
            uint32_t n_heads, nope, rest, v_dim;
        } mla;
        struct {
            bt_act y, sources;   /* sources: n_sources vectors of y's width, `stride` words apart */
            uint32_t norm, proj; /* weights: vectors [width], or proj a matrix of one row */
            uint32_t n_sources, stride;
            float eps;
        } res_mix;
#ifdef BT_TEST_BUILD
        struct {
            bt_act y, x;
            uint32_t begin, end;
        } keep;
#endif
    } u;
} bt_op;

#define BT_NONE UINT32_MAX

/* What every backend can do at least: families refuse more, backends assert it. */
#define BT_OP_TAPS_MAX    16u  /* of conv_silu */
#define BT_OP_SOURCES_MAX 256u /* of res_mix */

/* ---- tape -------------------------------------------------------------------------------------------------------- */

typedef struct bt_limits {
    uint32_t max_rows;       /* --batch */
    uint32_t max_logit_rows; /* rows of the head's slice */
    uint32_t context;        /* positions per slot */
    uint32_t n_slots;
    bt_dtype kv_dtype;
} bt_limits;

typedef struct bt_table { /* constants of an op, f64 */
    const double *values;
    uint32_t n;
} bt_table;

typedef struct bt_tape {
    bt_limits limits;
    const bt_view *weights; /* borrowed from the model */
    const uint8_t *classes; /* [n_weights] bt_class, borrowed likewise; NULL: all count as dense */
    uint32_t n_weights;
    const bt_op *ops;
    uint32_t n_ops;
    uint32_t head_begin; /* ops from here run once per slice of logit rows */
    bt_act logits;       /* the result, in the logits space */
    const bt_state *states;
    uint32_t n_states;
    uint64_t slot_bytes;    /* of all states of one timeline; a multiple of 64 */
    uint64_t scratch_words; /* of all activations, 4 bytes each */
    const bt_table *tables;
    uint32_t n_tables;
} bt_tape;

/* Building: open, declare and append in order, finish. A failed allocation is remembered until finish. */
typedef struct bt_tape_builder bt_tape_builder;

bt_status bt_tape_begin(const bt_limits *limits, const bt_view *weights, size_t n_weights, bt_tape_builder **out,
                        bt_error *e);
void bt_tape_classes(bt_tape_builder *b, const uint8_t *classes); /* [n_weights]: what their bytes are counted as */
void bt_tape_abandon(bt_tape_builder *b);
bt_status bt_tape_finish(bt_tape_builder *b, bt_act logits, bt_tape **out, bt_error *e); /* frees b in any case */
void bt_tape_free(bt_tape *t);

bt_act bt_tape_act(bt_tape_builder *b, bt_space space, size_t width); /* f32 */
bt_routes bt_tape_routes(bt_tape_builder *b, size_t k);
uint32_t bt_tape_positions(bt_tape_builder *b, size_t n_strips, size_t width);  /* a per-position state of kv_dtype */
uint32_t bt_tape_constants(bt_tape_builder *b, const double *values, size_t n); /* copied */
uint32_t bt_tape_fixed(bt_tape_builder *b, size_t n_strips, size_t width);      /* a state of f32, not per position */
/* Columns [begin, begin + width) of an activation as one of their own; begin is a multiple of 16. */
bt_act bt_tape_part(bt_act a, size_t begin, size_t width);
void bt_tape_layer(bt_tape_builder *b, int layer); /* of the ops that follow; -1: none */
void bt_tape_head(bt_tape_builder *b);             /* ops that follow are the head */

void bt_op_embed(bt_tape_builder *b, bt_act y, uint32_t weight);
void bt_op_rms_norm(bt_tape_builder *b, bt_act y, bt_act x, uint32_t weight, size_t n_groups, double eps);
void bt_op_linear(bt_tape_builder *b, bt_act y, bt_act x, uint32_t weight);
void bt_op_linear_add(bt_tape_builder *b, bt_act y, bt_act x, uint32_t weight); /* y += W x */
void bt_op_rope_angles(bt_tape_builder *b, bt_act y, uint32_t table, double factor);
void bt_op_rope(bt_tape_builder *b, bt_act x, bt_act angles, size_t n_heads, size_t head_dim, size_t n_pairs);
void bt_op_store(bt_tape_builder *b, uint32_t state, bt_act x);
void bt_op_attention(bt_tape_builder *b, bt_act y, bt_act q, uint32_t k, uint32_t v, size_t n_heads, size_t head_dim,
                     double scale);
void bt_op_gate_mul(bt_tape_builder *b, bt_act y, bt_act g, uint32_t act);
void bt_op_act_mul(bt_tape_builder *b, bt_act y, bt_act g, bt_act u, uint32_t act);
typedef struct bt_route_spec {
    uint32_t bias; /* weight index or BT_NONE */
    uint32_t score;
    bool renormalise;
    double scale;
    int32_t force;
    uint32_t n_groups, n_active_groups; /* n_groups <= 1: none */
} bt_route_spec;
void bt_op_route(bt_tape_builder *b, bt_routes routes, bt_act logits, const bt_route_spec *spec);
void bt_op_moe_up_gate(bt_tape_builder *b, bt_act h, bt_act x, bt_routes routes, uint32_t gate, uint32_t up,
                       uint32_t stride, size_t n_experts, uint32_t act);
void bt_op_moe_down_sum(bt_tape_builder *b, bt_act y, bt_act h, bt_routes routes, uint32_t down, uint32_t stride,
                        size_t n_experts, const bt_act *shared); /* shared NULL: none */
/* As the two above, with SiTU; and a sum that starts afresh. */
void bt_op_situ_mul(bt_tape_builder *b, bt_act y, bt_act g, bt_act u, bt_situ situ);
void bt_op_moe_up_situ(bt_tape_builder *b, bt_act h, bt_act x, bt_routes routes, uint32_t gate, uint32_t up,
                       uint32_t stride, size_t n_experts, bt_situ situ);
void bt_op_moe_down(bt_tape_builder *b, bt_act y, bt_act h, bt_routes routes, uint32_t down, uint32_t stride,
                    size_t n_experts);
void bt_op_moe_values(bt_tape_builder *b, bt_act y, bt_act x, bt_routes routes, uint32_t first, uint32_t stride,
                      size_t n_experts, uint32_t act);
void bt_op_select_rows(bt_tape_builder *b, bt_act y, bt_act x);
/* rms_norm of n_heads equal parts that share one weight [x.width / n_heads]. */
void bt_op_rms_norm_heads(bt_tape_builder *b, bt_act y, bt_act x, uint32_t weight, size_t n_heads, double eps);
void bt_op_conv_silu(bt_tape_builder *b, bt_act y, bt_act x, uint32_t weight, uint32_t tail);
/* lower: of the bounded gate, below 0; 0: the softplus form. */
void bt_op_kda_gates(bt_tape_builder *b, bt_act q, bt_act k, bt_act decay, bt_act beta, uint32_t bias, uint32_t rate,
                     size_t n_heads, double lower);
void bt_op_kda_step(bt_tape_builder *b, bt_act y, bt_act q, bt_act k, bt_act v, bt_act decay, bt_act beta,
                    uint32_t state, size_t n_heads);
void bt_op_mla_absorb(bt_tape_builder *b, bt_act y, bt_act q, uint32_t weight, size_t n_heads, size_t nope, size_t rest,
                      size_t v_dim);
/* Attention over a latent state of one strip [latent + rest], whose first `latent` values are the values. */
void bt_op_mla_attention(bt_tape_builder *b, bt_act y, bt_act q, uint32_t state, size_t n_heads, size_t latent,
                         double scale);
void bt_op_mla_values(bt_tape_builder *b, bt_act y, bt_act x, uint32_t weight, size_t n_heads, size_t nope,
                      size_t v_dim);
void bt_op_res_mix(bt_tape_builder *b, bt_act y, bt_act sources, size_t n_sources, uint32_t norm, uint32_t proj,
                   double eps);

#ifdef BT_TEST_BUILD
void bt_op_keep(bt_tape_builder *b, bt_act y, bt_act x, size_t begin, size_t end); /* columns [begin, end) */
#endif

const char *bt_op_name(bt_op_kind kind);

/* ---- step block -------------------------------------------------------------------------------------------------- */

/* Rows [row, row + n_rows) of the step are positions [position, ...) of the timeline in `slot`. Segments cover the rows
 * in order, without gaps; a slot occurs at most once. */
typedef struct bt_segment {
    uint32_t slot, row, n_rows, position;
} bt_segment;

typedef struct bt_step {
    const int32_t *ids; /* [n_rows], each within the vocabulary */
    uint32_t n_rows;    /* 1 .. max_rows */
    const bt_segment *segments;
    uint32_t n_segments;
    const uint32_t *logit_rows; /* [n_logit_rows]: rows for the head, at most max_logit_rows */
    uint32_t n_logit_rows;      /* 0: the head does not run */
} bt_step;

#endif
