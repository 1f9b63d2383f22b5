/* The limits' loops in 512-bit vectors; see kernel/cpu.h. */
#include "kernel/cpu.h"

#if defined(__x86_64__)

#    include <immintrin.h>

#    define N_CHAINS 12 /* two multiply-adds a cycle, each done after four or five */

static inline __m512i read_step(const uint8_t *p, __m512i sum)
{
    for (size_t i = 0; i < BT_READ_STEP; i += sizeof sum)
        sum = _mm512_xor_si512(sum, _mm512_loadu_si512((const void *)(p + i)));
    return sum;
}

static uint64_t read_avx512(const void *p, size_t bytes, size_t n_streams)
{
    const uint8_t *at = p;
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < bytes; i += BT_READ_STEP) {
        a = read_step(at + i, a);
        if (n_streams == 1) continue;
        b = read_step(at + bytes + i, b);
        if (n_streams == 2) continue;
        c = read_step(at + 2 * bytes + i, c);
        d = read_step(at + 3 * bytes + i, d);
    }
    a = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
    uint64_t words[sizeof a / 8], sum = 0;
    _mm512_storeu_si512((void *)words, a);
    for (size_t i = 0; i < sizeof a / 8; i++) sum ^= words[i];
    return sum;
}

static double multiply_avx512(size_t n_rounds)
{
    __m512 factor = _mm512_set1_ps(0.999F), term = _mm512_set1_ps(0.001F), chains[N_CHAINS];
    volatile float sink;
    for (int i = 0; i < N_CHAINS; i++) chains[i] = _mm512_set1_ps((float)i);
    for (size_t n = 0; n < n_rounds; n++)
        for (int i = 0; i < N_CHAINS; i++) chains[i] = _mm512_fmadd_ps(chains[i], factor, term);
    for (int i = 1; i < N_CHAINS; i++) chains[0] = _mm512_add_ps(chains[0], chains[i]);
    sink = _mm512_cvtss_f32(chains[0]);
    (void)sink;
    return (double)n_rounds * N_CHAINS * (double)(sizeof factor / sizeof(float)) * 2;
}

void bt_limit_kernels_add_avx512(bt_limit_kernels *k)
{
    k->level = BT_CPU_AVX512;
    k->read = read_avx512;
    k->multiply = multiply_avx512;
}

#else
typedef int bt_x86_avx512_limits_is_empty;
#endif
