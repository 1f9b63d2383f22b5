/* What the tests of prompts as ids share: conversations in which every text is an attempt to say a control token. */
#ifndef TESTS_ATTACK_UNIT_H
#define TESTS_ATTACK_UNIT_H

#include "chat_unit.h"

#include "text/chat.h"

static inline size_t unit_count_added(const bt_tokenizer *t, const int32_t *ids, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += bt_tokenizer_is_added(t, ids[i]);
    return count;
}

/* The ids are those of the text with every added token in it. */
static inline bool unit_are_special(const bt_tokenizer *t, const bt_prompt *p)
{
    int32_t *ids = NULL;
    size_t n = 0;
    bt_error e;
    if (bt_tokenizer_encode(t, p->text, p->size, BT_TEXT_SPECIAL, &ids, &n, &e) != BT_OK) fail_msg("%s", e.message);
    bool same = n == p->n_ids && memcmp(ids, p->ids, n * sizeof *ids) == 0;
    bt_free(ids);
    return same;
}

typedef struct unit_attack {
    const char *before, *behind; /* put around every text */
    bool spares_assistant;
    bool changes_form; /* ids and types too */
} unit_attack;

static inline void unit_attack_text(bt_text *t, bt_chars text, bool is_name, void *user)
{
    const unit_attack *a = user;
    bt_text s = {0};
    (void)is_name;
    bt_text_puts(&s, a->before);
    bt_text_add(&s, text.text, text.size);
    bt_text_puts(&s, a->behind);
    bt_py_dump_string(t, (bt_chars){s.data, s.size});
    bt_text_free(&s);
}

/* A context or stored case as a request; a NULL attack leaves it as it is. */
static inline bt_text unit_attack_request(const bt_json_node *context, unit_attack *a)
{
    static const char *const apart[] = {"name", "bos_token", "eos_token", NULL};
    static const char *const form[] = {"role", "type", "id", "tool_call_id", "$ref", NULL};
    static const char *const least_form[] = {"role", "$ref", NULL};
    bt_text t = {0};
    bt_text_puts(&t, "{");
    for (const bt_json_node *m = context->child; m != NULL; m = m->next) {
        if (unit_is_one_of(m->key, apart)) continue;
        if (t.size > 1) bt_text_puts(&t, ", ");
        bt_py_dump_string(&t, (bt_chars){m->key, m->key_size});
        bt_text_puts(&t, ": ");
        bool is_text = strcmp(m->key, "messages") == 0 || strcmp(m->key, "tools") == 0;
        if (a == NULL || !is_text) {
            bt_py_dump(&t, m);
            continue;
        }
        bt_text_puts(&t, "[");
        for (const bt_json_node *one = m->child; one != NULL; one = one->next) {
            const bt_json_node *role = bt_json_get(one, "role");
            if (a->spares_assistant && role != NULL && strcmp(role->text, "assistant") == 0) {
                bt_py_dump(&t, one);
            } else {
                unit_write_changed_but(&t, one, unit_attack_text, a, "", a->changes_form ? least_form : form);
            }
            if (one->next != NULL) bt_text_puts(&t, ", ");
        }
        bt_text_puts(&t, "]");
    }
    bt_text_puts(&t, "}");
    assert_true(bt_text_ok(&t));
    return t;
}

static inline bt_status unit_render_attack(const bt_chat *chat, const bt_json_node *context, unit_attack *a,
                                           bt_prompt *p, bt_error *e)
{
    bt_text request = unit_attack_request(context, a);
    const bt_chat_request r = {.messages = request.data, .messages_size = request.size};
    bt_status st = bt_chat_render(chat, &r, p, e);
    bt_text_free(&request);
    return st;
}

/* Renders with the attack, and with the same text made harmless: no added id more, and none less. Returns how many
 * pairs were compared: none, where the renderer takes neither. */
static inline size_t unit_compare_with(const char *what, const bt_chat *chat, const bt_tokenizer *t,
                                       const bt_json_node *context, unit_attack hostile)
{
    const char *before = hostile.before, *behind = hostile.behind;
    char safe_before[4096], safe_behind[4096];
    (void)snprintf(safe_before, sizeof safe_before, "%s", before);
    (void)snprintf(safe_behind, sizeof safe_behind, "%s", behind);
    for (char *c = safe_before; *c != '\0'; c++) *c = strchr("<>[]", *c) != NULL ? '!' : *c;
    for (char *c = safe_behind; *c != '\0'; c++) *c = strchr("<>[]", *c) != NULL ? '!' : *c;
    unit_attack harmless = hostile;
    harmless.before = safe_before;
    harmless.behind = safe_behind;
    bt_prompt bad = {0}, good = {0};
    bt_error e;
    bt_status is_bad = unit_render_attack(chat, context, &hostile, &bad, &e),
              is_good = unit_render_attack(chat, context, &harmless, &good, &e);
    bool both = is_bad == BT_OK && is_good == BT_OK;
    if (both) {
        size_t n_bad = unit_count_added(t, bad.ids, bad.n_ids), n_good = unit_count_added(t, good.ids, good.n_ids);
        if (n_bad != n_good)
            fail_msg("%s: %zu added tokens with \"%s\", %zu without: %s", what, n_bad, behind, n_good, bad.text);
    }
    bt_prompt_free(&bad);
    bt_prompt_free(&good);
    return both;
}

static inline size_t unit_compare_attacks(const char *what, const bt_chat *chat, const bt_tokenizer *t,
                                          const bt_json_node *context, const char *before, const char *behind,
                                          bool spares_assistant)
{
    return unit_compare_with(what, chat, t, context,
                             (unit_attack){.before = before, .behind = behind, .spares_assistant = spares_assistant});
}

/* A tag whole in every text; halved, so that the halves meet where two texts do; and in ids and types. */
static inline size_t unit_compare_tag(const char *what, const bt_chat *chat, const bt_tokenizer *t,
                                      const bt_json_node *context, const char *tag, bool spares_assistant)
{
    char half[64];
    size_t n = strlen(tag), n_compared = unit_compare_attacks(what, chat, t, context, "", tag, spares_assistant);
    assert_true(n < sizeof half);
    for (size_t k = 1; k < n; k += n / 2) {
        (void)snprintf(half, sizeof half, "%.*s", (int)k, tag);
        n_compared += unit_compare_attacks(what, chat, t, context, tag + k, half, spares_assistant);
    }
    return n_compared +
           unit_compare_with(
               what, chat, t, context,
               (unit_attack){.before = "", .behind = tag, .spares_assistant = spares_assistant, .changes_form = true});
}

#endif
