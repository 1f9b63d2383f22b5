/*
 * The kernel table of one CPU level. Every entry starts as the scalar function; each ISA file that the level includes
 * then overwrites what it does better. Nothing is detected here: the caller names the level (bt_cpu_detect, or a lower
 * one that the user asked for), so that a test can walk all of them in one process.
 */
#include "kernel/kernels.h"

#include <assert.h>
#include <string.h>

void bt_kernels_init(bt_kernels *k, bt_cpu_level level)
{
    assert(k);
    assert(level >= BT_CPU_SCALAR && level < BT_CPU_N);
    memset(k, 0, sizeof *k);
    bt_kernels_add_scalar(k);
#if defined(__x86_64__)
    if (level >= BT_CPU_AVX2) bt_kernels_add_avx2(k);
    if (level >= BT_CPU_AVX512) bt_kernels_add_avx512(k);
#endif
}
