/*
 * Kimi Linear's way of writing a conversation, for checkpoints that carry no template: Kimi K2's turns. Reasoning has
 * no place in it.
 */
#ifndef TEXT_KIMI_LINEAR_RENDER_H
#define TEXT_KIMI_LINEAR_RENDER_H

#include "text/messages.h"

/* It has no options; one is refused. */
bt_status bt_kimi_linear_render(const bt_conversation *c, bt_rendered *out, bt_error *e);

#endif
