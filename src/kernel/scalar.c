/*
 * The scalar kernels: the definition of every entry, and the reference for every faster one. Written for the baseline
 * instruction set and to be read. Sums are kept in f64 and rounded once; a product of two f32 is exact there, so a dot
 * product is off by a few f32 ulp of its result and the tests may call its error zero.
 *
 * A dot product runs in LANES fixed lanes (scalar.h). What only Kimi's models use is in scalar_kimi.c.
 */
#include "kernel/scalar.h"
#include "kernel/math64.h"
#include "kernel/route.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- activations ---- */

static float exp32(float x)
{
    return (float)exp64((double)x);
}

/* Values at the ends are the limits: 0 and +inf, silu(-inf) = -0. */
static float act_of(float x32, bt_act_kind kind)
{
    double x = (double)x32;
    switch (kind) {
    case BT_ACT_SIGMOID:
        return (float)sigmoid64(x);
    case BT_ACT_SILU:
        return (float)silu64(x);
    case BT_ACT_SOFTPLUS2: {
        const double ln2 = 0.69314718055994530942;
        double t = exp64((x < 0 ? x : -x) * ln2);
        return (float)((x < 0 ? 0 : x) + log1p_unit(t) / ln2);
    }
    }
    assert(kind <= BT_ACT_SOFTPLUS2);
    return x32;
}

/* ---- widen and narrow ---- */

static uint16_t load16(const void *p, size_t i)
{
    uint16_t v;
    memcpy(&v, (const char *)p + i * sizeof v, sizeof v);
    return v;
}

static void widen_f32(float *y, const void *x, size_t n)
{
    if (n > 0) memmove(y, x, n * sizeof *y);
}

static void widen_f16(float *y, const void *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = bt_f16_to_f32(load16(x, i));
}

static void widen_bf16(float *y, const void *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = bt_bf16_to_f32(load16(x, i));
}

static void widen_f8(float *y, const void *x, size_t n)
{
    const uint8_t *c = x;
    for (size_t i = 0; i < n; i++) y[i] = bt_f8_e4m3_to_f32(c[i]);
}

static void narrow_f32(void *y, const float *x, size_t n)
{
    if (n > 0) memmove(y, x, n * sizeof *x);
}

static void narrow_f16(void *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h = bt_f32_to_f16(x[i]);
        memcpy((char *)y + i * sizeof h, &h, sizeof h);
    }
}

static void narrow_bf16(void *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h = bt_f32_to_bf16(x[i]);
        memcpy((char *)y + i * sizeof h, &h, sizeof h);
    }
}

void bt_scalar_widen(float *y, const void *x, size_t n, bt_dtype t)
{
    switch (t) {
    case BT_F32:
        widen_f32(y, x, n);
        return;
    case BT_F16:
        widen_f16(y, x, n);
        return;
    case BT_BF16:
        widen_bf16(y, x, n);
        return;
    case BT_F8_E4M3:
        widen_f8(y, x, n);
        return;
    default:
        assert(t < BT_MXFP4);
        return;
    }
}

/* ---- linear ---- */

#define K_BLOCK    1024u /* columns widened at a time: multiple of LANES and of BT_SCALE_BLOCK */
#define TOKENS_MAX 1024u

_Static_assert(K_BLOCK % LANES == 0 && K_BLOCK % BT_SCALE_BLOCK == 0, "blocks begin at lane 0 and at a scale");
_Static_assert(TOKENS_MAX *LANES * sizeof(double) <= BT_KERNEL_SCRATCH_BYTES, "accumulators fit");

static float scale_of(const bt_view *w, size_t row, size_t col)
{
    size_t per_row = (w->n_cols + BT_SCALE_BLOCK - 1) / BT_SCALE_BLOCK;
    size_t i = row / BT_SCALE_BLOCK * per_row + col / BT_SCALE_BLOCK;
    float s;
    if (w->scale_dtype == BT_F32)
        memcpy(&s, (const char *)w->scale + i * sizeof s, sizeof s);
    else
        s = w->scale_dtype == BT_F16 ? bt_f16_to_f32(load16(w->scale, i)) : bt_bf16_to_f32(load16(w->scale, i));
    return s;
}

/* k0 and n are whole blocks. */
static void widen_mxfp4(float *y, const bt_view *w, size_t row, size_t k0, size_t n)
{
    const uint8_t *codes = (const uint8_t *)w->data + (row * w->n_cols + k0) / 2;
    const uint8_t *scales = (const uint8_t *)w->scale + (row * w->n_cols + k0) / BT_MXFP4_BLOCK;
    for (size_t i = 0; i < n; i += 2) {
        float s = bt_e8m0_to_f32(scales[i / BT_MXFP4_BLOCK]);
        y[i] = bt_e2m1_to_f32(codes[i / 2]) * s;
        y[i + 1] = bt_e2m1_to_f32(codes[i / 2] >> 4) * s;
    }
}

/* y[n] = w[row][k0, k0 + n): code times scale, one rounding. */
static void widen_row(float *y, const bt_view *w, size_t row, size_t k0, size_t n)
{
    static const uint8_t bytes[BT_MXFP4] = {4, 2, 2, 1};
    if (w->dtype == BT_MXFP4) {
        widen_mxfp4(y, w, row, k0, n);
        return;
    }
    const char *p = w->data;
    bt_scalar_widen(y, p + (row * w->n_cols + k0) * bytes[w->dtype], n, (bt_dtype)w->dtype);
    if (!w->scale) return;
    for (size_t b = 0; b < n; b += BT_SCALE_BLOCK) {
        float s = scale_of(w, row, k0 + b);
        for (size_t i = b; i < n && i < b + BT_SCALE_BLOCK; i++) y[i] *= s;
    }
}

/* One row of weights against tokens [t0, t1). */
static void linear_row(const bt_linear *a, size_t row, size_t column, size_t t0, size_t t1)
{
    double(*acc)[LANES] = a->scratch;
    float w[K_BLOCK];
    memset(acc, 0, (t1 - t0) * sizeof *acc);
    for (size_t k0 = 0; k0 < a->w->n_cols; k0 += K_BLOCK) {
        size_t n = a->w->n_cols - k0 < K_BLOCK ? a->w->n_cols - k0 : K_BLOCK;
        widen_row(w, a->w, row, k0, n);
        for (size_t t = t0; t < t1; t++) accumulate(acc[t - t0], w, a->x + row_of(a->x_rows, t) * a->x_stride + k0, n);
    }
    for (size_t t = t0; t < t1; t++) {
        float *y = a->y + row_of(a->y_rows, t) * a->y_stride + column;
        float sum = (float)fold(acc[t - t0]);
        *y = a->add ? *y + sum : sum;
    }
}

static void linear(const bt_linear *a, size_t r0, size_t r1)
{
    assert(a->n_runs < 2);
    assert(a->w && a->w->layout == BT_LAYOUT_ROWS && a->w->dtype < BT_N_WEIGHT_DTYPES);
    assert(r0 <= r1 && r1 <= a->w->n_rows);
    assert(!a->w->scale || a->w->dtype == BT_F8_E4M3 || a->w->dtype == BT_MXFP4);
    assert(a->w->dtype != BT_MXFP4 || (a->w->scale && a->w->n_cols % BT_MXFP4_BLOCK == 0));
    for (size_t t0 = 0; t0 < a->n_x; t0 += TOKENS_MAX) {
        size_t t1 = a->n_x - t0 < TOKENS_MAX ? a->n_x : t0 + TOKENS_MAX;
        for (size_t r = r0; r < r1; r++) linear_row(a, r, r - r0, t0, t1);
    }
}

/* ---- norm, rope, elementwise ---- */

static void rms_norm(float *y, const float *x, const float *w, size_t n, size_t n_groups, float eps)
{
    assert(n_groups > 0 && n % n_groups == 0);
    size_t m = n / n_groups;
    for (size_t g = 0; g < n; g += m) {
        double r = 1 / sqrt(dot(x + g, x + g, m) / (double)m + (double)eps);
        for (size_t i = g; i < g + m; i++) y[i] = (float)((double)x[i] * r * (double)w[i]);
    }
}

static void rope(float *x, const float *angles, size_t n_pairs, size_t half)
{
    assert(n_pairs <= half);
    for (size_t j = 0; j < n_pairs; j++) {
        double a = (double)x[j], b = (double)x[j + half];
        double c = (double)angles[j], s = (double)angles[n_pairs + j];
        x[j] = (float)(a * c - b * s);
        x[j + half] = (float)(b * c + a * s);
    }
}

static void add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void scale_add(float *y, const float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = (float)((double)y[i] + (double)a * (double)x[i]);
}

static void act(float *y, const float *x, size_t n, bt_act_kind kind)
{
    for (size_t i = 0; i < n; i++) y[i] = act_of(x[i], kind);
}

static void gate_mul(float *y, const float *g, size_t n, bt_act_kind kind)
{
    for (size_t i = 0; i < n; i++) y[i] *= act_of(g[i], kind);
}

static void act_mul(float *y, const float *g, const float *u, size_t n, bt_act_kind kind)
{
    for (size_t i = 0; i < n; i++) y[i] = act_of(g[i], kind) * u[i];
}

/* ---- route ---- */

static void softmax(float *y, const float *x, size_t n)
{
    float max = -INFINITY;
    double sum = 0;
    for (size_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++) sum += exp64((double)x[i] - (double)max);
    for (size_t i = 0; i < n; i++) y[i] = (float)(exp64((double)x[i] - (double)max) / sum);
}

static void route(const bt_route *r)
{
    if (r->score == BT_SCORE_SIGMOID)
        act(r->scratch, r->logits, r->n, BT_ACT_SIGMOID);
    else
        softmax(r->scratch, r->logits, r->n);
    bt_route_choose(r);
}

/* ---- attention ---- */

/* One query against its keys. A NaN score leaves the maximum alone and reaches l and acc through exp. */
static void attn_query(const bt_attn *a, size_t i)
{
    double *sum = a->scratch;                      /* [v_dim] */
    float *kv = (float *)(void *)(sum + a->v_dim); /* [head_dim], widened */
    double s[BT_ATTN_TILE];
    double max = (double)-INFINITY, l = 0;
    const char *k = a->k, *v = a->v;
    size_t n = a->n_keys[i], bytes = a->kv_dtype == BT_F32 ? 4 : 2;
    for (size_t j = 0; j < n; j++) {
        bt_scalar_widen(kv, k + j * a->k_stride * bytes, a->head_dim, a->kv_dtype);
        s[j] = (double)a->scale * dot(a->q[i], kv, a->head_dim);
        max = s[j] > max ? s[j] : max;
    }
    a->m[i] = (float)max; /* what the merge will use, so p is relative to the rounded value */
    memset(sum, 0, a->v_dim * sizeof *sum);
    for (size_t j = 0; j < n; j++) {
        double p = exp64(s[j] - (double)a->m[i]);
        l += p;
        bt_scalar_widen(kv, v + j * a->v_stride * bytes, a->v_dim, a->kv_dtype);
        for (size_t d = 0; d < a->v_dim; d++) sum[d] += p * (double)kv[d];
    }
    a->l[i] = (float)l;
    for (size_t d = 0; d < a->v_dim; d++) a->acc[i * a->v_dim + d] = (float)sum[d];
}

static void attn_tile(const bt_attn *a)
{
    assert(a->n_q <= BT_ATTN_QUERIES_MAX);
    assert(a->kv_dtype == BT_F32 || a->kv_dtype == BT_BF16 || a->kv_dtype == BT_F16);
    assert(a->v_dim <= a->head_dim && a->head_dim <= BT_KERNEL_SCRATCH_BYTES / (2 * sizeof(double)));
    for (size_t i = 0; i < a->n_q; i++) {
        assert(a->n_keys[i] <= BT_ATTN_TILE);
        attn_query(a, i);
    }
}

static void attn_merge(float *m, float *l, float *acc, float m2, float l2, const float *acc2, size_t v_dim)
{
    if (l2 == 0) return;
    if (*l == 0) {
        *m = m2;
        *l = l2;
        memcpy(acc, acc2, v_dim * sizeof *acc);
        return;
    }
    float max = m2 > *m ? m2 : *m;
    float a = exp32(*m - max), b = exp32(m2 - max);
    *m = max;
    *l = (float)((double)a * (double)*l + (double)b * (double)l2);
    for (size_t d = 0; d < v_dim; d++) acc[d] = (float)((double)a * (double)acc[d] + (double)b * (double)acc2[d]);
}

static void attn_finish(float *y, const float *acc, float l, size_t v_dim)
{
    for (size_t d = 0; d < v_dim; d++) y[d] = acc[d] / l;
}

void bt_kernels_add_scalar(bt_kernels *k)
{
    k->level = BT_CPU_SCALAR;
    for (size_t t = 0; t < BT_N_WEIGHT_DTYPES; t++) {
        k->linear[t] = linear;
        k->n_streams[t] = 1;
    }
    k->widen[BT_F32] = widen_f32;
    k->widen[BT_F16] = widen_f16;
    k->widen[BT_BF16] = widen_bf16;
    k->widen[BT_F8_E4M3] = widen_f8;
    k->narrow[BT_F32] = narrow_f32;
    k->narrow[BT_F16] = narrow_f16;
    k->narrow[BT_BF16] = narrow_bf16;
    k->rms_norm = rms_norm;
    k->rope = rope;
    k->add = add;
    k->scale_add = scale_add;
    k->act = act;
    k->gate_mul = gate_mul;
    k->act_mul = act_mul;
    k->route = route;
    k->attn_tile = attn_tile;
    k->attn_merge = attn_merge;
    k->attn_finish = attn_finish;
    bt_kernels_add_scalar_kimi(k);
}
