/*
 * Filters over sequences. Those that Jinja2 writes as generators (map, select, batch ...) are generators here too:
 * they do their work, and fail, only when somebody takes their items, and give them once.
 */
#include <assert.h>
#include <string.h>

#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_node.h"
#include "text/pytext.h"

/* ---- attributes of items ----------------------------------------------------------------------------------------- */

typedef struct getter {
    bt_jv attribute; /* "a.b.0", an index, or none for the item itself */
    bt_jv fallback;  /* for what is undefined; none or missing: nothing */
    bool ignore_case;
    bool as_list; /* of sort */
} getter;

static bool given(bt_jv v) /* an all-zero value is not */
{
    return v.kind > JV_MISSING && v.kind != JV_NONE;
}

/* One step of "a.b.0": an integer where it is all digits. */
static bt_jv step_into(bt_jx *x, bt_jv item, const bt_js *path, size_t from, size_t to)
{
    int64_t i = 0;
    bool digits = to > from;
    for (size_t k = from; k < to; k++) digits = digits && path->data[k] >= '0' && path->data[k] <= '9';
    if (digits && bt_py_parse_int(path->data + from, to - from, 10, &i) == 1) {
        return bt_jv_item(x, item, bt_jv_int(i, false));
    }
    bt_jv key = bt_js_slice(x, path, from, to);
    return bt_failed(key) ? key : bt_jv_item(x, item, key);
}

/* What the path [from, to) of g leads to. */
static bt_jv follow(bt_jx *x, const getter *g, bt_jv item, size_t from, size_t to)
{
    const bt_js *path = g->attribute.s;
    for (size_t at = from; at <= to && !bt_failed(item);) {
        const char *dot = memchr(path->data + at, '.', to - at);
        size_t end = dot == NULL ? to : (size_t)(dot - path->data);
        item = step_into(x, item, path, at, end);
        if (item.kind == JV_UNDEFINED && given(g->fallback)) item = g->fallback;
        at = end + 1;
    }
    return item;
}

static bt_jv fold(bt_jx *x, const getter *g, bt_jv v)
{
    return g->ignore_case && v.kind == JV_STRING ? bt_js_to_case(x, v.s, CASE_LOWER) : v;
}

static bt_jv get(bt_jx *x, const getter *g, bt_jv item)
{
    if (g->attribute.kind == JV_STRING) {
        item = follow(x, g, item, 0, g->attribute.s->size);
    } else if (given(g->attribute)) {
        item = bt_jv_item(x, item, g->attribute);
        if (item.kind == JV_UNDEFINED && given(g->fallback)) item = g->fallback;
    }
    return fold(x, g, item);
}

/* The key of sort: a list of values, for attribute="a,b" several. Being a list it is compared for equality first, so
 * that what has no order (None, undefined values) is no error among its equals. */
static bt_jv get_list(bt_jx *x, const getter *g, bt_jv item)
{
    bt_jlist *l = bt_jlist_new(x, 1);
    if (l == NULL) return bt_jv_of(JV_FAIL);
    if (g->attribute.kind != JV_STRING) {
        bt_jv v = get(x, g, item);
        return bt_failed(v) || !bt_jlist_add(x, l, v) ? bt_jv_of(JV_FAIL) : bt_jv_list(JV_LIST, l);
    }
    const bt_js *paths = g->attribute.s;
    for (size_t at = 0; at <= paths->size;) {
        const char *comma = memchr(paths->data + at, ',', paths->size - at);
        size_t end = comma == NULL ? paths->size : (size_t)(comma - paths->data);
        bt_jv v = fold(x, g, follow(x, g, item, at, end));
        if (bt_failed(v) || !bt_jlist_add(x, l, v)) return bt_jv_of(JV_FAIL);
        at = end + 1;
    }
    return bt_jv_list(JV_LIST, l);
}

/* ---- sorting ----------------------------------------------------------------------------------------------------- */

typedef struct keyed {
    bt_jv key, value;
} keyed;

/* Merges [from, middle) and [middle, to); equal items keep their order, also where they are sorted downwards. */
static void merge(bt_jx *x, const keyed *in, keyed *out, size_t from, size_t middle, size_t to, bool reverse)
{
    size_t a = from, b = middle;
    for (size_t i = from; i < to; i++) {
        bool right = a == middle;
        if (a < middle && b < to) {
            int order = bt_jv_order(x, "<", reverse ? in[a].key : in[b].key, reverse ? in[b].key : in[a].key);
            right = order == -1;
            if (x->failed || !bt_jx_charge(x, 0)) return;
        }
        out[i] = right ? in[b++] : in[a++];
    }
}

/* The items in order; NULL after failing. */
static keyed *sort(bt_jx *x, keyed *items, size_t n, bool reverse)
{
    keyed *other = bt_jx_alloc(x, n, sizeof *other);
    for (size_t width = 1; width < n && other != NULL; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t middle = n - from < width ? n : from + width, to = n - middle < width ? n : middle + width;
            merge(x, items, other, from, middle, to, reverse);
            if (x->failed) return NULL;
        }
        keyed *sorted = other;
        other = items;
        items = sorted;
    }
    return other == NULL ? NULL : items;
}

/* All items of v with their keys, sorted. NULL after failing. */
static keyed *sorted_by(bt_jx *x, bt_jv v, const getter *g, bool reverse, size_t *n)
{
    bt_jv all = bt_jv_to_list(x, v);
    if (bt_failed(all)) return NULL;
    *n = all.list->n;
    keyed *items = bt_jx_alloc(x, *n + 1, sizeof *items);
    for (size_t i = 0; items != NULL && i < *n; i++) {
        bt_jv item = all.list->items[i];
        items[i] = (keyed){g->as_list ? get_list(x, g, item) : get(x, g, item), item};
        if (bt_failed(items[i].key)) return NULL;
    }
    return items == NULL ? NULL : sort(x, items, *n, reverse);
}

static bt_jv list_of(bt_jx *x, const keyed *items, size_t n, bool message)
{
    bt_jlist *l = items == NULL ? NULL : bt_jlist_new(x, n);
    for (size_t i = 0; l != NULL && i < n; i++) (void)bt_jlist_add(x, l, items[i].value);
    if (l == NULL || x->failed) return bt_jv_of(JV_FAIL);
    l->message = l->message || message;
    return bt_jv_list(JV_LIST, l);
}

bt_jv bt_filter_sort(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[3];
    if (!bt_jargs_bind(x, a, "sort", "reverse case_sensitive attribute", 0, p)) return bt_jv_of(JV_FAIL);
    const getter g = {.attribute = p[2], .ignore_case = !bt_jv_truth(x, p[1]), .as_list = true};
    size_t n = 0;
    const keyed *items = sorted_by(x, v, &g, bt_jv_truth(x, p[0]), &n);
    return list_of(x, items, n, v.message);
}

bt_jv bt_filter_dictsort(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[3];
    if (!bt_jargs_bind(x, a, "dictsort", "case_sensitive by reverse", 0, p)) return bt_jv_of(JV_FAIL);
    bool by_value = p[1].kind == JV_STRING && bt_js_is(p[1].s, "value");
    bool by_key = p[1].kind == JV_MISSING || (p[1].kind == JV_STRING && bt_js_is(p[1].s, "key"));
    if (!by_key && !by_value) return bt_jx_fail(x, "dictsort sorts by either \"key\" or \"value\"");
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    if (v.kind != JV_DICT) return bt_jx_fail(x, "'%s' object has no attribute 'items'", bt_jv_type(v));
    bt_jv pairs = {.kind = JV_VIEW, .view = VIEW_ITEMS, .message = v.message, .dict = v.dict};
    const getter g = {.attribute = bt_jv_int(by_value, false), .ignore_case = !bt_jv_truth(x, p[0])};
    size_t n = 0;
    const keyed *items = sorted_by(x, pairs, &g, bt_jv_truth(x, p[2]), &n);
    return list_of(x, items, n, v.message);
}

const bt_jdict *bt_jdict_sorted(bt_jx *x, const bt_jdict *d)
{
    const bt_jv by_case[] = {bt_jv_bool(true, false)};
    const bt_jargs args = {.v = by_case, .n = 1};
    bt_jv pairs = bt_filter_dictsort(x, bt_jv_dict(d), &args);
    bt_jdict *sorted = bt_failed(pairs) ? NULL : bt_jdict_new(x);
    for (size_t i = 0; sorted != NULL && i < pairs.list->n; i++) {
        const bt_jlist *pair = pairs.list->items[i].list;
        if (!bt_jdict_put(x, sorted, pair->items[0], pair->items[1])) return NULL;
    }
    return sorted;
}

bt_jv bt_filter_groupby(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[3];
    if (!bt_jargs_bind(x, a, "groupby", "attribute default case_sensitive", 1, p)) return bt_jv_of(JV_FAIL);
    bool case_sensitive = bt_jv_truth(x, p[2]);
    getter g = {.attribute = p[0], .fallback = p[1], .ignore_case = !case_sensitive};
    size_t n = 0;
    const keyed *items = sorted_by(x, v, &g, false, &n);
    bt_jlist *groups = items == NULL ? NULL : bt_jlist_new(x, 0);
    g.ignore_case = false;
    for (size_t i = 0, end; groups != NULL && i < n; i = end) {
        for (end = i + 1; end < n && bt_jv_equal(x, items[i].key, items[end].key);) end++;
        bt_jv members = list_of(x, items + i, end - i, false);
        bt_jv key = case_sensitive ? items[i].key : get(x, &g, items[i].value);
        bt_jlist *group = bt_jlist_new(x, 2);
        if (bt_failed(members) || bt_failed(key) || group == NULL) return bt_jv_of(JV_FAIL);
        group->grouped = true;
        if (!bt_jlist_add(x, group, key) || !bt_jlist_add(x, group, members)) return bt_jv_of(JV_FAIL);
        if (!bt_jlist_add(x, groups, bt_jv_list(JV_TUPLE, group))) return bt_jv_of(JV_FAIL);
    }
    return groups == NULL || x->failed ? bt_jv_of(JV_FAIL) : bt_jv_list(JV_LIST, groups);
}

static bt_jv extreme(bt_jx *x, bt_jv v, const bt_jargs *a, const char *what, bool largest)
{
    bt_jv p[2], item, best = bt_jv_of(JV_MISSING), best_key = best;
    if (!bt_jargs_bind(x, a, what, "case_sensitive attribute", 0, p)) return bt_jv_of(JV_FAIL);
    const getter g = {.attribute = p[1], .ignore_case = !bt_jv_truth(x, p[0])};
    bt_jiter it;
    if (!bt_jiter_begin(x, v, &it)) return bt_jv_of(JV_FAIL);
    bt_jnext next;
    while ((next = bt_jiter_next(x, &it, &item)) == NEXT_ITEM) {
        bt_jv key = get(x, &g, item);
        if (bt_failed(key)) return key;
        bool better = best.kind == JV_MISSING;
        if (!better) {
            int order = bt_jv_order(x, largest ? ">" : "<", key, best_key);
            if (x->failed) return bt_jv_of(JV_FAIL);
            better = order == (largest ? 1 : -1);
        }
        if (better) {
            best = item;
            best_key = key;
        }
    }
    if (next == NEXT_FAIL) return bt_jv_of(JV_FAIL);
    if (best.kind != JV_MISSING) return best;
    return bt_jv_undefined(x, "no aggregated item, the sequence was empty", "", bt_jv_of(JV_NONE));
}

bt_jv bt_filter_max(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return extreme(x, v, a, "max", true);
}

bt_jv bt_filter_min(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return extreme(x, v, a, "min", false);
}

/* ---- ends, lists, sums ------------------------------------------------------------------------------------------- */

static bt_jv no_arguments(bt_jx *x, const bt_jargs *a, const char *what)
{
    return bt_jargs_bind(x, a, what, "", 0, NULL) ? bt_jv_of(JV_NONE) : bt_jv_of(JV_FAIL);
}

/* The one item that an iterator gives next, or an undefined value. */
static bt_jv take_one(bt_jx *x, bt_jiter *it, const char *none)
{
    bt_jv item;
    bt_jnext next = bt_jiter_next(x, it, &item);
    if (next == NEXT_ITEM) return item;
    return next == NEXT_FAIL ? bt_jv_of(JV_FAIL) : bt_jv_undefined(x, none, "", bt_jv_of(JV_NONE));
}

bt_jv bt_filter_first(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jiter it;
    if (bt_failed(no_arguments(x, a, "first")) || !bt_jiter_begin(x, v, &it)) return bt_jv_of(JV_FAIL);
    return take_one(x, &it, "no first item, the sequence was empty");
}

/* Can it be gone through from its end? */
static bool reversible(bt_jv v)
{
    return bt_jv_iterable(v) && v.kind != JV_GENERATOR && v.kind != JV_LOOP;
}

bt_jv bt_filter_last(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (bt_failed(no_arguments(x, a, "last"))) return bt_jv_of(JV_FAIL);
    if (!reversible(v)) return bt_jx_fail(x, "'%s' object is not reversible", bt_jv_type(v));
    bt_jiter it = {.source = v, .backwards = true};
    return take_one(x, &it, "no last item, the sequence was empty");
}

static bt_jnext next_reversed(bt_jx *x, bt_jgen *g, bt_jv *out)
{
    return bt_jiter_next(x, &g->source, out);
}

bt_jv bt_filter_reverse(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (bt_failed(no_arguments(x, a, "reverse"))) return bt_jv_of(JV_FAIL);
    bt_jv none = bt_jv_of(JV_NONE);
    if (v.kind == JV_STRING) return bt_jv_slice(x, v, none, none, bt_jv_int(-1, false));
    if (!reversible(v)) {
        bt_jv all = bt_jv_to_list(x, v);
        return bt_failed(all) ? all : bt_jv_slice(x, all, none, none, bt_jv_int(-1, false));
    }
    bt_jgen *g;
    bt_jv gen = bt_jgen_new(x, "reversed iterator", next_reversed, &g);
    if (bt_failed(gen)) return gen;
    g->source = (bt_jiter){.source = v, .backwards = true};
    gen.message = v.message;
    return gen;
}

bt_jv bt_filter_list(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return bt_failed(no_arguments(x, a, "list")) ? bt_jv_of(JV_FAIL) : bt_jv_to_list(x, v);
}

bt_jv bt_filter_sum(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[2], item;
    if (!bt_jargs_bind(x, a, "sum", "attribute start", 0, p)) return bt_jv_of(JV_FAIL);
    const getter g = {.attribute = p[0]};
    bt_jv total = p[1].kind == JV_MISSING ? bt_jv_int(0, false) : p[1];
    if (total.kind == JV_STRING) return bt_jx_fail(x, "sum() can't sum strings");
    bt_jiter it;
    if (!bt_jiter_begin(x, v, &it)) return bt_jv_of(JV_FAIL);
    bt_jnext next;
    while ((next = bt_jiter_next(x, &it, &item)) == NEXT_ITEM) {
        item = get(x, &g, item);
        if (!bt_failed(item)) total = bt_jv_arith(x, '+', total, item);
        if (x->failed) return bt_jv_of(JV_FAIL);
    }
    return next == NEXT_FAIL ? bt_jv_of(JV_FAIL) : total;
}

bt_jv bt_filter_join(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[2], item;
    if (!bt_jargs_bind(x, a, "join", "d attribute", 0, p)) return bt_jv_of(JV_FAIL);
    const getter g = {.attribute = p[1]};
    /* Items are computed first: one of them may need the end of the output for itself. */
    bt_jlist *l = bt_jlist_new(x, 0);
    bt_jiter it;
    if (l == NULL || !bt_jiter_begin(x, v, &it)) return bt_jv_of(JV_FAIL);
    bt_jnext next;
    while ((next = bt_jiter_next(x, &it, &item)) == NEXT_ITEM) {
        item = get(x, &g, item);
        if (bt_failed(item) || !bt_jlist_add(x, l, item)) return bt_jv_of(JV_FAIL);
    }
    if (next == NEXT_FAIL) return bt_jv_of(JV_FAIL);
    bool message = v.message || l->message || (p[0].kind != JV_MISSING && p[0].message);
    size_t begin = bt_out_begin(x);
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0 && p[0].kind != JV_MISSING) bt_out_str(x, p[0]);
        bt_out_str(x, l->items[i]);
    }
    return bt_out_take(x, begin, message);
}

/* ---- generators -------------------------------------------------------------------------------------------------- */

/* Arguments that outlive the call. */
static bool keep_arguments(bt_jx *x, const bt_jargs *a, bt_jargs *out)
{
    bt_jv *v = bt_jx_alloc(x, a->n + 1, sizeof *v);
    bt_jkw *kw = bt_jx_alloc(x, a->n_kw + 1, sizeof *kw);
    if (v == NULL || kw == NULL) return false;
    if (a->n > 0) memcpy(v, a->v, a->n * sizeof *v);
    if (a->n_kw > 0) memcpy(kw, a->kw, a->n_kw * sizeof *kw);
    *out = (bt_jargs){v, a->n, kw, a->n_kw};
    return true;
}

static bt_jv new_generator(bt_jx *x, bt_jv source, bt_jnext (*next)(bt_jx *, bt_jgen *, bt_jv *), bt_jgen **g)
{
    bt_jv v = bt_jgen_new(x, "generator", next, g);
    if (bt_failed(v)) return v;
    (*g)->source = (bt_jiter){.source = source};
    v.message = source.message;
    return v;
}

/* At the first call: is there anything to go through? A false value, even None, gives no items and no error. */
static bool start(bt_jx *x, bt_jgen *g)
{
    if (g->i++ > 0) return true;
    return bt_jv_truth(x, g->source.source) && bt_jiter_begin(x, g->source.source, &g->source);
}

static bt_jnext ended(const bt_jx *x)
{
    return x->failed ? NEXT_FAIL : NEXT_END;
}

static const bt_jkw *keyword(const bt_jargs *a, const char *name)
{
    for (size_t i = 0; i < a->n_kw; i++) {
        if (bt_js_is(a->kw[i].name, name)) return &a->kw[i];
    }
    return NULL;
}

/* map(attribute=..., default=...) */
static bt_jv map_attribute(bt_jx *x, const bt_jgen *g, bt_jv item)
{
    const bt_jkw *attribute = keyword(&g->args, "attribute"), *fallback = keyword(&g->args, "default");
    size_t n = 1 + (fallback != NULL);
    if (g->args.n_kw > n) return bt_jx_fail(x, "map got an unexpected keyword argument");
    const getter by = {.attribute = attribute->value,
                       .fallback = fallback == NULL ? bt_jv_of(JV_NONE) : fallback->value};
    return get(x, &by, item);
}

static bt_jv map_filter(bt_jx *x, const bt_jgen *g, bt_jv item)
{
    if (g->args.n == 0) return bt_jx_fail(x, "map requires a filter argument");
    const bt_js *name = bt_jarg_string(x, "map", g->args.v[0]);
    if (name == NULL) return bt_jv_of(JV_FAIL);
    const bt_jfilter *f = bt_jfilter_find(name->data, name->size);
    const bt_jargs rest = {g->args.v + 1, g->args.n - 1, g->args.kw, g->args.n_kw};
    return bt_jx_filter(x, name->data, name->size, f, item, &rest);
}

static bt_jnext next_mapped(bt_jx *x, bt_jgen *g, bt_jv *out)
{
    if (!start(x, g)) return ended(x);
    bt_jnext next = bt_jiter_next(x, &g->source, out);
    if (next != NEXT_ITEM) return next;
    bool attribute = g->args.n == 0 && keyword(&g->args, "attribute") != NULL;
    *out = attribute ? map_attribute(x, g, *out) : map_filter(x, g, *out);
    return bt_failed(*out) ? NEXT_FAIL : NEXT_ITEM;
}

bt_jv bt_filter_map(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jgen *g;
    bt_jv gen = new_generator(x, v, next_mapped, &g);
    return bt_failed(gen) || !keep_arguments(x, a, &g->args) ? bt_jv_of(JV_FAIL) : gen;
}

/* extra[0]: true to look up an attribute; extra[1]: the truth that lets an item through. */
static bt_jnext next_selected(bt_jx *x, bt_jgen *g, bt_jv *out)
{
    if (!start(x, g)) return ended(x);
    size_t off = g->extra[0].b;
    if (g->args.n < off) {
        (void)bt_jx_fail(x, "a parameter for the attribute's name is missing");
        return NEXT_FAIL;
    }
    const getter by = {.attribute = off > 0 ? g->args.v[0] : bt_jv_of(JV_NONE)};
    bt_jnext next;
    while ((next = bt_jiter_next(x, &g->source, out)) == NEXT_ITEM) {
        bt_jv v = get(x, &by, *out);
        if (g->args.n > off && !bt_failed(v)) {
            const bt_js *name = bt_jarg_string(x, "select", g->args.v[off]);
            if (name == NULL) return NEXT_FAIL;
            const bt_jargs rest = {g->args.v + off + 1, g->args.n - off - 1, g->args.kw, g->args.n_kw};
            v = bt_jx_test(x, name->data, name->size, bt_jtest_find(name->data, name->size), v, &rest);
        }
        bool truth = bt_jv_truth(x, v);
        if (x->failed) return NEXT_FAIL;
        if (truth == g->extra[1].b) return NEXT_ITEM;
    }
    return next;
}

static bt_jv select_items(bt_jx *x, bt_jv v, const bt_jargs *a, bool attribute, bool wanted)
{
    bt_jgen *g;
    bt_jv gen = new_generator(x, v, next_selected, &g);
    if (bt_failed(gen) || !keep_arguments(x, a, &g->args)) return bt_jv_of(JV_FAIL);
    g->extra[0] = bt_jv_bool(attribute, false);
    g->extra[1] = bt_jv_bool(wanted, false);
    return gen;
}

bt_jv bt_filter_select(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return select_items(x, v, a, false, true);
}

bt_jv bt_filter_reject(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return select_items(x, v, a, false, false);
}

bt_jv bt_filter_selectattr(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return select_items(x, v, a, true, true);
}

bt_jv bt_filter_rejectattr(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    return select_items(x, v, a, true, false);
}

/* extra[0]: case_sensitive; extra[1]: attribute; callee: the keys seen. */
static bt_jnext next_unique(bt_jx *x, bt_jgen *g, bt_jv *out)
{
    if (g->i++ == 0 && !bt_jiter_begin(x, g->source.source, &g->source)) return NEXT_FAIL;
    const getter by = {.attribute = g->extra[1], .ignore_case = !bt_jv_truth(x, g->extra[0])};
    bt_jnext next;
    while ((next = bt_jiter_next(x, &g->source, out)) == NEXT_ITEM) {
        bt_jv key = get(x, &by, *out);
        if (bt_failed(key)) return NEXT_FAIL;
        const bt_jv *seen = bt_jdict_get(x, g->seen, key);
        if (x->failed) return NEXT_FAIL;
        if (seen != NULL) continue;
        return bt_jdict_put(x, g->seen, key, bt_jv_of(JV_NONE)) ? NEXT_ITEM : NEXT_FAIL;
    }
    return next;
}

bt_jv bt_filter_unique(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[2];
    bt_jgen *g;
    if (!bt_jargs_bind(x, a, "unique", "case_sensitive attribute", 0, p)) return bt_jv_of(JV_FAIL);
    bt_jv gen = new_generator(x, v, next_unique, &g);
    if (bt_failed(gen) || (g->seen = bt_jdict_new(x)) == NULL) return bt_jv_of(JV_FAIL);
    g->extra[0] = p[0];
    g->extra[1] = p[1];
    return gen;
}

static bt_jnext next_pair(bt_jx *x, bt_jgen *g, bt_jv *out)
{
    bt_jv v = g->source.source;
    if (v.kind == JV_UNDEFINED) return NEXT_END;
    if (v.kind != JV_DICT) {
        (void)bt_jx_fail(x, "can only get item pairs from a mapping");
        return NEXT_FAIL;
    }
    if (g->i >= v.dict->n) return NEXT_END;
    const bt_jpair *p = &v.dict->pairs[g->i++];
    *out = bt_jv_pair(x, p->key, p->value);
    return bt_failed(*out) ? NEXT_FAIL : NEXT_ITEM;
}

bt_jv bt_filter_items(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jgen *g;
    return bt_failed(no_arguments(x, a, "items")) ? bt_jv_of(JV_FAIL) : new_generator(x, v, next_pair, &g);
}

static bool fill_up(bt_jx *x, bt_jlist *l, int64_t size, bt_jv fill)
{
    while (given(fill) && (int64_t)l->n < size) {
        if (!bt_jlist_add(x, l, fill)) return false;
    }
    return true;
}

/* extra[0]: items in a batch; extra[1]: what fills the last; extra[2]: the item that begins the next one. */
static bt_jnext next_batch(bt_jx *x, bt_jgen *g, bt_jv *out)
{
    int64_t size = 0;
    bt_jv item;
    if (!bt_jarg_int(x, "batch", g->extra[0], &size) || g->flag) return ended(x);
    if (g->i++ == 0 && !bt_jiter_begin(x, g->source.source, &g->source)) return NEXT_FAIL;
    bt_jlist *l = bt_jlist_new(x, 0);
    if (l == NULL || (g->extra[2].kind != JV_MISSING && !bt_jlist_add(x, l, g->extra[2]))) return NEXT_FAIL;
    g->extra[2] = bt_jv_of(JV_MISSING);
    bt_jnext next;
    while ((next = bt_jiter_next(x, &g->source, &item)) == NEXT_ITEM) {
        if ((int64_t)l->n == size) {
            g->extra[2] = item;
            break;
        }
        if (!bt_jlist_add(x, l, item)) return NEXT_FAIL;
    }
    if (next == NEXT_FAIL) return next;
    g->flag = next == NEXT_END;
    if (g->flag && l->n == 0) return NEXT_END;
    if (g->flag && !fill_up(x, l, size, g->extra[1])) return NEXT_FAIL;
    *out = bt_jv_list(JV_LIST, l);
    return NEXT_ITEM;
}

bt_jv bt_filter_batch(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[2];
    bt_jgen *g;
    if (!bt_jargs_bind(x, a, "batch", "linecount fill_with", 1, p)) return bt_jv_of(JV_FAIL);
    bt_jv gen = new_generator(x, v, next_batch, &g);
    if (bt_failed(gen)) return gen;
    g->extra[0] = p[0];
    g->extra[1] = p[1];
    g->extra[2] = bt_jv_of(JV_MISSING);
    return gen;
}

/* extra[0]: number of slices; extra[1]: what fills the short ones; extra[2]: the items, once collected. */
static bt_jnext next_slice(bt_jx *x, bt_jgen *g, bt_jv *out)
{
    int64_t slices = 0;
    if (!bt_jarg_int(x, "slice", g->extra[0], &slices)) return NEXT_FAIL;
    if (g->i == 0) g->extra[2] = bt_jv_to_list(x, g->source.source);
    if (bt_failed(g->extra[2])) return NEXT_FAIL;
    if (slices == 0) (void)bt_jx_fail(x, "integer division or modulo by zero");
    if ((int64_t)g->i >= slices || x->failed) return ended(x);
    const bt_jlist *all = g->extra[2].list;
    size_t n = (size_t)slices, each = all->n / n, longer = all->n % n, i = g->i++;
    size_t from = i * each + (i < longer ? i : longer), to = from + each + (i < longer);
    bt_jlist *l = bt_jlist_new(x, each + 1);
    for (size_t k = from; l != NULL && k < to; k++) (void)bt_jlist_add(x, l, all->items[k]);
    if (l == NULL || (i >= longer && !fill_up(x, l, (int64_t)l->n + 1, g->extra[1])) || x->failed) return NEXT_FAIL;
    *out = bt_jv_list(JV_LIST, l);
    return NEXT_ITEM;
}

bt_jv bt_filter_slice(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    bt_jv p[2];
    bt_jgen *g;
    if (!bt_jargs_bind(x, a, "slice", "slices fill_with", 1, p)) return bt_jv_of(JV_FAIL);
    bt_jv gen = new_generator(x, v, next_slice, &g);
    if (bt_failed(gen)) return gen;
    g->extra[0] = p[0];
    g->extra[1] = p[1];
    return gen;
}
