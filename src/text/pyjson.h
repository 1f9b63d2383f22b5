/* JSON as Python's json.dumps writes it: ", " and ": ", non-ASCII kept unless asked otherwise, floats as Python
 * prints them. */
#ifndef TEXT_PYJSON_H
#define TEXT_PYJSON_H

#include "baltoro.h"
#include "base/json.h"

#define BT_PYJSON_ESCAPE_MAX 12

/* What stands for a character inside a string; returns its bytes, 0 if the character stands for itself. */
size_t bt_pyjson_escape(uint32_t c, bool ascii, char out[BT_PYJSON_ESCAPE_MAX]);
/* repr() of a float, but NaN, Infinity, -Infinity. `out` as of bt_py_float_repr. */
size_t bt_pyjson_float(double v, char *out);

void bt_pyjson_add_string(bt_text *t, const char *s, size_t n); /* quoted */
/* json.dumps(json.loads(n), ensure_ascii=False). Not for nodes nested deeper than the parser allows. */
void bt_pyjson_add_node(bt_text *t, const bt_json_node *n);

#endif
