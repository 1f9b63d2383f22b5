/*
 * The file in which what was typed outlives the program: one line each, in libedit's format, so that libedit reads it.
 * libedit does not write it, for it knows nothing of other conversations that write the same file, nor of full disks.
 *
 * A line goes behind those that are there, in one write; a file that has grown long is replaced by a shorter one, in
 * one step. Both under a lock of the file itself, so that no line is lost between the two. Where the file system has no
 * locks lines are appended all the same, and nothing is cut.
 */
#ifndef APP_LINE_HISTORY_H
#define APP_LINE_HISTORY_H

#include "baltoro.h"

/* Whether lines may be kept there: it is absent, or a regular file that is empty or begins as libedit's do. A device in
 * its place, such as /dev/null, is a person's way to keep none, and so is a path through what is no folder; anything
 * else that it is not is an error. Waits for nothing. */
bt_status bt_line_history_look(const char *path, bool *is_kept, bt_error *e);

/* One line more, UTF-8. A line that cannot be written is not kept: whole lines stay, as they were. */
void bt_line_history_append(const char *path, const char *line, size_t size);

/* Leaves the last n_lines. If that fails, all. */
void bt_line_history_trim(const char *path, size_t n_lines);

#endif
