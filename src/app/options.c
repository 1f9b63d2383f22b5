/*
 * From argv and the environment to values, by the tables. GNU style: --name VALUE, --name=VALUE, -n VALUE, -nVALUE,
 * flags run together (-qv), "--" ends the options. A flag beats its environment name. The last of two equal options
 * counts.
 *
 * Nothing is guessed: an unknown name is refused with the nearest one, a number must be all of its text and in range,
 * and an option of another command is refused by naming that command.
 */
#include "app/options.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Digits behind zeros, which people type and JSON does not have. */
static bool parse_digits(const char *text, uint64_t *v)
{
    size_t n = strlen(text), n_zeros = strspn(text, "0");
    if (n_zeros == n && n > 0) n_zeros--; /* the last one is the number */
    return bt_json_u64(text + n_zeros, n - n_zeros, v);
}

static bool parse_u64(const char *text, uint64_t *v)
{
    return parse_digits(text[0] == '+' ? text + 1 : text, v);
}

bool bt_parse_i64(const char *text, int64_t *v)
{
    uint64_t magnitude;
    bool negative = text[0] == '-';
    if (!(negative ? parse_digits(text + 1, &magnitude) : parse_u64(text, &magnitude))) return false;
    if (magnitude > INT64_MAX) return false;
    *v = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

/* As JSON writes numbers, and also ".5", "5." and "+5", which people type. Never hexadecimal, infinite or NaN. */
bool bt_parse_real(const char *text, double *v)
{
    if (text[0] == '\0' || strlen(text) != strspn(text, "0123456789.eE+-")) return false;
    char *end;
    double x = strtod(text, &end);
    if (*end != '\0' || !isfinite(x)) return false;
    *v = x;
    return true;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool is_of(const bt_option_spec *s, bt_command c)
{
    return (s->commands >> c & 1u) != 0;
}

/* True if `word` [n] is one of the blank-separated `words`. */
static bool is_among(const char *words, const char *word, size_t n)
{
    for (const char *w = words; w != NULL && *w != '\0';) {
        size_t size = strcspn(w, " ");
        if (size == n && memcmp(w, word, n) == 0) return true;
        w += size + strspn(w + size, " ");
    }
    return false;
}

static bool is_word_of(const bt_option_spec *s, const char *word, size_t n)
{
    if (n > 2 && word[1] == '-' && strlen(s->name) == n - 2 && memcmp(s->name, word + 2, n - 2) == 0) return true;
    return is_among(s->synonyms, word, n);
}

/* The option of a whole word, dashes included: "--temp" [n], "-hf"; BT_N_OPTIONS: none. A name may mean different
 * things to different commands (--dtype of synth is the weights'): the command's own option wins. */
static bt_option find_word(bt_command c, const char *word, size_t n)
{
    bt_option found = BT_N_OPTIONS;
    for (bt_option i = 0; i < BT_N_OPTIONS; i++) {
        if (!is_word_of(&bt_option_specs[i], word, n)) continue;
        if (is_of(&bt_option_specs[i], c)) return i;
        if (found == BT_N_OPTIONS) found = i;
    }
    return found;
}

static bt_option find_letter(bt_command c, char letter)
{
    bt_option found = BT_N_OPTIONS;
    for (bt_option i = 0; i < BT_N_OPTIONS; i++) {
        if (letter == '\0' || bt_option_specs[i].letter != letter) continue;
        if (is_of(&bt_option_specs[i], c)) return i;
        if (found == BT_N_OPTIONS) found = i;
    }
    return found;
}

/* Edit distance of a [n_a] and b, where swapping neighbours is one step; long words are cut. */
static size_t distance(const char *a, size_t n_a, const char *b)
{
    enum { LONGEST = 40 };
    size_t rows[3][LONGEST + 1], n_b = strlen(b);
    if (n_a > LONGEST) n_a = LONGEST;
    if (n_b > LONGEST) n_b = LONGEST;
    for (size_t j = 0; j <= n_b; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i - 1) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two_above[j - 2] + 1 < best)
                best = two_above[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n_a % 3][n_b];
}

/* Keeps the nearer of *best and `name`; a name that `word` begins counts as near. */
static void consider(const char *word, size_t n, const char *name, const char **best, size_t *nearest)
{
    size_t d = n >= 3 && strncmp(word, name, n) == 0 ? 1 : distance(word, n, name);
    if (d <= 1 + n / 4 && d < *nearest) {
        *nearest = d;
        *best = name;
    }
}

static bt_status fail_unknown_option(bt_command c, const char *word, size_t n, bt_error *e)
{
    size_t dashes = n >= 2 && word[1] == '-' ? 2 : 1, nearest = SIZE_MAX;
    const char *best = NULL;
    for (bt_option i = 0; i < BT_N_OPTIONS; i++)
        if (is_of(&bt_option_specs[i], c))
            consider(word + dashes, n - dashes, bt_option_specs[i].name, &best, &nearest);
    if (best != NULL) return bt_fail(e, BT_ERR_USAGE, "unknown option %.*s; did you mean --%s?", (int)n, word, best);
    return bt_fail(e, BT_ERR_USAGE, "unknown option %.*s; `baltoro help %s` lists the options", (int)n, word,
                   bt_commands[c].name);
}

static bt_status find_command(const char *word, bt_command *out, bt_error *e)
{
    size_t nearest = SIZE_MAX;
    const char *best = NULL;
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) {
        if (strcmp(word, bt_commands[c].name) == 0) {
            *out = c;
            return BT_OK;
        }
        consider(word, strlen(word), bt_commands[c].name, &best, &nearest);
    }
    for (const char *const *p = bt_commands_planned; *p != NULL; p++)
        if (strcmp(word, *p) == 0)
            return bt_fail(e, BT_ERR_USAGE, "the command %s is not in this build; `baltoro help` lists those that are",
                           word);
    if (best != NULL) return bt_fail(e, BT_ERR_USAGE, "there is no command %s; did you mean %s?", word, best);
    return bt_fail(e, BT_ERR_USAGE, "there is no command %s; `baltoro help` lists the commands", word);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

enum { ORIGIN_BYTES = 48 };

/* What messages call the source: "--top-k" or "BALTORO_TOP_K". */
static const char *origin_of(bt_option id, bt_source source, char text[ORIGIN_BYTES])
{
    const bt_option_spec *s = &bt_option_specs[id];
    if (source == BT_SOURCE_ENVIRONMENT) return s->environment;
    (void)snprintf(text, ORIGIN_BYTES, "--%s", s->name);
    return text;
}

static bt_status check_choice(const bt_option_spec *s, const char *origin, const char *text, bt_error *e)
{
    size_t n = strcspn(text, ":"); /* a device may carry a number: cuda:1 */
    if (is_among(s->choices, text, strlen(text))) return BT_OK;
    if (is_among(s->planned, text, n))
        return bt_fail(e, BT_ERR_USAGE, "%s %s is not in this build, which has: %s", origin, text, s->choices);
    return bt_fail(e, BT_ERR_USAGE, "%s is '%s'; it must be one of: %s", origin, text, s->choices);
}

static bt_status set_value(bt_options *o, bt_option id, bt_source source, const char *text, bt_error *e)
{
    const bt_option_spec *s = &bt_option_specs[id];
    bt_option_value v = {.source = source, .text = text};
    bt_status st = BT_OK;
    char buffer[ORIGIN_BYTES];
    const char *origin = origin_of(id, source, buffer);
    switch (s->kind) {
    case BT_KIND_FLAG:
    case BT_KIND_TEXT:
        break;
    case BT_KIND_LIST:
        o->stops[o->n_stops++] = text;
        break;
    case BT_KIND_FILE:
        if (text[0] == '\0') st = bt_fail(e, BT_ERR_USAGE, "%s is empty; it must name a file or folder", origin);
        break;
    case BT_KIND_CHOICE:
        st = check_choice(s, origin, text, e);
        break;
    case BT_KIND_INTEGER:
        if (!bt_parse_i64(text, &v.integer) || (double)v.integer < s->min || (double)v.integer > s->max)
            st = bt_fail(e, BT_ERR_USAGE, "%s is '%s'; it must be a whole number from %.0f to %.0f", origin, text,
                         s->min, s->max);
        break;
    case BT_KIND_U64:
        if (!parse_u64(text, &v.u64))
            st = bt_fail(e, BT_ERR_USAGE, "%s is '%s'; it must be a whole number from 0 to 2^64 - 1", origin, text);
        break;
    case BT_KIND_REAL:
        if (!bt_parse_real(text, &v.real) || v.real < s->min || v.real > s->max)
            st =
                bt_fail(e, BT_ERR_USAGE, "%s is '%s'; it must be a number from %g to %g", origin, text, s->min, s->max);
        break;
    }
    if (st == BT_OK) o->values[id] = v;
    return st;
}

static bt_status set_flag_from_environment(bt_options *o, bt_option id, const char *text, bt_error *e)
{
    if (is_among("0 no false off", text, strlen(text))) return BT_OK;
    if (is_among("1 yes true on", text, strlen(text))) return set_value(o, id, BT_SOURCE_ENVIRONMENT, text, e);
    return bt_fail(e, BT_ERR_USAGE, "%s is '%s'; it must be 1 or 0", bt_option_specs[id].environment, text);
}

static bt_status read_environment(bt_options *o, bt_getenv_fn env, bt_error *e)
{
    for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
        const bt_option_spec *s = &bt_option_specs[id];
        if (s->environment == NULL || !is_of(s, o->command) || bt_option_is_set(o, id)) continue;
        const char *text = env(s->environment);
        if (text == NULL || text[0] == '\0') continue;
        bt_status st = s->kind == BT_KIND_FLAG ? set_flag_from_environment(o, id, text, e)
                                               : set_value(o, id, BT_SOURCE_ENVIRONMENT, text, e);
        if (st != BT_OK) return st;
    }
    return BT_OK;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

typedef struct bt_words {
    char *const *at, *const *end;
} bt_words;

static bt_status check_command_of(bt_command c, bt_option id, const char *word, size_t n, bt_error *e)
{
    const bt_option_spec *s = &bt_option_specs[id];
    if (is_of(s, c)) return BT_OK;
    bt_fault_list others = {.n_total = 0};
    for (bt_command k = 0; k < BT_N_COMMANDS; k++)
        if (is_of(s, k)) bt_fault_add(&others, "%s", bt_commands[k].name);
    return bt_fail(e, BT_ERR_USAGE, "%.*s is no option of %s; it belongs to %s", (int)n, word, bt_commands[c].name,
                   bt_fault_text(&others));
}

/* One "--name", "--name=value" or "-hf". */
static bt_status take_word(bt_options *o, const char *word, size_t n, bt_words *rest, bt_error *e)
{
    bt_option id = find_word(o->command, word, n);
    if (id == BT_N_OPTIONS) return fail_unknown_option(o->command, word, n, e);
    bt_status st = check_command_of(o->command, id, word, n, e);
    if (st != BT_OK) return st;
    const bt_option_spec *s = &bt_option_specs[id];
    if (s->kind == BT_KIND_FLAG) {
        if (word[n] == '=') return bt_fail(e, BT_ERR_USAGE, "%.*s takes no value", (int)n, word);
        return set_value(o, id, BT_SOURCE_FLAG, "1", e);
    }
    if (word[n] == '=') return set_value(o, id, BT_SOURCE_FLAG, word + n + 1, e);
    if (rest->at == rest->end) return bt_fail(e, BT_ERR_USAGE, "%s needs a value: %s", word, s->argument);
    return set_value(o, id, BT_SOURCE_FLAG, *rest->at++, e);
}

/* "-n 5", "-n5", or flags run together. */
static bt_status take_letters(bt_options *o, const char *word, bt_words *rest, bt_error *e)
{
    for (size_t i = 1; word[i] != '\0'; i++) {
        const char shown[3] = {'-', word[i], '\0'};
        bt_option id = find_letter(o->command, word[i]);
        if (id == BT_N_OPTIONS) return fail_unknown_option(o->command, word, strlen(word), e);
        bt_status st = check_command_of(o->command, id, shown, 2, e);
        if (st != BT_OK) return st;
        const bt_option_spec *s = &bt_option_specs[id];
        if (s->kind == BT_KIND_FLAG) {
            st = set_value(o, id, BT_SOURCE_FLAG, "1", e);
            if (st != BT_OK) return st;
            continue;
        }
        if (word[i + 1] != '\0') return set_value(o, id, BT_SOURCE_FLAG, word + i + 1, e);
        if (rest->at == rest->end) return bt_fail(e, BT_ERR_USAGE, "%s needs a value: %s", shown, s->argument);
        return set_value(o, id, BT_SOURCE_FLAG, *rest->at++, e);
    }
    return BT_OK;
}

static bt_status take_arguments(bt_options *o, bt_words words, bt_error *e)
{
    bool options_end = false;
    while (words.at < words.end) {
        const char *word = *words.at++;
        bt_status st = BT_OK;
        if (options_end || word[0] != '-' || word[1] == '\0') {
            o->arguments[o->n_arguments++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_end = true;
        } else {
            size_t n = strcspn(word, "=");
            bool is_word = word[1] == '-' || find_word(o->command, word, n) != BT_N_OPTIONS;
            st = is_word ? take_word(o, word, n, &words, e) : take_letters(o, word, &words, e);
        }
        if (st != BT_OK) return st;
    }
    return BT_OK;
}

/* Sorts out which argument is MODEL. An environment name gives it only where no argument does. */
static bt_status settle_arguments(bt_options *o, bt_error *e)
{
    const bt_command_spec *c = &bt_commands[o->command];
    const bt_option_value *given = &o->values[BT_OPT_MODEL];
    size_t n_max = c->n_arguments_max;
    if (c->takes_model && given->source != BT_SOURCE_FLAG && o->n_arguments > 0) {
        o->model = o->arguments[0];
        o->n_arguments--;
        memmove(o->arguments, o->arguments + 1, o->n_arguments * sizeof *o->arguments);
    } else if (c->takes_model) {
        o->model = given->text;
    }
    if (c->takes_model) n_max--;
    if (o->n_arguments > n_max)
        return bt_fail(e, BT_ERR_USAGE, "unexpected argument '%s'; usage: baltoro %s %s%s", o->arguments[n_max],
                       c->name, c->arguments, o->command == BT_COMMAND_RUN ? " -p TEXT" : "");
    return BT_OK;
}

/* A flag beats the other one's environment name too. */
static bt_status settle_volume(bt_options *o, bt_error *e)
{
    bt_option_value *quiet = &o->values[BT_OPT_QUIET], *verbose = &o->values[BT_OPT_VERBOSE];
    char buffers[2][ORIGIN_BYTES];
    if (quiet->source == BT_SOURCE_NONE || verbose->source == BT_SOURCE_NONE) return BT_OK;
    if (quiet->source == verbose->source)
        return bt_fail(e, BT_ERR_USAGE, "%s and %s exclude each other",
                       origin_of(BT_OPT_QUIET, quiet->source, buffers[0]),
                       origin_of(BT_OPT_VERBOSE, verbose->source, buffers[1]));
    (quiet->source == BT_SOURCE_ENVIRONMENT ? quiet : verbose)->source = BT_SOURCE_NONE;
    return BT_OK;
}

static bt_status parse_rest(bt_options *o, bt_words words, bt_getenv_fn env, bt_error *e)
{
    bt_status st = take_arguments(o, words, e);
    if (st != BT_OK || bt_option_is_set(o, BT_OPT_HELP)) return st;
    st = read_environment(o, env, e);
    if (st != BT_OK) return st;
    st = settle_volume(o, e);
    if (st == BT_OK) st = settle_arguments(o, e);
    if (st != BT_OK || o->command != BT_COMMAND_HELP || o->n_arguments == 0) return st;
    return find_command(o->arguments[0], &o->topic, e);
}

bt_status bt_options_parse(int argc, char *const *argv, bt_getenv_fn env, bt_options *o, bt_error *e)
{
    assert(argc >= 0);
    *o = (bt_options){.command = BT_COMMAND_HELP, .topic = BT_N_COMMANDS};
    if (argc == 0) return bt_fail(e, BT_ERR_USAGE, "a command is missing; `baltoro help` lists them");
    bt_status st = BT_OK;
    if (strcmp(argv[0], "--version") == 0) {
        o->command = BT_COMMAND_VERSION;
    } else if (strcmp(argv[0], "--help") != 0 && strcmp(argv[0], "-h") != 0) {
        if (argv[0][0] == '-')
            return bt_fail(e, BT_ERR_USAGE, "the command comes first, then %s; `baltoro help` lists the commands",
                           argv[0]);
        st = find_command(argv[0], &o->command, e);
    }
    if (st != BT_OK) return st;
    o->arguments = bt_calloc((size_t)argc, sizeof *o->arguments);
    o->stops = bt_calloc((size_t)argc, sizeof *o->stops);
    if (o->arguments == NULL || o->stops == NULL) {
        bt_options_free(o);
        return bt_fail(e, BT_ERR_MEMORY, "no memory for %d arguments", argc);
    }
    st = parse_rest(o, (bt_words){.at = argv + 1, .end = argv + argc}, env, e);
    if (st != BT_OK) bt_options_free(o);
    return st;
}

void bt_options_free(bt_options *o)
{
    bt_free(o->arguments);
    bt_free(o->stops);
    o->arguments = o->stops = NULL;
}
