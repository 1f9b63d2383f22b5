/* The limits' loops in 256-bit vectors; see kernel/cpu.h. */
#include "kernel/cpu.h"

#if defined(__x86_64__)

#    include <immintrin.h>

#    define N_CHAINS 12 /* two multiply-adds a cycle, each done after four or five */

static inline __m256i read_step(const uint8_t *p, __m256i sum)
{
    for (size_t i = 0; i < BT_READ_STEP; i += sizeof sum)
        sum = _mm256_xor_si256(sum, _mm256_loadu_si256((const void *)(p + i)));
    return sum;
}

static uint64_t read_avx2(const void *p, size_t bytes, size_t n_streams)
{
    const uint8_t *at = p;
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (size_t i = 0; i < bytes; i += BT_READ_STEP) {
        a = read_step(at + i, a);
        if (n_streams == 1) continue;
        b = read_step(at + bytes + i, b);
        if (n_streams == 2) continue;
        c = read_step(at + 2 * bytes + i, c);
        d = read_step(at + 3 * bytes + i, d);
    }
    a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    uint64_t words[sizeof a / 8], sum = 0;
    _mm256_storeu_si256((void *)words, a);
    for (size_t i = 0; i < sizeof a / 8; i++) sum ^= words[i];
    return sum;
}

static double multiply_avx2(size_t n_rounds)
{
    __m256 factor = _mm256_set1_ps(0.999F), term = _mm256_set1_ps(0.001F), chains[N_CHAINS];
    volatile float sink;
    for (int i = 0; i < N_CHAINS; i++) chains[i] = _mm256_set1_ps((float)i);
    for (size_t n = 0; n < n_rounds; n++)
        for (int i = 0; i < N_CHAINS; i++) chains[i] = _mm256_fmadd_ps(chains[i], factor, term);
    for (int i = 1; i < N_CHAINS; i++) chains[0] = _mm256_add_ps(chains[0], chains[i]);
    sink = _mm256_cvtss_f32(chains[0]);
    (void)sink;
    return (double)n_rounds * N_CHAINS * (double)(sizeof factor / sizeof(float)) * 2;
}

void bt_limit_kernels_add_avx2(bt_limit_kernels *k)
{
    k->level = BT_CPU_AVX2;
    k->read = read_avx2;
    k->multiply = multiply_avx2;
}

#else
typedef int bt_x86_avx2_limits_is_empty;
#endif
