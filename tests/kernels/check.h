/*
 * What the parts of check-kernels share: options, random inputs, guarded buffers, and the account of what was compared.
 */
#ifndef TESTS_KERNELS_CHECK_H
#define TESTS_KERNELS_CHECK_H

#include "kernel/kernels.h"

#define UNIT_ROUNDOFF 0x1p-24  /* of f32 */
#define HALF_DENORMAL 0x1p-150 /* most that one rounding loses below the normal range */

typedef struct options {
    uint64_t seed;
    const char *kernel; /* only those whose name contains this; NULL: all */
    const char *plant;  /* a fault to plant in the tables; NULL: none */
    bool quick;
    bool bench, bench_cpu_time;
    size_t bench_rounds;
    size_t bench_mib;
    bt_cpu_level level_min, level_max;
} options;

/* One CPU level under test beside the reference. */
typedef struct subject {
    const options *o;
    const bt_kernels *ref, *below, *now; /* scalar; the level below (scalar again at the bottom); this level */
    const char *level;
    void *scratch;
} subject;

/* ---- account (check_kernels.c) ---- */

/* Opens the check of one kernel: false if the options leave it out. */
bool check_begin(const subject *s, const char *kernel);
void check_end(void);
/* The case that is running, for messages; printf-like. */
void check_case(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* |ref - now| <= bound, NaN equals NaN, an infinity only itself. */
void check_near(float ref, float now, double bound, size_t i);
void check_bits(const void *a, const void *b, size_t n_bytes, const char *what);
void check_floats_same(const float *a, const float *b, size_t n, const char *what); /* bits, but NaN equals NaN */
void check_that(bool ok, const char *what);

/* ---- random inputs (check_inputs.c) ---- */

uint64_t random_u64(void);
size_t random_below(size_t n); /* [0, n), n > 0 */
double random_normal(void);
void random_seed(uint64_t seed, const char *salt);

typedef enum input_kind {
    INPUT_NORMAL,
    INPUT_HUGE,     /* near the top of the range, sums below overflow */
    INPUT_TINY,     /* products underflow */
    INPUT_CANCEL,   /* pairs that almost annihilate */
    INPUT_DENORMAL, /* weights of random denormal bits */
    INPUT_EQUAL,
    INPUT_CODES, /* weights of random bits without NaN and infinity */
    INPUT_NAN,   /* normal with one NaN */
    INPUT_N,
} input_kind;

const char *input_name(input_kind k);
void fill_activations(float *x, size_t n, input_kind k);
void fill_weights(void *w, size_t n, bt_dtype d, input_kind k);
size_t dtype_size(bt_dtype d);
double decode(const void *w, size_t i, bt_dtype d); /* one element, by format/dtype.h */

/* ---- guarded buffers (check_inputs.c) ---- */

typedef enum placement {
    PLACE_POISONED, /* surrounded by NaN, which is a NaN in every dtype; at a random offset */
    PLACE_AT_END,   /* the byte after it is an unreadable page */
    PLACE_AT_START, /* the byte before it is */
    PLACE_N,
} placement;

/* A buffer of n_bytes; `align` is the size of an element, the offset stays a multiple of it. Buffers live until
 * buffers_release, which also checks that no byte around them was written. */
void *buffer(size_t n_bytes, size_t align, placement place);
void buffers_release(void);

/* ---- the checks ---- */

void check_elementwise(const subject *s);
void check_conversions(const subject *s);
void check_route(const subject *s);
void check_linear(const subject *s);
void check_attention(const subject *s);
void check_kimi(const subject *s);
void check_linear_invariance(const subject *s);
void check_attention_invariance(const subject *s);

/* Faults to plant (plant.c; those of check_kimi in plant_kimi.c): name by index, NULL after the last. */
const char *plant_name(size_t i);
bool plant_fits(const bt_kernels *k, const char *name); /* whether a level has what the fault breaks */
bool plant_into(bt_kernels *k, const char *name);
const char *plant_kimi_name(size_t i);
bool plant_kimi_into(bt_kernels *k, const char *name);

int bench_run(const options *o);

#endif
