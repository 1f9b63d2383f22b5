/*
 * Errors: one status for the program, one sentence for the person.
 *
 * Messages quote names from files that may be hostile, so everything passes one filter on its way in: what is not valid
 * UTF-8, and every control character, becomes '?'. A message can then be printed on any terminal or put into JSON
 * without a second thought. Nothing here allocates: an error must be tellable when memory has run out.
 */
#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define FAULT_BYTES_MAX 256 /* of one entry of a list: a name of 64 KiB must not crowd out all others */
#define MORE_BYTES      40  /* room for " and 18446744073709551615 more" */

const char *bt_version(void)
{
    return BT_VERSION;
}

/* Copies [n] bytes to `to` (bytes_max with the terminator), cleaned, cut before the character that does not fit. */
static void copy_clean(char *to, size_t bytes_max, const char *from, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t length = bt_utf8_decode(from + i, n - i, &c);
        bool printable = length > 0 && c >= 0x20 && !(c >= 0x7f && c < 0xa0);
        size_t wanted = printable ? length : 1;
        if (wanted >= bytes_max - used) break;
        if (printable) {
            memcpy(to + used, from + i, length);
        } else {
            to[used] = '?';
        }
        used += wanted;
        i += length > 0 ? length : 1;
    }
    assert(used < bytes_max);
    to[used] = '\0';
}

bt_status bt_fail(bt_error *e, bt_status status, const char *format, ...)
{
    assert(status != BT_OK);
    if (e == NULL) return status;
    char text[BT_ERROR_BYTES_MAX]; /* apart from *e: the arguments may quote its old message */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    e->status = status;
    copy_clean(e->message, sizeof e->message, text, n < 0 ? 0 : strlen(text));
    return status;
}

bt_status bt_fail_in(bt_error *e, bt_status status, const char *format, ...)
{
    assert(status != BT_OK);
    if (e == NULL) return status;
    char text[2 * BT_ERROR_BYTES_MAX + 2];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, BT_ERROR_BYTES_MAX, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : strlen(text);
    (void)snprintf(text + used, sizeof text - used, ": %s", e->message);
    e->status = status;
    copy_clean(e->message, sizeof e->message, text, strlen(text));
    return status;
}

void bt_fault_add(bt_fault_list *l, const char *format, ...)
{
    l->n_total++;
    if (l->n_named + 1 < l->n_total) return; /* one did not fit: what follows is only counted */
    char item[FAULT_BYTES_MAX + 4];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(item, FAULT_BYTES_MAX + 1, format, args);
    va_end(args);
    size_t size = n < 0 ? 0 : strlen(item);
    if (n > FAULT_BYTES_MAX) {
        while (size > 0 && ((unsigned char)item[size - 1] & 0xc0) == 0x80) size--; /* not through a character */
        if (size > 0 && (unsigned char)item[size - 1] >= 0xc0) size--;
        memcpy(item + size, "...", 3);
        size += 3;
    }
    size_t separator = l->n_named > 0 ? 2 : 0;
    if (separator + size + MORE_BYTES > sizeof l->text - l->used) return;
    memcpy(l->text + l->used, ", ", separator);
    memcpy(l->text + l->used + separator, item, size);
    l->used += separator + size;
    l->n_named++;
}

const char *bt_fault_text(bt_fault_list *l)
{
    assert(l->used + MORE_BYTES <= sizeof l->text);
    l->text[l->used] = '\0';
    if (l->n_named < l->n_total) {
        (void)snprintf(l->text + l->used, MORE_BYTES, " and %zu more", l->n_total - l->n_named);
    }
    return l->text;
}
