/*
 * JSON for checkpoint files: a pull scanner over a buffer, and a small tree on top of it. Ours because checkpoint files
 * hold NaN and Infinity (cases C15), keys with NUL (C09) and are large; jansson reads what clients send.
 *
 * Strings are byte strings with a length. Numbers stay text until asked for, so that a 64-bit integer is never rounded.
 * UTF-8 is checked, unpaired surrogates are refused, depth and length are bounded. Errors say line and column.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "baltoro.h"
#include "base/arena.h"

#define BT_JSON_DEPTH_MAX 64

typedef enum bt_json_kind {
    BT_JSON_ERROR,
    BT_JSON_END, /* after the one top-level value */
    BT_JSON_OBJECT,
    BT_JSON_OBJECT_END,
    BT_JSON_ARRAY,
    BT_JSON_ARRAY_END,
    BT_JSON_KEY,
    BT_JSON_STRING,
    BT_JSON_NUMBER, /* also NaN, Infinity, -Infinity where BT_JSON_PYTHON is set */
    BT_JSON_TRUE,
    BT_JSON_FALSE,
    BT_JSON_NULL,
} bt_json_kind;

#define BT_JSON_PYTHON 1u /* accept NaN, Infinity, -Infinity */

typedef struct bt_json { /* a scanner; initialise with bt_json_begin, free with bt_json_done */
    const char *begin, *at, *end;
    const char *text; /* of the last KEY, STRING (unescaped) or NUMBER; borrowed until the next call */
    size_t size;
    unsigned flags;
    unsigned depth;
    char stack[BT_JSON_DEPTH_MAX]; /* '{' or '[' */
    int expect;                    /* private: what may come next */
    char *buffer;                  /* private: unescaped text */
    size_t buffer_bytes;
    bt_status status;
    bt_error *error;
} bt_json;

/* The text stays the caller's and must outlive the scanner. *e receives the fault when BT_JSON_ERROR is returned. */
void bt_json_begin(bt_json *j, const char *text, size_t size, unsigned flags, bt_error *e);
void bt_json_done(bt_json *j);
bt_json_kind bt_json_next(bt_json *j);
bool bt_json_skip(bt_json *j, bt_json_kind opened); /* skips the rest of a value whose first event was `opened` */
bool bt_json_text_is(const bt_json *j, const char *s);
/* Stops the scan with a fault of the reader's own, told with line and column. Returns BT_ERR_FORMAT. */
bt_status bt_json_fail(bt_json *j, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Number text to value; false if it is not exactly that (1.5, 1e30, -1 are no u64; "1e2" is no integer). */
bool bt_json_u64(const char *text, size_t size, uint64_t *v);
bool bt_json_i64(const char *text, size_t size, int64_t *v);
bool bt_json_f64(const char *text, size_t size, double *v); /* locale-free, correctly rounded; NaN and Infinity too */

/* A tree, allocated in an arena. Keys of an object are unique: a duplicate is refused. */
typedef struct bt_json_node bt_json_node;
struct bt_json_node {
    bt_json_kind kind;
    const char *text; /* STRING, NUMBER: terminated copy */
    size_t size;
    const char *key; /* of an object's member; terminated copy */
    size_t key_size;
    bt_json_node *child; /* first member or element */
    bt_json_node *next;  /* next sibling */
    size_t n_children;
};
bt_status bt_json_parse(bt_arena *a, const char *text, size_t size, unsigned flags, const bt_json_node **out,
                        bt_error *e);
/* Builds the subtree of the value whose first event `first` was just returned by bt_json_next. */
bt_status bt_json_subtree(bt_arena *a, bt_json *j, bt_json_kind first, const bt_json_node **out);
const bt_json_node *bt_json_get(const bt_json_node *object, const char *key); /* NULL: absent, or not an object */

/* A growing text: the JSON writer, also used to build messages. Failure is remembered and told by bt_text_ok. */
typedef struct bt_text {
    char *data; /* terminated when not NULL */
    size_t size, capacity;
    bool failed;
} bt_text;
void bt_text_add(bt_text *t, const char *s, size_t n);
void bt_text_puts(bt_text *t, const char *s);
void bt_text_printf(bt_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bt_text_json_string(bt_text *t, const char *s, size_t n); /* quoted, escaped; non-ASCII kept but line ends */
void bt_text_json_f64(bt_text *t, double v);                   /* shortest that reads back; null if not finite */
bool bt_text_ok(const bt_text *t);                             /* false: memory ran out on the way */
void bt_text_free(bt_text *t);

/* "12.3 MB" in decimal units. */
typedef struct bt_size_text {
    char text[24];
} bt_size_text;
bt_size_text bt_format_size(uint64_t bytes);

#endif
