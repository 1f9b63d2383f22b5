/*
 * Checks of what only Kimi's models use, at every level (scalar too) against plain f64 written down here, with libm's
 * exp and tanh. u is the unit roundoff; each bound counts a kernel's roundings where it is stated.
 */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U UNIT_ROUNDOFF

static const size_t lengths[] = {1,  2,  3,  5,  7,  8,  9,  11, 13,  15,  16,  17,  23,
                                 31, 32, 33, 47, 63, 64, 65, 97, 127, 128, 129, 257, 521};
#define N_LENGTHS (sizeof lengths / sizeof *lengths)

/* An entry is checked where it is new, and at the bottom. */
static bool is_due(const subject *s, bool is_new)
{
    return is_new || s->now->level == BT_CPU_SCALAR;
}

static size_t n_rounds(const subject *s)
{
    return s->o->quick ? 4 : 12;
}

static void *allocate(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p) abort();
    return p;
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* ---- SiTU ---- */

static const float gates[] = {0.0f,    -0.0f,   1e-40f, -1e-40f, 0x1p-24f, 0.4999f, 0.5f,     -0.5f,
                              2,       -2,      17,     -17,     87.3f,    -87.3f,  88.73f,   -88.73f,
                              -103.9f, -104.1f, 1000,   -1000,   3e38f,    -3e38f,  INFINITY, -INFINITY};

static void fill_gates(float *x, size_t n, size_t round)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(random_normal() * (round % 3 == 0 ? 1 : round % 3 == 1 ? 30 : 1e-3));
        if (random_below(6) == 0) x[i] = gates[random_below(sizeof gates / sizeof *gates)];
    }
    if (n > 0 && round % 5 == 4) x[random_below(n)] = NAN;
}

/* Two tanh of 7 u, a sigmoid of 4.5 u, two quotients and four products: 24 u. A denormal quotient, sigmoid or product
 * loses up to half of the last place, which what follows multiplies. */
static void situ_case(const subject *s, size_t n, size_t round, placement place)
{
    float *y = buffer(n * 4, 4, place), *g = buffer(n * 4, 4, place), *u = buffer(n * 4, 4, place);
    float *g0 = allocate(n, 4), *u0 = allocate(n, 4);
    float beta = round % 2 ? 4 : (float)(0.5 + fabs(random_normal())), cap = round % 3 == 2 ? 0 : 25;
    fill_gates(g, n, round);
    if (cap > 0)
        fill_gates(u, n, round / 3);
    else
        fill_activations(u, n, INPUT_NORMAL);
    memcpy(g0, g, n * 4);
    memcpy(u0, u, n * 4);
    if (round % 4 == 1) y = g;
    if (round % 4 == 3) y = u;
    s->now->situ_mul(y, g, u, n, beta, cap);
    for (size_t i = 0; i < n; i++) {
        double b = (double)beta, c = (double)cap, up = c > 0 ? c * tanh((double)u0[i] / c) : (double)u0[i];
        double gate = b * tanh((double)g0[i] / b) * logistic((double)g0[i]), ref = gate * up;
        double lost = HALF_DENORMAL * ((4 + b) * (2 + fabs(up)) + (2 + c) * fabs(gate));
        check_near((float)ref, y[i], 24 * U * fabs(ref) + lost, i);
    }
    free(g0);
    free(u0);
    buffers_release();
}

/* ---- decay ---- */

/* x = z + bias has one rounding, a = rate x three: sigmoid adds 4.5 u, the product with lower one more. */
static double decay_bound(double x, double rate, double lower, double ref)
{
    double dg;
    if (lower < 0) {
        double p = logistic(rate * x);
        dg = -lower * (p * (1 - p) * 3 * U * fabs(rate * x) + 6 * U * p);
    } else {
        double soft = fmax(x, 0) + log1p(exp(-fabs(x)));
        dg = rate * (logistic(x) * U * fabs(x) + 11 * U * soft);
    }
    return ref * (dg + 5 * U) * 1.01 + 2 * HALF_DENORMAL;
}

static void decay_case(const subject *s, size_t n, size_t round, placement place)
{
    float *y = buffer(n * 4, 4, place), *z = buffer(n * 4, 4, place), *bias = buffer(n * 4, 4, place);
    float *z0 = allocate(n, 4), rate = (float)exp(random_normal()), lower = round % 2 ? -5 : 0;
    fill_gates(z, n, round / 2);
    fill_activations(bias, n, INPUT_NORMAL);
    memcpy(z0, z, n * 4);
    if (round % 4 == 1) y = z;
    s->now->kda_decay(y, z, bias, n, rate, lower);
    for (size_t i = 0; i < n; i++) {
        double x = (double)z0[i] + (double)bias[i], r = (double)rate;
        double g = lower < 0 ? (double)lower * logistic(r * x) : -r * (fmax(x, 0) + log1p(exp(-fabs(x))));
        if (isnan(x)) g = x; /* fmax would hide it */
        check_near((float)exp(g), y[i], decay_bound(x, r, (double)lower, exp(g)), i);
    }
    free(z0);
    buffers_release();
}

/* ---- norm to unit length ---- */

static void l2_case(const subject *s, size_t n, size_t round, placement place)
{
    float *y = buffer(n * 4, 4, place), *x = buffer(n * 4, 4, place), *x0 = allocate(n, 4);
    fill_activations(x, n, round % 3 == 0 ? INPUT_TINY : round % 3 == 1 ? INPUT_HUGE : INPUT_NORMAL);
    memcpy(x0, x, n * 4);
    if (round % 2) y = x;
    double sum = 0, scale = round % 4 < 2 ? 1 : 0.08838834764831845, eps = round % 5 == 4 ? 0.5 : 1e-6;
    for (size_t i = 0; i < n; i++) sum += (double)x0[i] * (double)x0[i];
    s->now->l2_norm(y, x, n, (float)scale, (float)eps);
    for (size_t i = 0; i < n; i++) {
        double ref = (double)x0[i] * (double)(float)scale / sqrt(sum + (double)(float)eps);
        check_near((float)ref, y[i], 3 * U * fabs(ref) + HALF_DENORMAL, i); /* one rounding, and that of ref */
    }
    free(x0);
    buffers_release();
}

/* ---- convolution ---- */

typedef struct conv_test {
    bt_conv a;
    size_t n_tail;
    float *tail; /* a.tail as it was */
} conv_test;

static void make_conv(conv_test *c, size_t n, size_t n_rows, placement place)
{
    bt_conv *a = &c->a;
    *a = (bt_conv){.n = n, .n_rows = n_rows, .n_taps = random_below(3) ? 4 : 1 + random_below(BT_CONV_TAPS_MAX)};
    c->n_tail = a->n_taps - 1;
    a->x_stride = n + random_below(4), a->y_stride = n + random_below(4);
    a->tail_stride = n + random_below(4), a->taps_stride = n + random_below(4);
    size_t x_n = n_rows > 0 ? (n_rows - 1) * a->x_stride + n : 0, y_n = n_rows > 0 ? (n_rows - 1) * a->y_stride + n : 0;
    size_t tail_n = c->n_tail > 0 ? (c->n_tail - 1) * a->tail_stride + n : 0, taps_n = c->n_tail * a->taps_stride + n;
    float *x = buffer(x_n * 4, 4, place), *taps = buffer(taps_n * 4, 4, place);
    a->tail = buffer(tail_n * 4, 4, place);
    a->y = buffer(y_n * 4, 4, place);
    fill_activations(x, x_n, INPUT_NORMAL);
    fill_activations(taps, taps_n, INPUT_NORMAL);
    fill_activations(a->tail, tail_n, INPUT_NORMAL);
    a->x = x, a->taps = taps;
    c->tail = allocate(tail_n, 4);
    memcpy(c->tail, a->tail, tail_n * 4);
}

static double conv_input(const conv_test *c, size_t t, size_t i)
{
    const bt_conv *a = &c->a;
    return (double)(t < c->n_tail ? c->tail[t * a->tail_stride + i] : a->x[(t - c->n_tail) * a->x_stride + i]);
}

/* n_taps products and sums, then silu, whose slope is below 1.1: it costs 6 u. */
static void conv_case(const subject *s, size_t n, size_t n_rows, placement place)
{
    conv_test c;
    make_conv(&c, n, n_rows, place);
    const bt_conv *a = &c.a;
    s->now->conv_silu(a);
    for (size_t t = 0; t < n_rows; t++)
        for (size_t i = 0; i < n; i++) {
            double sum = 0, size = 0;
            for (size_t j = 0; j < a->n_taps; j++) {
                double product = (double)a->taps[j * a->taps_stride + i] * conv_input(&c, t + j, i);
                sum += product;
                size += fabs(product);
            }
            double ref = sum * logistic(sum), bound = 1.1 * (double)(a->n_taps + 1) * U * size + 8 * U * fabs(ref);
            check_near((float)ref, a->y[t * a->y_stride + i], bound + 256 * HALF_DENORMAL, t * n + i);
        }
    for (size_t j = 0; j < c.n_tail; j++)
        for (size_t i = 0; i < n; i++) {
            float expected = (float)conv_input(&c, j + n_rows, i);
            check_floats_same(&expected, &a->tail[j * a->tail_stride + i], 1, "tail");
        }
    free(c.tail);
    buffers_release();
}

/* Tokens and channels in pieces: the same bits, the same tail. */
static void conv_split(const subject *s, size_t n, size_t n_rows)
{
    conv_test c;
    make_conv(&c, n, n_rows, PLACE_POISONED);
    size_t tail_n = c.n_tail > 0 ? (c.n_tail - 1) * c.a.tail_stride + n : 0;
    float *y = allocate(n_rows * c.a.y_stride, 4), *tail = allocate(tail_n, 4);
    s->now->conv_silu(&c.a);
    memcpy(tail, c.a.tail, tail_n * 4);
    memcpy(c.a.tail, c.tail, tail_n * 4);
    for (size_t t = 0; t < n_rows; t++) memcpy(y + t * n, c.a.y + t * c.a.y_stride, n * 4);
    for (size_t t = 0; t < n_rows;) {
        bt_conv piece = c.a;
        piece.n_rows = 1 + random_below(n_rows - t);
        piece.x += t * piece.x_stride, piece.y += t * piece.y_stride;
        for (size_t i = 0; i < n; i += piece.n) {
            piece.n = 1 + random_below(n - i);
            bt_conv p = piece;
            p.x += i, p.y += i, p.tail += i, p.taps += i;
            s->now->conv_silu(&p);
        }
        t += piece.n_rows;
    }
    check_case("%zu channels, %zu tokens, split", n, n_rows);
    for (size_t t = 0; t < n_rows; t++) check_floats_same(y + t * n, c.a.y + t * c.a.y_stride, n, "y");
    check_floats_same(tail, c.a.tail, tail_n, "tail");
    free(y);
    free(tail);
    free(c.tail);
    buffers_release();
}

static void check_conv(const subject *s)
{
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t i = 0; i < N_LENGTHS; i++)
            for (size_t n_rows = 0; n_rows < 24; n_rows += 1 + n_rows / 3) {
                check_case("%zu channels, %zu tokens, placement %d", lengths[i], n_rows, (int)place);
                conv_case(s, lengths[i], n_rows, place);
            }
    for (size_t i = 0; i < N_LENGTHS; i++) conv_split(s, lengths[i], 1 + random_below(30));
}

/* ---- the delta rule ---- */

typedef struct kda_test {
    bt_kda a;
    float *state; /* as it was */
} kda_test;

static float *kda_rows(size_t n_rows, size_t stride, size_t width, placement place)
{
    size_t n = n_rows > 0 ? (n_rows - 1) * stride + width : 0;
    float *p = buffer(n * 4, 4, place);
    fill_activations(p, n, INPUT_NORMAL);
    return p;
}

static void make_kda(kda_test *k, size_t n_rows, size_t key_dim, size_t n_values, placement place)
{
    bt_kda *a = &k->a;
    *a = (bt_kda){.n_rows = n_rows, .key_dim = key_dim, .n_values = n_values};
    a->qk_stride = key_dim + random_below(5), a->v_stride = n_values + random_below(5);
    a->o_stride = n_values + random_below(5), a->beta_stride = 1 + random_below(5);
    float *q = kda_rows(n_rows, a->qk_stride, key_dim, place), *key = kda_rows(n_rows, a->qk_stride, key_dim, place);
    float *decay = kda_rows(n_rows, a->qk_stride, key_dim, place), *beta = kda_rows(n_rows, a->beta_stride, 1, place);
    for (size_t t = 0; t < n_rows; t++) {
        for (size_t i = 0; i < key_dim; i++) {
            size_t at = t * a->qk_stride + i;
            key[at] /= (float)sqrt((double)key_dim), q[at] /= (float)sqrt((double)key_dim);
            decay[at] = random_below(9) == 0 ? (float)random_below(2) : (float)exp(-fabs((double)decay[at]));
        }
        beta[t * a->beta_stride] = (float)logistic((double)beta[t * a->beta_stride]);
    }
    a->q = q, a->k = key, a->decay = decay, a->beta = beta;
    a->v = kda_rows(n_rows, a->v_stride, n_values, place);
    a->o = kda_rows(n_rows, a->o_stride, n_values, place);
    a->state = buffer(key_dim * n_values * 4, 4, place);
    fill_activations(a->state, key_dim * n_values, INPUT_NORMAL);
    k->state = allocate(key_dim * n_values, 4);
    memcpy(k->state, a->state, key_dim * n_values * 4);
}

/* One value row in f64, with e = a bound of the error of each element of the state, carried along: a rounding of the
 * decay, a dot product (n / 8 + 5 roundings in any level's order), three of d, two of the update. */
static void kda_row(const kda_test *k, size_t row, double *s, double *e)
{
    const bt_kda *a = &k->a;
    const double dot_u = ((double)a->key_dim / 8 + 5) * U * 1.01;
    for (size_t i = 0; i < a->key_dim; i++) s[i] = (double)k->state[row * a->key_dim + i], e[i] = 0;
    for (size_t t = 0; t < a->n_rows; t++) {
        const float *q = a->q + t * a->qk_stride, *key = a->k + t * a->qk_stride, *decay = a->decay + t * a->qk_stride;
        double sum = 0, error = 0, beta = (double)a->beta[t * a->beta_stride];
        for (size_t i = 0; i < a->key_dim; i++) {
            s[i] *= (double)decay[i];
            e[i] = e[i] * (double)decay[i] + U * fabs(s[i]) + HALF_DENORMAL;
            sum += s[i] * (double)key[i];
            error += e[i] * fabs((double)key[i]) + dot_u * fabs(s[i] * (double)key[i]);
        }
        double d = beta * ((double)a->v[t * a->v_stride + row] - sum), d_error = beta * error + 3 * U * fabs(d), o = 0;
        error = HALF_DENORMAL;
        for (size_t i = 0; i < a->key_dim; i++) {
            double write = d * (double)key[i];
            s[i] += write;
            e[i] += d_error * fabs((double)key[i]) + U * (fabs(write) + fabs(s[i])) + 2 * HALF_DENORMAL;
            o += s[i] * (double)q[i];
            error += e[i] * fabs((double)q[i]) + dot_u * fabs(s[i] * (double)q[i]);
        }
        check_near((float)o, a->o[t * a->o_stride + row], error * 1.01 + U * fabs(o), t * a->n_values + row);
    }
    for (size_t i = 0; i < a->key_dim; i++)
        check_near((float)s[i], a->state[row * a->key_dim + i], e[i] * 1.01 + U * fabs(s[i]), row * a->key_dim + i);
}

static void kda_case(const subject *s, size_t n_rows, size_t key_dim, size_t n_values, placement place)
{
    kda_test k;
    make_kda(&k, n_rows, key_dim, n_values, place);
    s->now->kda(&k.a);
    double *row = allocate(key_dim, sizeof *row), *error = allocate(key_dim, sizeof *error);
    for (size_t i = 0; i < n_values; i++) kda_row(&k, i, row, error);
    free(row);
    free(error);
    free(k.state);
    buffers_release();
}

/* Tokens and value rows in pieces: the same bits. */
static void kda_split(const subject *s, size_t n_rows, size_t key_dim, size_t n_values)
{
    kda_test k;
    make_kda(&k, n_rows, key_dim, n_values, PLACE_POISONED);
    size_t n_state = key_dim * n_values;
    float *o = allocate(n_rows * n_values, 4), *state = allocate(n_state, 4);
    s->now->kda(&k.a);
    memcpy(state, k.a.state, n_state * 4);
    memcpy(k.a.state, k.state, n_state * 4);
    for (size_t t = 0; t < n_rows; t++) memcpy(o + t * n_values, k.a.o + t * k.a.o_stride, n_values * 4);
    for (size_t t = 0; t < n_rows;) {
        bt_kda piece = k.a;
        piece.n_rows = 1 + random_below(n_rows - t);
        piece.q += t * piece.qk_stride, piece.k += t * piece.qk_stride, piece.decay += t * piece.qk_stride;
        piece.v += t * piece.v_stride, piece.o += t * piece.o_stride, piece.beta += t * piece.beta_stride;
        for (size_t i = 0; i < n_values; i += piece.n_values) {
            piece.n_values = 1 + random_below(n_values - i);
            bt_kda p = piece;
            p.state += i * key_dim, p.v += i, p.o += i;
            s->now->kda(&p);
        }
        t += piece.n_rows;
    }
    check_case("%zu tokens, %zu keys, %zu values, split", n_rows, key_dim, n_values);
    for (size_t t = 0; t < n_rows; t++) check_floats_same(o + t * n_values, k.a.o + t * k.a.o_stride, n_values, "o");
    check_floats_same(state, k.a.state, n_state, "state");
    free(o);
    free(state);
    free(k.state);
    buffers_release();
}

static void check_kda(const subject *s)
{
    static const size_t widths[] = {1, 2, 7, 8, 13, 16, 17, 32, 33, 48, 64, 100, 128, 131, 256};
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            for (size_t round = 0; round < (s->o->quick ? 2u : 5u); round++) {
                size_t n_rows = round == 0 ? 1 : random_below(40), n_values = 1 + random_below(round == 1 ? 40 : 9);
                check_case("%zu tokens, %zu keys, %zu values, placement %d", n_rows, widths[i], n_values, (int)place);
                kda_case(s, n_rows, widths[i], n_values, place);
            }
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        kda_split(s, 1 + random_below(70), widths[i], 1 + random_below(30));
}

/* ---- attention over depth ---- */

/* Scores are as good as f64, so a weight has one rounding; then n_sources products and sums. */
static void res_mix_case(const subject *s, size_t n, size_t round, placement place)
{
    size_t n_sources = 1 + random_below(round % 4 == 3 ? 40 : 9), stride = n + random_below(20);
    float *v = buffer(((n_sources - 1) * stride + n) * 4, 4, place), *u = buffer(n * 4, 4, place);
    float *y = buffer(n * 4, 4, place), eps = round % 2 ? 1e-5f : 0.3f;
    fill_activations(v, (n_sources - 1) * stride + n, round % 5 == 4 ? INPUT_TINY : INPUT_NORMAL);
    fill_activations(u, n, INPUT_NORMAL);
    double score[64], total = 0, best = (double)-INFINITY;
    for (size_t i = 0; i < n_sources; i++) {
        double dot = 0, squares = 0;
        for (size_t j = 0; j < n; j++) {
            double x = (double)v[i * stride + j];
            dot += x * (double)u[j];
            squares += x * x;
        }
        score[i] = dot / sqrt(squares / (double)n + (double)eps);
        best = fmax(best, score[i]);
    }
    for (size_t i = 0; i < n_sources; i++) total += score[i] = exp(score[i] - best);
    s->now->res_mix(y, v, stride, n_sources, u, n, eps);
    for (size_t j = 0; j < n; j++) {
        double ref = 0, size = 0;
        for (size_t i = 0; i < n_sources; i++) {
            ref += score[i] / total * (double)v[i * stride + j];
            size += fabs(score[i] / total * (double)v[i * stride + j]);
        }
        check_near((float)ref, y[j], (double)(n_sources + 3) * U * size + (double)(n_sources + 2) * HALF_DENORMAL, j);
    }
    buffers_release();
}

/* ---- product with the transpose ---- */

typedef struct transpose {
    bt_view w;
    bt_linear a;
    uint32_t x_rows[80], y_rows[80];
} transpose;

static void random_order(uint32_t *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t j = random_below(i + 1);
        rows[i] = rows[j];
        rows[j] = (uint32_t)i;
    }
}

static void make_transpose(transpose *t, bt_dtype d, size_t n_rows, size_t n_cols, size_t n_x, input_kind kind,
                           placement place)
{
    memset(t, 0, sizeof *t);
    void *w = buffer(n_rows * n_cols * dtype_size(d), 1, place);
    fill_weights(w, n_rows * n_cols, d, kind);
    t->w = (bt_view){.data = w, .n_rows = (uint32_t)n_rows, .n_cols = (uint32_t)n_cols, .dtype = (uint8_t)d};
    bt_linear *a = &t->a;
    a->w = &t->w, a->n_x = n_x, a->x_stride = n_rows + random_below(5), a->y_stride = n_cols + random_below(5);
    size_t x_n = n_x > 0 ? (n_x - 1) * a->x_stride + n_rows : 0, y_n = n_x > 0 ? (n_x - 1) * a->y_stride + n_cols : 0;
    float *x = buffer(x_n * 4, 4, place);
    a->y = buffer(y_n * 4, 4, place);
    fill_activations(x, x_n, kind == INPUT_NAN ? INPUT_NORMAL : kind);
    fill_activations(a->y, y_n, INPUT_NORMAL);
    a->x = x;
    random_order(t->x_rows, n_x);
    random_order(t->y_rows, n_x);
}

/* One chain of n_rows products and sums; equal terms err the same way each time. */
static void transpose_case(const subject *s, bt_dtype d, size_t n_rows, size_t n_cols, input_kind kind, placement place)
{
    transpose t;
    size_t n_x = random_below(9), c0 = random_below(n_cols + 1), c1 = c0 + random_below(n_cols - c0 + 1);
    if (random_below(2)) c0 = 0, c1 = n_cols;
    make_transpose(&t, d, n_rows, n_cols, n_x, kind, place);
    bt_linear a = t.a;
    a.scratch = s->scratch, a.add = random_below(3) == 0;
    if (random_below(2)) a.x_rows = t.x_rows, a.y_rows = t.y_rows;
    size_t y_n = n_x > 0 ? (n_x - 1) * a.y_stride + n_cols : 0;
    float *y0 = allocate(y_n, 4);
    memcpy(y0, a.y, y_n * 4);
    s->now->linear_t[d](&a, c0, c1);
    for (size_t i = 0; i < n_x; i++) {
        const float *x = a.x + (a.x_rows ? a.x_rows[i] : i) * a.x_stride;
        size_t at = (a.y_rows ? a.y_rows[i] : i) * a.y_stride;
        for (size_t c = c0; c < c1; c++) {
            double sum = 0, size = 0, old = a.add ? (double)y0[at + c - c0] : 0, n = (double)n_rows;
            for (size_t r = 0; r < n_rows; r++) {
                double product = (double)x[r] * decode(t.w.data, r * n_cols + c, d);
                sum += product;
                size += fabs(product);
            }
            if (size + fabs(old) > 1e38) continue;
            double roundings = kind == INPUT_EQUAL ? n + 5 : sqrt(n) + 5;
            double bound = roundings * U * size + 3 * U * (fabs(old) + size) + (n + 4) * HALF_DENORMAL;
            check_near((float)(old + sum), a.y[at + c - c0], bound, at + c - c0);
        }
        for (size_t c = c1 - c0; c < a.y_stride && at + c < y_n; c++)
            check_floats_same(y0 + at + c, a.y + at + c, 1, "beside the columns of y");
    }
    free(y0);
    buffers_release();
}

/* Tokens and columns in pieces: the same bits. */
static void transpose_split(const subject *s, bt_dtype d, size_t n_rows, size_t n_cols, size_t n_x)
{
    transpose t;
    make_transpose(&t, d, n_rows, n_cols, n_x, INPUT_NORMAL, PLACE_POISONED);
    t.a.scratch = s->scratch;
    float *all = allocate(n_x * n_cols, 4);
    s->now->linear_t[d](&t.a, 0, n_cols);
    for (size_t i = 0; i < n_x; i++) memcpy(all + i * n_cols, t.a.y + i * t.a.y_stride, n_cols * 4);
    for (size_t i = 0; i < n_x;) {
        bt_linear piece = t.a;
        piece.n_x = 1 + random_below(n_x - i < 9 ? n_x - i : 9);
        piece.x_rows = piece.y_rows = t.x_rows + i;
        for (size_t c = 0, n; c < n_cols; c += n) {
            n = 1 + random_below(n_cols - c);
            piece.y = t.a.y + c;
            s->now->linear_t[d](&piece, c, c + n);
        }
        i += piece.n_x;
    }
    check_case("%zu x %zu, %zu tokens, split", n_rows, n_cols, n_x);
    for (size_t i = 0; i < n_x; i++)
        check_floats_same(all + i * n_cols, t.a.y + i * t.a.y_stride, n_cols, "product with the transpose");
    free(all);
    buffers_release();
}

static void check_transpose(const subject *s, bt_dtype d)
{
    static const size_t rows[] = {0, 1, 3, 8, 17, 64, 129};
    for (placement place = 0; place < PLACE_N; place++)
        for (input_kind kind = 0; kind < INPUT_N; kind++)
            for (size_t i = 0; i < N_LENGTHS; i += s->o->quick ? 3 : 1) {
                size_t n_rows = rows[random_below(sizeof rows / sizeof *rows)];
                check_case("%zu x %zu, %s, placement %d", n_rows, lengths[i], input_name(kind), (int)place);
                transpose_case(s, d, n_rows, lengths[i], kind, place);
            }
    transpose_split(s, d, 128, 512, 13);
    transpose_split(s, d, 33, 97, 67);
    transpose_split(s, d, 2500, 70, 11); /* more rows than are taken at a time */
}

/* ---- router groups ---- */

/* The definition, slowly: the place of a group or an expert is the number of those before it. */
static size_t place_of(const double *rank, size_t n, size_t i)
{
    size_t n_before = 0;
    for (size_t j = 0; j < n; j++) n_before += rank[j] > rank[i] || (rank[j] == rank[i] && j < i);
    return n_before;
}

static void groups_case(const subject *s, size_t n_groups, size_t size, size_t round)
{
    enum { N_MAX = 256 };
    float logits[N_MAX], bias[N_MAX], weights[N_MAX], scratch[2 * N_MAX];
    double rank[N_MAX], best_two[N_MAX];
    int32_t ids[N_MAX];
    size_t n = n_groups * size;
    for (size_t i = 0; i < n; i++) { /* steps as coarse as this make many ties */
        logits[i] = round % 2 ? (float)random_normal() : (float)random_below(3);
        bias[i] = round % 3 ? (float)random_below(3) : (float)random_normal();
    }
    bt_route r = {.logits = logits, .bias = bias, .n = n, .score = BT_SCORE_SIGMOID, .renormalise = true, .scale = 1};
    r.n_groups = (uint32_t)n_groups, r.n_active_groups = (uint32_t)(1 + random_below(n_groups));
    r.k = 1 + random_below(r.n_active_groups * size);
    r.force = round % 5 == 4 ? (int32_t)random_below(n) : -1;
    r.ids = ids, r.weights = weights, r.scratch = scratch;
    s->now->route(&r);
    for (size_t i = 0; i < n; i++) rank[i] = r.force < 0 ? (double)(scratch[i] + bias[i]) : (int32_t)i == r.force;
    for (size_t g = 0; g < n_groups; g++) {
        best_two[g] = 0;
        for (size_t i = 0; i < size; i++)
            if (place_of(rank + g * size, size, i) < 2) best_two[g] += rank[g * size + i];
    }
    for (size_t g = 0; g < n_groups; g++)
        for (size_t i = 0; i < size && place_of(best_two, n_groups, g) >= r.n_active_groups; i++)
            rank[g * size + i] = (double)-INFINITY;
    for (size_t i = 0; i < r.k; i++)
        check_that(ids[i] >= 0 && (size_t)ids[i] < n && place_of(rank, n, (size_t)ids[i]) == i,
                   "chosen within the groups");
}

static void check_groups(const subject *s)
{
    for (size_t round = 0; round < 60; round++)
        for (size_t n_groups = 1; n_groups <= 8; n_groups++) {
            size_t size = 1 + random_below(32);
            check_case("%zu groups of %zu, round %zu", n_groups, size, round);
            groups_case(s, n_groups, size, round);
        }
    float logits[4] = {-300, -300, -300, -300}, weights[2], scratch[8];
    int32_t ids[2];
    bt_route r = {.logits = logits, .n = 4, .k = 2, .score = BT_SCORE_SIGMOID, .renormalise = true, .scale = 1};
    r.force = -1, r.ids = ids, r.weights = weights, r.scratch = scratch;
    s->now->route(&r);
    check_case("all scores 0");
    check_that(weights[0] == 0 && weights[1] == 0, "weights are 0, not NaN");
}

/* ---- all ---- */

typedef void simple_case(const subject *s, size_t n, size_t round, placement place);

static void check_simple(const subject *s, const char *name, bool is_new, simple_case *fn)
{
    if (!is_due(s, is_new) || !check_begin(s, name)) return;
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t round = 0; round < n_rounds(s); round++)
            for (size_t i = 0; i < N_LENGTHS; i++) {
                check_case("n %zu, round %zu, placement %d", lengths[i], round, (int)place);
                fn(s, lengths[i], round, place);
            }
    check_end();
}

void check_kimi(const subject *s)
{
    static const char *const names[] = {"linear_t_f32", "linear_t_f16", "linear_t_bf16"};
    const bt_kernels *k = s->now, *b = s->below;
    check_simple(s, "situ_mul", k->situ_mul != b->situ_mul, situ_case);
    check_simple(s, "kda_decay", k->kda_decay != b->kda_decay, decay_case);
    check_simple(s, "l2_norm", k->l2_norm != b->l2_norm, l2_case);
    check_simple(s, "res_mix", k->res_mix != b->res_mix, res_mix_case);
    if (is_due(s, k->conv_silu != b->conv_silu) && check_begin(s, "conv_silu")) check_conv(s), check_end();
    if (is_due(s, k->kda != b->kda) && check_begin(s, "kda")) check_kda(s), check_end();
    for (bt_dtype d = BT_F32; d <= BT_BF16; d++)
        if (is_due(s, k->linear_t[d] != b->linear_t[d]) && check_begin(s, names[d])) check_transpose(s, d), check_end();
    if (is_due(s, k->route != b->route) && check_begin(s, "route_groups")) check_groups(s), check_end();
}
