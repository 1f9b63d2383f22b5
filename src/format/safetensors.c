/*
 * A set of tensors: which files belong to it, and the names in all of them. The index decides where there is one; it is
 * then held to be complete and exact in both directions, because a model with one tensor missing, or with one taken
 * from an old file, answers wrongly and looks right. Without an index nothing is guessed beyond a single candidate.
 */
#include "format/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "format/shard.h"

#define INDEX_NAME          "model.safetensors.index.json"
#define INDEX_SUFFIX        ".safetensors.index.json"
#define FILE_NAME           "model.safetensors"
#define FILE_SUFFIX         ".safetensors"
#define N_ENTRIES_MAX       1000000 /* of a folder */
#define N_SHARDS_MAX        100000
#define FILE_NAME_BYTES_MAX 255

static bt_status no_memory(const char *path, bt_error *e)
{
    return bt_fail(e, BT_ERR_MEMORY, "%s: no memory for the table of tensors", path);
}

/* ---- the index ------------------------------------------------------------------------------------------------------
 */

/* What one pass over weight_map does with an entry: tensor name, file name. */
typedef struct index_pass {
    bt_status (*entry)(struct index_pass *p, bt_json *j, bt_name tensor);
    bt_tensors *set;
    bt_arena *arena;    /* of file names */
    const char **files; /* [n_files], those named, in order of appearance, runs of one counted once */
    size_t n_files, files_capacity;
    uint8_t *is_listed; /* [n_tensors] */
    size_t n_listed;
    bt_fault_list absent, elsewhere;
    char *name; /* copy of the tensor's name, for the scanner reuses its buffer */
    size_t name_bytes;
} index_pass;

/* Walks {"weight_map": {tensor: file, ...}, ...}. */
static bt_status walk_weight_map(bt_json *j, index_pass *p)
{
    if (bt_json_next(j) != BT_JSON_OBJECT) return bt_json_fail(j, "weight_map is no object");
    for (;;) {
        bt_json_kind kind = bt_json_next(j);
        if (kind == BT_JSON_ERROR) return j->status;
        if (kind == BT_JSON_OBJECT_END) return BT_OK;
        if (j->size > p->name_bytes) {
            char *more = bt_realloc(p->name, j->size, 2);
            if (more == NULL) return j->status = bt_fail(j->error, BT_ERR_MEMORY, "no memory for a name");
            p->name = more;
            p->name_bytes = 2 * j->size;
        }
        bt_name tensor = {p->name, j->size};
        if (j->size > 0) memcpy(p->name, j->text, j->size);
        if (bt_json_next(j) != BT_JSON_STRING) {
            bt_shown shown = bt_show_name(p->name, tensor.size);
            return bt_json_fail(j, "the file of tensor \"%s\" is no string", shown.text);
        }
        bt_status st = p->entry(p, j, tensor);
        if (st != BT_OK) return st;
    }
}

static bt_status walk_index(const char *path, const bt_mapping *map, index_pass *p, bt_error *e)
{
    bt_error inner = {.status = BT_OK};
    bt_json j;
    bt_json_begin(&j, (const char *)map->data, map->size, 0, &inner);
    bool found = false;
    bt_status st = bt_json_next(&j) == BT_JSON_OBJECT ? BT_OK : bt_json_fail(&j, "the index is no JSON object");
    while (st == BT_OK) {
        bt_json_kind kind = bt_json_next(&j);
        if (kind == BT_JSON_OBJECT_END) break;
        if (kind == BT_JSON_ERROR) {
            st = j.status;
        } else if (!bt_json_text_is(&j, "weight_map")) {
            if (!bt_json_skip(&j, bt_json_next(&j))) st = j.status;
        } else if (found) {
            st = bt_json_fail(&j, "weight_map appears twice");
        } else {
            found = true;
            st = walk_weight_map(&j, p);
        }
    }
    if (st == BT_OK && !found) st = bt_json_fail(&j, "there is no weight_map");
    if (st == BT_OK && bt_json_next(&j) != BT_JSON_END) st = j.status;
    bt_json_done(&j);
    return st == BT_OK ? BT_OK : bt_fail(e, st, "%s: %s", path, inner.message);
}

/* A shard lies beside its index. Anything else could make a downloaded file read another one of the disk. */
static bool is_plain_name(const char *s, size_t n)
{
    if (n == 0 || n > FILE_NAME_BYTES_MAX || memchr(s, '/', n) != NULL || memchr(s, '\0', n) != NULL) return false;
    return !(n == 1 && s[0] == '.') && !(n == 2 && memcmp(s, "..", 2) == 0);
}

/* First pass: the files. */
static bt_status collect_file(index_pass *p, bt_json *j, bt_name tensor)
{
    if (p->n_files > 0 && bt_json_text_is(j, p->files[p->n_files - 1])) return BT_OK;
    if (!is_plain_name(j->text, j->size)) {
        bt_shown file = bt_show_name(j->text, j->size), name = bt_show_name(tensor.text, tensor.size);
        return bt_json_fail(j, "tensor \"%s\" is said to be in \"%s\", which is no plain file name", name.text,
                            file.text);
    }
    if (p->n_files == p->files_capacity) {
        size_t capacity = p->files_capacity == 0 ? 64 : p->files_capacity * 2;
        const char **more = bt_realloc(p->files, capacity, sizeof *more);
        if (more == NULL) return j->status = bt_fail(j->error, BT_ERR_MEMORY, "no memory for the list of files");
        p->files = more;
        p->files_capacity = capacity;
    }
    const char *file = bt_arena_strndup(p->arena, j->text, j->size);
    if (file == NULL) return j->status = bt_fail(j->error, BT_ERR_MEMORY, "no memory for the list of files");
    p->files[p->n_files++] = file;
    return BT_OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *file_of(const bt_shard *shard)
{
    const char *slash = strrchr(shard->path, '/');
    return slash == NULL ? shard->path : slash + 1;
}

/* Second pass: every entry against what the shards hold. */
static bt_status check_listed(index_pass *p, bt_json *j, bt_name tensor)
{
    bt_tensors *set = p->set;
    bt_shown name = bt_show_name(tensor.text, tensor.size), file = bt_show_name(j->text, j->size);
    size_t i = bt_names_find(&set->names, tensor);
    if (i == BT_NAMES_NONE) {
        bt_fault_add(&p->absent, "%s (%s)", name.text, file.text);
        return BT_OK;
    }
    if (p->is_listed[i]) return bt_json_fail(j, "tensor \"%s\" is listed twice", name.text);
    p->is_listed[i] = 1;
    p->n_listed++;
    const char *holder = file_of(&set->shards[set->tensors[i].shard_i]);
    if (!bt_json_text_is(j, holder)) bt_fault_add(&p->elsewhere, "%s (in %s, not in %s)", name.text, holder, file.text);
    return BT_OK;
}

static bt_status report_listing(const char *path, index_pass *p, bt_error *e)
{
    const bt_tensors *set = p->set;
    if (p->absent.n_total > 0) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: tensors that are in none of the files: %s", path,
                       bt_fault_text(&p->absent));
    }
    if (p->elsewhere.n_total > 0) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: tensors that are in another file than the index says: %s", path,
                       bt_fault_text(&p->elsewhere));
    }
    if (p->n_listed == set->n_tensors) return BT_OK;
    bt_fault_list extra = {.used = 0};
    for (size_t i = 0; i < set->n_tensors; i++) {
        const bt_tensor *t = &set->tensors[i];
        bt_shown name = bt_show_name(t->name, t->name_size);
        if (!p->is_listed[i]) bt_fault_add(&extra, "%s (%s)", name.text, file_of(&set->shards[t->shard_i]));
    }
    return bt_fail(e, BT_ERR_FORMAT, "%s: tensors that are in the files but not in the index: %s", path,
                   bt_fault_text(&extra));
}

/* ---- opening --------------------------------------------------------------------------------------------------------
 */

static bt_name name_of_tensor(const void *items, size_t i)
{
    const bt_tensor *const *tensors = items;
    return (bt_name){(*tensors)[i].name, (*tensors)[i].name_size};
}

/* Reads all shards, then enters all names: one name is one tensor, in whatever file. */
static bt_status open_shards(bt_tensors *t, const char *path, bt_error *e)
{
    for (size_t i = 0; i < t->n_shards; i++) {
        bt_status st = bt_shard_open(t, i, e);
        if (st != BT_OK) return st;
    }
    if (t->n_tensors > 0) {
        bt_tensor *exact = bt_realloc(t->tensors, t->n_tensors, sizeof *exact);
        if (exact == NULL) return no_memory(path, e);
        t->tensors = exact;
        t->capacity = t->n_tensors;
    }
    if (!bt_names_init(&t->names, t->n_tensors, name_of_tensor, &t->tensors)) return no_memory(path, e);
    for (size_t i = 0; i < t->n_tensors; i++) {
        size_t j = bt_names_add(&t->names, i);
        if (j == i) continue;
        bt_shown name = bt_show_name(t->tensors[i].name, t->tensors[i].name_size);
        uint32_t one = t->tensors[j].shard_i, two = t->tensors[i].shard_i;
        if (one == two) {
            return bt_fail(e, BT_ERR_FORMAT, "%s: tensor \"%s\" appears twice", t->shards[one].path, name.text);
        }
        return bt_fail(e, BT_ERR_FORMAT, "%s: tensor \"%s\" is in two files, %s and %s", path, name.text,
                       file_of(&t->shards[one]), file_of(&t->shards[two]));
    }
    return BT_OK;
}

static bt_status open_file(bt_tensors *t, const char *path, bt_error *e)
{
    t->shards = bt_calloc(1, sizeof *t->shards);
    if (t->shards == NULL) return no_memory(path, e);
    t->shards[0].path = bt_strdup(path);
    if (t->shards[0].path == NULL) return no_memory(path, e);
    t->n_shards = 1;
    return open_shards(t, path, e);
}

/* Why a file that the index names cannot be opened: a word for the list of all of them; NULL if it can. */
static const char *what_is_missing(const char *path)
{
    struct stat info;
    if (bt_io_stat(path, &info) == 0) return S_ISREG(info.st_mode) ? NULL : " (not a file)";
    if (errno != ENOENT) return " (it cannot be examined)";
    if (lstat(path, &info) == 0) return " (a link that leads nowhere)";
    size_t bytes = strlen(path) + sizeof ".incomplete";
    char *partial = bt_malloc(bytes, 1);
    if (partial == NULL) return "";
    (void)snprintf(partial, bytes, "%s.incomplete", path);
    bool begun = bt_path_exists(partial);
    bt_free(partial);
    return begun ? " (only an .incomplete download)" : "";
}

/* Sorted unique names become shards; all that are missing are told at once. */
static bt_status name_shards(bt_tensors *t, const char *folder, const char *path, index_pass *p, bt_error *e)
{
    if (p->n_files > 1) qsort(p->files, p->n_files, sizeof *p->files, compare_texts);
    size_t n = 0;
    for (size_t i = 0; i < p->n_files; i++) {
        if (n == 0 || strcmp(p->files[n - 1], p->files[i]) != 0) p->files[n++] = p->files[i];
    }
    if (n == 0) return bt_fail(e, BT_ERR_FORMAT, "%s: the index lists no tensor", path);
    if (n > N_SHARDS_MAX) return bt_fail(e, BT_ERR_FORMAT, "%s: the index names %zu files", path, n);
    t->shards = bt_calloc(n, sizeof *t->shards);
    if (t->shards == NULL) return no_memory(path, e);
    bt_fault_list missing = {.used = 0};
    for (size_t i = 0; i < n; i++) {
        t->shards[i].path = bt_path_join(folder, p->files[i]);
        if (t->shards[i].path == NULL) return no_memory(path, e);
        t->n_shards++;
        const char *why = what_is_missing(t->shards[i].path);
        if (why != NULL) bt_fault_add(&missing, "%s%s", p->files[i], why);
    }
    if (missing.n_total == 0) return BT_OK;
    return bt_fail(e, BT_ERR_FORMAT, "%s: %zu of the %zu files of the index are missing, download them again: %s",
                   folder, missing.n_total, n, bt_fault_text(&missing));
}

static bt_status read_index(bt_tensors *t, const char *folder, const char *path, const bt_mapping *map, index_pass *p,
                            bt_error *e)
{
    p->set = t;
    p->arena = bt_arena_new();
    if (p->arena == NULL) return no_memory(path, e);
    p->entry = collect_file;
    bt_status st = walk_index(path, map, p, e);
    if (st == BT_OK) st = name_shards(t, folder, path, p, e);
    if (st == BT_OK) st = open_shards(t, path, e);
    if (st != BT_OK) return st;
    p->is_listed = bt_calloc(t->n_tensors, 1);
    if (p->is_listed == NULL) return no_memory(path, e);
    p->entry = check_listed;
    st = walk_index(path, map, p, e);
    return st == BT_OK ? report_listing(path, p, e) : st;
}

static bt_status open_index(bt_tensors *t, const char *folder, const char *name, bt_error *e)
{
    char *path = bt_path_join(folder, name);
    index_pass *p = bt_calloc(1, sizeof *p);
    bt_mapping map = {NULL, 0};
    bt_status st = path == NULL || p == NULL ? no_memory(folder, e) : bt_map_file(path, &map, e);
    if (st == BT_OK) st = read_index(t, folder, path, &map, p, e);
    bt_unmap_file(&map);
    if (p != NULL) {
        bt_arena_free(p->arena);
        bt_free(p->files);
        bt_free(p->is_listed);
        bt_free(p->name);
    }
    bt_free(p);
    bt_free(path);
    return st;
}

/* ---- choosing in a folder -------------------------------------------------------------------------------------------
 */

static bool ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n > m && strcmp(s + n - m, suffix) == 0;
}

/* What a folder offers, in alphabetical order in the lists. */
typedef struct offer {
    const char *indexes[2], *files[2]; /* the first two of each kind */
    size_t n_indexes, n_files;
    bool has_index, has_file, has_other_weights;
    bt_fault_list index_list, file_list;
} offer;

static void offer_entry(offer *o, const char *name)
{
    if (strcmp(name, INDEX_NAME) == 0) o->has_index = true;
    if (strcmp(name, FILE_NAME) == 0) o->has_file = true;
    if (ends_with(name, INDEX_SUFFIX)) {
        if (o->n_indexes < 2) o->indexes[o->n_indexes] = name;
        o->n_indexes++;
        bt_fault_add(&o->index_list, "%s", name);
    } else if (ends_with(name, FILE_SUFFIX)) {
        if (o->n_files < 2) o->files[o->n_files] = name;
        o->n_files++;
        bt_fault_add(&o->file_list, "%s", name);
    } else if (ends_with(name, ".bin") || ends_with(name, ".gguf") || ends_with(name, ".pth")) {
        o->has_other_weights = true;
    }
}

static bool add_name(const char ***list, size_t *n, size_t *capacity, bt_arena *arena, const char *name)
{
    if (*n == *capacity) {
        size_t more = *capacity == 0 ? 64 : *capacity * 2;
        const char **longer = bt_realloc(*list, more, sizeof *longer);
        if (longer == NULL) return false;
        *list = longer;
        *capacity = more;
    }
    const char *copy = bt_arena_strndup(arena, name, strlen(name));
    if (copy != NULL) (*list)[(*n)++] = copy;
    return copy != NULL;
}

/* The names in a folder, sorted; hidden ones are left out. A listing that breaks off is refused: what is chosen from it
 * depends on what is not there. */
static bt_status list_folder(const char *folder, bt_arena *arena, const char ***names, size_t *n, bt_error *e)
{
    DIR *dir = bt_io_open_folder(folder);
    int more = dir == NULL ? -1 : 1;
    size_t capacity = 0;
    bt_status st = BT_OK;
    while (more > 0 && st == BT_OK) {
        const char *name;
        more = bt_io_next_name(dir, &name);
        if (more <= 0 || name[0] == '.') continue;
        if (*n == N_ENTRIES_MAX)
            st = bt_fail(e, BT_ERR_FORMAT, "%s: more than %d files cannot be those of a model", folder, N_ENTRIES_MAX);
        else if (!add_name(names, n, &capacity, arena, name))
            st = no_memory(folder, e);
    }
    if (more < 0) st = bt_fail(e, BT_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(errno));
    if (dir != NULL) (void)closedir(dir);
    if (*n > 1) qsort(*names, *n, sizeof **names, compare_texts);
    return st;
}

static bt_status open_offer(bt_tensors *t, const char *folder, offer *o, bt_error *e)
{
    if (o->has_index) return open_index(t, folder, INDEX_NAME, e);
    if (o->n_indexes == 1) return open_index(t, folder, o->indexes[0], e);
    if (o->n_indexes > 1) {
        return bt_fail(e, BT_ERR_FORMAT, "%s has several indexes, and none is named %s: %s", folder, INDEX_NAME,
                       bt_fault_text(&o->index_list));
    }
    if (!o->has_file && o->n_files == 0) {
        return bt_fail(e, BT_ERR_FORMAT, "%s has no *.safetensors%s", folder,
                       o->has_other_weights ? " (weights of other formats must be converted first)" : "");
    }
    if (!o->has_file && o->n_files > 1) {
        return bt_fail(e, BT_ERR_FORMAT, "%s has neither an index nor %s, but several files; name the one meant: %s",
                       folder, FILE_NAME, bt_fault_text(&o->file_list));
    }
    char *path = bt_path_join(folder, o->has_file ? FILE_NAME : o->files[0]);
    bt_status st = path == NULL ? no_memory(folder, e) : open_file(t, path, e);
    bt_free(path);
    return st;
}

static bt_status open_folder(bt_tensors *t, const char *folder, bt_error *e)
{
    bt_arena *arena = bt_arena_new();
    offer *o = bt_calloc(1, sizeof *o);
    const char **names = NULL;
    size_t n = 0;
    bt_status st = arena == NULL || o == NULL ? no_memory(folder, e) : list_folder(folder, arena, &names, &n, e);
    if (st == BT_OK) {
        for (size_t i = 0; i < n; i++) offer_entry(o, names[i]);
        st = open_offer(t, folder, o, e);
    }
    bt_free(names);
    bt_free(o);
    bt_arena_free(arena);
    return st;
}

bt_status bt_tensors_open(const char *path, bt_tensors **out, bt_error *e)
{
    bt_tensors *t = bt_calloc(1, sizeof *t);
    if (t == NULL) return no_memory(path, e);
    t->arena = bt_arena_new();
    bt_path_kind kind = BT_PATH_ABSENT;
    bt_status st = t->arena == NULL ? no_memory(path, e) : bt_path_look(path, &kind, e);
    if (st == BT_OK) st = kind == BT_PATH_FOLDER ? open_folder(t, path, e) : open_file(t, path, e);
    if (st != BT_OK) {
        bt_tensors_close(t);
        return st;
    }
    *out = t;
    return BT_OK;
}

void bt_tensors_close(bt_tensors *t)
{
    if (t == NULL) return;
    for (size_t i = 0; i < t->n_shards; i++) {
        bt_unmap_file(&t->shards[i].map);
        bt_free(t->shards[i].path);
    }
    bt_free(t->shards);
    bt_free(t->tensors);
    bt_names_done(&t->names);
    bt_arena_free(t->arena);
    bt_free(t);
}

/* ---- reading --------------------------------------------------------------------------------------------------------
 */

size_t bt_tensors_count(const bt_tensors *t)
{
    return t->n_tensors;
}

const bt_tensor *bt_tensors_at(const bt_tensors *t, size_t i)
{
    assert(i < t->n_tensors);
    return &t->tensors[i];
}

const bt_tensor *bt_tensors_find(const bt_tensors *t, const char *name)
{
    size_t i = bt_names_find(&t->names, (bt_name){name, strlen(name)});
    return i == BT_NAMES_NONE ? NULL : &t->tensors[i];
}

size_t bt_tensors_n_shards(const bt_tensors *t)
{
    return t->n_shards;
}

const bt_shard *bt_tensors_shard(const bt_tensors *t, size_t i)
{
    assert(i < t->n_shards);
    return &t->shards[i];
}

uint64_t bt_tensors_mapped_bytes(const bt_tensors *t)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < t->n_shards; i++) bytes += t->shards[i].map.size;
    return bytes;
}

void bt_tensors_advise(const bt_tensors *t, bt_map_use use)
{
    for (size_t i = 0; i < t->n_shards; i++) bt_map_advise(&t->shards[i].map, use);
}

size_t bt_tensors_private_bytes(const bt_tensors *t)
{
    return sizeof *t + bt_arena_bytes(t->arena) + t->capacity * sizeof *t->tensors + bt_names_bytes(&t->names) +
           t->n_shards * sizeof *t->shards;
}
