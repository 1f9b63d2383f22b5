/* Rendering a template by itself; see render.h. */
#include "tool/render.h"

#include <time.h>

#include "base/error.h"
#include "base/file.h"
#include "text/jinja.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)

static bt_status parse_time(const char *text, struct tm *t, bt_error *e)
{
    *t = (struct tm){.tm_isdst = -1};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", t);
    struct tm normal = *t;
    bool good = rest != NULL && *rest == '\0' && timegm(&normal) != (time_t)-1 && normal.tm_mday == t->tm_mday;
    if (!good) return bt_fail(e, BT_ERR_USAGE, "the time \"%s\" is not like 2026-11-29T12:00:00", text);
    t->tm_wday = normal.tm_wday;
    t->tm_yday = normal.tm_yday;
    return BT_OK;
}

/* A template that refuses is what was asked for, and its answer: no wrong usage. */
static bt_status of_template(bt_status st, bt_error *e)
{
    return st == BT_ERR_USAGE ? bt_fail(e, BT_ERR_FORMAT, "%s", e->message) : st;
}

/* Before the template does: it would speak of itself. A file that was named and is not what it should be. */
static bt_status check_context(const char *path, const char *text, size_t size, bt_error *e)
{
    const bt_json_node *root = NULL;
    bt_arena *a = bt_arena_new();
    bt_status st = a == NULL ? bt_fail(e, BT_ERR_MEMORY, "no memory for a template's variables") : BT_OK;
    if (st == BT_OK) st = bt_json_parse(a, text, size, BT_JSON_PYTHON, &root, e);
    if (st != BT_OK)
        st = bt_fail_in(e, st == BT_ERR_FORMAT ? BT_ERR_USAGE : st, "%s", path);
    else if (root->kind != BT_JSON_OBJECT)
        st = bt_fail(e, BT_ERR_USAGE, "%s: the variables are no JSON object", path);
    bt_arena_free(a);
    return st;
}

bt_status bt_render_template(const char *template_path, const char *context_path, const char *now, bt_text *out,
                             bt_error *e)
{
    struct tm when;
    if (now != NULL && parse_time(now, &when, e) != BT_OK) return BT_ERR_USAGE;
    const bt_jinja_options options = {.now = now == NULL ? NULL : &when};
    char *source = NULL, *context = NULL;
    size_t source_size, context_size;
    bt_rendered r = {0};
    bt_jinja *t = NULL;
    bt_status st = bt_read_file_waiting(template_path, FILE_BYTES_MAX, &source, &source_size, e);
    if (st == BT_OK) st = bt_read_file_waiting(context_path, FILE_BYTES_MAX, &context, &context_size, e);
    if (st == BT_OK) st = bt_jinja_parse(template_path, source, source_size, &t, e);
    if (st == BT_OK) st = check_context(context_path, context, context_size, e);
    if (st == BT_OK) st = of_template(bt_jinja_render(t, context, context_size, &options, &r, e), e);
    if (st == BT_OK) bt_text_add(out, r.text, r.size);
    if (st == BT_OK && !bt_text_ok(out)) st = bt_fail(e, BT_ERR_MEMORY, "no memory for a text of %zu bytes", r.size);
    bt_rendered_free(&r);
    bt_jinja_free(t);
    bt_free(source);
    bt_free(context);
    return st;
}
