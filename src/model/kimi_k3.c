/*
 * Kimi K3 (Moonshot) and its elder Kimi Linear: one decoder that reads like the paper. Most layers are linear attention
 * (KDA: a gated delta rule), every few are latent attention without positions (MLA, absorbed); experts work in a latent
 * space; the residual stream is a softmax over the streams of earlier blocks.
 * What it computes, in formulas: docs/kimi_k3.md; the float64 program: tools/oracle/kimi_k3.py.
 *
 * Traps, each with the fault that tests/unit/test_kimi_faults.c plants for it:
 *   - layer lists count from 1; A_log is per head, though stored longer; gate_lower_bound chooses another function
 *   - the "rope" part of a key is never turned, but scored and cached; the scale counts it
 *   - a mix feeds its sublayer only; the running stream is banked raw, and restarts from the attention's output alone
 *   - the router's bias chooses, it does not weigh; it reads the full vector where experts read the latent one
 *   - the latent norm acts once on the weighted sum, before the way up; shared experts come after, unweighted
 *   - SiTU's sigmoid sees the uncapped gate; the two latent norms of MLA have an epsilon of their own
 *
 * Order of this file: shape -> config -> tensors -> the layer, written on the tape -> faults -> the two family rows.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "model/reader.h"

#define K3_LATENT_EPS 1e-6 /* the vendor's two MLA latent norms never see rms_norm_eps (docs/kimi_k3.md, c.5) */

/* ---- shape ------------------------------------------------------------------------------------------------------- */

/* Weight-table indices of one layer; BT_NONE where it has none. */
typedef struct k3_layer {
    uint32_t input_norm, post_norm;        /* [hidden] */
    uint32_t attn_res_norm, attn_res_proj; /* [hidden]: the mix before attention */
    uint32_t ffn_res_norm, ffn_res_proj;   /* [hidden]: the mix before the feed-forward part */
    uint32_t q, k, v;                      /* KDA [kda width, hidden]; MLA without a query latent: q */
    uint32_t q_taps, k_taps, v_taps;       /* [kda width, taps] */
    uint32_t f_a, f_b, dt_bias, a_log, b;  /* decay and write strength of the delta rule */
    uint32_t o_norm;                       /* [kda head_dim], shared by the heads */
    uint32_t g, g_a, g_b;                  /* output gate: of full rank, or low-rank */
    uint32_t q_a, q_a_norm, q_b;           /* MLA with a query latent */
    uint32_t kv_a, kv_a_norm, kv_b;        /* MLA */
    uint32_t o;                            /* both */
    uint32_t ffn_gate, ffn_up, ffn_down;   /* dense */
    uint32_t router, router_bias, experts; /* sparse; gate experts + 3e (w1), up + 3e + 1 (w3), down + 3e + 2 */
    uint32_t latent_down, latent_norm, latent_up;
    uint32_t shared_gate, shared_up, shared_down;
    bool is_mla, is_sparse;
} k3_layer;

typedef struct k3_shape {
    const char *file, *prefix; /* of the config, for messages; of tensor names ("language_model.") */
    size_t n_vocab, hidden, ffn, n_layers, max_position;
    size_t n_heads, nope, rest, v_dim, q_lora, kv_lora; /* MLA; q_lora 0: a plain query */
    size_t kda_heads, kda_dim, n_taps;
    size_t n_experts, n_active, expert_ffn, n_shared, n_dense, moe_every, n_groups, n_active_groups;
    size_t latent; /* width that experts work in; 0: hidden */
    size_t block;  /* layers per entry of the residual bank; 0: ordinary residuals */
    double eps, latent_eps, router_scale;
    double lower_bound; /* of KDA's gate, below 0; 0: the softplus form */
    bt_situ situ;
    const char *position_key; /* that states max_position */
    bool is_situ, renormalise, latent_norm, mla_gate, full_rank_gate, grouped, tied;
    bool *is_mla; /* [n_layers] */
    k3_layer *layers;
    uint32_t embed, final_norm, head, out_res_norm, out_res_proj;
    bt_defaults defaults;
    /* Faults planted on purpose, test build only; all neutral otherwise. */
    struct {
        bool no_mix;
        int32_t skip_layer, force_expert; /* -1: none */
        bool split_o_proj;                /* o_proj in two column halves, summed */
        int32_t drop_half;                /* of those; -1: none */
    } ablate;
} k3_shape;

static bool k3_is_sparse(const k3_shape *s, size_t i)
{
    return i >= s->n_dense && i % s->moe_every == 0;
}

static size_t kda_width(const k3_shape *s)
{
    return s->kda_heads * s->kda_dim;
}

/* ---- config: every key, and what may be absent (docs/kimi_k3.md, a) ---------------------------------------------- */

/* A count that must be there but may be null: 0. */
static size_t need_or_null(bt_reader *r, const char *key, uint64_t max)
{
    bt_read_refuse(r, bt_json_get(r->scope.object, key) == NULL, key, "is missing (null says that there is none)");
    uint64_t v = 0;
    bool found = false; /* if not, it is null */
    if (r->st == BT_OK) r->st = bt_get_u64(r->scope, key, 1, max, &v, &found, r->e);
    return (size_t)v;
}

/* Absent and null mean that the part is not there: 0. */
static size_t optional(bt_reader *r, const char *key, uint64_t max)
{
    uint64_t v = 0;
    bool found = false;
    if (r->st == BT_OK) r->st = bt_get_u64(r->scope, key, 1, max, &v, &found, r->e);
    bt_read_note_default(r, key, bt_read_is_said(r, key));
    return (size_t)v;
}

/* Layers counted from 1. Every layer is in one of the two lists. */
static void read_layer_lists(bt_reader *linear, k3_shape *s)
{
    static const char *const keys[2] = {"kda_layers", "full_attn_layers"};
    if (linear->st != BT_OK) return;
    int32_t *list = bt_calloc(BT_LAYERS_MAX, sizeof *list);
    uint8_t *seen = bt_calloc(s->n_layers, 1);
    s->is_mla = bt_calloc(s->n_layers, sizeof *s->is_mla);
    if (list == NULL || seen == NULL || s->is_mla == NULL)
        linear->st = bt_fail(linear->e, BT_ERR_MEMORY, "no memory for %zu layers", s->n_layers);
    for (size_t k = 0; k < 2 && linear->st == BT_OK; k++) {
        size_t n = 0;
        linear->st = bt_get_ids(linear->scope, keys[k], list, BT_LAYERS_MAX, &n, linear->e);
        for (size_t i = 0; i < n && linear->st == BT_OK; i++) {
            bt_read_refuse(linear, list[i] == 0, keys[k], "holds 0: layers count from 1");
            size_t layer = (size_t)list[i] - 1; /* numbers past the last layer name nothing */
            if (linear->st != BT_OK || layer >= s->n_layers) continue;
            seen[layer]++;
            s->is_mla[layer] = k == 1;
        }
    }
    for (size_t i = 0; i < s->n_layers && linear->st == BT_OK; i++) {
        if (seen[i] == 1) continue;
        linear->st = bt_fail(linear->e, BT_ERR_FORMAT,
                             "%s: layer %zu (counted from 1) is %s of linear_attn_config's kda_layers and "
                             "full_attn_layers",
                             s->file, i + 1, seen[i] == 0 ? "in neither" : "more than once in the lists");
    }
    bt_free(list);
    bt_free(seen);
}

static void read_linear_attention(bt_reader *r, k3_shape *s)
{
    bt_reader *linear = &(bt_reader){.defaults = r->defaults, .st = r->st, .e = r->e};
    if (r->st == BT_OK) linear->st = bt_get_scope(r->scope, "linear_attn_config", &linear->scope, r->e);
    bt_read_refuse(r, linear->st == BT_OK && linear->scope.object == NULL, "linear_attn_config", "is missing");
    if (r->st != BT_OK || linear->st != BT_OK) {
        if (r->st == BT_OK) r->st = linear->st;
        return;
    }
    s->kda_heads = bt_read_need(linear, "num_heads", BT_HEADS_MAX);
    s->kda_dim = bt_read_need(linear, "head_dim", BT_HEAD_DIM_MAX);
    s->n_taps = bt_read_need(linear, "short_conv_kernel_size", BT_OP_TAPS_MAX);
    bt_read_refuse(linear, s->n_taps < 2, "short_conv_kernel_size", "is below 2");
    s->full_rank_gate = bt_read_flag(linear, "use_full_rank_gate", false);
    bool bounded = false;
    if (linear->st == BT_OK)
        linear->st = bt_get_f64(linear->scope, "gate_lower_bound", &s->lower_bound, &bounded, linear->e);
    bt_read_note_default(linear, "gate_lower_bound", bt_read_is_said(linear, "gate_lower_bound"));
    bt_read_refuse(linear, bounded && !(s->lower_bound <= -BT_NUMBER_MIN && s->lower_bound >= -1e3), "gate_lower_bound",
                   "is not a number below 0 (from -1000 to -1e-30)");
    read_layer_lists(linear, s);
    r->st = linear->st;
}

static void read_latent_attention(bt_reader *r, k3_shape *s)
{
    s->n_heads = bt_read_need(r, "num_attention_heads", BT_HEADS_MAX);
    s->nope = bt_read_need(r, "qk_nope_head_dim", BT_HEAD_DIM_MAX);
    s->rest = bt_read_need(r, "qk_rope_head_dim", BT_HEAD_DIM_MAX);
    s->v_dim = bt_read_need(r, "v_head_dim", BT_HEAD_DIM_MAX);
    s->kv_lora = bt_read_need(r, "kv_lora_rank", BT_HEAD_DIM_MAX);
    s->q_lora = need_or_null(r, "q_lora_rank", BT_WIDTH_MAX);
    s->mla_gate = bt_read_flag(r, "mla_use_output_gate", false);
    size_t n_kv = bt_read_count(r, "num_key_value_heads", s->n_heads, 1, BT_HEADS_MAX);
    bt_read_refuse(r, n_kv != s->n_heads, "num_key_value_heads", "differs from num_attention_heads");
    bool nope = false;
    if (r->st == BT_OK) r->st = bt_get_bool(r->scope, "mla_use_nope", &nope, NULL, r->e);
    bt_read_refuse(r, !nope, "mla_use_nope", "false is not supported: no released model turns its keys");
    bt_read_refuse(r, s->kv_lora + s->rest > BT_HEAD_DIM_MAX, "kv_lora_rank", "plus qk_rope_head_dim is above 1024");
}

static void read_activation(bt_reader *r, k3_shape *s)
{
    const char *act = NULL;
    if (r->st == BT_OK) r->st = bt_get_string(r->scope, "hidden_act", &act, NULL, r->e);
    if (r->st != BT_OK) return;
    s->is_situ = strcmp(act, "situ") == 0;
    bt_read_refuse(r, !s->is_situ && strcmp(act, "silu") != 0, "hidden_act", "is neither situ nor silu");
    if (!s->is_situ) return;
    static const char *const keys[2] = {"activation_situ_beta", "activation_situ_linear_beta"};
    for (size_t i = 0; i < 2; i++)
        bt_read_refuse(r, bt_json_get(r->scope.object, keys[i]) == NULL, keys[i], "is missing beside hidden_act situ");
    s->situ.beta = (float)bt_read_number(r, keys[0], 1.0);
    bool capped = false;
    double linear = 0;
    if (r->st == BT_OK) r->st = bt_get_f64(r->scope, keys[1], &linear, &capped, r->e);
    bt_read_refuse(r, capped && !(linear >= BT_NUMBER_MIN && linear <= BT_NUMBER_MAX), keys[1],
                   "is not a number above 0 (from 1e-30 to 1e30)");
    s->situ.linear_beta = (float)linear; /* null: the up branch has no cap */
}

static void read_experts(bt_reader *r, k3_shape *s)
{
    s->n_experts = bt_read_need(r, "num_experts", BT_EXPERTS_MAX);
    s->n_active = bt_read_need(r, "num_experts_per_token", s->n_experts);
    s->expert_ffn = bt_read_need(r, "moe_intermediate_size", BT_WIDTH_MAX);
    uint64_t n = 0;
    if (r->st == BT_OK) r->st = bt_get_u64(r->scope, "num_shared_experts", 0, 64, &n, NULL, r->e);
    s->n_shared = (size_t)n;
    n = 0;
    if (r->st == BT_OK) r->st = bt_get_u64(r->scope, "first_k_dense_replace", 0, BT_LAYERS_MAX, &n, NULL, r->e);
    s->n_dense = (size_t)n;
    s->moe_every = bt_read_count(r, "moe_layer_freq", 1, 1, BT_LAYERS_MAX);
    if (r->st == BT_OK) r->st = bt_get_f64(r->scope, "routed_scaling_factor", &s->router_scale, NULL, r->e);
    bt_read_refuse(r, !(fabs(s->router_scale) >= BT_NUMBER_MIN && fabs(s->router_scale) <= BT_NUMBER_MAX),
                   "routed_scaling_factor", "is out of range (1e-30 to 1e30)");
    if (r->st == BT_OK) r->st = bt_get_bool(r->scope, "moe_renormalize", &s->renormalise, NULL, r->e);
    const char *score = "";
    if (r->st == BT_OK) r->st = bt_get_string(r->scope, "moe_router_activation_func", &score, NULL, r->e);
    bt_read_refuse(r, strcmp(score, "sigmoid") != 0, "moe_router_activation_func", "is not sigmoid");
    s->n_groups = bt_read_count(r, "num_expert_group", 1, 1, s->n_experts);
    s->n_active_groups = bt_read_count(r, "topk_group", 1, 1, s->n_groups);
    s->grouped = bt_read_flag(r, "use_grouped_topk", true);
    bt_read_refuse(r, !s->grouped && s->n_groups > 1, "use_grouped_topk", "false contradicts num_expert_group above 1");
    bt_read_refuse(r, s->n_experts % s->n_groups != 0, "num_expert_group", "does not divide num_experts");
    bt_read_refuse(r, s->n_active > s->n_experts / s->n_groups * s->n_active_groups, "num_experts_per_token",
                   "is more than topk_group groups have");
    bt_read_refuse(r, s->n_groups > 1 && s->n_experts / s->n_groups < 2, "num_expert_group",
                   "leaves groups of one expert, but groups compete by their best two");
    s->latent = optional(r, "routed_expert_hidden_size", BT_WIDTH_MAX);
    s->latent_norm = bt_read_flag(r, "latent_moe_use_norm", false);
}

static void read_max_position(bt_reader *r, k3_shape *s)
{
    static const char *const keys[2] = {"max_position_embeddings", "model_max_length"};
    uint64_t positions = 0;
    bool found = false;
    s->position_key = keys[0];
    for (size_t i = 0; i < 2 && !found && r->st == BT_OK; i++) {
        r->st = bt_get_u64(r->scope, keys[i], 1, 1u << 30, &positions, &found, r->e);
        if (found) s->position_key = keys[i];
    }
    bt_read_note_default(r, keys[0], found);
    s->max_position = (size_t)positions;
}

static bt_status k3_read_config(const bt_config *c, void *shape, const bt_family *family, const char *prefix,
                                bt_error *e)
{
    k3_shape *s = shape;
    *s = (k3_shape){.file = bt_config_file(c),
                    .prefix = prefix,
                    .latent_eps = K3_LATENT_EPS,
                    .ablate = {.skip_layer = -1, .force_expert = -1, .drop_half = -1}};
    bt_reader *r = &(bt_reader){.defaults = &s->defaults, .e = e};
    r->st = bt_model_text_scope(family, c, &r->scope, e);
    bt_read_refuse(r, r->scope.object == NULL, "text_config", "is missing");
    s->n_vocab = bt_read_need(r, "vocab_size", BT_VOCAB_MAX);
    s->hidden = bt_read_need(r, "hidden_size", BT_WIDTH_MAX);
    s->ffn = bt_read_need(r, "intermediate_size", BT_WIDTH_MAX);
    s->n_layers = bt_read_need(r, "num_hidden_layers", BT_LAYERS_MAX);
    if (r->st == BT_OK) r->st = bt_get_f64(r->scope, "rms_norm_eps", &s->eps, NULL, e);
    bt_read_refuse(r, !(s->eps >= BT_NUMBER_MIN && s->eps < 1), "rms_norm_eps",
                   "is not a number between 0 and 1 (at least 1e-30)");
    s->tied = bt_read_flag(r, "tie_word_embeddings", false);
    s->block = optional(r, "attn_res_block_size", BT_LAYERS_MAX);
    read_max_position(r, s);
    read_latent_attention(r, s);
    read_linear_attention(r, s);
    read_activation(r, s);
    read_experts(r, s);
    if (r->st != BT_OK) return r->st;
    bt_read_refuse(r, s->n_heads > BT_WIDTH_MAX / (s->nope + s->rest + s->v_dim + s->kv_lora), "num_attention_heads",
                   "times the head widths is out of range");
    bt_read_refuse(r, s->kda_heads > BT_WIDTH_MAX / s->kda_dim, "linear_attn_config.num_heads",
                   "times head_dim is out of range");
    bt_read_refuse(r, s->block > 0 && (s->n_layers - 1) / s->block + 2 > BT_OP_SOURCES_MAX, "attn_res_block_size",
                   "makes a residual bank of more than 256 entries: raise it, or check num_hidden_layers");
    bt_read_refuse(r, s->n_active > BT_WIDTH_MAX / s->expert_ffn, "num_experts_per_token",
                   "times moe_intermediate_size is out of range");
    bt_read_refuse(r, s->n_shared > BT_WIDTH_MAX / s->expert_ffn, "num_shared_experts",
                   "times moe_intermediate_size is out of range");
    return r->st;
}

static bt_status kimi_k3_read_config(const bt_config *c, void *shape, bt_error *e)
{
    return k3_read_config(c, shape, &bt_family_kimi_k3, "language_model.", e);
}

static bt_status kimi_linear_read_config(const bt_config *c, void *shape, bt_error *e)
{
    return k3_read_config(c, shape, &bt_family_kimi_linear, "", e);
}

static void k3_release(void *shape)
{
    bt_free(((k3_shape *)shape)->is_mla);
}

/* ---- tensors: the one list (docs/kimi_k3.md, b) ------------------------------------------------------------------ */

#define LAYER "%smodel.layers.%d."

static void list_kda(const k3_shape *s, bt_tensor_list *l, k3_layer *w, int i)
{
    const char *p = s->prefix;
    const bt_class class = BT_CLASS_ATTENTION;
    size_t h = s->hidden, n = kda_width(s), d = s->kda_dim, taps = s->n_taps;
    w->q = bt_list_matrix(l, class, i, n, h, LAYER "self_attn.q_proj.weight", p, i);
    w->k = bt_list_matrix(l, class, i, n, h, LAYER "self_attn.k_proj.weight", p, i);
    w->v = bt_list_matrix(l, class, i, n, h, LAYER "self_attn.v_proj.weight", p, i);
    w->q_taps = bt_list_taps(l, class, i, n, taps, LAYER "self_attn.q_conv1d.weight", p, i);
    w->k_taps = bt_list_taps(l, class, i, n, taps, LAYER "self_attn.k_conv1d.weight", p, i);
    w->v_taps = bt_list_taps(l, class, i, n, taps, LAYER "self_attn.v_conv1d.weight", p, i);
    w->f_a = bt_list_matrix(l, class, i, d, h, LAYER "self_attn.f_a_proj.weight", p, i);
    w->f_b = bt_list_matrix(l, class, i, n, d, LAYER "self_attn.f_b_proj.weight", p, i);
    w->b = bt_list_matrix(l, class, i, s->kda_heads, h, LAYER "self_attn.b_proj.weight", p, i);
    w->a_log = bt_list_vector(l, class, i, s->kda_heads, LAYER "self_attn.A_log", p, i);
    if (!l->failed) l->specs[w->a_log].is_padded = true;
    w->dt_bias = bt_list_vector(l, class, i, n, LAYER "self_attn.dt_bias", p, i);
    w->o_norm = bt_list_vector(l, BT_CLASS_NORM, i, d, LAYER "self_attn.o_norm.weight", p, i);
    if (s->full_rank_gate) {
        w->g = bt_list_matrix(l, class, i, n, h, LAYER "self_attn.g_proj.weight", p, i);
    } else {
        w->g_a = bt_list_matrix(l, class, i, d, h, LAYER "self_attn.g_a_proj.weight", p, i);
        w->g_b = bt_list_matrix(l, class, i, n, d, LAYER "self_attn.g_b_proj.weight", p, i);
    }
    w->o = bt_list_matrix(l, class, i, h, n, LAYER "self_attn.o_proj.weight", p, i);
}

static void list_mla(const k3_shape *s, bt_tensor_list *l, k3_layer *w, int i)
{
    const char *p = s->prefix;
    const bt_class class = BT_CLASS_ATTENTION;
    size_t h = s->hidden, q = s->n_heads * (s->nope + s->rest), v = s->n_heads * s->v_dim;
    if (s->q_lora > 0) {
        w->q_a = bt_list_matrix(l, class, i, s->q_lora, h, LAYER "self_attn.q_a_proj.weight", p, i);
        w->q_a_norm = bt_list_vector(l, BT_CLASS_NORM, i, s->q_lora, LAYER "self_attn.q_a_layernorm.weight", p, i);
        w->q_b = bt_list_matrix(l, class, i, q, s->q_lora, LAYER "self_attn.q_b_proj.weight", p, i);
    } else {
        w->q = bt_list_matrix(l, class, i, q, h, LAYER "self_attn.q_proj.weight", p, i);
    }
    w->kv_a = bt_list_matrix(l, class, i, s->kv_lora + s->rest, h, LAYER "self_attn.kv_a_proj_with_mqa.weight", p, i);
    w->kv_a_norm = bt_list_vector(l, BT_CLASS_NORM, i, s->kv_lora, LAYER "self_attn.kv_a_layernorm.weight", p, i);
    w->kv_b = bt_list_matrix(l, class, i, s->n_heads * (s->nope + s->v_dim), s->kv_lora,
                             LAYER "self_attn.kv_b_proj.weight", p, i);
    if (s->mla_gate) w->g = bt_list_matrix(l, class, i, v, h, LAYER "self_attn.g_proj.weight", p, i);
    w->o = bt_list_matrix(l, class, i, h, v, LAYER "self_attn.o_proj.weight", p, i);
}

static void list_experts(const k3_shape *s, bt_tensor_list *l, k3_layer *w, int i)
{
    const char *p = s->prefix;
    size_t h = s->hidden, f = s->expert_ffn, z = s->latent > 0 ? s->latent : h;
    w->router = bt_list_matrix(l, BT_CLASS_ROUTER, i, s->n_experts, h, LAYER "block_sparse_moe.gate.weight", p, i);
    w->router_bias = bt_list_vector(l, BT_CLASS_ROUTER, i, s->n_experts,
                                    LAYER "block_sparse_moe.gate.e_score_correction_bias", p, i);
    if (s->latent > 0) {
        w->latent_down =
            bt_list_matrix(l, BT_CLASS_SHARED, i, z, h, LAYER "block_sparse_moe.routed_expert_down_proj.weight", p, i);
        w->latent_up =
            bt_list_matrix(l, BT_CLASS_SHARED, i, h, z, LAYER "block_sparse_moe.routed_expert_up_proj.weight", p, i);
        if (s->latent_norm)
            w->latent_norm =
                bt_list_vector(l, BT_CLASS_NORM, i, z, LAYER "block_sparse_moe.routed_expert_norm.weight", p, i);
    }
    for (size_t e = 0; e < s->n_experts && !l->failed; e++) {
        uint32_t at =
            bt_list_matrix(l, BT_CLASS_EXPERTS, i, f, z, LAYER "block_sparse_moe.experts.%zu.w1.weight", p, i, e);
        bt_list_matrix(l, BT_CLASS_EXPERTS, i, f, z, LAYER "block_sparse_moe.experts.%zu.w3.weight", p, i, e);
        bt_list_matrix(l, BT_CLASS_EXPERTS, i, z, f, LAYER "block_sparse_moe.experts.%zu.w2.weight", p, i, e);
        if (e == 0) w->experts = at;
    }
    if (s->n_shared == 0) return;
    f *= s->n_shared;
    w->shared_gate =
        bt_list_matrix(l, BT_CLASS_SHARED, i, f, h, LAYER "block_sparse_moe.shared_experts.gate_proj.weight", p, i);
    w->shared_up =
        bt_list_matrix(l, BT_CLASS_SHARED, i, f, h, LAYER "block_sparse_moe.shared_experts.up_proj.weight", p, i);
    w->shared_down =
        bt_list_matrix(l, BT_CLASS_SHARED, i, h, f, LAYER "block_sparse_moe.shared_experts.down_proj.weight", p, i);
}

static void list_layer(const k3_shape *s, bt_tensor_list *l, k3_layer *w, int i)
{
    const char *p = s->prefix;
    size_t h = s->hidden, f = s->ffn;
    memset(w, 0xff, sizeof *w); /* every index BT_NONE */
    w->is_mla = s->is_mla[i];
    w->is_sparse = k3_is_sparse(s, (size_t)i);
    w->input_norm = bt_list_vector(l, BT_CLASS_NORM, i, h, LAYER "input_layernorm.weight", p, i);
    w->post_norm = bt_list_vector(l, BT_CLASS_NORM, i, h, LAYER "post_attention_layernorm.weight", p, i);
    if (s->block > 0) {
        w->attn_res_norm = bt_list_vector(l, BT_CLASS_NORM, i, h, LAYER "self_attention_res_norm.weight", p, i);
        w->attn_res_proj = bt_list_matrix(l, BT_CLASS_NORM, i, 1, h, LAYER "self_attention_res_proj.weight", p, i);
        w->ffn_res_norm = bt_list_vector(l, BT_CLASS_NORM, i, h, LAYER "mlp_res_norm.weight", p, i);
        w->ffn_res_proj = bt_list_matrix(l, BT_CLASS_NORM, i, 1, h, LAYER "mlp_res_proj.weight", p, i);
    }
    if (w->is_mla)
        list_mla(s, l, w, i);
    else
        list_kda(s, l, w, i);
    if (w->is_sparse) {
        list_experts(s, l, w, i);
        return;
    }
    w->ffn_gate = bt_list_matrix(l, BT_CLASS_DENSE, i, f, h, LAYER "mlp.gate_proj.weight", p, i);
    w->ffn_up = bt_list_matrix(l, BT_CLASS_DENSE, i, f, h, LAYER "mlp.up_proj.weight", p, i);
    w->ffn_down = bt_list_matrix(l, BT_CLASS_DENSE, i, h, f, LAYER "mlp.down_proj.weight", p, i);
}

/* No block scales in this family. Any matrix may come packed but those that are read by columns or by rows of another
 * op's choice: the embedding, kv_b_proj and the residual projections. */
static void set_forms(const k3_shape *s, bt_tensor_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        bt_tensor_spec *spec = &l->specs[i];
        spec->may_scale = false;
        spec->may_pack = !spec->is_vector && !spec->is_taps && spec->class != BT_CLASS_EMBEDDING &&
                         spec->class != BT_CLASS_NORM && spec->class != BT_CLASS_ROUTER &&
                         spec->n_cols % BT_MXFP4_BLOCK == 0;
    }
    for (size_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].is_mla) l->specs[s->layers[i].kv_b].may_pack = false;
}

static void k3_list_tensors(void *shape, bt_tensor_list *l)
{
    k3_shape *s = shape;
    const char *p = s->prefix;
    size_t h = s->hidden;
    s->layers = bt_arena_alloc(l->arena, s->n_layers, sizeof *s->layers);
    if (s->layers == NULL) {
        l->failed = true;
        return;
    }
    s->embed = bt_list_matrix(l, BT_CLASS_EMBEDDING, -1, s->n_vocab, h, "%smodel.embed_tokens.weight", p);
    for (size_t i = 0; i < s->n_layers && !l->failed; i++) list_layer(s, l, &s->layers[i], (int)i);
    if (s->block > 0) {
        s->out_res_norm = bt_list_vector(l, BT_CLASS_NORM, -1, h, "%smodel.output_attn_res_norm.weight", p);
        s->out_res_proj = bt_list_matrix(l, BT_CLASS_NORM, -1, 1, h, "%smodel.output_attn_res_proj.weight", p);
    }
    s->final_norm = bt_list_vector(l, BT_CLASS_NORM, -1, h, "%smodel.norm.weight", p);
    s->head = s->tied ? s->embed : bt_list_matrix(l, BT_CLASS_HEAD, -1, s->n_vocab, h, "%slm_head.weight", p);
    if (!l->failed) set_forms(s, l);
}

static bool kimi_k3_skip_tensor(const char *name)
{
    return strncmp(name, "vision_tower.", 13) == 0 || strncmp(name, "mm_projector.", 13) == 0;
}

static bool kimi_linear_skip_tensor(const char *name)
{
    (void)name;
    return false;
}

/* ---- the layer, written on the tape ------------------------------------------------------------------------------ */

typedef struct k3_tape {
    const k3_shape *s;
    bt_tape_builder *b;
    /* The streams: entry e of the bank lies e * entry words from its start. Entries [0, n_banked) are banked; the one
     * behind them is the running stream. Without attention residuals there is one. */
    bt_act bank;
    size_t entry, n_banked;
    bt_act m, a;                     /* a mix, and the normed input of a sublayer [hidden] */
    bt_act pre_q, pre_k, pre_v;      /* KDA before the convolution [kda width] */
    bt_act q, k, v, decay, beta, o;  /* KDA [kda width]; beta [kda heads] */
    bt_act low, gate;                /* low-rank halves [kda head_dim]; the output gate [kda width or v width] */
    bt_act gate_low;                 /* of the low-rank output gate [kda head_dim] */
    bt_act q_low, query, kv;         /* MLA [q_lora], [heads * (nope + rest)], [kv_lora + rest] */
    bt_act absorbed, latents, mla_o; /* [heads * (kv_lora + rest)], [heads * kv_lora], [heads * v_dim] */
    bt_act g, u;                     /* dense [ffn] */
    bt_act scores, z, h, sum;        /* experts: router logits, latent input, hidden, their sum */
    bt_act sg, su, shared;           /* shared experts; [hidden] */
    bt_routes routes;
} k3_tape;

static bt_act rows(k3_tape *t, size_t width)
{
    return bt_tape_act(t->b, BT_SPACE_ROWS, width);
}

static void declare_attention(k3_tape *t)
{
    const k3_shape *s = t->s;
    size_t n = kda_width(s), v = s->n_heads * s->v_dim;
    t->pre_q = rows(t, n);
    t->pre_k = rows(t, n);
    t->pre_v = rows(t, n);
    t->q = rows(t, n);
    t->k = rows(t, n);
    t->v = rows(t, n);
    t->decay = rows(t, n);
    t->beta = rows(t, s->kda_heads);
    t->low = rows(t, s->kda_dim);
    t->gate_low = rows(t, s->kda_dim);
    t->gate = rows(t, n > v ? n : v);
    t->o = rows(t, n);
    if (s->q_lora > 0) t->q_low = rows(t, s->q_lora);
    t->query = rows(t, s->n_heads * (s->nope + s->rest));
    t->kv = rows(t, s->kv_lora + s->rest);
    t->absorbed = rows(t, s->n_heads * (s->kv_lora + s->rest));
    t->latents = rows(t, s->n_heads * s->kv_lora);
    t->mla_o = rows(t, v);
}

static void declare(k3_tape *t)
{
    const k3_shape *s = t->s;
    size_t n_entries = s->block == 0 ? 1 : (s->n_layers - 1) / s->block + 2;
    t->entry = (s->hidden + 15) / 16 * 16;
    t->bank = rows(t, (n_entries - 1) * t->entry + s->hidden);
    t->m = rows(t, s->hidden);
    t->a = rows(t, s->hidden);
    declare_attention(t);
    t->g = rows(t, s->ffn);
    t->u = rows(t, s->ffn);
    t->scores = rows(t, s->n_experts);
    t->routes = bt_tape_routes(t->b, s->n_active);
    t->h = rows(t, s->n_active * s->expert_ffn);
    if (s->latent > 0) {
        t->z = rows(t, s->latent);
        t->sum = rows(t, s->latent);
    }
    if (s->n_shared == 0) return;
    t->sg = rows(t, s->n_shared * s->expert_ffn);
    t->su = rows(t, s->n_shared * s->expert_ffn);
    t->shared = rows(t, s->hidden);
}

/* The running stream. */
static bt_act stream(const k3_tape *t)
{
    return bt_tape_part(t->bank, t->n_banked * t->entry, t->s->hidden);
}

/* What a sublayer reads: attention over depth, of the banked streams and the running one, in that order. */
static bt_act mixed(k3_tape *t, uint32_t norm, uint32_t proj)
{
    if (t->n_banked == 0 || t->s->ablate.no_mix) return stream(t);
    bt_act sources = bt_tape_part(t->bank, 0, t->n_banked * t->entry + t->s->hidden);
    bt_op_res_mix(t->b, t->m, sources, t->n_banked + 1, norm, proj, t->s->eps);
    return t->m;
}

static void gated_unit(k3_tape *t, bt_act g, bt_act u)
{
    if (t->s->is_situ)
        bt_op_situ_mul(t->b, g, g, u, t->s->situ);
    else
        bt_op_act_mul(t->b, g, g, u, BT_FN_SILU);
}

#ifdef BT_TEST_BUILD
/* o_proj as two machines would share it: each multiplies half of the columns, the halves are summed. */
static void project_out_in_halves(k3_tape *t, const k3_layer *w, bt_act o, bool is_fresh)
{
    size_t middle = o.width / 2;
    for (int32_t half = 0; half < 2; half++) {
        bool dropped = half == t->s->ablate.drop_half;
        size_t begin = half == 0 ? 0 : middle, end = half == 0 ? middle : o.width;
        bt_act part = bt_tape_act(t->b, BT_SPACE_ROWS, o.width);
        bt_op_keep(t->b, part, o, begin, dropped ? begin : end);
        if (is_fresh && half == 0)
            bt_op_linear(t->b, stream(t), part, w->o);
        else
            bt_op_linear_add(t->b, stream(t), part, w->o);
    }
}
#endif

/* o_proj: the stream grows by it, or, after a banked one, starts afresh from it alone. */
static void project_out(k3_tape *t, const k3_layer *w, bt_act o, bool is_fresh)
{
#ifdef BT_TEST_BUILD
    if (t->s->ablate.split_o_proj) {
        project_out_in_halves(t, w, o, is_fresh);
        return;
    }
#endif
    if (is_fresh)
        bt_op_linear(t->b, stream(t), o, w->o);
    else
        bt_op_linear_add(t->b, stream(t), o, w->o);
}

/* The gated delta rule, docs/kimi_k3.md, c.4. Returns the heads' outputs, gated. */
static bt_act kda(k3_tape *t, const k3_layer *w)
{
    const k3_shape *s = t->s;
    size_t n = kda_width(s);
    bt_act gate = bt_tape_part(t->gate, 0, n);
    bt_op_linear(t->b, t->pre_q, t->a, w->q);
    bt_op_linear(t->b, t->pre_k, t->a, w->k);
    bt_op_linear(t->b, t->pre_v, t->a, w->v);
    bt_op_linear(t->b, t->low, t->a, w->f_a);
    bt_op_linear(t->b, t->beta, t->a, w->b);
    if (s->full_rank_gate)
        bt_op_linear(t->b, gate, t->a, w->g);
    else
        bt_op_linear(t->b, t->gate_low, t->a, w->g_a);
    bt_op_conv_silu(t->b, t->q, t->pre_q, w->q_taps, bt_tape_fixed(t->b, s->n_taps - 1, n));
    bt_op_conv_silu(t->b, t->k, t->pre_k, w->k_taps, bt_tape_fixed(t->b, s->n_taps - 1, n));
    bt_op_conv_silu(t->b, t->v, t->pre_v, w->v_taps, bt_tape_fixed(t->b, s->n_taps - 1, n));
    bt_op_linear(t->b, t->decay, t->low, w->f_b);
    if (!s->full_rank_gate) bt_op_linear(t->b, gate, t->gate_low, w->g_b);
    bt_op_kda_gates(t->b, t->q, t->k, t->decay, t->beta, w->dt_bias, w->a_log, s->kda_heads, s->lower_bound);
    uint32_t state = bt_tape_fixed(t->b, s->kda_heads, s->kda_dim * s->kda_dim);
    bt_op_kda_step(t->b, t->o, t->q, t->k, t->v, t->decay, t->beta, state, s->kda_heads);
    bt_op_rms_norm_heads(t->b, t->o, t->o, w->o_norm, s->kda_heads, s->eps);
    bt_op_gate_mul(t->b, t->o, gate, BT_FN_SIGMOID);
    return t->o;
}

/* Latent attention in its absorbed form, docs/kimi_k3.md, c.5: queries go into the latent space, its rows are keys and
 * values both. Nothing is turned, yet the "rope" part of a key is scored, and counts in the scale. */
static bt_act mla(k3_tape *t, const k3_layer *w)
{
    const k3_shape *s = t->s;
    bt_act gate = bt_tape_part(t->gate, 0, s->n_heads * s->v_dim);
    if (s->q_lora > 0)
        bt_op_linear(t->b, t->q_low, t->a, w->q_a);
    else
        bt_op_linear(t->b, t->query, t->a, w->q);
    bt_op_linear(t->b, t->kv, t->a, w->kv_a);
    if (s->mla_gate) bt_op_linear(t->b, gate, t->a, w->g);
    bt_act latent = bt_tape_part(t->kv, 0, s->kv_lora);
    bt_op_rms_norm(t->b, latent, latent, w->kv_a_norm, 1, s->latent_eps);
    if (s->q_lora > 0) {
        bt_op_rms_norm(t->b, t->q_low, t->q_low, w->q_a_norm, 1, s->latent_eps);
        bt_op_linear(t->b, t->query, t->q_low, w->q_b);
    }
    uint32_t state = bt_tape_positions(t->b, 1, s->kv_lora + s->rest);
    bt_op_store(t->b, state, t->kv);
    bt_op_mla_absorb(t->b, t->absorbed, t->query, w->kv_b, s->n_heads, s->nope, s->rest, s->v_dim);
    bt_op_mla_attention(t->b, t->latents, t->absorbed, state, s->n_heads, s->kv_lora,
                        1 / sqrt((double)(s->nope + s->rest)));
    bt_op_mla_values(t->b, t->mla_o, t->latents, w->kv_b, s->n_heads, s->nope, s->v_dim);
    if (s->mla_gate) bt_op_gate_mul(t->b, t->mla_o, gate, BT_FN_SIGMOID);
    return t->mla_o;
}

static void attention(k3_tape *t, const k3_layer *w, size_t i)
{
    const k3_shape *s = t->s;
    bt_act from = mixed(t, w->attn_res_norm, w->attn_res_proj);
    bt_op_rms_norm(t->b, t->a, from, w->input_norm, 1, s->eps);
    bool is_banked = s->block > 0 && i % s->block == 0; /* the raw stream, not the mix */
    if (is_banked) t->n_banked++;
    bt_act o = w->is_mla ? mla(t, w) : kda(t, w);
    project_out(t, w, o, is_banked);
}

static bt_route_spec route_spec(const k3_shape *s, const k3_layer *w)
{
    return (bt_route_spec){
        .bias = w->router_bias,
        .score = BT_ROUTER_SIGMOID,
        .renormalise = s->renormalise && s->n_active > 1,
        .scale = s->router_scale,
        .force = s->ablate.force_expert,
        .n_groups = (uint32_t)s->n_groups,
        .n_active_groups = (uint32_t)s->n_active_groups,
    };
}

static void up_gate(k3_tape *t, const k3_layer *w, bt_act x)
{
    const k3_shape *s = t->s;
    if (s->is_situ)
        bt_op_moe_up_situ(t->b, t->h, x, t->routes, w->experts, w->experts + 1, 3, s->n_experts, s->situ);
    else
        bt_op_moe_up_gate(t->b, t->h, x, t->routes, w->experts, w->experts + 1, 3, s->n_experts, BT_FN_SILU);
}

/* docs/kimi_k3.md, c.6. The router reads the full vector; experts read the latent one where there is one, and then the
 * norm acts once, on their weighted sum, before the way up. Shared experts see the full vector and come last. */
static void experts(k3_tape *t, const k3_layer *w)
{
    const k3_shape *s = t->s;
    bt_route_spec spec = route_spec(s, w);
    bt_op_linear(t->b, t->scores, t->a, w->router);
    if (s->latent > 0) bt_op_linear(t->b, t->z, t->a, w->latent_down);
    if (s->n_shared > 0) {
        bt_op_linear(t->b, t->sg, t->a, w->shared_gate);
        bt_op_linear(t->b, t->su, t->a, w->shared_up);
    }
    bt_op_route(t->b, t->routes, t->scores, &spec);
    if (s->n_shared > 0) gated_unit(t, t->sg, t->su);
    up_gate(t, w, s->latent > 0 ? t->z : t->a);
    if (s->latent == 0) {
        if (s->n_shared > 0) bt_op_linear(t->b, t->shared, t->sg, w->shared_down);
        bt_op_moe_down_sum(t->b, stream(t), t->h, t->routes, w->experts + 2, 3, s->n_experts,
                           s->n_shared > 0 ? &t->shared : NULL);
        return;
    }
    bt_op_moe_down(t->b, t->sum, t->h, t->routes, w->experts + 2, 3, s->n_experts);
    if (s->latent_norm) bt_op_rms_norm(t->b, t->sum, t->sum, w->latent_norm, 1, s->eps);
    bt_op_linear_add(t->b, stream(t), t->sum, w->latent_up);
    if (s->n_shared > 0) bt_op_linear_add(t->b, stream(t), t->sg, w->shared_down);
}

static void feed_forward(k3_tape *t, const k3_layer *w)
{
    bt_act from = mixed(t, w->ffn_res_norm, w->ffn_res_proj);
    bt_op_rms_norm(t->b, t->a, from, w->post_norm, 1, t->s->eps);
    if (w->is_sparse) {
        experts(t, w);
        return;
    }
    bt_op_linear(t->b, t->g, t->a, w->ffn_gate);
    bt_op_linear(t->b, t->u, t->a, w->ffn_up);
    gated_unit(t, t->g, t->u);
    bt_op_linear_add(t->b, stream(t), t->g, w->ffn_down);
}

/* The last mix is over the rows of the step: it has to happen before the head picks its rows. */
static bt_act head(k3_tape *t)
{
    const k3_shape *s = t->s;
    bt_act from = mixed(t, s->out_res_norm, s->out_res_proj);
    bt_act x = bt_tape_act(t->b, BT_SPACE_LOGITS, s->hidden);
    bt_act logits = bt_tape_act(t->b, BT_SPACE_LOGITS, s->n_vocab);
    bt_tape_head(t->b);
    bt_op_select_rows(t->b, x, from);
    bt_op_rms_norm(t->b, x, x, s->final_norm, 1, s->eps);
    bt_op_linear(t->b, logits, x, s->head);
    return logits;
}

static bt_status k3_build_tape(const bt_model *m, const bt_limits *limits, bt_tape **out, bt_error *e)
{
    const k3_shape *s = m->shape;
    k3_tape t = {.s = s};
    bt_status st = bt_tape_begin(limits, m->views, m->list.n, &t.b, e);
    if (st != BT_OK) return st;
    bt_tape_classes(t.b, m->classes);
    declare(&t);
    bt_tape_layer(t.b, -1);
    bt_op_embed(t.b, stream(&t), s->embed);
    for (size_t i = 0; i < s->n_layers; i++) {
        if (s->ablate.skip_layer == (int32_t)i) continue; /* its entry in the bank is left out too */
        bt_tape_layer(t.b, (int)i);
        attention(&t, &s->layers[i], i);
        feed_forward(&t, &s->layers[i]);
    }
    bt_tape_layer(t.b, -1);
    bt_act logits = head(&t);
    return bt_tape_finish(t.b, logits, out, e);
}

/* ---- faults planted on purpose (test build): each turns a named golden test red ---------------------------------- */

#ifdef BT_TEST_BUILD
static bt_status k3_ablate(void *shape, const char *key, const char *value, bt_error *e)
{
    k3_shape *s = shape;
    int64_t v = 0;
    bool has_value = bt_json_i64(value, strlen(value), &v) && v >= 0;
    if (strcmp(key, "skip_layer") == 0 && has_value && (uint64_t)v < s->n_layers)
        s->ablate.skip_layer = (int32_t)v;
    else if (strcmp(key, "force_expert") == 0 && has_value && (uint64_t)v < s->n_experts && s->n_dense < s->n_layers)
        s->ablate.force_expert = (int32_t)v;
    else if (strcmp(key, "attn_res_mix") == 0 && has_value && v == 0 && s->block > 0)
        s->ablate.no_mix = true;
    else if (strcmp(key, "o_proj_tp") == 0 && has_value && v == 2)
        s->ablate.split_o_proj = true;
    else if (strcmp(key, "drop_o_proj_rank") == 0 && has_value && v < 2) {
        s->ablate.split_o_proj = true;
        s->ablate.drop_half = (int32_t)v;
    } else
        return bt_fail(e, BT_ERR_USAGE, "--ablate %s=%s: this model has no use for it", key, value);
    return BT_OK;
}
#endif

/* ---- the rows of the family table -------------------------------------------------------------------------------- */

static void describe_attention(const k3_shape *s, bt_fact_fn fn, void *user)
{
    const bt_defaults *d = &s->defaults;
    size_t n_mla = 0;
    char json[128];
    for (size_t i = 0; i < s->n_layers; i++) n_mla += s->is_mla[i];
    bt_fact(fn, user, d, "KDA layers", "%zu", s->n_layers - n_mla);
    (void)snprintf(json, sizeof json, "{\"num_heads\": %zu, \"head_dim\": %zu, \"short_conv_kernel_size\": %zu}",
                   s->kda_heads, s->kda_dim, s->n_taps);
    bt_fact_as(fn, user, d, "linear_attn_config", json, "%zu heads of %zu, %zu taps", s->kda_heads, s->kda_dim,
               s->n_taps);
    bt_fact(fn, user, d, "use_full_rank_gate", "%s", s->full_rank_gate ? "true" : "false");
    if (s->lower_bound < 0)
        bt_fact(fn, user, d, "gate_lower_bound", "%s", bt_exactly(s->lower_bound).text);
    else
        bt_fact_as(fn, user, d, "gate_lower_bound", "null", "none: the softplus form");
    bt_fact(fn, user, d, "MLA layers", "%zu", n_mla);
    bt_fact(fn, user, d, "num_attention_heads", "%zu", s->n_heads);
    bt_fact(fn, user, d, "num_key_value_heads", "%zu", s->n_heads);
    if (s->q_lora > 0)
        bt_fact(fn, user, d, "q_lora_rank", "%zu", s->q_lora);
    else
        bt_fact_as(fn, user, d, "q_lora_rank", "null", "none: a plain query");
    bt_fact(fn, user, d, "kv_lora_rank", "%zu", s->kv_lora);
    bt_fact(fn, user, d, "qk_nope_head_dim", "%zu", s->nope);
    (void)snprintf(json, sizeof json, "%zu", s->rest);
    bt_fact_as(fn, user, d, "qk_rope_head_dim", json, "%zu (never turned)", s->rest);
    bt_fact(fn, user, d, "v_head_dim", "%zu", s->v_dim);
    bt_fact(fn, user, d, "mla_use_output_gate", "%s", s->mla_gate ? "true" : "false");
    bt_fact(fn, user, d, "latent norm epsilon", "%s", bt_exactly(s->latent_eps).text);
}

/* The page has one line of it, programs have the vendor's keys. */
static void describe_activation(const k3_shape *s, bt_fact_fn fn, void *user)
{
    if (!s->is_situ) {
        bt_fact(fn, user, &s->defaults, "hidden_act", "silu");
        return;
    }
    double beta = (double)s->situ.beta, linear_beta = (double)s->situ.linear_beta;
    bt_fact_as(fn, user, &s->defaults, "hidden_act", "\"situ\"", "situ, capped at %g and %g", beta, linear_beta);
    fn(user, "activation_situ_beta", NULL, bt_exactly(beta).text, false);
    fn(user, "activation_situ_linear_beta", NULL, linear_beta > 0 ? bt_exactly(linear_beta).text : "null", false);
}

static void k3_describe(const void *shape, bt_fact_fn fn, void *user)
{
    const k3_shape *s = shape;
    const bt_defaults *d = &s->defaults;
    size_t n_sparse = 0;
    for (size_t i = 0; i < s->n_layers; i++) n_sparse += k3_is_sparse(s, i);
    bt_fact(fn, user, d, "vocab_size", "%zu", s->n_vocab);
    bt_fact(fn, user, d, "hidden_size", "%zu", s->hidden);
    bt_fact(fn, user, d, "num_hidden_layers", "%zu", s->n_layers);
    bt_fact(fn, user, d, "intermediate_size", "%zu", s->ffn);
    bt_fact(fn, user, d, "rms_norm_eps", "%s", bt_exactly(s->eps).text);
    if (s->max_position > 0)
        bt_fact(fn, user, d, s->position_key, "%zu", s->max_position);
    else
        bt_fact_as(fn, user, d, s->position_key, "null", "none: no limit");
    describe_attention(s, fn, user);
    if (s->block > 0)
        bt_fact(fn, user, d, "attn_res_block_size", "%zu", s->block);
    else
        bt_fact_as(fn, user, d, "attn_res_block_size", "null", "none: ordinary residuals");
    describe_activation(s, fn, user);
    bt_fact(fn, user, d, "tie_word_embeddings", "%s", s->tied ? "true" : "false");
    bt_fact(fn, user, d, "sparse layers", "%zu", n_sparse);
    bt_fact(fn, user, d, "first_k_dense_replace", "%zu", s->n_dense);
    bt_fact(fn, user, d, "moe_layer_freq", "%zu", s->moe_every);
    bt_fact(fn, user, d, "num_experts", "%zu", s->n_experts);
    bt_fact(fn, user, d, "num_experts_per_token", "%zu", s->n_active);
    bt_fact(fn, user, d, "moe_intermediate_size", "%zu", s->expert_ffn);
    bt_fact(fn, user, d, "num_shared_experts", "%zu", s->n_shared);
    if (s->latent > 0)
        bt_fact(fn, user, d, "routed_expert_hidden_size", "%zu", s->latent);
    else
        bt_fact_as(fn, user, d, "routed_expert_hidden_size", "null", "none: experts read the full vector");
    bt_fact(fn, user, d, "latent_moe_use_norm", "%s", s->latent_norm ? "true" : "false");
    bt_fact(fn, user, d, "num_expert_group", "%zu", s->n_groups);
    bt_fact(fn, user, d, "topk_group", "%zu", s->n_active_groups);
    bt_fact(fn, user, d, "use_grouped_topk", "%s", s->grouped ? "true" : "false");
    bt_fact(fn, user, d, "moe_renormalize", "%s", s->renormalise ? "true" : "false");
    bt_fact(fn, user, d, "routed_scaling_factor", "%s", bt_exactly(s->router_scale).text);
}

static size_t k3_n_vocab(const void *shape)
{
    return ((const k3_shape *)shape)->n_vocab;
}

static size_t k3_max_position(const void *shape)
{
    return ((const k3_shape *)shape)->max_position;
}

static const char *k3_tied_head(const void *shape)
{
    const k3_shape *s = shape;
    if (!s->tied) return NULL;
    return s->prefix[0] == '\0' ? "lm_head.weight" : "language_model.lm_head.weight";
}

const bt_family bt_family_kimi_k3 = {
    .name = "kimi_k3",
    .architectures = (const char *const[]){"KimiK3ForConditionalGeneration", NULL},
    .text_config = "text_config",
    .may_pack = true,
    .shape_bytes = sizeof(k3_shape),
    .read_config = kimi_k3_read_config,
    .release = k3_release,
    .list_tensors = k3_list_tensors,
    .skip_tensor = kimi_k3_skip_tensor,
    .tied_head = k3_tied_head,
    .build_tape = k3_build_tape,
#ifdef BT_TEST_BUILD
    .ablate = k3_ablate,
#endif
    .describe = k3_describe,
    .n_vocab = k3_n_vocab,
    .max_position = k3_max_position,
};

const bt_family bt_family_kimi_linear = {
    .name = "kimi_linear",
    .architectures = (const char *const[]){"KimiLinearForCausalLM", NULL},
    .may_pack = true,
    .shape_bytes = sizeof(k3_shape),
    .read_config = kimi_linear_read_config,
    .release = k3_release,
    .list_tensors = k3_list_tensors,
    .skip_tensor = kimi_linear_skip_tensor,
    .tied_head = k3_tied_head,
    .build_tape = k3_build_tape,
#ifdef BT_TEST_BUILD
    .ablate = k3_ablate,
#endif
    .describe = k3_describe,
    .n_vocab = k3_n_vocab,
    .max_position = k3_max_position,
};
