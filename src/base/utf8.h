/* UTF-8: checking, stepping, and holding back the unfinished end of a stream. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "baltoro.h"

/* Length 1..4 of the valid character at s, its code point in *c; 0 if the bytes are no valid character. n >= 1. */
size_t bt_utf8_decode(const char *s, size_t n, uint32_t *c);
size_t bt_utf8_encode(uint32_t c, char out[4]);       /* c must be a scalar value */
size_t bt_utf8_valid_prefix(const char *s, size_t n); /* bytes before the first fault; n if there is none */
/* True if s [n] (1..3 bytes) may still become a valid character with more bytes. */
bool bt_utf8_is_partial(const char *s, size_t n);

#endif
