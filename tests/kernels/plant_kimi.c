/*
 * Faults to plant in what only Kimi's models use: each is a plausible wrong reading of the specification, or a second
 * order of summation.
 */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bt_kernels whole; /* the table before the fault */

static void *copy(const void *p, size_t n_bytes)
{
    void *q = malloc(n_bytes + 1);
    if (!q) abort();
    if (n_bytes > 0) memcpy(q, p, n_bytes);
    return q;
}

/* ---- MXFP4 ---- */

static void linear_nibbles_swapped(const bt_linear *a, size_t r0, size_t r1)
{
    const size_t n = (size_t)a->w->n_rows * a->w->n_cols / 2;
    uint8_t *codes = copy(a->w->data, n);
    bt_view w = *a->w;
    bt_linear b = *a;
    for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)(codes[i] << 4 | codes[i] >> 4);
    w.data = codes;
    b.w = &w;
    whole.linear[BT_MXFP4](&b, r0, r1);
    free(codes);
}

/* Each block takes the scale of its neighbour. */
static void linear_scales_shifted(const bt_linear *a, size_t r0, size_t r1)
{
    const size_t n = (size_t)a->w->n_rows * a->w->n_cols / BT_MXFP4_BLOCK;
    uint8_t *scales = copy(a->w->scale, n);
    bt_view w = *a->w;
    bt_linear b = *a;
    if (n > 1) memmove(scales, scales + 1, n - 1);
    w.scale = scales;
    b.w = &w;
    whole.linear[BT_MXFP4](&b, r0, r1);
    free(scales);
}

static void plant_nibbles(bt_kernels *k)
{
    k->linear[BT_MXFP4] = linear_nibbles_swapped;
}

static void plant_scales(bt_kernels *k)
{
    k->linear[BT_MXFP4] = linear_scales_shifted;
}

/* ---- elementwise ---- */

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static void situ_capped_sigmoid(float *y, const float *g, const float *u, size_t n, float beta, float linear_beta)
{
    for (size_t i = 0; i < n; i++) {
        double gate = (double)beta * tanh((double)(g[i] / beta)), up = (double)u[i], c = (double)linear_beta;
        y[i] = (float)(gate * logistic(gate) * (c > 0 ? c * tanh(up / c) : up));
    }
}

static void plant_situ(bt_kernels *k)
{
    k->situ_mul = situ_capped_sigmoid;
}

/* The lower bound as a clamp of the other form. */
static void decay_clamped(float *y, const float *z, const float *bias, size_t n, float rate, float lower)
{
    whole.kda_decay(y, z, bias, n, rate, 0);
    for (size_t i = 0; i < n && lower < 0; i++) y[i] = fmaxf(y[i], expf(lower));
}

static void plant_decay(bt_kernels *k)
{
    k->kda_decay = decay_clamped;
}

static void l2_eps_of_mean(float *y, const float *x, size_t n, float scale, float eps)
{
    whole.l2_norm(y, x, n, scale, eps * (float)n);
}

static void plant_l2(bt_kernels *k)
{
    k->l2_norm = l2_eps_of_mean;
}

/* ---- convolution ---- */

static void conv_reversed(const bt_conv *a)
{
    float *taps = calloc(a->n_taps * a->n + 1, sizeof *taps);
    if (!taps) abort();
    for (size_t j = 0; j < a->n_taps; j++)
        memcpy(taps + j * a->n, a->taps + (a->n_taps - 1 - j) * a->taps_stride, a->n * sizeof *taps);
    bt_conv b = *a;
    b.taps = taps;
    b.taps_stride = a->n;
    whole.conv_silu(&b);
    free(taps);
}

static void plant_conv(bt_kernels *k)
{
    k->conv_silu = conv_reversed;
}

/* Only the last row of the tail is new, none moves up. */
static void conv_unshifted(const bt_conv *a)
{
    size_t n_tail = a->n_taps - 1, n = n_tail > 0 ? (n_tail - 1) * a->tail_stride + a->n : 0;
    float *tail = copy(a->tail, n * sizeof *tail);
    whole.conv_silu(a);
    for (size_t j = 0; j + 1 < n_tail && a->n_rows > 0; j++)
        memcpy(a->tail + j * a->tail_stride, tail + j * a->tail_stride, a->n * sizeof *tail);
    free(tail);
}

static void plant_tail(bt_kernels *k)
{
    k->conv_silu = conv_unshifted;
}

/* ---- the delta rule ---- */

typedef enum kda_fault { READ_BEFORE_WRITE, DELTA_BEFORE_DECAY, ORDER_ONLY } kda_fault;

static void kda_wrong(const bt_kda *a, kda_fault fault)
{
    for (size_t t = 0; t < a->n_rows; t++)
        for (size_t r = 0; r < a->n_values; r++) {
            const float *q = a->q + t * a->qk_stride, *k = a->k + t * a->qk_stride, *g = a->decay + t * a->qk_stride;
            float *s = a->state + r * a->key_dim;
            double old = 0, d = 0, o = 0;
            for (size_t i = 0; i < a->key_dim; i++) {
                float before = s[i];
                s[i] *= g[i];
                d += (double)(fault == DELTA_BEFORE_DECAY ? before : s[i]) * (double)k[i];
                old += (double)s[i] * (double)q[i];
            }
            d = (double)a->beta[t * a->beta_stride] * ((double)a->v[t * a->v_stride + r] - d);
            for (size_t i = 0; i < a->key_dim; i++) {
                s[i] += (float)(d * (double)k[i]);
                o += (double)s[i] * (double)q[i];
            }
            a->o[t * a->o_stride + r] = (float)(fault == READ_BEFORE_WRITE ? old : o);
        }
}

static void kda_early_read(const bt_kda *a)
{
    kda_wrong(a, READ_BEFORE_WRITE);
}

static void kda_early_delta(const bt_kda *a)
{
    kda_wrong(a, DELTA_BEFORE_DECAY);
}

/* One token is summed in an order of no level: the numbers are as good, the bits are not. */
static void kda_two_orders(const bt_kda *a)
{
    if (a->n_rows == 1)
        kda_wrong(a, ORDER_ONLY);
    else
        whole.kda(a);
}

static void plant_kda_read(bt_kernels *k)
{
    k->kda = kda_early_read;
}

static void plant_kda_delta(bt_kernels *k)
{
    k->kda = kda_early_delta;
}

static void plant_kda_orders(bt_kernels *k)
{
    k->kda = kda_two_orders;
}

/* ---- the rest ---- */

/* The sum is of the normalised vectors. */
static void mix_normalised(float *y, const float *sources, size_t stride, size_t n_sources, const float *u, size_t n,
                           float eps)
{
    float *v = calloc(n_sources * n, sizeof *v), *one = calloc(n, sizeof *one);
    if (!v || !one) abort();
    for (size_t i = 0; i < n; i++) one[i] = 1;
    for (size_t i = 0; i < n_sources; i++) whole.rms_norm(v + i * n, sources + i * stride, one, n, 1, eps);
    whole.res_mix(y, v, n, n_sources, u, n, eps);
    free(v);
    free(one);
}

static void plant_mix(bt_kernels *k)
{
    k->res_mix = mix_normalised;
}

static void route_without_groups(const bt_route *r)
{
    bt_route s = *r;
    s.n_groups = 0;
    whole.route(&s);
}

static void plant_groups(bt_kernels *k)
{
    k->route = route_without_groups;
}

/* Values as if they lay by themselves, without what follows them in a row. */
static void attn_packed_values(const bt_attn *a)
{
    bt_attn b = *a;
    b.v_stride = a->v_dim;
    whole.attn_tile(&b);
}

static void plant_values(bt_kernels *k)
{
    k->attn_tile = attn_packed_values;
}

/* One token is summed from the last row to the first. */
static void linear_t_two_orders(const bt_linear *a, size_t c0, size_t c1)
{
    const bt_dtype d = (bt_dtype)a->w->dtype;
    if (a->n_x != 1) {
        whole.linear_t[d](a, c0, c1);
        return;
    }
    const float *x = a->x + (a->x_rows ? a->x_rows[0] : 0) * a->x_stride;
    float *y = a->y + (a->y_rows ? a->y_rows[0] : 0) * a->y_stride;
    for (size_t c = c0; c < c1; c++) {
        float sum = 0;
        for (size_t i = a->w->n_rows; i > 0; i--)
            sum += x[i - 1] * (float)decode(a->w->data, (i - 1) * a->w->n_cols + c, d);
        y[c - c0] = a->add ? y[c - c0] + sum : sum;
    }
}

static void plant_transpose(bt_kernels *k)
{
    for (bt_dtype d = BT_F32; d <= BT_BF16; d++) k->linear_t[d] = linear_t_two_orders;
}

static const struct {
    const char *name;
    void (*plant)(bt_kernels *k);
} faults[] = {
    {"nibbles-swapped", plant_nibbles},
    {"scales-shifted", plant_scales},
    {"capped-sigmoid", plant_situ},
    {"clamped-decay", plant_decay},
    {"eps-of-mean", plant_l2},
    {"taps-reversed", plant_conv},
    {"tail-unshifted", plant_tail},
    {"read-before-write", plant_kda_read},
    {"delta-before-decay", plant_kda_delta},
    {"kda-two-orders", plant_kda_orders},
    {"normalised-mix", plant_mix},
    {"groups-ignored", plant_groups},
    {"packed-values", plant_values},
    {"transpose-two-orders", plant_transpose},
};

const char *plant_kimi_name(size_t i)
{
    return i < sizeof faults / sizeof *faults ? faults[i].name : NULL;
}

bool plant_kimi_into(bt_kernels *k, const char *name)
{
    whole = *k;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (strcmp(name, faults[i].name) == 0) {
            faults[i].plant(k);
            return true;
        }
    return false;
}
