/*
 * Python's JSON, for prompts whose bytes were fixed by json.dumps when a model was trained: the native renderers
 * write trees of base/json.h with it, the template filter tojson its own values. Differs from base's writer in the
 * spaces after separators, and in that a float stays one: 18.0, 1e+16.
 */
#include "text/pyjson.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/pytext.h"

size_t bt_pyjson_escape(uint32_t c, bool ascii, char out[BT_PYJSON_ESCAPE_MAX])
{
    static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *p = c > 0 && c < 0x80 ? strchr(named, (char)c) : NULL;
    if (p != NULL) {
        out[0] = '\\';
        out[1] = letters[p - named];
        return 2;
    }
    bool plain = c >= 0x20 && (!ascii || c < 0x7f);
    if (plain) return 0;
    char text[BT_PYJSON_ESCAPE_MAX + 1];
    unsigned rest = (unsigned)c - 0x10000; /* beyond 16 bits: a pair of surrogates */
    int n = c < 0x10000 ? snprintf(text, sizeof text, "\\u%04x", (unsigned)c)
                        : snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    assert(n > 0);
    assert(n <= BT_PYJSON_ESCAPE_MAX);
    memcpy(out, text, (size_t)n);
    return (size_t)n;
}

size_t bt_pyjson_float(double v, char *out)
{
    if (isfinite(v)) return bt_py_float_repr(v, out);
    const char *name = isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity";
    return (size_t)snprintf(out, BT_PY_FLOAT_BYTES, "%s", name);
}

void bt_pyjson_add_string(bt_text *t, const char *s, size_t n)
{
    char escape[BT_PYJSON_ESCAPE_MAX];
    size_t plain = 0, length;
    bt_text_add(t, "\"", 1);
    for (size_t i = 0; i < n; i += length) {
        uint32_t c = 0;
        length = bt_utf8_decode(s + i, n - i, &c);
        assert(length > 0);
        size_t size = bt_pyjson_escape(c, false, escape);
        if (size == 0) continue;
        bt_text_add(t, s + plain, i - plain);
        bt_text_add(t, escape, size);
        plain = i + length;
    }
    bt_text_add(t, s + plain, n - plain);
    bt_text_add(t, "\"", 1);
}

/* Integers keep their digits, however many; "-0" is the integer 0. */
static void add_number(bt_text *t, const char *text, size_t size)
{
    bool integer = true;
    for (size_t i = 0; i < size; i++) integer = integer && (text[i] == '-' || (text[i] >= '0' && text[i] <= '9'));
    if (integer) {
        bool zero = size == 2 && text[0] == '-' && text[1] == '0';
        bt_text_add(t, text + zero, size - zero);
        return;
    }
    double v = 0;
    char out[BT_PY_FLOAT_BYTES];
    bool good = bt_py_parse_float(text, size, &v);
    assert(good && "the JSON reader took it for a number");
    (void)good;
    bt_text_add(t, out, bt_pyjson_float(v, out));
}

void bt_pyjson_add_node(bt_text *t, const bt_json_node *n)
{
    bool object = n->kind == BT_JSON_OBJECT;
    switch (n->kind) {
    case BT_JSON_OBJECT:
    case BT_JSON_ARRAY:
        bt_text_add(t, object ? "{" : "[", 1);
        for (const bt_json_node *c = n->child; c != NULL; c = c->next) {
            if (c != n->child) bt_text_add(t, ", ", 2);
            if (object) {
                bt_pyjson_add_string(t, c->key, c->key_size);
                bt_text_add(t, ": ", 2);
            }
            bt_pyjson_add_node(t, c);
        }
        bt_text_add(t, object ? "}" : "]", 1);
        break;
    case BT_JSON_STRING:
        bt_pyjson_add_string(t, n->text, n->size);
        break;
    case BT_JSON_NUMBER:
        add_number(t, n->text, n->size);
        break;
    case BT_JSON_TRUE:
        bt_text_puts(t, "true");
        break;
    case BT_JSON_FALSE:
        bt_text_puts(t, "false");
        break;
    default:
        assert(n->kind == BT_JSON_NULL);
        bt_text_puts(t, "null");
        break;
    }
}
