/*
 * Talks and answers: the list of messages, what of a conversation is computed anew, and SmolLM2's two turns where that
 * model is there.
 */
#include "model_unit.h"

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tool/talk.h"

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static bt_talk *open_talk(void)
{
    bt_error e;
    bt_talk *t = NULL;
    unit_ok(bt_talk_open(&t, &e), &e);
    return t;
}

static void say(bt_talk *t, const char *role, const char *text)
{
    bt_error e;
    unit_ok(bt_talk_say(t, role, text, strlen(text), &e), &e);
}

static void is_written(const bt_talk *t, const char *expected)
{
    bt_text text = {0};
    bt_talk_write(t, &text);
    assert_string_equal(text.data, expected);
    bt_text_free(&text);
}

static void test_messages(void **state)
{
    (void)state;
    bt_talk *t = open_talk();
    bt_error e;
    is_written(t, "[]");
    assert_true(bt_talk_last_user(t) == SIZE_MAX);
    say(t, "user", "a \"quoted\"\nline");
    say(t, "assistant", "b");
    assert_int_equal(bt_talk_last_user(t), 0);
    say(t, "user", "c");
    assert_int_equal(bt_talk_last_user(t), 2);
    bt_talk_cut(t, 2);
    is_written(t, "[{\"role\": \"user\", \"content\": \"a \\\"quoted\\\"\\nline\"}, "
                  "{\"role\": \"assistant\", \"content\": \"b\"}]");
    assert_null(bt_talk_system(t));
    unit_ok(bt_talk_set_system(t, "one", &e), &e);
    unit_ok(bt_talk_set_system(t, "two", &e), &e);
    assert_string_equal(bt_talk_system(t), "two");
    assert_int_equal(bt_talk_n_messages(t), 3);
    unit_ok(bt_talk_set_system(t, NULL, &e), &e);
    assert_null(bt_talk_system(t));
    assert_int_equal(bt_talk_n_messages(t), 2);
    unit_ok(bt_talk_set_system(t, "three", &e), &e);
    bt_talk_cut(t, 1);
    is_written(t, "[{\"role\": \"system\", \"content\": \"three\"}]");
    bt_talk_cut(t, 0);
    assert_null(bt_talk_system(t));
    bt_talk_close(t);
}

static void test_reading(void **state)
{
    (void)state;
    bt_talk *t = open_talk(), *u = open_talk();
    bt_error e;
    unit_ok(bt_talk_set_system(t, "s", &e), &e);
    say(t, "user", "u \xc3\xa9 \x01");
    static const char call[] = "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"x\"}]}";
    unit_ok(bt_talk_add(t, call, sizeof call - 1, &e), &e);
    bt_text text = {0}, again = {0};
    bt_talk_write(t, &text);
    unit_ok(bt_talk_read(u, text.data, text.size, &e), &e);
    bt_talk_write(u, &again);
    assert_string_equal(again.data, text.data);
    assert_string_equal(bt_talk_system(u), "s");
    assert_string_equal(bt_talk_message(u, 2), call);
    static const char *const wrong[] = {
        "", "{}", "[", "[1]", "[[]]", "[{}]", "[{\"role\": 1}]", "[{\"role\": \"user\"}] x", "[{\"role\": \"user\"},]",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_not_equal(bt_talk_read(u, wrong[i], strlen(wrong[i]), &e), BT_OK);
        assert_int_equal(bt_talk_n_messages(u), 3); /* as it was */
    }
    assert_int_equal(bt_talk_say(u, "user", "\xff", 1, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "0xff"));
    assert_int_equal(bt_talk_n_messages(u), 3);
    bt_text_free(&text);
    bt_text_free(&again);
    bt_talk_close(t);
    bt_talk_close(u);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

typedef struct world {
    bt_model *model;
    bt_engine *engine;
    bt_session *session;
    bt_tokenizer *tokenizer;
    bt_chat *chat;
    size_t n_computed; /* rows of prompts, as the hook saw them */
    size_t n_stop;     /* tokens after which the hook says stop */
    bt_text output;    /* the events' ranges in order */
    size_t output_end;
    bt_answer_options options;
} world;

static bool reading(void *user, size_t n_done, size_t n_total)
{
    world *w = user;
    if (n_done == 0) w->n_computed += n_total;
    return true;
}

static bool writing(void *user, size_t n_done, size_t n_total)
{
    world *w = user;
    (void)n_total;
    return n_done < w->n_stop;
}

static bool on_event(void *user, const bt_reply_event *e)
{
    world *w = user;
    assert_int_equal(e->begin, w->output_end);
    w->output_end = e->end;
    bt_text_add(&w->output, e->text, e->size);
    return true;
}

/* One id for each byte, in a vocabulary small enough for the models here. */
static bt_tokenizer *open_bytes(void)
{
    bt_text t = {0};
    bt_error e;
    bt_tokenizer *out;
    char *folder = unit_make_folder();
    uint32_t n_other = 0;
    bt_text_puts(&t, "{\"added_tokens\": [], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                     "\"use_regex\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
                     "\"merges\": [], \"vocab\": {");
    for (uint32_t b = 0; b < 256; b++) { /* GPT-2's letters for bytes */
        bool is_kept = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        char letter[4];
        if (b > 0) bt_text_puts(&t, ", ");
        bt_text_json_string(&t, letter, bt_utf8_encode(is_kept ? b : 256 + n_other++, letter));
        bt_text_printf(&t, ": %u", (unsigned)b);
    }
    bt_text_puts(&t, "}}}");
    unit_write_file(folder, "tokenizer.json", t.data, t.size);
    unit_ok(bt_tokenizer_open(folder, &out, &e), &e);
    unit_remove_folder(folder);
    free(folder);
    bt_text_free(&t);
    return out;
}

static world *open_world(void)
{
    static const bt_hook hook_form = {.keep_going = reading};
    world *w = calloc(1, sizeof *w);
    bt_hook *hook = malloc(sizeof *hook);
    bt_error e;
    assert_non_null(w);
    assert_non_null(hook);
    *hook = hook_form;
    hook->user = w;
    w->model = unit_open_model("k2-dense");
    w->engine = unit_open_engine(w->model, (bt_engine_options){.n_threads = 1, .context = 1024, .batch = 512});
    w->session = unit_open_session(w->engine);
    w->tokenizer = open_bytes();
    unit_ok(bt_chat_open(UNIT_MODELS "k2-dense", bt_model_family(w->model), NULL, w->tokenizer, &w->chat, &e), &e);
    w->n_stop = SIZE_MAX;
    w->options = (bt_answer_options){
        .chat = w->chat,
        .tokenizer = w->tokenizer,
        .session = w->session,
        .n_vocab = bt_model_n_vocab(w->model),
        .context = 1024,
        .n_max = 12,
        .sampling = bt_sample_params_default(),
        .reading = hook,
        .writing = {.keep_going = writing, .user = w},
        .event = on_event,
        .user = w,
    };
    w->options.sampling.temperature = 0;
    return w;
}

static void close_world(world *w)
{
    const bt_hook *hook = w->options.reading;
    bt_chat_close(w->chat);
    bt_tokenizer_close(w->tokenizer);
    bt_session_close(w->session);
    bt_engine_close(w->engine);
    bt_model_close(w->model);
    bt_text_free(&w->output);
    free((void *)(uintptr_t)hook);
    free(w);
}

static bt_answer answer(world *w, bt_talk *t)
{
    bt_answer a;
    bt_error e;
    w->n_computed = w->output_end = w->output.size = 0;
    unit_ok(bt_talk_answer(t, &w->options, NULL, NULL, &a, &e), &e);
    return a;
}

/* What is known is not computed; what it says is what a fresh session says. */
static void test_known(void **state)
{
    (void)state;
    world *w = open_world(), *fresh = open_world();
    bt_talk *t = open_talk();
    say(t, "user", "hello");
    bt_answer a = answer(w, t);
    assert_int_equal(a.n_known, 0);
    assert_int_equal(w->n_computed, a.n_prompt);
    assert_int_equal(a.made.n_ids, 12);
    assert_string_equal(a.finish_reason, "length");
    assert_int_equal(bt_session_length(w->session), a.n_prompt + 12 - 1); /* nothing is computed upon the last one */
    size_t first = a.n_prompt;
    bt_answer_free(&a);
    say(t, "user", "and more");
    a = answer(w, t);
    assert_true(a.n_known >= first - 1);
    assert_int_equal(w->n_computed, a.n_prompt - a.n_known);
    bt_talk_cut(t, 3);
    bt_answer b = answer(fresh, t);
    assert_int_equal(b.n_known, 0);
    assert_int_equal(b.n_prompt, a.n_prompt);
    assert_string_equal(a.message, b.message);
    bt_answer_free(&b);
    /* The same once more: all of the prompt is known but the id that gives the logits. */
    bt_talk_cut(t, 3);
    b = answer(w, t);
    assert_int_equal(b.n_known, b.n_prompt - 1);
    assert_int_equal(w->n_computed, 1);
    assert_string_equal(a.message, b.message);
    bt_answer_free(&b);
    bt_answer_free(&a);
    bt_talk_close(t);
    close_world(w);
    close_world(fresh);
}

/* An answer that is stopped keeps what was said; one that never began leaves the talk as it was. */
static void test_stopped(void **state)
{
    (void)state;
    world *w = open_world();
    bt_talk *t = open_talk();
    say(t, "user", "hello");
    w->n_stop = 0;
    bt_answer a = answer(w, t);
    assert_null(a.message);
    assert_int_equal(bt_talk_n_messages(t), 1);
    bt_answer_free(&a);
    w->n_stop = 5;
    a = answer(w, t);
    assert_non_null(a.message);
    assert_int_equal(a.made.n_ids, 5);
    assert_int_equal(bt_talk_n_messages(t), 2);
    assert_string_equal(bt_talk_message(t, 1), a.message);
    bt_answer_free(&a);
    bt_talk_close(t);
    close_world(w);
}

/* A prompt that fills the context is refused with the numbers; one that leaves a little is answered that far. */
static void test_full(void **state)
{
    (void)state;
    world *w = open_world();
    bt_talk *t = open_talk();
    bt_error e;
    say(t, "user", "hello");
    bt_answer a = answer(w, t);
    size_t n = a.n_prompt;
    bt_answer_free(&a);
    bt_talk_cut(t, 1);
    w->options.context = n;
    assert_int_equal(bt_talk_answer(t, &w->options, NULL, NULL, &a, &e), BT_ERR_CONTEXT);
    char numbers[64];
    (void)snprintf(numbers, sizeof numbers, "%zu tokens and the context holds %zu", n, n);
    assert_non_null(strstr(e.message, numbers));
    assert_int_equal(bt_talk_n_messages(t), 1);
    bt_answer_free(&a);
    w->options.context = n + 3;
    a = answer(w, t);
    assert_int_equal(a.made.n_ids, 3);
    assert_int_equal(a.made.finish, BT_FINISH_CONTEXT);
    assert_string_equal(a.finish_reason, "length");
    bt_answer_free(&a);
    bt_talk_close(t);
    close_world(w);
}

/* ---- a real template --------------------------------------------------------------------------------------------- */

static void compare_turn(const bt_chat *c, const bt_json_node *turn)
{
    bt_error e;
    bt_prompt p = {0};
    bt_text messages = {0};
    const bt_json_node *list = bt_json_get(turn, "messages"), *rendered = bt_json_get(turn, "rendered");
    bt_text_puts(&messages, "[");
    for (const bt_json_node *m = list->child; m != NULL; m = m->next) {
        const bt_json_node *role = bt_json_get(m, "role"), *content = bt_json_get(m, "content");
        bt_text_printf(&messages, "%s{\"role\": \"%s\", \"content\": ", m == list->child ? "" : ", ", role->text);
        bt_text_json_string(&messages, content->text, content->size);
        bt_text_puts(&messages, "}");
    }
    bt_text_puts(&messages, "]");
    const bt_chat_request request = {.messages = messages.data, .messages_size = messages.size};
    unit_ok(bt_chat_render(c, &request, &p, &e), &e);
    assert_string_equal(p.text, rendered->text);
    assert_int_equal(p.size, rendered->size);
    const bt_json_node *ids = bt_json_get(turn, "ids");
    assert_int_equal(p.n_ids, ids->n_children);
    size_t i = 0;
    for (const bt_json_node *id = ids->child; id != NULL; id = id->next, i++) {
        int64_t v;
        assert_true(bt_json_i64(id->text, id->size, &v));
        assert_int_equal(p.ids[i], v);
    }
    bt_text_free(&messages);
    bt_prompt_free(&p);
}

/* The rendering and the ids of SmolLM2's turns; its answers are compared by tests/run/chat_once.py. */
static void test_smollm(void **state)
{
    (void)state;
    static const char folder[] = "build/real/smollm2-135m-instruct";
    const char *fixtures = unit_fixtures();
    if (fixtures == NULL || !bt_path_is_folder(folder)) skip();
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/smollm2/expected.json", fixtures);
    bt_error e;
    char *text;
    size_t size;
    const bt_json_node *root;
    unit_ok(bt_read_file(path, (size_t)1 << 26, &text, &size, &e), &e);
    bt_arena *arena = bt_arena_new();
    unit_ok(bt_json_parse(arena, text, size, 0, &root, &e), &e);
    bt_tokenizer *tokenizer;
    bt_chat *chat;
    unit_ok(bt_tokenizer_open(folder, &tokenizer, &e), &e);
    unit_ok(bt_chat_open(folder, NULL, NULL, tokenizer, &chat, &e), &e);
    const bt_json_node *turns = bt_json_get(root, "chat");
    assert_int_equal(turns->n_children, 2);
    for (const bt_json_node *turn = turns->child; turn != NULL; turn = turn->next) compare_turn(chat, turn);
    bt_chat_close(chat);
    bt_tokenizer_close(tokenizer);
    bt_arena_free(arena);
    bt_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_reading), cmocka_unit_test(test_known),
        cmocka_unit_test(test_stopped),  cmocka_unit_test(test_full),    cmocka_unit_test(test_smollm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
