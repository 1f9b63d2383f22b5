/*
 * Checks of linear: against scalar, with the bound of a dot product in any order,
 *   (sqrt(n) + 4) u sum |w x|, plus what underflow can lose, plus the roundings of the result and of adding y;
 * and its invariance: the same bits for any number of tokens, any split of the rows, any order of the tokens.
 */
#include "check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U UNIT_ROUNDOFF

static const char *const dtype_names[BT_N_WEIGHT_DTYPES] = {"f32", "f16", "bf16", "f8", "mxfp4"};

typedef struct shape {
    size_t n_rows, n_cols, n_x;
    input_kind kind;
    placement place;
    bool add, gathered;
} shape;

/* Scale bytes: around 1, or where the products of a kind lie; any number of magnitudes among random codes. */
static uint8_t random_scale(input_kind k)
{
    switch (k) {
    case INPUT_HUGE:
        return (uint8_t)(178 + random_below(4));
    case INPUT_TINY:
        return (uint8_t)(58 + random_below(4));
    case INPUT_DENORMAL:
        return (uint8_t)random_below(4);
    case INPUT_CODES:
        return (uint8_t)random_below(190);
    case INPUT_EQUAL:
        return 126;
    default:
        return (uint8_t)(122 + random_below(6));
    }
}

/* Two codes a byte and a scale for 32. Where sums shall cancel, both codes of a byte are one. */
static bt_view make_mxfp4(const shape *h)
{
    size_t n = h->n_rows * h->n_cols, n_scales = n / BT_MXFP4_BLOCK;
    uint8_t *codes = buffer(n / 2, 1, h->place), *scales = buffer(n_scales, 1, h->place);
    for (size_t i = 0; i < n / 2; i++) {
        codes[i] = h->kind == INPUT_EQUAL ? 0x33 : (uint8_t)random_u64();
        if (h->kind == INPUT_CANCEL) codes[i] = (uint8_t)((codes[i] & 15u) * 17);
    }
    for (size_t i = 0; i < n_scales; i++) scales[i] = random_scale(h->kind);
    if (h->kind == INPUT_NAN && n_scales > 0) scales[random_below(n_scales)] = 255;
    bt_view w = {.data = codes, .scale = scales, .n_rows = (uint32_t)h->n_rows, .n_cols = (uint32_t)h->n_cols};
    w.bytes = n / 2 + n_scales;
    w.dtype = BT_MXFP4, w.scale_dtype = BT_F8_E8M0;
    return w;
}

/* A matrix whose scales, for FP8, are of a random dtype and magnitude. */
static bt_view make_weights(const shape *h, bt_dtype d)
{
    if (d == BT_MXFP4) return make_mxfp4(h);
    size_t n = h->n_rows * h->n_cols;
    void *data = buffer(n * dtype_size(d), 1, h->place);
    fill_weights(data, n, d, h->kind);
    bt_view w = {.data = data, .n_rows = (uint32_t)h->n_rows, .n_cols = (uint32_t)h->n_cols, .dtype = (uint8_t)d};
    w.bytes = n * dtype_size(d);
    if (d != BT_F8_E4M3 || random_below(8) == 0) return w;
    static const bt_dtype scale_dtypes[] = {BT_F32, BT_F16, BT_BF16};
    size_t n_scales = (h->n_rows + 127) / 128 * ((h->n_cols + 127) / 128);
    w.scale_dtype = (uint8_t)scale_dtypes[random_below(3)];
    void *scale = buffer(n_scales * dtype_size((bt_dtype)w.scale_dtype), 1, h->place);
    fill_weights(scale, n_scales, (bt_dtype)w.scale_dtype, INPUT_NORMAL);
    if (w.scale_dtype == BT_F32 && n_scales > 0 &&
        random_below(8) == 0) { /* a scale whose product with 256 overflows */
        float huge = 0x1p122f;
        memcpy(scale, &huge, sizeof huge);
    }
    w.scale = scale;
    return w;
}

static double weight_at(const bt_view *w, size_t r, size_t k)
{
    if (w->dtype == BT_MXFP4) {
        static const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        size_t i = r * w->n_cols + k;
        unsigned code =
            (unsigned)((const uint8_t *)w->data)[i / 2] >> (i % 2 * 4) & 15u; /* the low nibble is the even one */
        uint8_t scale = ((const uint8_t *)w->scale)[i / BT_MXFP4_BLOCK];
        double v = scale == 255 ? (double)NAN : ldexp(values[code % 8], scale - 127);
        return code < 8 ? v : -v;
    }
    double v = decode(w->data, r * w->n_cols + k, (bt_dtype)w->dtype);
    if (!w->scale) return v;
    size_t block = r / 128 * ((w->n_cols + 127u) / 128) + k / 128;
    return (double)(float)(v * decode(w->scale, block, (bt_dtype)w->scale_dtype));
}

/* y[t][r] in f64, for MXFP4, whose scalar form is checked too. */
static float sum_of(const bt_linear *a, const float *y0, size_t t, size_t r)
{
    const float *x = a->x + (a->x_rows ? a->x_rows[t] : t) * a->x_stride;
    double sum = a->add ? (double)y0[0] : 0;
    for (size_t k = 0; k < a->w->n_cols; k++) sum += weight_at(a->w, r, k) * (double)x[k];
    return (float)sum;
}

/* The bound of y[t][r]; infinite where a partial sum may overflow. The square root takes roundings for independent,
 * which they are not where all terms are equal: there every addition of one of (at least) eight lanes errs the same
 * way. */
static double bound_of(const bt_linear *a, input_kind kind, const float *y0, size_t t, size_t r)
{
    const float *x = a->x + (a->x_rows ? a->x_rows[t] : t) * a->x_stride;
    double n = (double)a->w->n_cols, sum = 0;
    for (size_t k = 0; k < a->w->n_cols; k++) sum += fabs(weight_at(a->w, r, k) * (double)x[k]);
    double old = a->add ? fabs((double)y0[0]) : 0;
    if (sum + old > (double)FLT_MAX / 2) return HUGE_VAL;
    double roundings = kind == INPUT_EQUAL ? n / 8 + 5 : sqrt(n) + 4;
    return roundings * U * sum + (n + 4) * HALF_DENORMAL + 2 * U * (sum + old);
}

static void shuffle(uint32_t *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) rows[i] = (uint32_t)i;
    for (size_t i = n; i > 1; i--) {
        size_t j = random_below(i);
        uint32_t swap = rows[i - 1];
        rows[i - 1] = rows[j];
        rows[j] = swap;
    }
}

static void linear_case(const subject *s, const shape *h, bt_dtype d)
{
    bt_view w = make_weights(h, d);
    size_t x_stride = h->n_cols + random_below(3), y_stride = h->n_rows + random_below(3);
    size_t x_n = h->n_x ? (h->n_x - 1) * x_stride + h->n_cols : 0,
           y_n = h->n_x ? (h->n_x - 1) * y_stride + h->n_rows : 0;
    float *x = buffer(x_n * 4, 4, h->place), *y = buffer(y_n * 4, 4, h->place);
    uint32_t *x_rows = buffer(h->n_x * 4, 4, h->place), *y_rows = buffer(h->n_x * 4, 4, h->place);
    shuffle(x_rows, h->n_x);
    shuffle(y_rows, h->n_x);
    fill_activations(x, x_n, h->kind == INPUT_NAN ? INPUT_NORMAL : h->kind);
    fill_activations(y, y_n, INPUT_NORMAL);
    float *y0 = malloc(y_n * 4 + 4), *ref = malloc(y_n * 4 + 4);
    if (!y0 || !ref) abort();
    memcpy(y0, y, y_n * 4);
    memcpy(ref, y, y_n * 4);
    bt_linear a = {.y = ref, .x = x, .y_stride = y_stride, .x_stride = x_stride, .n_x = h->n_x, .w = &w};
    a.scratch = s->scratch, a.add = h->add;
    if (h->gathered) a.x_rows = x_rows, a.y_rows = y_rows;
    size_t r0 = random_below(h->n_rows + 1), r1 = h->n_rows; /* a range: row r0 is element 0 of y */
    if (random_below(2)) r0 = 0;
    s->ref->linear[d](&a, r0, r1);
    a.y = y;
    s->now->linear[d](&a, r0, r1);
    for (size_t t = 0; t < h->n_x; t++) {
        size_t at = (h->gathered ? y_rows[t] : t) * y_stride;
        for (size_t r = r0; r < r1; r++) {
            double bound = bound_of(&a, h->kind, y0 + at + r - r0, t, r);
            if (isinf(bound)) continue;
            if (d == BT_MXFP4) ref[at + r - r0] = sum_of(&a, y0 + at + r - r0, t, r);
            check_near(ref[at + r - r0], y[at + r - r0], bound, at + r - r0);
        }
        for (size_t i = r1 - r0; i < y_stride && at + i < y_n; i++)
            check_floats_same(y0 + at + i, y + at + i, 1, "between the rows of y");
    }
    free(y0);
    free(ref);
    buffers_release();
}

static void run_shape(const subject *s, bt_dtype d, shape h)
{
    check_case("%zu x %zu, %zu tokens, %s, placement %d%s%s", h.n_rows, h.n_cols, h.n_x, input_name(h.kind),
               (int)h.place, h.add ? ", add" : "", h.gathered ? ", gathered" : "");
    linear_case(s, &h, d);
}

static size_t whole_blocks(size_t n_cols)
{
    return (n_cols + BT_MXFP4_BLOCK - 1) / BT_MXFP4_BLOCK * BT_MXFP4_BLOCK;
}

static void check_dtype(const subject *s, bt_dtype d)
{
    static const size_t widths[] = {0,  1,  7,  8,   9,   15,  16,  17,  31,  33,  63,
                                    64, 65, 97, 127, 128, 129, 131, 255, 257, 521, 1031};
    static const size_t tokens[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 67};
    static const size_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 17, 131};
    for (placement place = 0; place < PLACE_N; place++)
        for (input_kind kind = 0; kind < INPUT_N; kind++) {
            for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
                for (size_t j = 0; j < (s->o->quick ? 2u : 6u); j++) {
                    shape h = {rows[random_below(j < 5 ? 11 : 12)],
                               widths[i],
                               tokens[random_below(11)],
                               kind,
                               place,
                               random_below(3) == 0,
                               random_below(2) == 0};
                    if (j == 0) h.n_x = 1; /* the form of its own */
                    if (d == BT_MXFP4) h.n_cols = whole_blocks(h.n_cols);
                    run_shape(s, d, h);
                }
            for (size_t cols = 2560; cols <= (s->o->quick ? 2560u : 10240u); cols *= 2)
                run_shape(s, d, (shape){9, cols, 1 + random_below(2) * 6, kind, place, false, false});
        }
}

/* Every code with every scale in every column of a block, alone: its exact value comes out. */
static void check_mxfp4_values(const subject *s, size_t n_x)
{
    float x[2 * BT_MXFP4_BLOCK], y[2 * 16];
    uint8_t codes[16][BT_MXFP4_BLOCK / 2], scales[16];
    bt_view w = {.data = codes, .scale = scales, .n_rows = 16, .n_cols = BT_MXFP4_BLOCK, .dtype = BT_MXFP4};
    w.scale_dtype = BT_F8_E8M0;
    bt_linear a = {.y = y, .x = x, .y_stride = 16, .x_stride = BT_MXFP4_BLOCK, .n_x = n_x, .w = &w};
    a.scratch = s->scratch;
    for (size_t k = 0; k < BT_MXFP4_BLOCK; k++) {
        memset(codes, 0, sizeof codes);
        for (size_t r = 0; r < 16; r++) codes[r][k / 2] = (uint8_t)(r << (k % 2 * 4));
        for (size_t i = 0; i < 2 * BT_MXFP4_BLOCK; i++) x[i] = i % BT_MXFP4_BLOCK == k;
        for (size_t scale = 0; scale < 256; scale++) {
            check_case("scale %zu, column %zu, %zu tokens", scale, k, n_x);
            memset(scales, (int)scale, sizeof scales);
            s->now->linear[BT_MXFP4](&a, 0, 16);
            for (size_t i = 0; i < 16 * n_x; i++) check_near((float)weight_at(&w, i % 16, k), y[i], 0, i);
        }
    }
}

void check_linear(const subject *s)
{
    for (bt_dtype d = BT_F32; d < BT_N_WEIGHT_DTYPES; d++) {
        char name[32];
        snprintf(name, sizeof name, "linear_%s", dtype_names[d]);
        bool is_bottom = d == BT_MXFP4 && s->now->level == BT_CPU_SCALAR;
        if ((s->now->linear[d] == s->below->linear[d] && !is_bottom) || !check_begin(s, name)) continue;
        check_dtype(s, d);
        if (d == BT_MXFP4) check_mxfp4_values(s, 1), check_mxfp4_values(s, 2);
        check_end();
    }
}

/* ---- invariance ---- */

#define MANY 512u

typedef struct invariance {
    const subject *s;
    bt_dtype d;
    bt_view w;
    const float *x; /* [MANY][n_cols] */
    float *all;     /* [MANY][n_rows]: all tokens, all rows, in one call */
    float *part;    /* the same shape */
} invariance;

static void call(const invariance *v, float *y, size_t t, size_t n_x, const uint32_t *x_rows, const uint32_t *y_rows,
                 size_t r0, size_t r1)
{
    size_t n_rows = v->w.n_rows, n_cols = v->w.n_cols;
    bt_linear a = {.y = y + (y_rows ? 0 : t * n_rows) + r0, .x = v->x + (x_rows ? 0 : t * n_cols), .x_rows = x_rows};
    a.y_rows = y_rows, a.y_stride = n_rows, a.x_stride = n_cols, a.n_x = n_x, a.w = &v->w, a.scratch = v->s->scratch;
    v->s->now->linear[v->d](&a, r0, r1);
}

static void compare(const invariance *v, const char *what)
{
    check_floats_same(v->all, v->part, (size_t)MANY * v->w.n_rows, what);
    memset(v->part, 0xff, (size_t)MANY * v->w.n_rows * sizeof(float));
}

/* All tokens, n_x at a time. */
static void by_tokens(const invariance *v, size_t n_x)
{
    check_case("%u x %u, %zu tokens a call", v->w.n_rows, v->w.n_cols, n_x);
    for (size_t t = 0; t < MANY; t += n_x) {
        size_t n = MANY - t < n_x ? MANY - t : n_x;
        call(v, v->part, t, n, NULL, NULL, 0, v->w.n_rows);
    }
    compare(v, "tokens split");
}

/* All rows, cut at random places, each piece with a random number of tokens a call. */
static void by_rows(const invariance *v)
{
    check_case("%u x %u, rows split", v->w.n_rows, v->w.n_cols);
    for (size_t r = 0; r < v->w.n_rows;) {
        size_t left = v->w.n_rows - r, n = 1 + random_below(left < 29 ? left : 29), n_x = 1 + random_below(MANY);
        for (size_t t = 0; t < MANY; t += n_x)
            call(v, v->part, t, MANY - t < n_x ? MANY - t : n_x, NULL, NULL, r, r + n);
        r += n;
    }
    compare(v, "rows split");
}

/* All rows in runs side by side, as one token may ask for them, a few rows of each a call. */
static void by_runs(const invariance *v, size_t n_runs)
{
    check_case("%u x %u, %zu runs", v->w.n_rows, v->w.n_cols, n_runs);
    size_t apart = v->w.n_rows / n_runs, n_rows = v->w.n_rows;
    for (size_t t = 0; t < MANY; t++) {
        for (size_t r = 0, n; r < apart; r += n) {
            n = 1 + random_below(apart - r);
            bt_linear a = {.y = v->part + t * n_rows + r, .x = v->x + t * v->w.n_cols, .n_x = 1, .w = &v->w};
            a.y_stride = n_rows, a.x_stride = v->w.n_cols, a.scratch = v->s->scratch;
            a.n_runs = n_runs, a.apart = apart;
            v->s->now->linear[v->d](&a, r, r + n);
        }
        call(v, v->part, t, 1, NULL, NULL, apart * n_runs, n_rows);
    }
    compare(v, "rows in runs");
}

/* All tokens in another order, gathered and scattered by the same list. */
static void by_order(const invariance *v)
{
    uint32_t rows[MANY];
    check_case("%u x %u, tokens shuffled", v->w.n_rows, v->w.n_cols);
    shuffle(rows, MANY);
    for (size_t t = 0; t < MANY;) {
        size_t left = MANY - t, n = 1 + random_below(left < 100 ? left : 100);
        call(v, v->part, t, n, rows + t, rows + t, 0, v->w.n_rows);
        t += n;
    }
    compare(v, "tokens shuffled");
}

static void invariance_of(const subject *s, bt_dtype d, size_t n_rows, size_t n_cols)
{
    static const size_t n_x[] = {1, 2, 3, 4, 5, 6, 7, 64, 71};
    if (d == BT_MXFP4) n_cols = whole_blocks(n_cols);
    shape h = {n_rows, n_cols, MANY, random_below(2) ? INPUT_NORMAL : INPUT_CANCEL, PLACE_POISONED, false, false};
    invariance v = {.s = s, .d = d, .w = make_weights(&h, d)};
    float *x = buffer(MANY * n_cols * 4, 4, PLACE_POISONED);
    fill_activations(x, MANY * n_cols, h.kind);
    v.x = x;
    v.all = malloc(MANY * n_rows * 4);
    v.part = malloc(MANY * n_rows * 4);
    if (!v.all || !v.part) abort();
    memset(v.part, 0xff, MANY * n_rows * 4);
    call(&v, v.all, 0, MANY, NULL, NULL, 0, n_rows);
    for (size_t i = 0; i < sizeof n_x / sizeof *n_x; i++) by_tokens(&v, n_x[i]);
    by_rows(&v);
    if (s->now->n_streams[d] > 1) by_runs(&v, s->now->n_streams[d]);
    by_order(&v);
    free(v.all);
    free(v.part);
    buffers_release();
}

void check_linear_invariance(const subject *s)
{
    for (bt_dtype d = BT_F32; d < BT_N_WEIGHT_DTYPES; d++) {
        char name[32];
        snprintf(name, sizeof name, "invariance_linear_%s", dtype_names[d]);
        if (!check_begin(s, name)) continue;
        invariance_of(s, d, 37, 131);
        invariance_of(s, d, 9, s->o->quick ? 700 : 1411);
        invariance_of(s, d, 7, 2950); /* more columns than a block: accumulators are put away and taken up again */
        if (!s->o->quick) invariance_of(s, d, 253, 96);
        if (!s->o->quick) invariance_of(s, d, 29, 5137);
        check_end();
    }
}
