/*
 * Tags and texts of Kimi K3's format, in the pieces in which its vendor tokenises them. A piece is a mark (the only one
 * in which control tokens are looked for), a tag's name, of each attribute the key with its space, the equals sign with
 * its quote, the value, the closing quote; then each text by itself. Where a value ends in punctuation the borders
 * decide its ids.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/k3_render.h"

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static void cut(bt_k3_text *t, bool is_token)
{
    const size_t size = t->out.text.size - t->cut_at;
    if (size == 0 || t->out.failed) return;
    if (t->n_pieces == t->capacity) {
        size_t capacity = t->capacity == 0 ? 256 : t->capacity * 2;
        bt_piece *more = bt_realloc(t->pieces, capacity, sizeof *more);
        if (more == NULL) {
            t->out.failed = true;
            return;
        }
        t->pieces = more;
        t->capacity = capacity;
    }
    t->pieces[t->n_pieces++] = (bt_piece){.size = size, .is_token = is_token};
    t->cut_at = t->out.text.size;
}

void bt_k3_cut(bt_k3_text *t)
{
    cut(t, false);
}

void bt_k3_mark(bt_k3_text *t, const char *mark)
{
    assert(t->out.failed || t->cut_at == t->out.text.size);
    bt_origin_template(&t->out, mark);
    cut(t, true);
}

static void word(bt_k3_text *t, const char *text)
{
    bt_origin_template(&t->out, text);
    cut(t, false);
}

void bt_k3_piece(bt_k3_text *t, bt_chars text)
{
    bt_origin_message(&t->out, text);
    cut(t, false);
}

/* Ampersands first, else those of the quotes would be written twice. */
static void escaped(bt_k3_text *t, bt_chars value)
{
    size_t start = 0;
    for (size_t i = 0; i < value.size; i++) {
        if (value.text[i] != '&' && value.text[i] != '"') continue;
        bt_origin_message(&t->out, (bt_chars){value.text + start, i - start});
        bt_origin_template(&t->out, value.text[i] == '&' ? "&amp;" : "&quot;");
        start = i + 1;
    }
    bt_origin_message(&t->out, (bt_chars){value.text + start, value.size - start});
    cut(t, false);
}

void bt_k3_open(bt_k3_text *t, const char *name, const bt_k3_attribute *attributes, size_t n)
{
    bt_k3_mark(t, "<|open|>");
    word(t, name);
    for (size_t i = 0; i < n; i++) {
        bt_origin_template(&t->out, " ");
        word(t, attributes[i].key);
        word(t, "=\"");
        escaped(t, attributes[i].value);
        word(t, "\"");
    }
    bt_k3_mark(t, "<|sep|>");
}

void bt_k3_close(bt_k3_text *t, const char *name)
{
    bt_k3_mark(t, "<|close|>");
    word(t, name);
    bt_k3_mark(t, "<|sep|>");
}

bt_status bt_k3_text_take(bt_k3_text *t, bt_rendered *out, bt_error *e)
{
    bt_status st = bt_origin_text_take(&t->out, out, e);
    if (st == BT_OK) {
        assert(t->cut_at == out->size);
        out->pieces = t->pieces;
        out->n_pieces = t->n_pieces;
        t->pieces = NULL;
    }
    bt_k3_text_free(t);
    return st;
}

void bt_k3_text_free(bt_k3_text *t)
{
    bt_origin_text_free(&t->out);
    bt_free(t->pieces);
    *t = (bt_k3_text){0};
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
    const bt_json_node *x = *(const bt_json_node *const *)a, *y = *(const bt_json_node *const *)b;
    return bt_chars_compare((bt_chars){x->key, x->key_size}, (bt_chars){y->key, y->key_size});
}

/* json.dumps(node, sort_keys=True, separators=(",", ":"), ensure_ascii=False). */
static void dump_sorted(bt_text *t, const bt_json_node *node)
{
    const bool is_object = node->kind == BT_JSON_OBJECT;
    if (!is_object && node->kind != BT_JSON_ARRAY) {
        bt_py_dump(t, node);
        return;
    }
    const bt_json_node **members = bt_malloc(node->n_children + 1, sizeof(const bt_json_node *));
    size_t n = 0;
    t->failed |= members == NULL;
    for (const bt_json_node *c = node->child; c != NULL && members != NULL; c = c->next) members[n++] = c;
    if (is_object && n > 1) qsort(members, n, sizeof *members, compare_keys);
    bt_text_puts(t, is_object ? "{" : "[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) bt_text_puts(t, ",");
        if (is_object) {
            bt_py_dump_string(t, (bt_chars){members[i]->key, members[i]->key_size});
            bt_text_puts(t, ":");
        }
        dump_sorted(t, members[i]);
    }
    bt_text_puts(t, is_object ? "}" : "]");
    bt_free(members);
}

void bt_k3_sorted(bt_k3_text *t, const bt_json_node *node)
{
    bt_text json = {0};
    dump_sorted(&json, node);
    t->out.failed |= !bt_text_ok(&json);
    bt_origin_message(&t->out, (bt_chars){json.data, json.size});
    bt_text_free(&json);
}
