/*
 * A model: a checkpoint opened, checked and bound, immutable from then on. A family is a table row: which architectures
 * it serves, how it reads config.json, one list of its tensors, and how it writes its tape. From the one list come
 * binding, info, the memory plan and synth.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "format/config.h"
#include "format/safetensors.h"
#include "tape/tape.h"

/* One tensor that the family's config calls for. */
typedef struct bt_tensor_spec {
    const char *name; /* terminated, in the list's arena */
    uint32_t n_rows;  /* 1 with is_vector */
    uint32_t n_cols;
    bool is_vector; /* stored as [n_cols] */
    bool is_taps;   /* of a depthwise convolution: stored as [n_rows, 1, n_cols] */
    bool is_padded; /* a vector stored in any shape of n_cols or more elements, of which the rest are zeros */
    bool may_scale; /* FP8 with block scales is accepted */
    bool may_pack;  /* MXFP4 is accepted: NAME_packed and NAME_scale stand for NAME */
    uint8_t class;  /* bt_class */
    int16_t layer;  /* -1: outside the layers */
} bt_tensor_spec;

typedef struct bt_tensor_list {
    bt_arena *arena;
    bt_tensor_spec *specs;
    size_t n, capacity;
    size_t n_max;     /* 0: as many as memory holds */
    bool failed;      /* an allocation did, or there are more than n_max: reported once, at the end */
    bool is_too_long; /* the latter */
} bt_tensor_list;

/* Appends one spec and returns its index; `format` makes the name. */
uint32_t bt_list_matrix(bt_tensor_list *l, bt_class class, int layer, size_t n_rows, size_t n_cols, const char *format,
                        ...) __attribute__((format(printf, 6, 7)));
uint32_t bt_list_vector(bt_tensor_list *l, bt_class class, int layer, size_t n, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

uint32_t bt_list_taps(bt_tensor_list *l, bt_class class, int layer, size_t n, size_t n_taps, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* One line of what `info` prints about the configuration: key, value, and whether the value was a default. The value
 * comes in words and in JSON; json NULL: the words are a number, a flag or one name; words NULL: for programs alone. */
typedef void (*bt_fact_fn)(void *user, const char *key, const char *words, const char *json, bool is_default);

typedef struct bt_family {
    const char *name;                 /* "k2_horizon" */
    const char *const *architectures; /* NULL-terminated */
    const char *text_config;          /* the member of the config that describes the text model; NULL: all of it */
    bool may_pack;                    /* the checkpoint's method may be MXFP4 */
    size_t shape_bytes;               /* of the family's own shape struct */
    /* Reads and checks every key; nothing may be guessed that docs/k2_horizon.md, a does not list. */
    bt_status (*read_config)(const bt_config *c, void *shape, bt_error *e);
    void (*release)(void *shape);                         /* frees what read_config allocated */
    void (*list_tensors)(void *shape, bt_tensor_list *l); /* and notes the indices in the shape */
    bool (*skip_tensor)(const char *name);                /* known tensors that are not used (rotary_emb.inv_freq) */
    /* The head's tensor if the config ties it to the embedding, else NULL: stored all the same, it must be equal. */
    const char *(*tied_head)(const void *shape);
    bt_status (*build_tape)(const bt_model *m, const bt_limits *limits, bt_tape **out, bt_error *e);
    /* Plants one fault (test build only); a key or value that the model has no use for is refused by name. */
    bt_status (*ablate)(void *shape, const char *key, const char *value, bt_error *e);
    void (*describe)(const void *shape, bt_fact_fn fn, void *user);
    size_t (*n_vocab)(const void *shape);
    size_t (*max_position)(const void *shape); /* 0: no limit stated */
} bt_family;

extern const bt_family bt_family_k2_horizon;
extern const bt_family bt_family_llama;
extern const bt_family bt_family_kimi_k3;
extern const bt_family bt_family_kimi_linear;

struct bt_model {
    const bt_family *family;
    void *shape; /* the family's */
    bt_config *config;
    bt_config *generation_config; /* NULL: no file */
    bt_tensors *tensors;
    bt_tensor_list list;
    bt_view *views;   /* [list.n], in the list's order: the weight table of tapes */
    uint8_t *classes; /* [list.n] bt_class */
    char *folder;
    int32_t *end_ids;
    size_t n_end_ids;
    bt_generation_defaults defaults;
    uint64_t n_parameters;
    uint64_t fingerprint; /* of config, tensor headers and some weights: snapshots name it */
    size_t n_skipped;     /* tensors skipped by name */
    uint64_t skipped_bytes;
};

/* The tensors that a configuration calls for, without a checkpoint: what synth writes. list: zeroed by the caller;
 * bt_free(list->specs) and bt_arena_free(list->arena) by the caller in any case. */
bt_status bt_model_list_tensors(bt_config *config, bt_tensor_list *list, bt_error *e);

/* The object whose members describe the text model: the config itself, or the family's member of it; `object` NULL
 * where that is missing. */
bt_status bt_model_text_scope(const bt_family *family, const bt_config *c, bt_scope *out, bt_error *e);

/* Private bytes of the model's own tables, for the memory plan. */
size_t bt_model_private_bytes(const bt_model *m);
void bt_model_describe(const bt_model *m, bt_fact_fn fn, void *user);

#endif
