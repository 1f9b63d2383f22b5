/*
 * Measuring limits. Work is handed out in pieces, as a model's products are: a core that is busy with something else
 * then holds nobody up, here and there alike. Each figure is the better of a few passes of some milliseconds: a limit
 * is what the machine can do, not what it does on average.
 */
#include "tool/roof.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/pool.h"
#include "kernel/cpu.h"

#define MAPPING_BYTES_MAX ((size_t)1 << 30)
#define HUGE_BYTES        ((size_t)512 << 20) /* beyond what a cache can hold for one tenant */
#define HUGE_BYTES_MIN    ((size_t)32 << 20)
#define PASS_BYTES_MIN    ((size_t)64 << 20) /* small models are read several times in one pass */
#define PIECE_BYTES       ((size_t)4 << 20)
#define N_PASSES          2u
#define MULTIPLY_SECONDS  0.01
#define N_MULTIPLIES      3u
#define N_BATCHES         41u
#define N_BATCH_TRIPS     20u
#define TRIP_SECONDS_MAX  0.3
#define TRIPS_END         UINT64_MAX
#define N_PAIRS_MAX       15u

const char *const bt_roof_source_names[BT_ROOF_N_SOURCES] = {"mapping", "huge pages"};

typedef struct alone { /* on its cache line */
    _Atomic uint64_t value;
    uint64_t unused[7];
} alone;

struct bt_roof {
    bt_pool *pool;
    size_t n_threads;
    bt_limit_kernels kernels;
    const bt_span *spans;
    size_t n_spans;
    size_t n_rounds; /* of multiply that take MULTIPLY_SECONDS */
    /* Of the pass under way. */
    const bt_span *reading;
    size_t n_reading, n_active, n_streams, n_again;
    size_t n_pieces;
    size_t partner; /* of thread 0 in round trips */
    double trip_ns;
    alone next, bytes, turn, sink;
};

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bt_status bt_roof_open(size_t n_threads, bt_cpu_level level, bt_roof **out, bt_error *e)
{
    bt_roof *r = bt_calloc(1, sizeof *r);
    if (r == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory to measure the machine");
    r->n_threads = n_threads;
    bt_limit_kernels_init(&r->kernels, level);
    bt_status st = bt_pool_open(n_threads, &r->pool, e);
    if (st != BT_OK) {
        bt_free(r);
        return st;
    }
    double taken = 0;
    size_t n = 0;
    while (taken < MULTIPLY_SECONDS / 2) { /* how many rounds fill the time */
        n = n == 0 ? 1000 : 2 * n;
        double begin = seconds();
        (void)r->kernels.multiply(n);
        taken = seconds() - begin;
    }
    r->n_rounds = (size_t)((double)n * MULTIPLY_SECONDS / taken) + 1;
    *out = r;
    return BT_OK;
}

void bt_roof_close(bt_roof *r)
{
    if (r == NULL) return;
    bt_pool_close(r->pool);
    bt_free(r);
}

void bt_roof_set_mapping(bt_roof *r, const bt_span *spans, size_t n_spans)
{
    r->spans = spans;
    r->n_spans = n_spans;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static size_t pieces_of(size_t size)
{
    return (size + PIECE_BYTES - 1) / PIECE_BYTES;
}

static void read_pieces(void *arg, size_t thread_i)
{
    bt_roof *r = arg;
    uint64_t bytes = 0, sum = 0, total = (uint64_t)r->n_pieces * r->n_again;
    if (thread_i >= r->n_active) return;
    size_t span_i = 0, first = 0; /* piece of the span */
    for (;;) {
        uint64_t taken = atomic_fetch_add_explicit(&r->next.value, 1, memory_order_relaxed);
        if (taken >= total) break;
        size_t piece = (size_t)(taken % r->n_pieces);
        if (piece < first) span_i = first = 0;
        while (piece - first >= pieces_of(r->reading[span_i].size)) first += pieces_of(r->reading[span_i++].size);
        const bt_span *s = &r->reading[span_i];
        size_t from = (piece - first) * PIECE_BYTES;
        size_t n = s->size - from < PIECE_BYTES ? s->size - from : PIECE_BYTES;
        size_t run = n / r->n_streams / BT_READ_STEP * BT_READ_STEP;
        sum += r->kernels.read(s->data + from, run, r->n_streams);
        bytes += run * r->n_streams;
    }
    atomic_fetch_add_explicit(&r->bytes.value, bytes, memory_order_relaxed);
    atomic_fetch_xor_explicit(&r->sink.value, sum, memory_order_relaxed);
}

/* GB/s, the better of two passes. */
static double read_rate(bt_roof *r, const bt_span *spans, size_t n_spans, size_t n_threads, size_t n_streams)
{
    size_t size = 0;
    double best = 0;
    r->reading = spans;
    r->n_reading = n_spans;
    r->n_active = n_threads;
    r->n_streams = n_streams;
    r->n_pieces = 0;
    for (size_t i = 0; i < n_spans && size < MAPPING_BYTES_MAX; i++) {
        r->n_pieces += pieces_of(spans[i].size);
        size += spans[i].size;
    }
    if (size == 0) return 0;
    r->n_again = size >= PASS_BYTES_MIN ? 1 : PASS_BYTES_MIN / size + 1;
    for (unsigned pass = 0; pass < N_PASSES; pass++) {
        atomic_store(&r->next.value, 0);
        atomic_store(&r->bytes.value, 0);
        double begin = seconds();
        bt_pool_run(r->pool, read_pieces, r);
        double rate = (double)atomic_load(&r->bytes.value) / (seconds() - begin) / 1e9;
        if (rate > best) best = rate;
    }
    return best;
}

static void read_all_ways(bt_roof *r, bt_roof_source source, const bt_span *spans, size_t n_spans, bt_roof_sample *out)
{
    for (size_t i = 0; i < BT_ROOF_N_STREAMS; i++) {
        out->read_gb_s[1][source][i] = read_rate(r, spans, n_spans, r->n_threads, (size_t)1 << i);
        out->read_gb_s[0][source][i] = out->read_gb_s[1][source][i];
        if (r->n_threads > 1) out->read_gb_s[0][source][i] = read_rate(r, spans, n_spans, 1, (size_t)1 << i);
    }
}

/* Each thread is the first to touch its part: on machines with several memories it then lies near. */
static void touch(void *arg, size_t thread_i)
{
    bt_roof *r = arg;
    size_t part = r->reading[0].size / r->n_threads;
    memset((void *)(uintptr_t)(r->reading[0].data + thread_i * part), (int)thread_i + 1, part);
}

static void read_huge_pages(bt_roof *r, bt_roof_sample *out)
{
    bt_machine m;
    bt_machine_read("", &m);
    size_t size = HUGE_BYTES;
    while (m.memory_available != 0 && size > m.memory_available / 4) size /= 2;
    uint8_t *data = size < HUGE_BYTES_MIN ? NULL : bt_pages_alloc(size);
    if (data == NULL) return; /* too little memory to learn anything: the mapping's figures stand alone */
    const bt_span span = {data, size};
    r->reading = &span;
    bt_pool_run(r->pool, touch, r);
    read_all_ways(r, BT_ROOF_HUGE_PAGES, &span, 1, out);
    r->reading = NULL;
    bt_pages_free(data, size);
}

double bt_roof_read_best(const bt_roof_sample *s, int all_threads)
{
    double best = 0;
    for (size_t source = 0; source < BT_ROOF_N_SOURCES; source++)
        for (size_t i = 0; i < BT_ROOF_N_STREAMS; i++)
            if (s->read_gb_s[all_threads][source][i] > best) best = s->read_gb_s[all_threads][source][i];
    return best;
}

/* ---- multiplying ------------------------------------------------------------------------------------------------ */

static void multiply(void *arg, size_t thread_i)
{
    bt_roof *r = arg;
    if (thread_i < r->n_active) (void)r->kernels.multiply(r->n_rounds);
}

static double multiply_rate(bt_roof *r, size_t n_threads)
{
    double best = 0, flops = r->kernels.multiply(1) * (double)r->n_rounds * (double)n_threads;
    r->n_active = n_threads;
    for (unsigned i = 0; i < N_MULTIPLIES; i++) {
        double begin = seconds();
        bt_pool_run(r->pool, multiply, r);
        double rate = flops / (seconds() - begin) / 1e9;
        if (rate > best) best = rate;
    }
    return best;
}

/* ---- a cache line there and back -------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of many batches: some of them lose a core to something else. Ends early where the two share one core: each
 * trip then takes two turns of the scheduler. */
static void trip(void *arg, size_t thread_i)
{
    bt_roof *r = arg;
    if (thread_i != 0 && thread_i != r->partner) return;
    uint64_t side = thread_i == 0 ? 0 : 1, seen, i = 0;
    double start = seconds(), begin = start, batches[N_BATCHES];
    size_t n = 0;
    bool late = false;
    while (n < N_BATCHES && !late) {
        do {
            seen = atomic_load_explicit(&r->turn.value, memory_order_acquire);
            if (seen == TRIPS_END) return;
        } while (seen != 2 * i + side);
        if (side == 0 && i > 0 && i % N_BATCH_TRIPS == 0) {
            double now = seconds();
            batches[n++] = (now - begin) * 1e9 / N_BATCH_TRIPS;
            late = now - start > TRIP_SECONDS_MAX;
            begin = seconds();
        }
        bool last = n == N_BATCHES || late;
        atomic_store_explicit(&r->turn.value, last ? TRIPS_END : 2 * i + side + 1, memory_order_release);
        i++;
    }
    qsort(batches, n, sizeof *batches, by_size);
    r->trip_ns = batches[n / 2]; /* thread 0 alone comes here */
}

static double round_trip(bt_roof *r)
{
    double times[N_PAIRS_MAX];
    size_t n = 0;
    for (size_t k = 1; k < r->n_threads && n < N_PAIRS_MAX; k++) {
        r->partner = k;
        atomic_store(&r->turn.value, 0);
        bt_pool_run(r->pool, trip, r);
        times[n++] = r->trip_ns;
    }
    if (n == 0) return 0;
    qsort(times, n, sizeof *times, by_size);
    return times[n / 2];
}

void bt_roof_measure(bt_roof *r, bt_roof_sample *out)
{
    *out = (bt_roof_sample){.round_trip_ns = round_trip(r)};
    out->matrix_gflop_s[1] = multiply_rate(r, r->n_threads);
    out->matrix_gflop_s[0] = r->n_threads > 1 ? multiply_rate(r, 1) : out->matrix_gflop_s[1];
    read_all_ways(r, BT_ROOF_MAPPING, r->spans, r->n_spans, out);
    read_huge_pages(r, out);
}
