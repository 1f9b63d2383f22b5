/*
 * Mixtures of experts. Every thread groups the step's (row, slot) pairs by expert for itself, with a counting sort: the
 * same for all of them, and cheaper than a barrier. Then an item is
 *   up and gate:   an expert that was chosen, and a chunk of its output rows;
 *   down, values:  a chunk of output rows, for all chosen experts, because the sum over a row's experts happens there.
 * The order of that sum is the numeric contract: y + ((w_0 d_0 + w_1 d_1 + ...) + shared), slots in the order of
 * selection, each weight after its expert's last product; a sum that starts afresh has no y. How rows share an expert
 * changes nothing (kernels promise it).
 */
#include <string.h>

#include "backend/cpu/cpu.h"

#define DECODE_BYTES ((uint64_t)768 << 10) /* of weights in one item */
#define ROWS_STEP    8u

/* Pairs by expert: starts, pairs and active of the thread. Pairs of an expert ascend. Returns the number of active. */
static uint32_t group_pairs(const bt_cpu_run *r, bt_routes routes, uint32_t n_experts, bt_cpu_thread *th)
{
    uint32_t k = routes.ids.width, n_rows = r->step->n_rows, n_active = 0, sum = 0;
    memset(th->starts, 0, (n_experts + 1) * sizeof *th->starts);
    for (uint32_t row = 0; row < n_rows; row++) {
        const int32_t *ids = bt_cpu_row_i32(r, routes.ids, row);
        for (uint32_t s = 0; s < k; s++) {
            assert(ids[s] >= 0 && (uint32_t)ids[s] < n_experts);
            th->starts[ids[s]]++;
        }
    }
    for (uint32_t e = 0; e < n_experts; e++) {
        uint32_t n = th->starts[e];
        if (n > 0) th->active[n_active++] = e;
        th->starts[e] = sum;
        sum += n;
    }
    assert(sum == n_rows * k);
    for (uint32_t row = 0; row < n_rows; row++) {
        const int32_t *ids = bt_cpu_row_i32(r, routes.ids, row);
        for (uint32_t s = 0; s < k; s++) th->pairs[th->starts[ids[s]]++] = row * k + s;
    }
    /* Each start has moved to the next one's place. */
    memmove(th->starts + 1, th->starts, n_experts * sizeof *th->starts);
    th->starts[0] = 0;
    return n_active;
}

/* Output rows in one item: few token rows make an item by bytes, many by rows. */
static uint64_t chunk_rows(const bt_cpu_run *r, const bt_view *w, uint64_t n_matrices, uint64_t n_pairs)
{
    uint64_t chunk = BT_CPU_MOE_CHUNK;
    assert(n_matrices > 0);
    if (n_pairs / n_matrices < 8) {
        uint64_t row_bytes = (uint64_t)w->n_cols * bt_dtype_bits((bt_dtype)w->dtype) / 8 + 1;
        chunk = bt_cpu_min(DECODE_BYTES / (row_bytes * n_matrices), BT_CPU_MOE_CHUNK);
    }
    chunk = bt_cpu_min(chunk, bt_cpu_div_up(w->n_rows, 2 * r->plan->cpu->n_threads));
    chunk = chunk / ROWS_STEP * ROWS_STEP;
    return chunk < ROWS_STEP ? ROWS_STEP : chunk;
}

/* ---- up and gate --------------------------------------------------------------------------------------------------
 */

/* Output rows [r0, r1) of one expert, for up to max_rows of its pairs [begin, end). */
static void up_gate_rows(const bt_cpu_run *r, const bt_op *op, uint32_t expert, uint32_t begin, uint32_t end,
                         uint64_t r0, uint64_t r1, size_t thread_i)
{
    const bt_kernels *kernels = &r->plan->cpu->kernels;
    const bt_view *weights = r->plan->base.tape->weights;
    const bt_view *gate = &weights[op->u.moe_up_gate.gate + expert * op->u.moe_up_gate.stride];
    const bt_view *up = &weights[op->u.moe_up_gate.up + expert * op->u.moe_up_gate.stride];
    bt_cpu_thread *th = &r->plan->threads[thread_i];
    bt_class class = bt_cpu_class_of(r, op->u.moe_up_gate.gate);
    bt_act h = op->u.moe_up_gate.h, x = op->u.moe_up_gate.x;
    bt_linear a = {
        .y = bt_cpu_row(r, h, 0) + r0,
        .y_rows = th->y_rows + begin, /* in floats: a slot's place in h is no whole row */
        .y_stride = 1,
        .x = bt_cpu_row(r, x, 0),
        .x_rows = th->x_rows + begin,
        .x_stride = x.stride,
        .n_x = end - begin,
        .w = gate,
        .scratch = th->kernel_scratch,
    };
    kernels->linear[gate->dtype](&a, r0, r1);
    bt_cpu_count_rows(r, thread_i, class, gate, r0, r1, a.n_x);
    a.y = th->up;
    a.y_rows = NULL;
    a.y_stride = BT_CPU_MOE_CHUNK;
    a.w = up;
    kernels->linear[up->dtype](&a, r0, r1);
    bt_cpu_count_rows(r, thread_i, class, up, r0, r1, a.n_x);
    for (uint32_t i = begin; i < end; i++) {
        float *y = bt_cpu_row(r, h, 0) + th->y_rows[i] + r0;
        bt_cpu_act_mul(kernels, y, y, th->up + (uint64_t)(i - begin) * BT_CPU_MOE_CHUNK, r1 - r0, op->u.moe_up_gate.act,
                       op->u.moe_up_gate.situ);
    }
}

void bt_cpu_exec_moe_up_gate(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_cpu_thread *th = &r->plan->threads[thread_i];
    bt_routes routes = op->u.moe_up_gate.routes;
    bt_act h = op->u.moe_up_gate.h;
    uint32_t k = routes.ids.width, width = h.width / k, n_pairs = r->step->n_rows * k;
    uint32_t n_active = group_pairs(r, routes, op->u.moe_up_gate.n_experts, th);
    for (uint32_t i = 0; i < n_pairs; i++) {
        uint32_t row = th->pairs[i] / k, slot = th->pairs[i] % k;
        th->x_rows[i] = row;
        th->y_rows[i] = row * h.stride + slot * width;
    }
    const bt_view *first = &r->plan->base.tape->weights[op->u.moe_up_gate.gate];
    /* Gate and up: two matrices an item. */
    uint64_t chunk = chunk_rows(r, first, 2, 2 * (uint64_t)n_pairs / n_active);
    uint64_t n_chunks = bt_cpu_div_up(width, chunk);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, n_active * n_chunks, 1, &it)) {
        uint32_t expert = th->active[it.begin / n_chunks];
        uint64_t r0 = it.begin % n_chunks * chunk, r1 = bt_cpu_min(r0 + chunk, width);
        uint32_t begin = th->starts[expert], end = th->starts[expert + 1];
        assert(end - begin <= r->step->n_rows); /* an expert is chosen once by a row */
        up_gate_rows(r, op, expert, begin, end, r0, r1, thread_i);
    }
}

/* ---- sums over a row's experts ------------------------------------------------------------------------------------
 */

/* Output rows [r0, r1) of every chosen expert, for its pairs, into th->outputs [pair][r1 - r0]. */
static void expert_outputs(const bt_cpu_run *r, bt_linear *a, uint32_t first, uint32_t stride, uint32_t n_active,
                           uint64_t r0, uint64_t r1, size_t thread_i)
{
    bt_cpu_thread *th = &r->plan->threads[thread_i];
    bt_class class = bt_cpu_class_of(r, first);
    a->y = th->outputs;
    a->y_stride = r1 - r0;
    a->scratch = th->kernel_scratch;
    for (uint32_t i = 0; i < n_active; i++) {
        uint32_t expert = th->active[i], begin = th->starts[expert];
        a->x_rows = th->x_rows + begin;
        a->y_rows = th->pairs + begin;
        a->n_x = th->starts[expert + 1] - begin;
        a->w = &r->plan->base.tape->weights[first + expert * stride];
        r->plan->cpu->kernels.linear[a->w->dtype](a, r0, r1);
        bt_cpu_count_rows(r, thread_i, class, a->w, r0, r1, a->n_x);
    }
}

/* sum [n] = the weighted outputs of a row's experts, in the order of selection. */
static void weighted_sum(const bt_cpu_run *r, bt_routes routes, float *sum, uint32_t row, size_t n,
                         const bt_cpu_thread *th)
{
    const float *weights = bt_cpu_row(r, routes.weights, row);
    uint64_t k = routes.ids.width;
    memset(sum, 0, n * sizeof *sum);
    for (uint64_t s = 0; s < k; s++)
        r->plan->cpu->kernels.scale_add(sum, th->outputs + (row * k + s) * n, weights[s], n);
}

void bt_cpu_exec_moe_down_sum(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    const bt_kernels *kernels = &r->plan->cpu->kernels;
    bt_cpu_thread *th = &r->plan->threads[thread_i];
    bt_routes routes = op->u.moe_down_sum.routes;
    bt_act y = op->u.moe_down_sum.y, h = op->u.moe_down_sum.h, shared = op->u.moe_down_sum.shared;
    bool add = op->u.moe_down_sum.add;
    uint32_t k = routes.ids.width, width = h.width / k, n_pairs = r->step->n_rows * k;
    uint32_t n_active = group_pairs(r, routes, op->u.moe_down_sum.n_experts, th);
    for (uint32_t i = 0; i < n_pairs; i++)
        th->x_rows[i] = th->pairs[i] / k * h.stride + th->pairs[i] % k * width; /* in floats */
    bt_linear a = {.x = bt_cpu_row(r, h, 0), .x_stride = 1};
    const bt_view *first = &r->plan->base.tape->weights[op->u.moe_down_sum.down];
    uint64_t chunk = chunk_rows(r, first, n_active, n_pairs);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, y.width, chunk, &it)) {
        size_t n = (size_t)(it.end - it.begin);
        expert_outputs(r, &a, op->u.moe_down_sum.down, op->u.moe_down_sum.stride, n_active, it.begin, it.end, thread_i);
        for (uint32_t row = 0; row < r->step->n_rows; row++) {
            float *to = bt_cpu_row(r, y, row) + it.begin, *sum = add ? th->sum : to;
            weighted_sum(r, routes, sum, row, n, th);
            if (shared.width > 0) kernels->add(sum, bt_cpu_row(r, shared, row) + it.begin, n);
            if (add) kernels->add(to, sum, n);
        }
    }
}

void bt_cpu_exec_moe_values(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_cpu_thread *th = &r->plan->threads[thread_i];
    bt_routes routes = op->u.moe_values.routes;
    bt_act y = op->u.moe_values.y, x = op->u.moe_values.x;
    uint32_t k = routes.ids.width, n_pairs = r->step->n_rows * k;
    uint32_t n_active = group_pairs(r, routes, op->u.moe_values.n_experts, th);
    for (uint32_t i = 0; i < n_pairs; i++) th->x_rows[i] = th->pairs[i] / k;
    bt_linear a = {.x = bt_cpu_row(r, x, 0), .x_stride = x.stride};
    const bt_view *first = &r->plan->base.tape->weights[op->u.moe_values.first];
    uint64_t chunk = chunk_rows(r, first, n_active, n_pairs);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, y.width, chunk, &it)) {
        size_t n = (size_t)(it.end - it.begin);
        expert_outputs(r, &a, op->u.moe_values.first, op->u.moe_values.stride, n_active, it.begin, it.end, thread_i);
        r->plan->cpu->kernels.act(th->outputs, th->outputs, n_pairs * n, (bt_act_kind)op->u.moe_values.act);
        for (uint32_t row = 0; row < r->step->n_rows; row++)
            weighted_sum(r, routes, bt_cpu_row(r, y, row) + it.begin, row, n, th);
    }
}
