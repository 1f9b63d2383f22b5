/* The quantization_config block of a checkpoint: is it one whose weights we read? */
#ifndef MODEL_QUANTIZATION_H
#define MODEL_QUANTIZATION_H

#include "format/config.h"

/* BT_OK where `scope` has no block, or where it describes E4M3 weights with 128 x 128 block scales (docs/k2_horizon.md,
 * b) or, if may_pack, MXFP4 (docs/kimi_k3.md, b); anything else is refused by the key that made it so. */
bt_status bt_quantization_check(bt_scope scope, bool may_pack, bt_error *e);

#endif
