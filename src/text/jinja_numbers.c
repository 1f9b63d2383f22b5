/* Filters that make and round numbers, with Python's rules for reading and rounding them. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_node.h"
#include "text/pytext.h"

#define ROUND_DIGITS_MAX 330 /* beyond, rounding a double changes nothing */

bt_jv bt_filter_abs(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (!bt_jargs_bind(x, a, "abs", "", 0, NULL)) return bt_jv_of(JV_FAIL);
    if (v.kind == JV_FLOAT) return bt_jv_float(fabs(v.f), v.message);
    if (v.kind == JV_BOOL) return bt_jv_int(v.b, v.message);
    if (v.kind == JV_INT) return v.i < 0 ? bt_jv_negate(x, v, false) : v;
    if (v.kind == JV_BIG) {
        bool negative = v.s->data[0] == '-';
        bt_jv text = bt_js_slice(x, v.s, negative, v.s->size);
        if (!bt_failed(text)) text.kind = JV_BIG;
        return text;
    }
    return bt_jx_fail(x, "bad operand type for abs(): '%s'", bt_jv_type(v));
}

/* An integer beyond 64 bits from decimal digits; `text` may have a sign, underscores and leading zeros. */
static bt_jv big(bt_jx *x, const char *text, size_t size, bool message)
{
    size_t begin = bt_out_begin(x), i = 0;
    if (text[0] == '-') bt_out_add(x, "-", 1, message);
    while (i < size && (text[i] < '1' || text[i] > '9')) i++;
    for (; i < size; i++) {
        if (text[i] != '_') bt_out_add(x, text + i, 1, message);
    }
    bt_jv v = bt_out_take(x, begin, message);
    if (!bt_failed(v)) v.kind = JV_BIG;
    return v;
}

/* The whole part of a finite number. */
static bt_jv whole(bt_jx *x, double f, bool message)
{
    if (f >= -0x1p63 && f < 0x1p63) return bt_jv_int((int64_t)f, message);
    char text[400];
    int n = snprintf(text, sizeof text, "%.0f", trunc(f));
    return big(x, text, (size_t)n, message);
}

/* A string without the white space around it, decimal digits of every script as ASCII: so int() and float() read it. */
static bool trimmed(bt_jx *x, bt_jv v, const char **text, size_t *size)
{
    bt_jv s = bt_js_strip(x, v.s, NULL, STRIP_BOTH);
    size_t begin = bt_out_begin(x);
    for (size_t at = 0, n; !bt_failed(s) && at < s.s->size; at += n) {
        uint32_t c = 0;
        n = bt_utf8_decode(s.s->data + at, s.s->size - at, &c);
        bt_out_char(x, c >= 0x80 && bt_py_is_decimal(c) ? '0' + bt_py_decimal_value(c) : c, v.message);
    }
    s = bt_out_take(x, begin, v.message);
    if (bt_failed(s)) return false;
    *text = s.s->data;
    *size = s.s->size;
    return true;
}

/* float(v): 1 done, 0 no number, -1 failed. */
static int to_double(bt_jx *x, bt_jv v, double *f)
{
    const char *text;
    size_t size;
    switch ((bt_jv_kind)v.kind) {
    case JV_BOOL:
        *f = v.b;
        return 1;
    case JV_INT:
        *f = (double)v.i;
        return 1;
    case JV_FLOAT:
        *f = v.f;
        return 1;
    case JV_BIG:
        *f = bt_jv_big_double(v);
        if (isinf(*f)) (void)bt_jx_fail(x, "int too large to convert to float");
        return x->failed ? -1 : 1;
    case JV_STRING:
        if (!trimmed(x, v, &text, &size)) return -1;
        return bt_py_parse_float(text, size, f);
    case JV_UNDEFINED:
        (void)bt_jx_fail_undefined(x, v);
        return -1;
    default:
        return 0;
    }
}

bt_jv bt_filter_float(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv fallback;
    double f = 0;
    if (!bt_jargs_bind(x, a, "float", "default", 0, &fallback)) return bt_jv_of(JV_FAIL);
    int read = to_double(x, v, &f);
    if (read < 0) return bt_jv_of(JV_FAIL);
    if (read > 0) return bt_jv_float(f, v.message);
    return fallback.kind == JV_MISSING ? bt_jv_float(0, v.message) : fallback;
}

/* int(v, base) of a string; missing if it is none. */
static bt_jv int_of_string(bt_jx *x, bt_jv v, int64_t base)
{
    const char *text;
    size_t size;
    int64_t i = 0;
    if (base != 0 && (base < 2 || base > 36)) return bt_jv_of(JV_MISSING); /* a ValueError, like a wrong digit */
    if (!trimmed(x, v, &text, &size)) return bt_jv_of(JV_FAIL);
    int read = bt_py_parse_int(text, size, (unsigned)base, &i);
    if (read > 0) return bt_jv_int(i, v.message);
    if (read == 0) return bt_jv_of(JV_MISSING);
    return base == 10 ? big(x, text, size, v.message) : bt_jx_fail(x, "an integer beyond 64 bits");
}

bt_jv bt_filter_int(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[2];
    int64_t base = 10;
    double f = 0;
    if (!bt_jargs_bind(x, a, "int", "default base", 0, p)) return bt_jv_of(JV_FAIL);
    bt_jv fallback = p[0].kind == JV_MISSING ? bt_jv_int(0, v.message) : p[0];
    if (v.kind == JV_INT || v.kind == JV_BIG) return v;
    if (v.kind == JV_STRING) {
        if (p[1].kind != JV_MISSING && !bt_jarg_int(x, "int", p[1], &base)) return bt_jv_of(JV_FAIL);
        bt_jv i = int_of_string(x, v, base);
        if (i.kind != JV_MISSING) return i;
    }
    int read = to_double(x, v, &f);
    if (read < 0) return bt_jv_of(JV_FAIL);
    if (read > 0 && isinf(f) && v.kind != JV_STRING) return bt_jx_fail(x, "cannot convert float infinity to integer");
    return read > 0 && isfinite(f) ? whole(x, f, v.message) : fallback;
}

/* ---- round ------------------------------------------------------------------------------------------------------- */

/* f to `digits` decimals, half to even, decided on the exact value. */
static double round_double(double f, int64_t digits)
{
    char text[ROUND_DIGITS_MAX];
    int exponent;
    if (f == 0 || !isfinite(f) || digits > ROUND_DIGITS_MAX) return f;
    bt_py_float_digits(f, 17, text, &exponent);
    int64_t n = exponent + 1 + digits; /* significant digits that stay */
    double v = 0;
    if (n >= 17) return f; /* these digits make the same double again */
    if (n > 0) {
        bt_py_float_digits(f, (size_t)n, text, &exponent);
        v = bt_py_digits_value(text, (size_t)n, exponent - (int)n + 1);
    } else if (n == 0) { /* all of it is rounded away, or up to one unit */
        double half = bt_py_digits_value("5", 1, exponent);
        v = fabs(f) > half ? bt_py_digits_value("1", 1, exponent + 1) : 0;
    }
    return copysign(v, f);
}

/* An integer to tens, hundreds ...: half to even. */
static bt_jv round_integer(bt_jx *x, int64_t i, int64_t digits, bool message)
{
    if (digits >= 0) return bt_jv_int(i, message);
    if (digits < -18)
        return digits == -19 && (i > INT64_C(5000000000000000000) || i < INT64_C(-5000000000000000000))
                   ? bt_jx_fail(x, "the result is an integer beyond 64 bits")
                   : bt_jv_int(0, message);
    int64_t unit = 1;
    for (int64_t k = digits; k < 0; k++) unit *= 10;
    int64_t rest = i % unit, low = i - rest;
    if (rest < 0) {
        if (low < INT64_MIN + unit) return bt_jx_fail(x, "the result is an integer beyond 64 bits");
        rest += unit;
        low -= unit;
    }
    bool up = rest > unit / 2 || (rest == unit / 2 && (low / unit) % 2 != 0);
    if (up && low > INT64_MAX - unit) return bt_jx_fail(x, "the result is an integer beyond 64 bits");
    return bt_jv_int(up ? low + unit : low, message);
}

static bt_jv round_common(bt_jx *x, bt_jv v, bt_jv precision)
{
    int64_t digits = 0;
    bool none = precision.kind == JV_NONE;
    if (!none && precision.kind != JV_MISSING && !bt_jarg_int(x, "round", precision, &digits)) return bt_jv_of(JV_FAIL);
    if (v.kind == JV_INT || v.kind == JV_BOOL)
        return round_integer(x, v.kind == JV_BOOL ? v.b : v.i, digits, v.message);
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    if (v.kind == JV_BIG) return digits >= 0 ? v : bt_jx_fail(x, "round: an integer beyond 64 bits");
    if (v.kind != JV_FLOAT) return bt_jx_fail(x, "type %s doesn't define __round__ method", bt_jv_type(v));
    if (!bt_jx_charge_float(x, ROUND_DIGITS_MAX)) return bt_jv_of(JV_FAIL);
    if (!none) {
        double f = round_double(v.f, digits);
        if (isinf(f) && isfinite(v.f)) return bt_jx_fail(x, "rounded value too large to represent");
        return bt_jv_float(f, v.message);
    }
    if (!isfinite(v.f)) return bt_jx_fail(x, "cannot convert float %s to integer", isnan(v.f) ? "NaN" : "infinity");
    return whole(x, round_double(v.f, 0), v.message);
}

/* ceil(v * 10**precision) / 10**precision */
static bt_jv round_directed(bt_jx *x, bt_jv v, bt_jv precision, bool up)
{
    bt_jv ten = bt_jv_int(10, false);
    if (precision.kind == JV_MISSING) precision = bt_jv_int(0, false);
    bt_jv unit = bt_jv_arith(x, OP_POW, ten, precision);
    bt_jv scaled = bt_failed(unit) ? unit : bt_jv_arith(x, '*', v, unit);
    if (bt_failed(scaled)) return scaled;
    if (scaled.kind == JV_FLOAT) {
        if (!isfinite(scaled.f)) return bt_jx_fail(x, "cannot convert a float that is not finite to integer");
        scaled = whole(x, up ? ceil(scaled.f) : floor(scaled.f), v.message);
    } else if (scaled.kind != JV_INT) {
        return bt_jx_fail(x, "must be real number, not %s", bt_jv_type(scaled));
    }
    return bt_failed(scaled) ? scaled : bt_jv_arith(x, '/', scaled, unit);
}

bt_jv bt_filter_round(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[2];
    if (!bt_jargs_bind(x, a, "round", "precision method", 0, p)) return bt_jv_of(JV_FAIL);
    const bt_js *method = p[1].kind == JV_STRING ? p[1].s : NULL;
    if (p[1].kind == JV_MISSING || (method != NULL && bt_js_is(method, "common"))) return round_common(x, v, p[0]);
    bool up = method != NULL && bt_js_is(method, "ceil"), down = method != NULL && bt_js_is(method, "floor");
    if (!up && !down) return bt_jx_fail(x, "method must be common, ceil or floor");
    return round_directed(x, v, p[0], up);
}

bt_jv bt_filter_filesizeformat(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    bt_jv p;
    double bytes = 0;
    if (!bt_jargs_bind(x, a, "filesizeformat", "binary", 0, &p)) return bt_jv_of(JV_FAIL);
    int read = to_double(x, v, &bytes);
    if (read == 0) return bt_jx_fail(x, "filesizeformat: could not convert to float");
    if (read < 0) return bt_jv_of(JV_FAIL);
    if (isnan(bytes)) return bt_jx_fail(x, "cannot convert float NaN to integer");
    bool in_binary = bt_jv_truth(x, p), message = v.message;
    double base = in_binary ? 1024 : 1000, unit = base;
    char text[64];
    if (bytes == 1) return bt_js_static(x, "1 Byte", message);
    if (bytes < base) {
        if (isinf(bytes)) return bt_jx_fail(x, "cannot convert float infinity to integer");
        (void)snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes) + 0.0);
        return bt_js_copy(x, text, strlen(text), message);
    }
    size_t i = 0;
    for (;; i++) {
        unit *= base;
        if (bytes < unit || i == 7) break;
    }
    const bt_js format = {.data = "%.1f %s", .size = 7, .message = message};
    bt_jv pair = bt_jv_pair(x, bt_jv_float(base * bytes / unit, message),
                            bt_js_static(x, in_binary ? binary[i] : decimal[i], message));
    return bt_failed(pair) ? pair : bt_js_percent(x, bt_jv_string(&format), pair);
}
