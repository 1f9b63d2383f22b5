/*
 * The memory plan is honest (case C62): what a process really takes, as the kernel counts it, is what was announced
 * before anything was loaded, to 2 % or 4 MB, whichever is more; and no more than that while a context fills. Plain
 * builds only: sanitizers keep books of their own.
 */
#include "model_unit.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "base/rng.h"

static uint64_t anonymous_bytes(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long kib = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "RssAnon: %llu", &kib) == 1) break;
    assert_int_equal(fclose(f), 0);
    return kib * 1024;
}

typedef struct setting {
    const char *model, *kv;
    size_t threads, context, batch, slots;
} setting;

/* In a process of its own, so that nothing freed before is taken up again. Exits 0 if the plan was kept. */
static void keep_plan(const setting *s)
{
    bt_error e = {.status = BT_OK};
    const bt_engine_options o = {.kv_dtype = s->kv,
                                 .n_threads = s->threads,
                                 .context = s->context,
                                 .batch = s->batch,
                                 .n_slots = s->slots,
                                 .overcommit = true};
    char path[256];
    (void)snprintf(path, sizeof path, UNIT_MODELS "%s", s->model);
    bt_model *m = NULL;
    bt_engine *g = NULL;
    bt_memory_plan plan;
    uint64_t before = anonymous_bytes();
    if (bt_model_open(path, NULL, &m, &e) != BT_OK || bt_engine_plan(m, &o, &plan, &e) != BT_OK ||
        bt_engine_open(m, &o, &g, &e) != BT_OK) {
        (void)fprintf(stderr, "%s\n", e.message);
        _exit(2);
    }
    uint64_t slack = plan.private_bytes / 50 > 4000000 ? plan.private_bytes / 50 : 4000000, taken = 0;
    int32_t ids[512];
    for (size_t i = 0; i < 512; i++) ids[i] = (int32_t)(bt_rng_u64(1, i) % bt_model_n_vocab(m));
    for (size_t slot = 0; slot < plan.n_slots; slot++) {
        bt_session *session = NULL;
        if (bt_session_open(g, &session, &e) != BT_OK) _exit(3);
        for (size_t done = 0; done < plan.context; done += 512) {
            size_t n = plan.context - done < 512 ? plan.context - done : 512;
            if (bt_session_extend(session, ids, n, NULL, &e) != BT_OK) _exit(4);
            taken = anonymous_bytes() - before;
            if (taken > plan.private_bytes + slack) goto broken;
        }
    } /* sessions stay open: every slot is full at the end */
    if (taken + slack < plan.private_bytes) goto broken;
    _exit(0);
broken:
    (void)fprintf(stderr, "%s: planned %llu bytes (KV %llu, scratch %llu, tables %llu), took %llu\n", s->model,
                  (unsigned long long)plan.private_bytes, (unsigned long long)plan.kv, (unsigned long long)plan.scratch,
                  (unsigned long long)plan.tables, (unsigned long long)taken);
    _exit(1);
}

static void plans_are_honest(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    static const setting settings[] = {
        {"k2-dense", "f32", 2, 64, 16, 1},     {"k2-dense", "f32", 2, 4096, 512, 4},
        {"k2-dense", "bf16", 2, 4096, 512, 4}, {"k2-mova-fp8", "f32", 1, 2048, 128, 2},
        {"k2-mova", "bf16", 3, 2048, 512, 3},  {"own-llama", "f32", 1, 256, 512, 64},
        {"own-llama", "f32", 64, 32, 32, 1},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        (void)fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) keep_plan(&settings[i]);
        int how;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) fail_msg("setting %zu (%s) fails", i, settings[i].model);
    }
}

/* Of weights that do not fit nothing but headers and the first page of some tensors may have been looked at. */
static void refused_before_weights_are_read(void **state)
{
    (void)state;
    bt_error e = {.status = BT_OK};
    char *root = unit_make_folder(), path[4100];
    static const char *const folders[] = {"proc", "proc/self", "sys", "sys/fs", "sys/fs/cgroup"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        (void)snprintf(path, sizeof path, "%.4000s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    (void)snprintf(path, sizeof path, "%.4000s/proc/self", root);
    unit_write_file(path, "cgroup", "0::/\n", 5);
    (void)snprintf(path, sizeof path, "%.4000s/sys/fs/cgroup", root);
    unit_write_file(path, "cgroup.controllers", "memory\n", 7);
    unit_write_file(path, "memory.current", "0\n", 2);
    bt_model *m = unit_open_model("k2-dense");
    bt_engine_options o = {.n_threads = 1, .context = 64, .root = root};
    bt_memory_plan plan;
    bt_engine *g = NULL;
    char limit[32];
    unit_write_file(path, "memory.max", "1000000000000\n", 14);
    unit_ok(bt_engine_plan(m, &o, &plan, &e), &e);
    uint64_t limits[] = {0, 1, plan.private_bytes - 1, plan.private_bytes + plan.mapped_bytes - 1};
    for (size_t i = 0; i < 4; i++) {
        int n = snprintf(limit, sizeof limit, "%llu\n", (unsigned long long)limits[i]);
        unit_write_file(path, "memory.max", limit, (size_t)n);
        assert_int_equal(bt_engine_open(m, &o, &g, &e), BT_ERR_MEMORY);
        assert_null(g);
        assert_non_null(strstr(e.message, "available"));
    }
    int n = snprintf(limit, sizeof limit, "%llu\n", (unsigned long long)(plan.private_bytes + plan.mapped_bytes));
    unit_write_file(path, "memory.max", limit, (size_t)n);
    unit_ok(bt_engine_open(m, &o, &g, &e), &e);
    bt_engine_close(g);
    bt_model_close(m);
    unit_remove_folder(root);
    free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_honest),
        cmocka_unit_test(refused_before_weights_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
