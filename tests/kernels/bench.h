/*
 * The measuring half of check-kernels: what the machine can do (bench_roof.c) and what the kernels do (bench.c).
 */
#ifndef TESTS_KERNELS_BENCH_H
#define TESTS_KERNELS_BENCH_H

#include "check.h"

/* Reads all of p in n_streams interleaved streams; the value keeps the reads alive. n_bytes: multiple of 4 KiB. */
uint64_t roof_read(const void *p, size_t n_bytes, size_t n_streams);
/* n_steps rounds of FMAs in registers; returns the floating-point operations done. */
double roof_fma(bt_cpu_level level, size_t n_steps);
/* Nanoseconds for a cache line to go to another thread and back; side is 0 for one thread, 1 for the other. */
#define PING_ROUNDS 2000u
void ping(size_t side);
void ping_reset(void);

#endif
