/*
 * What tools may ask of kernels: the loops that find the machine's limits, at one CPU level. A benchmark holds against
 * them what a model reaches.
 */
#ifndef KERNEL_CPU_H
#define KERNEL_CPU_H

#include "base/machine.h"

/* Bytes that `read` takes together from each stream. */
#define BT_READ_STEP 256u

typedef struct bt_limit_kernels {
    bt_cpu_level level;
    /* Reads n_streams (1, 2 or 4) runs of `bytes` each, one behind the other at p, all of them side by side; `bytes` is
     * a multiple of BT_READ_STEP. The value keeps the reads alive. */
    uint64_t (*read)(const void *p, size_t bytes, size_t n_streams);
    /* Multiply-adds of f32 in registers; returns the floating-point operations done, two for each. */
    double (*multiply)(size_t n_rounds);
} bt_limit_kernels;

void bt_limit_kernels_init(bt_limit_kernels *k, bt_cpu_level level); /* level: at most what bt_cpu_detect returned */

void bt_limit_kernels_add_scalar(bt_limit_kernels *k);
void bt_limit_kernels_add_avx2(bt_limit_kernels *k);
void bt_limit_kernels_add_avx512(bt_limit_kernels *k);

#endif
