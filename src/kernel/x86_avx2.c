/*
 * Level avx2 (with FMA and F16C): the vector operations, 8 lanes wide. The
 * kernels themselves are in the vector_*.inc files, written once for every
 * width.
 *
 * Register plan of a tile: 3 weight rows x 4 tokens = 12 accumulators, 3 weight
 * vectors, 1 activation vector: all 16. There are masked loads for 4-byte
 * elements only; shorter tails go through a small buffer, so that nothing past
 * the end is read.
 */
#include "kernel/kernels.h"

#if defined(__x86_64__)

#    include "kernel/math64.h"
#    include "kernel/route.h"

#    include <assert.h>
#    include <immintrin.h>
#    include <math.h>
#    include <string.h>

#    define W           8u                  /* lanes of a vector */
#    define TILE_R      3u                  /* weight rows of a tile */
#    define TILE_T      4u                  /* tokens of a tile */
#    define BLOCK_BYTES ((size_t)256 << 10) /* of weights, to stay in the L2 while tokens pass */
#    define LEVEL       BT_CPU_AVX2

#    define ROWS(F)       F(0) F(1) F(2)
#    define ROWS_OF(F, t) F(0, t) F(1, t) F(2, t)
#    define FOLD_ROWS(t)  fold_4(a0##t, a1##t, a2##t, vf_set1(0))
#    define TOKENS_1(F)   F(0)
#    define TOKENS_2(F)   F(0) F(1)
#    define TOKENS_3(F)   F(0) F(1) F(2)
#    define TOKENS_4(F)   F(0) F(1) F(2) F(3)

typedef __m256 vf;

static inline __m256i first_lanes(size_t n) /* n <= 8 */
{
    static const int32_t mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(mask + 8 - n));
}

static inline vf vf_set1(float a)
{
    return _mm256_set1_ps(a);
}
static inline vf vf_load(const void *p)
{
    return _mm256_loadu_ps(p);
}
static inline vf vf_load_n(const void *p, size_t n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}
static inline void vf_store(void *p, vf a)
{
    _mm256_storeu_ps(p, a);
}
static inline void vf_store_n(void *p, vf a, size_t n)
{
    _mm256_maskstore_ps(p, first_lanes(n), a);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
} /* a b + c */
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
} /* c - a b */
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
} /* b where either is NaN */
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
} /* b where either is NaN */
static inline vf vf_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_minus_abs(vf a)
{
    return _mm256_or_ps(a, _mm256_set1_ps(-0.0f));
}

/* The lanes of a where x has its sign set, else those of b. */
static inline vf vf_if_negative(vf x, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, x);
}

/* 2^n for whole n in [-126, 127] */
static inline vf two_to(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* y 2^n for whole n in [-252, 254]: in two factors, of which the first is exact
 * for y in [1/2, 2]. So it is rounded once, with overflow to infinity and
 * gradual underflow. */
static inline vf vf_scale2(vf y, vf n)
{
    __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);
    return _mm256_mul_ps(_mm256_mul_ps(y, two_to(half)), two_to(_mm256_sub_epi32(i, half)));
}

/* The one order in which 8 lanes become a number: i + (i + 4), then 2, 1 apart.
 */
static inline __m128 fold_to_4(vf a)
{
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}

/* ---- weights and caches of two bytes and one ---- */

static inline __m128i load_bytes(const void *p, size_t n) /* n <= 16, zeros after them */
{
    char buffer[16] = {0};
    memcpy(buffer, p, n);
    return _mm_loadu_si128((const __m128i *)buffer);
}

static inline float f32_of_f16(uint16_t h)
{
    return _cvtsh_ss(h);
}
static inline vf vf_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
static inline vf vf_load_f16_n(const void *p, size_t n)
{
    return _mm256_cvtph_ps(load_bytes(p, 2 * n));
}

static inline vf widen_bf16_vector(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline vf vf_load_bf16(const void *p)
{
    return widen_bf16_vector(_mm_loadu_si128(p));
}
static inline vf vf_load_bf16_n(const void *p, size_t n)
{
    return widen_bf16_vector(load_bytes(p, 2 * n));
}

/*
 * FP8 E4M3 through f16, whose conversion takes denormals without a stall. A
 * sign-extended code moved up seven places is s s eeee mmm 0000000: the f16 of
 * code / 256, but for bit 14, which repeats the sign and should be 0. Adding
 * 0x80 changes that bit for magnitude 0x7f alone, which is NaN; so bit 14 of
 * the difference is what an f16 wants there.
 */
static inline __m256i f16_of_f8(__m128i codes)
{
    __m256i c = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    __m256i carry = _mm256_add_epi16(c, _mm256_set1_epi16(0x80));
    return _mm256_xor_si256(c, _mm256_and_si256(carry, _mm256_set1_epi16(0x4000)));
}

/* 2 W codes, each divided by 256 */
static inline void vf_load_f8_pair(const void *p, vf *lo, vf *hi)
{
    __m256i h = f16_of_f8(_mm_loadu_si128(p));
    *lo = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    *hi = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}

static inline vf vf_load_f8_n(const void *p, size_t n) /* n <= W codes, each divided by 256 */
{
    __m128i c = n == W ? _mm_loadl_epi64(p) : load_bytes(p, n);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(f16_of_f8(c)));
}

static inline void store_words(void *p, __m128i words, size_t n)
{
    char buffer[16];
    _mm_storeu_si128((__m128i *)buffer, words);
    memcpy(p, buffer, 2 * n);
}

static inline void vf_store_f16_n(void *p, vf a, size_t n)
{
    store_words(p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
}

/* Nearest even by adding just under half of the last place; NaN keeps its top
 * bits and becomes quiet. */
static inline void vf_store_bf16_n(void *p, vf a, size_t n)
{
    __m256i b = _mm256_castps_si256(a), top = _mm256_srli_epi32(b, 16);
    __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), is_nan);
    store_words(p, _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)), n);
}

/*
 * MXFP4 through bf16, in which a code times its scale is exact: two look-ups
 * give the two bytes. One half of a register holds the even columns of a block,
 * the other the odd ones; so a vector has eight neighbours in the order 0 2 4 6
 * 1 3 5 7. The bytes for every scale are a table, like the values at avx512.
 */

/* The bf16 of magnitude c times 2^(s - 127), where it lies n eighths of a power
 * of two above the scale: infinite at the end, denormal for c of 1 to 3 at the
 * start. */
#    define FP4_BF16(s, c, n)                                                                                          \
        ((s) == 255                     ? 0x7fc0                                                                       \
         : (c) == 0                     ? 0                                                                            \
         : (s)*128 + 16 * (n) >= 0x7f80 ? 0x7f80                                                                       \
         : (s) == 0 && (c) < 4          ? 32 * (c)                                                                     \
         : (s) == 1 && (c) == 1         ? 64                                                                           \
                                        : (s)*128 + 16 * (n))
#    define FP4_BYTE(x, sign, shift) (uint8_t)(((x) | (sign)) >> (shift)&255)
#    define FP4_BYTES(s, sign, shift)                                                                                  \
        FP4_BYTE(FP4_BF16(s, 0, 0), sign, shift), FP4_BYTE(FP4_BF16(s, 1, -8), sign, shift),                           \
            FP4_BYTE(FP4_BF16(s, 2, 0), sign, shift), FP4_BYTE(FP4_BF16(s, 3, 4), sign, shift),                        \
            FP4_BYTE(FP4_BF16(s, 4, 8), sign, shift), FP4_BYTE(FP4_BF16(s, 5, 12), sign, shift),                       \
            FP4_BYTE(FP4_BF16(s, 6, 16), sign, shift), FP4_BYTE(FP4_BF16(s, 7, 20), sign, shift)
#    define FP4_ROW(s)                                                                                                 \
        {                                                                                                              \
            FP4_BYTES(s, 0, 0), FP4_BYTES(s, 0x8000, 0), FP4_BYTES(s, 0, 8), FP4_BYTES(s, 0x8000, 8)                   \
        }
#    define FP4_ROWS_4(s)  FP4_ROW(s), FP4_ROW((s) + 1), FP4_ROW((s) + 2), FP4_ROW((s) + 3)
#    define FP4_ROWS_16(s) FP4_ROWS_4(s), FP4_ROWS_4((s) + 4), FP4_ROWS_4((s) + 8), FP4_ROWS_4((s) + 12)
#    define FP4_ROWS_64(s) FP4_ROWS_16(s), FP4_ROWS_16((s) + 16), FP4_ROWS_16((s) + 32), FP4_ROWS_16((s) + 48)

static const uint8_t fp4_bytes[256][32] = {FP4_ROWS_64(0), FP4_ROWS_64(64), FP4_ROWS_64(128), FP4_ROWS_64(192)};

typedef struct fp4_block {
    __m256i low, high; /* bf16 of columns 0 to 15, of 16 to 31 */
} fp4_block;

#    define FP4_PARTS(F) F(0) F(1) F(2) F(3)

static inline __m256i both_halves(const uint8_t *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}

static inline fp4_block fp4_open(const uint8_t *codes, uint8_t scale)
{
    const __m256i shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    const __m256i c = _mm256_and_si256(_mm256_srlv_epi32(both_halves(codes), shift), _mm256_set1_epi8(15));
    const __m256i low = _mm256_shuffle_epi8(both_halves(fp4_bytes[scale]), c);
    const __m256i high = _mm256_shuffle_epi8(both_halves(fp4_bytes[scale] + 16), c);
    return (fp4_block){_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
}

static inline vf fp4_part(const fp4_block *b, size_t part)
{
    const __m256i zero = _mm256_setzero_si256(), half = part < 2 ? b->low : b->high;
    return _mm256_castsi256_ps(part % 2 == 0 ? _mm256_unpacklo_epi16(zero, half) : _mm256_unpackhi_epi16(zero, half));
}

static inline void fp4_arrange(float *y, const float *x)
{
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    for (size_t i = 0; i < BT_MXFP4_BLOCK; i += W) vf_store(y + i, _mm256_permutevar8x32_ps(vf_load(x + i), order));
}

/* ---- f64 ---- */

static inline __m256d low_f64(vf a)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(a));
}
static inline __m256d high_f64(vf a)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
}

static double sum_products(const float *x, const float *y, size_t n)
{
    __m256d s0 = _mm256_setzero_pd(), s1 = s0;
    for (size_t i = 0; i < n; i += W) {
        const vf a = n - i < W ? vf_load_n(x + i, n - i) : vf_load(x + i);
        const vf b = n - i < W ? vf_load_n(y + i, n - i) : vf_load(y + i);
        s0 = _mm256_fmadd_pd(low_f64(a), low_f64(b), s0);
        s1 = _mm256_fmadd_pd(high_f64(a), high_f64(b), s1);
    }
    s0 = _mm256_add_pd(s0, s1);
    __m128d h = _mm_add_pd(_mm256_castpd256_pd128(s0), _mm256_extractf128_pd(s0, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}

/* x r, computed in f64, rounded once */
static inline vf vf_mul_f64(vf x, double r)
{
    __m256d rr = _mm256_set1_pd(r);
    __m128 lo = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(x)), rr));
    __m128 hi = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)), rr));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(lo), hi, 1);
}

#    include "kernel/vector_math.inc"

#    include "kernel/vector_tile.inc"

DEFINE_TILE_DOT(tile_dot_f32_1, TOKENS_1, BT_F32)
DEFINE_TILE_DOT(tile_dot_f32_2, TOKENS_2, BT_F32)
DEFINE_TILE_DOT(tile_dot_f32_3, TOKENS_3, BT_F32)
DEFINE_TILE_DOT(tile_dot_f32_4, TOKENS_4, BT_F32)
DEFINE_TILE_DOT(tile_dot_f16_1, TOKENS_1, BT_F16)
DEFINE_TILE_DOT(tile_dot_f16_2, TOKENS_2, BT_F16)
DEFINE_TILE_DOT(tile_dot_f16_3, TOKENS_3, BT_F16)
DEFINE_TILE_DOT(tile_dot_f16_4, TOKENS_4, BT_F16)
DEFINE_TILE_DOT(tile_dot_bf16_1, TOKENS_1, BT_BF16)
DEFINE_TILE_DOT(tile_dot_bf16_2, TOKENS_2, BT_BF16)
DEFINE_TILE_DOT(tile_dot_bf16_3, TOKENS_3, BT_BF16)
DEFINE_TILE_DOT(tile_dot_bf16_4, TOKENS_4, BT_BF16)
DEFINE_TILE_DOT(tile_dot_f8_1, TOKENS_1, BT_F8_E4M3)
DEFINE_TILE_DOT(tile_dot_f8_2, TOKENS_2, BT_F8_E4M3)
DEFINE_TILE_DOT(tile_dot_f8_3, TOKENS_3, BT_F8_E4M3)
DEFINE_TILE_DOT(tile_dot_f8_4, TOKENS_4, BT_F8_E4M3)
DEFINE_TILE_VALUE(tile_value_f32_1, TOKENS_1, BT_F32)
DEFINE_TILE_VALUE(tile_value_f32_2, TOKENS_2, BT_F32)
DEFINE_TILE_VALUE(tile_value_f32_3, TOKENS_3, BT_F32)
DEFINE_TILE_VALUE(tile_value_f32_4, TOKENS_4, BT_F32)
DEFINE_TILE_VALUE(tile_value_f16_1, TOKENS_1, BT_F16)
DEFINE_TILE_VALUE(tile_value_f16_2, TOKENS_2, BT_F16)
DEFINE_TILE_VALUE(tile_value_f16_3, TOKENS_3, BT_F16)
DEFINE_TILE_VALUE(tile_value_f16_4, TOKENS_4, BT_F16)
DEFINE_TILE_VALUE(tile_value_bf16_1, TOKENS_1, BT_BF16)
DEFINE_TILE_VALUE(tile_value_bf16_2, TOKENS_2, BT_BF16)
DEFINE_TILE_VALUE(tile_value_bf16_3, TOKENS_3, BT_BF16)
DEFINE_TILE_VALUE(tile_value_bf16_4, TOKENS_4, BT_BF16)

/* By dtype and number of tokens. */
static tile_dot_fn *const tile_dot[BT_N_WEIGHT_DTYPES][TILE_T + 1] = {
    {NULL, tile_dot_f32_1, tile_dot_f32_2, tile_dot_f32_3, tile_dot_f32_4},
    {NULL, tile_dot_f16_1, tile_dot_f16_2, tile_dot_f16_3, tile_dot_f16_4},
    {NULL, tile_dot_bf16_1, tile_dot_bf16_2, tile_dot_bf16_3, tile_dot_bf16_4},
    {NULL, tile_dot_f8_1, tile_dot_f8_2, tile_dot_f8_3, tile_dot_f8_4},
};
static tile_value_fn *const tile_value[BT_N_WEIGHT_DTYPES][TILE_T + 1] = {
    {NULL, tile_value_f32_1, tile_value_f32_2, tile_value_f32_3, tile_value_f32_4},
    {NULL, tile_value_f16_1, tile_value_f16_2, tile_value_f16_3, tile_value_f16_4},
    {NULL, tile_value_bf16_1, tile_value_bf16_2, tile_value_bf16_3, tile_value_bf16_4},
};

/* One token: rows taken together, and how far ahead of each memory is asked.
 * Four chains hide the latency of eight lanes. */
ALWAYS_INLINE size_t gemv_runs(bt_dtype d)
{
    (void)d;
    return 4;
}
ALWAYS_INLINE size_t gemv_ahead(bt_dtype d)
{
    (void)d;
    return PREFETCH;
}

#    include "kernel/vector_linear.inc"

#    define FP4_TILE_PARTS(TOKENS)                                                                                     \
        FP4_TILE_PART(0, TOKENS)                                                                                       \
        FP4_TILE_PART(1, TOKENS) FP4_TILE_PART(2, TOKENS) FP4_TILE_PART(3, TOKENS)
#    include "kernel/vector_mxfp4.inc"

DEFINE_FP4_TILE(fp4_tile_1, TOKENS_1)
DEFINE_FP4_TILE(fp4_tile_2, TOKENS_2)
DEFINE_FP4_TILE(fp4_tile_3, TOKENS_3)
static fp4_tile_fn *const fp4_tile[FP4_TILE_T + 1] = {NULL, fp4_tile_1, fp4_tile_2, fp4_tile_3};

#    include "kernel/vector_attn.inc"

#    include "kernel/vector_kimi.inc"

#    include "kernel/vector_entries.inc"

void bt_kernels_add_avx2(bt_kernels *k)
{
    add_entries(k);
}

#else
typedef int bt_x86_avx2_is_empty;
#endif
