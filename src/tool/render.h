/* render: a template from a file with its variables from another, for people who write templates. */
#ifndef TOOL_RENDER_H
#define TOOL_RENDER_H

#include "base/json.h"

/* Appends the text. A fault of the template, or its refusal, is BT_ERR_FORMAT and told with its line and column, as
 * that of `template_path`; variables that are no JSON object are BT_ERR_USAGE. `now` is what the template takes for the
 * time, "YYYY-MM-DDTHH:MM:SS"; NULL: the local time. */
bt_status bt_render_template(const char *template_path, const char *context_path, const char *now, bt_text *out,
                             bt_error *e);

#endif
