/*
 * Recurrent layers: a short convolution whose tail, and a delta rule whose state, go from row to row. So the rows of a
 * segment are walked in order, by one thread, from the state of the segment's slot, which is left as the next step
 * wants it. Parallel work lies across: segments are other timelines, channels and heads do not touch each other, and
 * within a head the rows of the state (one for each value) do not either. Which cuts are made changes no bit.
 */
#include <math.h>

#include "backend/cpu/cpu.h"

#define CHANNELS_PER_ITEM 512u /* whole vectors of every width */
#define HEADS_PER_ITEM    8u
#define VALUES_PER_ITEM   32u   /* rows of a state: with keys of 128, 16 KB that stay in the nearest cache */
#define L2_EPS            1e-6f /* on the sum of squares, whatever the norms of the model use */

void bt_cpu_exec_conv_silu(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    const bt_state *state = &r->plan->base.tape->states[op->u.conv_silu.tail];
    const bt_view *w = &r->plan->base.tape->weights[op->u.conv_silu.weight];
    bt_act x = op->u.conv_silu.x, y = op->u.conv_silu.y;
    size_t taps_stride = 0;
    const float *taps = bt_cpu_taps(r, op_i, &taps_stride);
    uint64_t n_parts = bt_cpu_div_up(x.width, CHANNELS_PER_ITEM);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, n_parts * r->step->n_segments, 1, &it)) {
        const bt_segment *g = &r->step->segments[it.begin / n_parts];
        uint64_t first = it.begin % n_parts * CHANNELS_PER_ITEM;
        bt_conv a = {
            .y = bt_cpu_row(r, y, g->row) + first,
            .x = bt_cpu_row(r, x, g->row) + first,
            .tail = (float *)(void *)bt_cpu_state(r, state, g->slot) + first,
            .taps = taps + first,
            .y_stride = y.stride,
            .x_stride = x.stride,
            .tail_stride = state->strip_bytes / sizeof(float),
            .taps_stride = taps_stride,
            .n_taps = w->n_cols,
            .n_rows = g->n_rows,
            .n = (size_t)bt_cpu_min(CHANNELS_PER_ITEM, x.width - first),
        };
        r->plan->cpu->kernels.conv_silu(&a);
        bt_cpu_count_vector(r, thread_i, op->u.conv_silu.weight, a.n * a.n_taps);
        r->plan->threads[thread_i].traffic->state += 2 * (a.n_taps - 1) * a.n * sizeof(float);
    }
}

void bt_cpu_exec_kda_gates(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    const bt_kernels *k = &r->plan->cpu->kernels;
    uint64_t n_heads = op->u.kda_gates.n_heads, key_dim = op->u.kda_gates.q.width / n_heads;
    const float *bias = bt_cpu_vector(r, op_i), *rates = bt_cpu_rates(r, op_i);
    float scale = (float)(1 / sqrt((double)key_dim));
    uint64_t n_parts = bt_cpu_div_up(n_heads, HEADS_PER_ITEM);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, n_parts * r->step->n_rows, 1, &it)) {
        uint64_t row = it.begin / n_parts, head = it.begin % n_parts * HEADS_PER_ITEM;
        uint64_t n = bt_cpu_min(HEADS_PER_ITEM, n_heads - head);
        float *beta = bt_cpu_row(r, op->u.kda_gates.beta, row) + head;
        k->act(beta, beta, (size_t)n, BT_ACT_SIGMOID);
        for (uint64_t h = head; h < head + n; h++) {
            float *q = bt_cpu_row(r, op->u.kda_gates.q, row) + h * key_dim;
            float *key = bt_cpu_row(r, op->u.kda_gates.k, row) + h * key_dim;
            float *decay = bt_cpu_row(r, op->u.kda_gates.decay, row) + h * key_dim;
            k->l2_norm(q, q, (size_t)key_dim, scale, L2_EPS);
            k->l2_norm(key, key, (size_t)key_dim, 1, L2_EPS);
            k->kda_decay(decay, decay, bias + h * key_dim, (size_t)key_dim, rates[h], op->u.kda_gates.lower);
        }
        bt_cpu_count_vector(r, thread_i, op->u.kda_gates.bias, n * key_dim);
        bt_cpu_count_vector(r, thread_i, op->u.kda_gates.rate, n);
    }
}

void bt_cpu_exec_kda_step(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    const bt_state *state = &r->plan->base.tape->states[op->u.kda_step.state];
    bt_act q = op->u.kda_step.q, k = op->u.kda_step.k, v = op->u.kda_step.v, y = op->u.kda_step.y;
    bt_act decay = op->u.kda_step.decay, beta = op->u.kda_step.beta;
    uint64_t n_heads = op->u.kda_step.n_heads, key_dim = q.width / n_heads, value_dim = v.width / n_heads;
    uint64_t n_parts = bt_cpu_div_up(value_dim, VALUES_PER_ITEM);
    bt_traffic *traffic = r->plan->threads[thread_i].traffic;
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, n_parts * n_heads * r->step->n_segments, 1, &it)) {
        const bt_segment *g = &r->step->segments[it.begin / (n_parts * n_heads)];
        uint64_t head = it.begin / n_parts % n_heads, first = it.begin % n_parts * VALUES_PER_ITEM;
        uint8_t *strip = bt_cpu_state(r, state, g->slot) + head * state->strip_bytes;
        bt_kda a = {
            .state = (float *)(void *)strip + first * key_dim,
            .q = bt_cpu_row(r, q, g->row) + head * key_dim,
            .k = bt_cpu_row(r, k, g->row) + head * key_dim,
            .decay = bt_cpu_row(r, decay, g->row) + head * key_dim,
            .v = bt_cpu_row(r, v, g->row) + head * value_dim + first,
            .beta = bt_cpu_row(r, beta, g->row) + head,
            .o = bt_cpu_row(r, y, g->row) + head * value_dim + first,
            .qk_stride = q.stride,
            .v_stride = v.stride,
            .beta_stride = beta.stride,
            .o_stride = y.stride,
            .n_rows = g->n_rows,
            .key_dim = (size_t)key_dim,
            .n_values = (size_t)bt_cpu_min(VALUES_PER_ITEM, value_dim - first),
        };
        r->plan->cpu->kernels.kda(&a);
        traffic->state += 2 * a.n_values * key_dim * sizeof(float);
        traffic->flops += 6 * a.n_values * key_dim * g->n_rows; /* two products and a sum */
    }
}
