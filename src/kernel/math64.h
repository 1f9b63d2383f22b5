/*
 * exp and its relatives in f64, for what is computed by numbers rather than by vectors. They are ours: libm's may
 * differ from one C library to the next, and the numeric contract (ARCHITECTURE.md) promises the same bits. Every ISA
 * file gets a copy of its own, as plain operations in this order.
 */
#ifndef KERNEL_MATH64_H
#define KERNEL_MATH64_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline double power_of_two(int n) /* n in [-1022, 1023] */
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* e^x to about an ulp of f64. Outside [-700, 700] it is the value there: far beyond what f32 can tell from 0 and inf.
 */
static inline double exp64(double x)
{
    static const double inv_factorial[] = {
        1.0 / 6227020800.0,
        1.0 / 479001600.0,
        1.0 / 39916800.0,
        1.0 / 3628800.0,
        1.0 / 362880.0,
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    };
    const double log2_e = 1.4426950408889634074, ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    if (x != x) return x;
    if (x > 700) return (double)INFINITY;
    if (x < -700) return 0;
    int n = (int)(x * log2_e + (x < 0 ? -0.5 : 0.5));
    double r = x - n * ln2_high - n * ln2_low; /* |r| <= ln2 / 2: the 14 terms leave 4e-18 */
    double y = 0;
    for (size_t i = 0; i < sizeof inv_factorial / sizeof *inv_factorial; i++) y = y * r + inv_factorial[i];
    return y * power_of_two(n);
}

/* ln(1 + t) for t in [0, 1]: 2 atanh(t / (2 + t)), whose argument is at most 1/3. */
static inline double log1p_unit(double t)
{
    double s = t / (2 + t), s2 = s * s, y = 0;
    for (int i = 18; i >= 0; i--) y = y * s2 + 1.0 / (2 * i + 1);
    return 2 * s * y;
}

static inline double sigmoid64(double x)
{
    double t = exp64(x < 0 ? x : -x); /* never overflows; NaN passes */
    return (x < 0 ? t : 1.0) / (1 + t);
}

/* Below 2^-10 the next term of the series is 5e-20 of x; above, the difference loses ten bits of 53. */
static inline double tanh64(double x)
{
    if (x > -0x1p-10 && x < 0x1p-10) return x * (1 + x * x * (x * x * (2.0 / 15) - 1.0 / 3));
    double t = exp64(x < 0 ? 2 * x : -2 * x), y = (1 - t) / (1 + t);
    return x < 0 ? -y : y;
}

static inline double silu64(double x)
{
    return x < -300 ? -0.0 : x * sigmoid64(x); /* the limit: -inf times 0 would be NaN */
}

static inline double softplus64(double x)
{
    return (x < 0 ? 0 : x) + log1p_unit(exp64(x < 0 ? x : -x));
}

/* In place. A NaN passes by the maximum and reaches everything through the sum. */
static inline void softmax64(double *x, size_t n)
{
    double max = (double)-INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++) sum += x[i] = exp64(x[i] - max);
    for (size_t i = 0; i < n; i++) x[i] /= sum;
}

#endif
