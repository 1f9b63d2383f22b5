/* What the tests of conversations share: requests from stored cases, renderings with their origins. */
#ifndef TESTS_CHAT_UNIT_H
#define TESTS_CHAT_UNIT_H

#include "text_unit.h"

#include "text/k2_render.h"
#include "text/messages.h"

#define CHAT "tests/data/chat"

static inline bt_chat_request unit_request(const char *messages, const char *tools, const char *options)
{
    return (bt_chat_request){
        .messages = messages,
        .messages_size = strlen(messages),
        .tools = tools,
        .tools_size = tools == NULL ? 0 : strlen(tools),
        .options = options,
        .options_size = options == NULL ? 0 : strlen(options),
    };
}

/* The object without its member `name`, as JSON text; the caller frees it with bt_text_free. */
static inline bt_text unit_without(const bt_json_node *object, const char *name)
{
    bt_text t = {0};
    bt_text_puts(&t, "{");
    for (const bt_json_node *m = object->child; m != NULL; m = m->next) {
        if (strcmp(m->key, name) == 0) continue;
        if (t.size > 1) bt_text_puts(&t, ", ");
        bt_py_dump_string(&t, (bt_chars){m->key, m->key_size});
        bt_text_puts(&t, ": ");
        bt_py_dump(&t, m);
    }
    bt_text_puts(&t, "}");
    assert_true(bt_text_ok(&t));
    return t;
}

static inline bt_status unit_render_k2(const char *messages, const char *tools, const char *options, bt_rendered *out,
                                       bt_error *e)
{
    bt_conversation c = {0};
    const bt_chat_request r = unit_request(messages, tools, options);
    bt_status st = bt_conversation_parse(&r, &c, e);
    if (st == BT_OK) st = bt_k2_render(&c, out, e);
    bt_conversation_free(&c);
    return st;
}

/* Runs alternate, none is empty, together they are the text. */
static inline void unit_check_runs(const bt_rendered *r)
{
    size_t size = 0;
    for (size_t i = 0; i < r->n_runs; i++) {
        assert_true(r->runs[i].size > 0);
        if (i > 0) assert_true(r->runs[i].from_template != r->runs[i - 1].from_template);
        size += r->runs[i].size;
    }
    assert_int_equal(size, r->size);
    assert_int_equal(r->text[r->size], '\0');
}

static inline bool unit_is_one_of(const char *key, const char *const *keys)
{
    while (*keys != NULL && strcmp(key, *keys) != 0) keys++;
    return *keys != NULL;
}

/* Writes a text of a conversation as a JSON string, changed somehow. `is_name`: a key of properties or arguments, or a
 * word that must equal one. */
typedef void (*unit_change)(bt_text *t, bt_chars text, bool is_name, void *user);

/* The tree with every text changed but those under the keys of `form`. */
static inline void unit_write_changed_but(bt_text *t, const bt_json_node *n, unit_change change, void *user,
                                          const char *key, const char *const *form)
{
    static const char *const named[] = {"properties", "arguments", NULL};
    if (n->kind == BT_JSON_STRING && !unit_is_one_of(key, form)) {
        change(t, bt_chars_of(n), strcmp(key, "required") == 0, user);
    } else if (n->kind == BT_JSON_OBJECT) {
        bt_text_puts(t, "{");
        for (const bt_json_node *m = n->child; m != NULL; m = m->next) {
            if (unit_is_one_of(key, named)) {
                change(t, (bt_chars){m->key, m->key_size}, true, user);
            } else {
                bt_py_dump_string(t, (bt_chars){m->key, m->key_size});
            }
            bt_text_puts(t, ": ");
            unit_write_changed_but(t, m, change, user, unit_is_one_of(key, named) ? "" : m->key, form);
            if (m->next != NULL) bt_text_puts(t, ", ");
        }
        bt_text_puts(t, "}");
    } else if (n->kind == BT_JSON_ARRAY) {
        bt_text_puts(t, "[");
        for (const bt_json_node *m = n->child; m != NULL; m = m->next) {
            unit_write_changed_but(t, m, change, user, key, form);
            if (m->next != NULL) bt_text_puts(t, ", ");
        }
        bt_text_puts(t, "]");
    } else {
        bt_py_dump(t, n);
    }
}

/* The tree with every text changed that is somebody's text: not what the form of messages and schemas is made of. */
static inline void unit_write_changed(bt_text *t, const bt_json_node *n, unit_change change, void *user,
                                      const char *key)
{
    static const char *const form[] = {"role", "type", "id", "tool_call_id", "$ref", NULL};
    unit_write_changed_but(t, n, change, user, key, form);
}

#endif
