/*
 * Signals. A handler can only reach global data: these few words are the program's only mutable globals.
 *
 *   SIGINT, SIGTERM,
 *   SIGHUP           the first one ends the work: at once where nothing would be lost (loading, reading the prompt, the
 *                    first step), else as soon as the running step is done, keeping what was said. The second one
 *                    kills; of SIGHUP, which comes of a terminal that is gone, more are as one.
 *   SIGTSTP          in a conversation: gives the terminal back as it was, stops, and takes it again when it goes on.
 *   SIGPIPE, SIGXFSZ ignored: a write says EPIPE or EFBIG, and cleans up.
 *   SIGBUS           a checkpoint's file shrank while it was mapped: names the file and exits with 3.
 */
#ifndef APP_SIGNALS_H
#define APP_SIGNALS_H

#include "baltoro.h"

void bt_signals_install(void);

/* From here on SIGINT only sets a flag (true), or ends the program (false, as at the start). */
void bt_signals_defer(bool is_deferred);
bool bt_signals_interrupted(void);

/* A conversation begins: SIGINT sets the flag and may come again; a second one before bt_signals_clear, and SIGTERM or
 * SIGHUP at once, end the program with 130. Then fd, if it is a terminal, gets back the attributes that it has now,
 * after `farewell` was written to it. So it does when the program is stopped; once it goes on, `greeting` is written.
 * Both are static. */
void bt_signals_converse(int fd, const char *farewell, const char *greeting);
bool bt_signals_resumed(void); /* true once after the program was stopped and goes on: its screen is somebody else's */
void bt_signals_clear(void);   /* forgets an interrupt that was seen to */
/* While a conversation's file is written these signals wait: true before, false after; one that came ends it then. */
void bt_signals_hold(bool is_held);

/* Tells the SIGBUS handler which file lies where; path is borrowed until bt_signals_forget. False: the list is full. */
bool bt_signals_watch(const char *path, const void *data, size_t size);
void bt_signals_forget(void);
/* What is being opened, whose mappings nobody can tell yet; borrowed until the next call. NULL: nothing. */
void bt_signals_opening(const char *path);

#endif
