/* The files of a conversation; see request.h. */
#include "app/request.h"

#include <string.h>

#include "base/arena.h"
#include "base/error.h"

#define FILE_BYTES_MAX ((size_t)1 << 30)

static bool is_stdin(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* Whether the prompt would be read from there. */
static bool takes_stdin(const bt_app *a)
{
    const char *file = a->options->values[BT_OPT_PROMPT_FILE].text;
    return a->options->values[BT_OPT_PROMPT].text == NULL && (file == NULL || is_stdin(file));
}

bt_status bt_request_read(bt_app *a, bt_request_files *f)
{
    const char *messages = a->options->values[BT_OPT_MESSAGES].text, *tools = a->options->values[BT_OPT_TOOLS].text;
    bt_status st = BT_OK;
    if (is_stdin(messages) && is_stdin(tools))
        return bt_fail(&a->error, BT_ERR_USAGE, "--messages - and --tools - exclude each other: there is one stdin");
    if (is_stdin(tools) && messages == NULL && takes_stdin(a))
        return bt_fail(&a->error, BT_ERR_USAGE,
                       "--tools - leaves no stdin for the prompt: give it by -p, -f FILE or --messages FILE");
    if (messages != NULL) st = bt_read_input(messages, FILE_BYTES_MAX, &f->messages, &f->messages_size, &a->error);
    if (st == BT_OK && tools != NULL) st = bt_read_input(tools, FILE_BYTES_MAX, &f->tools, &f->tools_size, &a->error);
    return st;
}

void bt_request_free(bt_request_files *f)
{
    bt_free(f->messages);
    bt_free(f->tools);
    *f = (bt_request_files){0};
}

static const char *name_of(const char *path)
{
    return is_stdin(path) ? "stdin" : path;
}

bt_chat_request bt_request_of(const bt_app *a, const bt_request_files *f)
{
    const bt_option_value *v = a->options->values;
    return (bt_chat_request){
        .messages = f->messages,
        .messages_size = f->messages_size,
        .tools = f->tools,
        .tools_size = f->tools_size,
        .messages_name = name_of(v[BT_OPT_MESSAGES].text),
        .tools_name = name_of(v[BT_OPT_TOOLS].text),
    };
}

int bt_request_fail_template(bt_app *a, bt_status st)
{
    bool is_given = bt_option_is_set(a->options, BT_OPT_TEMPLATE);
    if (st == BT_ERR_MEMORY || (is_given && (st == BT_ERR_USAGE || st == BT_ERR_IO)))
        return bt_app_fail(a, bt_exit_code(st));
    return bt_app_fail(a, BT_EXIT_MODEL);
}
