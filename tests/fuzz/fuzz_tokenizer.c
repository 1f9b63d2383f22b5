/*
 * tokenizer.json, and text for it. The input is the file up to the first byte 0xff, behind it a text; where that is no
 * tokenizer, the stored tiny one takes the text. Whatever is accepted must encode, and decode its own ids; a stream
 * must give what decoding at once gives.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tokenizer.h"

#define TEXT_BYTES_MAX 4096 /* a hostile pattern may take its whole budget: that much for every byte */

static void require(bool truth)
{
    if (!truth) abort();
}

static void check_stream(const bt_tokenizer *t, const int32_t *ids, size_t n, const char *text, size_t size)
{
    bt_decoder *d = NULL;
    bt_stop *stop = NULL;
    bt_text joined = {0};
    const char *part;
    size_t part_size;
    require(bt_decoder_open(t, BT_TEXT_SPECIAL, &d, NULL) == BT_OK);
    require(bt_stop_open((const char *[]){"\x01\x02\x01"}, 1, &stop, NULL) == BT_OK);
    bool met = false;
    for (size_t i = 0; i <= n && !met; i++) {
        if (i < n) {
            require(bt_decoder_push(d, ids[i], &part, &part_size, NULL) == BT_OK);
        } else {
            bt_decoder_finish(d, &part, &part_size);
        }
        met = bt_stop_push(stop, part, part_size, &part, &part_size);
        bt_text_add(&joined, part, part_size);
    }
    bt_stop_finish(stop, &part, &part_size);
    bt_text_add(&joined, part, part_size);
    require(met ? joined.size <= size : joined.size == size);
    require(memcmp(joined.data, text, joined.size) == 0);
    bt_text_free(&joined);
    bt_stop_close(stop);
    bt_decoder_close(d);
}

static void check_text(const bt_tokenizer *t, const char *text, size_t size)
{
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n = 0, back_size = 0;
    bt_error e;
    if (size > TEXT_BYTES_MAX) size = TEXT_BYTES_MAX;
    if (bt_tokenizer_encode(t, text, size, BT_TEXT_SPECIAL, &ids, &n, &e) == BT_OK) {
        require(bt_tokenizer_decode(t, ids, n, BT_TEXT_SPECIAL, &back, &back_size, &e) == BT_OK);
        check_stream(t, ids, n, back, back_size);
        bt_free(back);
        bt_free(ids);
    } else {
        require(e.message[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *border = size == 0 ? NULL : memchr(data, 0xff, size);
    size_t json_size = border == NULL ? size : (size_t)(border - data);
    const char *text = border == NULL ? "a b <x>" : (const char *)border + 1;
    size_t text_size = border == NULL ? 7 : size - json_size - 1;
    static bt_tokenizer *tiny; /* opened once: to compile its pattern takes longer than the rest */
    bt_tokenizer *t = NULL;
    bt_error e;
    if (bt_tokenizer_open_text((const char *)data, json_size, NULL, 0, &t, &e) == BT_OK) {
        check_text(t, text, text_size);
        bt_tokenizer_close(t);
        return 0;
    }
    require(e.message[0] != '\0');
    if (border == NULL) return 0;
    if (tiny == NULL) require(bt_tokenizer_open("tests/data/tokenizers/tiny", &tiny, &e) == BT_OK);
    check_text(tiny, text, text_size);
    return 0;
}
