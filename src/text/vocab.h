/*
 * Vocabulary of a byte-level BPE: which text each id stands for, which id each key has, and which pairs merge.
 *
 * Keys are kept as the file writes them, in GPT-2's alphabet of 256 printable characters, one per byte: merges are
 * given in it, and a key outside the alphabet then needs no rule of its own. Texts are what decoding prints.
 *
 * A vocabulary by rank (tiktoken's) has no list of merges: two neighbours merge if what they give together is a token,
 * and that token's id is the merge's rank. Its keys are the bytes themselves.
 */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "baltoro.h"
#include "base/arena.h"

#define BT_KEY_BYTES_MAX 8192 /* of a token's text; merging then works on the stack */

#define BT_TOKEN_ADDED   1u /* listed among the added tokens */
#define BT_TOKEN_SPECIAL 2u /* and flagged special: decoding leaves it out unless asked */

typedef struct bt_token {
    const char *text; /* [size] the bytes it stands for; NULL: no token has this id */
    uint32_t size;
    uint32_t flags;
} bt_token;

typedef struct bt_vocab_key {
    const char *key; /* [size] as in the file, terminated */
    uint32_t size;
    int32_t id;
} bt_vocab_key;

typedef struct bt_merge { /* of rank = its index */
    int32_t left, right, merged;
} bt_merge;

typedef struct bt_pair { /* an entry of the hash table of merges */
    uint64_t pair;       /* left << 32 | right; BT_PAIR_NONE: empty */
    uint32_t rank;
} bt_pair;

#define BT_PAIR_NONE UINT64_MAX
#define BT_RANK_NONE UINT32_MAX

typedef struct bt_vocab { /* zero it, fill it in the order of the functions below, free it with bt_vocab_free */
    bool by_rank;         /* set it first; there is no step 3 then */
    bt_arena *arena;      /* texts and keys */
    char *room;           /* private: what is left of the arena's last block for texts */
    size_t room_bytes;
    bt_vocab_key *keys; /* [n_keys] */
    size_t n_keys, keys_capacity;
    uint32_t *slots; /* [n_slots, a power of two] index into keys + 1; 0: empty */
    size_t n_slots;
    bt_merge *merges; /* [n_merges] by rank */
    size_t n_merges, merges_capacity;
    bt_pair *pairs; /* [n_pairs, a power of two] */
    size_t n_pairs;
    bt_token *tokens; /* [n_ids] by id, with holes */
    size_t n_ids;     /* highest id + 1 */
    size_t token_bytes_max;
    int32_t byte_ids[256]; /* the token of a single byte; -1: none */
} bt_vocab;

void bt_vocab_free(bt_vocab *v);

/* 1. Every entry of "vocab"; the caller then sets the id of the last of v->keys. */
bt_status bt_vocab_add_key(bt_vocab *v, const char *key, size_t size, bt_error *e);
/* 2. Then lookups work; a key that came twice is refused. */
bt_status bt_vocab_index(bt_vocab *v, bt_error *e);
int32_t bt_vocab_find(const bt_vocab *v, const char *key, size_t size); /* -1: none */
/* 3. Every merge, best first. A repeated one keeps its first rank. Parts and result must be keys. */
bt_status bt_vocab_add_merge(bt_vocab *v, const char *left, size_t left_size, const char *right, size_t right_size,
                             bt_error *e);
/* 4. Makes the tables of merges and of texts; an id that two keys share is refused. id_max is the highest id of the
 * added tokens, -1 if there are none. */
bt_status bt_vocab_finish(bt_vocab *v, int32_t id_max, bt_error *e);
/* 5. Every added token. Refused: an id that another text has, a text that the vocabulary lists under another id. */
bt_status bt_vocab_add_token(bt_vocab *v, const char *text, size_t size, int32_t id, bool special, bt_error *e);

/* A terminated copy that lives as long as the vocabulary, unaligned and close to its neighbours; NULL: no memory. */
char *bt_vocab_keep(bt_vocab *v, const char *s, size_t n);

/* Index into merges of the pair, BT_RANK_NONE if it does not merge. */
static inline uint64_t bt_pair_hash(uint64_t pair)
{
    pair *= 0x9e3779b97f4a7c15u;
    return pair ^ pair >> 29;
}

static inline uint32_t bt_vocab_rank(const bt_vocab *v, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = v->n_pairs - 1;
    for (size_t i = (size_t)bt_pair_hash(pair) & mask;; i = (i + 1) & mask) { /* a third or more is empty */
        if (v->pairs[i].pair == pair) return v->pairs[i].rank;
        if (v->pairs[i].pair == BT_PAIR_NONE) return BT_RANK_NONE;
    }
}

/* GPT-2's alphabet: the character that stands for a byte, 1 or 2 bytes of UTF-8 to out. */
size_t bt_byte_to_char(uint8_t byte, char out[2]);
/* The bytes that key [n] stands for, to out (n bytes suffice); false if a character is outside the alphabet. */
bool bt_key_to_bytes(const char *key, size_t n, char *out, size_t *out_size);

#endif
