/* Random numbers: one counter-based generator (SplitMix64's finaliser over seed and counter), the same everywhere. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include "baltoro.h"

uint64_t bt_rng_u64(uint64_t seed, uint64_t counter);
double bt_rng_f64(uint64_t seed, uint64_t counter); /* [0, 1), 53 bits */
float bt_rng_normal(uint64_t seed, uint64_t counter);

#endif
