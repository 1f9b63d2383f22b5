/*
 * Copies of recurrent states; see kept.h. A slot has room for n of them, set aside when the engine is opened.
 *
 * Which copy gives way when there is no room: the one that is missed least. Without it, rewinds to lengths between it
 * and the next one replay the distance to the one before in addition; and the further back a length is, the less often
 * anybody goes there. So the price of a copy is
 *   (distance to the one before) * (distance to the next) / (distance from the end),
 * which leaves copies ever closer together towards the end, and lets an answer's single ids replace each other. Two are
 * never dropped, where there is room for them: the first at or beyond BT_KEPT_EVERY, so that no rewind beyond it starts
 * from nothing; and, while single ids come, the end of the extend before them: where an answer began is where people go
 * back to.
 */
#include "session/kept.h"

#include <assert.h>
#include <string.h>

uint64_t bt_kept_copy_bytes(const bt_tape *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->n_states; i++)
        if (!t->states[i].per_position) bytes += t->states[i].strip_bytes * t->states[i].n_strips;
    return bytes;
}

static uint8_t *copy_at(const bt_session *s, uint32_t place)
{
    const bt_engine *g = s->engine;
    assert(place < g->n_kept_max);
    return g->kept + ((uint64_t)s->slot * g->n_kept_max + place) * g->kept_copy_bytes;
}

/* Copies the fixed states out of the slot, or into it. */
static bt_status copy_states(const bt_session *s, uint8_t *copy, bool out, bt_error *e)
{
    const bt_engine *g = s->engine;
    bt_status st = BT_OK;
    for (uint32_t i = 0; i < g->tape->n_states && st == BT_OK; i++) {
        const bt_state *state = &g->tape->states[i];
        if (state->per_position) continue;
        size_t n = (size_t)(state->strip_bytes * state->n_strips);
        st = out ? g->vtable->state_read(g->plan, s->slot, state->offset, copy, n, e)
                 : g->vtable->state_write(g->plan, s->slot, state->offset, copy, n, e);
        copy += n;
    }
    return st;
}

/* What is lost with copy i once there is one at `length`. */
static double price_of(const bt_session *s, size_t i, size_t length)
{
    size_t at = s->kept[i].length, before = i > 0 ? s->kept[i - 1].length : 0;
    size_t next = i + 1 < s->n_kept ? s->kept[i + 1].length : length;
    assert(before < at && at < next && next <= length);
    return (double)(at - before) * (double)(next - at) / (double)(length - at);
}

/* The copy to drop for one more, at `length`, which ends a single id or not. */
static size_t least_missed(const bt_session *s, size_t length, bool is_single)
{
    size_t n = s->n_kept, first = 0, last = n, least = n;
    while (first < n && s->kept[first].length < BT_KEPT_EVERY) first++;
    while (last > 0 && s->kept[last - 1].is_single) last--;
    for (size_t i = 0; i < n; i++) {
        bool is_held = (n > 1 && i == first) || (n > 2 && is_single && i + 1 == last);
        if (is_held) continue;
        if (least == n || price_of(s, i, length) < price_of(s, least, length)) least = i;
    }
    assert(least < n);
    return least;
}

/* Drops one; *place: where its copy lay. */
static void drop(bt_session *s, size_t i, uint32_t *place)
{
    assert(i < s->n_kept);
    *place = s->kept[i].place;
    memmove(s->kept + i, s->kept + i + 1, (s->n_kept - i - 1) * sizeof *s->kept);
    s->n_kept--;
}

/* A place that no copy has. There are few. */
static uint32_t free_place(const bt_session *s)
{
    uint32_t place = 0;
    for (size_t i = 0; i < s->n_kept;)
        if (s->kept[i].place == place) {
            place++;
            i = 0;
        } else {
            i++;
        }
    return place;
}

bt_status bt_kept_add(bt_session *s, bt_error *e)
{
    const bt_engine *g = s->engine;
    if (g->n_kept_max == 0 || s->length == 0) return BT_OK; /* the beginning is known */
    if (s->n_kept > 0 && s->kept[s->n_kept - 1].length == s->length) return BT_OK;
    assert(s->n_kept == 0 || s->kept[s->n_kept - 1].length < s->length);
    uint32_t place;
    if (s->n_kept == g->n_kept_max)
        drop(s, least_missed(s, s->length, s->ends_single), &place);
    else
        place = free_place(s);
    bt_status st = copy_states(s, copy_at(s, place), true, e);
    if (st != BT_OK) return st;
    s->kept[s->n_kept++] = (bt_kept){.length = s->length, .place = place, .is_single = s->ends_single};
    return BT_OK;
}

bt_status bt_kept_restore(bt_session *s, size_t length, size_t *restored, bt_error *e)
{
    while (s->n_kept > 0 && s->kept[s->n_kept - 1].length > length) s->n_kept--;
    *restored = s->n_kept > 0 ? s->kept[s->n_kept - 1].length : 0;
    if (s->n_kept == 0) return s->engine->vtable->state_zero(s->engine->plan, s->slot, e);
    return copy_states(s, copy_at(s, s->kept[s->n_kept - 1].place), false, e);
}

void bt_kept_forget(bt_session *s)
{
    s->n_kept = 0;
}
