/* Generation; see generate.h. */
#include "tool/generate.h"

#include <assert.h>
#include <time.h>

#include "base/error.h"

typedef struct generation {
    const bt_generate_options *o;
    bt_generated *out;
    bt_session *session;
    bt_sampler *sampler;
    bt_decoder *decoder;
    bt_stop *stop; /* NULL: no stop strings */
    size_t budget;
    bool is_closed; /* the text function said no */
} generation;

const char *bt_finish_name(bt_finish f)
{
    static const char *const names[] = {
        [BT_FINISH_END_TOKEN] = "end token", [BT_FINISH_STOP] = "stop string", [BT_FINISH_LENGTH] = "length",
        [BT_FINISH_CONTEXT] = "context",     [BT_FINISH_STOPPED] = "stopped",  [BT_FINISH_FAILED] = "error",
    };
    return names[f];
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void say(generation *g, const char *text, size_t size)
{
    if (size > 0 && !g->is_closed && !g->o->text(g->o->user, text, size)) g->is_closed = true;
}

/* Text through the stop strings; true if one was met. */
static bool pass(generation *g, const char *text, size_t size)
{
    if (g->stop == NULL) {
        say(g, text, size);
        return false;
    }
    const char *free_text;
    size_t free_size;
    bool is_met = bt_stop_push(g->stop, text, size, &free_text, &free_size);
    say(g, free_text, free_size);
    return is_met;
}

/* Says the text of an id; true if a stop string was met. A model's vocabulary may be padded with ids that the tokenizer
 * does not know: they have no text, and the text goes on. */
static bool say_id(generation *g, int32_t id)
{
    const char *text;
    size_t size;
    if (bt_decoder_push(g->decoder, id, &text, &size, NULL) == BT_OK) return pass(g, text, size);
    g->out->n_without_text++;
    return false;
}

/* What decoder and stop strings held back: said however the text ended, unless a stop string ended it. */
static void say_rest(generation *g)
{
    const char *text;
    size_t size;
    bt_decoder_finish(g->decoder, &text, &size);
    if (pass(g, text, size)) {
        g->out->finish = BT_FINISH_STOP;
        return;
    }
    if (g->stop == NULL) return;
    bt_stop_finish(g->stop, &text, &size);
    say(g, text, size);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static bool is_end(const bt_generate_options *o, int32_t id)
{
    for (size_t i = 0; i < o->n_end_ids; i++)
        if (o->end_ids[i] == id) return true;
    return false;
}

/* Chooses ids until something ends the text. Each is counted, said, and then computed upon, if there is a next one. */
static bt_status choose_ids(generation *g, double begin, bt_error *e)
{
    const bt_generate_options *o = g->o;
    bt_generated *out = g->out;
    for (;;) {
        if (out->n_ids == g->budget) {
            out->finish = g->budget == o->n_max ? BT_FINISH_LENGTH : BT_FINISH_CONTEXT;
            return BT_OK;
        }
        out->finish = BT_FINISH_STOPPED;
        if (g->is_closed || !o->writing.keep_going(o->writing.user, out->n_ids, g->budget)) return BT_OK;
        int32_t id;
        bt_status st = bt_sampler_next(g->sampler, bt_session_logits(g->session), &id, e);
        if (st != BT_OK) return bt_fail_in(e, st, "after %zu tokens", bt_session_length(g->session));
        if (out->n_ids == 0) out->first_seconds = out->prompt_seconds + now() - begin;
        if (is_end(o, id)) {
            out->finish = BT_FINISH_END_TOKEN;
            out->end_id = id;
            return BT_OK;
        }
        out->ids[out->n_ids++] = id;
        if (say_id(g, id)) {
            out->finish = BT_FINISH_STOP;
            return BT_OK;
        }
        if (out->n_ids < g->budget) st = bt_session_extend(g->session, &id, 1, NULL, e);
        if (st != BT_OK) return st;
    }
}

static bt_status continue_text(generation *g, bt_error *e)
{
    double begin = now();
    bt_status st = choose_ids(g, begin, e);
    g->out->output_seconds = now() - begin; /* however it ended, the last id took its time too */
    return st;
}

static bt_status compute_prompt(generation *g, bt_error *e)
{
    const bt_generate_options *o = g->o;
    double begin = now();
    size_t n = o->n_prompt - o->n_known;
    if (n > 0) {
        bt_status st = bt_session_extend(g->session, o->prompt + o->n_known, n, o->reading, e);
        if (st != BT_OK) return st;
    }
    for (size_t i = 0; i < o->n_prompt; i++) bt_sampler_accept(g->sampler, o->prompt[i]);
    g->out->prompt_seconds = now() - begin;
    return BT_OK;
}

bt_status bt_generate(bt_session *s, size_t n_vocab, const bt_generate_options *o, bt_generated *out, bt_error *e)
{
    assert(o->n_prompt >= 1 && o->n_prompt <= o->context);
    assert(o->n_known <= o->n_prompt);
    assert(bt_session_length(s) == o->n_known);
    *out = (bt_generated){.finish = BT_FINISH_STOPPED};
    generation g = {.o = o, .out = out, .session = s};
    size_t room = o->context - o->n_prompt;
    g.budget = o->n_max < room ? o->n_max : room;
    out->ids = bt_malloc(g.budget + 1, sizeof *out->ids);
    if (out->ids == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for %zu tokens", g.budget);
    bt_status st = bt_sampler_open(n_vocab, &o->sampling, &g.sampler, e);
    if (st == BT_OK) st = bt_decoder_open(o->tokenizer, o->decode_flags, &g.decoder, e);
    if (st == BT_OK && o->n_stops > 0) st = bt_stop_open(o->stops, o->n_stops, &g.stop, e);
    if (st == BT_OK) st = compute_prompt(&g, e);
    if (st == BT_OK) {
        st = continue_text(&g, e);
        if (st != BT_OK) out->finish = BT_FINISH_FAILED;
        if (st != BT_OK || out->finish != BT_FINISH_STOP) say_rest(&g);
    } else if (st == BT_ERR_CANCELLED) {
        st = BT_OK; /* finish says it */
    }
    bt_stop_close(g.stop);
    bt_decoder_close(g.decoder);
    bt_sampler_close(g.sampler);
    return st;
}
