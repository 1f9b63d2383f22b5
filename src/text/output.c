/*
 * A reply: a model's answer read as it comes. A lexer cuts the output into tags and text between them; a machine of a
 * few states says what each stands for.
 *
 * What makes it safe to pass on at once what is understood:
 *   - The output is kept whole. Events name ranges of it; `given` is where the last one ended, so the ranges cannot but
 *     be contiguous. Nothing before `given` is ever looked at again.
 *   - A handler of text must not care how the text is cut. Then the pieces in which the output came cannot matter.
 *   - What ends in part of a tag, or of a character, waits. Only the announced end settles it.
 *   - While reasoning is open, a block of calls waits too: a closer further on makes it reasoning (quoted, never
 *     executed), the end of the output makes it calls. Either way it is read a second time, once.
 *   - A call whose name proves malformed was never begun: its text is content then. It too is read a second time.
 * So the work is linear in the output, whatever is in it.
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/output.h"
#include "text/output_state.h"

#define OUTPUT_BYTES_MAX ((size_t)1 << 30)
#define TAG_BYTES_MAX    64

/* ---- events ------------------------------------------------------------------------------------------------------ */

static bt_status no_memory(bt_error *e)
{
    return bt_fail(e, BT_ERR_MEMORY, "no memory for the answer");
}

/* An event from `given` to `end`; text [at, at + size) of the output or, with is_made, of r->made. */
static void tell(bt_reply *r, bt_reply_kind kind, size_t end, bool is_made, size_t at, size_t size)
{
    bt_pending *last = r->n_events > 0 ? &r->events[r->n_events - 1] : NULL;
    bool joins =
        kind == BT_REPLY_REASONING || kind == BT_REPLY_CONTENT || kind == BT_REPLY_RAW || kind == BT_REPLY_ARGUMENTS;
    size_t begin = r->given;
    assert(end >= begin);
    r->given = end;
    if (joins && last != NULL && last->event.kind == kind) {
        assert(last->event.end == begin);
        last->event.end = end;
        last->event.size += size;
        return;
    }
    if (r->n_events == r->events_capacity) {
        size_t capacity = r->events_capacity == 0 ? 32 : r->events_capacity * 2;
        bt_pending *more = bt_realloc(r->events, capacity, sizeof *more);
        if (more == NULL) {
            r->failed = true;
            return;
        }
        r->events = more;
        r->events_capacity = capacity;
    }
    r->events[r->n_events++] = (bt_pending){
        .event =
            {.kind = kind, .call_i = r->n_calls == 0 ? 0 : r->n_calls - 1, .size = size, .begin = begin, .end = end},
        .is_made = is_made,
        .at = at,
    };
}

void bt_reply_tell_raw(bt_reply *r, size_t end)
{
    if (end > r->given) tell(r, BT_REPLY_RAW, end, false, 0, 0);
}

void bt_reply_tell_text(bt_reply *r, bt_reply_kind kind, size_t end)
{
    size_t begin = r->given;
    if (end == begin) return;
    bt_text_add(kind == BT_REPLY_REASONING ? &r->reasoning : &r->content, r->output.data + begin, end - begin);
    tell(r, kind, end, false, begin, end - begin);
}

bt_found bt_find_tag(const bt_grammar *g, const char *text, size_t n, bt_tag_kind *kind, size_t *tag_size)
{
    bt_found best = BT_FOUND_NONE;
    for (size_t i = 0; i < g->n_tags; i++) {
        const bt_tag *tag = &g->tags[i];
        size_t size = strlen(tag->text), common = size < n ? size : n;
        if (memcmp(text, tag->text, common) != 0) continue;
        if (common < size) {
            best = BT_FOUND_PART;
            continue;
        }
        *kind = tag->kind;
        *tag_size = size;
        return BT_FOUND_TAG;
    }
    return best;
}

/* Whether the content's last bytes, from its last '<' on, may become a tag: their number, else 0. */
static size_t open_tail(const bt_reply *r)
{
    bt_tag_kind kind;
    size_t n = r->content.size < TAG_BYTES_MAX ? r->content.size : TAG_BYTES_MAX, size;
    if (n == 0) return 0;
    const char *end = r->content.data + r->content.size, *open = memrchr(end - n, '<', n);
    if (open == NULL) return 0;
    n = (size_t)(end - open);
    return bt_find_tag(r->grammar, open, n, &kind, &size) == BT_FOUND_PART ? n : 0;
}

void bt_reply_tell_content(bt_reply *r, size_t end)
{
    if (r->given == end) return;
    if (r->given != r->content_end) r->tail = open_tail(r);
    while (r->tail > 0 && r->given < end) {
        bt_tag_kind kind;
        size_t size;
        char tail[TAG_BYTES_MAX + 1];
        assert(r->tail < TAG_BYTES_MAX);
        memcpy(tail, r->content.data + r->content.size - r->tail, r->tail);
        tail[r->tail] = r->output.data[r->given];
        r->n_steps++;
        bt_found what = bt_find_tag(r->grammar, tail, r->tail + 1, &kind, &size);
        if (what == BT_FOUND_TAG) {
            bt_reply_tell_raw(r, r->given + 1);
        } else {
            bt_reply_tell_text(r, BT_REPLY_CONTENT, r->given + 1);
            r->tail = what == BT_FOUND_PART ? r->tail + 1 : 0;
        }
        if (r->failed || !bt_text_ok(&r->content)) return;
    }
    bt_reply_tell_text(r, BT_REPLY_CONTENT, end);
    r->content_end = end;
}

void bt_reply_tell_start(bt_reply *r, size_t end)
{
    if (r->starts_reasoning) {
        bt_reply_tell_text(r, BT_REPLY_REASONING, end);
    } else {
        bt_reply_tell_content(r, end);
    }
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

void bt_reply_tell_arguments(bt_reply *r, size_t at)
{
    bt_reply_call *call = &r->calls[r->n_calls - 1];
    r->failed |= !bt_text_ok(&r->made);
    if (r->failed) return; /* then made's size says nothing */
    assert(call->arguments_at + call->arguments_size == at);
    size_t size = r->made.size - at;
    call->arguments_size += size;
    if (size > 0) tell(r, BT_REPLY_ARGUMENTS, r->given, true, at, size);
}

void bt_reply_begin_call(bt_reply *r, bt_chars name)
{
    if (r->n_calls == r->calls_capacity) {
        size_t capacity = r->calls_capacity == 0 ? 8 : r->calls_capacity * 2;
        bt_reply_call *more = bt_realloc(r->calls, capacity, sizeof *more);
        if (more == NULL) {
            r->failed = true;
            return;
        }
        r->calls = more;
        r->calls_capacity = capacity;
    }
    size_t at = r->made.size;
    bt_text_add(&r->made, name.text, name.size);
    r->failed |= !bt_text_ok(&r->made);
    r->calls[r->n_calls++] = (bt_reply_call){.name_at = at, .name_size = name.size, .arguments_at = at + name.size};
    r->is_begun = true;
    r->parameters = bt_tool_parameters(r->tools, name);
    tell(r, BT_REPLY_CALL, r->given, true, at, name.size);
}

void bt_reply_finish_call(bt_reply *r, size_t end)
{
    assert(r->is_begun);
    r->calls[r->n_calls - 1].is_done = true;
    r->n_done++;
    r->is_begun = false;
    tell(r, BT_REPLY_CALL_DONE, end, false, 0, 0);
    r->state = BT_REPLY_BETWEEN;
}

void bt_reply_break_call(bt_reply *r, size_t at)
{
    r->state = BT_REPLY_BETWEEN;
    r->is_junk = false;
    if (r->is_begun) {
        r->is_begun = false;
        tell(r, BT_REPLY_INCOMPLETE, at, false, 0, 0);
        r->at = at;
    } else {
        bt_reply_tell_raw(r, r->body_at);
        r->at = r->body_at;
    }
}

/* ---- text between tags ------------------------------------------------------------------------------------------- */

size_t bt_reply_skip_space(const bt_reply *r, size_t at, size_t end)
{
    while (at < end && bt_value_is_space(r->output.data[at])) at++;
    return at;
}

static void on_start(bt_reply *r, size_t at, size_t end)
{
    if (bt_reply_skip_space(r, at, end) < end) r->state = r->starts_reasoning ? BT_REPLY_REASONS : BT_REPLY_ANSWERS;
    if (r->state == BT_REPLY_STARTS) return; /* white space so far: an echo of the opening tag may follow */
    bt_reply_tell_start(r, end);
}

void bt_reply_stray_text(bt_reply *r, size_t at, size_t end)
{
    if (!r->is_junk) {
        size_t junk = bt_reply_skip_space(r, at, end);
        bt_reply_tell_raw(r, junk);
        r->is_junk = junk < end;
    }
    if (r->is_junk) bt_reply_tell_content(r, end);
}

static void on_text(bt_reply *r, size_t at, size_t end)
{
    switch (r->state) {
    case BT_REPLY_STARTS:
        on_start(r, at, end);
        break;
    case BT_REPLY_REASONS:
        bt_reply_tell_text(r, BT_REPLY_REASONING, end);
        break;
    case BT_REPLY_ANSWERS:
        bt_reply_tell_content(r, end);
        break;
    case BT_REPLY_BETWEEN:
        bt_reply_stray_text(r, at, end);
        break;
    case BT_REPLY_HOLDS:
        break;
    default:
        bt_reply_body_text(r, at, end);
    }
}

/* ---- tags -------------------------------------------------------------------------------------------------------- */

/* A tag where text is expected: dropped, unless it opens a block of calls. */
static void tag_in_answer(bt_reply *r, bt_tag_kind kind, size_t end)
{
    bt_reply_tell_raw(r, end);
    if (kind == BT_TAG_CALLS_OPEN && !r->calls_off) {
        r->state = BT_REPLY_BETWEEN;
        r->is_junk = false;
    }
}

static void tag_in_reasoning(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end)
{
    if (kind == BT_TAG_THINK_CLOSE) {
        bt_reply_tell_raw(r, end);
        r->state = BT_REPLY_ANSWERS;
    } else if (kind == BT_TAG_STOP) {
        bt_reply_tell_raw(r, end);
    } else if (kind == BT_TAG_CALLS_OPEN && begin >= r->quoted_end) {
        r->state = BT_REPLY_HOLDS;
        r->held_at = begin;
    } else {
        bt_reply_tell_text(r, BT_REPLY_REASONING, end); /* a model may reason about tags */
    }
}

static void tag_at_start(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end)
{
    if (kind == BT_TAG_THINK_OPEN) {
        bt_reply_tell_raw(r, end); /* the prompt's tag said again, or reasoning where none was asked for */
        r->state = BT_REPLY_REASONS;
        return;
    }
    r->state = r->starts_reasoning ? BT_REPLY_REASONS : BT_REPLY_ANSWERS;
    bt_reply_tell_start(r, begin);
    if (r->starts_reasoning) {
        tag_in_reasoning(r, kind, begin, end);
    } else {
        tag_in_answer(r, kind, end);
    }
}

static void tag_between_calls(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end)
{
    r->is_junk = false;
    if (kind == BT_TAG_CALL_OPEN) {
        assert(r->given == begin);
        bt_reply_open_body(r, end);
        return;
    }
    bt_reply_tell_raw(r, end);
    if (kind == BT_TAG_CALLS_CLOSE) r->state = BT_REPLY_ANSWERS;
}

/* Tags that can only belong to the structure of calls, or end the turn; inside a call no text can hold them. */
static bool is_structure(bt_tag_kind kind)
{
    return kind != BT_TAG_THINK_OPEN && kind != BT_TAG_THINK_CLOSE && kind != BT_TAG_OTHER;
}

static void on_tag(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end)
{
    switch (r->state) {
    case BT_REPLY_STARTS:
        tag_at_start(r, kind, begin, end);
        break;
    case BT_REPLY_REASONS:
        tag_in_reasoning(r, kind, begin, end);
        break;
    case BT_REPLY_ANSWERS:
        tag_in_answer(r, kind, end);
        break;
    case BT_REPLY_BETWEEN:
        tag_between_calls(r, kind, begin, end);
        break;
    case BT_REPLY_HOLDS:
        if (kind != BT_TAG_THINK_CLOSE) break;
        r->state = BT_REPLY_REASONS; /* all of it was reasoning */
        r->quoted_end = begin;
        r->at = r->held_at;
        break;
    default:
        if (!is_structure(kind)) {
            bt_reply_body_text(r, begin, end);
        } else if (bt_reply_body_tag(r, kind, begin, end)) {
            bt_reply_finish_call(r, end);
        }
    }
}

/* ---- the lexer --------------------------------------------------------------------------------------------------- */

/* Bytes at the end that may be part of a character. */
static size_t partial_bytes(const bt_reply *r)
{
    for (size_t n = 1; n <= 3 && n <= r->output.size; n++) {
        unsigned char c = (unsigned char)r->output.data[r->output.size - n];
        if (c < 0x80) return 0;
        if (c >= 0xc0) return bt_utf8_is_partial(r->output.data + r->output.size - n, n) ? n : 0;
    }
    return 0;
}

/* Text [at, end) without a tag in it. */
static void read_text(bt_reply *r, size_t at, size_t end)
{
    r->at = end;
    r->n_steps += end - at;
    if (r->grammar->machine != NULL) {
        r->grammar->machine->text(r, at, end);
    } else {
        on_text(r, at, end);
    }
}

/* false: it cannot be told yet what it is. */
static bool read_tag(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end)
{
    if (r->grammar->machine != NULL) return r->grammar->machine->tag(r, kind, begin, end);
    r->at = end;
    on_tag(r, kind, begin, end);
    return true;
}

/* Reads as far as can be read now. */
static void read_on(bt_reply *r)
{
    const size_t size = r->output.size - (r->is_finished ? 0 : partial_bytes(r));
    while (r->at < size && !r->failed) {
        const size_t at = r->at;
        const char *open = r->grammar->n_tags == 0 ? NULL : memchr(r->output.data + at, '<', size - at);
        bt_tag_kind kind = BT_TAG_OTHER;
        size_t tag_size = 0;
        if (open == NULL) {
            read_text(r, at, size);
        } else if (open > r->output.data + at) {
            read_text(r, at, (size_t)(open - r->output.data));
        } else {
            r->n_steps += TAG_BYTES_MAX;
            bt_found what = bt_find_tag(r->grammar, open, r->output.size - at, &kind, &tag_size);
            if (what == BT_FOUND_PART) return;
            if (what == BT_FOUND_NONE) {
                read_text(r, at, at + 1);
            } else if (!read_tag(r, kind, at, at + tag_size)) {
                return;
            }
        }
    }
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Part of a tag at the end. Of an output that ended by itself one or two bytes are text ("if a <"); more, or what a
 * limit cut off, is a tag that did not get to its end. */
static void settle_part(bt_reply *r, bool is_cut)
{
    size_t n = r->output.size - r->at;
    if (n == 0) return;
    if (!is_cut && n <= 2) {
        read_text(r, r->at, r->output.size);
        return;
    }
    switch (r->state) {
    case BT_REPLY_STARTS: /* the white space before it is text all the same */
        bt_reply_tell_start(r, r->at);
        r->state = r->starts_reasoning ? BT_REPLY_REASONS : BT_REPLY_ANSWERS;
        bt_reply_tell_raw(r, r->output.size);
        break;
    case BT_REPLY_REASONS:
    case BT_REPLY_ANSWERS:
    case BT_REPLY_OUTSIDE:
    case BT_REPLY_BETWEEN:
    case BT_REPLY_ENDED:
        bt_reply_tell_raw(r, r->output.size);
        break;
    default: /* inside a call: it goes with the call */
        break;
    }
    r->at = r->output.size;
}

static void finish(bt_reply *r, bool is_cut)
{
    r->is_finished = true;
    read_on(r);
    if (r->state == BT_REPLY_HOLDS) { /* no closer came: reasoning ended before the calls */
        r->state = BT_REPLY_ANSWERS;
        r->at = r->held_at;
        read_on(r);
    }
    /* Text may break a call, and then be read again. */
    while (r->at < r->output.size && !r->failed) {
        settle_part(r, is_cut);
        read_on(r);
    }
    if (r->state == BT_REPLY_STARTS) {
        bt_reply_tell_start(r, r->output.size);
        if (r->starts_reasoning) r->state = BT_REPLY_REASONS;
    }
    bool in_call = r->state >= BT_REPLY_BODY;
    if (in_call && r->is_begun) tell(r, BT_REPLY_INCOMPLETE, r->output.size, false, 0, 0);
    if (in_call) bt_reply_tell_raw(r, r->output.size); /* not even its name was complete */
    r->is_begun = false;
    if (is_cut || in_call || r->state == BT_REPLY_REASONS || r->is_unanswered) {
        r->finish_reason = "length";
    } else {
        r->finish_reason = r->n_done > 0 ? "tool_calls" : "stop";
    }
    assert(r->failed || r->given == r->output.size);
}

/* ---- the door ---------------------------------------------------------------------------------------------------- */

bt_status bt_reply_open_with(const bt_grammar *g, const bt_reply_options *o, bt_reply **out, bt_error *e)
{
    bt_reply *r = bt_calloc(1, sizeof *r);
    if (r == NULL) return no_memory(e);
    r->grammar = g;
    r->starts_reasoning = o->is_reasoning && g->n_tags > 0;
    r->calls_off = o->calls_off;
    r->next_call = o->next_call;
    r->finish_reason = "length";
    bt_status st = BT_OK;
    if (o->tools != NULL) {
        r->arena = bt_arena_new();
        st = r->arena == NULL ? no_memory(e) : bt_json_parse(r->arena, o->tools, o->tools_size, 0, &r->tools, e);
    }
    if (st == BT_OK) {
        *out = r;
    } else {
        bt_reply_close(r);
    }
    return st;
}

void bt_reply_close(bt_reply *r)
{
    if (r == NULL) return;
    bt_text_free(&r->output);
    bt_text_free(&r->reasoning);
    bt_text_free(&r->content);
    bt_text_free(&r->made);
    bt_text_free(&r->argument);
    bt_free(r->calls);
    bt_free(r->events);
    bt_free(r->given_events);
    bt_free(r->keys);
    bt_arena_free(r->arena);
    bt_free(r);
}

/* Events as the caller sees them: with pointers, which nothing moves before the next call. */
static bt_status give_events(bt_reply *r, const bt_reply_event **events, size_t *n, bt_error *e)
{
    bool ok = bt_text_ok(&r->output) && bt_text_ok(&r->reasoning) && bt_text_ok(&r->content) && bt_text_ok(&r->made) &&
              bt_text_ok(&r->argument);
    r->failed |= !ok;
    if (r->failed) return no_memory(e);
    if (r->n_events > r->given_capacity) {
        bt_reply_event *more = bt_realloc(r->given_events, r->events_capacity, sizeof *more);
        if (more == NULL) {
            r->failed = true;
            return no_memory(e);
        }
        r->given_events = more;
        r->given_capacity = r->events_capacity;
    }
    for (size_t i = 0; i < r->n_events; i++) {
        const bt_pending *p = &r->events[i];
        r->given_events[i] = p->event;
        r->given_events[i].text = p->event.size == 0 ? "" : (p->is_made ? r->made.data : r->output.data) + p->at;
    }
    *events = r->given_events;
    *n = r->n_events;
    return BT_OK;
}

bt_status bt_reply_push(bt_reply *r, const char *text, size_t size, const bt_reply_event **events, size_t *n,
                        bt_error *e)
{
    assert(!r->is_finished);
    r->n_events = 0;
    if (r->failed) return no_memory(e);
    if (text == NULL && size > 0)
        return bt_fail(e, BT_ERR_USAGE, "a text of %zu bytes is announced but none is given", size);
    if (size > OUTPUT_BYTES_MAX - r->output.size)
        return bt_fail(e, BT_ERR_USAGE, "an answer of more than %zu bytes", OUTPUT_BYTES_MAX);
    bt_text_add(&r->output, text, size);
    r->failed |= !bt_text_ok(&r->output);
    if (!r->failed) read_on(r);
    return give_events(r, events, n, e);
}

bt_status bt_reply_finish(bt_reply *r, bool is_cut, const bt_reply_event **events, size_t *n, bt_error *e)
{
    assert(!r->is_finished);
    r->n_events = 0;
    bt_text_add(&r->output, "", 0);
    r->failed |= !bt_text_ok(&r->output);
    if (!r->failed) finish(r, is_cut);
    return give_events(r, events, n, e);
}

uint64_t bt_reply_n_steps(const bt_reply *r)
{
    return r->n_steps;
}

const char *bt_reply_finish_reason(const bt_reply *r)
{
    return r->finish_reason;
}

/* ---- the message ------------------------------------------------------------------------------------------------- */

static void add_string(bt_text *t, const char *data, size_t size)
{
    bt_text_json_string(t, size == 0 ? "" : data, size);
}

static void add_calls(const bt_reply *r, const char *id_prefix, bt_text *t)
{
    bt_text_puts(t, ", \"tool_calls\": [");
    size_t n = 0;
    for (const bt_reply_call *call = r->calls; call < r->calls + r->n_calls; call++) {
        if (!call->is_done) continue;
        bt_text id = {0};
        bt_text_printf(&id, "%s%zu", id_prefix, r->next_call + n);
        bt_text_puts(t, n++ == 0 ? "{\"id\": " : ", {\"id\": ");
        add_string(t, id.data, id.size);
        bt_text_puts(t, ", \"type\": \"function\", \"function\": {\"name\": ");
        add_string(t, r->made.data + call->name_at, call->name_size);
        bt_text_puts(t, ", \"arguments\": ");
        add_string(t, r->made.data + call->arguments_at, call->arguments_size);
        bt_text_puts(t, "}}");
        t->failed |= !bt_text_ok(&id);
        bt_text_free(&id);
    }
    bt_text_puts(t, "]");
}

bt_status bt_reply_message(const bt_reply *r, const char *id_prefix, char **json, size_t *size, bt_error *e)
{
    bt_text t = {0};
    if (id_prefix == NULL) return bt_fail(e, BT_ERR_USAGE, "the ids of calls have no prefix; \"\" makes them numbers");
    bt_text_puts(&t, "{\"role\": \"assistant\", \"content\": ");
    add_string(&t, r->content.data, r->content.size);
    bt_text_puts(&t, ", \"reasoning_content\": ");
    add_string(&t, r->reasoning.data, r->reasoning.size);
    if (r->n_done > 0) add_calls(r, id_prefix, &t);
    bt_text_puts(&t, "}");
    if (!bt_text_ok(&t)) {
        bt_text_free(&t);
        return no_memory(e);
    }
    *json = t.data;
    *size = t.size;
    return BT_OK;
}
