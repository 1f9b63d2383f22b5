/*
 * The parsed template: tokens, syntax tree, scopes. Private to src/text/jinja*.c.
 *
 * Variables are resolved when the template is parsed, by the rules of Jinja2's compiler (jinja_scope.c): every name
 * knows the scope that holds it and its slot there.
 */
#ifndef TEXT_JINJA_NODE_H
#define TEXT_JINJA_NODE_H

#include "text/jinja.h"
#include "text/jinja_value.h"

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

typedef enum bt_jtok_kind {
    TK_EOF,
    TK_DATA,
    TK_VARIABLE_BEGIN,
    TK_VARIABLE_END,
    TK_BLOCK_BEGIN,
    TK_BLOCK_END,
    TK_NAME,
    TK_STRING,
    TK_INTEGER,
    TK_FLOAT,
    TK_OPERATOR, /* op holds which */
} bt_jtok_kind;

typedef enum bt_jop {               /* operators of one character stand for themselves */
                      OP_POW = 128, /* ** */
                      OP_FLOORDIV,  /* // */
                      OP_EQ,
                      OP_NE,
                      OP_LE,
                      OP_GE,
                      OP_IN, /* as words; never tokens */
                      OP_NOT_IN,
} bt_jop;

typedef struct bt_jtok {
    uint8_t kind;
    uint8_t op;
    uint32_t line, column;
    const char *text; /* DATA, NAME, STRING (decoded) */
    size_t size;
    bt_jv number; /* INTEGER, FLOAT */
} bt_jtok;

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

typedef enum bt_jnode_kind {
    /* expressions */
    JN_CONST,
    JN_NAME,
    JN_NS_REF, /* ns.attr as a target */
    JN_TUPLE,
    JN_LIST,
    JN_DICT,
    JN_NOT,
    JN_NEG,
    JN_POS,
    JN_BINARY,
    JN_CONCAT,
    JN_AND,
    JN_OR,
    JN_COMPARE,
    JN_COND,
    JN_ATTRIBUTE,
    JN_INDEX,
    JN_SLICE,
    JN_CALL,
    JN_FILTER,
    JN_TEST,
    /* statements */
    JN_TEXT,
    JN_PRINT,
    JN_FOR,
    JN_IF,
    JN_SET,
    JN_SET_BLOCK,
    JN_MACRO,
    JN_CALL_BLOCK,
    JN_FILTER_BLOCK,
    JN_WITH,
    JN_BREAK,
    JN_CONTINUE,
    JN_GENERATION,
} bt_jnode_kind;

typedef struct bt_jnodes { /* a list under construction */
    bt_jnode *first, *last;
    size_t n;
} bt_jnodes;

typedef enum bt_jload { LOAD_PARAMETER, LOAD_RESOLVE, LOAD_ALIAS, LOAD_MISSING } bt_jload;

typedef struct bt_jslot { /* a variable of a scope, and its value when the scope is entered */
    const bt_js *name;
    bt_jload load;
    uint32_t level, slot; /* LOAD_ALIAS: whose value */
} bt_jslot;

typedef struct bt_jscope {
    struct bt_jscope *parent;
    uint32_t id, level;
    bt_jslot *slots;
    size_t n, capacity;
    bool captured; /* a macro or call block is defined inside: frames may outlive the scope */
} bt_jscope;

typedef struct bt_jcall { /* what is in the parentheses of calls, filters and tests */
    bt_jnode *args;       /* positional */
    bt_jnode *keywords;   /* each with `key` */
    bt_jnode *star, *star_star;
    size_t n_args, n_keywords;
} bt_jcall;

typedef struct bt_jbody { /* of a macro or call block */
    bt_jnode *params;     /* JN_NAME each */
    bt_jnode *defaults;   /* of the last params */
    size_t n_params, n_defaults;
    bt_jnode *body;
    bt_jscope *scope;
    bool uses_caller, uses_kwargs, uses_varargs, explicit_caller;
    uint32_t caller_slot, kwargs_slot, varargs_slot;
} bt_jbody;

struct bt_jnode {
    uint8_t kind;
    uint8_t op;
    bool flag; /* FOR: recursive; SLICE etc: unused */
    uint32_t line, column;
    bt_jnode *next;   /* in its list */
    const bt_js *key; /* of a keyword argument; of a `with` value: unused */
    union {
        bt_jv value; /* CONST */
        struct {
            const bt_js *name, *attribute; /* NAME, NS_REF */
            uint32_t level, slot;
        };
        struct {
            bt_jnode *items; /* TUPLE, LIST, CONCAT, PRINT; DICT: key, value, key, value ... */
            size_t n_items;
        };
        struct {
            bt_jnode *a, *b; /* NOT, NEG, POS: a; BINARY, AND, OR; COMPARE: a, operands from b, each with its op */
        };
        struct {
            bt_jnode *test, *yes, *no; /* COND; no may be NULL */
        };
        struct {
            bt_jnode *object;
            const bt_js *attr; /* ATTRIBUTE */
            bt_jnode *index;   /* INDEX */
        };
        struct {
            bt_jnode *start, *stop, *step; /* SLICE; each may be NULL */
        };
        struct {
            bt_jnode *subject; /* CALL, FILTER (NULL: the block's text), TEST */
            const bt_js *called;
            const void *builtin; /* the filter or test, NULL if there is none: an error once it is reached */
            bt_jcall call;
        };
        struct {
            bt_jnode *target, *iter, *filter, *body, *otherwise; /* FOR; SET: target, iter = value */
            bt_jscope *scope, *filter_scope, *else_scope;
            uint32_t loop_slot;
            bool extended; /* `loop` is used */
        };
        struct {
            bt_jnode *condition, *then, *elifs, *last; /* IF; elifs are IF nodes */
        };
        struct { /* SET_BLOCK: target, chain, inner; FILTER_BLOCK: chain, inner; WITH: targets, values, inner */
            bt_jnode *block_target, *chain, *values, *inner;
            bt_jscope *inner_scope;
        };
        struct {
            const bt_js *macro_name;
            uint32_t macro_level, macro_slot;
            bt_jnode *callee; /* CALL_BLOCK: the call */
            bt_jbody *macro;  /* MACRO, CALL_BLOCK, GENERATION */
        };
    };
};

struct bt_jinja {
    bt_arena *arena;
    const char *name;
    bt_jnode *body;
    bt_jscope *root;
    uint32_t n_scopes;
};

/* ---- running ----------------------------------------------------------------------------------------------------- */

struct bt_jframe {
    struct bt_jframe *parent; /* the frame of the enclosing scope; links spare frames too */
    const bt_jscope *scope;
    bt_jv slots[];
};

struct bt_jmacro {
    const bt_js *name; /* NULL: a call block */
    const bt_jbody *body;
    bt_jframe *frame; /* where it was defined */
};

struct bt_jloop { /* the variable `loop` */
    const bt_jnode *node;
    bt_jframe *outer; /* of the for statement, for loop(...) */
    bt_jiter iter;
    bt_jv iterable, after, current, before, changed;
    int64_t index0, depth0;
    bool filtered; /* the condition is still to be applied to what iter gives */
    bool has_length;
    size_t length;
};

bt_jv bt_jx_eval(bt_jx *x, const bt_jnode *n);
bt_jv bt_jx_eval_call(bt_jx *x, const bt_jnode *n, bt_jv caller); /* a CALL node with the macro of a call block */
/* Runs a list of statements, its text goes to the output. */
typedef enum bt_jflow { JF_NEXT, JF_BREAK, JF_CONTINUE, JF_FAIL } bt_jflow;
bt_jflow bt_jx_run(bt_jx *x, const bt_jnode *first);
bt_jframe *bt_jframe_enter(bt_jx *x, const bt_jscope *s, bt_jframe *parent); /* NULL after failing; becomes x->frame */
bool bt_jx_assign(bt_jx *x, const bt_jnode *target, bt_jv v);
bt_jv bt_jx_apply_filter(bt_jx *x, const bt_jnode *n, bt_jv v); /* a FILTER node to a value */
bt_jnext bt_jloop_next(bt_jx *x, bt_jloop *l, bt_jv *out);
bt_jv bt_jloop_attribute(bt_jx *x, bt_jv v, const bt_js *name); /* JV_MISSING: no such thing */
bt_jv bt_jloop_recurse(bt_jx *x, bt_jloop *l, const bt_jargs *a);

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

typedef struct bt_jparser {
    bt_arena *arena;
    const char *name;
    bt_error *error;
    bt_status status;  /* of the first fault */
    const bt_jtok *at; /* current token */
    unsigned depth;
    /* Unknown filters and tests outside of conditional code are errors at once, inside when they are reached: so
     * Jinja2. */
    bt_jnode *unknown; /* the first one not yet excused */
    bool soft;
    unsigned n_loops; /* around, in this function */
} bt_jparser;

/* The source as tokens, ended by TK_EOF. NULL after failing. */
const bt_jtok *bt_jinja_lex(bt_jparser *p, const char *source, size_t size);
bool bt_jscope_resolve(bt_jparser *p, bt_jinja *t);

/* Used between the parser's files. All return NULL or false after failing. */
void *bt_jparse_alloc(bt_jparser *p, size_t count, size_t size);
bool bt_jparse_fail(bt_jparser *p, const bt_jtok *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool bt_jparse_fail_at(bt_jparser *p, uint32_t line, uint32_t column, bt_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
bt_jnode *bt_jparse_node(bt_jparser *p, bt_jnode_kind kind, const bt_jtok *at);
bool bt_jparse_enter(bt_jparser *p);
void bt_jnodes_add(bt_jnodes *l, bt_jnode *n);
const bt_js *bt_jparse_string(bt_jparser *p, const char *text, size_t size);
bool bt_jparse_is_op(const bt_jparser *p, int op);
bool bt_jparse_is_name(const bt_jparser *p, const char *name);
bool bt_jparse_skip_op(bt_jparser *p, int op);
bool bt_jparse_skip_name(bt_jparser *p, const char *name);
bool bt_jparse_expect_op(bt_jparser *p, int op);
const bt_js *bt_jparse_expect_name(bt_jparser *p, const char *what);
const char *bt_jtok_text(const bt_jtok *t, char room[80]); /* for messages */

typedef struct bt_jtuple_rules {
    bool targets;      /* only names and literals, as in `for a, b in` */
    bool namespaces;   /* ns.attr is a target */
    bool no_condition; /* no `x if y` */
    bool parenthesised;
} bt_jtuple_rules;
bt_jnode *bt_jparse_tuple(bt_jparser *p, bt_jtuple_rules rules);
bt_jnode *bt_jparse_expression(bt_jparser *p);
bt_jnode *bt_jparse_filters(bt_jparser *p, bt_jnode *subject, bool inline_start);

#endif
