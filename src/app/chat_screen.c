/* Answers on the screen; see chat_screen.h. */
#include "app/chat_screen.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char DIM[] = "\033[2m", PLAIN[] = "\033[0m";

void bt_screen_init(bt_screen *s, bt_app *a, bool ends_lines)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    *s = (bt_screen){.app = a, .ends_lines = ends_lines};
    s->is_terminal = isatty(STDOUT_FILENO) == 1;
    s->has_style =
        s->is_terminal && term != NULL && strcmp(term, "dumb") != 0 && (no_color == NULL || no_color[0] == '\0');
}

void bt_screen_free(bt_screen *s)
{
    bt_text_free(&s->reasoning);
    bt_text_free(&s->name);
    bt_text_free(&s->arguments);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void put(bt_screen *s, const char *text, size_t size)
{
    (void)bt_sink_write(&s->app->out, text, size);
}

/* One byte, made harmless. U+0080 to U+009F (C2 80 to C2 9F) are control characters too. */
static void put_safe(bt_screen *s, unsigned char byte)
{
    if (s->held != 0) {
        const char both[2] = {(char)s->held, (char)byte};
        s->held = 0;
        if (byte >= 0x80 && byte < 0xa0)
            put(s, "\xef\xbf\xbd", 3);
        else
            put(s, both, 2);
    } else if (byte == 0xc2) {
        s->held = byte;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
        const char shown[2] = {'^', (char)(byte ^ 0x40)};
        put(s, shown, 2);
    } else {
        const char c = (char)byte;
        put(s, &c, 1);
    }
    s->in_line = byte != '\n';
}

static void show(bt_screen *s, const char *text, size_t size)
{
    if (!s->is_terminal) {
        put(s, text, size);
        if (size > 0) s->in_line = text[size - 1] != '\n';
        return;
    }
    for (size_t i = 0; i < size; i++) {
        if (s->at_begin && text[i] == '\n') continue;
        s->at_begin = false;
        put_safe(s, (unsigned char)text[i]);
    }
}

static void end_line(bt_screen *s)
{
    if (s->in_line) put(s, "\n", 1);
    s->in_line = false;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* What stands between reasoning and the rest, where reasoning is shown at all. */
static void turn_to(bt_screen *s, bt_screen_part part)
{
    if (s->part == part) return;
    bt_app_status(s->app, "%s", "");
    bt_screen_part before = s->part;
    s->part = part;
    s->at_begin = true;
    s->held = 0;
    if (!s->is_terminal) return;
    if (before == BT_SCREEN_REASONING && !s->is_folded) {
        if (s->has_style) put(s, PLAIN, sizeof PLAIN - 1);
        end_line(s);
        put(s, "\n", 1);
    }
    if (part == BT_SCREEN_REASONING) {
        end_line(s);
        if (s->has_style) put(s, DIM, sizeof DIM - 1);
        if (s->is_folded) (void)bt_sink_puts(&s->app->out, "(reasoning folded; /think shows it)\n");
        if (s->is_folded && s->has_style) put(s, PLAIN, sizeof PLAIN - 1);
        if (!s->is_folded && !s->has_style) (void)bt_sink_puts(&s->app->out, "(reasoning)\n");
    } else if (!s->has_style && before == BT_SCREEN_REASONING && !s->is_folded) {
        (void)bt_sink_puts(&s->app->out, "(answer)\n");
    }
}

static void show_reasoning(bt_screen *s, const bt_reply_event *e)
{
    turn_to(s, BT_SCREEN_REASONING);
    bt_text_add(&s->reasoning, e->text, e->size);
    if (s->is_terminal && !s->is_folded)
        show(s, e->text, e->size);
    else
        bt_app_status(s->app, "reasoning: %zu characters", s->reasoning.size);
}

static void show_call(bt_screen *s)
{
    bt_text line = {0};
    turn_to(s, BT_SCREEN_CONTENT);
    end_line(s);
    bt_text_puts(&line, "{\"name\": ");
    bt_text_json_string(&line, s->name.data != NULL ? s->name.data : "", s->name.size);
    bt_text_puts(&line, ", \"arguments\": ");
    bt_text_add(&line, s->arguments.data != NULL ? s->arguments.data : "{}",
                s->arguments.data != NULL ? s->arguments.size : 2);
    bt_text_puts(&line, "}\n");
    if (bt_text_ok(&line)) show(s, line.data, line.size);
    bt_text_free(&line);
}

void bt_screen_begin(bt_screen *s)
{
    s->part = BT_SCREEN_NOTHING;
    s->at_begin = true;
    s->in_line = false;
    s->held = 0;
    s->reasoning.size = 0;
}

bool bt_screen_event(bt_screen *s, const bt_reply_event *e)
{
    switch (e->kind) {
    case BT_REPLY_REASONING:
        show_reasoning(s, e);
        break;
    case BT_REPLY_CONTENT:
        turn_to(s, BT_SCREEN_CONTENT);
        show(s, e->text, e->size);
        break;
    case BT_REPLY_CALL:
        s->name.size = s->arguments.size = 0;
        bt_text_add(&s->name, e->text, e->size);
        break;
    case BT_REPLY_ARGUMENTS:
        bt_text_add(&s->arguments, e->text, e->size);
        break;
    case BT_REPLY_CALL_DONE:
        show_call(s);
        break;
    case BT_REPLY_INCOMPLETE:
    case BT_REPLY_RAW:
        break;
    }
    return bt_sink_flush(&s->app->out);
}

bool bt_screen_end(bt_screen *s)
{
    bt_app_status(s->app, "%s", "");
    if (s->part == BT_SCREEN_REASONING && s->has_style) put(s, PLAIN, sizeof PLAIN - 1);
    if (s->is_terminal || s->ends_lines) end_line(s);
    return bt_sink_flush(&s->app->out);
}

void bt_screen_unfold(bt_screen *s)
{
    if (s->reasoning.size == 0) return;
    if (s->has_style) put(s, DIM, sizeof DIM - 1);
    s->at_begin = true;
    show(s, s->reasoning.data, s->reasoning.size);
    if (s->has_style) put(s, PLAIN, sizeof PLAIN - 1);
    end_line(s);
    (void)bt_sink_flush(&s->app->out);
}
