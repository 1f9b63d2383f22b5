/* tool/ids: lists of ids as people and programs write them, and JSON strings; what is read prints and reads back. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "tool/ids.h"

static void check(bool truth)
{
    if (!truth) abort();
}

static void ids(const char *text, size_t size)
{
    int32_t *read = NULL, *again = NULL;
    size_t n = 0, n_again = 0;
    if (bt_ids_parse(text, size, &read, &n, NULL) != BT_OK) return;
    check(n <= size);
    for (size_t i = 0; i < n; i++) check(read[i] >= 0);
    for (int as_json = 0; as_json < 2; as_json++) {
        bt_text t = {0};
        bt_text_puts(&t, "");
        if (as_json)
            bt_ids_print_json(&t, read, n);
        else
            bt_ids_print(&t, read, n);
        check(bt_ids_parse(t.data, t.size, &again, &n_again, NULL) == BT_OK && n_again == n);
        check(n == 0 || memcmp(read, again, n * sizeof *read) == 0);
        bt_free(again);
        bt_text_free(&t);
    }
    bt_free(read);
}

static void string(const char *line, size_t size)
{
    char *text, *again;
    size_t n, n_again;
    if (bt_string_parse_json(line, size, &text, &n, NULL) != BT_OK) return;
    check(n <= size && text[n] == '\0');
    bt_text t = {0};
    bt_text_json_string(&t, text, n);
    check(memchr(t.data, '\n', t.size) == NULL);
    check(bt_string_parse_json(t.data, t.size, &again, &n_again, NULL) == BT_OK && n_again == n);
    check(memcmp(text, again, n) == 0);
    bt_free(again);
    bt_text_free(&t);
    bt_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ids((const char *)data, size);
    string((const char *)data, size);
    return 0;
}
