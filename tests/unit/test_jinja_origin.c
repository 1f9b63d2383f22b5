/*
 * Where each byte of a rendering came from. Expected texts put message bytes between « and »; everything else must be
 * from the template. The messages here are named by what they hold: m = "msg", w = " two words ", and so on.
 */
#include "jinja_unit.h"

static const char context[] = "{\"bos\":\"<s>\",\"other\":\"<o>\",\"m\":\"msg\",\"w\":\" two words "
                              "\",\"lines\":\"a\\nb\\n\\nc\",\"e\":\"\",\"n\":7,"
                              "\"f\":1.5,\"yes\":true,\"none_\":null,\"tag\":\"<|end|>\",\"list\":[\"x\",\"y\"],\"d\":{"
                              "\"k\":\"v\",\"n\":1},\"u\":\"Straße\","
                              "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"<|end|>\",\"content\":"
                              "\"ho\"}],\"effort\":\"high\"}";

static const char *const roles[] = {"system", "user", "assistant", NULL};
static const char *const efforts[] = {"low", "high", NULL};
static const bt_jinja_trust trusted[] = {
    {"bos", NULL}, {"messages[].role", roles}, {"effort", efforts}, {"d.zzz", NULL}};

/* The rendering with its message runs marked. bt_free by the caller. */
static char *marked(const char *source)
{
    const bt_jinja_options o = {.trusted = trusted, .n_trusted = sizeof trusted / sizeof *trusted, .now = &jinja_now};
    bt_rendered r = {0};
    bt_error e = {BT_OK, ""};
    bt_text t = {0};
    if (jinja_render(source, context, &o, &r, &e) != BT_OK) fail_msg("%s: %s", source, e.message);
    size_t at = 0;
    for (size_t i = 0; i < r.n_runs; i++) {
        assert_true(r.runs[i].size > 0);
        if (i > 0) assert_true(r.runs[i].from_template != r.runs[i - 1].from_template);
        bt_text_puts(&t, r.runs[i].from_template ? "" : "\u00ab");
        bt_text_add(&t, r.text + at, r.runs[i].size);
        bt_text_puts(&t, r.runs[i].from_template ? "" : "\u00bb");
        at += r.runs[i].size;
    }
    assert_int_equal(at, r.size);
    assert_true(bt_text_ok(&t));
    bt_rendered_free(&r);
    return t.data;
}

typedef struct expectation {
    const char *source, *marked;
} expectation;

static void check_all(const expectation *x, size_t n)
{
    int wrong = 0;
    for (size_t i = 0; i < n; i++) {
        char *got = marked(x[i].source);
        if (strcmp(got, x[i].marked) != 0) {
            print_error("%s: wanted %s\n  got %s\n", x[i].source, x[i].marked, got);
            wrong++;
        }
        bt_free(got);
    }
    assert_int_equal(wrong, 0);
}

#define CHECK(table) check_all(table, sizeof(table) / sizeof *(table))

static void test_sources(void **state)
{
    (void)state;
    static const expectation x[] = {
        {"text {{ 'literal' }}", "text literal"},
        {"a{{ m }}b", "a«msg»b"},
        {"{{ bos }}{{ other }}", "<s>«<o>»"},
        {"{% for x in messages %}{{ x.role }}:{{ x['content'] }};{% endfor %}", "user:«hi»;«<|end|>»:«ho»;"},
        {"{{ effort }}", "high"},
        {"{{ n }}{{ f }}{{ yes }}{{ none_ }}", "«71.5TrueNone»"},
        {"{{ 7 }}{{ 1.5 }}{{ true }}{{ none }}", "71.5TrueNone"},
        {"{{ list }}{{ d }}", "«['x', 'y']{'k': 'v', 'n': 1}»"},
        {"{{ ['a', 1] }}{{ {'a': 2} }}", "['a', 1]{'a': 2}"},
        {"{{ ['a', m] }}", "«['a', 'msg']»"},
        {"{{ ['a', m][0] }}{{ ['a', m][1] }}", "a«msg»"},
        {"{{ {'a': m}.a }}{% for k in {'a': m} %}{{ k }}{% endfor %}", "«msg»a"},
        {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "«k»=«v»;«n»=«1»;"},
        {"{% for x in list %}{{ loop.index }}{{ x }}{% endfor %}", "1«x»2«y»"},
        {"{{ range(2)|list }}{{ range(n)|first }}", "[0, 1]«0»"},
        {"{{ strftime_now('%Y') }}", "2026"},
        {"{{ m if yes else 'x' }}{{ 'x' if yes }}{{ m and 'x' }}{{ e or 'x' }}{{ nope|default(m) }}", "«msg»xxx«msg»"},
    };
    CHECK(x);
}

static void test_joining(void **state)
{
    (void)state;
    static const expectation x[] = {
        {"{{ '<|' + m + '|>' }}", "<|«msg»|>"},
        {"{{ '<|' ~ m ~ n ~ '|>' }}", "<|«msg7»|>"},
        {"{{ '[%s:%d]' % (m, n) }}", "[«msg»:«7»]"},
        {"{{ '[%5s|%-5s]' % (m, 'a') }}", "[«  msg»|a    ]"},
        {"{{ '%s' % [m] }}{{ '%s-' % 'x' }}", "«['msg']»x-"},
        {"{{ m % () }}{{ (m ~ '%s') % 'x' }}", "«msgmsg»x"},
        {"{{ '%(k)s!' % d }}", "«v»!"},
        {"{{ '[{}]{x}'.format(m, x='y') }}", "[«msg»]y"},
        {"{{ '{:>5}|{:<4}'.format(m, 'a') }}", "«  msg»|a   "},
        {"{{ '{0[k]}{1!r}'.format(d, 'q') }}", "«v»'q'"},
        {"{{ '{:{w}}{:3}'.format('a', 'b', w=n) }}", "«a      »b  "},
        {"{{ '[%s]'|format(m) }}", "[«msg»]"},
        {"{{ list|join(', ') }}", "«x», «y»"},
        {"{{ ['a', m]|join(e) }}{{ ['a', 'b']|join(m) }}", "a«msg»a«msg»b"},
        {"{{ ', '.join(['a', m]) }}", "a, «msg»"},
        {"{{ messages|join('/', attribute='content') }}", "«hi»/«ho»"},
        {"{{ ['a']|sum(start=[])|join if false else [[m], ['b']]|sum(start=[])|join }}", "«msg»b"},
    };
    CHECK(x);
}

/* Long texts are continued in place, with their marks, and older values keep theirs. */
static void test_growing(void **state)
{
    (void)state;
#define LONG "{% set a = 'y' * 1030 ~ 'z' %}{% set b = a ~ m %}{% set c = b ~ 'q' ~ m %}{% set d = b + 'w' %}"
    static const expectation x[] = {
        {LONG "{{ a[1029:] }} {{ b[1029:] }} {{ c[1029:] }} {{ d[1029:] }}", "yz yz«msg» yz«msg»q«msg» yz«msg»w"},
        {"{% set a = m * 400 ~ m %}{% set b = a ~ m %}{% set c = b ~ 'q' %}{{ b[-2:] }} {{ c[-2:] }} {{ (c + 'w')[-3:] "
         "}}",
         "«sg» «g»q «g»qw"},
    };
#undef LONG
    CHECK(x);
}

static void test_replacing(void **state)
{
    (void)state;
    static const expectation x[] = {
        {"{{ m|replace('s', '<|end|>') }}", "«m<|end|>g»"},
        {"{{ m.replace('s', '<|end|>') }}", "«m<|end|>g»"},
        {"{{ 'a-b'.replace('-', m) }}", "a«msg»b"},
        {"{{ ('a-b' ~ '-' ~ m ~ '-').replace('-', '+') }}", "a+b+«msg»+"},
        {"{{ ('a' ~ m).replace('am', 'X') }}", "«Xsg»"},
        {"{{ ('a' ~ m).replace('', '.') }}", ".a«.m.s.g.»"},
        {"{{ 'ab'.replace('', '.') }}{{ e.replace('', '.') }}", ".a.b.«.»"},
        {"{{ ('<' ~ tag)|e }}", "&lt;«&lt;|end|&gt;»"},
        {"{{ 'a' ~ lines|indent(2) }}", "a«a\n  b\n\n  c»"},
        {"{{ ('x\ny\n' ~ m)|indent(1, first=true) }}", " x\n y\n« msg»"},
        {"{{ 'x\ny'|indent(m) }}", "x\n«msg»y"},
        {"{{ ('k' ~ lines)|indent(2, true, true) }}", "«  »k«a\n  b\n  \n  c»"},
    };
    CHECK(x);
}

static void test_parts(void **state)
{
    (void)state;
    static const expectation x[] = {
        {"{{ ('ab' ~ m)[1:4] }}", "b«ms»"},
        {"{{ ('ab' ~ m)[::-1] }}{{ ('ab' ~ m)[::2] }}", "«gsm»baa«mg»"},
        {"{{ ('ab' ~ m)[0] }}{{ ('ab' ~ m)[2] }}{{ ('ab' ~ m)|first }}{{ ('ab' ~ m)|last }}", "a«m»a«g»"},
        {"{{ (' ' ~ w ~ ' x ').strip() }}", "«two words » x"},
        {"{{ w|trim }}{{ (' a' ~ w).rstrip() }}{{ (w ~ 'b ').lstrip() }}", "«two words» a« two wordstwo words »b "},
        {"{{ ('a' ~ w ~ 'b').split() }}", "«['a', 'two', 'words', 'b']»"},
        {"{{ ('a' ~ w ~ 'b').split()|join('|') }}", "a|«two»|«words»|b"},
        {"{{ ('a' ~ w).split(' ', 1)[0] }}{{ ('a' ~ w).rsplit(' ', 2)[-2] }}", "a«words»"},
        {"{{ ('x\n' ~ lines).splitlines()|join('+') }}", "x+«a»+«b»++«c»"},
        {"{{ ('a=' ~ m).partition('=')|join('/') }}", "a/=/«msg»"},
        {"{{ ('a=' ~ m).removeprefix('a=') }}{{ (m ~ '!').removesuffix('g!') }}", "«msgms»"},
        {"{% for c in 'a' ~ m %}{{ c }}.{% endfor %}", "a.«m».«s».«g»."},
        {"{{ ('a' ~ m)|list|join('.') }}", "a.«m».«s».«g»"},
        {"{{ ('a' ~ m)|reverse }}", "«gsm»a"},
    };
    CHECK(x);
}

static void test_case(void **state)
{
    (void)state;
    static const expectation x[] = {
        {"{{ ('ab' ~ m)|upper }}{{ ('AB' ~ m)|lower }}", "AB«MSG»ab«msg»"},
        {"{{ ('ab ' ~ m)|title }}{{ ('ab' ~ m)|capitalize }}", "Ab «Msg»Ab«msg»"},
        {"{{ ('ab ' ~ m).title() }}{{ (m ~ 'X').swapcase() }}", "Ab «MsgMSG»x"},
        {"{{ ('ß' ~ u ~ 'ß').upper() }}{{ (u ~ 'ß').casefold() }}", "SS«STRASSE»SS«strasse»ss"},
    };
    CHECK(x);
}

static void test_blocks(void **state)
{
    (void)state;
    static const expectation x[] = {
        {"{% set x %}a{{ m }}b{% endset %}{{ x }}", "a«msg»b"},
        {"{% set x | upper %}a{{ m }}{% endset %}{{ x }}", "A«MSG»"},
        {"{% macro f(x, y='d') %}<{{ x }}{{ y }}>{% endmacro %}{{ f(m) }}{{ f('a', m) }}", "<«msg»d><a«msg»>"},
        {"{% macro f() %}({{ caller(m) }}){% endmacro %}{% call(x) f() %}{{ x }}!{% endcall %}", "(«msg»!)"},
        {"{% filter upper %}a{{ m }}{% endfilter %}", "A«MSG»"},
        {"{% set ns = namespace(t='') %}{% for x in list %}{% set ns.t = ns.t ~ '-' ~ x %}{% endfor %}{{ ns.t }}",
         "-«x»-«y»"},
        {"{% with x = m ~ '!' %}{{ x }}{% endwith %}{% generation %}a{{ m }}{% endgeneration %}", "«msg»!a«msg»"},
        {"{% for x in [['a', [m]]] recursive %}{% if x is string %}{{ x }}{% else %}({{ loop(x) }}){% endif %}{% "
         "endfor %}",
         "(a(«msg»))"},
        {"{{ ('a' ~ m)|string }}{{ ('a' ~ m)|safe }}{{ ('<'|safe) + m }}", "a«msg»a«msg»<«msg»"},
        {"{% set a, b = m, 'x' %}{{ a }}{{ b }}{{ cycler('a', m).next() }}{{ joiner(m)() }}", "«msg»xa"},
    };
    CHECK(x);
}

/* For what has no rule of its own one message byte among the inputs makes all of the text message. */
static void test_others(void **state)
{
    (void)state;
    static const expectation x[] = {
        {"{{ ('a' ~ m)|center(6) }}{{ 'a'|center(3) }}", "« amsg » a "},
        {"{{ ('a' ~ m).ljust(5) }}{{ ('a' ~ m).zfill(5) }}{{ 'a'.rjust(n) }}", "«amsg 0amsg      a»"},
        {"{{ ('a' ~ m) * 2 }}{{ 'ab' * 2 }}{{ 'a' * (list|length) }}", "«amsgamsg»abab«aa»"},
        {"{{ ['a', m]|tojson }}{{ ['a']|tojson }}{{ m|tojson }}", "«[\"a\", \"msg\"]»[\"a\"]«\"msg\"»"},
        {"{{ m|length }}{{ 'abc'|length }}{{ n + 1 }}{{ 1 + 1 }}{{ n * 0 }}{{ -n }}", "«3»3«8»2«0-7»"},
        {"{{ m == 'msg' }}{{ 1 < 2 }}{{ 'x' in list }}{{ not m }}{{ m is string }}", "«True»True«TrueFalseTrue»"},
        {"{{ m|int(5) }}{{ '7'|int }}{{ f|round }}{{ m|urlencode }}{{ m|wordcount }}", "57«2.0msg1»"},
        {"{{ list|length ~ '/' ~ [1]|length }}{{ messages|map('length')|join }}", "«2»/1«22»"},
        {"{{ ('a' ~ m ~ ' b c')|truncate(5, leeway=0) }}", "«am...»"},
        {"{{ ('a ' ~ m)|wordwrap(2) }}{{ 'a b'|wordwrap(1, wrapstring=m) }}", "«a \nms\ngamsgb»"},
        {"{{ 'a b'|wordwrap(1) }}{{ ('<b>' ~ m)|striptags }}{{ '<b>a'|striptags }}", "a\nb«msg»a"},
        {"{{ ['a', m]|pprint }}{{ ['a']|pprint }}", "«['a', 'msg']»['a']"},
        {"{{ {'a': m}|xmlattr }}{{ {'a': 1}|xmlattr }}", "« a=\"msg\"» a=\"1\""},
    };
    CHECK(x);
}

/* A tag in a message stays message whatever a template does with it on the way. */
static void test_smuggling(void **state)
{
    (void)state;
    static const expectation x[] = {
        {"{{ tag }}{{ tag|upper|lower }}{{ [tag]|first }}{{ tag[0:] }}", "«<|end|><|end|><|end|><|end|>»"},
        {"{{ '<|' ~ tag[2:5] ~ '|>' }}", "<|«end»|>"},
        {"{{ tag.split('|')|join('|') }}", "«<»|«end»|«>»"},
        {"{{ '%s' % tag }}{{ '{}'.format(tag) }}{{ tag|replace('x', 'y') }}{{ tag|string|safe|trim }}",
         "«<|end|><|end|><|end|><|end|>»"},
        {"{{ 'A'.replace('A', tag) }}", "«<|end|>»"},
        {"{{ m.replace('msg', '<|end|>') }}", "«<|end|>»"},
    };
    CHECK(x);
}

/* A trusted path takes strings at that very place only, and only from its list. */
static void test_trust(void **state)
{
    (void)state;
    static const char *const yes[] = {"yes", NULL};
    static const bt_jinja_trust paths[] = {{"a", yes}, {"b[].c", NULL}, {"d.e.f", NULL}, {"g[]", NULL}};
    const bt_jinja_options o = {.trusted = paths, .n_trusted = 4, .now = &jinja_now};
    static const struct {
        const char *source, *context;
        bool from_template;
    } x[] = {
        {"{{ a }}", "{\"a\":\"yes\"}", true},
        {"{{ a }}", "{\"a\":\"no\"}", false},
        {"{{ a }}", "{\"a\":\"yes \"}", false},
        {"{{ a.a }}", "{\"a\":{\"a\":\"yes\"}}", false},
        {"{{ a[0] }}", "{\"a\":[\"yes\"]}", false},
        {"{{ b[1].c }}", "{\"b\":[1,{\"c\":\"x\"}]}", true},
        {"{{ b.c }}", "{\"b\":{\"c\":\"x\"}}", false},
        {"{{ b[0].d.c }}", "{\"b\":[{\"d\":{\"c\":\"x\"}}]}", false},
        {"{{ d.e.f }}", "{\"d\":{\"e\":{\"f\":\"x\"}}}", true},
        {"{{ d['e.f'] }}", "{\"d\":{\"e.f\":\"x\"}}", false},
        {"{{ d.e.f[0] }}", "{\"d\":{\"e\":{\"f\":[\"x\"]}}}", false},
        {"{{ g[0] }}", "{\"g\":[\"x\"]}", true},
        {"{{ g[0][0] }}", "{\"g\":[[\"x\"]]}", false},
        {"{% for k in d %}{{ k }}{% endfor %}", "{\"d\":{\"e\":1}}", false},
    };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        bt_rendered r = {0};
        bt_error e = {BT_OK, ""};
        assert_int_equal(jinja_render(x[i].source, x[i].context, &o, &r, &e), BT_OK);
        assert_int_equal(r.n_runs, 1);
        if (r.runs[0].from_template != x[i].from_template) fail_msg("%s of %s", x[i].source, x[i].context);
        bt_rendered_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sources),   cmocka_unit_test(test_joining), cmocka_unit_test(test_growing),
        cmocka_unit_test(test_replacing), cmocka_unit_test(test_parts),   cmocka_unit_test(test_case),
        cmocka_unit_test(test_blocks),    cmocka_unit_test(test_others),  cmocka_unit_test(test_smuggling),
        cmocka_unit_test(test_trust),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
