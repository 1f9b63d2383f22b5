/*
 * chat: a conversation. With a person at the terminal, lines are edited and notes stand between the answers; without
 * one, every line of stdin is a message, and stdout holds the answers alone.
 *
 * Nothing is cut to fit: a message for which the context has no room is refused with the numbers, and taken back.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/chat.h"
#include "app/chat_once.h"
#include "app/line_input.h"
#include "app/sampling.h"
#include "app/signals.h"
#include "base/error.h"
#include "base/file.h"

#define TOLD_BYTES_MAX ((size_t)1 << 16)

void bt_chat_say(bt_chat_app *c, const char *format, ...)
{
    va_list args;
    bt_app_status(&c->app, "%s", "");
    (void)bt_sink_flush(&c->app.out);
    va_start(args, format);
    bt_app_say(&c->app, format, args);
    va_end(args);
}

void bt_chat_say_text(bt_chat_app *c, const char *label, const char *text)
{
    bt_app_status(&c->app, "%s", "");
    (void)bt_sink_flush(&c->app.out);
    bt_app_say_text(&c->app, label, text);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static bool on_event(void *user, const bt_reply_event *event)
{
    bt_chat_app *c = user;
    return bt_screen_event(&c->screen, event);
}

/* The whole conversation is rendered for each answer, and most of what there is to say of it was said before. */
static void on_warning(void *user, const char *lines)
{
    bt_chat_app *c = user;
    for (const char *at = lines, *end; *at != '\0'; at = end) {
        size_t n = strcspn(at, "\n");
        end = at + n + (at[n] == '\n');
        if (c->told.size > 0 && memmem(c->told.data, c->told.size, at, (size_t)(end - at)) != NULL) continue;
        if (c->told.size < TOLD_BYTES_MAX) bt_text_add(&c->told, at, (size_t)(end - at));
        bt_app_note(&c->app, "%.*s", (int)n, at);
    }
}

static bool reading(void *user, size_t n_done, size_t n_total)
{
    bt_chat_app *c = user;
    bt_app_status(&c->app, "prompt: %zu of %zu tokens", n_done, n_total);
    return !bt_signals_interrupted();
}

static bool writing(void *user, size_t n_done, size_t n_total)
{
    bt_chat_app *c = user;
    (void)n_total;
    if (n_done == 0) bt_app_status(&c->app, "%s", "");
    return !bt_signals_interrupted();
}

static bt_answer_options answer_options(bt_chat_app *c, const bt_hook *while_reading)
{
    const bt_options *o = c->app.options;
    int64_t n_max = bt_option_is_set(o, BT_OPT_MAX_NEW_TOKENS) ? o->values[BT_OPT_MAX_NEW_TOKENS].integer : -1;
    bt_answer_options w = {
        .chat = c->chat,
        .tokenizer = c->app.tokenizer,
        .session = c->app.session,
        .n_vocab = bt_model_n_vocab(c->app.model),
        .context = c->plan.context,
        .n_max = n_max < 0 ? SIZE_MAX : (size_t)n_max,
        .sampling = c->sampling,
        .end_ids = c->end_ids,
        .n_end_ids = c->n_end_ids,
        .stops = o->stops,
        .n_stops = o->n_stops,
        .reading = while_reading,
        .writing = {.keep_going = writing, .user = c},
        .event = on_event,
        .user = c,
    };
    /* Each answer has a seed of its own, so that /regen says something new, and all of them follow from the first. */
    w.sampling.seed += c->totals.n_answers;
    return w;
}

/* What was said, how fast, and how much room is left. */
static void show_status(bt_chat_app *c, const bt_answer *w)
{
    const bt_generated *m = &w->made;
    const char *why = "", *dim = c->screen.has_style ? "\033[2m" : "", *plain = c->screen.has_style ? "\033[0m" : "";
    if (m->finish == BT_FINISH_STOPPED && bt_signals_interrupted()) why = "; interrupted";
    if (m->finish == BT_FINISH_LENGTH) why = "; cut at --max-new-tokens";
    if (m->finish == BT_FINISH_CONTEXT)
        why = "; cut, for the context is full: /undo, /clear, or a larger --context, if the model has one";
    if (c->app.is_quiet) return;
    (void)fprintf(stderr, "%s[%zu tokens, %.1f/s; prompt %zu new, %zu known; context %zu of %zu%s]%s\n", dim, m->n_ids,
                  m->output_seconds > 0 ? (double)m->n_ids / m->output_seconds : 0, w->n_prompt - w->n_known,
                  w->n_known, w->n_prompt + m->n_ids, c->plan.context, why, plain);
}

static void count(bt_chat_app *c, const bt_answer *w)
{
    c->totals.n_answers++;
    c->totals.n_new += w->n_prompt - w->n_known;
    c->totals.n_known += w->n_known;
    c->totals.n_ids += w->made.n_ids;
    c->totals.prompt_seconds += w->made.prompt_seconds;
    c->totals.output_seconds += w->made.output_seconds;
}

bool bt_chat_answer(bt_chat_app *c)
{
    const bt_hook while_reading = {.keep_going = reading, .user = c};
    const bt_answer_options w = answer_options(c, &while_reading);
    bt_answer answer;
    bt_signals_defer(true);
    bt_screen_begin(&c->screen);
    bt_status st = bt_talk_answer(c->talk, &w, c->effort_options, on_warning, &answer, &c->app.error);
    bool is_said = answer.message != NULL;
    (void)bt_screen_end(&c->screen);
    if (is_said) {
        show_status(c, &answer);
        count(c, &answer);
    }
    if (st != BT_OK)
        c->code = bt_app_fail(&c->app, bt_exit_code(st));
    else if (!is_said)
        bt_chat_say(c, "interrupted before the answer began");
    bt_answer_free(&answer);
    return is_said;
}

static void take_message(bt_chat_app *c, const bt_text *message)
{
    size_t before = bt_talk_n_messages(c->talk);
    bt_status st = bt_talk_say(c->talk, "user", message->data, message->size, &c->app.error);
    if (st != BT_OK) {
        c->code = bt_app_fail(&c->app, bt_exit_code(st));
    } else if (!bt_chat_answer(c)) {
        bt_talk_cut(c->talk, before);
        if (c->has_prompt) bt_chat_say(c, "your message is taken back");
    }
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static bt_edit read_plain(bt_chat_app *c, const char *prompt, bt_text *out)
{
    const char *line;
    size_t size;
    if (c->has_prompt) (void)bt_sink_puts(&c->app.out, prompt);
    bt_signals_defer(false); /* nothing is under way: Ctrl-C may end the program */
    bt_status st = bt_lines_next(&c->lines, &line, &size, &c->app.error);
    bt_signals_defer(true);
    if (st != BT_OK) {
        c->code = bt_app_fail(&c->app, bt_exit_code(st));
        return BT_EDIT_END;
    }
    if (line == NULL) return BT_EDIT_END;
    if (size > 0 && line[size - 1] == '\r') size--;
    bt_text_add(out, line, size);
    return out->failed ? BT_EDIT_FAILED : BT_EDIT_LINE;
}

/* A line, and those that follow it while each ends with a backslash. The end of a pipe ends the message too. */
static bt_edit read_message(bt_chat_app *c, bt_text *message)
{
    const char *prompt = "> ";
    message->size = 0;
    for (;;) {
        bt_edit got = c->editor != NULL ? bt_editor_read(c->editor, prompt, message) : read_plain(c, prompt, message);
        bool continues = got == BT_EDIT_LINE && message->size > 0 && message->data[message->size - 1] == '\\';
        if (continues) {
            message->data[message->size - 1] = '\n';
            prompt = "| ";
            continue;
        }
        if (got == BT_EDIT_END && message->size > 0 && !c->has_prompt && c->code == BT_EXIT_DONE) {
            message->size--; /* the last backslash, a line end by now */
            got = BT_EDIT_LINE;
        }
        if (got == BT_EDIT_LINE) bt_text_puts(message, ""); /* terminated in any case */
        if (got == BT_EDIT_LINE && c->editor != NULL) bt_editor_remember(c->editor, message->data, message->size);
        return message->failed ? BT_EDIT_FAILED : got;
    }
}

static bool is_blank(const bt_text *t)
{
    return t->size == 0 || strspn(t->data, " \t\n\r") == t->size;
}

/* Without a person the first failure ends the program: what follows would build on an answer that is not there. */
static void converse(bt_chat_app *c)
{
    bt_text message = {0};
    bool was_interrupted = false;
    while (c->app.out.state == BT_SINK_OPEN && (c->has_prompt || c->code == BT_EXIT_DONE)) {
        bt_edit got = read_message(c, &message);
        if (got == BT_EDIT_INTERRUPTED) {
            bt_signals_clear();
            (void)bt_sink_puts(&c->app.out, "\n");
            if (was_interrupted) c->code = BT_EXIT_INTERRUPTED;
            if (was_interrupted) break;
            bt_chat_say(c, "Ctrl-C once more leaves");
            was_interrupted = true;
            continue;
        }
        if (got == BT_EDIT_FAILED) bt_chat_say(c, "no memory for this message");
        if (got == BT_EDIT_END) break;
        was_interrupted = false;
        if (got == BT_EDIT_FAILED || is_blank(&message)) continue;
        c->code = BT_EXIT_DONE;
        if (!bt_chat_is_command(message.data))
            take_message(c, &message);
        else if (bt_chat_command(c, message.data) == BT_CHAT_LEAVE)
            break;
        was_interrupted = bt_signals_interrupted();
        bt_signals_clear();
    }
    bt_text_free(&message);
    if (c->has_prompt && c->code != BT_EXIT_INTERRUPTED) c->code = BT_EXIT_DONE;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* The history's path, its folders made; NULL: none can be had. */
static char *history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bt_text path = {0};
    if (state != NULL && state[0] == '/')
        bt_text_puts(&path, state);
    else if (home != NULL && home[0] == '/')
        bt_text_printf(&path, "%s/.local/state", home);
    else
        return NULL;
    bt_text_puts(&path, "/baltoro/history");
    for (size_t i = 1; !path.failed && i < path.size; i++) {
        if (path.data[i] != '/') continue;
        path.data[i] = '\0';
        (void)mkdir(path.data, 0700); /* mostly it is there; if it cannot be, there is no history */
        path.data[i] = '/';
    }
    if (bt_text_ok(&path)) return path.data;
    bt_text_free(&path);
    return NULL;
}

static int open_screen(bt_chat_app *c)
{
    bt_app *a = &c->app;
    const char *term = getenv("TERM");
    bool can_edit = c->has_prompt && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
    bt_signals_converse(c->has_prompt ? STDIN_FILENO : -1, can_edit ? BT_PASTE_OFF "\033[0m\n" : "\n",
                        can_edit ? BT_PASTE_ON : "");
    if (can_edit) {
        char *history = history_path();
        bt_status st = bt_editor_open(history, bt_signals_interrupted, bt_signals_resumed, &c->editor, &a->error);
        const char *fault = st == BT_OK ? bt_editor_history_fault(c->editor) : NULL;
        if (fault != NULL) bt_app_note(a, "no history is kept: %s", fault);
        bt_free(history);
        if (st != BT_OK) return bt_app_fail(a, bt_exit_code(st));
    }
    if (c->has_prompt) bt_app_note(a, "/help lists the commands; Ctrl-D leaves");
    return BT_EXIT_DONE;
}

static int begin_talk(bt_chat_app *c)
{
    bt_app *a = &c->app;
    const bt_option_value *v = a->options->values;
    const char *system = v[BT_OPT_SYSTEM].text;
    bt_status st = bt_talk_open(&c->talk, &a->error);
    if (st == BT_OK && system != NULL) st = bt_talk_set_system(c->talk, system, &a->error);
    if (st != BT_OK) return bt_app_fail(a, bt_exit_code(st));
    c->effort = v[BT_OPT_EFFORT].text;
    return bt_chat_choose_effort(a, c->chat, c->effort, &c->effort_options);
}

static int check_options(bt_app *a)
{
    const bt_options *o = a->options;
    bool has_both = bt_option_is_set(o, BT_OPT_SYSTEM) && bt_option_is_set(o, BT_OPT_LOAD);
    if (has_both && o->values[BT_OPT_SYSTEM].source == BT_SOURCE_FLAG)
        return bt_app_fail_with(a, BT_EXIT_USAGE,
                                "--system and --load exclude each other: the file has a conversation that began "
                                "already; /system changes it");
    if (has_both)
        bt_app_note(a, "BALTORO_SYSTEM is not used: the conversation of %s began already", o->values[BT_OPT_LOAD].text);
    for (size_t i = 0; i < o->n_stops; i++)
        if (o->stops[i][0] == '\0') return bt_app_fail_with(a, BT_EXIT_USAGE, "--stop is empty; it must be some text");
    return BT_EXIT_DONE;
}

int bt_command_chat(const bt_options *o)
{
    bt_chat_app c = {.code = BT_EXIT_DONE};
    bt_app *a = &c.app;
    const char *file = o->values[BT_OPT_LOAD].text;
    bt_app_open(a, o);
    bt_screen_init(&c.screen, a, true);
    bt_lines_init(&c.lines, STDIN_FILENO, &a->out);
    c.has_prompt = c.screen.is_terminal && isatty(STDIN_FILENO) == 1;
    int code = check_options(a);
    if (code == BT_EXIT_DONE) code = bt_app_open_model(a);
    if (code == BT_EXIT_DONE) code = bt_app_open_tokenizer(a);
    if (code == BT_EXIT_DONE) code = bt_chat_choose(a, &c.chat);
    if (code == BT_EXIT_DONE) code = bt_app_plan(a, 0, &c.plan);
    if (code == BT_EXIT_DONE) code = bt_sampling_choose(a, &c.sampling);
    if (code == BT_EXIT_DONE) code = bt_chat_choose_end_ids(a, c.chat, &c.end_ids, &c.n_end_ids);
    if (code == BT_EXIT_DONE) code = begin_talk(&c);
    if (code == BT_EXIT_DONE) code = bt_app_open_engine(a, 0);
    if (code == BT_EXIT_DONE && file != NULL && !bt_chat_load(&c, file, false)) code = c.code;
    if (code == BT_EXIT_DONE) code = open_screen(&c);
    if (code == BT_EXIT_DONE) {
        converse(&c);
        code = c.code;
    }
    bt_editor_close(c.editor);
    bt_lines_free(&c.lines);
    bt_talk_close(c.talk);
    bt_screen_free(&c.screen);
    bt_chat_close(c.chat);
    bt_free(c.end_ids);
    bt_free(c.file);
    bt_text_free(&c.told);
    return bt_app_close(a, code);
}
