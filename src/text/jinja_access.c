/*
 * Attributes, items and slices, by the sandbox's rules: x.name is an attribute of the type first and an item second,
 * x[name] the other way round; what does not exist is an undefined value; what would change a list or dict is one
 * too, with a message of its own when it is used.
 */
#include "text/jinja_access.h"

#include <assert.h>
#include <string.h>

#include "text/jinja_node.h"

/* ---- methods of containers --------------------------------------------------------------------------------------- */

static bt_jv view(bt_jx *x, bt_jv self, const bt_jargs *a, const char *what, bt_view_kind kind)
{
    if (!bt_jargs_positional(x, a, what, 0, 0)) return bt_jv_of(JV_FAIL);
    return (bt_jv){.kind = JV_VIEW, .view = (uint8_t)kind, .message = self.message, .dict = self.dict};
}

static bt_jv dict_keys(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return view(x, self, a, "keys", VIEW_KEYS);
}

static bt_jv dict_values(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return view(x, self, a, "values", VIEW_VALUES);
}

static bt_jv dict_items(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return view(x, self, a, "items", VIEW_ITEMS);
}

static bt_jv dict_get(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (!bt_jargs_positional(x, a, "get", 1, 2)) return bt_jv_of(JV_FAIL);
    const bt_jv *v = bt_jdict_get(x, self.dict, a->v[0]);
    if (x->failed) return bt_jv_of(JV_FAIL);
    return v != NULL ? *v : a->n == 2 ? a->v[1] : bt_jv_of(JV_NONE);
}

/* Nothing can be changed, so a copy is the thing itself. */
static bt_jv copy(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return bt_jargs_positional(x, a, "copy", 0, 0) ? self : bt_jv_of(JV_FAIL);
}

static bt_jv sequence_count(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (!bt_jargs_positional(x, a, "count", 1, 1)) return bt_jv_of(JV_FAIL);
    bt_jiter it = {.source = self};
    bt_jv item;
    int64_t n = 0;
    bt_jnext next;
    while ((next = bt_jiter_next(x, &it, &item)) == NEXT_ITEM) n += bt_jv_equal(x, item, a->v[0]);
    return next == NEXT_FAIL || x->failed ? bt_jv_of(JV_FAIL) : bt_jv_int(n, self.message || a->v[0].message);
}

static bt_jv sequence_index(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    size_t n = 0, from = 0, to;
    if (!bt_jargs_positional(x, a, "index", 1, 3) || !bt_jv_length(x, self, &n)) return bt_jv_of(JV_FAIL);
    to = n;
    if (a->n > 1 && !bt_jarg_position(x, "index", a->v[1], n, &from)) return bt_jv_of(JV_FAIL);
    if (a->n > 2 && !bt_jarg_position(x, "index", a->v[2], n, &to)) return bt_jv_of(JV_FAIL);
    for (size_t i = from; i < to && i < n; i++) {
        bt_jv item = self.kind == JV_RANGE ? bt_jrange_item(self.range, i, false) : self.list->items[i];
        bool equal = bt_jx_charge(x, 0) && bt_jv_equal(x, item, a->v[0]);
        if (x->failed) return bt_jv_of(JV_FAIL);
        if (equal) return bt_jv_int((int64_t)i, self.message || a->v[0].message);
    }
    return bt_jx_fail(x, "the value is not in the %s", bt_jv_type(self));
}

static bt_jv cycler_next(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (!bt_jargs_positional(x, a, "next", 0, 0)) return bt_jv_of(JV_FAIL);
    bt_jcycler *c = self.cycler;
    bt_jv v = c->items->items[c->at];
    c->at = (c->at + 1) % c->items->n;
    return v;
}

static bt_jv cycler_reset(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (!bt_jargs_positional(x, a, "reset", 0, 0)) return bt_jv_of(JV_FAIL);
    self.cycler->at = 0;
    return bt_jv_of(JV_NONE);
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static const bt_jmethod list_methods[] = {
    {"append", NULL, METHOD_UNSAFE},        {"clear", NULL, METHOD_UNSAFE},  {"copy", copy, METHOD_SAFE},
    {"count", sequence_count, METHOD_SAFE}, {"extend", NULL, METHOD_UNSAFE}, {"index", sequence_index, METHOD_SAFE},
    {"insert", NULL, METHOD_UNSAFE},        {"pop", NULL, METHOD_UNSAFE},    {"remove", NULL, METHOD_UNSAFE},
    {"reverse", NULL, METHOD_UNSAFE},       {"sort", NULL, METHOD_UNSAFE},
};

static const bt_jmethod tuple_methods[] = {
    {"count", sequence_count, METHOD_SAFE},
    {"index", sequence_index, METHOD_SAFE},
};

static const bt_jmethod dict_methods[] = {
    {"clear", NULL, METHOD_UNSAFE},  {"copy", copy, METHOD_SAFE},          {"fromkeys", NULL, METHOD_SAFE},
    {"get", dict_get, METHOD_SAFE},  {"items", dict_items, METHOD_SAFE},   {"keys", dict_keys, METHOD_SAFE},
    {"pop", NULL, METHOD_UNSAFE},    {"popitem", NULL, METHOD_UNSAFE},     {"setdefault", NULL, METHOD_UNSAFE},
    {"update", NULL, METHOD_UNSAFE}, {"values", dict_values, METHOD_SAFE},
};

static const bt_jmethod cycler_methods[] = {
    {"next", cycler_next, METHOD_SAFE},
    {"reset", cycler_reset, METHOD_SAFE},
};

/* Python has these; a template that wants them is told so instead of being given an undefined value. */
static const bt_jmethod number_methods[] = {
    {"as_integer_ratio", NULL, METHOD_SAFE},
    {"bit_count", NULL, METHOD_SAFE},
    {"bit_length", NULL, METHOD_SAFE},
    {"conjugate", NULL, METHOD_SAFE},
    {"denominator", NULL, METHOD_SAFE},
    {"from_bytes", NULL, METHOD_SAFE},
    {"imag", NULL, METHOD_SAFE},
    {"numerator", NULL, METHOD_SAFE},
    {"real", NULL, METHOD_SAFE},
    {"to_bytes", NULL, METHOD_SAFE},
};

static const bt_jmethod float_methods[] = {
    {"as_integer_ratio", NULL, METHOD_SAFE},
    {"conjugate", NULL, METHOD_SAFE},
    {"fromhex", NULL, METHOD_SAFE},
    {"hex", NULL, METHOD_SAFE},
    {"imag", NULL, METHOD_SAFE},
    {"is_integer", NULL, METHOD_SAFE},
    {"real", NULL, METHOD_SAFE},
};

#define TABLE(table) (*n = sizeof(table) / sizeof *(table), table)

static const bt_jmethod *methods_of(bt_jv v, size_t *n)
{
    *n = 0;
    switch ((bt_jv_kind)v.kind) {
    case JV_STRING:
        return bt_js_methods(n);
    case JV_LIST:
        return TABLE(list_methods);
    case JV_TUPLE:
    case JV_RANGE:
        return TABLE(tuple_methods);
    case JV_DICT:
        return TABLE(dict_methods);
    case JV_CYCLER:
        return TABLE(cycler_methods);
    case JV_BOOL:
    case JV_INT:
    case JV_BIG:
        return TABLE(number_methods);
    case JV_FLOAT:
        return TABLE(float_methods);
    default:
        return NULL;
    }
}

static const bt_jmethod *find_method(bt_jv v, const bt_js *name)
{
    size_t low = 0, high;
    const bt_jmethod *methods = methods_of(v, &high);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const bt_js other = {.data = methods[middle].name, .size = strlen(methods[middle].name)};
        int order = bt_js_order(&other, name);
        if (order == 0) return &methods[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

static bt_jv bind_method(bt_jx *x, bt_jv v, const bt_jmethod *m, const bt_js *name)
{
    if (m->kind == METHOD_UNSAFE) {
        bt_jv hidden = bt_jv_undefined(x, NULL, bt_jv_type(v), bt_jv_string(name));
        bt_jundef *u = bt_failed(hidden) ? NULL : bt_jx_alloc(x, 1, sizeof *u);
        if (u == NULL) return bt_jv_of(JV_FAIL);
        *u = *hidden.undef;
        u->unsafe = true;
        hidden.undef = u;
        return hidden;
    }
    if (m->call == NULL) return bt_jx_fail(x, "'%s' of '%s' is not supported", m->name, bt_jv_type(v));
    bt_jbound *b = bt_jx_alloc(x, 1, sizeof *b);
    if (b == NULL) return bt_jv_of(JV_FAIL);
    *b = (bt_jbound){v, m->name, m->call};
    return (bt_jv){.kind = JV_METHOD, .message = v.message, .bound = b};
}

static bt_jv macro_attribute(bt_jx *x, const bt_jmacro *m, const bt_js *name)
{
    if (bt_js_is(name, "name")) return m->name == NULL ? bt_jv_of(JV_NONE) : bt_jv_string(m->name);
    if (bt_js_is(name, "catch_kwargs")) return bt_jv_bool(m->body->uses_kwargs, false);
    if (bt_js_is(name, "catch_varargs")) return bt_jv_bool(m->body->uses_varargs, false);
    if (bt_js_is(name, "caller")) return bt_jv_bool(m->body->uses_caller, false);
    if (!bt_js_is(name, "arguments")) return bt_jv_of(JV_MISSING);
    bt_jlist *l = bt_jlist_new(x, m->body->n_params);
    for (const bt_jnode *p = m->body->params; l != NULL && p != NULL; p = p->next) {
        (void)bt_jlist_add(x, l, bt_jv_string(p->name));
    }
    return l == NULL || x->failed ? bt_jv_of(JV_FAIL) : bt_jv_list(JV_TUPLE, l);
}

static bt_jv range_attribute(bt_jv v, const bt_js *name)
{
    if (bt_js_is(name, "start")) return bt_jv_int(v.range->start, v.message);
    if (bt_js_is(name, "stop")) return bt_jv_int(v.range->stop, v.message);
    if (bt_js_is(name, "step")) return bt_jv_int(v.range->step, v.message);
    return bt_jv_of(JV_MISSING);
}

/* Attributes that are values; missing if there is none of this name. */
static bt_jv value_attribute(bt_jx *x, bt_jv v, const bt_js *name)
{
    switch ((bt_jv_kind)v.kind) {
    case JV_NAMESPACE: {
        const bt_jv *found = bt_jdict_find(x, v.names, name);
        return found == NULL ? bt_jv_of(JV_MISSING) : *found;
    }
    case JV_MACRO:
        return macro_attribute(x, v.macro, name);
    case JV_LOOP:
        return bt_jloop_attribute(x, v, name);
    case JV_RANGE:
        return range_attribute(v, name);
    case JV_CYCLER:
        return bt_js_is(name, "current") ? v.cycler->items->items[v.cycler->at] : bt_jv_of(JV_MISSING);
    case JV_JOINER:
        if (bt_js_is(name, "sep")) return v.cycler->items->items[0];
        return bt_js_is(name, "used") ? bt_jv_bool(v.cycler->at > 0, false) : bt_jv_of(JV_MISSING);
    case JV_TUPLE:
        if (!v.list->grouped) return bt_jv_of(JV_MISSING);
        if (bt_js_is(name, "grouper")) return v.list->items[0];
        return bt_js_is(name, "list") ? v.list->items[1] : bt_jv_of(JV_MISSING);
    default:
        return bt_jv_of(JV_MISSING);
    }
}

bool bt_jv_own_attribute(bt_jx *x, bt_jv v, const bt_js *name, bt_jv *out)
{
    const bt_jmethod *m = find_method(v, name);
    *out = m != NULL ? bind_method(x, v, m, name) : value_attribute(x, v, name);
    return out->kind != JV_MISSING;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static const char *owner_of(bt_jx *x, bt_jv v)
{
    if (v.kind == JV_NONE) return "None";
    const char *type = bt_jv_type(v);
    size_t n = strlen(type);
    char *text = bt_jx_alloc(x, n + sizeof " object", 1);
    if (text == NULL) return "";
    memcpy(text, type, n);
    memcpy(text + n, " object", sizeof " object");
    return text;
}

static bt_jv absent(bt_jx *x, bt_jv v, bt_jv key)
{
    return bt_jv_undefined(x, NULL, owner_of(x, v), key);
}

/* Bytes [*from, *to) of the character at index i of s, which has it. */
static void find_char(const bt_js *s, size_t i, size_t *from, size_t *to)
{
    *from = bt_js_offset(s, i);
    for (*to = *from + 1; *to < s->size && ((unsigned char)s->data[*to] & 0xc0) == 0x80;) (*to)++;
}

/* v[i] of a sequence; missing if there is no such item. */
static bt_jv indexed(bt_jx *x, bt_jv v, bt_jv key)
{
    size_t n = 0;
    bool sequence = v.kind == JV_STRING || v.kind == JV_LIST || v.kind == JV_TUPLE || v.kind == JV_RANGE;
    if (!sequence || (key.kind != JV_INT && key.kind != JV_BOOL)) return bt_jv_of(JV_MISSING);
    (void)bt_jv_length(x, v, &n);
    int64_t i = key.kind == JV_BOOL ? key.b : key.i;
    if (i < 0) i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n) return bt_jv_of(JV_MISSING);
    if (v.kind == JV_RANGE) return bt_jrange_item(v.range, (size_t)i, v.message);
    if (v.kind != JV_STRING) return v.list->items[i];
    size_t from, to;
    find_char(v.s, (size_t)i, &from, &to);
    return bt_js_slice(x, v.s, from, to);
}

/* v[key] proper; missing if there is no such item. */
static bt_jv own_item(bt_jx *x, bt_jv v, bt_jv key)
{
    if (v.kind != JV_DICT) return indexed(x, v, key);
    if (!bt_jv_hashable(x, key)) return bt_jv_of(x->failed ? JV_FAIL : JV_MISSING);
    const bt_jv *found = bt_jdict_get(x, v.dict, key);
    if (x->failed) return bt_jv_of(JV_FAIL);
    return found == NULL ? bt_jv_of(JV_MISSING) : *found;
}

bt_jv bt_jv_item(bt_jx *x, bt_jv v, bt_jv key)
{
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    bt_jv item = own_item(x, v, key);
    if (item.kind != JV_MISSING) return item;
    if (key.kind == JV_STRING && bt_jv_own_attribute(x, v, key.s, &item)) return item;
    return absent(x, v, key);
}

bt_jv bt_jv_attribute(bt_jx *x, bt_jv v, const bt_js *name)
{
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    bt_jv item;
    if (bt_jv_own_attribute(x, v, name, &item)) return item;
    item = own_item(x, v, bt_jv_string(name));
    return item.kind == JV_MISSING ? absent(x, v, bt_jv_string(name)) : item;
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* One end of a slice, brought into [low, high]. False if it is neither an integer nor None. */
static bool slice_end(bt_jv v, int64_t n, int64_t fallback, int64_t low, int64_t high, int64_t *out)
{
    *out = fallback;
    if (v.kind == JV_NONE) return true;
    if (v.kind == JV_BIG) {
        *out = v.s->data[0] == '-' ? low : high;
        return true;
    }
    if (v.kind != JV_INT && v.kind != JV_BOOL) return false;
    int64_t i = v.kind == JV_BOOL ? v.b : v.i;
    if (i < 0) i = i < -n ? low : i + n;
    *out = i < low ? low : i > high ? high : i;
    return true;
}

/* A step, cut to what makes no difference. */
static bool slice_step(bt_jv v, int64_t most, int64_t *out)
{
    *out = 1;
    if (v.kind == JV_NONE) return true;
    if (v.kind == JV_BIG) {
        *out = v.s->data[0] == '-' ? -most : most;
        return true;
    }
    if (v.kind != JV_INT && v.kind != JV_BOOL) return false;
    int64_t i = v.kind == JV_BOOL ? v.b : v.i;
    *out = i < -most ? -most : i > most ? most : i;
    return true;
}

static bt_jv slice_string(bt_jx *x, const bt_js *s, int64_t start, int64_t step, size_t n)
{
    if (step == 1 || n <= 1) {
        size_t from = bt_js_offset(s, (size_t)start);
        return bt_js_slice(x, s, from, from + bt_js_offset_from(s, from, n));
    }
    size_t begin = bt_out_begin(x);
    size_t at = bt_js_offset(s, (size_t)start), end;
    for (size_t i = 0; i < n && !x->failed; i++) {
        for (end = at + 1; end < s->size && ((unsigned char)s->data[end] & 0xc0) == 0x80;) end++;
        bt_out_js(x, s, at, end);
        if (i + 1 == n) break;
        if (step > 0) {
            at += bt_js_offset_from(s, at, (size_t)step);
        } else {
            for (int64_t k = step; k < 0; k++) {
                do {
                    at--;
                } while (((unsigned char)s->data[at] & 0xc0) == 0x80);
            }
        }
    }
    bt_jv v = bt_out_take(x, begin, s->message);
    return s->markup ? bt_js_as_markup(x, v) : v;
}

static bt_jv slice_range(bt_jx *x, bt_jv v, int64_t start, int64_t stop, int64_t step)
{
    bt_jrange *r = bt_jx_alloc(x, 1, sizeof *r);
    if (r == NULL) return bt_jv_of(JV_FAIL);
    const bt_jrange *whole = v.range;
    r->start = whole->start + start * whole->step;
    r->stop = whole->start + stop * whole->step;
    r->step = whole->step * step;
    if (step > 0) r->n = start < stop ? (size_t)((stop - start - 1) / step + 1) : 0;
    if (step < 0) r->n = start > stop ? (size_t)((start - stop - 1) / -step + 1) : 0;
    v.range = r;
    return v;
}

static bt_jv bad_slice(bt_jx *x)
{
    return bt_jx_fail(x, "slice indices must be integers or None");
}

/* Unlike a missing item, a slice that cannot be taken is an error in Jinja2. */
bt_jv bt_jv_slice(bt_jx *x, bt_jv v, bt_jv start, bt_jv stop, bt_jv step)
{
    size_t length = 0;
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    bool sequence = v.kind == JV_STRING || v.kind == JV_LIST || v.kind == JV_TUPLE || v.kind == JV_RANGE;
    if (!sequence || !bt_jv_length(x, v, &length)) return bt_jx_fail(x, "a %s cannot be sliced", bt_jv_type(v));
    int64_t n = (int64_t)length, most = n + 1, by, from, to;
    if (v.kind == JV_RANGE) most = INT64_MAX / (v.range->step < 0 ? -v.range->step : v.range->step); /* it is shown */
    if (!slice_step(step, most, &by)) return bad_slice(x);
    if (by == 0) return bt_jx_fail(x, "slice step cannot be zero");
    bool back = by < 0;
    if (!slice_end(start, n, back ? n - 1 : 0, back ? -1 : 0, back ? n - 1 : n, &from)) return bad_slice(x);
    if (!slice_end(stop, n, back ? -1 : n, back ? -1 : 0, back ? n - 1 : n, &to)) return bad_slice(x);
    if (v.kind == JV_RANGE) return slice_range(x, v, from, to, by);
    int64_t span = back ? from - to : to - from;
    size_t count = span <= 0 ? 0 : (size_t)((span - 1) / (back ? -by : by) + 1);
    if (!bt_jx_charge(x, count)) return bt_jv_of(JV_FAIL);
    if (v.kind == JV_STRING) return slice_string(x, v.s, count == 0 ? 0 : from, by, count);
    bt_jlist *l = bt_jlist_new(x, count);
    for (size_t i = 0; l != NULL && i < count; i++) {
        if (!bt_jlist_add(x, l, v.list->items[from + (int64_t)i * by])) return bt_jv_of(JV_FAIL);
    }
    return l == NULL ? bt_jv_of(JV_FAIL) : bt_jv_list(v.kind, l);
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

bool bt_jargs_positional(bt_jx *x, const bt_jargs *a, const char *what, size_t min, size_t max)
{
    if (a->n_kw > 0) {
        (void)bt_jx_fail(x, "%s() takes no keyword arguments", what);
    } else if (a->n < min || a->n > max) {
        (void)bt_jx_fail(x, "%s() takes %zu to %zu arguments, %zu given", what, min, max, a->n);
    }
    return !x->failed;
}

/* The place of `name` among space-separated `names`; the number of names if it is none of them. */
static size_t find_name(const char *names, const bt_js *name)
{
    size_t i = 0;
    for (const char *p = names; *p != '\0'; i++) {
        size_t n = strcspn(p, " ");
        if (name != NULL && name->size == n && memcmp(p, name->data, n) == 0) return i;
        p += n;
        p += *p == ' ';
    }
    return i;
}

bool bt_jargs_bind(bt_jx *x, const bt_jargs *a, const char *what, const char *names, size_t n_required, bt_jv *out)
{
    size_t n = find_name(names, NULL);
    for (size_t i = 0; i < n; i++) out[i] = i < a->n ? a->v[i] : bt_jv_of(JV_MISSING);
    if (a->n > n) return !bt_failed(bt_jx_fail(x, "%s takes at most %zu arguments, %zu given", what, n, a->n));
    for (size_t k = 0; k < a->n_kw; k++) {
        const bt_js *name = a->kw[k].name;
        size_t i = find_name(names, name);
        if (i == n) {
            return !bt_failed(bt_jx_fail(x, "%s takes no keyword argument '%.*s'", what, (int)name->size, name->data));
        }
        if (out[i].kind != JV_MISSING) {
            return !bt_failed(bt_jx_fail(x, "%s got two values for '%.*s'", what, (int)name->size, name->data));
        }
        out[i] = a->kw[k].value;
    }
    for (size_t i = 0; i < n_required; i++) {
        if (out[i].kind != JV_MISSING) continue;
        return !bt_failed(bt_jx_fail(x, "%s needs at least %zu argument(s)", what, n_required));
    }
    return true;
}

bool bt_jarg_int(bt_jx *x, const char *what, bt_jv v, int64_t *i)
{
    if (v.kind == JV_INT || v.kind == JV_BOOL) {
        *i = v.kind == JV_BOOL ? v.b : v.i;
        return true;
    }
    if (v.kind == JV_UNDEFINED) {
        (void)bt_jx_fail_undefined(x, v);
    } else if (v.kind == JV_BIG) {
        (void)bt_jx_fail(x, "%s: an integer beyond 64 bits", what);
    } else {
        (void)bt_jx_fail(x, "%s: '%s' object cannot be interpreted as an integer", what, bt_jv_type(v));
    }
    return false;
}

bool bt_jarg_size(bt_jx *x, const char *what, bt_jv v, size_t *n)
{
    int64_t i;
    if (!bt_jarg_int(x, what, v, &i)) return false;
    *n = i < 0 ? 0 : (size_t)i;
    return true;
}

bool bt_jarg_position(bt_jx *x, const char *what, bt_jv v, size_t length, size_t *at)
{
    int64_t i, n = (int64_t)length;
    if (!bt_jarg_int(x, what, v, &i)) return false;
    if (i < 0) i = i < -n ? 0 : i + n;
    *at = (size_t)i;
    return true;
}

const bt_js *bt_jarg_string(bt_jx *x, const char *what, bt_jv v)
{
    if (v.kind == JV_STRING) return v.s;
    (void)bt_jx_fail(x, "%s: must be str, not %s", what, bt_jv_type(v));
    return NULL;
}

bool bt_jargs_message(const bt_jargs *a)
{
    for (size_t i = 0; i < a->n; i++) {
        if (a->v[i].message) return true;
    }
    for (size_t i = 0; i < a->n_kw; i++) {
        if (a->kw[i].value.message) return true;
    }
    return false;
}
