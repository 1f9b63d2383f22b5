/*
 * The measuring half of check-kernels (bench.c); the machine's limits come from kernel/cpu.h.
 */
#ifndef TESTS_KERNELS_BENCH_H
#define TESTS_KERNELS_BENCH_H

#include "check.h"

/* A cache line goes to another thread and back PING_ROUNDS times; side is 0 for one thread, 1 for the other. */
#define PING_ROUNDS 500u
void ping(size_t side);
void ping_reset(void);

#endif
