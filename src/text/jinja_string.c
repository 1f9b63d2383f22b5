/*
 * Strings that know where each of their bytes came from, and the stack on which new ones are built.
 *
 * A string is bytes plus one mark per byte, or a single mark when all bytes agree, which is the common case. Slices
 * share both. New text is written at the end of one growing buffer: whoever builds remembers where it began and takes
 * everything from there; what is built in between nests like brackets. The rendered text itself is what is left at
 * the bottom.
 */
#include "text/jinja_value.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

#define GROW_BYTES_MIN ((size_t)1024)      /* shorter texts are copied */
#define TRIAL_BYTES    ((size_t)64)        /* compared at once */
#define TRIALS_BYTES   ((size_t)64 * 1024) /* charged at once */

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static bt_jv wrap(bt_jx *x, bt_js s)
{
    bt_js *kept = bt_jx_alloc(x, 1, sizeof *kept);
    if (kept == NULL) return bt_jv_of(JV_FAIL);
    *kept = s;
    return bt_jv_string(kept);
}

bt_jv bt_js_copy(bt_jx *x, const char *data, size_t size, bool message)
{
    char *copy = bt_jx_alloc(x, size + 1, 1);
    if (copy == NULL) return bt_jv_of(JV_FAIL);
    if (size > 0) memcpy(copy, data, size);
    return wrap(x, (bt_js){.data = copy, .size = size, .message = message});
}

bt_jv bt_js_static(bt_jx *x, const char *text, bool message)
{
    return wrap(x, (bt_js){.data = text, .size = strlen(text), .message = message});
}

bool bt_js_range_message(const bt_js *s, size_t from, size_t to)
{
    assert(from <= to);
    assert(to <= s->size);
    return s->marks == NULL ? s->message : memchr(s->marks + from, 1, to - from) != NULL;
}

bt_jv bt_js_slice(bt_jx *x, const bt_js *s, size_t from, size_t to)
{
    assert(from <= to);
    assert(to <= s->size);
    bt_js part = {.data = s->data + from, .size = to - from, .message = s->message, .markup = s->markup};
    if (s->marks != NULL && from < to) {
        bool message = memchr(s->marks + from, 1, to - from) != NULL;
        bool template = memchr(s->marks + from, 0, to - from) != NULL;
        part.message = message;
        if (message && template) part.marks = s->marks + from;
    }
    return wrap(x, part);
}

size_t bt_js_length(const bt_js *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->size; i++) n += ((unsigned char)s->data[i] & 0xc0) != 0x80;
    return n;
}

bool bt_js_equal(const bt_js *a, const bt_js *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

bool bt_js_is(const bt_js *s, const char *text)
{
    size_t n = strlen(text);
    return s->size == n && memcmp(s->data, text, n) == 0;
}

/* UTF-8 sorts as its code points do. */
int bt_js_order(const bt_js *a, const bt_js *b)
{
    size_t n = a->size < b->size ? a->size : b->size;
    int order = n == 0 ? 0 : memcmp(a->data, b->data, n);
    if (order == 0) order = a->size < b->size ? -1 : a->size > b->size;
    return order < 0 ? -1 : order > 0;
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

typedef struct trials { /* places looked at more closely, and what of it was not charged yet, in bytes */
    bt_jx *x;
    size_t work;
} trials;

/* Whether `what` stands at p. Compared in pieces, so that what is charged is what was done. */
static bool stands_at(trials *t, const char *p, const bt_js *what)
{
    for (size_t at = 0, n; at < what->size; at += n) {
        n = what->size - at < TRIAL_BYTES ? what->size - at : TRIAL_BYTES;
        t->work += TRIAL_BYTES / 2;
        if (memcmp(p + at, what->data + at, n) != 0) return false;
    }
    return true;
}

/* Charges once enough has come together; false after failing. */
static bool settle(trials *t)
{
    if (t->work < TRIALS_BYTES) return true;
    size_t work = t->work;
    t->work = 0;
    return bt_jx_charge(t->x, work);
}

static size_t result(trials *t, const bt_js *s, const char *found)
{
    if (t->work > 0 && !bt_jx_charge(t->x, t->work)) return SIZE_MAX;
    return found == NULL ? SIZE_MAX : (size_t)(found - s->data);
}

size_t bt_js_find(bt_jx *x, const bt_js *s, size_t from, const bt_js *what)
{
    assert(from <= s->size);
    if (what->size == 0) return from;
    if (s->size < what->size) return SIZE_MAX;
    trials t = {.x = x};
    const char *end = s->data + (s->size - what->size + 1), *p = s->data + from; /* of where it may begin */
    for (; p < end && (p = memchr(p, what->data[0], (size_t)(end - p))) != NULL; p++) {
        if (stands_at(&t, p, what)) return result(&t, s, p);
        if (!settle(&t)) return SIZE_MAX;
    }
    return result(&t, s, NULL);
}

size_t bt_js_find_last(bt_jx *x, const bt_js *s, const bt_js *what)
{
    if (what->size == 0) return s->size;
    if (s->size < what->size) return SIZE_MAX;
    trials t = {.x = x};
    const char *p = s->data + (s->size - what->size + 1);
    while ((p = memrchr(s->data, what->data[0], (size_t)(p - s->data))) != NULL) {
        if (stands_at(&t, p, what)) return result(&t, s, p);
        if (!settle(&t)) return SIZE_MAX;
    }
    return result(&t, s, NULL);
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

size_t bt_out_begin(const bt_jx *x)
{
    return x->out.size;
}

/* Room for `size` more bytes; false after failing. */
static bool reserve(bt_jx *x, size_t size)
{
    bt_jout *o = &x->out;
    if (x->failed) return false;
    if (size > x->output_bytes_max || o->size > x->output_bytes_max - size) {
        (void)bt_jx_fail(x, "more than %zu bytes of text", x->output_bytes_max);
        return false;
    }
    if (!bt_jx_charge(x, size)) return false;
    if (size <= o->capacity - o->size) return true;
    size_t capacity = o->capacity < 2048 ? 4096 : o->capacity * 2;
    if (capacity < o->size + size) capacity = o->size + size;
    char *data = bt_realloc(o->data, capacity, 1);
    if (data != NULL) o->data = data;
    uint8_t *marks = data == NULL ? NULL : bt_realloc(o->marks, capacity, 1);
    if (marks != NULL) o->marks = marks;
    if (marks == NULL) {
        (void)bt_jx_fail_status(x, BT_ERR_MEMORY, "no memory for %zu bytes of text", capacity);
        return false;
    }
    o->capacity = capacity;
    return true;
}

void bt_out_add(bt_jx *x, const char *data, size_t size, bool message)
{
    if (size == 0 || !reserve(x, size)) return;
    memcpy(x->out.data + x->out.size, data, size);
    memset(x->out.marks + x->out.size, message, size);
    x->out.size += size;
}

void bt_out_puts(bt_jx *x, const char *text, bool message)
{
    bt_out_add(x, text, strlen(text), message);
}

void bt_out_char(bt_jx *x, uint32_t c, bool message)
{
    char bytes[4];
    bt_out_add(x, bytes, bt_utf8_encode(c, bytes), message);
}

void bt_out_fill(bt_jx *x, char c, size_t n, bool message)
{
    if (n == 0 || !reserve(x, n)) return;
    memset(x->out.data + x->out.size, c, n);
    memset(x->out.marks + x->out.size, message, n);
    x->out.size += n;
}

void bt_out_repeat(bt_jx *x, const bt_js *s, size_t n, bool message)
{
    if (s->size == 1) {
        bt_out_fill(x, s->data[0], n, message);
        return;
    }
    for (size_t i = 0; i < n && !x->failed; i++) bt_out_add(x, s->data, s->size, message);
}

void bt_out_js(bt_jx *x, const bt_js *s, size_t from, size_t to)
{
    assert(from <= to);
    assert(to <= s->size);
    size_t begin = x->out.size;
    bt_out_add(x, s->data + from, to - from, s->message);
    if (s->marks != NULL && x->out.size > begin) memcpy(x->out.marks + begin, s->marks + from, to - from);
}

void bt_out_stain(bt_jx *x, size_t begin, bool message)
{
    assert(begin <= x->out.size);
    if (x->out.size > begin) memset(x->out.marks + begin, message, x->out.size - begin);
}

bt_jv bt_out_take(bt_jx *x, size_t begin, bool message)
{
    assert(begin <= x->out.size);
    size_t size = x->out.size - begin;
    x->out.size = begin;
    if (x->failed) return bt_jv_of(JV_FAIL);
    if (size == 0) return wrap(x, (bt_js){.data = "", .message = message});
    const uint8_t *marks = x->out.marks + begin;
    bool some = memchr(marks, 1, size) != NULL, mixed = some && memchr(marks, 0, size) != NULL;
    char *copy = bt_jx_alloc(x, mixed ? 2 * size : size, 1);
    if (copy == NULL) return bt_jv_of(JV_FAIL);
    memcpy(copy, x->out.data + begin, size);
    bt_js s = {.data = copy, .size = size, .message = some};
    if (mixed) {
        memcpy(copy + size, marks, size);
        s.marks = (const uint8_t *)copy + size;
    }
    return wrap(x, s);
}

bt_jv bt_jv_str(bt_jx *x, bt_jv v)
{
    if (v.kind == JV_STRING) return v;
    size_t begin = bt_out_begin(x);
    bt_out_str(x, v);
    return bt_out_take(x, begin, v.message);
}

/* ---- escaping ---------------------------------------------------------------------------------------------------- */

/* A character and what markup writes for it; the replacement has the character's origin. */
static void add_escaped(bt_jx *x, const bt_js *s)
{
    size_t plain = 0;
    for (size_t i = 0; i < s->size; i++) {
        const char *name = NULL;
        switch (s->data[i]) {
        case '&':
            name = "&amp;";
            break;
        case '<':
            name = "&lt;";
            break;
        case '>':
            name = "&gt;";
            break;
        case '"':
            name = "&#34;";
            break;
        case '\'':
            name = "&#39;";
            break;
        default:
            continue;
        }
        bt_out_js(x, s, plain, i);
        bt_out_puts(x, name, bt_js_range_message(s, i, i + 1));
        plain = i + 1;
    }
    bt_out_js(x, s, plain, s->size);
}

static bt_jv as_markup(bt_jx *x, bt_jv v)
{
    if (bt_failed(v)) return v;
    bt_js s = *v.s;
    s.markup = true;
    return wrap(x, s);
}

bt_jv bt_js_escape(bt_jx *x, bt_jv v)
{
    v = bt_jv_str(x, v);
    if (bt_failed(v) || v.s->markup) return v;
    size_t begin = bt_out_begin(x);
    add_escaped(x, v.s);
    return as_markup(x, bt_out_take(x, begin, v.message));
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

/* Room for a and `size` more, a's bytes in it; NULL after failing. */
static bt_jgrow *make_room(bt_jx *x, const bt_js *a, size_t size)
{
    bt_jgrow *g = bt_jx_alloc(x, 1, sizeof *g);
    if (g == NULL || !bt_jx_charge(x, a->size)) return NULL;
    g->capacity = 2 * (a->size + size);
    g->data = bt_jx_alloc(x, g->capacity, 1);
    g->marks = bt_jx_alloc(x, g->capacity, 1);
    if (g->marks == NULL) return NULL;
    memcpy(g->data, a->data, a->size);
    memset(g->marks, a->message, a->size);
    if (a->marks != NULL) memcpy(g->marks, a->marks, a->size);
    return g;
}

/* The string a and then all since begin. */
static bt_jv append(bt_jx *x, const bt_js *a, size_t begin)
{
    assert(begin <= x->out.size);
    size_t size = x->out.size - begin;
    x->out.size = begin;
    if (x->failed) return bt_jv_of(JV_FAIL);
    if (a->size > x->output_bytes_max - size) return bt_jx_fail(x, "more than %zu bytes of text", x->output_bytes_max);
    bt_jgrow *g = a->grow;
    if (g == NULL || g->used != a->size || g->capacity - g->used < size) g = make_room(x, a, size);
    if (g == NULL) return bt_jv_of(JV_FAIL);
    const uint8_t *marks = x->out.marks + begin;
    if (size > 0) memcpy(g->data + a->size, x->out.data + begin, size);
    if (size > 0) memcpy(g->marks + a->size, marks, size);
    g->used = a->size + size;
    bool message = a->message || (size > 0 && memchr(marks, 1, size) != NULL);
    bool template = a->marks != NULL || !a->message || (size > 0 && memchr(marks, 0, size) != NULL);
    return wrap(x, (bt_js){.data = g->data,
                           .size = g->used,
                           .marks = message && template ? g->marks : NULL,
                           .message = message,
                           .joined = true,
                           .grow = g});
}

/* Worth continuing in place: long, and once continued already. */
static bool grows(const bt_js *s)
{
    return s->joined && s->size >= GROW_BYTES_MIN;
}

static bt_jv take_joined(bt_jx *x, size_t begin, bool message, bool markup)
{
    bt_jv v = bt_out_take(x, begin, message);
    if (bt_failed(v)) return v;
    bt_js s = *v.s;
    s.joined = true;
    s.markup = markup;
    return wrap(x, s);
}

static void add_side(bt_jx *x, const bt_js *s, bool markup)
{
    if (markup && !s->markup) {
        add_escaped(x, s);
    } else {
        bt_out_js(x, s, 0, s->size);
    }
}

bt_jv bt_js_concat(bt_jx *x, bt_jv a, bt_jv b)
{
    assert(a.kind == JV_STRING);
    assert(b.kind == JV_STRING);
    bool markup = a.s->markup || b.s->markup, in_place = !markup && grows(a.s);
    size_t begin = bt_out_begin(x);
    if (!in_place) add_side(x, a.s, markup);
    add_side(x, b.s, markup);
    return in_place ? append(x, a.s, begin) : take_joined(x, begin, a.message || b.message, markup);
}

bt_jv bt_js_join(bt_jx *x, const bt_jlist *parts)
{
    assert(parts->n > 0);
    bt_jv first = parts->items[0];
    bool in_place = first.kind == JV_STRING && grows(first.s);
    size_t begin = bt_out_begin(x);
    for (size_t i = in_place; i < parts->n; i++) bt_out_str(x, parts->items[i]);
    return in_place ? append(x, first.s, begin) : take_joined(x, begin, parts->message, false);
}
