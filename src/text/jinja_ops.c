/*
 * What Python's operators do with values: truth, length, comparison, membership, arithmetic. Integers have 64 bits; a
 * result beyond them is an error rather than a wrong number.
 */
#include "text/jinja_value.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_node.h"
#include "text/pytext.h"

#define EXACT_MAX        ((int64_t)1 << 53) /* integers up to here are exact as doubles */
#define FLOAT_DIGITS_MAX 320                /* a double has at most 309 before the point */

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

const char *bt_jv_type(bt_jv v)
{
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    switch ((bt_jv_kind)v.kind) {
    case JV_UNDEFINED:
        return "Undefined";
    case JV_NONE:
        return "NoneType";
    case JV_BOOL:
        return "bool";
    case JV_INT:
    case JV_BIG:
        return "int";
    case JV_FLOAT:
        return "float";
    case JV_STRING:
        return v.s->markup ? "Markup" : "str";
    case JV_LIST:
        return "list";
    case JV_TUPLE:
        return "tuple";
    case JV_DICT:
        return "dict";
    case JV_RANGE:
        return "range";
    case JV_VIEW:
        return views[v.view];
    case JV_GENERATOR:
        return v.gen->what;
    case JV_NAMESPACE:
        return "Namespace";
    case JV_MACRO:
        return "Macro";
    case JV_LOOP:
        return "LoopContext";
    case JV_CYCLER:
        return "Cycler";
    case JV_JOINER:
        return "Joiner";
    case JV_FUNCTION:
        return "function";
    case JV_METHOD:
        return "method";
    default:
        return "nothing";
    }
}

bool bt_jv_length(bt_jx *x, bt_jv v, size_t *n)
{
    switch ((bt_jv_kind)v.kind) {
    case JV_UNDEFINED:
        *n = 0;
        return true;
    case JV_STRING:
        (void)bt_jx_charge(x, v.s->size);
        *n = bt_js_length(v.s);
        return true;
    case JV_LIST:
    case JV_TUPLE:
        *n = v.list->n;
        return true;
    case JV_DICT:
    case JV_VIEW:
        *n = v.dict->n;
        return true;
    case JV_RANGE:
        *n = v.range->n;
        return true;
    case JV_LOOP: {
        const bt_js name = {.data = "length", .size = 6};
        bt_jv length = bt_jloop_attribute(x, v, &name);
        *n = length.kind == JV_INT ? (size_t)length.i : 0;
        return true;
    }
    default:
        return false;
    }
}

bool bt_jv_truth(bt_jx *x, bt_jv v)
{
    size_t n;
    switch ((bt_jv_kind)v.kind) {
    case JV_FAIL:
    case JV_MISSING:
    case JV_UNDEFINED:
    case JV_NONE:
        return false;
    case JV_BOOL:
        return v.b;
    case JV_INT:
        return v.i != 0;
    case JV_FLOAT:
        return v.f != 0;
    case JV_STRING:
        return v.s->size > 0;
    default:
        return !bt_jv_length(x, v, &n) || n > 0;
    }
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

typedef struct number {
    bool floating;
    int64_t i;
    double f; /* the value in any case */
} number;

/* False for what is no number; integers beyond 64 bits are none here. */
static bool as_number(bt_jv v, number *n)
{
    *n = (number){0};
    if (v.kind == JV_BOOL || v.kind == JV_INT) {
        n->i = v.kind == JV_BOOL ? v.b : v.i;
        n->f = (double)n->i;
        return true;
    }
    n->floating = true;
    n->f = v.kind == JV_FLOAT ? v.f : 0;
    return v.kind == JV_FLOAT;
}

static bool is_numeric(bt_jv v)
{
    return v.kind == JV_BOOL || v.kind == JV_INT || v.kind == JV_FLOAT || v.kind == JV_BIG;
}

double bt_jv_big_double(bt_jv v)
{
    assert(v.kind == JV_BIG);
    double f = 0;
    (void)bt_py_parse_float(v.s->data, v.s->size, &f);
    return f;
}

/* An integer against a float without rounding either. */
static int order_mixed(int64_t i, double f)
{
    if (isnan(f)) return 2;
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0;
}

static int order_doubles(double a, double b)
{
    if (isnan(a) || isnan(b)) return 2;
    return a < b ? -1 : a > b;
}

/* Of the digits of two integers. */
static int order_digits(const bt_js *a, const bt_js *b)
{
    bool negative = a->data[0] == '-', other = b->data[0] == '-';
    if (negative != other) return negative ? -1 : 1;
    int order = a->size != b->size ? (a->size < b->size ? -1 : 1) : bt_js_order(a, b);
    return negative ? -order : order;
}

/* Without rounding: a float as large as this is an integer, and its digits can be written down. */
static int order_big_float(bt_jv big, double f)
{
    char text[FLOAT_DIGITS_MAX];
    if (isnan(f)) return 2;
    if (isinf(f)) return f > 0 ? -1 : 1;
    if (fabs(f) < 0x1p63) return big.s->data[0] == '-' ? -1 : 1;
    const bt_js digits = {.data = text, .size = (size_t)snprintf(text, sizeof text, "%.0f", f)};
    return order_digits(big.s, &digits);
}

static int order_big(bt_jv a, bt_jv b)
{
    if (a.kind == JV_BIG && b.kind == JV_BIG) return order_digits(a.s, b.s);
    if (a.kind != JV_BIG) {
        int order = order_big(b, a);
        return order == 2 ? 2 : -order;
    }
    if (b.kind == JV_FLOAT) return order_big_float(a, b.f);
    return a.s->data[0] == '-' ? -1 : 1; /* beyond every 64-bit integer */
}

static int order_numbers(bt_jv a, bt_jv b)
{
    if (a.kind == JV_BIG || b.kind == JV_BIG) return order_big(a, b);
    number m, n;
    (void)as_number(a, &m);
    (void)as_number(b, &n);
    if (m.floating && n.floating) return order_doubles(m.f, n.f);
    if (m.floating) {
        int order = order_mixed(n.i, m.f);
        return order == 2 ? 2 : -order;
    }
    if (n.floating) return order_mixed(m.i, n.f);
    return m.i < n.i ? -1 : m.i > n.i;
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static bool equal_lists(bt_jx *x, const bt_jlist *a, const bt_jlist *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        if (!bt_jx_charge(x, 0) || !bt_jv_equal(x, a->items[i], b->items[i])) return false;
    }
    return true;
}

static bool equal_dicts(bt_jx *x, const bt_jdict *a, const bt_jdict *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const bt_jv *other = bt_jdict_get(x, b, a->pairs[i].key);
        if (other == NULL || !bt_jv_equal(x, a->pairs[i].value, *other)) return false;
    }
    return true;
}

static bool equal_ranges(const bt_jrange *a, const bt_jrange *b)
{
    return a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

/* Views of keys and items compare as sets. */
static bool equal_views(bt_jx *x, bt_jv a, bt_jv b)
{
    if (a.view == VIEW_VALUES || b.view == VIEW_VALUES) return a.dict == b.dict && a.view == b.view;
    if (a.dict->n != b.dict->n) return false;
    bt_jiter it = {.source = a};
    bt_jv item;
    bt_jnext next;
    while ((next = bt_jiter_next(x, &it, &item)) == NEXT_ITEM) {
        if (!bt_jv_contains(x, b, item)) return false;
    }
    return next == NEXT_END;
}

static bool equal_same_kind(bt_jx *x, bt_jv a, bt_jv b)
{
    switch ((bt_jv_kind)a.kind) {
    case JV_UNDEFINED:
    case JV_NONE:
        return true;
    case JV_STRING:
        (void)bt_jx_charge(x, a.s->size < b.s->size ? a.s->size : b.s->size);
        return bt_js_equal(a.s, b.s);
    case JV_LIST:
    case JV_TUPLE:
        return equal_lists(x, a.list, b.list);
    case JV_DICT:
        return equal_dicts(x, a.dict, b.dict);
    case JV_RANGE:
        return equal_ranges(a.range, b.range);
    case JV_VIEW:
        return equal_views(x, a, b);
    case JV_METHOD:
        return a.bound->call == b.bound->call && bt_jv_equal(x, a.bound->self, b.bound->self);
    default:
        return a.function == b.function; /* identity: any member of the union will do */
    }
}

bool bt_jv_equal(bt_jx *x, bt_jv a, bt_jv b)
{
    if (is_numeric(a) && is_numeric(b)) return order_numbers(a, b) == 0;
    if (a.kind != b.kind || !bt_jx_charge(x, 0) || !bt_jx_enter(x)) return false;
    bool equal = equal_same_kind(x, a, b);
    bt_jx_leave(x);
    return equal && !x->failed;
}

static int order_lists(bt_jx *x, const char *op, const bt_jlist *a, const bt_jlist *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        bool equal = bt_jx_charge(x, 0) && bt_jv_equal(x, a->items[i], b->items[i]);
        if (x->failed) return 2;
        if (!equal) return bt_jv_order(x, op, a->items[i], b->items[i]);
    }
    return a->n < b->n ? -1 : a->n > b->n;
}

int bt_jv_order(bt_jx *x, const char *op, bt_jv a, bt_jv b)
{
    if (is_numeric(a) && is_numeric(b)) return order_numbers(a, b);
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED) {
        (void)bt_jx_fail_undefined(x, a.kind == JV_UNDEFINED ? a : b);
        return 2;
    }
    if (a.kind == b.kind && a.kind == JV_STRING) {
        (void)bt_jx_charge(x, a.s->size < b.s->size ? a.s->size : b.s->size);
        return bt_js_order(a.s, b.s);
    }
    if (a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE)) {
        if (!bt_jx_enter(x)) return 2;
        int order = order_lists(x, op, a.list, b.list);
        bt_jx_leave(x);
        return order;
    }
    (void)bt_jx_fail(x, "'%s' not supported between instances of '%s' and '%s'", op, bt_jv_type(a), bt_jv_type(b));
    return 2;
}

static bool contains_item(bt_jx *x, bt_jv container, bt_jv item)
{
    bt_jiter it;
    bt_jv other;
    if (!bt_jiter_begin(x, container, &it)) return false;
    while (bt_jiter_next(x, &it, &other) == NEXT_ITEM) {
        if (bt_jv_equal(x, other, item)) return true;
    }
    return false;
}

bool bt_jv_contains(bt_jx *x, bt_jv container, bt_jv item)
{
    switch ((bt_jv_kind)container.kind) {
    case JV_STRING:
        if (item.kind != JV_STRING) {
            (void)bt_jx_fail(x, "'in <string>' requires string as left operand, not %s", bt_jv_type(item));
            return false;
        }
        return bt_jx_charge(x, container.s->size) && bt_js_find(x, container.s, 0, item.s) != SIZE_MAX;
    case JV_DICT:
        return bt_jdict_get(x, container.dict, item) != NULL;
    case JV_VIEW:
        if (container.view == VIEW_KEYS) return bt_jdict_get(x, container.dict, item) != NULL;
        return contains_item(x, container, item);
    default:
        if (!bt_jv_iterable(container)) {
            (void)bt_jx_fail(x, "argument of type '%s' is not iterable", bt_jv_type(container));
            return false;
        }
        return contains_item(x, container, item);
    }
}

/* ---- integer arithmetic ------------------------------------------------------------------------------------------ */

static bool add_overflows(int64_t a, int64_t b)
{
    return b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b;
}

static bool multiply_overflows(int64_t a, int64_t b)
{
    if (a == 0 || b == 0) return false;
    if (a == -1) return b == INT64_MIN;
    if (b == -1) return a == INT64_MIN;
    if (a > 0) return b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a;
    return b > 0 ? a < INT64_MIN / b : a < INT64_MAX / b;
}

static bt_jv overflow(bt_jx *x)
{
    return bt_jx_fail(x, "the result is an integer beyond 64 bits");
}

static bt_jv power(bt_jx *x, int64_t base, int64_t exponent, bool message)
{
    int64_t result = 1;
    for (;;) {
        if (exponent & 1) {
            if (multiply_overflows(result, base)) return overflow(x);
            result *= base;
        }
        exponent >>= 1;
        if (exponent == 0) return bt_jv_int(result, message);
        if (multiply_overflows(base, base)) return overflow(x);
        base *= base;
    }
}

/* |a| / |b| of integers, correctly rounded where a double cannot hold them: the quotient's bits are made one by one
 * until there are more than a double keeps, and a last one says whether anything is left. */
static double divide_exactly(uint64_t a, uint64_t b)
{
    uint64_t quotient = a / b, rest = a % b;
    int shift = 0;
    while (quotient >> 55 == 0 && rest != 0) {
        bool carry = rest >> 63 != 0;
        rest <<= 1;
        bool bit = carry || rest >= b;
        if (bit) rest -= b;
        quotient = quotient << 1 | bit;
        shift++;
    }
    return ldexp((double)(quotient | (rest != 0)), -shift);
}

static uint64_t magnitude(int64_t i)
{
    return i < 0 ? (uint64_t)(-(i + 1)) + 1 : (uint64_t)i;
}

static double true_divide(int64_t a, int64_t b)
{
    if (magnitude(a) <= (uint64_t)EXACT_MAX && magnitude(b) <= (uint64_t)EXACT_MAX) return (double)a / (double)b;
    double v = divide_exactly(magnitude(a), magnitude(b));
    return (a < 0) != (b < 0) ? -v : v;
}

static bt_jv arith_ints(bt_jx *x, int op, int64_t a, int64_t b, bool message)
{
    switch (op) {
    case '+':
        return add_overflows(a, b) ? overflow(x) : bt_jv_int(a + b, message);
    case '-':
        if (b == INT64_MIN ? a >= 0 : add_overflows(a, -b)) return overflow(x);
        return bt_jv_int(a - b, message);
    case '*':
        return multiply_overflows(a, b) ? overflow(x) : bt_jv_int(a * b, message);
    case OP_POW:
        if (b >= 0) return power(x, a, b, message);
        if (a == 0) return bt_jx_fail(x, "0.0 cannot be raised to a negative power");
        return bt_jv_float(pow((double)a, (double)b), message);
    default:
        break;
    }
    if (b == 0) return bt_jx_fail(x, "division by zero");
    if (op == '/') return bt_jv_float(true_divide(a, b), message);
    if (a == INT64_MIN && b == -1) return op == '%' ? bt_jv_int(0, message) : overflow(x);
    int64_t quotient = a / b, rest = a % b;
    bool below = rest != 0 && (rest < 0) != (b < 0); /* Python rounds down, C towards zero */
    return bt_jv_int(op == '%' ? rest + (below ? b : 0) : quotient - below, message);
}

/* ---- float arithmetic -------------------------------------------------------------------------------------------- */

static double float_modulo(double a, double b, double *quotient)
{
    double rest = fmod(a, b), q = (a - rest) / b;
    if (rest != 0) {
        if ((b < 0) != (rest < 0)) {
            rest += b;
            q -= 1;
        }
    } else {
        rest = copysign(0.0, b);
    }
    if (q != 0) {
        double whole = floor(q);
        *quotient = q - whole > 0.5 ? whole + 1 : whole;
    } else {
        *quotient = copysign(0.0, a / b);
    }
    return rest;
}

static bt_jv float_power(bt_jx *x, double a, double b, bool message)
{
    if (a == 0 && b < 0) return bt_jx_fail(x, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && floor(b) != b) {
        return bt_jx_fail(x, "the result is a complex number");
    }
    double v = pow(a, b);
    if (isinf(v) && isfinite(a) && isfinite(b)) return bt_jx_fail(x, "the result is out of range");
    return bt_jv_float(v, message);
}

static bt_jv arith_floats(bt_jx *x, int op, double a, double b, bool message)
{
    double quotient = 0, rest;
    switch (op) {
    case '+':
        return bt_jv_float(a + b, message);
    case '-':
        return bt_jv_float(a - b, message);
    case '*':
        return bt_jv_float(a * b, message);
    case OP_POW:
        return float_power(x, a, b, message);
    default:
        break;
    }
    if (b == 0) return bt_jx_fail(x, op == '%' ? "float modulo by zero" : "float division by zero");
    if (op == '/') return bt_jv_float(a / b, message);
    rest = float_modulo(a, b, &quotient);
    return bt_jv_float(op == '%' ? rest : quotient, message);
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* In place where nothing follows a yet, so that ns.list = ns.list + [x] in a loop stays cheap. */
static bt_jv add_lists(bt_jx *x, bt_jv a, bt_jv b)
{
    const bt_jlist *left = a.list, *right = b.list;
    size_t n = left->n + right->n;
    bt_jlist *l = bt_jlist_new(x, 0);
    if (l == NULL || !bt_jx_charge(x, right->n)) return bt_jv_of(JV_FAIL);
    if (left->grown != NULL && *left->grown == left->n && left->capacity >= n) {
        l->items = left->items;
        l->capacity = left->capacity;
        l->grown = left->grown;
    } else {
        l->capacity = 2 * n;
        l->items = bt_jx_charge(x, left->n) ? bt_jx_alloc(x, l->capacity, sizeof *l->items) : NULL;
        l->grown = bt_jx_alloc(x, 1, sizeof *l->grown);
        if (l->items == NULL || l->grown == NULL) return bt_jv_of(JV_FAIL);
        if (left->n > 0) memcpy(l->items, left->items, left->n * sizeof *l->items);
    }
    if (right->n > 0) memcpy(l->items + left->n, right->items, right->n * sizeof *l->items);
    *l->grown = n;
    l->n = n;
    l->message = a.message || b.message;
    return bt_jv_list(a.kind, l);
}

static bt_jv repeat(bt_jx *x, bt_jv v, int64_t times)
{
    bool message = v.message;
    size_t n = times < 0 ? 0 : (size_t)times;
    if (v.kind == JV_STRING) {
        size_t begin = bt_out_begin(x);
        if (v.s->size > 0 && n > x->output_bytes_max / v.s->size) {
            return bt_jx_fail(x, "more than %zu bytes of text", x->output_bytes_max);
        }
        if (v.s->size > 0) bt_out_repeat(x, v.s, n, message);
        return bt_out_take(x, begin, message);
    }
    size_t size = v.list->n;
    if (size > 0 && n > x->memory_bytes_max / sizeof(bt_jv) / size) {
        return bt_jx_fail_status(x, BT_ERR_MEMORY, "rendering needs more than %zu bytes of memory",
                                 x->memory_bytes_max);
    }
    bt_jlist *l = bt_jlist_new(x, n * size);
    for (size_t i = 0; l != NULL && i < n * size; i++) {
        if (!bt_jlist_add(x, l, v.list->items[i % size])) return bt_jv_of(JV_FAIL);
    }
    if (l == NULL) return bt_jv_of(JV_FAIL);
    l->message = l->message || message;
    return bt_jv_list(v.kind, l);
}

static bool is_sequence(bt_jv v)
{
    return v.kind == JV_STRING || v.kind == JV_LIST || v.kind == JV_TUPLE;
}

/* One of a, b is a sequence and the other an integer. */
static bt_jv multiply_sequence(bt_jx *x, bt_jv a, bt_jv b)
{
    bt_jv sequence = is_sequence(a) ? a : b, times = is_sequence(a) ? b : a;
    sequence.message = sequence.message || times.message;
    bt_jv v = repeat(x, sequence, times.kind == JV_BOOL ? times.b : times.i);
    if (v.kind == JV_STRING && sequence.s->markup) {
        bt_js *s = bt_jx_alloc(x, 1, sizeof *s);
        if (s == NULL) return bt_jv_of(JV_FAIL);
        *s = *v.s;
        s->markup = true;
        v = bt_jv_string(s);
    }
    return v;
}

static bool is_int(bt_jv v)
{
    return v.kind == JV_INT || v.kind == JV_BOOL;
}

static const char *op_name(int op)
{
    static const char *const names[] = {"+", "-", "*", "/", "%"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i][0] == op) return names[i];
    }
    return op == OP_POW ? "**" : "//";
}

bt_jv bt_jv_arith(bt_jx *x, int op, bt_jv a, bt_jv b)
{
    bool message = a.message || b.message;
    if (op == '%' && a.kind == JV_STRING) return bt_js_percent(x, a, b);
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED) {
        return bt_jx_fail_undefined(x, a.kind == JV_UNDEFINED ? a : b);
    }
    if (op == '+' && a.kind == JV_STRING && b.kind == JV_STRING) return bt_js_concat(x, a, b);
    if (op == '+' && a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE)) return add_lists(x, a, b);
    if (op == '*' && ((is_sequence(a) && is_int(b)) || (is_sequence(b) && is_int(a)))) {
        return multiply_sequence(x, a, b);
    }
    number m, n;
    if (is_numeric(a) && is_numeric(b)) {
        if (!as_number(a, &m) || !as_number(b, &n)) return bt_jx_fail(x, "an integer beyond 64 bits");
        if (m.floating || n.floating) return arith_floats(x, op, m.f, n.f, message);
        return arith_ints(x, op, m.i, n.i, message);
    }
    if (op == '+' && a.kind == JV_STRING) {
        return bt_jx_fail(x, "can only concatenate str (not \"%s\") to str", bt_jv_type(b));
    }
    return bt_jx_fail(x, "unsupported operand type(s) for %s: '%s' and '%s'", op_name(op), bt_jv_type(a),
                      bt_jv_type(b));
}

static bt_jv negate_big(bt_jx *x, bt_jv v)
{
    const bt_js *s = v.s;
    if (bt_js_is(s, "9223372036854775808")) return bt_jv_int(INT64_MIN, v.message);
    size_t begin = bt_out_begin(x);
    bool negative = s->data[0] == '-';
    if (!negative) bt_out_puts(x, "-", v.message);
    bt_out_add(x, s->data + negative, s->size - negative, v.message);
    bt_jv result = bt_out_take(x, begin, v.message);
    if (!bt_failed(result)) result.kind = JV_BIG;
    return result;
}

bt_jv bt_jv_negate(bt_jx *x, bt_jv v, bool plus)
{
    number n;
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    if (v.kind == JV_BIG) return plus ? v : negate_big(x, v);
    if (!as_number(v, &n)) {
        return bt_jx_fail(x, "bad operand type for unary %s: '%s'", plus ? "+" : "-", bt_jv_type(v));
    }
    if (n.floating) return bt_jv_float(plus ? n.f : -n.f, v.message);
    if (!plus && n.i == INT64_MIN) return overflow(x);
    return bt_jv_int(plus ? n.i : -n.i, v.message);
}
