/*
 * Log: the library has things to say to a person (which default it took, how long repacking took) but no right to
 * print. The program sets where lines go, once, before it starts threads; until then they go nowhere.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#define LINE_BYTES_MAX 2048

static bt_log_level log_level = BT_LOG_NONE;
static bt_log_fn log_fn;

void bt_log_set(bt_log_level level, bt_log_fn fn)
{
    log_level = fn == NULL ? BT_LOG_NONE : level;
    log_fn = fn;
}

void bt_log(bt_log_level level, const char *format, ...)
{
    if (level > log_level || level == BT_LOG_NONE) return;
    char line[LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_fn(level, line);
}
