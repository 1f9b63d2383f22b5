/*
 * Writing a synthetic checkpoint. Each shard is a run of chunks; a thread makes a chunk's bytes in a buffer of its own
 * and writes them where they belong, while the system carries earlier ones to the disk. Memory is a buffer per thread,
 * whatever the size of the model. A thread takes a shard that nobody has, the largest first, and goes through it from
 * front to back, as file systems like it; when all are taken it helps with the chunks that are left.
 *
 * Everything is built in a folder with another name beside the one asked for, config.json last, and renamed at the end:
 * whatever interrupts it, nothing with the name asked for, and nothing that opens as a checkpoint, is left.
 */
#include "tool/synth.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/pool.h"
#include "base/rng.h"
#include "tool/synth_layout.h"
#include "tool/synth_tokenizer.h"

#define CHUNK_BYTES      ((uint64_t)4 << 20)
#define SMALL_FILE_BYTES ((uint64_t)1 << 20) /* room for generation_config and folder entries */
#define N_FOLDER_TRIES   100u

typedef struct progress {
    size_t shard_i;
    _Atomic uint64_t next_chunk;
    _Atomic bool is_taken;
} progress;

typedef struct job {
    const bt_synth_options *o;
    bt_synth_layout layout;
    char *parent, *partial; /* folders: the one that holds OUT, and the one with another name */
    progress *shards;       /* [n_shards], the largest first */
    uint8_t *buffers;       /* [n_threads][CHUNK_BYTES] */
    bt_error *errors;       /* [n_threads]; status BT_OK: none */
    _Atomic uint64_t bytes_done;
    _Atomic bool stop;
    bool is_cancelled;
} job;

static bt_status fail_errno(bt_error *e, const char *path, const char *what, int fault)
{
    bool full = fault == ENOSPC || fault == EDQUOT || fault == EFBIG || fault == ENOMEM;
    return bt_fail(e, full ? BT_ERR_MEMORY : BT_ERR_IO, "%s: %s: %s", path, what, strerror(fault));
}

/* ---- chunks ----------------------------------------------------------------------------------------------------- */

static bt_status write_at(int fd, const char *path, const uint8_t *data, size_t n, uint64_t at, bt_error *e)
{
    while (n > 0) {
        ssize_t done = bt_io_write_at(fd, data, n, at);
        if (done <= 0) return fail_errno(e, path, "cannot write", done < 0 ? errno : EIO);
        data += done;
        n -= (size_t)done;
        at += (uint64_t)done;
    }
    return BT_OK;
}

static bt_status write_chunk(job *j, size_t shard_i, uint64_t chunk, uint8_t *buffer, bt_error *e)
{
    const bt_synth_shard *s = &j->layout.shards[shard_i];
    uint64_t from = chunk * CHUNK_BYTES;
    size_t n = (size_t)(s->bytes - from < CHUNK_BYTES ? s->bytes - from : CHUNK_BYTES);
    bt_synth_fill(&j->layout, shard_i, from, buffer, n);
    char *path = bt_path_join(j->partial, s->name);
    if (path == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a path");
    int fd = bt_io_open(path, O_WRONLY | O_CREAT);
    bt_status st = fd < 0 ? fail_errno(e, path, "cannot create it", errno) : BT_OK;
    if (st == BT_OK) st = write_at(fd, path, buffer, n, from, e);
    /* Starts the way to the disk now; whether it helps is not our concern. */
    if (st == BT_OK) (void)sync_file_range(fd, (off_t)from, (off_t)n, SYNC_FILE_RANGE_WRITE);
    if (fd >= 0 && bt_io_close(fd) != 0 && st == BT_OK) st = fail_errno(e, path, "cannot write", errno);
    bt_free(path);
    atomic_fetch_add_explicit(&j->bytes_done, n, memory_order_relaxed);
    return st;
}

static bool keep_going(job *j)
{
    const bt_hook *h = j->o->hook;
    if (h == NULL) return true;
    size_t done = (size_t)atomic_load_explicit(&j->bytes_done, memory_order_relaxed);
    if (h->keep_going(h->user, done, (size_t)j->layout.bytes)) return true;
    j->is_cancelled = true;
    return false;
}

/* All that is left of a shard; false: stop. */
static bool work_on(job *j, progress *p, size_t thread_i)
{
    uint64_t n_chunks = (j->layout.shards[p->shard_i].bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
    uint8_t *buffer = j->buffers + thread_i * CHUNK_BYTES;
    while (!atomic_load_explicit(&j->stop, memory_order_relaxed)) {
        uint64_t chunk = atomic_fetch_add_explicit(&p->next_chunk, 1, memory_order_relaxed);
        if (chunk >= n_chunks) return true;
        bool good = write_chunk(j, p->shard_i, chunk, buffer, &j->errors[thread_i]) == BT_OK;
        if (!good || (thread_i == 0 && !keep_going(j))) atomic_store_explicit(&j->stop, true, memory_order_relaxed);
    }
    return false;
}

static void work(void *arg, size_t thread_i)
{
    job *j = arg;
    for (size_t i = 0; i < j->layout.n_shards; i++) {
        if (atomic_exchange_explicit(&j->shards[i].is_taken, true, memory_order_relaxed)) continue;
        if (!work_on(j, &j->shards[i], thread_i)) return;
    }
    for (size_t i = 0; i < j->layout.n_shards; i++)
        if (!work_on(j, &j->shards[i], thread_i)) return;
}

/* The last shard, which holds what lies outside the layers, is the largest; the others are much alike. */
static void order_shards(job *j)
{
    size_t n = j->layout.n_shards;
    for (size_t i = 0; i < n; i++) j->shards[i].shard_i = (i + n - 1) % n;
}

static bt_status write_shards(job *j, bt_error *e)
{
    bt_synth_layout *l = &j->layout;
    size_t n_threads = j->o->n_threads;
    bt_pool *pool = NULL;
    bt_status st = BT_ERR_MEMORY;
    j->shards = bt_calloc(l->n_shards, sizeof *j->shards);
    j->errors = bt_calloc(n_threads, sizeof *j->errors);
    j->buffers = bt_pages_alloc(n_threads * CHUNK_BYTES);
    if (j->shards == NULL || j->errors == NULL || j->buffers == NULL) {
        bt_fail(e, st, "no memory for %zu buffers", n_threads);
        goto done;
    }
    order_shards(j);
    st = bt_pool_open(n_threads, &pool, e);
    if (st != BT_OK) goto done;
    bt_pool_run(pool, work, j);
    bt_pool_close(pool);
    for (size_t i = 0; i < n_threads && st == BT_OK; i++) {
        st = j->errors[i].status;
        if (st != BT_OK && e != NULL) *e = j->errors[i];
    }
    if (st == BT_OK && j->is_cancelled) st = bt_fail(e, BT_ERR_CANCELLED, "interrupted");
done:
    if (j->buffers != NULL) bt_pages_free(j->buffers, n_threads * CHUNK_BYTES);
    bt_free(j->errors);
    bt_free(j->shards);
    return st;
}

/* Until the disk has them, neither the files nor the time they took are real. */
static bt_status sync_shards(job *j, bt_error *e)
{
    bt_status st = BT_OK;
    for (size_t i = 0; i < j->layout.n_shards && st == BT_OK; i++) {
        if (!keep_going(j)) return bt_fail(e, BT_ERR_CANCELLED, "interrupted");
        char *path = bt_path_join(j->partial, j->layout.shards[i].name);
        if (path == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a path");
        int fd = bt_io_open(path, O_WRONLY);
        if (fd < 0 || bt_io_sync(fd) != 0) st = fail_errno(e, path, "cannot write to disk", errno);
        if (fd >= 0) (void)close(fd);
        bt_free(path);
    }
    return st;
}

/* ---- the small files -------------------------------------------------------------------------------------------- */

static bt_status write_file(const char *folder, const char *name, const bt_text *t, bt_error *e)
{
    char *path = bt_path_join(folder, name);
    bt_output *o = NULL;
    if (path == NULL || !bt_text_ok(t)) {
        bt_free(path);
        return bt_fail(e, BT_ERR_MEMORY, "no memory to write %s", name);
    }
    bt_status st = bt_output_open(path, &o, e);
    if (st == BT_OK) st = bt_output_write(o, t->data, t->size, e);
    if (st == BT_OK)
        st = bt_output_commit(o, e);
    else
        bt_output_abandon(o);
    bt_free(path);
    return st;
}

static bt_status write_generation_config(const char *folder, const bt_preset *p, bt_error *e)
{
    bt_text t = {NULL, 0, 0, false};
    p->generation_config(p->numbers, &t);
    bt_status st = t.size == 0 && bt_text_ok(&t) ? BT_OK : write_file(folder, "generation_config.json", &t, e);
    bt_text_free(&t);
    return st;
}

static bt_status write_files(job *j, bt_error *e)
{
    bt_synth_vocab v = j->o->preset->vocab(j->o->preset->numbers);
    bt_status st = bt_synth_tokenizer(j->partial, &v, e);
    if (st == BT_OK) st = write_generation_config(j->partial, j->o->preset, e);
    if (st == BT_OK) st = write_shards(j, e);
    if (st == BT_OK) st = sync_shards(j, e);
    if (st == BT_OK) st = write_file(j->partial, "model.safetensors.index.json", &j->layout.index, e);
    if (st == BT_OK) st = write_file(j->partial, "config.json", &j->layout.config, e);
    return st;
}

/* ---- folders ---------------------------------------------------------------------------------------------------- */

/* OUT without slashes at its end; bt_free by the caller. */
static char *trimmed(const char *path)
{
    char *copy = bt_strdup(path);
    size_t n = copy == NULL ? 0 : strlen(copy);
    while (n > 1 && copy[n - 1] == '/') copy[--n] = '\0';
    return copy;
}

static bt_status check_space(const job *j, bt_error *e)
{
    struct statvfs disk;
    bt_synth_vocab v = j->o->preset->vocab(j->o->preset->numbers);
    uint64_t needed = j->layout.bytes + j->layout.index.size + bt_synth_tokenizer_bytes(&v) + SMALL_FILE_BYTES;
    if (statvfs(j->parent, &disk) != 0) {
        if (errno == ENOENT) return bt_fail(e, BT_ERR_IO, "%s: no such folder; make it first", j->parent);
        return fail_errno(e, j->parent, "cannot examine", errno);
    }
    uint64_t unit = disk.f_frsize != 0 ? disk.f_frsize : disk.f_bsize;
    uint64_t available = disk.f_bavail > UINT64_MAX / unit ? UINT64_MAX : disk.f_bavail * unit;
    if (needed <= available) return BT_OK;
    return bt_fail(e, BT_ERR_MEMORY, "%s: %s are needed but the disk has %s free%s", j->o->folder,
                   bt_format_size(needed).text, bt_format_size(available).text,
                   j->o->choice.n_layers == 1 ? "" : ": fewer --layers need less");
}

static bt_status make_partial(job *j, const char *out, bt_error *e)
{
    size_t bytes = strlen(out) + 32;
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + (uint64_t)getpid() * 0x10001u;
    j->partial = bt_malloc(bytes, 1);
    if (j->partial == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a path");
    for (uint64_t i = 0; i < N_FOLDER_TRIES; i++) {
        (void)snprintf(j->partial, bytes, "%s.partial-%08x", out, (unsigned)(bt_rng_u64(seed, i) & 0xffffffffu));
        if (mkdir(j->partial, 0777) == 0) return BT_OK;
        if (errno != EEXIST) break;
    }
    int fault = errno;
    bt_free(j->partial);
    j->partial = NULL;
    return fail_errno(e, out, "cannot create it", fault);
}

/* The folder is our own: everything in it goes. */
static void remove_partial(const job *j)
{
    DIR *folder = opendir(j->partial);
    if (folder == NULL) return;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    (void)closedir(folder);
    (void)rmdir(j->partial);
}

static void sync_folder(const char *path)
{
    int fd = bt_io_open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return;
    (void)bt_io_sync(fd);
    (void)close(fd);
}

static bt_status build(job *j, const char *out, bt_error *e)
{
    bt_status st = make_partial(j, out, e);
    if (st != BT_OK) return st;
    st = write_files(j, e);
    if (st == BT_OK && bt_path_exists(out))
        st = bt_fail(e, BT_ERR_IO, "%s appeared while it was made; nothing was replaced", out);
    if (st == BT_OK) sync_folder(j->partial);
    if (st == BT_OK && bt_io_rename(j->partial, out) != 0)
        st = fail_errno(e, out, "cannot rename the finished folder", errno);
    if (st == BT_OK)
        sync_folder(j->parent);
    else
        remove_partial(j);
    return st;
}

bt_status bt_synth(const bt_synth_options *o, bt_synth_report *out, bt_error *e)
{
    assert(o->n_threads >= 1);
    job *j = bt_calloc(1, sizeof *j);
    char *folder = trimmed(o->folder);
    bt_status st = BT_ERR_MEMORY;
    if (j != NULL && folder != NULL) {
        j->o = o;
        j->parent = bt_path_folder(folder);
    }
    if (j == NULL || j->parent == NULL) {
        bt_fail(e, st, "no memory to make a checkpoint");
        goto done;
    }
    st = bt_synth_layout_make(o->preset, &o->choice, o->seed, &j->layout, e);
    if (st == BT_OK && bt_path_exists(folder))
        st = bt_fail(e, BT_ERR_IO, "%s exists already; choose another name or remove it first", folder);
    if (st == BT_OK) st = check_space(j, e);
    if (st == BT_OK) st = build(j, folder, e);
    if (st == BT_OK) {
        *out = (bt_synth_report){.bytes = j->layout.bytes + j->layout.index.size + j->layout.config.size,
                                 .n_parameters = j->layout.n_parameters,
                                 .n_shards = j->layout.n_shards,
                                 .n_tensors = j->layout.n_tensors};
    }
    bt_synth_layout_free(&j->layout);
done:
    if (j != NULL) {
        bt_free(j->parent);
        bt_free(j->partial);
    }
    bt_free(folder);
    bt_free(j);
    return st;
}
