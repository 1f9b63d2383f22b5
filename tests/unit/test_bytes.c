/*
 * The bytes that a step counts as read equal what the configuration says, class by class. The expectation here is
 * worked out from config.json and the dtypes of the stored tensors alone: it knows nothing of the tape or the list of
 * tensors.
 */
#include "model_unit.h"

#include "base/rng.h"
#include "format/config.h"
#include "session/engine.h"

static bt_error e;

typedef struct numbers {
    uint64_t vocab, hidden, layers, heads, kv, head_dim, ffn, experts, active, shared, expert_ffn, values, value_active,
        step;
    bool gate, qk_norm, bias, tied;
    int32_t dense[64];
    size_t n_dense;
} numbers;

static uint64_t number(bt_scope s, const char *key, uint64_t fallback)
{
    uint64_t v = fallback;
    assert_int_equal(bt_get_u64(s, key, 0, UINT32_MAX, &v, &(bool){false}, &e), BT_OK);
    return v;
}

static bool flag(bt_scope s, const char *key)
{
    bool v = false;
    assert_int_equal(bt_get_bool(s, key, &v, &(bool){false}, &e), BT_OK);
    return v;
}

static numbers read_numbers(const char *model)
{
    char path[256];
    bt_config *c = NULL;
    const char *gate = NULL;
    (void)snprintf(path, sizeof path, UNIT_MODELS "%s/config.json", model);
    if (bt_config_open(path, &c, &e) != BT_OK) fail_msg("%s", e.message);
    bt_scope s = {c, bt_config_root(c), NULL};
    numbers n = {
        .vocab = number(s, "vocab_size", 0),
        .hidden = number(s, "hidden_size", 0),
        .layers = number(s, "num_hidden_layers", 0),
        .heads = number(s, "num_attention_heads", 0),
        .ffn = number(s, "intermediate_size", 0),
        .experts = number(s, "num_experts", 0),
        .active = number(s, "num_experts_per_tok", 8),
        .shared = number(s, "num_shared_experts", 0),
        .expert_ffn = number(s, "moe_intermediate_size", 768),
        .values = number(s, "mova_num_experts", 0),
        .value_active = number(s, "mova_num_experts_per_tok", 0),
        .step = number(s, "decoder_sparse_step", 1),
        .qk_norm = flag(s, "query_key_norm"),
        .bias = flag(s, "moe_gate_bias"),
        .tied = flag(s, "tie_word_embeddings"),
    };
    n.kv = number(s, "num_key_value_heads", n.heads);
    n.head_dim = number(s, "head_dim", n.hidden / n.heads);
    assert_int_equal(bt_get_string(s, "attention_gate_func", &gate, &(bool){false}, &e), BT_OK);
    n.gate = gate != NULL;
    assert_int_equal(bt_get_ids(s, "mlp_only_layers", n.dense, 64, &n.n_dense, &e), BT_OK);
    bt_config_close(c);
    return n;
}

/* Bytes of a stored matrix with its scales; `layer` and the middle of its name find it. */
static uint64_t stored(const bt_model *m, uint64_t rows, uint64_t cols, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static uint64_t stored(const bt_model *m, uint64_t rows, uint64_t cols, const char *format, ...)
{
    char name[256], scale[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const bt_tensor *t = bt_tensors_find(m->tensors, name);
    if (t == NULL) fail_msg("%s is not there", name);
    uint64_t bytes = rows * cols * bt_dtype_bits((bt_dtype)t->dtype) / 8;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(scale, sizeof scale, "%s_scale%s", name, i == 0 ? "" : "_inv");
        const bt_tensor *s = bt_tensors_find(m->tensors, scale);
        if (s != NULL) bytes += (rows + 127) / 128 * ((cols + 127) / 128) * bt_dtype_bits((bt_dtype)s->dtype) / 8;
    }
    return bytes;
}

static bool is_sparse(const numbers *n, uint64_t layer)
{
    for (size_t i = 0; i < n->n_dense; i++)
        if ((uint64_t)n->dense[i] == layer) return false;
    return n->experts > 0 && (layer + 1) % n->step == 0;
}

/* What one layer reads for one token with `length` positions before and with it. All experts of a layer are stored
 * alike, so the first stands for those chosen. */
static void add_layer(const bt_model *m, const numbers *n, uint64_t i, uint64_t length, uint64_t kv_element,
                      bt_traffic *t)
{
    unsigned l = (unsigned)i;
    uint64_t q = n->heads * n->head_dim, kv = n->kv * n->head_dim, h = n->hidden;
    uint64_t *w = t->weights;
    bool sparse = is_sparse(n, i);
#define STORED(rows, cols, name) stored(m, rows, cols, "model.layers.%u." name ".weight", l)
    w[BT_CLASS_NORM] += 2 * h * 4; /* kept as f32 */
    w[BT_CLASS_ATTENTION] += STORED(q, h, "self_attn.q_proj") + STORED(kv, h, "self_attn.k_proj");
    w[BT_CLASS_ATTENTION] += STORED(h, q, "self_attn.o_proj");
    if (n->gate) w[BT_CLASS_ATTENTION] += STORED(q, h, "self_attn.gate_proj");
    if (n->qk_norm) w[BT_CLASS_NORM] += (q + kv) * 4;
    if (sparse && n->values > 0) {
        w[BT_CLASS_ROUTER] += STORED(n->values, h, "self_attn.v_router") + (n->bias ? n->values * 4 : 0);
        w[BT_CLASS_VALUES] += n->value_active * STORED(kv, h, "self_attn.v_experts.0");
    } else {
        w[BT_CLASS_ATTENTION] += STORED(kv, h, "self_attn.v_proj");
    }
    t->kv += 2 * kv * length * kv_element;
    if (!sparse) {
        w[BT_CLASS_DENSE] += STORED(n->ffn, h, "mlp.gate_proj") + STORED(n->ffn, h, "mlp.up_proj");
        w[BT_CLASS_DENSE] += STORED(h, n->ffn, "mlp.down_proj");
        return;
    }
    uint64_t f = n->expert_ffn;
    w[BT_CLASS_ROUTER] += STORED(n->experts, h, "mlp.gate") + (n->bias ? n->experts * 4 : 0);
    w[BT_CLASS_EXPERTS] +=
        n->active * (STORED(f, h, "mlp.experts.0.gate_proj") + STORED(f, h, "mlp.experts.0.up_proj") +
                     STORED(h, f, "mlp.experts.0.down_proj"));
    if (n->shared == 0) return;
    f *= n->shared;
    w[BT_CLASS_SHARED] += STORED(f, h, "mlp.shared_experts.gate_proj") + STORED(f, h, "mlp.shared_experts.up_proj");
    w[BT_CLASS_SHARED] += STORED(h, f, "mlp.shared_experts.down_proj");
}

static bt_traffic expect(const bt_model *m, const numbers *n, uint64_t length, uint64_t kv_element)
{
    bt_traffic t = {.kv = 0};
    const char *head = n->tied ? "model.embed_tokens.weight" : "lm_head.weight";
    t.weights[BT_CLASS_EMBEDDING] = stored(m, 1, n->hidden, "model.embed_tokens.weight");
    t.weights[BT_CLASS_HEAD] = stored(m, n->vocab, n->hidden, "%s", head);
    t.weights[BT_CLASS_NORM] = n->hidden * 4;
    for (uint64_t i = 0; i < n->layers; i++) add_layer(m, n, i, length, kv_element, &t);
    return t;
}

/* What the next id costs after `length` - 1 of them. */
static bt_traffic measure(bt_engine *g, uint64_t length)
{
    bt_session *s = unit_open_session(g);
    bt_traffic before, after;
    size_t n_vocab = bt_model_n_vocab(g->model);
    for (uint64_t i = 0; i < length; i++) {
        int32_t id = (int32_t)(bt_rng_u64(5, i) % n_vocab);
        bt_engine_traffic(g, &before);
        assert_int_equal(bt_session_extend(s, &id, 1, NULL, &e), BT_OK);
        bt_engine_traffic(g, &after);
    }
    bt_session_close(s);
    for (size_t c = 0; c < BT_N_CLASSES; c++) after.weights[c] -= before.weights[c];
    after.kv -= before.kv;
    return after;
}

static void assert_same(const char *model, const bt_traffic *got, const bt_traffic *expected)
{
    for (size_t c = 0; c < BT_N_CLASSES; c++)
        if (got->weights[c] != expected->weights[c])
            fail_msg("%s, class %zu: %llu bytes counted, %llu expected", model, c, (unsigned long long)got->weights[c],
                     (unsigned long long)expected->weights[c]);
    if (got->kv != expected->kv)
        fail_msg("%s: %llu bytes of keys and values counted, %llu expected", model, (unsigned long long)got->kv,
                 (unsigned long long)expected->kv);
}

static void counts_equal_the_configuration(void **state)
{
    (void)state;
    static const char *const models[] = {
        "k2-dense",      "k2-f32",         "k2-fp8",       "k2-moe",        "k2-mova",          "k2-mova-fp8",
        "k2-normgate",   "k2-softmax",     "k2-yarn",      "own-llama",     "own-llama-untied", "own-moe-first",
        "own-moe-step3", "own-fp8-ragged", "own-fp8-bf16", "own-mova-top1", "own-mixed",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        bt_model *m = unit_open_model(models[i]);
        numbers n = read_numbers(models[i]);
        for (size_t threads = 1; threads <= 3; threads++) {
            uint64_t length = threads == 2 ? 150 : 7; /* more than one tile of keys */
            bt_engine_options o = {.n_threads = threads, .context = 160, .kv_dtype = threads == 3 ? "bf16" : "f32"};
            bt_engine *g = unit_open_engine(m, o);
            bt_traffic got = measure(g, length), expected = expect(m, &n, length, threads == 3 ? 2 : 4);
            assert_same(models[i], &got, &expected);
            bt_engine_close(g);
        }
        bt_model_close(m);
    }
}

#ifdef BT_TEST_BUILD
static void a_skipped_layer_is_not_counted(void **state)
{
    (void)state;
    static const char *const models[] = {"k2-dense", "k2-mova", "k2-softmax"};
    for (size_t i = 0; i < 3; i++) {
        numbers n = read_numbers(models[i]);
        for (uint64_t skipped = 0; skipped < 2; skipped++) {
            char fault[32];
            (void)snprintf(fault, sizeof fault, "skip_layer=%d", (int)skipped);
            bt_model *m = unit_open_model_ablated(models[i], fault);
            bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 2, .context = 16});
            bt_traffic got = measure(g, 9), expected = expect(m, &n, 9, 4), less = {.kv = 0};
            add_layer(m, &n, skipped, 9, 4, &less);
            assert_true(less.weights[BT_CLASS_ATTENTION] > 0);
            for (size_t c = 0; c < BT_N_CLASSES; c++) expected.weights[c] -= less.weights[c];
            expected.kv -= less.kv;
            assert_same(models[i], &got, &expected);
            bt_engine_close(g);
            bt_model_close(m);
        }
    }
}
#endif

/* A prompt in one step reads each weight once, whatever its length; keys of all queries' tiles are counted. */
static void a_prompt_reads_weights_once(void **state)
{
    (void)state;
    bt_model *m = unit_open_model("k2-dense");
    numbers n = read_numbers("k2-dense");
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 2, .context = 40});
    bt_session *s = unit_open_session(g);
    int32_t ids[40] = {0};
    bt_traffic before, after, expected = expect(m, &n, 1, 4);
    bt_engine_traffic(g, &before);
    assert_int_equal(bt_session_extend(s, ids, 40, NULL, &e), BT_OK);
    bt_engine_traffic(g, &after);
    for (size_t c = BT_CLASS_ATTENTION; c < BT_N_CLASSES; c++)
        assert_true(after.weights[c] - before.weights[c] == expected.weights[c]);
    assert_true(after.weights[BT_CLASS_EMBEDDING] - before.weights[BT_CLASS_EMBEDDING] ==
                40 * expected.weights[BT_CLASS_EMBEDDING]);
    uint64_t layer = n.hidden * n.head_dim * (2 * n.heads + 2 * n.kv) + 3 * n.hidden * n.ffn;
    uint64_t pairs = n.layers * n.heads * 40 * 41 / 2; /* of query and key */
    assert_true(after.flops - before.flops ==
                2 * (40 * n.layers * layer + n.vocab * n.hidden) + 4 * n.head_dim * pairs);
    bt_session_close(s);
    bt_engine_close(g);
    bt_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_equal_the_configuration),
#ifdef BT_TEST_BUILD
        cmocka_unit_test(a_skipped_layer_is_not_counted),
#endif
        cmocka_unit_test(a_prompt_reads_weights_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
