/*
 * JSON at both ends of a template: its variables are read from JSON text, and tojson writes values as json.dumps
 * does.
 *
 * What is read comes from outside, so everything read is message, except strings at the places that the caller trusts
 * (the tokenizer's special strings, role names from a fixed list). A key that occurs twice has its last value, as in
 * Python.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/jinja_access.h"
#include "text/jinja_node.h"
#include "text/pyjson.h"
#include "text/pytext.h"

#define TRUSTED_MAX 32

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct loader {
    bt_jx *x;
    bt_json json;
    const bt_jinja_trust *trusted;
    size_t n_trusted;
} loader;

typedef struct trail { /* what is left of each trusted path at this place; NULL: it leads elsewhere */
    const char *rest[TRUSTED_MAX];
} trail;

/* The trail one key or, with a NULL key, one array element further in. */
static trail step(const loader *l, const trail *from, const char *key, size_t size)
{
    trail t = {{NULL}};
    for (size_t i = 0; i < l->n_trusted; i++) {
        const char *rest = from->rest[i];
        if (rest == NULL) continue;
        if (key == NULL) {
            if (rest[0] == '[' && rest[1] == ']') t.rest[i] = rest + 2;
            continue;
        }
        if (rest[0] == '.') rest++;
        size_t n = strcspn(rest, ".[");
        if (n > 0 && n == size && memcmp(rest, key, n) == 0) t.rest[i] = rest + n;
    }
    return t;
}

static bool is_trusted(const loader *l, const trail *t, const char *text, size_t size)
{
    for (size_t i = 0; i < l->n_trusted; i++) {
        if (t->rest[i] == NULL || t->rest[i][0] != '\0') continue;
        const char *const *values = l->trusted[i].values;
        if (values == NULL) return true;
        for (; *values != NULL; values++) {
            if (strlen(*values) == size && memcmp(*values, text, size) == 0) return true;
        }
    }
    return false;
}

static bt_jv number(loader *l)
{
    const char *text = l->json.text;
    size_t size = l->json.size;
    int64_t i = 0;
    double f = 0;
    bool integer = true;
    for (size_t k = 0; k < size; k++) integer = integer && (text[k] == '-' || (text[k] >= '0' && text[k] <= '9'));
    if (integer) {
        if (bt_py_parse_int(text, size, 10, &i) == 1) return bt_jv_int(i, true);
        bt_jv big = bt_js_copy(l->x, text, size, true);
        if (!bt_failed(big)) big.kind = JV_BIG;
        return big;
    }
    bool good = bt_py_parse_float(text, size, &f);
    assert(good && "the scanner took it for a number");
    (void)good;
    return bt_jv_float(f, true);
}

static bt_jv value(loader *l, bt_json_kind first, const trail *t);

static bt_jv array(loader *l, const trail *t)
{
    const trail inner = step(l, t, NULL, 0);
    bt_jlist *list = bt_jlist_new(l->x, 0);
    bt_json_kind kind;
    while (list != NULL && (kind = bt_json_next(&l->json)) != BT_JSON_ARRAY_END) {
        bt_jv v = value(l, kind, &inner);
        if (bt_failed(v) || !bt_jlist_add(l->x, list, v)) return bt_jv_of(JV_FAIL);
    }
    if (list == NULL) return bt_jv_of(JV_FAIL);
    list->message = true;
    return bt_jv_list(JV_LIST, list);
}

static bt_jv object(loader *l, const trail *t)
{
    bt_jdict *d = bt_jdict_new(l->x);
    while (d != NULL && bt_json_next(&l->json) == BT_JSON_KEY) {
        const trail inner = step(l, t, l->json.text, l->json.size);
        bt_jv key = bt_js_copy(l->x, l->json.text, l->json.size, true);
        bt_jv v = bt_failed(key) ? key : value(l, bt_json_next(&l->json), &inner);
        if (bt_failed(v) || !bt_jdict_put(l->x, d, key, v)) return bt_jv_of(JV_FAIL);
    }
    if (d == NULL || l->json.status != BT_OK) return bt_jv_of(JV_FAIL);
    d->message = true;
    return bt_jv_dict(d);
}

/* The value whose first event is given. The scanner bounds the depth. */
static bt_jv value(loader *l, bt_json_kind first, const trail *t)
{
    switch (first) {
    case BT_JSON_OBJECT:
        return object(l, t);
    case BT_JSON_ARRAY:
        return array(l, t);
    case BT_JSON_STRING:
        return bt_js_copy(l->x, l->json.text, l->json.size, !is_trusted(l, t, l->json.text, l->json.size));
    case BT_JSON_NUMBER:
        return number(l);
    case BT_JSON_TRUE:
    case BT_JSON_FALSE:
        return bt_jv_bool(first == BT_JSON_TRUE, true);
    case BT_JSON_NULL:
        return (bt_jv){.kind = JV_NONE, .message = true};
    default:
        return bt_jv_of(JV_FAIL);
    }
}

const bt_jdict *bt_jx_load_context(bt_jx *x, const char *text, size_t size, const bt_jinja_trust *trusted,
                                   size_t n_trusted)
{
    bt_error e = {BT_OK, ""};
    loader l = {.x = x, .trusted = trusted, .n_trusted = n_trusted};
    trail t = {{NULL}};
    if (n_trusted > TRUSTED_MAX) {
        (void)bt_jx_fail(x, "more than %d trusted paths", TRUSTED_MAX);
        return NULL;
    }
    for (size_t i = 0; i < n_trusted; i++) t.rest[i] = trusted[i].path;
    bt_json_begin(&l.json, text, size, BT_JSON_PYTHON, &e);
    bt_json_kind first = bt_json_next(&l.json);
    bt_jv v = value(&l, first, &t);
    if (!bt_failed(v) && v.kind == JV_DICT) (void)bt_json_next(&l.json); /* nothing may follow */
    if (l.json.status != BT_OK) (void)bt_jx_fail_status(x, l.json.status, "the context: %s", e.message);
    if (!x->failed && v.kind != JV_DICT) (void)bt_jx_fail(x, "the context is no JSON object");
    bt_json_done(&l.json);
    return x->failed ? NULL : v.dict;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct writer {
    bt_jx *x;
    bool ascii, sort_keys, indented;
    const bt_js *indent, *item_separator, *key_separator;
    size_t depth;
} writer;

static void write_value(writer *w, bt_jv v);

static void put(writer *w, const char *text)
{
    bt_out_puts(w->x, text, false);
}

static void put_js(writer *w, const bt_js *s)
{
    bt_out_add(w->x, s->data, s->size, false);
}

static void write_string(writer *w, const bt_js *s)
{
    char escape[BT_PYJSON_ESCAPE_MAX];
    size_t plain = 0, length;
    put(w, "\"");
    for (size_t i = 0; i < s->size && !w->x->failed; i += length) {
        uint32_t c = 0;
        length = bt_utf8_decode(s->data + i, s->size - i, &c);
        assert(length > 0);
        size_t size = bt_pyjson_escape(c, w->ascii, escape);
        if (size == 0) continue;
        bt_out_add(w->x, s->data + plain, i - plain, false);
        bt_out_add(w->x, escape, size, false);
        plain = i + length;
    }
    bt_out_add(w->x, s->data + plain, s->size - plain, false);
    put(w, "\"");
}

/* Numbers, booleans, none: false if v is none of them. */
static bool write_scalar(writer *w, bt_jv v)
{
    char text[BT_PY_FLOAT_BYTES];
    switch ((bt_jv_kind)v.kind) {
    case JV_NONE:
        put(w, "null");
        return true;
    case JV_BOOL:
        put(w, v.b ? "true" : "false");
        return true;
    case JV_INT:
        (void)snprintf(text, sizeof text, "%lld", (long long)v.i);
        put(w, text);
        return true;
    case JV_BIG:
        put_js(w, v.s);
        return true;
    case JV_FLOAT:
        if (bt_jx_charge_float(w->x, 0)) bt_out_add(w->x, text, bt_pyjson_float(v.f, text), false);
        return true;
    default:
        return false;
    }
}

static void new_line(writer *w)
{
    put(w, "\n");
    for (size_t i = 0; i < w->depth && !w->x->failed; i++) put_js(w, w->indent);
}

/* What stands before the i-th item. */
static void separate(writer *w, size_t i)
{
    if (i > 0) put_js(w, w->item_separator);
    if (w->indented) new_line(w);
}

static void write_list(writer *w, const bt_jlist *l)
{
    put(w, "[");
    w->depth++;
    for (size_t i = 0; i < l->n && !w->x->failed; i++) {
        separate(w, i);
        write_value(w, l->items[i]);
    }
    w->depth--;
    if (w->indented && l->n > 0) new_line(w);
    put(w, "]");
}

static void write_key(writer *w, bt_jv key)
{
    if (key.kind == JV_STRING) {
        write_string(w, key.s);
        return;
    }
    put(w, "\"");
    if (!write_scalar(w, key)) {
        (void)bt_jx_fail(w->x, "keys must be str, int, float, bool or None, not %s", bt_jv_type(key));
    }
    put(w, "\"");
}

static void write_dict(writer *w, const bt_jdict *d)
{
    if (w->sort_keys && (d = bt_jdict_sorted(w->x, d)) == NULL) return;
    put(w, "{");
    w->depth++;
    for (size_t i = 0; i < d->n && !w->x->failed; i++) {
        separate(w, i);
        write_key(w, d->pairs[i].key);
        put_js(w, w->key_separator);
        write_value(w, d->pairs[i].value);
    }
    w->depth--;
    if (w->indented && d->n > 0) new_line(w);
    put(w, "}");
}

static void write_value(writer *w, bt_jv v)
{
    if (!bt_jx_enter(w->x)) return;
    if (v.kind == JV_STRING) {
        write_string(w, v.s);
    } else if (v.kind == JV_LIST || v.kind == JV_TUPLE) {
        write_list(w, v.list);
    } else if (v.kind == JV_DICT) {
        write_dict(w, v.dict);
    } else if (!write_scalar(w, v)) {
        (void)bt_jx_fail(w->x, "object of type %s is not JSON serializable", bt_jv_type(v));
    }
    bt_jx_leave(w->x);
}

/* indent=4 or indent="\t" */
static bool set_indent(writer *w, bt_jv v)
{
    size_t n = 0;
    w->indented = true;
    if (v.kind == JV_STRING) {
        w->indent = v.s;
        return true;
    }
    if (!bt_jarg_size(w->x, "tojson", v, &n)) return false;
    size_t begin = bt_out_begin(w->x);
    bt_out_fill(w->x, ' ', n, false);
    v = bt_out_take(w->x, begin, false);
    if (bt_failed(v)) return false;
    w->indent = v.s;
    return true;
}

static bool set_separators(writer *w, bt_jv v)
{
    bool pair = (v.kind == JV_TUPLE || v.kind == JV_LIST) && v.list->n == 2;
    if (!pair || v.list->items[0].kind != JV_STRING || v.list->items[1].kind != JV_STRING) {
        return !bt_failed(bt_jx_fail(w->x, "tojson: separators must be two strings"));
    }
    w->item_separator = v.list->items[0].s;
    w->key_separator = v.list->items[1].s;
    return true;
}

bt_jv bt_jv_to_json(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    static const bt_js comma = {.data = ",", .size = 1}, comma_space = {.data = ", ", .size = 2};
    static const bt_js colon_space = {.data = ": ", .size = 2};
    bt_jv p[4];
    if (!bt_jargs_bind(x, a, "tojson", "ensure_ascii indent separators sort_keys", 0, p)) return bt_jv_of(JV_FAIL);
    writer w = {.x = x, .ascii = bt_jv_truth(x, p[0]), .sort_keys = bt_jv_truth(x, p[3])};
    if (p[1].kind != JV_MISSING && p[1].kind != JV_NONE && !set_indent(&w, p[1])) return bt_jv_of(JV_FAIL);
    w.item_separator = w.indented ? &comma : &comma_space;
    w.key_separator = &colon_space;
    if (p[2].kind != JV_MISSING && p[2].kind != JV_NONE && !set_separators(&w, p[2])) return bt_jv_of(JV_FAIL);
    bool message = v.message || bt_jargs_message(a);
    size_t begin = bt_out_begin(x);
    write_value(&w, v);
    bt_out_stain(x, begin, message);
    return bt_out_take(x, begin, message);
}
