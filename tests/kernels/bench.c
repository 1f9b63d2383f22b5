/*
 * check-kernels --bench: nanoseconds, GB/s and GFLOP/s of the kernels beside the machine's roofs. All measurements are
 * taken in turn, round after round, so that a busy neighbour hits roofs and kernels alike; each line shows the
 * minimum, median and maximum of the rounds. GEMV and the read roof stream the same memory, at least 1 GiB unless told
 * otherwise, so neither lives in a cache.
 */
#include "bench.h"

#include "base/error.h"
#include "base/pool.h"
#include "kernel/cpu.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define ROUNDS_MAX   64u
#define MEASURES_MAX 192u
#define N_COLS       2560u
#define N_ROWS       10240u /* of a GEMM's matrix: the up projection of the 3.7B model */
#define N_TOKENS     512u
#define VECTOR       10240u
#define THREADS_MAX  256u
#define SMALL_LOOPS  200u

static const char *const dtype_names[BT_N_WEIGHT_DTYPES] = {"f32", "f16", "bf16", "f8", "mxfp4"};

typedef struct bench {
    const options *o;
    bt_pool *pool; /* all threads */
    size_t n_threads;
    bt_kernels tables[BT_CPU_N];
    bt_limit_kernels limits[BT_CPU_N];
    unsigned char *weights; /* [n_bytes], huge pages: valid numbers in every dtype */
    size_t n_bytes;
    float *x, *y; /* activations and results */
    float *one;   /* scales */
    float *zero;
    uint8_t *near_one; /* scales of MXFP4 */
    void **scratch;
} bench;

typedef struct measure measure;
struct measure {
    char name[56];
    const char *unit; /* "GB/s", "GFLOP/s" or "ns" */
    void (*fn)(const bench *b, const measure *m, size_t thread_i);
    const bt_kernels *k;
    bt_cpu_level level;
    bt_dtype dtype;
    size_t n_threads, n_x, which;
    double amount; /* bytes, operations, or calls, in one run */
    double sample[ROUNDS_MAX];
};

/* One thread's part of n things, as the executor would cut them. */
static void part(size_t n, size_t grain, size_t n_threads, size_t thread_i, size_t *from, size_t *to)
{
    size_t n_grains = n / grain;
    *from = n_grains * thread_i / n_threads * grain;
    *to = thread_i + 1 == n_threads ? n : n_grains * (thread_i + 1) / n_threads * grain;
}

/* ---- what is measured ---- */

static void run_read(const bench *b, const measure *m, size_t thread_i)
{
    size_t from, to;
    part(b->n_bytes, (size_t)1 << 16, m->n_threads, thread_i, &from, &to);
    volatile uint64_t sink = b->limits[b->o->level_max].read(b->weights + from, (to - from) / m->which, m->which);
    (void)sink;
}

#define FMA_STEPS 2000000u

static void run_fma(const bench *b, const measure *m, size_t thread_i)
{
    (void)thread_i;
    b->limits[m->level].multiply(FMA_STEPS);
}

static void run_ping(const bench *b, const measure *m, size_t thread_i)
{
    (void)b;
    (void)m;
    if (thread_i < 2) ping(thread_i);
}

static bt_view view_of(const bench *b, const measure *m, size_t n_rows)
{
    bt_view w = {.data = b->weights, .n_rows = (uint32_t)n_rows, .n_cols = N_COLS, .dtype = (uint8_t)m->dtype};
    if (m->dtype == BT_F8_E4M3) w.scale = b->one, w.scale_dtype = BT_F32;
    if (m->dtype == BT_MXFP4) w.scale = b->near_one, w.scale_dtype = BT_F8_E8M0;
    return w;
}

/* GEMV and GEMM: rows are split between the threads. */
static void run_linear(const bench *b, const measure *m, size_t thread_i)
{
    size_t n_rows = m->which, from, to;
    bt_view w = view_of(b, m, n_rows);
    part(n_rows, 8, m->n_threads, thread_i, &from, &to);
    bt_linear a = {.y = b->y + from, .x = b->x, .y_stride = n_rows, .x_stride = N_COLS, .n_x = m->n_x, .w = &w};
    a.scratch = b->scratch[thread_i];
    m->k->linear[m->dtype](&a, from, to);
}

#define HEAD_DIM 128u

/* Tiles of keys and values one after the other through memory, n_x queries each. */
static void run_attention(const bench *b, const measure *m, size_t thread_i)
{
    const float *q[BT_ATTN_QUERIES_MAX];
    uint32_t n_keys[BT_ATTN_QUERIES_MAX];
    for (size_t i = 0; i < m->n_x; i++) q[i] = b->x + i * HEAD_DIM, n_keys[i] = BT_ATTN_TILE;
    size_t bytes = (size_t)BT_ATTN_TILE * HEAD_DIM * dtype_size(m->dtype);
    bt_attn a = {.q = q, .n_keys = n_keys, .n_q = m->n_x, .kv_dtype = m->dtype, .head_dim = HEAD_DIM, .scale = 0.01f};
    a.v_dim = a.k_stride = a.v_stride = HEAD_DIM;
    float *out = b->y + thread_i * BT_ATTN_QUERIES_MAX * (HEAD_DIM + 2);
    a.m = out, a.l = out + BT_ATTN_QUERIES_MAX, a.acc = out + 2 * BT_ATTN_QUERIES_MAX;
    a.scratch = b->scratch[thread_i];
    for (size_t i = 0; i < m->which; i++) {
        a.k = b->weights + 2 * i * bytes;
        a.v = b->weights + (2 * i + 1) * bytes;
        m->k->attn_tile(&a);
    }
}

/* MLA's latent tiles, one after the other: keys of LATENT + 64, whose first part is the values. */
#define LATENT 512u

static void run_latent(const bench *b, const measure *m, size_t thread_i)
{
    const size_t width = LATENT + 64, bytes = (size_t)BT_ATTN_TILE * width * dtype_size(m->dtype);
    const float *q[BT_ATTN_QUERIES_MAX];
    uint32_t n_keys[BT_ATTN_QUERIES_MAX];
    for (size_t i = 0; i < m->n_x; i++) q[i] = b->x + i * width, n_keys[i] = BT_ATTN_TILE;
    bt_attn a = {.q = q, .n_keys = n_keys, .n_q = m->n_x, .kv_dtype = m->dtype, .head_dim = width, .scale = 0.01f};
    float *out = b->y + thread_i * BT_ATTN_QUERIES_MAX * (LATENT + 2);
    a.m = out, a.l = out + BT_ATTN_QUERIES_MAX, a.acc = out + 2 * BT_ATTN_QUERIES_MAX;
    a.v_dim = LATENT, a.k_stride = a.v_stride = width;
    a.scratch = b->scratch[thread_i];
    for (size_t i = 0; i < m->which; i++) {
        a.k = a.v = b->weights + i * bytes;
        m->k->attn_tile(&a);
    }
}

#define KEY_DIM  128u
#define N_VALUES 128u

/* The states of heads one after the other through memory, n_x tokens each. Keys are 0 and decays 1, so that the states
 * stay what they are. */
static void run_kda(const bench *b, const measure *m, size_t thread_i)
{
    size_t from, to;
    bt_kda a = {.q = b->x, .k = b->zero, .decay = b->one, .v = b->x, .beta = b->one, .n_rows = m->n_x};
    a.qk_stride = a.v_stride = KEY_DIM, a.o_stride = N_VALUES, a.beta_stride = 1;
    a.key_dim = KEY_DIM, a.n_values = N_VALUES, a.o = b->y + thread_i * N_TOKENS * N_VALUES;
    part(m->which, 1, m->n_threads, thread_i, &from, &to);
    for (size_t i = from; i < to; i++) {
        a.state = (float *)b->weights + i * KEY_DIM * N_VALUES;
        m->k->kda(&a);
    }
}

#define NOPE 128u

/* Products with the transpose of matrices [NOPE, LATENT], one after the other, n_x tokens each. */
static void run_linear_t(const bench *b, const measure *m, size_t thread_i)
{
    size_t from, to, bytes = (size_t)NOPE * LATENT * dtype_size(m->dtype);
    bt_view w = {.n_rows = NOPE, .n_cols = LATENT, .dtype = (uint8_t)m->dtype};
    bt_linear a = {.y = b->y + thread_i * N_TOKENS * LATENT, .x = b->x, .x_stride = NOPE, .y_stride = LATENT, .w = &w};
    a.n_x = m->n_x, a.scratch = b->scratch[thread_i];
    part(m->which, 1, m->n_threads, thread_i, &from, &to);
    for (size_t i = from; i < to; i++) {
        w.data = b->weights + i * bytes;
        m->k->linear_t[m->dtype](&a, 0, LATENT);
    }
}

typedef enum small {
    SMALL_RMS_NORM,
    SMALL_ROPE,
    SMALL_ADD,
    SMALL_SCALE_ADD,
    SMALL_SILU_MUL,
    SMALL_SOFTPLUS2,
    SMALL_WIDEN_BF16,
    SMALL_NARROW_BF16,
    SMALL_ROUTE,
    SMALL_SITU_MUL,
    SMALL_CONV_SILU,
    SMALL_L2_NORM,
    SMALL_KDA_DECAY,
    SMALL_KDA_DECAY_SOFTPLUS,
    SMALL_RES_MIX,
    SMALL_N,
} small;

static const char *const small_names[SMALL_N] = {
    "rms_norm 2560",       "rope 64 pairs",    "add 10240",         "scale_add 10240",    "act_mul silu 10240",
    "act softplus2 10240", "widen bf16 10240", "narrow bf16 10240", "route 8 of 100",     "situ_mul 10240",
    "conv_silu 10240",     "l2_norm 128",      "kda_decay 10240",   "kda_decay softplus", "res_mix 9 of 2560"};

static void run_small_kimi(const bench *b, const bt_kernels *k, small which)
{
    float *y = b->y, *x = b->x, *u = b->x + VECTOR;
    bt_conv conv = {.y = y, .x = x, .tail = y + VECTOR, .taps = u, .n_taps = 4, .n_rows = 1, .n = VECTOR};
    conv.tail_stride = conv.taps_stride = VECTOR;
    switch (which) {
    case SMALL_SITU_MUL:
        k->situ_mul(y, x, u, VECTOR, 4, 25);
        break;
    case SMALL_CONV_SILU:
        k->conv_silu(&conv);
        break;
    case SMALL_L2_NORM:
        k->l2_norm(y, x, KEY_DIM, 1, 1e-6f);
        break;
    case SMALL_KDA_DECAY:
        k->kda_decay(y, x, u, VECTOR, 1, -5);
        break;
    case SMALL_KDA_DECAY_SOFTPLUS:
        k->kda_decay(y, x, u, VECTOR, 1, 0);
        break;
    case SMALL_RES_MIX:
        k->res_mix(y, x, N_COLS, 9, u, N_COLS, 1e-5f);
        break;
    default:
        break;
    }
}

static void run_small(const bench *b, const measure *m, size_t thread_i)
{
    const bt_kernels *k = m->k;
    float *y = b->y, *x = b->x, *u = b->x + VECTOR;
    int32_t ids[8];
    float weights[8];
    bt_route r = {.logits = x, .n = 100, .k = 8, .score = BT_SCORE_SIGMOID, .renormalise = true, .scale = 2.5f};
    r.force = -1, r.ids = ids, r.weights = weights, r.scratch = b->scratch[thread_i];
    for (size_t i = 0; i < SMALL_LOOPS; i++) {
        switch ((small)m->which) {
        case SMALL_RMS_NORM:
            k->rms_norm(y, x, u, N_COLS, 4, 1e-5f);
            break;
        case SMALL_ROPE:
            k->rope(u, b->one, 64, 64);
            break;
        case SMALL_ADD:
            k->add(y, x, VECTOR);
            break;
        case SMALL_SCALE_ADD:
            k->scale_add(y, x, 0.001f, VECTOR);
            break;
        case SMALL_SILU_MUL:
            k->act_mul(y, x, u, VECTOR, BT_ACT_SILU);
            break;
        case SMALL_SOFTPLUS2:
            k->act(y, x, VECTOR, BT_ACT_SOFTPLUS2);
            break;
        case SMALL_WIDEN_BF16:
            k->widen[BT_BF16](y, b->weights, VECTOR);
            break;
        case SMALL_NARROW_BF16:
            k->narrow[BT_BF16](y, x, VECTOR);
            break;
        case SMALL_ROUTE:
            k->route(&r);
            break;
        default:
            run_small_kimi(b, k, (small)m->which);
            break;
        }
    }
}

/* ---- the list ---- */

typedef struct list {
    measure m[MEASURES_MAX];
    size_t n;
} list;

static measure *append(list *l, void (*fn)(const bench *, const measure *, size_t), const char *unit, double amount,
                       size_t n_threads)
{
    assert(l->n < MEASURES_MAX);
    measure *m = &l->m[l->n++];
    memset(m, 0, sizeof *m);
    m->fn = fn;
    m->unit = unit;
    m->amount = amount;
    m->n_threads = n_threads;
    return m;
}

static void list_roofs(list *l, const bench *b, size_t n_threads)
{
    for (size_t streams = 1; streams <= 4; streams *= 2) {
        measure *m = append(l, run_read, "GB/s", (double)b->n_bytes, n_threads);
        snprintf(m->name, sizeof m->name, "read, %zu stream%s", streams, streams > 1 ? "s" : "");
        m->which = streams;
    }
    for (bt_cpu_level level = BT_CPU_SCALAR; level <= b->o->level_max; level++) {
        if (b->tables[level].level != level) continue;
        measure *m = append(l, run_fma, "GFLOP/s", b->limits[level].multiply(FMA_STEPS) * (double)n_threads, n_threads);
        snprintf(m->name, sizeof m->name, "f32 multiply-add in registers");
        m->level = level;
    }
    if (n_threads < 2) return;
    measure *m = append(l, run_ping, "ns", PING_ROUNDS, n_threads);
    snprintf(m->name, sizeof m->name, "cache line there and back");
}

static size_t row_bytes_of(bt_dtype d)
{
    return d == BT_MXFP4 ? N_COLS / 2 + N_COLS / BT_MXFP4_BLOCK : N_COLS * dtype_size(d);
}

static void list_linear(list *l, const bench *b, bt_cpu_level level, bt_dtype d, size_t n_x, size_t n_threads)
{
    size_t row_bytes = row_bytes_of(d), n_rows = n_x == 1 ? b->n_bytes / row_bytes : N_ROWS;
    if (n_rows > b->n_bytes / row_bytes) n_rows = b->n_bytes / row_bytes;
    double amount = n_x == 1 ? (double)(n_rows * row_bytes) : 2.0 * (double)n_x * (double)n_rows * N_COLS;
    measure *m = append(l, run_linear, n_x == 1 ? "GB/s" : "GFLOP/s", amount, n_threads);
    if (n_x == 1)
        snprintf(m->name, sizeof m->name, "GEMV %s", dtype_names[d]);
    else
        snprintf(m->name, sizeof m->name, "GEMM %s, %zu tokens", dtype_names[d], n_x);
    m->k = &b->tables[level];
    m->level = level;
    m->dtype = d;
    m->n_x = n_x;
    m->which = n_rows;
}

static void list_attention(list *l, const bench *b, bt_cpu_level level, bt_dtype d, size_t n_q)
{
    double bytes = 2.0 * BT_ATTN_TILE * HEAD_DIM * (double)dtype_size(d);
    size_t n_tiles = (size_t)((double)(b->n_bytes / (n_q > 8 ? 64 : 4)) / bytes);
    double flops = 4.0 * BT_ATTN_TILE * HEAD_DIM * (double)n_q;
    measure *m = append(l, run_attention, n_q > 8 ? "GFLOP/s" : "GB/s", (double)n_tiles * (n_q > 8 ? flops : bytes), 1);
    snprintf(m->name, sizeof m->name, "attention %s, %zu queries", dtype_names[d], n_q);
    m->k = &b->tables[level];
    m->level = level;
    m->dtype = d;
    m->n_x = n_q;
    m->which = n_tiles;
}

static measure *append_at(list *l, const bench *b, bt_cpu_level level,
                          void (*fn)(const bench *, const measure *, size_t), const char *unit, double amount,
                          size_t n_threads)
{
    measure *m = append(l, fn, unit, amount, n_threads);
    m->k = &b->tables[level];
    m->level = level;
    return m;
}

/* Few tokens are bound by memory, many by arithmetic; each is counted by what binds it. */
static void list_kimi(list *l, const bench *b, bt_cpu_level level, size_t n_threads)
{
    static const size_t counts[] = {1, 64};
    const size_t state = KEY_DIM * N_VALUES, matrix = NOPE * LATENT;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const bool is_many = counts[i] > 1;
        const size_t n_x = counts[i], n_bytes = b->n_bytes / (is_many ? 64 : 1);
        const char *unit = is_many ? "GFLOP/s" : "GB/s";
        size_t n = n_bytes / (state * 4);
        double amount = (double)(n * state) * (is_many ? 7 * (double)n_x : 8); /* bytes: read, and written back */
        measure *m = append_at(l, b, level, run_kda, unit, amount, n_threads);
        snprintf(m->name, sizeof m->name, "kda, %zu token%s", n_x, is_many ? "s" : "");
        m->n_x = n_x, m->which = n;
        n = n_bytes / (matrix * 2);
        amount = (double)(n * matrix) * 2 * (is_many ? (double)n_x : 1);
        m = append_at(l, b, level, run_linear_t, unit, amount, n_threads);
        snprintf(m->name, sizeof m->name, "linear_t bf16, %zu token%s", n_x, is_many ? "s" : "");
        m->n_x = n_x, m->which = n, m->dtype = BT_BF16;
    }
    if (n_threads > 1) return;
    for (bt_dtype d = BT_F32; d <= BT_BF16; d += 2) {
        const size_t n = b->n_bytes / 64 / ((size_t)BT_ATTN_TILE * (LATENT + 64) * dtype_size(d));
        double flops = 2.0 * BT_ATTN_TILE * (2 * LATENT + 64) * BT_ATTN_QUERIES_MAX * (double)n;
        measure *m = append_at(l, b, level, run_latent, "GFLOP/s", flops, 1);
        snprintf(m->name, sizeof m->name, "attention latent %s, 64 queries", dtype_names[d]);
        m->n_x = BT_ATTN_QUERIES_MAX, m->which = n, m->dtype = d;
    }
}

static void list_level(list *l, const bench *b, bt_cpu_level level, bool is_top)
{
    static const size_t tokens[] = {2, 4, 6, 8, 12, 16, 24, 32, 128};
    size_t threads[] = {1, b->n_threads};
    for (size_t i = 0; i < (b->n_threads > 1 ? 2u : 1u); i++) {
        for (bt_dtype d = BT_F32; d < BT_N_WEIGHT_DTYPES; d++) {
            list_linear(l, b, level, d, 1, threads[i]);
            if (d == BT_BF16 || d == BT_MXFP4 || is_top) list_linear(l, b, level, d, N_TOKENS, threads[i]);
        }
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens && is_top; t++) {
            list_linear(l, b, level, BT_BF16, tokens[t], threads[i]);
            list_linear(l, b, level, BT_MXFP4, tokens[t], threads[i]);
        }
        list_kimi(l, b, level, threads[i]);
    }
    for (bt_dtype d = BT_F32; d <= BT_BF16; d += 2) {
        list_attention(l, b, level, d, 4);
        list_attention(l, b, level, d, BT_ATTN_QUERIES_MAX);
    }
}

static void list_small(list *l, const bench *b, bt_cpu_level level)
{
    for (size_t i = 0; i < SMALL_N; i++) {
        measure *m = append(l, run_small, "ns", SMALL_LOOPS, 1);
        snprintf(m->name, sizeof m->name, "%s", small_names[i]);
        m->k = &b->tables[level];
        m->level = level;
        m->which = i;
    }
}

/* Only what --kernel names, and the roofs. */
static void list_filter(list *l, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        bool is_roof = l->m[i].fn == run_read || l->m[i].fn == run_fma || l->m[i].fn == run_ping;
        if (is_roof || strstr(l->m[i].name, name)) l->m[n++] = l->m[i];
    }
    l->n = n;
}

static void list_all(list *l, const bench *b)
{
    list_roofs(l, b, 1);
    if (b->n_threads > 1) list_roofs(l, b, b->n_threads);
    bt_cpu_level top = b->tables[b->o->level_max].level;
    for (bt_cpu_level level = BT_CPU_SCALAR; level <= top; level++) {
        if (b->tables[level].level != level) continue;
        /* the reference on a gibibyte would only be waited for */
        if ((level > BT_CPU_SCALAR || top == BT_CPU_SCALAR) && level >= b->o->level_min)
            list_level(l, b, level, level == top);
        list_small(l, b, level);
    }
}

/* ---- running and printing ---- */

static double clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

typedef struct job {
    const bench *b;
    const measure *m;
    double cpu_ns[THREADS_MAX]; /* that each thread spent */
} job;

static void job_run(void *arg, size_t thread_i)
{
    job *j = arg;
    double t0 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    j->m->fn(j->b, j->m, thread_i);
    j->cpu_ns[thread_i] = clock_ns(CLOCK_THREAD_CPUTIME_ID) - t0;
}

/* By the clock on the wall; with --cpu-time by the thread that computed longest, which forgives busy neighbours (and
 * shows memory faster than it is when they share it). */
static double run_once(const bench *b, const measure *m)
{
    job j = {.b = b, .m = m};
    ping_reset();
    double t = clock_ns(CLOCK_MONOTONIC);
    if (m->n_threads == 1)
        job_run(&j, 0);
    else
        bt_pool_run(b->pool, job_run, &j);
    t = clock_ns(CLOCK_MONOTONIC) - t;
    if (b->o->bench_cpu_time) {
        t = 0;
        for (size_t i = 0; i < m->n_threads; i++) t = fmax(t, j.cpu_ns[i]);
    }
    return strcmp(m->unit, "ns") == 0 ? t / m->amount : m->amount / t; /* bytes per ns are GB/s */
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(const measure *m, size_t n)
{
    return n % 2 ? m->sample[n / 2] : (m->sample[n / 2 - 1] + m->sample[n / 2]) / 2;
}

/* The best median among those that `like` stands for: same unit and threads, roofs only. */
static double roof_of(const list *l, const measure *like, size_t n_rounds)
{
    double best = 0;
    for (size_t i = 0; i < l->n; i++) {
        const measure *m = &l->m[i];
        bool is_roof = m->fn == run_read || (m->fn == run_fma && m->level == like->level);
        if (is_roof && strcmp(m->unit, like->unit) == 0 && m->n_threads == like->n_threads)
            best = fmax(best, median(m, n_rounds));
    }
    return best;
}

static void print_list(list *l, size_t n_rounds)
{
    printf("%-30s %-8s %7s %-8s %9s %9s %9s  of roof\n", "", "level", "threads", "", "min", "median", "max");
    for (size_t i = 0; i < l->n; i++) {
        measure *m = &l->m[i];
        printf("%-30s %-8s %7zu %-8s %9.4g %9.4g %9.4g", m->name,
               m->fn == run_read || m->fn == run_ping ? "" : bt_cpu_level_name(m->level), m->n_threads, m->unit,
               m->sample[0], median(m, n_rounds), m->sample[n_rounds - 1]);
        double roof = roof_of(l, m, n_rounds);
        if (roof > 0) printf("  %5.1f %%", 100 * median(m, n_rounds) / roof);
        printf("\n");
    }
}

/* What issue and plan ask of the highest level, on all threads. */
static void print_goals(const list *l, const bench *b, size_t n_rounds)
{
    bt_cpu_level top = b->tables[b->o->level_max].level;
    for (size_t i = 0; i < l->n; i++) {
        const measure *m = &l->m[i];
        if (m->fn != run_linear || m->level != top || m->n_threads != b->n_threads || m->dtype != BT_BF16) continue;
        double value = median(m, n_rounds);
        if (m->n_x == 1)
            printf("goal: GEMV of bf16, %zu threads, at 50 %% of the read roof: %.1f %%\n", m->n_threads,
                   100 * value / roof_of(l, m, n_rounds));
        if (m->n_x == N_TOKENS && top >= BT_CPU_AVX512)
            printf("goal: GEMM of %u tokens at 40 GFLOP/s a core: %.1f\n", N_TOKENS, value / (double)m->n_threads);
    }
}

/* ---- memory ---- */

static void *map(size_t n_bytes)
{
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("check-kernels: mmap");
        exit(1);
    }
    (void)madvise(p, n_bytes, MADV_HUGEPAGE);
    return p;
}

/* Halves of 16 bits 0x3f.. or 0xbf..: numbers near 1 as bf16, f16, f32 and FP8, no NaN, no denormal. */
static void fill(unsigned char *p, size_t n_bytes)
{
    random_seed(1, "bench");
    for (size_t i = 0; i < n_bytes; i += 8) {
        uint64_t v = (random_u64() & 0x8077807780778077u) | 0x3f003f003f003f00u;
        memcpy(p + i, &v, sizeof v);
    }
}

static void bench_open(bench *b, const options *o)
{
    bt_machine machine;
    bt_error e;
    bt_machine_read("", &machine);
    b->o = o;
    b->n_threads = machine.n_threads_default < THREADS_MAX ? machine.n_threads_default : THREADS_MAX;
    if (bt_pool_open(b->n_threads, &b->pool, &e)) {
        fprintf(stderr, "check-kernels: cannot start %zu threads\n", b->n_threads);
        exit(1);
    }
    for (bt_cpu_level l = BT_CPU_SCALAR; l <= o->level_max; l++) {
        bt_kernels_init(&b->tables[l], l);
        bt_limit_kernels_init(&b->limits[l], l);
    }
    b->n_bytes = o->bench_mib << 20;
    b->weights = map(b->n_bytes);
    fill(b->weights, b->n_bytes);
    b->x = map(N_TOKENS * N_COLS * 4);
    for (size_t i = 0; i < N_TOKENS * N_COLS; i++) b->x[i] = (float)random_normal();
    size_t y_n = b->n_bytes / N_COLS > (size_t)N_TOKENS * N_ROWS ? b->n_bytes / N_COLS : (size_t)N_TOKENS * N_ROWS;
    b->y = map(y_n * 4);
    memset(b->y, 0, y_n * 4);
    size_t n_scales = (b->n_bytes / N_COLS / 128 + 1) * (N_COLS / 128);
    if (n_scales < N_TOKENS * KEY_DIM) n_scales = N_TOKENS * KEY_DIM;
    b->one = map(n_scales * 4);
    for (size_t i = 0; i < n_scales; i++) b->one[i] = 1;
    size_t n_near = b->n_bytes / row_bytes_of(BT_MXFP4) * (N_COLS / BT_MXFP4_BLOCK) + N_ROWS * N_COLS / BT_MXFP4_BLOCK;
    b->zero = map(N_TOKENS * KEY_DIM * 4);
    b->near_one = map(n_near);
    for (size_t i = 0; i < n_near; i++) b->near_one[i] = (uint8_t)(120 + i % 7);
    b->scratch = malloc(b->n_threads * sizeof *b->scratch);
    if (!b->scratch) abort();
    for (size_t i = 0; i < b->n_threads; i++) b->scratch[i] = map(BT_KERNEL_SCRATCH_BYTES);
    printf("\n%s; %zu threads, %zu MiB of weights, %zu interleaved rounds\n", machine.cpu_name, b->n_threads,
           o->bench_mib, o->bench_rounds);
}

int bench_run(const options *o)
{
    static bench b;
    static list l;
    assert(o->bench_rounds > 0 && o->bench_rounds <= ROUNDS_MAX && o->bench_mib >= 64);
    bench_open(&b, o);
    list_all(&l, &b);
    if (o->kernel) list_filter(&l, o->kernel);
    for (size_t round = 0; round < o->bench_rounds; round++)
        for (size_t i = 0; i < l.n; i++) l.m[i].sample[round] = run_once(&b, &l.m[i]);
    for (size_t i = 0; i < l.n; i++) qsort(l.m[i].sample, o->bench_rounds, sizeof(double), by_value);
    print_list(&l, o->bench_rounds);
    print_goals(&l, &b, o->bench_rounds);
    bt_pool_close(b.pool);
    return 0;
}
