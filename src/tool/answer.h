/*
 * An answer: a rendered prompt in, events out, and the message that they make. Owns the way from ids to meaning, for
 * `run --chat` and `chat` alike; what is done with the events is the caller's.
 *
 * A session that already holds ids is used as far as it goes: the ids that it shares with the prompt, from the first
 * one on, are kept, whatever follows them is rewound, and only the rest of the prompt is computed. So a conversation
 * computes each turn once, and a changed past costs what comes after the change.
 */
#ifndef TOOL_ANSWER_H
#define TOOL_ANSWER_H

#include "tool/generate.h"

typedef struct bt_answer_options {
    const bt_chat *chat;
    const bt_tokenizer *tokenizer;
    bt_session *session;
    size_t n_vocab; /* of the model */
    size_t context; /* of the session */
    size_t n_max;   /* SIZE_MAX: no limit of its own */
    bt_sample_params sampling;
    const int32_t *end_ids; /* [n_end_ids] that end a turn */
    size_t n_end_ids;
    const char *const *stops; /* [n_stops] */
    size_t n_stops;
    const bt_hook *reading;                                 /* between the prompt's steps; may be NULL */
    bt_hook writing;                                        /* before each token of the answer */
    bool (*event)(void *user, const bt_reply_event *event); /* borrowed for the call; false ends the answer */
    void *user;
} bt_answer_options;

typedef struct bt_answer { /* free with bt_answer_free; an all-zero one is fine */
    bt_generated made;
    size_t n_prompt, n_known; /* ids of the prompt, and how many of them the session had */
    char *message;            /* [size] JSON, in OpenAI's form; NULL: no answer began */
    size_t size;
    const char *finish_reason; /* "stop", "tool_calls", "length"; static */
} bt_answer;

/* The ids that end a turn: the model's (less those that the tokenizer does not list as an added token; `dropped` names
 * them) and the family's. *ids [*n]: bt_free by the caller. */
bt_status bt_answer_end_ids(const bt_model *m, const bt_tokenizer *t, const bt_chat *c, int32_t **ids, size_t *n,
                            bt_text *dropped, bt_error *e);

/* Refuses a prompt that leaves no room for an answer, if one is wanted (n_max > 0): BT_ERR_CONTEXT with the numbers. */
bt_status bt_answer_fits(const bt_prompt *p, size_t context, size_t n_max, bt_error *e);

/* Leaves in the session what the prompt begins with; *n_known: how many ids that is, one less than all of them unless
 * the logits that follow are there. A recurrent model may have to replay for that: the hook (may be NULL) is asked. */
bt_status bt_answer_keep_known(bt_session *s, const bt_prompt *p, size_t *n_known, const bt_hook *reading, bt_error *e);

/* Answers. A failure in the middle leaves what was said so far in *out, which the caller frees in any case. */
bt_status bt_answer_make(const bt_prompt *p, const bt_answer_options *o, bt_answer *out, bt_error *e);
void bt_answer_free(bt_answer *a);

#endif
