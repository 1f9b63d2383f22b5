/* Python's text of numbers, its JSON, and its idea of characters, below the template language. */
#include "unit.h"

#include <math.h>

#include "base/json.h"
#include "text/pyjson.h"
#include "text/pytext.h"

static void test_float_repr(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } x[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {18, "18.0"},
        {0.1, "0.1"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {0.0001, "0.0001"},
        {0.00001, "1e-05"},
        {1.5e300, "1.5e+300"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {0x1p-44, "5.684341886080802e-14"}, /* its 16 nearest digits do not read back, others do */
        {9007199254740993.0, "9007199254740992.0"},
        {-2.5e-7, "-2.5e-07"},
        {(double)NAN, "nan"},
        {(double)INFINITY, "inf"},
        {-(double)INFINITY, "-inf"},
    };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        char out[BT_PY_FLOAT_BYTES];
        size_t n = bt_py_float_repr(x[i].v, out);
        assert_string_equal(out, x[i].text);
        assert_int_equal(n, strlen(x[i].text));
    }
}

static void test_parse_float(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        double v;
    } x[] = {
        {"1", true, 1},
        {"-1.5e3", true, -1500},
        {".5", true, 0.5},
        {"5.", true, 5},
        {"1_000.2_5", true, 1000.25},
        {"+Infinity", true, (double)INFINITY},
        {"1e400", true, (double)INFINITY},
        {"1e-400", true, 0},
        {"0.1e1_0", true, 1e9},
        {"", false, 0},
        {".", false, 0},
        {"1__0", false, 0},
        {"_1", false, 0},
        {"1_", false, 0},
        {"1e", false, 0},
        {"1e+", false, 0},
        {"0x10", false, 0},
        {"1 2", false, 0},
        {"e5", false, 0},
        {"--1", false, 0},
        {"infin", false, 0},
        {"1e1_", false, 0},
    };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        double v = 7;
        bool good = bt_py_parse_float(x[i].text, strlen(x[i].text), &v);
        if (good != x[i].good || (good && v != x[i].v)) fail_msg("%s: %d %g", x[i].text, good, v);
    }
    double v = 0;
    assert_true(bt_py_parse_float("-nan", 4, &v));
    assert_true(isnan(v));
}

/* More digits than a double needs: the last one far down decides, and nothing is cut off before the point. */
static void test_long_numbers(void **state)
{
    (void)state;
    char text[3000];
    double v = 0;
    memset(text, '0', sizeof text);
    text[0] = '1';
    assert_true(bt_py_parse_float(text, 309, &v));
    assert_true(v == 1e308);
    static const char tie[] = "9007199254740993"; /* half way between two doubles */
    memcpy(text, tie, 16);
    text[16] = '.';
    assert_true(bt_py_parse_float(text, sizeof text, &v));
    assert_true(v == 9007199254740992.0);
    text[sizeof text - 1] = '1';
    assert_true(bt_py_parse_float(text, sizeof text, &v));
    assert_true(v == 9007199254740994.0);
    memset(text, '0', sizeof text);
    text[1] = '.';
    text[sizeof text - 1] = '5';
    assert_true(bt_py_parse_float(text, sizeof text, &v));
    assert_true(v == 0);
}

static void test_parse_int(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned base;
        int result;
        int64_t v;
    } x[] = {
        {"42", 10, 1, 42},
        {"-42", 10, 1, -42},
        {"+1_0", 10, 1, 10},
        {"007", 10, 1, 7},
        {"007", 0, 0, 0},
        {"000", 0, 1, 0},
        {"0x1F", 16, 1, 31},
        {"0x1F", 0, 1, 31},
        {"1f", 16, 1, 31},
        {"0b11", 2, 1, 3},
        {"0o17", 8, 1, 15},
        {"0b11", 16, 1, 0xb11},
        {"z", 36, 1, 35},
        {"", 10, 0, 0},
        {"-", 10, 0, 0},
        {"1_", 10, 0, 0},
        {"12a", 10, 0, 0},
        {"0x", 16, 0, 0},
        {"0x_f", 16, 1, 15},
        {"9223372036854775807", 10, 1, INT64_MAX},
        {"-9223372036854775808", 10, 1, INT64_MIN},
        {"9223372036854775808", 10, -1, 0},
    };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        int64_t v = 0;
        int result = bt_py_parse_int(x[i].text, strlen(x[i].text), x[i].base, &v);
        if (result != x[i].result || (result == 1 && v != x[i].v))
            fail_msg("%s: %d %lld", x[i].text, result, (long long)v);
    }
}

static void test_characters(void **state)
{
    (void)state;
    uint32_t out[BT_PY_CASE_MAX];
    assert_int_equal(bt_py_to_upper(0xdf, out), 2); /* ß: SS */
    assert_int_equal(out[1], 'S');
    assert_int_equal(bt_py_to_lower(0x130, out), 2); /* I with a dot: i and the dot above */
    assert_int_equal(bt_py_to_title(0x1c6, out), 1);
    assert_int_equal(out[0], 0x1c5);
    assert_int_equal(bt_py_to_folded(0x1e9e, out), 2);
    assert_int_equal(bt_py_to_upper(0x390, out), 3);
    assert_true(bt_py_is_space(0x1c) && bt_py_is_space(0x3000) && !bt_py_is_space(0x200b));
    assert_true(bt_py_is_printable(0xe9) && !bt_py_is_printable(0xad) && !bt_py_is_printable(0xa0));
    assert_true(bt_py_is_digit(0xb2) && !bt_py_is_decimal(0xb2) && bt_py_is_numeric(0xbd) && bt_py_is_numeric(0x4e00));
    assert_true(bt_py_is_lower(0xaa) && bt_py_is_upper(0x2160) && bt_py_is_title(0x1c5));
    assert_true(bt_py_is_line_break(0x85) && !bt_py_is_line_break(0x1f));
    assert_int_equal(bt_py_decimal_value(0x664), 4);
    assert_int_equal(bt_py_decimal_value(0x1d7d9), 1); /* several sets of ten side by side */
}

static void test_json(void **state)
{
    (void)state;
    static const char source[] =
        "{\"a\":[1,-0,18.0,1e16,1E-5,NaN,-Infinity,123456789012345678901234567890],\"b\\n\":{},"
        "\"c\":[],\"d\":\"\\u00e9\\ud83d\\ude00\\u007f\\u0001\\\"\\\\/\\b\\f\\n\\r\\t\","
        "\"e\":[true,false,null]}";
    static const char expected[] =
        "{\"a\": [1, 0, 18.0, 1e+16, 1e-05, NaN, -Infinity, 123456789012345678901234567890], \"b\\n\": {}, \"c\": [], "
        "\"d\": \"\u00e9\U0001f600\x7f\\u0001\\\"\\\\/\\b\\f\\n\\r\\t\", \"e\": [true, false, null]}";
    bt_arena *a = bt_arena_new();
    const bt_json_node *n = NULL;
    bt_error e = {BT_OK, ""};
    assert_int_equal(bt_json_parse(a, source, sizeof source - 1, BT_JSON_PYTHON, &n, &e), BT_OK);
    bt_text t = {0};
    bt_pyjson_add_node(&t, n);
    assert_true(bt_text_ok(&t));
    assert_string_equal(t.data, expected);
    bt_text_free(&t);
    bt_arena_free(a);
    char out[BT_PYJSON_ESCAPE_MAX];
    assert_int_equal(bt_pyjson_escape(0xe9, false, out), 0);
    assert_int_equal(bt_pyjson_escape(0x1f600, true, out), 12);
    assert_memory_equal(out, "\\ud83d\\ude00", 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_repr), cmocka_unit_test(test_parse_float), cmocka_unit_test(test_long_numbers),
        cmocka_unit_test(test_parse_int),  cmocka_unit_test(test_characters),  cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
