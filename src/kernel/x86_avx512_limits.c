/* The limits' loops in 512-bit vectors; see kernel/cpu.h. */
#include "kernel/cpu.h"

#if defined(__x86_64__)

#    include <immintrin.h>

typedef __m512i vi;
typedef __m512 vf;

static inline vi vi_zero(void)
{
    return _mm512_setzero_si512();
}
static inline vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline void vi_store(void *p, vi a)
{
    _mm512_storeu_si512(p, a);
}
static inline vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
static inline vf vf_set1(float a)
{
    return _mm512_set1_ps(a);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline float vf_first(vf a)
{
    return _mm512_cvtss_f32(a);
}

#    include "kernel/vector_limits.inc"

void bt_limit_kernels_add_avx512(bt_limit_kernels *k)
{
    add_limits(k, BT_CPU_AVX512);
}

#else
typedef int bt_x86_avx512_limits_is_empty;
#endif
