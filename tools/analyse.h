/*
 * For tools/check_static.sh, which puts this before every file: analysers see one file at a time, and do not know that
 * the functions which report a fault never return BT_OK. Their definitions assert it.
 */
#ifndef TOOLS_ANALYSE_H
#define TOOLS_ANALYSE_H

#include "base/error.h"
#include "base/json.h"

#define bt_fail(e, status, ...)    (bt_fail(e, status, __VA_ARGS__), (status))
#define bt_fail_in(e, status, ...) (bt_fail_in(e, status, __VA_ARGS__), (status))
#define bt_json_fail(j, ...)       (bt_json_fail(j, __VA_ARGS__), BT_ERR_FORMAT)

#endif
