/* Tests ("x is defined") and the functions that every template has. */
#include <locale.h>
#include <string.h>

#include "text/jinja_access.h"
#include "text/jinja_node.h"

#define RANGE_MAX          100000             /* items, as in the sandbox */
#define LIMIT_MAX          ((int64_t)1 << 53) /* of a range: keeps its arithmetic far from 64 bits */
#define STRFTIME_BYTES_MAX 4096

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* v % n == rest */
static bool remainder_is(bt_jx *x, bt_jv v, bt_jv n, int64_t rest)
{
    bt_jv r = bt_jv_arith(x, '%', v, n);
    return !bt_failed(r) && bt_jv_equal(x, r, bt_jv_int(rest, false));
}

static bool test_odd(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)args;
    return remainder_is(x, v, bt_jv_int(2, false), 1);
}

static bool test_even(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)args;
    return remainder_is(x, v, bt_jv_int(2, false), 0);
}

static bool test_divisibleby(bt_jx *x, bt_jv v, const bt_jv *args)
{
    return remainder_is(x, v, args[0], 0);
}

static bool test_defined(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind != JV_UNDEFINED;
}

static bool test_undefined(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_UNDEFINED;
}

/* A value that cannot be a key is an error, any other that is no name is no filter. */
static bool is_name(bt_jx *x, bt_jv v)
{
    if (!bt_jv_hashable(x, v)) (void)bt_jx_fail(x, "unhashable type: '%s'", bt_jv_type(v));
    return v.kind == JV_STRING;
}

static bool test_filter(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)args;
    return is_name(x, v) && bt_jfilter_find(v.s->data, v.s->size) != NULL;
}

static bool test_test(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)args;
    return is_name(x, v) && bt_jtest_find(v.s->data, v.s->size) != NULL;
}

static bool test_none(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_NONE;
}

static bool test_boolean(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_BOOL;
}

static bool test_false(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_BOOL && !v.b;
}

static bool test_true(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_BOOL && v.b;
}

static bool test_integer(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_INT || v.kind == JV_BIG;
}

static bool test_float(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_FLOAT;
}

static bool test_number(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_BOOL || v.kind == JV_INT || v.kind == JV_BIG || v.kind == JV_FLOAT;
}

static bool text_is_case(bt_jx *x, bt_jv v, bool upper)
{
    v = bt_jv_str(x, v);
    return !bt_failed(v) && bt_jx_charge_scan(x, v.s->size) && bt_js_is_case(v.s, upper);
}

static bool test_lower(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)args;
    return text_is_case(x, v, false);
}

static bool test_upper(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)args;
    return text_is_case(x, v, true);
}

static bool test_string(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_STRING;
}

static bool test_mapping(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_DICT;
}

static bool test_sequence(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    switch ((bt_jv_kind)v.kind) {
    case JV_UNDEFINED:
    case JV_STRING:
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_RANGE:
        return true;
    default:
        return false;
    }
}

static bool test_iterable(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return bt_jv_iterable(v);
}

static bool test_callable(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    switch ((bt_jv_kind)v.kind) {
    case JV_UNDEFINED: /* calling it is an error, but Python says it can be called */
    case JV_MACRO:
    case JV_LOOP:
    case JV_JOINER:
    case JV_FUNCTION:
    case JV_METHOD:
        return true;
    default:
        return false;
    }
}

static bool test_sameas(bt_jx *x, bt_jv v, const bt_jv *args)
{
    bt_jv other = args[0];
    if (v.kind != other.kind) return false;
    switch ((bt_jv_kind)v.kind) {
    case JV_NONE:
        return true;
    case JV_BOOL:
    case JV_INT:
    case JV_FLOAT:
        return bt_jv_equal(x, v, other);
    default:
        return v.function == other.function; /* any pointer of the union */
    }
}

static bool test_escaped(bt_jx *x, bt_jv v, const bt_jv *args)
{
    (void)x, (void)args;
    return v.kind == JV_STRING && v.s->markup;
}

static bool test_in(bt_jx *x, bt_jv v, const bt_jv *args)
{
    return bt_jv_contains(x, args[0], v);
}

static bool test_eq(bt_jx *x, bt_jv v, const bt_jv *args)
{
    return bt_jv_equal(x, v, args[0]);
}

static bool test_ne(bt_jx *x, bt_jv v, const bt_jv *args)
{
    return !bt_jv_equal(x, v, args[0]);
}

static bool test_gt(bt_jx *x, bt_jv v, const bt_jv *args)
{
    return bt_jv_order(x, ">", v, args[0]) == 1;
}

static bool test_ge(bt_jx *x, bt_jv v, const bt_jv *args)
{
    int order = bt_jv_order(x, ">=", v, args[0]);
    return order == 0 || order == 1;
}

static bool test_lt(bt_jx *x, bt_jv v, const bt_jv *args)
{
    return bt_jv_order(x, "<", v, args[0]) == -1;
}

static bool test_le(bt_jx *x, bt_jv v, const bt_jv *args)
{
    return bt_jv_order(x, "<=", v, args[0]) <= 0;
}

static const bt_jtest tests[] = {
    {"odd", "", test_odd},
    {"even", "", test_even},
    {"divisibleby", "num", test_divisibleby},
    {"defined", "", test_defined},
    {"undefined", "", test_undefined},
    {"filter", "", test_filter},
    {"test", "", test_test},
    {"none", "", test_none},
    {"boolean", "", test_boolean},
    {"false", "", test_false},
    {"true", "", test_true},
    {"integer", "", test_integer},
    {"float", "", test_float},
    {"lower", "", test_lower},
    {"upper", "", test_upper},
    {"string", "", test_string},
    {"mapping", "", test_mapping},
    {"number", "", test_number},
    {"sequence", "", test_sequence},
    {"iterable", "", test_iterable},
    {"callable", "", test_callable},
    {"sameas", "other", test_sameas},
    {"escaped", "", test_escaped},
    {"in", "seq", test_in},
    {"==", "other", test_eq},
    {"eq", "other", test_eq},
    {"equalto", "other", test_eq},
    {"!=", "other", test_ne},
    {"ne", "other", test_ne},
    {">", "other", test_gt},
    {"gt", "other", test_gt},
    {"greaterthan", "other", test_gt},
    {"ge", "other", test_ge},
    {">=", "other", test_ge},
    {"<", "other", test_lt},
    {"lt", "other", test_lt},
    {"lessthan", "other", test_lt},
    {"<=", "other", test_le},
    {"le", "other", test_le},
};

const bt_jtest *bt_jtest_find(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strlen(tests[i].name) == size && memcmp(tests[i].name, name, size) == 0) return &tests[i];
    }
    return NULL;
}

bt_jv bt_jx_test(bt_jx *x, const char *name, size_t size, const bt_jtest *t, bt_jv v, const bt_jargs *a)
{
    bt_jv args[1];
    if (t == NULL) {
        return bt_jx_fail_status(x, BT_ERR_UNSUPPORTED, "there is no test named '%.*s'", (int)(size < 200 ? size : 200),
                                 name);
    }
    if (!bt_jargs_bind(x, a, t->name, t->params, t->params[0] != '\0', args)) return bt_jv_of(JV_FAIL);
    bool holds = t->holds(x, v, args);
    return x->failed ? bt_jv_of(JV_FAIL) : bt_jv_bool(holds, v.message || bt_jargs_message(a));
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static bt_jv call_range(bt_jx *x, const bt_jargs *a)
{
    int64_t v[3] = {0, 0, 1};
    if (!bt_jargs_positional(x, a, "range", 1, 3)) return bt_jv_of(JV_FAIL);
    for (size_t i = 0; i < a->n; i++) {
        if (!bt_jarg_int(x, "range", a->v[i], &v[a->n == 1 ? 1 : i])) return bt_jv_of(JV_FAIL);
    }
    for (size_t i = 0; i < 3; i++) {
        if (v[i] > LIMIT_MAX || v[i] < -LIMIT_MAX) return bt_jx_fail(x, "range: a limit beyond 2**53");
    }
    if (v[2] == 0) return bt_jx_fail(x, "range() arg 3 must not be zero");
    int64_t span = v[2] > 0 ? v[1] - v[0] : v[0] - v[1], step = v[2] > 0 ? v[2] : -v[2];
    int64_t n = span <= 0 ? 0 : (span - 1) / step + 1;
    if (n > RANGE_MAX) return bt_jx_fail(x, "range too big: more than %d items", RANGE_MAX);
    bt_jrange *r = bt_jx_alloc(x, 1, sizeof *r);
    if (r == NULL) return bt_jv_of(JV_FAIL);
    *r = (bt_jrange){v[0], v[1], v[2], (size_t)n};
    return (bt_jv){.kind = JV_RANGE, .message = bt_jargs_message(a), .range = r};
}

/* The pairs of dict(...): another dict or pairs, then keywords. NULL after failing. */
static bt_jdict *make_dict(bt_jx *x, const bt_jargs *a, const char *what)
{
    bt_jdict *d = bt_jdict_new(x);
    if (d == NULL) return NULL;
    if (a->n > 1) {
        (void)bt_jx_fail(x, "%s expected at most 1 argument, got %zu", what, a->n);
        return NULL;
    }
    bt_jv source = a->n == 1 ? a->v[0] : bt_jv_of(JV_MISSING), item;
    if (source.kind == JV_DICT) source = (bt_jv){.kind = JV_VIEW, .view = VIEW_ITEMS, .dict = source.dict};
    bt_jiter it;
    bt_jnext next = NEXT_END;
    if (source.kind == JV_UNDEFINED) (void)bt_jx_fail_undefined(x, source); /* Python asks it for its keys */
    if (x->failed || (source.kind != JV_MISSING && !bt_jiter_begin(x, source, &it))) return NULL;
    while (source.kind != JV_MISSING && (next = bt_jiter_next(x, &it, &item)) == NEXT_ITEM) {
        bt_jlist *pair = bt_jlist_new(x, 2);
        if (pair == NULL || !bt_jv_collect(x, item, pair)) return NULL;
        if (pair->n != 2) {
            (void)bt_jx_fail(x, "%s: an element has length %zu; 2 is required", what, pair->n);
            return NULL;
        }
        if (!bt_jdict_put(x, d, pair->items[0], pair->items[1])) return NULL;
    }
    for (size_t i = 0; i < a->n_kw; i++) {
        if (!bt_jdict_set(x, d, a->kw[i].name, a->kw[i].value)) return NULL;
    }
    return next == NEXT_FAIL ? NULL : d;
}

static bt_jv call_dict(bt_jx *x, const bt_jargs *a)
{
    const bt_jdict *d = make_dict(x, a, "dict");
    return d == NULL ? bt_jv_of(JV_FAIL) : bt_jv_dict(d);
}

static bt_jv call_namespace(bt_jx *x, const bt_jargs *a)
{
    bt_jdict *d = make_dict(x, a, "namespace");
    if (d == NULL) return bt_jv_of(JV_FAIL);
    /* It changes after what holds it was made, so it counts as message text wherever it is printed as a whole. */
    return (bt_jv){.kind = JV_NAMESPACE, .message = true, .names = d};
}

static bt_jv make_cycler(bt_jx *x, bt_jv_kind kind, const bt_jv *items, size_t n)
{
    bt_jcycler *c = bt_jx_alloc(x, 1, sizeof *c);
    bt_jlist *l = bt_jlist_new(x, n);
    if (c == NULL || l == NULL) return bt_jv_of(JV_FAIL);
    for (size_t i = 0; i < n; i++) {
        if (!bt_jlist_add(x, l, items[i])) return bt_jv_of(JV_FAIL);
    }
    c->items = l;
    return (bt_jv){.kind = (uint8_t)kind, .message = l->message, .cycler = c};
}

static bt_jv call_cycler(bt_jx *x, const bt_jargs *a)
{
    if (a->n_kw > 0) return bt_jx_fail(x, "cycler takes no keyword arguments");
    if (a->n == 0) return bt_jx_fail(x, "cycler: at least one item has to be provided");
    return make_cycler(x, JV_CYCLER, a->v, a->n);
}

static bt_jv call_joiner(bt_jx *x, const bt_jargs *a)
{
    bt_jv sep;
    if (!bt_jargs_bind(x, a, "joiner", "sep", 0, &sep)) return bt_jv_of(JV_FAIL);
    if (sep.kind == JV_MISSING) sep = bt_js_static(x, ", ", false);
    return bt_failed(sep) ? sep : make_cycler(x, JV_JOINER, &sep, 1);
}

static bt_jv call_lipsum(bt_jx *x, const bt_jargs *a)
{
    (void)a;
    return bt_jx_fail_status(x, BT_ERR_UNSUPPORTED, "the function 'lipsum' is not supported");
}

static bt_jv call_raise_exception(bt_jx *x, const bt_jargs *a)
{
    bt_jv message;
    if (!bt_jargs_bind(x, a, "raise_exception", "message", 1, &message)) return bt_jv_of(JV_FAIL);
    message = bt_jv_str(x, message);
    if (bt_failed(message)) return message;
    size_t size = message.s->size < 2000 ? message.s->size : 2000;
    return bt_jx_fail_status(x, BT_ERR_USAGE, "%.*s", (int)size, message.s->data);
}

/* Python fills in what C's strftime does not know: microseconds (0 here), and nothing for the zone of a naive time. */
static bt_jv call_strftime_now(bt_jx *x, const bt_jargs *a)
{
    bt_jv format;
    if (!bt_jargs_bind(x, a, "strftime_now", "format", 1, &format)) return bt_jv_of(JV_FAIL);
    const bt_js *s = bt_jarg_string(x, "strftime_now", format);
    if (s == NULL) return bt_jv_of(JV_FAIL);
    char pattern[STRFTIME_BYTES_MAX], text[STRFTIME_BYTES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < s->size; i++) {
        bool directive = s->data[i] == '%' && i + 1 < s->size;
        if (n + 8 > sizeof pattern || s->data[i] == '\0') return bt_jx_fail(x, "strftime_now: the format is too long");
        if (directive && s->data[i + 1] == 'f') {
            memcpy(pattern + n, "000000", 6);
            n += 6;
        } else if (!directive || (s->data[i + 1] != 'z' && s->data[i + 1] != 'Z')) {
            pattern[n++] = s->data[i];
            if (directive) pattern[n++] = s->data[i + 1];
        }
        i += directive;
    }
    if (n == 0) return bt_js_static(x, "", format.message);
    pattern[n] = '\0';
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) return bt_jx_fail_status(x, BT_ERR_MEMORY, "no memory for a locale");
    size_t size = strftime_l(text, sizeof text, pattern, &x->now, c);
    freelocale(c);
    if (size == 0) return bt_jx_fail(x, "strftime_now: the format gives no text, or too much");
    return bt_js_copy(x, text, size, format.message);
}

static const bt_jfunction functions[] = {
    {"range", call_range},
    {"dict", call_dict},
    {"namespace", call_namespace},
    {"cycler", call_cycler},
    {"joiner", call_joiner},
    {"lipsum", call_lipsum},
    {"raise_exception", call_raise_exception},
    {"strftime_now", call_strftime_now},
};

const bt_jfunction *bt_jfunction_find(const bt_js *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (bt_js_is(name, functions[i].name)) return &functions[i];
    }
    return NULL;
}
