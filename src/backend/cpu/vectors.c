/*
 * Weights that ops take as f32 vectors, in the form in which their kernels read them: widened once when a plan is
 * opened, so that no step widens them again. Everything here is small beside the matrices, which are used where they
 * lie. Sizes and places come from the same functions, so what is planned is what is filled.
 *
 *   rms_norm    the gain, repeated for each head where heads share it
 *   route       the selection bias
 *   conv_silu   the taps, one row of channels each: channels are the vector's lanes
 *   kda_gates   the bias, then each head's rate: exp of the stored logarithm
 *   res_mix     norm times projection: only their product meets the sources
 */
#include <math.h>

#include "backend/cpu/cpu.h"

/* Vectors begin on a cache line. */
static uint64_t whole_lines(uint64_t n_floats)
{
    return (n_floats + 15) / 16 * 16;
}

uint64_t bt_cpu_vector_floats(const bt_tape *t, const bt_op *op)
{
    switch ((bt_op_kind)op->kind) {
    case BT_OP_RMS_NORM:
        return whole_lines(op->u.rms_norm.x.width);
    case BT_OP_ROUTE:
        return op->u.route.bias == BT_NONE ? 0 : whole_lines(t->weights[op->u.route.bias].n_cols);
    case BT_OP_CONV_SILU:
        return t->weights[op->u.conv_silu.weight].n_cols * whole_lines(op->u.conv_silu.x.width);
    case BT_OP_KDA_GATES:
        return whole_lines(op->u.kda_gates.q.width) + whole_lines(op->u.kda_gates.n_heads);
    case BT_OP_RES_MIX:
        return whole_lines(op->u.res_mix.y.width);
    default:
        return 0;
    }
}

/* Elements [first, first + n) of a stored matrix, which lie one after the other. */
static void widen(const bt_kernels *k, float *y, const bt_view *w, uint64_t first, uint64_t n)
{
    assert(w->scale == NULL);
    assert(first + n <= (uint64_t)w->n_rows * w->n_cols);
    k->widen[w->dtype](y, (const uint8_t *)w->data + first * bt_dtype_bits((bt_dtype)w->dtype) / 8, (size_t)n);
}

static void fill_norm(const bt_kernels *k, const bt_tape *t, const bt_op *op, float *y)
{
    const bt_view *w = &t->weights[op->u.rms_norm.weight];
    uint64_t width = op->u.rms_norm.x.width;
    assert(width % w->n_cols == 0);
    for (uint64_t i = 0; i < width; i += w->n_cols) widen(k, y + i, w, 0, w->n_cols);
}

/* Stored as [channels, taps]. */
static void fill_taps(const bt_kernels *k, const bt_tape *t, const bt_op *op, float *y)
{
    const bt_view *w = &t->weights[op->u.conv_silu.weight];
    uint64_t stride = whole_lines(w->n_rows), n_taps = w->n_cols;
    float taps[BT_CONV_TAPS_MAX];
    _Static_assert(BT_OP_TAPS_MAX <= BT_CONV_TAPS_MAX, "kernels take what tapes may hold");
    assert(n_taps <= BT_CONV_TAPS_MAX);
    for (uint64_t channel = 0; channel < w->n_rows; channel++) {
        widen(k, taps, w, channel * n_taps, n_taps);
        for (uint64_t j = 0; j < n_taps; j++) y[j * stride + channel] = taps[j];
    }
}

static void fill_gates(const bt_kernels *k, const bt_tape *t, const bt_op *op, float *y)
{
    uint64_t n_heads = op->u.kda_gates.n_heads;
    float *rates = y + whole_lines(op->u.kda_gates.q.width);
    widen(k, y, &t->weights[op->u.kda_gates.bias], 0, op->u.kda_gates.q.width);
    widen(k, rates, &t->weights[op->u.kda_gates.rate], 0, n_heads);
    for (uint64_t h = 0; h < n_heads; h++) rates[h] = (float)exp((double)rates[h]);
}

static void fill_mix(const bt_kernels *k, const bt_tape *t, const bt_op *op, float *y)
{
    uint64_t width = op->u.res_mix.y.width;
    float proj[256];
    widen(k, y, &t->weights[op->u.res_mix.norm], 0, width);
    for (uint64_t first = 0; first < width; first += 256) {
        uint64_t n = bt_cpu_min(256, width - first);
        widen(k, proj, &t->weights[op->u.res_mix.proj], first, n);
        for (uint64_t i = 0; i < n; i++) y[first + i] *= proj[i];
    }
}

void bt_cpu_vector_fill(const bt_kernels *k, const bt_tape *t, const bt_op *op, float *y)
{
    if (op->kind == BT_OP_RMS_NORM) fill_norm(k, t, op, y);
    if (op->kind == BT_OP_CONV_SILU) fill_taps(k, t, op, y);
    if (op->kind == BT_OP_KDA_GATES) fill_gates(k, t, op, y);
    if (op->kind == BT_OP_RES_MIX) fill_mix(k, t, op, y);
    if (op->kind != BT_OP_ROUTE || op->u.route.bias == BT_NONE) return;
    const bt_view *bias = &t->weights[op->u.route.bias];
    widen(k, y, bias, 0, bias->n_cols);
}

const float *bt_cpu_vector(const bt_cpu_run *r, uint32_t op_i)
{
    return r->plan->vectors + r->plan->vector_of_op[op_i];
}

const float *bt_cpu_taps(const bt_cpu_run *r, uint32_t op_i, size_t *stride)
{
    *stride = (size_t)whole_lines(bt_cpu_op(r, op_i)->u.conv_silu.x.width);
    return bt_cpu_vector(r, op_i);
}

const float *bt_cpu_rates(const bt_cpu_run *r, uint32_t op_i)
{
    return bt_cpu_vector(r, op_i) + whole_lines(bt_cpu_op(r, op_i)->u.kda_gates.q.width);
}
