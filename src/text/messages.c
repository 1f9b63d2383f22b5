/*
 * Messages, tools and options: from JSON text to a conversation. Files of people and bodies of clients come in here, so
 * every value has its type checked before it is used, and a refusal names the value by its path
 * ("messages[2].tool_calls[0].function.arguments"). Nothing is dropped on the way: what this file does not know stays
 * in the message and goes on to the template.
 *
 * The scanner of base/ reads them, not jansson: integers of any size and the digits of floats stay as they came, which
 * a template that prints arguments again needs.
 */
#include "text/messages.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Where a value stands, for a refusal. */
typedef struct place {
    char text[160];
} place;

static place at_index(const char *list, size_t i)
{
    place p;
    (void)snprintf(p.text, sizeof p.text, "%.130s[%zu]", list, i);
    return p;
}

static place at_key(place parent, const char *key)
{
    place p;
    (void)snprintf(p.text, sizeof p.text, "%.110s.%.40s", parent.text, key);
    return p;
}

static bt_status no_memory(bt_error *e)
{
    return bt_fail(e, BT_ERR_MEMORY, "no memory for the messages");
}

static const char *kind_name(const bt_json_node *n)
{
    switch (n->kind) {
    case BT_JSON_OBJECT:
        return "an object";
    case BT_JSON_ARRAY:
        return "an array";
    case BT_JSON_STRING:
        return "a string";
    case BT_JSON_NUMBER:
        return "a number";
    case BT_JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

static bt_status wrong_kind(place p, const bt_json_node *n, const char *wanted, bt_error *e)
{
    return bt_fail(e, BT_ERR_USAGE, "%s is %s; it must be %s", p.text, kind_name(n), wanted);
}

/* A member that is there and not null; what clients set to null they have not set. */
static const bt_json_node *member(const bt_json_node *object, const char *key)
{
    const bt_json_node *n = bt_json_get(object, key);
    return n == NULL || n->kind == BT_JSON_NULL ? NULL : n;
}

static bt_chars keep(bt_arena *a, bt_chars s)
{
    return (bt_chars){bt_arena_strndup(a, s.text, s.size), s.size};
}

/* The text built in *t, kept in the arena; frees *t. */
static bt_status keep_text(bt_arena *a, bt_text *t, bt_chars *out, bt_error *e)
{
    bt_chars kept = {NULL, 0};
    if (bt_text_ok(t)) kept = keep(a, (bt_chars){t->data == NULL ? "" : t->data, t->size});
    bt_text_free(t);
    if (kept.text == NULL) return no_memory(e);
    *out = kept;
    return BT_OK;
}

/* ---- content ----------------------------------------------------------------------------------------------------- */

/* The text of a part, NULL if it is none: a string, or {"type": "text", "text": "..."} by any of OpenAI's names. */
static bt_chars part_text(const bt_json_node *part)
{
    static const char *const types[] = {"text", "input_text", "output_text"};
    if (part->kind == BT_JSON_STRING) return bt_chars_of(part);
    const bt_json_node *type = member(part, "type"), *text = bt_json_get(part, "text");
    if (text == NULL || text->kind != BT_JSON_STRING) return (bt_chars){NULL, 0};
    if (type == NULL) return bt_chars_of(text);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (type->kind == BT_JSON_STRING && bt_chars_are(bt_chars_of(type), types[i])) return bt_chars_of(text);
    }
    return (bt_chars){NULL, 0};
}

static bool is_medium(bt_chars type)
{
    static const char *const media[] = {"image", "image_url", "input_image", "audio",      "input_audio", "audio_url",
                                        "video", "video_url", "file",        "input_file", "input_video", "media"};
    for (size_t i = 0; i < sizeof media / sizeof media[0]; i++) {
        if (bt_chars_are(type, media[i])) return true;
    }
    return false;
}

static bt_status refuse_part(place p, const bt_json_node *part, bt_error *e)
{
    const bt_json_node *type = member(part, "type");
    if (part->kind != BT_JSON_OBJECT) return wrong_kind(p, part, "a string or an object", e);
    if (type == NULL || type->kind != BT_JSON_STRING)
        return bt_fail(e, BT_ERR_USAGE, "%s has no type; a part is {\"type\": \"text\", \"text\": \"...\"}", p.text);
    if (is_medium(bt_chars_of(type)))
        return bt_fail(e, BT_ERR_USAGE, "%s is a part of type \"%.60s\"; this program gives text only to a model",
                       p.text, type->text);
    if (bt_chars_are(bt_chars_of(type), "text"))
        return bt_fail(e, BT_ERR_USAGE, "%s is a part of type \"text\" without a string \"text\"", p.text);
    return bt_fail(e, BT_ERR_USAGE, "%s is a part of the unknown type \"%.60s\"; only \"text\" is known", p.text,
                   type->text);
}

/* A part of a tool's result may be any JSON that is no medium: results are data. */
static bool is_result_part(const bt_json_node *part)
{
    const bt_json_node *type = member(part, "type");
    return type == NULL || type->kind != BT_JSON_STRING || !is_medium(bt_chars_of(type));
}

/* The text of a part; of a result that is no text its JSON. */
static bt_status read_part(bt_arena *a, place p, const bt_json_node *part, bool is_tool, bt_chars *out, bt_error *e)
{
    bt_text t = {0};
    *out = part_text(part);
    if (out->text != NULL) return BT_OK;
    if (!is_tool || !is_result_part(part)) return refuse_part(p, part, e);
    bt_py_dump(&t, part);
    return keep_text(a, &t, out, e);
}

static bt_status read_parts(bt_arena *a, place p, const bt_json_node *given, bt_message *m, bt_error *e)
{
    bool is_tool = m->role == BT_ROLE_TOOL;
    bt_text all = {0};
    bt_status st = BT_OK;
    size_t i = 0;
    if (is_tool && given->n_children == 0)
        return bt_fail(e, BT_ERR_USAGE, "tool message content list must not be empty.");
    bt_chars *parts = bt_arena_alloc(a, given->n_children + 1, sizeof *parts);
    if (parts == NULL) return no_memory(e);
    for (const bt_json_node *part = given->child; part != NULL && st == BT_OK; part = part->next, i++) {
        st = read_part(a, at_index(p.text, i), part, is_tool, &parts[i], e);
        if (i > 0) bt_text_puts(&all, "\n");
        if (st == BT_OK) bt_text_add(&all, parts[i].text, parts[i].size);
    }
    m->parts = parts;
    m->n_parts = given->n_children;
    if (st == BT_OK) return keep_text(a, &all, &m->content, e);
    bt_text_free(&all);
    return st;
}

static bt_status read_content(bt_arena *a, place p, bt_message *m, bt_error *e)
{
    bool is_tool = m->role == BT_ROLE_TOOL;
    const bt_json_node *content = bt_json_get(m->given, "content");
    place here = at_key(p, "content");
    bt_text t = {0};
    if (content == NULL || content->kind == BT_JSON_NULL) {
        m->is_content_null = is_tool && content != NULL;
        bool declares = m->role == BT_ROLE_SYSTEM && member(m->given, "tools") != NULL; /* tools are enough to say */
        if (m->role == BT_ROLE_ASSISTANT || m->is_content_null || declares) return BT_OK;
        return bt_fail(e, BT_ERR_USAGE, content == NULL ? "%s has no content" : "%s.content is null", p.text);
    }
    switch (content->kind) {
    case BT_JSON_STRING:
        m->content = bt_chars_of(content);
        return BT_OK;
    case BT_JSON_ARRAY:
        return read_parts(a, here, content, m, e);
    case BT_JSON_OBJECT:
        if (!is_tool) break;
        bt_py_dump(&t, content);
        return keep_text(a, &t, &m->content, e);
    default:
        break;
    }
    return wrong_kind(here, content, is_tool ? "a string, an array or an object" : "a string or an array of parts", e);
}

/* ---- reasoning --------------------------------------------------------------------------------------------------- */

/* OpenRouter's form: the texts of an array of details, joined. */
static bt_status read_details(bt_arena *a, place p, const bt_json_node *details, bt_chars *out, bt_error *e)
{
    bt_text t = {0};
    if (details->kind != BT_JSON_ARRAY) return wrong_kind(p, details, "an array", e);
    for (const bt_json_node *d = details->child; d != NULL; d = d->next) {
        const bt_json_node *text = member(d, "text");
        if (text != NULL && text->kind == BT_JSON_STRING) bt_text_add(&t, text->text, text->size);
    }
    return keep_text(a, &t, out, e);
}

/* Two names may say the same (clients send both of ours back), not different things: one would be lost. */
static bt_status take_reasoning(place p, bt_message *m, const char *key, bt_chars text, bt_error *e)
{
    bool is_first = m->reasoning.text == NULL;
    if (!is_first && !bt_chars_equal(m->reasoning, text) && text.size > 0 && m->reasoning.size > 0)
        return bt_fail(e, BT_ERR_USAGE, "%s gives its reasoning twice, as %s and as %s, and they differ", p.text,
                       m->reasoning_key, key);
    if (is_first || (m->reasoning.size == 0 && text.size > 0)) {
        m->reasoning = text;
        m->reasoning_key = key;
    }
    return BT_OK;
}

static bt_status read_reasoning(bt_arena *a, place p, bt_message *m, bt_error *e)
{
    /* K2-Horizon's template asks in this order; the first three are its own. */
    static const char *const keys[] = {"think", "think_fast", "think_faster", "reasoning_content", "reasoning"};
    bt_status st = BT_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && st == BT_OK; i++) {
        const bt_json_node *n = member(m->given, keys[i]);
        if (n == NULL) continue;
        if (n->kind != BT_JSON_STRING) return wrong_kind(at_key(p, keys[i]), n, "a string", e);
        st = take_reasoning(p, m, keys[i], bt_chars_of(n), e);
    }
    const bt_json_node *details = member(m->given, "reasoning_details");
    if (st != BT_OK || details == NULL) return st;
    bt_chars text = {NULL, 0};
    st = read_details(a, at_key(p, "reasoning_details"), details, &text, e);
    return st == BT_OK && text.size > 0 ? take_reasoning(p, m, "reasoning_details", text, e) : st;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static bool is_blank(bt_chars s)
{
    for (size_t i = 0; i < s.size; i++) {
        if (strchr(" \t\r\n", s.text[i]) == NULL || s.text[i] == '\0') return false;
    }
    return true;
}

static bt_status take_no_arguments(bt_arena *a, bt_message_call *call, bt_error *e)
{
    bt_json_node *empty = bt_arena_alloc(a, 1, sizeof *empty);
    if (empty == NULL) return no_memory(e);
    empty->kind = BT_JSON_OBJECT;
    call->arguments = empty;
    return BT_OK;
}

/* A string that is no object is nothing yet to refuse: some formats have a place for it. */
static bt_status keep_fault(bt_arena *a, bt_message_call *call, const char *fault, bt_error *e)
{
    call->fault = bt_arena_strndup(a, fault, strlen(fault));
    return call->fault == NULL ? no_memory(e) : take_no_arguments(a, call, e);
}

static bt_status read_arguments(bt_arena *a, place p, const bt_json_node *given, bt_message_call *call, bt_error *e)
{
    bt_error fault, whole;
    const bt_json_node *n = given;
    if (n != NULL && n->kind == BT_JSON_STRING) call->text = bt_chars_of(n);
    if (n == NULL || (n->kind == BT_JSON_STRING && is_blank(bt_chars_of(n)))) return take_no_arguments(a, call, e);
    if (n->kind == BT_JSON_STRING) {
        bt_status st = bt_json_parse(a, n->text, n->size, 0, &n, &fault);
        if (st == BT_ERR_MEMORY) return no_memory(e);
        if (st != BT_OK) {
            (void)bt_fail(&whole, BT_ERR_USAGE, "%s is a string that is no JSON: %s", p.text, fault.message);
            return keep_fault(a, call, whole.message, e);
        }
        if (n->kind != BT_JSON_OBJECT)
            return bt_fail(e, BT_ERR_USAGE, "%s is the JSON text of %s; it must be that of an object", p.text,
                           kind_name(n));
    }
    if (n->kind != BT_JSON_OBJECT) return wrong_kind(p, n, "an object, or its JSON text", e);
    call->arguments = n;
    return BT_OK;
}

static bt_status read_function(bt_arena *a, place p, const bt_json_node *function, bt_message_call *call, bt_error *e)
{
    if (function->kind != BT_JSON_OBJECT) return wrong_kind(p, function, "an object", e);
    const bt_json_node *name = member(function, "name");
    if (name == NULL || name->kind != BT_JSON_STRING || name->size == 0)
        return bt_fail(e, BT_ERR_USAGE, "%s has no name", p.text);
    call->name = bt_chars_of(name);
    return read_arguments(a, at_key(p, "arguments"), member(function, "arguments"), call, e);
}

static bt_status read_call(bt_arena *a, place p, const bt_json_node *given, bt_message_call *call, bt_error *e)
{
    if (given->kind != BT_JSON_OBJECT) return wrong_kind(p, given, "an object", e);
    const bt_json_node *type = member(given, "type"), *id = member(given, "id"), *f = member(given, "function");
    if (type != NULL && (type->kind != BT_JSON_STRING || strcmp(type->text, "function") != 0))
        return bt_fail(e, BT_ERR_USAGE, "%s is no call of a function; only the type \"function\" is known", p.text);
    if (id != NULL && id->kind != BT_JSON_STRING) return wrong_kind(at_key(p, "id"), id, "a string", e);
    if (id != NULL) call->id = bt_chars_of(id);
    return f == NULL ? read_function(a, p, given, call, e) : read_function(a, at_key(p, "function"), f, call, e);
}

static bt_status read_calls(bt_arena *a, place p, bt_message *m, bt_error *e)
{
    const bt_json_node *calls = member(m->given, "tool_calls"), *legacy = member(m->given, "function_call");
    place here = at_key(p, "tool_calls");
    if (calls != NULL && calls->kind != BT_JSON_ARRAY) return wrong_kind(here, calls, "an array", e);
    size_t n = (calls == NULL ? 0 : calls->n_children) + (legacy != NULL), i = 0;
    if (n == 0) return BT_OK;
    bt_message_call *list = bt_arena_alloc(a, n, sizeof *list);
    if (list == NULL) return no_memory(e);
    bt_status st = BT_OK;
    for (const bt_json_node *c = calls == NULL ? NULL : calls->child; c != NULL && st == BT_OK; c = c->next, i++) {
        st = read_call(a, at_index(here.text, i), c, &list[i], e);
    }
    if (legacy != NULL && st == BT_OK) st = read_function(a, at_key(p, "function_call"), legacy, &list[i], e);
    m->calls = list;
    m->n_calls = n;
    return st;
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

/* Each is {"type": "function", "function": {"name": ...}} or the inner object alone. */
static bt_status check_tools(place p, const bt_json_node *tools, const bt_json_node **out, bt_error *e)
{
    size_t i = 0;
    if (tools->kind != BT_JSON_ARRAY) return wrong_kind(p, tools, "an array", e);
    for (const bt_json_node *tool = tools->child; tool != NULL; tool = tool->next, i++) {
        place here = at_index(p.text, i);
        if (tool->kind != BT_JSON_OBJECT) return wrong_kind(here, tool, "an object", e);
        const bt_json_node *type = member(tool, "type"), *function = member(tool, "function");
        if (function != NULL && type != NULL && (type->kind != BT_JSON_STRING || strcmp(type->text, "function") != 0))
            return bt_fail(e, BT_ERR_USAGE, "%s is no function; only tools of type \"function\" are known", here.text);
        if (function != NULL && function->kind != BT_JSON_OBJECT)
            return wrong_kind(at_key(here, "function"), function, "an object", e);
        const bt_json_node *name = member(function == NULL ? tool : function, "name");
        if (name == NULL || name->kind != BT_JSON_STRING || name->size == 0)
            return bt_fail(e, BT_ERR_USAGE, "%s has no name", here.text);
    }
    *out = tools->n_children == 0 ? NULL : tools;
    return BT_OK;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

const char *bt_role_name(bt_role role)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    return names[role];
}

static bt_status read_role(place p, const bt_json_node *given, bt_role *out, bt_error *e)
{
    static const struct {
        const char *name;
        bt_role role;
    } roles[] = {{"system", BT_ROLE_SYSTEM},       {"developer", BT_ROLE_SYSTEM}, {"user", BT_ROLE_USER},
                 {"assistant", BT_ROLE_ASSISTANT}, {"tool", BT_ROLE_TOOL},        {"function", BT_ROLE_TOOL}};
    const bt_json_node *role = member(given, "role");
    if (role == NULL) return bt_fail(e, BT_ERR_USAGE, "%s has no role", p.text);
    if (role->kind != BT_JSON_STRING) return wrong_kind(at_key(p, "role"), role, "a string", e);
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (!bt_chars_are(bt_chars_of(role), roles[i].name)) continue;
        *out = roles[i].role;
        return BT_OK;
    }
    return bt_fail(e, BT_ERR_USAGE,
                   "%s has the unknown role \"%.60s\"; known: system, developer, user, assistant, tool, function",
                   p.text, role->text);
}

static bt_status read_message(bt_arena *a, place p, const bt_json_node *given, bt_message *m, bt_error *e)
{
    if (given->kind != BT_JSON_OBJECT) return wrong_kind(p, given, "an object", e);
    m->given = given;
    bt_status st = read_role(p, given, &m->role, e);
    if (st == BT_OK) st = read_content(a, p, m, e);
    if (st == BT_OK && m->role == BT_ROLE_ASSISTANT) st = read_reasoning(a, p, m, e);
    if (st == BT_OK && m->role == BT_ROLE_ASSISTANT) st = read_calls(a, p, m, e);
    if (st == BT_OK && m->role != BT_ROLE_ASSISTANT && member(given, "tool_calls") != NULL)
        return bt_fail(e, BT_ERR_USAGE, "%s has tool_calls; only an assistant message may", p.text);
    const bt_json_node *tools = member(given, "tools");
    if (st == BT_OK && tools != NULL) st = check_tools(at_key(p, "tools"), tools, &m->tools, e);
    if (st == BT_OK && m->tools != NULL && m->role != BT_ROLE_SYSTEM)
        return bt_fail(e, BT_ERR_USAGE, "%s has tools; only a system message may", p.text);
    return st;
}

static bt_status read_messages(bt_conversation *c, const bt_json_node *messages, bt_error *e)
{
    place all = {"messages"};
    if (messages->kind != BT_JSON_ARRAY) return wrong_kind(all, messages, "an array", e);
    if (messages->n_children == 0) return bt_fail(e, BT_ERR_USAGE, "messages must be a non-empty list");
    c->messages = bt_arena_alloc(c->arena, messages->n_children, sizeof *c->messages);
    if (c->messages == NULL) return no_memory(e);
    bt_status st = BT_OK;
    for (const bt_json_node *m = messages->child; m != NULL && st == BT_OK; m = m->next, c->n_messages++) {
        st = read_message(c->arena, at_index("messages", c->n_messages), m, &c->messages[c->n_messages], e);
    }
    return st;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static bt_status read_choice(bt_conversation *c, const bt_json_node *choice, bt_error *e)
{
    static const char *const words[] = {"auto", "none", "required"};
    place p = {"tool_choice"};
    c->tool_choice = choice;
    if (choice->kind == BT_JSON_OBJECT) {
        const bt_json_node *function = member(choice, "function");
        const bt_json_node *name = member(function == NULL ? choice : function, "name");
        if (name == NULL || name->kind != BT_JSON_STRING)
            return bt_fail(e, BT_ERR_USAGE, "tool_choice is an object without a function's name");
        c->choice = BT_TOOLS_NAMED;
        return BT_OK;
    }
    if (choice->kind != BT_JSON_STRING) return wrong_kind(p, choice, "a string or an object", e);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(choice->text, words[i]) != 0) continue;
        c->choice = (bt_tool_choice)i;
        return BT_OK;
    }
    return bt_fail(e, BT_ERR_USAGE, "tool_choice is \"%.60s\"; it must be auto, none, required or name a function",
                   choice->text);
}

static bt_status take_option(bt_conversation *c, const bt_json_node *option, bt_error *e)
{
    for (size_t i = 0; i < c->n_options; i++) {
        if (bt_chars_equal((bt_chars){c->options[i]->key, c->options[i]->key_size},
                           (bt_chars){option->key, option->key_size}))
            return bt_fail(e, BT_ERR_USAGE, "the template option \"%.60s\" is given twice", option->key);
    }
    c->options[c->n_options++] = option;
    return BT_OK;
}

/* What does not configure the template has a name here; every other member is the template's. */
static bt_status read_members(bt_conversation *c, const bt_json_node *object, bool is_nested, bt_error *e)
{
    bt_status st = BT_OK;
    for (const bt_json_node *n = object->child; n != NULL && st == BT_OK; n = n->next) {
        bt_chars key = {n->key, n->key_size};
        bool is_null = n->kind == BT_JSON_NULL;
        if (!is_nested && (bt_chars_are(key, "messages") || bt_chars_are(key, "tools"))) continue;
        if (bt_chars_are(key, "messages") || bt_chars_are(key, "tools")) {
            st = bt_fail(e, BT_ERR_USAGE, "%s are no template option; give them beside the options", n->key);
        } else if (bt_chars_are(key, "kwargs") || bt_chars_are(key, "chat_template_kwargs")) {
            if (is_nested) return bt_fail(e, BT_ERR_USAGE, "%s within others: options are given in one object", n->key);
            if (is_null) continue;
            if (n->kind != BT_JSON_OBJECT) return bt_fail(e, BT_ERR_USAGE, "%s is no object", n->key);
            st = read_members(c, n, true, e);
        } else if (bt_chars_are(key, "tool_choice")) {
            if (!is_null) st = read_choice(c, n, e);
        } else if (bt_chars_are(key, "response_format")) {
            if (!is_null && n->kind != BT_JSON_OBJECT) return bt_fail(e, BT_ERR_USAGE, "response_format is no object");
            if (!is_null) c->response_format = n;
        } else if (bt_chars_are(key, "add_generation_prompt")) {
            if (n->kind != BT_JSON_TRUE && n->kind != BT_JSON_FALSE)
                return bt_fail(e, BT_ERR_USAGE, "add_generation_prompt is neither true nor false");
            c->add_generation_prompt = n->kind == BT_JSON_TRUE;
        } else {
            st = take_option(c, n, e);
        }
    }
    return st;
}

/* How many options an object can give, so that the list is allocated once. */
static size_t count_members(const bt_json_node *object)
{
    if (object == NULL || object->kind != BT_JSON_OBJECT) return 0;
    size_t n = object->n_children;
    const bt_json_node *nested[] = {bt_json_get(object, "kwargs"), bt_json_get(object, "chat_template_kwargs")};
    for (size_t i = 0; i < 2; i++) n += nested[i] == NULL ? 0 : nested[i]->n_children;
    return n;
}

/* Options from beside the messages (a flag, a server's own fields) win over those in the file. */
static bt_status override_options(bt_conversation *c, const bt_json_node *object, bt_error *e)
{
    bt_conversation given = {.options = c->options + c->n_options, .add_generation_prompt = c->add_generation_prompt};
    if (bt_json_get(object, "messages") != NULL || bt_json_get(object, "tools") != NULL)
        return bt_fail(e, BT_ERR_USAGE, "the options hold messages or tools; these are given apart");
    bt_status st = read_members(&given, object, false, e);
    if (st != BT_OK) return st;
    c->add_generation_prompt = given.add_generation_prompt;
    if (given.tool_choice != NULL) {
        c->tool_choice = given.tool_choice;
        c->choice = given.choice;
    }
    if (given.response_format != NULL) c->response_format = given.response_format;
    size_t n_before = c->n_options;
    for (size_t k = 0; k < given.n_options; k++) {
        size_t i = 0;
        while (i < n_before && !bt_chars_equal((bt_chars){c->options[i]->key, c->options[i]->key_size},
                                               (bt_chars){given.options[k]->key, given.options[k]->key_size}))
            i++;
        if (i < n_before) {
            c->options[i] = given.options[k];
        } else {
            c->options[c->n_options++] = given.options[k];
        }
    }
    return BT_OK;
}

const bt_json_node *bt_conversation_option(const bt_conversation *c, const char *name)
{
    for (size_t i = 0; i < c->n_options; i++) {
        if (bt_chars_are((bt_chars){c->options[i]->key, c->options[i]->key_size}, name)) return c->options[i];
    }
    return NULL;
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

/* What is no JSON is as wrong as what makes no conversation, and so are their codes. */
static bt_status parse(bt_arena *a, const char *what, const char *text, size_t size, const bt_json_node **out,
                       bt_error *e)
{
    bt_status st = bt_json_parse(a, text, size, 0, out, e);
    return st == BT_OK ? BT_OK : bt_fail_in(e, st == BT_ERR_FORMAT ? BT_ERR_USAGE : st, "%s", what);
}

/* The file in front of what is wrong in it. */
static bt_status name_file(bt_status st, const char *name, bt_error *e)
{
    return st == BT_OK || st == BT_ERR_MEMORY || name == NULL ? st : bt_fail_in(e, st, "%s", name);
}

bt_status bt_request_name(const bt_chat_request *r, bt_status st, bt_error *e)
{
    return name_file(st, r->messages_name, e);
}

/* Given apart: an array, or an object that holds it. */
static bt_status read_tools_apart(bt_conversation *c, const bt_json_node *apart, bt_error *e)
{
    place p = {"tools"};
    if (apart->kind == BT_JSON_OBJECT) {
        const bt_json_node *list = member(apart, "tools");
        if (list == NULL) return bt_fail(e, BT_ERR_USAGE, "the tools are an object without \"tools\"");
        apart = list;
    }
    return check_tools(p, apart, &c->tools, e);
}

/* Everything in the text of the messages but the tools, which may come apart. */
static bt_status read_root(bt_conversation *c, const bt_json_node *root, bool has_tools_apart, bt_error *e)
{
    place p = {"tools"};
    const bt_json_node *messages = root->kind == BT_JSON_OBJECT ? bt_json_get(root, "messages") : root;
    const bt_json_node *tools = member(root, "tools");
    if (messages == NULL) return bt_fail(e, BT_ERR_USAGE, "the object has no \"messages\"");
    bt_status st = read_messages(c, messages, e);
    if (st == BT_OK && tools != NULL && has_tools_apart)
        return bt_fail(e, BT_ERR_USAGE, "tools are given twice: beside the messages and apart");
    if (st == BT_OK && tools != NULL) st = check_tools(p, tools, &c->tools, e);
    if (st == BT_OK && root->kind == BT_JSON_OBJECT) st = read_members(c, root, false, e);
    return st;
}

static bt_status read_request(const bt_chat_request *r, bt_conversation *c, bt_error *e)
{
    const bt_json_node *root = NULL, *tools = NULL, *options = NULL;
    const char *what = r->messages_name != NULL ? r->messages_name : "messages";
    const char *what_tools = r->tools_name != NULL ? r->tools_name : "tools";
    bt_status st = parse(c->arena, what, r->messages, r->messages_size, &root, e);
    if (st == BT_OK && r->tools != NULL) st = parse(c->arena, what_tools, r->tools, r->tools_size, &tools, e);
    if (st == BT_OK && r->options != NULL) st = parse(c->arena, "options", r->options, r->options_size, &options, e);
    if (st != BT_OK) return st;
    if (options != NULL && options->kind != BT_JSON_OBJECT)
        return bt_fail(e, BT_ERR_USAGE, "the options are %s; they must be an object", kind_name(options));
    size_t n_options = count_members(root) + 2 * count_members(options);
    c->options = bt_arena_alloc(c->arena, n_options + 1, sizeof(const bt_json_node *));
    if (c->options == NULL) return no_memory(e);
    c->add_generation_prompt = true;
    st = bt_request_name(r, read_root(c, root, tools != NULL, e), e);
    if (st == BT_OK && tools != NULL) st = name_file(read_tools_apart(c, tools, e), r->tools_name, e);
    if (st == BT_OK && options != NULL) st = override_options(c, options, e);
    return st;
}

bt_status bt_conversation_parse_loosely(const bt_chat_request *request, bt_conversation *out, bt_error *e)
{
    assert(request->messages != NULL);
    bt_conversation c = {.arena = bt_arena_new()};
    bt_status st = c.arena == NULL ? no_memory(e) : read_request(request, &c, e);
    if (st == BT_OK) {
        *out = c;
    } else {
        bt_conversation_free(&c);
    }
    return st;
}

bt_status bt_conversation_parse(const bt_chat_request *request, bt_conversation *out, bt_error *e)
{
    bt_conversation c = {0};
    bt_status st = bt_conversation_parse_loosely(request, &c, e);
    for (size_t i = 0; i < c.n_messages && st == BT_OK; i++) {
        for (size_t k = 0; k < c.messages[i].n_calls && st == BT_OK; k++) {
            const char *fault = c.messages[i].calls[k].fault;
            if (fault != NULL) st = bt_request_name(request, bt_fail(e, BT_ERR_USAGE, "%s", fault), e);
        }
    }
    if (st == BT_OK) {
        *out = c;
    } else {
        bt_conversation_free(&c);
    }
    return st;
}

void bt_conversation_free(bt_conversation *c)
{
    bt_arena_free(c->arena);
    *c = (bt_conversation){0};
}

/* ---- for templates ----------------------------------------------------------------------------------------------- */

static void write_calls(const bt_message *m, bt_text *t)
{
    bt_text_puts(t, ", \"tool_calls\": [");
    for (size_t i = 0; i < m->n_calls; i++) {
        const bt_message_call *call = &m->calls[i];
        bt_text_puts(t, i > 0 ? ", {" : "{");
        if (call->id.text != NULL) {
            bt_text_puts(t, "\"id\": ");
            bt_py_dump_string(t, call->id);
            bt_text_puts(t, ", ");
        }
        bt_text_puts(t, "\"type\": \"function\", \"function\": {\"name\": ");
        bt_py_dump_string(t, call->name);
        bt_text_puts(t, ", \"arguments\": ");
        if (call->fault != NULL) {
            bt_py_dump_string(t, call->text);
        } else {
            bt_py_dump(t, call->arguments);
        }
        bt_text_puts(t, "}}");
    }
    bt_text_puts(t, "]");
}

/* Members that write_message gives in another form. */
static bool is_rewritten(const bt_message *m, bt_chars key)
{
    static const char *const always[] = {"role", "content", NULL};
    static const char *const of_assistant[] = {"reasoning_content", "reasoning",     "reasoning_details",
                                               "tool_calls",        "function_call", NULL};
    for (const char *const *k = always; *k != NULL; k++) {
        if (bt_chars_are(key, *k)) return true;
    }
    if (m->role != BT_ROLE_ASSISTANT) return false;
    for (const char *const *k = of_assistant; *k != NULL; k++) {
        if (bt_chars_are(key, *k)) return true;
    }
    return false;
}

static void write_message(const bt_message *m, bool with_reasoning, bt_text *t)
{
    bt_text_printf(t, "{\"role\": \"%s\", \"content\": ", bt_role_name(m->role));
    if (m->is_content_null) {
        bt_text_puts(t, "null");
    } else {
        bt_py_dump_string(t, m->content.text == NULL ? (bt_chars){"", 0} : m->content);
    }
    if (m->reasoning.text != NULL || (with_reasoning && m->role == BT_ROLE_ASSISTANT)) {
        bt_text_puts(t, ", \"reasoning_content\": ");
        bt_py_dump_string(t, m->reasoning.text == NULL ? (bt_chars){"", 0} : m->reasoning);
    }
    if (m->n_calls > 0) write_calls(m, t);
    for (const bt_json_node *n = m->given->child; n != NULL; n = n->next) {
        if (is_rewritten(m, (bt_chars){n->key, n->key_size})) continue;
        bt_text_puts(t, ", ");
        bt_py_dump_string(t, (bt_chars){n->key, n->key_size});
        bt_text_puts(t, ": ");
        bt_py_dump(t, n);
    }
    bt_text_puts(t, "}");
}

static void write_member(bt_text *t, const char *key, const bt_json_node *value)
{
    bt_text_printf(t, ", \"%s\": ", key);
    if (value == NULL) {
        bt_text_puts(t, "null");
    } else {
        bt_py_dump(t, value);
    }
}

void bt_conversation_write(const bt_conversation *c, bool with_reasoning, bt_text *t)
{
    bt_text_puts(t, "{\"messages\": [");
    for (size_t i = 0; i < c->n_messages; i++) {
        if (i > 0) bt_text_puts(t, ", ");
        write_message(&c->messages[i], with_reasoning, t);
    }
    bt_text_puts(t, "]");
    /* transformers passes both even where there are none, and templates ask whether they are defined. */
    write_member(t, "tools", c->tools);
    if (bt_conversation_option(c, "documents") == NULL) write_member(t, "documents", NULL);
    bt_text_printf(t, ", \"add_generation_prompt\": %s", c->add_generation_prompt ? "true" : "false");
    if (c->tool_choice != NULL) write_member(t, "tool_choice", c->tool_choice);
    if (c->response_format != NULL) write_member(t, "response_format", c->response_format);
    for (size_t i = 0; i < c->n_options; i++) {
        bt_text_puts(t, ", ");
        bt_py_dump_string(t, (bt_chars){c->options[i]->key, c->options[i]->key_size});
        bt_text_puts(t, ": ");
        bt_py_dump(t, c->options[i]);
    }
}
