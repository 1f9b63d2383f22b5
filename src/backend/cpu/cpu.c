/*
 * The CPU backend: open and close, and the memory of a plan. A plan takes three pieces from the system: one block with
 * activations, counters, attention partials and each thread's work areas; the states; and the weights that ops take as
 * f32 vectors (vectors.c). The sizes come from one function, so what is planned is what is taken.
 * Matrices are used where they lie.
 */
#include "backend/cpu/cpu.h"

#include <assert.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"

/* ---- open and close -----------------------------------------------------------------------------------------------
 */

static void cpu_close(bt_backend *be)
{
    if (be == NULL) return;
    bt_cpu *cpu = (bt_cpu *)be;
    bt_pool_close(cpu->pool);
    bt_free(cpu);
}

static bt_status cpu_open(const bt_backend_options *o, bt_backend **out, bt_error *e)
{
    assert(o->n_threads >= 1);
    bt_cpu *cpu = bt_calloc(1, sizeof *cpu);
    if (cpu == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for the cpu backend (%zu bytes)", sizeof *cpu);
    cpu->base.vtable = &bt_cpu_backend;
    cpu->n_threads = o->n_threads;
    bt_cpu_level has = bt_cpu_detect();
    bt_kernels_init(&cpu->kernels, o->cpu_level < has ? o->cpu_level : has);
    bt_status st = bt_pool_open(o->n_threads, &cpu->pool, e);
    if (st != BT_OK) {
        bt_free(cpu);
        return st;
    }
    *out = &cpu->base;
    return BT_OK;
}

static const char *cpu_level(const bt_backend *be)
{
    return bt_cpu_level_name(((const bt_cpu *)be)->kernels.level);
}

/* ---- sizes --------------------------------------------------------------------------------------------------------
 */

/* Adds count * size bytes to *bytes, rounded up to a cache line, and returns where they begin. */
static uint64_t reserve(bt_cpu_layout *l, uint64_t *bytes, uint64_t count, uint64_t size)
{
    uint64_t begin = *bytes;
    if (count != 0 && size > (PTRDIFF_MAX - 63) / count) l->fits = false;
    uint64_t wanted = l->fits ? (count * size + 63) / 64 * 64 : 0;
    if (wanted > (uint64_t)PTRDIFF_MAX - begin) l->fits = false;
    if (l->fits) *bytes += wanted;
    return begin;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void measure_experts(bt_cpu_layout *l, uint32_t n_experts, uint32_t k)
{
    l->n_experts = max_u32(l->n_experts, n_experts);
    l->k = max_u32(l->k, k);
}

/* Bytes for the partial results of an attention op that is cut along the keys: over a full context, for as many single
 * rows as are cut at most. */
static uint64_t partials_of(const bt_op *op, const bt_backend_options *o, const bt_tape *t)
{
    uint64_t n_tiles = bt_cpu_div_up(t->limits.context, BT_ATTN_TILE);
    if (o->n_threads == 1 || n_tiles == 1) return 0;
    uint64_t n_strips = t->states[op->u.attention.k].n_strips;
    if (n_strips >= BT_CPU_SPLIT_BELOW * o->n_threads) return 0; /* one row's strips keep all threads busy */
    uint64_t n_rows = bt_cpu_div_up(BT_CPU_SPLIT_BELOW * o->n_threads, n_strips);
    /* v_dim + 2 floats a head, each block's rounded up to 16; blocks are of equal size, up to one head. */
    uint64_t group = op->u.attention.n_heads / n_strips;
    uint64_t n_blocks = bt_cpu_div_up(group, BT_CPU_QUERIES_MIN);
    uint64_t row = n_strips * ((group + n_blocks - 1) * (op->u.attention.v_dim + 2) + 16 * n_blocks);
    uint64_t most = BT_CPU_PARTIALS_BYTES_MAX / sizeof(float);
    uint64_t floats = row > most / n_tiles / n_rows ? most : row * n_tiles * n_rows;
    return floats * sizeof(float);
}

/* The largest of every kind, and the sum of all vectors. */
static void measure_ops(bt_cpu_layout *l, const bt_backend_options *o, const bt_tape *t)
{
    for (uint32_t i = 0; i < t->n_ops; i++) {
        const bt_op *op = &t->ops[i];
        reserve(l, &l->vectors_bytes, bt_cpu_vector_floats(t, op), sizeof(float));
        if (op->kind == BT_OP_ROUTE) l->n_router = max_u32(l->n_router, op->u.route.logits.width);
        if (op->kind == BT_OP_MOE_UP_GATE)
            measure_experts(l, op->u.moe_up_gate.n_experts, op->u.moe_up_gate.routes.ids.width);
        if (op->kind == BT_OP_MOE_DOWN_SUM)
            measure_experts(l, op->u.moe_down_sum.n_experts, op->u.moe_down_sum.routes.ids.width);
        if (op->kind == BT_OP_MOE_VALUES)
            measure_experts(l, op->u.moe_values.n_experts, op->u.moe_values.routes.ids.width);
        if (op->kind != BT_OP_ATTENTION) continue;
        l->v_dim = max_u32(l->v_dim, op->u.attention.v_dim);
        uint64_t wanted = partials_of(op, o, t);
        if (l->partials_bytes < wanted) l->partials_bytes = wanted;
    }
}

/* The next area of `count` elements at base + *bytes; NULL where base is, and then only the size counts. */
static void *area(bt_cpu_layout *l, uint8_t *base, uint64_t *bytes, uint64_t count, uint64_t size)
{
    uint64_t begin = reserve(l, bytes, count, size);
    return base != NULL ? base + begin : NULL;
}

/* Places a thread's areas from `base` on and returns their bytes. */
static uint64_t place_thread(bt_cpu_layout *l, const bt_tape *t, uint8_t *base, bt_cpu_thread *th)
{
    uint64_t bytes = 0, rows = t->limits.max_rows, pairs = rows * l->k;
    uint64_t queries = l->v_dim > 0 ? BT_ATTN_QUERIES_MAX : 0;
    uint64_t experts = l->k > 0 ? (uint64_t)l->n_experts + 1 : 0, chunk = l->k > 0 ? BT_CPU_MOE_CHUNK : 0;
    if (pairs > UINT32_MAX) l->fits = false;
    th->kernel_scratch = area(l, base, &bytes, BT_KERNEL_SCRATCH_BYTES, 1);
    th->route_scratch = area(l, base, &bytes, 2 * (uint64_t)l->n_router, sizeof(float));
    th->q = area(l, base, &bytes, queries, sizeof(const float *));
    th->n_keys = area(l, base, &bytes, queries, sizeof(uint32_t));
    th->m = area(l, base, &bytes, queries, sizeof(float));
    th->l = area(l, base, &bytes, queries, sizeof(float));
    th->acc = area(l, base, &bytes, queries * l->v_dim, sizeof(float));
    th->tile_m = area(l, base, &bytes, queries, sizeof(float));
    th->tile_l = area(l, base, &bytes, queries, sizeof(float));
    th->tile_acc = area(l, base, &bytes, queries * l->v_dim, sizeof(float));
    th->starts = area(l, base, &bytes, experts, sizeof(uint32_t));
    th->active = area(l, base, &bytes, experts, sizeof(uint32_t));
    th->pairs = area(l, base, &bytes, pairs, sizeof(uint32_t));
    th->x_rows = area(l, base, &bytes, pairs, sizeof(uint32_t));
    th->y_rows = area(l, base, &bytes, pairs, sizeof(uint32_t));
    th->up = area(l, base, &bytes, rows * chunk, sizeof(float));
    th->outputs = area(l, base, &bytes, pairs * chunk, sizeof(float));
    th->sum = area(l, base, &bytes, chunk, sizeof(float));
    th->traffic = area(l, base, &bytes, 1, sizeof(bt_traffic));
    return bytes;
}

static bt_cpu_layout layout_of(const bt_backend_options *o, const bt_tape *t)
{
    bt_cpu_layout l = {.fits = true};
    bt_cpu_thread unused;
    measure_ops(&l, o, t);
    l.activations = reserve(&l, &l.bytes, t->scratch_words, sizeof(float));
    l.counters = reserve(&l, &l.bytes, t->n_ops, sizeof(bt_cpu_counter));
    l.shares = reserve(&l, &l.bytes, o->n_threads, sizeof(bt_cpu_counter));
    l.partials = reserve(&l, &l.bytes, l.partials_bytes, 1);
    l.arrivals = reserve(&l, &l.bytes, o->n_threads * BT_CPU_SPLIT_BELOW, sizeof(bt_cpu_counter));
    l.thread_bytes = place_thread(&l, t, NULL, &unused);
    l.threads = reserve(&l, &l.bytes, o->n_threads, l.thread_bytes);
    return l;
}

static uint64_t cpu_plan_scratch_bytes(const bt_backend_options *o, const bt_tape *t)
{
    bt_cpu_layout l = layout_of(o, t);
    return l.fits ? l.bytes : UINT64_MAX;
}

static uint64_t cpu_plan_weight_bytes(const bt_backend_options *o, const bt_tape *t)
{
    bt_cpu_layout l = layout_of(o, t);
    return l.fits ? l.vectors_bytes : UINT64_MAX;
}

/* ---- plan ---------------------------------------------------------------------------------------------------------
 */

static uint64_t states_bytes(const bt_tape *t)
{
    return t->slot_bytes * t->limits.n_slots; /* checked when the tape was built */
}

static void cpu_plan_close(bt_plan *p)
{
    if (p == NULL) return;
    bt_cpu_plan *plan = (bt_cpu_plan *)p;
    if (plan->block != NULL) bt_pages_free(plan->block, (size_t)plan->layout.bytes);
    if (plan->states != NULL) bt_pages_free(plan->states, (size_t)states_bytes(p->tape));
    if (plan->vectors != NULL) bt_pages_free(plan->vectors, (size_t)plan->layout.vectors_bytes);
    bt_free(plan->threads);
    bt_free(plan->vector_of_op);
    bt_free(plan->slot_seen);
    bt_free(plan);
}

static bool allocate(bt_cpu_plan *plan)
{
    const bt_tape *t = plan->base.tape;
    const bt_cpu_layout *l = &plan->layout;
    plan->threads = bt_calloc(plan->cpu->n_threads, sizeof *plan->threads);
    plan->vector_of_op = bt_calloc(t->n_ops, sizeof *plan->vector_of_op);
    plan->slot_seen = bt_calloc(t->limits.n_slots, sizeof *plan->slot_seen);
    if (plan->threads == NULL || plan->vector_of_op == NULL || plan->slot_seen == NULL) return false;
    plan->block = bt_pages_alloc((size_t)l->bytes);
    if (plan->block == NULL) return false;
    plan->bytes_taken = l->bytes;
    if (t->slot_bytes > 0) {
        plan->states = bt_pages_alloc((size_t)states_bytes(t));
        if (plan->states == NULL) return false;
    }
    if (l->vectors_bytes > 0) {
        plan->vectors = bt_pages_alloc((size_t)l->vectors_bytes);
        if (plan->vectors == NULL) return false;
        plan->bytes_taken += l->vectors_bytes;
    }
    return true;
}

static void place_block(bt_cpu_plan *plan)
{
    bt_cpu_layout *l = &plan->layout;
    plan->activations = (float *)(void *)(plan->block + l->activations);
    plan->counters = (bt_cpu_counter *)(void *)(plan->block + l->counters);
    plan->shares = (bt_cpu_counter *)(void *)(plan->block + l->shares);
    plan->partials = (float *)(void *)(plan->block + l->partials);
    plan->arrivals = (bt_cpu_counter *)(void *)(plan->block + l->arrivals);
    for (size_t i = 0; i < plan->cpu->n_threads; i++) {
        uint8_t *base = plan->block + l->threads + i * l->thread_bytes;
        uint64_t bytes = place_thread(l, plan->base.tape, base, &plan->threads[i]);
        assert(bytes == l->thread_bytes);
    }
}

static void fill_vectors(bt_cpu_plan *plan)
{
    const bt_tape *t = plan->base.tape;
    uint64_t used = 0;
    for (uint32_t i = 0; i < t->n_ops; i++) {
        const bt_op *op = &t->ops[i];
        if (op->kind == BT_OP_EMBED) plan->n_vocab = t->weights[op->u.embed.weight].n_rows;
        plan->vector_of_op[i] = used;
        bt_cpu_vector_fill(&plan->cpu->kernels, t, op, plan->vectors + used);
        used += bt_cpu_vector_floats(t, op);
    }
    assert(used * sizeof(float) == plan->layout.vectors_bytes);
}

/* Each thread is the first to touch its own work areas: on machines with several memories they then lie near it. */
static void touch_areas(void *arg, size_t thread_i)
{
    bt_cpu_plan *plan = arg;
    memset(plan->threads[thread_i].kernel_scratch, 0, (size_t)plan->layout.thread_bytes);
}

static bt_status cpu_plan_open(bt_backend *be, const bt_tape *t, bt_plan **out, bt_error *e)
{
    bt_cpu *cpu = (bt_cpu *)be;
    bt_cpu_plan *plan = bt_calloc(1, sizeof *plan);
    if (plan == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a plan (%zu bytes)", sizeof *plan);
    plan->base = (bt_plan){.vtable = &bt_cpu_backend, .tape = t};
    plan->cpu = cpu;
    plan->layout = layout_of(&(bt_backend_options){.n_threads = cpu->n_threads}, t);
    if (!plan->layout.fits || !allocate(plan)) {
        bt_status st =
            bt_fail(e, BT_ERR_MEMORY, "no memory for a plan: %llu bytes of states, %llu of scratch and %llu of weights",
                    (unsigned long long)states_bytes(t), (unsigned long long)plan->layout.bytes,
                    (unsigned long long)plan->layout.vectors_bytes);
        cpu_plan_close(&plan->base);
        return st;
    }
    place_block(plan);
    fill_vectors(plan);
    bt_pool_run(cpu->pool, touch_areas, plan);
    *out = &plan->base;
    return BT_OK;
}

static const float *cpu_logits(const bt_plan *p, uint32_t i)
{
    const bt_cpu_plan *plan = (const bt_cpu_plan *)p;
    bt_act a = p->tape->logits;
    assert(i < p->tape->limits.max_logit_rows);
    return plan->activations + a.offset + (uint64_t)i * a.stride;
}

static void cpu_traffic(const bt_plan *p, bt_traffic *out)
{
    const bt_cpu_plan *plan = (const bt_cpu_plan *)p;
    *out = (bt_traffic){0};
    for (size_t i = 0; i < plan->cpu->n_threads; i++) {
        const bt_traffic *t = plan->threads[i].traffic;
        for (size_t c = 0; c < BT_N_CLASSES; c++) out->weights[c] += t->weights[c];
        out->kv += t->kv;
        out->state += t->state;
        out->flops += t->flops;
    }
}

/* ---- states -------------------------------------------------------------------------------------------------------
 */

static uint8_t *slot_at(const bt_plan *p, uint32_t slot, uint64_t offset, uint64_t size)
{
    const bt_cpu_plan *plan = (const bt_cpu_plan *)p;
    assert(slot < p->tape->limits.n_slots);
    assert(offset <= p->tape->slot_bytes);
    assert(size <= p->tape->slot_bytes - offset);
    return plan->states + slot * p->tape->slot_bytes + offset;
}

static bt_status cpu_state_read(const bt_plan *p, uint32_t slot, uint64_t offset, void *to, size_t size, bt_error *e)
{
    (void)e; /* memory cannot fail */
    if (size > 0) memcpy(to, slot_at(p, slot, offset, size), size);
    return BT_OK;
}

static bt_status cpu_state_write(bt_plan *p, uint32_t slot, uint64_t offset, const void *from, size_t size, bt_error *e)
{
    (void)e;
    if (size > 0) memcpy(slot_at(p, slot, offset, size), from, size);
    return BT_OK;
}

/* Only what a step reads before it is written: a position is stored before any query may see it, and clearing all
 * positions of a long context would touch memory that a short conversation never needs. */
static bt_status cpu_state_zero(bt_plan *p, uint32_t slot, bt_error *e)
{
    (void)e;
    for (uint32_t i = 0; i < p->tape->n_states; i++) {
        const bt_state *s = &p->tape->states[i];
        uint64_t bytes = s->strip_bytes * s->n_strips;
        if (!s->per_position) memset(slot_at(p, slot, s->offset, bytes), 0, (size_t)bytes);
    }
    return BT_OK;
}

const bt_backend_vtable bt_cpu_backend = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .level = cpu_level,
    .plan_scratch_bytes = cpu_plan_scratch_bytes,
    .plan_weight_bytes = cpu_plan_weight_bytes,
    .plan_open = cpu_plan_open,
    .plan_close = cpu_plan_close,
    .run = bt_cpu_run_step,
    .logits = cpu_logits,
    .traffic = cpu_traffic,
    .state_read = cpu_state_read,
    .state_write = cpu_state_write,
    .state_zero = cpu_state_zero,
};
