/* The file of what was typed; see line_history.h. */
#include "app/line_history.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/json.h"

static const char FIRST_LINE[] = "_HiStOrY_V2_\n"; /* of libedit's files */
enum { FIRST_BYTES = sizeof FIRST_LINE - 1, N_OPEN_TRIES = 1000, OTHERS = 077 };
#define TRIM_BYTES_MAX ((size_t)1 << 28)

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* 1: it is empty or begins as libedit's do; 0; -1 with errno. */
static int begins_right(int fd)
{
    char begin[FIRST_BYTES];
    ssize_t n = pread(fd, begin, FIRST_BYTES, 0);
    if (n < 0) return -1;
    return n == 0 || (n == FIRST_BYTES && memcmp(begin, FIRST_LINE, FIRST_BYTES) == 0);
}

bt_status bt_line_history_look(const char *path, bool *is_kept, bt_error *e)
{
    struct stat s = {.st_mode = 0};
    *is_kept = false;
    int fd = bt_io_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT) *is_kept = true;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return BT_OK;
    int right = fd < 0 || bt_io_fstat(fd, &s) != 0 ? -1 : 0;
    if (S_ISREG(s.st_mode)) right = begins_right(fd);
    int fault = errno;
    if (fd >= 0) (void)close(fd);
    if (right < 0) return bt_fail(e, BT_ERR_IO, "%s cannot be read: %s", path, strerror(fault));
    *is_kept = right == 1;
    if (*is_kept || S_ISCHR(s.st_mode)) return BT_OK;
    return bt_fail(e, BT_ERR_FORMAT, "%s is a file of another kind", path);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Opens the history and locks it, which lasts until it is closed. -1: it is none that may be written. */
static int open_locked(const char *path, struct stat *s, bool *is_locked)
{
    for (int try_i = 0; try_i < N_OPEN_TRIES; try_i++) {
        struct stat there;
        int fd = bt_io_open_as(path, O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY, 0600);
        if (fd < 0) return -1;
        bool is_ours = bt_io_fstat(fd, s) == 0 && S_ISREG(s->st_mode);
        *is_locked = is_ours && flock(fd, LOCK_EX) == 0;
        /* While this waited others wrote, or put another file in its place. */
        bool is_there = is_ours && bt_io_fstat(fd, s) == 0 && bt_io_stat(path, &there) == 0 && is_same(s, &there);
        if (is_there && begins_right(fd) == 1) {
            if ((s->st_mode & OTHERS) != 0) (void)fchmod(fd, 0600); /* for its owner alone */
            return fd;
        }
        (void)close(fd);
        if (!is_ours || is_there) return -1;
    }
    return -1;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* As strvis(3) writes them with VIS_WHITE: what is no graphic character is a number of three octal digits. */
static void add_line(bt_text *t, const char *line, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c == '\\')
            bt_text_puts(t, "\\\\");
        else if (c <= ' ' || c == 0x7f)
            bt_text_printf(t, "\\%03o", c);
        else
            bt_text_add(t, line + i, 1);
    }
    bt_text_puts(t, "\n");
}

void bt_line_history_append(const char *path, const char *line, size_t size)
{
    bt_text t = {0};
    struct stat s;
    bool is_locked;
    int fd = open_locked(path, &s, &is_locked);
    if (fd < 0) return;
    char last = '\n';
    if (s.st_size == 0)
        bt_text_puts(&t, FIRST_LINE);
    else if (pread(fd, &last, 1, s.st_size - 1) == 1 && last != '\n')
        bt_text_puts(&t, "\n"); /* the line before was cut off, or written by hand */
    add_line(&t, line, size);
    if (bt_text_ok(&t)) {
        ssize_t n = bt_io_write(fd, t.data, t.size);
        if (n != (ssize_t)t.size && is_locked) (void)!ftruncate(fd, s.st_size); /* a full disk takes half a line */
    }
    bt_text_free(&t);
    (void)close(fd);
}

/* Puts a file with the first line and `lines` in the place of the history. */
static void replace(const char *path, const char *lines, size_t size)
{
    bt_output *o = NULL;
    if (bt_output_open_private(path, &o, NULL) != BT_OK) return;
    bt_status st = bt_output_write(o, FIRST_LINE, FIRST_BYTES, NULL);
    if (st == BT_OK) st = bt_output_write(o, lines, size, NULL);
    if (st == BT_OK)
        (void)bt_output_commit(o, NULL);
    else
        bt_output_abandon(o);
}

void bt_line_history_trim(const char *path, size_t n_lines)
{
    struct stat s;
    bool is_locked;
    char *data = NULL;
    size_t size = 0;
    int fd = open_locked(path, &s, &is_locked);
    if (fd < 0) return;
    bool is_mine = s.st_uid == geteuid(); /* the new file is */
    if (is_locked && is_mine && bt_read_file(path, TRIM_BYTES_MAX, &data, &size, NULL) == BT_OK && size > FIRST_BYTES) {
        size_t from = size, n = 0;
        while (from > FIRST_BYTES && (data[from - 1] != '\n' || from == size || ++n < n_lines)) from--;
        if (from > FIRST_BYTES) replace(path, data + from, size - from);
    }
    bt_free(data);
    (void)close(fd);
}
