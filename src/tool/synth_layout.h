/*
 * Where every byte of a synthetic checkpoint lies: shards as the vendor cuts them, their headers, and for each tensor
 * what random numbers it holds. Made from the family's list before the first byte is written.
 */
#ifndef TOOL_SYNTH_LAYOUT_H
#define TOOL_SYNTH_LAYOUT_H

#include "tool/presets.h"

/* One tensor in its shard. */
typedef struct bt_piece {
    uint64_t begin, end; /* bytes of the file */
    uint64_t live_end;   /* zeros from here on; mostly the end */
    uint64_t key;        /* of its random numbers */
    float mean, step;    /* value = mean + step * (16 random bits, signed) */
    uint8_t dtype;       /* BT_F8_E4M3: 8 random bits choose a code. BT_MXFP4: they are two codes. BT_F8_E8M0: a scale,
                            `base` or, in `odds` of 256 cases, the next one */
    uint8_t base, odds;
} bt_piece;

typedef struct bt_synth_shard {
    const char *name; /* model-00001-of-00028.safetensors */
    bt_text header;
    bt_piece *pieces; /* [n_pieces], ascending */
    size_t n_pieces;
    uint64_t bytes;
} bt_synth_shard;

typedef struct bt_synth_layout {
    bt_arena *arena;
    bt_synth_shard *shards; /* [n_shards] */
    size_t n_shards, n_tensors;
    uint64_t bytes;      /* of all shards */
    uint64_t data_bytes; /* of all tensors */
    uint64_t n_parameters;
    bt_text config, index; /* the files */
    uint8_t codes[256];    /* of evenly spread FP8 numbers */
} bt_synth_layout;

/* bt_synth_layout_free by the caller in any case. */
bt_status bt_synth_layout_make(const bt_preset *p, const bt_preset_choice *c, uint64_t seed, bt_synth_layout *l,
                               bt_error *e);
void bt_synth_layout_free(bt_synth_layout *l);

/* Fills to [n] with bytes [from, from + n) of a shard's file. */
void bt_synth_fill(const bt_synth_layout *l, size_t shard_i, uint64_t from, void *to, size_t n);

#endif
