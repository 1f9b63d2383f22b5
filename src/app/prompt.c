/* The prompt of `run`; see prompt.h. */
#include "app/prompt.h"

#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/utf8.h"

#define PROMPT_BYTES_MAX ((size_t)1 << 30)

static bt_status read_text(bt_app *a, char **text, size_t *size)
{
    const char *given = a->options->values[BT_OPT_PROMPT].text, *file = a->options->values[BT_OPT_PROMPT_FILE].text;
    bt_status st;
    if (given != NULL) {
        *size = strlen(given);
        *text = bt_strdup(given);
        return *text != NULL ? BT_OK : bt_fail(&a->error, BT_ERR_MEMORY, "no memory for the prompt");
    }
    if (file != NULL && strcmp(file, "-") != 0) {
        st = bt_read_input(file, PROMPT_BYTES_MAX, text, size, &a->error);
    } else {
        if (isatty(STDIN_FILENO) == 1) bt_app_note(a, "reading the prompt from the terminal; Ctrl-D ends it");
        st = bt_read_all(STDIN_FILENO, "stdin", PROMPT_BYTES_MAX, text, size, &a->error);
    }
    if (st != BT_OK) return st;
    /* Files and `echo` end in a newline that nobody means: a model would take it for the end of a line. */
    if (*size > 0 && (*text)[*size - 1] == '\n') (*size)--;
    if (*size > 0 && (*text)[*size - 1] == '\r') (*size)--;
    return BT_OK;
}

static bt_status check_utf8(bt_app *a, const char *text, size_t size)
{
    size_t valid = bt_utf8_valid_prefix(text, size);
    if (valid == size) return BT_OK;
    bool is_utf16 = size >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
    return bt_fail(&a->error, BT_ERR_USAGE, "the prompt is not UTF-8: byte %zu is 0x%02x%s", valid,
                   (unsigned)(unsigned char)text[valid], is_utf16 ? "; it looks like UTF-16, convert it first" : "");
}

bt_status bt_prompt_read(bt_app *a, char **text, size_t *size)
{
    char *read = NULL;
    bt_status st = read_text(a, &read, size);
    if (st == BT_OK) st = check_utf8(a, read, *size);
    if (st == BT_OK)
        *text = read;
    else
        bt_free(read);
    return st;
}
