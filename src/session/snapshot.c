/*
 * Snapshots: a session as bytes. Self-contained: the ids, every state up to the length (a recurrent one whole), and the
 * logits if there are any. The header says which model and KV type they belong to; a snapshot that does not fit is
 * refused by name, and a damaged one by its checksum, before the session is touched.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "session/kept.h"
#include "session/session.h"

typedef struct snapshot_header {
    char magic[8];        /* "BTSNAP1" */
    uint64_t model;       /* fingerprint */
    uint64_t total_bytes; /* header included */
    uint64_t checksum;    /* of everything after the header */
    uint64_t length;      /* tokens */
    uint32_t kv_dtype, n_states, n_vocab, has_logits;
} snapshot_header;
_Static_assert(sizeof(snapshot_header) == 56, "the header is written as it lies in memory");

static const char MAGIC[8] = "BTSNAP1";

/* Bytes of one strip of a state that `length` positions fill. */
static uint64_t strip_used(const bt_state *st, size_t length)
{
    uint64_t positions = st->per_position ? length : 1;
    return positions * st->width * bt_dtype_bits((bt_dtype)st->dtype) / 8;
}

static uint64_t body_bytes(const bt_session *s, size_t length, bool has_logits)
{
    const bt_tape *t = s->engine->tape;
    uint64_t n = length * sizeof(int32_t);
    for (uint32_t i = 0; i < t->n_states; i++) n += t->states[i].n_strips * strip_used(&t->states[i], length);
    if (has_logits) n += bt_model_n_vocab(s->engine->model) * sizeof(float);
    return n;
}

static snapshot_header header_of(const bt_session *s, size_t length, bool has_logits)
{
    const bt_engine *g = s->engine;
    snapshot_header h = {
        .model = g->model->fingerprint,
        .total_bytes = sizeof h + body_bytes(s, length, has_logits),
        .length = length,
        .kv_dtype = (uint32_t)g->tape->limits.kv_dtype,
        .n_states = g->tape->n_states,
        .n_vocab = (uint32_t)bt_model_n_vocab(g->model),
        .has_logits = has_logits,
    };
    memcpy(h.magic, MAGIC, sizeof h.magic);
    return h;
}

bt_status bt_session_snapshot(const bt_session *s, void **data, size_t *size, bt_error *e)
{
    const bt_engine *g = s->engine;
    snapshot_header h = header_of(s, s->length, s->has_logits);
    uint8_t *buffer = bt_malloc((size_t)h.total_bytes, 1);
    if (buffer == NULL)
        return bt_fail(e, BT_ERR_MEMORY, "no memory for a snapshot of %" PRIu64 " bytes", h.total_bytes);
    uint8_t *at = buffer + sizeof h;
    memcpy(at, s->ids, s->length * sizeof *s->ids);
    at += s->length * sizeof *s->ids;
    bt_status st = BT_OK;
    for (uint32_t i = 0; i < g->tape->n_states && st == BT_OK; i++) {
        const bt_state *state = &g->tape->states[i];
        size_t n = (size_t)strip_used(state, s->length);
        for (uint32_t j = 0; j < state->n_strips && st == BT_OK; j++, at += n) {
            st = g->vtable->state_read(g->plan, s->slot, state->offset + j * state->strip_bytes, at, n, e);
        }
    }
    if (st != BT_OK) {
        bt_free(buffer);
        return st;
    }
    if (s->has_logits) memcpy(at, s->logits, h.n_vocab * sizeof *s->logits);
    h.checksum = bt_checksum(0, buffer + sizeof h, (size_t)h.total_bytes - sizeof h);
    memcpy(buffer, &h, sizeof h);
    *data = buffer;
    *size = (size_t)h.total_bytes;
    return BT_OK;
}

static bt_status check_snapshot(const bt_session *s, const uint8_t *data, size_t size, snapshot_header *h, bt_error *e)
{
    const bt_engine *g = s->engine;
    if (size < sizeof *h || memcmp(data, MAGIC, sizeof MAGIC) != 0) {
        return bt_fail(e, BT_ERR_FORMAT, "the snapshot of %zu bytes is none: it does not begin as one", size);
    }
    memcpy(h, data, sizeof *h);
    if (h->model != g->model->fingerprint || h->n_vocab != bt_model_n_vocab(g->model) ||
        h->n_states != g->tape->n_states) {
        return bt_fail(e, BT_ERR_FORMAT, "the snapshot belongs to another model");
    }
    if (h->kv_dtype != (uint32_t)g->tape->limits.kv_dtype) {
        bt_dtype theirs = h->kv_dtype < BT_N_DTYPES ? (bt_dtype)h->kv_dtype : BT_DTYPE_UNKNOWN;
        return bt_fail(e, BT_ERR_FORMAT, "the snapshot has KV type %s, this session %s", bt_dtype_name(theirs),
                       bt_dtype_name(g->tape->limits.kv_dtype));
    }
    if (h->length > g->tape->limits.context) {
        return bt_fail(e, BT_ERR_CONTEXT, "the snapshot holds %" PRIu64 " tokens, this session's context %u", h->length,
                       g->tape->limits.context);
    }
    uint64_t expected = sizeof *h + body_bytes(s, (size_t)h->length, h->has_logits == 1);
    if (h->has_logits > 1 || h->total_bytes != expected || size != expected) {
        return bt_fail(e, BT_ERR_FORMAT, "the snapshot is %zu bytes long, its header makes it %" PRIu64, size,
                       expected);
    }
    if (bt_checksum(0, data + sizeof *h, size - sizeof *h) != h->checksum) {
        return bt_fail(e, BT_ERR_FORMAT, "the snapshot is damaged: its checksum does not match");
    }
    for (size_t i = 0; i < h->length; i++) {
        int32_t id;
        memcpy(&id, data + sizeof *h + i * sizeof id, sizeof id);
        if (id < 0 || (uint32_t)id >= h->n_vocab)
            return bt_fail(e, BT_ERR_FORMAT, "the snapshot holds token id %d", id);
    }
    return BT_OK;
}

static bt_status write_states(bt_session *s, size_t length, const uint8_t **at, bt_error *e)
{
    const bt_engine *g = s->engine;
    bt_status st = BT_OK;
    for (uint32_t i = 0; i < g->tape->n_states && st == BT_OK; i++) {
        const bt_state *state = &g->tape->states[i];
        size_t n = (size_t)strip_used(state, length);
        for (uint32_t j = 0; j < state->n_strips && st == BT_OK; j++, *at += n) {
            st = g->vtable->state_write(g->plan, s->slot, state->offset + j * state->strip_bytes, *at, n, e);
        }
    }
    return st;
}

bt_status bt_session_restore(bt_session *s, const void *data, size_t size, bt_error *e)
{
    const bt_engine *g = s->engine;
    snapshot_header h;
    if (data == NULL) return bt_fail(e, BT_ERR_USAGE, "no snapshot is given");
    bt_status st = check_snapshot(s, data, size, &h, e);
    if (st != BT_OK) return st;
    const uint8_t *at = (const uint8_t *)data + sizeof h;
    s->length = 0; /* should a write fail half-way, nothing half-restored counts */
    s->has_logits = false;
    bt_kept_forget(s); /* of another past */
    memcpy(s->ids, at, (size_t)h.length * sizeof *s->ids);
    at += (size_t)h.length * sizeof *s->ids;
    st = write_states(s, (size_t)h.length, &at, e);
    if (st != BT_OK) {
        bt_error later;
        (void)g->vtable->state_zero(g->plan, s->slot, &later);
        return st;
    }
    if (h.has_logits == 1) {
        memcpy(s->logits, at, h.n_vocab * sizeof *s->logits);
        s->has_logits = true;
    }
    s->length = (size_t)h.length;
    s->ends_single = false;
    return BT_OK;
}
