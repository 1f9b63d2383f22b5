/*
 * Presets: the models whose true shapes `synth` can write, and what is special about each family's files: the text of
 * config.json, how each tensor is stored and how its random numbers are spread, and the tokenizer. Names and shapes of
 * tensors are not here: they come from the family's one list, made from the preset's own config.
 */
#ifndef TOOL_PRESETS_H
#define TOOL_PRESETS_H

#include "base/json.h"
#include "model/model.h"

/* What the caller may change about a preset. */
typedef struct bt_preset_choice {
    size_t n_layers, n_experts; /* 0: the preset's own, which is also the most */
    bool fp8;
} bt_preset_choice;

/* How one tensor is stored: uniform random numbers about `mean` with this standard deviation. */
typedef struct bt_filling {
    float mean, deviation;
    bt_dtype dtype; /* BT_BF16 or BT_F32, as it is; BT_F8_E4M3 or BT_MXFP4, with scales in a tensor of their own */
    const char *scale_suffix; /* BT_F8_E4M3: ".weight" + this */
    bt_dtype scale_dtype;
    /* Where these differ from what the list says (n_dims > 0): more elements than the vector has are zeros. */
    uint32_t n_dims;
    uint64_t shape[4];
} bt_filling;

typedef enum bt_synth_scheme {
    BT_SCHEME_NONE, /* the vocabulary is too small for one byte each: no files */
    BT_SCHEME_K2,   /* tokenizer.json: two control tokens, 256 bytes, merges up to im_start, then im_end; the other tags
                       from `think` on; reserved names for what is left */
    BT_SCHEME_TIKTOKEN, /* tiktoken.model: 256 bytes and merges up to n_ranks; named and reserved tokens behind them */
} bt_synth_scheme;

typedef struct bt_named_id {
    uint32_t id;
    const char *name; /* NULL ends a list */
} bt_named_id;

/* The ids of a tokenizer. */
typedef struct bt_synth_vocab {
    bt_synth_scheme scheme;
    uint32_t n_ids;
    uint64_t max_position;
    uint32_t im_start;          /* K2: im_end is the next one */
    uint32_t think;             /* K2: `<ifm|think>`; the other tags follow it */
    uint32_t pad;               /* K2: BT_NONE: none */
    uint32_t n_ranks;           /* tiktoken */
    const bt_named_id *special; /* tiktoken: ascending */
} bt_synth_vocab;

typedef struct bt_preset {
    const char *name;
    const void *numbers; /* the family's own */
    uint64_t seed;       /* unless another one is asked for */
    bool rest_apart;     /* what lies outside the layers has a shard of its own, else it shares the last layer's */
    bt_status (*check)(const void *numbers, const bt_preset_choice *c, bt_error *e);
    /* config.json. `list` is what that config calls for, named by an FP8 config; NULL leaves quantisation out. */
    void (*config)(const void *numbers, const bt_preset_choice *c, const bt_tensor_list *list, bt_text *t);
    void (*generation_config)(const void *numbers, bt_text *t); /* leaves t empty: no file */
    bt_filling (*filling)(const void *numbers, const bt_preset_choice *c, const bt_tensor_spec *s);
    bt_synth_vocab (*vocab)(const void *numbers);
} bt_preset;

/* In the order of help. */
size_t bt_presets_count(void);
const bt_preset *bt_presets_at(size_t i);
bt_status bt_preset_find(const char *name, const bt_preset **out, bt_error *e);

/* The families' own, presets_*.c. */
extern const bt_preset bt_presets_k2[], bt_presets_kimi[];
extern const size_t bt_presets_k2_n, bt_presets_kimi_n;

/* Whether a tensor's name ends so. */
bool bt_preset_ends_with(const bt_tensor_spec *s, const char *end);

#endif
