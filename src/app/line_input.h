/*
 * What a person types or pastes, as characters. Stands between the terminal and the line editor because the editor
 * knows nothing of bracketed paste: a pasted newline would send half a message. So the terminal is told to bracket what
 * is pasted, and a pasted block of several lines is kept here, whole; into the line goes a mark such as
 * "[paste 1: 200 lines]", in whose place the block is put when the line is done. A pasted text without line ends is
 * typed into the line as it is.
 *
 * Also the place where a person's Ctrl-C ends the wait, and where bytes that are not UTF-8 become U+FFFD.
 */
#ifndef APP_LINE_INPUT_H
#define APP_LINE_INPUT_H

#include "base/json.h"

#define BT_PASTE_ON  "\033[?2004h"
#define BT_PASTE_OFF "\033[?2004l"
enum { BT_PASTE_MARK_BYTES = 6 }; /* before and after each paste */

typedef struct bt_line_input { /* zero it, set fd and the hooks; bt_line_input_free at the end */
    int fd;
    bool (*is_interrupted)(void); /* asked while it waits */
    void (*while_waiting)(void *user);
    void *user;
    unsigned char bytes[4096]; /* read and not yet taken: [begin, end) */
    size_t begin, end;
    bt_text typed; /* goes into the line before any of the bytes */
    size_t typed_at;
    bt_text *pastes; /* [n_pastes] */
    size_t n_pastes;
    bool in_paste;                     /* its end is still to come */
    char skipped[BT_PASTE_MARK_BYTES]; /* what was thrown away last */
    bool is_at_end;
} bt_line_input;

typedef enum bt_input { BT_INPUT_CHARACTER, BT_INPUT_END, BT_INPUT_INTERRUPTED } bt_input;

/* Interrupted: what was typed until then is thrown away, that in the terminal's queue too; of a paste that is still
 * arriving, also what comes later. What was typed after Ctrl-C and is in the queue before this is called goes with it:
 * there nothing tells it from what was typed before. */
bt_input bt_line_input_next(bt_line_input *i, uint32_t *c);
/* Appends the line to *out with every paste in the place of its mark. True: there were some. */
bool bt_line_input_expand(const bt_line_input *i, const char *line, size_t size, bt_text *out);
void bt_line_input_free(bt_line_input *i);

#endif
