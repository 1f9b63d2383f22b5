/*
 * Answers of Kimi K3 and Kimi Linear: every shape that models are known to produce, whole, cut and truncated at every
 * byte; random splices; what is told while it comes; growth.
 */
#include "reply_unit.h"

#include "base/arena.h"

#define K3     "kimi_k3"
#define LINEAR "kimi_linear"

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": "
    "{\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"}, \"m\": {\"type\": [\"integer\", \"string\"]}}}}}]";

static bt_reply_options options_of(bool is_reasoning)
{
    return (bt_reply_options){.tools = tools, .tools_size = sizeof tools - 1, .is_reasoning = is_reasoning};
}

/* White space at the start is settled only by what follows, or by the end. */
static bool is_prefix(const bt_text *a, const bt_text *b)
{
    if (strspn(a->data, " \n") == a->size) return true;
    return a->size <= b->size && memcmp(a->data, b->data, a->size) == 0;
}

/* As given; in two pieces cut at every byte, and byte by byte; truncated at every byte it holds no tag and says nothing
 * that the whole does not. */
static void expect_shape(const char *family, const unit_shape *s, const bt_reply_options *o)
{
    size_t size = strlen(s->output), all[4096];
    assert_true(size < 4096);
    unit_reply u = unit_read_reply_of(family, o, s->output, size, NULL, 0, s->is_cut);
    unit_expect_shape(&u, s);
    for (size_t cut = 0; cut < size; cut++) {
        unit_reply v = unit_read_reply_of(family, o, s->output, size, &cut, 1, s->is_cut);
        unit_expect_same(&v, &u);
        unit_reply_free(&v);
        all[cut] = cut;
    }
    unit_reply slow = unit_read_reply_of(family, o, s->output, size, all, size, s->is_cut);
    unit_expect_same(&slow, &u);
    unit_reply_free(&slow);
    for (size_t n = 0; n < size; n++) {
        unit_reply v = unit_read_reply_of(family, o, s->output, n, NULL, 0, true);
        if (unit_holds_tag_of(family, v.content.data, v.content.size) || !is_prefix(&v.content, &u.content) ||
            !is_prefix(&v.reasoning, &u.reasoning) || !is_prefix(&v.calls, &u.calls))
            fail_msg("\"%.*s\": reasoning \"%s\", content \"%s\", calls \"%s\"", (int)n, s->output, v.reasoning.data,
                     v.content.data, v.calls.data);
        assert_string_equal(v.finish, "length");
        unit_reply_free(&v);
    }
    unit_reply_free(&u);
}

static void expect_shapes(const char *family, bool is_reasoning, bool calls_off, const unit_shape *shapes, size_t n)
{
    bt_reply_options o = options_of(is_reasoning);
    o.calls_off = calls_off;
    for (size_t i = 0; i < n; i++) expect_shape(family, &shapes[i], &o);
}

#define EXPECT(family, is_reasoning, ...)                                                                              \
    do {                                                                                                               \
        static const unit_shape shapes[] = {__VA_ARGS__};                                                              \
        expect_shapes(family, is_reasoning, false, shapes, sizeof shapes / sizeof shapes[0]);                          \
    } while (0)

/* ---- Kimi K3 ----------------------------------------------------------------------------------------------------- */

#define O(tag)       "<|open|>" tag "<|sep|>"
#define C(tag)       "<|close|>" tag "<|sep|>"
#define DONE         C("message") "<|end_of_msg|>"
#define SAY(text)    O("response") text C("response")
#define CALL(n, in)  O("call tool=\"" n "\" index=\"1\"") in C("call")
#define ARG(k, t, v) O("argument key=\"" k "\" type=\"" t "\"") v C("argument")
#define BLOCK(in)    O("json type=\"object\"") in C("json")
#define TOOLS(in)    O("tools") in C("tools")

static void sections(void **state)
{
    (void)state;
    EXPECT(K3, true, {"", false, "", "", "", "length", 0}, {" \n ", true, " \n ", "", "", "length", 0},
           {"why", false, "why", "", "", "length", 0},
           {"why" C("think") SAY("so") DONE, false, "why", "so", "", "stop", 0},
           {"\nwhy\n" C("think") SAY("\nso \n") DONE, false, "\nwhy\n", "\nso \n", "", "stop", 0},
           {C("think") SAY("so") C("message"), false, "", "so", "", "stop", 0},
           {"why" C("think") "\n" SAY("so") "\n " DONE "\n", false, "why", "so", "", "stop", 0},
           /* the opener of the prompt said again, more than once too */
           {O("think") "why" C("think") SAY("so") DONE, false, "why", "so", "", "stop", 0},
           {"\n" O("think") " why" C("think") SAY("so") DONE, false, " why", "so", "", "stop", 0},
           {O("think") O("think") "why" C("think") SAY("so"), false, "why", "so", "", "stop", 0},
           {O("message role=\"assistant\"") O("think") "why" C("think") SAY("so"), false, "why", "so", "", "stop", 0},
           /* no closer before what comes next */
           {"why" SAY("so") DONE, false, "why", "so", "", "stop", 0},
           {O("think") "why" SAY("so") DONE, false, "why", "so", "", "stop", 0},
           {SAY("so") DONE, false, "", "so", "", "stop", 0}, {" " SAY("so") DONE, false, " ", "so", "", "stop", 0},
           {"why" C("think") O("response") "so" DONE, false, "why", "so", "", "stop", 0},
           {"why" C("think") O("response") "so", false, "why", "so", "", "stop", 0},
           {"why" C("think") O("response") "so<|end_of_msg|>", false, "why", "so", "", "stop", 0},
           {"why" DONE, false, "why", "", "", "length", 0}, {"why<|end_of_msg|>", false, "why", "", "", "length", 0},
           /* no section at all */
           {"why" C("think") "so", false, "why", "so", "", "stop", 0},
           {"why" C("think") SAY("so") " more" DONE, false, "why", "somore", "", "stop", 0},
           /* thought again, said again */
           {"a" C("think") O("think") "b" C("think") SAY("c") SAY("d") DONE, false, "ab", "cd", "", "stop", 0},
           /* what follows the message is nobody's */
           {"why" C("think") SAY("so") DONE O("message role=\"user\"") "I ask" DONE, false, "why", "so", "", "stop", 0},
           {"why" C("think") O("response") "so" O("message role=\"user\"") "I ask", false, "why", "so", "", "stop", 0});
    EXPECT(K3, false, {"", false, "", "", "", "stop", 0}, {"so" C("response") DONE, false, "", "so", "", "stop", 0},
           {"so", false, "", "so", "", "stop", 0}, {"so", true, "", "so", "", "length", 0},
           {O("response") "so" C("response") DONE, false, "", "so", "", "stop", 0},
           {"\n" O("response") "so" C("response") DONE, false, "", "so", "", "stop", 0},
           {" so " C("response"), false, "", " so ", "", "stop", 0},
           /* reasoning where none was asked for is told from the answer only at the start */
           {O("think") "why" C("think") SAY("so") DONE, false, "why", "so", "", "stop", 0},
           {"so" O("think") "why" C("think") "!" DONE, false, "", "sowhy!", "", "stop", 0},
           {"so" C("message") "more", false, "", "so", "", "stop", 0});
}

/* Marks that are no tag's, tags that mean nothing, parts of them. */
static void marks(void **state)
{
    (void)state;
    EXPECT(K3, false, {"a<|sep|>b", false, "", "ab", "", "stop", 0},
           {"the <|open|> mark, and <|close|>", false, "", "the  mark, and ", "", "stop", 0},
           {"a<|open|>b<|sep|>c", false, "", "ac", "", "stop", 0},
           {"a<|open|>b c<|sep|>d", false, "", "ab cd", "", "stop", 0},
           {"a<|open|>think b=\"c<|sep|>d", false, "", "athink b=\"cd", "", "stop", 0},
           {"a<|open|>x b=\"c\" d=\"\"<|sep|>e", false, "", "ae", "", "stop", 0},
           {"a<|open|>x b=\"c\" <|sep|>e", false, "", "ax b=\"c\" e", "", "stop", 0},
           {"a<|open|><|sep|>b", false, "", "ab", "", "stop", 0},
           {"a<|close|>response b=\"c\"<|sep|>d", false, "", "aresponse b=\"c\"d", "", "stop", 0},
           {"a" C("think") "b" C("tools") "c" O("call tool=\"f\"") "d" ARG("s", "string", "v"), false, "", "abcdv", "",
            "stop", 0},
           {"a<|media_pad|>b<|media_begin|>", false, "", "ab", "", "stop", 0},
           /* an end that is not said */
           {"so<|close|>response<|close|>message<|sep|><|end_of_msg|>", false, "", "so", "", "stop", 0},
           {"so<|close|>response<|end_of_msg|>", false, "", "so", "", "stop", 0},
           /* what a dropped mark leaves behind makes no new one */
           {"a<|op<|sep|>en|>b", false, "", "a<|open|b", "", "stop", 0},
           {"a<|s<|sep|>e<|open|>p|>b", false, "", "a<|sep|b", "", "stop", 0},
           /* an end in the middle of one */
           {"if a <", false, "", "if a <", "", "stop", 0}, {"if a <", true, "", "if a ", "", "length", 0},
           {"so<|close", false, "", "so", "", "stop", 0}, {"so<|close|>respon", true, "", "so", "", "length", 0},
           {"so<|open|>call tool=\"x", false, "", "so", "", "stop", 0}, {"a<b<|c", false, "", "a<b", "", "stop", 0},
           {"a<b<|x", false, "", "a<b<|x", "", "stop", 0}, {"a\xe2\x82", true, "", "a\xe2\x82", "", "length", 0});
    EXPECT(K3, true, /* a model may reason about marks; sections end it all the same */
           {"use <|sep|> and " C("call") " or <|open|>.", false, "use <|sep|> and " C("call") " or <|open|>.", "", "",
            "length", 0},
           {"why" O("think") "!" C("think") SAY("so"), false, "why" O("think") "!", "so", "", "stop", 0},
           {"why<|close|>think<|open|>response<|sep|>so", false, "why", "so", "", "stop", 0},
           {"<|end_of_msg|>why", false, "why", "", "", "length", 0},
           {"why<|close|>thi", true, "why", "", "", "length", 0},
           {"why<|close|>thin" SAY("so"), false, "why<|close|>thin", "so", "", "stop", 0});
}

static void calls(void **state)
{
    (void)state;
    EXPECT(
        K3, true, {"why" C("think") SAY("so") TOOLS(CALL("f", "")) DONE, false, "why", "so", "f {}\n", "tool_calls", 0},
        {"why" C("think") SAY("") TOOLS(CALL("f", ARG("s", "string", "v"))) DONE, false, "why", "",
         "f {\"s\": \"v\"}\n", "tool_calls", 0},
        {"why" C("think") TOOLS(CALL("f", ARG("s", "string", "v") ARG("i", "number", "3"))) DONE, false, "why", "",
         "f {\"s\": \"v\", \"i\": 3}\n", "tool_calls", 0},
        /* straight from reasoning */
        {"why" TOOLS(CALL("f", "")) DONE, false, "why", "", "f {}\n", "tool_calls", 0},
        {"why" C("think") O("response") "so" TOOLS(CALL("f", "")) DONE, false, "why", "so", "f {}\n", "tool_calls", 0},
        /* nothing closed */
        {"why" O("tools") CALL("f", ""), false, "why", "", "f {}\n", "tool_calls", 0},
        {"why" O("tools") CALL("f", "") C("message"), false, "why", "", "f {}\n", "tool_calls", 0},
        {"why" O("tools") CALL("f", "") SAY("so"), false, "why", "so", "f {}\n", "tool_calls", 0},
        {"why" O("tools") CALL("f", "") O("think") "!" C("think") SAY("so"), false, "why!", "so", "f {}\n",
         "tool_calls", 0},
        /* several, with room between them */
        {C("think") TOOLS("\n" CALL("f", "\n" ARG("s", "string", "v") "\n") "\n" CALL("g", "") "\n"), false, "", "",
         "f {\"s\": \"v\"}\ng {}\n", "tool_calls", 0},
        {TOOLS(CALL("f", "")) TOOLS(CALL("g", "")), false, "", "", "f {}\ng {}\n", "tool_calls", 0},
        {TOOLS("hm" CALL("f", "") "!"), false, "", "hm!", "f {}\n", "tool_calls", 0},
        {TOOLS(""), false, "", "", "", "stop", 0}, {TOOLS(CALL("f", "")) DONE, true, "", "", "f {}\n", "length", 0},
        /* names and keys are unescaped, quotes first */
        {TOOLS(CALL("f&quot;&amp;quot;&amp;&", ARG("&quot;k&amp;amp;", "string", "&quot;&amp;"))), false, "", "",
         "f\"&quot;&& {\"\\\"k&amp;\": \"&quot;&amp;\"}\n", "tool_calls", 0},
        {TOOLS(CALL("my tool(x)", ARG("a b/", "string", ""))), false, "", "", "my tool(x) {\"a b/\": \"\"}\n",
         "tool_calls", 0},
        /* attributes in another order, and none but the name */
        {TOOLS(O("call index=\"1\" tool=\"f\"") O("argument type=\"number\" key=\"i\"") "1" C("argument") C("call")),
         false, "", "", "f {\"i\": 1}\n", "tool_calls", 0},
        {TOOLS(O("call tool=\"f\"") C("call")), false, "", "", "f {}\n", "tool_calls", 0});
}

static void values(void **state)
{
    (void)state;
    EXPECT(K3, true, /* the type that is named decides */
           {TOOLS(CALL("f", ARG("s", "string", " 12\n"))), false, "", "", "f {\"s\": \" 12\\n\"}\n", "tool_calls", 0},
           {TOOLS(CALL("f", ARG("i", "string", "12"))), false, "", "", "f {\"i\": \"12\"}\n", "tool_calls", 0},
           {TOOLS(CALL("f", ARG("s", "number", " 12\n"))), false, "", "", "f {\"s\": 12}\n", "tool_calls", 0},
           {TOOLS(CALL("g", ARG("a", "boolean", "true") ARG("b", "null", "null") ARG("c", "object", "{\"k\": [1, 2]}")
                                ARG("d", "array", "[\"x\"]") ARG("e", "number", "-1.5e3"))),
            false, "", "", "g {\"a\": true, \"b\": null, \"c\": {\"k\": [1, 2]}, \"d\": [\"x\"], \"e\": -1.5e3}\n",
            "tool_calls", 0},
           /* and where the text is no JSON, it is text */
           {TOOLS(CALL("g", ARG("a", "number", " a few ") ARG("b", "object", "{'k': 1}") ARG("c", "null", ""))), false,
            "", "", "g {\"a\": \" a few \", \"b\": \"{'k': 1}\", \"c\": \"\"}\n", "tool_calls", 0},
           {TOOLS(CALL("g", ARG("a", "object", "{\"k\": 1, \"k\": 2}"))), false, "", "",
            "g {\"a\": \"{\\\"k\\\": 1, \\\"k\\\": 2}\"}\n", "tool_calls", 0},
           {TOOLS(CALL("g", ARG("a", "integer", "3"))), false, "", "", "g {\"a\": 3}\n", "tool_calls", 0},
           /* no type: the tool's schema, else what it looks like */
           {TOOLS(CALL("f", O("argument key=\"s\"") "12" C("argument") O("argument key=\"i\"") "12" C("argument")
                                O("argument key=\"x\" type=\"\"") "{}" C("argument"))),
            false, "", "", "f {\"s\": \"12\", \"i\": 12, \"x\": \"{}\"}\n", "tool_calls", 0},
           /* bodies are not escaped: only closers of what they lie in count */
           {TOOLS(CALL("f", ARG("s", "string",
                                "a " O("think") " b " C("response") " <|sep|> <|end_of_msg|> <|open|>"
                                                                    " <|close|>argumen "))),
            false, "", "",
            "f {\"s\": \"a <|open|>think<|sep|> b <|close|>response<|sep|> <|sep|> <|end_of_msg|> <|open|> "
            "<|close|>argumen \"}\n",
            "tool_calls", 0},
           {TOOLS(CALL("f", ARG("s", "string", O("tools") O("call tool='g'") O("call tool=\"g\"") O("message")))),
            false, "", "",
            "f {\"s\": \"<|open|>tools<|sep|><|open|>call tool='g'<|sep|><|open|>call tool=\\\"g\\\"<|sep|>"
            "<|open|>message<|sep|>\"}\n",
            "tool_calls", 0},
           {TOOLS(CALL("f", ARG("s", "string", "a<\"\\\xf0\x9f\x98\x80\xe2\x82"))), false, "", "",
            "f {\"s\": \"a<\\\"\\\\\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\"}\n", "tool_calls", 0});
}

static void blocks(void **state)
{
    (void)state;
    EXPECT(K3, true,
           {TOOLS(CALL("f", BLOCK("{\"s\": \"v<|sep|>\", \"i\":[1]}"))), false, "", "",
            "f {\"s\": \"v<|sep|>\", \"i\":[1]}\n", "tool_calls", 0},
           {TOOLS(CALL("f", "\n" BLOCK(" \n{}\n") "\n")), false, "", "", "f {}\n", "tool_calls", 0},
           {TOOLS(CALL("f", BLOCK(""))), false, "", "", "f {}\n", "tool_calls", 0},
           {TOOLS(CALL("f", O("json") "{\"a\": 1}" C("json"))), false, "", "", "f {\"a\": 1}\n", "tool_calls", 0},
           /* only as the whole body */
           {TOOLS(CALL("f", BLOCK("{}") ARG("s", "string", "v"))) "!", false, "", "v!", "", "stop", 1},
           {TOOLS(CALL("f", ARG("s", "string", "v") BLOCK("{}"))) "!", false, "", "{}!", "", "stop", 1},
           {TOOLS(CALL("f", BLOCK("{}") BLOCK("{}"))), false, "", "{}", "", "stop", 1},
           {TOOLS(CALL("f", BLOCK("{}") "x")), false, "", "x", "", "stop", 1},
           /* and only an object is one */
           {TOOLS(CALL("f", BLOCK("[1]")) CALL("g", "")), false, "", "", "g {}\n", "tool_calls", 1},
           {TOOLS(CALL("f", BLOCK("do it")) CALL("g", "")), false, "", "", "g {}\n", "tool_calls", 1},
           {TOOLS(CALL("f", BLOCK("{\"a\": 1")) CALL("g", "")), false, "", "", "g {}\n", "tool_calls", 1},
           {TOOLS(CALL("f", BLOCK("{\"a\": 1, \"a\": 2}")) CALL("g", "")), false, "", "", "g {}\n", "tool_calls", 1},
           {TOOLS(CALL("f", BLOCK("{} {}")) CALL("g", "")), false, "", "", "g {}\n", "tool_calls", 1});
}

static void broken_calls(void **state)
{
    (void)state;
    EXPECT(
        K3, true, /* cut off: dropped, never half reported */
        {"why" O("tools") O("call tool=\"f\" index=\"1\""), true, "why", "", "", "length", 1},
        {"why" O("tools") O("call tool=\"f\" index=\"1\""), false, "why", "", "", "length", 1},
        {"why" O("tools") "<|open|>call tool=\"f\" index=\"1\"", true, "why", "", "", "length", 0},
        {O("tools") O("call tool=\"f\"") O("argument key=\"s\" type=\"string\"") "v", true, "", "", "", "length", 1},
        {O("tools") O("call tool=\"f\"") ARG("s", "string", "v"), true, "", "", "", "length", 1},
        {O("tools") CALL("f", "") O("call tool=\"g\""), true, "", "", "f {}\n", "length", 1},
        /* not closed before what comes next */
        {TOOLS(O("call tool=\"f\"") ARG("s", "string", "v") CALL("g", "")), false, "", "", "g {}\n", "tool_calls", 1},
        {TOOLS(O("call tool=\"f\"") ARG("s", "string", "v")) "!", false, "", "!", "", "stop", 1},
        {TOOLS(O("call tool=\"f\"") O("argument key=\"s\" type=\"string\"") "v") "!", false, "", "!", "", "stop", 1},
        {TOOLS(O("call tool=\"f\"") O("argument key=\"s\" type=\"string\"") "v" C("call")) "!", false, "", "!", "",
         "stop", 1},
        {O("tools") O("call tool=\"f\"") DONE, false, "", "", "", "stop", 1},
        {O("tools") O("call tool=\"f\"") SAY("so") DONE, false, "", "so", "", "stop", 1},
        {O("tools") O("call tool=\"f\"") BLOCK("{}") SAY("so") DONE, false, "", "so", "", "stop", 1},
        {O("tools") O("call tool=\"f\"") O("argument key=\"s\" type=\"string\"") "v" DONE "x", false, "", "", "",
         "stop", 1},
        {O("tools") O("call tool=\"f\"") O("json") "{" DONE "x", false, "", "", "", "stop", 1},
        /* a key twice; a key or a name that is none */
        {TOOLS(CALL("f", ARG("s", "string", "v") ARG("s", "string", "w")) CALL("g", "")), false, "", "", "g {}\n",
         "tool_calls", 1},
        {TOOLS(CALL("f", ARG("a&amp;b", "string", "v") ARG("a&b", "string", "w"))), false, "", "", "", "stop", 1},
        {TOOLS(CALL("f", O("argument type=\"string\"") "v" C("argument"))) "!", false, "", "!", "", "stop", 1},
        {TOOLS(CALL("f", ARG("", "string", "v"))) "!", false, "", "!", "", "stop", 1},
        {TOOLS(O("call index=\"1\"") ARG("s", "string", "v") C("call")) "!", false, "", "!", "", "stop", 0},
        {TOOLS(CALL("", ARG("s", "string", "v")) CALL("g", "")), false, "", "", "g {}\n", "tool_calls", 0},
        {O("tools") O("call") "x", false, "", "", "", "length", 0},
        /* text and marks where arguments should stand */
        {TOOLS(CALL("f", "junk")) "!", false, "", "junk!", "", "stop", 1},
        {TOOLS(CALL("f", ARG("s", "string", "v") "<|sep|>")) "!", false, "", "!", "", "stop", 1},
        {TOOLS(CALL("f", C("argument"))) "!", false, "", "!", "", "stop", 1},
        {TOOLS("<|open|>call tool=f<|sep|>") "!", false, "", "call tool=f!", "", "stop", 0});
}

/* tool_choice none: tags are dropped, what is between them is text. Without any tools calls are calls. */
static void without_calls(void **state)
{
    (void)state;
    static const unit_shape off[] = {
        {"why" TOOLS(CALL("f", ARG("s", "string", "v"))) DONE, false, "why", "v", "", "stop", 0},
        {"why" C("think") SAY("so") TOOLS(CALL("f", "")) DONE, false, "why", "so", "", "stop", 0},
    };
    static const unit_shape untold = {
        "why" TOOLS(CALL("f", ARG("s", "number", "1"))) DONE, false, "why", "", "f {\"s\": 1}\n", "tool_calls", 0};
    const bt_reply_options o = {.is_reasoning = true};
    expect_shapes(K3, true, true, off, 2);
    expect_shape(K3, &untold, &o);
}

/* ---- Kimi Linear ------------------------------------------------------------------------------------------------- */

#define SECTION(in)     "<|tool_calls_section_begin|>" in "<|tool_calls_section_end|>"
#define NUMBERED(id, a) "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" a "<|tool_call_end|>"

static void linear(void **state)
{
    (void)state;
    EXPECT(LINEAR, false, {"", false, "", "", "", "stop", 0}, {"so", false, "", "so", "", "stop", 0},
           {"so<|im_end|>", false, "", "so", "", "stop", 0},
           {"so" SECTION(NUMBERED("functions.f:0", "{\"s\": \"v\"}")) "<|im_end|>", false, "", "so",
            "f {\"s\": \"v\"}\n", "tool_calls", 0},
           {SECTION("\n" NUMBERED(" functions.f:0 ", " {\"a\":\n[1, {}]} ") "\n" NUMBERED("functions.g:12", "")), false,
            "", "", "f {\"a\":\n[1, {}]}\ng {}\n", "tool_calls", 0},
           /* either end of the id left out */
           {SECTION(NUMBERED("f:0", "{}") NUMBERED("functions.a.b", "{}") NUMBERED("a:b", "{}")), false, "", "",
            "f {}\na.b {}\na:b {}\n", "tool_calls", 0},
           {SECTION("<|tool_call_begin|>functions.f:0<|tool_call_end|>"), false, "", "", "f {}\n", "tool_calls", 0},
           {SECTION(NUMBERED("functions.:0", "{}")), false, "", "", "functions. {}\n", "tool_calls", 0},
           /* cut off or broken */
           {"<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"s", true, "",
            "", "", "length", 1},
           {"<|tool_calls_section_begin|><|tool_call_begin|>functions.f", true, "", "", "", "length", 0},
           {SECTION(NUMBERED("functions.f:0", "{\"s\": tru}") NUMBERED("functions.g:1", "{}")), false, "", "", "g {}\n",
            "tool_calls", 1},
           {SECTION(NUMBERED("functions.f:0", "{\"s\": 1, \"s\": 2}")), false, "", "", "", "stop", 1},
           {SECTION(NUMBERED("functions.f:0", "{\"s\": 1")), false, "", "", "", "stop", 1},
           {SECTION(NUMBERED("functions.f:0", "[1]")), false, "", "", "", "stop", 1},
           {SECTION(NUMBERED("functions.f:0", "{} x")), false, "", "", "", "stop", 1},
           {SECTION(NUMBERED("no name", "{}")), false, "", "no name{}", "", "stop", 0},
           {SECTION("<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{" NUMBERED("functions.g:1", "{}")),
            false, "", "", "g {}\n", "tool_calls", 1},
           /* tags where none belongs */
           {"a<|im_middle|>b<|tool_call_end|>c" NUMBERED("d", "e"), false, "", "abcde", "", "stop", 0},
           {SECTION(NUMBERED("functions.f:0", "{\"s\": \"<|im_middle|>\"}")), false, "", "",
            "f {\"s\": \"<|im_middle|>\"}\n", "tool_calls", 0});
}

/* ---- streaming --------------------------------------------------------------------------------------------------- */

static void told_at_once(void **state)
{
    (void)state;
    static const char *const k3[] = {"why",
                                     " not<|close|>",
                                     "think<|sep|>",
                                     "<|open|>response<|sep|>so <|b",
                                     "e<|open|>to be ",
                                     "<|open|>tools<|sep|><|open|>call tool=\"f\" in",
                                     "dex=\"1\"<|sep|>",
                                     "<|open|>argument key=\"s\" type=\"string\"<|sep|>a\n",
                                     "\"b<|close|>argu",
                                     "ment<|sep|><|open|>argument key=\"i\" type=\"number\"<|sep|>",
                                     "1",
                                     "2<|close|>argument<|sep|>",
                                     "<|close|>call<|sep|><|open|>call tool=\"g\"<|sep|><|open|>json<|sep|>{\"a",
                                     "\": [1",
                                     "]}<|close|>json<|sep|>"};
    static const char *const of_k3[] = {"why",    " not",           "",      "so <|b",      "eto be ", "",
                                        "f",      "{\"s\": \"a\\n", "\\\"b", "\", \"i\": ", "",        "12",
                                        "}g{\"a", "\": [1",         "]}"};
    static const char *const kimi[] = {"so<|tool_calls_section_begin|><|tool_call_begin|>functions.f",
                                       ":0<|tool_call_argument_begin|>", " {\"s\": \"a", "b\"", "}<|tool_call_end|>"};
    static const char *const of_kimi[] = {"so", "f", "{\"s\": \"a", "b\"", "}"};
    const bt_reply_options reasoning = options_of(true), plain = options_of(false);
    unit_expect_told(K3, &reasoning, k3, of_k3, sizeof k3 / sizeof k3[0]);
    unit_expect_told(LINEAR, &plain, kimi, of_kimi, sizeof kimi / sizeof kimi[0]);
}

/* ---- splices ----------------------------------------------------------------------------------------------------- */

static const char *const k3_samples[] = {
    "why" C("think") SAY("so") DONE,
    "why" C("think") SAY("I look.") TOOLS(CALL("f", ARG("s", "string", "a \"b\"") ARG("i", "number", "3"))) DONE,
    O("think") "why " TOOLS(CALL("f", BLOCK("{\"s\": [1, \"x\"]}")) CALL("g", "") CALL("f", ARG("m", "null", "null"))),
    "why" O("response") "sö \xe2\x82\xac" C("response") O("tools") O("call tool=\"f&amp;\" index=\"1\"") "\n" C("call"),
    CALL("f", ARG("x", "object", "{\"k\": {}}")) CALL("f", ARG("s", "string", "<b>") ARG("s", "string", "")),
};
static const char *const k3_parts[] = {"<|open|>",
                                       "<|close|>",
                                       "<|sep|>",
                                       "<|end_of_msg|>",
                                       "<|media_pad|>",
                                       O("think"),
                                       C("think"),
                                       O("response"),
                                       C("response"),
                                       O("tools"),
                                       C("tools"),
                                       O("call tool=\"f\" index=\"2\""),
                                       C("call"),
                                       C("argument"),
                                       DONE,
                                       O("json"),
                                       C("json"),
                                       O("argument key=\"s\" type=\"string\""),
                                       "{}",
                                       "\xff",
                                       "<",
                                       " "};
static const char *const linear_samples[] = {
    "so<|im_end|>",
    "so " SECTION(NUMBERED("functions.f:0", "{\"s\": \"v\"}")
                      NUMBERED("functions.g:1", "{\"a\": [1, {}]}")) "<|im_end|>",
    SECTION("\n" NUMBERED("f", "") NUMBERED("functions.f:3", "{\"a\": 1, \"a\": 2}")),
    SECTION("<|tool_call_begin|>functions.f:0<|tool_call_end|>") "<|im_user|>user<|im_middle|>",
};
static const char *const linear_parts[] = {"<|tool_calls_section_begin|>",
                                           "<|tool_calls_section_end|>",
                                           "<|tool_call_begin|>",
                                           "<|tool_call_argument_begin|>",
                                           "<|tool_call_end|>",
                                           "<|im_end|>",
                                           "<|im_middle|>",
                                           "functions.f:1",
                                           "{}",
                                           "{\"a\": ",
                                           "\xff",
                                           " "};

typedef struct source {
    const char *family;
    const char *const *samples, *const *parts;
    size_t n_samples, n_parts;
} source;

/* Up to eight pieces of samples and tags, cut anywhere. */
static void make_splice(const source *s, unit_draws *g, bt_text *t)
{
    size_t n = 1 + unit_below(g, 8);
    t->size = 0;
    bt_text_add(t, "", 0);
    for (size_t i = 0; i < n; i++) {
        bool is_part = unit_below(g, 2) == 0;
        const char *text = is_part ? s->parts[unit_below(g, s->n_parts)] : s->samples[unit_below(g, s->n_samples)];
        size_t size = strlen(text), from = unit_below(g, size), to = from + unit_below(g, size - from + 1);
        if (unit_below(g, is_part ? 4 : 2) > 0) from = 0, to = size;
        bt_text_add(t, text + from, to - from);
    }
}

/* The message is JSON, and so are its calls' arguments. */
static void check_message(const char *message)
{
    bt_arena *a = bt_arena_new();
    const bt_json_node *root = NULL, *object = NULL;
    bt_error e;
    assert_int_equal(bt_json_parse(a, message, strlen(message), 0, &root, &e), BT_OK);
    const bt_json_node *list = bt_json_get(root, "tool_calls");
    for (const bt_json_node *c = list == NULL ? NULL : list->child; c != NULL; c = c->next) {
        const bt_json_node *arguments = unit_member(unit_member(c, "function"), "arguments");
        if (bt_json_parse(a, arguments->text, arguments->size, 0, &object, &e) != BT_OK)
            fail_msg("%s: %s", arguments->text, e.message);
        assert_int_equal(object->kind, BT_JSON_OBJECT);
    }
    bt_arena_free(a);
}

static void splice(const source *s, size_t n)
{
    unit_draws g = {.seed = 31};
    bt_text t = {0};
    size_t n_calls = 0, n_incomplete = 0, n_content = 0, n_reasoning = 0;
    for (size_t i = 0; i < n; i++) {
        make_splice(s, &g, &t);
        bt_reply_options o = options_of(unit_below(&g, 2) == 0);
        o.calls_off = unit_below(&g, 16) == 0;
        unit_reply u = unit_read_reply_anyhow(s->family, &o, &t, &g);
        if (u.n_calls > 0) check_message(u.message);
        n_calls += u.n_calls;
        n_incomplete += u.n_incomplete;
        n_content += u.content.size > 0;
        n_reasoning += u.reasoning.size > 0;
        unit_reply_free(&u);
    }
    print_message("%s: %zu splices, %zu calls, %zu incomplete, %zu with content, %zu with reasoning\n", s->family, n,
                  n_calls, n_incomplete, n_content, n_reasoning);
    assert_true(n_calls > n / 20); /* they are not all rubbish */
    assert_true(n_incomplete > n / 20);
    assert_true(n_content > n / 5);
    bt_text_free(&t);
}

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static void splices(void **state)
{
    (void)state;
    const source k3 = {K3, k3_samples, k3_parts, COUNT(k3_samples), COUNT(k3_parts)};
    const source kimi = {LINEAR, linear_samples, linear_parts, COUNT(linear_samples), COUNT(linear_parts)};
    splice(&k3, 100000);
    splice(&kimi, 30000);
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

/* Whatever is repeated, fed byte by byte, the work stays proportional to the output. */
static void growth(void **state)
{
    (void)state;
    static const char *const heads[] = {"",
                                        C("think") O("response"),
                                        O("tools"),
                                        O("tools") O("call tool=\"f\""),
                                        O("tools") O("call tool=\"f\"") O("argument key=\"s\" type=\"string\""),
                                        O("tools") O("call tool=\"f\"") O("argument key=\"s\" type=\"object\""),
                                        O("tools") O("call tool=\"f\"") O("json") "{\"a\": \"",
                                        "<|open|>call tool=\""};
    static const char *const parts[] = {" ",
                                        "<",
                                        "a",
                                        "<|open|>",
                                        "<|open|>a",
                                        "<|open|>a b=\"",
                                        "<|open|>a b=\"c\" ",
                                        "<|close|>respons",
                                        O("call tool=\"f\""),
                                        O("call"),
                                        CALL("f", ""),
                                        ARG("s", "string", "v"),
                                        O("think"),
                                        TOOLS(""),
                                        "<|op<|sep|>en|>",
                                        C("call")};
    const bt_reply_options o = options_of(true);
    double most = 0;
    for (size_t h = 0; h < COUNT(heads); h++) {
        for (size_t p = 0; p < COUNT(parts); p++) {
            /* A mark costs 64, and is looked for again with each byte of its tag. */
            double steps = unit_steps_per_byte(K3, &o, heads[h], parts[p], 100000);
            if (steps >= 401) fail_msg("\"%s\" after \"%s\": %.1f steps a byte", parts[p], heads[h], steps);
            most = steps > most ? steps : most;
        }
    }
    print_message("at most %.1f steps a byte\n", most);
}

static void grammars(void **state)
{
    (void)state;
    static const char *const families[] = {K3, LINEAR};
    for (size_t f = 0; f < 2; f++) {
        const bt_grammar *g = bt_grammar_of(families[f]);
        assert_string_equal(g->family, families[f]);
        unit_check_tags(g);
    }
    assert_string_equal(bt_grammar_family("KimiK3ForConditionalGeneration"), K3);
    assert_string_equal(bt_grammar_family("KimiLinearForCausalLM"), LINEAR);
    assert_null(bt_grammar_family("LlamaForCausalLM"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections),      cmocka_unit_test(marks),  cmocka_unit_test(calls),
        cmocka_unit_test(values),        cmocka_unit_test(blocks), cmocka_unit_test(broken_calls),
        cmocka_unit_test(without_calls), cmocka_unit_test(linear), cmocka_unit_test(told_at_once),
        cmocka_unit_test(splices),       cmocka_unit_test(growth), cmocka_unit_test(grammars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
