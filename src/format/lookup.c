/*
 * Finding a checkpoint. An existing path wins, else the argument is NAME or ORG/NAME in the Hugging Face cache:
 *
 *   CACHE/models--ORG--NAME/refs/REF             holds a commit
 *   CACHE/models--ORG--NAME/snapshots/COMMIT/    the files, mostly links
 *
 * Every cache folder that a variable names is looked into, in order. Where two snapshots could be meant, the person is
 * asked, not the newest taken. The cache is only read.
 */
#include "format/lookup.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/json.h"

#define NAME_BYTES_MAX  1024
#define REF_BYTES_MAX   4096
#define N_SNAPSHOTS_MAX 10000
#define N_CACHES        5

/* A model argument, taken apart; both parts were checked. */
typedef struct wanted {
    char repo[NAME_BYTES_MAX]; /* "models--ORG--NAME" */
    const char *name;          /* as the person wrote it, without the revision: [name_bytes] */
    size_t name_bytes;
    const char *revision; /* NULL: none given */
} wanted;

/* The snapshots of one repository that fit a revision's beginning. */
typedef struct snapshot_name {
    char text[NAME_MAX + 1];
} snapshot_name;

typedef struct snapshots {
    snapshot_name *names; /* [n] sorted */
    size_t n, capacity;
    char first[REF_BYTES_MAX]; /* name of one that fits */
    size_t n_fitting;
    bool has_exact;
    bt_fault_list all; /* for messages */
} snapshots;

/* ---- the folders ----------------------------------------------------------------------------------------------------
 */

/* One variable's cache folder; "~/" is expanded as Hugging Face does. NULL with *absent where it is not set. */
static char *cache_folder(const char *value, const char *below, const char *home, bool *absent)
{
    *absent = value == NULL || value[0] == '\0';
    if (*absent) return NULL;
    bt_text t = {NULL, 0, 0, false};
    if (value[0] == '~' && value[1] == '/' && home != NULL) {
        bt_text_puts(&t, home);
        value++;
    }
    bt_text_puts(&t, value);
    while (t.size > 1 && t.data[t.size - 1] == '/') t.data[--t.size] = '\0';
    bt_text_puts(&t, below);
    if (!bt_text_ok(&t)) bt_text_free(&t);
    return t.data;
}

/* The folders in order to list [*n]; the caller frees each. False: no memory. */
static bool cache_folders(const bt_cache_env *env, char *list[N_CACHES], size_t *n)
{
    const struct {
        const char *value, *below;
    } places[N_CACHES] = {
        {env->hf_hub_cache, ""},
        {env->huggingface_hub_cache, ""},
        {env->hf_home, "/hub"},
        {env->xdg_cache_home, "/huggingface/hub"},
        {env->home, "/.cache/huggingface/hub"},
    };
    *n = 0;
    for (size_t i = 0; i < N_CACHES; i++) {
        bool absent;
        char *folder = cache_folder(places[i].value, places[i].below, env->home, &absent);
        if (absent) continue;
        if (folder == NULL) return false;
        list[(*n)++] = folder;
    }
    return true;
}

static void free_all(char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) bt_free(list[i]);
}

char *bt_cache_folders(const bt_cache_env *env)
{
    char *list[N_CACHES];
    size_t n;
    bt_text t = {NULL, 0, 0, false};
    bool complete = cache_folders(env, list, &n);
    bt_text_puts(&t, "");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) bt_text_puts(&t, ", ");
        bt_text_puts(&t, list[i]);
    }
    free_all(list, n);
    if (!complete || !bt_text_ok(&t)) bt_text_free(&t);
    return t.data;
}

/* ---- the argument ---------------------------------------------------------------------------------------------------
 */

/* Parts between slashes: none empty, none "." or "..", no control characters; at most n_max of them. */
static bool parts_are_plain(const char *s, size_t n, size_t n_max)
{
    size_t n_parts = 0, start = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && s[i] != '/') {
            if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f || s[i] == '\\') return false;
            continue;
        }
        size_t length = i - start;
        if (length == 0 || (length == 1 && s[start] == '.')) return false;
        if (length == 2 && s[start] == '.' && s[start + 1] == '.') return false;
        n_parts++;
        start = i + 1;
    }
    return n_parts <= n_max;
}

static bt_status take_apart(const char *argument, wanted *w, bt_error *e)
{
    const char *at = strchr(argument, '@');
    w->name = argument;
    w->name_bytes = at == NULL ? strlen(argument) : (size_t)(at - argument);
    w->revision = at == NULL ? NULL : at + 1;
    if (w->name_bytes > NAME_BYTES_MAX / 2 || !parts_are_plain(argument, w->name_bytes, 2)) {
        return bt_fail(e, BT_ERR_IO,
                       "%.300s: there is no such file or folder, and as ORG/NAME of a cache it makes no sense",
                       argument);
    }
    if (w->revision != NULL && (strlen(w->revision) > 512 || !parts_are_plain(w->revision, strlen(w->revision), 8))) {
        return bt_fail(e, BT_ERR_USAGE, "%.300s: what follows '@' must be a branch, a tag or a commit", argument);
    }
    size_t used = (size_t)snprintf(w->repo, sizeof w->repo, "models--");
    for (size_t i = 0; i < w->name_bytes; i++) {
        bool slash = argument[i] == '/';
        if (slash) w->repo[used++] = '-';
        w->repo[used++] = slash ? '-' : argument[i];
    }
    w->repo[used] = '\0';
    return BT_OK;
}

/* ---- one repository -------------------------------------------------------------------------------------------------
 */

/* Joins up to three parts; NULL: no memory. */
static char *join3(const char *a, const char *b, const char *c)
{
    char *ab = bt_path_join(a, b);
    char *abc = ab == NULL ? NULL : bt_path_join(ab, c);
    bt_free(ab);
    return abc;
}

/* The commit that refs/REF holds, as a plain name; "" if there is no such ref or it holds something else. */
static bt_status read_ref(const char *repo, const char *ref, char commit[REF_BYTES_MAX], bt_error *e)
{
    commit[0] = '\0';
    char *path = join3(repo, "refs", ref), *text = NULL;
    if (path == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory", repo);
    size_t size = 0;
    bt_path_kind kind = BT_PATH_ABSENT;
    bt_status st = bt_path_look(path, &kind, e);
    if (st == BT_OK && kind == BT_PATH_FILE) st = bt_read_file(path, REF_BYTES_MAX - 1, &text, &size, e);
    if (st == BT_OK && text != NULL) {
        while (size > 0 && strchr(" \n\r\t", text[size - 1]) != NULL) size--;
        if (strlen(text) >= size && parts_are_plain(text, size, 1)) {
            memcpy(commit, text, size);
            commit[size] = '\0';
        }
    }
    bt_free(text);
    bt_free(path);
    return st;
}

static bool add_snapshot(snapshots *s, const char *name)
{
    if (s->n == s->capacity) {
        size_t more = s->capacity == 0 ? 8 : s->capacity * 2;
        snapshot_name *larger = bt_realloc(s->names, more, sizeof *larger);
        if (larger == NULL) return false;
        s->names = larger;
        s->capacity = more;
    }
    (void)snprintf(s->names[s->n++].text, sizeof s->names[0].text, "%s", name);
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const snapshot_name *)a)->text, ((const snapshot_name *)b)->text);
}

/* Sorted, for the order in which a folder gives its names is chance; then which of them begin with `prefix`. */
static void sort_out(snapshots *s, const char *prefix)
{
    if (s->n > 1) qsort(s->names, s->n, sizeof *s->names, compare_names);
    for (size_t i = 0; i < s->n; i++) {
        const char *name = s->names[i].text;
        bt_fault_add(&s->all, "%s", name);
        if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
        bool exact = strcmp(name, prefix) == 0;
        s->n_fitting++;
        s->has_exact = s->has_exact || exact;
        if (exact || !s->has_exact) (void)snprintf(s->first, sizeof s->first, "%s", name);
    }
}

/* Walks an opened folder of snapshots. */
static bt_status walk_snapshots(DIR *dir, const char *folder, snapshots *s, bt_error *e)
{
    for (size_t n = 0; n < N_SNAPSHOTS_MAX; n++) {
        const char *name;
        int more = bt_io_next_name(dir, &name);
        if (more == 0) return BT_OK;
        if (more < 0) return bt_fail(e, BT_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(errno));
        if (name[0] == '.') continue;
        char *path = bt_path_join(folder, name);
        if (path == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory", folder);
        struct stat info;
        int fault = bt_io_stat(path, &info) == 0 ? 0 : errno;
        bt_free(path);
        if (fault != 0 && fault != ENOENT)
            return bt_fail(e, BT_ERR_IO, "%s/%s: cannot examine: %s", folder, name, strerror(fault));
        if (fault == 0 && S_ISDIR(info.st_mode) && !add_snapshot(s, name))
            return bt_fail(e, BT_ERR_MEMORY, "%s: no memory for the names of %zu snapshots", folder, s->n);
    }
    return bt_fail(e, BT_ERR_FORMAT, "%s: more than %d snapshots cannot be told apart", folder, N_SNAPSHOTS_MAX);
}

/* Lists the snapshots whose names begin with `prefix`; none where there is no folder of them. A listing that breaks off
 * is refused: the only one that fits must be the only one. */
static bt_status list_snapshots(const char *repo, const char *prefix, snapshots *s, bt_error *e)
{
    memset(s, 0, sizeof *s);
    char *folder = bt_path_join(repo, "snapshots");
    if (folder == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory", repo);
    bt_status st = BT_OK;
    DIR *dir = bt_io_open_folder(folder);
    if (dir != NULL) {
        st = walk_snapshots(dir, folder, s, e);
        (void)closedir(dir);
        sort_out(s, prefix);
    } else if (errno != ENOENT && errno != ENOTDIR) {
        st = bt_fail(e, BT_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(errno));
    }
    bt_free(folder);
    return st;
}

/* Which snapshot of the repository is meant. No fitting one: *commit "". */
static bt_status choose(const char *repo, const wanted *w, char commit[REF_BYTES_MAX], snapshots *s, bt_error *e)
{
    const char *ref = w->revision == NULL ? "main" : w->revision;
    bt_status st = read_ref(repo, ref, commit, e);
    if (st != BT_OK) return st;
    bool by_ref = commit[0] != '\0';
    st = list_snapshots(repo, by_ref ? commit : w->revision == NULL ? "" : w->revision, s, e);
    if (st != BT_OK) return st;
    if (by_ref && !s->has_exact) {
        return bt_fail(e, BT_ERR_IO,
                       "%s: refs/%s names the commit %.80s, whose snapshot is not there: download it again%s%s", repo,
                       ref, commit, s->all.n_total > 0 ? ", or add @ and one of: " : "", bt_fault_text(&s->all));
    }
    if (s->has_exact || s->n_fitting == 1) {
        (void)snprintf(commit, REF_BYTES_MAX, "%s", s->first);
        return BT_OK;
    }
    if (s->n_fitting == 0) {
        commit[0] = '\0';
        return BT_OK;
    }
    return bt_fail(e, BT_ERR_USAGE, "%s has several snapshots %s; add @ and enough of one of: %s", repo,
                   w->revision == NULL ? "and no refs/main" : "that begin so", bt_fault_text(&s->all));
}

/* Looks for the model in one cache. *path stays NULL if it is not there; *tried gets what was seen. */
static bt_status look_in(const char *cache, const wanted *w, char **path, bt_text *tried, bt_error *e)
{
    char *repo = bt_path_join(cache, w->repo);
    char *commit = bt_malloc(REF_BYTES_MAX, 1);
    snapshots *s = bt_calloc(1, sizeof *s);
    bt_path_kind kind = BT_PATH_ABSENT;
    bt_status st = BT_OK;
    if (tried->size > 0) bt_text_puts(tried, ", ");
    if (repo == NULL || commit == NULL || s == NULL) {
        st = bt_fail(e, BT_ERR_MEMORY, "%s: no memory", cache);
    } else {
        st = bt_path_look(repo, &kind, e);
    }
    if (st == BT_OK && kind != BT_PATH_FOLDER) {
        bt_text_puts(tried, cache);
    } else if (st == BT_OK) {
        st = choose(repo, w, commit, s, e);
        if (st == BT_OK && commit[0] != '\0') {
            *path = join3(repo, "snapshots", commit);
            if (*path == NULL) st = bt_fail(e, BT_ERR_MEMORY, "%s: no memory", cache);
        } else if (st == BT_OK) {
            const char *there = bt_fault_text(&s->all);
            bt_text_printf(tried, "%s (it has the model, with %s%s)", cache,
                           s->all.n_total > 0 ? "other revisions: " : "no finished snapshot", there);
        }
    }
    if (s != NULL) bt_free(s->names);
    bt_free(s);
    bt_free(commit);
    bt_free(repo);
    return st;
}

static bt_status look_everywhere(const char *argument, const wanted *w, const bt_cache_env *env, char **path,
                                 bt_error *e)
{
    char *caches[N_CACHES];
    size_t n;
    bt_text tried = {NULL, 0, 0, false};
    bt_status st = BT_OK;
    *path = NULL;
    if (!cache_folders(env, caches, &n)) st = bt_fail(e, BT_ERR_MEMORY, "%s: no memory", argument);
    for (size_t i = 0; i < n && st == BT_OK && *path == NULL; i++) st = look_in(caches[i], w, path, &tried, e);
    if (st == BT_OK && *path == NULL) {
        st = bt_fail(e, BT_ERR_IO,
                     "%.300s: there is no such file or folder, and no such model in the Hugging Face cache (looked in: "
                     "%s); download it first, or name its folder",
                     argument, tried.data == NULL ? "nowhere, no cache folder is known" : tried.data);
    }
    bt_text_free(&tried);
    free_all(caches, n);
    return st;
}

bt_status bt_locate(const char *name, const bt_cache_env *env, char **path, bt_error *e)
{
    static const bt_cache_env nothing_set = {NULL, NULL, NULL, NULL, NULL};
    if (env == NULL) env = &nothing_set;
    if (name == NULL) return bt_fail(e, BT_ERR_USAGE, "no model is named");
    if (name[0] == '\0') return bt_fail(e, BT_ERR_USAGE, "the model's name is empty");
    char *found = NULL;
    bt_path_kind kind = BT_PATH_ABSENT;
    bt_status st = bt_path_look(name, &kind, e);
    if (st != BT_OK) return st;
    if (kind != BT_PATH_ABSENT) {
        found = bt_strdup(name);
        if (found == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory", name);
    } else {
        wanted w;
        st = take_apart(name, &w, e);
        if (st == BT_OK) st = look_everywhere(name, &w, env, &found, e);
        if (st != BT_OK) return st;
    }
    *path = found;
    return BT_OK;
}
