/*
 * The system calls that files need, through one door: a call that a signal interrupted is begun again, nothing else is
 * changed, and the test build can make the n-th one fail. All but bt_io_map and bt_io_next_name return what the call
 * they are named after returns, with errno set.
 */
#ifndef BASE_IO_H
#define BASE_IO_H

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "baltoro.h"

int bt_io_open(const char *path, int flags); /* a new file gets mode 0666, less the umask */
int bt_io_open_as(const char *path, int flags, mode_t mode);
int bt_io_close(int fd);
int bt_io_stat(const char *path, struct stat *s);
int bt_io_fstat(int fd, struct stat *s);
void *bt_io_map(int fd, size_t size); /* read-only and shared; NULL with errno */
ssize_t bt_io_read(int fd, void *to, size_t n);
ssize_t bt_io_write(int fd, const void *from, size_t n);
ssize_t bt_io_write_at(int fd, const void *from, size_t n, uint64_t at);
int bt_io_sync(int fd);
int bt_io_rename(const char *from, const char *to);
DIR *bt_io_open_folder(const char *path);
/* The next name in a folder, borrowed until the next call: 1, 0 at its end, -1 with errno. */
int bt_io_next_name(DIR *folder, const char **name);

#ifdef BT_TEST_BUILD
typedef enum bt_io_fault {
    BT_IO_ERROR,     /* fails with EIO */
    BT_IO_SHORT,     /* reads or writes one byte only; other calls are left alone */
    BT_IO_INTERRUPT, /* EINTR, once */
} bt_io_fault;
/* The call after n more ones is faulty, once (0: the next one); a negative n calls it off. All threads count. */
void bt_io_fail_after(long n, bt_io_fault fault);
bool bt_io_has_failed(void); /* whether that call was made since */
size_t bt_io_n_opened(void); /* files opened so far, and mapped; every time counts */
size_t bt_io_n_mapped(void);
#endif

#endif
