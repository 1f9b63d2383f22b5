/* The command line: tables that agree with themselves, parsing, environment names, and the pages made of them. The
 * program's sources are part of this test: they are in no library. */
#include "unit.h"

#include "app/help.c"
#include "app/options.c"
#include "app/table.c"

static bt_options o;
static bt_error e;

/* A made-up environment: "NAME=value" strings. */
static const char *const *environment;

static char *fake_getenv(const char *name)
{
    size_t n = strlen(name);
    for (const char *const *x = environment; x != NULL && *x != NULL; x++)
        if (strncmp(*x, name, n) == 0 && (*x)[n] == '=') return (char *)(uintptr_t)(*x + n + 1);
    return NULL;
}

/* Parses up to 15 words; the last is NULL. */
static bt_status parse(const char *first, ...)
{
    static char *words[16];
    int n = 0;
    va_list args;
    va_start(args, first);
    for (const char *w = first; w != NULL; w = va_arg(args, const char *)) words[n++] = (char *)(uintptr_t)w;
    va_end(args);
    return bt_options_parse(n, words, fake_getenv, &o, &e);
}

#define ACCEPT(...)                                                                                                    \
    do {                                                                                                               \
        if (parse(__VA_ARGS__, NULL) != BT_OK) fail_msg("refused: %s", e.message);                                     \
    } while (0)

/* The words are refused with a message that holds `part`. */
#define REFUSE(part, ...)                                                                                              \
    do {                                                                                                               \
        assert_int_equal(parse(__VA_ARGS__, NULL), BT_ERR_USAGE);                                                      \
        if (strstr(e.message, part) == NULL) fail_msg("'%s' does not say '%s'", e.message, part);                      \
    } while (0)

static int forget(void **state)
{
    (void)state;
    environment = NULL;
    return 0;
}

static void tables_agree(void **state)
{
    (void)state;
    for (bt_option i = 0; i < BT_N_OPTIONS; i++) {
        const bt_option_spec *s = &bt_option_specs[i];
        assert_non_null(s->name);
        assert_non_null(s->help);
        assert_true(s->commands != 0);
        assert_int_equal(s->argument == NULL, s->kind == BT_KIND_FLAG);
        assert_int_equal(s->choices != NULL, s->kind == BT_KIND_CHOICE);
        if (s->kind == BT_KIND_INTEGER || s->kind == BT_KIND_REAL) assert_true(s->min < s->max);
        for (bt_option k = 0; k < i; k++) {
            const bt_option_spec *p = &bt_option_specs[k];
            if ((s->commands & p->commands) == 0) continue; /* a name may mean something else elsewhere */
            if ((s->commands & p->commands) == 0) continue; /* no command takes both */
            assert_string_not_equal(s->name, p->name);
            if (s->letter != '\0') assert_int_not_equal(s->letter, p->letter);
            if (s->environment != NULL && p->environment != NULL)
                assert_string_not_equal(s->environment, p->environment);
        }
        if (s->environment == NULL) continue;
        char expected[64] = "BALTORO_";
        size_t n = strlen(expected);
        for (const char *c = s->name; *c != '\0'; c++)
            expected[n++] = *c == '-' ? '_' : (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
        if (i != BT_OPT_MODEL) assert_string_equal(s->environment, expected);
    }
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) {
        assert_non_null(bt_commands[c].name);
        assert_non_null(bt_commands[c].examples);
        assert_true(is_of(&bt_option_specs[BT_OPT_HELP], c));
        assert_int_equal(bt_commands[c].takes_model, is_of(&bt_option_specs[BT_OPT_MODEL], c));
    }
}

static void commands_are_found(void **state)
{
    (void)state;
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) {
        ACCEPT(bt_commands[c].name);
        assert_int_equal(o.command, c);
        bt_options_free(&o);
    }
    for (const char *const *p = bt_commands_planned; *p != NULL; p++) REFUSE("not in this build", *p);
    assert_int_equal(bt_options_parse(0, NULL, fake_getenv, &o, &e), BT_ERR_USAGE);
    assert_non_null(strstr(e.message, "command is missing"));
    REFUSE("did you mean run?", "rnu");
    REFUSE("did you mean tokenize?", "tokenise");
    REFUSE("`baltoro help`", "frobnicate");
    REFUSE("the command comes first", "-p", "run");
    REFUSE("there is no command ", "");
    const char *const ways[] = {"--version", "version"};
    for (size_t i = 0; i < 2; i++) {
        ACCEPT(ways[i]);
        assert_int_equal(o.command, BT_COMMAND_VERSION);
        bt_options_free(&o);
    }
}

static void help_is_found(void **state)
{
    (void)state;
    const char *const ways[] = {"--help", "-h", "help"};
    for (size_t i = 0; i < 3; i++) {
        ACCEPT(ways[i]);
        assert_int_equal(o.command, BT_COMMAND_HELP);
        assert_int_equal(o.topic, BT_N_COMMANDS);
        bt_options_free(&o);
        ACCEPT(ways[i], "run");
        assert_int_equal(o.topic, BT_COMMAND_RUN);
        bt_options_free(&o);
    }
    ACCEPT("verify", "--help");
    assert_int_equal(o.command, BT_COMMAND_VERIFY);
    assert_true(bt_option_is_set(&o, BT_OPT_HELP));
    bt_options_free(&o);
    environment = (const char *const[]){"BALTORO_TOP_K=junk", NULL}; /* help must work all the same */
    ACCEPT("run", "-h");
    bt_options_free(&o);
    REFUSE("there is no command", "help", "frobnicate");
    REFUSE("unexpected argument 'verify'", "help", "run", "verify");
}

static void values_are_read(void **state)
{
    (void)state;
    ACCEPT("run", "M", "-p", "hello", "--top-k=5", "-n", "-1", "--temp", "0.5", "-vs18446744073709551615", "--stop",
           "a", "--stop=b=c");
    assert_string_equal(o.model, "M");
    assert_int_equal(o.n_arguments, 0);
    assert_string_equal(o.values[BT_OPT_PROMPT].text, "hello");
    assert_int_equal(o.values[BT_OPT_TOP_K].integer, 5);
    assert_int_equal(o.values[BT_OPT_MAX_NEW_TOKENS].integer, -1);
    assert_true(o.values[BT_OPT_TEMPERATURE].real == 0.5);
    assert_true(o.values[BT_OPT_SEED].u64 == UINT64_MAX);
    assert_int_equal(o.n_stops, 2);
    assert_string_equal(o.stops[0], "a");
    assert_string_equal(o.stops[1], "b=c");
    assert_true(bt_option_is_set(&o, BT_OPT_VERBOSE));
    assert_false(bt_option_is_set(&o, BT_OPT_QUIET));
    assert_false(bt_option_is_set(&o, BT_OPT_TOP_P));
    bt_options_free(&o);
    REFUSE("--quiet and --verbose exclude each other", "run", "M", "-qv");
    bt_options_free(&o);
    ACCEPT("run", "-p", "", "M", "-n", "1", "-n", "2"); /* the empty text is a value; the last one counts */
    assert_string_equal(o.values[BT_OPT_PROMPT].text, "");
    assert_int_equal(o.values[BT_OPT_MAX_NEW_TOKENS].integer, 2);
    bt_options_free(&o);
    ACCEPT("run", "M", "-p", "--top-k"); /* what follows is the value, whatever it looks like */
    assert_string_equal(o.values[BT_OPT_PROMPT].text, "--top-k");
    bt_options_free(&o);
}

static void models_are_found(void **state)
{
    (void)state;
    ACCEPT("tokenize", "M", "text");
    assert_string_equal(o.model, "M");
    assert_string_equal(o.arguments[0], "text");
    bt_options_free(&o);
    const char *const ways[] = {"-m", "--model-dir", "--model", "-hf", "--hf-repo"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        ACCEPT("tokenize", ways[i], "M", "text");
        assert_string_equal(o.model, "M");
        assert_int_equal(o.n_arguments, 1);
        assert_string_equal(o.arguments[0], "text");
        bt_options_free(&o);
    }
    ACCEPT("tokenize", "--", "-M", "--special");
    assert_string_equal(o.model, "-M");
    assert_string_equal(o.arguments[0], "--special");
    assert_false(bt_option_is_set(&o, BT_OPT_SPECIAL));
    bt_options_free(&o);
    ACCEPT("run");
    assert_null(o.model);
    bt_options_free(&o);
    REFUSE("unexpected argument 'b'", "run", "a", "b");
    REFUSE("unexpected argument 'c'", "verify", "a", "b", "c");
    REFUSE("unexpected argument 'a'", "devices", "a");
    REFUSE("is empty", "run", "-m", "");
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    REFUSE("did you mean --temperature?", "run", "--temprature", "1");
    REFUSE("did you mean --top-k?", "run", "--topk", "1");
    REFUSE("did you mean --repetition-penalty?", "run", "--repetition", "1");
    REFUSE("`baltoro help run`", "run", "--frobnicate");
    REFUSE("unknown option -z", "run", "-z");
    REFUSE("unknown option --", "run", "--=5");
    REFUSE("unknown option ---", "run", "---");
    REFUSE("--chunk is no option of run; it belongs to logits, verify", "run", "--chunk", "1");
    REFUSE("-p is no option of info", "info", "-p", "x");
    REFUSE("--special takes no value", "tokenize", "--special=1");
    REFUSE("--top-k needs a value: K", "run", "--top-k");
    REFUSE("-n needs a value: N", "run", "-n");
#ifndef BT_TEST_BUILD
    REFUSE("unknown option --ablate", "verify", "--ablate", "rope=off");
#endif
}

static void numbers_are_strict(void **state)
{
    (void)state;
    const char *const bad_integers[] = {
        "",    "5x",  "1e99", "1e2", "1.5", "0x10", " 5", "5 ",  "+-5", "-2",  "1e15", "99999999999999999999",
        "NaN", "--5", "0 1",  "-+5", "++5", "+",    "-",  "+ 5", "00x", "0-1", "-0x1", "000099999999999999999999"};
    for (size_t i = 0; i < sizeof bad_integers / sizeof *bad_integers; i++)
        REFUSE("--top-k is '", "run", "--top-k", bad_integers[i]);
    const char *const bad_reals[] = {"",      "x",     "1x",  "1e99", "-1", "nan", "NaN", "inf",
                                     "1e400", "0x1p3", "1,5", " 1",   "-",  "e",   ".",   "1e"};
    for (size_t i = 0; i < sizeof bad_reals / sizeof *bad_reals; i++)
        REFUSE("--temperature is '", "run", "--temp", bad_reals[i]);
    const char *const bad_seeds[] = {"", "-1", "1.5", "18446744073709551616", "1e3", "0x1", "+", "+-1", "-0", "+x"};
    for (size_t i = 0; i < sizeof bad_seeds / sizeof *bad_seeds; i++) REFUSE("--seed is '", "run", "-s", bad_seeds[i]);
    const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0}, {"0.0", 0}, {".5", 0.5}, {"5.", 5}, {"+2", 2}, {"1e-3", 1e-3}, {"1E2", 100}, {"1e-400", 0}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ACCEPT("run", "--temperature", good[i].text);
        assert_true(o.values[BT_OPT_TEMPERATURE].real == good[i].value);
        bt_options_free(&o);
    }
    const struct {
        const char *text;
        int64_t value;
    } whole[] = {{"7", 7},  {"007", 7}, {"+5", 5},  {"+05", 5},  {"00", 0},
                 {"+0", 0}, {"-0", 0},  {"-1", -1}, {"-001", -1}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        int64_t v = 99;
        assert_true(bt_parse_i64(whole[i].text, &v));
        assert_true(v == whole[i].value);
        if (v < 0) continue;
        ACCEPT("run", "--top-k", whole[i].text);
        assert_true(o.values[BT_OPT_TOP_K].integer == v);
        bt_options_free(&o);
    }
    ACCEPT("run", "--seed", "+0018446744073709551615");
    assert_true(o.values[BT_OPT_SEED].u64 == UINT64_MAX);
    bt_options_free(&o);
    ACCEPT("run", "--top-k", "2147483648"); /* C37: above any vocabulary is off, not wrong */
    assert_true(o.values[BT_OPT_TOP_K].integer == 2147483648);
    bt_options_free(&o);
    REFUSE("--top-k is '", "run", "--top-k", "1000000000000001");
    REFUSE("from 0 to 1", "run", "--top-p", "1.5");
    REFUSE("from 0 to 1", "run", "--min-p", "2");
    REFUSE("from 0.001 to 1000", "run", "--repetition-penalty", "0");
    REFUSE("from 1 to 1024", "run", "--threads", "0");
}

static void choices_say_what_there_is(void **state)
{
    (void)state;
    const char *const later[] = {"cuda", "cuda:1", "vulkan", "vulkan:0", "webgpu", "wgpu:2", "metal"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        REFUSE("is not in this build, which has: cpu", "run", "--device", later[i]);
    REFUSE("--device is 'tpu'; it must be one of: cpu", "run", "--device", "tpu");
    REFUSE("must be one of", "run", "--device", "");
    REFUSE("must be one of", "run", "--device", "cpu cpu");
    REFUSE("--dtype bf16 is not in this build, which has: f32", "run", "--dtype", "bf16");
    REFUSE("--dtype f16 is not in this build", "run", "--dtype", "f16");
    REFUSE("must be one of: f32 bf16", "run", "--kv-dtype", "f64");
    ACCEPT("run", "--device", "cpu", "--dtype", "f32", "--kv-dtype", "bf16", "--cpu", "avx2");
    bt_options_free(&o);
}

static void environment_is_read_after_flags(void **state)
{
    (void)state;
    environment = (const char *const[]){"BALTORO_TOP_K=7",
                                        "BALTORO_TEMPERATURE=0.25",
                                        "BALTORO_MODEL=E",
                                        "BALTORO_QUIET=1",
                                        "BALTORO_IGNORE_EOS=0",
                                        "BALTORO_SEED=",
                                        NULL};
    ACCEPT("run", "--top-k", "3");
    assert_int_equal(o.values[BT_OPT_TOP_K].integer, 3);
    assert_int_equal(o.values[BT_OPT_TOP_K].source, BT_SOURCE_FLAG);
    assert_true(o.values[BT_OPT_TEMPERATURE].real == 0.25);
    assert_int_equal(o.values[BT_OPT_TEMPERATURE].source, BT_SOURCE_ENVIRONMENT);
    assert_string_equal(o.model, "E");
    assert_true(bt_option_is_set(&o, BT_OPT_QUIET));
    assert_false(bt_option_is_set(&o, BT_OPT_IGNORE_EOS));
    assert_false(bt_option_is_set(&o, BT_OPT_SEED)); /* empty is unset */
    bt_options_free(&o);
    ACCEPT("run", "M");
    assert_string_equal(o.model, "M");
    bt_options_free(&o);
    ACCEPT("run", "-m", "F");
    assert_string_equal(o.model, "F");
    bt_options_free(&o);
    environment = (const char *const[]){"BALTORO_TOP_K=7x", NULL};
    REFUSE("BALTORO_TOP_K is '7x'", "run");
    ACCEPT("tokenize"); /* it is no option of this command */
    bt_options_free(&o);
    environment = (const char *const[]){"BALTORO_QUIET=maybe", NULL};
    REFUSE("BALTORO_QUIET is 'maybe'; it must be 1 or 0", "run");
    environment = (const char *const[]){"BALTORO_QUIET=1", "BALTORO_VERBOSE=1", NULL};
    REFUSE("BALTORO_QUIET and BALTORO_VERBOSE exclude each other", "run");
    environment = (const char *const[]){"BALTORO_DEVICE=cuda", NULL};
    REFUSE("BALTORO_DEVICE cuda is not in this build", "run");
}

static void distances_are_right(void **state)
{
    (void)state;
    const struct {
        const char *a, *b;
        size_t d;
    } cases[] = {{"", "", 0},       {"a", "", 1},      {"", "ab", 2},
                 {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3},
                 {"rnu", "run", 1}, {"ab", "ba", 1},   {"abcd", "badc", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(distance(cases[i].a, strlen(cases[i].a), cases[i].b), cases[i].d);
    char longest[300];
    memset(longest, 'x', sizeof longest);
    assert_int_equal(distance(longest, sizeof longest, "y"), 40); /* cut, not overrun */
}

static void pages_hold_every_option(void **state)
{
    (void)state;
    const char *const shells[] = {"bash", "zsh", "fish"};
    bt_text man = {0}, pages[3] = {0};
    bt_help_man(&man);
    for (size_t i = 0; i < 3; i++) bt_help_completion(&pages[i], shells[i]);
    for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
        for (size_t i = 0; i < 3; i++) assert_non_null(strstr(pages[i].data, bt_option_specs[id].name));
        if (bt_option_specs[id].environment != NULL) assert_non_null(strstr(man.data, bt_option_specs[id].environment));
    }
    assert_null(strstr(man.data, "\n."
                                 "\n"));
    for (size_t i = 0; i < 3; i++) bt_text_free(&pages[i]);
    bt_text_free(&man);
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) {
        bt_text t = {0};
        bt_help_command(&t, c);
        for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
            char name[64];
            (void)snprintf(name, sizeof name, "--%s", bt_option_specs[id].name);
            if (is_of(&bt_option_specs[id], c)) assert_non_null(strstr(t.data, name));
        }
        size_t column = 0;
        for (const char *p = t.data; *p != '\0'; p++) {
            column = *p == '\n' ? 0 : column + 1;
            assert_true(column <= 82);
        }
        bt_text_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(tables_agree, forget),
        cmocka_unit_test_setup(commands_are_found, forget),
        cmocka_unit_test_setup(help_is_found, forget),
        cmocka_unit_test_setup(values_are_read, forget),
        cmocka_unit_test_setup(models_are_found, forget),
        cmocka_unit_test_setup(wrong_options_are_refused, forget),
        cmocka_unit_test_setup(numbers_are_strict, forget),
        cmocka_unit_test_setup(choices_say_what_there_is, forget),
        cmocka_unit_test_setup(environment_is_read_after_flags, forget),
        cmocka_unit_test_setup(distances_are_right, forget),
        cmocka_unit_test_setup(pages_hold_every_option, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
