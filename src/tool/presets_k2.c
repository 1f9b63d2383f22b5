/*
 * The presets of K2-Horizon. The numbers are the published ones (docs of the family, section a.1); the keys of
 * config.json and their order are the vendor's. The two tiny presets are the test models k2-dense and k2-mova, which
 * leave out the keys that do not matter to inference.
 *
 * The spread of random weights is chosen, not copied: unit residual stream, inputs of a projection amplified twice, so
 * that attention and gates are far from their linear regions; what is added to the stream is scaled down with depth, so
 * that a token stays recognisable and the routers of deep layers still tell tokens apart.
 */
#include "tool/presets.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"

typedef struct k2_numbers {
    uint32_t n_vocab, hidden, n_layers, n_heads, n_kv, head_dim, rope_dim, ffn, n_groups, max_position;
    uint32_t n_dense; /* leading layers without experts; n_layers: all */
    uint32_t n_experts, n_active, n_shared, expert_ffn, n_values, n_values_active;
    uint32_t im_start, think, pad; /* ids; pad BT_NONE: null */
    bool has_gate;                 /* softplus */
    bool has_yarn;
    bool has_code; /* auto_map */
    bool is_tiny;  /* the keys of the test models */
} k2_numbers;

/* What attention adds to the stream is much the same for all tokens (value experts and gates have a mean above zero,
 * and the softmax averages what differs), so a router behind it would send all tokens to the same experts: kept
 * small. */
#define ATTENTION_PART 0.25

/* ---- the table -------------------------------------------------------------------------------------------------- */

#define FAMILY_VOCAB .n_vocab = 250624, .im_start = 250018, .think = 250029, .pad = BT_NONE, .max_position = 524288

static const k2_numbers k2_0_9b = {
    .n_vocab = 64256,
    .im_start = 64235,
    .think = 64237,
    .pad = 64255,
    .max_position = 131072,
    .hidden = 1536,
    .n_layers = 28,
    .n_heads = 32,
    .n_kv = 8,
    .head_dim = 64,
    .rope_dim = 64,
    .ffn = 5120,
    .n_groups = 1,
    .n_dense = 28,
    .has_yarn = true,
    .has_code = true,
};

static const k2_numbers k2_3_7b = {
    FAMILY_VOCAB,    .hidden = 2560, .n_layers = 36, .n_heads = 32, .n_kv = 8,        .head_dim = 128,
    .rope_dim = 128, .ffn = 10240,   .n_groups = 2,  .n_dense = 36, .has_code = true,
};

static const k2_numbers k2_7b = {
    FAMILY_VOCAB,    .hidden = 4096, .n_layers = 36, .n_heads = 32, .n_kv = 8,        .head_dim = 128,
    .rope_dim = 128, .ffn = 12288,   .n_groups = 4,  .n_dense = 36, .has_code = true,
};

static const k2_numbers k2_32b = {
    FAMILY_VOCAB,    .hidden = 5120, .n_layers = 64, .n_heads = 64, .n_kv = 8,        .head_dim = 128,
    .rope_dim = 128, .ffn = 26624,   .n_groups = 4,  .n_dense = 64, .has_code = true,
};

static const k2_numbers k2_mova_36b = {
    FAMILY_VOCAB,    .hidden = 2560,    .n_layers = 48, .n_heads = 32,        .n_kv = 8,        .head_dim = 128,
    .rope_dim = 128, .ffn = 6144,       .n_groups = 2,  .n_dense = 3,         .n_experts = 100, .n_active = 8,
    .n_shared = 1,   .expert_ffn = 768, .n_values = 64, .n_values_active = 4, .has_gate = true, .has_code = true,
};

static const k2_numbers k2_375b = {
    FAMILY_VOCAB, .hidden = 6144, .n_layers = 61, .n_heads = 48,    .n_kv = 8,     .head_dim = 128, .rope_dim = 64,
    .ffn = 16384, .n_groups = 1,  .n_dense = 3,   .n_experts = 192, .n_active = 8, .n_shared = 1,   .expert_ffn = 1792,
};

#define TINY                                                                                                           \
    .n_vocab = 640, .im_start = 620, .think = 622, .pad = BT_NONE, .max_position = 4096, .hidden = 96, .n_layers = 4,  \
    .n_heads = 8, .n_kv = 2, .head_dim = 16, .rope_dim = 16, .ffn = 160, .n_groups = 2, .is_tiny = true

static const k2_numbers k2_tiny = {TINY, .n_dense = 4};

static const k2_numbers k2_mova_tiny = {
    TINY,          .n_dense = 1,         .n_experts = 10,  .n_active = 3, .n_shared = 1, .expert_ffn = 32,
    .n_values = 6, .n_values_active = 2, .has_gate = true,
};

/* ---- the caller's choice ---------------------------------------------------------------------------------------- */

static uint32_t layers_of(const k2_numbers *k, const bt_preset_choice *c)
{
    return c->n_layers != 0 ? (uint32_t)c->n_layers : k->n_layers;
}

static uint32_t experts_of(const k2_numbers *k, const bt_preset_choice *c)
{
    return c->n_experts != 0 ? (uint32_t)c->n_experts : k->n_experts;
}

/* Value experts never outnumber the experts asked for, nor fall below what a token needs. */
static uint32_t values_of(const k2_numbers *k, const bt_preset_choice *c)
{
    uint32_t n = experts_of(k, c);
    if (n > k->n_values) return k->n_values;
    return n > k->n_values_active ? n : k->n_values_active;
}

static uint32_t dense_of(const k2_numbers *k, const bt_preset_choice *c)
{
    uint32_t n = layers_of(k, c);
    return k->n_experts == 0 || k->n_dense > n ? n : k->n_dense;
}

static bt_status k2_check(const void *numbers, const bt_preset_choice *c, bt_error *e)
{
    const k2_numbers *k = numbers;
    if (c->n_layers > k->n_layers)
        return bt_fail(e, BT_ERR_USAGE, "%zu layers: this preset has %u layers", c->n_layers, k->n_layers);
    if (c->n_experts == 0) return BT_OK;
    if (k->n_experts == 0) return bt_fail(e, BT_ERR_USAGE, "this preset has no experts to choose the number of");
    if (c->n_experts < k->n_active || c->n_experts > k->n_experts)
        return bt_fail(e, BT_ERR_USAGE,
                       "%zu experts: each token goes to %u of this preset's %u experts, so %u to %u are possible",
                       c->n_experts, k->n_active, k->n_experts, k->n_active, k->n_experts);
    return BT_OK;
}

/* ---- config.json ------------------------------------------------------------------------------------------------ */

static void put_raw(bt_text *t, const char *key, const char *value)
{
    bt_text_printf(t, "  \"%s\": %s,\n", key, value);
}

static void put_u64(bt_text *t, const char *key, uint64_t value)
{
    bt_text_printf(t, "  \"%s\": %" PRIu64 ",\n", key, value);
}

static void put_bool(bt_text *t, const char *key, bool value)
{
    put_raw(t, key, value ? "true" : "false");
}

static void put_dense_layers(bt_text *t, uint32_t n)
{
    bt_text_puts(t, "  \"mlp_only_layers\": [");
    for (uint32_t i = 0; i < n; i++) bt_text_printf(t, "%s\n    %" PRIu32, i == 0 ? "" : ",", i);
    bt_text_puts(t, n == 0 ? "],\n" : "\n  ],\n");
}

static bool k2_is_fp8(const void *numbers, const bt_tensor_spec *s)
{
    const k2_numbers *k = numbers;
    if (s->is_vector) return false;
    if (k->n_experts > 0) return s->class == BT_CLASS_EXPERTS;
    return s->class == BT_CLASS_ATTENTION || s->class == BT_CLASS_DENSE;
}

/* As MoVA-FP8: the literal path of every module that stays BF16. */
static void put_fp8(bt_text *t, const k2_numbers *k, const bt_tensor_list *list)
{
    bt_text_puts(t, "  \"quantization_config\": {\n    \"activation_scheme\": \"dynamic\",\n    \"ignored_layers\": [");
    bool first = true;
    for (size_t i = 0; i < list->n; i++) {
        const bt_tensor_spec *s = &list->specs[i];
        size_t n = strlen(s->name) - strlen(".weight");
        if (s->is_vector || s->class == BT_CLASS_EMBEDDING || k2_is_fp8(k, s)) continue;
        bt_text_puts(t, first ? "\n      " : ",\n      ");
        bt_text_json_string(t, s->name, n);
        first = false;
    }
    bt_text_puts(
        t, "\n    ],\n    \"quant_method\": \"fp8\",\n    \"weight_block_size\": [\n      128,\n      128\n    ]\n"
           "  },\n");
}

/* As 7B-FP8. */
static void put_compressed_tensors(bt_text *t)
{
    static const char common[] = "          \"observer_kwargs\": {},\n          \"scale_dtype\": null,\n";
    bt_text_puts(t, "  \"quantization_config\": {\n"
                    "    \"config_groups\": {\n"
                    "      \"group_0\": {\n"
                    "        \"format\": \"float-quantized\",\n"
                    "        \"input_activations\": {\n"
                    "          \"actorder\": null,\n"
                    "          \"block_structure\": null,\n"
                    "          \"dynamic\": true,\n"
                    "          \"group_size\": 128,\n"
                    "          \"num_bits\": 8,\n"
                    "          \"observer\": null,\n");
    bt_text_puts(t, common);
    bt_text_puts(t, "          \"strategy\": \"group\",\n"
                    "          \"symmetric\": true,\n"
                    "          \"type\": \"float\",\n"
                    "          \"zp_dtype\": null\n"
                    "        },\n"
                    "        \"output_activations\": null,\n"
                    "        \"targets\": [\n"
                    "          \"Linear\"\n"
                    "        ],\n"
                    "        \"weights\": {\n"
                    "          \"actorder\": null,\n"
                    "          \"block_structure\": [\n"
                    "            128,\n"
                    "            128\n"
                    "          ],\n"
                    "          \"dynamic\": false,\n"
                    "          \"group_size\": null,\n"
                    "          \"num_bits\": 8,\n"
                    "          \"observer\": \"memoryless_minmax\",\n");
    bt_text_puts(t, common);
    bt_text_puts(t, "          \"strategy\": \"block\",\n"
                    "          \"symmetric\": true,\n"
                    "          \"type\": \"float\",\n"
                    "          \"zp_dtype\": null\n"
                    "        }\n"
                    "      }\n"
                    "    },\n"
                    "    \"format\": \"float-quantized\",\n"
                    "    \"global_compression_ratio\": null,\n"
                    "    \"ignore\": [\n"
                    "      \"lm_head\"\n"
                    "    ],\n"
                    "    \"kv_cache_scheme\": null,\n"
                    "    \"quant_method\": \"compressed-tensors\",\n"
                    "    \"quantization_status\": \"compressed\",\n"
                    "    \"sparsity_config\": {},\n"
                    "    \"transform_config\": {},\n"
                    "    \"version\": \"0.18.0\"\n"
                    "  },\n");
}

static void put_rope(bt_text *t, const k2_numbers *k)
{
    bt_text_puts(t, "  \"rope_parameters\": {\n");
    if (k->has_yarn) {
        bt_text_puts(t, "    \"attention_factor\": 1.2772588722239782,\n"
                        "    \"beta_fast\": 128.0,\n"
                        "    \"beta_slow\": 4.0,\n"
                        "    \"factor\": 16.0,\n"
                        "    \"original_max_position_embeddings\": 8192,\n"
                        "    \"rope_type\": \"yarn\",\n"
                        "    \"truncate\": true\n"
                        "  },\n"
                        "  \"rope_theta\": 1000000.0,\n");
    } else {
        bt_text_puts(t, "    \"rope_theta\": 10000000.0,\n"
                        "    \"rope_type\": \"default\"\n"
                        "  },\n");
    }
}

static void put_first_keys(bt_text *t, const k2_numbers *k)
{
    bt_text_puts(t, "{\n  \"architectures\": [\n    \"K2HorizonForCausalLM\"\n  ],\n");
    put_bool(t, "attention_bias", false);
    put_raw(t, "attention_dropout", "0.0");
    put_raw(t, "attention_gate_func", k->has_gate ? "\"softplus\"" : "null");
    if (k->has_code) {
        bt_text_puts(t, "  \"auto_map\": {\n"
                        "    \"AutoConfig\": \"configuration_k2_horizon.K2HorizonConfig\",\n"
                        "    \"AutoModel\": \"modeling_k2_horizon.K2HorizonModel\",\n"
                        "    \"AutoModelForCausalLM\": \"modeling_k2_horizon.K2HorizonForCausalLM\"\n"
                        "  },\n");
    }
    put_u64(t, "bos_token_id", 0);
    put_u64(t, "decoder_sparse_step", 1);
    put_raw(t, "dtype", k->has_yarn ? "\"float32\"" : "\"bfloat16\""); /* the 0.9B's says so of BF16 tensors */
    put_u64(t, "eos_token_id", 1);
    put_u64(t, "head_dim", k->head_dim);
    put_raw(t, "hidden_act", "\"silu\"");
    put_u64(t, "hidden_size", k->hidden);
    if (!k->is_tiny) put_raw(t, "initializer_range", k->has_code ? "0.02" : "0.01");
    put_u64(t, "intermediate_size", k->ffn);
    put_u64(t, "layernorm_num_groups", k->n_groups);
    put_u64(t, "max_position_embeddings", k->max_position);
}

static void put_experts(bt_text *t, const k2_numbers *k, const bt_preset_choice *c)
{
    put_raw(t, "model_type", "\"k2_horizon\"");
    put_bool(t, "moe_gate_bias", k->n_experts > 0);
    put_u64(t, "moe_intermediate_size", k->expert_ffn);
    put_u64(t, "mova_num_experts", k->n_values == 0 ? 0 : values_of(k, c));
    put_u64(t, "mova_num_experts_per_tok", k->n_values_active);
    put_bool(t, "norm_topk_prob", true);
    put_u64(t, "num_attention_heads", k->n_heads);
    put_u64(t, "num_experts", experts_of(k, c));
    put_u64(t, "num_experts_per_tok", k->n_active);
    put_u64(t, "num_hidden_layers", layers_of(k, c));
    put_u64(t, "num_key_value_heads", k->n_kv);
    put_u64(t, "num_shared_experts", k->n_shared);
    if (!k->is_tiny) put_bool(t, "output_router_logits", false);
}

static void k2_config(const void *numbers, const bt_preset_choice *c, const bt_tensor_list *list, bt_text *t)
{
    const k2_numbers *k = numbers;
    put_first_keys(t, k);
    put_dense_layers(t, dense_of(k, c));
    put_experts(t, k, c);
    if (k->pad == BT_NONE)
        put_raw(t, "pad_token_id", "null");
    else
        put_u64(t, "pad_token_id", k->pad);
    if (c->fp8 && list != NULL && k->n_experts == 0) put_compressed_tensors(t);
    if (c->fp8 && list != NULL && k->n_experts > 0) put_fp8(t, k, list);
    put_bool(t, "query_key_norm", false);
    put_raw(t, "rms_norm_eps", "1e-06");
    put_u64(t, "rope_head_dim", k->rope_dim);
    put_rope(t, k);
    if (!k->is_tiny) put_raw(t, "router_aux_loss_coef", k->has_code ? "0.001" : "0.0001");
    if (k->n_experts == 0)
        put_raw(t, "router_scaling_factor", k->is_tiny ? "null" : "1.0");
    else
        put_raw(t, "router_scaling_factor", "2.5");
    put_raw(t, "router_score_func", "\"sigmoid\"");
    put_raw(t, "sliding_window", "null");
    put_bool(t, "tie_word_embeddings", false);
    put_raw(t, "transformers_version", "\"5.13.0\"");
    if (!k->is_tiny) put_bool(t, "use_cache", true);
    put_bool(t, "use_sliding_window", false);
    bt_text_printf(t, "  \"vocab_size\": %" PRIu32 "\n}\n", k->n_vocab);
}

/* ---- weights and ids -------------------------------------------------------------------------------------------- */

static double deviation_of(const k2_numbers *k, const bt_preset_choice *c, const bt_tensor_spec *s)
{
    double by_inputs = 1 / sqrt((double)s->n_cols), by_depth = 1 / sqrt(2 * (double)layers_of(k, c));
    if (s->class == BT_CLASS_NORM) return 0.1;
    if (s->class == BT_CLASS_EMBEDDING) return 1;
    if (s->class == BT_CLASS_ROUTER && s->is_vector) return 0.005; /* scores differ by a few tenths */
    if (s->class == BT_CLASS_ROUTER || s->class == BT_CLASS_VALUES) return by_inputs;
    if (bt_preset_ends_with(s, "o_proj.weight")) return by_inputs * by_depth * ATTENTION_PART;
    if (bt_preset_ends_with(s, "down_proj.weight")) return by_inputs * by_depth;
    return 2 * by_inputs;
}

static bt_filling k2_filling(const void *numbers, const bt_preset_choice *c, const bt_tensor_spec *s)
{
    const k2_numbers *k = numbers;
    return (bt_filling){
        .mean = s->class == BT_CLASS_NORM ? 1 : 0,
        .deviation = (float)deviation_of(k, c, s),
        .dtype = c->fp8 && k2_is_fp8(k, s) ? BT_F8_E4M3 : BT_BF16,
        .scale_suffix = k->n_experts > 0 ? "_scale_inv" : "_scale",
        .scale_dtype = k->n_experts > 0 ? BT_F32 : BT_BF16,
    };
}

static void k2_generation_config(const void *numbers, bt_text *t)
{
    const k2_numbers *k = numbers;
    bt_text_printf(t,
                   "{\n  \"bos_token_id\": 0,\n  \"do_sample\": true,\n  \"eos_token_id\": [\n    1,\n    %" PRIu32
                   "\n  ],\n  \"temperature\": 1.0,\n  \"top_p\": 0.95\n}\n",
                   k->im_start + 1);
}

static bt_synth_vocab k2_vocab(const void *numbers)
{
    const k2_numbers *k = numbers;
    return (bt_synth_vocab){.scheme = BT_SCHEME_K2,
                            .n_ids = k->n_vocab,
                            .im_start = k->im_start,
                            .think = k->think,
                            .pad = k->pad,
                            .max_position = k->max_position};
}

/* ---- the rows --------------------------------------------------------------------------------------------------- */

#define K2(preset_name, preset_numbers)                                                                                \
    {                                                                                                                  \
        .name = preset_name, .numbers = &preset_numbers, .check = k2_check, .config = k2_config,                       \
        .generation_config = k2_generation_config, .filling = k2_filling, .vocab = k2_vocab                            \
    }

const bt_preset bt_presets_k2[] = {
    K2("k2-0.9b", k2_0_9b),         K2("k2-3.7b", k2_3_7b), K2("k2-7b", k2_7b),     K2("k2-32b", k2_32b),
    K2("k2-mova-36b", k2_mova_36b), K2("k2-375b", k2_375b), K2("k2-tiny", k2_tiny), K2("k2-mova-tiny", k2_mova_tiny),
};
const size_t bt_presets_k2_n = sizeof bt_presets_k2 / sizeof *bt_presets_k2;
