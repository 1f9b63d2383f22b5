/*
 * Growing text, and JSON written into it. A failed allocation is remembered rather than returned, so that a writer
 * reads like the document it writes and asks once, at the end.
 */
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

#define CAPACITY_MIN ((size_t)64)

/* Room for n more bytes and the terminator. */
static bool reserve(bt_text *t, size_t n)
{
    if (t->failed) return false;
    if (t->data != NULL && n < t->capacity - t->size) return true;
    size_t capacity = t->capacity < CAPACITY_MIN ? CAPACITY_MIN : t->capacity;
    while (n >= capacity - t->size) {
        if (capacity > SIZE_MAX / 2) {
            t->failed = true;
            return false;
        }
        capacity *= 2;
    }
    char *more = bt_realloc(t->data, capacity, 1);
    if (more == NULL) {
        t->failed = true;
        return false;
    }
    t->data = more;
    t->capacity = capacity;
    return true;
}

void bt_text_add(bt_text *t, const char *s, size_t n)
{
    if (!reserve(t, n)) return;
    if (n > 0) memcpy(t->data + t->size, s, n);
    t->size += n;
    t->data[t->size] = '\0';
}

void bt_text_puts(bt_text *t, const char *s)
{
    bt_text_add(t, s, strlen(s));
}

void bt_text_printf(bt_text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        t->failed = true;
    } else if (reserve(t, (size_t)n)) {
        (void)vsnprintf(t->data + t->size, (size_t)n + 1, format, again);
        t->size += (size_t)n;
    }
    va_end(again);
}

static void add_escaped(bt_text *t, uint32_t c)
{
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    const char *p = c == 0 || c > 0x7f ? NULL : strchr(values, (int)c);
    if (p != NULL) {
        bt_text_add(t, (const char[]){'\\', names[p - values]}, 2);
    } else {
        bt_text_printf(t, "\\u%04" PRIx32, c);
    }
}

void bt_text_json_string(bt_text *t, const char *s, size_t n)
{
    bt_text_add(t, "\"", 1);
    size_t start = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t length = bt_utf8_decode(s + i, n - i, &c);
        /* NEL, LS and PS end a line for many readers; escaped, a value never spans lines of a JSON-lines file. */
        bool breaks_line = c == 0x85 || c == 0x2028 || c == 0x2029;
        bool plain = length > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f && !breaks_line;
        if (!plain) {
            bt_text_add(t, s + start, i - start);
            if (length > 0) {
                add_escaped(t, c);
            } else {
                bt_text_puts(t, "\xef\xbf\xbd"); /* U+FFFD: whatever comes in, JSON goes out */
                length = 1;
            }
            start = i + length;
        }
        i += length;
    }
    bt_text_add(t, s + start, n - start);
    bt_text_add(t, "\"", 1);
}

void bt_text_json_f64(bt_text *t, double v)
{
    if (!isfinite(v)) {
        bt_text_puts(t, "null");
        return;
    }
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) {
        t->failed = true;
        return;
    }
    locale_t before = uselocale(c); /* of this thread only: the host's decimal comma must not get in */
    char number[40];
    /* 17 digits always read back. Of a normal number %.15g gives every shorter form too, for it drops zeros. */
    for (int digits = fabs(v) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        (void)snprintf(number, sizeof number, "%.*g", digits, v);
        double back = strtod(number, NULL);
        if (memcmp(&back, &v, sizeof v) == 0) break;
    }
    (void)uselocale(before);
    freelocale(c);
    bt_text_puts(t, number);
}

bool bt_text_ok(const bt_text *t)
{
    return !t->failed;
}

void bt_text_free(bt_text *t)
{
    bt_free(t->data);
    *t = (bt_text){NULL, 0, 0, false};
}

bt_size_text bt_format_size(uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    bt_size_text s;
    double x = (double)bytes;
    size_t unit = 0;
    while (x >= 999.95 && unit < 6) {
        x /= 1000;
        unit++;
    }
    (void)snprintf(s.text, sizeof s.text, unit == 0 ? "%.0f %s" : "%.1f %s", x, units[unit]);
    return s;
}
