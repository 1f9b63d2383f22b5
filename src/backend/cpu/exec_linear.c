/*
 * Linear: cut over output rows. With few token rows the weights' bytes are the work, so an item is a run of bytes long
 * enough for the prefetchers and short enough that threads end together. With many token rows an item is a block of
 * output rows for all of them.
 */
#include "backend/cpu/cpu.h"

#define DECODE_BYTES ((uint64_t)192 << 10) /* of weights in one item */
#define ROWS_STEP    8u                    /* whole groups of the rows that kernels take together: 4 for one token, */
#define PREFILL_STEP 12u                   /* 4 or 3 for several */
#define PREFILL_ROWS 120u
#define PREFILL_FROM 8u /* token rows from which arithmetic outweighs the reading of weights */

static uint64_t output_rows_per_item(const bt_cpu_run *r, const bt_view *w, uint64_t n_x)
{
    uint64_t n_threads = r->plan->cpu->n_threads;
    if (n_threads == 1) return w->n_rows;
    if (n_x >= PREFILL_FROM) {
        uint64_t rows = PREFILL_ROWS;
        while (rows > 2 * PREFILL_STEP && w->n_rows / rows < 4 * n_threads) rows -= 2 * PREFILL_STEP;
        return rows;
    }
    uint64_t row_bytes = (uint64_t)w->n_cols * bt_dtype_bits((bt_dtype)w->dtype) / 8 + 1;
    uint64_t rows = DECODE_BYTES / row_bytes;
    uint64_t share = bt_cpu_div_up(w->n_rows, 2 * n_threads);
    rows = bt_cpu_min(rows, share) / ROWS_STEP * ROWS_STEP;
    return rows < ROWS_STEP ? ROWS_STEP : rows;
}

void bt_cpu_exec_linear(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_act x = op->u.linear.x, y = op->u.linear.y;
    const bt_view *w = &r->plan->base.tape->weights[op->u.linear.weight];
    bt_linear a = {
        .x = bt_cpu_row(r, x, 0),
        .y_stride = y.stride,
        .x_stride = x.stride,
        .n_x = bt_cpu_n_rows(r, x),
        .w = w,
        .scratch = r->plan->threads[thread_i].kernel_scratch,
        .add = op->u.linear.add,
    };
    /* An embedding that is tied is read as the head here. */
    bt_class class = y.space == BT_SPACE_LOGITS ? BT_CLASS_HEAD : bt_cpu_class_of(r, op->u.linear.weight);
    uint64_t grain = output_rows_per_item(r, w, a.n_x);
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, w->n_rows, grain, &it)) {
        a.y = bt_cpu_row(r, y, 0) + it.begin;
        r->plan->cpu->kernels.linear[w->dtype](&a, it.begin, it.end);
        bt_cpu_count_rows(r, thread_i, class, w, it.begin, it.end, a.n_x);
    }
}
