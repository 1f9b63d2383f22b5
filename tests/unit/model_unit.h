/* For tests that run models: the checkpoints of tests/data/models, their expected logits, and one way to compute ours.
 */
#ifndef TESTS_MODEL_UNIT_H
#define TESTS_MODEL_UNIT_H

#include "unit.h"

#include <math.h>

#include "baltoro.h"
#include "format/safetensors.h"

#define UNIT_MODELS "tests/data/models/"

static inline bt_model *unit_open_model_ablated(const char *name, const char *ablate)
{
    char path[512];
    bt_error e = {0};
    bt_model *m = NULL;
    (void)snprintf(path, sizeof path, UNIT_MODELS "%s", name);
    bt_model_options o = {.ablate = ablate};
    if (bt_model_open(path, &o, &m, &e) != BT_OK) fail_msg("%s: %s", name, e.message);
    return m;
}

static inline bt_model *unit_open_model(const char *name)
{
    return unit_open_model_ablated(name, NULL);
}

/* An engine and a session on it; the engine has n_slots slots. */
static inline bt_engine *unit_open_engine(const bt_model *m, bt_engine_options o)
{
    bt_error e = {0};
    bt_engine *g = NULL;
    o.overcommit = true;
    if (bt_engine_open(m, &o, &g, &e) != BT_OK) fail_msg("engine: %s", e.message);
    return g;
}

static inline bt_session *unit_open_session(bt_engine *g)
{
    bt_error e = {0};
    bt_session *s = NULL;
    if (bt_session_open(g, &s, &e) != BT_OK) fail_msg("session: %s", e.message);
    return s;
}

static inline void unit_ok(bt_status st, const bt_error *e)
{
    if (st != BT_OK) fail_msg("status %d: %s", (int)st, e->message);
}

typedef struct unit_rows {
    float *to;
    size_t n_vocab;
} unit_rows;

static inline bool unit_take_row(void *user, size_t row_i, const float *logits)
{
    unit_rows *r = user;
    memcpy(r->to + row_i * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    return true;
}

/* Logits [n, n_vocab] of ids, in pieces of `chunk` ids a call (0: at once); the caller frees. */
static inline float *unit_logits(const bt_model *m, bt_engine_options o, const int32_t *ids, size_t n, size_t chunk)
{
    bt_error e = {0};
    if (o.context == 0) o.context = n;
    if (o.logit_rows == 0) o.logit_rows = chunk == 0 ? 32 : 5; /* the head's slices change no bit */
    bt_engine *g = unit_open_engine(m, o);
    bt_session *s = unit_open_session(g);
    size_t n_vocab = bt_model_n_vocab(m);
    float *all = calloc(n * n_vocab, sizeof *all);
    assert_non_null(all);
    if (chunk == 0) chunk = n;
    for (size_t i = 0; i < n; i += chunk) {
        size_t rows = n - i < chunk ? n - i : chunk;
        unit_rows to = {all + i * n_vocab, n_vocab};
        unit_ok(bt_session_score(s, ids + i, rows, unit_take_row, &to, NULL, &e), &e);
    }
    bt_session_close(s);
    bt_engine_close(g);
    return all;
}

/* ids.N and logits.N of a file in the model's folder. */
typedef struct unit_expected {
    bt_tensors *file;
    int32_t *ids;
    size_t n, n_rows, n_vocab;
    float *logits; /* of the last n_rows positions */
} unit_expected;

static inline unit_expected unit_read_expected(const char *model, const char *file, size_t n)
{
    unit_expected x = {.n = n};
    bt_error e = {0};
    char path[512];
    (void)snprintf(path, sizeof path, UNIT_MODELS "%s/%s.safetensors", model, file);
    unit_ok(bt_tensors_open(path, &x.file, &e), &e);
    (void)snprintf(path, sizeof path, "ids.%zu", n);
    const bt_tensor *ids = bt_tensors_find(x.file, path);
    (void)snprintf(path, sizeof path, "logits.%zu", n);
    const bt_tensor *logits = bt_tensors_find(x.file, path);
    assert_non_null(ids);
    assert_non_null(logits);
    assert_int_equal(ids->shape[0], n);
    x.n_rows = (size_t)logits->shape[0];
    x.n_vocab = (size_t)logits->shape[1];
    x.ids = calloc(n, sizeof *x.ids);
    x.logits = calloc(x.n_rows * x.n_vocab, sizeof *x.logits);
    assert_non_null(x.ids);
    assert_non_null(x.logits);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        memcpy(&id, ids->data + 8 * i, sizeof id);
        x.ids[i] = (int32_t)id;
    }
    memcpy(x.logits, logits->data, x.n_rows * x.n_vocab * sizeof *x.logits);
    return x;
}

static inline void unit_free_expected(unit_expected *x)
{
    bt_tensors_close(x->file);
    free(x->ids);
    free(x->logits);
}

static inline size_t unit_top(const float *row, size_t n)
{
    size_t top = 0;
    for (size_t i = 1; i < n; i++) {
        if (row[i] > row[top]) top = i;
    }
    return top;
}

/* Largest |difference| between `got` [x->n, n_vocab] and the expected rows; *other_tops counts rows whose top differs.
 */
static inline double unit_difference(const unit_expected *x, const float *got, size_t *other_tops)
{
    double worst = 0;
    const float *mine = got + (x->n - x->n_rows) * x->n_vocab;
    *other_tops = 0;
    for (size_t i = 0; i < x->n_rows; i++) {
        const float *a = mine + i * x->n_vocab, *b = x->logits + i * x->n_vocab;
        for (size_t j = 0; j < x->n_vocab; j++) {
            double d = fabs((double)a[j] - (double)b[j]);
            if (!(d <= worst)) worst = d; /* NaN counts as worst */
        }
        if (unit_top(a, x->n_vocab) != unit_top(b, x->n_vocab)) (*other_tops)++;
    }
    return worst;
}

#endif
