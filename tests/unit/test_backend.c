/* The registry, the sizes that a plan promises, states, and the step's own rules. */
#include "test_ops_world.h"

#include "base/arena.h"

static void devices_are_found_by_name(void **state)
{
    (void)state;
    const bt_backend_vtable *v = NULL;
    bt_error e;
    assert_int_equal(bt_backend_find("cpu", &v, &e), BT_OK);
    assert_ptr_equal(v, &bt_cpu_backend);
    assert_ptr_equal(bt_backends()[0], &bt_cpu_backend);
    assert_null(bt_backends()[1]);
    static const char *const later[] = {"cuda", "vulkan", "webgpu", "wgpu", "metal", "cuda:0", "vulkan:12"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        assert_int_equal(bt_backend_find(later[i], &v, &e), BT_ERR_UNSUPPORTED);
        assert_non_null(strstr(e.message, later[i]));
        assert_non_null(strstr(e.message, "this build has: cpu"));
    }
    static const char *const unknown[] = {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:x", "cuda:1x", "cudas", "cuda 0"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(bt_backend_find(unknown[i], &v, &e), BT_ERR_USAGE);
        assert_non_null(strstr(e.message, "is unknown; this build has: cpu"));
    }
}

/* A tape with one of each kind of private memory: norm vectors, a router, experts, attention, states. */
typedef struct sized {
    world w;
    bt_act x;
} sized;

static void sized_open(sized *z, uint32_t context)
{
    world *w = &z->w;
    w->seed = 1;
    enum { WIDTH = 1024, EXPERTS = 8, K = 4, HIDDEN = 256 };
    uint32_t norm = world_vector(w, WIDTH, BT_BF16), bias = world_vector(w, EXPERTS, BT_F32);
    uint32_t table = world_linear(w, 16, WIDTH, BT_BF16), square = world_linear(w, WIDTH, WIDTH, BT_BF16);
    uint32_t router = world_linear(w, EXPERTS, WIDTH, BT_BF16), first = w->n_views;
    for (uint32_t i = 0; i < EXPERTS; i++) {
        world_linear(w, HIDDEN, WIDTH, BT_BF16);
        world_linear(w, HIDDEN, WIDTH, BT_BF16);
        world_linear(w, WIDTH, HIDDEN, BT_BF16);
    }
    bt_limits limits = {.max_rows = 256, .max_logit_rows = 2, .context = context, .n_slots = 2, .kv_dtype = BT_F32};
    world_begin(w, &limits);
    bt_tape_builder *b = w->b;
    bt_act x = bt_tape_act(b, BT_SPACE_ROWS, WIDTH), a = bt_tape_act(b, BT_SPACE_ROWS, WIDTH);
    bt_act q = bt_tape_act(b, BT_SPACE_ROWS, WIDTH), h = bt_tape_act(b, BT_SPACE_ROWS, K * HIDDEN);
    bt_act logits = bt_tape_act(b, BT_SPACE_ROWS, EXPERTS);
    bt_routes routes = bt_tape_routes(b, K);
    uint32_t ks = bt_tape_positions(b, 8, 128), vs = bt_tape_positions(b, 8, 128);
    bt_op_embed(b, x, table);
    bt_op_rms_norm(b, a, x, norm, 1, 1e-6);
    bt_op_linear(b, q, a, square);
    bt_op_store(b, ks, a);
    bt_op_store(b, vs, q);
    bt_op_attention(b, x, q, ks, vs, 8, 128, 0.1);
    bt_op_linear(b, logits, a, router);
    bt_route_spec spec = {.bias = bias, .score = 1, .scale = 1, .force = -1};
    bt_op_route(b, routes, logits, &spec);
    bt_op_moe_up_gate(b, h, a, routes, first, first + 1, 3, EXPERTS, 1);
    bt_op_moe_down_sum(b, x, h, routes, first + 2, 3, EXPERTS, NULL);
    z->x = x;
    world_finish_body(w);
}

/* What is promised without allocating is what opening takes, for any number of threads. */
static void plan_sizes_are_what_opening_takes(void **state)
{
    (void)state;
    static const uint32_t contexts[] = {64, 1000};
    for (size_t c = 0; c < 2; c++) {
        sized z = {.x = {0}};
        sized_open(&z, contexts[c]);
        for (size_t n_threads = 1; n_threads <= 5; n_threads += 2) {
            bt_backend_options o = {.n_threads = n_threads, .cpu_level = BT_CPU_SCALAR};
            uint64_t scratch = bt_cpu_backend.plan_scratch_bytes(&o, z.w.tape);
            uint64_t weights = bt_cpu_backend.plan_weight_bytes(&o, z.w.tape);
            world_open_plan(&z.w, BT_CPU_SCALAR, n_threads);
            assert_int_equal(((bt_cpu_plan *)z.w.plan)->bytes_taken, scratch + weights);
            assert_int_equal(weights, (1024 + 16) * sizeof(float));
            assert_true(scratch >= z.w.tape->scratch_words * 4 + n_threads * BT_KERNEL_SCRATCH_BYTES);
        }
        world_close(&z.w);
    }
}

static uint64_t anonymous_bytes(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "RssAnon: %llu", &kib) == 1) break;
    assert_int_equal(fclose(f), 0);
    return kib * 1024;
}

/* After full steps the process holds what was planned, to 2 % or 4 MB (sanitizers keep books of their own). */
static void measured_memory_is_the_plan(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    sized z = {.x = {0}};
    sized_open(&z, 4096);
    uint64_t before = anonymous_bytes();
    bt_backend_options o = {.n_threads = 2, .cpu_level = bt_cpu_detect()};
    uint64_t planned = bt_cpu_backend.plan_scratch_bytes(&o, z.w.tape) +
                       bt_cpu_backend.plan_weight_bytes(&o, z.w.tape) + 2 * z.w.tape->slot_bytes;
    world_open_plan(&z.w, o.cpu_level, o.n_threads);
    static int32_t ids[256];
    for (uint32_t i = 0; i < 256; i++) ids[i] = (int32_t)(i % 16);
    for (uint32_t slot = 0; slot < 2; slot++)
        for (uint32_t position = 0; position < 4096; position += 256) {
            bt_segment g = {.slot = slot, .n_rows = 256, .position = position};
            bt_step s = {.ids = ids, .n_rows = 256, .segments = &g, .n_segments = 1};
            assert_int_equal(bt_cpu_backend.run(z.w.plan, &s, BT_RUN_ALL, NULL), BT_OK);
        }
    uint64_t taken = anonymous_bytes() - before, slack = planned / 50 > 4000000 ? planned / 50 : 4000000;
    if (taken > planned + slack || taken + slack < planned)
        fail_msg("planned %llu bytes, took %llu", (unsigned long long)planned, (unsigned long long)taken);
    world_close(&z.w);
}

static void sizes_beyond_memory_are_refused(void **state)
{
    (void)state;
    world w = {.seed = 1};
    bt_limits limits = {.max_rows = 1u << 30, .max_logit_rows = 1, .context = 1, .n_slots = 1, .kv_dtype = BT_F32};
    world_begin(&w, &limits);
    (void)bt_tape_act(w.b, BT_SPACE_ROWS, 1u << 28); /* 2^60 bytes: no machine has them */
    world_finish_body(&w);
    bt_error e;
    bt_backend_options o = {.n_threads = 1, .cpu_level = BT_CPU_SCALAR};
    assert_int_equal(bt_cpu_backend.open(&o, &w.backend, &e), BT_OK);
    assert_int_equal(bt_cpu_backend.plan_open(w.backend, w.tape, &w.plan, &e), BT_ERR_MEMORY);
    assert_non_null(strstr(e.message, "bytes of states"));
    assert_null(w.plan);
    world_close(&w);
}

/* Every failing allocation while opening is reported, and nothing leaks (ASan sees to that). */
static void no_memory_is_reported_while_opening(void **state)
{
    (void)state;
    sized z = {.x = {0}};
    sized_open(&z, 64);
    bt_backend_options o = {.n_threads = 2, .cpu_level = BT_CPU_SCALAR};
    bt_error e;
    bool failed = true;
    for (long n = 0; failed; n++) {
        assert_true(n < 100);
        bt_backend *be = NULL;
        bt_plan *p = NULL;
        bt_alloc_fail_after(n);
        bt_status st = bt_cpu_backend.open(&o, &be, &e);
        if (st == BT_OK) st = bt_cpu_backend.plan_open(be, z.w.tape, &p, &e);
        bt_alloc_fail_after(-1);
        failed = st != BT_OK;
        if (failed) assert_int_equal(st, BT_ERR_MEMORY);
        bt_cpu_backend.plan_close(p);
        bt_cpu_backend.close(be);
    }
    world_close(&z.w);
}

static void states_are_read_and_written_by_slot(void **state)
{
    (void)state;
    sized z = {.x = {0}};
    sized_open(&z, 64);
    world_open_plan(&z.w, BT_CPU_SCALAR, 1);
    const bt_backend_vtable *v = &bt_cpu_backend;
    uint64_t n = z.w.tape->slot_bytes;
    uint8_t in[100], out[100], zeros[100] = {0};
    for (size_t i = 0; i < sizeof in; i++) in[i] = (uint8_t)(i + 1);
    assert_int_equal(v->state_read(z.w.plan, 0, n - 100, out, 100, NULL), BT_OK);
    assert_memory_equal(out, zeros, 100);
    assert_int_equal(v->state_write(z.w.plan, 1, n - 100, in, 100, NULL), BT_OK);
    assert_int_equal(v->state_read(z.w.plan, 1, n - 100, out, 100, NULL), BT_OK);
    assert_memory_equal(out, in, 100);
    assert_int_equal(v->state_read(z.w.plan, 0, n - 100, out, 100, NULL), BT_OK);
    assert_memory_equal(out, zeros, 100);
    assert_int_equal(v->state_read(z.w.plan, 1, n, out, 0, NULL), BT_OK);
    assert_int_equal(v->state_zero(z.w.plan, 1, NULL), BT_OK);
    world_close(&z.w);
}

static void level_is_masked_downwards(void **state)
{
    (void)state;
    for (bt_cpu_level level = BT_CPU_SCALAR; level < BT_CPU_N; level++) {
        bt_backend_options o = {.n_threads = 1, .cpu_level = level};
        bt_backend *be = NULL;
        assert_int_equal(bt_cpu_backend.open(&o, &be, NULL), BT_OK);
        bt_cpu_level used;
        assert_true(bt_cpu_level_parse(bt_cpu_backend.level(be), &used));
        assert_true(used <= level && used <= bt_cpu_detect());
        bt_cpu_backend.close(be);
    }
    bt_cpu_backend.close(NULL);
    bt_cpu_backend.plan_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_found_by_name),           cmocka_unit_test(plan_sizes_are_what_opening_takes),
        cmocka_unit_test(measured_memory_is_the_plan),         cmocka_unit_test(sizes_beyond_memory_are_refused),
        cmocka_unit_test(no_memory_is_reported_while_opening), cmocka_unit_test(states_are_read_and_written_by_slot),
        cmocka_unit_test(level_is_masked_downwards),
    };
    return cmocka_run_group_tests_name("backend", tests, NULL, NULL);
}
