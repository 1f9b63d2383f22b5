/*
 * The reader of answers: whatever comes, in two pieces cut anywhere, the ranges of events are the whole output, the
 * message is the same as for the output in one piece, content holds no tag, and the work is linear. Byte 0 gives
 * options and the family, byte 1 the cut.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "text/output.h"

static const char tools[] =
    "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": \"string\"}, \"i\": "
    "{\"type\": \"integer\"}, \"m\": {\"type\": [\"number\", \"string\"]}, \"o\": {\"type\": "
    "\"object\"}}}}]";

static void check(bool truth)
{
    if (!truth) abort();
}

static void take(const bt_reply_event *events, size_t n, size_t *at, bt_text *content, size_t *n_open)
{
    for (size_t i = 0; i < n; i++) {
        const bt_reply_event *v = &events[i];
        check(v->begin == *at && v->end >= v->begin);
        *at = v->end;
        if (v->kind == BT_REPLY_CONTENT) bt_text_add(content, v->text, v->size);
        if (v->kind == BT_REPLY_CALL) check(++*n_open == 1);
        if (v->kind == BT_REPLY_ARGUMENTS) check(*n_open == 1);
        if (v->kind == BT_REPLY_CALL_DONE || v->kind == BT_REPLY_INCOMPLETE) check(--*n_open == 0);
    }
}

static const char *const families[] = {"k2_horizon", "kimi_k3", "kimi_linear", "llama"};

/* The message, to be freed. */
static char *read_output(const char *text, size_t size, size_t cut, unsigned flags)
{
    const bt_grammar *g = bt_grammar_of(families[flags >> 4 & 3]);
    const bt_reply_options o = {.tools = (flags & 1) != 0 ? tools : NULL,
                                .tools_size = sizeof tools - 1,
                                .is_reasoning = (flags & 2) != 0,
                                .calls_off = (flags & 4) != 0};
    bt_reply *r = NULL;
    const bt_reply_event *events;
    size_t n, at = 0, n_open = 0, message_size;
    char *message = NULL;
    bt_text content = {0};
    check(bt_reply_open_with(g, &o, &r, NULL) == BT_OK);
    check(bt_reply_push(r, text, cut, &events, &n, NULL) == BT_OK);
    take(events, n, &at, &content, &n_open);
    check(at <= cut);
    check(bt_reply_push(r, text + cut, size - cut, &events, &n, NULL) == BT_OK);
    take(events, n, &at, &content, &n_open);
    check(bt_reply_finish(r, (flags & 8) != 0, &events, &n, NULL) == BT_OK);
    take(events, n, &at, &content, &n_open);
    check(at == size && n_open == 0);
    for (size_t i = 0; i < g->n_tags; i++) {
        const char *tag = g->tags[i].text;
        check(content.size == 0 || memmem(content.data, content.size, tag, strlen(tag)) == NULL);
    }
    check(bt_reply_message(r, "call_", &message, &message_size, NULL) == BT_OK);
    check(bt_reply_n_steps(r) <= 400 * (uint64_t)(size + 1));
    bt_reply_close(r);
    bt_text_free(&content);
    return message;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const char *text = (const char *)data + 2;
    size_t n = size - 2;
    char *whole = read_output(text, n, n, data[0]),
         *cut = read_output(text, n, n == 0 ? 0 : data[1] % (n + 1), data[0]);
    check(strcmp(whole, cut) == 0);
    /* It is JSON, and so are its calls' arguments. */
    bt_arena *a = bt_arena_new();
    const bt_json_node *message = NULL;
    check(a != NULL && bt_json_parse(a, whole, strlen(whole), 0, &message, NULL) == BT_OK);
    const bt_json_node *calls = bt_json_get(message, "tool_calls");
    for (const bt_json_node *c = calls == NULL ? NULL : calls->child; c != NULL; c = c->next) {
        const bt_json_node *arguments = bt_json_get(bt_json_get(c, "function"), "arguments"), *object = NULL;
        check(bt_json_parse(a, arguments->text, arguments->size, 0, &object, NULL) == BT_OK);
        check(object->kind == BT_JSON_OBJECT);
    }
    bt_arena_free(a);
    bt_free(whole);
    bt_free(cut);
    return 0;
}
