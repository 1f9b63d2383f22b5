/*
 * The commands of a conversation: a table, and a function for each. One that fails says why and changes nothing;
 * without a person it also ends the program, by the code that it leaves in c->code.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "app/chat.h"
#include "app/chat_once.h"
#include "app/signals.h"
#include "base/error.h"
#include "base/file.h"
#include "tool/session_file.h"

typedef struct command {
    const char *name, *argument, *help;
    bt_chat_next (*run)(bt_chat_app *c, const char *argument); /* "": none given */
    bool takes_lines;                                          /* the argument may have several */
} command;

static void fail(bt_chat_app *c)
{
    c->code = bt_app_fail(&c->app, c->app.error.status == BT_ERR_MEMORY ? BT_EXIT_MEMORY : BT_EXIT_FAILED);
}

/* What was asked for cannot be done: a word to a person, an error to a program. */
static void refuse(bt_chat_app *c, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void refuse(bt_chat_app *c, int code, const char *format, ...)
{
    char text[BT_ERROR_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->code = code;
    if (c->has_prompt)
        bt_chat_say(c, "%s", text);
    else
        (void)bt_app_fail_with(&c->app, code, "%s", text);
}

/* ---- the conversation -------------------------------------------------------------------------------------------- */

static bt_chat_next set_system(bt_chat_app *c, const char *argument)
{
    const char *now = bt_talk_system(c->talk);
    bool removes = strcmp(argument, "-") == 0;
    if (argument[0] == '\0') {
        bt_chat_say_text(c, now != NULL ? "system message: " : "there is no system message", now != NULL ? now : "");
        return BT_CHAT_GO_ON;
    }
    if (removes && now == NULL)
        bt_chat_say(c, "there is no system message");
    else if (bt_talk_set_system(c->talk, removes ? NULL : argument, &c->app.error) != BT_OK)
        fail(c);
    else
        bt_chat_say(c, "%s",
                    removes ? "system message removed" : "system message set; it holds from the next answer on");
    return BT_CHAT_GO_ON;
}

static bt_chat_next set_effort(bt_chat_app *c, const char *argument)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    const char *options;
    if (argument[0] == '\0') {
        bt_chat_say(c, "reasoning effort: %s", c->effort != NULL ? c->effort : "the template's own");
        return BT_CHAT_GO_ON;
    }
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
        if (strcmp(argument, efforts[i]) != 0) continue;
        c->code = bt_chat_choose_effort(&c->app, c->chat, efforts[i], &options);
        if (c->code == BT_EXIT_DONE) {
            c->effort = efforts[i];
            c->effort_options = options;
            bt_chat_say(c, "reasoning effort: %s", c->effort);
        }
        return BT_CHAT_GO_ON;
    }
    refuse(c, BT_EXIT_USAGE, "the effort is one of none, minimal, low, medium, high, xhigh, max");
    return BT_CHAT_GO_ON;
}

static bt_chat_next set_temperature(bt_chat_app *c, const char *argument)
{
    const bt_option_spec *s = &bt_option_specs[BT_OPT_TEMPERATURE];
    double t;
    if (argument[0] == '\0') {
        bt_chat_say(c, "temperature: %g", c->sampling.temperature);
    } else if (!bt_parse_real(argument, &t) || t < s->min || t > s->max) {
        refuse(c, BT_EXIT_USAGE, "the temperature is a number from %g to %g", s->min, s->max);
    } else {
        c->sampling.temperature = t;
        bt_chat_say(c, "temperature: %g", t);
    }
    return BT_CHAT_GO_ON;
}

static bt_chat_next fold(bt_chat_app *c, const char *argument)
{
    (void)argument;
    if (!c->screen.is_terminal) {
        bt_chat_say(c, "reasoning is shown on a terminal alone; stdout is none");
        return BT_CHAT_GO_ON;
    }
    c->screen.is_folded = !c->screen.is_folded;
    if (c->screen.is_folded)
        bt_chat_say(c, "reasoning is folded from now on");
    else
        bt_screen_unfold(&c->screen);
    if (!c->screen.is_folded) bt_chat_say(c, "reasoning is shown from now on");
    return BT_CHAT_GO_ON;
}

/* Another answer in the place of the last one. What cannot be answered again stays as it was. */
static bt_chat_next answer_again(bt_chat_app *c, const char *argument)
{
    (void)argument;
    size_t last = bt_talk_last_user(c->talk);
    if (last == SIZE_MAX) {
        refuse(c, BT_EXIT_FAILED, "there is nothing to answer yet");
        return BT_CHAT_GO_ON;
    }
    bt_text before = {0};
    bt_talk_write(c->talk, &before);
    if (!bt_text_ok(&before)) {
        refuse(c, BT_EXIT_MEMORY, "no memory to keep the answer that there is");
    } else {
        bt_talk_cut(c->talk, last + 1);
        if (!bt_chat_answer(c) && bt_talk_n_messages(c->talk) == last + 1 &&
            bt_talk_read(c->talk, before.data, before.size, &c->app.error) != BT_OK)
            fail(c);
    }
    bt_text_free(&before);
    return BT_CHAT_GO_ON;
}

static bt_chat_next undo(bt_chat_app *c, const char *argument)
{
    (void)argument;
    size_t last = bt_talk_last_user(c->talk);
    if (last == SIZE_MAX) {
        refuse(c, BT_EXIT_FAILED, "there is nothing to take back");
        return BT_CHAT_GO_ON;
    }
    bt_talk_cut(c->talk, last);
    bt_chat_say(c, "your last message and its answer are taken back; %zu messages are left", last);
    return BT_CHAT_GO_ON;
}

static bt_chat_next clear(bt_chat_app *c, const char *argument)
{
    (void)argument;
    const char *system = bt_talk_system(c->talk);
    bt_talk_cut(c->talk, system != NULL ? 1 : 0);
    bt_free(c->file); /* what follows is another conversation, and the file is not of it */
    c->file = NULL;
    bt_chat_say(c, "the conversation is empty%s", system != NULL ? ", but for the system message" : "");
    return BT_CHAT_GO_ON;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool keep_name(bt_chat_app *c, const char *path)
{
    char *copy = bt_strdup(path);
    if (copy == NULL) return false;
    bt_free(c->file);
    c->file = copy;
    c->file_has_talk = bt_talk_last_user(c->talk) != SIZE_MAX;
    return true;
}

/* A file that is not of this conversation is never overwritten, nor one with what was said by one without. */
static bool may_write(bt_chat_app *c, const char *path)
{
    struct stat info;
    bt_path_kind kind;
    if (bt_path_look(path, &kind, &c->app.error) != BT_OK) {
        fail(c);
        return false;
    }
    if (kind == BT_PATH_ABSENT) return true;
    /* A FIFO that took its place would be waited for. */
    bool is_ours = c->file != NULL && strcmp(c->file, path) == 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode);
    if (is_ours && (!c->file_has_talk || bt_talk_last_user(c->talk) != SIZE_MAX)) return true;
    if (is_ours)
        refuse(c, BT_EXIT_FAILED, "not saved: nothing is left of the conversation, and %s would be lost", path);
    else
        refuse(c, BT_EXIT_FAILED, "%s is there already; choose another name", path);
    return false;
}

static bt_status write_session(bt_chat_app *c, const char *path, size_t *size)
{
    bt_session_file f;
    bt_text messages = {0};
    void *snapshot = NULL;
    bt_status st = bt_session_file_begin(c->app.engine, &f, &c->app.error);
    bt_talk_write(c->talk, &messages);
    if (st == BT_OK && !bt_text_ok(&messages))
        st = bt_fail(&c->app.error, BT_ERR_MEMORY, "no memory for the conversation");
    if (st == BT_OK) st = bt_talk_forget(c->talk, c->chat, c->app.session, c->effort_options, &c->app.error);
    if (st == BT_OK) st = bt_session_snapshot(c->app.session, &snapshot, &f.snapshot_size, &c->app.error);
    if (st == BT_OK) {
        f.messages = messages.data;
        f.messages_size = messages.size;
        f.snapshot = snapshot;
        *size = f.messages_size + f.snapshot_size;
        bt_signals_hold(true);
        st = bt_session_file_write(path, &f, &c->app.error);
        bt_signals_hold(false);
    }
    bt_text_free(&messages);
    bt_free(snapshot);
    return st;
}

static bt_chat_next save(bt_chat_app *c, const char *argument)
{
    size_t size = 0;
    if (argument[0] == '\0' && c->file != NULL) argument = c->file;
    if (argument[0] == '\0') {
        refuse(c, BT_EXIT_USAGE, "usage: /save FILE");
    } else if (strcmp(argument, "-") == 0) {
        refuse(c, BT_EXIT_USAGE,
               "not saved: - would be stdout, which carries the answers; give a file's name, or ./- for that one");
    } else if (may_write(c, argument)) {
        if (write_session(c, argument, &size) != BT_OK) {
            fail(c);
        } else {
            bt_chat_say(c, "saved: %s, %zu messages, %zu tokens, %s", argument, bt_talk_n_messages(c->talk),
                        bt_session_length(c->app.session), bt_format_size(size).text);
            (void)keep_name(c, argument);
        }
    }
    return BT_CHAT_GO_ON;
}

/* Everything is checked before anything changes; the last step, restoring, checks again and can only fail whole. */
static bt_status read_session(bt_chat_app *c, const bt_mapping *map)
{
    bt_error *e = &c->app.error;
    bt_session_file f, mine;
    bt_talk *talk = NULL;
    bt_status st = bt_session_file_parse(map->data, map->size, &f, e);
    if (st == BT_OK) st = bt_session_file_begin(c->app.engine, &mine, e);
    if (st == BT_OK) st = bt_session_file_match(&f, &mine, e);
    if (st == BT_OK) st = bt_talk_open(&talk, e);
    if (st == BT_OK) st = bt_talk_read(talk, f.messages, f.messages_size, e);
    if (st == BT_OK) st = bt_session_restore(c->app.session, f.snapshot, f.snapshot_size, e);
    if (st != BT_OK) {
        bt_talk_close(talk);
        return st;
    }
    bt_talk_close(c->talk);
    c->talk = talk;
    if (strcmp(f.cpu_level, mine.cpu_level) != 0)
        bt_app_note(&c->app, "note: saved by CPU level %s, this run has %s: answers may differ in what is nearly equal",
                    f.cpu_level, mine.cpu_level);
    return BT_OK;
}

bool bt_chat_load(bt_chat_app *c, const char *path, bool is_asked)
{
    bt_mapping map;
    bt_status st = bt_map_file(path, &map, &c->app.error);
    if (st == BT_OK) {
        st = read_session(c, &map);
        bt_unmap_file(&map);
        if (st != BT_OK) (void)bt_fail_in(&c->app.error, st, "%s", path);
    }
    if (st != BT_OK) {
        fail(c);
        return false;
    }
    (void)keep_name(c, path);
    if (is_asked || !c->app.is_quiet)
        bt_chat_say(c, "loaded: %s, %zu messages, %zu tokens", path, bt_talk_n_messages(c->talk),
                    bt_session_length(c->app.session));
    return true;
}

static bt_chat_next load(bt_chat_app *c, const char *argument)
{
    if (argument[0] == '\0')
        refuse(c, BT_EXIT_USAGE, "usage: /load FILE");
    else
        (void)bt_chat_load(c, argument, true);
    return BT_CHAT_GO_ON;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static double rate(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static bt_chat_next show_statistics(bt_chat_app *c, const char *argument)
{
    const bt_chat_totals *t = &c->totals;
    (void)argument;
    bt_chat_say(c, "context: %zu of %zu tokens; %zu messages", bt_session_length(c->app.session), c->plan.context,
                bt_talk_n_messages(c->talk));
    bt_chat_say(c, "answers: %zu; tokens %zu, %.1f a second", t->n_answers, t->n_ids,
                rate(t->n_ids, t->output_seconds));
    bt_chat_say(c, "prompts: %zu tokens computed, %.1f a second; %zu were known", t->n_new,
                rate(t->n_new, t->prompt_seconds), t->n_known);
    bt_chat_say(c,
                "sampling: temperature %g, top-k %" PRId64 ", top-p %g, min-p %g, repetition penalty %g, seed %" PRIu64,
                c->sampling.temperature, c->sampling.top_k, c->sampling.top_p, c->sampling.min_p,
                c->sampling.repetition_penalty, c->sampling.seed);
    bt_chat_say(c, "model: %s, %s, %zu threads", bt_model_family(c->app.model), bt_engine_cpu_level(c->app.engine),
                bt_engine_n_threads(c->app.engine));
    return BT_CHAT_GO_ON;
}

static bt_chat_next leave(bt_chat_app *c, const char *argument)
{
    (void)c;
    (void)argument;
    return BT_CHAT_LEAVE;
}

static bt_chat_next help(bt_chat_app *c, const char *argument);

static const command commands[] = {
    {"help", "", "this list", help, false},
    {"system", "[TEXT]", "shows the system message, or sets it, of several lines too; - removes it", set_system, true},
    {"effort", "[EFFORT]", "shows or sets the reasoning effort: none minimal low medium high xhigh max", set_effort,
     false},
    {"temp", "[T]", "shows or sets the temperature", set_temperature, false},
    {"think", "", "folds reasoning, or shows it again, that of the last answer at once", fold, false},
    {"regen", "", "another answer in the place of the last one", answer_again, false},
    {"undo", "", "takes back your last message and its answer", undo, false},
    {"save", "[FILE]", "writes the conversation, with all that is computed, to FILE", save, false},
    {"load", "FILE", "goes on with the conversation of FILE", load, false},
    {"clear", "", "forgets the conversation, but not the system message", clear, false},
    {"stats", "", "tokens, speed, context", show_statistics, false},
    {"quit", "", "leaves; so does Ctrl-D", leave, false},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static bt_chat_next help(bt_chat_app *c, const char *argument)
{
    (void)argument;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char usage[32];
        (void)snprintf(usage, sizeof usage, "/%s %s", commands[i].name, commands[i].argument);
        bt_chat_say(c, "%-18s %s", usage, commands[i].help);
    }
    bt_chat_say(
        c, "A backslash at the end of a line continues the message, or the text of /system, on the next one; a blank "
           "before / makes it no command.");
    bt_chat_say(c, "Ctrl-C stops the answer, twice it leaves.");
    return BT_CHAT_GO_ON;
}

/* The command that a message beginning with / names; NULL: none. *n: the length of its first word, / left out. */
static const command *find(const char *message, size_t *n)
{
    *n = strcspn(message + 1, " \t\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == *n && memcmp(commands[i].name, message + 1, *n) == 0) return &commands[i];
    return NULL;
}

/* A line that begins with / is one. Several lines are one only by name: "/usr/bin" and what else is pasted is none. */
bool bt_chat_is_command(const char *message)
{
    size_t n;
    return message[0] == '/' && (strchr(message, '\n') == NULL || find(message, &n) != NULL);
}

bt_chat_next bt_chat_command(bt_chat_app *c, const char *message)
{
    size_t n;
    const command *found = find(message, &n);
    const char *argument = message + 1 + n;
    argument += strspn(argument, " \t");
    if (found == NULL)
        refuse(c, BT_EXIT_USAGE, "there is no command /%.*s; /help lists them, and a blank before / makes it a message",
               (int)(n < 40 ? n : 40), message + 1);
    else if (!found->takes_lines && strchr(argument, '\n') != NULL)
        refuse(c, BT_EXIT_USAGE, "/%s takes one line; a blank before / makes it a message", found->name);
    else
        return found->run(c, argument);
    return BT_CHAT_GO_ON;
}
