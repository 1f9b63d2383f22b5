/* An answer; see answer.h. */
#include "tool/answer.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static bool holds(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

bt_status bt_answer_end_ids(const bt_model *m, const bt_tokenizer *t, const bt_chat *c, int32_t **ids, size_t *n,
                            bt_text *dropped, bt_error *e)
{
    size_t n_model, n_chat, used = 0;
    const int32_t *of_model = bt_model_end_ids(m, &n_model), *of_chat = bt_chat_end_ids(c, &n_chat);
    int32_t *out = bt_malloc(n_model + n_chat + 1, sizeof *out);
    if (out == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for %zu end ids", n_model + n_chat);
    for (size_t i = 0; i < n_model; i++) {
        if (bt_tokenizer_is_added(t, of_model[i]))
            out[used++] = of_model[i];
        else
            bt_text_printf(dropped, "%s%d", dropped->size > 0 ? ", " : "", (int)of_model[i]);
    }
    for (size_t i = 0; i < n_chat; i++)
        if (!holds(out, used, of_chat[i])) out[used++] = of_chat[i];
    *ids = out;
    *n = used;
    return BT_OK;
}

/* ---- what the session knows -------------------------------------------------------------------------------------- */

bt_status bt_answer_fits(const bt_prompt *p, size_t context, size_t n_max, bt_error *e)
{
    if (p->n_ids < context || (p->n_ids == context && n_max == 0)) return BT_OK;
    return bt_fail(
        e, BT_ERR_CONTEXT,
        "the conversation has %zu tokens and the context holds %zu, which leaves no room for an answer: raise "
        "--context, as far as the model goes, or shorten the conversation",
        p->n_ids, context);
}

/* One id of the prompt is left over, to get logits from, unless they are there. */
bt_status bt_answer_keep_known(bt_session *s, const bt_prompt *p, size_t *n_known, const bt_hook *reading, bt_error *e)
{
    const int32_t *ids = bt_session_ids(s);
    size_t length = bt_session_length(s), n = 0;
    while (n < length && n < p->n_ids && ids[n] == p->ids[n]) n++;
    bool has_logits = n == length && bt_session_logits(s) != NULL;
    if (n == p->n_ids && !has_logits) n--;
    *n_known = n;
    return n < length ? bt_session_rewind(s, n, reading, e) : BT_OK;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

typedef struct answering {
    const bt_answer_options *o;
    bt_reply *reply;
    bt_status status; /* of the reply */
    bt_error *error;
} answering;

static bool tell(answering *w, const bt_reply_event *events, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!w->o->event(w->o->user, &events[i])) return false;
    return true;
}

static bool read_text(void *user, const char *text, size_t size)
{
    answering *w = user;
    const bt_reply_event *events;
    size_t n;
    w->status = bt_reply_push(w->reply, text, size, &events, &n, w->error);
    return w->status == BT_OK && tell(w, events, n);
}

/* Ends the reply, whose last events may come only now, and takes its message. */
static bt_status settle(answering *w, bt_answer *out)
{
    const bt_reply_event *events;
    size_t n;
    bool is_cut = out->made.finish != BT_FINISH_END_TOKEN && out->made.finish != BT_FINISH_STOP;
    bt_status st = w->status;
    if (st == BT_OK) st = bt_reply_finish(w->reply, is_cut, &events, &n, w->error);
    if (st != BT_OK) return st;
    (void)tell(w, events, n);
    const char *reason = bt_reply_finish_reason(w->reply);
    out->finish_reason = strcmp(reason, "tool_calls") == 0 ? "tool_calls"
                         : strcmp(reason, "stop") == 0     ? "stop"
                                                           : "length";
    return bt_reply_message(w->reply, "call_", &out->message, &out->size, w->error);
}

bt_status bt_answer_make(const bt_prompt *p, const bt_answer_options *o, bt_answer *out, bt_error *e)
{
    assert(p->ids != NULL);
    *out = (bt_answer){.n_prompt = p->n_ids, .finish_reason = "length"};
    if (p->n_ids == 0) return bt_fail(e, BT_ERR_USAGE, "the conversation is empty: it has no token");
    bt_status st = bt_answer_fits(p, o->context, o->n_max, e);
    if (st == BT_OK) st = bt_answer_keep_known(o->session, p, &out->n_known, o->reading, e);
    if (st == BT_ERR_CANCELLED) {
        out->made.finish = BT_FINISH_STOPPED; /* as where the rest of the prompt is stopped */
        return BT_OK;
    }
    if (st != BT_OK) return st;
    answering w = {.o = o, .status = BT_OK, .error = e};
    st = bt_reply_open(o->chat, p, &w.reply, e);
    if (st != BT_OK) return st;
    const bt_generate_options g = {
        .tokenizer = o->tokenizer,
        .prompt = p->ids,
        .n_prompt = p->n_ids,
        .n_known = out->n_known,
        .context = o->context,
        .n_max = o->n_max,
        .sampling = o->sampling,
        .end_ids = o->end_ids,
        .n_end_ids = o->n_end_ids,
        .stops = o->stops,
        .n_stops = o->n_stops,
        .decode_flags = BT_TEXT_SPECIAL, /* tags may be special tokens */
        .reading = o->reading,
        .writing = o->writing,
        .text = read_text,
        .user = &w,
    };
    st = bt_generate(o->session, o->n_vocab, &g, &out->made, e);
    if (out->made.n_ids > 0 || (st == BT_OK && out->made.finish != BT_FINISH_STOPPED)) {
        bt_error later; /* the first fault is the one to tell */
        if (st != BT_OK) w.error = &later;
        bt_status settled = settle(&w, out);
        if (st == BT_OK) st = settled;
    }
    bt_reply_close(w.reply);
    return st;
}

void bt_answer_free(bt_answer *a)
{
    bt_free(a->made.ids);
    bt_free(a->message);
    *a = (bt_answer){.n_prompt = 0};
}
