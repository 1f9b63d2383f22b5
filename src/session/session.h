/* A session's inside: one slot of an engine, the ids that its states stand for, the logits after the last of them, and
 * the lengths at which copies of its recurrent states are kept. */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

#include "session/engine.h"

/* A copy of the fixed states after `length` ids; its bytes lie in the engine, at a place of the session's slot. */
typedef struct bt_kept {
    size_t length;
    uint32_t place;
    bool is_single; /* the extend that ended here was of one id */
} bt_kept;

struct bt_session {
    bt_engine *engine;
    uint32_t slot;
    size_t length;   /* positions that the slot's states hold */
    int32_t *ids;    /* [context]; the first `length` count */
    float *logits;   /* [n_vocab] */
    bool has_logits; /* of the last id */
    bt_kept *kept;   /* [engine->n_kept_max], the first n_kept, by ascending length; none beyond the session's */
    size_t n_kept;
    bool ends_single;  /* the last extend was of one id */
    size_t n_replayed; /* ids that rewinds have computed again, since the session was opened */
};

/* Ids within the vocabulary, and room for them; says which id or both numbers. */
bt_status bt_session_check(const bt_session *s, const int32_t *ids, size_t n, bt_error *e);
void bt_session_take_logits(bt_session *s, const float *logits);      /* copied */
void bt_session_advance(bt_session *s, const int32_t *ids, size_t n); /* after a step that computed these rows */

#endif
