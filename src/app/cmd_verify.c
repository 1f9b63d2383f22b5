/* verify: stored logits against the model's. */
#include "app/app.h"
#include "app/signals.h"
#include "base/arena.h"
#include "tool/verify.h"

#define TOLERANCE_DEFAULT 1e-3

static bool keep_going(void *user, size_t n_done, size_t n_total)
{
    bt_app_status(user, "%zu of %zu tokens", n_done, n_total);
    return true; /* an interrupt ends the program at once: nothing would be lost */
}

static int report(bt_app *a, const bt_verify_row *rows, size_t n, const bt_verify_row *sum)
{
    const bt_option_value *given = &a->options->values[BT_OPT_TOLERANCE];
    double tolerance = given->source == BT_SOURCE_NONE ? TOLERANCE_DEFAULT : given->real;
    bt_text t = {0};
    if (bt_option_is_set(a->options, BT_OPT_JSON))
        bt_verify_print_json(&t, rows, n, sum, tolerance);
    else
        bt_verify_print(&t, rows, n, sum, tolerance);
    int code = bt_app_print(a, &t);
    if (code == BT_EXIT_DONE && !bt_verify_passes(sum, tolerance)) code = BT_EXIT_FAILED;
    return code;
}

static int compare(bt_app *a, bt_verify *v)
{
    size_t n = bt_verify_n_entries(v), chunk = (size_t)a->options->values[BT_OPT_CHUNK].integer;
    bt_verify_row sum = {.label = ""}, *rows = bt_calloc(n, sizeof *rows);
    if (rows == NULL) return bt_app_fail_with(a, BT_EXIT_MEMORY, "no memory for %zu results", n);
    bt_status st = BT_OK;
    const bt_hook hook = {.keep_going = keep_going, .user = a};
    for (size_t i = 0; i < n && st == BT_OK; i++) {
        st = bt_verify_run(v, i, a->session, chunk, &hook, &rows[i], &a->error);
        if (st == BT_OK) bt_verify_add(&sum, &rows[i]);
    }
    int code = st == BT_OK ? report(a, rows, n, &sum) : bt_app_fail(a, bt_exit_code(st));
    bt_free(rows);
    return code;
}

/* The expected file is no part of the model: what is wrong with it is a failure (1), not exit code 3. */
static int open_expected(bt_app *a, bt_verify **v)
{
    bt_status st = bt_verify_open(a->options->arguments[0], bt_model_n_vocab(a->model), v, &a->error);
    if (st != BT_OK) return bt_app_fail(a, st == BT_ERR_MEMORY ? BT_EXIT_MEMORY : BT_EXIT_FAILED);
    const char *path;
    const void *data;
    size_t size;
    bt_verify_file(*v, &path, &data, &size);
    (void)bt_signals_watch(path, data, size);
    return BT_EXIT_DONE;
}

int bt_command_verify(const bt_options *o)
{
    bt_app a;
    bt_verify *v = NULL;
    bt_memory_plan plan;
    bt_app_open(&a, o);
    int code = BT_EXIT_DONE;
    if (o->n_arguments == 0)
        code = bt_app_fail_with(&a, BT_EXIT_USAGE,
                                "EXPECTED.safetensors is missing: baltoro verify MODEL EXPECTED.safetensors");
    if (code == BT_EXIT_DONE) code = bt_app_open_model(&a);
    if (code == BT_EXIT_DONE) code = open_expected(&a, &v);
    a.logit_rows = BT_APP_SCORE_ROWS;
    a.context_name = "the number of ids in EXPECTED.safetensors";
    if (code == BT_EXIT_DONE) code = bt_app_plan(&a, bt_verify_n_ids_max(v), &plan);
    if (code == BT_EXIT_DONE) code = bt_app_open_engine(&a, bt_verify_n_ids_max(v));
    if (code == BT_EXIT_DONE) code = compare(&a, v);
    bt_signals_forget();
    bt_verify_close(v);
    return bt_app_close(&a, code);
}
