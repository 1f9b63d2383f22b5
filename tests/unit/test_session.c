/*
 * Sessions: the same bits for any thread count, chunking and batch mates, after rewind and restore; limits that are
 * refused with numbers; snapshots that refuse what they do not fit.
 */
#include "model_unit.h"

#include <sys/wait.h>

#include "base/machine.h"
#include "base/rng.h"

static const char *const models[] = {"k2-dense",    "k2-mova",  "k2-yarn",      "k2-mova-fp8",
                                     "k2-normgate", "k3-mxfp4", "k3-mxfp4-all", "kimi-linear-groups"};
#define N_MODELS (sizeof models / sizeof *models)

static int32_t *random_ids(size_t n, size_t n_vocab, uint64_t seed)
{
    int32_t *ids = calloc(n, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(bt_rng_u64(seed, i) % n_vocab);
    return ids;
}

static void same_bits(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(a + i, b + i, sizeof *a) != 0) {
            fail_msg("%s: value %zu differs: %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
        }
    }
}

/* Threads 1, 2, 3 and pieces of 1, 7 and all, on n random ids. */
static void invariant(const char *name, size_t n, const char *level, const char *kv)
{
    bt_model *m = unit_open_model(name);
    size_t n_vocab = bt_model_n_vocab(m);
    int32_t *ids = random_ids(n, n_vocab, 1);
    bt_engine_options o = {.n_threads = 1, .cpu_level = level, .kv_dtype = kv};
    float *reference = unit_logits(m, o, ids, n, 0);
    static const struct {
        size_t threads, chunk, batch;
    } ways[] = {{2, 0, 0}, {3, 0, 0}, {2, 7, 0}, {1, 1, 0}, {3, 16, 0}, {2, 0, 33}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char what[128];
        if (n > 400 && ways[i].chunk == 1 && strcmp(level, "scalar") == 0) continue; /* slow, and no other code */
        (void)snprintf(what, sizeof what, "%s %zu ids %s %s: threads %zu chunk %zu batch %zu", name, n, level, kv,
                       ways[i].threads, ways[i].chunk, ways[i].batch);
        o.n_threads = ways[i].threads;
        o.batch = ways[i].batch;
        float *other = unit_logits(m, o, ids, n, ways[i].chunk);
        same_bits(reference, other, n * n_vocab, what);
        free(other);
    }
    free(reference);
    free(ids);
    bt_model_close(m);
}

static void test_threads_and_chunks(void **state)
{
    (void)state;
    for (int level = BT_CPU_SCALAR; level <= BT_CPU_AVX512 && level <= (int)bt_cpu_detect(); level++) {
        for (size_t i = 0; i < N_MODELS; i++) invariant(models[i], 40, bt_cpu_level_name((bt_cpu_level)level), "f32");
        invariant("k2-dense", 300, bt_cpu_level_name((bt_cpu_level)level), "bf16");
    }
}

/* Several attention tiles, three steps of --batch 512. */
static void test_long_prompt(void **state)
{
    (void)state;
    bt_cpu_level best = bt_cpu_detect() < BT_CPU_AVX512 ? bt_cpu_detect() : BT_CPU_AVX512;
    invariant("k2-dense", 1300, bt_cpu_level_name(best), "f32");
    invariant("k2-mova", 1300, bt_cpu_level_name(best), "f32");
    invariant("k3-mxfp4", 1300, bt_cpu_level_name(best), "bf16");
}

/* Three timelines in one step, one of them in prefill, against each alone. */
static void three_timelines(const char *name, size_t n_long)
{
    enum { N = 3 };
    bt_error e = {0};
    bt_model *m = unit_open_model(name);
    size_t n_vocab = bt_model_n_vocab(m);
    const size_t lengths[N] = {n_long, 9, 300};
    int32_t *ids[N];
    float *alone[N];
    for (size_t i = 0; i < N; i++) {
        ids[i] = random_ids(lengths[i], n_vocab, 10 + i);
        alone[i] = unit_logits(m, (bt_engine_options){.n_threads = 2}, ids[i], lengths[i], 0);
    }
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 2, .n_slots = N, .context = n_long});
    bt_session *s[N];
    for (size_t i = 0; i < N; i++) s[i] = unit_open_session(g);
    size_t done[N] = {0};
    while (done[0] < lengths[0] || done[1] < lengths[1] || done[2] < lengths[2]) {
        bt_part parts[N];
        size_t n_parts = 0, who[N];
        for (size_t i = 0; i < N; i++) { /* 0 prefills in pieces of 400; 1 decodes; 2 takes 50 at a time */
            size_t want = i == 0 ? 400 : i == 1 ? 1 : 50, left = lengths[i] - done[i];
            if (left == 0) continue;
            who[n_parts] = i;
            parts[n_parts++] = (bt_part){s[i], ids[i] + done[i], want < left ? want : left};
        }
        unit_ok(bt_engine_step(g, parts, n_parts, &e), &e);
        for (size_t p = 0; p < n_parts; p++) {
            size_t i = who[p];
            done[i] += parts[p].n;
            assert_int_equal(bt_session_length(s[i]), done[i]);
            same_bits(alone[i] + (done[i] - 1) * n_vocab, bt_session_logits(s[i]), n_vocab, name);
        }
    }
    for (size_t i = 0; i < N; i++) {
        bt_session_close(s[i]);
        free(ids[i]);
        free(alone[i]);
    }
    bt_engine_close(g);
    bt_model_close(m);
}

static void test_three_timelines(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) three_timelines(models[i], 500);
    three_timelines("k2-dense", 1300);
    three_timelines("k2-mova", 1300);
    three_timelines("k3-bf16", 1300);
}

static void test_step_refusals(void **state)
{
    (void)state;
    bt_error e = {0};
    bt_model *m = unit_open_model("k2-dense");
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_slots = 2, .context = 16, .batch = 8});
    bt_engine *other = unit_open_engine(m, (bt_engine_options){.context = 16});
    bt_session *a = unit_open_session(g), *b = unit_open_session(g), *c = unit_open_session(other), *none = NULL;
    assert_int_equal(bt_session_open(g, &none, &e), BT_ERR_USAGE);
    int32_t ids[20] = {1, 2, 3};
    bt_part twice[] = {{a, ids, 1}, {a, ids, 1}}, foreign[] = {{c, ids, 1}}, empty[] = {{a, ids, 0}};
    bt_part many[] = {{a, ids, 4}, {b, ids, 5}}, good[] = {{a, ids, 3}, {b, ids, 5}};
    assert_int_equal(bt_engine_step(g, twice, 2, &e), BT_ERR_USAGE);
    assert_int_equal(bt_engine_step(g, foreign, 1, &e), BT_ERR_USAGE);
    assert_int_equal(bt_engine_step(g, empty, 1, &e), BT_ERR_USAGE);
    assert_int_equal(bt_engine_step(g, many, 2, &e), BT_ERR_USAGE);
    assert_int_equal(bt_engine_step(g, good, 0, &e), BT_ERR_USAGE);
    assert_int_equal(bt_session_length(a), 0);
    unit_ok(bt_engine_step(g, good, 2, &e), &e);
    assert_int_equal(bt_session_length(b), 5);
    bt_session_close(a);
    bt_session_close(b);
    bt_session_close(c);
    bt_engine_close(g);
    bt_engine_close(other);
    bt_model_close(m);
}

static void test_rewind(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        enum { N = 200 };
        bt_error e = {0};
        bt_model *m = unit_open_model(models[i]);
        size_t n_vocab = bt_model_n_vocab(m);
        int32_t *first = random_ids(N, n_vocab, 3), *second = random_ids(N, n_vocab, 4);
        bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 2, .context = 2 * N});
        bt_session *s = unit_open_session(g);
        unit_ok(bt_session_extend(s, first, N, NULL, &e), &e);
        static const size_t lengths[] = {150, 130, 128, 127, 1, 0};
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            size_t keep = lengths[j];
            unit_ok(bt_session_rewind(s, keep, NULL, &e), &e);
            assert_null(bt_session_logits(s));
            unit_ok(bt_session_extend(s, second + keep, N - keep, NULL, &e), &e);
            int32_t all[N];
            memcpy(all, first, keep * sizeof *all);
            memcpy(all + keep, second + keep, (N - keep) * sizeof *all);
            float *fresh = unit_logits(m, (bt_engine_options){.n_threads = 2}, all, N, 0);
            same_bits(fresh + (N - 1) * n_vocab, bt_session_logits(s), n_vocab, "after a rewind");
            assert_memory_equal(bt_session_ids(s), all, sizeof all);
            free(fresh);
            unit_ok(bt_session_rewind(s, keep, NULL, &e), &e);
            unit_ok(bt_session_extend(s, first + keep, N - keep, NULL, &e), &e);
        }
        assert_int_equal(bt_session_rewind(s, N + 1, NULL, &e), BT_ERR_USAGE);
        bt_session_close(s);
        bt_engine_close(g);
        bt_model_close(m);
        free(first);
        free(second);
    }
}

static void test_snapshot(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        enum { N = 160, MORE = 20 };
        bt_error e = {0};
        bt_model *m = unit_open_model(models[i]);
        size_t n_vocab = bt_model_n_vocab(m), size = 0;
        int32_t *ids = random_ids(N + MORE, n_vocab, 5);
        float *fresh = unit_logits(m, (bt_engine_options){.n_threads = 1}, ids, N + MORE, 0);
        bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 2, .context = N + MORE});
        bt_session *s = unit_open_session(g);
        unit_ok(bt_session_extend(s, ids, N, NULL, &e), &e);
        void *data = NULL;
        unit_ok(bt_session_snapshot(s, &data, &size, &e), &e);
        bt_session_close(s);
        bt_engine_close(g);
        /* Another engine, other threads, another context length, something else in the slot. */
        g = unit_open_engine(m, (bt_engine_options){.n_threads = 3, .context = 2 * N + MORE, .n_slots = 2});
        bt_session *other = unit_open_session(g);
        s = unit_open_session(g);
        unit_ok(bt_session_extend(s, ids + 7, 100, NULL, &e), &e);
        unit_ok(bt_session_restore(s, data, size, &e), &e);
        assert_int_equal(bt_session_length(s), N);
        assert_memory_equal(bt_session_ids(s), ids, N * sizeof *ids);
        same_bits(fresh + (N - 1) * n_vocab, bt_session_logits(s), n_vocab, "restored logits");
        unit_ok(bt_session_extend(s, ids + N, MORE, NULL, &e), &e);
        same_bits(fresh + (N + MORE - 1) * n_vocab, bt_session_logits(s), n_vocab, "after restore");
        bt_session_close(s);
        bt_session_close(other);
        bt_engine_close(g);
        bt_model_close(m);
        bt_free(data);
        free(ids);
        free(fresh);
    }
}

static void test_snapshot_in_another_process(void **state)
{
    (void)state;
    enum { N = 130 };
    bt_error e = {0};
    bt_model *m = unit_open_model("k2-dense");
    size_t n_vocab = bt_model_n_vocab(m), size = 0;
    int32_t *ids = random_ids(N + 1, n_vocab, 6);
    float *fresh = unit_logits(m, (bt_engine_options){.n_threads = 1}, ids, N + 1, 0);
    char *folder = unit_make_folder();
    char path[4400];
    (void)snprintf(path, sizeof path, "%s/snapshot", folder);
    pid_t child = fork();
    if (child == 0) {
        bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 1, .context = N});
        bt_session *s = unit_open_session(g);
        void *data = NULL;
        if (bt_session_extend(s, ids, N, NULL, &e) != BT_OK || bt_session_snapshot(s, &data, &size, &e) != BT_OK)
            _exit(1);
        unit_write_file(folder, "snapshot", data, size);
        _exit(0);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    static char data[8u << 20];
    size = fread(data, 1, sizeof data, f);
    assert_int_equal(fclose(f), 0);
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 2, .context = N + 1});
    bt_session *s = unit_open_session(g);
    unit_ok(bt_session_restore(s, data, size, &e), &e);
    unit_ok(bt_session_extend(s, ids + N, 1, NULL, &e), &e);
    same_bits(fresh + N * n_vocab, bt_session_logits(s), n_vocab, "after another process");
    bt_session_close(s);
    bt_engine_close(g);
    bt_model_close(m);
    unit_remove_folder(folder);
    free(folder);
    free(ids);
    free(fresh);
}

/* Every refusal leaves the session as it was. */
static void refused(bt_session *s, const void *data, size_t size, const char *word)
{
    bt_error e = {0};
    size_t length = bt_session_length(s);
    assert_int_not_equal(bt_session_restore(s, data, size, &e), BT_OK);
    if (strstr(e.message, word) == NULL) fail_msg("\"%s\" does not speak of \"%s\"", e.message, word);
    assert_int_equal(bt_session_length(s), length);
}

static void test_snapshot_refusals(void **state)
{
    (void)state;
    bt_error e = {0};
    bt_model *m = unit_open_model("k2-dense"), *yarn = unit_open_model("k2-normgate");
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.context = 64});
    bt_engine *small = unit_open_engine(m, (bt_engine_options){.context = 20});
    bt_engine *bf16 = unit_open_engine(m, (bt_engine_options){.context = 64, .kv_dtype = "bf16"});
    bt_engine *foreign = unit_open_engine(yarn, (bt_engine_options){.context = 64});
    bt_session *s = unit_open_session(g), *a = unit_open_session(small), *b = unit_open_session(bf16),
               *c = unit_open_session(foreign);
    int32_t *ids = random_ids(30, bt_model_n_vocab(m), 7);
    unit_ok(bt_session_extend(s, ids, 30, NULL, &e), &e);
    unit_ok(bt_session_extend(a, ids, 5, NULL, &e), &e);
    void *data = NULL;
    size_t size = 0;
    unit_ok(bt_session_snapshot(s, &data, &size, &e), &e);
    refused(a, data, size, "context");
    refused(b, data, size, "KV type");
    refused(c, data, size, "another model");
    refused(s, data, size - 1, "bytes long");
    refused(s, data, 3, "none");
    uint8_t *bytes = data;
    for (size_t at = 0; at < size; at += at < 200 ? 1 : 997) { /* no flipped bit goes unseen */
        bytes[at] ^= 0x10;
        assert_int_not_equal(bt_session_restore(s, data, size, &e), BT_OK);
        bytes[at] ^= 0x10;
    }
    unit_ok(bt_session_restore(s, data, size, &e), &e);
    bt_free(data);
    free(ids);
    bt_session_close(s);
    bt_session_close(a);
    bt_session_close(b);
    bt_session_close(c);
    bt_engine_close(g);
    bt_engine_close(small);
    bt_engine_close(bf16);
    bt_engine_close(foreign);
    bt_model_close(m);
    bt_model_close(yarn);
}

/* C44: ctx - 1, ctx, ctx + 1; both numbers in the message; nothing done. C41: ids beyond the vocabulary. */
static void test_limits(void **state)
{
    (void)state;
    bt_error e = {0};
    bt_model *m = unit_open_model("k2-dense");
    int32_t *ids = random_ids(65, bt_model_n_vocab(m), 8);
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.context = 64});
    bt_session *s = unit_open_session(g);
    assert_int_equal(bt_session_extend(s, ids, 65, NULL, &e), BT_ERR_CONTEXT);
    assert_non_null(strstr(e.message, "65"));
    assert_non_null(strstr(e.message, "64"));
    assert_int_equal(bt_session_length(s), 0);
    unit_ok(bt_session_extend(s, ids, 63, NULL, &e), &e);
    unit_ok(bt_session_extend(s, ids, 1, NULL, &e), &e);
    assert_int_equal(bt_session_extend(s, ids, 1, NULL, &e), BT_ERR_CONTEXT);
    unit_ok(bt_session_rewind(s, 10, NULL, &e), &e);
    int32_t bad[3] = {1, -1, 2};
    assert_int_equal(bt_session_extend(s, bad, 3, NULL, &e), BT_ERR_USAGE);
    bad[1] = (int32_t)bt_model_n_vocab(m);
    assert_int_equal(bt_session_extend(s, bad, 3, NULL, &e), BT_ERR_USAGE);
    assert_int_equal(bt_session_length(s), 10);
    unit_ok(bt_session_extend(s, bad, 0, NULL, &e), &e);
    bt_session_close(s);
    bt_engine_close(g);
    free(ids);
    bt_model_close(m);
}

typedef struct stopper {
    size_t n_calls, stop_at;
} stopper;

static bool keep_going(void *user, size_t n_done, size_t n_total)
{
    stopper *k = user;
    assert_true(n_done < n_total);
    return k->n_calls++ != k->stop_at;
}

static void test_cancel(void **state)
{
    (void)state;
    bt_error e = {0};
    bt_model *m = unit_open_model("k2-dense");
    size_t n_vocab = bt_model_n_vocab(m);
    int32_t *ids = random_ids(64, n_vocab, 9);
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.context = 64, .batch = 16});
    bt_session *s = unit_open_session(g);
    stopper k = {.stop_at = 2};
    assert_int_equal(bt_session_extend(s, ids, 64, &(bt_hook){keep_going, &k}, &e), BT_ERR_CANCELLED);
    assert_int_equal(bt_session_length(s), 32);
    assert_null(bt_session_logits(s));
    unit_ok(bt_session_extend(s, ids + 32, 32, NULL, &e), &e);
    float *fresh = unit_logits(m, (bt_engine_options){0}, ids, 64, 0);
    same_bits(fresh + 63 * n_vocab, bt_session_logits(s), n_vocab, "after a stop");
    free(fresh);
    free(ids);
    bt_session_close(s);
    bt_engine_close(g);
    bt_model_close(m);
}

static void test_engine_refusals(void **state)
{
    (void)state;
    bt_model *m = unit_open_model("k2-dense");
    static const struct {
        bt_engine_options o;
        bt_status status;
        const char *word;
    } cases[] = {
        {{.device = "cuda"}, BT_ERR_UNSUPPORTED, "cpu"},    {{.device = "vulkan:1"}, BT_ERR_UNSUPPORTED, "cpu"},
        {{.device = "tpu"}, BT_ERR_USAGE, "tpu"},           {{.dtype = "bf16"}, BT_ERR_UNSUPPORTED, "f32"},
        {{.dtype = "f16"}, BT_ERR_UNSUPPORTED, "f32"},      {{.dtype = "int7"}, BT_ERR_USAGE, "int7"},
        {{.kv_dtype = "int8"}, BT_ERR_UNSUPPORTED, "int8"}, {{.cpu_level = "sse9"}, BT_ERR_USAGE, "sse9"},
        {{.context = 4097}, BT_ERR_CONTEXT, "4096"},        {{.context = SIZE_MAX}, BT_ERR_USAGE, "context"},
        {{.batch = 1u << 30}, BT_ERR_USAGE, "batch"},       {{.n_threads = 100000}, BT_ERR_USAGE, "threads"},
        {{.n_slots = 100000}, BT_ERR_USAGE, "slots"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_error e = {0};
        bt_engine *g = NULL;
        assert_int_equal(bt_engine_open(m, &cases[i].o, &g, &e), cases[i].status);
        if (strstr(e.message, cases[i].word) == NULL) fail_msg("\"%s\" lacks \"%s\"", e.message, cases[i].word);
    }
    bt_model_close(m);
}

/* A made-up cgroup that gives too little: refused with numbers, by plan and by open; --overcommit lifts only the
 * second. */
static void test_memory_plan(void **state)
{
    (void)state;
    bt_error e = {0};
    bt_model *m = unit_open_model("k2-dense");
    char *root = unit_make_folder();
    char command[4600];
    (void)snprintf(command, sizeof command, "mkdir -p '%s/proc/self' '%s/sys/fs/cgroup'", root, root);
    assert_int_equal(system(command), 0);
    bt_memory_plan p;
    bt_engine_options o = {.context = 512, .root = root};
    unit_write_file(root, "proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n", 47);
    unit_write_file(root, "proc/self/cgroup", "0::/\n", 5);
    unit_ok(bt_engine_plan(m, &o, &p, &e), &e);
    assert_int_equal(p.available_bytes, 4096000000u);
    assert_true(p.kv == 4u * 2 * 2 * 16 * 512 * 4);
    assert_int_equal(p.private_bytes, p.kv + p.state + p.scratch + p.weights_private + p.tables);
    uint64_t private_bytes = p.private_bytes, mapped_bytes = p.mapped_bytes;
    char limit[64];
    int n = snprintf(limit, sizeof limit, "%llu\n", (unsigned long long)(private_bytes + mapped_bytes - 4096));
    unit_write_file(root, "sys/fs/cgroup/memory.max", limit, (size_t)n);
    unit_write_file(root, "sys/fs/cgroup/memory.current", "0\n", 2);
    assert_int_equal(bt_engine_plan(m, &o, &p, &e), BT_ERR_MEMORY);
    assert_non_null(strstr(e.message, "--overcommit"));
    assert_int_equal(p.private_bytes, private_bytes);
    o.overcommit = true;
    unit_ok(bt_engine_plan(m, &o, &p, &e), &e);
    n = snprintf(limit, sizeof limit, "%llu\n", (unsigned long long)(private_bytes - 4096));
    unit_write_file(root, "sys/fs/cgroup/memory.max", limit, (size_t)n);
    assert_int_equal(bt_engine_plan(m, &o, &p, &e), BT_ERR_MEMORY);
    bt_engine *g = NULL;
    assert_int_equal(bt_engine_open(m, &o, &g, &e), BT_ERR_MEMORY);
    assert_non_null(strstr(e.message, "MB"));
    unit_remove_folder(root);
    free(root);
    bt_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_chunks),
        cmocka_unit_test(test_long_prompt),
        cmocka_unit_test(test_three_timelines),
        cmocka_unit_test(test_step_refusals),
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_snapshot_refusals),
        cmocka_unit_test(test_snapshot_in_another_process),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_engine_refusals),
        cmocka_unit_test(test_memory_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
