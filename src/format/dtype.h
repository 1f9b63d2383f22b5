/*
 * Dtypes of checkpoints, their scalar decode (the reference for every kernel), and the view through which weights are
 * reached: what the bytes are and how they lie, so that packed formats come later without touching a model family.
 */
#ifndef FORMAT_DTYPE_H
#define FORMAT_DTYPE_H

#include "baltoro.h"

typedef enum bt_dtype {
    BT_F32,
    BT_F16,
    BT_BF16,
    BT_F8_E4M3,         /* OCP FN variant: no infinity, S.1111.111 is NaN */
    BT_MXFP4,           /* two E2M1 codes a byte, low nibble first, an E8M0 scale for 32; of views, not of tensors */
    BT_N_WEIGHT_DTYPES, /* those before can be weights of a matrix */
    BT_F64 = BT_N_WEIGHT_DTYPES,
    BT_F8_E5M2,
    BT_F8_E8M0,
    BT_F8_E4M3FNUZ,
    BT_F8_E5M2FNUZ,
    BT_F4,
    BT_F6_E2M3,
    BT_F6_E3M2,
    BT_BOOL,
    BT_U8,
    BT_I8,
    BT_U16,
    BT_I16,
    BT_U32,
    BT_I32,
    BT_U64,
    BT_I64,
    BT_C64,
    BT_DTYPE_UNKNOWN, /* a name that we do not know: may be listed, never used */
    BT_N_DTYPES,
} bt_dtype;

const char *bt_dtype_name(bt_dtype t);            /* as safetensors spells it */
bt_dtype bt_dtype_parse(const char *s, size_t n); /* BT_DTYPE_UNKNOWN */
unsigned bt_dtype_bits(bt_dtype t);               /* 0 for BT_DTYPE_UNKNOWN */

float bt_f16_to_f32(uint16_t h);
float bt_bf16_to_f32(uint16_t h);
float bt_f8_e4m3_to_f32(uint8_t c);
uint16_t bt_f32_to_bf16(float x);   /* nearest even; NaN stays NaN */
uint16_t bt_f32_to_f16(float x);    /* nearest even; overflow becomes infinity */
uint8_t bt_f32_to_f8_e4m3(float x); /* nearest even, saturating at +-448; NaN stays NaN */
float bt_e2m1_to_f32(uint8_t code); /* the low four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives */
float bt_e8m0_to_f32(uint8_t c);    /* 2^(c - 127); 255 is NaN */

typedef enum bt_layout {
    BT_LAYOUT_ROWS, /* row-major [n_rows, n_cols], as in the checkpoint; no alignment promised */
} bt_layout;

/* A stored matrix (n_rows outputs, n_cols inputs) or vector (n_rows 1). Element (r, c) is code(r, c), times the scale
 * of its block where scale is not NULL; one rounding to f32. Blocks are 128 x 128; of BT_MXFP4 (whose n_cols is a
 * multiple of 32), 1 x 32, and the product is exact but for a scale byte of 255, which is NaN. */
typedef struct bt_view {
    const void *data;  /* [n_rows, n_cols] of dtype; BT_MXFP4: [n_rows, n_cols / 2] bytes */
    const void *scale; /* NULL, or [ceil(n_rows / 128), ceil(n_cols / 128)] of scale_dtype, row-major;
                          BT_MXFP4: [n_rows, n_cols / 32] bytes, 2^(byte - 127) */
    uint64_t bytes;    /* of data and scale */
    uint32_t n_rows, n_cols;
    uint8_t dtype;       /* bt_dtype */
    uint8_t layout;      /* bt_layout */
    uint8_t scale_dtype; /* BT_F32, BT_F16 or BT_BF16; BT_MXFP4: BT_F8_E8M0 */
} bt_view;

#define BT_SCALE_BLOCK 128u
#define BT_MXFP4_BLOCK 32u

/* Most columns of a matrix of BT_MXFP4: what kernels hold of a token. */
#define BT_MXFP4_COLS_MAX 131072u

#endif
