/*
 * The conversation in the terminal: what its parts share. cmd_chat.c opens everything, reads messages and has them
 * answered; chat_commands.c does what a line that begins with / asks for.
 */
#ifndef APP_CHAT_H
#define APP_CHAT_H

#include "app/chat_screen.h"
#include "app/line_edit.h"
#include "tool/talk.h"

typedef struct bt_chat_totals { /* since the program began */
    size_t n_answers, n_new, n_known, n_ids;
    double prompt_seconds, output_seconds;
} bt_chat_totals;

typedef struct bt_chat_app {
    bt_app app;
    bt_memory_plan plan;
    bt_sample_params sampling;
    bt_chat *chat;
    int32_t *end_ids; /* [n_end_ids] */
    size_t n_end_ids;
    bt_talk *talk;
    bt_screen screen;
    bt_editor *editor; /* NULL: lines are read as they come */
    bt_lines lines;
    bool has_prompt;            /* a person is there: stdin and stdout are terminals */
    const char *effort_options; /* for the template; NULL: none */
    const char *effort;         /* as asked for; NULL: none */
    char *file;                 /* of the last /save or /load; NULL: none */
    bool file_has_talk;         /* somebody has spoken in it */
    bt_text told;               /* warnings, each told once */
    bt_chat_totals totals;
    int code; /* what the program will say */
} bt_chat_app;

/* A line to the person, also with --quiet: what a command was asked for. */
void bt_chat_say(bt_chat_app *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, of any length and with line ends: `text` behind `label`. */
void bt_chat_say_text(bt_chat_app *c, const char *label, const char *text);

/* Answers the conversation as it stands. False: it did not, and the person knows why. */
bool bt_chat_answer(bt_chat_app *c);

typedef enum bt_chat_next { BT_CHAT_GO_ON, BT_CHAT_LEAVE } bt_chat_next;
bool bt_chat_is_command(const char *message);
bt_chat_next bt_chat_command(bt_chat_app *c, const char *message); /* that is one; c->code: what a failure leaves */
/* False: it failed, the person knows why, and c->code says it. is_asked: by a command, so that --quiet is no reason to
 * be silent. */
bool bt_chat_load(bt_chat_app *c, const char *path, bool is_asked);

#endif
