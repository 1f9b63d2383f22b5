/*
 * The presets of Kimi K3 and Kimi Linear: the release (2.8 trillion parameters, experts in MXFP4), its 0.40B twin,
 * three small models of made-up shapes that ablation tests run on, and of the elder the 48B release and the shape of
 * the test model kimi-linear. The keys of config.json are the vendor's, those alone that bear on inference.
 *
 * The spread of random weights is chosen, not copied (see presets_k2.c). Here the residual stream restarts at each
 * block from an attention output alone, so depth counts within a block. What KDA puts out is normed, so it is as large
 * for the first token as for the thousandth. Decays lie between a tenth and almost one a step, in all layers.
 */
#include "tool/presets.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"

typedef enum kimi_kind { KIMI_RELEASE, KIMI_TWIN, KIMI_MADE_UP, KIMI_LINEAR, KIMI_LINEAR_TINY } kimi_kind;

typedef struct kimi_numbers {
    kimi_kind kind;
    uint32_t n_vocab, hidden, ffn, n_layers;
    uint32_t n_heads, nope, rest, v_dim, q_lora, kv_lora; /* q_lora 0: a plain query */
    uint32_t kda_heads, kda_dim, a_log;                   /* a_log: elements stored of A_log; 0: one a head */
    uint32_t n_experts, n_active, n_shared, expert_ffn, latent;
    uint32_t block; /* layers per entry of the residual bank; 0: ordinary residuals */
    uint32_t max_position;
} kimi_numbers;

/* What attention adds to the stream is much the same for all tokens; see presets_k2.c. */
#define ATTENTION_PART 0.25

#define N_VOCAB 163840u

/* ---- the table -------------------------------------------------------------------------------------------------- */

static const kimi_numbers k3_full = {
    .kind = KIMI_RELEASE,
    .n_vocab = N_VOCAB,
    .hidden = 7168,
    .ffn = 33792,
    .n_layers = 93,
    .n_heads = 96,
    .nope = 128,
    .rest = 64,
    .v_dim = 128,
    .q_lora = 1536,
    .kv_lora = 512,
    .kda_heads = 96,
    .kda_dim = 128,
    .a_log = 128,
    .n_experts = 896,
    .n_active = 16,
    .n_shared = 2,
    .latent = 3584,
    .expert_ffn = 3072,
    .block = 12,
    .max_position = 1048576,
};

static const kimi_numbers k3_twin = {
    .kind = KIMI_TWIN,
    .n_vocab = N_VOCAB,
    .hidden = 1024,
    .ffn = 2048,
    .n_layers = 8,
    .n_heads = 8,
    .nope = 64,
    .rest = 32,
    .v_dim = 64,
    .q_lora = 256,
    .kv_lora = 128,
    .kda_heads = 8,
    .kda_dim = 32,
    .n_experts = 8,
    .n_active = 2,
    .n_shared = 1,
    .latent = 512,
    .expert_ffn = 256,
    .block = 4,
    .max_position = 4096,
};

static const kimi_numbers k3_tiny = {
    .kind = KIMI_MADE_UP,
    .n_vocab = 8,
    .hidden = 4,
    .ffn = 4,
    .n_layers = 8,
    .n_heads = 1,
    .nope = 2,
    .rest = 2,
    .v_dim = 2,
    .q_lora = 4,
    .kv_lora = 2,
    .kda_heads = 1,
    .kda_dim = 2,
    .n_experts = 2,
    .n_active = 1,
    .n_shared = 1,
    .latent = 4,
    .expert_ffn = 4,
    .block = 4,
};

static const kimi_numbers k3_small = {
    .kind = KIMI_MADE_UP,
    .n_vocab = 16,
    .hidden = 8,
    .ffn = 8,
    .n_layers = 8,
    .n_heads = 2,
    .nope = 4,
    .rest = 2,
    .v_dim = 4,
    .q_lora = 8,
    .kv_lora = 4,
    .kda_heads = 2,
    .kda_dim = 4,
    .n_experts = 2,
    .n_active = 1,
    .n_shared = 1,
    .latent = 8,
    .expert_ffn = 8,
    .block = 4,
};

static const kimi_numbers k3_prod_width = {
    .kind = KIMI_MADE_UP,
    .n_vocab = 256,
    .hidden = 7168,
    .ffn = 64,
    .n_layers = 2,
    .n_heads = 96,
    .nope = 2,
    .rest = 2,
    .v_dim = 2,
    .q_lora = 8,
    .kv_lora = 4,
    .kda_heads = 96,
    .kda_dim = 2,
    .n_experts = 8,
    .n_active = 2,
    .n_shared = 1,
    .latent = 64,
    .expert_ffn = 64,
    .block = 12,
};

static const kimi_numbers kimi_linear_tiny = {
    .kind = KIMI_LINEAR_TINY,
    .n_vocab = 320,
    .hidden = 64,
    .ffn = 96,
    .n_layers = 8,
    .n_heads = 4,
    .nope = 16,
    .rest = 8,
    .v_dim = 16,
    .kv_lora = 32,
    .kda_heads = 4,
    .kda_dim = 16,
    .n_experts = 8,
    .n_active = 3,
    .n_shared = 1,
    .expert_ffn = 32,
};

static const kimi_numbers kimi_linear_48b = {
    .kind = KIMI_LINEAR,
    .n_vocab = N_VOCAB,
    .hidden = 2304,
    .ffn = 9216,
    .n_layers = 27,
    .n_heads = 32,
    .nope = 128,
    .rest = 64,
    .v_dim = 128,
    .kv_lora = 512,
    .kda_heads = 32,
    .kda_dim = 128,
    .n_experts = 256,
    .n_active = 8,
    .n_shared = 1,
    .expert_ffn = 1024,
    .max_position = 1048576,
};

/* ---- the caller's choice ---------------------------------------------------------------------------------------- */

static bool is_linear(const kimi_numbers *k)
{
    return k->kind == KIMI_LINEAR || k->kind == KIMI_LINEAR_TINY;
}

static uint32_t layers_of(const kimi_numbers *k, const bt_preset_choice *c)
{
    return c->n_layers != 0 ? (uint32_t)c->n_layers : k->n_layers;
}

static uint32_t experts_of(const kimi_numbers *k, const bt_preset_choice *c)
{
    return c->n_experts != 0 ? (uint32_t)c->n_experts : k->n_experts;
}

/* Layers counted from 1: every fourth, and the last one of the whole model. */
static bool is_mla(const kimi_numbers *k, uint32_t layer)
{
    return layer % 4 == 0 || layer == k->n_layers;
}

static bt_status kimi_check(const void *numbers, const bt_preset_choice *c, bt_error *e)
{
    const kimi_numbers *k = numbers;
    if (c->fp8) return bt_fail(e, BT_ERR_USAGE, "this preset has no FP8 release: its weights are what they are");
    if (c->n_layers > k->n_layers)
        return bt_fail(e, BT_ERR_USAGE, "%zu layers: this preset has %u layers", c->n_layers, k->n_layers);
    if (c->n_experts != 0 && (c->n_experts < k->n_active || c->n_experts > k->n_experts))
        return bt_fail(e, BT_ERR_USAGE,
                       "%zu experts: each token goes to %u of this preset's %u experts, so %u to %u are possible",
                       c->n_experts, k->n_active, k->n_experts, k->n_active, k->n_experts);
    return BT_OK;
}

/* ---- config.json ------------------------------------------------------------------------------------------------ */

typedef struct config_text {
    bt_text *t;
    const char *indent;
    bool first;
} config_text;

static void key(config_text *o, const char *name)
{
    bt_text_printf(o->t, "%s%s\"%s\": ", o->first ? "" : ",\n", o->indent, name);
    o->first = false;
}

static void raw(config_text *o, const char *name, const char *value)
{
    key(o, name);
    bt_text_puts(o->t, value);
}

static void number(config_text *o, const char *name, uint64_t value)
{
    key(o, name);
    bt_text_printf(o->t, "%" PRIu64, value);
}

/* Of layers [1, n_layers], those of one kind. */
static void layer_list(config_text *o, const char *name, const kimi_numbers *k, uint32_t n_layers, bool mla)
{
    bool first = true;
    key(o, name);
    bt_text_puts(o->t, "[");
    for (uint32_t i = 1; i <= n_layers; i++) {
        if (is_mla(k, i) != mla) continue;
        bt_text_printf(o->t, "%s%" PRIu32, first ? "" : ", ", i);
        first = false;
    }
    bt_text_puts(o->t, "]");
}

static void linear_attention(config_text *o, const kimi_numbers *k, uint32_t n_layers)
{
    char indent[16];
    (void)snprintf(indent, sizeof indent, "%s  ", o->indent);
    config_text inner = {o->t, indent, true};
    raw(o, "linear_attn_config", "{\n");
    layer_list(&inner, "full_attn_layers", k, n_layers, true);
    if (k->kind == KIMI_RELEASE || k->kind == KIMI_MADE_UP) raw(&inner, "gate_lower_bound", "-5.0");
    number(&inner, "head_dim", k->kda_dim);
    layer_list(&inner, "kda_layers", k, n_layers, false);
    number(&inner, "num_heads", k->kda_heads);
    number(&inner, "short_conv_kernel_size", 4);
    if (!is_linear(k)) raw(&inner, "use_full_rank_gate", "true");
    bt_text_printf(o->t, "\n%s}", o->indent);
}

static void experts(config_text *o, const kimi_numbers *k, const bt_preset_choice *c)
{
    number(o, "moe_intermediate_size", k->expert_ffn);
    number(o, "moe_layer_freq", 1);
    raw(o, "moe_renormalize", "true");
    raw(o, "moe_router_activation_func", "\"sigmoid\"");
    number(o, "num_attention_heads", k->n_heads);
    number(o, "num_expert_group", 1);
    number(o, "num_experts", experts_of(k, c));
    number(o, "num_experts_per_token", k->n_active);
    number(o, "num_hidden_layers", layers_of(k, c));
    number(o, "num_key_value_heads", k->n_heads);
    if (k->kind != KIMI_LINEAR_TINY) number(o, "num_nextn_predict_layers", 0);
    number(o, "num_shared_experts", k->n_shared);
}

static void ids(config_text *o, const kimi_numbers *k, bool pad)
{
    static const uint32_t of_kind[][3] = {[KIMI_RELEASE] = {163584, 163586, 163839},
                                          [KIMI_TWIN] = {1, 2, 0}, /* left over from another model, as the vendor's */
                                          [KIMI_LINEAR] = {163584, 163586, 163839},
                                          [KIMI_LINEAR_TINY] = {300, 301, 319}};
    if (k->kind == KIMI_MADE_UP) return; /* no end token */
    if (pad) {
        number(o, "pad_token_id", of_kind[k->kind][2]);
        return;
    }
    number(o, "bos_token_id", of_kind[k->kind][0]);
    if (k->kind != KIMI_TWIN) raw(o, "dtype", "\"bfloat16\"");
    number(o, "eos_token_id", of_kind[k->kind][1]);
}

static void quantisation(config_text *o)
{
    raw(o, "quantization_config",
        "{\n"
        "      \"config_groups\": {\n"
        "        \"group_0\": {\n"
        "          \"format\": \"mxfp4-pack-quantized\",\n"
        "          \"input_activations\": null,\n"
        "          \"output_activations\": null,\n"
        "          \"targets\": [\"Linear\"],\n"
        "          \"weights\": {\n"
        "            \"actorder\": null,\n"
        "            \"block_structure\": null,\n"
        "            \"dynamic\": false,\n"
        "            \"group_size\": 32,\n"
        "            \"num_bits\": 4,\n"
        "            \"observer\": \"minmax\",\n"
        "            \"observer_kwargs\": {},\n"
        "            \"scale_dtype\": \"torch.uint8\",\n"
        "            \"strategy\": \"group\",\n"
        "            \"symmetric\": true,\n"
        "            \"type\": \"float\",\n"
        "            \"zp_dtype\": null\n"
        "          }\n"
        "        }\n"
        "      },\n"
        "      \"format\": \"mxfp4-pack-quantized\",\n"
        "      \"global_compression_ratio\": null,\n");
    bt_text_puts(o->t, "      \"ignore\": [\n"
                       "        \"re:.*self_attn.*\",\n"
                       "        \"re:.*shared_experts.*\",\n"
                       "        \"re:.*mlp\\\\.(gate|up|gate_up|down)_proj.*\",\n"
                       "        \"re:.*lm_head.*\",\n"
                       "        \"re:.*vision_tower.*\",\n"
                       "        \"re:.*mm_projector.*\"\n"
                       "      ],\n"
                       "      \"kv_cache_scheme\": null,\n"
                       "      \"quant_method\": \"compressed-tensors\",\n"
                       "      \"quantization_status\": \"compressed\"\n"
                       "    }");
}

/* The keys of the text model, in the order of the alphabet. */
static void text_model(config_text *o, const kimi_numbers *k, const bt_preset_choice *c)
{
    bool linear = is_linear(k), tiny = k->kind == KIMI_LINEAR_TINY;
    if (!linear) raw(o, "activation_situ_beta", "4.0");
    if (!linear) raw(o, "activation_situ_linear_beta", "25.0");
    if (linear || k->kind == KIMI_RELEASE) raw(o, "architectures", "[\"KimiLinearForCausalLM\"]");
    if (k->block > 0) number(o, "attn_res_block_size", k->block);
    ids(o, k, false);
    number(o, "first_k_dense_replace", 1);
    if (k->kind == KIMI_TWIN) number(o, "head_dim", 74); /* nothing reads it */
    raw(o, "hidden_act", linear ? "\"silu\"" : "\"situ\"");
    number(o, "hidden_size", k->hidden);
    if (!tiny) raw(o, "initializer_range", "0.02");
    number(o, "intermediate_size", k->ffn);
    number(o, "kv_lora_rank", k->kv_lora);
    if (!linear) raw(o, "latent_moe_use_norm", "true");
    linear_attention(o, k, layers_of(k, c));
    if (k->max_position > 0) number(o, linear ? "model_max_length" : "max_position_embeddings", k->max_position);
    raw(o, "mla_use_nope", "true");
    if (!linear) raw(o, "mla_use_output_gate", "true");
    raw(o, "model_type", "\"kimi_linear\"");
    experts(o, k, c);
    ids(o, k, true);
    if (k->q_lora > 0)
        number(o, "q_lora_rank", k->q_lora);
    else
        raw(o, "q_lora_rank", "null");
    number(o, "qk_nope_head_dim", k->nope);
    number(o, "qk_rope_head_dim", k->rest);
    if (k->kind == KIMI_RELEASE) quantisation(o);
    raw(o, "rms_norm_eps", "1e-05");
    if (!linear) number(o, "routed_expert_hidden_size", k->latent);
    raw(o, "routed_scaling_factor", linear ? "2.446" : "1.0");
    raw(o, "tie_word_embeddings", "false");
    number(o, "topk_group", 1);
    if (!tiny) raw(o, "topk_method", "\"noaux_tc\"");
    raw(o, "use_grouped_topk", "true");
    number(o, "v_head_dim", k->v_dim);
    number(o, "vocab_size", k->n_vocab);
}

static void kimi_config(const void *numbers, const bt_preset_choice *c, const bt_tensor_list *list, bt_text *t)
{
    const kimi_numbers *k = numbers;
    config_text outer = {t, "  ", true}, inner = {t, "    ", true};
    (void)list;
    bt_text_puts(t, "{\n");
    if (is_linear(k)) {
        text_model(&outer, k, c);
    } else {
        raw(&outer, "architectures", "[\"KimiK3ForConditionalGeneration\"]");
        if (k->kind == KIMI_RELEASE) {
            ids(&outer, k, false);
            raw(&outer, "image_placeholder", "\"<|kimi_image_placeholder|>\"");
            number(&outer, "media_placeholder_token_id", 163605);
        } else {
            raw(&outer, "dtype", k->kind == KIMI_TWIN ? "\"float32\"" : "\"bfloat16\"");
        }
        raw(&outer, "model_type", "\"kimi_k3\"");
        ids(&outer, k, true);
        raw(&outer, "text_config", "{\n");
        text_model(&inner, k, c);
        bt_text_puts(t, "\n  }");
        if (k->kind == KIMI_RELEASE) raw(&outer, "tie_word_embeddings", "false");
    }
    bt_text_puts(t, "\n}\n");
}

static void kimi_generation_config(const void *numbers, bt_text *t)
{
    const kimi_numbers *k = numbers;
    if (k->n_vocab != N_VOCAB) return;
    bt_text_puts(t, "{\n  \"do_sample\": true,\n  \"eos_token_id\": 163586,\n  \"temperature\": 1.0,\n"
                    "  \"top_p\": 1.0\n}\n");
}

/* ---- weights ---------------------------------------------------------------------------------------------------- */

static double deviation_of(const kimi_numbers *k, const bt_preset_choice *c, const bt_tensor_spec *s)
{
    uint32_t n_layers = layers_of(k, c), depth = k->block > 0 && k->block < n_layers ? k->block : n_layers;
    double by_inputs = 1 / sqrt((double)s->n_cols), by_depth = 1 / sqrt(2 * (double)depth);
    if (bt_preset_ends_with(s, "_res_proj.weight")) return by_inputs; /* scores of depth differ by one or so */
    if (s->class == BT_CLASS_NORM) return 0.1;
    if (s->class == BT_CLASS_EMBEDDING) return 1;
    if (s->class == BT_CLASS_ROUTER) return s->is_vector ? 0.005 : by_inputs;
    if (s->is_taps) return 0.5;
    if (bt_preset_ends_with(s, ".dt_bias")) return 1.5;
    if (bt_preset_ends_with(s, ".A_log")) return 0.5;
    if (bt_preset_ends_with(s, ".b_proj.weight") || bt_preset_ends_with(s, ".f_a_proj.weight") ||
        bt_preset_ends_with(s, ".f_b_proj.weight") || bt_preset_ends_with(s, ".g_a_proj.weight") ||
        bt_preset_ends_with(s, ".q_a_proj.weight") || bt_preset_ends_with(s, ".routed_expert_down_proj.weight"))
        return by_inputs;
    if (bt_preset_ends_with(s, ".o_proj.weight")) return by_inputs * by_depth * ATTENTION_PART;
    bool adds = bt_preset_ends_with(s, ".down_proj.weight") || bt_preset_ends_with(s, "_up_proj.weight") ||
                (k->latent == 0 && bt_preset_ends_with(s, ".w2.weight"));
    return adds ? by_inputs * by_depth : 2 * by_inputs;
}

static double mean_of(const bt_tensor_spec *s)
{
    if (bt_preset_ends_with(s, "_res_proj.weight")) return 0;
    if (bt_preset_ends_with(s, ".dt_bias")) return -3;
    return s->class == BT_CLASS_NORM ? 1 : 0;
}

/* What the releases keep in F32. */
static bool is_f32(const kimi_numbers *k, const bt_tensor_spec *s)
{
    if (bt_preset_ends_with(s, ".A_log") || bt_preset_ends_with(s, ".dt_bias") ||
        bt_preset_ends_with(s, ".e_score_correction_bias"))
        return true;
    return !is_linear(k) && (s->is_taps || bt_preset_ends_with(s, ".o_norm.weight"));
}

static bt_filling kimi_filling(const void *numbers, const bt_preset_choice *c, const bt_tensor_spec *s)
{
    const kimi_numbers *k = numbers;
    bt_filling f = {.mean = (float)mean_of(s), .deviation = (float)deviation_of(k, c, s), .dtype = BT_BF16};
    if (is_f32(k, s)) f.dtype = BT_F32;
    if (k->kind == KIMI_RELEASE && s->class == BT_CLASS_EXPERTS) f.dtype = BT_MXFP4;
    if (bt_preset_ends_with(s, ".A_log") && is_linear(k)) {
        f.n_dims = 4;
        f.shape[0] = f.shape[1] = f.shape[3] = 1;
        f.shape[2] = s->n_cols;
    } else if (bt_preset_ends_with(s, ".A_log") && k->a_log > 0) {
        f.n_dims = 1;
        f.shape[0] = k->a_log;
    }
    return f;
}

/* ---- ids -------------------------------------------------------------------------------------------------------- */

static const bt_named_id k3_special[] = {
    {163584, "[BOS]"},
    {163585, "[EOS]"},
    {163586, "<|end_of_msg|>"},
    {163587, "<|open|>"},
    {163588, "<|close|>"},
    {163589, "<|sep|>"},
    {163590, "[start_header_id]"},
    {163591, "[end_header_id]"},
    {163593, "[EOT]"},
    {163602, "<|media_begin|>"},
    {163603, "<|media_content|>"},
    {163604, "<|media_end|>"},
    {163605, "<|media_pad|>"},
    {163649, "<osagent_mode>"},
    {163838, "[UNK]"},
    {163839, "[PAD]"},
    {0, NULL},
};

static const bt_named_id linear_special[] = {
    {163584, "[BOS]"},
    {163585, "[EOS]"},
    {163586, "<|im_end|>"},
    {163587, "<|im_user|>"},
    {163588, "<|im_assistant|>"},
    {163590, "[start_header_id]"},
    {163591, "[end_header_id]"},
    {163593, "[EOT]"},
    {163594, "<|im_system|>"},
    {163595, "<|tool_calls_section_begin|>"},
    {163596, "<|tool_calls_section_end|>"},
    {163597, "<|tool_call_begin|>"},
    {163598, "<|tool_call_argument_begin|>"},
    {163599, "<|tool_call_end|>"},
    {163601, "<|im_middle|>"},
    {163838, "[UNK]"},
    {163839, "[PAD]"},
    {0, NULL},
};

/* The vocabularies of the made-up models and the test model have no room for bytes and 256 reserved ids. */
static bt_synth_vocab kimi_vocab(const void *numbers)
{
    const kimi_numbers *k = numbers;
    return (bt_synth_vocab){.scheme = k->n_vocab == N_VOCAB ? BT_SCHEME_TIKTOKEN : BT_SCHEME_NONE,
                            .n_ids = k->n_vocab,
                            .n_ranks = N_VOCAB - 256,
                            .special = is_linear(k) ? linear_special : k3_special,
                            .max_position = k->max_position};
}

/* Seeds of the made-up models: with these, each planted fault shows in 16 greedy tokens (test_kimi_ablation.c). */

/* ---- the rows --------------------------------------------------------------------------------------------------- */

#define KIMI(preset_name, preset_numbers, preset_seed)                                                                 \
    {                                                                                                                  \
        .name = preset_name, .numbers = &preset_numbers, .seed = preset_seed, .rest_apart = true, .check = kimi_check, \
        .config = kimi_config, .generation_config = kimi_generation_config, .filling = kimi_filling,                   \
        .vocab = kimi_vocab                                                                                            \
    }

const bt_preset bt_presets_kimi[] = {
    KIMI("k3-full", k3_full, 0),
    KIMI("k3-twin-0.4b", k3_twin, 0),
    KIMI("k3-tiny", k3_tiny, 6),
    KIMI("k3-small", k3_small, 1),
    KIMI("k3-prod-width", k3_prod_width, 0),
    KIMI("kimi-linear-48b", kimi_linear_48b, 0),
    KIMI("kimi-linear-tiny", kimi_linear_tiny, 0),
};
const size_t bt_presets_kimi_n = sizeof bt_presets_kimi / sizeof *bt_presets_kimi;
