/*
 * Arguments that come as one JSON object by themselves. They go out as they are written, byte by byte, as long as they
 * are an object's beginning; what only the whole text shows (equal keys, unpaired surrogates, bytes that are no text)
 * is found at its end, and then the call is lost.
 */
#include <assert.h>

#include "text/output.h"
#include "text/output_state.h"

bool bt_reply_is_object(bt_reply *r, bt_chars text)
{
    const bt_json_node *node = NULL;
    bt_arena *a = bt_arena_new();
    if (a == NULL) {
        r->failed = true;
        return false;
    }
    bt_status st = bt_json_parse(a, text.text, text.size, 0, &node, NULL);
    bool ok = st == BT_OK && node->kind == BT_JSON_OBJECT;
    r->failed |= st == BT_ERR_MEMORY;
    bt_arena_free(a);
    return ok;
}

void bt_reply_open_object(bt_reply *r)
{
    r->state = BT_REPLY_OBJECT;
    r->walk = (bt_walk){0};
    r->is_object_open = r->is_object_done = false;
}

static void pass_on(bt_reply *r, size_t end)
{
    size_t from = r->made.size;
    assert(end >= r->passed_at);
    bt_text_add(&r->made, r->output.data + r->passed_at, end - r->passed_at);
    bt_reply_tell_arguments(r, from);
    r->passed_at = end;
}

bool bt_reply_object_text(bt_reply *r, size_t at, size_t end)
{
    for (; at < end && !r->failed; at++) {
        char c = r->output.data[at];
        if (r->is_object_done) {
            if (!bt_value_is_space(c)) return false;
            continue;
        }
        bt_walked walked = bt_walk_step(&r->walk, c);
        if (walked == BT_WALK_FAULT) return false;
        if (!r->is_object_open && r->walk.depth > 0) {
            r->is_object_open = true;
            r->value_at = r->passed_at = at;
        }
        if (walked != BT_WALK_DONE) continue;
        pass_on(r, at + 1);
        r->is_object_done = true;
        if (!bt_reply_is_object(r, (bt_chars){r->output.data + r->value_at, at + 1 - r->value_at})) return false;
    }
    if (r->is_object_open && !r->is_object_done) pass_on(r, end);
    return true;
}

bool bt_reply_close_object(bt_reply *r)
{
    size_t from = r->made.size;
    if (r->is_object_open) return r->is_object_done;
    bt_text_puts(&r->made, "{}");
    bt_reply_tell_arguments(r, from);
    return true;
}
