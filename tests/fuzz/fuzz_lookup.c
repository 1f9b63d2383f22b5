/*
 * The walk through a Hugging Face cache. The input is lines: the model's name as a person types it, the value of one
 * variable, the name and the content of a ref, and names of snapshots; from them a cache is made in a temporary
 * folder. What is found must be there; what is not found must be told.
 */
#include "fuzz.h"

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"
#include "format/lookup.h"

#define N_LINES_MAX 12
#define LINE_BYTES  300

static char folder[64]; /* made at the first input, removed at exit */

static void require(bool truth)
{
    if (!truth) abort();
}

static int remove_entry(const char *path, const struct stat *info, int flag, struct FTW *where)
{
    (void)info;
    (void)flag;
    (void)where;
    (void)remove(path);
    return 0;
}

static void empty_folder(void)
{
    (void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static bool is_name(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= 200 && strchr(s, '/') == NULL && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

static void make_folder(const char *a, const char *b)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s%s", folder, a, b);
    (void)mkdir(path, 0777); /* may be there */
}

static void make_file(const char *a, const char *name, const char *content, size_t size)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s%s", folder, a, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL) return; /* a folder has the name */
    require(fwrite(content, 1, size, f) == size && fclose(f) == 0);
}

/* The cache that the lines describe; the first of a snapshot's bytes says what kind of thing it is. */
static void make_cache(char lines[][LINE_BYTES], size_t n)
{
    require(mkdir(folder, 0777) == 0);
    for (int org = 0; org < 2; org++) {
        const char *repo = org ? "models--a--b/" : "models--b/";
        make_folder(repo, "");
        make_folder(repo, "refs");
        make_folder(repo, "snapshots");
        char refs[64], snapshots[64];
        (void)snprintf(refs, sizeof refs, "%srefs/", repo);
        (void)snprintf(snapshots, sizeof snapshots, "%ssnapshots/", repo);
        if (n > 3 && is_name(lines[2])) make_file(refs, lines[2], lines[3], strlen(lines[3]));
        for (size_t i = 4; i < n; i++) {
            const char *name = lines[i] + (lines[i][0] == '-' || lines[i][0] == '>');
            char path[1024];
            (void)snprintf(path, sizeof path, "%s/%s%s", folder, snapshots, name);
            if (!is_name(name)) continue;
            if (lines[i][0] == '-')
                make_file(snapshots, name, "", 0);
            else if (lines[i][0] == '>')
                (void)!symlink("nowhere", path);
            else
                make_folder(snapshots, name);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char lines[N_LINES_MAX][LINE_BYTES];
    size_t n = 0;
    for (size_t at = 0; at < size && n < N_LINES_MAX; n++) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t length = end == NULL ? size - at : (size_t)(end - data) - at;
        size_t kept = length < LINE_BYTES - 1 ? length : LINE_BYTES - 1;
        memcpy(lines[n], data + at, kept);
        lines[n][kept] = '\0';
        at += length + 1;
    }
    if (n == 0) return 0;
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "%s", fuzz_folder());
        require(mkdtemp(folder) != NULL && atexit(empty_folder) == 0);
    }
    empty_folder();
    make_cache(lines, n);
    const bt_cache_env env = {.hf_hub_cache = folder, .hf_home = n > 1 ? lines[1] : NULL, .home = "/nowhere"};
    char *path = NULL;
    bt_error e = {.status = BT_OK};
    bt_status st = bt_locate(lines[0], &env, &path, &e);
    require((st == BT_OK) == (path != NULL));
    if (st == BT_OK) {
        require(access(path, F_OK) == 0);
    } else {
        size_t told = strlen(e.message);
        require(e.status == st && told > 0 && bt_utf8_valid_prefix(e.message, told) == told);
    }
    bt_free(path);
    return 0;
}
