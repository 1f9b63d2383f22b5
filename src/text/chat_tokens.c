/*
 * From a prompt with origins to ids. A control token is recognised only where the template wrote every byte of it;
 * between two of them text is tokenised in one piece, whoever wrote its parts, since merges across the border are what
 * models were trained on.
 */
#include <string.h>

#include "text/chat.h"
#include "text/tokenizer.h"

bt_status bt_rendered_encode(const bt_rendered *prompt, const bt_tokenizer *t, int32_t **ids, size_t *n, bt_error *e)
{
    bt_spans allowed = {0};
    bt_status st = BT_OK;
    size_t at = 0;
    for (size_t i = 0; i < prompt->n_runs && st == BT_OK; i++) {
        if (prompt->runs[i].from_template) st = bt_spans_add(&allowed, at, prompt->runs[i].size, e);
        at += prompt->runs[i].size;
    }
    if (st == BT_OK) st = bt_tokenizer_encode_allowed(t, prompt->text, prompt->size, &allowed, ids, n, e);
    bt_free(allowed.data);
    return st;
}

/* The tag of reasoning that text [n], which begins with '<', begins with; NULL: none. */
static const bt_tag *think_tag(const bt_grammar *g, const char *text, size_t n)
{
    for (size_t i = 0; i < g->n_tags; i++) {
        const bt_tag *tag = &g->tags[i];
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
