/* Errors: a status for the program, one sentence for the person. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdarg.h>

#include "baltoro.h"

/* Fills *e (may be NULL) and returns `status`, so that `return bt_fail(e, ...)` reads well. The message is cut at a
 * character border if it is too long; control characters in it become '?' (names come from hostile files). */
bt_status bt_fail(bt_error *e, bt_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message of *e, as errors pass outwards ("model.safetensors: ..."). Returns e's status. */
bt_status bt_fail_in(bt_error *e, bt_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A bounded list for messages that name everything at fault: "a, b, c and 12 more". */
typedef struct bt_fault_list {
    char text[BT_ERROR_BYTES_MAX - 512];
    size_t used, n_named, n_total;
} bt_fault_list;
void bt_fault_add(bt_fault_list *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *bt_fault_text(bt_fault_list *l); /* appends "and N more" where some did not fit */

#endif
