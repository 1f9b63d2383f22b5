/* format/safetensors: cases C01 to C12 and C14, each with the smallest input that shows it. */
#include "unit.h"

#include <sys/stat.h>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "format/safetensors.h"

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

/* A file of 8 bytes of length, the header, and n_data bytes 0, 1, 2, ... */
static char *write_shard(const char *folder, const char *name, const char *header, size_t header_size, size_t n_data)
{
    size_t size = 8 + header_size + n_data;
    char *bytes = malloc(size);
    uint64_t length = header_size;
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, header_size);
    for (size_t i = 0; i < n_data; i++) bytes[8 + header_size + i] = (char)i;
    unit_write_file(folder, name, bytes, size);
    free(bytes);
    char *path = bt_path_join(folder, name);
    assert_non_null(path);
    return path;
}

static bt_tensors *open_fine(const char *path)
{
    bt_error e = {.message = ""};
    bt_tensors *t = NULL;
    if (bt_tensors_open(path, &t, &e) != BT_OK) fail_msg("refused: %s", e.message);
    return t;
}

/* Opening must fail as it should, with all the words (separated by '|') in its message. */
static void expect_refusal(const char *path, bt_status status, const char *words)
{
    bt_error e = {.message = ""};
    bt_tensors *t = NULL;
    bt_status st = bt_tensors_open(path, &t, &e);
    if (st == BT_OK) fail_msg("accepted, where \"%s\" should be said", words);
    if (st != status) fail_msg("status %d: %s", (int)st, e.message);
    char copy[512], *rest = copy;
    (void)snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(rest, "|", &rest); word != NULL; word = strtok_r(NULL, "|", &rest)) {
        if (strstr(e.message, word) == NULL) fail_msg("\"%s\" is missing in: %s", word, e.message);
    }
}

/* One file with this header; refused, or (words NULL) accepted. */
static void try_header(const char *header, size_t header_size, size_t n_data, const char *words)
{
    char *folder = unit_make_folder();
    char *path = write_shard(folder, "x.safetensors", header, header_size > 0 ? header_size : strlen(header), n_data);
    if (words == NULL) {
        bt_tensors_close(open_fine(path));
    } else {
        expect_refusal(path, BT_ERR_FORMAT, words);
    }
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
}

static void try_bytes(const void *bytes, size_t size, const char *words)
{
    char *folder = unit_make_folder(), *path = bt_path_join(folder, "model.safetensors");
    unit_write_file(folder, "model.safetensors", bytes, size);
    expect_refusal(path, BT_ERR_FORMAT, words);
    expect_refusal(folder, BT_ERR_FORMAT, words);
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static void c01_header_lengths(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {0x7fffffffffffffff, UINT64_MAX, 0, 1, 9, (uint64_t)1 << 32};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        unsigned char bytes[16] = {0};
        memcpy(bytes, &lengths[i], 8);
        memset(bytes + 8, '{', 8);
        char words[100];
        (void)snprintf(words, sizeof words, "model.safetensors|%llu bytes|16 bytes", (unsigned long long)lengths[i]);
        try_bytes(bytes, sizeof bytes, words);
    }
    try_bytes("", 0, "model.safetensors|0 bytes");
    try_bytes("abcd", 4, "4 bytes");
    try_bytes("\2\0\0\0\0\0\0\0", 8, "8 bytes");
    try_header("{}", 0, 0, NULL); /* the smallest file there is */
}

static void c02_placeholders(void **state)
{
    (void)state;
    static const char lfs[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:4665a5ea423c2713d436b5ee50593a964\n"
        "size 1234567\n";
    static const char html[] = "<!DOCTYPE html><html><body>404</body></html>";
    static const char json[] = "{\"error\":\"Repository not found\"}";
    try_bytes(lfs, sizeof lfs - 1, "model.safetensors|Git LFS pointer|not downloaded");
    try_bytes(html, sizeof html - 1, "web page");
    try_bytes(json, sizeof json - 1, "JSON text");
}

static void c03_truncation(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    char *folder = unit_make_folder();
    char *path = write_shard(folder, "x.safetensors", header, sizeof header - 1, 16);
    const size_t whole = 8 + sizeof header - 1 + 16;
    bt_tensors_close(open_fine(path));
    for (size_t size = 0; size < whole; size++) {
        assert_int_equal(truncate(path, (off_t)size), 0);
        char words[100] = "x.safetensors";
        if (size >= whole - 16) (void)snprintf(words, sizeof words, "%zu bytes|%zu|truncated", whole, size);
        expect_refusal(path, BT_ERR_FORMAT, words);
        bt_free(path);
        path = write_shard(folder, "x.safetensors", header, sizeof header - 1, 16);
    }
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
}

#define F32_2(name, begin, end) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" begin "," end "]}"

static void c04_overlaps_holes_tails(void **state)
{
    (void)state;
    try_header("{" F32_2("a", "0", "8") "," F32_2("b", "4", "12") "}", 0, 12, "\"b\"|(a)|overlap");
    try_header("{" F32_2("a", "0", "8") "," F32_2("b", "12", "20") "}", 0, 20, "\"b\"|(a)|hole");
    try_header("{" F32_2("a", "4", "12") "}", 0, 12, "\"a\"|hole");
    try_header("{" F32_2("a", "0", "8") "}", 0, 15, "7 bytes|(a)");
    try_header("{}", 0, 3, "3 bytes");
    try_header("{" F32_2("a", "0", "8") "," F32_2("b", "0", "8") "}", 0, 8, "overlap"); /* the same bytes twice */
    /* An empty tensor inside another's bytes is a lie too. */
    try_header("{" F32_2("a", "0", "8") ",\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}", 0, 8,
               "\"z\"|overlap");
}

static void c05_any_order(void **state)
{
    (void)state;
    static const char header[] = "{" F32_2("b", "8", "16") "," F32_2("a", "0", "8") "}";
    char *folder = unit_make_folder();
    char *path = write_shard(folder, "x.safetensors", header, sizeof header - 1, 16);
    bt_tensors *t = open_fine(path);
    assert_int_equal(bt_tensors_count(t), 2);
    assert_string_equal(bt_tensors_at(t, 0)->name, "a"); /* in order of offset */
    assert_string_equal(bt_tensors_at(t, 1)->name, "b");
    assert_int_equal(bt_tensors_find(t, "b")->data[0], 8);
    assert_null(bt_tensors_find(t, "c"));
    assert_null(bt_tensors_find(t, ""));
    bt_tensors_close(t);
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
}

static void c06_disagreements(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *words;
    } cases[] = {
        {"{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,8]}", "\"w\"|16 bytes|hold 8"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}", "\"w\"|[8, 0]|reversed"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,-1]}", "\"w\"|-1"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1.5,8]}", "\"w\"|1.5"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,1e30]}", "\"w\"|1e30"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[\"0\",8]}", "\"w\"|in quotes"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}", "\"w\"|more than 2"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}", "\"w\"|two numbers"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,18446744073709551616]}", "\"w\"|18446744073709551616"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,null]}", "\"w\"|data_offsets"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":8}", "\"w\"|no array"},
        {"{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,8]}", "\"w\"|shape|-1"},
        {"{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}", "\"w\"|2.0"},
        {"{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}", "\"w\"|shape is no array"},
        {"{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}", "\"w\"|more than 8"},
        {"{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}", "\"w\"|64 bits"},
        {"{\"dtype\":\"F32\",\"shape\":[4611686018427387906],\"data_offsets\":[0,8]}", "\"w\""}, /* x 32 wraps to 64 */
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,18446744073709551615]}", "\"w\"|8 bytes"},
        {"{\"dtype\":\"F3\",\"shape\":[2],\"data_offsets\":[0,18446744073709551615]}", "truncated"},
        {"{\"dtype\":\"F3\",\"shape\":[2],\"data_offsets\":[18446744073709551607,18446744073709551615]}", "truncated"},
        {"{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}", "\"w\"|dtype is no string"},
        {"{\"shape\":[2],\"data_offsets\":[0,8]}", "\"w\"|dtype is missing"},
        {"{\"dtype\":\"F32\",\"data_offsets\":[0,8]}", "\"w\"|shape is missing"},
        {"{\"dtype\":\"F32\",\"shape\":[2]}", "\"w\"|data_offsets is missing"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}", "\"w\"|twice"},
        {"[0,8]", "\"w\"|no object"},
        {"null", "\"w\"|no object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char header[300];
        (void)snprintf(header, sizeof header, "{\"w\":%s}", cases[i].entry);
        try_header(header, 0, 8, cases[i].words);
    }
    try_header("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"extra\":[{}]}}", 0, 8, NULL);
    try_header("[]", 0, 0, "byte 0x5b");
    try_header("{\"w\":", 0, 0, "ends inside");
    try_header("{} x", 0, 0, "more text");
}

static void c07_dtypes(void **state)
{
    (void)state;
    static const char *const names[] = {"BOOL",    "U8",          "I8",   "I16",        "U16",     "I32",
                                        "U32",     "I64",         "U64",  "F64",        "C64",     "F8_E4M3",
                                        "F8_E5M2", "F8_E8M0",     "F4",   "F32",        "F6_E2M3", "F6_E3M2",
                                        "F16",     "F8_E4M3FNUZ", "BF16", "F8_E5M2FNUZ"};
    const size_t n = sizeof names / sizeof names[0];
    bt_text t = {NULL, 0, 0, false};
    size_t at = 0;
    for (size_t i = 0; i < n; i++) { /* eight elements of each: a whole number of bytes for every width */
        size_t bytes = bt_dtype_bits(bt_dtype_parse(names[i], strlen(names[i])));
        assert_true(bytes > 0);
        bt_text_printf(&t, "%c\"t%zu\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[%zu,%zu]}",
                       i == 0 ? '{' : ',', i, names[i], at, at + bytes);
        at += bytes;
    }
    bt_text_printf(&t, ",\"odd\":{\"dtype\":\"F3\",\"shape\":[5],\"data_offsets\":[%zu,%zu]}}", at, at + 11);
    char *folder = unit_make_folder();
    char *path = write_shard(folder, "x.safetensors", t.data, t.size, at + 11);
    bt_tensors *set = open_fine(path);
    assert_int_equal(bt_tensors_count(set), n + 1);
    for (size_t i = 0; i < n; i++) {
        const bt_tensor *x = bt_tensors_at(set, i);
        assert_string_equal(bt_dtype_name((bt_dtype)x->dtype), names[i]);
        assert_string_equal(x->dtype_name, names[i]);
        assert_int_equal(x->n_elements, 8);
    }
    const bt_tensor *odd = bt_tensors_find(set, "odd");
    assert_int_equal(odd->dtype, BT_DTYPE_UNKNOWN);
    assert_string_equal(odd->dtype_name, "F3");
    bt_tensors_close(set);
    bt_free(path);
    bt_text_free(&t);
    unit_remove_folder(folder);
    free(folder);
    /* The size rule for sub-byte types: a whole number of bytes, or no tensor. */
    try_header("{\"w\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 0, 2, "\"w\"|whole number of bytes");
    try_header("{\"w\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 0, 3, NULL);
    try_header("{\"w\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, "\"w\"|8 bytes");
}

static void c08_empty_and_scalar(void **state)
{
    (void)state;
    static const char header[] =
        "{\"e0\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"e1\":{\"dtype\":\"BF16\",\"shape\":[3,0,2],\"data_offsets\":[4,4]},"
        "\"e2\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}," F32_2(
            "a", "4", "12") ","
                            "\"e3\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[12,12]}}";
    char *folder = unit_make_folder();
    char *path = write_shard(folder, "x.safetensors", header, sizeof header - 1, 12);
    bt_tensors *t = open_fine(path);
    const bt_tensor *s = bt_tensors_find(t, "s");
    assert_int_equal(s->n_dims, 0);
    assert_non_null(s->shape);
    assert_int_equal(s->n_elements, 1);
    assert_int_equal(s->size, 4);
    const bt_tensor *e1 = bt_tensors_find(t, "e1");
    assert_int_equal(e1->n_dims, 3);
    assert_int_equal(e1->shape[0], 3);
    assert_int_equal(e1->shape[2], 2);
    assert_int_equal(e1->n_elements, 0);
    assert_non_null(e1->data);
    assert_non_null(bt_tensors_find(t, "e3")->data);
    bt_tensors_close(t);
    bt_free(path);
    static const char only[] = "{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    path = write_shard(folder, "y.safetensors", only, sizeof only - 1, 0);
    bt_tensors_close(open_fine(path)); /* nothing but an empty one */
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
    /* The empty one listed last lies first all the same. */
    try_header("{" F32_2("a", "0", "8") ",\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, 8, NULL);
}

static void c09_odd_headers(void **state)
{
    (void)state;
    try_header("{" F32_2("a", "0", "8") "," F32_2("a", "8", "16") "}", 0, 16, "\"a\"|twice");
    try_header("{\"__metadata__\":{\"format\":\"pt\",\"n\":1},\"a\":[]}", 0, 0, "__metadata__");
    try_header("{\"__metadata__\":{\"x\":null}}", 0, 0, "__metadata__");
    try_header("{\"__metadata__\":[]}", 0, 0, "__metadata__");
    try_header("{\"__metadata__\":{},\"__metadata__\":{}}", 0, 0, "__metadata__|twice");
    try_header("{\"__metadata__\":{\"format\":\"pt\"}," F32_2("a", "0", "8") "}      ", 0, 8, NULL);
    try_header(" {" F32_2("a", "0", "8") "}", 0, 8, "0x20|'{'");
    try_header("\xef\xbb\xbf{}", 0, 0, "0xef|'{'");
    try_header("{}\0\0", 4, 0, "more text");
    try_header("{\"\xff\":1}", 0, 0, "UTF-8");
}

static void c09_names_are_byte_strings(void **state)
{
    (void)state;
    bt_text t = {NULL, 0, 0, false};
    bt_text_puts(&t, "{" F32_2("n\\u0000x", "0", "8") "," F32_2("n", "8", "16") ",\"");
    for (size_t i = 0; i < 65536; i++) bt_text_puts(&t, "L");
    bt_text_puts(&t,
                 "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[16,17]},\"\":{\"dtype\":\"U8\",\"shape\":[1],"
                 "\"data_offsets\":[17,18]}}");
    char *folder = unit_make_folder();
    char *path = write_shard(folder, "x.safetensors", t.data, t.size, 18);
    bt_tensors *set = open_fine(path);
    assert_int_equal(bt_tensors_count(set), 4);
    assert_int_equal(bt_tensors_at(set, 0)->name_size, 3);
    assert_memory_equal(bt_tensors_at(set, 0)->name, "n\0x", 4);
    assert_int_equal(bt_tensors_find(set, "n")->data[0], 8); /* not the one that a C string would see */
    assert_int_equal(bt_tensors_at(set, 2)->name_size, 65536);
    assert_int_equal(strlen(bt_tensors_at(set, 2)->name), 65536);
    assert_int_equal(bt_tensors_find(set, "")->data[0], 17);
    bt_tensors_close(set);
    bt_free(path);
    bt_text_free(&t);
    unit_remove_folder(folder);
    free(folder);
}

static void c10_alignment_is_not_needed(void **state)
{
    (void)state;
    for (size_t pad = 0; pad < 9; pad++) {
        char header[200];
        int n = snprintf(header, sizeof header,
                         "{\"u\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                         "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[3,11]}}%*s",
                         (int)pad, "");
        char *folder = unit_make_folder();
        char *path = write_shard(folder, "x.safetensors", header, (size_t)n, 11);
        bt_tensors *t = open_fine(path);
        const bt_tensor *f = bt_tensors_find(t, "f");
        assert_memory_equal(f->data, "\3\4\5\6\7\10\11\12", 8);
        bt_tensors_close(t);
        bt_free(path);
        unit_remove_folder(folder);
        free(folder);
    }
}

static void c14_values_are_little_endian(void **state)
{
    (void)state;
    static const char header[] = "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                                 "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}";
    static const unsigned char data[] = {0x80, 0x3f, 0x20, 0xc0, 0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0};
    char *folder = unit_make_folder(), *path = bt_path_join(folder, "x.safetensors");
    char bytes[8 + sizeof header - 1 + sizeof data] = {(char)(unsigned char)(sizeof header - 1)};
    memcpy(bytes + 8, header, sizeof header - 1);
    memcpy(bytes + 8 + sizeof header - 1, data, sizeof data);
    unit_write_file(folder, "x.safetensors", bytes, sizeof bytes);
    bt_tensors *t = open_fine(path);
    uint16_t brain[2];
    float f[2];
    memcpy(brain, bt_tensors_find(t, "b")->data, sizeof brain);
    memcpy(f, bt_tensors_find(t, "f")->data, sizeof f);
    assert_true(bt_bf16_to_f32(brain[0]) == 1.0f && bt_bf16_to_f32(brain[1]) == -2.5f);
    assert_true(f[0] == 1.0f && f[1] == -2.5f);
    bt_tensors_close(t);
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

#define INDEX "model.safetensors.index.json"

/* A folder with two shards (tensors a, b and c) and this weight_map. */
static char *make_indexed(const char *weight_map)
{
    char *folder = unit_make_folder();
    static const char one[] = "{" F32_2("a", "0", "8") "," F32_2("b", "8", "16") "}",
                      two[] = "{" F32_2("c", "0", "8") "}";
    bt_free(write_shard(folder, "model-00001-of-00002.safetensors", one, sizeof one - 1, 16));
    bt_free(write_shard(folder, "model-00002-of-00002.safetensors", two, sizeof two - 1, 8));
    char index[1000];
    int n = snprintf(index, sizeof index, "{\"metadata\":{\"total_size\":24},\"weight_map\":%s}", weight_map);
    unit_write_file(folder, INDEX, index, (size_t)n);
    return folder;
}

#define ONE      "\"model-00001-of-00002.safetensors\""
#define TWO      "\"model-00002-of-00002.safetensors\""
#define GOOD_MAP "{\"a\":" ONE ",\"b\":" ONE ",\"c\":" TWO "}"

static void remove_in(const char *folder, const char *name)
{
    char *path = bt_path_join(folder, name);
    assert_int_equal(unlink(path), 0);
    bt_free(path);
}

static void link_in(const char *folder, const char *target, const char *name)
{
    char *path = bt_path_join(folder, name);
    assert_int_equal(symlink(target, path), 0);
    bt_free(path);
}

static void drop(char *folder)
{
    unit_remove_folder(folder);
    free(folder);
}

static void c11_index_and_shards_agree(void **state)
{
    (void)state;
    char *folder = make_indexed(GOOD_MAP);
    bt_tensors *t = open_fine(folder);
    assert_int_equal(bt_tensors_count(t), 3);
    assert_int_equal(bt_tensors_n_shards(t), 2);
    assert_int_equal(bt_tensors_find(t, "c")->shard_i, 1);
    assert_string_equal(strrchr(bt_tensors_shard(t, 1)->path, '/'), "/model-00002-of-00002.safetensors");
    assert_int_equal(bt_tensors_mapped_bytes(t), bt_tensors_shard(t, 0)->map.size + bt_tensors_shard(t, 1)->map.size);
    assert_true(bt_tensors_private_bytes(t) > 3 * sizeof(bt_tensor));
    bt_tensors_close(t);
    bt_tensors_close(NULL);

    remove_in(folder, "model-00002-of-00002.safetensors"); /* absent */
    expect_refusal(folder, BT_ERR_FORMAT, "1 of the 2 files|model-00002-of-00002.safetensors");
    unit_write_file(folder, "model-00002-of-00002.safetensors.incomplete", "x", 1);
    expect_refusal(folder, BT_ERR_FORMAT, "model-00002-of-00002.safetensors (only an .incomplete");
    link_in(folder, "../blobs/none", "model-00002-of-00002.safetensors"); /* dangling */
    expect_refusal(folder, BT_ERR_FORMAT, "model-00002-of-00002.safetensors (a link that leads nowhere)");
    remove_in(folder, "model-00001-of-00002.safetensors"); /* all in one message */
    expect_refusal(folder, BT_ERR_FORMAT,
                   "2 of the 2|model-00001-of-00002.safetensors|model-00002-of-00002.safetensors");
    drop(folder);

    static const struct {
        const char *map, *words;
    } cases[] = {
        {"{\"a\":" ONE ",\"b\":" ONE ",\"c\":" TWO ",\"d\":" TWO ",\"e\":" ONE "}", INDEX "|none of the files|d (|e ("},
        {"{\"a\":" ONE ",\"b\":" TWO ",\"c\":" TWO "}", INDEX "|another file|b (in model-00001"},
        {"{\"a\":" ONE ",\"c\":" TWO "}", INDEX "|not in the index|b (model-00001"},
        {"{\"a\":" ONE ",\"b\":" ONE ",\"a\":" ONE ",\"c\":" TWO "}", "\"a\"|twice"},
        {"{\"a\":\"../x.safetensors\"}", "\"a\"|../x.safetensors|no plain file name"},
        {"{\"a\":\"/etc/passwd\"}", "no plain file name"},
        {"{\"a\":\"..\"}", "no plain file name"},
        {"{\"a\":\"\"}", "no plain file name"},
        {"{\"a\":\"x\\u0000y\"}", "no plain file name"},
        {"{\"a\":1}", "\"a\"|no string"},
        {"{}", "lists no tensor"},
        {"[]", "weight_map is no object"},
        {"{},\"weight_map\":{}", "weight_map appears twice"},
        {"{\"a\":\"config.json\"}", "config.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        folder = make_indexed(cases[i].map);
        expect_refusal(folder, BT_ERR_FORMAT, cases[i].words);
        drop(folder);
    }
}

static void c11_broken_indexes(void **state)
{
    (void)state;
    char *folder = make_indexed("{}");
    static const char *const texts[] = {
        "", "{", "[]", "{}", "{\"weight_map\":{}} x", "version https://git-lfs.github.com/"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        unit_write_file(folder, INDEX, texts[i], strlen(texts[i]));
        expect_refusal(folder, BT_ERR_FORMAT, INDEX);
    }
    drop(folder);
}

static void c11_one_name_in_two_shards(void **state)
{
    (void)state;
    char *folder = make_indexed(GOOD_MAP);
    static const char two[] = "{" F32_2("c", "0", "8") "," F32_2("a", "8", "16") "}";
    bt_free(write_shard(folder, "model-00002-of-00002.safetensors", two, sizeof two - 1, 16));
    expect_refusal(folder, BT_ERR_FORMAT, "\"a\"|two files|model-00001|model-00002");
    drop(folder);
}

static void c12_the_index_decides(void **state)
{
    (void)state;
    char *folder = make_indexed(GOOD_MAP);
    static const char old[] = "{" F32_2("a", "0", "8") "}";
    bt_free(write_shard(folder, "model.safetensors", old, sizeof old - 1, 8)); /* an old one beside the shards */
    bt_tensors *t = open_fine(folder);
    assert_int_equal(bt_tensors_count(t), 3);
    bt_tensors_close(t);
    char *shard = bt_path_join(folder, "model-00002-of-00002.safetensors"); /* one file by name: just that */
    t = open_fine(shard);
    assert_int_equal(bt_tensors_count(t), 1);
    bt_tensors_close(t);
    bt_free(shard);
    remove_in(folder, INDEX); /* without: model.safetensors, others ignored */
    t = open_fine(folder);
    assert_int_equal(bt_tensors_count(t), 1);
    bt_tensors_close(t);
    remove_in(folder, "model.safetensors"); /* neither: several are several */
    expect_refusal(folder, BT_ERR_FORMAT, "several|model-00001-of-00002.safetensors|model-00002-of-00002.safetensors");
    remove_in(folder, "model-00002-of-00002.safetensors");
    unit_write_file(folder, ".hidden.safetensors", "x", 1);
    t = open_fine(folder); /* the only one */
    assert_int_equal(bt_tensors_count(t), 2);
    bt_tensors_close(t);
    remove_in(folder, "model-00001-of-00002.safetensors");
    expect_refusal(folder, BT_ERR_FORMAT, "no *.safetensors");
    unit_write_file(folder, "pytorch_model.bin", "x", 1);
    expect_refusal(folder, BT_ERR_FORMAT, "no *.safetensors|converted");
    drop(folder);
}

static void c12_other_names(void **state)
{
    (void)state;
    static const char one[] = "{" F32_2("a", "0", "8") "}";
    static const char map[] = "{\"weight_map\":{\"a\":\"model.safetensors-00001-of-00002.safetensors\"}}";
    char *folder = unit_make_folder();
    bt_free(write_shard(folder, "model.safetensors-00001-of-00002.safetensors", one, sizeof one - 1, 8));
    unit_write_file(folder, "weights.safetensors.index.json", map, sizeof map - 1);
    bt_tensors_close(open_fine(folder)); /* the only index, whatever its name */
    unit_write_file(folder, "other.safetensors.index.json", map, sizeof map - 1);
    expect_refusal(folder, BT_ERR_FORMAT,
                   "several indexes|other.safetensors.index.json|weights.safetensors.index.json");
    unit_write_file(folder, INDEX, map, sizeof map - 1);
    bt_tensors_close(open_fine(folder));
    drop(folder);

    folder = unit_make_folder(); /* an index in a sub-folder concerns that one only */
    bt_free(write_shard(folder, "model.safetensors", one, sizeof one - 1, 8));
    char *below = bt_path_join(folder, "original");
    assert_int_equal(mkdir(below, 0700), 0);
    unit_write_file(below, INDEX, "broken", 6);
    bt_tensors_close(open_fine(folder));
    bt_free(below);
    drop(folder);
    expect_refusal("no/such/folder", BT_ERR_IO, "no/such/folder");
}

/* ---- many, writing, and no memory -------------------------------------------------------------------------------- */

/* Half a million names is what Kimi K3 has. Nothing may grow with their square: that would take minutes. */
static void many_tensors(void **state)
{
    (void)state;
    enum { N_SHARDS = 20, N_EACH = 5000 };
    char *folder = unit_make_folder();
    bt_text index = {NULL, 0, 0, false};
    for (size_t s = 0; s < N_SHARDS; s++) {
        bt_text t = {NULL, 0, 0, false};
        for (size_t i = 0; i < N_EACH; i++) {
            size_t k = (i * 7919) % N_EACH; /* the header in another order than the data */
            bt_text_printf(
                &t,
                "%c\"model.layers.%zu.experts.%zu.w\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[%zu,%zu]}",
                i == 0 ? '{' : ',', s, k, 2 * k, 2 * k + 2);
            bt_text_printf(&index, "%s\"model.layers.%zu.experts.%zu.w\":\"%zu.safetensors\"",
                           index.size == 0 ? "{\"weight_map\":{" : ",", s, k, s);
        }
        bt_text_puts(&t, "}");
        char name[64];
        (void)snprintf(name, sizeof name, "%zu.safetensors", s);
        bt_free(write_shard(folder, name, t.data, t.size, 2 * N_EACH));
        bt_text_free(&t);
    }
    bt_text_puts(&index, "}}");
    unit_write_file(folder, INDEX, index.data, index.size);
    bt_text_free(&index);
    bt_tensors *t = open_fine(folder);
    assert_int_equal(bt_tensors_count(t), N_SHARDS * N_EACH);
    for (size_t s = 0; s < N_SHARDS; s++) {
        for (size_t i = 0; i < N_EACH; i += 7) {
            char name[64];
            (void)snprintf(name, sizeof name, "model.layers.%zu.experts.%zu.w", s, i);
            const bt_tensor *x = bt_tensors_find(t, name);
            assert_non_null(x);
            assert_int_equal(x->data[0], (2 * i) & 255);
            assert_true(x->shape == bt_tensors_at(t, 0)->shape); /* shared */
        }
    }
    assert_true(bt_tensors_private_bytes(t) < (size_t)N_SHARDS * N_EACH * 140);
    bt_tensors_close(t);
    drop(folder);
}

static void written_files_are_read_back(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), *path = bt_path_join(folder, "out.safetensors");
    const bt_tensor_decl decls[] = {{"logits", BT_F32, 2, {2, 3}},
                                    {"ids \"0\"\n", BT_I64, 1, {1}},
                                    {"none", BT_U8, 1, {0}},
                                    {"scalar", BT_BF16, 0, {0}}};
    static const float logits[] = {1, 2, 3, 4, 5, 6};
    const int64_t id = 7;
    const uint16_t scalar = 0x3f80;
    bt_error e = {.message = ""};
    bt_safetensors_writer *w;
    assert_int_equal(bt_safetensors_create(path, decls, 4, &w, &e), BT_OK);
    assert_int_equal(bt_safetensors_write(w, logits, 4, &e), BT_OK); /* in any pieces */
    assert_int_equal(bt_safetensors_write(w, logits + 1, sizeof logits - 4, &e), BT_OK);
    assert_int_equal(bt_safetensors_write(w, &id, sizeof id, &e), BT_OK);
    assert_int_equal(bt_safetensors_write(w, &scalar, sizeof scalar, &e), BT_OK);
    assert_int_equal(bt_safetensors_write(w, &scalar, 1, &e), BT_ERR_USAGE); /* more than declared */
    assert_false(bt_path_exists(path));
    assert_int_equal(bt_safetensors_finish(w, &e), BT_OK);
    bt_tensors *t = open_fine(path);
    assert_int_equal(bt_tensors_count(t), 4);
    const bt_tensor *x = bt_tensors_find(t, "logits");
    assert_memory_equal(x->data, logits, sizeof logits);
    assert_int_equal((uintptr_t)x->data % 8, 0); /* padded */
    assert_int_equal(x->shape[1], 3);
    assert_memory_equal(bt_tensors_find(t, "ids \"0\"\n")->data, &id, sizeof id);
    assert_int_equal(bt_tensors_find(t, "scalar")->n_elements, 1);
    bt_tensors_close(t);

    assert_int_equal(bt_safetensors_create(path, decls, 4, &w, &e), BT_OK); /* too few bytes: the old file stays */
    assert_int_equal(bt_safetensors_write(w, &id, 8, &e), BT_OK);
    assert_int_equal(bt_safetensors_finish(w, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "8 bytes"));
    bt_tensors_close(open_fine(path));
    assert_int_equal(bt_safetensors_create(path, decls, 4, &w, &e), BT_OK);
    bt_safetensors_abandon(w);
    bt_safetensors_abandon(NULL);
    bt_tensors_close(open_fine(path));

    const bt_tensor_decl twice[] = {{"a", BT_U8, 0, {0}}, {"a", BT_U8, 0, {0}}}, meta = {"__metadata__", BT_U8, 0, {0}};
    const bt_tensor_decl half = {"h", BT_F4, 1, {3}}, vast = {"v", BT_F32, 2, {UINT64_MAX, 2}};
    assert_int_equal(bt_safetensors_create(path, twice, 2, &w, &e), BT_ERR_USAGE);
    assert_int_equal(bt_safetensors_create(path, &meta, 1, &w, &e), BT_ERR_USAGE);
    assert_int_equal(bt_safetensors_create(path, &half, 1, &w, &e), BT_ERR_USAGE);
    assert_int_equal(bt_safetensors_create(path, &vast, 1, &w, &e), BT_ERR_USAGE);
    assert_int_equal(bt_safetensors_create(path, NULL, 0, &w, &e), BT_OK); /* no tensors at all */
    assert_int_equal(bt_safetensors_finish(w, &e), BT_OK);
    bt_tensors_close(open_fine(path));
    bt_free(path);
    drop(folder);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
#ifdef BT_TEST_BUILD
    char *folder = make_indexed("{\"a\":" ONE ",\"b\":" ONE ",\"\\u0063\":" TWO "}");
    size_t n_failed = 0;
    bt_status st = BT_ERR_MEMORY;
    for (long n = 0; st != BT_OK; n++) {
        assert_true(n < 1000);
        bt_tensors *t = NULL;
        bt_error e = {.message = ""};
        bt_alloc_fail_after(n);
        st = bt_tensors_open(folder, &t, &e);
        bt_alloc_fail_after(-1);
        if (st != BT_OK && st != BT_ERR_MEMORY) fail_msg("allocation %ld: %s", n, e.message);
        assert_int_equal(st == BT_OK, t != NULL);
        if (st != BT_OK) assert_true(e.message[0] != '\0');
        n_failed += st != BT_OK;
        bt_tensors_close(t);
    }
    assert_true(n_failed > 20);

    char *path = bt_path_join(folder, "out.safetensors");
    const bt_tensor_decl decl = {"x", BT_U8, 1, {4}};
    st = BT_ERR_MEMORY;
    for (long n = 0; st != BT_OK; n++) {
        assert_true(n < 100);
        bt_safetensors_writer *w = NULL;
        bt_alloc_fail_after(n);
        st = bt_safetensors_create(path, &decl, 1, &w, NULL);
        if (st == BT_OK) st = bt_safetensors_write(w, "abcd", 4, NULL);
        if (st == BT_OK) st = bt_safetensors_finish(w, NULL);
        bt_alloc_fail_after(-1);
        assert_true(st == BT_OK || st == BT_ERR_MEMORY);
    }
    bt_free(path);
    drop(folder);
#else
    skip();
#endif
}

static void fixtures_open(void **state)
{
    (void)state;
    const char *fixtures = unit_fixtures();
    if (fixtures == NULL) {
        print_message("NOT RUN: the fixtures are not there\n");
        skip();
    }
    static const char *const names[] = {"k2-dense", "k2-fp8", "k2-moe", "k2-mova", "k2-yarn"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[4400];
        (void)snprintf(path, sizeof path, "%s/models/%s", fixtures, names[i]);
        bt_tensors *t = open_fine(path);
        assert_non_null(bt_tensors_find(t, "model.embed_tokens.weight"));
        bt_tensors_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c01_header_lengths),
        cmocka_unit_test(c02_placeholders),
        cmocka_unit_test(c03_truncation),
        cmocka_unit_test(c04_overlaps_holes_tails),
        cmocka_unit_test(c05_any_order),
        cmocka_unit_test(c06_disagreements),
        cmocka_unit_test(c07_dtypes),
        cmocka_unit_test(c08_empty_and_scalar),
        cmocka_unit_test(c09_odd_headers),
        cmocka_unit_test(c09_names_are_byte_strings),
        cmocka_unit_test(c10_alignment_is_not_needed),
        cmocka_unit_test(c14_values_are_little_endian),
        cmocka_unit_test(c11_index_and_shards_agree),
        cmocka_unit_test(c11_broken_indexes),
        cmocka_unit_test(c11_one_name_in_two_shards),
        cmocka_unit_test(c12_the_index_decides),
        cmocka_unit_test(c12_other_names),
        cmocka_unit_test(many_tensors),
        cmocka_unit_test(written_files_are_read_back),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(fixtures_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
