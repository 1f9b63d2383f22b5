/*
 * An answer as a person sees it, or a program reads it. On a terminal reasoning is dimmed or folded, and no character
 * of the model can do anything to the terminal: control characters but line end and tab are shown as "^[" and the like.
 * Elsewhere stdout gets the answer alone, byte for byte. A call of a tool is one line of JSON in both.
 */
#ifndef APP_CHAT_SCREEN_H
#define APP_CHAT_SCREEN_H

#include "app/app.h"

typedef enum bt_screen_part { BT_SCREEN_NOTHING, BT_SCREEN_REASONING, BT_SCREEN_CONTENT } bt_screen_part;

typedef struct bt_screen { /* bt_screen_init, bt_screen_free */
    bt_app *app;
    bool is_terminal; /* stdout is one */
    bool has_style;   /* and may be told to dim */
    bool is_folded;   /* reasoning is */
    bool ends_lines;  /* an answer ends with a line end in any case */
    bt_screen_part part;
    bool at_begin;           /* of a part: line ends there are left out, on a terminal */
    bool in_line;            /* the cursor is not at the beginning of a line */
    unsigned char held;      /* first byte of a character that may be a control character; 0: none */
    bt_text reasoning;       /* of the last answer */
    bt_text name, arguments; /* of the call under way */
} bt_screen;

void bt_screen_init(bt_screen *s, bt_app *a, bool ends_lines);
void bt_screen_free(bt_screen *s);

void bt_screen_begin(bt_screen *s); /* an answer begins */
/* False once nobody reads any more. */
bool bt_screen_event(bt_screen *s, const bt_reply_event *e);
bool bt_screen_end(bt_screen *s); /* it ended, however */
/* Shows the reasoning of the last answer, which was folded. */
void bt_screen_unfold(bt_screen *s);

#endif
