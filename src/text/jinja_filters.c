/*
 * The table of filters, and those on strings. A filter without a function is one that Jinja2 has and we refuse: random
 * would give other bytes each time, and urlize makes links of web pages, which no prompt has.
 */
#include "text/jinja_filters.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_access.h"
#include "text/pytext.h"

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static bool none_given(bt_jx *x, const bt_jargs *a, const char *what)
{
    return bt_jargs_bind(x, a, what, "", 0, NULL);
}

static bool given(bt_jv v)
{
    return v.kind != JV_MISSING && v.kind != JV_NONE;
}

/* str(v), plain: without the mark of markup. */
static bt_jv plain(bt_jx *x, bt_jv v)
{
    v = bt_jv_str(x, v);
    if (bt_failed(v) || !v.s->markup) return v;
    bt_js *s = bt_jx_alloc(x, 1, sizeof *s);
    if (s == NULL) return bt_jv_of(JV_FAIL);
    *s = *v.s;
    s->markup = false;
    return bt_jv_string(s);
}

static bt_jv in_case(bt_jx *x, bt_jv v, const bt_jargs *a, const char *what, bt_case to)
{
    if (!none_given(x, a, what)) return bt_jv_of(JV_FAIL);
    v = bt_jv_str(x, v);
    return bt_failed(v) ? v : bt_js_to_case(x, v.s, to);
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static bt_jv filter_capitalize(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return in_case(x, v, a, "capitalize", CASE_CAPITAL);
}

static bt_jv filter_lower(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return in_case(x, v, a, "lower", CASE_LOWER);
}

static bt_jv filter_upper(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return in_case(x, v, a, "upper", CASE_UPPER);
}

static bt_jv filter_string(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return none_given(x, a, "string") ? bt_jv_str(x, v) : bt_jv_of(JV_FAIL);
}

static bt_jv filter_safe(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return none_given(x, a, "safe") ? bt_js_as_markup(x, bt_jv_str(x, v)) : bt_jv_of(JV_FAIL);
}

static bt_jv filter_escape(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return none_given(x, a, "escape") ? bt_js_escape(x, v) : bt_jv_of(JV_FAIL);
}

static bt_jv filter_forceescape(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (!none_given(x, a, "forceescape")) return bt_jv_of(JV_FAIL);
    v = plain(x, v);
    return bt_failed(v) ? v : bt_js_escape(x, v);
}

static bt_jv filter_center(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv width;
    size_t n = 80;
    if (!bt_jargs_bind(x, a, "center", "width", 0, &width)) return bt_jv_of(JV_FAIL);
    if (width.kind != JV_MISSING && !bt_jarg_size(x, "center", width, &n)) return bt_jv_of(JV_FAIL);
    v = bt_jv_str(x, v);
    return bt_failed(v) ? v : bt_js_center(x, v.s, n, NULL);
}

static bt_jv filter_trim(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv chars;
    const bt_js *set = NULL;
    if (!bt_jargs_bind(x, a, "trim", "chars", 0, &chars)) return bt_jv_of(JV_FAIL);
    if (given(chars) && (set = bt_jarg_string(x, "trim", chars)) == NULL) return bt_jv_of(JV_FAIL);
    v = bt_jv_str(x, v);
    return bt_failed(v) ? v : bt_js_strip(x, v.s, set, STRIP_BOTH);
}

static bt_jv filter_replace(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[3];
    int64_t count = -1;
    if (!bt_jargs_bind(x, a, "replace", "old new count", 2, p)) return bt_jv_of(JV_FAIL);
    if (given(p[2]) && !bt_jarg_int(x, "replace", p[2], &count)) return bt_jv_of(JV_FAIL);
    bt_jv s = plain(x, v), old = plain(x, p[0]), new = plain(x, p[1]);
    if (bt_failed(s) || bt_failed(old) || bt_failed(new)) return bt_jv_of(JV_FAIL);
    return bt_js_replace(x, s.s, old.s, new.s, count);
}

static bool opens_word(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || bt_py_is_space(c);
}

/* Words are what stands between spaces and opening brackets: unlike str.title, "don't" stays one. */
static bt_jv filter_title(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (!none_given(x, a, "title")) return bt_jv_of(JV_FAIL);
    v = plain(x, v);
    if (bt_failed(v)) return v;
    const bt_js *s = v.s;
    size_t begin = bt_out_begin(x);
    for (size_t at = 0; at < s->size && !x->failed;) {
        uint32_t c = 0;
        size_t end = at, first = bt_utf8_decode(s->data + at, s->size - at, &c), n = 0;
        bool gap = opens_word(c);
        while (end < s->size && (n = bt_utf8_decode(s->data + end, s->size - end, &c)) > 0 && opens_word(c) == gap)
            end += n;
        bt_js word = {.data = s->data + at, .size = end - at, .message = s->message};
        word.marks = s->marks == NULL ? NULL : s->marks + at;
        bt_out_case(x, &word, first, CASE_UPPER);
        word.data += first;
        word.size -= first;
        if (word.marks != NULL) word.marks += first;
        bt_out_case(x, &word, word.size, CASE_LOWER);
        at = end;
    }
    return bt_out_take(x, begin, v.message);
}

static bt_jv filter_wordcount(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (!none_given(x, a, "wordcount")) return bt_jv_of(JV_FAIL);
    v = bt_jv_str(x, v);
    if (bt_failed(v) || !bt_jx_charge_scan(x, v.s->size)) return bt_jv_of(JV_FAIL);
    int64_t words = 0;
    bool inside = false;
    for (size_t at = 0, n; at < v.s->size; at += n) {
        uint32_t c = 0;
        n = bt_utf8_decode(v.s->data + at, v.s->size - at, &c);
        bool word = bt_py_is_word(c);
        words += word && !inside;
        inside = word;
    }
    return bt_jv_int(words, v.message);
}

/* What indents the lines: a string as it is, or a number of spaces. */
static bt_jv indention(bt_jx *x, bt_jv width, bool markup)
{
    size_t n = 4;
    if (width.kind == JV_STRING) return width;
    if (width.kind != JV_MISSING && !bt_jarg_size(x, "indent", width, &n)) return bt_jv_of(JV_FAIL);
    size_t begin = bt_out_begin(x);
    bt_out_fill(x, ' ', n, width.kind != JV_MISSING && width.message);
    bt_jv v = bt_out_take(x, begin, false);
    return markup ? bt_js_as_markup(x, v) : v;
}

/* What is put into message text is message: here, after a line break of a message or before its text. */
static void put_indention(bt_jx *x, const bt_js *indent, bool into_message)
{
    size_t begin = bt_out_begin(x);
    bt_out_js(x, indent, 0, indent->size);
    if (into_message) bt_out_stain(x, begin, true);
}

static bt_jv indent_lines(bt_jx *x, const bt_js *s, const bt_js *indent, bool first, bool blank)
{
    size_t begin = bt_out_begin(x), from = 0;
    bool after_message = false; /* the break before this line is from a message */
    for (size_t line = 0;; line++) {
        size_t to = from, n = 0;
        uint32_t c = 0;
        while (to < s->size && (n = bt_utf8_decode(s->data + to, s->size - to, &c)) > 0 && !bt_py_is_line_break(c))
            to += n;
        bool text_message = to > from && bt_js_range_message(s, from, to);
        if (line == 0 ? first : blank || to > from) put_indention(x, indent, after_message || text_message);
        bt_out_js(x, s, from, to);
        if (to == s->size || x->failed) break;
        if (c == '\r' && to + 1 < s->size && s->data[to + 1] == '\n') n = 2;
        after_message = bt_js_range_message(s, to, to + n);
        bt_out_add(x, "\n", 1, after_message);
        from = to + n;
    }
    return bt_out_take(x, begin, s->message);
}

static bt_jv filter_indent(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[3];
    if (!bt_jargs_bind(x, a, "indent", "width first blank", 0, p)) return bt_jv_of(JV_FAIL);
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    if (v.kind != JV_STRING) return bt_jx_fail(x, "indent: unsupported type '%s'", bt_jv_type(v));
    bt_jv indent = indention(x, p[0], v.s->markup);
    if (bt_failed(indent)) return indent;
    bt_jv result = indent_lines(x, v.s, indent.s, bt_jv_truth(x, p[1]), bt_jv_truth(x, p[2]));
    return v.s->markup ? bt_js_as_markup(x, result) : result;
}

static bt_jv filter_truncate(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[4];
    int64_t length = 255, leeway = 5;
    if (!bt_jargs_bind(x, a, "truncate", "length killwords end leeway", 0, p)) return bt_jv_of(JV_FAIL);
    if (p[0].kind != JV_MISSING && !bt_jarg_int(x, "truncate", p[0], &length)) return bt_jv_of(JV_FAIL);
    if (given(p[3]) && !bt_jarg_int(x, "truncate", p[3], &leeway)) return bt_jv_of(JV_FAIL);
    bt_jv end = p[2].kind == JV_MISSING ? bt_js_static(x, "...", false) : p[2];
    const bt_js *tail = bt_failed(end) ? NULL : bt_jarg_string(x, "truncate", end);
    size_t n = 0;
    if (tail == NULL) return bt_jv_of(JV_FAIL);
    int64_t kept = length - (int64_t)bt_js_length(tail);
    if (kept < 0 || leeway < 0)
        return bt_jx_fail(x, "truncate: the length is less than that of the end, or leeway < 0");
    if (!bt_jv_length(x, v, &n)) return bt_jx_fail(x, "object of type '%s' has no len()", bt_jv_type(v));
    if (length > INT32_MAX || leeway > INT32_MAX || (int64_t)n <= length + leeway) return v;
    if (v.kind != JV_STRING) return bt_jx_fail(x, "truncate: unsupported type '%s'", bt_jv_type(v));
    bt_jv head = bt_js_slice(x, v.s, 0, bt_js_offset(v.s, (size_t)kept));
    const bt_js space = {.data = " ", .size = 1};
    if (!bt_failed(head) && !bt_jv_truth(x, p[1])) head = bt_js_split_last(x, head.s, &space);
    bt_jv result = bt_failed(head) ? head : bt_js_concat(x, head, end);
    bool markup = !bt_failed(result) && result.s->markup, message = v.message || end.message || bt_jargs_message(a);
    if (bt_failed(result)) return result;
    result = bt_js_copy(x, result.s->data, result.s->size, message);
    return markup ? bt_js_as_markup(x, result) : result;
}

static void quote(bt_jx *x, const bt_js *s, bool query, bool message)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s->size && !x->failed; i++) {
        unsigned char c = (unsigned char)s->data[i];
        bool letter = ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9');
        if (letter || (c != '\0' && strchr(query ? "_.-~" : "_.-~/", c) != NULL)) {
            bt_out_add(x, s->data + i, 1, message);
        } else if (query && c == ' ') {
            bt_out_add(x, "+", 1, message);
        } else {
            char escape[3] = {'%', hex[c >> 4], hex[c & 15]};
            bt_out_add(x, escape, sizeof escape, message);
        }
    }
}

static bt_jv urlencode_pairs(bt_jx *x, bt_jv v)
{
    bt_jlist *l = bt_jlist_new(x, 0), *pair = bt_jlist_new(x, 2);
    if (v.kind == JV_DICT) v = (bt_jv){.kind = JV_VIEW, .view = VIEW_ITEMS, .message = v.message, .dict = v.dict};
    if (l == NULL || pair == NULL || !bt_jv_collect(x, v, l)) return bt_jv_of(JV_FAIL);
    bool message = v.message || l->message;
    for (size_t i = 0; i < l->n; i++) {
        size_t n = pair->n;
        if (!bt_jv_collect(x, l->items[i], pair)) return bt_jv_of(JV_FAIL);
        if (pair->n != n + 2) return bt_jx_fail(x, "urlencode: expected pairs");
    }
    for (size_t i = 0; i < pair->n; i++) {
        pair->items[i] = bt_jv_str(x, pair->items[i]);
        if (bt_failed(pair->items[i])) return bt_jv_of(JV_FAIL);
    }
    size_t begin = bt_out_begin(x);
    for (size_t i = 0; i < pair->n; i++) {
        if (i > 0) bt_out_add(x, i % 2 == 0 ? "&" : "=", 1, message);
        quote(x, pair->items[i].s, true, message);
    }
    return bt_out_take(x, begin, message);
}

static bt_jv filter_urlencode(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (!none_given(x, a, "urlencode")) return bt_jv_of(JV_FAIL);
    if (v.kind != JV_STRING && bt_jv_iterable(v)) return urlencode_pairs(x, v);
    v = bt_jv_str(x, v);
    if (bt_failed(v)) return v;
    size_t begin = bt_out_begin(x);
    quote(x, v.s, false, v.message);
    return bt_out_take(x, begin, v.message);
}

static bool bad_attribute_name(const bt_js *s)
{
    for (size_t i = 0; i < s->size; i++) {
        if (s->data[i] != '\0' && strchr(" \t\n\r\f\v/>=", s->data[i]) != NULL) return true;
    }
    return false;
}

static bt_jv filter_xmlattr(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv autospace;
    if (!bt_jargs_bind(x, a, "xmlattr", "autospace", 0, &autospace)) return bt_jv_of(JV_FAIL);
    bool space = autospace.kind == JV_MISSING || bt_jv_truth(x, autospace);
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    if (v.kind != JV_DICT) return bt_jx_fail(x, "'%s' object has no attribute 'items'", bt_jv_type(v));
    size_t begin = bt_out_begin(x);
    bool any = false;
    for (size_t i = 0; i < v.dict->n && !x->failed; i++) {
        const bt_jpair *p = &v.dict->pairs[i];
        if (p->value.kind == JV_NONE || p->value.kind == JV_UNDEFINED) continue;
        if (p->key.kind != JV_STRING) return bt_jx_fail(x, "xmlattr: names must be strings");
        if (bad_attribute_name(p->key.s)) return bt_jx_fail(x, "invalid character in attribute name");
        if (any || space) bt_out_puts(x, " ", false);
        any = true;
        bt_jv name = bt_js_escape(x, p->key), value = bt_js_escape(x, p->value);
        if (bt_failed(name) || bt_failed(value)) return bt_jv_of(JV_FAIL);
        bt_out_str(x, name);
        bt_out_puts(x, "=\"", false);
        bt_out_str(x, value);
        bt_out_puts(x, "\"", false);
    }
    bt_out_stain(x, begin, v.message);
    return bt_out_take(x, begin, v.message);
}

static bt_jv filter_format(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (a->n > 0 && a->n_kw > 0) return bt_jx_fail(x, "can't handle positional and keyword arguments at the same time");
    v = bt_jv_str(x, v);
    if (bt_failed(v)) return v;
    bt_jlist *l = bt_jlist_new(x, a->n);
    bt_jdict *d = bt_jdict_new(x);
    if (l == NULL || d == NULL) return bt_jv_of(JV_FAIL);
    for (size_t i = 0; i < a->n; i++) {
        if (!bt_jlist_add(x, l, a->v[i])) return bt_jv_of(JV_FAIL);
    }
    for (size_t i = 0; i < a->n_kw; i++) {
        if (!bt_jdict_set(x, d, a->kw[i].name, a->kw[i].value)) return bt_jv_of(JV_FAIL);
    }
    return bt_js_percent(x, v, a->n_kw > 0 ? bt_jv_dict(d) : bt_jv_list(JV_TUPLE, l));
}

/* ---- anything ---------------------------------------------------------------------------------------------------- */

static bt_jv filter_default(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[2];
    if (!bt_jargs_bind(x, a, "default", "default_value boolean", 0, p)) return bt_jv_of(JV_FAIL);
    bool use = v.kind == JV_UNDEFINED || (bt_jv_truth(x, p[1]) && !bt_jv_truth(x, v));
    if (x->failed) return bt_jv_of(JV_FAIL);
    if (!use) return v;
    return p[0].kind == JV_MISSING ? bt_js_static(x, "", false) : p[0];
}

static bt_jv filter_length(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    size_t n = 0;
    if (!none_given(x, a, "length")) return bt_jv_of(JV_FAIL);
    if (!bt_jv_length(x, v, &n)) return bt_jx_fail(x, "object of type '%s' has no len()", bt_jv_type(v));
    return x->failed ? bt_jv_of(JV_FAIL) : bt_jv_int((int64_t)n, v.message);
}

static bt_jv filter_attr(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv name, found;
    if (!bt_jargs_bind(x, a, "attr", "name", 1, &name)) return bt_jv_of(JV_FAIL);
    const bt_js *s = bt_jarg_string(x, "attr", name);
    if (s == NULL) return bt_jv_of(JV_FAIL);
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    return bt_jv_own_attribute(x, v, s, &found) ? found : bt_jv_undefined(x, NULL, bt_jv_type(v), name);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const bt_jfilter filters[] = {
    {"abs", bt_filter_abs},
    {"attr", filter_attr},
    {"batch", bt_filter_batch},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", bt_filter_dictsort},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"filesizeformat", bt_filter_filesizeformat},
    {"first", bt_filter_first},
    {"float", bt_filter_float},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"groupby", bt_filter_groupby},
    {"indent", filter_indent},
    {"int", bt_filter_int},
    {"items", bt_filter_items},
    {"join", bt_filter_join},
    {"last", bt_filter_last},
    {"length", filter_length},
    {"list", bt_filter_list},
    {"lower", filter_lower},
    {"map", bt_filter_map},
    {"max", bt_filter_max},
    {"min", bt_filter_min},
    {"pprint", bt_filter_pprint},
    {"random", NULL},
    {"reject", bt_filter_reject},
    {"rejectattr", bt_filter_rejectattr},
    {"replace", filter_replace},
    {"reverse", bt_filter_reverse},
    {"round", bt_filter_round},
    {"safe", filter_safe},
    {"select", bt_filter_select},
    {"selectattr", bt_filter_selectattr},
    {"slice", bt_filter_slice},
    {"sort", bt_filter_sort},
    {"string", filter_string},
    {"striptags", bt_filter_striptags},
    {"sum", bt_filter_sum},
    {"title", filter_title},
    {"tojson", bt_jv_to_json},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"unique", bt_filter_unique},
    {"upper", filter_upper},
    {"urlencode", filter_urlencode},
    {"urlize", NULL},
    {"wordcount", filter_wordcount},
    {"wordwrap", bt_filter_wordwrap},
    {"xmlattr", filter_xmlattr},
};

const bt_jfilter *bt_jfilter_find(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        if (strlen(filters[i].name) == size && memcmp(filters[i].name, name, size) == 0) return &filters[i];
    }
    return NULL;
}

bt_jv bt_jx_filter(bt_jx *x, const char *name, size_t size, const bt_jfilter *f, bt_jv v, const bt_jargs *a)
{
    if (f != NULL && f->apply != NULL) return bt_jx_charge(x, 0) ? f->apply(x, v, a) : bt_jv_of(JV_FAIL);
    bool known = bt_jfilter_find(name, size) != NULL;
    int shown = (int)(size < 200 ? size : 200);
    if (known) return bt_jx_fail_status(x, BT_ERR_UNSUPPORTED, "the filter '%.*s' is not supported", shown, name);
    return bt_jx_fail_status(x, BT_ERR_UNSUPPORTED, "there is no filter named '%.*s'", shown, name);
}
