/*
 * Checks of attention. A tile's result is compared as what it is for: the weighted mean acc / l and the log-sum-exp
 * m + ln l. With e = the worst error of a score, (sqrt(d) + 6) u scale sum |q k|, and 2.5 u + |s - m| u of exp, a
 * weight is off by less than g = 2 e + (|s|max + 8) u relative to the others, so the mean by (2 g + (sqrt(n) + 4) u) of
 * the mean of |v|.
 */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U UNIT_ROUNDOFF

typedef struct tile {
    bt_attn a; /* inputs; outputs are set per call */
    float *q;  /* [n_q][head_dim] */
    char *k, *v;
    const float *q_rows[BT_ATTN_QUERIES_MAX];
    uint32_t n_keys[BT_ATTN_QUERIES_MAX];
    size_t n_keys_max;
} tile;

typedef struct result {
    float *m, *l, *acc;
} result;

/* Elements from the first to the last of n rows. */
static size_t span(size_t n, size_t stride, size_t width)
{
    return n > 0 ? (n - 1) * stride + width : 0;
}

/* Rows of keys and values lie close in two of three rounds, and values are as wide as keys in every second. */
static void set_widths(tile *t, size_t head_dim, size_t round)
{
    t->a.head_dim = head_dim;
    t->a.v_dim = round % 2 ? head_dim : 1 + random_below(head_dim);
    t->a.k_stride = head_dim + (round % 3 == 2 ? random_below(40) : 0);
    t->a.v_stride = t->a.v_dim + (round % 3 == 2 ? random_below(40) : 0);
}

static double key_at(const tile *t, size_t j, size_t c)
{
    return decode(t->a.k, j * t->a.k_stride + c, t->a.kv_dtype);
}

static double value_at(const tile *t, size_t j, size_t c)
{
    return decode(t->a.v, j * t->a.v_stride + c, t->a.kv_dtype);
}

static void make_tile(tile *t, bt_dtype d, size_t head_dim, size_t n_q, size_t round, placement place)
{
    size_t causal = random_below(BT_ATTN_TILE);
    memset(t, 0, sizeof *t);
    for (size_t i = 0; i < n_q; i++) {
        size_t n = round % 3 == 0 ? random_below(BT_ATTN_TILE + 1) : round % 3 == 1 ? causal + i / 4 : BT_ATTN_TILE;
        t->n_keys[i] = (uint32_t)(n < BT_ATTN_TILE ? n : BT_ATTN_TILE);
        if (t->n_keys[i] > t->n_keys_max) t->n_keys_max = t->n_keys[i];
    }
    set_widths(t, head_dim, round);
    size_t n_k = span(t->n_keys_max, t->a.k_stride, head_dim), n_v = span(t->n_keys_max, t->a.v_stride, t->a.v_dim);
    bool is_latent = round % 4 == 2; /* values are parts of the keys */
    if (is_latent) t->a.v_stride = t->a.k_stride;
    t->k = buffer(n_k * dtype_size(d), 1, place);
    t->v = is_latent ? t->k : buffer(n_v * dtype_size(d), 1, place);
    input_kind kind = round % 5 == 3 ? INPUT_DENORMAL : round % 5 == 4 ? INPUT_EQUAL : INPUT_NORMAL;
    fill_weights(t->k, n_k, d, kind);
    if (!is_latent) fill_weights(t->v, n_v, d, round % 7 == 6 ? INPUT_TINY : INPUT_NORMAL);
    t->q = buffer(n_q * head_dim * 4, 4, place);
    fill_activations(t->q, n_q * head_dim, INPUT_NORMAL);
    if (round % 2) /* a peaked distribution */
        for (size_t i = 0; i < n_q * head_dim; i++) t->q[i] *= 4;
    for (size_t i = 0; i < n_q; i++) t->q_rows[i] = t->q + i * head_dim;
    t->a.q = t->q_rows, t->a.n_keys = t->n_keys, t->a.n_q = n_q, t->a.k = t->k, t->a.v = t->v, t->a.kv_dtype = d;
    t->a.scale = (float)(1 / sqrt((double)head_dim));
}

static result make_result(const tile *t, placement place)
{
    result r;
    r.m = buffer(t->a.n_q * 4, 4, place);
    r.l = buffer(t->a.n_q * 4, 4, place);
    r.acc = buffer(t->a.n_q * t->a.v_dim * 4, 4, place);
    return r;
}

static void run(const subject *s, const bt_kernels *k, const tile *t, result r)
{
    bt_attn a = t->a;
    a.m = r.m, a.l = r.l, a.acc = r.acc, a.scratch = s->scratch;
    k->attn_tile(&a);
}

/* g of the head of this file for query i */
static double weight_error(const tile *t, size_t i)
{
    double worst = 0, largest = 0, d = (double)t->a.head_dim;
    for (size_t j = 0; j < t->n_keys[i]; j++) {
        double sum = 0, s = 0;
        for (size_t c = 0; c < t->a.head_dim; c++) {
            double product = (double)t->q_rows[i][c] * key_at(t, j, c);
            sum += fabs(product);
            s += product;
        }
        worst = fmax(worst, (sqrt(d) + 6) * U * sum * (double)t->a.scale);
        largest = fmax(largest, fabs(s) * (double)t->a.scale);
    }
    return 2 * worst + (2 * largest + 8) * U;
}

static double mean_of_abs(const tile *t, const result *r, size_t i, size_t c)
{
    double sum = 0, total = 0;
    for (size_t j = 0; j < t->n_keys[i]; j++) {
        double s = 0;
        for (size_t e = 0; e < t->a.head_dim; e++) s += (double)t->q_rows[i][e] * key_at(t, j, e);
        double p = exp(s * (double)t->a.scale - (double)r->m[i]);
        sum += p * fabs(value_at(t, j, c));
        total += p;
    }
    return sum / total;
}

static void compare_query(const tile *t, const result *ref, const result *now, size_t i)
{
    const size_t v_dim = t->a.v_dim;
    if (t->n_keys[i] == 0) {
        check_that(isinf(now->m[i]) && now->m[i] < 0 && now->l[i] == 0, "no keys: m is -inf, l is 0");
        for (size_t c = 0; c < v_dim; c++) check_near(0, now->acc[i * v_dim + c], 0, c);
        return;
    }
    double g = weight_error(t, i);
    check_near(ref->m[i], now->m[i], g, i);
    double log_ref = (double)ref->m[i] + log((double)ref->l[i]), log_now = (double)now->m[i] + log((double)now->l[i]);
    check_near((float)log_ref, (float)log_now, 2 * g + (sqrt((double)t->n_keys[i]) + 4 + fabs(log_ref)) * U, i);
    for (size_t c = i % 5; c < v_dim; c += 5) { /* a fifth of the columns: the bound is dear */
        double bound = (2 * g + (sqrt((double)t->n_keys[i]) + 6) * U) * mean_of_abs(t, ref, i, c) + 256 * HALF_DENORMAL;
        check_near(ref->acc[i * v_dim + c] / ref->l[i], now->acc[i * v_dim + c] / now->l[i], bound, i * v_dim + c);
    }
}

static const size_t head_dims[] = {1, 7, 8, 15, 16, 17, 24, 48, 63, 64, 65, 80, 128, 130, 576};
static const size_t query_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 64};

static void check_tile(const subject *s, bt_dtype d)
{
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t h = 0; h < sizeof head_dims / sizeof *head_dims; h++)
            for (size_t n = 0; n < (s->o->quick ? 8u : 10u); n++) {
                size_t round = random_below(210);
                check_case("head %zu, %zu queries, round %zu, placement %d", head_dims[h], query_counts[n], round,
                           (int)place);
                tile t;
                make_tile(&t, d, head_dims[h], query_counts[n], round, place);
                result ref = make_result(&t, place), now = make_result(&t, place);
                run(s, s->ref, &t, ref);
                run(s, s->now, &t, now);
                for (size_t i = 0; i < t.a.n_q; i += n < 8 ? 1 : 7) compare_query(&t, &ref, &now, i);
                buffers_release();
            }
}

/* A NaN in a key or a value reaches the queries that see it, and no other. */
static void check_nan(const subject *s, bt_dtype d)
{
    for (size_t round = 0; round < 12; round++) {
        tile t;
        size_t hd = 48;
        make_tile(&t, d, hd, 8, 0, PLACE_POISONED);
        result now = make_result(&t, PLACE_POISONED);
        size_t key = random_below(t.n_keys_max ? t.n_keys_max : 1), column = random_below(t.a.v_dim);
        bool in_key = round % 2;
        check_case("NaN in %s %zu", in_key ? "key" : "value", key);
        char *p = (in_key ? t.k + key * t.a.k_stride * dtype_size(d) : t.v + key * t.a.v_stride * dtype_size(d)) +
                  column * dtype_size(d);
        if (t.n_keys_max > 0) memset(p, 0xff, dtype_size(d));
        run(s, s->now, &t, now);
        for (size_t i = 0; i < 8; i++) {
            bool sees = t.n_keys[i] > key;
            check_that(!!isnan(now.acc[i * t.a.v_dim + column]) == sees, "NaN seen where it is");
            check_that(!!isnan(now.l[i]) == (sees && in_key), "NaN of a key reaches the sum");
        }
        buffers_release();
    }
}

static void check_merge(const subject *s)
{
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t round = 0; round < 200; round++) {
            size_t n = head_dims[random_below(sizeof head_dims / sizeof *head_dims)];
            float *acc = buffer(n * 4, 4, place), *acc2 = buffer(n * 4, 4, place), *ref = buffer(n * 4, 4, place);
            fill_activations(acc, n, INPUT_NORMAL);
            fill_activations(acc2, n, INPUT_NORMAL);
            memcpy(ref, acc, n * 4);
            float m = (float)random_normal() * 9, m2 = (float)random_normal() * (round % 3 ? 9 : 90);
            float l = round % 5 == 1 ? 0 : 1 + (float)random_below(99),
                  l2 = round % 5 == 2 ? 0 : 1 + (float)random_below(99);
            float rm = m, rl = l, nm = m, nl = l;
            check_case("head %zu, m %g and %g, l %g and %g", n, (double)m, (double)m2, (double)l, (double)l2);
            s->ref->attn_merge(&rm, &rl, ref, m2, l2, acc2, n);
            s->now->attn_merge(&nm, &nl, acc, m2, l2, acc2, n);
            double g = (fabs((double)m - (double)m2) + 8) * U;
            check_floats_same(&rm, &nm, 1, "maximum");
            check_near(rl, nl, g * (double)(l + l2) + HALF_DENORMAL, 0);
            for (size_t i = 0; i < n; i++) {
                double size = fabs((double)ref[i]) + fabs((double)acc2[i]) + 8; /* |acc| is below 8 */
                check_near(ref[i], acc[i], g * size + 8 * HALF_DENORMAL, i);
            }
            s->ref->attn_finish(ref, acc2, rl, n);
            s->now->attn_finish(acc, acc2, rl, n);
            check_floats_same(ref, acc, n, "acc / l"); /* one rounding */
            buffers_release();
        }
}

static const char *const dtype_names[] = {"f32", "f16", "bf16"};

void check_attention(const subject *s)
{
    for (bt_dtype d = BT_F32; d <= BT_BF16; d++) {
        char name[32];
        snprintf(name, sizeof name, "attn_tile_%s", dtype_names[d]);
        if (!check_begin(s, name)) continue;
        if (s->now->attn_tile != s->below->attn_tile) check_tile(s, d);
        check_nan(s, d);
        check_end();
    }
    if (s->now->attn_merge != s->below->attn_merge && check_begin(s, "attn_merge")) check_merge(s), check_end();
}

/* ---- invariance: a query's result knows nothing of the other queries, nor of keys that it does not see ---- */

static void invariance_case(const subject *s, bt_dtype d, size_t head_dim, size_t round)
{
    tile t;
    make_tile(&t, d, head_dim, BT_ATTN_QUERIES_MAX, round, PLACE_POISONED);
    result all = make_result(&t, PLACE_POISONED), part = make_result(&t, PLACE_POISONED);
    run(s, s->now, &t, all);
    for (size_t i = 0; i < t.a.n_q;) {
        size_t left = t.a.n_q - i, n = 1 + random_below(left < 9 ? left : 9);
        tile piece = t;
        piece.a.q = t.q_rows + i, piece.a.n_keys = t.n_keys + i, piece.a.n_q = n;
        result r = {part.m + i, part.l + i, part.acc + i * t.a.v_dim};
        run(s, s->now, &piece, r);
        i += n;
    }
    check_case("head %zu, round %zu, queries split", head_dim, round);
    check_floats_same(all.m, part.m, t.a.n_q, "m");
    check_floats_same(all.l, part.l, t.a.n_q, "l");
    check_floats_same(all.acc, part.acc, t.a.n_q * t.a.v_dim, "acc");
    buffers_release();
}

void check_attention_invariance(const subject *s)
{
    for (bt_dtype d = BT_F32; d <= BT_BF16; d++) {
        char name[48];
        snprintf(name, sizeof name, "invariance_attn_%s", dtype_names[d]);
        if (!check_begin(s, name)) continue;
        for (size_t round = 0; round < (s->o->quick ? 6u : 30u); round++) {
            invariance_case(s, d, 64, round);
            invariance_case(s, d, 128, round);
            invariance_case(s, d, 41, round);
        }
        check_end();
    }
}
