/*
 * From the text between value tags to a JSON value. The tool's schema decides, not the look of the text: a user id of
 * "12345" is a string if the schema says so, and code keeps its line ends. Where the schema leaves it open, the type
 * that the model named decides; where both are silent, only what can be nothing but a number, a boolean or null
 * becomes one.
 */
#include <assert.h>
#include <string.h>

#include "text/output.h"

bool bt_value_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bt_chars bt_value_trim(bt_chars s)
{
    while (s.size > 0 && bt_value_is_space(s.text[s.size - 1])) s.size--;
    while (s.size > 0 && bt_value_is_space(s.text[0])) {
        s.text++;
        s.size--;
    }
    return s;
}

void bt_value_escape(bt_text *out, const char *s, size_t n)
{
    size_t at = out->size;
    bt_text_json_string(out, s, n);
    if (!bt_text_ok(out)) return;
    assert(out->size >= at + 2);
    memmove(out->data + at, out->data + at + 1, out->size - at - 2); /* the quotes are the caller's */
    out->size -= 2;
    out->data[out->size] = '\0';
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static bool is_single(unsigned types)
{
    return types != 0 && (types & (types - 1)) == 0;
}

static bt_value_rule rule_of(unsigned types, unsigned *out)
{
    if (types == BT_TYPE_STRING) return BT_VALUE_RAW;
    *out = types;
    return (types & BT_TYPE_STRING) != 0 ? BT_VALUE_TYPED : BT_VALUE_JSON;
}

/* The types of "integer", "array[Person]", "string|null"; *is_any: it names "any". */
static unsigned named_types(bt_chars named, bool *is_any)
{
    unsigned types = 0;
    const char *bracket = memchr(named.text, '[', named.size);
    const char *end = bracket == NULL ? named.text + named.size : bracket;
    *is_any = false;
    for (const char *at = named.text; at < end;) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        const char *stop = bar == NULL ? end : bar;
        bt_chars one = bt_value_trim((bt_chars){at, (size_t)(stop - at)});
        *is_any |= bt_chars_are(one, "any");
        types |= bt_type_named(one);
        at = bar == NULL ? end : bar + 1;
    }
    return types;
}

bt_value_rule bt_value_rule_for(const bt_json_node *parameters, bt_chars key, bt_chars named, unsigned *types)
{
    const bt_json_node *schema = bt_tool_parameter(parameters, key);
    unsigned declared = schema == NULL ? 0 : bt_schema_types(parameters, schema), said = 0;
    bool is_any = false;
    *types = 0;
    if (named.text != NULL) said = named_types(named, &is_any);
    if (declared != 0) {
        bool decides = is_single(said) && !is_single(declared) && (said & declared) != 0;
        return rule_of(decides ? said : declared, types);
    }
    if (named.text == NULL) return BT_VALUE_SCALAR;
    if (is_any) return BT_VALUE_RAW;
    return said == 0 ? BT_VALUE_JSON : rule_of(said, types); /* 0: the name of a definition */
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void write_string(bt_chars text, bt_text *out)
{
    bt_text_json_string(out, text.text, text.size);
}

/* The type of the JSON text, 0 if it is none. */
static unsigned json_type(bt_chars text, bool *no_memory)
{
    const bt_json_node *node = NULL;
    bt_arena *a = bt_arena_new();
    unsigned type = 0;
    *no_memory = a == NULL;
    if (a == NULL) return 0;
    bt_status st = bt_json_parse(a, text.text, text.size, 0, &node, NULL);
    if (st == BT_OK) type = bt_type_of(node);
    *no_memory = st == BT_ERR_MEMORY;
    bt_arena_free(a);
    return type;
}

static bool is_wanted(bt_value_rule rule, unsigned types, unsigned type)
{
    switch (rule) {
    case BT_VALUE_JSON:
        return true;
    case BT_VALUE_SCALAR:
        return (type & (BT_TYPE_NULL | BT_TYPE_BOOLEAN | BT_TYPE_INTEGER | BT_TYPE_NUMBER)) != 0;
    default:
        if (type == BT_TYPE_INTEGER && (types & BT_TYPE_NUMBER) != 0) return true;
        return type != BT_TYPE_STRING && (types & type) != 0; /* a quoted string is a string with quotes */
    }
}

void bt_value_write(bt_value_rule rule, unsigned types, bt_chars text, bt_text *out)
{
    bool no_memory = false;
    bt_chars trimmed = bt_value_trim(text);
    unsigned type = rule == BT_VALUE_RAW ? 0 : json_type(trimmed, &no_memory);
    out->failed |= no_memory;
    if (type != 0 && is_wanted(rule, types, type)) {
        bt_text_add(out, trimmed.text, trimmed.size);
    } else {
        write_string(rule == BT_VALUE_JSON ? trimmed : text, out);
    }
}
