/*
 * Lines from a person at a terminal, with editing and a history that outlives the program. The one door to libedit.
 *
 * Between two lines the terminal neither echoes nor waits for whole lines: what is typed or pasted while the model
 * answers stays in the terminal's queue, whole, and comes into the next line. On a terminal that cannot move its cursor
 * (TERM=dumb) do not open an editor; read lines instead.
 */
#ifndef APP_LINE_EDIT_H
#define APP_LINE_EDIT_H

#include "base/json.h"

typedef struct bt_editor bt_editor;

typedef enum bt_edit {
    BT_EDIT_LINE,
    BT_EDIT_END,         /* Ctrl-D, or the terminal is gone */
    BT_EDIT_INTERRUPTED, /* Ctrl-C: the line is thrown away, and what else was typed before */
    BT_EDIT_FAILED,      /* no memory */
} bt_edit;

/* On stdin and stdout. history: a file, to which lines are appended; NULL, not writable, or of another kind: none is
 * kept. is_interrupted, and is_resumed (the line must be drawn anew), are asked while waiting. */
bt_status bt_editor_open(const char *history, bool (*is_interrupted)(void), bool (*is_resumed)(void), bt_editor **out,
                         bt_error *e);
/* Why no history is kept though there is something at its path, borrowed; NULL: it is kept, or none was wanted. */
const char *bt_editor_history_fault(const bt_editor *d);
void bt_editor_close(bt_editor *d); /* leaves the terminal as it was */

/* One line, UTF-8, without its line end, pastes put in, appended to *line. */
bt_edit bt_editor_read(bt_editor *d, const char *prompt, bt_text *line);
/* Puts a message into the history, unless a paste is in it. Once for each message, after its last line. */
void bt_editor_remember(bt_editor *d, const char *text, size_t size);

#endif
