/* A session's inside: one slot of an engine, the ids that its states stand for, and the logits after the last of them.
 */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

#include "session/engine.h"

struct bt_session {
    bt_engine *engine;
    uint32_t slot;
    size_t length;   /* positions that the slot's states hold */
    int32_t *ids;    /* [context]; the first `length` count */
    float *logits;   /* [n_vocab] */
    bool has_logits; /* of the last id */
};

/* Ids within the vocabulary, and room for them; says which id or both numbers. */
bt_status bt_session_check(const bt_session *s, const int32_t *ids, size_t n, bt_error *e);
void bt_session_take_logits(bt_session *s, const float *logits);      /* copied */
void bt_session_advance(bt_session *s, const int32_t *ids, size_t n); /* after a step that computed these rows */

#endif
