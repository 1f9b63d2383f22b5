/* bench: how fast a model is here, and how far from the machine's limits. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/app.h"
#include "app/signals.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "tool/bench.h"
#include "tool/files.h"
#include "tool/ids.h"

#define N_PROMPT_DEFAULT 512
#define N_DECODE_DEFAULT 64
#define N_RUNS_DEFAULT   5
#define RESULT_BYTES_MAX ((size_t)256 << 20)

static bool keep_going(void *user, const char *doing)
{
    bt_app_status(user, "%s", doing);
    return true; /* an interrupt ends the program at once: nothing would be lost */
}

static void opened(void *user, const bt_model *m)
{
    bt_app *a = user;
    bt_signals_forget();
    bt_signals_opening(m == NULL ? a->path : NULL); /* none is open: the next thing to happen is that one is opened */
    for (size_t i = 0; m != NULL && i < bt_tool_n_files(m); i++) {
        const char *path;
        const void *data;
        size_t size;
        bt_tool_file(m, i, &path, &data, &size);
        if (!bt_signals_watch(path, data, size)) break;
    }
}

static size_t number(const bt_app *a, bt_option id, size_t otherwise)
{
    return bt_option_is_set(a->options, id) ? (size_t)a->options->values[id].integer : otherwise;
}

static int ascending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* "0,4096" in ascending order, each once. */
static int read_depths(bt_app *a, size_t **depths, size_t *n)
{
    const char *text = a->options->values[BT_OPT_N_DEPTH].text;
    int32_t *numbers = NULL;
    size_t n_numbers = 0;
    bt_status st =
        bt_ids_parse(text != NULL ? text : "0", text != NULL ? strlen(text) : 1, &numbers, &n_numbers, &a->error);
    if (st == BT_ERR_MEMORY) return bt_app_fail(a, BT_EXIT_MEMORY);
    if (st != BT_OK || n_numbers == 0) {
        bt_free(numbers);
        return bt_app_fail_with(a, BT_EXIT_USAGE,
                                "--n-depth: '%s' is no list of depths: whole numbers separated by commas, as in 0,4096",
                                text != NULL ? text : "");
    }
    *depths = bt_calloc(n_numbers, sizeof **depths);
    *n = 0;
    for (size_t i = 0; *depths != NULL && i < n_numbers; i++) (*depths)[i] = (size_t)numbers[i];
    bt_free(numbers);
    if (*depths == NULL) return bt_app_fail_with(a, BT_EXIT_MEMORY, "no memory for %zu depths", n_numbers);
    qsort(*depths, n_numbers, sizeof **depths, ascending);
    for (size_t i = 0; i < n_numbers; i++)
        if (i == 0 || (*depths)[i] != (*depths)[*n - 1]) (*depths)[(*n)++] = (*depths)[i];
    return BT_EXIT_DONE;
}

/* ---- where the result goes -------------------------------------------------------------------------------------- */

/* A slip of the fingers must not cost a checkpoint. Which files are the model's own only the model knows. */
static int check_no_model_file(bt_app *a, const char *path)
{
    bt_model *m = NULL;
    bt_signals_opening(a->path);
    bt_status st = bt_model_open(a->path, NULL, &m, &a->error);
    bt_signals_opening(NULL);
    if (st != BT_OK) return bt_app_fail(a, st == BT_ERR_MEMORY ? BT_EXIT_MEMORY : BT_EXIT_MODEL);
    bool is_own = bt_tool_is_model_file(m, path);
    bt_model_close(m);
    if (!is_own) return BT_EXIT_DONE;
    return bt_app_fail_with(a, BT_EXIT_USAGE, "--output %s is one of the model's own files; name another", path);
}

/* What can go wrong with --output is told before the work. A device or FIFO is left alone until there is a result. */
static int check_output(bt_app *a)
{
    const char *path = a->options->values[BT_OPT_BENCH_OUTPUT].text;
    bt_path_kind kind;
    bt_output *probe = NULL;
    if (path == NULL) return BT_EXIT_DONE;
    if (strcmp(path, "-") == 0)
        return bt_app_fail_with(
            a, BT_EXIT_USAGE,
            "--output - is no file: --json alone prints the result to stdout; name a file or folder, "
            "or write ./- for one of that name");
    bt_status st = bt_path_look(path, &kind, &a->error);
    if (st != BT_OK) return bt_app_fail(a, bt_exit_code(st));
    if (kind == BT_PATH_FOLDER) {
        if (access(path, W_OK | X_OK) == 0) return BT_EXIT_DONE;
        return bt_app_fail_with(a, BT_EXIT_FAILED, "%s: cannot create a file in it: %s", path, strerror(errno));
    }
    size_t n = strlen(path);
    if (n > 0 && path[n - 1] == '/')
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--output %s is no folder; make it first", path);
    if (kind == BT_PATH_FILE) {
        struct stat info;
        if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) return BT_EXIT_DONE;
        int code = check_no_model_file(a, path);
        if (code != BT_EXIT_DONE) return code;
    }
    st = bt_output_open(path, &probe, &a->error);
    bt_output_abandon(probe);
    return st == BT_OK ? BT_EXIT_DONE : bt_app_fail(a, bt_exit_code(st));
}

/* The first name of this result that nothing in the folder has, and a file for it. A bench that ends at the same time
 * takes another one. */
static bt_status open_in_folder(const bt_bench *b, const char *folder, char **path, bt_output **file, bt_error *e)
{
    for (size_t n = 1;; n++) {
        bt_text name = {0};
        bool is_taken = false;
        bt_bench_file_name(b, n, &name);
        *path = bt_text_ok(&name) ? bt_path_join(folder, name.data) : NULL;
        bt_text_free(&name);
        if (*path == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a path");
        bt_status st = bt_output_open_new(*path, &is_taken, file, e);
        if (!is_taken) return st;
        bt_free(*path);
        *path = NULL;
    }
}

/* --output: a folder, where the file is named by what was measured, or a file. */
static int write_result(bt_app *a, const bt_bench *b, const bt_text *json)
{
    const char *output = a->options->values[BT_OPT_BENCH_OUTPUT].text;
    bt_output *file = NULL;
    char *path = NULL; /* of a file in a folder */
    if (output == NULL) return BT_EXIT_DONE;
    bt_status st = bt_path_is_folder(output) ? open_in_folder(b, output, &path, &file, &a->error)
                                             : bt_output_open(output, &file, &a->error);
    if (st == BT_OK) st = bt_output_write(file, json->data, json->size, &a->error);
    if (st == BT_OK)
        st = bt_output_commit(file, &a->error);
    else
        bt_output_abandon(file);
    if (st == BT_OK) bt_app_note(a, "written to %s", path != NULL ? path : output);
    bt_free(path);
    return st == BT_OK ? BT_EXIT_DONE : bt_app_fail(a, bt_exit_code(st));
}

/* Prints the report even if it could not be written: it may have taken hours. */
static int report(bt_app *a, const bt_bench *b, const bt_bench_past *then)
{
    bt_text json = {0}, page = {0};
    bool wants_json = bt_option_is_set(a->options, BT_OPT_JSON);
    bt_bench_print_json(&json, b, then);
    if (!wants_json) bt_bench_print(&page, b);
    if (!wants_json && then != NULL) bt_bench_print_comparison(&page, b, then);
    int code =
        bt_text_ok(&json) ? write_result(a, b, &json) : bt_app_fail_with(a, BT_EXIT_MEMORY, "no memory for the report");
    int printed = bt_app_print(a, wants_json ? &json : &page);
    bt_text_free(wants_json ? &page : &json);
    return code != BT_EXIT_DONE ? code : printed;
}

/* ---- the command ------------------------------------------------------------------------------------------------ */

static int measure(bt_app *a, const size_t *depths, size_t n_depths, const bt_bench_past *then)
{
    bt_model_options model = {.ablate = NULL};
#ifdef BT_TEST_BUILD
    model.ablate = a->options->values[BT_OPT_ABLATE].text;
#endif
    bt_bench b;
    bt_bench_options o = {
        .path = a->path,
        .model = &model,
        .engine = bt_app_engine_options(a, 0),
        .n_prompt = number(a, BT_OPT_N_PROMPT, N_PROMPT_DEFAULT),
        .n_decode = number(a, BT_OPT_N_GEN, N_DECODE_DEFAULT),
        .n_runs = number(a, BT_OPT_REPETITIONS, N_RUNS_DEFAULT),
        .depths = depths,
        .n_depths = n_depths,
        .with_cold = !bt_option_is_set(a->options, BT_OPT_WARM_ONLY),
        .keep_going = keep_going,
        .opened = opened,
        .user = a,
    };
    if (o.n_prompt == 0 && o.n_decode == 0)
        return bt_app_fail_with(a, BT_EXIT_USAGE, "-p 0 and -n 0 leave nothing to measure");
    o.engine.context_name = o.n_prompt > o.n_decode ? "--n-depth plus --n-prompt" : "--n-depth plus --n-gen";
    bt_signals_opening(a->path);
    bt_status st = bt_bench_run(&o, &b, &a->error);
    bt_signals_opening(NULL);
    int code = st == BT_ERR_FORMAT || st == BT_ERR_IO ? BT_EXIT_MODEL : bt_exit_code(st);
    if (st == BT_OK)
        code = report(a, &b, then);
    else
        (void)bt_app_fail(a, code);
    bt_bench_free(&b);
    return code;
}

static int read_past(bt_app *a, bt_bench_past *past)
{
    const char *file = a->options->values[BT_OPT_COMPARE].text;
    char *text = NULL;
    size_t size = 0;
    bt_status st = bt_read_file(file, RESULT_BYTES_MAX, &text, &size, &a->error);
    if (st == BT_OK) st = bt_bench_past_open(file, text, size, past, &a->error);
    bt_free(text);
    return st == BT_OK ? BT_EXIT_DONE : bt_app_fail(a, bt_exit_code(st));
}

int bt_command_bench(const bt_options *o)
{
    bt_app a;
    size_t *depths = NULL, n_depths = 0;
    bt_bench_past past = {0};
    bool compares = bt_option_is_set(o, BT_OPT_COMPARE);
    bt_app_open(&a, o);
    int code = bt_app_locate(&a);
    if (code == BT_EXIT_DONE) code = read_depths(&a, &depths, &n_depths);
    if (code == BT_EXIT_DONE && compares) code = read_past(&a, &past); /* what cannot be read is told before the work */
    if (code == BT_EXIT_DONE) code = check_output(&a);
    if (code == BT_EXIT_DONE) code = measure(&a, depths, n_depths, compares ? &past : NULL);
    bt_free(depths);
    bt_bench_past_close(&past);
    return bt_app_close(&a, code);
}
