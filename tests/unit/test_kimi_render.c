/*
 * Kimi's native renderers. K3: stored renderings, made by tools/oracle/k3_chat.py from the format's description, text
 * and pieces; those of the shared folder, where it is there; what is refused; that no input text is lost. Kimi Linear:
 * its turns, and the shared renderings of the template that its format is that of.
 */
#include "chat_unit.h"

#include "base/arena.h"
#include "text/k3_render.h"
#include "text/kimi_linear_render.h"

static bt_rendered render(unit_renderer how, const char *messages, const char *tools, const char *options)
{
    bt_rendered r = {0};
    bt_error e;
    if (unit_render(how, true, messages, tools, options, &r, &e) != BT_OK) fail_msg("%s: %s", messages, e.message);
    unit_check_runs(&r);
    return r;
}

static void expect(unit_renderer how, const char *messages, const char *tools, const char *options, const char *text)
{
    bt_rendered r = render(how, messages, tools, options);
    assert_string_equal(r.text, text);
    bt_rendered_free(&r);
}

static void refuse(unit_renderer how, const char *messages, const char *tools, const char *options, const char *message)
{
    bt_rendered r = {0};
    bt_error e;
    assert_int_equal(unit_render(how, true, messages, tools, options, &r, &e), BT_ERR_USAGE);
    if (strstr(e.message, message) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.message, message);
}

/* ---- stored renderings ------------------------------------------------------------------------------------------- */

/* The same pieces, of the same kinds. Pieces are texts, marks objects. */
static void expect_pieces(const char *name, const bt_rendered *r, const bt_json_node *pieces)
{
    bt_text all = {0};
    size_t i = 0, at = 0;
    bt_text_puts(&all, "");
    for (const bt_json_node *p = pieces->child; p != NULL; p = p->next) {
        const bt_json_node *text = p->kind == BT_JSON_OBJECT ? unit_member(p, "mark") : p;
        bt_text_add(&all, text->text, text->size);
    }
    unit_expect_rendered(name, r, all.data, all.size);
    for (const bt_json_node *p = pieces->child; p != NULL; p = p->next, i++) {
        const bool is_token = p->kind == BT_JSON_OBJECT;
        const size_t size = is_token ? unit_member(p, "mark")->size : p->size;
        if (i >= r->n_pieces || r->pieces[i].size != size || r->pieces[i].is_token != is_token)
            fail_msg("%s: piece %zu at byte %zu is another one: \"%.40s\"", name, i, at, r->text + at);
        at += size;
    }
    assert_int_equal(i, r->n_pieces);
    bt_text_free(&all);
}

static void goldens(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    const bt_json_node *cases = unit_read_json(a, CHAT, "k3_cases.json");
    const bt_json_node *want = unit_read_json(a, CHAT, "k3_golden.json")->child;
    assert_true(cases->n_children >= 48);
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next, want = want->next) {
        const char *name = unit_member(c, "name")->text;
        assert_string_equal(name, unit_member(want, "name")->text);
        const bt_json_node *error = bt_json_get(want, "error");
        bt_text request = unit_without(c, "name");
        bt_rendered r = {0};
        bt_error e;
        bt_status st = unit_render(bt_k3_render, true, request.data, NULL, NULL, &r, &e);
        if (error != NULL) {
            assert_int_equal(st, BT_ERR_USAGE);
            if (strstr(e.message, error->text) == NULL) fail_msg("%s: %s", name, e.message);
        } else {
            if (st != BT_OK) fail_msg("%s: %s", name, e.message);
            unit_check_runs(&r);
            expect_pieces(name, &r, unit_member(want, "pieces"));
            bt_rendered_free(&r);
        }
        bt_text_free(&request);
    }
    bt_arena_free(a);
}

/* ---- shared renderings ------------------------------------------------------------------------------------------- */

static void published(void **state)
{
    (void)state;
    static const char *const names[] = {"01_user_only_think_max",
                                        "02_user_only_think_low",
                                        "03_user_only_no_thinking",
                                        "04_system_and_history",
                                        "05_tools_declared",
                                        "06_tool_call_and_result",
                                        "07_tool_choice_required_json_schema",
                                        "08_attr_escape_and_named_user",
                                        "09_typed_arguments"};
    const char *fixtures = unit_fixtures();
    char path[4400];
    bt_error e;
    if (fixtures == NULL) skip();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *request = NULL, *text = NULL;
        size_t request_size, size;
        (void)snprintf(path, sizeof path, "%s/../spec/kimi-k3/renders/%s.request.json", fixtures, names[i]);
        if (i == 0 && access(path, R_OK) != 0) skip();
        if (bt_read_file(path, 1 << 20, &request, &request_size, &e) != BT_OK) fail_msg("%s", e.message);
        (void)snprintf(path, sizeof path, "%s/../spec/kimi-k3/renders/%s.txt", fixtures, names[i]);
        if (bt_read_file(path, 1 << 20, &text, &size, &e) != BT_OK) fail_msg("%s", e.message);
        bt_rendered r = render(bt_k3_render, request, NULL, NULL);
        unit_expect_rendered(names[i], &r, text, size);
        bt_rendered_free(&r);
        bt_free(request);
        bt_free(text);
    }
}

/* What a template that expresses the same format gave. Some of its cases are none for this renderer: what it does not
 * know it refuses, an empty conversation is none. */
static size_t expect_shared(unit_renderer how, const char *fixtures, const char *name, const char *const *left_out)
{
    char folder[4100], file[128];
    bt_arena *a = bt_arena_new();
    size_t n = 0;
    (void)snprintf(folder, sizeof folder, "%.4000s/jinja", fixtures);
    (void)snprintf(file, sizeof file, "%.100s.json", name);
    const bt_json_node *cases = unit_member(unit_read_json(a, folder, file), "cases");
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next) {
        const bt_json_node *context = unit_member(c, "context"), *expected = bt_json_get(c, "expected");
        if (expected == NULL || unit_member(context, "messages")->n_children == 0) continue;
        bt_text request = {0};
        bt_text_puts(&request, "{");
        for (const bt_json_node *m = context->child; m != NULL; m = m->next) {
            if (unit_is_one_of(m->key, left_out)) continue;
            bt_text_printf(&request, "%s\"%s\": ", request.size > 1 ? ", " : "", m->key);
            bt_py_dump(&request, m);
        }
        bt_text_puts(&request, "}");
        bt_rendered r = render(how, request.data, NULL, NULL);
        unit_expect_rendered(unit_member(c, "name")->text, &r, expected->text, expected->size);
        n++;
        bt_rendered_free(&r);
        bt_text_free(&request);
    }
    bt_arena_free(a);
    return n;
}

static void of_templates(void **state)
{
    (void)state;
    static const char *const k3[] = {"bos_token", "eos_token", "enable_thinking", NULL};
    static const char *const linear[] = {"bos_token", "eos_token", "enable_thinking", "thinking", NULL};
    const char *fixtures = unit_fixtures();
    if (fixtures == NULL) skip();
    assert_int_equal(expect_shared(bt_k3_render, fixtures, "Kimi-K3", k3), 8);
    assert_int_equal(expect_shared(bt_kimi_linear_render, fixtures, "Kimi-K2-Instruct", linear), 7);
}

/* ---- nothing is lost --------------------------------------------------------------------------------------------- */

static size_t expect_marks(unit_renderer how, const bt_json_node *request)
{
    size_t n_marks;
    bt_text t = unit_mark_request(request, &n_marks);
    bt_rendered r = render(how, t.data, NULL, NULL);
    unit_expect_marks(r.text, n_marks, t.data);
    bt_rendered_free(&r);
    bt_text_free(&t);
    return n_marks;
}

static void every_text_occurs(void **state)
{
    (void)state;
    /* a result's name gives way to that of the call it answers; reasoning has no place in Kimi Linear */
    static const char *const not_k3[] = {"results_by_name", NULL};
    static const char *const not_linear[] = {"results_by_name",
                                             "thinking_off_drops_effort_and_history",
                                             "system_and_history",
                                             "history_without_reasoning",
                                             "reasoning_of_white_space",
                                             "reasoning_by_its_other_name",
                                             "marks_in_texts",
                                             "call_and_result",
                                             "later_tools",
                                             NULL};
    bt_arena *a = bt_arena_new();
    const bt_json_node *cases = unit_read_json(a, CHAT, "k3_cases.json");
    size_t n_k3 = 0, n_linear = 0;
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next) {
        const char *name = unit_member(c, "name")->text;
        if (strncmp(name, "err_result", 10) == 0) continue;
        if (!unit_is_one_of(name, not_k3)) n_k3 += expect_marks(bt_k3_render, c);
        if (!unit_is_one_of(name, not_linear)) n_linear += expect_marks(bt_kimi_linear_render, c);
    }
    assert_true(n_k3 > 150);
    assert_true(n_linear > 100);
    bt_arena_free(a);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

#define HI "[{\"role\": \"user\", \"content\": \"a\"}]"

static void refusals(void **state)
{
    (void)state;
    static const unit_renderer k3 = bt_k3_render;
    refuse(k3, HI, NULL, "{\"thinking_effort\": 3}", "Unsupported thinking_effort=3; supported values are");
    refuse(k3, HI, NULL, "{\"thinking\": 1}", "thinking is neither true nor false");
    refuse(k3, HI, NULL, "{\"enable_thinking\": false}", "no option \"enable_thinking\"; it has thinking");
    refuse(k3, HI, NULL, "{\"response_format\": {\"type\": \"grammar\"}}", "must be text, json_object or json_schema");
    refuse(k3, HI, NULL, "{\"response_format\": {\"type\": \"json_schema\"}}", "response_format has no json_schema");
    refuse(k3, "[{\"role\": \"user\", \"name\": 1, \"content\": \"a\"}]", NULL, NULL, "messages[0].name is no string");
    refuse(k3, "[{\"role\": \"system\", \"content\": \"a\", \"tools\": [{\"name\": \"f\"}]}]", NULL, NULL,
           "messages[0] has both tools and content");
    refuse(k3, "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": \"x\"}}]}]",
           NULL, NULL, "gives text only to a model");
    refuse(k3, "[{\"role\": \"tool\", \"content\": \"a\"}]", NULL, NULL, "messages[0] is a result of no known call");
    refuse(k3,
           "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"[1]\"}}]}]",
           NULL, NULL, "must be that of an object");
    refuse(bt_kimi_linear_render, HI, NULL, "{\"thinking\": false}", "no option \"thinking\"; it has none");
    refuse(bt_kimi_linear_render, "[{\"role\": \"tool\", \"content\": \"a\"}]", NULL, NULL, "of no known call");
    refuse(bt_kimi_linear_render,
           "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"system\", \"tools\": [{\"name\": \"f\"}]}]", NULL,
           NULL, "messages[1] declares tools");
    /* only a format that has a place for it takes text for arguments */
    bt_conversation c = {0};
    bt_error e;
    const bt_chat_request r =
        unit_request("[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
                     "\"arguments\": \"do it\"}}]}]",
                     NULL, NULL);
    assert_int_equal(bt_conversation_parse(&r, &c, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "messages[0].tool_calls[0].function.arguments is a string that is no JSON"));
}

/* Clients that say null have not said anything. */
static void unsaid(void **state)
{
    (void)state;
    bt_rendered plain = render(bt_k3_render, HI, NULL, NULL);
    expect(bt_k3_render, HI, NULL, "{\"thinking\": null, \"tool_choice\": null, \"response_format\": null}",
           plain.text);
    bt_rendered_free(&plain);
}

/* ---- Kimi Linear ------------------------------------------------------------------------------------------------- */

#define SYSTEM  "<|im_system|>system<|im_middle|>"
#define DEFAULT SYSTEM "You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>\n"
#define USER    "<|im_user|>user<|im_middle|>"
#define ANSWER  "<|im_assistant|>assistant<|im_middle|>"
#define END     "<|im_end|>"
#define RESULT  "<|im_system|>tool<|im_middle|>## Return of "

static void linear_turns(void **state)
{
    (void)state;
    static const unit_renderer linear = bt_kimi_linear_render;
    expect(linear, HI, NULL, NULL, DEFAULT USER "a" END ANSWER);
    expect(linear, "[{\"role\": \"developer\", \"content\": \"s\"}]", NULL, "{\"add_generation_prompt\": false}",
           SYSTEM "s" END);
    expect(linear,
           "[{\"role\": \"system\", \"content\": \"\"}, {\"role\": \"user\", \"name\": \"Ann\", \"content\": "
           "[\"a\", \"b\"]}]",
           "[{\"name\": \"f\", \"z\": 1, \"a\": [1, 2]}]", NULL,
           "<|im_system|>tool_declare<|im_middle|>[{\"name\": \"f\", \"z\": 1, \"a\": [1, 2]}]" END SYSTEM END
           "<|im_user|>Ann<|im_middle|>ab" END ANSWER);
    /* numbers go on through the conversation; text that came as text stays; results by id, then by place */
    expect(
        linear,
        "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"assistant\", \"content\": \"so\", \"tool_calls\": "
        "[{\"id\": \"x\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\":1}\"}}, {\"id\": \"y\", "
        "\"function\": {\"name\": \"g\", \"arguments\": {\"b\": [1]}}}]}, {\"role\": \"tool\", \"tool_call_id\": "
        "\"y\", \"content\": \"2\"}, {\"role\": \"tool\", \"tool_call_id\": \"x\", \"content\": \"1\"}, {\"role\": "
        "\"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
        "\"oops\"}}, "
        "{\"function\": {\"name\": \"h\", \"arguments\": \"\"}}]}, {\"role\": \"tool\", \"content\": \"3\"}, "
        "{\"role\": \"function\", \"name\": \"h\", \"content\": \"4\"}]",
        NULL, NULL,
        SYSTEM "s" END ANSWER "so<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
               "<|tool_call_argument_begin|>{\"a\":1}<|tool_call_end|><|tool_call_begin|>functions.g:1"
               "<|tool_call_argument_begin|>{\"b\": [1]}<|tool_call_end|><|tool_calls_section_end|>" END RESULT
               "functions.g:1\n2" END RESULT "functions.f:0\n1" END ANSWER
               "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:2<|tool_call_argument_begin|>oops"
               "<|tool_call_end|><|tool_call_begin|>functions.h:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
               "<|tool_calls_section_end|>" END RESULT "functions.f:2\n3" END
               "<|im_system|>h<|im_middle|>## Return of functions.h:3\n4" END ANSWER);
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

/* Thousands of calls and as many results, the other way round: sorted, not searched one by one. */
static void many_results(void **state)
{
    (void)state;
    const size_t n = 20000;
    bt_text t = {0};
    bt_text_puts(&t, "[{\"role\": \"assistant\", \"tool_calls\": [");
    for (size_t i = 0; i < n; i++)
        bt_text_printf(&t, "%s{\"id\": \"c%zu\", \"function\": {\"name\": \"f\"}}", i > 0 ? ", " : "", i);
    bt_text_puts(&t, "]}");
    for (size_t i = n; i > 0; i--)
        bt_text_printf(&t, ", {\"role\": \"tool\", \"tool_call_id\": \"c%zu\", \"content\": \"r%zu.\"}", i - 1, i - 1);
    bt_text_puts(&t, "]");
    bt_rendered r = render(bt_k3_render, t.data, NULL, NULL);
    const char *at = r.text;
    for (size_t i = 0; i < n; i++) {
        char result[64];
        (void)snprintf(result, sizeof result, "index=\"%zu\"<|sep|>r%zu.", i + 1, i);
        at = strstr(at, result);
        if (at == NULL) fail_msg("%s does not come in its turn", result);
    }
    bt_rendered_free(&r);
    bt_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),           cmocka_unit_test(published),    cmocka_unit_test(of_templates),
        cmocka_unit_test(every_text_occurs), cmocka_unit_test(refusals),     cmocka_unit_test(unsaid),
        cmocka_unit_test(linear_turns),      cmocka_unit_test(many_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
