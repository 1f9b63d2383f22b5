/*
 * Checks of what goes over a vector once. u is the unit roundoff; the bounds count the roundings of a kernel and of the
 * reference (which has one). exp costs 2.5 u (argument 0.7, polynomial 1.8), the sigmoid 4.5, a product one more.
 */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U UNIT_ROUNDOFF

static const size_t lengths[] = {0,  1,  2,  3,  5,  7,  8,  9,   11,  13,  15,  16,  17,   23,  31,
                                 32, 33, 47, 63, 64, 65, 97, 127, 128, 129, 257, 521, 1000, 2560};
#define N_LENGTHS (sizeof lengths / sizeof *lengths)

/* The ends of the range, and where exp turns into 0, a denormal, infinity. */
static const float corners[] = {0.0f,    -0.0f, 1e-40f,  -1e-40f, 0x1p-24f, -0x1p-24f, 1,        -1,
                                17,      -17,   87.3f,   -87.3f,  88.72f,   88.73f,    -88.73f,  -89,
                                -103.9f, -104,  -104.1f, -149,    -150.5f,  126,       128,      -126,
                                -128,    1000,  -1000,   3e38f,   -3e38f,   INFINITY,  -INFINITY};
#define N_CORNERS (sizeof corners / sizeof *corners)

/* Inputs of one case: ordinary numbers over the range that activations have, corners now and then, a NaN sometimes. */
static void fill_mixed(float *x, size_t n, size_t round)
{
    double magnitude = round % 3 == 0 ? 1 : round % 3 == 1 ? 30 : 1e-3;
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(random_normal() * magnitude);
        if (random_below(8) == 0) x[i] = corners[random_below(N_CORNERS)];
    }
    if (n > 0 && round % 5 == 4) x[random_below(n)] = NAN;
}

/* Numbers for kernels that only add and multiply: nothing that overflows in one order and not in another. */
static void fill_plain(float *x, size_t n, size_t round)
{
    fill_activations(x, n, round % 4 == 0 ? INPUT_TINY : round % 4 == 1 ? INPUT_HUGE : INPUT_NORMAL);
    if (n > 0 && round % 5 == 4) x[random_below(n)] = NAN;
}

static size_t n_rounds(const subject *s)
{
    return s->o->quick ? 5 : 15;
}

/* A copy in ordinary memory, for the reference to work on; freed by the caller. */
static float *copy_of(const float *x, size_t n)
{
    float *y = malloc((n + 1) * sizeof *y);
    if (!y) abort();
    if (n > 0) memcpy(y, x, n * sizeof *y);
    return y;
}

/* ---- sums ---- */

static void add_case(const subject *s, size_t n, size_t round, placement place, bool scaled)
{
    float *y = buffer(n * 4, 4, place), *x = buffer(n * 4, 4, place), a = (float)random_normal();
    fill_plain(y, n, round);
    fill_plain(x, n, round);
    float *y0 = copy_of(y, n), *ref = copy_of(y, n);
    if (scaled) {
        s->ref->scale_add(ref, x, a, n);
        s->now->scale_add(y, x, a, n);
        for (size_t i = 0; i < n; i++) check_near(ref[i], y[i], 2 * U * fabs((double)ref[i]) + 2 * HALF_DENORMAL, i);
    } else {
        s->ref->add(ref, x, n);
        s->now->add(y, x, n);
        check_floats_same(ref, y, n, "y + x"); /* one rounding: no choice */
    }
    free(y0);
    free(ref);
    buffers_release();
}

/* ---- activations ---- */

static const char *const act_names[] = {"sigmoid", "silu", "softplus2"};

typedef enum act_entry { ENTRY_ACT, ENTRY_GATE_MUL, ENTRY_ACT_MUL } act_entry;

static void act_call(const bt_kernels *k, act_entry e, float *y, const float *g, const float *u, size_t n,
                     bt_act_kind kind)
{
    if (e == ENTRY_ACT) k->act(y, g, n, kind);
    if (e == ENTRY_GATE_MUL) k->gate_mul(y, g, n, kind);
    if (e == ENTRY_ACT_MUL) k->act_mul(y, g, u, n, kind);
}

/* act: 10 u (softplus2's 8 and the reference's one, rounded up). A denormal intermediate loses up to half of the last
 * place, which silu multiplies by x (at most 200 where that happens) and the product by its other factor. */
static void act_case(const subject *s, act_entry e, bt_act_kind kind, size_t n, size_t round, placement place)
{
    float *y = buffer(n * 4, 4, place), *g = buffer(n * 4, 4, place), *u = buffer(n * 4, 4, place);
    fill_mixed(g, n, round);
    fill_plain(u, n, round == 1 ? 2 : round);
    memcpy(y, u, n * 4);
    if (round % 4 == 3 && e != ENTRY_GATE_MUL) g = y; /* in place, as the contract allows */
    float *g0 = copy_of(g, n), *ref = copy_of(y, n);
    act_call(s->ref, e, ref, g0, u, n, kind);
    act_call(s->now, e, y, g, u, n, kind);
    for (size_t i = 0; i < n; i++) {
        double factor = e == ENTRY_ACT ? 1 : fabs((double)u[i]);
        double lost = HALF_DENORMAL * (kind == BT_ACT_SILU ? 204 : 4);
        check_near(ref[i], y[i], 12 * U * fabs((double)ref[i]) + lost * (factor + 1), i);
    }
    free(g0);
    free(ref);
    buffers_release();
}

static void check_act_entry(const subject *s, act_entry e, const char *name)
{
    for (bt_act_kind kind = BT_ACT_SIGMOID; kind <= BT_ACT_SOFTPLUS2; kind++) {
        char full[32];
        snprintf(full, sizeof full, "%s_%s", name, act_names[kind]);
        if (!check_begin(s, full)) continue;
        for (placement place = 0; place < PLACE_N; place++)
            for (size_t round = 0; round < n_rounds(s); round++)
                for (size_t i = 0; i < N_LENGTHS; i++) {
                    check_case("n %zu, round %zu, placement %d", lengths[i], round, (int)place);
                    act_case(s, e, kind, lengths[i], round, place);
                }
        check_end();
    }
}

/* ---- norm and rope ---- */

/* y = (x r) w: three roundings, one of r in f64, against one. x r may be denormal and w large. */
static void norm_case(const subject *s, size_t n, size_t n_groups, size_t round, placement place)
{
    float *y = buffer(n * 4, 4, place), *x = buffer(n * 4, 4, place), *w = buffer(n * 4, 4, place);
    fill_plain(x, n, round);
    fill_activations(w, n, INPUT_NORMAL);
    if (round % 3 == 2) x = memcpy(y, x, n * 4);
    float *x0 = copy_of(x, n), *ref = copy_of(x, n);
    s->ref->rms_norm(ref, x0, w, n, n_groups, 1e-6f);
    s->now->rms_norm(y, x, w, n, n_groups, 1e-6f);
    for (size_t i = 0; i < n; i++)
        check_near(ref[i], y[i], 4 * U * fabs((double)ref[i]) + HALF_DENORMAL * (2 + fabs((double)w[i])), i);
    free(x0);
    free(ref);
    buffers_release();
}

/* a c - b s: one rounding of a product, one of the sum. Elements between the pairs stay as they are. */
static void rope_case(const subject *s, size_t n_pairs, size_t half, size_t round, placement place)
{
    float *x = buffer(2 * half * 4, 4, place), *angles = buffer(2 * n_pairs * 4, 4, place);
    fill_plain(x, 2 * half, round);
    for (size_t j = 0; j < n_pairs; j++) {
        double turn = random_normal() * 10;
        angles[j] = (float)cos(turn);
        angles[n_pairs + j] = (float)sin(turn);
    }
    float *ref = copy_of(x, 2 * half), *x0 = copy_of(x, 2 * half);
    s->ref->rope(ref, angles, n_pairs, half);
    s->now->rope(x, angles, n_pairs, half);
    for (size_t i = 0; i < 2 * half; i++) {
        double pair = fabs((double)x0[i % half]) + fabs((double)x0[i % half + half]);
        bool turned = i % half < n_pairs;
        check_near(ref[i], x[i], turned ? 3 * U * pair + 4 * HALF_DENORMAL : 0, i);
    }
    free(ref);
    free(x0);
    buffers_release();
}

static void check_norm(const subject *s)
{
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t round = 0; round < n_rounds(s); round++)
            for (size_t i = 0; i < N_LENGTHS; i++) {
                size_t n_groups = 1 + random_below(4);
                check_case("%zu groups of %zu, round %zu, placement %d", n_groups, lengths[i], round, (int)place);
                norm_case(s, n_groups * lengths[i], n_groups, round, place);
            }
}

static void check_rope(const subject *s)
{
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t round = 0; round < n_rounds(s); round++)
            for (size_t i = 0; i < N_LENGTHS && lengths[i] < 300; i++) {
                size_t half = lengths[i] + (round % 2 == 0 ? 0 : random_below(9));
                check_case("%zu pairs of %zu, round %zu, placement %d", lengths[i], half, round, (int)place);
                rope_case(s, lengths[i], half, round, place);
            }
}

static void check_add(const subject *s, bool scaled)
{
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t round = 0; round < n_rounds(s); round++)
            for (size_t i = 0; i < N_LENGTHS; i++) {
                check_case("n %zu, round %zu, placement %d", lengths[i], round, (int)place);
                add_case(s, lengths[i], round, place, scaled);
            }
}

/* Tail elements must get the bits of the vector body: x[i] is computed at every position of a vector. */
static void check_positions(const subject *s)
{
    float x[40], y[40], one;
    for (bt_act_kind kind = BT_ACT_SIGMOID; kind <= BT_ACT_SOFTPLUS2; kind++)
        for (size_t round = 0; round < 50; round++) {
            fill_mixed(x, 40, round);
            s->now->act(y, x, 40, kind);
            for (size_t i = 0; i < 40; i++) {
                check_case("%s of %g alone and at position %zu", act_names[kind], (double)x[i], i);
                s->now->act(&one, x + i, 1, kind);
                check_floats_same(y + i, &one, 1, "bits");
            }
        }
}

void check_elementwise(const subject *s)
{
    const bt_kernels *k = s->now, *b = s->below;
    if (k->add != b->add && check_begin(s, "add")) check_add(s, false), check_end();
    if (k->scale_add != b->scale_add && check_begin(s, "scale_add")) check_add(s, true), check_end();
    if (k->act != b->act) check_act_entry(s, ENTRY_ACT, "act");
    if (k->gate_mul != b->gate_mul) check_act_entry(s, ENTRY_GATE_MUL, "gate_mul");
    if (k->act_mul != b->act_mul) check_act_entry(s, ENTRY_ACT_MUL, "act_mul");
    if (check_begin(s, "act_positions")) check_positions(s), check_end();
    if (k->rms_norm != b->rms_norm && check_begin(s, "rms_norm")) check_norm(s), check_end();
    if (k->rope != b->rope && check_begin(s, "rope")) check_rope(s), check_end();
}

/* ---- widen and narrow: exact ---- */

static const char *const dtype_names[BT_N_WEIGHT_DTYPES] = {"f32", "f16", "bf16", "f8", "mxfp4"};

/* All codes of a type (or a million random f32), then short runs at every length among guards. */
static void check_widen(const subject *s, bt_dtype d)
{
    size_t n_codes = d == BT_F8_E4M3 ? 256 : 65536;
    float *y = malloc(n_codes * 4), *ref = malloc(n_codes * 4);
    uint16_t *codes = malloc(n_codes * 2);
    if (!y || !ref || !codes) abort();
    for (size_t i = 0; i < n_codes; i++) codes[i] = (uint16_t)i;
    if (d == BT_F8_E4M3)
        for (size_t i = 0; i < n_codes; i++) ((uint8_t *)codes)[i] = (uint8_t)i;
    check_case("every code");
    s->ref->widen[d](ref, codes, n_codes);
    s->now->widen[d](y, codes, n_codes);
    check_floats_same(ref, y, n_codes, "widened");
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t n = 0; n < 70; n++) {
            check_case("n %zu, placement %d", n, (int)place);
            void *x = buffer(n * dtype_size(d), 1, place);
            float *out = buffer(n * 4, 4, place);
            fill_weights(x, n, d, INPUT_CODES);
            s->ref->widen[d](ref, x, n);
            s->now->widen[d](out, x, n);
            check_floats_same(ref, out, n, "widened");
            buffers_release();
        }
    free(y);
    free(ref);
    free(codes);
}

static void narrow_input(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)random_u64();
        if (random_below(4) == 0) bits &= 0xffff8000u | (uint32_t)random_u64() % 3; /* near ties */
        if (random_below(4) == 0) bits = (bits & 0x8fffffffu) | 0x30000000u;        /* in the range of f16 */
        memcpy(x + i, &bits, sizeof bits);
    }
}

static void check_narrow(const subject *s, bt_dtype d)
{
    size_t n_many = s->o->quick ? 100000 : 2000000, bytes = dtype_size(d);
    float *x = malloc(n_many * 4);
    char *y = malloc(n_many * bytes), *ref = malloc(n_many * bytes);
    if (!x || !y || !ref) abort();
    check_case("random bits");
    narrow_input(x, n_many);
    s->ref->narrow[d](ref, x, n_many);
    s->now->narrow[d](y, x, n_many);
    check_bits(ref, y, n_many * bytes, "narrowed");
    for (placement place = 0; place < PLACE_N; place++)
        for (size_t n = 0; n < 70; n++) {
            check_case("n %zu, placement %d", n, (int)place);
            float *in = buffer(n * 4, 4, place);
            void *out = buffer(n * bytes, 1, place);
            narrow_input(in, n);
            s->ref->narrow[d](ref, in, n);
            s->now->narrow[d](out, in, n);
            check_bits(ref, out, n * bytes, "narrowed");
            buffers_release();
        }
    free(x);
    free(y);
    free(ref);
}

void check_conversions(const subject *s)
{
    for (bt_dtype d = BT_F32; d < BT_N_WEIGHT_DTYPES; d++) {
        char name[32];
        snprintf(name, sizeof name, "widen_%s", dtype_names[d]);
        if (s->now->widen[d] != s->below->widen[d] && check_begin(s, name)) check_widen(s, d), check_end();
        snprintf(name, sizeof name, "narrow_%s", dtype_names[d]);
        if (s->now->narrow[d] != s->below->narrow[d] && check_begin(s, name)) check_narrow(s, d), check_end();
    }
}

/* ---- route ---- */

typedef struct route_out {
    int32_t ids[64];
    float weights[64];
} route_out;

static void route_call(const bt_kernels *k, bt_route r, route_out *out, placement place)
{
    r.ids = buffer(r.k * 4, 4, place);
    r.weights = buffer(r.k * 4, 4, place);
    r.scratch = buffer(2 * r.n * 4, 4, place);
    k->route(&r);
    memcpy(out->ids, r.ids, r.k * 4);
    memcpy(out->weights, r.weights, r.k * 4);
}

/* Logits are a shuffled ladder whose steps are far wider than any rounding, so that the ids must agree; the weights are
 * quotients of scores: exp 2.5 u, its argument |x| u, the sums sqrt(n) u. */
static void route_case(const subject *s, size_t n, size_t round, placement place)
{
    float *logits = buffer(n * 4, 4, place), *bias = buffer(n * 4, 4, place);
    for (size_t i = 0; i < n; i++) logits[i] = (float)(0.03 * (double)i - 1.5);
    for (size_t i = n; i > 1; i--) {
        size_t j = random_below(i);
        float swap = logits[i - 1];
        logits[i - 1] = logits[j];
        logits[j] = swap;
    }
    for (size_t i = 0; i < n; i++) bias[i] = (float)random_below(3) * 5; /* whole classes, wider than the scores */
    if (round % 5 == 4) logits[random_below(n)] = NAN;
    bt_route r = {.logits = logits, .bias = round % 2 ? bias : NULL, .n = n, .k = 1 + random_below(n < 16 ? n : 16)};
    r.score = round % 3 ? BT_SCORE_SIGMOID : BT_SCORE_SOFTMAX;
    r.renormalise = round % 4 < 2;
    r.scale = round % 7 ? 2.5f : 1;
    r.force = round % 6 == 5 ? (int32_t)random_below(n) : -1;
    route_out ref, now;
    route_call(s->ref, r, &ref, place);
    route_call(s->now, r, &now, place);
    bool all_nan = r.score == BT_SCORE_SOFTMAX && round % 5 == 4; /* then there is nothing to order by */
    if (!all_nan) check_bits(ref.ids, now.ids, r.k * 4, "ids");
    double u = (2 * (sqrt((double)n) + 12) + 4 + 0.03 * (double)n) * U;
    for (size_t i = 0; i < r.k; i++) {
        check_that(now.ids[i] >= 0 && (size_t)now.ids[i] < n, "an id is out of range");
        check_near(ref.weights[i], now.weights[i], u * fabs((double)ref.weights[i]) + 2 * HALF_DENORMAL, i);
    }
    if (r.force >= 0) check_that(now.ids[0] == r.force, "the forced expert is first");
    buffers_release();
}

/* Equal scores: the lower index wins, and none is chosen twice. */
static void route_ties(const subject *s)
{
    float logits[40], scratch[80];
    route_out out;
    for (size_t i = 0; i < 40; i++) logits[i] = i % 2 ? 0.5f : 0.25f;
    bt_route r = {.logits = logits, .n = 40, .k = 30, .scale = 1, .force = -1, .score = BT_SCORE_SIGMOID};
    r.ids = out.ids, r.weights = out.weights, r.scratch = scratch;
    s->now->route(&r);
    for (size_t i = 0; i < 30; i++)
        check_that(out.ids[i] == (int32_t)(i < 20 ? 2 * i + 1 : 2 * (i - 20)), "ties go to the lower index");
}

void check_route(const subject *s)
{
    if (!check_begin(s, "route")) return;
    check_case("ties");
    route_ties(s);
    for (placement place = 0; place < PLACE_N && s->now->route != s->below->route; place++)
        for (size_t round = 0; round < 4 * n_rounds(s); round++)
            for (size_t n = 1; n <= 128; n = n < 20 ? n + 1 : n * 2 - 7) {
                check_case("%zu experts, round %zu, placement %d", n, round, (int)place);
                route_case(s, n, round, place);
            }
    check_end();
}
