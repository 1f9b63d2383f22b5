/*
 * Files. Inputs are opened so that nothing can hang (a FIFO named config.json has no writer), checked to be what they
 * must be, and mapped or read whole. Outputs appear under their name only when they are complete: a killed run leaves
 * the old file, or none.
 */
#include "base/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/io.h"
#include "base/rng.h"

#define HUGE_PAGE_BYTES   ((size_t)2 << 20)
#define READ_BYTES_MIN    ((size_t)64 << 10)
#define OUTPUT_BYTES      ((size_t)256 << 10)
#define N_TEMPORARY_TRIES 100

static const char *kind_name(mode_t mode)
{
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a FIFO";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

static bt_status fail_errno(bt_error *e, const char *path, const char *what, int fault)
{
    bool full = fault == ENOSPC || fault == EDQUOT || fault == EFBIG || fault == ENOMEM;
    return bt_fail(e, full ? BT_ERR_MEMORY : BT_ERR_IO, "%s: %s: %s", path, what, strerror(fault));
}

/* Opens for reading without ever waiting; *size is the file's size where it has one. */
static bt_status open_input(const char *path, bool regular_only, int *fd, size_t *size, bt_error *e)
{
    int f = bt_io_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (f < 0) return fail_errno(e, path, "cannot open", errno);
    struct stat info;
    if (bt_io_fstat(f, &info) != 0) {
        int fault = errno;
        (void)close(f);
        return fail_errno(e, path, "cannot examine", fault);
    }
    if (S_ISDIR(info.st_mode) || (regular_only && !S_ISREG(info.st_mode))) {
        (void)close(f);
        return bt_fail(e, BT_ERR_IO, "%s is %s, where a file is needed", path, kind_name(info.st_mode));
    }
    bool fits = info.st_size >= 0 && (uintmax_t)info.st_size <= SIZE_MAX;
    *size = S_ISREG(info.st_mode) && fits ? (size_t)info.st_size : 0;
    *fd = f;
    return BT_OK;
}

/* The system's calls take pointers to non-const, though they write nothing here. */
static void *address_of(const bt_mapping *m)
{
    union {
        const uint8_t *mapped;
        void *address;
    } u = {m->data};
    return u.address;
}

/* Along: a file system with large folios then reads and maps the file in huge pages, if it is told before their first
 * touch, which for weights is worth a twentieth of decode (bench/NOTES.md). Elsewhere that changes nothing. */
void bt_map_advise(const bt_mapping *m, bt_map_use use)
{
    bool along = use == BT_MAP_ALONG;
    if (m->data == NULL) return;
    (void)madvise(address_of(m), m->size, along ? MADV_NORMAL : MADV_RANDOM);
    if (m->size >= HUGE_PAGE_BYTES) (void)madvise(address_of(m), m->size, along ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

void bt_map_prefetch(const bt_mapping *m, size_t n)
{
    if (m->data != NULL) (void)madvise(address_of(m), n < m->size ? n : m->size, MADV_WILLNEED);
}

bt_status bt_map_file(const char *path, bt_mapping *out, bt_error *e)
{
    int fd;
    size_t size;
    bt_status st = open_input(path, true, &fd, &size, e);
    if (st != BT_OK) return st;
    bt_mapping m = {NULL, size};
    if (size > 0) {
        void *p = bt_io_map(fd, size);
        if (p == NULL) {
            int fault = errno;
            (void)close(fd);
            return fail_errno(e, path, "cannot map", fault);
        }
        m.data = p;
    }
    (void)close(fd); /* the mapping keeps the file */
    bt_map_advise(&m, BT_MAP_ALONG);
    *out = m;
    return BT_OK;
}

void bt_unmap_file(bt_mapping *m)
{
    if (m->data != NULL) (void)munmap(address_of(m), m->size);
    *m = (bt_mapping){NULL, 0};
}

/* One read that waits for data. 0: the end. */
static ssize_t read_some(int fd, char *to, size_t n)
{
    for (;;) {
        ssize_t got = bt_io_read(fd, to, n);
        if (got >= 0 || errno != EAGAIN) return got;
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, -1) < 0 && errno != EINTR) return -1;
    }
}

/* Reads to the end into a buffer that starts with room for `expected` bytes and the terminator. */
static bt_status read_all(int fd, const char *path, size_t expected, size_t size_max, char **data, size_t *size,
                          bt_error *e)
{
    size_t capacity = (expected < size_max ? expected : size_max) + 2, used = 0;
    if (capacity < READ_BYTES_MIN && expected == 0) capacity = READ_BYTES_MIN;
    char *buffer = bt_malloc(capacity, 1);
    if (buffer == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory for %zu bytes", path, capacity);
    for (;;) {
        if (used + 1 == capacity) {
            char *more = capacity > SIZE_MAX / 2 ? NULL : bt_realloc(buffer, capacity * 2, 1);
            if (more == NULL) {
                bt_free(buffer);
                return bt_fail(e, BT_ERR_MEMORY, "%s: no memory for more than %zu bytes", path, capacity);
            }
            buffer = more;
            capacity *= 2;
        }
        ssize_t got = read_some(fd, buffer + used, capacity - 1 - used);
        if (got == 0) break;
        if (got < 0 || (size_t)got > size_max - used) {
            int fault = errno;
            bt_free(buffer);
            if (got < 0) return fail_errno(e, path, "cannot read", fault);
            return bt_fail(e, BT_ERR_FORMAT, "%s is larger than the %zu bytes that such a file may have", path,
                           size_max);
        }
        used += (size_t)got;
    }
    buffer[used] = '\0';
    *data = buffer;
    *size = used;
    return BT_OK;
}

/* A FIFO that no writer ever opened reads as empty. Opened as it is, it makes poll wait for the first one: for its
 * text, or for its end without one. */
static void wait_for_writer(int fd)
{
    struct stat info;
    struct pollfd p = {fd, POLLIN, 0};
    if (bt_io_fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) return;
    while (poll(&p, 1, -1) < 0 && errno == EINTR) {
    }
}

static bt_status read_file(const char *path, bool waits, size_t size_max, char **data, size_t *size, bt_error *e)
{
    assert(size_max < SIZE_MAX - 2);
    int fd;
    size_t expected;
    bt_status st = open_input(path, false, &fd, &expected, e);
    if (st != BT_OK) return st;
    if (waits) wait_for_writer(fd);
    st = read_all(fd, path, expected, size_max, data, size, e);
    (void)close(fd);
    return st;
}

bt_status bt_read_file(const char *path, size_t size_max, char **data, size_t *size, bt_error *e)
{
    return read_file(path, false, size_max, data, size, e);
}

bt_status bt_read_file_waiting(const char *path, size_t size_max, char **data, size_t *size, bt_error *e)
{
    return read_file(path, true, size_max, data, size, e);
}

static bool begins(const unsigned char *s, size_t n, const char *with)
{
    size_t length = strlen(with);
    return n >= length && memcmp(s, with, length) == 0;
}

const char *bt_placeholder_text(const void *data, size_t size)
{
    const unsigned char *s = data;
    if (size == 0) return NULL; /* and s may be NULL, which must not be counted from */
    if (begins(s, size, "version https://git-lfs")) {
        return "is a Git LFS pointer, the real file was not downloaded: run `git lfs pull`, or download it again";
    }
    size_t i = 0;
    while (i < size && i < 64 && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t')) i++;
    if (begins(s + i, size - i, "<!") || begins(s + i, size - i, "<html") || begins(s + i, size - i, "<?xml")) {
        return "is a web page that was saved in place of the file: download it again";
    }
    return NULL;
}

/* ---- paths ----------------------------------------------------------------------------------------------------------
 */

static bool means_absent(int fault)
{
    return fault == ENOENT || fault == ENOTDIR || fault == ENAMETOOLONG;
}

bt_status bt_path_look(const char *path, bt_path_kind *kind, bt_error *e)
{
    struct stat info;
    if (bt_io_stat(path, &info) == 0) {
        *kind = S_ISDIR(info.st_mode) ? BT_PATH_FOLDER : BT_PATH_FILE;
        return BT_OK;
    }
    if (!means_absent(errno)) return fail_errno(e, path, "cannot examine", errno);
    if (lstat(path, &info) == 0) return bt_fail(e, BT_ERR_IO, "%s is a link that leads nowhere", path);
    *kind = BT_PATH_ABSENT;
    return BT_OK;
}

bool bt_path_exists(const char *path)
{
    struct stat info;
    return bt_io_stat(path, &info) == 0;
}

bool bt_path_is_folder(const char *path)
{
    struct stat info;
    return bt_io_stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *bt_path_join(const char *folder, const char *name)
{
    size_t n = strlen(folder), bytes = n + strlen(name) + 2;
    char *path = bt_malloc(bytes, 1);
    if (path == NULL) return NULL;
    const char *slash = n == 0 || folder[n - 1] == '/' ? "" : "/";
    (void)snprintf(path, bytes, "%s%s%s", folder, slash, name);
    return path;
}

char *bt_path_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return bt_strdup(".");
    size_t n = slash == path ? 1 : (size_t)(slash - path); /* "/file" lies in "/" */
    char *folder = bt_malloc(n + 1, 1);
    if (folder == NULL) return NULL;
    memcpy(folder, path, n);
    folder[n] = '\0';
    return folder;
}

/* ---- outputs --------------------------------------------------------------------------------------------------------
 */

struct bt_output {
    char *path;      /* the name to appear under */
    char *temporary; /* the name it has until then; NULL: written in place (a device, a FIFO) */
    int fd;
    mode_t mode;     /* of a new file, less the umask */
    bool holds_name; /* an empty file of ours lies at path */
    size_t used;
    char buffer[OUTPUT_BYTES];
};

static void output_free(bt_output *o)
{
    if (o->fd >= 0) (void)close(o->fd);
    bt_free(o->path);
    bt_free(o->temporary);
    bt_free(o);
}

/* Opens a new file beside o->path. O_EXCL rather than mkstemp: the umask then applies as it should. */
static bt_status open_temporary(bt_output *o, bt_error *e)
{
    const char *slash = strrchr(o->path, '/');
    const char *name = slash == NULL ? o->path : slash + 1;
    size_t bytes = strlen(o->path) + 32;
    o->temporary = bt_malloc(bytes, 1);
    if (o->temporary == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory to write it", o->path);
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + (uint64_t)getpid() * 0x10001u;
    for (uint64_t try_i = 0; try_i < N_TEMPORARY_TRIES; try_i++) {
        (void)snprintf(o->temporary, bytes, "%.*s.%.200s.%08x.tmp", (int)(name - o->path), o->path, name,
                       (unsigned)(bt_rng_u64(seed, try_i) & 0xffffffffu));
        o->fd = bt_io_open_as(o->temporary, O_WRONLY | O_CREAT | O_EXCL, o->mode);
        if (o->fd >= 0) return BT_OK;
        if (errno != EEXIST) break;
    }
    int fault = errno;
    bt_free(o->temporary);
    o->temporary = NULL;
    return fail_errno(e, o->path, "cannot create it", fault);
}

static bt_status output_open(bt_output *o, const char *path, bt_error *e)
{
    struct stat info;
    bool exists = bt_io_stat(path, &info) == 0;
    if (!exists && !means_absent(errno)) return fail_errno(e, path, "cannot examine", errno);
    if (exists && S_ISDIR(info.st_mode)) return bt_fail(e, BT_ERR_IO, "%s is a folder, where a file is needed", path);
    char *real = exists ? realpath(path, NULL) : NULL; /* a link stays a link: its target is what gets replaced */
    o->path = bt_strdup(real != NULL ? real : path);
    free(real);
    if (o->path == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory to write it", path);
    if (!exists || S_ISREG(info.st_mode)) return open_temporary(o, e);
    o->fd = bt_io_open(path, O_WRONLY);
    return o->fd < 0 ? fail_errno(e, path, "cannot open it for writing", errno) : BT_OK;
}

static bt_status output_new(const char *path, mode_t mode, bt_output **out, bt_error *e)
{
    bt_output *o = bt_malloc(1, sizeof *o);
    if (o == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory to write it", path);
    o->path = NULL;
    o->temporary = NULL;
    o->fd = -1;
    o->mode = mode;
    o->holds_name = false;
    o->used = 0;
    bt_status st = output_open(o, path, e);
    if (st != BT_OK) {
        output_free(o);
        return st;
    }
    *out = o;
    return BT_OK;
}

bt_status bt_output_open(const char *path, bt_output **out, bt_error *e)
{
    return output_new(path, 0666, out, e);
}

bt_status bt_output_open_private(const char *path, bt_output **out, bt_error *e)
{
    struct stat info;
    bool replaces = bt_io_stat(path, &info) == 0 && S_ISREG(info.st_mode);
    bt_status st = output_new(path, 0600, out, e);
    if (st == BT_OK && replaces) (void)fchmod((*out)->fd, info.st_mode & 0777); /* if not: it stays private */
    return st;
}

/* Links count as taken wherever they lead: O_EXCL looks at the name alone. */
bt_status bt_output_open_new(const char *path, bool *is_taken, bt_output **out, bt_error *e)
{
    int fd = bt_io_open(path, O_WRONLY | O_CREAT | O_EXCL);
    *is_taken = fd < 0 && errno == EEXIST;
    if (fd < 0) return fail_errno(e, path, "cannot create it", errno);
    (void)bt_io_close(fd);
    bt_status st = bt_output_open(path, out, e);
    if (st == BT_OK)
        (*out)->holds_name = true;
    else
        (void)unlink(path);
    return st;
}

static bt_status write_all(bt_output *o, const char *from, size_t n, bt_error *e)
{
    while (n > 0) {
        ssize_t done = bt_io_write(o->fd, from, n);
        if (done <= 0) return fail_errno(e, o->path, "cannot write", done < 0 ? errno : EIO);
        from += done;
        n -= (size_t)done;
    }
    return BT_OK;
}

static bt_status flush(bt_output *o, bt_error *e)
{
    size_t n = o->used;
    o->used = 0;
    return write_all(o, o->buffer, n, e);
}

bt_status bt_output_write(bt_output *o, const void *data, size_t size, bt_error *e)
{
    if (size > OUTPUT_BYTES - o->used) {
        bt_status st = flush(o, e);
        if (st != BT_OK) return st;
    }
    if (size >= OUTPUT_BYTES) return write_all(o, data, size, e);
    if (size > 0) memcpy(o->buffer + o->used, data, size);
    o->used += size;
    return BT_OK;
}

/* The rename itself reaches the disk with its folder. Best effort: not every file system can sync a folder. */
static void sync_folder(const char *path)
{
    char *folder = bt_path_folder(path);
    int fd = folder == NULL ? -1 : bt_io_open(folder, O_RDONLY | O_DIRECTORY);
    if (fd >= 0) {
        (void)bt_io_sync(fd);
        (void)close(fd);
    }
    bt_free(folder);
}

static void remove_unfinished(const bt_output *o)
{
    if (o->temporary != NULL) (void)unlink(o->temporary);
    if (o->holds_name) (void)unlink(o->path);
}

bt_status bt_output_commit(bt_output *o, bt_error *e)
{
    bt_status st = flush(o, e);
    if (st == BT_OK && o->temporary != NULL && bt_io_sync(o->fd) != 0) {
        st = fail_errno(e, o->path, "cannot write to disk", errno);
    }
    int closed = bt_io_close(o->fd); /* network file systems tell of a full disk here */
    o->fd = -1;
    if (st == BT_OK && closed != 0) st = fail_errno(e, o->path, "cannot finish writing", errno);
    if (st == BT_OK && o->temporary != NULL) {
        if (bt_io_rename(o->temporary, o->path) != 0) {
            st = fail_errno(e, o->path, "cannot rename the finished file", errno);
        } else {
            sync_folder(o->path);
        }
    }
    if (st != BT_OK) remove_unfinished(o);
    output_free(o);
    return st;
}

void bt_output_abandon(bt_output *o)
{
    if (o == NULL) return;
    remove_unfinished(o);
    output_free(o);
}
