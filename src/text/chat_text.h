/*
 * What renderers of conversations write into: a growing text whose bytes know their origin, and JSON trees written as
 * Python writes them, since the templates that models were trained with run there.
 */
#ifndef TEXT_CHAT_TEXT_H
#define TEXT_CHAT_TEXT_H

#include "base/json.h"
#include "text/jinja.h"

/* A text of outside with its length; may hold NUL. */
typedef struct bt_chars {
    const char *text; /* terminated; NULL: there is none */
    size_t size;
} bt_chars;

bool bt_chars_equal(bt_chars a, bt_chars b);
bool bt_chars_are(bt_chars a, const char *s);
int bt_chars_compare(bt_chars a, bt_chars b);     /* by bytes, as strcmp would: UTF-8 by code points */
bt_chars bt_chars_of(const bt_json_node *string); /* of a JSON string or number */

/* Zero it, write, then bt_origin_text_take or bt_origin_text_free. A failed allocation is remembered, as in bt_text. */
typedef struct bt_origin_text {
    bt_text text;
    bt_origin_run *runs; /* [n_runs] */
    size_t n_runs, capacity;
    bool failed;
} bt_origin_text;

void bt_origin_add(bt_origin_text *t, const char *s, size_t n, bool from_template);
void bt_origin_template(bt_origin_text *t, const char *s);
void bt_origin_message(bt_origin_text *t, bt_chars s);
/* Message text in which every line but the first is indented by `indent` spaces (they are template). */
void bt_origin_lines(bt_origin_text *t, bt_chars s, size_t indent);
/* Hands the text over; it frees itself on failure. */
bt_status bt_origin_text_take(bt_origin_text *t, bt_rendered *out, bt_error *e);
void bt_origin_text_free(bt_origin_text *t);

/* json.dumps(node, ensure_ascii=False): ", " and ": ", key order kept, floats by repr. */
void bt_py_dump(bt_text *t, const bt_json_node *node);
void bt_py_dump_string(bt_text *t, bt_chars s);
/* str(node): strings as they are, everything else by repr ("True", "{'a': None}"). */
void bt_py_str(bt_text *t, const bt_json_node *node);

bool bt_json_is_integer(const bt_json_node *number);

#endif
