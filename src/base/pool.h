/*
 * Thread pool: one parallel region per step. Workers are created once, spin a little while for the next region, then
 * park on a futex. Inside a region threads meet at barriers that behave the same way (spin, then park).
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "baltoro.h"

typedef struct bt_pool bt_pool;

bt_status bt_pool_open(size_t n_threads, bt_pool **out, bt_error *e); /* n_threads >= 1, the caller is thread 0 */
void bt_pool_close(bt_pool *p);
size_t bt_pool_n_threads(const bt_pool *p);

/* Runs fn(arg, thread_i) on all threads, the caller as thread 0; returns when all are done. Never nested. */
void bt_pool_run(bt_pool *p, void (*fn)(void *arg, size_t thread_i), void *arg);
void bt_pool_barrier(bt_pool *p, size_t thread_i); /* inside a region; every thread calls it equally often */

#ifdef BT_TEST_BUILD
/* The thread after n more ones is not started, once (0: the next one); a negative n calls it off. */
void bt_thread_fail_after(long n);
#endif

#endif
