/* The tape's builder: where things lie, where ops wait, what does not fit. */
#include "unit.h"

#include <signal.h>
#include <sys/wait.h>

#include "tape/tape.h"

static const float ZEROS[64 * 64];

/* Weights: 0 a matrix 64 x 64, 1 a vector of 64, 2 a matrix 40 x 64, 3 to 6 matrices 32 x 64, 7 and 8 64 x 32. */
static const bt_view WEIGHTS[] = {
    {.data = ZEROS, .n_rows = 64, .n_cols = 64}, {.data = ZEROS, .n_rows = 1, .n_cols = 64},
    {.data = ZEROS, .n_rows = 40, .n_cols = 64}, {.data = ZEROS, .n_rows = 32, .n_cols = 64},
    {.data = ZEROS, .n_rows = 32, .n_cols = 64}, {.data = ZEROS, .n_rows = 32, .n_cols = 64},
    {.data = ZEROS, .n_rows = 32, .n_cols = 64}, {.data = ZEROS, .n_rows = 64, .n_cols = 32},
    {.data = ZEROS, .n_rows = 64, .n_cols = 32},
};
#define N_WEIGHTS (sizeof WEIGHTS / sizeof *WEIGHTS)

static const bt_limits LIMITS = {.max_rows = 5, .max_logit_rows = 3, .context = 10, .n_slots = 2, .kv_dtype = BT_BF16};

static bt_tape_builder *begin(const bt_limits *limits)
{
    bt_tape_builder *b = NULL;
    assert_int_equal(bt_tape_begin(limits, WEIGHTS, N_WEIGHTS, &b, NULL), BT_OK);
    return b;
}

static bt_tape *finish(bt_tape_builder *b)
{
    bt_tape *t = NULL;
    assert_int_equal(bt_tape_finish(b, bt_tape_act(b, BT_SPACE_LOGITS, 7), &t, NULL), BT_OK);
    return t;
}

static void places_do_not_overlap(void **state)
{
    (void)state;
    bt_tape_builder *b = begin(&LIMITS);
    bt_act x = bt_tape_act(b, BT_SPACE_ROWS, 17), y = bt_tape_act(b, BT_SPACE_LOGITS, 16);
    bt_routes routes = bt_tape_routes(b, 3);
    uint32_t k = bt_tape_positions(b, 3, 20), v = bt_tape_positions(b, 1, 1);
    static const double constants[2] = {0.5, 2};
    uint32_t table = bt_tape_constants(b, constants, 2);
    bt_tape_head(b);
    bt_tape *t = finish(b);
    assert_int_equal(x.offset, 0);
    assert_int_equal(x.stride, 32);
    assert_int_equal(x.width, 17);
    assert_int_equal(y.offset, 5 * 32);
    assert_int_equal(y.stride, 16);
    assert_int_equal(routes.ids.offset, 5 * 32 + 3 * 16);
    assert_int_equal(routes.ids.dtype, BT_I32);
    assert_int_equal(routes.weights.offset, 5 * 32 + 3 * 16 + 5 * 16);
    assert_int_equal(t->scratch_words, 5 * 32 + 3 * 16 + 2 * 5 * 16 + 3 * 16);
    /* 10 positions of 20 bf16 are 400 bytes: a strip is the next multiple of 64. */
    assert_int_equal(t->n_states, 2);
    assert_int_equal(t->states[k].offset, 0);
    assert_int_equal(t->states[k].strip_bytes, 448);
    assert_int_equal(t->states[v].offset, 3 * 448);
    assert_int_equal(t->states[v].strip_bytes, 64);
    assert_true(t->states[v].per_position);
    assert_int_equal(t->states[v].dtype, BT_BF16);
    assert_int_equal(t->slot_bytes, 3 * 448 + 64);
    assert_int_equal(t->tables[table].n, 2);
    assert_true(t->tables[table].values != constants && t->tables[table].values[1] == 2);
    bt_tape_free(t);
    bt_tape_free(NULL);
    bt_tape_abandon(NULL);
}

/* A layer's worth of ops; the letters of `expected` say which waits (w) and which does not (.). */
static void ops_wait_only_where_they_must(void **state)
{
    (void)state;
    bt_tape_builder *b = begin(&LIMITS);
    bt_act x = bt_tape_act(b, BT_SPACE_ROWS, 64), a = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_act q = bt_tape_act(b, BT_SPACE_ROWS, 64), k = bt_tape_act(b, BT_SPACE_ROWS, 32);
    bt_act v = bt_tape_act(b, BT_SPACE_ROWS, 32), o = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_act angles = bt_tape_act(b, BT_SPACE_ROWS, 16);
    uint32_t ks = bt_tape_positions(b, 2, 16), vs = bt_tape_positions(b, 2, 16);
    static const double frequency[8] = {1};
    uint32_t table = bt_tape_constants(b, frequency, 8);
    bt_op_embed(b, x, 0);
    bt_op_rope_angles(b, angles, table, 1); /* touches nothing that embed touches */
    bt_tape_layer(b, 0);
    bt_op_rms_norm(b, a, x, 1, 2, 1e-6); /* reads x */
    bt_op_linear(b, q, a, 0);            /* reads a */
    bt_op_linear(b, k, a, 3);            /* reads a too: reading together is fine */
    bt_op_linear(b, v, a, 4);
    bt_op_rope(b, q, angles, 4, 16, 8); /* writes q, which was written */
    bt_op_rope(b, k, angles, 2, 16, 8);
    bt_op_store(b, vs, v);
    bt_op_store(b, ks, k);                         /* reads k, which rope wrote */
    bt_op_attention(b, o, q, ks, vs, 4, 16, 0.25); /* reads what store wrote */
    bt_op_linear_add(b, x, o, 0);                  /* reads o */
    bt_op_rms_norm(b, a, x, 1, 1, 1e-6);           /* reads x */
    bt_op_gate_mul(b, o, q, 1);                    /* writes o; the barrier before lies after its reader */
    bt_op_linear(b, q, a, 0);                      /* reads a, and writes q, which was read */
    bt_tape_head(b);
    bt_act z = bt_tape_act(b, BT_SPACE_LOGITS, 64);
    bt_op_select_rows(b, z, x);
    bt_op_rms_norm(b, z, z, 1, 1, 1e-6);
    bt_tape *t = finish(b);
    const char *expected = "..ww..w..wwww.www";
    assert_int_equal(t->n_ops, strlen(expected));
    for (uint32_t i = 0; i < t->n_ops; i++) {
        if (t->ops[i].barrier != (expected[i] == 'w'))
            fail_msg("op %u, %s: barrier is %d", i, bt_op_name((bt_op_kind)t->ops[i].kind), t->ops[i].barrier);
        assert_int_equal(t->ops[i].layer, i < 2 ? -1 : 0);
    }
    assert_int_equal(t->head_begin, 15);
    bt_tape_free(t);
}

static void expert_ops_wait_for_their_routes(void **state)
{
    (void)state;
    bt_tape_builder *b = begin(&LIMITS);
    bt_act x = bt_tape_act(b, BT_SPACE_ROWS, 64), logits = bt_tape_act(b, BT_SPACE_ROWS, 2);
    bt_act h = bt_tape_act(b, BT_SPACE_ROWS, 64), y = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_act v = bt_tape_act(b, BT_SPACE_ROWS, 32), shared = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_routes routes = bt_tape_routes(b, 2);
    bt_route_spec spec = {.bias = BT_NONE, .scale = 1, .force = -1};
    bt_op_route(b, routes, logits, &spec);
    bt_op_moe_up_gate(b, h, x, routes, 3, 5, 1, 2, 1);
    bt_op_moe_values(b, v, x, routes, 3, 2, 2, 1);
    bt_op_linear(b, shared, x, 0);
    bt_op_moe_down_sum(b, y, h, routes, 7, 1, 2, &shared);
    bt_op_route(b, routes, logits, &spec); /* overwrites what down_sum reads */
    bt_tape_head(b);
    bt_tape *t = finish(b);
    const char *expected = ".w..ww";
    for (uint32_t i = 0; i < t->n_ops; i++) assert_int_equal(t->ops[i].barrier, expected[i] == 'w');
    bt_tape_free(t);
}

/* More independent ops than areas are remembered: one of them waits, and hazards are still found. */
static void many_ops_without_a_barrier(void **state)
{
    (void)state;
    bt_tape_builder *b = begin(&LIMITS);
    bt_act first = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_op_embed(b, first, 0);
    for (int i = 0; i < 300; i++) bt_op_embed(b, bt_tape_act(b, BT_SPACE_ROWS, 64), 0);
    bt_act last = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_op_embed(b, last, 0);
    bt_op_linear(b, first, last, 0);
    bt_tape_head(b);
    bt_tape *t = finish(b);
    uint32_t n_barriers = 0;
    for (uint32_t i = 0; i < t->n_ops; i++) n_barriers += t->ops[i].barrier;
    assert_in_range(n_barriers, 2, 6);
    assert_true(t->ops[t->n_ops - 1].barrier);
    bt_tape_free(t);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    bt_error e;
    bt_tape *t = NULL;
    bt_limits huge = {.max_rows = UINT32_MAX,
                      .max_logit_rows = UINT32_MAX,
                      .context = UINT32_MAX,
                      .n_slots = UINT32_MAX,
                      .kv_dtype = BT_F32};
    /* scratch */
    bt_tape_builder *b = begin(&huge);
    (void)bt_tape_act(b, BT_SPACE_ROWS, (size_t)UINT32_MAX - 20);
    bt_tape_head(b);
    bt_act logits = bt_tape_act(b, BT_SPACE_LOGITS, 1);
    assert_int_equal(bt_tape_finish(b, logits, &t, &e), BT_ERR_MEMORY);
    assert_non_null(strstr(e.message, "4294967295 positions"));
    /* a width that a row's stride cannot hold */
    b = begin(&LIMITS);
    (void)bt_tape_act(b, BT_SPACE_ROWS, (size_t)UINT32_MAX + 1);
    bt_tape_head(b);
    logits = bt_tape_act(b, BT_SPACE_LOGITS, 1);
    assert_int_equal(bt_tape_finish(b, logits, &t, &e), BT_ERR_MEMORY);
    /* a slot that fits, times slots that do not; ops after that are still checked without a fault */
    huge.max_rows = huge.max_logit_rows = 1;
    b = begin(&huge);
    uint32_t k = bt_tape_positions(b, 1, 1 << 16), v = bt_tape_positions(b, 1, 1 << 16);
    bt_act q = bt_tape_act(b, BT_SPACE_ROWS, 1 << 16), y = bt_tape_act(b, BT_SPACE_ROWS, 1 << 16);
    bt_op_store(b, k, q);
    bt_op_attention(b, y, q, k, v, 1, 1 << 16, 1);
    bt_tape_head(b);
    logits = bt_tape_act(b, BT_SPACE_LOGITS, 1);
    assert_int_equal(bt_tape_finish(b, logits, &t, &e), BT_ERR_MEMORY);
    /* 2^63 bytes of slots fit 64 bits, but no object of C has them */
    huge =
        (bt_limits){.max_rows = 1, .max_logit_rows = 1, .context = 1u << 31, .n_slots = 1u << 29, .kv_dtype = BT_F32};
    b = begin(&huge);
    (void)bt_tape_positions(b, 1, 2);
    bt_tape_head(b);
    logits = bt_tape_act(b, BT_SPACE_LOGITS, 1);
    assert_int_equal(bt_tape_finish(b, logits, &t, &e), BT_ERR_MEMORY);
    /* slots of experts are addressed by 32-bit offsets */
    huge = (bt_limits){.max_rows = 1u << 27, .max_logit_rows = 1, .context = 1, .n_slots = 1, .kv_dtype = BT_F32};
    b = begin(&huge);
    bt_routes routes = bt_tape_routes(b, 2);
    bt_act x = bt_tape_act(b, BT_SPACE_ROWS, 64), h = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_op_moe_up_gate(b, h, x, routes, 3, 5, 1, 2, 1);
    bt_tape_head(b);
    logits = bt_tape_act(b, BT_SPACE_LOGITS, 1);
    assert_int_equal(bt_tape_finish(b, logits, &t, &e), BT_ERR_MEMORY);
    assert_null(t);
}

/* ---- shapes: a family's mistake ends the program with the op's name -------------------------------------------------
 */

typedef void (*mistake_fn)(bt_tape_builder *b, bt_act wide, bt_act narrow);

static void linear_of_a_wrong_width(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    bt_op_linear(b, wide, narrow, 0);
}

static void linear_onto_its_input(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_linear(b, wide, wide, 0);
}

static void linear_of_a_missing_weight(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_linear(b, bt_tape_act(b, BT_SPACE_ROWS, 64), wide, N_WEIGHTS);
}

static void norm_in_uneven_groups(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_rms_norm(b, wide, wide, 1, 3, 1e-6);
}

static void rope_of_too_many_pairs(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    bt_op_rope(b, wide, narrow, 4, 16, 9);
}

static void attention_over_other_strips(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    uint32_t k = bt_tape_positions(b, 2, 16), v = bt_tape_positions(b, 4, 16);
    bt_op_attention(b, bt_tape_act(b, BT_SPACE_ROWS, 64), wide, k, v, 4, 16, 1);
}

static void experts_past_the_table(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_routes routes = bt_tape_routes(b, 2);
    bt_op_moe_up_gate(b, bt_tape_act(b, BT_SPACE_ROWS, 64), wide, routes, 3, 5, 4, 2, 1);
}

static void step_rows_in_the_head(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_tape_head(b);
    bt_op_rms_norm(b, wide, wide, 1, 1, 1e-6);
}

/* In a child whose stderr we read. */
static void expect_abort(mistake_fn mistake, const char *name)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(fds[1], STDERR_FILENO);
        (void)close(fds[1]);
        bt_tape_builder *b = begin(&LIMITS);
        bt_act wide = bt_tape_act(b, BT_SPACE_ROWS, 64);
        mistake(b, wide, bt_tape_act(b, BT_SPACE_ROWS, 16));
        _exit(0);
    }
    (void)close(fds[1]);
    char text[2048] = {0};
    size_t used = 0;
    for (ssize_t n = 1; n > 0 && used<sizeof text - 1; used += n> 0 ? (size_t)n : 0)
        n = read(fds[0], text + used, sizeof text - 1 - used);
    (void)close(fds[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || strstr(text, name) == NULL)
        fail_msg("%s: status %d, \"%s\"", name, status, text);
}

static void shapes_are_asserted(void **state)
{
    (void)state;
    expect_abort(linear_of_a_wrong_width, "\"linear\"");
    expect_abort(linear_onto_its_input, "\"linear\"");
    expect_abort(linear_of_a_missing_weight, "n_weights");
    expect_abort(norm_in_uneven_groups, "\"rms_norm\"");
    expect_abort(rope_of_too_many_pairs, "\"rope\"");
    expect_abort(attention_over_other_strips, "\"attention\"");
    expect_abort(experts_past_the_table, "\"moe_up_gate\"");
    expect_abort(step_rows_in_the_head, "\"rms_norm\"");
}

static void every_op_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < BT_N_OPS; i++) assert_true(strlen(bt_op_name((bt_op_kind)i)) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_do_not_overlap),
        cmocka_unit_test(ops_wait_only_where_they_must),
        cmocka_unit_test(expert_ops_wait_for_their_routes),
        cmocka_unit_test(many_ops_without_a_barrier),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(shapes_are_asserted),
        cmocka_unit_test(every_op_has_a_name),
    };
    return cmocka_run_group_tests_name("tape", tests, NULL, NULL);
}
