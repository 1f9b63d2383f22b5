/*
 * Reports of a benchmark: a page for people, an object for programs, and the ratios of two runs. docs/bench.md
 * documents every key. Figures of the first depth also stand at the top of the object, where most readers look.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "tool/bench.h"

#if defined(BT_COMMIT)
#    define COMMIT BT_COMMIT
#else
#    define COMMIT "unknown"
#endif

#if defined(__clang__)
#    define COMPILER __VERSION__
#elif defined(__GNUC__)
#    define COMPILER "gcc " __VERSION__
#else
#    define COMPILER "unknown"
#endif

static const char *const class_keys[BT_N_CLASSES] = {
    [BT_CLASS_EMBEDDING] = "embedding", [BT_CLASS_NORM] = "norm",     [BT_CLASS_ATTENTION] = "attention",
    [BT_CLASS_VALUES] = "values",       [BT_CLASS_ROUTER] = "router", [BT_CLASS_DENSE] = "dense",
    [BT_CLASS_EXPERTS] = "experts",     [BT_CLASS_SHARED] = "shared", [BT_CLASS_HEAD] = "head",
};

static const double percents[] = {50, 90, 95, 99};
#define N_PERCENTS (sizeof percents / sizeof *percents)

/* ---- ranges of a depth ------------------------------------------------------------------------------------------ */

typedef struct figures {
    bt_range prompt, prompt_fraction, decode, decode_fraction, first_ms;
    bt_range read[2], matrix[2], trip;
    double steps[N_PERCENTS];
    double bytes; /* per token */
} figures;

typedef double (*limit_fn)(const bt_roof_sample *s);

static double read_one(const bt_roof_sample *s)
{
    return bt_roof_read_best(s, 0);
}

static double read_all(const bt_roof_sample *s)
{
    return bt_roof_read_best(s, 1);
}

static double matrix_one(const bt_roof_sample *s)
{
    return s->matrix_gflop_s[0];
}

static double matrix_all(const bt_roof_sample *s)
{
    return s->matrix_gflop_s[1];
}

static double trip_of(const bt_roof_sample *s)
{
    return s->round_trip_ns;
}

static size_t n_limits(const bt_bench *b)
{
    return 2 * b->n_runs + 1;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Fills values [2 n_runs + 1] and gives their range. */
static bt_range limit_range(const bt_bench *b, const bt_bench_depth *d, limit_fn of, double *values)
{
    for (size_t i = 0; i < n_limits(b); i++) values[i] = of(&d->limits[i]);
    return bt_range_of(values, n_limits(b));
}

static figures figures_of(const bt_bench *b, const bt_bench_depth *d)
{
    figures f = {.bytes = bt_bench_bytes(b, d)};
    size_t n_steps = b->n_runs * b->n_decode, n = n_limits(b) > n_steps ? n_limits(b) : n_steps;
    double *values = bt_malloc(n, sizeof *values);
    if (values == NULL) return f;
    f.read[0] = limit_range(b, d, read_one, values);
    f.read[1] = limit_range(b, d, read_all, values);
    f.matrix[0] = limit_range(b, d, matrix_one, values);
    f.matrix[1] = limit_range(b, d, matrix_all, values);
    f.trip = limit_range(b, d, trip_of, values);
    if (b->n_prompt > 0) {
        bt_bench_prompt_rates(b, d, values);
        f.prompt = bt_range_of(values, b->n_runs);
        bt_bench_prompt_fractions(b, d, values);
        f.prompt_fraction = bt_range_of(values, b->n_runs);
        for (size_t i = 0; i < b->n_runs; i++) values[i] = d->first_s[i] * 1e3;
        f.first_ms = bt_range_of(values, b->n_runs);
    }
    if (b->n_decode > 0) {
        bt_bench_decode_rates(b, d, values);
        f.decode = bt_range_of(values, b->n_runs);
        bt_bench_decode_fractions(b, d, values);
        f.decode_fraction = bt_range_of(values, b->n_runs);
        memcpy(values, d->steps_ms, n_steps * sizeof *values);
        qsort(values, n_steps, sizeof *values, ascending);
        for (size_t i = 0; i < N_PERCENTS; i++) f.steps[i] = bt_percentile(values, n_steps, percents[i]);
    }
    bt_free(values);
    return f;
}

/* ---- for people ------------------------------------------------------------------------------------------------- */

static void print_range(bt_text *t, const char *name, const char *unit, bt_range r, double scale)
{
    bt_text_printf(t, "  %-18s %-9s %10.2f %10.2f %10.2f\n", name, unit, r.min * scale, r.median * scale,
                   r.max * scale);
}

static void print_bytes(bt_text *t, const bt_bench *b, const bt_bench_depth *d, double total)
{
    bt_text_printf(t, "  read for a token: %.1f MB", total / 1e6);
    const char *separator = " (";
    for (size_t c = 0; c < BT_N_CLASSES; c++) {
        if (d->decode.weights[c] == 0) continue;
        bt_text_printf(t, "%s%s %.1f", separator, class_keys[c],
                       (double)d->decode.weights[c] / (double)b->n_decode / 1e6);
        separator = ", ";
    }
    bt_text_printf(t, "%skv %.1f)\n", separator, (double)d->decode.kv / (double)b->n_decode / 1e6);
    if (d->decode.state == 0) return;
    bt_text_printf(t, "  recurrent state, read and written for a token: %.1f MB\n",
                   (double)d->decode.state / (double)b->n_decode / 1e6);
}

static void print_depth(bt_text *t, const bt_bench *b, const bt_bench_depth *d)
{
    const figures f = figures_of(b, d);
    char name[64];
    bt_text_printf(t, "\nDepth %zu%39s %10s %10s\n", d->depth, "min", "median", "max");
    if (b->n_prompt > 0) {
        (void)snprintf(name, sizeof name, "pp%zu", b->n_prompt);
        print_range(t, name, "tokens/s", f.prompt, 1);
        print_range(t, "  of matrix peak", "%", f.prompt_fraction, 100);
        print_range(t, "first token", "ms", f.first_ms, 1);
    }
    if (b->n_decode > 0) {
        (void)snprintf(name, sizeof name, "tg%zu", b->n_decode);
        print_range(t, name, "tokens/s", f.decode, 1);
        print_range(t, "  of read roof", "%", f.decode_fraction, 100);
    }
    print_range(t, "read roof", "GB/s", f.read[1], 1);
    print_range(t, "  one thread", "GB/s", f.read[0], 1);
    print_range(t, "matrix peak", "GFLOP/s", f.matrix[1], 1);
    if (f.trip.max > 0) print_range(t, "line round trip", "ns", f.trip, 1);
    if (b->n_decode == 0) return;
    bt_text_puts(t, "  steps, ms:");
    for (size_t i = 0; i < N_PERCENTS; i++)
        bt_text_printf(t, " %.0f %% %.2f%s", percents[i], f.steps[i], i < 3 ? "," : "\n");
    print_bytes(t, b, d, f.bytes);
}

static void print_load(bt_text *t, const char *name, const bt_bench_load *l)
{
    if (!l->is_measured) return;
    bt_text_printf(t, "  %-14s %10.1f ms to open, %10.1f ms for the first step; %.0f %% of the files were in memory\n",
                   name, l->open_ms, l->first_step_ms, 100 * l->cached);
}

void bt_bench_print(bt_text *t, const bt_bench *b)
{
    const bt_bench_conditions *c = &b->conditions;
    bt_text_printf(t, "%s: %s, %s weights, %.1f million parameters, %.1f MB of files\n", b->model, b->family,
                   b->weights, (double)b->n_parameters / 1e6, (double)b->file_bytes / 1e6);
    bt_text_printf(t, "%s %s, %zu threads, KV %s, context %zu, batch %zu; %s, governor %s, load %.2f to %.2f\n",
                   b->device, b->level, b->plan.n_threads, b->kv, b->plan.context, b->plan.batch, c->machine.cpu_name,
                   c->governor, c->load_begin[0], c->load_end[0]);
    bt_text_printf(t, "baltoro %s (%s), %s, %s\n", BT_VERSION, COMMIT, COMPILER, c->date);
    for (size_t i = 0; i < b->n_depths; i++) print_depth(t, b, &b->depths[i]);
    bt_text_puts(t, "\nLoad\n");
    print_load(t, "cold cache", &b->cold);
    print_load(t, "warm cache", &b->warm);
    bt_text_printf(t, "\nMemory: %.1f MB private (plan %.1f), %.1f MB mapped, %.1f MB KV, peak %.1f MB\n",
                   (double)b->peak.private / 1e6, (double)b->plan.private_bytes / 1e6, (double)b->peak.mapped / 1e6,
                   (double)b->plan.kv / 1e6, (double)b->peak.peak / 1e6);
}

/* ---- two runs --------------------------------------------------------------------------------------------------- */

static const bt_json_node *member(const bt_json_node *n, const char *key)
{
    return n == NULL || n->kind != BT_JSON_OBJECT ? NULL : bt_json_get(n, key);
}

/* The median at object.key, or 0. */
static double median_at(const bt_json_node *n, const char *object, const char *key)
{
    const bt_json_node *r = member(object == NULL ? n : member(n, object), key);
    const bt_json_node *v = member(r, "median");
    double x = 0;
    if (v == NULL || v->kind != BT_JSON_NUMBER || !bt_json_f64(v->text, v->size, &x)) return 0;
    return x;
}

static const bt_json_node *depth_of(const bt_json_node *root, size_t depth)
{
    const bt_json_node *list = member(root, "depths");
    for (const bt_json_node *n = list == NULL || list->kind != BT_JSON_ARRAY ? NULL : list->child; n != NULL;
         n = n->next) {
        const bt_json_node *v = member(n, "depth");
        uint64_t x = 0;
        if (v != NULL && v->kind == BT_JSON_NUMBER && bt_json_u64(v->text, v->size, &x) && x == depth) return n;
    }
    return NULL;
}

/* A median of both runs at one depth. */
typedef struct ratio {
    const char *name, *key; /* on a page, in an object */
    double now, then;       /* 0: not measured */
    double scale;           /* for the page */
} ratio;

#define N_RATIOS 7u

static void ratios_of(const bt_bench *b, const bt_bench_depth *d, const bt_json_node *then, ratio out[N_RATIOS])
{
    const figures f = figures_of(b, d);
    const ratio all[N_RATIOS] = {
        {"prompt, tokens/s", "prefill.tokens_per_s", f.prompt.median, median_at(then, "prefill", "tokens_per_s"), 1},
        {"  of matrix peak, %", "prefill.peak_fraction", f.prompt_fraction.median,
         median_at(then, "prefill", "peak_fraction"), 100},
        {"first token, ms", "ttft_ms", f.first_ms.median, median_at(then, NULL, "ttft_ms"), 1},
        {"decode, tokens/s", "decode.tokens_per_s", f.decode.median, median_at(then, "decode", "tokens_per_s"), 1},
        {"  of read roof, %", "decode.roof_fraction", f.decode_fraction.median,
         median_at(then, "decode", "roof_fraction"), 100},
        {"read roof, GB/s", "roof.read_gb_s", f.read[1].median, median_at(then, "roof", "read_gb_s"), 1},
        {"matrix peak, GFLOP/s", "roof.matrix_gflop_s", f.matrix[1].median, median_at(then, "roof", "matrix_gflop_s"),
         1},
    };
    memcpy(out, all, sizeof all);
}

static bool is_known(const ratio *r)
{
    return r->now > 0 && r->then > 0;
}

/* Where two runs measured different things: their ratios mean little. */
typedef struct difference {
    const char *key, *now_text, *then_text; /* texts NULL: numbers */
    uint64_t now, then;
} difference;

#define N_DIFFERENCES_MAX 9u

static size_t differences_of(const bt_bench *b, const bt_json_node *root, difference out[N_DIFFERENCES_MAX])
{
    const difference all[N_DIFFERENCES_MAX] = {
        {.key = "model", .now_text = b->model},       {.key = "weights", .now_text = b->weights},
        {.key = "kv_dtype", .now_text = b->kv},       {.key = "device", .now_text = b->device},
        {.key = "level", .now_text = b->level},       {.key = "cpu", .now_text = b->conditions.machine.cpu_name},
        {.key = "threads", .now = b->plan.n_threads}, {.key = "n_prompt", .now = b->n_prompt},
        {.key = "n_gen", .now = b->n_decode},
    };
    size_t n = 0;
    for (size_t i = 0; i < N_DIFFERENCES_MAX; i++) {
        const bt_json_node *v = member(root, all[i].key);
        difference d = all[i];
        if (v == NULL || v->kind != (d.now_text != NULL ? BT_JSON_STRING : BT_JSON_NUMBER)) continue;
        if (d.now_text != NULL)
            d.then_text = v->text;
        else if (!bt_json_u64(v->text, v->size, &d.then))
            continue;
        if (d.now_text != NULL ? strcmp(d.then_text, d.now_text) != 0 : d.then != d.now) out[n++] = d;
    }
    return n;
}

bt_status bt_bench_past_open(const char *file, const char *json, size_t size, bt_bench_past *p, bt_error *e)
{
    *p = (bt_bench_past){.file = file, .arena = bt_arena_new()};
    if (p->arena == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory to read it", file);
    bt_status st = bt_json_parse(p->arena, json, size, 0, &p->root, e);
    if (st != BT_OK) (void)bt_fail_in(e, st, "%s", file);
    const bt_json_node *depths = st == BT_OK ? member(p->root, "depths") : NULL;
    if (st == BT_OK && (depths == NULL || depths->kind != BT_JSON_ARRAY))
        st = bt_fail(e, BT_ERR_FORMAT, "%s: no result of bench: it has no list of depths", file);
    if (st != BT_OK) bt_bench_past_close(p);
    return st;
}

void bt_bench_past_close(bt_bench_past *p)
{
    bt_arena_free(p->arena);
    *p = (bt_bench_past){0};
}

static void print_differences(bt_text *t, const bt_bench *b, const bt_json_node *root)
{
    difference d[N_DIFFERENCES_MAX];
    size_t n = differences_of(b, root, d);
    for (size_t i = 0; i < n; i++) {
        if (d[i].now_text != NULL)
            bt_text_printf(t, "  %s differs: %s now, %s then\n", d[i].key, d[i].now_text, d[i].then_text);
        else
            bt_text_printf(t, "  %s differs: %" PRIu64 " now, %" PRIu64 " then\n", d[i].key, d[i].now, d[i].then);
    }
}

void bt_bench_print_comparison(bt_text *t, const bt_bench *b, const bt_bench_past *then)
{
    bt_text_printf(t, "\nCompared with %s (medians)\n", then->file);
    print_differences(t, b, then->root);
    for (size_t i = 0; i < b->n_depths; i++) {
        const bt_json_node *depth = depth_of(then->root, b->depths[i].depth);
        ratio r[N_RATIOS];
        if (depth == NULL) {
            bt_text_printf(t, "  depth %zu was not measured then\n", b->depths[i].depth);
            continue;
        }
        bt_text_printf(t, "  depth %-18zu %12s %12s %9s\n", b->depths[i].depth, "now", "then", "ratio");
        ratios_of(b, &b->depths[i], depth, r);
        for (size_t k = 0; k < N_RATIOS; k++)
            if (is_known(&r[k]))
                bt_text_printf(t, "  %-24s %12.2f %12.2f %9.3f\n", r[k].name, r[k].now * r[k].scale,
                               r[k].then * r[k].scale, r[k].now / r[k].then);
    }
}

/* ---- for programs ----------------------------------------------------------------------------------------------- */

static void put_text(bt_text *t, const char *key, const char *value)
{
    bt_text_printf(t, "\"%s\": ", key);
    bt_text_json_string(t, value, strlen(value));
    bt_text_puts(t, ", ");
}

static void put_u64(bt_text *t, const char *key, uint64_t value)
{
    bt_text_printf(t, "\"%s\": %" PRIu64 ", ", key, value);
}

static void put_f64(bt_text *t, const char *key, double value)
{
    bt_text_printf(t, "\"%s\": ", key);
    bt_text_json_f64(t, value);
    bt_text_puts(t, ", ");
}

static void put_array(bt_text *t, const char *key, const double *values, size_t n)
{
    bt_text_printf(t, "\"%s\": [", key);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) bt_text_puts(t, ", ");
        bt_text_json_f64(t, values[i]);
    }
    bt_text_puts(t, "]");
}

static void put_range(bt_text *t, const char *key, bt_range r)
{
    bt_text_printf(t, "\"%s\": {\"min\": ", key);
    bt_text_json_f64(t, r.min);
    bt_text_puts(t, ", \"median\": ");
    bt_text_json_f64(t, r.median);
    bt_text_puts(t, ", \"max\": ");
    bt_text_json_f64(t, r.max);
    bt_text_puts(t, "}");
}

static void put_reads(bt_text *t, const bt_bench *b, const bt_bench_depth *d, double *values)
{
    bool first = true;
    bt_text_puts(t, ", \"reads\": [");
    for (int all = 0; all < 2; all++) {
        for (size_t source = 0; source < BT_ROOF_N_SOURCES; source++) {
            for (size_t s = 0; s < BT_ROOF_N_STREAMS; s++) {
                for (size_t i = 0; i < n_limits(b); i++) values[i] = d->limits[i].read_gb_s[all][source][s];
                bt_text_printf(t, "%s{\"source\": \"%s\", \"streams\": %d, \"threads\": %zu, ", first ? "" : ", ",
                               bt_roof_source_names[source], 1 << s, all == 0 ? 1 : b->plan.n_threads);
                put_range(t, "gb_s", bt_range_of(values, n_limits(b)));
                bt_text_puts(t, "}");
                first = false;
            }
        }
    }
    bt_text_puts(t, "]");
}

static void put_roof(bt_text *t, const bt_bench *b, const bt_bench_depth *d, const figures *f)
{
    static const struct {
        const char *key;
        limit_fn of;
    } series[] = {
        {"read_gb_s_series", read_all}, {"matrix_gflop_s_series", matrix_all}, {"round_trip_ns_series", trip_of}};
    double *values = bt_malloc(n_limits(b), sizeof *values);
    t->failed = t->failed || values == NULL;
    if (values == NULL) return;
    bt_text_puts(t, "\"roof\": {");
    put_range(t, "read_gb_s", f->read[1]);
    bt_text_puts(t, ", ");
    put_range(t, "read_gb_s_one_thread", f->read[0]);
    bt_text_puts(t, ", ");
    put_range(t, "matrix_gflop_s", f->matrix[1]);
    bt_text_puts(t, ", ");
    put_range(t, "matrix_gflop_s_one_thread", f->matrix[0]);
    bt_text_puts(t, ", ");
    if (f->trip.max > 0)
        put_range(t, "round_trip_ns", f->trip);
    else
        bt_text_puts(t, "\"round_trip_ns\": null");
    for (size_t k = 0; k < sizeof series / sizeof *series; k++) {
        (void)limit_range(b, d, series[k].of, values);
        bt_text_puts(t, ", ");
        put_array(t, series[k].key, values, n_limits(b));
    }
    put_reads(t, b, d, values);
    bt_text_puts(t, "}");
    bt_free(values);
}

static void put_prefill(bt_text *t, const bt_bench *b, const bt_bench_depth *d, const figures *f)
{
    if (b->n_prompt == 0) {
        bt_text_puts(t, "\"prefill\": null, \"ttft_ms\": null, ");
        return;
    }
    bt_text_puts(t, "\"prefill\": {");
    put_range(t, "tokens_per_s", f->prompt);
    bt_text_puts(t, ", ");
    put_range(t, "peak_fraction", f->prompt_fraction);
    bt_text_printf(t, ", \"flops\": %" PRIu64 "}, ", d->prompt.flops);
    put_range(t, "ttft_ms", f->first_ms);
    bt_text_puts(t, ", ");
}

static void put_decode(bt_text *t, const bt_bench *b, const bt_bench_depth *d, const figures *f)
{
    double n = (double)b->n_decode;
    if (b->n_decode == 0) {
        bt_text_puts(t, "\"decode\": null, \"steps_ms\": [], \"steps_percentiles_ms\": null, ");
        return;
    }
    bt_text_puts(t, "\"decode\": {");
    put_range(t, "tokens_per_s", f->decode);
    bt_text_puts(t, ", ");
    put_range(t, "roof_fraction", f->decode_fraction);
    bt_text_puts(t, ", \"bytes_per_token\": {");
    for (size_t c = 0; c < BT_N_CLASSES; c++) put_f64(t, class_keys[c], (double)d->decode.weights[c] / n);
    put_f64(t, "kv", (double)d->decode.kv / n);
    bt_text_puts(t, "\"total\": ");
    bt_text_json_f64(t, f->bytes);
    bt_text_puts(t, "}, \"state_bytes_per_token\": ");
    bt_text_json_f64(t, (double)d->decode.state / n);
    bt_text_puts(t, "}, ");
    put_array(t, "steps_ms", d->steps_ms, b->n_runs * b->n_decode);
    bt_text_puts(t, ", \"steps_percentiles_ms\": {");
    for (size_t i = 0; i < N_PERCENTS; i++) {
        bt_text_printf(t, "%s\"p%.0f\": ", i == 0 ? "" : ", ", percents[i]);
        bt_text_json_f64(t, f->steps[i]);
    }
    bt_text_puts(t, "}, ");
}

/* The members of a depth, without braces. */
static void put_depth(bt_text *t, const bt_bench *b, const bt_bench_depth *d)
{
    const figures f = figures_of(b, d);
    put_u64(t, "depth", d->depth);
    put_prefill(t, b, d, &f);
    put_decode(t, b, d, &f);
    put_roof(t, b, d, &f);
}

static void put_load(bt_text *t, const char *key, const bt_bench_load *l)
{
    bt_text_printf(t, "\"%s\": ", key);
    if (!l->is_measured) {
        bt_text_puts(t, "null");
        return;
    }
    bt_text_puts(t, "{");
    put_f64(t, "total_ms", l->open_ms + l->first_step_ms);
    put_f64(t, "open_ms", l->open_ms);
    put_f64(t, "first_step_ms", l->first_step_ms);
    bt_text_puts(t, "\"cached_fraction\": ");
    bt_text_json_f64(t, l->cached);
    bt_text_puts(t, "}");
}

static void put_conditions(bt_text *t, const bt_bench *b)
{
    const bt_bench_conditions *c = &b->conditions;
    put_text(t, "version", BT_VERSION);
    put_text(t, "commit", COMMIT);
    put_text(t, "compiler", COMPILER);
    put_text(t, "date", c->date);
    put_text(t, "cpu", c->machine.cpu_name);
    put_text(t, "level", b->level);
    put_u64(t, "threads", b->plan.n_threads);
    put_u64(t, "cpus", c->machine.n_affinity);
    put_u64(t, "physical_cores", c->machine.n_physical);
    put_f64(t, "cpu_quota", c->machine.cpu_quota);
    put_u64(t, "memory_total", c->machine.memory_total);
    put_u64(t, "memory_available", c->machine.memory_available);
    put_text(t, "governor", c->governor);
    put_text(t, "kernel", c->kernel);
    put_text(t, "huge_pages", c->huge_pages);
    put_array(t, "load_average", c->load_begin, 3);
    bt_text_puts(t, ", ");
    put_array(t, "load_average_end", c->load_end, 3);
    bt_text_puts(t, ", ");
}

static void put_model(bt_text *t, const bt_bench *b)
{
    put_text(t, "model", b->model);
    put_text(t, "family", b->family);
    put_text(t, "weights", b->weights);
    put_u64(t, "parameters", b->n_parameters);
    put_u64(t, "file_bytes", b->file_bytes);
    put_text(t, "device", b->device);
    put_text(t, "dtype", "f32");
    put_text(t, "kv_dtype", b->kv);
    put_u64(t, "context", b->plan.context);
    put_u64(t, "batch", b->plan.batch);
    put_u64(t, "n_prompt", b->n_prompt);
    put_u64(t, "n_gen", b->n_decode);
    put_u64(t, "repetitions", b->n_runs);
}

static void put_ratio(bt_text *t, const ratio *r)
{
    if (!is_known(r)) return;
    bt_text_printf(t, ", \"%s\": {", r->key);
    put_f64(t, "now", r->now);
    put_f64(t, "then", r->then);
    bt_text_puts(t, "\"ratio\": ");
    bt_text_json_f64(t, r->now / r->then);
    bt_text_puts(t, "}");
}

static void put_difference(bt_text *t, const difference *d)
{
    bt_text_puts(t, "{");
    put_text(t, "key", d->key);
    if (d->now_text != NULL) {
        put_text(t, "now", d->now_text);
        bt_text_puts(t, "\"then\": ");
        bt_text_json_string(t, d->then_text, strlen(d->then_text));
    } else {
        put_u64(t, "now", d->now);
        bt_text_printf(t, "\"then\": %" PRIu64, d->then);
    }
    bt_text_puts(t, "}");
}

static void put_comparison(bt_text *t, const bt_bench *b, const bt_bench_past *then)
{
    if (then == NULL) {
        bt_text_puts(t, "\"compare\": null, ");
        return;
    }
    difference d[N_DIFFERENCES_MAX];
    size_t n = differences_of(b, then->root, d);
    bt_text_puts(t, "\"compare\": {");
    put_text(t, "file", then->file);
    bt_text_puts(t, "\"differences\": [");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) bt_text_puts(t, ", ");
        put_difference(t, &d[i]);
    }
    bt_text_puts(t, "], \"depths\": [");
    for (size_t i = 0; i < b->n_depths; i++) {
        const bt_json_node *depth = depth_of(then->root, b->depths[i].depth);
        ratio r[N_RATIOS];
        bt_text_printf(t, "%s{\"depth\": %zu", i == 0 ? "" : ", ", b->depths[i].depth);
        if (depth != NULL) ratios_of(b, &b->depths[i], depth, r);
        for (size_t k = 0; depth != NULL && k < N_RATIOS; k++) put_ratio(t, &r[k]);
        bt_text_puts(t, "}");
    }
    bt_text_puts(t, "]}, ");
}

void bt_bench_print_json(bt_text *t, const bt_bench *b, const bt_bench_past *then)
{
    bt_text_puts(t, "{");
    put_conditions(t, b);
    put_model(t, b);
    bt_text_puts(t, "\"load\": {");
    put_load(t, "cold", &b->cold);
    bt_text_puts(t, ", ");
    put_load(t, "warm", &b->warm);
    bt_text_puts(t, "}, ");
    put_u64(t, "private_bytes", b->peak.private);
    put_u64(t, "private_bytes_before", b->before.private);
    put_u64(t, "mapped_bytes", b->peak.mapped);
    put_u64(t, "peak_rss_bytes", b->peak.peak);
    put_u64(t, "plan_private_bytes", b->plan.private_bytes);
    put_u64(t, "plan_mapped_bytes", b->plan.mapped_bytes);
    put_u64(t, "kv_bytes", b->plan.kv);
    put_comparison(t, b, then);
    put_depth(t, b, &b->depths[0]);
    bt_text_puts(t, ", \"depths\": [");
    for (size_t i = 0; i < b->n_depths; i++) {
        bt_text_puts(t, i == 0 ? "{" : ", {");
        put_depth(t, b, &b->depths[i]);
        bt_text_puts(t, "}");
    }
    bt_text_puts(t, "]}\n");
}

void bt_bench_file_name(const bt_bench *b, size_t n, bt_text *t)
{
    int year = 0, month = 0, day = 0;
    (void)sscanf(b->conditions.date, "%4d-%2d-%2d", &year, &month, &day);
    bt_text_printf(t, "%04d%02d%02d_", year, month, day);
    for (const char *c = b->model; *c != '\0'; c++) { /* names of any model stay names of files, in one piece */
        bool plain = isalnum((unsigned char)*c) || strchr(".-+", *c) != NULL;
        bt_text_add(t, plain ? c : "-", 1);
    }
    bt_text_printf(t, "_%s_kv%s_ctx%zu_%s", b->weights, b->kv, b->plan.context, b->device);
    if (n > 1) bt_text_printf(t, "_%zu", n);
    bt_text_puts(t, ".json");
}
