/*
 * JSON tree: what a small document becomes when several readers want several parts of it. Built from the scanner's
 * events without recursion. Objects keep their order; a key that appears twice is refused, for which of the two holds
 * would be a guess.
 */
#include "base/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct level {
    bt_json_node *node; /* the open object or array */
    bt_json_node *last; /* its last child */
} level;

static bt_status no_memory(bt_json *j)
{
    if (j->status == BT_OK) j->status = bt_fail(j->error, BT_ERR_MEMORY, "no memory for a JSON document");
    return j->status;
}

static int compare_keys(const void *a, const void *b)
{
    const bt_json_node *x = *(const bt_json_node *const *)a, *y = *(const bt_json_node *const *)b;
    size_t n = x->key_size < y->key_size ? x->key_size : y->key_size;
    int order = memcmp(x->key, y->key, n);
    if (order != 0) return order;
    return (x->key_size > y->key_size) - (x->key_size < y->key_size);
}

/* Sorts the keys of a finished object, so that many keys cost n log n. */
static bt_status refuse_duplicates(bt_json *j, const bt_json_node *object)
{
    if (object->n_children < 2) return BT_OK;
    const bt_json_node **sorted = bt_malloc(object->n_children, sizeof(const bt_json_node *));
    if (sorted == NULL) return no_memory(j);
    size_t n = 0;
    for (const bt_json_node *c = object->child; c != NULL; c = c->next) sorted[n++] = c;
    assert(n == object->n_children);
    qsort(sorted, n, sizeof *sorted, compare_keys);
    bt_status st = BT_OK;
    for (size_t i = 1; i < n && st == BT_OK; i++) {
        if (compare_keys(&sorted[i - 1], &sorted[i]) == 0) {
            st = bt_json_fail(j, "the key \"%.200s\" appears twice in the object that ends here", sorted[i]->key);
        }
    }
    bt_free(sorted);
    return st;
}

/* A node for the event just read; its text copied where it has one. */
static bt_json_node *new_node(bt_arena *a, const bt_json *j, bt_json_kind kind)
{
    bt_json_node *node = bt_arena_alloc(a, 1, sizeof *node);
    if (node == NULL) return NULL;
    node->kind = kind;
    if (kind == BT_JSON_STRING || kind == BT_JSON_NUMBER) {
        node->text = bt_arena_strndup(a, j->text, j->size);
        node->size = j->size;
        if (node->text == NULL) return NULL;
    }
    return node;
}

static void append(level *parent, bt_json_node *node)
{
    if (parent->last == NULL) {
        parent->node->child = node;
    } else {
        parent->last->next = node;
    }
    parent->last = node;
    parent->node->n_children++;
}

bt_status bt_json_subtree(bt_arena *a, bt_json *j, bt_json_kind first, const bt_json_node **out)
{
    level levels[BT_JSON_DEPTH_MAX];
    size_t n_levels = 0;
    bt_json_node *root = NULL;
    const char *key = NULL;
    size_t key_size = 0;
    bt_json_kind kind = first;
    for (;;) {
        if (kind == BT_JSON_ERROR || kind == BT_JSON_END) return j->status != BT_OK ? j->status : BT_ERR_FORMAT;
        if (kind == BT_JSON_KEY) {
            key = bt_arena_strndup(a, j->text, j->size);
            key_size = j->size;
            if (key == NULL) return no_memory(j);
        } else if (kind == BT_JSON_OBJECT_END || kind == BT_JSON_ARRAY_END) {
            assert(n_levels > 0);
            const bt_json_node *closed = levels[--n_levels].node;
            if (kind == BT_JSON_OBJECT_END && refuse_duplicates(j, closed) != BT_OK) return j->status;
        } else {
            bt_json_node *node = new_node(a, j, kind);
            if (node == NULL) return no_memory(j);
            node->key = key;
            node->key_size = key_size;
            key = NULL;
            key_size = 0;
            if (n_levels > 0) {
                append(&levels[n_levels - 1], node);
            } else {
                root = node;
            }
            if (kind == BT_JSON_OBJECT || kind == BT_JSON_ARRAY) levels[n_levels++] = (level){node, NULL};
        }
        if (n_levels == 0) break;
        kind = bt_json_next(j);
    }
    *out = root;
    return BT_OK;
}

bt_status bt_json_parse(bt_arena *a, const char *text, size_t size, unsigned flags, const bt_json_node **out,
                        bt_error *e)
{
    bt_json j;
    bt_json_begin(&j, text, size, flags, e);
    const bt_json_node *root = NULL;
    bt_status st = bt_json_subtree(a, &j, bt_json_next(&j), &root);
    if (st == BT_OK && bt_json_next(&j) != BT_JSON_END) st = j.status;
    bt_json_done(&j);
    if (st == BT_OK) *out = root;
    return st;
}

const bt_json_node *bt_json_get(const bt_json_node *object, const char *key)
{
    if (object == NULL || object->kind != BT_JSON_OBJECT) return NULL;
    size_t n = strlen(key);
    for (const bt_json_node *c = object->child; c != NULL; c = c->next) {
        if (c->key_size == n && memcmp(c->key, key, n) == 0) return c;
    }
    return NULL;
}
