/*
 * Splits: stored pieces that Hugging Face's library confirmed, the traps of PCRE2 one by one (dependencies), patterns
 * that are refused, and patterns that would run on for ever.
 */
#include "text_unit.h"

#include "text/pattern.h"
#include "text/split.h"

static bt_splitter *open_splitter(const char *pattern, bt_split_behavior behavior, bool invert)
{
    bt_splitter *s = NULL;
    bt_error e;
    if (bt_splitter_open(pattern, strlen(pattern), false, behavior, invert, &s, &e) != BT_OK) {
        fail_msg("%s: %s", pattern, e.message);
    }
    return s;
}

static bt_status split(const bt_splitter *s, const char *text, size_t n, bt_spans *out, bt_error *e)
{
    bt_splitting *w = NULL;
    assert_int_equal(bt_splitting_open(n, 1, false, &w, e), BT_OK);
    bt_status st = bt_split(s, w, text, (bt_span){.size = n}, out, e);
    bt_splitting_close(w);
    return st;
}

/* ---- stored cases ---- */

static bt_split_behavior behavior_of(const bt_json_node *name)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    for (size_t i = 0; i < 5; i++) {
        if (strcmp(name->text, names[i]) == 0) return (bt_split_behavior)i;
    }
    fail_msg("behavior %s", name->text);
    return BT_SPLIT_REMOVED;
}

static void expect_pieces(const bt_splitter *s, const char *pattern, const bt_json_node *text,
                          const bt_json_node *pieces)
{
    bt_spans got = {0};
    bt_error e;
    if (split(s, text->text, text->size, &got, &e) != BT_OK) fail_msg("%s: %s", pattern, e.message);
    bool same = got.n == pieces->n_children;
    size_t i = 0;
    for (const bt_json_node *p = pieces->child; p != NULL && same; p = p->next, i++) {
        same = got.data[i].size == p->size && memcmp(text->text + got.data[i].at, p->text, p->size) == 0;
    }
    if (!same) fail_msg("%s: \"%s\" is split otherwise from piece %zu on (%zu pieces)", pattern, text->text, i, got.n);
    bt_free(got.data);
}

static void test_confirmed(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    const bt_json_node *all = unit_read_json(a, "tests/data/tokenizers", "splits.json");
    size_t n = 0;
    for (const bt_json_node *group = all->child; group != NULL; group = group->next) {
        const char *pattern = unit_member(group, "pattern")->text;
        bool invert = unit_member(group, "invert")->kind == BT_JSON_TRUE;
        bt_splitter *s = open_splitter(pattern, behavior_of(unit_member(group, "behavior")), invert);
        for (const bt_json_node *c = unit_member(group, "cases")->child; c != NULL; c = c->next, n++) {
            expect_pieces(s, pattern, unit_member(c, "text"), unit_member(c, "pieces"));
        }
        bt_splitter_close(s);
    }
    assert_true(n > 800);
    bt_arena_free(a);
}

/* ---- what is written for PCRE2 ---- */

static void expect_translation(const char *pattern, const char *expected)
{
    bt_text out = {0};
    bt_error e;
    if (bt_pattern_translate(pattern, strlen(pattern), &out, &e) != BT_OK) fail_msg("%s: %s", pattern, e.message);
    assert_string_equal(out.data, expected);
    bt_text_free(&out);
}

static void test_translations(void **state)
{
    (void)state;
    expect_translation("(?:\\p{L}|\\p{M}|\u200c|\u200d)+", "[\\x{200d}\\x{200c}\\p{M}\\p{L}]+");
    expect_translation("\\p{Han}|\\p{Lu}\\p{L}", "\\p{sc:Han}|\\p{Lu}\\p{L}");
    expect_translation("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]",
                       "[^\\p{sc:Han}\\p{C}\\p{Z}\\p{S}\\p{P}\\p{N}\\p{Ll}]");
    expect_translation("a{,3}b{2}c{1,}", "\\x{61}{0,3}\\x{62}{2,2}\\x{63}+");
    expect_translation("(ab)+(?=b)", "(?:\\x{61}\\x{62})+(?=\\x{62})"); /* nothing captures */
    expect_translation("(?:a)b", "\\x{61}\\x{62}");
    expect_translation("(?:[^a]|b)", "(?:[^\\x{61}]|\\x{62})"); /* a negated class does not unite */
    expect_translation("[\\x{41}-\\u0043-]", "[\\x{2d}\\x{41}-\\x{43}]");
}

static const char *const refused_patterns[] = {
    "",
    "^a",
    "a$",
    "\\ba",
    "\\Aa",
    "(a)\\1",
    "(?<n>a)",
    "(?i)a",
    "(?m:a)",
    "(?#x)a",
    "(*ACCEPT)a",
    "[a[b]]",
    "[[:alpha:]]",
    "[a&&b]",
    "[a&&[^b]]",
    "[^\\p{L}&&[^a]]",
    "[\\p{L}&&\\p{Lu}]",
    "[\\p{Han}&&[^a]]",
    "\\p{N}{1,3}+",
    "a{2}?",
    "a**",
    "a{2}{3}",
    "*a",
    "a|*",
    "(?=a)*",
    "a{3,2}",
    "a{2000}",
    "a{x}",
    "a{",
    "[a",
    "[]",
    "[^]",
    "[]a]",
    "[b-a]",
    "[a-\\s]",
    "[\\s-a]",
    "(a",
    "a)",
    "a\\",
    "\\pL",
    "\\p{}",
    "\\p{Nonsense}",
    "\\p{L&}",
    "\\X",
    "\\R",
    "\\h",
    "\\K",
    "\\xff",
    "\\x{110000}",
    "\\x{d800}",
    "\\ud800",
    "\\u12",
    "\\0",
    "(?i:ss)",
    "(?i:sT)",
    "(?i:fi)",
    "(?i:é)",
    "(?i:\\p{L})",
    "(?i:s+)",
    "(?i:[é])",
    "\xff",
    "(?i:\\w)",
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused_patterns / sizeof refused_patterns[0]; i++) {
        bt_splitter *s = NULL;
        bt_error e;
        bt_status st =
            bt_splitter_open(refused_patterns[i], strlen(refused_patterns[i]), false, BT_SPLIT_ISOLATED, false, &s, &e);
        if (st != BT_ERR_UNSUPPORTED) fail_msg("\"%s\" is not refused", refused_patterns[i]);
        assert_non_null(strstr(e.message, "split pattern"));
        assert_null(s);
    }
    char deep[400];
    memset(deep, '(', 100);
    memset(deep + 100, 'a', 1);
    memset(deep + 101, ')', 100);
    deep[201] = '\0';
    bt_splitter *s = NULL;
    assert_int_equal(bt_splitter_open(deep, 201, false, BT_SPLIT_ISOLATED, false, &s, NULL), BT_ERR_UNSUPPORTED);
    assert_int_equal(bt_splitter_open("", 0, true, BT_SPLIT_ISOLATED, false, &s, NULL), BT_ERR_UNSUPPORTED);
}

/* ---- traps ---- */

static size_t count_pieces(const char *pattern, const char *text)
{
    bt_splitter *s = open_splitter(pattern, BT_SPLIT_ISOLATED, false);
    bt_spans got = {0};
    assert_int_equal(split(s, text, strlen(text), &got, NULL), BT_OK);
    bt_splitter_close(s);
    bt_free(got.data);
    return got.n;
}

static void test_traps(void **state)
{
    (void)state;
    assert_int_equal(count_pieces("\\p{Han}+", "世\u3006界"), 3); /* 2: U+3006 is Han by extension only */
    assert_int_equal(count_pieces("\\s", "a\u180eb"), 1);         /* 4: U+180E is no white space */
    assert_int_equal(count_pieces("\\s", "a\xc2\x85"
                                         "b\u3000c"),
                     5);
    assert_int_equal(count_pieces("[\\p{L}&&[^\\p{Han}]]+", "ab世cd&"), 4); /* 1: PCRE2 would look for '&' */
    assert_int_equal(count_pieces("a{,2}", "aab{,2}"), 6);                  /* empty matches split, literals do not */
    assert_int_equal(count_pieces("(?i:k|s)", "K\u212aS\u017fx"), 5);
    assert_int_equal(count_pieces(".", "a\nb"), 3);
}

/* Every character up to U+3100 is white space or is not. */
static void test_white_space(void **state)
{
    (void)state;
    static const char spaces[] =
        "\t\n\v\f\r \xc2\x85\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
        "\u2028\u2029\u202f\u205f\u3000";
    bt_splitter *s = open_splitter("\\s", BT_SPLIT_REMOVED, false),
                *other = open_splitter("\\S", BT_SPLIT_REMOVED, false);
    for (uint32_t c = 1; c < 0x3100; c++) {
        char text[5] = "";
        bt_spans got = {0};
        size_t n = bt_utf8_encode(c, text);
        bool space = strstr(spaces, text) != NULL;
        assert_int_equal(split(s, text, n, &got, NULL), BT_OK);
        if ((got.n == 0) != space) fail_msg("U+%04X", c);
        got.n = 0;
        assert_int_equal(split(other, text, n, &got, NULL), BT_OK);
        if ((got.n == 0) == space) fail_msg("U+%04X", c);
        bt_free(got.data);
    }
    bt_splitter_close(s);
    bt_splitter_close(other);
}

static char *repeat(const char *what, size_t n)
{
    size_t size = strlen(what);
    char *text = malloc(n * size + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + i * size, what, size);
    text[n * size] = '\0';
    return text;
}

/* A group that cannot become a class takes stack for every round: JIT stack, then heap, and never the machine's. */
static void test_deep_group(void **state)
{
    (void)state;
    char *text = repeat("abc", 300000);
    assert_int_equal(count_pieces("(?:ab|c)+", text), 1);
    free(text);
}

static void test_endless(void **state)
{
    (void)state;
    static const char *const patterns[] = {"\\s*x|\\s", "(?:\\s+)+x|y", "\\s(?=\\s*x)", "(\\s|\\s\\s)+[xy]"};
    char *text = repeat(" ", 400000);
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        bt_splitter *s = open_splitter(patterns[i], BT_SPLIT_ISOLATED, false);
        bt_spans got = {0};
        bt_error e;
        bt_status st = split(s, text, 400000, &got, &e);
        if (st != BT_ERR_UNSUPPORTED) fail_msg("%s: not stopped", patterns[i]);
        bt_splitter_close(s);
        bt_free(got.data);
    }
    free(text);
}

/* ---- growth ---- */

static uint64_t count_steps(const bt_splitter *s, const char *what, size_t n)
{
    bt_splitting *w = NULL;
    bt_spans got = {0};
    bt_error e;
    char *text = repeat(what, n / strlen(what));
    assert_int_equal(bt_splitting_open(n, 1, true, &w, &e), BT_OK);
    if (bt_split(s, w, text, (bt_span){.size = strlen(text)}, &got, &e) != BT_OK) fail_msg("%s", e.message);
    uint64_t steps = bt_splitting_n_steps(w);
    bt_splitting_close(w);
    bt_free(got.data);
    free(text);
    return steps;
}

static void test_growth(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    const bt_json_node *all = unit_read_json(a, "tests/data/tokenizers", "splits.json");
    static const char *const texts[] = {"a", " ", "1", "^", "\n", "字", "A", " a", "a ", "'s", " \n", "\u0301", "Aa1 "};
    size_t n_patterns = 0;
    const char *before = "";
    for (const bt_json_node *group = all->child; group != NULL && n_patterns < 4; group = group->next) {
        const char *pattern = unit_member(group, "pattern")->text; /* the first four are those of models */
        if (strcmp(pattern, before) == 0) continue;
        before = pattern;
        n_patterns++;
        bt_splitter *s = open_splitter(pattern, BT_SPLIT_ISOLATED, false);
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            uint64_t half = count_steps(s, texts[i], 1 << 16), whole = count_steps(s, texts[i], 1 << 17);
            if (whole * 10 > half * 23 || whole > ((uint64_t)1 << 17) * 16) {
                fail_msg("%s on \"%s\": %llu steps, then %llu", pattern, texts[i], (unsigned long long)half,
                         (unsigned long long)whole);
            }
            assert_true(whole >= 1 << 17); /* every byte was touched */
        }
        bt_splitter_close(s);
    }
    assert_int_equal(n_patterns, 4);
    bt_arena_free(a);
}

/* The counter itself: a pattern that looks ahead to the end from every space must show. */
static void test_growth_shows(void **state)
{
    (void)state;
    bt_splitter *s = open_splitter("\\s(?=\\s*x)|y", BT_SPLIT_ISOLATED, false);
    uint64_t half = count_steps(s, " ", 1 << 8), whole = count_steps(s, " ", 1 << 9);
    assert_true(whole > half * 3);
    bt_splitter_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confirmed), cmocka_unit_test(test_translations), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_traps),     cmocka_unit_test(test_white_space),  cmocka_unit_test(test_deep_group),
        cmocka_unit_test(test_endless),   cmocka_unit_test(test_growth),       cmocka_unit_test(test_growth_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
