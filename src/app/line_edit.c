/*
 * The line editor; see line_edit.h. The wide half of libedit is used: its narrow half needs a locale that knows UTF-8
 * at every turn, this one only to print.
 */
#include "app/line_edit.h"

#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "app/line_history.h"
#include "app/line_input.h"
#include "base/error.h"
#include "base/utf8.h"

enum { N_HISTORY = 1000, PROMPT_MAX = 16 };

struct bt_editor {
    EditLine *el;
    HistoryW *history;
    char *history_path;     /* NULL: none */
    bt_error history_error; /* why, where it is no wish */
    bt_line_input input;
    bt_input last;  /* what the input said last */
    bool has_paste; /* in the message under way */
    wchar_t prompt[PROMPT_MAX];
    struct termios saved;
    struct winsize window;
    bool (*is_resumed)(void);
};

/* ---- terminal ---------------------------------------------------------------------------------------------------- */

/* No echo and no lines between two reads; Ctrl-C still is a signal, but (NOFLSH) one that throws away nothing of what
 * is on its way to the screen: what was said until then is kept there too. */
static void set_quiet(const bt_editor *d)
{
    struct termios t = d->saved;
    t.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    t.c_lflag |= NOFLSH;
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t);
}

static void set_saved(const bt_editor *d)
{
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &d->saved);
}

static void put(const char *text)
{
    (void)fputs(text, stdout);
    (void)fflush(stdout);
}

/* A resized window is noticed here, so that no signal handler is needed; and that the program was stopped. */
static void watch_window(void *user)
{
    bt_editor *d = user;
    struct winsize w;
    if (d->is_resumed()) {
        put("\r");
        (void)el_set(d->el, EL_REFRESH);
    }
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0) return;
    if (w.ws_col == d->window.ws_col && w.ws_row == d->window.ws_row) return;
    d->window = w;
    el_resize(d->el);
}

/* libedit prints by the locale. Where the environment names none that knows UTF-8, take the one that always does. */
static void choose_locale(void)
{
    mbstate_t state;
    wchar_t c = 0;
    memset(&state, 0, sizeof state);
    if (setlocale(LC_CTYPE, "") != NULL && mbrtowc(&c, "\xc3\xa9", 2, &state) == 2 && c == 0xe9) return;
    (void)setlocale(LC_CTYPE, "C.UTF-8");
}

/* ---- libedit's callbacks ----------------------------------------------------------------------------------------- */

static bt_editor *editor_of(EditLine *el)
{
    void *data = NULL;
    (void)el_get(el, EL_CLIENTDATA, &data);
    return data;
}

static wchar_t *prompt_of(EditLine *el)
{
    return editor_of(el)->prompt;
}

static int next_character(EditLine *el, wchar_t *c)
{
    bt_editor *d = editor_of(el);
    uint32_t character;
    d->last = bt_line_input_next(&d->input, &character);
    if (d->last != BT_INPUT_CHARACTER) return 0;
    *c = (wchar_t)character;
    return 1;
}

/* ---- history ----------------------------------------------------------------------------------------------------- */

void bt_editor_remember(bt_editor *d, const char *text, size_t size)
{
    bool has_paste = d->has_paste;
    d->has_paste = false;
    wchar_t *wide = has_paste || size == 0 ? NULL : bt_malloc(size + 1, sizeof *wide);
    if (wide == NULL) return;
    size_t n = 0;
    for (size_t at = 0, step; at < size; at += step) {
        uint32_t c = 0xfffd;
        step = bt_utf8_decode(text + at, size - at, &c);
        if (step == 0) step = 1;
        wide[n++] = (wchar_t)c;
    }
    wide[n] = L'\0';
    HistEventW event;
    (void)history_w(d->history, &event, H_ENTER, wide);
    /* Saved each time: a second Ctrl-C leaves no time for it. */
    if (d->history_path != NULL) bt_line_history_append(d->history_path, text, size);
    bt_free(wide);
}

static bt_status open_history(bt_editor *d, const char *path, bt_error *e)
{
    HistEventW event;
    d->history = history_winit();
    if (d->history == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for the line editor");
    (void)history_w(d->history, &event, H_SETSIZE, (int)N_HISTORY);
    (void)history_w(d->history, &event, H_SETUNIQUE, 1);
    bool is_kept = false;
    if (path == NULL || bt_line_history_look(path, &is_kept, &d->history_error) != BT_OK || !is_kept) return BT_OK;
    d->history_path = bt_strdup(path);
    if (d->history_path == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for the line editor");
    int n_read = history_w(d->history, &event, H_LOAD, path);
    /* It only grows; now and then what is no longer recalled goes. */
    if (n_read >= 2 * N_HISTORY) bt_line_history_trim(path, N_HISTORY);
    return BT_OK;
}

/* ---- open, read, close ------------------------------------------------------------------------------------------- */

/* What terminals send for keys that libedit leaves alone: it would type the ends of their names. */
static void bind_keys(EditLine *el)
{
    static const wchar_t *const keys[][2] = {
        {L"^R", L"em-inc-search-prev"},      {L"\\e[H", L"ed-move-to-beg"},   {L"\\eOH", L"ed-move-to-beg"},
        {L"\\e[1~", L"ed-move-to-beg"},      {L"\\e[7~", L"ed-move-to-beg"},  {L"\\e[F", L"ed-move-to-end"},
        {L"\\eOF", L"ed-move-to-end"},       {L"\\e[4~", L"ed-move-to-end"},  {L"\\e[8~", L"ed-move-to-end"},
        {L"\\e[3~", L"ed-delete-next-char"}, {L"\\e[1;5C", L"em-next-word"},  {L"\\e[1;5D", L"ed-prev-word"},
        {L"\\e[1;3C", L"em-next-word"},      {L"\\e[1;3D", L"ed-prev-word"},  {L"\\e[2~", L"ed-unassigned"},
        {L"\\e[5~", L"ed-prev-history"},     {L"\\e[6~", L"ed-next-history"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) (void)el_wset(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static bt_status open_editor(bt_editor *d, const char *history, bt_error *e)
{
    if (tcgetattr(STDIN_FILENO, &d->saved) != 0) return bt_fail(e, BT_ERR_IO, "stdin: the terminal does not answer");
    choose_locale();
    bt_status st = open_history(d, history, e);
    if (st != BT_OK) return st;
    d->el = el_init("baltoro", stdin, stdout, stderr);
    if (d->el == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for the line editor");
    (void)el_set(d->el, EL_CLIENTDATA, d);
    (void)el_wset(d->el, EL_PROMPT, prompt_of);
    (void)el_wset(d->el, EL_EDITOR, L"emacs");
    (void)el_wset(d->el, EL_HIST, history_w, d->history);
    (void)el_wset(d->el, EL_GETCFN, next_character);
    /* libedit sets the terminal back before each prompt is answered, which would echo what is typed ahead. */
    (void)el_wset(d->el, EL_SETTY, L"-x", L"-echo", L"-icanon", NULL);
    bind_keys(d->el);
    put(BT_PASTE_ON);
    set_quiet(d);
    return BT_OK;
}

bt_status bt_editor_open(const char *history, bool (*is_interrupted)(void), bool (*is_resumed)(void), bt_editor **out,
                         bt_error *e)
{
    bt_editor *d = bt_calloc(1, sizeof *d);
    if (d == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for the line editor");
    d->input.fd = STDIN_FILENO;
    d->input.is_interrupted = is_interrupted;
    d->is_resumed = is_resumed;
    d->input.while_waiting = watch_window;
    d->input.user = d;
    bt_status st = open_editor(d, history, e);
    if (st != BT_OK) {
        bt_editor_close(d);
        return st;
    }
    *out = d;
    return BT_OK;
}

void bt_editor_close(bt_editor *d)
{
    if (d == NULL) return;
    if (d->el != NULL) {
        put(BT_PASTE_OFF);
        el_end(d->el);
        set_saved(d);
    }
    if (d->history != NULL) history_wend(d->history);
    bt_line_input_free(&d->input);
    bt_free(d->history_path);
    bt_free(d);
}

const char *bt_editor_history_fault(const bt_editor *d)
{
    return d->history_error.message[0] != '\0' ? d->history_error.message : NULL;
}

static void add_wide(bt_text *t, const wchar_t *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char bytes[4];
        uint32_t c = (uint32_t)text[i];
        if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
        bt_text_add(t, bytes, bt_utf8_encode(c, bytes));
    }
}

bt_edit bt_editor_read(bt_editor *d, const char *prompt, bt_text *line)
{
    int n = 0;
    (void)swprintf(d->prompt, PROMPT_MAX, L"%s", prompt);
    d->last = BT_INPUT_CHARACTER;
    (void)d->is_resumed(); /* before there is a line to draw */
    const wchar_t *text = el_wgets(d->el, &n);
    (void)fflush(stdout);
    set_quiet(d);
    if (d->last == BT_INPUT_INTERRUPTED) {
        d->has_paste = false; /* it went with the line */
        return BT_EDIT_INTERRUPTED;
    }
    if (text == NULL || n <= 0) return BT_EDIT_END;
    size_t size = (size_t)n;
    if (text[size - 1] == L'\n') size--;
    bt_text typed = {0};
    add_wide(&typed, text, size);
    d->has_paste |= bt_line_input_expand(&d->input, typed.data != NULL ? typed.data : "", typed.size, line);
    bool failed = typed.failed || line->failed;
    bt_text_free(&typed);
    return failed ? BT_EDIT_FAILED : BT_EDIT_LINE;
}
