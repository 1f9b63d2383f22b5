/*
 * Sampling parameters: a flag or its environment name first, then generation_config.json, then the default. do_sample
 * false in that file means temperature 0, as it does where the file comes from. A person sees which it was: a model
 * that "is random although I asked for nothing" is the commonest surprise of all.
 */
#include "app/sampling.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

static const char CONFIG[] = " (generation_config.json)";

static const char *source_of(const bt_app *a, bt_option id, bool in_config)
{
    if (bt_option_is_set(a->options, id)) return "";
    return in_config ? CONFIG : " (default)";
}

static double real_of(const bt_app *a, bt_option id, bool in_config, double of_config, double otherwise)
{
    if (bt_option_is_set(a->options, id)) return a->options->values[id].real;
    return in_config ? of_config : otherwise;
}

static uint64_t new_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed;
    struct timespec t; /* early at boot there may be no randomness yet; a seed need not be secret */
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000007u + (uint64_t)t.tv_nsec;
}

int bt_sampling_choose(bt_app *a, bt_sample_params *out)
{
    const bt_generation_defaults *d = bt_model_generation_defaults(a->model);
    const bt_option_value *v = a->options->values;
    bt_sample_params p = bt_sample_params_default();
    bool is_greedy = d->has_do_sample && !d->do_sample, has_temperature = is_greedy || d->has_temperature;
    p.temperature = real_of(a, BT_OPT_TEMPERATURE, has_temperature, is_greedy ? 0 : d->temperature, p.temperature);
    p.top_p = real_of(a, BT_OPT_TOP_P, d->has_top_p, d->top_p, p.top_p);
    p.min_p = real_of(a, BT_OPT_MIN_P, d->has_min_p, d->min_p, p.min_p);
    p.repetition_penalty =
        real_of(a, BT_OPT_REPETITION_PENALTY, d->has_repetition_penalty, d->repetition_penalty, p.repetition_penalty);
    if (d->has_top_k) p.top_k = d->top_k;
    if (bt_option_is_set(a->options, BT_OPT_TOP_K)) p.top_k = v[BT_OPT_TOP_K].integer;
    p.seed = bt_option_is_set(a->options, BT_OPT_SEED) ? v[BT_OPT_SEED].u64 : new_seed();
    *out = p;
    bt_app_note(a,
                "sampling: temperature %g%s, top-k %" PRId64
                "%s, top-p %g%s, min-p %g%s, repetition penalty %g%s, seed %" PRIu64,
                p.temperature, source_of(a, BT_OPT_TEMPERATURE, has_temperature), p.top_k > 0 ? p.top_k : 0,
                source_of(a, BT_OPT_TOP_K, d->has_top_k), p.top_p, source_of(a, BT_OPT_TOP_P, d->has_top_p), p.min_p,
                source_of(a, BT_OPT_MIN_P, d->has_min_p), p.repetition_penalty,
                source_of(a, BT_OPT_REPETITION_PENALTY, d->has_repetition_penalty), p.seed);
    /* Flags were checked against their ranges; what remains can only be the file's. */
    bt_sampler *trial = NULL;
    bt_status st = bt_sampler_open(1, &p, &trial, &a->error);
    bt_sampler_close(trial);
    if (st == BT_OK) return BT_EXIT_DONE;
    return bt_app_fail_with(a, st == BT_ERR_MEMORY ? BT_EXIT_MEMORY : BT_EXIT_MODEL, "generation_config.json: %s",
                            a->error.message);
}

void bt_sampling_print_json(bt_text *t, const bt_sample_params *p)
{
    bt_text_puts(t, "\"sampling\": {\"temperature\": ");
    bt_text_json_f64(t, p->temperature);
    bt_text_printf(t, ", \"top_k\": %" PRId64 ", \"top_p\": ", p->top_k);
    bt_text_json_f64(t, p->top_p);
    bt_text_puts(t, ", \"min_p\": ");
    bt_text_json_f64(t, p->min_p);
    bt_text_puts(t, ", \"repetition_penalty\": ");
    bt_text_json_f64(t, p->repetition_penalty);
    bt_text_printf(t, ", \"seed\": %" PRIu64 "}", p->seed);
}
