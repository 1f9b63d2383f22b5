/*
 * Which variable a name means, decided when the template is parsed, by the rules of Jinja2's compiler:
 *   - for bodies, macros, call, filter, set and with blocks are scopes; if is none;
 *   - entering a scope gives each of its variables a first value: that of the enclosing scope's variable if there is
 *     one (assigning it inside does not change it outside), else nothing if the scope surely assigns it before
 *     reading it, else what the context holds. So a variable that a scope assigns further down hides the context's
 *     even before that.
 *
 * A scope is gone through twice: first for the names that it owns, then, when all of them are known, to tie each name
 * to its slot and to go into the scopes inside.
 */
#include "text/jinja_node.h"

#include <assert.h>
#include <string.h>

#define WORK_MAX ((size_t)100000000) /* name comparisons; a template for people needs some thousands */

typedef struct resolver {
    bt_jparser *p;
    bt_jscope *scope;
    unsigned branches; /* ifs around, in this scope */
    unsigned loops;    /* for statements around, across scopes */
    size_t work;
    uint32_t n_scopes;
} resolver;

static bool collect(resolver *r, const bt_jnode *first);
static bool tie(resolver *r, bt_jnode *first);

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static bool charge(resolver *r, size_t work)
{
    r->work += work;
    if (r->work <= WORK_MAX) return true;
    return bt_jparse_fail_at(r->p, 0, 0, BT_ERR_FORMAT, "the template has too many variables");
}

/* Slot of a name in this very scope; n if it is not there. */
static size_t find_own(resolver *r, const bt_jscope *s, const bt_js *name)
{
    size_t i = 0;
    while (i < s->n && !bt_js_equal(s->slots[i].name, name)) i++;
    (void)charge(r, i + 1);
    return i;
}

/* Finds a name here or further out. */
static bt_jscope *find(resolver *r, bt_jscope *s, const bt_js *name, uint32_t *slot)
{
    for (; s != NULL; s = s->parent) {
        size_t i = find_own(r, s, name);
        if (i == s->n) continue;
        *slot = (uint32_t)i;
        return s;
    }
    return NULL;
}

static bool define(resolver *r, const bt_js *name, bt_jslot slot)
{
    bt_jscope *s = r->scope;
    if (s->n == s->capacity) {
        size_t capacity = s->capacity == 0 ? 8 : s->capacity * 2;
        bt_jslot *more = bt_jparse_alloc(r->p, capacity, sizeof *more);
        if (more == NULL) return false;
        if (s->n > 0) memcpy(more, s->slots, s->n * sizeof *more);
        s->slots = more;
        s->capacity = capacity;
    }
    slot.name = name;
    s->slots[s->n++] = slot;
    return r->p->status == BT_OK;
}

static bool load(resolver *r, const bt_js *name)
{
    uint32_t slot;
    if (find(r, r->scope, name, &slot) != NULL) return r->p->status == BT_OK;
    return define(r, name, (bt_jslot){.load = LOAD_RESOLVE});
}

static bool store(resolver *r, const bt_js *name)
{
    if (find_own(r, r->scope, name) < r->scope->n) return r->p->status == BT_OK;
    uint32_t slot;
    const bt_jscope *outer = find(r, r->scope->parent, name, &slot);
    if (outer != NULL) return define(r, name, (bt_jslot){.load = LOAD_ALIAS, .level = outer->level, .slot = slot});
    return define(r, name, (bt_jslot){.load = r->branches > 0 ? LOAD_RESOLVE : LOAD_MISSING});
}

static bool declare(resolver *r, const bt_js *name)
{
    size_t i = find_own(r, r->scope, name);
    if (i == r->scope->n) return define(r, name, (bt_jslot){.load = LOAD_PARAMETER});
    r->scope->slots[i].load = LOAD_PARAMETER;
    return r->p->status == BT_OK;
}

/* ---- walking expressions ----------------------------------------------------------------------------------------- */

typedef bool (*visit_fn)(resolver *r, bt_jnode *name);

static bool walk(resolver *r, bt_jnode *n, visit_fn visit);

static bool walk_list(resolver *r, bt_jnode *first, visit_fn visit)
{
    for (bt_jnode *n = first; n != NULL; n = n->next) {
        if (!walk(r, n, visit)) return false;
    }
    return true;
}

static bool walk_call(resolver *r, const bt_jcall *c, visit_fn visit)
{
    return walk_list(r, c->args, visit) && walk_list(r, c->keywords, visit) && walk(r, c->star, visit) &&
           walk(r, c->star_star, visit);
}

/* Visits every name of an expression. Chains to the left (a + b + c ..., x|f|g ..., x.y.z ...) may be as long as the
 * template and are followed without recursion. */
static bool walk(resolver *r, bt_jnode *n, visit_fn visit)
{
    while (n != NULL) {
        if (!charge(r, 1)) return false;
        switch ((bt_jnode_kind)n->kind) {
        case JN_NAME:
        case JN_NS_REF:
            return visit(r, n);
        case JN_TUPLE:
        case JN_LIST:
        case JN_DICT:
        case JN_CONCAT:
            return walk_list(r, n->items, visit);
        case JN_NOT:
        case JN_NEG:
        case JN_POS:
            n = n->a;
            break;
        case JN_BINARY:
        case JN_AND:
        case JN_OR:
            if (!walk(r, n->b, visit)) return false;
            n = n->a;
            break;
        case JN_COMPARE:
            if (!walk_list(r, n->b, visit)) return false; /* b: NULL for the holder of an operand */
            n = n->a;
            break;
        case JN_COND:
            if (!walk(r, n->test, visit) || !walk(r, n->no, visit)) return false;
            n = n->yes;
            break;
        case JN_ATTRIBUTE:
        case JN_INDEX:
            if (!walk(r, n->index, visit)) return false;
            n = n->object;
            break;
        case JN_SLICE:
            return walk(r, n->start, visit) && walk(r, n->stop, visit) && walk(r, n->step, visit);
        case JN_CALL:
        case JN_FILTER:
        case JN_TEST:
            if (!walk_call(r, &n->call, visit)) return false;
            n = n->subject;
            break;
        default:
            assert(n->kind == JN_CONST);
            return true;
        }
    }
    return true;
}

/* `self` would be the template's blocks. */
static bool visit_load(resolver *r, bt_jnode *name)
{
    if (bt_js_is(name->name, "self")) {
        return bt_jparse_fail_at(r->p, name->line, name->column, BT_ERR_UNSUPPORTED, "'self' is not supported");
    }
    return load(r, name->name);
}

static bool visit_parameter(resolver *r, bt_jnode *name)
{
    return declare(r, name->name);
}

static bool check_loop_name(resolver *r, const bt_jnode *name)
{
    if (r->loops == 0 || !bt_js_is(name->name, "loop")) return true;
    return bt_jparse_fail_at(r->p, name->line, name->column, BT_ERR_FORMAT, "'loop' cannot be assigned in a for loop");
}

static bool visit_store(resolver *r, bt_jnode *name)
{
    if (name->kind == JN_NS_REF) return load(r, name->name);
    return check_loop_name(r, name) && store(r, name->name);
}

static bool visit_tie(resolver *r, bt_jnode *name)
{
    const bt_jscope *s = find(r, r->scope, name->name, &name->slot);
    assert(s != NULL || r->p->status != BT_OK);
    if (s != NULL) name->level = s->level;
    return r->p->status == BT_OK;
}

/* ---- the special names of macros and loops ----------------------------------------------------------------------- */

typedef struct special { /* is `name` read somewhere below before anything of this name is assigned? */
    const char *name;
    bool over, read;
} special;

typedef struct search {
    resolver r; /* only to walk with */
    special *names;
    size_t n;
} search;

static bool visit_search_load(resolver *r, bt_jnode *name)
{
    search *s = (search *)r; /* r is its first member */
    for (size_t i = 0; i < s->n; i++) {
        if (!s->names[i].over && bt_js_is(name->name, s->names[i].name)) s->names[i].read = true;
    }
    return true;
}

static bool visit_search_store(resolver *r, bt_jnode *name)
{
    search *s = (search *)r;
    for (size_t i = 0; name->kind == JN_NAME && i < s->n; i++) {
        if (!s->names[i].read && bt_js_is(name->name, s->names[i].name)) s->names[i].over = true;
    }
    return true;
}

static bool search_list(search *s, const bt_jnode *first);

static bool search_function(search *s, const bt_jbody *m)
{
    return walk_list(&s->r, m->params, visit_search_store) && walk_list(&s->r, m->defaults, visit_search_load) &&
           search_list(s, m->body);
}

static bool search_statement(search *s, const bt_jnode *n)
{
    resolver *r = &s->r;
    switch ((bt_jnode_kind)n->kind) {
    case JN_PRINT:
        return walk_list(r, n->items, visit_search_load);
    case JN_FOR:
        return walk(r, n->target, visit_search_store) && walk(r, n->iter, visit_search_load) &&
               search_list(s, n->body) && search_list(s, n->otherwise) && walk(r, n->filter, visit_search_load);
    case JN_IF:
        return walk(r, n->condition, visit_search_load) && search_list(s, n->then) && search_list(s, n->elifs) &&
               search_list(s, n->last);
    case JN_SET:
        return walk(r, n->target, visit_search_store) && walk(r, n->iter, visit_search_load);
    case JN_SET_BLOCK:
        return walk(r, n->block_target, visit_search_store) && walk(r, n->chain, visit_search_load) &&
               search_list(s, n->inner);
    case JN_FILTER_BLOCK:
        return search_list(s, n->inner) && walk(r, n->chain, visit_search_load);
    case JN_WITH:
        return walk_list(r, n->block_target, visit_search_store) && walk_list(r, n->values, visit_search_load) &&
               search_list(s, n->inner);
    case JN_CALL_BLOCK:
        return walk(r, n->callee, visit_search_load) && search_function(s, n->macro);
    case JN_MACRO:
    case JN_GENERATION:
        return search_function(s, n->macro);
    default:
        return true;
    }
}

static bool search_list(search *s, const bt_jnode *first)
{
    for (const bt_jnode *n = first; n != NULL; n = n->next) {
        if (!search_statement(s, n)) return false;
    }
    return true;
}

static bool find_special(resolver *r, const bt_jnode *body, special *names, size_t n)
{
    search s = {.r = *r, .names = names, .n = n};
    bool good = search_list(&s, body);
    r->work = s.r.work;
    return good;
}

/* ---- first pass: the names of a scope ---------------------------------------------------------------------------- */

static bool collect_if(resolver *r, const bt_jnode *n)
{
    if (!walk(r, n->condition, visit_load)) return false;
    r->branches++;
    bool good = collect(r, n->then) && collect(r, n->elifs) && collect(r, n->last);
    r->branches--;
    return good;
}

static bool collect_statement(resolver *r, const bt_jnode *n)
{
    switch ((bt_jnode_kind)n->kind) {
    case JN_PRINT:
        return walk_list(r, n->items, visit_load);
    case JN_FOR:
        return walk(r, n->iter, visit_load);
    case JN_IF:
        return collect_if(r, n);
    case JN_SET:
        return walk(r, n->iter, visit_load) && walk(r, n->target, visit_store);
    case JN_SET_BLOCK:
        return walk(r, n->block_target, visit_store);
    case JN_FILTER_BLOCK:
        return walk(r, n->chain, visit_load);
    case JN_WITH:
        return walk_list(r, n->values, visit_load);
    case JN_CALL_BLOCK:
        return walk(r, n->callee, visit_load);
    case JN_MACRO:
        return store(r, n->macro_name);
    default:
        return true;
    }
}

static bool collect(resolver *r, const bt_jnode *first)
{
    for (const bt_jnode *n = first; n != NULL; n = n->next) {
        if (!charge(r, 1) || !collect_statement(r, n)) return false;
    }
    return true;
}

/* ---- second pass: ties, and the scopes inside -------------------------------------------------------------------- */

static bt_jscope *open_scope(resolver *r)
{
    bt_jscope *s = bt_jparse_alloc(r->p, 1, sizeof *s);
    if (s == NULL) return NULL;
    s->parent = r->scope;
    s->level = r->scope == NULL ? 0 : r->scope->level + 1;
    s->id = r->n_scopes++;
    r->scope = s;
    r->branches = 0;
    return s;
}

/* Values made here may refer to the frames around: those are not used again. */
static void capture(resolver *r)
{
    for (bt_jscope *s = r->scope; s != NULL; s = s->parent) s->captured = true;
}

static void close_scope(resolver *r, unsigned branches)
{
    r->scope = r->scope->parent;
    r->branches = branches;
}

/* The targets of a for statement get the first slots of both its scopes, so that they are tied once. */
static bool tie_loop_scopes(resolver *r, bt_jnode *n)
{
    unsigned branches = r->branches;
    special loop = {.name = "loop"};
    if (!find_special(r, n->body, &loop, 1)) return false;
    n->extended = n->flag || loop.read;
    if (n->flag || (n->extended && n->filter != NULL)) capture(r); /* `loop` may be kept, and asked later */
    if ((n->scope = open_scope(r)) == NULL || !walk(r, n->target, visit_parameter)) return false;
    if (n->extended) {
        const bt_js *name = bt_jparse_string(r->p, "loop", 4);
        if (name == NULL || !declare(r, name)) return false;
        n->loop_slot = (uint32_t)(r->scope->n - 1);
    }
    if (!collect(r, n->body) || !walk(r, n->target, visit_tie) || !tie(r, n->body)) return false;
    close_scope(r, branches);
    if (n->otherwise != NULL) {
        if ((n->else_scope = open_scope(r)) == NULL || !collect(r, n->otherwise) || !tie(r, n->otherwise)) return false;
        close_scope(r, branches);
    }
    if (n->filter != NULL) {
        if ((n->filter_scope = open_scope(r)) == NULL || !walk(r, n->target, visit_parameter) ||
            !walk(r, n->filter, visit_load) || !walk(r, n->filter, visit_tie)) {
            return false;
        }
        close_scope(r, branches);
    }
    return true;
}

static bool visit_check(resolver *r, bt_jnode *name)
{
    return name->kind == JN_NS_REF || check_loop_name(r, name);
}

static bool tie_for(resolver *r, bt_jnode *n)
{
    r->loops++;
    bool good = walk(r, n->target, visit_check) && walk(r, n->iter, visit_tie) && tie_loop_scopes(r, n);
    r->loops--;
    return good;
}

static uint32_t slot_of(resolver *r, const char *name)
{
    const bt_js s = {.data = name, .size = strlen(name)};
    return (uint32_t)find_own(r, r->scope, &s);
}

static bool declare_special(resolver *r, const char *name, uint32_t *slot)
{
    const bt_js *s = bt_jparse_string(r->p, name, strlen(name));
    if (s == NULL || !declare(r, s)) return false;
    *slot = slot_of(r, name);
    return true;
}

/* A caller named as a parameter must have a default, for calls without one. */
static bool check_explicit_caller(resolver *r, const bt_jnode *n)
{
    const bt_jbody *m = n->macro;
    size_t i = 0;
    for (const bt_jnode *param = m->params; param != NULL; param = param->next, i++) {
        if (bt_js_is(param->name, "caller") && i < m->n_params - m->n_defaults) {
            return bt_jparse_fail_at(r->p, param->line, param->column, BT_ERR_FORMAT,
                                     "the parameter 'caller' must be left out or have a default");
        }
    }
    return true;
}

static bool tie_function(resolver *r, bt_jnode *n)
{
    bt_jbody *m = n->macro;
    unsigned branches = r->branches;
    special names[] = {{.name = "caller"}, {.name = "kwargs"}, {.name = "varargs"}};
    if (!find_special(r, m->body, names, 3)) return false;
    if (n->kind != JN_GENERATION) capture(r);
    if ((m->scope = open_scope(r)) == NULL || !walk_list(r, m->params, visit_parameter)) return false;
    bool has_kwargs = slot_of(r, "kwargs") < r->scope->n, has_varargs = slot_of(r, "varargs") < r->scope->n;
    m->explicit_caller = slot_of(r, "caller") < r->scope->n;
    if (!walk_list(r, m->defaults, visit_load) || !collect(r, m->body)) return false;
    m->uses_caller = names[0].read;
    m->uses_kwargs = names[1].read && !has_kwargs;
    m->uses_varargs = names[2].read && !has_varargs;
    if (m->uses_caller && m->explicit_caller && !check_explicit_caller(r, n)) return false;
    if (m->uses_caller && !declare_special(r, "caller", &m->caller_slot)) return false;
    if (m->uses_kwargs && !declare_special(r, "kwargs", &m->kwargs_slot)) return false;
    if (m->uses_varargs && !declare_special(r, "varargs", &m->varargs_slot)) return false;
    if (!walk_list(r, m->params, visit_tie) || !walk_list(r, m->defaults, visit_tie) || !tie(r, m->body)) return false;
    close_scope(r, branches);
    return true;
}

/* Set, filter and with blocks. Values and the target of set belong outside, filters inside. */
static bool tie_block(resolver *r, bt_jnode *n)
{
    unsigned branches = r->branches;
    bool with = n->kind == JN_WITH;
    if (with && !walk_list(r, n->values, visit_tie)) return false;
    if (n->kind == JN_SET_BLOCK && !walk(r, n->block_target, visit_tie)) return false;
    if ((n->inner_scope = open_scope(r)) == NULL) return false;
    if (with && !walk_list(r, n->block_target, visit_parameter)) return false;
    if (!collect(r, n->inner) || !walk(r, n->chain, visit_load)) return false;
    if (with && !walk_list(r, n->block_target, visit_tie)) return false;
    if (!walk(r, n->chain, visit_tie) || !tie(r, n->inner)) return false;
    close_scope(r, branches);
    return true;
}

static bool tie_macro(resolver *r, bt_jnode *n)
{
    const bt_jscope *s = find(r, r->scope, n->macro_name, &n->macro_slot);
    assert(s != NULL || r->p->status != BT_OK);
    if (s == NULL) return false;
    n->macro_level = s->level;
    return tie_function(r, n);
}

static bool tie_statement(resolver *r, bt_jnode *n)
{
    switch ((bt_jnode_kind)n->kind) {
    case JN_PRINT:
        return walk_list(r, n->items, visit_tie);
    case JN_FOR:
        return tie_for(r, n);
    case JN_IF:
        return walk(r, n->condition, visit_tie) && tie(r, n->then) && tie(r, n->elifs) && tie(r, n->last);
    case JN_SET:
        return walk(r, n->iter, visit_tie) && walk(r, n->target, visit_tie);
    case JN_SET_BLOCK:
    case JN_FILTER_BLOCK:
    case JN_WITH:
        return tie_block(r, n);
    case JN_CALL_BLOCK:
        return walk(r, n->callee, visit_tie) && tie_function(r, n);
    case JN_MACRO:
        return tie_macro(r, n);
    case JN_GENERATION:
        return tie_function(r, n);
    default:
        return true;
    }
}

static bool tie(resolver *r, bt_jnode *first)
{
    for (bt_jnode *n = first; n != NULL; n = n->next) {
        if (!charge(r, 1) || !tie_statement(r, n)) return false;
    }
    return true;
}

bool bt_jscope_resolve(bt_jparser *p, bt_jinja *t)
{
    resolver r = {.p = p};
    t->root = open_scope(&r);
    if (t->root == NULL || !collect(&r, t->body) || !tie(&r, t->body)) return false;
    t->n_scopes = r.n_scopes;
    return true;
}
