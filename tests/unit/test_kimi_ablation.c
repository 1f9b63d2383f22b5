/*
 * Faults planted on purpose show: on each of the three made-up models, with its preset's own seed, each changes the 16
 * greedy tokens after ids 1, 2, 3; the same sum taken in two halves does not. In the test build only: elsewhere a model
 * refuses to open with any.
 *
 * The seeds are chosen so that no token hangs on a rounding: tokens are told apart by MARGIN at least, in the sound
 * model everywhere, and in the faulty one where it first differs.
 */
#include "model_unit.h"

#include <math.h>

#include "base/arena.h"
#include "base/file.h"
#include "tool/synth.h"

#define N_PROMPT 3u
#define N_GREEDY 16u
#define MARGIN   1e-3F

static bt_error e;

/* The greedy tokens after 1, 2, 3, and by how much each is ahead of the second. */
typedef struct answer {
    int32_t ids[N_GREEDY];
    float margins[N_GREEDY];
} answer;

static int32_t best_of(const float *logits, size_t n, float *margin)
{
    size_t best = 0, second = SIZE_MAX;
    for (size_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) {
            second = best;
            best = i;
        } else if (second == SIZE_MAX || logits[i] > logits[second]) {
            second = i;
        }
    }
    *margin = logits[best] - logits[second];
    return (int32_t)best;
}

static bt_status run_greedy(const char *path, const char *ablate, const char *level, answer *out)
{
    static const int32_t prompt[N_PROMPT] = {1, 2, 3};
    bt_model_options mo = {.ablate = ablate};
    bt_engine_options eo = {.context = N_PROMPT + N_GREEDY, .batch = 8, .n_threads = 1, .cpu_level = level};
    bt_model *m = NULL;
    bt_engine *g = NULL;
    bt_session *s = NULL;
    bt_status st = bt_model_open(path, &mo, &m, &e);
    if (st == BT_OK) st = bt_engine_open(m, &eo, &g, &e);
    if (st == BT_OK) st = bt_session_open(g, &s, &e);
    if (st == BT_OK) st = bt_session_extend(s, prompt, N_PROMPT, NULL, &e);
    for (size_t i = 0; i < N_GREEDY && st == BT_OK; i++) {
        out->ids[i] = best_of(bt_session_logits(s), bt_model_n_vocab(m), &out->margins[i]);
        st = bt_session_extend(s, &out->ids[i], 1, NULL, &e);
    }
    bt_session_close(s);
    bt_engine_close(g);
    bt_model_close(m);
    return st;
}

static void make(const char *path, const bt_preset *p, uint64_t seed)
{
    bt_synth_report r;
    bt_synth_options o = {.folder = path, .preset = p, .seed = seed, .n_threads = 1};
    if (bt_synth(&o, &r, &e) != BT_OK) fail_msg("%s: %s", p->name, e.message);
}

static const bt_preset *preset(const char *name)
{
    const bt_preset *p = NULL;
    assert_int_equal(bt_preset_find(name, &p, &e), BT_OK);
    return p;
}

/* A checkpoint of a preset with its own seed, in a folder that is the caller's to remove. */
static char *make_in(const char *folder, const char *name)
{
    char *path = bt_path_join(folder, name);
    assert_non_null(path);
    make(path, preset(name), preset(name)->seed);
    return path;
}

#ifdef BT_TEST_BUILD
/* The first token that differs, if both sides are sure of it; N_GREEDY: none. */
static size_t first_change(const answer *a, const answer *b)
{
    for (size_t i = 0; i < N_GREEDY; i++) {
        if (a->ids[i] == b->ids[i]) continue;
        return a->margins[i] > MARGIN && b->margins[i] > MARGIN ? i : N_GREEDY;
    }
    return N_GREEDY;
}

static bool is_sure(const answer *a)
{
    for (size_t i = 0; i < N_GREEDY; i++)
        if (a->margins[i] <= MARGIN) return false;
    return true;
}

static void expect_change(const char *path, const char *flag, const answer *sound)
{
    answer faulty;
    if (run_greedy(path, flag, NULL, &faulty) != BT_OK) fail_msg("%s: %s", flag, e.message);
    if (first_change(sound, &faulty) == N_GREEDY) fail_msg("%s: --ablate %s changes nothing", path, flag);
}

static void every_fault_shows(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned n_layers;
    } models[] = {{"k3-tiny", 8}, {"k3-small", 8}, {"k3-prod-width", 2}};
    static const char *const flags[] = {"attn_res_mix=0", "force_expert=0", "drop_o_proj_rank=0", "drop_o_proj_rank=1"};
    char *folder = unit_make_folder();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *path = make_in(folder, models[i].name), flag[32];
        answer sound, halves, scalar;
        unit_ok(run_greedy(path, NULL, NULL, &sound), &e);
        assert_true(is_sure(&sound));
        for (unsigned layer = 0; layer < models[i].n_layers; layer++) {
            (void)snprintf(flag, sizeof flag, "skip_layer=%u", layer);
            expect_change(path, flag, &sound);
        }
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) expect_change(path, flags[k], &sound);
        unit_ok(run_greedy(path, "o_proj_tp=2", NULL, &halves), &e);
        assert_memory_equal(halves.ids, sound.ids, sizeof sound.ids);
        unit_ok(run_greedy(path, NULL, "scalar", &scalar), &e);
        assert_memory_equal(scalar.ids, sound.ids, sizeof sound.ids);
        bt_free(path);
    }
    unit_remove_folder(folder);
    free(folder);
}

/* A key or a value that the model has no use for is refused by name. */
static void useless_faults_are_refused(void **state)
{
    (void)state;
    static const char *const refused[][2] = {
        {"k3-tiny", "skip_layer=8"},   {"k3-tiny", "force_expert=2"},          {"k3-tiny", "o_proj_tp=3"},
        {"k3-tiny", "attn_res_mix=1"}, {"k3-tiny", "drop_o_proj_rank=2"},      {"k3-tiny", "rope=off"},
        {"k3-tiny", "softcap=1"},      {"kimi-linear-tiny", "attn_res_mix=0"}, {"k2-tiny", "attn_res_mix=0"},
        {"k2-tiny", "o_proj_tp=2"},    {"k2-tiny", "force_expert=0"},
    };
    char *folder = unit_make_folder();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        answer a;
        char key[32];
        char *path = bt_path_join(folder, refused[i][0]);
        if (!bt_path_exists(path)) make(path, preset(refused[i][0]), 0);
        if (run_greedy(path, refused[i][1], NULL, &a) != BT_ERR_USAGE)
            fail_msg("%s took %s", refused[i][0], refused[i][1]);
        (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(refused[i][1], "="), refused[i][1]);
        assert_non_null(strstr(e.message, key));
        bt_free(path);
    }
    unit_remove_folder(folder);
    free(folder);
}
#else
static void none_in_a_release(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), *path = make_in(folder, "k3-tiny");
    answer a;
    assert_int_equal(run_greedy(path, "skip_layer=0", NULL, &a), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "test build only"));
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef BT_TEST_BUILD
        cmocka_unit_test(every_fault_shows),
        cmocka_unit_test(useless_faults_are_refused),
#else
        cmocka_unit_test(none_in_a_release),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
