/*
 * Statements of a template, and the template itself: parse, then resolve its variables. Tags that reach for other
 * templates (include, import, extends, block) and those of extensions that chat templates do not have are refused by
 * name.
 */
#include "text/jinja_node.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static bt_jnode *parse_until(bt_jparser *p, const char *const *ends, const bt_jtok *opened, bool *good);

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static bool expect_block_end(bt_jparser *p)
{
    if (p->at->kind == TK_BLOCK_END) {
        p->at++;
        return true;
    }
    char room[80];
    return bt_jparse_fail(p, p->at, "expected '%%}', found %s", bt_jtok_text(p->at, room));
}

/* Unknown filters and tests of the expressions parsed so far are errors now, unless they were excused. */
static bool check_unknown(bt_jparser *p)
{
    const bt_jnode *n = p->unknown;
    if (n == NULL) return true;
    bool filter = n->kind == JN_FILTER;
    bool known = filter && bt_jfilter_find(n->called->data, n->called->size) != NULL;
    return bt_jparse_fail_at(p, n->line, n->column, BT_ERR_UNSUPPORTED,
                             known ? "the %s '%.*s' is not supported" : "there is no %s named '%.*s'",
                             filter ? "filter" : "test", (int)n->called->size, n->called->data);
}

/* What follows a tag's head: its statements up to one of `ends`, whose name stays the current token. The first token
 * may be a colon, as in Python. */
static bool parse_body(bt_jparser *p, const char *const *ends, const bt_jtok *opened, bt_jnode **body)
{
    (void)bt_jparse_skip_op(p, ':');
    if (!check_unknown(p) || !expect_block_end(p)) return false;
    bool good = false;
    *body = parse_until(p, ends, opened, &good);
    return good;
}

/* The same for a body with one end tag, which is passed, and its own scope: conditional code around it no longer
 * counts. */
static bool parse_inner(bt_jparser *p, const char *end, const bt_jtok *opened, bt_jnode **body)
{
    const char *const ends[] = {end, NULL};
    bool soft = p->soft;
    p->soft = false;
    bool good = parse_body(p, ends, opened, body);
    p->soft = soft;
    if (good) p->at++;
    return good;
}

/* The same where the body becomes a function: no loop around it can be left from inside. */
static bool parse_function(bt_jparser *p, const char *end, const bt_jtok *opened, bt_jnode **body)
{
    unsigned n_loops = p->n_loops;
    p->n_loops = 0;
    bool good = parse_inner(p, end, opened, body);
    p->n_loops = n_loops;
    return good;
}

static bool check_target(bt_jparser *p, const bt_jnode *n)
{
    if (n->kind == JN_NAME || n->kind == JN_NS_REF) return true;
    if (n->kind == JN_TUPLE) {
        for (const bt_jnode *item = n->items; item != NULL; item = item->next) {
            if (!check_target(p, item)) return false;
        }
        return true;
    }
    return bt_jparse_fail_at(p, n->line, n->column, BT_ERR_FORMAT, "this cannot be assigned to");
}

static bt_jnode *parse_target(bt_jparser *p, bool namespaces)
{
    bt_jnode *n = bt_jparse_tuple(p, (bt_jtuple_rules){.targets = true, .namespaces = namespaces});
    return n != NULL && check_target(p, n) ? n : NULL;
}

/* ---- statements: the current token is the tag's name ------------------------------------------------------------- */

static bt_jnode *parse_for(bt_jparser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    const bt_jtok *tag = p->at++;
    bt_jnode *n = bt_jparse_node(p, JN_FOR, tag);
    if (n == NULL || (n->target = parse_target(p, false)) == NULL) return NULL;
    if (!bt_jparse_skip_name(p, "in")) {
        char room[80];
        (void)bt_jparse_fail(p, p->at, "expected 'in', found %s", bt_jtok_text(p->at, room));
        return NULL;
    }
    n->iter = bt_jparse_tuple(p, (bt_jtuple_rules){.no_condition = true});
    if (n->iter == NULL) return NULL;
    bool soft = p->soft;
    p->soft = false; /* the rest has scopes of its own */
    if (bt_jparse_skip_name(p, "if") && (n->filter = bt_jparse_expression(p)) == NULL) return NULL;
    n->flag = bt_jparse_skip_name(p, "recursive");
    p->n_loops++;
    bool good = parse_body(p, ends, tag, &n->body);
    p->n_loops--;
    if (good && !bt_jparse_is_name(p, "endfor")) {
        p->at++;
        good = parse_inner(p, "endfor", tag, &n->otherwise);
    } else if (good) {
        p->at++;
    }
    p->soft = soft;
    return good ? n : NULL;
}

static bt_jnode *parse_if(bt_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif", NULL};
    const bt_jtok *tag = p->at;
    bt_jnode *result = NULL, *node = NULL;
    bt_jnodes elifs = {0};
    bool soft = p->soft;
    do {
        node = bt_jparse_node(p, JN_IF, p->at++);
        if (node == NULL) return NULL;
        p->soft = true;
        node->condition = bt_jparse_tuple(p, (bt_jtuple_rules){.no_condition = true});
        if (node->condition == NULL || !parse_body(p, ends, tag, &node->then)) return NULL;
        if (result == NULL) {
            result = node;
        } else {
            bt_jnodes_add(&elifs, node);
        }
    } while (bt_jparse_is_name(p, "elif"));
    if (bt_jparse_skip_name(p, "else") && !parse_body(p, end, tag, &result->last)) return NULL;
    p->at++;
    result->elifs = elifs.first;
    p->soft = soft;
    return result;
}

static bt_jnode *parse_set(bt_jparser *p)
{
    const bt_jtok *tag = p->at++;
    bt_jnode *target = parse_target(p, true);
    if (target == NULL) return NULL;
    if (bt_jparse_skip_op(p, '=')) {
        bt_jnode *n = bt_jparse_node(p, JN_SET, tag);
        if (n == NULL || (n->iter = bt_jparse_tuple(p, (bt_jtuple_rules){0})) == NULL) return NULL;
        n->target = target;
        return n;
    }
    bt_jnode *n = bt_jparse_node(p, JN_SET_BLOCK, tag);
    if (n == NULL) return NULL;
    n->block_target = target;
    bool soft = p->soft;
    p->soft = false; /* the filter belongs to the inner scope */
    n->chain = bt_jparse_filters(p, NULL, false);
    bool good = p->status == BT_OK && parse_inner(p, "endset", tag, &n->inner);
    p->soft = soft;
    return good ? n : NULL;
}

/* "(a, b=1)" of macros and call blocks. */
static bool parse_signature(bt_jparser *p, bt_jbody *m)
{
    bt_jnodes params = {0}, defaults = {0};
    if (!bt_jparse_expect_op(p, '(')) return false;
    while (!bt_jparse_is_op(p, ')')) {
        if (params.n > 0 && !bt_jparse_expect_op(p, ',')) return false;
        const bt_jtok *at = p->at;
        bt_jnode *param = bt_jparse_node(p, JN_NAME, at);
        if (param == NULL || (param->name = bt_jparse_expect_name(p, "a parameter's name")) == NULL) return false;
        for (const bt_jnode *other = params.first; other != NULL; other = other->next) {
            if (bt_js_equal(other->name, param->name)) return bt_jparse_fail(p, at, "a parameter is named twice");
        }
        if (bt_jparse_skip_op(p, '=')) {
            bt_jnode *value = bt_jparse_expression(p);
            if (value == NULL) return false;
            bt_jnodes_add(&defaults, value);
        } else if (defaults.n > 0) {
            return bt_jparse_fail(p, at, "a parameter without default after one with");
        }
        bt_jnodes_add(&params, param);
    }
    p->at++;
    m->params = params.first;
    m->n_params = params.n;
    m->defaults = defaults.first;
    m->n_defaults = defaults.n;
    return true;
}

/* A node with a body of its own for macro, call and generation. */
static bt_jnode *function_node(bt_jparser *p, bt_jnode_kind kind)
{
    bt_jnode *n = bt_jparse_node(p, kind, p->at++);
    if (n == NULL || (n->macro = bt_jparse_alloc(p, 1, sizeof *n->macro)) == NULL) return NULL;
    return n;
}

static bt_jnode *parse_macro(bt_jparser *p)
{
    const bt_jtok *tag = p->at;
    bt_jnode *n = function_node(p, JN_MACRO);
    if (n == NULL || (n->macro_name = bt_jparse_expect_name(p, "the macro's name")) == NULL) return NULL;
    bool soft = p->soft;
    p->soft = false;
    bool good = parse_signature(p, n->macro) && parse_function(p, "endmacro", tag, &n->macro->body);
    p->soft = soft;
    return good ? n : NULL;
}

static bt_jnode *parse_call_block(bt_jparser *p)
{
    const bt_jtok *tag = p->at;
    bt_jnode *n = function_node(p, JN_CALL_BLOCK);
    if (n == NULL) return NULL;
    if (bt_jparse_is_op(p, '(') && !parse_signature(p, n->macro)) return NULL;
    n->callee = bt_jparse_expression(p);
    if (n->callee == NULL) return NULL;
    if (n->callee->kind != JN_CALL) {
        (void)bt_jparse_fail(p, tag, "a call block must call something, as in {%% call f() %%}");
        return NULL;
    }
    return parse_function(p, "endcall", tag, &n->macro->body) ? n : NULL;
}

static bt_jnode *parse_generation(bt_jparser *p)
{
    const bt_jtok *tag = p->at;
    bt_jnode *n = function_node(p, JN_GENERATION);
    return n != NULL && parse_function(p, "endgeneration", tag, &n->macro->body) ? n : NULL;
}

static bt_jnode *parse_filter_block(bt_jparser *p)
{
    const bt_jtok *tag = p->at++;
    bt_jnode *n = bt_jparse_node(p, JN_FILTER_BLOCK, tag);
    if (n == NULL) return NULL;
    bool soft = p->soft;
    p->soft = false;
    n->chain = bt_jparse_filters(p, NULL, true);
    bool good = n->chain != NULL && parse_inner(p, "endfilter", tag, &n->inner);
    p->soft = soft;
    return good ? n : NULL;
}

static bt_jnode *parse_with(bt_jparser *p)
{
    const bt_jtok *tag = p->at++;
    bt_jnode *n = bt_jparse_node(p, JN_WITH, tag);
    bt_jnodes targets = {0}, values = {0};
    while (n != NULL && p->at->kind != TK_BLOCK_END) {
        if (targets.n > 0 && !bt_jparse_expect_op(p, ',')) return NULL;
        bt_jnode *target = parse_target(p, false);
        if (target == NULL || !bt_jparse_expect_op(p, '=')) return NULL;
        bt_jnode *value = bt_jparse_expression(p);
        if (value == NULL) return NULL;
        bt_jnodes_add(&targets, target);
        bt_jnodes_add(&values, value);
    }
    if (n == NULL) return NULL;
    n->block_target = targets.first;
    n->values = values.first;
    return parse_inner(p, "endwith", tag, &n->inner) ? n : NULL;
}

static bt_jnode *parse_print(bt_jparser *p)
{
    bt_jnode *n = bt_jparse_node(p, JN_PRINT, p->at++);
    bt_jnodes items = {0};
    while (n != NULL && p->at->kind != TK_BLOCK_END) {
        if (items.n > 0 && !bt_jparse_expect_op(p, ',')) return NULL;
        bt_jnode *item = bt_jparse_expression(p);
        if (item == NULL) return NULL;
        bt_jnodes_add(&items, item);
    }
    if (n == NULL) return NULL;
    n->items = items.first;
    n->n_items = items.n;
    return n;
}

static bt_jnode *parse_loop_control(bt_jparser *p)
{
    const bt_jtok *tag = p->at++;
    if (p->n_loops == 0) {
        (void)bt_jparse_fail(p, tag, "'%.*s' outside of a loop", (int)tag->size, tag->text);
        return NULL;
    }
    return bt_jparse_node(p, tag->size == strlen("break") ? JN_BREAK : JN_CONTINUE, tag);
}

static const struct {
    const char *name;
    bt_jnode *(*parse)(bt_jparser *p); /* NULL: Jinja2 has it, chat templates do not */
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"print", parse_print},
    {"break", parse_loop_control},
    {"continue", parse_loop_control},
    {"generation", parse_generation},
    {"block", NULL},
    {"extends", NULL},
    {"include", NULL},
    {"import", NULL},
    {"from", NULL},
    {"autoescape", NULL},
};

/* `opened` is the tag that waits for one of `ends`; NULL at the top. */
static bt_jnode *unknown_tag(bt_jparser *p, const char *const *ends, const bt_jtok *opened)
{
    const bt_jtok *t = p->at;
    int size = (int)(t->size < 80 ? t->size : 80);
    if (opened == NULL) {
        (void)bt_jparse_fail_at(p, t->line, t->column, BT_ERR_UNSUPPORTED, "there is no tag named '%.*s'", size,
                                t->text);
    } else {
        (void)bt_jparse_fail_at(p, t->line, t->column, BT_ERR_UNSUPPORTED,
                                "unknown or misplaced tag '%.*s'; the '%.*s' of line %u still waits for '%s'", size,
                                t->text, (int)opened->size, opened->text, (unsigned)opened->line, ends[0]);
    }
    return NULL;
}

static bt_jnode *parse_statement(bt_jparser *p, const char *const *ends, const bt_jtok *opened)
{
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!bt_jparse_is_name(p, statements[i].name)) continue;
        if (statements[i].parse != NULL) return statements[i].parse(p);
        (void)bt_jparse_fail_at(p, p->at->line, p->at->column, BT_ERR_UNSUPPORTED, "the tag '%s' is not supported",
                                statements[i].name);
        return NULL;
    }
    return unknown_tag(p, ends, opened);
}

/* ---- sequences of statements ------------------------------------------------------------------------------------- */

static bt_jnode *parse_text(bt_jparser *p)
{
    const bt_jtok *t = p->at++;
    bt_jnode *n = bt_jparse_node(p, JN_TEXT, t);
    const bt_js *s = n == NULL ? NULL : bt_jparse_string(p, t->text, t->size);
    if (s == NULL) return NULL;
    n->value = bt_jv_string(s);
    return n;
}

static bt_jnode *parse_variable(bt_jparser *p)
{
    bt_jnode *n = bt_jparse_node(p, JN_PRINT, p->at++);
    if (n == NULL || (n->items = bt_jparse_tuple(p, (bt_jtuple_rules){0})) == NULL || !check_unknown(p)) return NULL;
    n->n_items = 1;
    if (p->at->kind == TK_VARIABLE_END) {
        p->at++;
        return n;
    }
    char room[80];
    (void)bt_jparse_fail(p, p->at, "expected '}}', found %s", bt_jtok_text(p->at, room));
    return NULL;
}

static bool at_end_tag(const bt_jparser *p, const char *const *ends)
{
    for (size_t i = 0; ends != NULL && ends[i] != NULL; i++) {
        if (bt_jparse_is_name(p, ends[i])) return true;
    }
    return false;
}

/* Statements up to "{% END", whose name is then the current token; to the end of the template if ends is NULL. An empty
 * body is no failure: *good tells. */
static bt_jnode *parse_until(bt_jparser *p, const char *const *ends, const bt_jtok *opened, bool *good)
{
    bt_jnodes body = {0};
    *good = false;
    if (!bt_jparse_enter(p)) return NULL;
    while (p->at->kind != TK_EOF) {
        bt_jnode *n;
        if (p->at->kind == TK_DATA) {
            n = parse_text(p);
        } else if (p->at->kind == TK_VARIABLE_BEGIN) {
            n = parse_variable(p);
        } else {
            assert(p->at->kind == TK_BLOCK_BEGIN);
            p->at++;
            if (at_end_tag(p, ends)) {
                p->depth--;
                *good = true;
                return body.first;
            }
            if (p->at->kind != TK_NAME) {
                (void)bt_jparse_fail(p, p->at, "a tag begins with its name");
                return NULL;
            }
            n = parse_statement(p, ends, opened);
            if (n != NULL && (!check_unknown(p) || !expect_block_end(p))) return NULL;
        }
        if (n == NULL) return NULL;
        bt_jnodes_add(&body, n);
    }
    p->depth--;
    *good = ends == NULL;
    if (!*good) {
        (void)bt_jparse_fail(p, p->at, "the template ends inside the '%.*s' of line %u; '%s' is missing",
                             (int)opened->size, opened->text, (unsigned)opened->line, ends[0]);
    }
    return body.first;
}

/* ---- the template ------------------------------------------------------------------------------------------------ */

bt_status bt_jinja_parse(const char *name, const char *source, size_t size, bt_jinja **out, bt_error *e)
{
    bt_arena *arena = bt_arena_new();
    bt_jinja *t = arena == NULL ? NULL : bt_arena_alloc(arena, 1, sizeof *t);
    const char *kept = t == NULL ? NULL : bt_arena_strndup(arena, name, strlen(name));
    if (kept == NULL) {
        bt_arena_free(arena);
        return bt_fail(e, BT_ERR_MEMORY, "%s: no memory to parse the template", name);
    }
    t->arena = arena;
    t->name = kept;
    bt_jparser p = {.arena = arena, .name = kept, .error = e};
    p.at = bt_jinja_lex(&p, source, size);
    bool good;
    if (p.at != NULL) t->body = parse_until(&p, NULL, NULL, &good);
    if (p.status == BT_OK) (void)bt_jscope_resolve(&p, t);
    if (p.status != BT_OK) {
        bt_arena_free(arena);
        return p.status;
    }
    *out = t;
    return BT_OK;
}

void bt_jinja_free(bt_jinja *t)
{
    if (t != NULL) bt_arena_free(t->arena);
}
