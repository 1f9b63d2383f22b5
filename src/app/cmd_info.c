/* info: a model before it runs. A plan that does not fit, or a missing tokenizer, is an answer here, not a failure. */
#include "app/app.h"
#include "tool/info.h"

static int show(bt_app *a)
{
    const bt_options *o = a->options;
    const bt_engine_options engine = bt_app_engine_options(a, 0);
    bt_memory_plan plan = {0};
    bt_error plan_error, tokenizer_error;
    bt_status st = bt_engine_plan(a->model, &engine, &plan, &plan_error);
    if (st != BT_OK && st != BT_ERR_MEMORY) {
        a->error = plan_error;
        return bt_app_fail(a, bt_exit_code(st));
    }
    bt_info i = {.model = a->model, .plan = &plan, .with_tensors = bt_option_is_set(o, BT_OPT_TENSORS)};
    if (st != BT_OK) i.plan_fault = plan_error.message;
    if (bt_tokenizer_open(bt_model_folder(a->model), &a->tokenizer, &tokenizer_error) != BT_OK)
        i.tokenizer_fault = tokenizer_error.message;
    i.tokenizer = a->tokenizer;
    bt_text t = {0};
    if (bt_option_is_set(o, BT_OPT_JSON))
        bt_info_print_json(&t, &i);
    else
        bt_info_print(&t, &i);
    return bt_app_print(a, &t);
}

int bt_command_info(const bt_options *o)
{
    bt_app a;
    bt_app_open(&a, o);
    a.is_quiet = true; /* what the notes would say is the answer itself */
    int code = bt_app_open_model(&a);
    if (code == BT_EXIT_DONE) code = show(&a);
    return bt_app_close(&a, code);
}
