/* Decoding and its streaming form (case C31): whole characters only, U+FFFD as Python's errors="replace" puts it. */
#include "text_unit.h"

typedef struct world {
    bt_arena *arena;
    bt_tokenizer *tiny;
} world;

static int set_up(void **state)
{
    static world w;
    w = (world){.arena = bt_arena_new(), .tiny = unit_tokenizer(TINY)};
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    world *w = *state;
    bt_arena_free(w->arena);
    bt_tokenizer_close(w->tiny);
    return 0;
}

static void test_stored_decodings(void **state)
{
    world *w = *state;
    const bt_json_node *cases = unit_member(unit_read_json(w->arena, TINY, "expected.json"), "decodings");
    assert_true(cases->n_children > 100);
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next) {
        const bt_json_node *text = unit_member(c, "text");
        unit_expect_text(w->tiny, unit_member(c, "ids"), BT_TEXT_SPECIAL, text->text, text->size);
    }
}

/* The tiny vocabulary gives byte b the id 2 + its place in GPT-2's order; find it by its text where it is ASCII. */
static int32_t byte_id(const world *w, uint8_t byte)
{
    for (int32_t id = 2; id < 258; id++) {
        const char *text;
        size_t size;
        bt_error e;
        assert_int_equal(bt_tokenizer_text(w->tiny, id, 0, &text, &size, &e), BT_OK);
        if (size == 1 && (uint8_t)text[0] == byte) return id;
    }
    fail_msg("no token for byte %02x", byte);
    return -1;
}

static void expect_push(const world *w, bt_decoder *d, int32_t id, const char *expected)
{
    const char *text;
    size_t size;
    bt_error e;
    (void)w;
    if (bt_decoder_push(d, id, &text, &size, &e) != BT_OK) fail_msg("%s", e.message);
    assert_int_equal(size, strlen(expected));
    assert_memory_equal(text, expected, size);
}

static void test_bytes_of_a_character(void **state)
{
    world *w = *state;
    bt_decoder *d = NULL;
    bt_error e;
    const char *text;
    size_t size;
    assert_int_equal(bt_decoder_open(w->tiny, 0, &d, &e), BT_OK);
    expect_push(w, d, byte_id(w, 0xf0), "");
    expect_push(w, d, byte_id(w, 0x9f), "");
    expect_push(w, d, byte_id(w, 0x98), "");
    expect_push(w, d, byte_id(w, 0x80), "😀");
    expect_push(w, d, byte_id(w, 0xf0), "");
    expect_push(w, d, byte_id(w, 0x9f), "");
    bt_decoder_finish(d, &text, &size); /* one U+FFFD for both bytes */
    assert_int_equal(size, 3);
    assert_memory_equal(text, "\xef\xbf\xbd", 3);
    bt_decoder_finish(d, &text, &size); /* ready for a new text: nothing waits */
    assert_int_equal(size, 0);
    expect_push(w, d, byte_id(w, 0x80), "\xef\xbf\xbd"); /* no beginning of anything */
    expect_push(w, d, byte_id(w, 0xe0), "");
    expect_push(w, d, byte_id(w, 0x80), "\xef\xbf\xbd\xef\xbf\xbd"); /* E0 80 can become nothing */
    expect_push(w, d, byte_id(w, 0xe2), "");
    expect_push(w, d, byte_id(w, 0x82), "");
    expect_push(w, d, byte_id(w, 'x'), "\xef\xbf\xbdx");
    expect_push(w, d, byte_id(w, 0xc3), "");
    expect_push(w, d, bt_tokenizer_find(w->tiny, "<ifm|think>"), "\xef\xbf\xbd<ifm|think>");
    bt_decoder_close(d);
}

static void test_special_tokens(void **state)
{
    world *w = *state;
    bt_decoder *hides = NULL, *shows = NULL;
    bt_error e;
    int32_t special = bt_tokenizer_find(w->tiny, "<|ifm|im_end|>"), plain = bt_tokenizer_find(w->tiny, "<ifm|think>");
    assert_true(special > 0);
    assert_true(plain > 0);
    assert_int_equal(bt_decoder_open(w->tiny, 0, &hides, &e), BT_OK);
    assert_int_equal(bt_decoder_open(w->tiny, BT_TEXT_SPECIAL, &shows, &e), BT_OK);
    expect_push(w, hides, special, "");
    expect_push(w, shows, special, "<|ifm|im_end|>");
    expect_push(w, hides, plain, "<ifm|think>"); /* added, but not special */
    /* A hidden token does not end a character. */
    expect_push(w, hides, byte_id(w, 0xc3), "");
    expect_push(w, hides, special, "");
    expect_push(w, hides, byte_id(w, 0xa9), "é");
    bt_decoder_close(hides);
    bt_decoder_close(shows);
}

static void test_ids_outside(void **state)
{
    world *w = *state;
    bt_decoder *d = NULL;
    bt_error e;
    const char *text;
    size_t size;
    char *all = NULL;
    int32_t n = (int32_t)bt_tokenizer_n_vocab(w->tiny);
    assert_int_equal(bt_decoder_open(w->tiny, 0, &d, &e), BT_OK);
    assert_int_equal(bt_decoder_push(d, n, &text, &size, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "701"));
    assert_int_equal(bt_decoder_push(d, -1, &text, &size, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "-1"));
    assert_int_equal(bt_tokenizer_decode(w->tiny, (int32_t[]){5, INT32_MAX}, 2, 0, &all, &size, NULL), BT_ERR_USAGE);
    assert_null(all);
    bt_decoder_close(d);
    bt_decoder_close(NULL);
}

static void test_nothing(void **state)
{
    world *w = *state;
    char *all = NULL;
    size_t size = 9;
    assert_int_equal(bt_tokenizer_decode(w->tiny, NULL, 0, 0, &all, &size, NULL), BT_OK);
    assert_int_equal(size, 0);
    assert_string_equal(all, "");
    bt_free(all);
}

#ifdef BT_TEST_BUILD
static void test_memory_runs_out(void **state)
{
    world *w = *state;
    bt_decoder *d = NULL;
    bt_error e;
    for (long n = 0; n < 3; n++) {
        bt_alloc_fail_after(n);
        assert_int_equal(bt_decoder_open(w->tiny, 0, &d, &e), BT_ERR_MEMORY);
        bt_alloc_fail_after(-1);
        assert_null(d);
    }
    assert_int_equal(bt_decoder_open(w->tiny, 0, &d, &e), BT_OK);
    bt_alloc_fail_after(0); /* pushing allocates nothing */
    expect_push(w, d, byte_id(w, 'x'), "x");
    bt_alloc_fail_after(-1);
    bt_decoder_close(d);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stored_decodings), cmocka_unit_test(test_bytes_of_a_character),
        cmocka_unit_test(test_special_tokens),   cmocka_unit_test(test_ids_outside),
        cmocka_unit_test(test_nothing),
#ifdef BT_TEST_BUILD
        cmocka_unit_test(test_memory_runs_out),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
