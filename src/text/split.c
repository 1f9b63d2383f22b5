/*
 * Splits, with PCRE2 as the matcher.
 *
 * The matcher tries one position at a time, and is shown a window of the text that begins small and doubles only when
 * it runs into the window's end (partial matching tells). So the bytes shown add up to a small multiple of the text for
 * any sane pattern, and a budget on them turns an insane one (quadratic over a long run) into an error instead of a
 * hang; the match limit does that for what happens inside a window. Patterns of models match at every position, so that
 * leaving the search to PCRE2 would win nothing.
 *
 * Further traps that are closed here: the text is checked once and every match runs with PCRE2_NO_UTF_CHECK, else each
 * would check the whole text again; the JIT's stack can end (-46) where the interpreter, on the heap, gets through, so
 * that is where such a match goes. Where executable memory is forbidden, there is no JIT and everything still works.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split.h"

#include <assert.h>
#include <pcre2.h>

#include "base/arena.h"
#include "base/error.h"
#include "text/pattern.h"

#define WINDOW_BYTES_MIN     64
#define SHOWN_PER_BYTE_MAX   512     /* sane patterns need up to WINDOW_BYTES_MIN (pieces of one byte) and a few more */
#define SHOWN_BYTES_MIN      1048576 /* and short texts need not be that strict */
#define JIT_STACK_BYTES      32768
#define JIT_STACK_BYTES_MAX  1048576
#define MATCH_LIMIT_PER_BYTE 64
#define MATCH_LIMIT_MIN      1000000
#define HEAP_KIB_MIN         20000 /* for the interpreter; beyond it a KiB per byte of text */
#define HEAP_KIB_MAX         2097152

struct bt_splitter {
    pcre2_code *code;
    pcre2_code *counted; /* the same pattern, reporting every step (tests of growth) */
    bt_split_behavior behavior;
    bool invert;
};

struct bt_splitting {
    pcre2_general_context *general;
    pcre2_match_context *context;
    pcre2_match_data *match;
    pcre2_jit_stack *jit_stack; /* NULL: the JIT then has 32 KiB of the machine's stack */
    bool counted;
    uint64_t n_shown, n_shown_max; /* bytes */
    size_t counted_at;             /* where the matcher was last seen */
    uint64_t n_steps;
};

bt_status bt_spans_add(bt_spans *list, size_t at, size_t size, bt_error *e)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        bt_span *data = bt_realloc(list->data, capacity, sizeof *data);
        if (data == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for %zu pieces of text", capacity);
        list->data = data;
        list->capacity = capacity;
    }
    list->data[list->n++] = (bt_span){.at = at, .size = size};
    return BT_OK;
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static void *pcre2_allocate(size_t size, void *user)
{
    (void)user;
    return bt_malloc(size, 1);
}

static void pcre2_release(void *p, void *user)
{
    (void)user;
    bt_free(p);
}

static bt_status no_memory(bt_error *e)
{
    return bt_fail(e, BT_ERR_MEMORY, "no memory to split text");
}

static bt_status compile(pcre2_compile_context *context, const bt_text *pattern, uint32_t options, pcre2_code **out,
                         bt_error *e)
{
    int error;
    PCRE2_SIZE at;
    uint32_t all = PCRE2_UTF | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C | options;
    *out = pcre2_compile((PCRE2_SPTR)pattern->data, pattern->size, all, &error, &at, context);
    if (*out != NULL) return BT_OK;
    if (error == PCRE2_ERROR_HEAP_FAILED) return no_memory(e);
    char reason[256] = "";
    (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
    return bt_fail(e, BT_ERR_UNSUPPORTED, "split pattern: %s (in \"%.500s\")", reason, pattern->data);
}

static bt_status compile_both(bt_splitter *s, const bt_text *pattern, bt_error *e)
{
    pcre2_general_context *general = pcre2_general_context_create(pcre2_allocate, pcre2_release, NULL);
    pcre2_compile_context *context = general == NULL ? NULL : pcre2_compile_context_create(general);
    bt_status st = BT_OK;
    if (context == NULL || pcre2_set_newline(context, PCRE2_NEWLINE_LF) != 0) st = no_memory(e);
    if (st == BT_OK) st = compile(context, pattern, 0, &s->code, e);
    if (st == BT_OK) st = compile(context, pattern, PCRE2_AUTO_CALLOUT, &s->counted, e);
    /* A refusal is not an error: pcre2_match then interprets. */
    if (st == BT_OK) (void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return st;
}

bt_status bt_splitter_open(const char *pattern, size_t n, bool literal, bt_split_behavior behavior, bool invert,
                           bt_splitter **out, bt_error *e)
{
    bt_text translated = {0};
    bt_status st = BT_OK;
    bt_splitter *s = bt_calloc(1, sizeof *s);
    if (s == NULL) return no_memory(e);
    s->behavior = behavior;
    s->invert = invert;
    if (literal) {
        bt_pattern_quote(pattern, n, &translated);
        if (n == 0) st = bt_fail(e, BT_ERR_UNSUPPORTED, "split pattern: an empty text to split at");
        if (translated.failed) st = no_memory(e);
    } else {
        st = bt_pattern_translate(pattern, n, &translated, e);
    }
    if (st == BT_OK) st = compile_both(s, &translated, e);
    bt_text_free(&translated);
    if (st == BT_OK) {
        *out = s;
    } else {
        bt_splitter_close(s);
    }
    return st;
}

void bt_splitter_close(bt_splitter *s)
{
    if (s == NULL) return;
    pcre2_code_free(s->code);
    pcre2_code_free(s->counted);
    bt_free(s);
}

/* ---- scratch ----------------------------------------------------------------------------------------------------- */

/* Called before every item of the pattern, again after every step back: what lies between two calls was touched. */
static int count_step(pcre2_callout_block *block, void *user)
{
    bt_splitting *w = user;
    size_t at = block->current_position, before = w->counted_at;
    w->n_steps += (at > before ? at - before : before - at) + 1;
    w->counted_at = at;
    return 0;
}

bt_status bt_splitting_open(size_t text_bytes, size_t n_splits, bool counted, bt_splitting **out, bt_error *e)
{
    bt_splitting *w = bt_calloc(1, sizeof *w);
    if (w == NULL) return no_memory(e);
    w->counted = counted;
    w->n_shown_max = (uint64_t)text_bytes * n_splits * SHOWN_PER_BYTE_MAX + SHOWN_BYTES_MIN;
    w->general = pcre2_general_context_create(pcre2_allocate, pcre2_release, NULL);
    if (w->general != NULL) w->context = pcre2_match_context_create(w->general);
    if (w->general != NULL) w->match = pcre2_match_data_create(1, w->general);
    if (w->context == NULL || w->match == NULL) {
        bt_splitting_close(w);
        return no_memory(e);
    }
    uint64_t matches = MATCH_LIMIT_MIN + (uint64_t)text_bytes * MATCH_LIMIT_PER_BYTE;
    uint64_t heap_kib = HEAP_KIB_MIN + (uint64_t)text_bytes;
    (void)pcre2_set_match_limit(w->context, matches < UINT32_MAX ? (uint32_t)matches : UINT32_MAX);
    (void)pcre2_set_heap_limit(w->context, heap_kib < HEAP_KIB_MAX ? (uint32_t)heap_kib : HEAP_KIB_MAX);
    if (counted) {
        (void)pcre2_set_callout(w->context, count_step, w);
    } else {
        w->jit_stack = pcre2_jit_stack_create(JIT_STACK_BYTES, JIT_STACK_BYTES_MAX, w->general);
        if (w->jit_stack != NULL) pcre2_jit_stack_assign(w->context, NULL, w->jit_stack);
    }
    *out = w;
    return BT_OK;
}

void bt_splitting_close(bt_splitting *w)
{
    if (w == NULL) return;
    pcre2_jit_stack_free(w->jit_stack);
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    pcre2_general_context_free(w->general);
    bt_free(w);
}

uint64_t bt_splitting_n_steps(const bt_splitting *w)
{
    return w->n_steps;
}

/* ---- matching ---------------------------------------------------------------------------------------------------- */

typedef struct search { /* for the matches in text [n], from left to right */
    const bt_splitter *s;
    bt_splitting *w;
    const char *text;
    size_t n;
    bt_error *e;
    size_t begin, end; /* of the last match found */
} search;

static int match_window(search *q, size_t from, size_t window_end)
{
    bt_splitting *w = q->w;
    const pcre2_code *code = w->counted ? q->s->counted : q->s->code;
    uint32_t options = PCRE2_NO_UTF_CHECK | (window_end < q->n ? PCRE2_PARTIAL_HARD : 0);
    w->counted_at = from;
    PCRE2_SPTR text = (PCRE2_SPTR)q->text;
    int rc = pcre2_match(code, text, window_end, from, options, w->match, w->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(code, text, window_end, from, options | PCRE2_NO_JIT, w->match, w->context);
    }
    if (w->counted && rc == PCRE2_ERROR_PARTIAL) w->n_steps += window_end - w->counted_at; /* the item cut short */
    return rc;
}

static bt_status match_fault(const search *q, int rc)
{
    if (rc == PCRE2_ERROR_NOMEMORY) return no_memory(q->e);
    char reason[256] = "";
    (void)pcre2_get_error_message(rc, (PCRE2_UCHAR *)reason, sizeof reason);
    return bt_fail(q->e, BT_ERR_UNSUPPORTED, "the split pattern gives up on this text: %s", reason);
}

/* A match that begins at `at`; rc >= 0, or PCRE2_ERROR_NOMATCH, or *st says what went wrong. */
static int match_at(search *q, size_t at, bt_status *st)
{
    for (size_t window = WINDOW_BYTES_MIN;; window *= 2) {
        size_t end = window < q->n - at ? at + window : q->n;
        while (end < q->n && ((unsigned char)q->text[end] & 0xc0) == 0x80) end++;
        q->w->n_shown += end - at;
        if (q->w->n_shown > q->w->n_shown_max) {
            *st = bt_fail(q->e, BT_ERR_UNSUPPORTED, "the split pattern reads a text of %zu bytes over and over", q->n);
            return PCRE2_ERROR_MATCHLIMIT;
        }
        int rc = match_window(q, at, end);
        bool short_of_text = rc == PCRE2_ERROR_PARTIAL || (rc >= 0 && pcre2_get_ovector_pointer(q->w->match)[1] == end);
        if (short_of_text && end < q->n) continue;
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) *st = match_fault(q, rc);
        return rc;
    }
}

static size_t next_char_at(const search *q, size_t at)
{
    at++;
    while (at < q->n && ((unsigned char)q->text[at] & 0xc0) == 0x80) at++;
    return at;
}

/* The first match that begins at or after `from`. */
static bt_status find_match(search *q, size_t from, bool *found)
{
    *found = false;
    for (size_t at = from; at <= q->n; at = next_char_at(q, at)) {
        bt_status st = BT_OK;
        int rc = match_at(q, at, &st);
        if (st != BT_OK) return st;
        if (rc == PCRE2_ERROR_NOMATCH) continue;
        q->begin = at;
        q->end = pcre2_get_ovector_pointer(q->w->match)[1];
        *found = true;
        break;
    }
    return BT_OK;
}

/* ---- behaviours -----------------------------------------------------------------------------------------------------
 *
 * Matches and the text between them come as one row of items. Each behaviour either adds an item as a piece or joins it
 * to the last one.
 */

typedef struct row {
    bt_spans *out;
    size_t n_before; /* pieces in *out that are not of this row */
    bt_split_behavior behavior;
    bool invert;
    bool last_is_match;
    bt_error *e;
} row;

static bt_status add_item(row *r, size_t at, size_t size, bool is_match)
{
    is_match ^= r->invert;
    bool first = r->out->n == r->n_before, join = false;
    switch (r->behavior) {
    case BT_SPLIT_REMOVED:
        if (is_match) return BT_OK;
        break;
    case BT_SPLIT_ISOLATED:
        break;
    case BT_SPLIT_MERGED_WITH_PREVIOUS:
        join = is_match && !r->last_is_match;
        break;
    case BT_SPLIT_MERGED_WITH_NEXT:
        join = !is_match && r->last_is_match;
        break;
    case BT_SPLIT_CONTIGUOUS:
        join = is_match == r->last_is_match;
        break;
    }
    r->last_is_match = is_match;
    if (!join || first) return bt_spans_add(r->out, at, size, r->e);
    r->out->data[r->out->n - 1].size += size;
    return BT_OK;
}

/* Empty matches make empty pieces, which count for joining and for nothing else. */
static void drop_empty(bt_spans *list, size_t from)
{
    size_t kept = from;
    for (size_t i = from; i < list->n; i++) {
        if (list->data[i].size > 0) list->data[kept++] = list->data[i];
    }
    list->n = kept;
}

bt_status bt_split(const bt_splitter *s, bt_splitting *w, const char *text, bt_span in, bt_spans *out, bt_error *e)
{
    search q = {.s = s, .w = w, .text = text + in.at, .n = in.size, .e = e};
    row r = {.out = out, .n_before = out->n, .behavior = s->behavior, .invert = s->invert, .e = e};
    size_t from = 0, done = 0;
    bt_status st = BT_OK;
    while (st == BT_OK && from <= q.n) {
        bool found = false;
        st = find_match(&q, from, &found);
        if (st != BT_OK || !found) break;
        assert(q.end >= q.begin);
        if (q.begin == q.end && q.end == done) { /* no empty match right behind another match */
            from = next_char_at(&q, from);
            continue;
        }
        if (q.begin > done) st = add_item(&r, in.at + done, q.begin - done, false);
        if (st == BT_OK) st = add_item(&r, in.at + q.begin, q.end - q.begin, true);
        from = done = q.end;
    }
    if (st == BT_OK && done < q.n) st = add_item(&r, in.at + done, q.n - done, false);
    drop_empty(out, r.n_before);
    return st;
}
