/*
 * Conditions of a measurement, read from /proc and /sys. Nothing here fails: what cannot be read is "unknown" or 0, and
 * the report says so.
 */
#include "tool/bench_machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"

#define TEXT_BYTES_MAX ((size_t)1 << 20)
#define PAGES_AT_ONCE  ((size_t)1 << 18)

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t size;
    return bt_read_file(path, TEXT_BYTES_MAX, &text, &size, NULL) == BT_OK ? text : NULL;
}

/* The first line of a file, or "unknown". */
static void read_line(const char *path, char *line, size_t size)
{
    char *text = read_text(path);
    (void)snprintf(line, size, "%.*s", text == NULL ? 7 : (int)strcspn(text, "\n"), text == NULL ? "unknown" : text);
    bt_free(text);
}

void bt_bench_load_average(double load[3])
{
    if (getloadavg(load, 3) != 3) load[0] = load[1] = load[2] = 0;
}

void bt_bench_look_around(bt_bench_conditions *c)
{
    struct utsname name;
    struct tm utc;
    time_t now = time(NULL);
    memset(c, 0, sizeof *c);
    if (gmtime_r(&now, &utc) == NULL || strftime(c->date, sizeof c->date, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        (void)snprintf(c->date, sizeof c->date, "unknown");
    read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", c->governor, sizeof c->governor);
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", c->huge_pages, sizeof c->huge_pages);
    (void)snprintf(c->kernel, sizeof c->kernel, "%s", uname(&name) == 0 ? name.release : "unknown");
    bt_machine_read("", &c->machine);
    bt_bench_load_average(c->load_begin);
}

/* "RssAnon:    1234 kB" in /proc/self/status, in bytes; 0: there is none. */
static uint64_t status_bytes(const char *text, const char *key)
{
    const char *at = text == NULL ? NULL : strstr(text, key);
    uint64_t kilobytes = 0;
    if (at == NULL) return 0;
    at += strlen(key);
    at += strspn(at, ": \t");
    if (!bt_json_u64(at, strspn(at, "0123456789"), &kilobytes) || kilobytes > UINT64_MAX / 1024) return 0;
    return kilobytes * 1024;
}

bt_bench_memory bt_bench_memory_now(void)
{
    char *text = read_text("/proc/self/status");
    bt_bench_memory m = {
        .private = status_bytes(text, "\nRssAnon"),
        .mapped = status_bytes(text, "\nRssFile"),
        .peak = status_bytes(text, "\nVmHWM"),
    };
    bt_free(text);
    return m;
}

/* ---- files in the page cache ------------------------------------------------------------------------------------ */

typedef void (*file_fn)(void *user, int fd, size_t size);

static void with_file(const char *path, file_fn fn, void *user)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) fn(user, fd, (size_t)info.st_size);
    (void)close(fd);
}

static bool is_weights(const char *name)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(name), m = sizeof end - 1;
    return n > m && strcmp(name + n - m, end) == 0;
}

static void for_files(const char *path, file_fn fn, void *user)
{
    DIR *folder = bt_path_is_folder(path) ? opendir(path) : NULL;
    if (folder == NULL) {
        with_file(path, fn, user);
        return;
    }
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (!is_weights(entry->d_name)) continue;
        char *file = bt_path_join(path, entry->d_name);
        if (file != NULL) with_file(file, fn, user);
        bt_free(file);
    }
    (void)closedir(folder);
}

static void forget(void *user, int fd, size_t size)
{
    (void)user;
    (void)size;
    (void)fdatasync(fd); /* only clean pages can go */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

void bt_bench_forget_files(const char *path)
{
    for_files(path, forget, NULL);
}

typedef struct residence {
    uint64_t n_pages, n_cached;
    unsigned char *flags; /* [PAGES_AT_ONCE] */
    size_t page;
} residence;

static void count_cached(void *user, int fd, size_t size)
{
    residence *r = user;
    uint8_t *data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return;
    for (size_t at = 0; at < size; at += PAGES_AT_ONCE * r->page) {
        size_t part = size - at < PAGES_AT_ONCE * r->page ? size - at : PAGES_AT_ONCE * r->page;
        size_t n = (part + r->page - 1) / r->page;
        if (mincore(data + at, part, r->flags) != 0) break;
        for (size_t i = 0; i < n; i++) r->n_cached += r->flags[i] & 1u;
        r->n_pages += n;
    }
    (void)munmap(data, size);
}

double bt_bench_cached(const char *path)
{
    long page = sysconf(_SC_PAGESIZE);
    residence r = {.page = page > 0 ? (size_t)page : 4096, .flags = bt_malloc(PAGES_AT_ONCE, 1)};
    if (r.flags != NULL) for_files(path, count_cached, &r);
    bt_free(r.flags);
    return r.n_pages == 0 ? 0 : (double)r.n_cached / (double)r.n_pages;
}
