/*
 * Roofs of the machine: reading memory, multiplying in registers, a cache line's way between two threads. The loops
 * that need instruction sets carry them as a target attribute; they run only at levels that the CPU has.
 */
#include "bench.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#    include <immintrin.h>

#    define READ_LINES(p, o)                                                                                           \
        s0 = _mm256_xor_si256(s0, _mm256_loadu_si256((const __m256i *)((p) + (o))));                                   \
        s1 = _mm256_xor_si256(s1, _mm256_loadu_si256((const __m256i *)((p) + (o) + 32)));                              \
        s2 = _mm256_xor_si256(s2, _mm256_loadu_si256((const __m256i *)((p) + (o) + 64)));                              \
        s3 = _mm256_xor_si256(s3, _mm256_loadu_si256((const __m256i *)((p) + (o) + 96)));

__attribute__((target("avx2"))) static uint64_t read_avx2(const char *p, size_t n_bytes, size_t n_streams)
{
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
    size_t part = n_bytes / n_streams;
    for (size_t i = 0; i < part; i += 128) {
        READ_LINES(p, i)
        if (n_streams == 1) continue;
        READ_LINES(p + part, i)
        if (n_streams == 2) continue;
        READ_LINES(p + 2 * part, i)
        READ_LINES(p + 3 * part, i)
    }
    s0 = _mm256_xor_si256(_mm256_xor_si256(s0, s1), _mm256_xor_si256(s2, s3));
    return (uint64_t)_mm256_extract_epi64(s0, 0) ^ (uint64_t)_mm256_extract_epi64(s0, 1);
}

#    define CHAINS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#    define N_CHAINS  12

#    define BEGIN_256(i) __m256 a##i = _mm256_set1_ps((float)(i));
#    define STEP_256(i)  a##i = _mm256_fmadd_ps(a##i, m, c);
#    define SUM_256(i)   c = _mm256_add_ps(c, a##i);
__attribute__((target("avx2,fma"))) static float fma_avx2(size_t n_steps)
{
    __m256 m = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(0.001f);
    CHAINS(BEGIN_256)
    for (size_t n = 0; n < n_steps; n++) {
        CHAINS(STEP_256)
    }
    CHAINS(SUM_256)
    return _mm256_cvtss_f32(c);
}

#    define BEGIN_512(i) __m512 a##i = _mm512_set1_ps((float)(i));
#    define STEP_512(i)  a##i = _mm512_fmadd_ps(a##i, m, c);
#    define SUM_512(i)   c = _mm512_add_ps(c, a##i);
__attribute__((target("avx512f"))) static float fma_avx512(size_t n_steps)
{
    __m512 m = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(0.001f);
    CHAINS(BEGIN_512)
    for (size_t n = 0; n < n_steps; n++) {
        CHAINS(STEP_512)
    }
    CHAINS(SUM_512)
    return _mm512_cvtss_f32(c);
}
#endif

static uint64_t read_plain(const char *p, size_t n_bytes)
{
    uint64_t s[4] = {0, 0, 0, 0}, v[4];
    for (size_t i = 0; i < n_bytes; i += sizeof v) {
        memcpy(v, p + i, sizeof v);
        for (size_t j = 0; j < 4; j++) s[j] ^= v[j];
    }
    return s[0] ^ s[1] ^ s[2] ^ s[3];
}

uint64_t roof_read(const void *p, size_t n_bytes, size_t n_streams)
{
    assert(n_streams == 1 || n_streams == 2 || n_streams == 4);
    assert(n_bytes % 4096 == 0);
#if defined(__x86_64__)
    if (bt_cpu_detect() >= BT_CPU_AVX2) return read_avx2(p, n_bytes, n_streams);
#endif
    return read_plain(p, n_bytes);
}

static float fma_plain(size_t n_steps)
{
    float a[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (size_t n = 0; n < n_steps; n++)
        for (size_t i = 0; i < 8; i++) a[i] = a[i] * 0.999f + 0.001f;
    return a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

double roof_fma(bt_cpu_level level, size_t n_steps)
{
    volatile float sink;
#if defined(__x86_64__)
    if (level >= BT_CPU_AVX512) {
        sink = fma_avx512(n_steps);
        return (double)n_steps * N_CHAINS * 16 * 2;
    }
    if (level >= BT_CPU_AVX2) {
        sink = fma_avx2(n_steps);
        return (double)n_steps * N_CHAINS * 8 * 2;
    }
#endif
    sink = fma_plain(n_steps);
    (void)sink;
    return (double)n_steps * 8 * 2;
}

/* ---- a cache line between two threads: tells near cores from far ones ---- */

static atomic_uint turn;

void ping_reset(void)
{
    atomic_store(&turn, 0);
}

void ping(size_t side)
{
    for (unsigned i = 0; i < PING_ROUNDS; i++) {
        unsigned mine = 2 * i + (unsigned)side;
        while (atomic_load_explicit(&turn, memory_order_acquire) != mine) {
        }
        atomic_store_explicit(&turn, mine + 1, memory_order_release);
    }
}
