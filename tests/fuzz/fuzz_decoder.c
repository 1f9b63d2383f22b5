/*
 * UTF-8 out of a stream of ids, and the functions under it. The input is ids, two bytes each, of the stored tiny
 * tokenizer, which has a token for every byte. What the stream gives must be whole characters at every push, and
 * together what decoding all ids at once gives; where the bytes are UTF-8, it must be these bytes.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer.h"

#define N_IDS_MAX 1024
#define BYTES_MAX 64

static void require(bool truth)
{
    if (!truth) abort();
}

/* Whether some bytes make s [n] a character: all second bytes are tried, later ones have one range. */
static bool can_be_completed(const char *s, size_t n)
{
    char whole[4] = {0};
    uint32_t c;
    memcpy(whole, s, n);
    for (unsigned next = 0x80; next <= 0xbf; next++) {
        whole[n] = (char)next;
        for (size_t length = n + 1; length <= 4; length++) {
            if (length > n + 1) whole[length - 1] = (char)0x80;
            if (bt_utf8_decode(whole, length, &c) == length) return true;
        }
    }
    return false;
}

static void check_bytes(const char *s, size_t n)
{
    for (size_t at = 0; at < n; at++) {
        uint32_t c = 0;
        char again[4];
        size_t length = bt_utf8_decode(s + at, n - at, &c);
        require(length <= 4 && length <= n - at);
        if (length > 0) require(bt_utf8_encode(c, again) == length && memcmp(again, s + at, length) == 0);
        for (size_t part = 1; part <= 3 && part <= n - at; part++) {
            bool whole = bt_utf8_decode(s + at, part, &c) == part;
            if (!whole && !(part > 1 && bt_utf8_decode(s + at, part, &c) > 0))
                require(bt_utf8_is_partial(s + at, part) == can_be_completed(s + at, part));
        }
    }
    require(bt_utf8_valid_prefix(s, n) <= n);
}

/* The stream's text, joined to out; ids that the tokenizer refuses end it. */
static size_t stream(const bt_tokenizer *t, unsigned flags, const int32_t *ids, size_t *n, char *out, size_t room)
{
    bt_decoder *d = NULL;
    const char *part;
    size_t size, used = 0, i = 0;
    bt_error e = {.status = BT_OK};
    require(bt_decoder_open(t, flags, &d, NULL) == BT_OK);
    for (; i < *n; i++) {
        if (bt_decoder_push(d, ids[i], &part, &size, &e) != BT_OK) break;
        require(size <= room - used && bt_utf8_valid_prefix(part, size) == size);
        memcpy(out + used, part, size);
        used += size;
    }
    require(i == *n || e.message[0] != '\0');
    *n = i;
    bt_decoder_finish(d, &part, &size);
    require(size <= room - used && bt_utf8_valid_prefix(part, size) == size);
    memcpy(out + used, part, size);
    bt_decoder_close(d);
    return used + size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bt_tokenizer *t; /* opened once, for it takes longer than the rest */
    int32_t ids[N_IDS_MAX];
    size_t n = size / 2 < N_IDS_MAX ? size / 2 : N_IDS_MAX;
    if (size > 0) check_bytes((const char *)data, size < BYTES_MAX ? size : BYTES_MAX);
    if (t == NULL) require(bt_tokenizer_open("tests/data/tokenizers/tiny", &t, NULL) == BT_OK);
    size_t n_vocab = bt_tokenizer_n_vocab(t);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)((data[2 * i] | (size_t)data[2 * i + 1] << 8) % (n_vocab + 1));
    size_t room = 3 * (n + 1) * (bt_tokenizer_token_bytes_max(t) + 3);
    char *joined = malloc(room), *whole = NULL;
    require(joined != NULL);
    for (unsigned flags = 0; flags <= BT_TEXT_SPECIAL; flags += BT_TEXT_SPECIAL) {
        size_t whole_size = 0, used = stream(t, flags, ids, &n, joined, room);
        require(bt_tokenizer_decode(t, ids, n, flags, &whole, &whole_size, NULL) == BT_OK);
        require(used == whole_size && memcmp(joined, whole, used) == 0);
        bt_free(whole);
    }
    free(joined);
    return 0;
}
