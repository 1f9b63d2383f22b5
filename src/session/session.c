/*
 * One timeline: ids in, logits out. A session is a slot of its engine and the ids that the slot's states stand for.
 * Extending runs steps of at most --batch rows; the hook is asked between them. Rewinding a family whose states are all
 * per position only forgets: rows past the length are overwritten before they are read again. A recurrent family goes
 * back to a copy of its states (kept.h) and replays from there. Chunking changes no bit, so neither does a replay.
 */
#include "session/session.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "session/kept.h"

bt_status bt_session_open(bt_engine *g, bt_session **out, bt_error *e)
{
    uint32_t slot = 0, n_slots = g->tape->limits.n_slots;
    while (slot < n_slots && g->slots[slot] != NULL) slot++;
    if (slot == n_slots) return bt_fail(e, BT_ERR_USAGE, "all %u slots of the engine are taken", n_slots);
    bt_session *s = bt_calloc(1, sizeof *s);
    if (s == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a session");
    s->engine = g;
    s->slot = slot;
    s->ids = bt_calloc(g->tape->limits.context, sizeof *s->ids);
    s->logits = bt_calloc(bt_model_n_vocab(g->model), sizeof *s->logits);
    if (g->n_kept_max > 0) s->kept = bt_calloc(g->n_kept_max, sizeof *s->kept);
    bt_status st = BT_OK;
    if (s->ids == NULL || s->logits == NULL || (g->n_kept_max > 0 && s->kept == NULL))
        st = bt_fail(e, BT_ERR_MEMORY, "no memory for a session");
    if (st == BT_OK) st = g->vtable->state_zero(g->plan, slot, e);
    if (st != BT_OK) {
        s->engine = NULL;
        bt_session_close(s);
        return st;
    }
    g->slots[slot] = s;
    *out = s;
    return BT_OK;
}

void bt_session_close(bt_session *s)
{
    if (s == NULL) return;
    if (s->engine != NULL) s->engine->slots[s->slot] = NULL;
    bt_free(s->ids);
    bt_free(s->logits);
    bt_free(s->kept);
    bt_free(s);
}

size_t bt_session_length(const bt_session *s)
{
    return s->length;
}

const int32_t *bt_session_ids(const bt_session *s)
{
    return s->ids;
}

const float *bt_session_logits(const bt_session *s)
{
    return s->has_logits ? s->logits : NULL;
}

bt_status bt_session_check(const bt_session *s, const int32_t *ids, size_t n, bt_error *e)
{
    size_t context = s->engine->tape->limits.context, n_vocab = bt_model_n_vocab(s->engine->model);
    if (ids == NULL && n > 0) return bt_fail(e, BT_ERR_USAGE, "%zu ids are announced but none are given", n);
    if (n > context - s->length) {
        return bt_fail(e, BT_ERR_CONTEXT, "%zu tokens after %zu do not fit in the context of %zu", n, s->length,
                       context);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= n_vocab) {
            return bt_fail(e, BT_ERR_USAGE, "token id %d (number %zu) is outside the vocabulary of %zu", ids[i], i,
                           n_vocab);
        }
    }
    return BT_OK;
}

void bt_session_take_logits(bt_session *s, const float *logits)
{
    memcpy(s->logits, logits, bt_model_n_vocab(s->engine->model) * sizeof *s->logits);
    s->has_logits = true;
}

void bt_session_advance(bt_session *s, const int32_t *ids, size_t n)
{
    assert(n <= s->engine->tape->limits.context - s->length);
    if (ids != s->ids + s->length) memcpy(s->ids + s->length, ids, n * sizeof *ids); /* a replay's are in place */
    s->length += n;
}

/* ---- extend and score -------------------------------------------------------------------------------------------- */

typedef struct sink {
    bt_logits_fn fn; /* NULL: only the last row's logits are wanted */
    void *user;
    size_t n_total; /* rows asked for */
} sink;

static bool is_stopped(const bt_hook *hook, size_t n_done, size_t n_total)
{
    return hook != NULL && hook->keep_going != NULL && !hook->keep_going(hook->user, n_done, n_total);
}

/* Hands the logits of the step's rows to the sink, slice by slice; the first slice was run with the body. */
static bt_status give_logits(bt_session *s, bt_step *step, size_t first, sink to, bt_error *e)
{
    bt_engine *g = s->engine;
    uint32_t slice = g->tape->limits.max_logit_rows, n_rows = step->n_rows;
    for (uint32_t from = 0; from < n_rows; from += slice) {
        uint32_t n = n_rows - from < slice ? n_rows - from : slice;
        if (from > 0) {
            for (uint32_t i = 0; i < n; i++) g->logit_rows[i] = from + i;
            step->n_logit_rows = n;
            bt_status st = g->vtable->run(g->plan, step, BT_RUN_HEAD, e);
            if (st != BT_OK) return st;
        }
        for (uint32_t i = 0; i < n; i++) {
            size_t row = first + from + i;
            if (!to.fn(to.user, row, g->vtable->logits(g->plan, i)))
                return bt_fail(e, BT_ERR_CANCELLED, "stopped by the caller after %zu of %zu tokens", row + 1,
                               to.n_total);
        }
        if (from + n == n_rows) bt_session_take_logits(s, g->vtable->logits(g->plan, n - 1));
    }
    return BT_OK;
}

/* One step of n rows, the `first`-th and following of what the caller gave. */
static bt_status one_step(bt_session *s, const int32_t *ids, size_t n, size_t first, bool is_last, sink to, bt_error *e)
{
    bt_engine *g = s->engine;
    g->segments[0] = (bt_segment){.slot = s->slot, .row = 0, .n_rows = (uint32_t)n, .position = (uint32_t)s->length};
    bt_step step = {
        .ids = ids, .n_rows = (uint32_t)n, .segments = g->segments, .n_segments = 1, .logit_rows = g->logit_rows};
    if (to.fn != NULL) {
        uint32_t slice = g->tape->limits.max_logit_rows;
        step.n_logit_rows = n < slice ? (uint32_t)n : slice;
        for (uint32_t i = 0; i < step.n_logit_rows; i++) g->logit_rows[i] = i;
    } else if (is_last) {
        step.n_logit_rows = 1;
        g->logit_rows[0] = (uint32_t)n - 1;
    }
    bt_status st = g->vtable->run(g->plan, &step, BT_RUN_ALL, e);
    if (st != BT_OK) return st;
    s->has_logits = false;
    bt_session_advance(s, ids, n);
    if (to.fn != NULL) return give_logits(s, &step, first, to, e);
    if (is_last) bt_session_take_logits(s, g->vtable->logits(g->plan, 0));
    return BT_OK;
}

/* Rows of the next step: at most a batch, and where copies of states are kept, up to the next length that has one. */
static size_t rows_of_step(const bt_session *s, size_t n_left)
{
    size_t rows = s->engine->tape->limits.max_rows;
    if (s->engine->n_kept_max > 0 && rows > BT_KEPT_EVERY - s->length % BT_KEPT_EVERY)
        rows = BT_KEPT_EVERY - s->length % BT_KEPT_EVERY;
    return n_left < rows ? n_left : rows;
}

static bt_status extend(bt_session *s, const int32_t *ids, size_t n, sink to, const bt_hook *hook, bt_error *e)
{
    bt_status st = bt_session_check(s, ids, n, e);
    for (size_t done = 0; done < n && st == BT_OK;) {
        if (is_stopped(hook, done, n)) {
            return bt_fail(e, BT_ERR_CANCELLED, "stopped by the caller after %zu of %zu tokens", done, n);
        }
        size_t rows = rows_of_step(s, n - done);
        if (done == 0 || s->length % BT_KEPT_EVERY == 0) st = bt_kept_add(s, e);
        s->ends_single = n == 1;
        if (st == BT_OK) st = one_step(s, ids + done, rows, done, done + rows == n, to, e);
        done += rows;
    }
    return st;
}

bt_status bt_session_extend(bt_session *s, const int32_t *ids, size_t n, const bt_hook *hook, bt_error *e)
{
    return extend(s, ids, n, (sink){0}, hook, e);
}

bt_status bt_session_score(bt_session *s, const int32_t *ids, size_t n, bt_logits_fn fn, void *user,
                           const bt_hook *hook, bt_error *e)
{
    return extend(s, ids, n, (sink){fn, user, n}, hook, e);
}

/* ---- rewind ------------------------------------------------------------------------------------------------------ */

/* Computes ids that the session still holds behind its length, up to `length`. */
static bt_status replay(bt_session *s, size_t length, const bt_hook *hook, bt_error *e)
{
    size_t begin = s->length, n = length - begin;
    bt_status st = BT_OK;
    while (s->length < length && st == BT_OK) {
        size_t done = s->length - begin, rows = rows_of_step(s, length - s->length);
        if (is_stopped(hook, done, n)) {
            return bt_fail(e, BT_ERR_CANCELLED, "stopped by the caller after %zu of %zu tokens to replay", done, n);
        }
        if (s->length % BT_KEPT_EVERY == 0) st = bt_kept_add(s, e);
        if (st == BT_OK) st = one_step(s, s->ids + s->length, rows, done, false, (sink){0}, e);
        if (st == BT_OK) s->n_replayed += rows;
    }
    return st;
}

bt_status bt_session_rewind(bt_session *s, size_t length, const bt_hook *hook, bt_error *e)
{
    if (length > s->length) {
        return bt_fail(e, BT_ERR_USAGE, "rewind to %zu, but the session is %zu tokens long", length, s->length);
    }
    if (length == s->length) return BT_OK;
    s->has_logits = false;
    if (s->engine->kept_copy_bytes == 0) {
        s->length = length;
        return BT_OK;
    }
    size_t restored = 0;
    bt_status st = bt_kept_restore(s, length, &restored, e);
    s->length = st == BT_OK ? restored : 0; /* half-restored states count for nothing */
    if (st != BT_OK) return st;
    s->ends_single = false; /* where one has gone back to once, one may again */
    return replay(s, length, hook, e);
}
