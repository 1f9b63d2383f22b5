/* logits: given ids in, a safetensors file out. */
#include <string.h>

#include "app/app.h"
#include "app/signals.h"
#include "base/arena.h"
#include "base/error.h"
#include "tool/files.h"
#include "tool/ids.h"
#include "tool/logits.h"

#define IDS_BYTES_MAX ((size_t)1 << 30)

static bool keep_going(void *user, size_t n_done, size_t n_total)
{
    bt_app_status(user, "%zu of %zu tokens", n_done, n_total);
    return !bt_signals_interrupted();
}

/* Where the ids came from, before what is wrong with them. */
static bt_status fail_ids(bt_app *a, bt_status st)
{
    const char *file = a->options->values[BT_OPT_IDS_FILE].text;
    const char *source = file == NULL ? "--ids" : strcmp(file, "-") == 0 ? "stdin" : file;
    return bt_fail_in(&a->error, st == BT_ERR_FORMAT ? BT_ERR_USAGE : st, "%s", source);
}

static bt_status read_ids(bt_app *a, int32_t **ids, size_t *n)
{
    const bt_option_value *list = &a->options->values[BT_OPT_IDS], *file = &a->options->values[BT_OPT_IDS_FILE];
    if (file->text == NULL) {
        bt_status st = bt_ids_parse(list->text, strlen(list->text), ids, n, &a->error);
        return st == BT_OK ? st : fail_ids(a, st);
    }
    char *text;
    size_t size;
    bt_status st = bt_read_input(file->text, IDS_BYTES_MAX, &text, &size, &a->error);
    if (st != BT_OK) return st;
    st = bt_ids_parse(text, size, ids, n, &a->error);
    bt_free(text);
    return st == BT_OK ? st : fail_ids(a, st);
}

static int write_logits(bt_app *a, const int32_t *ids, size_t n)
{
    const char *path = a->options->values[BT_OPT_OUTPUT].text;
    const bt_hook hook = {.keep_going = keep_going, .user = a};
    size_t chunk = (size_t)a->options->values[BT_OPT_CHUNK].integer, n_odd = 0, n_vocab = bt_model_n_vocab(a->model);
    double begin = bt_seconds();
    bt_signals_defer(true); /* the half-written file must go */
    bt_status st = bt_logits_write(a->session, n_vocab, ids, n, chunk, path, &hook, &n_odd, &a->error);
    if (st == BT_ERR_CANCELLED)
        return bt_app_fail_with(a, BT_EXIT_INTERRUPTED, "interrupted; %s was not written", path);
    if (st != BT_OK) return bt_app_fail(a, bt_exit_code(st));
    double seconds = bt_seconds() - begin;
    bt_app_note(a, "logits of %zu tokens, %.2f s, %.1f tokens/s, in %s", n, seconds, (double)n / seconds, path);
    int code = BT_EXIT_DONE;
    if (n_odd > 0)
        code = bt_app_fail_with(a, BT_EXIT_FAILED, "%zu of the logits in %s are NaN or infinite", n_odd, path);
    if (!bt_option_is_set(a->options, BT_OPT_JSON)) return code;
    bt_text t = {0};
    bt_text_puts(&t, "{\"output\": ");
    bt_text_json_string(&t, path, strlen(path));
    bt_text_printf(&t, ", \"tokens\": %zu, \"vocabulary\": %zu, \"not_finite\": %zu, \"seconds\": ", n, n_vocab, n_odd);
    bt_text_json_f64(&t, seconds);
    bt_text_puts(&t, "}\n");
    int printed = bt_app_print(a, &t);
    return printed != BT_EXIT_DONE ? printed : code;
}

static int check_options(bt_app *a)
{
    const bt_options *o = a->options;
    bool has_list = bt_option_is_set(o, BT_OPT_IDS), has_file = bt_option_is_set(o, BT_OPT_IDS_FILE);
    if (!has_list && !has_file)
        return bt_app_fail_with(a, BT_EXIT_USAGE, "ids are missing: --ids 1,2,3 or --ids-file FILE");
    if (has_list && has_file) return bt_app_fail_with(a, BT_EXIT_USAGE, "--ids and --ids-file exclude each other");
    if (!bt_option_is_set(o, BT_OPT_OUTPUT))
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--output is missing: the safetensors file to write");
    if (strcmp(o->values[BT_OPT_OUTPUT].text, "-") == 0)
        return bt_app_fail_with(a, BT_EXIT_USAGE,
                                "--output - is no file: logits are written under another name and renamed once whole; "
                                "name a file, or write ./- for one of that name");
    return BT_EXIT_DONE;
}

/* A slip of the fingers must not cost a checkpoint, or the ids. */
static int check_output(bt_app *a)
{
    const char *path = a->options->values[BT_OPT_OUTPUT].text, *ids = a->options->values[BT_OPT_IDS_FILE].text;
    if (bt_tool_is_model_file(a->model, path))
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--output %s is one of the model's own files; name another", path);
    if (bt_tool_is_same_file(path, ids))
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--output %s is the list of ids; name another file", path);
    return BT_EXIT_DONE;
}

int bt_command_logits(const bt_options *o)
{
    bt_app a;
    int32_t *ids = NULL;
    size_t n = 0;
    bt_memory_plan plan;
    bt_app_open(&a, o);
    int code = check_options(&a);
    if (code == BT_EXIT_DONE) {
        bt_status st = read_ids(&a, &ids, &n);
        if (st != BT_OK) code = bt_app_fail(&a, bt_exit_code(st));
    }
    if (code == BT_EXIT_DONE) code = bt_app_open_model(&a);
    if (code == BT_EXIT_DONE && bt_ids_check(ids, n, bt_model_n_vocab(a.model), &a.error) != BT_OK)
        code = bt_app_fail(&a, bt_exit_code(fail_ids(&a, BT_ERR_USAGE)));
    if (code == BT_EXIT_DONE) code = check_output(&a);
    a.logit_rows = BT_APP_SCORE_ROWS;
    a.context_name = bt_option_is_set(o, BT_OPT_IDS) ? "the number of --ids" : "the number of ids in --ids-file";
    if (code == BT_EXIT_DONE) code = bt_app_plan(&a, n, &plan);
    if (code == BT_EXIT_DONE) code = bt_app_open_engine(&a, n);
    if (code == BT_EXIT_DONE) code = write_logits(&a, ids, n);
    bt_free(ids);
    return bt_app_close(&a, code);
}
