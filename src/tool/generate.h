/*
 * Generation: ids of a prompt in, text out, piece by piece. Owns the loop and when it ends; the session, the tokenizer
 * and the terminal are the caller's.
 *
 * The budget is the least of what was asked for and what the context has left, and the reason of the end says which it
 * was. An id that ends the text is neither printed nor counted as output. The prompt cannot match a stop string.
 */
#ifndef TOOL_GENERATE_H
#define TOOL_GENERATE_H

#include "base/json.h"

typedef enum bt_finish {
    BT_FINISH_END_TOKEN,
    BT_FINISH_STOP,    /* a stop string was met */
    BT_FINISH_LENGTH,  /* as many tokens as asked for */
    BT_FINISH_CONTEXT, /* the context is full */
    BT_FINISH_STOPPED, /* a hook or the text function said so */
    BT_FINISH_FAILED,
} bt_finish;

const char *bt_finish_name(bt_finish f); /* "end token", ... */

typedef struct bt_generate_options {
    const bt_tokenizer *tokenizer;
    const int32_t *prompt; /* [n_prompt], at least 1, at most context */
    size_t n_prompt;
    size_t n_known; /* of these the session holds already; less than n_prompt, unless it has the logits too */
    size_t context; /* of the session */
    size_t n_max;   /* SIZE_MAX: no limit of its own */
    bt_sample_params sampling;
    const int32_t *end_ids; /* [n_end_ids] that end the text; none: go on after them */
    size_t n_end_ids;
    const char *const *stops; /* [n_stops] */
    size_t n_stops;
    unsigned decode_flags;  /* BT_TEXT_SPECIAL: the text of special tokens is said too */
    const bt_hook *reading; /* asked between the prompt's steps; may be NULL */
    bt_hook writing;        /* asked before each token of the output, with tokens done and budget */
    bool (*text)(void *user, const char *text, size_t size); /* a piece of the answer, whole characters; false ends */
    void *user;
} bt_generate_options;

typedef struct bt_generated {
    bt_finish finish;
    int32_t *ids; /* [n_ids] of the output; bt_free by the caller */
    size_t n_ids;
    int32_t end_id;        /* with BT_FINISH_END_TOKEN */
    size_t n_without_text; /* ids that the tokenizer does not know */
    double prompt_seconds, first_seconds,
        output_seconds; /* to compute the prompt, to choose the first id, all the rest */
} bt_generated;

/* Extends a session, which holds n_known ids, by the rest of the prompt and the output. A failure in the middle leaves
 * what was said so far in *out, which the caller frees in any case. */
bt_status bt_generate(bt_session *s, size_t n_vocab, const bt_generate_options *o, bt_generated *out, bt_error *e);

#endif
