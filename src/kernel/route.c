/*
 * Choosing k experts of n: one pass that keeps the best so far in order. k is small (4 to 16), so insertion beats any
 * heap and leaves the order of ties in plain sight: a later candidate must be strictly better.
 *
 * The trap (docs/k2_horizon.md, c.5): the bias steers the choice, the weight is the score without it. A wrong version
 * that weighs by score + bias still writes fluent text.
 */
#include "kernel/route.h"

#include <assert.h>
#include <math.h>

/* A NaN ranks before every number: an expert whose score is broken is chosen, and its weight shows it. */
static bool ranks_before(double a, double b)
{
    if (b != b) return false;
    return a != a || a > b;
}

/* ids[0, n_chosen) are in order; i goes where it belongs among them, the last of k falls out. */
static size_t insert(int32_t *ids, size_t n_chosen, size_t k, const float *rank, size_t i)
{
    size_t at = n_chosen;
    while (at > 0 && ranks_before((double)rank[i], (double)rank[ids[at - 1]])) at--;
    if (at == k) return n_chosen;
    if (n_chosen < k) n_chosen++;
    for (size_t j = n_chosen - 1; j > at; j--) ids[j] = ids[j - 1];
    ids[at] = (int32_t)i;
    return n_chosen;
}

/* The sum of the two best ranks of a group. */
static double group_score(const float *rank, size_t size)
{
    double best = (double)rank[0], second = (double)-INFINITY;
    for (size_t i = 1; i < size; i++) {
        double x = (double)rank[i];
        if (ranks_before(x, best)) {
            second = best;
            best = x;
        } else if (ranks_before(x, second)) {
            second = x;
        }
    }
    return size > 1 ? best + second : best;
}

/* Whether fewer than n_active_groups groups come before this one; ties go to the lower. Groups are few, and are scored
 * anew each time rather than kept anywhere. */
static bool is_active(const bt_route *r, const float *rank, size_t group)
{
    size_t size = r->n / r->n_groups, n_before = 0;
    double own = group_score(rank + group * size, size);
    for (size_t g = 0; g < r->n_groups; g++) {
        double other = group_score(rank + g * size, size);
        n_before += g < group ? !ranks_before(own, other) : ranks_before(other, own);
    }
    return n_before < r->n_active_groups;
}

void bt_route_choose(const bt_route *r)
{
    const float *score = r->scratch;
    float *rank = r->scratch + r->n;
    const size_t n_groups = r->n_groups > 1 ? r->n_groups : 1, size = r->n / n_groups;
    assert(r->k <= r->n && r->n <= INT32_MAX);
    assert(n_groups == 1 || (r->n % n_groups == 0 && r->k <= r->n_active_groups * size));
    assert(r->force < 0 || (size_t)r->force < r->n);
    for (size_t i = 0; i < r->n; i++) {
        rank[i] = r->bias ? score[i] + r->bias[i] : score[i];
        if (r->force >= 0) rank[i] = (int32_t)i == r->force ? 1 : 0; /* as `mutate` in tools/oracle */
    }

    size_t n_chosen = 0;
    for (size_t g = 0; g < n_groups; g++) {
        if (n_groups > 1 && !is_active(r, rank, g)) continue;
        for (size_t i = g * size; i < (g + 1) * size; i++) n_chosen = insert(r->ids, n_chosen, r->k, rank, i);
    }
    assert(n_chosen == r->k);

    double sum = 0;
    for (size_t i = 0; i < r->k; i++) sum += (double)score[r->ids[i]];
    for (size_t i = 0; i < r->k; i++) {
        double w = (double)score[r->ids[i]];
        if (r->renormalise) w /= sum + 1e-20; /* all scores 0: weights 0, not NaN */
        r->weights[i] = (float)(w * (double)r->scale);
    }
}
