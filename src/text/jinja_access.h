/* What the files with methods of values share. Private to src/text/jinja*.c. */
#ifndef TEXT_JINJA_ACCESS_H
#define TEXT_JINJA_ACCESS_H

#include "text/jinja_value.h"

typedef enum bt_jmethod_kind {
    METHOD_SAFE,
    METHOD_UNSAFE, /* would change the object: hidden by the sandbox */
} bt_jmethod_kind;

typedef struct bt_jmethod {
    const char *name;
    bt_jmethod_fn call; /* NULL: known to Python, not supported here */
    bt_jmethod_kind kind;
} bt_jmethod;

const bt_jmethod *bt_js_methods(size_t *n); /* of strings, sorted by name */

/* No keyword arguments, and between min and max positional ones. */
bool bt_jargs_positional(bt_jx *x, const bt_jargs *a, const char *what, size_t min, size_t max);
/* A place in something of this length, counted from its end if negative. */
bool bt_jarg_position(bt_jx *x, const char *what, bt_jv v, size_t length, size_t *at);

/* Bytes from the start to the i-th character; the size if there are no more. */
size_t bt_js_offset(const bt_js *s, size_t i);
/* Bytes of the n characters from byte `from` on. */
size_t bt_js_offset_from(const bt_js *s, size_t from, size_t n);
bt_jv bt_js_as_markup(bt_jx *x, bt_jv v);

typedef enum bt_strip_sides { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 } bt_strip_sides;
bt_jv bt_js_strip(bt_jx *x, const bt_js *s, const bt_js *chars, bt_strip_sides sides); /* chars NULL: white space */
/* count < 0: all. What is put into message text is message. */
bt_jv bt_js_replace(bt_jx *x, const bt_js *s, const bt_js *old, const bt_js *new, int64_t count);
typedef enum bt_case { CASE_UPPER, CASE_LOWER, CASE_CAPITAL, CASE_TITLE, CASE_SWAP, CASE_FOLD } bt_case;
bt_jv bt_js_to_case(bt_jx *x, const bt_js *s, bt_case to);
void bt_out_case(bt_jx *x, const bt_js *s, size_t size, bt_case which); /* its first bytes; UPPER and LOWER */
bt_jv bt_js_center(bt_jx *x, const bt_js *s, size_t width, const bt_js *fill);
bt_jv bt_js_split_last(bt_jx *x, const bt_js *s, const bt_js *sep); /* s.rsplit(sep, 1)[0] */
bt_jv bt_js_split_lines(bt_jx *x, const bt_js *s, bool keep_ends);  /* a list */
bool bt_js_is_case(const bt_js *s, bool upper);                     /* isupper, islower */

#endif
