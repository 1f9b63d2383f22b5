/*
 * How fast a model is here, and how far that is from what the machine can do. One run measures the prompt, the decode,
 * the memory and the machine's limits in turn, so that what else the machine does touches all of them alike.
 */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H

#include "base/arena.h"
#include "base/json.h"
#include "session/engine.h"
#include "tool/roof.h"

typedef struct bt_bench_options {
    const char *path; /* of the model, found */
    const bt_model_options *model;
    bt_engine_options engine;          /* context is set here: what the depths need */
    size_t n_prompt, n_decode, n_runs; /* n_runs >= 1; prompt or decode 0: not measured */
    const size_t *depths;              /* [n_depths], ascending, at least one */
    size_t n_depths;
    bool with_cold; /* the load with a cold page cache too */
    bool (*keep_going)(void *user, const char *doing);
    void (*opened)(void *user, const bt_model *m); /* NULL once it is closed */
    void *user;
} bt_bench_options;

typedef struct bt_bench_load {
    bool is_measured;
    double open_ms;       /* model and engine */
    double first_step_ms; /* one token: every weight that it needs comes in */
    double cached;        /* part of the files that was in the page cache before, 0 .. 1 */
} bt_bench_load;

typedef struct bt_bench_memory { /* bytes of this process */
    uint64_t private, mapped, peak;
} bt_bench_memory;

/* What conditions the numbers. */
typedef struct bt_bench_conditions {
    char date[32]; /* 2026-11-29T12:00:00Z */
    char governor[32], kernel[128], huge_pages[64];
    double load_begin[3], load_end[3]; /* average over 1, 5 and 15 minutes */
    bt_machine machine;
} bt_bench_conditions;

/* One depth. Limits are measured 2 n_runs + 1 times: before and after each decode, and after the last prompt. */
typedef struct bt_bench_depth {
    size_t depth;
    double *prompt_s;          /* [n_runs]: all logits of the last token there */
    double *first_s;           /* [n_runs]: and the first token chosen */
    double *decode_s;          /* [n_runs] */
    double *steps_ms;          /* [n_runs * n_decode] */
    bt_roof_sample *limits;    /* [2 n_runs + 1] */
    bt_traffic prompt, decode; /* of one run */
} bt_bench_depth;

typedef struct bt_bench {
    size_t n_prompt, n_decode, n_runs, n_depths;
    bt_bench_depth *depths;
    bt_bench_load cold, warm;
    bt_bench_memory before, peak; /* before the model was opened; the most of each */
    bt_memory_plan plan;
    bt_bench_conditions conditions;
    char model[256]; /* the folder's name */
    char family[32], weights[16], kv[8], device[16], level[32];
    uint64_t n_parameters, file_bytes;
} bt_bench;

/* bt_bench_free in any case. */
bt_status bt_bench_run(const bt_bench_options *o, bt_bench *b, bt_error *e);
void bt_bench_free(bt_bench *b);

/* ---- figures ---------------------------------------------------------------------------------------------------- */

typedef struct bt_range {
    double min, median, max;
} bt_range;

bt_range bt_range_of(const double *values, size_t n); /* copied; all 0 if n is 0 or memory is short */
double bt_percentile(const double *ascending, size_t n, double percent);

/* Bytes per token of one decode. */
double bt_bench_bytes(const bt_bench *b, const bt_bench_depth *d);
/* Rates per run, into [n_runs]. */
void bt_bench_prompt_rates(const bt_bench *b, const bt_bench_depth *d, double *rates);      /* tokens/s */
void bt_bench_decode_rates(const bt_bench *b, const bt_bench_depth *d, double *rates);      /* tokens/s */
void bt_bench_decode_fractions(const bt_bench *b, const bt_bench_depth *d, double *values); /* of the read roof */
void bt_bench_prompt_fractions(const bt_bench *b, const bt_bench_depth *d, double *values); /* of the matrix peak */

/* ---- reports ---------------------------------------------------------------------------------------------------- */

/* A stored run. */
typedef struct bt_bench_past {
    const char *file; /* for messages; borrowed */
    bt_arena *arena;
    const bt_json_node *root;
} bt_bench_past;

/* What is no result of bench is refused. */
bt_status bt_bench_past_open(const char *file, const char *json, size_t size, bt_bench_past *p, bt_error *e);
void bt_bench_past_close(bt_bench_past *p); /* all zero is fine */

void bt_bench_print(bt_text *t, const bt_bench *b);
void bt_bench_print_json(bt_text *t, const bt_bench *b, const bt_bench_past *then); /* NULL: compared with none */
/* Ratios of this run to a stored one. */
void bt_bench_print_comparison(bt_text *t, const bt_bench *b, const bt_bench_past *then);
/* YYYYMMDD_MODEL_WEIGHTS_kvTYPE_ctxN_DEVICE.json; of the n-th result of that name, from 2 on, with _n behind it. */
void bt_bench_file_name(const bt_bench *b, size_t n, bt_text *t);

#endif
