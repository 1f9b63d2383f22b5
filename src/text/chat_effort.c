/*
 * Whether a template does anything with the effort that was asked for, and with what else a request has beside its
 * conversation. Templates ignore what they do not know without a word, and a person would wait for an effect. The one
 * sound way to know is to render again: without the option, then with every other effort; where nothing changes the
 * text, nothing was asked. That the effort asked for is the template's own default is no reason to complain, and a
 * value that a template refuses is one it knows of.
 *
 * Clients send members that ask for nothing (the model's name, "n": 1): of those not a word. Of others the values that
 * would make a difference are not known. They count as used where their name stands in the template; what requests of
 * OpenAI's have ("n", "stop"), and any template may spell, must change the text too.
 */
#include <string.h>

#include "base/error.h"
#include "text/chat.h"
#include "text/warning.h"

static const char *const names[] = {"reasoning_effort", "thinking_effort"};
#define N_NAMES    (sizeof names / sizeof names[0])
#define UNUSED_MAX 20 /* members told of */

static const char *const of_sampling[] = {
    "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p",
    "seed",       "repetition_penalty",    "stop",        NULL};
static const char *const of_requests[] = {"n",
                                          "logprobs",
                                          "top_logprobs",
                                          "logit_bias",
                                          "presence_penalty",
                                          "frequency_penalty",
                                          "stream",
                                          "parallel_tool_calls",
                                          NULL};
/* For the server that a client meant to reach, whatever they say. */
static const char *const of_servers[] = {
    "model", "user", "metadata", "store", "stream_options", "service_tier", "safety_identifier", "prompt_cache_key",
    NULL};

static bool is_among(const char *const *list, const char *name)
{
    while (*list != NULL && strcmp(*list, name) != 0) list++;
    return *list != NULL;
}

static bool is_effort(const char *name)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* A member without which no answer would differ: about the server, null, or what holds anyway. */
static bool asks_nothing(const bt_json_node *member)
{
    static const struct {
        const char *name;
        double value; /* of a flag: 0 or 1 */
    } neutral[] = {{"n", 1},
                   {"stream", 0},
                   {"logprobs", 0},
                   {"top_logprobs", 0},
                   {"presence_penalty", 0},
                   {"frequency_penalty", 0},
                   {"parallel_tool_calls", 1}};
    double value = member->kind == BT_JSON_TRUE;
    bool has_value = value == 1 || member->kind == BT_JSON_FALSE ||
                     (member->kind == BT_JSON_NUMBER && bt_json_f64(member->text, member->size, &value));
    bool is_list = member->kind == BT_JSON_ARRAY || member->kind == BT_JSON_OBJECT;
    if (member->kind == BT_JSON_NULL || is_among(of_servers, member->key)) return true;
    if (is_list && member->child == NULL && (is_among(of_sampling, member->key) || is_among(of_requests, member->key)))
        return true; /* no stop, no bias */
    for (size_t i = 0; has_value && i < sizeof neutral / sizeof neutral[0]; i++)
        if (strcmp(member->key, neutral[i].name) == 0) return value == neutral[i].value;
    return false;
}

static bool is_of_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether the name stands somewhere in the template, as a word. */
static bool is_named(const bt_template *t, const char *name, size_t size)
{
    if (t->sources.data == NULL || size == 0) return false;
    const char *at = t->sources.data, *end = at + t->sources.size;
    for (; (at = memmem(at, (size_t)(end - at), name, size)) != NULL; at++) {
        bool begins = at == t->sources.data || !is_of_word(at[-1]);
        if (begins && !is_of_word(at[size])) return true; /* a newline is behind each source */
    }
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
    bool mentions_effort = false;
    for (size_t k = 0; k < N_NAMES; k++) mentions_effort |= is_named(t, names[k], strlen(names[k]));
    for (size_t i = 0; i < c->n_options; i++) {
        const bt_json_node *option = c->options[i];
        bool is_same = true;
        if (!is_effort(option->key) || option->kind != BT_JSON_STRING) continue;
        for (size_t k = 0; k < sizeof others / sizeof others[0] && is_same && mentions_effort; k++) {
            bt_status st = is_same_without(t, c, i, others[k], with_reasoning, r, &is_same, e);
            if (st != BT_OK) return st;
        }
        if (is_same)
            bt_warning_add(lines, "the template does nothing with %s: asking for \"%.*s\" has no effect", option->key,
                           bt_warning_cut(option->text, option->size), option->text);
    }
    return BT_OK;
}

bt_status bt_chat_tell_unused(const bt_template *t, const bt_conversation *c, bool with_reasoning, const bt_rendered *r,
                              bt_text *lines, bt_error *e)
{
    size_t n_unused = 0;
    for (size_t i = 0; i < c->n_options; i++) {
        const bt_json_node *option = c->options[i];
        bool samples = is_among(of_sampling, option->key), is_unused = !is_named(t, option->key, option->key_size);
        if (is_effort(option->key) || asks_nothing(option)) continue;
        if (!is_unused && (samples || is_among(of_requests, option->key))) {
            bt_status st = is_same_without(t, c, i, NULL, with_reasoning, r, &is_unused, e);
            if (st != BT_OK) return st;
        }
        if (!is_unused || ++n_unused > UNUSED_MAX) continue;
        if (samples)
            bt_warning_add(lines,
                           "\"%s\" has no effect: it is no part of a conversation; the settings of the program "
                           "that generates the answer count",
                           option->key);
        else
            bt_warning_add(lines, "the template does nothing with \"%.*s\"",
                           bt_warning_cut(option->key, option->key_size), option->key);
    }
    if (n_unused > UNUSED_MAX)
        bt_text_printf(lines, "the template does nothing with %zu more members of the request\n",
                       n_unused - UNUSED_MAX);
    return BT_OK;
}
