/*
 * One safetensors file: 8 bytes of header length (little-endian), a JSON header, the tensors' bytes. The header is
 * believed in nothing: lengths are compared with the file before use, numbers are read as unsigned 64-bit integers and
 * never through a double, and the ranges of all tensors together must cover the data exactly, so that no two tensors
 * share bytes and none lie unclaimed. What this refuses is listed case by case in tests/unit/test_safetensors.c.
 */
#include "format/shard.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

#define LENGTH_BYTES     8u
#define DTYPE_NAME_BYTES 24u

typedef struct entry { /* one tensor's description, as read */
    uint64_t shape[BT_DIMS_MAX];
    uint64_t begin, end; /* of its bytes, from the start of the data */
    unsigned n_dims;
    bt_dtype dtype;
    char dtype_name[DTYPE_NAME_BYTES];
    bool has_dtype, has_shape, has_offsets;
} entry;

typedef struct reader {
    bt_tensors *set;
    size_t shard_i;
    const char *path;
    const uint8_t *data; /* after the header */
    uint64_t data_bytes; /* of the file */
    size_t first_i;      /* the shard's first tensor in the set */
    uint64_t end_max;    /* the highest offset that the header claims */
    bool has_metadata;
    bt_json json;
} reader;

bt_shown bt_show_name(const char *name, size_t size)
{
    bt_shown s;
    const size_t kept_max = sizeof s.text - 4;
    size_t n = size < kept_max ? size : kept_max;
    for (size_t i = 0; i < n; i++) s.text[i] = name[i] == '\0' ? '?' : name[i];
    memcpy(s.text + n, size > kept_max ? "..." : "", size > kept_max ? 4 : 1);
    return s;
}

/* ---- one entry of the header --------------------------------------------------------------------------------------
 */

/* Reads an array of unsigned integers to v [n_max]. `what` and `name` are for messages. */
static bt_status read_u64s(reader *r, const char *what, const bt_shown *name, uint64_t *v, unsigned n_max, unsigned *n)
{
    bt_json *j = &r->json;
    if (bt_json_next(j) != BT_JSON_ARRAY) {
        return bt_json_fail(j, "tensor \"%s\": %s is no array", name->text, what);
    }
    unsigned count = 0;
    for (;;) {
        bt_json_kind kind = bt_json_next(j);
        if (kind == BT_JSON_ERROR) return j->status;
        if (kind == BT_JSON_ARRAY_END) break;
        uint64_t value;
        if (kind != BT_JSON_NUMBER || !bt_json_u64(j->text, j->size, &value)) {
            bool text = kind == BT_JSON_NUMBER || kind == BT_JSON_STRING;
            bt_shown shown = bt_show_name(text ? j->text : "a value", text ? j->size : 7);
            return bt_json_fail(j, "tensor \"%s\": %s holds %s%s, which is no unsigned 64-bit integer", name->text,
                                what, shown.text, kind == BT_JSON_STRING ? " in quotes" : "");
        }
        if (count == n_max) {
            return bt_json_fail(j, "tensor \"%s\": %s has more than %u numbers", name->text, what, n_max);
        }
        v[count++] = value;
    }
    *n = count;
    return BT_OK;
}

static bt_status read_dtype(reader *r, const bt_shown *name, entry *t)
{
    bt_json *j = &r->json;
    if (bt_json_next(j) != BT_JSON_STRING) {
        return bt_json_fail(j, "tensor \"%s\": dtype is no string", name->text);
    }
    t->dtype = bt_dtype_parse(j->text, j->size);
    size_t n = j->size < DTYPE_NAME_BYTES - 1 ? j->size : DTYPE_NAME_BYTES - 1;
    memcpy(t->dtype_name, j->text, n);
    t->dtype_name[n] = '\0';
    t->has_dtype = true;
    return BT_OK;
}

static bt_status read_offsets(reader *r, const bt_shown *name, entry *t)
{
    uint64_t offsets[2] = {0, 0};
    unsigned n = 0;
    bt_status st = read_u64s(r, "data_offsets", name, offsets, 2, &n);
    if (st != BT_OK) return st;
    if (n != 2) return bt_json_fail(&r->json, "tensor \"%s\": data_offsets needs two numbers", name->text);
    if (offsets[0] > offsets[1]) {
        return bt_json_fail(&r->json, "tensor \"%s\": data_offsets [%" PRIu64 ", %" PRIu64 "] are reversed", name->text,
                            offsets[0], offsets[1]);
    }
    t->begin = offsets[0];
    t->end = offsets[1];
    t->has_offsets = true;
    return BT_OK;
}

/* The three members; others are skipped, as the reference reader does. */
static bt_status read_entry(reader *r, const bt_shown *name, entry *t)
{
    bt_json *j = &r->json;
    if (bt_json_next(j) != BT_JSON_OBJECT) {
        return bt_json_fail(j, "tensor \"%s\" is described by no object", name->text);
    }
    for (;;) {
        bt_json_kind kind = bt_json_next(j);
        if (kind == BT_JSON_ERROR) return j->status;
        if (kind == BT_JSON_OBJECT_END) break;
        bool is_dtype = bt_json_text_is(j, "dtype"), is_shape = bt_json_text_is(j, "shape");
        bool is_offsets = bt_json_text_is(j, "data_offsets");
        if ((is_dtype && t->has_dtype) || (is_shape && t->has_shape) || (is_offsets && t->has_offsets)) {
            return bt_json_fail(j, "tensor \"%s\": a key appears twice", name->text);
        }
        bt_status st = BT_OK;
        if (is_dtype) {
            st = read_dtype(r, name, t);
        } else if (is_shape) {
            st = read_u64s(r, "shape", name, t->shape, BT_DIMS_MAX, &t->n_dims);
            t->has_shape = true;
        } else if (is_offsets) {
            st = read_offsets(r, name, t);
        } else if (!bt_json_skip(j, bt_json_next(j))) {
            st = j->status;
        }
        if (st != BT_OK) return st;
    }
    const char *missing = !t->has_dtype ? "dtype" : !t->has_shape ? "shape" : !t->has_offsets ? "data_offsets" : NULL;
    if (missing != NULL) return bt_json_fail(j, "tensor \"%s\": %s is missing", name->text, missing);
    return BT_OK;
}

/* Shape times width must be the range. Of an unknown dtype nobody knows the width: it can be listed, not used. */
static bt_status check_size(reader *r, const bt_shown *name, const entry *t, uint64_t *n_elements)
{
    bt_json *j = &r->json;
    uint64_t n = 1;
    for (unsigned i = 0; i < t->n_dims; i++) {
        if (t->shape[i] != 0 && n > UINT64_MAX / t->shape[i]) {
            return bt_json_fail(j, "tensor \"%s\": its shape has more elements than 64 bits can count", name->text);
        }
        n *= t->shape[i];
    }
    *n_elements = n;
    unsigned bits = bt_dtype_bits(t->dtype);
    if (bits == 0) return BT_OK;
    if (n > UINT64_MAX / bits || n * bits % 8 != 0) {
        return bt_json_fail(j, "tensor \"%s\": %" PRIu64 " elements of %s fill no whole number of bytes", name->text, n,
                            t->dtype_name);
    }
    if (n * bits / 8 != t->end - t->begin) {
        return bt_json_fail(
            j, "tensor \"%s\": %" PRIu64 " elements of %s need %" PRIu64 " bytes, its data_offsets hold %" PRIu64,
            name->text, n, t->dtype_name, n * bits / 8, t->end - t->begin);
    }
    return BT_OK;
}

/* ---- into the set ---------------------------------------------------------------------------------------------------
 */

static bt_status no_memory(reader *r)
{
    return r->json.status = bt_fail(r->json.error, BT_ERR_MEMORY, "no memory for the table of tensors");
}

/* Shapes are shared: experts by the thousand have the same few. NULL: no memory. */
static const uint64_t *keep_shape(bt_tensors *set, const entry *t)
{
    uint64_t h = t->n_dims;
    for (unsigned i = 0; i < t->n_dims; i++) h = (h ^ t->shape[i]) * 0x9e3779b97f4a7c15u;
    size_t slot = h >> 32 & (BT_N_SHAPES_KEPT - 1), bytes = t->n_dims * sizeof t->shape[0];
    const uint64_t *kept = set->shapes[slot];
    if (kept != NULL && set->n_dims[slot] == t->n_dims && memcmp(kept, t->shape, bytes) == 0) return kept;
    uint64_t *shape = bt_arena_alloc(set->arena, t->n_dims, sizeof *shape);
    if (shape == NULL) return NULL;
    memcpy(shape, t->shape, bytes);
    set->shapes[slot] = shape;
    set->n_dims[slot] = (uint8_t)t->n_dims;
    return shape;
}

static bool reserve(bt_tensors *set)
{
    if (set->n_tensors < set->capacity) return true;
    size_t capacity = set->capacity == 0 ? 64 : set->capacity * 2;
    bt_tensor *more = bt_realloc(set->tensors, capacity, sizeof *more);
    if (more == NULL) return false;
    set->tensors = more;
    set->capacity = capacity;
    return true;
}

/* The entry as a tensor. A range beyond the file gets no address, only remembered: check_ranges then refuses. */
static bt_status append(reader *r, const char *name, size_t name_size, const entry *t, uint64_t n_elements)
{
    bt_tensors *set = r->set;
    if (t->end > r->end_max) r->end_max = t->end;
    if (set->n_tensors == UINT32_MAX / 4 || !reserve(set)) return no_memory(r);
    bt_tensor *out = &set->tensors[set->n_tensors];
    *out = (bt_tensor){
        .name = name,
        .name_size = (uint32_t)name_size,
        .shard_i = (uint32_t)r->shard_i,
        .shape = keep_shape(set, t),
        .dtype_name = bt_dtype_name(t->dtype),
        .n_elements = n_elements,
        .data = r->data + (t->end <= r->data_bytes ? t->begin : 0),
        .size = t->end - t->begin,
        .dtype = (uint8_t)t->dtype,
        .n_dims = (uint8_t)t->n_dims,
    };
    if (t->dtype == BT_DTYPE_UNKNOWN) {
        out->dtype_name = bt_arena_strndup(set->arena, t->dtype_name, strlen(t->dtype_name));
    }
    if (out->shape == NULL || out->dtype_name == NULL) return no_memory(r);
    set->n_tensors++;
    return BT_OK;
}

/* {"name": "text", ...}: read only to be refused if it is anything else. */
static bt_status check_metadata(reader *r)
{
    bt_json *j = &r->json;
    if (r->has_metadata) return bt_json_fail(j, "__metadata__ appears twice");
    r->has_metadata = true;
    if (bt_json_next(j) != BT_JSON_OBJECT) return bt_json_fail(j, "__metadata__ is no object");
    for (;;) {
        bt_json_kind kind = bt_json_next(j);
        if (kind == BT_JSON_ERROR) return j->status;
        if (kind == BT_JSON_OBJECT_END) return BT_OK;
        if (bt_json_next(j) != BT_JSON_STRING) return bt_json_fail(j, "a value of __metadata__ is no string");
    }
}

static bt_status read_header(reader *r)
{
    bt_json *j = &r->json;
    if (bt_json_next(j) != BT_JSON_OBJECT) return bt_json_fail(j, "the header is no JSON object");
    for (;;) {
        bt_json_kind kind = bt_json_next(j);
        if (kind == BT_JSON_ERROR) return j->status;
        if (kind == BT_JSON_OBJECT_END) break;
        bt_status st;
        if (bt_json_text_is(j, "__metadata__")) {
            st = check_metadata(r);
        } else {
            size_t name_size = j->size;
            const char *name = bt_arena_strndup(r->set->arena, j->text, name_size);
            if (name == NULL || name_size > UINT32_MAX) return no_memory(r);
            bt_shown shown = bt_show_name(name, name_size);
            entry t = {.n_dims = 0};
            uint64_t n_elements = 0;
            st = read_entry(r, &shown, &t);
            if (st == BT_OK) st = check_size(r, &shown, &t, &n_elements);
            if (st == BT_OK) st = append(r, name, name_size, &t, n_elements);
        }
        if (st != BT_OK) return st;
    }
    return bt_json_next(j) == BT_JSON_END ? BT_OK : j->status;
}

/* ---- the whole shard ----------------------------------------------------------------------------------------------
 */

static int compare_ranges(const void *a, const void *b)
{
    const bt_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    if (x->size != y->size) return x->size < y->size ? -1 : 1; /* empty ones first: they may share an offset */
    return 0;
}

/* Sorts the shard's tensors by offset (the header may have any order) and checks that they tile the data. */
static bt_status check_ranges(reader *r, bt_error *e)
{
    bt_tensor *tensors = r->set->tensors == NULL ? NULL : r->set->tensors + r->first_i;
    size_t n = r->set->n_tensors - r->first_i;
    assert(n == 0 || tensors != NULL);
    uint64_t header_bytes = (uint64_t)(r->data - r->set->shards[r->shard_i].map.data);
    if (r->end_max > r->data_bytes) {
        uint64_t needed = r->end_max > UINT64_MAX - header_bytes ? UINT64_MAX : header_bytes + r->end_max;
        return bt_fail(e, BT_ERR_FORMAT,
                       "%s: the header tells of %" PRIu64 " bytes, the file has %" PRIu64
                       ": it is truncated, download it again",
                       r->path, needed, header_bytes + r->data_bytes);
    }
    bool sorted = true;
    for (size_t i = 1; i < n && sorted; i++) sorted = compare_ranges(&tensors[i - 1], &tensors[i]) <= 0;
    if (!sorted) qsort(tensors, n, sizeof *tensors, compare_ranges);
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const bt_tensor *t = &tensors[i];
        uint64_t begin = (uint64_t)(t->data - r->data);
        if (begin != at) {
            bt_shown name = bt_show_name(t->name, t->name_size);
            bt_shown before =
                i == 0 ? bt_show_name("the header", 10) : bt_show_name(tensors[i - 1].name, tensors[i - 1].name_size);
            return bt_fail(e, BT_ERR_FORMAT,
                           "%s: tensor \"%s\" begins at %" PRIu64 ", but what is before it (%s) ends at %" PRIu64
                           ": the ranges %s",
                           r->path, name.text, begin, before.text, at,
                           begin < at ? "overlap" : "leave a hole that no tensor claims");
        }
        at += t->size;
    }
    if (at == r->data_bytes) return BT_OK;
    bt_shown last =
        n == 0 ? bt_show_name("the header", 10) : bt_show_name(tensors[n - 1].name, tensors[n - 1].name_size);
    return bt_fail(e, BT_ERR_FORMAT,
                   "%s: the file has %" PRIu64 " bytes after its last tensor (%s) that no tensor claims", r->path,
                   r->data_bytes - at, last.text);
}

/* The length of the header, from its first 8 bytes, compared with the file. */
static bt_status read_length(const char *path, const bt_mapping *map, uint64_t *length, bt_error *e)
{
    const char *placeholder = bt_placeholder_text(map->data, map->size);
    if (placeholder != NULL) return bt_fail(e, BT_ERR_FORMAT, "%s %s", path, placeholder);
    if (map->size < LENGTH_BYTES) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: %zu bytes are no safetensors file, even an empty one has 10", path,
                       map->size);
    }
    uint64_t n = 0;
    memcpy(&n, map->data, LENGTH_BYTES); /* little-endian, as every host that this compiles for */
    uint64_t most = map->size - LENGTH_BYTES;
    if (n > most && (map->data[0] == '{' || map->data[0] == '[')) {
        return bt_fail(e, BT_ERR_FORMAT, "%s holds JSON text in place of tensors (an index, or a server's error?)",
                       path);
    }
    if (n > most || n < 2) {
        return bt_fail(e, BT_ERR_FORMAT,
                       "%s: a header of %" PRIu64 " bytes does not fit in a file of %zu bytes: it is truncated, or no "
                       "safetensors file",
                       path, n, map->size);
    }
    uint8_t first = map->data[LENGTH_BYTES];
    if (first != '{') {
        return bt_fail(e, BT_ERR_FORMAT, "%s: the header begins with byte 0x%02x, it must begin with '{'", path, first);
    }
    *length = n;
    return BT_OK;
}

bt_status bt_shard_open(bt_tensors *t, size_t shard_i, bt_error *e)
{
    assert(shard_i < t->n_shards);
    bt_shard *shard = &t->shards[shard_i];
    bt_status st = bt_map_file(shard->path, &shard->map, e);
    if (st != BT_OK) return st;
    uint64_t length = 0;
    bt_map_advise(&shard->map, BT_MAP_HERE_AND_THERE); /* the header, and nothing of what follows it */
    st = read_length(shard->path, &shard->map, &length, e);
    if (st != BT_OK) return st;
    bt_map_prefetch(&shard->map, (size_t)length + LENGTH_BYTES);
    const uint8_t *header = shard->map.data + LENGTH_BYTES;
    reader r = {
        .set = t,
        .shard_i = shard_i,
        .path = shard->path,
        .data = header + length,
        .data_bytes = shard->map.size - LENGTH_BYTES - length,
        .first_i = t->n_tensors,
    };
    bt_error inner = {.status = BT_OK};
    bt_json_begin(&r.json, (const char *)header, (size_t)length, 0, &inner);
    st = read_header(&r);
    bt_json_done(&r.json);
    if (st != BT_OK) return bt_fail(e, st, "%s: header: %s", shard->path, inner.message);
    bt_map_advise(&shard->map, BT_MAP_ALONG);
    return check_ranges(&r, e);
}
