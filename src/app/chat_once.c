/*
 * run --chat: a conversation in, its next message out. Cheap checks first, as in cmd_run.c: the template renders the
 * conversation, and its length is held against the context, before memory is taken.
 */
#include "app/chat_once.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/chat_screen.h"
#include "app/prompt.h"
#include "app/request.h"
#include "app/sampling.h"
#include "app/signals.h"
#include "base/error.h"
#include "tool/answer.h"

typedef struct once {
    bt_app app;
    bt_memory_plan plan;
    bt_sample_params sampling;
    bt_chat *chat;
    int32_t *end_ids; /* [n_end_ids] */
    size_t n_end_ids;
    bt_request_files files;
    bt_prompt prompt;
    bt_screen screen;
    bt_answer answer;
    bool is_json;
} once;

/* ---- shared with chat -------------------------------------------------------------------------------------------- */

int bt_chat_choose(bt_app *a, bt_chat **out)
{
    bt_status st = bt_chat_open(bt_model_folder(a->model), bt_model_family(a->model),
                                a->options->values[BT_OPT_TEMPLATE].text, a->tokenizer, out, &a->error);
    if (st != BT_OK) return bt_request_fail_template(a, st);
    bt_app_note(a, "chat template: %s", bt_chat_source(*out));
    return BT_EXIT_DONE;
}

int bt_chat_choose_end_ids(bt_app *a, const bt_chat *c, int32_t **ids, size_t *n)
{
    bt_text dropped = {0};
    bt_status st = bt_answer_end_ids(a->model, a->tokenizer, c, ids, n, &dropped, &a->error);
    if (st == BT_OK && dropped.size > 0)
        bt_app_note(a, "end ids dropped, since the tokenizer lists them as no added token: %s", dropped.data);
    bt_text_free(&dropped);
    return st == BT_OK ? BT_EXIT_DONE : bt_app_fail(a, bt_exit_code(st));
}

int bt_chat_choose_effort(bt_app *a, const bt_chat *c, const char *effort, const char **options)
{
    const char *used;
    *options = NULL;
    if (effort == NULL) return BT_EXIT_DONE;
    bt_status st = bt_chat_effort(c, effort, &used, options, &a->error);
    if (st != BT_OK) return bt_app_fail(a, bt_exit_code(st));
    if (strcmp(used, effort) != 0)
        bt_app_note(a, "reasoning effort %s: this family has none of that name; %s is the nearest", effort, used);
    return BT_EXIT_DONE;
}

void bt_chat_warn(bt_app *a, const char *lines)
{
    bt_app_note_lines(a, lines);
}

/* ---- the conversation -------------------------------------------------------------------------------------------- */

static int check_options(bt_app *a)
{
    const bt_options *o = a->options;
    static const bt_option prompts[] = {BT_OPT_PROMPT, BT_OPT_PROMPT_FILE, BT_OPT_MESSAGES};
    bt_option given = BT_N_OPTIONS;
    for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++) {
        if (!bt_option_is_set(o, prompts[i])) continue;
        if (given != BT_N_OPTIONS)
            return bt_app_fail_with(a, BT_EXIT_USAGE, "--%s and --%s exclude each other", bt_option_specs[given].name,
                                    bt_option_specs[prompts[i]].name);
        given = prompts[i];
    }
    if (given == BT_OPT_MESSAGES && bt_option_is_set(o, BT_OPT_SYSTEM))
        return bt_app_fail_with(a, BT_EXIT_USAGE,
                                "--system and --messages exclude each other: put a system message "
                                "into the file");
    if (bt_option_is_set(o, BT_OPT_SPECIAL))
        return bt_app_fail_with(a, BT_EXIT_USAGE,
                                "--special and --chat exclude each other: a message is always plain "
                                "text");
    for (size_t i = 0; i < o->n_stops; i++)
        if (o->stops[i][0] == '\0') return bt_app_fail_with(a, BT_EXIT_USAGE, "--stop is empty; it must be some text");
    return BT_EXIT_DONE;
}

static void add_message(bt_text *t, const char *role, const char *text, size_t size)
{
    bt_text_printf(t, "%s{\"role\": \"%s\", \"content\": ", t->size > 1 ? ", " : "", role);
    bt_text_json_string(t, text, size);
    bt_text_puts(t, "}");
}

static bt_status build_messages(once *r)
{
    bt_app *a = &r->app;
    char *user = NULL;
    size_t size = 0;
    const char *system = a->options->values[BT_OPT_SYSTEM].text;
    bt_status st = bt_prompt_read(a, &user, &size);
    if (st != BT_OK) return st;
    bt_text t = {0};
    bt_text_puts(&t, "[");
    if (system != NULL) add_message(&t, "system", system, strlen(system));
    add_message(&t, "user", user, size);
    bt_text_puts(&t, "]");
    bt_free(user);
    if (t.failed) {
        bt_text_free(&t);
        return bt_fail(&a->error, BT_ERR_MEMORY, "no memory for a message of %zu bytes", size);
    }
    r->files.messages = t.data;
    r->files.messages_size = t.size;
    return BT_OK;
}

/* Tokens of the answer, at most. */
static size_t most_tokens(const bt_app *a)
{
    int64_t n = a->options->values[BT_OPT_MAX_NEW_TOKENS].integer;
    return !bt_option_is_set(a->options, BT_OPT_MAX_NEW_TOKENS) || n < 0 ? SIZE_MAX : (size_t)n;
}

static int prepare_prompt(once *r)
{
    bt_app *a = &r->app;
    const char *options;
    int code = bt_chat_choose_effort(a, r->chat, a->options->values[BT_OPT_EFFORT].text, &options);
    if (code != BT_EXIT_DONE) return code;
    bt_status st = bt_request_read(a, &r->files);
    if (st == BT_OK && r->files.messages == NULL) st = build_messages(r);
    if (st == BT_OK) {
        bt_chat_request request = bt_request_of(a, &r->files);
        request.options = options;
        request.options_size = options != NULL ? strlen(options) : 0;
        st = bt_chat_render(r->chat, &request, &r->prompt, &a->error);
    }
    if (st == BT_OK) {
        bt_chat_warn(a, r->prompt.warnings);
        bt_app_note(a, "prompt: %zu tokens", r->prompt.n_ids);
        st = bt_answer_fits(&r->prompt, r->plan.context, most_tokens(a), &a->error);
    }
    return st == BT_OK ? BT_EXIT_DONE : bt_app_fail(a, bt_exit_code(st));
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static bool on_event(void *user, const bt_reply_event *event)
{
    once *r = user;
    if (!r->is_json) return bt_screen_event(&r->screen, event);
    return true;
}

static bool reading(void *user, size_t n_done, size_t n_total)
{
    once *r = user;
    bt_app_status(&r->app, "prompt: %zu of %zu tokens", n_done, n_total);
    return true; /* an interrupt ends the program at once: nothing was said yet */
}

static bool writing(void *user, size_t n_done, size_t n_total)
{
    once *r = user;
    if (n_done == 0) {
        bt_app_status(&r->app, "%s", "");
        bt_signals_defer(true); /* from here on there is something to keep */
    }
    if (r->is_json) bt_app_status(&r->app, "answer: %zu of at most %zu tokens", n_done, n_total);
    return !bt_signals_interrupted();
}

static int print_json(once *r)
{
    const bt_answer *w = &r->answer;
    bt_text t = {0};
    bt_text_puts(&t, "{\"message\": ");
    if (w->message != NULL)
        bt_text_add(&t, w->message, w->size);
    else
        bt_text_puts(&t, "null");
    bt_text_printf(&t,
                   ", \"finish_reason\": \"%s\", \"usage\": {\"prompt_tokens\": %zu, \"completion_tokens\": %zu, "
                   "\"total_tokens\": %zu}, \"seed\": %" PRIu64 "}\n",
                   w->finish_reason, w->n_prompt, w->made.n_ids, w->n_prompt + w->made.n_ids, r->sampling.seed);
    return bt_app_print(&r->app, &t);
}

static void print_statistics(once *r)
{
    const bt_generated *m = &r->answer.made;
    bt_app *a = &r->app;
    double seconds = m->output_seconds;
    bt_app_note(a, "output: %zu tokens, %.2f s, %.1f tokens/s; first token after %.2f s", m->n_ids, seconds,
                seconds > 0 ? (double)m->n_ids / seconds : 0, m->first_seconds);
    bt_app_note(a, "finished: %s (%s); seed %" PRIu64, r->answer.finish_reason,
                m->finish != BT_FINISH_STOPPED ? bt_finish_name(m->finish)
                : bt_signals_interrupted()     ? "interrupted"
                                               : "reader closed",
                r->sampling.seed);
}

static int answer(once *r)
{
    bt_app *a = &r->app;
    const bt_options *o = a->options;
    const bt_hook while_reading = {.keep_going = reading, .user = r};
    const bt_answer_options w = {
        .chat = r->chat,
        .tokenizer = a->tokenizer,
        .session = a->session,
        .n_vocab = bt_model_n_vocab(a->model),
        .context = r->plan.context,
        .n_max = most_tokens(a),
        .sampling = r->sampling,
        .end_ids = r->end_ids,
        .n_end_ids = bt_option_is_set(o, BT_OPT_IGNORE_EOS) ? 0 : r->n_end_ids,
        .stops = o->stops,
        .n_stops = o->n_stops,
        .reading = &while_reading,
        .writing = {.keep_going = writing, .user = r},
        .event = on_event,
        .user = r,
    };
    bt_screen_begin(&r->screen);
    bt_status st = bt_answer_make(&r->prompt, &w, &r->answer, &a->error);
    if (!r->is_json) (void)bt_screen_end(&r->screen);
    int code = BT_EXIT_DONE;
    if (st == BT_OK || r->answer.made.n_ids > 0) print_statistics(r);
    if (r->is_json && st == BT_OK) code = print_json(r);
    bool is_whole = st == BT_OK && r->answer.message != NULL && r->answer.made.finish != BT_FINISH_STOPPED;
    if (is_whole) st = bt_prompt_check_answer(&r->prompt, r->answer.message, r->answer.size, &a->error);
    if (st != BT_OK) return bt_app_fail(a, bt_exit_code(st));
    return code == BT_EXIT_DONE && bt_signals_interrupted() ? BT_EXIT_INTERRUPTED : code;
}

int bt_chat_once(const bt_options *o)
{
    once r = {.is_json = bt_option_is_set(o, BT_OPT_JSON)};
    bt_app *a = &r.app;
    bt_app_open(a, o);
    bt_screen_init(&r.screen, a, false);
    int code = check_options(a);
    if (code == BT_EXIT_DONE) code = bt_app_open_model(a);
    if (code == BT_EXIT_DONE) code = bt_app_open_tokenizer(a);
    if (code == BT_EXIT_DONE) code = bt_chat_choose(a, &r.chat);
    if (code == BT_EXIT_DONE) code = bt_app_plan(a, 0, &r.plan);
    if (code == BT_EXIT_DONE) code = bt_sampling_choose(a, &r.sampling);
    if (code == BT_EXIT_DONE) code = bt_chat_choose_end_ids(a, r.chat, &r.end_ids, &r.n_end_ids);
    if (code == BT_EXIT_DONE) code = prepare_prompt(&r);
    if (code == BT_EXIT_DONE) code = bt_app_open_engine(a, 0);
    if (code == BT_EXIT_DONE) code = answer(&r);
    bt_answer_free(&r.answer);
    bt_prompt_free(&r.prompt);
    bt_screen_free(&r.screen);
    bt_chat_close(r.chat);
    bt_free(r.end_ids);
    bt_request_free(&r.files);
    return bt_app_close(a, code);
}
