/* What commands share; see app.h. */
#include "app/app.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "app/signals.h"
#include "base/error.h"
#include "base/file.h"
#include "base/machine.h"
#include "tool/files.h"

double bt_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- lines on stderr --------------------------------------------------------------------------------------------- */

static void erase_status(bt_app *a)
{
    if (a->is_showing) (void)fputs("\r\033[K", stderr);
    a->is_showing = false;
}

int bt_app_fail(bt_app *a, int code)
{
    erase_status(a);
    (void)fprintf(stderr, "baltoro: %s\n", a->error.message);
    return code;
}

int bt_app_fail_with(bt_app *a, int code, const char *format, ...)
{
    char text[BT_ERROR_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)bt_fail(&a->error, BT_ERR_USAGE, "%s", text);
    return bt_app_fail(a, code);
}

void bt_app_say(bt_app *a, const char *format, va_list args)
{
    char text[BT_ERROR_BYTES_MAX];
    bt_error line; /* bt_fail makes the text safe for a terminal */
    (void)vsnprintf(text, sizeof text, format, args);
    (void)bt_fail(&line, BT_ERR_USAGE, "%s", text);
    erase_status(a);
    (void)fprintf(stderr, "%s\n", line.message);
}

void bt_app_say_text(bt_app *a, const char *label, const char *text)
{
    enum { PIECE_BYTES = 1024 };
    bt_error piece; /* bt_fail makes it safe for a terminal */
    erase_status(a);
    (void)fputs(label, stderr);
    while (*text != '\0') {
        size_t n = strcspn(text, "\n\t"), size = n < PIECE_BYTES ? n : PIECE_BYTES;
        while (size > 1 && size < n && ((unsigned char)text[size] & 0xc0) == 0x80) size--; /* not through a character */
        (void)bt_fail(&piece, BT_ERR_USAGE, "%.*s", (int)size, text);
        (void)fputs(piece.message, stderr);
        text += size;
        if (size == n && *text != '\0') (void)fputc(*text++, stderr);
    }
    (void)fputc('\n', stderr);
}

void bt_app_note(bt_app *a, const char *format, ...)
{
    if (a->is_quiet) return;
    va_list args;
    va_start(args, format);
    bt_app_say(a, format, args);
    va_end(args);
}

void bt_app_detail(bt_app *a, const char *format, ...)
{
    if (!a->is_verbose) return;
    va_list args;
    va_start(args, format);
    bt_app_say(a, format, args);
    va_end(args);
}

void bt_app_note_lines(bt_app *a, const char *lines)
{
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\n");
        bt_app_note(a, "%.*s", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
}

void bt_app_status(bt_app *a, const char *format, ...)
{
    if (!a->has_status) return;
    erase_status(a);
    char text[200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    a->is_showing = text[0] != '\0';
    (void)fputs(text, stderr);
    (void)fflush(stderr);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

int bt_exit_code(bt_status st)
{
    switch (st) {
    case BT_OK:
        return BT_EXIT_DONE;
    case BT_ERR_USAGE:
        return BT_EXIT_USAGE;
    case BT_ERR_UNSUPPORTED:
        return BT_EXIT_MODEL;
    case BT_ERR_MEMORY:
        return BT_EXIT_MEMORY;
    case BT_ERR_CANCELLED:
        return BT_EXIT_INTERRUPTED;
    case BT_ERR_IO:
    case BT_ERR_FORMAT:
    case BT_ERR_CONTEXT:
    case BT_ERR_NUMERIC:
        break;
    }
    return BT_EXIT_FAILED;
}

/* While a model is opened, whatever is wrong with it is exit code 3; want of memory stays 4. */
static int fail_model(bt_app *a, bt_status st)
{
    return bt_app_fail(a, st == BT_ERR_MEMORY ? BT_EXIT_MEMORY : BT_EXIT_MODEL);
}

/* What is not seen on the command line. */
static void tell_environment(bt_app *a)
{
    for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
        const bt_option_value *v = &a->options->values[id];
        if (v->source == BT_SOURCE_ENVIRONMENT)
            bt_app_detail(a, "from the environment: --%s%s%s (%s)", bt_option_specs[id].name,
                          v->text != NULL ? " " : "", v->text != NULL ? v->text : "", bt_option_specs[id].environment);
    }
}

void bt_app_open(bt_app *a, const bt_options *o)
{
    memset(a, 0, sizeof *a);
    a->options = o;
    a->is_quiet = bt_option_is_set(o, BT_OPT_QUIET);
    a->is_verbose = bt_option_is_set(o, BT_OPT_VERBOSE);
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    a->has_status = !a->is_quiet && isatty(STDERR_FILENO) == 1 && term != NULL && strcmp(term, "dumb") != 0 &&
                    (no_color == NULL || no_color[0] == '\0');
    bt_sink_init(&a->out, STDOUT_FILENO);
    tell_environment(a);
}

int bt_app_close(bt_app *a, int code)
{
    erase_status(a);
    (void)bt_sink_flush(&a->out);
    if (a->out.state == BT_SINK_FAILED && code == BT_EXIT_DONE) {
        int number = a->out.error_number;
        code = number == ENOSPC || number == EDQUOT || number == EFBIG ? BT_EXIT_MEMORY : BT_EXIT_FAILED;
        (void)bt_app_fail_with(a, code, "stdout: cannot write: %s", strerror(number));
    }
    bt_signals_opening(NULL);
    bt_signals_forget();
    bt_session_close(a->session);
    bt_engine_close(a->engine);
    bt_model_close(a->model);
    bt_tokenizer_close(a->tokenizer);
    bt_free(a->path);
    return code;
}

int bt_app_print(bt_app *a, bt_text *t)
{
    int code = BT_EXIT_DONE;
    if (t->failed)
        code = bt_app_fail_with(a, BT_EXIT_MEMORY, "no memory for the report");
    else if (t->size > 0)
        (void)bt_sink_write(&a->out, t->data, t->size);
    bt_text_free(t);
    return code;
}

static int locate_demo(bt_app *a)
{
    const bt_command_spec *c = &bt_commands[a->options->command];
    a->path = bt_demo_model_find();
    if (a->path != NULL) return BT_EXIT_DONE;
    return bt_app_fail_with(a, BT_EXIT_USAGE,
                            "MODEL is missing, and the demo model that stands in for it is not beside this program "
                            "(../share/baltoro/demo-k2, "
                            "../models/demo-k2): name a folder, a .safetensors file, or ORG/NAME in the Hugging Face "
                            "cache; usage: baltoro %s %s",
                            c->name, c->arguments);
}

/* Whether what stands in MODEL's place was rather meant as run's prompt. */
static bool is_prompt(const bt_options *o)
{
    return o->command == BT_COMMAND_RUN && strpbrk(o->model, " \n") != NULL && !bt_option_is_set(o, BT_OPT_PROMPT) &&
           !bt_option_is_set(o, BT_OPT_PROMPT_FILE);
}

int bt_app_locate(bt_app *a)
{
    const bt_cache_env env = {
        .hf_hub_cache = getenv("HF_HUB_CACHE"),
        .huggingface_hub_cache = getenv("HUGGINGFACE_HUB_CACHE"),
        .hf_home = getenv("HF_HOME"),
        .xdg_cache_home = getenv("XDG_CACHE_HOME"),
        .home = getenv("HOME"),
    };
    const bt_options *o = a->options;
    if (a->path != NULL) return BT_EXIT_DONE;
    if (o->model == NULL) return locate_demo(a);
    bt_status st = bt_locate(o->model, &env, &a->path, &a->error);
    if (st == BT_OK) return BT_EXIT_DONE;
    if (st != BT_ERR_MEMORY && is_prompt(o))
        (void)bt_fail(&a->error, st, "%s (or, if that is a prompt, put -p before it)", a->error.message);
    return fail_model(a, st);
}

static void watch_files(bt_app *a)
{
    for (size_t i = 0; i < bt_tool_n_files(a->model); i++) {
        const char *path;
        const void *data;
        size_t size;
        bt_tool_file(a->model, i, &path, &data, &size);
        if (!bt_signals_watch(path, data, size)) break; /* the rest would die unnamed: no reason to refuse */
    }
}

static void tell_files(bt_app *a)
{
    uint64_t bytes = 0;
    size_t n = bt_tool_n_files(a->model);
    for (size_t i = 0; i < n; i++) {
        const char *path;
        const void *data;
        size_t size;
        bt_tool_file(a->model, i, &path, &data, &size);
        bytes += size;
    }
    bt_app_detail(a, "files: %zu, %s, opened in %.3f s", n, bt_format_size(bytes).text, a->load_seconds);
}

int bt_app_open_model(bt_app *a)
{
    int code = bt_app_locate(a);
    if (code != BT_EXIT_DONE) return code;
    double begin = bt_seconds();
    bt_app_status(a, "opening the model");
    bt_model_options options = {.ablate = NULL};
#ifdef BT_TEST_BUILD
    options.ablate = a->options->values[BT_OPT_ABLATE].text;
#endif
    bt_signals_opening(a->path);
    bt_status st = bt_model_open(a->path, &options, &a->model, &a->error);
    bt_signals_opening(NULL);
    if (st == BT_ERR_USAGE) return bt_app_fail(a, BT_EXIT_USAGE);
    if (st != BT_OK) return fail_model(a, st);
    watch_files(a);
    a->load_seconds = bt_seconds() - begin;
    bt_app_note(a, "model: %s, %.1f million parameters, %s", bt_model_family(a->model),
                (double)bt_model_n_parameters(a->model) / 1e6, a->path);
    tell_files(a);
    return BT_EXIT_DONE;
}

/* A vocabulary may have more rows than the tokenizer has ids, never fewer. */
static void tell_tokenizer(bt_app *a, const char *folder)
{
    size_t n = bt_tokenizer_n_vocab(a->tokenizer), n_model = a->model != NULL ? bt_model_n_vocab(a->model) : n;
    bt_app_detail(a, "tokenizer: %zu ids, %s", n, folder);
    if (n > n_model)
        bt_app_note(a, "warning: the tokenizer has %zu ids, the model %zu: see that its files are of this model", n,
                    n_model);
}

int bt_app_open_tokenizer(bt_app *a)
{
    int code = bt_app_locate(a);
    if (code != BT_EXIT_DONE) return code;
    const char *folder = a->path;
    char *parent = NULL;
    if (a->model != NULL) {
        folder = bt_model_folder(a->model);
    } else if (!bt_path_is_folder(a->path)) {
        folder = parent = bt_path_folder(a->path);
        if (parent == NULL) return bt_app_fail_with(a, BT_EXIT_MEMORY, "no memory for a path");
    }
    bt_status st = bt_tokenizer_open(folder, &a->tokenizer, &a->error);
    if (st == BT_OK) tell_tokenizer(a, folder);
    bt_free(parent);
    if (st == BT_OK) bt_app_note_lines(a, bt_tokenizer_warnings(a->tokenizer));
    return st == BT_OK ? BT_EXIT_DONE : fail_model(a, st);
}

bt_engine_options bt_app_engine_options(const bt_app *a, size_t context)
{
    const bt_option_value *v = a->options->values;
    int n_snapshots = (int)v[BT_OPT_STATE_SNAPSHOTS].integer;
    if (n_snapshots == 0 && bt_option_is_set(a->options, BT_OPT_STATE_SNAPSHOTS)) n_snapshots = -1; /* none, not 4 */
    bt_engine_options e = {
        .device = v[BT_OPT_DEVICE].text,
        .cpu_level = v[BT_OPT_CPU].text,
        .dtype = v[BT_OPT_DTYPE].text,
        .kv_dtype = v[BT_OPT_KV_DTYPE].text,
        .n_threads = (size_t)v[BT_OPT_THREADS].integer,
        .context = context,
        .batch = (size_t)v[BT_OPT_BATCH].integer,
        .n_slots = 1,
        .logit_rows = a->logit_rows,
        .n_state_snapshots = n_snapshots,
        .overcommit = bt_option_is_set(a->options, BT_OPT_OVERCOMMIT),
        .context_name = a->context_name != NULL ? a->context_name : "--context",
    };
    if (context == 0) e.context = (size_t)v[BT_OPT_CONTEXT].integer;
    return e;
}

/* More threads than CPUs are what was asked for, and slow: 64 on a quota of 2 ran 45 times slower (case C60). */
static void warn_of_threads(bt_app *a, size_t n_threads)
{
    bt_machine m;
    if (!bt_option_is_set(a->options, BT_OPT_THREADS)) return;
    bt_machine_read("", &m);
    double most = (double)m.n_affinity;
    if (m.cpu_quota > 0 && m.cpu_quota < most) most = m.cpu_quota < 1 ? 1 : m.cpu_quota;
    if (m.n_affinity > 0 && (double)n_threads > most)
        bt_app_note(a, "warning: %zu threads on %g CPUs wait for each other", n_threads, most);
}

int bt_app_plan(bt_app *a, size_t context, bt_memory_plan *plan)
{
    const bt_engine_options o = bt_app_engine_options(a, context);
    memset(plan, 0, sizeof *plan);
    bt_status st = bt_engine_plan(a->model, &o, plan, &a->error);
    if (plan->n_threads > 0) {
        bt_app_note(
            a, "memory: %s private (KV %s, state %s, scratch %s, weights %s, tables %s) and %s mapped; %s available",
            bt_format_size(plan->private_bytes).text, bt_format_size(plan->kv).text, bt_format_size(plan->state).text,
            bt_format_size(plan->scratch).text, bt_format_size(plan->weights_private).text,
            bt_format_size(plan->tables).text, bt_format_size(plan->mapped_bytes).text,
            bt_format_size(plan->available_bytes).text);
        warn_of_threads(a, plan->n_threads);
    }
    return st == BT_OK ? BT_EXIT_DONE : bt_app_fail(a, bt_exit_code(st));
}

int bt_app_open_engine(bt_app *a, size_t context)
{
    double begin = bt_seconds();
    bt_app_status(a, "loading");
    const bt_engine_options o = bt_app_engine_options(a, context);
    bt_status st = bt_engine_open(a->model, &o, &a->engine, &a->error);
    if (st == BT_OK) st = bt_session_open(a->engine, &a->session, &a->error);
    if (st != BT_OK) return bt_app_fail(a, bt_exit_code(st));
    a->load_seconds += bt_seconds() - begin;
    bt_app_status(a, "%s", "");
    size_t n = bt_engine_n_threads(a->engine);
    bt_app_detail(a, "engine: %s, %zu thread%s, ready after %.3f s", bt_engine_cpu_level(a->engine), n,
                  n == 1 ? "" : "s", a->load_seconds);
    return BT_EXIT_DONE;
}
