/*
 * The count of bytes that steps read from weights, keys and values: what a benchmark holds against the memory's limit.
 * It is made where rows are handed to kernels, of the rows handed over, and knows no configuration. Each thread counts
 * for itself, on a cache line of its own.
 */
#include "backend/cpu/cpu.h"

bt_class bt_cpu_class_of(const bt_cpu_run *r, uint32_t weight)
{
    const bt_tape *t = r->plan->base.tape;
    return t->classes == NULL ? BT_CLASS_DENSE : (bt_class)t->classes[weight];
}

/* Codes, and the scales of the blocks of rows that begin in the range: ranges that share a block share its scales, and
 * all ranges of a matrix add up to all of it. Blocks of MXFP4 are of one row. */
void bt_cpu_count_rows(const bt_cpu_run *r, size_t thread_i, bt_class class, const bt_view *w, uint64_t r0, uint64_t r1,
                       uint64_t n_x)
{
    assert(r0 <= r1 && r1 <= w->n_rows);
    uint64_t bytes = (r1 - r0) * w->n_cols * bt_dtype_bits((bt_dtype)w->dtype) / 8;
    if (w->dtype == BT_MXFP4) {
        bytes += (r1 - r0) * (w->n_cols / BT_MXFP4_BLOCK);
    } else if (w->scale != NULL) {
        uint64_t n_blocks = bt_cpu_div_up(r1, BT_SCALE_BLOCK) - bt_cpu_div_up(r0, BT_SCALE_BLOCK);
        bytes += n_blocks * bt_cpu_div_up(w->n_cols, BT_SCALE_BLOCK) * bt_dtype_bits((bt_dtype)w->scale_dtype) / 8;
    }
    r->plan->threads[thread_i].traffic->weights[class] += bytes;
    r->plan->threads[thread_i].traffic->flops += 2 * (r1 - r0) * w->n_cols * n_x;
}

void bt_cpu_count_vector(const bt_cpu_run *r, size_t thread_i, uint32_t weight, uint64_t n)
{
    r->plan->threads[thread_i].traffic->weights[bt_cpu_class_of(r, weight)] += n * sizeof(float);
}
