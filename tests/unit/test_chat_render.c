/*
 * K2-Horizon's native renderer: the published template's 23 renderings byte for byte, what it refuses, what its
 * markdown cannot show, and that no input text is lost on the way.
 */
#include "chat_unit.h"

#include "base/arena.h"

static bt_rendered render(const char *messages, const char *tools, const char *options)
{
    bt_rendered r;
    bt_error e;
    if (unit_render_k2(messages, tools, options, &r, &e) != BT_OK) fail_msg("%s", e.message);
    unit_check_runs(&r);
    return r;
}

static void expect(const char *messages, const char *tools, const char *options, const char *text)
{
    bt_rendered r = render(messages, tools, options);
    assert_string_equal(r.text, text);
    bt_rendered_free(&r);
}

static void refuse(const char *messages, const char *tools, const char *options, const char *message)
{
    bt_rendered r;
    bt_error e;
    assert_int_not_equal(unit_render_k2(messages, tools, options, &r, &e), BT_OK);
    if (strstr(e.message, message) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.message, message);
}

/* ---- goldens ----------------------------------------------------------------------------------------------------- */

static void goldens(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    const bt_json_node *cases = unit_read_json(a, CHAT, "k2_cases.json");
    const bt_json_node *golden = unit_read_json(a, CHAT, "k2_golden.json");
    const bt_json_node *want = golden->child;
    assert_int_equal(cases->n_children, 23);
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next, want = want->next) {
        const char *name = unit_member(c, "name")->text;
        assert_string_equal(name, unit_member(want, "name")->text);
        bt_text request = unit_without(c, "name");
        const bt_json_node *error = bt_json_get(want, "error");
        bt_rendered r;
        bt_error e;
        bt_status st = unit_render_k2(request.data, NULL, NULL, &r, &e);
        if (error != NULL) {
            assert_int_equal(st, BT_ERR_USAGE);
            assert_string_equal(e.message, error->text);
        } else {
            if (st != BT_OK) fail_msg("%s: %s", name, e.message);
            unit_check_runs(&r);
            const bt_json_node *text = unit_member(want, "text");
            unit_expect_rendered(name, &r, text->text, text->size);
            bt_rendered_free(&r);
        }
        bt_text_free(&request);
    }
    bt_arena_free(a);
}

/* ---- nothing is lost --------------------------------------------------------------------------------------------- */

static size_t expect_marks(const bt_json_node *request, const char *options)
{
    size_t n_marks;
    bt_text t = unit_mark_request(request, &n_marks);
    bt_rendered r = render(t.data, NULL, options);
    unit_expect_marks(r.text, n_marks, t.data);
    bt_rendered_free(&r);
    bt_text_free(&t);
    return n_marks;
}

/* Every text of the stored cases, of a history with everything that clients send, and of schemas that markdown could
 * easily lose something of. */
static void every_text_occurs(void **state)
{
    (void)state;
    static const char *const more[] = {
        "{\"messages\": [{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}, {\"role\": "
        "\"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}, "
        "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", "
        "\"arguments\": {\"a\": \"x\", \"b\": {\"c\": \"y\"}}}}]}, {\"role\": \"tool\", \"content\": [\"p\", {\"q\": "
        "\"r\"}]}, {\"role\": \"tool\", \"content\": {\"s\": [\"t\"]}}, {\"role\": \"function\", \"content\": \"u\"}, "
        "{\"role\": \"assistant\", \"reasoning\": \"v\", \"content\": \"w\"}, {\"role\": \"system\", \"content\": "
        "\"late\"}]}",
        /* a definition whose description is replaced; one that nothing refers to; one within another; a circle */
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"tools\": [{\"name\": \"f\", \"parameters\": "
        "{\"$defs\": {\"D\": {\"description\": \"d\", \"type\": \"string\"}}, \"properties\": {\"a\": {\"$ref\": "
        "\"#/$defs/D\", \"description\": \"e\"}, \"b\": {\"$ref\": \"#/$defs/D\", \"title\": \"f\"}}}}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"tools\": [{\"name\": \"f\", \"parameters\": "
        "{\"$defs\": {\"D\": {\"description\": \"d\"}}, \"properties\": {}}}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"tools\": [{\"name\": \"f\", \"parameters\": "
        "{\"description\": \"root\", \"definitions\": {\"N\": {\"title\": \"t\", \"properties\": {\"next\": {\"$ref\": "
        "\"#/definitions/N\", \"description\": \"more\"}, \"m\": {\"$ref\": \"#/definitions/M\"}}}, \"M\": "
        "{\"enum\": [\"x\", \"y\"], \"default\": \"x\"}}, \"properties\": {\"n\": {\"$ref\": \"#/definitions/N\"}}, "
        "\"patternProperties\": {\"^p\": {\"description\": \"q\"}}, \"returns\": {\"description\": \"r\"}}}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"tools\": [{\"type\": \"function\", \"note\": "
        "\"n\", \"function\": {\"name\": \"f\", \"strict\": true, \"parameters\": {}}}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"tools\": [{\"name\": \"f\", \"parameters\": "
        "{\"properties\": {\"a\": {\"allOf\": [{\"description\": \"d\"}]}, \"b\": {\"items\": [{\"description\": "
        "\"e\"}]}, \"c\": {\"enum\": \"f\"}, \"d\": {\"x-note\": {\"g\": \"h\"}}}}}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"tools\": [{\"name\": \"f\", \"parameters\": {}, "
        "\"returns\": {\"description\": \"a\"}, \"response\": {\"description\": \"b\"}}]}",
    };
    static const char *const formats[] = {"{\"tool_call_format\": \"xml\"}", "{\"tool_call_format\": \"json\"}",
                                          "{\"tool_call_format\": \"xml_typed\"}",
                                          "{\"tool_presentation_format\": \"json\"}"};
    bt_arena *a = bt_arena_new();
    const bt_json_node *cases = unit_read_json(a, CHAT, "k2_cases.json"), *one = NULL;
    size_t n = 0;
    bt_error e;
    for (size_t f = 0; f < 4; f++) {
        for (const bt_json_node *c = cases->child; c != NULL; c = c->next) {
            if (strncmp(unit_member(c, "name")->text, "err_", 4) != 0) n += expect_marks(c, formats[f]);
        }
        for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
            if (bt_json_parse(a, more[i], strlen(more[i]), 0, &one, &e) != BT_OK) fail_msg("%zu: %s", i, e.message);
            n += expect_marks(one, formats[f]);
        }
    }
    assert_true(n > 400);
    bt_arena_free(a);
}

/* ---- options and shapes ------------------------------------------------------------------------------------------ */

#define BOS   "<|ifm|begin_of_text|>"
#define START "<|ifm|im_start|>"
#define END   "<|ifm|im_end|>"

static void turns(void **state)
{
    (void)state;
    expect("[{\"role\": \"user\", \"content\": \"a\"}]", NULL, "{\"add_generation_prompt\": false}",
           BOS START "user\na" END);
    expect("[{\"role\": \"system\", \"content\": \"\"}]", NULL, "{\"add_generation_prompt\": false}",
           BOS START "system\n" END);
    expect("[{\"role\": \"tool\", \"content\": null}]", NULL, "{\"reasoning_effort\": null}",
           BOS START "tool\nnull" END START "assistant\n<ifm|think>\n");
    expect("[{\"role\": \"assistant\", \"content\": \"a\", \"think\": \"t\"}, {\"role\": \"assistant\", \"content\": "
           "\"b\", \"think_faster\": \"u\"}, {\"role\": \"assistant\", \"content\": \"c\"}]",
           NULL, "{\"add_generation_prompt\": false}",
           BOS START "assistant\n<ifm|think>\nt</ifm|think>a" END START
                     "assistant\n<ifm|think_faster>\nu</ifm|think_faster>b" END START
                     "assistant\n<ifm|think>\n</ifm|think>c" END);
    bt_rendered r =
        render("[{\"role\": \"system\", \"content\": \"\"}]", "[{\"name\": \"f\", \"parameters\": {}}]", NULL);
    assert_non_null(strstr(r.text, "JSON literals." END START "assistant\n")); /* an empty system text adds nothing */
    bt_rendered_free(&r);
    /* an empty list of tools is none */
    expect("[{\"role\": \"user\", \"content\": \"a\"}]", "[]", NULL,
           BOS START "user\na" END START "assistant\n<ifm|think>\n");
}

static void options(void **state)
{
    (void)state;
    static const char hi[] = "[{\"role\": \"user\", \"content\": \"a\"}]";
    refuse(hi, NULL, "{\"reasoning_effort\": \"max\"}",
           "Unsupported reasoning_effort: 'max'. Supported values: high, medium, low.");
    refuse(hi, NULL, "{\"reasoning_effort\": 3}", "Unsupported reasoning_effort: '3'.");
    refuse(hi, NULL, "{\"tool_call_format\": \"yaml\"}",
           "Unsupported tool_call_format: 'yaml'. Supported formats: json, xml, xml_typed.");
    refuse(hi, NULL, "{\"tool_presentation_format\": \"yaml\"}",
           "Unsupported tool_presentation_format: 'yaml'. Supported formats: json, xml, markdown.");
    refuse(hi, NULL, "{\"tool_presentation_format\": \"xml\"}", "not published");
    refuse(hi, NULL, "{\"enable_thinking\": false}", "no option \"enable_thinking\"");
    refuse("[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"system\", \"content\": \"\", \"tools\": "
           "[{\"name\": \"f\", \"parameters\": {}}]}]",
           NULL, NULL, "messages[1] declares tools");
    refuse("[{\"role\": \"system\", \"content\": \"\", \"tools\": [{\"name\": \"f\", \"parameters\": {}}]}]",
           "[{\"name\": \"g\", \"parameters\": {}}]", NULL, "tools are given twice");
}

/* What markdown cannot show makes the whole list JSON. */
static void shown_as_json(void **state)
{
    (void)state;
    static const char hi[] = "[{\"role\": \"user\", \"content\": \"a\"}]";
    static const char *const lost[] = {
        "\"properties\": {\"a\": {\"x\": {\"b\": 1}}}",
        "\"properties\": {\"a\": {\"x\": [[1]]}}",
        "\"properties\": {\"a\": {\"enum\": \"b\"}}",
        "\"properties\": {\"a\": true}",
        "\"properties\": [1]",
        "\"properties\": {\"a\": {\"items\": [{}]}}",
        "\"properties\": {\"a\": {\"anyOf\": []}}",
        "\"properties\": {\"a\": {\"oneOf\": {}}}",
        "\"properties\": {\"a\": {\"type\": 1}}",
        "\"properties\": {\"a\": {\"description\": 1}}",
        "\"properties\": {\"a\": {\"$ref\": \"#/x\"}}",
        "\"properties\": {\"a\": {\"$ref\": \"#/$defs/x\"}}",
        "\"additionalProperties\": 1",
        "\"patternProperties\": 1",
        "\"returns\": 1",
        "\"anyOf\": [{\"required\": [\"a\"]}]",
        "\"$defs\": {\"D\": {}}",
        "\"$defs\": 1",
    };
    static const char *const shown[] = {
        "\"properties\": {\"a\": {\"x\": [1, null]}}",
        "\"additionalProperties\": true",
        "\"required\": []",
        "\"x\": null",
        "\"$defs\": {}",
    };
    for (size_t i = 0; i < sizeof lost / sizeof lost[0] + sizeof shown / sizeof shown[0]; i++) {
        bool is_lost = i < sizeof lost / sizeof lost[0];
        const char *schema = is_lost ? lost[i] : shown[i - sizeof lost / sizeof lost[0]];
        char tools[512];
        (void)snprintf(tools, sizeof tools, "[{\"name\": \"f\", \"parameters\": {%s}}]", schema);
        bt_rendered r = render(hi, tools, NULL);
        const char *begin = is_lost ? "<ifm|tools>\n{\"name\": \"f\"" : "<ifm|tools>\n## f\n";
        if (strstr(r.text, begin) == NULL) fail_msg("%s: %s", schema, r.text);
        bt_rendered_free(&r);
    }
}

static void refused_tools(void **state)
{
    (void)state;
    static const char hi[] = "[{\"role\": \"user\", \"content\": \"a\"}]";
    static const char *const cases[][2] = {
        {"[{\"name\": \"f\", \"parameters\": \"{}\"}]", "tool.function.parameters must be a dict, not a JSON string."},
        {"[{\"name\": \"f\", \"arguments\": {}}]", "Tool 'f' has 'arguments' instead of 'parameters'."},
        {"[{\"name\": \"f\", \"parameters\": null}]", "Tool 'f' is missing required 'parameters' field."},
        {"[{\"name\": \"f\", \"parameters\": []}]", "the parameters of tool 'f' are no object"},
        {"[{\"name\": \"f\", \"parameters\": {\"required\": [\"a\"]}}]",
         "Schema 'tool.f.parameters' has required fields but no properties object to define them."},
        {"[{\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"items\": {\"properties\": {}, "
         "\"required\": [\"b\"]}}}}}]",
         "Schema 'tool.f.parameters.properties.a.items' marks 'b' as required"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refuse(hi, cases[i][0], NULL, cases[i][1]);
        refuse(hi, cases[i][0], "{\"tool_presentation_format\": \"json\"}", cases[i][1]);
    }
}

/* Definitions that refer to each other in a chain longer than any depth: shown as JSON, not one by one into the stack.
 * */
static void long_chains(void **state)
{
    (void)state;
    bt_text tools = {0};
    bt_text_puts(&tools, "[{\"name\": \"f\", \"parameters\": {\"$defs\": {");
    for (size_t i = 0; i < 3000; i++) {
        bt_text_printf(&tools, "\"d%zu\": {\"properties\": {\"p\": {\"$ref\": \"#/$defs/d%zu\"}}}%s", i, i + 1,
                       i < 2999 ? ", " : ", \"d3000\": {}");
    }
    bt_text_puts(&tools, "}, \"properties\": {\"a\": {\"$ref\": \"#/$defs/d0\"}}}}]");
    bt_rendered r = render("[{\"role\": \"user\", \"content\": \"a\"}]", tools.data, NULL);
    assert_non_null(strstr(r.text, "<ifm|tools>\n{\"name\": \"f\""));
    bt_rendered_free(&r);
    bt_text_free(&tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),     cmocka_unit_test(every_text_occurs), cmocka_unit_test(turns),
        cmocka_unit_test(options),     cmocka_unit_test(shown_as_json),     cmocka_unit_test(refused_tools),
        cmocka_unit_test(long_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
