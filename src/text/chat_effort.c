/*
 * Whether a template does anything with the effort that was asked for. Templates ignore what they do not know without a
 * word, and a person would wait for an effect. The one sound way to know is to render again: without the option, then
 * with every other effort; where nothing changes the text, nothing was asked. That the effort asked for is the
 * template's own default is no reason to complain, and a value that a template refuses is one it knows of.
 */
#include <string.h>

#include "base/error.h"
#include "text/chat.h"

static const char *const names[] = {"reasoning_effort", "thinking_effort"};
#define N_NAMES (sizeof names / sizeof names[0])

bool bt_effort_is_named(const char *source, size_t size)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (memmem(source, size, names[i], strlen(names[i])) != NULL) return true;
    return false;
}

/* The conversation with option i saying something else; with an effort of NULL, without it. */
static bt_status is_same_without(const bt_template *t, const bt_conversation *c, size_t i, const char *effort,
                                 bool with_reasoning, const bt_rendered *r, bool *same, bt_error *e)
{
    bt_conversation other = *c;
    bt_json_node value = *c->options[i];
    bt_rendered again = {0};
    const bt_json_node **options = bt_malloc(c->n_options, sizeof(const bt_json_node *));
    if (options == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for template options");
    memcpy(options, c->options, c->n_options * sizeof(const bt_json_node *));
    if (effort != NULL) {
        value.text = effort;
        value.size = strlen(effort);
        options[i] = &value;
    } else {
        options[i] = options[--other.n_options];
    }
    other.options = options;
    bt_error refusal;
    bt_status st = bt_template_render(t, &other, with_reasoning, &again, &refusal);
    *same = st == BT_OK && again.size == r->size && memcmp(again.text, r->text, r->size) == 0;
    bt_rendered_free(&again);
    bt_free(options);
    return st == BT_ERR_MEMORY ? bt_fail(e, st, "%s", refusal.message) : BT_OK;
}

bt_status bt_chat_tell_effort(const bt_template *t, const bt_conversation *c, bool with_reasoning, const bt_rendered *r,
                              bt_text *lines, bt_error *e)
{
    static const char *const others[] = {NULL, "low", "high", "medium", "none", "max", "minimal", "xhigh"};
    for (size_t i = 0; i < c->n_options; i++) {
        const bt_json_node *option = c->options[i];
        bool is_effort = false, is_same = true;
        for (size_t k = 0; k < N_NAMES; k++) is_effort |= strcmp(option->key, names[k]) == 0;
        if (!is_effort || option->kind != BT_JSON_STRING) continue;
        for (size_t k = 0; k < sizeof others / sizeof others[0] && is_same && t->mentions_effort; k++) {
            bt_status st = is_same_without(t, c, i, others[k], with_reasoning, r, &is_same, e);
            if (st != BT_OK) return st;
        }
        if (is_same)
            bt_text_printf(lines, "the template does nothing with %s: asking for \"%.60s\" has no effect\n",
                           option->key, option->text);
    }
    return BT_OK;
}
