/* Token ids and texts as people and programs write them; see ids.h. Nothing is skipped: what is no id is an error. */
#include "tool/ids.h"

#include <string.h>

#include "base/error.h"

#define IDS_MAX ((size_t)1 << 30)

typedef struct id_list {
    int32_t *ids;
    size_t n, capacity;
} id_list;

static bt_status add(id_list *l, const char *text, size_t size, bt_error *e)
{
    uint64_t v = 0;
    if (!bt_json_u64(text, size, &v) || v > INT32_MAX)
        return bt_fail(e, BT_ERR_FORMAT, "id %zu is '%.*s'; it must be a whole number from 0 to 2147483647", l->n,
                       size > 40 ? 40 : (int)size, text);
    if (l->n == l->capacity) {
        size_t more = l->capacity == 0 ? 256 : l->capacity * 2;
        int32_t *larger = more > IDS_MAX ? NULL : bt_realloc(l->ids, more, sizeof *larger);
        if (larger == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for more than %zu ids", l->n);
        l->ids = larger;
        l->capacity = more;
    }
    l->ids[l->n++] = (int32_t)v;
    return BT_OK;
}

static bt_status settle(id_list *l, bt_status st, int32_t **ids, size_t *n)
{
    if (st != BT_OK) {
        bt_free(l->ids);
        return st;
    }
    *ids = l->ids;
    *n = l->n;
    return BT_OK;
}

bt_status bt_ids_parse_json(const char *text, size_t size, int32_t **ids, size_t *n, bt_error *e)
{
    bt_json j;
    id_list l = {0};
    bt_json_begin(&j, text, size, 0, e);
    bt_json_kind kind = bt_json_next(&j);
    bt_status st = kind == BT_JSON_ARRAY || kind == BT_JSON_ERROR ? BT_OK : bt_json_fail(&j, "this is no array of ids");
    while (st == BT_OK && kind != BT_JSON_END && kind != BT_JSON_ERROR) {
        kind = bt_json_next(&j);
        if (kind == BT_JSON_NUMBER)
            st = add(&l, j.text, j.size, e);
        else if (kind != BT_JSON_ARRAY_END && kind != BT_JSON_END && kind != BT_JSON_ERROR)
            st = bt_json_fail(&j, "id %zu is no number", l.n);
    }
    if (st == BT_OK && kind == BT_JSON_ERROR) st = j.status;
    bt_json_done(&j);
    return settle(&l, st, ids, n);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

static size_t skip_blanks(const char *text, size_t size, size_t i)
{
    while (i < size && is_blank(text[i])) i++;
    return i;
}

/* One comma or any white space stands between two ids; a comma may end the list. ",," holds an id that is missing. */
static bt_status parse_plain(const char *text, size_t size, id_list *l, bt_error *e)
{
    size_t i = skip_blanks(text, size, 0);
    while (i < size) {
        size_t begin = i;
        while (i < size && text[i] != ',' && !is_blank(text[i])) i++;
        bt_status st = add(l, text + begin, i - begin, e);
        if (st != BT_OK) return st;
        i = skip_blanks(text, size, i);
        if (i < size && text[i] == ',') i = skip_blanks(text, size, i + 1);
    }
    return BT_OK;
}

bt_status bt_ids_parse(const char *text, size_t size, int32_t **ids, size_t *n, bt_error *e)
{
    size_t begin = skip_blanks(text, size, 0);
    if (begin < size && text[begin] == '[') return bt_ids_parse_json(text, size, ids, n, e);
    id_list l = {0};
    bt_status st = parse_plain(text, size, &l, e);
    return settle(&l, st, ids, n);
}

bt_status bt_ids_check(const int32_t *ids, size_t n, size_t n_vocab, bt_error *e)
{
    if (n == 0) return bt_fail(e, BT_ERR_USAGE, "there are no ids");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= n_vocab)
            return bt_fail(e, BT_ERR_USAGE, "id %zu is %d, but the model's vocabulary has %zu ids", i, (int)ids[i],
                           n_vocab);
    return BT_OK;
}

void bt_ids_print(bt_text *t, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) bt_text_printf(t, "%s%d", i == 0 ? "" : ",", (int)ids[i]);
}

void bt_ids_print_json(bt_text *t, const int32_t *ids, size_t n)
{
    bt_text_puts(t, "[");
    for (size_t i = 0; i < n; i++) bt_text_printf(t, "%s%d", i == 0 ? "" : ", ", (int)ids[i]);
    bt_text_puts(t, "]");
}

bt_status bt_string_parse_json(const char *line, size_t line_size, char **text, size_t *size, bt_error *e)
{
    bt_json j;
    bt_text copy = {0};
    bt_status st = BT_OK;
    bt_json_begin(&j, line, line_size, 0, e);
    bt_json_kind kind = bt_json_next(&j);
    if (kind == BT_JSON_STRING) {
        bt_text_add(&copy, j.text, j.size);
        kind = bt_json_next(&j);
    } else if (kind != BT_JSON_ERROR) {
        st = bt_json_fail(&j, "this is no string");
    }
    if (st == BT_OK && kind == BT_JSON_ERROR) st = j.status;
    bt_json_done(&j);
    if (st == BT_OK && copy.data == NULL) bt_text_puts(&copy, ""); /* "" has no bytes yet */
    if (st == BT_OK && (copy.failed || copy.data == NULL)) st = bt_fail(e, BT_ERR_MEMORY, "no memory for a string");
    if (st != BT_OK) {
        bt_text_free(&copy);
        return st;
    }
    *text = copy.data;
    *size = copy.size;
    return BT_OK;
}
