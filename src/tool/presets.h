/*
 * Presets: the models whose true shapes `synth` can write, and what is special about each family's files: the text of
 * config.json, which tensors an FP8 release quantises and how it names their scales, the spread of a random weight, and
 * the ids of the tokenizer. Names and shapes of tensors are not here: they come from the family's one list, made from
 * the preset's own config.
 */
#ifndef TOOL_PRESETS_H
#define TOOL_PRESETS_H

#include "base/json.h"
#include "model/model.h"

/* What the caller may change about a preset. */
typedef struct bt_preset_choice {
    size_t n_layers, n_experts; /* 0: the preset's own */
    bool fp8;
} bt_preset_choice;

/* Uniform random numbers about `mean` with this standard deviation. */
typedef struct bt_spread {
    float mean, deviation;
} bt_spread;

/* Ids of a tokenizer with K2-Horizon's scheme: two control tokens, 256 bytes, merges up to im_start, then im_end; the
 * other tags from `think` on; reserved names for what is left. */
typedef struct bt_synth_vocab {
    uint32_t n_ids;
    uint32_t im_start; /* im_end is the next one */
    uint32_t think;    /* `<ifm|think>`; the other tags follow it */
    uint32_t pad;      /* BT_NONE: none */
    uint64_t max_position;
} bt_synth_vocab;

typedef struct bt_preset {
    const char *name;
    const void *numbers; /* the family's own */
    bt_status (*check)(const void *numbers, const bt_preset_choice *c, bt_error *e);
    /* config.json. `list` is what that config calls for, named by an FP8 config; NULL leaves quantisation out. */
    void (*config)(const void *numbers, const bt_preset_choice *c, const bt_tensor_list *list, bt_text *t);
    bool (*is_fp8)(const void *numbers, const bt_tensor_spec *s); /* in the FP8 release */
    const char *(*scale_suffix)(const void *numbers);             /* ".weight" + this */
    bt_dtype (*scale_dtype)(const void *numbers);
    bt_spread (*spread)(const void *numbers, const bt_preset_choice *c, const bt_tensor_spec *s);
    bt_synth_vocab (*vocab)(const void *numbers);
} bt_preset;

/* In the order of help. */
extern const bt_preset bt_presets[];
extern const size_t bt_presets_n;
bt_status bt_preset_find(const char *name, const bt_preset **out, bt_error *e);

#endif
