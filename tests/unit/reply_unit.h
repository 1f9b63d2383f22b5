/*
 * What the tests of replies share: feeding an output in pieces while checking what must hold for every output; shapes
 * of outputs and what becomes of them; what is told after each piece; random cuts; growth.
 */
#ifndef TESTS_REPLY_UNIT_H
#define TESTS_REPLY_UNIT_H

#include "chat_unit.h"

#include "base/rng.h"
#include "text/output.h"

typedef struct unit_reply { /* what came of one output */
    bt_text reasoning, content;
    bt_text calls;  /* "NAME ARGUMENTS\n" of each complete one */
    bt_text ranges; /* one letter for each byte: r, c, C (call), . (raw), x (incomplete) */
    char *message;
    char finish[16];
    size_t n_calls, n_incomplete;
    bt_text name, arguments; /* of the open call */
    bool is_open;
} unit_reply;

static inline void unit_reply_free(unit_reply *u)
{
    bt_text *const texts[] = {&u->reasoning, &u->content, &u->calls, &u->ranges, &u->name, &u->arguments};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) bt_text_free(texts[i]);
    bt_free(u->message);
    *u = (unit_reply){0};
}

static inline void unit_reply_event(unit_reply *u, const bt_reply_event *v, const char *output, size_t *at)
{
    static const char letters[] = "rc  Cx.";
    assert_int_equal(v->begin, *at);
    assert_true(v->end >= v->begin);
    for (size_t i = v->begin; i < v->end; i++) bt_text_add(&u->ranges, &letters[v->kind], 1);
    *at = v->end;
    switch (v->kind) {
    case BT_REPLY_REASONING:
    case BT_REPLY_CONTENT:
        assert_int_equal(v->size, v->end - v->begin);
        assert_memory_equal(v->text, output + v->begin, v->size);
        bt_text_add(v->kind == BT_REPLY_CONTENT ? &u->content : &u->reasoning, v->text, v->size);
        break;
    case BT_REPLY_CALL:
        assert_false(u->is_open);
        assert_int_equal(v->begin, v->end);
        assert_int_equal(v->call_i, u->n_calls + u->n_incomplete);
        u->is_open = true;
        u->name.size = u->arguments.size = 0;
        bt_text_add(&u->name, v->text, v->size);
        bt_text_add(&u->arguments, "", 0);
        break;
    case BT_REPLY_ARGUMENTS:
        assert_true(u->is_open);
        assert_int_equal(v->begin, v->end);
        bt_text_add(&u->arguments, v->text, v->size);
        break;
    case BT_REPLY_CALL_DONE:
    case BT_REPLY_INCOMPLETE:
        assert_true(u->is_open);
        u->is_open = false;
        if (v->kind == BT_REPLY_INCOMPLETE) {
            u->n_incomplete++;
            break;
        }
        assert_int_equal(v->call_i, u->n_calls + u->n_incomplete);
        u->n_calls++;
        bt_text_add(&u->calls, u->name.data, u->name.size);
        bt_text_add(&u->calls, " ", 1);
        bt_text_add(&u->calls, u->arguments.data, u->arguments.size);
        bt_text_add(&u->calls, "\n", 1);
        break;
    case BT_REPLY_RAW:
        assert_int_equal(v->size, 0);
        break;
    }
}

/* The pieces end at cuts[0] < cuts[1] < ...; the last one at size. */
static inline unit_reply unit_read_reply_of(const char *family, const bt_reply_options *o, const char *output,
                                            size_t size, const size_t *cuts, size_t n_cuts, bool is_cut)
{
    unit_reply u = {0};
    bt_reply *r = NULL;
    bt_error e;
    size_t at = 0, from = 0, n, message_size;
    const bt_reply_event *events;
    if (bt_reply_open_with(bt_grammar_of(family), o, &r, &e) != BT_OK) fail_msg("%s", e.message);
    for (size_t i = 0; i <= n_cuts; i++) {
        size_t to = i < n_cuts ? cuts[i] : size;
        if (bt_reply_push(r, output + from, to - from, &events, &n, &e) != BT_OK) fail_msg("%s", e.message);
        from = to;
        for (size_t k = 0; k < n; k++) unit_reply_event(&u, &events[k], output, &at);
        assert_true(at <= to);
    }
    if (bt_reply_finish(r, is_cut, &events, &n, &e) != BT_OK) fail_msg("%s", e.message);
    for (size_t k = 0; k < n; k++) unit_reply_event(&u, &events[k], output, &at);
    assert_int_equal(at, size);
    assert_false(u.is_open);
    assert_int_equal(bt_reply_message(r, "call_", &u.message, &message_size, &e), BT_OK);
    (void)snprintf(u.finish, sizeof u.finish, "%s", bt_reply_finish_reason(r));
    bt_text *const texts[] = {&u.reasoning, &u.content, &u.calls, &u.ranges};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) bt_text_add(texts[i], "", 0);
    bt_reply_close(r);
    return u;
}

static inline unit_reply unit_read_reply(const bt_reply_options *o, const char *output, size_t size, const size_t *cuts,
                                         size_t n_cuts, bool is_cut)
{
    return unit_read_reply_of("k2_horizon", o, output, size, cuts, n_cuts, is_cut);
}

static inline void unit_expect_same(const unit_reply *a, const unit_reply *b)
{
    assert_string_equal(a->message, b->message);
    assert_string_equal(a->ranges.data, b->ranges.data);
    assert_string_equal(a->finish, b->finish);
    assert_int_equal(a->n_incomplete, b->n_incomplete);
}

static inline bool unit_holds_tag_of(const char *family, const char *text, size_t size)
{
    const bt_grammar *g = bt_grammar_of(family);
    for (size_t i = 0; i < g->n_tags; i++) {
        if (size > 0 && memmem(text, size, g->tags[i].text, strlen(g->tags[i].text)) != NULL) return true;
    }
    return false;
}

static inline bool unit_holds_tag(const char *text, size_t size)
{
    return unit_holds_tag_of("k2_horizon", text, size);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* An output, whether it was cut off, and what becomes of it. */
typedef struct unit_shape {
    const char *output;
    bool is_cut;
    const char *reasoning, *content, *calls, *finish;
    size_t n_incomplete;
} unit_shape;

static inline void unit_expect_shape(const unit_reply *u, const unit_shape *s)
{
    if (strcmp(u->reasoning.data, s->reasoning) == 0 && strcmp(u->content.data, s->content) == 0 &&
        strcmp(u->calls.data, s->calls) == 0 && strcmp(u->finish, s->finish) == 0 && u->n_incomplete == s->n_incomplete)
        return;
    fail_msg("\"%s\" became reasoning \"%s\", content \"%s\", calls \"%s\", %zu incomplete, finish %s", s->output,
             u->reasoning.data, u->content.data, u->calls.data, u->n_incomplete, u->finish);
}

/* What is told after each piece: nothing waits that could be told. */
static inline void unit_expect_told(const char *family, const bt_reply_options *o, const char *const *pieces,
                                    const char *const *told, size_t n)
{
    bt_reply *r = NULL;
    bt_error e;
    const bt_reply_event *events;
    size_t n_events;
    assert_int_equal(bt_reply_open_with(bt_grammar_of(family), o, &r, &e), BT_OK);
    for (size_t i = 0; i < n; i++) {
        bt_text t = {0};
        bt_text_puts(&t, "");
        assert_int_equal(bt_reply_push(r, pieces[i], strlen(pieces[i]), &events, &n_events, &e), BT_OK);
        for (size_t k = 0; k < n_events; k++) {
            if (events[k].kind != BT_REPLY_RAW) bt_text_add(&t, events[k].text, events[k].size);
        }
        assert_string_equal(t.data, told[i]);
        bt_text_free(&t);
    }
    assert_int_equal(bt_reply_finish(r, false, &events, &n_events, &e), BT_OK);
    bt_reply_close(r);
}

/* Tags begin with the only '<' in them, are short, and none is the start of another. */
static inline void unit_check_tags(const bt_grammar *g)
{
    for (size_t i = 0; i < g->n_tags; i++) {
        const char *tag = g->tags[i].text;
        assert_int_equal(tag[0], '<');
        assert_true(strlen(tag) < 64);
        assert_null(strchr(tag + 1, '<'));
        for (size_t k = 0; k < g->n_tags; k++) {
            if (k != i) assert_int_not_equal(strncmp(tag, g->tags[k].text, strlen(tag)), 0);
        }
    }
}

/* ---- chance and growth ------------------------------------------------------------------------------------------- */

typedef struct unit_draws { /* numbers from a seed, drawn one by one */
    uint64_t seed, n;
} unit_draws;

static inline size_t unit_below(unit_draws *d, size_t n)
{
    return n == 0 ? 0 : (size_t)(bt_rng_u64(d->seed, d->n++) % n);
}

/* The same whole and in pieces cut anywhere, and no tag is left in its content. */
static inline unit_reply unit_read_reply_anyhow(const char *family, const bt_reply_options *o, const bt_text *output,
                                                unit_draws *d)
{
    bool is_cut = unit_below(d, 2) == 0;
    size_t cuts[4] = {0}, n_cuts = 0;
    for (size_t at = unit_below(d, output->size + 1); n_cuts < 4 && at < output->size;
         at += 1 + unit_below(d, output->size)) {
        cuts[n_cuts++] = at;
    }
    unit_reply whole = unit_read_reply_of(family, o, output->data, output->size, NULL, 0, is_cut);
    unit_reply u = unit_read_reply_of(family, o, output->data, output->size, cuts, n_cuts, is_cut);
    unit_expect_same(&u, &whole);
    if (unit_holds_tag_of(family, u.content.data, u.content.size))
        fail_msg("a tag in \"%s\" of \"%s\"", u.content.data, output->data);
    unit_reply_free(&whole);
    return u;
}

/* Steps a byte, of reading `head` and then `part` again and again up to `size` bytes, byte by byte. */
static inline double unit_steps_per_byte(const char *family, const bt_reply_options *o, const char *head,
                                         const char *part, size_t size)
{
    bt_text t = {0};
    bt_reply *r = NULL;
    bt_error e;
    const bt_reply_event *events;
    size_t n;
    bt_text_puts(&t, head);
    while (t.size < size) bt_text_puts(&t, part);
    assert_int_equal(bt_reply_open_with(bt_grammar_of(family), o, &r, &e), BT_OK);
    for (size_t i = 0; i < t.size; i++) assert_int_equal(bt_reply_push(r, t.data + i, 1, &events, &n, &e), BT_OK);
    assert_int_equal(bt_reply_finish(r, false, &events, &n, &e), BT_OK);
    double steps = (double)bt_reply_n_steps(r) / (double)t.size;
    bt_reply_close(r);
    bt_text_free(&t);
    return steps;
}

#endif
