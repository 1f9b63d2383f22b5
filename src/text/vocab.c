/*
 * Vocabulary: see vocab.h. Two hash tables with open addressing, both filled once at open and at most two thirds full:
 * keys by their text, merges by their pair of ids. Nothing is guessed: doubled keys, doubled ids, merges that lead out
 * of the vocabulary are refused, for each of them means that ids would be other than the model's.
 */
#include "text/vocab.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

#define ROOM_BYTES 65536 /* texts are packed into blocks of this size: most have six bytes, the arena aligns to 16 */
#define KEYS_MAX   (1u << 28)
/* What filling a table with n entries may take in steps, and how many slots in a row may be occupied, which is what a
 * lookup in vain walks over. Real vocabularies need a thirtieth of the first, and runs of a hundred. */
#define STEPS_MAX(n) (32 * (uint64_t)(n) + 1000)
#define RUN_MAX      4096
#define QUOTED_MAX   80 /* bytes of a token's text in a message */
/* Ids index a table, so a stray high one must not size it. Models leave holes of a few hundred ids. */
#define ID_SPREAD    8
#define ID_SPREAD_AT 65536

void bt_vocab_free(bt_vocab *v)
{
    bt_free(v->keys);
    bt_free(v->slots);
    bt_free(v->merges);
    bt_free(v->pairs);
    bt_free(v->tokens);
    bt_arena_free(v->arena);
    *v = (bt_vocab){0};
}

static bt_status no_memory(bt_error *e)
{
    return bt_fail(e, BT_ERR_MEMORY, "no memory for the vocabulary");
}

static int quoted(size_t size)
{
    return (int)(size < QUOTED_MAX ? size : QUOTED_MAX);
}

char *bt_vocab_keep(bt_vocab *v, const char *s, size_t n)
{
    if (v->arena == NULL) v->arena = bt_arena_new();
    if (v->arena == NULL) return NULL;
    if (n >= v->room_bytes) {
        size_t bytes = n + 1 > ROOM_BYTES ? n + 1 : ROOM_BYTES;
        char *room = bt_arena_alloc(v->arena, bytes, 1);
        if (room == NULL) return NULL;
        v->room = room;
        v->room_bytes = bytes;
    }
    char *kept = v->room;
    memcpy(kept, s, n);
    kept[n] = '\0';
    v->room += n + 1;
    v->room_bytes -= n + 1;
    return kept;
}

/* Makes room for one more entry of `size` bytes; false: no memory. */
static bool grow(void **entries, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity) return true;
    size_t more = *capacity == 0 ? 1024 : *capacity * 2;
    void *p = bt_realloc(*entries, more, size);
    if (p == NULL) return false;
    *entries = p;
    *capacity = more;
    return true;
}

/* ---- GPT-2's alphabet -----------------------------------------------------------------------------------------------
 *
 * Printable bytes stand for themselves; the others, in ascending order, for U+0100 and up.
 */

#define SHIFTED 0x100u /* 0x00..0x20 -> U+0100.., 0x7f..0xa0 -> U+0121.., 0xad -> U+0143 */

static bool is_printable_byte(uint32_t b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xff && b != 0xad);
}

static uint32_t byte_to_code(uint8_t b)
{
    if (is_printable_byte(b)) return b;
    if (b <= 0x20) return SHIFTED + b;
    return b == 0xad ? SHIFTED + 0x43 : SHIFTED + 0x21 + (b - 0x7fu);
}

/* The byte that c stands for; -1: c is not in the alphabet. */
static int code_to_byte(uint32_t c)
{
    if (c < SHIFTED) return is_printable_byte(c) ? (int)c : -1;
    uint32_t i = c - SHIFTED;
    if (i <= 0x20) return (int)i;
    if (i < 0x43) return (int)(i - 0x21 + 0x7f);
    return i == 0x43 ? 0xad : -1;
}

size_t bt_byte_to_char(uint8_t byte, char out[2])
{
    char utf8[4];
    size_t n = bt_utf8_encode(byte_to_code(byte), utf8);
    assert(n <= 2);
    memcpy(out, utf8, n);
    return n;
}

bool bt_key_to_bytes(const char *key, size_t n, char *out, size_t *out_size)
{
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t length = bt_utf8_decode(key + i, n - i, &c);
        int byte = length == 0 ? -1 : code_to_byte(c);
        if (byte < 0) return false;
        out[used++] = (char)byte;
        i += length;
    }
    *out_size = used;
    return true;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static uint64_t hash_text(const char *s, size_t n)
{
    uint64_t h = n, word;
    while (n >= 8) {
        memcpy(&word, s, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
        s += 8;
        n -= 8;
    }
    word = 0;
    memcpy(&word, s, n);
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}

bt_status bt_vocab_add_key(bt_vocab *v, const char *key, size_t size, bt_error *e)
{
    assert(v->slots == NULL);
    if (size > BT_KEY_BYTES_MAX) {
        return bt_fail(e, BT_ERR_FORMAT, "a token's text has %zu bytes; the limit is %d", size, BT_KEY_BYTES_MAX);
    }
    if (v->n_keys == KEYS_MAX) return bt_fail(e, BT_ERR_FORMAT, "more than %u tokens", KEYS_MAX);
    void *entries = v->keys;
    if (!grow(&entries, v->n_keys, &v->keys_capacity, sizeof *v->keys)) return no_memory(e);
    v->keys = entries;
    char *kept = bt_vocab_keep(v, key, size);
    if (kept == NULL) return no_memory(e);
    v->keys[v->n_keys++] = (bt_vocab_key){.key = kept, .size = (uint32_t)size};
    return BT_OK;
}

/* A power of two of which n entries fill at most two thirds. */
static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size - size / 3 < n) size *= 2;
    return size;
}

/* Where the search for a key begins. */
static size_t first_slot(const bt_vocab *v, const char *key, size_t size)
{
    return (size_t)hash_text(key, size) & (v->n_slots - 1);
}

/* The slot of this key, or the empty one where it belongs. */
static size_t find_slot(const bt_vocab *v, const char *key, size_t size)
{
    size_t mask = v->n_slots - 1, i = first_slot(v, key, size);
    while (v->slots[i] != 0) {
        const bt_vocab_key *k = &v->keys[v->slots[i] - 1];
        if (k->size == size && memcmp(k->key, key, size) == 0) break;
        i = (i + 1) & mask;
    }
    return i;
}

static bt_status crowded(const char *what, bt_error *e)
{
    return bt_fail(e, BT_ERR_FORMAT,
                   "its %s are chosen so that looking them up never ends: take the tokenizer that the vendor published",
                   what);
}

/* Counts a run of occupied slots on; false: it is too long. */
static bool run_is_short(size_t *run, bool is_occupied)
{
    *run = is_occupied ? *run + 1 : 0;
    return *run <= RUN_MAX;
}

bt_status bt_vocab_index(bt_vocab *v, bt_error *e)
{
    assert(v->slots == NULL);
    uint64_t n_steps = 0;
    v->n_slots = table_size(v->n_keys);
    v->slots = bt_calloc(v->n_slots, sizeof *v->slots);
    if (v->slots == NULL) return no_memory(e);
    for (size_t key_i = 0; key_i < v->n_keys; key_i++) {
        const bt_vocab_key *k = &v->keys[key_i];
        size_t i = find_slot(v, k->key, k->size);
        n_steps += (i - first_slot(v, k->key, k->size)) & (v->n_slots - 1);
        if (n_steps > STEPS_MAX(v->n_keys)) return crowded("tokens", e);
        if (v->slots[i] != 0 && v->by_rank) { /* keys are bytes, nothing to show */
            return bt_fail(e, BT_ERR_FORMAT, "the same token has two ranks, %d and %d",
                           (int)v->keys[v->slots[i] - 1].id, (int)k->id);
        }
        if (v->slots[i] != 0) {
            return bt_fail(e, BT_ERR_FORMAT, "the token \"%.*s\" is in the vocabulary twice (ids %d and %d)",
                           quoted(k->size), k->key, (int)v->keys[v->slots[i] - 1].id, (int)k->id);
        }
        v->slots[i] = (uint32_t)key_i + 1;
    }
    for (size_t i = 0, run = 0; i < v->n_slots; i++)
        if (!run_is_short(&run, v->slots[i] != 0)) return crowded("tokens", e);
    return BT_OK;
}

int32_t bt_vocab_find(const bt_vocab *v, const char *key, size_t size)
{
    assert(v->slots != NULL);
    size_t i = find_slot(v, key, size);
    return v->slots[i] == 0 ? -1 : v->keys[v->slots[i] - 1].id;
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

static bt_status find_part(const bt_vocab *v, const char *key, size_t size, int32_t *id, bt_error *e)
{
    *id = bt_vocab_find(v, key, size);
    if (*id >= 0) return BT_OK;
    return bt_fail(e, BT_ERR_FORMAT, "merge %zu needs the token \"%.*s\", which is not in the vocabulary", v->n_merges,
                   quoted(size), key);
}

bt_status bt_vocab_add_merge(bt_vocab *v, const char *left, size_t left_size, const char *right, size_t right_size,
                             bt_error *e)
{
    char joined[2 * BT_KEY_BYTES_MAX];
    bt_merge m;
    bt_status st = find_part(v, left, left_size, &m.left, e);
    if (st == BT_OK) st = find_part(v, right, right_size, &m.right, e);
    if (st != BT_OK) return st;
    assert(left_size + right_size <= sizeof joined); /* keys of the vocabulary are no longer than that */
    memcpy(joined, left, left_size);
    memcpy(joined + left_size, right, right_size);
    st = find_part(v, joined, left_size + right_size, &m.merged, e);
    if (st != BT_OK) return st;
    if (left_size == 0 || right_size == 0) {
        return bt_fail(e, BT_ERR_FORMAT, "merge %zu has an empty part", v->n_merges);
    }
    if (v->n_merges == KEYS_MAX) return bt_fail(e, BT_ERR_FORMAT, "more than %u merges", KEYS_MAX);
    void *entries = v->merges;
    if (!grow(&entries, v->n_merges, &v->merges_capacity, sizeof *v->merges)) return no_memory(e);
    v->merges = entries;
    v->merges[v->n_merges++] = m;
    return BT_OK;
}

static bt_status index_merges(bt_vocab *v, bt_error *e)
{
    v->n_pairs = table_size(v->n_merges);
    v->pairs = bt_malloc(v->n_pairs, sizeof *v->pairs);
    if (v->pairs == NULL) return no_memory(e);
    for (size_t i = 0; i < v->n_pairs; i++) v->pairs[i] = (bt_pair){.pair = BT_PAIR_NONE};
    uint64_t n_steps = 0;
    for (size_t rank = 0; rank < v->n_merges; rank++) {
        uint64_t pair = (uint64_t)(uint32_t)v->merges[rank].left << 32 | (uint32_t)v->merges[rank].right;
        size_t i = (size_t)bt_pair_hash(pair) & (v->n_pairs - 1);
        for (; v->pairs[i].pair != BT_PAIR_NONE && v->pairs[i].pair != pair; n_steps++) i = (i + 1) & (v->n_pairs - 1);
        if (n_steps > STEPS_MAX(v->n_merges)) return crowded("merges", e);
        if (v->pairs[i].pair == BT_PAIR_NONE) v->pairs[i] = (bt_pair){.pair = pair, .rank = (uint32_t)rank};
    }
    for (size_t i = 0, run = 0; i < v->n_pairs; i++)
        if (!run_is_short(&run, v->pairs[i].pair != BT_PAIR_NONE)) return crowded("merges", e);
    return BT_OK;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static bt_status size_ids(bt_vocab *v, int32_t id_max, bt_error *e)
{
    for (size_t i = 0; i < v->n_keys; i++) {
        if (v->keys[i].id > id_max) id_max = v->keys[i].id;
    }
    size_t n_ids = (size_t)((int64_t)id_max + 1);
    size_t n_ids_max = v->n_keys * ID_SPREAD + ID_SPREAD_AT;
    if (n_ids > n_ids_max) {
        return bt_fail(e, BT_ERR_FORMAT, "the id %d is out of proportion to a vocabulary of %zu entries", (int)id_max,
                       v->n_keys);
    }
    v->tokens = bt_calloc(n_ids > 0 ? n_ids : 1, sizeof *v->tokens);
    if (v->tokens == NULL) return no_memory(e);
    v->n_ids = n_ids;
    return BT_OK;
}

/* What decoding prints for a key: its bytes, or the key itself where it is outside the alphabet (such a token is
 * reachable only as an added one). */
static bt_status fill_text(bt_vocab *v, const bt_vocab_key *k, bt_error *e)
{
    char bytes[BT_KEY_BYTES_MAX];
    size_t n;
    bt_token *t = &v->tokens[k->id];
    if (t->text != NULL) {
        return bt_fail(e, BT_ERR_FORMAT, "the id %d is given to two tokens, \"%.*s\" and \"%.*s\"", (int)k->id,
                       quoted(t->size), t->text, quoted(k->size), k->key);
    }
    t->text = k->key;
    t->size = k->size;
    if (!v->by_rank && bt_key_to_bytes(k->key, k->size, bytes, &n) && (n != k->size || memcmp(bytes, k->key, n) != 0)) {
        t->text = bt_vocab_keep(v, bytes, n);
        t->size = (uint32_t)n;
        if (t->text == NULL) return no_memory(e);
    }
    if (t->size > v->token_bytes_max) v->token_bytes_max = t->size;
    return BT_OK;
}

bt_status bt_vocab_finish(bt_vocab *v, int32_t id_max, bt_error *e)
{
    assert(v->slots != NULL);
    assert(v->tokens == NULL);
    bt_status st = index_merges(v, e);
    if (st == BT_OK) st = size_ids(v, id_max, e);
    for (size_t i = 0; st == BT_OK && i < v->n_keys; i++) st = fill_text(v, &v->keys[i], e);
    if (st != BT_OK) return st;
    for (unsigned b = 0; b < 256; b++) {
        char key[2] = {(char)b};
        size_t n = v->by_rank ? 1 : bt_byte_to_char((uint8_t)b, key);
        v->byte_ids[b] = bt_vocab_find(v, key, n);
    }
    return BT_OK;
}

bt_status bt_vocab_add_token(bt_vocab *v, const char *text, size_t size, int32_t id, bool special, bt_error *e)
{
    assert(id >= 0);
    assert((size_t)id < v->n_ids);
    if (size == 0 || size > BT_KEY_BYTES_MAX) {
        return bt_fail(e, BT_ERR_FORMAT, "added token %d: its text has %zu bytes; 1 to %d can be", (int)id, size,
                       BT_KEY_BYTES_MAX);
    }
    int32_t listed = bt_vocab_find(v, text, size);
    if (listed >= 0 && listed != id) {
        return bt_fail(e, BT_ERR_FORMAT, "added token \"%.*s\" has the id %d, but the vocabulary gives it %d",
                       quoted(size), text, (int)id, (int)listed);
    }
    bt_token *t = &v->tokens[id];
    if (t->flags != 0) {
        return bt_fail(e, BT_ERR_FORMAT, "the id %d is given to two added tokens, \"%.*s\" and \"%.*s\"", (int)id,
                       quoted(t->size), t->text, quoted(size), text);
    }
    if (t->text != NULL && listed < 0) {
        return bt_fail(e, BT_ERR_FORMAT, "added token \"%.*s\" has the id %d, but that is \"%.*s\" in the vocabulary",
                       quoted(size), text, (int)id, quoted(t->size), t->text);
    }
    t->text = bt_vocab_keep(v, text, size);
    if (t->text == NULL) return no_memory(e);
    t->size = (uint32_t)size;
    t->flags = BT_TOKEN_ADDED | (special ? BT_TOKEN_SPECIAL : 0);
    if (size > v->token_bytes_max) v->token_bytes_max = size;
    return BT_OK;
}
