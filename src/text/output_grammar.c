/* The grammars of answers, one table a family. A name of --reasoning-effort that a family lacks goes to the nearest. */
#include <string.h>

#include "text/k2_render.h"
#include "text/output.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* ---- K2-Horizon -------------------------------------------------------------------------------------------------- */

/* All three closers count whatever the effort: models mix them up. */
static const bt_tag k2_tags[] = {
    {"<ifm|think>", BT_TAG_THINK_OPEN},
    {"<ifm|think_fast>", BT_TAG_THINK_OPEN},
    {"<ifm|think_faster>", BT_TAG_THINK_OPEN},
    {"</ifm|think>", BT_TAG_THINK_CLOSE},
    {"</ifm|think_fast>", BT_TAG_THINK_CLOSE},
    {"</ifm|think_faster>", BT_TAG_THINK_CLOSE},
    {"<ifm|tool_calls>", BT_TAG_CALLS_OPEN},
    {"</ifm|tool_calls>", BT_TAG_CALLS_CLOSE},
    {"<ifm|tool_call>", BT_TAG_CALL_OPEN},
    {"</ifm|tool_call>", BT_TAG_CALL_CLOSE},
    {"<ifm|arg_key>", BT_TAG_KEY_OPEN},
    {"</ifm|arg_key>", BT_TAG_KEY_CLOSE},
    {"<ifm|arg_type>", BT_TAG_TYPE_OPEN},
    {"</ifm|arg_type>", BT_TAG_TYPE_CLOSE},
    {"<ifm|arg_value>", BT_TAG_VALUE_OPEN},
    {"</ifm|arg_value>", BT_TAG_VALUE_CLOSE},
    {"<|ifm|im_end|>", BT_TAG_STOP},
    {"<|ifm|endoftext|>", BT_TAG_STOP},
    {"<|ifm|im_start|>", BT_TAG_OTHER},
    {"<|ifm|begin_of_text|>", BT_TAG_OTHER},
    {"<ifm|tools>", BT_TAG_OTHER},
    {"</ifm|tools>", BT_TAG_OTHER},
};

#define K2_EFFORT(asked, used)                                                                                         \
    {                                                                                                                  \
        asked, used, "{\"reasoning_effort\": \"" used "\"}"                                                            \
    }
static const bt_effort k2_efforts[] = {
    K2_EFFORT("none", "low"),  K2_EFFORT("minimal", "low"), K2_EFFORT("low", "low"),  K2_EFFORT("medium", "medium"),
    K2_EFFORT("high", "high"), K2_EFFORT("xhigh", "high"),  K2_EFFORT("max", "high"),
};

/* ---- every other family ------------------------------------------------------------------------------------------ */

/* Some templates know reasoning_effort; what they do not know they ignore. */
#define PLAIN_EFFORT(name)                                                                                             \
    {                                                                                                                  \
        name, name, "{\"reasoning_effort\": \"" name "\"}"                                                             \
    }
static const bt_effort plain_efforts[] = {
    PLAIN_EFFORT("none"), PLAIN_EFFORT("minimal"), PLAIN_EFFORT("low"), PLAIN_EFFORT("medium"),
    PLAIN_EFFORT("high"), PLAIN_EFFORT("xhigh"),   PLAIN_EFFORT("max"),
};

static const bt_grammar grammars[] = {
    {.family = "k2_horizon",
     .tags = k2_tags,
     .n_tags = COUNT(k2_tags),
     .efforts = k2_efforts,
     .n_efforts = COUNT(k2_efforts),
     .has_reasoning = true,
     .native = bt_k2_render},
    {.efforts = plain_efforts, .n_efforts = COUNT(plain_efforts)},
};

const bt_grammar *bt_grammar_of(const char *family)
{
    const bt_grammar *g = grammars;
    while (g->family != NULL && (family == NULL || strcmp(g->family, family) != 0)) g++;
    return g;
}
