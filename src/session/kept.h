/*
 * What a session of a recurrent family can go back to. A fixed state holds the whole past and cannot be wound back, so
 * copies of it are kept at some lengths (--state-snapshots), and a rewind replays only what lies after the nearest
 * older one. Families whose states are all per position keep none and need none.
 */
#ifndef SESSION_KEPT_H
#define SESSION_KEPT_H

#include "session/session.h"

/* Inside a long extend, copies are taken at multiples of this length: steps are cut there. */
#define BT_KEPT_EVERY 512u

/* Bytes of the fixed states of one timeline: of one copy. 0: the family is not recurrent. */
uint64_t bt_kept_copy_bytes(const bt_tape *t);

/* Keeps the state at the session's length, if it is not kept yet. Asked before a step changes it, so that the end of an
 * extend costs nothing where nothing follows. Allocates nothing. */
bt_status bt_kept_add(bt_session *s, bt_error *e);

/* Puts the state back to the newest copy at or before `length`, or to the beginning; *restored is its length. Copies
 * beyond `length` are of a past that is given up: they are dropped. */
bt_status bt_kept_restore(bt_session *s, size_t length, size_t *restored, bt_error *e);

void bt_kept_forget(bt_session *s); /* all of them */

#endif
