/* Reading tokenizer.json and tokenizer_config.json into plain structs, refusing what cannot be honoured. */
#ifndef TEXT_TOKENIZER_JSON_H
#define TEXT_TOKENIZER_JSON_H

#include "base/json.h"
#include "text/added.h"
#include "text/split.h"
#include "text/vocab.h"

#define BT_SPLITS_MAX 16

typedef struct bt_split_spec {
    const char *pattern; /* [size] */
    size_t size;
    bool literal; /* a text, not a pattern */
    bt_split_behavior behavior;
    bool invert;
} bt_split_spec;

typedef enum bt_add_bos { BT_ADD_BOS_UNSAID, BT_ADD_BOS_NO, BT_ADD_BOS_YES } bt_add_bos;

typedef struct bt_tokenizer_spec { /* zero it, free it with bt_tokenizer_spec_free */
    bt_arena *arena;               /* the strings here, added tokens' texts included */
    bt_vocab vocab;                /* keys and merges, not finished */
    bool ignore_merges;
    bool kimi_cuts; /* texts are taken apart by cut.h before anything else */
    bool nfc;
    bt_split_spec splits[BT_SPLITS_MAX];
    size_t n_splits;
    bool byte_level;        /* the pre-tokenizer ends with ByteLevel */
    bool byte_level_splits; /* and the last split is its own (use_regex) */
    bool add_prefix_space;  /* of ByteLevel: comes before that split */
    bt_added_token *added;  /* [n_added], bt_free */
    size_t n_added, added_capacity;
    const char *template_bos; /* the token that the post-processor puts first; NULL: none */
    bt_add_bos add_bos;       /* tokenizer_config.json */
    const char *bos_token;
    bt_text warnings; /* lines for bt_tokenizer_warnings */
} bt_tokenizer_spec;

void bt_tokenizer_spec_free(bt_tokenizer_spec *s);
bt_status bt_tokenizer_json_read(const char *json, size_t size, bt_tokenizer_spec *s, bt_error *e);
bt_status bt_tokenizer_config_read(const char *json, size_t size, bt_tokenizer_spec *s, bt_error *e);

/* The parts of tokenizer.json beside the model (pipeline_json.c). A node of kind NULL is the JSON value null. */
bt_status bt_normalizer_read(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e);
bt_status bt_pre_tokenizer_read(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e);
bt_status bt_post_processor_read(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e);
bt_status bt_text_decoder_read(const bt_json_node *n, bt_error *e);

/* Members of an object `where`, which messages name. */
bt_status bt_node_bool(const bt_json_node *object, const char *where, const char *key, bool *v, bt_error *e);
bt_status bt_node_string(const bt_json_node *object, const char *where, const char *key, const bt_json_node **v,
                         bt_error *e);
/* Refuses members that are not in `keys` (separated by spaces). */
bt_status bt_node_only(const bt_json_node *object, const char *where, const char *keys, bt_error *e);

#endif
