/* Warnings: lines of text about what was given and has no effect, for bt_prompt and bt_tokenizer_warnings. */
#ifndef TEXT_WARNING_H
#define TEXT_WARNING_H

#include "base/json.h"

#define BT_WARNING_NAME_MAX 60 /* bytes that are quoted of a name, or of a value */

/* Adds a line, made safe for a terminal as errors are: names in it come from files and clients. Its end is added. */
void bt_warning_add(bt_text *lines, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* How many bytes of text [size] to quote, for "%.*s": no more than the maximum, and no character in part. */
int bt_warning_cut(const char *text, size_t size);

#endif
