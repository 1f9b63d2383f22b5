/* What a template may not do: errors with their places, bounds on what a hostile one can use up, failing memory. */
#include "jinja_unit.h"

#include "base/arena.h"

typedef struct fault {
    const char *source;
    bt_status status;
    const char *message;
} fault;

static void check_faults(const fault *x, size_t n, const char *context)
{
    for (size_t i = 0; i < n; i++) jinja_check_error(x[i].source, context, x[i].status, x[i].message);
}

#define CHECK(table, context) check_faults(table, sizeof(table) / sizeof *(table), context)

static void test_parse_errors(void **state)
{
    (void)state;
    static const fault x[] = {
        {"a\n  {% foo %}", BT_ERR_UNSUPPORTED, "t.jinja, line 2, column 6: there is no tag named 'foo'"},
        {"{% include 'x' %}", BT_ERR_UNSUPPORTED, "t.jinja, line 1, column 4: the tag 'include' is not supported"},
        {"é {{ x|nope }}", BT_ERR_UNSUPPORTED, "t.jinja, line 1, column 8: there is no filter named 'nope'"},
        {"{{ x|random }}", BT_ERR_UNSUPPORTED, "t.jinja, line 1, column 6: the filter 'random' is not supported"},
        {"{{ x is nope }}", BT_ERR_UNSUPPORTED, "t.jinja, line 1, column 6: there is no test named 'nope'"},
        {"{{ self }}", BT_ERR_UNSUPPORTED, "t.jinja, line 1, column 4: 'self' is not supported"},
        {"{% if x %}\n{% for y in z %}", BT_ERR_FORMAT,
         "t.jinja, line 2, column 17: the template ends inside the 'for' of line 2; 'endfor' is missing"},
        {"{% if x %}\n{% endfor %}", BT_ERR_UNSUPPORTED,
         "t.jinja, line 2, column 4: unknown or misplaced tag 'endfor'; the 'if' of line 1 still waits for 'elif'"},
        {"{{ 1 +", BT_ERR_FORMAT, "t.jinja, line 1, column 7: expected an expression, found the end of the template"},
        {"{{ a b }}", BT_ERR_FORMAT, "t.jinja, line 1, column 6: expected '}}', found 'b'"},
        {"{{ (1 }}", BT_ERR_FORMAT, "t.jinja, line 1, column 7: unexpected '}'"},
        {"{{ 'x }}", BT_ERR_FORMAT, "t.jinja, line 1, column 4: a string without an end"},
        {"{{ a ? b }}", BT_ERR_FORMAT, "t.jinja, line 1, column 6: unexpected character '?' (U+003F)"},
        {"{{ 0x99999999999999999 }}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 4: an integer beyond 64 bits, which must be written in decimal digits"},
        {"{{ '\\ud800' }}", BT_ERR_FORMAT, "t.jinja, line 1, column 5: an escape that cannot be decoded"},
        {"{# x", BT_ERR_FORMAT, "t.jinja, line 1, column 1: a comment without an end"},
        {"x\r\n{% raw %}", BT_ERR_FORMAT, "t.jinja, line 2, column 1: a raw block without an end"},
        {"ab\xff", BT_ERR_FORMAT, "t.jinja, line 1, column 3: bytes that are not UTF-8"},
        {"{% break %}", BT_ERR_FORMAT, "t.jinja, line 1, column 4: 'break' outside of a loop"},
        {"{% set 1 = 2 %}", BT_ERR_FORMAT, "t.jinja, line 1, column 8: this cannot be assigned to"},
        {"{{ f(a=1, a=2) }}", BT_ERR_FORMAT, "t.jinja, line 1, column 11: the keyword argument 'a' is given twice"},
        {"{% for x in y %}{% set loop = 1 %}{% endfor %}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 24: 'loop' cannot be assigned in a for loop"},
    };
    CHECK(x, "{}");
}

static void test_run_errors(void **state)
{
    (void)state;
    static const fault x[] = {
        {"\n{{ raise_exception('No: ' ~ m) }}", BT_ERR_USAGE, "t.jinja, line 2, column 19: No: msg"},
        {"{{ x.y }}", BT_ERR_FORMAT, "t.jinja, line 1, column 6: 'x' is undefined"},
        {"{{ d.x.y }}", BT_ERR_FORMAT, "t.jinja, line 1, column 8: 'dict object' has no attribute 'x'"},
        {"{{ [1][4].y }}", BT_ERR_FORMAT, "t.jinja, line 1, column 11: list object has no element 4"},
        {"{{ m + 1 }}", BT_ERR_FORMAT, "t.jinja, line 1, column 6: can only concatenate str (not \"int\") to str"},
        {"{{ 1 < m }}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 6: '<' not supported between instances of 'int' and 'str'"},
        {"{{ 1 // 0 }}", BT_ERR_FORMAT, "t.jinja, line 1, column 6: division by zero"},
        {"{{ 9223372036854775807 + 1 }}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 24: the result is an integer beyond 64 bits"},
        {"{{ 99999999999999999999 + 1 }}", BT_ERR_FORMAT, "t.jinja, line 1, column 25: an integer beyond 64 bits"},
        {"{{ '%x' % 99999999999999999999 }}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 9: %x format: a number is required, not an integer beyond 64 bits"},
        {"{{ 99999999999999999999|round(-2) }}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 25: round: an integer beyond 64 bits"},
        {"{{ range(99999999999999999999) }}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 9: range: an integer beyond 64 bits"},
        {"{% set _ = [].append(1) %}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 21: access to attribute 'append' of 'list' object is unsafe"},
        {"{{ d.update({}) }}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 12: access to attribute 'update' of 'dict' object is unsafe"},
        {"{{ m.encode() }}", BT_ERR_FORMAT, "t.jinja, line 1, column 6: 'encode' of 'str' is not supported"},
        {"{{ m.nope() }}", BT_ERR_FORMAT, "t.jinja, line 1, column 10: 'str object' has no attribute 'nope'"},
        {"{{ m() }}", BT_ERR_FORMAT, "t.jinja, line 1, column 5: 'str' object is not callable"},
        {"{{ m.upper }}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 6: a method has no text of its own; to call it, add ()"},
        {"{% macro f(a) %}{% endmacro %}\n{{ f(1, 2) }}", BT_ERR_FORMAT,
         "t.jinja, line 2, column 5: macro 'f' takes not more than 1 argument(s)"},
        {"{% macro f() %}\n{{ x.y }}{% endmacro %}\n{{ f() }}", BT_ERR_FORMAT,
         "t.jinja, line 2, column 6: 'x' is undefined"},
        {"{% if true %}{{ 1|nope }}{% endif %}", BT_ERR_UNSUPPORTED,
         "t.jinja, line 1, column 19: there is no filter named 'nope'"},
        {"{{ lipsum() }}", BT_ERR_UNSUPPORTED, "t.jinja, line 1, column 10: the function 'lipsum' is not supported"},
        {"{{ nope|tojson }}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 9: object of type Undefined is not JSON serializable"},
        {"{% for a, b in [[1]] %}{% endfor %}", BT_ERR_FORMAT,
         "t.jinja, line 1, column 4: not enough values to unpack (expected 2, got 1)"},
    };
    CHECK(x, "{\"m\":\"msg\",\"d\":{}}");
}

/* A filter that does not exist is none of anybody's business until it is reached. */
static void test_guarded_filters(void **state)
{
    (void)state;
    jinja_check("{% if false %}{{ 1|nope }}{{ 1 is nope }}{% endif %}{{ 1 if true else 1|nope }}ok", "{}", "1ok");
    jinja_check_error("{% if false %}{% for x in [] %}{{ 1|nope }}{% endfor %}{% endif %}", "{}", BT_ERR_UNSUPPORTED,
                      "t.jinja, line 1, column 37: there is no filter named 'nope'");
}

static void test_contexts(void **state)
{
    (void)state;
    jinja_check_error("x", "[]", BT_ERR_FORMAT, "t.jinja: the context is no JSON object");
    jinja_check_error("x", "{\"a\":1,}", BT_ERR_FORMAT,
                      "t.jinja: the context: line 1, column 8: a key in quotes is missing");
    jinja_check_error("x", "{} x", BT_ERR_FORMAT,
                      "t.jinja: the context: line 1, column 4: more text after the end of the value");
    jinja_check("{{ a }} {{ b }} {{ c }} {{ d }} {{ e }}",
                "{\"a\":1,\"a\":2,\"b\":1.0,\"c\":-0,\"d\":123456789012345678901,\"e\":[NaN,-Infinity,1e999]}",
                "2 1.0 0 123456789012345678901 [nan, -inf, inf]");
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* The template must fail, and say this. */
static void check_bound(const char *source, const char *context, const bt_jinja_options *o, const char *says)
{
    bt_rendered r = {0};
    bt_error e = {BT_OK, ""};
    bt_status status = jinja_render(source, context, o, &r, &e);
    bt_rendered_free(&r);
    if (status == BT_OK || strstr(e.message, says) == NULL) fail_msg("%s: %d %s", source, (int)status, e.message);
}

static void test_bounds(void **state)
{
    (void)state;
    const bt_jinja_options o = {
        .now = &jinja_now, .steps_max = 1000000, .output_bytes_max = 1 << 20, .memory_bytes_max = 16 << 20};
    static const char steps[] = "steps", text[] = "bytes of text", memory[] = "bytes of memory", depth[] = "recursion";
    static const struct {
        const char *source, *says;
    } x[] = {
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", steps},
        {"{{ range(9999999) }}", "range too big"},
        {"{{ 'x' * 99999999 }}", text},
        {"{% for a in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}", text},
        {"{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", text},
        {"{{ [0] * 99999999 }}", memory},
        {"{% set ns = namespace(l=[1]) %}{% for a in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", memory},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", depth},
        {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", depth},
        {"{% macro f() %}{% call f() %}{% endcall %}{{ caller }}{% endmacro %}{{ f() }}", depth},
        {"{% set ns = namespace(l=[]) %}{% for a in range(2000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
         depth},
        {"{% set ns = namespace(l=[]) %}{% for a in range(2000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
         depth},
        {"{% set ns = namespace(l=[],k=[]) %}{% for a in range(2000) %}{% set ns.l = [ns.l] %}{% set ns.k = [ns.k] %}"
         "{% endfor %}{{ ns.l == ns.k }}",
         depth},
        {"{% set ns = namespace(l=[],k=[]) %}{% for a in range(2000) %}{% set ns.l = [ns.l] %}{% set ns.k = [ns.k] %}"
         "{% endfor %}{{ ns.l < ns.k }}",
         depth},
        {"{% set ns = namespace(l=()) %}{% for a in range(2000) %}{% set ns.l = (ns.l,) %}{% endfor %}{{ {ns.l: 1} }}",
         depth},
        {"{% set ns = namespace(l=[1]) %}{% for a in range(2000) %}{% set ns.l = ns.l|map('string') %}{% endfor %}"
         "{{ ns.l|list }}",
         depth},
        {"{% set ns = namespace() %}{% set ns.n = ns %}{{ ns }}", depth},
        {"{{ 'x'|center(99999999) }}", text},
        {"{{ '%99999999d' % 1 }}", text},
        {"{{ '{:99999999}'.format(1) }}", text},
        {"{{ 'x'|indent(99999999, true) }}", text},
        {"{{ [1]|tojson(indent=99999999) }}", text},
        {"{{ 'a\tb'.expandtabs(99999999) }}", text},
        {"{{ 'aaaaaaaaaa'.replace('', 'x' * 99999) * 9 }}", text},
        {"{{ [1]|batch(99999999, 0)|list }}", memory},
        {"{{ [1]|slice(99999999)|list }}", memory},
        {"{{ 2 ** 99 }}", "beyond 64 bits"},
        {"{{ '%.999f' % 1.5 }}", "precision"},
        {"{{ '{:0999,}'.format(1) }}", "zeros"},
    };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) check_bound(x[i].source, "{}", &o, x[i].says);
}

/* Work on long strings counts as steps, so that none of these takes quadratic time. */
static void test_work(void **state)
{
    (void)state;
    const bt_jinja_options o = {.now = &jinja_now, .steps_max = 2000000};
    size_t size = 200000;
    char *context = malloc(size + 100);
    assert_non_null(context);
    size_t n = (size_t)snprintf(context, 50, "{\"s\":\"");
    memset(context + n, 'a', size);
    (void)snprintf(context + n + size, 50, "\"}");
    static const char *const x[] = {
        "{% for c in s %}{{ s[loop.index0] }}{% endfor %}",
        "{% set t = 'ab' ~ s[:100000] %}{% for i in range(9999) %}{{ s.rfind(t) }}{{ s.rfind(t[1:]) }}{% endfor %}",
        "{% for i in range(99999) %}{{ s|length }}{% endfor %}",
        "{% for i in range(99999) %}{{ s.strip(s) }}{% endfor %}",
        "{% for i in range(99999) %}{{ 'b' in s }}{% endfor %}",
        "{% for i in range(99999) %}{{ s == s ~ '' }}{% endfor %}",
        "{% for i in range(99999) %}{{ s.split('b')|length }}{% endfor %}",
        "{% for i in range(999) %}{{ s.isalpha() }}{% endfor %}",
        "{% for i in range(999) %}{{ s.islower() }}{% endfor %}",
        "{% for i in range(999) %}{{ s is lower }}{% endfor %}",
        "{% for i in range(999) %}{{ ('A' ~ s).istitle() }}{% endfor %}",
        "{% for i in range(999) %}{{ s|wordcount }}{% endfor %}",
        "{% for i in range(99) %}{{ s.count('a') }}{% endfor %}",
        "{% set t = 'a' * 120 ~ 'b' ~ 'a' * 120 %}{% for i in range(99) %}{{ s.find(t) }}{% endfor %}",
        "{% set t = 'a' * 120 ~ 'b' ~ 'a' * 120 %}{% for i in range(99) %}{{ t in s }}{% endfor %}",
        "{% set t = 'a' * 120 ~ 'b' %}{% for i in range(99) %}{{ s.count(t) }}{% endfor %}",
        "{% set t = 'a' * 120 ~ 'b' %}{% for i in range(99) %}{{ s.replace(t, '')|length }}{% endfor %}",
        "{% set t = 'a' * 120 ~ 'b' %}{% for i in range(99) %}{{ s.split(t)|length }}{% endfor %}",
        "{% set t = 'b' ~ 'a' * 120 %}{% for i in range(9999) %}{{ ('b' * 999).rfind(t) }}{{ s.rfind(t) }}{% endfor %}",
        "{% set t = s[1:] ~ 'b' %}{{ s.find(t) }}{{ (s ~ s).find(t) }}",
        "{{ s.startswith((s[1:] ~ 'b',) * 9999) }}",
        "{{ s.endswith(('b' ~ s[1:],) * 9999) }}",
        "{% for i in range(999) %}{{ s.strip('a') }}{% endfor %}",
        "{% for i in range(99) %}{{ s|wordwrap(9)|length }}{% endfor %}",
        "{% for i in range(99) %}{{ s|pprint|length }}{% endfor %}",
        "{% for i in range(99) %}{{ s|striptags|length }}{% endfor %}",
        "{% set t = '&a' * 99999 %}{% for i in range(9) %}{{ t|striptags|length }}{% endfor %}",
        "{% set t = ' ' * 200000 %}{% for i in range(99) %}{{ t.strip() }}{% endfor %}",
        "{% set l = [0.1] * 99999 %}{{ l }}",
        "{% set l = [0.1] * 99999 %}{{ l|tojson }}",
        "{% for i in range(9999) %}{{ '%.300f' % 0.1 }}{{ 0.1|round(3) }}{% endfor %}",
        "{% for i in range(9999) %}{{ 0.1|round(3) }}{% endfor %}",
        "{% set l = range(9999)|list %}{% for i in range(999) %}{{ l == l }}{% endfor %}",
        "{% set l = range(9999)|list %}{% for i in range(999) %}{{ l < l }}{% endfor %}",
        "{% set l = range(9999)|list %}{% for i in range(999) %}{{ l.index(9998) }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) check_bound(x[i], context, &o, "");
    free(context);
}

/* What a message can make of a template that means no harm: a sigma looks for what stands around it, over hundreds of
 * thousands of marks here. Looking again for each would take hours. */
static void test_sigmas(void **state)
{
    (void)state;
    static const char source[] = "{% set marks = \"'\" * 300000 %}{% set sigmas = '\xce\xa3' * 300000 %}"
                                 "{{ ('A' ~ marks ~ sigmas).lower()[-2:] }}{{ (marks ~ sigmas).swapcase()[-2:] }}"
                                 "{{ ('A' ~ marks ~ '\xce\xa3' ~ marks).lower()[300001] }}"
                                 "{{ ('A\xce\xa3' ~ marks ~ 'A').lower()[1] }}";
    jinja_check(source, "{}", "\xcf\x83\xcf\x82\xcf\x83\xcf\x82\xcf\x82\xcf\x83");
}

/* `text` n times between head and tail. bt_free by the caller. */
static char *repeated(const char *head, const char *text, size_t n, const char *tail)
{
    bt_text t = {0};
    bt_text_puts(&t, head);
    for (size_t i = 0; i < n; i++) bt_text_puts(&t, text);
    bt_text_puts(&t, tail);
    assert_true(bt_text_ok(&t));
    return t.data;
}

static void test_deep_templates(void **state)
{
    (void)state;
    static const struct {
        const char *head, *text, *tail, *says;
    } x[] = {
        {"{{ ", "(", "", "nested too deeply"},
        {"{{ ", "[", "", "nested too deeply"},
        {"{{ ", "-", "1 }}", "nesting"},
        {"{{ ", "not ", "1 }}", "nesting"},
        {"", "{% if x %}", "", "nesting"},
        {"", "{% for x in y %}", "", "nesting"},
        {"", "{% macro x() %}", "", "nesting"},
        {"{{ 1", " + 1", " }}", "recursion"},
        {"{{ x", "|list", " }}", "recursion"},
        {"{{ x", ".x", " }}", "recursion"},
        {"{{ 1", " if x else 1", " }}", "nesting"},
    };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        char *source = repeated(x[i].head, x[i].text, 5000, x[i].tail);
        check_bound(source, "{}", NULL, x[i].says);
        bt_free(source);
    }
    /* Long is not deep. */
    char *source = repeated("{% if false %}", "{% elif false %}", 5000, "{% else %}x{% endif %}");
    jinja_check(source, "{}", "x");
    bt_free(source);
}

/* ---- failing memory ---------------------------------------------------------------------------------------------- */

/* Every allocation fails once; each time the result is an error that says so, or the right text. */
static void test_failing_memory(void **state)
{
    (void)state;
#ifdef BT_TEST_BUILD
    size_t size = 0;
    char *source = jinja_read("tests/data/jinja", "chat_tools.jinja", &size);
    static const char context[] =
        "{\"bos_token\":\"<s>\",\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":"
        "[{\"type\":\"text\",\"text\":\"hi\"}]},{\"role\":\"assistant\",\"content\":\"<think>a</think>b\"}],\"tools\":"
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"a\":[1,2.5,null]}}}],\"add_generation_prompt\":true}";
    const bt_jinja_options o = {.now = &jinja_now};
    bool done = false;
    long n = 0;
    for (; !done && n < 100000; n++) {
        bt_rendered r = {0};
        bt_error e = {BT_OK, ""};
        bt_alloc_fail_after(n);
        bt_status status = bt_jinja_render_text("t", source, size, context, sizeof context - 1, &o, &r, &e);
        bt_alloc_fail_after(-1);
        done = status == BT_OK;
        if (!done && (status != BT_ERR_MEMORY || e.message[0] == '\0')) fail_msg("%ld: %s", n, e.message);
        if (done) assert_non_null(strstr(r.text, "<|turn|>assistant\n<think>\na\n</think>\n\nb<|end|>"));
        bt_rendered_free(&r);
    }
    assert_true(done);
    assert_true(n > 500);
    bt_free(source);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_errors),    cmocka_unit_test(test_run_errors),
        cmocka_unit_test(test_guarded_filters), cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_bounds),          cmocka_unit_test(test_work),
        cmocka_unit_test(test_sigmas),          cmocka_unit_test(test_deep_templates),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
