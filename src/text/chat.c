/*
 * Chat: a conversation becomes a prompt, by the checkpoint's own template or by its family's native renderer, and an
 * answer is read by the family's grammar.
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "text/chat.h"

#define CONFIG_BYTES_MAX ((size_t)64 << 20)
#define END_IDS_MAX      8

struct bt_chat {
    const bt_grammar *grammar;
    const bt_tokenizer *tokenizer;
    bt_template template; /* its jinja NULL: the family's native renderer */
    char *source;
    int32_t end_ids[END_IDS_MAX];
    size_t n_end_ids;
};

static bt_status no_memory(bt_error *e)
{
    return bt_fail(e, BT_ERR_MEMORY, "no memory for a chat");
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* What config.json says of the family: an architecture that a grammar names, else model_type, "" for nothing. */
static const char *family_of(const bt_json_node *config)
{
    const bt_json_node *list = bt_json_get(config, "architectures"), *type = bt_json_get(config, "model_type");
    bool is_list = list != NULL && list->kind == BT_JSON_ARRAY;
    for (const bt_json_node *n = is_list ? list->child : NULL; n != NULL; n = n->next) {
        const char *family = n->kind == BT_JSON_STRING ? bt_grammar_family(n->text) : NULL;
        if (family != NULL) return family;
    }
    return type != NULL && type->kind == BT_JSON_STRING ? type->text : "";
}

/* To be freed. */
static bt_status read_family(const char *folder, char **family, bt_error *e)
{
    char *path = bt_path_join(folder, "config.json"), *text = NULL;
    size_t size = 0;
    const bt_json_node *config = NULL;
    bt_arena *a = bt_arena_new();
    bt_status st = path == NULL || a == NULL ? no_memory(e) : BT_OK;
    if (st == BT_OK && bt_path_exists(path)) {
        st = bt_read_file(path, CONFIG_BYTES_MAX, &text, &size, e);
        if (st == BT_OK) st = bt_json_parse(a, text, size, BT_JSON_PYTHON, &config, e);
        if (st != BT_OK) (void)bt_fail_in(e, st, "%s", path);
    }
    if (st == BT_OK) {
        *family = bt_strdup(config != NULL ? family_of(config) : "");
        if (*family == NULL) st = no_memory(e);
    }
    bt_free(text);
    bt_free(path);
    bt_arena_free(a);
    return st;
}

/* -1: the tokenizer has no such control token. */
static int32_t find_token(const bt_tokenizer *t, const char *token)
{
    int32_t id = t == NULL || token == NULL ? -1 : bt_tokenizer_find(t, token);
    return id >= 0 && bt_tokenizer_is_added(t, id) ? id : -1;
}

static void add_end_id(bt_chat *c, const char *token)
{
    int32_t id = find_token(c->tokenizer, token);
    assert(c->n_end_ids < END_IDS_MAX);
    if (id >= 0) c->end_ids[c->n_end_ids++] = id;
}

static void find_end_ids(bt_chat *c)
{
    const bt_grammar *g = c->grammar;
    for (size_t i = 0; i < g->n_tags; i++) {
        if (g->tags[i].kind == BT_TAG_STOP) add_end_id(c, g->tags[i].text);
    }
    add_end_id(c, g->text_end);
}

static bt_status name_source(bt_chat *c, const char *folder, const char *family, bt_error *e)
{
    bt_text t = {0};
    if (c->template.jinja != NULL) {
        bt_text_puts(&t, c->template.source);
    } else if (c->grammar->native != NULL) {
        bt_text_printf(&t, "native renderer of %s", c->grammar->family);
    } else {
        return bt_fail(e, BT_ERR_UNSUPPORTED,
                       "%s has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), and "
                       "there is no native one for \"%.60s\": give a template file, or a prompt that is no chat",
                       folder, family);
    }
    if (!bt_text_ok(&t)) {
        bt_text_free(&t);
        return no_memory(e);
    }
    c->source = t.data;
    return BT_OK;
}

bt_status bt_chat_open(const char *folder, const char *family, const char *template_path, const bt_tokenizer *t,
                       bt_chat **out, bt_error *e)
{
    char *read = NULL;
    if (folder == NULL) return bt_fail(e, BT_ERR_USAGE, "no folder of a chat's model is given");
    bt_chat *c = bt_calloc(1, sizeof *c);
    bt_status st = c == NULL ? no_memory(e) : BT_OK;
    if (st == BT_OK && family == NULL) st = read_family(folder, &read, e);
    if (st == BT_OK) {
        if (family == NULL) family = read;
        c->grammar = bt_grammar_of(family);
        c->tokenizer = t;
        find_end_ids(c);
        st = bt_template_open(folder, template_path, &c->template, e);
    }
    if (st == BT_OK) st = name_source(c, folder, family, e);
    bt_free(read);
    if (st == BT_OK) {
        *out = c;
    } else {
        bt_chat_close(c);
    }
    return st;
}

void bt_chat_close(bt_chat *c)
{
    if (c == NULL) return;
    bt_template_close(&c->template);
    bt_free(c->source);
    bt_free(c);
}

const char *bt_chat_source(const bt_chat *c)
{
    return c->source;
}

const int32_t *bt_chat_end_ids(const bt_chat *c, size_t *n)
{
    *n = c->n_end_ids;
    return c->end_ids;
}

int32_t bt_chat_text_end(const char *family, const bt_tokenizer *t)
{
    return family == NULL ? -1 : find_token(t, bt_grammar_of(family)->text_end);
}

bt_status bt_chat_effort(const bt_chat *c, const char *effort, const char **used, const char **options, bt_error *e)
{
    if (effort == NULL) return bt_fail(e, BT_ERR_USAGE, "no reasoning effort is given");
    for (size_t i = 0; i < c->grammar->n_efforts; i++) {
        const bt_effort *known = &c->grammar->efforts[i];
        if (strcmp(known->asked, effort) != 0) continue;
        *used = known->used;
        *options = known->options;
        return BT_OK;
    }
    return bt_fail(e, BT_ERR_USAGE,
                   "no such reasoning effort: %.60s; there are none, minimal, low, medium, high, xhigh, max", effort);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

static void add_tools(bt_text *t, const bt_json_node *tools)
{
    for (const bt_json_node *tool = tools == NULL ? NULL : tools->child; tool != NULL; tool = tool->next) {
        bt_text_puts(t, t->size == 0 ? "[" : ", ");
        bt_py_dump(t, tool);
    }
}

/* The number that an id ends in, of up to nine digits; -1: it ends in none, or in a longer one. */
static int64_t number_of(bt_chars id)
{
    int64_t number = 0, place = 1;
    size_t n = id.size;
    for (; n > 0 && id.text[n - 1] >= '0' && id.text[n - 1] <= '9'; n--, place *= 10) {
        if (place == 1000000000) return -1;
        number += place * (id.text[n - 1] - '0');
    }
    return n == id.size ? -1 : number;
}

static size_t next_call(const bt_conversation *c)
{
    int64_t last = -1, n = 0;
    for (size_t i = 0; i < c->n_messages; i++) {
        for (size_t k = 0; k < c->messages[i].n_calls; k++, n++) {
            const bt_chars id = c->messages[i].calls[k].id;
            const int64_t number = id.text == NULL ? -1 : number_of(id);
            last = number > last ? number : last;
        }
    }
    return (size_t)(last + 1 > n ? last + 1 : n);
}

/* The fields that tell of the conversation rather than of the text. */
static bt_status describe(const bt_chat *chat, const bt_conversation *c, const bt_rendered *r, bt_prompt *p,
                          bt_error *e)
{
    bt_text warnings = {0}, tools = {0}, demands = {0};
    bt_status st = BT_OK;
    bt_text_puts(&warnings, "");
    bt_demands_warn(c, &warnings);
    bt_demands_write(c, &demands);
    if (chat->template.jinja != NULL || chat->grammar->drops_text) bt_chat_tell_lost(c, r, &warnings);
    if (chat->template.jinja != NULL) {
        bool with_reasoning = chat->grammar->has_reasoning;
        st = bt_chat_tell_effort(&chat->template, c, with_reasoning, r, &warnings, e);
        if (st == BT_OK) st = bt_chat_tell_unused(&chat->template, c, with_reasoning, r, &warnings, e);
    }
    add_tools(&tools, c->tools);
    for (size_t i = 0; i < c->n_messages; i++) add_tools(&tools, c->messages[i].tools);
    if (tools.size > 0) bt_text_puts(&tools, "]");
    p->warnings = warnings.data;
    p->tools = tools.data;
    p->demands = demands.data;
    p->is_reasoning = bt_rendered_is_reasoning(r, chat->grammar);
    p->calls_off = c->choice == BT_TOOLS_NONE;
    p->next_call = next_call(c);
    if (st == BT_OK && (!bt_text_ok(&warnings) || !bt_text_ok(&tools) || !bt_text_ok(&demands))) st = no_memory(e);
    return st;
}

bt_status bt_chat_render(const bt_chat *chat, const bt_chat_request *request, bt_prompt *out, bt_error *e)
{
    bt_conversation c = {0};
    bt_rendered r = {0};
    bt_prompt p = {0};
    *out = p; /* so that bt_prompt_free is fine after a failure too */
    if (request == NULL || request->messages == NULL)
        return bt_fail(e, BT_ERR_USAGE, "there are no messages to render");
    bt_status st = chat->grammar->takes_text ? bt_conversation_parse_loosely(request, &c, e)
                                             : bt_conversation_parse(request, &c, e);
    if (st == BT_OK) st = bt_request_name(request, bt_demands_check(&c, e), e);
    if (st == BT_OK && chat->template.jinja != NULL) {
        st = bt_template_render(&chat->template, &c, chat->grammar->has_reasoning, &r, e);
    } else if (st == BT_OK) {
        st = bt_request_name(request, chat->grammar->native(&c, &r, e), e);
    }
    if (st == BT_OK) st = describe(chat, &c, &r, &p, e);
    const bt_grammar *native = chat->template.jinja == NULL && chat->grammar->wants_tokens ? chat->grammar : NULL;
    if (st == BT_OK && chat->tokenizer != NULL)
        st = bt_rendered_encode(&r, native, chat->tokenizer, &p.ids, &p.n_ids, e);
    if (st == BT_OK) {
        p.text = r.text;
        p.size = r.size;
        r.text = NULL;
        *out = p;
    } else {
        bt_prompt_free(&p);
    }
    bt_rendered_free(&r);
    bt_conversation_free(&c);
    return st;
}

void bt_prompt_free(bt_prompt *p)
{
    if (p == NULL) return;
    bt_free(p->text);
    bt_free(p->ids);
    bt_free(p->warnings);
    bt_free(p->tools);
    bt_free(p->demands);
    *p = (bt_prompt){0};
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

bt_status bt_reply_open(const bt_chat *c, const bt_prompt *p, bt_reply **out, bt_error *e)
{
    const bt_reply_options o = {.tools = p->tools,
                                .tools_size = p->tools == NULL ? 0 : strlen(p->tools),
                                .next_call = p->next_call,
                                .is_reasoning = p->is_reasoning,
                                .calls_off = p->calls_off};
    return bt_reply_open_with(c->grammar, &o, out, e);
}
