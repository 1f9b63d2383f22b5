/*
 * The quantization_config block. Which tensors are FP8 is the headers' word alone; what this block adds is how codes
 * and scales are meant, and that must be the one way that we read: E4M3, symmetric, one scale per 128 x 128 block.
 * Activations are never quantised here, so a dynamic activation scheme changes nothing; a static one, or one for the
 * cache, would.
 */
#include "model/quantization.h"

#include <string.h>

#include "base/error.h"
#include "format/dtype.h"

static bt_status refuse(const bt_config *c, const char *key, const char *want, bt_error *e)
{
    return bt_fail(e, BT_ERR_UNSUPPORTED, "%s: quantization_config %s is not %s, the only one supported",
                   bt_config_file(c), key, want);
}

static bool is_number(const bt_json_node *n, uint64_t want)
{
    uint64_t v = 0;
    return n->kind == BT_JSON_NUMBER && bt_json_u64(n->text, n->size, &v) && v == want;
}

static bool is_block_128(const bt_json_node *n)
{
    return n->kind == BT_JSON_ARRAY && n->n_children == 2 && is_number(n->child, BT_SCALE_BLOCK) &&
           is_number(n->child->next, BT_SCALE_BLOCK);
}

/* A member that is there and not null. */
static const bt_json_node *given(const bt_json_node *object, const char *key)
{
    const bt_json_node *n = bt_json_get(object, key);
    return n != NULL && n->kind != BT_JSON_NULL ? n : NULL;
}

static bool is_text(const bt_json_node *n, const char *want)
{
    return n->kind == BT_JSON_STRING && strcmp(n->text, want) == 0;
}

/* MXFP4: two E2M1 codes a byte, an E8M0 scale for every 32 of a row. Which tensors are packed is again the headers'
 * word: the release's own list of exceptions names not all of them. */
static bt_status check_packed_weights(const bt_config *c, const bt_json_node *w, bt_error *e)
{
    const bt_json_node *bits = given(w, "num_bits"), *type = given(w, "type"), *strategy = given(w, "strategy");
    const bt_json_node *size = given(w, "group_size"), *symmetric = given(w, "symmetric");
    if (bits != NULL && !is_number(bits, 4)) return refuse(c, "weights.num_bits", "4", e);
    if (type != NULL && !is_text(type, "float")) return refuse(c, "weights.type", "float", e);
    if (strategy != NULL && !is_text(strategy, "group")) return refuse(c, "weights.strategy", "group", e);
    if (size != NULL && !is_number(size, BT_MXFP4_BLOCK)) return refuse(c, "weights.group_size", "32", e);
    if (symmetric != NULL && symmetric->kind != BT_JSON_TRUE) return refuse(c, "weights.symmetric", "true", e);
    return BT_OK;
}

/* The weights of one group of compressed-tensors. */
static bt_status check_weights(const bt_config *c, const bt_json_node *w, bt_error *e)
{
    const bt_json_node *bits = given(w, "num_bits"), *type = given(w, "type"), *strategy = given(w, "strategy");
    const bt_json_node *block = given(w, "block_structure"), *symmetric = given(w, "symmetric");
    if (bits != NULL && !is_number(bits, 8)) return refuse(c, "weights.num_bits", "8", e);
    if (type != NULL && !is_text(type, "float")) return refuse(c, "weights.type", "float", e);
    if (strategy != NULL && !is_text(strategy, "block")) return refuse(c, "weights.strategy", "block", e);
    if (block != NULL && !is_block_128(block)) return refuse(c, "weights.block_structure", "[128, 128]", e);
    if (symmetric != NULL && symmetric->kind != BT_JSON_TRUE) return refuse(c, "weights.symmetric", "true", e);
    return BT_OK;
}

static bt_status check_compressed(const bt_config *c, const bt_json_node *q, bool may_pack, bt_error *e)
{
    const bt_json_node *format = given(q, "format"), *groups = given(q, "config_groups");
    bool is_packed = may_pack && format != NULL && is_text(format, "mxfp4-pack-quantized");
    if (format != NULL && !is_packed && !is_text(format, "float-quantized")) {
        return bt_fail(e, BT_ERR_UNSUPPORTED, "%s: quantization_config.format \"%s\" is not supported (%s)",
                       bt_config_file(c), format->kind == BT_JSON_STRING ? format->text : "?",
                       may_pack ? "float-quantized and mxfp4-pack-quantized are" : "float-quantized is");
    }
    for (const bt_json_node *g = groups == NULL ? NULL : groups->child; g != NULL; g = g->next) {
        const bt_json_node *w = given(g, "weights");
        bt_status st = w == NULL ? BT_OK : is_packed ? check_packed_weights(c, w, e) : check_weights(c, w, e);
        if (st != BT_OK) return st;
    }
    return BT_OK;
}

static bt_status check_fp8(const bt_config *c, const bt_json_node *q, bt_error *e)
{
    const bt_json_node *block = given(q, "weight_block_size"), *activations = given(q, "activation_scheme");
    if (block == NULL || !is_block_128(block)) return refuse(c, "weight_block_size", "[128, 128]", e);
    if (activations != NULL && !is_text(activations, "dynamic")) return refuse(c, "activation_scheme", "dynamic", e);
    return BT_OK;
}

bt_status bt_quantization_check(bt_scope scope, bool may_pack, bt_error *e)
{
    const bt_config *c = scope.config;
    bt_scope q;
    const char *method = NULL;
    bt_status st = bt_get_scope(scope, "quantization_config", &q, e);
    if (st != BT_OK || q.object == NULL) return st;
    st = bt_get_string(q, "quant_method", &method, NULL, e);
    if (st != BT_OK) return st;
    if (given(q.object, "kv_cache_scheme") != NULL) return refuse(c, "kv_cache_scheme", "null", e);
    if (strcmp(method, "fp8") == 0) return check_fp8(c, q.object, e);
    if (strcmp(method, "compressed-tensors") == 0) return check_compressed(c, q.object, may_pack, e);
    return bt_fail(e, BT_ERR_UNSUPPORTED,
                   "%s: quantization_config.quant_method \"%s\" is not supported (compressed-tensors and fp8 are)",
                   bt_config_file(c), method);
}
