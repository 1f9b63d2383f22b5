/* Ops that exist in the test build only: faults on purpose, written on the tape by a family's ablations. */
#include "tape/builder.h"

#ifdef BT_TEST_BUILD

#    include <assert.h>

void bt_op_keep(bt_tape_builder *b, bt_act y, bt_act x, size_t begin, size_t end)
{
    assert(y.width == x.width && y.space == BT_SPACE_ROWS && x.space == BT_SPACE_ROWS);
    assert(begin <= end && end <= x.width && !bt_acts_overlap(b, y, x));
    bt_tape_reads(b, x);
    bt_tape_writes(b, y);
    bt_tape_append(
        b, &(bt_op){.kind = BT_OP_KEEP, .u.keep = {.y = y, .x = x, .begin = (uint32_t)begin, .end = (uint32_t)end}});
}

#endif
