/*
 * The turns of a K2-Horizon conversation. The format has traps that its models notice:
 *   - nothing stands between turns, no newline either; BOS comes first, always;
 *   - the newline after a role and after an opening think tag is fixed, none is put before a closing tag or the answer;
 *   - the system text comes behind the tools, and there is no system turn where there are neither;
 *   - an assistant turn always thinks, if only nothing; the tag says how hard, and reasoning of past turns stays.
 * Goldens: tests/data/chat/k2_golden.json.
 */
#include "text/k2_render.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

#define TURN_OPEN  "<|ifm|im_start|>"
#define TURN_CLOSE "<|ifm|im_end|>"

static const char tools_head[] = "# Tools\n"
                                 "You may call one or more tools to assist with the user query.\n"
                                 "\n"
                                 "Available tools are:\n"
                                 "\n";
static const char tools_middle[] = "\n\n"
                                   "When calling tools, you MUST follow the tool-call format below:\n"
                                   "\n";

typedef struct effort {
    const char *name, *tag, *field; /* of the option; inside <>; of an assistant message */
} effort;

static const effort efforts[] = {{"high", "ifm|think", "think"},
                                 {"medium", "ifm|think_fast", "think_fast"},
                                 {"low", "ifm|think_faster", "think_faster"}};
#define N_EFFORTS (sizeof efforts / sizeof efforts[0])

typedef enum call_format { CALLS_XML, CALLS_JSON, CALLS_XML_TYPED } call_format;

static const char *const call_instructions[] = {
    [CALLS_XML] = "Wrap all tool calls in a single <ifm|tool_calls></ifm|tool_calls> block. For each call, write the "
                  "function name "
                  "at the start of <ifm|tool_call>, followed by paired <ifm|arg_key> and <ifm|arg_value> tags for each "
                  "argument:\n"
                  "\n"
                  "<ifm|tool_calls>\n"
                  "<ifm|tool_call>$FUNCTION_NAME\n"
                  "<ifm|arg_key>$PARAMETER_NAME</ifm|arg_key>\n"
                  "<ifm|arg_value>$PARAMETER_VALUE</ifm|arg_value>\n"
                  "...\n"
                  "</ifm|tool_call>\n"
                  "</ifm|tool_calls>\n"
                  "\n"
                  "String and scalar parameters should be written as plain text. Array and object parameters should be "
                  "written as "
                  "JSON literals.",
    [CALLS_JSON] =
        "Wrap all tool calls in a single <ifm|tool_calls></ifm|tool_calls> block. For each call, emit one JSON object "
        "with the function name and arguments on the same line inside <ifm|tool_call></ifm|tool_call> tags:\n"
        "\n"
        "<ifm|tool_calls>\n"
        "<ifm|tool_call>{\"name\": <function-name>, \"arguments\": <args-json-object>}</ifm|tool_call>\n"
        "</ifm|tool_calls>",
    [CALLS_XML_TYPED] =
        "Wrap all tool calls in a single <ifm|tool_calls></ifm|tool_calls> block. For each call, write the function "
        "name "
        "at the start of <ifm|tool_call>, followed by <ifm|arg_key>, <ifm|arg_type>, and <ifm|arg_value> tags for each "
        "argument:\n"
        "\n"
        "<ifm|tool_calls>\n"
        "<ifm|tool_call>$FUNCTION_NAME\n"
        "<ifm|arg_key>$PARAMETER_NAME</ifm|arg_key>\n"
        "<ifm|arg_type>$ARGUMENT_TYPE</ifm|arg_type>\n"
        "<ifm|arg_value>$PARAMETER_VALUE</ifm|arg_value>\n"
        "...\n"
        "</ifm|tool_call>\n"
        "</ifm|tool_calls>\n"
        "\n"
        "Use the parameter type shown in the tool definition. If that type contains anyOf or oneOf, use the actual "
        "argument value type instead. String and scalar parameters should be written as plain text. Array and object "
        "parameters should be written as JSON literals.",
};

typedef struct renderer {
    const bt_conversation *c;
    const bt_json_node *tools;
    const effort *effort;
    call_format calls;
    bt_k2_presentation presentation;
    bt_origin_text out;
} renderer;

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* The index of the option's value among `values`, 0 if it is not given. */
static bt_status choose(const bt_conversation *c, const char *name, const char *const *values, const char *listed,
                        size_t *out, bt_error *e)
{
    const bt_json_node *option = bt_conversation_option(c, name);
    *out = 0;
    if (option == NULL || option->kind == BT_JSON_NULL) return BT_OK;
    for (size_t i = 0; option->kind == BT_JSON_STRING && values[i] != NULL; i++) {
        if (!bt_chars_are(bt_chars_of(option), values[i])) continue;
        *out = i;
        return BT_OK;
    }
    bt_text value = {0};
    bt_py_str(&value, option);
    bt_status st = bt_fail(e, BT_ERR_USAGE, "Unsupported %s: '%.60s'. Supported %s.", name,
                           bt_text_ok(&value) ? value.data : "", listed);
    bt_text_free(&value);
    return st;
}

static bt_status read_options(renderer *r, bt_error *e)
{
    static const char *const known[] = {"reasoning_effort", "tool_call_format", "tool_presentation_format"};
    static const char *const effort_names[] = {"high", "medium", "low", NULL};
    static const char *const formats[] = {"xml", "json", "xml_typed", NULL};
    static const char *const presentations[] = {"markdown", "json", "xml", NULL};
    const bt_conversation *c = r->c;
    for (size_t i = 0; i < c->n_options; i++) {
        bt_chars key = {c->options[i]->key, c->options[i]->key_size};
        size_t k = 0;
        while (k < 3 && !bt_chars_are(key, known[k])) k++;
        if (k == 3)
            return bt_fail(e, BT_ERR_USAGE, "K2-Horizon's format has no option \"%.60s\"; it has %s, %s, %s", key.text,
                           known[0], known[1], known[2]);
    }
    size_t effort_i, format, presentation;
    bt_status st = choose(c, known[0], effort_names, "values: high, medium, low", &effort_i, e);
    if (st == BT_OK) st = choose(c, known[1], formats, "formats: json, xml, xml_typed", &format, e);
    if (st == BT_OK) st = choose(c, known[2], presentations, "formats: json, xml, markdown", &presentation, e);
    if (st != BT_OK) return st;
    if (presentation == 2)
        return bt_fail(e, BT_ERR_UNSUPPORTED,
                       "the xml presentation of tools is not published; take markdown or json, or a template");
    r->effort = &efforts[effort_i];
    r->calls = (call_format)format;
    r->presentation = (bt_k2_presentation)presentation;
    return BT_OK;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void tag(renderer *r, const char *before, const char *name, const char *after)
{
    bt_origin_template(&r->out, before);
    bt_origin_template(&r->out, name);
    bt_origin_template(&r->out, after);
}

/* A value of an argument: strings as they are, everything else as JSON. */
static void value(renderer *r, const bt_json_node *node)
{
    if (node->kind == BT_JSON_STRING) {
        bt_origin_message(&r->out, bt_chars_of(node));
        return;
    }
    bt_text t = {0};
    bt_py_dump(&t, node);
    r->out.failed |= !bt_text_ok(&t);
    bt_origin_message(&r->out, (bt_chars){t.data, t.size});
    bt_text_free(&t);
}

static void json_call(renderer *r, const bt_message_call *call)
{
    bt_text t = {0};
    bt_py_dump_string(&t, call->name);
    bt_text_puts(&t, ", \"arguments\": ");
    bt_py_dump(&t, call->arguments);
    r->out.failed |= !bt_text_ok(&t);
    bt_origin_template(&r->out, "{\"name\": ");
    bt_origin_message(&r->out, (bt_chars){t.data, t.size});
    bt_origin_template(&r->out, "}");
    bt_text_free(&t);
}

static bt_status xml_call(renderer *r, const bt_message_call *call, bt_error *e)
{
    bt_status st = BT_OK;
    bt_origin_message(&r->out, call->name);
    bt_origin_template(&r->out, "\n");
    for (const bt_json_node *a = call->arguments->child; a != NULL && st == BT_OK; a = a->next) {
        bt_origin_template(&r->out, "<ifm|arg_key>");
        bt_origin_message(&r->out, (bt_chars){a->key, a->key_size});
        bt_origin_template(&r->out, "</ifm|arg_key>\n");
        if (r->calls == CALLS_XML_TYPED) {
            bt_origin_template(&r->out, "<ifm|arg_type>");
            st = bt_k2_argument_type(r->tools, call->name, a, &r->out, e);
            bt_origin_template(&r->out, "</ifm|arg_type>\n");
        }
        bt_origin_template(&r->out, "<ifm|arg_value>");
        value(r, a);
        bt_origin_template(&r->out, "</ifm|arg_value>\n");
    }
    return st;
}

static bt_status calls(renderer *r, const bt_message *m, bt_error *e)
{
    bt_status st = BT_OK;
    if (m->n_calls == 0) return BT_OK;
    bt_origin_template(&r->out, "<ifm|tool_calls>");
    for (size_t i = 0; i < m->n_calls && st == BT_OK; i++) {
        bt_origin_template(&r->out, "\n<ifm|tool_call>");
        if (r->calls == CALLS_JSON) {
            json_call(r, &m->calls[i]);
        } else {
            st = xml_call(r, &m->calls[i], e);
        }
        bt_origin_template(&r->out, "</ifm|tool_call>");
    }
    bt_origin_template(&r->out, "\n</ifm|tool_calls>");
    return st;
}

static bt_status assistant(renderer *r, const bt_message *m, bt_error *e)
{
    const char *name = efforts[0].tag;
    for (size_t i = 0; i < N_EFFORTS && m->reasoning_key != NULL; i++) {
        if (strcmp(m->reasoning_key, efforts[i].field) == 0) name = efforts[i].tag;
    }
    tag(r, "<", name, ">\n");
    bt_origin_message(&r->out, m->reasoning);
    tag(r, "</", name, ">");
    bt_origin_message(&r->out, m->content);
    return calls(r, m, e);
}

static bt_status message(renderer *r, const bt_message *m, bt_error *e)
{
    bt_status st = BT_OK;
    tag(r, TURN_OPEN, bt_role_name(m->role), "\n");
    if (m->role == BT_ROLE_ASSISTANT) {
        st = assistant(r, m, e);
    } else if (m->is_content_null) {
        bt_origin_template(&r->out, "null");
    } else {
        bt_origin_message(&r->out, m->content);
    }
    bt_origin_template(&r->out, TURN_CLOSE);
    return st;
}

/* The turn that declares the tools, with the leading system text behind them. */
static bt_status tools_turn(renderer *r, const bt_message *system, bt_error *e)
{
    bt_origin_template(&r->out, TURN_OPEN "system\n");
    bt_origin_template(&r->out, tools_head);
    bt_status st = bt_k2_render_tools(r->tools, r->presentation, &r->out, e);
    bt_origin_template(&r->out, tools_middle);
    bt_origin_template(&r->out, call_instructions[r->calls]);
    if (system != NULL && system->content.size > 0) {
        bt_origin_template(&r->out, "\n\n");
        bt_origin_message(&r->out, system->content);
    }
    bt_origin_template(&r->out, TURN_CLOSE);
    return st;
}

static bt_status choose_tools(renderer *r, bt_error *e)
{
    const bt_conversation *c = r->c;
    for (size_t i = 0; i < c->n_messages; i++) {
        if (c->messages[i].tools == NULL) continue;
        if (i > 0)
            return bt_fail(e, BT_ERR_USAGE,
                           "messages[%zu] declares tools; K2-Horizon's format shows those of the first message only",
                           i);
        if (c->tools != NULL)
            return bt_fail(e, BT_ERR_USAGE, "tools are given twice: in messages[0] and beside the messages");
    }
    r->tools = c->tools != NULL ? c->tools : c->messages[0].tools;
    return BT_OK;
}

static bt_status conversation(renderer *r, bt_error *e)
{
    const bt_conversation *c = r->c;
    const bt_message *first = &c->messages[0];
    bt_status st = BT_OK;
    size_t i = 0;
    bt_origin_template(&r->out, "<|ifm|begin_of_text|>");
    if (r->tools != NULL) {
        bool is_system = first->role == BT_ROLE_SYSTEM;
        st = tools_turn(r, is_system ? first : NULL, e);
        i = is_system;
    }
    for (; i < c->n_messages && st == BT_OK; i++) st = message(r, &c->messages[i], e);
    if (st == BT_OK && c->add_generation_prompt) tag(r, TURN_OPEN "assistant\n<", r->effort->tag, ">\n");
    return st;
}

bt_status bt_k2_render(const bt_conversation *c, bt_rendered *out, bt_error *e)
{
    assert(c->n_messages > 0);
    renderer r = {.c = c};
    bt_status st = read_options(&r, e);
    if (st == BT_OK) st = choose_tools(&r, e);
    if (st == BT_OK) st = conversation(&r, e);
    if (st == BT_OK) return bt_origin_text_take(&r.out, out, e);
    bt_origin_text_free(&r.out);
    return st;
}
