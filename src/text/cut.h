/* Kimi's safety cuts: where the vendor's code takes a long text apart before it tokenises. */
#ifndef TEXT_CUT_H
#define TEXT_CUT_H

#include "baltoro.h"

typedef struct bt_cutter { /* set text and size, zero the rest */
    const char *text;
    size_t size;        /* must be UTF-8 */
    size_t at;          /* private: bytes given out so far */
    size_t n_in_block;  /* private: characters since the last cut of the first kind */
    uint64_t n_scanned; /* bytes looked at: what a growth test counts */
} bt_cutter;

/* The next part [*at, *at + *size) of the text; parts are not empty and cover it. false: no more. */
bool bt_cut_next(bt_cutter *c, size_t *at, size_t *size);

#endif
