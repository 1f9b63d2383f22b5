/*
 * Tokenizers from tiktoken.model: ids by a slow encoder of another make and by PyPI's tiktoken (tools/
 * tiktoken_reference.py made both stored files), the safety cuts at their borders, what is refused, segments, growth.
 * Cases C02, C23, C25, C26, C27, C29, C30.
 */
#include "tokenizer_unit.h"

#include <sys/stat.h>

#include "base/arena.h"
#include "text/bpe.h"
#include "text/cut.h"

#define OWN     "tests/data/tokenizers/tiktoken"
#define N_RANKS 1356u
#define N_NAMED 256u /* ids behind the ranks */

/* ---- tokenizers from parts --------------------------------------------------------------------------------------- */

static void add_base64(bt_text *out, const char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++) bits = bits << 8 | (i + k < n ? (uint8_t)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++) {
            char digit = i + k > n ? '=' : digits[bits >> (18 - 6 * k) & 63];
            bt_text_add(out, &digit, 1);
        }
    }
}

static void add_line(bt_text *out, const char *bytes, size_t n, unsigned rank)
{
    add_base64(out, bytes, n);
    bt_text_printf(out, " %u\n", rank);
}

/* All 256 bytes, each with its value as rank. */
static bt_text byte_lines(void)
{
    bt_text out = {0};
    for (unsigned b = 0; b < 256; b++) add_line(&out, &(char){(char)b}, 1, b);
    return out;
}

#define NAMED(id, text) "\"" #id "\":{\"content\":\"" text "\",\"special\":true}"
#define CONFIG(names)   "{\"added_tokens_decoder\":{" names "}}"

static bt_status open_parts(const char *lines, size_t size, const char *config, bt_tokenizer **t, bt_error *e)
{
    *t = NULL;
    *e = (bt_error){.status = BT_OK};
    return bt_tokenizer_open_tiktoken(lines, size, config, strlen(config), t, e);
}

/* The bytes and `more` (lines from rank 256 on), with `config`. */
static bt_tokenizer *build(const char *more, const char *config)
{
    bt_text lines = byte_lines();
    bt_tokenizer *t;
    bt_error e;
    bt_text_puts(&lines, more);
    if (open_parts(lines.data, lines.size, config, &t, &e) != BT_OK) fail_msg("%s", e.message);
    bt_text_free(&lines);
    return t;
}

static void expect_refused(const char *lines, size_t size, const char *config, bt_status status, const char *named)
{
    bt_tokenizer *t;
    bt_error e;
    unit_expect_refusal(open_parts(lines, size, config, &t, &e), &e, status, named);
    assert_null(t);
}

static int32_t *encode(const bt_tokenizer *t, const char *text, size_t size, unsigned flags, size_t *n)
{
    int32_t *ids = NULL;
    bt_error e;
    if (bt_tokenizer_encode(t, text, size, flags, &ids, n, &e) != BT_OK) fail_msg("%s", e.message);
    return ids;
}

/* ---- stored cases ------------------------------------------------------------------------------------------------ */

static void test_own(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    bt_tokenizer *t = unit_tokenizer(OWN);
    const bt_json_node *all = unit_read_json(a, OWN, "expected.json"), *cases = unit_member(all, "cases");
    assert_true(cases->n_children > 300);
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next) {
        const bt_json_node *text = unit_member(c, "text"), *ids = unit_member(c, "ids");
        const bt_json_node *plain = bt_json_get(c, "plain_ids");
        if (plain == NULL) plain = ids;
        unit_expect_ids(t, text->text, text->size, BT_TEXT_SPECIAL, ids);
        unit_expect_ids(t, text->text, text->size, 0, plain);
        unit_expect_text(t, ids, BT_TEXT_SPECIAL, text->text, text->size);
        unit_expect_text(t, plain, 0, text->text, text->size);
    }
    assert_int_equal(bt_tokenizer_n_vocab(t), N_RANKS + N_NAMED);
    assert_int_equal(unit_integer(unit_member(all, "n_vocab")), N_RANKS + N_NAMED);
    assert_string_equal(bt_tokenizer_file(t), "tiktoken.model");
    bt_tokenizer_close(t);
    bt_arena_free(a);
}

static void check_fixture(const bt_tokenizer *t, const char *folder, const char *name, unsigned flags)
{
    bt_arena *a = bt_arena_new();
    const bt_json_node *cases = unit_member(unit_read_json(a, folder, name), "cases");
    assert_true(cases->n_children > 0);
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next) {
        const bt_json_node *text = unit_member(c, "text"), *ids = unit_member(c, "ids");
        unit_expect_ids(t, text->text, text->size, flags, ids);
        unit_expect_text(t, ids, BT_TEXT_SPECIAL, text->text, text->size);
    }
    bt_arena_free(a);
}

static void test_fixture_k3(void **state)
{
    (void)state;
    const char *root = unit_fixtures();
    char folder[4200];
    if (root == NULL) skip();
    (void)snprintf(folder, sizeof folder, "%s/tokenizers/k3", root);
    bt_tokenizer *t = unit_tokenizer(folder);
    check_fixture(t, folder, "expected.json", 0);
    check_fixture(t, folder, "expected_specials.json", BT_TEXT_SPECIAL);
    assert_int_equal(bt_tokenizer_n_vocab(t), 30256);
    assert_int_equal(bt_tokenizer_find(t, "<|end_of_msg|>"), 30002);
    bt_tokenizer_close(t);
}

/* Every rank stands for the bytes of its line, whether they are UTF-8 or not. */
static void test_every_token(void **state)
{
    (void)state;
    bt_tokenizer *t = unit_tokenizer(OWN);
    bt_text lines = {0};
    char *file;
    size_t size;
    bt_error e;
    for (unsigned id = 0; id < N_RANKS; id++) {
        const char *bytes;
        assert_int_equal(bt_tokenizer_text(t, (int32_t)id, 0, &bytes, &size, &e), BT_OK);
        add_line(&lines, bytes, size, id);
    }
    assert_int_equal(bt_read_file(OWN "/tiktoken.model", 1 << 20, &file, &size, &e), BT_OK);
    assert_int_equal(size, lines.size);
    assert_memory_equal(file, lines.data, size);
    bt_free(file);
    bt_text_free(&lines);
    bt_tokenizer_close(t);
}

/* ---- merging by rank --------------------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 8;
}

static size_t random_letters(char *out, size_t most, uint32_t *random)
{
    size_t n = 1 + next_random(random) % most;
    for (size_t i = 0; i < n; i++) out[i] = (char)('a' + next_random(random) % 3);
    return n;
}

/* 'a', 'b', 'c' and any strings of them: neither what a token's halves are nor the ranks' order mean anything. */
static void random_vocab(bt_vocab *v, size_t n, uint32_t *random)
{
    bt_error e;
    char key[8];
    v->by_rank = true;
    for (size_t i = 0; i < n + 3; i++) {
        size_t size = 1;
        key[0] = (char)('a' + i);
        if (i >= 3) size = random_letters(key, sizeof key, random);
        bool known = false;
        for (size_t k = 0; k < v->n_keys; k++)
            known |= v->keys[k].size == size && memcmp(v->keys[k].key, key, size) == 0;
        if (known) continue;
        assert_int_equal(bt_vocab_add_key(v, key, size, &e), BT_OK);
    }
    for (size_t k = 0; k < v->n_keys; k++) v->keys[k].id = (int32_t)((k + n) % v->n_keys);
    assert_int_equal(bt_vocab_index(v, &e), BT_OK);
    assert_int_equal(bt_vocab_finish(v, -1, &e), BT_OK);
}

/* The definition: of all neighbours that make a token together, those of lowest rank merge, the leftmost of them. */
static size_t merge_slowly(const bt_vocab *v, const char *text, size_t n, int32_t *ids)
{
    size_t begin[64], n_parts = n;
    for (size_t i = 0; i <= n; i++) begin[i] = i;
    for (;;) {
        int32_t best = INT32_MAX;
        size_t best_at = 0;
        for (size_t i = 0; i + 1 < n_parts; i++) {
            int32_t rank = bt_vocab_find(v, text + begin[i], begin[i + 2] - begin[i]);
            if (rank < 0 || rank >= best) continue;
            best = rank;
            best_at = i;
        }
        if (best == INT32_MAX) break;
        for (size_t i = best_at + 1; i < n_parts; i++) begin[i] = begin[i + 1];
        n_parts--;
    }
    for (size_t i = 0; i < n_parts; i++) ids[i] = bt_vocab_find(v, text + begin[i], begin[i + 1] - begin[i]);
    return n_parts;
}

static void test_same_as_definition(void **state)
{
    (void)state;
    uint32_t random = 5;
    bt_bpe bpe = {0};
    bt_ids got = {0};
    bt_error e;
    for (int round = 0; round < 400; round++) {
        bt_vocab v = {0};
        random_vocab(&v, (size_t)round % 60, &random);
        for (int k = 0; k < 20; k++) {
            char text[60];
            int32_t ids[60];
            size_t n = random_letters(text, sizeof text, &random);
            got.n = 0;
            assert_int_equal(bt_bpe_encode(&v, &bpe, text, n, &got, &e), BT_OK);
            size_t n_expected = merge_slowly(&v, text, n, ids);
            assert_int_equal(got.n, n_expected);
            assert_memory_equal(got.data, ids, n_expected * sizeof *ids);
        }
        bt_vocab_free(&v);
    }
    bt_bpe_free(&bpe);
    bt_free(got.data);
}

/* A piece that is a token is that token, reachable or not; a part of a piece must be reached. */
static void test_whole_pieces(void **state)
{
    (void)state;
    bt_text more = {0};
    add_line(&more, "qxj", 3, 256);
    bt_tokenizer *t = build(more.data, CONFIG(NAMED(257, "[BOS]")));
    unit_expect_listed(t, "qxj", 0, "256");
    unit_expect_listed(t, "qxjq", 0, "113 120 106 113");
    unit_expect_listed(t, "[BOS]qxj[BOS]", BT_TEXT_SPECIAL, "257 256 257");
    bt_tokenizer_close(t);
    bt_text_free(&more);
}

/* ---- cuts (C27) -------------------------------------------------------------------------------------------------- */

static uint64_t fnv1a(const int32_t *ids, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n * 4; i++) h = (h ^ ((uint32_t)ids[i / 4] >> 8 * (i % 4) & 0xff)) * 0x100000001b3u;
    return h;
}

static void test_cuts(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    bt_tokenizer *t = unit_tokenizer(OWN);
    const bt_json_node *cases = unit_member(unit_read_json(a, OWN, "expected_cuts.json"), "cases");
    assert_true(cases->n_children > 80);
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next) {
        bt_text text = {0}, said = {0};
        for (const bt_json_node *part = unit_member(c, "parts")->child; part != NULL; part = part->next) {
            int64_t n = unit_integer(part->child->next);
            for (int64_t i = 0; i < n; i++) bt_text_add(&text, part->child->text, part->child->size);
            bt_text_printf(&said, "%s x %d, ", part->child->text, (int)n);
        }
        size_t n;
        bool special = unit_member(c, "special")->kind == BT_JSON_TRUE;
        int32_t *ids = encode(t, text.data, text.size, special ? BT_TEXT_SPECIAL : 0, &n);
        char hash[20];
        (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fnv1a(ids, n));
        if (n != (size_t)unit_integer(unit_member(c, "n_ids")) || strcmp(hash, unit_member(c, "fnv1a")->text) != 0)
            fail_msg("%s gives %zu other ids", said.data, n);
        bt_free(ids);
        bt_text_free(&text);
        bt_text_free(&said);
    }
    bt_tokenizer_close(t);
    bt_arena_free(a);
}

/* Characters (of `text`, repeated n_chars times) in each part, 0 behind the last; `most` of them. */
static void expect_parts(const char *text, size_t n_chars, const size_t *expected)
{
    size_t size = strlen(text), at, n, i = 0, sum = 0;
    char *all = malloc(size * n_chars);
    assert_non_null(all);
    for (size_t k = 0; k < n_chars; k++) memcpy(all + k * size, text, size);
    bt_cutter c = {.text = all, .size = size * n_chars};
    for (; bt_cut_next(&c, &at, &n); i++) {
        assert_int_equal(at, sum);
        assert_int_equal(n, expected[i] * size);
        sum += n;
    }
    assert_int_equal(expected[i], 0);
    assert_int_equal(sum, size * n_chars);
    assert_int_equal(c.n_scanned, sum);
    free(all);
}

static void test_cut_borders(void **state)
{
    (void)state;
    static const char *const alike[] = {"a", " ", "\n", "字", "😀", "\x1c", "\xc2\x85", "\u00a0", "\u3000", "\u200b"};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        expect_parts(alike[i], 1, (const size_t[]){1, 0});
        expect_parts(alike[i], 24999, (const size_t[]){24999, 0});
        expect_parts(alike[i], 25000, (const size_t[]){25000, 0});
        expect_parts(alike[i], 25001, (const size_t[]){25000, 1, 0});
        expect_parts(alike[i], 50001, (const size_t[]){25000, 25000, 1, 0});
    }
    static const char *const mixed[] = {"a\x1c", "a\x1f", "a\xc2\x85", "字\u00a0", "a\u1680", "a\u2028", "😀\u3000"};
    for (size_t i = 0; i < sizeof mixed / sizeof *mixed; i++)
        expect_parts(mixed[i], 30000, (const size_t[]){30000, 0}); /* space and not, in turn */
    expect_parts("a\u200b", 12501, (const size_t[]){12500, 1, 0});
    expect_parts("a ", 200000, (const size_t[]){200000, 0}); /* 400,000 characters */
    expect_parts("a ", 400001, (const size_t[]){200000, 200000, 1, 0});
    expect_parts("é\u2003字 ", 100000, (const size_t[]){100000, 0}); /* not bytes, and no run */
    expect_parts("é\u2003字 ", 100001, (const size_t[]){100000, 1, 0});
    bt_cutter none = {.text = "", .size = 0};
    size_t at, n;
    assert_false(bt_cut_next(&none, &at, &n));
}

/* 399,999, 400,000 and 400,001 characters, without a run: a token that would reach over the border is not there. */
static void test_block_borders(void **state)
{
    (void)state;
    bt_tokenizer *t = build("", CONFIG(NAMED(256, "<|open|>")));
    size_t n_ids[3];
    for (size_t i = 0; i < 3; i++) {
        size_t before = 399991 + i;
        char *text = malloc(before + 8);
        assert_non_null(text);
        for (size_t k = 0; k < before; k++) text[k] = k % 2 == 0 ? 'a' : ' ';
        memcpy(text + before, "<|open|>", 8);
        bt_free(encode(t, text, before + 8, BT_TEXT_SPECIAL, &n_ids[i]));
        n_ids[i] -= before;
        free(text);
    }
    assert_int_equal(n_ids[0], 1);
    assert_int_equal(n_ids[1], 1);
    assert_int_equal(n_ids[2], 8);
    bt_tokenizer_close(t);
}

/* Only what a template wrote may be a control token, in whichever part it lies (C30). */
static void test_allowed_over_cuts(void **state)
{
    (void)state;
    bt_tokenizer *t = build("", CONFIG(NAMED(256, "<|open|>")));
    bt_text text = {0};
    bt_spans allowed = {0};
    bt_error e;
    for (size_t i = 0; i < 60000; i++) bt_text_puts(&text, i % 9999 == 7 ? "<|open|>" : "x");
    size_t n_found = 0, n_allowed = 0;
    for (size_t at = 0; at + 8 <= text.size; at++) { /* every second one, and one letter too few of the last */
        if (text.data[at] != '<' || n_found++ % 2 == 1) continue;
        assert_int_equal(bt_spans_add(&allowed, at, n_found == 5 ? 7 : 8, &e), BT_OK);
        n_allowed += n_found != 5;
    }
    assert_int_equal(n_found, 6);
    int32_t *ids = NULL;
    size_t n = 0, n_tokens = 0;
    assert_int_equal(bt_tokenizer_encode_allowed(t, text.data, text.size, &allowed, &ids, &n, &e), BT_OK);
    for (size_t i = 0; i < n; i++) n_tokens += ids[i] == 256;
    assert_int_equal(n_tokens, n_allowed);
    assert_int_equal(n, text.size - 7 * n_allowed);
    bt_free(ids);
    bt_free(allowed.data);
    bt_text_free(&text);
    bt_tokenizer_close(t);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

/* `parts` ends with NULL; one that begins with '!' is encoded with special tokens. */
static size_t expect_segments(const bt_tokenizer *t, const char *const *parts)
{
    bt_text all = {0};
    bt_text_segment segments[16];
    bt_ids expected = {0};
    bt_error e;
    size_t n_segments = 0, n = 0;
    bt_text_puts(&all, "");
    for (; parts[n_segments] != NULL; n_segments++) {
        bool special = parts[n_segments][0] == '!';
        const char *text = parts[n_segments] + special;
        segments[n_segments] = (bt_text_segment){.size = strlen(text), .flags = special ? BT_TEXT_SPECIAL : 0};
        bt_text_puts(&all, text);
        int32_t *ids = encode(t, text, strlen(text), segments[n_segments].flags, &n);
        for (size_t i = 0; i < n; i++) assert_int_equal(bt_ids_add(&expected, ids[i], &e), BT_OK);
        bt_free(ids);
    }
    int32_t *ids = NULL;
    assert_int_equal(bt_tokenizer_encode_segments(t, all.data, segments, n_segments, &ids, &n, &e), BT_OK);
    assert_non_null(ids);
    assert_int_equal(n, expected.n);
    if (n > 0) assert_memory_equal(ids, expected.data, n * sizeof *ids);
    bt_free(ids);
    bt_free(expected.data);
    bt_text_free(&all);
    return n;
}

static void test_segments(void **state)
{
    (void)state;
    bt_text more = {0};
    add_line(&more, ")\"", 2, 256);
    add_line(&more, "ab", 2, 257);
    bt_tokenizer *t = build(more.data, CONFIG(NAMED(258, "<|open|>") "," NAMED(259, "<|sep|>")));
    assert_int_equal(expect_segments(t, (const char *const[]){NULL}), 0);
    assert_int_equal(expect_segments(t, (const char *const[]){"", "!", "", NULL}), 0);
    size_t n = expect_segments(
        t, (const char *const[]){"!<|open|>", "call", " tool", "=\"", "f(x)", "\"", "!<|sep|>", "a", "b", NULL});
    assert_int_equal(n, 1 + 4 + 5 + 2 + 4 + 1 + 1 + 2); /* neither )" nor ab */
    unit_expect_listed(t, "f(x)\"ab", 0, "102 40 120 256 257");
    /* A marker that a message says stays text, even where it is a segment's whole text or is cut up over two. */
    assert_int_equal(expect_segments(t, (const char *const[]){"!<|open|>", "<|open|>", NULL}), 9);
    assert_int_equal(expect_segments(t, (const char *const[]){"!<|op", "!en|>", "é", NULL}), 10);
    int32_t *ids = NULL;
    bt_error e;
    bt_status st = bt_tokenizer_encode_segments(t, "a\xff", &(bt_text_segment){.size = 2}, 1, &ids, &n, &e);
    assert_int_equal(st, BT_ERR_USAGE);
    assert_null(ids);
    bt_tokenizer_close(t);
    bt_text_free(&more);
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

static void test_special(void **state)
{
    (void)state;
    bt_tokenizer *t = build("", "{\"added_tokens_decoder\":{\"300\":{\"content\":\"<tool>\",\"special\":false},"
                                "\"256\":{\"content\":\"[BOS]\",\"lstrip\":true,\"rstrip\":true,\"single_word\":true,"
                                "\"normalized\":true,\"special\":true}},\"x\":NaN,\"bos_token\":\"[BOS]\","
                                "\"add_bos_token\":true,\"additional_special_tokens\":[\"<|im_end|>\"],"
                                "\"tokenizer_class\":\"TikTokenTokenizer\"}");
    assert_string_equal(bt_tokenizer_warnings(t), "");
    assert_int_equal(bt_tokenizer_bos(t), -1); /* nothing is ever put before a text */
    assert_int_equal(bt_tokenizer_n_vocab(t), 512);
    assert_int_equal(bt_tokenizer_find(t, "[BOS]"), 256);
    assert_int_equal(bt_tokenizer_find(t, "<|reserved_token_257|>"), 257);
    assert_int_equal(bt_tokenizer_find(t, "<|reserved_token_256|>"), -1);
    assert_int_equal(bt_tokenizer_find(t, "<|reserved_token_511|>"), 511);
    assert_int_equal(bt_tokenizer_find(t, "<|im_end|>"), -1); /* a name without an id */
    for (int32_t id = -1; id <= 512; id++) assert_int_equal(bt_tokenizer_is_added(t, id), id >= 256 && id < 512);
    /* The flags about white space mean nothing to the vendor's encoder. */
    unit_expect_listed(t, "a [BOS] b[BOS]c", BT_TEXT_SPECIAL, "97 32 256 32 98 256 99");
    unit_expect_listed(t, "<|reserved_token_511|><tool>", BT_TEXT_SPECIAL, "511 300");
    char *text;
    size_t size;
    bt_error e;
    static const int32_t ids[] = {97, 256, 300, 511, 98};
    assert_int_equal(bt_tokenizer_decode(t, ids, 5, 0, &text, &size, &e), BT_OK);
    assert_string_equal(text, "a<tool>b");
    bt_free(text);
    assert_int_equal(bt_tokenizer_decode(t, ids, 5, BT_TEXT_SPECIAL, &text, &size, &e), BT_OK);
    assert_string_equal(text, "a[BOS]<tool><|reserved_token_511|>b");
    bt_free(text);
    assert_int_equal(bt_tokenizer_decode(t, (const int32_t[]){512}, 1, 0, &text, &size, &e), BT_ERR_USAGE);
    bt_tokenizer_close(t);
}

/* Ids that a library invents for names of an older model lie behind the embedding's last row. */
static void test_beyond_the_last_id(void **state)
{
    (void)state;
    bt_tokenizer *t = build("", CONFIG(NAMED(512, "<|im_end|>") "," NAMED(256, "[BOS]") "," NAMED(
                                    511, "[PAD]") "," NAMED(18446744073709551615, "x")));
    assert_non_null(strstr(bt_tokenizer_warnings(t), "\"<|im_end|>\" (512)"));
    assert_non_null(strstr(bt_tokenizer_warnings(t), "511"));
    assert_non_null(strstr(bt_tokenizer_warnings(t), "others"));
    assert_int_equal(bt_tokenizer_n_vocab(t), 512);
    assert_int_equal(bt_tokenizer_find(t, "<|im_end|>"), -1);
    unit_expect_listed(t, "x[PAD]", BT_TEXT_SPECIAL, "120 511");
    bt_tokenizer_close(t);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

#define FINE CONFIG(NAMED(256, "[BOS]"))

static void test_config_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        bt_status status;
        const char *named;
    } refused[] = {
        {"", BT_ERR_FORMAT, "tokenizer_config.json"},
        {"[]", BT_ERR_FORMAT, "object"},
        {"{}", BT_ERR_FORMAT, "added_tokens_decoder"},
        {"{\"added_tokens_decoder\":[]}", BT_ERR_FORMAT, "added_tokens_decoder"},
        {"{\"added_tokens_decoder\":null}", BT_ERR_FORMAT, "added_tokens_decoder"},
        {CONFIG(""), BT_ERR_FORMAT, "added_tokens_decoder"},
        {CONFIG(NAMED(x, "[BOS]")), BT_ERR_FORMAT, "\"x\" is no id"},
        {CONFIG(NAMED(-1, "[BOS]")), BT_ERR_FORMAT, "\"-1\" is no id"},
        {CONFIG("\"256\":\"[BOS]\""), BT_ERR_FORMAT, "content"},
        {CONFIG("\"256\":{\"content\":7}"), BT_ERR_FORMAT, "content"},
        {CONFIG(NAMED(256, "")), BT_ERR_FORMAT, "content"},
        {CONFIG("\"256\":{\"content\":\"a\",\"special\":1}"), BT_ERR_FORMAT, "special"},
        {CONFIG(NAMED(256, "[BOS]") "," NAMED(256, "[EOS]")), BT_ERR_FORMAT, "256"},
        {CONFIG(NAMED(256, "[BOS]") "," NAMED(257, "[BOS]")), BT_ERR_FORMAT, "[BOS]"},
        {CONFIG(NAMED(256, "<|reserved_token_257|>")), BT_ERR_FORMAT, "<|reserved_token_257|>"},
        {CONFIG(NAMED(256, "a")), BT_ERR_FORMAT, "\"a\""}, /* which is a rank's text */
        {CONFIG(NAMED(97, "a") "," NAMED(256, "[BOS]")), BT_ERR_FORMAT, "rank"},
        {CONFIG(NAMED(257, "[BOS]")), BT_ERR_FORMAT, "cut off"},
        {CONFIG(NAMED(999, "[BOS]")), BT_ERR_FORMAT, "cut off"},
        {"{\"added_tokens_decoder\":{" NAMED(256, "[BOS]") "},\"tokenizer_class\":\"OtherTokenizer\"}",
         BT_ERR_UNSUPPORTED, "OtherTokenizer"},
        {"{\"added_tokens_decoder\":{" NAMED(256, "[BOS]") "},\"tokenizer_class\":7}", BT_ERR_FORMAT, "string"},
        {"{\"\xff\":1}", BT_ERR_FORMAT, "UTF-8"},
        {"<!DOCTYPE html>", BT_ERR_FORMAT, "web page"},
    };
    bt_text lines = byte_lines();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        expect_refused(lines.data, lines.size, refused[i].config, refused[i].status, refused[i].named);
    }
    bt_text_free(&lines);
}

static void test_lines_refused(void **state)
{
    (void)state;
    static const struct {
        const char *more; /* behind the 256 bytes */
        const char *named;
    } refused[] = {
        {"YWI=", "line 257"},
        {"YWI= ", "line 257"},
        {"YWI=256", "line 257"},
        {" 256", "line 257"},
        {"YWI 256", "line 257"},
        {"YW= 256", "line 257"},
        {"YWI= x", "rank"},
        {"YWI= -1", "rank"},
        {"YWI= 256 ", "rank"},
        {"YWI=  256", "rank"},
        {"YWI= 0256", "rank"},
        {"YWI= 99999999999999999999", "rank"},
        {"YWI= 4294967552", "rank"},
        {"YWJ= 256", "base64"}, /* bits beyond the last byte */
        {"Y=I= 256", "base64"},
        {"==== 256", "base64"},
        {"YW I= 256", "base64"},
        {"YW\tI= 256", "base64"},
        {"YWI=\r 256", "base64"},
        {"YW-_ 256", "base64"},
        {"Y\xc3\xa9== 256", "base64"},
        {"YWI= 255\n", "rank 255 is given to two"},
        {"YWI= 257\n", "the rank 256"},
        {"YQ== 256\n", "same token"},
    };
    bt_text lines = byte_lines();
    size_t size = lines.size;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        bt_text_puts(&lines, refused[i].more);
        expect_refused(lines.data, lines.size, FINE, BT_ERR_FORMAT, refused[i].named);
        lines.size = size;
    }
    bt_text_add(&lines, "YW\0= 256\n", 9);
    expect_refused(lines.data, lines.size, FINE, BT_ERR_FORMAT, "line 257");
    bt_text_free(&lines);
    expect_refused("", 0, FINE, BT_ERR_FORMAT, "no token");
    expect_refused("\n\r\n\n", 4, FINE, BT_ERR_FORMAT, "no token");
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2795286\n";
    expect_refused(pointer, sizeof pointer - 1, FINE, BT_ERR_FORMAT, "LFS");
}

/* The x of which x ^ x >> 32 is v. */
static uint64_t unshifted(uint64_t v)
{
    return v ^ v >> 32;
}

/* The number whose product with odd c is 1 (mod 2^64). */
static uint64_t reciprocal(uint64_t c)
{
    uint64_t x = c;
    for (int i = 0; i < 6; i++) x *= 2 - c * x;
    return x;
}

/* n tokens of eight bytes with hashes step, 2 step, .. (vocab.c, hash_text undone). */
static void expect_crowded(uint64_t n, uint64_t step)
{
    bt_text lines = {0};
    for (uint64_t i = 1; i <= n; i++) {
        uint64_t word = unshifted(i * step) * reciprocal(0xff51afd7ed558ccdu);
        word = unshifted(word) * reciprocal(0x9e3779b97f4a7c15u) ^ 8;
        char bytes[8];
        memcpy(bytes, &word, 8);
        add_line(&lines, bytes, 8, (unsigned)i - 1);
    }
    expect_refused(lines.data, lines.size, "{}", BT_ERR_FORMAT, "tokens are chosen so that looking them up never ends");
    bt_text_free(&lines);
}

/* All at one place of the hash table, so that filling it would take n^2 steps (but no run is too long); or each at the
 * next place, without a step, so that a lookup in vain would walk over all of them. */
static void test_colliding_tokens(void **state)
{
    (void)state;
    expect_crowded(2000, (uint64_t)1 << 40);
    expect_crowded(8192, 1);
}

/* As many pairs (left, "a") at each of the first places of the table of merges. With "a" as id 0 places are every
 * eighth slot (bt_pair_hash). */
static void expect_crowded_merges(size_t n_places, size_t n_each)
{
    bt_vocab v = {0};
    bt_error e;
    char key[8] = "a";
    const size_t n = n_places * n_each;
    size_t n_slots = 16, n_at[1024] = {0};
    while (n_slots - n_slots / 3 < n) n_slots *= 2; /* as vocab.c does */
    assert_int_equal(bt_vocab_add_key(&v, key, 1, &e), BT_OK);
    v.keys[0].id = 0;
    int32_t id = 1;
    for (size_t i = 0; i < n; id++) {
        const size_t place = (size_t)bt_pair_hash((uint64_t)id << 32) % n_slots / 8;
        if (place >= n_places || n_at[place] == n_each) continue;
        n_at[place]++;
        const size_t size = (size_t)snprintf(key, sizeof key, "%05zua", i); /* 00001 and 00001a: one merge each */
        assert_int_equal(bt_vocab_add_key(&v, key, size - 1, &e), BT_OK);
        v.keys[v.n_keys - 1].id = id;
        assert_int_equal(bt_vocab_add_key(&v, key, size, &e), BT_OK);
        v.keys[v.n_keys - 1].id = INT32_MAX - (int32_t)i;
        i++;
    }
    assert_int_equal(bt_vocab_index(&v, &e), BT_OK);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(key, sizeof key, "%05zu", i);
        assert_int_equal(bt_vocab_add_merge(&v, key, 5, "a", 1, &e), BT_OK);
    }
    unit_expect_refusal(bt_vocab_finish(&v, -1, &e), &e, BT_ERR_FORMAT,
                        "merges are chosen so that looking them up never ends");
    bt_vocab_free(&v);
}

static void test_colliding_merges(void **state)
{
    (void)state;
    expect_crowded_merges(1, 2000);
    expect_crowded_merges(625, 8);
}

static void test_missing_bytes(void **state)
{
    (void)state;
    for (unsigned missing = 0; missing < 256; missing += 51) {
        char named[32];
        bt_text lines = {0};
        for (unsigned b = 0, rank = 0; b < 256; b++) {
            if (b != missing) add_line(&lines, &(char){(char)b}, 1, rank++);
        }
        (void)snprintf(named, sizeof named, "byte 0x%02x", missing);
        expect_refused(lines.data, lines.size, CONFIG(NAMED(255, "[BOS]")), BT_ERR_FORMAT, named);
        bt_text_free(&lines);
    }
}

static void test_long_lines(void **state)
{
    (void)state;
    bt_text lines = byte_lines();
    char *token = calloc(BT_KEY_BYTES_MAX + 4, 1);
    assert_non_null(token);
    size_t size = lines.size;
    for (size_t n = BT_KEY_BYTES_MAX - 3; n <= BT_KEY_BYTES_MAX + 4; n++) {
        bt_tokenizer *t;
        bt_error e;
        add_line(&lines, token, n, 256);
        bt_status st = open_parts(lines.data, lines.size, CONFIG(NAMED(257, "[BOS]")), &t, &e);
        if (st != (n <= BT_KEY_BYTES_MAX ? BT_OK : BT_ERR_FORMAT)) fail_msg("%zu bytes: %s", n, e.message);
        bt_tokenizer_close(t);
        lines.size = size;
    }
    char *endless = malloc(1 << 22);
    assert_non_null(endless);
    memset(endless, 'A', 1 << 22);
    bt_text_add(&lines, endless, 1 << 22);
    expect_refused(lines.data, lines.size, FINE, BT_ERR_FORMAT, "line 257");
    free(endless);
    free(token);
    bt_text_free(&lines);
}

/* Lines may end as on Windows, come in any order, with empty ones between, the last without its end. */
static void test_harmless_lines(void **state)
{
    (void)state;
    bt_text lines = {0};
    bt_tokenizer *t;
    bt_error e;
    bt_text_puts(&lines, "\n\nYWI= 256\r\n\r\n");
    for (unsigned b = 256; b-- > 0;) {
        add_base64(&lines, &(char){(char)b}, 1);
        bt_text_printf(&lines, " %u%s", b, b == 0 ? "" : b % 2 == 0 ? "\r\n" : "\n\n");
    }
    if (open_parts(lines.data, lines.size, CONFIG(NAMED(257, "[BOS]")), &t, &e) != BT_OK) fail_msg("%s", e.message);
    unit_expect_listed(t, "cab", 0, "99 256");
    bt_tokenizer_close(t);
    bt_text_free(&lines);
}

/* ---- folders (C26) ----------------------------------------------------------------------------------------------- */

static void test_folder(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2795286\n";
    char *folder = unit_make_folder(), path[4400];
    bt_text lines = byte_lines();
    bt_tokenizer *t = NULL;
    bt_error e;
    unit_write_file(folder, "tiktoken.model", lines.data, lines.size);
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_ERR_IO); /* it names the special tokens: must be there */
    assert_non_null(strstr(e.message, "tokenizer_config.json"));
    unit_write_file(folder, "tokenizer_config.json", FINE, sizeof FINE - 1);
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_OK);
    assert_string_equal(bt_tokenizer_warnings(t), "");
    bt_tokenizer_close(t);
    unit_write_file(folder, "tokenizer.json", "{,", 2); /* a conversion beside it is not even read */
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_OK);
    (void)snprintf(path, sizeof path, "%s: tiktoken.model is the tokenizer; the tokenizer.json beside it is not used\n",
                   folder);
    assert_string_equal(bt_tokenizer_warnings(t), path);
    assert_string_equal(bt_tokenizer_file(t), "tiktoken.model");
    bt_tokenizer_close(t);
    t = NULL;
    unit_write_file(folder, "tiktoken.model", pointer, sizeof pointer - 1);
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "LFS"));
    assert_non_null(strstr(e.message, folder));
    (void)snprintf(path, sizeof path, "%s/tiktoken.model", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, "leads nowhere"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, "tiktoken.model"));
    assert_null(t);
    bt_text_free(&lines);
    unit_remove_folder(folder);
    free(folder);
}

/* ---- growth (C23) ------------------------------------------------------------------------------------------------ */

static void test_growth(void **state)
{
    (void)state;
    bt_tokenizer *t = unit_tokenizer(OWN);
    static const char *const texts[] = {"a",  " ",      "1",      "^", "\n",    "字",      "e",   "\u0323",
                                        " a", "<|ope",  "AbC9+/", "A", "Aa",    "a\n",     " \n", "世a",
                                        "'s", "\u01c5", "a'S",    "ʰ", "^\r\n", "\xc2\x85"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        unit_expect_linear(t, texts[i], 12500, false);  /* below the cuts */
        unit_expect_linear(t, texts[i], 400000, false); /* over many of them */
    }
    bt_tokenizer_close(t);
}

/* Without cuts, as merging sees it: tokens of a, aa, aaa ... up to 64, none of them the way to the next alone. */
static uint64_t count_merges(size_t n)
{
    bt_vocab v = {.by_rank = true};
    bt_error e;
    char key[64];
    memset(key, 'a', sizeof key);
    for (size_t i = 0; i < sizeof key; i++) {
        assert_int_equal(bt_vocab_add_key(&v, key, i + 1, &e), BT_OK);
        v.keys[i].id = (int32_t)(sizeof key - 1 - i); /* the longer the better */
    }
    assert_int_equal(bt_vocab_index(&v, &e), BT_OK);
    return unit_merge_letters(&v, n, n / sizeof key);
}

static void test_merge_growth(void **state)
{
    (void)state;
    uint64_t before = count_merges(1 << 14);
    for (size_t log_n = 15; log_n <= 18; log_n++) {
        uint64_t steps = count_merges((size_t)1 << log_n);
        if (steps * 10 > before * 23) fail_msg("2^%zu letters: %llu steps", log_n, (unsigned long long)steps);
        assert_true(steps > (size_t)1 << log_n);
        before = steps;
    }
}

/* ---- threads and memory ------------------------------------------------------------------------------------------ */

static void test_shared_between_threads(void **state)
{
    (void)state;
    bt_tokenizer *t = unit_tokenizer(OWN);
    unit_expect_same_in_threads(t, "The glacier is a river of ice. <|open|>12345 e\u0301 字字");
    bt_tokenizer_close(t);
}

#ifdef BT_TEST_BUILD
typedef struct input {
    bt_text lines, text;
} input;

/* The last eight letters of the text are "[BOS] ab". */
static bt_status open_and_use(void *user, bt_error *e)
{
    const input *in = user;
    bt_tokenizer *t = NULL;
    int32_t *ids = NULL, *more = NULL;
    size_t n_ids = 0, n_more = 0, before = in->text.size - 8;
    bt_spans allowed = {.data = &(bt_span){.at = before, .size = 8}, .n = 1};
    bt_text_segment segments[] = {{.size = before}, {.size = 5, .flags = BT_TEXT_SPECIAL}, {.size = 3}};
    bt_status st = open_parts(in->lines.data, in->lines.size, CONFIG(NAMED(257, "[BOS]")), &t, e);
    if (st == BT_OK) st = bt_tokenizer_encode_allowed(t, in->text.data, in->text.size, &allowed, &ids, &n_ids, e);
    if (st == BT_OK) st = bt_tokenizer_encode_segments(t, in->text.data, segments, 3, &more, &n_more, e);
    if (st == BT_OK) {
        assert_int_equal(n_ids, n_more);
        assert_memory_equal(ids, more, n_ids * sizeof *ids);
    }
    bt_free(more);
    bt_free(ids);
    bt_tokenizer_close(t);
    return st;
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    input in = {.lines = byte_lines()};
    add_line(&in.lines, "ab", 2, 256);
    for (size_t i = 0; i < 25001; i++) bt_text_puts(&in.text, "ab");
    bt_text_puts(&in.text, "[BOS] ab");
    unit_fail_allocations(open_and_use, &in);
    bt_text_free(&in.lines);
    bt_text_free(&in.text);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_fixture_k3),
        cmocka_unit_test(test_every_token),
        cmocka_unit_test(test_same_as_definition),
        cmocka_unit_test(test_whole_pieces),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_cut_borders),
        cmocka_unit_test(test_block_borders),
        cmocka_unit_test(test_allowed_over_cuts),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_beyond_the_last_id),
        cmocka_unit_test(test_config_refused),
        cmocka_unit_test(test_lines_refused),
        cmocka_unit_test(test_colliding_tokens),
        cmocka_unit_test(test_colliding_merges),
        cmocka_unit_test(test_missing_bytes),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_harmless_lines),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_merge_growth),
        cmocka_unit_test(test_shared_between_threads),
#ifdef BT_TEST_BUILD
        cmocka_unit_test(test_memory_runs_out),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
