/* A talk; see talk.h. */
#include "tool/talk.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

#define N_MESSAGES_MAX ((size_t)1 << 20)

typedef struct message {
    char *json; /* [size], terminated */
    size_t size;
    bool is_user, is_system;
} message;

struct bt_talk {
    message *messages; /* [n] */
    size_t n, capacity;
    char *system; /* text of the system message at the beginning; NULL: none */
};

bt_status bt_talk_open(bt_talk **out, bt_error *e)
{
    bt_talk *t = bt_calloc(1, sizeof *t);
    if (t == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a conversation");
    *out = t;
    return BT_OK;
}

void bt_talk_close(bt_talk *t)
{
    if (t == NULL) return;
    bt_talk_cut(t, 0);
    bt_free(t->messages);
    bt_free(t);
}

size_t bt_talk_n_messages(const bt_talk *t)
{
    return t->n;
}

const char *bt_talk_message(const bt_talk *t, size_t i)
{
    assert(i < t->n);
    return t->messages[i].json;
}

const char *bt_talk_system(const bt_talk *t)
{
    return t->system;
}

size_t bt_talk_last_user(const bt_talk *t)
{
    for (size_t i = t->n; i > 0; i--)
        if (t->messages[i - 1].is_user) return i - 1;
    return SIZE_MAX;
}

/* ---- messages in ------------------------------------------------------------------------------------------------- */

/* What a message is, from its JSON; *system: the text of a system message, bt_free by the caller. */
static bt_status examine(message *m, char **system, bt_error *e)
{
    bt_arena *arena = bt_arena_new();
    const bt_json_node *root = NULL;
    bt_status st = arena == NULL ? bt_fail(e, BT_ERR_MEMORY, "no memory for a message") : BT_OK;
    if (st == BT_OK) st = bt_json_parse(arena, m->json, m->size, 0, &root, e);
    const bt_json_node *role = st == BT_OK ? bt_json_get(root, "role") : NULL;
    if (st == BT_OK && (role == NULL || role->kind != BT_JSON_STRING))
        st = bt_fail(e, BT_ERR_FORMAT, "a message has no role");
    if (st == BT_OK) {
        m->is_user = strcmp(role->text, "user") == 0;
        m->is_system = strcmp(role->text, "system") == 0 || strcmp(role->text, "developer") == 0;
        const bt_json_node *content = bt_json_get(root, "content");
        if (m->is_system && content != NULL && content->kind == BT_JSON_STRING) {
            *system = bt_strdup(content->text);
            if (*system == NULL) st = bt_fail(e, BT_ERR_MEMORY, "no memory for a message");
        }
    }
    bt_arena_free(arena);
    return st;
}

static bt_status make_room(bt_talk *t, bt_error *e)
{
    if (t->n >= N_MESSAGES_MAX) return bt_fail(e, BT_ERR_USAGE, "a conversation has at most %zu messages", t->n);
    if (t->n < t->capacity) return BT_OK;
    size_t more = t->capacity == 0 ? 16 : t->capacity * 2;
    message *larger = bt_realloc(t->messages, more, sizeof *larger);
    if (larger == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for %zu messages", more);
    t->messages = larger;
    t->capacity = more;
    return BT_OK;
}

/* Takes json over, also when it fails. */
static bt_status append(bt_talk *t, char *json, size_t size, bt_error *e)
{
    message m = {.json = json, .size = size};
    char *system = NULL;
    bt_status st = make_room(t, e);
    if (st == BT_OK) st = examine(&m, &system, e);
    if (st != BT_OK) {
        bt_free(json);
        bt_free(system);
        return st;
    }
    if (t->n == 0) {
        t->system = system;
        system = NULL;
    }
    bt_free(system);
    t->messages[t->n++] = m;
    return BT_OK;
}

bt_status bt_talk_add(bt_talk *t, const char *json, size_t size, bt_error *e)
{
    char *copy = bt_malloc(size + 1, 1);
    if (copy == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a message of %zu bytes", size);
    memcpy(copy, json, size);
    copy[size] = '\0';
    return append(t, copy, size, e);
}

bt_status bt_talk_say(bt_talk *t, const char *role, const char *text, size_t size, bt_error *e)
{
    size_t valid = bt_utf8_valid_prefix(text, size);
    if (valid != size)
        return bt_fail(e, BT_ERR_USAGE, "the message is not UTF-8: byte %zu is 0x%02x", valid,
                       (unsigned)(unsigned char)text[valid]);
    bt_text json = {0};
    bt_text_printf(&json, "{\"role\": \"%s\", \"content\": ", role);
    bt_text_json_string(&json, text, size);
    bt_text_puts(&json, "}");
    if (!bt_text_ok(&json)) {
        bt_text_free(&json);
        return bt_fail(e, BT_ERR_MEMORY, "no memory for a message of %zu bytes", size);
    }
    return append(t, json.data, json.size, e);
}

bt_status bt_talk_set_system(bt_talk *t, const char *text, bt_error *e)
{
    bool has_one = t->n > 0 && t->messages[0].is_system;
    if (text == NULL && !has_one) return BT_OK;
    bt_talk *changed = NULL;
    bt_status st = bt_talk_open(&changed, e);
    if (st == BT_OK && text != NULL) st = bt_talk_say(changed, "system", text, strlen(text), e);
    for (size_t i = has_one; st == BT_OK && i < t->n; i++)
        st = bt_talk_add(changed, t->messages[i].json, t->messages[i].size, e);
    if (st == BT_OK) {
        bt_talk old = *t;
        *t = *changed;
        *changed = old;
    }
    bt_talk_close(changed);
    return st;
}

void bt_talk_cut(bt_talk *t, size_t n)
{
    for (; t->n > n; t->n--) bt_free(t->messages[t->n - 1].json);
    if (t->n > 0) return;
    bt_free(t->system);
    t->system = NULL;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

void bt_talk_write(const bt_talk *t, bt_text *out)
{
    bt_text_puts(out, "[");
    for (size_t i = 0; i < t->n; i++) {
        if (i > 0) bt_text_puts(out, ", ");
        bt_text_add(out, t->messages[i].json, t->messages[i].size);
    }
    bt_text_puts(out, "]");
}

/* The elements of a JSON array, each as it is written. */
static bt_status read_messages(bt_talk *t, bt_json *j, bt_error *e)
{
    if (bt_json_next(j) != BT_JSON_ARRAY) return bt_json_fail(j, "the messages are no array");
    for (;;) {
        bt_json_kind kind = bt_json_next(j);
        if (kind == BT_JSON_ARRAY_END) break;
        if (kind != BT_JSON_OBJECT) return bt_json_fail(j, "a message is no object");
        const char *begin = j->at - 1; /* at its brace */
        if (!bt_json_skip(j, kind)) return j->status;
        bt_status st = bt_talk_add(t, begin, (size_t)(j->at - begin), e);
        if (st != BT_OK) return st;
    }
    return bt_json_next(j) == BT_JSON_END ? BT_OK : j->status;
}

bt_status bt_talk_read(bt_talk *t, const char *json, size_t size, bt_error *e)
{
    bt_talk *fresh = NULL;
    bt_status st = bt_talk_open(&fresh, e);
    if (st != BT_OK) return st;
    bt_json j;
    bt_json_begin(&j, json, size, 0, e);
    st = read_messages(fresh, &j, e);
    bt_json_done(&j);
    if (st == BT_OK) {
        bt_talk old = *t;
        *t = *fresh;
        *fresh = old;
    }
    bt_talk_close(fresh);
    return st;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static bt_status render(const bt_talk *t, const bt_chat *c, const char *template_options, bt_prompt *p, bt_error *e)
{
    bt_text messages = {0};
    bt_talk_write(t, &messages);
    bt_status st = BT_OK;
    if (!bt_text_ok(&messages)) st = bt_fail(e, BT_ERR_MEMORY, "no memory for the conversation");
    if (st == BT_OK) {
        const bt_chat_request request = {
            .messages = messages.data,
            .messages_size = messages.size,
            .options = template_options,
            .options_size = template_options != NULL ? strlen(template_options) : 0,
        };
        st = bt_chat_render(c, &request, p, e);
    }
    bt_text_free(&messages);
    return st;
}

bt_status bt_talk_answer(bt_talk *t, const bt_answer_options *o, const char *template_options, bt_warn_fn warn,
                         bt_answer *out, bt_error *e)
{
    bt_prompt prompt = {0};
    *out = (bt_answer){.n_prompt = 0};
    bt_status st = render(t, o->chat, template_options, &prompt, e);
    if (st == BT_OK && warn != NULL && prompt.warnings[0] != '\0') warn(o->user, prompt.warnings);
    if (st == BT_OK) st = bt_answer_make(&prompt, o, out, e);
    if (out->message != NULL) {
        bt_error later;
        bt_status added = bt_talk_add(t, out->message, out->size, st == BT_OK ? e : &later);
        if (st == BT_OK) st = added;
    }
    bt_prompt_free(&prompt);
    return st;
}

bt_status bt_talk_forget(const bt_talk *t, const bt_chat *c, bt_session *s, const char *template_options, bt_error *e)
{
    bt_prompt prompt = {0};
    bt_error refusal;
    size_t n_known;
    bt_status st = BT_OK;
    if (t->n > 0) st = render(t, c, template_options, &prompt, &refusal);
    if (st == BT_ERR_MEMORY) return bt_fail(e, st, "%s", refusal.message);
    /* Nothing was said yet, or what there is cannot be rendered: then nothing is known. */
    st = prompt.ids != NULL ? bt_answer_keep_known(s, &prompt, &n_known, NULL, e) : bt_session_rewind(s, 0, NULL, e);
    bt_prompt_free(&prompt);
    return st;
}
