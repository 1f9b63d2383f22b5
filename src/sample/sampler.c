/*
 * The sampler: logits in, one id out. Owns its parameters, the ids seen so far and the scratch for one choice.
 *
 * The order of the filters is fixed and documented in baltoro.h:
 *   1. repetition penalty   each id of prompt and output once: positive logits divided, negative ones multiplied
 *   2. temperature          weight = exp((logit - max) / temperature), in double; the largest weight is exactly 1
 *   3. top-k                the k heaviest
 *   4. top-p                of these the fewest, heaviest first, whose share of their sum reaches p; at least one
 *   5. min-p                of these the ones that weigh at least min_p times the heaviest
 *   6. draw                 one number of the seeded generator per choice: choice i of a seed is the same everywhere
 * Heavier means a larger weight, then the lower id: the order is total, so nothing depends on how we search.
 *
 * Greedy is temperature 0, and any temperature so small that the smallest step between two logits of usual size would
 * underflow (TEMPERATURE_MIN): the largest logit, the lowest id on ties. top_p 0 keeps the heaviest one.
 *
 * Refused: NaN and +infinity (an overflow somewhere, not a preference) and logits that are all -infinity. Never id 0 by
 * accident. -infinity alone means "banned". Once an id is choosable, a penalty cannot make it unchoosable.
 *
 * Speed at 250,000 ids: no sort. Each filter first drops what a cheap bound proves to lie outside, then a quickselect
 * finds the border among the few that remain. Nothing is allocated here after bt_sampler_open.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/rng.h"

#define TEMPERATURE_MIN 1e-10
#define BLOCK           64u /* ids per block whose maximum bounds the k-th largest logit */

typedef struct bt_candidate {
    double weight;
    int32_t id;
} bt_candidate;

struct bt_sampler {
    bt_sample_params params;
    size_t n_vocab;
    uint64_t n_chosen; /* the generator's counter */
    bool *is_seen;     /* [n_vocab]; NULL where the penalty is off */
    int32_t *seen;     /* [n_vocab]; each id once */
    size_t n_seen;
    float *penalised;     /* [n_vocab]; NULL where the penalty is off */
    bt_candidate *kept;   /* [n_vocab] */
    float *block_maxima;  /* [n_blocks] */
    bt_candidate *blocks; /* [n_blocks]; for the selection among block maxima */
    size_t n_blocks;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

bt_sample_params bt_sample_params_default(void)
{
    return (bt_sample_params){.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repetition_penalty = 1, .seed = 0};
}

static bt_status check_params(const bt_sample_params *p, bt_error *e)
{
    /* Written so that NaN fails each comparison. */
    if (!(p->temperature >= 0 && p->temperature <= DBL_MAX))
        return bt_fail(e, BT_ERR_USAGE, "temperature is %g; it must be a number from 0 on", p->temperature);
    if (!(p->top_p >= 0 && p->top_p <= 1))
        return bt_fail(e, BT_ERR_USAGE, "top_p is %g; it must lie between 0 and 1", p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return bt_fail(e, BT_ERR_USAGE, "min_p is %g; it must lie between 0 and 1", p->min_p);
    if (!(p->repetition_penalty > 0 && p->repetition_penalty <= DBL_MAX))
        return bt_fail(e, BT_ERR_USAGE, "repetition_penalty is %g; it must be a number above 0", p->repetition_penalty);
    return BT_OK;
}

bt_status bt_sampler_open(size_t n_vocab, const bt_sample_params *p, bt_sampler **out, bt_error *e)
{
    const bt_sample_params defaults = bt_sample_params_default();
    assert(out != NULL);
    if (p == NULL) p = &defaults;
    if (n_vocab == 0 || n_vocab > INT32_MAX)
        return bt_fail(e, BT_ERR_USAGE, "a vocabulary of %zu ids cannot be sampled from", n_vocab);
    bt_status st = check_params(p, e);
    if (st != BT_OK) return st;
    bt_sampler *s = bt_calloc(1, sizeof *s);
    if (s == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a sampler");
    s->params = *p;
    s->n_vocab = n_vocab;
    s->n_blocks = (n_vocab + BLOCK - 1) / BLOCK;
    s->kept = bt_malloc(n_vocab, sizeof *s->kept);
    s->block_maxima = bt_malloc(s->n_blocks, sizeof *s->block_maxima);
    s->blocks = bt_malloc(s->n_blocks, sizeof *s->blocks);
    bool ok = s->kept != NULL && s->block_maxima != NULL && s->blocks != NULL;
    if (p->repetition_penalty != 1.0) {
        s->is_seen = bt_calloc(n_vocab, sizeof *s->is_seen);
        s->seen = bt_malloc(n_vocab, sizeof *s->seen);
        s->penalised = bt_malloc(n_vocab, sizeof *s->penalised);
        ok = ok && s->is_seen != NULL && s->seen != NULL && s->penalised != NULL;
    }
    if (!ok) {
        bt_sampler_close(s);
        return bt_fail(e, BT_ERR_MEMORY, "no memory to sample from %zu ids", n_vocab);
    }
    *out = s;
    return BT_OK;
}

void bt_sampler_close(bt_sampler *s)
{
    if (s == NULL) return;
    bt_free(s->is_seen);
    bt_free(s->seen);
    bt_free(s->penalised);
    bt_free(s->kept);
    bt_free(s->block_maxima);
    bt_free(s->blocks);
    bt_free(s);
}

void bt_sampler_accept(bt_sampler *s, int32_t id)
{
    if (s->is_seen == NULL || id < 0 || (size_t)id >= s->n_vocab || s->is_seen[id]) return;
    assert(s->n_seen < s->n_vocab);
    s->is_seen[id] = true;
    s->seen[s->n_seen++] = id;
}

/* ---- selection --------------------------------------------------------------------------------------------------- */

static bool is_heavier(const bt_candidate *a, const bt_candidate *b)
{
    return a->weight > b->weight || (a->weight == b->weight && a->id < b->id);
}

static void swap(bt_candidate *a, bt_candidate *b)
{
    bt_candidate c = *a;
    *a = *b;
    *b = c;
}

/* Moves the candidates of [begin, end) that are heavier than the one at pivot_i to the front, that one behind them, and
 * returns where it lies now. */
static size_t partition(bt_candidate *c, size_t begin, size_t end, size_t pivot_i)
{
    size_t border = begin;
    swap(&c[pivot_i], &c[end - 1]);
    for (size_t i = begin; i < end - 1; i++)
        if (is_heavier(&c[i], &c[end - 1])) swap(&c[i], &c[border++]);
    swap(&c[border], &c[end - 1]);
    return border;
}

/* Moves the fewest candidates, heaviest first, whose measures reach `goal` to the front of c [n], in no order; returns
 * how many they are: at least 1, n if all do not reach it. The measure is the weight, or 1 each. Pivots are random, but
 * the same each time: quadratic time cannot be provoked by chance, and the result does not depend on them. */
static size_t select_heaviest(bt_candidate *c, size_t n, double goal, bool by_weight)
{
    assert(n >= 1);
    size_t begin = 0, end = n;
    for (uint64_t turn = 0; end - begin > 1; turn++) {
        size_t pivot_i = begin + (size_t)(bt_rng_u64(n, turn) % (end - begin));
        size_t border = partition(c, begin, end, pivot_i);
        double before = by_weight ? 0.0 : (double)(border - begin);
        for (size_t i = begin; by_weight && i < border; i++) before += c[i].weight;
        double pivot = by_weight ? c[border].weight : 1.0;
        if (border > begin && before >= goal) {
            end = border;
        } else if (before + pivot >= goal) {
            return border + 1;
        } else {
            goal -= before + pivot;
            begin = border + 1;
        }
    }
    return begin < n ? begin + 1 : n;
}

/* ---- one choice -------------------------------------------------------------------------------------------------- */

/* The logits after the penalty: the caller's own where it is off. Clamped to finite: a penalty bans nothing. */
static const float *penalise(bt_sampler *s, const float *logits)
{
    if (s->penalised == NULL) return logits;
    memcpy(s->penalised, logits, s->n_vocab * sizeof *logits);
    for (size_t i = 0; i < s->n_seen; i++) {
        double x = (double)logits[s->seen[i]];
        if (!isfinite(x)) continue;
        x = x > 0 ? x / s->params.repetition_penalty : x * s->params.repetition_penalty;
        s->penalised[s->seen[i]] = (float)fmin(fmax(x, -(double)FLT_MAX), (double)FLT_MAX);
    }
    return s->penalised;
}

/* Fills block_maxima and returns the largest logit; refuses what cannot be sampled from. */
static bt_status find_maximum(bt_sampler *s, const float *logits, float *maximum, bt_error *e)
{
    float top = -INFINITY;
    for (size_t b = 0; b < s->n_blocks; b++) {
        size_t begin = b * BLOCK, end = begin + BLOCK < s->n_vocab ? begin + BLOCK : s->n_vocab;
        float block_top = -INFINITY;
        bool is_number = true;
        for (size_t i = begin; i < end; i++) {
            is_number &= logits[i] < INFINITY; /* false for NaN too */
            block_top = logits[i] > block_top ? logits[i] : block_top;
        }
        if (!is_number) {
            size_t i = begin;
            while (logits[i] < INFINITY) i++;
            return bt_fail(e, BT_ERR_NUMERIC,
                           "the logit of id %zu is %s: the computation overflowed or a weight is bad", i,
                           isnan(logits[i]) ? "NaN" : "+infinity");
        }
        s->block_maxima[b] = block_top;
        top = block_top > top ? block_top : top;
    }
    if (!(top > -INFINITY))
        return bt_fail(e, BT_ERR_NUMERIC, "all %zu logits are -infinity: no token is left to choose", s->n_vocab);
    *maximum = top;
    return BT_OK;
}

static int32_t first_of(const float *logits, float maximum)
{
    int32_t i = 0;
    while (logits[i] < maximum) i++;
    return i;
}

/* A logit that at least k ids reach: the k-th largest of the block maxima, each of which is another id's logit. */
static float bound_of_top_k(bt_sampler *s, size_t k)
{
    if (k > s->n_blocks) return -INFINITY;
    for (size_t b = 0; b < s->n_blocks; b++)
        s->blocks[b] = (bt_candidate){.weight = (double)s->block_maxima[b], .id = (int32_t)b};
    size_t n = select_heaviest(s->blocks, s->n_blocks, (double)k, false);
    double bound = s->blocks[0].weight;
    for (size_t i = 1; i < n; i++) bound = fmin(bound, s->blocks[i].weight);
    return (float)bound;
}

/* Candidates with their weights: all ids that reach `bound`. *mass: the sum of their weights, in the order of ids. */
static size_t weigh(bt_sampler *s, const float *logits, float maximum, float bound, double *mass)
{
    size_t n = 0;
    double sum = 0;
    for (size_t i = 0; i < s->n_vocab; i++) {
        if (!(logits[i] >= bound) || !(logits[i] > -INFINITY)) continue;
        double w = exp(((double)logits[i] - (double)maximum) / s->params.temperature);
        sum += w;
        s->kept[n++] = (bt_candidate){.weight = w, .id = (int32_t)i};
    }
    *mass = sum;
    return n;
}

static size_t keep_above(bt_candidate *c, size_t n, double weight_min)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].weight >= weight_min) c[n_kept++] = c[i];
    return n_kept;
}

static double sum_of(const bt_candidate *c, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += c[i].weight;
    return sum;
}

static int32_t draw(const bt_candidate *c, size_t n, double u)
{
    double goal = u * sum_of(c, n), sum = 0;
    int32_t id = -1;
    for (size_t i = 0; i < n; i++) {
        if (!(c[i].weight > 0)) continue; /* underflowed: cannot be drawn, not even by rounding at the end */
        id = c[i].id;
        sum += c[i].weight;
        if (sum > goal) break;
    }
    assert(id >= 0);
    return id;
}

static int32_t choose(bt_sampler *s, const float *logits, float maximum)
{
    const bt_sample_params *p = &s->params;
    bool has_top_k = p->top_k > 0 && (uint64_t)p->top_k < s->n_vocab;
    if (p->temperature < TEMPERATURE_MIN || p->top_k == 1 || p->top_p <= 0.0) return first_of(logits, maximum);

    double mass;
    size_t n = weigh(s, logits, maximum, has_top_k ? bound_of_top_k(s, (size_t)p->top_k) : -INFINITY, &mass);
    if (has_top_k) {
        n = select_heaviest(s->kept, n, (double)p->top_k, false);
        mass = sum_of(s->kept, n);
    }
    if (p->top_p < 1.0) {
        /* The heaviest weighs 1, so mass >= 1, and all that weigh (1 - p) / n or less together weigh no more than
         * (1 - p) * mass: whatever their order, p is reached before them. */
        size_t n_bound = keep_above(s->kept, n, (1.0 - p->top_p) / (double)n);
        n = select_heaviest(s->kept, n_bound, p->top_p * mass, true);
    }
    if (p->min_p > 0.0) n = keep_above(s->kept, n, p->min_p);
    assert(n >= 1);
    return draw(s->kept, n, bt_rng_f64(p->seed, s->n_chosen));
}

bt_status bt_sampler_next(bt_sampler *s, const float *logits, int32_t *id, bt_error *e)
{
    assert(id != NULL);
    if (logits == NULL) return bt_fail(e, BT_ERR_USAGE, "there are no logits to choose from: extend the session first");
    const float *penalised = penalise(s, logits);
    float maximum = -INFINITY;
    bt_status st = find_maximum(s, penalised, &maximum, e);
    if (st != BT_OK) return st;
    int32_t chosen = choose(s, penalised, maximum);
    assert(chosen >= 0 && (size_t)chosen < s->n_vocab);
    s->n_chosen++;
    bt_sampler_accept(s, chosen);
    *id = chosen;
    return BT_OK;
}
