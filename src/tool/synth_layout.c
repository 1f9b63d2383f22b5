/*
 * The plan of a synthetic checkpoint, and any range of its bytes on demand. A random number is a function of (seed,
 * tensor's name, place in the tensor): no state, so any thread can make any range, and a tensor keeps its values when
 * other layers come or go.
 *
 * One shard per layer; what lies outside the layers is in the last one too, or in one of its own, as the vendor's files
 * have it. In a shard, tensors whose size is a multiple of 64 come first: then every matrix begins on a cache line.
 */
#include "tool/synth_layout.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"

#define BLOCK_WORDS     512u /* random words made at a time: a multiple of what one element of any dtype takes */
#define NAME_BYTES_MAX  300u
#define SCALE_DEVIATION 0.1
#define E2M1_DEVIATION  2.9261749776799064 /* of codes that are all equally likely: the root of 8.5625 */

/* ---- random numbers --------------------------------------------------------------------------------------------- */

static uint64_t key_of(uint64_t seed, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = name; *c != '\0'; c++) h = (h ^ (uint8_t)*c) * 0x100000001b3u;
    return bt_rng_u64(seed, h);
}

/* Nearest even; x is finite. */
static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* BT_MXFP4 is made and stored by the byte, two codes each. */
static unsigned element_bytes(uint8_t dtype)
{
    return dtype == BT_MXFP4 ? 1 : bt_dtype_bits((bt_dtype)dtype) / 8;
}

/* Elements of one random word. */
static unsigned per_word(uint8_t dtype)
{
    return element_bytes(dtype) == 1 ? 8 : 4;
}

/* Codes of 256 evenly spaced numbers in [-448, 448]: none is NaN. */
static void fill_codes(uint8_t codes[256])
{
    for (unsigned i = 0; i < 256; i++) codes[i] = bt_f32_to_f8_e4m3(((float)i - 127.5F) * (448 / 127.5F));
}

/* The random words [first, first + BLOCK_WORDS) of a tensor: SplitMix64, its state computed from the place. */
static void draw(const bt_piece *p, uint64_t first, uint64_t words[BLOCK_WORDS])
{
    for (size_t i = 0; i < BLOCK_WORDS; i++) {
        uint64_t z = p->key + (first + i) * 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        words[i] = z ^ z >> 31;
    }
}

/* Random bytes as elements of one byte. */
static void make_bytes(const bt_piece *p, const uint8_t codes[256], uint8_t *bytes)
{
    const uint8_t base = p->base, odds = p->odds;
    if (p->dtype == BT_F8_E4M3)
        for (size_t i = 0; i < 8 * BLOCK_WORDS; i++) bytes[i] = codes[bytes[i]];
    if (p->dtype == BT_F8_E8M0)
        for (size_t i = 0; i < 8 * BLOCK_WORDS; i++) bytes[i] = (uint8_t)(base + (bytes[i] < odds));
}

/* The elements of words [first, first + BLOCK_WORDS) of a tensor. The loops are plain so that compilers make vectors of
 * them: a disk may take gigabytes a second. */
static void make_block(const bt_piece *p, const uint8_t codes[256], uint64_t first, uint8_t *to)
{
    uint64_t words[BLOCK_WORDS];
    int16_t drawn[4 * BLOCK_WORDS];
    const float mean = p->mean, step = p->step;
    draw(p, first, words);
    if (element_bytes(p->dtype) == 1) {
        memcpy(to, words, sizeof words);
        make_bytes(p, codes, to);
        return;
    }
    memcpy(drawn, words, sizeof drawn);
    if (p->dtype == BT_BF16) {
        uint16_t values[4 * BLOCK_WORDS];
        for (size_t i = 0; i < 4 * BLOCK_WORDS; i++) values[i] = to_bf16(mean + step * (float)drawn[i]);
        memcpy(to, values, sizeof values);
    } else {
        float values[4 * BLOCK_WORDS];
        assert(p->dtype == BT_F32);
        for (size_t i = 0; i < 4 * BLOCK_WORDS; i++) values[i] = mean + step * (float)drawn[i];
        memcpy(to, values, sizeof values);
    }
}

/* Bytes [from, to) of the file, all of them of one tensor. */
static void fill_piece(const bt_piece *p, const uint8_t codes[256], uint64_t from, uint64_t to, uint8_t *out)
{
    uint8_t block[BLOCK_WORDS * 4 * sizeof(float)];
    uint64_t block_bytes = (uint64_t)BLOCK_WORDS * per_word(p->dtype) * element_bytes(p->dtype);
    while (from < to) {
        uint64_t i = (from - p->begin) / block_bytes, skip = (from - p->begin) % block_bytes;
        uint64_t n = block_bytes - skip < to - from ? block_bytes - skip : to - from;
        make_block(p, codes, i * BLOCK_WORDS, block);
        memcpy(out, block + skip, (size_t)n);
        out += n;
        from += n;
    }
}

void bt_synth_fill(const bt_synth_layout *l, size_t shard_i, uint64_t from, void *to, size_t n)
{
    const bt_synth_shard *s = &l->shards[shard_i];
    uint8_t *out = to;
    uint64_t end = from + n;
    assert(end <= s->bytes);
    if (from < s->header.size) {
        size_t part = (size_t)(end < s->header.size ? end : s->header.size) - (size_t)from;
        memcpy(out, s->header.data + from, part);
        from += part;
        out += part;
    }
    size_t lo = 0, hi = s->n_pieces; /* the first piece that ends behind `from` */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->pieces[mid].end <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; from < end; lo++) {
        const bt_piece *p = &s->pieces[lo];
        uint64_t stop = p->end < end ? p->end : end, live = p->live_end < stop ? p->live_end : stop;
        if (from < live) fill_piece(p, l->codes, from, live, out);
        if (from > live) live = from;
        memset(out + (live - from), 0, (size_t)(stop - live));
        out += stop - from;
        from = stop;
    }
}

/* ---- tensors of a shard ----------------------------------------------------------------------------------------- */

typedef struct maker {
    const bt_preset *preset;
    const bt_preset_choice *choice;
    uint64_t seed;
    const bt_tensor_list *list;
    bt_synth_layout *l;
    bt_error *e;
    /* Of the shard under way. */
    bt_tensor_decl *decls; /* [2 list.n] */
    bt_piece *pieces;      /* of the same, their ends counted from their own beginning */
    size_t n;
    bool first; /* nothing in the index yet */
    size_t n_layers;
} maker;

/* One tensor of the shard, its shape as in f; with one element per element of the shape. */
static void add(maker *m, const char *name, const bt_filling *f, bt_piece piece)
{
    bt_tensor_decl *d = &m->decls[m->n];
    bool is_bytes = piece.dtype == BT_MXFP4 || piece.dtype == BT_F8_E8M0; /* the vendor calls both U8 */
    *d = (bt_tensor_decl){.name = name, .dtype = is_bytes ? BT_U8 : (bt_dtype)piece.dtype, .n_dims = f->n_dims};
    uint64_t n = 1;
    for (unsigned i = 0; i < f->n_dims; i++) n *= d->shape[i] = f->shape[i];
    piece.key = key_of(m->seed, name);
    piece.end = n * element_bytes(piece.dtype);
    if (piece.live_end > piece.end || piece.live_end == 0) piece.live_end = piece.end;
    m->pieces[m->n++] = piece;
}

static const char *suffixed(maker *m, const char *name, const char *suffix)
{
    char text[NAME_BYTES_MAX];
    int n = snprintf(text, sizeof text, "%s%s", name, suffix);
    assert(n > 0 && (size_t)n < sizeof text);
    return bt_arena_strndup(m->l->arena, text, (size_t)n);
}

static bt_piece evenly_spread(bt_dtype dtype, float mean, float deviation)
{
    return (bt_piece){.dtype = (uint8_t)dtype, .mean = mean, .step = (float)((double)deviation * sqrt(3) / 32768)};
}

/* Codes are spread evenly over their range, so a block's scale sets the deviation. */
static bool add_fp8(maker *m, const bt_tensor_spec *s, const bt_filling *f)
{
    const char *scale_name = suffixed(m, s->name, f->scale_suffix);
    if (scale_name == NULL) return false;
    float scale = f->deviation * (float)sqrt(3) / 448;
    bt_filling scales = *f;
    for (unsigned i = 0; i < 2; i++) scales.shape[i] = (f->shape[i] + BT_SCALE_BLOCK - 1) / BT_SCALE_BLOCK;
    add(m, s->name, f, (bt_piece){.dtype = BT_F8_E4M3});
    add(m, scale_name, &scales, evenly_spread(f->scale_dtype, scale, (float)SCALE_DEVIATION * scale));
    return true;
}

/* All codes equally likely; of two neighbouring scales as many as give the deviation. */
static bool add_mxfp4(maker *m, const bt_tensor_spec *s, const bt_filling *f)
{
    const char *codes_name = suffixed(m, s->name, "_packed"), *scale_name = suffixed(m, s->name, "_scale");
    if (codes_name == NULL || scale_name == NULL) return false;
    int exponent;
    double part = 2 * frexp((double)f->deviation / E2M1_DEVIATION, &exponent); /* [1, 2) times 2^(exponent - 1) */
    double odds = (part * part - 1) / 3;
    assert(s->n_cols % BT_MXFP4_BLOCK == 0);
    bt_filling codes = *f, scales = *f;
    codes.shape[1] = s->n_cols / 2;
    scales.shape[1] = s->n_cols / BT_MXFP4_BLOCK;
    add(m, codes_name, &codes, (bt_piece){.dtype = BT_MXFP4});
    add(m, scale_name, &scales,
        (bt_piece){.dtype = BT_F8_E8M0, .base = (uint8_t)(127 + exponent - 1), .odds = (uint8_t)(odds * 256)});
    return true;
}

/* As the list says where the preset does not. */
static void set_shape(const bt_tensor_spec *s, bt_filling *f)
{
    if (f->n_dims > 0) return;
    if (!s->is_vector) f->shape[f->n_dims++] = s->n_rows;
    if (s->is_taps) f->shape[f->n_dims++] = 1;
    f->shape[f->n_dims++] = s->n_cols;
}

static bool collect(maker *m, int layer, bool with_rest)
{
    m->n = 0;
    for (size_t i = 0; i < m->list->n; i++) {
        const bt_tensor_spec *s = &m->list->specs[i];
        if (s->layer != layer && !(with_rest && s->layer < 0)) continue;
        bt_filling f = m->preset->filling(m->preset->numbers, m->choice, s);
        set_shape(s, &f);
        m->l->n_parameters += (uint64_t)s->n_rows * s->n_cols;
        if (f.dtype == BT_F8_E4M3 || f.dtype == BT_MXFP4) {
            if (!(f.dtype == BT_MXFP4 ? add_mxfp4 : add_fp8)(m, s, &f)) return false;
            continue;
        }
        bt_piece piece = evenly_spread(f.dtype, f.mean, f.deviation);
        piece.live_end = (uint64_t)s->n_rows * s->n_cols * element_bytes(piece.dtype);
        add(m, s->name, &f, piece);
    }
    return true;
}

/* Stable: sizes that keep what follows on a multiple of 64 first. */
static bool sort_by_alignment(maker *m)
{
    bt_tensor_decl *decls = bt_arena_alloc(m->l->arena, m->n, sizeof *decls);
    bt_piece *pieces = bt_arena_alloc(m->l->arena, m->n, sizeof *pieces);
    if (decls == NULL || pieces == NULL) return false;
    size_t n = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < m->n; i++) {
            bool aligned = m->pieces[i].end % BT_SAFETENSORS_ALIGN == 0;
            if (aligned != (pass == 0)) continue;
            decls[n] = m->decls[i];
            pieces[n++] = m->pieces[i];
        }
    }
    memcpy(m->decls, decls, n * sizeof *decls);
    memcpy(m->pieces, pieces, n * sizeof *pieces);
    return true;
}

static void add_to_index(maker *m, const bt_synth_shard *s)
{
    for (size_t i = 0; i < m->n; i++) {
        bt_text_puts(&m->l->index, m->first ? "\n    " : ",\n    ");
        bt_text_json_string(&m->l->index, m->decls[i].name, strlen(m->decls[i].name));
        bt_text_printf(&m->l->index, ": \"%s\"", s->name);
        m->first = false;
    }
}

static bt_status make_shard(maker *m, size_t shard_i)
{
    bt_synth_layout *l = m->l;
    bt_synth_shard *s = &l->shards[shard_i];
    char name[64];
    int n = snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard_i + 1, l->n_shards);
    s->name = bt_arena_strndup(l->arena, name, (size_t)n);
    int layer = shard_i < m->n_layers ? (int)shard_i : -1;
    bool good = s->name != NULL && collect(m, layer, shard_i + 1 == l->n_shards) && sort_by_alignment(m);
    if (good) s->pieces = bt_arena_alloc(l->arena, m->n, sizeof *s->pieces);
    if (!good || s->pieces == NULL) return bt_fail(m->e, BT_ERR_MEMORY, "no memory to lay out %s", name);
    uint64_t data_bytes = 0;
    bt_status st = bt_safetensors_header(name, m->decls, m->n, &s->header, &data_bytes, m->e);
    if (st != BT_OK) return st;
    uint64_t at = s->header.size;
    for (size_t i = 0; i < m->n; i++) {
        s->pieces[i] = m->pieces[i];
        s->pieces[i].begin += at;
        s->pieces[i].live_end += at;
        s->pieces[i].end += at;
        at = s->pieces[i].end;
    }
    assert(at == s->header.size + data_bytes);
    s->n_pieces = m->n;
    s->bytes = at;
    l->n_tensors += m->n;
    l->bytes += at;
    l->data_bytes += data_bytes;
    add_to_index(m, s);
    return BT_OK;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

/* The list that a config text calls for. */
static bt_status list_of(const bt_text *config, bt_tensor_list *list, bt_error *e)
{
    bt_config *c = NULL;
    if (!bt_text_ok(config)) return bt_fail(e, BT_ERR_MEMORY, "no memory for config.json");
    bt_status st = bt_config_parse("config.json", config->data, config->size, &c, e);
    if (st == BT_OK) st = bt_model_list_tensors(c, list, e);
    bt_config_close(c);
    return st;
}

static void free_list(bt_tensor_list *list)
{
    bt_free(list->specs);
    bt_arena_free(list->arena);
    *list = (bt_tensor_list){0};
}

static bt_status make_shards(maker *m)
{
    bt_synth_layout *l = m->l;
    int last = 0;
    for (size_t i = 0; i < m->list->n; i++)
        if (m->list->specs[i].layer > last) last = m->list->specs[i].layer;
    m->n_layers = (size_t)last + 1;
    l->n_shards = m->n_layers + m->preset->rest_apart;
    l->arena = bt_arena_new();
    if (l->arena != NULL) {
        l->shards = bt_arena_alloc(l->arena, l->n_shards, sizeof *l->shards);
        m->decls = bt_arena_alloc(l->arena, 2 * m->list->n, sizeof *m->decls);
        m->pieces = bt_arena_alloc(l->arena, 2 * m->list->n, sizeof *m->pieces);
    }
    if (l->arena == NULL || l->shards == NULL || m->decls == NULL || m->pieces == NULL) {
        l->shards = NULL;
        return bt_fail(m->e, BT_ERR_MEMORY, "no memory to lay out %zu tensors", m->list->n);
    }
    bt_text map = {NULL, 0, 0, false};
    bt_status st = BT_OK;
    m->first = true;
    for (size_t i = 0; i < l->n_shards && st == BT_OK; i++) st = make_shard(m, i);
    if (st != BT_OK) return st;
    bt_text_printf(&map, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
                   l->data_bytes);
    bt_text_add(&map, l->index.data, l->index.size);
    bt_text_puts(&map, "\n  }\n}\n");
    bool good = bt_text_ok(&map) && bt_text_ok(&l->index);
    bt_text_free(&l->index);
    l->index = map;
    return good ? BT_OK : bt_fail(m->e, BT_ERR_MEMORY, "no memory for the index");
}

bt_status bt_synth_layout_make(const bt_preset *p, const bt_preset_choice *c, uint64_t seed, bt_synth_layout *l,
                               bt_error *e)
{
    *l = (bt_synth_layout){0};
    fill_codes(l->codes);
    bt_text plain = {NULL, 0, 0, false};
    bt_tensor_list list = {0};
    bt_status st = p->check(p->numbers, c, e);
    if (st != BT_OK) return st;
    p->config(p->numbers, c, NULL, &plain);
    st = list_of(&plain, &list, e);
    bt_text_free(&plain);
    if (st == BT_OK) {
        p->config(p->numbers, c, &list, &l->config);
        maker m = {.preset = p, .choice = c, .seed = seed, .list = &list, .l = l, .e = e};
        st = make_shards(&m);
    }
    if (st == BT_OK && !bt_text_ok(&l->config)) st = bt_fail(e, BT_ERR_MEMORY, "no memory for config.json");
    free_list(&list);
    return st;
}

void bt_synth_layout_free(bt_synth_layout *l)
{
    for (size_t i = 0; l->shards != NULL && i < l->n_shards; i++) bt_text_free(&l->shards[i].header);
    bt_text_free(&l->config);
    bt_text_free(&l->index);
    bt_arena_free(l->arena);
    *l = (bt_synth_layout){0};
}
