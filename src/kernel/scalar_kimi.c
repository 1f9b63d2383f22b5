/*
 * Scalar kernels of what only Kimi's models use (docs/kimi_k3.md): the definitions, as in scalar.c. Sums are kept in
 * f64 and rounded once; the recurrent state is f32, so each of its updates is rounded, here as in every faster kernel.
 */
#include "kernel/math64.h"
#include "kernel/scalar.h"

#include <assert.h>
#include <math.h>

static void situ_mul(float *y, const float *g, const float *u, size_t n, float beta, float linear_beta)
{
    assert(beta > 0 && linear_beta >= 0);
    double b = (double)beta, c = (double)linear_beta;
    for (size_t i = 0; i < n; i++) {
        double gate = (double)g[i], up = (double)u[i];
        gate =
            b * tanh64(gate / b) * sigmoid64(gate); /* the sigmoid of the capped gate would be a different function */
        y[i] = (float)(gate * (c > 0 ? c * tanh64(up / c) : up));
    }
}

/* ---- product with the transpose ---- */

#define PIECE      256u /* columns at a time */
#define TOKENS_MAX (BT_KERNEL_SCRATCH_BYTES / (PIECE * sizeof(double)))

/* Columns [c, c + n) for the tokens [t0, t1). A row of weights is widened once for all of them. */
static void linear_t_piece(const bt_linear *a, size_t c, size_t n, size_t column, size_t t0, size_t t1)
{
    double(*sum)[PIECE] = a->scratch;
    float w[PIECE];
    const char *p = a->w->data;
    size_t bytes = a->w->dtype == BT_F32 ? 4 : 2;
    memset(sum, 0, (t1 - t0) * sizeof *sum);
    for (size_t i = 0; i < a->w->n_rows; i++) {
        bt_scalar_widen(w, p + (i * a->w->n_cols + c) * bytes, n, (bt_dtype)a->w->dtype);
        for (size_t t = t0; t < t1; t++) {
            double x = (double)a->x[row_of(a->x_rows, t) * a->x_stride + i];
            for (size_t j = 0; j < n; j++) sum[t - t0][j] += x * (double)w[j];
        }
    }
    for (size_t t = t0; t < t1; t++) {
        float *y = a->y + row_of(a->y_rows, t) * a->y_stride + column;
        for (size_t j = 0; j < n; j++) y[j] = a->add ? y[j] + (float)sum[t - t0][j] : (float)sum[t - t0][j];
    }
}

static void linear_t(const bt_linear *a, size_t c0, size_t c1)
{
    assert(a->w && a->w->layout == BT_LAYOUT_ROWS && a->w->dtype <= BT_BF16 && !a->w->scale);
    assert(c0 <= c1 && c1 <= a->w->n_cols);
    for (size_t t0 = 0; t0 < a->n_x; t0 += TOKENS_MAX) {
        size_t t1 = a->n_x - t0 < TOKENS_MAX ? a->n_x : t0 + TOKENS_MAX;
        for (size_t c = c0; c < c1; c += PIECE) linear_t_piece(a, c, c1 - c < PIECE ? c1 - c : PIECE, c - c0, t0, t1);
    }
}

/* ---- the parts of KDA ---- */

/* Row t of what is convolved: the tail's rows come before the first token's. */
static const float *conv_input(const bt_conv *a, size_t t)
{
    size_t n_tail = a->n_taps - 1;
    return t < n_tail ? a->tail + t * a->tail_stride : a->x + (t - n_tail) * a->x_stride;
}

static void conv_silu(const bt_conv *a)
{
    assert(a->n_taps > 0 && a->n_taps <= BT_CONV_TAPS_MAX);
    for (size_t t = 0; t < a->n_rows; t++)
        for (size_t i = 0; i < a->n; i++) {
            double sum = 0;
            for (size_t j = 0; j < a->n_taps; j++)
                sum += (double)a->taps[j * a->taps_stride + i] * (double)conv_input(a, t + j)[i];
            a->y[t * a->y_stride + i] = (float)silu64(sum);
        }
    for (size_t j = 0; j + 1 < a->n_taps; j++) /* a row is read before it is written: j <= j + n_rows */
        if (a->n_rows > 0) memcpy(a->tail + j * a->tail_stride, conv_input(a, j + a->n_rows), a->n * sizeof *a->x);
}

static void l2_norm(float *y, const float *x, size_t n, float scale, float eps)
{
    double r = (double)scale / sqrt(dot(x, x, n) + (double)eps);
    for (size_t i = 0; i < n; i++) y[i] = (float)((double)x[i] * r);
}

static void kda_decay(float *y, const float *z, const float *bias, size_t n, float rate, float lower)
{
    assert(lower <= 0);
    for (size_t i = 0; i < n; i++) {
        double x = (double)z[i] + (double)bias[i];
        double g = lower < 0 ? (double)lower * sigmoid64((double)rate * x) : -(double)rate * softplus64(x);
        y[i] = (float)exp64(g);
    }
}

/* One value row of the state for one token; returns its output. */
static float kda_row(float *s, const float *q, const float *k, const float *decay, float v, float beta, size_t n)
{
    for (size_t i = 0; i < n; i++) s[i] *= decay[i];
    double d = (double)beta * ((double)v - dot(s, k, n)); /* against the state after its decay */
    for (size_t i = 0; i < n; i++) s[i] = (float)((double)s[i] + d * (double)k[i]);
    return (float)dot(s, q, n); /* after the write */
}

static void kda(const bt_kda *a)
{
    for (size_t t = 0; t < a->n_rows; t++) {
        size_t at = t * a->qk_stride;
        for (size_t i = 0; i < a->n_values; i++)
            a->o[t * a->o_stride + i] = kda_row(a->state + i * a->key_dim, a->q + at, a->k + at, a->decay + at,
                                                a->v[t * a->v_stride + i], a->beta[t * a->beta_stride], a->key_dim);
    }
}

/* ---- attention over depth ---- */

static void res_mix(float *y, const float *sources, size_t stride, size_t n_sources, const float *u, size_t n,
                    float eps)
{
    assert(n_sources > 0 && n_sources <= BT_RES_SOURCES_MAX);
    assert(n > 0);
    double p[BT_RES_SOURCES_MAX];
    for (size_t i = 0; i < n_sources; i++) {
        const float *v = sources + i * stride;
        p[i] = dot(v, u, n) / sqrt(dot(v, v, n) / (double)n + (double)eps);
    }
    softmax64(p, n_sources);
    for (size_t j = 0; j < n; j++) {
        double sum = 0;
        for (size_t i = 0; i < n_sources; i++) sum += p[i] * (double)sources[i * stride + j];
        y[j] = (float)sum;
    }
}

void bt_kernels_add_scalar_kimi(bt_kernels *k)
{
    k->situ_mul = situ_mul;
    for (size_t t = BT_F32; t <= BT_BF16; t++) k->linear_t[t] = linear_t;
    k->conv_silu = conv_silu;
    k->l2_norm = l2_norm;
    k->kda_decay = kda_decay;
    k->kda = kda;
    k->res_mix = res_mix;
}
