/*
 * Faults on purpose, in the test build only: a second order of summation (decode would then differ from prefill in the
 * last bits, which no person sees and every test of bit-identity must), and the op that blots out columns.
 */
#include <string.h>

#include "backend/cpu/cpu.h"

#ifdef BT_TEST_BUILD

/* One token: from the last column to the first. Several tokens: as the scalar kernel. */
static void linear_in_two_orders(const bt_linear *a, size_t r0, size_t r1)
{
    bt_kernels scalar;
    bt_kernels_init(&scalar, BT_CPU_SCALAR);
    for (size_t i = 1; i < a->n_runs; i++) {
        bt_linear run = *a;
        run.n_runs = 0;
        run.y += i * a->apart;
        linear_in_two_orders(&run, r0 + i * a->apart, r1 + i * a->apart);
    }
    if (a->n_x != 1) {
        scalar.linear[a->w->dtype](a, r0, r1);
        return;
    }
    float *w = a->scratch;
    assert(a->w->n_cols <= BT_KERNEL_SCRATCH_BYTES / sizeof *w);
    const float *x = a->x + (a->x_rows != NULL ? a->x_rows[0] : 0) * a->x_stride;
    float *y = a->y + (a->y_rows != NULL ? a->y_rows[0] : 0) * a->y_stride;
    for (size_t row = r0; row < r1; row++) {
        bt_cpu_widen_row(&scalar, w, a->w, row);
        float sum = 0;
        for (size_t k = a->w->n_cols; k > 0; k--) sum += w[k - 1] * x[k - 1];
        y[row - r0] = a->add ? y[row - r0] + sum : sum;
    }
}

void bt_cpu_plant_reduction_order(bt_plan *p)
{
    bt_cpu_plan *plan = (bt_cpu_plan *)p;
    for (size_t i = 0; i < BT_N_WEIGHT_DTYPES; i++)
        if (i != BT_MXFP4) plan->cpu->kernels.linear[i] = linear_in_two_orders;
}

void bt_cpu_exec_keep(const bt_cpu_run *r, uint32_t op_i, size_t thread_i)
{
    (void)thread_i;
    const bt_op *op = bt_cpu_op(r, op_i);
    uint32_t begin = op->u.keep.begin, end = op->u.keep.end;
    bt_cpu_items it;
    while (bt_cpu_claim(r, op_i, r->step->n_rows, 1, &it)) {
        float *y = bt_cpu_row(r, op->u.keep.y, it.begin);
        memset(y, 0, op->u.keep.y.width * sizeof *y);
        memcpy(y + begin, bt_cpu_row(r, op->u.keep.x, it.begin) + begin, (end - begin) * sizeof *y);
    }
}

#endif
