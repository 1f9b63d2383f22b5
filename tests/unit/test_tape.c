/* The tape's builder: where things lie, where ops wait, what does not fit. */
#include "unit.h"

#include <signal.h>
#include <sys/wait.h>

#include "tape/tape.h"

static const float ZEROS[64 * 64];

/* Weights: 0 a matrix 64 x 64, 1 a vector of 64, 2 a matrix 40 x 64, 3 to 6 matrices 32 x 64, 7 and 8 64 x 32, 9 taps
 * 64 x 4, 10 a vector of 16, 11 a packed matrix 64 x 64, 12 one for latent attention: 4 heads of 10 + 6 over 32. */
static const bt_view WEIGHTS[] = {
    {.data = ZEROS, .n_rows = 64, .n_cols = 64},
    {.data = ZEROS, .n_rows = 1, .n_cols = 64},
    {.data = ZEROS, .n_rows = 40, .n_cols = 64},
    {.data = ZEROS, .n_rows = 32, .n_cols = 64},
    {.data = ZEROS, .n_rows = 32, .n_cols = 64},
    {.data = ZEROS, .n_rows = 32, .n_cols = 64},
    {.data = ZEROS, .n_rows = 32, .n_cols = 64},
    {.data = ZEROS, .n_rows = 64, .n_cols = 32},
    {.data = ZEROS, .n_rows = 64, .n_cols = 32},
    {.data = ZEROS, .n_rows = 64, .n_cols = 4},
    {.data = ZEROS, .n_rows = 1, .n_cols = 16},
    {.data = ZEROS, .scale = ZEROS, .n_rows = 64, .n_cols = 64, .dtype = BT_MXFP4, .scale_dtype = BT_F8_E8M0},
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

/* Fixed states are f32 whatever keys and values are, and do not grow with the context. */
static void fixed_states_lie_among_the_others(void **state)
{
    (void)state;
    bt_tape_builder *b = begin(&LIMITS);
    uint32_t k = bt_tape_positions(b, 1, 20), s = bt_tape_fixed(b, 3, 17), v = bt_tape_positions(b, 1, 20);
    bt_tape_head(b);
    bt_tape *t = finish(b);
    assert_int_equal(t->states[k].strip_bytes, 448);
    assert_int_equal(t->states[s].offset, 448);
    assert_int_equal(t->states[s].strip_bytes, 128); /* 68 bytes */
    assert_int_equal(t->states[s].n_strips, 3);
    assert_int_equal(t->states[s].width, 17);
    assert_int_equal(t->states[s].dtype, BT_F32);
    assert_false(t->states[s].per_position);
    assert_int_equal(t->states[v].offset, 448 + 3 * 128);
    assert_int_equal(t->slot_bytes, 2 * 448 + 3 * 128);
    bt_tape_free(t);
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

/* Parts of one activation that share no column are strangers; those that do are not, nor is the whole. */
static void parts_wait_only_for_their_own_columns(void **state)
{
    (void)state;
    bt_tape_builder *b = begin(&LIMITS);
    bt_act x = bt_tape_act(b, BT_SPACE_ROWS, 64), bank = bt_tape_act(b, BT_SPACE_ROWS, 3 * 64);
    bt_act y = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_act part[3];
    for (size_t i = 0; i < 3; i++) part[i] = bt_tape_part(bank, i * 64, 64);
    assert_int_equal(part[2].offset, bank.offset + 128);
    assert_int_equal(part[2].stride, 192);
    bt_op_linear(b, part[0], x, 0);
    bt_op_linear(b, part[1], x, 0);           /* beside it */
    bt_op_linear(b, part[2], part[0], 0);     /* reads part 0, writes part 2 */
    bt_op_res_mix(b, y, bank, 2, 1, 1, 1e-5); /* reads parts 0 and 1, not 2 */
    bt_op_res_mix(b, bt_tape_part(bank, 0, 64), bt_tape_part(bank, 64, 128), 2, 1, 1, 1e-5); /* reads part 2 */
    bt_op_rms_norm(b, part[1], part[1], 1, 1, 1e-5);                                         /* part 1 was read */
    bt_op_linear(b, bt_tape_part(bank, 48, 64), x, 0); /* columns of parts 0 and 1 */
    bt_op_linear(b, part[2], x, 0);
    bt_tape_head(b);
    bt_tape *t = finish(b);
    const char *expected = "..w.www.";
    assert_int_equal(t->n_ops, strlen(expected));
    for (uint32_t i = 0; i < t->n_ops; i++)
        if (t->ops[i].barrier != (expected[i] == 'w'))
            fail_msg("op %u, %s: barrier is %d", i, bt_op_name((bt_op_kind)t->ops[i].kind), t->ops[i].barrier);
    bt_tape_free(t);
}

/* A KDA layer and an MLA layer. */
static void recurrent_ops_wait_for_values_and_states(void **state)
{
    (void)state;
    bt_tape_builder *b = begin(&LIMITS);
    bt_act x = bt_tape_act(b, BT_SPACE_ROWS, 64), q = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_act k = bt_tape_act(b, BT_SPACE_ROWS, 64), decay = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_act beta = bt_tape_act(b, BT_SPACE_ROWS, 4), o = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_act v = bt_tape_act(b, BT_SPACE_ROWS, 64), latent = bt_tape_act(b, BT_SPACE_ROWS, 48);
    bt_act query = bt_tape_act(b, BT_SPACE_ROWS, 4 * (10 + 16)), absorbed = bt_tape_act(b, BT_SPACE_ROWS, 4 * 48);
    bt_act sums = bt_tape_act(b, BT_SPACE_ROWS, 4 * 32), values = bt_tape_act(b, BT_SPACE_ROWS, 4 * 6);
    uint32_t tail = bt_tape_fixed(b, 3, 64), other = bt_tape_fixed(b, 3, 64), s = bt_tape_fixed(b, 4, 256);
    uint32_t keys = bt_tape_positions(b, 1, 48);
    bt_op_conv_silu(b, q, x, 9, tail);
    bt_op_conv_silu(b, k, x, 9, other); /* another state, another output */
    bt_op_conv_silu(b, v, x, 9, tail);  /* the first one's state: fiction, but a hazard */
    bt_op_kda_gates(b, q, k, decay, beta, 1, 10, 4, -5);
    bt_op_kda_step(b, o, q, k, v, decay, beta, s, 4);
    bt_op_rms_norm_heads(b, o, o, 10, 4, 1e-5);
    bt_op_kda_step(b, x, q, k, v, decay, beta, s, 4); /* the barrier before lies after what it needs */
    bt_op_mla_absorb(b, absorbed, query, 12, 4, 10, 16, 6);
    bt_op_store(b, keys, latent);
    bt_op_mla_attention(b, sums, absorbed, keys, 4, 32, 0.2);
    bt_op_mla_values(b, values, sums, 12, 4, 10, 6);
    bt_tape_head(b);
    bt_tape *t = finish(b);
    const char *waits = "..w.ww...ww";
    assert_int_equal(t->n_ops, strlen(waits));
    for (uint32_t i = 0; i < t->n_ops; i++)
        if (t->ops[i].barrier != (waits[i] == 'w'))
            fail_msg("op %u, %s: barrier is %d", i, bt_op_name((bt_op_kind)t->ops[i].kind), t->ops[i].barrier);
    assert_int_equal(t->ops[9].kind, BT_OP_ATTENTION);
    assert_int_equal(t->ops[9].u.attention.k, t->ops[9].u.attention.v);
    assert_int_equal(t->ops[9].u.attention.head_dim, 48);
    assert_int_equal(t->ops[9].u.attention.v_dim, 32);
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

static void attention_of_values_wider_than_keys(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    uint32_t keys = bt_tape_positions(b, 1, 16);
    bt_op_mla_attention(b, bt_tape_act(b, BT_SPACE_ROWS, 4 * 17), wide, keys, 4, 17, 1);
}

static void convolution_on_a_growing_state(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_conv_silu(b, bt_tape_act(b, BT_SPACE_ROWS, 64), wide, 9, bt_tape_positions(b, 3, 64));
}

static void convolution_with_a_short_tail(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_conv_silu(b, bt_tape_act(b, BT_SPACE_ROWS, 64), wide, 9, bt_tape_fixed(b, 2, 64));
}

static void gates_that_grow(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_act k = bt_tape_act(b, BT_SPACE_ROWS, 64), decay = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_op_kda_gates(b, wide, k, decay, bt_tape_act(b, BT_SPACE_ROWS, 4), 1, 10, 4, 5);
}

static void delta_rule_over_other_heads(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_act k = bt_tape_act(b, BT_SPACE_ROWS, 64), y = bt_tape_act(b, BT_SPACE_ROWS, 64);
    bt_act decay = bt_tape_act(b, BT_SPACE_ROWS, 64), beta = bt_tape_act(b, BT_SPACE_ROWS, 4);
    bt_op_kda_step(b, y, wide, k, k, decay, beta, bt_tape_fixed(b, 8, 64), 4);
}

static void absorbing_packed_weights(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_mla_absorb(b, bt_tape_act(b, BT_SPACE_ROWS, 256), wide, 11, 4, 8, 8, 8);
}

static void packed_embedding(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_embed(b, wide, 11);
}

static void mix_of_more_than_the_bank(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_res_mix(b, wide, bt_tape_act(b, BT_SPACE_ROWS, 2 * 64), 3, 1, 1, 1e-5);
}

static void mix_onto_a_source(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)wide;
    (void)narrow;
    bt_act bank = bt_tape_act(b, BT_SPACE_ROWS, 2 * 64);
    bt_op_res_mix(b, bt_tape_part(bank, 64, 64), bank, 2, 1, 1, 1e-5);
}

static void heads_without_a_gain(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_rms_norm_heads(b, wide, wide, 10, 2, 1e-6);
}

static void situ_without_caps(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_op_situ_mul(b, wide, wide, wide, (bt_situ){0, 25});
}

static void groups_too_few_for_the_choice(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)narrow;
    bt_route_spec spec = {.bias = BT_NONE, .scale = 1, .force = -1, .n_groups = 16, .n_active_groups = 1};
    bt_op_route(b, bt_tape_routes(b, 5), wide, &spec);
}

static void part_beyond_its_activation(bt_tape_builder *b, bt_act wide, bt_act narrow)
{
    (void)b;
    (void)narrow;
    (void)bt_tape_part(wide, 48, 17);
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
    expect_abort(attention_of_values_wider_than_keys, "\"attention\"");
    expect_abort(convolution_on_a_growing_state, "\"conv_silu\"");
    expect_abort(convolution_with_a_short_tail, "\"conv_silu\"");
    expect_abort(gates_that_grow, "\"kda_gates\"");
    expect_abort(delta_rule_over_other_heads, "\"kda_step\"");
    expect_abort(absorbing_packed_weights, "\"mla_absorb\"");
    expect_abort(packed_embedding, "\"embed\"");
    expect_abort(mix_of_more_than_the_bank, "\"res_mix\"");
    expect_abort(mix_onto_a_source, "\"res_mix\"");
    expect_abort(heads_without_a_gain, "\"rms_norm\"");
    expect_abort(situ_without_caps, "\"act_mul\"");
    expect_abort(groups_too_few_for_the_choice, "\"route\"");
    expect_abort(part_beyond_its_activation, "a.width");
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
        cmocka_unit_test(fixed_states_lie_among_the_others),
        cmocka_unit_test(parts_wait_only_for_their_own_columns),
        cmocka_unit_test(recurrent_ops_wait_for_values_and_states),
        cmocka_unit_test(many_ops_without_a_barrier),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(shapes_are_asserted),
        cmocka_unit_test(every_op_has_a_name),
    };
    return cmocka_run_group_tests_name("tape", tests, NULL, NULL);
}
