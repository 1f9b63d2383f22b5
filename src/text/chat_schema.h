/* Tools and their JSON Schemas, as far as prompts and answers need them: names, local references, types. */
#ifndef TEXT_CHAT_SCHEMA_H
#define TEXT_CHAT_SCHEMA_H

#include "text/chat_text.h"

enum { /* JSON Schema's types, as a set */
       BT_TYPE_NULL = 1,
       BT_TYPE_BOOLEAN = 2,
       BT_TYPE_INTEGER = 4,
       BT_TYPE_NUMBER = 8,
       BT_TYPE_STRING = 16,
       BT_TYPE_ARRAY = 32,
       BT_TYPE_OBJECT = 64,
};

unsigned bt_type_named(bt_chars name);          /* 0: no such type */
unsigned bt_type_of(const bt_json_node *value); /* an integer is BT_TYPE_INTEGER only */
const char *bt_type_name(unsigned type);        /* of exactly one */

/* The inner object of {"type": "function", "function": {...}}, or the tool itself where it is bare. */
const bt_json_node *bt_tool_function(const bt_json_node *tool);
bt_chars bt_tool_name(const bt_json_node *tool); /* text NULL: it has none */
/* The parameters of the tool with this name, an object; NULL: no such tool, or it has none. `tools` may be NULL. */
const bt_json_node *bt_tool_parameters(const bt_json_node *tools, bt_chars name);
bool bt_tool_is_known(const bt_json_node *tools, bt_chars name);
/* The schema of one parameter; NULL: not declared. */
const bt_json_node *bt_tool_parameter(const bt_json_node *parameters, bt_chars name);

/* The definition that "#/$defs/NAME" or "#/definitions/NAME" names in `root`; NULL: another kind of reference,
 * or none. */
const bt_json_node *bt_schema_definition(const bt_json_node *root, const bt_json_node *ref);
bt_chars bt_schema_ref_tail(const bt_json_node *ref); /* behind the last '/' */
/* `schema` with the definition that its $ref names merged in; its own members win. The schema itself if it has no $ref
 * that resolves. NULL: no memory. */
const bt_json_node *bt_schema_merged(bt_arena *a, const bt_json_node *root, const bt_json_node *schema);
/* The types that a value of this schema may have, references followed; 0: it does not say. */
unsigned bt_schema_types(const bt_json_node *root, const bt_json_node *schema);

#endif
