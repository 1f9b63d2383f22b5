/*
 * JSON scanner: one event per call, no recursion, nothing copied unless a string has escapes. See json.h for why it is
 * ours. It refuses what RFC 8259 refuses, and besides: unpaired surrogates (they are no text), nesting beyond
 * BT_JSON_DEPTH_MAX, and a byte order mark. The tree and the writer live in json_tree.c and text.c.
 */
#include "base/json.h"

#include <assert.h>
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

#define NUMBER_BYTES_MAX 1024 /* of a number that is to become a double; nobody writes longer ones in good faith */

enum { /* what may come next */
       EXPECT_VALUE,
       EXPECT_VALUE_OR_END, /* after '[' */
       EXPECT_KEY,          /* after ',' in an object */
       EXPECT_KEY_OR_END,   /* after '{' */
       EXPECT_COMMA_OR_END,
       EXPECT_NOTHING, /* after the top-level value */
};

void bt_json_begin(bt_json *j, const char *text, size_t size, unsigned flags, bt_error *e)
{
    if (size == 0) text = ""; /* an empty mapping has no address */
    *j = (bt_json){.begin = text, .at = text, .end = text + size, .flags = flags, .expect = EXPECT_VALUE, .error = e};
}

void bt_json_done(bt_json *j)
{
    bt_free(j->buffer);
    j->buffer = NULL;
    j->buffer_bytes = 0;
}

bt_status bt_json_fail(bt_json *j, const char *format, ...)
{
    if (j->status != BT_OK) return j->status; /* the first fault is the one to tell */
    j->status = BT_ERR_FORMAT;
    size_t line = 1, column = 1;
    for (const char *p = j->begin; p < j->at; p++) {
        if (*p == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*p & 0xc0) != 0x80) {
            column++;
        }
    }
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return bt_fail(j->error, BT_ERR_FORMAT, "line %zu, column %zu: %s", line, column, text);
}

/* The two ways to end in a fault: as an event, and as a truth that goes on to become one. */
static bt_json_kind fault(bt_json *j, const char *what)
{
    (void)bt_json_fail(j, "%s", what);
    return BT_JSON_ERROR;
}

static bool refuse(bt_json *j, const char *what)
{
    (void)bt_json_fail(j, "%s", what);
    return false;
}

static void skip_space(bt_json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t')) j->at++;
}

/* ---- strings --------------------------------------------------------------------------------------------------------
 */

/* Ordinary bytes of a string are stepped over eight at a time: true if none of them is a control character, '"', '\\'
 * or beyond ASCII. */
static bool eight_plain(const char *s)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t v;
    memcpy(&v, s, sizeof v);
    uint64_t quote = v ^ ones * '"', backslash = v ^ ones * '\\';
    uint64_t special = (v - ones * 0x20) | (quote - ones) | (backslash - ones) | v;
    return (special & tops) == 0;
}

/* Moves over ordinary text, checking UTF-8; stops at '"', '\\' or a fault. */
static bool skip_plain(bt_json *j)
{
    for (;;) {
        while (j->end - j->at >= 8 && eight_plain(j->at)) j->at += 8;
        if (j->at == j->end) return refuse(j, "the text ends inside a string");
        unsigned char c = (unsigned char)*j->at;
        if (c == '"' || c == '\\') return true;
        if (c < 0x20) return refuse(j, "a control character inside a string must be written as an escape");
        uint32_t code;
        size_t length = c < 0x80 ? 1 : bt_utf8_decode(j->at, (size_t)(j->end - j->at), &code);
        if (length == 0) return refuse(j, "bytes that are not UTF-8");
        j->at += length;
    }
}

static bool read_hex4(bt_json *j, uint32_t *v)
{
    if (j->end - j->at < 4) return refuse(j, "\\u needs four hexadecimal digits");
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        char c = j->at[i];
        uint32_t digit;
        if (c >= '0' && c <= '9') {
            digit = (uint32_t)(c - '0');
        } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
            digit = (uint32_t)((c | 0x20) - 'a') + 10;
        } else {
            return refuse(j, "\\u needs four hexadecimal digits");
        }
        value = value << 4 | digit;
    }
    j->at += 4;
    *v = value;
    return true;
}

/* After "\u": one character, from one escape or a pair of surrogates. */
static bool read_unicode_escape(bt_json *j, char out[4], size_t *n)
{
    uint32_t c;
    if (!read_hex4(j, &c)) return false;
    if (c >= 0xd800 && c <= 0xdfff) {
        uint32_t low = 0;
        bool paired = c < 0xdc00 && j->end - j->at >= 2 && j->at[0] == '\\' && j->at[1] == 'u';
        if (paired) {
            j->at += 2;
            if (!read_hex4(j, &low)) return false;
        }
        if (low < 0xdc00 || low > 0xdfff) return refuse(j, "an unpaired surrogate is no character");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    *n = bt_utf8_encode(c, out);
    return true;
}

/* At '\\': its character(s) to out, moves past it. */
static bool read_escape(bt_json *j, char out[4], size_t *n)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    j->at++;
    if (j->at == j->end) return refuse(j, "the text ends inside a string");
    char c = *j->at;
    const char *p = c == '\0' ? NULL : strchr(names, c);
    if (p != NULL) {
        j->at++;
        out[0] = values[p - names];
        *n = 1;
        return true;
    }
    if (c != 'u') return refuse(j, "an escape that JSON does not know");
    j->at++;
    return read_unicode_escape(j, out, n);
}

static bool buffer_add(bt_json *j, const char *s, size_t n)
{
    if (n == 0) return true;
    if (n > j->buffer_bytes - j->size) {
        size_t bytes = j->buffer_bytes * 2 > j->size + n ? j->buffer_bytes * 2 : j->size + n + 64;
        char *more = bt_realloc(j->buffer, bytes, 1);
        if (more == NULL) {
            j->status = bt_fail(j->error, BT_ERR_MEMORY, "no memory for a string of %zu bytes", bytes);
            return false;
        }
        j->buffer = more;
        j->buffer_bytes = bytes;
    }
    memcpy(j->buffer + j->size, s, n);
    j->size += n;
    return true;
}

/* At '"': the string's text, borrowed from the input where it has no escapes. */
static bool read_string(bt_json *j)
{
    assert(*j->at == '"');
    const char *start = ++j->at;
    if (!skip_plain(j)) return false;
    j->text = start;
    j->size = (size_t)(j->at - start);
    if (*j->at == '"') {
        j->at++;
        return true;
    }
    j->size = 0;
    while (*j->at == '\\') {
        char out[4];
        size_t n = 0;
        if (!buffer_add(j, start, (size_t)(j->at - start))) return false;
        if (!read_escape(j, out, &n) || !buffer_add(j, out, n)) return false;
        start = j->at;
        if (!skip_plain(j)) return false;
    }
    if (!buffer_add(j, start, (size_t)(j->at - start))) return false;
    j->at++;
    j->text = j->buffer;
    return true;
}

/* ---- other scalars --------------------------------------------------------------------------------------------------
 */

static bool accept_word(bt_json *j, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(j->end - j->at) < n || memcmp(j->at, word, n) != 0) return false;
    j->at += n;
    return true;
}

static size_t skip_digits(bt_json *j)
{
    const char *start = j->at;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') j->at++;
    return (size_t)(j->at - start);
}

static bt_json_kind read_number(bt_json *j)
{
    const char *start = j->at;
    bool python = (j->flags & BT_JSON_PYTHON) != 0;
    if (!(python && (accept_word(j, "NaN") || accept_word(j, "Infinity") || accept_word(j, "-Infinity")))) {
        if (*j->at == '-') j->at++;
        if (j->at < j->end && *j->at == '0') {
            j->at++; /* and no digit after it: "01" fails at the next event */
        } else if (skip_digits(j) == 0) {
            return fault(j, "a value is missing, or is no JSON");
        }
        if (j->at < j->end && *j->at == '.') {
            j->at++;
            if (skip_digits(j) == 0) return fault(j, "a number needs digits after its point");
        }
        if (j->at < j->end && (*j->at == 'e' || *j->at == 'E')) {
            j->at++;
            if (j->at < j->end && (*j->at == '+' || *j->at == '-')) j->at++;
            if (skip_digits(j) == 0) return fault(j, "a number needs digits in its exponent");
        }
    }
    j->text = start;
    j->size = (size_t)(j->at - start);
    return BT_JSON_NUMBER;
}

/* ---- structure ------------------------------------------------------------------------------------------------------
 */

static void value_ended(bt_json *j)
{
    j->expect = j->depth == 0 ? EXPECT_NOTHING : EXPECT_COMMA_OR_END;
}

static bt_json_kind open_container(bt_json *j)
{
    if (j->depth == BT_JSON_DEPTH_MAX) {
        (void)bt_json_fail(j, "more than %d levels of nesting", BT_JSON_DEPTH_MAX);
        return BT_JSON_ERROR;
    }
    char c = *j->at++;
    j->stack[j->depth++] = c;
    j->expect = c == '{' ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    return c == '{' ? BT_JSON_OBJECT : BT_JSON_ARRAY;
}

static bt_json_kind close_container(bt_json *j)
{
    assert(j->depth > 0);
    bool object = j->stack[j->depth - 1] == '{';
    j->at++;
    j->depth--;
    value_ended(j);
    return object ? BT_JSON_OBJECT_END : BT_JSON_ARRAY_END;
}

static bt_json_kind read_value(bt_json *j)
{
    char c = *j->at;
    if (c == '{' || c == '[') return open_container(j);
    bt_json_kind kind;
    if (c == '"') {
        kind = read_string(j) ? BT_JSON_STRING : BT_JSON_ERROR;
    } else if (accept_word(j, "true")) {
        kind = BT_JSON_TRUE;
    } else if (accept_word(j, "false")) {
        kind = BT_JSON_FALSE;
    } else if (accept_word(j, "null")) {
        kind = BT_JSON_NULL;
    } else {
        kind = read_number(j);
    }
    value_ended(j);
    return kind;
}

static bt_json_kind read_key(bt_json *j)
{
    if (*j->at != '"') return fault(j, "a key in quotes is missing");
    if (!read_string(j)) return BT_JSON_ERROR;
    skip_space(j);
    if (j->at == j->end || *j->at != ':') return fault(j, "a ':' is missing after the key");
    j->at++;
    j->expect = EXPECT_VALUE;
    return BT_JSON_KEY;
}

static bt_json_kind fault_at_end(bt_json *j)
{
    if (j->begin == j->end) return fault(j, "the text is empty");
    if (j->depth == 0) return fault(j, "there is no value");
    return fault(j, j->stack[j->depth - 1] == '{' ? "the text ends inside an object" : "the text ends inside an array");
}

/* The top-level value: here it shows if the file is no JSON at all. */
static bool check_start(bt_json *j)
{
    size_t size = (size_t)(j->end - j->begin);
    if (size >= 3 && memcmp(j->begin, "\xef\xbb\xbf", 3) == 0) {
        return refuse(j, "a byte order mark, which JSON forbids: save the file without it");
    }
    const char *placeholder = bt_placeholder_text(j->begin, size);
    return placeholder == NULL || refuse(j, placeholder);
}

bt_json_kind bt_json_next(bt_json *j)
{
    if (j->status != BT_OK) return BT_JSON_ERROR;
    if (j->at == j->begin && !check_start(j)) return BT_JSON_ERROR;
    skip_space(j);
    if (j->expect == EXPECT_NOTHING) {
        return j->at == j->end ? BT_JSON_END : fault(j, "more text after the end of the value");
    }
    if (j->at == j->end) return fault_at_end(j);
    if (j->expect == EXPECT_COMMA_OR_END) {
        bool object = j->stack[j->depth - 1] == '{';
        if (*j->at == (object ? '}' : ']')) return close_container(j);
        if (*j->at != ',') return fault(j, object ? "a ',' or '}' is missing" : "a ',' or ']' is missing");
        j->at++;
        j->expect = object ? EXPECT_KEY : EXPECT_VALUE;
        skip_space(j);
        if (j->at == j->end) return fault_at_end(j);
    }
    switch (j->expect) {
    case EXPECT_KEY_OR_END:
        return *j->at == '}' ? close_container(j) : read_key(j);
    case EXPECT_KEY:
        return read_key(j);
    case EXPECT_VALUE_OR_END:
        return *j->at == ']' ? close_container(j) : read_value(j);
    default:
        return read_value(j);
    }
}

bool bt_json_skip(bt_json *j, bt_json_kind opened)
{
    if (opened == BT_JSON_ERROR || opened == BT_JSON_END) return false;
    if (opened != BT_JSON_OBJECT && opened != BT_JSON_ARRAY) return true;
    unsigned outer = j->depth - 1;
    while (j->depth > outer) {
        if (bt_json_next(j) == BT_JSON_ERROR) return false;
    }
    return true;
}

bool bt_json_text_is(const bt_json *j, const char *s)
{
    size_t n = strlen(s);
    return j->size == n && memcmp(j->text, s, n) == 0;
}

/* ---- numbers --------------------------------------------------------------------------------------------------------
 */

bool bt_json_u64(const char *text, size_t size, uint64_t *v)
{
    if (size == 0 || (size > 1 && text[0] == '0')) return false;
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *v = value;
    return true;
}

bool bt_json_i64(const char *text, size_t size, int64_t *v)
{
    bool negative = size > 0 && text[0] == '-';
    uint64_t magnitude;
    if (!bt_json_u64(text + negative, size - negative, &magnitude)) return false;
    if (magnitude > (uint64_t)INT64_MAX + negative) return false;
    if (negative && magnitude > 0) {
        *v = -(int64_t)(magnitude - 1) - 1; /* INT64_MIN has no positive twin */
    } else {
        *v = (int64_t)magnitude;
    }
    return true;
}

/* The texts that strtod may see: it would also take "0x1p3", "inf", " 1", "nan(2)". */
static bool is_number_text(const char *s, size_t n)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(s, words[i]) == 0) return true;
    }
    return strspn(s, "0123456789+-.eE") == n && s[0] != '+';
}

bool bt_json_f64(const char *text, size_t size, double *v)
{
    char copy[NUMBER_BYTES_MAX + 1]; /* strtod wants a terminator */
    if (size == 0 || size > NUMBER_BYTES_MAX) return false;
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (!is_number_text(copy, size)) return false;
    /* The host program may have set a locale with a decimal comma. glibc and musl give "C" without allocating. */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) return false;
    char *end;
    errno = 0;
    double value = strtod_l(copy, &end, c);
    bool overflow = errno == ERANGE && (value > 1 || value < -1); /* an underflow is rounded rightly */
    freelocale(c);
    if (end != copy + size || overflow) return false;
    *v = value;
    return true;
}
