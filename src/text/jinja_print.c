/*
 * str() and repr() of values, as Python writes them. What has an address in Python's text (functions, generators) is no
 * text that a template can want, and an error here.
 */
#include "text/jinja_value.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_node.h"
#include "text/pytext.h"

static void write_value(bt_jx *x, bt_jv v);

static void write_escaped(bt_jx *x, uint32_t c)
{
    char text[16];
    int n = c < 0x100     ? snprintf(text, sizeof text, "\\x%02x", (unsigned)c)
            : c < 0x10000 ? snprintf(text, sizeof text, "\\u%04x", (unsigned)c)
                          : snprintf(text, sizeof text, "\\U%08x", (unsigned)c);
    bt_out_add(x, text, (size_t)n, false);
}

/* Single quotes, unless only double ones avoid a backslash. */
static void write_string(bt_jx *x, const bt_js *s)
{
    bool single = memchr(s->data, '\'', s->size) != NULL, twice = memchr(s->data, '"', s->size) != NULL;
    char quote = single && !twice ? '"' : '\'';
    if (s->markup) bt_out_puts(x, "Markup(", false);
    bt_out_add(x, &quote, 1, false);
    for (size_t i = 0, n; i < s->size && !x->failed; i += n) {
        uint32_t c = 0;
        n = bt_utf8_decode(s->data + i, s->size - i, &c);
        assert(n > 0);
        if (c == (uint32_t)quote || c == '\\') {
            char text[2] = {'\\', (char)c};
            bt_out_add(x, text, 2, false);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            bt_out_puts(x, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", false);
        } else if (bt_py_is_printable(c)) {
            bt_out_add(x, s->data + i, n, false);
        } else {
            write_escaped(x, c);
        }
    }
    bt_out_add(x, &quote, 1, false);
    if (s->markup) bt_out_puts(x, ")", false);
}

static void write_list(bt_jx *x, bt_jv v)
{
    bool tuple = v.kind == JV_TUPLE;
    bt_out_puts(x, tuple ? "(" : "[", false);
    for (size_t i = 0; i < v.list->n && !x->failed; i++) {
        if (i > 0) bt_out_puts(x, ", ", false);
        write_value(x, v.list->items[i]);
    }
    bt_out_puts(x, tuple ? (v.list->n == 1 ? ",)" : ")") : "]", false);
}

static void write_dict(bt_jx *x, const bt_jdict *d)
{
    bt_out_puts(x, "{", false);
    for (size_t i = 0; i < d->n && !x->failed; i++) {
        if (i > 0) bt_out_puts(x, ", ", false);
        write_value(x, d->pairs[i].key);
        bt_out_puts(x, ": ", false);
        write_value(x, d->pairs[i].value);
    }
    bt_out_puts(x, "}", false);
}

static void write_view(bt_jx *x, bt_jv v)
{
    bt_out_puts(x, bt_jv_type(v), false);
    bt_out_puts(x, "([", false);
    for (size_t i = 0; i < v.dict->n && !x->failed; i++) {
        const bt_jpair *p = &v.dict->pairs[i];
        bool items = v.view == VIEW_ITEMS;
        if (i > 0) bt_out_puts(x, ", ", false);
        if (items) bt_out_puts(x, "(", false);
        if (v.view != VIEW_VALUES) write_value(x, p->key);
        if (items) bt_out_puts(x, ", ", false);
        if (v.view != VIEW_KEYS) write_value(x, p->value);
        if (items) bt_out_puts(x, ")", false);
    }
    bt_out_puts(x, "])", false);
}

static void write_number(bt_jx *x, bt_jv v)
{
    char text[BT_PY_FLOAT_BYTES];
    if (v.kind == JV_FLOAT && !bt_jx_charge_float(x, 0)) return;
    size_t n = v.kind == JV_FLOAT ? bt_py_float_repr(v.f, text) : (size_t)snprintf(text, sizeof text, "%" PRId64, v.i);
    bt_out_add(x, text, n, false);
}

static void write_range(bt_jx *x, const bt_jrange *r)
{
    char text[80];
    int n = r->step == 1 ? snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", r->start, r->stop)
                         : snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", r->start,
                                    r->stop, r->step);
    bt_out_add(x, text, (size_t)n, false);
}

static void write_loop(bt_jx *x, bt_jv v)
{
    char text[80];
    size_t length = 0;
    (void)bt_jv_length(x, v, &length);
    int n = snprintf(text, sizeof text, "<LoopContext %" PRId64 "/%zu>", v.loop->index0 + 1, length);
    bt_out_add(x, text, (size_t)n, false);
}

static void write_macro(bt_jx *x, const bt_jmacro *m)
{
    bt_out_puts(x, "<Macro ", false);
    if (m->name == NULL) {
        bt_out_puts(x, "anonymous", false);
    } else {
        write_string(x, m->name);
    }
    bt_out_puts(x, ">", false);
}

/* repr(v) */
static void write_kind(bt_jx *x, bt_jv v)
{
    switch ((bt_jv_kind)v.kind) {
    case JV_UNDEFINED:
        bt_out_puts(x, "Undefined", false);
        break;
    case JV_NONE:
        bt_out_puts(x, "None", false);
        break;
    case JV_BOOL:
        bt_out_puts(x, v.b ? "True" : "False", false);
        break;
    case JV_INT:
    case JV_FLOAT:
        write_number(x, v);
        break;
    case JV_BIG:
        bt_out_add(x, v.s->data, v.s->size, false);
        break;
    case JV_STRING:
        write_string(x, v.s);
        break;
    case JV_LIST:
    case JV_TUPLE:
        write_list(x, v);
        break;
    case JV_DICT:
        write_dict(x, v.dict);
        break;
    case JV_RANGE:
        write_range(x, v.range);
        break;
    case JV_VIEW:
        write_view(x, v);
        break;
    case JV_NAMESPACE:
        bt_out_puts(x, "<Namespace ", false);
        write_dict(x, v.names);
        bt_out_puts(x, ">", false);
        break;
    case JV_MACRO:
        write_macro(x, v.macro);
        break;
    case JV_LOOP:
        write_loop(x, v);
        break;
    default:
        (void)bt_jx_fail(x, "a %s has no text of its own%s", bt_jv_type(v),
                         v.kind == JV_GENERATOR ? "; |list makes a list of it" : "; to call it, add ()");
        break;
    }
}

static void write_value(bt_jx *x, bt_jv v)
{
    if (!bt_jx_enter(x)) return;
    write_kind(x, v);
    bt_jx_leave(x);
}

/* A namespace may hold message text without knowing it: it is the one container that changes. */
static bool message_inside(bt_jv v)
{
    return v.message || v.kind == JV_NAMESPACE;
}

void bt_out_repr(bt_jx *x, bt_jv v)
{
    size_t begin = bt_out_begin(x);
    write_value(x, v);
    bt_out_stain(x, begin, message_inside(v));
}

void bt_out_str(bt_jx *x, bt_jv v)
{
    if (v.kind == JV_STRING) {
        bt_out_js(x, v.s, 0, v.s->size);
    } else if (v.kind != JV_UNDEFINED) {
        bt_out_repr(x, v);
    }
}
