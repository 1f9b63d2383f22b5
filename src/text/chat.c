/*
 * Chat: a conversation becomes a prompt, by the checkpoint's own template or by its family's native renderer, and an
 * answer is read by the family's grammar.
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "text/chat.h"
#include "text/k2_render.h"

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

/* model_type of config.json, "" if it says none; to be freed. */
static bt_status read_family(const char *folder, char **family, bt_error *e)
{
    char *path = bt_path_join(folder, "config.json"), *text = NULL;
    size_t size = 0;
    const bt_json_node *config = NULL, *type = NULL;
    bt_arena *a = bt_arena_new();
    bt_status st = path == NULL || a == NULL ? no_memory(e) : BT_OK;
    if (st == BT_OK && bt_path_exists(path)) {
        st = bt_read_file(path, CONFIG_BYTES_MAX, &text, &size, e);
        if (st == BT_OK) st = bt_json_parse(a, text, size, BT_JSON_PYTHON, &config, e);
        if (st != BT_OK) (void)bt_fail_in(e, st, "%s", path);
        if (st == BT_OK) type = bt_json_get(config, "model_type");
    }
    if (st == BT_OK) {
        *family = bt_strdup(type != NULL && type->kind == BT_JSON_STRING ? type->text : "");
        if (*family == NULL) st = no_memory(e);
    }
    bt_free(text);
    bt_free(path);
    bt_arena_free(a);
    return st;
}

static void find_end_ids(bt_chat *c)
{
    const bt_grammar *g = c->grammar;
    for (size_t i = 0; i < g->n_tags && c->tokenizer != NULL; i++) {
        if (g->tags[i].kind != BT_TAG_STOP) continue;
        int32_t id = bt_tokenizer_find(c->tokenizer, g->tags[i].text);
        assert(c->n_end_ids < END_IDS_MAX);
        if (id >= 0 && bt_tokenizer_is_added(c->tokenizer, id)) c->end_ids[c->n_end_ids++] = id;
    }
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

bt_status bt_chat_effort(const bt_chat *c, const char *effort, const char **used, const char **options, bt_error *e)
{
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

/* The fields that tell of the conversation rather than of the text. */
static bt_status describe(const bt_chat *chat, const bt_conversation *c, const bt_rendered *r, bt_prompt *p,
                          bt_error *e)
{
    bt_text warnings = {0}, tools = {0}, demands = {0};
    bt_status st = BT_OK;
    const bt_json_node *list = c->tools != NULL ? c->tools : c->messages[0].tools;
    bt_text_puts(&warnings, "");
    bt_demands_warn(c, &warnings);
    bt_demands_write(c, &demands);
    if (chat->template.jinja != NULL) {
        bt_chat_tell_lost(c, r, &warnings);
        st = bt_chat_tell_effort(&chat->template, c, chat->grammar->has_reasoning, r, &warnings, e);
    }
    if (list != NULL) bt_py_dump(&tools, list);
    p->warnings = warnings.data;
    p->tools = tools.data;
    p->demands = demands.data;
    p->is_reasoning = bt_rendered_is_reasoning(r, chat->grammar);
    p->calls_off = c->choice == BT_TOOLS_NONE;
    if (st == BT_OK && (!bt_text_ok(&warnings) || !bt_text_ok(&tools) || !bt_text_ok(&demands))) st = no_memory(e);
    return st;
}

bt_status bt_chat_render(const bt_chat *chat, const bt_chat_request *request, bt_prompt *out, bt_error *e)
{
    bt_conversation c = {0};
    bt_rendered r = {0};
    bt_prompt p = {0};
    bt_status st = bt_conversation_parse(request, &c, e);
    if (st == BT_OK) st = bt_demands_check(&c, e);
    if (st == BT_OK && chat->template.jinja != NULL) {
        st = bt_template_render(&chat->template, &c, chat->grammar->has_reasoning, &r, e);
    } else if (st == BT_OK) {
        st = chat->grammar->native(&c, &r, e);
    }
    if (st == BT_OK) st = describe(chat, &c, &r, &p, e);
    if (st == BT_OK && chat->tokenizer != NULL) st = bt_rendered_encode(&r, chat->tokenizer, &p.ids, &p.n_ids, e);
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
                                .is_reasoning = p->is_reasoning,
                                .calls_off = p->calls_off};
    return bt_reply_open_with(c->grammar, &o, out, e);
}
