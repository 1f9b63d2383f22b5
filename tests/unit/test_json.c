/* base/json: scanner, numbers, tree; what it takes and refuses, against jansson where both should agree. */
#include "unit.h"

#include <jansson.h>
#include <locale.h>
#include <math.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"

/* Scans a document to one letter per event: { } [ ] k s n t f 0, then '.' for the end or '!' for a fault. */
static void scan(const char *text, size_t size, unsigned flags, char *events, size_t n_max, bt_error *e)
{
    static const char letters[] = "!.{}[]ksntf0";
    bt_json j;
    bt_json_begin(&j, text, size, flags, e);
    size_t n = 0;
    bt_json_kind kind;
    do {
        kind = bt_json_next(&j);
        assert_true(n + 2 < n_max);
        events[n++] = letters[kind];
    } while (kind != BT_JSON_END && kind != BT_JSON_ERROR);
    events[n] = '\0';
    assert_int_equal(bt_json_next(&j), kind); /* stays where it is */
    assert_int_equal(j.status == BT_OK, kind == BT_JSON_END);
    bt_json_done(&j);
}

static void events_come_in_order(void **state)
{
    (void)state;
    static const struct {
        const char *text, *events;
    } cases[] = {
        {"{}", "{}."},
        {" [ ] ", "[]."},
        {"{\"a\":1,\"b\":[true,false,null],\"c\":{\"d\":\"e\"}}", "{knk[tf0]k{ks}}."},
        {"0", "n."},
        {"\"x\"", "s."},
        {"\t\r\n-1.5e+3 ", "n."},
        {"[[[]],[]]", "[[[]][]]."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char events[100];
        bt_error e = {.message = ""};
        scan(cases[i].text, strlen(cases[i].text), 0, events, sizeof events, &e);
        assert_string_equal(events, cases[i].events);
    }
}

static void expect_text(const char *document, size_t size, const char *text, size_t text_size)
{
    bt_error e = {.message = ""};
    char *exact = malloc(size); /* so that a read past the end is seen by ASan */
    memcpy(exact, document, size);
    bt_json j;
    bt_json_begin(&j, exact, size, 0, &e);
    assert_int_equal(bt_json_next(&j), BT_JSON_STRING);
    assert_int_equal(j.size, text_size);
    assert_memory_equal(j.text, text, text_size);
    assert_int_equal(bt_json_next(&j), BT_JSON_END);
    bt_json_done(&j);
    free(exact);
}

static void strings_are_unescaped(void **state)
{
    (void)state;
    expect_text("\"\"", 2, "", 0);
    expect_text("\"abc\"", 5, "abc", 3);
    expect_text("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", 18, "\"\\/\b\f\n\r\t", 8);
    expect_text("\"a\\u0000b\"", 10, "a\0b", 3);
    expect_text("\"\\u00e9\\u20AC\\ud83d\\ude00\"", 26, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9);
    expect_text("\"\xc3\xa9\\n\xf0\x9f\x98\x80\"", 10, "\xc3\xa9\n\xf0\x9f\x98\x80", 7);
    expect_text("\"\x7f\"", 3, "\x7f", 1);
    for (size_t n = 0; n < 40; n++) { /* every length around the stride of eight, the escape at every place */
        for (size_t at = 0; at <= n; at++) {
            char document[64] = "\"", text[64];
            memset(document + 1, 'x', n);
            memset(text, 'x', n + 1);
            memmove(document + 1 + at + 2, document + 1 + at, n - at);
            memcpy(document + 1 + at, "\\n", 2);
            text[at] = '\n';
            document[n + 3] = '"';
            expect_text(document, n + 4, text, n + 1);
        }
    }
}

static void faults_are_told_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size; /* 0: strlen */
        const char *message;
    } cases[] = {
        {"\0", 0, "line 1, column 1: the text is empty"},
        {"  ", 0, "line 1, column 3: there is no value"},
        {"{", 0, "the text ends inside an object"},
        {"[1,", 0, "the text ends inside an array"},
        {"{\"a\"", 0, "a ':' is missing"},
        {"{\"a\":", 0, "the text ends inside an object"},
        {"{a:1}", 0, "line 1, column 2: a key in quotes is missing"},
        {"{\"a\":1,}", 0, "a key in quotes is missing"},
        {"[1,]", 0, "a value is missing"},
        {"[1 2]", 0, "a ',' or ']' is missing"},
        {"{\"a\":1 \"b\":2}", 0, "a ',' or '}' is missing"},
        {"{\n \"\xc3\xa9\": x}", 0, "line 2, column 7: a value is missing"},
        {"[1}", 0, "a ',' or ']' is missing"},
        {"{} {}", 0, "line 1, column 4: more text after the end"},
        {"01", 0, "more text after the end"},
        {"1.", 0, "digits after its point"},
        {".5", 0, "a value is missing"},
        {"+1", 0, "a value is missing"},
        {"-", 0, "a value is missing"},
        {"1e", 0, "digits in its exponent"},
        {"1e+", 0, "digits in its exponent"},
        {"NaN", 0, "a value is missing"},
        {"Infinity", 0, "a value is missing"},
        {"truth", 0, "a value is missing"},
        {"tru", 0, "a value is missing"},
        {"nulll", 0, "more text after the end"},
        {"'a'", 0, "a value is missing"},
        {"\"abc", 0, "the text ends inside a string"},
        {"\"abc\\", 0, "the text ends inside a string"},
        {"\"a\nb\"", 0, "a control character inside a string"},
        {"\"a\0b\"", 5, "a control character inside a string"},
        {"\"\\x41\"", 0, "an escape that JSON does not know"},
        {"\"\\\0\"", 4, "an escape that JSON does not know"},
        {"\"\\u12\"", 0, "four hexadecimal digits"},
        {"\"\\u12g4\"", 0, "four hexadecimal digits"},
        {"\"\\u12", 0, "four hexadecimal digits"},
        {"\"\\ud800\"", 0, "unpaired surrogate"},
        {"\"\\udc00\"", 0, "unpaired surrogate"},
        {"\"\\ud800\\u0041\"", 0, "unpaired surrogate"},
        {"\"\\ud800\\ud800\"", 0, "unpaired surrogate"},
        {"\"\\ud800x\"", 0, "unpaired surrogate"},
        {"\"\xff\"", 0, "bytes that are not UTF-8"},
        {"\"\xc3\"", 0, "bytes that are not UTF-8"},
        {"\"\xed\xa0\x80\"", 0, "bytes that are not UTF-8"},
        {"\xef\xbb\xbf{}", 0, "a byte order mark"},
        {"{}\0", 3, "more text after the end"},
        {"[1,/* no */2]", 0, "a value is missing"},
        {"version https://git-lfs.github.com/spec/v1\noid", 0, "Git LFS pointer"},
        {"<!DOCTYPE html>", 0, "web page"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size = cases[i].size > 0 ? cases[i].size : strlen(cases[i].text);
        char *exact = malloc(size + 1), events[100];
        memcpy(exact, cases[i].text, size);
        bt_error e = {.message = ""};
        scan(exact, size, 0, events, sizeof events, &e);
        assert_int_equal(events[strlen(events) - 1], '!');
        assert_int_equal(e.status, BT_ERR_FORMAT);
        if (strstr(e.message, cases[i].message) == NULL) fail_msg("case %zu says: %s", i, e.message);
        free(exact);
    }
}

/* Text is stepped over eight bytes at a time: a fault must be seen at every place of the stride. */
static void faults_inside_long_strings(void **state)
{
    (void)state;
    static const char faults[] = {'\xff', '\x80', '\x1f', '\0'};
    for (size_t at = 0; at < 40; at++) {
        for (size_t k = 0; k < sizeof faults; k++) {
            char text[42] = "\"", events[100];
            memset(text + 1, 'x', 40);
            text[41] = '"';
            text[1 + at] = faults[k];
            bt_error e = {.message = ""};
            scan(text, sizeof text, 0, events, sizeof events, &e);
            assert_string_equal(events, "!");
            char place[40];
            (void)snprintf(place, sizeof place, "line 1, column %zu: ", at + 2);
            assert_memory_equal(e.message, place, strlen(place));
        }
    }
}

static void python_words_where_allowed(void **state)
{
    (void)state;
    const char *text = "{\"a\":NaN,\"b\":[Infinity,-Infinity,-1]}";
    char events[100];
    bt_error e = {.message = ""};
    scan(text, strlen(text), BT_JSON_PYTHON, events, sizeof events, &e);
    assert_string_equal(events, "{knk[nnn]}.");
    scan(text, strlen(text), 0, events, sizeof events, &e);
    assert_string_equal(events, "{k!");
    scan("-Infinit", 8, BT_JSON_PYTHON, events, sizeof events, &e);
    assert_string_equal(events, "!");
    scan("NaNs", 4, BT_JSON_PYTHON, events, sizeof events, &e);
    assert_string_equal(events, "n!");
}

static void depth_is_bounded(void **state)
{
    (void)state;
    for (int depth = BT_JSON_DEPTH_MAX; depth <= BT_JSON_DEPTH_MAX + 1; depth++) {
        char text[200] = "", events[200];
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        bt_error e = {.message = ""};
        scan(text, strlen(text), 0, events, sizeof events, &e);
        assert_int_equal(events[strlen(events) - 1], depth > BT_JSON_DEPTH_MAX ? '!' : '.');
        bt_arena *a = bt_arena_new();
        const bt_json_node *root;
        bt_status st = bt_json_parse(a, text, strlen(text), 0, &root, &e);
        assert_int_equal(st, depth > BT_JSON_DEPTH_MAX ? BT_ERR_FORMAT : BT_OK);
        bt_arena_free(a);
    }
    size_t n = 10000000;
    char *deep = malloc(n), events[200];
    memset(deep, '[', n);
    bt_error e = {.message = ""};
    scan(deep, n, 0, events, sizeof events, &e);
    assert_non_null(strstr(e.message, "64 levels"));
    free(deep);
}

static void skipping_and_failing(void **state)
{
    (void)state;
    const char *text = "{\"a\":{\"x\":[1,{}]},\"b\":[[]],\"c\":\"s\",\"d\":2}";
    bt_error e = {.message = ""};
    bt_json j;
    bt_json_begin(&j, text, strlen(text), 0, &e);
    assert_int_equal(bt_json_next(&j), BT_JSON_OBJECT);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(bt_json_next(&j), BT_JSON_KEY);
        assert_true(bt_json_skip(&j, bt_json_next(&j)));
    }
    assert_int_equal(bt_json_next(&j), BT_JSON_KEY);
    assert_true(bt_json_text_is(&j, "d"));
    assert_false(bt_json_text_is(&j, "dd"));
    assert_int_equal(bt_json_fail(&j, "key %s", "d"), BT_ERR_FORMAT);
    assert_string_equal(e.message, "line 1, column 40: key d");
    assert_int_equal(bt_json_fail(&j, "another"), BT_ERR_FORMAT); /* the first stays */
    assert_string_equal(e.message, "line 1, column 40: key d");
    assert_int_equal(bt_json_next(&j), BT_JSON_ERROR);
    assert_false(bt_json_skip(&j, BT_JSON_ERROR));
    bt_json_done(&j);

    bt_json_begin(&j, "[[1,", 4, 0, &e);
    assert_false(bt_json_skip(&j, bt_json_next(&j)));
    bt_json_done(&j);
}

/* ---- numbers --------------------------------------------------------------------------------------------------------
 */

static void integers_are_exact(void **state)
{
    (void)state;
    uint64_t u;
    int64_t i;
    assert_true(bt_json_u64("18446744073709551615", 20, &u) && u == UINT64_MAX);
    assert_true(bt_json_u64("9007199254740993", 16, &u) && u == 9007199254740993u); /* a double would say ...992 */
    assert_true(bt_json_u64("0", 1, &u) && u == 0);
    assert_true(bt_json_i64("-9223372036854775808", 20, &i) && i == INT64_MIN);
    assert_true(bt_json_i64("9223372036854775807", 19, &i) && i == INT64_MAX);
    assert_true(bt_json_i64("-0", 2, &i) && i == 0);
    assert_true(bt_json_i64("-1", 2, &i) && i == -1);
    static const char *const no_u64[] = {
        "",   "-1", "-0", "1.0", "1.5", "1e2",      "1e30", "18446744073709551616",         "00", "01",
        " 1", "1 ", "x",  "0x1", "NaN", "Infinity", "+1",   "99999999999999999999999999999"};
    for (size_t k = 0; k < sizeof no_u64 / sizeof no_u64[0]; k++) {
        if (bt_json_u64(no_u64[k], strlen(no_u64[k]), &u)) fail_msg("\"%s\" is taken for a u64", no_u64[k]);
    }
    static const char *const no_i64[] = {"", "-", "--1", "9223372036854775808", "-9223372036854775809", "1.0"};
    for (size_t k = 0; k < sizeof no_i64 / sizeof no_i64[0]; k++) {
        if (bt_json_i64(no_i64[k], strlen(no_i64[k]), &i)) fail_msg("\"%s\" is taken for an i64", no_i64[k]);
    }
}

static void doubles_are_rounded_rightly(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double v;
    } cases[] = {
        {"0", 0},
        {"-0.0", -0.0},
        {"1e-06", 1e-6},
        {"0.1", 0.1},
        {"1e22", 1e22},
        {"9007199254740993", 9007199254740992.0},                            /* a tie, to even */
        {"9007199254740993.00000000000000000000000001", 9007199254740994.0}, /* just above it */
        {"2.2250738585072011e-308", 0x0.fffffffffffffp-1022},                /* hung PHP and Java once */
        {"4.9e-324", 0x1p-1074},
        {"1e-400", 0},
        {"1.7976931348623157e308", 0x1.fffffffffffffp1023},
        {"Infinity", (double)INFINITY},
        {"-Infinity", -(double)INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double v = 7;
        assert_true(bt_json_f64(cases[i].text, strlen(cases[i].text), &v));
        if (memcmp(&v, &cases[i].v, sizeof v) != 0) fail_msg("%s became %a", cases[i].text, v);
    }
    double v;
    assert_true(bt_json_f64("NaN", 3, &v) && isnan(v));
    assert_true(bt_json_f64("12", 1, &v) && v == 1); /* the size counts */
    static const char *const no[] = {"",   "1e400", "-1e400", "1x",     "0x10",   "1e5 ",
                                     " 1", "+1",    "inf",    "nan(1)", "NaN(1)", "1,5"};
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        if (bt_json_f64(no[i], strlen(no[i]), &v)) fail_msg("\"%s\" is taken for a number", no[i]);
    }
    char zeros[5000];
    memset(zeros, '0', sizeof zeros);
    zeros[0] = '1';
    assert_false(bt_json_f64(zeros, sizeof zeros, &v)); /* bounded */
}

static void locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8", "de_DE"};
    const char *got = NULL;
    for (size_t i = 0; i < sizeof commas / sizeof commas[0] && got == NULL; i++) got = setlocale(LC_ALL, commas[i]);
    if (got == NULL) {
        print_message("NOT RUN: no locale with a decimal comma is installed\n");
        skip();
    }
    double v;
    bool ok = bt_json_f64("1.5", 3, &v);
    bt_text t = {NULL, 0, 0, false};
    bt_text_json_f64(&t, 2.5);
    (void)setlocale(LC_ALL, "C");
    assert_true(ok && v == 1.5);
    assert_string_equal(t.data, "2.5");
    bt_text_free(&t);
}

/* ---- the tree -------------------------------------------------------------------------------------------------------
 */

static void tree_holds_what_the_text_says(void **state)
{
    (void)state;
    const char *text = "{\"a\\u0000b\":\"x\\u0000y\",\"list\":[1,\"\",{\"k\":null}],\"n\":-1.5}";
    bt_arena *a = bt_arena_new();
    const bt_json_node *root;
    bt_error e = {.message = ""};
    assert_int_equal(bt_json_parse(a, text, strlen(text), 0, &root, &e), BT_OK);
    assert_int_equal(root->kind, BT_JSON_OBJECT);
    assert_int_equal(root->n_children, 3);
    const bt_json_node *first = root->child;
    assert_int_equal(first->key_size, 3);
    assert_memory_equal(first->key, "a\0b", 4);
    assert_int_equal(first->size, 3);
    assert_memory_equal(first->text, "x\0y", 4);
    assert_null(bt_json_get(root, "a")); /* a key with NUL is not cut to "a" */
    const bt_json_node *list = bt_json_get(root, "list");
    assert_int_equal(list->kind, BT_JSON_ARRAY);
    assert_int_equal(list->n_children, 3);
    assert_string_equal(list->child->text, "1");
    assert_int_equal(bt_json_get(list->child->next->next, "k")->kind, BT_JSON_NULL);
    assert_null(list->child->next->next->next);
    assert_string_equal(bt_json_get(root, "n")->text, "-1.5");
    assert_null(bt_json_get(list, "n"));
    assert_null(bt_json_get(NULL, "n"));
    bt_arena_free(a);
}

static void duplicate_keys_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"a\":1,\"a\":1}", "[{\"b\":{\"x\":1,\"y\":2,\"\\u0078\":3}}]"};
    static const char *const good[] = {"{\"a\":1,\"A\":1,\"a \":2,\"\":3}", "{\"a\":{\"a\":{\"a\":1}}}"};
    bt_error e;
    const bt_json_node *root;
    for (size_t i = 0; i < 2; i++) {
        bt_arena *a = bt_arena_new();
        assert_int_equal(bt_json_parse(a, bad[i], strlen(bad[i]), 0, &root, &e), BT_ERR_FORMAT);
        assert_non_null(strstr(e.message, "appears twice"));
        assert_int_equal(bt_json_parse(a, good[i], strlen(good[i]), 0, &root, &e), BT_OK);
        bt_arena_free(a);
    }
    /* Many keys: a quadratic check would take minutes here. */
    bt_text t = {NULL, 0, 0, false};
    for (size_t i = 0; i < 200000; i++) bt_text_printf(&t, "%c\"key%zu\":%zu", i == 0 ? '{' : ',', i, i);
    bt_text_puts(&t, ",\"key0\":0}");
    assert_true(bt_text_ok(&t));
    bt_arena *a = bt_arena_new();
    assert_int_equal(bt_json_parse(a, t.data, t.size, 0, &root, &e), BT_ERR_FORMAT);
    bt_arena_free(a);
    bt_text_free(&t);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
#ifdef BT_TEST_BUILD
    const char *text = "{\"a\\n\":[\"x\\ty\",1,{}],\"b\":{\"c\":\"d\"}}";
    size_t n_failed = 0;
    bt_status st = BT_ERR_MEMORY;
    for (long n = 0; st != BT_OK; n++) {
        assert_true(n < 1000);
        bt_error e = {.message = ""};
        bt_alloc_fail_after(n);
        bt_arena *a = bt_arena_new();
        const bt_json_node *root = NULL;
        if (a != NULL) st = bt_json_parse(a, text, strlen(text), 0, &root, &e);
        bt_alloc_fail_after(-1);
        assert_true(st == BT_OK || st == BT_ERR_MEMORY);
        if (a != NULL && st != BT_OK) assert_non_null(strstr(e.message, "no memory"));
        n_failed += st != BT_OK;
        bt_arena_free(a);
    }
    assert_true(n_failed > 10);
    bt_text t = {NULL, 0, 0, false};
    bt_alloc_fail_after(0);
    bt_text_puts(&t, "lost");
    bt_text_puts(&t, "and so is what follows");
    assert_false(bt_text_ok(&t));
    bt_text_free(&t);
#else
    skip();
#endif
}

/* ---- against jansson ------------------------------------------------------------------------------------------------
 */

static void expect_agreement(const char *text, size_t size)
{
    json_error_t fault;
    json_t *theirs = json_loadb(text, size, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &fault);
    bt_arena *a = bt_arena_new();
    const bt_json_node *root = NULL;
    bt_error e = {.message = ""};
    bt_status st = bt_json_parse(a, text, size, 0, &root, &e);
    bool numeric = theirs == NULL && strstr(fault.text, "number overflow") != NULL;
    bool nul_key = theirs == NULL && strstr(fault.text, "NUL byte in object key") != NULL;
    bool integer = theirs == NULL && strstr(fault.text, "too big") != NULL;
    /* jansson turns numbers into machine types at once and has no keys with NUL: those are its own limits. */
    if ((theirs != NULL) != (st == BT_OK) && !numeric && !nul_key && !integer) {
        fail_msg("%.*s: jansson says \"%s\", we say \"%s\"", (int)size, text, theirs == NULL ? fault.text : "fine",
                 e.message);
    }
    json_decref(theirs);
    bt_arena_free(a);
}

static void jansson_agrees(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "{\"a\":1,\"b\":[true,false,null,\"x\"],\"c\":{\"d\":-1.5e-3}}",
        "[\"\\u00e9\\ud83d\\ude00\\n\",\"\xc3\xa9\xf0\x9f\x98\x80\",\"\",0,-0,1e5,0.25]",
        "{\"model_type\":\"k2_horizon\",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4.0},\"eos\":[1,2]}",
        " { } ",
        "\"lonely\"",
    };
    static const char spice[] = "{}[]\",:\\/untfu0123456789-+.eE \n\t\x01\x80\xc3\xa9\xff'ad";
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) expect_agreement(seeds[i], strlen(seeds[i]));
    for (uint64_t round = 0; round < 100000; round++) { /* each document with one to three planted faults */
        const char *seed = seeds[bt_rng_u64(11, round * 16) % 5];
        char text[256];
        size_t n = strlen(seed);
        memcpy(text, seed, n);
        for (uint64_t k = 0; k <= bt_rng_u64(12, round) % 3; k++) {
            uint64_t r = bt_rng_u64(13, round * 4 + k);
            size_t at = (size_t)(r % n);
            char c = spice[(r >> 32) % (sizeof spice - 1)];
            if (r >> 62 == 0) {
                memmove(text + at, text + at + 1, n - at - 1);
                n--;
            } else if (r >> 62 == 1) {
                memmove(text + at + 1, text + at, n - at);
                text[at] = c;
                n++;
            } else {
                text[at] = c;
            }
        }
        expect_agreement(text, n);
    }
}

static void our_writer_is_read_by_jansson(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 5000; round++) {
        char s[40];
        for (size_t i = 0; i < sizeof s; i++) s[i] = (char)(bt_rng_u64(17, round * 64 + i) & 0x7f);
        size_t n = bt_rng_u64(18, round) % sizeof s;
        bt_text t = {NULL, 0, 0, false};
        bt_text_json_string(&t, s, n);
        json_t *v = json_loadb(t.data, t.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(v);
        assert_int_equal(json_string_length(v), n);
        assert_memory_equal(json_string_value(v), s, n);
        json_decref(v);
        bt_text_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_in_order),
        cmocka_unit_test(strings_are_unescaped),
        cmocka_unit_test(faults_are_told_with_their_place),
        cmocka_unit_test(faults_inside_long_strings),
        cmocka_unit_test(python_words_where_allowed),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(skipping_and_failing),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(doubles_are_rounded_rightly),
        cmocka_unit_test(locale_does_not_matter),
        cmocka_unit_test(tree_holds_what_the_text_says),
        cmocka_unit_test(duplicate_keys_are_refused),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(jansson_agrees),
        cmocka_unit_test(our_writer_is_read_by_jansson),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
