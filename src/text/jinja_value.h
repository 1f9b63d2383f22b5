/*
 * Values of the template language, and the evaluator that makes them. Private to src/text/jinja*.c.
 *
 * All values but namespaces, loops and generators are immutable, as the sandbox demands; they live in one arena per
 * rendering and are never freed singly. A value that came from outside, or was computed from one that did, has
 * `message` set; strings know it byte by byte.
 *
 * Functions that can fail return a value of kind JV_FAIL after storing the message in the evaluator. Builders of text
 * are sticky instead: after a failure they do nothing, and bt_out_take tells.
 */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include <time.h>

#include "baltoro.h"
#include "base/arena.h"

typedef enum bt_jv_kind {
    JV_FAIL,
    JV_MISSING, /* a variable or argument that has no value yet; never seen by a template */
    JV_UNDEFINED,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_BIG, /* an integer beyond 64 bits, kept as its digits: printed, compared, negated, not computed with */
    JV_FLOAT,
    JV_STRING,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_RANGE,
    JV_VIEW, /* dict.keys(), .values(), .items() */
    JV_GENERATOR,
    JV_NAMESPACE,
    JV_MACRO,
    JV_LOOP,
    JV_CYCLER,
    JV_JOINER,
    JV_FUNCTION,
    JV_METHOD,
} bt_jv_kind;

typedef enum bt_view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS } bt_view_kind;

typedef struct bt_js { /* a string: UTF-8 */
    const char *data;
    size_t size;
    const uint8_t *marks;  /* [size] 1: message, 0: template; NULL: all bytes alike, as `message` says */
    bool message;          /* some byte is from a message; for an empty string, where it came from */
    bool markup;           /* markupsafe.Markup: escapes what is added to it */
    bool joined;           /* made by + or ~: more may follow */
    struct bt_jgrow *grow; /* where it lies, with room behind it; or NULL */
} bt_js;

/* Room for a text that a template builds piece by piece: ns.text = ns.text ~ more. The longest so far is continued in
 * place; shorter ones, older values, keep what they had. */
typedef struct bt_jgrow {
    char *data;
    uint8_t *marks;
    size_t used, capacity;
} bt_jgrow;

typedef struct bt_jlist bt_jlist;
typedef struct bt_jdict bt_jdict;
typedef struct bt_jrange bt_jrange;
typedef struct bt_jgen bt_jgen;
typedef struct bt_jundef bt_jundef;
typedef struct bt_jmacro bt_jmacro;
typedef struct bt_jloop bt_jloop;
typedef struct bt_jcycler bt_jcycler;
typedef struct bt_jbound bt_jbound;
typedef struct bt_jfunction bt_jfunction;
typedef struct bt_jx bt_jx;

typedef struct bt_jv {
    uint8_t kind;
    uint8_t view; /* of a JV_VIEW */
    bool message;
    union {
        bool b;
        int64_t i;
        double f;
        const bt_js *s; /* STRING, BIG */
        const bt_jlist *list;
        const bt_jdict *dict;
        bt_jdict *names; /* NAMESPACE */
        const bt_jrange *range;
        bt_jgen *gen;
        const bt_jundef *undef;
        const bt_jmacro *macro;
        bt_jloop *loop;
        bt_jcycler *cycler; /* CYCLER, JOINER */
        const bt_jbound *bound;
        const bt_jfunction *function;
    };
} bt_jv;

struct bt_jlist {
    bt_jv *items;
    size_t n, capacity;
    bool message;  /* some item is, or the list itself came from outside */
    bool grouped;  /* a pair of groupby: has .grouper and .list */
    size_t *grown; /* made by +: items in use by the longest list that begins with this one; or NULL */
};

typedef struct bt_jpair {
    bt_jv key, value;
} bt_jpair;

struct bt_jdict { /* keeps the order of insertion */
    bt_jpair *pairs;
    size_t n, capacity;
    uint32_t *slots; /* [n_slots] pair + 1, 0: free; built once the dict is no longer small */
    size_t n_slots;
    bool message;
};

struct bt_jrange {
    int64_t start, stop, step;
    size_t n;
};

struct bt_jundef {
    const char *hint;  /* a whole sentence, or NULL */
    const char *owner; /* "dict object", "" for a plain variable */
    bt_jv name;        /* string or index */
    bool unsafe;       /* an attribute that the sandbox hides; owner is then the type's name */
};

struct bt_jcycler {
    const bt_jlist *items; /* of a joiner: the separator */
    size_t at;
};

typedef struct bt_jkw {
    const bt_js *name;
    bt_jv value;
} bt_jkw;

typedef struct bt_jargs {
    const bt_jv *v;
    size_t n;
    const bt_jkw *kw;
    size_t n_kw;
} bt_jargs;

struct bt_jfunction {
    const char *name;
    bt_jv (*call)(bt_jx *x, const bt_jargs *a);
};

typedef bt_jv (*bt_jmethod_fn)(bt_jx *x, bt_jv self, const bt_jargs *a);
struct bt_jbound {
    bt_jv self;
    const char *name;
    bt_jmethod_fn call;
};

/* ---- inline constructors ----------------------------------------------------------------------------------------- */

static inline bt_jv bt_jv_of(bt_jv_kind kind)
{
    return (bt_jv){.kind = (uint8_t)kind};
}
static inline bt_jv bt_jv_bool(bool b, bool message)
{
    return (bt_jv){.kind = JV_BOOL, .message = message, .b = b};
}
static inline bt_jv bt_jv_int(int64_t i, bool message)
{
    return (bt_jv){.kind = JV_INT, .message = message, .i = i};
}
static inline bt_jv bt_jv_float(double f, bool message)
{
    return (bt_jv){.kind = JV_FLOAT, .message = message, .f = f};
}
static inline bt_jv bt_jv_string(const bt_js *s)
{
    return (bt_jv){.kind = JV_STRING, .message = s->message, .s = s};
}
static inline bt_jv bt_jv_list(bt_jv_kind kind, const bt_jlist *l)
{
    return (bt_jv){.kind = (uint8_t)kind, .message = l->message, .list = l};
}
static inline bt_jv bt_jv_dict(const bt_jdict *d)
{
    return (bt_jv){.kind = JV_DICT, .message = d->message, .dict = d};
}
static inline bool bt_failed(bt_jv v)
{
    return v.kind == JV_FAIL;
}

/* ---- the evaluator ----------------------------------------------------------------------------------------------- */

typedef struct bt_jnode bt_jnode;
typedef struct bt_jframe bt_jframe;
typedef struct bt_jinja bt_jinja;

typedef struct bt_jout { /* text under construction, used as a stack: see bt_out_take */
    char *data;
    uint8_t *marks;
    size_t size, capacity;
} bt_jout;

struct bt_jx {
    const bt_jinja *template;
    bt_arena *arena;
    bt_jout out;
    const bt_jdict *context;
    bt_jframe *frame;   /* innermost scope */
    bt_jframe **spare;  /* [n_scopes] frames to use again, per scope */
    const bt_jnode *at; /* innermost node under evaluation, for messages */
    unsigned depth, depth_max;
    uint64_t steps, steps_max;
    size_t output_bytes_max, memory_bytes_max;
    struct tm now;
    bool failed;
    bt_status status;
    uint32_t line, column; /* of the failure; 0: none */
    bt_error *error;       /* receives the bare message; never NULL */
};

/* The first failure is the one that is kept. */
bt_jv bt_jx_fail(bt_jx *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
bt_jv bt_jx_fail_status(bt_jx *x, bt_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
bt_jv bt_jx_fail_undefined(bt_jx *x, bt_jv v);          /* what using an undefined value says */
void *bt_jx_alloc(bt_jx *x, size_t count, size_t size); /* zeroed; NULL after failing */
bool bt_jx_charge(bt_jx *x, size_t work);               /* counts one step and one more per 64 of work */
bool bt_jx_charge_scan(bt_jx *x, size_t size);          /* the work of looking up every character in so many bytes */
bool bt_jx_charge_float(bt_jx *x, size_t n_digits);     /* the work of writing or rounding a float */
bool bt_jx_enter(bt_jx *x);                             /* one level of recursion deeper; pair with leave */
void bt_jx_leave(bt_jx *x);

/* ---- strings ----------------------------------------------------------------------------------------------------- */

bt_jv bt_js_copy(bt_jx *x, const char *data, size_t size, bool message);
bt_jv bt_js_static(bt_jx *x, const char *text, bool message);        /* text is not copied */
bt_jv bt_js_slice(bt_jx *x, const bt_js *s, size_t from, size_t to); /* shares the bytes; keeps markup */
size_t bt_js_length(const bt_js *s);                                 /* characters */
bool bt_js_equal(const bt_js *a, const bt_js *b);
bool bt_js_is(const bt_js *s, const char *text);
int bt_js_order(const bt_js *a, const bt_js *b);
bool bt_js_range_message(const bt_js *s, size_t from, size_t to); /* is any byte of it from a message */
/* First occurrence of `what` in s at or after `from`, and the last one; SIZE_MAX: none, or failed. The caller charges
 * for walking over s once; these charge for every place that begins as `what` does: a hostile text has many that fail
 * late. */
size_t bt_js_find(bt_jx *x, const bt_js *s, size_t from, const bt_js *what);
size_t bt_js_find_last(bt_jx *x, const bt_js *s, const bt_js *what);

/* Text under construction: remember bt_out_begin, add, take. Pieces in between nest like brackets. */
size_t bt_out_begin(const bt_jx *x);
void bt_out_add(bt_jx *x, const char *data, size_t size, bool message);
void bt_out_puts(bt_jx *x, const char *text, bool message);
void bt_out_char(bt_jx *x, uint32_t c, bool message);
void bt_out_fill(bt_jx *x, char c, size_t n, bool message);
void bt_out_repeat(bt_jx *x, const bt_js *s, size_t n, bool message);
void bt_out_js(bt_jx *x, const bt_js *s, size_t from, size_t to);
void bt_out_str(bt_jx *x, bt_jv v);                      /* Python's str() */
void bt_out_repr(bt_jx *x, bt_jv v);                     /* Python's repr(), all of it of v's origin */
void bt_out_stain(bt_jx *x, size_t begin, bool message); /* everything since begin has this origin */
bt_jv bt_out_take(bt_jx *x, size_t begin, bool message); /* the string since begin; message: origin if it is empty */
bt_jv bt_jv_str(bt_jx *x, bt_jv v);                      /* str(v) as a value; v itself if it is a string */

/* ---- containers and iteration ------------------------------------------------------------------------------------ */

bt_jlist *bt_jlist_new(bt_jx *x, size_t capacity); /* NULL after failing */
bool bt_jlist_add(bt_jx *x, bt_jlist *l, bt_jv v);
bt_jv bt_jv_pair(bt_jx *x, bt_jv a, bt_jv b); /* a tuple of two */
bt_jdict *bt_jdict_new(bt_jx *x);
bool bt_jdict_put(bt_jx *x, bt_jdict *d, bt_jv key, bt_jv value); /* fails for unhashable keys */
bool bt_jdict_set(bt_jx *x, bt_jdict *d, const bt_js *key, bt_jv value);
/* NULL: not there, or failed (an unhashable key) if x->failed. */
const bt_jv *bt_jdict_get(bt_jx *x, const bt_jdict *d, bt_jv key);
const bt_jv *bt_jdict_find(bt_jx *x, const bt_jdict *d, const bt_js *key);
/* By its keys, which must be of one kind. NULL after failing. */
const bt_jdict *bt_jdict_sorted(bt_jx *x, const bt_jdict *d);
bool bt_jv_hashable(bt_jx *x, bt_jv v); /* without failing but for depth */
bt_jv bt_jrange_item(const bt_jrange *r, size_t i, bool message);

typedef enum bt_jnext { NEXT_END, NEXT_ITEM, NEXT_FAIL } bt_jnext;

typedef struct bt_jiter {
    bt_jv source;
    size_t i;
    bool backwards; /* for `last` and `reverse`, over lists, tuples, ranges, dicts, views, strings */
} bt_jiter;

bool bt_jiter_begin(bt_jx *x, bt_jv v, bt_jiter *it); /* false after failing: not iterable */
bool bt_jv_iterable(bt_jv v);
bt_jnext bt_jiter_next(bt_jx *x, bt_jiter *it, bt_jv *out);
bool bt_jv_collect(bt_jx *x, bt_jv v, bt_jlist *into); /* adds every item of v */
bt_jv bt_jv_to_list(bt_jx *x, bt_jv v);                /* list(v) */

struct bt_jgen { /* a generator: what map, select, batch ... return; consumed once */
    bt_jnext (*next)(bt_jx *x, bt_jgen *g, bt_jv *out);
    bt_jiter source;
    bt_jargs args;
    bt_jv extra[3];
    bt_jdict *seen; /* of unique */
    size_t i;
    bool flag, done;
    const char *what; /* Python's type name, for messages */
};
bt_jv bt_jgen_new(bt_jx *x, const char *what, bt_jnext (*next)(bt_jx *, bt_jgen *, bt_jv *), bt_jgen **out);

/* ---- what values can do ------------------------------------------------------------------------------------------ */

const char *bt_jv_type(bt_jv v); /* "str", "dict" ... */
bool bt_jv_truth(bt_jx *x, bt_jv v);
bool bt_jv_length(bt_jx *x, bt_jv v, size_t *n); /* false: has none; nothing failed */
bool bt_jv_equal(bt_jx *x, bt_jv a, bt_jv b);    /* look at x->failed */
/* -1, 0, 1, or 2 where one is not a number. Fails for what Python does not order. */
int bt_jv_order(bt_jx *x, const char *op, bt_jv a, bt_jv b);
bool bt_jv_contains(bt_jx *x, bt_jv container, bt_jv item);
bt_jv bt_jv_undefined(bt_jx *x, const char *hint, const char *owner, bt_jv name);
bt_jv bt_jv_attribute(bt_jx *x, bt_jv v, const bt_js *name); /* v.name */
bt_jv bt_jv_item(bt_jx *x, bt_jv v, bt_jv key);              /* v[key] */
bt_jv bt_jv_slice(bt_jx *x, bt_jv v, bt_jv start, bt_jv stop, bt_jv step);
/* v.name: true and *out for a method or attribute of the type itself, not an item of it. */
bool bt_jv_own_attribute(bt_jx *x, bt_jv v, const bt_js *name, bt_jv *out);
bt_jv bt_jx_call_macro(bt_jx *x, const bt_jmacro *m, const bt_jargs *a);
bt_jv bt_jv_arith(bt_jx *x, int op, bt_jv a, bt_jv b); /* op: '+', '-', '*', '/', 'f' for //, '%', 'p' for ** */
bt_jv bt_jv_negate(bt_jx *x, bt_jv v, bool plus);
bt_jv bt_js_concat(bt_jx *x, bt_jv a, bt_jv b); /* + on two strings */
/* The texts of parts, one after the other. */
bt_jv bt_js_join(bt_jx *x, const bt_jlist *parts);
bt_jv bt_js_escape(bt_jx *x, bt_jv v);                   /* markupsafe.escape */
bt_jv bt_js_percent(bt_jx *x, bt_jv format, bt_jv args); /* format % args */
/* format.format(...); or format.format_map(*map) if map is not NULL. */
bt_jv bt_js_format(bt_jx *x, bt_jv format, const bt_jargs *a, const bt_jv *map);
double bt_jv_big_double(bt_jv v);

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* Sorts positional and keyword arguments into out[], one for each of the space-separated `names`; JV_MISSING where none
 * was given; the first n_required must be. */
bool bt_jargs_bind(bt_jx *x, const bt_jargs *a, const char *what, const char *names, size_t n_required, bt_jv *out);
bool bt_jarg_int(bt_jx *x, const char *what, bt_jv v, int64_t *i); /* integers and booleans */
bool bt_jarg_size(bt_jx *x, const char *what, bt_jv v, size_t *n); /* negative becomes 0 */
const bt_js *bt_jarg_string(bt_jx *x, const char *what, bt_jv v);  /* NULL after failing */
bool bt_jargs_message(const bt_jargs *a);

/* ---- filters, tests, functions ----------------------------------------------------------------------------------- */

typedef struct bt_jfilter {
    const char *name;
    bt_jv (*apply)(bt_jx *x, bt_jv v, const bt_jargs *a); /* NULL: known to Jinja2, not supported here */
} bt_jfilter;

typedef struct bt_jtest {
    const char *name;
    const char *params;                                  /* names of its arguments besides the value; all are needed */
    bool (*holds)(bt_jx *x, bt_jv v, const bt_jv *args); /* look at x->failed */
} bt_jtest;

const bt_jfilter *bt_jfilter_find(const char *name, size_t size);
const bt_jtest *bt_jtest_find(const char *name, size_t size);
const bt_jfunction *bt_jfunction_find(const bt_js *name); /* a global; NULL: none */
bt_jv bt_jx_filter(bt_jx *x, const char *name, size_t size, const bt_jfilter *f, bt_jv v, const bt_jargs *a);
bt_jv bt_jx_test(bt_jx *x, const char *name, size_t size, const bt_jtest *t, bt_jv v, const bt_jargs *a);

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

struct bt_jinja_trust;
/* The variables of a template from their JSON text. NULL after failing. */
const bt_jdict *bt_jx_load_context(bt_jx *x, const char *text, size_t size, const struct bt_jinja_trust *trusted,
                                   size_t n_trusted);
bt_jv bt_jv_to_json(bt_jx *x, bt_jv v, const bt_jargs *a); /* the filter tojson */

#endif
