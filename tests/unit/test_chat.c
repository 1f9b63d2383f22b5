/* Chats: which of several templates counts, what it gets, what it left out, efforts, and one whole round. */
#include "chat_unit.h"

#include "base/arena.h"
#include "text/chat.h"

#define HI "[{\"role\": \"user\", \"content\": \"hi\"}]"

typedef struct folder_file {
    const char *name, *text;
} folder_file;

static char *make_folder(const folder_file *files, size_t n)
{
    char *folder = unit_make_folder();
    for (size_t i = 0; i < n; i++) unit_write_file(folder, files[i].name, files[i].text, strlen(files[i].text));
    return folder;
}

static void remove_folder(char *folder)
{
    unit_remove_folder(folder);
    free(folder);
}

static bt_status render(const bt_chat *c, const char *messages, const char *tools, const char *options, bt_prompt *p,
                        bt_error *e)
{
    const bt_chat_request r = unit_request(messages, tools, options);
    return bt_chat_render(c, &r, p, e);
}

/* What a chat of this folder renders for HI. */
static void expect_text(const char *folder, const char *family, const char *path, const char *tools, const char *text)
{
    bt_chat *c = NULL;
    bt_prompt p = {0};
    bt_error e;
    if (bt_chat_open(folder, family, path, NULL, &c, &e) != BT_OK) fail_msg("%s", e.message);
    if (render(c, HI, tools, NULL, &p, &e) != BT_OK) fail_msg("%s", e.message);
    assert_string_equal(p.text, text);
    assert_null(p.ids);
    bt_prompt_free(&p);
    bt_chat_close(c);
}

static void refuse_open(const folder_file *files, size_t n, bt_status status, const char *message)
{
    char *folder = make_folder(files, n);
    bt_chat *c = NULL;
    bt_error e;
    assert_int_equal(bt_chat_open(folder, NULL, NULL, NULL, &c, &e), status);
    if (strstr(e.message, message) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.message, message);
    remove_folder(folder);
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

#define NATIVE "<|ifm|begin_of_text|><|ifm|im_start|>user\nhi<|ifm|im_end|><|ifm|im_start|>assistant\n<ifm|think>\n"

static void order(void **state)
{
    (void)state;
    static const folder_file files[] = {
        {"config.json", "{\"model_type\": \"k2_horizon\", \"x\": NaN}"},
        {"tokenizer_config.json", "{\"chat_template\": \"config\"}"},
        {"chat_template.jinja", "file"},
        {"chat_template_generation.jinja", "served"},
        {"own.jinja", "given"},
    };
    char *folder = make_folder(files, 5), path[4400];
    (void)snprintf(path, sizeof path, "%s/own.jinja", folder);
    expect_text(folder, NULL, path, NULL, "given");
    expect_text(folder, NULL, NULL, NULL, "served");
    remove_folder(folder);
    static const char *const texts[] = {NATIVE, "config", "file"};
    for (size_t n = 1; n <= 3; n++) {
        folder = make_folder(files, n);
        expect_text(folder, NULL, NULL, NULL, texts[n - 1]);
        remove_folder(folder);
    }
    folder = make_folder(files, 0);
    expect_text(folder, "k2_horizon", NULL, NULL, NATIVE);
    remove_folder(folder);
}

static void named(void **state)
{
    (void)state;
    static const folder_file two[] = {
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"tools\"}, {\"name\": "
                                  "\"default\", \"template\": \"plain\"}]}"}};
    static const folder_file one[] = {
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"only\"}]}"}};
    char *folder = make_folder(two, 1);
    expect_text(folder, NULL, NULL, NULL, "plain");
    expect_text(folder, NULL, NULL, "[{\"name\": \"f\"}]", "tools");
    expect_text(folder, NULL, NULL, "[]", "plain");
    remove_folder(folder);
    folder = make_folder(one, 1);
    expect_text(folder, NULL, NULL, "[{\"name\": \"f\"}]", "only");
    remove_folder(folder);
}

static void refused(void **state)
{
    (void)state;
    static const folder_file llama[] = {{"config.json", "{\"model_type\": \"llama\"}"}};
    static const folder_file rag[] = {
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"a\"}, {\"name\": \"b\", "
                                  "\"template\": \"c\"}]}"}};
    static const folder_file number[] = {{"tokenizer_config.json", "{\"chat_template\": 1}"}};
    static const folder_file unnamed[] = {{"tokenizer_config.json", "{\"chat_template\": [{\"template\": \"a\"}]}"}};
    static const folder_file broken[] = {{"tokenizer_config.json", "{"}};
    static const folder_file syntax[] = {{"chat_template.jinja", "a\n{% if %}"}};
    refuse_open(llama, 1, BT_ERR_UNSUPPORTED,
                "has no chat template (chat_template.jinja, or chat_template in "
                "tokenizer_config.json), and there is no native one for \"llama\"");
    refuse_open(NULL, 0, BT_ERR_UNSUPPORTED, "has no chat template");
    refuse_open(rag, 1, BT_ERR_FORMAT, "chat_template lists 2 templates, none of them \"default\"");
    refuse_open(number, 1, BT_ERR_FORMAT, "chat_template is neither a text nor a list");
    refuse_open(unnamed, 1, BT_ERR_FORMAT, "an entry of chat_template has no name and template");
    refuse_open(broken, 1, BT_ERR_FORMAT, "tokenizer_config.json: line 1");
    refuse_open(syntax, 1, BT_ERR_FORMAT, "chat_template.jinja");
}

/* ---- what templates get ------------------------------------------------------------------------------------------ */

static void variables(void **state)
{
    (void)state;
    static const folder_file files[] = {
        {"tokenizer_config.json",
         "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, \"unk_token\": null, "
         "\"extra_special_tokens\": {\"image_token\": \"<i>\", \"messages\": \"x\"}, "
         "\"additional_special_tokens\": [\"<1>\", {\"content\": \"<2>\"}]}"},
        {"special_tokens_map.json", "{\"eos_token\": \"other\", \"pad_token\": \"<p>\"}"},
        {"chat_template.jinja",
         "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token is defined }}{{ image_token }}"
         "{{ additional_special_tokens | join }} {{ tools is none }} {{ documents is none }} {{ add_generation_prompt "
         "}} "
         "{% for m in messages %}{{ m.role }}:{{ m.content }}:{{ m.reasoning_content is defined }};{% endfor %} {{ "
         "effort }}"},
    };
    char *folder = make_folder(files, 3);
    bt_chat *c = NULL;
    bt_prompt p = {0};
    bt_error e;
    static const char two[] =
        "[{\"role\": \"developer\", \"content\": [\"a\", \"b\"]}, {\"role\": \"assistant\", \"content\": "
        "null}]";
    for (int is_k2 = 0; is_k2 < 2; is_k2++) {
        const char *expected = is_k2 ? "<s></s><p>False<i><1><2> True True True system:a\nb:False;assistant::True; 3"
                                     : "<s></s><p>False<i><1><2> True True True system:a\nb:False;assistant::False; 3";
        assert_int_equal(bt_chat_open(folder, is_k2 ? "k2_horizon" : "llama", NULL, NULL, &c, &e), BT_OK);
        if (render(c, two, NULL, "{\"effort\": 3}", &p, &e) != BT_OK) fail_msg("%s", e.message);
        assert_string_equal(p.text, expected);
        bt_prompt_free(&p);
        assert_int_equal(render(c, HI, NULL, "{\"bos_token\": \"x\"}", &p, &e), BT_ERR_USAGE);
        assert_non_null(strstr(e.message, "bos_token is no template option"));
        assert_int_equal(render(c, HI, NULL, "{\"image_token\": \"x\"}", &p, &e), BT_ERR_USAGE);
        assert_int_equal(render(c, HI, NULL, "{\"cls_token\": \"x\"}", &p, &e), BT_ERR_USAGE);
        bt_chat_close(c);
    }
    remove_folder(folder);
}

/* A message that no template can take is the caller's fault, and says so. */
static void raised(void **state)
{
    (void)state;
    static const folder_file files[] = {{"chat_template.jinja", "\n{{ raise_exception('roles must alternate') }}"}};
    char *folder = make_folder(files, 1);
    bt_chat *c = NULL;
    bt_prompt p = {0};
    bt_error e;
    assert_int_equal(bt_chat_open(folder, NULL, NULL, NULL, &c, &e), BT_OK);
    assert_int_equal(render(c, HI, NULL, NULL, &p, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "roles must alternate"));
    assert_non_null(strstr(e.message, "line 2"));
    bt_chat_close(c);
    remove_folder(folder);
}

/* ---- what templates leave out ------------------------------------------------------------------------------------ */

static void expect_warnings(const char *jinja, const char *messages, const char *tools, const char *warnings)
{
    const folder_file files[] = {{"chat_template.jinja", jinja}};
    char *folder = make_folder(files, 1);
    bt_chat *c = NULL;
    bt_prompt p = {0};
    bt_error e;
    if (bt_chat_open(folder, "k2_horizon", NULL, NULL, &c, &e) != BT_OK) fail_msg("%s", e.message);
    if (render(c, messages, tools, NULL, &p, &e) != BT_OK) fail_msg("%s", e.message);
    assert_string_equal(p.warnings, warnings);
    bt_prompt_free(&p);
    bt_chat_close(c);
    remove_folder(folder);
}

#define X58 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static void left_out(void **state)
{
    (void)state;
    static const char all[] =
        "[{\"role\": \"system\", \"content\": \" sys\\n\"}, {\"role\": \"user\", \"content\": \"a \\\"q\\\"\\n  "
        "b\"}, {\"role\": \"assistant\", \"content\": \"c\", \"reasoning\": \"why\", \"tool_calls\": "
        "[{\"function\": {\"name\": \"fun\", \"arguments\": {\"key\": [\"val\"]}}}]}]";
    static const char tools[] = "[{\"name\": \"fun\", \"description\": \"does it\"}]";
    expect_warnings("{{ messages | tojson }}{{ tools | tojson }}", all, tools, "");
    /* trimmed, indented */
    expect_warnings("{% for m in messages %}{{ m.content | trim | indent(4) }}{{ m.reasoning_content }}{% endfor %}"
                    "{{ messages[2].tool_calls | tojson }}{{ tools | tojson }}",
                    all, tools, "");
    expect_warnings("{{ messages[0].content }}{{ messages[1].content }}", all, tools,
                    "the template leaves out tool \"fun\"\n"
                    "the template leaves out the reasoning of messages[2]\n"
                    "the template leaves out the content of messages[2]\n"
                    "the template leaves out a call of messages[2]\n"
                    "the template leaves out the name of an argument of messages[2]\n"
                    "the template leaves out an argument of messages[2]\n");
    expect_warnings("{{ messages | tojson }}{{ tools[0].name }}", all, tools,
                    "the template leaves out the description of tool \"fun\"\n");
    expect_warnings("", "[{\"role\": \"user\", \"content\": \"\"}]",
                    "[{\"name\": \"f\\u001b\\nfake\"}, {\"name\": \"x" X58 "\u00e9\"}]",
                    "the template leaves out tool \"f??fake\"\n"
                    "the template leaves out tool \"x" X58 "\"\n");
    expect_warnings("a b", "[{\"role\": \"user\", \"content\": \"a\\nb\\nc\"}]", NULL,
                    "the template leaves out the content of messages[0]\n");
    expect_warnings("",
                    "{\"messages\": [{\"role\": \"user\", \"content\": \" \\n\"}], \"tool_choice\": \"required\", "
                    "\"response_format\": {\"type\": \"json_object\"}, \"tools\": [{\"name\": \" \"}]}",
                    NULL,
                    "tool_choice demands a call; nothing makes the model call\n"
                    "response_format demands a form; nothing makes the model keep it\n");
}

/* Thousands of lost texts: told of a few, looked for no more. */
static void many_left_out(void **state)
{
    (void)state;
    bt_text messages = {0};
    bt_text_puts(&messages, "[");
    for (int i = 0; i < 3000; i++) {
        bt_text_printf(&messages, "%s{\"role\": \"user\", \"content\": \"text %d\"}", i > 0 ? ", " : "", i);
    }
    bt_text_puts(&messages, "]");
    const folder_file files[] = {{"chat_template.jinja", "nothing"}};
    char *folder = make_folder(files, 1);
    bt_chat *c = NULL;
    bt_prompt p = {0};
    bt_error e;
    assert_int_equal(bt_chat_open(folder, NULL, NULL, NULL, &c, &e), BT_OK);
    assert_int_equal(render(c, messages.data, NULL, NULL, &p, &e), BT_OK);
    assert_non_null(strstr(p.warnings, "messages[19]\n"));
    assert_null(strstr(p.warnings, "messages[20]"));
    assert_non_null(strstr(p.warnings, "more texts are not in the prompt either\n"));
    bt_prompt_free(&p);
    bt_chat_close(c);
    bt_text_free(&messages);
    remove_folder(folder);
}

/* ---- a template of the size of published ones ----------------------------------------------------------------------
 * */

/* K2-Horizon's format as a template: the goldens again, through the engine. */
static void goldens_by_template(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    const bt_json_node *cases = unit_read_json(a, CHAT, "k2_cases.json");
    const bt_json_node *golden = unit_read_json(a, CHAT, "k2_golden.json"), *want = golden->child;
    bt_chat *c = NULL;
    bt_error e;
    if (bt_chat_open(CHAT, "k2_horizon", CHAT "/k2_horizon.jinja", NULL, &c, &e) != BT_OK) fail_msg("%s", e.message);
    for (const bt_json_node *one = cases->child; one != NULL; one = one->next, want = want->next) {
        const char *name = unit_member(one, "name")->text;
        const bt_json_node *error = bt_json_get(want, "error");
        bt_text request = unit_without(one, "name");
        bt_prompt p = {0};
        bt_status st = render(c, request.data, NULL, NULL, &p, &e);
        if (error != NULL) {
            assert_int_equal(st, BT_ERR_USAGE);
            if (strstr(e.message, error->text) == NULL) fail_msg("%s: %s", name, e.message);
        } else {
            if (st != BT_OK) fail_msg("%s: %s", name, e.message);
            const char *text = unit_member(want, "text")->text;
            size_t at = 0;
            while (p.text[at] != '\0' && p.text[at] == text[at]) at++;
            if (p.text[at] != text[at])
                fail_msg("%s: differs from byte %zu on: \"%.80s\", expected \"%.80s\"", name, at, p.text + at,
                         text + at);
            assert_true(p.is_reasoning);
            assert_string_equal(p.warnings, "");
            bt_prompt_free(&p);
        }
        bt_text_free(&request);
    }
    bt_chat_close(c);
    bt_arena_free(a);
}

/* ---- efforts, and a round ---------------------------------------------------------------------------------------- */

static void efforts(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"none", "low"},  {"minimal", "low"}, {"low", "low"}, {"medium", "medium"},
                                           {"high", "high"}, {"xhigh", "high"},  {"max", "high"}};
    bt_chat *c = NULL;
    bt_error e;
    const char *used, *options;
    assert_int_equal(bt_chat_open(CHAT, "k2_horizon", NULL, NULL, &c, &e), BT_OK);
    for (size_t i = 0; i < 7; i++) {
        bt_prompt p = {0};
        assert_int_equal(bt_chat_effort(c, pairs[i][0], &used, &options, &e), BT_OK);
        assert_string_equal(used, pairs[i][1]);
        if (render(c, HI, NULL, options, &p, &e) != BT_OK) fail_msg("%s", e.message);
        const char *tag = i < 3 ? "<ifm|think_faster>\n" : i == 3 ? "<ifm|think_fast>\n" : "<ifm|think>\n";
        assert_string_equal(p.text + p.size - strlen(tag), tag);
        assert_true(p.is_reasoning);
        bt_prompt_free(&p);
    }
    assert_int_equal(bt_chat_effort(c, "huge", &used, &options, &e), BT_ERR_USAGE);
    bt_chat_close(c);
}

#define IGNORED(effort) "the template does nothing with reasoning_effort: asking for \"" effort "\" has no effect\n"
#define UNUSED(name)    "the template does nothing with \"" name "\"\n"
/* What stored requests have, and asks for nothing. */
#define REQUESTED                                                                                                      \
    "{\"model\": \"m\", \"user\": \"u\", \"metadata\": {\"a\": \"b\"}, \"store\": true, \"n\": 1, \"stream\": false, " \
    "\"stream_options\": {\"include_usage\": true}, \"parallel_tool_calls\": true, \"logprobs\": false, \"stop\": "    \
    "null}"

/* A template that does not know efforts is found out, and one that does is not blamed: not for its own default, not
 * where it refuses other values, not where only some of them change the text. */
static void ignored_efforts(void **state)
{
    (void)state;
    static const struct {
        const char *jinja, *options, *warnings;
    } cases[] = {
        {"hi", "{\"reasoning_effort\": \"high\"}", IGNORED("high")},
        {"hi", NULL, ""},
        {"hi", "{\"thinking_effort\": \"low\"}",
         "the template does nothing with thinking_effort: asking for \"low\" has no effect\n"},
        {"hi{# reasoning_effort #}", "{\"reasoning_effort\": \"none\"}", IGNORED("none")},
        {"hi{% if tools %}{{ reasoning_effort }}{% endif %}", "{\"x\": 1, \"reasoning_effort\": \"low\", \"y\": 2}",
         IGNORED("low") UNUSED("x") UNUSED("y")},
        {"hi{{ x }}{{ yy }}{{ zy }}", "{\"x\": 1, \"y\": 2, \"z\": null}", UNUSED("y")},
        {"hi{{ reasoning_effort }}", "{\"reasoning_effort\": \"low\"}", ""},
        {"hi{{ reasoning_effort or 'high' }}", "{\"reasoning_effort\": \"high\"}", ""},
        {"hi{{ 'fast' if reasoning_effort == 'low' }}", "{\"reasoning_effort\": \"high\"}", ""},
        {"hi{% if reasoning_effort not in ['high', none] and reasoning_effort is defined %}{{ raise_exception('no') }}"
         "{% endif %}",
         "{\"reasoning_effort\": \"high\"}", ""},
        {"hi", "{\"reasoning_effort\": null}", ""},
        {"hi", "{\"nl\\nfake\": 1, \"\\u001b[31m\\u009b\": 2}",
         UNUSED("nl?fake") UNUSED("?[31m?")}, /* lines and terminals */
        {"hi", "{\"reasoning_effort\": \"a\\nb\"}", IGNORED("a?b")},
        {"hi", "{\"" X58 "\u00e9\u00e9\": 1, \"reasoning_effort\": \"x" X58 "\u00e9\"}", /* cut before a character */
         IGNORED("x" X58) UNUSED(X58 "\u00e9")},
        {"hi", REQUESTED, ""},
        {"hi", "{\"n\": 2, \"stream\": true, \"logprobs\": true, \"parallel_tool_calls\": false}",
         UNUSED("n") UNUSED("stream") UNUSED("logprobs") UNUSED("parallel_tool_calls")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const folder_file files[] = {{"chat_template.jinja", cases[i].jinja}};
        char *folder = make_folder(files, 1);
        bt_chat *c = NULL;
        bt_prompt p = {0};
        bt_error e;
        assert_int_equal(bt_chat_open(folder, NULL, NULL, NULL, &c, &e), BT_OK);
        if (render(c, HI, NULL, cases[i].options, &p, &e) != BT_OK) fail_msg("%s: %s", cases[i].jinja, e.message);
        assert_string_equal(p.warnings, cases[i].warnings);
        bt_prompt_free(&p);
        bt_chat_close(c);
        remove_folder(folder);
    }
}

/* ---- demands ----------------------------------------------------------------------------------------------------- */

#define TOOLS ", \"tools\": [{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"g\", \"parameters\": {}}]"

static void demands(void **state)
{
    (void)state;
    static const struct {
        const char *members, *message, *says;
    } cases[] = {
        {TOOLS ", \"tool_choice\": \"required\"", "{\"content\": \"no\"}", "the answer has no call"},
        {TOOLS ", \"tool_choice\": \"required\"", "{\"tool_calls\": []}", "the answer has no call"},
        {TOOLS ", \"tool_choice\": \"required\"", "{\"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}", NULL},
        {TOOLS ", \"tool_choice\": \"auto\"", "{\"content\": \"no\"}", NULL},
        {TOOLS ", \"tool_choice\": {\"function\": {\"name\": \"g\"}}",
         "{\"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}", "the answer does not call \"g\""},
        {TOOLS ", \"tool_choice\": {\"function\": {\"name\": \"g\"}}",
         "{\"tool_calls\": [{\"function\": {\"name\": \"f\"}}, {\"function\": {\"name\": \"g\"}}]}", NULL},
        {", \"response_format\": {\"type\": \"json_object\"}", "{\"content\": \" {\\\"a\\\": 1}\\n\"}", NULL},
        {", \"response_format\": {\"type\": \"json_schema\"}", "{\"content\": \"{}\"}", NULL},
        {", \"response_format\": {\"type\": \"json_object\"}", "{\"content\": \"{} x\"}", "the answer is no JSON"},
        {", \"response_format\": {\"type\": \"json_object\"}", "{\"content\": null}", "the answer is no JSON"},
        {", \"response_format\": {\"type\": \"json_object\"}", "{\"content\": \"[1]\"}", "JSON but no object"},
        {", \"response_format\": {\"type\": \"text\"}", "{\"content\": \"x\"}", NULL},
        {TOOLS ", \"response_format\": {\"type\": \"json_object\"}",
         "{\"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}", NULL},
    };
    bt_chat *c = NULL;
    bt_error e;
    assert_int_equal(bt_chat_open(CHAT, "k2_horizon", NULL, NULL, &c, &e), BT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char request[512];
        bt_prompt p = {0};
        const char *message = cases[i].message;
        (void)snprintf(request, sizeof request, "{\"messages\": " HI "%s}", cases[i].members);
        if (render(c, request, NULL, NULL, &p, &e) != BT_OK) fail_msg("%s: %s", request, e.message);
        bt_status st = bt_prompt_check_answer(&p, message, strlen(message), &e);
        assert_int_equal(st, cases[i].says == NULL ? BT_OK : BT_ERR_FORMAT);
        if (st != BT_OK && strstr(e.message, cases[i].says) == NULL) fail_msg("%s: %s", message, e.message);
        bt_prompt_free(&p);
    }
    bt_chat_close(c);
}

static void refused_demands(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {", \"tool_choice\": \"required\"", "tool_choice demands a call, but there are no tools"},
        {", \"tools\": [], \"tool_choice\": \"required\"", "there are no tools"},
        {", \"tool_choice\": {\"function\": {\"name\": \"f\"}}", "there are no tools"},
        {TOOLS ", \"tool_choice\": {\"name\": \"h\"}", "the function \"h\", which is none of the tools"},
        {", \"response_format\": {}", "response_format has no type"},
        {", \"response_format\": {\"type\": 1}", "response_format has no type"},
        {", \"response_format\": {\"type\": \"yaml\"}", "the type \"yaml\"; there are text, json_object, json_schema"},
    };
    bt_chat *c = NULL;
    bt_error e;
    assert_int_equal(bt_chat_open(CHAT, "k2_horizon", NULL, NULL, &c, &e), BT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char request[512];
        bt_prompt p = {0};
        (void)snprintf(request, sizeof request, "{\"messages\": " HI "%s}", cases[i][0]);
        assert_int_equal(render(c, request, NULL, NULL, &p, &e), BT_ERR_USAGE);
        if (strstr(e.message, cases[i][1]) == NULL) fail_msg("%s: %s", request, e.message);
    }
    bt_chat_close(c);
}

static void starts(void **state)
{
    (void)state;
    static const struct {
        const char *jinja;
        bool is_reasoning;
    } cases[] = {
        {"a<ifm|think>\n", true},
        {"a<ifm|think>\n</ifm|think>", false},
        {"<ifm|think>{{ messages[0].content }}", true},
        {"{{ messages[0].content }}", false}, /* said by a message: no tag */
        {"</ifm|think_fast>x<ifm|think_fast>", true},
        {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const folder_file files[] = {{"chat_template.jinja", cases[i].jinja}};
        char *folder = make_folder(files, 1);
        bt_chat *c = NULL;
        bt_prompt p = {0};
        bt_error e;
        assert_int_equal(bt_chat_open(folder, "k2_horizon", NULL, NULL, &c, &e), BT_OK);
        assert_int_equal(render(c, "[{\"role\": \"user\", \"content\": \"<ifm|think></ifm|think><ifm|think>\"}]", NULL,
                                NULL, &p, &e),
                         BT_OK);
        if (p.is_reasoning != (cases[i].is_reasoning)) fail_msg("%s", cases[i].jinja);
        bt_prompt_free(&p);
        bt_chat_close(c);
        remove_folder(folder);
    }
}

/* Messages in, an answer read, its message sent back: what comes after the history says what the model said, and the
 * call has an id that no earlier one has. */
static void check_round_trip(const char *history, const char *id)
{
    static const char answer[] =
        "I need it.</ifm|think>Wait.<ifm|tool_calls>\n<ifm|tool_call>f\n<ifm|arg_key>s</ifm|arg_key>\n"
        "<ifm|arg_value>a\nb</ifm|arg_value>\n</ifm|tool_call>\n</ifm|tool_calls>";
    bt_text request = {0};
    bt_text_printf(&request,
                   "{\"messages\": [%s], \"tools\": [{\"name\": \"f\", \"parameters\": {\"properties\": "
                   "{\"s\": {\"type\": \"string\"}}}}]}",
                   history);
    bt_chat *c = NULL;
    bt_prompt p = {0}, next = {0};
    bt_reply *r = NULL;
    bt_error e;
    bt_text again = {0};
    const bt_reply_event *events;
    size_t n, size;
    char *message;
    assert_int_equal(bt_chat_open(CHAT, "k2_horizon", NULL, NULL, &c, &e), BT_OK);
    assert_int_equal(render(c, request.data, NULL, NULL, &p, &e), BT_OK);
    assert_int_equal(bt_reply_open(c, &p, &r, &e), BT_OK);
    assert_int_equal(bt_reply_push(r, answer, sizeof answer - 1, &events, &n, &e), BT_OK);
    assert_int_equal(bt_reply_finish(r, false, &events, &n, &e), BT_OK);
    assert_string_equal(bt_reply_finish_reason(r), "tool_calls");
    assert_int_equal(bt_reply_message(r, "call_", &message, &size, &e), BT_OK);
    assert_non_null(strstr(message, id));
    bt_text_printf(&again, "{\"messages\": [%s, %s], \"tools\": %s}", history, message, p.tools);
    if (render(c, again.data, NULL, "{\"add_generation_prompt\": false}", &next, &e) != BT_OK)
        fail_msg("%s", e.message);
    assert_int_equal(strncmp(next.text, p.text, p.size),
                     0); /* the old prompt, the answer as it was, the end of a turn */
    assert_int_equal(strncmp(next.text + p.size, answer, sizeof answer - 1), 0);
    assert_string_equal(next.text + p.size + sizeof answer - 1, "<|ifm|im_end|>");
    bt_free(message);
    bt_text_free(&again);
    bt_text_free(&request);
    bt_prompt_free(&p);
    bt_prompt_free(&next);
    bt_reply_close(r);
    bt_chat_close(c);
}

static void round_trip(void **state)
{
    (void)state;
    check_round_trip("{\"role\": \"user\", \"content\": \"hi\"}", "{\"id\": \"call_0\"");
    check_round_trip("{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"tool_calls\": [{\"id\": "
                     "\"call_0\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, "
                     "{\"role\": \"tool\", \"tool_call_id\": \"call_0\", \"content\": \"1\"}",
                     "{\"id\": \"call_1\"");
    check_round_trip(
        "{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"tool_calls\": [{\"id\": "
        "\"chosen-41\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}, {\"id\": \"x9999999999\", "
        "\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}",
        "{\"id\": \"call_42\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),           cmocka_unit_test(named),
        cmocka_unit_test(refused),         cmocka_unit_test(variables),
        cmocka_unit_test(raised),          cmocka_unit_test(left_out),
        cmocka_unit_test(many_left_out),   cmocka_unit_test(efforts),
        cmocka_unit_test(ignored_efforts), cmocka_unit_test(demands),
        cmocka_unit_test(refused_demands), cmocka_unit_test(starts),
        cmocka_unit_test(round_trip),      cmocka_unit_test(goldens_by_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
