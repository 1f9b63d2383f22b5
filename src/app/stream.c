/* Bytes to stdout and from stdin; see stream.h. */
#include "app/stream.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"

/* A stream that another process set to be non-blocking says "not now" where it should wait: so wait here. */
static bool waited(int fd, short event)
{
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    struct pollfd p = {.fd = fd, .events = event};
    return poll(&p, 1, -1) >= 0 || errno == EINTR;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

void bt_sink_init(bt_sink *s, int fd)
{
    s->fd = fd;
    s->state = BT_SINK_OPEN;
    s->error_number = 0;
    s->used = 0;
}

static bool put(bt_sink *s, const char *data, size_t size)
{
    while (s->state == BT_SINK_OPEN && size > 0) {
        ssize_t n = write(s->fd, data, size);
        if (n >= 0) {
            data += n;
            size -= (size_t)n;
        } else if (errno != EINTR && !waited(s->fd, POLLOUT)) {
            s->state = errno == EPIPE ? BT_SINK_CLOSED : BT_SINK_FAILED;
            s->error_number = errno;
        }
    }
    return s->state == BT_SINK_OPEN;
}

bool bt_sink_flush(bt_sink *s)
{
    size_t n = s->used;
    s->used = 0;
    return put(s, s->buffer, n);
}

bool bt_sink_write(bt_sink *s, const char *data, size_t size)
{
    if (size > sizeof s->buffer - s->used && !bt_sink_flush(s)) return false;
    if (size > sizeof s->buffer) return put(s, data, size);
    if (size > 0) memcpy(s->buffer + s->used, data, size);
    s->used += size;
    return s->state == BT_SINK_OPEN;
}

bool bt_sink_puts(bt_sink *s, const char *text)
{
    return bt_sink_write(s, text, strlen(text));
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* Makes room for at least one more byte, doubling; false: no memory. */
static bool grow(char **data, size_t *capacity)
{
    if (*capacity > SIZE_MAX / 2) return false;
    size_t more = *capacity == 0 ? 1 << 16 : *capacity * 2;
    char *larger = bt_realloc(*data, more, 1);
    if (larger == NULL) return false;
    *data = larger;
    *capacity = more;
    return true;
}

/* One read; -1 with errno after a fault. */
static ssize_t read_some(int fd, char *data, size_t size)
{
    for (;;) {
        ssize_t n = read(fd, data, size);
        if (n >= 0 || (errno != EINTR && !waited(fd, POLLIN))) return n;
    }
}

bt_status bt_read_all(int fd, const char *name, size_t size_max, char **data, size_t *size, bt_error *e)
{
    char *bytes = NULL;
    size_t used = 0, capacity = 0;
    bt_status st = BT_OK;
    for (;;) {
        if (used == capacity && !grow(&bytes, &capacity)) {
            st = bt_fail(e, BT_ERR_MEMORY, "%s: no memory for more than %zu bytes", name, used);
            break;
        }
        ssize_t n = read_some(fd, bytes + used, capacity - used);
        if (n < 0) {
            st = bt_fail(e, BT_ERR_IO, "%s: cannot read: %s", name, strerror(errno));
            break;
        }
        used += (size_t)n;
        if (used > size_max) {
            st = bt_fail(e, BT_ERR_IO, "%s: more than the %zu bytes that are read at most", name, size_max);
            break;
        }
        if (n == 0) break; /* used < capacity here: there is room for the terminator */
    }
    if (st != BT_OK) {
        bt_free(bytes);
        return st;
    }
    bytes[used] = '\0';
    *data = bytes;
    *size = used;
    return BT_OK;
}

bt_status bt_read_input(const char *path, size_t size_max, char **data, size_t *size, bt_error *e)
{
    if (strcmp(path, "-") == 0) return bt_read_all(STDIN_FILENO, "stdin", size_max, data, size, e);
    return bt_read_file_waiting(path, size_max, data, size, e);
}

void bt_lines_init(bt_lines *l, int fd, bt_sink *out)
{
    *l = (bt_lines){.fd = fd, .out = out};
}

void bt_lines_free(bt_lines *l)
{
    bt_free(l->data);
    l->data = NULL;
}

static bt_status fill(bt_lines *l, bt_error *e)
{
    if (l->begin > 0) {
        assert(l->data != NULL);
        memmove(l->data, l->data + l->begin, l->end - l->begin);
        l->end -= l->begin;
        l->begin = 0;
    }
    if (l->end == l->capacity && !grow(&l->data, &l->capacity))
        return bt_fail(e, BT_ERR_MEMORY, "stdin: no memory for a line of more than %zu bytes", l->end);
    (void)bt_sink_flush(l->out);
    ssize_t n = read_some(l->fd, l->data + l->end, l->capacity - l->end);
    if (n < 0) return bt_fail(e, BT_ERR_IO, "stdin: cannot read: %s", strerror(errno));
    l->end += (size_t)n;
    l->is_at_end = n == 0;
    return BT_OK;
}

bt_status bt_lines_next(bt_lines *l, const char **line, size_t *size, bt_error *e)
{
    size_t searched = 0;
    for (;;) {
        size_t n = l->end - l->begin;
        const char *from = n > searched ? l->data + l->begin + searched : NULL;
        const char *newline = from == NULL ? NULL : memchr(from, '\n', n - searched);
        if (newline != NULL || (l->is_at_end && n > 0)) {
            *line = l->data + l->begin;
            *size = newline != NULL ? (size_t)(newline - *line) : n;
            l->begin += *size + (newline != NULL);
            return BT_OK;
        }
        if (l->is_at_end) {
            *line = NULL;
            *size = 0;
            return BT_OK;
        }
        searched = n;
        bt_status st = fill(l, e);
        if (st != BT_OK) return st;
    }
}
