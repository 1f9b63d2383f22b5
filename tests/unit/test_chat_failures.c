/*
 * Want of memory while chatting: each allocation of a whole round fails in turn. The round then ends with
 * BT_ERR_MEMORY, or goes on where the memory was not vital; it leaks nothing (the sanitizers look), and never says
 * something else.
 */
#include "chat_unit.h"

#include "base/arena.h"

#ifdef BT_TEST_BUILD

#    define N_FAULTS_MAX 20000

static const char request[] =
    "{\"messages\": [{\"role\": \"developer\", \"content\": [\"a\", \"b\"]}, {\"role\": \"user\", \"content\": "
    "\"hi\"}, {\"role\": "
    "\"assistant\", \"content\": null, \"reasoning_details\": [{\"text\": \"r\"}], \"tool_calls\": [{\"function\": "
    "{\"name\": "
    "\"f\", \"arguments\": \"{\\\"s\\\": \\\"v\\\", \\\"d\\\": [1]}\"}}]}, {\"role\": \"tool\", \"content\": {\"k\": "
    "1}}], "
    "\"kwargs\": {\"tool_call_format\": \"xml_typed\", \"reasoning_effort\": \"low\"}, \"response_format\": {\"type\": "
    "\"json_object\"}}";
static const char tools[] =
    "[{\"name\": \"f\", \"parameters\": {\"$defs\": {\"D\": {\"type\": \"array\", \"description\": \"d\"}}, "
    "\"properties\": "
    "{\"s\": {\"type\": \"string\"}, \"d\": {\"$ref\": \"#/$defs/D\", \"description\": \"e\"}}}}]";
static const char answer[] =
    "r</ifm|think>c<ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>s</ifm|arg_key><ifm|arg_value>v</ifm|arg_value>"
    "<ifm|arg_key>d</ifm|arg_key><ifm|arg_value>[1]</ifm|arg_value></ifm|tool_call><ifm|tool_call>{\"arguments\": "
    "\"{}\", "
    "\"name\": \"g\"}</ifm|tool_call><ifm|tool_call>not one</ifm|tool_call></ifm|tool_calls>";

static const char kimi_request[] =
    "{\"messages\": [{\"role\": \"user\", \"name\": \"a&\\\"b\", \"content\": [\"x\", \"y\"]}, {\"role\": "
    "\"assistant\", "
    "\"content\": null, \"reasoning\": \"r\", \"tool_calls\": [{\"id\": \"c1\", \"function\": {\"name\": \"f\", "
    "\"arguments\": {\"s\": \"v\", \"o\": {\"k\": [1]}}}}, {\"id\": \"c2\", \"function\": {\"name\": \"g\", "
    "\"arguments\": \"do it\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c2\", \"content\": \"2\"}, {\"role\": "
    "\"tool\", \"tool_call_id\": \"c1\", \"content\": {\"k\": 1}}], \"response_format\": {\"type\": \"json_schema\", "
    "\"json_schema\": {\"schema\": {\"b\": 1, \"a\": 2}}}}";
static const char k3_answer[] =
    "r<|close|>think<|sep|><|open|>response<|sep|>c<|open|>tools<|sep|><|open|>call "
    "tool=\"f&amp;\"<|sep|><|open|>argument "
    "key=\"s\" type=\"string\"<|sep|>v<|close|>argument<|sep|><|open|>argument key=\"o\" type=\"object\"<|sep|>{}"
    "<|close|>argument<|sep|><|open|>argument "
    "key=\"d\"<|sep|>[1]<|close|>argument<|sep|><|close|>call<|sep|><|open|>call "
    "tool=\"g\"<|sep|><|open|>json<|sep|>{\"a\": 1}<|close|>json<|sep|><|close|>call<|sep|><|open|>call<|sep|>x";
static const char linear_answer[] =
    "c<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"s\": \"v\"}"
    "<|tool_call_end|><|tool_call_begin|>not one<|tool_call_argument_begin|>{}<|tool_call_end|>";

typedef struct round {
    const char *config, *request, *answer, *tokenizer; /* tokenizer NULL: Kimi Linear's */
} round;

static const round k2 = {"{\"model_type\": \"k2_horizon\"}", request, answer, TINY};
static const round k3 = {"{\"model_type\": \"kimi_k3\"}", kimi_request, k3_answer, TIKTOKEN};
static const round linear = {"{\"model_type\": \"kimi_linear\"}", kimi_request, linear_answer, NULL};

/* Messages in, an answer read, its message out (to be freed). */
static bt_status read_answer(const bt_chat *c, const bt_prompt *p, const char *text, char **message, bt_error *e)
{
    bt_reply *r = NULL;
    const bt_reply_event *events;
    size_t n, size;
    bt_status st = bt_reply_open(c, p, &r, e);
    for (size_t i = 0, left = strlen(text); left > 0 && st == BT_OK; i += 30, left -= left < 30 ? left : 30) {
        st = bt_reply_push(r, text + i, left < 30 ? left : 30, &events, &n, e);
    }
    if (st == BT_OK) st = bt_reply_finish(r, false, &events, &n, e);
    if (st == BT_OK) st = bt_reply_message(r, "call_", message, &size, e);
    bt_reply_close(r);
    return st;
}

static bt_status round_trip(const round *said, const char *folder, const bt_tokenizer *t, bt_text *out,
                            bool *has_failed, bt_error *e)
{
    const bt_chat_request r = unit_request(said->request, tools, NULL);
    bt_chat *c = NULL;
    bt_prompt p = {0};
    char *message = NULL;
    bt_status st = bt_chat_open(folder, NULL, NULL, t, &c, e);
    if (st == BT_OK) st = bt_chat_render(c, &r, &p, e);
    if (st == BT_OK) st = read_answer(c, &p, said->answer, &message, e);
    *has_failed = bt_alloc_has_failed();
    bt_alloc_fail_after(-1);
    if (st == BT_OK) {
        bt_text_printf(out, "%s%s%zu%s", p.text, p.warnings, p.n_ids, message);
    }
    bt_free(message);
    bt_prompt_free(&p);
    bt_chat_close(c);
    return st;
}

static void fail_each(const round *said, const char *folder)
{
    bt_tokenizer *t = said->tokenizer != NULL ? unit_tokenizer(said->tokenizer) : unit_linear_tokenizer();
    bt_text whole = {0};
    bt_error e;
    size_t n_refused = 0;
    bool has_failed = true;
    if (round_trip(said, folder, t, &whole, &has_failed, &e) != BT_OK) fail_msg("%s", e.message);
    has_failed = true;
    for (long n = 0; has_failed; n++) {
        bt_text got = {0};
        assert_true(n < N_FAULTS_MAX);
        bt_alloc_fail_after(n);
        bt_status st = round_trip(said, folder, t, &got, &has_failed, &e);
        bt_alloc_fail_after(-1);
        if (st == BT_OK) {
            assert_string_equal(got.data, whole.data);
        } else {
            if (!has_failed || st != BT_ERR_MEMORY) fail_msg("allocation %ld: %s", n, e.message);
            n_refused++;
        }
        bt_text_free(&got);
    }
    assert_true(n_refused > 100);
    bt_text_free(&whole);
    bt_tokenizer_close(t);
}

static void native(void **state)
{
    (void)state;
    static const round *const rounds[] = {&k2, &k3, &linear};
    for (size_t i = 0; i < 3; i++) {
        char *folder = unit_make_folder();
        unit_write_file(folder, "config.json", rounds[i]->config, strlen(rounds[i]->config));
        fail_each(rounds[i], folder);
        unit_remove_folder(folder);
        free(folder);
    }
}

static void by_template(void **state)
{
    (void)state;
    static const char names[] =
        "{\"bos_token\": \"<s>\", \"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, "
        "{\"name\": \"tool_use\", \"template\": \"{{ bos_token }}{% for m in messages %}{{ m.role }}"
        "{{ m.content }}{% endfor %}{# reasoning_effort #}<ifm|think>\"}]}";
    char *folder = unit_make_folder();
    unit_write_file(folder, "config.json", k2.config, strlen(k2.config));
    unit_write_file(folder, "tokenizer_config.json", names, sizeof names - 1);
    fail_each(&k2, folder);
    unit_remove_folder(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native),
        cmocka_unit_test(by_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void not_this_build(void **state)
{
    (void)state;
    skip(); /* NOT RUN: only a test build can make allocations fail */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(not_this_build)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
