/*
 * Faults to plant in a kernel table, to see the checks turn red: what a plausible wrong kernel does. Each wrapper takes
 * the place of one entry.
 */
#include "check.h"

#include <string.h>

static bt_kernels whole; /* the table before the fault */

static float dot_in_chains(const bt_linear *a, size_t row, size_t n_chains)
{
    float chain[2] = {0, 0};
    const float *x = a->x + (a->x_rows ? a->x_rows[0] : 0) * a->x_stride;
    for (size_t k = 0; k < a->w->n_cols; k++)
        chain[k % n_chains] += (float)decode(a->w->data, row * a->w->n_cols + k, (bt_dtype)a->w->dtype) * x[k];
    return chain[0] + chain[1];
}

/* One token is summed in two chains, several in the order of the level: the numbers are as good, the bits are not. */
static void linear_two_orders(const bt_linear *a, size_t r0, size_t r1)
{
    if (a->n_x != 1 || a->w->scale || a->add) {
        whole.linear[a->w->dtype](a, r0, r1);
        return;
    }
    float *y = a->y + (a->y_rows ? a->y_rows[0] : 0) * a->y_stride;
    for (size_t r = r0; r < r1; r++) y[r - r0] = dot_in_chains(a, r, 2);
}

static void linear_last_row_lost(const bt_linear *a, size_t r0, size_t r1)
{
    whole.linear[a->w->dtype](a, r0, r1 > r0 ? r1 - 1 : r1);
}

static void linear_runs_lost(const bt_linear *a, size_t r0, size_t r1)
{
    bt_linear b = *a;
    b.n_runs = 0; /* every run but the first */
    whole.linear[a->w->dtype](&b, r0, r1);
}

static void linear_last_column_lost(const bt_linear *a, size_t r0, size_t r1)
{
    float *y = a->y + (a->y_rows ? a->y_rows[0] : 0) * a->y_stride;
    whole.linear[a->w->dtype](a, r0, r1);
    if (a->n_x == 0 || r0 == r1 || a->w->n_cols == 0) return;
    size_t k = a->w->n_cols - 1;
    const float *x = a->x + (a->x_rows ? a->x_rows[0] : 0) * a->x_stride;
    y[0] -= (float)decode(a->w->data, r0 * a->w->n_cols + k, (bt_dtype)a->w->dtype) * x[k];
}

static void linear_reads_past(const bt_linear *a, size_t r0, size_t r1)
{
    const volatile char *p = a->w->data;
    (void)p[(size_t)a->w->n_rows * a->w->n_cols * dtype_size((bt_dtype)a->w->dtype)];
    whole.linear[a->w->dtype](a, r0, r1);
}

static void add_writes_past(float *y, const float *x, size_t n)
{
    whole.add(y, x, n);
    y[n] = 0;
}

static void act_loose(float *y, const float *x, size_t n, bt_act_kind kind)
{
    whole.act(y, x, n, kind);
    for (size_t i = 0; i < n; i++) y[i] *= 1.000002f;
}

static void act_hides_nan(float *y, const float *x, size_t n, bt_act_kind kind)
{
    whole.act(y, x, n, kind);
    for (size_t i = 0; i < n; i++)
        if (y[i] != y[i]) y[i] = 0;
}

static void route_by_biased_weight(const bt_route *r)
{
    whole.route(r);
    for (size_t i = 0; i < r->k; i++)
        if (r->bias) r->weights[i] += r->bias[r->ids[i]] * 0.01f;
}

/* Every query as if it saw as many keys as the first. */
static void attn_shares_keys(const bt_attn *a)
{
    uint32_t n_keys[BT_ATTN_QUERIES_MAX];
    bt_attn b = *a;
    for (size_t i = 0; i < a->n_q; i++) n_keys[i] = a->n_keys[0];
    b.n_keys = n_keys;
    whole.attn_tile(&b);
}

static void plant_linear(bt_kernels *k, void (*fn)(const bt_linear *, size_t, size_t))
{
    for (size_t d = 0; d < BT_N_WEIGHT_DTYPES; d++) k->linear[d] = fn;
}

static const char *const names[] = {"two-orders",  "last-row-lost", "runs-lost",  "last-column-lost", "reads-past",
                                    "writes-past", "loose-act",     "hidden-nan", "biased-weight",    "shared-keys"};

const char *plant_name(size_t i)
{
    const size_t n = sizeof names / sizeof *names;
    return i < n ? names[i] : plant_kimi_name(i - n);
}

bool plant_fits(const bt_kernels *k, const char *name)
{
    return strcmp(name, "runs-lost") != 0 || k->n_streams[BT_BF16] > 1;
}

bool plant_into(bt_kernels *k, const char *name)
{
    whole = *k;
    if (strcmp(name, "two-orders") == 0)
        plant_linear(k, linear_two_orders);
    else if (strcmp(name, "last-row-lost") == 0)
        plant_linear(k, linear_last_row_lost);
    else if (strcmp(name, "runs-lost") == 0)
        plant_linear(k, linear_runs_lost);
    else if (strcmp(name, "last-column-lost") == 0)
        plant_linear(k, linear_last_column_lost);
    else if (strcmp(name, "reads-past") == 0)
        plant_linear(k, linear_reads_past);
    else if (strcmp(name, "writes-past") == 0)
        k->add = add_writes_past;
    else if (strcmp(name, "loose-act") == 0)
        k->act = act_loose;
    else if (strcmp(name, "hidden-nan") == 0)
        k->act = act_hides_nan;
    else if (strcmp(name, "biased-weight") == 0)
        k->route = route_by_biased_weight;
    else if (strcmp(name, "shared-keys") == 0)
        k->attn_tile = attn_shares_keys;
    else
        return plant_kimi_into(k, name);
    return true;
}
