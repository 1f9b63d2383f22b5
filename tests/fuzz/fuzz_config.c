/* format/config: every getter on every key of whatever parses. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "format/config.h"

static void check(bool truth)
{
    if (!truth) abort();
}

static void get_all(bt_scope s, const char *key)
{
    uint64_t u = 5;
    double f = 0;
    bool b, found = false;
    const char *text = NULL;
    int32_t ids[4];
    size_t n = 99;
    bt_error e = {.status = BT_OK};
    bt_status st = bt_get_u64(s, key, 1, 1000, &u, &found, &e);
    check(st != BT_OK ? e.message[0] != '\0' : u >= 1 && u <= 1000);
    if (bt_get_f64(s, key, &f, &found, &e) == BT_OK) check(isfinite(f));
    (void)bt_get_bool(s, key, &b, &found, &e);
    if (bt_get_string(s, key, &text, &found, &e) == BT_OK && found) check(strlen(text) < SIZE_MAX);
    if (bt_get_ids(s, key, ids, 4, &n, &e) == BT_OK) {
        check(n <= 4);
        for (size_t i = 0; i < n; i++) check(ids[i] >= 0);
    }
    (void)bt_get_u64(s, key, 0, UINT64_MAX, &u, NULL, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bt_config *c = NULL;
    bt_error e = {.status = BT_OK};
    if (bt_config_parse("config.json", size > 0 ? (const char *)data : "", size, &c, &e) != BT_OK) {
        check(c == NULL && e.message[0] != '\0');
        return 0;
    }
    bt_scope root = {c, bt_config_root(c), NULL}, inner;
    get_all(root, "absent");
    size_t n = 0;
    for (const bt_json_node *k = root.object->child; k != NULL && n < 50; k = k->next, n++) {
        get_all(root, k->key);
        if (bt_get_scope(root, k->key, &inner, &e) != BT_OK || inner.object == NULL) continue;
        for (const bt_json_node *m = inner.object->child; m != NULL && n < 50; m = m->next, n++) get_all(inner, m->key);
    }
    bt_config_close(c);
    return 0;
}
