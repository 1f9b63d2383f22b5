/*
 * UTF-8 by the book (Unicode table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#include "base/utf8.h"

#include <assert.h>

/* What the first byte promises: the length, and the range of the second byte; later ones are 80..BF. Length 0: none. */
typedef struct lead {
    unsigned length;
    unsigned char second_min, second_max;
} lead;

static lead classify(unsigned char first)
{
    if (first < 0x80) return (lead){1, 0, 0};
    if (first < 0xc2) return (lead){0, 0, 0}; /* continuation, or overlong */
    if (first < 0xe0) return (lead){2, 0x80, 0xbf};
    if (first == 0xe0) return (lead){3, 0xa0, 0xbf}; /* below: overlong */
    if (first == 0xed) return (lead){3, 0x80, 0x9f}; /* above: surrogates */
    if (first < 0xf0) return (lead){3, 0x80, 0xbf};
    if (first == 0xf0) return (lead){4, 0x90, 0xbf}; /* below: overlong */
    if (first < 0xf4) return (lead){4, 0x80, 0xbf};
    if (first == 0xf4) return (lead){4, 0x80, 0x8f}; /* above: beyond U+10FFFF */
    return (lead){0, 0, 0};
}

/* How many of the bytes s [n] fit what s[0] promises, at most its length. */
static size_t n_fitting(const unsigned char *s, size_t n, lead l)
{
    if (l.length <= 1) return l.length;
    if (n < 2 || s[1] < l.second_min || s[1] > l.second_max) return 1;
    size_t i = 2;
    while (i < l.length && i < n && (s[i] & 0xc0) == 0x80) i++;
    return i;
}

size_t bt_utf8_decode(const char *s, size_t n, uint32_t *c)
{
    assert(n >= 1);
    const unsigned char *u = (const unsigned char *)s;
    lead l = classify(u[0]);
    if (l.length == 0 || n_fitting(u, n, l) < l.length) return 0;
    if (l.length == 1) {
        *c = u[0];
        return 1;
    }
    uint32_t value = u[0] & (0x7fu >> l.length);
    for (size_t i = 1; i < l.length; i++) value = value << 6 | (u[i] & 0x3fu);
    *c = value;
    return l.length;
}

size_t bt_utf8_encode(uint32_t c, char out[4])
{
    assert(c <= 0x10ffff);
    assert(c < 0xd800 || c > 0xdfff);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(unsigned char)(0x80u | (c & 0x3fu));
        c >>= 6;
    }
    out[0] = (char)(unsigned char)((0xf00u >> length & 0xf0u) | c);
    return length;
}

size_t bt_utf8_valid_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t c;
        size_t length = bt_utf8_decode(s + i, n - i, &c);
        if (length == 0) break;
        i += length;
    }
    return i;
}

bool bt_utf8_is_partial(const char *s, size_t n)
{
    if (n == 0) return false;
    const unsigned char *u = (const unsigned char *)s;
    lead l = classify(u[0]);
    return n < l.length && n_fitting(u, n, l) == n;
}
