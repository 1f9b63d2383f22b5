/*
 * From a prompt with origins to ids. A control token is recognised only where the template wrote every byte of it;
 * between two of them text is tokenised in one piece, whoever wrote its parts, since merges across the border are what
 * models were trained on. A renderer that knows better names the pieces (Kimi K3's vendor tokenises each by itself):
 * then a piece is one control token, or text in which none is looked for.
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "text/chat.h"
#include "text/tokenizer.h"

/* ---- in pieces --------------------------------------------------------------------------------------------------- */

/* A control token that the tokenizer does not know would be spelled out, and the model would be asked in a format that
 * it has never seen. */
static bt_status check_token(const bt_tokenizer *t, const char *text, size_t size, bt_error *e)
{
    char name[64];
    assert(size < sizeof name);
    memcpy(name, text, size);
    name[size] = '\0';
    int32_t id = bt_tokenizer_find(t, name);
    if (id >= 0 && bt_tokenizer_is_added(t, id)) return BT_OK;
    return bt_fail(e, BT_ERR_UNSUPPORTED,
                   "the tokenizer has no control token %s, which this family's chat format is made of: check that the "
                   "tokenizer is the model's own",
                   name);
}

static bt_status encode_pieces(const bt_rendered *prompt, const bt_tokenizer *t, int32_t **ids, size_t *n, bt_error *e)
{
    bt_text_segment *segments = bt_malloc(prompt->n_pieces + 1, sizeof *segments);
    bt_status st = BT_OK;
    size_t at = 0;
    if (segments == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a prompt of %zu pieces", prompt->n_pieces);
    for (size_t i = 0; i < prompt->n_pieces && st == BT_OK; i++) {
        const bt_piece *piece = &prompt->pieces[i];
        if (piece->is_token) st = check_token(t, prompt->text + at, piece->size, e);
        segments[i] = (bt_text_segment){.size = piece->size, .flags = piece->is_token ? BT_TEXT_SPECIAL : 0};
        at += piece->size;
    }
    assert(st != BT_OK || at == prompt->size);
    if (st == BT_OK) st = bt_tokenizer_encode_segments(t, prompt->text, segments, prompt->n_pieces, ids, n, e);
    bt_free(segments);
    return st;
}

/* ---- as a whole -------------------------------------------------------------------------------------------------- */

/* That each tag in text [size], which a native renderer wrote, is a token. */
static bt_status check_tags(const bt_grammar *g, const bt_tokenizer *t, const char *text, size_t size, bt_error *e)
{
    const char *end = text + size;
    bt_status st = BT_OK;
    while (st == BT_OK && text < end && (text = memchr(text, '<', (size_t)(end - text))) != NULL) {
        bt_tag_kind kind;
        size_t tag_size = 1;
        if (bt_find_tag(g, text, (size_t)(end - text), &kind, &tag_size) == BT_FOUND_TAG)
            st = check_token(t, text, tag_size, e);
        text += tag_size;
    }
    return st;
}

bt_status bt_rendered_encode(const bt_rendered *prompt, const bt_grammar *native, const bt_tokenizer *t, int32_t **ids,
                             size_t *n, bt_error *e)
{
    if (prompt->pieces != NULL) return encode_pieces(prompt, t, ids, n, e);
    bt_spans allowed = {0};
    bt_status st = BT_OK;
    size_t at = 0;
    for (size_t i = 0; i < prompt->n_runs && st == BT_OK; i++) {
        if (prompt->runs[i].from_template) {
            st = bt_spans_add(&allowed, at, prompt->runs[i].size, e);
            if (st == BT_OK && native != NULL) st = check_tags(native, t, prompt->text + at, prompt->runs[i].size, e);
        }
        at += prompt->runs[i].size;
    }
    if (st == BT_OK) st = bt_tokenizer_encode_allowed(t, prompt->text, prompt->size, &allowed, ids, n, e);
    bt_free(allowed.data);
    return st;
}

/* The tag of reasoning that text [n], which begins with '<', begins with; NULL: none. */
static const bt_tag *think_tag(const bt_grammar *g, const char *text, size_t n)
{
    const bt_tag *tags = g->sections != NULL ? g->sections : g->tags;
    const size_t n_tags = g->sections != NULL ? g->n_sections : g->n_tags;
    for (size_t i = 0; i < n_tags; i++) {
        const bt_tag *tag = &tags[i];
        size_t size = strlen(tag->text);
        if (tag->kind != BT_TAG_THINK_OPEN && tag->kind != BT_TAG_THINK_CLOSE) continue;
        if (size <= n && memcmp(text, tag->text, size) == 0) return tag;
    }
    return NULL;
}

bool bt_rendered_is_reasoning(const bt_rendered *prompt, const bt_grammar *g)
{
    size_t end = prompt->size;
    for (size_t i = prompt->n_runs; i > 0; i--) {
        size_t begin = end - prompt->runs[i - 1].size;
        const char *open = prompt->runs[i - 1].from_template ? prompt->text + end : NULL;
        while (open != NULL &&
               (open = memrchr(prompt->text + begin, '<', (size_t)(open - prompt->text) - begin)) != NULL) {
            const bt_tag *tag = think_tag(g, open, (size_t)(prompt->text + end - open));
            if (tag != NULL) return tag->kind == BT_TAG_THINK_OPEN;
        }
        end = begin;
    }
    return false;
}
