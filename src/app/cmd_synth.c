/* synth: a random checkpoint of true shapes into a folder, with a progress bar where someone watches. */
#include <math.h>
#include <string.h>

#include "app/app.h"
#include "app/signals.h"
#include "base/machine.h"
#include "tool/synth.h"

#define BAR_WIDTH     24
#define SHOWN_EVERY_S 0.1
#define RATE_OVER_S   2.0 /* about: a disk's rate changes as its cache fills, so the rate shown is a recent one */

typedef struct progress {
    bt_app *app;
    double begin, shown; /* times */
    size_t n_shown;      /* bytes done when it was shown last */
    double rate;         /* bytes per second */
} progress;

/* The mean so far at first, later one in which old times fade. */
static void update_rate(progress *p, double now, size_t n_done)
{
    double passed = now - p->shown;
    if (now - p->begin < RATE_OVER_S)
        p->rate = (double)n_done / (now - p->begin);
    else
        p->rate += ((double)(n_done - p->n_shown) / passed - p->rate) * (passed / (passed + RATE_OVER_S));
    p->shown = now;
    p->n_shown = n_done;
}

static void show(progress *p, size_t n_done, size_t n_total)
{
    char bar[BAR_WIDTH + 1] = {0}, left[40] = "";
    double part = n_total == 0 ? 1 : (double)n_done / (double)n_total;
    for (int i = 0; i < BAR_WIDTH; i++) bar[i] = i < (int)(part * BAR_WIDTH) ? '#' : '.';
    if (n_done >= n_total)
        (void)snprintf(left, sizeof left, ", waiting for the disk");
    else if (p->rate > 0)
        (void)snprintf(left, sizeof left, ", %.0f s left", ceil((double)(n_total - n_done) / p->rate));
    bt_app_status(p->app, "[%s] %3.0f %%  %s of %s, %s/s%s", bar, 100 * part, bt_format_size(n_done).text,
                  bt_format_size(n_total).text, bt_format_size((uint64_t)p->rate).text, left);
}

static bool keep_going(void *user, size_t n_done, size_t n_total)
{
    progress *p = user;
    double now = bt_seconds();
    if (now - p->shown >= SHOWN_EVERY_S) {
        update_rate(p, now, n_done);
        show(p, n_done, n_total);
    }
    return !bt_signals_interrupted();
}

static int print_report(bt_app *a, const char *folder, const bt_synth_options *s, const bt_synth_report *r,
                        double seconds)
{
    double rate = seconds > 0 ? (double)r->bytes / seconds : 0;
    bt_app_note(a, "%s: %.1f million parameters in %zu shards, %s, %.1f s, %s/s", folder, (double)r->n_parameters / 1e6,
                r->n_shards, bt_format_size(r->bytes).text, seconds, bt_format_size((uint64_t)rate).text);
    if (!bt_option_is_set(a->options, BT_OPT_JSON)) return BT_EXIT_DONE;
    bt_text t = {0};
    bt_text_puts(&t, "{\"output\": ");
    bt_text_json_string(&t, folder, strlen(folder));
    bt_text_printf(&t, ", \"preset\": \"%s\", \"dtype\": \"%s\", \"seed\": %llu, \"threads\": %zu, ", s->preset->name,
                   s->choice.fp8 ? "fp8" : "bf16", (unsigned long long)s->seed, s->n_threads);
    bt_text_printf(&t, "\"parameters\": %llu, \"tensors\": %zu, \"shards\": %zu, \"bytes\": %llu, \"seconds\": ",
                   (unsigned long long)r->n_parameters, r->n_tensors, r->n_shards, (unsigned long long)r->bytes);
    bt_text_json_f64(&t, seconds);
    bt_text_puts(&t, "}\n");
    return bt_app_print(a, &t);
}

static int synthesise(bt_app *a)
{
    const bt_option_value *v = a->options->values;
    bt_machine machine;
    bt_machine_read("", &machine);
    progress p = {.app = a, .begin = bt_seconds()};
    p.shown = p.begin;
    const bt_hook hook = {.keep_going = keep_going, .user = &p};
    bool has_threads = bt_option_is_set(a->options, BT_OPT_THREADS);
    bt_synth_options s = {
        .folder = a->options->arguments[0],
        .choice = {.n_layers = (size_t)v[BT_OPT_LAYERS].integer,
                   .n_experts = (size_t)v[BT_OPT_EXPERTS].integer,
                   .fp8 = v[BT_OPT_WEIGHTS].text != NULL && strcmp(v[BT_OPT_WEIGHTS].text, "fp8") == 0},
        .n_threads = has_threads ? (size_t)v[BT_OPT_THREADS].integer : machine.n_threads_default,
        .hook = &hook,
    };
    bt_synth_report report;
    bt_status st = bt_preset_find(v[BT_OPT_PRESET].text, &s.preset, &a->error);
    bool has_seed = bt_option_is_set(a->options, BT_OPT_WEIGHTS_SEED);
    if (st == BT_OK) s.seed = has_seed ? v[BT_OPT_WEIGHTS_SEED].u64 : s.preset->seed;
    bt_signals_defer(true); /* what was written so far must go */
    if (st == BT_OK) st = bt_synth(&s, &report, &a->error);
    if (st == BT_ERR_CANCELLED)
        return bt_app_fail_with(a, BT_EXIT_INTERRUPTED, "interrupted; %s was not written", s.folder);
    if (st != BT_OK) return bt_app_fail(a, bt_exit_code(st));
    return print_report(a, s.folder, &s, &report, bt_seconds() - p.begin);
}

int bt_command_synth(const bt_options *o)
{
    bt_app a;
    int code;
    bt_app_open(&a, o);
    if (o->n_arguments == 0 || o->arguments[0][0] == '\0')
        code = bt_app_fail_with(&a, BT_EXIT_USAGE, "OUT is missing: the folder to make");
    else if (!bt_option_is_set(o, BT_OPT_PRESET))
        code = bt_app_fail_with(&a, BT_EXIT_USAGE, "--preset is missing; `baltoro help synth` lists the presets");
    else
        code = synthesise(&a);
    return bt_app_close(&a, code);
}
