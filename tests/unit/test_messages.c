/* Conversations: what is brought into one form, and everything that is refused, by its path. */
#include "chat_unit.h"

#include "base/arena.h"

static bt_conversation parse(const char *messages, const char *tools, const char *options)
{
    bt_conversation c = {0};
    bt_error e;
    const bt_chat_request r = unit_request(messages, tools, options);
    if (bt_conversation_parse(&r, &c, &e) != BT_OK) fail_msg("%s: %s", messages, e.message);
    return c;
}

/* The variables of a template for it. */
static void expect(const char *messages, bool with_reasoning, const char *variables)
{
    bt_conversation c = parse(messages, NULL, NULL);
    bt_text t = {0};
    bt_conversation_write(&c, with_reasoning, &t);
    assert_true(bt_text_ok(&t));
    assert_string_equal(t.data, variables);
    bt_text_free(&t);
    bt_conversation_free(&c);
}

static void expect_message(const char *message, const char *written)
{
    char messages[1024], variables[1024];
    (void)snprintf(messages, sizeof messages, "[%s]", message);
    (void)snprintf(variables, sizeof variables,
                   "{\"messages\": [%s], \"tools\": null, \"documents\": null, \"add_generation_prompt\": true",
                   written);
    expect(messages, true, variables);
}

static void refuse_with(const char *messages, const char *tools, const char *options, const char *message)
{
    bt_conversation c = {0};
    bt_error e;
    const bt_chat_request r = unit_request(messages, tools, options);
    if (bt_conversation_parse(&r, &c, &e) == BT_OK) fail_msg("%s was accepted", messages);
    if (strstr(e.message, message) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.message, message);
}

static void refuse(const char *messages, const char *message)
{
    refuse_with(messages, NULL, NULL, message);
}

/* ---- one form ---------------------------------------------------------------------------------------------------- */

static void roles(void **state)
{
    (void)state;
    expect_message("{\"role\": \"developer\", \"content\": \"a\"}", "{\"role\": \"system\", \"content\": \"a\"}");
    expect_message("{\"content\": \"a\", \"role\": \"user\", \"name\": \"n\"}",
                   "{\"role\": \"user\", \"content\": \"a\", \"name\": \"n\"}");
    expect_message("{\"role\": \"function\", \"name\": \"f\", \"content\": \"a\"}",
                   "{\"role\": \"tool\", \"content\": \"a\", \"name\": \"f\"}");
}

static void contents(void **state)
{
    (void)state;
    expect_message("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, \"b\", {\"type\": "
                   "\"input_text\", \"text\": \"c\\n\"}]}",
                   "{\"role\": \"user\", \"content\": \"a\\nb\\nc\\n\"}");
    expect_message("{\"role\": \"user\", \"content\": []}", "{\"role\": \"user\", \"content\": \"\"}");
    expect_message("{\"role\": \"user\", \"content\": \"\\u0000\\u007f\\u2028\\ud83d\\ude00\"}",
                   "{\"role\": \"user\", \"content\": \"\\u0000\x7f\xe2\x80\xa8\xf0\x9f\x98\x80\"}");
    expect_message("{\"role\": \"tool\", \"content\": [\"a\", {\"k\": [1, 1e5, -0, 12345678901234567890]}]}",
                   "{\"role\": \"tool\", \"content\": \"a\\n{\\\"k\\\": [1, 100000.0, 0, 12345678901234567890]}\"}");
    expect_message("{\"role\": \"tool\", \"content\": {\"t\": 18.0}}",
                   "{\"role\": \"tool\", \"content\": \"{\\\"t\\\": 18.0}\"}");
    expect_message("{\"role\": \"tool\", \"content\": null}", "{\"role\": \"tool\", \"content\": null}");
    expect_message("{\"role\": \"assistant\", \"content\": null}",
                   "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"\"}");
    expect_message("{\"role\": \"assistant\"}",
                   "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"\"}");
}

static void reasonings(void **state)
{
    (void)state;
    static const char *const names[] = {"reasoning_content", "reasoning"};
    for (size_t i = 0; i < 2; i++) {
        char message[256];
        (void)snprintf(message, sizeof message, "{\"role\": \"assistant\", \"content\": \"a\", \"%s\": \"r\"}",
                       names[i]);
        expect_message(message, "{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"r\"}");
    }
    expect_message("{\"role\": \"assistant\", \"content\": \"a\", \"reasoning\": \"r\", \"reasoning_content\": \"r\"}",
                   "{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"r\"}");
    expect_message("{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": null, \"reasoning\": \"r\"}",
                   "{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"r\"}");
    expect_message(
        "{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_details\": [{\"type\": \"reasoning.text\", "
        "\"text\": \"r\"}, {\"type\": \"reasoning.encrypted\", \"data\": \"x\"}, {\"text\": \"s\"}]}",
        "{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"rs\"}");
    expect_message(
        "{\"role\": \"assistant\", \"content\": \"a\", \"think_fast\": \"r\"}",
        "{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"r\", \"think_fast\": \"r\"}");
    refuse("[{\"role\": \"assistant\", \"reasoning\": \"r\", \"reasoning_content\": \"s\"}]",
           "messages[0] gives its reasoning twice");
    refuse("[{\"role\": \"assistant\", \"reasoning\": 1}]", "messages[0].reasoning is a number; it must be a string");
    expect("[{\"role\": \"assistant\", \"content\": \"a\"}]", false,
           "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"tools\": null, \"documents\": null, "
           "\"add_generation_prompt\": true");
}

static void expect_arguments(const char *given, const char *written)
{
    char message[512], expected[512];
    (void)snprintf(message, sizeof message,
                   "{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": "
                   "{\"name\": \"f\"%s}}]}",
                   given);
    (void)snprintf(
        expected, sizeof expected,
        "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"\", \"tool_calls\": [{\"id\": "
        "\"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": %s}}]}",
        written);
    expect_message(message, expected);
}

static void calls(void **state)
{
    (void)state;
    expect_arguments("", "{}");
    expect_arguments(", \"arguments\": null", "{}");
    expect_arguments(", \"arguments\": \"\"", "{}");
    expect_arguments(", \"arguments\": \" \\n\"", "{}");
    expect_arguments(", \"arguments\": \"{}\"", "{}");
    expect_arguments(", \"arguments\": {\"b\": 1.50, \"a\": \"x\"}", "{\"b\": 1.5, \"a\": \"x\"}");
    expect_arguments(", \"arguments\": \"{\\\"b\\\":[1,2],\\\"a\\\":null}\"", "{\"b\": [1, 2], \"a\": null}");
    expect_message(
        "{\"role\": \"assistant\", \"function_call\": {\"name\": \"f\", \"arguments\": \"{}\"}}",
        "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"\", \"tool_calls\": [{\"type\": "
        "\"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}]}");
    expect_message("{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": []}",
                   "{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"\"}");
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

static void refused_messages(void **state)
{
    (void)state;
    refuse("", "messages: line 1");
    refuse("{", "messages: line 1");
    refuse("[{\"role\": \"user\", \"role\": \"user\", \"content\": \"\"}]", "\"role\" appears twice");
    refuse("[{\"role\": \"user\", \"content\": \"\\ud800\"}]", "surrogate");
    refuse("[{\"role\": \"user\", \"content\": \"\xff\"}]", "UTF-8");
    refuse("3", "messages is a number; it must be an array");
    refuse("{}", "the object has no \"messages\"");
    refuse("[]", "messages must be a non-empty list");
    refuse("[1]", "messages[0] is a number; it must be an object");
    refuse("[{\"content\": \"a\"}]", "messages[0] has no role");
    refuse("[{\"role\": 1, \"content\": \"a\"}]", "messages[0].role is a number");
    refuse("[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"bot\", \"content\": \"a\"}]",
           "messages[1] has the unknown role \"bot\"");
    refuse("[{\"role\": \"user\"}]", "messages[0] has no content");
    refuse("[{\"role\": \"user\", \"content\": null}]", "messages[0].content is null");
    refuse("[{\"role\": \"tool\"}]", "messages[0] has no content");
    refuse("[{\"role\": \"user\", \"content\": 1}]", "messages[0].content is a number");
    refuse("[{\"role\": \"user\", \"content\": {\"type\": \"text\", \"text\": \"a\"}}]",
           "messages[0].content is an object");
    refuse("[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": \"x\"}}]}]",
           "messages[0].content[0] is a part of type \"image_url\"; this program gives text only to a model");
    refuse("[{\"role\": \"tool\", \"content\": [{\"type\": \"image\", \"data\": \"x\"}]}]",
           "messages[0].content[0] is a part of type \"image\"");
    refuse("[{\"role\": \"user\", \"content\": [{\"type\": \"poem\", \"text\": \"a\"}]}]", "unknown type \"poem\"");
    refuse("[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]", "without a string \"text\"");
    refuse("[{\"role\": \"user\", \"content\": [[]]}]", "messages[0].content[0] is an array");
    refuse("[{\"role\": \"tool\", \"content\": []}]", "tool message content list must not be empty.");
    refuse("[{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": []}]", "messages[0] has tool_calls");
    refuse("[{\"role\": \"user\", \"content\": \"a\", \"tools\": [{\"name\": \"f\"}]}]", "messages[0] has tools");
}

static void refused_calls(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "messages[0].tool_calls is an object"},
        {"[1]", "messages[0].tool_calls[0] is a number"},
        {"[{}]", "messages[0].tool_calls[0] has no name"},
        {"[{\"function\": {}}]", "messages[0].tool_calls[0].function has no name"},
        {"[{\"function\": {\"name\": \"\"}}]", "messages[0].tool_calls[0].function has no name"},
        {"[{\"id\": 1, \"function\": {\"name\": \"f\"}}]", "messages[0].tool_calls[0].id is a number"},
        {"[{\"type\": \"custom\", \"function\": {\"name\": \"f\"}}]", "is no call of a function"},
        {"[{\"function\": {\"name\": \"f\", \"arguments\": 1}}]",
         "messages[0].tool_calls[0].function.arguments is a number"},
        {"[{\"function\": {\"name\": \"f\", \"arguments\": \"{\"}}]", "function.arguments is a string that is no JSON"},
        {"[{\"function\": {\"name\": \"f\", \"arguments\": \"[1]\"}}]", "is the JSON text of an array"},
        {"[{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1, \\\"a\\\": 2}\"}}]", "appears twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[512];
        (void)snprintf(message, sizeof message, "[{\"role\": \"assistant\", \"tool_calls\": %s}]", cases[i][0]);
        refuse(message, cases[i][1]);
    }
}

/* ---- tools and options ------------------------------------------------------------------------------------------- */

#define HI "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]"

static void tools(void **state)
{
    (void)state;
    bt_conversation c = parse(HI ", \"tools\": [{\"name\": \"f\"}]}", NULL, NULL);
    assert_int_equal(c.tools->n_children, 1);
    bt_conversation_free(&c);
    c = parse(HI "}", "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}", NULL);
    assert_int_equal(c.tools->n_children, 1);
    bt_conversation_free(&c);
    c = parse("[{\"role\": \"user\", \"content\": \"hi\"}]", "[]", NULL);
    assert_null(c.tools);
    bt_conversation_free(&c);
    refuse_with(HI ", \"tools\": []}", "[]", NULL, "tools are given twice");
    refuse_with(HI "}", "{}", NULL, "an object without \"tools\"");
    refuse_with(HI "}", "1", NULL, "tools is a number");
    refuse_with(HI "}", "[1]", NULL, "tools[0] is a number");
    refuse_with(HI "}", "[{}]", NULL, "tools[0] has no name");
    refuse_with(HI "}", "[{\"type\": \"web_search\", \"function\": {\"name\": \"f\"}}]", NULL,
                "tools[0] is no function");
    refuse_with(HI "}", "[{\"function\": 1}]", NULL, "tools[0].function is a number");
    refuse_with(HI "}", "[", NULL, "tools: line 1");
}

static void options(void **state)
{
    (void)state;
    bt_conversation c = parse(HI ", \"a\": 1, \"kwargs\": {\"b\": 2}, \"chat_template_kwargs\": {\"c\": 3}, "
                                 "\"add_generation_prompt\": false, \"tool_choice\": \"none\", \"response_format\": "
                                 "{\"type\": \"json_object\"}}",
                              NULL, "{\"b\": 4, \"d\": 5, \"add_generation_prompt\": true}");
    assert_int_equal(c.n_options, 4);
    assert_string_equal(bt_conversation_option(&c, "a")->text, "1");
    assert_string_equal(bt_conversation_option(&c, "b")->text, "4");
    assert_string_equal(bt_conversation_option(&c, "c")->text, "3");
    assert_string_equal(bt_conversation_option(&c, "d")->text, "5");
    assert_true(c.add_generation_prompt);
    assert_int_equal(c.choice, BT_TOOLS_NONE);
    bt_text t = {0};
    bt_conversation_write(&c, false, &t);
    assert_non_null(strstr(t.data, "\"add_generation_prompt\": true, \"tool_choice\": \"none\", \"response_format\": "
                                   "{\"type\": \"json_object\"}, \"a\": 1, \"b\": 4, \"c\": 3, \"d\": 5"));
    bt_text_free(&t);
    bt_conversation_free(&c);
    c = parse(
        HI ", \"documents\": [{\"title\": \"t\"}], \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": "
           "\"f\"}}}",
        NULL, "{\"tool_choice\": \"required\"}");
    assert_int_equal(c.choice, BT_TOOLS_REQUIRED);
    bt_conversation_write(&c, false, &t);
    assert_non_null(strstr(t.data, "\"documents\": [{\"title\": \"t\"}]"));
    assert_null(strstr(t.data, "\"documents\": null"));
    bt_text_free(&t);
    bt_conversation_free(&c);
    refuse(HI ", \"a\": 1, \"kwargs\": {\"a\": 1}}", "\"a\" is given twice");
    refuse(HI ", \"kwargs\": {\"tools\": []}}", "tools are no template option");
    refuse(HI ", \"kwargs\": {\"chat_template_kwargs\": {\"a\": 1}}}", "chat_template_kwargs within others");
    refuse(HI ", \"chat_template_kwargs\": {\"kwargs\": null}}", "kwargs within others");
    refuse(HI ", \"kwargs\": 1}", "kwargs is no object");
    refuse(HI ", \"add_generation_prompt\": 1}", "add_generation_prompt is neither true nor false");
    refuse(HI ", \"tool_choice\": \"maybe\"}", "tool_choice is \"maybe\"");
    refuse(HI ", \"tool_choice\": {}}", "without a function's name");
    refuse(HI ", \"response_format\": \"json\"}", "response_format is no object");
    refuse_with(HI "}", NULL, "[]", "the options are an array");
    refuse_with(HI "}", NULL, "{\"tools\": []}", "the options hold messages or tools");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles), cmocka_unit_test(contents),         cmocka_unit_test(reasonings),
        cmocka_unit_test(calls), cmocka_unit_test(refused_messages), cmocka_unit_test(refused_calls),
        cmocka_unit_test(tools), cmocka_unit_test(options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
