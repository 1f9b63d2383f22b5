/*
 * The filter striptags: comments and tags go, white space becomes single blanks, character references become
 * characters, as markupsafe and html.unescape do it. Of the two thousand names of characters we know those that need no
 * semicolon, which are in Latin-1; a text with another name and a semicolon is refused rather than left as it is.
 */
#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/pytext.h"

#define NAMES_WORK 4096

/* ---- tags -------------------------------------------------------------------------------------------------------- */

/* Takes comments out of text [size], in place; returns the new size. What stands before and behind one may make another
 * one. */
static size_t drop_comments(char *text, size_t size)
{
    static const char open[] = "<!--";
    const size_t n = sizeof open - 1;
    size_t kept = 0;
    for (size_t at = 0; at < size;) {
        text[kept++] = text[at++];
        if (kept < n || memcmp(text + kept - n, open, n) != 0) continue;
        /* The mark's own dashes may be those of the closing one: "<!-->". */
        size_t end = at;
        for (size_t dashes = 2; end < size && !(dashes >= 2 && text[end] == '>'); end++)
            dashes = text[end] == '-' ? dashes + 1 : 0;
        if (end == size) { /* it is never closed */
            memmove(text + kept, text + at, size - at);
            return kept + size - at;
        }
        kept -= n;
        at = end + 1;
    }
    return kept;
}

static size_t drop_tags(char *text, size_t size)
{
    size_t kept = 0;
    for (size_t at = 0; at < size; at++) {
        const char *end = text[at] == '<' ? memchr(text + at, '>', size - at) : NULL;
        if (text[at] == '<' && end == NULL) {
            memmove(text + kept, text + at, size - at);
            return kept + size - at;
        }
        if (end == NULL)
            text[kept++] = text[at];
        else
            at = (size_t)(end - text);
    }
    return kept;
}

/* ---- character references ---------------------------------------------------------------------------------------- */

static const char *const latin[96] = {
    /* U+00A0 and so on */
    "nbsp",   "iexcl",  "cent",   "pound",  "curren", "yen",    "brvbar", "sect",   "uml",    "copy",   "ordf",
    "laquo",  "not",    "shy",    "reg",    "macr",   "deg",    "plusmn", "sup2",   "sup3",   "acute",  "micro",
    "para",   "middot", "cedil",  "sup1",   "ordm",   "raquo",  "frac14", "frac12", "frac34", "iquest", "Agrave",
    "Aacute", "Acirc",  "Atilde", "Auml",   "Aring",  "AElig",  "Ccedil", "Egrave", "Eacute", "Ecirc",  "Euml",
    "Igrave", "Iacute", "Icirc",  "Iuml",   "ETH",    "Ntilde", "Ograve", "Oacute", "Ocirc",  "Otilde", "Ouml",
    "times",  "Oslash", "Ugrave", "Uacute", "Ucirc",  "Uuml",   "Yacute", "THORN",  "szlig",  "agrave", "aacute",
    "acirc",  "atilde", "auml",   "aring",  "aelig",  "ccedil", "egrave", "eacute", "ecirc",  "euml",   "igrave",
    "iacute", "icirc",  "iuml",   "eth",    "ntilde", "ograve", "oacute", "ocirc",  "otilde", "ouml",   "divide",
    "oslash", "ugrave", "uacute", "ucirc",  "uuml",   "yacute", "thorn",  "yuml",
};
static const struct {
    const char *name;
    uint32_t c;
} others[] = {
    {"AMP", '&'}, {"amp", '&'},  {"COPY", 0xa9}, {"GT", '>'},   {"gt", '>'},     {"LT", '<'},
    {"lt", '<'},  {"QUOT", '"'}, {"quot", '"'},  {"REG", 0xae}, {"apos;", '\''},
};

/* The character that text [size] begins with the name of, the longest; *length: of the name. 0: none. */
static uint32_t named(const char *text, size_t size, size_t *length)
{
    uint32_t c = 0;
    *length = 0;
    for (size_t i = 0; i < 96 + sizeof others / sizeof others[0]; i++) {
        const char *name = i < 96 ? latin[i] : others[i - 96].name;
        size_t n = strlen(name);
        if (n <= *length || n > size || memcmp(text, name, n) != 0) continue;
        *length = n;
        c = i < 96 ? (uint32_t)(0xa0 + i) : others[i - 96].c;
    }
    return c;
}

/* What a number stands for: 0 is nothing. Windows' characters where others have controls, as browsers do. */
static uint32_t numbered(uint32_t c)
{
    static const uint16_t windows[32] = {0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021,
                                         0x2c6,  0x2030, 0x160,  0x2039, 0x152,  0x8d,   0x17d,  0x8f,
                                         0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                         0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};
    if (c == 0 || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff) return 0xfffd;
    if (c >= 0x80 && c < 0xa0) return windows[c - 0x80];
    bool is_control = c < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f';
    if (is_control || c == 0x7f || (c >= 0xfdd0 && c < 0xfdf0) || (c & 0xfffe) == 0xfffe) return 0;
    return c;
}

/* "#65;" behind an ampersand; returns how long it is, 0 if it is no number. */
static size_t read_number(const char *text, size_t size, uint32_t *c)
{
    bool is_hex = size > 1 && (text[1] | 0x20) == 'x';
    size_t at = is_hex ? 2 : 1, begin = at;
    uint32_t v = 0;
    for (; at < size; at++) {
        char low = (char)(text[at] | 0x20);
        uint32_t digit = text[at] >= '0' && text[at] <= '9'   ? (uint32_t)(text[at] - '0')
                         : is_hex && low >= 'a' && low <= 'f' ? (uint32_t)(low - 'a') + 10
                                                              : 99;
        if (digit == 99) break;
        v = v > 0x110000 ? v : v * (is_hex ? 16 : 10) + digit; /* beyond it all are one */
    }
    if (at == begin) return 0;
    *c = numbered(v);
    return at + (at < size && text[at] == ';');
}

/* How many bytes of text [size] a name can have: up to 32 characters, none of which ends it. */
static size_t name_size(const char *text, size_t size)
{
    size_t at = 0;
    for (size_t n = 0; n < 32 && at < size && (text[at] == '\0' || strchr("\t\n\f <&#;", text[at]) == NULL); n++) {
        uint32_t c;
        at += bt_utf8_decode(text + at, size - at, &c);
    }
    return at;
}

/* Writes what stands at text [size], behind an ampersand, and returns how much of it was read. */
static size_t put_reference(bt_jx *x, const char *text, size_t size)
{
    uint32_t c = 0;
    size_t n = size > 0 && text[0] == '#' ? read_number(text, size, &c) : 0;
    if (n > 0) {
        if (c != 0) bt_out_char(x, c, false);
        return n;
    }
    size_t end = name_size(text, size), length;
    bool is_closed = end > 0 && end < size && text[end] == ';';
    if (end > 0 && !bt_jx_charge(x, NAMES_WORK)) return end; /* every name is tried */
    c = end == 0 ? 0 : named(text, end + is_closed, &length);
    if (is_closed && length < end) {
        (void)bt_jx_fail(x, "striptags: the character's name \"&%.*s;\" is not supported", (int)end, text);
        return end;
    }
    bt_out_char(x, c != 0 ? c : '&', false);
    return c == 0 ? 0 : length + (is_closed && length == end);
}

/* ---- the filter -------------------------------------------------------------------------------------------------- */

/* Words with single blanks between them. */
static size_t join_words(char *text, size_t size)
{
    const bt_js s = {.data = text, .size = size};
    size_t kept = 0;
    bool is_due = false;
    for (size_t at = 0, n; at < size; at += n) {
        uint32_t c = 0;
        n = bt_utf8_decode(s.data + at, size - at, &c);
        if (bt_py_is_space(c)) {
            is_due = kept > 0;
            continue;
        }
        if (is_due) text[kept++] = ' '; /* there was at least this much white space */
        is_due = false;
        memmove(text + kept, text + at, n);
        kept += n;
    }
    return kept;
}

bt_jv bt_filter_striptags(bt_jx *x, bt_jv v, const bt_jargs *a)
{
    if (!bt_jargs_bind(x, a, "striptags", "", 0, NULL)) return bt_jv_of(JV_FAIL);
    v = bt_jv_str(x, v);
    if (bt_failed(v) || !bt_jx_charge_scan(x, v.s->size)) return bt_jv_of(JV_FAIL);
    char *text = bt_jx_alloc(x, v.s->size + 1, 1);
    if (text == NULL) return bt_jv_of(JV_FAIL);
    memcpy(text, v.s->data, v.s->size);
    size_t size = join_words(text, drop_tags(text, drop_comments(text, v.s->size))), begin = bt_out_begin(x);
    for (size_t at = 0; at < size && !x->failed;) {
        const char *mark = memchr(text + at, '&', size - at);
        size_t end = mark == NULL ? size : (size_t)(mark - text);
        bt_out_add(x, text + at, end - at, false);
        at = end;
        if (mark != NULL) at += 1 + put_reference(x, text + at + 1, size - at - 1);
    }
    bt_out_stain(x, begin, v.message);
    return bt_out_take(x, begin, v.message);
}
