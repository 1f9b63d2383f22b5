/*
 * Opening models: configs that must be refused by the key at fault (tests/data/refusals.json), spellings that must mean
 * the same (tests/data/equivalents.json, cases C16-C20), tensors that do not fit, all in one message.
 */
#include "model_unit.h"

#include <dirent.h>
#include <jansson.h>

/* A folder with the files of a checkpoint as links and a config of its own. */
typedef struct variant {
    char *folder;
} variant;

static json_t *load_file(const char *path)
{
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    if (j == NULL) fail_msg("%s: %s", path, e.text);
    return j;
}

static json_t *load_config(const char *model)
{
    char path[512];
    (void)snprintf(path, sizeof path, UNIT_MODELS "%s/config.json", model);
    return load_file(path);
}

static void write_json(const char *folder, const char *name, const json_t *j)
{
    char *text = json_dumps(j, JSON_INDENT(1));
    assert_non_null(text);
    unit_write_file(folder, name, text, strlen(text));
    free(text);
}

/* Sets or removes a member; a dot in the path leads into an object. */
static void change_config(json_t *config, const char *path, json_t *value)
{
    const char *dot = strchr(path, '.');
    if (dot != NULL) {
        char *member = strndup(path, (size_t)(dot - path));
        assert_non_null(member);
        json_t *object = json_object_get(config, member);
        free(member);
        assert_true(json_is_object(object));
        change_config(object, dot + 1, value);
        return;
    }
    bool gone = json_is_string(value) && strcmp(json_string_value(value), "__delete__") == 0;
    assert_int_equal(gone ? (json_object_del(config, path), 0) : json_object_set(config, path, value), 0);
}

/* A copy of `base` whose config has the keys of `change` (NULL: none) instead of its own. */
static variant make_variant(const char *base, const json_t *change)
{
    variant v = {unit_make_folder()};
    char command[9000], *here = realpath(UNIT_MODELS, NULL);
    (void)snprintf(command, sizeof command, "ln -s '%s/%s'/* '%s' && rm '%s/config.json'", here, base, v.folder,
                   v.folder);
    free(here);
    assert_int_equal(system(command), 0);
    json_t *config = load_config(base);
    const char *key;
    json_t *value, *copy = change == NULL ? json_object() : json_deep_copy(change);
    json_object_foreach(copy, key, value) change_config(config, key, value);
    write_json(v.folder, "config.json", config);
    json_decref(copy);
    json_decref(config);
    return v;
}

static void drop_variant(variant v)
{
    unit_remove_folder(v.folder);
    free(v.folder);
}

static void test_refusals(void **state)
{
    (void)state;
    json_t *cases = load_file("tests/data/refusals.json"), *c;
    size_t i, n_faults = 0;
    json_array_foreach(cases, i, c)
    {
        const char *expect = json_string_value(json_object_get(c, "expect"));
        variant v = make_variant(json_string_value(json_object_get(c, "base")), json_object_get(c, "change"));
        bt_error e = {0};
        bt_model *m = NULL;
        bt_status st = bt_model_open(v.folder, NULL, &m, &e);
        bool good = (st == BT_ERR_FORMAT || st == BT_ERR_UNSUPPORTED) && strstr(e.message, expect) != NULL;
        if (!good) {
            print_error("%s: status %d, \"%s\" lacks \"%s\"\n", json_string_value(json_object_get(c, "name")), (int)st,
                        e.message, expect);
            n_faults++;
        }
        bt_model_close(m);
        drop_variant(v);
    }
    assert_true(i >= 50);
    json_decref(cases);
    assert_int_equal(n_faults, 0);
}

/* Logits of five ids under a changed config, to the bit as without the change. */
static void means_the_same(const char *base, const char *change)
{
    json_error_t je;
    json_t *j = json_loads(change, 0, &je);
    if (j == NULL) fail_msg("%s: %s", change, je.text);
    static const int32_t ids[] = {5, 9, 3, 77, 2};
    bt_error e = {0};
    bt_model *plain = unit_open_model(base), *m = NULL;
    variant v = make_variant(base, j);
    if (bt_model_open(v.folder, NULL, &m, &e) != BT_OK) fail_msg("%s with %s: %s", base, change, e.message);
    float *a = unit_logits(plain, (bt_engine_options){0}, ids, 5, 0),
          *b = unit_logits(m, (bt_engine_options){0}, ids, 5, 0);
    if (memcmp(a, b, 5 * bt_model_n_vocab(plain) * sizeof *a) != 0) fail_msg("%s with %s: other logits", base, change);
    free(a);
    free(b);
    bt_model_close(m);
    bt_model_close(plain);
    drop_variant(v);
    json_decref(j);
}

static void test_equivalents(void **state)
{
    (void)state;
    json_t *cases = load_file("tests/data/equivalents.json"), *c;
    size_t i;
    json_array_foreach(cases, i, c)
    {
        char *change = json_dumps(json_object_get(c, "change"), 0);
        assert_non_null(change);
        means_the_same(json_string_value(json_object_get(c, "base")), change);
        free(change);
    }
    assert_true(i >= 30);
    json_decref(cases);
}

static void test_c16_where_rope_lives(void **state)
{
    (void)state;
    means_the_same("k2-dense", "{\"rope_parameters\": \"__delete__\", \"rope_theta\": 1e7}");
    means_the_same("k2-dense", "{\"rope_parameters\": null, \"rope_scaling\": null, \"rope_theta\": 10000000}");
    means_the_same("k2-dense", "{\"rope_parameters\": {\"type\": \"default\", \"rope_theta\": 1e7}}");
    means_the_same("k2-dense", "{\"rope_parameters\": {\"rope_theta\": 1e7}, \"rope_scaling\": null}");
    means_the_same(
        "k2-dense",
        "{\"rope_parameters\": \"__delete__\", \"rope_scaling\": {\"rope_type\": \"default\", \"rope_theta\": 1e7}}");
    means_the_same("k2-dense", "{\"rope_theta\": 1e7}"); /* both, equal */
    means_the_same("k2-yarn",
                   "{\"rope_theta\": \"__delete__\", \"rope_parameters\": {\"type\": \"yarn\", \"factor\": 16, "
                   "\"original_max_position_embeddings\": 64, \"beta_fast\": 8, \"beta_slow\": 1, "
                   "\"attention_factor\": 1.2772588722239782, \"rope_theta\": 1000}}");
}

static void test_c20_dtype_is_the_headers(void **state)
{
    (void)state;
    means_the_same("k2-dense", "{\"dtype\": \"float16\"}");
    means_the_same("k2-dense", "{\"dtype\": \"__delete__\", \"torch_dtype\": \"torch.bfloat16\"}");
    means_the_same("k2-dense", "{\"dtype\": \"auto\", \"torch_dtype\": \"float32\"}");
    means_the_same("k2-dense", "{\"dtype\": \"__delete__\"}");
}

static void test_absent_keys_have_documented_defaults(void **state)
{
    (void)state;
    means_the_same("k2-f32",
                   "{\"query_key_norm\": \"__delete__\", \"attention_gate_func\": \"__delete__\", \"num_experts\": "
                   "\"__delete__\", \"moe_gate_bias\": null, \"tie_word_embeddings\": \"__delete__\", "
                   "\"rms_norm_eps\": \"__delete__\", \"rope_head_dim\": \"__delete__\", \"hidden_act\": null}");
    means_the_same("k2-moe",
                   "{\"mlp_only_layers\": \"__delete__\", \"num_dense_layers\": 1, \"decoder_sparse_step\": null}");
    means_the_same("k2-dense", "{\"an_unknown_key\": {\"deep\": [1, 2]}, \"head_dims\": 3, \"x\": -0.5}");
    means_the_same("own-llama", "{\"mlp_bias\": false, \"pretraining_tp\": 1}");
}

/* C15: a config written by Python. */
static void test_c15_bare_words(void **state)
{
    (void)state;
    variant v = make_variant("k2-dense", NULL);
    char path[5000], *text = NULL;
    json_t *config = load_config("k2-dense");
    char *dump = json_dumps(config, 0);
    const size_t text_bytes = strlen(dump) + 200;
    text = malloc(text_bytes);
    assert_non_null(text);
    (void)snprintf(text, text_bytes, "{\"time_step_limit\": [0.0, Infinity], \"x\": NaN, \"y\": -Infinity, %s",
                   dump + 1);
    unit_write_file(v.folder, "config.json", text, strlen(text));
    bt_error e = {0};
    bt_model *m = NULL;
    unit_ok(bt_model_open(v.folder, NULL, &m, &e), &e);
    bt_model_close(m);
    (void)snprintf(path, sizeof path, "%s/config.json", v.folder);
    free(text);
    free(dump);
    json_decref(config);
    drop_variant(v);
}

/* C17: the union of both files; 0 is an id; null and absent are none. */
static void end_ids(const char *eos, const char *generation, const int32_t *expected, size_t n_expected)
{
    json_error_t je;
    char change[256];
    (void)snprintf(change, sizeof change, "{\"eos_token_id\": %s}", eos);
    json_t *j = json_loads(change, 0, &je);
    assert_non_null(j);
    variant v = make_variant("k2-dense", j);
    json_decref(j);
    if (generation != NULL) unit_write_file(v.folder, "generation_config.json", generation, strlen(generation));
    bt_error e = {0};
    bt_model *m = NULL;
    unit_ok(bt_model_open(v.folder, NULL, &m, &e), &e);
    size_t n = 0;
    const int32_t *ids = bt_model_end_ids(m, &n);
    assert_int_equal(n, n_expected);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids[i], expected[i]);
    bt_model_close(m);
    drop_variant(v);
}

static void test_c17_end_ids(void **state)
{
    (void)state;
    end_ids("7", NULL, (int32_t[]){7}, 1);
    end_ids("[9, 7]", NULL, (int32_t[]){7, 9}, 2);
    end_ids("null", NULL, NULL, 0);
    end_ids("\"__delete__\"", "{\"eos_token_id\": [1, 250019]}", (int32_t[]){1, 250019}, 2);
    end_ids("0", NULL, (int32_t[]){0}, 1);
    end_ids("7", "{\"eos_token_id\": [7, 9]}", (int32_t[]){7, 9}, 2);
    end_ids("[]", "{}", NULL, 0);
}

static void test_generation_defaults(void **state)
{
    (void)state;
    variant v = make_variant("k2-dense", NULL);
    static const char text[] =
        "{\"do_sample\": true, \"temperature\": 1.0, \"top_p\": 0.95, \"top_k\": 64, \"min_p\": null}";
    unit_write_file(v.folder, "generation_config.json", text, sizeof text - 1);
    bt_error e = {0};
    bt_model *m = NULL;
    unit_ok(bt_model_open(v.folder, NULL, &m, &e), &e);
    const bt_generation_defaults *d = bt_model_generation_defaults(m);
    assert_true(d->has_do_sample && d->do_sample && d->has_temperature && d->has_top_p && d->has_top_k &&
                !d->has_min_p);
    assert_true(d->temperature == 1.0 && d->top_p == 0.95 && d->top_k == 64);
    bt_model_close(m);
    unit_write_file(v.folder, "generation_config.json", "{\"top_p\": \"high\"}", 17);
    m = NULL;
    assert_int_equal(bt_model_open(v.folder, NULL, &m, &e), BT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "top_p"));
    drop_variant(v);
}

/* C18: Llama's head_dim absent or null is hidden / heads; an explicit value wins (the tensors then tell). */
static void test_c18_head_dim(void **state)
{
    (void)state;
    json_t *config = load_config("own-llama");
    json_int_t hidden = json_integer_value(json_object_get(config, "hidden_size"));
    json_int_t heads = json_integer_value(json_object_get(config, "num_attention_heads"));
    char change[128];
    (void)snprintf(change, sizeof change, "{\"head_dim\": %d}", (int)(hidden / heads));
    means_the_same("own-llama", change);
    means_the_same("own-llama", "{\"head_dim\": null}");
    json_decref(config);
}

/* C19: a head stored beside a tied embedding: equal is fine, different is refused. */
static void test_c19_tied_head_stored(void **state)
{
    (void)state;
    bt_error e = {0};
    bt_model *m = unit_open_model("k2-softmax");
    bt_model_close(m);
    bt_tensors *t = NULL;
    unit_ok(bt_tensors_open(UNIT_MODELS "k2-softmax", &t, &e), &e);
    char *folder = unit_make_folder(), path[5000], command[9000], *here = realpath(UNIT_MODELS, NULL);
    (void)snprintf(command, sizeof command, "cp '%s/k2-softmax/config.json' '%s'", here, folder);
    assert_int_equal(system(command), 0);
    for (int equal = 1; equal >= 0; equal--) {
        size_t n = bt_tensors_count(t);
        bt_tensor_decl *decls = calloc(n + 1, sizeof *decls);
        for (size_t i = 0; i < n; i++) {
            const bt_tensor *s = bt_tensors_at(t, i);
            decls[i] = (bt_tensor_decl){.name = s->name, .dtype = (bt_dtype)s->dtype, .n_dims = s->n_dims};
            memcpy(decls[i].shape, s->shape, s->n_dims * sizeof *s->shape);
        }
        const bt_tensor *embed = bt_tensors_find(t, "model.embed_tokens.weight");
        decls[n] = (bt_tensor_decl){.name = "lm_head.weight", .dtype = (bt_dtype)embed->dtype, .n_dims = 2};
        memcpy(decls[n].shape, embed->shape, 2 * sizeof *embed->shape);
        bt_safetensors_writer *w = NULL;
        (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
        unit_ok(bt_safetensors_create(path, decls, n + 1, &w, &e), &e);
        for (size_t i = 0; i < n; i++) {
            const bt_tensor *s = bt_tensors_at(t, i);
            unit_ok(bt_safetensors_write(w, s->data, (size_t)s->size, &e), &e);
        }
        uint8_t *head = malloc((size_t)embed->size);
        memcpy(head, embed->data, (size_t)embed->size);
        if (!equal) head[embed->size / 2] ^= 1;
        unit_ok(bt_safetensors_write(w, head, (size_t)embed->size, &e), &e);
        unit_ok(bt_safetensors_finish(w, &e), &e);
        m = NULL;
        bt_status st = bt_model_open(folder, NULL, &m, &e);
        if (equal)
            unit_ok(st, &e);
        else
            assert_int_equal(st, BT_ERR_FORMAT);
        if (!equal) assert_non_null(strstr(e.message, "lm_head.weight"));
        bt_model_close(m);
        free(head);
        free(decls);
    }
    free(here);
    bt_tensors_close(t);
    unit_remove_folder(folder);
    free(folder);
}

/* Missing, misshapen and unknown tensors: one message names them all. */
static void test_tensors_that_do_not_fit(void **state)
{
    (void)state;
    json_error_t je;
    json_t *j = json_loads("{\"intermediate_size\": 161, \"query_key_norm\": true, \"num_hidden_layers\": 3}", 0, &je);
    variant v = make_variant("k2-dense", j);
    json_decref(j);
    bt_error e = {0};
    bt_model *m = NULL;
    assert_int_equal(bt_model_open(v.folder, NULL, &m, &e), BT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "model.layers.0.self_attn.q_norm.weight is missing"));
    assert_non_null(strstr(
        e.message, "model.layers.0.mlp.gate_proj.weight has shape [160, 96], the configuration makes it [161, 96]"));
    assert_non_null(strstr(e.message, "unknown"));
    assert_non_null(strstr(e.message, "model.layers.3."));
    drop_variant(v);
}

static void test_single_file(void **state)
{
    (void)state;
    bt_error e = {0};
    bt_model *m = NULL;
    unit_ok(bt_model_open(UNIT_MODELS "k2-yarn/model.safetensors", NULL, &m, &e), &e);
    assert_string_equal(bt_model_family(m), "k2_horizon");
    assert_string_equal(bt_model_folder(m), UNIT_MODELS "k2-yarn");
    assert_true(bt_model_n_parameters(m) > 100000);
    bt_model_close(m);
    m = NULL;
    assert_int_equal(bt_model_open(UNIT_MODELS "nothing-here", NULL, &m, &e), BT_ERR_IO);
    assert_int_equal(bt_model_open("tests", NULL, &m, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, "config.json"));
}

/* The same weights under another configuration are another model: what one computed must not serve the other. */
static void test_snapshot_of_another_configuration(void **state)
{
    (void)state;
    static const char *const changes[] = {"{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 500}}",
                                          "{\"rms_norm_eps\": 1e-5}", "{\"layernorm_num_groups\": 1}"};
    static const int32_t ids[] = {5, 9, 3, 77, 2};
    bt_error e = {0};
    bt_model *m = unit_open_model("k2-dense");
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.context = 8});
    bt_session *s = unit_open_session(g);
    void *data = NULL;
    size_t size = 0;
    unit_ok(bt_session_extend(s, ids, 5, NULL, &e), &e);
    unit_ok(bt_session_snapshot(s, &data, &size, &e), &e);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        json_t *change = json_loads(changes[i], 0, NULL);
        variant v = make_variant("k2-dense", change);
        bt_model *other = NULL;
        unit_ok(bt_model_open(v.folder, NULL, &other, &e), &e);
        bt_engine *other_engine = unit_open_engine(other, (bt_engine_options){.context = 8});
        bt_session *other_session = unit_open_session(other_engine);
        assert_int_equal(bt_session_restore(other_session, data, size, &e), BT_ERR_FORMAT);
        assert_non_null(strstr(e.message, "another model"));
        bt_session_close(other_session);
        bt_engine_close(other_engine);
        bt_model_close(other);
        drop_variant(v);
        json_decref(change);
    }
    bt_free(data);
    bt_session_close(s);
    bt_engine_close(g);
    bt_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_equivalents),
        cmocka_unit_test(test_c15_bare_words),
        cmocka_unit_test(test_c16_where_rope_lives),
        cmocka_unit_test(test_c17_end_ids),
        cmocka_unit_test(test_c18_head_dim),
        cmocka_unit_test(test_c19_tied_head_stored),
        cmocka_unit_test(test_c20_dtype_is_the_headers),
        cmocka_unit_test(test_absent_keys_have_documented_defaults),
        cmocka_unit_test(test_generation_defaults),
        cmocka_unit_test(test_tensors_that_do_not_fit),
        cmocka_unit_test(test_single_file),
        cmocka_unit_test(test_snapshot_of_another_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
