/*
 * The files of a conversation, --messages and --tools, for `run --chat` and `render`: what is wrong with one of them
 * has the same words and the same exit code in both.
 */
#ifndef APP_REQUEST_H
#define APP_REQUEST_H

#include "app/app.h"

typedef struct bt_request_files { /* JSON; zero it, free it with bt_request_free */
    char *messages, *tools;       /* NULL: not given */
    size_t messages_size, tools_size;
} bt_request_files;

/* Reads those that the options name; "-" is stdin, for one of them. */
bt_status bt_request_read(bt_app *a, bt_request_files *f);
void bt_request_free(bt_request_files *f);
/* What there is of a request: files and their names. */
bt_chat_request bt_request_of(const bt_app *a, const bt_request_files *f);

/* Says a->error, of bt_chat_open. The checkpoint's own template that cannot be used is exit code 3; one that was given
 * is like any other file: 1 if it cannot be read, 2 if it is wrong. */
int bt_request_fail_template(bt_app *a, bt_status st);

#endif
