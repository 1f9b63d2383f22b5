/*
 * The builder's inside, shared by tape.c (declaring, finishing) and ops.c (one function per op).
 *
 * Hazards: two ops without a barrier between them may run at the same time, on any thread, in any order of their parts.
 * So the builder remembers every area that was touched since the last barrier; an op that reads or writes what was
 * written, or writes what was read, waits. Areas are rows of scratch words, or ranges of a slot's bytes. Columns of one
 * activation are areas of their own: parts that share no column do not wait for each other.
 */
#ifndef TAPE_BUILDER_H
#define TAPE_BUILDER_H

#include "tape/tape.h"

/* Most areas that one op touches, and that are remembered between two barriers. When the memory is full the next op
 * waits: always right, and far from what a family writes. */
#define BT_OP_AREAS_MAX   12u
#define BT_OPEN_AREAS_MAX 96u

typedef struct bt_area {
    uint64_t begin, end;    /* [begin, end): words of scratch, or bytes of a slot */
    uint32_t stride, width; /* of scratch: the words of each row, from row to row */
    bool is_state;
    bool is_written;
} bt_area;

struct bt_tape_builder {
    bt_tape tape; /* its tables are grown here and handed over by finish */
    bt_op *ops;
    bt_state *states;
    bt_table *tables;
    size_t ops_capacity, states_capacity, tables_capacity;
    int16_t layer;
    bool failed; /* no memory, or a size that does not fit: told by finish */
    bool has_head;
    bool barrier_next;               /* the next op waits whatever it touches */
    bt_area open[BT_OPEN_AREAS_MAX]; /* touched since the last barrier */
    size_t n_open;
    bt_area touched[BT_OP_AREAS_MAX]; /* by the op that is being declared */
    size_t n_touched;
};

/* What the op being declared touches; bt_tape_append then takes these areas and decides on the barrier. */
void bt_tape_reads(bt_tape_builder *b, bt_act a);
void bt_tape_writes(bt_tape_builder *b, bt_act a);
void bt_tape_reads_state(bt_tape_builder *b, uint32_t state);
void bt_tape_writes_state(bt_tape_builder *b, uint32_t state);
void bt_tape_append(bt_tape_builder *b, const bt_op *op);

/* True if the two share a word of scratch. */
bool bt_acts_overlap(const bt_tape_builder *b, bt_act x, bt_act y);

#endif
