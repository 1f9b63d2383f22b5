/* base/pool: regions and barriers, with fewer and with more threads than there are cores. */
/* run_tests: threads */
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/pool.h"

#define N_THREADS_MAX 16

static bt_pool *open_pool(size_t n)
{
    bt_error e = {.message = ""};
    bt_pool *p = NULL;
    if (bt_pool_open(n, &p, &e) != BT_OK) fail_msg("%s", e.message);
    assert_int_equal(bt_pool_n_threads(p), n);
    return p;
}

typedef struct tally {
    bt_pool *pool;
    size_t n_barriers;
    size_t own[N_THREADS_MAX]; /* not atomic: each thread its own, read by others after a barrier only */
    size_t n_wrong[N_THREADS_MAX];
    atomic_size_t n_calls;
} tally;

static void count(void *arg, size_t thread_i)
{
    tally *t = arg;
    t->own[thread_i]++;
}

/* Every run reaches every thread exactly once, and is over when it returns. */
static void many_regions(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 4; n++) {
        tally t = {.pool = open_pool(n)};
        const size_t n_runs = 4000;
        for (size_t i = 1; i <= n_runs; i++) {
            bt_pool_run(t.pool, count, &t);
            for (size_t k = 0; k < n; k++) {
                if (t.own[k] != i) fail_msg("%zu threads: thread %zu ran %zu of %zu times", n, k, t.own[k], i);
            }
        }
        bt_pool_close(t.pool);
    }
}

/* Between two barriers everybody writes; after one everybody sees what all others wrote. */
static void meet(void *arg, size_t thread_i)
{
    tally *t = arg;
    size_t n = bt_pool_n_threads(t->pool);
    for (size_t round = 1; round <= t->n_barriers; round++) {
        t->own[thread_i] = round;
        bt_pool_barrier(t->pool, thread_i);
        for (size_t k = 0; k < n; k++) t->n_wrong[thread_i] += t->own[k] != round;
        bt_pool_barrier(t->pool, thread_i);
    }
    atomic_fetch_add(&t->n_calls, 1);
}

static void barriers_separate(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 3, 4, 8, 16}; /* more than cores, mostly */
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        tally t = {.pool = open_pool(counts[i]), .n_barriers = counts[i] <= 4 ? 500 : 60};
        for (size_t run = 0; run < 4; run++) {
            memset(t.own, 0, sizeof t.own);
            bt_pool_run(t.pool, meet, &t);
        }
        assert_int_equal(atomic_load(&t.n_calls), 4 * counts[i]);
        for (size_t k = 0; k < counts[i]; k++) assert_int_equal(t.n_wrong[k], 0);
        bt_pool_close(t.pool);
    }
}

/* A thread that comes late lets the others fall asleep; they must wake up. */
static void come_late(void *arg, size_t thread_i)
{
    tally *t = arg;
    const struct timespec nap = {0, 3000000};
    for (size_t round = 0; round < 6; round++) {
        if (round % bt_pool_n_threads(t->pool) == thread_i) (void)nanosleep(&nap, NULL);
        bt_pool_barrier(t->pool, thread_i);
    }
    atomic_fetch_add(&t->n_calls, 1);
}

static void sleepers_wake_up(void **state)
{
    (void)state;
    tally t = {.pool = open_pool(3)};
    const struct timespec nap = {0, 3000000};
    for (size_t i = 0; i < 5; i++) {
        bt_pool_run(t.pool, come_late, &t);
        (void)nanosleep(&nap, NULL); /* between regions too */
    }
    assert_int_equal(atomic_load(&t.n_calls), 15);
    bt_pool_close(t.pool);
}

/* The region lasts until the last thread is done, not until the first is. */
static void finish_apart(void *arg, size_t thread_i)
{
    tally *t = arg;
    const struct timespec nap = {0, 2000000 * (long)thread_i};
    (void)nanosleep(&nap, NULL);
    t->own[thread_i]++;
}

static void all_threads_are_waited_for(void **state)
{
    (void)state;
    tally t = {.pool = open_pool(5)};
    for (size_t i = 1; i <= 5; i++) {
        bt_pool_run(t.pool, finish_apart, &t);
        for (size_t k = 0; k < 5; k++) assert_int_equal(t.own[k], i);
    }
    bt_pool_close(t.pool);
}

static void *own_a_pool(void *arg)
{
    (void)arg;
    tally t = {.pool = open_pool(2), .n_barriers = 500};
    for (size_t i = 0; i < 20; i++) bt_pool_run(t.pool, meet, &t);
    size_t wrong = t.n_wrong[0] + t.n_wrong[1];
    bt_pool_close(t.pool);
    return wrong == 0 ? NULL : arg;
}

static void pools_side_by_side(void **state)
{
    (void)state;
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, own_a_pool, threads), 0);
    for (size_t i = 0; i < 3; i++) {
        void *result = threads;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
}

static void opening_and_closing(void **state)
{
    (void)state;
    for (size_t i = 0; i < 300; i++) { /* at once, with workers that may not have begun yet */
        bt_pool *p = open_pool(1 + i % 5);
        if (i % 3 == 0) {
            tally t = {.pool = p};
            bt_pool_run(p, count, &t);
            assert_int_equal(t.own[i % 5], 1);
        }
        bt_pool_close(p);
    }
    bt_pool_close(NULL);
    bt_error e;
    bt_pool *p = NULL;
    assert_int_equal(bt_pool_open(0, &p, &e), BT_ERR_USAGE);
    assert_int_equal(bt_pool_open(100000, &p, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "100000 threads"));
    assert_null(p);
}

static void read_mask(void *arg, size_t thread_i)
{
    sigset_t *masks = arg;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &masks[thread_i]);
}

/* Ctrl-C must reach the thread that waits for it; a fault in a worker must reach its handler. */
static void workers_take_no_signals(void **state)
{
    (void)state;
    sigset_t masks[2], before, after;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &before);
    bt_pool *p = open_pool(2);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &after);
    bt_pool_run(p, read_mask, masks);
    bt_pool_close(p);
    assert_int_equal(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
    assert_int_equal(sigismember(&masks[1], SIGINT), 1);
    assert_int_equal(sigismember(&masks[1], SIGTERM), 1);
    assert_int_equal(sigismember(&masks[1], SIGBUS), 0);
    assert_int_equal(sigismember(&masks[1], SIGSEGV), 0);
}

static void count_or_leave_out(void *arg, size_t thread_i)
{
    tally *t = arg;
    if (t->n_barriers == 0 || thread_i == 0) return;
    t->n_calls += 1;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#    define LIMITS_WORK false /* sanitizers map the whole address space */
#else
#    define LIMITS_WORK true
#endif

/* Without room for stacks the pool must say so, and take down what it had started. */
static void threads_that_cannot_start(void **state)
{
    (void)state;
    if (!LIMITS_WORK) {
        print_message("NOT RUN: under a sanitizer address space cannot be limited\n");
        skip();
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        FILE *f = fopen("/proc/self/statm", "r");
        unsigned long pages = 0;
        if (f == NULL || fscanf(f, "%lu", &pages) != 1) _exit(9);
        (void)fclose(f);
        const struct rlimit limit = {pages * 4096 + (24u << 20), pages * 4096 + (24u << 20)};
        if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(9);
        bt_error e = {.message = ""};
        bt_pool *p = NULL;
        if (bt_pool_open(1000, &p, &e) != BT_ERR_MEMORY || p != NULL) _exit(1);
        if (strstr(e.message, "cannot start thread") == NULL || strstr(e.message, "of 1000") == NULL) _exit(2);
        if (bt_pool_open(3, &p, &e) != BT_OK) _exit(3); /* the others are gone: there is room again */
        tally t = {.pool = p, .n_barriers = 1};
        bt_pool_run(p, count_or_leave_out, &t);
        bt_pool_close(p);
        _exit(atomic_load(&t.n_calls) == 2 ? 0 : 4);
    }
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
#ifdef BT_TEST_BUILD
    bt_pool *p = NULL;
    bt_alloc_fail_after(0);
    bt_status st = bt_pool_open(2, &p, NULL);
    bt_alloc_fail_after(-1);
    assert_int_equal(st, BT_ERR_MEMORY);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_regions),
        cmocka_unit_test(barriers_separate),
        cmocka_unit_test(sleepers_wake_up),
        cmocka_unit_test(all_threads_are_waited_for),
        cmocka_unit_test(pools_side_by_side),
        cmocka_unit_test(opening_and_closing),
        cmocka_unit_test(workers_take_no_signals),
        cmocka_unit_test(threads_that_cannot_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
