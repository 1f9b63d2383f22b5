/*
 * render: what a template makes of its variables, or the exact prompt that a model would get for a conversation. Only
 * the model's small files are read; of a folder without weights too.
 */
#include <string.h>

#include "app/app.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "tool/ids.h"
#include "tool/render.h"

#define MESSAGES_BYTES_MAX ((size_t)256 << 20)

/* Everything that can be wrong with a conversation or a template is exit code 1; what is wrong with the command line
 * was said before. */
static int fail(bt_app *a, bt_status st)
{
    return bt_app_fail(a, st == BT_ERR_MEMORY ? BT_EXIT_MEMORY : BT_EXIT_FAILED);
}

/* ---- a template by itself ---------------------------------------------------------------------------------------- */

static int render_template(bt_app *a, const char *template_path, const char *context_path)
{
    bt_text t = {0};
    if (template_path == NULL || context_path == NULL)
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--template and --context belong together");
    if (a->options->model != NULL || bt_option_is_set(a->options, BT_OPT_MESSAGES))
        return bt_app_fail_with(a, BT_EXIT_USAGE,
                                "--template is rendered by itself, without MODEL and --messages; "
                                "--chat-template gives a model another template");
    bt_status st = bt_render_template(template_path, context_path, a->options->values[BT_OPT_NOW].text, &t, &a->error);
    if (st == BT_OK) return bt_app_print(a, &t);
    bt_text_free(&t);
    return fail(a, st);
}

/* ---- a conversation ---------------------------------------------------------------------------------------------- */

typedef struct input {
    char *messages, *tools;
    size_t messages_size, tools_size;
} input;

static bt_status read_input(bt_app *a, input *in)
{
    const bt_option_value *v = a->options->values;
    bt_status st =
        bt_read_file(v[BT_OPT_MESSAGES].text, MESSAGES_BYTES_MAX, &in->messages, &in->messages_size, &a->error);
    if (st != BT_OK || v[BT_OPT_TOOLS].text == NULL) return st;
    return bt_read_file(v[BT_OPT_TOOLS].text, MESSAGES_BYTES_MAX, &in->tools, &in->tools_size, &a->error);
}

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
    if (st != BT_OK) return bt_app_fail(a, st == BT_ERR_MEMORY ? BT_EXIT_MEMORY : BT_EXIT_MODEL);
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

static void note_lines(bt_app *a, const char *lines)
{
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\n");
        bt_app_note(a, "%.*s", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
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
    input in = {0};
    bt_text t = {0};
    if (!bt_option_is_set(a->options, BT_OPT_MESSAGES))
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--messages FILE is missing, or --template FILE and --context FILE");
    int code = open_chat(a, &chat);
    if (code != BT_EXIT_DONE) return code;
    bt_status st = read_input(a, &in);
    bt_chat_request request = {
        .messages = in.messages, .messages_size = in.messages_size, .tools = in.tools, .tools_size = in.tools_size};
    if (st == BT_OK) st = choose_effort(a, chat, &request);
    if (st == BT_OK) st = bt_chat_render(chat, &request, &p, &a->error);
    if (st == BT_OK) {
        note_lines(a, p.warnings);
        if (bt_option_is_set(a->options, BT_OPT_JSON))
            print_json(chat, &p, &t);
        else
            bt_text_add(&t, p.text, p.size);
        code = bt_app_print(a, &t);
    } else {
        code = fail(a, st);
    }
    bt_prompt_free(&p);
    bt_free(in.messages);
    bt_free(in.tools);
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
