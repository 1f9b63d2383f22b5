/* format/config: getters that never guess (cases C15, C17 and C20 as far as reading goes). */
#include "unit.h"

#include "base/error.h"
#include "format/config.h"

static bt_config *parse(const char *text)
{
    bt_config *c = NULL;
    bt_error e = {.message = ""};
    if (bt_config_parse("config.json", text, strlen(text), &c, &e) != BT_OK) fail_msg("refused: %s", e.message);
    return c;
}

static bt_scope root_of(const bt_config *c)
{
    return (bt_scope){c, bt_config_root(c), NULL};
}

static void c15_python_words_may_stand_unread(void **state)
{
    (void)state;
    bt_config *c = parse("{\"time_step_limit\":[0.0,Infinity],\"x\":NaN,\"y\":-Infinity,\"hidden_size\":64}");
    uint64_t hidden = 0;
    bt_error e;
    assert_int_equal(bt_get_u64(root_of(c), "hidden_size", 1, 1 << 20, &hidden, NULL, &e), BT_OK);
    assert_int_equal(hidden, 64);
    double x = 3; /* but a used key must mean something */
    assert_int_equal(bt_get_f64(root_of(c), "x", &x, NULL, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: x is NaN, where a finite number is needed");
    assert_int_equal(bt_get_f64(root_of(c), "y", &x, NULL, &e), BT_ERR_FORMAT);
    assert_true(x == 3);
    bt_config_close(c);
}

static void whole_numbers(void **state)
{
    (void)state;
    bt_config *c =
        parse("{\"a\":7,\"b\":7.0,\"c\":\"7\",\"d\":null,\"e\":-1,\"f\":true,\"g\":18446744073709551615,\"h\":[7]}");
    bt_scope s = root_of(c);
    bt_error e;
    uint64_t v = 1;
    bool found = false;
    assert_int_equal(bt_get_u64(s, "a", 7, 7, &v, &found, &e), BT_OK);
    assert_true(found && v == 7);
    v = 1;
    assert_int_equal(bt_get_u64(s, "a", 8, 10, &v, &found, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: a is 7, where 8 to 10 can be meant");
    assert_int_equal(bt_get_u64(s, "b", 0, 10, &v, &found, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: b is 7.0, where a whole number is needed");
    assert_int_equal(bt_get_u64(s, "c", 0, 10, &v, &found, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: c is a string, where a whole number is needed");
    assert_int_equal(bt_get_u64(s, "e", 0, 10, &v, &found, &e), BT_ERR_FORMAT);
    assert_int_equal(bt_get_u64(s, "f", 0, 10, &v, &found, &e), BT_ERR_FORMAT);
    assert_int_equal(bt_get_u64(s, "h", 0, 10, &v, &found, &e), BT_ERR_FORMAT);
    assert_int_equal(v, 1); /* left alone by all of these */
    assert_int_equal(bt_get_u64(s, "d", 0, 10, &v, &found, &e), BT_OK);
    assert_false(found);
    assert_int_equal(bt_get_u64(s, "absent", 0, 10, &v, &found, &e), BT_OK);
    assert_false(found);
    assert_int_equal(v, 1);
    assert_int_equal(bt_get_u64(s, "d", 0, 10, &v, NULL, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: d is null");
    assert_int_equal(bt_get_u64(s, "absent", 0, 10, &v, NULL, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: absent is missing");
    assert_int_equal(bt_get_u64(s, "g", 0, UINT64_MAX, &v, NULL, &e), BT_OK);
    assert_true(v == UINT64_MAX);
    bt_config_close(c);
}

static void other_types(void **state)
{
    (void)state;
    bt_config *c =
        parse("{\"f\":1e-06,\"i\":500000,\"t\":true,\"z\":false,\"s\":\"silu\",\"n\":\"a\\u0000b\",\"big\":1e999}");
    bt_scope s = root_of(c);
    bt_error e;
    double f = 0;
    bool b = false, found = false;
    const char *text = NULL;
    assert_int_equal(bt_get_f64(s, "f", &f, NULL, &e), BT_OK);
    assert_true(f == 1e-6);
    assert_int_equal(bt_get_f64(s, "i", &f, NULL, &e), BT_OK); /* an integer is a number */
    assert_true(f == 500000);
    assert_int_equal(bt_get_f64(s, "big", &f, NULL, &e), BT_ERR_FORMAT);
    assert_int_equal(bt_get_f64(s, "s", &f, NULL, &e), BT_ERR_FORMAT);
    assert_int_equal(bt_get_bool(s, "t", &b, NULL, &e), BT_OK);
    assert_true(b);
    assert_int_equal(bt_get_bool(s, "z", &b, NULL, &e), BT_OK);
    assert_false(b);
    assert_int_equal(bt_get_bool(s, "i", &b, NULL, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: i is 500000, where true or false is needed");
    assert_int_equal(bt_get_string(s, "s", &text, &found, &e), BT_OK);
    assert_string_equal(text, "silu");
    assert_int_equal(bt_get_string(s, "t", &text, &found, &e), BT_ERR_FORMAT);
    assert_int_equal(bt_get_string(s, "n", &text, &found, &e), BT_ERR_FORMAT);
    assert_int_equal(bt_get_string(s, "none", &text, &found, &e), BT_OK);
    assert_false(found);
    bt_config_close(c);
}

static void c17_ids(void **state)
{
    (void)state;
    bt_config *c =
        parse("{\"one\":7,\"zero\":0,\"list\":[7,9,0],\"none\":null,\"empty\":[],\"neg\":[1,-1],\"text\":[\"</s>\"],"
              "\"big\":2147483648,\"max\":2147483647,\"nested\":[[1]],\"bool\":true}");
    bt_scope s = root_of(c);
    bt_error e;
    int32_t ids[4];
    size_t n = 99;
    assert_int_equal(bt_get_ids(s, "one", ids, 4, &n, &e), BT_OK);
    assert_true(n == 1 && ids[0] == 7);
    assert_int_equal(bt_get_ids(s, "zero", ids, 4, &n, &e), BT_OK);
    assert_true(n == 1 && ids[0] == 0); /* 0 is a token, not "none" */
    assert_int_equal(bt_get_ids(s, "list", ids, 4, &n, &e), BT_OK);
    assert_true(n == 3 && ids[0] == 7 && ids[1] == 9 && ids[2] == 0);
    assert_int_equal(bt_get_ids(s, "max", ids, 4, &n, &e), BT_OK);
    assert_true(n == 1 && ids[0] == INT32_MAX);
    static const char *const none[] = {"none", "empty", "absent"};
    for (size_t i = 0; i < 3; i++) {
        n = 99;
        assert_int_equal(bt_get_ids(s, none[i], ids, 4, &n, &e), BT_OK);
        assert_int_equal(n, 0);
    }
    static const char *const bad[] = {"neg", "text", "big", "nested", "bool"};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(bt_get_ids(s, bad[i], ids, 4, &n, &e), BT_ERR_FORMAT);
        assert_non_null(strstr(e.message, bad[i]));
    }
    assert_int_equal(bt_get_ids(s, "list", ids, 2, &n, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: list has 3 ids, more than the 2 that can be used");
    bt_config_close(c);
}

static void scopes_name_their_place(void **state)
{
    (void)state;
    bt_config *c = parse("{\"rope_parameters\":{\"factor\":\"4\",\"theta\":1e4},\"null\":null,\"list\":[]}");
    bt_scope rope, none;
    bt_error e;
    double v = 0;
    assert_int_equal(bt_get_scope(root_of(c), "rope_parameters", &rope, &e), BT_OK);
    assert_int_equal(bt_get_f64(rope, "theta", &v, NULL, &e), BT_OK);
    assert_true(v == 10000);
    assert_int_equal(bt_get_f64(rope, "factor", &v, NULL, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: rope_parameters.factor is a string, where a finite number is needed");
    assert_int_equal(bt_get_f64(rope, "beta", &v, NULL, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: rope_parameters.beta is missing");
    static const char *const absent[] = {"null", "absent"};
    for (size_t i = 0; i < 2; i++) {
        bool found = true;
        assert_int_equal(bt_get_scope(root_of(c), absent[i], &none, &e), BT_OK);
        assert_null(none.object);
        assert_int_equal(bt_get_f64(none, "theta", &v, &found, &e), BT_OK);
        assert_false(found);
    }
    assert_int_equal(bt_get_scope(root_of(c), "list", &none, &e), BT_ERR_FORMAT);
    assert_string_equal(e.message, "config.json: list is an array, where an object is needed");
    bt_config_close(c);
}

static void broken_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "config.json: line 1, column 1: the text is empty"},
        {"[]", "config.json: it holds no JSON object"},
        {"7", "config.json: it holds no JSON object"},
        {"{\"a\":1,\"a\":2}", "\"a\" appears twice"},
        {"{\"a\":1", "the text ends inside an object"},
        {"\xef\xbb\xbf{}", "byte order mark"},
        {"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"},
        {"<html>", "web page"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bt_config *c = NULL;
        bt_error e = {.message = ""};
        assert_int_equal(bt_config_parse("config.json", cases[i].text, strlen(cases[i].text), &c, &e), BT_ERR_FORMAT);
        assert_null(c);
        if (strstr(e.message, cases[i].words) == NULL) fail_msg("case %zu says: %s", i, e.message);
    }
    bt_config_close(NULL);
}

static void files_are_opened(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), path[4400];
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    bt_config *c = NULL;
    bt_error e;
    assert_int_equal(bt_config_open(path, &c, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, "config.json"));
    unit_write_file(folder, "config.json", "{\"a\":1}", 7);
    assert_int_equal(bt_config_open(path, &c, &e), BT_OK);
    assert_string_equal(bt_config_file(c), path);
    bt_config_close(c);
    unit_remove_folder(folder);
    free(folder);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
#ifdef BT_TEST_BUILD
    const char *text = "{\"a\":{\"b\\n\":[1,2]},\"c\":\"d\"}";
    bt_status st = BT_ERR_MEMORY;
    for (long n = 0; st != BT_OK; n++) {
        assert_true(n < 100);
        bt_config *c = NULL;
        bt_error e = {.message = ""};
        bt_alloc_fail_after(n);
        st = bt_config_parse("config.json", text, strlen(text), &c, &e);
        bt_alloc_fail_after(-1);
        assert_true(st == BT_OK || st == BT_ERR_MEMORY);
        assert_int_equal(st == BT_OK, c != NULL);
        bt_config_close(c);
    }
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c15_python_words_may_stand_unread),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(other_types),
        cmocka_unit_test(c17_ids),
        cmocka_unit_test(scopes_name_their_place),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(files_are_opened),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
