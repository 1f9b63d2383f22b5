/*
 * Expressions of a template, parsed by recursive descent in the order of Jinja2's own grammar, oddities included:
 * `**` binds to the left, a filter after a unary minus takes the negated value, `a if b` needs no else, and a test
 * takes one argument without parentheses.
 *
 * Filters and tests are looked up here. One that does not exist is an error at once, except inside an `if` statement
 * or conditional expression, where Jinja2 waits until it is reached: templates guard optional filters that way.
 */
#include "text/jinja_node.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define DEPTH_MAX 200 /* of nested brackets and blocks */

/* ---- failing, allocating ----------------------------------------------------------------------------------------- */

static bool report(bt_jparser *p, uint32_t line, uint32_t column, bt_status status, const char *what)
{
    if (p->status != BT_OK) return false; /* the first fault is the one to tell */
    p->status = status;
    if (line == 0) {
        (void)bt_fail(p->error, status, "%s: %s", p->name, what);
    } else {
        (void)bt_fail(p->error, status, "%s, line %u, column %u: %s", p->name, (unsigned)line, (unsigned)column, what);
    }
    return false;
}

bool bt_jparse_fail_at(bt_jparser *p, uint32_t line, uint32_t column, bt_status status, const char *format, ...)
{
    char what[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return report(p, line, column, status, what);
}

bool bt_jparse_fail(bt_jparser *p, const bt_jtok *at, const char *format, ...)
{
    char what[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return report(p, at->line, at->column, BT_ERR_FORMAT, what);
}

void *bt_jparse_alloc(bt_jparser *p, size_t count, size_t size)
{
    void *room = bt_arena_alloc(p->arena, count, size);
    if (room == NULL) (void)report(p, 0, 0, BT_ERR_MEMORY, "no memory to parse the template");
    return room;
}

bt_jnode *bt_jparse_node(bt_jparser *p, bt_jnode_kind kind, const bt_jtok *at)
{
    bt_jnode *n = bt_jparse_alloc(p, 1, sizeof *n);
    if (n == NULL) return NULL;
    n->kind = (uint8_t)kind;
    n->line = at->line;
    n->column = at->column;
    return n;
}

bool bt_jparse_enter(bt_jparser *p)
{
    if (p->depth == DEPTH_MAX) return bt_jparse_fail(p, p->at, "more than %d levels of nesting", DEPTH_MAX);
    p->depth++;
    return true;
}

void bt_jnodes_add(bt_jnodes *l, bt_jnode *n)
{
    assert(n->next == NULL);
    if (l->last == NULL) {
        l->first = n;
    } else {
        l->last->next = n;
    }
    l->last = n;
    l->n++;
}

const bt_js *bt_jparse_string(bt_jparser *p, const char *text, size_t size)
{
    bt_js *s = bt_jparse_alloc(p, 1, sizeof *s);
    if (s == NULL) return NULL;
    s->data = text;
    s->size = size;
    return s;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

const char *bt_jtok_text(const bt_jtok *t, char room[80])
{
    static const char *const names[] = {"the end of the template", "text", "'{{'", "'}}'", "'{%'", "'%}'"};
    static const char *const pairs[] = {"**", "//", "==", "!=", "<=", ">="};
    if (t->kind <= TK_BLOCK_END) return names[t->kind];
    if (t->kind == TK_OPERATOR) {
        if (t->op >= OP_POW) return pairs[t->op - OP_POW];
        (void)snprintf(room, 80, "'%c'", t->op);
    } else if (t->kind == TK_NAME) {
        (void)snprintf(room, 80, "'%.*s'", (int)(t->size < 60 ? t->size : 60), t->text);
    } else {
        (void)snprintf(room, 80, "a %s", t->kind == TK_STRING ? "string" : "number");
    }
    return room;
}

bool bt_jparse_is_op(const bt_jparser *p, int op)
{
    return p->at->kind == TK_OPERATOR && p->at->op == op;
}

static bool token_is(const bt_jtok *t, const char *name)
{
    size_t n = strlen(name);
    return t->kind == TK_NAME && t->size == n && memcmp(t->text, name, n) == 0;
}

bool bt_jparse_is_name(const bt_jparser *p, const char *name)
{
    return token_is(p->at, name);
}

bool bt_jparse_skip_op(bt_jparser *p, int op)
{
    if (!bt_jparse_is_op(p, op)) return false;
    p->at++;
    return true;
}

bool bt_jparse_skip_name(bt_jparser *p, const char *name)
{
    if (!token_is(p->at, name)) return false;
    p->at++;
    return true;
}

bool bt_jparse_expect_op(bt_jparser *p, int op)
{
    if (bt_jparse_skip_op(p, op)) return true;
    char room[80], wanted[80];
    const bt_jtok want = {.kind = TK_OPERATOR, .op = (uint8_t)op};
    return bt_jparse_fail(p, p->at, "expected %s, found %s", bt_jtok_text(&want, wanted), bt_jtok_text(p->at, room));
}

const bt_js *bt_jparse_expect_name(bt_jparser *p, const char *what)
{
    if (p->at->kind != TK_NAME) {
        char room[80];
        (void)bt_jparse_fail(p, p->at, "expected %s, found %s", what, bt_jtok_text(p->at, room));
        return NULL;
    }
    const bt_jtok *t = p->at++;
    return bt_jparse_string(p, t->text, t->size);
}

/* ---- primaries --------------------------------------------------------------------------------------------------- */

static bt_jnode *constant(bt_jparser *p, const bt_jtok *at, bt_jv v)
{
    bt_jnode *n = bt_jparse_node(p, JN_CONST, at);
    if (n != NULL) n->value = v;
    return n;
}

static bt_jnode *parse_name(bt_jparser *p, bool namespaces)
{
    const bt_jtok *t = p->at++;
    bool truth = token_is(t, "true") || token_is(t, "True");
    if (truth || token_is(t, "false") || token_is(t, "False")) return constant(p, t, bt_jv_bool(truth, false));
    if (token_is(t, "none") || token_is(t, "None")) return constant(p, t, bt_jv_of(JV_NONE));
    bool reference = namespaces && bt_jparse_is_op(p, '.');
    bt_jnode *n = bt_jparse_node(p, reference ? JN_NS_REF : JN_NAME, t);
    if (n == NULL || (n->name = bt_jparse_string(p, t->text, t->size)) == NULL) return NULL;
    if (reference) {
        p->at++;
        n->attribute = bt_jparse_expect_name(p, "an attribute's name");
        if (n->attribute == NULL) return NULL;
    }
    return n;
}

/* Neighbouring literals are one string. */
static bt_jnode *parse_string(bt_jparser *p)
{
    const bt_jtok *t = p->at;
    size_t size = 0;
    for (const bt_jtok *s = t; s->kind == TK_STRING; s++) size += s->size;
    const char *text = t->text;
    if (t[1].kind == TK_STRING) {
        char *joined = bt_jparse_alloc(p, size + 1, 1);
        if (joined == NULL) return NULL;
        size_t n = 0;
        for (const bt_jtok *s = t; s->kind == TK_STRING; s++) {
            if (s->size > 0) memcpy(joined + n, s->text, s->size);
            n += s->size;
        }
        text = joined;
    }
    while (p->at->kind == TK_STRING) p->at++;
    const bt_js *s = bt_jparse_string(p, text, size);
    return s == NULL ? NULL : constant(p, t, bt_jv_string(s));
}

static bt_jnode *parse_list(bt_jparser *p)
{
    bt_jnode *n = bt_jparse_node(p, JN_LIST, p->at);
    bt_jnodes items = {0};
    p->at++;
    while (n != NULL && !bt_jparse_is_op(p, ']')) {
        if (items.n > 0 && !bt_jparse_expect_op(p, ',')) return NULL;
        if (bt_jparse_is_op(p, ']')) break;
        bt_jnode *item = bt_jparse_expression(p);
        if (item == NULL) return NULL;
        bt_jnodes_add(&items, item);
    }
    if (n == NULL || !bt_jparse_expect_op(p, ']')) return NULL;
    n->items = items.first;
    n->n_items = items.n;
    return n;
}

static bt_jnode *parse_dict(bt_jparser *p)
{
    bt_jnode *n = bt_jparse_node(p, JN_DICT, p->at);
    bt_jnodes items = {0};
    p->at++;
    while (n != NULL && !bt_jparse_is_op(p, '}')) {
        if (items.n > 0 && !bt_jparse_expect_op(p, ',')) return NULL;
        if (bt_jparse_is_op(p, '}')) break;
        bt_jnode *key = bt_jparse_expression(p);
        if (key == NULL || !bt_jparse_expect_op(p, ':')) return NULL;
        bt_jnode *value = bt_jparse_expression(p);
        if (value == NULL) return NULL;
        bt_jnodes_add(&items, key);
        bt_jnodes_add(&items, value);
    }
    if (n == NULL || !bt_jparse_expect_op(p, '}')) return NULL;
    n->items = items.first;
    n->n_items = items.n;
    return n;
}

static bt_jnode *primary(bt_jparser *p, bool namespaces)
{
    const bt_jtok *t = p->at;
    switch (t->kind) {
    case TK_NAME:
        return parse_name(p, namespaces);
    case TK_STRING:
        return parse_string(p);
    case TK_INTEGER:
    case TK_FLOAT:
        p->at++;
        return constant(p, t, t->number);
    default:
        break;
    }
    if (bt_jparse_skip_op(p, '(')) {
        bt_jnode *n = bt_jparse_tuple(p, (bt_jtuple_rules){.parenthesised = true});
        return n != NULL && bt_jparse_expect_op(p, ')') ? n : NULL;
    }
    if (bt_jparse_is_op(p, '[')) return parse_list(p);
    if (bt_jparse_is_op(p, '{')) return parse_dict(p);
    char room[80];
    (void)bt_jparse_fail(p, t, "expected an expression, found %s", bt_jtok_text(t, room));
    return NULL;
}

static bt_jnode *parse_primary(bt_jparser *p, bool namespaces)
{
    if (!bt_jparse_enter(p)) return NULL;
    bt_jnode *n = primary(p, namespaces);
    p->depth--;
    return n;
}

static bool tuple_ends(const bt_jparser *p)
{
    return p->at->kind == TK_VARIABLE_END || p->at->kind == TK_BLOCK_END || bt_jparse_is_op(p, ')');
}

static bt_jnode *parse_or(bt_jparser *p);

bt_jnode *bt_jparse_tuple(bt_jparser *p, bt_jtuple_rules rules)
{
    const bt_jtok *start = p->at;
    bt_jnodes items = {0};
    bool is_tuple = false;
    for (;;) {
        if (items.n > 0 && !bt_jparse_expect_op(p, ',')) return NULL;
        if (tuple_ends(p)) break;
        bt_jnode *item = rules.targets        ? parse_primary(p, rules.namespaces)
                         : rules.no_condition ? parse_or(p)
                                              : bt_jparse_expression(p);
        if (item == NULL) return NULL;
        bt_jnodes_add(&items, item);
        if (!bt_jparse_is_op(p, ',')) break;
        is_tuple = true;
    }
    if (!is_tuple && items.n == 1) return items.first;
    if (!is_tuple && !rules.parenthesised) {
        char room[80];
        (void)bt_jparse_fail(p, p->at, "expected an expression, found %s", bt_jtok_text(p->at, room));
        return NULL;
    }
    bt_jnode *n = bt_jparse_node(p, JN_TUPLE, start);
    if (n == NULL) return NULL;
    n->items = items.first;
    n->n_items = items.n;
    return n;
}

/* ---- subscripts and calls ---------------------------------------------------------------------------------------- */

static bool slice_part(bt_jparser *p, bt_jnode **out)
{
    *out = NULL;
    if (bt_jparse_is_op(p, ':') || bt_jparse_is_op(p, ']') || bt_jparse_is_op(p, ',')) return true;
    *out = bt_jparse_expression(p);
    return *out != NULL;
}

/* One of what stands in [ ]: an expression or a slice. */
static bt_jnode *parse_subscribed(bt_jparser *p)
{
    const bt_jtok *start = p->at;
    bt_jnode *first = NULL;
    if (!bt_jparse_is_op(p, ':')) {
        first = bt_jparse_expression(p);
        if (first == NULL || !bt_jparse_is_op(p, ':')) return first;
    }
    p->at++;
    bt_jnode *n = bt_jparse_node(p, JN_SLICE, start);
    if (n == NULL || !slice_part(p, &n->stop)) return NULL;
    n->start = first;
    if (bt_jparse_skip_op(p, ':') && !slice_part(p, &n->step)) return NULL;
    return n;
}

static bt_jnode *parse_index(bt_jparser *p, bt_jnode *object, const bt_jtok *at)
{
    bt_jnodes items = {0};
    while (!bt_jparse_is_op(p, ']')) {
        if (items.n > 0 && !bt_jparse_expect_op(p, ',')) return NULL;
        bt_jnode *item = parse_subscribed(p);
        if (item == NULL) return NULL;
        bt_jnodes_add(&items, item);
    }
    p->at++;
    bt_jnode *n = bt_jparse_node(p, JN_INDEX, at);
    if (n == NULL) return NULL;
    n->object = object;
    n->index = items.first;
    if (items.n != 1) {
        n->index = bt_jparse_node(p, JN_TUPLE, at);
        if (n->index == NULL) return NULL;
        n->index->items = items.first;
        n->index->n_items = items.n;
    }
    return n;
}

static bt_jnode *parse_subscript(bt_jparser *p, bt_jnode *object)
{
    const bt_jtok *at = p->at++;
    if (at->op == '[') return parse_index(p, object, at);
    const bt_jtok *name = p->at;
    bool number = name->kind == TK_INTEGER;
    if (name->kind != TK_NAME && !number) {
        char room[80];
        (void)bt_jparse_fail(p, name, "expected a name or number after '.', found %s", bt_jtok_text(name, room));
        return NULL;
    }
    p->at++;
    bt_jnode *n = bt_jparse_node(p, number ? JN_INDEX : JN_ATTRIBUTE, name);
    if (n == NULL) return NULL;
    n->object = object;
    if (number) {
        n->index = constant(p, name, name->number);
        return n->index == NULL ? NULL : n;
    }
    n->attr = bt_jparse_string(p, name->text, name->size);
    return n->attr == NULL ? NULL : n;
}

/* One argument into the call; `keywords` and `positional` are its lists. */
static bool parse_argument(bt_jparser *p, bt_jcall *c, bt_jnodes *positional, bt_jnodes *keywords)
{
    const bt_jtok *at = p->at;
    bool after_star = c->star != NULL || c->star_star != NULL;
    if (bt_jparse_skip_op(p, '*')) {
        if (after_star) return bt_jparse_fail(p, at, "only one *argument, before any **argument");
        return (c->star = bt_jparse_expression(p)) != NULL;
    }
    if (bt_jparse_skip_op(p, OP_POW)) {
        if (c->star_star != NULL) return bt_jparse_fail(p, at, "only one **argument");
        return (c->star_star = bt_jparse_expression(p)) != NULL;
    }
    bool keyword = at->kind == TK_NAME && at[1].kind == TK_OPERATOR && at[1].op == '=';
    if (keyword) {
        if (c->star_star != NULL) return bt_jparse_fail(p, at, "a keyword argument after a **argument");
        p->at += 2;
    } else if (after_star || keywords->n > 0) {
        return bt_jparse_fail(p, at, "a positional argument after a keyword or starred one");
    }
    bt_jnode *value = bt_jparse_expression(p);
    if (value == NULL) return false;
    if (!keyword) {
        bt_jnodes_add(positional, value);
        return true;
    }
    for (const bt_jnode *k = keywords->first; k != NULL; k = k->next) {
        if (k->key->size == at->size && memcmp(k->key->data, at->text, at->size) == 0) {
            return bt_jparse_fail(p, at, "the keyword argument '%.*s' is given twice", (int)at->size, at->text);
        }
    }
    value->key = bt_jparse_string(p, at->text, at->size);
    bt_jnodes_add(keywords, value);
    return value->key != NULL;
}

/* "(...)" of a call, a filter or a test. */
static bool parse_arguments(bt_jparser *p, bt_jcall *c)
{
    bt_jnodes positional = {0}, keywords = {0};
    bool comma_due = false;
    p->at++;
    while (!bt_jparse_is_op(p, ')')) {
        if (comma_due && !bt_jparse_expect_op(p, ',')) return false;
        if (comma_due && bt_jparse_is_op(p, ')')) break;
        if (!parse_argument(p, c, &positional, &keywords)) return false;
        comma_due = true;
    }
    p->at++;
    c->args = positional.first;
    c->n_args = positional.n;
    c->keywords = keywords.first;
    c->n_keywords = keywords.n;
    return true;
}

static bt_jnode *parse_call(bt_jparser *p, bt_jnode *callee)
{
    bt_jnode *n = bt_jparse_node(p, JN_CALL, p->at);
    if (n == NULL || !parse_arguments(p, &n->call)) return NULL;
    n->subject = callee;
    return n;
}

static bt_jnode *parse_postfix(bt_jparser *p, bt_jnode *n)
{
    while (n != NULL) {
        if (bt_jparse_is_op(p, '.') || bt_jparse_is_op(p, '[')) {
            n = parse_subscript(p, n);
        } else if (bt_jparse_is_op(p, '(')) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

/* ---- filters and tests ------------------------------------------------------------------------------------------- */

/* "name" or "name.name": the last is never found, but is parsed. */
static const bt_js *parse_dotted(bt_jparser *p, const char *what)
{
    const bt_js *name = bt_jparse_expect_name(p, what);
    while (name != NULL && bt_jparse_skip_op(p, '.')) {
        const bt_js *more = bt_jparse_expect_name(p, what);
        char *joined = more == NULL ? NULL : bt_jparse_alloc(p, name->size + 1 + more->size, 1);
        if (joined == NULL) return NULL;
        memcpy(joined, name->data, name->size);
        joined[name->size] = '.';
        memcpy(joined + name->size + 1, more->data, more->size);
        name = bt_jparse_string(p, joined, name->size + 1 + more->size);
    }
    return name;
}

static void note_unknown(bt_jparser *p, bt_jnode *n)
{
    if (n->builtin == NULL && !p->soft && p->unknown == NULL) p->unknown = n;
}

bt_jnode *bt_jparse_filters(bt_jparser *p, bt_jnode *subject, bool inline_start)
{
    while (inline_start || bt_jparse_is_op(p, '|')) {
        if (!inline_start) p->at++;
        inline_start = false;
        bt_jnode *n = bt_jparse_node(p, JN_FILTER, p->at);
        if (n == NULL || (n->called = parse_dotted(p, "a filter's name")) == NULL) return NULL;
        n->subject = subject;
        if (bt_jparse_is_op(p, '(') && !parse_arguments(p, &n->call)) return NULL;
        const bt_jfilter *f = bt_jfilter_find(n->called->data, n->called->size);
        n->builtin = f != NULL && f->apply != NULL ? f : NULL;
        note_unknown(p, n);
        subject = n;
    }
    return subject;
}

static bool starts_test_argument(const bt_jparser *p)
{
    static const char *const words[] = {"else", "or", "and"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (bt_jparse_is_name(p, words[i])) return false;
    }
    if (p->at->kind >= TK_NAME && p->at->kind <= TK_FLOAT) return true;
    return bt_jparse_is_op(p, '[') || bt_jparse_is_op(p, '{');
}

static bt_jnode *parse_test(bt_jparser *p, bt_jnode *subject)
{
    const bt_jtok *at = p->at++;
    bool negated = bt_jparse_skip_name(p, "not");
    bt_jnode *n = bt_jparse_node(p, JN_TEST, at);
    if (n == NULL || (n->called = parse_dotted(p, "a test's name")) == NULL) return NULL;
    n->subject = subject;
    if (bt_jparse_is_op(p, '(')) {
        if (!parse_arguments(p, &n->call)) return NULL;
    } else if (starts_test_argument(p)) {
        if (bt_jparse_is_name(p, "is")) {
            (void)bt_jparse_fail(p, p->at, "tests cannot be chained with 'is'");
            return NULL;
        }
        n->call.args = parse_postfix(p, parse_primary(p, false));
        if (n->call.args == NULL) return NULL;
        n->call.n_args = 1;
    }
    n->builtin = bt_jtest_find(n->called->data, n->called->size);
    note_unknown(p, n);
    if (!negated) return n;
    bt_jnode *not = bt_jparse_node(p, JN_NOT, at);
    if (not != NULL) not ->a = n;
    return not ;
}

static bt_jnode *parse_filter_expression(bt_jparser *p, bt_jnode *n)
{
    while (n != NULL) {
        if (bt_jparse_is_op(p, '|')) {
            n = bt_jparse_filters(p, n, false);
        } else if (bt_jparse_is_name(p, "is")) {
            n = parse_test(p, n);
        } else if (bt_jparse_is_op(p, '(')) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

/* ---- operators, from the tightest -------------------------------------------------------------------------------- */

static bt_jnode *parse_unary(bt_jparser *p, bool with_filter)
{
    const bt_jtok *at = p->at;
    bt_jnode *n;
    if (bt_jparse_is_op(p, '-') || bt_jparse_is_op(p, '+')) {
        p->at++;
        n = bt_jparse_node(p, at->op == '-' ? JN_NEG : JN_POS, at);
        if (n == NULL || !bt_jparse_enter(p)) return NULL;
        n->a = parse_unary(p, false);
        p->depth--;
        if (n->a == NULL) return NULL;
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    return with_filter ? parse_filter_expression(p, n) : n;
}

static bt_jnode *binary(bt_jparser *p, bt_jnode_kind kind, const bt_jtok *at, bt_jnode *a, bt_jnode *b)
{
    bt_jnode *n = b == NULL ? NULL : bt_jparse_node(p, kind, at);
    if (n == NULL) return NULL;
    n->op = at->op;
    n->a = a;
    n->b = b;
    return n;
}

static bt_jnode *parse_power(bt_jparser *p)
{
    bt_jnode *left = parse_unary(p, true);
    while (left != NULL && bt_jparse_is_op(p, OP_POW)) {
        const bt_jtok *at = p->at++;
        left = binary(p, JN_BINARY, at, left, parse_unary(p, true));
    }
    return left;
}

static bt_jnode *parse_product(bt_jparser *p)
{
    bt_jnode *left = parse_power(p);
    while (left != NULL && (bt_jparse_is_op(p, '*') || bt_jparse_is_op(p, '/') || bt_jparse_is_op(p, OP_FLOORDIV) ||
                            bt_jparse_is_op(p, '%'))) {
        const bt_jtok *at = p->at++;
        left = binary(p, JN_BINARY, at, left, parse_power(p));
    }
    return left;
}

static bt_jnode *parse_concat(bt_jparser *p)
{
    const bt_jtok *at = p->at;
    bt_jnode *first = parse_product(p);
    if (first == NULL || !bt_jparse_is_op(p, '~')) return first;
    bt_jnodes items = {0};
    bt_jnodes_add(&items, first);
    while (bt_jparse_skip_op(p, '~')) {
        bt_jnode *more = parse_product(p);
        if (more == NULL) return NULL;
        bt_jnodes_add(&items, more);
    }
    bt_jnode *n = bt_jparse_node(p, JN_CONCAT, at);
    if (n == NULL) return NULL;
    n->items = items.first;
    n->n_items = items.n;
    return n;
}

static bt_jnode *parse_sum(bt_jparser *p)
{
    bt_jnode *left = parse_concat(p);
    while (left != NULL && (bt_jparse_is_op(p, '+') || bt_jparse_is_op(p, '-'))) {
        const bt_jtok *at = p->at++;
        left = binary(p, JN_BINARY, at, left, parse_concat(p));
    }
    return left;
}

/* The comparison operator at hand, moving past it; 0 if there is none. */
static uint8_t comparison(bt_jparser *p)
{
    static const uint8_t ops[] = {OP_EQ, OP_NE, '<', OP_LE, '>', OP_GE};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (bt_jparse_skip_op(p, ops[i])) return ops[i];
    }
    if (bt_jparse_skip_name(p, "in")) return OP_IN;
    if (bt_jparse_is_name(p, "not") && token_is(p->at + 1, "in")) {
        p->at += 2;
        return OP_NOT_IN;
    }
    return 0;
}

static bt_jnode *parse_compare(bt_jparser *p)
{
    bt_jnode *first = parse_sum(p);
    if (first == NULL) return NULL;
    const bt_jtok *at = p->at;
    bt_jnodes operands = {0};
    for (uint8_t op = comparison(p); op != 0; op = comparison(p)) {
        bt_jnode *operand = parse_sum(p);
        if (operand == NULL) return NULL;
        /* The operator is kept beside the operand, whose own node may use `op` for itself. */
        bt_jnode *holder = bt_jparse_node(p, JN_COMPARE, at);
        if (holder == NULL) return NULL;
        holder->op = op;
        holder->a = operand;
        bt_jnodes_add(&operands, holder);
    }
    if (operands.n == 0) return first;
    bt_jnode *n = bt_jparse_node(p, JN_COMPARE, at);
    if (n == NULL) return NULL;
    n->a = first;
    n->b = operands.first;
    return n;
}

static bt_jnode *parse_not(bt_jparser *p)
{
    const bt_jtok *at = p->at;
    if (!bt_jparse_skip_name(p, "not")) return parse_compare(p);
    bt_jnode *n = bt_jparse_node(p, JN_NOT, at);
    if (n == NULL || !bt_jparse_enter(p)) return NULL;
    n->a = parse_not(p);
    p->depth--;
    return n->a == NULL ? NULL : n;
}

static bt_jnode *parse_and(bt_jparser *p)
{
    bt_jnode *left = parse_not(p);
    while (left != NULL && bt_jparse_is_name(p, "and")) {
        const bt_jtok *at = p->at++;
        left = binary(p, JN_AND, at, left, parse_not(p));
    }
    return left;
}

static bt_jnode *parse_or(bt_jparser *p)
{
    bt_jnode *left = parse_and(p);
    while (left != NULL && bt_jparse_is_name(p, "or")) {
        const bt_jtok *at = p->at++;
        left = binary(p, JN_OR, at, left, parse_and(p));
    }
    return left;
}

static bt_jnode *parse_condition(bt_jparser *p)
{
    bt_jnode *unknown_before = p->unknown;
    bt_jnode *n = parse_or(p);
    while (n != NULL && bt_jparse_is_name(p, "if")) {
        const bt_jtok *at = p->at++;
        bt_jnode *c = bt_jparse_node(p, JN_COND, at);
        if (c == NULL || (c->test = parse_or(p)) == NULL) return NULL;
        c->yes = n;
        if (bt_jparse_skip_name(p, "else") && (c->no = bt_jparse_expression(p)) == NULL) return NULL;
        p->unknown = unknown_before; /* what stands in a condition may be unknown until it is reached */
        n = c;
    }
    return n;
}

bt_jnode *bt_jparse_expression(bt_jparser *p)
{
    if (!bt_jparse_enter(p)) return NULL;
    bt_jnode *n = parse_condition(p);
    p->depth--;
    return n;
}
