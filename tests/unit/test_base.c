/* base/: errors, memory, UTF-8, random numbers, log, files, text. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/utf8.h"

static char *join(const char *folder, const char *name)
{
    char *path = bt_path_join(folder, name);
    assert_non_null(path);
    return path;
}

/* ---- errors ---------------------------------------------------------------------------------------------------------
 */

static void error_is_filled_and_cleaned(void **state)
{
    (void)state;
    bt_error e = {.status = BT_OK};
    assert_int_equal(bt_fail(&e, BT_ERR_FORMAT, "%s: %d", "a\nb\x1b[31m\x7f\xc2\x85\xff\xc3\xa9", 7), BT_ERR_FORMAT);
    assert_int_equal(e.status, BT_ERR_FORMAT);
    assert_string_equal(e.message, "a?b?[31m???\xc3\xa9: 7");
    assert_int_equal(bt_fail(NULL, BT_ERR_IO, "nobody listens"), BT_ERR_IO);
    /* An argument may be the old message. */
    assert_int_equal(bt_fail(&e, BT_ERR_IO, "again: %s", e.message), BT_ERR_IO);
    assert_string_equal(e.message, "again: a?b?[31m???\xc3\xa9: 7");
    assert_int_equal(bt_fail_in(&e, BT_ERR_IO, "%s", "file"), BT_ERR_IO);
    assert_string_equal(e.message, "file: again: a?b?[31m???\xc3\xa9: 7");
    assert_string_equal(bt_version(), BT_VERSION);
}

static void error_is_cut_at_a_character(void **state)
{
    (void)state;
    char text[BT_ERROR_BYTES_MAX + 100];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'x', sizeof text);
        for (size_t i = shift; i + 3 <= sizeof text; i += 3) memcpy(text + i, "\xe2\x82\xac", 3);
        text[sizeof text - 1] = '\0';
        bt_error e;
        (void)bt_fail(&e, BT_ERR_IO, "%s", text);
        size_t n = strlen(e.message);
        assert_true(n < BT_ERROR_BYTES_MAX && n >= BT_ERROR_BYTES_MAX - 4);
        assert_int_equal(bt_utf8_valid_prefix(e.message, n), n);
        (void)bt_fail_in(&e, BT_ERR_IO, "%s", "prefix");
        n = strlen(e.message);
        assert_memory_equal(e.message, "prefix: ", 8);
        assert_int_equal(bt_utf8_valid_prefix(e.message, n), n);
    }
}

static void fault_list_names_what_fits(void **state)
{
    (void)state;
    bt_fault_list l = {.used = 0};
    assert_string_equal(bt_fault_text(&l), "");
    bt_fault_add(&l, "%s", "one");
    bt_fault_add(&l, "two (%d)", 2);
    assert_string_equal(bt_fault_text(&l), "one, two (2)");
    for (size_t i = 2; i < 10000; i++) bt_fault_add(&l, "tensor.%zu", i);
    const char *text = bt_fault_text(&l);
    char end[64];
    (void)snprintf(end, sizeof end, "tensor.%zu and %zu more", l.n_named - 1, 10000 - l.n_named);
    assert_true(strlen(text) < sizeof l.text);
    assert_string_equal(text + strlen(text) - strlen(end), end);
    assert_string_equal(bt_fault_text(&l), text); /* asking twice changes nothing */

    bt_fault_list one = {.used = 0}; /* a huge name leaves room for the next */
    char huge[1000];
    memset(huge, 'n', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    bt_fault_add(&one, "%s", huge);
    bt_fault_add(&one, "next");
    text = bt_fault_text(&one);
    assert_true(strlen(text) < 300);
    assert_string_equal(text + strlen(text) - 9, "..., next");
}

/* ---- memory ---------------------------------------------------------------------------------------------------------
 */

static void products_are_checked(void **state)
{
    (void)state;
    assert_null(bt_malloc(SIZE_MAX / 2, 3));
    assert_null(bt_calloc(SIZE_MAX / 2, 3));
    assert_null(bt_malloc(SIZE_MAX / 2 + 2, 2)); /* wraps to 2 */
    assert_null(bt_calloc(SIZE_MAX / 2 + 2, 2));
    void *p = bt_malloc(0, 8);
    assert_non_null(p);
    assert_null(bt_realloc(p, SIZE_MAX, 2));
    bt_free(p); /* still valid */
    bt_arena *a = bt_arena_new();
    assert_null(bt_arena_alloc(a, SIZE_MAX / 4, 8));
    assert_null(bt_arena_alloc(a, SIZE_MAX / 2 + 2, 2));
    assert_null(bt_arena_alloc(a, 1, SIZE_MAX - 8));
    assert_non_null(bt_arena_alloc(a, 0, 8));
    bt_arena_free(a);
    bt_arena_free(NULL);
    assert_null(bt_pages_alloc(SIZE_MAX));
    assert_null(bt_pages_alloc(SIZE_MAX - ((size_t)3 << 20)));
}

static void arena_is_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    assert_non_null(a);
    unsigned char *before = NULL;
    size_t total = 0;
    for (size_t i = 1; i < 3000; i++) {
        size_t n = i * 7 % 5000 + 1;
        total += n;
        unsigned char *p = bt_arena_alloc(a, n, 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t k = 0; k < n; k++) assert_int_equal(p[k], 0);
        memset(p, 0xff, n);
        if (before != NULL) assert_int_equal(before[0], 0xff);
        before = p;
        char *s = bt_arena_strndup(a, "abc\0def", i % 8);
        assert_int_equal(s[i % 8], 0);
        assert_memory_equal(s, "abc\0def", i % 8);
    }
    assert_true(bt_arena_bytes(a) > total);
    assert_true(bt_arena_bytes(a) < total + total / 16 + (2u << 20));
    bt_arena_free(a);
}

static void pages_are_zeroed_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, 4097, (4u << 20) - 1, 4u << 20, (9u << 20) + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = bt_pages_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (sizes[i] >= 4u << 20 ? 2u << 20 : 64), 0);
        for (size_t k = 0; k < sizes[i]; k += 511) {
            assert_int_equal(p[k], 0);
            p[k] = 1;
        }
        if (sizes[i] > 0) p[sizes[i] - 1] = 1;
        bt_pages_free(p, sizes[i]);
    }
    bt_pages_free(NULL, 100);
}

static bt_arena *guarded_arena;
static void guarded_malloc(const void *none)
{
    (void)none;
    bt_guard_begin();
    bt_free(bt_malloc(1, 1));
}
static void guarded_arena_alloc(const void *none)
{
    (void)none;
    bt_guard_begin();
    (void)bt_arena_alloc(guarded_arena, 1, 1);
}
static void guarded_pages(const void *none)
{
    (void)none;
    bt_guard_begin();
    (void)bt_pages_alloc(1);
}
static void guarded_outer(const void *none)
{
    (void)none;
    bt_guard_begin();
    bt_guard_begin();
    bt_guard_end();
    (void)bt_strdup("x");
}
static void unguarded(const void *none)
{
    (void)none;
    bt_guard_begin();
    bt_guard_end();
    bt_free(bt_malloc(1, 1));
}

static void *allocate_elsewhere(void *arg)
{
    (void)arg;
    return bt_malloc(1, 1);
}

static void guard_turns_allocation_into_abort(void **state)
{
    (void)state;
    guarded_arena = bt_arena_new();
    assert_true(unit_aborts(guarded_malloc, NULL));
    assert_true(unit_aborts(guarded_arena_alloc, NULL));
    assert_true(unit_aborts(guarded_pages, NULL));
    assert_true(unit_aborts(guarded_outer, NULL));
    assert_false(unit_aborts(unguarded, NULL));
    bt_arena_free(guarded_arena);

    bt_guard_begin(); /* of this thread only */
    pthread_t other;
    void *p = NULL;
    assert_int_equal(pthread_create(&other, NULL, allocate_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(other, &p), 0);
    bt_guard_end();
    assert_non_null(p);
    bt_free(p);
}

static void planted_failures_come_once(void **state)
{
    (void)state;
#ifdef BT_TEST_BUILD
    bt_alloc_fail_after(1);
    void *p = bt_malloc(1, 1);
    assert_non_null(p);
    assert_null(bt_realloc(p, 2, 1));
    bt_free(p);
    p = bt_malloc(1, 1);
    assert_non_null(p);
    bt_free(p);
    bt_alloc_fail_after(-1);
#else
    skip();
#endif
}

/* ---- UTF-8 ----------------------------------------------------------------------------------------------------------
 */

static void utf8_round_trip_of_every_character(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        if (c >= 0xd800 && c <= 0xdfff) continue;
        char s[4];
        size_t n = bt_utf8_encode(c, s);
        uint32_t back = 0xffffffff;
        if (bt_utf8_decode(s, n, &back) != n || back != c) fail_msg("U+%04X", c);
        for (size_t k = 1; k < n; k++) {
            if (bt_utf8_decode(s, k, &back) != 0 || !bt_utf8_is_partial(s, k)) fail_msg("U+%04X cut to %zu", c, k);
        }
        if (bt_utf8_is_partial(s, n)) fail_msg("U+%04X is whole", c);
    }
}

static void utf8_faults_are_seen(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x80\x80",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\xfe",
        "\xc3(",
        "\xe2\x82(",
        "\xf0\x9f\x98(",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t c;
        size_t n = strlen(bad[i]);
        if (bt_utf8_decode(bad[i], n, &c) != 0) fail_msg("entry %zu is taken for a character", i);
        if (bt_utf8_is_partial(bad[i], n)) fail_msg("entry %zu is taken for a beginning", i);
        char text[16] = "ok";
        memcpy(text + 2, bad[i], n);
        assert_int_equal(bt_utf8_valid_prefix(text, n + 2), 2);
    }
    assert_int_equal(bt_utf8_valid_prefix("", 0), 0);
    assert_int_equal(bt_utf8_valid_prefix("a\0b", 3), 3); /* NUL is a character */
    assert_false(bt_utf8_is_partial("", 0));
    assert_false(bt_utf8_is_partial("\xed\xa0", 2)); /* begins a surrogate: hopeless already */
}

/* ---- random numbers -------------------------------------------------------------------------------------------------
 */

static void random_numbers_are_fixed_and_even(void **state)
{
    (void)state;
    assert_int_equal(bt_rng_u64(0, 0), bt_rng_u64(0, 0));
    assert_int_not_equal(bt_rng_u64(0, 0), bt_rng_u64(0, 1));
    assert_int_not_equal(bt_rng_u64(0, 1), bt_rng_u64(0x9e3779b97f4a7c15u, 0)); /* no shifted twins */
    /* The numbers are a promise: printed seeds must reproduce texts with later versions too. */
    assert_true(bt_rng_u64(0, 0) == 0x48218226ff3cd4bfu);
    assert_true(bt_rng_u64(42, 7) == 0x32028f50341ebd74u);
    double sum = 0, squares = 0, normal = 0, normal_squares = 0, before = 0, neighbours = 0;
    const double n = 100000;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = bt_rng_f64(1, i), z = (double)bt_rng_normal(1, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
        normal += z;
        normal_squares += z * z;
        neighbours += z * before;
        before = z;
    }
    assert_true(fabs(sum / n - 0.5) < 0.005);
    assert_true(fabs(squares / n - 1.0 / 3) < 0.005);
    assert_true(fabs(normal / n) < 0.015);
    assert_true(fabs(normal_squares / n - 1) < 0.02);
    assert_true(fabs(neighbours / n) < 0.015);
}

/* ---- files ----------------------------------------------------------------------------------------------------------
 */

static void paths_join_and_split(void **state)
{
    (void)state;
    static const char *const joins[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < 4; i++) {
        char *path = join(joins[i][0], joins[i][1]);
        assert_string_equal(path, joins[i][2]);
        bt_free(path);
    }
    static const char *const folders[][2] = {{"a/b", "a"}, {"b", "."}, {"/b", "/"}, {"a/b/", "a/b"}, {"/a/b", "/a"}};
    for (size_t i = 0; i < 5; i++) {
        char *folder = bt_path_folder(folders[i][0]);
        assert_string_equal(folder, folders[i][1]);
        bt_free(folder);
    }
}

static void files_are_mapped_and_read(void **state)
{
    (void)state;
    char *folder = unit_make_folder();
    unit_write_file(folder, "some", "hello\0you", 9);
    unit_write_file(folder, "none", "", 0);
    char *some = join(folder, "some"), *none = join(folder, "none"), *gone = join(folder, "gone");
    bt_error e = {.status = BT_OK};
    bt_mapping m;
    assert_int_equal(bt_map_file(some, &m, &e), BT_OK);
    assert_int_equal(m.size, 9);
    assert_memory_equal(m.data, "hello\0you", 9);
    bt_unmap_file(&m);
    assert_null(m.data);
    bt_unmap_file(&m);
    assert_int_equal(bt_map_file(none, &m, &e), BT_OK);
    assert_int_equal(m.size, 0);
    bt_unmap_file(&m);

    char *data;
    size_t size;
    assert_int_equal(bt_read_file(some, 9, &data, &size, &e), BT_OK);
    assert_int_equal(size, 9);
    assert_memory_equal(data, "hello\0you", 10);
    bt_free(data);
    assert_int_equal(bt_read_file(some, 8, &data, &size, &e), BT_ERR_FORMAT);
    assert_non_null(strstr(e.message, some));
    assert_non_null(strstr(e.message, "8 bytes"));
    assert_int_equal(bt_read_file(none, 0, &data, &size, &e), BT_OK);
    assert_int_equal(size, 0);
    bt_free(data);
    assert_int_equal(bt_read_file(gone, 8, &data, &size, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, gone));
    assert_int_equal(bt_map_file(gone, &m, &e), BT_ERR_IO);
    assert_int_equal(bt_map_file(folder, &m, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, "a folder"));
    assert_int_equal(bt_read_file(folder, 8, &data, &size, &e), BT_ERR_IO);
    assert_int_equal(bt_map_file("/dev/null", &m, &e), BT_ERR_IO);
    assert_int_equal(bt_read_file("/dev/zero", 1000, &data, &size, &e), BT_ERR_FORMAT);    /* endless, bounded */
    assert_int_equal(bt_read_file("/proc/self/status", 1 << 20, &data, &size, &e), BT_OK); /* has no size */
    assert_true(size > 100);
    bt_free(data);
    bt_free(some);
    bt_free(none);
    bt_free(gone);
    unit_remove_folder(folder);
    free(folder);
}

static void fifos_neither_hang_nor_fail(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), *path = join(folder, "fifo"), *data;
    size_t size;
    bt_mapping m;
    bt_error e;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(bt_map_file(path, &m, &e), BT_ERR_IO);
    assert_int_equal(bt_read_file(path, 100, &data, &size, &e), BT_OK); /* nobody writes: empty, at once */
    assert_int_equal(size, 0);
    bt_free(data);

    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* a slow writer, as in `-f <(program)` */
        (void)close(fds[0]);
        for (int i = 0; i < 5; i++) {
            (void)usleep(2000);
            if (write(fds[1], "12345", 5) != 5) _exit(1);
        }
        _exit(0);
    }
    (void)close(fds[1]);
    char name[64];
    (void)snprintf(name, sizeof name, "/dev/fd/%d", fds[0]);
    assert_int_equal(bt_read_file(name, 100, &data, &size, &e), BT_OK);
    assert_int_equal(size, 25);
    bt_free(data);
    (void)close(fds[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
}

static void placeholders_are_recognised(void **state)
{
    (void)state;
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    assert_non_null(strstr(bt_placeholder_text(lfs, sizeof lfs - 1), "Git LFS"));
    assert_non_null(strstr(bt_placeholder_text("\n <!DOCTYPE html>", 17), "web page"));
    assert_non_null(strstr(bt_placeholder_text("<html>", 6), "web page"));
    assert_null(bt_placeholder_text("{}", 2));
    assert_null(bt_placeholder_text("<", 1));
    assert_null(bt_placeholder_text("", 0));
    assert_null(bt_placeholder_text("          ", 10));
}

/* How many entries the folder has. */
static size_t count_entries(const char *folder)
{
    char command[4200];
    (void)snprintf(command, sizeof command, "ls -A '%s'", folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = 0;
    for (int c = fgetc(f); c != EOF; c = fgetc(f)) n += c == '\n';
    assert_int_equal(pclose(f), 0);
    return n;
}

static void expect_content(const char *path, const char *text)
{
    char *data;
    size_t size;
    assert_int_equal(bt_read_file(path, 1 << 24, &data, &size, NULL), BT_OK);
    assert_string_equal(data, text);
    bt_free(data);
}

static void output_appears_only_when_committed(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), *path = join(folder, "out"), *link = join(folder, "link");
    bt_error e;
    bt_output *o;
    mode_t before = umask(027);
    assert_int_equal(bt_output_open(path, &o, &e), BT_OK);
    assert_int_equal(bt_output_write(o, "hello", 5, &e), BT_OK);
    assert_false(bt_path_exists(path));
    assert_int_equal(count_entries(folder), 1);
    assert_int_equal(bt_output_commit(o, &e), BT_OK);
    (void)umask(before);
    expect_content(path, "hello");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);

    assert_int_equal(bt_output_open(path, &o, &e), BT_OK); /* abandoned: the old file stays, nothing else does */
    assert_int_equal(bt_output_write(o, "other", 5, &e), BT_OK);
    bt_output_abandon(o);
    bt_output_abandon(NULL);
    expect_content(path, "hello");
    assert_int_equal(count_entries(folder), 1);

    assert_int_equal(symlink("out", link), 0); /* a link stays one */
    assert_int_equal(bt_output_open(link, &o, &e), BT_OK);
    assert_int_equal(bt_output_write(o, "third", 5, &e), BT_OK);
    assert_int_equal(bt_output_commit(o, &e), BT_OK);
    expect_content(path, "third");
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    bt_free(path);
    bt_free(link);
    unit_remove_folder(folder);
    free(folder);
}

/* Two programs that look for a free name at once get two names, and what fails leaves nothing behind. */
static void new_output_replaces_nothing(void **state)
{
    (void)state;
    bt_error e;
    bt_output *first = NULL, *second = NULL;
    bool taken = true;
    char folder[] = "/tmp/bt_base_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = bt_path_join(folder, "out"), *below = bt_path_join(path, "x");
    assert_int_equal(bt_output_open_new(path, &taken, &first, &e), BT_OK);
    assert_false(taken);
    assert_int_equal(bt_output_open_new(path, &taken, &second, &e), BT_ERR_IO); /* though nothing is written yet */
    assert_true(taken);
    assert_int_equal(bt_output_write(first, "hello", 5, &e), BT_OK);
    assert_int_equal(bt_output_commit(first, &e), BT_OK);
    expect_content(path, "hello");
    assert_int_equal(bt_output_open_new(path, &taken, &second, &e), BT_ERR_IO);
    assert_true(taken);
    assert_int_equal(bt_output_open_new(below, &taken, &second, &e), BT_ERR_IO); /* in a file */
    assert_false(taken);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(bt_output_open_new(path, &taken, &first, &e), BT_OK);
    bt_output_abandon(first);
    assert_int_equal(rmdir(folder), 0);
    bt_free(path);
    bt_free(below);
}

#ifdef BT_TEST_BUILD
static void new_output_survives_faults(void **state)
{
    (void)state;
    bt_status st = BT_ERR_IO;
    for (long n = 0; st != BT_OK; n++) {
        bt_error e;
        bt_output *o = NULL;
        bool taken = true;
        char folder[] = "/tmp/bt_base_XXXXXX";
        assert_non_null(mkdtemp(folder));
        char *path = bt_path_join(folder, "out");
        bt_io_fail_after(n, BT_IO_ERROR);
        st = bt_output_open_new(path, &taken, &o, &e);
        if (st == BT_OK) st = bt_output_commit(o, &e);
        bool failed = bt_io_has_failed();
        bt_io_fail_after(-1, BT_IO_ERROR);
        assert_false(taken);
        if (st == BT_OK) assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0); /* nothing else is there */
        bt_free(path);
        if (st == BT_OK && failed) st = BT_ERR_IO; /* a fault that does no harm: go on to the next call */
        assert_true(n < 100);
    }
}
#endif

static void output_of_any_size_and_faults(void **state)
{
    (void)state;
    char *folder = unit_make_folder(), *path = join(folder, "out"), *below = join(path, "x");
    bt_error e;
    bt_output *o;
    size_t total = 0;
    assert_int_equal(bt_output_open(path, &o, &e), BT_OK);
    char *chunk = calloc(700000, 1);
    for (size_t n = 0; n < 700000; n = n * 3 + 1) {
        memset(chunk, 'a', n);
        assert_int_equal(bt_output_write(o, chunk, n, &e), BT_OK);
        total += n;
    }
    free(chunk);
    assert_int_equal(bt_output_commit(o, &e), BT_OK);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, total);

    assert_int_equal(bt_output_open(folder, &o, &e), BT_ERR_IO);
    assert_int_equal(bt_output_open(below, &o, &e), BT_ERR_IO);
    assert_non_null(strstr(e.message, below));
    assert_int_equal(bt_output_open("/dev/null", &o, &e), BT_OK);
    assert_int_equal(bt_output_write(o, "x", 1, &e), BT_OK);
    assert_int_equal(bt_output_commit(o, &e), BT_OK);
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    if (bt_path_exists("/dev/full")) {
        assert_int_equal(bt_output_open("/dev/full", &o, &e), BT_OK);
        assert_int_equal(bt_output_write(o, "x", 1, &e), BT_OK);
        assert_int_equal(bt_output_commit(o, &e), BT_ERR_MEMORY); /* no space left */
        assert_non_null(strstr(e.message, "/dev/full"));
    }
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    char *longest = join(folder, name); /* the temporary name must not be longer than a name may be */
    assert_int_equal(bt_output_open(longest, &o, &e), BT_OK);
    assert_int_equal(bt_output_commit(o, &e), BT_OK);
    assert_true(bt_path_exists(longest));
    bt_free(longest);
    bt_free(path);
    bt_free(below);
    unit_remove_folder(folder);
    free(folder);
}

/* One allocation after the other fails: a status each time, the old file stays, no temporary one is left. */
static void files_survive_failed_allocations(void **state)
{
    (void)state;
#ifdef BT_TEST_BUILD
    char *folder = unit_make_folder(), *path = join(folder, "out");
    unit_write_file(folder, "out", "old", 3);
    bt_status st = BT_ERR_MEMORY;
    for (long n = 0; st != BT_OK; n++) {
        assert_true(n < 100);
        bt_output *o = NULL;
        bt_error e = {.message = ""};
        bt_alloc_fail_after(n);
        st = bt_output_open(path, &o, &e);
        bt_alloc_fail_after(-1);
        assert_true(st == BT_OK || st == BT_ERR_MEMORY);
        assert_int_equal(count_entries(folder), st == BT_OK ? 2 : 1);
        if (st == BT_OK) bt_output_abandon(o);
        expect_content(path, "old");
    }
    st = BT_ERR_MEMORY;
    for (long n = 0; st != BT_OK; n++) {
        assert_true(n < 100);
        char *data = NULL;
        size_t size = 0;
        bt_alloc_fail_after(n);
        st = bt_read_file("/proc/self/maps", 1 << 24, &data, &size, NULL);
        bt_alloc_fail_after(-1);
        assert_true(st == BT_OK || st == BT_ERR_MEMORY);
        bt_free(data);
    }
    bt_free(path);
    unit_remove_folder(folder);
    free(folder);
#else
    skip();
#endif
}

/* ---- text -----------------------------------------------------------------------------------------------------------
 */

static void text_grows_and_escapes(void **state)
{
    (void)state;
    bt_text t = {NULL, 0, 0, false};
    bt_text_puts(&t, "a");
    bt_text_printf(&t, "%d-%s", 12, "b");
    bt_text_json_string(&t, "q\"\\/\b\f\n\r\t\x01\0\x7f\xc3\xa9\xff", 15);
    assert_true(bt_text_ok(&t));
    assert_string_equal(t.data, "a12-b\"q\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u0000\\u007f\xc3\xa9\xef\xbf\xbd\"");
    for (size_t i = 0; i < 100000; i++) bt_text_add(&t, "xyz", 3);
    assert_int_equal(strlen(t.data), t.size);
    bt_text_free(&t);
    assert_null(t.data);
    bt_text_puts(&t, "");
    assert_string_equal(t.data, "");
    bt_text_free(&t);
}

static void numbers_are_the_shortest(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {1, "1"},
                 {-0.0, "-0"},
                 {1e22, "1e+22"},
                 {1.0 / 3, "0.3333333333333333"},
                 {5e-324, "5e-324"},
                 {(double)NAN, "null"},
                 {(double)INFINITY, "null"},
                 {123456789012, "123456789012"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bt_text t = {NULL, 0, 0, false};
        bt_text_json_f64(&t, cases[i].v);
        assert_string_equal(t.data, cases[i].text);
        bt_text_free(&t);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = bt_rng_u64(3, i);
        double v, back;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v)) continue;
        bt_text t = {NULL, 0, 0, false};
        bt_text_json_f64(&t, v);
        if (!bt_json_f64(t.data, t.size, &back) || memcmp(&back, &v, sizeof v) != 0) fail_msg("%a: %s", v, t.data);
        bt_text_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_is_filled_and_cleaned),
        cmocka_unit_test(error_is_cut_at_a_character),
        cmocka_unit_test(fault_list_names_what_fits),
        cmocka_unit_test(products_are_checked),
        cmocka_unit_test(arena_is_zeroed_aligned_and_apart),
        cmocka_unit_test(pages_are_zeroed_and_aligned),
        cmocka_unit_test(guard_turns_allocation_into_abort),
        cmocka_unit_test(planted_failures_come_once),
        cmocka_unit_test(utf8_round_trip_of_every_character),
        cmocka_unit_test(utf8_faults_are_seen),
        cmocka_unit_test(random_numbers_are_fixed_and_even),
        cmocka_unit_test(paths_join_and_split),
        cmocka_unit_test(files_are_mapped_and_read),
        cmocka_unit_test(fifos_neither_hang_nor_fail),
        cmocka_unit_test(placeholders_are_recognised),
        cmocka_unit_test(output_appears_only_when_committed),
        cmocka_unit_test(new_output_replaces_nothing),
#ifdef BT_TEST_BUILD
        cmocka_unit_test(new_output_survives_faults),
#endif
        cmocka_unit_test(output_of_any_size_and_faults),
        cmocka_unit_test(files_survive_failed_allocations),
        cmocka_unit_test(text_grows_and_escapes),
        cmocka_unit_test(numbers_are_the_shortest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
