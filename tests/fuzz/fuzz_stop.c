/*
 * Stop strings against the plainest search there is. The input is up to four stop strings, each ended by NUL, then a
 * text, whose bytes also say where it is cut into pushes. What comes out, joined, must be the text up to the first
 * place at which a string is complete (of those complete there, the longest counts), however it was cut.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "baltoro.h"
#include "base/utf8.h"

#define N_STRINGS_MAX 4

static void require(bool truth)
{
    if (!truth) abort();
}

/* Where the output ends, by trying every place. */
static size_t end_of_output(const char *const *strings, size_t n, const char *text, size_t size, bool *met)
{
    for (size_t end = 1; end <= size; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n; i++) {
            size_t length = strlen(strings[i]);
            if (length <= end && length > longest && memcmp(text + end - length, strings[i], length) == 0)
                longest = length;
        }
        if (longest == 0) continue;
        *met = true;
        return end - longest;
    }
    *met = false;
    return size;
}

static void check_text(bt_stop *s, const char *const *strings, size_t n, const char *text, size_t size,
                       unsigned cutting)
{
    bool met_expected, met = false;
    bool was_empty = false;
    size_t expected = end_of_output(strings, n, text, size, &met_expected), used = 0;
    for (size_t at = 0; at < size && !met;) {
        size_t length = cutting == 0 ? size : was_empty + (unsigned char)text[at] * cutting % 7;
        if (length > size - at) length = size - at;
        const char *out;
        size_t out_size;
        met = bt_stop_push(s, text + at, length, &out, &out_size);
        require(out_size <= expected - used && (out_size == 0 || memcmp(out, text + used, out_size) == 0));
        used += out_size;
        at += length;
        was_empty = length == 0; /* an empty push is fine; an endless row of them is not */
    }
    const char *rest;
    size_t rest_size;
    bt_stop_finish(s, &rest, &rest_size);
    require(met == met_expected);
    require(used + rest_size == expected);
    require(rest_size == 0 || memcmp(rest, text + used, rest_size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *rest = text;
    const char *strings[N_STRINGS_MAX];
    size_t n = 0;
    require(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    while (n < N_STRINGS_MAX && memchr(rest, '\0', (size_t)(text + size - rest)) != NULL) {
        strings[n++] = rest;
        rest += strlen(rest) + 1;
    }
    bool good = true;
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(strings[i]);
        good = good && length > 0 && bt_utf8_valid_prefix(strings[i], length) == length;
    }
    bt_stop *s = NULL;
    bt_error e = {.status = BT_OK};
    bt_status st = bt_stop_open(strings, n, &s, &e);
    require((st == BT_OK) == good && (st == BT_OK || e.message[0] != '\0'));
    if (st == BT_OK) { /* one matcher for all cuttings: finishing must ready it again */
        for (unsigned cutting = 0; cutting < 4; cutting++)
            check_text(s, strings, n, rest, (size_t)(text + size - rest), cutting);
        bt_stop_close(s);
    }
    free(text);
    return 0;
}
