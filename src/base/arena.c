/*
 * Memory: every allocation of the library passes through this file, for three reasons. Products of sizes are checked in
 * one place. The step guard can tell a per-token allocation, which is a slow leak in waiting, from one made at open.
 * And a test build can make the n-th allocation fail, for every n.
 *
 * An arena is a chain of zeroed blocks, for tables whose size is not known beforehand; large buffers of known size
 * come as whole pages instead, so that the memory plan can count them exactly.
 */
#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef BT_TEST_BUILD
#    include <stdatomic.h>
#endif

#define ALIGNMENT       ((size_t)16)
#define BLOCK_BYTES_MIN ((size_t)4096)
#define BLOCK_BYTES_MAX ((size_t)1 << 20)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* ---- the guard and the planted failure ----------------------------------------------------------------------------
 */

static _Thread_local unsigned guard_depth;

void bt_guard_begin(void)
{
    assert(guard_depth < 1000);
    guard_depth++;
}

void bt_guard_end(void)
{
    assert(guard_depth > 0);
    guard_depth--;
}

#ifdef BT_TEST_BUILD
static atomic_long n_until_failure = -1;
static atomic_bool has_failed, is_unchecked;
static atomic_long n_live;

void bt_alloc_fail_after(long n)
{
    atomic_store(&has_failed, false);
    atomic_store(&n_until_failure, n);
}

bool bt_alloc_has_failed(void)
{
    return atomic_load(&has_failed);
}

long bt_alloc_n_live(void)
{
    return atomic_load(&n_live);
}

void bt_alloc_plant_unchecked(bool planted)
{
    atomic_store(&is_unchecked, planted);
}

static bool planted_failure(void)
{
    if (atomic_load(&n_until_failure) < 0 || atomic_fetch_sub(&n_until_failure, 1) != 0) return false;
    atomic_store(&has_failed, true);
    return true;
}

static bool planted_unchecked(void)
{
    return atomic_load(&is_unchecked);
}

/* Counts a block that came (+1) or goes (-1), and hands it on. */
static void *counted(void *p, int change)
{
    if (p != NULL) atomic_fetch_add(&n_live, change);
    return p;
}
#else
static bool planted_failure(void)
{
    return false;
}

static bool planted_unchecked(void)
{
    return false;
}

static void *counted(void *p, int change)
{
    (void)change;
    return p;
}
#endif

/* Every allocation begins here. True if it may go on. */
static bool may_allocate(void)
{
    assert(guard_depth == 0 && "memory was allocated during a step: allocate when opening instead");
    return !planted_failure();
}

static bool product(size_t count, size_t size, size_t *bytes)
{
    if (size != 0 && count > SIZE_MAX / size) return false;
    *bytes = count * size;
    return true;
}

/* ---- the malloc family --------------------------------------------------------------------------------------------
 */

void *bt_malloc(size_t count, size_t size)
{
    size_t bytes;
    if (!may_allocate() || !product(count, size, &bytes)) return NULL;
    return counted(malloc(bytes > 0 ? bytes : 1), 1); /* never NULL for "nothing": NULL means no memory */
}

void *bt_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!may_allocate() || !product(count, size, &bytes)) return NULL;
    return counted(calloc(bytes > 0 ? bytes : 1, 1), 1);
}

void *bt_realloc(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (!may_allocate() || !product(count, size, &bytes)) return NULL;
    void *q = realloc(p, bytes > 0 ? bytes : 1);
    return p == NULL ? counted(q, 1) : q;
}

char *bt_strdup(const char *s)
{
    size_t bytes = strlen(s) + 1;
    char *copy = bt_malloc(bytes, 1);
    if (copy != NULL || planted_unchecked()) memcpy(copy, s, bytes);
    return copy;
}

void bt_free(void *p)
{
    free(counted(p, -1));
}

/* ---- arenas ------------------------------------------------------------------------------------------------------ */

typedef struct block {
    struct block *next;
    size_t used, capacity; /* of bytes */
    _Alignas(16) unsigned char bytes[];
} block;

struct bt_arena {
    block *newest;
    size_t bytes; /* of all blocks */
};

bt_arena *bt_arena_new(void)
{
    bt_arena *a = bt_calloc(1, sizeof *a);
    if (a != NULL) a->bytes = sizeof *a;
    return a;
}

void bt_arena_free(bt_arena *a)
{
    if (a == NULL) return;
    for (block *b = a->newest; b != NULL;) {
        block *next = b->next;
        free(b);
        b = next;
    }
    bt_free(a);
}

size_t bt_arena_bytes(const bt_arena *a)
{
    return a->bytes;
}

/* A block that holds `bytes`, in front of the chain. Blocks double, so that small arenas stay small. */
static block *grow(bt_arena *a, size_t bytes)
{
    size_t capacity = a->newest == NULL ? BLOCK_BYTES_MIN : a->newest->capacity * 2;
    if (capacity > BLOCK_BYTES_MAX) capacity = BLOCK_BYTES_MAX;
    if (capacity < bytes) capacity = bytes;
    if (capacity > SIZE_MAX / 2) return NULL;
    block *b = calloc(1, sizeof *b + capacity);
    if (b == NULL) return NULL;
    b->capacity = capacity;
    b->next = a->newest;
    a->newest = b;
    a->bytes += sizeof *b + capacity;
    return b;
}

static void *take(bt_arena *a, size_t bytes, size_t alignment)
{
    if (!may_allocate()) return NULL;
    block *b = a->newest;
    size_t at = b == NULL ? 0 : (b->used + alignment - 1) & ~(alignment - 1);
    if (b == NULL || at > b->capacity || bytes > b->capacity - at) {
        b = grow(a, bytes);
        if (b == NULL) return NULL;
        at = 0;
    }
    b->used = at + bytes;
    return b->bytes + at;
}

void *bt_arena_alloc(bt_arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (!product(count, size, &bytes)) return NULL;
    return take(a, bytes, ALIGNMENT);
}

char *bt_arena_strndup(bt_arena *a, const char *s, size_t n)
{
    if (n == SIZE_MAX) return NULL;
    char *copy = take(a, n + 1, 1); /* texts need no alignment: half a million names are worth the packing */
    if (copy == NULL) return NULL;
    if (n > 0) memcpy(copy, s, n);
    return copy; /* the terminator is there: blocks are zeroed */
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static size_t round_to_pages(size_t size)
{
    long page = sysconf(_SC_PAGESIZE);
    size_t page_bytes = page > 0 ? (size_t)page : 4096;
    if (size == 0) size = 1;
    return size > SIZE_MAX - page_bytes ? 0 : (size + page_bytes - 1) / page_bytes * page_bytes;
}

static void *map_anonymous(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void *bt_pages_alloc(size_t size)
{
    size_t bytes = round_to_pages(size);
    if (!may_allocate() || bytes == 0) return NULL;
    if (bytes < 2 * HUGE_PAGE_BYTES) return counted(map_anonymous(bytes), 1);
    if (bytes > SIZE_MAX - HUGE_PAGE_BYTES) return NULL;
    /* The kernel aligns to small pages only: map one huge page too much and give back both ends. */
    unsigned char *p = map_anonymous(bytes + HUGE_PAGE_BYTES);
    if (p == NULL) return NULL;
    size_t head = (HUGE_PAGE_BYTES - (uintptr_t)p % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (head > 0) (void)munmap(p, head);
    if (head < HUGE_PAGE_BYTES) (void)munmap(p + head + bytes, HUGE_PAGE_BYTES - head);
    (void)madvise(p + head, bytes, MADV_HUGEPAGE); /* advice: a kernel without huge pages still works */
    return counted(p + head, 1);
}

void bt_pages_free(void *p, size_t size)
{
    if (p != NULL) (void)munmap(counted(p, -1), round_to_pages(size));
}
