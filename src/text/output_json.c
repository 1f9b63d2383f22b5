/*
 * A walk through one JSON object, a byte at a time, for arguments that are passed on while they come. It knows the
 * grammar and how deep it is, and tells where the members of the object itself begin and end. What needs the whole text
 * (equal keys, unpaired surrogates, UTF-8) is left to the parser that reads it in the end.
 */
#include <assert.h>
#include <string.h>

#include "text/output.h"

enum {
    WALK_BEGIN, /* before the object */
    WALK_KEY_OR_END,
    WALK_KEY,
    WALK_COLON,
    WALK_VALUE_STATE,
    WALK_VALUE_OR_END, /* after '[' */
    WALK_COMMA,        /* after a value */
    WALK_STRING,
    WALK_ESCAPE,
    WALK_HEX,
    WALK_LITERAL,
    WALK_MINUS,    /* a number: after '-' */
    WALK_ZERO,     /* after a leading 0 */
    WALK_INTEGER,  /* in the digits before a point */
    WALK_POINT,    /* after the point */
    WALK_FRACTION, /* in the digits after it */
    WALK_E,        /* after e */
    WALK_SIGN,     /* after its sign */
    WALK_EXPONENT, /* in its digits */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_object(const bt_walk *w)
{
    return (w->objects >> (w->depth - 1) & 1) != 0;
}

static bt_walked open_container(bt_walk *w, bool is_object)
{
    if (w->depth == BT_JSON_DEPTH_MAX) return BT_WALK_FAULT;
    w->objects &= ~((uint64_t)1 << w->depth);
    w->objects |= (uint64_t)is_object << w->depth;
    w->depth++;
    w->state = is_object ? WALK_KEY_OR_END : WALK_VALUE_OR_END;
    return BT_WALK_ON;
}

static bt_walked close_container(bt_walk *w, bool is_object)
{
    if (in_object(w) != is_object) return BT_WALK_FAULT;
    w->depth--;
    w->state = WALK_COMMA;
    if (w->depth == 0) return BT_WALK_DONE;
    return w->depth == 1 ? BT_WALK_VALUE_CLOSE : BT_WALK_ON;
}

/* The first byte of a value. */
static bt_walked begin_value(bt_walk *w, char c)
{
    bool is_member = w->depth == 1;
    bt_walked walked = BT_WALK_ON;
    if (c == '{' || c == '[') {
        walked = open_container(w, c == '{');
    } else if (c == '"') {
        w->is_key = false;
        w->state = WALK_STRING;
    } else if (c == '-') {
        w->state = WALK_MINUS;
    } else if (is_digit(c)) {
        w->state = c == '0' ? WALK_ZERO : WALK_INTEGER;
    } else if (c == 't' || c == 'f' || c == 'n') {
        w->literal = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
        w->state = WALK_LITERAL;
    } else {
        return BT_WALK_FAULT;
    }
    return walked == BT_WALK_ON && is_member ? BT_WALK_VALUE : walked;
}

static bt_walked in_string(bt_walk *w, char c)
{
    switch (w->state) {
    case WALK_ESCAPE:
        if (c == '\0' || strchr("\"\\/bfnrtu", c) == NULL) return BT_WALK_FAULT;
        w->state = c == 'u' ? WALK_HEX : WALK_STRING;
        w->hex_left = 4;
        return BT_WALK_ON;
    case WALK_HEX:
        if (c == '\0' || strchr("0123456789abcdefABCDEF", c) == NULL) return BT_WALK_FAULT;
        if (--w->hex_left == 0) w->state = WALK_STRING;
        return BT_WALK_ON;
    default:
        break;
    }
    if (c == '\\') {
        w->state = WALK_ESCAPE;
    } else if (c == '"') {
        w->state = w->is_key ? WALK_COLON : WALK_COMMA;
        if (w->depth == 1) return w->is_key ? BT_WALK_KEY_CLOSE : BT_WALK_VALUE_CLOSE;
    } else if ((unsigned char)c < 0x20) {
        return BT_WALK_FAULT;
    }
    return BT_WALK_ON;
}

/* The state of a number after one more byte; -1 if the byte is no part of it. */
static int in_number(int state, char c)
{
    bool has_integer = state == WALK_ZERO || state == WALK_INTEGER;
    if (is_digit(c)) {
        switch (state) {
        case WALK_MINUS:
            return c == '0' ? WALK_ZERO : WALK_INTEGER;
        case WALK_ZERO:
            return -1;
        case WALK_POINT:
            return WALK_FRACTION;
        case WALK_E:
        case WALK_SIGN:
            return WALK_EXPONENT;
        default:
            return state;
        }
    }
    if (c == '.' && has_integer) return WALK_POINT;
    if ((c == 'e' || c == 'E') && (has_integer || state == WALK_FRACTION)) return WALK_E;
    return (c == '+' || c == '-') && state == WALK_E ? WALK_SIGN : -1;
}

static bool ends_number(int state)
{
    return state == WALK_ZERO || state == WALK_INTEGER || state == WALK_FRACTION || state == WALK_EXPONENT;
}

/* Between values: what is not white space. */
static bt_walked between(bt_walk *w, char c)
{
    switch (w->state) {
    case WALK_BEGIN:
        return c == '{' ? open_container(w, true) : BT_WALK_FAULT;
    case WALK_KEY_OR_END:
    case WALK_KEY:
        if (c == '}' && w->state == WALK_KEY_OR_END) return close_container(w, true);
        if (c != '"') return BT_WALK_FAULT;
        w->is_key = true;
        w->state = WALK_STRING;
        return w->depth == 1 ? BT_WALK_KEY_OPEN : BT_WALK_ON;
    case WALK_COLON:
        w->state = WALK_VALUE_STATE;
        return c == ':' ? BT_WALK_ON : BT_WALK_FAULT;
    case WALK_VALUE_OR_END:
        if (c == ']') return close_container(w, false);
        return begin_value(w, c);
    case WALK_VALUE_STATE:
        return begin_value(w, c);
    default:
        assert(w->state == WALK_COMMA);
        if (c == '}' || c == ']') return close_container(w, c == '}');
        w->state = in_object(w) ? WALK_KEY : WALK_VALUE_STATE;
        return c == ',' ? BT_WALK_ON : BT_WALK_FAULT;
    }
}

bt_walked bt_walk_step(bt_walk *w, char c)
{
    if (w->state >= WALK_STRING && w->state <= WALK_HEX) return in_string(w, c);
    if (w->state == WALK_LITERAL) {
        if (c != *w->literal) return BT_WALK_FAULT;
        if (*++w->literal == '\0') w->state = WALK_COMMA;
        return BT_WALK_ON;
    }
    if (w->state >= WALK_MINUS) {
        int next = in_number(w->state, c);
        if (next >= 0) {
            w->state = next;
            return BT_WALK_ON;
        }
        if (!ends_number(w->state)) return BT_WALK_FAULT;
        w->state = WALK_COMMA;
    }
    return bt_value_is_space(c) ? BT_WALK_ON : between(w, c);
}
