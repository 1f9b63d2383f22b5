/*
 * A tokenizer that works but knows no language: any text becomes ids and comes back, and the vocabulary has the size
 * and the named tokens of the real one. A merge joins bytes that stand side by side: all pairs first, those of common
 * letters before others (so that a vocabulary of 640 still shortens English), then each pair with a third byte. No
 * string occurs twice, so a released vocabulary of a quarter of a million fits.
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

static bt_status write_json(const char *path, const bt_synth_vocab *v, bt_error *e)
{
    writer w = {.v = v, .path = path, .e = e};
    fill_bytes(&w);
    w.st = bt_output_open(path, &w.output, e);
    if (w.st != BT_OK) return w.st;
    put_added(&w);
    put_pipeline(&w);
    put_model(&w);
    bt_text_free(&w.text);
    if (w.st == BT_OK) return bt_output_commit(w.output, e);
    bt_output_abandon(w.output);
    return w.st;
}

static bt_status write_config(const char *path, const bt_synth_vocab *v, bt_error *e)
{
    bt_text t = {NULL, 0, 0, false};
    bt_text_puts(&t, "{\n  \"bos_token\": \"<|ifm|begin_of_text|>\",\n  \"clean_up_tokenization_spaces\": false,\n"
                     "  \"eos_token\": \"<|ifm|endoftext|>\",\n");
    bt_text_printf(&t, "  \"model_max_length\": %" PRIu64 ",\n", v->max_position);
    if (v->pad != BT_NONE) bt_text_puts(&t, "  \"pad_token\": \"<|ifm|pad|>\",\n");
    bt_text_puts(&t, "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
    bt_output *o = NULL;
    bt_status st = bt_text_ok(&t) ? bt_output_open(path, &o, e) : bt_fail(e, BT_ERR_MEMORY, "%s: no memory", path);
    if (st == BT_OK) st = bt_output_write(o, t.data, t.size, e);
    bt_text_free(&t);
    if (st == BT_OK) return bt_output_commit(o, e);
    bt_output_abandon(o);
    return st;
}

bt_status bt_synth_tokenizer(const char *folder, const bt_synth_vocab *v, bt_error *e)
{
    assert(v->im_start >= FIRST_MERGE);
    assert(v->im_start - FIRST_MERGE <= N_PAIRS + N_PAIRS * THIRD_BYTES);
    assert(v->im_start < v->think && v->think <= v->n_ids - N_TAGS);
    char *json = bt_path_join(folder, "tokenizer.json"), *config = bt_path_join(folder, "tokenizer_config.json");
    bt_status st = BT_ERR_MEMORY;
    if (json == NULL || config == NULL)
        bt_fail(e, st, "no memory for a path");
    else
        st = write_json(json, v, e);
    if (st == BT_OK) st = write_config(config, v, e);
    bt_free(json);
    bt_free(config);
    return st;
}

uint64_t bt_synth_tokenizer_bytes(const bt_synth_vocab *v)
{
    return (uint64_t)v->n_ids * LINE_BYTES_MAX + 65536;
}
