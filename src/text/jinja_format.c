/*
 * Python's two ways of formatting: "%d apples" % n and "{} apples".format(n), with their small languages of width,
 * fill, precision and type. The text of the format keeps its origin, and so does that of each argument; padding
 * belongs to the argument it surrounds.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_access.h"
#include "text/jinja_node.h"
#include "text/pytext.h"

#define PRECISION_MAX ((size_t)500)
#define ZEROS_MAX     ((size_t)400)  /* that "{:0400,}" puts before a number */
#define NUMBER_BYTES  ((size_t)1024) /* 309 digits before the point, separators between them, PRECISION_MAX after it */

typedef struct spec {
    bt_js fill;
    char align; /* '<', '>', '^', '=', or '\0': by type */
    char sign;  /* '+', ' ' or '-' */
    bool alternate, zero /* of % only */, no_negative_zero;
    size_t width;
    char grouping; /* ',', '_' or '\0' */
    bool has_precision;
    size_t precision;
    char type; /* '\0': none */
} spec;

typedef struct number_text { /* a number before it is padded */
    char prefix[4];          /* sign, 0x */
    char body[NUMBER_BYTES];
    size_t size;
    bool finite;
} number_text;

/* ---- padding ----------------------------------------------------------------------------------------------------- */

/* Puts content [length characters] into its width. */
static void put_padded(bt_jx *x, const spec *s, const bt_js *content, size_t length, char by_default, bool message)
{
    size_t missing = s->width > length ? s->width - length : 0;
    char align = s->align == '\0' ? by_default : s->align;
    size_t left = align == '>' || align == '=' ? missing : align == '^' ? missing / 2 : 0;
    bt_out_repeat(x, &s->fill, left, message);
    bt_out_js(x, content, 0, content->size);
    bt_out_repeat(x, &s->fill, missing - left, message);
}

/* The digits before the point with separators, filled with zeros up to min_width. */
static size_t group(const char *digits, size_t n, char separator, unsigned every, size_t min_width, char *out,
                    size_t room)
{
    size_t at = room, count = 0;
    assert(room > 2 * (n + min_width));
    while (count < n || room - at < min_width) {
        if (count > 0 && count % every == 0) out[--at] = separator;
        out[--at] = count < n ? digits[n - 1 - count] : '0';
        count++;
    }
    memmove(out, out + at, room - at);
    return room - at;
}

static void add_grouping(bt_jx *x, const spec *s, number_text *t)
{
    char grouped[4 * NUMBER_BYTES];
    size_t whole = 0;
    while (whole < t->size && ((t->body[whole] >= '0' && t->body[whole] <= '9') ||
                               (s->type == 'x' && t->body[whole] >= 'a' && t->body[whole] <= 'f') ||
                               (s->type == 'X' && t->body[whole] >= 'A' && t->body[whole] <= 'F'))) {
        whole++;
    }
    size_t others = strlen(t->prefix) + (t->size - whole), zeros = 0;
    bool filled = s->align == '=' && s->fill.size == 1 && s->fill.data[0] == '0';
    if (filled && s->width > others) zeros = s->width - others;
    if (zeros > ZEROS_MAX) {
        (void)bt_jx_fail(x, "more than %zu zeros with separators are not supported", ZEROS_MAX);
        return;
    }
    unsigned every = s->type == 'b' || s->type == 'o' || s->type == 'x' || s->type == 'X' ? 4 : 3;
    size_t n = group(t->body, whole, s->grouping, every, zeros, grouped, sizeof grouped);
    assert(n + t->size - whole <= sizeof t->body);
    memmove(t->body + n, t->body + whole, t->size - whole);
    memcpy(t->body, grouped, n);
    t->size += n - whole;
}

static void put_number(bt_jx *x, const spec *s, number_text *t, bool message)
{
    if (s->grouping != '\0' && t->finite) add_grouping(x, s, t);
    size_t prefix = strlen(t->prefix), length = prefix + t->size;
    if (s->align == '=') {
        bt_out_add(x, t->prefix, prefix, message);
        bt_out_repeat(x, &s->fill, s->width > length ? s->width - length : 0, message);
        bt_out_add(x, t->body, t->size, message);
        return;
    }
    char whole[NUMBER_BYTES + 4];
    memcpy(whole, t->prefix, prefix);
    memcpy(whole + prefix, t->body, t->size);
    const bt_js content = {.data = whole, .size = length, .message = message};
    put_padded(x, s, &content, length, '>', message);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void set_sign(number_text *t, bool negative, char sign)
{
    t->prefix[0] = negative ? '-' : sign == '+' || sign == ' ' ? sign : '\0';
    t->prefix[1] = '\0';
}

/* An integer in base 2, 8, 10 or 16. */
static void write_integer(number_text *t, const spec *s, int64_t v)
{
    char type = s->type;
    unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    const char *digits = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    uint64_t rest = v < 0 ? (uint64_t)(-(v + 1)) + 1 : (uint64_t)v;
    char reversed[64];
    size_t n = 0;
    do {
        reversed[n++] = digits[rest % base];
        rest /= base;
    } while (rest > 0);
    set_sign(t, v < 0, s->sign);
    if (s->alternate && base != 10) {
        size_t at = strlen(t->prefix);
        t->prefix[at] = '0';
        t->prefix[at + 1] = type;
        t->prefix[at + 2] = '\0';
    }
    for (size_t i = 0; i < n; i++) t->body[i] = reversed[n - 1 - i];
    t->size = n;
    t->finite = true;
}

/* C's own formatting with the locale's radix character put back to a point. `format` is one of the literals below. */
static void write_c_float(number_text *t, char type, bool alternate, size_t precision, double v)
{
    char text[NUMBER_BYTES];
    int p = (int)precision;
    int n = 0;
    switch (type) {
    case 'e':
        n = alternate ? snprintf(text, sizeof text, "%#.*e", p, v) : snprintf(text, sizeof text, "%.*e", p, v);
        break;
    case 'f':
        n = alternate ? snprintf(text, sizeof text, "%#.*f", p, v) : snprintf(text, sizeof text, "%.*f", p, v);
        break;
    default:
        assert(!alternate); /* see write_alternate_general */
        n = snprintf(text, sizeof text, "%.*g", p, v);
        break;
    }
    assert(n > 0);
    assert((size_t)n < sizeof text);
    t->size = 0;
    for (int i = 0; i < n; i++) {
        bool ours = (text[i] >= '0' && text[i] <= '9') || text[i] == 'e' || text[i] == '+' || text[i] == '-';
        if (ours) t->body[t->size++] = text[i];
        if (!ours && (t->size == 0 || t->body[t->size - 1] != '.')) t->body[t->size++] = '.';
    }
}

/* "%#g" keeps its zeros. By hand: some C libraries lose them where rounding carries into a new digit. */
static void write_alternate_general(number_text *t, size_t precision, double v)
{
    char digits[PRECISION_MAX];
    int exponent = 0;
    if (precision == 0) precision = 1;
    if (v != 0) bt_py_float_digits(v, precision, digits, &exponent);
    bool plain = exponent >= -4 && exponent < (int)precision;
    write_c_float(t, plain ? 'f' : 'e', true, plain ? (size_t)((int)precision - 1 - exponent) : precision - 1, v);
}

/* format(v, ".3") without a type: like g, but always with a point or an exponent, which comes one digit earlier. */
static void write_general(number_text *t, size_t precision, double v)
{
    char digits[PRECISION_MAX];
    int exponent = 0;
    if (precision == 0) precision = 1;
    if (v != 0) bt_py_float_digits(v, precision, digits, &exponent);
    if (exponent < -4 || exponent >= (int)precision - 1) {
        write_c_float(t, v == 0 ? 'f' : 'g', false, v == 0 ? 1 : precision, v);
        bool plain = memchr(t->body, 'e', t->size) == NULL;
        if (plain && v != 0) { /* g would still write it without an exponent */
            size_t n = precision;
            while (n > 1 && digits[n - 1] == '0') n--;
            write_c_float(t, 'e', false, n - 1, v);
        }
        return;
    }
    write_c_float(t, 'g', false, precision, v);
    if (memchr(t->body, '.', t->size) == NULL && memchr(t->body, 'e', t->size) == NULL) {
        t->body[t->size++] = '.';
        t->body[t->size++] = '0';
    }
}

static bool is_negative_zero(const number_text *t)
{
    for (size_t i = 0; i < t->size && t->body[i] != 'e'; i++) {
        if (t->body[i] != '0' && t->body[i] != '.') return false;
    }
    return true;
}

static bool write_float(bt_jx *x, number_text *t, const spec *s, double v)
{
    size_t precision = s->has_precision ? s->precision : 6;
    char type = s->type;
    bool upper = type == 'E' || type == 'F' || type == 'G', percent = type == '%';
    if (precision > PRECISION_MAX - 1) {
        (void)bt_jx_fail(x, "a precision beyond %zu is not supported", PRECISION_MAX - 1);
        return false;
    }
    if (!bt_jx_charge_float(x, s->has_precision ? precision : 0)) return false;
    if (percent) v *= 100;
    t->finite = isfinite(v);
    bool negative = signbit(v) && !isnan(v);
    double magnitude = fabs(v);
    if (!t->finite) {
        memcpy(t->body, isnan(v) ? "nan" : "inf", 3);
        t->size = 3;
    } else if (type == '\0' && !s->has_precision) {
        t->size = bt_py_float_repr(magnitude, t->body);
    } else if (type == '\0') {
        write_general(t, precision, magnitude);
    } else {
        char c = percent ? 'f' : type == 'n' ? 'g' : (char)(type | 0x20);
        if (c == 'g' && s->alternate) {
            write_alternate_general(t, precision, magnitude);
        } else {
            write_c_float(t, c, s->alternate, precision, magnitude);
        }
    }
    if (s->no_negative_zero && negative && is_negative_zero(t)) negative = false;
    if (percent) t->body[t->size++] = '%';
    for (size_t i = 0; upper && i < t->size; i++) {
        if (t->body[i] >= 'a' && t->body[i] <= 'z') t->body[i] = (char)(t->body[i] - 'a' + 'A');
    }
    set_sign(t, negative, s->sign);
    return true;
}

static bool as_double(bt_jv v, double *d)
{
    *d = v.kind == JV_FLOAT ? v.f : v.kind == JV_INT ? (double)v.i : v.kind == JV_BOOL ? v.b : 0;
    if (v.kind == JV_BIG) *d = bt_jv_big_double(v);
    return v.kind == JV_FLOAT || v.kind == JV_INT || v.kind == JV_BOOL || v.kind == JV_BIG;
}

/* ---- % ----------------------------------------------------------------------------------------------------------- */

typedef struct percent {
    const bt_js *format;
    size_t at;
    bt_jv args;
    size_t next; /* argument of a tuple, or 1 once the only one is used */
    bool mapping_used;
} percent;

/* What Python takes for a mapping here need not be used up. */
static bool mapping_like(bt_jv v)
{
    return v.kind == JV_DICT || v.kind == JV_LIST || v.kind == JV_RANGE || v.kind == JV_UNDEFINED;
}

static bt_jv next_argument(bt_jx *x, percent *p)
{
    bool tuple = p->args.kind == JV_TUPLE;
    size_t n = tuple ? p->args.list->n : p->mapping_used ? 0 : 1;
    if (p->next >= n) return bt_jx_fail(x, "not enough arguments for format string");
    p->next++;
    return tuple ? p->args.list->items[p->next - 1] : p->args;
}

static char peek(const percent *p)
{
    return p->at < p->format->size ? p->format->data[p->at] : '\0';
}

/* "%(key)": the value of the key. */
static bt_jv keyed(bt_jx *x, percent *p)
{
    size_t from = ++p->at, depth = 1;
    for (; p->at < p->format->size && depth > 0; p->at++) {
        depth += peek(p) == '(';
        depth -= peek(p) == ')';
    }
    if (depth > 0) return bt_jx_fail(x, "incomplete format key");
    if (p->args.kind != JV_DICT) return bt_jx_fail(x, "format requires a mapping");
    p->mapping_used = true;
    const bt_js key = {.data = p->format->data + from, .size = p->at - 1 - from};
    const bt_jv *v = bt_jdict_find(x, p->args.dict, &key);
    if (x->failed) return bt_jv_of(JV_FAIL);
    return v != NULL ? *v : bt_jx_fail(x, "the mapping has no key '%.*s'", (int)key.size, key.data);
}

/* A number or "*" at the place of width or precision. */
static bool percent_number(bt_jx *x, percent *p, int64_t *out)
{
    *out = 0;
    if (peek(p) == '*') {
        p->at++;
        bt_jv v = next_argument(x, p);
        if (bt_failed(v)) return false;
        if (v.kind != JV_INT && v.kind != JV_BOOL) return !bt_failed(bt_jx_fail(x, "* wants int"));
        return bt_jarg_int(x, "*", v, out);
    }
    while (peek(p) >= '0' && peek(p) <= '9') {
        if (*out > INT32_MAX) return !bt_failed(bt_jx_fail(x, "a width or precision that is too big"));
        *out = *out * 10 + (peek(p) - '0');
        p->at++;
    }
    return true;
}

static bool percent_spec(bt_jx *x, percent *p, spec *s)
{
    bool left = false;
    int64_t n;
    for (; peek(p) != '\0' && strchr("-+ #0", peek(p)) != NULL; p->at++) {
        char c = peek(p);
        left = left || c == '-';
        s->alternate = s->alternate || c == '#';
        s->zero = s->zero || c == '0';
        if (c == '+' || (c == ' ' && s->sign != '+')) s->sign = c;
    }
    if (!percent_number(x, p, &n)) return false;
    left = left || n < 0;
    s->width = (size_t)(n < 0 ? -n : n);
    if (peek(p) == '.') {
        p->at++;
        if (!percent_number(x, p, &n)) return false;
        s->has_precision = true;
        s->precision = n < 0 ? 0 : (size_t)n;
    }
    if (peek(p) != '\0' && strchr("hlL", peek(p)) != NULL) p->at++;
    s->align = left ? '<' : '\0';
    return true;
}

static void ascii_only(bt_jx *x, const bt_js *s)
{
    for (size_t i = 0, n; i < s->size && !x->failed; i += n) {
        uint32_t c = 0;
        char text[16];
        n = bt_utf8_decode(s->data + i, s->size - i, &c);
        int size = c < 0x80      ? snprintf(text, sizeof text, "%c", (char)c)
                   : c < 0x100   ? snprintf(text, sizeof text, "\\x%02x", (unsigned)c)
                   : c < 0x10000 ? snprintf(text, sizeof text, "\\u%04x", (unsigned)c)
                                 : snprintf(text, sizeof text, "\\U%08x", (unsigned)c);
        bt_out_add(x, text, c == 0 ? 1 : (size_t)size, bt_js_range_message(s, i, i + n));
    }
}

/* str(v), repr(v) or ascii(v). */
static bt_jv converted(bt_jx *x, bt_jv v, char how)
{
    if (how == 's') return bt_jv_str(x, v);
    size_t begin = bt_out_begin(x);
    bt_out_repr(x, v);
    bt_jv text = bt_out_take(x, begin, v.message);
    if (how == 'r' || bt_failed(text)) return text;
    ascii_only(x, text.s);
    return bt_out_take(x, begin, v.message);
}

static void put_text(bt_jx *x, const spec *s, bt_jv text, char by_default)
{
    if (bt_failed(text)) return;
    bt_js cut = *text.s;
    if (s->has_precision) {
        cut.size = bt_js_offset(&cut, s->precision);
        if (cut.marks == NULL && cut.size == 0) cut.message = text.message;
    }
    put_padded(x, s, &cut, bt_js_length(&cut), by_default, text.message);
}

/* %d of a float cuts its fraction off. */
static bool percent_integer(bt_jx *x, spec *s, bt_jv v)
{
    number_text t = {.size = 0};
    bool decimal = s->type == 'd' || s->type == 'i' || s->type == 'u';
    if (v.kind == JV_FLOAT && decimal && v.f > -0x1p63 && v.f < 0x1p63) v = bt_jv_int((int64_t)v.f, v.message);
    if (v.kind == JV_FLOAT && decimal && isfinite(v.f)) { /* too large for the line above */
        set_sign(&t, v.f < 0, s->sign);
        t.size = (size_t)snprintf(t.body, sizeof t.body, "%.0f", fabs(v.f));
    } else if (v.kind == JV_BIG && decimal && v.s->size < NUMBER_BYTES) {
        bool negative = v.s->data[0] == '-';
        set_sign(&t, negative, s->sign);
        memcpy(t.body, v.s->data + negative, v.s->size - negative);
        t.size = v.s->size - negative;
    } else if (v.kind == JV_INT || v.kind == JV_BOOL) {
        write_integer(&t, s, v.kind == JV_BOOL ? v.b : v.i);
    } else {
        (void)bt_jx_fail(x, "%%%c format: a number is required, not %s", s->type,
                         v.kind == JV_BIG ? "an integer beyond 64 bits" : bt_jv_type(v));
        return false;
    }
    if (s->has_precision && s->precision > t.size) {
        if (s->precision > NUMBER_BYTES - 1) return !bt_failed(bt_jx_fail(x, "a precision that is too big"));
        memmove(t.body + s->precision - t.size, t.body, t.size);
        memset(t.body, '0', s->precision - t.size);
        t.size = s->precision;
    }
    put_number(x, s, &t, v.message);
    return true;
}

static bool percent_char(bt_jx *x, const spec *s, bt_jv v)
{
    char bytes[4];
    bt_js content = {.data = bytes, .message = v.message};
    if (v.kind == JV_STRING && bt_js_length(v.s) == 1) {
        content = *v.s;
    } else if (v.kind == JV_BOOL) {
        bytes[0] = (char)v.b;
        content.size = 1;
    } else if (v.kind == JV_INT && v.i >= 0 && v.i <= 0x10ffff && (v.i < 0xd800 || v.i > 0xdfff)) {
        content.size = bt_utf8_encode((uint32_t)v.i, bytes);
    } else {
        return !bt_failed(bt_jx_fail(x, "%%c requires int or char"));
    }
    put_padded(x, s, &content, 1, '>', v.message);
    return true;
}

/* One conversion, after the '%'. */
static bool percent_one(bt_jx *x, percent *p, bool markup)
{
    spec s = {.fill = {.data = " ", .size = 1}};
    bt_jv v = bt_jv_of(JV_MISSING);
    if (peek(p) == '(' && bt_failed(v = keyed(x, p))) return false;
    if (!percent_spec(x, p, &s)) return false;
    if (p->at == p->format->size) return !bt_failed(bt_jx_fail(x, "incomplete format"));
    s.type = p->format->data[p->at++];
    if (s.type == '%') {
        bt_out_puts(x, "%", bt_js_range_message(p->format, p->at - 1, p->at));
        return true;
    }
    if (v.kind == JV_MISSING) v = next_argument(x, p);
    if (bt_failed(v)) return false;
    double d;
    bool text = s.type == 's' || s.type == 'r' || s.type == 'a';
    if (text) {
        bt_jv t = converted(x, v, s.type);
        if (markup && !bt_failed(t)) t = bt_js_escape(x, t);
        put_text(x, &s, t, '>');
        return !x->failed;
    }
    if (s.type == 'c') return percent_char(x, &s, v);
    if (s.zero && s.align != '<') {
        s.fill.data = "0";
        s.align = '=';
    }
    if (strchr("diuxXo", s.type) != NULL) return percent_integer(x, &s, v);
    if (s.type == '\0' || strchr("eEfFgG", s.type) == NULL) {
        return !bt_failed(bt_jx_fail(x, "unsupported format character '%c'", s.type));
    }
    if (!as_double(v, &d)) return !bt_failed(bt_jx_fail(x, "must be real number, not %s", bt_jv_type(v)));
    number_text t;
    if (!write_float(x, &t, &s, d)) return false;
    put_number(x, &s, &t, v.message);
    return true;
}

bt_jv bt_js_percent(bt_jx *x, bt_jv format, bt_jv args)
{
    percent p = {.format = format.s, .args = args};
    size_t begin = bt_out_begin(x);
    while (p.at < format.s->size && !x->failed) {
        const char *sign = memchr(format.s->data + p.at, '%', format.s->size - p.at);
        size_t to = sign == NULL ? format.s->size : (size_t)(sign - format.s->data);
        bt_out_js(x, format.s, p.at, to);
        p.at = to + 1;
        if (sign != NULL && !percent_one(x, &p, format.s->markup)) break;
    }
    size_t n = args.kind == JV_TUPLE ? args.list->n : 1;
    if (!x->failed && p.next < n && !mapping_like(args)) {
        (void)bt_jx_fail(x, "not all arguments converted during string formatting");
    }
    bt_jv v = bt_out_take(x, begin, format.message || args.message);
    return format.s->markup ? bt_js_as_markup(x, v) : v;
}

/* ---- format ------------------------------------------------------------------------------------------------------ */

static bool is_align(const bt_js *s, size_t at)
{
    return at < s->size && strchr("<>=^", s->data[at]) != NULL && s->data[at] != '\0';
}

static bool spec_number(bt_jx *x, const bt_js *s, size_t *at, size_t *out)
{
    *out = 0;
    for (; *at < s->size && s->data[*at] >= '0' && s->data[*at] <= '9'; (*at)++) {
        if (*out > INT32_MAX) return !bt_failed(bt_jx_fail(x, "too many decimal digits in format string"));
        *out = *out * 10 + (size_t)(s->data[*at] - '0');
    }
    return true;
}

/* [[fill]align][sign][z][#][0][width][grouping][.precision][type] */
static bool parse_spec(bt_jx *x, const bt_js *s, bool numeric, spec *out)
{
    *out = (spec){.fill = {.data = " ", .size = 1}};
    size_t at = 0, first = bt_js_offset(s, 1);
    if (is_align(s, first)) {
        out->fill.data = s->data;
        out->fill.size = first;
        out->align = s->data[first];
        at = first + 1;
    } else if (is_align(s, 0)) {
        out->align = s->data[0];
        at = 1;
    }
    if (at < s->size && (s->data[at] == '+' || s->data[at] == '-' || s->data[at] == ' ')) out->sign = s->data[at++];
    if (at < s->size && s->data[at] == 'z') out->no_negative_zero = ++at > 0;
    if (at < s->size && s->data[at] == '#') out->alternate = ++at > 0;
    if (at < s->size && s->data[at] == '0' && !is_align(s, first)) {
        at++;
        out->fill.data = "0";
        if (out->align == '\0' && numeric) out->align = '=';
    }
    if (!spec_number(x, s, &at, &out->width)) return false;
    if (at < s->size && (s->data[at] == ',' || s->data[at] == '_')) out->grouping = s->data[at++];
    if (at < s->size && s->data[at] == '.') {
        size_t digits = ++at;
        if (!spec_number(x, s, &at, &out->precision)) return false;
        if (digits == at) return !bt_failed(bt_jx_fail(x, "Format specifier missing precision"));
        out->has_precision = true;
    }
    if (at < s->size) out->type = s->data[at++];
    if (at < s->size || (unsigned char)out->type >= 0x80) return !bt_failed(bt_jx_fail(x, "Invalid format specifier"));
    return true;
}

static bool unknown_code(bt_jx *x, const spec *s, bt_jv v)
{
    (void)bt_jx_fail(x, "Unknown format code '%c' for object of type '%s'", s->type, bt_jv_type(v));
    return false;
}

static bool format_string(bt_jx *x, const spec *s, bt_jv v)
{
    if (s->type != '\0' && s->type != 's') return unknown_code(x, s, v);
    if (s->sign != '\0' || s->alternate || s->no_negative_zero || s->grouping != '\0' || s->align == '=') {
        return !bt_failed(bt_jx_fail(x, "sign, '=', '#' and grouping are not allowed in string format specifier"));
    }
    put_text(x, s, v, '<');
    return !x->failed;
}

static bool format_integer(bt_jx *x, spec *s, bt_jv v)
{
    number_text t = {.size = 0};
    int64_t i = v.kind == JV_BOOL ? v.b : v.i;
    if (s->has_precision || s->no_negative_zero) {
        return !bt_failed(bt_jx_fail(x, "precision and 'z' are not allowed in integer format specifier"));
    }
    if (s->type == 'c') {
        if (s->sign != '\0' || s->alternate || s->grouping != '\0') {
            return !bt_failed(
                bt_jx_fail(x, "sign, '#' and grouping are not allowed with integer format specifier 'c'"));
        }
        if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i <= 0xdfff)) {
            return !bt_failed(bt_jx_fail(x, "%%c arg not in range(0x110000)"));
        }
        t.size = bt_utf8_encode((uint32_t)i, t.body);
        const bt_js content = {.data = t.body, .size = t.size, .message = v.message};
        put_padded(x, s, &content, 1, '>', v.message);
        return true;
    }
    if (s->type == 'n' ? s->grouping != '\0' : s->grouping == ',' && s->type != '\0' && s->type != 'd') {
        return !bt_failed(bt_jx_fail(x, "Cannot specify '%c' with '%c'", s->grouping, s->type));
    }
    if (v.kind == JV_BIG) return !bt_failed(bt_jx_fail(x, "an integer beyond 64 bits"));
    write_integer(&t, s, i);
    put_number(x, s, &t, v.message);
    return true;
}

/* A value by a format specification that is not empty. */
static bool format_value(bt_jx *x, const bt_js *text, bt_jv v)
{
    spec s;
    double d;
    if (v.kind == JV_STRING) return parse_spec(x, text, false, &s) && format_string(x, &s, v);
    if (!as_double(v, &d)) {
        return !bt_failed(bt_jx_fail(x, "unsupported format string passed to %s.__format__", bt_jv_type(v)));
    }
    if (!parse_spec(x, text, true, &s)) return false;
    if (v.kind != JV_FLOAT && (s.type == '\0' || strchr("bcdoxXn", s.type) != NULL)) return format_integer(x, &s, v);
    if (s.type != '\0' && strchr("eEfFgGn%", s.type) == NULL) return unknown_code(x, &s, v);
    if (s.type == 'n' && s.grouping != '\0')
        return !bt_failed(bt_jx_fail(x, "Cannot specify '%c' with 'n'", s.grouping));
    number_text t;
    if (!write_float(x, &t, &s, d)) return false;
    put_number(x, &s, &t, v.message);
    return true;
}

typedef struct formatter {
    const bt_js *format;
    const bt_jargs *args;
    const bt_jv *map;
    int64_t automatic; /* next number of "{}" */
    bool numbered;     /* some field had its number */
    bool markup;
} formatter;

static bool all_digits(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
    }
    return n > 0;
}

static bt_jv positional(bt_jx *x, const formatter *f, int64_t i)
{
    if (f->map != NULL || i < 0 || (uint64_t)i >= f->args->n) {
        return bt_jx_fail(x, "Replacement index %" PRId64 " out of range for positional args tuple", i);
    }
    return f->args->v[i];
}

static bt_jv named(bt_jx *x, const formatter *f, const char *name, size_t n)
{
    const bt_js key = {.data = name, .size = n};
    if (f->map != NULL) {
        if (f->map->kind != JV_DICT) return bt_jx_fail(x, "format_map() needs a dict");
        const bt_jv *v = bt_jdict_find(x, f->map->dict, &key);
        if (v != NULL || x->failed) return x->failed ? bt_jv_of(JV_FAIL) : *v;
    }
    for (size_t i = 0; f->map == NULL && i < f->args->n_kw; i++) {
        if (bt_js_equal(f->args->kw[i].name, &key)) return f->args->kw[i].value;
    }
    return bt_jx_fail(x, "there is no argument named '%.*s'", (int)(n < 200 ? n : 200), name);
}

/* "{}": the next argument. */
static bt_jv next_positional(bt_jx *x, formatter *f)
{
    if (!f->numbered) return positional(x, f, f->automatic++);
    return bt_jx_fail(x, "cannot switch from manual field specification to automatic field numbering");
}

/* The first part of a field's name. */
static bt_jv first_value(bt_jx *x, formatter *f, const char *name, size_t n)
{
    int64_t i = 0;
    if (!all_digits(name, n)) return named(x, f, name, n);
    if (f->automatic > 0) {
        return bt_jx_fail(x, "cannot switch from automatic field numbering to manual field specification");
    }
    f->numbered = true;
    if (bt_py_parse_int(name, n, 10, &i) != 1) i = INT64_MAX;
    return positional(x, f, i);
}

/* "0.name[key]" at the format's bytes [from, to). */
static bt_jv field_value(bt_jx *x, formatter *f, size_t from, size_t to)
{
    const char *s = f->format->data;
    size_t at = from;
    if (from == to) return next_positional(x, f);
    while (at < to && s[at] != '.' && s[at] != '[') at++;
    bt_jv v = first_value(x, f, s + from, at - from);
    while (at < to && !bt_failed(v)) {
        bool index = s[at] == '[';
        size_t start = ++at;
        while (at < to && (index ? s[at] != ']' : s[at] != '.' && s[at] != '[')) at++;
        size_t size = at - start;
        if (size == 0 || (index && at == to)) return bt_jx_fail(x, "an empty or open part in a format field");
        bt_jv key = bt_js_slice(x, f->format, start, at);
        if (bt_failed(key)) return key;
        int64_t i = 0;
        if (!index) {
            v = bt_jv_attribute(x, v, key.s);
            continue;
        }
        if (all_digits(s + start, size) && bt_py_parse_int(s + start, size, 10, &i) == 1) key = bt_jv_int(i, false);
        v = bt_jv_item(x, v, key);
        at++;
        if (at < to && s[at] != '.' && s[at] != '[') {
            return bt_jx_fail(x, "only '.' or '[' may follow ']' in a format field");
        }
    }
    return v;
}

static void format_part(bt_jx *x, formatter *f, size_t from, size_t to, unsigned depth);

/* Where the field that begins at `from`, after its brace, ends; braces nest. */
static size_t field_end(const bt_js *s, size_t from, size_t to)
{
    size_t depth = 1, at = from;
    for (; at < to; at++) {
        if (s->data[at] == '{') depth++;
        if (s->data[at] == '}' && --depth == 0) return at;
    }
    return SIZE_MAX;
}

/* The value in its format, appended to the output. */
static void put_field(bt_jx *x, const formatter *f, bt_jv v, const bt_js *text)
{
    size_t begin = bt_out_begin(x);
    if (f->markup && v.kind == JV_STRING && v.s->markup) {
        if (text->size > 0) (void)bt_jx_fail(x, "format specification for Markup is not supported");
        bt_out_str(x, v);
        return;
    }
    if (text->size == 0) {
        bt_out_str(x, v);
    } else {
        (void)format_value(x, text, v);
        if (text->message) bt_out_stain(x, begin, true);
    }
    if (!f->markup) return;
    bt_jv escaped = bt_out_take(x, begin, v.message);
    if (bt_failed(escaped)) return;
    escaped = bt_js_escape(x, escaped);
    if (!bt_failed(escaped)) bt_out_str(x, escaped);
}

/* One field: name[!conversion][:specification]. */
static void format_field(bt_jx *x, formatter *f, size_t from, size_t to, unsigned depth)
{
    const char *s = f->format->data;
    size_t name = from;
    for (bool index = false; name < to && (index || (s[name] != '!' && s[name] != ':')); name++) {
        if (s[name] == '{') {
            (void)bt_jx_fail(x, "unexpected '{' in field name");
            return;
        }
        index = s[name] == '[' || (index && s[name] != ']');
    }
    size_t at = name;
    char conversion = '\0';
    if (at < to && s[at] == '!') {
        conversion = at + 1 < to ? s[at + 1] : '\0';
        at += 2;
        if (conversion == '\0' || strchr("rsa", conversion) == NULL || (at < to && s[at] != ':')) {
            (void)bt_jx_fail(x, "a conversion is one of !r !s !a, followed by ':' or '}'");
            return;
        }
    }
    bt_jv v = field_value(x, f, from, name);
    if (conversion != '\0' && !bt_failed(v)) v = converted(x, v, conversion);
    size_t begin = bt_out_begin(x);
    if (at < to) format_part(x, f, at + 1, to, depth + 1);
    bt_jv text = bt_out_take(x, begin, false);
    if (!bt_failed(text) && !bt_failed(v)) put_field(x, f, v, text.s);
}

/* The format's bytes [from, to), which is the whole or a specification with fields of its own. */
static void format_part(bt_jx *x, formatter *f, size_t from, size_t to, unsigned depth)
{
    const bt_js *s = f->format;
    if (depth > 2) (void)bt_jx_fail(x, "Max string recursion exceeded");
    for (size_t at = from; at < to && !x->failed;) {
        char c = s->data[at];
        size_t text = at;
        while (text < to && s->data[text] != '{' && s->data[text] != '}') text++;
        if (text > at) {
            bt_out_js(x, s, at, text);
            at = text;
            continue;
        }
        if (at + 1 < to && s->data[at + 1] == c) {
            bt_out_js(x, s, at, at + 1);
            at += 2;
            continue;
        }
        size_t end = c == '{' ? field_end(s, at + 1, to) : SIZE_MAX;
        if (end == SIZE_MAX) {
            (void)bt_jx_fail(x, "Single '%c' encountered in format string", c);
            return;
        }
        format_field(x, f, at + 1, end, depth);
        at = end + 1;
    }
}

bt_jv bt_js_format(bt_jx *x, bt_jv format, const bt_jargs *a, const bt_jv *map)
{
    formatter f = {.format = format.s, .args = a, .map = map, .markup = format.s->markup};
    size_t begin = bt_out_begin(x);
    format_part(x, &f, 0, format.s->size, 1);
    bt_jv v = bt_out_take(x, begin, format.message || bt_jargs_message(a));
    return f.markup ? bt_js_as_markup(x, v) : v;
}
