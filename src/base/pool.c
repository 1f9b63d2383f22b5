/*
 * Thread pool. A step is one region in which threads meet at barriers some microseconds apart, so waiting means
 * spinning; but a core may be busy with something else, and a spinning waiter then keeps the very worker it waits for
 * from running (OpenMP's barriers lose a factor of 25 so). Hence: spin for a bounded while, then sleep on a futex. How
 * long is learnt by each thread: half as long after a spin that was in vain, twice as long after one that was not. With
 * more threads than cores the spin is nearly left out.
 *
 * Everything waits on one kind of word, a counter that only a wake-up changes. The waker asks whether anybody sleeps,
 * and saves the system call if not. That is no race: a sleeper announces itself before the kernel compares the word
 * again, the waker changes the word before it looks for sleepers, and both are sequentially consistent.
 */
#include "base/pool.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/machine.h"

#define N_THREADS_MAX    1024
#define STACK_BYTES      ((size_t)1 << 20)
#define N_SPINS_MAX      2000 /* of 40 to 140 cycles each: less than 0.1 ms */
#define N_SPINS_MIN      200  /* what falling asleep and waking up costs, about */
#define N_SPINS_CROWDED  20
#define CACHE_LINE_BYTES 64

/* A word to wait on, alone on its cache line with the number of those who sleep on it. */
typedef struct wait_word {
    _Alignas(CACHE_LINE_BYTES) atomic_uint value;
    atomic_uint n_sleeping;
} wait_word;

typedef struct worker {
    _Alignas(CACHE_LINE_BYTES) struct bt_pool *pool;
    size_t thread_i;
    unsigned n_spins;  /* how long to spin next time */
    size_t n_barriers; /* met in this region: all threads must agree at its end */
    pthread_t thread;
} worker;

struct bt_pool {
    wait_word region;                                 /* counts regions: a change starts one */
    wait_word remaining;                              /* workers still in the region */
    wait_word phase;                                  /* counts barriers passed */
    _Alignas(CACHE_LINE_BYTES) atomic_uint n_arrived; /* at the barrier */
    _Alignas(CACHE_LINE_BYTES) size_t n_threads;
    unsigned n_spins_min, n_spins_max;
    bool stopping, running;
    void (*fn)(void *arg, size_t thread_i);
    void *arg;
    worker workers[]; /* [n_threads]; the first is the caller */
};

/* ---- waiting --------------------------------------------------------------------------------------------------------
 */

_Static_assert(sizeof(atomic_uint) == 4, "a futex is a 32-bit word");

/* Returns once the word is no longer `old`; the value it saw last. */
static unsigned wait_change(wait_word *w, unsigned old, worker *me)
{
    unsigned value = atomic_load_explicit(&w->value, memory_order_acquire);
    if (value != old) return value;
    for (unsigned i = 0; i < me->n_spins; i++) {
        bt_cpu_relax();
        value = atomic_load_explicit(&w->value, memory_order_acquire);
        if (value == old) continue;
        me->n_spins = me->n_spins > me->pool->n_spins_max / 2 ? me->pool->n_spins_max : me->n_spins * 2;
        return value;
    }
    me->n_spins = me->n_spins / 2 < me->pool->n_spins_min ? me->pool->n_spins_min : me->n_spins / 2;
    atomic_fetch_add(&w->n_sleeping, 1);
    while ((value = atomic_load(&w->value)) == old) {
        /* The kernel compares once more; it may also return for no reason. */
        (void)syscall(SYS_futex, &w->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    }
    atomic_fetch_sub(&w->n_sleeping, 1);
    return value;
}

/* After the word was changed (sequentially consistent). */
static void wake_all(wait_word *w)
{
    if (atomic_load(&w->n_sleeping) == 0) return;
    (void)syscall(SYS_futex, &w->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- workers --------------------------------------------------------------------------------------------------------
 */

static void *work(void *arg)
{
    worker *me = arg;
    bt_pool *p = me->pool;
    unsigned region = 0;
    for (;;) {
        region = wait_change(&p->region, region, me);
        if (p->stopping) return NULL;
        p->fn(p->arg, me->thread_i);
        if (atomic_fetch_sub(&p->remaining.value, 1) == 1) wake_all(&p->remaining);
    }
}

static void stop_workers(bt_pool *p, size_t n_started)
{
    p->stopping = true;
    atomic_fetch_add(&p->region.value, 1);
    wake_all(&p->region);
    for (size_t i = 1; i < n_started; i++) (void)pthread_join(p->workers[i].thread, NULL);
}

/* Workers take no signals (Ctrl-C belongs to the caller), except those that a fault in their own code raises. */
static void block_signals(sigset_t *before)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS);
    (void)sigdelset(&all, SIGSEGV);
    (void)sigdelset(&all, SIGFPE);
    (void)sigdelset(&all, SIGILL);
    (void)pthread_sigmask(SIG_SETMASK, &all, before);
}

#ifdef BT_TEST_BUILD
static atomic_long n_until_failure = -1;

void bt_thread_fail_after(long n)
{
    atomic_store(&n_until_failure, n);
}

static bool planted_failure(void)
{
    return atomic_load(&n_until_failure) >= 0 && atomic_fetch_sub(&n_until_failure, 1) == 0;
}
#else
static bool planted_failure(void)
{
    return false;
}
#endif

/* Starts workers 1 to n_threads - 1. Returns pthread_create's fault, with the number that did start. */
static int start_workers(bt_pool *p, size_t *n_started)
{
    pthread_attr_t attributes;
    int fault = pthread_attr_init(&attributes);
    *n_started = 1;
    if (fault != 0) return fault;
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigset_t before;
    block_signals(&before);
    while (*n_started < p->n_threads && fault == 0) {
        worker *w = &p->workers[*n_started];
        fault = planted_failure() ? EAGAIN : pthread_create(&w->thread, &attributes, work, w);
        if (fault == 0) (*n_started)++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return fault;
}

/* ---- interface ------------------------------------------------------------------------------------------------------
 */

static size_t pool_bytes(size_t n_threads)
{
    return sizeof(bt_pool) + n_threads * sizeof(worker);
}

bt_status bt_pool_open(size_t n_threads, bt_pool **out, bt_error *e)
{
    if (n_threads < 1 || n_threads > N_THREADS_MAX) {
        return bt_fail(e, BT_ERR_USAGE, "%zu threads: 1 to %d are possible", n_threads, N_THREADS_MAX);
    }
    bt_pool *p = bt_pages_alloc(pool_bytes(n_threads)); /* zeroed, and aligned to cache lines */
    if (p == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a pool of %zu threads", n_threads);
    cpu_set_t set;
    bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    p->n_threads = n_threads;
    bool crowded = known && n_threads > (size_t)CPU_COUNT(&set);
    p->n_spins_min = crowded ? N_SPINS_CROWDED : N_SPINS_MIN;
    p->n_spins_max = crowded ? N_SPINS_CROWDED : N_SPINS_MAX;
    for (size_t i = 0; i < n_threads; i++) {
        p->workers[i].pool = p;
        p->workers[i].thread_i = i;
        p->workers[i].n_spins = p->n_spins_max;
    }
    size_t n_started;
    int fault = start_workers(p, &n_started);
    if (fault != 0) {
        stop_workers(p, n_started);
        bt_pages_free(p, pool_bytes(n_threads));
        return bt_fail(e, BT_ERR_MEMORY, "cannot start thread %zu of %zu: %s", n_started + 1, n_threads,
                       strerror(fault));
    }
    *out = p;
    return BT_OK;
}

void bt_pool_close(bt_pool *p)
{
    if (p == NULL) return;
    assert(!p->running);
    stop_workers(p, p->n_threads);
    bt_pages_free(p, pool_bytes(p->n_threads));
}

size_t bt_pool_n_threads(const bt_pool *p)
{
    return p->n_threads;
}

void bt_pool_run(bt_pool *p, void (*fn)(void *arg, size_t thread_i), void *arg)
{
    assert(!p->running && "regions do not nest");
    p->running = true;
    p->fn = fn;
    p->arg = arg;
    for (size_t i = 0; i < p->n_threads; i++) p->workers[i].n_barriers = 0;
    if (p->n_threads > 1) {
        atomic_store(&p->remaining.value, (unsigned)p->n_threads - 1);
        atomic_fetch_add(&p->region.value, 1);
        wake_all(&p->region);
    }
    fn(arg, 0);
    unsigned left = atomic_load(&p->remaining.value);
    while (left != 0) left = wait_change(&p->remaining, left, &p->workers[0]);
    for (size_t i = 1; i < p->n_threads; i++) {
        assert(p->workers[i].n_barriers == p->workers[0].n_barriers && "a thread left out a barrier");
    }
    p->running = false;
}

void bt_pool_barrier(bt_pool *p, size_t thread_i)
{
    assert(thread_i < p->n_threads);
    p->workers[thread_i].n_barriers++;
    if (p->n_threads == 1) return;
    unsigned phase = atomic_load(&p->phase.value); /* cannot change before this thread has arrived */
    if (atomic_fetch_add(&p->n_arrived, 1) + 1 == p->n_threads) {
        atomic_store(&p->n_arrived, 0); /* before the others may go on to the next barrier */
        atomic_fetch_add(&p->phase.value, 1);
        wake_all(&p->phase);
    } else {
        (void)wait_change(&p->phase, phase, &p->workers[thread_i]);
    }
}
