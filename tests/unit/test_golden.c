/*
 * Golden tests: every checkpoint of tests/data/models against logits that the float64 programs computed, at every CPU
 * level of this machine; and each planted fault (--ablate) against the fixture that must notice it.
 */
#include "model_unit.h"

#include <dirent.h>

#include "base/machine.h"

#define TOLERANCE 1e-3

static void compare(const char *model, const char *file, size_t n, const bt_engine_options *o, double tolerance)
{
    bt_model *m = unit_open_model(model);
    unit_expected x = unit_read_expected(model, file, n);
    float *got = unit_logits(m, *o, x.ids, n, 0);
    size_t other_tops = 0;
    double d = unit_difference(&x, got, &other_tops);
    const char *level = o->cpu_level == NULL ? "best" : o->cpu_level;
    if (!(d <= tolerance)) fail_msg("%s %s.%zu at %s: difference %g", model, file, n, level, d);
    if (tolerance == TOLERANCE && other_tops != 0)
        fail_msg("%s %s.%zu at %s: %zu other top tokens", model, file, n, level, other_tops);
    free(got);
    unit_free_expected(&x);
    bt_model_close(m);
}

static void compare_all(const bt_engine_options *o, double tolerance)
{
    static const size_t lengths[] = {1, 5, 40};
    size_t n_models = 0;
    DIR *d = opendir(UNIT_MODELS);
    assert_non_null(d);
    for (struct dirent *entry = readdir(d); entry != NULL; entry = readdir(d)) {
        char path[1024];
        (void)snprintf(path, sizeof path, UNIT_MODELS "%s/expected.safetensors", entry->d_name);
        if (access(path, R_OK) != 0) continue;
        for (size_t i = 0; i < 3; i++) compare(entry->d_name, "expected", lengths[i], o, tolerance);
        (void)snprintf(path, sizeof path, UNIT_MODELS "%s/expected-long.safetensors", entry->d_name);
        if (access(path, R_OK) == 0) compare(entry->d_name, "expected-long", 700, o, tolerance);
        n_models++;
    }
    closedir(d);
    assert_true(n_models >= 9);
}

static void test_scalar(void **state)
{
    (void)state;
    compare_all(&(bt_engine_options){.cpu_level = "scalar"}, TOLERANCE);
}

static void at_level(bt_cpu_level level)
{
    if (level > bt_cpu_detect()) skip();
    compare_all(&(bt_engine_options){.cpu_level = bt_cpu_level_name(level), .n_threads = 2}, TOLERANCE);
}

static void test_avx2(void **state)
{
    (void)state;
    at_level(BT_CPU_AVX2);
}

static void test_avx512(void **state)
{
    (void)state;
    at_level(BT_CPU_AVX512);
}

/* Keys and values rounded to bf16: 2^-9 relative each. The bound is what these random models need, times two; the
 * f32 run's 1e-3 would fail, which shows that the option does something. */
static void test_kv_bf16(void **state)
{
    (void)state;
    compare_all(&(bt_engine_options){.kv_dtype = "bf16", .n_threads = 2}, 0.25);
    bt_model *m = unit_open_model("k2-dense");
    unit_expected x = unit_read_expected("k2-dense", "expected", 40);
    float *got = unit_logits(m, (bt_engine_options){.kv_dtype = "bf16"}, x.ids, 40, 0);
    size_t other_tops = 0;
    assert_true(unit_difference(&x, got, &other_tops) > TOLERANCE);
    free(got);
    unit_free_expected(&x);
    bt_model_close(m);
}

/* Each planted fault, and the fixture whose golden it must turn red. */
static const struct {
    const char *model, *ablate;
} mutants[] = {
    {"k2-dense", "skip_layer=0"},    {"k2-dense", "skip_layer=1"},   {"k2-dense", "skip_layer=2"},
    {"k2-dense", "skip_layer=3"},    {"k2-dense", "norm_groups=1"},  {"k2-dense", "rope=off"},
    {"k2-yarn", "rope_factor=1"},    {"k2-normgate", "qk_norm=0"},   {"k2-normgate", "gate=0"},
    {"k2-moe", "force_expert=3"},    {"k2-moe", "selection_bias=0"}, {"k2-moe", "shared=0"},
    {"k2-moe", "router_scale=1"},    {"k2-moe", "renormalise=0"},    {"k2-mova", "force_expert=5"},
    {"k2-mova", "selection_bias=0"}, {"k2-mova", "gate=0"},          {"k2-mova", "router_scale=1"},
    {"k2-mova-fp8", "skip_layer=1"}, {"k2-softmax", "shared=0"},     {"own-llama", "rope=off"},
};

static void test_mutants_are_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        bt_model *m = unit_open_model_ablated(mutants[i].model, mutants[i].ablate);
        unit_expected x = unit_read_expected(mutants[i].model, "expected", 40);
        float *got = unit_logits(m, (bt_engine_options){0}, x.ids, 40, 0);
        size_t other_tops = 0;
        double d = unit_difference(&x, got, &other_tops);
        if (!(d > TOLERANCE)) fail_msg("%s with %s passes its golden test", mutants[i].model, mutants[i].ablate);
        free(got);
        unit_free_expected(&x);
        bt_model_close(m);
    }
}

static void test_useless_mutants_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *ablate;
    } useless[] = {
        {"k2-dense", "skip_layer=4"}, {"k2-dense", "force_expert=0"}, {"k2-dense", "gate=0"},
        {"k2-yarn", "norm_groups=1"}, {"k2-moe", "force_expert=10"},  {"k2-moe", "nonsense=1"},
        {"k2-moe", "rope"},           {"k2-moe", "skip_layer=-1"},
    };
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++) {
        char path[256];
        bt_error e = {0};
        bt_model *m = NULL;
        (void)snprintf(path, sizeof path, UNIT_MODELS "%s", useless[i].model);
        bt_model_options o = {.ablate = useless[i].ablate};
        assert_int_equal(bt_model_open(path, &o, &m, &e), BT_ERR_USAGE);
        assert_non_null(strstr(e.message, "ablate"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalar),           cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),           cmocka_unit_test(test_kv_bf16),
        cmocka_unit_test(test_mutants_are_seen), cmocka_unit_test(test_useless_mutants_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
