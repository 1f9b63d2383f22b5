/* Typed and pasted characters; see line_input.h. */
#include "app/line_input.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/utf8.h"

static const char PASTE_BEGIN[] = "\033[200~", PASTE_END[] = "\033[201~";
enum {
    MARK_BYTES = BT_PASTE_MARK_BYTES,
    ESCAPE_MS = 50, /* how long the rest of an escape sequence may take: a lone Escape must not hang */
    N_KEY = 3,      /* bytes that no key sends alone: of a mark that has got so far the rest will come */
    MARK_MS = 5000, /* however slow the line is */
    WAIT_MS = 250,  /* between two looks at what may have happened */
    DROP_MS = 1000, /* a paste that was interrupted and is silent for so long has ended */
    N_READS = 64,   /* of what is thrown away: more than a terminal's queue holds */
    N_PASTES_MAX = 10000,
    TYPED_MAX = 2000, /* a longer paste gets a mark, so that the line stays readable */
};
#define PASTE_BYTES_MAX ((size_t)1 << 26)

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

typedef enum filled { FILLED, TIMED_OUT, ENDED, INTERRUPTED } filled;

/* Reads more bytes after those there are; waits at most `ms`, for ever if that is negative. */
static filled fill(bt_line_input *i, int ms)
{
    if (i->begin > 0) {
        memmove(i->bytes, i->bytes + i->begin, i->end - i->begin);
        i->end -= i->begin;
        i->begin = 0;
    }
    for (;;) {
        if (i->is_interrupted()) return INTERRUPTED;
        if (i->is_at_end) return ENDED;
        if (i->while_waiting != NULL) i->while_waiting(i->user);
        struct pollfd p = {.fd = i->fd, .events = POLLIN};
        int ready = poll(&p, 1, ms < 0 ? WAIT_MS : ms);
        if (ready == 0 && ms >= 0) return TIMED_OUT;
        if (ready <= 0) continue; /* time to look again, or a signal */
        ssize_t n = read(i->fd, i->bytes + i->end, sizeof i->bytes - i->end);
        if (n > 0) {
            i->end += (size_t)n;
            return FILLED;
        }
        if (n == 0 || (errno != EINTR && errno != EAGAIN)) i->is_at_end = true; /* EIO: the terminal is gone */
    }
}

static size_t left(const bt_line_input *i)
{
    return i->end - i->begin;
}

/* Whether the bytes begin with `mark`; reads on while they may become it. in_paste: no key is in there to wait for. */
static bool meets(bt_line_input *i, const char *mark, bool in_paste)
{
    for (;;) {
        size_t n = left(i) < MARK_BYTES ? left(i) : MARK_BYTES;
        if (memcmp(i->bytes + i->begin, mark, n) != 0) return false;
        if (n == MARK_BYTES) return true;
        if (fill(i, in_paste ? -1 : n < N_KEY ? ESCAPE_MS : MARK_MS) != FILLED) return false;
    }
}

/* ---- pastes ------------------------------------------------------------------------------------------------------ */

static size_t count_lines(const bt_text *t)
{
    size_t n = t->size > 0 && t->data[t->size - 1] != '\n';
    for (size_t i = 0; i < t->size; i++) n += t->data[i] == '\n';
    return n;
}

static void make_mark(const bt_line_input *i, size_t paste_i, char mark[64])
{
    size_t n = count_lines(&i->pastes[paste_i]);
    (void)snprintf(mark, 64, "[paste %zu: %zu line%s]", paste_i + 1, n, n == 1 ? "" : "s");
}

/* A paste as it can be typed: one line, not long, without characters that are keys to the editor. */
static bool is_typeable(const bt_text *t)
{
    if (t->size > TYPED_MAX) return false;
    for (size_t i = 0; i < t->size; i++)
        if ((unsigned char)t->data[i] < 0x20 || t->data[i] == 0x7f) return false;
    return true;
}

/* Terminals send line ends as CR. Bytes that are no UTF-8 are replaced here, once for all. */
static void clean(const bt_text *raw, bt_text *out)
{
    for (size_t at = 0; at < raw->size;) {
        uint32_t c;
        size_t n = bt_utf8_decode(raw->data + at, raw->size - at, &c);
        if (n == 0) {
            bt_text_puts(out, "\xef\xbf\xbd");
            at++;
        } else if (c == '\r') {
            bt_text_puts(out, "\n");
            at += at + 1 < raw->size && raw->data[at + 1] == '\n' ? 2 : 1;
        } else {
            bt_text_add(out, raw->data + at, n);
            at += n;
        }
    }
}

/* Takes the bytes up to the end of the paste into *raw. */
static filled collect(bt_line_input *i, bt_text *raw)
{
    for (;;) {
        const unsigned char *from = i->bytes + i->begin, *escape = memchr(from, PASTE_END[0], left(i));
        size_t n = escape != NULL ? (size_t)(escape - from) : left(i);
        if (raw->size < PASTE_BYTES_MAX) bt_text_add(raw, (const char *)from, n);
        i->begin += n;
        if (escape != NULL && meets(i, PASTE_END, true)) {
            i->begin += MARK_BYTES;
            return FILLED;
        }
        if (escape != NULL && i->is_interrupted()) return INTERRUPTED; /* with what there is of the mark */
        if (escape != NULL && left(i) > 0) {
            bt_text_add(raw, (const char *)i->bytes + i->begin, 1);
            i->begin++;
            continue;
        }
        filled f = fill(i, -1);
        if (f != FILLED) return f;
    }
}

/* Into the line goes the text itself or its mark. A paste that cannot be kept is said so in the line: nothing is lost
 * in silence. */
static void place(bt_line_input *i, bt_text *paste)
{
    bool is_whole = !paste->failed && paste->size < PASTE_BYTES_MAX;
    bt_text *more = NULL;
    if (is_whole && is_typeable(paste)) {
        bt_text_add(&i->typed, paste->data != NULL ? paste->data : "", paste->size);
    } else if (is_whole && i->n_pastes < N_PASTES_MAX) {
        more = bt_realloc(i->pastes, i->n_pastes + 1, sizeof *more);
    }
    if (more != NULL) {
        char mark[64];
        i->pastes = more;
        i->pastes[i->n_pastes++] = *paste;
        *paste = (bt_text){.size = 0};
        make_mark(i, i->n_pastes - 1, mark);
        bt_text_puts(&i->typed, mark);
    } else if (!is_whole || !is_typeable(paste)) {
        bt_text_puts(&i->typed, "[a paste was too large and is not here]");
    }
}

static filled take_paste(bt_line_input *i)
{
    bt_text raw = {0}, paste = {0};
    i->begin += MARK_BYTES;
    i->in_paste = true;
    filled f = collect(i, &raw);
    if (f == FILLED) {
        i->in_paste = false;
        clean(&raw, &paste);
        paste.failed |= raw.failed;
        if (raw.size >= PASTE_BYTES_MAX) paste.failed = true;
        place(i, &paste);
    }
    bt_text_free(&raw);
    bt_text_free(&paste);
    return f;
}

bool bt_line_input_expand(const bt_line_input *i, const char *line, size_t size, bt_text *out)
{
    bool any = false;
    for (size_t at = 0; at < size;) {
        size_t n = 0;
        for (size_t k = 0; k < i->n_pastes && line[at] == '[' && n == 0; k++) {
            char mark[64];
            make_mark(i, k, mark);
            if (strlen(mark) > size - at || memcmp(line + at, mark, strlen(mark)) != 0) continue;
            bt_text_add(out, i->pastes[k].data, i->pastes[k].size);
            n = strlen(mark);
        }
        any |= n > 0;
        if (n == 0) bt_text_add(out, line + at, 1);
        at += n > 0 ? n : 1;
    }
    return any;
}

void bt_line_input_free(bt_line_input *i)
{
    for (size_t k = 0; k < i->n_pastes; k++) bt_text_free(&i->pastes[k]);
    bt_free(i->pastes);
    bt_text_free(&i->typed);
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

static bool take_typed(bt_line_input *i, uint32_t *c)
{
    if (i->typed_at == i->typed.size) return false;
    size_t n = bt_utf8_decode(i->typed.data + i->typed_at, i->typed.size - i->typed_at, c);
    i->typed_at += n > 0 ? n : 1;
    if (n == 0) *c = 0xfffd;
    if (i->typed_at == i->typed.size) i->typed.size = i->typed_at = 0;
    return true;
}

/* Throws away the bytes that are there, no more than up to the end of a paste where until_end is set. */
static void skip(bt_line_input *i, bool until_end)
{
    while (i->begin < i->end && (i->in_paste || !until_end)) {
        memmove(i->skipped, i->skipped + 1, MARK_BYTES - 1);
        i->skipped[MARK_BYTES - 1] = (char)i->bytes[i->begin++];
        if (memcmp(i->skipped, PASTE_BEGIN, MARK_BYTES) == 0) i->in_paste = true;
        if (memcmp(i->skipped, PASTE_END, MARK_BYTES) == 0) i->in_paste = false;
    }
}

/* Whether what was thrown away ends within the mark that begins a paste: then the rest is still to come. */
static bool ends_in_mark(const bt_line_input *i)
{
    for (size_t n = MARK_BYTES - 1; n >= N_KEY; n--)
        if (memcmp(i->skipped + MARK_BYTES - n, PASTE_BEGIN, n) == 0) return true;
    return false;
}

/* Ctrl-C takes with it what was typed before, whether it was read or not. The terminal would do so by itself, but for
 * NOFLSH (line_edit.c). It is read rather than flushed: whether a paste has ended stands in there. */
static bt_input interrupted(bt_line_input *i)
{
    struct pollfd p = {.fd = i->fd, .events = POLLIN};
    i->typed.size = i->typed_at = 0;
    memset(i->skipped, 0, sizeof i->skipped);
    skip(i, false);
    for (int k = 0; k < N_READS && poll(&p, 1, 0) > 0; k++) {
        ssize_t n = read(i->fd, i->bytes, sizeof i->bytes);
        if (n <= 0) break;
        i->begin = 0;
        i->end = (size_t)n;
        skip(i, false);
    }
    i->begin = i->end = 0;
    i->in_paste = i->in_paste || ends_in_mark(i);
    if (!i->in_paste) (void)tcflush(i->fd, TCIFLUSH); /* no terminal: nothing to flush */
    return BT_INPUT_INTERRUPTED;
}

/* The rest of a paste that Ctrl-C met: its lines must be neither sent nor run. */
static filled skip_paste(bt_line_input *i)
{
    filled f = FILLED;
    for (skip(i, true); i->in_paste && f == FILLED; skip(i, true)) f = fill(i, DROP_MS);
    i->in_paste = false;
    return f == TIMED_OUT ? FILLED : f;
}

bt_input bt_line_input_next(bt_line_input *i, uint32_t *c)
{
    filled rest = i->in_paste ? skip_paste(i) : FILLED;
    if (rest != FILLED) return rest == INTERRUPTED ? interrupted(i) : BT_INPUT_END;
    for (;;) {
        if (i->is_interrupted()) return interrupted(i);
        if (take_typed(i, c)) return BT_INPUT_CHARACTER;
        filled f = left(i) > 0 ? FILLED : fill(i, -1);
        if (f == FILLED && i->bytes[i->begin] == PASTE_BEGIN[0] && meets(i, PASTE_BEGIN, false)) {
            f = take_paste(i);
            if (f == FILLED) continue;
        }
        if (f == FILLED && (left(i) == 0 || i->is_interrupted())) continue;
        if (f != FILLED) return f == INTERRUPTED ? interrupted(i) : BT_INPUT_END;
        const char *at = (const char *)i->bytes + i->begin;
        size_t n = bt_utf8_decode(at, left(i), c);
        if (n == 0 && left(i) < 4 && bt_utf8_is_partial(at, left(i)) && fill(i, ESCAPE_MS) == FILLED) continue;
        if (n == 0) *c = 0xfffd;
        i->begin += n > 0 ? n : 1;
        return BT_INPUT_CHARACTER;
    }
}
