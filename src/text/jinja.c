/* Rendering a parsed template: sets up an evaluator with its limits, runs the template, hands out text and origins. */
#include "text/jinja.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_node.h"

#define STEPS_MAX        UINT64_C(50000000)
#define OUTPUT_BYTES_MAX ((size_t)64 << 20)
#define MEMORY_BYTES_MAX ((size_t)512 << 20)
#define DEPTH_MAX        1000

static bool local_time(struct tm *out)
{
    time_t now = time(NULL);
    return localtime_r(&now, out) != NULL;
}

/* The limits and the clock. */
static void set_options(bt_jx *x, const bt_jinja_options *o)
{
    static const bt_jinja_options defaults = {0};
    if (o == NULL) o = &defaults;
    x->steps_max = o->steps_max != 0 ? o->steps_max : STEPS_MAX;
    x->output_bytes_max = o->output_bytes_max != 0 ? o->output_bytes_max : OUTPUT_BYTES_MAX;
    x->memory_bytes_max = o->memory_bytes_max != 0 ? o->memory_bytes_max : MEMORY_BYTES_MAX;
    x->depth_max = o->depth_max != 0 ? o->depth_max : DEPTH_MAX;
    if (o->now != NULL) {
        x->now = *o->now;
    } else if (!local_time(&x->now)) {
        (void)bt_jx_fail_status(x, BT_ERR_IO, "the local time cannot be told");
    }
}

static void run(bt_jx *x, const char *context, size_t size, const bt_jinja_options *o)
{
    const bt_jinja *t = x->template;
    x->context = bt_jx_load_context(x, context, size, o == NULL ? NULL : o->trusted, o == NULL ? 0 : o->n_trusted);
    x->spare = bt_jx_alloc(x, t->n_scopes, sizeof *x->spare);
    if (x->context == NULL || x->spare == NULL || bt_jframe_enter(x, t->root, NULL) == NULL) return;
    bt_jflow flow = bt_jx_run(x, t->body);
    assert((flow == JF_FAIL) == x->failed);
    assert(x->failed || x->depth == 0);
    (void)flow;
}

static bt_status report(const bt_jx *x, bt_error *e)
{
    const char *name = x->template->name;
    if (x->line == 0) return bt_fail(e, x->status, "%s: %s", name, x->error->message);
    return bt_fail(e, x->status, "%s, line %u, column %u: %s", name, (unsigned)x->line, (unsigned)x->column,
                   x->error->message);
}

/* Marks of single bytes as runs. NULL: no memory. */
static bt_origin_run *make_runs(const uint8_t *marks, size_t size, size_t *n)
{
    size_t count = size > 0;
    for (size_t i = 1; i < size; i++) count += marks[i] != marks[i - 1];
    bt_origin_run *runs = bt_calloc(count, sizeof *runs);
    *n = count;
    for (size_t i = 0, r = 0; runs != NULL && i < size; i++) {
        if (i > 0 && marks[i] != marks[i - 1]) r++;
        runs[r].size++;
        runs[r].from_template = marks[i] == 0;
    }
    return runs;
}

static bt_status hand_out(bt_jx *x, bt_rendered *out, bt_error *e)
{
    bt_rendered r = {.size = x->out.size};
    r.runs = make_runs(x->out.marks, x->out.size, &r.n_runs);
    r.text = r.runs == NULL ? NULL : bt_realloc(x->out.data, x->out.size + 1, 1);
    if (r.text == NULL) {
        bt_free(r.runs);
        return bt_fail(e, BT_ERR_MEMORY, "%s: no memory for the rendered text", x->template->name);
    }
    x->out.data = NULL;
    r.text[r.size] = '\0';
    *out = r;
    return BT_OK;
}

bt_status bt_jinja_render(const bt_jinja *t, const char *context, size_t context_size, const bt_jinja_options *options,
                          bt_rendered *out, bt_error *e)
{
    bt_error bare = {BT_OK, ""};
    bt_jx x = {.template = t, .error = &bare, .arena = bt_arena_new()};
    if (x.arena == NULL) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory to render the template", t->name);
    set_options(&x, options);
    run(&x, context, context_size, options);
    bt_status status = x.failed ? report(&x, e) : hand_out(&x, out, e);
    bt_free(x.out.data);
    bt_free(x.out.marks);
    bt_arena_free(x.arena);
    return status;
}

void bt_rendered_free(bt_rendered *r)
{
    bt_free(r->text);
    bt_free(r->runs);
    bt_free(r->pieces);
    *r = (bt_rendered){0};
}

bt_status bt_jinja_render_text(const char *name, const char *source, size_t source_size, const char *context,
                               size_t context_size, const bt_jinja_options *options, bt_rendered *out, bt_error *e)
{
    bt_jinja *t = NULL;
    bt_status status = bt_jinja_parse(name, source, source_size, &t, e);
    if (status == BT_OK) status = bt_jinja_render(t, context, context_size, options, out, e);
    bt_jinja_free(t);
    return status;
}
