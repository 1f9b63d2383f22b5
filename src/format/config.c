/*
 * config.json, as Python writes it: NaN and Infinity may stand anywhere that nobody reads. What is read must be exactly
 * what the key means. A string where a number belongs, 32.0 where a count belongs, an infinite epsilon: each is refused
 * by name, for every one of them would be a guess about the architecture.
 */
#include "format/config.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

struct bt_config {
    char *file;
    bt_arena *arena;
    const char *text; /* [text_bytes] */
    size_t text_bytes;
    const bt_json_node *root;
};

static bt_status parse_into(bt_config *c, const char *text, size_t size, bt_error *e)
{
    bt_error inner = {.status = BT_OK};
    c->text = bt_arena_strndup(c->arena, text, size);
    c->text_bytes = size;
    if (c->text == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory to read it", c->file);
    bt_status st = bt_json_parse(c->arena, text, size, BT_JSON_PYTHON, &c->root, &inner);
    if (st != BT_OK) return bt_fail(e, st, "%s: %s", c->file, inner.message);
    if (c->root->kind != BT_JSON_OBJECT) return bt_fail(e, BT_ERR_FORMAT, "%s: it holds no JSON object", c->file);
    return BT_OK;
}

bt_status bt_config_parse(const char *file, const char *text, size_t size, bt_config **out, bt_error *e)
{
    bt_config *c = bt_calloc(1, sizeof *c);
    if (c != NULL) {
        c->file = bt_strdup(file);
        c->arena = bt_arena_new();
    }
    bt_status st;
    if (c == NULL || c->file == NULL || c->arena == NULL) {
        st = bt_fail(e, BT_ERR_MEMORY, "%s: no memory to read it", file);
    } else {
        st = parse_into(c, text, size, e);
    }
    if (st != BT_OK) {
        bt_config_close(c);
        return st;
    }
    *out = c;
    return BT_OK;
}

bt_status bt_config_open(const char *path, bt_config **out, bt_error *e)
{
    char *text = NULL;
    size_t size = 0;
    bt_status st = bt_read_file(path, CONFIG_BYTES_MAX, &text, &size, e);
    if (st != BT_OK) return st;
    st = bt_config_parse(path, text, size, out, e);
    bt_free(text);
    return st;
}

void bt_config_close(bt_config *c)
{
    if (c == NULL) return;
    bt_arena_free(c->arena);
    bt_free(c->file);
    bt_free(c);
}

const char *bt_config_file(const bt_config *c)
{
    return c->file;
}

const bt_json_node *bt_config_root(const bt_config *c)
{
    return c->root;
}

const char *bt_config_text(const bt_config *c, size_t *size)
{
    *size = c->text_bytes;
    return c->text;
}

/* ---- getters --------------------------------------------------------------------------------------------------------
 */

/* "config.json: rope_parameters.", for messages to go on with the key. */
#define SCOPE_FORMAT "%s: %s%s%s"
#define SCOPE_ARGS(s, k)                                                                                               \
    bt_config_file((s).config), (s).where == NULL ? "" : (s).where, (s).where == NULL ? "" : ".", (k)

/* A value as a message shows it. */
static const char *describe(const bt_json_node *v)
{
    switch (v->kind) {
    case BT_JSON_OBJECT:
        return "an object";
    case BT_JSON_ARRAY:
        return "an array";
    case BT_JSON_TRUE:
        return "true";
    case BT_JSON_FALSE:
        return "false";
    case BT_JSON_NULL:
        return "null";
    case BT_JSON_STRING:
        return "a string";
    default:
        return v->text;
    }
}

static bt_status wrong(bt_scope s, const char *key, const bt_json_node *v, const char *wanted, bt_error *e)
{
    return bt_fail(e, BT_ERR_FORMAT, SCOPE_FORMAT " is %.100s, where %s is needed", SCOPE_ARGS(s, key), describe(v),
                   wanted);
}

/* The value, NULL where it is absent or null; that fails if found is NULL. */
static bt_status look_up(bt_scope s, const char *key, const bt_json_node **v, bool *found, bt_error *e)
{
    assert(s.config != NULL);
    const bt_json_node *node = bt_json_get(s.object, key);
    bool present = node != NULL && node->kind != BT_JSON_NULL;
    if (!present && found == NULL) {
        return bt_fail(e, BT_ERR_FORMAT, SCOPE_FORMAT " is %s", SCOPE_ARGS(s, key), node == NULL ? "missing" : "null");
    }
    if (found != NULL) *found = present;
    *v = present ? node : NULL;
    return BT_OK;
}

bt_status bt_get_u64(bt_scope s, const char *key, uint64_t min, uint64_t max, uint64_t *v, bool *found, bt_error *e)
{
    assert(min <= max);
    const bt_json_node *node;
    bt_status st = look_up(s, key, &node, found, e);
    if (st != BT_OK || node == NULL) return st;
    uint64_t value;
    if (node->kind != BT_JSON_NUMBER || !bt_json_u64(node->text, node->size, &value)) {
        return wrong(s, key, node, "a whole number", e);
    }
    if (value < min || value > max) {
        return bt_fail(e, BT_ERR_FORMAT, SCOPE_FORMAT " is %" PRIu64 ", where %" PRIu64 " to %" PRIu64 " can be meant",
                       SCOPE_ARGS(s, key), value, min, max);
    }
    *v = value;
    return BT_OK;
}

bt_status bt_get_f64(bt_scope s, const char *key, double *v, bool *found, bt_error *e)
{
    const bt_json_node *node;
    bt_status st = look_up(s, key, &node, found, e);
    if (st != BT_OK || node == NULL) return st;
    double value;
    if (node->kind != BT_JSON_NUMBER || !bt_json_f64(node->text, node->size, &value) || !isfinite(value)) {
        return wrong(s, key, node, "a finite number", e);
    }
    *v = value;
    return BT_OK;
}

bt_status bt_get_bool(bt_scope s, const char *key, bool *v, bool *found, bt_error *e)
{
    const bt_json_node *node;
    bt_status st = look_up(s, key, &node, found, e);
    if (st != BT_OK || node == NULL) return st;
    if (node->kind != BT_JSON_TRUE && node->kind != BT_JSON_FALSE) return wrong(s, key, node, "true or false", e);
    *v = node->kind == BT_JSON_TRUE;
    return BT_OK;
}

bt_status bt_get_string(bt_scope s, const char *key, const char **v, bool *found, bt_error *e)
{
    const bt_json_node *node;
    bt_status st = look_up(s, key, &node, found, e);
    if (st != BT_OK || node == NULL) return st;
    if (node->kind != BT_JSON_STRING) return wrong(s, key, node, "a string", e);
    if (strlen(node->text) != node->size) return wrong(s, key, node, "a string without NUL", e);
    *v = node->text;
    return BT_OK;
}

bt_status bt_get_ids(bt_scope s, const char *key, int32_t *v, size_t n_max, size_t *n, bt_error *e)
{
    bool found;
    const bt_json_node *node;
    bt_status st = look_up(s, key, &node, &found, e);
    if (st != BT_OK) return st;
    if (!found) {
        *n = 0;
        return BT_OK;
    }
    bool one = node->kind == BT_JSON_NUMBER;
    if (!one && node->kind != BT_JSON_ARRAY) return wrong(s, key, node, "a whole number or an array of them", e);
    size_t count = 0;
    for (const bt_json_node *item = one ? node : node->child; item != NULL; item = one ? NULL : item->next) {
        uint64_t id;
        if (item->kind != BT_JSON_NUMBER || !bt_json_u64(item->text, item->size, &id) || id > INT32_MAX) {
            return wrong(s, key, item, "a whole number below 2^31", e);
        }
        if (count == n_max) {
            return bt_fail(e, BT_ERR_FORMAT, SCOPE_FORMAT " has %zu ids, more than the %zu that can be used",
                           SCOPE_ARGS(s, key), node->n_children, n_max);
        }
        v[count++] = (int32_t)id;
    }
    *n = count;
    return BT_OK;
}

bt_status bt_get_scope(bt_scope s, const char *key, bt_scope *out, bt_error *e)
{
    bool found;
    const bt_json_node *node;
    bt_status st = look_up(s, key, &node, &found, e);
    if (st != BT_OK) return st;
    if (found && node->kind != BT_JSON_OBJECT) return wrong(s, key, node, "an object", e);
    *out = (bt_scope){s.config, node, key};
    return BT_OK;
}
