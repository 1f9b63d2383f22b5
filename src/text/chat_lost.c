/*
 * Text that a template left out. Templates drop what they have no place for without a word (content given as parts, a
 * role they do not know, a tool's description), and the model then answers another question. So every text of the
 * conversation is looked for in the prompt. Templates may trim it, indent its lines and write it as JSON or as an
 * attribute; none of that loses it.
 *
 * Texts mostly come in order, so the search goes on where the last one was found: one walk over the prompt for all.
 */
#include <string.h>

#include "base/error.h"
#include "text/chat.h"
#include "text/warning.h"

#define LOST_MAX 20 /* texts told of; each costs a few walks over the prompt */

typedef struct search {
    const bt_rendered *prompt;
    size_t at; /* where the last text was found */
    bt_text *lines, escaped;
    size_t n_lost;
} search;

static bt_chars trim(bt_chars s)
{
    while (s.size > 0 && (bt_value_is_space(s.text[s.size - 1]) || s.text[s.size - 1] == '\0')) s.size--;
    while (s.size > 0 && (bt_value_is_space(s.text[0]) || s.text[0] == '\0')) {
        s.text++;
        s.size--;
    }
    return s;
}

/* Looks from s->at to the end, then from the beginning. */
static bool find(search *s, bt_chars text)
{
    const char *begin = s->prompt->text, *found = memmem(begin + s->at, s->prompt->size - s->at, text.text, text.size);
    if (found == NULL) {
        size_t n = s->at + text.size < s->prompt->size ? s->at + text.size : s->prompt->size;
        found = memmem(begin, n, text.text, text.size);
    }
    if (found == NULL) return false;
    s->at = (size_t)(found - begin);
    return true;
}

/* As the inside of a JSON string; borrowed until the next call. */
static bt_chars escape(search *s, bt_chars text)
{
    s->escaped.size = 0;
    bt_py_dump_string(&s->escaped, text);
    if (!bt_text_ok(&s->escaped)) return text;
    return (bt_chars){s->escaped.data + 1, s->escaped.size - 2};
}

/* As an attribute's value; borrowed until the next call. */
static bt_chars as_attribute(search *s, bt_chars text)
{
    s->escaped.size = 0;
    for (size_t i = 0; i < text.size; i++) {
        const char c = text.text[i];
        bt_text_add(&s->escaped, c == '&' ? "&amp;" : c == '"' ? "&quot;" : &c, c == '&' ? 5 : c == '"' ? 6 : 1);
    }
    if (!bt_text_ok(&s->escaped)) return text;
    return (bt_chars){s->escaped.data, s->escaped.size};
}

/* Every line of it behind the one before, however they are indented. */
static bool find_lines(search *s, bt_chars text)
{
    size_t at = s->at, where = 0;
    while (text.size > 0) {
        const char *newline = memchr(text.text, '\n', text.size);
        size_t n = newline == NULL ? text.size : (size_t)(newline - text.text);
        bt_chars line = trim((bt_chars){text.text, n});
        const char *found = memmem(s->prompt->text + where, s->prompt->size - where, line.text, line.size);
        if (found == NULL) {
            s->at = at;
            return false;
        }
        where = (size_t)(found - s->prompt->text) + line.size;
        text.text += n + (newline != NULL);
        text.size -= n + (newline != NULL);
    }
    s->at = where;
    return true;
}

static bool is_there(search *s, bt_chars text)
{
    text = trim(text);
    if (text.size == 0 || s->n_lost > LOST_MAX || find(s, text)) return true;
    if (find(s, escape(s, text)) || find(s, as_attribute(s, text))) return true;
    return memchr(text.text, '\n', text.size) != NULL && find_lines(s, text);
}

static void look(search *s, bt_chars text, const char *what, size_t message_i)
{
    if (text.text == NULL || is_there(s, text)) return;
    if (++s->n_lost > LOST_MAX) {
        bt_text_puts(s->lines, "more texts are not in the prompt either\n");
        return;
    }
    bt_text_printf(s->lines, "the template leaves out %s of messages[%zu]\n", what, message_i);
}

static void look_into(search *s, const bt_json_node *value, size_t message_i)
{
    if (value->kind == BT_JSON_STRING) look(s, bt_chars_of(value), "an argument", message_i);
    for (const bt_json_node *c = value->child; c != NULL; c = c->next) {
        look(s, (bt_chars){c->key, c->key_size}, "the name of an argument", message_i);
        look_into(s, c, message_i);
    }
}

static void look_at_message(search *s, const bt_message *m, size_t message_i)
{
    look(s, m->reasoning, "the reasoning", message_i);
    look(s, m->content, "the content", message_i);
    for (size_t i = 0; i < m->n_calls; i++) {
        look(s, m->calls[i].name, "a call", message_i);
        look_into(s, m->calls[i].arguments, message_i);
    }
}

static void look_at_tools(search *s, const bt_json_node *tools)
{
    for (const bt_json_node *tool = tools == NULL ? NULL : tools->child; tool != NULL; tool = tool->next) {
        bt_chars name = bt_tool_name(tool);
        const bt_json_node *d = bt_json_get(bt_tool_function(tool), "description");
        bool is_lost = name.text != NULL && !is_there(s, name);
        bool loses = !is_lost && d != NULL && d->kind == BT_JSON_STRING && !is_there(s, bt_chars_of(d));
        if ((!is_lost && !loses) || ++s->n_lost > LOST_MAX) continue;
        bt_warning_add(s->lines, "the template leaves out %stool \"%.*s\"", loses ? "the description of " : "",
                       bt_warning_cut(name.text, name.size), name.text);
    }
}

void bt_chat_tell_lost(const bt_conversation *c, const bt_rendered *prompt, bt_text *lines)
{
    search s = {.prompt = prompt, .lines = lines};
    look_at_tools(&s, c->tools);
    for (size_t i = 0; i < c->n_messages; i++) {
        look_at_tools(&s, c->messages[i].tools);
        look_at_message(&s, &c->messages[i], i);
    }
    lines->failed |= !bt_text_ok(&s.escaped);
    bt_text_free(&s.escaped);
}
