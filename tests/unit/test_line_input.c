/* What a person types, pastes and interrupts, as characters for the line editor; over a pipe and over a terminal. */
#include "unit.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <termios.h>

#include "app/line_input.h"
#include "base/utf8.h"

static bool is_interrupted;        /* what Ctrl-C does */
static int n_until_interrupt = -1; /* it comes when this has counted down to 0; negative: it does not */

static bool ask_interrupted(void)
{
    if (n_until_interrupt >= 0 && n_until_interrupt-- == 0) is_interrupted = true;
    return is_interrupted;
}

typedef struct line_end {
    bt_line_input input;
    int write_fd;
} line_end;

static void open_pipe(line_end *w)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    *w = (line_end){.input = {.fd = fds[0], .is_interrupted = ask_interrupted}, .write_fd = fds[1]};
    is_interrupted = false;
}

/* As the editor has it between two lines: no echo, no lines. */
static void open_terminal(line_end *w)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0);
    assert_int_equal(grantpt(master) | unlockpt(master), 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    struct termios t;
    assert_int_equal(tcgetattr(slave, &t), 0);
    t.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    t.c_lflag |= NOFLSH;
    assert_int_equal(tcsetattr(slave, TCSANOW, &t), 0);
    *w = (line_end){.input = {.fd = slave, .is_interrupted = ask_interrupted}, .write_fd = master};
    is_interrupted = false;
}

static void close_both(line_end *w)
{
    bt_line_input_free(&w->input);
    (void)close(w->input.fd);
    if (w->write_fd >= 0) (void)close(w->write_fd);
}

static void type(line_end *w, const char *text)
{
    assert_int_equal(write(w->write_fd, text, strlen(text)), strlen(text));
}

static void expect_text(line_end *w, const char *text)
{
    char got[256];
    size_t size = 0;
    while (size < strlen(text)) {
        uint32_t c = 0;
        assert_int_equal(bt_line_input_next(&w->input, &c), BT_INPUT_CHARACTER);
        size += bt_utf8_encode(c, got + size);
        assert_true(size < sizeof got - 4);
    }
    got[size] = '\0';
    assert_string_equal(got, text);
}

static void expect_end(line_end *w)
{
    uint32_t c = 0;
    (void)close(w->write_fd);
    w->write_fd = -1;
    assert_int_equal(bt_line_input_next(&w->input, &c), BT_INPUT_END);
    assert_int_equal(bt_line_input_next(&w->input, &c), BT_INPUT_END); /* and stays there */
}

static void expect_interrupted(line_end *w)
{
    uint32_t c = 0;
    is_interrupted = true;
    assert_int_equal(bt_line_input_next(&w->input, &c), BT_INPUT_INTERRUPTED);
    is_interrupted = false;
}

static void test_typed(void **state)
{
    (void)state;
    line_end w;
    open_pipe(&w);
    type(&w, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\r");
    expect_text(&w, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\r");
    type(&w, "\xff|\xc3(");
    expect_text(&w, "\xef\xbf\xbd|\xef\xbf\xbd(");
    type(&w, "\xe2\x82"); /* its end does not come */
    expect_text(&w, "\xef\xbf\xbd\xef\xbf\xbd");
    type(&w, "\033"); /* the key, not the beginning of a sequence */
    expect_text(&w, "\033");
    type(&w, "\033[A\033[20x");
    expect_text(&w, "\033[A\033[20x");
    expect_end(&w);
    close_both(&w);
}

static void test_pasted(void **state)
{
    (void)state;
    line_end w;
    bt_text line = {0};
    open_pipe(&w);
    type(&w, "<\033[200~one line\033[201~>");
    expect_text(&w, "<one line>");
    type(&w, "\033[200~two\r\nlines\r\033[201~ and \033[200~a\xff\rb\rc\033[201~.");
    expect_text(&w, "[paste 1: 2 lines] and [paste 2: 3 lines].");
    static const char typed[] = "[paste 1: 2 lines] and [paste 2: 3 lines].";
    assert_true(bt_line_input_expand(&w.input, typed, strlen(typed), &line));
    bt_text_puts(&line, "");
    assert_string_equal(line.data, "two\nlines\n and a\xef\xbf\xbd\nb\nc.");
    line.size = 0;
    assert_false(bt_line_input_expand(&w.input, "[paste 3: 3 lines]", 18, &line));
    bt_text_free(&line);
    expect_end(&w);
    close_both(&w);
}

/* Types the first text now and the second after a while: a slow line cuts anywhere. */
static void type_slowly(line_end *w, const char *now, const char *later)
{
    type(w, now);
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return;
    (void)usleep(200000);
    (void)!write(w->write_fd, later, strlen(later));
    _exit(0);
}

static void test_pasted_slowly(void **state)
{
    (void)state;
    line_end w;
    open_pipe(&w);
    type_slowly(&w, "\033[20", "0~one\rtwo\033[201~.");
    expect_text(&w, "[paste 1: 2 lines].");
    type_slowly(&w, "\033[200~three\rfour\033", "[201~.");
    expect_text(&w, "[paste 2: 2 lines].");
    type_slowly(&w, "\033[200~five\033[A\rsix\033[201", "~.");
    expect_text(&w, "[paste 3: 2 lines].");
    while (wait(NULL) > 0) {
    }
    close_both(&w);
}

/* Ctrl-C throws away what was typed before it, whether it was read, half taken or still in the terminal's queue. */
static void test_interrupted(void **state)
{
    (void)state;
    line_end w;
    open_terminal(&w);
    type(&w, "half a line");
    expect_interrupted(&w); /* nothing of it was read */
    type(&w, "x");
    expect_text(&w, "x");

    type(&w, "begun and more");
    expect_text(&w, "begun");
    expect_interrupted(&w); /* the rest was read, but not taken */
    type(&w, "y");
    expect_text(&w, "y");

    type(&w, "\033[200~a paste that is typed\033[201~");
    expect_text(&w, "a paste");
    expect_interrupted(&w);
    type(&w, "z");
    expect_text(&w, "z");
    close_both(&w);
}

/* Ctrl-C once it waits for the second time: what there was at first is taken then. */
static void interrupt_later(void *user)
{
    size_t *n_waits = user;
    is_interrupted = ++*n_waits == 2;
}

typedef struct later_text {
    line_end *end;
    const char *text;
    size_t n_waits;
} later_text;

static void type_later(void *user)
{
    later_text *l = user;
    if (++l->n_waits == 2) type(l->end, l->text);
}

/* Ctrl-C takes the whole paste that it meets: what of it comes later is neither typed nor sent. */
static void test_interrupted_paste(void **state)
{
    (void)state;
    line_end w;
    uint32_t c = 0;
    size_t n_waits = 0;
    open_terminal(&w);
    w.input.while_waiting = interrupt_later;
    w.input.user = &n_waits;
    type(&w, "\033[200~/temp\nhello");
    assert_int_equal(bt_line_input_next(&w.input, &c), BT_INPUT_INTERRUPTED);
    is_interrupted = false;
    w.input.while_waiting = NULL;
    type(&w, " more\n/stats\n\033[201~a");
    expect_text(&w, "a");

    type(&w, "b\033[200~never taken\r");
    expect_text(&w, "b");
    expect_interrupted(&w);
    later_text rest = {.end = &w, .text = "01~c"}; /* its end in two pieces */
    w.input.while_waiting = type_later;
    w.input.user = &rest;
    type(&w, "more\033[2");
    expect_text(&w, "c");
    w.input.while_waiting = NULL;

    type(&w, "\033[200~whole, but in the queue\r\033[201~");
    expect_interrupted(&w);
    type(&w, "d");
    expect_text(&w, "d");

    type(&w, "\033[200~its end never comes\r");
    expect_interrupted(&w);
    type(&w, "more\r");
    expect_interrupted(&w); /* once more: now it is over */
    type(&w, "e");
    expect_text(&w, "e");
    close_both(&w);
}

/* The same where Ctrl-C comes between two pieces of a mark, on a slow line. */
static void interrupt_within(const char *before, int n_questions, const char *after)
{
    line_end w;
    uint32_t c = 0;
    open_pipe(&w);
    type(&w, before);
    n_until_interrupt = n_questions;
    assert_int_equal(bt_line_input_next(&w.input, &c), BT_INPUT_INTERRUPTED);
    is_interrupted = false;
    n_until_interrupt = -1;
    type(&w, after);
    expect_text(&w, "x");
    close_both(&w);
}

static void test_interrupted_mark(void **state)
{
    (void)state;
    interrupt_within("\033[20", 2, "0~/temp\nhello\r\033[201~x");
    interrupt_within("\033[200~/temp\nhello\033[20", 2, "1~x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typed),
        cmocka_unit_test(test_pasted),
        cmocka_unit_test(test_pasted_slowly),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_interrupted_paste),
        cmocka_unit_test(test_interrupted_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
