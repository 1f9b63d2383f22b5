/*
 * Arena: one block, allocated when something is opened, freed when it is closed. Also the guard that turns an
 * allocation during a step into a bug.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "baltoro.h"

/* A growing arena for tables of unknown size (names, tensor entries). Blocks are chained; freed all at once. */
typedef struct bt_arena bt_arena;
bt_arena *bt_arena_new(void);                                 /* NULL: no memory */
void bt_arena_free(bt_arena *a);                              /* NULL is fine */
void *bt_arena_alloc(bt_arena *a, size_t count, size_t size); /* zeroed, 16-aligned; NULL: no memory */
char *bt_arena_strndup(bt_arena *a, const char *s, size_t n); /* terminated; NULL: no memory */
size_t bt_arena_bytes(const bt_arena *a);                     /* taken from the system */

/* Large buffers straight from the system (mmap), zeroed lazily, aligned to 64 (to 2 MB and advised huge from 4 MB on).
 * Private bytes are known exactly: the memory plan counts them. */
void *bt_pages_alloc(size_t size); /* NULL: no memory */
void bt_pages_free(void *p, size_t size);

/* malloc family with checked products and the step guard. Every allocation of the library goes through here. */
void *bt_malloc(size_t count, size_t size);
void *bt_calloc(size_t count, size_t size);
void *bt_realloc(void *p, size_t count, size_t size); /* p stays valid on NULL */
char *bt_strdup(const char *s);

/* Between begin and end an allocation by this thread through this header aborts with a message (assertions are on). */
void bt_guard_begin(void);
void bt_guard_end(void);

#ifdef BT_TEST_BUILD
/* The allocation after n more ones fails, once (0: the next one); a negative n calls it off. All threads count. */
void bt_alloc_fail_after(long n);
bool bt_alloc_has_failed(void); /* whether that allocation was asked for since */
long bt_alloc_n_live(void);     /* blocks that were allocated and not freed: none may be lost */
/* Makes bt_strdup use what it got without a look, as code does that forgot to check: tests of failing allocations must
 * then be seen to fail. */
void bt_alloc_plant_unchecked(bool planted);
#endif

#endif
