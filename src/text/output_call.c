/*
 * The inside of a call: a name and arguments between tags, or one JSON object, told apart by the first character.
 *
 * The arguments become JSON while they come. A string that the schema declares goes out as it arrives; any other value
 * waits for its end, for until then it may turn out to be a string. Arguments in JSON go out as they are written, if
 * the name came first, as it does.
 *
 * Two things end a call before its time. What cannot stand between its tags breaks it there, and is text from there on.
 * What is wrong in itself (a key twice, JSON that is none) loses it to its end: half a value is no text for anybody.
 */
#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "text/output.h"
#include "text/output_state.h"

static bt_chars part_of(const bt_reply *r, size_t at, size_t end)
{
    return (bt_chars){r->output.data + at, end - at};
}

/* What is wrong in itself at `at`. */
static void lose(bt_reply *r, size_t at)
{
    if (r->is_begun) {
        r->state = BT_REPLY_SKIPS;
    } else {
        bt_reply_break_call(r, at);
    }
}

void bt_reply_open_body(bt_reply *r, size_t at)
{
    r->state = BT_REPLY_BODY;
    r->body_at = at;
    r->is_begun = r->has_arguments = r->has_name = r->is_passing = false;
    r->parameters = NULL;
    r->walk = (bt_walk){0};
    r->value_end = 0;
    r->n_keys = 0;
    r->keys_call++;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static size_t hash_of(bt_chars s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < s.size; i++) h = (h ^ (unsigned char)s.text[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 29);
}

/* The slot that holds the key, or an empty one. Slots of calls before count as empty, so none has to be cleared. */
static bt_key_slot *find_slot(const bt_reply *r, const bt_text *in, bt_chars key)
{
    size_t mask = r->n_slots - 1;
    for (size_t i = hash_of(key) & mask;; i = (i + 1) & mask) {
        bt_key_slot *slot = &r->keys[i];
        if (slot->call_n != r->keys_call) return slot;
        if (bt_chars_equal((bt_chars){in->data + slot->at, slot->size}, key)) return slot;
    }
}

static bool grow_keys(bt_reply *r, const bt_text *in)
{
    bt_key_slot *old = r->keys;
    size_t n_old = r->n_slots;
    r->n_slots = n_old == 0 ? 32 : n_old * 2;
    r->keys = bt_calloc(r->n_slots, sizeof *r->keys);
    if (r->keys == NULL) {
        r->keys = old;
        r->n_slots = n_old;
        r->failed = true;
        return false;
    }
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].call_n != r->keys_call) continue;
        *find_slot(r, in, (bt_chars){in->data + old[i].at, old[i].size}) = old[i];
    }
    bt_free(old);
    return true;
}

bool bt_reply_add_key(bt_reply *r, const bt_text *in, size_t at, size_t size)
{
    if (2 * (r->n_keys + 1) > r->n_slots && !grow_keys(r, in)) return false;
    bt_key_slot *slot = find_slot(r, in, (bt_chars){in->data + at, size});
    if (slot->call_n == r->keys_call) return false;
    *slot = (bt_key_slot){.call_n = r->keys_call, .at = at, .size = size};
    r->n_keys++;
    return true;
}

/* ---- name and arguments between tags ----------------------------------------------------------------------------- */

/* A name has no white space in it, or is that of a tool. */
static bool is_name(const bt_reply *r, bt_chars name)
{
    if (name.size == 0) return false;
    if (bt_tool_is_known(r->tools, name)) return true;
    for (size_t i = 0; i < name.size; i++) {
        if ((unsigned char)name.text[i] <= ' ') return false;
    }
    return true;
}

static void close_key(bt_reply *r, size_t end)
{
    bt_chars key = bt_value_trim(part_of(r, r->part_at, end));
    r->key_at = (size_t)(key.text - r->output.data);
    r->key_size = key.size;
    r->has_type = false;
    r->state = BT_REPLY_KEY_DONE;
    /* Bytes that are no text would be told as U+FFFD: two such keys could become one. */
    bool is_text = key.size > 0 && bt_utf8_valid_prefix(key.text, key.size) == key.size;
    if (!is_text || !bt_reply_add_key(r, &r->output, r->key_at, key.size)) lose(r, end);
}

static void close_type(bt_reply *r, size_t end)
{
    bt_chars type = bt_value_trim(part_of(r, r->part_at, end));
    r->type_at = (size_t)(type.text - r->output.data);
    r->type_size = type.size;
    r->has_type = type.size > 0;
    r->state = BT_REPLY_TYPE_DONE;
}

static void open_value(bt_reply *r, size_t at)
{
    const bt_chars key = part_of(r, r->key_at, r->key_at + r->key_size);
    const bt_chars type = r->has_type ? part_of(r, r->type_at, r->type_at + r->type_size) : (bt_chars){NULL, 0};
    size_t from = r->made.size;
    r->rule = bt_value_rule_for(r->parameters, key, type, &r->types);
    bt_text_puts(&r->made, r->has_arguments ? ", \"" : "{\"");
    bt_value_escape(&r->made, key.text, key.size);
    bt_text_puts(&r->made, r->rule == BT_VALUE_RAW ? "\": \"" : "\": ");
    r->has_arguments = true;
    bt_reply_tell_arguments(r, from);
    r->part_at = at;
    r->state = BT_REPLY_VALUE;
}

static void close_value(bt_reply *r, size_t end)
{
    size_t from = r->made.size;
    if (r->rule == BT_VALUE_RAW) {
        bt_text_puts(&r->made, "\"");
    } else {
        bt_value_write(r->rule, r->types, part_of(r, r->part_at, end), &r->made);
    }
    bt_reply_tell_arguments(r, from);
    r->state = BT_REPLY_VALUE_DONE;
}

void bt_reply_close_arguments(bt_reply *r)
{
    size_t from = r->made.size;
    bt_text_puts(&r->made, r->has_arguments ? "}" : "{}");
    bt_reply_tell_arguments(r, from);
}

static void open_part(bt_reply *r, bt_reply_state state, size_t at)
{
    r->state = state;
    r->part_at = at;
}

/* ---- a JSON body ------------------------------------------------------------------------------------------------- */

/* The text of a JSON string [at, end), in r->argument; false: it has none. */
static bool decode_string(bt_reply *r, size_t at, size_t end)
{
    bt_json j;
    bt_json_begin(&j, r->output.data + at, end - at, 0, NULL);
    bool ok = bt_json_next(&j) == BT_JSON_STRING;
    r->argument.size = 0;
    if (ok) bt_text_add(&r->argument, j.text, j.size);
    r->failed |= j.status == BT_ERR_MEMORY;
    bt_json_done(&j);
    return ok;
}

static void tell_argument_text(bt_reply *r, bt_chars text)
{
    size_t from = r->made.size;
    bt_text_add(&r->made, text.text, text.size);
    bt_reply_tell_arguments(r, from);
}

static void pass_on(bt_reply *r, size_t end)
{
    if (!r->is_passing || end <= r->passed_at) return;
    tell_argument_text(r, part_of(r, r->passed_at, end));
    r->passed_at = end;
}

/* Arguments that were complete before they could be told: they came before the name, or as a string. */
static bool tell_late_arguments(bt_reply *r)
{
    bt_chars text = part_of(r, r->value_at, r->value_end);
    if (text.text[0] == '"') {
        if (!decode_string(r, r->value_at, r->value_end)) return false;
        text = bt_value_trim((bt_chars){r->argument.data, r->argument.size});
        if (text.size == 0) text = (bt_chars){"{}", 2};
    }
    if (!bt_reply_is_object(r, text)) return false;
    tell_argument_text(r, text);
    return true;
}

static bool close_member_key(bt_reply *r, size_t end)
{
    bt_chars key = part_of(r, r->member_at, end);
    r->part = bt_chars_are(key, "\"name\"")        ? BT_PART_NAME
              : bt_chars_are(key, "\"arguments\"") ? BT_PART_ARGUMENTS
                                                   : BT_PART_OTHER;
    if (r->part == BT_PART_NAME && r->has_name) return false;
    if (r->part == BT_PART_ARGUMENTS && r->has_arguments) return false;
    r->has_name |= r->part == BT_PART_NAME;
    r->has_arguments |= r->part == BT_PART_ARGUMENTS;
    return true;
}

static bool open_member_value(bt_reply *r, size_t at)
{
    char c = r->output.data[at];
    if (r->part == BT_PART_NAME) {
        r->name_at = at;
        return c == '"';
    }
    if (r->part == BT_PART_OTHER) return true;
    r->value_at = r->passed_at = at;
    r->is_passing = c == '{' && r->is_begun;
    if (c == 'n') r->has_arguments = false; /* null: there are none */
    return c == '{' || c == '"' || c == 'n';
}

static bool close_member_value(bt_reply *r, size_t end)
{
    if (r->part == BT_PART_NAME) {
        if (!decode_string(r, r->name_at, end) || r->argument.size == 0) return false;
        bt_reply_begin_call(r, (bt_chars){r->argument.data, r->argument.size});
        return r->failed || r->value_end == 0 || tell_late_arguments(r);
    }
    if (r->part == BT_PART_OTHER) return true;
    r->value_end = end;
    if (!r->is_passing) return !r->is_begun || tell_late_arguments(r);
    pass_on(r, end);
    r->is_passing = false;
    return bt_reply_is_object(r, part_of(r, r->value_at, end));
}

static void json_text(bt_reply *r, size_t at, size_t end)
{
    while (at < end) {
        bool ok = true;
        bt_walked walked = bt_walk_step(&r->walk, r->output.data[at]);
        switch (walked) {
        case BT_WALK_ON:
            break;
        case BT_WALK_KEY_OPEN:
            r->member_at = at;
            break;
        case BT_WALK_KEY_CLOSE:
            ok = close_member_key(r, at + 1);
            break;
        case BT_WALK_VALUE:
            ok = open_member_value(r, at);
            break;
        case BT_WALK_VALUE_CLOSE:
            ok = close_member_value(r, at + 1);
            break;
        case BT_WALK_DONE:
            ok = r->is_begun;
            break;
        case BT_WALK_FAULT:
            ok = false;
        }
        if (r->failed) return;
        if (!ok) {
            lose(r, at);
            return;
        }
        at++;
        if (walked != BT_WALK_DONE) continue;
        r->state = BT_REPLY_JSON_DONE;
        bt_reply_body_text(r, at, end);
        return;
    }
    pass_on(r, end);
}

/* ---- text and tags ----------------------------------------------------------------------------------------------- */

static void begin_body(bt_reply *r, size_t at, size_t end)
{
    at = bt_reply_skip_space(r, at, end);
    if (at == end) return;
    if (r->output.data[at] == '{') {
        r->state = BT_REPLY_JSON;
        json_text(r, at, end);
    } else {
        open_part(r, BT_REPLY_NAME, at);
    }
}

void bt_reply_body_text(bt_reply *r, size_t at, size_t end)
{
    size_t from = r->made.size;
    if (at == end) return;
    switch (r->state) {
    case BT_REPLY_BODY:
        begin_body(r, at, end);
        return;
    case BT_REPLY_JSON:
        json_text(r, at, end);
        return;
    case BT_REPLY_OBJECT:
        if (!bt_reply_object_text(r, at, end)) lose(r, end);
        return;
    case BT_REPLY_VALUE:
        if (r->rule != BT_VALUE_RAW) return;
        bt_value_escape(&r->made, r->output.data + at, end - at);
        bt_reply_tell_arguments(r, from);
        return;
    case BT_REPLY_KEY_DONE:
    case BT_REPLY_TYPE_DONE:
    case BT_REPLY_VALUE_DONE:
    case BT_REPLY_JSON_DONE:
        at = bt_reply_skip_space(r, at, end);
        if (at < end) bt_reply_break_call(r, at);
        return;
    default: /* a name, key or type: read when it is complete; SKIPS: never */
        return;
    }
}

/* NAME of "functions.NAME:INDEX"; models leave out either end. */
static bt_chars numbered_name(bt_chars id)
{
    static const char head[] = "functions.";
    const size_t n = sizeof head - 1;
    size_t end = id.size;
    while (end > 0 && id.text[end - 1] >= '0' && id.text[end - 1] <= '9') end--;
    if (end < id.size && end > 0 && id.text[end - 1] == ':') id.size = end - 1;
    if (id.size <= n || memcmp(id.text, head, n) != 0) return id;
    return (bt_chars){id.text + n, id.size - n};
}

/* A tag behind the name. True if the call is complete. */
static bool tag_after_name(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end)
{
    bt_chars name = bt_value_trim(part_of(r, r->part_at, begin));
    bool fits = kind == BT_TAG_KEY_OPEN || kind == BT_TAG_OBJECT_OPEN || kind == BT_TAG_CALL_CLOSE;
    if (r->grammar->numbers_calls) name = numbered_name(name);
    if (!fits || !is_name(r, name)) {
        bt_reply_break_call(r, begin);
        return false;
    }
    bt_reply_begin_call(r, name);
    if (r->failed) return false;
    if (kind == BT_TAG_KEY_OPEN) open_part(r, BT_REPLY_KEY, end);
    if (kind == BT_TAG_OBJECT_OPEN) bt_reply_open_object(r);
    if (kind == BT_TAG_CALL_CLOSE) bt_reply_close_arguments(r);
    return kind == BT_TAG_CALL_CLOSE;
}

static bool ends_call(bt_tag_kind kind)
{
    return kind == BT_TAG_CALL_OPEN || kind == BT_TAG_CALL_CLOSE || kind == BT_TAG_CALLS_OPEN ||
           kind == BT_TAG_CALLS_CLOSE || kind == BT_TAG_STOP;
}

bool bt_reply_body_tag(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end)
{
    const bt_reply_state state = r->state;
    if (state == BT_REPLY_NAME) return tag_after_name(r, kind, begin, end);
    if (state == BT_REPLY_KEY && kind == BT_TAG_KEY_CLOSE) {
        close_key(r, begin);
    } else if (state == BT_REPLY_KEY_DONE && kind == BT_TAG_TYPE_OPEN) {
        open_part(r, BT_REPLY_TYPE, end);
    } else if (state == BT_REPLY_TYPE && kind == BT_TAG_TYPE_CLOSE) {
        close_type(r, begin);
    } else if ((state == BT_REPLY_KEY_DONE || state == BT_REPLY_TYPE_DONE) && kind == BT_TAG_VALUE_OPEN) {
        open_value(r, end);
    } else if (state == BT_REPLY_VALUE && kind == BT_TAG_VALUE_CLOSE) {
        close_value(r, begin);
    } else if (state == BT_REPLY_VALUE_DONE && kind == BT_TAG_KEY_OPEN) {
        open_part(r, BT_REPLY_KEY, end);
    } else if (state == BT_REPLY_VALUE_DONE && kind == BT_TAG_CALL_CLOSE) {
        bt_reply_close_arguments(r);
        return true;
    } else if (state == BT_REPLY_JSON_DONE && kind == BT_TAG_CALL_CLOSE) {
        if (!r->has_arguments) bt_reply_close_arguments(r);
        return true;
    } else if (state == BT_REPLY_OBJECT && kind == BT_TAG_CALL_CLOSE && bt_reply_close_object(r)) {
        return true;
    } else if (state != BT_REPLY_SKIPS || ends_call(kind)) {
        bt_reply_break_call(r, begin);
    }
    return false;
}
