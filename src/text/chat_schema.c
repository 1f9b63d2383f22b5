/*
 * Tools and JSON Schemas. Schemas come from clients: any member may have any type, references may run in circles, so
 * everything here takes what it can use and leaves the rest. Saying what is wrong with a schema is the renderer's.
 */
#include "text/chat_schema.h"

#include <assert.h>
#include <string.h>

#define TYPED_SCHEMAS_MAX 256 /* looked at for the types of one value; beyond that they do not say */

static const char *const type_names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};

unsigned bt_type_named(bt_chars name)
{
    for (unsigned i = 0; i < sizeof type_names / sizeof type_names[0]; i++) {
        if (bt_chars_are(name, type_names[i])) return 1u << i;
    }
    return 0;
}

const char *bt_type_name(unsigned type)
{
    unsigned i = 0;
    while (type >> i > 1) i++;
    assert(type == 1u << i && i < sizeof type_names / sizeof type_names[0]);
    return type_names[i];
}

unsigned bt_type_of(const bt_json_node *value)
{
    switch (value->kind) {
    case BT_JSON_NULL:
        return BT_TYPE_NULL;
    case BT_JSON_TRUE:
    case BT_JSON_FALSE:
        return BT_TYPE_BOOLEAN;
    case BT_JSON_NUMBER:
        return bt_json_is_integer(value) ? BT_TYPE_INTEGER : BT_TYPE_NUMBER;
    case BT_JSON_STRING:
        return BT_TYPE_STRING;
    case BT_JSON_ARRAY:
        return BT_TYPE_ARRAY;
    default:
        assert(value->kind == BT_JSON_OBJECT);
        return BT_TYPE_OBJECT;
    }
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

const bt_json_node *bt_tool_function(const bt_json_node *tool)
{
    const bt_json_node *function = bt_json_get(tool, "function");
    return function != NULL && function->kind == BT_JSON_OBJECT ? function : tool;
}

bt_chars bt_tool_name(const bt_json_node *tool)
{
    const bt_json_node *name = bt_json_get(bt_tool_function(tool), "name");
    return name != NULL && name->kind == BT_JSON_STRING ? bt_chars_of(name) : (bt_chars){NULL, 0};
}

static const bt_json_node *find_tool(const bt_json_node *tools, bt_chars name)
{
    for (const bt_json_node *tool = tools == NULL ? NULL : tools->child; tool != NULL; tool = tool->next) {
        bt_chars this = bt_tool_name(tool);
        if (this.text != NULL && bt_chars_equal(this, name)) return tool;
    }
    return NULL;
}

bool bt_tool_is_known(const bt_json_node *tools, bt_chars name)
{
    return find_tool(tools, name) != NULL;
}

const bt_json_node *bt_tool_parameters(const bt_json_node *tools, bt_chars name)
{
    const bt_json_node *tool = find_tool(tools, name);
    const bt_json_node *parameters = tool == NULL ? NULL : bt_json_get(bt_tool_function(tool), "parameters");
    return parameters != NULL && parameters->kind == BT_JSON_OBJECT ? parameters : NULL;
}

static const bt_json_node *get(const bt_json_node *object, bt_chars key)
{
    for (const bt_json_node *c = object->child; c != NULL; c = c->next) {
        if (bt_chars_equal((bt_chars){c->key, c->key_size}, key)) return c;
    }
    return NULL;
}

const bt_json_node *bt_tool_parameter(const bt_json_node *parameters, bt_chars name)
{
    const bt_json_node *properties = bt_json_get(parameters, "properties");
    if (properties == NULL || properties->kind != BT_JSON_OBJECT) return NULL;
    const bt_json_node *schema = get(properties, name);
    return schema != NULL && schema->kind == BT_JSON_OBJECT ? schema : NULL;
}

/* ---- references -------------------------------------------------------------------------------------------------- */

const bt_json_node *bt_schema_definition(const bt_json_node *root, const bt_json_node *ref)
{
    static const struct {
        const char *prefix, *key;
    } places[] = {{"#/$defs/", "$defs"}, {"#/definitions/", "definitions"}};
    if (root == NULL || ref->kind != BT_JSON_STRING) return NULL;
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(places[i].prefix);
        if (ref->size <= n || memcmp(ref->text, places[i].prefix, n) != 0) continue;
        const bt_json_node *all = bt_json_get(root, places[i].key);
        if (all == NULL || all->kind != BT_JSON_OBJECT) return NULL;
        const bt_json_node *found = get(all, (bt_chars){ref->text + n, ref->size - n});
        return found != NULL && found->kind == BT_JSON_OBJECT ? found : NULL;
    }
    return NULL;
}

bt_chars bt_schema_ref_tail(const bt_json_node *ref)
{
    assert(ref->kind == BT_JSON_STRING);
    const char *slash = ref->size == 0 ? NULL : memrchr(ref->text, '/', ref->size);
    if (slash == NULL) return bt_chars_of(ref);
    return (bt_chars){slash + 1, ref->size - (size_t)(slash + 1 - ref->text)};
}

static bt_json_node *append_copy(bt_arena *a, bt_json_node *object, bt_json_node *last, const bt_json_node *member)
{
    bt_json_node *copy = bt_arena_alloc(a, 1, sizeof *copy);
    if (copy == NULL) return NULL;
    *copy = *member;
    copy->next = NULL;
    if (last == NULL) {
        object->child = copy;
    } else {
        last->next = copy;
    }
    object->n_children++;
    return copy;
}

const bt_json_node *bt_schema_merged(bt_arena *a, const bt_json_node *root, const bt_json_node *schema)
{
    const bt_json_node *ref = bt_json_get(schema, "$ref");
    const bt_json_node *definition = ref == NULL ? NULL : bt_schema_definition(root, ref);
    if (definition == NULL) return schema;
    bt_json_node *merged = bt_arena_alloc(a, 1, sizeof *merged), *last = NULL;
    if (merged == NULL) return NULL;
    *merged = *schema;
    merged->child = NULL;
    merged->n_children = 0;
    for (const bt_json_node *m = definition->child; m != NULL; m = m->next) {
        const bt_json_node *own =
            m->key_size == 4 && memcmp(m->key, "$ref", 4) == 0 ? NULL : get(schema, (bt_chars){m->key, m->key_size});
        last = append_copy(a, merged, last, own != NULL ? own : m);
        if (last == NULL) return NULL;
    }
    for (const bt_json_node *m = schema->child; m != NULL; m = m->next) {
        if (m == ref || get(definition, (bt_chars){m->key, m->key_size}) != NULL) continue;
        last = append_copy(a, merged, last, m);
        if (last == NULL) return NULL;
    }
    return merged;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

typedef struct typing {
    const bt_json_node *root;
    unsigned n_left; /* schemas to look at: references to unions of references would multiply */
} typing;

static unsigned types_of(typing *t, const bt_json_node *schema);

/* Of a list of schemas; 0 as soon as one does not say. */
static unsigned types_of_any(typing *t, const bt_json_node *list)
{
    unsigned types = 0;
    for (const bt_json_node *s = list->child; s != NULL; s = s->next) {
        unsigned more = types_of(t, s);
        if (more == 0) return 0;
        types |= more;
    }
    return types;
}

static unsigned types_of_names(const bt_json_node *list)
{
    unsigned types = 0;
    for (const bt_json_node *t = list->child; t != NULL; t = t->next) {
        if (t->kind == BT_JSON_STRING) types |= bt_type_named(bt_chars_of(t));
    }
    return types;
}

static unsigned types_of(typing *t, const bt_json_node *schema)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    if (schema->kind != BT_JSON_OBJECT || t->n_left == 0) return 0;
    t->n_left--;
    unsigned types = 0;
    const bt_json_node *type = bt_json_get(schema, "type"), *ref = bt_json_get(schema, "$ref");
    const bt_json_node *values = bt_json_get(schema, "enum"), *constant = bt_json_get(schema, "const");
    if (type != NULL && type->kind == BT_JSON_STRING) return bt_type_named(bt_chars_of(type));
    if (type != NULL && type->kind == BT_JSON_ARRAY) return types_of_names(type);
    const bt_json_node *definition = ref == NULL ? NULL : bt_schema_definition(t->root, ref);
    if (definition != NULL) return types_of(t, definition);
    for (size_t i = 0; i < 2; i++) {
        const bt_json_node *list = bt_json_get(schema, unions[i]);
        if (list != NULL && list->kind == BT_JSON_ARRAY) return types_of_any(t, list);
    }
    if (values != NULL && values->kind == BT_JSON_ARRAY) {
        for (const bt_json_node *v = values->child; v != NULL; v = v->next) types |= bt_type_of(v);
    }
    return constant != NULL ? types | bt_type_of(constant) : types;
}

unsigned bt_schema_types(const bt_json_node *root, const bt_json_node *schema)
{
    typing t = {.root = root, .n_left = TYPED_SCHEMAS_MAX};
    return types_of(&t, schema);
}
