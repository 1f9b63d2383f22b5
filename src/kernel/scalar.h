/*
 * What the scalar kernels' files share. A dot product runs in LANES fixed lanes (k mod LANES), which the compiler turns
 * into vectors by itself and which makes the order independent of everything but k.
 */
#ifndef KERNEL_SCALAR_H
#define KERNEL_SCALAR_H

#include "kernel/kernels.h"

#include <string.h>

#define LANES 8u

/* y[n] = x widened to f32; t is none of BT_MXFP4, whose codes mean nothing without their scales */
void bt_scalar_widen(float *y, const void *x, size_t n, bt_dtype t);

void bt_kernels_add_scalar_kimi(bt_kernels *k); /* the entries of scalar_kimi.c */

/* acc[lane] += w[k] * x[k], lane = k mod LANES */
static inline void accumulate(double *acc, const float *w, const float *x, size_t n)
{
    double s[LANES];
    memcpy(s, acc, sizeof s);
    size_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (size_t i = 0; i < LANES; i++) s[i] += (double)w[k + i] * (double)x[k + i];
    for (size_t i = 0; k + i < n; i++) s[i] += (double)w[k + i] * (double)x[k + i];
    memcpy(acc, s, sizeof s);
}

static inline double fold(const double *s)
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static inline double dot(const float *w, const float *x, size_t n)
{
    double acc[LANES] = {0};
    accumulate(acc, w, x, n);
    return fold(acc);
}

static inline size_t row_of(const uint32_t *rows, size_t i)
{
    return rows ? rows[i] : i;
}

#endif
