/* tokenize and detokenize: text to ids and back, one text or one JSON value per line. */
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "base/arena.h"
#include "base/error.h"
#include "tool/ids.h"

#define INPUT_BYTES_MAX ((size_t)1 << 32)

/* From one input [size] to what is printed for it. */
typedef bt_status (*convert_fn)(bt_app *a, const char *input, size_t size, bt_text *t);

/* ---- text to ids ------------------------------------------------------------------------------------------------- */

static bt_status encode(bt_app *a, const char *text, size_t size, int32_t **ids, size_t *n)
{
    unsigned flags = bt_option_is_set(a->options, BT_OPT_SPECIAL) ? BT_TEXT_SPECIAL : 0;
    return bt_tokenizer_encode(a->tokenizer, text, size, flags, ids, n, &a->error);
}

static bt_status text_to_ids(bt_app *a, const char *input, size_t size, bt_text *t)
{
    int32_t *ids;
    size_t n;
    bt_status st = encode(a, input, size, &ids, &n);
    if (st != BT_OK) return st;
    bt_ids_print(t, ids, n);
    bt_text_puts(t, "\n");
    bt_free(ids);
    return BT_OK;
}

static bt_status line_to_ids(bt_app *a, const char *input, size_t size, bt_text *t)
{
    char *text;
    size_t text_size, n;
    int32_t *ids;
    bt_status st = bt_string_parse_json(input, size, &text, &text_size, &a->error);
    if (st != BT_OK) return st;
    st = encode(a, text, text_size, &ids, &n);
    bt_free(text);
    if (st != BT_OK) return st;
    bt_ids_print_json(t, ids, n);
    bt_text_puts(t, "\n");
    bt_free(ids);
    return BT_OK;
}

/* ---- ids to text ------------------------------------------------------------------------------------------------- */

static bt_status decode(bt_app *a, const int32_t *ids, size_t n, char **text, size_t *size)
{
    return bt_tokenizer_decode(a->tokenizer, ids, n, BT_TEXT_SPECIAL, text, size, &a->error);
}

static bt_status ids_to_text(bt_app *a, const char *input, size_t size, bt_text *t)
{
    int32_t *ids;
    char *text;
    size_t n, text_size;
    bt_status st = bt_ids_parse(input, size, &ids, &n, &a->error);
    if (st != BT_OK) return st;
    st = decode(a, ids, n, &text, &text_size);
    bt_free(ids);
    if (st != BT_OK) return st;
    bt_text_add(t, text, text_size);
    bt_free(text);
    if (isatty(STDOUT_FILENO) == 1) bt_text_puts(t, "\n");
    return BT_OK;
}

static bt_status line_to_text(bt_app *a, const char *input, size_t size, bt_text *t)
{
    int32_t *ids;
    char *text;
    size_t n, text_size;
    bt_status st = bt_ids_parse_json(input, size, &ids, &n, &a->error);
    if (st != BT_OK) return st;
    st = decode(a, ids, n, &text, &text_size);
    bt_free(ids);
    if (st != BT_OK) return st;
    bt_text_json_string(t, text, text_size);
    bt_text_puts(t, "\n");
    bt_free(text);
    return BT_OK;
}

/* ---- one input, or one per line ---------------------------------------------------------------------------------- */

/* What makes no text or no ids is wrong usage, as an option's value would be. */
static int fail_input(bt_app *a, bt_status st)
{
    return bt_app_fail(a, bt_exit_code(st == BT_ERR_FORMAT ? BT_ERR_USAGE : st));
}

/* JSON counts its lines from 1, and each is a text of its own: which one of stdin it was is all there is to say. */
static bt_status fail_line(bt_app *a, bt_status st, size_t n)
{
    static const char first[] = "line 1, ";
    if (strncmp(a->error.message, first, sizeof first - 1) != 0) return bt_fail_in(&a->error, st, "stdin, line %zu", n);
    return bt_fail(&a->error, st, "stdin, line %zu, %s", n, a->error.message + sizeof first - 1);
}

static int convert_one(bt_app *a, convert_fn convert)
{
    bt_text t = {0};
    char *all = NULL;
    const char *input = a->options->n_arguments > 0 ? a->options->arguments[0] : NULL;
    size_t size = input == NULL ? 0 : strlen(input);
    bt_status st = BT_OK;
    if (input == NULL) {
        st = bt_read_all(STDIN_FILENO, "stdin", INPUT_BYTES_MAX, &all, &size, &a->error);
        input = all;
    }
    if (st == BT_OK) st = convert(a, input, size, &t);
    bt_free(all);
    if (st == BT_OK) return bt_app_print(a, &t);
    bt_text_free(&t);
    return fail_input(a, st);
}

static int convert_lines(bt_app *a, convert_fn convert)
{
    if (a->options->n_arguments > 0)
        return bt_app_fail_with(a, BT_EXIT_USAGE, "--jsonl reads stdin: leave out '%s'", a->options->arguments[0]);
    bt_lines lines;
    bt_lines_init(&lines, STDIN_FILENO, &a->out);
    int code = BT_EXIT_DONE;
    for (size_t n = 1; code == BT_EXIT_DONE; n++) {
        const char *line;
        size_t size;
        bt_text t = {0};
        bt_status st = bt_lines_next(&lines, &line, &size, &a->error);
        if (st == BT_OK && line == NULL) break;
        if (st == BT_OK) {
            st = convert(a, line, size, &t);
            if (st != BT_OK) st = fail_line(a, st, n);
        }
        if (st == BT_OK)
            code = bt_app_print(a, &t);
        else
            code = fail_input(a, st);
        if (st != BT_OK) bt_text_free(&t);
        if (a->out.state != BT_SINK_OPEN) break;
    }
    bt_lines_free(&lines);
    return code;
}

static int convert_all(const bt_options *o, convert_fn one, convert_fn line)
{
    bt_app a;
    bt_app_open(&a, o);
    int code = bt_app_open_tokenizer(&a);
    if (code == BT_EXIT_DONE) code = bt_option_is_set(o, BT_OPT_JSONL) ? convert_lines(&a, line) : convert_one(&a, one);
    return bt_app_close(&a, code);
}

int bt_command_tokenize(const bt_options *o)
{
    return convert_all(o, text_to_ids, line_to_ids);
}

int bt_command_detokenize(const bt_options *o)
{
    return convert_all(o, ids_to_text, line_to_text);
}
