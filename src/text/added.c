/*
 * Added tokens in a text: the leftmost match, of those the longest, matches never overlapping. The texts make a trie;
 * a walk down it from every position costs at most the longest text, which the file bounds, not the input.
 *
 * The order of steps is that of Hugging Face's library and shows in odd cases: a match that its single_word flag
 * rejects still hides what lies inside it, and white space taken by rstrip can be taken again by a token that consists
 * of it, unless that strips to its left.
 */
#include "text/added.h"

#include <assert.h>
#include <utf8proc.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/utf8.h"

#define NODE_NONE  0u /* the root is nobody's child */
#define TOKEN_NONE UINT32_MAX
#define NODES_MAX  (1u << 24)

typedef struct trie_node {
    uint32_t child, sibling;
    uint32_t token; /* whose text ends here */
    uint8_t byte;
} trie_node;

typedef struct flags {
    int32_t id;
    bool single_word, lstrip, rstrip;
} flags;

struct bt_added {
    trie_node *nodes; /* nodes[0]: the root */
    size_t n_nodes, nodes_capacity;
    flags *tokens;
    size_t n_tokens, tokens_capacity;
    uint32_t roots[256]; /* the root's children by byte: most positions of a text end here */
};

bt_status bt_added_open(bt_added **out, bt_error *e)
{
    bt_added *a = bt_calloc(1, sizeof *a);
    if (a != NULL) a->nodes = bt_calloc(64, sizeof *a->nodes);
    if (a == NULL || a->nodes == NULL) {
        bt_added_close(a);
        return bt_fail(e, BT_ERR_MEMORY, "no memory for the added tokens");
    }
    a->nodes_capacity = 64;
    a->nodes[0].token = TOKEN_NONE;
    a->n_nodes = 1;
    *out = a;
    return BT_OK;
}

void bt_added_close(bt_added *a)
{
    if (a == NULL) return;
    bt_free(a->nodes);
    bt_free(a->tokens);
    bt_free(a);
}

bool bt_added_is_empty(const bt_added *a)
{
    return a->n_tokens == 0;
}

static uint32_t find_child(const bt_added *a, uint32_t node, uint8_t byte)
{
    if (node == 0) return a->roots[byte];
    uint32_t child = a->nodes[node].child;
    while (child != NODE_NONE && a->nodes[child].byte != byte) child = a->nodes[child].sibling;
    return child;
}

/* A new child of `node`; NODE_NONE: no memory. */
static uint32_t add_child(bt_added *a, uint32_t node, uint8_t byte)
{
    if (a->n_nodes == a->nodes_capacity) {
        if (a->n_nodes >= NODES_MAX) return NODE_NONE;
        trie_node *more = bt_realloc(a->nodes, a->nodes_capacity * 2, sizeof *more);
        if (more == NULL) return NODE_NONE;
        a->nodes = more;
        a->nodes_capacity *= 2;
    }
    uint32_t child = (uint32_t)a->n_nodes++;
    a->nodes[child] = (trie_node){.sibling = a->nodes[node].child, .token = TOKEN_NONE, .byte = byte};
    a->nodes[node].child = child;
    if (node == 0) a->roots[byte] = child;
    return child;
}

bt_status bt_added_add(bt_added *a, const char *text, size_t size, const bt_added_token *token, bool *known,
                       bt_error *e)
{
    assert(size > 0);
    if (a->n_tokens == a->tokens_capacity) {
        size_t capacity = a->tokens_capacity == 0 ? 64 : a->tokens_capacity * 2;
        flags *more = bt_realloc(a->tokens, capacity, sizeof *more);
        if (more == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for the added tokens");
        a->tokens = more;
        a->tokens_capacity = capacity;
    }
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        uint32_t child = find_child(a, node, (uint8_t)text[i]);
        if (child == NODE_NONE) child = add_child(a, node, (uint8_t)text[i]);
        if (child == NODE_NONE) return bt_fail(e, BT_ERR_MEMORY, "no memory for the added tokens");
        node = child;
    }
    *known = a->nodes[node].token != TOKEN_NONE;
    if (*known) return BT_OK;
    a->nodes[node].token = (uint32_t)a->n_tokens;
    a->tokens[a->n_tokens++] =
        (flags){.id = token->id, .single_word = token->single_word, .lstrip = token->lstrip, .rstrip = token->rstrip};
    return BT_OK;
}

/* ---- what flags look at ------------------------------------------------------------------------------------------ */

/* Word characters as Unicode's regular expressions define them: alphabetic, marks, decimal digits, connectors, joiners.
 * Alphabetic characters that are no letter are numerals (Nl), marks, and the circled and squared letters. */
static bool is_word(uint32_t c)
{
    if (c == 0x200c || c == 0x200d) return true;
    if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149)) return true;
    if ((c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189)) return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The character that ends before `at`, and where it begins; at > 0. */
static uint32_t char_before(const bt_added_scan *s, size_t at, size_t *begin)
{
    uint32_t c = 0;
    do {
        at--;
    } while (at > 0 && ((unsigned char)s->text[at] & 0xc0) == 0x80);
    (void)bt_utf8_decode(s->text + at, s->size - at, &c);
    *begin = at;
    return c;
}

static bool touches_word(const bt_added_scan *s, size_t begin, size_t end)
{
    size_t at;
    uint32_t c = 0;
    if (begin > 0 && is_word(char_before(s, begin, &at))) return true;
    return end < s->size && bt_utf8_decode(s->text + end, s->size - end, &c) > 0 && is_word(c);
}

static size_t strip_left(bt_added_scan *s, size_t begin)
{
    size_t at;
    while (begin > s->done && is_space(char_before(s, begin, &at))) {
        s->n_steps += begin - at;
        begin = at;
    }
    return begin < s->done ? s->done : begin; /* a token before may have taken this one's own spaces */
}

static size_t strip_right(bt_added_scan *s, size_t end)
{
    uint32_t c = 0;
    while (end < s->size) {
        size_t length = bt_utf8_decode(s->text + end, s->size - end, &c);
        if (!is_space(c)) break;
        s->n_steps += length;
        end += length;
    }
    return end;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* Moves s->at to where a token may begin, and gives the end of the text that may belong to it. Text that is not allowed
 * could not become part of a token however it is written: it is as if it held letters that no token has. */
static size_t find_allowed(bt_added_scan *s)
{
    if (s->allowed == NULL) return s->size;
    while (s->allowed_i < s->allowed->n) {
        const bt_span *span = &s->allowed->data[s->allowed_i];
        assert(span->at <= s->size && span->size <= s->size - span->at);
        if (s->at < span->at) s->at = span->at;
        if (s->at < span->at + span->size) return span->at + span->size;
        s->allowed_i++;
    }
    s->at = s->size;
    return s->size;
}

/* The longest token that begins at `at` and lies before `limit`, and where it ends; NULL: none. */
static const flags *match_at(const bt_added *a, bt_added_scan *s, size_t at, size_t limit, size_t *end)
{
    const flags *longest = NULL;
    uint32_t node = 0;
    for (size_t i = at; i < limit; i++) {
        s->n_steps++;
        node = find_child(a, node, (uint8_t)s->text[i]);
        if (node == NODE_NONE) break;
        if (a->nodes[node].token == TOKEN_NONE) continue;
        longest = &a->tokens[a->nodes[node].token];
        *end = i + 1;
    }
    return longest;
}

bool bt_added_next(const bt_added *a, bt_added_scan *s, size_t *gap, size_t *gap_size, int32_t *id)
{
    while (s->at < s->size) {
        size_t limit = find_allowed(s), begin = s->at, end = begin;
        if (begin == s->size) break;
        const flags *token = match_at(a, s, begin, limit, &end);
        s->at = token == NULL ? begin + 1 : end;
        if (token == NULL || (token->single_word && touches_word(s, begin, end))) continue;
        if (token->lstrip) begin = strip_left(s, begin);
        if (token->rstrip) end = strip_right(s, end);
        if (begin >= end) continue;
        *gap = s->done;
        *gap_size = begin > s->done ? begin - s->done : 0;
        *id = token->id;
        s->done = end;
        return true;
    }
    *gap = s->done;
    *gap_size = s->size - s->done;
    return false;
}
