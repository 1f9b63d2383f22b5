/* Warnings are cleaned by the filter that errors go through: one line stays one, whatever a name holds. */
#include "text/warning.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/utf8.h"

void bt_warning_add(bt_text *lines, const char *format, ...)
{
    char text[BT_ERROR_BYTES_MAX];
    bt_error clean;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)bt_fail(&clean, BT_ERR_FORMAT, "%s", text);
    bt_text_puts(lines, clean.message);
    bt_text_puts(lines, "\n");
}

int bt_warning_cut(const char *text, size_t size)
{
    return (int)bt_utf8_valid_prefix(text, size < BT_WARNING_NAME_MAX ? size : BT_WARNING_NAME_MAX);
}
