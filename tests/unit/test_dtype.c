/* format/dtype: names, widths, and every code of every small float against its definition. */
#include "unit.h"

#include <math.h>

#include "base/rng.h"
#include "format/dtype.h"

static void names_and_widths(void **state)
{
    (void)state;
    for (unsigned t = 0; t < BT_DTYPE_UNKNOWN; t++) {
        if (t == BT_MXFP4) continue; /* of views only */
        const char *name = bt_dtype_name((bt_dtype)t);
        assert_non_null(name);
        assert_int_equal(bt_dtype_parse(name, strlen(name)), t);
        assert_int_equal(bt_dtype_parse(name, strlen(name) - 1), BT_DTYPE_UNKNOWN);
        assert_true(bt_dtype_bits((bt_dtype)t) >= 4);
    }
    assert_int_equal(bt_dtype_parse("F3", 2), BT_DTYPE_UNKNOWN);
    assert_int_equal(bt_dtype_parse("f32", 3), BT_DTYPE_UNKNOWN);
    assert_int_equal(bt_dtype_parse("", 0), BT_DTYPE_UNKNOWN);
    assert_int_equal(bt_dtype_parse("MXFP4", 5), BT_DTYPE_UNKNOWN);
    assert_int_equal(bt_dtype_bits(BT_DTYPE_UNKNOWN), 0);
    assert_int_equal(bt_dtype_bits(BT_F6_E2M3), 6);
    assert_int_equal(bt_dtype_bits(BT_C64), 64);
}

/* sign, exponent, mantissa to a value, as the formats' papers define it. */
static double decode(unsigned code, unsigned n_exponent, unsigned n_mantissa, int bias)
{
    unsigned mantissa = code & ((1u << n_mantissa) - 1), exponent = code >> n_mantissa & ((1u << n_exponent) - 1);
    double fraction = (double)mantissa / (double)(1u << n_mantissa);
    double v = exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, (int)exponent - bias);
    return code >> (n_exponent + n_mantissa) & 1u ? -v : v;
}

static void every_code_decodes(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 65536; c++) {
        double half = (double)bt_f16_to_f32((uint16_t)c), brain = (double)bt_bf16_to_f32((uint16_t)c);
        if ((c >> 10 & 31) != 31) {
            double expected = decode(c, 5, 10, 15);
            if (half != expected || signbit(half) != signbit(expected)) fail_msg("f16 %04x", c);
            assert_int_equal(bt_f32_to_f16((float)half), c); /* and encodes to itself */
        } else if ((c & 0x3ff) == 0) {
            assert_true(isinf(half) && signbit(half) == (int)(c >> 15 != 0));
            assert_int_equal(bt_f32_to_f16((float)half), c);
        } else {
            assert_true(isnan(half));
        }
        if ((c >> 7 & 255) != 255) {
            double expected = decode(c, 8, 7, 127);
            if (brain != expected || signbit(brain) != signbit(expected)) fail_msg("bf16 %04x", c);
            assert_int_equal(bt_f32_to_bf16((float)brain), c);
        } else {
            assert_true((c & 127) == 0 ? isinf(brain) : isnan(brain));
        }
    }
    for (unsigned c = 0; c < 256; c++) {
        double v = (double)bt_f8_e4m3_to_f32((uint8_t)c);
        if ((c & 127) == 127) {
            assert_true(isnan(v));
            continue;
        }
        double expected = decode(c, 4, 3, 7);
        if (v != expected || signbit(v) != signbit(expected)) fail_msg("e4m3 %02x", c);
        assert_int_equal(bt_f32_to_f8_e4m3((float)v), c);
    }
    assert_true(bt_f8_e4m3_to_f32(0x7e) == 448.0f);
}

/* The nearest of the finite codes 0..n_codes-1 (ascending), ties to the even code. */
static unsigned nearest(double x, unsigned n_codes, unsigned n_exponent, unsigned n_mantissa, int bias)
{
    unsigned low = 0, high = n_codes - 1;
    while (low + 1 < high) { /* value(low) <= x < value(high), but at the ends */
        unsigned middle = (low + high) / 2;
        if (decode(middle, n_exponent, n_mantissa, bias) <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = x - decode(low, n_exponent, n_mantissa, bias),
           above = decode(high, n_exponent, n_mantissa, bias) - x;
    if (below == above) return low % 2 == 0 ? low : high;
    return below < above ? low : high;
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        uint64_t r = bt_rng_u64(5, i);
        float x;
        uint32_t bits = (uint32_t)(r & 0x7fffffffu);
        if (i % 2 == 1) { /* halfway between two codes, or next to it */
            bits = (bits & 0x7ffff000u) + (uint32_t)(r >> 40) % 3 - 1;
        }
        bits = (bits & 0x007fffffu) | ((bits >> 23) % 40 + 100) << 23; /* exponents where the formats live */
        memcpy(&x, &bits, sizeof x);
        double v = (double)x;
        unsigned half = bt_f32_to_f16(x), small = bt_f32_to_f8_e4m3(x), brain = bt_f32_to_bf16(x);
        unsigned expected = v >= 65520 ? 0x7c00 : nearest(v, 0x7c00, 5, 10, 15);
        if (half != expected) fail_msg("f16 of %a: %04x, expected %04x", v, half, expected);
        expected = v >= 448 ? 0x7e : nearest(v, 0x7f, 4, 3, 7);
        if (small != expected) fail_msg("e4m3 of %a: %02x, expected %02x", v, small, expected);
        expected = nearest(v, 0x7f80, 8, 7, 127);
        if (brain != expected) fail_msg("bf16 of %a: %04x, expected %04x", v, brain, expected);
        assert_int_equal(bt_f32_to_f16(-x), half | 0x8000);
        assert_int_equal(bt_f32_to_f8_e4m3(-x), small | 0x80);
        assert_int_equal(bt_f32_to_bf16(-x), brain | 0x8000);
    }
}

static void specials(void **state)
{
    (void)state;
    assert_int_equal(bt_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(bt_f32_to_bf16(3.4e38f), 0x7f80); /* rounds up to infinity, as IEEE says */
    assert_int_equal(bt_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(bt_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(bt_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(bt_f32_to_f8_e4m3(INFINITY), 0x7e);
    assert_int_equal(bt_f32_to_f8_e4m3(-1e9f), 0xfe);
    assert_int_equal(bt_f32_to_f8_e4m3(0.0f), 0);
    assert_int_equal(bt_f32_to_f8_e4m3(-0.0f), 0x80);
    assert_int_equal(bt_f32_to_f16(1e-10f), 0);
    uint32_t quiet = 0x7f800001u; /* a NaN whose upper half alone would be infinity */
    float nan;
    memcpy(&nan, &quiet, sizeof nan);
    assert_true(isnan(bt_bf16_to_f32(bt_f32_to_bf16(nan))));
    assert_true(isnan(bt_f16_to_f32(bt_f32_to_f16(nan))));
    assert_true(isnan(bt_f8_e4m3_to_f32(bt_f32_to_f8_e4m3(nan))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_widths),
        cmocka_unit_test(every_code_decodes),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(specials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
