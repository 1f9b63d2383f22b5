/* The sampler against first principles: corners C37-C40, each filter's border, its statistics, its seed. */
#include "unit.h"

#include <float.h>
#include <math.h>

#include "base/arena.h"

enum { N = 8 };

static bt_sampler *open_sampler(size_t n, bt_sample_params p)
{
    bt_sampler *s = NULL;
    bt_error e;
    assert_int_equal(bt_sampler_open(n, &p, &s, &e), BT_OK);
    return s;
}

static int32_t next(bt_sampler *s, const float *logits)
{
    int32_t id = -1;
    bt_error e;
    bt_guard_begin(); /* an allocation aborts */
    bt_status st = bt_sampler_next(s, logits, &id, &e);
    bt_guard_end();
    assert_int_equal(st, BT_OK);
    return id;
}

/* Which of the ids come out of `draws` choices from the same logits, as a bit set (n <= 32). */
static uint32_t support(size_t n, const float *logits, bt_sample_params p, size_t draws)
{
    uint32_t set = 0;
    bt_sampler *s = open_sampler(n, p);
    for (size_t i = 0; i < draws; i++) set |= UINT32_C(1) << next(s, logits);
    bt_sampler_close(s);
    return set;
}

static bt_sample_params plain(void)
{
    bt_sample_params p = bt_sample_params_default();
    p.seed = 42;
    return p;
}

static void defaults_are_off(void **state)
{
    (void)state;
    bt_sample_params p = bt_sample_params_default();
    assert_true(p.temperature == 1 && p.top_k <= 0 && p.top_p == 1 && p.min_p == 0 && p.repetition_penalty == 1);
    assert_int_equal(p.seed, 0);
}

static void greedy_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    const float logits[N] = {-1, 3, 2, 3, 3, -INFINITY, 0, 3};
    const double temperatures[] = {0, 1e-30, DBL_MIN, 4.9e-324, 1e-11};
    for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
        bt_sample_params p = plain();
        p.temperature = temperatures[t];
        assert_int_equal(support(N, logits, p, 50), 1u << 1);
    }
    bt_sample_params k = plain(), nucleus = plain();
    k.top_k = 1;
    nucleus.top_p = 0;
    assert_int_equal(support(N, logits, k, 50), 1u << 1);
    assert_int_equal(support(N, logits, nucleus, 50), 1u << 1);
}

static void extreme_temperatures_stay_finite(void **state)
{
    (void)state;
    const float logits[N] = {-FLT_MAX, FLT_MAX, 0, 1, 2, 3, -1, FLT_MAX};
    bt_sample_params p = plain();
    p.temperature = 1e-4;
    assert_int_equal(support(N, logits, p, 400), 1u << 1 | 1u << 7);
    p.temperature = 1e9;
    assert_int_equal(support(N, logits, p, 400), 1u << 1 | 1u << 7);
    const float small[N] = {0, 1, 2, 3, 4, 5, 6, 7};
    assert_int_equal(support(N, small, p, 4000), 255); /* nearly uniform */
    p.temperature = DBL_MAX;
    assert_int_equal(support(N, small, p, 4000), 255);
}

static void refuse(bt_sample_params p, const char *name)
{
    bt_sampler *s = NULL;
    bt_error e;
    assert_int_equal(bt_sampler_open(N, &p, &s, &e), BT_ERR_USAGE);
    assert_null(s);
    if (strstr(e.message, name) == NULL) fail_msg("'%s' does not name %s", e.message, name);
    assert_int_equal(bt_sampler_open(N, &p, &s, NULL), BT_ERR_USAGE);
}

static void bad_parameters_are_refused_by_name(void **state)
{
    (void)state;
    const double bad[] = {-1, -DBL_MIN, (double)NAN, HUGE_VAL, -HUGE_VAL};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bt_sample_params p = plain(), q = plain(), r = plain(), t = plain();
        p.temperature = bad[i];
        refuse(p, "temperature");
        q.top_p = bad[i];
        refuse(q, "top_p");
        r.min_p = bad[i];
        refuse(r, "min_p");
        t.repetition_penalty = bad[i];
        refuse(t, "repetition_penalty");
    }
    bt_sample_params p = plain(), q = plain(), r = plain();
    p.top_p = 1.5;
    refuse(p, "top_p");
    q.min_p = 2;
    refuse(q, "min_p");
    r.repetition_penalty = 0;
    refuse(r, "repetition_penalty");
    bt_sampler *s = NULL;
    bt_sample_params good = plain();
    assert_int_equal(bt_sampler_open(0, &good, &s, NULL), BT_ERR_USAGE);
    assert_int_equal(bt_sampler_open((size_t)INT32_MAX + 1, &good, &s, NULL), BT_ERR_USAGE);
}

static void logits_without_an_answer_are_refused(void **state)
{
    (void)state;
    const double temperatures[] = {0, 1};
    for (size_t t = 0; t < 2; t++) {
        bt_sample_params p = plain();
        p.temperature = temperatures[t];
        bt_sampler *s = open_sampler(100, p);
        float logits[100];
        int32_t id = -7;
        bt_error e;
        for (size_t i = 0; i < 100; i++) logits[i] = -INFINITY;
        assert_int_equal(bt_sampler_next(s, logits, &id, &e), BT_ERR_NUMERIC);
        assert_non_null(strstr(e.message, "-infinity"));
        logits[3] = 1;
        logits[77] = NAN;
        assert_int_equal(bt_sampler_next(s, logits, &id, &e), BT_ERR_NUMERIC);
        assert_non_null(strstr(e.message, "id 77 is NaN"));
        logits[77] = INFINITY;
        assert_int_equal(bt_sampler_next(s, logits, &id, &e), BT_ERR_NUMERIC);
        assert_non_null(strstr(e.message, "id 77 is +infinity"));
        for (size_t i = 0; i < 100; i++) logits[i] = NAN;
        assert_int_equal(bt_sampler_next(s, logits, &id, NULL), BT_ERR_NUMERIC);
        assert_int_equal(id, -7);
        for (size_t i = 0; i < 100; i++) logits[i] = -INFINITY;
        logits[99] = -FLT_MAX; /* the last candidate, however unlikely */
        assert_int_equal(next(s, logits), 99);
        bt_sampler_close(s);
    }
}

static void top_k_keeps_k(void **state)
{
    (void)state;
    const float logits[N] = {0, 0.5F, 1, 0.5F, 0, 1, 0.5F, 0};
    const struct {
        int64_t k;
        uint32_t set;
    } cases[] = {{2, 0x24},         {3, 0x26},        {4, 0x2e},
                 {5, 0x6e},         {8, 0xff},        {0, 0xff},
                 {-1, 0xff},        {9, 0xff},        {INT64_C(1) << 31, 0xff},
                 {INT64_MAX, 0xff}, {INT64_MIN, 0xff}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_sample_params p = plain();
        p.top_k = cases[i].k;
        assert_int_equal(support(N, logits, p, 1000), cases[i].set);
    }
}

static void top_p_is_the_smallest_set(void **state)
{
    (void)state;
    /* Probabilities 1/2, 1/4, 1/8, 1/8: ln 2 steps; the last two are equal, the lower id goes first. */
    const float l = 0.693147181F;
    const float logits[4] = {0, 2 * l, l, 0};
    const struct {
        double p;
        uint32_t set;
    } cases[] = {{0.0, 2}, {1e-9, 2}, {0.49, 2}, {0.51, 6}, {0.74, 6}, {0.76, 7}, {0.87, 7}, {0.88, 15}, {1.0, 15}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_sample_params p = plain();
        p.top_p = cases[i].p;
        assert_int_equal(support(4, logits, p, 1000), cases[i].set);
    }
    /* Exactly at the border: four equal ones, p a multiple of 1/4. */
    const float equal[4] = {5, 5, 5, 5};
    for (uint32_t n = 1; n <= 4; n++) {
        bt_sample_params p = plain();
        p.top_p = n / 4.0;
        assert_int_equal(support(4, equal, p, 500), (1u << n) - 1);
    }
    /* Many light ones count: 1 of weight 1, 400 of weight 1/50, so that half of the mass needs 175 of these. */
    float tail[401] = {0};
    for (size_t i = 1; i < 401; i++) tail[i] = -3.912023F;
    bt_sample_params half = plain();
    half.top_p = 0.5;
    bt_sampler *s = open_sampler(401, half);
    int32_t highest = 0;
    for (size_t i = 0; i < 4000; i++) {
        int32_t id = next(s, tail);
        highest = id > highest ? id : highest;
    }
    assert_int_equal(highest, 175);
    bt_sampler_close(s);
    /* p is a share of what top-k left: of 1/2 and 1/4, the first has two thirds. */
    bt_sample_params both = plain();
    both.top_k = 2;
    both.top_p = 0.6;
    assert_int_equal(support(4, logits, both, 500), 2);
    both.top_p = 0.7;
    assert_int_equal(support(4, logits, both, 500), 6);
}

static void min_p_is_relative_to_the_best(void **state)
{
    (void)state;
    const float l = 0.693147181F;
    const float logits[4] = {0, 2 * l, l, 0};
    const struct {
        double p;
        uint32_t set;
    } cases[] = {{0.0, 15}, {0.24, 15}, {0.26, 6}, {0.49, 6}, {0.51, 2}, {1.0, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_sample_params p = plain();
        p.min_p = cases[i].p;
        assert_int_equal(support(4, logits, p, 1000), cases[i].set);
    }
    /* After the temperature: at 2 the ratios are square roots. */
    bt_sample_params warm = plain();
    warm.temperature = 2;
    warm.min_p = 0.49;
    assert_int_equal(support(4, logits, warm, 1000), 15);
}

static void penalty_divides_positive_and_multiplies_negative(void **state)
{
    (void)state;
    bt_sample_params p = plain();
    p.temperature = 0;
    p.repetition_penalty = 1.5;
    const float positive[3] = {3, 2.1F, 1.9F}; /* 3 / 1.5 = 2 */
    bt_sampler *s = open_sampler(3, p);
    bt_sampler_accept(s, 0);                /* the prompt counts */
    bt_sampler_accept(s, 0);                /* once, however often it came */
    assert_int_equal(next(s, positive), 1); /* and so does the output: 2.1 / 1.5 = 1.4 from now on */
    assert_int_equal(next(s, positive), 0); /* 2 > 1.9 > 1.4 */
    bt_sampler_close(s);
    const float negative[3] = {-1, -1.4F, -1.6F}; /* -1 * 1.5 = -1.5 */
    s = open_sampler(3, p);
    bt_sampler_accept(s, 0);
    assert_int_equal(next(s, negative), 1);
    assert_int_equal(next(s, negative), 0); /* -1.5 > -1.6 > -2.1 */
    bt_sampler_close(s);
}

static void penalty_below_one_and_extremes(void **state)
{
    (void)state;
    bt_sample_params p = plain();
    p.temperature = 0;
    p.repetition_penalty = 0.5; /* repeats are favoured */
    const float logits[3] = {1, 1.5F, -INFINITY};
    bt_sampler *s = open_sampler(3, p);
    bt_sampler_accept(s, 0);
    bt_sampler_accept(s, 2); /* banned stays banned */
    assert_int_equal(next(s, logits), 0);
    bt_sampler_close(s);
    const double extremes[] = {DBL_MAX, 4.9e-324};
    const float signs[] = {1, -1, FLT_MAX, -FLT_MAX, 0};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof signs / sizeof *signs; k++) {
            p.repetition_penalty = extremes[i];
            const float only[3] = {-INFINITY, signs[k], -INFINITY};
            s = open_sampler(3, p);
            bt_sampler_accept(s, 1);
            assert_int_equal(next(s, only), 1); /* at least one candidate always remains */
            bt_sampler_close(s);
        }
}

/* A penalty makes no candidate of what was banned, and no number of what was none. */
static void penalty_hides_no_fault(void **state)
{
    (void)state;
    bt_sample_params p = plain();
    p.repetition_penalty = 2;
    const float faults[] = {-INFINITY, INFINITY, NAN};
    for (size_t i = 0; i < 3; i++) {
        const float logits[2] = {-INFINITY, faults[i]};
        int32_t id = -1;
        bt_sampler *s = open_sampler(2, p);
        bt_sampler_accept(s, 0);
        bt_sampler_accept(s, 1);
        assert_int_equal(bt_sampler_next(s, logits, &id, NULL), BT_ERR_NUMERIC);
        bt_sampler_close(s);
    }
}

static void foreign_ids_are_not_counted(void **state)
{
    (void)state;
    bt_sample_params p = plain();
    p.repetition_penalty = 2;
    bt_sampler *s = open_sampler(3, p);
    bt_sampler_accept(s, -1);
    bt_sampler_accept(s, 3);
    bt_sampler_accept(s, INT32_MAX);
    bt_sampler_accept(s, INT32_MIN);
    bt_sampler_close(s);
    bt_sampler_close(NULL);
}

static void all_knobs_at_once(void **state)
{
    (void)state;
    bt_sample_params p = {
        .temperature = 1e9, .top_k = 1, .top_p = 0, .min_p = 1, .repetition_penalty = 1e300, .seed = 1};
    const float logits[3] = {1, 2, 3};
    bt_sampler *s = open_sampler(3, p);
    assert_int_equal(next(s, logits), 2);
    assert_int_equal(next(s, logits), 1);
    assert_int_equal(next(s, logits), 0);
    assert_int_equal(next(s, logits), 0); /* all penalised to nothing, equal: the lowest */
    bt_sampler_close(s);
    const float one[1] = {-5};
    bt_sampler *single = open_sampler(1, plain());
    assert_int_equal(next(single, one), 0);
    bt_sampler_close(single);
}

static void seeds_repeat_and_differ(void **state)
{
    (void)state;
    float logits[64] = {0};
    const uint64_t seeds[] = {0, 1, 2, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX};
    int32_t first[6][32];
    for (size_t k = 0; k < 6; k++) {
        bt_sample_params p = plain();
        p.seed = seeds[k];
        bt_sampler *a = open_sampler(64, p), *b = open_sampler(64, p);
        for (size_t i = 0; i < 32; i++) {
            first[k][i] = next(a, logits);
            assert_int_equal(first[k][i], next(b, logits));
        }
        bt_sampler_close(a);
        bt_sampler_close(b);
        for (size_t j = 0; j < k; j++) assert_memory_not_equal(first[j], first[k], sizeof first[k]);
    }
}

/* Chi-square of 40,000 draws against the softmax; 7 degrees of freedom: 35 is beyond 1 in 100,000. Fixed seed. */
static void frequencies_follow_the_softmax(void **state)
{
    (void)state;
    const float logits[N] = {0, -1, 1, 0.5F, -2, 2, 0.1F, -0.3F};
    const double temperatures[] = {0.7, 1, 3};
    enum { DRAWS = 40000 };
    for (size_t t = 0; t < 3; t++) {
        bt_sample_params p = plain();
        p.temperature = temperatures[t];
        double weights[N], sum = 0, chi = 0;
        size_t counts[N] = {0};
        for (size_t i = 0; i < N; i++) sum += weights[i] = exp((double)logits[i] / p.temperature);
        bt_sampler *s = open_sampler(N, p);
        for (size_t i = 0; i < DRAWS; i++) counts[next(s, logits)]++;
        bt_sampler_close(s);
        for (size_t i = 0; i < N; i++) {
            double want = DRAWS * weights[i] / sum;
            chi += ((double)counts[i] - want) * ((double)counts[i] - want) / want;
        }
        assert_true(chi < 35);
    }
}

/* ---- a large vocabulary against sorting -------------------------------------------------------------------------- */

static const double *sort_weights;

static int by_weight(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sort_weights[i] != sort_weights[j]) return sort_weights[i] > sort_weights[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

/* The set that the filters leave, by the definition: sort all, then cut. */
static void allowed_by_sorting(const float *logits, size_t n, bt_sample_params p, bool *allowed)
{
    double *w = calloc(n, sizeof *w), mass = 0, sum = 0;
    int32_t *order = calloc(n, sizeof *order);
    assert_non_null(w);
    assert_non_null(order);
    float top = -INFINITY;
    for (size_t i = 0; i < n; i++) top = logits[i] > top ? logits[i] : top;
    for (size_t i = 0; i < n; i++) {
        w[i] = exp(((double)logits[i] - (double)top) / p.temperature);
        order[i] = (int32_t)i;
    }
    sort_weights = w;
    qsort(order, n, sizeof *order, by_weight);
    size_t k = p.top_k > 0 && (size_t)p.top_k < n ? (size_t)p.top_k : n;
    for (size_t i = 0; i < k; i++) mass += w[order[i]];
    memset(allowed, 0, n * sizeof *allowed);
    for (size_t i = 0; i < k && (i == 0 || p.top_p >= 1.0 || sum < p.top_p * mass); i++) {
        sum += w[order[i]];
        if (w[order[i]] >= p.min_p) allowed[order[i]] = true;
    }
    free(w);
    free(order);
}

static void large_vocabularies_agree_with_sorting(void **state)
{
    (void)state;
    enum { LARGE = 5003 };
    static float logits[LARGE];
    static bool allowed[LARGE];
    uint32_t x = 12345;
    for (size_t i = 0; i < LARGE; i++) {
        x = x * 1664525u + 1013904223u;
        logits[i] = (float)(x >> 24) / 16.0F - 8.0F; /* 256 values: many ties */
    }
    const bt_sample_params cases[] = {
        {.temperature = 1, .top_k = 40, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 1, .top_k = 79, .top_p = 1, .repetition_penalty = 1}, /* as many as there are blocks */
        {.temperature = 1, .top_k = 80, .top_p = 1, .repetition_penalty = 1}, /* one more */
        {.temperature = 3, .top_k = 3000, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 1, .top_k = 0, .top_p = 0.31, .repetition_penalty = 1},
        {.temperature = 9, .top_k = 0, .top_p = 0.97, .repetition_penalty = 1},
        {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0.3, .repetition_penalty = 1},
        {.temperature = 2, .top_k = 500, .top_p = 0.8, .min_p = 0.2, .repetition_penalty = 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t n_allowed = 0, n_seen = 0;
        static bool seen[LARGE];
        memset(seen, 0, sizeof seen);
        allowed_by_sorting(logits, LARGE, cases[c], allowed);
        for (size_t i = 0; i < LARGE; i++) n_allowed += allowed[i];
        bt_sampler *s = open_sampler(LARGE, cases[c]);
        for (size_t i = 0; i < 3000; i++) {
            int32_t id = next(s, logits);
            if (!allowed[id]) fail_msg("case %zu draws id %d, which the filters exclude", c, (int)id);
            n_seen += !seen[id];
            seen[id] = true;
        }
        bt_sampler_close(s);
        if (n_allowed < 200)
            assert_int_equal(n_seen, n_allowed);
        else
            assert_true(n_seen > n_allowed / 4 || n_seen > 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_off),
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(extreme_temperatures_stay_finite),
        cmocka_unit_test(bad_parameters_are_refused_by_name),
        cmocka_unit_test(logits_without_an_answer_are_refused),
        cmocka_unit_test(top_k_keeps_k),
        cmocka_unit_test(top_p_is_the_smallest_set),
        cmocka_unit_test(min_p_is_relative_to_the_best),
        cmocka_unit_test(penalty_divides_positive_and_multiplies_negative),
        cmocka_unit_test(penalty_below_one_and_extremes),
        cmocka_unit_test(penalty_hides_no_fault),
        cmocka_unit_test(foreign_ids_are_not_counted),
        cmocka_unit_test(all_knobs_at_once),
        cmocka_unit_test(seeds_repeat_and_differ),
        cmocka_unit_test(frequencies_follow_the_softmax),
        cmocka_unit_test(large_vocabularies_agree_with_sorting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
