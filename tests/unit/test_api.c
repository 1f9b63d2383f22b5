/* baltoro.h as a stranger calls it: NULL, nothing and nonsense for every pointer that is no handle and no out
 * parameter, and calls out of the order that the header asks for. */
#include "unit.h"

#include "baltoro.h"

#define MODEL     "tests/data/models/k2-dense"
#define RECURRENT "tests/data/models/kimi-linear"
#define TOKENIZER "tests/data/tokenizers/tiny"
#define HI        "[{\"role\": \"user\", \"content\": \"hi\"}]"
#define ASKS      "{\"tool_choice\": \"none\", \"response_format\": {\"type\": \"json_object\"}}"

typedef struct world {
    bt_model *model;
    bt_engine *engine;
    bt_session *session;
    bt_tokenizer *tokenizer;
    bt_chat *chat;
} world;

static bt_error fault;

/* The call before this one filled `fault`. */
static void expect_usage(bt_status st, const char *says)
{
    assert_int_equal(st, BT_ERR_USAGE);
    assert_int_equal(fault.status, BT_ERR_USAGE);
    if (strstr(fault.message, says) == NULL) fail_msg("\"%s\" does not say \"%s\"", fault.message, says);
    fault = (bt_error){BT_OK, ""};
}

static void fine(bt_status st)
{
    if (st != BT_OK) fail_msg("%s", fault.message);
}

static int open_world(void **state)
{
    static world w;
    const bt_engine_options o = {.context = 64, .n_threads = 1};
    fine(bt_model_open(MODEL, NULL, &w.model, &fault));
    fine(bt_engine_open(w.model, &o, &w.engine, &fault));
    fine(bt_session_open(w.engine, &w.session, &fault));
    fine(bt_tokenizer_open(TOKENIZER, &w.tokenizer, &fault));
    fine(bt_chat_open(MODEL, "k2_horizon", NULL, w.tokenizer, &w.chat, &fault));
    *state = &w;
    return 0;
}

static int close_world(void **state)
{
    world *w = *state;
    bt_chat_close(w->chat);
    bt_tokenizer_close(w->tokenizer);
    bt_session_close(w->session);
    bt_engine_close(w->engine);
    bt_model_close(w->model);
    return 0;
}

/* ---- every pointer ----------------------------------------------------------------------------------------------- */

static void test_close_nothing(void **state)
{
    (void)state;
    bt_free(NULL);
    bt_model_close(NULL);
    bt_engine_close(NULL);
    bt_session_close(NULL);
    bt_sampler_close(NULL);
    bt_tokenizer_close(NULL);
    bt_decoder_close(NULL);
    bt_stop_close(NULL);
    bt_chat_close(NULL);
    bt_reply_close(NULL);
    bt_prompt_free(NULL);
    bt_prompt_free(&(bt_prompt){0});
}

static void test_model(void **state)
{
    const world *w = *state;
    char *path = NULL;
    bt_model *m = NULL;
    bt_engine *g = NULL;
    bt_memory_plan plan;
    expect_usage(bt_locate(NULL, NULL, &path, &fault), "model");
    assert_int_equal(bt_locate(NULL, NULL, &path, NULL), BT_ERR_USAGE);
    fine(bt_locate(MODEL, NULL, &path, &fault));
    assert_string_equal(path, MODEL);
    bt_free(path);
    assert_int_equal(bt_locate("there/is-none", &(bt_cache_env){0}, &path, NULL), BT_ERR_IO);
    expect_usage(bt_model_open(NULL, NULL, &m, &fault), "model");
    fine(bt_model_open(MODEL, &(bt_model_options){0}, &m, &fault));
    bt_model_close(m);
    fine(bt_engine_plan(w->model, NULL, &plan, &fault));
    fine(bt_engine_plan(w->model, &(bt_engine_options){0}, &plan, NULL));
    fine(bt_engine_open(w->model, NULL, &g, &fault));
    bt_engine_close(g);
}

/* What a build may have one day is told apart from what nobody knows, by the same status for each option. */
static void test_planned(void **state)
{
    const world *w = *state;
    bt_memory_plan plan;
    const bt_engine_options planned[] = {
        {.device = "cuda"}, {.dtype = "bf16"}, {.dtype = "f16"}, {.kv_dtype = "f16"}, {.kv_dtype = "int8"}};
    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++)
        assert_int_equal(bt_engine_plan(w->model, &planned[i], &plan, &fault), BT_ERR_UNSUPPORTED);
    const bt_engine_options unknown[] = {
        {.device = "abacus"}, {.dtype = "f8"}, {.kv_dtype = "int9"}, {.cpu_level = "z80"}};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        expect_usage(bt_engine_plan(w->model, &unknown[i], &plan, &fault), "unknown");
}

static void test_session(void **state)
{
    const world *w = *state;
    bt_session *s = w->session;
    static const int32_t ids[] = {1, 2, 3};
    static const char bytes[100] = "x";
    void *data = NULL;
    size_t size = 0;
    assert_null(bt_session_logits(s));
    fine(bt_session_extend(s, NULL, 0, NULL, &fault));
    expect_usage(bt_session_extend(s, NULL, 1, NULL, &fault), "ids");
    expect_usage(bt_session_score(s, NULL, 1, NULL, NULL, NULL, &fault), "ids");
    assert_int_equal(bt_session_length(s), 0);
    fine(bt_session_extend(s, ids, 1, &(bt_hook){0}, &fault)); /* an empty hook asks nobody */
    fine(bt_session_score(s, ids, 3, NULL, NULL, NULL, &fault));
    assert_non_null(bt_session_logits(s));
    expect_usage(bt_session_restore(s, NULL, 0, &fault), "snapshot");
    expect_usage(bt_session_restore(s, NULL, 100, &fault), "snapshot");
    assert_int_equal(bt_session_restore(s, bytes, 0, NULL), BT_ERR_FORMAT);
    assert_int_equal(bt_session_restore(s, bytes, sizeof bytes, NULL), BT_ERR_FORMAT);
    fine(bt_session_snapshot(s, &data, &size, &fault));
    fine(bt_session_rewind(s, 0, NULL, &fault));
    fine(bt_session_restore(s, data, size, &fault));
    assert_non_null(bt_session_logits(s)); /* they come back with it */
    bt_free(data);
    fine(bt_session_rewind(s, 1, &(bt_hook){0}, &fault));
    expect_usage(bt_engine_step(w->engine, NULL, 0, &fault), "step");
    expect_usage(bt_engine_step(w->engine, NULL, 1, &fault), "step");
    expect_usage(bt_engine_step(w->engine, &(bt_part){NULL, ids, 1}, 1, &fault), "session");
    expect_usage(bt_engine_step(w->engine, &(bt_part){s, NULL, 1}, 1, &fault), "ids");
    expect_usage(bt_engine_step(w->engine, &(bt_part){s, NULL, 0}, 1, &fault), "ids");
    assert_int_equal(bt_session_length(s), 1);
    fine(bt_session_rewind(s, 0, NULL, &fault));
}

/* A rewind that replays asks its hook too. */
static void test_replay(void **state)
{
    (void)state;
    const bt_engine_options o = {.context = 64, .n_threads = 1, .n_state_snapshots = -1};
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6};
    bt_model *m = NULL;
    bt_engine *g = NULL;
    bt_session *s = NULL;
    fine(bt_model_open(RECURRENT, NULL, &m, &fault));
    fine(bt_engine_open(m, &o, &g, &fault));
    fine(bt_session_open(g, &s, &fault));
    fine(bt_session_extend(s, ids, 6, NULL, &fault));
    fine(bt_session_rewind(s, 5, &(bt_hook){0}, &fault));
    assert_int_equal(bt_session_length(s), 5);
    bt_session_close(s);
    bt_engine_close(g);
    bt_model_close(m);
}

static bool take_two(void *user, size_t row_i, const float *logits)
{
    (void)user;
    assert_non_null(logits);
    return row_i < 2;
}

/* Where the sink says stop, the session ends with the step whose rows it was given: all of them were computed. */
static void test_score_stops(void **state)
{
    const world *w = *state;
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(bt_session_score(w->session, ids, 8, take_two, NULL, NULL, &fault), BT_ERR_CANCELLED);
    assert_string_equal(fault.message, "stopped by the caller after 3 of 8 tokens");
    assert_int_equal(bt_session_length(w->session), 8);
    assert_null(bt_session_logits(w->session));
    fine(bt_session_rewind(w->session, 0, NULL, &fault));
}

static void test_sampler(void **state)
{
    const world *w = *state;
    const size_t n = bt_model_n_vocab(w->model);
    bt_sampler *s = NULL;
    bt_sample_params p = bt_sample_params_default();
    int32_t id = 0, same = 0;
    static const int32_t ids[] = {1, 2};
    expect_usage(bt_sampler_open(0, &p, &s, &fault), "vocabulary");
    expect_usage(bt_sampler_open(0, NULL, &s, &fault), "vocabulary");
    fine(bt_sampler_open(n, &p, &s, &fault));
    expect_usage(bt_sampler_next(s, bt_session_logits(w->session), &id, &fault), "logits"); /* an empty session */
    bt_sampler_accept(s, -1);
    fine(bt_session_extend(w->session, ids, 2, NULL, &fault));
    fine(bt_sampler_next(s, bt_session_logits(w->session), &id, &fault));
    bt_sampler_close(s);
    fine(bt_sampler_open(n, NULL, &s, &fault)); /* the defaults */
    fine(bt_sampler_next(s, bt_session_logits(w->session), &same, &fault));
    assert_int_equal(id, same);
    bt_sampler_close(s);
    fine(bt_session_rewind(w->session, 0, NULL, &fault));
}

static void test_tokenizer(void **state)
{
    const world *w = *state;
    const bt_tokenizer *t = w->tokenizer;
    bt_tokenizer *none = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n = 9, size = 9;
    expect_usage(bt_tokenizer_open(NULL, &none, &fault), "folder");
    assert_string_equal(bt_tokenizer_warnings(t), "");
    assert_int_equal(bt_tokenizer_find(t, NULL), -1);
    assert_int_equal(bt_tokenizer_find(t, ""), -1);
    fine(bt_tokenizer_encode(t, NULL, 0, 0, &ids, &n, &fault));
    assert_int_equal(n, 0);
    bt_free(ids);
    expect_usage(bt_tokenizer_encode(t, NULL, 1, 0, &ids, &n, &fault), "text");
    fine(bt_tokenizer_decode(t, NULL, 0, 0, &text, &size, &fault));
    assert_string_equal(text, "");
    assert_int_equal(size, 0);
    bt_free(text);
    expect_usage(bt_tokenizer_decode(t, NULL, 1, 0, &text, &size, &fault), "ids");
}

static void test_stream(void **state)
{
    const world *w = *state;
    bt_decoder *d = NULL;
    bt_stop *s = NULL;
    const char *text = NULL;
    size_t size = 9;
    fine(bt_decoder_open(w->tokenizer, 0, &d, &fault));
    expect_usage(bt_decoder_push(d, -1, &text, &size, &fault), "-1");
    bt_decoder_finish(d, &text, &size);
    assert_int_equal(size, 0);
    bt_decoder_close(d);
    fine(bt_stop_open(NULL, 0, &s, &fault));
    assert_false(bt_stop_push(s, NULL, 0, &text, &size));
    assert_int_equal(size, 0);
    assert_false(bt_stop_push(s, NULL, 5, &text, &size));
    assert_int_equal(size, 0);
    bt_stop_finish(s, &text, &size);
    assert_int_equal(size, 0);
    bt_stop_close(s);
    expect_usage(bt_stop_open(NULL, 1, &s, &fault), "stop string");
    expect_usage(bt_stop_open((const char *const[]){"a", NULL}, 2, &s, &fault), "stop string 1");
}

static void test_chat(void **state)
{
    const world *w = *state;
    bt_chat *c = NULL;
    const char *used, *options;
    expect_usage(bt_chat_open(NULL, "k2_horizon", NULL, NULL, &c, &fault), "folder");
    expect_usage(bt_chat_open(NULL, NULL, NULL, NULL, &c, &fault), "folder");
    fine(bt_chat_open(MODEL, NULL, NULL, NULL, &c, &fault));
    assert_non_null(bt_chat_source(c));
    bt_chat_close(c);
    assert_int_equal(bt_chat_text_end(NULL, w->tokenizer), -1);
    assert_int_equal(bt_chat_text_end(NULL, NULL), -1);
    assert_int_equal(bt_chat_text_end("k2_horizon", NULL), -1);
    assert_int_equal(bt_chat_text_end("of nobody", w->tokenizer), -1);
    expect_usage(bt_chat_effort(w->chat, NULL, &used, &options, &fault), "effort");
}

/* A prompt that could not be made may be freed all the same, whatever lay there. */
static void refuse_prompt(const bt_chat *c, const bt_chat_request *r, bt_status status, const char *says)
{
    bt_prompt p;
    memset(&p, 0xa5, sizeof p);
    assert_int_equal(bt_chat_render(c, r, &p, &fault), status);
    if (strstr(fault.message, says) == NULL) fail_msg("\"%s\" does not say \"%s\"", fault.message, says);
    assert_null(p.text);
    assert_null(p.ids);
    assert_int_equal(p.n_ids, 0);
    bt_prompt_free(&p);
    memset(&p, 0xa5, sizeof p);
    assert_int_equal(bt_chat_render(c, r, &p, NULL), status);
    bt_prompt_free(&p);
}

static void test_prompt(void **state)
{
    const world *w = *state;
    refuse_prompt(w->chat, NULL, BT_ERR_USAGE, "messages");
    refuse_prompt(w->chat, &(bt_chat_request){0}, BT_ERR_USAGE, "messages");
    refuse_prompt(w->chat, &(bt_chat_request){.messages_size = 7}, BT_ERR_USAGE, "messages");
    refuse_prompt(w->chat, &(bt_chat_request){.messages = HI}, BT_ERR_USAGE, "messages"); /* of 0 bytes */
    refuse_prompt(w->chat, &(bt_chat_request){.messages = "7", .messages_size = 1}, BT_ERR_USAGE, "messages");
    bt_prompt p;
    bt_chat_request r = {.messages = HI, .messages_size = sizeof HI - 1, .tools_size = 5, .options_size = 5};
    fine(bt_chat_render(w->chat, &r, &p, &fault)); /* sizes of nothing count for nothing */
    assert_non_null(p.text);
    assert_non_null(p.warnings);
    expect_usage(bt_prompt_check_answer(&p, NULL, 0, &fault), "message");
    expect_usage(bt_prompt_check_answer(&p, NULL, 5, &fault), "message");
    bt_prompt_free(&p);
    r.options = ASKS;
    r.options_size = sizeof ASKS - 1;
    fine(bt_chat_render(w->chat, &r, &p, &fault));
    expect_usage(bt_prompt_check_answer(&p, NULL, 5, &fault), "message");
    bt_prompt_free(&p);
}

static void test_reply(void **state)
{
    const world *w = *state;
    bt_reply *r = NULL;
    bt_prompt p = {0}; /* as good as any: nothing was asked */
    const bt_reply_event *events = NULL;
    size_t n = 0, size = 0;
    char *json = NULL;
    fine(bt_reply_open(w->chat, &p, &r, &fault));
    fine(bt_reply_push(r, NULL, 0, &events, &n, &fault));
    assert_int_equal(n, 0);
    expect_usage(bt_reply_push(r, NULL, 1, &events, &n, &fault), "text");
    fine(bt_reply_push(r, "hi", 2, &events, &n, &fault));
    fine(bt_reply_finish(r, false, &events, &n, &fault));
    expect_usage(bt_reply_message(r, NULL, &json, &size, &fault), "id");
    assert_null(json);
    fine(bt_reply_message(r, "", &json, &size, &fault));
    bt_free(json);
    bt_reply_close(r);
}

/* ---- the order of calls: asserted -------------------------------------------------------------------------------- */

static bt_reply *finished_reply(const world *w)
{
    bt_reply *r = NULL;
    bt_prompt p = {0};
    const bt_reply_event *events;
    size_t n;
    if (bt_reply_open(w->chat, &p, &r, NULL) != BT_OK || bt_reply_finish(r, false, &events, &n, NULL) != BT_OK)
        _exit(1);
    return r;
}

static void push_after_finish(const void *with)
{
    const world *w = with;
    const bt_reply_event *events;
    size_t n;
    (void)bt_reply_push(finished_reply(w), "x", 1, &events, &n, NULL);
}

static void finish_twice(const void *with)
{
    const world *w = with;
    const bt_reply_event *events;
    size_t n;
    (void)bt_reply_finish(finished_reply(w), false, &events, &n, NULL);
}

static void close_before_sessions(const void *with)
{
    const world *w = with;
    bt_engine_close(w->engine);
}

static void test_order(void **state)
{
    const world *w = *state;
    assert_true(unit_aborts(push_after_finish, w));
    assert_true(unit_aborts(finish_twice, w));
    assert_true(unit_aborts(close_before_sessions, w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_nothing), cmocka_unit_test(test_model),     cmocka_unit_test(test_planned),
        cmocka_unit_test(test_session),       cmocka_unit_test(test_replay),    cmocka_unit_test(test_score_stops),
        cmocka_unit_test(test_sampler),       cmocka_unit_test(test_tokenizer), cmocka_unit_test(test_stream),
        cmocka_unit_test(test_chat),          cmocka_unit_test(test_prompt),    cmocka_unit_test(test_reply),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
