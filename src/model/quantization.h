/* The quantization_config block of a checkpoint: is it one whose weights we read? */
#ifndef MODEL_QUANTIZATION_H
#define MODEL_QUANTIZATION_H

#include "format/config.h"

/* BT_OK where there is no block, or where it describes E4M3 weights with 128 x 128 block scales (docs/k2_horizon.md,
 * b); anything else is refused by the key that made it so. */
bt_status bt_quantization_check(const bt_config *c, bt_error *e);

#endif
