/*
 * Byte-pair merging: the pair of lowest rank merges first, of equal ones the leftmost, until none is left.
 *
 * Symbols are a doubly linked list over an array; candidate pairs wait in a binary heap whose key holds rank and
 * position, so that one comparison orders them. A candidate is not removed when a neighbour of it merges: it is
 * recognised as stale when it comes up, because its rank no longer belongs to the pair at its position. Every merge
 * removes one symbol and adds at most two candidates: n log n in all, and 2n heap entries at most. (Looking for the
 * best pair by a walk over the symbols, the usual way, takes minutes for one word of 100 kB: case C23.)
 *
 * In a vocabulary by rank the pair's bytes, which lie side by side in the piece, are looked up as a token. A symbol
 * only grows, so a candidate is stale where the pair at its position is longer than its token.
 */
#include "text/bpe.h"

#include <assert.h>

#include "base/error.h"

#define SYMBOL_NONE UINT32_MAX

struct bt_symbol {
    int32_t id; /* -1: merged into its left neighbour */
    uint32_t previous, next;
};

typedef struct merger {
    const bt_vocab *v;
    const char *piece; /* [n] */
    size_t n;
    bt_symbol *symbols;
    uint64_t *heap;
    size_t n_heap;
    bool plain_only;
    uint64_t n_steps;
} merger;

bt_status bt_ids_reserve(bt_ids *list, size_t capacity, bt_error *e)
{
    if (capacity <= list->capacity) return BT_OK;
    int32_t *data = bt_realloc(list->data, capacity, sizeof *data);
    if (data == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for %zu token ids", capacity);
    list->data = data;
    list->capacity = capacity;
    return BT_OK;
}

bt_status bt_ids_add(bt_ids *list, int32_t id, bt_error *e)
{
    bt_status st = BT_OK;
    if (list->n == list->capacity) st = bt_ids_reserve(list, list->n < 64 ? 64 : list->n * 2, e);
    if (st == BT_OK) list->data[list->n++] = id;
    return st;
}

void bt_bpe_free(bt_bpe *b)
{
    bt_free(b->symbols);
    bt_free(b->heap);
    *b = (bt_bpe){0};
}

static bt_status reserve(bt_bpe *b, size_t n, bt_error *e)
{
    if (n <= b->capacity) return BT_OK;
    size_t capacity = n < 256 ? 256 : n + n / 2;
    bt_free(b->symbols); /* nothing in it outlives a piece */
    bt_free(b->heap);
    b->symbols = bt_malloc(capacity, sizeof *b->symbols);
    b->heap = bt_malloc(capacity, 2 * sizeof *b->heap);
    b->capacity = capacity;
    if (b->symbols != NULL && b->heap != NULL) return BT_OK;
    b->capacity = 0;
    return bt_fail(e, BT_ERR_MEMORY, "no memory to merge a piece of %zu bytes", n);
}

static void heap_push(merger *m, uint64_t entry)
{
    size_t i = m->n_heap++;
    while (i > 0) {
        size_t parent = (i - 1) / 2;
        m->n_steps++;
        if (m->heap[parent] <= entry) break;
        m->heap[i] = m->heap[parent];
        i = parent;
    }
    m->heap[i] = entry;
}

static uint64_t heap_pop(merger *m)
{
    assert(m->n_heap > 0);
    uint64_t top = m->heap[0], entry = m->heap[--m->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        m->n_steps++;
        if (child >= m->n_heap) break;
        if (child + 1 < m->n_heap && m->heap[child + 1] < m->heap[child]) child++;
        if (entry <= m->heap[child]) break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = entry;
    return top;
}

/* Bytes of the symbol at `left` and its right neighbour together: a symbol's index is its place in the piece. */
static size_t pair_bytes(const merger *m, uint32_t left)
{
    uint32_t end = m->symbols[m->symbols[left].next].next;
    return (end == SYMBOL_NONE ? m->n : end) - left;
}

/* Of the pair of the symbol at `left` and its right neighbour. */
static uint32_t pair_rank(merger *m, uint32_t left)
{
    const bt_symbol *symbol = &m->symbols[left];
    if (!m->v->by_rank) return bt_vocab_rank(m->v, symbol->id, m->symbols[symbol->next].id);
    size_t size = pair_bytes(m, left);
    if (size > m->v->token_bytes_max) return BT_RANK_NONE;
    m->n_steps += size;
    int32_t id = bt_vocab_find(m->v, m->piece + left, size);
    return id < 0 ? BT_RANK_NONE : (uint32_t)id;
}

/* The token that a merge of this rank gives. */
static int32_t merged_id(const merger *m, uint32_t rank)
{
    return m->v->by_rank ? (int32_t)rank : m->v->merges[rank].merged;
}

/* Whether the pair at `left` is still the one that was queued with this rank. */
static bool is_current(const merger *m, uint32_t left, uint32_t rank)
{
    const bt_symbol *symbol = &m->symbols[left];
    if (symbol->id < 0 || symbol->next == SYMBOL_NONE) return false;
    if (m->v->by_rank) return pair_bytes(m, left) == m->v->tokens[rank].size;
    const bt_merge *merge = &m->v->merges[rank];
    return symbol->id == merge->left && m->symbols[symbol->next].id == merge->right;
}

/* Queues the pair of the symbol at `left` and its right neighbour, if it merges. */
static void consider(merger *m, uint32_t left)
{
    if (m->symbols[left].next == SYMBOL_NONE) return;
    uint32_t rank = pair_rank(m, left);
    if (rank == BT_RANK_NONE) return;
    if (m->plain_only && (m->v->tokens[merged_id(m, rank)].flags & BT_TOKEN_ADDED) != 0) return;
    heap_push(m, (uint64_t)rank << 32 | left);
}

static void merge_all(merger *m)
{
    while (m->n_heap > 0) {
        uint64_t top = heap_pop(m);
        uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
        if (!is_current(m, at, rank)) continue;
        bt_symbol *left = &m->symbols[at], *right = &m->symbols[left->next];
        left->id = merged_id(m, rank);
        left->next = right->next;
        right->id = -1;
        if (left->next != SYMBOL_NONE) m->symbols[left->next].previous = at;
        if (left->previous != SYMBOL_NONE) consider(m, left->previous);
        consider(m, at);
    }
}

bt_status bt_bpe_encode(const bt_vocab *v, bt_bpe *b, const char *piece, size_t n, bt_ids *out, bt_error *e)
{
    assert(n <= BT_PIECE_BYTES_MAX);
    if (n == 0) return BT_OK;
    bt_status st = reserve(b, n, e);
    if (st != BT_OK) return st;
    merger m = {.v = v, .piece = piece, .n = n, .symbols = b->symbols, .heap = b->heap, .plain_only = b->plain_only};
    for (size_t i = 0; i < n; i++) {
        int32_t id = v->byte_ids[(uint8_t)piece[i]];
        if (id < 0) {
            return bt_fail(e, BT_ERR_FORMAT, "the vocabulary has no token for the byte 0x%02x", (uint8_t)piece[i]);
        }
        m.symbols[i] = (bt_symbol){.id = id,
                                   .previous = i == 0 ? SYMBOL_NONE : (uint32_t)i - 1,
                                   .next = i + 1 == n ? SYMBOL_NONE : (uint32_t)i + 1};
    }
    for (size_t i = 0; i < n; i++) consider(&m, (uint32_t)i);
    merge_all(&m);
    for (uint32_t i = 0; i != SYMBOL_NONE && st == BT_OK; i = m.symbols[i].next) {
        st = bt_ids_add(out, m.symbols[i].id, e);
    }
    b->n_steps += m.n_steps + n;
    return st;
}
