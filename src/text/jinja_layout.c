/*
 * Filters that lay out text: wordwrap as Python's textwrap does it, pprint as its pprint module. What they give is
 * message text if any of their inputs is: they put characters between the bytes of a text, and no rule for origins was
 * made for that.
 */
#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/pytext.h"

/* ---- wordwrap: words --------------------------------------------------------------------------------------------- */

typedef struct letters { /* one line, by characters */
    const bt_js *s;
    uint32_t *c; /* [n] */
    size_t *at;  /* [n + 1] where each begins */
    size_t n;
} letters;

typedef struct chunk { /* a word or white space: characters [from, to) */
    size_t from, to;
} chunk;

typedef struct chunks {
    chunk *items; /* [n] */
    size_t n, capacity;
} chunks;

typedef struct wrapping {
    size_t width;
    bool breaks_words, breaks_at_hyphens, splits_at_hyphens;
} wrapping;

/* textwrap's white space is ASCII's. */
static bool is_blank(uint32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_letter(const letters *l, size_t i)
{
    return i < l->n && bt_py_is_word(l->c[i]) && !bt_py_is_decimal(l->c[i]);
}

/* The character before i is one that a dash may follow. */
static bool follows_word(const letters *l, size_t i)
{
    return i > 0 && (bt_py_is_word(l->c[i - 1]) ||
                     (l->c[i - 1] < 0x80 && l->c[i - 1] != '\0' && strchr("!\"'&.,?", (int)l->c[i - 1]) != NULL));
}

/* How many dashes stand at i, if they are at least two, behind a word, and before another one; else 0. */
static size_t dashes_at(const letters *l, size_t i)
{
    size_t n = 0;
    if (!follows_word(l, i)) return 0;
    while (i + n < l->n && l->c[i + n] == '-') n++;
    return n >= 2 && i + n < l->n && bt_py_is_word(l->c[i + n]) ? n : 0;
}

/* A hyphen at i after which a word may be cut: behind "ab" or "a-b", before "cd" or "c-d". */
static bool is_cut(const letters *l, size_t i)
{
    if (l->c[i] != '-' || i < 2) return false;
    bool behind = is_letter(l, i - 1) && (is_letter(l, i - 2) || (l->c[i - 2] == '-' && i >= 3 && is_letter(l, i - 3)));
    size_t next = i + 2 < l->n && l->c[i + 2] == '-' ? i + 3 : i + 2;
    return behind && is_letter(l, i + 1) && is_letter(l, next);
}

/* Where the chunk that begins at `from` ends. */
static size_t chunk_end(const letters *l, size_t from, bool at_hyphens)
{
    size_t i = from;
    if (is_blank(l->c[i])) {
        while (i < l->n && is_blank(l->c[i])) i++;
        return i;
    }
    size_t dashes = at_hyphens ? dashes_at(l, from) : 0;
    if (dashes > 0) return from + dashes;
    for (i = from + 1; i < l->n && !is_blank(l->c[i]); i++) {
        if (at_hyphens && is_cut(l, i)) return i + 1;
        if (at_hyphens && dashes_at(l, i) > 0) return i;
    }
    return i;
}

static bool add_chunk(bt_jx *x, chunks *c, size_t from, size_t to)
{
    if (c->n == c->capacity) {
        size_t capacity = c->capacity == 0 ? 16 : c->capacity * 2;
        chunk *more = bt_jx_alloc(x, capacity, sizeof *more);
        if (more == NULL) return false;
        if (c->n > 0) memcpy(more, c->items, c->n * sizeof *more);
        c->items = more;
        c->capacity = capacity;
    }
    c->items[c->n++] = (chunk){from, to};
    return true;
}

/* ---- wordwrap: lines --------------------------------------------------------------------------------------------- */

static bool is_white(const letters *l, chunk c)
{
    for (size_t i = c.from; i < c.to; i++)
        if (!bt_py_is_space(l->c[i])) return false;
    return true;
}

/* How much of a word that fits on no line goes onto this one, which has `room`: up to its last hyphen, if there is
 * anything but hyphens before that. */
static size_t cut_word(const letters *l, chunk c, size_t room, bool at_hyphens)
{
    size_t end = c.from + room, hyphen = end;
    if (!at_hyphens || c.to - c.from <= room) return end < c.to ? end : c.to;
    while (hyphen > c.from && l->c[hyphen - 1] != '-') hyphen--;
    if (hyphen <= c.from + 1) return end;
    for (size_t i = c.from; i + 1 < hyphen; i++)
        if (l->c[i] != '-') return hyphen;
    return end;
}

typedef struct line { /* under construction: chunks that follow each other */
    size_t from, to, n;
    chunk last;
} line;

static void append(line *w, chunk c)
{
    if (w->n++ == 0) w->from = c.from;
    w->to = c.to;
    w->last = c;
}

/* Takes chunks of c from *next on into a line of at most this width. */
static line fill_line(const letters *l, chunks *c, size_t *next, const wrapping *w, bool is_first)
{
    line made = {0};
    if (!is_first && is_white(l, c->items[*next])) ++*next;
    for (size_t used = 0; *next < c->n && c->items[*next].to - c->items[*next].from <= w->width - used; ++*next) {
        used += c->items[*next].to - c->items[*next].from;
        append(&made, c->items[*next]);
    }
    chunk *big = *next < c->n ? &c->items[*next] : NULL;
    if (big != NULL && big->to - big->from > w->width) {
        size_t used = made.n == 0 ? 0 : made.to - made.from;
        if (w->breaks_words) {
            size_t end = cut_word(l, *big, w->width - used, w->breaks_at_hyphens);
            append(&made, (chunk){big->from, end});
            big->from = end;
        } else if (made.n == 0) {
            append(&made, *big);
            ++*next;
        }
    }
    if (made.n > 0 && is_white(l, made.last)) { /* an empty piece of a word counts as white, and is all that goes */
        made.to = made.last.from;
        made.n--;
    }
    return made;
}

static bool read_letters(bt_jx *x, const bt_js *s, letters *l)
{
    *l = (letters){.s = s, .c = bt_jx_alloc(x, s->size + 1, sizeof *l->c)};
    l->at = l->c == NULL ? NULL : bt_jx_alloc(x, s->size + 1, sizeof *l->at);
    if (l->at == NULL || !bt_jx_charge_scan(x, s->size)) return false;
    for (size_t at = 0; at < s->size;) {
        l->at[l->n] = at;
        at += bt_utf8_decode(s->data + at, s->size - at, &l->c[l->n++]);
    }
    l->at[l->n] = s->size;
    return true;
}

/* Writes the lines that one line becomes. */
static void wrap_line(bt_jx *x, const bt_js *s, const wrapping *w, const bt_js *between)
{
    letters l;
    chunks c = {0};
    if (!read_letters(x, s, &l)) return;
    for (size_t from = 0, to; from < l.n; from = to) {
        to = chunk_end(&l, from, w->splits_at_hyphens);
        if (!add_chunk(x, &c, from, to)) return;
    }
    bool is_first = true;
    for (size_t next = 0; next < c.n && !x->failed;) {
        line made = fill_line(&l, &c, &next, w, is_first);
        if (!bt_jx_charge(x, 0) || made.n == 0) continue;
        if (!is_first) bt_out_js(x, between, 0, between->size);
        bt_out_js(x, s, l.at[made.from], l.at[made.to]);
        is_first = false;
    }
}

bt_jv bt_filter_wordwrap(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    static const bt_js newline = {.data = "\n", .size = 1};
    bt_jv p[4];
    int64_t width = 79;
    if (!bt_jargs_bind(x, a, "wordwrap", "width break_long_words wrapstring break_on_hyphens", 0, p))
        return bt_jv_of(JV_FAIL);
    if (v.kind == JV_UNDEFINED) return bt_jx_fail_undefined(x, v);
    if (v.kind != JV_STRING) return bt_jx_fail(x, "'%s' object has no attribute 'splitlines'", bt_jv_type(v));
    if (p[0].kind != JV_MISSING && !bt_jarg_int(x, "wordwrap", p[0], &width)) return bt_jv_of(JV_FAIL);
    bool has_between = p[2].kind != JV_MISSING && p[2].kind != JV_NONE;
    const bt_js *between = has_between ? bt_jarg_string(x, "wordwrap", p[2]) : &newline;
    if (between == NULL) return bt_jv_of(JV_FAIL);
    if (between->markup) return bt_jx_fail(x, "wordwrap: markup between lines is not supported");
    if (width <= 0 && v.s->size > 0)
        return bt_jx_fail(x, "wordwrap: invalid width %lld (must be > 0)", (long long)width);
    const wrapping w = {.width = (size_t)width,
                        .breaks_words = p[1].kind == JV_MISSING || bt_jv_truth(x, p[1]),
                        .breaks_at_hyphens = p[3].kind == JV_MISSING || bt_jv_truth(x, p[3]),
                        .splits_at_hyphens = p[3].kind == JV_MISSING || (p[3].kind == JV_BOOL && p[3].b)};
    bt_jv lines = bt_js_split_lines(x, v.s, false);
    if (bt_failed(lines)) return lines;
    size_t begin = bt_out_begin(x);
    for (size_t i = 0; i < lines.list->n && !x->failed; i++) {
        if (i > 0) bt_out_js(x, between, 0, between->size);
        wrap_line(x, lines.list->items[i].s, &w, between);
    }
    bool message = v.message || bt_jargs_message(a);
    bt_out_stain(x, begin, message);
    return bt_out_take(x, begin, message);
}

/* ---- pprint ------------------------------------------------------------------------------------------------------ */

#define PAGE_WIDTH 80

static void print_value(bt_jx *x, bt_jv v, int64_t indent, int64_t allowance, bool is_outermost);

/* The value with every dict in the order of its keys, as pprint shows it. */
static bt_jv in_order(bt_jx *x, bt_jv v)
{
    if (v.kind == JV_DICT) {
        const bt_jdict *sorted = bt_jdict_sorted(x, v.dict);
        bt_jdict *d = sorted == NULL ? NULL : bt_jdict_new(x);
        if (d == NULL || !bt_jx_enter(x)) return bt_jv_of(JV_FAIL);
        for (size_t i = 0; i < sorted->n && !x->failed; i++) {
            bt_jv value = in_order(x, sorted->pairs[i].value);
            if (!bt_failed(value)) (void)bt_jdict_put(x, d, sorted->pairs[i].key, value);
        }
        bt_jx_leave(x);
        return x->failed ? bt_jv_of(JV_FAIL) : bt_jv_dict(d);
    }
    if ((v.kind != JV_LIST && v.kind != JV_TUPLE) || v.list->grouped) return v;
    bt_jlist *l = bt_jlist_new(x, v.list->n);
    if (l == NULL || !bt_jx_enter(x)) return bt_jv_of(JV_FAIL);
    for (size_t i = 0; i < v.list->n && !x->failed; i++) {
        bt_jv item = in_order(x, v.list->items[i]);
        if (!bt_failed(item)) (void)bt_jlist_add(x, l, item);
    }
    bt_jx_leave(x);
    return x->failed ? bt_jv_of(JV_FAIL) : bt_jv_list(v.kind, l);
}

/* repr(v) as a string; NULL after failing. */
static const bt_js *repr(bt_jx *x, bt_jv v)
{
    size_t begin = bt_out_begin(x);
    bt_out_repr(x, v);
    v = bt_out_take(x, begin, false);
    return bt_failed(v) ? NULL : v.s;
}

static bool fits(bt_jx *x, bt_jv v, int64_t width, const bt_js **text)
{
    *text = repr(x, v);
    return *text == NULL || (int64_t)bt_js_length(*text) <= width;
}

static void new_line(bt_jx *x, const char *before, int64_t indent)
{
    bt_out_puts(x, before, false);
    bt_out_puts(x, "\n", false);
    bt_out_fill(x, ' ', (size_t)indent, false);
}

static void print_items(bt_jx *x, const bt_jlist *l, int64_t indent, int64_t allowance)
{
    for (size_t i = 0; i < l->n && !x->failed; i++) {
        if (i > 0) new_line(x, ",", indent + 1);
        print_value(x, l->items[i], indent + 1, i + 1 == l->n ? allowance : 1, false);
    }
}

static void print_pairs(bt_jx *x, const bt_jdict *d, int64_t indent, int64_t allowance)
{
    for (size_t i = 0; i < d->n && !x->failed; i++) {
        const bt_js *key = repr(x, d->pairs[i].key);
        if (key == NULL) return;
        if (i > 0) new_line(x, ",", indent + 1);
        bt_out_js(x, key, 0, key->size);
        bt_out_puts(x, ": ", false);
        int64_t at = indent + 3 + (int64_t)bt_js_length(key);
        print_value(x, d->pairs[i].value, at, i + 1 == d->n ? allowance : 1, false);
    }
}

/* The piece of s from byte `from` on that is a word and the white space behind it. */
static size_t piece_end(const bt_js *s, size_t from)
{
    bool after_word = false;
    size_t at = from;
    for (size_t n; at < s->size; at += n) {
        uint32_t c = 0;
        n = bt_utf8_decode(s->data + at, s->size - at, &c);
        if (bt_py_is_space(c))
            after_word = true;
        else if (after_word)
            break;
    }
    return at;
}

/* Adds the reprs of one line's parts, each as many of its words as fit; the last part of the last line leaves room for
 * what follows. */
static void split_line(bt_jx *x, bt_jlist *parts, const bt_js *s, int64_t width, int64_t last_width)
{
    const bt_js *text = NULL;
    size_t from = 0, to = 0;
    while (to < s->size && !x->failed) {
        size_t end = piece_end(s, to);
        bt_jv both = bt_js_slice(x, s, from, end);
        if (bt_failed(both)) return;
        if (end == s->size) width = last_width;
        if (!fits(x, both, width, &text) && to > from) {
            text = repr(x, bt_js_slice(x, s, from, to));
            if (text == NULL || !bt_jlist_add(x, parts, bt_jv_string(text))) return;
            from = to;
        }
        to = end;
    }
    if (from < to && (text = repr(x, bt_js_slice(x, s, from, to))) != NULL)
        (void)bt_jlist_add(x, parts, bt_jv_string(text));
}

static void print_string(bt_jx *x, bt_jv v, int64_t indent, int64_t allowance, bool is_outermost)
{
    bt_jv lines = bt_js_split_lines(x, v.s, true);
    bt_jlist *parts = bt_jlist_new(x, 0);
    if (bt_failed(lines) || parts == NULL) return;
    indent += is_outermost;
    allowance += is_outermost;
    for (size_t i = 0; i < lines.list->n && !x->failed; i++) {
        bt_jv one = lines.list->items[i];
        const bt_js *text;
        int64_t width = PAGE_WIDTH - indent, last = i + 1 == lines.list->n ? width - allowance : width;
        if (!fits(x, one, last, &text))
            split_line(x, parts, one.s, width, last);
        else if (text != NULL)
            (void)bt_jlist_add(x, parts, bt_jv_string(text));
    }
    bool brackets = is_outermost && parts->n > 1;
    if (brackets) bt_out_puts(x, "(", false);
    for (size_t i = 0; i < parts->n && !x->failed; i++) {
        if (i > 0) new_line(x, "", indent);
        bt_out_js(x, parts->items[i].s, 0, parts->items[i].s->size);
    }
    if (brackets) bt_out_puts(x, ")", false);
}

static void print_value(bt_jx *x, bt_jv v, int64_t indent, int64_t allowance, bool is_outermost)
{
    const bt_js *text;
    bool is_list = (v.kind == JV_LIST || v.kind == JV_TUPLE) && !v.list->grouped,
         is_plain = v.kind == JV_STRING && !v.s->markup;
    if (!bt_jx_enter(x)) return;
    if (fits(x, v, PAGE_WIDTH - indent - allowance, &text) || (!is_list && !is_plain && v.kind != JV_DICT)) {
        if (text != NULL) bt_out_js(x, text, 0, text->size);
    } else if (is_plain) {
        print_string(x, v, indent, allowance, is_outermost);
    } else if (v.kind == JV_DICT) {
        bt_out_puts(x, "{", false);
        print_pairs(x, v.dict, indent, allowance + 1);
        bt_out_puts(x, "}", false);
    } else {
        const char *end = v.kind == JV_LIST ? "]" : v.list->n == 1 ? ",)" : ")";
        bt_out_puts(x, v.kind == JV_LIST ? "[" : "(", false);
        print_items(x, v.list, indent, allowance + (int64_t)strlen(end));
        bt_out_puts(x, end, false);
    }
    bt_jx_leave(x);
}

bt_jv bt_filter_pprint(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (!bt_jargs_bind(x, a, "pprint", "", 0, NULL)) return bt_jv_of(JV_FAIL);
    bool message = v.message || v.kind == JV_NAMESPACE;
    v = in_order(x, v);
    if (bt_failed(v)) return v;
    size_t begin = bt_out_begin(x);
    print_value(x, v, 0, 0, true);
    bt_out_stain(x, begin, message);
    return bt_out_take(x, begin, message);
}
