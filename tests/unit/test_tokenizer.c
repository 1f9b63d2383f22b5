/*
 * The tokenizer as a whole: ids and decodings against a slow encoder of another make (tiny), against Hugging Face's
 * library (confirmed.json, the published fixtures), what it refuses, and how its work grows. Cases C02, C21-C25, C28,
 * C29.
 */
#include "tokenizer_unit.h"

/* ---- tokenizers from parts --------------------------------------------------------------------------------------- */

typedef struct parts { /* JSON; NULL: the plain thing */
    const char *added, *normalizer, *pre_tokenizer, *post_processor, *decoder;
    const char *options; /* of the model, each with a comma behind it */
    const char *vocab;   /* after the 256 bytes, each with a comma before it; ids from 256 on */
    const char *merges;
    const char *members; /* of the file, each with a comma before it */
    bool merges_first;
} parts;

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"

#define NULL_OR(text, plain) ((text) != NULL ? (text) : (plain))

static bt_text compose(const parts *p)
{
    bt_text out = {0};
    const char *merges = NULL_OR(p->merges, "[]");
    bt_text_printf(&out, "{\"version\":\"1.0\",\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,",
                   NULL_OR(p->added, "[]"), NULL_OR(p->normalizer, "null"), NULL_OR(p->pre_tokenizer, BYTE_LEVEL));
    bt_text_printf(&out, "\"post_processor\":%s,\"decoder\":%s,\"model\":{%s", NULL_OR(p->post_processor, "null"),
                   NULL_OR(p->decoder, BYTE_LEVEL), NULL_OR(p->options, "\"type\":\"BPE\","));
    if (p->merges_first) bt_text_printf(&out, "\"merges\":%s,", merges);
    bt_text_puts(&out, "\"vocab\":{");
    unit_add_byte_vocab(&out);
    bt_text_printf(&out, "%s}", NULL_OR(p->vocab, ""));
    if (!p->merges_first) bt_text_printf(&out, ",\"merges\":%s", merges);
    bt_text_printf(&out, "}%s}", NULL_OR(p->members, ""));
    assert_true(bt_text_ok(&out));
    return out;
}

static bt_tokenizer *build(parts p)
{
    bt_text json = compose(&p);
    bt_tokenizer *t = unit_tokenizer_text(json.data, NULL);
    bt_text_free(&json);
    return t;
}

static void expect_refused(parts p, bt_status status, const char *named)
{
    bt_text json = compose(&p);
    bt_tokenizer *t = NULL;
    bt_error e;
    unit_expect_refusal(bt_tokenizer_open_text(json.data, json.size, NULL, 0, &t, &e), &e, status, named);
    assert_null(t);
    bt_text_free(&json);
}

/* ids: "1 2 3" */
static void expect(const bt_tokenizer *t, const char *text, const char *ids)
{
    unit_expect_listed(t, text, BT_TEXT_SPECIAL, ids);
}

/* ---- stored cases ------------------------------------------------------------------------------------------------ */

static void check_cases(const bt_tokenizer *t, const bt_json_node *cases)
{
    assert_true(cases->n_children > 0);
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next) {
        const bt_json_node *text = unit_member(c, "text"), *ids = unit_member(c, "ids");
        const bt_json_node *decoded = bt_json_get(c, "decoded"), *plain = bt_json_get(c, "plain_ids");
        const bt_json_node *unspecial = bt_json_get(c, "decoded_without_special");
        if (decoded == NULL) decoded = text;
        unit_expect_ids(t, text->text, text->size, BT_TEXT_SPECIAL, ids);
        unit_expect_text(t, ids, BT_TEXT_SPECIAL, decoded->text, decoded->size);
        if (plain != NULL) unit_expect_ids(t, text->text, text->size, 0, plain);
        if (unspecial != NULL) unit_expect_text(t, ids, 0, unspecial->text, unspecial->size);
    }
}

static void test_tiny(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    bt_tokenizer *t = unit_tokenizer(TINY);
    const bt_json_node *cases = unit_member(unit_read_json(a, TINY, "expected.json"), "cases");
    assert_true(cases->n_children > 250);
    check_cases(t, cases);
    assert_int_equal(bt_tokenizer_n_vocab(t), 701);
    assert_int_equal(bt_tokenizer_find(t, "<|ifm|begin_of_text|>"), 0);
    assert_int_equal(bt_tokenizer_find(t, "<|ifm|endoftext|>"), 1);
    assert_int_equal(bt_tokenizer_find(t, "</ifm|arg_value>"), 700);
    assert_int_equal(bt_tokenizer_find(t, "!"), 2);
    assert_int_equal(bt_tokenizer_find(t, "\n"), 200); /* as spec d lists bytes */
    assert_int_equal(bt_tokenizer_find(t, " "), 222);
    assert_int_equal(bt_tokenizer_find(t, "no such token"), -1);
    assert_true(bt_tokenizer_is_added(t, 0));
    assert_true(bt_tokenizer_is_added(t, 700));
    assert_false(bt_tokenizer_is_added(t, 2));
    assert_false(bt_tokenizer_is_added(t, 701));
    assert_false(bt_tokenizer_is_added(t, -1));
    assert_int_equal(bt_tokenizer_bos(t), -1); /* its config names a BOS, but does not ask for it */
    bt_tokenizer_close(t);
    bt_arena_free(a);
}

/* The merges of a stored tokenizer and the vocabulary that they need, in the order in which the maker gave ids. */
static void add_merges(const bt_json_node *group, bt_text *vocab, bt_text *merges)
{
    unsigned id = 256;
    bt_arena *a = bt_arena_new();
    bt_text keys = {0}; /* every key so far, each between newlines */
    bt_text_puts(&keys, "\n");
    bt_text_puts(merges, "[");
    const bt_json_node *m = unit_member(group, "merges")->child, *extra = unit_member(group, "extra")->child;
    while (m != NULL || extra != NULL) {
        char key[256];
        if (m != NULL) {
            bt_text_puts(merges, merges->size > 1 ? ",[" : "[");
            bt_text_json_string(merges, m->child->text, m->child->size);
            bt_text_puts(merges, ",");
            bt_text_json_string(merges, m->child->next->text, m->child->next->size);
            bt_text_puts(merges, "]");
            (void)snprintf(key, sizeof key, "\n%s%s\n", m->child->text, m->child->next->text);
            m = m->next;
        } else {
            (void)snprintf(key, sizeof key, "\n%s\n", extra->text);
            extra = extra->next;
        }
        if (strstr(keys.data, key) != NULL) continue;
        bt_text_puts(&keys, key + 1);
        bt_text_puts(vocab, ",");
        bt_text_json_string(vocab, key + 1, strlen(key) - 2);
        bt_text_printf(vocab, ":%u", id++);
    }
    bt_text_puts(merges, "]");
    bt_text_free(&keys);
    bt_arena_free(a);
}

static void test_confirmed(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    const bt_json_node *all = unit_read_json(a, "tests/data/tokenizers", "confirmed.json");
    assert_true(all->n_children == 60);
    for (const bt_json_node *group = all->child; group != NULL; group = group->next) {
        bt_text vocab = {0}, merges = {0};
        add_merges(group, &vocab, &merges);
        bool ignore = unit_member(group, "ignore_merges")->kind == BT_JSON_TRUE;
        bt_tokenizer *t = build((parts){.added = unit_member(group, "added_tokens")->text,
                                        .normalizer = unit_member(group, "normalizer")->text,
                                        .pre_tokenizer = unit_member(group, "pre_tokenizer")->text,
                                        .options = ignore ? "\"ignore_merges\":true," : "\"ignore_merges\":false,",
                                        .vocab = vocab.data,
                                        .merges = merges.data});
        if (unit_member(group, "cases")->n_children > 0) check_cases(t, unit_member(group, "cases"));
        bt_tokenizer_close(t);
        bt_text_free(&vocab);
        bt_text_free(&merges);
    }
    bt_arena_free(a);
}

static void check_fixture(const char *name, size_t n_vocab)
{
    const char *root = unit_fixtures();
    char folder[4200];
    if (root == NULL) skip();
    (void)snprintf(folder, sizeof folder, "%s/tokenizers/%s", root, name);
    bt_arena *a = bt_arena_new();
    bt_tokenizer *t = unit_tokenizer(folder);
    check_cases(t, unit_member(unit_read_json(a, folder, "expected.json"), "cases"));
    assert_int_equal(bt_tokenizer_n_vocab(t), n_vocab);
    bt_tokenizer_close(t);
    bt_arena_free(a);
}

static void test_fixture_k2(void **state)
{
    (void)state;
    check_fixture("k2", 24278);
}

static void test_fixture_k2_string_merges(void **state)
{
    (void)state;
    check_fixture("k2-string-merges", 24278);
}

static void test_fixture_qwen3(void **state)
{
    (void)state;
    check_fixture("qwen3", 151669);
}

/* ---- merges (C21, C22) ------------------------------------------------------------------------------------------- */

static void test_merge_forms(void **state)
{
    (void)state;
    static const char vocab[] = ",\"ab\":256,\"abc\":257";
    static const char *const forms[] = {"[[\"a\",\"b\"],[\"ab\",\"c\"]]", "[\"a b\",\"ab c\"]",
                                        "[\"a b\",[\"ab\",\"c\"]]"};
    for (size_t i = 0; i < 3; i++) {
        for (int first = 0; first < 2; first++) {
            bt_tokenizer *t = build((parts){.vocab = vocab, .merges = forms[i], .merges_first = first == 1});
            expect(t, "abcab", "257 256");
            bt_tokenizer_close(t);
        }
    }
    bt_tokenizer *t = build((parts){.vocab = vocab, .merges = "[]"});
    expect(t, "abc", "97 98 99");
    bt_tokenizer_close(t);
    /* A part with a space inside can be said as a pair only. Nothing reaches it, but the file is good. */
    t = build((parts){.vocab = ",\"a b\":256,\"a bc\":257", .merges = "[[\"a b\",\"c\"]]"});
    expect(t, "a bc", "97 32 98 99");
    bt_tokenizer_close(t);
    expect_refused((parts){.vocab = ",\"a b\":256,\"a bc\":257", .merges = "[\"a b c\"]"}, BT_ERR_FORMAT, "merge 0");
    expect_refused((parts){.vocab = vocab, .merges = "[\"a b\",\"b c\"]"}, BT_ERR_FORMAT, "\"bc\"");
    expect_refused((parts){.vocab = vocab, .merges = "[\"ac b\"]"}, BT_ERR_FORMAT, "\"ac\"");
    expect_refused((parts){.vocab = vocab, .merges = "[[\"a\"]]"}, BT_ERR_FORMAT, "merge");
    expect_refused((parts){.vocab = vocab, .merges = "[[\"a\",\"b\",\"c\"]]"}, BT_ERR_FORMAT, "merge");
    expect_refused((parts){.vocab = vocab, .merges = "[[\"a\",7]]"}, BT_ERR_FORMAT, "merge");
    expect_refused((parts){.vocab = vocab, .merges = "[7]"}, BT_ERR_FORMAT, "merge");
    expect_refused((parts){.vocab = vocab, .merges = "{}"}, BT_ERR_FORMAT, "merges");
    expect_refused((parts){.vocab = ",\"\":256", .merges = "[[\"\",\"a\"]]"}, BT_ERR_FORMAT, "empty");
}

static void test_ignore_merges(void **state)
{
    (void)state;
    static const char vocab[] = ",\"ĠVi\":256,\"Ġvi\":257,\"vi\":258,\"abcd\":259";
    static const char pre[] =
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}";
    bt_tokenizer *t = build((parts){.options = "\"ignore_merges\":true,", .vocab = vocab, .pre_tokenizer = pre});
    expect(t, "abcd Vi", "259 256");
    expect(t, "abcde", "97 98 99 100 101"); /* not a token as a whole */
    bt_tokenizer_close(t);
    t = build((parts){.vocab = vocab, .pre_tokenizer = pre});
    expect(t, "abcd Vi", "97 98 99 100 32 86 105");
    bt_tokenizer_close(t);
}

/* ---- added tokens (C24) ------------------------------------------------------------------------------------------ */

#define ADDED(id, text, word, left, right, normalized)                                                                 \
    "{\"id\":" #id ",\"content\":\"" text "\",\"single_word\":" #word ",\"lstrip\":" #left ",\"rstrip\":" #right       \
    ",\"normalized\":" #normalized ",\"special\":false}"

static void test_added_tokens(void **state)
{
    (void)state;
    bt_tokenizer *t = build((parts){.added = "[" ADDED(256, "<a", false, false, false,
                                                       false) "," ADDED(257, "<a>", false, false, false, false) "]"});
    expect(t, "<a><a<a>>", "257 256 257 62"); /* the longest match */
    expect(t, "<ab", "256 98");
    bt_tokenizer_close(t);
    t = build((parts){.added = "[" ADDED(256, "x y", false, true, true, false) "]"});
    expect(t, "a \\n x y  \\tb", "97 32 92 110 256 92 116 98");
    expect(t, "x yx y", "256 256");
    bt_tokenizer_close(t);
    t = build((parts){.added = "[" ADDED(256, "ab", true, false, false, false) "]"});
    expect(t, "ab cab ab1 .ab.", "256 32 99 97 98 32 97 98 49 32 46 256 46");
    bt_tokenizer_close(t);
    /* e + U+0301 becomes one character in NFC: a token of the normalised kind is found in either form. */
    t = build(
        (parts){.added = "[" ADDED(256, "e\u0301", false, false, false, true) "]", .normalizer = "{\"type\":\"NFC\"}"});
    expect(t, "e\u0301\u00e9", "256 256");
    bt_tokenizer_close(t);
    t = build((parts){.added = "[" ADDED(256, "e\u0301", false, false, false, false) "]",
                      .normalizer = "{\"type\":\"NFC\"}"});
    expect(t, "e\u0301\u00e9", "256 195 169");
    bt_tokenizer_close(t);
    /* White space that rstrip took is there for a token of it, unless that strips to its own left. */
    t = build((parts){
        .added = "[" ADDED(256, "<a>", false, false, true, false) "," ADDED(257, " ", false, true, false, false) "]"});
    expect(t, "<a> x", "256 120");
    bt_tokenizer_close(t);
    t = build((parts){
        .added = "[" ADDED(256, "<a>", false, false, true, false) "," ADDED(257, " ", false, false, false, false) "]"});
    expect(t, "<a>  x", "256 257 257 120");
    bt_tokenizer_close(t);
    t = build((parts){.added = "[" ADDED(256, " ", false, true, true, false) "]"});
    expect(t, "y  w", "121 256 119");
    bt_tokenizer_close(t);
    t = build((parts){.added = "[" ADDED(300, "<x>", false, false, false, false) "]"}); /* ids with a hole */
    expect(t, "<x>", "300");
    assert_int_equal(bt_tokenizer_n_vocab(t), 301);
    char *text;
    size_t size;
    bt_error e;
    assert_int_equal(bt_tokenizer_decode(t, (int32_t[]){97, 299}, 2, 0, &text, &size, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "299"));
    bt_tokenizer_close(t);
}

static void test_added_refused(void **state)
{
    (void)state;
    expect_refused((parts){.added = "[" ADDED(256, "a", false, false, false, false) "]"}, BT_ERR_FORMAT, "\"a\"");
    expect_refused((parts){.added = "[" ADDED(97, "b", false, false, false, false) "]"}, BT_ERR_FORMAT, "\"b\"");
    expect_refused((parts){.added = "[" ADDED(97, "zz", false, false, false, false) "]"}, BT_ERR_FORMAT, "\"zz\"");
    expect_refused((parts){.added = "[" ADDED(256, "", false, false, false, false) "]"}, BT_ERR_FORMAT, "256");
    expect_refused((parts){.added = "[" ADDED(256, "p", false, false, false, false) "]", .vocab = ",\"q\":256"},
                   BT_ERR_FORMAT, "256");
    expect_refused((parts){.added = "[" ADDED(256, "xx", false, false, false, false) "," ADDED(256, "yy", false, false,
                                                                                               false, false) "]"},
                   BT_ERR_FORMAT, "\"yy\"");
    expect_refused((parts){.added = "[" ADDED(256, "xx", false, false, false, false) "," ADDED(257, "xx", false, false,
                                                                                               false, false) "]"},
                   BT_ERR_FORMAT, "\"xx\"");
    expect_refused((parts){.added = "[" ADDED(2147483648, "x", false, false, false, false) "]"}, BT_ERR_FORMAT,
                   "2147483647");
    expect_refused((parts){.added = "[" ADDED(2147483647, "xx", false, false, false, false) "]"}, BT_ERR_FORMAT,
                   "proportion");
    expect_refused((parts){.added = "[" ADDED(-1, "x", false, false, false, false) "]"}, BT_ERR_FORMAT, "id");
    expect_refused((parts){.added = "[" ADDED(256, "x", 1, false, false, false) "]"}, BT_ERR_FORMAT, "single_word");
    expect_refused((parts){.added = "[{\"id\":256,\"content\":\"x\"}]"}, BT_ERR_FORMAT, "single_word");
    expect_refused((parts){.added = "[{\"id\":256,\"content\":\"x\",\"new\":1}]"}, BT_ERR_UNSUPPORTED, "new");
    expect_refused((parts){.added = "[7]"}, BT_ERR_FORMAT, "added token");
    expect_refused((parts){.added = "{}"}, BT_ERR_FORMAT, "added_tokens");
}

/* ---- what is refused (C25: never approximated) ------------------------------------------------------------------- */

#define SPLIT(pattern, behavior)                                                                                       \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior   \
    "\",\"invert\":false}," BYTE_LEVEL "]}"

static void test_unknown_parts(void **state)
{
    (void)state;
    static const struct {
        parts p;
        const char *named;
    } unsupported[] = {
        {{.options = "\"type\":\"Unigram\","}, "Unigram"},
        {{.options = "\"dropout\":0.1,"}, "dropout"},
        {{.options = "\"unk_token\":\"<unk>\","}, "unk_token"},
        {{.options = "\"continuing_subword_prefix\":\"##\","}, "continuing_subword_prefix"},
        {{.options = "\"end_of_word_suffix\":\"</w>\","}, "end_of_word_suffix"},
        {{.options = "\"byte_fallback\":true,"}, "byte_fallback"},
        {{.options = "\"new_option\":1,"}, "new_option"},
        {{.members = ",\"new_member\":1"}, "new_member"},
        {{.normalizer = "{\"type\":\"NFKC\"}"}, "NFKC"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}"},
         "Lowercase"},
        {{.pre_tokenizer = "null"}, "ByteLevel"},
        {{.pre_tokenizer = "{\"type\":\"Whitespace\"}"}, "Whitespace"},
        {{.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[]}"}, "ByteLevel"},
        {{.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL ",{\"type\":\"Digits\"}]}"},
         "Digits"},
        {{.pre_tokenizer = SPLIT("{\"Regex\":\"a&&[b]\"}", "Sometimes")}, "Sometimes"},
        {{.pre_tokenizer = SPLIT("{\"Regex\":\"[\\\\p{L}&&\\\\p{Lu}]\"}", "Isolated")}, "&&"},
        {{.pre_tokenizer = SPLIT("{\"Regex\":\"\\\\bx\"}", "Isolated")}, "split pattern"},
        {{.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"new\":1}"}, "new"},
        {{.post_processor = "{\"type\":\"RobertaProcessing\"}"}, "RobertaProcessing"},
        {{.decoder = "{\"type\":\"Metaspace\"}"}, "Metaspace"},
        {{.decoder = "null"}, "decoder"},
        {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[" BYTE_LEVEL ",{\"type\":\"Fuse\"}]}"}, "decoder"},
    };
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++) {
        expect_refused(unsupported[i].p, BT_ERR_UNSUPPORTED, unsupported[i].named);
    }
    static const struct {
        parts p;
        const char *named;
    } broken[] = {
        {{.options = "\"type\":7,"}, "type"},
        {{.options = "\"ignore_merges\":1,"}, "ignore_merges"},
        {{.vocab = ",\"a\":300"}, "twice"},
        {{.vocab = ",\"zz\":97"}, "97"},
        {{.vocab = ",\"zz\":-1"}, "zz"},
        {{.vocab = ",\"zz\":2147483648"}, "zz"},
        {{.vocab = ",\"zz\":1.0"}, "zz"},
        {{.vocab = ",\"zz\":\"1\""}, "zz"},
        {{.vocab = ",\"zz\":2147483647"}, "proportion"},
        {{.normalizer = "7"}, "normalizer"},
        {{.normalizer = "{}"}, "type"},
        {{.pre_tokenizer = SPLIT("\"x\"", "Isolated")}, "pattern"},
        {{.pre_tokenizer = SPLIT("{\"Regex\":\"x\",\"String\":\"x\"}", "Isolated")}, "pattern"},
        {{.members = ",\"model\":{}"}, "model"},
        {{.members = ",\"normalizer\":null"}, "normalizer"},
        {{.members = "]"}, "line 1"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        expect_refused(broken[i].p, BT_ERR_FORMAT, broken[i].named);
    }
}

static void test_harmless_options(void **state)
{
    (void)state;
    /* As published files write them; a file without a type is BPE if it looks like it (GPT-2's). */
    bt_tokenizer *t = build((parts){
        .options = "\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":null,"
                   "\"fuse_unk\":true,\"byte_fallback\":false,",
        .members = ",\"truncation\":{\"max_length\":3},\"padding\":{}",
        .decoder = "{\"type\":\"Sequence\",\"decoders\":[" BYTE_LEVEL "]}"});
    expect(t, "abcd", "97 98 99 100");
    bt_tokenizer_close(t);
}

static void test_files(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 11422654\n";
    char *folder = unit_make_folder();
    bt_tokenizer *t = NULL;
    bt_error e;
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, "tokenizer.json"));
    unit_write_file(folder, "tokenizer.json", pointer, sizeof pointer - 1);
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "LFS"));
    assert_non_null(strstr(e.message, folder));
    bt_text json = compose(&(parts){0});
    unit_write_file(folder, "tokenizer.json", json.data, json.size);
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_OK); /* no tokenizer_config.json is needed */
    bt_tokenizer_close(t);
    t = NULL;
    unit_write_file(folder, "tokenizer_config.json", "{,", 2);
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "tokenizer_config.json"));
    assert_null(t);
    bt_text_free(&json);
    unit_remove_folder(folder);
    free(folder);
}

/* ---- BOS (C29) --------------------------------------------------------------------------------------------------- */

static int32_t bos_of(const char *post_processor, const char *config)
{
    bt_text json = compose(&(parts){.post_processor = post_processor, .vocab = ",\"<s>\":256"});
    bt_tokenizer *t = unit_tokenizer_text(json.data, config);
    int32_t bos = bt_tokenizer_bos(t);
    expect(t, "a", "97"); /* never added by encoding itself */
    bt_tokenizer_close(t);
    bt_text_free(&json);
    return bos;
}

static void test_bos(void **state)
{
    (void)state;
    static const char with[] =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{}}";
    static const char behind[] =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}]}";
    static const char both[] = "{\"type\":\"Sequence\",\"processors\":[" BYTE_LEVEL ",{\"type\":\"TemplateProcessing\","
                               "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}]}]}";
    assert_int_equal(bos_of(NULL, NULL), -1);
    assert_int_equal(bos_of(NULL, "{\"bos_token\":\"<s>\"}"), -1);
    assert_int_equal(bos_of(NULL, "{\"bos_token\":\"<s>\",\"add_bos_token\":true,\"n\":Infinity}"), 256);
    assert_int_equal(bos_of(NULL, "{\"bos_token\":{\"content\":\"<s>\"},\"add_bos_token\":true}"), 256);
    assert_int_equal(bos_of(NULL, "{\"bos_token\":\"!\",\"add_bos_token\":true}"), '!');
    assert_int_equal(bos_of(with, NULL), 256);
    assert_int_equal(bos_of(both, NULL), 256);
    assert_int_equal(bos_of(behind, NULL), -1);
    assert_int_equal(bos_of(with, "{\"add_bos_token\":false}"), -1);
    assert_int_equal(bos_of(with, "{\"add_bos_token\":null}"), 256);
    assert_int_equal(bos_of(with, "{\"add_bos_token\":true,\"bos_token\":\"!\"}"), '!');
    /* An id of 0 is a BOS like any other. */
    bt_text json = compose(&(parts){.vocab = NULL});
    bt_tokenizer *t = unit_tokenizer_text(json.data, "{\"bos_token\":\"\\u0000\",\"add_bos_token\":false}");
    assert_int_equal(bt_tokenizer_bos(t), -1);
    bt_tokenizer_close(t);
    t = unit_tokenizer_text(json.data, "{\"bos_token\":\"\\u0001\",\"add_bos_token\":true}");
    assert_int_equal(bt_tokenizer_bos(t), 1);
    bt_tokenizer_close(t);
    static const char *const refused[] = {
        "{\"add_bos_token\":true}", "{\"add_bos_token\":true,\"bos_token\":\"<none>\"}", "{\"add_bos_token\":1}", "[]"};
    for (size_t i = 0; i < 4; i++) {
        t = NULL;
        bt_error e;
        assert_int_equal(bt_tokenizer_open_text(json.data, json.size, refused[i], strlen(refused[i]), &t, &e),
                         BT_ERR_FORMAT);
        assert_null(t);
    }
    bt_text_free(&json);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static void test_odd_texts(void **state)
{
    (void)state;
    bt_tokenizer *t = build((parts){0});
    int32_t *ids = NULL;
    size_t n = 9;
    bt_error e;
    assert_int_equal(bt_tokenizer_encode(t, "", 0, 0, &ids, &n, &e), BT_OK);
    assert_int_equal(n, 0);
    assert_non_null(ids);
    bt_free(ids);
    assert_int_equal(bt_tokenizer_encode(t, NULL, 0, BT_TEXT_SPECIAL, &ids, &n, &e), BT_OK);
    assert_int_equal(n, 0);
    bt_free(ids);
    assert_int_equal(bt_tokenizer_encode(t, "a\0b", 3, 0, &ids, &n, &e), BT_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[1], 0);
    bt_free(ids);
    ids = NULL;
    static const struct {
        const char *text;
        const char *at;
    } invalid[] = {{"ab\xff", "byte 2"},       {"\xc3", "byte 0"},      {"é\xe2\x82", "byte 2"},
                   {"\xed\xa0\x80", "byte 0"}, {"x\xc0\xaf", "byte 1"}, {"\xf4\x90\x80\x80", "byte 0"}};
    for (size_t i = 0; i < 6; i++) {
        bt_status st = bt_tokenizer_encode(t, invalid[i].text, strlen(invalid[i].text), 0, &ids, &n, &e);
        assert_int_equal(st, BT_ERR_USAGE);
        if (strstr(e.message, invalid[i].at) == NULL) fail_msg("\"%s\" lacks %s", e.message, invalid[i].at);
    }
    assert_null(ids);
    bt_tokenizer_close(t);
    bt_tokenizer_close(NULL);
}

/* C28: what comes in goes out, byte for byte, unless the file asks for NFC. */
static void test_no_normalising_unasked(void **state)
{
    (void)state;
    static const char text[] = "각 \u1112\u1161\u11ab é e\u0301 \u212b q\u0307\u0323 \u0958 \uac00\u11a7";
    bt_tokenizer *plain = build((parts){0}), *nfc = build((parts){.normalizer = "{\"type\":\"NFC\"}"});
    int32_t *ids;
    size_t n, size;
    char *back;
    assert_int_equal(bt_tokenizer_encode(plain, text, sizeof text - 1, 0, &ids, &n, NULL), BT_OK);
    assert_int_equal(bt_tokenizer_decode(plain, ids, n, 0, &back, &size, NULL), BT_OK);
    assert_string_equal(back, text);
    bt_free(ids);
    bt_free(back);
    assert_int_equal(bt_tokenizer_encode(nfc, text, sizeof text - 1, 0, &ids, &n, NULL), BT_OK);
    assert_int_equal(bt_tokenizer_decode(nfc, ids, n, 0, &back, &size, NULL), BT_OK);
    assert_string_equal(back, "각 한 é é Å q\u0323\u0307 \u0915\u093c \uac00\u11a7");
    bt_free(ids);
    bt_free(back);
    bt_tokenizer_close(plain);
    bt_tokenizer_close(nfc);
}

/* ---- growth (C23) ------------------------------------------------------------------------------------------------ */

static void test_growth(void **state)
{
    (void)state;
    bt_tokenizer *t = unit_tokenizer(TINY);
    static const char *const texts[] = {"a", " ", "1", "^", "\n", "字", "e", "\u0323", " a", "<ifm|", "AbC9+/"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) unit_expect_linear(t, texts[i], 500000, true);
    bt_tokenizer_close(t);
}

/* A megabyte of marks in the wrong order: ordering them must not take its square. */
static void test_many_marks(void **state)
{
    (void)state;
    bt_tokenizer *t = unit_tokenizer(TINY);
    size_t n = 500000, size = 0, n_ids = 0;
    char *text = malloc(2 * n), *back = NULL;
    int32_t *ids = NULL;
    bt_error e;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + 2 * i, i % 2 == 0 ? "\u0300" : "\u0316", 2); /* classes 230, 220 */
    assert_int_equal(bt_tokenizer_encode(t, text, 2 * n, 0, &ids, &n_ids, &e), BT_OK);
    assert_int_equal(bt_tokenizer_decode(t, ids, n_ids, 0, &back, &size, &e), BT_OK);
    assert_int_equal(size, 2 * n);
    for (size_t i = 0; i < n; i++) assert_memory_equal(back + 2 * i, i < n / 2 ? "\u0316" : "\u0300", 2);
    free(text);
    bt_free(back);
    bt_free(ids);
    bt_tokenizer_close(t);
}

/* ---- threads and memory ------------------------------------------------------------------------------------------ */

static void test_shared_between_threads(void **state)
{
    (void)state;
    bt_tokenizer *t = unit_tokenizer(TINY);
    unit_expect_same_in_threads(t, "The glacier is a river of ice. <ifm|think>12345 e\u0301");
    bt_tokenizer_close(t);
}

#ifdef BT_TEST_BUILD
static bt_status open_and_use(void *user, bt_error *e)
{
    static const char config[] = "{\"add_bos_token\":true,\"bos_token\":\"<a>\"}", text[] = "abc ab <a> e\u0301\u0323";
    const bt_text *json = user;
    bt_tokenizer *t = NULL;
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n_ids = 0, size = 0;
    bt_status st = bt_tokenizer_open_text(json->data, json->size, config, sizeof config - 1, &t, e);
    if (st == BT_OK) st = bt_tokenizer_encode(t, text, sizeof text - 1, BT_TEXT_SPECIAL, &ids, &n_ids, e);
    if (st == BT_OK) st = bt_tokenizer_decode(t, ids, n_ids, BT_TEXT_SPECIAL, &back, &size, e);
    if (st == BT_OK) assert_int_equal(n_ids, 9); /* abc, space, ab, <a>, five bytes */
    bt_free(back);
    bt_free(ids);
    bt_tokenizer_close(t);
    return st;
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    bt_text json = compose(&(parts){.added = "[" ADDED(258, "<a>", true, true, true, true) "]",
                                    .normalizer = "{\"type\":\"NFC\"}",
                                    .pre_tokenizer = SPLIT("{\"Regex\":\"(?:ab|\\\\p{L})+|\\\\s\"}", "Isolated"),
                                    .vocab = ",\"ab\":256,\"abc\":257",
                                    .merges = "[\"a b\",\"ab c\"]"});
    unit_fail_allocations(open_and_use, &json);
    bt_text_free(&json);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_confirmed),
        cmocka_unit_test(test_fixture_k2),
        cmocka_unit_test(test_fixture_k2_string_merges),
        cmocka_unit_test(test_fixture_qwen3),
        cmocka_unit_test(test_merge_forms),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_added_refused),
        cmocka_unit_test(test_unknown_parts),
        cmocka_unit_test(test_harmless_options),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_odd_texts),
        cmocka_unit_test(test_no_normalising_unasked),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_many_marks),
        cmocka_unit_test(test_shared_between_threads),
#ifdef BT_TEST_BUILD
        cmocka_unit_test(test_memory_runs_out),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
