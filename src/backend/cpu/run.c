/*
 * One step: check the step block, zero the counters, walk the ops in one parallel region. A wrong step block is our own
 * mistake (sessions check ids and lengths first), so it is an assertion.
 */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/arena.h"

static void check_segments(bt_cpu_plan *plan, const bt_step *s)
{
    const bt_limits *limits = &plan->base.tape->limits;
    uint32_t row = 0;
    for (uint32_t i = 0; i < s->n_segments; i++) {
        const bt_segment *g = &s->segments[i];
        assert(g->slot < limits->n_slots);
        assert(!plan->slot_seen[g->slot]);
        plan->slot_seen[g->slot] = true;
        assert(g->row == row);
        assert(g->n_rows > 0 && g->n_rows <= s->n_rows - row);
        assert(g->position <= limits->context && g->n_rows <= limits->context - g->position);
        row += g->n_rows;
    }
    assert(row == s->n_rows);
    for (uint32_t i = 0; i < s->n_segments; i++) plan->slot_seen[s->segments[i].slot] = false;
}

static void check_body(bt_cpu_plan *plan, const bt_step *s)
{
    assert(s->n_rows > 0);
    assert(s->n_rows <= plan->base.tape->limits.max_rows);
    for (uint32_t i = 0; i < s->n_rows; i++)
        assert(plan->n_vocab == 0 || (s->ids[i] >= 0 && (uint32_t)s->ids[i] < plan->n_vocab));
    check_segments(plan, s);
}

static void check_head(const bt_cpu_plan *plan, const bt_step *s)
{
    assert(s->n_logit_rows <= plan->base.tape->limits.max_logit_rows);
    for (uint32_t i = 0; i < s->n_logit_rows; i++) assert(s->logit_rows[i] < plan->n_rows_last);
}

typedef void (*exec_fn)(const bt_cpu_run *r, uint32_t op_i, size_t thread_i);

static const exec_fn EXEC[BT_N_OPS] = {
    [BT_OP_EMBED] = bt_cpu_exec_embed,
    [BT_OP_RMS_NORM] = bt_cpu_exec_rms_norm,
    [BT_OP_LINEAR] = bt_cpu_exec_linear,
    [BT_OP_ROPE_ANGLES] = bt_cpu_exec_rope_angles,
    [BT_OP_ROPE] = bt_cpu_exec_rope,
    [BT_OP_STORE] = bt_cpu_exec_store,
    [BT_OP_ATTENTION] = bt_cpu_exec_attention,
    [BT_OP_GATE_MUL] = bt_cpu_exec_gate_mul,
    [BT_OP_ACT_MUL] = bt_cpu_exec_act_mul,
    [BT_OP_ROUTE] = bt_cpu_exec_route,
    [BT_OP_MOE_UP_GATE] = bt_cpu_exec_moe_up_gate,
    [BT_OP_MOE_DOWN_SUM] = bt_cpu_exec_moe_down_sum,
    [BT_OP_MOE_VALUES] = bt_cpu_exec_moe_values,
    [BT_OP_SELECT_ROWS] = bt_cpu_exec_select_rows,
    [BT_OP_CONV_SILU] = bt_cpu_exec_conv_silu,
    [BT_OP_KDA_GATES] = bt_cpu_exec_kda_gates,
    [BT_OP_KDA_STEP] = bt_cpu_exec_kda_step,
    [BT_OP_MLA_ABSORB] = bt_cpu_exec_mla_absorb,
    [BT_OP_MLA_VALUES] = bt_cpu_exec_mla_values,
    [BT_OP_RES_MIX] = bt_cpu_exec_res_mix,
#ifdef BT_TEST_BUILD
    [BT_OP_KEEP] = bt_cpu_exec_keep,
#endif
};

static void walk(void *arg, size_t thread_i)
{
    const bt_cpu_run *r = arg;
    bt_pool *pool = r->plan->cpu->pool;
    bool has_attention = false; /* since the last barrier: the partial results have one place */
    bt_guard_begin();
    for (uint32_t i = r->op_begin; i < r->op_end; i++) {
        const bt_op *op = bt_cpu_op(r, i);
        bool is_attention = op->kind == BT_OP_ATTENTION;
        bool wait = op->barrier || (is_attention && has_attention);
        if (wait && i > r->op_begin) bt_pool_barrier(pool, thread_i);
        has_attention = is_attention || (has_attention && !wait);
        EXEC[op->kind](r, i, thread_i);
    }
    bt_guard_end();
}

bt_status bt_cpu_run_step(bt_plan *p, const bt_step *s, bt_run_part part, bt_error *e)
{
    (void)e; /* nothing here can fail that is not our mistake */
    bt_cpu_plan *plan = (bt_cpu_plan *)p;
    const bt_tape *t = p->tape;
    if (part == BT_RUN_ALL) {
        check_body(plan, s);
        plan->n_rows_last = s->n_rows;
    }
    check_head(plan, s);
    bt_cpu_run run = {
        .plan = plan,
        .step = s,
        .op_begin = part == BT_RUN_ALL ? 0 : t->head_begin,
        .op_end = s->n_logit_rows > 0 ? t->n_ops : t->head_begin,
    };
    if (run.op_begin >= run.op_end) return BT_OK;
    for (uint32_t i = run.op_begin; i < run.op_end; i++)
        atomic_store_explicit(&plan->counters[i].next, 0, memory_order_relaxed);
    for (size_t i = 0; i < plan->cpu->n_threads; i++)
        atomic_store_explicit(&plan->shares[i].next, 0, memory_order_relaxed);
    bt_pool_run(plan->cpu->pool, walk, &run);
    return BT_OK;
}
