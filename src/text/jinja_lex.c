/*
 * Tokens of a template, with Jinja2's rules of white space, which decide bytes of the prompt:
 *   - line ends become \n, and one at the very end of the source is dropped;
 *   - trim_blocks: a newline right after a block or comment tag belongs to the tag;
 *   - lstrip_blocks: white space before a block or comment tag belongs to it where nothing else is on the line so far;
 *   - "-" at either end of a tag takes all white space there, "+" turns the two rules above off.
 * "{% raw %}" is unlike the others: the newline after its opening tag stays.
 *
 * A closing "}}" or "%}" ends a tag only outside of brackets, so that "{{ {'a': {}}}}" is read as it is meant.
 */
#include "text/jinja_node.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "text/pytext.h"

#define SOURCE_BYTES_MAX ((size_t)4 << 20)
#define BRACKETS_MAX     256

typedef struct lexer {
    bt_jparser *p;
    const char *s; /* [size], normalised */
    size_t size, at;
    size_t placed; /* line and column belong to this place */
    uint32_t line, column;
    bool line_starting;          /* the last tag ended with a newline, or nothing came before */
    char brackets[BRACKETS_MAX]; /* closing ones that are due */
    size_t n_brackets;
    bt_jtok *tokens;
    size_t n, capacity;
} lexer;

/* ---- places and tokens ------------------------------------------------------------------------------------------- */

/* Line and column of `to`, which never lies before the last place asked for. */
static void place(lexer *l, size_t to)
{
    assert(to >= l->placed);
    for (; l->placed < to; l->placed++) {
        if (l->s[l->placed] == '\n') {
            l->line++;
            l->column = 1;
        } else if (((unsigned char)l->s[l->placed] & 0xc0) != 0x80) {
            l->column++;
        }
    }
}

static bool fail(lexer *l, size_t where, const char *what)
{
    place(l, where);
    return bt_jparse_fail_at(l->p, l->line, l->column, BT_ERR_FORMAT, "%s", what);
}

/* A new token at `where`; NULL after failing. */
static bt_jtok *add(lexer *l, bt_jtok_kind kind, size_t where)
{
    if (l->n == l->capacity) {
        size_t capacity = l->capacity == 0 ? 256 : l->capacity * 2;
        bt_jtok *more = bt_jparse_alloc(l->p, capacity, sizeof *more);
        if (more == NULL) return NULL;
        if (l->n > 0) memcpy(more, l->tokens, l->n * sizeof *more);
        l->tokens = more;
        l->capacity = capacity;
    }
    place(l, where);
    bt_jtok *t = &l->tokens[l->n++];
    *t = (bt_jtok){.kind = (uint8_t)kind, .line = l->line, .column = l->column};
    return t;
}

static bool add_text(lexer *l, bt_jtok_kind kind, size_t from, size_t to)
{
    if (kind == TK_DATA && from == to) return true;
    bt_jtok *t = add(l, kind, from);
    if (t == NULL) return false;
    t->text = l->s + from;
    t->size = to - from;
    return true;
}

/* ---- scanning helpers -------------------------------------------------------------------------------------------- */

static uint32_t char_at(const lexer *l, size_t at, size_t *length)
{
    uint32_t c = 0;
    *length = at < l->size ? bt_utf8_decode(l->s + at, l->size - at, &c) : 0;
    return c;
}

static size_t skip_space(const lexer *l, size_t at)
{
    size_t length;
    while (bt_py_is_space(char_at(l, at, &length)) && length > 0) at += length;
    return at;
}

static bool is_at(const lexer *l, size_t at, const char *text)
{
    size_t n = strlen(text);
    return at <= l->size && l->size - at >= n && memcmp(l->s + at, text, n) == 0;
}

/* End of the text [from, to) without the white space at its end. */
static size_t strip_end(const lexer *l, size_t from, size_t to)
{
    while (to > from) {
        size_t start = to - 1, length;
        while (start > from && ((unsigned char)l->s[start] & 0xc0) == 0x80) start--;
        if (!bt_py_is_space(char_at(l, start, &length))) break;
        to = start;
    }
    return to;
}

/* The end of the text [from, to) before a block or comment tag under lstrip_blocks. */
static size_t strip_line_start(const lexer *l, size_t from, size_t to)
{
    size_t start = to;
    while (start > from && l->s[start - 1] != '\n') start--;
    if (start == from && !l->line_starting) return to;
    return skip_space(l, start) >= to ? start : to;
}

static bool add_data(lexer *l, size_t from, size_t to, char sign, bool variable)
{
    size_t end = to;
    if (sign == '-') {
        end = strip_end(l, from, to);
    } else if (sign != '+' && !variable) {
        end = strip_line_start(l, from, to);
    }
    return add_text(l, TK_DATA, from, end);
}

/* Past the closing mark of a tag at `at` ("%}" with its signs), or 0 if there is none. */
static size_t match_end(const lexer *l, size_t at, const char *mark, bool plus_allowed, bool trim)
{
    bool minus = is_at(l, at, "-"), plus = plus_allowed && is_at(l, at, "+");
    size_t to = at + (minus || plus);
    if (!is_at(l, to, mark)) return 0;
    to += strlen(mark);
    if (minus) return skip_space(l, to);
    if (!plus && trim && to < l->size && l->s[to] == '\n') to++;
    return to;
}

static char sign_at(const lexer *l, size_t at)
{
    return is_at(l, at, "-") ? '-' : is_at(l, at, "+") ? '+' : '\0';
}

/* Past "{% WORD %}" at `at`, 0 if it is something else. */
static size_t match_word_tag(const lexer *l, size_t at, const char *word, bool opening)
{
    if (!is_at(l, at, "{%")) return 0;
    size_t to = skip_space(l, at + 2 + (sign_at(l, at + 2) != '\0'));
    if (!is_at(l, to, word)) return 0;
    return match_end(l, skip_space(l, to + strlen(word)), "%}", !opening, !opening);
}

static void moved_to(lexer *l, size_t to)
{
    assert(to > l->at);
    l->at = to;
    l->line_starting = l->s[to - 1] == '\n';
}

/* ---- inside tags ------------------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Past digits with single underscores between them. */
static size_t skip_digits(const lexer *l, size_t at)
{
    while (at < l->size && (is_digit(l->s[at]) || (l->s[at] == '_' && at + 1 < l->size && is_digit(l->s[at + 1]) &&
                                                   is_digit(l->s[at - 1])))) {
        at++;
    }
    return at;
}

/* Past a float at `at`, 0 if there is none: it needs a fraction or an exponent. */
static size_t match_float(const lexer *l, size_t at)
{
    if (at > 0 && l->s[at - 1] == '.') return 0; /* x.0.1 */
    size_t whole = skip_digits(l, at), to = whole;
    if (to + 1 < l->size && l->s[to] == '.' && is_digit(l->s[to + 1])) to = skip_digits(l, to + 1);
    if (to < l->size && (l->s[to] | 0x20) == 'e') {
        size_t digits = to + 1 + (to + 1 < l->size && (l->s[to + 1] == '-' || l->s[to + 1] == '+'));
        if (digits < l->size && is_digit(l->s[digits])) return skip_digits(l, digits);
    }
    return to > whole ? to : 0;
}

static bool is_digit_of(char c, unsigned base)
{
    if (base == 16 && (c | 0x20) >= 'a' && (c | 0x20) <= 'f') return true;
    return is_digit(c) && (unsigned)(c - '0') < base;
}

static size_t match_integer(const lexer *l, size_t at, unsigned *base)
{
    char letter = at + 1 < l->size && l->s[at] == '0' ? (char)(l->s[at + 1] | 0x20) : '\0';
    *base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    size_t to = *base == 10 ? at : at + 2, start = to;
    bool zeros = *base == 10 && l->s[at] == '0'; /* "007" is the token 00 and the token 7, hence an error */
    for (;;) {
        size_t digit = to + (to < l->size && l->s[to] == '_' && (to > start || *base != 10));
        if (digit >= l->size || !is_digit_of(l->s[digit], *base) || (zeros && l->s[digit] != '0')) break;
        to = digit + 1;
    }
    if (to > start) return to;
    *base = 10;
    return at + 1; /* "0x": the token 0, then a name */
}

/* An integer beyond 64 bits: its digits, without underscores. A decimal literal has no leading zeros. */
static bool keep_digits(lexer *l, bt_jtok *t, const char *text, size_t size)
{
    char *digits = bt_jparse_alloc(l->p, size + 1, 1);
    bt_js *s = bt_jparse_alloc(l->p, 1, sizeof *s);
    if (digits == NULL || s == NULL) return false;
    for (size_t i = 0; i < size; i++)
        if (text[i] != '_') digits[s->size++] = text[i];
    s->data = digits;
    t->number = bt_jv_string(s);
    t->number.kind = JV_BIG;
    return true;
}

static bool lex_number(lexer *l)
{
    size_t from = l->at, to = match_float(l, from);
    bool floating = to != 0;
    unsigned base = 10;
    if (!floating) to = match_integer(l, from, &base);
    bt_jtok *t = add(l, floating ? TK_FLOAT : TK_INTEGER, from);
    if (t == NULL) return false;
    if (floating) {
        double v = 0;
        if (!bt_py_parse_float(l->s + from, to - from, &v)) return fail(l, from, "a number that cannot be read");
        t->number = bt_jv_float(v, false);
    } else {
        int64_t v = 0;
        size_t prefix = base == 10 ? 0 : 2;
        size_t start = from + prefix + (prefix > 0 && l->s[from + prefix] == '_');
        t->number = bt_jv_int(v, false);
        int read = bt_py_parse_int(l->s + start, to - start, base, &v);
        if (read != 1 && (base != 10 || !keep_digits(l, t, l->s + start, to - start)))
            return fail(l, from, "an integer beyond 64 bits, which must be written in decimal digits");
        if (read == 1) t->number = bt_jv_int(v, false);
    }
    l->at = to;
    return true;
}

static bool is_ascii_word(char c)
{
    return c == '_' || is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

/* A name; *matched says whether there was one. */
static bool lex_name(lexer *l, bool *matched)
{
    size_t to = l->at, length = 1;
    for (; to < l->size; to += length) {
        length = 1;
        if ((unsigned char)l->s[to] < 0x80 ? !is_ascii_word(l->s[to]) : !bt_py_is_word(char_at(l, to, &length))) break;
    }
    *matched = to > l->at;
    if (!*matched) return true;
    uint32_t first = char_at(l, l->at, &length);
    if (bt_py_is_numeric(first)) return fail(l, l->at, "an invalid character in a name");
    if (!add_text(l, TK_NAME, l->at, to)) return false;
    l->at = to;
    return true;
}

static bool lex_operator(lexer *l)
{
    static const struct {
        char text[3];
        uint8_t op;
    } pairs[] = {{"**", OP_POW}, {"//", OP_FLOORDIV}, {"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!is_at(l, l->at, pairs[i].text)) continue;
        bt_jtok *t = add(l, TK_OPERATOR, l->at);
        if (t == NULL) return false;
        t->op = pairs[i].op;
        l->at += 2;
        return true;
    }
    char c = l->s[l->at];
    if (c == '\0' || strchr("+-*/%~[](){}<>=.:|,;", c) == NULL) {
        place(l, l->at);
        size_t length;
        uint32_t code = char_at(l, l->at, &length);
        return bt_jparse_fail_at(l->p, l->line, l->column, BT_ERR_FORMAT, "unexpected character '%.*s' (U+%04X)",
                                 (int)length, l->s + l->at, (unsigned)code);
    }
    if (strchr("([{", c) != NULL) {
        if (l->n_brackets == BRACKETS_MAX) return fail(l, l->at, "brackets are nested too deeply");
        l->brackets[l->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c) != NULL) {
        if (l->n_brackets == 0 || l->brackets[l->n_brackets - 1] != c) {
            char what[] = "unexpected '?'";
            what[12] = c;
            return fail(l, l->at, what);
        }
        l->n_brackets--;
    }
    bt_jtok *t = add(l, TK_OPERATOR, l->at);
    if (t == NULL) return false;
    t->op = (uint8_t)c;
    l->at++;
    return true;
}

/* ---- string literals --------------------------------------------------------------------------------------------- */

static bool read_hex(const char *s, size_t n, size_t digits, uint32_t *v)
{
    *v = 0;
    if (n < digits) return false;
    for (size_t i = 0; i < digits; i++) {
        if (!is_digit_of(s[i], 16)) return false;
        *v = *v * 16 + (uint32_t)(is_digit(s[i]) ? s[i] - '0' : (s[i] | 0x20) - 'a' + 10);
    }
    return true;
}

/* Decodes the escape after the backslash at s [n]; writes to out, at most 12 bytes. Returns how many bytes of s it
 * took, 0 if the escape is malformed. Python knows these; it keeps the backslash of any other. */
static size_t decode_escape(const char *s, size_t n, char *out, size_t *size)
{
    static const char names[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *named = s[0] == '\0' ? NULL : strchr(names, s[0]);
    uint32_t c = 0;
    size_t used = 0;
    *size = 0;
    if (s[0] == '\n') return 1;
    if (named != NULL) {
        out[(*size)++] = values[named - names];
        return 1;
    }
    if (s[0] == 'N') return 0; /* \N{NAME}: no table of names here */
    if (s[0] == 'x' || s[0] == 'u' || s[0] == 'U') {
        size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : 8;
        if (!read_hex(s + 1, n - 1, digits, &c)) return 0;
        used = 1 + digits;
    } else {
        while (used < 3 && used < n && s[used] >= '0' && s[used] <= '7') c = c * 8 + (uint32_t)(s[used++] - '0');
    }
    if (used > 0) {
        if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
        *size = bt_utf8_encode(c, out);
        return used;
    }
    out[(*size)++] = '\\';
    if ((unsigned char)s[0] < 0x80) {
        out[(*size)++] = s[0];
        return 1;
    }
    /* Jinja2 escapes what is not ASCII before it decodes, so a backslash before it meets the escape's own. */
    static const char hex[] = "0123456789abcdef";
    size_t length = bt_utf8_decode(s, n, &c);
    size_t digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    out[(*size)++] = digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
    for (size_t i = digits; i-- > 0;) out[(*size)++] = hex[c >> (4 * i) & 15];
    return length;
}

/* At a quote. *matched is false if the string has no end. */
static bool lex_string(lexer *l, bool *matched)
{
    char quote = l->s[l->at];
    size_t from = l->at + 1, to = from;
    while (to < l->size && l->s[to] != quote) to += l->s[to] == '\\' ? 2 : 1;
    *matched = to < l->size;
    if (!*matched) return fail(l, l->at, "a string without an end");
    bt_jtok *t = add(l, TK_STRING, l->at);
    if (t == NULL) return false;
    t->text = l->s + from;
    t->size = to - from;
    if (memchr(l->s + from, '\\', to - from) != NULL) {
        /* The longest text comes from a backslash and four bytes: "\U0001f600". */
        char *text = bt_jparse_alloc(l->p, to - from + 1, 3);
        if (text == NULL) return false;
        size_t n = 0;
        for (size_t i = from; i < to;) {
            if (l->s[i] != '\\') {
                text[n++] = l->s[i++];
                continue;
            }
            size_t size, used = decode_escape(l->s + i + 1, to - i - 1, text + n, &size);
            if (used == 0) return fail(l, i, "an escape that cannot be decoded");
            n += size;
            i += 1 + used;
        }
        t->text = text;
        t->size = n;
    }
    l->at = to + 1;
    return true;
}

/* ---- the template ------------------------------------------------------------------------------------------------ */

/* From the opening mark of a tag, which lies at l->at, to past its closing mark. */
static bool lex_tag(lexer *l, bool variable)
{
    bt_jtok_kind begin = variable ? TK_VARIABLE_BEGIN : TK_BLOCK_BEGIN, end = begin + 1;
    if (add(l, begin, l->at) == NULL) return false;
    l->at += sign_at(l, l->at + 2) != '\0' ? 3 : 2;
    l->n_brackets = 0;
    for (;;) {
        l->at = skip_space(l, l->at);
        size_t closed = l->n_brackets > 0 ? 0 : match_end(l, l->at, variable ? "}}" : "%}", !variable, !variable);
        if (closed != 0) {
            if (add(l, end, l->at) == NULL) return false;
            moved_to(l, closed);
            return true;
        }
        if (l->at >= l->size) return true; /* the parser will miss the end */
        char c = l->s[l->at];
        bool matched = true;
        if (is_digit(c)) {
            if (!lex_number(l)) return false;
        } else if (c == '\'' || c == '"') {
            if (!lex_string(l, &matched)) return false;
        } else {
            if (!lex_name(l, &matched)) return false;
            if (!matched && !lex_operator(l)) return false;
        }
    }
}

static bool lex_comment(lexer *l)
{
    for (size_t at = l->at + 2 + (sign_at(l, l->at + 2) != '\0'); at < l->size; at++) {
        size_t closed = match_end(l, at, "#}", true, true);
        if (closed == 0) continue;
        moved_to(l, closed);
        return true;
    }
    return fail(l, l->at, "a comment without an end");
}

/* l->at is past the opening tag, which lies at `opened`: no place beyond it was asked for yet. */
static bool lex_raw(lexer *l, size_t opened)
{
    for (size_t at = l->at; at < l->size; at++) {
        size_t closed = match_word_tag(l, at, "endraw", false);
        if (closed == 0) continue;
        if (!add_data(l, l->at, at, sign_at(l, at + 2), false)) return false;
        moved_to(l, closed);
        return true;
    }
    return fail(l, opened, "a raw block without an end");
}

/* The next opening mark at or after l->at; size if there is none. */
static size_t find_tag(const lexer *l)
{
    for (size_t at = l->at; at + 1 < l->size; at++) {
        const char *brace = memchr(l->s + at, '{', l->size - at - 1);
        if (brace == NULL) break;
        at = (size_t)(brace - l->s);
        if (brace[1] == '%' || brace[1] == '{' || brace[1] == '#') return at;
    }
    return l->size;
}

static bool lex_all(lexer *l)
{
    while (l->at < l->size) {
        size_t tag = find_tag(l);
        if (tag == l->size) {
            if (!add_text(l, TK_DATA, l->at, l->size)) return false;
            break;
        }
        char mark = l->s[tag + 1];
        if (!add_data(l, l->at, tag, sign_at(l, tag + 2), mark == '{')) return false;
        l->at = tag;
        size_t raw = match_word_tag(l, tag, "raw", true);
        bool good;
        if (raw != 0) {
            moved_to(l, raw);
            good = lex_raw(l, tag);
        } else {
            good = mark == '#' ? lex_comment(l) : lex_tag(l, mark == '{');
        }
        if (!good) return false;
    }
    return add(l, TK_EOF, l->size) != NULL;
}

/* Line ends as \n, without the one at the end of the source. */
static char *normalise(bt_jparser *p, const char *source, size_t size, size_t *n)
{
    char *s = bt_jparse_alloc(p, size + 1, 1);
    if (s == NULL) return NULL;
    *n = 0;
    for (size_t i = 0; i < size; i++) {
        s[(*n)++] = source[i] == '\r' ? '\n' : source[i];
        if (source[i] == '\r' && i + 1 < size && source[i + 1] == '\n') i++;
    }
    if (*n > 0 && s[*n - 1] == '\n') (*n)--;
    return s;
}

const bt_jtok *bt_jinja_lex(bt_jparser *p, const char *source, size_t size)
{
    lexer l = {.p = p, .line = 1, .column = 1, .line_starting = true};
    if (size > SOURCE_BYTES_MAX) {
        (void)bt_jparse_fail_at(p, 0, 0, BT_ERR_FORMAT, "the template is larger than %zu bytes", SOURCE_BYTES_MAX);
        return NULL;
    }
    l.s = source;
    l.size = bt_utf8_valid_prefix(source, size);
    if (l.size < size) {
        (void)fail(&l, l.size, "bytes that are not UTF-8");
        return NULL;
    }
    l.s = normalise(p, source, size, &l.size);
    if (l.s == NULL || !lex_all(&l)) return NULL;
    return l.tokens;
}
