/*
 * Runs statements: scopes at run time, loops, macros, blocks. Text goes to the end of the output; whatever captures it
 * remembers where it began.
 */
#include "text/jinja_node.h"

#include <assert.h>
#include <string.h>

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static bt_jv resolve(bt_jx *x, const bt_js *name)
{
    const bt_jv *v = bt_jdict_find(x, x->context, name);
    if (v != NULL) return *v;
    const bt_jfunction *f = bt_jfunction_find(name);
    return f == NULL ? bt_jv_of(JV_MISSING) : (bt_jv){.kind = JV_FUNCTION, .function = f};
}

static bt_jv first_value(bt_jx *x, const bt_jframe *f, const bt_jslot *slot)
{
    if (slot->load == LOAD_RESOLVE) return resolve(x, slot->name);
    if (slot->load == LOAD_MISSING) return bt_jv_of(JV_MISSING);
    assert(slot->load == LOAD_ALIAS);
    const bt_jframe *outer = f->parent;
    while (outer->scope->level != slot->level) {
        outer = outer->parent;
        assert(outer != NULL);
    }
    return outer->slots[slot->slot];
}

/* Variables as on entry; what is assigned by the statement itself, as loop targets are, stays. */
static void reset(bt_jx *x, bt_jframe *f)
{
    for (size_t i = 0; i < f->scope->n; i++) {
        const bt_jslot *slot = &f->scope->slots[i];
        if (slot->load != LOAD_PARAMETER) f->slots[i] = first_value(x, f, slot);
    }
}

bt_jframe *bt_jframe_enter(bt_jx *x, const bt_jscope *s, bt_jframe *parent)
{
    bt_jframe *f = x->spare[s->id];
    if (f != NULL) {
        x->spare[s->id] = f->parent;
    } else {
        f = bt_jx_alloc(x, 1, sizeof *f + s->n * sizeof *f->slots);
        if (f == NULL) return NULL;
    }
    f->parent = parent;
    f->scope = s;
    for (size_t i = 0; i < s->n; i++) f->slots[i] = bt_jv_of(JV_MISSING);
    x->frame = f;
    reset(x, f);
    return f;
}

/* Back to the frame of whoever entered this one. */
static void leave(bt_jx *x, bt_jframe *caller)
{
    bt_jframe *f = x->frame;
    if (!f->scope->captured) { /* nothing can refer to it any more */
        f->parent = x->spare[f->scope->id];
        x->spare[f->scope->id] = f;
    }
    x->frame = caller;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* What the targets were given, as the filter of a loop hands it on: tuples, whatever was unpacked. */
static bt_jv target_value(bt_jx *x, const bt_jnode *target)
{
    if (target->kind == JN_NAME) return x->frame->slots[target->slot];
    assert(target->kind == JN_TUPLE);
    bt_jlist *l = bt_jlist_new(x, target->n_items);
    for (const bt_jnode *t = target->items; l != NULL && t != NULL; t = t->next) {
        bt_jv v = target_value(x, t);
        if (bt_failed(v) || !bt_jlist_add(x, l, v)) return bt_jv_of(JV_FAIL);
    }
    return l == NULL ? bt_jv_of(JV_FAIL) : bt_jv_list(JV_TUPLE, l);
}

/* Does the loop's condition hold for *item? */
static bool passes(bt_jx *x, const bt_jloop *l, bt_jv *item)
{
    const bt_jnode *n = l->node;
    bt_jframe *caller = x->frame;
    if (bt_jframe_enter(x, n->filter_scope, l->outer) == NULL) return false;
    bool truth = false;
    if (bt_jx_assign(x, n->target, *item)) {
        *item = target_value(x, n->target);
        bt_jv v = bt_failed(*item) ? *item : bt_jx_eval(x, n->filter);
        truth = !bt_failed(v) && bt_jv_truth(x, v);
    }
    leave(x, caller);
    return truth && !x->failed;
}

/* The next item of the iterable that the condition lets through. */
static bt_jnext pull(bt_jx *x, bt_jloop *l, bt_jv *out)
{
    bt_jnext next;
    while ((next = bt_jiter_next(x, &l->iter, out)) == NEXT_ITEM) {
        if (!l->filtered || passes(x, l, out)) return NEXT_ITEM;
        if (x->failed) return NEXT_FAIL;
    }
    return next;
}

/* loop.last and loop.nextitem look one item ahead. */
static bt_jnext peek(bt_jx *x, bt_jloop *l)
{
    bt_jv item;
    if (l->after.kind != JV_MISSING) return NEXT_ITEM;
    bt_jnext next = pull(x, l, &item);
    if (next == NEXT_ITEM) l->after = item;
    return next;
}

bt_jnext bt_jloop_next(bt_jx *x, bt_jloop *l, bt_jv *out)
{
    bt_jnext next = peek(x, l);
    if (next != NEXT_ITEM) return next;
    *out = l->after;
    l->after = bt_jv_of(JV_MISSING);
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return NEXT_ITEM;
}

/* An iterable without a length is read to its end. */
static bool loop_length(bt_jx *x, bt_jloop *l, int64_t *length)
{
    if (!l->has_length && (l->filtered || !bt_jv_length(x, l->iterable, &l->length))) {
        bt_jlist *rest = bt_jlist_new(x, 0);
        if (rest == NULL) return false;
        bt_jv item;
        bt_jnext next;
        while ((next = pull(x, l, &item)) == NEXT_ITEM) {
            if (!bt_jlist_add(x, rest, item)) return false;
        }
        if (next == NEXT_FAIL) return false;
        l->length = rest->n + (size_t)(l->index0 + 1) + (l->after.kind != JV_MISSING);
        l->iter = (bt_jiter){.source = bt_jv_list(JV_LIST, rest)};
        l->filtered = false;
    }
    l->has_length = true;
    *length = (int64_t)l->length;
    return !x->failed;
}

static bt_jv loop_cycle(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (a->n_kw > 0) return bt_jx_fail(x, "loop.cycle takes no keyword arguments");
    if (a->n == 0) return bt_jx_fail(x, "no items for cycling given");
    return a->v[(size_t)self.loop->index0 % a->n];
}

static bt_jv loop_changed(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (a->n_kw > 0) return bt_jx_fail(x, "loop.changed takes no keyword arguments");
    bt_jlist *l = bt_jlist_new(x, a->n);
    for (size_t i = 0; l != NULL && i < a->n; i++) (void)bt_jlist_add(x, l, a->v[i]);
    if (l == NULL || x->failed) return bt_jv_of(JV_FAIL);
    bt_jv now = bt_jv_list(JV_TUPLE, l), before = self.loop->changed;
    bool same = before.kind != JV_MISSING && bt_jv_equal(x, before, now);
    if (x->failed) return bt_jv_of(JV_FAIL);
    if (!same) self.loop->changed = now;
    return bt_jv_bool(!same, now.message);
}

static bt_jv bind(bt_jx *x, bt_jv self, const char *name, bt_jmethod_fn call)
{
    bt_jbound *b = bt_jx_alloc(x, 1, sizeof *b);
    if (b == NULL) return bt_jv_of(JV_FAIL);
    *b = (bt_jbound){self, name, call};
    return (bt_jv){.kind = JV_METHOD, .bound = b};
}

static bt_jv neighbour(bt_jx *x, bt_jloop *l, bool next)
{
    if (!next) {
        if (l->index0 > 0) return l->before;
        return bt_jv_undefined(x, "there is no previous item", "", bt_jv_of(JV_NONE));
    }
    bt_jnext found = peek(x, l);
    if (found == NEXT_FAIL) return bt_jv_of(JV_FAIL);
    if (found == NEXT_ITEM) return l->after;
    return bt_jv_undefined(x, "there is no next item", "", bt_jv_of(JV_NONE));
}

bt_jv bt_jloop_attribute(bt_jx *x, bt_jv v, const bt_js *name)
{
    bt_jloop *l = v.loop;
    int64_t length = 0;
    if (bt_js_is(name, "index")) return bt_jv_int(l->index0 + 1, false);
    if (bt_js_is(name, "index0")) return bt_jv_int(l->index0, false);
    if (bt_js_is(name, "first")) return bt_jv_bool(l->index0 == 0, false);
    if (bt_js_is(name, "depth")) return bt_jv_int(l->depth0 + 1, false);
    if (bt_js_is(name, "depth0")) return bt_jv_int(l->depth0, false);
    if (bt_js_is(name, "previtem")) return neighbour(x, l, false);
    if (bt_js_is(name, "nextitem")) return neighbour(x, l, true);
    if (bt_js_is(name, "cycle")) return bind(x, v, "cycle", loop_cycle);
    if (bt_js_is(name, "changed")) return bind(x, v, "changed", loop_changed);
    bool message = l->iterable.message;
    if (bt_js_is(name, "last")) {
        bt_jnext next = peek(x, l);
        if (next == NEXT_FAIL) return bt_jv_of(JV_FAIL);
        return bt_jv_bool(next == NEXT_END, message);
    }
    bool counts = bt_js_is(name, "length"), from_end = bt_js_is(name, "revindex"),
         from_end0 = bt_js_is(name, "revindex0");
    if (!counts && !from_end && !from_end0) return bt_jv_of(JV_MISSING);
    if (!loop_length(x, l, &length)) return bt_jv_of(JV_FAIL);
    return bt_jv_int(counts ? length : length - l->index0 - from_end0, message);
}

static bt_jflow run_else(bt_jx *x, const bt_jnode *n, bt_jframe *outer, bt_jframe *caller)
{
    if (bt_jframe_enter(x, n->else_scope, outer) == NULL) return JF_FAIL;
    bt_jflow flow = bt_jx_run(x, n->otherwise);
    leave(x, caller);
    return flow;
}

/* The body once for each item. Jinja2 runs the else branch unless some iteration reached the end of the body. */
static bt_jflow run_items(bt_jx *x, bt_jloop *l, bt_jframe *f, bool *completed)
{
    const bt_jnode *n = l->node;
    bt_jv item;
    bt_jnext next;
    for (bool first = true; (next = bt_jloop_next(x, l, &item)) == NEXT_ITEM; first = false) {
        if (!first) reset(x, f);
        if (n->extended) f->slots[n->loop_slot] = (bt_jv){.kind = JV_LOOP, .loop = l};
        if (!bt_jx_assign(x, n->target, item)) return JF_FAIL;
        bt_jflow flow = bt_jx_run(x, n->body);
        if (flow == JF_FAIL) return JF_FAIL;
        if (flow == JF_BREAK) return JF_NEXT;
        *completed = *completed || flow == JF_NEXT;
    }
    return next == NEXT_END ? JF_NEXT : JF_FAIL;
}

static bt_jflow run_loop(bt_jx *x, const bt_jnode *n, bt_jv iterable, bt_jframe *outer, int64_t depth0)
{
    bt_jframe *caller = x->frame;
    bt_jloop *l = bt_jx_alloc(x, 1, sizeof *l);
    if (l == NULL) return JF_FAIL;
    bt_jv missing = bt_jv_of(JV_MISSING);
    *l = (bt_jloop){.node = n, .outer = outer, .iterable = iterable, .after = missing, .current = missing};
    l->before = l->changed = missing;
    l->index0 = -1;
    l->depth0 = depth0;
    l->filtered = n->filter != NULL;
    if (!bt_jiter_begin(x, iterable, &l->iter)) return JF_FAIL;
    bt_jframe *f = bt_jframe_enter(x, n->scope, outer);
    if (f == NULL) return JF_FAIL;
    bool completed = false;
    bt_jflow flow = run_items(x, l, f, &completed);
    leave(x, caller);
    if (flow == JF_NEXT && !completed && n->otherwise != NULL) flow = run_else(x, n, outer, caller);
    return flow;
}

static bt_jflow run_for(bt_jx *x, const bt_jnode *n)
{
    bt_jv iterable = bt_jx_eval(x, n->iter);
    return bt_failed(iterable) ? JF_FAIL : run_loop(x, n, iterable, x->frame, 0);
}

bt_jv bt_jloop_recurse(bt_jx *x, bt_jloop *l, const bt_jargs *a)
{
    if (!l->node->flag) return bt_jx_fail(x, "the loop must have the 'recursive' marker to be called");
    bt_jv iterable;
    if (!bt_jargs_bind(x, a, "loop", "iterable", 1, &iterable) || !bt_jx_enter(x)) return bt_jv_of(JV_FAIL);
    size_t begin = bt_out_begin(x);
    (void)run_loop(x, l->node, iterable, l->outer, l->depth0 + 1);
    bt_jx_leave(x);
    return bt_out_take(x, begin, false);
}

/* ---- macros ------------------------------------------------------------------------------------------------------ */

typedef struct macro_call {
    const bt_jmacro *macro;
    const bt_jargs *args;
    bt_jframe *frame;
    bool *taken; /* [args->n_kw] keyword arguments that found their parameter */
} macro_call;

/* The keyword argument of this name, marked as taken; missing if there is none. */
static bt_jv take_keyword(const macro_call *c, const bt_js *name)
{
    for (size_t i = 0; i < c->args->n_kw; i++) {
        if (c->taken[i] || !bt_js_equal(c->args->kw[i].name, name)) continue;
        c->taken[i] = true;
        return c->args->kw[i].value;
    }
    return bt_jv_of(JV_MISSING);
}

static const char *macro_name(const bt_jmacro *m, int *size)
{
    *size = m->name == NULL ? 6 : (int)(m->name->size < 200 ? m->name->size : 200);
    return m->name == NULL ? "caller" : m->name->data;
}

/* What no parameter took becomes kwargs and varargs, where the macro reads them; else it is an error. */
static bool take_rest(bt_jx *x, const macro_call *c)
{
    const bt_jbody *b = c->macro->body;
    int size;
    const char *name = macro_name(c->macro, &size);
    bt_jdict *kwargs = b->uses_kwargs ? bt_jdict_new(x) : NULL;
    for (size_t i = 0; i < c->args->n_kw; i++) {
        const bt_jkw *k = &c->args->kw[i];
        if (c->taken[i]) continue;
        if (!b->uses_kwargs) {
            (void)bt_jx_fail(x, "macro '%.*s' takes no keyword argument '%.*s'", size, name, (int)k->name->size,
                             k->name->data);
            return false;
        }
        if (kwargs == NULL || !bt_jdict_set(x, kwargs, k->name, k->value)) return false;
    }
    if (b->uses_kwargs) c->frame->slots[b->kwargs_slot] = kwargs == NULL ? bt_jv_of(JV_FAIL) : bt_jv_dict(kwargs);
    if (!b->uses_varargs && c->args->n > b->n_params) {
        (void)bt_jx_fail(x, "macro '%.*s' takes not more than %zu argument(s)", size, name, b->n_params);
        return false;
    }
    if (b->uses_varargs) {
        bt_jlist *rest = bt_jlist_new(x, 0);
        for (size_t i = b->n_params; rest != NULL && i < c->args->n; i++) (void)bt_jlist_add(x, rest, c->args->v[i]);
        if (rest == NULL) return false;
        c->frame->slots[b->varargs_slot] = bt_jv_list(JV_TUPLE, rest);
    }
    return !x->failed;
}

static bool take_parameters(bt_jx *x, const macro_call *c)
{
    const bt_jbody *b = c->macro->body;
    bool found_caller = c->args->n >= b->n_params && b->explicit_caller;
    size_t i = 0;
    for (const bt_jnode *p = b->params; p != NULL; p = p->next, i++) {
        bool given = i < c->args->n;
        c->frame->slots[i] = given ? c->args->v[i] : take_keyword(c, p->name);
        found_caller = found_caller || (!given && bt_js_is(p->name, "caller"));
    }
    if (b->uses_caller && !found_caller) {
        static const bt_js name = {.data = "caller", .size = 6};
        bt_jv caller = take_keyword(c, &name);
        if (caller.kind == JV_MISSING || caller.kind == JV_NONE) {
            caller = bt_jv_undefined(x, "no caller defined", "", bt_jv_of(JV_NONE));
        }
        c->frame->slots[b->caller_slot] = caller;
    }
    return take_rest(x, c);
}

/* Defaults are evaluated in the macro's own scope, one after the other, for each call. */
static bool take_defaults(bt_jx *x, const macro_call *c)
{
    const bt_jbody *b = c->macro->body;
    const bt_jnode *value = b->defaults;
    size_t i = 0, first_default = b->n_params - b->n_defaults;
    for (const bt_jnode *p = b->params; p != NULL; p = p->next, i++) {
        const bt_jnode *fallback = i < first_default ? NULL : value;
        if (fallback != NULL) value = value->next;
        if (c->frame->slots[i].kind != JV_MISSING) continue;
        bt_jv v = fallback == NULL ? bt_jv_undefined(x, NULL, "", bt_jv_string(p->name)) : bt_jx_eval(x, fallback);
        if (bt_failed(v)) return false;
        c->frame->slots[i] = v;
    }
    return true;
}

bt_jv bt_jx_call_macro(bt_jx *x, const bt_jmacro *m, const bt_jargs *a)
{
    bool few[8] = {false};
    bt_jframe *caller = x->frame;
    macro_call c = {.macro = m, .args = a, .taken = few};
    if (a->n_kw > sizeof few) c.taken = bt_jx_alloc(x, a->n_kw, 1);
    if (c.taken == NULL || !bt_jx_enter(x)) return bt_jv_of(JV_FAIL);
    c.frame = bt_jframe_enter(x, m->body->scope, m->frame);
    bt_jv v = bt_jv_of(JV_FAIL);
    if (c.frame != NULL) {
        size_t begin = bt_out_begin(x);
        if (take_parameters(x, &c) && take_defaults(x, &c)) (void)bt_jx_run(x, m->body->body);
        v = bt_out_take(x, begin, false);
        leave(x, caller);
    }
    bt_jx_leave(x);
    return v;
}

static bt_jv make_macro(bt_jx *x, const bt_js *name, const bt_jbody *body)
{
    bt_jmacro *m = bt_jx_alloc(x, 1, sizeof *m);
    if (m == NULL) return bt_jv_of(JV_FAIL);
    *m = (bt_jmacro){name, body, x->frame};
    return (bt_jv){.kind = JV_MACRO, .macro = m};
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static bt_jflow after(const bt_jx *x)
{
    return x->failed ? JF_FAIL : JF_NEXT;
}

static bt_jflow run_print(bt_jx *x, const bt_jnode *n)
{
    for (const bt_jnode *item = n->items; item != NULL; item = item->next) {
        bt_jv v = bt_jx_eval(x, item);
        if (bt_failed(v)) return JF_FAIL;
        x->at = item;
        bt_out_str(x, v);
    }
    return after(x);
}

static bool holds(bt_jx *x, const bt_jnode *condition)
{
    bt_jv v = bt_jx_eval(x, condition);
    return !bt_failed(v) && bt_jv_truth(x, v) && !x->failed;
}

static bt_jflow run_if(bt_jx *x, const bt_jnode *n)
{
    if (holds(x, n->condition)) return bt_jx_run(x, n->then);
    for (const bt_jnode *e = n->elifs; e != NULL && !x->failed; e = e->next) {
        if (holds(x, e->condition)) return bt_jx_run(x, e->then);
    }
    return x->failed ? JF_FAIL : bt_jx_run(x, n->last);
}

static bt_jflow run_set(bt_jx *x, const bt_jnode *n)
{
    bt_jv v = bt_jx_eval(x, n->iter);
    return !bt_failed(v) && bt_jx_assign(x, n->target, v) ? JF_NEXT : JF_FAIL;
}

/* A set or filter block: its text, through its filters. Loops around it can be left from inside; the text is lost
 * then. */
static bt_jflow run_capture(bt_jx *x, const bt_jnode *n)
{
    bt_jframe *caller = x->frame;
    if (bt_jframe_enter(x, n->inner_scope, caller) == NULL) return JF_FAIL;
    size_t begin = bt_out_begin(x);
    bt_jflow flow = bt_jx_run(x, n->inner);
    bt_jv v = bt_out_take(x, begin, false);
    if (flow == JF_NEXT && !bt_failed(v) && n->chain != NULL) v = bt_jx_apply_filter(x, n->chain, v);
    leave(x, caller);
    if (flow != JF_NEXT || bt_failed(v)) return x->failed ? JF_FAIL : flow;
    if (n->kind == JN_SET_BLOCK) return bt_jx_assign(x, n->block_target, v) ? JF_NEXT : JF_FAIL;
    bt_out_str(x, v);
    return after(x);
}

static bt_jflow run_with(bt_jx *x, const bt_jnode *n)
{
    bt_jframe *outer = x->frame;
    bt_jframe *inner = bt_jframe_enter(x, n->inner_scope, outer);
    if (inner == NULL) return JF_FAIL;
    bt_jflow flow = JF_NEXT;
    const bt_jnode *target = n->block_target;
    for (const bt_jnode *value = n->values; value != NULL; value = value->next, target = target->next) {
        x->frame = outer; /* values do not see each other */
        bt_jv v = bt_jx_eval(x, value);
        x->frame = inner;
        if (bt_failed(v) || !bt_jx_assign(x, target, v)) flow = JF_FAIL;
        if (flow == JF_FAIL) break;
    }
    if (flow == JF_NEXT) flow = bt_jx_run(x, n->inner);
    leave(x, outer);
    return flow;
}

static bt_jflow run_macro(bt_jx *x, const bt_jnode *n)
{
    bt_jv v = make_macro(x, n->macro_name, n->macro);
    bt_jframe *f = x->frame;
    assert(f->scope->level == n->macro_level);
    f->slots[n->macro_slot] = v;
    return after(x);
}

static bt_jflow run_call_block(bt_jx *x, const bt_jnode *n)
{
    bt_jv caller = make_macro(x, NULL, n->macro);
    bt_jv v = bt_failed(caller) ? caller : bt_jx_eval_call(x, n->callee, caller);
    if (bt_failed(v)) return JF_FAIL;
    bt_out_str(x, v);
    return after(x);
}

static bt_jflow run_generation(bt_jx *x, const bt_jnode *n)
{
    bt_jframe *caller = x->frame;
    if (bt_jframe_enter(x, n->macro->scope, caller) == NULL) return JF_FAIL;
    bt_jflow flow = bt_jx_run(x, n->macro->body);
    leave(x, caller);
    return flow;
}

static bt_jflow run_statement(bt_jx *x, const bt_jnode *n)
{
    switch ((bt_jnode_kind)n->kind) {
    case JN_TEXT:
        bt_out_js(x, n->value.s, 0, n->value.s->size);
        return after(x);
    case JN_PRINT:
        return run_print(x, n);
    case JN_FOR:
        return run_for(x, n);
    case JN_IF:
        return run_if(x, n);
    case JN_SET:
        return run_set(x, n);
    case JN_SET_BLOCK:
    case JN_FILTER_BLOCK:
        return run_capture(x, n);
    case JN_WITH:
        return run_with(x, n);
    case JN_MACRO:
        return run_macro(x, n);
    case JN_CALL_BLOCK:
        return run_call_block(x, n);
    case JN_GENERATION:
        return run_generation(x, n);
    case JN_BREAK:
        return JF_BREAK;
    default:
        assert(n->kind == JN_CONTINUE);
        return JF_CONTINUE;
    }
}

bt_jflow bt_jx_run(bt_jx *x, const bt_jnode *first)
{
    if (!bt_jx_enter(x)) return JF_FAIL;
    const bt_jnode *outer = x->at;
    bt_jflow flow = JF_NEXT;
    for (const bt_jnode *n = first; n != NULL && flow == JF_NEXT; n = n->next) {
        x->at = n;
        flow = bt_jx_charge(x, 0) ? run_statement(x, n) : JF_FAIL;
    }
    x->at = outer;
    bt_jx_leave(x);
    return flow;
}
