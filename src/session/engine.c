/*
 * The engine: it turns options into limits, prices them before anything is allocated, and owns what steps need. One
 * step takes rows of several timelines; only rows that want logits pay for the head, in slices of logit_rows.
 */
#include "session/engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "session/kept.h"
#include "session/session.h"

#define CONTEXT_DEFAULT 8192u
#define CONTEXT_MAX     (1u << 27)
#define BATCH_DEFAULT   512u
#define BATCH_MAX       16384u
#define SLOTS_MAX       4096u
#define THREADS_MAX     1024u
#define LOGIT_ROWS_MAX  1024u
#define KEPT_DEFAULT    4
#define KEPT_MAX        1024u
#define THREAD_BYTES    (64u * 1024u) /* what a worker's stack touches, about */

/* Options with all defaults filled in. */
typedef struct settings {
    const bt_backend_vtable *vtable;
    bt_backend_options backend;
    bt_limits limits;
    uint32_t n_kept; /* copies of recurrent states, if the family has such */
    bt_machine machine;
} settings;

static bt_status read_dtypes(const bt_engine_options *o, settings *s, bt_error *e)
{
    const char *dtype = o->dtype == NULL ? "f32" : o->dtype;
    const char *kv = o->kv_dtype == NULL ? "f32" : o->kv_dtype;
    if (strcmp(dtype, "bf16") == 0 || strcmp(dtype, "f16") == 0) {
        return bt_fail(e, BT_ERR_UNSUPPORTED, "dtype %s is not in this build: it has f32", dtype);
    }
    if (strcmp(dtype, "f32") != 0)
        return bt_fail(e, BT_ERR_USAGE, "dtype \"%s\" is unknown: this build has f32", dtype);
    if (strcmp(kv, "f32") == 0)
        s->limits.kv_dtype = BT_F32;
    else if (strcmp(kv, "bf16") == 0)
        s->limits.kv_dtype = BT_BF16;
    else if (strcmp(kv, "f16") == 0 || strcmp(kv, "int8") == 0)
        return bt_fail(e, BT_ERR_UNSUPPORTED, "kv dtype %s is not in this build: it has f32 and bf16", kv);
    else
        return bt_fail(e, BT_ERR_USAGE, "kv dtype \"%s\" is unknown: this build has f32 and bf16", kv);
    return BT_OK;
}

static bt_status read_level(const bt_engine_options *o, settings *s, bt_error *e)
{
    bt_cpu_level best = bt_cpu_detect();
    s->backend.cpu_level = best;
    if (o->cpu_level == NULL) return BT_OK;
    bt_cpu_level level;
    if (!bt_cpu_level_parse(o->cpu_level, &level)) {
        return bt_fail(e, BT_ERR_USAGE, "CPU level \"%s\" is unknown: scalar, avx2, avx512, avx512vnni and amx are",
                       o->cpu_level);
    }
    if (level > best) {
        return bt_fail(e, BT_ERR_USAGE, "CPU level %s is more than this machine has: %s", o->cpu_level,
                       bt_cpu_level_name(best));
    }
    s->backend.cpu_level = level;
    return BT_OK;
}

static bt_status check_range(const char *what, size_t v, size_t max, bt_error *e)
{
    if (v <= max) return BT_OK;
    return bt_fail(e, BT_ERR_USAGE, "%s %zu is more than the %zu that are possible", what, v, max);
}

static const char *context_name(const bt_engine_options *o)
{
    return o->context_name == NULL ? "the context" : o->context_name;
}

static bt_status read_settings(const bt_model *m, const bt_engine_options *o, settings *s, bt_error *e)
{
    *s = (settings){0};
    bt_machine_read(o->root == NULL ? "" : o->root, &s->machine);
    bt_status st = bt_backend_find(o->device == NULL ? "cpu" : o->device, &s->vtable, e);
    if (st == BT_OK) st = read_dtypes(o, s, e);
    if (st == BT_OK) st = read_level(o, s, e);
    if (st == BT_OK) st = check_range(context_name(o), o->context, CONTEXT_MAX, e);
    if (st == BT_OK) st = check_range("batch", o->batch, BATCH_MAX, e);
    if (st == BT_OK) st = check_range("slots", o->n_slots, SLOTS_MAX, e);
    if (st == BT_OK) st = check_range("logit rows", o->logit_rows, LOGIT_ROWS_MAX, e);
    if (st == BT_OK) st = check_range("threads", o->n_threads, THREADS_MAX, e);
    int n_kept = o->n_state_snapshots == 0 ? KEPT_DEFAULT : o->n_state_snapshots < 0 ? 0 : o->n_state_snapshots;
    if (st == BT_OK) st = check_range("state snapshots", (size_t)n_kept, KEPT_MAX, e);
    if (st != BT_OK) return st;
    s->n_kept = (uint32_t)n_kept;
    size_t most = bt_model_max_position(m);
    size_t context = o->context;
    if (context == 0) context = most != 0 && most < CONTEXT_DEFAULT ? most : CONTEXT_DEFAULT;
    if (most != 0 && context > most) {
        return bt_fail(e, BT_ERR_CONTEXT, "%s %zu is more than the %zu positions that this model knows",
                       context_name(o), context, most);
    }
    s->limits.context = (uint32_t)context;
    s->limits.max_rows = o->batch == 0 ? BATCH_DEFAULT : (uint32_t)o->batch;
    s->limits.n_slots = o->n_slots == 0 ? 1 : (uint32_t)o->n_slots;
    size_t rows_possible = context * s->limits.n_slots; /* no step is longer than all timelines together */
    if (s->limits.max_rows > rows_possible) s->limits.max_rows = (uint32_t)rows_possible;
    size_t logit_rows = o->logit_rows == 0 ? s->limits.n_slots : o->logit_rows;
    s->limits.max_logit_rows = logit_rows < s->limits.max_rows ? (uint32_t)logit_rows : s->limits.max_rows;
    s->backend.n_threads = o->n_threads == 0 ? s->machine.n_threads_default : o->n_threads;
    return BT_OK;
}

/* ---- the memory plan --------------------------------------------------------------------------------------------- */

static uint64_t engine_table_bytes(const bt_model *m, const settings *s)
{
    uint64_t per_slot = (uint64_t)bt_model_n_vocab(m) * sizeof(float) + (uint64_t)s->limits.context * sizeof(int32_t);
    uint64_t step =
        (uint64_t)s->limits.max_rows * (sizeof(int32_t) + sizeof(uint32_t)) + s->limits.n_slots * sizeof(bt_segment);
    return s->limits.n_slots * per_slot + step;
}

/* Bytes of all copies of recurrent states. What fits no machine stays so: a sum that wrapped would seem to fit. */
static uint64_t kept_bytes(const settings *s, const bt_tape *t)
{
    uint64_t n = (uint64_t)s->n_kept * t->limits.n_slots, copy = bt_kept_copy_bytes(t);
    return n > 0 && copy > PTRDIFF_MAX / n ? PTRDIFF_MAX : n * copy;
}

static void fill_plan(const bt_model *m, const settings *s, const bt_tape *t, bt_memory_plan *p)
{
    *p = (bt_memory_plan){0};
    for (uint32_t i = 0; i < t->n_states; i++) {
        uint64_t bytes = t->states[i].strip_bytes * t->states[i].n_strips * t->limits.n_slots;
        if (t->states[i].per_position)
            p->kv += bytes;
        else
            p->state += bytes;
    }
    p->state += kept_bytes(s, t);
    p->scratch = s->vtable->plan_scratch_bytes(&s->backend, t);
    p->weights_private = s->vtable->plan_weight_bytes(&s->backend, t);
    p->tables = bt_model_private_bytes(m) + engine_table_bytes(m, s) + s->backend.n_threads * THREAD_BYTES;
    p->private_bytes = p->kv + p->state + p->scratch + p->weights_private + p->tables;
    p->mapped_bytes = bt_tensors_mapped_bytes(m->tensors);
    p->available_bytes = s->machine.memory_available;
    p->context = s->limits.context;
    p->batch = s->limits.max_rows;
    p->n_slots = s->limits.n_slots;
    p->n_threads = s->backend.n_threads;
    p->n_state_snapshots = bt_kept_copy_bytes(t) > 0 ? s->n_kept : 0;
}

/* What the snapshots could give back, where there are any. */
static void write_advice(const bt_memory_plan *p, const char *context, char *to, size_t size)
{
    if (p->n_state_snapshots == 0)
        (void)snprintf(to, size, "lower %s (%zu) or --batch (%zu)", context, p->context, p->batch);
    else
        (void)snprintf(to, size, "lower %s (%zu), --batch (%zu) or --state-snapshots (%zu)", context, p->context,
                       p->batch, p->n_state_snapshots);
}

static bt_status check_plan(const bt_memory_plan *p, const bt_engine_options *o, bt_error *e)
{
    const double mb = 1e6;
    if (p->available_bytes == 0) return BT_OK; /* unknown: the allocations themselves will tell */
    if (p->private_bytes > p->available_bytes) {
        char advice[160];
        write_advice(p, context_name(o), advice, sizeof advice);
        return bt_fail(e, BT_ERR_MEMORY,
                       "%.1f MB of private memory are needed (KV %.1f, state %.1f, scratch %.1f, other %.1f) but %.1f "
                       "MB are available: %s",
                       (double)p->private_bytes / mb, (double)p->kv / mb, (double)p->state / mb,
                       (double)p->scratch / mb, (double)(p->private_bytes - p->kv - p->state - p->scratch) / mb,
                       (double)p->available_bytes / mb, advice);
    }
    if (!o->overcommit && p->mapped_bytes > p->available_bytes - p->private_bytes) {
        return bt_fail(
            e, BT_ERR_MEMORY,
            "%.1f MB of weights and %.1f MB of private memory are needed but %.1f MB are available: --overcommit "
            "runs all the same, rereading weights from disk",
            (double)p->mapped_bytes / mb, (double)p->private_bytes / mb, (double)p->available_bytes / mb);
    }
    return BT_OK;
}

/* Settings, tape and plan together; *tape is the caller's on success. */
static bt_status prepare(const bt_model *m, const bt_engine_options *o, settings *s, bt_tape **tape, bt_memory_plan *p,
                         bt_error *e)
{
    static const bt_engine_options none = {0};
    if (o == NULL) o = &none;
    bt_status st = read_settings(m, o, s, e);
    if (st == BT_OK) st = m->family->build_tape(m, &s->limits, tape, e);
    if (st != BT_OK) return st;
    fill_plan(m, s, *tape, p);
    st = check_plan(p, o, e);
    if (st != BT_OK) {
        bt_tape_free(*tape);
        *tape = NULL;
    }
    return st;
}

bt_status bt_engine_plan(const bt_model *m, const bt_engine_options *o, bt_memory_plan *plan, bt_error *e)
{
    settings s;
    bt_tape *tape = NULL;
    bt_status st = prepare(m, o, &s, &tape, plan, e);
    bt_tape_free(tape);
    return st;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

bt_status bt_engine_open(const bt_model *m, const bt_engine_options *o, bt_engine **out, bt_error *e)
{
    settings s;
    bt_engine *g = bt_calloc(1, sizeof *g);
    if (g == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for an engine");
    bt_status st = prepare(m, o, &s, &g->tape, &g->memory, e);
    if (st != BT_OK) goto fail;
    g->model = m;
    g->vtable = s.vtable;
    g->slots = bt_calloc(s.limits.n_slots, sizeof *g->slots);
    g->ids = bt_calloc(s.limits.max_rows, sizeof *g->ids);
    g->segments = bt_calloc(s.limits.n_slots, sizeof *g->segments);
    g->logit_rows = bt_calloc(s.limits.max_rows, sizeof *g->logit_rows);
    g->n_kept_max = (uint32_t)g->memory.n_state_snapshots;
    g->kept_copy_bytes = bt_kept_copy_bytes(g->tape);
    uint64_t n_kept_bytes = kept_bytes(&s, g->tape);
    if (n_kept_bytes > 0) g->kept = bt_pages_alloc((size_t)n_kept_bytes);
    if (g->slots == NULL || g->ids == NULL || g->segments == NULL || g->logit_rows == NULL ||
        (n_kept_bytes > 0 && g->kept == NULL)) {
        st = bt_fail(e, BT_ERR_MEMORY, "no memory for an engine");
        goto fail;
    }
    st = g->vtable->open(&s.backend, &g->backend, e);
    if (st == BT_OK) st = g->vtable->plan_open(g->backend, g->tape, &g->plan, e);
    if (st != BT_OK) goto fail;
    *out = g;
    return BT_OK;
fail:
    bt_engine_close(g);
    return st;
}

void bt_engine_close(bt_engine *g)
{
    if (g == NULL) return;
    for (uint32_t i = 0; g->slots != NULL && i < g->tape->limits.n_slots; i++) assert(g->slots[i] == NULL);
    if (g->plan != NULL) g->vtable->plan_close(g->plan);
    if (g->backend != NULL) g->vtable->close(g->backend);
    if (g->kept != NULL) bt_pages_free(g->kept, (size_t)(g->kept_copy_bytes * g->n_kept_max * g->tape->limits.n_slots));
    bt_tape_free(g->tape);
    bt_free(g->slots);
    bt_free(g->ids);
    bt_free(g->segments);
    bt_free(g->logit_rows);
    bt_free(g);
}

const char *bt_engine_cpu_level(const bt_engine *g)
{
    return g->vtable->level(g->backend);
}

size_t bt_engine_n_threads(const bt_engine *g)
{
    return g->memory.n_threads;
}

void bt_engine_traffic(const bt_engine *g, bt_traffic *out)
{
    g->vtable->traffic(g->plan, out);
}

/* ---- a step over several timelines ------------------------------------------------------------------------------- */

static bt_status check_parts(const bt_engine *g, const bt_part *parts, size_t n_parts, bt_error *e)
{
    size_t n_rows = 0;
    if (n_parts == 0 || n_parts > g->tape->limits.n_slots) {
        return bt_fail(e, BT_ERR_USAGE, "a step over %zu sessions: 1 to %u are possible", n_parts,
                       g->tape->limits.n_slots);
    }
    if (parts == NULL) return bt_fail(e, BT_ERR_USAGE, "a step over %zu sessions without its parts", n_parts);
    for (size_t i = 0; i < n_parts; i++) {
        const bt_session *s = parts[i].session;
        if (s == NULL) return bt_fail(e, BT_ERR_USAGE, "part %zu of a step has no session", i);
        if (s->engine != g) return bt_fail(e, BT_ERR_USAGE, "a step names a session of another engine");
        for (size_t j = 0; j < i; j++) {
            if (parts[j].session == s) return bt_fail(e, BT_ERR_USAGE, "a step names one session twice");
        }
        if (parts[i].n == 0) return bt_fail(e, BT_ERR_USAGE, "a step has a session without ids");
        if (parts[i].n > g->tape->limits.max_rows - n_rows) {
            return bt_fail(e, BT_ERR_USAGE, "a step has more than the %u rows of --batch", g->tape->limits.max_rows);
        }
        n_rows += parts[i].n;
        bt_status st = bt_session_check(s, parts[i].ids, parts[i].n, e);
        if (st != BT_OK) return st;
    }
    return BT_OK;
}

bt_status bt_engine_step(bt_engine *g, const bt_part *parts, size_t n_parts, bt_error *e)
{
    bt_status st = check_parts(g, parts, n_parts, e);
    if (st != BT_OK) return st;
    bt_step step = {.ids = g->ids, .segments = g->segments, .n_segments = (uint32_t)n_parts};
    for (size_t i = 0; i < n_parts && st == BT_OK; i++) st = bt_kept_add(parts[i].session, e);
    if (st != BT_OK) return st;
    for (size_t i = 0; i < n_parts; i++) {
        const bt_session *s = parts[i].session;
        g->segments[i] = (bt_segment){
            .slot = s->slot, .row = step.n_rows, .n_rows = (uint32_t)parts[i].n, .position = (uint32_t)s->length};
        memcpy(g->ids + step.n_rows, parts[i].ids, parts[i].n * sizeof *g->ids);
        step.n_rows += (uint32_t)parts[i].n;
    }
    size_t slice = g->tape->limits.max_logit_rows;
    for (size_t from = 0; from < n_parts && st == BT_OK; from += slice) {
        size_t n = n_parts - from < slice ? n_parts - from : slice;
        for (size_t i = 0; i < n; i++) g->logit_rows[i] = g->segments[from + i].row + g->segments[from + i].n_rows - 1;
        step.logit_rows = g->logit_rows;
        step.n_logit_rows = (uint32_t)n;
        st = g->vtable->run(g->plan, &step, from == 0 ? BT_RUN_ALL : BT_RUN_HEAD, e);
        for (size_t i = 0; i < n && st == BT_OK; i++) {
            bt_session_take_logits(parts[from + i].session, g->vtable->logits(g->plan, (uint32_t)i));
        }
    }
    for (size_t i = 0; i < n_parts && st == BT_OK; i++) {
        bt_session_advance(parts[i].session, parts[i].ids, parts[i].n);
        parts[i].session->ends_single = parts[i].n == 1;
    }
    return st;
}
