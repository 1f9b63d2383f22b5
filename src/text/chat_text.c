/*
 * Text with origins, and Python's spelling of JSON trees. Trees come from a reader that bounds their depth, so writing
 * them may recurse. Runs of equal origin are joined as they are written: a conversation has few of them.
 */
#include "text/chat_text.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/pytext.h"

bool bt_chars_equal(bt_chars a, bt_chars b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.text, b.text, a.size) == 0);
}

int bt_chars_compare(bt_chars a, bt_chars b)
{
    const size_t n = a.size < b.size ? a.size : b.size;
    int order = n == 0 ? 0 : memcmp(a.text, b.text, n);
    return order != 0 ? order : a.size < b.size ? -1 : a.size > b.size;
}

bool bt_chars_are(bt_chars a, const char *s)
{
    return a.text != NULL && bt_chars_equal(a, (bt_chars){s, strlen(s)});
}

bt_chars bt_chars_of(const bt_json_node *string)
{
    assert(string->kind == BT_JSON_STRING || string->kind == BT_JSON_NUMBER);
    return (bt_chars){string->text, string->size};
}

/* ---- text with origins ----------------------------------------------------------------------------------------- */

void bt_origin_add(bt_origin_text *t, const char *s, size_t n, bool from_template)
{
    if (n == 0 || t->failed) return;
    bt_text_add(&t->text, s, n);
    t->failed = !bt_text_ok(&t->text); /* then no run may claim the bytes */
    if (t->failed) return;
    if (t->n_runs > 0 && t->runs[t->n_runs - 1].from_template == from_template) {
        t->runs[t->n_runs - 1].size += n;
        return;
    }
    if (t->n_runs == t->capacity) {
        size_t capacity = t->capacity == 0 ? 64 : t->capacity * 2;
        bt_origin_run *more = bt_realloc(t->runs, capacity, sizeof *more);
        if (more == NULL) {
            t->failed = true;
            return;
        }
        t->runs = more;
        t->capacity = capacity;
    }
    t->runs[t->n_runs++] = (bt_origin_run){.size = n, .from_template = from_template};
}

void bt_origin_template(bt_origin_text *t, const char *s)
{
    bt_origin_add(t, s, strlen(s), true);
}

void bt_origin_message(bt_origin_text *t, bt_chars s)
{
    bt_origin_add(t, s.text, s.size, false);
}

void bt_origin_lines(bt_origin_text *t, bt_chars s, size_t indent)
{
    size_t at = 0;
    for (;;) {
        const char *newline = at < s.size ? memchr(s.text + at, '\n', s.size - at) : NULL;
        size_t end = newline == NULL ? s.size : (size_t)(newline - s.text) + 1;
        bt_origin_add(t, s.text + at, end - at, false);
        at = end;
        if (newline == NULL) return;
        for (size_t i = 0; i < indent; i++) bt_origin_template(t, " ");
    }
}

bt_status bt_origin_text_take(bt_origin_text *t, bt_rendered *out, bt_error *e)
{
    bt_text_add(&t->text, "", 0); /* a text of no bytes is one too */
    if (t->failed || !bt_text_ok(&t->text)) {
        bt_origin_text_free(t);
        return bt_fail(e, BT_ERR_MEMORY, "no memory for the prompt's text");
    }
    *out = (bt_rendered){.text = t->text.data, .size = t->text.size, .runs = t->runs, .n_runs = t->n_runs};
    *t = (bt_origin_text){0};
    return BT_OK;
}

void bt_origin_text_free(bt_origin_text *t)
{
    bt_text_free(&t->text);
    bt_free(t->runs);
    *t = (bt_origin_text){0};
}

/* ---- Python's spelling ----------------------------------------------------------------------------------------- */

bool bt_json_is_integer(const bt_json_node *number)
{
    assert(number->kind == BT_JSON_NUMBER);
    return strpbrk(number->text, ".eEnN") == NULL; /* n: inf, nan */
}

/* An integer of any size as it is; a float by repr, with `infinity` for what lies beyond its range. */
static void add_number(bt_text *t, const bt_json_node *n, const char *infinity)
{
    double v = 0;
    if (bt_json_is_integer(n)) {
        bt_text_puts(t, strcmp(n->text, "-0") == 0 ? "0" : n->text);
        return;
    }
    if (!bt_json_f64(n->text, n->size, &v)) { /* too long to be worth converting */
        bt_text_puts(t, n->text);
        return;
    }
    if (isinf(v)) {
        bt_text_puts(t, v < 0 ? "-" : "");
        bt_text_puts(t, infinity);
        return;
    }
    char text[BT_PY_FLOAT_BYTES];
    bt_text_add(t, text, bt_py_float_repr(v, text));
}

void bt_py_dump_string(bt_text *t, bt_chars s)
{
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    size_t start = 0;
    bt_text_add(t, "\"", 1);
    for (size_t i = 0; i < s.size; i++) {
        unsigned char c = (unsigned char)s.text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        bt_text_add(t, s.text + start, i - start);
        start = i + 1;
        const char *p = c == 0 ? NULL : strchr(values, c);
        if (p != NULL) {
            bt_text_add(t, (const char[]){'\\', names[p - values]}, 2);
        } else {
            bt_text_printf(t, "\\u%04x", (unsigned)c);
        }
    }
    bt_text_add(t, s.text + start, s.size - start);
    bt_text_add(t, "\"", 1);
}

/* Single quotes, unless only double ones avoid a backslash. */
static void add_repr(bt_text *t, bt_chars s)
{
    bool has_single = s.size > 0 && memchr(s.text, '\'', s.size) != NULL;
    char quote = has_single && memchr(s.text, '"', s.size) == NULL ? '"' : '\'';
    bt_text_add(t, &quote, 1);
    for (size_t i = 0, n; i < s.size; i += n) {
        uint32_t c = 0;
        n = bt_utf8_decode(s.text + i, s.size - i, &c);
        assert(n > 0);
        if (c == (uint32_t)quote || c == '\\') {
            bt_text_add(t, (const char[]){'\\', (char)c}, 2);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            bt_text_puts(t, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        } else if (bt_py_is_printable(c)) {
            bt_text_add(t, s.text + i, n);
        } else {
            bt_text_printf(t, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
        }
    }
    bt_text_add(t, &quote, 1);
}

/* What JSON and repr() spell differently. */
typedef struct spelling {
    const char *null, *yes, *no, *infinity;
    void (*add_string)(bt_text *t, bt_chars s);
} spelling;

static const spelling json = {"null", "true", "false", "Infinity", bt_py_dump_string};
static const spelling python = {"None", "True", "False", "inf", add_repr};

static void add_node(bt_text *t, const bt_json_node *node, const spelling *s)
{
    bool is_object = node->kind == BT_JSON_OBJECT;
    switch (node->kind) {
    case BT_JSON_NULL:
        bt_text_puts(t, s->null);
        return;
    case BT_JSON_TRUE:
        bt_text_puts(t, s->yes);
        return;
    case BT_JSON_FALSE:
        bt_text_puts(t, s->no);
        return;
    case BT_JSON_STRING:
        s->add_string(t, bt_chars_of(node));
        return;
    case BT_JSON_NUMBER:
        add_number(t, node, s->infinity);
        return;
    case BT_JSON_OBJECT:
    case BT_JSON_ARRAY:
        break;
    default:
        assert(false); /* a tree holds values only */
    }
    bt_text_puts(t, is_object ? "{" : "[");
    for (const bt_json_node *c = node->child; c != NULL; c = c->next) {
        if (is_object) {
            s->add_string(t, (bt_chars){c->key, c->key_size});
            bt_text_puts(t, ": ");
        }
        add_node(t, c, s);
        if (c->next != NULL) bt_text_puts(t, ", ");
    }
    bt_text_puts(t, is_object ? "}" : "]");
}

void bt_py_dump(bt_text *t, const bt_json_node *node)
{
    add_node(t, node, &json);
}

void bt_py_str(bt_text *t, const bt_json_node *node)
{
    if (node->kind == BT_JSON_STRING) {
        bt_text_add(t, node->text, node->size);
    } else {
        add_node(t, node, &python);
    }
}
