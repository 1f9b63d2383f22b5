/* Ids and strings as people and programs write them: good ones, and every kind of junk. */
#include "unit.h"

#include "base/json.h"
#include "tool/ids.h"

static bt_error e;

static void expect(bt_status st, const char *text, size_t size, const char *printed)
{
    int32_t *ids = NULL;
    size_t n = 0;
    bt_status got = bt_ids_parse(text, size, &ids, &n, &e);
    if (got != st) fail_msg("'%s' gives status %d: %s", text, (int)got, got == BT_OK ? "" : e.message);
    if (st == BT_OK) {
        bt_text t = {0};
        bt_text_puts(&t, "");
        bt_ids_print(&t, ids, n);
        assert_string_equal(t.data, printed);
        bt_text_free(&t);
    } else if (strstr(e.message, printed) == NULL) {
        fail_msg("'%s' does not say '%s'", e.message, printed);
    }
    bt_free(ids);
}

static void lists_are_read(void **state)
{
    (void)state;
    const struct {
        const char *text, *ids;
    } good[] = {
        {"1,2,3", "1,2,3"},
        {"1 2\t3\n", "1,2,3"},
        {" 1 , 2 ,3 ", "1,2,3"},
        {"0", "0"},
        {"2147483647", "2147483647"},
        {"", ""},
        {" \n", ""},
        {"1,2,", "1,2"},
        {"[1, 2, 3]", "1,2,3"},
        {"\n[\n1,2\n]\n", "1,2"},
        {"[]", ""},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        expect(BT_OK, good[i].text, strlen(good[i].text), good[i].ids);
}

static void junk_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *text, *why;
    } bad[] = {
        {"1,,2", "id 1 is ''"},       {",1", "id 0 is ''"},           {"1;2", "id 0 is '1;2'"},
        {"-1", "id 0 is '-1'"},       {"1,x", "id 1 is 'x'"},         {"1.5", "id 0 is '1.5'"},
        {"2147483648", "2147483647"}, {"1e3", "id 0 is '1e3'"},       {"0x10", "id 0"},
        {"[1,2", "line 1"},           {"[1,2]3", "line 1"},           {"[1,\"2\"]", "id 1 is no number"},
        {"[[1]]", "id 0 is no"},      {"[1.5]", "id 0 is"},           {"[-1]", "id 0 is"},
        {"[1,]", "line 1"},           {"[null]", "id 0 is no"},       {"{\"a\":1}", "id 0"},
        {"[1] [2]", "line 1"},        {"[9999999999]", "2147483647"}, {"1 +2", "id 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(BT_ERR_FORMAT, bad[i].text, strlen(bad[i].text), bad[i].why);
    expect(BT_ERR_FORMAT, "1\0002", 3, "id 0");
    char endless[5000];
    memset(endless, '9', sizeof endless);
    expect(BT_ERR_FORMAT, endless, sizeof endless, "id 0 is '999");
    char deep[4000];
    memset(deep, '[', sizeof deep);
    expect(BT_ERR_FORMAT, deep, sizeof deep, "id 0 is no number");
}

static void many_ids_are_read(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    bt_text t = {0}, again = {0};
    for (int i = 0; i < MANY; i++) bt_text_printf(&t, "%d ", i);
    int32_t *ids;
    size_t n;
    assert_int_equal(bt_ids_parse(t.data, t.size, &ids, &n, &e), BT_OK);
    assert_int_equal(n, MANY);
    for (int i = 0; i < MANY; i++) assert_int_equal(ids[i], i);
    bt_ids_print_json(&again, ids, n);
    bt_free(ids);
    assert_int_equal(bt_ids_parse_json(again.data, again.size, &ids, &n, &e), BT_OK);
    assert_int_equal(n, MANY);
    bt_free(ids);
    bt_text_free(&t);
    bt_text_free(&again);
}

static void ids_are_checked(void **state)
{
    (void)state;
    const int32_t ids[] = {0, 9, 10, -1};
    assert_int_equal(bt_ids_check(ids, 2, 10, &e), BT_OK);
    assert_int_equal(bt_ids_check(ids, 3, 10, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "id 2 is 10"));
    assert_int_equal(bt_ids_check(ids, 4, 100, &e), BT_ERR_USAGE);
    assert_int_equal(bt_ids_check(ids, 0, 10, &e), BT_ERR_USAGE);
}

static void strings_are_read(void **state)
{
    (void)state;
    const struct {
        const char *json, *text;
        size_t size;
    } good[] = {
        {"\"\"", "", 0},
        {" \"a\" ", "a", 1},
        {"\"\\u0000b\"", "\0b", 2},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", 4},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char *text;
        size_t size;
        assert_int_equal(bt_string_parse_json(good[i].json, strlen(good[i].json), &text, &size, &e), BT_OK);
        assert_int_equal(size, good[i].size);
        assert_memory_equal(text, good[i].text, size);
        assert_int_equal(text[size], '\0');
        bt_free(text);
    }
    const char *const bad[] = {"",        "a",        "\"a",       "\"a\" \"b\"", "[\"a\"]",
                               "1",       "null",     "{\"a\":1}", "\"\\ud83d\"", "\"\\udc00\"",
                               "\"\\x\"", "\"\xff\"", "\"a\nb\"",  "\"\\u12\"",   "'a'"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text = NULL;
        size_t size;
        assert_int_equal(bt_string_parse_json(bad[i], strlen(bad[i]), &text, &size, &e), BT_ERR_FORMAT);
        assert_true(e.message[0] != '\0');
        assert_null(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),  cmocka_unit_test(junk_is_refused),  cmocka_unit_test(many_ids_are_read),
        cmocka_unit_test(ids_are_checked), cmocka_unit_test(strings_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
