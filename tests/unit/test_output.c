/*
 * Replies: the stored samples whole, cut and truncated at every byte; random splices; every shape that models are known
 * to produce; types of values; growth.
 */
#include "reply_unit.h"

#include "base/arena.h"

typedef struct sample {
    const char *name, *raw;
    size_t size;
    bt_text tools;
    const bt_json_node *node;
} sample;

#define N_SAMPLES 10

static bt_arena *arena;
static sample samples[N_SAMPLES];

/* The samples give a tool as name and properties. */
static int read_samples(void **state)
{
    (void)state;
    arena = bt_arena_new();
    const bt_json_node *all = unit_read_json(arena, CHAT, "k2_calls.json");
    size_t i = 0;
    assert_int_equal(all->n_children, N_SAMPLES);
    for (const bt_json_node *s = all->child; s != NULL; s = s->next, i++) {
        const bt_json_node *raw = unit_member(s, "raw");
        samples[i] = (sample){.name = unit_member(s, "name")->text, .raw = raw->text, .size = raw->size, .node = s};
        bt_text *t = &samples[i].tools;
        bt_text_puts(t, "[");
        for (const bt_json_node *tool = unit_member(s, "tools")->child; tool != NULL; tool = tool->next) {
            bt_text_puts(t, t->size > 1 ? ", {\"name\": " : "{\"name\": ");
            bt_py_dump(t, unit_member(tool, "name"));
            bt_text_puts(t, ", \"parameters\": {\"type\": \"object\", \"properties\": ");
            bt_py_dump(t, unit_member(tool, "properties"));
            bt_text_puts(t, "}}");
        }
        bt_text_puts(t, "]");
    }
    return 0;
}

static int free_samples(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SAMPLES; i++) bt_text_free(&samples[i].tools);
    bt_arena_free(arena);
    return 0;
}

static bt_reply_options options_of(const sample *s)
{
    return (bt_reply_options){.tools = s->tools.data, .tools_size = s->tools.size, .is_reasoning = true};
}

/* ---- stored samples ---------------------------------------------------------------------------------------------- */

static void expect_sample(const sample *s, const unit_reply *u)
{
    bt_text calls = {0};
    bt_text_puts(&calls, "");
    for (const bt_json_node *call = unit_member(s->node, "calls")->child; call != NULL; call = call->next) {
        bt_text_puts(&calls, call->child->text);
        bt_text_puts(&calls, " ");
        bt_py_dump(&calls, call->child->next);
        bt_text_puts(&calls, "\n");
    }
    assert_string_equal(u->reasoning.data, unit_member(s->node, "reasoning")->text);
    assert_string_equal(u->content.data, unit_member(s->node, "content")->text);
    /* A value that is JSON keeps its own spacing. */
    bt_text got = {0};
    bt_text_puts(&got, "");
    for (const char *line = u->calls.data; *line != '\0';) {
        const char *space = strchr(line, ' '), *end = strchr(line, '\n');
        const bt_json_node *arguments = NULL;
        bt_error e;
        assert_int_equal(bt_json_parse(arena, space + 1, (size_t)(end - space) - 1, 0, &arguments, &e), BT_OK);
        bt_text_add(&got, line, (size_t)(space - line) + 1);
        bt_py_dump(&got, arguments);
        bt_text_puts(&got, "\n");
        line = end + 1;
    }
    assert_string_equal(got.data, calls.data);
    assert_string_equal(u->finish, calls.size > 0 ? "tool_calls" : "stop");
    bt_text_free(&got);
    bt_text_free(&calls);
}

static void samples_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const bt_reply_options o = options_of(&samples[i]);
        unit_reply u = unit_read_reply(&o, samples[i].raw, samples[i].size, NULL, 0, false);
        expect_sample(&samples[i], &u);
        unit_reply_free(&u);
    }
}

static void samples_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const sample *s = &samples[i];
        const bt_reply_options o = options_of(s);
        unit_reply whole = unit_read_reply(&o, s->raw, s->size, NULL, 0, false);
        size_t *all = calloc(s->size + 1, sizeof *all);
        assert_non_null(all);
        for (size_t cut = 0; cut <= s->size; cut++) {
            unit_reply u = unit_read_reply(&o, s->raw, s->size, &cut, 1, false);
            unit_expect_same(&u, &whole);
            unit_reply_free(&u);
            all[cut] = cut;
        }
        unit_reply u = unit_read_reply(&o, s->raw, s->size, all, s->size + 1, false);
        unit_expect_same(&u, &whole);
        unit_reply_free(&u);
        unit_reply_free(&whole);
        free(all);
    }
}

static bool is_prefix(const bt_text *a, const bt_text *b)
{
    return a->size <= b->size && memcmp(a->data, b->data, a->size) == 0;
}

/* Behind a block that reasoning holds, the cut decides what it is; nowhere else. */
static void samples_truncated(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const sample *s = &samples[i];
        const bt_reply_options o = options_of(s);
        unit_reply whole = unit_read_reply(&o, s->raw, s->size, NULL, 0, false);
        bool is_quoted = strcmp(s->name, "markup_inside_reasoning_is_not_a_call") == 0;
        for (size_t size = 0; size <= s->size; size++) {
            unit_reply u = unit_read_reply(&o, s->raw, size, NULL, 0, true);
            assert_false(unit_holds_tag(u.content.data, u.content.size));
            assert_string_equal(u.finish, "length");
            if (!is_quoted) {
                assert_true(is_prefix(&u.reasoning, &whole.reasoning));
                assert_true(is_prefix(&u.content, &whole.content));
                assert_true(is_prefix(&u.calls, &whole.calls));
            }
            unit_reply_free(&u);
        }
        unit_reply_free(&whole);
    }
}

/* ---- splices ----------------------------------------------------------------------------------------------------- */

/* Up to eight pieces of samples and tags, cut anywhere. */
static void make_splice(unit_draws *g, bt_text *t)
{
    const bt_grammar *grammar = bt_grammar_of("k2_horizon");
    size_t n = 1 + unit_below(g, 8);
    t->size = 0;
    bt_text_add(t, "", 0);
    for (size_t i = 0; i < n; i++) {
        bool is_tag = unit_below(g, 3) == 0;
        const sample *s = &samples[unit_below(g, N_SAMPLES)];
        const char *text = is_tag ? grammar->tags[unit_below(g, grammar->n_tags)].text : s->raw;
        size_t size = is_tag ? strlen(text) : s->size, from = unit_below(g, size),
               to = from + unit_below(g, size - from + 1);
        if (is_tag && unit_below(g, 4) > 0) from = 0, to = size;
        bt_text_add(t, text + from, to - from);
    }
}

static void splices(void **state)
{
    (void)state;
    unit_draws g = {.seed = 29};
    bt_text t = {0};
    size_t n_calls = 0, n_incomplete = 0, n_junk = 0;
    for (size_t i = 0; i < 100000; i++) {
        make_splice(&g, &t);
        bt_reply_options o = options_of(&samples[unit_below(&g, N_SAMPLES)]);
        o.is_reasoning = unit_below(&g, 2) == 0;
        o.calls_off = unit_below(&g, 16) == 0;
        unit_reply u = unit_read_reply_anyhow("k2_horizon", &o, &t, &g);
        n_calls += u.n_calls;
        n_incomplete += u.n_incomplete;
        n_junk += u.content.size > 0;
        unit_reply_free(&u);
    }
    assert_true(n_calls > 5000); /* the splices are not all rubbish */
    assert_true(n_incomplete > 5000);
    assert_true(n_junk > 20000);
    bt_text_free(&t);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

#define CALLS(inside) "<ifm|tool_calls>\n" inside "\n</ifm|tool_calls>"
#define CALL(body)    "<ifm|tool_call>" body "</ifm|tool_call>"
#define ARG(k, v)     "<ifm|arg_key>" k "</ifm|arg_key>\n<ifm|arg_value>" v "</ifm|arg_value>\n"
#define TYPED(k, t, v)                                                                                                 \
    "<ifm|arg_key>" k "</ifm|arg_key>\n<ifm|arg_type>" t "</ifm|arg_type>\n<ifm|arg_value>" v "</ifm|arg_value>\n"
#define CLOSER "</ifm|think>"

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
    "\"$defs\": {\"S\": {\"type\": \"string\"}, \"L\": {\"$ref\": \"#/$defs/L\"}}, \"properties\": {"
    "\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"}, \"o\": {\"type\": \"object\"}, "
    "\"m\": {\"type\": [\"integer\", \"string\"]}, \"n\": {\"anyOf\": [{\"type\": \"number\"}, {\"type\": "
    "\"null\"}]}, \"r\": {\"$ref\": \"#/$defs/S\"}, \"l\": {\"$ref\": \"#/$defs/L\"}, \"e\": {\"enum\": "
    "[\"1\", \"2\"]}, \"x\": {}}}}}, {\"name\": \"my tool\", \"parameters\": {}}]";

static void expect_shape(const unit_shape *s, bool is_reasoning, bool calls_off)
{
    const bt_reply_options o = {
        .tools = tools, .tools_size = sizeof tools - 1, .is_reasoning = is_reasoning, .calls_off = calls_off};
    size_t size = strlen(s->output), all[4096];
    assert_true(size < 4096);
    for (size_t i = 0; i < size; i++) all[i] = i;
    unit_reply u = unit_read_reply(&o, s->output, size, NULL, 0, s->is_cut);
    unit_reply slow = unit_read_reply(&o, s->output, size, all, size, s->is_cut);
    unit_expect_same(&slow, &u);
    unit_expect_shape(&u, s);
    unit_reply_free(&u);
    unit_reply_free(&slow);
}

static void expect_shapes(const unit_shape *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++) expect_shape(&shapes[i], true, false);
}

#define EXPECT(...)                                                                                                    \
    do {                                                                                                               \
        static const unit_shape shapes[] = {__VA_ARGS__};                                                              \
        expect_shapes(shapes, sizeof shapes / sizeof shapes[0]);                                                       \
    } while (0)

static void reasoning(void **state)
{
    (void)state;
    EXPECT({"", false, "", "", "", "length", 0}, {"just thinking", false, "just thinking", "", "", "length", 0},
           {"just thinking", true, "just thinking", "", "", "length", 0}, {" \n ", false, " \n ", "", "", "length", 0},
           {"a" CLOSER "b", false, "a", "b", "", "stop", 0}, {"a</ifm|think_fast>b", false, "a", "b", "", "stop", 0},
           {"a</ifm|think_faster>b", false, "a", "b", "", "stop", 0},
           /* newlines stay on both sides */
           {"\na\n" CLOSER "\n\nb\n", false, "\na\n", "\n\nb\n", "", "stop", 0},
           {CLOSER "b", false, "", "b", "", "stop", 0}, {" " CLOSER, false, " ", "", "", "stop", 0},
           /* the prompt's opening tag said again */
           {"<ifm|think>\na" CLOSER "b", false, "\na", "b", "", "stop", 0},
           {"\n<ifm|think_fast>a" CLOSER "b", false, "a", "b", "", "stop", 0},
           {"a<ifm|think>b" CLOSER, false, "a<ifm|think>b", "", "", "stop", 0},
           /* a second closer is dropped */
           {"a" CLOSER "b" CLOSER "c</ifm|think_fast>d", false, "a", "bcd", "", "stop", 0},
           {"a<|ifm|im_end|>", false, "a", "", "", "length", 0},
           {"a" CLOSER "b<|ifm|im_end|>", false, "a", "b", "", "stop", 0},
           {"a" CLOSER "b<|ifm|endoftext|>", false, "a", "b", "", "stop", 0},
           {"a" CLOSER "x <ifm|tools> y </ifm|arg_key>", false, "a", "x  y ", "", "stop", 0});
}

static void ends(void **state)
{
    (void)state;
    EXPECT({"a" CLOSER "if a <", false, "a", "if a <", "", "stop", 0},
           {"a" CLOSER "if a <", true, "a", "if a ", "", "length", 0},
           {"a" CLOSER "if a <=", true, "a", "if a <=", "", "length", 0},
           {"a" CLOSER "b</ifm|thi", false, "a", "b", "", "stop", 0}, {"a</ifm|thin", true, "a", "", "", "length", 0},
           {"a <", false, "a <", "", "", "length", 0}, {"<ifm|th", true, "", "", "", "length", 0},
           {"a" CLOSER "b\xe2\x82", true, "a", "b\xe2\x82", "", "length", 0});
}

static void held_blocks(void **state)
{
    (void)state;
    EXPECT({"r" CALLS(CALL("f")), false, "r", "", "f {}\n", "tool_calls", 0},
           {"r" CALLS(CALL("f")), true, "r", "", "f {}\n", "length", 0},
           {"r" CALLS(CALL("f")) "said", false, "r", "said", "f {}\n", "tool_calls", 0},
           {"r" CALLS(CALL("f")) "s" CLOSER "t", false, "r" CALLS(CALL("f")) "s", "t", "", "stop", 0},
           /* only an end says so: not the text of a stop token */
           {"r" CALLS(CALL("f")) "<|ifm|im_end|>s" CLOSER, false, "r" CALLS(CALL("f")) "s", "", "", "stop", 0},
           {"r<ifm|tool_calls>", true, "r", "", "", "length", 0},
           {"r" CALL("f") CLOSER, false, "r" CALL("f"), "", "", "stop", 0},
           {"r" CALLS("") CALLS("") CLOSER CALLS(CALL("f")), false, "r" CALLS("") CALLS(""), "", "f {}\n", "tool_calls",
            0});
}

static void broken_calls(void **state)
{
    (void)state;
    EXPECT(/* never begun: text, without tags */
           {CLOSER CALLS(CALL("")), false, "", "", "", "stop", 0},
           {CLOSER CALLS(CALL("not a name")), false, "", "not a name", "", "stop", 0},
           {CLOSER CALLS(CALL("my tool")), false, "", "", "my tool {}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL(ARG("k", "v"))), false, "", "kv", "", "stop", 0},
           {CLOSER CALLS(CALL("{\"a\": 1}")), false, "", "{\"a\": 1}", "", "stop", 0},
           {CLOSER CALLS(CALL("{oops")), false, "", "{oops", "", "stop", 0},
           {CLOSER CALLS(CALL("[1]")) "z", false, "", "z", "[1] {}\n", "tool_calls", 0},
           /* begun: what was told stays, the call is none */
           {CLOSER CALLS(CALL("f\n" ARG("s", "v") "junk")) "z", false, "", "junkz", "", "stop", 1},
           {CLOSER CALLS(CALL("f\n<ifm|arg_key>s</ifm|arg_key>junk<ifm|arg_value>v</ifm|arg_value>")), false, "",
            "junkv", "", "stop", 1},
           {CLOSER CALLS(CALL("f\n<ifm|arg_key>s</ifm|arg_key><ifm|arg_value>v")) "z", false, "", "z", "", "stop", 1},
           {CLOSER CALLS(CALL("f\n<ifm|arg_key>s</ifm|arg_key>")), false, "", "", "", "stop", 1},
           {CLOSER CALLS(CALL("f\n<ifm|arg_key>s") CALL("g")), false, "", "", "g {}\n", "tool_calls", 1},
           {CLOSER CALLS(CALL("f\n" ARG("s", "1") ARG("s", "2")) CALL("g")), false, "", "", "g {}\n", "tool_calls", 1},
           {CLOSER CALLS(CALL("f\n" ARG(" ", "1"))), false, "", "", "", "stop", 1},
           /* cut off */
           {CLOSER "<ifm|tool_calls><ifm|tool_call>f", true, "", "", "", "length", 0},
           {CLOSER "<ifm|tool_calls><ifm|tool_call>f<|ifm|im_end|>", false, "", "f", "", "stop", 0},
           {CLOSER "<ifm|tool_calls><ifm|tool_call>f\n<ifm|arg_key>s", true, "", "", "", "length", 1},
           {CLOSER "<ifm|tool_calls><ifm|tool_call>f\n<ifm|arg_key>s", false, "", "", "", "length", 1},
           {CLOSER "<ifm|tool_calls>" CALL("f") "<ifm|tool_call>g\n<ifm|arg_key>", false, "", "", "f {}\n", "length",
            1},
           {CLOSER "<ifm|tool_calls>" CALL("f"), false, "", "", "f {}\n", "tool_calls", 0},
           /* text between calls, and behind them */
           {CLOSER "a" CALLS(" " CALL("f") " then \n" CALL("g") "\n") "b", false, "", "athen \nb", "f {}\ng {}\n",
            "tool_calls", 0},
           {CLOSER CALLS(CALL("f")) "a" CALLS(CALL("g")), false, "", "a", "f {}\ng {}\n", "tool_calls", 0},
           /* what is dropped between two halves of a tag does not make one */
           {CLOSER "<ifm|tool" CLOSER "_calls>x", false, "", "<ifm|tool_callsx", "", "stop", 0},
           {CLOSER "<" CLOSER "ifm|tools>>>x", false, "", "<ifm|toolsx", "", "stop", 0});
}

static void json_bodies(void **state)
{
    (void)state;
    EXPECT(
        {CLOSER CALLS(CALL(" {\"name\": \"f\", \"arguments\": {\"s\": \"a}\\\"\\u20ac\", \"i\": [1, {}]}} ")), false,
         "", "", "f {\"s\": \"a}\\\"\\u20ac\", \"i\": [1, {}]}\n", "tool_calls", 0},
        {CLOSER CALLS(CALL("{\"arguments\": {\"i\": 1}, \"name\": \"f\"}")), false, "", "", "f {\"i\": 1}\n",
         "tool_calls", 0},
        {CLOSER CALLS(CALL("{\"id\": 7, \"name\": \"f\", \"more\": [-1.5e3, null, true]}")), false, "", "", "f {}\n",
         "tool_calls", 0},
        {CLOSER CALLS(CALL("{\"name\":\"f\",\"arguments\":\"{\\\"i\\\": 1}\"}")), false, "", "", "f {\"i\": 1}\n",
         "tool_calls", 0},
        {CLOSER CALLS(CALL("{\"name\":\"f\",\"arguments\":null}")), false, "", "", "f {}\n", "tool_calls", 0},
        {CLOSER CALLS(CALL("{\"name\":\"f\",\"arguments\":\"\"}")), false, "", "", "f {}\n", "tool_calls", 0},
        {CLOSER CALLS(CALL("{\"name\":\"f\",\"arguments\":[1]}")), false, "", "", "", "stop", 1},
        {CLOSER CALLS(CALL("{\"name\":\"f\",\"arguments\":{\"a\":1,\"a\":2}}")), false, "", "", "", "stop", 1},
        {CLOSER CALLS(CALL("{\"name\":\"f\",\"arguments\":{\"a\":\"\\ud800\"}}")), false, "", "", "", "stop", 1},
        {CLOSER CALLS(CALL("{\"name\":\"f\",\"arguments\":{\"a\":tru}}")), false, "", "", "", "stop", 1},
        {CLOSER CALLS(CALL("{\"name\":\"f\",\"arguments\":{\"a\":\"x")) "y", false, "", "y", "", "stop", 1},
        {CLOSER CALLS(CALL("{\"name\":\"f\",\"name\":\"g\"}")), false, "", "", "", "stop", 1},
        {CLOSER CALLS(CALL("{\"name\":\"f\"} junk")), false, "", "junk", "", "stop", 1},
        /* no JSON before the name is known: text */
        {CLOSER CALLS(CALL("{\"x\n\": 1, \"name\": \"f\"}")), false, "", "{\"x\n\": 1, \"name\": \"f\"}", "", "stop",
         0},
        {CLOSER CALLS(CALL("{\"x\": 01, \"name\": \"f\"}")), false, "", "{\"x\": 01, \"name\": \"f\"}", "", "stop", 0},
        {CLOSER CALLS(CALL("{\"x\": [1}, \"name\": \"f\"}")), false, "", "{\"x\": [1}, \"name\": \"f\"}", "", "stop",
         0},
        {CLOSER CALLS(CALL("{\"x\": 1., \"name\": \"f\"}")), false, "", "{\"x\": 1., \"name\": \"f\"}", "", "stop", 0},
        {CLOSER CALLS(CALL("{\"name\":1}")), false, "", "{\"name\":1}", "", "stop", 0},
        {CLOSER CALLS(CALL("{\"name\":\"\"}")), false, "", "{\"name\":\"\"}", "", "stop", 0},
        {CLOSER "<ifm|tool_calls><ifm|tool_call>{\"name\":\"f\"", true, "", "", "", "length", 1},
        {CLOSER "<ifm|tool_calls><ifm|tool_call>{\"name\":\"f", true, "", "", "", "length", 0});
}

static void values(void **state)
{
    (void)state;
    EXPECT(/* the schema decides */
           {CLOSER CALLS(CALL("f" ARG("s", " 12 \n"))), false, "", "", "f {\"s\": \" 12 \\n\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" TYPED("s", "integer", "12"))), false, "", "", "f {\"s\": \"12\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("i", " 12\n"))), false, "", "", "f {\"i\": 12}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("i", " twelve "))), false, "", "", "f {\"i\": \"twelve\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("i", "12345678901234567890123"))), false, "", "",
            "f {\"i\": 12345678901234567890123}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("o", "{\"a\":\n1}"))), false, "", "", "f {\"o\": {\"a\":\n1}}\n", "tool_calls",
            0},
           {CLOSER CALLS(CALL("f" ARG("o", "{\"a\":1,\"a\":2}"))), false, "", "",
            "f {\"o\": \"{\\\"a\\\":1,\\\"a\\\":2}\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("r", "1"))), false, "", "", "f {\"r\": \"1\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("e", "1"))), false, "", "", "f {\"e\": \"1\"}\n", "tool_calls", 0},
           /* several types: the one named, if it is one of them; else what the text can be */
           {CLOSER CALLS(CALL("f" ARG("m", "30"))), false, "", "", "f {\"m\": 30}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("m", "30m "))), false, "", "", "f {\"m\": \"30m \"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("m", "\"30\""))), false, "", "", "f {\"m\": \"\\\"30\\\"\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" TYPED("m", "string", "30"))), false, "", "", "f {\"m\": \"30\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" TYPED("m", "boolean", "true"))), false, "", "", "f {\"m\": \"true\"}\n", "tool_calls",
            0},
           {CLOSER CALLS(CALL("f" ARG("n", "null"))), false, "", "", "f {\"n\": null}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("n", "3"))), false, "", "", "f {\"n\": 3}\n", "tool_calls", 0},
           /* no schema: the type named, else scalars */
           {CLOSER CALLS(CALL("f" TYPED("u", "string", "3"))), false, "", "", "f {\"u\": \"3\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" TYPED("u", "any", "3"))), false, "", "", "f {\"u\": \"3\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" TYPED("u", "array[string]", "[\"a\"]"))), false, "", "", "f {\"u\": [\"a\"]}\n",
            "tool_calls", 0},
           {CLOSER CALLS(CALL("f" TYPED("u", "Person", "{}"))), false, "", "", "f {\"u\": {}}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" TYPED("u", "integer|string", "x"))), false, "", "", "f {\"u\": \"x\"}\n",
            "tool_calls", 0},
           {CLOSER CALLS(CALL("g" ARG("u", "3") ARG("v", "true") ARG("w", "{}") ARG("x", "a \"b\""))), false, "", "",
            "g {\"u\": 3, \"v\": true, \"w\": \"{}\", \"x\": \"a \\\"b\\\"\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG("x", "[]") ARG("l", "1"))), false, "", "", "f {\"x\": \"[]\", \"l\": 1}\n",
            "tool_calls", 0},
           /* a value may hold what is no part of a call's structure */
           {CLOSER CALLS(CALL("f" ARG("s", "<b></ifm|think></b>"))), false, "", "",
            "f {\"s\": \"<b></ifm|think></b>\"}\n", "tool_calls", 0},
           {CLOSER CALLS(CALL("f" ARG(" s\n", "\xf0\x9f\x98\x80"))), false, "", "", "f {\"s\": \"\xf0\x9f\x98\x80\"}\n",
            "tool_calls", 0});
}

static void without_reasoning(void **state)
{
    (void)state;
    const unit_shape plain = {"a" CLOSER "b", false, "", "ab", "", "stop", 0};
    const unit_shape thinks = {"\n<ifm|think>a" CLOSER "b", false, "a", "b", "", "stop", 0};
    const unit_shape calls = {CALLS(CALL("f")) "b", false, "", "b", "f {}\n", "tool_calls", 0};
    expect_shape(&plain, false, false);
    expect_shape(&thinks, false, false);
    expect_shape(&calls, false, false);
}

/* tool_choice none: tags are dropped, what is between them is text. */
static void without_calls(void **state)
{
    (void)state;
    const unit_shape off = {"r" CLOSER CALLS(CALL("f\n" ARG("s", "v"))), false, "r", "\nf\ns\nv\n\n", "", "stop", 0};
    expect_shape(&off, true, true);
}

/* ---- streaming --------------------------------------------------------------------------------------------------- */

static void told_at_once(void **state)
{
    (void)state;
    static const char *const xml[] = {"think",
                                      "ing" CLOSER "say <",
                                      "b>",
                                      "<ifm|tool_calls><ifm|tool_call>f\n<ifm|arg_",
                                      "key>s</ifm|arg_key><ifm|arg_value>a\n",
                                      "\"b",
                                      "</ifm|arg_value><ifm|arg_key>i</ifm|arg_key>",
                                      "<ifm|arg_value>1",
                                      "2",
                                      "</ifm|arg_value>",
                                      "</ifm|tool_call>"};
    static const char *const of_xml[] = {"think",     "ingsay ", "<b>", "", "f{\"s\": \"a\\n", "\\\"b", "\"",
                                         ", \"i\": ", "",        "12",  "}"};
    static const char *const json[] = {CLOSER "<ifm|tool_calls><ifm|tool_call>{\"na", "me\": \"f\"",
                                       ", \"arguments\": {\"s\": \"a", "b\"}", "}</ifm|tool_call>"};
    static const char *const of_json[] = {"", "f", "{\"s\": \"a", "b\"}", ""};
    /* Arguments do not wait for the call's end. */
    const bt_reply_options o = {.tools = tools, .tools_size = sizeof tools - 1, .is_reasoning = true};
    unit_expect_told("k2_horizon", &o, xml, of_xml, sizeof xml / sizeof xml[0]);
    unit_expect_told("k2_horizon", &o, json, of_json, sizeof json / sizeof json[0]);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void messages(void **state)
{
    (void)state;
    static const char output[] = "r" CLOSER "c" CALLS(CALL("f" ARG("s", "\"q\"")) CALL("f junk") CALL("g"));
    const bt_reply_options o = {.tools = tools, .tools_size = sizeof tools - 1, .is_reasoning = true};
    unit_reply u = unit_read_reply(&o, output, sizeof output - 1, NULL, 0, false);
    assert_string_equal(
        u.message, "{\"role\": \"assistant\", \"content\": \"cf junk\", \"reasoning_content\": \"r\", "
                   "\"tool_calls\": [{\"id\": \"call_0\", \"type\": \"function\", \"function\": {\"name\": "
                   "\"f\", \"arguments\": \"{\\\"s\\\": \\\"\\\\\\\"q\\\\\\\"\\\"}\"}}, {\"id\": \"call_1\", \"type\": "
                   "\"function\", \"function\": {\"name\": \"g\", \"arguments\": \"{}\"}}]}");
    unit_reply_free(&u);
}

/* A family without a grammar: everything is content, tags of others too. */
static void plain_family(void **state)
{
    (void)state;
    const bt_reply_options o = {.is_reasoning = true};
    bt_reply *r = NULL;
    bt_error e;
    const bt_reply_event *events;
    size_t n;
    assert_null(bt_grammar_of("llama")->family);
    assert_int_equal(bt_reply_open_with(bt_grammar_of("llama"), &o, &r, &e), BT_OK);
    assert_int_equal(bt_reply_push(r, " <ifm|think>", 12, &events, &n, &e), BT_OK);
    assert_int_equal(n, 1);
    assert_int_equal(events[0].kind, BT_REPLY_CONTENT);
    assert_int_equal(events[0].size, 12);
    assert_int_equal(bt_reply_finish(r, false, &events, &n, &e), BT_OK);
    assert_int_equal(n, 0);
    assert_string_equal(bt_reply_finish_reason(r), "stop");
    bt_reply_close(r);
}

static void grammars(void **state)
{
    (void)state;
    unit_check_tags(bt_grammar_of("k2_horizon"));
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

/* Whatever is repeated, fed byte by byte, the work stays proportional to the output. */
static void growth(void **state)
{
    (void)state;
    static const char *const heads[] = {"",
                                        CLOSER,
                                        CLOSER "<ifm|tool_calls>",
                                        CLOSER "<ifm|tool_calls><ifm|tool_call>f\n",
                                        CLOSER "<ifm|tool_calls><ifm|tool_call>f\n<ifm|arg_key>i</ifm|arg_key>"
                                               "<ifm|arg_value>",
                                        CLOSER "<ifm|tool_calls><ifm|tool_call>{\"arguments\": {\"a\": \""};
    static const char *const parts[] = {" ",
                                        "<",
                                        "<ifm|tool_call",
                                        "<ifm|tool_calls>",
                                        "<ifm|tool_call>",
                                        "<ifm|tool_call>x y",
                                        "<ifm|tool_call>{\"a\": 1",
                                        CALL("f"),
                                        "a" CLOSER,
                                        "<ifm|tool" CLOSER "_calls>",
                                        ARG("s", "v")};
    const bt_reply_options o = {.tools = tools, .tools_size = sizeof tools - 1, .is_reasoning = true};
    for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++) {
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            /* Each byte is read twice at most, and a '<' once for each byte of its tag, at 64 a time. */
            double steps = unit_steps_per_byte("k2_horizon", &o, heads[h], parts[p], 40000);
            if (steps > 200) fail_msg("\"%s\" after \"%s\": %.1f steps a byte", parts[p], heads[h], steps);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_whole),
        cmocka_unit_test(samples_cut),
        cmocka_unit_test(samples_truncated),
        cmocka_unit_test(splices),
        cmocka_unit_test(reasoning),
        cmocka_unit_test(ends),
        cmocka_unit_test(held_blocks),
        cmocka_unit_test(broken_calls),
        cmocka_unit_test(json_bodies),
        cmocka_unit_test(values),
        cmocka_unit_test(without_reasoning),
        cmocka_unit_test(without_calls),
        cmocka_unit_test(told_at_once),
        cmocka_unit_test(messages),
        cmocka_unit_test(plain_family),
        cmocka_unit_test(grammars),
        cmocka_unit_test(growth),
    };
    return cmocka_run_group_tests(tests, read_samples, free_samples);
}
