/*
 * What a request demands of its answer: a call (tool_choice), a form (response_format). Nothing here makes a model
 * comply. So a demand that no answer can meet is refused, every other one is told beforehand, and the answer is held
 * against it afterwards: a program that asked for a call must not take prose for one.
 */
#include <string.h>

#include "base/error.h"
#include "text/chat.h"

/* The name of the function that tool_choice names. */
static bt_chars named_function(const bt_json_node *choice)
{
    const bt_json_node *function = bt_json_get(choice, "function");
    const bt_json_node *name = bt_json_get(function == NULL ? choice : function, "name");
    return bt_chars_of(name); /* checked when the request was read */
}

static bt_chars form_of(const bt_conversation *c)
{
    const bt_json_node *type = c->response_format == NULL ? NULL : bt_json_get(c->response_format, "type");
    return type != NULL && type->kind == BT_JSON_STRING ? bt_chars_of(type) : (bt_chars){NULL, 0};
}

static bool demands_call(const bt_conversation *c)
{
    return c->choice == BT_TOOLS_REQUIRED || c->choice == BT_TOOLS_NAMED;
}

static bool demands_form(const bt_conversation *c)
{
    return c->response_format != NULL && !bt_chars_are(form_of(c), "text");
}

bt_status bt_demands_check(const bt_conversation *c, bt_error *e)
{
    const bt_json_node *tools = c->tools != NULL ? c->tools : c->messages[0].tools;
    bt_chars form = form_of(c);
    if (demands_call(c) && tools == NULL)
        return bt_fail(e, BT_ERR_USAGE, "tool_choice demands a call, but there are no tools");
    if (c->choice == BT_TOOLS_NAMED && !bt_tool_is_known(tools, named_function(c->tool_choice)))
        return bt_fail(e, BT_ERR_USAGE, "tool_choice names the function \"%.60s\", which is none of the tools",
                       named_function(c->tool_choice).text);
    if (c->response_format == NULL) return BT_OK;
    if (form.text == NULL) return bt_fail(e, BT_ERR_USAGE, "response_format has no type");
    if (!bt_chars_are(form, "text") && !bt_chars_are(form, "json_object") && !bt_chars_are(form, "json_schema"))
        return bt_fail(e, BT_ERR_USAGE,
                       "response_format has the type \"%.60s\"; there are text, json_object, json_schema", form.text);
    return BT_OK;
}

void bt_demands_warn(const bt_conversation *c, bt_text *lines)
{
    if (demands_call(c)) bt_text_puts(lines, "tool_choice demands a call; nothing makes the model call\n");
    if (demands_form(c)) bt_text_puts(lines, "response_format demands a form; nothing makes the model keep it\n");
}

void bt_demands_write(const bt_conversation *c, bt_text *out)
{
    if (!demands_call(c) && !demands_form(c)) return;
    bt_text_puts(out, "{\"call\": ");
    if (demands_call(c))
        bt_py_dump_string(out, c->choice == BT_TOOLS_NAMED ? named_function(c->tool_choice) : (bt_chars){"", 0});
    else
        bt_text_puts(out, "null");
    bt_text_printf(out, ", \"form\": %s}", demands_form(c) ? "true" : "null");
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* `name` "": any call will do. */
static bt_status check_call(const bt_json_node *message, bt_chars name, bt_error *e)
{
    const bt_json_node *calls = bt_json_get(message, "tool_calls");
    if (calls == NULL || calls->child == NULL)
        return bt_fail(e, BT_ERR_FORMAT, "the answer has no call, which tool_choice demands");
    if (name.size == 0 || bt_tool_is_known(calls, name)) return BT_OK;
    return bt_fail(e, BT_ERR_FORMAT, "the answer does not call \"%.60s\", which tool_choice demands", name.text);
}

static bt_status check_form(bt_arena *a, const bt_json_node *message, bt_error *e)
{
    const bt_json_node *content = bt_json_get(message, "content"), *value = NULL;
    const bt_json_node *calls = bt_json_get(message, "tool_calls");
    bool has_call = calls != NULL && calls->child != NULL; /* then there need be no content */
    bool has_text = content != NULL && content->kind == BT_JSON_STRING;
    if (has_call && (!has_text || content->size == 0)) return BT_OK;
    bt_error fault = {BT_OK, "it is empty"};
    bt_status st = has_text ? bt_json_parse(a, content->text, content->size, 0, &value, &fault) : BT_ERR_FORMAT;
    if (st == BT_ERR_MEMORY) return bt_fail(e, st, "%s", fault.message);
    if (st != BT_OK)
        return bt_fail(e, BT_ERR_FORMAT, "the answer is no JSON, which response_format demands: %s", fault.message);
    if (value->kind == BT_JSON_OBJECT) return BT_OK;
    return bt_fail(e, BT_ERR_FORMAT, "the answer is JSON but no object, which response_format demands");
}

bt_status bt_prompt_check_answer(const bt_prompt *p, const char *message, size_t size, bt_error *e)
{
    if (message == NULL) return bt_fail(e, BT_ERR_USAGE, "there is no message to check");
    if (p->demands == NULL) return BT_OK;
    bt_arena *a = bt_arena_new();
    const bt_json_node *demands = NULL, *answer = NULL;
    bt_status st = a == NULL ? bt_fail(e, BT_ERR_MEMORY, "no memory for a message") : BT_OK;
    if (st == BT_OK) st = bt_json_parse(a, p->demands, strlen(p->demands), 0, &demands, e);
    if (st == BT_OK) st = bt_json_parse(a, message, size, 0, &answer, e);
    const bt_json_node *call = st == BT_OK ? bt_json_get(demands, "call") : NULL;
    const bt_json_node *form = st == BT_OK ? bt_json_get(demands, "form") : NULL;
    if (call != NULL && call->kind == BT_JSON_STRING) st = check_call(answer, bt_chars_of(call), e);
    if (st == BT_OK && form != NULL && form->kind == BT_JSON_TRUE) st = check_form(a, answer, e);
    bt_arena_free(a);
    return st;
}
