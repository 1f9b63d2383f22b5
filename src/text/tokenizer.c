/*
 * Tokenizer: text to ids and back, as Hugging Face's byte-level BPE tokenizers do it, and Kimi's.
 *
 *   text -> cut into parts (Kimi's) -> added tokens are cut out (if asked) -> each piece normalised -> added tokens of
 *        the normalised kind -> each piece split by the pre-tokenizer -> bytes -> merged -> ids
 *
 * Where a folder has both tokenizer.json and tiktoken.model, the latter counts: it is the vendor's own file, the other
 * a conversion of it (case C26). That is said as a warning.
 *
 * A tokenizer is immutable once open and may be shared between threads: whatever an encoding writes lives in a `run` of
 * its own. Ids come from names in the file; none is known here.
 *
 * The BOS rule (bt_tokenizer_bos): add_bos_token of tokenizer_config.json where it is given, with its bos_token; else
 * the token that the post-processor's template begins with. Nothing is ever put before a text by encoding itself.
 * Decoding leaves clean_up_tokenization_spaces off: it would change text that the model wrote.
 */
#include "text/tokenizer.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/cut.h"
#include "text/normalize.h"
#include "text/split.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_tiktoken.h"
#include "text/vocab.h"
#include "text/warning.h"

#define FILE_BYTES_MAX ((size_t)512 << 20)
#define TEXT_BYTES_MAX ((size_t)1 << 29) /* an encoding takes up to 60 bytes of memory for each */

struct bt_tokenizer {
    const char *file; /* that it was made from */
    bt_vocab vocab;
    bool ignore_merges; /* a piece that is a token is that token, whatever the merges say */
    bool kimi_cuts;
    bool nfc;
    bool add_prefix_space;
    bt_splitter *splitters[BT_SPLITS_MAX];
    size_t n_splitters;
    size_t n_before_prefix;     /* of them, those that act before add_prefix_space */
    bt_added *added;            /* looked for in the text as it is */
    bt_added *added_normalized; /* looked for in the normalised text */
    int32_t bos;
    bt_text warnings;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* One token; `texts` holds those before it, to find a text that comes twice. */
static bt_status add_token(bt_tokenizer *t, const bt_added_token *token, bt_added *texts, bt_nfc *nfc, bt_error *e)
{
    bool known = false;
    const char *text = token->text;
    size_t size = token->size;
    bt_status st = bt_vocab_add_token(&t->vocab, text, size, token->id, token->special, e);
    if (st == BT_OK) st = bt_added_add(texts, text, size, token, &known, e);
    if (st == BT_OK && known) {
        st = bt_fail(e, BT_ERR_FORMAT, "added token \"%.80s\" is listed twice, the second time with the id %d", text,
                     (int)token->id);
    }
    if (st == BT_OK && token->normalized && t->nfc) st = bt_nfc_apply(nfc, text, size, &text, &size, e);
    bt_added *found_in = token->normalized ? t->added_normalized : t->added;
    return st == BT_OK ? bt_added_add(found_in, text, size, token, &known, e) : st;
}

static bt_status add_tokens(bt_tokenizer *t, const bt_tokenizer_spec *s, bt_error *e)
{
    bt_nfc nfc = {0};
    bt_added *texts = NULL;
    bt_status st = bt_added_open(&texts, e);
    if (st == BT_OK) st = bt_added_open(&t->added, e);
    if (st == BT_OK) st = bt_added_open(&t->added_normalized, e);
    for (size_t i = 0; i < s->n_added && st == BT_OK; i++) st = add_token(t, &s->added[i], texts, &nfc, e);
    bt_added_close(texts);
    bt_nfc_free(&nfc);
    return st;
}

static bt_status open_splitters(bt_tokenizer *t, const bt_tokenizer_spec *s, bt_error *e)
{
    for (size_t i = 0; i < s->n_splits; i++) {
        const bt_split_spec *p = &s->splits[i];
        bt_status st = bt_splitter_open(p->pattern, p->size, p->literal, p->behavior, p->invert, &t->splitters[i], e);
        if (st != BT_OK) return st;
        t->n_splitters++;
    }
    t->n_before_prefix = s->n_splits - (s->byte_level_splits ? 1 : 0);
    return BT_OK;
}

static bt_status find_bos(bt_tokenizer *t, const bt_tokenizer_spec *s, bt_error *e)
{
    t->bos = -1;
    const char *bos = s->add_bos == BT_ADD_BOS_YES ? s->bos_token : s->template_bos;
    if (s->add_bos == BT_ADD_BOS_NO || bos == NULL) return BT_OK;
    t->bos = bt_tokenizer_find(t, bos);
    if (t->bos >= 0) return BT_OK;
    return bt_fail(e, BT_ERR_FORMAT, "the token to put before a text, \"%.80s\", is not in the vocabulary", bos);
}

static bt_status check_warnings(const bt_tokenizer *t, bt_error *e)
{
    return bt_text_ok(&t->warnings) ? BT_OK : bt_fail(e, BT_ERR_MEMORY, "no memory for a tokenizer's warnings");
}

/* Finishes what the spec began; takes its vocabulary and warnings. */
static bt_status build(bt_tokenizer *t, bt_tokenizer_spec *s, bt_error *e)
{
    int32_t id_max = -1;
    for (size_t i = 0; i < s->n_added; i++) {
        if (s->added[i].id > id_max) id_max = s->added[i].id;
    }
    t->vocab = s->vocab;
    s->vocab = (bt_vocab){0};
    t->warnings = s->warnings;
    s->warnings = (bt_text){0};
    t->ignore_merges = s->ignore_merges;
    t->kimi_cuts = s->kimi_cuts;
    t->nfc = s->nfc;
    t->add_prefix_space = s->add_prefix_space;
    bt_status st = bt_vocab_finish(&t->vocab, id_max, e);
    if (st == BT_OK) st = add_tokens(t, s, e);
    if (st == BT_OK) st = open_splitters(t, s, e);
    if (st == BT_OK) st = find_bos(t, s, e);
    return st == BT_OK ? check_warnings(t, e) : st;
}

/* Makes the tokenizer of a spec that was read (or not: st), and frees the spec. */
static bt_status finish(bt_status st, bt_tokenizer_spec *spec, const char *file, bt_tokenizer **out, bt_error *e)
{
    bt_tokenizer *t = st == BT_OK ? bt_calloc(1, sizeof *t) : NULL;
    if (st == BT_OK && t == NULL) st = bt_fail(e, BT_ERR_MEMORY, "no memory for a tokenizer");
    if (st == BT_OK) {
        t->file = file;
        st = build(t, spec, e);
        if (st != BT_OK) (void)bt_fail_in(e, st, "%s", file);
    }
    bt_tokenizer_spec_free(spec);
    if (st == BT_OK) {
        *out = t;
    } else {
        bt_tokenizer_close(t);
    }
    return st;
}

bt_status bt_tokenizer_open_text(const char *json, size_t json_size, const char *config, size_t config_size,
                                 bt_tokenizer **out, bt_error *e)
{
    bt_tokenizer_spec spec = {0};
    bt_status st = bt_tokenizer_json_read(json, json_size, &spec, e);
    if (st != BT_OK) (void)bt_fail_in(e, st, "tokenizer.json");
    if (st == BT_OK && config != NULL) {
        st = bt_tokenizer_config_read(config, config_size, &spec, e);
        if (st != BT_OK) (void)bt_fail_in(e, st, "tokenizer_config.json");
    }
    return finish(st, &spec, "tokenizer.json", out, e);
}

bt_status bt_tokenizer_open_tiktoken(const char *model, size_t model_size, const char *config, size_t config_size,
                                     bt_tokenizer **out, bt_error *e)
{
    bt_tokenizer_spec spec = {0};
    bt_status st = bt_tiktoken_read(model, model_size, &spec, e);
    if (st != BT_OK) (void)bt_fail_in(e, st, "tiktoken.model");
    if (st == BT_OK) {
        st = bt_tiktoken_config_read(config, config_size, &spec, e);
        if (st != BT_OK) (void)bt_fail_in(e, st, "tokenizer_config.json");
    }
    return finish(st, &spec, "tiktoken.model", out, e);
}

/* A file of the folder, whole; *data NULL: it is not there. */
static bt_status read_file_of(const char *folder, const char *name, char **data, size_t *size, bt_error *e)
{
    char *path = bt_path_join(folder, name);
    if (path == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a path");
    bt_path_kind kind;
    bt_status st = bt_path_look(path, &kind, e);
    if (st == BT_OK && kind != BT_PATH_ABSENT) st = bt_read_file(path, FILE_BYTES_MAX, data, size, e);
    bt_free(path);
    return st;
}

static bt_status tell_of_json_beside(const char *folder, bt_tokenizer *t, bt_error *e)
{
    char *path = bt_path_join(folder, "tokenizer.json");
    if (path == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a path");
    if (bt_path_exists(path)) {
        bt_warning_add(&t->warnings, "%s: tiktoken.model is the tokenizer; the tokenizer.json beside it is not used",
                       folder);
    }
    bt_free(path);
    return check_warnings(t, e);
}

bt_status bt_tokenizer_open(const char *folder, bt_tokenizer **out, bt_error *e)
{
    char *ranks = NULL, *json = NULL, *config = NULL;
    bt_tokenizer *t = NULL;
    size_t ranks_size = 0, json_size = 0, config_size = 0;
    if (folder == NULL) return bt_fail(e, BT_ERR_USAGE, "no folder of a tokenizer is given");
    bt_status st = read_file_of(folder, "tiktoken.model", &ranks, &ranks_size, e);
    if (st == BT_OK && ranks == NULL) st = read_file_of(folder, "tokenizer.json", &json, &json_size, e);
    if (st == BT_OK) st = read_file_of(folder, "tokenizer_config.json", &config, &config_size, e);
    if (st == BT_OK && ranks == NULL && json == NULL) {
        st = bt_fail(e, BT_ERR_IO, "%s: there is no tokenizer.json, nor a tiktoken.model", folder);
    } else if (st == BT_OK && ranks != NULL && config == NULL) {
        st = bt_fail(e, BT_ERR_IO,
                     "%s: there is no tokenizer_config.json, which names the special tokens of tiktoken.model", folder);
    } else if (st == BT_OK) {
        st = ranks == NULL ? bt_tokenizer_open_text(json, json_size, config, config_size, &t, e)
                           : bt_tokenizer_open_tiktoken(ranks, ranks_size, config, config_size, &t, e);
        if (st != BT_OK) (void)bt_fail_in(e, st, "%s", folder);
    }
    if (st == BT_OK && ranks != NULL) st = tell_of_json_beside(folder, t, e);
    bt_free(ranks);
    bt_free(json);
    bt_free(config);
    if (st == BT_OK) {
        *out = t;
    } else {
        bt_tokenizer_close(t);
    }
    return st;
}

void bt_tokenizer_close(bt_tokenizer *t)
{
    if (t == NULL) return;
    for (size_t i = 0; i < t->n_splitters; i++) bt_splitter_close(t->splitters[i]);
    bt_added_close(t->added);
    bt_added_close(t->added_normalized);
    bt_vocab_free(&t->vocab);
    bt_text_free(&t->warnings);
    bt_free(t);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

size_t bt_tokenizer_n_vocab(const bt_tokenizer *t)
{
    return t->vocab.n_ids;
}

const char *bt_tokenizer_warnings(const bt_tokenizer *t)
{
    return t->warnings.data == NULL ? "" : t->warnings.data;
}

size_t bt_tokenizer_token_bytes_max(const bt_tokenizer *t)
{
    return t->vocab.token_bytes_max;
}

bool bt_tokenizer_is_added(const bt_tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->vocab.n_ids && (t->vocab.tokens[id].flags & BT_TOKEN_ADDED) != 0;
}

int32_t bt_tokenizer_bos(const bt_tokenizer *t)
{
    return t->bos;
}

const char *bt_tokenizer_file(const bt_tokenizer *t)
{
    return t->file;
}

/* Bytes into GPT-2's alphabet, to key [2 * n]. */
static size_t bytes_to_key(const char *bytes, size_t n, char *key)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) used += bt_byte_to_char((uint8_t)bytes[i], key + used);
    return used;
}

/* A rare question (a handful of names at start): a walk over the tokens needs no table. */
int32_t bt_tokenizer_find(const bt_tokenizer *t, const char *text)
{
    size_t size = text == NULL ? 0 : strlen(text);
    int32_t found = -1;
    if (size == 0) return -1;
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        const bt_token *token = &t->vocab.tokens[id];
        if (token->text == NULL || token->size != size || memcmp(token->text, text, size) != 0) continue;
        if ((token->flags & BT_TOKEN_ADDED) != 0) return (int32_t)id;
        if (found < 0) found = (int32_t)id;
    }
    return found;
}

bt_status bt_tokenizer_text(const bt_tokenizer *t, int32_t id, unsigned flags, const char **text, size_t *size,
                            bt_error *e)
{
    const bt_token *token = id >= 0 && (size_t)id < t->vocab.n_ids ? &t->vocab.tokens[id] : NULL;
    if (token == NULL || token->text == NULL) {
        return bt_fail(e, BT_ERR_USAGE, "the id %d stands for no token (the vocabulary ends at %zu)", (int)id,
                       t->vocab.n_ids);
    }
    bool hidden = (token->flags & BT_TOKEN_SPECIAL) != 0 && (flags & BT_TEXT_SPECIAL) == 0;
    *text = hidden ? "" : token->text;
    *size = hidden ? 0 : token->size;
    return BT_OK;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

typedef struct run { /* one encoding */
    const bt_tokenizer *t;
    const char *text;          /* all of it */
    const bt_spans *allowed;   /* where added tokens may be; NULL: everywhere */
    bt_spans allowed_in_part;  /* the same in the part at hand, where there are several */
    bt_spans allowed_in_piece; /* and in the normalised piece at hand */
    bt_ids ids;
    bt_nfc nfc;
    bt_splitting *splitting;
    bt_spans pieces, next_pieces; /* before and after a split */
    bt_spans prefixed;            /* of the piece with its prefix space */
    char *prefix;                 /* that piece */
    size_t prefix_bytes;
    bt_bpe bpe;
    uint64_t n_scanned;
    bt_error *e;
} run;

static void run_done(run *r)
{
    bt_free(r->ids.data);
    bt_free(r->allowed_in_part.data);
    bt_free(r->allowed_in_piece.data);
    bt_nfc_free(&r->nfc);
    bt_splitting_close(r->splitting);
    bt_free(r->pieces.data);
    bt_free(r->next_pieces.data);
    bt_free(r->prefixed.data);
    bt_free(r->prefix);
    bt_bpe_free(&r->bpe);
}

static bt_status encode_piece(run *r, const char *piece, size_t n)
{
    const bt_vocab *v = &r->t->vocab;
    char key[2 * BT_KEY_BYTES_MAX];
    if (r->t->ignore_merges && n <= BT_KEY_BYTES_MAX) {
        int32_t id = v->by_rank ? bt_vocab_find(v, piece, n) : bt_vocab_find(v, key, bytes_to_key(piece, n, key));
        if (id >= 0 && r->bpe.plain_only && bt_tokenizer_is_added(r->t, id)) id = -1;
        if (id >= 0) return bt_ids_add(&r->ids, id, r->e);
    }
    return bt_bpe_encode(v, &r->bpe, piece, n, &r->ids, r->e);
}

/* Applies splitters [first, end) to the pieces of the text in r->pieces. */
static bt_status split_pieces(run *r, const char *text, size_t first, size_t end, bt_spans *pieces)
{
    bt_status st = BT_OK;
    for (size_t i = first; i < end && st == BT_OK; i++) {
        r->next_pieces.n = 0;
        for (size_t k = 0; k < pieces->n && st == BT_OK; k++) {
            st = bt_split(r->t->splitters[i], r->splitting, text, pieces->data[k], &r->next_pieces, r->e);
        }
        bt_spans done = *pieces;
        *pieces = r->next_pieces;
        r->next_pieces = done;
    }
    return st;
}

static bt_status encode_pieces(run *r, const char *text, const bt_spans *pieces)
{
    bt_status st = BT_OK;
    for (size_t i = 0; i < pieces->n && st == BT_OK; i++) {
        st = encode_piece(r, text + pieces->data[i].at, pieces->data[i].size);
    }
    return st;
}

/* The last step of a tokenizer with add_prefix_space, for one piece. */
static bt_status encode_prefixed(run *r, const char *piece, size_t n)
{
    if (n + 1 > r->prefix_bytes) {
        char *more = bt_realloc(r->prefix, n + 1 + n / 2, 1);
        if (more == NULL) return bt_fail(r->e, BT_ERR_MEMORY, "no memory for a piece of %zu bytes", n);
        r->prefix = more;
        r->prefix_bytes = n + 1 + n / 2;
    }
    size_t add = piece[0] != ' ';
    r->prefix[0] = ' ';
    memcpy(r->prefix + add, piece, n);
    r->prefixed.n = 0;
    bt_status st = bt_spans_add(&r->prefixed, 0, n + add, r->e);
    if (st == BT_OK) st = split_pieces(r, r->prefix, r->t->n_before_prefix, r->t->n_splitters, &r->prefixed);
    return st == BT_OK ? encode_pieces(r, r->prefix, &r->prefixed) : st;
}

/* Normalised text without added tokens. */
static bt_status encode_plain(run *r, const char *text, size_t n)
{
    if (n == 0) return BT_OK;
    size_t n_splitters = r->t->add_prefix_space ? r->t->n_before_prefix : r->t->n_splitters;
    r->pieces.n = 0;
    bt_status st = bt_spans_add(&r->pieces, 0, n, r->e);
    if (st == BT_OK) st = split_pieces(r, text, 0, n_splitters, &r->pieces);
    if (st != BT_OK || !r->t->add_prefix_space) return st == BT_OK ? encode_pieces(r, text, &r->pieces) : st;
    for (size_t i = 0; i < r->pieces.n && st == BT_OK; i++) {
        st = encode_prefixed(r, text + r->pieces.data[i].at, r->pieces.data[i].size);
    }
    return st;
}

/* Encodes text with the tokens of `added` cut out, which lie in `allowed`, and `rest` applied to what is between. */
static bt_status encode_around(run *r, const bt_added *added, const bt_spans *allowed, const char *text, size_t n,
                               bt_status (*rest)(run *r, const char *text, size_t n))
{
    bt_added_scan scan = {.text = text, .size = n, .allowed = allowed};
    bt_status st = BT_OK;
    bool more = !bt_added_is_empty(added);
    if (!more) return rest(r, text, n);
    while (more && st == BT_OK) {
        size_t gap, gap_size;
        int32_t id = -1;
        more = bt_added_next(added, &scan, &gap, &gap_size, &id);
        st = rest(r, text + gap, gap_size);
        if (more && st == BT_OK) st = bt_ids_add(&r->ids, id, r->e);
    }
    r->n_scanned += scan.n_steps;
    return st;
}

/* Text as it came, without added tokens of the first kind. */
static bt_status encode_raw(run *r, const char *text, size_t n)
{
    bt_status st = BT_OK;
    if (r->t->nfc) st = bt_nfc_apply(&r->nfc, text, n, &text, &n, r->e);
    return st == BT_OK ? encode_plain(r, text, n) : st;
}

/* Where position `at` of a text lies in its normal form. Inside a piece that was normalised as a whole it is moved to
 * the piece's beginning or end. */
static size_t normalized_position(const bt_nfc *nfc, size_t at, bool to_end)
{
    size_t low = 0, high = nfc->n_pieces; /* the first piece that ends behind `at` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (nfc->pieces[middle].from + nfc->pieces[middle].from_size > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (low < nfc->n_pieces && nfc->pieces[low].from < at) {
        const bt_nfc_piece *p = &nfc->pieces[low];
        return to_end ? p->to + p->to_size : p->to;
    }
    if (low == 0) return at;
    const bt_nfc_piece *before = &nfc->pieces[low - 1];
    return before->to + before->to_size + (at - (before->from + before->from_size));
}

/* What of the allowed spans lies in the piece [at, at + n) of the text, counted from there. */
static bt_status clip_allowed(run *r, size_t at, size_t n, bt_spans *out)
{
    bt_status st = BT_OK;
    const bt_spans *all = r->allowed;
    size_t low = 0, high = all->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all->data[middle].at + all->data[middle].size > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    out->n = 0;
    for (; low < all->n && all->data[low].at < at + n && st == BT_OK; low++) {
        size_t begin = all->data[low].at < at ? 0 : all->data[low].at - at;
        size_t end = all->data[low].at + all->data[low].size - at;
        if (end > n) end = n;
        if (begin < end) st = bt_spans_add(out, begin, end - begin, r->e);
    }
    return st;
}

/* Fills r->allowed_in_piece for the piece [at, at + n) of the text, which was just normalised. Characters that were
 * normalised together are allowed together or not at all. */
static bt_status narrow_allowed(run *r, size_t at, size_t n)
{
    bt_spans *spans = &r->allowed_in_piece;
    bt_status st = clip_allowed(r, at, n, spans);
    size_t kept = 0;
    for (size_t i = 0; i < spans->n && st == BT_OK; i++) {
        size_t begin = normalized_position(&r->nfc, spans->data[i].at, true);
        size_t end = normalized_position(&r->nfc, spans->data[i].at + spans->data[i].size, false);
        if (begin < end) spans->data[kept++] = (bt_span){.at = begin, .size = end - begin};
    }
    spans->n = kept;
    return st;
}

static bt_status encode_raw_special(run *r, const char *text, size_t n)
{
    const char *normal = text;
    size_t n_normal = n;
    const bt_added *added = r->t->added_normalized;
    bool is_narrowed = r->allowed != NULL && !bt_added_is_empty(added);
    bt_status st = BT_OK;
    r->nfc.n_pieces = 0;
    if (r->t->nfc) st = bt_nfc_apply(&r->nfc, text, n, &normal, &n_normal, r->e);
    if (st == BT_OK && is_narrowed) st = narrow_allowed(r, (size_t)(text - r->text), n);
    if (st != BT_OK) return st;
    return encode_around(r, added, is_narrowed ? &r->allowed_in_piece : NULL, normal, n_normal, encode_plain);
}

/* A text, or a part of one that knows nothing of the others. */
static bt_status encode_part(run *r, const char *text, size_t n, unsigned flags, const bt_spans *allowed)
{
    if ((flags & BT_TEXT_SPECIAL) == 0) return encode_raw(r, text, n);
    return encode_around(r, r->t->added, allowed, text, n, encode_raw_special);
}

static bt_status encode_text(run *r, const char *text, size_t size, unsigned flags)
{
    if (!r->t->kimi_cuts) return encode_part(r, text, size, flags, r->allowed);
    bt_cutter cutter = {.text = text, .size = size};
    bt_status st = BT_OK;
    size_t at, n;
    while (st == BT_OK && bt_cut_next(&cutter, &at, &n)) {
        const bt_spans *allowed = r->allowed;
        if (allowed != NULL && n < size) {
            allowed = &r->allowed_in_part;
            st = clip_allowed(r, at, n, &r->allowed_in_part);
        }
        if (st == BT_OK) st = encode_part(r, text + at, n, flags, allowed);
    }
    r->n_scanned += cutter.n_scanned;
    return st;
}

static bt_status check_text(const char *text, size_t size, bt_error *e)
{
    if (size > TEXT_BYTES_MAX) {
        return bt_fail(e, BT_ERR_USAGE, "a text of %zu bytes; the limit is %zu", size, TEXT_BYTES_MAX);
    }
    if (text == NULL) return bt_fail(e, BT_ERR_USAGE, "a text of %zu bytes is announced but none is given", size);
    size_t valid = bt_utf8_valid_prefix(text, size);
    if (valid != size) return bt_fail(e, BT_ERR_USAGE, "the text is not UTF-8 at byte %zu", valid);
    return BT_OK;
}

/* Ends a run, successful or not, and hands over its ids. */
static bt_status run_take(run *r, bt_status st, int32_t **ids, size_t *n)
{
    if (st == BT_OK && r->ids.data == NULL) st = bt_ids_reserve(&r->ids, 1, r->e); /* no ids is a list too */
    if (st == BT_OK) {
        *ids = r->ids.data;
        *n = r->ids.n;
        r->ids.data = NULL;
    }
    run_done(r);
    return st;
}

static bt_status encode(const bt_tokenizer *t, const char *text, size_t size, unsigned flags, const bt_spans *allowed,
                        int32_t **ids, size_t *n, bt_encode_steps *steps, bt_error *e)
{
    if (text == NULL && size == 0) text = "";
    bt_status st = check_text(text, size, e);
    if (st != BT_OK) return st;
    run r = {.t = t, .text = text, .allowed = allowed, .e = e};
    r.nfc.keeps_pieces = r.bpe.plain_only = allowed != NULL;
    st = bt_splitting_open(size, t->n_splitters, steps != NULL, &r.splitting, e);
    if (st == BT_OK) st = encode_text(&r, text, size, flags);
    if (st == BT_OK && steps != NULL) {
        *steps = (bt_encode_steps){.scanned = r.n_scanned + r.nfc.n_steps,
                                   .split = bt_splitting_n_steps(r.splitting),
                                   .merged = r.bpe.n_steps};
    }
    return run_take(&r, st, ids, n);
}

bt_status bt_tokenizer_encode(const bt_tokenizer *t, const char *text, size_t size, unsigned flags, int32_t **ids,
                              size_t *n, bt_error *e)
{
    return encode(t, text, size, flags, NULL, ids, n, NULL, e);
}

bt_status bt_tokenizer_encode_allowed(const bt_tokenizer *t, const char *text, size_t size, const bt_spans *allowed,
                                      int32_t **ids, size_t *n, bt_error *e)
{
    return encode(t, text, size, BT_TEXT_SPECIAL, allowed, ids, n, NULL, e);
}

bt_status bt_tokenizer_encode_segments(const bt_tokenizer *t, const char *text, const bt_text_segment *segments,
                                       size_t n_segments, int32_t **ids, size_t *n, bt_error *e)
{
    size_t size = 0, at = 0;
    for (size_t i = 0; i < n_segments; i++) size += segments[i].size;
    bt_status st = check_text(text, size, e);
    if (st != BT_OK) return st;
    run r = {.t = t, .text = text, .e = e};
    st = bt_splitting_open(size, t->n_splitters, false, &r.splitting, e);
    for (size_t i = 0; i < n_segments && st == BT_OK; i++) {
        assert(segments[i].size == 0 || bt_utf8_valid_prefix(text + at, segments[i].size) == segments[i].size);
        r.bpe.plain_only = (segments[i].flags & BT_TEXT_SPECIAL) == 0;
        st = encode_text(&r, text + at, segments[i].size, segments[i].flags);
        at += segments[i].size;
    }
    return run_take(&r, st, ids, n);
}

bt_status bt_tokenizer_encode_counted(const bt_tokenizer *t, const char *text, size_t size, unsigned flags,
                                      int32_t **ids, size_t *n, bt_encode_steps *steps, bt_error *e)
{
    return encode(t, text, size, flags, NULL, ids, n, steps, e);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

bt_status bt_tokenizer_decode(const bt_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, char **text,
                              size_t *size, bt_error *e)
{
    bt_text all = {0};
    bt_decoder *d = NULL;
    const char *part = "";
    size_t part_size = 0;
    if (ids == NULL && n > 0) return bt_fail(e, BT_ERR_USAGE, "%zu ids are announced but none are given", n);
    bt_status st = bt_decoder_open(t, flags, &d, e);
    for (size_t i = 0; i < n && st == BT_OK; i++) {
        st = bt_decoder_push(d, ids[i], &part, &part_size, e);
        if (st == BT_OK) bt_text_add(&all, part, part_size);
    }
    if (st == BT_OK) {
        bt_decoder_finish(d, &part, &part_size);
        bt_text_add(&all, part, part_size);
        if (!bt_text_ok(&all)) st = bt_fail(e, BT_ERR_MEMORY, "no memory for a text of %zu tokens", n);
    }
    bt_decoder_close(d);
    if (st == BT_OK) {
        *text = all.data;
        *size = all.size;
    } else {
        bt_text_free(&all);
    }
    return st;
}
