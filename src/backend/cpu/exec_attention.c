/*
 * Attention. The work of an op is cut into items: (segment, KV head, block of queries). The queries of a KV head are
 * its group's heads of every row, row by row, so that one pass over a tile of keys serves up to BT_ATTN_QUERIES_MAX of
 * them. Blocks are smaller where there would be too few for the threads: in latent attention one KV head serves all.
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
    uint32_t head_dim, v_dim, n_strips;
    uint32_t group;     /* query heads per KV head */
    uint64_t block_max; /* queries of an item */
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
    float *m, *l, *acc; /* [n_q], [n_q], [n_q][v_dim] */
} partial;

/* Finds the segment of ever larger item numbers. */
typedef struct cursor {
    uint32_t segment_i;
    uint64_t first;      /* item of the segment, or task */
    uint64_t first_item; /* of the segment, where tasks are counted */
} cursor;

static uint64_t n_tiles_of(const bt_segment *g)
{
    return bt_cpu_div_up((uint64_t)g->position + g->n_rows, BT_ATTN_TILE);
}

/* Small enough that queries times tiles give every thread several pieces; a whole number of the smallest blocks. */
static uint64_t block_max_of(const bt_cpu_run *r, const shape *s)
{
    uint64_t n_threads = r->plan->cpu->n_threads, work = 0;
    if (n_threads == 1) return BT_ATTN_QUERIES_MAX;
    for (uint32_t i = 0; i < r->step->n_segments; i++) {
        const bt_segment *g = &r->step->segments[i];
        work += (uint64_t)g->n_rows * s->group * s->n_strips * n_tiles_of(g);
    }
    uint64_t share = bt_cpu_div_up(work, BT_CPU_SPLIT_BELOW * n_threads);
    return bt_cpu_min(bt_cpu_div_up(share, BT_CPU_QUERIES_MIN) * BT_CPU_QUERIES_MIN, BT_ATTN_QUERIES_MAX);
}

static shape shape_of(const bt_cpu_run *r, uint32_t op_i)
{
    const bt_tape *t = r->plan->base.tape;
    const bt_op *op = bt_cpu_op(r, op_i);
    shape s = {.op = op, .k = &t->states[op->u.attention.k], .v = &t->states[op->u.attention.v]};
    s.head_dim = op->u.attention.head_dim;
    s.v_dim = op->u.attention.v_dim;
    s.n_strips = s.k->n_strips;
    s.group = op->u.attention.n_heads / s.n_strips;
    s.block_max = block_max_of(r, &s);
    return s;
}

static uint64_t n_blocks_of(const shape *s, const bt_segment *g)
{
    return bt_cpu_div_up((uint64_t)g->n_rows * s->group, s->block_max);
}

static uint64_t n_items_of(const shape *s, const bt_segment *g)
{
    return n_blocks_of(s, g) * s->n_strips;
}

/* Queries of a block: about equal, at most block_max. */
static uint64_t block_of(const shape *s, const bt_segment *g)
{
    return bt_cpu_div_up((uint64_t)g->n_rows * s->group, n_blocks_of(s, g));
}

static uint32_t position_of(const shape *s, const item *it, uint64_t i)
{
    return it->segment->position + (uint32_t)((it->q0 + i) / s->group);
}

/* True if the first head of some row is among an item's queries. The row's other blocks read the same keys again, soon
 * after and nearby: they are counted once. */
static bool counts_keys(const shape *s, const item *it)
{
    return it->q0 % s->group == 0 || it->q0 / s->group != (it->q0 + it->n_q - 1) / s->group;
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
    uint64_t row_bytes = (uint64_t)s->k->width * bt_dtype_bits((bt_dtype)s->k->dtype) / 8;
    bt_attn a = {
        .q = th->q,
        .n_keys = th->n_keys,
        .n_q = it->n_q,
        .k = bt_cpu_state(r, s->k, it->segment->slot) + it->strip * s->k->strip_bytes + first_key * row_bytes,
        .v = bt_cpu_state(r, s->v, it->segment->slot) + it->strip * s->v->strip_bytes + first_key * row_bytes,
        .kv_dtype = (bt_dtype)s->k->dtype,
        .head_dim = s->head_dim,
        .v_dim = s->v_dim,
        .k_stride = s->k->width,
        .v_stride = s->v->width,
        .scale = s->op->u.attention.scale,
        .m = p.m,
        .l = p.l,
        .acc = p.acc,
        .scratch = th->kernel_scratch,
    };
    r->plan->cpu->kernels.attn_tile(&a);
    uint64_t n_strips = s->k == s->v ? 1 : 2; /* the last query sees most */
    if (counts_keys(s, it)) th->traffic->kv += n_strips * row_bytes * th->n_keys[it->n_q - 1];
    for (size_t i = 0; i < it->n_q; i++) th->traffic->flops += 2 * ((uint64_t)s->head_dim + s->v_dim) * th->n_keys[i];
}

static void merge(const bt_cpu_run *r, const shape *s, const item *it, partial into, partial p)
{
    for (size_t i = 0; i < it->n_q; i++)
        r->plan->cpu->kernels.attn_merge(&into.m[i], &into.l[i], into.acc + i * s->v_dim, p.m[i], p.l[i],
                                         p.acc + i * s->v_dim, s->v_dim);
}

static void finish(const bt_cpu_run *r, const shape *s, const item *it, partial p)
{
    bt_act y = s->op->u.attention.y;
    for (size_t i = 0; i < it->n_q; i++) {
        uint64_t row = it->segment->row + (it->q0 + i) / s->group;
        uint64_t head = (uint64_t)it->strip * s->group + (it->q0 + i) % s->group;
        r->plan->cpu->kernels.attn_finish(bt_cpu_row(r, y, row) + head * s->v_dim, p.acc + i * s->v_dim, p.l[i],
                                          s->v_dim);
    }
}

/* ---- one thread walks the tiles -----------------------------------------------------------------------------------
 */

/* Item i of a segment: strip by strip; in a strip the last block, which sees most keys, comes first. */
static item item_of(const shape *s, const bt_segment *g, uint64_t i)
{
    uint64_t n_blocks = n_blocks_of(s, g), size = block_of(s, g);
    item it = {.segment = g, .strip = (uint32_t)(i / n_blocks), .q0 = (n_blocks - 1 - i % n_blocks) * size};
    it.n_q = (size_t)bt_cpu_min(size, (uint64_t)g->n_rows * s->group - it.q0);
    it.n_tiles = position_of(s, &it, it.n_q - 1) / BT_ATTN_TILE + 1;
    return it;
}

static item item_at(const bt_cpu_run *r, const shape *s, cursor *c, uint64_t item_i)
{
    const bt_segment *g = &r->step->segments[c->segment_i];
    while (item_i - c->first >= n_items_of(s, g)) {
        c->first += n_items_of(s, g);
        g = &r->step->segments[++c->segment_i];
    }
    assert(c->segment_i < r->step->n_segments);
    return item_of(s, g, item_i - c->first);
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
    uint64_t n_items = 0, n_tiles_max = 0, n_q_max = 0, n_threads = r->plan->cpu->n_threads;
    sp->n_tasks = 0;
    for (uint32_t i = 0; i < r->step->n_segments; i++) {
        const bt_segment *g = &r->step->segments[i];
        n_items += n_items_of(s, g);
        if (n_items >= BT_CPU_SPLIT_BELOW * n_threads) return false;
        sp->n_tasks += n_items_of(s, g) * n_tiles_of(g);
        if (n_tiles_max < n_tiles_of(g)) n_tiles_max = n_tiles_of(g);
        if (n_q_max < block_of(s, g)) n_q_max = block_of(s, g);
    }
    assert(n_q_max > 0);
    sp->n_q_max = (size_t)n_q_max;
    sp->slot_floats = (n_q_max * (s->v_dim + 2) + 15) / 16 * 16;
    if (n_threads == 1 || n_tiles_max == 1) return false;
    return sp->n_tasks <= r->plan->layout.partials_bytes / sizeof(float) / sp->slot_floats;
}

static partial partial_at(const bt_cpu_run *r, const split *sp, uint64_t task)
{
    float *slot = r->plan->partials + task * sp->slot_floats;
    return (partial){.acc = slot + 2 * sp->n_q_max, .m = slot, .l = slot + sp->n_q_max};
}

/* Task numbers run over segments, items and tiles: as many tiles for each of a segment's items, some of which then see
 * no key in the last ones. */
static void do_task(const bt_cpu_run *r, const shape *s, const split *sp, cursor *c, uint64_t task, bt_cpu_thread *th)
{
    const bt_segment *g = &r->step->segments[c->segment_i];
    while (task - c->first >= n_items_of(s, g) * n_tiles_of(g)) {
        c->first += n_items_of(s, g) * n_tiles_of(g);
        c->first_item += n_items_of(s, g);
        g = &r->step->segments[++c->segment_i];
    }
    uint64_t n_tiles = n_tiles_of(g), item_i = (task - c->first) / n_tiles, tile = (task - c->first) % n_tiles;
    item it = item_of(s, g, item_i);
    compute_tile(r, s, &it, tile, partial_at(r, sp, task), th);

    /* Who arrives last sees all partial results (acquire and release), and leaves the count at zero for the next op. */
    bt_cpu_counter *arrivals = &r->plan->arrivals[c->first_item + item_i];
    uint64_t n_done = atomic_fetch_add_explicit(&arrivals->next, 1, memory_order_acq_rel) + 1;
    if (n_done < n_tiles) return;
    atomic_store_explicit(&arrivals->next, 0, memory_order_relaxed);
    partial sum = partial_at(r, sp, task - tile);
    for (uint64_t t = 1; t < n_tiles; t++) merge(r, s, &it, sum, partial_at(r, sp, task - tile + t));
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
        size_t n_helped = 0; /* a tile for one token takes two microseconds, a trip to another core up to half of one */
        while (bt_cpu_claim_near(r, op_i, thread_i, &n_helped, sp.n_tasks, &claimed)) {
            if (claimed.begin < c.first) c = (cursor){0};
            do_task(r, &s, &sp, &c, claimed.begin, th);
        }
        return;
    }
    uint64_t n_items = 0;
    for (uint32_t i = 0; i < r->step->n_segments; i++) n_items += n_items_of(&s, &r->step->segments[i]);
    while (bt_cpu_claim(r, op_i, n_items, 1, &claimed)) {
        item it = item_at(r, &s, &c, claimed.begin);
        walk_item(r, &s, &it, th);
    }
}
