/*
 * Kimi K3's answers: sections, as its prompts have them. A tag is made of marks: <|open|> or <|close|>, a name, for
 * opening ones attributes, <|sep|>.
 *
 *   What is a tag is decided by its form alone, at the first byte that breaks it: then its mark stands alone and the
 *   rest is text. So little is ever held back, and no byte is read more than twice. A <|sep|> that another mark stands
 *   in place of is taken as said; a name that nobody knows makes a tag too, which means nothing.
 *
 *   Sections need not be closed: what opens the next one, or ends the message, closes those before. Models leave out
 *   closers, and say the opener that the prompt ended with again. Unlike in other families a block of calls ends
 *   reasoning for good, since nothing can quote one there.
 *
 *   Bodies are not escaped. Inside an argument only the closers of what it lies in count, all else is its text.
 *
 * Marks count by their text, whichever tokens spelled them; content never holds one.
 */
#include <assert.h>
#include <string.h>

#include "text/output.h"
#include "text/output_state.h"

#define TAG_BYTES_MAX  ((size_t)64 << 10) /* longer ones are text */
#define NAME_BYTES_MAX 64

typedef enum tag_name { NAME_OTHER, MESSAGE, THINK, RESPONSE, TOOLS, CALL, ARGUMENT, JSON } tag_name;

typedef struct k3_tag {
    bool is_open;
    tag_name name;
    size_t begin, end; /* in the output */
    bt_chars inside;   /* between its marks */
} k3_tag;

/* ---- tags -------------------------------------------------------------------------------------------------------- */

enum { /* where in a tag the next byte stands */
       PART_NAME,
       PART_KEY,   /* of an attribute, behind its space */
       PART_QUOTE, /* behind its '=' */
       PART_VALUE,
       PART_NEXT, /* behind a value */
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* The part behind byte c, -1 if it breaks the tag. `size`: how long the part is so far. */
static int next_part(int part, size_t size, char c, bool is_open)
{
    switch (part) {
    case PART_NAME:
        if (is_word(c)) return size < NAME_BYTES_MAX ? PART_NAME : -1;
        return c == ' ' && size > 0 && is_open ? PART_KEY : -1;
    case PART_KEY:
        if (is_word(c)) return size < NAME_BYTES_MAX ? PART_KEY : -1;
        return c == '=' && size > 0 ? PART_QUOTE : -1;
    case PART_QUOTE:
        return c == '"' ? PART_VALUE : -1;
    case PART_VALUE:
        return c == '"' ? PART_NEXT : PART_VALUE;
    default:
        return c == ' ' ? PART_KEY : -1;
    }
}

static void start_tag(bt_reply *r, size_t begin, size_t inside)
{
    if (r->tag_at != 0 && r->tag_begin == begin) return; /* it is being read */
    r->tag_begin = begin;
    r->tag_at = r->tag_part_at = inside;
    r->tag_part = PART_NAME;
}

/* Reads on in the tag whose first mark is [begin, inside). A tag: *end is behind it, *body_end where its last mark
 * begins. */
static bt_found scan_tag(bt_reply *r, size_t begin, size_t inside, bool is_open, size_t *body_end, size_t *end)
{
    const char *text = r->output.data;
    start_tag(r, begin, inside);
    for (; r->tag_at < r->output.size; r->tag_at++) {
        const size_t at = r->tag_at;
        bt_tag_kind kind;
        size_t size;
        r->n_steps++;
        if (at - begin > TAG_BYTES_MAX) return BT_FOUND_NONE;
        if (text[at] == '<') {
            r->n_steps += NAME_BYTES_MAX;
            bt_found mark = bt_find_tag(r->grammar, text + at, r->output.size - at, &kind, &size);
            bool is_whole = r->tag_part == PART_NEXT || (r->tag_part == PART_NAME && at > inside);
            if (mark == BT_FOUND_PART) return BT_FOUND_PART;
            *body_end = at;
            *end = mark == BT_FOUND_TAG && kind == BT_TAG_MARK_END ? at + size : at;
            if (mark == BT_FOUND_TAG) return is_whole ? BT_FOUND_TAG : BT_FOUND_NONE;
        }
        int part = next_part(r->tag_part, at - r->tag_part_at, text[at], is_open);
        if (part < 0) return BT_FOUND_NONE;
        if (part != r->tag_part) r->tag_part_at = at + 1;
        r->tag_part = part;
    }
    return BT_FOUND_PART;
}

static tag_name name_of(bt_chars inside)
{
    static const char *const names[] = {
        [MESSAGE] = "message", [THINK] = "think",       [RESPONSE] = "response", [TOOLS] = "tools",
        [CALL] = "call",       [ARGUMENT] = "argument", [JSON] = "json"};
    const char *space = inside.size == 0 ? NULL : memchr(inside.text, ' ', inside.size);
    bt_chars name = {inside.text, space == NULL ? inside.size : (size_t)(space - inside.text)};
    for (size_t i = MESSAGE; i <= JSON; i++) {
        if (bt_chars_are(name, names[i])) return (tag_name)i;
    }
    return NAME_OTHER;
}

/* The value of an attribute, as it is written; text NULL: there is none. */
static bt_chars attribute(bt_reply *r, const k3_tag *t, const char *key)
{
    const char *at = t->inside.text, *end = at + t->inside.size;
    const size_t n = strlen(key);
    r->n_steps += t->inside.size;
    while ((at = memchr(at, ' ', (size_t)(end - at))) != NULL) { /* no space but before a key lies outside a value */
        const char *name = at + 1, *value = memchr(name, '"', (size_t)(end - name));
        assert(value != NULL);
        const char *quote = memchr(value + 1, '"', (size_t)(end - value - 1));
        assert(quote != NULL);
        if ((size_t)(value - name) == n + 1 && memcmp(name, key, n) == 0)
            return (bt_chars){value + 1, (size_t)(quote - value - 1)};
        at = quote;
    }
    return (bt_chars){NULL, 0};
}

/* Appends a value with its quotes and ampersands; what is behind an ampersand's entity is read no second time. */
static void unescape(bt_text *out, bt_chars value)
{
    static const char quote[] = "&quot;", ampersand[] = "&amp;";
    bt_text_puts(out, "");
    for (size_t i = 0; i < value.size;) {
        const char *at = value.text + i;
        const size_t left = value.size - i;
        if (left >= sizeof quote - 1 && memcmp(at, quote, sizeof quote - 1) == 0) {
            bt_text_puts(out, "\"");
            i += sizeof quote - 1;
        } else if (left >= sizeof ampersand - 1 && memcmp(at, ampersand, sizeof ampersand - 1) == 0) {
            bt_text_puts(out, "&");
            i += sizeof ampersand - 1;
        } else {
            bt_text_add(out, at, 1);
            i++;
        }
    }
}

/* The unescaped value of an attribute, in r->argument; false: there is none, or it is empty. */
static bool read_attribute(bt_reply *r, const k3_tag *t, const char *key)
{
    bt_chars value = attribute(r, t, key);
    r->argument.size = 0;
    if (value.text == NULL || value.size == 0) return false;
    unescape(&r->argument, value);
    r->failed |= !bt_text_ok(&r->argument);
    return !r->failed;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void open_call(bt_reply *r, const k3_tag *t)
{
    assert(r->given == t->begin);
    bt_reply_open_body(r, t->end);
    if (read_attribute(r, t, "tool")) {
        bt_reply_begin_call(r, (bt_chars){r->argument.data, r->argument.size});
    } else {
        r->state = BT_REPLY_SKIPS; /* a call of nothing */
    }
}

/* Ends the call at a tag that is not its own; the tag is read again behind it. */
static void break_call(bt_reply *r, size_t at)
{
    if (r->is_begun) {
        bt_reply_break_call(r, at);
        return;
    }
    bt_reply_tell_raw(r, at);
    r->state = BT_REPLY_BETWEEN;
    r->is_junk = false;
    r->at = at;
}

/* The type that the tag names decides; without one the tool's schema does. */
static void choose_rule(bt_reply *r, const k3_tag *t, bt_chars key)
{
    bt_chars type = attribute(r, t, "type");
    r->has_type = type.text != NULL && type.size > 0;
    if (!r->has_type) {
        r->rule = bt_value_rule_for(r->parameters, key, (bt_chars){NULL, 0}, &r->types);
    } else {
        r->rule = bt_chars_are(type, "string") ? BT_VALUE_RAW : BT_VALUE_JSON;
    }
}

static void open_argument(bt_reply *r, const k3_tag *t)
{
    const size_t from = r->made.size;
    r->state = BT_REPLY_SKIPS;
    if (!read_attribute(r, t, "key")) return;
    bt_text_puts(&r->made, r->has_arguments ? ", \"" : "{\"");
    const size_t key_at = r->made.size;
    bt_value_escape(&r->made, r->argument.data, r->argument.size);
    r->failed |= !bt_text_ok(&r->made);
    if (r->failed) return;
    if (!bt_reply_add_key(r, &r->made, key_at, r->made.size - key_at)) { /* it came before */
        r->made.size = from;
        return;
    }
    choose_rule(r, t, (bt_chars){r->argument.data, r->argument.size});
    bt_text_puts(&r->made, r->rule == BT_VALUE_RAW ? "\": \"" : "\": ");
    bt_reply_tell_arguments(r, from);
    r->has_arguments = true;
    r->state = BT_REPLY_VALUE;
    r->part_at = t->end;
}

/* A value of a named type that is not string: JSON, whatever its type, else the text as it is. */
static void write_value(bt_reply *r, bt_chars text)
{
    const bt_json_node *node = NULL;
    bt_arena *a = bt_arena_new();
    bt_chars trimmed = bt_value_trim(text);
    bt_status st = a == NULL ? BT_ERR_MEMORY : bt_json_parse(a, trimmed.text, trimmed.size, 0, &node, NULL);
    r->failed |= st == BT_ERR_MEMORY;
    if (st == BT_OK) {
        bt_text_add(&r->made, trimmed.text, trimmed.size);
    } else {
        bt_text_json_string(&r->made, text.text, text.size);
    }
    bt_arena_free(a);
}

static void close_argument(bt_reply *r, size_t end)
{
    const size_t from = r->made.size;
    const bt_chars text = {r->output.data + r->part_at, end - r->part_at};
    if (r->rule == BT_VALUE_RAW) {
        bt_text_puts(&r->made, "\"");
    } else if (r->has_type) {
        write_value(r, text);
    } else {
        bt_value_write(r->rule, r->types, text, &r->made);
    }
    bt_reply_tell_arguments(r, from);
    r->state = BT_REPLY_VALUE_DONE;
}

/* Text inside a body, tags that mean nothing there included. */
static void body_text(bt_reply *r, size_t at, size_t end)
{
    const size_t from = r->made.size;
    switch (r->state) {
    case BT_REPLY_VALUE:
        if (r->rule != BT_VALUE_RAW) return;
        bt_value_escape(&r->made, r->output.data + at, end - at);
        bt_reply_tell_arguments(r, from);
        return;
    case BT_REPLY_OBJECT:
        if (!bt_reply_object_text(r, at, end)) r->state = BT_REPLY_SKIPS;
        return;
    case BT_REPLY_SKIPS:
        return;
    default: /* between arguments there is nothing */
        while (at < end && bt_value_is_space(r->output.data[at])) at++;
        if (at < end) break_call(r, at);
    }
}

static bool closes_call(const k3_tag *t)
{
    return !t->is_open && (t->name == CALL || t->name == TOOLS || t->name == MESSAGE);
}

/* In the body of an argument or of a JSON block; `own`: the name of what it is the body of. */
static void tag_in_body(bt_reply *r, const k3_tag *t, tag_name own)
{
    if (closes_call(t)) {
        break_call(r, t->begin);
    } else if (t->is_open || t->name != own) {
        body_text(r, t->begin, t->end);
    } else if (own == ARGUMENT) {
        close_argument(r, t->begin);
    } else {
        r->state = bt_reply_close_object(r) ? BT_REPLY_JSON_DONE : BT_REPLY_SKIPS;
    }
}

static void tag_between_arguments(bt_reply *r, const k3_tag *t)
{
    const bt_reply_state state = r->state;
    if (!t->is_open && t->name == CALL) {
        if (state != BT_REPLY_JSON_DONE) bt_reply_close_arguments(r);
        bt_reply_finish_call(r, t->end);
        r->is_junk = false;
    } else if (t->is_open && t->name == ARGUMENT && state != BT_REPLY_JSON_DONE) {
        open_argument(r, t);
    } else if (t->is_open && t->name == JSON && state == BT_REPLY_BODY) {
        bt_reply_open_object(r);
    } else {
        break_call(r, t->begin);
    }
}

static void tag_in_call(bt_reply *r, const k3_tag *t)
{
    switch (r->state) {
    case BT_REPLY_VALUE:
        tag_in_body(r, t, ARGUMENT);
        break;
    case BT_REPLY_OBJECT:
        tag_in_body(r, t, JSON);
        break;
    case BT_REPLY_SKIPS:
        if (closes_call(t) || (t->is_open && t->name == CALL)) break_call(r, t->begin);
        break;
    default:
        tag_between_arguments(r, t);
    }
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static void go(bt_reply *r, bt_reply_state state, size_t end)
{
    r->is_unanswered |= state == BT_REPLY_ENDED && r->state == BT_REPLY_REASONS;
    bt_reply_tell_raw(r, end);
    r->state = state;
    r->is_junk = false;
}

/* A tag that opens a section, or ends the message, wherever it stands. */
static bool moves(bt_reply *r, const k3_tag *t)
{
    if (t->name == MESSAGE) {
        go(r, BT_REPLY_ENDED, t->end);
    } else if (t->is_open && t->name == RESPONSE) {
        go(r, BT_REPLY_ANSWERS, t->end);
    } else if (t->is_open && t->name == TOOLS) {
        go(r, r->calls_off ? BT_REPLY_OUTSIDE : BT_REPLY_BETWEEN, t->end);
    } else {
        return false;
    }
    return true;
}

static void tag_in_reasoning(bt_reply *r, const k3_tag *t)
{
    if (moves(r, t)) return;
    if (!t->is_open && t->name == THINK) {
        go(r, BT_REPLY_OUTSIDE, t->end);
    } else {
        bt_reply_tell_text(r, BT_REPLY_REASONING, t->end); /* a model may reason about tags */
    }
}

static void tag_in_answer(bt_reply *r, const k3_tag *t)
{
    if (moves(r, t)) return;
    go(r, !t->is_open && t->name == RESPONSE ? BT_REPLY_OUTSIDE : BT_REPLY_ANSWERS, t->end);
}

/* Outside of all sections, or in the block of calls. */
static void tag_between(bt_reply *r, const k3_tag *t)
{
    if (moves(r, t)) return;
    if (r->state == BT_REPLY_BETWEEN && t->is_open && t->name == CALL) {
        r->is_junk = false;
        open_call(r, t);
    } else if (t->is_open && t->name == THINK) {
        go(r, BT_REPLY_REASONS, t->end);
    } else {
        go(r, !t->is_open && t->name == TOOLS ? BT_REPLY_OUTSIDE : r->state, t->end);
    }
}

/* The tags that the prompt ended with may be said again. */
static void tag_at_start(bt_reply *r, const k3_tag *t)
{
    bool echoes = t->name == MESSAGE || t->name == THINK || (t->name == RESPONSE && !r->starts_reasoning);
    if (t->is_open && echoes) {
        r->starts_reasoning |= t->name == THINK; /* or it reasons where that was not asked for */
        bt_reply_tell_raw(r, t->end);
        return;
    }
    r->state = r->starts_reasoning ? BT_REPLY_REASONS : BT_REPLY_ANSWERS;
    bt_reply_tell_start(r, t->begin);
    if (r->starts_reasoning) {
        tag_in_reasoning(r, t);
    } else {
        tag_in_answer(r, t);
    }
}

static void on_tag(bt_reply *r, const k3_tag *t)
{
    r->at = t->end;
    switch (r->state) {
    case BT_REPLY_STARTS:
        tag_at_start(r, t);
        break;
    case BT_REPLY_REASONS:
        tag_in_reasoning(r, t);
        break;
    case BT_REPLY_ANSWERS:
        tag_in_answer(r, t);
        break;
    case BT_REPLY_OUTSIDE:
    case BT_REPLY_BETWEEN:
        tag_between(r, t);
        break;
    case BT_REPLY_ENDED:
        bt_reply_tell_raw(r, t->end);
        break;
    default:
        tag_in_call(r, t);
    }
}

/* ---- text and marks ---------------------------------------------------------------------------------------------- */

static void leave_start(bt_reply *r)
{
    if (r->state == BT_REPLY_STARTS) r->state = r->starts_reasoning ? BT_REPLY_REASONS : BT_REPLY_ANSWERS;
}

static void on_text(bt_reply *r, size_t at, size_t end)
{
    switch (r->state) {
    case BT_REPLY_STARTS:
        if (bt_reply_skip_space(r, at, end) == end) return; /* so far: an echo of the opening tag may follow */
        leave_start(r);
        bt_reply_tell_start(r, end);
        break;
    case BT_REPLY_REASONS:
        bt_reply_tell_text(r, BT_REPLY_REASONING, end);
        break;
    case BT_REPLY_ANSWERS:
        bt_reply_tell_content(r, end);
        break;
    case BT_REPLY_OUTSIDE:
    case BT_REPLY_BETWEEN:
        bt_reply_stray_text(r, at, end);
        break;
    case BT_REPLY_ENDED:
        bt_reply_tell_raw(r, end);
        break;
    default:
        body_text(r, at, end);
    }
}

/* A mark that is no tag's. */
static void on_mark(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end)
{
    r->at = end;
    if (r->state == BT_REPLY_STARTS) {
        leave_start(r);
        bt_reply_tell_start(r, begin);
    }
    if (r->state == BT_REPLY_REASONS && kind != BT_TAG_STOP) {
        bt_reply_tell_text(r, BT_REPLY_REASONING, end);
    } else if (r->state < BT_REPLY_BODY) {
        bt_reply_tell_raw(r, end);
    } else {
        body_text(r, begin, end);
    }
}

static bool read_tag(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end)
{
    k3_tag t = {.is_open = kind == BT_TAG_MARK_OPEN, .begin = begin};
    size_t body_end = end;
    bt_found found = BT_FOUND_NONE;
    if (t.is_open || kind == BT_TAG_MARK_CLOSE) found = scan_tag(r, begin, end, t.is_open, &body_end, &t.end);
    if (found == BT_FOUND_PART) return false;
    if (found == BT_FOUND_NONE) {
        on_mark(r, kind, begin, end);
        return true;
    }
    t.inside = (bt_chars){r->output.data + end, body_end - end};
    t.name = name_of(t.inside);
    r->n_steps += t.inside.size;
    on_tag(r, &t);
    return true;
}

const bt_machine bt_k3_machine = {.text = on_text, .tag = read_tag};
