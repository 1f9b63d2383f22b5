/*
 * Random inputs and guarded buffers. A buffer is cut from a slot between two unreadable pages: flush against one of
 * them, or in the middle of bytes 0xff, which are a NaN as f32, f16, bf16 and FP8 alike.
 */
#include "check.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- random numbers: SplitMix64 ---- */

static uint64_t state;

uint64_t random_u64(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t random_below(size_t n)
{
    assert(n > 0);
    return (size_t)(random_u64() % n);
}

static double random_unit(void)
{
    return (double)(random_u64() >> 11) * 0x1p-53;
}

double random_normal(void)
{
    return sqrt(-2 * log(1 - random_unit())) * cos(6.283185307179586 * random_unit());
}

/* Each check draws from a stream of its own, so that it repeats when run alone. */
void random_seed(uint64_t seed, const char *salt)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *salt; salt++) h = (h ^ (unsigned char)*salt) * 0x100000001b3u;
    state = seed ^ h;
}

/* ---- values ---- */

const char *input_name(input_kind k)
{
    static const char *const names[INPUT_N] = {"normal",   "huge",  "tiny",  "cancelling",
                                               "denormal", "equal", "codes", "one NaN"};
    return names[k];
}

size_t dtype_size(bt_dtype d)
{
    return d == BT_F32 ? 4 : d == BT_F8_E4M3 ? 1 : 2;
}

double decode(const void *w, size_t i, bt_dtype d)
{
    const char *p = (const char *)w + i * dtype_size(d);
    float f;
    uint16_t h;
    memcpy(&f, p, d == BT_F32 ? 4 : 0);
    memcpy(&h, p, dtype_size(d) == 2 ? 2 : 0);
    if (d == BT_F32) return (double)f;
    if (d == BT_F16) return (double)bt_f16_to_f32(h);
    if (d == BT_BF16) return (double)bt_bf16_to_f32(h);
    return (double)bt_f8_e4m3_to_f32(*(const uint8_t *)p);
}

static void encode(void *w, size_t i, bt_dtype d, double v)
{
    char *p = (char *)w + i * dtype_size(d);
    float f = (float)v;
    uint16_t h = d == BT_F16 ? bt_f32_to_f16(f) : bt_f32_to_bf16(f);
    uint8_t c = bt_f32_to_f8_e4m3(f);
    memcpy(p, d == BT_F32 ? (void *)&f : d == BT_F8_E4M3 ? (void *)&c : (void *)&h, dtype_size(d));
}

void fill_activations(float *x, size_t n, input_kind k)
{
    for (size_t i = 0; i < n; i++) {
        double v = random_normal();
        if (k == INPUT_HUGE) v *= 1e16;
        if (k == INPUT_TINY) v *= 1e-20;
        if (k == INPUT_CANCEL && i % 2 == 1) v = -(double)x[i - 1] * (1 + 0x1p-12);
        if (k == INPUT_EQUAL) v = 0.7;
        x[i] = (float)v;
    }
    if (k == INPUT_NAN && n > 0) x[random_below(n)] = NAN;
}

static double largest(bt_dtype d)
{
    return d == BT_F16 ? 6e4 : d == BT_F8_E4M3 ? 440 : 1e17;
}

/* Any bits but those of NaN and infinity; for denormals, an exponent of zero. */
static void random_bits(void *w, size_t i, bt_dtype d, bool denormal)
{
    static const uint32_t exponent[BT_N_WEIGHT_DTYPES] = {0x7f800000u, 0x7c00u, 0x7f80u, 0x78u};
    char *p = (char *)w + i * dtype_size(d);
    for (;;) {
        uint32_t bits = (uint32_t)random_u64();
        if (denormal) bits &= ~exponent[d];
        memcpy(p, &bits, dtype_size(d));
        double v = decode(w, i, d);
        if (isfinite(v) && fabs(v) < 1e20) return;
    }
}

void fill_weights(void *w, size_t n, bt_dtype d, input_kind k)
{
    for (size_t i = 0; i < n; i++) {
        if (k == INPUT_DENORMAL || k == INPUT_CODES) {
            random_bits(w, i, d, k == INPUT_DENORMAL);
            continue;
        }
        double v = random_normal();
        if (k == INPUT_HUGE) v = copysign(largest(d) * (1 - random_unit() / 8), v);
        if (k == INPUT_TINY) v *= d == BT_F16 ? 1e-6 : d == BT_F8_E4M3 ? 1e-2 : 1e-20;
        if (k == INPUT_CANCEL && i % 2 == 1) v = decode(w, i - 1, d);
        if (k == INPUT_EQUAL) v = 0.3;
        encode(w, i, d, v);
    }
    if (k == INPUT_NAN && n > 0) encode(w, random_below(n), d, (double)NAN);
}

/* ---- buffers ---- */

#define N_SLOTS    16u
#define SLOT_BYTES ((size_t)24 << 20)
#define SURROUND   ((size_t)512)
#define POISON     0xff

typedef struct slot {
    unsigned char *base; /* SLOT_BYTES between two unreadable pages */
    unsigned char *at;   /* of the buffer in use */
    size_t n_bytes;
} slot;

static slot slots[N_SLOTS];
static size_t n_used;

static unsigned char *slot_map(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p = mmap(NULL, SLOT_BYTES + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + page, SLOT_BYTES, PROT_READ | PROT_WRITE) != 0) {
        perror("check-kernels: mmap");
        exit(1);
    }
    return p + page;
}

static size_t clip(size_t n, size_t limit)
{
    return n < limit ? n : limit;
}

void *buffer(size_t n_bytes, size_t align, placement place)
{
    assert(n_used < N_SLOTS && n_bytes <= SLOT_BYTES / 2);
    slot *s = &slots[n_used++];
    if (!s->base) s->base = slot_map();
    s->n_bytes = n_bytes;
    if (place == PLACE_AT_START) s->at = s->base;
    if (place == PLACE_AT_END) s->at = s->base + SLOT_BYTES - n_bytes;
    if (place == PLACE_POISONED) s->at = s->base + SLOT_BYTES / 4 + align * random_below(8);
    size_t before = clip(SURROUND, (size_t)(s->at - s->base));
    size_t after = clip(SURROUND, (size_t)(s->base + SLOT_BYTES - s->at) - n_bytes);
    memset(s->at - before, POISON, before + n_bytes + after);
    return s->at;
}

static bool is_poison(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != POISON) return false;
    return true;
}

void buffers_release(void)
{
    for (size_t i = 0; i < n_used; i++) {
        slot *s = &slots[i];
        size_t before = clip(SURROUND, (size_t)(s->at - s->base));
        size_t after = clip(SURROUND, (size_t)(s->base + SLOT_BYTES - s->at) - s->n_bytes);
        check_that(is_poison(s->at - before, before), "bytes before a buffer were overwritten");
        check_that(is_poison(s->at + s->n_bytes, after), "bytes after a buffer were overwritten");
    }
    n_used = 0;
}
