/* The file of what was typed: what may be one, lines of many writers at once, and shortening it, which may fail. */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "app/line_history.h"
#include "base/file.h"
#include "base/io.h"
#include "base/json.h"

#define FIRST_LINE "_HiStOrY_V2_\n"
enum { N_WRITERS = 4, N_LINES = 200, LONG_LINE = 20000 }; /* longer than what stdio would write at once */

typedef struct history_folder {
    char *folder;
    char path[4400];
} history_folder;

static void open_folder(history_folder *h)
{
    h->folder = unit_make_folder();
    (void)snprintf(h->path, sizeof h->path, "%s/history", h->folder);
}

static void close_folder(history_folder *h)
{
    unit_remove_folder(h->folder);
    free(h->folder);
}

static void put(history_folder *h, const char *text)
{
    unit_write_file(h->folder, "history", text, strlen(text));
}

static char *content(const history_folder *h, size_t *size)
{
    char *data = NULL;
    bt_error e;
    assert_int_equal(bt_read_file(h->path, (size_t)1 << 30, &data, size, &e), BT_OK);
    return data;
}

static void expect_content(const history_folder *h, const char *text)
{
    size_t size;
    char *data = content(h, &size);
    assert_string_equal(data, text);
    bt_free(data);
}

static void append(const history_folder *h, const char *line)
{
    bt_line_history_append(h->path, line, strlen(line));
}

/* What is looked at, and that a line more does nothing to it where none is kept. */
static void expect_look(history_folder *h, bool is_kept, const char *message)
{
    struct stat before = {.st_mode = 0}, after = {.st_mode = 0};
    bt_error e;
    bool got = !is_kept;
    bt_status st = bt_line_history_look(h->path, &got, &e);
    assert_int_equal(st == BT_OK, message == NULL);
    if (message != NULL) assert_non_null(strstr(e.message, message));
    assert_int_equal(got, is_kept);
    if (is_kept) return;
    (void)stat(h->path, &before);
    append(h, "x");
    bt_line_history_trim(h->path, 1);
    (void)stat(h->path, &after);
    assert_int_equal(before.st_mode, after.st_mode);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(before.st_size, after.st_size);
}

static void test_kinds(void **state)
{
    (void)state;
    history_folder h;
    open_folder(&h);
    expect_look(&h, true, NULL);
    put(&h, "");
    expect_look(&h, true, NULL);
    put(&h, FIRST_LINE "a\n");
    expect_look(&h, true, NULL);
    put(&h, "mine\n");
    expect_look(&h, false, "history is a file of another kind");
    put(&h, "_HiStOrY");
    expect_look(&h, false, "history is a file of another kind");
    if (geteuid() != 0) {
        assert_int_equal(chmod(h.path, 0), 0);
        expect_look(&h, false, "history cannot be read: Permission denied");
    }
    assert_int_equal(unlink(h.path), 0);
    assert_int_equal(mkfifo(h.path, 0644), 0);
    expect_look(&h, false, "history is a file of another kind");
    assert_int_equal(unlink(h.path), 0);
    assert_int_equal(mkdir(h.path, 0755), 0);
    expect_look(&h, false, "history is a file of another kind");
    assert_int_equal(rmdir(h.path), 0);
    assert_int_equal(symlink("history", h.path), 0);
    expect_look(&h, false, "history cannot be read: ");
    assert_int_equal(unlink(h.path), 0);

    int master = posix_openpt(O_RDWR | O_NOCTTY); /* a device of this test's own */
    assert_true(master >= 0);
    assert_int_equal(grantpt(master) | unlockpt(master), 0);
    assert_int_equal(symlink(ptsname(master), h.path), 0);
    expect_look(&h, false, NULL);
    (void)close(master);
    assert_int_equal(unlink(h.path), 0);

    put(&h, "mine\n");
    (void)snprintf(h.path, sizeof h.path, "%s/history/history", h.folder);
    expect_look(&h, false, NULL);
    close_folder(&h);
}

static void test_append(void **state)
{
    (void)state;
    history_folder h;
    struct stat s;
    open_folder(&h);
    append(&h, "one two\\three");
    append(&h, "\xc3\xa9\nb\t\x7f");
    expect_content(&h, FIRST_LINE "one\\040two\\\\three\n\xc3\xa9\\012b\\011\\177\n");
    assert_int_equal(stat(h.path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);

    put(&h, FIRST_LINE "cut");
    assert_int_equal(chmod(h.path, 0644), 0);
    append(&h, "next");
    expect_content(&h, FIRST_LINE "cut\nnext\n");
    assert_int_equal(stat(h.path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    close_folder(&h);
}

static void test_trim(void **state)
{
    (void)state;
    history_folder h;
    char other[4400];
    struct stat s;
    open_folder(&h);
    bt_line_history_trim(h.path, 2);
    put(&h, FIRST_LINE "a\nb\n");
    bt_line_history_trim(h.path, 2);
    expect_content(&h, FIRST_LINE "a\nb\n");
    put(&h, FIRST_LINE "a\nb\nc");
    bt_line_history_trim(h.path, 2);
    expect_content(&h, FIRST_LINE "b\nc");
    append(&h, "d");
    bt_line_history_trim(h.path, 2);
    expect_content(&h, FIRST_LINE "c\nd\n");

    (void)snprintf(other, sizeof other, "%s/other", h.folder);
    assert_int_equal(rename(h.path, other), 0);
    assert_int_equal(symlink("other", h.path), 0);
    bt_line_history_trim(h.path, 1);
    expect_content(&h, FIRST_LINE "d\n");
    assert_int_equal(lstat(h.path, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    close_folder(&h);
}

/* One of the writers: its lines are as long as they come, each of one letter. */
static void write_lines(const history_folder *h, size_t writer_i)
{
    char line[LONG_LINE + 16];
    for (size_t i = 0; i < N_LINES; i++) {
        size_t n = i % 10 == 0 ? LONG_LINE : 5;
        memset(line, (int)('a' + writer_i), n);
        (void)snprintf(line + n, 16, "%zu", i);
        append(h, line);
    }
    _exit(0);
}

static void start_writers(const history_folder *h)
{
    (void)fflush(NULL);
    for (size_t w = 0; w < N_WRITERS; w++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) write_lines(h, w);
    }
}

/* All lines of all writers are there, whole, each writer's in order; old ones are a dash. */
static void expect_all_lines(const history_folder *h)
{
    size_t size, next[N_WRITERS] = {0};
    char *data = content(h, &size), *rest = NULL;
    assert_memory_equal(data, FIRST_LINE, strlen(FIRST_LINE));
    for (char *line = strtok_r(data + strlen(FIRST_LINE), "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strcmp(line, "-") == 0) continue;
        size_t w = (size_t)(line[0] - 'a');
        assert_true(w < N_WRITERS);
        size_t n = strspn(line, (char[]){line[0], '\0'});
        assert_int_equal(strtoul(line + n, NULL, 10), next[w]);
        assert_int_equal(n, next[w] % 10 == 0 ? LONG_LINE : 5);
        next[w]++;
    }
    for (size_t w = 0; w < N_WRITERS; w++) assert_int_equal(next[w], N_LINES);
    bt_free(data);
}

/* Lines that many write at once, the first ones too. */
static void test_many(void **state)
{
    (void)state;
    history_folder h;
    open_folder(&h);
    start_writers(&h);
    while (wait(NULL) > 0) {
    }
    expect_all_lines(&h);
    close_folder(&h);
}

/* And while the file is shortened again and again. */
static void test_many_trimmed(void **state)
{
    (void)state;
    history_folder h;
    bt_text old = {0};
    open_folder(&h);
    bt_text_puts(&old, FIRST_LINE);
    for (int i = 0; i < 5000; i++) bt_text_puts(&old, "-\n");
    assert_true(bt_text_ok(&old));
    put(&h, old.data);
    bt_text_free(&old);
    start_writers(&h);
    size_t n_lines = 5000, n_least = (size_t)N_WRITERS * N_LINES;
    for (int n_left = N_WRITERS; n_left > 0;) {
        if (n_lines > n_least) n_lines--;
        bt_line_history_trim(h.path, n_lines);
        (void)usleep(1000); /* a writer that finds a new file each time that it has the lock would give up */
        while (n_left > 0 && waitpid(-1, NULL, WNOHANG) > 0) n_left--;
    }
    expect_all_lines(&h);
    close_folder(&h);
}

/* Whatever call fails, the file is as it was or as it should become. */
static void test_faults(void **state)
{
    (void)state;
#ifdef BT_TEST_BUILD
    history_folder h;
    open_folder(&h);
    for (int trims = 0; trims < 2; trims++) {
        bool failed = true;
        for (long n = 0; failed; n++) {
            for (bt_io_fault fault = BT_IO_ERROR; fault <= BT_IO_INTERRUPT; fault++) {
                size_t size;
                put(&h, FIRST_LINE "a\nb\n");
                bt_io_fail_after(n, fault);
                if (trims)
                    bt_line_history_trim(h.path, 1);
                else
                    append(&h, "c");
                failed = bt_io_has_failed();
                bt_io_fail_after(-1, BT_IO_ERROR);
                char *data = content(&h, &size);
                bool is_done = strcmp(data, trims ? FIRST_LINE "b\n" : FIRST_LINE "a\nb\nc\n") == 0;
                assert_true(is_done || (fault != BT_IO_INTERRUPT && strcmp(data, FIRST_LINE "a\nb\n") == 0));
                bt_free(data);
            }
            assert_true(n < 100);
        }
    }
    assert_int_equal(unlink(h.path), 0);
    assert_int_equal(rmdir(h.folder), 0); /* nothing lies beside it */
    free(h.folder);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds), cmocka_unit_test(test_append),       cmocka_unit_test(test_trim),
        cmocka_unit_test(test_many),  cmocka_unit_test(test_many_trimmed), cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
