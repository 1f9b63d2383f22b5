/* Rendering a template by itself; see render.h. */
#include "tool/render.h"

#include "base/error.h"
#include "base/file.h"
#include "text/jinja.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)

bt_status bt_render_template(const char *template_path, const char *context_path, bt_text *out, bt_error *e)
{
    char *source = NULL, *context = NULL;
    size_t source_size, context_size;
    bt_rendered r = {0};
    bt_status st = bt_read_file(template_path, FILE_BYTES_MAX, &source, &source_size, e);
    if (st == BT_OK) st = bt_read_file(context_path, FILE_BYTES_MAX, &context, &context_size, e);
    if (st == BT_OK) st = bt_jinja_render_text(template_path, source, source_size, context, context_size, NULL, &r, e);
    if (st == BT_OK) bt_text_add(out, r.text, r.size);
    if (st == BT_OK && !bt_text_ok(out)) st = bt_fail(e, BT_ERR_MEMORY, "no memory for a text of %zu bytes", r.size);
    bt_rendered_free(&r);
    bt_free(source);
    bt_free(context);
    return st;
}
