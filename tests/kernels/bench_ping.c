/* A cache line on its way between two threads: it tells near cores from far ones. Never average the two. */
#include "bench.h"

#include <stdatomic.h>

static atomic_uint turn;

void ping_reset(void)
{
    atomic_store(&turn, 0);
}

void ping(size_t side)
{
    for (unsigned i = 0; i < PING_ROUNDS; i++) {
        unsigned mine = 2 * i + (unsigned)side;
        while (atomic_load_explicit(&turn, memory_order_acquire) != mine) {
        }
        atomic_store_explicit(&turn, mine + 1, memory_order_release);
    }
}
