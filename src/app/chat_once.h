/* `run --chat`: one turn of a conversation. */
#ifndef APP_CHAT_ONCE_H
#define APP_CHAT_ONCE_H

#include "app/app.h"

int bt_chat_once(const bt_options *o);

/* What `run --chat` and `chat` share: the template of a->model, opened and told on stderr; the ids that end a turn; the
 * effort of --reasoning-effort, *options NULL where none was asked for. Exit codes. */
int bt_chat_choose(bt_app *a, bt_chat **out);
int bt_chat_choose_end_ids(bt_app *a, const bt_chat *c, int32_t **ids, size_t *n);
int bt_chat_choose_effort(bt_app *a, const bt_chat *c, const char *effort, const char **options);
void bt_chat_warn(bt_app *a, const char *lines); /* each of the lines as a note */

#endif
