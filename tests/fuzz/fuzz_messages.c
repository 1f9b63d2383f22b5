/*
 * Conversations: whatever JSON comes, as a request or (behind a NUL) with tools, is refused or becomes a prompt of each
 * native renderer, whose runs, and pieces where there are some, are the whole text; variables for templates are JSON
 * again, and read back they say the same.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "text/chat.h"

static void check(bool truth)
{
    if (!truth) abort();
}

static void check_pieces(const bt_rendered *r)
{
    size_t at = 0;
    for (size_t i = 0; i < r->n_pieces; i++) {
        const bt_piece *p = &r->pieces[i];
        check(p->size > 0 && p->size <= r->size - at);
        if (p->is_token) check(p->size >= 7 && memcmp(r->text + at, "<|", 2) == 0 && r->text[at + p->size - 1] == '>');
        at += p->size;
    }
    check(r->pieces == NULL || at == r->size);
}

static void native(const bt_conversation *c, const char *family)
{
    const bt_grammar *g = bt_grammar_of(family);
    bt_rendered r = {0};
    bt_text lines = {0};
    size_t size = 0;
    if (g->native(c, &r, NULL) != BT_OK) return;
    check_pieces(&r);
    for (size_t i = 0; i < r.n_runs; i++) {
        check(r.runs[i].size > 0 && (i == 0 || r.runs[i].from_template != r.runs[i - 1].from_template));
        size += r.runs[i].size;
    }
    check(size == r.size);
    (void)bt_rendered_is_reasoning(&r, g);
    bt_chat_tell_lost(c, &r, &lines);
    bt_text_free(&lines);
    bt_rendered_free(&r);
}

static bt_text variables(const bt_conversation *c)
{
    bt_text t = {0};
    bt_conversation_write(c, true, &t);
    bt_text_puts(&t, "}");
    check(bt_text_ok(&t));
    return t;
}

/* The variables of the conversation that these variables are; false: it nests too deep (arguments came as text). */
static bool read_back(const bt_text *t, size_t n_messages, bt_text *out)
{
    const bt_chat_request r = {.messages = t->data, .messages_size = t->size};
    bt_conversation c = {0};
    if (bt_conversation_parse(&r, &c, NULL) != BT_OK) return false;
    check(c.n_messages == n_messages);
    *out = variables(&c);
    bt_conversation_free(&c);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *nul = size == 0 ? NULL : memchr(data, 0, size);
    bt_chat_request r = {.messages = text, .messages_size = nul == NULL ? size : (size_t)(nul - text)};
    if (nul != NULL) {
        r.tools = nul + 1;
        r.tools_size = size - r.messages_size - 1;
    }
    bt_conversation c = {0};
    if (r.messages == NULL || bt_conversation_parse_loosely(&r, &c, NULL) != BT_OK) return 0;
    native(&c, "kimi_k3");
    native(&c, "kimi_linear");
    bt_conversation_free(&c);
    if (bt_conversation_parse(&r, &c, NULL) != BT_OK) return 0;
    native(&c, "k2_horizon");
    /* What we add at first ("documents") is an option when it comes back; from then on nothing changes. */
    bt_text first = variables(&c), second = {0}, third = {0};
    if (read_back(&first, c.n_messages, &second)) {
        check(read_back(&second, c.n_messages, &third));
        check(second.size == third.size && memcmp(second.data, third.data, third.size) == 0);
    }
    bt_text_free(&first);
    bt_text_free(&second);
    bt_text_free(&third);
    bt_conversation_free(&c);
    return 0;
}
