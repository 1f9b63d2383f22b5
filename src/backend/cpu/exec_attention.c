/*
 * Attention. The work of an op is cut into items: (segment, KV head, block of queries). The queries of a KV head are
 * its group's heads of every row, row by row, so that one pass over a tile of keys serves up to BT_ATTN_QUERIES_MAX of
 * them.
 *
 * A tile of BT_ATTN_TILE keys at a fixed position gives each query a partial result; partial results are merged in
 * ascending order. Either one thread walks the tiles of an item and merges as it goes, or, in steps with few items and
 * long contexts, threads compute partial results into a shared area and the last to finish an item merges them. The
 * merges are the same, so the bits are.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

typedef struct shape {
    const bt_op *op;
    const bt_state *k, *v;
    uint32_t head_dim, n_strips;
    uint32_t group; /* query heads per KV head */
} shape;

/* Queries [q0, q0 + n_q) of a segment and strip: query i is row i / group, head strip * group + i % group. */
typedef struct item {
    const bt_segment *segment;
    uint32_t strip;
    uint64_t q0;
    size_t n_q;
    uint64_t n_tiles; /* that its last query sees */
} item;

/* Where partial results lie. */
typedef struct partial {
    float *m, *l, *acc; /* [n_q], [n_q], [n_q][head_dim] */
} partial;

/* Finds the segment of ever larger item numbers. */
typedef struct cursor {
    uint32_t segment_i;
    uint64_t first; /* item of the segment */
} cursor;

static shape shape_of(const bt_cpu_run *r, uint32_t op_i)
{
    const bt_tape *t = r->plan->base.tape;
    const bt_op *op = bt_cpu_op(r, op_i);
    shape s = {.op = op, .k = &t->states[op->u.attention.k], .v = &t->states[op->u.attention.v]};
    s.head_dim = op->u.attention.head_dim;
    s.n_strips = s.k->n_strips;
    s.group = op->u.attention.n_heads / s.n_strips;
    return s;
}

static uint64_t n_blocks_of(const shape *s, const bt_segment *g)
{
    return bt_cpu_div_up((uint64_t)g->n_rows * s->group, BT_ATTN_QUERIES_MAX);
}

static uint64_t n_tiles_of(const bt_segment *g)
{
    return bt_cpu_div_up((uint64_t)g->position + g->n_rows, BT_ATTN_TILE);
}

static uint32_t position_of(const shape *s, const item *it, uint64_t i)
{
    return it->segment->position + (uint32_t)((it->q0 + i) / s->group);
}

/* One tile of an item into a fresh partial result. */
static void compute_tile(const bt_cpu_run *r, const shape *s, const item *it, uint64_t tile, partial p,
                         bt_cpu_thread *th)
{
    uint64_t first_key = tile * BT_ATTN_TILE;
    bt_act q = s->op->u.attention.q;
    for (size_t i = 0; i < it->n_q; i++) {
        uint64_t row = it->segment->row + (it->q0 + i) / s->group;
        uint64_t head = (uint64_t)it->strip * s->group + (it->q0 + i) % s->group;
        uint64_t n_seen = (uint64_t)position_of(s, it, i) + 1; /* a row sees itself and all before */
        th->q[i] = bt_cpu_row(r, q, row) + head * s->head_dim;
        th->n_keys[i] = n_seen <= first_key ? 0 : (uint32_t)bt_cpu_min(n_seen - first_key, BT_ATTN_TILE);
    }
    const uint8_t *slot = r->plan->states + it->segment->slot * r->plan->base.tape->slot_bytes;
    uint64_t row_bytes = (uint64_t)s->head_dim * bt_dtype_bits((bt_dtype)s->k->dtype) / 8;
    bt_attn a = {
        .q = th->q,
        .n_keys = th->n_keys,
        .n_q = it->n_q,
        .k = slot + s->k->offset + it->strip * s->k->strip_bytes + first_key * row_bytes,
        .v = slot + s->v->offset + it->strip * s->v->strip_bytes + first_key * row_bytes,
        .kv_dtype = (bt_dtype)s->k->dtype,
        .head_dim = s->head_dim,
        .v_dim = s->head_dim,
        .k_stride = s->head_dim,
        .v_stride = s->head_dim,
        .scale = s->op->u.attention.scale,
        .m = p.m,
        .l = p.l,
        .acc = p.acc,
        .scratch = th->kernel_scratch,
    };
    r->plan->cpu->kernels.attn_tile(&a);
    th->traffic->kv += 2 * row_bytes * th->n_keys[it->n_q - 1]; /* the last query sees most */
    for (size_t i = 0; i < it->n_q; i++) th->traffic->flops += 4 * (uint64_t)s->head_dim * th->n_keys[i];
}

static void merge(const bt_cpu_run *r, const shape *s, const item *it, partial into, partial p)
{
    for (size_t i = 0; i < it->n_q; i++)
        r->plan->cpu->kernels.attn_merge(&into.m[i], &into.l[i], into.acc + i * s->head_dim, p.m[i], p.l[i],
                                         p.acc + i * s->head_dim, s->head_dim);
}

static void finish(const bt_cpu_run *r, const shape *s, const item *it, partial p)
{
    bt_act y = s->op->u.attention.y;
    for (size_t i = 0; i < it->n_q; i++) {
        uint64_t row = it->segment->row + (it->q0 + i) / s->group;
        uint64_t head = (uint64_t)it->strip * s->group + (it->q0 + i) % s->group;
        r->plan->cpu->kernels.attn_finish(bt_cpu_row(r, y, row) + head * s->head_dim, p.acc + i * s->head_dim, p.l[i],
                                          s->head_dim);
    }
}

/* ---- one thread walks the tiles -----------------------------------------------------------------------------------
 */

/* Items of a segment: strip by strip; in a strip the last block, which sees most keys, comes first. */
static item item_at(const bt_cpu_run *r, const shape *s, cursor *c, uint64_t item_i)
{
    const bt_segment *g = &r->step->segments[c->segment_i];
    uint64_t n_blocks = n_blocks_of(s, g);
    while (item_i - c->first >= n_blocks * s->n_strips) {
        c->first += n_blocks * s->n_strips;
        g = &r->step->segments[++c->segment_i];
        n_blocks = n_blocks_of(s, g);
    }
    assert(c->segment_i < r->step->n_segments);
    uint64_t block = n_blocks - 1 - (item_i - c->first) % n_blocks;
    item it = {.segment = g, .strip = (uint32_t)((item_i - c->first) / n_blocks), .q0 = block * BT_ATTN_QUERIES_MAX};
    it.n_q = (size_t)bt_cpu_min(BT_ATTN_QUERIES_MAX, (uint64_t)g->n_rows * s->group - it.q0);
    it.n_tiles = position_of(s, &it, it.n_q - 1) / BT_ATTN_TILE + 1;
    return it;
}

static void walk_item(const bt_cpu_run *r, const shape *s, const item *it, bt_cpu_thread *th)
{
    partial sum = {th->m, th->l, th->acc}, fresh = {th->tile_m, th->tile_l, th->tile_acc};
    compute_tile(r, s, it, 0, sum, th); /* merging into nothing copies: the same */
    for (uint64_t tile = 1; tile < it->n_tiles; tile++) {
        compute_tile(r, s, it, tile, fresh, th);
        merge(r, s, it, sum, fresh);
    }
    finish(r, s, it, sum);
}

/* ---- threads share the tiles of an item ---------------------------------------------------------------------------
 */

typedef struct split {
    uint64_t n_tasks;     /* tiles of all items */
    uint64_t slot_floats; /* of one partial result */
    size_t n_q_max;
} split;

/* True if the op is better cut along the keys: too few items for the threads, several tiles, and room for all. */
static bool wants_split(const bt_cpu_run *r, const shape *s, split *sp)
{
    uint64_t n_items = 0, n_tiles_max = 0, n_rows_max = 0, n_threads = r->plan->cpu->n_threads;
    sp->n_tasks = 0;
    for (uint32_t i = 0; i < r->step->n_segments; i++) {
        const bt_segment *g = &r->step->segments[i];
        if (n_blocks_of(s, g) != 1) return false;
        n_items += s->n_strips;
        sp->n_tasks += s->n_strips * n_tiles_of(g);
        if (n_tiles_max < n_tiles_of(g)) n_tiles_max = n_tiles_of(g);
        if (n_rows_max < g->n_rows) n_rows_max = g->n_rows;
        if (n_items >= BT_CPU_SPLIT_BELOW * n_threads) return false;
    }
    assert(n_rows_max > 0);
    sp->n_q_max = (size_t)n_rows_max * s->group;
    sp->slot_floats = (sp->n_q_max * (s->head_dim + 2) + 15) / 16 * 16;
    if (n_threads == 1 || n_tiles_max == 1) return false;
    return sp->n_tasks <= r->plan->layout.partials_bytes / sizeof(float) / sp->slot_floats;
}

static partial partial_at(const bt_cpu_run *r, const split *sp, uint64_t task)
{
    float *slot = r->plan->partials + task * sp->slot_floats;
    return (partial){.acc = slot + 2 * sp->n_q_max, .m = slot, .l = slot + sp->n_q_max};
}

/* Task numbers run over segments, strips and tiles. */
static void do_task(const bt_cpu_run *r, const shape *s, const split *sp, cursor *c, uint64_t task, bt_cpu_thread *th)
{
    const bt_segment *g = &r->step->segments[c->segment_i];
    while (task - c->first >= n_tiles_of(g) * s->n_strips) {
        c->first += n_tiles_of(g) * s->n_strips;
        g = &r->step->segments[++c->segment_i];
    }
    item it = {.segment = g, .n_q = (size_t)g->n_rows * s->group, .n_tiles = n_tiles_of(g)};
    it.strip = (uint32_t)((task - c->first) / it.n_tiles);
    uint64_t tile = (task - c->first) % it.n_tiles;
    compute_tile(r, s, &it, tile, partial_at(r, sp, task), th);

    /* Who arrives last sees all partial results (acquire and release), and leaves the count at zero for the next op. */
    bt_cpu_counter *arrivals = &r->plan->arrivals[(uint64_t)c->segment_i * s->n_strips + it.strip];
    uint64_t n_done = atomic_fetch_add_explicit(&arrivals->next, 1, memory_order_acq_rel) + 1;
    if (n_done < it.n_tiles) return;
    atomic_store_explicit(&arrivals->next, 0, memory_order_relaxed);
    partial sum = partial_at(r, sp, task - tile);
    for (uint64_t t = 1; t < it.n_tiles; t++) merge(r, s, &it, sum, partial_at(r, sp, task - tile + t));
    finish(r, s, &it, sum);
}

void bt_cpu_exec_attention(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    shape s = shape_of(r, op_i);
    bt_cpu_thread *th = &r->plan->threads[thread_i];
    cursor c = {0};
    bt_cpu_items claimed;
    split sp;
    if (wants_split(r, &s, &sp)) {
        while (bt_cpu_claim(r, op_i, sp.n_tasks, 1, &claimed)) do_task(r, &s, &sp, &c, claimed.begin, th);
        return;
    }
    uint64_t n_items = 0;
    for (uint32_t i = 0; i < r->step->n_segments; i++) n_items += s.n_strips * n_blocks_of(&s, &r->step->segments[i]);
    while (bt_cpu_claim(r, op_i, n_items, 1, &claimed)) {
        item it = item_at(r, &s, &c, claimed.begin);
        walk_item(r, &s, &it, th);
    }
}
