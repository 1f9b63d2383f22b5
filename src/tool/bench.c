/*
 * The measurement. Order of a run at one depth:  limits, decode, limits, prompt, and so on, limits at the end; so every
 * decode and every prompt has the machine's limits before and after it. Both start from the same depth: the session is
 * rewound, never recomputed. Ids are random; choosing a token costs nothing but in the time to the first one.
 */
#include "tool/bench.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "tool/bench_machine.h"
#include "tool/files.h"

#define WARM_UP_TOKENS 64u
#define IDS_SEED       0x62656e63u

typedef struct runner {
    const bt_bench_options *o;
    bt_bench *b;
    bt_error *e;
    bt_model *model;
    bt_engine *engine;
    bt_session *session;
    bt_roof *roof;
    bt_span *spans; /* [n_spans]: the model's files */
    size_t n_spans;
    int32_t *ids; /* [context] */
    size_t context;
} runner;

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* run 0: not one of them. */
static bt_status go_on(runner *r, const char *doing, size_t run, size_t depth)
{
    char text[96];
    if (run > 0)
        (void)snprintf(text, sizeof text, "run %zu of %zu, depth %zu: %s", run, r->b->n_runs, depth, doing);
    else
        (void)snprintf(text, sizeof text, "%s", doing);
    if (r->o->keep_going == NULL || r->o->keep_going(r->o->user, text)) return BT_OK;
    return bt_fail(r->e, BT_ERR_CANCELLED, "interrupted");
}

static void note_memory(bt_bench *b)
{
    bt_bench_memory now = bt_bench_memory_now();
    if (now.private > b->peak.private) b->peak.private = now.private;
    if (now.mapped > b->peak.mapped) b->peak.mapped = now.mapped;
}

/* ---- the load --------------------------------------------------------------------------------------------------- */

static void unload(runner *r)
{
    bt_session_close(r->session);
    bt_engine_close(r->engine);
    if (r->o->opened != NULL) r->o->opened(r->o->user, NULL);
    bt_model_close(r->model);
    r->session = NULL;
    r->engine = NULL;
    r->model = NULL;
}

/* Opens all, and computes one token: a mapped model is loaded when its weights are there. */
static bt_status load(runner *r, bt_bench_load *l)
{
    bt_engine_options engine = r->o->engine;
    engine.context = r->context;
    l->cached = bt_bench_cached(r->o->path);
    double begin = seconds();
    bt_status st = bt_model_open(r->o->path, r->o->model, &r->model, r->e);
    if (st != BT_OK) return st;
    if (r->o->opened != NULL) r->o->opened(r->o->user, r->model);
    st = bt_engine_open(r->model, &engine, &r->engine, r->e);
    if (st == BT_OK) st = bt_session_open(r->engine, &r->session, r->e);
    double opened = seconds();
    const int32_t first = 0;
    if (st == BT_OK) st = bt_session_extend(r->session, &first, 1, NULL, r->e);
    if (st == BT_OK) st = bt_session_rewind(r->session, 0, NULL, r->e);
    l->open_ms = (opened - begin) * 1e3;
    l->first_step_ms = (seconds() - opened) * 1e3;
    l->is_measured = true;
    return st;
}

static bt_status load_cold_and_warm(runner *r)
{
    bt_status st = BT_OK;
    if (r->o->with_cold) {
        st = go_on(r, "loading with a cold page cache", 0, 0);
        bt_bench_forget_files(r->o->path);
        if (st == BT_OK) st = load(r, &r->b->cold);
        unload(r);
    } else { /* so that the page cache is warm */
        bt_bench_load unused;
        st = go_on(r, "loading", 0, 0);
        if (st == BT_OK) st = load(r, &unused);
        unload(r);
    }
    if (st == BT_OK) st = go_on(r, "loading with a warm page cache", 0, 0);
    if (st == BT_OK) st = load(r, &r->b->warm);
    return st;
}

/* ---- one depth -------------------------------------------------------------------------------------------------- */

static bt_traffic traffic_since(const runner *r, const bt_traffic *before)
{
    bt_traffic t;
    bt_engine_traffic(r->engine, &t);
    for (size_t c = 0; c < BT_N_CLASSES; c++) t.weights[c] -= before->weights[c];
    t.kv -= before->kv;
    t.state -= before->state;
    t.flops -= before->flops;
    return t;
}

static bt_status go_to(runner *r, size_t depth)
{
    size_t length = bt_session_length(r->session);
    if (length > depth) return bt_session_rewind(r->session, depth, NULL, r->e);
    return bt_session_extend(r->session, r->ids + length, depth - length, NULL, r->e);
}

/* The choice of the first token, as a greedy sampler makes it. */
static size_t best_of(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static bt_status decode(runner *r, bt_bench_depth *d, size_t run)
{
    bt_traffic before;
    bt_status st = go_to(r, d->depth);
    bt_engine_traffic(r->engine, &before);
    double begin = seconds(), last = begin;
    for (size_t i = 0; i < r->b->n_decode && st == BT_OK; i++) {
        st = bt_session_extend(r->session, r->ids + d->depth + i, 1, NULL, r->e);
        double now = seconds();
        d->steps_ms[run * r->b->n_decode + i] = (now - last) * 1e3;
        last = now;
    }
    d->decode_s[run] = last - begin;
    d->decode = traffic_since(r, &before);
    note_memory(r->b);
    return st;
}

static bt_status prompt(runner *r, bt_bench_depth *d, size_t run)
{
    bt_traffic before;
    volatile size_t first;
    bt_status st = go_to(r, d->depth);
    if (st != BT_OK) return st;
    bt_engine_traffic(r->engine, &before);
    double begin = seconds();
    st = bt_session_extend(r->session, r->ids + d->depth, r->b->n_prompt, NULL, r->e);
    if (st != BT_OK) return st;
    d->prompt_s[run] = seconds() - begin;
    first = best_of(bt_session_logits(r->session), bt_model_n_vocab(r->model));
    (void)first;
    d->first_s[run] = seconds() - begin;
    d->prompt = traffic_since(r, &before);
    note_memory(r->b);
    return st;
}

/* Touches what the first steps would touch for the first time. */
static bt_status warm_up(runner *r, size_t depth)
{
    bt_status st = go_to(r, depth);
    size_t n = r->b->n_prompt < WARM_UP_TOKENS ? r->b->n_prompt : WARM_UP_TOKENS;
    if (n < r->b->n_decode) n = r->b->n_decode;
    if (st == BT_OK && n > 0) st = bt_session_extend(r->session, r->ids + depth, n, NULL, r->e);
    if (st == BT_OK) st = go_to(r, depth);
    for (size_t i = 0; i < 2 && i < r->b->n_decode && st == BT_OK; i++)
        st = bt_session_extend(r->session, r->ids + depth + i, 1, NULL, r->e);
    return st;
}

static bt_status measure_depth(runner *r, bt_bench_depth *d)
{
    size_t n_runs = r->b->n_runs;
    bt_status st = go_on(r, "filling the context", 0, d->depth);
    if (st == BT_OK) st = warm_up(r, d->depth);
    for (size_t i = 0; i < n_runs && st == BT_OK; i++) {
        st = go_on(r, "decode", i + 1, d->depth);
        bt_roof_measure(r->roof, &d->limits[2 * i]);
        if (st == BT_OK) st = decode(r, d, i);
        if (st == BT_OK) st = go_on(r, "prompt", i + 1, d->depth);
        bt_roof_measure(r->roof, &d->limits[2 * i + 1]);
        if (st == BT_OK && r->b->n_prompt > 0) st = prompt(r, d, i);
    }
    bt_roof_measure(r->roof, &d->limits[2 * n_runs]);
    return st;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static bt_status allocate(runner *r)
{
    bt_bench *b = r->b;
    bool good = true;
    b->depths = bt_calloc(b->n_depths, sizeof *b->depths);
    for (size_t i = 0; b->depths != NULL && i < b->n_depths; i++) {
        bt_bench_depth *d = &b->depths[i];
        d->depth = r->o->depths[i];
        d->prompt_s = bt_calloc(b->n_runs, sizeof *d->prompt_s);
        d->first_s = bt_calloc(b->n_runs, sizeof *d->first_s);
        d->decode_s = bt_calloc(b->n_runs, sizeof *d->decode_s);
        d->steps_ms = bt_calloc(b->n_runs * b->n_decode + 1, sizeof *d->steps_ms);
        d->limits = bt_calloc(2 * b->n_runs + 1, sizeof *d->limits);
        good = good && d->prompt_s != NULL && d->first_s != NULL && d->decode_s != NULL && d->steps_ms != NULL &&
               d->limits != NULL;
    }
    r->ids = bt_calloc(r->context, sizeof *r->ids);
    if (b->depths != NULL && good && r->ids != NULL) return BT_OK;
    return bt_fail(r->e, BT_ERR_MEMORY, "no memory for the measurements");
}

static const char *weights_name(const bt_model *m)
{
    uint64_t bytes[BT_N_DTYPES] = {0};
    size_t most = 0;
    for (size_t i = 0; i < m->list.n; i++) bytes[m->views[i].dtype] += m->views[i].bytes;
    for (size_t d = 1; d < BT_N_DTYPES; d++)
        if (bytes[d] > bytes[most]) most = d;
    return most == BT_F8_E4M3 ? "fp8" : most == BT_BF16 ? "bf16" : most == BT_F16 ? "f16" : "f32";
}

/* The last part of a path, without slashes at its end; of one file its folder's. */
static void name_model(char *name, size_t size, const char *folder)
{
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && folder[begin - 1] != '/') begin--;
    (void)snprintf(name, size, "%.*s", (int)(end - begin), folder + begin);
}

static bt_status describe(runner *r)
{
    bt_bench *b = r->b;
    const bt_engine_options *o = &r->o->engine;
    char *real = realpath(bt_model_folder(r->model), NULL);
    name_model(b->model, sizeof b->model, real != NULL ? real : bt_model_folder(r->model));
    free(real);
    (void)snprintf(b->family, sizeof b->family, "%s", bt_model_family(r->model));
    (void)snprintf(b->weights, sizeof b->weights, "%s", weights_name(r->model));
    (void)snprintf(b->kv, sizeof b->kv, "%s", o->kv_dtype != NULL ? o->kv_dtype : "f32");
    (void)snprintf(b->device, sizeof b->device, "%s", o->device != NULL ? o->device : "cpu");
    (void)snprintf(b->level, sizeof b->level, "%s", bt_engine_cpu_level(r->engine));
    b->n_parameters = bt_model_n_parameters(r->model);
    b->plan = r->engine->memory;
    r->n_spans = bt_tool_n_files(r->model);
    r->spans = bt_calloc(r->n_spans, sizeof *r->spans);
    if (r->spans == NULL) return bt_fail(r->e, BT_ERR_MEMORY, "no memory for the measurements");
    for (size_t i = 0; i < r->n_spans; i++) {
        const char *path;
        const void *data;
        bt_tool_file(r->model, i, &path, &data, &r->spans[i].size);
        r->spans[i].data = data;
        b->file_bytes += r->spans[i].size;
    }
    bt_cpu_level level = BT_CPU_SCALAR;
    bool known = bt_cpu_level_parse(b->level, &level);
    assert(known);
    (void)known;
    bt_status st = bt_roof_open(bt_engine_n_threads(r->engine), level, &r->roof, r->e);
    if (st == BT_OK) bt_roof_set_mapping(r->roof, r->spans, r->n_spans);
    for (size_t i = 0; i < r->context; i++) r->ids[i] = (int32_t)(bt_rng_u64(IDS_SEED, i) % bt_model_n_vocab(r->model));
    return st;
}

bt_status bt_bench_run(const bt_bench_options *o, bt_bench *b, bt_error *e)
{
    assert(o->n_runs >= 1 && o->n_depths >= 1);
    assert(o->n_prompt > 0 || o->n_decode > 0);
    *b = (bt_bench){.n_prompt = o->n_prompt, .n_decode = o->n_decode, .n_runs = o->n_runs, .n_depths = o->n_depths};
    runner r = {.o = o, .b = b, .e = e};
    size_t longest = o->n_prompt > o->n_decode ? o->n_prompt : o->n_decode;
    r.context = o->depths[o->n_depths - 1] + longest;
    bt_bench_look_around(&b->conditions);
    b->before = bt_bench_memory_now();
    bt_status st = allocate(&r);
    if (st == BT_OK) st = load_cold_and_warm(&r);
    if (st == BT_OK) st = describe(&r);
    for (size_t i = 0; i < o->n_depths && st == BT_OK; i++) st = measure_depth(&r, &b->depths[i]);
    bt_bench_load_average(b->conditions.load_end);
    b->peak.peak = bt_bench_memory_now().peak;
    bt_roof_close(r.roof);
    unload(&r);
    bt_free(r.spans);
    bt_free(r.ids);
    return st;
}

void bt_bench_free(bt_bench *b)
{
    for (size_t i = 0; b->depths != NULL && i < b->n_depths; i++) {
        bt_free(b->depths[i].prompt_s);
        bt_free(b->depths[i].first_s);
        bt_free(b->depths[i].decode_s);
        bt_free(b->depths[i].steps_ms);
        bt_free(b->depths[i].limits);
    }
    bt_free(b->depths);
    b->depths = NULL;
}

/* ---- figures ---------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bt_percentile(const double *values, size_t n, double percent)
{
    if (n == 0) return 0;
    double at = percent / 100 * (double)(n - 1); /* between neighbours, linearly */
    size_t i = (size_t)at;
    return i + 1 < n ? values[i] + (at - (double)i) * (values[i + 1] - values[i]) : values[n - 1];
}

bt_range bt_range_of(const double *values, size_t n)
{
    double *sorted = n == 0 ? NULL : bt_malloc(n, sizeof *sorted);
    if (sorted == NULL) return (bt_range){0};
    memcpy(sorted, values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    bt_range r = {sorted[0], bt_percentile(sorted, n, 50), sorted[n - 1]};
    bt_free(sorted);
    return r;
}

double bt_bench_bytes(const bt_bench *b, const bt_bench_depth *d)
{
    uint64_t sum = d->decode.kv;
    for (size_t c = 0; c < BT_N_CLASSES; c++) sum += d->decode.weights[c];
    return b->n_decode == 0 ? 0 : (double)sum / (double)b->n_decode;
}

void bt_bench_prompt_rates(const bt_bench *b, const bt_bench_depth *d, double *rates)
{
    for (size_t i = 0; i < b->n_runs; i++) rates[i] = (double)b->n_prompt / d->prompt_s[i];
}

void bt_bench_decode_rates(const bt_bench *b, const bt_bench_depth *d, double *rates)
{
    for (size_t i = 0; i < b->n_runs; i++) rates[i] = (double)b->n_decode / d->decode_s[i];
}

/* The limit while something ran: the mean of before and after; where these differ by more than a quarter the machine
 * changed in between, a mean would describe neither, and the larger one flatters nobody. */
static double limit_between(double before, double after)
{
    double low = before < after ? before : after, high = before < after ? after : before;
    return high > 1.25 * low ? high : (low + high) / 2;
}

void bt_bench_decode_fractions(const bt_bench *b, const bt_bench_depth *d, double *values)
{
    double bytes = bt_bench_bytes(b, d);
    for (size_t i = 0; i < b->n_runs; i++) {
        double limit =
            limit_between(bt_roof_read_best(&d->limits[2 * i], 1), bt_roof_read_best(&d->limits[2 * i + 1], 1));
        values[i] = bytes * (double)b->n_decode / d->decode_s[i] / 1e9 / limit;
    }
}

void bt_bench_prompt_fractions(const bt_bench *b, const bt_bench_depth *d, double *values)
{
    for (size_t i = 0; i < b->n_runs; i++) {
        double limit = limit_between(d->limits[2 * i + 1].matrix_gflop_s[1], d->limits[2 * i + 2].matrix_gflop_s[1]);
        values[i] = (double)d->prompt.flops / d->prompt_s[i] / 1e9 / limit;
    }
}
