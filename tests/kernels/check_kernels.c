/*
 * check-kernels: every kernel of every CPU level against the scalar one, in the manner of dav1d's checkasm, for
 * floats.
 *
 * Levels are walked upwards to what this machine has; an entry is tested if it differs from the level below. Scalar
 * sums in f64, so its own error is one rounding, and a bound on the difference can be derived instead of tasted: each
 * check states it. A line per kernel and level says how much of the bound was used; honest kernels use a small part of
 * it, a lost element or a wrong order of operations goes far beyond. Buffers lie among NaNs or against unreadable
 * pages.
 *
 * A test of the tests: at the end each known fault is planted in the tables of a child process, which must fail.
 * --plant NAME plants one of them in this process, to look at.
 */
#include "check.h"

#include <assert.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- account ---- */

static struct account {
    char kernel[64], level[16], running[160];
    size_t n_compared, n_wrong;
    double used_max; /* largest part of a bound that was used */
    size_t n_passed, n_failed;
    bool stop;
} account;

#define SHOWN_MAX 4u /* failures of one kernel that are spelled out */

bool check_begin(const subject *s, const char *kernel)
{
    if (s->o->kernel && !strstr(kernel, s->o->kernel)) return false;
    snprintf(account.kernel, sizeof account.kernel, "%s", kernel);
    snprintf(account.level, sizeof account.level, "%s", s->level);
    account.running[0] = 0;
    account.n_compared = account.n_wrong = 0;
    account.used_max = 0;
    random_seed(s->o->seed, kernel);
    return true;
}

void check_end(void)
{
    bool ok = account.n_wrong == 0 && account.n_compared > 0;
    printf("%-6s %-26s %-8s %10zu compared", ok ? "ok" : "FAILED", account.kernel, account.level, account.n_compared);
    if (account.used_max > 0) printf("  %6.2f %% of the bound", 100 * account.used_max);
    if (account.n_wrong > 0) printf("  %zu wrong", account.n_wrong);
    printf("\n");
    account.n_passed += ok;
    account.n_failed += !ok;
    if (!ok && account.stop) exit(1);
}

void check_case(const char *format, ...)
{
    va_list v;
    va_start(v, format);
    vsnprintf(account.running, sizeof account.running, format, v);
    va_end(v);
}

static void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void wrong(const char *format, ...)
{
    if (account.n_wrong++ >= SHOWN_MAX) return;
    printf("  %s %s (%s): ", account.kernel, account.level, account.running);
    va_list v;
    va_start(v, format);
    vprintf(format, v);
    va_end(v);
    printf("\n");
}

void check_near(float ref, float now, double bound, size_t i)
{
    account.n_compared++;
    if (isnan(ref) && isnan(now)) return;
    if (ref == now) return;
    double difference = fabs((double)ref - (double)now);
    if (!(difference <= bound))
        wrong("element %zu is %.9g, scalar says %.9g: off by %.3g, bound %.3g", i, (double)now, (double)ref, difference,
              bound);
    else if (difference / bound > account.used_max)
        account.used_max = difference / bound;
}

void check_bits(const void *a, const void *b, size_t n_bytes, const char *what)
{
    const unsigned char *p = a, *q = b;
    account.n_compared++;
    for (size_t i = 0; i < n_bytes; i++)
        if (p[i] != q[i]) {
            wrong("%s: byte %zu is %02x, expected %02x", what, i, (unsigned)q[i], (unsigned)p[i]);
            return;
        }
}

void check_floats_same(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        account.n_compared++;
        if (isnan(a[i]) && isnan(b[i])) continue;
        if (memcmp(a + i, b + i, sizeof *a) != 0) {
            wrong("%s: element %zu is %.9g, expected the bits of %.9g", what, i, (double)b[i], (double)a[i]);
            return;
        }
    }
}

void check_that(bool ok, const char *what)
{
    account.n_compared++;
    if (!ok) wrong("%s", what);
}

/* A kernel that touches an unreadable page ends here: say which, and fail. */
static void on_fault(int number)
{
    static const char text[] = "FAILED: memory outside a buffer was touched by ";
    (void)!write(STDOUT_FILENO, text, sizeof text - 1);
    (void)!write(STDOUT_FILENO, account.kernel, strlen(account.kernel));
    (void)!write(STDOUT_FILENO, " ", 1);
    (void)!write(STDOUT_FILENO, account.level, strlen(account.level));
    (void)!write(STDOUT_FILENO, ": ", 2);
    (void)!write(STDOUT_FILENO, account.running, strlen(account.running));
    (void)!write(STDOUT_FILENO, "\n", 1);
    _exit(number == SIGSEGV ? 1 : 2);
}

/* ---- walking the levels ---- */

static void check_level(const subject *s)
{
    check_conversions(s);
    check_elementwise(s);
    check_route(s);
    check_kimi(s);
    check_linear(s);
    check_attention(s);
    check_linear_invariance(s);
    check_attention_invariance(s);
}

/* The highest level that brings kernels of its own: faults are planted there. */
static bt_cpu_level top_level(bt_cpu_level max)
{
    bt_kernels k;
    bt_kernels_init(&k, max);
    return k.level;
}

static void check_all(const options *o)
{
    bt_kernels tables[BT_CPU_N], reference;
    void *scratch = mmap(NULL, BT_KERNEL_SCRATCH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (scratch == MAP_FAILED) {
        perror("check-kernels: mmap");
        exit(1);
    }
    memset(scratch, 0xff, BT_KERNEL_SCRATCH_BYTES); /* nobody may count on what lies there */
    printf("seed %llu\n", (unsigned long long)o->seed);
    bt_kernels_init(&reference, BT_CPU_SCALAR);
    for (bt_cpu_level l = BT_CPU_SCALAR; l <= o->level_max; l++) {
        bt_kernels_init(&tables[l], l);
        if (tables[l].level != l) continue; /* nothing new at this level */
        if (o->plant && l == top_level(o->level_max)) plant_into(&tables[l], o->plant);
        const bt_kernels *below = l > BT_CPU_SCALAR ? &tables[l - 1] : &reference;
        subject s = {o, &reference, below, &tables[l], bt_cpu_level_name(l), scratch};
        if (l >= o->level_min || l == top_level(o->level_max)) check_level(&s);
    }
    munmap(scratch, BT_KERNEL_SCRATCH_BYTES);
}

/* Every known fault in a child of its own, which must fail at the highest level. */
static void check_plants(options o)
{
    o.quick = true;
    o.level_min = top_level(o.level_max);
    bt_kernels top;
    bt_kernels_init(&top, o.level_min);
    for (size_t i = 0; plant_name(i); i++) {
        o.plant = plant_name(i);
        if (!plant_fits(&top, o.plant)) continue;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            account = (struct account){.stop = true};
            if (!freopen("/dev/null", "w", stdout)) _exit(2);
            check_all(&o);
            _exit(0); /* nothing was found */
        }
        int status = 0;
        bool seen = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1;
        printf("%-6s planted %s: %s\n", seen ? "ok" : "FAILED", o.plant, seen ? "seen" : "not seen");
        account.n_passed += seen;
        account.n_failed += !seen;
    }
}

/* ---- options ---- */

static void usage(void)
{
    printf("check-kernels [options]: compares every kernel with the scalar one, at every level of this CPU\n"
           "  --level L      only this level (scalar, avx2, avx512, ...)\n"
           "  --kernel NAME  only kernels whose name contains NAME\n"
           "  --seed N       of the random inputs; printed at the start\n"
           "  --quick        fewer shapes\n"
           "  --plant NAME   plant a fault; the run must fail\n"
           "  --plants       only plant each known fault in turn; passes if each was seen\n"
           "  --bench        measure after checking: roofs, GEMV, GEMM, attention, the rest; without any option this "
           "is so\n"
           "  --bench-only   measure without checking\n"
           "  --cpu-time     of the threads, instead of wall time: for a machine that is busy\n"
           "  --rounds N     of the benchmark, interleaved (default 5)\n"
           "  --mib N        MiB of weights that the benchmark streams (default 1024)\n");
}

static size_t number_of(const char *text)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (end == text || *end) {
        fprintf(stderr, "check-kernels: \"%s\" is not a number\n", text);
        exit(2);
    }
    return (size_t)n;
}

static void set_level(options *o, const char *name)
{
    if (!bt_cpu_level_parse(name, &o->level_min)) {
        fprintf(stderr, "check-kernels: unknown level \"%s\"\n", name);
        exit(2);
    }
    if (o->level_min > o->level_max) {
        printf("NOT RUN: this CPU has no %s (its level is %s)\n", name, bt_cpu_level_name(o->level_max));
        exit(0);
    }
    o->level_max = o->level_min;
}

static void check_plant_name(const char *name)
{
    for (size_t i = 0; plant_name(i); i++)
        if (strcmp(name, plant_name(i)) == 0) return;
    fprintf(stderr, "check-kernels: unknown fault \"%s\"; known:", name);
    for (size_t i = 0; plant_name(i); i++) fprintf(stderr, " %s", plant_name(i));
    fprintf(stderr, "\n");
    exit(2);
}

int main(int argc, char **argv)
{
    options o = {.seed = (uint64_t)time(NULL), .bench_rounds = 5, .bench_mib = 1024, .level_max = bt_cpu_detect()};
    bool plants = false, bench_only = false;
    o.bench = argc == 1;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(a, "--quick") == 0)
            o.quick = true;
        else if (strcmp(a, "--bench") == 0)
            o.bench = true;
        else if (strcmp(a, "--bench-only") == 0)
            o.bench = bench_only = true;
        else if (strcmp(a, "--cpu-time") == 0)
            o.bench_cpu_time = true;
        else if (strcmp(a, "--plants") == 0)
            plants = true;
        else if (i++, strcmp(a, "--seed") == 0)
            o.seed = number_of(value);
        else if (strcmp(a, "--kernel") == 0)
            o.kernel = value;
        else if (strcmp(a, "--plant") == 0)
            check_plant_name(o.plant = value);
        else if (strcmp(a, "--level") == 0)
            set_level(&o, value);
        else if (strcmp(a, "--rounds") == 0)
            o.bench_rounds = number_of(value);
        else if (strcmp(a, "--mib") == 0)
            o.bench_mib = number_of(value);
        else {
            usage();
            return strcmp(a, "--help") == 0 ? 0 : 2;
        }
    }
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    setvbuf(stdout, NULL, _IOLBF, 0);
    const bool whole = !o.kernel && !o.plant && o.level_min == BT_CPU_SCALAR;
    if (!bench_only && !plants) check_all(&o);
    if (!bench_only && (plants || whole)) check_plants(o);
    if (!bench_only) printf("%zu passed, %zu failed\n", account.n_passed, account.n_failed);
    bool ok = account.n_failed == 0 && (bench_only || account.n_passed > 0);
    if (o.bench) ok &= bench_run(&o) == 0;
    return ok ? 0 : 1;
}
