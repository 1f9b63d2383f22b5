/*
 * Random checkpoints of true shapes: how fast a model would run here, known before it is downloaded. The same preset,
 * choice and seed give the same bytes, whatever the number of threads.
 */
#ifndef TOOL_SYNTH_H
#define TOOL_SYNTH_H

#include "tool/presets.h"

typedef struct bt_synth_options {
    const char *folder; /* to appear when it is complete; must not exist */
    const bt_preset *preset;
    bt_preset_choice choice;
    uint64_t seed;
    size_t n_threads;
    const bt_hook *hook; /* asked between pieces of work with bytes done and in all; NULL: none */
} bt_synth_options;

typedef struct bt_synth_report {
    uint64_t bytes;        /* of all files but the tokenizer's */
    uint64_t n_parameters; /* elements of all tensors, scales not counted */
    size_t n_shards, n_tensors;
} bt_synth_report;

/* BT_ERR_MEMORY: the disk is too small, or full. On any failure, and when the hook says stop, nothing is left. */
bt_status bt_synth(const bt_synth_options *o, bt_synth_report *out, bt_error *e);

#endif
