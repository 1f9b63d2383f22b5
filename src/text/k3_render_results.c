/*
 * Which call a tool's result belongs to. Where every result of a run names the call that it answers, they are brought
 * into the order of the calls; else they stay as they came, and each is named by itself or by its place. Ids and
 * results are sorted, for a request may hold a great many of both.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/k3_render.h"

typedef struct call_id {
    bt_chars id;
    size_t call_i;
} call_id;

static int compare_ids(const void *a, const void *b)
{
    const call_id *x = a, *y = b;
    int order = bt_chars_compare(x->id, y->id);
    return order != 0 ? order : x->call_i < y->call_i ? -1 : x->call_i > y->call_i;
}

static int compare_results(const void *a, const void *b)
{
    const bt_k3_result *x = a, *y = b;
    if (x->call_i != y->call_i) return x->call_i < y->call_i ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* A member that is a text, or a number as it is written; text NULL: there is none. */
static bt_chars text_of(const bt_message *m, const char *key)
{
    const bt_json_node *n = bt_json_get(m->given, key);
    bool has_text = n != NULL && (n->kind == BT_JSON_STRING || n->kind == BT_JSON_NUMBER);
    return has_text ? bt_chars_of(n) : (bt_chars){NULL, 0};
}

/* The id of the call that a result answers. */
static bt_chars answered_id(const bt_message *m)
{
    return text_of(m, bt_json_get(m->given, "tool_call_id") != NULL ? "tool_call_id" : "id");
}

/* The first call of this id among sorted ones; SIZE_MAX: none. */
static size_t find_call(const call_id *ids, size_t n, bt_chars id)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bt_chars_compare(ids[middle].id, id) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && bt_chars_equal(ids[low].id, id) ? ids[low].call_i : SIZE_MAX;
}

/* true: every result has its call, and they are sorted by it. */
static bool resolve(const bt_message *calls, const call_id *ids, size_t n_ids, bt_k3_result *results, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bt_chars id = answered_id(results[i].message);
        size_t call_i = id.text == NULL ? SIZE_MAX : find_call(ids, n_ids, id);
        if (call_i == SIZE_MAX) return false;
        results[i].call_i = call_i;
        results[i].tool = calls->calls[call_i].name;
    }
    qsort(results, n, sizeof *results, compare_results);
    return true;
}

/* By the result's own word, else by its place among the results since the calls. */
static bt_status name_each(size_t first, const bt_message *calls, size_t n_before, bt_k3_result *results, size_t n,
                           bt_error *e)
{
    for (size_t i = 0; i < n; i++) {
        const bt_message *m = results[i].message;
        const size_t place = n_before + i;
        results[i].tool = text_of(m, bt_json_get(m->given, "tool") != NULL ? "tool" : "name");
        if (results[i].tool.text == NULL && calls != NULL && place < calls->n_calls)
            results[i].tool = calls->calls[place].name;
        if (results[i].tool.text == NULL)
            return bt_fail(e, BT_ERR_USAGE,
                           "messages[%zu] is a result of no known call: give the tool_call_id of a call before it, "
                           "or the tool's name",
                           first + i);
    }
    return BT_OK;
}

bt_status bt_k3_results(const bt_conversation *c, size_t first, size_t n, const bt_message *calls, size_t n_before,
                        bt_k3_result **out, bt_error *e)
{
    const size_t n_calls = calls == NULL ? 0 : calls->n_calls;
    bt_k3_result *results = bt_calloc(n, sizeof *results);
    call_id *ids = bt_malloc(n_calls + 1, sizeof *ids);
    bt_status st = BT_OK;
    size_t n_ids = 0;
    assert(n > 0 && first + n <= c->n_messages);
    if (results == NULL || ids == NULL) st = bt_fail(e, BT_ERR_MEMORY, "no memory for %zu results", n);
    for (size_t i = 0; i < n && st == BT_OK; i++) {
        results[i] = (bt_k3_result){.message = &c->messages[first + i], .order = i};
    }
    for (size_t i = 0; i < n_calls && st == BT_OK; i++) {
        if (calls->calls[i].id.text != NULL) ids[n_ids++] = (call_id){calls->calls[i].id, i};
    }
    if (st == BT_OK) qsort(ids, n_ids, sizeof *ids, compare_ids);
    if (st == BT_OK && !resolve(calls, ids, n_ids, results, n)) st = name_each(first, calls, n_before, results, n, e);
    bt_free(ids);
    if (st == BT_OK) {
        *out = results;
    } else {
        bt_free(results);
    }
    return st;
}
