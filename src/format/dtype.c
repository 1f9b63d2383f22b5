/*
 * Dtypes: one table, and conversions written out in integer arithmetic. These scalar forms define what every kernel
 * must reproduce bit for bit, so they favour being checkable over being fast.
 */
#include "format/dtype.h"

#include <assert.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "baltoro uses weights in place, as little-endian bytes: big-endian hosts are not supported"
#endif

static const struct {
    const char *name;
    unsigned bits;
} dtypes[BT_N_DTYPES] = {
    [BT_F32] = {"F32", 32},
    [BT_F16] = {"F16", 16},
    [BT_BF16] = {"BF16", 16},
    [BT_F8_E4M3] = {"F8_E4M3", 8},
    [BT_MXFP4] = {"MXFP4", 4},
    [BT_F64] = {"F64", 64},
    [BT_F8_E5M2] = {"F8_E5M2", 8},
    [BT_F8_E8M0] = {"F8_E8M0", 8},
    [BT_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [BT_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [BT_F4] = {"F4", 4},
    [BT_F6_E2M3] = {"F6_E2M3", 6},
    [BT_F6_E3M2] = {"F6_E3M2", 6},
    [BT_BOOL] = {"BOOL", 8},
    [BT_U8] = {"U8", 8},
    [BT_I8] = {"I8", 8},
    [BT_U16] = {"U16", 16},
    [BT_I16] = {"I16", 16},
    [BT_U32] = {"U32", 32},
    [BT_I32] = {"I32", 32},
    [BT_U64] = {"U64", 64},
    [BT_I64] = {"I64", 64},
    [BT_C64] = {"C64", 64},
    [BT_DTYPE_UNKNOWN] = {"unknown", 0},
};

const char *bt_dtype_name(bt_dtype t)
{
    assert((unsigned)t < BT_N_DTYPES);
    return dtypes[t].name;
}

bt_dtype bt_dtype_parse(const char *s, size_t n)
{
    for (unsigned t = 0; t < BT_DTYPE_UNKNOWN; t++) {
        if (t == BT_MXFP4) continue; /* a view of two tensors, which no header names */
        if (strlen(dtypes[t].name) == n && memcmp(dtypes[t].name, s, n) == 0) return (bt_dtype)t;
    }
    return BT_DTYPE_UNKNOWN;
}

unsigned bt_dtype_bits(bt_dtype t)
{
    assert((unsigned)t < BT_N_DTYPES);
    return dtypes[t].bits;
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

float bt_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;
    if (exponent == 31) return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) { /* zero or subnormal: mantissa times 2^-24, exact */
        float x = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -x : x;
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

float bt_bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

float bt_f8_e4m3_to_f32(uint8_t c)
{
    uint32_t sign = (uint32_t)(c & 0x80u) << 24, exponent = c >> 3 & 0xfu, mantissa = c & 7u;
    if ((c & 0x7fu) == 0x7fu) return float_of(sign | 0x7fc00000u);
    if (exponent == 0) {
        float x = (float)mantissa * 0x1p-9f;
        return sign != 0 ? -x : x;
    }
    return float_of(sign | (exponent + 120) << 23 | mantissa << 20);
}

float bt_e2m1_to_f32(uint8_t code)
{
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float x = values[code & 7u];
    return (code & 8u) != 0 ? -x : x;
}

float bt_e8m0_to_f32(uint8_t c)
{
    if (c == 255) return float_of(0x7fc00000u);
    return c == 0 ? 0x1p-127f : float_of((uint32_t)c << 23);
}

uint16_t bt_f32_to_bf16(float x)
{
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u); /* quiet, never rounded up to infinity */
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

uint16_t bt_f32_to_f16(float x)
{
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (u >> 13 & 0x3ffu));
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more round to infinity */
    if (u < 0x38800000u) { /* below 2^-14: adding 0.5 leaves units of 2^-24, rounded to nearest even */
        return (uint16_t)(sign | (bits_of(float_of(u) + 0.5f) - bits_of(0.5f)));
    }
    u += 0xfffu + (u >> 13 & 1u);
    return (uint16_t)(sign | ((u >> 13) - (112u << 10)));
}

uint8_t bt_f32_to_f8_e4m3(float x)
{
    uint32_t u = bits_of(x), sign = u >> 24 & 0x80u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (u >= 0x43e00000u) return (uint8_t)(sign | 0x7eu); /* 448 and more */
    if (u < 0x3c800000u) {                                /* below 2^-6: adding 2^14 leaves units of 2^-9 */
        return (uint8_t)(sign | (bits_of(float_of(u) + 0x1p14f) - bits_of(0x1p14f)));
    }
    u += 0x7ffffu + (u >> 20 & 1u);
    return (uint8_t)(sign | ((u >> 20) - (120u << 3)));
}
