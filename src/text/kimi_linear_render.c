/*
 * The turns of a Kimi Linear conversation: who speaks, a name, what is said. A call is known by "functions.NAME:INDEX",
 * counted through the whole conversation; a result says which one it is of. Arguments that came as text are shown as
 * they came, so that an answer that is given back is the answer that was given.
 */
#include "text/kimi_linear_render.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct known_id { /* that a call came with */
    bt_chars id;
    size_t call_i;
} known_id;

typedef struct renderer {
    const bt_conversation *c;
    const bt_message_call **calls; /* [n_calls] of the whole conversation */
    bool *is_answered;             /* [n_calls] */
    known_id *ids;                 /* [n_ids] sorted */
    size_t n_calls, n_ids;
    size_t n_shown; /* calls, so far */
    size_t next;    /* no call before this one waits for its result */
    bt_origin_text out;
} renderer;

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
    const known_id *x = a, *y = b;
    int order = bt_chars_compare(x->id, y->id);
    return order != 0 ? order : x->call_i < y->call_i ? -1 : x->call_i > y->call_i;
}

static bt_status collect_calls(renderer *r, bt_error *e)
{
    const bt_conversation *c = r->c;
    size_t n = 0;
    for (size_t i = 0; i < c->n_messages; i++) n += c->messages[i].n_calls;
    r->calls = bt_malloc(n + 1, sizeof(const bt_message_call *));
    r->is_answered = bt_calloc(n + 1, sizeof *r->is_answered);
    r->ids = bt_malloc(n + 1, sizeof *r->ids);
    if (r->calls == NULL || r->is_answered == NULL || r->ids == NULL)
        return bt_fail(e, BT_ERR_MEMORY, "no memory for %zu calls", n);
    for (size_t i = 0; i < c->n_messages; i++) {
        for (size_t k = 0; k < c->messages[i].n_calls; k++) {
            const bt_message_call *call = &c->messages[i].calls[k];
            if (call->id.text != NULL) r->ids[r->n_ids++] = (known_id){call->id, r->n_calls};
            r->calls[r->n_calls++] = call;
        }
    }
    assert(r->n_calls == n);
    qsort(r->ids, r->n_ids, sizeof *r->ids, compare_ids);
    return BT_OK;
}

static void free_calls(renderer *r)
{
    bt_free(r->calls);
    bt_free(r->is_answered);
    bt_free(r->ids);
}

/* The last call of this id that was shown; SIZE_MAX: none. */
static size_t find_call(const renderer *r, bt_chars id)
{
    size_t low = 0, high = r->n_ids; /* the first that is behind it */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        int order = bt_chars_compare(r->ids[middle].id, id);
        if (order < 0 || (order == 0 && r->ids[middle].call_i < r->n_shown)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && bt_chars_equal(r->ids[low - 1].id, id) ? r->ids[low - 1].call_i : SIZE_MAX;
}

static void show_id(renderer *r, size_t call_i)
{
    char number[32];
    int n = snprintf(number, sizeof number, ":%zu", call_i);
    bt_origin_template(&r->out, "functions.");
    bt_origin_message(&r->out, r->calls[call_i]->name);
    bt_origin_message(&r->out, (bt_chars){number, (size_t)n});
}

static void show_call(renderer *r, const bt_message_call *call)
{
    const bool is_given = call->fault != NULL || (call->text.text != NULL && call->arguments->child != NULL);
    bt_text dumped = {0};
    if (!is_given) bt_py_dump(&dumped, call->arguments);
    r->out.failed |= !bt_text_ok(&dumped);
    bt_origin_template(&r->out, "<|tool_call_begin|>");
    assert(r->calls[r->n_shown] == call);
    show_id(r, r->n_shown++);
    bt_origin_template(&r->out, "<|tool_call_argument_begin|>");
    bt_origin_message(&r->out, is_given ? call->text : (bt_chars){dumped.data, dumped.size});
    bt_origin_template(&r->out, "<|tool_call_end|>");
    bt_text_free(&dumped);
}

static void calls(renderer *r, const bt_message *m)
{
    bt_origin_template(&r->out, "<|tool_calls_section_begin|>");
    for (size_t i = 0; i < m->n_calls; i++) show_call(r, &m->calls[i]);
    bt_origin_template(&r->out, "<|tool_calls_section_end|>");
}

/* The call that a result answers: by the id that it came with, else the first that waits. */
static bt_status answered(renderer *r, size_t i, size_t *call_i, bt_error *e)
{
    const bt_json_node *given = bt_json_get(r->c->messages[i].given, "tool_call_id");
    bool has_id = given != NULL && given->kind == BT_JSON_STRING;
    size_t found = has_id ? find_call(r, bt_chars_of(given)) : SIZE_MAX;
    while (r->next < r->n_shown && r->is_answered[r->next]) r->next++;
    if (found == SIZE_MAX) found = r->next;
    if (found >= r->n_shown)
        return bt_fail(e, BT_ERR_USAGE,
                       "messages[%zu] is a result of no known call: no call before it is left to be answered", i);
    r->is_answered[found] = true;
    *call_i = found;
    return BT_OK;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static bt_status open_turn(renderer *r, size_t i, bt_error *e)
{
    static const char *const marks[] = {[BT_ROLE_SYSTEM] = "<|im_system|>",
                                        [BT_ROLE_USER] = "<|im_user|>",
                                        [BT_ROLE_ASSISTANT] = "<|im_assistant|>",
                                        [BT_ROLE_TOOL] = "<|im_system|>"};
    const bt_message *m = &r->c->messages[i];
    const bt_json_node *name = bt_json_get(m->given, "name");
    if (name != NULL && name->kind != BT_JSON_STRING && name->kind != BT_JSON_NULL)
        return bt_fail(e, BT_ERR_USAGE, "messages[%zu].name is no string", i);
    bt_origin_template(&r->out, marks[m->role]);
    if (name != NULL && name->kind == BT_JSON_STRING && name->size > 0) {
        bt_origin_message(&r->out, bt_chars_of(name));
    } else {
        bt_origin_template(&r->out, bt_role_name(m->role));
    }
    bt_origin_template(&r->out, "<|im_middle|>");
    return BT_OK;
}

/* Parts have nothing between them. */
static void content(renderer *r, const bt_message *m)
{
    if (m->parts == NULL) bt_origin_message(&r->out, m->content);
    for (size_t i = 0; m->parts != NULL && i < m->n_parts; i++) bt_origin_message(&r->out, m->parts[i]);
}

static bt_status turn(renderer *r, size_t i, bt_error *e)
{
    const bt_message *m = &r->c->messages[i];
    size_t call_i = 0;
    bt_status st = open_turn(r, i, e);
    if (st == BT_OK && m->role == BT_ROLE_TOOL) st = answered(r, i, &call_i, e);
    if (st != BT_OK) return st;
    if (m->role == BT_ROLE_TOOL) {
        bt_origin_template(&r->out, "## Return of ");
        show_id(r, call_i);
        bt_origin_template(&r->out, "\n");
    }
    content(r, m);
    if (m->n_calls > 0) calls(r, m);
    bt_origin_template(&r->out, "<|im_end|>");
    return BT_OK;
}

static bt_status declare_tools(renderer *r, bt_error *e)
{
    const bt_conversation *c = r->c;
    const bt_json_node *tools = c->tools;
    for (size_t i = 0; i < c->n_messages; i++) {
        if (c->messages[i].tools == NULL) continue;
        if (i > 0 || tools != NULL)
            return bt_fail(e, BT_ERR_USAGE,
                           "messages[%zu] declares tools; Kimi Linear's format shows one list of them, that of the "
                           "first message or the one beside the messages",
                           i);
        tools = c->messages[i].tools;
    }
    if (tools == NULL) return BT_OK;
    bt_text json = {0};
    bt_py_dump(&json, tools);
    r->out.failed |= !bt_text_ok(&json);
    bt_origin_template(&r->out, "<|im_system|>tool_declare<|im_middle|>");
    bt_origin_message(&r->out, (bt_chars){json.data, json.size});
    bt_origin_template(&r->out, "<|im_end|>");
    bt_text_free(&json);
    return BT_OK;
}

bt_status bt_kimi_linear_render(const bt_conversation *c, bt_rendered *out, bt_error *e)
{
    renderer r = {.c = c};
    bt_status st = BT_OK;
    assert(c->n_messages > 0);
    if (c->n_options > 0)
        return bt_fail(e, BT_ERR_USAGE, "Kimi Linear's format has no option \"%.60s\"; it has none",
                       c->options[0]->key);
    st = collect_calls(&r, e);
    if (st == BT_OK) st = declare_tools(&r, e);
    if (st == BT_OK && c->messages[0].role != BT_ROLE_SYSTEM) /* the newline is the published template's */
        bt_origin_template(&r.out, "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot "
                                   "AI.<|im_end|>\n");
    for (size_t i = 0; i < c->n_messages && st == BT_OK; i++) st = turn(&r, i, e);
    if (st == BT_OK && c->add_generation_prompt) bt_origin_template(&r.out, "<|im_assistant|>assistant<|im_middle|>");
    free_calls(&r);
    if (st == BT_OK) return bt_origin_text_take(&r.out, out, e);
    bt_origin_text_free(&r.out);
    return st;
}
