/*
 * One function per op: checks every shape against the weight table, says what the op touches, appends it. A mismatch is
 * our own mistake in a family file, so it is an assertion that prints the op's name; checkpoints were checked before.
 */
#include <assert.h>

#include "tape/builder.h"

/* An assertion that names the op. */
#define CHECK(op, condition) assert((condition) && (op))

const char *bt_op_name(bt_op_kind kind)
{
    static const char *const names[BT_N_OPS] = {
        [BT_OP_EMBED] = "embed",
        [BT_OP_RMS_NORM] = "rms_norm",
        [BT_OP_LINEAR] = "linear",
        [BT_OP_ROPE_ANGLES] = "rope_angles",
        [BT_OP_ROPE] = "rope",
        [BT_OP_STORE] = "store",
        [BT_OP_ATTENTION] = "attention",
        [BT_OP_GATE_MUL] = "gate_mul",
        [BT_OP_ACT_MUL] = "act_mul",
        [BT_OP_ROUTE] = "route",
        [BT_OP_MOE_UP_GATE] = "moe_up_gate",
        [BT_OP_MOE_DOWN_SUM] = "moe_down_sum",
        [BT_OP_MOE_VALUES] = "moe_values",
        [BT_OP_SELECT_ROWS] = "select_rows",
        [BT_OP_CONV_SILU] = "conv_silu",
        [BT_OP_KDA_GATES] = "kda_gates",
        [BT_OP_KDA_STEP] = "kda_step",
        [BT_OP_MLA_ABSORB] = "mla_absorb",
        [BT_OP_MLA_VALUES] = "mla_values",
        [BT_OP_RES_MIX] = "res_mix",
#ifdef BT_TEST_BUILD
        [BT_OP_KEEP] = "keep",
#endif
    };
    assert(kind < BT_N_OPS);
    return names[kind];
}

static const bt_view *weight(const bt_tape_builder *b, uint32_t i)
{
    assert(i < b->tape.n_weights);
    const bt_view *w = &b->tape.weights[i];
    assert(w->dtype < BT_N_WEIGHT_DTYPES);
    assert(w->layout == BT_LAYOUT_ROWS);
    assert(w->dtype != BT_MXFP4 || (w->scale != NULL && w->n_cols % BT_MXFP4_BLOCK == 0));
    return w;
}

/* Without scales: elements that are used one by one, or out of the order of rows. */
static bool is_plain(const bt_tape_builder *b, uint32_t i)
{
    return weight(b, i)->scale == NULL;
}

static bool is_matrix(const bt_tape_builder *b, uint32_t i, size_t n_rows, size_t n_cols)
{
    const bt_view *w = weight(b, i);
    return w->n_rows == n_rows && w->n_cols == n_cols;
}

/* All n_experts matrices first, first + stride, ... */
static bool are_matrices(const bt_tape_builder *b, uint32_t first, uint32_t stride, size_t n_experts, size_t n_rows,
                         size_t n_cols)
{
    if (stride == 0 || n_experts == 0 || n_experts > b->tape.n_weights) return false;
    for (size_t i = 0; i < n_experts; i++) {
        size_t w = first + i * stride;
        if (w >= b->tape.n_weights || !is_matrix(b, (uint32_t)w, n_rows, n_cols)) return false;
    }
    return true;
}

/* Vectors are widened once, without scales. */
static bool is_vector(const bt_tape_builder *b, uint32_t i, size_t n)
{
    return is_matrix(b, i, 1, n) && is_plain(b, i);
}

static bool is_f32(bt_act a)
{
    return a.dtype == BT_F32 && a.width > 0;
}

static bool are_routes(bt_routes r)
{
    return r.ids.dtype == BT_I32 && r.weights.dtype == BT_F32 && r.ids.width == r.weights.width &&
           r.ids.space == BT_SPACE_ROWS && r.weights.space == BT_SPACE_ROWS;
}

/* Body ops work on the step's rows, head ops on the rows of a slice. */
static bool in_place(const bt_tape_builder *b, bt_act a)
{
    return a.space == (b->has_head ? BT_SPACE_LOGITS : BT_SPACE_ROWS);
}

static void reads_routes(bt_tape_builder *b, bt_routes r)
{
    bt_tape_reads(b, r.ids);
    bt_tape_reads(b, r.weights);
}

void bt_op_embed(bt_tape_builder *b, bt_act y, uint32_t w)
{
    CHECK("embed", is_f32(y) && in_place(b, y) && !b->has_head);
    CHECK("embed", weight(b, w)->n_cols == y.width && weight(b, w)->dtype != BT_MXFP4);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_EMBED, .u.embed = {.y = y, .weight = w}});
}

static void rms_norm(bt_tape_builder *b, bt_act y, bt_act x, uint32_t w, size_t n_groups, double eps)
{
    CHECK("rms_norm", is_f32(y) && is_f32(x) && y.width == x.width && in_place(b, y) && in_place(b, x));
    CHECK("rms_norm", n_groups > 0 && x.width % n_groups == 0);
    CHECK("rms_norm", y.offset == x.offset || !bt_acts_overlap(b, y, x));
    bt_tape_reads(b, x);
    bt_tape_writes(b, y);
    bt_tape_append(
        b, &(bt_op){.kind = BT_OP_RMS_NORM,
                    .u.rms_norm = {.y = y, .x = x, .weight = w, .n_groups = (uint32_t)n_groups, .eps = (float)eps}});
}

void bt_op_rms_norm(bt_tape_builder *b, bt_act y, bt_act x, uint32_t w, size_t n_groups, double eps)
{
    CHECK("rms_norm", is_vector(b, w, x.width));
    rms_norm(b, y, x, w, n_groups, eps);
}

void bt_op_rms_norm_heads(bt_tape_builder *b, bt_act y, bt_act x, uint32_t w, size_t n_heads, double eps)
{
    CHECK("rms_norm", n_heads > 0 && is_vector(b, w, x.width / n_heads));
    rms_norm(b, y, x, w, n_heads, eps);
}

static void linear(bt_tape_builder *b, bt_act y, bt_act x, uint32_t w, bool add)
{
    CHECK("linear", is_f32(y) && is_f32(x) && in_place(b, y) && in_place(b, x));
    CHECK("linear", is_matrix(b, w, y.width, x.width));
    CHECK("linear", !bt_acts_overlap(b, y, x));
    bt_tape_reads(b, x);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_LINEAR, .u.linear = {.y = y, .x = x, .weight = w, .add = add}});
}

void bt_op_linear(bt_tape_builder *b, bt_act y, bt_act x, uint32_t w)
{
    linear(b, y, x, w, false);
}

void bt_op_linear_add(bt_tape_builder *b, bt_act y, bt_act x, uint32_t w)
{
    linear(b, y, x, w, true);
}

void bt_op_rope_angles(bt_tape_builder *b, bt_act y, uint32_t table, double factor)
{
    CHECK("rope_angles", is_f32(y) && in_place(b, y) && !b->has_head);
    CHECK("rope_angles", b->failed || (table < b->tape.n_tables && y.width == 2 * (uint64_t)b->tables[table].n));
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_ROPE_ANGLES, .u.rope_angles = {.y = y, .table = table, .factor = factor}});
}

void bt_op_rope(bt_tape_builder *b, bt_act x, bt_act angles, size_t n_heads, size_t head_dim, size_t n_pairs)
{
    CHECK("rope", is_f32(x) && is_f32(angles) && in_place(b, x) && in_place(b, angles));
    CHECK("rope", n_heads > 0 && head_dim > 0 && x.width % n_heads == 0 && x.width / n_heads == head_dim);
    CHECK("rope", head_dim % 2 == 0 && n_pairs > 0 && n_pairs <= head_dim / 2 && angles.width == 2 * n_pairs);
    CHECK("rope", !bt_acts_overlap(b, x, angles));
    bt_tape_reads(b, angles);
    bt_tape_writes(b, x);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_ROPE,
                               .u.rope = {.x = x,
                                          .angles = angles,
                                          .n_heads = (uint32_t)n_heads,
                                          .head_dim = (uint32_t)head_dim,
                                          .n_pairs = (uint32_t)n_pairs}});
}

static bool is_positions(const bt_tape_builder *b, uint32_t state, size_t width, size_t n_strips)
{
    if (b->failed) return true; /* there are no states to look at */
    if (state >= b->tape.n_states) return false;
    const bt_state *s = &b->states[state];
    return s->per_position && s->width == width && s->n_strips == n_strips;
}

void bt_op_store(bt_tape_builder *b, uint32_t state, bt_act x)
{
    CHECK("store", is_f32(x) && x.space == BT_SPACE_ROWS && !b->has_head);
    CHECK("store", b->failed || state < b->tape.n_states);
    CHECK("store", b->failed || x.width == (uint64_t)b->states[state].width * b->states[state].n_strips);
    bt_tape_reads(b, x);
    bt_tape_writes_state(b, state);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_STORE, .u.store = {.x = x, .state = state}});
}

static void attention(bt_tape_builder *b, bt_act y, bt_act q, uint32_t k, uint32_t v, size_t n_heads, size_t head_dim,
                      size_t v_dim, double scale)
{
    CHECK("attention", is_f32(y) && is_f32(q) && in_place(b, y) && in_place(b, q) && !b->has_head);
    CHECK("attention", n_heads > 0 && head_dim > 0 && q.width % n_heads == 0 && q.width / n_heads == head_dim);
    CHECK("attention", v_dim > 0 && y.width % n_heads == 0 && y.width / n_heads == v_dim);
    CHECK("attention", b->failed || k < b->tape.n_states);
    size_t n_strips = b->failed ? n_heads : b->states[k].n_strips;
    CHECK("attention", n_heads % n_strips == 0);
    CHECK("attention", is_positions(b, k, head_dim, n_strips) && is_positions(b, v, head_dim, n_strips));
    CHECK("attention", !bt_acts_overlap(b, y, q));
    bt_tape_reads(b, q);
    bt_tape_reads_state(b, k);
    if (v != k) bt_tape_reads_state(b, v);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_ATTENTION,
                               .u.attention = {.y = y,
                                               .q = q,
                                               .k = k,
                                               .v = v,
                                               .n_heads = (uint32_t)n_heads,
                                               .head_dim = (uint32_t)head_dim,
                                               .v_dim = (uint32_t)v_dim,
                                               .scale = (float)scale}});
}

void bt_op_attention(bt_tape_builder *b, bt_act y, bt_act q, uint32_t k, uint32_t v, size_t n_heads, size_t head_dim,
                     double scale)
{
    CHECK("attention", b->failed || k != v);
    attention(b, y, q, k, v, n_heads, head_dim, head_dim, scale);
}

void bt_op_mla_attention(bt_tape_builder *b, bt_act y, bt_act q, uint32_t state, size_t n_heads, size_t latent,
                         double scale)
{
    CHECK("attention", n_heads > 0 && latent > 0 && latent <= q.width / n_heads);
    CHECK("attention", b->failed || (state < b->tape.n_states && b->states[state].n_strips == 1));
    attention(b, y, q, state, state, n_heads, q.width / n_heads, latent, scale);
}

void bt_op_gate_mul(bt_tape_builder *b, bt_act y, bt_act g, uint32_t act)
{
    CHECK("gate_mul", is_f32(y) && is_f32(g) && y.width == g.width && in_place(b, y) && in_place(b, g));
    CHECK("gate_mul", act < BT_FN_SITU && !bt_acts_overlap(b, y, g));
    bt_tape_reads(b, g);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_GATE_MUL, .u.gate_mul = {.y = y, .g = g, .act = act}});
}

static void act_mul(bt_tape_builder *b, bt_act y, bt_act g, bt_act u, uint32_t act, bt_situ situ)
{
    CHECK("act_mul", is_f32(y) && is_f32(g) && is_f32(u) && y.width == g.width && y.width == u.width);
    CHECK("act_mul", in_place(b, y) && in_place(b, g) && in_place(b, u));
    CHECK("act_mul", y.offset == g.offset || !bt_acts_overlap(b, y, g));
    CHECK("act_mul", y.offset == u.offset || !bt_acts_overlap(b, y, u));
    bt_tape_reads(b, g);
    bt_tape_reads(b, u);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_ACT_MUL, .u.act_mul = {.y = y, .g = g, .u = u, .act = act, .situ = situ}});
}

void bt_op_act_mul(bt_tape_builder *b, bt_act y, bt_act g, bt_act u, uint32_t act)
{
    CHECK("act_mul", act < BT_FN_SITU);
    act_mul(b, y, g, u, act, (bt_situ){0});
}

static bool is_situ(bt_situ situ)
{
    return situ.beta > 0 && situ.linear_beta >= 0;
}

void bt_op_situ_mul(bt_tape_builder *b, bt_act y, bt_act g, bt_act u, bt_situ situ)
{
    CHECK("act_mul", is_situ(situ));
    act_mul(b, y, g, u, BT_FN_SITU, situ);
}

/* A group is told by its two best, and the groups that compete hold all that are chosen. */
static bool are_groups(const bt_route_spec *spec, uint32_t n_experts, uint32_t k)
{
    if (spec->n_groups <= 1) return true;
    uint32_t size = n_experts / spec->n_groups;
    return n_experts % spec->n_groups == 0 && size >= 2 && spec->n_active_groups > 0 &&
           spec->n_active_groups <= spec->n_groups && k <= (uint64_t)spec->n_active_groups * size;
}

void bt_op_route(bt_tape_builder *b, bt_routes routes, bt_act logits, const bt_route_spec *spec)
{
    CHECK("route", are_routes(routes) && is_f32(logits) && logits.space == BT_SPACE_ROWS && !b->has_head);
    CHECK("route", routes.ids.width <= logits.width);
    CHECK("route", spec->bias == BT_NONE || is_vector(b, spec->bias, logits.width));
    CHECK("route", spec->score <= 1 && spec->force >= -1 && spec->force < (int64_t)logits.width);
    CHECK("route", are_groups(spec, logits.width, routes.ids.width));
    bt_tape_reads(b, logits);
    bt_tape_writes(b, routes.ids);
    bt_tape_writes(b, routes.weights);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_ROUTE,
                               .u.route = {.routes = routes,
                                           .logits = logits,
                                           .bias = spec->bias,
                                           .score = spec->score,
                                           .renormalise = spec->renormalise,
                                           .scale = (float)spec->scale,
                                           .n_groups = spec->n_groups,
                                           .n_active_groups = spec->n_active_groups,
                                           .force = spec->force}});
}

/* Backends address the slots of h by 32-bit word offsets. */
static void check_slots(bt_tape_builder *b, bt_act h)
{
    if ((uint64_t)h.stride * b->tape.limits.max_rows > UINT32_MAX) b->failed = true;
}

static void moe_up_gate(bt_tape_builder *b, bt_act h, bt_act x, bt_routes routes, uint32_t gate, uint32_t up,
                        uint32_t stride, size_t n_experts, uint32_t act, bt_situ situ)
{
    size_t k = routes.ids.width;
    CHECK("moe_up_gate", are_routes(routes) && is_f32(h) && is_f32(x) && in_place(b, h) && in_place(b, x));
    CHECK("moe_up_gate", !b->has_head && h.width % k == 0 && k <= n_experts);
    CHECK("moe_up_gate", are_matrices(b, gate, stride, n_experts, h.width / k, x.width));
    CHECK("moe_up_gate", are_matrices(b, up, stride, n_experts, h.width / k, x.width));
    CHECK("moe_up_gate", !bt_acts_overlap(b, h, x));
    check_slots(b, h);
    reads_routes(b, routes);
    bt_tape_reads(b, x);
    bt_tape_writes(b, h);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_MOE_UP_GATE,
                               .u.moe_up_gate = {.h = h,
                                                 .x = x,
                                                 .routes = routes,
                                                 .gate = gate,
                                                 .up = up,
                                                 .stride = stride,
                                                 .n_experts = (uint32_t)n_experts,
                                                 .act = act,
                                                 .situ = situ}});
}

void bt_op_moe_up_gate(bt_tape_builder *b, bt_act h, bt_act x, bt_routes routes, uint32_t gate, uint32_t up,
                       uint32_t stride, size_t n_experts, uint32_t act)
{
    CHECK("moe_up_gate", act < BT_FN_SITU);
    moe_up_gate(b, h, x, routes, gate, up, stride, n_experts, act, (bt_situ){0});
}

void bt_op_moe_up_situ(bt_tape_builder *b, bt_act h, bt_act x, bt_routes routes, uint32_t gate, uint32_t up,
                       uint32_t stride, size_t n_experts, bt_situ situ)
{
    CHECK("moe_up_gate", is_situ(situ));
    moe_up_gate(b, h, x, routes, gate, up, stride, n_experts, BT_FN_SITU, situ);
}

static void moe_down(bt_tape_builder *b, bt_act y, bt_act h, bt_routes routes, uint32_t down, uint32_t stride,
                     size_t n_experts, const bt_act *shared, bool add)
{
    size_t k = routes.ids.width;
    CHECK("moe_down_sum", are_routes(routes) && is_f32(y) && is_f32(h) && in_place(b, y) && in_place(b, h));
    CHECK("moe_down_sum", !b->has_head && h.width % k == 0 && k <= n_experts);
    CHECK("moe_down_sum", are_matrices(b, down, stride, n_experts, y.width, h.width / k));
    CHECK("moe_down_sum", !bt_acts_overlap(b, y, h));
    check_slots(b, h);
    reads_routes(b, routes);
    bt_tape_reads(b, h);
    if (shared != NULL) {
        CHECK("moe_down_sum", is_f32(*shared) && in_place(b, *shared) && shared->width == y.width);
        CHECK("moe_down_sum", !bt_acts_overlap(b, y, *shared));
        bt_tape_reads(b, *shared);
    }
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_MOE_DOWN_SUM,
                               .u.moe_down_sum = {.y = y,
                                                  .h = h,
                                                  .shared = shared != NULL ? *shared : (bt_act){.width = 0},
                                                  .routes = routes,
                                                  .down = down,
                                                  .stride = stride,
                                                  .n_experts = (uint32_t)n_experts,
                                                  .add = add}});
}

void bt_op_moe_down_sum(bt_tape_builder *b, bt_act y, bt_act h, bt_routes routes, uint32_t down, uint32_t stride,
                        size_t n_experts, const bt_act *shared)
{
    moe_down(b, y, h, routes, down, stride, n_experts, shared, true);
}

void bt_op_moe_down(bt_tape_builder *b, bt_act y, bt_act h, bt_routes routes, uint32_t down, uint32_t stride,
                    size_t n_experts)
{
    moe_down(b, y, h, routes, down, stride, n_experts, NULL, false);
}

void bt_op_moe_values(bt_tape_builder *b, bt_act y, bt_act x, bt_routes routes, uint32_t first, uint32_t stride,
                      size_t n_experts, uint32_t act)
{
    CHECK("moe_values", are_routes(routes) && is_f32(y) && is_f32(x) && in_place(b, y) && in_place(b, x));
    CHECK("moe_values", !b->has_head && act < BT_FN_SITU && routes.ids.width <= n_experts);
    CHECK("moe_values", are_matrices(b, first, stride, n_experts, y.width, x.width));
    CHECK("moe_values", !bt_acts_overlap(b, y, x));
    reads_routes(b, routes);
    bt_tape_reads(b, x);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_MOE_VALUES,
                               .u.moe_values = {.y = y,
                                                .x = x,
                                                .routes = routes,
                                                .first = first,
                                                .stride = stride,
                                                .n_experts = (uint32_t)n_experts,
                                                .act = act}});
}

void bt_op_select_rows(bt_tape_builder *b, bt_act y, bt_act x)
{
    CHECK("select_rows", is_f32(y) && is_f32(x) && y.width == x.width && b->has_head);
    CHECK("select_rows", y.space == BT_SPACE_LOGITS && x.space == BT_SPACE_ROWS);
    bt_tape_reads(b, x);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_SELECT_ROWS, .u.select_rows = {.y = y, .x = x}});
}

/* ---- recurrent layers ---------------------------------------------------------------------------------------------
 */

static bool is_fixed(const bt_tape_builder *b, uint32_t state, size_t n_strips, size_t width)
{
    if (b->failed) return true;
    if (state >= b->tape.n_states) return false;
    const bt_state *s = &b->states[state];
    return !s->per_position && s->n_strips == n_strips && s->width == width;
}

void bt_op_conv_silu(bt_tape_builder *b, bt_act y, bt_act x, uint32_t w, uint32_t tail)
{
    size_t n_taps = weight(b, w)->n_cols;
    CHECK("conv_silu", is_f32(y) && is_f32(x) && y.width == x.width && in_place(b, y) && in_place(b, x));
    CHECK("conv_silu", !b->has_head && is_plain(b, w) && is_matrix(b, w, x.width, n_taps));
    CHECK("conv_silu", n_taps >= 2 && n_taps <= BT_OP_TAPS_MAX && is_fixed(b, tail, n_taps - 1, x.width));
    CHECK("conv_silu", !bt_acts_overlap(b, y, x));
    bt_tape_reads(b, x);
    bt_tape_writes_state(b, tail);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_CONV_SILU, .u.conv_silu = {.y = y, .x = x, .weight = w, .tail = tail}});
}

void bt_op_kda_gates(bt_tape_builder *b, bt_act q, bt_act k, bt_act decay, bt_act beta, uint32_t bias, uint32_t rate,
                     size_t n_heads, double lower)
{
    CHECK("kda_gates", is_f32(q) && is_f32(k) && is_f32(decay) && is_f32(beta) && !b->has_head);
    CHECK("kda_gates", in_place(b, q) && in_place(b, k) && in_place(b, decay) && in_place(b, beta));
    CHECK("kda_gates", n_heads > 0 && q.width % n_heads == 0 && k.width == q.width && decay.width == q.width);
    CHECK("kda_gates", beta.width == n_heads && is_vector(b, bias, q.width) && lower <= 0);
    CHECK("kda_gates", is_plain(b, rate) && weight(b, rate)->n_rows == 1 && weight(b, rate)->n_cols >= n_heads);
    CHECK("kda_gates", !bt_acts_overlap(b, q, k) && !bt_acts_overlap(b, q, decay) && !bt_acts_overlap(b, q, beta));
    CHECK("kda_gates", !bt_acts_overlap(b, k, decay) && !bt_acts_overlap(b, k, beta));
    CHECK("kda_gates", !bt_acts_overlap(b, decay, beta));
    bt_tape_writes(b, q);
    bt_tape_writes(b, k);
    bt_tape_writes(b, decay);
    bt_tape_writes(b, beta);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_KDA_GATES,
                               .u.kda_gates = {.q = q,
                                               .k = k,
                                               .decay = decay,
                                               .beta = beta,
                                               .bias = bias,
                                               .rate = rate,
                                               .n_heads = (uint32_t)n_heads,
                                               .lower = (float)lower}});
}

void bt_op_kda_step(bt_tape_builder *b, bt_act y, bt_act q, bt_act k, bt_act v, bt_act decay, bt_act beta,
                    uint32_t state, size_t n_heads)
{
    CHECK("kda_step", is_f32(y) && is_f32(q) && is_f32(k) && is_f32(v) && is_f32(decay) && is_f32(beta));
    CHECK("kda_step", in_place(b, y) && in_place(b, q) && in_place(b, k) && in_place(b, v) && !b->has_head);
    CHECK("kda_step", in_place(b, decay) && in_place(b, beta) && beta.width == n_heads);
    CHECK("kda_step", n_heads > 0 && q.width % n_heads == 0 && k.width == q.width && decay.width == q.width);
    CHECK("kda_step", v.width % n_heads == 0 && y.width == v.width);
    CHECK("kda_step", is_fixed(b, state, n_heads, (v.width / n_heads) * (size_t)(q.width / n_heads)));
    /* One stride serves q, k and decay. */
    CHECK("kda_step", q.stride == k.stride && q.stride == decay.stride);
    CHECK("kda_step", !bt_acts_overlap(b, y, q) && !bt_acts_overlap(b, y, k) && !bt_acts_overlap(b, y, v));
    CHECK("kda_step", !bt_acts_overlap(b, y, decay) && !bt_acts_overlap(b, y, beta));
    bt_tape_reads(b, q);
    bt_tape_reads(b, k);
    bt_tape_reads(b, v);
    bt_tape_reads(b, decay);
    bt_tape_reads(b, beta);
    bt_tape_writes_state(b, state);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_KDA_STEP,
                               .u.kda_step = {.y = y,
                                              .q = q,
                                              .k = k,
                                              .v = v,
                                              .decay = decay,
                                              .beta = beta,
                                              .state = state,
                                              .n_heads = (uint32_t)n_heads}});
}

/* ---- latent attention ---------------------------------------------------------------------------------------------
 */

void bt_op_mla_absorb(bt_tape_builder *b, bt_act y, bt_act q, uint32_t w, size_t n_heads, size_t nope, size_t rest,
                      size_t v_dim)
{
    size_t latent = weight(b, w)->n_cols;
    CHECK("mla_absorb", is_f32(y) && is_f32(q) && in_place(b, y) && in_place(b, q) && !b->has_head);
    CHECK("mla_absorb", n_heads > 0 && nope > 0 && v_dim > 0 && q.width == n_heads * (nope + rest));
    CHECK("mla_absorb", y.width == n_heads * (latent + rest));
    CHECK("mla_absorb", is_matrix(b, w, n_heads * (nope + v_dim), latent));
    CHECK("mla_absorb", is_plain(b, w) && weight(b, w)->dtype <= BT_BF16); /* it is transposed */
    CHECK("mla_absorb", !bt_acts_overlap(b, y, q));
    bt_tape_reads(b, q);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_MLA_ABSORB,
                               .u.mla = {.y = y,
                                         .x = q,
                                         .weight = w,
                                         .n_heads = (uint32_t)n_heads,
                                         .nope = (uint32_t)nope,
                                         .rest = (uint32_t)rest,
                                         .v_dim = (uint32_t)v_dim}});
}

void bt_op_mla_values(bt_tape_builder *b, bt_act y, bt_act x, uint32_t w, size_t n_heads, size_t nope, size_t v_dim)
{
    size_t latent = weight(b, w)->n_cols;
    CHECK("mla_values", is_f32(y) && is_f32(x) && in_place(b, y) && in_place(b, x) && !b->has_head);
    CHECK("mla_values", n_heads > 0 && v_dim > 0 && y.width == n_heads * v_dim && x.width == n_heads * latent);
    CHECK("mla_values", is_matrix(b, w, n_heads * (nope + v_dim), latent));
    CHECK("mla_values", !bt_acts_overlap(b, y, x));
    bt_tape_reads(b, x);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_MLA_VALUES,
                               .u.mla = {.y = y,
                                         .x = x,
                                         .weight = w,
                                         .n_heads = (uint32_t)n_heads,
                                         .nope = (uint32_t)nope,
                                         .v_dim = (uint32_t)v_dim}});
}

/* ---- attention over depth -----------------------------------------------------------------------------------------
 */

void bt_op_res_mix(bt_tape_builder *b, bt_act y, bt_act sources, size_t n_sources, uint32_t norm, uint32_t proj,
                   double eps)
{
    uint64_t stride = ((uint64_t)y.width + 15) / 16 * 16;
    CHECK("res_mix", is_f32(y) && is_f32(sources) && in_place(b, y) && in_place(b, sources));
    CHECK("res_mix",
          n_sources > 0 && n_sources <= BT_OP_SOURCES_MAX && sources.width >= (n_sources - 1) * stride + y.width);
    CHECK("res_mix", is_vector(b, norm, y.width) && is_vector(b, proj, y.width));
    sources.width = (uint32_t)((n_sources - 1) * stride) + y.width; /* entries beyond are not read */
    CHECK("res_mix", !bt_acts_overlap(b, y, sources));
    bt_tape_reads(b, sources);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_RES_MIX,
                               .u.res_mix = {.y = y,
                                             .sources = sources,
                                             .norm = norm,
                                             .proj = proj,
                                             .n_sources = (uint32_t)n_sources,
                                             .stride = (uint32_t)stride,
                                             .eps = (float)eps}});
}
