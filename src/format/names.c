/*
 * Open addressing, half full at most, sized once. The hash is keyed by a number that no file can know, so that nobody
 * can write a checkpoint whose names all collide; nothing depends on the order of the slots.
 */
#include "format/names.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/rng.h"

static uint64_t hash(uint64_t seed, bt_name name)
{
    uint64_t h = seed ^ name.size;
    size_t i = 0;
    for (; i + 8 <= name.size; i += 8) {
        uint64_t word;
        memcpy(&word, name.text + i, sizeof word);
        h = (h ^ word) * 0x9fb21c651e98df25u;
        h ^= h >> 32;
    }
    uint64_t word = 0;
    if (i < name.size) memcpy(&word, name.text + i, name.size - i);
    return bt_rng_u64(h, word);
}

bool bt_names_init(bt_names *t, size_t n, bt_name (*name_of)(const void *items, size_t i), const void *items)
{
    *t = (bt_names){.name_of = name_of, .items = items};
    if (n > UINT32_MAX / 4) return false;
    size_t n_slots = 16;
    while (n_slots < 2 * n) n_slots *= 2;
    t->slots = bt_calloc(n_slots, sizeof *t->slots);
    if (t->slots == NULL) return false;
    t->n_slots = n_slots;
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    t->seed = bt_rng_u64((uint64_t)(uintptr_t)t->slots, (uint64_t)now.tv_nsec);
    return true;
}

void bt_names_done(bt_names *t)
{
    bt_free(t->slots);
    *t = (bt_names){0};
}

size_t bt_names_bytes(const bt_names *t)
{
    return t->n_slots * sizeof *t->slots;
}

/* The slot that holds the name, or the free one where it belongs. */
static size_t slot_of(const bt_names *t, bt_name name)
{
    assert(t->n_slots > 0);
    size_t mask = t->n_slots - 1;
    for (size_t slot = hash(t->seed, name) & mask;; slot = (slot + 1) & mask) { /* ends: half of them are free */
        if (t->slots[slot] == 0) return slot;
        bt_name other = t->name_of(t->items, t->slots[slot] - 1);
        if (other.size == name.size && memcmp(other.text, name.text, name.size) == 0) return slot;
    }
}

size_t bt_names_add(bt_names *t, size_t i)
{
    size_t slot = slot_of(t, t->name_of(t->items, i));
    if (t->slots[slot] != 0) return t->slots[slot] - 1;
    t->slots[slot] = (uint32_t)(i + 1);
    return i;
}

size_t bt_names_find(const bt_names *t, bt_name name)
{
    uint32_t entry = t->slots[slot_of(t, name)];
    return entry == 0 ? BT_NAMES_NONE : entry - 1;
}
