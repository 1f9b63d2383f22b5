/*
 * The CPU backend's inside. A step is one parallel region in which every thread walks the ops of the tape; threads meet
 * where an op has a barrier, and take the parts of an op ("items") from that op's counter, so that a slow core holds
 * nobody up. Which thread does an item changes no bit: an item is always a range of outputs, never of a reduction.
 *
 *   cpu.c             open and close, the memory of a plan
 *   vectors.c         weights that ops keep as f32 vectors
 *   run.c             one step: checks, the region, the walk
 *   exec_rows.c       ops over token rows: embed, norm, rope, store, activations, route, select, mix over depth
 *   exec_linear.c     linear
 *   exec_attention.c  attention
 *   exec_mla.c        into and out of the latent space of attention
 *   exec_recurrent.c  convolution and delta rule, whose states go from row to row
 *   exec_moe.c        mixtures of experts
 *   traffic.c         the count of bytes that all of them hand to kernels
 *   plant.c           a fault on purpose, in the test build only
 */
#ifndef BACKEND_CPU_CPU_H
#define BACKEND_CPU_CPU_H

#include <assert.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "base/pool.h"
#include "kernel/kernels.h"

/* Most output rows of an expert's matrix in one item: bounds the work areas of a thread. A multiple of 8 and 12, the
 * rows that kernels take together. */
#define BT_CPU_MOE_CHUNK 72u
/* An attention op is cut along the keys only if it has fewer items than this many per thread ... */
#define BT_CPU_SPLIT_BELOW 4u
/* A block of queries is cut no finer than this: it pays for the tile of keys that it shares. */
#define BT_CPU_QUERIES_MIN 8u
/* ... and if the partial results fit into this. */
#define BT_CPU_PARTIALS_BYTES_MAX ((uint64_t)4 << 20)

typedef struct bt_cpu { /* a bt_backend */
    bt_backend base;
    bt_pool *pool;
    size_t n_threads;
    bt_kernels kernels;
} bt_cpu;

/* The next item of an op, alone on its cache line. */
typedef struct bt_cpu_counter {
    _Atomic uint64_t next;
    uint64_t unused[7];
} bt_cpu_counter;
_Static_assert(sizeof(bt_cpu_counter) == 64, "a counter fills a cache line");

/* What one thread works in. All of it lies in the plan's block. */
typedef struct bt_cpu_thread {
    void *kernel_scratch; /* BT_KERNEL_SCRATCH_BYTES */
    float *route_scratch; /* [2 n_experts] */
    /* Attention: the running result and that of one tile, for up to BT_ATTN_QUERIES_MAX queries. */
    const float **q;
    uint32_t *n_keys;
    float *m, *l, *acc; /* acc: [queries][v_dim] */
    float *tile_m, *tile_l, *tile_acc;
    /* Experts: the step's (row, slot) pairs grouped by expert. */
    uint32_t *starts;          /* [n_experts + 1] into pairs */
    uint32_t *active;          /* [n_experts]: experts that have pairs */
    uint32_t *pairs;           /* [rows * k]: row * k + slot */
    uint32_t *x_rows, *y_rows; /* [rows * k], in the order of pairs */
    float *up;                 /* [rows][BT_CPU_MOE_CHUNK] */
    float *outputs;            /* [rows * k][BT_CPU_MOE_CHUNK]: of each pair's expert */
    float *sum;                /* [BT_CPU_MOE_CHUNK] */
    bt_traffic *traffic;       /* what this thread handed to kernels */
} bt_cpu_thread;

/* Bytes and offsets of the plan's block; computed from the tape, the same for the plan's sizes and for its opening. */
typedef struct bt_cpu_layout {
    uint64_t activations; /* offsets */
    uint64_t counters, shares, partials, arrivals, threads;
    uint64_t thread_bytes; /* from one thread's area to the next */
    uint64_t bytes;
    uint64_t partials_bytes;
    uint64_t vectors_bytes; /* a block of its own */
    /* Largest over the ops of the tape. */
    uint32_t v_dim, n_experts, k, n_router;
    bool fits; /* in 64 bits */
} bt_cpu_layout;

typedef struct bt_cpu_plan { /* a bt_plan */
    bt_plan base;
    bt_cpu *cpu;
    bt_cpu_layout layout;
    uint8_t *block;
    uint8_t *states; /* [n_slots][slot_bytes] */
    float *vectors;  /* weights that ops take as f32 vectors */
    float *activations;
    bt_cpu_counter *counters; /* [n_ops] */
    bt_cpu_counter *shares;   /* [n_threads]: what is taken of a thread's own part of an op */
    float *partials;          /* attention cut along the keys */
    bt_cpu_counter *arrivals; /* [n_threads * BT_CPU_SPLIT_BELOW]: tiles done of an item; zero between ops */
    bt_cpu_thread *threads;   /* [n_threads] */
    uint64_t *vector_of_op;   /* [n_ops]: first float in vectors */
    bool *slot_seen;          /* [n_slots]: for the check of a step; false between steps */
    uint64_t bytes_taken;     /* from the system, beside states */
    uint32_t n_rows_last;     /* of the last step's body */
    uint32_t n_vocab;         /* rows of the embedding; 0: none on the tape */
} bt_cpu_plan;

/* One step under way. */
typedef struct bt_cpu_run {
    bt_cpu_plan *plan;
    const bt_step *step;
    uint32_t op_begin, op_end;
} bt_cpu_run;

extern const bt_backend_vtable bt_cpu_backend;

bt_status bt_cpu_run_step(bt_plan *p, const bt_step *s, bt_run_part part, bt_error *e);

/* Weights that an op keeps as f32 vectors: how many floats, in whole cache lines; and their values, once. */
uint64_t bt_cpu_vector_floats(const bt_tape *t, const bt_op *op);
void bt_cpu_vector_fill(const bt_kernels *k, const bt_tape *t, const bt_op *op, float *y);
const float *bt_cpu_vector(const bt_cpu_run *r, uint32_t op_i);
const float *bt_cpu_taps(const bt_cpu_run *r, uint32_t op_i, size_t *stride); /* [n_taps] rows of [channels] */
const float *bt_cpu_rates(const bt_cpu_run *r, uint32_t op_i);                /* [n_heads], after the gates' bias */

/* Counts as handed to a kernel by this thread: rows [r0, r1) of a weight, multiplied with n_x activations; n floats of
 * a weight that is kept as a vector. */
void bt_cpu_count_rows(const bt_cpu_run *r, size_t thread_i, bt_class class, const bt_view *w, uint64_t r0, uint64_t r1,
                       uint64_t n_x);
void bt_cpu_count_vector(const bt_cpu_run *r, size_t thread_i, uint32_t weight, uint64_t n);
bt_class bt_cpu_class_of(const bt_cpu_run *r, uint32_t weight);

/* y [n_cols] = row `row` of a matrix, not of BT_MXFP4, as f32: code times block scale. */
void bt_cpu_widen_row(const bt_kernels *k, float *y, const bt_view *w, uint64_t row);

#ifdef BT_TEST_BUILD
/* A fault on purpose (plant.c): from now on a product with one token sums in another order than one with several. */
void bt_cpu_plant_reduction_order(bt_plan *p);
void bt_cpu_exec_keep(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
#endif

/* Each executes what is left of an op; called by every thread. op_i names the counter. */
void bt_cpu_exec_embed(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_rms_norm(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_rope_angles(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_rope(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_store(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_gate_mul(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_act_mul(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_route(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_select_rows(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_linear(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_attention(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_conv_silu(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_kda_gates(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_kda_step(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_mla_absorb(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_mla_values(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_res_mix(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_moe_up_gate(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_moe_down_sum(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);
void bt_cpu_exec_moe_values(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);

/* ---- small shared pieces ------------------------------------------------------------------------------------------
 */

typedef struct bt_cpu_items {
    uint64_t begin, end;
} bt_cpu_items;

/* Takes the next `grain` of n_items items of an op; false: none are left. Relaxed: barriers order the data. */
static inline bool bt_cpu_claim(const bt_cpu_run *r, uint32_t op_i, uint64_t n_items, uint64_t grain,
                                bt_cpu_items *items)
{
    assert(grain > 0);
    uint64_t begin = atomic_fetch_add_explicit(&r->plan->counters[op_i].next, grain, memory_order_relaxed);
    if (begin >= n_items) return false;
    items->begin = begin;
    items->end = grain < n_items - begin ? begin + grain : n_items;
    return true;
}

/* A thread's share of an op is a word of its own: which op it counts, above how much of it is taken. A word of an
 * earlier op counts as nothing taken. One of a later op means that all is: a thread goes on only when the shares that
 * it may touch are taken. */
#define BT_CPU_TAKEN_BITS 32u
/* So many neighbours are helped at most: a look at a share is a trip to another core. */
#define BT_CPU_HELPED_MAX 8u

static inline bool bt_cpu_claim_share(bt_cpu_counter *share, uint32_t op_i, uint64_t n, uint64_t grain,
                                      bt_cpu_items *items)
{
    const uint64_t tag = (uint64_t)op_i + 1, mask = ((uint64_t)1 << BT_CPU_TAKEN_BITS) - 1;
    uint64_t word = atomic_load_explicit(&share->next, memory_order_relaxed);
    assert(n <= mask && grain > 0);
    do {
        uint64_t of = word >> BT_CPU_TAKEN_BITS;
        items->begin = of < tag ? 0 : of > tag ? n : word & mask;
        if (items->begin >= n) return false;
        items->end = grain < n - items->begin ? items->begin + grain : n;
    } while (!atomic_compare_exchange_weak_explicit(&share->next, &word, tag << BT_CPU_TAKEN_BITS | items->end,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* As bt_cpu_claim, but a thread takes its own part of the items first, in order, and only then those of neighbours: for
 * items that are small beside a trip to another core. *n_helped is 0 before the first call. An op uses either this or
 * shares in its own way. */
static inline bool bt_cpu_claim_near(const bt_cpu_run *r, uint32_t op_i, size_t thread_i, size_t *n_helped,
                                     uint64_t n_items, bt_cpu_items *items)
{
    size_t n_threads = r->plan->cpu->n_threads;
    for (; *n_helped < n_threads && *n_helped <= BT_CPU_HELPED_MAX; (*n_helped)++) {
        size_t owner = (thread_i + *n_helped) % n_threads;
        uint64_t first = n_items * owner / n_threads, n = n_items * (owner + 1) / n_threads - first;
        if (!bt_cpu_claim_share(&r->plan->shares[owner], op_i, n, 1, items)) continue;
        items->begin += first;
        items->end += first;
        return true;
    }
    return false;
}

static inline const bt_op *bt_cpu_op(const bt_cpu_run *r, uint32_t op_i)
{
    return &r->plan->base.tape->ops[op_i];
}

static inline uint32_t bt_cpu_n_rows(const bt_cpu_run *r, bt_act a)
{
    return a.space == BT_SPACE_LOGITS ? r->step->n_logit_rows : r->step->n_rows;
}

static inline float *bt_cpu_row(const bt_cpu_run *r, bt_act a, uint64_t row)
{
    assert(a.dtype == BT_F32);
    return r->plan->activations + a.offset + row * a.stride;
}

/* Scratch is float; the words of an I32 activation are only ever used as int32_t. */
static inline int32_t *bt_cpu_row_i32(const bt_cpu_run *r, bt_act a, uint64_t row)
{
    assert(a.dtype == BT_I32);
    return (int32_t *)(void *)(r->plan->activations + a.offset + row * a.stride);
}

/* A state's first strip in the slot of a timeline. */
static inline uint8_t *bt_cpu_state(const bt_cpu_run *r, const bt_state *s, uint32_t slot)
{
    return r->plan->states + slot * r->plan->base.tape->slot_bytes + s->offset;
}

/* y = act(g) * u for every bt_fn. */
static inline void bt_cpu_act_mul(const bt_kernels *k, float *y, const float *g, const float *u, size_t n, uint32_t act,
                                  bt_situ situ)
{
    if (act == BT_FN_SITU)
        k->situ_mul(y, g, u, n, situ.beta, situ.linear_beta);
    else
        k->act_mul(y, g, u, n, (bt_act_kind)act);
}

static inline uint64_t bt_cpu_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t bt_cpu_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

#endif
