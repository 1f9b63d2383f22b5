/*
 * Split patterns from Oniguruma's syntax to PCRE2's: a recursive-descent parser into a small tree, and a printer.
 *
 * Where the two differ, and what is written instead:
 *   \s \d \w   White_Space, Nd and Oniguruma's word characters, spelt out: PCRE2's \s takes U+180E as well, and its
 *              \w other characters.
 *   \p{Han}    a script in Oniguruma, script extensions in PCRE2: written \p{sc:Han} (U+3006 tells them apart).
 *   A&&[^B]    class intersection, which PCRE2 10.42 reads as two ampersands. Known where A consists of general
 *              categories: it becomes the negated class of all other categories and B. A lookahead would do too, but
 *              takes stack for every letter of a long run.
 *   (?:A|B)+   with single characters or classes as alternatives becomes [AB]+: the same matches, without a group to
 *              enter for every letter. K2-Horizon's letter rule needs this.
 *   {,n}       0 to n times; PCRE2 10.42 takes it literally.
 *   (?i:...)   ASCII only, and without the pairs that fold together into one character in Oniguruma (ss, ff, fi, fl,
 *              st); then both libraries agree, U+017F and U+212A included.
 * Refused by name, among others: anchors, \b, back references, nested classes and POSIX brackets, inline options,
 * possessive intervals (Ruby's {n,m}+ repeats the interval).
 *
 * The Unicode tables are PCRE2's (version 14 in 10.42): a character assigned since then is in no category here, and may
 * split otherwise than in a library with newer tables. Byte-level BPE still encodes it, and back to the same text.
 */
#include "text/pattern.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

#define PATTERN_BYTES_MAX 16384
#define GROUP_DEPTH_MAX   32
#define REPEAT_MAX        1000
#define REPEAT_NO_LIMIT   UINT32_MAX
#define NAME_BYTES_MAX    40
#define CODE_POINT_MAX    0x10ffffu
#define N_CATEGORIES      30

/* General categories by their major letter: the order is that of the bits below. */
static const char categories[N_CATEGORIES][3] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn",
};

/* White_Space, in ascending order. */
static const uint32_t white_space[][2] = {
    {0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
};
#define N_WHITE_SPACE (sizeof white_space / sizeof white_space[0])

typedef struct item { /* of a class: a range of characters, or a property */
    struct item *next;
    uint32_t low, high;
    uint32_t category_mask; /* of a general category; 0: a range or a script */
    bool complement;
    char property[NAME_BYTES_MAX + 4]; /* "Lu", "sc:Han"; "": a range */
} item;

typedef struct set {
    item *items;
    bool negated;
} set;

typedef enum node_kind { NODE_SET, NODE_SEQUENCE, NODE_ALTERNATIVES, NODE_REPEAT, NODE_GROUP } node_kind;

typedef struct node {
    node_kind kind;
    struct node *child, *next;
    set set;            /* SET */
    bool any;           /* SET: the dot */
    uint32_t min, max;  /* REPEAT */
    const char *suffix; /* REPEAT: "", "?" (lazy), "+" (possessive) */
    const char *open;   /* GROUP: "(?:", "(?=" ... */
} node;

typedef struct parser {
    const char *begin, *at, *end;
    bt_arena *arena;
    unsigned depth;
    bool fold; /* inside (?i:...) */
    bt_status status;
    bt_error *e;
} parser;

static node *parse_alternatives(parser *p);

/* ---- errors and small steps -------------------------------------------------------------------------------------- */

static void refuse(parser *p, const char *what)
{
    if (p->status != BT_OK) return;
    p->status = bt_fail(p->e, BT_ERR_UNSUPPORTED, "split pattern, byte %zu: %s", (size_t)(p->at - p->begin), what);
}

static void *make(parser *p, size_t size)
{
    void *made = p->status == BT_OK ? bt_arena_alloc(p->arena, 1, size) : NULL;
    if (made == NULL && p->status == BT_OK) {
        p->status = bt_fail(p->e, BT_ERR_MEMORY, "no memory for a split pattern");
    }
    return made;
}

static node *make_node(parser *p, node_kind kind)
{
    node *n = make(p, sizeof *n);
    if (n != NULL) n->kind = kind;
    return n;
}

static bool next_is(const parser *p, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, s, n) == 0;
}

static bool accept(parser *p, const char *s)
{
    if (!next_is(p, s)) return false;
    p->at += strlen(s);
    return true;
}

static bool is_letter(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static uint32_t next_char(parser *p)
{
    uint32_t c = 0;
    assert(p->at < p->end);
    size_t n = bt_utf8_decode(p->at, (size_t)(p->end - p->at), &c);
    assert(n > 0); /* checked as a whole before */
    p->at += n;
    return c;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

static void add_range(parser *p, set *s, uint32_t low, uint32_t high)
{
    item *made = make(p, sizeof *made);
    if (made == NULL) return;
    made->low = low;
    made->high = high;
    made->next = s->items;
    s->items = made;
}

static item *add_property(parser *p, set *s, const char *name)
{
    item *made = make(p, sizeof *made);
    if (made == NULL) return NULL;
    assert(strlen(name) < sizeof made->property);
    memcpy(made->property, name, strlen(name) + 1);
    for (unsigned i = 0; i < N_CATEGORIES; i++) {
        bool is_major = strlen(name) == 1 && name[0] == categories[i][0];
        if (is_major || strcmp(name, categories[i]) == 0) made->category_mask |= 1u << i;
    }
    made->next = s->items;
    s->items = made;
    return made;
}

/* The class that a letter after a backslash names; false if it names none. */
static bool add_shorthand(parser *p, set *s, char letter, bool in_class)
{
    uint32_t low = 0;
    switch (letter) {
    case 's':
        for (size_t i = 0; i < N_WHITE_SPACE; i++) add_range(p, s, white_space[i][0], white_space[i][1]);
        return true;
    case 'S': /* as ranges, so that it can stand in a class beside others */
        for (size_t i = 0; i < N_WHITE_SPACE; i++) {
            add_range(p, s, low, white_space[i][0] - 1);
            low = white_space[i][1] + 1;
        }
        add_range(p, s, low, CODE_POINT_MAX);
        return true;
    case 'd':
        (void)add_property(p, s, "Nd");
        return true;
    case 'w':
        (void)add_property(p, s, "Alphabetic");
        (void)add_property(p, s, "M");
        (void)add_property(p, s, "Nd");
        (void)add_property(p, s, "Pc");
        if (in_class) return true;
        add_range(p, s, 0xb2, 0xb3); /* outside of classes Oniguruma adds superscripts and fractions of Latin-1 */
        add_range(p, s, 0xb9, 0xb9);
        add_range(p, s, 0xbc, 0xbe);
        return true;
    default:
        return false;
    }
}

/* After "\p" or "\P": {Name} or {^Name}. A name of one or two letters is a general category, any other a script. */
static void parse_property(parser *p, set *s, bool complement)
{
    char name[NAME_BYTES_MAX + 4] = "sc:";
    size_t n = 3;
    if (!accept(p, "{")) {
        refuse(p, "\\p needs its name in braces");
        return;
    }
    if (accept(p, "^")) complement = !complement;
    while (p->at < p->end && (is_letter((unsigned char)*p->at) || *p->at == '_') && n < NAME_BYTES_MAX) {
        name[n++] = *p->at++;
    }
    if (n == 3 || !accept(p, "}")) {
        refuse(p, "\\p{...} that is neither a general category nor a script");
        return;
    }
    bool is_category = false;
    for (unsigned i = 0; i < N_CATEGORIES; i++) {
        is_category |= strcmp(name + 3, categories[i]) == 0 || (n == 4 && name[3] == categories[i][0]);
    }
    if (p->fold) refuse(p, "\\p inside (?i:...)");
    item *made = add_property(p, s, is_category ? name + 3 : name);
    if (made == NULL) return;
    made->complement = complement;
    if (complement) made->category_mask = 0;
}

static bool parse_hex(parser *p, size_t digits_min, size_t digits_max, uint32_t *c)
{
    size_t n = 0;
    *c = 0;
    while (p->at < p->end && n < digits_max) {
        char digit = *p->at;
        bool is_hex = is_letter((unsigned char)digit) && (digit | 0x20) <= 'f';
        if (!is_hex && (digit < '0' || digit > '9')) break;
        *c = *c << 4 | (uint32_t)(is_hex ? (digit | 0x20) - 'a' + 10 : digit - '0');
        p->at++;
        n++;
    }
    return n >= digits_min;
}

/* After a backslash: one character into *c (true), or a class into *s (false). On a fault p->status is set. */
static bool parse_escape(parser *p, set *s, bool in_class, uint32_t *c)
{
    static const char names[] = "nrtfvae", values[] = "\n\r\t\f\v\a\x1b";
    *c = 0;
    if (p->at == p->end) {
        refuse(p, "ends with a backslash");
        return true;
    }
    uint32_t letter = next_char(p);
    if (letter == 'p' || letter == 'P') {
        parse_property(p, s, letter == 'P');
        return false;
    }
    if (letter < 0x80 && add_shorthand(p, s, (char)letter, in_class)) {
        if (p->fold) refuse(p, "a class escape inside (?i:...)");
        return false;
    }
    const char *named = letter < 0x80 && is_letter(letter) ? strchr(names, (int)letter) : NULL;
    bool good = true;
    if (named != NULL) {
        *c = (uint32_t)values[named - names];
    } else if (letter == 'u') {
        good = parse_hex(p, 4, 4, c);
    } else if (letter == 'x' && accept(p, "{")) {
        good = parse_hex(p, 1, 8, c) && accept(p, "}");
    } else if (letter == 'x') {
        good = parse_hex(p, 2, 2, c) && *c < 0x80; /* beyond ASCII it is a byte of UTF-8 in Oniguruma */
    } else if (is_letter(letter) || (letter >= '0' && letter <= '9')) {
        good = false;
    } else {
        *c = letter;
    }
    if (!good || *c > CODE_POINT_MAX || (*c >= 0xd800 && *c <= 0xdfff)) refuse(p, "an escape this build does not know");
    return true;
}

/* One member of a class: a character into *c (true), or a class escape into *s (false). */
static bool parse_member(parser *p, set *s, uint32_t *c)
{
    if (next_is(p, "[")) refuse(p, "a class inside a class");
    if (next_is(p, "&&")) refuse(p, "a class intersection of a form this build does not know");
    if (p->status != BT_OK) return false;
    if (accept(p, "\\")) return parse_escape(p, s, true, c);
    *c = next_char(p);
    return true;
}

/* A&&[^B] with A of general categories: not (any other category, or B). p is behind the "&&". */
static void parse_intersection(parser *p, set *s)
{
    uint32_t mask = 0;
    for (const item *i = s->items; i != NULL; i = i->next) {
        if (i->category_mask == 0) refuse(p, "&& after something other than general categories");
        mask |= i->category_mask;
    }
    if (s->negated || s->items == NULL || !accept(p, "[^")) refuse(p, "&& of a form this build does not know");
    *s = (set){.negated = true};
    for (unsigned first = 0; first < N_CATEGORIES;) {
        unsigned end = first;
        bool all = true; /* of the categories with this major letter are to go: then the letter says it */
        while (end < N_CATEGORIES && categories[end][0] == categories[first][0]) all &= (mask >> end++ & 1) == 0;
        char major[2] = {categories[first][0], '\0'};
        if (all) (void)add_property(p, s, major);
        for (unsigned i = first; i < end && !all; i++) {
            if ((mask >> i & 1) == 0) (void)add_property(p, s, categories[i]);
        }
        first = end;
    }
    bool any = false;
    while (p->status == BT_OK && p->at < p->end && !next_is(p, "]")) {
        uint32_t c;
        if (parse_member(p, s, &c)) add_range(p, s, c, c);
        if (next_is(p, "-")) refuse(p, "a range after &&");
        any = true;
    }
    if (!any || !accept(p, "]") || !accept(p, "]")) refuse(p, "&& of a form this build does not know");
}

/* After '[': the whole class. */
static void parse_class(parser *p, set *s)
{
    s->negated = accept(p, "^");
    if (next_is(p, "]")) refuse(p, "a class that is empty, or begins with ']'");
    bool first = true;
    while (p->status == BT_OK && !next_is(p, "]")) {
        if (p->at == p->end) {
            refuse(p, "a class without its ']'");
            return;
        }
        if (accept(p, "&&")) {
            parse_intersection(p, s);
            return;
        }
        if (next_is(p, "-") && !first && !next_is(p, "-]")) refuse(p, "a '-' in a class that makes no range");
        uint32_t low, high;
        first = false;
        if (!parse_member(p, s, &low)) continue;
        high = low;
        if (next_is(p, "-") && !next_is(p, "-]")) {
            p->at++;
            if (p->at == p->end || !parse_member(p, s, &high) || high < low) refuse(p, "a range that is none");
        }
        if (p->fold && high >= 0x80) refuse(p, "a character beyond ASCII inside (?i:...)");
        add_range(p, s, low, high);
    }
    if (!accept(p, "]")) refuse(p, "a class without its ']'");
}

/* ---- structure --------------------------------------------------------------------------------------------------- */

/* After '(': the group up to its ')'. */
static node *parse_group(parser *p)
{
    /* clang-format off */
    static const struct { const char *written, *open; } kinds[] = {
        {"?:", "(?:"}, {"?>", "(?>"}, {"?=", "(?="}, {"?!", "(?!"}, {"?<=", "(?<="}, {"?<!", "(?<!"}, {"?i:", "(?i:"},
    };
    /* clang-format on */
    node *group = make_node(p, NODE_GROUP);
    if (group == NULL) return NULL;
    group->open = "(?:"; /* a plain "(" captures, which nothing here reads */
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!accept(p, kinds[i].written)) continue;
        group->open = kinds[i].open;
        break;
    }
    if (next_is(p, "?") || next_is(p, "*")) refuse(p, "a kind of group this build does not know");
    if (p->depth == GROUP_DEPTH_MAX) refuse(p, "groups nested too deep");
    if (p->status != BT_OK) return NULL;
    bool fold_outside = p->fold;
    p->fold |= strcmp(group->open, "(?i:") == 0;
    p->depth++;
    group->child = parse_alternatives(p);
    p->depth--;
    p->fold = fold_outside;
    if (!accept(p, ")")) refuse(p, "a group without its ')'");
    return group;
}

static node *parse_atom(parser *p)
{
    if (accept(p, "(")) return parse_group(p);
    node *n = make_node(p, NODE_SET);
    if (n == NULL) return NULL;
    uint32_t c;
    if (accept(p, "[")) {
        parse_class(p, &n->set);
        return n;
    }
    if (accept(p, ".")) {
        n->any = true;
        return n;
    }
    if (accept(p, "\\")) {
        if (next_is(p, "D") || next_is(p, "W")) { /* whole classes: their complement can be written as one */
            n->set.negated = true;
            (void)add_shorthand(p, &n->set, *p->at++ == 'D' ? 'd' : 'w', false);
            return n;
        }
        if (!parse_escape(p, &n->set, false, &c)) return n;
    } else {
        if (strchr("*+?{^$", *p->at) != NULL && *p->at != '\0') refuse(p, "an anchor, or a repeat of nothing");
        c = next_char(p);
    }
    if (p->fold && c >= 0x80) refuse(p, "a character beyond ASCII inside (?i:...)");
    add_range(p, &n->set, c, c);
    return n;
}

/* {n} {n,} {,m} {n,m} */
static void parse_interval(parser *p, node *repeat)
{
    uint64_t bounds[2] = {0, REPEAT_NO_LIMIT};
    size_t n_digits[2] = {0, 0};
    bool comma = false;
    while (p->at < p->end && !next_is(p, "}")) {
        if (!comma && accept(p, ",")) {
            comma = true;
            continue;
        }
        if (*p->at < '0' || *p->at > '9' || n_digits[comma] == 4) break;
        bounds[comma] = (n_digits[comma]++ == 0 ? 0 : bounds[comma] * 10) + (uint64_t)(*p->at++ - '0');
    }
    if (!comma) bounds[1] = bounds[0];
    bool named = n_digits[0] + n_digits[1] > 0;
    bool bounded = bounds[0] <= REPEAT_MAX && (bounds[1] <= REPEAT_MAX || n_digits[1] == 0) && bounds[0] <= bounds[1];
    if (!accept(p, "}") || !named || !bounded) refuse(p, "a '{' that begins no interval this build knows");
    if (next_is(p, "+") || (next_is(p, "?") && !comma))
        refuse(p, "a sign after {...} that Oniguruma reads differently");
    repeat->min = (uint32_t)bounds[0];
    repeat->max = (uint32_t)bounds[1];
    repeat->suffix = accept(p, "?") ? "?" : "";
}

static node *parse_term(parser *p)
{
    node *atom = parse_atom(p);
    if (p->status != BT_OK || p->at == p->end || strchr("*+?{", *p->at) == NULL || *p->at == '\0') return atom;
    if (p->fold) refuse(p, "a repeat inside (?i:...)");
    bool around = atom->kind == NODE_GROUP && strchr("=!<", atom->open[2]) != NULL;
    if (around) refuse(p, "a repeated lookaround");
    node *repeat = make_node(p, NODE_REPEAT);
    if (repeat == NULL) return NULL;
    repeat->child = atom;
    if (accept(p, "{")) {
        parse_interval(p, repeat);
    } else {
        char sign = *p->at++;
        repeat->min = sign == '+' ? 1 : 0;
        repeat->max = sign == '?' ? 1 : REPEAT_NO_LIMIT;
        repeat->suffix = accept(p, "?") ? "?" : accept(p, "+") ? "+" : "";
    }
    if (p->at < p->end && strchr("*+?{", *p->at) != NULL && *p->at != '\0') refuse(p, "a repeat of a repeat");
    return repeat;
}

/* The one ASCII letter that n matches, in lower case; 0: it matches anything else. */
static uint32_t lone_letter(const node *n)
{
    const item *i = n->kind == NODE_SET && !n->any && !n->set.negated ? n->set.items : NULL;
    bool lone = i != NULL && i->next == NULL && i->property[0] == '\0' && i->low == i->high && is_letter(i->low);
    return lone ? i->low | 0x20 : 0;
}

/* In Oniguruma (?i:ss) matches U+00DF too, (?i:fi) U+FB01, and so on; in PCRE2 they do not. */
static bool folds_together(uint32_t a, uint32_t b)
{
    return (a == 's' && (b == 's' || b == 't')) || (a == 'f' && (b == 'f' || b == 'i' || b == 'l'));
}

static node *parse_sequence(parser *p)
{
    node *sequence = make_node(p, NODE_SEQUENCE);
    if (sequence == NULL) return NULL;
    uint32_t before = 0;
    node **last = &sequence->child;
    while (p->status == BT_OK && p->at < p->end && !next_is(p, "|") && !next_is(p, ")")) {
        node *term = parse_term(p);
        if (p->status != BT_OK) return NULL;
        uint32_t letter = lone_letter(term);
        if (p->fold && folds_together(before, letter))
            refuse(p, "letters inside (?i:...) that fold into one character");
        before = letter;
        *last = term;
        last = &term->next;
    }
    return sequence;
}

/* A sequence of nothing but one plain class. */
static bool is_plain_class(const node *sequence)
{
    const node *n = sequence->child;
    return n != NULL && n->next == NULL && n->kind == NODE_SET && !n->any && !n->set.negated;
}

/* a|[bc]|\p{L} is [abc\p{L}]: each alternative is one character long, so their order cannot matter. */
static void unite_classes(node *alternatives)
{
    node *first = alternatives->child;
    for (const node *n = first; n != NULL; n = n->next) {
        if (!is_plain_class(n)) return;
    }
    for (node *n = first->next; n != NULL; n = n->next) {
        item *last = n->child->set.items;
        while (last->next != NULL) last = last->next;
        last->next = first->child->set.items;
        first->child->set.items = n->child->set.items;
    }
    first->next = NULL;
}

static node *parse_alternatives(parser *p)
{
    node *alternatives = make_node(p, NODE_ALTERNATIVES);
    if (alternatives == NULL) return NULL;
    node **last = &alternatives->child;
    do {
        *last = parse_sequence(p);
        if (p->status != BT_OK) return NULL;
        last = &(*last)->next;
    } while (accept(p, "|"));
    unite_classes(alternatives);
    return alternatives;
}

/* ---- writing it for PCRE2 ---------------------------------------------------------------------------------------- */

static void print_item(bt_text *out, const item *i)
{
    if (i->property[0] != '\0') {
        bt_text_printf(out, "\\%c{%s}", i->complement ? 'P' : 'p', i->property);
    } else if (i->low == i->high) {
        bt_text_printf(out, "\\x{%x}", i->low);
    } else {
        bt_text_printf(out, "\\x{%x}-\\x{%x}", i->low, i->high);
    }
}

static void print_set(bt_text *out, const set *s)
{
    assert(s->items != NULL);
    bool lone =
        !s->negated && s->items->next == NULL && (s->items->property[0] != '\0' || s->items->low == s->items->high);
    if (!lone) bt_text_puts(out, s->negated ? "[^" : "[");
    for (const item *i = s->items; i != NULL; i = i->next) print_item(out, i);
    if (!lone) bt_text_puts(out, "]");
}

static void print_repeat(bt_text *out, const node *n)
{
    if (n->max == REPEAT_NO_LIMIT && n->min <= 1) {
        bt_text_puts(out, n->min == 0 ? "*" : "+");
    } else if (n->max == REPEAT_NO_LIMIT) {
        bt_text_printf(out, "{%u,}", n->min);
    } else {
        bt_text_printf(out, "{%u,%u}", n->min, n->max);
    }
    bt_text_puts(out, n->suffix);
}

static void print_node(bt_text *out, const node *n)
{
    switch (n->kind) {
    case NODE_SET:
        if (n->any) {
            bt_text_puts(out, "[^\\x{a}]");
        } else {
            print_set(out, &n->set);
        }
        break;
    case NODE_SEQUENCE:
        for (const node *c = n->child; c != NULL; c = c->next) print_node(out, c);
        break;
    case NODE_ALTERNATIVES:
        for (const node *c = n->child; c != NULL; c = c->next) {
            print_node(out, c);
            if (c->next != NULL) bt_text_puts(out, "|");
        }
        break;
    case NODE_REPEAT:
        print_node(out, n->child);
        print_repeat(out, n);
        break;
    case NODE_GROUP: {
        const node *only = n->child->child; /* (?:[ab]) is [ab] */
        bool plain = strcmp(n->open, "(?:") == 0 && only->next == NULL && is_plain_class(only);
        if (!plain) bt_text_puts(out, n->open);
        print_node(out, n->child);
        if (!plain) bt_text_puts(out, ")");
        break;
    }
    }
}

bt_status bt_pattern_translate(const char *pattern, size_t n, bt_text *out, bt_error *e)
{
    parser p = {.begin = pattern, .at = pattern, .end = pattern + n, .e = e};
    if (n == 0) refuse(&p, "empty");
    if (n > PATTERN_BYTES_MAX) refuse(&p, "too long");
    if (bt_utf8_valid_prefix(pattern, n) != n) refuse(&p, "not UTF-8");
    p.arena = bt_arena_new();
    if (p.arena == NULL && p.status == BT_OK) p.status = bt_fail(e, BT_ERR_MEMORY, "no memory for a split pattern");
    const node *tree = p.status == BT_OK ? parse_alternatives(&p) : NULL;
    if (p.at != p.end) refuse(&p, "a ')' without its '('");
    if (p.status == BT_OK) print_node(out, tree);
    bt_arena_free(p.arena);
    if (p.status == BT_OK && out->failed) return bt_fail(e, BT_ERR_MEMORY, "no memory for a split pattern");
    return p.status;
}

void bt_pattern_quote(const char *text, size_t n, bt_text *out)
{
    assert(bt_utf8_valid_prefix(text, n) == n);
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        i += bt_utf8_decode(text + i, n - i, &c);
        bt_text_printf(out, "\\x{%x}", c);
    }
}
