/*
 * Kimi beyond its goldens: the checks C2 to C6 of the spec's appendix A with the known-bads that each must catch,
 * states that stay finite through thousands of tokens, sizes of states, padding, and stops.
 */
#include "model_unit.h"

#include "backend/cpu/cpu.h"
#include "session/engine.h"
#include "session/session.h"

#define N_IDS 24 /* of the prefix that is kept */

static void some_ids(int32_t *ids, size_t n, uint32_t n_vocab)
{
    uint32_t x = 12345;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(x >> 8) % (int32_t)n_vocab;
    }
}

typedef struct world {
    bt_model *m;
    bt_engine *g;
    bt_session *s;
    size_t n_vocab;
} world;

static world open_world(const char *model, size_t context)
{
    world w = {.m = unit_open_model(model)};
    w.g = unit_open_engine(w.m, (bt_engine_options){.n_threads = 2, .context = context});
    w.s = unit_open_session(w.g);
    w.n_vocab = bt_model_n_vocab(w.m);
    return w;
}

static void close_world(world w)
{
    bt_session_close(w.s);
    bt_engine_close(w.g);
    bt_model_close(w.m);
}

static void extend(world w, const int32_t *ids, size_t n)
{
    bt_error e = {0};
    unit_ok(bt_session_extend(w.s, ids, n, NULL, &e), &e);
}

/* ---- C2 to C4: what is kept is what would be computed ------------------------------------------------------------ */

/* Kinds of state, told by their form in k3-bf16. */
typedef enum kind { TAIL, MEMORY, LATENT } kind;

static kind kind_of(const bt_state *s)
{
    if (s->per_position) return LATENT;
    return s->width == 36 ? TAIL : MEMORY; /* heads x head_dim, or head_dim squared */
}

/* Greedy: n ids after what the session holds. */
static void greedy(world w, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)unit_top(bt_session_logits(w.s), w.n_vocab);
        extend(w, ids + i, 1);
    }
}

static void fill_state(world w, kind k, size_t from, size_t to, float value)
{
    bt_error e = {0};
    const bt_tape *t = w.g->tape;
    for (uint32_t i = 0; i < t->n_states; i++) {
        const bt_state *s = &t->states[i];
        if (kind_of(s) != k) continue;
        size_t row = s->width * sizeof value, n_rows = k == LATENT ? to : s->n_strips;
        for (size_t r = from; r < (k == LATENT ? n_rows : to); r++) {
            float *bytes = malloc(row);
            assert_non_null(bytes);
            for (size_t j = 0; j < s->width; j++) bytes[j] = value;
            uint64_t at = s->offset + (k == LATENT ? r * row : r * s->strip_bytes);
            unit_ok(w.g->vtable->state_write(w.g->plan, 0, at, bytes, row, &e), &e);
            free(bytes);
        }
    }
}

static void stomp_tails(world w)
{
    fill_state(w, TAIL, 0, 2, 7);
}

static void stomp_latents(world w)
{
    fill_state(w, LATENT, 0, N_IDS, 7);
}

static void stomp_memory(world w)
{
    fill_state(w, MEMORY, 0, 3, 7);
}

/* C3: a restored prefix goes on with the ids of a cold one; not so if any kind of state was stomped. */
static void go_on(const int32_t *prefix, void (*stomp)(world w), int32_t *ids, float *logits)
{
    bt_error e = {0};
    world w = open_world("k3-bf16", 64), cold = open_world("k3-bf16", 64);
    void *data = NULL;
    size_t size = 0;
    extend(cold, prefix, N_IDS);
    unit_ok(bt_session_snapshot(cold.s, &data, &size, &e), &e);
    unit_ok(bt_session_restore(w.s, data, size, &e), &e);
    bt_free(data);
    if (stomp != NULL) stomp(w);
    extend(w, prefix, 1);
    greedy(w, ids, 8);
    memcpy(logits, bt_session_logits(w.s), w.n_vocab * sizeof *logits);
    close_world(w);
    close_world(cold);
}

static void test_prefix(void **state)
{
    (void)state;
    static void (*const stomps[])(world w) = {stomp_tails, stomp_latents, stomp_memory};
    int32_t prefix[N_IDS], cold[8], warm[8];
    float a[96], b[96];
    some_ids(prefix, N_IDS, 96);
    world w = open_world("k3-bf16", 64);
    extend(w, prefix, N_IDS);
    extend(w, prefix, 1);
    greedy(w, cold, 8);
    memcpy(a, bt_session_logits(w.s), sizeof a);
    close_world(w);
    go_on(prefix, NULL, warm, b);
    assert_memory_equal(cold, warm, sizeof cold);
    assert_memory_equal(a, b, sizeof a);
    for (size_t i = 0; i < sizeof stomps / sizeof *stomps; i++) {
        go_on(prefix, stomps[i], warm, b);
        if (memcmp(cold, warm, sizeof cold) == 0) fail_msg("stomp %zu changes no id", i);
    }
}

/* All states of slot 0. */
static uint8_t *states_of(world w)
{
    bt_error e = {0};
    uint8_t *all = calloc(1, (size_t)w.g->tape->slot_bytes);
    assert_non_null(all);
    unit_ok(w.g->vtable->state_read(w.g->plan, 0, 0, all, (size_t)w.g->tape->slot_bytes, &e), &e);
    return all;
}

/* C4: N tokens and one more leave the states that N + 1 at once leave. Known-bads: the newest sample of a convolution
 * in place of the oldest, and the new row of a latent in place of row 0, must be seen. */
static void test_states(void **state)
{
    (void)state;
    int32_t ids[N_IDS + 1];
    some_ids(ids, N_IDS + 1, 96);
    world w = open_world("k3-bf16", 64), cold = open_world("k3-bf16", 64);
    extend(w, ids, N_IDS);
    extend(w, ids + N_IDS, 1);
    extend(cold, ids, N_IDS + 1);
    uint8_t *a = states_of(w), *b = states_of(cold);
    assert_memory_equal(a, b, (size_t)w.g->tape->slot_bytes);
    size_t n_tails = 0, n_latents = 0;
    for (uint32_t i = 0; i < w.g->tape->n_states; i++) {
        const bt_state *s = &w.g->tape->states[i];
        const float *strips = (const float *)(const void *)(a + s->offset);
        size_t strip = (size_t)s->strip_bytes / sizeof *strips;
        if (kind_of(s) == TAIL) n_tails += memcmp(strips, strips + 2 * strip, s->width * sizeof *strips) != 0;
        if (kind_of(s) == LATENT)
            n_latents += memcmp(strips, strips + N_IDS * s->width, s->width * sizeof *strips) != 0;
    }
    assert_int_equal(n_tails, 4 * 3); /* four KDA layers: q, k, v */
    assert_int_equal(n_latents, 2);
    free(a);
    free(b);
    close_world(w);
    close_world(cold);
}

/* C2's known-bad: a layer skipped on the decode path alone shows. */
static void no_rule(const bt_kda *a)
{
    for (size_t t = 0; t < a->n_rows; t++) memset(a->o + t * a->o_stride, 0, a->n_values * sizeof *a->o);
}

static void test_decode_path(void **state)
{
    (void)state;
    int32_t ids[N_IDS + 1];
    some_ids(ids, N_IDS + 1, 96);
    world w = open_world("k3-bf16", 64), cold = open_world("k3-bf16", 64);
    extend(cold, ids, N_IDS + 1);
    extend(w, ids, N_IDS);
    bt_kernels *k = &((bt_cpu_plan *)w.g->plan)->cpu->kernels, right = *k;
    k->kda = no_rule;
    extend(w, ids + N_IDS, 1);
    *k = right;
    double worst = 0;
    for (size_t i = 0; i < w.n_vocab; i++)
        worst = fmax(worst, fabs((double)bt_session_logits(w.s)[i] - (double)bt_session_logits(cold.s)[i]));
    assert_true(worst > 1e-3);
    close_world(w);
    close_world(cold);
}

/* ---- C5 and C6: recorded values ---------------------------------------------------------------------------------- */

static void at_each_level(void (*check)(const bt_kernels *k))
{
    for (int level = BT_CPU_SCALAR; level <= (int)bt_cpu_detect(); level++) {
        bt_kernels k;
        bt_kernels_init(&k, (bt_cpu_level)level);
        check(&k);
    }
}

static void check_mix(const bt_kernels *k)
{
    static const float sources[2][16] = {{1, 0, -.5f, 2}, {0, 1, 4, -3}}, u[16] = {.2f, -.1f, .4f, .3f};
    static const float expect[4] = {0.5715999f, 0.4284001f, 1.4278004f, -0.1420004f};
    float y[4], worst = 0;
    k->res_mix(y, sources[0], 16, 2, u, 4, 1e-5f);
    for (size_t i = 0; i < 4; i++) assert_true(fabsf(y[i] - expect[i]) <= 1e-5f);
    for (size_t i = 0; i < 4; i++) worst = fmaxf(worst, fabsf(y[i] - sources[1][i]));
    assert_true(worst > 0.5f); /* from the stream itself, which is what no mix would give */
}

static void test_mix(void **state)
{
    (void)state;
    at_each_level(check_mix);
}

/* Router logits 0 and 4, one expert: the second, whose up matrix doubles the first element; gates capped at 4, 25. */
static void check_experts(const bt_kernels *k)
{
    float logits[2] = {0, 4}, bias[2] = {0, 0}, weights[1], scratch[4], gain[4] = {1, 1, 1, 1};
    int32_t ids[1];
    bt_route r = {.logits = logits,
                  .bias = bias,
                  .n = 2,
                  .k = 1,
                  .score = BT_SCORE_SIGMOID,
                  .scale = 1,
                  .force = -1,
                  .ids = ids,
                  .weights = weights,
                  .scratch = scratch};
    k->route(&r);
    assert_int_equal(ids[0], 1);
    assert_true(fabsf(weights[0] - 0.98201379f) < 1e-6f);
    float gate[4] = {1, 0, 0, 0}, up[4] = {2, 0, 0, 0}, y[4];
    k->situ_mul(y, gate, up, 4, 4, 25);
    for (size_t i = 0; i < 4; i++) y[i] *= weights[0];
    k->rms_norm(y, y, gain, 4, 1, 1e-5f);
    assert_true(fabsf(y[0] - 1.9999804f) <= 1e-5f);
    assert_true(y[1] == 0 && y[2] == 0 && y[3] == 0);
    bias[0] = 5; /* ranks, and does not weigh */
    k->route(&r);
    assert_int_equal(ids[0], 0);
    assert_true(fabsf(weights[0] - 0.5f) < 1e-6f);
    bias[0] = 0;
    r.force = 0;
    k->route(&r);
    assert_int_equal(ids[0], 0);
}

static void test_experts(void **state)
{
    (void)state;
    at_each_level(check_experts);
}

/* ---- long, and sizes --------------------------------------------------------------------------------------------- */

/* 4,096 tokens at the strongest decay (every state forgotten at once) and at the weakest (nothing ever is). */
static float decay_always;

static void fixed_decay(float *y, const float *z, const float *bias, size_t n, float rate, float lower)
{
    (void)z;
    (void)bias;
    (void)rate;
    (void)lower;
    for (size_t i = 0; i < n; i++) y[i] = decay_always;
}

static void stays_finite(const char *model, float decay)
{
    static int32_t ids[4096];
    some_ids(ids, 4096, 96);
    world w = open_world(model, 4096);
    decay_always = decay;
    if (decay >= 0) ((bt_cpu_plan *)w.g->plan)->cpu->kernels.kda_decay = fixed_decay;
    extend(w, ids, 4096);
    for (size_t i = 0; i < w.n_vocab; i++) assert_true(isfinite(bt_session_logits(w.s)[i]));
    uint8_t *all = states_of(w);
    for (uint32_t i = 0; i < w.g->tape->n_states; i++) {
        const bt_state *s = &w.g->tape->states[i];
        if (kind_of(s) != MEMORY) continue;
        const float *x = (const float *)(const void *)(all + s->offset);
        for (size_t j = 0; j < s->strip_bytes / sizeof *x * s->n_strips; j++) assert_true(isfinite(x[j]));
    }
    free(all);
    close_world(w);
}

static void test_long(void **state)
{
    (void)state;
    stays_finite("k3-bf16", expf(-5));
    stays_finite("k3-bf16", 1);
    stays_finite("k3-twin", 0);
    stays_finite("k3-twin", -1); /* its own */
}

/* docs/kimi_k3.md, d: per timeline and per token. */
static void test_state_bytes(void **state)
{
    (void)state;
    bt_error e = {0};
    bt_model *m = unit_open_model("k3-bf16");
    bt_memory_plan one, two;
    bt_engine_options o = {.context = 64, .overcommit = true};
    unit_ok(bt_engine_plan(m, &o, &one, &e), &e);
    o.context = 128;
    unit_ok(bt_engine_plan(m, &o, &two, &e), &e);
    uint64_t n_kda = 4, heads = 3, dim = 12, tail_rows = 3;
    /* strips begin on cache lines; four snapshots beside the live state */
    uint64_t strip = (heads * dim * 4 + 63) / 64 * 64, memory = (dim * dim * 4 + 63) / 64 * 64;
    uint64_t live = n_kda * (heads * memory + 3 * tail_rows * strip);
    assert_true(one.state % live == 0 && one.state >= live);
    assert_int_equal(two.state, one.state);
    assert_int_equal(two.kv - one.kv, 2 * 64 * (24 + 6) * 4);
    bt_model_close(m);
}

/* Values behind the heads of A_log must be zeros. */
static void test_padding(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), command[4096], path[1024];
    (void)snprintf(command, sizeof command, "cp " UNIT_MODELS "k3-bf16/* '%s' && chmod u+w '%s'/*", folder, folder);
    assert_int_equal(system(command), 0);
    bt_error e = {0};
    bt_model *m = NULL;
    unit_ok(bt_model_open(folder, NULL, &m, &e), &e);
    const char *name = "language_model.model.layers.0.self_attn.A_log";
    const bt_tensor *t = bt_tensors_find(m->tensors, name);
    assert_non_null(t);
    assert_int_equal(t->n_elements, 3 + 3 / 2 + 1);
    uint8_t before[4 * 5];
    assert_int_equal(t->size, sizeof before);
    memcpy(before, t->data, sizeof before);
    bt_model_close(m);
    for (int shard = 1; shard <= 2; shard++) { /* find the bytes, set the last one */
        (void)snprintf(path, sizeof path, "%s/model-0000%d-of-00002.safetensors", folder, shard);
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        static uint8_t bytes[1 << 20];
        size_t n = fread(bytes, 1, sizeof bytes, f);
        for (size_t i = 0; i + sizeof before <= n; i++) {
            if (memcmp(bytes + i, before, sizeof before) != 0) continue;
            assert_int_equal(fseek(f, (long)(i + sizeof before - 1), SEEK_SET), 0);
            assert_int_equal(fputc(0x3f, f), 0x3f);
            break;
        }
        assert_int_equal(fclose(f), 0);
    }
    assert_int_not_equal(bt_model_open(folder, NULL, &m, &e), BT_OK);
    assert_non_null(strstr(e.message, "A_log"));
    assert_non_null(strstr(e.message, "zeros"));
    unit_remove_folder(folder);
    free(folder);
}

static void test_end_ids(void **state)
{
    (void)state;
    size_t n = 0;
    bt_model *m = unit_open_model("k3-bf16"); /* told in text_config alone */
    const int32_t *ids = bt_model_end_ids(m, &n);
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], 1);
    bt_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix),      cmocka_unit_test(test_states),  cmocka_unit_test(test_decode_path),
        cmocka_unit_test(test_mix),         cmocka_unit_test(test_experts), cmocka_unit_test(test_long),
        cmocka_unit_test(test_state_bytes), cmocka_unit_test(test_padding), cmocka_unit_test(test_end_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
