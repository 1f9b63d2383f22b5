/*
 * K2-Horizon's way of writing a conversation, for checkpoints that carry no template. It gives what the published
 * template gives, byte for byte, and no input text is left out: what its markdown cannot show is shown as JSON, what
 * has no place at all is refused.
 */
#ifndef TEXT_K2_RENDER_H
#define TEXT_K2_RENDER_H

#include "text/messages.h"

/* Options: reasoning_effort, tool_call_format, tool_presentation_format; another one is refused. */
bt_status bt_k2_render(const bt_conversation *c, bt_rendered *out, bt_error *e);

typedef enum bt_k2_presentation { BT_K2_MARKDOWN, BT_K2_JSON } bt_k2_presentation;

/* The part of k2_render_tools.c: checks the tools, then writes them from <ifm|tools> to </ifm|tools>. */
bt_status bt_k2_render_tools(const bt_json_node *tools, bt_k2_presentation how, bt_origin_text *out, bt_error *e);
/* The type that is named with an argument in the xml_typed format. */
bt_status bt_k2_argument_type(const bt_json_node *tools, bt_chars tool, const bt_json_node *argument,
                              bt_origin_text *out, bt_error *e);

#endif
