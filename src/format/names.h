/*
 * Names to numbers: a hash table over an array that its owner keeps. Used for tensors; private to format/.
 */
#ifndef FORMAT_NAMES_H
#define FORMAT_NAMES_H

#include "baltoro.h"

#define BT_NAMES_NONE SIZE_MAX

typedef struct bt_name {
    const char *text; /* [size], may hold NUL */
    size_t size;
} bt_name;

typedef struct bt_names {
    uint32_t *slots; /* [n_slots], index + 1; 0: free */
    size_t n_slots;  /* a power of two, at least twice the number of names */
    uint64_t seed;
    bt_name (*name_of)(const void *items, size_t i);
    const void *items;
} bt_names;

/* Room for n names. False: no memory. */
bool bt_names_init(bt_names *t, size_t n, bt_name (*name_of)(const void *items, size_t i), const void *items);
void bt_names_done(bt_names *t);
size_t bt_names_bytes(const bt_names *t);
/* Enters items[i]; if its name is there already, nothing is done and the earlier index returned, else i. */
size_t bt_names_add(bt_names *t, size_t i);
size_t bt_names_find(const bt_names *t, bt_name name); /* BT_NAMES_NONE */

#endif
