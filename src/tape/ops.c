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
    return w;
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
    return is_matrix(b, i, 1, n) && weight(b, i)->scale == NULL;
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
    CHECK("embed", weight(b, w)->n_cols == y.width);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_EMBED, .u.embed = {.y = y, .weight = w}});
}

void bt_op_rms_norm(bt_tape_builder *b, bt_act y, bt_act x, uint32_t w, size_t n_groups, double eps)
{
    CHECK("rms_norm", is_f32(y) && is_f32(x) && y.width == x.width && in_place(b, y) && in_place(b, x));
    CHECK("rms_norm", is_vector(b, w, x.width));
    CHECK("rms_norm", n_groups > 0 && x.width % n_groups == 0);
    CHECK("rms_norm", y.offset == x.offset || !bt_acts_overlap(b, y, x));
    bt_tape_reads(b, x);
    bt_tape_writes(b, y);
    bt_tape_append(
        b, &(bt_op){.kind = BT_OP_RMS_NORM,
                    .u.rms_norm = {.y = y, .x = x, .weight = w, .n_groups = (uint32_t)n_groups, .eps = (float)eps}});
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

void bt_op_attention(bt_tape_builder *b, bt_act y, bt_act q, uint32_t k, uint32_t v, size_t n_heads, size_t head_dim,
                     double scale)
{
    CHECK("attention", is_f32(y) && is_f32(q) && y.width == q.width && in_place(b, y) && in_place(b, q));
    CHECK("attention", !b->has_head);
    CHECK("attention", n_heads > 0 && head_dim > 0 && q.width % n_heads == 0 && q.width / n_heads == head_dim);
    CHECK("attention", b->failed || k < b->tape.n_states);
    size_t n_strips = b->failed ? n_heads : b->states[k].n_strips;
    CHECK("attention", n_heads % n_strips == 0 && (b->failed || k != v));
    CHECK("attention", is_positions(b, k, head_dim, n_strips) && is_positions(b, v, head_dim, n_strips));
    CHECK("attention", !bt_acts_overlap(b, y, q));
    bt_tape_reads(b, q);
    bt_tape_reads_state(b, k);
    bt_tape_reads_state(b, v);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_ATTENTION,
                               .u.attention = {.y = y,
                                               .q = q,
                                               .k = k,
                                               .v = v,
                                               .n_heads = (uint32_t)n_heads,
                                               .head_dim = (uint32_t)head_dim,
                                               .v_dim = (uint32_t)head_dim,
                                               .scale = (float)scale}});
}

void bt_op_gate_mul(bt_tape_builder *b, bt_act y, bt_act g, uint32_t act)
{
    CHECK("gate_mul", is_f32(y) && is_f32(g) && y.width == g.width && in_place(b, y) && in_place(b, g));
    CHECK("gate_mul", act <= 2 && !bt_acts_overlap(b, y, g));
    bt_tape_reads(b, g);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_GATE_MUL, .u.gate_mul = {.y = y, .g = g, .act = act}});
}

void bt_op_act_mul(bt_tape_builder *b, bt_act y, bt_act g, bt_act u, uint32_t act)
{
    CHECK("act_mul", is_f32(y) && is_f32(g) && is_f32(u) && y.width == g.width && y.width == u.width);
    CHECK("act_mul", in_place(b, y) && in_place(b, g) && in_place(b, u) && act <= 2);
    CHECK("act_mul", y.offset == g.offset || !bt_acts_overlap(b, y, g));
    CHECK("act_mul", y.offset == u.offset || !bt_acts_overlap(b, y, u));
    bt_tape_reads(b, g);
    bt_tape_reads(b, u);
    bt_tape_writes(b, y);
    bt_tape_append(b, &(bt_op){.kind = BT_OP_ACT_MUL, .u.act_mul = {.y = y, .g = g, .u = u, .act = act}});
}

void bt_op_route(bt_tape_builder *b, bt_routes routes, bt_act logits, const bt_route_spec *spec)
{
    CHECK("route", are_routes(routes) && is_f32(logits) && logits.space == BT_SPACE_ROWS && !b->has_head);
    CHECK("route", routes.ids.width <= logits.width);
    CHECK("route", spec->bias == BT_NONE || is_vector(b, spec->bias, logits.width));
    CHECK("route", spec->score <= 1 && spec->force >= -1 && spec->force < (int64_t)logits.width);
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
                                           .force = spec->force}});
}

/* Backends address the slots of h by 32-bit word offsets. */
static void check_slots(bt_tape_builder *b, bt_act h)
{
    if ((uint64_t)h.stride * b->tape.limits.max_rows > UINT32_MAX) b->failed = true;
}

void bt_op_moe_up_gate(bt_tape_builder *b, bt_act h, bt_act x, bt_routes routes, uint32_t gate, uint32_t up,
                       uint32_t stride, size_t n_experts, uint32_t act)
{
    size_t k = routes.ids.width;
    CHECK("moe_up_gate", are_routes(routes) && is_f32(h) && is_f32(x) && in_place(b, h) && in_place(b, x));
    CHECK("moe_up_gate", !b->has_head && h.width % k == 0 && act <= 2 && k <= n_experts);
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
                                                 .act = act}});
}

void bt_op_moe_down_sum(bt_tape_builder *b, bt_act y, bt_act h, bt_routes routes, uint32_t down, uint32_t stride,
                        size_t n_experts, const bt_act *shared)
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
                                                  .add = true}});
}

void bt_op_moe_values(bt_tape_builder *b, bt_act y, bt_act x, bt_routes routes, uint32_t first, uint32_t stride,
                      size_t n_experts, uint32_t act)
{
    CHECK("moe_values", are_routes(routes) && is_f32(y) && is_f32(x) && in_place(b, y) && in_place(b, x));
    CHECK("moe_values", !b->has_head && act <= 2 && routes.ids.width <= n_experts);
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
