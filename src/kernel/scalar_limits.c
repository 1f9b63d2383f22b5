/* The limits' loops in plain C, and the table of a level. */
#include <assert.h>
#include <string.h>

#include "kernel/cpu.h"

static uint64_t read_scalar(const void *p, size_t bytes, size_t n_streams)
{
    const uint8_t *at = p;
    uint64_t sums[8] = {0}, words[8];
    for (size_t i = 0; i < bytes; i += sizeof words) {
        for (size_t s = 0; s < n_streams; s++) {
            memcpy(words, at + s * bytes + i, sizeof words);
            for (size_t j = 0; j < 8; j++) sums[j] ^= words[j];
        }
    }
    for (size_t j = 1; j < 8; j++) sums[0] ^= sums[j];
    return sums[0];
}

/* As the scalar kernels compute: a product, then a sum. */
static double multiply_scalar(size_t n_rounds)
{
    enum { N_CHAINS = 16 };
    float a[N_CHAINS];
    volatile float sink;
    for (size_t i = 0; i < N_CHAINS; i++) a[i] = (float)i;
    for (size_t n = 0; n < n_rounds; n++)
        for (size_t i = 0; i < N_CHAINS; i++) a[i] = a[i] * 0.999F + 0.001F;
    for (size_t i = 1; i < N_CHAINS; i++) a[0] += a[i];
    sink = a[0];
    (void)sink;
    return (double)n_rounds * N_CHAINS * 2;
}

void bt_limit_kernels_add_scalar(bt_limit_kernels *k)
{
    k->level = BT_CPU_SCALAR;
    k->read = read_scalar;
    k->multiply = multiply_scalar;
}

void bt_limit_kernels_init(bt_limit_kernels *k, bt_cpu_level level)
{
    assert(level >= BT_CPU_SCALAR && level < BT_CPU_N);
    bt_limit_kernels_add_scalar(k);
#if defined(__x86_64__)
    if (level >= BT_CPU_AVX2) bt_limit_kernels_add_avx2(k);
    if (level >= BT_CPU_AVX512) bt_limit_kernels_add_avx512(k);
#endif
}
