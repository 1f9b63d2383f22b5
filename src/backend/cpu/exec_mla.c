/*
 * Into and out of the latent space of attention (docs/kimi_k3.md, c.5). Keys and values of all heads are products of
 * one small vector per position, the latent, with a matrix W [n_heads * (nope + v_dim), latent]. So the matrix is
 * applied to the other side: a head's query times its key rows gives a query of the latent space, and the weighted sum
 * of latents times its value rows gives the head's values. What attention itself does stays what it is.
 *
 * An item is a head and a range of outputs; a head's rows of W are read once for all token rows.
 */
#include <string.h>

#include "backend/cpu/cpu.h"

#define OUTPUTS_STEP 64u /* whole groups of what kernels take together */

/* Outputs in one item: all of a head's where there are heads enough for the threads. */
static uint64_t outputs_per_item(const bt_cpu_run *r, uint64_t n_heads, uint64_t n_outputs)
{
    uint64_t wanted = bt_cpu_div_up(4 * r->plan->cpu->n_threads, n_heads);
    return bt_cpu_div_up(bt_cpu_div_up(n_outputs, wanted), OUTPUTS_STEP) * OUTPUTS_STEP;
}

/* Rows [first, first + n) of a matrix without scales. */
static bt_view part_of(const bt_view *w, uint64_t first, uint64_t n)
{
    assert(w->scale == NULL);
    assert(first + n <= w->n_rows);
    bt_view part = *w;
    uint64_t row_bytes = (uint64_t)w->n_cols * bt_dtype_bits((bt_dtype)w->dtype) / 8;
    part.data = (const uint8_t *)w->data + first * row_bytes;
    part.bytes = n * row_bytes;
    part.n_rows = (uint32_t)n;
    return part;
}

/* What no position's key part has a matrix for goes through as it is. */
static void copy_rest(const bt_cpu_run *r, const bt_op *op, uint64_t head, uint64_t latent)
{
    bt_act x = op->u.mla.x, y = op->u.mla.y;
    uint64_t nope = op->u.mla.nope, rest = op->u.mla.rest;
    if (rest == 0) return;
    for (uint32_t row = 0; row < r->step->n_rows; row++)
        memcpy(bt_cpu_row(r, y, row) + head * (latent + rest) + latent,
               bt_cpu_row(r, x, row) + head * (nope + rest) + nope, rest * sizeof(float));
}

void bt_cpu_exec_mla_absorb(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    const bt_view *w = &r->plan->base.tape->weights[op->u.mla.weight];
    bt_act x = op->u.mla.x, y = op->u.mla.y;
    uint64_t n_heads = op->u.mla.n_heads, nope = op->u.mla.nope, rest = op->u.mla.rest, latent = w->n_cols;
    uint64_t grain = outputs_per_item(r, n_heads, latent), n_parts = bt_cpu_div_up(latent, grain);
    bt_class class = bt_cpu_class_of(r, op->u.mla.weight);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, n_parts * n_heads, 1, &it)) {
        uint64_t head = it.begin / n_parts, c0 = it.begin % n_parts * grain, c1 = bt_cpu_min(c0 + grain, latent);
        bt_view keys = part_of(w, head * (nope + op->u.mla.v_dim), nope);
        bt_linear a = {
            .y = bt_cpu_row(r, y, 0) + head * (latent + rest) + c0,
            .x = bt_cpu_row(r, x, 0) + head * (nope + rest),
            .y_stride = y.stride,
            .x_stride = x.stride,
            .n_x = r->step->n_rows,
            .w = &keys,
            .scratch = r->plan->threads[thread_i].kernel_scratch,
        };
        r->plan->cpu->kernels.linear_t[w->dtype](&a, (size_t)c0, (size_t)c1);
        if (c0 == 0) copy_rest(r, op, head, latent);
        bt_view columns = keys;
        columns.n_cols = (uint32_t)(c1 - c0);
        bt_cpu_count_rows(r, thread_i, class, &columns, 0, nope, a.n_x);
    }
}

void bt_cpu_exec_mla_values(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    const bt_view *w = &r->plan->base.tape->weights[op->u.mla.weight];
    bt_act x = op->u.mla.x, y = op->u.mla.y;
    uint64_t n_heads = op->u.mla.n_heads, nope = op->u.mla.nope, v_dim = op->u.mla.v_dim, latent = w->n_cols;
    uint64_t grain = outputs_per_item(r, n_heads, v_dim), n_parts = bt_cpu_div_up(v_dim, grain);
    bt_class class = bt_cpu_class_of(r, op->u.mla.weight);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, n_parts * n_heads, 1, &it)) {
        uint64_t head = it.begin / n_parts, first = it.begin % n_parts * grain;
        uint64_t r0 = head * (nope + v_dim) + nope + first, r1 = r0 + bt_cpu_min(grain, v_dim - first);
        bt_linear a = {
            .y = bt_cpu_row(r, y, 0) + head * v_dim + first,
            .x = bt_cpu_row(r, x, 0) + head * latent,
            .y_stride = y.stride,
            .x_stride = x.stride,
            .n_x = r->step->n_rows,
            .w = w,
            .scratch = r->plan->threads[thread_i].kernel_scratch,
        };
        r->plan->cpu->kernels.linear[w->dtype](&a, (size_t)r0, (size_t)r1);
        bt_cpu_count_rows(r, thread_i, class, w, r0, r1, a.n_x);
    }
}
