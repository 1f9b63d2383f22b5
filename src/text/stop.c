/*
 * Stop strings, wherever token borders fall. Every string keeps the length of its longest beginning that the text now
 * ends with (Knuth, Morris, Pratt); as much of the text as the longest of these waits, the rest comes out. The first
 * byte at which a string is complete decides; of strings complete there the longest one does. So the result depends on
 * the text only, not on how it was cut into pushes. The strings are UTF-8, so what comes out of whole characters is
 * whole characters.
 */
#include <assert.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/utf8.h"

#define STRINGS_MAX 1024
#define BYTES_MAX   1048576 /* of all strings together */
#define OUT_MIN     4096

typedef struct pattern {
    char *text; /* [size] */
    size_t size;
    size_t matched; /* bytes of it that the text now ends with */
    uint32_t
        *fallback; /* [size] length of the longest beginning of text that text[0..i] ends with, shorter than i + 1 */
} pattern;

struct bt_stop {
    pattern *patterns;
    size_t n_patterns;
    size_t bytes_max; /* of the longest string */
    bool met;
    char *buffer;         /* [capacity] */
    size_t n_out, n_held; /* what the last call gave out, and behind it what waits */
    size_t capacity;
};

static void set_fallback(pattern *p)
{
    size_t k = 0;
    p->fallback[0] = 0;
    for (size_t i = 1; i < p->size; i++) {
        while (k > 0 && p->text[i] != p->text[k]) k = p->fallback[k - 1];
        if (p->text[i] == p->text[k]) k++;
        p->fallback[i] = (uint32_t)k;
    }
}

static bt_status add_pattern(bt_stop *s, const char *text, bt_error *e)
{
    size_t size = strlen(text);
    if (size == 0) return bt_fail(e, BT_ERR_USAGE, "stop string %zu is empty", s->n_patterns);
    if (bt_utf8_valid_prefix(text, size) != size) {
        return bt_fail(e, BT_ERR_USAGE, "stop string %zu is not UTF-8", s->n_patterns);
    }
    pattern *p = &s->patterns[s->n_patterns++];
    p->text = bt_strdup(text);
    p->size = size;
    p->fallback = bt_malloc(size, sizeof *p->fallback);
    if (p->text == NULL || p->fallback == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a stop string");
    set_fallback(p);
    if (size > s->bytes_max) s->bytes_max = size;
    return BT_OK;
}

bt_status bt_stop_open(const char *const *strings, size_t n, bt_stop **out, bt_error *e)
{
    if (n > STRINGS_MAX) return bt_fail(e, BT_ERR_USAGE, "%zu stop strings; the limit is %d", n, STRINGS_MAX);
    if (strings == NULL && n > 0)
        return bt_fail(e, BT_ERR_USAGE, "%zu stop strings are announced but none are given", n);
    size_t bytes = 0;
    for (size_t i = 0; i < n && bytes <= BYTES_MAX; i++) {
        if (strings[i] == NULL) return bt_fail(e, BT_ERR_USAGE, "stop string %zu is missing", i);
        bytes += strlen(strings[i]);
    }
    if (bytes > BYTES_MAX) return bt_fail(e, BT_ERR_USAGE, "stop strings of more than %d bytes", BYTES_MAX);
    bt_status st = BT_OK;
    bt_stop *s = bt_calloc(1, sizeof *s);
    if (s != NULL) s->patterns = bt_calloc(n > 0 ? n : 1, sizeof *s->patterns);
    if (s == NULL || s->patterns == NULL) st = bt_fail(e, BT_ERR_MEMORY, "no memory for stop strings");
    for (size_t i = 0; i < n && st == BT_OK; i++) st = add_pattern(s, strings[i], e);
    if (st == BT_OK) {
        s->capacity = s->bytes_max + OUT_MIN;
        s->buffer = bt_malloc(s->capacity, 1);
        if (s->buffer == NULL) st = bt_fail(e, BT_ERR_MEMORY, "no memory for stop strings");
    }
    if (st == BT_OK) {
        *out = s;
    } else {
        bt_stop_close(s);
    }
    return st;
}

void bt_stop_close(bt_stop *s)
{
    if (s == NULL) return;
    assert(s->n_patterns == 0 || s->patterns != NULL);
    for (size_t i = 0; i < s->n_patterns; i++) {
        bt_free(s->patterns[i].text);
        bt_free(s->patterns[i].fallback);
    }
    bt_free(s->patterns);
    bt_free(s->buffer);
    bt_free(s);
}

/* Takes one byte. Returns the length of the longest string that is complete with it, 0: none. */
static size_t take_byte(bt_stop *s, char byte)
{
    size_t complete = 0;
    for (size_t i = 0; i < s->n_patterns; i++) {
        pattern *p = &s->patterns[i];
        while (p->matched > 0 && p->text[p->matched] != byte) p->matched = p->fallback[p->matched - 1];
        if (p->text[p->matched] == byte) p->matched++;
        assert(p->matched <= p->size);
        if (p->matched == p->size && p->size > complete) complete = p->size; /* the search ends here: no way on */
    }
    return complete;
}

/* Drops what the last call gave out and makes room for `size` more bytes. */
static bool make_room(bt_stop *s, size_t size)
{
    memmove(s->buffer, s->buffer + s->n_out, s->n_held);
    s->n_out = 0;
    if (size <= s->capacity - s->n_held) return true;
    if (size > SIZE_MAX / 4) return false;
    size_t capacity = 2 * (s->n_held + size);
    char *more = bt_realloc(s->buffer, capacity, 1);
    if (more == NULL) return false;
    s->buffer = more;
    s->capacity = capacity;
    return true;
}

/* There is no way to tell of missing memory here; it ends the text, as a stop string would. It takes a push of more
 * than OUT_MIN bytes, which no token has. */
bool bt_stop_push(bt_stop *s, const char *text, size_t size, const char **out, size_t *out_size)
{
    if (text == NULL) size = 0;
    if (!s->met && !make_room(s, size)) {
        s->met = true;
        s->n_held = 0;
    }
    *out = s->buffer;
    *out_size = 0;
    if (s->met) return true;
    if (size > 0) memcpy(s->buffer + s->n_held, text, size);
    size_t n = s->n_held + size, complete = 0, at = s->n_held;
    while (at < n && complete == 0) complete = take_byte(s, s->buffer[at++]);
    size_t n_held = complete;
    for (size_t i = 0; i < s->n_patterns && complete == 0; i++) {
        if (s->patterns[i].matched > n_held) n_held = s->patterns[i].matched;
    }
    assert(n_held <= at);
    s->n_out = *out_size = at - n_held;
    s->n_held = complete > 0 ? 0 : n_held;
    s->met = complete > 0;
    return s->met;
}

void bt_stop_finish(bt_stop *s, const char **out, size_t *out_size)
{
    *out = s->buffer + s->n_out;
    *out_size = s->n_held;
    s->n_out = s->n_held = 0;
    s->met = false;
    for (size_t i = 0; i < s->n_patterns; i++) s->patterns[i].matched = 0;
}
