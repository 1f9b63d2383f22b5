/*
 * tiktoken.model, the vocabulary of Kimi's checkpoints: one token a line, its bytes in base64, a space, its rank. The
 * rank is the id. There is no list of merges (see vocab.h), and a piece that is a token as a whole is that token.
 *
 * What the file leaves out is in the vendor's Python, and therefore here: the split pattern; 256 ids for special tokens
 * behind the ranks; the cuts of long texts (cut.h); that nothing is put before a text, whatever the configuration says.
 * So only the vendor's own class of tokenizers is taken, others keep such a file with other patterns.
 *
 * tokenizer_config.json names some of the 256 (added_tokens_decoder); the others are <|reserved_token_ID|>. The flags
 * about white space around a token mean nothing to the vendor's encoder, nor does `normalized`. Its list
 * additional_special_tokens is a leftover of an older model: names without ids, which a library that numbers them puts
 * behind the last row of the embedding. Ids back there are left out, if the file lists any, and that is said: the
 * vendor's encoder does not know them either.
 *
 * Refused: ranks that are missing or doubled, bytes without a token, base64 that is not exact. A file that was cut off
 * at a line's end holds nothing wrong, but then the first special token does not follow the last rank.
 */
#include "text/tokenizer_tiktoken.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "text/warning.h"

#define N_SPECIAL    256
#define RANKS_MAX    (1 << 28)
#define TEXT_OF(key) (int)((key)->size < 80 ? (key)->size : 80), (key)->text

static const char pattern[] = "[\\p{Han}]+|"
                              "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*"
                              "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
                              "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+"
                              "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
                              "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Text [n] to out [n / 4 * 3]; false if it is not base64 with its padding, written the one way there is. */
static bool decode_base64(const char *text, size_t n, char *out, size_t *out_size)
{
    if (n == 0 || n % 4 != 0) return false;
    size_t n_digits = n - (text[n - 1] == '=') - (text[n - 1] == '=' && text[n - 2] == '=');
    size_t used = 0;
    uint32_t bits = 0;
    unsigned n_bits = 0;
    for (size_t i = 0; i < n_digits; i++) {
        int value = base64_value(text[i]);
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out[used++] = (char)(bits >> n_bits & 0xff);
    }
    *out_size = used;
    return (bits & ((1u << n_bits) - 1)) == 0;
}

static bt_status read_line(const char *line, size_t n, size_t number, bt_vocab *v, bt_error *e)
{
    char bytes[BT_KEY_BYTES_MAX + 3];
    size_t size = 0;
    uint64_t rank = 0;
    const char *space = memchr(line, ' ', n);
    size_t n_text = space == NULL ? n : (size_t)(space - line);
    bool fits = n_text <= (BT_KEY_BYTES_MAX + 2) / 3 * 4;
    if (fits && (space == NULL || !decode_base64(line, n_text, bytes, &size))) {
        return bt_fail(e, BT_ERR_FORMAT, "line %zu: a token in base64, a space and its rank are expected", number);
    }
    if (!fits || size > BT_KEY_BYTES_MAX) {
        return bt_fail(e, BT_ERR_FORMAT, "line %zu: a token of more than %d bytes", number, BT_KEY_BYTES_MAX);
    }
    if (!bt_json_u64(space + 1, n - n_text - 1, &rank) || rank >= RANKS_MAX) {
        return bt_fail(e, BT_ERR_FORMAT, "line %zu: the rank is no integer from 0 to %d", number, RANKS_MAX - 1);
    }
    bt_status st = bt_vocab_add_key(v, bytes, size, e);
    if (st == BT_OK) v->keys[v->n_keys - 1].id = (int32_t)rank;
    return st;
}

static bt_status read_lines(const char *text, size_t size, bt_vocab *v, bt_error *e)
{
    bt_status st = BT_OK;
    size_t number = 1;
    for (size_t at = 0; at < size && st == BT_OK; number++) {
        const char *line = text + at, *end = memchr(line, '\n', size - at);
        size_t n = end == NULL ? size - at : (size_t)(end - line);
        at += n + 1;
        if (n > 0 && line[n - 1] == '\r') n--;
        if (n > 0) st = read_line(line, n, number, v, e); /* empty ones are skipped, as Python's reader does */
    }
    return st;
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* Every rank from 0 up to the number of tokens, each once; their order in the file does not matter. */
static bt_status check_ranks(const bt_vocab *v, bt_error *e)
{
    bool *seen = bt_calloc(v->n_keys, sizeof *seen);
    if (seen == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for %zu ranks", v->n_keys);
    bt_status st = BT_OK;
    size_t highest = 0, missing = 0;
    for (size_t i = 0; i < v->n_keys && st == BT_OK; i++) {
        size_t rank = (size_t)v->keys[i].id;
        if (rank > highest) highest = rank;
        if (rank >= v->n_keys) continue;
        if (seen[rank]) st = bt_fail(e, BT_ERR_FORMAT, "the rank %zu is given to two tokens", rank);
        seen[rank] = true;
    }
    while (missing < v->n_keys && seen[missing]) missing++;
    if (st == BT_OK && missing < v->n_keys) {
        st = bt_fail(e, BT_ERR_FORMAT, "no token has the rank %zu, though ranks go up to %zu", missing, highest);
    }
    bt_free(seen);
    return st;
}

/* Any text can be written only if every byte can. */
static bt_status check_bytes(const bt_vocab *v, bt_error *e)
{
    for (unsigned b = 0; b < 256; b++) {
        char byte = (char)b;
        if (bt_vocab_find(v, &byte, 1) >= 0) continue;
        return bt_fail(e, BT_ERR_FORMAT, "no token stands for the byte 0x%02x alone: texts with it have no ids", b);
    }
    return BT_OK;
}

bt_status bt_tiktoken_read(const char *model, size_t size, bt_tokenizer_spec *s, bt_error *e)
{
    const char *placeholder = bt_placeholder_text(model, size);
    if (placeholder != NULL) return bt_fail(e, BT_ERR_FORMAT, "the file %s", placeholder);
    s->vocab.by_rank = true;
    s->ignore_merges = true;
    s->kimi_cuts = true;
    s->splits[0] = (bt_split_spec){.pattern = pattern, .size = sizeof pattern - 1, .behavior = BT_SPLIT_ISOLATED};
    s->n_splits = 1;
    bt_status st = read_lines(model, size, &s->vocab, e);
    if (st == BT_OK && s->vocab.n_keys == 0) return bt_fail(e, BT_ERR_FORMAT, "holds no token");
    if (st == BT_OK) st = check_ranks(&s->vocab, e);
    if (st == BT_OK) st = bt_vocab_index(&s->vocab, e);
    return st == BT_OK ? check_bytes(&s->vocab, e) : st;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* The vendor's class, or the names under which the library saves any tokenizer. */
static bt_status check_class(const bt_json_node *root, bt_error *e)
{
    static const char *const known[] = {"TikTokenTokenizer", "PreTrainedTokenizer", "PreTrainedTokenizerFast",
                                        "TokenizersBackend"};
    const bt_json_node *name = bt_json_get(root, "tokenizer_class");
    if (name == NULL || name->kind == BT_JSON_NULL) return BT_OK;
    if (name->kind != BT_JSON_STRING) return bt_fail(e, BT_ERR_FORMAT, "\"tokenizer_class\" must be a string");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name->text, known[i]) == 0) return BT_OK;
    }
    return bt_fail(e, BT_ERR_UNSUPPORTED,
                   "\"tokenizer_class\" is \"%.80s\"; of those with a tiktoken.model this build knows Kimi's, "
                   "TikTokenTokenizer",
                   name->text);
}

/* All ids behind the ranks, unnamed as yet. */
static bt_status reserve_tokens(bt_tokenizer_spec *s, bt_error *e)
{
    s->added = bt_calloc(N_SPECIAL, sizeof *s->added);
    if (s->arena == NULL) s->arena = bt_arena_new();
    bool failed = s->added == NULL || s->arena == NULL;
    for (size_t i = 0; i < N_SPECIAL && !failed; i++) {
        char text[64];
        size_t id = s->vocab.n_keys + i;
        int size = snprintf(text, sizeof text, "<|reserved_token_%zu|>", id);
        s->added[i] = (bt_added_token){.text = bt_arena_strndup(s->arena, text, (size_t)size),
                                       .size = (size_t)size,
                                       .id = (int32_t)id,
                                       .special = true};
        failed = s->added[i].text == NULL;
    }
    if (failed) return bt_fail(e, BT_ERR_MEMORY, "no memory for the special tokens");
    s->n_added = s->added_capacity = N_SPECIAL;
    return BT_OK;
}

/* One member of added_tokens_decoder. *id: its key. */
static bt_status name_token(const bt_json_node *n, bt_tokenizer_spec *s, uint64_t *id, bt_error *e)
{
    size_t first = s->vocab.n_keys;
    const bt_json_node *content = bt_json_get(n, "content"), *special = bt_json_get(n, "special");
    if (!bt_json_u64(n->key, n->key_size, id)) {
        return bt_fail(e, BT_ERR_FORMAT, "\"added_tokens_decoder\": \"%.80s\" is no id", n->key);
    }
    if (content == NULL || content->kind != BT_JSON_STRING || content->size == 0) {
        return bt_fail(e, BT_ERR_FORMAT, "added token %.20s: \"content\" must be its text", n->key);
    }
    if (*id < first) {
        return bt_fail(e, BT_ERR_FORMAT, "added token \"%.*s\" has the id %.20s, but that is a rank of tiktoken.model",
                       TEXT_OF(content), n->key);
    }
    if (*id >= first + N_SPECIAL) return BT_OK;
    bt_added_token *t = &s->added[*id - first];
    t->text = content->text;
    t->size = content->size;
    return special == NULL ? BT_OK : bt_node_bool(n, content->text, "special", &t->special, e);
}

static bt_status name_tokens(const bt_json_node *list, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *beyond = NULL;
    uint64_t lowest = UINT64_MAX, end = s->vocab.n_keys + N_SPECIAL;
    size_t n_beyond = 0;
    for (const bt_json_node *n = list->child; n != NULL; n = n->next) {
        uint64_t id = 0;
        bt_status st = name_token(n, s, &id, e);
        if (st != BT_OK) return st;
        if (id < lowest) lowest = id;
        if (id < end) continue;
        if (n_beyond++ == 0) beyond = n;
    }
    if (lowest != s->vocab.n_keys) {
        return bt_fail(
            e, BT_ERR_FORMAT,
            "the first special token has the id %llu, but tiktoken.model has %zu ranks: one of the two files "
            "is cut off, or belongs to another model",
            (unsigned long long)lowest, s->vocab.n_keys);
    }
    if (beyond != NULL) {
        bt_warning_add(&s->warnings,
                       "tokenizer_config.json: \"%.80s\" (%.20s) lies behind the last id, %llu: not used%s",
                       bt_json_get(beyond, "content")->text, beyond->key, (unsigned long long)end - 1,
                       n_beyond > 1 ? ", as are others" : "");
    }
    return BT_OK;
}

bt_status bt_tiktoken_config_read(const char *json, size_t size, bt_tokenizer_spec *s, bt_error *e)
{
    const bt_json_node *root;
    bt_status st = reserve_tokens(s, e);
    if (st == BT_OK) st = bt_json_parse(s->arena, json, size, BT_JSON_PYTHON, &root, e);
    if (st != BT_OK) return st;
    if (root->kind != BT_JSON_OBJECT) return bt_fail(e, BT_ERR_FORMAT, "an object is expected");
    st = check_class(root, e);
    if (st != BT_OK) return st;
    const bt_json_node *list = bt_json_get(root, "added_tokens_decoder");
    if (list == NULL || list->kind != BT_JSON_OBJECT || list->n_children == 0) {
        return bt_fail(e, BT_ERR_FORMAT, "\"added_tokens_decoder\" is missing: it names the special tokens");
    }
    return name_tokens(list, s, e);
}
