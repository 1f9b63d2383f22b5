/* What the files of text/ share of a tokenizer beyond baltoro.h. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "text/split.h"

/* A tokenizer from the text of tokenizer.json and of tokenizer_config.json (NULL: there is none). */
bt_status bt_tokenizer_open_text(const char *json, size_t json_size, const char *config, size_t config_size,
                                 bt_tokenizer **out, bt_error *e);

/* A tokenizer from the text of tiktoken.model and of the tokenizer_config.json that names its special tokens. */
bt_status bt_tokenizer_open_tiktoken(const char *model, size_t model_size, const char *config, size_t config_size,
                                     bt_tokenizer **out, bt_error *e);
/* The file that it was made from: "tokenizer.json" or "tiktoken.model". */
const char *bt_tokenizer_file(const bt_tokenizer *t);

/* What decoding prints for this id, borrowed; "" for a special token unless flags has BT_TEXT_SPECIAL. */
bt_status bt_tokenizer_text(const bt_tokenizer *t, int32_t id, unsigned flags, const char **text, size_t *size,
                            bt_error *e);
size_t bt_tokenizer_token_bytes_max(const bt_tokenizer *t);

/* Encodes a text of two origins. Added tokens, whatever their flags, are found only where all their bytes lie inside
 * one of `allowed` (ascending, apart); everything else is tokenised as plain text, in one piece between two such
 * tokens, and never gives the id of an added token. What is told from outside therefore cannot say a control token;
 * where it does not try to, the ids are those of BT_TEXT_SPECIAL. */
bt_status bt_tokenizer_encode_allowed(const bt_tokenizer *t, const char *text, size_t size, const bt_spans *allowed,
                                      int32_t **ids, size_t *n, bt_error *e);

/* A text in segments that lie one behind the other, each encoded by itself as if the others were not there: nothing is
 * merged or recognised across a border. Kimi's vendor code encodes a conversation so. Without BT_TEXT_SPECIAL a segment
 * never gives the id of an added token, whatever its text. Empty segments give nothing. */
typedef struct bt_text_segment {
    size_t size; /* bytes; no border lies within a character */
    unsigned flags;
} bt_text_segment;

bt_status bt_tokenizer_encode_segments(const bt_tokenizer *t, const char *text, const bt_text_segment *segments,
                                       size_t n_segments, int32_t **ids, size_t *n, bt_error *e);

/* The work of an encoding, counted where a bad input could make it grow faster than n log n. */
typedef struct bt_encode_steps {
    uint64_t scanned; /* bytes looked at in search of added tokens, bytes and characters normalised */
    uint64_t split;   /* bytes that the pattern matcher touched, forwards and backwards */
    uint64_t merged;  /* symbols made, levels that entries of the merge heap moved */
} bt_encode_steps;

/* bt_tokenizer_encode, counting its steps (and slower for it). */
bt_status bt_tokenizer_encode_counted(const bt_tokenizer *t, const char *text, size_t size, unsigned flags,
                                      int32_t **ids, size_t *n, bt_encode_steps *steps, bt_error *e);

#endif
