/*
 * The second half of expert routing, shared by every CPU level: from scores to chosen ids and weights. It is compiled
 * for the baseline only; the ISA files bring the scores.
 */
#ifndef KERNEL_ROUTE_H
#define KERNEL_ROUTE_H

#include "kernel/kernels.h"

/* r->scratch[0, n) holds the scores; fills r->ids and r->weights. Uses r->scratch[n, 2n). */
void bt_route_choose(const bt_route *r);

#endif
