/*
 * The evaluator's bookkeeping (failures, memory, steps, depth), containers and iteration.
 */
#include "text/jinja_value.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_node.h"

#define MESSAGE_BYTES 3072 /* leaves room for the template's name */
#define SMALL_DICT    8    /* pairs that are searched one by one */

/* ---- failing, memory, steps -------------------------------------------------------------------------------------- */

static bt_jv fail(bt_jx *x, bt_status status, const char *text)
{
    if (x->failed) return bt_jv_of(JV_FAIL); /* the first fault is the one to tell */
    x->failed = true;
    x->status = bt_fail(x->error, status, "%s", text);
    x->line = x->at == NULL ? 0 : x->at->line;
    x->column = x->at == NULL ? 0 : x->at->column;
    return bt_jv_of(JV_FAIL);
}

bt_jv bt_jx_fail(bt_jx *x, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(x, BT_ERR_FORMAT, text);
}

bt_jv bt_jx_fail_status(bt_jx *x, bt_status status, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(x, status, text);
}

void *bt_jx_alloc(bt_jx *x, size_t count, size_t size)
{
    if (x->failed) return NULL;
    size_t used = bt_arena_bytes(x->arena);
    if (used > x->memory_bytes_max || (size > 0 && count > (x->memory_bytes_max - used) / size)) {
        (void)bt_jx_fail_status(x, BT_ERR_MEMORY, "rendering needs more than %zu bytes of memory", x->memory_bytes_max);
        return NULL;
    }
    void *room = bt_arena_alloc(x->arena, count, size);
    if (room == NULL) (void)bt_jx_fail_status(x, BT_ERR_MEMORY, "no memory to render the template");
    return room;
}

bool bt_jx_charge(bt_jx *x, size_t work)
{
    if (x->failed) return false;
    x->steps += 1 + work / 64;
    if (x->steps <= x->steps_max) return true;
    (void)bt_jx_fail(x, "the template takes more than %llu steps", (unsigned long long)x->steps_max);
    return false;
}

/* A character decoded and looked up costs what many bytes compared do. */
bool bt_jx_charge_scan(bt_jx *x, size_t size)
{
    return bt_jx_charge(x, size > SIZE_MAX / 16 ? SIZE_MAX : size * 16);
}

bool bt_jx_charge_float(bt_jx *x, size_t n_digits)
{
    return bt_jx_charge(x, 2048 + n_digits * 64);
}

bool bt_jx_enter(bt_jx *x)
{
    if (x->failed) return false;
    if (x->depth >= x->depth_max) {
        (void)bt_jx_fail(x, "more than %u levels of recursion", x->depth_max);
        return false;
    }
    x->depth++;
    return true;
}

void bt_jx_leave(bt_jx *x)
{
    assert(x->depth > 0);
    x->depth--;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

bt_jlist *bt_jlist_new(bt_jx *x, size_t capacity)
{
    bt_jlist *l = bt_jx_alloc(x, 1, sizeof *l);
    if (l == NULL) return NULL;
    if (capacity > 0) {
        l->items = bt_jx_alloc(x, capacity, sizeof *l->items);
        if (l->items == NULL) return NULL;
        l->capacity = capacity;
    }
    return l;
}

bool bt_jlist_add(bt_jx *x, bt_jlist *l, bt_jv v)
{
    assert(v.kind > JV_MISSING);
    if (l->n == l->capacity) {
        size_t capacity = l->capacity == 0 ? 4 : l->capacity * 2;
        bt_jv *more = bt_jx_alloc(x, capacity, sizeof *more);
        if (more == NULL) return false;
        if (l->n > 0) memcpy(more, l->items, l->n * sizeof *more);
        l->items = more;
        l->capacity = capacity;
    }
    l->items[l->n++] = v;
    l->message = l->message || v.message;
    return bt_jx_charge(x, 0);
}

bt_jv bt_jv_pair(bt_jx *x, bt_jv a, bt_jv b)
{
    bt_jlist *l = bt_jlist_new(x, 2);
    if (l == NULL || !bt_jlist_add(x, l, a) || !bt_jlist_add(x, l, b)) return bt_jv_of(JV_FAIL);
    return bt_jv_list(JV_TUPLE, l);
}

/* ---- dicts ------------------------------------------------------------------------------------------------------- */

bt_jdict *bt_jdict_new(bt_jx *x)
{
    return bt_jx_alloc(x, 1, sizeof(bt_jdict));
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* Equal values hash alike, over the borders of number types. False after failing: not hashable. */
static bool hash(bt_jx *x, bt_jv v, uint64_t *h)
{
    switch ((bt_jv_kind)v.kind) {
    case JV_BOOL:
        *h = mix(1, v.b);
        return true;
    case JV_INT:
        *h = mix(1, (uint64_t)v.i);
        return true;
    case JV_FLOAT: { /* a float that is an integer hashes as that one */
        bool whole = v.f >= -0x1p63 && v.f < 0x1p63 && floor(v.f) == v.f;
        uint64_t bits;
        memcpy(&bits, &v.f, sizeof bits);
        *h = mix(1, whole ? (uint64_t)(int64_t)v.f : bits);
        return true;
    }
    case JV_BIG:
        return hash(x, bt_jv_float(bt_jv_big_double(v), false), h); /* as a float that equals it does */
    case JV_STRING:
        *h = 0xcbf29ce484222325u;
        for (size_t i = 0; i < v.s->size; i++) *h = (*h ^ (unsigned char)v.s->data[i]) * 0x100000001b3u;
        return bt_jx_charge(x, v.s->size * 4);
    case JV_TUPLE: {
        if (!bt_jx_enter(x)) return false;
        *h = 7;
        bool good = true;
        for (size_t i = 0; i < v.list->n && good; i++) {
            uint64_t item = 0;
            good = hash(x, v.list->items[i], &item);
            *h = mix(*h, item);
        }
        bt_jx_leave(x);
        return good;
    }
    case JV_LIST:
    case JV_DICT:
    case JV_VIEW:
        (void)bt_jx_fail(x, "a %s cannot be a key or a member of a set", bt_jv_type(v));
        return false;
    default:
        *h = v.kind;
        return true;
    }
}

bool bt_jv_hashable(bt_jx *x, bt_jv v)
{
    if (v.kind == JV_LIST || v.kind == JV_DICT || v.kind == JV_VIEW) return false;
    if (v.kind != JV_TUPLE) return true;
    if (!bt_jx_enter(x)) return false;
    bool good = true;
    for (size_t i = 0; i < v.list->n && good; i++) good = bt_jv_hashable(x, v.list->items[i]);
    bt_jx_leave(x);
    return good;
}

static bool same_key(bt_jx *x, bt_jv a, bt_jv b)
{
    if (a.kind == JV_STRING || b.kind == JV_STRING)
        return a.kind == b.kind && a.s->size == b.s->size && bt_jx_charge(x, a.s->size) && bt_js_equal(a.s, b.s);
    return bt_jv_equal(x, a, b);
}

/* The pair of a key, or n. With an index, *slot is where the key is or would be. */
static size_t locate(bt_jx *x, const bt_jdict *d, bt_jv key, uint64_t h, size_t *slot)
{
    if (d->n_slots == 0) {
        size_t i = 0;
        while (i < d->n && !same_key(x, d->pairs[i].key, key) && !x->failed) i++;
        return x->failed ? d->n : i;
    }
    for (size_t i = h & (d->n_slots - 1);; i = (i + 1) & (d->n_slots - 1)) {
        *slot = i;
        if (d->slots[i] == 0 || !bt_jx_charge(x, 0)) return d->n;
        if (same_key(x, d->pairs[d->slots[i] - 1].key, key)) return d->slots[i] - 1;
    }
}

/* Room for one pair more, and an index that is at most half full. */
static bool grow(bt_jx *x, bt_jdict *d)
{
    if (d->n == UINT32_MAX - 1) return !bt_failed(bt_jx_fail(x, "a dict is too large"));
    if (d->n == d->capacity) {
        size_t capacity = d->capacity == 0 ? 4 : d->capacity * 2;
        bt_jpair *more = bt_jx_alloc(x, capacity, sizeof *more);
        if (more == NULL) return false;
        if (d->n > 0) memcpy(more, d->pairs, d->n * sizeof *more);
        d->pairs = more;
        d->capacity = capacity;
    }
    if (d->n < SMALL_DICT || (d->n + 1) * 2 <= d->n_slots) return true;
    size_t n_slots = d->n_slots == 0 ? SMALL_DICT * 4 : d->n_slots * 2;
    uint32_t *slots = bt_jx_alloc(x, n_slots, sizeof *slots);
    if (slots == NULL) return false;
    d->slots = slots;
    d->n_slots = n_slots;
    for (size_t p = 0; p < d->n; p++) {
        uint64_t h = 0;
        if (!hash(x, d->pairs[p].key, &h)) return false;
        size_t i = h & (n_slots - 1);
        while (slots[i] != 0) i = (i + 1) & (n_slots - 1);
        slots[i] = (uint32_t)(p + 1);
    }
    return true;
}

bool bt_jdict_put(bt_jx *x, bt_jdict *d, bt_jv key, bt_jv value)
{
    assert(value.kind > JV_MISSING);
    uint64_t h = 0;
    if (!hash(x, key, &h) || !grow(x, d)) return false;
    size_t slot = 0, at = locate(x, d, key, h, &slot);
    if (x->failed) return false;
    d->message = d->message || key.message || value.message;
    if (at < d->n) {
        d->pairs[at].value = value;
        return true;
    }
    d->pairs[d->n++] = (bt_jpair){key, value};
    if (d->n_slots > 0) d->slots[slot] = (uint32_t)d->n;
    return bt_jx_charge(x, 0);
}

bool bt_jdict_set(bt_jx *x, bt_jdict *d, const bt_js *key, bt_jv value)
{
    return bt_jdict_put(x, d, bt_jv_string(key), value);
}

const bt_jv *bt_jdict_get(bt_jx *x, const bt_jdict *d, bt_jv key)
{
    uint64_t h = 0;
    size_t slot = 0;
    if (!hash(x, key, &h)) return NULL;
    size_t at = locate(x, d, key, h, &slot);
    return at < d->n ? &d->pairs[at].value : NULL;
}

const bt_jv *bt_jdict_find(bt_jx *x, const bt_jdict *d, const bt_js *key)
{
    return bt_jdict_get(x, d, bt_jv_string(key));
}

/* ---- iteration --------------------------------------------------------------------------------------------------- */

bt_jv bt_jrange_item(const bt_jrange *r, size_t i, bool message)
{
    assert(i < r->n);
    return bt_jv_int(r->start + (int64_t)i * r->step, message);
}

bool bt_jv_iterable(bt_jv v)
{
    switch ((bt_jv_kind)v.kind) {
    case JV_UNDEFINED:
    case JV_STRING:
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_RANGE:
    case JV_VIEW:
    case JV_GENERATOR:
    case JV_LOOP:
        return true;
    default:
        return false;
    }
}

bool bt_jiter_begin(bt_jx *x, bt_jv v, bt_jiter *it)
{
    if (!bt_jv_iterable(v)) {
        (void)bt_jx_fail(x, "'%s' object is not iterable", bt_jv_type(v));
        return false;
    }
    *it = (bt_jiter){.source = v};
    return true;
}

/* The i-th pair of a dict as keys(), values() or items() give it. */
static bt_jv view_item(bt_jx *x, bt_jv v, size_t i)
{
    const bt_jpair *p = &v.dict->pairs[i];
    if (v.kind == JV_DICT || v.view == VIEW_KEYS) return p->key;
    return v.view == VIEW_VALUES ? p->value : bt_jv_pair(x, p->key, p->value);
}

static bt_jnext next_char(bt_jx *x, bt_jiter *it, bt_jv *out)
{
    const bt_js *s = it->source.s;
    size_t left = s->size - it->i, from, to;
    if (left == 0) return NEXT_END;
    if (it->backwards) {
        to = left;
        for (from = to - 1; from > 0 && ((unsigned char)s->data[from] & 0xc0) == 0x80;) from--;
    } else {
        from = it->i;
        for (to = from + 1; to < s->size && ((unsigned char)s->data[to] & 0xc0) == 0x80;) to++;
    }
    it->i += to - from;
    bt_js plain = *s;
    plain.markup = false; /* iterating markup gives plain characters */
    *out = bt_js_slice(x, &plain, from, to);
    return bt_failed(*out) ? NEXT_FAIL : NEXT_ITEM;
}

static bt_jnext next_generated(bt_jx *x, bt_jgen *g, bt_jv *out)
{
    if (g->done) return NEXT_END;
    if (!bt_jx_enter(x)) return NEXT_FAIL;
    bt_jnext next = g->next(x, g, out);
    bt_jx_leave(x);
    g->done = next != NEXT_ITEM;
    return next;
}

bt_jnext bt_jiter_next(bt_jx *x, bt_jiter *it, bt_jv *out)
{
    bt_jv v = it->source;
    if (!bt_jx_charge(x, 0)) return NEXT_FAIL;
    size_t n = 0;
    switch ((bt_jv_kind)v.kind) {
    case JV_UNDEFINED:
        return NEXT_END;
    case JV_STRING:
        return next_char(x, it, out);
    case JV_GENERATOR:
        return next_generated(x, v.gen, out);
    case JV_LOOP: {
        bt_jv item;
        bt_jnext next = bt_jloop_next(x, v.loop, &item);
        if (next == NEXT_ITEM) *out = bt_jv_pair(x, item, v);
        return x->failed ? NEXT_FAIL : next;
    }
    case JV_LIST:
    case JV_TUPLE:
        n = v.list->n;
        break;
    case JV_DICT:
    case JV_VIEW:
        n = v.dict->n;
        break;
    default:
        assert(v.kind == JV_RANGE);
        n = v.range->n;
        break;
    }
    if (it->i >= n) return NEXT_END;
    size_t i = it->backwards ? n - 1 - it->i : it->i;
    it->i++;
    if (v.kind == JV_RANGE) {
        *out = bt_jrange_item(v.range, i, v.message);
    } else {
        *out = v.kind == JV_LIST || v.kind == JV_TUPLE ? v.list->items[i] : view_item(x, v, i);
    }
    return bt_failed(*out) ? NEXT_FAIL : NEXT_ITEM;
}

bool bt_jv_collect(bt_jx *x, bt_jv v, bt_jlist *into)
{
    bt_jiter it;
    bt_jv item;
    if (!bt_jiter_begin(x, v, &it)) return false;
    bt_jnext next;
    while ((next = bt_jiter_next(x, &it, &item)) == NEXT_ITEM) {
        if (!bt_jlist_add(x, into, item)) return false;
    }
    into->message = into->message || v.message;
    return next == NEXT_END;
}

bt_jv bt_jv_to_list(bt_jx *x, bt_jv v)
{
    bt_jlist *l = bt_jlist_new(x, 0);
    if (l == NULL || !bt_jv_collect(x, v, l)) return bt_jv_of(JV_FAIL);
    return bt_jv_list(JV_LIST, l);
}

bt_jv bt_jgen_new(bt_jx *x, const char *what, bt_jnext (*next)(bt_jx *, bt_jgen *, bt_jv *), bt_jgen **out)
{
    bt_jgen *g = bt_jx_alloc(x, 1, sizeof *g);
    if (g == NULL) return bt_jv_of(JV_FAIL);
    g->what = what;
    g->next = next;
    *out = g;
    return (bt_jv){.kind = JV_GENERATOR, .gen = g};
}
