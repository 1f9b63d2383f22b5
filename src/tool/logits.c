/* Logits of given ids into a safetensors file; see logits.h. */
#include "tool/logits.h"

#include <math.h>

#include "format/safetensors.h"

/* ---- scoring in chunks ------------------------------------------------------------------------------------------- */

typedef struct chunk_view {
    bt_logits_fn sink;
    const bt_hook *hook;
    void *user;
    size_t first, n_total; /* ids before this chunk; of all chunks */
} chunk_view;

static bool give_row(void *user, size_t row_i, const float *logits)
{
    const chunk_view *c = user;
    return c->sink(c->user, c->first + row_i, logits);
}

static bool ask_hook(void *user, size_t n_done, size_t n_total)
{
    const chunk_view *c = user;
    (void)n_total;
    return c->hook->keep_going(c->hook->user, c->first + n_done, c->n_total);
}

bt_status bt_score_in_chunks(bt_session *s, const int32_t *ids, size_t n, size_t chunk, bt_logits_fn sink, void *user,
                             const bt_hook *hook, bt_error *e)
{
    chunk_view c = {.sink = sink, .hook = hook, .user = user, .n_total = n};
    const bt_hook through = {.keep_going = ask_hook, .user = &c};
    if (chunk == 0) chunk = n;
    bt_status st = BT_OK;
    for (size_t size; c.first < n && st == BT_OK; c.first += size) {
        size = n - c.first < chunk ? n - c.first : chunk;
        st = bt_session_score(s, ids + c.first, size, give_row, &c, hook == NULL ? NULL : &through, e);
    }
    return st;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct writing {
    bt_safetensors_writer *writer;
    size_t n_vocab, n_odd;
    bt_status status; /* of the last write */
    bt_error *error;
} writing;

static bool write_row(void *user, size_t row_i, const float *logits)
{
    writing *w = user;
    (void)row_i;
    for (size_t i = 0; i < w->n_vocab; i++)
        if (!isfinite(logits[i])) w->n_odd++;
    w->status = bt_safetensors_write(w->writer, logits, w->n_vocab * sizeof *logits, w->error);
    return w->status == BT_OK;
}

bt_status bt_logits_write(bt_session *s, size_t n_vocab, const int32_t *ids, size_t n, size_t chunk, const char *path,
                          const bt_hook *hook, size_t *n_odd, bt_error *e)
{
    const bt_tensor_decl decl = {.name = "logits", .dtype = BT_F32, .n_dims = 2, .shape = {n, n_vocab}};
    bt_error fault = {.status = BT_OK}; /* of a write: the session's own error says only that the sink stopped it */
    writing w = {.n_vocab = n_vocab, .error = &fault};
    bt_status st = bt_safetensors_create(path, &decl, 1, &w.writer, e);
    if (st != BT_OK) return st;
    st = bt_score_in_chunks(s, ids, n, chunk, write_row, &w, hook, e);
    if (w.status != BT_OK) {
        st = w.status;
        if (e != NULL) *e = fault;
    }
    if (st != BT_OK) {
        bt_safetensors_abandon(w.writer);
        return st;
    }
    *n_odd = w.n_odd;
    return bt_safetensors_finish(w.writer, e);
}
