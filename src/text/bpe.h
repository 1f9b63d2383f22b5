/* Byte-pair merging of one piece of text, in n log n. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "text/vocab.h"

typedef struct bt_ids { /* a growing list of token ids; bt_free(data) when done */
    int32_t *data;
    size_t n, capacity;
} bt_ids;

bt_status bt_ids_reserve(bt_ids *list, size_t capacity, bt_error *e); /* at least */
bt_status bt_ids_add(bt_ids *list, int32_t id, bt_error *e);

typedef struct bt_symbol bt_symbol;

typedef struct bt_bpe { /* scratch of one encoding, reused from piece to piece; zero it, free it with bt_bpe_free */
    bt_symbol *symbols; /* [capacity] */
    uint64_t *heap;     /* [2 * capacity] */
    size_t capacity;
    bool plain_only;  /* set it to have no merge make an added token, should the vocabulary list one among the others */
    uint64_t n_steps; /* symbols made + levels that heap entries moved: what a growth test counts */
} bt_bpe;

void bt_bpe_free(bt_bpe *b);

#define BT_PIECE_BYTES_MAX ((size_t)INT32_MAX / 2)

/* Appends the ids of piece [n], n <= BT_PIECE_BYTES_MAX. A byte that has no token is refused. */
bt_status bt_bpe_encode(const bt_vocab *v, bt_bpe *b, const char *piece, size_t n, bt_ids *out, bt_error *e);

#endif
