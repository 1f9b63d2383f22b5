/* The limits' loops in 256-bit vectors; see kernel/cpu.h. */
#include "kernel/cpu.h"

#if defined(__x86_64__)

#    include <immintrin.h>

typedef __m256i vi;
typedef __m256 vf;

static inline vi vi_zero(void)
{
    return _mm256_setzero_si256();
}
static inline vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
static inline void vi_store(void *p, vi a)
{
    _mm256_storeu_si256(p, a);
}
static inline vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
static inline vf vf_set1(float a)
{
    return _mm256_set1_ps(a);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline float vf_first(vf a)
{
    return _mm256_cvtss_f32(a);
}

#    include "kernel/vector_limits.inc"

void bt_limit_kernels_add_avx2(bt_limit_kernels *k)
{
    add_limits(k, BT_CPU_AVX2);
}

#else
typedef int bt_x86_avx2_limits_is_empty;
#endif
