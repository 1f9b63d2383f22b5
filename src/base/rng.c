/*
 * Random numbers without state: a number is a function of (seed, counter), so that any thread can make the i-th weight
 * or the i-th draw, in any order, with the same bits on every machine.
 */
#include "base/rng.h"

#define GOLDEN 0x9e3779b97f4a7c15u

static uint64_t mix(uint64_t z) /* SplitMix64's finaliser */
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t bt_rng_u64(uint64_t seed, uint64_t counter)
{
    /* The seed is mixed by itself first: else seed s + GOLDEN would give the sequence of s, shifted by one. */
    return mix(mix(seed + GOLDEN) + counter * GOLDEN);
}

double bt_rng_f64(uint64_t seed, uint64_t counter)
{
    return (double)(bt_rng_u64(seed, counter) >> 11) * 0x1p-53;
}

/* The sum of twelve uniform numbers (Irwin-Hall): mean 0, variance 1, bounded by 6. Box-Muller has truer tails, but
 * takes its bits from the C library's log and cos, which differ from machine to machine; these are integers. */
float bt_rng_normal(uint64_t seed, uint64_t counter)
{
    int64_t sum = 0;
    for (uint64_t word = 0; word < 3; word++) {
        uint64_t bits = bt_rng_u64(seed, counter * 3 + word);
        for (unsigned shift = 0; shift < 64; shift += 16) sum += (int64_t)(bits >> shift & 0xffff);
    }
    return (float)(sum - 6 * 65535) * 0x1p-16f;
}
