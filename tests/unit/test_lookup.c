/* format/lookup: case C13, the Hugging Face cache in all the shapes that people have. */
#include "unit.h"

#include <sys/stat.h>

#include "base/arena.h"
#include "base/error.h"
#include "format/lookup.h"

#define COMMIT_1 "1111111111111111111111111111111111111111"
#define COMMIT_2 "1222222222222222222222222222222222222222"

/* Makes root/path with all its folders; a file with this text, or (text NULL) a folder. */
static void put(const char *root, const char *path, const char *text)
{
    char full[4400];
    (void)snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(full, 0755);
        *p = '/';
    }
    if (text == NULL) {
        (void)mkdir(full, 0755);
    } else {
        unit_write_file(root, path, text, strlen(text));
    }
}

static void expect_found(const char *name, const bt_cache_env *env, const char *root, const char *below)
{
    char *path = NULL, expected[4400];
    bt_error e = {.message = ""};
    if (bt_locate(name, env, &path, &e) != BT_OK) fail_msg("%s: %s", name, e.message);
    (void)snprintf(expected, sizeof expected, "%s/%s", root, below);
    assert_string_equal(path, expected);
    bt_free(path);
}

static void expect_lost(const char *name, const bt_cache_env *env, bt_status status, const char *words)
{
    char *path = NULL, copy[512], *rest = copy;
    bt_error e = {.message = ""};
    bt_status st = bt_locate(name, env, &path, &e);
    if (st == BT_OK) fail_msg("%s found at %s", name, path);
    if (st != status) fail_msg("%s: status %d: %s", name, (int)st, e.message);
    (void)snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(rest, "|", &rest); word != NULL; word = strtok_r(NULL, "|", &rest)) {
        if (strstr(e.message, word) == NULL) fail_msg("\"%s\" is missing in: %s", word, e.message);
    }
}

static void an_existing_path_wins(void **state)
{
    (void)state;
    char *root = unit_make_folder(), path[4400];
    put(root, "some/config.json", "{}");
    (void)snprintf(path, sizeof path, "%s/some", root);
    expect_found(path, NULL, root, "some");
    (void)snprintf(path, sizeof path, "%s/some/config.json", root);
    expect_found(path, NULL, root, "some/config.json");
    put(root, "with@sign", NULL);
    (void)snprintf(path, sizeof path, "%s/with@sign", root);
    expect_found(path, NULL, root, "with@sign");
    expect_lost("", NULL, BT_ERR_USAGE, "empty");
    unit_remove_folder(root);
    free(root);
}

/* However the folder lists them, people read them in one order. */
static void snapshots_in_order(void **state)
{
    (void)state;
    char *root = unit_make_folder(), expected[512] = "";
    bt_cache_env env = {.hf_hub_cache = root};
    static const int order[] = {5, 2, 8, 0, 7, 3, 1, 6, 4};
    for (size_t i = 0; i < 9; i++) {
        char path[100];
        (void)snprintf(path, sizeof path, "models--org--name/snapshots/%d%d%d", order[i], order[i], order[i]);
        put(root, path, NULL);
    }
    for (int i = 0; i < 9; i++) {
        size_t n = strlen(expected);
        (void)snprintf(expected + n, sizeof expected - n, "%s%d%d%d", i > 0 ? ", " : "one of: ", i, i, i);
    }
    expect_lost("org/name", &env, BT_ERR_USAGE, expected);
    unit_remove_folder(root);
    free(root);
}

static void refs_and_snapshots(void **state)
{
    (void)state;
    char *root = unit_make_folder();
    bt_cache_env env = {.hf_hub_cache = root};
    expect_lost("org/name", &env, BT_ERR_IO, "org/name|Hugging Face cache|download");

    put(root, "models--org--name/refs", NULL); /* begun, nothing there */
    expect_lost("org/name", &env, BT_ERR_IO, "no finished snapshot");
    put(root, "models--org--name/snapshots/" COMMIT_1 "/config.json", "{}");
    expect_found("org/name", &env, root, "models--org--name/snapshots/" COMMIT_1); /* the only one */
    put(root, "models--org--name/snapshots/.locks", NULL);
    put(root, "models--org--name/snapshots/file", "x");
    expect_found("org/name", &env, root, "models--org--name/snapshots/" COMMIT_1);
    put(root, "models--org--name/snapshots/" COMMIT_2, NULL);
    expect_lost("org/name", &env, BT_ERR_USAGE, "several snapshots|add @|" COMMIT_1 "|" COMMIT_2);
    put(root, "models--org--name/refs/main", COMMIT_2 "\n");
    expect_found("org/name", &env, root, "models--org--name/snapshots/" COMMIT_2); /* refs/main wins */

    expect_found("org/name@main", &env, root, "models--org--name/snapshots/" COMMIT_2);
    expect_found("org/name@" COMMIT_1, &env, root, "models--org--name/snapshots/" COMMIT_1);
    expect_found("org/name@11", &env, root, "models--org--name/snapshots/" COMMIT_1);
    expect_lost("org/name@1", &env, BT_ERR_USAGE, "several snapshots that begin so");
    expect_lost("org/name@3", &env, BT_ERR_IO, "other revisions: |" COMMIT_1 "|" COMMIT_2);
    put(root, "models--org--name/refs/refs/pr/1", COMMIT_1);
    expect_found("org/name@refs/pr/1", &env, root, "models--org--name/snapshots/" COMMIT_1);
    put(root, "models--org--name/refs/v1.0", "abc");
    expect_lost("org/name@v1.0", &env, BT_ERR_IO, "refs/v1.0|abc|download it again|" COMMIT_1);
    put(root, "models--org--name/refs/evil", "../../../../etc");
    expect_lost("org/name@evil", &env, BT_ERR_IO, "other revisions"); /* not a commit: as if it were not there */
    put(root, "models--org--name/refs/two", COMMIT_1 "/x");
    expect_lost("org/name@two", &env, BT_ERR_IO, "other revisions");
    put(root, "models--org--name/snapshots/11", NULL); /* an exact name wins over longer ones */
    expect_found("org/name@11", &env, root, "models--org--name/snapshots/11");
    unit_remove_folder(root);
    free(root);
}

static void names_of_all_shapes(void **state)
{
    (void)state;
    char *root = unit_make_folder();
    bt_cache_env env = {.hf_hub_cache = root};
    put(root, "models--gpt2/snapshots/" COMMIT_1, NULL);
    put(root, "models--org--a--b.c/snapshots/" COMMIT_1, NULL);
    expect_found("gpt2", &env, root, "models--gpt2/snapshots/" COMMIT_1);
    expect_found("org/a--b.c", &env, root, "models--org--a--b.c/snapshots/" COMMIT_1);
    static const char *const bad[] = {"a/b/c", "../x", "x/..",  "/no/such/path", "a//b", "/",
                                      "./x",   "org/", "/name", "a\nb",          "@x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (strcmp(bad[i], "/") != 0) expect_lost(bad[i], &env, BT_ERR_IO, "no such file or folder");
    }
    static const char *const bad_revisions[] = {"gpt2@", "gpt2@../x", "gpt2@a//b", "gpt2@/etc", "gpt2@a/../b"};
    for (size_t i = 0; i < sizeof bad_revisions / sizeof bad_revisions[0]; i++) {
        expect_lost(bad_revisions[i], &env, BT_ERR_USAGE, "what follows '@'");
    }
    char vast[5000];
    memset(vast, 'x', sizeof vast - 1);
    vast[sizeof vast - 1] = '\0';
    expect_lost(vast, &env, BT_ERR_IO, "no such file or folder");
    unit_remove_folder(root);
    free(root);
}

static void variables_in_their_order(void **state)
{
    (void)state;
    char *root = unit_make_folder(), at[5][4400];
    static const char *const caches[] = {"1", "2", "3/hub", "4/huggingface/hub", "5/.cache/huggingface/hub"};
    for (size_t i = 0; i < 5; i++) {
        char path[4400];
        (void)snprintf(path, sizeof path, "%s/models--m/snapshots/" COMMIT_1, caches[i]);
        put(root, path, NULL);
        (void)snprintf(at[i], sizeof at[i], "%s/%zu", root, i + 1);
    }
    const char *values[5] = {at[0], at[1], at[2], at[3], at[4]};
    for (size_t first = 0; first < 5; first++) { /* those before it not set, or set to nothing, or without the model */
        for (int how = 0; how < 3; how++) {
            const char *v[5];
            for (size_t i = 0; i < 5; i++) v[i] = i >= first ? values[i] : how == 0 ? NULL : how == 1 ? "" : "/nowhere";
            bt_cache_env env = {v[0], v[1], v[2], v[3], v[4]};
            char expected[4400];
            (void)snprintf(expected, sizeof expected, "%s/models--m/snapshots/" COMMIT_1, caches[first]);
            expect_found("m", &env, root, expected);
        }
    }
    bt_cache_env all = {"/1", "/2/", "/3", "/4", "/5"};
    char *folders = bt_cache_folders(&all);
    assert_string_equal(folders, "/1, /2, /3/hub, /4/huggingface/hub, /5/.cache/huggingface/hub");
    bt_free(folders);
    expect_lost("org/none", &all, BT_ERR_IO,
                "looked in: /1, /2, /3/hub, /4/huggingface/hub, /5/.cache/huggingface/hub");
    bt_cache_env tilde = {.hf_home = "~/models", .home = "/home/you"};
    folders = bt_cache_folders(&tilde);
    assert_string_equal(folders, "/home/you/models/hub, /home/you/.cache/huggingface/hub");
    bt_free(folders);
    bt_cache_env blank = {"", "", "", "", "/home/you"}; /* set to nothing is not set */
    folders = bt_cache_folders(&blank);
    assert_string_equal(folders, "/home/you/.cache/huggingface/hub");
    bt_free(folders);
    bt_cache_env nothing = {NULL, NULL, NULL, NULL, NULL};
    folders = bt_cache_folders(&nothing);
    assert_string_equal(folders, "");
    bt_free(folders);
    expect_lost("org/none", &nothing, BT_ERR_IO, "no cache folder is known");
    unit_remove_folder(root);
    free(root);
}

/* A file system without links has plain copies; a read-only cache must do. Nothing is ever written. */
static void the_cache_is_only_read(void **state)
{
    (void)state;
    char *root = unit_make_folder(), command[4500];
    bt_cache_env env = {.hf_hub_cache = root};
    put(root, "models--m/refs/main", COMMIT_1);
    put(root, "models--m/snapshots/" COMMIT_1 "/model.safetensors", "x");
    (void)snprintf(command, sizeof command, "chmod -R a-w '%s'; find '%s' | sort > '%s.before'", root, root, root);
    assert_int_equal(system(command), 0);
    expect_found("m", &env, root, "models--m/snapshots/" COMMIT_1);
    expect_lost("n", &env, BT_ERR_IO, "n");
    (void)snprintf(command, sizeof command,
                   "find '%s' | sort | cmp -s - '%s.before' && rm '%s.before' && chmod -R u+w '%s'", root, root, root,
                   root);
    assert_int_equal(system(command), 0);
    unit_remove_folder(root);
    free(root);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
#ifdef BT_TEST_BUILD
    char *root = unit_make_folder();
    bt_cache_env env = {.hf_hub_cache = "/nowhere", .home = root};
    put(root, ".cache/huggingface/hub/models--m/refs/main", COMMIT_1);
    put(root, ".cache/huggingface/hub/models--m/snapshots/" COMMIT_1, NULL);
    bt_status st = BT_ERR_MEMORY;
    for (long n = 0; st != BT_OK; n++) {
        assert_true(n < 100);
        char *path = NULL;
        bt_error e = {.message = ""};
        bt_alloc_fail_after(n);
        st = bt_locate("m", &env, &path, &e);
        bt_alloc_fail_after(-1);
        if (st != BT_OK && st != BT_ERR_MEMORY) fail_msg("allocation %ld: %s", n, e.message);
        bt_free(path);
    }
    unit_remove_folder(root);
    free(root);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_existing_path_wins),
        cmocka_unit_test(snapshots_in_order),
        cmocka_unit_test(refs_and_snapshots),
        cmocka_unit_test(names_of_all_shapes),
        cmocka_unit_test(variables_in_their_order),
        cmocka_unit_test(the_cache_is_only_read),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
