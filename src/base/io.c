/*
 * System calls for files; see io.h. Why a door and not the calls themselves: a disk fails at a moment of its own
 * choosing, and whether every caller notices can only be shown by failing each call in turn. And EINTR, which a network
 * file system may answer to any of these, is then dealt with in one place.
 */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef BT_TEST_BUILD
#    include <stdatomic.h>

static atomic_long n_until_fault = -1;
static atomic_int planted_fault;
static atomic_bool has_failed;
static atomic_size_t n_opened, n_mapped;

void bt_io_fail_after(long n, bt_io_fault fault)
{
    atomic_store(&planted_fault, (int)fault);
    atomic_store(&has_failed, false);
    atomic_store(&n_until_fault, n);
}

bool bt_io_has_failed(void)
{
    return atomic_load(&has_failed);
}

size_t bt_io_n_opened(void)
{
    return atomic_load(&n_opened);
}

size_t bt_io_n_mapped(void)
{
    return atomic_load(&n_mapped);
}

#    define COUNT(n) (void)atomic_fetch_add(&(n), 1)

/* Every call begins here: whether it is the one to fail; then errno is set. *n, where given, is what it may move. */
static bool planted(size_t *n)
{
    if (atomic_load(&n_until_fault) < 0 || atomic_fetch_sub(&n_until_fault, 1) != 0) return false;
    atomic_store(&has_failed, true);
    bt_io_fault fault = (bt_io_fault)atomic_load(&planted_fault);
    if (fault == BT_IO_SHORT) {
        if (n != NULL && *n > 1) *n = 1;
        return false;
    }
    errno = fault == BT_IO_ERROR ? EIO : EINTR;
    return true;
}
#else
#    define COUNT(n) (void)0

static bool planted(size_t *n)
{
    (void)n;
    return false;
}
#endif

int bt_io_open_as(const char *path, int flags, mode_t mode)
{
    int fd;
    COUNT(n_opened);
    do fd = planted(NULL) ? -1 : open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int bt_io_open(const char *path, int flags)
{
    return bt_io_open_as(path, flags, 0666);
}

int bt_io_close(int fd)
{
    bool fails = planted(NULL); /* the descriptor is gone all the same, as it is in earnest: never close twice */
    int result = close(fd);
    if (fails && errno != EINTR) return -1;
    return result != 0 && errno == EINTR ? 0 : result;
}

int bt_io_stat(const char *path, struct stat *s)
{
    int result;
    do result = planted(NULL) ? -1 : stat(path, s);
    while (result != 0 && errno == EINTR);
    return result;
}

int bt_io_fstat(int fd, struct stat *s)
{
    int result;
    do result = planted(NULL) ? -1 : fstat(fd, s);
    while (result != 0 && errno == EINTR);
    return result;
}

void *bt_io_map(int fd, size_t size)
{
    void *p;
    COUNT(n_mapped);
    do p = planted(NULL) ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    while (p == MAP_FAILED && errno == EINTR);
    return p == MAP_FAILED ? NULL : p;
}

ssize_t bt_io_read(int fd, void *to, size_t n)
{
    ssize_t got;
    do got = planted(&n) ? -1 : read(fd, to, n);
    while (got < 0 && errno == EINTR);
    return got;
}

ssize_t bt_io_write(int fd, const void *from, size_t n)
{
    ssize_t done;
    do done = planted(&n) ? -1 : write(fd, from, n);
    while (done < 0 && errno == EINTR);
    return done;
}

ssize_t bt_io_write_at(int fd, const void *from, size_t n, uint64_t at)
{
    ssize_t done;
    do done = planted(&n) ? -1 : pwrite(fd, from, n, (off_t)at);
    while (done < 0 && errno == EINTR);
    return done;
}

int bt_io_sync(int fd)
{
    int result;
    do result = planted(NULL) ? -1 : fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

int bt_io_rename(const char *from, const char *to)
{
    int result;
    do result = planted(NULL) ? -1 : rename(from, to);
    while (result != 0 && errno == EINTR);
    return result;
}

DIR *bt_io_open_folder(const char *path)
{
    DIR *folder;
    do folder = planted(NULL) ? NULL : opendir(path);
    while (folder == NULL && errno == EINTR);
    return folder;
}

int bt_io_next_name(DIR *folder, const char **name)
{
    const struct dirent *entry;
    do {
        errno = 0; /* NULL means the end, or a fault: only errno tells which */
        entry = planted(NULL) ? NULL : readdir(folder);
    } while (entry == NULL && errno == EINTR);
    if (entry == NULL) return errno == 0 ? 0 : -1;
    *name = entry->d_name;
    return 1;
}
