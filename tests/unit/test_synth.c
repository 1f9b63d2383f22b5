/*
 * synth: the released sizes to the parameter, files that open and run, the same bytes from any number of threads,
 * random numbers that do not repeat, experts that are all used, and nothing left behind by a failure.
 */
#include "unit.h"

#include <dirent.h>
#include <math.h>

#include "backend/cpu/cpu.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/rng.h"
#include "session/engine.h"
#include "tool/synth.h"
#include "tool/synth_layout.h"
#include "tool/synth_tokenizer.h"

static bt_error e;

static const bt_preset *preset(const char *name)
{
    const bt_preset *p = NULL;
    if (bt_preset_find(name, &p, &e) != BT_OK) fail_msg("%s", e.message);
    return p;
}

static char *join(const char *folder, const char *name)
{
    char *path = bt_path_join(folder, name);
    assert_non_null(path);
    return path;
}

static bt_synth_report make(const char *path, const char *name, bt_preset_choice c, uint64_t seed, size_t n_threads)
{
    bt_synth_report r = {0};
    bt_synth_options o = {.folder = path, .preset = preset(name), .choice = c, .seed = seed, .n_threads = n_threads};
    if (bt_synth(&o, &r, &e) != BT_OK) fail_msg("%s: %s", name, e.message);
    return r;
}

static bt_model *open_model(const char *path)
{
    bt_model *m = NULL;
    if (bt_model_open(path, NULL, &m, &e) != BT_OK) fail_msg("%s", e.message);
    return m;
}

static char *read_file(const char *folder, const char *name, size_t *size)
{
    char *path = join(folder, name), *data = NULL;
    if (bt_read_file(path, (size_t)1 << 26, &data, size, &e) != BT_OK) fail_msg("%s", e.message);
    bt_free(path);
    return data;
}

static size_t n_entries(const char *folder)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    size_t n = 0;
    while (readdir(d) != NULL) n++;
    (void)closedir(d);
    return n - 2;
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

static void sizes_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t n_parameters;
        size_t n_shards;
        double fp8_gb;
    } expected[] = {
        {"k2-0.9b", 1078285824, 28, 0}, {"k2-3.7b", 5058255360, 36, 0},          {"k2-7b", 8999178240, 36, 11.05},
        {"k2-32b", 34779304960, 64, 0}, {"k2-mova-36b", 37444792020, 48, 48.35}, {"k2-375b", 379167159168, 61, 0},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        bt_synth_layout l;
        const bt_preset *p = preset(expected[i].name);
        if (bt_synth_layout_make(p, &(bt_preset_choice){0}, 0, &l, &e) != BT_OK) fail_msg("%s", e.message);
        assert_true(l.n_parameters == expected[i].n_parameters);
        assert_true(l.data_bytes == 2 * expected[i].n_parameters);
        assert_int_equal(l.n_shards, expected[i].n_shards);
        bt_synth_layout_free(&l);
        if (expected[i].fp8_gb <= 0) continue;
        if (bt_synth_layout_make(p, &(bt_preset_choice){.fp8 = true}, 0, &l, &e) != BT_OK) fail_msg("%s", e.message);
        assert_true(l.n_parameters == expected[i].n_parameters);
        assert_true(fabs((double)l.bytes / 1e9 - expected[i].fp8_gb) < 0.01);
        bt_synth_layout_free(&l);
    }
}

/* Kimi: the tensors of the release's index, less its vision part; their bytes sum to the published figure. */
static void sizes_of_kimi(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t n_parameters, data_bytes;
        size_t n_tensors, n_shards;
    } expected[] = {
        {"k3-full", 2779484476000, 1559965606912, 497220 - 168, 94},
        {"k3-twin-0.4b", 388598824, 777238176, 380, 9},
        {"k3-tiny", 2312, 5000, 254, 9},
        {"k3-small", 9850, 21048, 254, 9},
        {"k3-prod-width", 18047478, 36100160, 74, 3},
        {"kimi-linear-48b", 49122681728, 98245541888, 20493, 28},
        {"kimi-linear-tiny", 614576, 1230080, 325, 9},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        bt_synth_layout l;
        const bt_preset *p = preset(expected[i].name);
        if (bt_synth_layout_make(p, &(bt_preset_choice){0}, 0, &l, &e) != BT_OK) fail_msg("%s", e.message);
        assert_true(l.n_parameters == expected[i].n_parameters);
        assert_true(l.data_bytes == expected[i].data_bytes);
        assert_int_equal(l.n_tensors, expected[i].n_tensors);
        assert_int_equal(l.n_shards, expected[i].n_shards);
        bt_synth_layout_free(&l);
    }
}

/* Every matrix on a cache line, every byte of a shard accounted for. */
static void data_is_aligned(void **state)
{
    (void)state;
    for (size_t i = 0; i < bt_presets_count(); i++) {
        bt_synth_layout l;
        const bt_preset *p = bt_presets_at(i);
        bt_preset_choice c = {.n_layers = 5, .fp8 = i % 2 == 1 && strncmp(p->name, "k2-", 3) == 0};
        while (bt_synth_layout_make(p, &c, 0, &l, &e) != BT_OK) /* some have fewer */
            if (--c.n_layers < 2) fail_msg("%s", e.message);
        assert_int_equal(l.n_shards, c.n_layers + p->rest_apart);
        for (size_t k = 0; k < l.n_shards; k++) {
            const bt_synth_shard *s = &l.shards[k];
            uint64_t at = s->header.size;
            assert_int_equal(s->header.size % 64, 0);
            for (size_t j = 0; j < s->n_pieces; j++) {
                assert_true(s->pieces[j].begin == at);
                if ((s->pieces[j].end - at) % 64 == 0) assert_int_equal(at % 64, 0);
                at = s->pieces[j].end;
            }
            assert_true(at == s->bytes);
        }
        bt_synth_layout_free(&l);
    }
}

static bt_status choose(const char *name, size_t n_layers, size_t n_experts, bt_synth_layout *l)
{
    bt_preset_choice c = {.n_layers = n_layers, .n_experts = n_experts};
    return bt_synth_layout_make(preset(name), &c, 0, l, &e);
}

static void choices_change_the_config(void **state)
{
    (void)state;
    bt_synth_layout l;
    assert_int_equal(choose("k2-mova-36b", 4, 16, &l), BT_OK);
    assert_non_null(strstr(l.config.data, "\"num_hidden_layers\": 4,"));
    assert_non_null(strstr(l.config.data, "\"num_experts\": 16,"));
    assert_non_null(strstr(l.config.data, "\"mova_num_experts\": 16,"));
    bt_synth_layout_free(&l);
    assert_int_equal(choose("k2-mova-36b", 0, 80, &l), BT_OK);
    assert_non_null(strstr(l.config.data, "\"mova_num_experts\": 64,"));
    bt_synth_layout_free(&l);
    assert_int_equal(choose("k2-mova-36b", 2, 0, &l), BT_OK); /* dense layers only */
    assert_non_null(strstr(l.config.data, "\"mlp_only_layers\": [\n    0,\n    1\n  ],"));
    bt_synth_layout_free(&l);
    assert_int_equal(choose("k2-mova-36b", 0, 7, &l), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "each token goes to 8"));
    assert_int_equal(choose("k2-0.9b", 0, 8, &l), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "no experts"));
    assert_int_equal(choose("k2-mova-36b", 0, 101, &l), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "100"));
    assert_int_equal(choose("k2-0.9b", 29, 0, &l), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "28 layers"));
    const bt_preset *p;
    assert_int_equal(bt_preset_find("k2-9b", &p, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "k2-mova-tiny"));
}

static void choices_change_kimi_configs(void **state)
{
    (void)state;
    bt_synth_layout l;
    assert_int_equal(choose("k3-full", 5, 128, &l), BT_OK); /* the mix of layers stays */
    assert_non_null(strstr(l.config.data, "\"num_hidden_layers\": 5,"));
    assert_non_null(strstr(l.config.data, "\"num_experts\": 128,"));
    assert_non_null(strstr(l.config.data, "\"full_attn_layers\": [4],"));
    assert_non_null(strstr(l.config.data, "\"kda_layers\": [1, 2, 3, 5],"));
    bt_synth_layout_free(&l);
    assert_int_equal(choose("kimi-linear-48b", 0, 0, &l), BT_OK);
    assert_non_null(strstr(l.config.data, "\"full_attn_layers\": [4, 8, 12, 16, 20, 24, 27],"));
    bt_synth_layout_free(&l);
    assert_int_equal(choose("k3-full", 0, 15, &l), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "each token goes to 16"));
    assert_int_equal(choose("k3-full", 0, 897, &l), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "896"));
    assert_int_equal(choose("k3-full", 94, 0, &l), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "93 layers"));
    bt_preset_choice fp8 = {.fp8 = true};
    assert_int_equal(bt_synth_layout_make(preset("k3-full"), &fp8, 0, &l, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "no FP8 release"));
}

static bool same_tree(const bt_json_node *a, const bt_json_node *b)
{
    if (a == NULL || b == NULL || a->kind != b->kind || a->n_children != b->n_children) return a == b;
    bool has_text = a->kind == BT_JSON_STRING || a->kind == BT_JSON_NUMBER;
    if (has_text && (a->size != b->size || memcmp(a->text, b->text, a->size) != 0)) return false;
    const bt_json_node *y = b->child;
    for (const bt_json_node *x = a->child; x != NULL; x = x->next, y = y->next) {
        if (!same_tree(x, a->kind == BT_JSON_OBJECT ? bt_json_get(b, x->key) : y)) return false;
    }
    return true;
}

static void check_config(const char *name, const char *path)
{
    bt_synth_layout l;
    bt_config *ours = NULL, *theirs = NULL;
    assert_int_equal(choose(name, 0, 0, &l), BT_OK);
    assert_int_equal(bt_config_parse("ours", l.config.data, l.config.size, &ours, &e), BT_OK);
    assert_int_equal(bt_config_open(path, &theirs, &e), BT_OK);
    assert_true(same_tree(bt_config_root(ours), bt_config_root(theirs)));
    bt_config_close(ours);
    bt_config_close(theirs);
    bt_synth_layout_free(&l);
}

static void tiny_configs_are_the_test_models(void **state)
{
    (void)state;
    check_config("k2-tiny", "tests/data/models/k2-dense/config.json");
    check_config("k2-mova-tiny", "tests/data/models/k2-mova/config.json");
}

static void kimi_linear_tiny_is_the_fixture(void **state)
{
    (void)state;
    char path[512];
    if (unit_fixtures() == NULL) skip();
    (void)snprintf(path, sizeof path, "%s/models/kimi-linear/config.json", unit_fixtures());
    check_config("kimi-linear-tiny", path);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Any range has the bytes that it has in the whole. */
static void ranges_agree(void **state)
{
    (void)state;
    bt_synth_layout l;
    bt_preset_choice c = {.n_experts = 5, .fp8 = true}; /* odd sizes */
    assert_int_equal(bt_synth_layout_make(preset("k2-mova-tiny"), &c, 7, &l, &e), BT_OK);
    for (size_t shard = 0; shard < l.n_shards; shard++) {
        size_t n = (size_t)l.shards[shard].bytes;
        uint8_t *whole = malloc(n), *part = malloc(n);
        assert_non_null(whole);
        assert_non_null(part);
        bt_synth_fill(&l, shard, 0, whole, n);
        for (uint64_t i = 0; i < 300; i++) {
            size_t from = (size_t)(bt_rng_u64(i, 0) % n), size = (size_t)(bt_rng_u64(i, 1) % (n - from + 1));
            if (i % 2 == 0 && size > 70) size = 70;
            bt_synth_fill(&l, shard, from, part, size);
            assert_memory_equal(part, whole + from, size);
        }
        free(whole);
        free(part);
    }
    bt_synth_layout_free(&l);
}

static void bytes_do_not_depend_on_threads(void **state)
{
    (void)state;
    char *folder = unit_make_folder();
    char *one = join(folder, "one"), *three = join(folder, "three/"), *other = join(folder, "other");
    bt_preset_choice c = {.n_layers = 1};
    bt_synth_report r = make(one, "k3-prod-width", c, 3, 1);
    (void)make(three, "k3-prod-width", c, 3, 3);
    (void)make(other, "k3-prod-width", c, 4, 2);
    assert_true(r.bytes > (uint64_t)3 * (4 << 20)); /* several chunks */
    DIR *d = opendir(one);
    assert_non_null(d);
    size_t n_files = 0;
    for (const struct dirent *entry = readdir(d); entry != NULL; entry = readdir(d)) {
        if (entry->d_name[0] == '.') continue;
        size_t n_a, n_b;
        char *a = read_file(one, entry->d_name, &n_a), *b = read_file(three, entry->d_name, &n_b);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, n_a);
        bt_free(a);
        bt_free(b);
        n_files++;
    }
    (void)closedir(d);
    assert_int_equal(n_files, 4);
    /* Another seed gives another embedding. */
    bt_model *a = open_model(one), *b = open_model(other);
    assert_memory_not_equal(a->views[0].data, b->views[0].data, 64);
    bt_model_close(a);
    bt_model_close(b);
    bt_free(one);
    bt_free(three);
    bt_free(other);
    unit_remove_folder(folder);
    free(folder);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* No eight neighbouring bytes occur twice, over several tensors: a pattern that repeats would flatter caches. */
static void blocks_do_not_repeat(void **state)
{
    (void)state;
    bt_synth_layout l;
    assert_int_equal(choose("k2-0.9b", 1, 0, &l), BT_OK);
    size_t n = (size_t)8 << 20, from = (size_t)l.shards[0].header.size;
    uint64_t *words = malloc(n);
    assert_non_null(words);
    bt_synth_fill(&l, 0, from, words, n);
    qsort(words, n / 8, 8, by_value);
    size_t n_same = 0;
    for (size_t i = 1; i < n / 8; i++) n_same += words[i] == words[i - 1];
    assert_true(n_same < 32); /* norm weights lie within a narrow range: a few of their words may meet */
    free(words);
    bt_synth_layout_free(&l);
}

static double deviation_of(const bt_view *v, double *mean)
{
    double sum = 0, squares = 0;
    size_t n = (size_t)v->n_rows * v->n_cols;
    for (size_t i = 0; i < n; i++) {
        uint16_t code;
        memcpy(&code, (const uint8_t *)v->data + 2 * i, sizeof code);
        double x = (double)bt_bf16_to_f32(code);
        sum += x;
        squares += x * x;
    }
    *mean = sum / (double)n;
    return sqrt(squares / (double)n - *mean * *mean);
}

static void weights_are_spread(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), *path = join(folder, "m");
    (void)make(path, "k2-tiny", (bt_preset_choice){0}, 0, 2);
    bt_model *m = open_model(path);
    double mean;
    assert_true(fabs(deviation_of(&m->views[0], &mean) - 1) < 0.02); /* embedding */
    assert_true(fabs(mean) < 0.02);
    for (size_t i = 0; i < m->list.n; i++) {
        const bt_tensor_spec *s = &m->list.specs[i];
        double deviation = deviation_of(&m->views[i], &mean);
        if (s->class == BT_CLASS_NORM) {
            assert_true(fabs(mean - 1) < 0.06);
            assert_true(fabs(deviation - 0.1) < 0.02);
        }
        if (strstr(s->name, "q_proj") != NULL) assert_true(fabs(deviation * sqrt(96) - 2) < 0.05);
    }
    bt_model_close(m);
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
}

/* The bytes of one tensor of shard shard_i; free by the caller. */
static uint8_t *tensor_bytes(const bt_synth_layout *l, size_t shard_i, const char *name, const char *shape, size_t *n)
{
    char entry[300];
    const bt_synth_shard *s = &l->shards[shard_i];
    (void)snprintf(entry, sizeof entry, "\"%s\":{%s,\"data_offsets\":[", name, shape);
    const char *at = memmem(s->header.data, s->header.size, entry, strlen(entry));
    unsigned long long begin, end;
    if (at == NULL || sscanf(at + strlen(entry), "%llu,%llu", &begin, &end) != 2) {
        fail_msg("no %s in the header", entry);
        return NULL;
    }
    *n = (size_t)(end - begin);
    uint8_t *bytes = malloc(*n);
    assert_non_null(bytes);
    bt_synth_fill(l, shard_i, s->header.size + begin, bytes, *n);
    return bytes;
}

/* Codes and scales of an expert of k3-full: each code as often, the deviation as for BF16, and no infinities. */
static void packed_experts_are_spread(void **state)
{
    (void)state;
    bt_synth_layout l;
    size_t n_codes, n_scales, counts[16] = {0};
    double squares = 0, sum = 0;
    assert_int_equal(choose("k3-full", 2, 16, &l), BT_OK);
#define EXPERT "language_model.model.layers.1.block_sparse_moe.experts.15.w1.weight"
    uint8_t *codes = tensor_bytes(&l, 1, EXPERT "_packed", "\"dtype\":\"U8\",\"shape\":[3072,1792]", &n_codes);
    uint8_t *scales = tensor_bytes(&l, 1, EXPERT "_scale", "\"dtype\":\"U8\",\"shape\":[3072,112]", &n_scales);
    assert_int_equal(n_codes, 3072 * 1792);
    assert_int_equal(n_scales, 3072 * 112);
    for (size_t i = 0; i < n_codes; i++) {
        double scale = (double)bt_e8m0_to_f32(scales[i / 16]);
        for (unsigned half = 0; half < 2; half++) {
            uint8_t code = half == 0 ? codes[i] & 15 : codes[i] >> 4;
            double x = (double)bt_e2m1_to_f32(code) * scale;
            counts[code]++;
            sum += x;
            squares += x * x;
        }
    }
    double n = 2 * (double)n_codes, deviation = sqrt(squares / n);
    assert_true(fabs(deviation * sqrt(3584) / 2 - 1) < 0.01);
    assert_true(fabs(sum / n) < 0.01 * deviation);
    for (size_t i = 0; i < 16; i++) assert_true(fabs((double)counts[i] * 16 / n - 1) < 0.01);
    free(codes);
    free(scales);
    bt_synth_layout_free(&l);
}

/* A_log of the release: 128 numbers for 96 heads, the rest zeros; whole or in pieces. */
static void padding_is_zero(void **state)
{
    (void)state;
    bt_synth_layout l;
    size_t n;
    assert_int_equal(choose("k3-full", 1, 16, &l), BT_OK);
    uint8_t *bytes =
        tensor_bytes(&l, 0, "language_model.model.layers.0.self_attn.A_log", "\"dtype\":\"F32\",\"shape\":[128]", &n);
    float values[128];
    assert_int_equal(n, sizeof values);
    memcpy(values, bytes, n);
    for (size_t i = 0; i < 128; i++) assert_true(i < 96 ? values[i] != 0 && fabsf(values[i]) < 0.9F : values[i] == 0);
    const bt_piece *p = NULL;
    for (size_t i = 0; i < l.shards[0].n_pieces; i++)
        if (l.shards[0].pieces[i].live_end < l.shards[0].pieces[i].end) p = &l.shards[0].pieces[i];
    assert_non_null(p);
    for (size_t from = 0; from < n; from += 5) {
        uint8_t part[64] = {0};
        size_t size = n - from < sizeof part ? n - from : sizeof part;
        bt_synth_fill(&l, 0, p->begin + from, part, size);
        assert_memory_equal(part, bytes + from, size);
    }
    free(bytes);
    bt_synth_layout_free(&l);
    assert_int_equal(choose("kimi-linear-tiny", 1, 0, &l), BT_OK);
    free(tensor_bytes(&l, 0, "model.layers.0.self_attn.A_log", "\"dtype\":\"F32\",\"shape\":[1,1,4,1]", &n));
    free(tensor_bytes(&l, 0, "model.layers.0.self_attn.q_conv1d.weight", "\"dtype\":\"BF16\",\"shape\":[64,1,4]", &n));
    bt_synth_layout_free(&l);
}

/* ---- a model that runs ------------------------------------------------------------------------------------------- */

#define N_TOKENS 512u

static void random_ids(int32_t *ids, size_t n_vocab)
{
    for (uint32_t i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)(bt_rng_u64(99, i) % n_vocab);
}

typedef struct extremes {
    size_t n_vocab;
    float largest;
    bool is_finite;
} extremes;

static bool look(void *user, size_t row_i, const float *logits)
{
    extremes *x = user;
    (void)row_i;
    for (size_t i = 0; i < x->n_vocab; i++) {
        x->is_finite = x->is_finite && isfinite(logits[i]);
        if (fabsf(logits[i]) > x->largest) x->largest = fabsf(logits[i]);
    }
    return true;
}

/* The least chosen of an op's experts, as a part of its fair share. Runs the tape up to that op. */
static double least_share(bt_engine *g, uint32_t op_i, const int32_t *ids)
{
    uint32_t head_begin = g->tape->head_begin;
    const bt_op *op = &g->tape->ops[op_i];
    uint32_t k = op->u.route.routes.ids.width, n_experts = op->u.route.logits.width;
    bt_segment all = {.n_rows = N_TOKENS};
    bt_step step = {.ids = ids, .n_rows = N_TOKENS, .segments = &all, .n_segments = 1};
    g->tape->head_begin = op_i + 1;
    assert_int_equal(g->vtable->run(g->plan, &step, BT_RUN_ALL, &e), BT_OK);
    g->tape->head_begin = head_begin;
    bt_cpu_run r = {.plan = (bt_cpu_plan *)g->plan};
    uint32_t *counts = calloc(n_experts, sizeof *counts), least = UINT32_MAX;
    assert_non_null(counts);
    for (uint32_t row = 0; row < N_TOKENS; row++)
        for (uint32_t s = 0; s < k; s++) counts[bt_cpu_row_i32(&r, op->u.route.routes.ids, row)[s]]++;
    for (uint32_t i = 0; i < n_experts; i++)
        if (counts[i] < least) least = counts[i];
    free(counts);
    return (double)least / ((double)N_TOKENS * k / n_experts);
}

/* Logits below 100, and every expert of every layer chosen by at least a quarter of the tokens that it would get if all
 * were alike. */
static void check_model(const char *path)
{
    bt_model *m = open_model(path);
    bt_engine *g = NULL;
    bt_session *s = NULL;
    size_t n_vocab = bt_model_n_vocab(m);
    int32_t ids[N_TOKENS];
    extremes x = {.n_vocab = n_vocab, .is_finite = true};
    random_ids(ids, n_vocab);
    bt_engine_options o = {.context = N_TOKENS, .n_threads = 2};
    if (bt_engine_open(m, &o, &g, &e) != BT_OK) fail_msg("%s", e.message);
    double least = 1;
    for (uint32_t i = 0; i < g->tape->n_ops; i++) {
        if (g->tape->ops[i].kind != BT_OP_ROUTE) continue;
        double share = least_share(g, i, ids);
        if (getenv("BALTORO_SYNTH_VERBOSE")) print_message("%d %u %.3f\n", g->tape->ops[i].layer, i, share);
        if (share < least) least = share;
    }
    print_message("%s: the least chosen expert has %.2f of a fair share\n", path, least);
    assert_true(least >= 0.25);
    assert_int_equal(bt_session_open(g, &s, &e), BT_OK);
    assert_int_equal(bt_session_score(s, ids, N_TOKENS, look, &x, NULL, &e), BT_OK);
    assert_true(x.is_finite);
    assert_true(x.largest < 100);
    assert_true(x.largest > 1);
    bt_session_close(s);
    bt_engine_close(g);
    bt_model_close(m);
}

static void tiny_models_run(void **state)
{
    (void)state;
    char *folder = unit_make_folder();
    static const char *const names[] = {"k2-tiny", "k2-mova-tiny", "k2-tiny", "k2-mova-tiny", "kimi-linear-tiny"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[2] = {(char)('a' + i), '\0'}, *path = join(folder, name);
        (void)make(path, names[i], (bt_preset_choice){.fp8 = i == 2 || i == 3}, i, 2);
        check_model(path);
        bt_free(path);
    }
    unit_remove_folder(folder);
    free(folder);
}

/* A checkpoint made elsewhere, too large for a test of seconds: BALTORO_SYNTH names it. */
static void given_model_runs(void **state)
{
    (void)state;
    const char *path = getenv("BALTORO_SYNTH");
    if (path == NULL || path[0] == '\0') skip();
    check_model(path);
}

/* ---- tokenizer --------------------------------------------------------------------------------------------------- */

static void round_trip(const bt_tokenizer *t, const char *text, size_t n)
{
    int32_t *ids = NULL;
    size_t n_ids = 0, size = 0;
    char *back = NULL;
    if (bt_tokenizer_encode(t, text, n, 0, &ids, &n_ids, &e) != BT_OK) fail_msg("%s", e.message);
    if (bt_tokenizer_decode(t, ids, n_ids, BT_TEXT_SPECIAL, &back, &size, &e) != BT_OK) fail_msg("%s", e.message);
    assert_int_equal(size, n);
    assert_memory_equal(back, text, n);
    bt_free(ids);
    bt_free(back);
}

static bt_tokenizer *make_tokenizer(const char *folder, const char *preset_name, const char *file)
{
    bt_synth_vocab v = preset(preset_name)->vocab(preset(preset_name)->numbers);
    bt_tokenizer *t = NULL;
    size_t size;
    if (bt_synth_tokenizer(folder, &v, &e) != BT_OK) fail_msg("%s", e.message);
    if (bt_tokenizer_open(folder, &t, &e) != BT_OK) fail_msg("%s", e.message);
    bt_free(read_file(folder, file, &size));
    assert_true(size <= bt_synth_tokenizer_bytes(&v));
    return t;
}

/* Merges work; texts come back; the ids have no hole. */
static void check_texts(const bt_tokenizer *t, const char *const *texts, size_t n_texts, size_t n_ids)
{
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(bt_tokenizer_encode(t, " the the", 8, 0, &ids, &n, &e), BT_OK);
    assert_true(n < 8);
    bt_free(ids);
    for (size_t i = 0; i < n_texts; i++) round_trip(t, texts[i], strlen(texts[i]));
    for (int32_t id = 0; id < (int32_t)n_ids; id += 997) {
        char *text = NULL;
        assert_int_equal(bt_tokenizer_decode(t, &id, 1, BT_TEXT_SPECIAL, &text, &n, &e), BT_OK);
        assert_true(n > 0);
        bt_free(text);
    }
}

static void check_tokenizer(const char *name, size_t n_ids, int32_t im_start, int32_t think)
{
    static const char *const texts[] = {
        "",
        "The capital of France is",
        "  two\n\n\tlines ",
        "na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80",
        "<|ifm|im_start|>user",
        "12345678 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \x01\x7f",
    };
    char *folder = unit_make_folder();
    bt_tokenizer *t = make_tokenizer(folder, name, "tokenizer.json");
    assert_int_equal(bt_tokenizer_n_vocab(t), n_ids);
    assert_int_equal(bt_tokenizer_find(t, "<|ifm|begin_of_text|>"), 0);
    assert_int_equal(bt_tokenizer_find(t, "<|ifm|endoftext|>"), 1);
    assert_int_equal(bt_tokenizer_find(t, "!"), 2);
    assert_int_equal(bt_tokenizer_find(t, "<|ifm|im_start|>"), im_start);
    assert_int_equal(bt_tokenizer_find(t, "<|ifm|im_end|>"), im_start + 1);
    assert_int_equal(bt_tokenizer_find(t, "<ifm|think>"), think);
    assert_int_equal(bt_tokenizer_find(t, "</ifm|think>"), think + 1);
    assert_int_equal(bt_tokenizer_find(t, "</ifm|arg_value>"), think + 17);
    assert_true(bt_tokenizer_is_added(t, im_start + 1));
    assert_false(bt_tokenizer_is_added(t, im_start - 1));
    assert_true(bt_tokenizer_is_added(t, (int32_t)n_ids - 1));
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(bt_tokenizer_encode(t, "\n", 1, 0, &ids, &n, &e), BT_OK);
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], 200); /* bytes in GPT-2's order */
    bt_free(ids);
    assert_int_equal(bt_tokenizer_encode(t, "<|ifm|im_end|><ifm|think>", 25, BT_TEXT_SPECIAL, &ids, &n, &e), BT_OK);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], think);
    bt_free(ids);
    check_texts(t, texts, sizeof texts / sizeof *texts, n_ids);
    bt_tokenizer_close(t);
    unit_remove_folder(folder);
    free(folder);
}

/* Ranks of tiktoken.model: bytes first, then merges; named and reserved tokens behind them. */
static void check_tiktoken(const char *name, const char *turn_end)
{
    static const char *const texts[] = {
        "The capital of France is",
        "  two\n\n\tlines ",
        "na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80",
        "<|open|>message<|im_end|>",
        "12345678 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \x01\x7f",
    };
    char *folder = unit_make_folder();
    bt_tokenizer *t = make_tokenizer(folder, name, "tiktoken.model");
    assert_int_equal(bt_tokenizer_n_vocab(t), 163840);
    assert_int_equal(bt_tokenizer_find(t, "[BOS]"), 163584);
    assert_int_equal(bt_tokenizer_find(t, "[EOS]"), 163585);
    assert_int_equal(bt_tokenizer_find(t, turn_end), 163586);
    assert_int_equal(bt_tokenizer_find(t, "[PAD]"), 163839);
    assert_int_equal(bt_tokenizer_find(t, "<|reserved_token_163700|>"), 163700);
    assert_true(bt_tokenizer_is_added(t, 163586));
    assert_false(bt_tokenizer_is_added(t, 163583));
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(bt_tokenizer_encode(t, turn_end, strlen(turn_end), BT_TEXT_SPECIAL, &ids, &n, &e), BT_OK);
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], 163586);
    bt_free(ids);
    check_texts(t, texts, sizeof texts / sizeof *texts, 163840);
    bt_tokenizer_close(t);
    unit_remove_folder(folder);
    free(folder);
}

static void tokenizers_work(void **state)
{
    (void)state;
    check_tokenizer("k2-tiny", 640, 620, 622);
    check_tokenizer("k2-0.9b", 64256, 64235, 64237);
    check_tokenizer("k2-7b", 250624, 250018, 250029);
    check_tiktoken("k3-full", "<|end_of_msg|>");
    check_tiktoken("kimi-linear-48b", "<|im_end|>");
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

typedef struct stopper {
    size_t n_calls, stop_at;
} stopper;

static bool stop_at(void *user, size_t n_done, size_t n_total)
{
    stopper *s = user;
    assert_true(n_done <= n_total);
    return s->n_calls++ < s->stop_at;
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), *path = join(folder, "m"), *below = join(folder, "no/m");
    bt_synth_report r;
    stopper s = {0};
    bt_hook hook = {.keep_going = stop_at, .user = &s};
    bt_synth_options o = {.folder = path, .preset = preset("k2-tiny"), .n_threads = 2, .hook = &hook};
    size_t n = 0;
    for (; n < 100; n++) {
        s = (stopper){.stop_at = n};
        bt_status st = bt_synth(&o, &r, &e);
        if (st == BT_OK) break;
        assert_int_equal(st, BT_ERR_CANCELLED);
        assert_int_equal(n_entries(folder), 0);
    }
    assert_in_range(n, 2, 99);
    assert_int_equal(n_entries(folder), 1);
    size_t n_files = n_entries(path);
    assert_int_equal(bt_synth(&o, &r, &e), BT_ERR_IO); /* exists */
    assert_non_null(strstr(e.message, "exists already"));
    assert_int_equal(n_entries(folder), 1);
    assert_int_equal(n_entries(path), n_files);
    o.folder = below;
    assert_int_equal(bt_synth(&o, &r, &e), BT_ERR_IO);
    assert_int_equal(n_entries(folder), 1);
    o.folder = "/proc/m"; /* where nothing is ever free */
    assert_int_equal(bt_synth(&o, &r, &e), BT_ERR_MEMORY);
    assert_non_null(strstr(e.message, "the disk has 0 B free"));
    bt_free(path);
    bt_free(below);
    unit_remove_folder(folder);
    free(folder);
}

#ifdef BT_TEST_BUILD
static void failed_allocations_leave_nothing(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), *path = join(folder, "m");
    bt_synth_report r;
    bt_synth_options o = {.folder = path,
                          .preset = preset("k2-mova-tiny"),
                          .choice = {.n_layers = 2, .n_experts = 4, .fp8 = true},
                          .n_threads = 1};
    long n = 0;
    for (; n < 100000; n += 1 + n / 16) { /* the first ones each, later ones ever more thinly */
        bt_alloc_fail_after(n);
        bt_status st = bt_synth(&o, &r, &e);
        bt_alloc_fail_after(-1);
        if (st == BT_OK) break;
        assert_int_equal(st, BT_ERR_MEMORY);
        assert_int_equal(n_entries(folder), 0);
    }
    assert_in_range(n, 10, 99999);
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_the_published_ones),
        cmocka_unit_test(sizes_of_kimi),
        cmocka_unit_test(data_is_aligned),
        cmocka_unit_test(choices_change_the_config),
        cmocka_unit_test(choices_change_kimi_configs),
        cmocka_unit_test(tiny_configs_are_the_test_models),
        cmocka_unit_test(kimi_linear_tiny_is_the_fixture),
        cmocka_unit_test(ranges_agree),
        cmocka_unit_test(bytes_do_not_depend_on_threads),
        cmocka_unit_test(blocks_do_not_repeat),
        cmocka_unit_test(weights_are_spread),
        cmocka_unit_test(packed_experts_are_spread),
        cmocka_unit_test(padding_is_zero),
        cmocka_unit_test(tiny_models_run),
        cmocka_unit_test(given_model_runs),
        cmocka_unit_test(tokenizers_work),
        cmocka_unit_test(failures_leave_nothing),
#ifdef BT_TEST_BUILD
        cmocka_unit_test(failed_allocations_leave_nothing),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
