/*
 * text/jinja: any bytes as a template, with a context of all kinds of values; where the input holds a line of "===",
 * what follows it is the context instead. Whatever renders is valid UTF-8 whose runs of origin cover it, and a
 * message has a cause. The bounds are small: a hostile template must meet them in no time.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja.h"

static const char values[] =
    "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"n\":5,\"f\":2.5,\"b\":true,\"none_\":null,\"s\":\"Hello, "
    "W\\u00f6rld\\n<x>\","
    "\"l\":[3,1,2],\"d\":{\"a\":1,\"b\":{\"c\":[1,null]}},\"e\":\"\",\"big\":123456789012345678901234567890,"
    "\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
    "\"hi\"}]},"
    "{\"role\":\"assistant\",\"content\":\"<think>a</"
    "think>b\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
    "{\"x\":1.5}}}]},{\"role\":\"tool\",\"content\":\"r\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
    "\"f\","
    "\"description\":\"D\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\"}}}}}],"
    "\"add_generation_prompt\":true}";

static void check(bool truth)
{
    if (!truth) abort();
}

static void check_text(const bt_rendered *r)
{
    size_t covered = 0;
    check(r->text[r->size] == '\0');
    check(bt_utf8_valid_prefix(r->text, r->size) == r->size);
    for (size_t i = 0; i < r->n_runs; i++) {
        check(r->runs[i].size > 0);
        check(i == 0 || r->runs[i].from_template != r->runs[i - 1].from_template);
        covered += r->runs[i].size;
    }
    check(covered == r->size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char divider[] = "\n===\n";
    static const bt_jinja_trust trusted[] = {{"bos_token", NULL}, {"messages[].role", NULL}};
    static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 29};
    const bt_jinja_options options = {.trusted = trusted,
                                      .n_trusted = 2,
                                      .now = &now,
                                      .steps_max = 20000,
                                      .output_bytes_max = 1 << 16,
                                      .memory_bytes_max = 4 << 20,
                                      .depth_max = 150};
    const char *text = size > 0 ? (const char *)data : "";
    const char *split = memmem(text, size, divider, sizeof divider - 1);
    size_t source_size = split == NULL ? size : (size_t)(split - text);
    const char *context = split == NULL ? values : split + sizeof divider - 1;
    size_t context_size = split == NULL ? sizeof values - 1 : size - source_size - (sizeof divider - 1);
    bt_rendered r = {0};
    bt_error e = {.status = BT_OK};
    if (bt_jinja_render_text("t", text, source_size, context, context_size, &options, &r, &e) == BT_OK) {
        check_text(&r);
    } else {
        check(e.message[0] != '\0');
    }
    bt_rendered_free(&r);
    return 0;
}
