/*
 * K2-Horizon (IFM) and, as its plainest member, Llama: one decoder that reads like the paper.
 * What it computes, in formulas: docs/k2_horizon.md; the float64 program: tools/oracle/k2_horizon.py.
 *
 * Traps, each with the fixture that guards it:
 *   - heads x head_dim differs from hidden_size; head_dim is never derived (k2-dense)
 *   - the layer norms and the final norm have groups, each with its own mean square (k2-dense, k2-f32)
 *   - rotation pairs (j, j + head_dim / 2) even when only a part turns (k2-moe)
 *   - the softplus gate has base 2 and acts before o_proj, on the normed input (k2-mova)
 *   - the router bias steers the choice only; weights are the unbiased scores (k2-moe, k2-mova)
 *   - value experts renormalise whenever k > 1, whatever norm_topk_prob says (own-mova-softmax, own-mova-top1); SiLU
 * per
 *     expert, before the weight; the router's scale applies to values too (k2-mova)
 *   - self_attn.gate_proj, mlp.gate_proj and mlp.gate are three things (k2-mova)
 *
 * Order of this file: shape -> config -> tensors -> the layer, written on the tape -> the two family rows.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "model/reader.h"
#include "model/rope.h"

/* ---- shape ---------------------------------------------------------------------------------------------------------
 */

typedef enum k2_gate { K2_GATE_NONE, K2_GATE_SILU, K2_GATE_SOFTPLUS } k2_gate;

/* Weight-table indices of one layer. */
typedef struct k2_layer {
    uint32_t input_norm, post_norm;        /* [hidden] */
    uint32_t q, k, v, o;                   /* v: BT_NONE where values are routed */
    uint32_t gate;                         /* BT_NONE: no output gate */
    uint32_t q_norm, k_norm;               /* BT_NONE: no QK norm; a weight for every head */
    uint32_t v_router, v_bias, v_experts;  /* MoVA; v_experts + e */
    uint32_t ffn_gate, ffn_up, ffn_down;   /* dense */
    uint32_t router, router_bias, experts; /* sparse; gate experts + 3e, up + 3e + 1, down + 3e + 2 */
    uint32_t shared_gate, shared_up, shared_down;
    bool is_sparse;
} k2_layer;

typedef struct k2_shape {
    const char *file; /* of the config, for messages; borrowed */
    size_t n_vocab, hidden, ffn, n_layers, n_heads, n_kv, head_dim, rope_dim, n_groups, max_position;
    size_t n_experts, n_active, expert_ffn, n_shared;
    size_t n_values, n_values_active;
    size_t sparse_step, n_leading; /* n_leading: num_dense_layers, where it counts */
    double eps, router_scale;
    bt_rope rope;
    k2_gate gate;
    bool qk_norm, router_bias, renormalise, sigmoid_router, tied;
    bool is_llama, lists_dense; /* lists_dense: mlp_only_layers is there */
    bool *is_dense;             /* [n_layers]: mlp_only_layers */
    k2_layer *layers;
    uint32_t embed, final_norm, head;
    bt_defaults defaults;
    /* Faults planted on purpose, test build only; all zero otherwise. */
    struct {
        bool no_selection_bias, no_rope, no_qk_norm, no_gate, no_shared;
        int32_t skip_layer, force_expert; /* -1: none */
    } ablate;
} k2_shape;

static bool k2_is_sparse(const k2_shape *s, size_t i)
{
    return s->n_experts > 0 && !s->is_dense[i] && (i + 1) % s->sparse_step == 0;
}

/* ---- config: every key, and what may be absent (docs/k2_horizon.md, a) ------------------------------------------- */

/* mlp_only_layers decides; numbers past the last layer name nothing. Where it is absent, num_dense_layers (xLLM's alias
 * for the length of a leading run) stands in. */
static void read_dense_layers(bt_reader *r, k2_shape *s)
{
    if (r->st != BT_OK) return;
    s->is_dense = bt_calloc(s->n_layers, sizeof *s->is_dense);
    int32_t *list = bt_calloc(BT_LAYERS_MAX, sizeof *list);
    size_t n = 0;
    if (s->is_dense == NULL || list == NULL) {
        r->st = bt_fail(r->e, BT_ERR_MEMORY, "no memory for %zu layers", s->n_layers);
    }
    if (r->st == BT_OK) r->st = bt_get_ids(r->scope, "mlp_only_layers", list, BT_LAYERS_MAX, &n, r->e);
    for (size_t i = 0; r->st == BT_OK && i < n; i++) {
        if ((size_t)list[i] < s->n_layers) s->is_dense[list[i]] = true;
    }
    bt_free(list);
    const bt_json_node *given = bt_json_get(r->scope.object, "mlp_only_layers");
    s->lists_dense = given != NULL && given->kind != BT_JSON_NULL;
    if (r->st != BT_OK || s->lists_dense) return;
    s->n_leading = bt_read_count(r, "num_dense_layers", 0, 0, BT_LAYERS_MAX);
    for (size_t i = 0; i < s->n_leading && i < s->n_layers; i++) s->is_dense[i] = true;
}

static void read_experts(bt_reader *r, k2_shape *s)
{
    s->n_experts = bt_read_count(r, "num_experts", 0, 0, BT_EXPERTS_MAX);
    s->n_values = bt_read_count(r, "mova_num_experts", 0, 0, BT_EXPERTS_MAX);
    read_dense_layers(r, s);
    bt_read_refuse(r, s->n_values > 0 && s->n_experts == 0, "mova_num_experts", "needs num_experts above 0");
    if (r->st != BT_OK || s->n_experts == 0) return;
    s->n_active = bt_read_count(r, "num_experts_per_tok", 8, 1, s->n_experts);
    s->expert_ffn = bt_read_count(r, "moe_intermediate_size", 768, 1, BT_WIDTH_MAX);
    s->n_shared = bt_read_count(r, "num_shared_experts", 0, 0, 64);
    bt_read_refuse(r, s->n_active > BT_WIDTH_MAX / s->expert_ffn, "num_experts_per_tok",
                   "times moe_intermediate_size is out of range");
    bt_read_refuse(r, s->n_shared > BT_WIDTH_MAX / s->expert_ffn, "num_shared_experts",
                   "times moe_intermediate_size is out of range");
    s->sparse_step = bt_read_count(r, "decoder_sparse_step", 1, 1, BT_LAYERS_MAX);
    s->renormalise = bt_read_flag(r, "norm_topk_prob", false);
    s->router_bias = bt_read_flag(r, "moe_gate_bias", false);
    s->router_scale = bt_read_number(r, "router_scaling_factor", 1.0);
    const char *score = bt_read_string(r, "router_score_func", "softmax");
    s->sigmoid_router = strcmp(score, "sigmoid") == 0;
    bt_read_refuse(r, !s->sigmoid_router && strcmp(score, "softmax") != 0, "router_score_func",
                   "is neither softmax nor sigmoid");
    if (s->n_values > 0) s->n_values_active = bt_read_count(r, "mova_num_experts_per_tok", 0, 1, s->n_values);
    bt_read_refuse(r, s->n_values > 0 && s->n_values_active == 0, "mova_num_experts_per_tok", "is missing");
}

static void read_gate(bt_reader *r, k2_shape *s)
{
    const char *gate = bt_read_string(r, "attention_gate_func", NULL);
    if (gate == NULL) return;
    if (strcmp(gate, "silu") == 0)
        s->gate = K2_GATE_SILU;
    else if (strcmp(gate, "softplus") == 0)
        s->gate = K2_GATE_SOFTPLUS;
    else
        bt_read_refuse(r, true, "attention_gate_func", "is neither null, silu nor softplus");
}

/* Keys of K2-Horizon and of mixtures that plain Llama code would silently ignore. */
static void check_plain(bt_reader *r, k2_shape *s)
{
    bool qk_norm = false, found = false;
    if (r->st == BT_OK) r->st = bt_get_bool(r->scope, "query_key_norm", &qk_norm, &found, r->e);
    bt_read_refuse(r, qk_norm, "query_key_norm", "true is not supported for Llama");
    bt_read_refuse(r, bt_read_string(r, "attention_gate_func", NULL) != NULL, "attention_gate_func",
                   "is not supported for Llama");
    bt_read_must_be(r, "layernorm_num_groups", 1, "above 1 is not supported for Llama");
    bt_read_must_be(r, "num_experts", 0, "is not supported for Llama");
    bt_read_must_be(r, "num_local_experts", 0, "is not supported for Llama");
    bt_read_must_be(r, "mova_num_experts", 0, "is not supported for Llama");
    bt_read_must_be(r, "rope_head_dim", (double)s->head_dim, "below head_dim is not supported for Llama");
}

static void check_common(bt_reader *r, k2_shape *s)
{
    bt_read_must_be(r, "partial_rotary_factor", 1, "is not supported (rope_head_dim is)");
    bt_read_refuse(r, strcmp(bt_read_string(r, "hidden_act", "silu"), "silu") != 0, "hidden_act",
                   "is not silu, the only one supported");
    bool found = false, attention_bias = false, mlp_bias = false, window = false;
    if (r->st == BT_OK) r->st = bt_get_bool(r->scope, "attention_bias", &attention_bias, &found, r->e);
    if (r->st == BT_OK) r->st = bt_get_bool(r->scope, "mlp_bias", &mlp_bias, &found, r->e);
    if (r->st == BT_OK) r->st = bt_get_bool(r->scope, "use_sliding_window", &window, &found, r->e);
    bt_read_refuse(r, attention_bias, "attention_bias", "true is not supported: this family has no biases there");
    bt_read_refuse(r, mlp_bias, "mlp_bias", "true is not supported: this family has no biases there");
    bt_read_refuse(r, window, "use_sliding_window", "true is not supported");
    if (r->st != BT_OK) return;
    bt_read_refuse(r, s->n_heads % s->n_kv != 0, "num_key_value_heads", "does not divide num_attention_heads");
    bt_read_refuse(r, s->head_dim % 2 != 0, "head_dim", "is odd");
    bt_read_refuse(r, s->n_heads > BT_WIDTH_MAX / s->head_dim, "head_dim", "times num_attention_heads is out of range");
}

static bt_status k2_read_config(const bt_config *c, void *shape, bt_error *e)
{
    k2_shape *s = shape;
    *s = (k2_shape){.file = bt_config_file(c),
                    .sparse_step = 1,
                    .router_scale = 1,
                    .ablate = {.skip_layer = -1, .force_expert = -1}};
    bt_reader *r = &(bt_reader){.scope = {c, bt_config_root(c), NULL}, .defaults = &s->defaults, .e = e};
    s->n_vocab = bt_read_need(r, "vocab_size", BT_VOCAB_MAX);
    s->hidden = bt_read_need(r, "hidden_size", BT_WIDTH_MAX);
    s->ffn = bt_read_need(r, "intermediate_size", BT_WIDTH_MAX);
    s->n_layers = bt_read_need(r, "num_hidden_layers", BT_LAYERS_MAX);
    s->n_heads = bt_read_need(r, "num_attention_heads", BT_HEADS_MAX);
    s->n_kv = bt_read_need(r, "num_key_value_heads", BT_HEADS_MAX);
    s->head_dim = bt_read_need(r, "head_dim", BT_HEAD_DIM_MAX);
    s->max_position = bt_read_need(r, "max_position_embeddings", 1u << 30);
    s->rope_dim = bt_read_count(r, "rope_head_dim", s->head_dim, 1, BT_HEAD_DIM_MAX);
    s->n_groups = bt_read_count(r, "layernorm_num_groups", 1, 1, BT_WIDTH_MAX);
    s->eps = bt_read_number(r, "rms_norm_eps", 1e-6);
    s->qk_norm = bt_read_flag(r, "query_key_norm", false);
    s->tied = bt_read_flag(r, "tie_word_embeddings", false);
    read_gate(r, s);
    read_experts(r, s);
    check_common(r, s);
    if (r->st != BT_OK) return r->st;
    bt_read_refuse(r, s->hidden % s->n_groups != 0, "layernorm_num_groups", "does not divide hidden_size");
    bt_read_refuse(r, s->rope_dim % 2 != 0, "rope_head_dim", "is odd");
    bt_read_refuse(r, s->rope_dim > s->head_dim, "rope_head_dim", "is larger than head_dim");
    if (r->st == BT_OK) r->st = bt_rope_read(c, 0, &s->rope, e);
    if (r->st == BT_OK && !s->rope.is_given) { /* the vendor's default: the 0.9B's block (docs/k2_horizon.md, a) */
        s->rope = (bt_rope){.type = BT_ROPE_YARN,
                            .theta = 1e6,
                            .factor = 16,
                            .beta_fast = 128,
                            .beta_slow = 4,
                            .original_positions = 8192,
                            .attention_factor = 1.2772588722239782,
                            .truncate = true};
        bt_read_note_default(r, "rope_parameters", false);
    }
    bt_read_refuse(r, s->rope.type == BT_ROPE_YARN && s->rope_dim != s->head_dim, "rope_head_dim",
                   "below head_dim is undefined together with rope_type yarn");
    return r->st;
}

/* Llama: the same decoder with one norm group, default rope, and nothing routed. */
static bt_status llama_read_config(const bt_config *c, void *shape, bt_error *e)
{
    k2_shape *s = shape;
    *s = (k2_shape){.file = bt_config_file(c),
                    .sparse_step = 1,
                    .router_scale = 1,
                    .ablate = {.skip_layer = -1, .force_expert = -1}};
    bt_reader *r = &(bt_reader){.scope = {c, bt_config_root(c), NULL}, .defaults = &s->defaults, .e = e};
    s->is_llama = true;
    s->n_groups = 1;
    s->n_vocab = bt_read_need(r, "vocab_size", BT_VOCAB_MAX);
    s->hidden = bt_read_need(r, "hidden_size", BT_WIDTH_MAX);
    s->ffn = bt_read_need(r, "intermediate_size", BT_WIDTH_MAX);
    s->n_layers = bt_read_need(r, "num_hidden_layers", BT_LAYERS_MAX);
    s->n_heads = bt_read_need(r, "num_attention_heads", BT_HEADS_MAX);
    s->n_kv = bt_read_count(r, "num_key_value_heads", s->n_heads, 1, BT_HEADS_MAX);
    s->max_position = bt_read_need(r, "max_position_embeddings", 1u << 30);
    s->head_dim = bt_read_count(r, "head_dim", 0, 1, BT_HEAD_DIM_MAX);
    if (r->st == BT_OK && s->head_dim == 0) {
        bt_read_refuse(r, s->hidden % s->n_heads != 0, "num_attention_heads",
                       "does not divide hidden_size and head_dim is absent");
        s->head_dim = s->hidden / s->n_heads;
        bt_read_refuse(r, s->head_dim > BT_HEAD_DIM_MAX, "num_attention_heads",
                       "gives heads of more than 1024 elements");
    }
    s->rope_dim = s->head_dim;
    s->eps = bt_read_number(r, "rms_norm_eps", 1e-6);
    s->tied = bt_read_flag(r, "tie_word_embeddings", false);
    if (r->st == BT_OK) s->is_dense = bt_calloc(s->n_layers, sizeof *s->is_dense);
    if (r->st == BT_OK && s->is_dense == NULL)
        r->st = bt_fail(e, BT_ERR_MEMORY, "no memory for %zu layers", s->n_layers);
    check_common(r, s);
    check_plain(r, s);
    if (r->st == BT_OK) r->st = bt_rope_read(c, 10000, &s->rope, e);
    if (r->st == BT_OK && !s->rope.is_given) {
        s->rope = (bt_rope){.type = BT_ROPE_DEFAULT, .theta = 10000, .attention_factor = 1};
        s->rope.is_default.type = s->rope.is_default.theta = true;
    }
    bt_read_note_default(r, "rope_theta", !s->rope.is_default.theta);
    bt_read_refuse(r, s->rope.type != BT_ROPE_DEFAULT, "rope_type", "yarn is not supported for Llama");
    return r->st;
}

static void k2_release(void *shape)
{
    k2_shape *s = shape;
    bt_free(s->is_dense);
}

/* ---- tensors: the one list (docs/k2_horizon.md, b) --------------------------------------------------------------- */

static void list_attention(const k2_shape *s, bt_tensor_list *l, k2_layer *w, int i)
{
    size_t q = s->n_heads * s->head_dim, kv = s->n_kv * s->head_dim, h = s->hidden;
    w->q = bt_list_matrix(l, BT_CLASS_ATTENTION, i, q, h, "model.layers.%d.self_attn.q_proj.weight", i);
    w->k = bt_list_matrix(l, BT_CLASS_ATTENTION, i, kv, h, "model.layers.%d.self_attn.k_proj.weight", i);
    if (s->qk_norm) {
        w->q_norm = bt_list_vector(l, BT_CLASS_NORM, i, q, "model.layers.%d.self_attn.q_norm.weight", i);
        w->k_norm = bt_list_vector(l, BT_CLASS_NORM, i, kv, "model.layers.%d.self_attn.k_norm.weight", i);
    }
    if (s->gate != K2_GATE_NONE) {
        w->gate = bt_list_matrix(l, BT_CLASS_ATTENTION, i, q, h, "model.layers.%d.self_attn.gate_proj.weight", i);
    }
    w->o = bt_list_matrix(l, BT_CLASS_ATTENTION, i, h, q, "model.layers.%d.self_attn.o_proj.weight", i);
    if (!w->is_sparse || s->n_values == 0) {
        w->v = bt_list_matrix(l, BT_CLASS_ATTENTION, i, kv, h, "model.layers.%d.self_attn.v_proj.weight", i);
        return;
    }
    w->v_router = bt_list_matrix(l, BT_CLASS_ROUTER, i, s->n_values, h, "model.layers.%d.self_attn.v_router.weight", i);
    if (s->router_bias) {
        w->v_bias = bt_list_vector(l, BT_CLASS_ROUTER, i, s->n_values, "model.layers.%d.self_attn.v_router.bias", i);
    }
    for (size_t e = 0; e < s->n_values; e++) {
        uint32_t at =
            bt_list_matrix(l, BT_CLASS_VALUES, i, kv, h, "model.layers.%d.self_attn.v_experts.%zu.weight", i, e);
        if (e == 0) w->v_experts = at;
    }
}

static void list_experts(const k2_shape *s, bt_tensor_list *l, k2_layer *w, int i)
{
    size_t h = s->hidden, f = s->expert_ffn;
    w->router = bt_list_matrix(l, BT_CLASS_ROUTER, i, s->n_experts, h, "model.layers.%d.mlp.gate.weight", i);
    if (s->router_bias)
        w->router_bias = bt_list_vector(l, BT_CLASS_ROUTER, i, s->n_experts, "model.layers.%d.mlp.gate.bias", i);
    for (size_t e = 0; e < s->n_experts; e++) {
        uint32_t at =
            bt_list_matrix(l, BT_CLASS_EXPERTS, i, f, h, "model.layers.%d.mlp.experts.%zu.gate_proj.weight", i, e);
        bt_list_matrix(l, BT_CLASS_EXPERTS, i, f, h, "model.layers.%d.mlp.experts.%zu.up_proj.weight", i, e);
        bt_list_matrix(l, BT_CLASS_EXPERTS, i, h, f, "model.layers.%d.mlp.experts.%zu.down_proj.weight", i, e);
        if (e == 0) w->experts = at;
    }
    if (s->n_shared == 0) return;
    f *= s->n_shared;
    w->shared_gate =
        bt_list_matrix(l, BT_CLASS_SHARED, i, f, h, "model.layers.%d.mlp.shared_experts.gate_proj.weight", i);
    w->shared_up = bt_list_matrix(l, BT_CLASS_SHARED, i, f, h, "model.layers.%d.mlp.shared_experts.up_proj.weight", i);
    w->shared_down =
        bt_list_matrix(l, BT_CLASS_SHARED, i, h, f, "model.layers.%d.mlp.shared_experts.down_proj.weight", i);
}

static void list_layer(const k2_shape *s, bt_tensor_list *l, k2_layer *w, int i)
{
    size_t h = s->hidden, f = s->ffn;
    memset(w, 0xff, sizeof *w); /* every index BT_NONE */
    w->is_sparse = k2_is_sparse(s, (size_t)i);
    w->input_norm = bt_list_vector(l, BT_CLASS_NORM, i, h, "model.layers.%d.input_layernorm.weight", i);
    w->post_norm = bt_list_vector(l, BT_CLASS_NORM, i, h, "model.layers.%d.post_attention_layernorm.weight", i);
    list_attention(s, l, w, i);
    if (w->is_sparse) {
        list_experts(s, l, w, i);
        return;
    }
    w->ffn_gate = bt_list_matrix(l, BT_CLASS_DENSE, i, f, h, "model.layers.%d.mlp.gate_proj.weight", i);
    w->ffn_up = bt_list_matrix(l, BT_CLASS_DENSE, i, f, h, "model.layers.%d.mlp.up_proj.weight", i);
    w->ffn_down = bt_list_matrix(l, BT_CLASS_DENSE, i, h, f, "model.layers.%d.mlp.down_proj.weight", i);
}

static void k2_list_tensors(void *shape, bt_tensor_list *l)
{
    k2_shape *s = shape;
    s->layers = bt_arena_alloc(l->arena, s->n_layers, sizeof *s->layers);
    if (s->layers == NULL) {
        l->failed = true;
        return;
    }
    s->embed = bt_list_matrix(l, BT_CLASS_EMBEDDING, -1, s->n_vocab, s->hidden, "model.embed_tokens.weight");
    for (size_t i = 0; i < s->n_layers && !l->failed; i++) list_layer(s, l, &s->layers[i], (int)i);
    s->final_norm = bt_list_vector(l, BT_CLASS_NORM, -1, s->hidden, "model.norm.weight");
    s->head = s->tied ? s->embed : bt_list_matrix(l, BT_CLASS_HEAD, -1, s->n_vocab, s->hidden, "lm_head.weight");
}

static bool k2_skip_tensor(const char *name)
{
    static const char suffix[] = ".rotary_emb.inv_freq"; /* a buffer that old exports kept; derived from the config */
    size_t n = strlen(name), m = sizeof suffix - 1;
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* ---- the layer, written on the tape ------------------------------------------------------------------------------ */

typedef struct k2_tape {
    const k2_shape *s;
    bt_tape_builder *b;
    bt_act x;                   /* the residual stream [hidden] */
    bt_act a;                   /* its normed copy [hidden] */
    bt_act q, k, v, o, gate;    /* [heads * head_dim] or [kv * head_dim] */
    bt_act angles;              /* cos and sin of this row's position */
    bt_act g, u;                /* dense FFN [ffn] */
    bt_act sg, su, shared;      /* shared experts [n_shared * expert_ffn], [hidden] */
    bt_act scores, v_scores, h; /* router logits; experts' hidden [n_active * expert_ffn] */
    bt_routes routes, v_routes;
} k2_tape;

static void declare(k2_tape *t)
{
    const k2_shape *s = t->s;
    size_t q = s->n_heads * s->head_dim, kv = s->n_kv * s->head_dim;
    t->x = bt_tape_act(t->b, BT_SPACE_ROWS, s->hidden);
    t->a = bt_tape_act(t->b, BT_SPACE_ROWS, s->hidden);
    t->q = bt_tape_act(t->b, BT_SPACE_ROWS, q);
    t->k = bt_tape_act(t->b, BT_SPACE_ROWS, kv);
    t->v = bt_tape_act(t->b, BT_SPACE_ROWS, kv);
    t->o = bt_tape_act(t->b, BT_SPACE_ROWS, q);
    if (s->gate != K2_GATE_NONE) t->gate = bt_tape_act(t->b, BT_SPACE_ROWS, q);
    t->angles = bt_tape_act(t->b, BT_SPACE_ROWS, s->rope_dim);
    t->g = bt_tape_act(t->b, BT_SPACE_ROWS, s->ffn);
    t->u = bt_tape_act(t->b, BT_SPACE_ROWS, s->ffn);
    if (s->n_experts == 0) return;
    t->scores = bt_tape_act(t->b, BT_SPACE_ROWS, s->n_experts);
    t->routes = bt_tape_routes(t->b, s->n_active);
    t->h = bt_tape_act(t->b, BT_SPACE_ROWS, s->n_active * s->expert_ffn);
    if (s->n_shared > 0) {
        t->sg = bt_tape_act(t->b, BT_SPACE_ROWS, s->n_shared * s->expert_ffn);
        t->su = bt_tape_act(t->b, BT_SPACE_ROWS, s->n_shared * s->expert_ffn);
        t->shared = bt_tape_act(t->b, BT_SPACE_ROWS, s->hidden);
    }
    if (s->n_values == 0) return;
    t->v_scores = bt_tape_act(t->b, BT_SPACE_ROWS, s->n_values);
    t->v_routes = bt_tape_routes(t->b, s->n_values_active);
}

static bt_route_spec route_spec(const k2_shape *s, uint32_t bias, bool renormalise)
{
    return (bt_route_spec){
        .bias = s->ablate.no_selection_bias ? BT_NONE : bias,
        .score = s->sigmoid_router ? BT_ROUTER_SIGMOID : BT_ROUTER_SOFTMAX,
        .renormalise = renormalise,
        .scale = s->router_scale,
        .force = s->ablate.force_expert,
    };
}

/* v = sum_e w_e silu(V_e a). Renormalises whenever k > 1: norm_topk_prob is the FFN router's (docs/k2_horizon.md,
 * c.5). */
static void values(k2_tape *t, const k2_layer *w)
{
    const k2_shape *s = t->s;
    if (w->v != BT_NONE) {
        bt_op_linear(t->b, t->v, t->a, w->v);
        return;
    }
    bt_route_spec spec = route_spec(s, w->v_bias, s->n_values_active > 1);
    bt_op_linear(t->b, t->v_scores, t->a, w->v_router);
    bt_op_route(t->b, t->v_routes, t->v_scores, &spec);
    bt_op_moe_values(t->b, t->v, t->a, t->v_routes, w->v_experts, 1, s->n_values, BT_FN_SILU);
}

static void attention(k2_tape *t, const k2_layer *w)
{
    const k2_shape *s = t->s;
    bt_op_rms_norm(t->b, t->a, t->x, w->input_norm, s->n_groups, s->eps);
    bt_op_linear(t->b, t->q, t->a, w->q);
    bt_op_linear(t->b, t->k, t->a, w->k);
    if (w->gate != BT_NONE) bt_op_linear(t->b, t->gate, t->a, w->gate);
    values(t, w);
    if (w->q_norm != BT_NONE && !s->ablate.no_qk_norm) { /* per head, a weight for every head */
        bt_op_rms_norm(t->b, t->q, t->q, w->q_norm, s->n_heads, s->eps);
        bt_op_rms_norm(t->b, t->k, t->k, w->k_norm, s->n_kv, s->eps);
    }
    if (!s->ablate.no_rope) { /* pairs lie head_dim / 2 apart, whatever part turns */
        bt_op_rope(t->b, t->q, t->angles, s->n_heads, s->head_dim, s->rope_dim / 2);
        bt_op_rope(t->b, t->k, t->angles, s->n_kv, s->head_dim, s->rope_dim / 2);
    }
    uint32_t keys = bt_tape_positions(t->b, s->n_kv, s->head_dim);
    uint32_t vals = bt_tape_positions(t->b, s->n_kv, s->head_dim);
    bt_op_store(t->b, keys, t->k);
    bt_op_store(t->b, vals, t->v);
    bt_op_attention(t->b, t->o, t->q, keys, vals, s->n_heads, s->head_dim, 1 / sqrt((double)s->head_dim));
    if (w->gate != BT_NONE && !s->ablate.no_gate) {
        bt_op_gate_mul(t->b, t->o, t->gate, s->gate == K2_GATE_SILU ? BT_FN_SILU : BT_FN_SOFTPLUS2);
    }
    bt_op_linear_add(t->b, t->x, t->o, w->o);
}

/* y = sum_e w_e down_e(silu(gate_e a) * up_e a) + shared(a); the shared expert has no gate and no weight. */
static void experts(k2_tape *t, const k2_layer *w)
{
    const k2_shape *s = t->s;
    bool shared = s->n_shared > 0 && !s->ablate.no_shared;
    bt_route_spec spec = route_spec(s, w->router_bias, s->renormalise);
    bt_op_linear(t->b, t->scores, t->a, w->router);
    if (shared) {
        bt_op_linear(t->b, t->sg, t->a, w->shared_gate);
        bt_op_linear(t->b, t->su, t->a, w->shared_up);
    }
    bt_op_route(t->b, t->routes, t->scores, &spec);
    if (shared) bt_op_act_mul(t->b, t->sg, t->sg, t->su, BT_FN_SILU);
    bt_op_moe_up_gate(t->b, t->h, t->a, t->routes, w->experts, w->experts + 1, 3, s->n_experts, BT_FN_SILU);
    if (shared) bt_op_linear(t->b, t->shared, t->sg, w->shared_down);
    bt_op_moe_down_sum(t->b, t->x, t->h, t->routes, w->experts + 2, 3, s->n_experts, shared ? &t->shared : NULL);
}

static void feed_forward(k2_tape *t, const k2_layer *w)
{
    bt_op_rms_norm(t->b, t->a, t->x, w->post_norm, t->s->n_groups, t->s->eps);
    if (w->is_sparse) {
        experts(t, w);
        return;
    }
    bt_op_linear(t->b, t->g, t->a, w->ffn_gate);
    bt_op_linear(t->b, t->u, t->a, w->ffn_up);
    bt_op_act_mul(t->b, t->g, t->g, t->u, BT_FN_SILU);
    bt_op_linear_add(t->b, t->x, t->g, w->ffn_down);
}

static bt_act head(k2_tape *t)
{
    const k2_shape *s = t->s;
    bt_act x = bt_tape_act(t->b, BT_SPACE_LOGITS, s->hidden);
    bt_act logits = bt_tape_act(t->b, BT_SPACE_LOGITS, s->n_vocab);
    bt_tape_head(t->b);
    bt_op_select_rows(t->b, x, t->x);
    bt_op_rms_norm(t->b, x, x, s->final_norm, s->n_groups, s->eps);
    bt_op_linear(t->b, logits, x, s->head);
    return logits;
}

static bt_status k2_build_tape(const bt_model *m, const bt_limits *limits, bt_tape **out, bt_error *e)
{
    const k2_shape *s = m->shape;
    k2_tape t = {.s = s};
    size_t n_pairs = s->rope_dim / 2;
    double *frequency = bt_calloc(n_pairs, sizeof *frequency);
    if (frequency == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for the rotation's frequencies");
    bt_rope_frequencies(&s->rope, s->rope_dim, n_pairs, frequency);
    bt_status st = bt_tape_begin(limits, m->views, m->list.n, &t.b, e);
    if (st == BT_OK) {
        bt_tape_classes(t.b, m->classes);
        declare(&t);
        bt_tape_layer(t.b, -1);
        bt_op_embed(t.b, t.x, s->embed);
        bt_op_rope_angles(t.b, t.angles, bt_tape_constants(t.b, frequency, n_pairs), s->rope.attention_factor);
        for (size_t i = 0; i < s->n_layers; i++) {
            if (s->ablate.skip_layer == (int32_t)i) continue;
            bt_tape_layer(t.b, (int)i);
            attention(&t, &s->layers[i]);
            feed_forward(&t, &s->layers[i]);
        }
        bt_tape_layer(t.b, -1);
        bt_act logits = head(&t);
        st = bt_tape_finish(t.b, logits, out, e);
    }
    bt_free(frequency);
    return st;
}

/* ---- faults planted on purpose (test build): each turns a named golden test red ---------------------------------- */

#ifdef BT_TEST_BUILD
static bt_status k2_ablate(void *shape, const char *key, const char *value, bt_error *e)
{
    k2_shape *s = shape;
    int64_t v = 0;
    bool is_number = bt_json_i64(value, strlen(value), &v);
    bool zero = is_number && v == 0, one = is_number && v == 1;
    bool has_value = is_number && v >= 0;
    if (strcmp(key, "skip_layer") == 0 && has_value && (uint64_t)v < s->n_layers)
        s->ablate.skip_layer = (int32_t)v;
    else if (strcmp(key, "force_expert") == 0 && has_value && (uint64_t)v < s->n_experts &&
             (s->n_values == 0 || (uint64_t)v < s->n_values))
        s->ablate.force_expert = (int32_t)v;
    else if (strcmp(key, "selection_bias") == 0 && zero && s->router_bias)
        s->ablate.no_selection_bias = true;
    else if (strcmp(key, "norm_groups") == 0 && one && s->n_groups > 1)
        s->n_groups = 1;
    else if (strcmp(key, "rope") == 0 && strcmp(value, "off") == 0)
        s->ablate.no_rope = true;
    else if (strcmp(key, "rope_factor") == 0 && one && s->rope.attention_factor != 1)
        s->rope.attention_factor = 1;
    else if (strcmp(key, "qk_norm") == 0 && zero && s->qk_norm)
        s->ablate.no_qk_norm = true;
    else if (strcmp(key, "gate") == 0 && zero && s->gate != K2_GATE_NONE)
        s->ablate.no_gate = true;
    else if (strcmp(key, "shared") == 0 && zero && s->n_shared > 0)
        s->ablate.no_shared = true;
    else if (strcmp(key, "router_scale") == 0 && one && s->router_scale != 1)
        s->router_scale = 1;
    else if (strcmp(key, "renormalise") == 0 && zero && s->renormalise)
        s->renormalise = false;
    else
        return bt_fail(e, BT_ERR_USAGE, "--ablate %s=%s: this model has no use for it", key, value);
    return BT_OK;
}
#endif

/* ---- the rows of the family table -------------------------------------------------------------------------------- */

static void describe_yarn(const k2_shape *s, bt_fact_fn fn, void *user)
{
    const bt_rope *r = &s->rope;
    bt_exact fast = bt_exactly(r->beta_fast), slow = bt_exactly(r->beta_slow), scale = bt_exactly(r->attention_factor);
    bt_exact theta = bt_exactly(r->theta), factor = bt_exactly(r->factor), from = bt_exactly(r->original_positions);
    char json[512];
    (void)snprintf(json, sizeof json,
                   "{\"rope_type\": \"yarn\", \"rope_theta\": %s, \"factor\": %s, "
                   "\"original_max_position_embeddings\": %s, \"beta_fast\": %s, \"beta_slow\": %s, \"truncate\": %s, "
                   "\"attention_factor\": %s}",
                   theta.text, factor.text, from.text, fast.text, slow.text, r->truncate ? "true" : "false",
                   scale.text);
    bt_fact_as(fn, user, &s->defaults, "rope_parameters", json,
               "yarn, theta %s, factor %s over %s, betas %s and %s%s, attention factor %s", theta.text, factor.text,
               from.text, fast.text, slow.text, r->truncate ? "" : " not truncated", scale.text);
    if (r->is_default.type) fn(user, "rope_parameters.rope_type", "default", NULL, true);
    if (r->is_default.beta_fast) fn(user, "rope_parameters.beta_fast", fast.text, NULL, true);
    if (r->is_default.beta_slow) fn(user, "rope_parameters.beta_slow", slow.text, NULL, true);
    if (r->is_default.truncate) fn(user, "rope_parameters.truncate", "true", NULL, true);
    if (r->is_default.attention_factor) fn(user, "rope_parameters.attention_factor", scale.text, NULL, true);
}

static void describe_rope(const k2_shape *s, bt_fact_fn fn, void *user)
{
    if (s->rope.type == BT_ROPE_YARN) {
        describe_yarn(s, fn, user);
        return;
    }
    bt_fact(fn, user, &s->defaults, "rope_theta", "%s", bt_exactly(s->rope.theta).text);
    if (s->rope.is_default.type) fn(user, "rope_parameters.rope_type", "default", NULL, true);
}

/* As config.json says it: the list, or where there is none the length of the leading run. */
static void describe_dense_layers(const k2_shape *s, bt_fact_fn fn, void *user)
{
    bt_text list = {0};
    bt_text_puts(&list, "[");
    for (size_t i = 0; i < s->n_layers && s->lists_dense; i++) {
        if (s->is_dense[i]) bt_text_printf(&list, "%s%zu", list.size > 1 ? ", " : "", i);
    }
    bt_text_puts(&list, "]");
    const char *text = bt_text_ok(&list) ? list.data : NULL;
    fn(user, "mlp_only_layers", text != NULL ? text : "?", text, !s->lists_dense);
    bt_text_free(&list);
    if (!s->lists_dense) bt_fact(fn, user, &s->defaults, "num_dense_layers", "%zu", s->n_leading);
}

static void describe_experts(const k2_shape *s, bt_fact_fn fn, void *user)
{
    const bt_defaults *d = &s->defaults;
    size_t n_sparse = 0;
    for (size_t i = 0; i < s->n_layers; i++) n_sparse += k2_is_sparse(s, i);
    bt_fact(fn, user, d, "sparse layers", "%zu", n_sparse);
    describe_dense_layers(s, fn, user);
    bt_fact(fn, user, d, "decoder_sparse_step", "%zu", s->sparse_step);
    bt_fact(fn, user, d, "num_experts_per_tok", "%zu", s->n_active);
    bt_fact(fn, user, d, "moe_intermediate_size", "%zu", s->expert_ffn);
    bt_fact(fn, user, d, "num_shared_experts", "%zu", s->n_shared);
    bt_fact(fn, user, d, "router_score_func", "%s", s->sigmoid_router ? "sigmoid" : "softmax");
    bt_fact(fn, user, d, "router_scaling_factor", "%s", bt_exactly(s->router_scale).text);
    bt_fact(fn, user, d, "norm_topk_prob", "%s", s->renormalise ? "true" : "false");
    bt_fact(fn, user, d, "moe_gate_bias", "%s", s->router_bias ? "true" : "false");
    bt_fact(fn, user, d, "mova_num_experts", "%zu", s->n_values);
    if (s->n_values > 0) bt_fact(fn, user, d, "mova_num_experts_per_tok", "%zu", s->n_values_active);
}

/* What of K2-Horizon a Llama has not. */
static void describe_own(const k2_shape *s, bt_fact_fn fn, void *user)
{
    static const char *const gates[] = {"none", "silu", "softplus"};
    bt_fact(fn, user, &s->defaults, "rope_head_dim", "%zu", s->rope_dim);
    bt_fact(fn, user, &s->defaults, "layernorm_num_groups", "%zu", s->n_groups);
    bt_fact(fn, user, &s->defaults, "query_key_norm", "%s", s->qk_norm ? "true" : "false");
    bt_fact_as(fn, user, &s->defaults, "attention_gate_func", s->gate == K2_GATE_NONE ? "null" : NULL, "%s",
               gates[s->gate]);
    bt_fact(fn, user, &s->defaults, "num_experts", "%zu", s->n_experts);
    if (s->n_experts > 0) describe_experts(s, fn, user);
}

static void k2_describe(const void *shape, bt_fact_fn fn, void *user)
{
    const k2_shape *s = shape;
    bt_fact(fn, user, &s->defaults, "vocab_size", "%zu", s->n_vocab);
    bt_fact(fn, user, &s->defaults, "hidden_size", "%zu", s->hidden);
    bt_fact(fn, user, &s->defaults, "num_hidden_layers", "%zu", s->n_layers);
    bt_fact(fn, user, &s->defaults, "intermediate_size", "%zu", s->ffn);
    bt_fact(fn, user, &s->defaults, "num_attention_heads", "%zu", s->n_heads);
    bt_fact(fn, user, &s->defaults, "num_key_value_heads", "%zu", s->n_kv);
    bt_fact(fn, user, &s->defaults, "head_dim", "%zu", s->head_dim);
    bt_fact(fn, user, &s->defaults, "max_position_embeddings", "%zu", s->max_position);
    bt_fact(fn, user, &s->defaults, "rms_norm_eps", "%s", bt_exactly(s->eps).text);
    describe_rope(s, fn, user);
    bt_fact(fn, user, &s->defaults, "hidden_act", "silu");
    bt_fact(fn, user, &s->defaults, "tie_word_embeddings", "%s", s->tied ? "true" : "false");
    if (!s->is_llama) describe_own(s, fn, user);
}

static size_t k2_n_vocab(const void *shape)
{
    return ((const k2_shape *)shape)->n_vocab;
}

static size_t k2_max_position(const void *shape)
{
    return ((const k2_shape *)shape)->max_position;
}

static const char *k2_tied_head(const void *shape)
{
    return ((const k2_shape *)shape)->tied ? "lm_head.weight" : NULL;
}

const bt_family bt_family_k2_horizon = {
    .name = "k2_horizon",
    .architectures = (const char *const[]){"K2HorizonForCausalLM", NULL},
    .shape_bytes = sizeof(k2_shape),
    .read_config = k2_read_config,
    .release = k2_release,
    .list_tensors = k2_list_tensors,
    .skip_tensor = k2_skip_tensor,
    .tied_head = k2_tied_head,
    .build_tape = k2_build_tape,
#ifdef BT_TEST_BUILD
    .ablate = k2_ablate,
#endif
    .describe = k2_describe,
    .n_vocab = k2_n_vocab,
    .max_position = k2_max_position,
};

const bt_family bt_family_llama = {
    .name = "llama",
    .architectures = (const char *const[]){"LlamaForCausalLM", NULL},
    .shape_bytes = sizeof(k2_shape),
    .read_config = llama_read_config,
    .release = k2_release,
    .list_tensors = k2_list_tensors,
    .skip_tensor = k2_skip_tensor,
    .tied_head = k2_tied_head,
    .build_tape = k2_build_tape,
#ifdef BT_TEST_BUILD
    .ablate = k2_ablate,
#endif
    .describe = k2_describe,
    .n_vocab = k2_n_vocab,
    .max_position = k2_max_position,
};
