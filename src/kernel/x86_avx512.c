/*
 * Level avx512 (F, BW, DQ, VL, on top of AVX2, FMA and F16C): the vector
 * operations, 16 lanes wide. The kernels themselves are in the vector_*.inc
 * files, written once for every width.
 *
 * Register plan of a tile: 4 weight rows x 6 tokens = 24 accumulators, 4 weight
 * vectors, 1 activation vector of 32.
 */
#include "kernel/kernels.h"

#if defined(__x86_64__)

#    include "kernel/math64.h"
#    include "kernel/route.h"

#    include <assert.h>
#    include <immintrin.h>
#    include <math.h>
#    include <string.h>

#    define W           16u                 /* lanes of a vector */
#    define TILE_R      4u                  /* weight rows of a tile */
#    define TILE_T      6u                  /* tokens of a tile */
#    define BLOCK_BYTES ((size_t)384 << 10) /* of weights, to stay in the L2 while tokens pass */
#    define LEVEL       BT_CPU_AVX512

#    define ROWS(F)       F(0) F(1) F(2) F(3)
#    define ROWS_OF(F, t) F(0, t) F(1, t) F(2, t) F(3, t)
#    define FOLD_ROWS(t)  fold_4(a0##t, a1##t, a2##t, a3##t)
#    define TOKENS_1(F)   F(0)
#    define TOKENS_2(F)   F(0) F(1)
#    define TOKENS_3(F)   F(0) F(1) F(2)
#    define TOKENS_4(F)   F(0) F(1) F(2) F(3)
#    define TOKENS_5(F)   F(0) F(1) F(2) F(3) F(4)
#    define TOKENS_6(F)   F(0) F(1) F(2) F(3) F(4) F(5)

typedef __m512 vf;

static inline __mmask16 first_lanes(size_t n)
{
    return (__mmask16)((1u << n) - 1u);
} /* n <= 16 */

static inline vf vf_set1(float a)
{
    return _mm512_set1_ps(a);
}
static inline vf vf_load(const void *p)
{
    return _mm512_loadu_ps(p);
}
static inline vf vf_load_n(const void *p, size_t n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
static inline void vf_store(void *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
static inline void vf_store_n(void *p, vf a, size_t n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), a);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
} /* a b + c */
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
} /* c - a b */
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
} /* b where either is NaN */
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
} /* b where either is NaN */
static inline vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_minus_abs(vf a)
{
    return _mm512_or_ps(a, _mm512_set1_ps(-0.0f));
}

/* The lanes of a where x has its sign set, else those of b. */
static inline vf vf_if_negative(vf x, vf a, vf b)
{
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), b, a);
}

/* y 2^n for whole n, rounded once, with overflow to infinity and gradual
 * underflow */
static inline vf vf_scale2(vf y, vf n)
{
    return _mm512_scalef_ps(y, n);
}

/* The one order in which 16 lanes become a number: i + (i + 8), then 4, 2, 1
 * apart. Here for four vectors at once. */
static inline __m128 fold_to_4(vf a)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

/* ---- weights and caches of two bytes and one ---- */

static inline float f32_of_f16(uint16_t h)
{
    return _cvtsh_ss(h);
}
static inline vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline vf vf_load_f16_n(const void *p, size_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

static inline vf widen_bf16_vector(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static inline vf vf_load_bf16(const void *p)
{
    return widen_bf16_vector(_mm256_loadu_si256(p));
}
static inline vf vf_load_bf16_n(const void *p, size_t n)
{
    return widen_bf16_vector(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

/*
 * FP8 E4M3 through f16, whose conversion takes denormals without a stall. A
 * sign-extended code moved up seven places is s s eeee mmm 0000000: the f16 of
 * code / 256, but for bit 14, which repeats the sign and should be 0. Adding
 * 0x80 changes that bit for magnitude 0x7f alone, which is NaN; so bit 14 of
 * the difference is what an f16 wants there.
 */
static inline __m512i f16_of_f8(__m256i codes)
{
    __m512i c = _mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7);
    __m512i carry = _mm512_add_epi16(c, _mm512_set1_epi16(0x80));
    return _mm512_ternarylogic_epi32(c, carry, _mm512_set1_epi16(0x4000), 0x78); /* c ^ (carry & 0x4000) */
}

/* 2 W codes, each divided by 256 */
static inline void vf_load_f8_pair(const void *p, vf *lo, vf *hi)
{
    __m512i h = f16_of_f8(_mm256_loadu_si256(p));
    *lo = _mm512_cvtph_ps(_mm512_castsi512_si256(h));
    *hi = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1));
}

static inline vf vf_load_f8_n(const void *p, size_t n) /* n <= W codes, each divided by 256 */
{
    __m128i c = _mm_maskz_loadu_epi8(first_lanes(n), p);
    return _mm512_cvtph_ps(_mm512_castsi512_si256(f16_of_f8(_mm256_castsi128_si256(c))));
}

static inline void vf_store_f16_n(void *p, vf a, size_t n)
{
    _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Nearest even by adding just under half of the last place; NaN keeps its top
 * bits and becomes quiet. */
static inline void vf_store_bf16_n(void *p, vf a, size_t n)
{
    __m512i b = _mm512_castps_si512(a), top = _mm512_srli_epi32(b, 16);
    __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(b, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, is_nan, top, _mm512_set1_epi32(0x40));
    _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtepi32_epi16(r));
}

/*
 * MXFP4: the low four bits of a 32-bit index choose from 16 values, so the byte
 * as it is gives the 16 even columns of a block, and moved down by four the odd
 * ones. The values of every scale are a table: loads are free here, a product
 * for every block is not.
 */
#    define FP4_SIGNED(s, sign)                                                                                        \
        sign 0.0f, sign 0.5f * (s), sign 1.0f * (s), sign 1.5f * (s), sign 2.0f * (s), sign 3.0f * (s),                \
            sign 4.0f * (s), sign 6.0f * (s)
#    define FP4_ROW(s)                                                                                                 \
        {                                                                                                              \
            FP4_SIGNED(s, +), FP4_SIGNED(s, -)                                                                         \
        }
#    define FP4_ROWS_4(s)  FP4_ROW(s), FP4_ROW(2.0f * (s)), FP4_ROW(4.0f * (s)), FP4_ROW(8.0f * (s))
#    define FP4_ROWS_16(s) FP4_ROWS_4(s), FP4_ROWS_4(0x1p4f * (s)), FP4_ROWS_4(0x1p8f * (s)), FP4_ROWS_4(0x1p12f * (s))
#    define FP4_ROWS_64(s)                                                                                             \
        FP4_ROWS_16(s), FP4_ROWS_16(0x1p16f * (s)), FP4_ROWS_16(0x1p32f * (s)), FP4_ROWS_16(0x1p48f * (s))
#    define FP4_TOP(sign)   sign 0.0f, sign 0x1p125f, sign 0x1p126f, sign 0x1.8p126f, sign 0x1p127f, sign 0x1.8p127f
#    define FP4_LAST(sign)  sign 0.0f, sign 0x1p126f, sign 0x1p127f, sign 0x1.8p127f
#    define FP4_INF_2(sign) sign INFINITY, sign INFINITY
#    define FP4_NAN_4       NAN, NAN, NAN, NAN

static const float fp4_values[256][16] = {
    FP4_ROWS_64(0x1p-127f),
    FP4_ROWS_64(0x1p-63f),
    FP4_ROWS_64(0x1p1f),
    FP4_ROWS_16(0x1p65f),
    FP4_ROWS_16(0x1p81f),
    FP4_ROWS_16(0x1p97f),
    FP4_ROWS_4(0x1p113f),
    FP4_ROWS_4(0x1p117f),
    FP4_ROWS_4(0x1p121f),
    FP4_ROW(0x1p125f),
    {FP4_TOP(+), FP4_INF_2(+), FP4_TOP(-), FP4_INF_2(-)},
    {FP4_LAST(+), FP4_INF_2(+), FP4_INF_2(+), FP4_LAST(-), FP4_INF_2(-), FP4_INF_2(-)},
    {FP4_NAN_4, FP4_NAN_4, FP4_NAN_4, FP4_NAN_4},
};

typedef struct fp4_block {
    __m512i codes;
    vf values;
} fp4_block;

#    define FP4_PARTS(F) F(0) F(1)

static inline fp4_block fp4_open(const uint8_t *codes, uint8_t scale)
{
    return (fp4_block){_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes)), vf_load(fp4_values[scale])};
}

static inline vf fp4_part(const fp4_block *b, size_t part)
{
    return _mm512_permutexvar_ps(part == 0 ? b->codes : _mm512_srli_epi32(b->codes, 4), b->values);
}

static inline void fp4_arrange(float *y, const float *x)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
    const vf lo = vf_load(x), hi = vf_load(x + W);
    vf_store(y, _mm512_permutex2var_ps(lo, even, hi));
    vf_store(y + W, _mm512_permutex2var_ps(lo, odd, hi));
}

/* ---- f64 ---- */

static inline __m512d low_f64(vf a)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(a));
}
static inline __m512d high_f64(vf a)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
}

static double sum_products(const float *x, const float *y, size_t n)
{
    __m512d s0 = _mm512_setzero_pd(), s1 = s0;
    for (size_t i = 0; i < n; i += W) {
        const vf a = n - i < W ? vf_load_n(x + i, n - i) : vf_load(x + i);
        const vf b = n - i < W ? vf_load_n(y + i, n - i) : vf_load(y + i);
        s0 = _mm512_fmadd_pd(low_f64(a), low_f64(b), s0);
        s1 = _mm512_fmadd_pd(high_f64(a), high_f64(b), s1);
    }
    s0 = _mm512_add_pd(s0, s1);
    __m256d q = _mm256_add_pd(_mm512_castpd512_pd256(s0), _mm512_extractf64x4_pd(s0, 1));
    __m128d h = _mm_add_pd(_mm256_castpd256_pd128(q), _mm256_extractf128_pd(q, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}

/* x r, computed in f64, rounded once */
static inline vf vf_mul_f64(vf x, double r)
{
    __m512d rr = _mm512_set1_pd(r);
    __m256 lo = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(x)), rr));
    __m256 hi = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)), rr));
    return _mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1);
}

#    include "kernel/vector_math.inc"

#    include "kernel/vector_tile.inc"

DEFINE_TILE_DOT(tile_dot_f32_1, TOKENS_1, BT_F32)
DEFINE_TILE_DOT(tile_dot_f32_2, TOKENS_2, BT_F32)
DEFINE_TILE_DOT(tile_dot_f32_3, TOKENS_3, BT_F32)
DEFINE_TILE_DOT(tile_dot_f32_4, TOKENS_4, BT_F32)
DEFINE_TILE_DOT(tile_dot_f32_5, TOKENS_5, BT_F32)
DEFINE_TILE_DOT(tile_dot_f32_6, TOKENS_6, BT_F32)
DEFINE_TILE_DOT(tile_dot_f16_1, TOKENS_1, BT_F16)
DEFINE_TILE_DOT(tile_dot_f16_2, TOKENS_2, BT_F16)
DEFINE_TILE_DOT(tile_dot_f16_3, TOKENS_3, BT_F16)
DEFINE_TILE_DOT(tile_dot_f16_4, TOKENS_4, BT_F16)
DEFINE_TILE_DOT(tile_dot_f16_5, TOKENS_5, BT_F16)
DEFINE_TILE_DOT(tile_dot_f16_6, TOKENS_6, BT_F16)
DEFINE_TILE_DOT(tile_dot_bf16_1, TOKENS_1, BT_BF16)
DEFINE_TILE_DOT(tile_dot_bf16_2, TOKENS_2, BT_BF16)
DEFINE_TILE_DOT(tile_dot_bf16_3, TOKENS_3, BT_BF16)
DEFINE_TILE_DOT(tile_dot_bf16_4, TOKENS_4, BT_BF16)
DEFINE_TILE_DOT(tile_dot_bf16_5, TOKENS_5, BT_BF16)
DEFINE_TILE_DOT(tile_dot_bf16_6, TOKENS_6, BT_BF16)
DEFINE_TILE_DOT(tile_dot_f8_1, TOKENS_1, BT_F8_E4M3)
DEFINE_TILE_DOT(tile_dot_f8_2, TOKENS_2, BT_F8_E4M3)
DEFINE_TILE_DOT(tile_dot_f8_3, TOKENS_3, BT_F8_E4M3)
DEFINE_TILE_DOT(tile_dot_f8_4, TOKENS_4, BT_F8_E4M3)
DEFINE_TILE_DOT(tile_dot_f8_5, TOKENS_5, BT_F8_E4M3)
DEFINE_TILE_DOT(tile_dot_f8_6, TOKENS_6, BT_F8_E4M3)
DEFINE_TILE_VALUE(tile_value_f32_1, TOKENS_1, BT_F32)
DEFINE_TILE_VALUE(tile_value_f32_2, TOKENS_2, BT_F32)
DEFINE_TILE_VALUE(tile_value_f32_3, TOKENS_3, BT_F32)
DEFINE_TILE_VALUE(tile_value_f32_4, TOKENS_4, BT_F32)
DEFINE_TILE_VALUE(tile_value_f32_5, TOKENS_5, BT_F32)
DEFINE_TILE_VALUE(tile_value_f32_6, TOKENS_6, BT_F32)
DEFINE_TILE_VALUE(tile_value_f16_1, TOKENS_1, BT_F16)
DEFINE_TILE_VALUE(tile_value_f16_2, TOKENS_2, BT_F16)
DEFINE_TILE_VALUE(tile_value_f16_3, TOKENS_3, BT_F16)
DEFINE_TILE_VALUE(tile_value_f16_4, TOKENS_4, BT_F16)
DEFINE_TILE_VALUE(tile_value_f16_5, TOKENS_5, BT_F16)
DEFINE_TILE_VALUE(tile_value_f16_6, TOKENS_6, BT_F16)
DEFINE_TILE_VALUE(tile_value_bf16_1, TOKENS_1, BT_BF16)
DEFINE_TILE_VALUE(tile_value_bf16_2, TOKENS_2, BT_BF16)
DEFINE_TILE_VALUE(tile_value_bf16_3, TOKENS_3, BT_BF16)
DEFINE_TILE_VALUE(tile_value_bf16_4, TOKENS_4, BT_BF16)
DEFINE_TILE_VALUE(tile_value_bf16_5, TOKENS_5, BT_BF16)
DEFINE_TILE_VALUE(tile_value_bf16_6, TOKENS_6, BT_BF16)

/* By dtype and number of tokens. */
static tile_dot_fn *const tile_dot[BT_N_WEIGHT_DTYPES][TILE_T + 1] = {
    {NULL, tile_dot_f32_1, tile_dot_f32_2, tile_dot_f32_3, tile_dot_f32_4, tile_dot_f32_5, tile_dot_f32_6},
    {NULL, tile_dot_f16_1, tile_dot_f16_2, tile_dot_f16_3, tile_dot_f16_4, tile_dot_f16_5, tile_dot_f16_6},
    {NULL, tile_dot_bf16_1, tile_dot_bf16_2, tile_dot_bf16_3, tile_dot_bf16_4, tile_dot_bf16_5, tile_dot_bf16_6},
    {NULL, tile_dot_f8_1, tile_dot_f8_2, tile_dot_f8_3, tile_dot_f8_4, tile_dot_f8_5, tile_dot_f8_6},
};
static tile_value_fn *const tile_value[BT_N_WEIGHT_DTYPES][TILE_T + 1] = {
    {NULL, tile_value_f32_1, tile_value_f32_2, tile_value_f32_3, tile_value_f32_4, tile_value_f32_5, tile_value_f32_6},
    {NULL, tile_value_f16_1, tile_value_f16_2, tile_value_f16_3, tile_value_f16_4, tile_value_f16_5, tile_value_f16_6},
    {NULL, tile_value_bf16_1, tile_value_bf16_2, tile_value_bf16_3, tile_value_bf16_4, tile_value_bf16_5,
     tile_value_bf16_6},
};

/* One token: rows taken together, and how far ahead of each memory is asked.
 * Two chains of sixteen lanes are enough, and two streams are what memory likes
 * best; FP8 has operations enough to need four. */
ALWAYS_INLINE size_t gemv_runs(bt_dtype d)
{
    return d == BT_F8_E4M3 ? 4 : 2;
}
ALWAYS_INLINE size_t gemv_ahead(bt_dtype d)
{
    return d == BT_F8_E4M3 ? PREFETCH : 2 * PREFETCH;
}

#    include "kernel/vector_linear.inc"

#    define FP4_TILE_PARTS(TOKENS) FP4_TILE_PART(0, TOKENS) FP4_TILE_PART(1, TOKENS)
#    include "kernel/vector_mxfp4.inc"

DEFINE_FP4_TILE(fp4_tile_1, TOKENS_1)
DEFINE_FP4_TILE(fp4_tile_2, TOKENS_2)
DEFINE_FP4_TILE(fp4_tile_3, TOKENS_3)
DEFINE_FP4_TILE(fp4_tile_4, TOKENS_4)
DEFINE_FP4_TILE(fp4_tile_5, TOKENS_5)
static fp4_tile_fn *const fp4_tile[FP4_TILE_T + 1] = {NULL, fp4_tile_1, fp4_tile_2, fp4_tile_3, fp4_tile_4, fp4_tile_5};

#    include "kernel/vector_attn.inc"

#    include "kernel/vector_kimi.inc"

#    include "kernel/vector_entries.inc"

void bt_kernels_add_avx512(bt_kernels *k)
{
    add_entries(k);
}

#else
typedef int bt_x86_avx512_is_empty;
#endif
