/*
 * Bytes to stdout and from stdin. An answer must arrive whole or be reported lost: every write is checked, a reader
 * that left (EPIPE) is told apart from a fault. stdio hides which write failed and why; this does not.
 */
#ifndef APP_STREAM_H
#define APP_STREAM_H

#include "baltoro.h"

/* ---- out --------------------------------------------------------------------------------------------------------- */

typedef enum bt_sink_state {
    BT_SINK_OPEN,
    BT_SINK_CLOSED, /* the reader left: no fault, and no more to do */
    BT_SINK_FAILED, /* the fault is in error_number */
} bt_sink_state;

typedef struct bt_sink {
    int fd;
    bt_sink_state state;
    int error_number;
    size_t used;
    char buffer[1 << 16];
} bt_sink;

void bt_sink_init(bt_sink *s, int fd);
/* False once the sink is closed or failed; what follows is dropped. */
bool bt_sink_write(bt_sink *s, const char *data, size_t size);
bool bt_sink_puts(bt_sink *s, const char *text);
bool bt_sink_flush(bt_sink *s);

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* All of fd, at most size_max bytes, terminated; bt_free by the caller. `name` is for messages. */
bt_status bt_read_all(int fd, const char *name, size_t size_max, char **data, size_t *size, bt_error *e);
/* All of a file that an option names; "-" is stdin. */
bt_status bt_read_input(const char *path, size_t size_max, char **data, size_t *size, bt_error *e);

/* Lines of any length. Before it waits for more input it flushes `out`, so that one line in gives one line out to a
 * program that talks to us through pipes, and many lines cost few writes. */
typedef struct bt_lines {
    int fd;
    bt_sink *out;
    char *data;
    size_t begin, end, capacity; /* the unread bytes are data[begin, end) */
    bool is_at_end;
} bt_lines;

void bt_lines_init(bt_lines *l, int fd, bt_sink *out);
/* *line [*size] without its newline, borrowed until the next call; *line NULL at the end. */
bt_status bt_lines_next(bt_lines *l, const char **line, size_t *size, bt_error *e);
void bt_lines_free(bt_lines *l);

#endif
