/*
 * The methods of strings. They count in characters, as Python does, and carry the origin of every byte along: a part
 * of a string keeps its marks, a character in another case keeps the mark of the one it came from, and what replaces
 * message text is message text. Methods for which no such rule was made (center, zfill, expandtabs ...) give message
 * text if any of their inputs is.
 */
#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_access.h"
#include "text/jinja_node.h"
#include "text/pytext.h"

/* ---- characters -------------------------------------------------------------------------------------------------- */

size_t bt_js_offset_from(const bt_js *s, size_t from, size_t n)
{
    size_t at = from;
    for (; at < s->size && n > 0; n--) {
        for (at++; at < s->size && ((unsigned char)s->data[at] & 0xc0) == 0x80;) at++;
    }
    return at - from;
}

size_t bt_js_offset(const bt_js *s, size_t i)
{
    return bt_js_offset_from(s, 0, i);
}

static uint32_t char_at(const bt_js *s, size_t at, size_t *length)
{
    uint32_t c = 0;
    *length = bt_utf8_decode(s->data + at, s->size - at, &c);
    assert(*length > 0);
    return c;
}

static uint32_t char_before(const bt_js *s, size_t at, size_t *length)
{
    size_t from = at - 1;
    while (from > 0 && ((unsigned char)s->data[from] & 0xc0) == 0x80) from--;
    uint32_t c = char_at(s, from, length);
    assert(from + *length == at);
    return c;
}

/* Characters before byte `at`. */
static size_t index_of(const bt_js *s, size_t at)
{
    const bt_js head = {.data = s->data, .size = at};
    return bt_js_length(&head);
}

bt_jv bt_js_as_markup(bt_jx *x, bt_jv v)
{
    if (v.kind != JV_STRING) return v;
    bt_js *s = bt_jx_alloc(x, 1, sizeof *s);
    if (s == NULL) return bt_jv_of(JV_FAIL);
    *s = *v.s;
    s->markup = true;
    return bt_jv_string(s);
}

static bt_jv like(bt_jx *x, const bt_js *self, bt_jv v)
{
    return self->markup ? bt_js_as_markup(x, v) : v;
}

/* ---- case -------------------------------------------------------------------------------------------------------- */

static bool is_cased(uint32_t c)
{
    return bt_py_is_lower(c) || bt_py_is_upper(c) || bt_py_is_title(c);
}

/* A walk over a string that maps its characters. Sigma ends a word in another shape: something cased before it, nothing
 * cased after it, whatever ignorable stands between. What was before is remembered, since looking back at every sigma
 * would take quadratic time; what comes after is looked at by one sigma only, for it is cased itself. */
typedef struct casing {
    const bt_js *s;
    bool after_cased;
} casing;

static bool is_final_sigma(const casing *w, size_t at)
{
    const bt_js *s = w->s;
    for (size_t after = at + 2, length; w->after_cased && after < s->size; after += length) {
        uint32_t c = char_at(s, after, &length);
        if (!bt_py_is_case_ignorable(c)) return !is_cased(c);
    }
    return w->after_cased;
}

static size_t to_lower(const casing *w, size_t at, uint32_t c, uint32_t out[BT_PY_CASE_MAX])
{
    if (c != 0x3a3) return bt_py_to_lower(c, out);
    out[0] = is_final_sigma(w, at) ? 0x3c2 : 0x3c3;
    return 1;
}

static void pass(casing *w, uint32_t c)
{
    if (!bt_py_is_case_ignorable(c)) w->after_cased = is_cased(c);
}

static void add_mapped(bt_jx *x, const uint32_t *mapped, size_t n, bool message)
{
    for (size_t i = 0; i < n; i++) bt_out_char(x, mapped[i], message);
}

void bt_out_case(bt_jx *x, const bt_js *s, size_t size, bt_case which)
{
    uint32_t mapped[BT_PY_CASE_MAX];
    casing w = {.s = s};
    for (size_t at = 0, length; at < size && !x->failed; at += length) {
        uint32_t c = char_at(s, at, &length);
        size_t n = which == CASE_UPPER ? bt_py_to_upper(c, mapped) : to_lower(&w, at, c, mapped);
        add_mapped(x, mapped, n, bt_js_range_message(s, at, at + length));
        pass(&w, c);
    }
}

static size_t map_swapped(const casing *w, size_t at, uint32_t c, uint32_t out[BT_PY_CASE_MAX])
{
    if (bt_py_is_upper(c)) return to_lower(w, at, c, out);
    if (bt_py_is_lower(c)) return bt_py_to_upper(c, out);
    out[0] = c;
    return 1;
}

bt_jv bt_js_to_case(bt_jx *x, const bt_js *s, bt_case to)
{
    size_t begin = bt_out_begin(x);
    bool in_word = false; /* of title(): the last character was cased */
    casing w = {.s = s};
    uint32_t mapped[BT_PY_CASE_MAX];
    for (size_t at = 0, length, n; at < s->size && !x->failed; at += length) {
        uint32_t c = char_at(s, at, &length);
        bool first = to == CASE_CAPITAL ? at == 0 : to == CASE_TITLE && !in_word;
        if (first) {
            n = bt_py_to_title(c, mapped);
        } else if (to == CASE_UPPER) {
            n = bt_py_to_upper(c, mapped);
        } else if (to == CASE_FOLD) {
            n = bt_py_to_folded(c, mapped);
        } else {
            n = to == CASE_SWAP ? map_swapped(&w, at, c, mapped) : to_lower(&w, at, c, mapped);
        }
        in_word = is_cased(c);
        add_mapped(x, mapped, n, bt_js_range_message(s, at, at + length));
        pass(&w, c);
    }
    return like(x, s, bt_out_take(x, begin, s->message));
}

static bt_jv to_case(bt_jx *x, bt_jv self, const bt_jargs *a, const char *what, bt_case to)
{
    return bt_jargs_positional(x, a, what, 0, 0) ? bt_js_to_case(x, self.s, to) : bt_jv_of(JV_FAIL);
}

static bt_jv str_upper(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return to_case(x, self, a, "upper", CASE_UPPER);
}

static bt_jv str_lower(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return to_case(x, self, a, "lower", CASE_LOWER);
}

static bt_jv str_capitalize(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return to_case(x, self, a, "capitalize", CASE_CAPITAL);
}

static bt_jv str_title(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return to_case(x, self, a, "title", CASE_TITLE);
}

static bt_jv str_swapcase(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return to_case(x, self, a, "swapcase", CASE_SWAP);
}

static bt_jv str_casefold(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return to_case(x, self, a, "casefold", CASE_FOLD);
}

/* ---- what a string is made of ------------------------------------------------------------------------------------ */

static bool is_alnum(uint32_t c)
{
    return bt_py_is_alpha(c) || bt_py_is_numeric(c);
}

static bt_jv all_are(bt_jx *x, bt_jv self, const bt_jargs *a, const char *what, bool (*is)(uint32_t), bool if_empty)
{
    if (!bt_jargs_positional(x, a, what, 0, 0) || !bt_jx_charge_scan(x, self.s->size)) return bt_jv_of(JV_FAIL);
    bool all = if_empty || self.s->size > 0;
    for (size_t at = 0, length; at < self.s->size && all; at += length) all = is(char_at(self.s, at, &length));
    return bt_jv_bool(all, self.message);
}

static bool is_ascii(uint32_t c)
{
    return c < 0x80;
}

static bt_jv str_isalnum(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return all_are(x, self, a, "isalnum", is_alnum, false);
}

static bt_jv str_isalpha(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return all_are(x, self, a, "isalpha", bt_py_is_alpha, false);
}

static bt_jv str_isascii(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return all_are(x, self, a, "isascii", is_ascii, true);
}

static bt_jv str_isdecimal(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return all_are(x, self, a, "isdecimal", bt_py_is_decimal, false);
}

static bt_jv str_isdigit(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return all_are(x, self, a, "isdigit", bt_py_is_digit, false);
}

static bt_jv str_isnumeric(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return all_are(x, self, a, "isnumeric", bt_py_is_numeric, false);
}

static bt_jv str_isprintable(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return all_are(x, self, a, "isprintable", bt_py_is_printable, true);
}

static bt_jv str_isspace(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return all_are(x, self, a, "isspace", bt_py_is_space, false);
}

bool bt_js_is_case(const bt_js *s, bool upper)
{
    bool cased = false;
    for (size_t at = 0, length; at < s->size; at += length) {
        uint32_t c = char_at(s, at, &length);
        if (bt_py_is_title(c) || (upper ? bt_py_is_lower(c) : bt_py_is_upper(c))) return false;
        cased = cased || bt_py_is_lower(c) || bt_py_is_upper(c);
    }
    return cased;
}

static bt_jv str_isupper(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (!bt_jargs_positional(x, a, "isupper", 0, 0) || !bt_jx_charge_scan(x, self.s->size)) return bt_jv_of(JV_FAIL);
    return bt_jv_bool(bt_js_is_case(self.s, true), self.message);
}

static bt_jv str_islower(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (!bt_jargs_positional(x, a, "islower", 0, 0) || !bt_jx_charge_scan(x, self.s->size)) return bt_jv_of(JV_FAIL);
    return bt_jv_bool(bt_js_is_case(self.s, false), self.message);
}

static bt_jv str_istitle(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (!bt_jargs_positional(x, a, "istitle", 0, 0) || !bt_jx_charge_scan(x, self.s->size)) return bt_jv_of(JV_FAIL);
    bool cased = false, after_cased = false, good = true;
    for (size_t at = 0, length; at < self.s->size && good; at += length) {
        uint32_t c = char_at(self.s, at, &length);
        bool capital = bt_py_is_upper(c) || bt_py_is_title(c), small = bt_py_is_lower(c);
        if (capital) good = !after_cased;
        if (small) good = after_cased;
        after_cased = capital || small;
        cased = cased || after_cased;
    }
    return bt_jv_bool(good && cased, self.message);
}

/* ---- stripping --------------------------------------------------------------------------------------------------- */

static bool is_stripped(bt_jx *x, const bt_js *chars, uint32_t c)
{
    if (chars == NULL) return bt_py_is_space(c);
    if (!bt_jx_charge_scan(x, chars->size)) return false;
    for (size_t at = 0, length; at < chars->size; at += length) {
        if (char_at(chars, at, &length) == c) return true;
    }
    return false;
}

bt_jv bt_js_strip(bt_jx *x, const bt_js *s, const bt_js *chars, bt_strip_sides sides)
{
    size_t from = 0, to = s->size, length;
    if (!bt_jx_charge(x, chars == NULL ? s->size : 0)) return bt_jv_of(JV_FAIL);
    while (sides & STRIP_LEFT && from < to && is_stripped(x, chars, char_at(s, from, &length))) from += length;
    while (sides & STRIP_RIGHT && to > from && is_stripped(x, chars, char_before(s, to, &length))) to -= length;
    if (!bt_jx_charge_scan(x, from + (s->size - to))) return bt_jv_of(JV_FAIL);
    return bt_js_slice(x, s, from, to);
}

static bt_jv strip(bt_jx *x, bt_jv self, const bt_jargs *a, const char *what, bt_strip_sides sides)
{
    const bt_js *chars = NULL;
    if (!bt_jargs_positional(x, a, what, 0, 1)) return bt_jv_of(JV_FAIL);
    if (a->n == 1 && a->v[0].kind != JV_NONE) {
        chars = bt_jarg_string(x, what, a->v[0]);
        if (chars == NULL) return bt_jv_of(JV_FAIL);
    }
    return bt_js_strip(x, self.s, chars, sides);
}

static bt_jv str_strip(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return strip(x, self, a, "strip", STRIP_BOTH);
}

static bt_jv str_lstrip(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return strip(x, self, a, "lstrip", STRIP_LEFT);
}

static bt_jv str_rstrip(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return strip(x, self, a, "rstrip", STRIP_RIGHT);
}

static bool begins_with(const bt_js *s, const bt_js *start)
{
    return s->size >= start->size && (start->size == 0 || memcmp(s->data, start->data, start->size) == 0);
}

static bool ends_with(const bt_js *s, const bt_js *end)
{
    return s->size >= end->size && (end->size == 0 || memcmp(s->data + s->size - end->size, end->data, end->size) == 0);
}

static bt_jv str_removeprefix(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    const bt_js *start;
    if (!bt_jargs_positional(x, a, "removeprefix", 1, 1)) return bt_jv_of(JV_FAIL);
    if ((start = bt_jarg_string(x, "removeprefix", a->v[0])) == NULL) return bt_jv_of(JV_FAIL);
    return bt_js_slice(x, self.s, begins_with(self.s, start) ? start->size : 0, self.s->size);
}

static bt_jv str_removesuffix(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    const bt_js *end;
    if (!bt_jargs_positional(x, a, "removesuffix", 1, 1)) return bt_jv_of(JV_FAIL);
    if ((end = bt_jarg_string(x, "removesuffix", a->v[0])) == NULL) return bt_jv_of(JV_FAIL);
    return bt_js_slice(x, self.s, 0, self.s->size - (ends_with(self.s, end) ? end->size : 0));
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

/* The part of self that optional arguments 1 and 2 name; *first is its first character's index. False after failing;
 * *valid is false if its start lies beyond the end. */
static bool bounded(bt_jx *x, const bt_js *s, const bt_jargs *a, const char *what, bt_js *part, size_t *first,
                    bool *valid)
{
    size_t length = bt_js_length(s), from = 0, to = length;
    if (!bt_jx_charge(x, s->size)) return false;
    if (a->n > 1 && a->v[1].kind != JV_NONE && !bt_jarg_position(x, what, a->v[1], length, &from)) return false;
    if (a->n > 2 && a->v[2].kind != JV_NONE && !bt_jarg_position(x, what, a->v[2], length, &to)) return false;
    if (to > length) to = length;
    *valid = from <= length && from <= to;
    if (!*valid) from = to;
    size_t begin = bt_js_offset(s, from);
    *part = *s;
    part->marks = NULL;
    part->data = s->data + begin;
    part->size = bt_js_offset_from(s, begin, to - from);
    *first = from;
    return true;
}

static bt_jv find(bt_jx *x, bt_jv self, const bt_jargs *a, const char *what, bool last, bool must)
{
    bt_js part;
    size_t first;
    bool valid;
    if (!bt_jargs_positional(x, a, what, 1, 3)) return bt_jv_of(JV_FAIL);
    const bt_js *sub = bt_jarg_string(x, what, a->v[0]);
    if (sub == NULL || !bounded(x, self.s, a, what, &part, &first, &valid)) return bt_jv_of(JV_FAIL);
    size_t at = !valid ? SIZE_MAX : last ? bt_js_find_last(x, &part, sub) : bt_js_find(x, &part, 0, sub);
    if (x->failed) return bt_jv_of(JV_FAIL);
    if (at == SIZE_MAX && must) return bt_jx_fail(x, "%s: substring not found", what);
    int64_t index = at == SIZE_MAX ? -1 : (int64_t)(first + index_of(&part, at));
    return bt_jv_int(index, self.message || bt_jargs_message(a));
}

static bt_jv str_find(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return find(x, self, a, "find", false, false);
}

static bt_jv str_rfind(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return find(x, self, a, "rfind", true, false);
}

static bt_jv str_index(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return find(x, self, a, "index", false, true);
}

static bt_jv str_rindex(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return find(x, self, a, "rindex", true, true);
}

static bt_jv str_count(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    bt_js part;
    size_t first;
    bool valid;
    if (!bt_jargs_positional(x, a, "count", 1, 3)) return bt_jv_of(JV_FAIL);
    const bt_js *sub = bt_jarg_string(x, "count", a->v[0]);
    if (sub == NULL || !bounded(x, self.s, a, "count", &part, &first, &valid)) return bt_jv_of(JV_FAIL);
    int64_t n = 0;
    if (sub->size == 0 && valid) {
        n = (int64_t)bt_js_length(&part) + 1;
    } else if (valid) {
        for (size_t at = 0; (at = bt_js_find(x, &part, at, sub)) != SIZE_MAX; at += sub->size) {
            if (!bt_jx_charge(x, 0)) return bt_jv_of(JV_FAIL);
            n++;
        }
    }
    return bt_jv_int(n, self.message || bt_jargs_message(a));
}

/* startswith, endswith: one string or a tuple of them. */
static bt_jv affix(bt_jx *x, bt_jv self, const bt_jargs *a, const char *what,
                   bool (*matches)(const bt_js *, const bt_js *))
{
    bt_js part;
    size_t first;
    bool valid, found = false;
    if (!bt_jargs_positional(x, a, what, 1, 3)) return bt_jv_of(JV_FAIL);
    bool tuple = a->v[0].kind == JV_TUPLE;
    if (!bounded(x, self.s, a, what, &part, &first, &valid)) return bt_jv_of(JV_FAIL);
    for (size_t i = 0; i < (tuple ? a->v[0].list->n : 1) && !found; i++) {
        const bt_js *other = bt_jarg_string(x, what, tuple ? a->v[0].list->items[i] : a->v[0]);
        if (other == NULL) return bt_jv_of(JV_FAIL);
        if (!bt_jx_charge(x, other->size)) return bt_jv_of(JV_FAIL);
        found = valid && matches(&part, other);
    }
    return bt_jv_bool(found, self.message || bt_jargs_message(a));
}

static bt_jv str_startswith(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return affix(x, self, a, "startswith", begins_with);
}

static bt_jv str_endswith(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return affix(x, self, a, "endswith", ends_with);
}

/* ---- replacing --------------------------------------------------------------------------------------------------- */

static void put_replacement(bt_jx *x, const bt_js *new, bool into_message)
{
    size_t begin = bt_out_begin(x);
    bt_out_js(x, new, 0, new->size);
    if (into_message) bt_out_stain(x, begin, true);
}

/* An empty string is replaced before every character and at the end; it lies in message text if a neighbour does. */
static void replace_empty(bt_jx *x, const bt_js *s, const bt_js *new, int64_t count)
{
    bool before = false;
    for (size_t at = 0, length; at <= s->size && !x->failed; at += length) {
        bool end = at == s->size;
        length = 1;
        if (!end) (void)char_at(s, at, &length);
        bool after = !end && bt_js_range_message(s, at, at + length);
        if (count != 0) {
            put_replacement(x, new, before || after || (s->size == 0 && s->message));
            count--;
        }
        if (!end) bt_out_js(x, s, at, at + length);
        before = after;
    }
}

bt_jv bt_js_replace(bt_jx *x, const bt_js *s, const bt_js *old, const bt_js *new, int64_t count)
{
    size_t begin = bt_out_begin(x), from = 0, at;
    if (!bt_jx_charge(x, s->size)) return bt_jv_of(JV_FAIL);
    if (old->size == 0) {
        replace_empty(x, s, new, count);
    } else {
        for (; count != 0 && (at = bt_js_find(x, s, from, old)) != SIZE_MAX && !x->failed; count--) {
            bt_out_js(x, s, from, at);
            put_replacement(x, new, bt_js_range_message(s, at, at + old->size));
            from = at + old->size;
        }
        bt_out_js(x, s, from, s->size);
    }
    return bt_out_take(x, begin, s->message);
}

static bt_jv str_replace(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    int64_t count = -1;
    if (!bt_jargs_positional(x, a, "replace", 2, 3)) return bt_jv_of(JV_FAIL);
    if (a->n == 3 && !bt_jarg_int(x, "replace", a->v[2], &count)) return bt_jv_of(JV_FAIL);
    bt_jv with = self.s->markup ? bt_js_escape(x, a->v[1]) : a->v[1]; /* markup takes anything, as its text */
    const bt_js *old = bt_jarg_string(x, "replace", a->v[0]);
    const bt_js *new = old == NULL || bt_failed(with) ? NULL : bt_jarg_string(x, "replace", with);
    if (new == NULL) return bt_jv_of(JV_FAIL);
    return like(x, self.s, bt_js_replace(x, self.s, old, new, count));
}

/* ---- splitting and joining --------------------------------------------------------------------------------------- */

static bool add_slice(bt_jx *x, bt_jlist *l, const bt_js *s, size_t from, size_t to)
{
    bt_jv v = bt_js_slice(x, s, from, to);
    return !bt_failed(v) && bt_jlist_add(x, l, v);
}

static bool split_space(bt_jx *x, bt_jlist *l, const bt_js *s, int64_t max)
{
    size_t at = 0, length = 0;
    for (;;) {
        while (at < s->size && bt_py_is_space(char_at(s, at, &length))) at += length;
        if (at == s->size) return true;
        if (max-- == 0) return add_slice(x, l, s, at, s->size);
        size_t from = at;
        while (at < s->size && !bt_py_is_space(char_at(s, at, &length))) at += length;
        if (!add_slice(x, l, s, from, at)) return false;
    }
}

static bool split_at(bt_jx *x, bt_jlist *l, const bt_js *s, const bt_js *sep, int64_t max)
{
    size_t from = 0, at;
    for (; max != 0 && (at = bt_js_find(x, s, from, sep)) != SIZE_MAX; max--) {
        if (!add_slice(x, l, s, from, at)) return false;
        from = at + sep->size;
    }
    return add_slice(x, l, s, from, s->size);
}

/* From the right; the parts are found last first. */
static bool split_space_right(bt_jx *x, bt_jlist *l, const bt_js *s, int64_t max)
{
    size_t at = s->size, length = 0;
    for (;;) {
        while (at > 0 && bt_py_is_space(char_before(s, at, &length))) at -= length;
        if (at == 0) return true;
        if (max-- == 0) return add_slice(x, l, s, 0, at);
        size_t to = at;
        while (at > 0 && !bt_py_is_space(char_before(s, at, &length))) at -= length;
        if (!add_slice(x, l, s, at, to)) return false;
    }
}

static bool split_at_right(bt_jx *x, bt_jlist *l, const bt_js *s, const bt_js *sep, int64_t max)
{
    bt_js rest = *s;
    size_t at;
    for (; max != 0 && (at = bt_js_find_last(x, &rest, sep)) != SIZE_MAX; max--) {
        if (!add_slice(x, l, s, at + sep->size, rest.size)) return false;
        rest.size = at;
    }
    return add_slice(x, l, s, 0, rest.size);
}

static void reverse_items(bt_jlist *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        bt_jv v = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
}

static bt_jv split(bt_jx *x, bt_jv self, const bt_jargs *a, const char *what, bool right)
{
    bt_jv v[2];
    int64_t max = -1;
    if (!bt_jargs_bind(x, a, what, "sep maxsplit", 0, v)) return bt_jv_of(JV_FAIL);
    if (v[1].kind != JV_MISSING && !bt_jarg_int(x, what, v[1], &max)) return bt_jv_of(JV_FAIL);
    bt_jlist *l = bt_jlist_new(x, 0);
    if (l == NULL || !bt_jx_charge(x, self.s->size)) return bt_jv_of(JV_FAIL);
    bool good;
    if (v[0].kind == JV_MISSING || v[0].kind == JV_NONE) {
        good = right ? split_space_right(x, l, self.s, max) : split_space(x, l, self.s, max);
    } else {
        const bt_js *sep = bt_jarg_string(x, what, v[0]);
        if (sep == NULL) return bt_jv_of(JV_FAIL);
        if (sep->size == 0) return bt_jx_fail(x, "%s: empty separator", what);
        good = right ? split_at_right(x, l, self.s, sep, max) : split_at(x, l, self.s, sep, max);
    }
    if (!good) return bt_jv_of(JV_FAIL);
    if (right) reverse_items(l);
    l->message = l->message || self.message;
    return bt_jv_list(JV_LIST, l);
}

static bt_jv str_split(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return split(x, self, a, "split", false);
}

static bt_jv str_rsplit(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return split(x, self, a, "rsplit", true);
}

bt_jv bt_js_split_last(bt_jx *x, const bt_js *s, const bt_js *sep)
{
    size_t at = bt_js_find_last(x, s, sep);
    return bt_js_slice(x, s, 0, at == SIZE_MAX ? s->size : at);
}

bt_jv bt_js_split_lines(bt_jx *x, const bt_js *s, bool keep_ends)
{
    bt_jlist *l = bt_jlist_new(x, 0);
    if (l == NULL || !bt_jx_charge(x, s->size)) return bt_jv_of(JV_FAIL);
    size_t from = 0;
    for (size_t at = 0, length; at < s->size; at += length) {
        if (!bt_py_is_line_break(char_at(s, at, &length))) continue;
        if (s->data[at] == '\r' && at + 1 < s->size && s->data[at + 1] == '\n') length = 2;
        if (!add_slice(x, l, s, from, keep_ends ? at + length : at)) return bt_jv_of(JV_FAIL);
        from = at + length;
    }
    if (from < s->size && !add_slice(x, l, s, from, s->size)) return bt_jv_of(JV_FAIL);
    l->message = l->message || s->message;
    return bt_jv_list(JV_LIST, l);
}

static bt_jv str_splitlines(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    bt_jv keep;
    if (!bt_jargs_bind(x, a, "splitlines", "keepends", 0, &keep)) return bt_jv_of(JV_FAIL);
    return bt_js_split_lines(x, self.s, bt_jv_truth(x, keep));
}

static bt_jv partition(bt_jx *x, bt_jv self, const bt_jargs *a, const char *what, bool right)
{
    if (!bt_jargs_positional(x, a, what, 1, 1)) return bt_jv_of(JV_FAIL);
    const bt_js *s = self.s, *sep = bt_jarg_string(x, what, a->v[0]);
    if (sep == NULL) return bt_jv_of(JV_FAIL);
    if (sep->size == 0) return bt_jx_fail(x, "%s: empty separator", what);
    bt_jlist *l = bt_jlist_new(x, 3);
    if (l == NULL || !bt_jx_charge(x, s->size)) return bt_jv_of(JV_FAIL);
    size_t at = right ? bt_js_find_last(x, s, sep) : bt_js_find(x, s, 0, sep);
    size_t first = at != SIZE_MAX ? at : right ? 0 : s->size, second = at != SIZE_MAX ? at + sep->size : first;
    bool good =
        add_slice(x, l, s, 0, first) && add_slice(x, l, s, first, second) && add_slice(x, l, s, second, s->size);
    return good ? bt_jv_list(JV_TUPLE, l) : bt_jv_of(JV_FAIL);
}

static bt_jv str_partition(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return partition(x, self, a, "partition", false);
}

static bt_jv str_rpartition(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return partition(x, self, a, "rpartition", true);
}

static bt_jv str_join(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    if (!bt_jargs_positional(x, a, "join", 1, 1)) return bt_jv_of(JV_FAIL);
    bt_jlist *l = bt_jlist_new(x, 0);
    if (l == NULL || !bt_jv_collect(x, a->v[0], l)) return bt_jv_of(JV_FAIL);
    for (size_t i = 0; i < l->n; i++) {
        if (self.s->markup) {
            l->items[i] = bt_js_escape(x, l->items[i]);
        } else if (l->items[i].kind != JV_STRING) {
            return bt_jx_fail(x, "sequence item %zu: expected str instance, %s found", i, bt_jv_type(l->items[i]));
        }
        if (x->failed) return bt_jv_of(JV_FAIL);
    }
    size_t begin = bt_out_begin(x);
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0) bt_out_js(x, self.s, 0, self.s->size);
        bt_out_js(x, l->items[i].s, 0, l->items[i].s->size);
    }
    return like(x, self.s, bt_out_take(x, begin, self.message || l->message));
}

/* ---- padding ----------------------------------------------------------------------------------------------------- */

static bt_jv pad(bt_jx *x, const bt_js *s, size_t left, size_t right, const bt_js *fill, bool message)
{
    size_t begin = bt_out_begin(x);
    bt_out_repeat(x, fill, left, message);
    bt_out_add(x, s->data, s->size, message);
    bt_out_repeat(x, fill, right, message);
    return like(x, s, bt_out_take(x, begin, message));
}

static const bt_js space = {.data = " ", .size = 1};

bt_jv bt_js_center(bt_jx *x, const bt_js *s, size_t width, const bt_js *fill)
{
    size_t length = bt_js_length(s), missing = width > length ? width - length : 0;
    size_t left = missing / 2 + (missing & width & 1);
    if (fill == NULL) fill = &space;
    return pad(x, s, left, missing - left, fill, s->message || fill->message);
}

/* Width and fill character of center, ljust, rjust. */
static bool pad_arguments(bt_jx *x, const bt_jargs *a, const char *what, size_t *width, const bt_js **fill)
{
    *fill = &space;
    if (!bt_jargs_positional(x, a, what, 1, 2) || !bt_jarg_size(x, what, a->v[0], width)) return false;
    if (a->n == 1) return true;
    *fill = bt_jarg_string(x, what, a->v[1]);
    if (*fill != NULL && bt_js_length(*fill) != 1) {
        (void)bt_jx_fail(x, "%s: the fill character must be exactly one character long", what);
    }
    return !x->failed;
}

static bt_jv str_center(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    size_t width;
    const bt_js *fill;
    if (!pad_arguments(x, a, "center", &width, &fill)) return bt_jv_of(JV_FAIL);
    return bt_js_center(x, self.s, width, fill);
}

static bt_jv justify(bt_jx *x, bt_jv self, const bt_jargs *a, const char *what, bool right)
{
    size_t width, length = bt_js_length(self.s);
    const bt_js *fill;
    if (!pad_arguments(x, a, what, &width, &fill)) return bt_jv_of(JV_FAIL);
    size_t missing = width > length ? width - length : 0;
    return pad(x, self.s, right ? missing : 0, right ? 0 : missing, fill, self.message || bt_jargs_message(a));
}

static bt_jv str_ljust(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return justify(x, self, a, "ljust", false);
}

static bt_jv str_rjust(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return justify(x, self, a, "rjust", true);
}

static bt_jv str_zfill(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    size_t width;
    if (!bt_jargs_positional(x, a, "zfill", 1, 1) || !bt_jarg_size(x, "zfill", a->v[0], &width))
        return bt_jv_of(JV_FAIL);
    const bt_js *s = self.s;
    bool message = self.message || a->v[0].message;
    size_t length = bt_js_length(s), missing = width > length ? width - length : 0;
    size_t sign = missing > 0 && s->size > 0 && (s->data[0] == '+' || s->data[0] == '-');
    size_t begin = bt_out_begin(x);
    bt_out_add(x, s->data, sign, message);
    bt_out_fill(x, '0', missing, message);
    bt_out_add(x, s->data + sign, s->size - sign, message);
    return like(x, s, bt_out_take(x, begin, message));
}

static bt_jv str_expandtabs(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    bt_jv v;
    size_t width = 8, column = 0;
    if (!bt_jargs_bind(x, a, "expandtabs", "tabsize", 0, &v)) return bt_jv_of(JV_FAIL);
    if (v.kind != JV_MISSING && !bt_jarg_size(x, "expandtabs", v, &width)) return bt_jv_of(JV_FAIL);
    const bt_js *s = self.s;
    bool message = self.message || bt_jargs_message(a);
    size_t begin = bt_out_begin(x);
    for (size_t at = 0, length; at < s->size && !x->failed; at += length) {
        uint32_t c = char_at(s, at, &length);
        if (c == '\t') {
            size_t n = width == 0 ? 0 : width - column % width;
            bt_out_fill(x, ' ', n, message);
            column += n;
            continue;
        }
        bt_out_add(x, s->data + at, length, message);
        column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    return like(x, s, bt_out_take(x, begin, message));
}

/* ---- formatting -------------------------------------------------------------------------------------------------- */

static bt_jv str_format(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    return bt_js_format(x, self, a, NULL);
}

static bt_jv str_format_map(bt_jx *x, bt_jv self, const bt_jargs *a)
{
    const bt_jargs none = {0};
    if (!bt_jargs_positional(x, a, "format_map", 1, 1)) return bt_jv_of(JV_FAIL);
    return bt_js_format(x, self, &none, &a->v[0]);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const bt_jmethod methods[] = {
    {"capitalize", str_capitalize, METHOD_SAFE},
    {"casefold", str_casefold, METHOD_SAFE},
    {"center", str_center, METHOD_SAFE},
    {"count", str_count, METHOD_SAFE},
    {"encode", NULL, METHOD_SAFE},
    {"endswith", str_endswith, METHOD_SAFE},
    {"expandtabs", str_expandtabs, METHOD_SAFE},
    {"find", str_find, METHOD_SAFE},
    {"format", str_format, METHOD_SAFE},
    {"format_map", str_format_map, METHOD_SAFE},
    {"index", str_index, METHOD_SAFE},
    {"isalnum", str_isalnum, METHOD_SAFE},
    {"isalpha", str_isalpha, METHOD_SAFE},
    {"isascii", str_isascii, METHOD_SAFE},
    {"isdecimal", str_isdecimal, METHOD_SAFE},
    {"isdigit", str_isdigit, METHOD_SAFE},
    {"isidentifier", NULL, METHOD_SAFE},
    {"islower", str_islower, METHOD_SAFE},
    {"isnumeric", str_isnumeric, METHOD_SAFE},
    {"isprintable", str_isprintable, METHOD_SAFE},
    {"isspace", str_isspace, METHOD_SAFE},
    {"istitle", str_istitle, METHOD_SAFE},
    {"isupper", str_isupper, METHOD_SAFE},
    {"join", str_join, METHOD_SAFE},
    {"ljust", str_ljust, METHOD_SAFE},
    {"lower", str_lower, METHOD_SAFE},
    {"lstrip", str_lstrip, METHOD_SAFE},
    {"maketrans", NULL, METHOD_SAFE},
    {"partition", str_partition, METHOD_SAFE},
    {"removeprefix", str_removeprefix, METHOD_SAFE},
    {"removesuffix", str_removesuffix, METHOD_SAFE},
    {"replace", str_replace, METHOD_SAFE},
    {"rfind", str_rfind, METHOD_SAFE},
    {"rindex", str_rindex, METHOD_SAFE},
    {"rjust", str_rjust, METHOD_SAFE},
    {"rpartition", str_rpartition, METHOD_SAFE},
    {"rsplit", str_rsplit, METHOD_SAFE},
    {"rstrip", str_rstrip, METHOD_SAFE},
    {"split", str_split, METHOD_SAFE},
    {"splitlines", str_splitlines, METHOD_SAFE},
    {"startswith", str_startswith, METHOD_SAFE},
    {"strip", str_strip, METHOD_SAFE},
    {"swapcase", str_swapcase, METHOD_SAFE},
    {"title", str_title, METHOD_SAFE},
    {"translate", NULL, METHOD_SAFE},
    {"upper", str_upper, METHOD_SAFE},
    {"zfill", str_zfill, METHOD_SAFE},
};

const bt_jmethod *bt_js_methods(size_t *n)
{
    *n = sizeof methods / sizeof *methods;
    return methods;
}
