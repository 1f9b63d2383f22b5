/*
 * Damaged files: cut off at every border, and bit by bit. What a damaged file may do is laid down here.
 *
 *   A cut-off file        is refused. The only exception is one that lost nothing but white space at its end.
 *   A header or an index  with a flipped bit is refused, or gives the same model: the same facts, the same logits.
 *   A config              with a flipped bit is refused, or gives a model that says what it is: whatever changes the
 * logits
 *                         must change the facts that `info` prints. (rms_norm_eps 1e-06 may become 1e-16: that is
 * another
 *                         model, openly. It must not become the default, silently.) If the JSON still means the same,
 * so
 *                         must the model.
 *   A tokenizer           with a flipped bit is refused, or is another tokenizer, one that still gives back every text
 *                         that it takes. If the JSON still means the same, so must the ids.
 *
 * Flips inside the tensors' data change logits, as they must: no reader can see them, and none are made here. Every
 * refusal names the folder or file, and nothing may be lost on the way (AddressSanitizer sees to that).
 *
 * A tenth of all this runs under sanitizers.
 */
#include "model_unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "model/model.h"
#include "text/tokenizer.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(BT_SANITIZED)
#    define ONE_IN 10u
#else
#    define ONE_IN 1u
#endif
#define BORDER_BYTES    64u
#define SMALL_FILE      65536u
#define N_LARGE_BORDERS 500u
#define N_FLIPS         2000u
#define N_IDS           5u

/* ---- a folder with one file that is ours to damage --------------------------------------------------------------- */

typedef struct victim {
    char *folder;    /* temporary: links to the model's files, but a copy of `file` */
    char path[4400]; /* of the copy */
    char *bytes;     /* [size]: the copy's content */
    size_t size;
    char *facts;   /* of the sound model */
    float *logits; /* [n_vocab]: after N_IDS ids */
    size_t n_vocab;
    uint64_t meaning; /* of the file as JSON; 0: it is none */
} victim;

static void add_fact(void *user, const char *key, const char *words, const char *json, bool is_default)
{
    bt_text_printf(user, "%s=%s%s\n", key, words != NULL ? words : json, is_default ? " (default)" : "");
}

/* All that the model says of itself. */
static char *facts_of(const bt_model *m)
{
    bt_text t = {NULL, 0, 0, false};
    size_t n;
    const int32_t *end = bt_model_end_ids(m, &n);
    const bt_generation_defaults *d = bt_model_generation_defaults(m);
    bt_model_describe(m, add_fact, &t);
    bt_text_printf(&t, "%s %zu %zu %llu end", bt_model_family(m), bt_model_n_vocab(m), bt_model_max_position(m),
                   (unsigned long long)bt_model_n_parameters(m));
    for (size_t i = 0; i < n; i++) bt_text_printf(&t, " %d", end[i]);
    bt_text_printf(&t, " %d%d%d%d%d%d %d %.17g %.17g %.17g %.17g %lld\n", d->has_temperature, d->has_top_k,
                   d->has_top_p, d->has_min_p, d->has_repetition_penalty, d->has_do_sample, d->do_sample,
                   d->temperature, d->top_p, d->min_p, d->repetition_penalty, (long long)d->top_k);
    assert_true(bt_text_ok(&t));
    return t.data;
}

static float *logits_of(const bt_model *m)
{
    bt_error e = {.status = BT_OK};
    size_t n_vocab = bt_model_n_vocab(m);
    int32_t ids[N_IDS];
    for (size_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)((i * 41 + 3) % n_vocab);
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 1, .context = 8, .batch = 8});
    bt_session *s = unit_open_session(g);
    unit_ok(bt_session_extend(s, ids, N_IDS, NULL, &e), &e);
    float *logits = malloc(n_vocab * sizeof *logits);
    assert_non_null(logits);
    memcpy(logits, bt_session_logits(s), n_vocab * sizeof *logits);
    bt_session_close(s);
    bt_engine_close(g);
    return logits;
}

static uint64_t mix(uint64_t h, const void *data, size_t size)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h * 31 + size;
}

static uint64_t mean_node(const bt_json_node *n, uint64_t h)
{
    h = mix(h, &n->kind, sizeof n->kind);
    if (n->key != NULL) h = mix(h, n->key, n->key_size);
    if (n->kind == BT_JSON_STRING || n->kind == BT_JSON_NUMBER) h = mix(h, n->text, n->size);
    for (const bt_json_node *c = n->child; c != NULL; c = c->next) h = mean_node(c, h);
    return h;
}

/* A number for what JSON text means, white space and escapes aside; 0 if it is no JSON. */
static uint64_t meaning_of(const char *text, size_t size)
{
    bt_arena *a = bt_arena_new();
    const bt_json_node *root = NULL;
    assert_non_null(a);
    uint64_t h = 0;
    if (bt_json_parse(a, text, size, BT_JSON_PYTHON, &root, NULL) == BT_OK)
        h = mean_node(root, 1469598103934665603u) | 1;
    bt_arena_free(a);
    return h;
}

static char *read_whole(const char *path, size_t *size)
{
    char *bytes = NULL;
    bt_error e = {.status = BT_OK};
    unit_ok(bt_read_file(path, (size_t)64 << 20, &bytes, size, &e), &e);
    return bytes;
}

static void make_victim(victim *v, const char *model, const char *file)
{
    static const char generation[] = "{\"eos_token_id\": [1, 7], \"temperature\": 0.5, \"top_k\": 20}\n";
    char source[4096], from[4400], to[4400], path[512];
    bt_error e = {.status = BT_OK};
    *v = (victim){.folder = unit_make_folder()};
    (void)snprintf(path, sizeof path, UNIT_MODELS "%s", model);
    assert_non_null(realpath(path, source));
    DIR *d = opendir(source);
    assert_non_null(d);
    for (const struct dirent *entry = readdir(d); entry != NULL; entry = readdir(d)) {
        const char *name = entry->d_name;
        if (name[0] == '.' || strncmp(name, "expected", 8) == 0) continue;
        (void)snprintf(from, sizeof from, "%.4000s/%.255s", source, name);
        (void)snprintf(to, sizeof to, "%.4000s/%.255s", v->folder, name);
        if (strcmp(name, file) != 0) {
            assert_int_equal(symlink(from, to), 0);
            continue;
        }
        v->bytes = read_whole(from, &v->size);
        unit_write_file(v->folder, name, v->bytes, v->size);
    }
    assert_int_equal(closedir(d), 0);
    unit_write_file(v->folder, "generation_config.json", generation, sizeof generation - 1);
    (void)snprintf(v->path, sizeof v->path, "%.4000s/%.255s", v->folder, file);
    if (strcmp(file, "generation_config.json") == 0) v->bytes = read_whole(v->path, &v->size);
    assert_non_null(v->bytes);
    bt_model *m = NULL;
    unit_ok(bt_model_open(v->folder, NULL, &m, &e), &e);
    v->facts = facts_of(m);
    v->logits = logits_of(m);
    v->n_vocab = bt_model_n_vocab(m);
    v->meaning = meaning_of(v->bytes, v->size);
    bt_model_close(m);
}

static void drop_victim(victim *v)
{
    bt_free(v->bytes);
    bt_free(v->facts);
    free(v->logits);
    unit_remove_folder(v->folder);
    free(v->folder);
}

/* ---- what came of it --------------------------------------------------------------------------------------------- */

typedef enum outcome { REFUSED, SAME, OPENLY_OTHER, N_OUTCOMES } outcome;

/* Opens the damaged model. Only a config may be openly another. */
static outcome judge(const victim *v, bool is_config, const char *what, size_t at)
{
    bt_error e = {.status = BT_OK};
    bt_model *m = NULL;
    bt_status st = bt_model_open(v->folder, NULL, &m, &e);
    if (st != BT_OK) {
        assert_null(m);
        if (st == BT_ERR_MEMORY || strstr(e.message, v->folder) == NULL)
            fail_msg("%s %zu of %s: status %d: %s", what, at, v->path, (int)st, e.message);
        return REFUSED;
    }
    char *facts = facts_of(m);
    bool same_facts = strcmp(facts, v->facts) == 0;
    if (!same_facts && !is_config) fail_msg("%s %zu of %s changes the model:\n%s", what, at, v->path, facts);
    float *logits = same_facts ? logits_of(m) : NULL;
    if (same_facts && memcmp(logits, v->logits, v->n_vocab * sizeof *logits) != 0)
        fail_msg("%s %zu of %s changes the logits silently", what, at, v->path);
    free(logits);
    bt_free(facts);
    bt_model_close(m);
    return same_facts ? SAME : OPENLY_OTHER;
}

/* Whether white space is all that is cut off. */
static bool is_blank_from(const char *bytes, size_t size, size_t at)
{
    while (at < size && strchr(" \n\r\t", bytes[at]) != NULL) at++;
    return at == size;
}

/* Cuts the copy at every border: longest first, so that nothing has to be written again. */
static void cut(const char *model, const char *file, bool all)
{
    victim v;
    make_victim(&v, model, file);
    size_t n = (v.size - 1) / BORDER_BYTES + 1, step = all || n <= N_LARGE_BORDERS ? 1 : n / N_LARGE_BORDERS;
    size_t n_refused = 0, n_run = 0;
    step *= ONE_IN;
    for (size_t i = n; i-- > 0;) {
        size_t at = i * BORDER_BYTES;
        if (i % step != 0 && i != n - 1) continue;
        assert_int_equal(truncate(v.path, (off_t)at), 0);
        outcome o = judge(&v, false, "a cut at", at);
        if (o != REFUSED && !is_blank_from(v.bytes, v.size, at)) fail_msg("%s cut at %zu is accepted", v.path, at);
        n_refused += o == REFUSED;
        n_run++;
    }
    print_message("%s/%s: cut at %zu borders, refused at %zu\n", model, file, n_run, n_refused);
    drop_victim(&v);
}

/* One flipped bit; the file is as before afterwards. */
static outcome flip(const victim *v, int fd, size_t bit, bool is_json)
{
    bool is_config = strstr(v->path, "config.json") != NULL;
    char flipped = (char)(v->bytes[bit / 8] ^ (1 << bit % 8));
    assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
    outcome o = judge(v, is_config, "bit", bit);
    if (is_json && o != REFUSED) {
        char old = v->bytes[bit / 8];
        v->bytes[bit / 8] = flipped;
        uint64_t meaning = meaning_of(v->bytes, v->size);
        v->bytes[bit / 8] = old;
        if (meaning == 0) fail_msg("bit %zu of %s: no JSON, and accepted", bit, v->path);
        if (meaning == v->meaning && o != SAME)
            fail_msg("bit %zu of %s means nothing, and changes something", bit, v->path);
    }
    assert_int_equal(pwrite(fd, v->bytes + bit / 8, 1, (off_t)(bit / 8)), 1);
    return o;
}

/* Flips every bit of the first `size` bytes, or n_flips of them. */
static void flip_bits(const char *model, const char *file, size_t n_flips)
{
    victim v;
    make_victim(&v, model, file);
    bool is_json = v.meaning != 0;
    size_t size = v.size, n[N_OUTCOMES] = {0};
    if (!is_json) {
        uint64_t length;
        memcpy(&length, v.bytes, sizeof length);
        size = (size_t)length + 8;
    }
    bool every = n_flips == 0;
    if (every) n_flips = size * 8;
    int fd = open(v.path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < n_flips; i++) {
        if (i % ONE_IN != 0) continue;
        size_t bit = every ? i : (size_t)(bt_rng_u64(7, i) % (size * 8));
        n[flip(&v, fd, bit, is_json)]++;
    }
    assert_int_equal(close(fd), 0);
    print_message("%s/%s: %zu flips refused, %zu without effect, %zu openly another model\n", model, file, n[REFUSED],
                  n[SAME], n[OPENLY_OTHER]);
    assert_true(n[REFUSED] > n[SAME] / 2); /* else the wrong file was damaged */
    drop_victim(&v);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static void one_shard_of_each_storage_form_cut(void **state)
{
    (void)state;
    cut("k2-dense", "model-00001-of-00004.safetensors", true); /* BF16 */
    cut("own-f16", "model.safetensors", true);
    cut("k2-f32", "model-00002-of-00002.safetensors", true);
    cut("k2-fp8", "model.safetensors", true);                     /* scales beside the weights */
    cut("k2-mova-fp8", "model-00001-of-00002.safetensors", true); /* scale_inv */
}

static void configs_and_indexes_cut(void **state)
{
    (void)state;
    static const char *const models[] = {"k2-dense",    "k2-f32",  "k2-fp8",  "k2-moe",    "k2-mova",
                                         "k2-mova-fp8", "k2-yarn", "own-f16", "own-llama", "own-fp8-bf16"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) cut(models[i], "config.json", true);
    cut("k2-dense", "model.safetensors.index.json", true);
    cut("k2-f32", "model.safetensors.index.json", true);
    cut("k2-mova-fp8", "model.safetensors.index.json", true);
    cut("own-mixed", "model.safetensors.index.json", true);
    cut("own-llama", "generation_config.json", true);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Every stored file that a reader of tensors takes, shards and expected values alike: any cut is refused. */
static void every_stored_file_cut(void **state)
{
    (void)state;
    struct dirent **models = NULL;
    int n_models = scandir(UNIT_MODELS, &models, NULL, alphasort);
    size_t n_files = 0, n_cuts = 0;
    char *folder = unit_make_folder(), copy[4400];
    (void)snprintf(copy, sizeof copy, "%.4000s/cut.safetensors", folder);
    assert_true(n_models > 0);
    for (int m = 0; m < n_models; m++) {
        char path[1024];
        (void)snprintf(path, sizeof path, UNIT_MODELS "%.255s", models[m]->d_name);
        DIR *d = models[m]->d_name[0] == '.' ? NULL : opendir(path);
        for (const struct dirent *entry = d == NULL ? NULL : readdir(d); entry != NULL; entry = readdir(d)) {
            if (!ends_with(entry->d_name, ".safetensors")) continue;
            (void)snprintf(path, sizeof path, UNIT_MODELS "%.255s/%.255s", models[m]->d_name, entry->d_name);
            size_t size;
            char *bytes = read_whole(path, &size);
            unit_write_file(folder, "cut.safetensors", bytes, size);
            size_t n = (size - 1) / BORDER_BYTES + 1, step = size < SMALL_FILE ? 1 : n / N_LARGE_BORDERS + 1;
            for (size_t i = n; i-- > 0;) {
                if (i % (step * ONE_IN) != 0) continue;
                bt_tensors *t = NULL;
                bt_error e = {.status = BT_OK};
                assert_int_equal(truncate(copy, (off_t)(i * BORDER_BYTES)), 0);
                if (bt_tensors_open(copy, &t, &e) == BT_OK)
                    fail_msg("%s cut at %zu is accepted", path, i * BORDER_BYTES);
                assert_non_null(strstr(e.message, "cut.safetensors"));
                n_cuts++;
            }
            bt_free(bytes);
            n_files++;
        }
        if (d != NULL) assert_int_equal(closedir(d), 0);
        free(models[m]);
    }
    free(models);
    unit_remove_folder(folder);
    free(folder);
    print_message("%zu files, %zu cuts\n", n_files, n_cuts);
    assert_true(n_files > 60);
}

static void header_bits_flipped(void **state)
{
    (void)state;
    flip_bits("k2-dense", "model-00001-of-00004.safetensors", 0);
    flip_bits("own-f16", "model.safetensors", 0);
    static const char *const others[][2] = {{"k2-f32", "model-00002-of-00002.safetensors"},
                                            {"k2-fp8", "model.safetensors"},
                                            {"k2-mova-fp8", "model-00001-of-00002.safetensors"},
                                            {"k2-mova", "model-00002-of-00004.safetensors"},
                                            {"own-llama", "model.safetensors"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) flip_bits(others[i][0], others[i][1], N_FLIPS);
}

static void config_and_index_bits_flipped(void **state)
{
    (void)state;
    static const char *const models[] = {"k2-dense", "k2-yarn", "k2-mova-fp8", "own-llama", "own-moe-step3"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) flip_bits(models[i], "config.json", N_FLIPS);
    flip_bits("k2-dense", "generation_config.json", 0);
    flip_bits("k2-dense", "model.safetensors.index.json", N_FLIPS);
    flip_bits("k2-mova-fp8", "model.safetensors.index.json", N_FLIPS);
}

/* A file that may be left out is not left out because its link leads nowhere. */
static void dangling_links_are_refused(void **state)
{
    (void)state;
    victim v;
    bt_error e = {.status = BT_OK};
    bt_model *m = NULL;
    bt_tokenizer *t = NULL;
    make_victim(&v, "own-llama", "generation_config.json");
    assert_int_equal(unlink(v.path), 0);
    unit_ok(bt_model_open(v.folder, NULL, &m, &e), &e); /* absent is fine */
    bt_model_close(m);
    m = NULL;
    assert_int_equal(symlink("nowhere", v.path), 0);
    assert_int_equal(bt_model_open(v.folder, NULL, &m, &e), BT_ERR_IO);
    assert_null(m);
    assert_non_null(strstr(e.message, "generation_config.json is a link that leads nowhere"));
    char path[4400];
    size_t size;
    char *json = read_whole("tests/data/tokenizers/tiny/tokenizer.json", &size);
    unit_write_file(v.folder, "tokenizer.json", json, size);
    unit_ok(bt_tokenizer_open(v.folder, &t, &e), &e);
    bt_tokenizer_close(t);
    (void)snprintf(path, sizeof path, "%.4000s/tokenizer_config.json", v.folder);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_int_equal(bt_tokenizer_open(v.folder, &t, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, "tokenizer_config.json is a link that leads nowhere"));
    bt_free(json);
    drop_victim(&v);
}

/* A kilobyte of config can ask for 200 million tensors. That takes no memory to refuse. */
static void endless_lists_are_refused(void **state)
{
    (void)state;
    static const char config[] =
        "{\"architectures\": [\"K2HorizonForCausalLM\"], \"vocab_size\": 96, \"hidden_size\": 40,"
        "\"intermediate_size\": 56, \"num_hidden_layers\": 1024, \"num_attention_heads\": 4, \"head_dim\": 8,"
        "\"num_key_value_heads\": 4, \"max_position_embeddings\": 64, \"num_experts\": 65536,"
        "\"num_experts_per_tok\": 1, \"moe_intermediate_size\": 8, \"mlp_only_layers\": []}";
    victim v;
    bt_error e = {.status = BT_OK};
    bt_model *m = NULL;
    struct rusage before, after;
    make_victim(&v, "own-moe-top1", "config.json");
    unit_write_file(v.folder, "config.json", config, sizeof config - 1);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    assert_int_equal(bt_model_open(v.folder, NULL, &m, &e), BT_ERR_FORMAT);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_null(m);
    assert_non_null(strstr(e.message, "config.json: it asks for more than"));
    assert_true(after.ru_maxrss - before.ru_maxrss < 64 * 1024); /* kilobytes */
    drop_victim(&v);
}

/* ---- tokenizers ---------------------------------------------------------------------------------------------------
 * */

static const char text[] =
    "Hello  world, 1234567 \xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x91\xa8 don't\n\n x\t<|ifm|im_end|>\x01";

typedef bt_status (*open_fn)(const char *, size_t, const char *, size_t, bt_tokenizer **, bt_error *);

typedef struct sound {
    open_fn open;
    const char *name, *json, *config; /* as read: json [json_size] (or tiktoken.model), config [config_size] or NULL */
    size_t json_size, config_size;
    int32_t *ids; /* of `text` */
    size_t n_ids;
} sound;

/* From blocks of exactly their size, so that a read past their end is seen. */
static bt_status open_exact(open_fn open, const char *json, size_t json_size, const char *config, size_t config_size,
                            bt_tokenizer **t, bt_error *e)
{
    char *a = malloc(json_size > 0 ? json_size : 1),
         *b = config == NULL ? NULL : malloc(config_size > 0 ? config_size : 1);
    assert_non_null(a);
    if (json_size > 0) memcpy(a, json, json_size);
    if (b != NULL && config_size > 0) memcpy(b, config, config_size);
    bt_status st = open(a, json_size, b, config_size, t, e);
    free(a);
    free(b);
    return st;
}

/* Damaged texts against sound ones; true if they are refused. */
static bool judge_tokenizer(const sound *s, const char *json, size_t json_size, const char *config, size_t config_size,
                            bool same_meaning, const char *what, size_t at)
{
    bt_tokenizer *t = NULL;
    bt_error e = {.status = BT_OK};
    bt_status st = open_exact(s->open, json, json_size, config, config_size, &t, &e);
    if (st != BT_OK) {
        if (st == BT_ERR_MEMORY || strlen(e.message) < 10 || same_meaning)
            fail_msg("%s %zu of %s: %s", what, at, s->name, e.message);
        return true;
    }
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n = 0, size = 0;
    st = bt_tokenizer_encode(t, text, sizeof text - 1, BT_TEXT_SPECIAL, &ids, &n, &e);
    if (same_meaning && (st != BT_OK || n != s->n_ids || memcmp(ids, s->ids, n * sizeof *ids) != 0))
        fail_msg("%s %zu of %s changes the ids silently", what, at, s->name);
    if (st == BT_OK) {
        unit_ok(bt_tokenizer_decode(t, ids, n, BT_TEXT_SPECIAL, &back, &size, &e), &e);
        if (size != sizeof text - 1 || memcmp(back, text, size) != 0)
            fail_msg("%s %zu of %s: the text comes back as: %s", what, at, s->name, back);
    } else if (strlen(e.message) < 10) {
        fail_msg("%s %zu of %s: no word of what is wrong", what, at, s->name);
    }
    bt_free(back);
    bt_free(ids);
    bt_tokenizer_close(t);
    return false;
}

static void cut_tokenizer(const sound *s, size_t n_borders)
{
    size_t n = (s->json_size - 1) / BORDER_BYTES + 1,
           step = (s->json_size < SMALL_FILE ? 1 : n / n_borders + 1) * ONE_IN;
    size_t n_refused = 0, n_run = 0;
    for (size_t i = 0; i < n; i += step, n_run++) {
        size_t at = i * BORDER_BYTES;
        bool refused = judge_tokenizer(s, s->json, at, s->config, s->config_size, false, "a cut at", at);
        if (!refused && !is_blank_from(s->json, s->json_size, at)) fail_msg("%s cut at %zu is accepted", s->name, at);
        n_refused += refused;
    }
    size_t config_step = ONE_IN * (s->json_size < SMALL_FILE ? 1 : 16); /* each reads the whole tokenizer again */
    for (size_t at = 0; s->config != NULL && at < s->config_size; at += config_step, n_run++) {
        bool refused = judge_tokenizer(s, s->json, s->json_size, s->config, at, false, "a cut of the config at", at);
        if (!refused && !is_blank_from(s->config, s->config_size, at)) fail_msg("%s, config cut at %zu", s->name, at);
        n_refused += refused;
    }
    print_message("%s: %zu cuts, %zu refused\n", s->name, n_run, n_refused);
}

static void flip_tokenizer(const sound *s, size_t n_flips)
{
    char *json = malloc(s->json_size), *config = s->config == NULL ? NULL : malloc(s->config_size);
    uint64_t json_meaning = meaning_of(s->json, s->json_size);
    uint64_t config_meaning = config == NULL ? 0 : meaning_of(s->config, s->config_size);
    size_t n_refused = 0, n_run = 0, n_config = config == NULL ? 0 : s->config_size * 8;
    size_t config_step = ONE_IN * (s->json_size < SMALL_FILE ? 1 : 16); /* as above */
    assert_non_null(json);
    memcpy(json, s->json, s->json_size);
    if (config != NULL) memcpy(config, s->config, s->config_size);
    for (size_t i = 0; i < n_flips; i += ONE_IN, n_run++) {
        size_t bit = (size_t)(bt_rng_u64(11, i) % (s->json_size * 8));
        json[bit / 8] = (char)(json[bit / 8] ^ (1 << bit % 8));
        bool same = json_meaning != 0 && meaning_of(json, s->json_size) == json_meaning;
        n_refused += judge_tokenizer(s, json, s->json_size, s->config, s->config_size, same, "bit", bit);
        json[bit / 8] = s->json[bit / 8];
    }
    for (size_t bit = 0; bit < n_config; bit += config_step, n_run++) {
        config[bit / 8] = (char)(config[bit / 8] ^ (1 << bit % 8));
        bool same = meaning_of(config, s->config_size) == config_meaning;
        n_refused += judge_tokenizer(s, s->json, s->json_size, config, s->config_size, same, "bit of the config", bit);
        config[bit / 8] = s->config[bit / 8];
    }
    print_message("%s: %zu flips, %zu refused\n", s->name, n_run, n_refused);
    free(json);
    free(config);
}

static void attack_tokenizer(const char *folder, size_t n_borders, size_t n_flips)
{
    char path[4400];
    bt_tokenizer *t = NULL;
    bt_error e = {.status = BT_OK};
    sound s = {.name = folder, .open = bt_tokenizer_open_text};
    (void)snprintf(path, sizeof path, "%.4000s/tiktoken.model", folder);
    if (access(path, R_OK) == 0)
        s.open = bt_tokenizer_open_tiktoken;
    else
        (void)snprintf(path, sizeof path, "%.4000s/tokenizer.json", folder);
    char *json = read_whole(path, &s.json_size), *config = NULL;
    (void)snprintf(path, sizeof path, "%.4000s/tokenizer_config.json", folder);
    if (access(path, R_OK) == 0) config = read_whole(path, &s.config_size);
    s.json = json;
    s.config = config;
    unit_ok(open_exact(s.open, s.json, s.json_size, s.config, s.config_size, &t, &e), &e);
    unit_ok(bt_tokenizer_encode(t, text, sizeof text - 1, BT_TEXT_SPECIAL, &s.ids, &s.n_ids, &e), &e);
    bt_tokenizer_close(t);
    cut_tokenizer(&s, n_borders);
    flip_tokenizer(&s, n_flips);
    bt_free(s.ids);
    bt_free(json);
    bt_free(config);
}

static void tokenizer_damaged(void **state)
{
    (void)state;
    attack_tokenizer("tests/data/tokenizers/tiny", N_LARGE_BORDERS, N_FLIPS);
    attack_tokenizer("tests/data/tokenizers/tiktoken", N_LARGE_BORDERS, N_FLIPS);
}

static void fixture_tokenizer_damaged(void **state)
{
    (void)state;
    const char *fixtures = unit_fixtures();
    if (fixtures == NULL) {
        print_message("NOT RUN: the fixtures are not there\n");
        skip();
    }
    char path[4400];
    (void)snprintf(path, sizeof path, "%.4000s/tokenizers/k2", fixtures);
    attack_tokenizer(path, N_LARGE_BORDERS, 100);
    (void)snprintf(path, sizeof path, "%.4000s/tokenizers/k3", fixtures);
    attack_tokenizer(path, N_LARGE_BORDERS, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_shard_of_each_storage_form_cut),
        cmocka_unit_test(configs_and_indexes_cut),
        cmocka_unit_test(every_stored_file_cut),
        cmocka_unit_test(header_bits_flipped),
        cmocka_unit_test(config_and_index_bits_flipped),
        cmocka_unit_test(dangling_links_are_refused),
        cmocka_unit_test(endless_lists_are_refused),
        cmocka_unit_test(tokenizer_damaged),
        cmocka_unit_test(fixture_tokenizer_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
