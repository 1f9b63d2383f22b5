/* The grammars of answers, one table a family. A name of --reasoning-effort that a family lacks goes to the nearest. */
#include <string.h>

#include "text/k2_render.h"
#include "text/k3_render.h"
#include "text/kimi_linear_render.h"
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

/* ---- Kimi K3 ----------------------------------------------------------------------------------------------------- */

/* Marks; k3_output.c makes tags of them. */
static const bt_tag k3_tags[] = {
    {"<|open|>", BT_TAG_MARK_OPEN},  {"<|close|>", BT_TAG_MARK_CLOSE},  {"<|sep|>", BT_TAG_MARK_END},
    {"<|end_of_msg|>", BT_TAG_STOP}, {"<|media_begin|>", BT_TAG_OTHER}, {"<|media_content|>", BT_TAG_OTHER},
    {"<|media_end|>", BT_TAG_OTHER}, {"<|media_pad|>", BT_TAG_OTHER},
};

static const bt_tag k3_sections[] = {
    {"<|open|>think<|sep|>", BT_TAG_THINK_OPEN},
    {"<|close|>think<|sep|>", BT_TAG_THINK_CLOSE},
    {"<|open|>response<|sep|>", BT_TAG_THINK_CLOSE},
};

#define K3_EFFORT(asked, used)                                                                                         \
    {                                                                                                                  \
        asked, used, "{\"thinking\": true, \"thinking_effort\": \"" used "\"}"                                         \
    }
static const bt_effort k3_efforts[] = {
    {"none", "none", "{\"thinking\": false}"},
    K3_EFFORT("minimal", "low"),
    K3_EFFORT("low", "low"),
    K3_EFFORT("medium", "high"),
    K3_EFFORT("high", "high"),
    K3_EFFORT("xhigh", "max"),
    K3_EFFORT("max", "max"),
};

/* ---- Kimi Linear ------------------------------------------------------------------------------------------------- */

static const bt_tag kimi_linear_tags[] = {
    {"<|tool_calls_section_begin|>", BT_TAG_CALLS_OPEN},
    {"<|tool_calls_section_end|>", BT_TAG_CALLS_CLOSE},
    {"<|tool_call_begin|>", BT_TAG_CALL_OPEN},
    {"<|tool_call_argument_begin|>", BT_TAG_OBJECT_OPEN},
    {"<|tool_call_end|>", BT_TAG_CALL_CLOSE},
    {"<|im_end|>", BT_TAG_STOP},
    {"<|im_system|>", BT_TAG_OTHER},
    {"<|im_user|>", BT_TAG_OTHER},
    {"<|im_assistant|>", BT_TAG_OTHER},
    {"<|im_middle|>", BT_TAG_OTHER},
};

/* It does not reason, however hard it is asked to. */
#define NO_EFFORT(asked)                                                                                               \
    {                                                                                                                  \
        asked, "none", "{}"                                                                                            \
    }
static const bt_effort kimi_linear_efforts[] = {
    NO_EFFORT("none"), NO_EFFORT("minimal"), NO_EFFORT("low"), NO_EFFORT("medium"),
    NO_EFFORT("high"), NO_EFFORT("xhigh"),   NO_EFFORT("max"),
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
    {.family = "kimi_k3",
     .architecture = "KimiK3ForConditionalGeneration",
     .tags = k3_tags,
     .n_tags = COUNT(k3_tags),
     .sections = k3_sections,
     .n_sections = COUNT(k3_sections),
     .text_end = "[EOS]",
     .machine = &bt_k3_machine,
     .efforts = k3_efforts,
     .n_efforts = COUNT(k3_efforts),
     .has_reasoning = true,
     .takes_text = true,
     .drops_text = true,
     .native = bt_k3_render},
    {.family = "kimi_linear",
     .architecture = "KimiLinearForCausalLM",
     .tags = kimi_linear_tags,
     .n_tags = COUNT(kimi_linear_tags),
     .text_end = "[EOS]",
     .efforts = kimi_linear_efforts,
     .n_efforts = COUNT(kimi_linear_efforts),
     .takes_text = true,
     .drops_text = true,
     .numbers_calls = true,
     .wants_tokens = true,
     .native = bt_kimi_linear_render},
    {.efforts = plain_efforts, .n_efforts = COUNT(plain_efforts)},
};

const bt_grammar *bt_grammar_of(const char *family)
{
    const bt_grammar *g = grammars;
    while (g->family != NULL && (family == NULL || strcmp(g->family, family) != 0)) g++;
    return g;
}

const char *bt_grammar_family(const char *architecture)
{
    for (size_t i = 0; i < COUNT(grammars); i++) {
        const char *known = grammars[i].architecture;
        if (known != NULL && strcmp(known, architecture) == 0) return grammars[i].family;
    }
    return NULL;
}
