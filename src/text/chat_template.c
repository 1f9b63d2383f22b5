/*
 * A checkpoint's template: where it is, and what it gets beyond the conversation. A checkpoint may carry several; the
 * one that is served wins (K2-Horizon's smallest ships an older revision beside it). Names of the special tokens come
 * from the tokenizer's files, and only from there: they count as text of the template, so a message must not set them.
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "text/chat.h"

#define FILE_BYTES_MAX     ((size_t)64 << 20)
#define TEMPLATE_BYTES_MAX ((size_t)4 << 20)

static bt_status no_memory(bt_error *e)
{
    return bt_fail(e, BT_ERR_MEMORY, "no memory for a chat template");
}

/* ---- where it is ------------------------------------------------------------------------------------------------- */

static void add_source(bt_template *t, const char *text, size_t size)
{
    bt_text_add(&t->sources, text, size);
    bt_text_puts(&t->sources, "\n");
}

/* is_given: by a person, who may name a FIFO; a checkpoint's is not waited for. */
static bt_status parse_file(const char *path, bool is_given, bt_template *t, bt_error *e)
{
    char *text;
    size_t size;
    bt_status st = is_given ? bt_read_file_waiting(path, TEMPLATE_BYTES_MAX, &text, &size, e)
                            : bt_read_file(path, TEMPLATE_BYTES_MAX, &text, &size, e);
    if (st != BT_OK) return st;
    st = bt_jinja_parse(path, text, size, &t->jinja, e);
    add_source(t, text, size);
    bt_free(text);
    t->source = bt_strdup(path);
    return st == BT_OK && t->source == NULL ? no_memory(e) : st;
}

static bt_status parse_node(const char *path, const bt_json_node *text, bt_template *t, bt_jinja **out, bt_error *e)
{
    add_source(t, text->text, text->size);
    return bt_jinja_parse(path, text->text, text->size, out, e);
}

/* [{"name": "default", "template": "..."}, ...] */
static bt_status parse_list(const char *path, const bt_json_node *list, bt_template *t, bt_error *e)
{
    const bt_json_node *standard = NULL, *with_tools = NULL, *only = NULL;
    for (const bt_json_node *n = list->child; n != NULL; n = n->next) {
        const bt_json_node *name = bt_json_get(n, "name"), *text = bt_json_get(n, "template");
        if (name == NULL || name->kind != BT_JSON_STRING || text == NULL || text->kind != BT_JSON_STRING)
            return bt_fail(e, BT_ERR_FORMAT, "%s: an entry of chat_template has no name and template", path);
        if (strcmp(name->text, "default") == 0) standard = text;
        if (strcmp(name->text, "tool_use") == 0) with_tools = text;
        only = text;
    }
    if (standard == NULL && list->n_children == 1) standard = only;
    if (standard == NULL)
        return bt_fail(e, BT_ERR_FORMAT, "%s: chat_template lists %zu templates, none of them \"default\"", path,
                       list->n_children);
    bt_status st = parse_node(path, standard, t, &t->jinja, e);
    if (st == BT_OK && with_tools != NULL) st = parse_node(path, with_tools, t, &t->with_tools, e);
    return st;
}

static bt_status parse_config(const char *path, const bt_json_node *config, bt_template *t, bt_error *e)
{
    const bt_json_node *given = bt_json_get(config, "chat_template");
    bt_status st;
    if (given == NULL || given->kind == BT_JSON_NULL) return BT_OK;
    if (given->kind == BT_JSON_STRING) {
        st = parse_node(path, given, t, &t->jinja, e);
    } else if (given->kind == BT_JSON_ARRAY && given->n_children > 0) {
        st = parse_list(path, given, t, e);
    } else {
        return bt_fail(e, BT_ERR_FORMAT, "%s: chat_template is neither a text nor a list of named ones", path);
    }
    t->source = bt_strdup(path);
    return st == BT_OK && t->source == NULL ? no_memory(e) : st;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

static const char *const special_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};
#define N_SPECIALS  (sizeof special_names / sizeof special_names[0])
#define SPECIAL_MAX 256 /* names beyond these, of one list */

/* Values that options and messages may have and that a template can spell a control token with ("<|" ~ role ~ "|>"). */
static const char *const roles[] = {"system", "user", "assistant", "tool", NULL};
static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max", NULL};
static const char *const call_formats[] = {"xml", "json", "xml_typed", NULL};
static const char *const presentations[] = {"markdown", "json", "xml", NULL};
static const char *const functions[] = {"function", NULL};
static const char *const choices[] = {"auto", "none", "required", NULL};
static const char *const formats[] = {"text", "json_object", "json_schema", NULL};
static const bt_jinja_trust known_values[] = {
    {"messages[].role", roles},
    {"messages[].tool_calls[].type", functions},
    {"tools[].type", functions},
    {"tool_choice", choices},
    {"response_format.type", formats},
    {"reasoning_effort", efforts},
    {"thinking_effort", efforts},
    {"tool_call_format", call_formats},
    {"tool_presentation_format", presentations},
};
#define N_VALUES (sizeof known_values / sizeof known_values[0])

/* The text of a token, given as it is or as an object with its flags; NULL: none. */
static const bt_json_node *token_text(const bt_json_node *token)
{
    if (token != NULL && token->kind == BT_JSON_OBJECT) token = bt_json_get(token, "content");
    return token != NULL && token->kind == BT_JSON_STRING ? token : NULL;
}

static bool trusts(const bt_template *t, const char *path)
{
    for (size_t i = 0; i < t->n_trusted; i++) {
        if (strcmp(t->trusted[i].path, path) == 0) return true;
    }
    return false;
}

static void add_special(bt_template *t, bt_chars name, const bt_json_node *text, bt_error *e, bt_status *st)
{
    char *path = bt_arena_strndup(t->arena, name.text, name.size);
    if (path == NULL) {
        *st = no_memory(e);
        return;
    }
    if (trusts(t, path)) return; /* the first file that says it counts */
    t->trusted[t->n_trusted++] = (bt_jinja_trust){.path = path};
    bt_text_puts(&t->specials, ", ");
    bt_py_dump_string(&t->specials, name);
    bt_text_puts(&t->specials, ": ");
    bt_py_dump_string(&t->specials, bt_chars_of(text));
}

static void add_list(bt_template *t, const bt_json_node *list)
{
    if (list == NULL || list->kind != BT_JSON_ARRAY || trusts(t, "additional_special_tokens[]")) return;
    t->trusted[t->n_trusted++] = (bt_jinja_trust){.path = "additional_special_tokens[]"};
    bt_text_puts(&t->specials, ", \"additional_special_tokens\": [");
    bool is_first = true;
    for (const bt_json_node *n = list->child; n != NULL; n = n->next) {
        const bt_json_node *text = token_text(n);
        if (text == NULL) continue;
        if (!is_first) bt_text_puts(&t->specials, ", ");
        bt_py_dump_string(&t->specials, bt_chars_of(text));
        is_first = false;
    }
    bt_text_puts(&t->specials, "]");
}

/* Names like "messages" in extra_special_tokens would hide what we pass. */
static bool is_token_name(const bt_json_node *n)
{
    return n->key_size > 6 && n->key_size < 100 && strlen(n->key) == n->key_size &&
           strcmp(n->key + n->key_size - 6, "_token") == 0 && strpbrk(n->key, ".[]") == NULL;
}

static bt_status add_specials(bt_template *t, const bt_json_node *config, bt_error *e)
{
    bt_status st = BT_OK;
    for (size_t i = 0; i < N_SPECIALS && st == BT_OK; i++) {
        const bt_json_node *text = token_text(bt_json_get(config, special_names[i]));
        if (text != NULL) add_special(t, (bt_chars){special_names[i], strlen(special_names[i])}, text, e, &st);
    }
    const bt_json_node *extra = bt_json_get(config, "extra_special_tokens");
    const bt_json_node *n = extra != NULL && extra->kind == BT_JSON_OBJECT ? extra->child : NULL;
    for (size_t i = 0; n != NULL && i < SPECIAL_MAX && st == BT_OK; n = n->next, i++) {
        const bt_json_node *text = token_text(n);
        if (text != NULL && is_token_name(n)) add_special(t, (bt_chars){n->key, n->key_size}, text, e, &st);
    }
    add_list(t, bt_json_get(config, "additional_special_tokens"));
    return st == BT_OK && !bt_text_ok(&t->specials) ? no_memory(e) : st;
}

static bt_status read_config(bt_template *t, const char *folder, const char *name, const bt_json_node **out,
                             bt_error *e)
{
    char *path = bt_path_join(folder, name), *text = NULL;
    size_t size;
    bt_status st = path == NULL ? no_memory(e) : BT_OK;
    if (st == BT_OK && bt_path_exists(path)) {
        st = bt_read_file(path, FILE_BYTES_MAX, &text, &size, e);
        if (st == BT_OK) st = bt_json_parse(t->arena, text, size, BT_JSON_PYTHON, out, e);
        if (st != BT_OK) (void)bt_fail_in(e, st, "%s", path);
        bt_free(text);
    }
    bt_free(path);
    return st;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* The first of the names in the folder that is a file; *path NULL: none. */
static bt_status find_file(const char *folder, char **path, bt_error *e)
{
    static const char *const names[] = {"chat_template_generation.jinja", "chat_template.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *path = bt_path_join(folder, names[i]);
        if (*path == NULL) return no_memory(e);
        if (bt_path_exists(*path)) return BT_OK;
        bt_free(*path);
        *path = NULL;
    }
    return BT_OK;
}

static bt_status find_template(const char *folder, const char *given, const bt_json_node *config, bt_template *t,
                               bt_error *e)
{
    char *path = NULL;
    bt_status st;
    if (given != NULL) {
        st = parse_file(given, true, t, e);
        return st == BT_ERR_FORMAT ? bt_fail(e, BT_ERR_USAGE, "%s", e->message) : st; /* not the checkpoint's fault */
    }
    st = find_file(folder, &path, e);
    if (st == BT_OK && path != NULL) st = parse_file(path, false, t, e);
    bt_free(path);
    if (st != BT_OK || t->jinja != NULL || config == NULL) return st;
    path = bt_path_join(folder, "tokenizer_config.json");
    st = path == NULL ? no_memory(e) : parse_config(path, config, t, e);
    bt_free(path);
    return st;
}

bt_status bt_template_open(const char *folder, const char *path, bt_template *out, bt_error *e)
{
    const size_t n_max = N_VALUES + 2 * (N_SPECIALS + SPECIAL_MAX + 1);
    const bt_json_node *config = NULL, *map = NULL;
    bt_template t = {.arena = bt_arena_new()};
    bt_status st = t.arena == NULL ? no_memory(e) : BT_OK;
    if (st == BT_OK) t.trusted = bt_arena_alloc(t.arena, n_max, sizeof *t.trusted);
    if (st == BT_OK && t.trusted == NULL) st = no_memory(e);
    if (st == BT_OK) {
        memcpy(t.trusted, known_values, sizeof known_values);
        t.n_trusted = N_VALUES;
        st = read_config(&t, folder, "tokenizer_config.json", &config, e);
    }
    if (st == BT_OK) st = read_config(&t, folder, "special_tokens_map.json", &map, e);
    if (st == BT_OK && config != NULL) st = add_specials(&t, config, e);
    if (st == BT_OK && map != NULL) st = add_specials(&t, map, e);
    if (st == BT_OK) st = find_template(folder, path, config, &t, e);
    if (st == BT_OK && t.sources.failed) st = no_memory(e);
    assert(t.n_trusted <= n_max);
    if (st == BT_OK) {
        *out = t;
    } else {
        bt_template_close(&t);
    }
    return st;
}

void bt_template_close(bt_template *t)
{
    bt_jinja_free(t->jinja);
    bt_jinja_free(t->with_tools);
    bt_free(t->source);
    bt_text_free(&t->specials);
    bt_text_free(&t->sources);
    bt_arena_free(t->arena);
    *t = (bt_template){0};
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

static bt_status refuse_specials(const bt_template *t, const bt_conversation *c, bt_error *e)
{
    for (size_t i = 0; i < c->n_options; i++) {
        bool is_special = strcmp(c->options[i]->key, "additional_special_tokens") == 0;
        for (size_t k = 0; k < N_SPECIALS; k++) is_special |= strcmp(c->options[i]->key, special_names[k]) == 0;
        for (size_t k = N_VALUES; k < t->n_trusted; k++)
            is_special |= strcmp(c->options[i]->key, t->trusted[k].path) == 0;
        if (is_special)
            return bt_fail(e, BT_ERR_USAGE, "%s is no template option: it comes with the tokenizer",
                           c->options[i]->key);
    }
    return BT_OK;
}

bt_status bt_template_render(const bt_template *t, const bt_conversation *c, bool with_reasoning, bt_rendered *out,
                             bt_error *e)
{
    const bt_jinja *jinja = c->tools != NULL && t->with_tools != NULL ? t->with_tools : t->jinja;
    const bt_jinja_options options = {.trusted = t->trusted, .n_trusted = t->n_trusted};
    bt_text context = {0};
    bt_status st = refuse_specials(t, c, e);
    if (st != BT_OK) return st;
    bt_conversation_write(c, with_reasoning, &context);
    bt_text_add(&context, t->specials.data, t->specials.size);
    bt_text_puts(&context, "}");
    st = bt_text_ok(&context) ? bt_jinja_render(jinja, context.data, context.size, &options, out, e) : no_memory(e);
    bt_text_free(&context);
    return st;
}
