/*
 * What commands share: opening a model from the options, saying things on stderr, turning a status into an exit code.
 * A command is a function from options to an exit code; it owns one bt_app and closes it.
 */
#ifndef APP_APP_H
#define APP_APP_H

#include <stdarg.h>

#include "app/options.h"
#include "app/stream.h"

enum {
    BT_EXIT_DONE = 0,
    BT_EXIT_FAILED = 1,
    BT_EXIT_USAGE = 2,
    BT_EXIT_MODEL = 3,  /* unreadable or unsupported */
    BT_EXIT_MEMORY = 4, /* or disk */
    BT_EXIT_INTERRUPTED = 130,
};

#define BT_APP_SCORE_ROWS 32u /* rows of logits at a time where all are wanted: a pass over the head serves them all */

typedef struct bt_app {
    const bt_options *options;
    bt_error error;
    bt_sink out;     /* stdout */
    bool is_quiet;   /* nothing on stderr but errors */
    bool is_verbose; /* what was found and chosen, too */
    bool has_status; /* a status line may be shown: stderr is a terminal that can erase a line */
    bool is_showing; /* one is */
    char *path;      /* of MODEL, found */
    bt_model *model;
    bt_engine *engine;
    bt_session *session;
    bt_tokenizer *tokenizer;
    double load_seconds; /* to open model and engine */
    size_t logit_rows;   /* for the engine: more than one where every row's logits are wanted */
    /* What the user can lower where the context is too large, for messages. NULL: --context. */
    const char *context_name;
} bt_app;

/* The demo model's folder, beside the installed program or in the source tree that it was built in; bt_free by the
 * caller. NULL: it is in none of them, or no memory. */
char *bt_demo_model_find(void);

void bt_app_open(bt_app *a, const bt_options *o);
/* Flushes stdout, closes everything, and returns `code`, or another one if the answer could not be written. */
int bt_app_close(bt_app *a, int code);

/* Each step returns an exit code, BT_EXIT_DONE to go on; what went wrong was said. */
int bt_app_locate(bt_app *a);         /* a->path; without MODEL the demo model's */
int bt_app_open_model(bt_app *a);     /* a->model; locates first */
int bt_app_open_tokenizer(bt_app *a); /* a->tokenizer: of a->model, else of a->path */
/* The memory plan for `context` positions (0: the default), printed; refused with numbers if it does not fit. */
int bt_app_plan(bt_app *a, size_t context, bt_memory_plan *plan);
int bt_app_open_engine(bt_app *a, size_t context); /* a->engine, a->session */
bt_engine_options bt_app_engine_options(const bt_app *a, size_t context);

/* Lines on stderr. An error is always said; a note unless --quiet; a detail with --verbose. All are made safe for a
 * terminal. */
int bt_app_fail(bt_app *a, int code); /* says a->error */
int bt_app_fail_with(bt_app *a, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
void bt_app_note(bt_app *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bt_app_detail(bt_app *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bt_app_note_lines(bt_app *a, const char *lines); /* each of them a note */
void bt_app_say(bt_app *a, const char *format, va_list args) __attribute__((format(printf, 2, 0))); /* also if quiet */
/* Text of any length and its line ends behind `label`, also if quiet. */
void bt_app_say_text(bt_app *a, const char *label, const char *text);
/* A line that the next one overwrites; only where stderr is a terminal. "" erases it. */
void bt_app_status(bt_app *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

int bt_exit_code(bt_status st);

double bt_seconds(void); /* of a clock that only goes forward */

/* Writes a text made by bt_text_*; frees it. */
int bt_app_print(bt_app *a, bt_text *t);

/* The commands. */
int bt_command_run(const bt_options *o);
int bt_command_chat(const bt_options *o);
int bt_command_logits(const bt_options *o);
int bt_command_verify(const bt_options *o);
int bt_command_tokenize(const bt_options *o);
int bt_command_detokenize(const bt_options *o);
int bt_command_render(const bt_options *o);
int bt_command_info(const bt_options *o);
int bt_command_devices(const bt_options *o);
int bt_command_bench(const bt_options *o);
int bt_command_synth(const bt_options *o);
int bt_command_help(const bt_options *o);
int bt_command_version(const bt_options *o);

#endif
