/*
 * For the tests of ops: random weights of any dtype, a tape over them, and a plan on the cpu backend whose scratch the
 * test fills and reads directly.
 */
#ifndef TESTS_OPS_WORLD_H
#define TESTS_OPS_WORLD_H

#include "unit.h"

#include <math.h>

#include "backend/cpu/cpu.h"
#include "base/rng.h"

#define WORLD_WEIGHTS_MAX 256u

/* The sanitizer under which a test is slow; what it looks for needs no long run. */
#if defined(__SANITIZE_THREAD__)
#    define WORLD_TSAN 1
#elif defined(__has_feature)
#    if __has_feature(thread_sanitizer)
#        define WORLD_TSAN 1
#    endif
#endif
#ifndef WORLD_TSAN
#    define WORLD_TSAN 0
#endif

typedef struct world {
    bt_view views[WORLD_WEIGHTS_MAX];
    void *blobs[2 * WORLD_WEIGHTS_MAX];
    uint32_t n_views, n_blobs;
    uint64_t seed;
    bt_tape_builder *b;
    bt_tape *tape;
    bt_backend *backend;
    bt_plan *plan;
} world;

static inline void *world_blob(world *w, size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(p);
    assert_true(w->n_blobs < 2 * WORLD_WEIGHTS_MAX);
    w->blobs[w->n_blobs++] = p;
    return p;
}

static inline void world_encode(void *data, size_t i, bt_dtype dtype, float x)
{
    if (dtype == BT_F32) ((float *)data)[i] = x;
    if (dtype == BT_F16) ((uint16_t *)data)[i] = bt_f32_to_f16(x);
    if (dtype == BT_BF16) ((uint16_t *)data)[i] = bt_f32_to_bf16(x);
    if (dtype == BT_F8_E4M3) ((uint8_t *)data)[i] = bt_f32_to_f8_e4m3(x);
}

/* A random matrix of about size `size`, around `mean`; FP8 gets block scales where `scaled`. */
static inline uint32_t world_matrix(world *w, uint32_t n_rows, uint32_t n_cols, bt_dtype dtype, double mean,
                                    double size, bool scaled)
{
    size_t n = (size_t)n_rows * n_cols;
    assert_true(w->n_views < WORLD_WEIGHTS_MAX);
    void *data = world_blob(w, n * 4);
    for (size_t i = 0; i < n; i++)
        world_encode(data, i, dtype, (float)(mean + size * (double)bt_rng_normal(w->seed, i)));
    bt_view v = {.data = data, .n_rows = n_rows, .n_cols = n_cols, .dtype = (uint8_t)dtype};
    if (scaled) {
        size_t n_scales = ((size_t)n_rows + 127) / 128 * (((size_t)n_cols + 127) / 128);
        float *scale = world_blob(w, n_scales * sizeof *scale);
        for (size_t i = 0; i < n_scales; i++) scale[i] = (float)(0.5 + bt_rng_f64(w->seed + 1, i));
        v.scale = scale;
        v.scale_dtype = BT_F32;
    }
    w->seed += 2;
    w->views[w->n_views] = v;
    return w->n_views++;
}

/* Random codes and scales of 1/32 to 1/4. */
static inline uint32_t world_mxfp4(world *w, uint32_t n_rows, uint32_t n_cols)
{
    size_t n = (size_t)n_rows * n_cols;
    assert_true(w->n_views < WORLD_WEIGHTS_MAX && n_cols % 32 == 0);
    uint8_t *codes = world_blob(w, n / 2), *scales = world_blob(w, n / 32);
    for (size_t i = 0; i < n / 2; i++) codes[i] = (uint8_t)bt_rng_u64(w->seed, i);
    for (size_t i = 0; i < n / 32; i++) scales[i] = (uint8_t)(122 + bt_rng_u64(w->seed + 1, i) % 4);
    w->seed += 2;
    w->views[w->n_views] = (bt_view){.data = codes,
                                     .scale = scales,
                                     .bytes = n / 2 + n / 32,
                                     .n_rows = n_rows,
                                     .n_cols = n_cols,
                                     .dtype = BT_MXFP4,
                                     .scale_dtype = BT_F8_E8M0};
    return w->n_views++;
}

static inline uint32_t world_linear(world *w, uint32_t n_rows, uint32_t n_cols, bt_dtype dtype)
{
    return world_matrix(w, n_rows, n_cols, dtype, 0, 1 / sqrt(n_cols), dtype == BT_F8_E4M3);
}

static inline uint32_t world_vector(world *w, uint32_t n, bt_dtype dtype)
{
    return world_matrix(w, 1, n, dtype, 1, 0.2, false);
}

/* Element (r, c) of a weight. */
static inline double world_weight(const world *w, uint32_t weight, uint32_t r, uint32_t c)
{
    const bt_view *v = &w->views[weight];
    size_t i = (size_t)r * v->n_cols + c;
    float x = 0;
    if (v->dtype == BT_MXFP4) {
        uint8_t code = ((const uint8_t *)v->data)[i / 2];
        x = bt_e2m1_to_f32(i % 2 == 0 ? code & 15 : code >> 4);
        return (double)(x * bt_e8m0_to_f32(((const uint8_t *)v->scale)[i / 32]));
    }
    if (v->dtype == BT_F32) x = ((const float *)v->data)[i];
    if (v->dtype == BT_F16) x = bt_f16_to_f32(((const uint16_t *)v->data)[i]);
    if (v->dtype == BT_BF16) x = bt_bf16_to_f32(((const uint16_t *)v->data)[i]);
    if (v->dtype == BT_F8_E4M3) x = bt_f8_e4m3_to_f32(((const uint8_t *)v->data)[i]);
    if (v->scale != NULL) x *= ((const float *)v->scale)[r / 128 * ((v->n_cols + 127) / 128) + c / 128];
    return (double)x;
}

/* Row r of a weight times x. */
static inline double world_product(const world *w, uint32_t weight, uint32_t r, const double *x)
{
    double sum = 0;
    for (uint32_t c = 0; c < w->views[weight].n_cols; c++) sum += world_weight(w, weight, r, c) * x[c];
    return sum;
}

/* All weights must exist before the tape begins. */
static inline void world_begin(world *w, const bt_limits *limits)
{
    assert_int_equal(bt_tape_begin(limits, w->views, w->n_views, &w->b, NULL), BT_OK);
}

static inline void world_finish(world *w, bt_act logits)
{
    assert_int_equal(bt_tape_finish(w->b, logits, &w->tape, NULL), BT_OK);
    w->b = NULL;
}

/* For tapes without a head. */
static inline void world_finish_body(world *w)
{
    bt_tape_head(w->b);
    world_finish(w, bt_tape_act(w->b, BT_SPACE_LOGITS, 1));
}

static inline void world_close_plan(world *w)
{
    if (w->plan != NULL) bt_cpu_backend.plan_close(w->plan);
    if (w->backend != NULL) bt_cpu_backend.close(w->backend);
    w->plan = NULL;
    w->backend = NULL;
}

static inline void world_open_plan(world *w, bt_cpu_level level, size_t n_threads)
{
    world_close_plan(w);
    bt_backend_options o = {.n_threads = n_threads, .cpu_level = level};
    assert_int_equal(bt_cpu_backend.open(&o, &w->backend, NULL), BT_OK);
    assert_int_equal(bt_cpu_backend.plan_open(w->backend, w->tape, &w->plan, NULL), BT_OK);
}

static inline void world_close(world *w)
{
    world_close_plan(w);
    bt_tape_free(w->tape);
    for (uint32_t i = 0; i < w->n_blobs; i++) free(w->blobs[i]);
    memset(w, 0, sizeof *w);
}

static inline float *world_row(const world *w, bt_act a, uint32_t row)
{
    return ((bt_cpu_plan *)w->plan)->activations + a.offset + (size_t)row * a.stride;
}

static inline int32_t *world_row_i32(const world *w, bt_act a, uint32_t row)
{
    return (int32_t *)(void *)world_row(w, a, row);
}

static inline void world_fill(world *w, bt_act a, uint32_t n_rows)
{
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < a.width; i++)
            world_row(w, a, r)[i] = bt_rng_normal(w->seed, (uint64_t)r * a.width + i);
    w->seed++;
}

/* A copy of rows as doubles, [n_rows][width]; freed by the caller. */
static inline double *world_copy(const world *w, bt_act a, uint32_t n_rows)
{
    double *p = malloc((size_t)n_rows * a.width * sizeof *p);
    assert_non_null(p);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < a.width; i++) p[(size_t)r * a.width + i] = (double)world_row(w, a, r)[i];
    return p;
}

/* One timeline in slot 0 from position 0, no logits. */
static inline void world_run(const world *w, uint32_t n_rows)
{
    static const int32_t zeros[4096];
    bt_segment g = {.n_rows = n_rows};
    bt_step s = {.ids = zeros, .n_rows = n_rows, .segments = &g, .n_segments = 1};
    assert_int_equal(bt_cpu_backend.run(w->plan, &s, BT_RUN_ALL, NULL), BT_OK);
}

/* One step over segments whose rows the test has filled; ids of zero, no logits. */
static inline void world_step(const world *w, const bt_segment *segments, uint32_t n_segments)
{
    static const int32_t zeros[4096];
    const bt_segment *last = &segments[n_segments - 1];
    bt_step s = {.ids = zeros, .n_rows = last->row + last->n_rows, .segments = segments, .n_segments = n_segments};
    assert_int_equal(bt_cpu_backend.run(w->plan, &s, BT_RUN_ALL, NULL), BT_OK);
}

static inline double world_act(double x, uint32_t act)
{
    if (act == 0) return 1 / (1 + exp(-x));
    if (act == 1) return x / (1 + exp(-x));
    return log2(1 + exp2(x));
}

static inline void world_close_to(double got, double expected, double tolerance, const char *what, size_t i)
{
    if (fabs(got - expected) <= tolerance * (1 + fabs(expected))) return;
    fail_msg("%s, element %zu: %.9g, expected %.9g", what, i, got, expected);
}

#endif
