/*
 * The set of tensors while it is being read, and the reading of one shard's header into it. Private to format/.
 */
#ifndef FORMAT_SHARD_H
#define FORMAT_SHARD_H

#include "format/names.h"
#include "format/safetensors.h"

#define BT_N_SHAPES_KEPT 64

struct bt_tensors {
    bt_arena *arena; /* names, shapes, unknown dtypes */
    bt_shard *shards;
    size_t n_shards;
    bt_tensor *tensors;
    size_t n_tensors, capacity;
    bt_names names;
    const uint64_t *shapes[BT_N_SHAPES_KEPT]; /* those stored last, by hash: most tensors share a few */
    uint8_t n_dims[BT_N_SHAPES_KEPT];
};

/* Maps the file, checks its header completely, appends its tensors in order of offset. */
bt_status bt_shard_open(bt_tensors *t, size_t shard_i, bt_error *e);

/* A name for a message: NUL shown as '?', long ones cut. */
typedef struct bt_shown {
    char text[136];
} bt_shown;
bt_shown bt_show_name(const char *name, size_t size);

#endif
