/*
 * tiktoken.model, tokenizer_config.json, and text for them. The input is lines up to the first byte 0xff, a config up
 * to the next, a text. Lines that begin with '+' are put behind those of the 256 bytes, without which no vocabulary is
 * taken; an empty config is replaced by one that names the first special token. Whatever is accepted must take every
 * text, and give it back, at once and id by id, as a whole and in segments.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

#define TEXT_BYTES_MAX 4096

static void require(bool truth)
{
    if (!truth) abort();
}

typedef struct part {
    const char *text;
    size_t size;
} part;

/* What lies before the next border, and steps behind it. */
static part take(part *rest)
{
    const char *border = rest->size == 0 ? NULL : memchr(rest->text, 0xff, rest->size);
    part taken = {rest->text, border == NULL ? rest->size : (size_t)(border - rest->text)};
    size_t step = taken.size + (border != NULL);
    *rest = (part){rest->text + step, rest->size - step};
    return taken;
}

static void add_byte_lines(bt_text *lines)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (unsigned b = 0; b < 256; b++) {
        bt_text_printf(lines, "%c%c== %u\n", digits[b >> 2], digits[b << 4 & 63], b);
    }
}

static void check_stream(const bt_tokenizer *t, const int32_t *ids, size_t n, part text)
{
    bt_decoder *d = NULL;
    bt_text joined = {0};
    const char *piece;
    size_t size;
    require(bt_decoder_open(t, BT_TEXT_SPECIAL, &d, NULL) == BT_OK);
    for (size_t i = 0; i < n; i++) {
        require(bt_decoder_push(d, ids[i], &piece, &size, NULL) == BT_OK);
        require(bt_utf8_valid_prefix(piece, size) == size);
        bt_text_add(&joined, piece, size);
    }
    bt_decoder_finish(d, &piece, &size);
    require(size == 0 && joined.size == text.size);
    require(text.size == 0 || memcmp(joined.data, text.text, text.size) == 0);
    bt_text_free(&joined);
    bt_decoder_close(d);
}

static void check_text(const bt_tokenizer *t, part text, unsigned flags, size_t border)
{
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n = 0, size = 0;
    bt_error e;
    require(bt_tokenizer_encode(t, text.text, text.size, flags, &ids, &n, &e) == BT_OK);
    for (size_t i = 0; i < n; i++) require(flags != 0 || !bt_tokenizer_is_added(t, ids[i]));
    require(bt_tokenizer_decode(t, ids, n, BT_TEXT_SPECIAL, &back, &size, &e) == BT_OK);
    require(size == text.size && (size == 0 || memcmp(back, text.text, size) == 0));
    check_stream(t, ids, n, text);
    bt_free(back);
    bt_free(ids);
    bt_text_segment segments[] = {{border, flags}, {0, flags}, {text.size - border, 0}};
    require(bt_tokenizer_encode_segments(t, text.text, segments, 3, &ids, &n, &e) == BT_OK);
    check_stream(t, ids, n, text);
    bt_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    part rest = {(const char *)data, size};
    part model = take(&rest), config = take(&rest), text = rest;
    bt_text lines = {0}, names = {0};
    bt_tokenizer *t = NULL;
    bt_error e;
    bt_text_puts(&lines, "");
    if (model.size > 0 && model.text[0] == '+') add_byte_lines(&lines);
    if (lines.size > 0) model = (part){model.text + 1, model.size - 1};
    bt_text_add(&lines, model.text, model.size);
    size_t n_lines = 0;
    for (size_t i = 0; i < lines.size; i++) n_lines += lines.data[i] == '\n';
    bt_text_printf(&names, "{\"added_tokens_decoder\":{\"%zu\":{\"content\":\"<|open|>\"}}}", n_lines);
    if (config.size == 0) config = (part){names.data, names.size};
    if (text.size > TEXT_BYTES_MAX) text.size = TEXT_BYTES_MAX;
    text.size = text.size == 0 ? 0 : bt_utf8_valid_prefix(text.text, text.size);
    if (bt_tokenizer_open_tiktoken(lines.data, lines.size, config.text, config.size, &t, &e) == BT_OK) {
        size_t border = text.size / 2;
        while (border > 0 && ((unsigned char)text.text[border] & 0xc0) == 0x80) border--;
        check_text(t, text, 0, border);
        check_text(t, text, BT_TEXT_SPECIAL, border);
        bt_tokenizer_close(t);
    } else {
        require(e.message[0] != '\0');
    }
    bt_text_free(&names);
    bt_text_free(&lines);
    return 0;
}
