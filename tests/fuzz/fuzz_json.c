/* base/json: the scanner with and without Python's words, the tree, and every number in each of its readings. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/utf8.h"

static void check(bool truth)
{
    if (!truth) abort();
}

/* What the events promise, checked: balance, valid UTF-8, text within bounds. Returns their number, 0 for a fault. */
static size_t scan(const char *text, size_t size, unsigned flags)
{
    bt_json j;
    bt_error e = {.status = BT_OK};
    bt_json_begin(&j, text, size, flags, &e);
    size_t n = 0, depth = 0;
    bt_json_kind kind;
    do {
        kind = bt_json_next(&j);
        check(++n <= size + 2);
        depth += kind == BT_JSON_OBJECT || kind == BT_JSON_ARRAY;
        depth -= kind == BT_JSON_OBJECT_END || kind == BT_JSON_ARRAY_END;
        check(kind == BT_JSON_ERROR || depth == j.depth);
        if (kind == BT_JSON_KEY || kind == BT_JSON_STRING) check(bt_utf8_valid_prefix(j.text, j.size) == j.size);
        if (kind == BT_JSON_NUMBER) {
            uint64_t u;
            int64_t i;
            double f;
            bool is_u64 = bt_json_u64(j.text, j.size, &u), is_i64 = bt_json_i64(j.text, j.size, &i);
            bool is_f64 = bt_json_f64(j.text, j.size, &f);
            if (is_u64 && is_f64) check(f == (double)u);
            if (is_i64 && is_f64) check(f == (double)i);
        }
    } while (kind != BT_JSON_END && kind != BT_JSON_ERROR);
    check((kind == BT_JSON_ERROR) == (e.status != BT_OK));
    check(kind == BT_JSON_END || e.message[0] != '\0');
    bt_json_done(&j);
    return kind == BT_JSON_END ? n : 0;
}

static void write_tree(const bt_json_node *node, bt_text *t)
{
    size_t n = 0;
    if (node->kind == BT_JSON_OBJECT || node->kind == BT_JSON_ARRAY) {
        bt_text_puts(t, node->kind == BT_JSON_OBJECT ? "{" : "[");
        for (const bt_json_node *c = node->child; c != NULL; c = c->next) {
            if (n++ > 0) bt_text_puts(t, ",");
            if (node->kind == BT_JSON_OBJECT) {
                bt_text_json_string(t, c->key, c->key_size);
                bt_text_puts(t, ":");
            }
            write_tree(c, t);
        }
        check(n == node->n_children);
        bt_text_puts(t, node->kind == BT_JSON_OBJECT ? "}" : "]");
    } else if (node->kind == BT_JSON_STRING) {
        bt_text_json_string(t, node->text, node->size);
    } else if (node->kind == BT_JSON_NUMBER) {
        bt_text_add(t, node->text, node->size);
    } else {
        bt_text_puts(t, node->kind == BT_JSON_TRUE ? "true" : node->kind == BT_JSON_FALSE ? "false" : "null");
    }
}

/* A tree written and read again has as many events as the text it came from. */
static void round_trip(const char *text, size_t size)
{
    bt_arena *a = bt_arena_new();
    const bt_json_node *root = NULL;
    if (bt_json_parse(a, text, size, BT_JSON_PYTHON, &root, NULL) == BT_OK) {
        bt_text t = {NULL, 0, 0, false};
        write_tree(root, &t);
        check(scan(t.data, t.size, BT_JSON_PYTHON) == scan(text, size, BT_JSON_PYTHON));
        bt_text_free(&t);
    }
    bt_arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size > 0 ? (const char *)data : "";
    size_t strict = scan(text, size, 0), python = scan(text, size, BT_JSON_PYTHON);
    check(strict == 0 || strict == python);
    round_trip(text, size);
    return 0;
}
