/*
 * render: what a template makes of its variables, or the exact prompt that a model would get for a conversation. Only
 * the model's small files are read; of a folder without weights too.
 */
#include <string.h>

#include "app/app.h"
#include "app/request.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "tool/ids.h"
#include "tool/render.h"

/* Only a flag is refused that has nothing to act on: what the environment says holds for every call. */
static bool is_flag(const bt_app *a, bt_option id)
{
    return a->options->values[id].source == BT_SOURCE_FLAG;
}

/* ---- a template by itself ---------------------------------------------------------------------------------------- */

static int render_template(bt_app *a, const char *template_path, const char *context_path)
{
    static const bt_option others[] = {BT_OPT_EFFORT, BT_OPT_TOOLS, BT_OPT_TEMPLATE, BT_OPT_JSON};
    bt_text t = {0};
    if (template_path == NULL || context_path == NULL)
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--template and --context belong together");
    if (a->options->model != NULL || bt_option_is_set(a->options, BT_OPT_MESSAGES))
        return bt_app_fail_with(a, BT_EXIT_USAGE,
                                "--template is rendered by itself, without MODEL and --messages; "
                                "--chat-template gives a model another template");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (is_flag(a, others[i]))
            return bt_app_fail_with(a, BT_EXIT_USAGE,
                                    "--template and --%s exclude each other: a template by itself has no use for it",
                                    bt_option_specs[others[i]].name);
    bt_status st = bt_render_template(template_path, context_path, a->options->values[BT_OPT_NOW].text, &t, &a->error);
    if (st == BT_OK) return bt_app_print(a, &t);
    bt_text_free(&t);
    return bt_app_fail(a, bt_exit_code(st));
}

/* ---- a conversation ---------------------------------------------------------------------------------------------- */

static int open_chat(bt_app *a, bt_chat **chat)
{
    char *parent = NULL;
    int code = bt_app_locate(a);
    if (code == BT_EXIT_DONE && bt_option_is_set(a->options, BT_OPT_JSON)) code = bt_app_open_tokenizer(a);
    if (code != BT_EXIT_DONE) return code;
    if (!bt_path_is_folder(a->path)) {
        parent = bt_path_folder(a->path);
        if (parent == NULL) return bt_app_fail_with(a, BT_EXIT_MEMORY, "no memory for a path");
    }
    bt_status st = bt_chat_open(parent != NULL ? parent : a->path, NULL, a->options->values[BT_OPT_TEMPLATE].text,
                                a->tokenizer, chat, &a->error);
    bt_free(parent);
    if (st != BT_OK) return bt_request_fail_template(a, st);
    bt_app_note(a, "template: %s", bt_chat_source(*chat));
    return BT_EXIT_DONE;
}

static bt_status choose_effort(bt_app *a, const bt_chat *chat, bt_chat_request *request)
{
    const char *asked = a->options->values[BT_OPT_EFFORT].text, *used, *options;
    if (asked == NULL) return BT_OK;
    bt_status st = bt_chat_effort(chat, asked, &used, &options, &a->error);
    if (st != BT_OK) return st;
    if (strcmp(asked, used) != 0)
        bt_app_note(a, "reasoning effort: %s, the nearest to %s that this model has", used, asked);
    request->options = options;
    request->options_size = strlen(options);
    return BT_OK;
}

static void print_json(const bt_chat *chat, const bt_prompt *p, bt_text *t)
{
    bt_text_puts(t, "{\"text\": ");
    bt_text_json_string(t, p->text, p->size);
    bt_text_puts(t, ", \"ids\": ");
    bt_ids_print_json(t, p->ids, p->n_ids);
    bt_text_printf(t, ", \"reasoning\": %s, \"template\": ", p->is_reasoning ? "true" : "false");
    bt_text_json_string(t, bt_chat_source(chat), strlen(bt_chat_source(chat)));
    bt_text_puts(t, ", \"warnings\": ");
    bt_text_json_string(t, p->warnings, strlen(p->warnings));
    bt_text_puts(t, "}\n");
}

static int render_messages(bt_app *a)
{
    bt_chat *chat = NULL;
    bt_prompt p = {0};
    bt_request_files files = {0};
    bt_text t = {0};
    if (!bt_option_is_set(a->options, BT_OPT_MESSAGES))
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--messages FILE is missing, or --template FILE and --context FILE");
    if (is_flag(a, BT_OPT_NOW))
        return bt_app_fail_with(a, BT_EXIT_USAGE,
                                "--messages and --now exclude each other: the time is given to --template only");
    int code = open_chat(a, &chat);
    if (code != BT_EXIT_DONE) return code;
    bt_status st = bt_request_read(a, &files);
    bt_chat_request request = bt_request_of(a, &files);
    if (st == BT_OK) st = choose_effort(a, chat, &request);
    if (st == BT_OK) st = bt_chat_render(chat, &request, &p, &a->error);
    if (st == BT_OK) {
        bt_app_note_lines(a, p.warnings);
        if (bt_option_is_set(a->options, BT_OPT_JSON))
            print_json(chat, &p, &t);
        else
            bt_text_add(&t, p.text, p.size);
        code = bt_app_print(a, &t);
    } else {
        code = bt_app_fail(a, bt_exit_code(st));
    }
    bt_prompt_free(&p);
    bt_request_free(&files);
    bt_chat_close(chat);
    return code;
}

int bt_command_render(const bt_options *o)
{
    bt_app a;
    bt_app_open(&a, o);
    const char *template_path = o->values[BT_OPT_RENDER_TEMPLATE].text;
    const char *context_path = o->values[BT_OPT_RENDER_CONTEXT].text;
    int code = template_path != NULL || context_path != NULL ? render_template(&a, template_path, context_path)
                                                             : render_messages(&a);
    return bt_app_close(&a, code);
}
