/* What every unit test includes: cmocka with the headers that it wants before it, and a folder that goes away. */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A fresh folder below $TMPDIR (or /tmp); the caller frees the string and calls unit_remove_folder. */
static inline char *unit_make_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *path = malloc(4096);
    assert_non_null(path);
    (void)snprintf(path, 4096, "%s/baltoro-test-XXXXXX", base != NULL && base[0] != '\0' ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void unit_remove_folder(const char *path)
{
    char command[4200];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static inline void unit_write_file(const char *folder, const char *name, const void *data, size_t size)
{
    char path[4400];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* Runs fn in a child; true if it died by abort. */
static inline bool unit_aborts(void (*fn)(const void *), const void *with)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        (void)signal(SIGABRT, SIG_DFL); /* cmocka has one */
        fn(with);
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
}

/* Folder of the shared fixtures, or NULL: then the test counts itself skipped. */
static inline const char *unit_fixtures(void)
{
    const char *path = getenv("BALTORO_FIXTURES");
    if (path == NULL || path[0] == '\0') path = "../shared/fixtures";
    return access(path, R_OK) == 0 ? path : NULL;
}

#endif
