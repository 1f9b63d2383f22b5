/*
 * safetensors: shards, index, reading and writing. Everything in a header is checked before anything is used: cases
 * C01-C12. A set is what a folder (or one file) offers: names to places.
 */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "format/dtype.h"

#define BT_DIMS_MAX 8

typedef struct bt_tensor { /* lean: a checkpoint may have half a million */
    const char *name;      /* terminated; may hold NUL, name_size counts */
    uint32_t name_size;
    uint32_t shard_i;
    const uint64_t *shape;  /* [n_dims]; never NULL */
    const char *dtype_name; /* as written, for messages about unknown ones */
    uint64_t n_elements;
    const uint8_t *data; /* into the mapping; no alignment promised */
    uint64_t size;       /* bytes */
    uint8_t dtype;       /* bt_dtype */
    uint8_t n_dims;
} bt_tensor;

typedef struct bt_shard {
    char *path;
    bt_mapping map;
} bt_shard;

typedef struct bt_tensors bt_tensors; /* shards, their tensors, a hash index by name */

/* A folder (index, else model.safetensors, else the only *.safetensors) or one file. */
bt_status bt_tensors_open(const char *path, bt_tensors **out, bt_error *e);
void bt_tensors_close(bt_tensors *t);
size_t bt_tensors_count(const bt_tensors *t);
const bt_tensor *bt_tensors_at(const bt_tensors *t, size_t i);           /* in order of shard, then offset */
const bt_tensor *bt_tensors_find(const bt_tensors *t, const char *name); /* NULL: none */
size_t bt_tensors_n_shards(const bt_tensors *t);
const bt_shard *bt_tensors_shard(const bt_tensors *t, size_t i);
uint64_t bt_tensors_mapped_bytes(const bt_tensors *t);
/* How the files are read from now on; at first, along. */
void bt_tensors_advise(const bt_tensors *t, bt_map_use use);
size_t bt_tensors_private_bytes(const bt_tensors *t); /* tables, for the memory plan */

/* Writes one file: declare all tensors first, then hand over each one's bytes in the same order, then finish. */
typedef struct bt_tensor_decl {
    const char *name;
    bt_dtype dtype;
    unsigned n_dims;
    uint64_t shape[BT_DIMS_MAX];
} bt_tensor_decl;
typedef struct bt_safetensors_writer bt_safetensors_writer;
/* What such a file begins with: length and header, padded to a multiple of 64. For a caller that writes the data
 * itself, at offsets of its own; *data_bytes of it follow. */
#define BT_SAFETENSORS_ALIGN 64u
bt_status bt_safetensors_header(const char *path, const bt_tensor_decl *decls, size_t n, bt_text *out,
                                uint64_t *data_bytes, bt_error *e);
bt_status bt_safetensors_create(const char *path, const bt_tensor_decl *decls, size_t n, bt_safetensors_writer **out,
                                bt_error *e);
bt_status bt_safetensors_write(bt_safetensors_writer *w, const void *data, size_t size, bt_error *e); /* any pieces */
bt_status bt_safetensors_finish(bt_safetensors_writer *w,
                                bt_error *e); /* checks the size, renames; frees w in any case */
void bt_safetensors_abandon(bt_safetensors_writer *w);

#endif
