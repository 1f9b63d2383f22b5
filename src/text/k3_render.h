/*
 * Kimi K3's way of writing a conversation, as its vendor's own program does it: the checkpoints carry no template. What
 * the format has no place for is refused; reasoning of earlier answers has none where thinking is off.
 */
#ifndef TEXT_K3_RENDER_H
#define TEXT_K3_RENDER_H

#include "text/messages.h"

/* Options: thinking, thinking_effort; another one is refused. The text comes in pieces, each to be tokenised by
 * itself. */
bt_status bt_k3_render(const bt_conversation *c, bt_rendered *out, bt_error *e);

/* k3_render_text.c: a text that is written piece by piece. Zero it, then bt_k3_text_take or bt_k3_text_free. */
typedef struct bt_k3_text {
    bt_origin_text out;
    bt_piece *pieces; /* [n_pieces] */
    size_t n_pieces, capacity;
    size_t cut_at; /* where the last piece ended */
} bt_k3_text;

typedef struct bt_k3_attribute {
    const char *key;
    bt_chars value;
} bt_k3_attribute;

void bt_k3_cut(bt_k3_text *t);                                                                 /* a piece ends */
void bt_k3_mark(bt_k3_text *t, const char *mark);                                              /* a control token */
void bt_k3_open(bt_k3_text *t, const char *name, const bt_k3_attribute *attributes, size_t n); /* n may be 0 */
void bt_k3_close(bt_k3_text *t, const char *name);
void bt_k3_piece(bt_k3_text *t, bt_chars text);             /* of a message */
void bt_k3_sorted(bt_k3_text *t, const bt_json_node *node); /* JSON, keys by code point; ends no piece */
bt_status bt_k3_text_take(bt_k3_text *t, bt_rendered *out, bt_error *e);
void bt_k3_text_free(bt_k3_text *t);

/* k3_render_results.c: the results of a run of tool messages, in the order of the calls of the assistant message before
 * them (NULL: there was none). */
typedef struct bt_k3_result {
    const bt_message *message;
    bt_chars tool;
    size_t call_i, order; /* what they are sorted by */
} bt_k3_result;

/* Message `first` of the conversation is the run's first, n_before results of the same calls came before it. *out [n]:
 * bt_free by the caller. A result that belongs to nothing is refused. */
bt_status bt_k3_results(const bt_conversation *c, size_t first, size_t n, const bt_message *calls, size_t n_before,
                        bt_k3_result **out, bt_error *e);

#endif
