/* The parts of a chat: where its template is, what the template left out, and from rendered text to ids. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "text/messages.h"
#include "text/output.h"

/* ---- chat_template.c --------------------------------------------------------------------------------------------- */

typedef struct bt_template { /* zero it, free it with bt_template_close */
    bt_jinja *jinja;         /* NULL: none was found */
    bt_jinja *with_tools;    /* the one for conversations with tools, where a list of named ones has it; else NULL */
    char *source;            /* where it was found */
    bt_arena *arena;
    bt_text specials;        /* the tokenizer's special tokens as members of a JSON object, ", " before each */
    bt_jinja_trust *trusted; /* [n_trusted] what counts as template in the variables that we pass */
    size_t n_trusted;
    bt_text sources; /* of all of them: which names stand in it */
} bt_template;

/* path: a file, NULL: look in the folder. */
bt_status bt_template_open(const char *folder, const char *path, bt_template *out, bt_error *e);
void bt_template_close(bt_template *t);
/* A conversation that tries to say what the tokenizer says (an option "bos_token") is refused. */
bt_status bt_template_render(const bt_template *t, const bt_conversation *c, bool with_reasoning, bt_rendered *out,
                             bt_error *e);

/* ---- chat_lost.c ------------------------------------------------------------------------------------------------- */

/* Adds a line for input text that occurs nowhere in the prompt. White space at its ends, and JSON's escapes, do not
 * count as a difference. */
void bt_chat_tell_lost(const bt_conversation *c, const bt_rendered *prompt, bt_text *lines);

/* ---- chat_effort.c ----------------------------------------------------------------------------------------------- */

/* Adds a line for each member of the request that is no part of the conversation and that the template does nothing
 * with; r is what it rendered. */
bt_status bt_chat_tell_unused(const bt_template *t, const bt_conversation *c, bool with_reasoning, const bt_rendered *r,
                              bt_text *lines, bt_error *e);
/* Adds a line where an effort was asked for (an option of the conversation) that the template does nothing with; r is
 * what it rendered. */
bt_status bt_chat_tell_effort(const bt_template *t, const bt_conversation *c, bool with_reasoning, const bt_rendered *r,
                              bt_text *lines, bt_error *e);

/* ---- chat_demands.c ---------------------------------------------------------------------------------------------- */

bt_status bt_demands_check(const bt_conversation *c, bt_error *e); /* refuses what no answer can meet */
void bt_demands_warn(const bt_conversation *c, bt_text *lines);    /* of what nothing enforces */
/* For bt_prompt.demands; nothing if there are none. */
void bt_demands_write(const bt_conversation *c, bt_text *out);

/* ---- chat_tokens.c ----------------------------------------------------------------------------------------------- */

/* The ids of a rendered prompt: what a message says never becomes an added token. `native`: the grammar of the renderer
 * that wrote it, each of whose tags must be one; NULL: none must. */
bt_status bt_rendered_encode(const bt_rendered *prompt, const bt_grammar *native, const bt_tokenizer *t, int32_t **ids,
                             size_t *n, bt_error *e);
/* The prompt's last tag of reasoning opens it. */
bool bt_rendered_is_reasoning(const bt_rendered *prompt, const bt_grammar *g);

#endif
