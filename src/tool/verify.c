/* Stored logits against the model's; see verify.h. */
#include "tool/verify.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "format/safetensors.h"
#include "tool/logits.h"

typedef struct entry {
    const char *label;
    int32_t *ids; /* [n_ids] */
    size_t n_ids, n_rows;
    const uint8_t *logits; /* F32 [n_rows, n_vocab] in the mapping, not aligned */
} entry;

struct bt_verify {
    bt_tensors *file;
    size_t n_vocab;
    entry *entries;
    size_t n_entries;
    float *expected; /* [n_vocab]: one row, aligned */
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bt_status check_ids_tensor(const char *path, const bt_tensor *t, bt_error *e)
{
    if (t->dtype != BT_I64)
        return bt_fail(e, BT_ERR_FORMAT, "%s: %s has dtype %s, expected I64", path, t->name, t->dtype_name);
    if (t->n_dims != 1 || t->n_elements == 0)
        return bt_fail(e, BT_ERR_FORMAT, "%s: %s must be a list of ids with at least one", path, t->name);
    return BT_OK;
}

static bt_status check_logits_tensor(const char *path, const bt_tensor *t, size_t n_ids, size_t n_vocab, bt_error *e)
{
    if (t->dtype != BT_F32)
        return bt_fail(e, BT_ERR_FORMAT, "%s: %s has dtype %s, expected F32", path, t->name, t->dtype_name);
    if (t->n_dims != 2)
        return bt_fail(e, BT_ERR_FORMAT, "%s: %s has %u dimensions, expected [rows, vocabulary]", path, t->name,
                       t->n_dims);
    if (t->shape[1] != n_vocab)
        return bt_fail(e, BT_ERR_FORMAT, "%s: %s has rows of %" PRIu64 " logits, the model's vocabulary has %zu ids",
                       path, t->name, t->shape[1], n_vocab);
    if (t->shape[0] == 0 || t->shape[0] > n_ids)
        return bt_fail(e, BT_ERR_FORMAT, "%s: %s has %" PRIu64 " rows for %zu ids, expected 1 to %zu", path, t->name,
                       t->shape[0], n_ids, n_ids);
    return BT_OK;
}

/* I64 ids, not aligned, to tokens; each must be within the vocabulary. */
static bt_status copy_ids(const char *path, const bt_tensor *t, size_t n_vocab, int32_t *ids, bt_error *e)
{
    for (size_t i = 0; i < t->n_elements; i++) {
        int64_t id;
        memcpy(&id, t->data + i * sizeof id, sizeof id);
        if (id < 0 || (uint64_t)id >= n_vocab)
            return bt_fail(e, BT_ERR_FORMAT, "%s: %s[%zu] is %" PRId64 ", but the model's vocabulary has %zu ids", path,
                           t->name, i, id, n_vocab);
        ids[i] = (int32_t)id;
    }
    return BT_OK;
}

/* Labels are printed in a table: what could steer a terminal is refused. */
static bool has_control(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t length = bt_utf8_decode(s + i, n - i, &c);
        if (length == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0)) return true;
        i += length;
    }
    return false;
}

static bt_status read_entry(bt_verify *v, const char *path, const bt_tensor *ids, bt_error *e)
{
    char name[256];
    const char *label = ids->name + strlen("ids.");
    int n = snprintf(name, sizeof name, "logits.%s", label);
    if (has_control(ids->name, ids->name_size) || n < 0 || (size_t)n >= sizeof name)
        return bt_fail(e, BT_ERR_FORMAT, "%s: the name %s cannot be used", path, ids->name);
    const bt_tensor *logits = bt_tensors_find(v->file, name);
    if (logits == NULL) return bt_fail(e, BT_ERR_FORMAT, "%s: %s has no %s", path, ids->name, name);
    bt_status st = check_ids_tensor(path, ids, e);
    if (st == BT_OK) st = check_logits_tensor(path, logits, (size_t)ids->n_elements, v->n_vocab, e);
    if (st != BT_OK) return st;
    entry *x = &v->entries[v->n_entries++];
    x->label = label;
    x->n_ids = (size_t)ids->n_elements;
    x->n_rows = (size_t)logits->shape[0];
    x->logits = logits->data;
    x->ids = bt_malloc(x->n_ids, sizeof *x->ids);
    if (x->ids == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory for %zu ids", path, x->n_ids);
    return copy_ids(path, ids, v->n_vocab, x->ids, e);
}

/* Every tensor must be half of a pair: one that is not would go unverified in silence. */
static bt_status read_entries(bt_verify *v, const char *path, bt_error *e)
{
    size_t n = bt_tensors_count(v->file), n_logits = 0;
    v->entries = bt_calloc(n + 1, sizeof *v->entries);
    v->expected = bt_malloc(v->n_vocab, sizeof *v->expected);
    if (v->entries == NULL || v->expected == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory", path);
    for (size_t i = 0; i < n; i++) {
        const bt_tensor *t = bt_tensors_at(v->file, i);
        bt_status st = BT_OK;
        if (strncmp(t->name, "ids.", 4) == 0)
            st = read_entry(v, path, t, e);
        else if (strncmp(t->name, "logits.", 7) == 0)
            n_logits++;
        else
            st = bt_fail(e, BT_ERR_FORMAT, "%s: %s is neither ids.N nor logits.N", path, t->name);
        if (st != BT_OK) return st;
    }
    if (v->n_entries == 0) return bt_fail(e, BT_ERR_FORMAT, "%s: there is no tensor ids.N", path);
    if (n_logits != v->n_entries)
        return bt_fail(e, BT_ERR_FORMAT, "%s: %zu tensors logits.N for %zu ids.N", path, n_logits, v->n_entries);
    return BT_OK;
}

/* Labels that are numbers in ascending order, the rest by their letters. */
static int compare_labels(const char *a, const char *b)
{
    uint64_t x, y;
    bool is_x = bt_json_u64(a, strlen(a), &x), is_y = bt_json_u64(b, strlen(b), &y);
    if (is_x && is_y) return x < y ? -1 : x > y;
    if (is_x != is_y) return is_x ? -1 : 1;
    return strcmp(a, b);
}

static int by_label(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return compare_labels(x->label, y->label);
}

bt_status bt_verify_open(const char *path, size_t n_vocab, bt_verify **out, bt_error *e)
{
    bt_verify *v = bt_calloc(1, sizeof *v);
    if (v == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory", path);
    v->n_vocab = n_vocab;
    bt_status st = bt_tensors_open(path, &v->file, e);
    if (st == BT_OK) st = read_entries(v, path, e);
    if (st != BT_OK) {
        bt_verify_close(v);
        return st;
    }
    qsort(v->entries, v->n_entries, sizeof *v->entries, by_label);
    *out = v;
    return BT_OK;
}

void bt_verify_close(bt_verify *v)
{
    if (v == NULL) return;
    for (size_t i = 0; i < v->n_entries; i++) bt_free(v->entries[i].ids);
    bt_free(v->entries);
    bt_free(v->expected);
    bt_tensors_close(v->file);
    bt_free(v);
}

size_t bt_verify_n_entries(const bt_verify *v)
{
    return v->n_entries;
}

size_t bt_verify_n_ids_max(const bt_verify *v)
{
    size_t max = 0;
    for (size_t i = 0; i < v->n_entries; i++) max = v->entries[i].n_ids > max ? v->entries[i].n_ids : max;
    return max;
}

void bt_verify_file(const bt_verify *v, const char **path, const void **data, size_t *size)
{
    const bt_shard *s = bt_tensors_shard(v->file, 0);
    *path = s->path;
    *data = s->map.data;
    *size = s->map.size;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

typedef struct comparing {
    const bt_verify *verify;
    const entry *entry;
    bt_verify_row *row;
    double difference_sum, kl_sum;
} comparing;

static size_t top_of(const float *x, size_t n)
{
    size_t top = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[top]) top = i;
    return top;
}

static double log_sum_exp(const float *x, size_t n, double maximum)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - maximum);
    return maximum + log(sum);
}

static double divergence(const float *p, const float *q, size_t n, size_t p_top, size_t q_top)
{
    double p_norm = log_sum_exp(p, n, (double)p[p_top]), q_norm = log_sum_exp(q, n, (double)q[q_top]), sum = 0;
    for (size_t i = 0; i < n; i++) {
        double log_p = (double)p[i] - p_norm;
        sum += exp(log_p) * (log_p - ((double)q[i] - q_norm));
    }
    return fmax(sum, 0); /* rounding alone makes it negative */
}

static bool compare_row(void *user, size_t row_i, const float *logits)
{
    comparing *c = user;
    const bt_verify *v = c->verify;
    size_t first = c->entry->n_ids - c->entry->n_rows, n = v->n_vocab;
    if (row_i < first) return true;
    memcpy(v->expected, c->entry->logits + (row_i - first) * n * sizeof(float), n * sizeof(float));
    const float *expected = v->expected;
    size_t n_odd = 0;
    for (size_t i = 0; i < n; i++) {
        n_odd += !isfinite(expected[i]) || !isfinite(logits[i]);
        double d = fabs((double)expected[i] - (double)logits[i]);
        c->difference_sum += d;
        if (d > c->row->difference_max) c->row->difference_max = d;
    }
    c->row->n_not_finite += n_odd;
    size_t top = top_of(expected, n), got = top_of(logits, n);
    if (n_odd == 0) {
        c->row->n_same_top += top == got;
        c->kl_sum += divergence(expected, logits, n, top, got);
    }
    return true;
}

bt_status bt_verify_run(bt_verify *v, size_t entry_i, bt_session *s, size_t chunk, const bt_hook *hook,
                        bt_verify_row *out, bt_error *e)
{
    assert(entry_i < v->n_entries);
    const entry *x = &v->entries[entry_i];
    bt_verify_row row = {.label = x->label, .n_ids = x->n_ids, .n_rows = x->n_rows};
    comparing c = {.verify = v, .entry = x, .row = &row};
    bt_status st = bt_session_rewind(s, 0, hook, e);
    if (st == BT_OK) st = bt_score_in_chunks(s, x->ids, x->n_ids, chunk, compare_row, &c, hook, e);
    if (st != BT_OK) return st;
    row.difference_mean = c.difference_sum / ((double)x->n_rows * (double)v->n_vocab);
    row.kl_mean = c.kl_sum / (double)x->n_rows;
    if (row.n_not_finite > 0) row.difference_max = row.difference_mean = row.kl_mean = (double)NAN; /* there is none */
    *out = row;
    return BT_OK;
}

void bt_verify_add(bt_verify_row *sum, const bt_verify_row *row)
{
    double before = (double)sum->n_rows, rows = (double)row->n_rows, all = before + rows;
    sum->difference_mean = (sum->difference_mean * before + row->difference_mean * rows) / all;
    sum->kl_mean = (sum->kl_mean * before + row->kl_mean * rows) / all;
    /* fmax would lose a NaN. */
    if (isnan(row->difference_max) || row->difference_max > sum->difference_max)
        sum->difference_max = row->difference_max;
    sum->n_ids += row->n_ids;
    sum->n_rows += row->n_rows;
    sum->n_same_top += row->n_same_top;
    sum->n_not_finite += row->n_not_finite;
}

bool bt_verify_passes(const bt_verify_row *row, double tolerance)
{
    return row->n_not_finite == 0 && row->difference_max <= tolerance && row->n_same_top == row->n_rows;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void print_row(bt_text *t, const char *name, const bt_verify_row *r)
{
    char same[48];
    (void)snprintf(same, sizeof same, "%zu/%zu", r->n_same_top, r->n_rows);
    bt_text_printf(t, "%-12s %7zu %7zu   %12.3e   %12.3e   %11s   %10.2e\n", name, r->n_ids, r->n_rows,
                   r->difference_max, r->difference_mean, same, r->kl_mean);
}

void bt_verify_print(bt_text *t, const bt_verify_row *rows, size_t n, const bt_verify_row *sum, double tolerance)
{
    bt_text_printf(t, "%-12s %7s %7s   %12s   %12s   %11s   %10s\n", "entry", "ids", "rows", "max diff", "mean diff",
                   "same top", "KL");
    for (size_t i = 0; i < n; i++) print_row(t, rows[i].label, &rows[i]);
    print_row(t, "all", sum);
    if (bt_verify_passes(sum, tolerance)) {
        bt_text_printf(t, "passed: every difference is at most %g, every top token the same\n", tolerance);
        return;
    }
    bt_text_printf(t, "failed: largest difference %.3e (tolerance %g), %zu other top tokens, %zu values not finite\n",
                   sum->difference_max, tolerance, sum->n_rows - sum->n_same_top, sum->n_not_finite);
}

static void print_row_json(bt_text *t, const bt_verify_row *r, double tolerance)
{
    bt_text_printf(t, "{\"label\": ");
    bt_text_json_string(t, r->label, strlen(r->label));
    bt_text_printf(t, ", \"ids\": %zu, \"rows\": %zu, \"max_difference\": ", r->n_ids, r->n_rows);
    bt_text_json_f64(t, r->difference_max);
    bt_text_puts(t, ", \"mean_difference\": ");
    bt_text_json_f64(t, r->difference_mean);
    bt_text_puts(t, ", \"kl\": ");
    bt_text_json_f64(t, r->kl_mean);
    bt_text_printf(t, ", \"same_top\": %zu, \"not_finite\": %zu, \"passed\": %s}", r->n_same_top, r->n_not_finite,
                   bt_verify_passes(r, tolerance) ? "true" : "false");
}

void bt_verify_print_json(bt_text *t, const bt_verify_row *rows, size_t n, const bt_verify_row *sum, double tolerance)
{
    bt_text_puts(t, "{\"entries\": [");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) bt_text_puts(t, ", ");
        print_row_json(t, &rows[i], tolerance);
    }
    bt_text_puts(t, "], \"all\": ");
    print_row_json(t, sum, tolerance);
    bt_text_puts(t, ", \"tolerance\": ");
    bt_text_json_f64(t, tolerance);
    bt_text_printf(t, ", \"passed\": %s}\n", bt_verify_passes(sum, tolerance) ? "true" : "false");
}
