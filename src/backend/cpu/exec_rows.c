/*
 * Ops over token rows: no value depends on another row. They are small beside the products, so they only have to be cut
 * finely enough that a step of one row still occupies all threads where that pays: heads of a rope, columns of an
 * activation. Both are exact: heads are independent, and a kernel's tail has the bits of its body.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

#define COLUMNS_PER_ITEM 2048u /* of element-wise ops; a multiple of every vector width */
#define HEADS_PER_ITEM   8u

_Static_assert(BT_OP_SOURCES_MAX <= BT_RES_SOURCES_MAX, "kernels mix what tapes may hold");

static float scale_at(const bt_view *w, uint64_t i)
{
    uint16_t half;
    float single;
    if (w->scale_dtype == BT_F32) {
        memcpy(&single, (const uint8_t *)w->scale + i * sizeof single, sizeof single);
        return single;
    }
    assert(w->scale_dtype == BT_F16 || w->scale_dtype == BT_BF16);
    memcpy(&half, (const uint8_t *)w->scale + i * sizeof half, sizeof half);
    return w->scale_dtype == BT_BF16 ? bt_bf16_to_f32(half) : bt_f16_to_f32(half);
}

void bt_cpu_widen_row(const bt_kernels *k, float *y, const bt_view *w, uint64_t row)
{
    assert(w->dtype != BT_MXFP4);
    uint64_t row_bytes = (uint64_t)w->n_cols * bt_dtype_bits((bt_dtype)w->dtype) / 8;
    k->widen[w->dtype](y, (const uint8_t *)w->data + row * row_bytes, w->n_cols);
    if (w->scale == NULL) return;
    uint64_t n_blocks = bt_cpu_div_up(w->n_cols, BT_SCALE_BLOCK);
    for (uint32_t c = 0; c < w->n_cols; c++) y[c] *= scale_at(w, row / BT_SCALE_BLOCK * n_blocks + c / BT_SCALE_BLOCK);
}

void bt_cpu_exec_embed(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    const bt_view *w = &r->plan->base.tape->weights[op->u.embed.weight];
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, r->step->n_rows, 1, &it)) {
        uint32_t id = (uint32_t)r->step->ids[it.begin];
        assert(id < w->n_rows);
        bt_cpu_widen_row(&r->plan->cpu->kernels, bt_cpu_row(r, op->u.embed.y, it.begin), w, id);
        bt_cpu_count_rows(r, thread_i, BT_CLASS_EMBEDDING, w, 0, 1, 0); /* every row costs what the first does */
    }
}

void bt_cpu_exec_rms_norm(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_act x = op->u.rms_norm.x, y = op->u.rms_norm.y;
    const float *w = bt_cpu_vector(r, op_i);
    uint32_t n_stored = r->plan->base.tape->weights[op->u.rms_norm.weight].n_cols; /* heads may share them */
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, bt_cpu_n_rows(r, x), 1, &it)) {
        r->plan->cpu->kernels.rms_norm(bt_cpu_row(r, y, it.begin), bt_cpu_row(r, x, it.begin), w, x.width,
                                       op->u.rms_norm.n_groups, op->u.rms_norm.eps);
        bt_cpu_count_vector(r, thread_i, op->u.rms_norm.weight, n_stored);
    }
}

/* The segment of a row. Segments are few: a step has one per timeline. */
static const bt_segment *segment_of(const bt_step *s, uint64_t row)
{
    uint32_t i = 0;
    while (row >= (uint64_t)s->segments[i].row + s->segments[i].n_rows) i++;
    assert(i < s->n_segments);
    return &s->segments[i];
}

static uint32_t position_of(const bt_step *s, uint64_t row)
{
    const bt_segment *g = segment_of(s, row);
    return g->position + (uint32_t)(row - g->row);
}

void bt_cpu_exec_rope_angles(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    (void)thread_i;
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_table table = r->plan->base.tape->tables[op->u.rope_angles.table];
    double factor = op->u.rope_angles.factor;
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, r->step->n_rows, 1, &it)) {
        float *y = bt_cpu_row(r, op->u.rope_angles.y, it.begin);
        double position = position_of(r->step, it.begin);
        /* In f64: at position 500000 an f32 angle is off by 0.03 radians. */
        for (uint32_t j = 0; j < table.n; j++) {
            y[j] = (float)(cos(position * table.values[j]) * factor);
            y[table.n + j] = (float)(sin(position * table.values[j]) * factor);
        }
    }
}

void bt_cpu_exec_rope(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    (void)thread_i;
    const bt_op *op = bt_cpu_op(r, op_i);
    uint32_t n_heads = op->u.rope.n_heads, head_dim = op->u.rope.head_dim;
    uint64_t n_parts = bt_cpu_div_up(n_heads, HEADS_PER_ITEM);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, n_parts * r->step->n_rows, 1, &it)) {
        uint64_t row = it.begin / n_parts, head = it.begin % n_parts * HEADS_PER_ITEM;
        uint64_t end = bt_cpu_min(head + HEADS_PER_ITEM, n_heads);
        float *x = bt_cpu_row(r, op->u.rope.x, row);
        const float *angles = bt_cpu_row(r, op->u.rope.angles, row);
        for (; head < end; head++)
            r->plan->cpu->kernels.rope(x + head * head_dim, angles, op->u.rope.n_pairs, head_dim / 2);
    }
}

void bt_cpu_exec_store(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    (void)thread_i;
    const bt_op *op = bt_cpu_op(r, op_i);
    const bt_tape *t = r->plan->base.tape;
    const bt_state *s = &t->states[op->u.store.state];
    uint64_t row_bytes = (uint64_t)s->width * bt_dtype_bits((bt_dtype)s->dtype) / 8;
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, r->step->n_rows, 1, &it)) {
        const bt_segment *g = segment_of(r->step, it.begin);
        uint8_t *y = bt_cpu_state(r, s, g->slot) + (g->position + (it.begin - g->row)) * row_bytes;
        const float *x = bt_cpu_row(r, op->u.store.x, it.begin);
        for (uint32_t i = 0; i < s->n_strips; i++)
            r->plan->cpu->kernels.narrow[s->dtype](y + i * s->strip_bytes, x + (uint64_t)i * s->width, s->width);
    }
}

/* Item of an element-wise op: a range of columns of one row. */
typedef struct columns {
    uint64_t row, begin, n;
} columns;

static bool claim_columns(const bt_cpu_run *r, uint32_t op_i, bt_act y, columns *c)
{
    uint64_t n_parts = bt_cpu_div_up(y.width, COLUMNS_PER_ITEM);
    bt_cpu_items it;
    if (!bt_cpu_claim(r, op_i, n_parts * bt_cpu_n_rows(r, y), 1, &it)) return false;
    c->row = it.begin / n_parts;
    c->begin = it.begin % n_parts * COLUMNS_PER_ITEM;
    c->n = bt_cpu_min(COLUMNS_PER_ITEM, y.width - c->begin);
    return true;
}

void bt_cpu_exec_gate_mul(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    (void)thread_i;
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_act y = op->u.gate_mul.y, g = op->u.gate_mul.g;
    columns c;
    while (claim_columns(r, op_i, y, &c))
        r->plan->cpu->kernels.gate_mul(bt_cpu_row(r, y, c.row) + c.begin, bt_cpu_row(r, g, c.row) + c.begin, c.n,
                                       (bt_act_kind)op->u.gate_mul.act);
}

void bt_cpu_exec_act_mul(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    (void)thread_i;
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_act y = op->u.act_mul.y, g = op->u.act_mul.g, u = op->u.act_mul.u;
    columns c;
    while (claim_columns(r, op_i, y, &c))
        bt_cpu_act_mul(&r->plan->cpu->kernels, bt_cpu_row(r, y, c.row) + c.begin, bt_cpu_row(r, g, c.row) + c.begin,
                       bt_cpu_row(r, u, c.row) + c.begin, c.n, op->u.act_mul.act, op->u.act_mul.situ);
}

void bt_cpu_exec_route(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_act logits = op->u.route.logits;
    bt_routes routes = op->u.route.routes;
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, r->step->n_rows, 1, &it)) {
        bt_route a = {
            .logits = bt_cpu_row(r, logits, it.begin),
            .bias = op->u.route.bias == BT_NONE ? NULL : bt_cpu_vector(r, op_i),
            .n = logits.width,
            .k = routes.ids.width,
            .score = (bt_score_kind)op->u.route.score,
            .renormalise = op->u.route.renormalise,
            .scale = op->u.route.scale,
            .n_groups = op->u.route.n_groups,
            .n_active_groups = op->u.route.n_active_groups,
            .force = op->u.route.force,
            .ids = bt_cpu_row_i32(r, routes.ids, it.begin),
            .weights = bt_cpu_row(r, routes.weights, it.begin),
            .scratch = r->plan->threads[thread_i].route_scratch,
        };
        r->plan->cpu->kernels.route(&a);
        if (a.bias != NULL) bt_cpu_count_vector(r, thread_i, op->u.route.bias, a.n);
    }
}

void bt_cpu_exec_select_rows(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    (void)thread_i;
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_act y = op->u.select_rows.y, x = op->u.select_rows.x;
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, r->step->n_logit_rows, 1, &it))
        memcpy(bt_cpu_row(r, y, it.begin), bt_cpu_row(r, x, r->step->logit_rows[it.begin]), x.width * sizeof(float));
}

void bt_cpu_exec_res_mix(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_act y = op->u.res_mix.y, sources = op->u.res_mix.sources;
    const float *u = bt_cpu_vector(r, op_i);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, bt_cpu_n_rows(r, y), 1, &it)) {
        r->plan->cpu->kernels.res_mix(bt_cpu_row(r, y, it.begin), bt_cpu_row(r, sources, it.begin),
                                      op->u.res_mix.stride, op->u.res_mix.n_sources, u, y.width, op->u.res_mix.eps);
        bt_cpu_count_vector(r, thread_i, op->u.res_mix.norm, y.width); /* norm and projection are one vector here */
    }
}
