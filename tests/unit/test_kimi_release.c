/*
 * Kimi K3's release, all of it, without its weights: 96 sparse files of the published sizes with true headers, an index
 * of 497,220 names, and what an engine would need. Names, types and shapes are a table of this file's own, so that
 * neither our list nor synth vouches for itself; the sizes of the files do, to the byte.
 * Known-bads: no text_config, a key less, a class less, a file less, an end token that is none.
 */
#include "unit.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/io.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "tool/answer.h"
#include "tool/presets.h"
#include "tool/synth_tokenizer.h"

#define N_SHARDS   96u
#define N_TENSORS  497220u
#define N_LAYERS   93u
#define N_EXPERTS  896u
#define FILE_BYTES 1560936091448u /* of all shards */
#define DATA_BYTES 1560860324864u /* of all tensors */
#define TEXT_BYTES 1559965606912u /* of those used */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define KEEPS_BOOKS 1 /* a sanitizer's memory is not ours */
#else
#    define KEEPS_BOOKS 0
#endif

static bt_error e;

/* ---- the table --------------------------------------------------------------------------------------------------- */

enum { KDA = 1, MLA = 2, DENSE = 4, SPARSE = 8, EVERY = 16, REST = 32, PROJECTOR = 64, VISION = 128 };

typedef struct tensor_class {
    const char *name; /* of a layer's: what follows "language_model.model.layers.N."; "#" is an expert's number */
    const char *type;
    unsigned where;
    unsigned shape[4]; /* up to the first 0 */
} tensor_class;

#define ATTENTION "self_attn."
#define MOE       "block_sparse_moe."
#define EXPERT    MOE "experts.#."
#define TEXT      "language_model."

static const tensor_class CLASSES[] = {
    {"input_layernorm.weight", "BF16", EVERY, {7168}},
    {"post_attention_layernorm.weight", "BF16", EVERY, {7168}},
    {"self_attention_res_norm.weight", "BF16", EVERY, {7168}},
    {"self_attention_res_proj.weight", "BF16", EVERY, {1, 7168}},
    {"mlp_res_norm.weight", "BF16", EVERY, {7168}},
    {"mlp_res_proj.weight", "BF16", EVERY, {1, 7168}},
    {ATTENTION "q_proj.weight", "BF16", KDA, {12288, 7168}},
    {ATTENTION "k_proj.weight", "BF16", KDA, {12288, 7168}},
    {ATTENTION "v_proj.weight", "BF16", KDA, {12288, 7168}},
    {ATTENTION "q_conv1d.weight", "F32", KDA, {12288, 1, 4}},
    {ATTENTION "k_conv1d.weight", "F32", KDA, {12288, 1, 4}},
    {ATTENTION "v_conv1d.weight", "F32", KDA, {12288, 1, 4}},
    {ATTENTION "f_a_proj.weight", "BF16", KDA, {128, 7168}},
    {ATTENTION "f_b_proj.weight", "BF16", KDA, {12288, 128}},
    {ATTENTION "b_proj.weight", "BF16", KDA, {96, 7168}},
    {ATTENTION "A_log", "F32", KDA, {128}},
    {ATTENTION "dt_bias", "F32", KDA, {12288}},
    {ATTENTION "o_norm.weight", "F32", KDA, {128}},
    {ATTENTION "g_proj.weight", "BF16", EVERY, {12288, 7168}},
    {ATTENTION "o_proj.weight", "BF16", EVERY, {7168, 12288}},
    {ATTENTION "q_a_proj.weight", "BF16", MLA, {1536, 7168}},
    {ATTENTION "q_a_layernorm.weight", "BF16", MLA, {1536}},
    {ATTENTION "q_b_proj.weight", "BF16", MLA, {18432, 1536}},
    {ATTENTION "kv_a_proj_with_mqa.weight", "BF16", MLA, {576, 7168}},
    {ATTENTION "kv_a_layernorm.weight", "BF16", MLA, {512}},
    {ATTENTION "kv_b_proj.weight", "BF16", MLA, {24576, 512}},
    {"mlp.gate_proj.weight", "BF16", DENSE, {33792, 7168}},
    {"mlp.up_proj.weight", "BF16", DENSE, {33792, 7168}},
    {"mlp.down_proj.weight", "BF16", DENSE, {7168, 33792}},
    {MOE "gate.weight", "BF16", SPARSE, {896, 7168}},
    {MOE "gate.e_score_correction_bias", "F32", SPARSE, {896}},
    {MOE "routed_expert_down_proj.weight", "BF16", SPARSE, {3584, 7168}},
    {MOE "routed_expert_norm.weight", "BF16", SPARSE, {3584}},
    {MOE "routed_expert_up_proj.weight", "BF16", SPARSE, {7168, 3584}},
    {MOE "shared_experts.gate_proj.weight", "BF16", SPARSE, {6144, 7168}},
    {MOE "shared_experts.up_proj.weight", "BF16", SPARSE, {6144, 7168}},
    {MOE "shared_experts.down_proj.weight", "BF16", SPARSE, {7168, 6144}},
    {EXPERT "w1.weight_packed", "U8", SPARSE, {3072, 1792}},
    {EXPERT "w1.weight_scale", "U8", SPARSE, {3072, 112}},
    {EXPERT "w2.weight_packed", "U8", SPARSE, {3584, 1536}},
    {EXPERT "w2.weight_scale", "U8", SPARSE, {3584, 96}},
    {EXPERT "w3.weight_packed", "U8", SPARSE, {3072, 1792}},
    {EXPERT "w3.weight_scale", "U8", SPARSE, {3072, 112}},
    {TEXT "model.embed_tokens.weight", "BF16", REST, {163840, 7168}},
    {TEXT "lm_head.weight", "BF16", REST, {163840, 7168}},
    {TEXT "model.norm.weight", "BF16", REST, {7168}},
    {TEXT "model.output_attn_res_norm.weight", "BF16", REST, {7168}},
    {TEXT "model.output_attn_res_proj.weight", "BF16", REST, {1, 7168}},
    {"mm_projector.post_norm.weight", "BF16", PROJECTOR, {7168}},
    {"mm_projector.proj.0.weight", "BF16", PROJECTOR, {4096, 4096}},
    {"mm_projector.proj.2.weight", "BF16", PROJECTOR, {7168, 4096}},
    {"vision_tower.encoder.final_layernorm.weight", "BF16", VISION, {1024}},
    {"vision_tower.patch_embed.pos_emb.weight", "BF16", VISION, {64, 64, 1024}},
    {"vision_tower.patch_embed.proj.weight", "BF16", VISION, {1024, 3, 14, 14}},
    {"vision_tower.encoder.blocks.#.mlp.fc0.weight", "BF16", VISION, {4096, 1024}},
    {"vision_tower.encoder.blocks.#.mlp.fc1.weight", "BF16", VISION, {1024, 4096}},
    {"vision_tower.encoder.blocks.#.norm0.weight", "BF16", VISION, {1024}},
    {"vision_tower.encoder.blocks.#.norm1.weight", "BF16", VISION, {1024}},
    {"vision_tower.encoder.blocks.#.wo.weight", "BF16", VISION, {1024, 1536}},
    {"vision_tower.encoder.blocks.#.wqkv.weight", "BF16", VISION, {4608, 1024}},
};
#define N_CLASSES (sizeof CLASSES / sizeof *CLASSES)

static bool is_mla(unsigned layer)
{
    return layer % 4 == 3 || layer == N_LAYERS - 1;
}

/* What shard i (from 0) of a checkpoint with n_layers holds: layer i, then the rest, the projector, the vision part. */
static unsigned kinds_of(unsigned i, unsigned n_layers)
{
    static const unsigned behind[] = {REST, PROJECTOR, VISION};
    if (i >= n_layers) return behind[i - n_layers];
    return EVERY | (is_mla(i) ? MLA : KDA) | (i == 0 ? DENSE : SPARSE);
}

/* The published size of a file. */
static uint64_t published_bytes(unsigned i)
{
    static const uint64_t behind[] = {4697664072, 92289328, 802448352};
    if (i >= N_LAYERS) return behind[i - N_LAYERS];
    if (i == 0) return 2341216112;
    if (is_mla(i)) return i < 10 ? 16567501776 : 16567507176; /* a longer number makes longer names */
    return i < 10 ? 16990911504 : 16990916912;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* A checkpoint to write, whole or cut down. */
typedef struct plan {
    const char *folder;
    unsigned n_layers, n_experts;
    const tensor_class *omitted; /* NULL: none */
    bool is_published;           /* all of it: files must have the published sizes */
    bt_text index, header;
    uint64_t at; /* end of the shard's data so far */
    unsigned n_tensors, n_shards, shard_i;
} plan;

static int width_of(const tensor_class *c)
{
    return c->type[0] == 'U' ? 1 : c->type[0] == 'F' ? 4 : 2;
}

static uint64_t bytes_of(const tensor_class *c, unsigned n_experts)
{
    uint64_t n = (uint64_t)width_of(c);
    for (unsigned i = 0; i < 4 && c->shape[i] != 0; i++) {
        bool counts_experts = i == 0 && c->shape[0] == N_EXPERTS;
        n *= counts_experts ? n_experts : c->shape[i];
    }
    return n;
}

typedef struct entry {
    char name[120];
    const tensor_class *class;
} entry;

/* As the vendor's writer orders them: wider types first, then by name. */
static int by_type_and_name(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int order = width_of(y->class) - width_of(x->class);
    return order != 0 ? order : strcmp(x->name, y->name);
}

static void name_tensor(const plan *p, const tensor_class *c, unsigned number, entry *t)
{
    const char *hash = strchr(c->name, '#');
    int used = c->where < REST ? snprintf(t->name, sizeof t->name, TEXT "model.layers.%u.", p->shard_i) : 0;
    char *to = t->name + used;
    size_t left = sizeof t->name - (size_t)used;
    t->class = c;
    if (hash == NULL)
        (void)snprintf(to, left, "%s", c->name);
    else
        (void)snprintf(to, left, "%.*s%u%s", (int)(hash - c->name), c->name, number, hash + 1);
}

static void put_tensor(plan *p, const entry *t)
{
    const tensor_class *c = t->class;
    bt_text_printf(&p->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", p->at == 0 ? "" : ",", t->name, c->type);
    for (unsigned i = 0; i < 4 && c->shape[i] != 0; i++) {
        bool counts_experts = i == 0 && c->shape[0] == N_EXPERTS;
        bt_text_printf(&p->header, "%s%u", i == 0 ? "" : ",", counts_experts ? p->n_experts : c->shape[i]);
    }
    uint64_t end = p->at + bytes_of(c, p->n_experts);
    bt_text_printf(&p->header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", p->at, end);
    bt_text_printf(&p->index, "%s\n    \"%s\": \"model-%05u-of-%06u.safetensors\"", p->n_tensors == 0 ? "" : ",",
                   t->name, p->shard_i + 1, p->n_shards);
    p->at = end;
    p->n_tensors++;
}

static void put_shard(plan *p)
{
    unsigned kinds = kinds_of(p->shard_i, p->n_layers);
    entry *entries = calloc(N_CLASSES * N_EXPERTS, sizeof *entries);
    size_t n = 0;
    assert_non_null(entries);
    for (size_t k = 0; k < N_CLASSES; k++) {
        const tensor_class *c = &CLASSES[k];
        unsigned n_numbers = strchr(c->name, '#') == NULL ? 1 : kinds == VISION ? 27 : p->n_experts;
        if ((c->where & kinds) == 0 || c == p->omitted) continue;
        for (unsigned i = 0; i < n_numbers; i++) name_tensor(p, c, i, &entries[n++]);
    }
    qsort(entries, n, sizeof *entries, by_type_and_name);
    for (size_t i = 0; i < n; i++) put_tensor(p, &entries[i]);
    free(entries);
}

/* Header, then a hole as long as the data. That the file then has its published size to the byte shows that names,
 * types, shapes and their order are the release's. */
static void write_shard(plan *p)
{
    char path[512];
    bt_text *h = &p->header;
    h->size = 0;
    p->at = 0;
    bt_text_puts(h, "12345678{");
    put_shard(p);
    bt_text_puts(h, "}");
    uint64_t header_bytes = (h->size + 7) / 8 * 8;
    if (p->is_published) assert_int_equal(header_bytes + p->at, published_bytes(p->shard_i));
    while (h->size < header_bytes) bt_text_puts(h, " ");
    assert_true(bt_text_ok(h));
    uint64_t length = header_bytes - 8;
    memcpy(h->data, &length, sizeof length);
    (void)snprintf(path, sizeof path, "%s/model-%05u-of-%06u.safetensors", p->folder, p->shard_i + 1, p->n_shards);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, h->data, h->size), h->size);
    assert_int_equal(ftruncate(fd, (off_t)(header_bytes + p->at)), 0);
    assert_int_equal(close(fd), 0);
}

static const bt_preset *release(void)
{
    const bt_preset *p = NULL;
    assert_int_equal(bt_preset_find("k3-full", &p, &e), BT_OK);
    return p;
}

/* The vendor's config.json, as synth knows it: free with bt_text_free. */
static bt_text config_of(unsigned n_layers, unsigned n_experts)
{
    const bt_preset *p = release();
    bt_preset_choice c = {.n_layers = n_layers, .n_experts = n_experts};
    bt_text t = {0};
    p->config(p->numbers, &c, NULL, &t);
    assert_true(bt_text_ok(&t));
    return t;
}

static void write_checkpoint(plan *p)
{
    bt_text config = config_of(p->n_layers, p->n_experts);
    p->n_shards = p->n_layers + 3;
    bt_text_puts(&p->index, "{\n  \"metadata\": {},\n  \"weight_map\": {");
    for (p->shard_i = 0; p->shard_i < p->n_shards; p->shard_i++) write_shard(p);
    bt_text_puts(&p->index, "\n  }\n}\n");
    assert_true(bt_text_ok(&p->index));
    unit_write_file(p->folder, "model.safetensors.index.json", p->index.data, p->index.size);
    unit_write_file(p->folder, "config.json", config.data, config.size);
    bt_text_free(&config);
    bt_text_free(&p->index);
    bt_text_free(&p->header);
}

/* Whether the disk takes a file of 17 GB without having room for it. */
static bool has_sparse_files(const char *folder)
{
    char path[512];
    struct stat s;
    struct statvfs disk;
    (void)snprintf(path, sizeof path, "%s/hole", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    bool good = ftruncate(fd, (off_t)published_bytes(1)) == 0 && fstat(fd, &s) == 0 && s.st_blocks < 1024 &&
                fstatvfs(fd, &disk) == 0 && (uint64_t)disk.f_bavail * disk.f_frsize > (uint64_t)1 << 30;
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
    return good;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static uint64_t status_bytes(const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long kib = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) kib = strtoull(line + strlen(key), NULL, 10);
    assert_int_equal(fclose(f), 0);
    return kib * 1024;
}

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, e.message);                               \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void require_bytes(const bt_model *m, unsigned class, uint64_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->list.n; i++)
        if (m->classes[i] == class) sum += m->views[i].bytes;
    if (sum != bytes) {
        (void)fprintf(stderr, "class %u has %" PRIu64 " bytes, not %" PRIu64 "\n", class, sum, bytes);
        _exit(1);
    }
}

/* Section b of the specification, its per-layer sums taken apart. */
static void require_sums(const bt_model *m)
{
    uint64_t all = 0, f32 = 0;
    for (size_t i = 0; i < m->list.n; i++) all += m->views[i].bytes;
    for (size_t i = 0; i < m->list.n; i++)
        if (m->views[i].dtype == BT_F32) f32 += m->views[i].bytes;
    REQUIRE(m->n_parameters == 2779484476000u + 69u * 32u);
    REQUIRE(m->n_skipped == 168);
    REQUIRE(m->skipped_bytes == 92289024u + 802428928u);
    REQUIRE(all + m->skipped_bytes == DATA_BYTES);
    REQUIRE(all == TEXT_BYTES);
    require_bytes(m, BT_CLASS_EXPERTS, 1446456066048u);
    require_bytes(m, BT_CLASS_EMBEDDING, 2348810240u);
    require_bytes(m, BT_CLASS_HEAD, 2348810240u);
    require_bytes(m, BT_CLASS_DENSE, 3u * 2u * 33792u * 7168u);
    require_bytes(m, BT_CLASS_SHARED, (uint64_t)92 * 2 * (3u * 6144u * 7168u + 2u * 3584u * 7168u));
    require_bytes(m, BT_CLASS_ROUTER, (uint64_t)92 * 896 * (2u * 7168u + 4u));
    REQUIRE(f32 == 69u * 4u * (128u + 12288u + 3u * 12288u * 4u + 128u) + 92u * 4u * 896u);
}

/* Section d: what a sequence takes whatever its length, and what a token adds. On a made-up machine of 64 GB, in the
 * folder below. */
static void require_plan(const bt_model *m, const char *folder)
{
    bt_memory_plan one, two;
    bt_engine_options o = {
        .context = 4096, .n_threads = 2, .overcommit = true, .n_state_snapshots = -1, .root = folder};
    REQUIRE(bt_engine_plan(m, &o, &one, &e) == BT_OK);
    REQUIRE(one.kv == (uint64_t)4096 * 24 * 576 * 4);
    REQUIRE(one.mapped_bytes == FILE_BYTES);
    o.context = 8192;
    o.n_slots = 2;
    o.kv_dtype = "bf16";
    REQUIRE(bt_engine_plan(m, &o, &two, &e) == BT_OK);
    REQUIRE(two.kv == (uint64_t)2 * 8192 * 24 * 576 * 2);
    REQUIRE(two.state == 2 * one.state);
    REQUIRE(one.state == 434110464u + 30523392u);
    o.n_state_snapshots = 4;               /* each a copy for every slot */
    (void)bt_engine_plan(m, &o, &two, &e); /* a small machine refuses, and is told the sizes all the same */
    REQUIRE(two.state == 2 * 5 * one.state);
    o.overcommit = false;
    REQUIRE(bt_engine_plan(m, &o, &two, &e) == BT_ERR_MEMORY); /* 1.6 TB of files */
}

/* In a process of its own: exits 0 if all is as it should be. */
static void open_release(const char *folder)
{
    bt_model *m = NULL;
    uint64_t limit = (uint64_t)200000000;
    uint64_t anonymous = status_bytes("RssAnon:");
    struct rlimit data = {status_bytes("VmData:") + limit, RLIM_INFINITY};
    if (!KEEPS_BOOKS) REQUIRE(setrlimit(RLIMIT_DATA, &data) == 0); /* more than that is refused, even for a moment */
    REQUIRE(bt_model_open(folder, NULL, &m, &e) == BT_OK);
    if (!KEEPS_BOOKS) REQUIRE(status_bytes("RssAnon:") - anonymous < limit);
    REQUIRE(bt_tensors_count(m->tensors) == N_TENSORS);
    REQUIRE(bt_tensors_n_shards(m->tensors) == N_SHARDS);
    REQUIRE(bt_model_private_bytes(m) < limit);
#ifdef BT_TEST_BUILD
    REQUIRE(bt_io_n_mapped() == N_SHARDS + 1); /* the index too; nothing is mapped twice */
    REQUIRE(bt_io_n_opened() == N_SHARDS + 2); /* and config.json */
#endif
    require_sums(m);
    require_plan(m, folder);
    bt_model_close(m);
    _exit(0);
}

static void expect_opening(const char *folder)
{
    bt_model *m = NULL;
    if (bt_model_open(folder, NULL, &m, &e) != BT_OK) fail_msg("%s", e.message);
    bt_model_close(m);
}

static void expect_refusal(const char *folder, const char *expected)
{
    bt_model *m = NULL;
    assert_int_equal(bt_model_open(folder, NULL, &m, &e), BT_ERR_FORMAT);
    if (strstr(e.message, expected) == NULL) fail_msg("no \"%s\" in: %s", expected, e.message);
}

static void the_release_opens(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), path[512];
    if (!has_sparse_files(folder)) {
        print_message("NOT RUN: the disk of %s has no sparse files of 17 GB, or less than 1 GiB free\n", folder);
        unit_remove_folder(folder);
        free(folder);
        skip();
    }
    static const char memory[] = "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n";
    plan p = {.folder = folder, .n_layers = N_LAYERS, .n_experts = N_EXPERTS, .is_published = true};
    write_checkpoint(&p);
    (void)snprintf(path, sizeof path, "%s/proc", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    unit_write_file(path, "meminfo", memory, sizeof memory - 1);
    assert_int_equal(p.n_tensors, N_TENSORS);
    assert_int_equal(p.n_shards, N_SHARDS);
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) open_release(folder);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    (void)snprintf(path, sizeof path, "%s/model-00095-of-000096.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    expect_refusal(folder, "1 of the 96 files of the index are missing");
    unit_remove_folder(folder);
    free(folder);
}

/* ---- known-bads -------------------------------------------------------------------------------------------------- */

/* Four layers and 16 experts, each class left out in turn. */
static void every_class_is_needed(void **state)
{
    (void)state;
    char *folder = unit_make_folder();
    bool has_sparse = has_sparse_files(folder);
    for (size_t i = 0; i < N_CLASSES && has_sparse; i++) {
        plan p = {.folder = folder, .n_layers = 4, .n_experts = 16, .omitted = &CLASSES[i]};
        bool is_text = (CLASSES[i].where & (PROJECTOR | VISION)) == 0;
        const char *hash = strrchr(CLASSES[i].name, '#'), *end = hash == NULL ? CLASSES[i].name : hash + 1;
        char expected[80];
        (void)snprintf(expected, sizeof expected, "%.60s is missing", end);
        write_checkpoint(&p);
        if (is_text)
            expect_refusal(folder, expected);
        else if (CLASSES[i].where == PROJECTOR)
            expect_opening(folder);
    }
    unit_remove_folder(folder);
    free(folder);
    if (!has_sparse) skip();
}

/* A config text without the member `key` of its innermost object that has one; false: it has none. */
static bool without(bt_text *t, const char *key)
{
    char member[80];
    (void)snprintf(member, sizeof member, "    \"%s\": ", key);
    char *begin = strstr(t->data, member);
    if (begin == NULL) return false;
    char *end = begin;
    int depth = 0;
    for (; depth > 0 || (*end != ',' && *end != '\n'); end++)
        depth += (*end == '[' || *end == '{') - (*end == ']' || *end == '}');
    if (*end == ',')
        end++;
    else /* the last member: the comma before it */
        do begin--;
        while (*begin != ',');
    memset(begin, ' ', (size_t)(end - begin));
    return true;
}

static bt_status list_config(const bt_text *t)
{
    bt_config *c = NULL;
    bt_tensor_list list = {0};
    bt_status st = bt_config_parse("config.json", t->data, t->size, &c, &e);
    if (st == BT_OK) st = bt_model_list_tensors(c, &list, &e);
    bt_config_close(c);
    bt_free(list.specs);
    bt_arena_free(list.arena);
    return st;
}

static void missing_keys_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "activation_situ_beta",
        "activation_situ_linear_beta",
        "first_k_dense_replace",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "kv_lora_rank",
        "linear_attn_config",
        "full_attn_layers",
        "head_dim",
        "kda_layers",
        "num_heads",
        "short_conv_kernel_size",
        "mla_use_nope",
        "moe_intermediate_size",
        "moe_renormalize",
        "moe_router_activation_func",
        "num_attention_heads",
        "num_experts",
        "num_experts_per_token",
        "num_hidden_layers",
        "num_shared_experts",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "rms_norm_eps",
        "routed_scaling_factor",
        "v_head_dim",
        "vocab_size",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bt_text t = config_of(4, 16);
        assert_int_equal(list_config(&t), BT_OK);
        assert_true(without(&t, keys[i]));
        bt_status st = list_config(&t);
        if (st != BT_ERR_FORMAT && st != BT_ERR_UNSUPPORTED) fail_msg("without %s: status %d", keys[i], (int)st);
        /* Of a layer list: the layers that are in neither. */
        if (strstr(keys[i], "_layers") == NULL && strstr(e.message, keys[i]) == NULL)
            fail_msg("without %s: %s", keys[i], e.message);
        bt_text_free(&t);
    }
    bt_text t = config_of(4, 16);
    memcpy(strstr(t.data, "text_config"), "taxt_config", 11);
    assert_int_not_equal(list_config(&t), BT_OK);
    assert_non_null(strstr(e.message, "text_config is missing"));
    bt_text_free(&t);
}

/* The twin's config.json names 2, left over from elsewhere; with its tokenizer, where 2 is an ordinary token, it ends
 * nothing. */
static void a_left_over_end_id_is_none(void **state)
{
    (void)state;
    char *folder = unit_make_folder();
    const bt_preset *p = NULL;
    assert_int_equal(bt_preset_find("k3-twin-0.4b", &p, &e), BT_OK);
    bt_synth_vocab v = p->vocab(p->numbers);
    bt_tokenizer *t = NULL;
    bt_chat *c = NULL;
    bt_text config = {0}, dropped = {0};
    int32_t *ids = NULL, config_id = 2;
    size_t n = 0;
    p->config(p->numbers, &(bt_preset_choice){0}, NULL, &config);
    assert_non_null(strstr(config.data, "\"eos_token_id\": 2,"));
    bt_text_free(&config);
    assert_int_equal(bt_synth_tokenizer(folder, &v, &e), BT_OK);
    assert_int_equal(bt_tokenizer_open(folder, &t, &e), BT_OK);
    if (bt_chat_open(folder, "kimi_k3", NULL, t, &c, &e) != BT_OK) fail_msg("%s", e.message);
    bt_model m = {.end_ids = &config_id, .n_end_ids = 1};
    assert_int_equal(bt_answer_end_ids(&m, t, c, &ids, &n, &dropped, &e), BT_OK);
    assert_string_equal(dropped.data, "2");
    assert_int_equal(n, 2); /* by name: the turn's end and the text's */
    assert_int_equal(ids[0] + ids[1], 163585 + 163586);
    bt_free(ids);
    bt_text_free(&dropped);
    bt_chat_close(c);
    bt_tokenizer_close(t);
    unit_remove_folder(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_release_opens),
        cmocka_unit_test(every_class_is_needed),
        cmocka_unit_test(missing_keys_are_refused),
        cmocka_unit_test(a_left_over_end_id_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
