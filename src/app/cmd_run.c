/*
 * run: one prompt in, text out. Cheap checks first: the model's headers, the memory plan, the prompt, its length
 * against the context; then memory is taken and the first step runs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "app/chat_once.h"
#include "app/prompt.h"
#include "app/sampling.h"
#include "app/signals.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "tool/generate.h"
#include "tool/ids.h"

typedef struct run {
    bt_app app;
    bt_memory_plan plan;
    int32_t *prompt; /* [n_prompt] */
    size_t n_prompt;
    int32_t *end_ids; /* [n_end_ids] that count */
    size_t n_end_ids;
    bt_sample_params sampling;
    bt_text answer; /* with --json, else nothing */
    bool is_json;
    bool ends_line; /* the last byte said was a newline */
    bt_generated made;
} run;

/* ---- prompt ------------------------------------------------------------------------------------------------------ */

/* Ids of the prompt, BOS before them where the tokenizer says so and the prompt does not begin with it. */
static bt_status encode_prompt(run *r, const char *text, size_t size)
{
    bt_app *a = &r->app;
    unsigned flags = bt_option_is_set(a->options, BT_OPT_SPECIAL) ? BT_TEXT_SPECIAL : 0;
    int32_t *ids, bos = bt_tokenizer_bos(a->tokenizer);
    size_t n;
    bt_status st = bt_tokenizer_encode(a->tokenizer, text, size, flags, &ids, &n, &a->error);
    if (st != BT_OK) return st;
    bool has_bos = bos >= 0 && n > 0 && ids[0] == bos, adds_bos = bos >= 0 && !has_bos;
    r->prompt = bt_malloc(n + 1, sizeof *r->prompt);
    if (r->prompt == NULL) {
        bt_free(ids);
        return bt_fail(&a->error, BT_ERR_MEMORY, "no memory for a prompt of %zu tokens", n);
    }
    if (adds_bos) r->prompt[0] = bos;
    if (n > 0) memcpy(r->prompt + adds_bos, ids, n * sizeof *ids);
    r->n_prompt = n + adds_bos;
    bt_free(ids);
    if (r->n_prompt == 0)
        return bt_fail(&a->error, BT_ERR_USAGE,
                       "the prompt is empty, and this tokenizer has no token to begin a text with: give some text "
                       "by -p, -f or stdin");
    bt_app_note(a, "prompt: %zu token%s%s", r->n_prompt, r->n_prompt == 1 ? "" : "s",
                adds_bos  ? ", BOS added"
                : has_bos ? ", begins with BOS"
                          : ", no BOS (the tokenizer asks for none)");
    bool wants_none =
        bt_option_is_set(a->options, BT_OPT_MAX_NEW_TOKENS) && a->options->values[BT_OPT_MAX_NEW_TOKENS].integer == 0;
    if (r->n_prompt > r->plan.context || (r->n_prompt == r->plan.context && !wants_none))
        return bt_fail(&a->error, BT_ERR_CONTEXT,
                       "the prompt has %zu token%s and the context holds %zu, which leaves no room for an answer: "
                       "raise --context, "
                       "as far as the model goes, or shorten the prompt",
                       r->n_prompt, r->n_prompt == 1 ? "" : "s", r->plan.context);
    return bt_ids_check(r->prompt, r->n_prompt, bt_model_n_vocab(a->model), &a->error);
}

static int prepare_prompt(run *r)
{
    char *text = NULL;
    size_t size = 0;
    bt_status st = bt_prompt_read(&r->app, &text, &size);
    if (st == BT_OK) st = encode_prompt(r, text, size);
    bt_free(text);
    return st == BT_OK ? BT_EXIT_DONE : bt_app_fail(&r->app, bt_exit_code(st));
}

/* ---- end tokens -------------------------------------------------------------------------------------------------- */

/* The model's end ids, less those that the tokenizer does not list as an added token: these are reported, once. And
 * what ends any text in the model's family. */
static int choose_end_ids(run *r)
{
    bt_app *a = &r->app;
    size_t n;
    const int32_t *ids = bt_model_end_ids(a->model, &n);
    bt_fault_list dropped = {.n_total = 0};
    const int32_t text_end = bt_chat_text_end(bt_model_family(a->model), a->tokenizer);
    r->end_ids = bt_malloc(n + 1, sizeof *r->end_ids);
    if (r->end_ids == NULL) return bt_app_fail_with(a, BT_EXIT_MEMORY, "no memory for %zu end ids", n);
    for (size_t i = 0; i < n; i++) {
        if (bt_tokenizer_is_added(a->tokenizer, ids[i]))
            r->end_ids[r->n_end_ids++] = ids[i];
        else
            bt_fault_add(&dropped, "%d", (int)ids[i]);
    }
    if (text_end >= 0) r->end_ids[r->n_end_ids++] = text_end;
    if (dropped.n_total > 0)
        bt_app_note(a, "end ids dropped, since the tokenizer lists them as no added token: %s",
                    bt_fault_text(&dropped));
    if (bt_option_is_set(a->options, BT_OPT_IGNORE_EOS)) r->n_end_ids = 0;
    return BT_EXIT_DONE;
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

static bool say(void *user, const char *text, size_t size)
{
    run *r = user;
    bt_app_status(&r->app, "%s", "");
    r->ends_line = text[size - 1] == '\n';
    if (r->is_json) {
        bt_text_add(&r->answer, text, size);
        return !r->answer.failed;
    }
    return bt_sink_write(&r->app.out, text, size) && bt_sink_flush(&r->app.out);
}

static bool reading(void *user, size_t n_done, size_t n_total)
{
    run *r = user;
    bt_app_status(&r->app, "prompt: %zu of %zu tokens", n_done, n_total);
    return true; /* an interrupt ends the program at once: nothing was said yet */
}

static bool writing(void *user, size_t n_done, size_t n_total)
{
    (void)user;
    (void)n_total;
    if (n_done == 0) bt_signals_defer(true); /* from here on there is something to keep */
    return !bt_signals_interrupted();
}

static const char *finish_name(const run *r)
{
    if (r->made.finish != BT_FINISH_STOPPED) return bt_finish_name(r->made.finish);
    if (bt_signals_interrupted()) return "interrupted";
    return r->app.out.state == BT_SINK_FAILED ? "output failed" : "reader closed";
}

static uint64_t peak_memory(void)
{
    /* Not getrusage: its figure survives exec, so a large parent would show. */
    char *text;
    size_t size;
    uint64_t kilobytes = 0;
    if (bt_read_file("/proc/self/status", 1 << 16, &text, &size, NULL) != BT_OK) return 0;
    const char *line = strstr(text, "VmHWM:");
    if (line != NULL) (void)sscanf(line, "VmHWM: %" SCNu64, &kilobytes);
    bt_free(text);
    return kilobytes * 1024;
}

static double rate(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static void print_statistics(run *r)
{
    const bt_generated *m = &r->made;
    bt_app *a = &r->app;
    if (!r->is_json && !r->ends_line && !a->is_quiet && isatty(STDOUT_FILENO) == 1) (void)bt_sink_puts(&a->out, "\n");
    (void)bt_sink_flush(&a->out);
    if (m->n_without_text > 0)
        bt_app_note(a, "%zu of the tokens have no text: the tokenizer ends before the model's vocabulary",
                    m->n_without_text);
    bt_app_note(a, "prompt: %zu tokens, %.2f s, %.1f tokens/s; model opened in %.2f s", r->n_prompt, m->prompt_seconds,
                rate(r->n_prompt, m->prompt_seconds), a->load_seconds);
    bt_app_note(a, "output: %zu tokens, %.2f s, %.1f tokens/s; first token after %.2f s; peak memory %s", m->n_ids,
                m->output_seconds, rate(m->n_ids, m->output_seconds), m->first_seconds,
                bt_format_size(peak_memory()).text);
    if (m->finish == BT_FINISH_END_TOKEN)
        bt_app_note(a, "finished: end token %d; seed %" PRIu64, (int)m->end_id, r->sampling.seed);
    else
        bt_app_note(a, "finished: %s; seed %" PRIu64, finish_name(r), r->sampling.seed);
}

static void add_number(bt_text *t, const char *key, double value)
{
    bt_text_printf(t, ", \"%s\": ", key);
    bt_text_json_f64(t, value);
}

static int print_json(run *r)
{
    const bt_generated *m = &r->made;
    bt_text t = {0};
    bt_text_puts(&t, "{\"text\": ");
    bt_text_json_string(&t, r->answer.data != NULL ? r->answer.data : "", r->answer.size);
    bt_text_printf(&t, ", \"finish_reason\": \"%s\", \"end_id\": ", finish_name(r));
    if (m->finish == BT_FINISH_END_TOKEN)
        bt_text_printf(&t, "%d", (int)m->end_id);
    else
        bt_text_puts(&t, "null");
    bt_text_puts(&t, ", \"prompt_ids\": ");
    bt_ids_print_json(&t, r->prompt, r->n_prompt);
    bt_text_puts(&t, ", \"ids\": ");
    bt_ids_print_json(&t, m->ids, m->n_ids);
    bt_text_puts(&t, ", ");
    bt_sampling_print_json(&t, &r->sampling);
    bt_text_printf(&t, ", \"context\": %zu", r->plan.context);
    add_number(&t, "load_seconds", r->app.load_seconds);
    add_number(&t, "prompt_seconds", m->prompt_seconds);
    add_number(&t, "prompt_tokens_per_second", rate(r->n_prompt, m->prompt_seconds));
    add_number(&t, "first_token_seconds", m->first_seconds);
    add_number(&t, "output_seconds", m->output_seconds);
    add_number(&t, "output_tokens_per_second", rate(m->n_ids, m->output_seconds));
    bt_text_printf(&t, ", \"peak_memory_bytes\": %" PRIu64 "}\n", peak_memory());
    return bt_app_print(&r->app, &t);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int generate(run *r)
{
    bt_app *a = &r->app;
    const bt_options *o = a->options;
    const bt_hook while_reading = {.keep_going = reading, .user = r};
    int64_t n_max = bt_option_is_set(o, BT_OPT_MAX_NEW_TOKENS) ? o->values[BT_OPT_MAX_NEW_TOKENS].integer : -1;
    const bt_generate_options g = {
        .tokenizer = a->tokenizer,
        .prompt = r->prompt,
        .n_prompt = r->n_prompt,
        .context = r->plan.context,
        .n_max = n_max < 0 ? SIZE_MAX : (size_t)n_max,
        .sampling = r->sampling,
        .end_ids = r->end_ids,
        .n_end_ids = r->n_end_ids,
        .stops = o->stops,
        .n_stops = o->n_stops,
        .reading = &while_reading,
        .writing = {.keep_going = writing, .user = r},
        .text = say,
        .user = r,
    };
    bt_status st = bt_generate(a->session, bt_model_n_vocab(a->model), &g, &r->made, &a->error);
    int code = BT_EXIT_DONE;
    if (st == BT_OK || r->made.n_ids > 0) {
        print_statistics(r);
        if (r->is_json && st == BT_OK) code = print_json(r);
    }
    if (st != BT_OK) return bt_app_fail(a, bt_exit_code(st));
    return code == BT_EXIT_DONE && bt_signals_interrupted() ? BT_EXIT_INTERRUPTED : code;
}

static int check_options(bt_app *a)
{
    const bt_options *o = a->options;
    if (bt_option_is_set(o, BT_OPT_PROMPT) && bt_option_is_set(o, BT_OPT_PROMPT_FILE))
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--prompt and --prompt-file exclude each other");
    static const bt_option of_chat[] = {BT_OPT_SYSTEM, BT_OPT_EFFORT, BT_OPT_MESSAGES, BT_OPT_TOOLS, BT_OPT_TEMPLATE};
    for (size_t i = 0; i < sizeof of_chat / sizeof of_chat[0]; i++)
        if (o->values[of_chat[i]].source == BT_SOURCE_FLAG)
            return bt_app_fail_with(a, BT_EXIT_USAGE, "--%s is for a conversation: add --chat",
                                    bt_option_specs[of_chat[i]].name);
    for (size_t i = 0; i < o->n_stops; i++)
        if (o->stops[i][0] == '\0') return bt_app_fail_with(a, BT_EXIT_USAGE, "--stop is empty; it must be some text");
    return BT_EXIT_DONE;
}

int bt_command_run(const bt_options *o)
{
    if (bt_option_is_set(o, BT_OPT_CHAT)) return bt_chat_once(o);
    run r = {.is_json = bt_option_is_set(o, BT_OPT_JSON)};
    bt_app *a = &r.app;
    bt_app_open(a, o);
    int code = check_options(a);
    if (code == BT_EXIT_DONE) code = bt_app_open_model(a);
    if (code == BT_EXIT_DONE) code = bt_app_open_tokenizer(a);
    if (code == BT_EXIT_DONE) code = bt_app_plan(a, 0, &r.plan);
    if (code == BT_EXIT_DONE) code = bt_sampling_choose(a, &r.sampling);
    if (code == BT_EXIT_DONE) code = choose_end_ids(&r);
    if (code == BT_EXIT_DONE) code = prepare_prompt(&r);
    if (code == BT_EXIT_DONE) code = bt_app_open_engine(a, 0);
    if (code == BT_EXIT_DONE) code = generate(&r);
    bt_free(r.prompt);
    bt_free(r.end_ids);
    bt_free(r.made.ids);
    bt_text_free(&r.answer);
    return bt_app_close(a, code);
}
