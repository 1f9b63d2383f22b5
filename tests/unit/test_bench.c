/* bench: figures and reports from made-up measurements, and one real run of a small model. */
#include "model_unit.h"

#include "base/arena.h"
#include "tool/bench.h"
#include "tool/bench_machine.h"

static bt_error e;

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-9)

/* ---- made up ---------------------------------------------------------------------------------------------------- */

static void ranges_and_percentiles(void **state)
{
    (void)state;
    const double values[] = {5, 1, 4, 2, 3}, sorted[] = {10, 20, 30, 40};
    bt_range r = bt_range_of(values, 5);
    NEAR(r.min, 1);
    NEAR(r.median, 3);
    NEAR(r.max, 5);
    NEAR(values[0], 5); /* left as it was */
    NEAR(bt_range_of(values, 2).median, 3);
    NEAR(bt_range_of(values, 1).max, 5);
    NEAR(bt_range_of(values, 0).max, 0);
    NEAR(bt_percentile(sorted, 4, 0), 10);
    NEAR(bt_percentile(sorted, 4, 50), 25);
    NEAR(bt_percentile(sorted, 4, 100), 40);
    NEAR(bt_percentile(sorted, 1, 99), 10);
}

/* Two runs at one depth: reads at 10, 10, 10, 20, 20 GB/s; 4 GB a token. */
typedef struct made_up {
    double prompt_s[2], first_s[2], decode_s[2], steps_ms[4];
    bt_roof_sample limits[5];
    bt_bench_depth depth;
    bt_bench b;
} made_up;

static bt_bench *make_up(made_up *m)
{
    *m = (made_up){.prompt_s = {2, 4}, .first_s = {3, 5}, .decode_s = {1, 0.5}, .steps_ms = {600, 400, 200, 300}};
    for (size_t i = 0; i < 5; i++) {
        m->limits[i].read_gb_s[1][BT_ROOF_HUGE_PAGES][2] = i < 3 ? 10 : 20;
        m->limits[i].read_gb_s[1][BT_ROOF_MAPPING][0] = 5;
        m->limits[i].read_gb_s[0][BT_ROOF_MAPPING][0] = 4;
        m->limits[i].matrix_gflop_s[1] = 100;
        m->limits[i].round_trip_ns = 90;
    }
    m->depth = (bt_bench_depth){.depth = 7,
                                .prompt_s = m->prompt_s,
                                .first_s = m->first_s,
                                .decode_s = m->decode_s,
                                .steps_ms = m->steps_ms,
                                .limits = m->limits};
    m->depth.decode.kv = 2000000000;
    m->depth.decode.weights[BT_CLASS_ATTENTION] = 6000000000;
    m->depth.prompt.flops = 100000000000;
    m->b = (bt_bench){.n_prompt = 8, .n_decode = 2, .n_runs = 2, .n_depths = 1, .depths = &m->depth};
    m->b.warm.is_measured = true;
    m->b.plan.context = 15;
    m->b.plan.n_threads = 2;
    (void)snprintf(m->b.model, sizeof m->b.model, "A/model_of mine");
    (void)snprintf(m->b.weights, sizeof m->b.weights, "bf16");
    (void)snprintf(m->b.kv, sizeof m->b.kv, "f32");
    (void)snprintf(m->b.device, sizeof m->b.device, "cpu");
    (void)snprintf(m->b.conditions.date, sizeof m->b.conditions.date, "2026-11-29T12:00:00Z");
    return &m->b;
}

static void fractions_use_the_limits_beside(void **state)
{
    (void)state;
    made_up m;
    double values[2];
    bt_bench *b = make_up(&m);
    NEAR(bt_bench_bytes(b, &m.depth), 4e9);
    bt_bench_decode_rates(b, &m.depth, values);
    NEAR(values[0], 2);
    NEAR(values[1], 4);
    bt_bench_decode_fractions(b, &m.depth, values);
    NEAR(values[0], 0.8); /* 8 GB/s of 10 */
    NEAR(values[1], 0.8); /* 16 of 20: the limit changed from 10 to 20 around it, the larger one counts */
    m.limits[3].read_gb_s[1][BT_ROOF_HUGE_PAGES][2] = 12; /* 10 and 12 are close enough for a mean */
    bt_bench_decode_fractions(b, &m.depth, values);
    NEAR(values[1], 16.0 / 11);
    bt_bench_prompt_rates(b, &m.depth, values);
    NEAR(values[1], 2);
    bt_bench_prompt_fractions(b, &m.depth, values);
    NEAR(values[0], 0.5);
    NEAR(values[1], 0.25);
}

static void files_are_named(void **state)
{
    (void)state;
    made_up m;
    bt_text t = {0};
    bt_bench_file_name(make_up(&m), 1, &t);
    assert_string_equal(t.data, "20261129_A-model-of-mine_bf16_kvf32_ctx15_cpu.json");
    bt_text_free(&t);
    bt_bench_file_name(&m.b, 2, &t);
    assert_string_equal(t.data, "20261129_A-model-of-mine_bf16_kvf32_ctx15_cpu_2.json");
    bt_text_free(&t);
}

static const bt_json_node *at(const bt_json_node *n, const char *path)
{
    char key[64];
    while (*path != '\0') {
        size_t size = strcspn(path, ".");
        (void)snprintf(key, sizeof key, "%.*s", (int)size, path);
        if (n == NULL || n->kind != BT_JSON_OBJECT || (n = bt_json_get(n, key)) == NULL) return NULL;
        path += size + (path[size] == '.');
    }
    return n;
}

static double number(const bt_json_node *root, const char *path)
{
    const bt_json_node *n = at(root, path);
    double v = 0;
    if (n == NULL || n->kind != BT_JSON_NUMBER || !bt_json_f64(n->text, n->size, &v)) fail_msg("%s is no number", path);
    return v;
}

static const bt_json_node *parse(bt_arena *a, const bt_text *t)
{
    const bt_json_node *root = NULL;
    if (bt_json_parse(a, t->data, t->size, 0, &root, &e) != BT_OK) fail_msg("%s", e.message);
    return root;
}

static void json_has_the_keys(void **state)
{
    (void)state;
    static const char *const ranges[] = {"prefill.tokens_per_s",
                                         "prefill.peak_fraction",
                                         "decode.tokens_per_s",
                                         "decode.roof_fraction",
                                         "roof.read_gb_s",
                                         "roof.matrix_gflop_s",
                                         "ttft_ms",
                                         "roof.round_trip_ns"};
    static const char *const parts[] = {".min", ".median", ".max"};
    static const char *const rest[] = {"cpu",
                                       "level",
                                       "threads",
                                       "governor",
                                       "load_average",
                                       "compiler",
                                       "commit",
                                       "kernel",
                                       "load.warm.total_ms",
                                       "steps_ms",
                                       "kv_bytes",
                                       "private_bytes",
                                       "plan_private_bytes",
                                       "roof.reads",
                                       "depths"};
    made_up m;
    bt_text t = {0};
    bt_arena *a = bt_arena_new();
    bt_bench_print_json(&t, make_up(&m), NULL);
    const bt_json_node *root = parse(a, &t);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        for (size_t k = 0; k < 3; k++) {
            char path[64];
            (void)snprintf(path, sizeof path, "%s%s", ranges[i], parts[k]);
            (void)number(root, path);
        }
    }
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        if (at(root, rest[i]) == NULL) fail_msg("%s is missing", rest[i]);
    NEAR(number(root, "ttft_ms.median"), 4000);
    NEAR(number(root, "decode.bytes_per_token.attention"), 3e9);
    NEAR(number(root, "decode.bytes_per_token.total"), 4e9);
    NEAR(number(root, "steps_percentiles_ms.p50"), 350);
    NEAR(number(root, "depth"), 7);
    assert_int_equal(at(root, "steps_ms")->n_children, 4);
    assert_int_equal(at(root, "roof.reads")->n_children, 12);
    assert_int_equal(at(root, "load.cold")->kind, BT_JSON_NULL);
    NEAR(number(at(root, "depths")->child, "decode.tokens_per_s.max"), 4);
    bt_text_free(&t);
    m.b.n_prompt = 0;
    m.b.n_decode = 0;
    bt_bench_print_json(&t, &m.b, NULL);
    root = parse(a, &t);
    assert_int_equal(at(root, "prefill")->kind, BT_JSON_NULL);
    assert_int_equal(at(root, "decode")->kind, BT_JSON_NULL);
    bt_text_free(&t);
    bt_arena_free(a);
}

static void runs_are_compared(void **state)
{
    (void)state;
    made_up now, then;
    bt_text json = {0}, page = {0}, object = {0};
    bt_bench_past past;
    bt_arena *a = bt_arena_new();
    make_up(&then);
    then.decode_s[0] = then.decode_s[1] = 1; /* 2 tokens/s; now the median is 3 */
    (void)snprintf(then.b.weights, sizeof then.b.weights, "fp8");
    bt_bench_print_json(&json, &then.b, NULL);
    unit_ok(bt_bench_past_open("then.json", json.data, json.size, &past, &e), &e);
    bt_text_free(&json);
    bt_bench_print_comparison(&page, make_up(&now), &past);
    assert_non_null(strstr(page.data, "weights differs: bf16 now, fp8 then"));
    const char *line = strstr(page.data, "decode, tokens/s");
    assert_non_null(line);
    assert_non_null(strstr(line, "1.500"));
    bt_bench_print_json(&object, &now.b, &past);
    const bt_json_node *root = at(parse(a, &object), "compare");
    assert_string_equal(at(root, "file")->text, "then.json");
    assert_int_equal(at(root, "differences")->n_children, 1);
    assert_string_equal(at(at(root, "differences")->child, "key")->text, "weights");
    assert_string_equal(at(at(root, "differences")->child, "then")->text, "fp8");
    const bt_json_node *ratio = bt_json_get(at(root, "depths")->child, "decode.tokens_per_s");
    NEAR(number(ratio, "now"), 3);
    NEAR(number(ratio, "then"), 2);
    NEAR(number(ratio, "ratio"), 1.5);
    bt_text_free(&object);
    now.depth.depth = 8;
    bt_bench_print_comparison(&page, &now.b, &past);
    assert_non_null(strstr(page.data, "depth 8 was not measured then"));
    bt_bench_past_close(&past);
    bt_text_free(&page);
    bt_arena_free(a);
}

static void others_are_no_results(void **state)
{
    (void)state;
    made_up now;
    bt_text page = {0}, object = {0};
    bt_bench_past past;
    static const char *const others[] = {"", "[]", "{}", "{\"depths\": 3}", "{\"depths\": [", "null"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(bt_bench_past_open("then.json", others[i], strlen(others[i]), &past, &e), BT_ERR_FORMAT);
        assert_non_null(strstr(e.message, "then.json"));
        assert_null(past.arena);
    }
    static const char *const odd[] = {
        "{\"depths\": [3, {\"depth\": 7, \"decode\": 1, \"ttft_ms\": {\"median\": \"x\"}}]}",
        "{\"depths\": [], \"weights\": 3, \"threads\": \"two\"}"};
    for (size_t i = 0; i < 2; i++) {
        bt_arena *a = bt_arena_new();
        unit_ok(bt_bench_past_open("then.json", odd[i], strlen(odd[i]), &past, &e), &e);
        bt_bench_print_comparison(&page, make_up(&now), &past);
        bt_bench_print_json(&object, &now.b, &past);
        assert_int_equal(at(parse(a, &object), "compare.differences")->n_children, 0);
        bt_text_free(&object);
        bt_bench_past_close(&past);
        bt_arena_free(a);
    }
    bt_text_free(&page);
}

/* ---- measured --------------------------------------------------------------------------------------------------- */

static bool stop_after(void *user, const char *doing)
{
    size_t *left = user;
    assert_true(strlen(doing) > 0);
    return (*left)-- > 0;
}

static void a_model_is_measured(void **state)
{
    (void)state;
    const size_t depths[] = {130};
    bt_bench b;
    size_t left = 1000;
    bt_bench_options o = {.path = UNIT_MODELS "k2-mova",
                          .engine = {.n_threads = 2, .overcommit = true},
                          .n_prompt = 16,
                          .n_decode = 3,
                          .n_runs = 1,
                          .depths = depths,
                          .n_depths = 1,
                          .with_cold = true,
                          .keep_going = stop_after,
                          .user = &left};
    unit_ok(bt_bench_run(&o, &b, &e), &e);
    assert_string_equal(b.model, "k2-mova");
    assert_string_equal(b.weights, "bf16");
    assert_int_equal(b.plan.context, 130 + 16);
    assert_true(b.cold.is_measured);
    assert_true(b.warm.cached >= 0 && b.warm.cached <= 1);
    assert_true(b.peak.private > 0 && b.peak.mapped > 0);
    const bt_bench_depth *d = &b.depths[0];
    double steps = 0;
    for (size_t k = 0; k < 3; k++) steps += d->steps_ms[k];
    assert_true(fabs(steps - d->decode_s[0] * 1e3) < 1e-6);
    assert_true(d->first_s[0] >= d->prompt_s[0]);
    for (size_t k = 0; k < 3; k++) { /* limits */
        assert_true(bt_roof_read_best(&d->limits[k], 1) > 0);
        assert_true(d->limits[k].matrix_gflop_s[1] > 0);
        assert_true(d->limits[k].round_trip_ns > 0);
    }
    /* Keys and values: 4 layers, 2 heads of 16, f32, from 131 to 133 positions. */
    assert_int_equal(d->decode.kv, 4 * 2 * 2 * 16 * 4 * (131 + 132 + 133));
    bt_bench_free(&b);
    left = 2;
    assert_int_equal(bt_bench_run(&o, &b, &e), BT_ERR_CANCELLED);
    bt_bench_free(&b);
    o.path = "no/such/model";
    assert_int_equal(bt_bench_run(&o, &b, &e), BT_ERR_IO);
    bt_bench_free(&b);
    const size_t deep[] = {1000000};
    o = (bt_bench_options){
        .path = UNIT_MODELS "k2-mova", .n_prompt = 1, .n_decode = 1, .n_runs = 1, .depths = deep, .n_depths = 1};
    assert_int_equal(bt_bench_run(&o, &b, &e), BT_ERR_CONTEXT);
    bt_bench_free(&b);
}

static void the_system_is_asked(void **state)
{
    (void)state;
    bt_bench_conditions c;
    bt_bench_look_around(&c);
    assert_true(strlen(c.date) == 20 && strlen(c.governor) > 0 && strlen(c.kernel) > 0);
    bt_bench_memory m = bt_bench_memory_now();
    assert_true(m.private > 0 && m.peak >= m.private);
    NEAR(bt_bench_cached("no/such/file"), 0);
    assert_true(bt_bench_cached(UNIT_MODELS "k2-mova/config.json") > 0); /* just read */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_and_percentiles), cmocka_unit_test(fractions_use_the_limits_beside),
        cmocka_unit_test(files_are_named),        cmocka_unit_test(json_has_the_keys),
        cmocka_unit_test(runs_are_compared),      cmocka_unit_test(others_are_no_results),
        cmocka_unit_test(a_model_is_measured),    cmocka_unit_test(the_system_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
