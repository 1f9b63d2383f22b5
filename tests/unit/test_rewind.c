/*
 * Going back in a recurrent family: copies of states at the ends of extends and every 512 ids, the nearest older one
 * taken, only the rest computed again; and always the bits of a fresh run.
 */
#include "model_unit.h"

#include "base/rng.h"
#include "session/kept.h"

static bt_error e;

static int32_t *random_ids(size_t n, size_t n_vocab, uint64_t seed)
{
    int32_t *ids = calloc(n, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(bt_rng_u64(seed, i) % n_vocab);
    return ids;
}

/* Model, engine and one session; ids of a long text and its logits at chosen lengths. */
typedef struct world {
    bt_model *m;
    bt_engine *g;
    bt_session *s;
    int32_t *ids;
    size_t n_vocab;
} world;

static world world_open(const char *name, bt_engine_options o)
{
    world w = {.m = unit_open_model(name)};
    w.n_vocab = bt_model_n_vocab(w.m);
    w.ids = random_ids(o.context, w.n_vocab, 1);
    o.n_threads = 2;
    w.g = unit_open_engine(w.m, o);
    w.s = unit_open_session(w.g);
    return w;
}

static void world_close(world *w)
{
    bt_session_close(w->s);
    bt_engine_close(w->g);
    bt_model_close(w->m);
    free(w->ids);
}

static void extend_to(const world *w, size_t length)
{
    size_t have = bt_session_length(w->s);
    unit_ok(bt_session_extend(w->s, w->ids + have, length - have, NULL, &e), &e);
}

/* Rewinds and says how many ids were computed again. */
static size_t replayed(const world *w, size_t length)
{
    size_t before = w->s->n_replayed;
    unit_ok(bt_session_rewind(w->s, length, NULL, &e), &e);
    assert_int_equal(bt_session_length(w->s), length);
    return w->s->n_replayed - before;
}

/* The next id's logits are those of a session that never was elsewhere. */
static void goes_on_as_fresh(const world *w, const char *what)
{
    size_t length = bt_session_length(w->s);
    bt_engine *g = unit_open_engine(w->m, (bt_engine_options){.n_threads = 1, .context = length + 1});
    bt_session *s = unit_open_session(g);
    unit_ok(bt_session_extend(s, w->ids, length + 1, NULL, &e), &e);
    unit_ok(bt_session_extend(w->s, w->ids + length, 1, NULL, &e), &e);
    if (memcmp(bt_session_logits(s), bt_session_logits(w->s), w->n_vocab * sizeof(float)) != 0)
        fail_msg("%s: other logits after %zu ids", what, length);
    bt_session_close(s);
    bt_engine_close(g);
}

/* ---- where copies are taken ---------------------------------------------------------------------------------------
 */

static void nothing_is_replayed_to_the_end_of_an_extend(void **state)
{
    (void)state;
    static const char *const models[] = {"k3-bf16", "kimi-linear"};
    for (size_t i = 0; i < 2; i++) {
        world w = world_open(models[i], (bt_engine_options){.context = 200});
        extend_to(&w, 40);
        extend_to(&w, 70);
        extend_to(&w, 71);
        assert_int_equal(replayed(&w, 71), 0); /* nothing to do */
        assert_non_null(bt_session_logits(w.s));
        assert_int_equal(replayed(&w, 70), 0);
        assert_null(bt_session_logits(w.s));
        goes_on_as_fresh(&w, models[i]);
        assert_int_equal(replayed(&w, 40), 0);
        goes_on_as_fresh(&w, models[i]);
        extend_to(&w, 90);
        assert_int_equal(replayed(&w, 60), 60 - 41); /* 41: the end of the extend of one id */
        goes_on_as_fresh(&w, models[i]);
        assert_int_equal(replayed(&w, 50), 50 - 41);
        assert_int_equal(replayed(&w, 0), 0);
        goes_on_as_fresh(&w, models[i]);
        world_close(&w);
    }
}

/* Steps are cut at multiples of 512, whatever the batch; a copy from before is nearer than the beginning. */
static void long_extends_leave_copies(void **state)
{
    (void)state;
    static const size_t batches[] = {0, 100, 512, 2000};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        world w = world_open("k3-plain", (bt_engine_options){.context = 2100, .batch = batches[i]});
        extend_to(&w, 10);
        extend_to(&w, 2000);
        assert_int_equal(w.s->n_kept, 4);
        assert_int_equal(w.s->kept[3].length, 1536);
        assert_int_equal(w.s->kept[0].length, 10); /* not in the way yet: there was room */
        assert_int_equal(replayed(&w, 1700), 1700 - 1536);
        goes_on_as_fresh(&w, "beyond the last copy");
        assert_int_equal(replayed(&w, 1536), 0);
        goes_on_as_fresh(&w, "at a copy");
        assert_int_equal(replayed(&w, 1535), 1535 - 1024);
        goes_on_as_fresh(&w, "before a copy");
        assert_int_equal(replayed(&w, 600), 600 - 512);
        goes_on_as_fresh(&w, "after the first");
        assert_int_equal(replayed(&w, 500), 500); /* the one at 10 made room: it spared least */
        goes_on_as_fresh(&w, "before the first");
        world_close(&w);
    }
}

/* A replay leaves copies too: going back twice costs once. */
static void a_replay_leaves_copies(void **state)
{
    (void)state;
    world w = world_open("k3-plain", (bt_engine_options){.context = 3000, .n_state_snapshots = 2});
    extend_to(&w, 2600);
    assert_int_equal(w.s->n_kept, 2);
    assert_int_equal(w.s->kept[0].length, 512); /* never dropped */
    assert_int_equal(w.s->kept[1].length, 2560);
    assert_int_equal(replayed(&w, 2000), 2000 - 512);
    assert_int_equal(w.s->kept[1].length, 1536);
    assert_int_equal(replayed(&w, 1900), 1900 - 1536);
    goes_on_as_fresh(&w, "after two rewinds");
    world_close(&w);
}

/* A conversation: prompts of some length, answers of single ids. Whatever the room, a rewind starts from the newest
 * copy that is not beyond, so never from nothing where there is one; the end of a prompt stays through an answer. */
static void long_sessions_keep_what_is_missed_most(void **state)
{
    (void)state;
    static const int rooms[] = {1, 2, 3, 4, 9};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        world w = world_open("k3-plain", (bt_engine_options){.context = 4000, .n_state_snapshots = rooms[i]});
        for (size_t turn = 0; turn < 12; turn++) {
            extend_to(&w, bt_session_length(w.s) + 60 + 37 * turn % 200);
            size_t prompt_end = bt_session_length(w.s);
            for (size_t j = 0; j < 90; j++) extend_to(&w, bt_session_length(w.s) + 1);
            size_t length = bt_session_length(w.s);
            assert_true(w.s->n_kept <= (size_t)rooms[i]);
            for (size_t k = 1; k < w.s->n_kept; k++) assert_true(w.s->kept[k - 1].length < w.s->kept[k].length);
            assert_int_equal(w.s->kept[w.s->n_kept - 1].length, length - 1); /* the end of the extend before */
            if (rooms[i] < 3 || length <= 1024) continue;
            size_t nearest = 0;
            for (size_t k = 0; k < w.s->n_kept && w.s->kept[k].length <= prompt_end; k++) nearest = w.s->kept[k].length;
            assert_int_equal(nearest, prompt_end);
            assert_true(w.s->kept[0].length <= 1024); /* the first beyond 512, or one before it */
        }
        size_t length = bt_session_length(w.s);
        for (size_t back = 1; back < length; back += 1 + back / 3) {
            size_t to = length - back, nearest = 0;
            for (size_t k = 0; k < w.s->n_kept; k++)
                if (w.s->kept[k].length <= to) nearest = w.s->kept[k].length;
            if (rooms[i] >= 2 && to >= 1024) assert_true(nearest > 0);
            assert_int_equal(replayed(&w, to), to - nearest);
        }
        goes_on_as_fresh(&w, "after many rewinds");
        world_close(&w);
    }
}

/* Closer together towards the end, by the price in kept.c: neither distance alone would leave these. */
static void copies_thin_out_with_age(void **state)
{
    (void)state;
    static const size_t expected[2][5] = {{512, 2560, 3072, 3584}, {512, 1536, 2560, 3072, 3584}};
    for (size_t i = 0; i < 2; i++) {
        size_t n = 4 + i;
        world w = world_open("k3-plain", (bt_engine_options){.context = 4000, .n_state_snapshots = (int)n});
        extend_to(&w, 3900);
        assert_int_equal(w.s->n_kept, n);
        for (size_t k = 0; k < n; k++) assert_int_equal(w.s->kept[k].length, expected[i][k]);
        assert_int_equal(replayed(&w, 3500), 3500 - 3072);
        goes_on_as_fresh(&w, "after a rewind");
        world_close(&w);
    }
}

static void without_copies_all_is_replayed(void **state)
{
    (void)state;
    world w = world_open("k3-plain", (bt_engine_options){.context = 700, .n_state_snapshots = -1});
    assert_null(w.g->kept);
    extend_to(&w, 600);
    assert_int_equal(replayed(&w, 599), 599);
    goes_on_as_fresh(&w, "without copies");
    world_close(&w);
}

/* Another family rewinds without a replay, keeps nothing and plans nothing. */
static void other_families_keep_nothing(void **state)
{
    (void)state;
    world w = world_open("k2-dense", (bt_engine_options){.context = 700});
    bt_memory_plan with, without;
    unit_ok(bt_engine_plan(w.m, &(bt_engine_options){.context = 700, .overcommit = true}, &with, &e), &e);
    unit_ok(bt_engine_plan(w.m, &(bt_engine_options){.context = 700, .overcommit = true, .n_state_snapshots = -1},
                           &without, &e),
            &e);
    assert_int_equal(with.state, 0);
    assert_int_equal(with.n_state_snapshots, 0);
    assert_int_equal(with.private_bytes, without.private_bytes);
    extend_to(&w, 600);
    assert_int_equal(replayed(&w, 599), 0);
    assert_null(w.s->kept);
    world_close(&w);
}

static void copies_are_in_the_memory_plan(void **state)
{
    (void)state;
    bt_model *m = unit_open_model("k3-plain");
    /* Four KDA layers: 3 heads of 12 x 12, strips of whole cache lines; three tails of 3 rows of 36 channels. */
    uint64_t fixed = 4 * (3 * (144 * 4) + 3 * 3 * 192);
    for (size_t n_slots = 1; n_slots <= 3; n_slots += 2) {
        static const int n[] = {0, -1, 1, 7}, expected[] = {4, 0, 1, 7};
        for (size_t i = 0; i < 4; i++) {
            bt_memory_plan p;
            bt_engine_options o = {.context = 64, .n_slots = n_slots, .n_state_snapshots = n[i], .overcommit = true};
            unit_ok(bt_engine_plan(m, &o, &p, &e), &e);
            assert_int_equal(p.n_state_snapshots, expected[i]);
            assert_int_equal(p.state, fixed * n_slots * (1 + (uint64_t)expected[i]));
            assert_int_equal(p.private_bytes, p.kv + p.state + p.scratch + p.weights_private + p.tables);
        }
    }
    bt_memory_plan p;
    bt_engine_options many = {.context = 64, .n_state_snapshots = 1025};
    assert_int_equal(bt_engine_plan(m, &many, &p, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "state snapshots 1025"));
    bt_model_close(m);
}

/* ---- in company, cancelled, restored ------------------------------------------------------------------------------
 */

static void timelines_keep_their_own(void **state)
{
    (void)state;
    enum { N = 3 };
    bt_model *m = unit_open_model("k3-twin");
    size_t n_vocab = bt_model_n_vocab(m);
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 2, .n_slots = N, .context = 300});
    bt_session *s[N];
    int32_t *ids[N];
    for (size_t i = 0; i < N; i++) {
        s[i] = unit_open_session(g);
        ids[i] = random_ids(300, n_vocab, 20 + i);
    }
    for (size_t turn = 0; turn < 3; turn++) {
        bt_part parts[N];
        for (size_t i = 0; i < N; i++) parts[i] = (bt_part){s[i], ids[i] + bt_session_length(s[i]), 1 + 13 * i + turn};
        unit_ok(bt_engine_step(g, parts, N, &e), &e);
    }
    for (size_t i = 0; i < N; i++) { /* after turn 1: 2 + 2 * 13 i + 1 ids */
        size_t end = 3 + 26 * i;
        unit_ok(bt_session_rewind(s[i], end, NULL, &e), &e);
        assert_int_equal(s[i]->n_replayed, 0);
        unit_ok(bt_session_rewind(s[i], end - 1, NULL, &e), &e);
        assert_int_equal(s[i]->n_replayed, end - 1 - (1 + 13 * i));
        unit_ok(bt_session_extend(s[i], ids[i] + end - 1, 100, NULL, &e), &e);
        float *fresh = unit_logits(m, (bt_engine_options){.n_threads = 1}, ids[i], end + 99, 0);
        assert_memory_equal(fresh + (end + 98) * n_vocab, bt_session_logits(s[i]), n_vocab * sizeof *fresh);
        free(fresh);
    }
    for (size_t i = 0; i < N; i++) bt_session_close(s[i]);
    /* A slot that is used again knows nothing of the session before. */
    bt_session *again = unit_open_session(g);
    unit_ok(bt_session_extend(again, ids[1], 30, NULL, &e), &e);
    float *fresh = unit_logits(m, (bt_engine_options){.n_threads = 1}, ids[1], 30, 0);
    assert_memory_equal(fresh + 29 * n_vocab, bt_session_logits(again), n_vocab * sizeof *fresh);
    assert_int_equal(again->n_kept, 0);
    free(fresh);
    bt_session_close(again);
    for (size_t i = 0; i < N; i++) free(ids[i]);
    bt_engine_close(g);
    bt_model_close(m);
}

typedef struct patience {
    size_t calls, n_done, n_total;
} patience;

static bool keep_going(void *user, size_t n_done, size_t n_total)
{
    patience *p = user;
    p->n_done = n_done;
    p->n_total = n_total;
    return p->calls-- > 0;
}

/* A stopped replay leaves a shorter session, whose ids and states agree. */
static void a_stopped_replay_leaves_a_whole_session(void **state)
{
    (void)state;
    for (size_t calls = 0; calls < 4; calls++) {
        world w = world_open("k3-bf16", (bt_engine_options){.context = 1200, .batch = 100, .n_state_snapshots = 1});
        extend_to(&w, 1100); /* the copy at 1024 is the only one */
        patience p = {.calls = calls};
        bt_hook hook = {keep_going, &p};
        assert_int_equal(bt_session_rewind(w.s, 900, &hook, &e), BT_ERR_CANCELLED);
        assert_non_null(strstr(e.message, "to replay"));
        assert_int_equal(p.n_total, 900);
        assert_int_equal(p.n_done, 100 * calls);
        assert_int_equal(bt_session_length(w.s), 100 * calls);
        goes_on_as_fresh(&w, "after a stop");
        world_close(&w);
    }
}

/* What is restored has another past: its copies are its own. */
static void a_restored_session_has_no_old_copies(void **state)
{
    (void)state;
    world w = world_open("k3-mxfp4", (bt_engine_options){.context = 200});
    int32_t *other = random_ids(200, w.n_vocab, 9);
    extend_to(&w, 50);
    void *data = NULL;
    size_t size = 0;
    unit_ok(bt_session_snapshot(w.s, &data, &size, &e), &e);
    unit_ok(bt_session_rewind(w.s, 0, NULL, &e), &e);
    unit_ok(bt_session_extend(w.s, other, 20, NULL, &e), &e);
    unit_ok(bt_session_extend(w.s, other + 20, 60, NULL, &e), &e);
    assert_int_equal(w.s->n_kept, 1);
    unit_ok(bt_session_restore(w.s, data, size, &e), &e);
    assert_int_equal(w.s->n_kept, 0);
    goes_on_as_fresh(&w, "after a restore");
    assert_int_equal(replayed(&w, 50), 0);
    goes_on_as_fresh(&w, "back to what was restored");
    assert_int_equal(replayed(&w, 30), 30);
    goes_on_as_fresh(&w, "before what was restored");
    /* Restored again, where a copy of the same length is from another past: 50. */
    unit_ok(bt_session_rewind(w.s, 0, NULL, &e), &e);
    unit_ok(bt_session_extend(w.s, other, 50, NULL, &e), &e);
    unit_ok(bt_session_extend(w.s, other + 50, 1, NULL, &e), &e);
    unit_ok(bt_session_restore(w.s, data, size, &e), &e);
    extend_to(&w, 60);
    assert_int_equal(replayed(&w, 50), 0);
    goes_on_as_fresh(&w, "restored over a copy of the same length");
    bt_free(data);
    free(other);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_replayed_to_the_end_of_an_extend),
        cmocka_unit_test(long_extends_leave_copies),
        cmocka_unit_test(a_replay_leaves_copies),
        cmocka_unit_test(long_sessions_keep_what_is_missed_most),
        cmocka_unit_test(copies_thin_out_with_age),
        cmocka_unit_test(without_copies_all_is_replayed),
        cmocka_unit_test(other_families_keep_nothing),
        cmocka_unit_test(copies_are_in_the_memory_plan),
        cmocka_unit_test(timelines_keep_their_own),
        cmocka_unit_test(a_stopped_replay_leaves_a_whole_session),
        cmocka_unit_test(a_restored_session_has_no_old_copies),
    };
    return cmocka_run_group_tests_name("rewind", tests, NULL, NULL);
}
