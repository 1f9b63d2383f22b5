/*
 * Decoding, one id at a time: the tokens' bytes are joined, and whatever of them is UTF-8 comes out. An unfinished
 * character waits for the next token; bytes that can no longer become a character are replaced by U+FFFD, one for each
 * maximal subpart, as Python's errors="replace" and Rust's from_utf8_lossy do. Decoding all ids at once is the same
 * with one buffer (tokenizer.c), so a stream and a whole text cannot differ.
 */
#include <assert.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

#define REPLACEMENT       "\xef\xbf\xbd"
#define REPLACEMENT_BYTES 3
#define PENDING_MAX       3 /* bytes of a character that lacks its last */

struct bt_decoder {
    const bt_tokenizer *t;
    unsigned flags;
    size_t n_pending;
    char *input;  /* pending bytes, then the token's */
    char *output; /* room for three times that: every byte may become U+FFFD */
};

bt_status bt_decoder_open(const bt_tokenizer *t, unsigned flags, bt_decoder **out, bt_error *e)
{
    size_t bytes_max = PENDING_MAX + bt_tokenizer_token_bytes_max(t);
    bt_decoder *d = bt_calloc(1, sizeof *d);
    if (d != NULL) {
        d->t = t;
        d->flags = flags;
        d->input = bt_malloc(bytes_max, 1);
        d->output = bt_malloc(bytes_max, REPLACEMENT_BYTES);
    }
    if (d == NULL || d->input == NULL || d->output == NULL) {
        bt_decoder_close(d);
        return bt_fail(e, BT_ERR_MEMORY, "no memory to decode tokens of up to %zu bytes", bytes_max);
    }
    *out = d;
    return BT_OK;
}

void bt_decoder_close(bt_decoder *d)
{
    if (d == NULL) return;
    bt_free(d->input);
    bt_free(d->output);
    bt_free(d);
}

/* Bytes of the maximal subpart at s: the longest beginning of a character, at least 1. s begins no valid character. */
static size_t subpart_bytes(const char *s, size_t n)
{
    size_t length = n < PENDING_MAX ? n : PENDING_MAX;
    while (length > 1 && !bt_utf8_is_partial(s, length)) length--;
    return length > 0 ? length : 1;
}

bt_status bt_decoder_push(bt_decoder *d, int32_t id, const char **text, size_t *size, bt_error *e)
{
    const char *token;
    size_t n_token;
    bt_status st = bt_tokenizer_text(d->t, id, d->flags, &token, &n_token, e);
    if (st != BT_OK) return st;
    assert(n_token <= bt_tokenizer_token_bytes_max(d->t));
    memcpy(d->input + d->n_pending, token, n_token);
    size_t n = d->n_pending + n_token, at = 0, used = 0;
    while (at < n) {
        uint32_t c;
        size_t length = bt_utf8_decode(d->input + at, n - at, &c);
        if (length > 0) {
            memcpy(d->output + used, d->input + at, length);
            used += length;
        } else {
            if (n - at <= PENDING_MAX && bt_utf8_is_partial(d->input + at, n - at)) break;
            length = subpart_bytes(d->input + at, n - at);
            memcpy(d->output + used, REPLACEMENT, REPLACEMENT_BYTES);
            used += REPLACEMENT_BYTES;
        }
        at += length;
    }
    d->n_pending = n - at;
    assert(d->n_pending <= PENDING_MAX);
    memmove(d->input, d->input + at, d->n_pending);
    *text = d->output;
    *size = used;
    return BT_OK;
}

void bt_decoder_finish(bt_decoder *d, const char **text, size_t *size)
{
    *text = REPLACEMENT;
    *size = d->n_pending > 0 ? REPLACEMENT_BYTES : 0; /* what waits is one subpart */
    d->n_pending = 0;
}
