/*
 * tokenizer.json (Hugging Face tokenizers, byte-level BPE) and what tokenizer_config.json adds to it.
 *
 * Vocabulary and merges make up almost all of a file of 10 MB and more: they go from the scanner straight into the
 * vocabulary. The rest is small and becomes trees. Members may come in any order; where merges come before the
 * vocabulary that they refer to, the file is read a second time for them.
 *
 * Refused by name, never ignored: other model types, byte_fallback, unk_token, dropout, prefixes and suffixes of
 * subwords, and whatever this build does not know. An absent model type is taken for BPE, as Hugging Face's library
 * does for such a file with vocabulary and merges. Truncation and padding are not applied: the caller counts tokens.
 */
#include "text/tokenizer_json.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define ADDED_MAX 1000000

typedef struct reader {
    bt_json j;
    bt_tokenizer_spec *s;
    bt_error *e;
    bool only_merges;  /* second pass */
    bool merges_later; /* they came before the vocabulary */
    bool has_merges;
    unsigned seen; /* top-level members, one bit each */
} reader;

void bt_tokenizer_spec_free(bt_tokenizer_spec *s)
{
    bt_vocab_free(&s->vocab);
    bt_free(s->added);
    bt_arena_free(s->arena);
    bt_text_free(&s->warnings);
    *s = (bt_tokenizer_spec){0};
}

/* What `expected` is called in a message that misses it. */
static bt_status expect(reader *r, bt_json_kind kind, bt_json_kind expected, const char *what)
{
    if (kind == expected) return BT_OK;
    if (kind == BT_JSON_ERROR) return r->j.status;
    return bt_json_fail(&r->j, "%s", what);
}

/* A fault in what was just read, told by a function that knows no lines. */
static bt_status at_line(reader *r, bt_status st)
{
    if (st == BT_OK || st == BT_ERR_MEMORY || r->e == NULL) return st;
    char message[512];
    size_t n = strlen(r->e->message);
    if (n >= sizeof message) n = sizeof message - 1;
    memcpy(message, r->e->message, n);
    message[n] = '\0';
    (void)bt_json_fail(&r->j, "%s", message);
    r->e->status = st;
    return st;
}

/* ---- model ------------------------------------------------------------------------------------------------------- */

static bt_status read_vocab(reader *r)
{
    bt_vocab *v = &r->s->vocab;
    if (v->slots != NULL) return bt_json_fail(&r->j, "model.vocab appears twice");
    bt_json_kind kind = bt_json_next(&r->j);
    bt_status st = expect(r, kind, BT_JSON_OBJECT, "model.vocab must be an object of texts and ids");
    while (st == BT_OK && (kind = bt_json_next(&r->j)) != BT_JSON_OBJECT_END) {
        if (kind == BT_JSON_ERROR) return r->j.status;
        assert(kind == BT_JSON_KEY);
        st = at_line(r, bt_vocab_add_key(v, r->j.text, r->j.size, r->e));
        if (st != BT_OK) return st;
        uint64_t id = 0;
        kind = bt_json_next(&r->j);
        if (kind == BT_JSON_ERROR) return r->j.status;
        if (kind != BT_JSON_NUMBER || !bt_json_u64(r->j.text, r->j.size, &id) || id > INT32_MAX) {
            return bt_json_fail(&r->j, "model.vocab: the id of \"%.80s\" is no integer from 0 to 2147483647",
                                v->keys[v->n_keys - 1].key);
        }
        v->keys[v->n_keys - 1].id = (int32_t)id;
    }
    return st == BT_OK ? bt_vocab_index(v, r->e) : st;
}

/* "a b": one space, which stands between the parts. */
static bt_status read_merge_string(reader *r)
{
    const char *text = r->j.text;
    size_t size = r->j.size;
    const char *space = memchr(text, ' ', size);
    if (space == NULL || memchr(space + 1, ' ', size - (size_t)(space + 1 - text)) != NULL) {
        return bt_json_fail(&r->j, "merge %zu must be two parts with one space between", r->s->vocab.n_merges);
    }
    size_t left = (size_t)(space - text);
    return at_line(r, bt_vocab_add_merge(&r->s->vocab, text, left, space + 1, size - left - 1, r->e));
}

/* ["a", "b"], after its '['. */
static bt_status read_merge_pair(reader *r)
{
    static const char what[] = "a merge must be a string \"a b\" or a pair [\"a\", \"b\"]";
    char left[BT_KEY_BYTES_MAX];
    bt_status st = expect(r, bt_json_next(&r->j), BT_JSON_STRING, what);
    if (st != BT_OK) return st;
    size_t left_size = r->j.size;
    if (left_size > sizeof left) return bt_json_fail(&r->j, "a part of a merge has %zu bytes", left_size);
    memcpy(left, r->j.text, left_size);
    st = expect(r, bt_json_next(&r->j), BT_JSON_STRING, what);
    if (st == BT_OK) {
        st = at_line(r, bt_vocab_add_merge(&r->s->vocab, left, left_size, r->j.text, r->j.size, r->e));
    }
    return st == BT_OK ? expect(r, bt_json_next(&r->j), BT_JSON_ARRAY_END, what) : st;
}

static bt_status read_merges(reader *r)
{
    bt_json_kind kind = bt_json_next(&r->j);
    bt_status st = expect(r, kind, BT_JSON_ARRAY, "model.merges must be a list");
    if (st == BT_OK && r->has_merges) return bt_json_fail(&r->j, "model.merges appears twice");
    if (st == BT_OK && r->s->vocab.slots == NULL) {
        r->merges_later = true;
        return bt_json_skip(&r->j, kind) ? BT_OK : r->j.status;
    }
    r->has_merges = true;
    while (st == BT_OK && (kind = bt_json_next(&r->j)) != BT_JSON_ARRAY_END) {
        if (kind == BT_JSON_STRING) {
            st = read_merge_string(r);
        } else {
            st = expect(r, kind, BT_JSON_ARRAY, "a merge must be a string \"a b\" or a pair [\"a\", \"b\"]");
            if (st == BT_OK) st = read_merge_pair(r);
        }
    }
    return st;
}

/* An option whose value makes another kind of BPE: only `harmless` ones pass. */
static bt_status read_model_option(reader *r, const char *name)
{
    bt_json_kind kind = bt_json_next(&r->j);
    if (kind == BT_JSON_ERROR) return r->j.status;
    bool empty = kind == BT_JSON_STRING && r->j.size == 0;
    bool zero = kind == BT_JSON_NUMBER && (bt_json_text_is(&r->j, "0") || bt_json_text_is(&r->j, "0.0"));
    if (kind == BT_JSON_NULL || kind == BT_JSON_FALSE || empty || zero) return BT_OK;
    r->j.status = bt_fail(r->e, BT_ERR_UNSUPPORTED, "model.%s: this build runs byte-level BPE without it", name);
    return r->j.status;
}

static bt_status read_model_type(reader *r)
{
    bt_status st = expect(r, bt_json_next(&r->j), BT_JSON_STRING, "model.type must be a string");
    if (st != BT_OK || bt_json_text_is(&r->j, "BPE")) return st;
    r->j.status = bt_fail(r->e, BT_ERR_UNSUPPORTED, "the model type \"%.*s\" is not known to this build, only BPE",
                          (int)(r->j.size < 80 ? r->j.size : 80), r->j.text);
    return r->j.status;
}

static bt_status read_bool(reader *r, const char *what, bool *v)
{
    bt_json_kind kind = bt_json_next(&r->j);
    if (kind == BT_JSON_ERROR) return r->j.status;
    if (kind != BT_JSON_TRUE && kind != BT_JSON_FALSE) return bt_json_fail(&r->j, "%s must be true or false", what);
    *v = kind == BT_JSON_TRUE;
    return BT_OK;
}

static bt_status skip_value(reader *r)
{
    return bt_json_skip(&r->j, bt_json_next(&r->j)) ? BT_OK : r->j.status;
}

/* The member whose key was just read. */
static bt_status read_model_member(reader *r)
{
    static const char *const options[] = {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                          "byte_fallback"};
    if (bt_json_text_is(&r->j, "merges")) return read_merges(r);
    if (r->only_merges) return skip_value(r);
    if (bt_json_text_is(&r->j, "vocab")) return read_vocab(r);
    if (bt_json_text_is(&r->j, "type")) return read_model_type(r);
    if (bt_json_text_is(&r->j, "ignore_merges")) return read_bool(r, "model.ignore_merges", &r->s->ignore_merges);
    if (bt_json_text_is(&r->j, "fuse_unk")) return skip_value(r); /* says nothing where no token is unknown */
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (bt_json_text_is(&r->j, options[i])) return read_model_option(r, options[i]);
    }
    r->j.status = bt_fail(r->e, BT_ERR_UNSUPPORTED, "model: the option \"%.*s\" is not known to this build",
                          (int)(r->j.size < 80 ? r->j.size : 80), r->j.text);
    return r->j.status;
}

static bt_status read_model(reader *r)
{
    bt_status st = expect(r, bt_json_next(&r->j), BT_JSON_OBJECT, "\"model\" must be an object");
    bt_json_kind kind;
    while (st == BT_OK && (kind = bt_json_next(&r->j)) != BT_JSON_OBJECT_END) {
        if (kind == BT_JSON_ERROR) return r->j.status;
        st = read_model_member(r);
    }
    if (st != BT_OK) return st;
    if (r->s->vocab.slots == NULL) return bt_json_fail(&r->j, "the model has no \"vocab\"");
    if (!r->has_merges && !r->merges_later) return bt_json_fail(&r->j, "the model has no \"merges\"");
    return BT_OK;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

static bt_status read_added_token(const bt_json_node *n, bt_added_token *t, bt_error *e)
{
    static const char where[] = "an added token";
    const bt_json_node *content = NULL, *id = bt_json_get(n, "id");
    uint64_t number = 0;
    if (n->kind != BT_JSON_OBJECT) return bt_fail(e, BT_ERR_FORMAT, "%s: must be an object", where);
    bt_status st = bt_node_only(n, where, "id content single_word lstrip rstrip normalized special", e);
    if (st == BT_OK) st = bt_node_string(n, where, "content", &content, e);
    if (st != BT_OK) return st;
    char named[128];
    int written = snprintf(named, sizeof named, "added token \"%.80s\"", content->text);
    assert(written > 0);
    if (id == NULL || id->kind != BT_JSON_NUMBER || !bt_json_u64(id->text, id->size, &number) || number > INT32_MAX) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: its id is no integer from 0 to 2147483647", named);
    }
    t->text = content->text;
    t->size = content->size;
    t->id = (int32_t)number;
    st = bt_node_bool(n, named, "single_word", &t->single_word, e);
    if (st == BT_OK) st = bt_node_bool(n, named, "lstrip", &t->lstrip, e);
    if (st == BT_OK) st = bt_node_bool(n, named, "rstrip", &t->rstrip, e);
    if (st == BT_OK) st = bt_node_bool(n, named, "normalized", &t->normalized, e);
    if (st == BT_OK) st = bt_node_bool(n, named, "special", &t->special, e);
    return st;
}

static bt_status read_added(reader *r)
{
    bt_tokenizer_spec *s = r->s;
    bt_json_kind kind = bt_json_next(&r->j);
    bt_status st = expect(r, kind, BT_JSON_ARRAY, "\"added_tokens\" must be a list");
    while (st == BT_OK && (kind = bt_json_next(&r->j)) != BT_JSON_ARRAY_END) {
        const bt_json_node *node;
        if (kind == BT_JSON_ERROR) return r->j.status;
        st = bt_json_subtree(s->arena, &r->j, kind, &node);
        if (st != BT_OK) return st;
        if (s->n_added == ADDED_MAX) return bt_json_fail(&r->j, "more than %d added tokens", ADDED_MAX);
        if (s->n_added == s->added_capacity) {
            size_t capacity = s->added_capacity == 0 ? 64 : s->added_capacity * 2;
            bt_added_token *more = bt_realloc(s->added, capacity, sizeof *more);
            if (more == NULL) return bt_fail(r->e, BT_ERR_MEMORY, "no memory for the added tokens");
            s->added = more;
            s->added_capacity = capacity;
        }
        s->added[s->n_added] = (bt_added_token){0};
        st = at_line(r, read_added_token(node, &s->added[s->n_added++], r->e));
    }
    return st;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

typedef enum member {
    MEMBER_MODEL,
    MEMBER_ADDED,
    MEMBER_NORMALIZER,
    MEMBER_PRE_TOKENIZER,
    MEMBER_POST_PROCESSOR,
    MEMBER_DECODER,
    MEMBER_IGNORED,
    MEMBER_UNKNOWN = MEMBER_IGNORED + 3,
} member;

static const char *const members[MEMBER_UNKNOWN] = {"model",         "added_tokens",   "normalizer",
                                                    "pre_tokenizer", "post_processor", "decoder",
                                                    "version",       "truncation",     "padding"};

/* A part that is small enough for a tree. */
static bt_status read_part(reader *r, unsigned which)
{
    const bt_json_node *n;
    bt_status st = bt_json_subtree(r->s->arena, &r->j, bt_json_next(&r->j), &n);
    if (st != BT_OK) return st;
    switch (which) {
    case MEMBER_NORMALIZER:
        return at_line(r, bt_normalizer_read(n, r->s, r->e));
    case MEMBER_PRE_TOKENIZER:
        return at_line(r, bt_pre_tokenizer_read(n, r->s, r->e));
    case MEMBER_POST_PROCESSOR:
        return at_line(r, bt_post_processor_read(n, r->s, r->e));
    case MEMBER_DECODER:
        return at_line(r, bt_text_decoder_read(n, r->e));
    default:
        return BT_OK;
    }
}

/* The member whose key was just read. */
static bt_status read_member(reader *r)
{
    unsigned which = 0;
    while (which < MEMBER_UNKNOWN && !bt_json_text_is(&r->j, members[which])) which++;
    if (which == MEMBER_UNKNOWN) {
        r->j.status = bt_fail(r->e, BT_ERR_UNSUPPORTED, "the member \"%.*s\" is not known to this build",
                              (int)(r->j.size < 80 ? r->j.size : 80), r->j.text);
        return r->j.status;
    }
    if (r->only_merges) return which == MEMBER_MODEL ? read_model(r) : skip_value(r);
    if ((r->seen >> which & 1) != 0) return bt_json_fail(&r->j, "\"%s\" appears twice", members[which]);
    r->seen |= 1u << which;
    if (which == MEMBER_MODEL) return read_model(r);
    if (which == MEMBER_ADDED) return read_added(r);
    return read_part(r, which);
}

static bt_status read_document(reader *r)
{
    bt_status st = expect(r, bt_json_next(&r->j), BT_JSON_OBJECT, "not a tokenizer: an object is expected");
    bt_json_kind kind;
    while (st == BT_OK && (kind = bt_json_next(&r->j)) != BT_JSON_OBJECT_END) {
        if (kind == BT_JSON_ERROR) return r->j.status;
        st = read_member(r);
    }
    return st == BT_OK ? expect(r, bt_json_next(&r->j), BT_JSON_END, "more text after the end") : st;
}

bt_status bt_tokenizer_json_read(const char *json, size_t size, bt_tokenizer_spec *s, bt_error *e)
{
    if (s->arena == NULL) s->arena = bt_arena_new();
    if (s->arena == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a tokenizer");
    reader r = {.s = s, .e = e};
    bt_json_begin(&r.j, json, size, 0, e);
    bt_status st = read_document(&r);
    bt_json_done(&r.j);
    if (st == BT_OK && r.merges_later) {
        r.only_merges = true;
        bt_json_begin(&r.j, json, size, 0, e);
        st = read_document(&r);
        bt_json_done(&r.j);
    }
    if (st != BT_OK) return st;
    for (unsigned which = 0; which < MEMBER_IGNORED; which++) {
        bool optional = which == MEMBER_ADDED || which == MEMBER_NORMALIZER || which == MEMBER_POST_PROCESSOR;
        if (optional || (r.seen >> which & 1) != 0) continue;
        return bt_fail(e, BT_ERR_FORMAT, "\"%s\" is missing", members[which]);
    }
    return BT_OK;
}

/* ---- tokenizer_config.json --------------------------------------------------------------------------------------- */

bt_status bt_tokenizer_config_read(const char *json, size_t size, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *root;
    bt_status st = bt_json_parse(s->arena, json, size, BT_JSON_PYTHON, &root, e);
    if (st != BT_OK) return st;
    if (root->kind != BT_JSON_OBJECT) return bt_fail(e, BT_ERR_FORMAT, "an object is expected");
    const bt_json_node *add = bt_json_get(root, "add_bos_token");
    if (add != NULL && add->kind != BT_JSON_NULL) {
        if (add->kind != BT_JSON_TRUE && add->kind != BT_JSON_FALSE) {
            return bt_fail(e, BT_ERR_FORMAT, "\"add_bos_token\" must be true, false or null");
        }
        s->add_bos = add->kind == BT_JSON_TRUE ? BT_ADD_BOS_YES : BT_ADD_BOS_NO;
    }
    const bt_json_node *bos = bt_json_get(root, "bos_token"); /* a text, or an object with its flags */
    if (bos != NULL && bos->kind == BT_JSON_OBJECT) bos = bt_json_get(bos, "content");
    if (bos != NULL && bos->kind == BT_JSON_STRING) s->bos_token = bos->text;
    if (s->add_bos == BT_ADD_BOS_YES && s->bos_token == NULL) {
        return bt_fail(e, BT_ERR_FORMAT, "\"add_bos_token\" is true, but no \"bos_token\" is given");
    }
    return BT_OK;
}
