/* What the tests of conversations share: requests from stored cases, renderings with their origins. */
#ifndef TESTS_CHAT_UNIT_H
#define TESTS_CHAT_UNIT_H

#include "text_unit.h"

#include "text/k2_render.h"
#include "text/messages.h"
#include "text/output.h"

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

typedef bt_status (*unit_renderer)(const bt_conversation *c, bt_rendered *out, bt_error *e);

/* `loosely`: as formats parse that have a place for arguments that are no object. */
static inline bt_status unit_render(unit_renderer how, bool loosely, const char *messages, const char *tools,
                                    const char *options, bt_rendered *out, bt_error *e)
{
    bt_conversation c = {0};
    const bt_chat_request r = unit_request(messages, tools, options);
    bt_status st = loosely ? bt_conversation_parse_loosely(&r, &c, e) : bt_conversation_parse(&r, &c, e);
    if (st == BT_OK) st = how(&c, out, e);
    bt_conversation_free(&c);
    return st;
}

static inline bt_status unit_render_k2(const char *messages, const char *tools, const char *options, bt_rendered *out,
                                       bt_error *e)
{
    return unit_render(bt_k2_render, false, messages, tools, options, out, e);
}

/* The same bytes; says where they differ. */
static inline void unit_expect_rendered(const char *name, const bt_rendered *got, const char *want, size_t n_want)
{
    size_t at = 0;
    while (at < got->size && at < n_want && got->text[at] == want[at]) at++;
    if (at != got->size || at != n_want)
        fail_msg("%s: differs from byte %zu on: \"%.80s\", expected \"%.80s\"", name, at, got->text + at, want + at);
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

/* Puts a mark of its own behind every text but names, which must stay equal to each other. */
static inline void unit_mark_text(bt_text *t, bt_chars text, bool is_name, void *user)
{
    size_t *n_marks = user;
    bt_text s = {0};
    bt_text_add(&s, text.text, text.size);
    if (is_name) {
        bt_text_puts(&s, "-name");
    } else {
        bt_text_printf(&s, "(mark %zu)", (*n_marks)++);
    }
    bt_py_dump_string(t, (bt_chars){s.data, s.size});
    bt_text_free(&s);
}

/* The messages and tools of a request with every text marked; the caller frees it with bt_text_free. */
static inline bt_text unit_mark_request(const bt_json_node *request, size_t *n_marks)
{
    bt_text t = {0};
    *n_marks = 0;
    bt_text_puts(&t, "{");
    for (const bt_json_node *m = request->child; m != NULL; m = m->next) {
        if (strcmp(m->key, "messages") != 0 && strcmp(m->key, "tools") != 0) continue;
        bt_text_printf(&t, "%s\"%s\": ", t.size > 1 ? ", " : "", m->key);
        unit_write_changed(&t, m, unit_mark_text, n_marks, "");
    }
    bt_text_puts(&t, "}");
    return t;
}

static inline void unit_expect_marks(const char *rendered, size_t n_marks, const char *request)
{
    for (size_t i = 0; i < n_marks; i++) {
        char mark[32];
        (void)snprintf(mark, sizeof mark, "(mark %zu)", i);
        if (strstr(rendered, mark) == NULL) fail_msg("%s of %s is not in %s", mark, request, rendered);
    }
}

#define TIKTOKEN "tests/data/tokenizers/tiktoken"

/* ---- tokenizers -------------------------------------------------------------------------------------------------- */

/* The stored ranks with these control tokens behind them. */
static inline bt_tokenizer *unit_tiktoken_with(const char *const *tokens, size_t n)
{
    const size_t first = 1356; /* behind the ranks */
    bt_text config = {0};
    bt_tokenizer *t = NULL;
    bt_error e;
    char *ranks = NULL;
    size_t size;
    bt_text_puts(&config, "{\"added_tokens_decoder\": {");
    for (size_t i = 0; i < n; i++) {
        bt_text_printf(&config, "%s\"%zu\": {\"content\": ", i > 0 ? ", " : "", first + i);
        bt_text_json_string(&config, tokens[i], strlen(tokens[i]));
        bt_text_puts(&config, ", \"lstrip\": false, \"normalized\": false, \"rstrip\": false, \"single_word\": false, "
                              "\"special\": true}");
    }
    bt_text_puts(&config, "}}");
    if (bt_read_file(TIKTOKEN "/tiktoken.model", 1 << 20, &ranks, &size, &e) != BT_OK) fail_msg("%s", e.message);
    if (bt_tokenizer_open_tiktoken(ranks, size, config.data, config.size, &t, &e) != BT_OK) fail_msg("%s", e.message);
    bt_free(ranks);
    bt_text_free(&config);
    return t;
}

/* With the tags of Kimi Linear's grammar; closed by the caller. */
static inline bt_tokenizer *unit_linear_tokenizer(void)
{
    const char *tokens[64];
    const bt_grammar *g = bt_grammar_of("kimi_linear");
    size_t n = 0;
    for (; n < g->n_tags; n++) tokens[n] = g->tags[n].text;
    tokens[n++] = "[EOS]";
    return unit_tiktoken_with(tokens, n);
}

#endif
