/*
 * The messages of a Kimi K3 conversation, in this order: the tools, how hard to think, the conversation, what is wanted
 * of the answer, and its beginning. Things that are easily done otherwise:
 *   - nothing stands between tags and texts, and there is no BOS;
 *   - tools are JSON with sorted keys and no spaces, arguments JSON with spaces and in their own order;
 *   - a string argument is its bare text, whatever it holds; only attributes are escaped;
 *   - results count from 1 since the calls that they answer, in the calls' order;
 *   - with thinking off nobody has thought: neither the effort nor earlier reasoning is shown.
 */
#include "text/k3_render.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/pytext.h"

typedef struct renderer {
    const bt_conversation *c;
    bool thinks;
    const char *effort;      /* NULL: not said */
    const bt_message *calls; /* the last assistant message; NULL: none yet */
    size_t n_results;        /* of its calls, so far */
    bt_k3_text out;
} renderer;

static bt_chars chars(const char *s)
{
    return (bt_chars){s, strlen(s)};
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static bt_status read_thinking(renderer *r, bt_error *e)
{
    const bt_json_node *thinking = bt_conversation_option(r->c, "thinking");
    r->thinks = thinking == NULL || thinking->kind != BT_JSON_FALSE;
    if (thinking == NULL || thinking->kind == BT_JSON_NULL || thinking->kind == BT_JSON_TRUE || !r->thinks)
        return BT_OK;
    return bt_fail(e, BT_ERR_USAGE, "thinking is neither true nor false");
}

static bt_status read_effort(renderer *r, bt_error *e)
{
    static const char *const efforts[] = {"low", "high", "max"};
    const bt_json_node *effort = bt_conversation_option(r->c, "thinking_effort");
    r->effort = effort == NULL ? "max" : NULL;
    if (!r->thinks || effort == NULL || effort->kind == BT_JSON_NULL) return BT_OK;
    for (size_t i = 0; i < 3 && effort->kind == BT_JSON_STRING; i++) {
        if (bt_chars_are(bt_chars_of(effort), efforts[i])) r->effort = efforts[i];
    }
    if (r->effort != NULL) return BT_OK;
    bt_text value = {0};
    bt_py_str(&value, effort);
    bt_status st =
        bt_fail(e, BT_ERR_USAGE, "Unsupported thinking_effort=%.60s; supported values are low, high, and max.",
                bt_text_ok(&value) ? value.data : "");
    bt_text_free(&value);
    return st;
}

static bt_status read_options(renderer *r, bt_error *e)
{
    const bt_conversation *c = r->c;
    for (size_t i = 0; i < c->n_options; i++) {
        bt_chars key = {c->options[i]->key, c->options[i]->key_size};
        if (bt_chars_are(key, "thinking") || bt_chars_are(key, "thinking_effort")) continue;
        return bt_fail(e, BT_ERR_USAGE, "Kimi K3's format has no option \"%.60s\"; it has thinking, thinking_effort",
                       key.text);
    }
    bt_status st = read_thinking(r, e);
    return st == BT_OK ? read_effort(r, e) : st;
}

/* ---- messages that nobody wrote ---------------------------------------------------------------------------------- */

static void end_message(renderer *r)
{
    bt_k3_cut(&r->out);
    bt_k3_close(&r->out, "message");
    bt_k3_mark(&r->out, "<|end_of_msg|>");
}

static void open_system(renderer *r, const char *type)
{
    const bt_k3_attribute attributes[] = {{"role", chars("system")}, {"type", chars(type)}};
    bt_k3_open(&r->out, "message", attributes, 2);
}

static void declare_tools(renderer *r, const bt_json_node *tools, bool is_later)
{
    open_system(r, "tool-declare");
    bt_origin_template(&r->out.out, is_later ? "## New Tools Available\n"
                                               "The system dynamically extends the toolset via lazy-loading.\n"
                                               "You have access to all existing and extended tools.\n"
                                               "Here are the specs for the extended tools.\n"
                                             : "# Tools\n"
                                               "Here are the available tools, described in JSONSchema.\n");
    bt_origin_template(&r->out.out, "\n```json\n");
    bt_k3_sorted(&r->out, tools);
    bt_origin_template(&r->out.out, "\n```");
    end_message(r);
}

static void say_effort(renderer *r)
{
    open_system(r, "thinking-effort");
    bt_origin_template(&r->out.out,
                       "`thinking_effort` guides on how much to think in your thinking channel (not including the "
                       "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
                       "Now the system is invoked with `thinking_effort=");
    bt_origin_template(&r->out.out, r->effort);
    bt_origin_template(&r->out.out, "`.");
    end_message(r);
}

static void say_choice(renderer *r)
{
    const bool is_required = r->c->choice == BT_TOOLS_REQUIRED;
    if (!is_required && r->c->choice != BT_TOOLS_NONE) return; /* there are no words for a tool by name */
    open_system(r, "tool-choice");
    bt_origin_template(&r->out.out, is_required ? "The system is invoked with `tool_choice=required`.\n"
                                                  "You MUST call tools in the next message."
                                                : "The system is invoked with `tool_choice=none`.\n"
                                                  "You MUST NOT call any tools in the next message.");
    end_message(r);
}

/* {"json_schema": {"schema": S}}, or {"json_schema": S}; NULL: there is none. */
static const bt_json_node *find_schema(const bt_json_node *format)
{
    const bt_json_node *wrapper = bt_json_get(format, "json_schema"), *schema;
    if (wrapper == NULL || wrapper->kind == BT_JSON_NULL) return NULL;
    schema = bt_json_get(wrapper, "schema");
    if (schema == NULL) schema = bt_json_get(wrapper, "json_schema");
    return schema == NULL ? wrapper : schema;
}

static bt_status say_format(renderer *r, bt_error *e)
{
    const bt_json_node *format = r->c->response_format, *type = format == NULL ? NULL : bt_json_get(format, "type");
    if (type == NULL || type->kind == BT_JSON_NULL) return BT_OK;
    bt_chars name = type->kind == BT_JSON_STRING ? bt_chars_of(type) : (bt_chars){NULL, 0};
    const bool is_object = bt_chars_are(name, "json_object"), has_schema = bt_chars_are(name, "json_schema");
    const bt_json_node *schema = has_schema ? find_schema(format) : NULL;
    if (bt_chars_are(name, "text")) return BT_OK;
    if (!is_object && !has_schema)
        return bt_fail(e, BT_ERR_USAGE, "response_format.type must be text, json_object or json_schema");
    if (has_schema && schema == NULL) return bt_fail(e, BT_ERR_USAGE, "response_format has no json_schema");
    open_system(r, "response-format");
    bt_origin_template(&r->out.out, is_object ? "The system is invoked with `response_format=json_object`.\n"
                                              : "The system is invoked with `response_format=json_schema`.\n");
    bt_origin_template(&r->out.out, "Your response must be raw JSON data without markdown code blocks (```json) or any "
                                    "additional formatting.");
    if (has_schema) {
        bt_origin_template(&r->out.out, "\nThe JSON data must match the following schema:\n```json\n");
        bt_k3_sorted(&r->out, schema);
        bt_origin_template(&r->out.out, "\n```");
    }
    end_message(r);
    return BT_OK;
}

/* ---- assistant messages ------------------------------------------------------------------------------------------ */

static const char *type_of(const bt_json_node *value)
{
    switch (value->kind) {
    case BT_JSON_TRUE:
    case BT_JSON_FALSE:
        return "boolean";
    case BT_JSON_NULL:
        return "null";
    case BT_JSON_NUMBER:
        return "number";
    case BT_JSON_STRING:
        return "string";
    case BT_JSON_OBJECT:
        return "object";
    default:
        return "array";
    }
}

static void argument(renderer *r, const bt_json_node *value)
{
    const bt_k3_attribute attributes[] = {{"key", {value->key, value->key_size}}, {"type", chars(type_of(value))}};
    bt_k3_open(&r->out, "argument", attributes, 2);
    if (value->kind == BT_JSON_STRING) {
        bt_k3_piece(&r->out, bt_chars_of(value));
    } else {
        bt_text t = {0};
        bt_py_dump(&t, value);
        r->out.out.failed |= !bt_text_ok(&t);
        bt_k3_piece(&r->out, (bt_chars){t.data, t.size});
        bt_text_free(&t);
    }
    bt_k3_close(&r->out, "argument");
}

static void call(renderer *r, const bt_message_call *one, size_t index)
{
    char number[32];
    (void)snprintf(number, sizeof number, "%zu", index);
    const bt_k3_attribute attributes[] = {{"tool", one->name}, {"index", chars(number)}};
    bt_k3_open(&r->out, "call", attributes, 2);
    for (const bt_json_node *a = one->arguments->child; a != NULL; a = a->next) argument(r, a);
    if (one->fault != NULL) { /* no JSON: shown as it is */
        const bt_k3_attribute type = {"type", chars("object")};
        bt_k3_open(&r->out, "json", &type, 1);
        bt_k3_piece(&r->out, one->text);
        bt_k3_close(&r->out, "json");
    }
    bt_k3_close(&r->out, "call");
}

static bool is_blank(bt_chars s)
{
    uint32_t c = 0;
    for (size_t i = 0, n; i < s.size; i += n) {
        n = bt_utf8_decode(s.text + i, s.size - i, &c);
        assert(n > 0);
        if (!bt_py_is_space(c)) return false;
    }
    return true;
}

/* Each part is a piece; nothing stands between them. */
static void content(renderer *r, const bt_message *m)
{
    if (m->parts == NULL) bt_k3_piece(&r->out, m->content);
    for (size_t i = 0; m->parts != NULL && i < m->n_parts; i++) bt_k3_piece(&r->out, m->parts[i]);
}

static void assistant(renderer *r, const bt_message *m)
{
    if (r->thinks) {
        bt_k3_open(&r->out, "think", NULL, 0);
        if (!is_blank(m->reasoning)) bt_k3_piece(&r->out, m->reasoning);
        bt_k3_close(&r->out, "think");
    }
    bt_k3_open(&r->out, "response", NULL, 0);
    content(r, m);
    bt_k3_close(&r->out, "response");
    if (m->n_calls > 0) {
        bt_k3_open(&r->out, "tools", NULL, 0);
        for (size_t i = 0; i < m->n_calls; i++) call(r, &m->calls[i], i + 1);
        bt_k3_close(&r->out, "tools");
    }
    r->calls = m;
    r->n_results = 0;
}

/* ---- the conversation -------------------------------------------------------------------------------------------- */

static bt_status message(renderer *r, size_t i, bt_error *e)
{
    const bt_message *m = &r->c->messages[i];
    const bt_json_node *name = bt_json_get(m->given, "name");
    bt_k3_attribute attributes[] = {{"role", chars(bt_role_name(m->role))}, {"name", {NULL, 0}}};
    if (name != NULL && name->kind == BT_JSON_STRING) attributes[1].value = bt_chars_of(name);
    if (name != NULL && name->kind != BT_JSON_STRING && name->kind != BT_JSON_NULL)
        return bt_fail(e, BT_ERR_USAGE, "messages[%zu].name is no string", i);
    if (m->tools != NULL && m->content.size > 0)
        return bt_fail(
            e, BT_ERR_USAGE,
            "messages[%zu] has both tools and content; Kimi K3's format shows one of them in a message: make "
            "two of it",
            i);
    if (m->tools != NULL) {
        declare_tools(r, m->tools, true);
        return BT_OK;
    }
    bt_k3_open(&r->out, "message", attributes, attributes[1].value.size > 0 ? 2 : 1);
    if (m->role == BT_ROLE_ASSISTANT) {
        assistant(r, m);
    } else {
        content(r, m);
    }
    end_message(r);
    return BT_OK;
}

static bt_status results(renderer *r, size_t first, size_t n, bt_error *e)
{
    bt_k3_result *list = NULL;
    bt_status st = bt_k3_results(r->c, first, n, r->calls, r->n_results, &list, e);
    for (size_t i = 0; i < n && st == BT_OK; i++) {
        char number[32];
        (void)snprintf(number, sizeof number, "%zu", ++r->n_results);
        const bt_k3_attribute attributes[] = {
            {"role", chars("tool")}, {"tool", list[i].tool}, {"index", chars(number)}};
        bt_k3_open(&r->out, "message", attributes, 3);
        content(r, list[i].message);
        end_message(r);
    }
    bt_free(list);
    return st;
}

static bt_status conversation(renderer *r, bt_error *e)
{
    const bt_conversation *c = r->c;
    bt_status st = BT_OK;
    for (size_t i = 0, n = 1; i < c->n_messages && st == BT_OK; i += n, n = 1) {
        if (c->messages[i].role == BT_ROLE_TOOL) {
            while (i + n < c->n_messages && c->messages[i + n].role == BT_ROLE_TOOL) n++;
            st = results(r, i, n, e);
        } else {
            st = message(r, i, e);
        }
    }
    return st;
}

bt_status bt_k3_render(const bt_conversation *c, bt_rendered *out, bt_error *e)
{
    renderer r = {.c = c};
    bt_status st = read_options(&r, e);
    if (st == BT_OK && c->tools != NULL) declare_tools(&r, c->tools, false);
    if (st == BT_OK && r.thinks && r.effort != NULL) say_effort(&r);
    if (st == BT_OK) st = conversation(&r, e);
    if (st == BT_OK) say_choice(&r);
    if (st == BT_OK) st = say_format(&r, e);
    if (st == BT_OK && c->add_generation_prompt) {
        const bt_k3_attribute role = {"role", chars("assistant")};
        bt_k3_open(&r.out, "message", &role, 1);
        bt_k3_open(&r.out, r.thinks ? "think" : "response", NULL, 0);
    }
    if (st == BT_OK) return bt_k3_text_take(&r.out, out, e);
    bt_k3_text_free(&r.out);
    return st;
}
