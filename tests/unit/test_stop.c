/* Stop strings (case C42): whatever the token borders, the text ends right before the stop string. */
#include "unit.h"

#include "base/arena.h"

typedef struct result {
    char text[256];
    size_t size;
    bool met;
} result;

static void take(result *r, const char *text, size_t size)
{
    assert_true(size <= sizeof r->text - r->size);
    memcpy(r->text + r->size, text, size);
    r->size += size;
}

/* Feeds `text` in pieces; bit i of `cuts`: a border behind byte i. */
static result feed(bt_stop *s, const char *text, unsigned cuts)
{
    result r = {.size = 0};
    const char *out;
    size_t n = strlen(text), out_size, start = 0;
    for (size_t i = 0; i < n && !r.met; i++) {
        if (i + 1 < n && (cuts >> i & 1) == 0) continue;
        r.met = bt_stop_push(s, text + start, i + 1 - start, &out, &out_size);
        take(&r, out, out_size);
        start = i + 1;
    }
    bt_stop_finish(s, &out, &out_size);
    if (!r.met) take(&r, out, out_size);
    if (r.met) assert_int_equal(out_size, 0);
    return r;
}

static bt_stop *open_stop(const char *const *strings, size_t n)
{
    bt_stop *s = NULL;
    bt_error e;
    if (bt_stop_open(strings, n, &s, &e) != BT_OK) fail_msg("%s", e.message);
    return s;
}

static void expect(const char *const *strings, size_t n, const char *text, unsigned cuts, const char *kept, bool met)
{
    bt_stop *s = open_stop(strings, n);
    result r = feed(s, text, cuts);
    if (r.met != met || r.size != strlen(kept) || memcmp(r.text, kept, r.size) != 0) {
        fail_msg("\"%s\" cut by %x: kept \"%.*s\", expected \"%s\"", text, cuts, (int)r.size, r.text, kept);
    }
    bt_stop_close(s);
}

static void test_every_split(void **state)
{
    (void)state;
    for (unsigned cuts = 0; cuts < 512; cuts++) {
        expect((const char *[]){"EFG"}, 1, "ABCDEFGHIJ", cuts, "ABCD", true);
        expect((const char *[]){"X", "EFG"}, 2, "ABCDEFGHIJ", cuts, "ABCD", true);
        expect((const char *[]){"EFG", "DEFGH"}, 2, "ABCDEFGHIJ", cuts, "ABCD", true); /* complete first */
        expect((const char *[]){"FG", "EFG"}, 2, "ABCDEFGHIJ", cuts, "ABCD", true);    /* longest of those */
        expect((const char *[]){"JK"}, 1, "ABCDEFGHIJ", cuts, "ABCDEFGHIJ", false);
        expect(NULL, 0, "ABCDEFGHIJ", cuts, "ABCDEFGHIJ", false);
        expect((const char *[]){"AAB"}, 1, "AAAAAABAAB", cuts, "AAAA", true);
        expect((const char *[]){"ABABC"}, 1, "ABABABABCX", cuts, "ABAB", true);
        expect((const char *[]){"AABAAAC"}, 1, "AABAAABAAAC", cuts, "AABA", true);
    }
}

static void test_whole_characters(void **state)
{
    (void)state;
    /* Pushes are whole characters, as a decoder gives them: a stop string that begins with the same byte must not make
     * half a character come out. */
    const char *parts[] = {"冰", "、", "川", "。", "x"};
    bt_stop *s = open_stop((const char *[]){"。"}, 1);
    const char *out;
    size_t out_size;
    for (size_t i = 0; i < 3; i++) {
        assert_false(bt_stop_push(s, parts[i], strlen(parts[i]), &out, &out_size));
        assert_int_equal(out_size, 3);
        assert_memory_equal(out, parts[i], 3);
    }
    assert_true(bt_stop_push(s, parts[3], strlen(parts[3]), &out, &out_size));
    assert_int_equal(out_size, 0);
    assert_true(bt_stop_push(s, parts[4], 1, &out, &out_size)); /* it stays met */
    assert_int_equal(out_size, 0);
    bt_stop_close(s);
}

static void test_nothing_held_too_long(void **state)
{
    (void)state;
    bt_stop *s = open_stop((const char *[]){"EFG"}, 1);
    const char *out;
    size_t out_size;
    assert_false(bt_stop_push(s, "DE", 2, &out, &out_size));
    assert_int_equal(out_size, 1); /* D cannot be part of it */
    assert_false(bt_stop_push(s, "FX", 2, &out, &out_size));
    assert_int_equal(out_size, 3);
    assert_memory_equal(out, "EFX", 3);
    bt_stop_finish(s, &out, &out_size);
    assert_int_equal(out_size, 0);
    bt_stop_close(s);
}

/* Random texts over two letters against a search by eye. */
static void test_against_search(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (int round = 0; round < 3000; round++) {
        char text[33] = "", stops[3][10] = {""};
        const char *strings[3] = {stops[0], stops[1], stops[2]};
        for (size_t i = 0; i < 32; i++) {
            random = random * 1664525u + 1013904223u;
            text[i] = "ab"[random >> 31];
        }
        for (size_t k = 0; k < 3; k++) {
            random = random * 1664525u + 1013904223u;
            size_t n = 2 + (random >> 29);
            for (size_t i = 0; i < n; i++) stops[k][i] = "ab"[random >> (10 + i) & 1];
        }
        size_t kept = 32;
        bool met = false;
        for (size_t end = 1; end <= 32 && !met; end++) {
            for (size_t k = 0; k < 3; k++) {
                size_t n = strlen(strings[k]);
                if (n > end || memcmp(text + end - n, strings[k], n) != 0) continue;
                if (!met || end - n < kept) kept = end - n;
                met = true;
            }
        }
        char expected[33];
        memcpy(expected, text, kept);
        expected[kept] = '\0';
        expect(strings, 3, text, random, expected, met);
    }
}

static void test_large_push(void **state)
{
    (void)state;
    size_t n = 1000000;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, 'a', n);
    memcpy(text + n - 3, "END", 3);
    bt_stop *s = open_stop((const char *[]){"END"}, 1);
    const char *out;
    size_t out_size;
    assert_true(bt_stop_push(s, text, n, &out, &out_size));
    assert_int_equal(out_size, n - 3);
    assert_memory_equal(out, text, n - 3);
    bt_stop_close(s);
    free(text);
}

static void test_refused(void **state)
{
    (void)state;
    bt_stop *s = NULL;
    bt_error e;
    assert_int_equal(bt_stop_open((const char *[]){"a", ""}, 2, &s, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "stop string 1 is empty"));
    assert_int_equal(bt_stop_open((const char *[]){"\xff"}, 1, &s, &e), BT_ERR_USAGE);
    assert_int_equal(bt_stop_open(NULL, 100000, &s, &e), BT_ERR_USAGE);
    assert_null(s);
    bt_stop_close(NULL);
}

#ifdef BT_TEST_BUILD
static void test_memory_runs_out(void **state)
{
    (void)state;
    bt_stop *s = NULL;
    bt_error e;
    long n = 0;
    for (bt_status st = BT_ERR_MEMORY; st != BT_OK; n++) {
        assert_int_equal(st, BT_ERR_MEMORY);
        bt_alloc_fail_after(n);
        st = bt_stop_open((const char *[]){"ab", "cd"}, 2, &s, &e);
        bt_alloc_fail_after(-1);
    }
    assert_true(n > 6);
    /* A push has no way to say so: the text ends there, as at a stop string. */
    static const char text[10000] = "x";
    const char *out;
    size_t out_size;
    bt_alloc_fail_after(0);
    assert_true(bt_stop_push(s, text, sizeof text, &out, &out_size));
    bt_alloc_fail_after(-1);
    assert_int_equal(out_size, 0);
    bt_stop_close(s);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split),     cmocka_unit_test(test_whole_characters),
        cmocka_unit_test(test_against_search),  cmocka_unit_test(test_nothing_held_too_long),
        cmocka_unit_test(test_large_push),      cmocka_unit_test(test_refused),
#ifdef BT_TEST_BUILD
        cmocka_unit_test(test_memory_runs_out),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
