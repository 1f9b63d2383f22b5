/*
 * A talk: the messages of a conversation under way, each as JSON in OpenAI's form, and the next answer to them. The
 * whole conversation is rendered anew each turn, because only the template knows what a turn looks like; what of it the
 * session has already computed is found by comparing ids (tool/answer.h). So taking messages back needs no more than
 * cutting the list.
 */
#ifndef TOOL_TALK_H
#define TOOL_TALK_H

#include "tool/answer.h"

typedef struct bt_talk bt_talk;

bt_status bt_talk_open(bt_talk **out, bt_error *e);
void bt_talk_close(bt_talk *t);

size_t bt_talk_n_messages(const bt_talk *t);
const char *bt_talk_message(const bt_talk *t, size_t i); /* JSON; borrowed until the talk changes */
const char *bt_talk_system(const bt_talk *t);            /* text of the system message, NULL: none; borrowed */
size_t bt_talk_last_user(const bt_talk *t);              /* index of the user's last message; SIZE_MAX: none */

/* Appends a message of role and text, which must be UTF-8, or one in JSON. */
bt_status bt_talk_say(bt_talk *t, const char *role, const char *text, size_t size, bt_error *e);
bt_status bt_talk_add(bt_talk *t, const char *json, size_t size, bt_error *e);
/* Sets, or with NULL removes, the system message at the beginning. */
bt_status bt_talk_set_system(bt_talk *t, const char *text, bt_error *e);
void bt_talk_cut(bt_talk *t, size_t n); /* keeps the first n messages */

/* All messages as a JSON array, and back: read replaces them, or changes nothing if it fails. */
void bt_talk_write(const bt_talk *t, bt_text *out);
bt_status bt_talk_read(bt_talk *t, const char *json, size_t size, bt_error *e);

/* Renders the talk with these template options (JSON, NULL: none), answers, appends the answer. Where no answer began,
 * none is appended. *warnings [lines]: of the template, told before the first event by `warn`, which may be NULL. */
typedef void (*bt_warn_fn)(void *user, const char *lines);
bt_status bt_talk_answer(bt_talk *t, const bt_answer_options *o, const char *template_options, bt_warn_fn warn,
                         bt_answer *out, bt_error *e);

/* Rewinds the session to what the talk still has, so that a snapshot of it holds nothing that was taken back. */
bt_status bt_talk_forget(const bt_talk *t, const bt_chat *c, bt_session *s, const char *template_options, bt_error *e);

#endif
