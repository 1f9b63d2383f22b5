/*
 * Linear: cut over output rows.
 *
 * With one token row the weights' bytes are the work, and memory is fastest where it is read in few streams that never
 * jump. So every thread has its own share of the rows, cut in as many runs as the kernel likes streams; an item is the
 * next few rows of every run. Who has finished helps some neighbours with theirs: a core that is busy with something
 * else then holds nobody up.
 *
 * With a few token rows an item is a run of bytes long enough for the prefetchers and short enough that threads end
 * together; with many a block of output rows for all of them.
 */
#include "backend/cpu/cpu.h"

#define DECODE_BYTES ((uint64_t)192 << 10) /* of weights in one item */
#define SHARE_BYTES  ((uint64_t)96 << 10)  /* of weights in one item of a share, all runs together */
#define ROWS_STEP    8u                    /* whole groups of the rows that kernels take together: 4 for one token, */
#define PREFILL_STEP 12u                   /* 4 or 3 for several */
#define PREFILL_ROWS 120u
#define PREFILL_FROM 8u /* token rows from which arithmetic outweighs the reading of weights */

static uint64_t row_bytes(const bt_view *w)
{
    return (uint64_t)w->n_cols * bt_dtype_bits((bt_dtype)w->dtype) / 8 + 1;
}

static uint64_t output_rows_per_item(const bt_cpu_run *r, const bt_view *w, uint64_t n_x)
{
    uint64_t n_threads = r->plan->cpu->n_threads;
    if (n_threads == 1) return w->n_rows;
    if (n_x >= PREFILL_FROM) {
        uint64_t rows = PREFILL_ROWS;
        while (rows > 2 * PREFILL_STEP && w->n_rows / rows < 4 * n_threads) rows -= 2 * PREFILL_STEP;
        return rows;
    }
    uint64_t rows = DECODE_BYTES / row_bytes(w);
    uint64_t share = bt_cpu_div_up(w->n_rows, 2 * n_threads);
    rows = bt_cpu_min(rows, share) / ROWS_STEP * ROWS_STEP;
    return rows < ROWS_STEP ? ROWS_STEP : rows;
}

/* ---- shares ---- */

/* What the runs of all shares hold of a matrix; the rest, less than a row for each run, is left. Returns its rows. */
static uint64_t multiply_shares(const bt_cpu_run *r, uint32_t op_i, bt_linear *a, bt_class class, size_t thread_i)
{
    const bt_kernels *kernels = &r->plan->cpu->kernels;
    const bt_view *w = a->w;
    size_t n_threads = r->plan->cpu->n_threads;
    float *y = a->y;
    a->n_runs = kernels->n_streams[w->dtype];
    a->apart = w->n_rows / (n_threads * a->n_runs);
    uint64_t grain = SHARE_BYTES / row_bytes(w) / a->n_runs + 1;
    for (size_t i = 0; i < n_threads && i <= BT_CPU_HELPED_MAX; i++) {
        size_t owner = (thread_i + i) % n_threads;
        uint64_t first = owner * a->n_runs * a->apart;
        bt_cpu_items it;
        while (bt_cpu_claim_share(&r->plan->shares[owner], op_i, a->apart, grain, &it)) {
            a->y = y + first + it.begin;
            kernels->linear[w->dtype](a, first + it.begin, first + it.end);
            for (size_t run = 0; run < a->n_runs; run++) {
                uint64_t row = first + run * a->apart;
                bt_cpu_count_rows(r, thread_i, class, w, row + it.begin, row + it.end, 1);
            }
        }
    }
    uint64_t done = n_threads * a->n_runs * a->apart;
    a->n_runs = 0;
    a->y = y;
    return done;
}

void bt_cpu_exec_linear(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    const bt_op *op = bt_cpu_op(r, op_i);
    bt_act x = op->u.linear.x, y = op->u.linear.y;
    const bt_view *w = &r->plan->base.tape->weights[op->u.linear.weight];
    bt_linear a = {
        .x = bt_cpu_row(r, x, 0),
        .y = bt_cpu_row(r, y, 0),
        .y_stride = y.stride,
        .x_stride = x.stride,
        .n_x = bt_cpu_n_rows(r, x),
        .w = w,
        .scratch = r->plan->threads[thread_i].kernel_scratch,
        .add = op->u.linear.add,
    };
    /* An embedding that is tied is read as the head here. */
    bt_class class = y.space == BT_SPACE_LOGITS ? BT_CLASS_HEAD : bt_cpu_class_of(r, op->u.linear.weight);
    bool in_shares = a.n_x == 1 && r->plan->cpu->kernels.n_streams[w->dtype] > 1;
    uint64_t done = in_shares ? multiply_shares(r, op_i, &a, class, thread_i) : 0;
    uint64_t grain = output_rows_per_item(r, w, a.n_x);
    bt_cpu_items it;
    while (done < w->n_rows && bt_cpu_claim(r, op_i, w->n_rows - done, grain, &it)) {
        a.y = bt_cpu_row(r, y, 0) + done + it.begin;
        r->plan->cpu->kernels.linear[w->dtype](&a, done + it.begin, done + it.end);
        bt_cpu_count_rows(r, thread_i, class, w, done + it.begin, done + it.end, a.n_x);
    }
}
