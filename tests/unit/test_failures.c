/*
 * Every allocation, every system call on a file and every thread may fail: each is made to, one after the other, in
 * everything that a program does with a model. A failure must be told by a clean error, must leave nothing behind (no
 * block, no descriptor, no mapping, no thread), and must spoil nothing: the same work then gives the same logits.
 *
 * A short or interrupted call is no failure: the work must go on as if nothing had been.
 *
 * The tests are tested: with an allocation that is used unchecked, and with one made during a step.
 */
#include "model_unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "backend/cpu/cpu.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/io.h"
#include "base/pool.h"
#include "session/engine.h"
#include "tool/synth.h"

#ifdef BT_TEST_BUILD

#    define N_FAULTS_MAX 100000
#    define N_IDS        24
static int32_t ids[N_IDS]; /* of the model at hand */

/* ---- a checkpoint folder, and what is open on it ----------------------------------------------------------------- */

/* What the stages work on: a folder with links to one stored model, a generation_config and a tokenizer; a cache folder
 * that holds it under a name; and what earlier stages have opened. */
typedef struct world {
    char *top;                      /* the temporary folder */
    char folder[4200], cache[4200]; /* below it */
    char ranks[4200];               /* likewise: a tokenizer of the other kind */
    char out[4400];                 /* where a stage may write */
    bt_model *model;
    bt_engine *engine;
    bt_session *session, *second;
    bt_tokenizer *tokenizer;
    float *expected;             /* [n_vocab]: after all ids */
    int32_t expected_ids[2][64]; /* of the tokenizer stages' text */
    size_t n_expected_ids[2];
} world;

static void link_files(const char *from, const char *to)
{
    char source[4096], path[8800];
    assert_non_null(realpath(from, source));
    DIR *d = opendir(source);
    assert_non_null(d);
    for (const struct dirent *entry = readdir(d); entry != NULL; entry = readdir(d)) {
        char target[8400];
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(target, sizeof target, "%s/%s", source, entry->d_name);
        (void)snprintf(path, sizeof path, "%s/%s", to, entry->d_name);
        assert_int_equal(symlink(target, path), 0);
    }
    assert_int_equal(closedir(d), 0);
}

static void make_world(world *w, const char *model)
{
    static const char generation[] = "{\"eos_token_id\": [1, 7], \"temperature\": 0.5, \"top_k\": 20}\n";
    char path[512], snapshots[4350];
    *w = (world){.top = unit_make_folder()};
    (void)snprintf(w->folder, sizeof w->folder, "%s/model", w->top);
    (void)snprintf(w->cache, sizeof w->cache, "%s/cache", w->top);
    (void)snprintf(w->out, sizeof w->out, "%s/out.safetensors", w->top);
    (void)snprintf(w->ranks, sizeof w->ranks, "%s/ranks", w->top);
    assert_int_equal(mkdir(w->folder, 0777), 0);
    assert_int_equal(mkdir(w->ranks, 0777), 0);
    link_files("tests/data/tokenizers/tiktoken", w->ranks);
    (void)snprintf(path, sizeof path, UNIT_MODELS "%s", model);
    link_files(path, w->folder);
    link_files("tests/data/tokenizers/tiny", w->folder);
    unit_write_file(w->folder, "generation_config.json", generation, sizeof generation - 1);
    (void)snprintf(snapshots, sizeof snapshots, "%s/models--org--name/refs", w->cache);
    for (char *slash = strchr(snapshots + strlen(w->top), '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(snapshots, 0777);
        *slash = '/';
    }
    assert_int_equal(mkdir(snapshots, 0777), 0);
    unit_write_file(snapshots, "main", "abc\n", 4);
    (void)snprintf(snapshots, sizeof snapshots, "%s/models--org--name/snapshots", w->cache);
    assert_int_equal(mkdir(snapshots, 0777), 0);
    (void)snprintf(snapshots, sizeof snapshots, "%s/models--org--name/snapshots/abc", w->cache);
    assert_int_equal(symlink(w->folder, snapshots), 0);
}

static void drop_world(world *w)
{
    bt_session_close(w->session);
    bt_session_close(w->second);
    bt_engine_close(w->engine);
    bt_model_close(w->model);
    bt_tokenizer_close(w->tokenizer);
    free(w->expected);
    unit_remove_folder(w->top);
    free(w->top);
}

/* ---- the stages: each does its work from the start and closes what it opened --------------------------------------
 * */

static bt_status stage_locate(world *w, bt_error *e)
{
    bt_cache_env env = {.hf_home = "/nowhere/at/all", .hf_hub_cache = w->cache};
    char *path = NULL;
    bt_status st = bt_locate("org/name", &env, &path, e);
    if (st == BT_OK)
        assert_non_null(strstr(path, "snapshots/abc"));
    else
        assert_null(path);
    bt_free(path);
    return st;
}

static bt_status stage_model(world *w, bt_error *e)
{
    bt_model *m = NULL;
    bt_status st = bt_model_open(w->folder, NULL, &m, e);
    assert_int_equal(st == BT_OK, m != NULL);
    if (m == NULL) return st;
    size_t n;
    const int32_t *end = bt_model_end_ids(m, &n); /* a file that was left out would show here */
    assert_true(n == 2 && end[0] == 1 && end[1] == 7);
    assert_true(bt_model_generation_defaults(m)->has_top_k);
    bt_model_close(m);
    return st;
}

/* The logits after all ids, from a session of its own. */
static bt_status compute(bt_engine *g, bool in_steps, float *logits, bt_error *e)
{
    bt_session *s = NULL;
    bt_status st = bt_session_open(g, &s, e);
    assert_int_equal(st == BT_OK, s != NULL);
    if (s == NULL) return st;
    st = bt_session_extend(s, ids, N_IDS - 4, NULL, e);
    for (size_t i = N_IDS - 4; i < N_IDS && st == BT_OK; i++) {
        bt_part part = {s, ids + i, 1};
        st = in_steps ? bt_engine_step(g, &part, 1, e) : bt_session_extend(s, ids + i, 1, NULL, e);
    }
    if (st == BT_OK) memcpy(logits, bt_session_logits(s), bt_model_n_vocab(g->model) * sizeof *logits);
    bt_session_close(s);
    return st;
}

static void expect_logits(const world *w, const float *logits)
{
    assert_memory_equal(logits, w->expected, bt_model_n_vocab(w->model) * sizeof *logits);
}

static bt_status stage_engine(world *w, bt_error *e)
{
    bt_engine_options o = {.n_threads = 3, .context = 64, .batch = 16, .n_slots = 2, .overcommit = true};
    bt_memory_plan plan;
    bt_engine *g = NULL;
    bt_status st = bt_engine_plan(w->model, &o, &plan, e);
    if (st == BT_OK) st = bt_engine_open(w->model, &o, &g, e);
    assert_int_equal(st == BT_OK, g != NULL);
    if (g == NULL) return st;
    float *logits = malloc(bt_model_n_vocab(w->model) * sizeof *logits);
    assert_non_null(logits);
    st = compute(g, true, logits, e);
    if (st == BT_OK) expect_logits(w, logits);
    free(logits);
    bt_engine_close(g);
    return st;
}

static bool count_row(void *user, size_t row_i, const float *logits)
{
    (void)row_i;
    (void)logits;
    ++*(size_t *)user;
    return true;
}

/* Through all that a session does, on an engine that stays open. */
static bt_status stage_session(world *w, bt_error *e)
{
    void *snapshot = NULL;
    size_t size = 0, n_rows = 0, n_vocab = bt_model_n_vocab(w->model);
    bt_session *s = NULL;
    bt_status st = bt_session_open(w->engine, &s, e);
    if (st == BT_OK) st = bt_session_score(s, ids, N_IDS - 4, count_row, &n_rows, NULL, e);
    if (st == BT_OK) st = bt_session_snapshot(s, &snapshot, &size, e);
    assert_int_equal(st == BT_OK, snapshot != NULL);
    if (st == BT_OK) st = bt_session_extend(s, ids, 3, NULL, e); /* a turn that is taken back */
    if (st == BT_OK) st = bt_session_rewind(s, N_IDS - 4, NULL, e);
    if (st == BT_OK) st = bt_session_rewind(s, 0, NULL, e);
    if (st == BT_OK) st = bt_session_restore(s, snapshot, size, e);
    if (st == BT_OK) st = bt_session_extend(s, ids + N_IDS - 4, 4, NULL, e);
    if (st == BT_OK) assert_memory_equal(bt_session_logits(s), w->expected, n_vocab * sizeof(float));
    bt_free(snapshot);
    bt_session_close(s);
    return st;
}

static bt_status decode_stream(const bt_tokenizer *t, const int32_t *list, size_t n, bt_error *e)
{
    bt_decoder *d = NULL;
    bt_stop *stop = NULL;
    const char *part;
    size_t size, sum = 0;
    bt_status st = bt_decoder_open(t, 0, &d, e);
    if (st == BT_OK) st = bt_stop_open((const char *[]){"never", "met"}, 2, &stop, e);
    for (size_t i = 0; i < n && st == BT_OK; i++) {
        st = bt_decoder_push(d, list[i], &part, &size, e);
        if (st != BT_OK) break;
        assert_false(bt_stop_push(stop, part, size, &part, &size));
        sum += size;
    }
    if (st == BT_OK) {
        bt_decoder_finish(d, &part, &size);
        bt_stop_finish(stop, &part, &size);
        assert_true(sum > 10);
    }
    bt_stop_close(stop);
    bt_decoder_close(d);
    return st;
}

static bt_status try_tokenizer(world *w, const char *folder, size_t which, bt_error *e)
{
    static const char text[] = "Hello  world, 1234 \xe4\xb8\x96\xe7\x95\x8c\xf0\x9f\x91\xa8 don't\n";
    bt_tokenizer *t = NULL;
    int32_t *list = NULL;
    char *back = NULL;
    size_t n = 0, size = 0;
    bt_status st = bt_tokenizer_open(folder, &t, e);
    assert_int_equal(st == BT_OK, t != NULL);
    if (st == BT_OK) assert_true(bt_tokenizer_bos(t) >= -1);
    if (st == BT_OK) st = bt_tokenizer_encode(t, text, sizeof text - 1, 0, &list, &n, e);
    if (st == BT_OK) st = bt_tokenizer_decode(t, list, n, 0, &back, &size, e);
    if (st == BT_OK) assert_true(size == sizeof text - 1 && memcmp(back, text, size) == 0);
    if (st == BT_OK) st = decode_stream(t, list, n, e);
    if (st == BT_OK && w->n_expected_ids[which] == 0) { /* the first time */
        w->n_expected_ids[which] = n;
        memcpy(w->expected_ids[which], list, n * sizeof *list);
    }
    if (st == BT_OK) assert_int_equal(n, w->n_expected_ids[which]);
    if (st == BT_OK) assert_memory_equal(list, w->expected_ids[which], n * sizeof *list);
    bt_free(back);
    bt_free(list);
    bt_tokenizer_close(t);
    return st;
}

static bt_status stage_tokenizer(world *w, bt_error *e)
{
    return try_tokenizer(w, w->folder, 0, e);
}

static bt_status stage_tiktoken(world *w, bt_error *e)
{
    return try_tokenizer(w, w->ranks, 1, e);
}

static bt_status stage_sampler(world *w, bt_error *e)
{
    bt_sample_params p = bt_sample_params_default();
    p.top_k = 20;
    p.top_p = 0.9;
    p.repetition_penalty = 1.1;
    bt_sampler *s = NULL;
    bt_status st = bt_sampler_open(bt_model_n_vocab(w->model), &p, &s, e);
    assert_int_equal(st == BT_OK, s != NULL);
    for (size_t i = 0; i < N_IDS && s != NULL; i++) bt_sampler_accept(s, ids[i]);
    for (size_t i = 0; i < 5 && st == BT_OK; i++) {
        int32_t id = -1;
        st = bt_sampler_next(s, w->expected, &id, e);
        assert_int_equal(st == BT_OK, id >= 0);
    }
    bt_sampler_close(s);
    return st;
}

/* An output over an old one: whole, or the old one. */
static bt_status stage_write(world *w, bt_error *e)
{
    static const float x[300] = {1, 2, 3};
    static const bt_tensor_decl decls[] = {{"x", BT_F32, 1, {300}}, {"y", BT_F32, 2, {3, 100}}};
    unit_write_file(w->top, "out.safetensors", "old", 3);
    bt_safetensors_writer *writer = NULL;
    bt_status st = bt_safetensors_create(w->out, decls, 2, &writer, e);
    if (st == BT_OK) st = bt_safetensors_write(writer, x, sizeof x, e);
    if (st == BT_OK) st = bt_safetensors_write(writer, x, sizeof x, e);
    if (st == BT_OK)
        st = bt_safetensors_finish(writer, e);
    else
        bt_safetensors_abandon(writer);
    return st;
}

static void check_written(const world *w, bt_status st)
{
    char *data = NULL;
    size_t size = 0, n_entries = 0;
    assert_int_equal(bt_read_file(w->out, 1 << 20, &data, &size, NULL), BT_OK);
    assert_true(st == BT_OK ? size > 2400 : size == 3);
    bt_free(data);
    DIR *d = opendir(w->top);
    assert_non_null(d);
    while (readdir(d) != NULL) n_entries++;
    assert_int_equal(closedir(d), 0);
    assert_int_equal(n_entries, 6); /* ".", "..", model, cache, ranks, out.safetensors: no temporary file */
}

typedef struct stage {
    const char *name;
    bt_status (*run)(world *w, bt_error *e);
    void (*check)(const world *w, bt_status st); /* afterwards; may be NULL */
    long n_allocations, n_calls; /* at least so many of each take part, or the test has lost its object */
    bool spares_memory;          /* goes on, more slowly, where memory for PCRE2's machine code is wanting */
    bool spares_calls;           /* what the machine has may stay unknown; and not every folder can be synced */
} stage;

static const stage stages[] = {
    {"locate", stage_locate, NULL, 8, 8, false, false},       {"model", stage_model, NULL, 100, 20, false, false},
    {"engine", stage_engine, NULL, 20, 5, true, true},        {"session", stage_session, NULL, 4, 0, false, false},
    {"tokenizer", stage_tokenizer, NULL, 50, 6, true, false}, {"tiktoken", stage_tiktoken, NULL, 50, 6, true, true},
    {"sampler", stage_sampler, NULL, 2, 0, false, false},     {"write", stage_write, check_written, 8, 5, true, true},
};
#    define N_STAGES (sizeof stages / sizeof *stages)

/* ---- what a process holds ---------------------------------------------------------------------------------------- */

typedef struct holdings {
    long blocks;
    size_t descriptors, threads, mappings; /* mappings: of files below the world's folder or tests/data */
} holdings;

static size_t count_entries(const char *path)
{
    size_t n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d) != NULL) n++;
    assert_int_equal(closedir(d), 0);
    return n;
}

static holdings hold(void)
{
    holdings h = {bt_alloc_n_live(), count_entries("/proc/self/fd"), count_entries("/proc/self/task"), 0};
    FILE *f = fopen("/proc/self/maps", "r");
    char line[5000];
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) h.mappings += strstr(line, ".safetensors") != NULL;
    assert_int_equal(fclose(f), 0);
    return h;
}

static void expect_held(const holdings *before, const char *what, long n)
{
    holdings h = hold();
    for (int i = 0; i < 60000 && h.threads != before->threads; i++) { /* a joined thread may still be leaving */
        (void)usleep(1000);
        h = hold();
    }
    if (h.blocks != before->blocks || h.descriptors != before->descriptors || h.threads != before->threads ||
        h.mappings != before->mappings)
        fail_msg("%s %ld leaves something: blocks %+ld, descriptors %+ld, threads %+ld, mappings %+ld", what, n,
                 h.blocks - before->blocks, (long)h.descriptors - (long)before->descriptors,
                 (long)h.threads - (long)before->threads, (long)h.mappings - (long)before->mappings);
}

/* ---- every n ------------------------------------------------------------------------------------------------------
 * */

/* Sanitizers are ten times slower: there, all of the first failures and a tenth of the later ones. */
static long next_n(long n)
{
#    if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return n < 60 ? n + 1 : n + 7;
#    else
    return n + 1;
#    endif
}

static void check_told(const char *what, const stage *g, long n, bt_status st, bt_status wanted, const bt_error *e)
{
    if (st != wanted && !(wanted == BT_ERR_IO && st == BT_ERR_FORMAT))
        fail_msg("%s: %s %ld gives status %d: %s", g->name, what, n, (int)st, e->message);
    assert_int_equal(e->status, st);
    assert_true(strlen(e->message) > 10);
}

static long fail_allocations(world *w, const stage *g)
{
    holdings before = hold();
    for (long n = 0, failed = true; failed; n = next_n(n)) {
        bt_error e = {.status = BT_OK};
        assert_true(n < N_FAULTS_MAX);
        bt_alloc_fail_after(n);
        bt_status st = g->run(w, &e);
        failed = bt_alloc_has_failed();
        bt_alloc_fail_after(-1);
        if (g->check != NULL) g->check(w, st);
        if (!failed) {
            unit_ok(st, &e);
            return n;
        }
        if (st != BT_OK || !g->spares_memory) check_told("allocation", g, n, st, BT_ERR_MEMORY, &e);
        if (n % 16 == 0) expect_held(&before, "allocation", n);
        if (n % 64 == 0) unit_ok(g->run(w, &e), &e); /* nothing was spoilt */
    }
    return 0;
}

static long fail_calls(world *w, const stage *g, bt_io_fault fault)
{
    holdings before = hold();
    for (long n = 0; n < N_FAULTS_MAX; n = next_n(n)) {
        bt_error e = {.status = BT_OK};
        bt_io_fail_after(n, fault);
        bt_status st = g->run(w, &e);
        bool failed = bt_io_has_failed();
        bt_io_fail_after(-1, fault);
        if (g->check != NULL) g->check(w, st);
        if (!failed || fault != BT_IO_ERROR) unit_ok(st, &e);
        if (!failed) return n;
        if (fault == BT_IO_ERROR && (st != BT_OK || !g->spares_calls)) {
            check_told("call", g, n, st, BT_ERR_IO, &e);
            if (strstr(e.message, w->top) == NULL && strstr(e.message, "org/name") == NULL)
                fail_msg("%s: call %ld names no file: %s", g->name, n, e.message);
        }
        expect_held(&before, "call", n);
    }
    return 0;
}

static void prepare(world *w, const char *model)
{
    bt_error e = {.status = BT_OK};
    make_world(w, model);
    unit_ok(bt_model_open(w->folder, NULL, &w->model, &e), &e);
    size_t n_vocab = bt_model_n_vocab(w->model);
    for (size_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)(i * 37 % n_vocab);
    w->expected = malloc(n_vocab * sizeof *w->expected);
    assert_non_null(w->expected);
    w->engine = unit_open_engine(w->model, (bt_engine_options){.n_threads = 1, .context = 64, .batch = 16});
    unit_ok(compute(w->engine, false, w->expected, &e), &e);
    for (size_t i = 0; i < N_STAGES; i++)
        unit_ok(stages[i].run(w, &e), &e); /* what libraries keep is kept from here on */
}

static void allocations_fail(void **state)
{
    (void)state;
    static const char *const models[] = {"k2-dense", "k2-mova-fp8", "own-llama"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        world w;
        prepare(&w, models[m]);
        for (size_t i = 0; i < N_STAGES; i++) {
            long n = fail_allocations(&w, &stages[i]);
            print_message("%s, %s: %ld allocations\n", models[m], stages[i].name, n);
            assert_true(n >= stages[i].n_allocations);
        }
        drop_world(&w);
    }
}

static void calls_fail(void **state)
{
    (void)state;
    static const char *const names[] = {"fail", "are short", "are interrupted"};
    world w;
    prepare(&w, "k2-dense");
    for (int fault = BT_IO_ERROR; fault <= BT_IO_INTERRUPT; fault++) {
        for (size_t i = 0; i < N_STAGES; i++) {
            long n = fail_calls(&w, &stages[i], (bt_io_fault)fault);
            print_message("%s: %ld calls %s\n", stages[i].name, n, names[fault]);
            assert_true(n >= stages[i].n_calls);
        }
    }
    drop_world(&w);
}

static void threads_fail(void **state)
{
    (void)state;
    world w;
    prepare(&w, "k2-mova");
    holdings before = hold();
    bt_engine_options o = {.n_threads = 5, .context = 64, .batch = 16, .overcommit = true};
    for (long n = 0; n < 5; n++) {
        bt_error e = {.status = BT_OK};
        bt_engine *g = NULL;
        bt_thread_fail_after(n);
        bt_status st = bt_engine_open(w.model, &o, &g, &e);
        bt_thread_fail_after(-1);
        assert_int_equal(st, n < 4 ? BT_ERR_MEMORY : BT_OK); /* the caller is the fifth */
        assert_int_equal(st == BT_OK, g != NULL);
        if (g == NULL) assert_non_null(strstr(e.message, "cannot start thread"));
        bt_engine_close(g);
        expect_held(&before, "thread", n);
    }
    bt_error e = {.status = BT_OK};
    unit_ok(stage_engine(&w, &e), &e);
    drop_world(&w);
}

/* A checkpoint that could not be written whole is not there at all, and no half of it either. */
static void checkpoint_writes_fail(void **state)
{
    (void)state;
    char *top = unit_make_folder(), out[4100];
    (void)snprintf(out, sizeof out, "%.4000s/made", top);
    const bt_preset *preset = NULL;
    assert_int_equal(bt_preset_find("k2-mova-tiny", &preset, NULL), BT_OK);
    const bt_synth_options o = {
        .folder = out, .preset = preset, .choice = {.n_layers = 1, .n_experts = 4}, .n_threads = 1};
    holdings before = hold();
    for (int fault = BT_IO_ERROR; fault <= BT_IO_SHORT; fault++) {
        bool failed = true;
        long n = 0;
        for (; failed; n += 1 + n / 8) { /* the first ones each, later ones ever more thinly */
            bt_error e = {.status = BT_OK};
            bt_synth_report r;
            assert_true(n < N_FAULTS_MAX);
            bt_io_fail_after(n, (bt_io_fault)fault);
            bt_status st = bt_synth(&o, &r, &e);
            failed = bt_io_has_failed();
            bt_io_fail_after(-1, BT_IO_ERROR);
            if (fault == BT_IO_SHORT || !failed) unit_ok(st, &e);
            if (st != BT_OK) {
                assert_int_equal(st, BT_ERR_IO);
                assert_non_null(strstr(e.message, top));
                assert_int_equal(count_entries(top), 2); /* "." and ".." */
            } else {
                unit_remove_folder(out);
            }
            expect_held(&before, "call", n);
        }
        print_message("synth: %ld calls\n", n);
        assert_true(n > 20);
    }
    unit_remove_folder(top);
    free(top);
}

/* ---- the tests are tested ---------------------------------------------------------------------------------------- */

/* Runs fn in a process of its own, its stderr to `text` [4096]; how it ended. */
static int run_apart(void (*fn)(world *w), world *w, char *text)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        int nothing = open("/dev/null", O_WRONLY);
        (void)dup2(nothing, STDOUT_FILENO);
        signal(SIGSEGV, SIG_DFL); /* cmocka's handlers would go on in the child */
        signal(SIGABRT, SIG_DFL);
        fn(w);
        _exit(0);
    }
    (void)close(ends[1]);
    size_t used = 0;
    ssize_t got = 1;
    char more[512];
    while (got > 0) {
        size_t room = 4095 - used;
        got = room > 0 ? read(ends[0], text + used, room) : read(ends[0], more, sizeof more);
        if (room > 0 && got > 0) used += (size_t)got;
    }
    text[used] = '\0';
    (void)close(ends[0]);
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return how;
}

static void fail_unchecked(world *w)
{
    bt_alloc_plant_unchecked(true);
    (void)fail_allocations(w, &stages[1]);
}

static void fail_checked(world *w)
{
    (void)fail_allocations(w, &stages[1]);
}

static void planted_unchecked_allocation_is_found(void **state)
{
    (void)state;
    world w;
    char text[4096];
    make_world(&w, "own-llama");
    int how = run_apart(fail_checked, &w, text);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    how = run_apart(fail_unchecked, &w, text);
    assert_false(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    drop_world(&w);
}

/* Kernels that allocate: on the thread that called, or on a worker. */
static void (*linear_before)(const bt_linear *a, size_t r0, size_t r1);

static void allocate_in_caller(const bt_linear *a, size_t r0, size_t r1)
{
    if (gettid() == getpid()) bt_free(bt_malloc(1, 1));
    linear_before(a, r0, r1);
}

static void allocate_in_worker(const bt_linear *a, size_t r0, size_t r1)
{
    if (gettid() != getpid()) bt_free(bt_malloc(1, 1));
    linear_before(a, r0, r1);
}

static void step_with(world *w, void (*linear)(const bt_linear *a, size_t r0, size_t r1))
{
    bt_engine *g = unit_open_engine(w->model, (bt_engine_options){.n_threads = 2, .context = 64, .batch = 16});
    bt_kernels *k = &((bt_cpu_plan *)g->plan)->cpu->kernels;
    linear_before = k->linear[BT_BF16];
    if (linear != NULL) {
        for (size_t i = 0; i < BT_N_WEIGHT_DTYPES; i++) k->linear[i] = linear;
    }
    bt_session *s = unit_open_session(g);
    for (size_t i = 0; i < 200; i++) { /* until the worker had its share */
        if (bt_session_extend(s, ids, N_IDS, NULL, NULL) != BT_OK) _exit(9);
        if (bt_session_rewind(s, 0, NULL, NULL) != BT_OK) _exit(9);
    }
    bt_session_close(s);
    bt_engine_close(g);
}

static void step_plain(world *w)
{
    step_with(w, NULL);
}

static void step_caller(world *w)
{
    step_with(w, allocate_in_caller);
}

static void step_worker(world *w)
{
    step_with(w, allocate_in_worker);
}

static void planted_allocation_in_a_step_aborts(void **state)
{
    (void)state;
    world w;
    char text[4096];
    make_world(&w, "k2-dense");
    bt_error e = {.status = BT_OK};
    unit_ok(bt_model_open(w.folder, NULL, &w.model, &e), &e);
    int how = run_apart(step_plain, &w, text);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    void (*const planted[])(world *) = {step_caller, step_worker};
    for (size_t i = 0; i < 2; i++) {
        how = run_apart(planted[i], &w, text);
        assert_false(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        assert_non_null(strstr(text, "memory was allocated during a step"));
    }
    drop_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_fail),
        cmocka_unit_test(calls_fail),
        cmocka_unit_test(threads_fail),
        cmocka_unit_test(checkpoint_writes_fail),
        cmocka_unit_test(planted_unchecked_allocation_is_found),
        cmocka_unit_test(planted_allocation_in_a_step_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("1..1\nnot ok 1 # SKIP nothing can be made to fail in this build\n");
    return 0;
}

#endif
