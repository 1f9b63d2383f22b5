/*
 * NFC on top of utf8proc's tables.
 *
 * Most characters can neither change nor make a neighbour change, unless what follows them can: text is therefore cut
 * before every "quiet" character, and only pieces that hold others are decomposed, ordered and composed. The ordering
 * of combining marks is ours: utf8proc's bubbles them, which takes hours for a megabyte of marks in the wrong order.
 */
#include "text/normalize.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/utf8.h"

#define DECOMPOSED_MAX 32 /* code points of one character; Unicode's longest canonical decomposition has 4 */
#define CLASSES        256

void bt_nfc_free(bt_nfc *n)
{
    bt_free(n->text);
    bt_free(n->codes);
    bt_free(n->pieces);
    *n = (bt_nfc){0};
}

/* Starters that are NFC by themselves and never compose with what stands before them. Unicode promises that this stays
 * so for all versions. Not a complete list: Latin, Cyrillic, Hebrew letters, kana, Han, Hangul, punctuation, emoji; and
 * U+11A7, which utf8proc 2.8 would drop behind a Hangul syllable, taking it for "no final consonant". */
static bool is_quiet(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x0, 0x2ff},     {0x400, 0x482},   {0x5d0, 0x5ea},   {0x11a7, 0x11a7}, {0x2010, 0x2027},   {0x3041, 0x3096},
        {0x30a1, 0x30fa}, {0x4e00, 0x9fff}, {0xac00, 0xd7a3}, {0xff01, 0xff60}, {0x1f300, 0x1faff},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (c < ranges[i][0]) return false;
        if (c <= ranges[i][1]) return true;
    }
    return false;
}

static bt_status no_memory(bt_error *e)
{
    return bt_fail(e, BT_ERR_MEMORY, "no memory to normalise a text");
}

static bt_status reserve_text(bt_nfc *n, size_t bytes, bt_error *e)
{
    if (bytes < n->text_bytes) return BT_OK; /* and so n->text is never NULL where something is copied */
    size_t more = bytes + bytes / 2 + 64;
    char *p = bt_realloc(n->text, more, 1);
    if (p == NULL) return no_memory(e);
    n->text = p;
    n->text_bytes = more;
    return BT_OK;
}

static bt_status reserve_codes(bt_nfc *n, size_t count, bt_error *e)
{
    if (count <= n->n_codes_max) return BT_OK;
    size_t more = count + count / 2 + 64;
    int32_t *p = bt_realloc(n->codes, more, sizeof *p);
    if (p == NULL) return no_memory(e);
    n->codes = p;
    n->n_codes_max = more;
    return BT_OK;
}

static uint8_t combining_class(int32_t c)
{
    return (uint8_t)utf8proc_get_property(c)->combining_class;
}

/* Puts a run of marks into the order of their classes, those of one class keeping theirs: a counting sort with as much
 * scratch behind the marks as there are marks. */
static void order_marks(int32_t *marks, size_t n, int32_t *scratch)
{
    size_t starts[CLASSES + 1] = {0};
    for (size_t i = 0; i < n; i++) starts[combining_class(marks[i]) + 1]++;
    for (size_t i = 1; i <= CLASSES; i++) starts[i] += starts[i - 1];
    assert(starts[CLASSES] == n);
    for (size_t i = 0; i < n; i++) scratch[starts[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, scratch, n * sizeof *marks);
}

static void order_all(int32_t *codes, size_t n, int32_t *scratch)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        bool ordered = true;
        while (end < n && combining_class(codes[end]) != 0) {
            ordered &= end == i || combining_class(codes[end - 1]) <= combining_class(codes[end]);
            end++;
        }
        if (!ordered) order_marks(codes + i, end - i, scratch);
        i = end + 1;
    }
}

/* The NFC of one piece, appended to n->text at *used. */
static bt_status add_piece(bt_nfc *n, const char *piece, size_t size, size_t *used, bt_error *e)
{
    size_t count = 0;
    bt_status st = BT_OK;
    for (size_t i = 0; i < size && st == BT_OK;) {
        uint32_t c = 0;
        size_t length = bt_utf8_decode(piece + i, size - i, &c);
        assert(length > 0);
        i += length;
        st = reserve_codes(n, 2 * (count + DECOMPOSED_MAX), e);
        if (st != BT_OK) break;
        utf8proc_ssize_t added = utf8proc_decompose_char((int32_t)c, n->codes + count, DECOMPOSED_MAX,
                                                         UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, NULL);
        if (added < 1 || added > DECOMPOSED_MAX) {
            st = bt_fail(e, BT_ERR_UNSUPPORTED, "the character U+%04X cannot be normalised", c);
            break;
        }
        count += (size_t)added;
    }
    if (st != BT_OK) return st;
    order_all(n->codes, count, n->codes + count);
    utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(n->codes, (utf8proc_ssize_t)count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (composed < 0) return bt_fail(e, BT_ERR_UNSUPPORTED, "normalising failed: %s", utf8proc_errmsg(composed));
    n->n_steps += count;
    st = reserve_text(n, *used + 4 * (size_t)composed, e);
    for (size_t i = 0; i < (size_t)composed && st == BT_OK; i++) {
        *used += bt_utf8_encode((uint32_t)n->codes[i], n->text + *used);
    }
    return st;
}

static bt_status keep_piece(bt_nfc *n, bt_nfc_piece piece, bt_error *e)
{
    if (n->n_pieces == n->pieces_capacity) {
        size_t capacity = n->pieces_capacity == 0 ? 32 : n->pieces_capacity * 2;
        bt_nfc_piece *more = bt_realloc(n->pieces, capacity, sizeof *more);
        if (more == NULL) return no_memory(e);
        n->pieces = more;
        n->pieces_capacity = capacity;
    }
    n->pieces[n->n_pieces++] = piece;
    return BT_OK;
}

/* The first byte at or after `at` that is no part of a quiet character; *before: where the character before begins. */
static size_t skip_quiet(const char *text, size_t size, size_t at, size_t *before)
{
    while (at < size) {
        uint32_t c = 0;
        size_t length = bt_utf8_decode(text + at, size - at, &c);
        if (!is_quiet(c)) break;
        *before = at;
        at += length;
    }
    return at;
}

/* The first quiet character at or after `at`. */
static size_t find_quiet(const char *text, size_t size, size_t at)
{
    while (at < size) {
        uint32_t c = 0;
        size_t length = bt_utf8_decode(text + at, size - at, &c);
        if (is_quiet(c)) break;
        at += length;
    }
    return at;
}

bt_status bt_nfc_apply(bt_nfc *n, const char *text, size_t size, const char **out, size_t *out_size, bt_error *e)
{
    size_t used = 0, done = 0; /* of the result, of the text */
    bt_status st = BT_OK;
    n->n_pieces = 0;
    n->n_steps += size;
    for (size_t at = 0; at < size && st == BT_OK;) {
        size_t piece = at;
        size_t loud = skip_quiet(text, size, at, &piece);
        if (loud == size) break;
        at = find_quiet(text, size, loud);
        st = reserve_text(n, used + (piece - done), e);
        if (st != BT_OK) break;
        memcpy(n->text + used, text + done, piece - done);
        used += piece - done;
        bt_nfc_piece told = {.from = piece, .from_size = at - piece, .to = used};
        st = add_piece(n, text + piece, at - piece, &used, e);
        told.to_size = used - told.to;
        if (st == BT_OK && n->keeps_pieces) st = keep_piece(n, told, e);
        done = at;
    }
    if (st != BT_OK) return st;
    if (done == 0) { /* all quiet */
        *out = text;
        *out_size = size;
        return BT_OK;
    }
    st = reserve_text(n, used + (size - done), e);
    if (st != BT_OK) return st;
    memcpy(n->text + used, text + done, size - done);
    *out = n->text;
    *out_size = used + (size - done);
    return BT_OK;
}
