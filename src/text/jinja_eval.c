/*
 * Evaluates expressions: a walk over the tree. Each node is the place of the errors raised while it is the innermost.
 */
#include "text/jinja_node.h"

#include <assert.h>
#include <string.h>

/* ---- undefined values -------------------------------------------------------------------------------------------- */

bt_jv bt_jv_undefined(bt_jx *x, const char *hint, const char *owner, bt_jv name)
{
    bt_jundef *u = bt_jx_alloc(x, 1, sizeof *u);
    if (u == NULL) return bt_jv_of(JV_FAIL);
    *u = (bt_jundef){.hint = hint, .owner = owner, .name = name};
    return (bt_jv){.kind = JV_UNDEFINED, .undef = u};
}

bt_jv bt_jx_fail_undefined(bt_jx *x, bt_jv v)
{
    assert(v.kind == JV_UNDEFINED);
    const bt_jundef *u = v.undef;
    if (u->hint != NULL) return bt_jx_fail(x, "%s", u->hint);
    int size = u->name.kind == JV_STRING ? (int)(u->name.s->size < 500 ? u->name.s->size : 500) : 0;
    const char *name = u->name.kind == JV_STRING ? u->name.s->data : "";
    if (u->unsafe) {
        return bt_jx_fail(x, "access to attribute '%.*s' of '%s' object is unsafe", size, name, u->owner);
    }
    if (u->owner[0] == '\0') return bt_jx_fail(x, "'%.*s' is undefined", size, name);
    if (u->name.kind == JV_STRING) return bt_jx_fail(x, "'%s' has no attribute '%.*s'", u->owner, size, name);
    if (u->name.kind == JV_INT) return bt_jx_fail(x, "%s has no element %lld", u->owner, (long long)u->name.i);
    return bt_jx_fail(x, "%s has no such element", u->owner);
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

static bt_jv *variable(bt_jx *x, uint32_t level, uint32_t slot)
{
    bt_jframe *f = x->frame;
    while (f->scope->level != level) {
        f = f->parent;
        assert(f != NULL);
    }
    assert(slot < f->scope->n);
    return &f->slots[slot];
}

static bt_jv eval_name(bt_jx *x, const bt_jnode *n)
{
    bt_jv v = *variable(x, n->level, n->slot);
    return v.kind == JV_MISSING ? bt_jv_undefined(x, NULL, "", bt_jv_string(n->name)) : v;
}

static bool assign_tuple(bt_jx *x, const bt_jnode *target, bt_jv v)
{
    bt_jiter it;
    bt_jv item;
    if (!bt_jiter_begin(x, v, &it)) return false;
    size_t n = 0;
    for (const bt_jnode *t = target->items; t != NULL; t = t->next, n++) {
        bt_jnext next = bt_jiter_next(x, &it, &item);
        if (next == NEXT_END) {
            (void)bt_jx_fail(x, "not enough values to unpack (expected %zu, got %zu)", target->n_items, n);
        }
        if (next != NEXT_ITEM || !bt_jx_assign(x, t, item)) return false;
    }
    bt_jnext next = bt_jiter_next(x, &it, &item);
    if (next == NEXT_ITEM) (void)bt_jx_fail(x, "too many values to unpack (expected %zu)", target->n_items);
    return next == NEXT_END;
}

bool bt_jx_assign(bt_jx *x, const bt_jnode *target, bt_jv v)
{
    assert(v.kind > JV_MISSING);
    if (target->kind == JN_NAME) {
        *variable(x, target->level, target->slot) = v;
        return true;
    }
    if (target->kind == JN_TUPLE) return assign_tuple(x, target, v);
    assert(target->kind == JN_NS_REF);
    bt_jv names = *variable(x, target->level, target->slot);
    if (names.kind != JV_NAMESPACE) {
        (void)bt_jx_fail(x, "cannot assign attribute on non-namespace object");
        return false;
    }
    return bt_jdict_set(x, names.names, target->attribute, v);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

typedef struct call_room { /* arguments of a call; few of them need no memory */
    bt_jv few[6];
    bt_jkw few_keywords[4];
    bt_jargs args;
} call_room;

/* **mapping into keywords from *n on. */
static bool spread_keywords(bt_jx *x, bt_jv mapping, bt_jkw *keywords, size_t *n)
{
    for (size_t i = 0; i < mapping.dict->n; i++) {
        const bt_jpair *p = &mapping.dict->pairs[i];
        if (p->key.kind != JV_STRING) return !bt_failed(bt_jx_fail(x, "keywords must be strings"));
        for (size_t k = 0; k < *n; k++) {
            if (bt_js_equal(keywords[k].name, p->key.s)) {
                return !bt_failed(
                    bt_jx_fail(x, "multiple values for keyword argument '%.*s'", (int)p->key.s->size, p->key.s->data));
            }
        }
        keywords[(*n)++] = (bt_jkw){p->key.s, p->value};
    }
    return true;
}

static bool eval_keywords(bt_jx *x, const bt_jcall *c, bt_jv caller, call_room *room)
{
    static const bt_js caller_name = {.data = "caller", .size = 6};
    size_t n = c->n_keywords + (caller.kind == JV_MACRO), at = 0;
    bt_jv mapping = bt_jv_of(JV_MISSING);
    if (c->star_star != NULL) {
        mapping = bt_jx_eval(x, c->star_star);
        if (bt_failed(mapping)) return false;
        if (mapping.kind != JV_DICT) return !bt_failed(bt_jx_fail(x, "argument after ** must be a mapping"));
        n += mapping.dict->n;
    }
    bt_jkw *keywords = room->few_keywords;
    if (n > sizeof room->few_keywords / sizeof *room->few_keywords) keywords = bt_jx_alloc(x, n, sizeof *keywords);
    if (keywords == NULL) return false;
    for (const bt_jnode *k = c->keywords; k != NULL; k = k->next) {
        keywords[at] = (bt_jkw){k->key, bt_jx_eval(x, k)};
        if (bt_failed(keywords[at++].value)) return false;
    }
    if (mapping.kind == JV_DICT && !spread_keywords(x, mapping, keywords, &at)) return false;
    if (caller.kind == JV_MACRO) keywords[at++] = (bt_jkw){&caller_name, caller};
    room->args.kw = keywords;
    room->args.n_kw = at;
    return true;
}

/* Evaluates the arguments of a call. `caller` is the macro of a call block, else missing. */
static bool eval_arguments(bt_jx *x, const bt_jcall *c, bt_jv caller, call_room *room)
{
    bt_jv *values = room->few;
    size_t n = 0, capacity = sizeof room->few / sizeof *room->few;
    room->args = (bt_jargs){0};
    if (c->n_args > capacity) values = bt_jx_alloc(x, c->n_args, sizeof *values);
    if (values == NULL) return false;
    for (const bt_jnode *a = c->args; a != NULL; a = a->next) {
        values[n] = bt_jx_eval(x, a);
        if (bt_failed(values[n++])) return false;
    }
    room->args.v = values;
    room->args.n = n;
    if (c->star != NULL) {
        bt_jlist *all = bt_jlist_new(x, n);
        for (size_t i = 0; all != NULL && i < n; i++) (void)bt_jlist_add(x, all, values[i]);
        bt_jv more = bt_jx_eval(x, c->star);
        if (all == NULL || bt_failed(more) || !bt_jv_collect(x, more, all)) return false;
        room->args.v = all->items;
        room->args.n = all->n;
    }
    if (c->keywords == NULL && c->star_star == NULL && caller.kind != JV_MACRO) return true;
    return eval_keywords(x, c, caller, room);
}

static bt_jv call_joiner(bt_jx *x, bt_jcycler *j, const bt_jargs *a)
{
    if (a->n + a->n_kw > 0) return bt_jx_fail(x, "a joiner takes no arguments");
    if (j->at++ == 0) return bt_js_static(x, "", false);
    j->at = 1;
    return j->items->items[0];
}

static bt_jv call(bt_jx *x, bt_jv callee, const bt_jargs *a)
{
    if (!bt_jx_charge(x, 0)) return bt_jv_of(JV_FAIL);
    switch ((bt_jv_kind)callee.kind) {
    case JV_FUNCTION:
        return callee.function->call(x, a);
    case JV_METHOD:
        return callee.bound->call(x, callee.bound->self, a);
    case JV_MACRO:
        return bt_jx_call_macro(x, callee.macro, a);
    case JV_LOOP:
        return bt_jloop_recurse(x, callee.loop, a);
    case JV_JOINER:
        return call_joiner(x, callee.cycler, a);
    case JV_UNDEFINED:
        return bt_jx_fail_undefined(x, callee);
    default:
        return bt_jx_fail(x, "'%s' object is not callable", bt_jv_type(callee));
    }
}

/* A CALL node; `caller` as in eval_arguments. */
static bt_jv eval_call(bt_jx *x, const bt_jnode *n, bt_jv caller)
{
    call_room room;
    bt_jv callee = bt_jx_eval(x, n->subject);
    if (bt_failed(callee) || !eval_arguments(x, &n->call, caller, &room)) return bt_jv_of(JV_FAIL);
    return call(x, callee, &room.args);
}

bt_jv bt_jx_eval_call(bt_jx *x, const bt_jnode *n, bt_jv caller)
{
    const bt_jnode *outer = x->at;
    x->at = n;
    bt_jv v = eval_call(x, n, caller);
    x->at = outer;
    return v;
}

static bt_jv run_filter(bt_jx *x, const bt_jnode *n, bt_jv v)
{
    call_room room;
    if (!eval_arguments(x, &n->call, bt_jv_of(JV_MISSING), &room)) return bt_jv_of(JV_FAIL);
    return bt_jx_filter(x, n->called->data, n->called->size, n->builtin, v, &room.args);
}

static bt_jv eval_test(bt_jx *x, const bt_jnode *n)
{
    call_room room;
    bt_jv v = bt_jx_eval(x, n->subject);
    if (bt_failed(v) || !eval_arguments(x, &n->call, bt_jv_of(JV_MISSING), &room)) return bt_jv_of(JV_FAIL);
    return bt_jx_test(x, n->called->data, n->called->size, n->builtin, v, &room.args);
}

bt_jv bt_jx_apply_filter(bt_jx *x, const bt_jnode *n, bt_jv v)
{
    if (!bt_jx_enter(x)) return bt_jv_of(JV_FAIL);
    const bt_jnode *outer = x->at;
    if (n->subject != NULL) v = bt_jx_apply_filter(x, n->subject, v);
    x->at = n;
    if (!bt_failed(v)) v = run_filter(x, n, v);
    x->at = outer;
    bt_jx_leave(x);
    return v;
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static bool compare(bt_jx *x, int op, bt_jv a, bt_jv b)
{
    static const char *const names[] = {"<", "<=", ">", ">="};
    if (op == OP_EQ) return bt_jv_equal(x, a, b);
    if (op == OP_NE) return !bt_jv_equal(x, a, b);
    if (op == OP_IN) return bt_jv_contains(x, b, a);
    if (op == OP_NOT_IN) return !bt_jv_contains(x, b, a);
    int which = op == '<' ? 0 : op == OP_LE ? 1 : op == '>' ? 2 : 3;
    int order = bt_jv_order(x, names[which], a, b);
    if (order == 2) return false;
    return which == 0 ? order < 0 : which == 1 ? order <= 0 : which == 2 ? order > 0 : order >= 0;
}

static bt_jv eval_compare(bt_jx *x, const bt_jnode *n)
{
    bt_jv left = bt_jx_eval(x, n->a);
    if (bt_failed(left)) return left;
    bool holds = true, message = left.message;
    for (const bt_jnode *c = n->b; c != NULL && holds; c = c->next) {
        bt_jv right = bt_jx_eval(x, c->a);
        if (bt_failed(right)) return right;
        holds = compare(x, c->op, left, right);
        if (x->failed) return bt_jv_of(JV_FAIL);
        message = message || right.message;
        left = right;
    }
    return bt_jv_bool(holds, message);
}

static bt_jv eval_binary(bt_jx *x, const bt_jnode *n)
{
    bt_jv a = bt_jx_eval(x, n->a);
    if (bt_failed(a)) return a;
    bt_jv b = bt_jx_eval(x, n->b);
    return bt_failed(b) ? b : bt_jv_arith(x, n->op, a, b);
}

static bt_jv eval_unary(bt_jx *x, const bt_jnode *n)
{
    bt_jv v = bt_jx_eval(x, n->a);
    if (bt_failed(v)) return v;
    if (n->kind != JN_NOT) return bt_jv_negate(x, v, n->kind == JN_POS);
    bool truth = bt_jv_truth(x, v);
    return x->failed ? bt_jv_of(JV_FAIL) : bt_jv_bool(!truth, v.message);
}

static bt_jv eval_logic(bt_jx *x, const bt_jnode *n)
{
    bt_jv a = bt_jx_eval(x, n->a);
    if (bt_failed(a)) return a;
    bool decided = bt_jv_truth(x, a) == (n->kind == JN_OR);
    if (x->failed) return bt_jv_of(JV_FAIL);
    return decided ? a : bt_jx_eval(x, n->b);
}

static bt_jv eval_condition(bt_jx *x, const bt_jnode *n)
{
    bt_jv test = bt_jx_eval(x, n->test);
    if (bt_failed(test)) return test;
    bool truth = bt_jv_truth(x, test);
    if (x->failed) return bt_jv_of(JV_FAIL);
    if (truth) return bt_jx_eval(x, n->yes);
    if (n->no != NULL) return bt_jx_eval(x, n->no);
    return bt_jv_undefined(x, "an inline if without else had a false condition and no value", "", bt_jv_of(JV_NONE));
}

static bt_jv eval_concat(bt_jx *x, const bt_jnode *n)
{
    /* All values first: evaluating one may need the end of the output for itself. */
    bt_jlist *parts = bt_jlist_new(x, n->n_items);
    if (parts == NULL) return bt_jv_of(JV_FAIL);
    for (const bt_jnode *item = n->items; item != NULL; item = item->next) {
        bt_jv v = bt_jx_eval(x, item);
        if (bt_failed(v) || !bt_jlist_add(x, parts, v)) return bt_jv_of(JV_FAIL);
    }
    return bt_js_join(x, parts);
}

static bt_jv eval_list(bt_jx *x, const bt_jnode *n)
{
    bt_jlist *l = bt_jlist_new(x, n->n_items);
    if (l == NULL) return bt_jv_of(JV_FAIL);
    for (const bt_jnode *item = n->items; item != NULL; item = item->next) {
        bt_jv v = bt_jx_eval(x, item);
        if (bt_failed(v) || !bt_jlist_add(x, l, v)) return bt_jv_of(JV_FAIL);
    }
    return bt_jv_list(n->kind == JN_LIST ? JV_LIST : JV_TUPLE, l);
}

static bt_jv eval_dict(bt_jx *x, const bt_jnode *n)
{
    bt_jdict *d = bt_jdict_new(x);
    for (const bt_jnode *key = n->items; d != NULL && key != NULL; key = key->next->next) {
        bt_jv k = bt_jx_eval(x, key);
        bt_jv v = bt_failed(k) ? k : bt_jx_eval(x, key->next);
        if (bt_failed(v) || !bt_jdict_put(x, d, k, v)) return bt_jv_of(JV_FAIL);
    }
    return d == NULL ? bt_jv_of(JV_FAIL) : bt_jv_dict(d);
}

static bt_jv slice_part(bt_jx *x, const bt_jnode *n)
{
    return n == NULL ? bt_jv_of(JV_NONE) : bt_jx_eval(x, n);
}

static bt_jv eval_index(bt_jx *x, const bt_jnode *n)
{
    bt_jv object = bt_jx_eval(x, n->object);
    if (bt_failed(object)) return object;
    const bt_jnode *index = n->index;
    if (index->kind != JN_SLICE) {
        bt_jv key = bt_jx_eval(x, index);
        return bt_failed(key) ? key : bt_jv_item(x, object, key);
    }
    bt_jv start = slice_part(x, index->start);
    bt_jv stop = bt_failed(start) ? start : slice_part(x, index->stop);
    bt_jv step = bt_failed(stop) ? stop : slice_part(x, index->step);
    return bt_failed(step) ? step : bt_jv_slice(x, object, start, stop, step);
}

static bt_jv eval_attribute(bt_jx *x, const bt_jnode *n)
{
    bt_jv object = bt_jx_eval(x, n->object);
    return bt_failed(object) ? object : bt_jv_attribute(x, object, n->attr);
}

static bt_jv eval_filter(bt_jx *x, const bt_jnode *n)
{
    bt_jv v = bt_jx_eval(x, n->subject);
    return bt_failed(v) ? v : run_filter(x, n, v);
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

static bt_jv eval_kind(bt_jx *x, const bt_jnode *n)
{
    switch ((bt_jnode_kind)n->kind) {
    case JN_CONST:
        return n->value;
    case JN_NAME:
        return eval_name(x, n);
    case JN_TUPLE:
    case JN_LIST:
        return eval_list(x, n);
    case JN_DICT:
        return eval_dict(x, n);
    case JN_NOT:
    case JN_NEG:
    case JN_POS:
        return eval_unary(x, n);
    case JN_BINARY:
        return eval_binary(x, n);
    case JN_CONCAT:
        return eval_concat(x, n);
    case JN_AND:
    case JN_OR:
        return eval_logic(x, n);
    case JN_COMPARE:
        return eval_compare(x, n);
    case JN_COND:
        return eval_condition(x, n);
    case JN_ATTRIBUTE:
        return eval_attribute(x, n);
    case JN_INDEX:
        return eval_index(x, n);
    case JN_SLICE:
        return bt_jx_fail(x, "a slice among several indices is not supported");
    case JN_CALL:
        return eval_call(x, n, bt_jv_of(JV_MISSING));
    case JN_FILTER:
        return eval_filter(x, n);
    default:
        assert(n->kind == JN_TEST);
        return eval_test(x, n);
    }
}

bt_jv bt_jx_eval(bt_jx *x, const bt_jnode *n)
{
    if (!bt_jx_charge(x, 0) || !bt_jx_enter(x)) return bt_jv_of(JV_FAIL);
    const bt_jnode *outer = x->at;
    x->at = n;
    bt_jv v = eval_kind(x, n);
    x->at = outer;
    bt_jx_leave(x);
    assert(!bt_failed(v) || x->failed);
    return v;
}
