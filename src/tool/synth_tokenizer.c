/*
 * A tokenizer that works but knows no language: any text becomes ids and comes back, and the vocabulary has the size
 * and the named tokens of the real one. A merge joins bytes that stand side by side: all pairs first, those of common
 * letters before others (so that a vocabulary of 640 still shortens English), then each pair with a third byte. No
 * string occurs twice, so a released vocabulary of a quarter of a million fits. K2-Horizon's come as tokenizer.json,
 * Kimi's as tiktoken.model, whose named and reserved tokens tokenizer_config.json lists.
 */
#include "tool/synth_tokenizer.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

#define FIRST_BYTE     2u
#define FIRST_MERGE    258u
#define N_PAIRS        65536u
#define THIRD_BYTES    64u /* how many bytes, the most common ones, may be third */
#define N_MERGES_MAX   (N_PAIRS + N_PAIRS * THIRD_BYTES)
#define LINE_BYTES_MAX 128u

/* Structure tags in the order of their ids, from `<ifm|think>` on. */
static const char *const TAGS[] = {
    "<ifm|think>",         "</ifm|think>",     "<ifm|think_fast>", "</ifm|think_fast>", "<ifm|think_faster>",
    "</ifm|think_faster>", "<ifm|tools>",      "</ifm|tools>",     "<ifm|tool_calls>",  "</ifm|tool_calls>",
    "<ifm|tool_call>",     "</ifm|tool_call>", "<ifm|arg_key>",    "</ifm|arg_key>",    "<ifm|arg_type>",
    "</ifm|arg_type>",     "<ifm|arg_value>",  "</ifm|arg_value>",
};
#define N_TAGS ((uint32_t)(sizeof TAGS / sizeof *TAGS))

typedef struct writer {
    const bt_synth_vocab *v;
    bt_text text; /* written out whenever it has grown */
    bt_output *output;
    const char *path;
    uint8_t byte_of[256]; /* byte tokens in the order of their ids */
    uint8_t common[256];  /* bytes, the most common in English text first */
    uint16_t letter[256]; /* byte -> the character that stands for it */
    bt_status st;
    bt_error *e;
} writer;

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

/* GPT-2's way: printable bytes stand for themselves and come first, the others are 256, 257, ... */
static void fill_bytes(writer *w)
{
    static const char first[] = " etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ0123456789.,";
    size_t n = 0;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        w->letter[b] = printable ? (uint16_t)b : 0;
        if (printable) w->byte_of[n++] = (uint8_t)b;
    }
    for (unsigned b = 0, more = 256; b < 256; b++) {
        if (w->letter[b] != 0) continue;
        w->letter[b] = (uint16_t)more++;
        w->byte_of[n++] = (uint8_t)b;
    }
    assert(n == 256);
    bool seen[256] = {false};
    n = 0;
    for (const char *c = first; *c != '\0'; c++) {
        w->common[n++] = (uint8_t)*c;
        seen[(uint8_t)*c] = true;
    }
    for (unsigned b = 0; b < 256; b++)
        if (!seen[b]) w->common[n++] = (uint8_t)b;
    assert(n == 256);
}

/* Pair i in shells: all pairs of the m most common bytes come before those with the next one. */
static void pair_bytes(const writer *w, uint32_t i, uint8_t bytes[2])
{
    uint32_t m = 0;
    while ((m + 1) * (m + 1) <= i) m++;
    uint32_t k = i - m * m; /* 0 .. 2m: (0, m), (m, 0), (1, m), (m, 1), ..., (m, m) */
    uint32_t a = k % 2 == 0 ? k / 2 : m, b = k % 2 == 0 ? m : k / 2;
    bytes[0] = w->common[a];
    bytes[1] = w->common[b];
}

/* The bytes of merge i, and how many of them its left half has. */
static size_t merge_bytes(const writer *w, uint32_t i, uint8_t bytes[3], size_t *n_left)
{
    if (i < N_PAIRS) {
        pair_bytes(w, i, bytes);
        *n_left = 1;
        return 2;
    }
    pair_bytes(w, (i - N_PAIRS) / THIRD_BYTES, bytes);
    bytes[2] = w->common[(i - N_PAIRS) % THIRD_BYTES];
    *n_left = 2;
    return 3;
}

static void to_base64(const uint8_t *bytes, size_t n, char text[8])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    assert(n >= 1 && n <= 3);
    for (size_t i = 0; i < 3; i++) bits = bits << 8 | (i < n ? bytes[i] : 0u);
    for (size_t i = 0; i < 4; i++) text[i] = i <= n ? digits[bits >> (18 - 6 * i) & 63] : '=';
    text[4] = '\0';
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void put_letters(writer *w, const uint8_t *bytes, size_t n)
{
    char text[16];
    size_t used = 0;
    for (size_t i = 0; i < n; i++) used += bt_utf8_encode(w->letter[bytes[i]], text + used);
    bt_text_json_string(&w->text, text, used);
}

static void flush(writer *w)
{
    if (w->st == BT_OK && !bt_text_ok(&w->text))
        w->st = bt_fail(w->e, BT_ERR_MEMORY, "%s: no memory to write it", w->path);
    if (w->st == BT_OK) w->st = bt_output_write(w->output, w->text.data, w->text.size, w->e);
    w->text.size = 0;
}

/* The text of an added token; NULL: the id is a byte's or a merge's. */
static const char *added_text(const bt_synth_vocab *v, uint32_t id, char reserved[32])
{
    if (id == 0) return "<|ifm|begin_of_text|>";
    if (id == 1) return "<|ifm|endoftext|>";
    if (id < v->im_start) return NULL;
    if (id == v->im_start) return "<|ifm|im_start|>";
    if (id == v->im_start + 1) return "<|ifm|im_end|>";
    if (id >= v->think && id < v->think + N_TAGS) return TAGS[id - v->think];
    if (id == v->pad) return "<|ifm|pad|>";
    (void)snprintf(reserved, 32, "<|ifm|reserved_%" PRIu32 "|>", id);
    return reserved;
}

static void put_added(writer *w)
{
    bt_text_puts(&w->text, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    for (uint32_t id = 0; id < w->v->n_ids; id++) {
        char reserved[32];
        const char *text = added_text(w->v, id, reserved);
        if (text == NULL) continue;
        bt_text_printf(&w->text, "%s{\"id\":%" PRIu32 ",\"content\":", id == 0 ? "" : ",", id);
        bt_text_json_string(&w->text, text, strlen(text));
        bt_text_printf(&w->text,
                       ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                       text[1] == '|' ? "true" : "false"); /* control tokens have bars on both sides */
    }
    flush(w);
}

static void put_pipeline(writer *w)
{
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}"
    bt_text_puts(&w->text,
                 "],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
                 "\"type\":\"Split\",\"pattern\":{\"Regex\":\""
                 "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|"
                 "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?(?:\\\\p{L}|\\\\p{M}|\\u200c|\\u200d)+|\\\\p{N}{1,3}|"
                 " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
                 "\"},\"behavior\":\"Isolated\",\"invert\":false}," BYTE_LEVEL "]},\"post_processor\":" BYTE_LEVEL
                 ",\"decoder\":" BYTE_LEVEL ",\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                 "\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\",\"fuse_unk\":false,"
                 "\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{"
                 "\"<|ifm|begin_of_text|>\":0,\"<|ifm|endoftext|>\":1");
    flush(w);
}

static void put_model(writer *w)
{
    uint32_t n_merges = w->v->im_start - FIRST_MERGE;
    uint8_t bytes[3];
    size_t n_left;
    for (uint32_t i = 0; i < 256; i++) {
        bt_text_puts(&w->text, ",");
        put_letters(w, &w->byte_of[i], 1);
        bt_text_printf(&w->text, ":%" PRIu32, FIRST_BYTE + i);
    }
    for (uint32_t i = 0; i < n_merges && w->st == BT_OK; i++) {
        size_t n = merge_bytes(w, i, bytes, &n_left);
        bt_text_puts(&w->text, ",");
        put_letters(w, bytes, n);
        bt_text_printf(&w->text, ":%" PRIu32, FIRST_MERGE + i);
        if (i % 1024 == 0) flush(w);
    }
    bt_text_puts(&w->text, "},\"merges\":[");
    for (uint32_t i = 0; i < n_merges && w->st == BT_OK; i++) {
        size_t n = merge_bytes(w, i, bytes, &n_left);
        bt_text_puts(&w->text, i == 0 ? "[" : ",[");
        put_letters(w, bytes, n_left);
        bt_text_puts(&w->text, ",");
        put_letters(w, bytes + n_left, n - n_left);
        bt_text_puts(&w->text, "]");
        if (i % 1024 == 0) flush(w);
    }
    bt_text_puts(&w->text, "]}}\n");
    flush(w);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static bt_status write_json(writer *w)
{
    assert(w->v->im_start >= FIRST_MERGE);
    assert(w->v->im_start - FIRST_MERGE <= N_MERGES_MAX);
    assert(w->v->im_start < w->v->think && w->v->think <= w->v->n_ids - N_TAGS);
    put_added(w);
    put_pipeline(w);
    put_model(w);
    return w->st;
}

static bt_status write_json_config(writer *w)
{
    bt_text_puts(&w->text,
                 "{\n  \"bos_token\": \"<|ifm|begin_of_text|>\",\n  \"clean_up_tokenization_spaces\": false,\n"
                 "  \"eos_token\": \"<|ifm|endoftext|>\",\n");
    bt_text_printf(&w->text, "  \"model_max_length\": %" PRIu64 ",\n", w->v->max_position);
    if (w->v->pad != BT_NONE) bt_text_puts(&w->text, "  \"pad_token\": \"<|ifm|pad|>\",\n");
    bt_text_puts(&w->text, "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
    flush(w);
    return w->st;
}

/* Lines of base64, a space and the rank. */
static bt_status write_ranks(writer *w)
{
    assert(w->v->n_ranks >= 256 && w->v->n_ranks - 256 <= N_MERGES_MAX && w->v->n_ranks < w->v->n_ids);
    for (uint32_t i = 0; i < w->v->n_ranks && w->st == BT_OK; i++) {
        uint8_t bytes[3];
        char line[8];
        size_t n_left, n = 1;
        if (i < 256)
            bytes[0] = w->byte_of[i];
        else
            n = merge_bytes(w, i - 256, bytes, &n_left);
        to_base64(bytes, n, line);
        bt_text_printf(&w->text, "%s %" PRIu32 "\n", line, i);
        if (i % 1024 == 0) flush(w);
    }
    flush(w);
    return w->st;
}

/* As the vendor does: the reserved ones between the named are not written down. */
static bt_status write_ranks_config(writer *w)
{
    bt_text *t = &w->text;
    bt_text_puts(t, "{\n  \"added_tokens_decoder\": {");
    for (const bt_named_id *s = w->v->special; s->name != NULL; s++) {
        bt_text_printf(t, "%s\n    \"%" PRIu32 "\": {\n      \"content\": ", s == w->v->special ? "" : ",", s->id);
        bt_text_json_string(t, s->name, strlen(s->name));
        bt_text_puts(t, ",\n      \"lstrip\": false,\n      \"normalized\": false,\n      \"rstrip\": false,\n"
                        "      \"single_word\": false,\n      \"special\": true\n    }");
    }
    bt_text_puts(t, "\n  },\n  \"bos_token\": \"[BOS]\",\n  \"clean_up_tokenization_spaces\": false,\n"
                    "  \"eos_token\": \"[EOS]\",\n");
    bt_text_printf(t,
                   "  \"model_max_length\": %" PRIu64 ",\n  \"pad_token\": \"[PAD]\",\n"
                   "  \"tokenizer_class\": \"TikTokenTokenizer\",\n  \"unk_token\": \"[UNK]\"\n}\n",
                   w->v->max_position);
    flush(w);
    return w->st;
}

/* Opens folder/name, has it written, and puts it in its place. */
static bt_status write_with(bt_status (*write)(writer *w), const char *folder, const char *name,
                            const bt_synth_vocab *v, bt_error *e)
{
    char *path = bt_path_join(folder, name);
    if (path == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a path");
    writer w = {.v = v, .path = path, .e = e};
    fill_bytes(&w);
    w.st = bt_output_open(path, &w.output, e);
    if (w.st == BT_OK && write(&w) == BT_OK)
        w.st = bt_output_commit(w.output, e);
    else if (w.output != NULL)
        bt_output_abandon(w.output);
    bt_text_free(&w.text);
    bt_free(path);
    return w.st;
}

bt_status bt_synth_tokenizer(const char *folder, const bt_synth_vocab *v, bt_error *e)
{
    bool is_k2 = v->scheme == BT_SCHEME_K2;
    if (v->scheme == BT_SCHEME_NONE) return BT_OK;
    bt_status st = is_k2 ? write_with(write_json, folder, "tokenizer.json", v, e)
                         : write_with(write_ranks, folder, "tiktoken.model", v, e);
    if (st != BT_OK) return st;
    return write_with(is_k2 ? write_json_config : write_ranks_config, folder, "tokenizer_config.json", v, e);
}

uint64_t bt_synth_tokenizer_bytes(const bt_synth_vocab *v)
{
    return v->scheme == BT_SCHEME_NONE ? 0 : (uint64_t)v->n_ids * LINE_BYTES_MAX + 65536;
}
