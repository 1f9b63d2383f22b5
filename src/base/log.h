/* Log: lines for a person, through one function that the program may set. The library is silent by default. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "baltoro.h"

typedef enum bt_log_level { BT_LOG_NONE, BT_LOG_WARN, BT_LOG_INFO, BT_LOG_DEBUG } bt_log_level;
typedef void (*bt_log_fn)(bt_log_level level, const char *line);
void bt_log_set(bt_log_level level, bt_log_fn fn); /* once, at start */
void bt_log(bt_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
