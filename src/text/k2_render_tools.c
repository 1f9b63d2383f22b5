/*
 * K2-Horizon's list of tools: JSON, one tool a line, or markdown that shows a schema as nested bullets. Markdown is the
 * default and cannot show every schema; if it cannot show one of the tools, the whole list becomes JSON, for a model
 * reads one style at a time.
 *
 * A local $ref is shown in full where a tool first uses it and by its name afterwards; that also ends circles. A value
 * that markdown would lose (a definition that nothing refers to, a member of a tool that has no place) counts as one
 * that it cannot show.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "text/chat_schema.h"
#include "text/k2_render.h"

#define DEPTH_MAX 64 /* of bullets; deeper schemas are shown as JSON */

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static bool names_property(const bt_json_node *properties, const bt_json_node *name)
{
    for (const bt_json_node *p = properties->child; p != NULL; p = p->next) {
        if (bt_chars_equal((bt_chars){p->key, p->key_size}, bt_chars_of(name))) return true;
    }
    return false;
}

static bt_status check_required(const bt_json_node *schema, const char *where, bt_error *e)
{
    const bt_json_node *required = bt_json_get(schema, "required"), *properties = bt_json_get(schema, "properties");
    if (required == NULL) return BT_OK;
    if (required->kind != BT_JSON_ARRAY)
        return bt_fail(e, BT_ERR_USAGE, "Schema '%s' has 'required' but it is not a list.", where);
    if (required->n_children > 0 && (properties == NULL || properties->kind != BT_JSON_OBJECT))
        return bt_fail(e, BT_ERR_USAGE, "Schema '%s' has required fields but no properties object to define them.",
                       where);
    for (const bt_json_node *r = required->child; r != NULL; r = r->next) {
        if (r->kind == BT_JSON_STRING && names_property(properties, r)) continue;
        bt_text name = {0};
        bt_py_str(&name, r);
        bt_status st = bt_fail(
            e, BT_ERR_USAGE, "Schema '%s' marks '%.100s' as required, but that property is not defined in properties.",
            where, bt_text_ok(&name) ? name.data : "");
        bt_text_free(&name);
        return st;
    }
    return BT_OK;
}

/* The schema and those below its properties and items. *where holds its path; restored on return. */
static bt_status check_schema(const bt_json_node *schema, bt_text *where, bt_error *e)
{
    const bt_json_node *properties = bt_json_get(schema, "properties"), *items = bt_json_get(schema, "items");
    size_t size = where->size;
    if (!bt_text_ok(where)) return bt_fail(e, BT_ERR_MEMORY, "no memory to check the tools");
    bt_status st = check_required(schema, where->data, e);
    if (properties != NULL && properties->kind == BT_JSON_OBJECT) {
        for (const bt_json_node *p = properties->child; p != NULL && st == BT_OK; p = p->next) {
            if (p->kind != BT_JSON_OBJECT) continue;
            bt_text_puts(where, ".properties.");
            bt_text_add(where, p->key, p->key_size);
            st = check_schema(p, where, e);
            where->size = size;
        }
    }
    if (st == BT_OK && items != NULL && items->kind == BT_JSON_OBJECT) {
        bt_text_puts(where, ".items");
        st = check_schema(items, where, e);
    }
    where->size = size;
    if (bt_text_ok(where)) where->data[size] = '\0';
    return st;
}

static bt_status check_tool(const bt_json_node *tool, bt_error *e)
{
    const bt_json_node *function = bt_tool_function(tool), *parameters = bt_json_get(function, "parameters");
    const char *name = bt_tool_name(tool).text;
    if (parameters == NULL && bt_json_get(function, "arguments") != NULL)
        return bt_fail(e, BT_ERR_USAGE,
                       "Tool '%.100s' has 'arguments' instead of 'parameters'. Rename 'arguments' to 'parameters'.",
                       name);
    if (parameters == NULL || parameters->kind == BT_JSON_NULL)
        return bt_fail(e, BT_ERR_USAGE,
                       "Tool '%.100s' is missing required 'parameters' field. Each tool must have a 'parameters' dict "
                       "with 'type', 'properties', and 'required' keys.",
                       name);
    if (parameters->kind == BT_JSON_STRING)
        return bt_fail(e, BT_ERR_USAGE,
                       "tool.function.parameters must be a dict, not a JSON string. Parse it before passing to the "
                       "template.");
    if (parameters->kind != BT_JSON_OBJECT)
        return bt_fail(e, BT_ERR_USAGE, "the parameters of tool '%.100s' are no object", name);
    bt_text where = {0};
    bt_text_printf(&where, "tool.%.100s.parameters", name);
    bt_status st = check_schema(parameters, &where, e);
    bt_text_free(&where);
    return st;
}

/* ---- markdown: types --------------------------------------------------------------------------------------------- */

typedef struct writer {
    bt_arena *arena;
    bt_origin_text *out;
    const bt_json_node *root;     /* the parameters of the tool being written */
    const bt_json_node **inlined; /* [n_inlined] definitions shown already */
    size_t n_inlined, n_definitions;
    unsigned depth;
    bool is_lost; /* something cannot be shown, or no memory */
} writer;

static void put(writer *w, const char *s)
{
    bt_origin_template(w->out, s);
}

static bool is_list_of(const bt_json_node *n, bt_json_kind kind)
{
    if (n->kind != BT_JSON_ARRAY || n->n_children == 0) return false;
    for (const bt_json_node *c = n->child; c != NULL; c = c->next) {
        if (c->kind != kind) return false;
    }
    return true;
}

static void write_type(writer *w, const bt_json_node *schema);

static void write_named_type(writer *w, const bt_json_node *name, const bt_json_node *items)
{
    bt_origin_message(w->out, bt_chars_of(name));
    if (items == NULL || items->kind != BT_JSON_OBJECT || !bt_chars_are(bt_chars_of(name), "array")) return;
    put(w, " of ");
    write_type(w, items);
}

static void write_union(writer *w, const char *name, const bt_json_node *variants)
{
    put(w, name);
    put(w, "[");
    for (const bt_json_node *v = variants->child; v != NULL; v = v->next) {
        write_type(w, v);
        if (v->next != NULL) put(w, " or ");
    }
    put(w, "]");
}

/* "array of string", "integer or null", "oneOf[A or B]", a definition's name, "any". */
static void write_type(writer *w, const bt_json_node *schema)
{
    const bt_json_node *ref = bt_json_get(schema, "$ref"), *type = bt_json_get(schema, "type");
    const bt_json_node *items = bt_json_get(schema, "items");
    const bt_json_node *one = bt_json_get(schema, "oneOf"), *any = bt_json_get(schema, "anyOf");
    if (ref != NULL && ref->kind == BT_JSON_STRING) {
        bt_origin_message(w->out, bt_schema_ref_tail(ref));
    } else if (type != NULL && type->kind == BT_JSON_STRING) {
        write_named_type(w, type, items);
    } else if (type != NULL && is_list_of(type, BT_JSON_STRING)) {
        for (const bt_json_node *t = type->child; t != NULL; t = t->next) {
            write_named_type(w, t, items);
            if (t->next != NULL) put(w, " or ");
        }
    } else if (one != NULL && is_list_of(one, BT_JSON_OBJECT)) {
        write_union(w, "oneOf", one);
    } else if (any != NULL && is_list_of(any, BT_JSON_OBJECT)) {
        write_union(w, "anyOf", any);
    } else {
        w->is_lost |= type != NULL;
        put(w, "any");
    }
}

/* ---- markdown: values -------------------------------------------------------------------------------------------- */

static void bullet(writer *w, size_t indent, const char *title)
{
    put(w, "\n");
    for (size_t i = 0; i < indent; i++) put(w, " ");
    put(w, "- ");
    put(w, title);
}

static void write_python(writer *w, const bt_json_node *value)
{
    bt_text t = {0};
    bt_py_str(&t, value);
    w->is_lost |= !bt_text_ok(&t);
    bt_origin_message(w->out, (bt_chars){t.data, t.size});
    bt_text_free(&t);
}

static void write_literal(writer *w, const bt_json_node *value)
{
    if (value->kind == BT_JSON_STRING && value->size == 0) {
        put(w, "\"\"");
        return;
    }
    put(w, "`");
    write_python(w, value);
    put(w, "`");
}

/* A member that the format has no words for: "key: value", unless it is a structure. */
static void write_unknown(writer *w, const bt_json_node *member, size_t indent)
{
    bool is_flat = member->kind != BT_JSON_OBJECT;
    for (const bt_json_node *c = member->kind == BT_JSON_ARRAY ? member->child : NULL; c != NULL; c = c->next) {
        is_flat = is_flat && c->kind != BT_JSON_OBJECT && c->kind != BT_JSON_ARRAY;
    }
    w->is_lost |= !is_flat;
    bullet(w, indent, "");
    bt_origin_message(w->out, (bt_chars){member->key, member->key_size});
    put(w, ": ");
    if (member->kind == BT_JSON_STRING) {
        bt_origin_lines(w->out, bt_chars_of(member), indent + 2);
    } else {
        write_python(w, member);
    }
}

/* ---- markdown: schemas ------------------------------------------------------------------------------------------- */

/* The schema with its $ref filled in, if this tool has not shown that definition yet. *before: the definition. */
static const bt_json_node *inline_ref(writer *w, const bt_json_node *schema, const bt_json_node **before)
{
    *before = NULL;
    for (const bt_json_node *ref = bt_json_get(schema, "$ref"); ref != NULL; ref = bt_json_get(schema, "$ref")) {
        const bt_json_node *definition = bt_schema_definition(w->root, ref);
        if (definition == NULL) {
            w->is_lost = true;
            return schema;
        }
        for (size_t i = 0; i < w->n_inlined; i++) {
            if (w->inlined[i] == definition) return schema;
        }
        assert(w->n_inlined < w->n_definitions);
        w->inlined[w->n_inlined++] = definition;
        schema = bt_schema_merged(w->arena, w->root, schema);
        if (schema == NULL) {
            w->is_lost = w->out->failed = true;
            return definition;
        }
        *before = definition;
    }
    return schema;
}

static void write_body(writer *w, const bt_json_node *schema, const bt_json_node *replaced, size_t indent,
                       bool with_description);

/* "Items *(type)*" and the like, with everything else below it. */
static void write_part(writer *w, const char *title, const bt_json_node *schema, size_t indent)
{
    const bt_json_node *definition;
    bullet(w, indent, title);
    put(w, " *(");
    write_type(w, schema);
    put(w, ")*");
    schema = inline_ref(w, schema, &definition);
    write_body(w, schema, definition, indent + 2, true);
}

static void write_property(writer *w, const bt_json_node *schema, bool is_required, size_t indent)
{
    bt_chars name = {schema->key, schema->key_size};
    const bt_json_node *definition;
    if (schema->kind != BT_JSON_OBJECT) {
        w->is_lost = true;
        return;
    }
    bullet(w, indent, "`");
    bt_origin_message(w->out, name);
    put(w, "` *(");
    schema = inline_ref(w, schema, &definition);
    write_type(w, schema);
    put(w, is_required ? ", required)*" : ")*");
    const bt_json_node *description = bt_json_get(schema, "description");
    if (description != NULL && description->kind == BT_JSON_STRING && description->size > 0) {
        put(w, " - ");
        bt_origin_lines(w->out, bt_chars_of(description), indent + 2);
    }
    write_body(w, schema, definition, indent + 2, false);
}

static bool is_required(const bt_json_node *required, const bt_json_node *property)
{
    for (const bt_json_node *r = required == NULL ? NULL : required->child; r != NULL; r = r->next) {
        if (r->kind == BT_JSON_STRING && bt_chars_equal(bt_chars_of(r), (bt_chars){property->key, property->key_size}))
            return true;
    }
    return false;
}

static void write_properties(writer *w, const bt_json_node *properties, const bt_json_node *required, size_t indent)
{
    if (properties == NULL) return;
    if (properties->kind != BT_JSON_OBJECT) {
        w->is_lost = true;
        return;
    }
    for (const bt_json_node *p = properties->child; p != NULL && !w->is_lost; p = p->next) {
        write_property(w, p, is_required(required, p), indent);
    }
}

static void write_description(writer *w, const bt_json_node *description, size_t indent)
{
    if (description == NULL || description->kind != BT_JSON_STRING || description->size == 0) return;
    bullet(w, indent, "Description: ");
    bt_origin_lines(w->out, bt_chars_of(description), indent + 2);
}

static void write_values(writer *w, const bt_json_node *schema, size_t indent)
{
    const bt_json_node *values = bt_json_get(schema, "enum"), *standard = bt_json_get(schema, "default");
    if (values != NULL && values->kind != BT_JSON_ARRAY) {
        w->is_lost = true;
    } else if (values != NULL) {
        bullet(w, indent, "Allowed values: ");
        for (const bt_json_node *v = values->child; v != NULL; v = v->next) {
            write_literal(w, v);
            if (v->next != NULL) put(w, ", ");
        }
    }
    if (standard != NULL) {
        bullet(w, indent, "Default: ");
        write_literal(w, standard);
    }
}

static void write_variants(writer *w, const char *title, const bt_json_node *variants, size_t indent)
{
    char name[32];
    unsigned i = 1;
    if (variants == NULL) return;
    if (!is_list_of(variants, BT_JSON_OBJECT)) {
        w->is_lost = true;
        return;
    }
    bullet(w, indent, title);
    put(w, ":");
    for (const bt_json_node *v = variants->child; v != NULL && !w->is_lost; v = v->next) {
        (void)snprintf(name, sizeof name, "Variant %u", i++);
        write_part(w, name, v, indent + 2);
    }
}

static void write_additional(writer *w, const bt_json_node *additional, size_t indent)
{
    if (additional == NULL) return;
    if (additional->kind == BT_JSON_OBJECT) {
        write_part(w, "Additional properties", additional, indent);
    } else if (additional->kind == BT_JSON_TRUE || additional->kind == BT_JSON_FALSE) {
        bullet(w, indent, "Additional properties: ");
        write_python(w, additional);
    } else {
        w->is_lost = true;
    }
}

static bool is_known(const writer *w, const bt_json_node *schema, const bt_json_node *member)
{
    static const char *const known[] = {"type",     "description", "enum",  "default", "additionalProperties",
                                        "items",    "properties",  "oneOf", "anyOf",   "patternProperties",
                                        "required", "returns"};
    static const char *const of_root[] = {"$defs", "definitions"};
    bt_chars key = {member->key, member->key_size};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (bt_chars_are(key, known[i])) return true;
    }
    return schema == w->root && (bt_chars_are(key, of_root[0]) || bt_chars_are(key, of_root[1]));
}

/* What stands below a schema's own line, in the format's order. `replaced`: a definition whose description the schema
 * may have replaced by its own; then it is shown here. */
static void write_members(writer *w, const bt_json_node *schema, size_t indent)
{
    const bt_json_node *items = bt_json_get(schema, "items"), *returns = bt_json_get(schema, "returns");
    const bt_json_node *patterns = bt_json_get(schema, "patternProperties");
    const bt_json_node *required = bt_json_get(schema, "required"), *properties = bt_json_get(schema, "properties");
    /* `required` is shown beside the properties, or not at all. */
    w->is_lost |=
        required != NULL && (required->kind != BT_JSON_ARRAY || (required->n_children > 0 && properties == NULL));
    write_values(w, schema, indent);
    write_additional(w, bt_json_get(schema, "additionalProperties"), indent);
    write_properties(w, properties, w->is_lost ? NULL : required, indent);
    if (items != NULL && items->kind == BT_JSON_OBJECT) write_part(w, "Items", items, indent);
    w->is_lost |= items != NULL && items->kind != BT_JSON_OBJECT;
    write_variants(w, "oneOf", bt_json_get(schema, "oneOf"), indent);
    write_variants(w, "anyOf", bt_json_get(schema, "anyOf"), indent);
    if (patterns != NULL) {
        bullet(w, indent, "Pattern properties:");
        write_properties(w, patterns, NULL, indent + 2);
    }
    if (returns != NULL && returns->kind == BT_JSON_OBJECT) write_part(w, "Return", returns, indent);
    w->is_lost |= returns != NULL && returns->kind != BT_JSON_OBJECT;
    for (const bt_json_node *m = schema->child; m != NULL; m = m->next) {
        if (!is_known(w, schema, m)) write_unknown(w, m, indent);
    }
}

static void write_body(writer *w, const bt_json_node *schema, const bt_json_node *replaced, size_t indent,
                       bool with_description)
{
    const bt_json_node *description = bt_json_get(schema, "description");
    const bt_json_node *other = replaced == NULL ? NULL : bt_json_get(replaced, "description");
    w->is_lost |= ++w->depth > DEPTH_MAX;
    w->is_lost |= description != NULL && description->kind != BT_JSON_STRING;
    if (!w->is_lost) {
        if (with_description) write_description(w, description, indent);
        if (other != NULL && other->kind == BT_JSON_STRING &&
            (description == NULL || !bt_chars_equal(bt_chars_of(other), bt_chars_of(description))))
            write_description(w, other, indent);
        write_members(w, schema, indent);
    }
    w->depth--;
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

/* A member of a tool or function that markdown has no place for; null and a `strict` flag say nothing to a model. */
static bool has_other_members(const bt_json_node *object, const char *const *known)
{
    for (const bt_json_node *m = object->child; m != NULL; m = m->next) {
        bt_chars key = {m->key, m->key_size};
        const char *const *k = known;
        while (*k != NULL && !bt_chars_are(key, *k)) k++;
        bool is_flag = bt_chars_are(key, "strict") && (m->kind == BT_JSON_TRUE || m->kind == BT_JSON_FALSE);
        if (*k == NULL && m->kind != BT_JSON_NULL && !is_flag) return true;
    }
    return false;
}

static void begin_tool(writer *w, const bt_json_node *parameters)
{
    static const char *const keys[] = {"$defs", "definitions"};
    w->root = parameters;
    w->n_inlined = w->n_definitions = 0;
    for (size_t i = 0; i < 2; i++) {
        const bt_json_node *all = bt_json_get(parameters, keys[i]);
        if (all == NULL) continue;
        w->is_lost |= all->kind != BT_JSON_OBJECT;
        w->n_definitions += all->n_children;
    }
    w->inlined = bt_arena_alloc(w->arena, w->n_definitions + 1, sizeof(const bt_json_node *));
    if (w->inlined == NULL) w->is_lost = w->out->failed = true;
}

static void write_tool(writer *w, const bt_json_node *tool)
{
    static const char *const of_tool[] = {"type", "function", NULL};
    static const char *const of_function[] = {"name", "description", "parameters", "returns", "response", NULL};
    static const char *const of_bare[] = {"type", "name", "description", "parameters", "returns", "response", NULL};
    const bt_json_node *f = bt_tool_function(tool), *description = bt_json_get(f, "description");
    const bt_json_node *returns = bt_json_get(f, "returns"), *parameters = bt_json_get(f, "parameters");
    if (returns == NULL) returns = bt_json_get(f, "response");
    w->is_lost |= f == tool ? has_other_members(f, of_bare)
                            : has_other_members(f, of_function) || has_other_members(tool, of_tool);
    w->is_lost |= bt_json_get(f, "returns") != NULL && bt_json_get(f, "response") != NULL;
    begin_tool(w, parameters);
    if (w->is_lost) return;
    put(w, "\n## ");
    bt_origin_message(w->out, bt_tool_name(tool));
    if (description != NULL && description->kind == BT_JSON_STRING && description->size > 0) {
        put(w, "\n");
        bt_origin_message(w->out, bt_chars_of(description));
    }
    w->is_lost |= description != NULL && description->kind != BT_JSON_STRING && description->kind != BT_JSON_NULL;
    put(w, "\n\n**Parameters**");
    size_t size = w->out->text.size;
    write_body(w, parameters, NULL, 0, true);
    if (w->out->text.size == size) put(w, "\n- None");
    if (returns != NULL && returns->kind != BT_JSON_NULL) {
        w->is_lost |= returns->kind != BT_JSON_OBJECT;
        put(w, "\n\n**Returns**");
        if (!w->is_lost) write_part(w, "Return", returns, 0);
    }
    w->is_lost |= w->n_inlined < w->n_definitions;
}

/* false: the list cannot be shown, and *out holds nothing of use. */
static bool write_markdown(bt_arena *a, const bt_json_node *tools, bt_origin_text *out)
{
    writer w = {.arena = a, .out = out};
    for (const bt_json_node *tool = tools->child; tool != NULL && !w.is_lost; tool = tool->next) {
        write_tool(&w, tool);
        if (tool->next != NULL) put(&w, "\n");
    }
    return !w.is_lost && !out->failed;
}

static void append(bt_origin_text *out, const bt_origin_text *more)
{
    size_t at = 0;
    for (size_t i = 0; i < more->n_runs; i++) {
        bt_origin_add(out, more->text.data + at, more->runs[i].size, more->runs[i].from_template);
        at += more->runs[i].size;
    }
}

static void write_json(const bt_json_node *tools, bt_origin_text *out)
{
    for (const bt_json_node *tool = tools->child; tool != NULL; tool = tool->next) {
        bt_text t = {0};
        bt_py_dump(&t, tool);
        out->failed |= !bt_text_ok(&t);
        bt_origin_template(out, "\n");
        bt_origin_message(out, (bt_chars){t.data, t.size});
        bt_text_free(&t);
    }
}

bt_status bt_k2_render_tools(const bt_json_node *tools, bt_k2_presentation how, bt_origin_text *out, bt_error *e)
{
    bt_status st = BT_OK;
    bt_origin_text list = {0};
    bool is_shown = false;
    for (const bt_json_node *tool = tools->child; tool != NULL && st == BT_OK; tool = tool->next) {
        st = check_tool(tool, e);
    }
    if (st != BT_OK) return st;
    bt_origin_template(out, "<ifm|tools>");
    if (how == BT_K2_MARKDOWN) {
        bt_arena *a = bt_arena_new();
        if (a == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for the tools");
        is_shown = write_markdown(a, tools, &list);
        bt_arena_free(a);
    }
    if (is_shown) {
        append(out, &list);
    } else {
        write_json(tools, out);
    }
    out->failed |= list.failed || !bt_text_ok(&list.text);
    bt_origin_text_free(&list);
    bt_origin_template(out, "\n</ifm|tools>");
    return BT_OK;
}

/* ---- types of arguments ------------------------------------------------------------------------------------------ */

/* True if a schema leaves the type open: a union, or a list of types, in it or below its items and properties. */
static bool is_open(const bt_json_node *schema)
{
    const bt_json_node *type = bt_json_get(schema, "type"), *items = bt_json_get(schema, "items");
    const bt_json_node *properties = bt_json_get(schema, "properties");
    if (bt_json_get(schema, "oneOf") != NULL || bt_json_get(schema, "anyOf") != NULL) return true;
    if (type != NULL && type->kind == BT_JSON_ARRAY) return true;
    if (items != NULL && is_open(items)) return true;
    if (properties == NULL || properties->kind != BT_JSON_OBJECT) return false;
    for (const bt_json_node *p = properties->child; p != NULL; p = p->next) {
        if (is_open(p)) return true;
    }
    return false;
}

/* "string", "array[Person]", "any". Unions do not come here: their schemas are open. */
static void write_compact(const bt_json_node *schema, bt_origin_text *out)
{
    const bt_json_node *ref = bt_json_get(schema, "$ref"), *type = bt_json_get(schema, "type");
    const bt_json_node *items = bt_json_get(schema, "items");
    if (ref != NULL && ref->kind == BT_JSON_STRING) {
        bt_origin_message(out, bt_schema_ref_tail(ref));
    } else if (type != NULL && type->kind == BT_JSON_STRING) {
        bt_origin_message(out, bt_chars_of(type));
        if (items == NULL || items->kind != BT_JSON_OBJECT || !bt_chars_are(bt_chars_of(type), "array")) return;
        bt_origin_template(out, "[");
        write_compact(items, out);
        bt_origin_template(out, "]");
    } else {
        bt_origin_template(out, "any");
    }
}

bt_status bt_k2_argument_type(const bt_json_node *tools, bt_chars tool, const bt_json_node *argument,
                              bt_origin_text *out, bt_error *e)
{
    const bt_json_node *parameters = bt_tool_parameters(tools, tool);
    const bt_json_node *schema = bt_tool_parameter(parameters, (bt_chars){argument->key, argument->key_size});
    if (schema == NULL) {
        bt_origin_template(out, "any");
        return BT_OK;
    }
    bt_arena *a = bt_arena_new();
    schema = a == NULL ? NULL : bt_schema_merged(a, parameters, schema);
    if (schema == NULL) {
        bt_arena_free(a);
        return bt_fail(e, BT_ERR_MEMORY, "no memory for the type of an argument");
    }
    if (is_open(schema)) {
        bt_origin_template(out, bt_type_name(bt_type_of(argument)));
    } else {
        write_compact(schema, out);
    }
    bt_arena_free(a);
    return BT_OK;
}
