/*
 * Session files: what is written is read, and every flipped bit, every cut and every byte too many is refused; which
 * model a file belongs to; a session goes on from its file without computing what it holds.
 */
#include "model_unit.h"

#include "tool/session_file.h"

#define MESSAGES "[{\"role\": \"user\", \"content\": \"hello\"}]"

typedef struct stored {
    char *data;
    size_t size;
} stored;

static stored store(const bt_session_file *f)
{
    char *folder = unit_make_folder(), path[4200];
    bt_error e;
    stored s;
    (void)snprintf(path, sizeof path, "%s/talk", folder);
    unit_ok(bt_session_file_write(path, f, &e), &e);
    unit_ok(bt_read_file(path, (size_t)1 << 30, &s.data, &s.size, &e), &e);
    unit_remove_folder(folder);
    free(folder);
    return s;
}

static bt_session_file small_file(void)
{
    return (bt_session_file){
        .model = 0x1234567890abcdefu,
        .kv_dtype = "f32",
        .cpu_level = "scalar",
        .messages = MESSAGES,
        .messages_size = sizeof MESSAGES - 1,
        .snapshot = "snapshot!",
        .snapshot_size = 9,
    };
}

static void test_round_trip(void **state)
{
    (void)state;
    const bt_session_file f = small_file();
    bt_session_file g;
    bt_error e;
    stored s = store(&f);
    unit_ok(bt_session_file_parse(s.data, s.size, &g, &e), &e);
    assert_true(g.model == f.model);
    assert_string_equal(g.kv_dtype, "f32");
    assert_string_equal(g.cpu_level, "scalar");
    assert_int_equal(g.messages_size, f.messages_size);
    assert_memory_equal(g.messages, f.messages, f.messages_size);
    assert_int_equal(g.snapshot_size, 9);
    assert_memory_equal(g.snapshot, "snapshot!", 9);
    bt_free(s.data);
}

static void test_damage(void **state)
{
    (void)state;
    const bt_session_file f = small_file();
    bt_session_file g;
    bt_error e;
    stored s = store(&f);
    for (size_t bit = 0; bit < s.size * 8; bit++) {
        s.data[bit / 8] = (char)(s.data[bit / 8] ^ 1 << bit % 8);
        if (bt_session_file_parse(s.data, s.size, &g, &e) == BT_OK) fail_msg("bit %zu may be flipped", bit);
        s.data[bit / 8] = (char)(s.data[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t n = 0; n < s.size; n++) {
        char *cut = malloc(n + 1); /* a read past its end is then seen */
        assert_non_null(cut);
        memcpy(cut, s.data, n);
        assert_int_not_equal(bt_session_file_parse(cut, n, &g, &e), BT_OK);
        free(cut);
    }
    char *longer = malloc(s.size + 1);
    assert_non_null(longer);
    memcpy(longer, s.data, s.size);
    longer[s.size] = 0;
    assert_int_equal(bt_session_file_parse(longer, s.size + 1, &g, &e), BT_ERR_FORMAT);
    free(longer);
    bt_free(s.data);
}

/* Sizes that lie, under checksums that are right. */
static void test_lies(void **state)
{
    (void)state;
    enum { MESSAGES_AT = 56, SNAPSHOT_AT = 72, NAME_AT = 24, VERSION_AT = 8 };
    static const uint64_t sizes[] = {0, 1, UINT64_MAX, UINT64_MAX - 95, (uint64_t)1 << 63, 47, 49};
    const bt_session_file f = small_file();
    bt_session_file g;
    bt_error e;
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
        stored s = store(&f);
        memcpy(s.data + (i % 2 == 0 ? MESSAGES_AT : SNAPSHOT_AT), &sizes[i / 2], sizeof sizes[0]);
        bt_session_file_reseal(s.data, s.size);
        assert_int_equal(bt_session_file_parse(s.data, s.size, &g, &e), BT_ERR_FORMAT);
        bt_free(s.data);
    }
    stored s = store(&f);
    memset(s.data + NAME_AT, 'x', BT_SESSION_NAME_BYTES);
    bt_session_file_reseal(s.data, s.size);
    assert_int_equal(bt_session_file_parse(s.data, s.size, &g, &e), BT_ERR_FORMAT);
    bt_free(s.data);
    s = store(&f);
    s.data[VERSION_AT] = 2;
    bt_session_file_reseal(s.data, s.size);
    assert_int_equal(bt_session_file_parse(s.data, s.size, &g, &e), BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "version 2"));
    bt_free(s.data);
}

/* ---- which model ------------------------------------------------------------------------------------------------- */

static uint64_t model_of(const char *folder, const char *kv)
{
    bt_error e;
    bt_model *m;
    bt_session_file f;
    unit_ok(bt_model_open(folder, &(bt_model_options){.ablate = NULL}, &m, &e), &e);
    bt_engine *g = unit_open_engine(m, (bt_engine_options){.n_threads = 1, .context = 16, .kv_dtype = kv});
    unit_ok(bt_session_file_begin(g, &f, &e), &e);
    assert_string_equal(f.kv_dtype, kv);
    assert_string_equal(f.cpu_level, bt_engine_cpu_level(g));
    bt_engine_close(g);
    bt_model_close(m);
    return f.model;
}

static void change_byte(const char *folder, const char *name, long at)
{
    char path[4400];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_not_equal(c, EOF);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
}

/* A change of config, tokenizer, or a weight near a tensor's beginning makes another model; copying does not. */
static void test_fingerprint(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), command[9000];
    (void)snprintf(command, sizeof command, "cp " UNIT_MODELS "k2-dense/* '%s'", folder);
    assert_int_equal(system(command), 0);
    uint64_t seen[6];
    seen[0] = model_of(folder, "f32");
    assert_true(seen[0] == model_of(UNIT_MODELS "k2-dense", "f32"));
    assert_true(seen[0] == model_of(folder, "bf16"));
    uint64_t header;
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/model-00001-of-00004.safetensors", folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&header, 1, sizeof header, f), sizeof header);
    assert_int_equal(fclose(f), 0);
    change_byte(folder, "model-00001-of-00004.safetensors", (long)(8 + header + 10));
    seen[1] = model_of(folder, "f32");
    (void)snprintf(command, sizeof command, "printf ' ' >>'%s/config.json'", folder);
    assert_int_equal(system(command), 0);
    seen[2] = model_of(folder, "f32");
    unit_write_file(folder, "tokenizer.json", "{}", 2);
    seen[3] = model_of(folder, "f32");
    unit_write_file(folder, "tokenizer_config.json", "{}", 2);
    seen[4] = model_of(folder, "f32");
    unit_write_file(folder, "tiktoken.model", "IQ== 0\n", 7);
    seen[5] = model_of(folder, "f32");
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < i; j++) assert_true(seen[i] != seen[j]);
    unit_remove_folder(folder);
    free(folder);
}

static void test_match(void **state)
{
    (void)state;
    bt_session_file f = small_file(), g = small_file();
    bt_error e;
    unit_ok(bt_session_file_match(&f, &g, &e), &e);
    (void)snprintf(g.cpu_level, sizeof g.cpu_level, "avx2");
    unit_ok(bt_session_file_match(&f, &g, &e), &e); /* for the caller to say */
    (void)snprintf(g.kv_dtype, sizeof g.kv_dtype, "bf16");
    assert_int_equal(bt_session_file_match(&f, &g, &e), BT_ERR_FORMAT);
    g = small_file();
    g.model++;
    assert_int_equal(bt_session_file_match(&f, &g, &e), BT_ERR_FORMAT);
}

/* ---- a session --------------------------------------------------------------------------------------------------- */

static void test_goes_on(void **state)
{
    (void)state;
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6}, next = 7;
    bt_error e;
    bt_session_file f, g;
    void *snapshot;
    bt_model *m = unit_open_model("k2-mova");
    bt_engine *engine = unit_open_engine(m, (bt_engine_options){.n_threads = 1, .context = 32, .n_slots = 2});
    bt_session *a = unit_open_session(engine), *b = unit_open_session(engine);
    unit_ok(bt_session_extend(a, ids, 8, NULL, &e), &e);
    unit_ok(bt_session_file_begin(engine, &f, &e), &e);
    unit_ok(bt_session_snapshot(a, &snapshot, &f.snapshot_size, &e), &e);
    f.snapshot = snapshot;
    f.messages = MESSAGES;
    f.messages_size = sizeof MESSAGES - 1;
    stored s = store(&f);
    unit_ok(bt_session_file_parse(s.data, s.size, &g, &e), &e);
    unit_ok(bt_session_restore(b, g.snapshot, g.snapshot_size, &e), &e);
    assert_int_equal(bt_session_length(b), 8);
    unit_ok(bt_session_extend(a, &next, 1, NULL, &e), &e);
    unit_ok(bt_session_extend(b, &next, 1, NULL, &e), &e);
    assert_memory_equal(bt_session_logits(a), bt_session_logits(b), bt_model_n_vocab(m) * sizeof(float));
    bt_free(s.data);
    bt_free(snapshot);
    bt_session_close(a);
    bt_session_close(b);
    bt_engine_close(engine);
    bt_model_close(m);
}

/* An output that cannot be made leaves nothing behind, not even a part of it. */
static void test_write_fails(void **state)
{
    (void)state;
    const bt_session_file f = small_file();
    bt_error e;
    assert_int_equal(bt_session_file_write("/nowhere/at/all/talk", &f, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, "/nowhere/at/all"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_damage),      cmocka_unit_test(test_lies),
        cmocka_unit_test(test_match),       cmocka_unit_test(test_fingerprint), cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_write_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
