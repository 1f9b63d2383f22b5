/*
 * Normalizer, pre-tokenizer, post-processor and decoder of tokenizer.json. Each is one component or a Sequence of them.
 * A component or an option that is not known here is refused by its name: ids from a tokenizer that was almost
 * understood are wrong on rare text only, which nobody notices.
 *
 * What is honoured: NFC; Split, Digits, and as the last one ByteLevel (earlier ones would split its alphabet instead of
 * the text); ByteLevel as the decoder. Post-processors put special tokens around what was encoded, which is the
 * caller's decision here: ByteLevel's only moves offsets, TemplateProcessing tells which token begins a text.
 */
#include "text/tokenizer_json.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

/* What ByteLevel splits by with use_regex, from GPT-2. */
#define BYTE_LEVEL_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static bool node_is(const bt_json_node *n, const char *text)
{
    size_t size = strlen(text);
    return n != NULL && n->kind == BT_JSON_STRING && n->size == size && memcmp(n->text, text, size) == 0;
}

bt_status bt_node_bool(const bt_json_node *object, const char *where, const char *key, bool *v, bt_error *e)
{
    const bt_json_node *n = bt_json_get(object, key);
    if (n == NULL || (n->kind != BT_JSON_TRUE && n->kind != BT_JSON_FALSE)) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: \"%s\" must be true or false", where, key);
    }
    *v = n->kind == BT_JSON_TRUE;
    return BT_OK;
}

bt_status bt_node_string(const bt_json_node *object, const char *where, const char *key, const bt_json_node **v,
                         bt_error *e)
{
    *v = bt_json_get(object, key);
    if (*v != NULL && (*v)->kind == BT_JSON_STRING) return BT_OK;
    return bt_fail(e, BT_ERR_FORMAT, "%s: \"%s\" must be a string", where, key);
}

static bool is_listed(const char *words, const char *word, size_t size)
{
    for (const char *at = words; at != NULL;) {
        const char *space = strchr(at, ' ');
        size_t n = space == NULL ? strlen(at) : (size_t)(space - at);
        if (n == size && memcmp(at, word, n) == 0) return true;
        at = space == NULL ? NULL : space + 1;
    }
    return false;
}

bt_status bt_node_only(const bt_json_node *object, const char *where, const char *keys, bt_error *e)
{
    for (const bt_json_node *n = object->child; n != NULL; n = n->next) {
        if (is_listed(keys, n->key, n->key_size)) continue;
        return bt_fail(e, BT_ERR_UNSUPPORTED, "%s: the option \"%.80s\" is not known to this build", where, n->key);
    }
    return BT_OK;
}

/* The "type" of a component. */
static bt_status read_type(const bt_json_node *n, const char *where, const bt_json_node **type, bt_error *e)
{
    if (n->kind != BT_JSON_OBJECT) return bt_fail(e, BT_ERR_FORMAT, "%s: must be an object or null", where);
    return bt_node_string(n, where, "type", type, e);
}

static bt_status refuse_type(const bt_json_node *type, const char *where, bt_error *e)
{
    return bt_fail(e, BT_ERR_UNSUPPORTED, "%s: the type \"%.80s\" is not known to this build", where, type->text);
}

/* The components of a Sequence: its list `key`. */
static bt_status read_sequence(const bt_json_node *n, const char *where, const char *key, const bt_json_node **first,
                               bt_error *e)
{
    const bt_json_node *list = bt_json_get(n, key);
    if (list == NULL || list->kind != BT_JSON_ARRAY) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: \"%s\" must be a list", where, key);
    }
    *first = list->child;
    return BT_OK;
}

/* ---- normalizer -------------------------------------------------------------------------------------------------- */

static bt_status read_one_normalizer(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *type;
    bt_status st = read_type(n, "normalizer", &type, e);
    if (st != BT_OK) return st;
    if (!node_is(type, "NFC")) return refuse_type(type, "normalizer", e);
    s->nfc = true;
    return bt_node_only(n, "normalizer NFC", "type", e);
}

bt_status bt_normalizer_read(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *type, *part = NULL;
    if (n->kind == BT_JSON_NULL) return BT_OK;
    bt_status st = read_type(n, "normalizer", &type, e);
    if (st != BT_OK || !node_is(type, "Sequence")) return st != BT_OK ? st : read_one_normalizer(n, s, e);
    st = bt_node_only(n, "normalizer Sequence", "type normalizers", e);
    if (st == BT_OK) st = read_sequence(n, "normalizer Sequence", "normalizers", &part, e);
    for (; part != NULL && st == BT_OK; part = part->next) st = read_one_normalizer(part, s, e);
    return st;
}

/* ---- pre-tokenizer ----------------------------------------------------------------------------------------------- */

static bt_status add_split(bt_tokenizer_spec *s, bt_split_spec split, bt_error *e)
{
    if (s->n_splits == BT_SPLITS_MAX) {
        return bt_fail(e, BT_ERR_UNSUPPORTED, "pre_tokenizer: more than %d splits", BT_SPLITS_MAX);
    }
    const char *kept = bt_arena_strndup(s->arena, split.pattern, split.size);
    if (kept == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a split pattern");
    split.pattern = kept;
    s->splits[s->n_splits++] = split;
    return BT_OK;
}

static bt_status read_behavior(const bt_json_node *n, bt_split_behavior *v, bt_error *e)
{
    static const struct {
        const char *name;
        bt_split_behavior behavior;
    } known[] = {
        {"Removed", BT_SPLIT_REMOVED},
        {"Isolated", BT_SPLIT_ISOLATED},
        {"MergedWithPrevious", BT_SPLIT_MERGED_WITH_PREVIOUS},
        {"MergedWithNext", BT_SPLIT_MERGED_WITH_NEXT},
        {"Contiguous", BT_SPLIT_CONTIGUOUS},
    };
    const bt_json_node *name;
    bt_status st = bt_node_string(n, "pre_tokenizer Split", "behavior", &name, e);
    if (st != BT_OK) return st;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!node_is(name, known[i].name)) continue;
        *v = known[i].behavior;
        return BT_OK;
    }
    return bt_fail(e, BT_ERR_UNSUPPORTED, "pre_tokenizer Split: the behavior \"%.80s\" is not known to this build",
                   name->text);
}

/* {"Regex": "..."} or {"String": "..."} */
static bt_status read_split(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    static const char where[] = "pre_tokenizer Split";
    bt_split_spec split = {0};
    bt_status st = bt_node_only(n, where, "type pattern behavior invert", e);
    if (st == BT_OK) st = read_behavior(n, &split.behavior, e);
    if (st == BT_OK) st = bt_node_bool(n, where, "invert", &split.invert, e);
    if (st != BT_OK) return st;
    const bt_json_node *pattern = bt_json_get(n, "pattern");
    const bt_json_node *text = bt_json_get(pattern, "Regex");
    split.literal = text == NULL;
    if (split.literal) text = bt_json_get(pattern, "String");
    if (text == NULL || text->kind != BT_JSON_STRING || pattern->n_children != 1) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: \"pattern\" must be {\"Regex\": ...} or {\"String\": ...}", where);
    }
    split.pattern = text->text;
    split.size = text->size;
    return add_split(s, split, e);
}

/* Every character that is a number of any kind. */
static bt_status read_digits(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    bool individual = false;
    bt_status st = bt_node_only(n, "pre_tokenizer Digits", "type individual_digits", e);
    if (st == BT_OK) st = bt_node_bool(n, "pre_tokenizer Digits", "individual_digits", &individual, e);
    if (st != BT_OK) return st;
    bt_split_spec split = {.pattern = "\\p{N}", .size = 5};
    split.behavior = individual ? BT_SPLIT_ISOLATED : BT_SPLIT_CONTIGUOUS;
    return add_split(s, split, e);
}

static bt_status read_byte_level(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    static const char where[] = "pre_tokenizer ByteLevel";
    bool use_regex = true; /* files from before the option existed */
    bt_status st = bt_node_only(n, where, "type add_prefix_space trim_offsets use_regex", e);
    if (st == BT_OK) st = bt_node_bool(n, where, "add_prefix_space", &s->add_prefix_space, e);
    if (st == BT_OK && bt_json_get(n, "use_regex") != NULL) st = bt_node_bool(n, where, "use_regex", &use_regex, e);
    if (st != BT_OK) return st;
    s->byte_level = true;
    if (!use_regex) return BT_OK;
    bt_split_spec split = {.pattern = BYTE_LEVEL_PATTERN, .size = strlen(BYTE_LEVEL_PATTERN)};
    split.behavior = BT_SPLIT_ISOLATED;
    s->byte_level_splits = true;
    return add_split(s, split, e);
}

static bt_status read_one_pre_tokenizer(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *type;
    bt_status st = read_type(n, "pre_tokenizer", &type, e);
    if (st != BT_OK) return st;
    if (s->byte_level) {
        return bt_fail(e, BT_ERR_UNSUPPORTED, "pre_tokenizer: %.80s after ByteLevel, which must be the last",
                       type->text);
    }
    if (node_is(type, "Split")) return read_split(n, s, e);
    if (node_is(type, "Digits")) return read_digits(n, s, e);
    if (node_is(type, "ByteLevel")) return read_byte_level(n, s, e);
    return refuse_type(type, "pre_tokenizer", e);
}

bt_status bt_pre_tokenizer_read(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *type, *part = NULL;
    bt_status st = BT_OK;
    if (n->kind != BT_JSON_NULL) st = read_type(n, "pre_tokenizer", &type, e);
    if (st == BT_OK && n->kind != BT_JSON_NULL && !node_is(type, "Sequence")) {
        st = read_one_pre_tokenizer(n, s, e);
    } else if (st == BT_OK && n->kind != BT_JSON_NULL) {
        st = bt_node_only(n, "pre_tokenizer Sequence", "type pretokenizers", e);
        if (st == BT_OK) st = read_sequence(n, "pre_tokenizer Sequence", "pretokenizers", &part, e);
        for (; part != NULL && st == BT_OK; part = part->next) st = read_one_pre_tokenizer(part, s, e);
    }
    if (st != BT_OK || s->byte_level) return st;
    return bt_fail(e, BT_ERR_UNSUPPORTED, "pre_tokenizer: no ByteLevel; this build runs byte-level BPE only");
}

/* ---- post-processor ---------------------------------------------------------------------------------------------- */

/* {"single": [{"SpecialToken": {"id": "<s>", ...}}, {"Sequence": ...}], ...}: what stands before the first Sequence. */
static bt_status read_template(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *first = NULL, *id = NULL;
    bt_status st = read_sequence(n, "post_processor TemplateProcessing", "single", &first, e);
    if (st != BT_OK || first == NULL) return st;
    const bt_json_node *token = bt_json_get(first, "SpecialToken");
    if (token == NULL) return BT_OK;
    st = bt_node_string(token, "post_processor TemplateProcessing", "id", &id, e);
    if (st != BT_OK) return st;
    s->template_bos = bt_arena_strndup(s->arena, id->text, id->size);
    return s->template_bos != NULL ? BT_OK : bt_fail(e, BT_ERR_MEMORY, "no memory for the post-processor");
}

static bt_status read_one_post_processor(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *type;
    bt_status st = read_type(n, "post_processor", &type, e);
    if (st != BT_OK) return st;
    if (node_is(type, "ByteLevel")) return BT_OK;
    if (node_is(type, "TemplateProcessing")) return read_template(n, s, e);
    return refuse_type(type, "post_processor", e);
}

bt_status bt_post_processor_read(const bt_json_node *n, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *type, *part = NULL;
    if (n->kind == BT_JSON_NULL) return BT_OK;
    bt_status st = read_type(n, "post_processor", &type, e);
    if (st != BT_OK || !node_is(type, "Sequence")) return st != BT_OK ? st : read_one_post_processor(n, s, e);
    st = read_sequence(n, "post_processor Sequence", "processors", &part, e);
    for (; part != NULL && st == BT_OK; part = part->next) st = read_one_post_processor(part, s, e);
    return st;
}

/* ---- decoder ----------------------------------------------------------------------------------------------------- */

bt_status bt_text_decoder_read(const bt_json_node *n, bt_error *e)
{
    const bt_json_node *type, *only = n;
    if (n->kind == BT_JSON_NULL) return bt_fail(e, BT_ERR_UNSUPPORTED, "decoder: null; this build needs ByteLevel");
    bt_status st = read_type(n, "decoder", &type, e);
    if (st == BT_OK && node_is(type, "Sequence")) {
        st = read_sequence(n, "decoder Sequence", "decoders", &only, e);
        if (st == BT_OK && (only == NULL || only->next != NULL)) {
            st = bt_fail(e, BT_ERR_UNSUPPORTED, "decoder: a Sequence of other than one ByteLevel");
        }
        if (st == BT_OK) st = read_type(only, "decoder", &type, e);
    }
    if (st != BT_OK) return st;
    return node_is(type, "ByteLevel") ? BT_OK : refuse_type(type, "decoder", e);
}
