/*
 * Choosing k experts of n. k is small (4 to 16) and n about a hundred, so k passes over the scores beat any heap and
 * leave the order of the ties in plain sight: a later candidate must be strictly better.
 *
 * The trap (spec k2-horizon c.5): the bias steers the choice, the weight is the score without it. A wrong version that
 * weighs by score + bias still writes fluent text.
 */
#include "kernel/route.h"

#include <assert.h>

/* A NaN ranks before every number: an expert whose score is broken is chosen, and its weight shows it. */
static bool ranks_before(float a, float b)
{
    if (b != b) return false;
    return a != a || a > b;
}

/* The best candidate that is not in taken[0, n_taken). */
static size_t best_left(const float *rank, size_t n, const int32_t *taken, size_t n_taken)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        bool is_taken = false;
        for (size_t j = 0; j < n_taken; j++) is_taken |= taken[j] == (int32_t)i;
        if (!is_taken && (best == n || ranks_before(rank[i], rank[best]))) best = i;
    }
    assert(best < n);
    return best;
}

void bt_route_choose(const bt_route *r)
{
    const float *score = r->scratch;
    float *rank = r->scratch + r->n;
    assert(r->k <= r->n && r->n <= INT32_MAX);
    assert(r->force < 0 || (size_t)r->force < r->n);
    for (size_t i = 0; i < r->n; i++) rank[i] = r->bias ? score[i] + r->bias[i] : score[i];

    double sum = 0;
    for (size_t i = 0; i < r->k; i++) {
        size_t id = i == 0 && r->force >= 0 ? (size_t)r->force : best_left(rank, r->n, r->ids, i);
        r->ids[i] = (int32_t)id;
        sum += (double)score[id];
    }
    for (size_t i = 0; i < r->k; i++) {
        double w = (double)score[r->ids[i]];
        if (r->renormalise) w /= sum;
        r->weights[i] = (float)(w * (double)r->scale);
    }
}
