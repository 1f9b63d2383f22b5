/*
 * Kernels: pure functions over plain pointers and counts. No I/O, no malloc, no threads; the row range is a parameter,
 * so threading stays outside. One table of function pointers per CPU level: bt_kernels_init fills it with the scalar
 * functions, then each ISA file that the level includes overwrites the entries it does better.
 *
 * Contract of every entry (tested by make check-kernels at every level against scalar):
 *   - reads exactly the elements it is given, never past them; pointers to weights and KV have no alignment;
 *   - the result depends on nothing but the values: not on addresses, not on how many rows or tokens share a call, not
 *     on the row range (ARCHITECTURE.md, numeric contract). A dot product is reduced in one order per level:
 *     lane = k mod W, chain = (k / W) mod C, counted from the start of the row, then one fixed fold (of MXFP4, k is the
 *     place in the order in which a level decodes a block);
 *   - a tail element gets the bits that it would get inside a full vector.
 * Activations are f32. Weights are widened to f32 first (FP8: code times block scale, one rounding).
 */
#ifndef KERNEL_KERNELS_H
#define KERNEL_KERNELS_H

#include "base/machine.h"
#include "format/dtype.h"

/* Scratch that a caller must hand to the entries that take one: per thread, 64-aligned. */
#define BT_KERNEL_SCRATCH_BYTES ((size_t)1 << 20)

/* Keys of a timeline are cut into tiles at multiples of this position. */
#define BT_ATTN_TILE 128u
/* Most query vectors in one call of attn_tile. */
#define BT_ATTN_QUERIES_MAX 64u

/* y[t][r - r0] = (add ? y[t][r - r0] : 0) + sum_k w[r][k] * x[t][k]    for t in [0, n_x), r in [r0, r1)
 * Row t of x is x + x_rows[t] * x_stride (x_rows NULL: t itself), and y likewise. One add after the fold.
 * With one token, n_runs > 1 adds the ranges [r0 + i * apart, r1 + i * apart) for i < n_runs; y is found by the row all
 * the same. Calls that follow each other then read n_runs streams which never jump. No other number than the table's
 * n_streams is possible. */
typedef struct bt_linear {
    float *y;
    const float *x;
    const uint32_t *y_rows;
    const uint32_t *x_rows;
    size_t y_stride, x_stride; /* in floats */
    size_t n_x;
    const bt_view *w;
    void *scratch;
    size_t n_runs, apart;
    bool add;
} bt_linear;

/* One tile of keys and values of one KV head against up to BT_ATTN_QUERIES_MAX query vectors. Query i sees keys
 * [0, n_keys[i]) of the tile (0: none: m = -inf, l = 0, acc = 0). Writes a fresh partial result per query:
 *   s_j = scale * dot(q_i, k_j);  m = max s_j;  p_j = exp(s_j - m);  l = sum p_j;
 *   acc[d] = sum_j p_j v_j[d], j ascending */
typedef struct bt_attn {
    const float *const *q;  /* [n_q] pointers to [head_dim] */
    const uint32_t *n_keys; /* [n_q], each <= BT_ATTN_TILE */
    size_t n_q;
    const void *k, *v; /* [max n_keys][head_dim] and [max n_keys][v_dim] of kv_dtype */
    bt_dtype kv_dtype; /* BT_F32, BT_BF16 or BT_F16 */
    size_t head_dim;
    size_t v_dim;              /* at most head_dim; values may be a part of the keys' rows (MLA's latent) */
    size_t k_stride, v_stride; /* elements from a row to the next */
    float scale;
    float *m, *l; /* [n_q] */
    float *acc;   /* [n_q][v_dim] */
    void *scratch;
} bt_attn;

typedef enum bt_act_kind {
    BT_ACT_SIGMOID,
    BT_ACT_SILU,
    BT_ACT_SOFTPLUS2, /* log2(1 + 2^x): softplus with beta ln 2 */
} bt_act_kind;

typedef enum bt_score_kind { BT_SCORE_SOFTMAX, BT_SCORE_SIGMOID } bt_score_kind;

/* Chooses k experts of n: by score + bias (bias NULL: none), descending, ties to the lower index. ids and weights come
 * out in that order. weight = score (unbiased), divided by the chosen ones' sum if renormalise, times scale. */
typedef struct bt_route {
    const float *logits; /* [n] */
    const float *bias;   /* [n] or NULL; steers the choice only */
    size_t n, k;
    bt_score_kind score;
    bool renormalise;
    float scale;
    uint32_t n_groups;        /* > 1: n / n_groups neighbours are a group, and only experts of the n_active_groups */
    uint32_t n_active_groups; /* groups compete whose two best ranks sum highest; ties to the lower group */
    int32_t force;            /* >= 0: ranks are 1 for this expert, 0 for all others (ablation); -1: none */
    int32_t *ids;             /* [k] */
    float *weights;           /* [k] */
    float *scratch;           /* [2 n] */
} bt_route;

/* The gated delta rule (docs/kimi_k3.md, c.4) of one head for n_rows successive tokens, value rows [0, n_values). Row t
 * of x is x + t * x_stride, in floats. For each t in order, for each value row s of the state:
 *   s *= decay;  d = beta * (v - dot(s, k));  s += d * k;  o = dot(s, q)
 * Value rows are independent: a head may be cut between them. */
typedef struct bt_kda {
    float *state;                                      /* [n_values][key_dim]: keys contiguous; read and written */
    const float *q, *k, *decay;                        /* [key_dim]; q and k normalised, q scaled, decay = exp(g) */
    const float *v;                                    /* [n_values] */
    const float *beta;                                 /* [1] */
    float *o;                                          /* [n_values] */
    size_t qk_stride, v_stride, beta_stride, o_stride; /* qk_stride is decay's too */
    size_t n_rows, key_dim, n_values;
} bt_kda;

/* Causal depthwise convolution and SiLU (docs/kimi_k3.md, c.4) of n channels for n_rows successive tokens:
 *   y_t = silu(sum_j taps[j] * x_(t - n_taps + 1 + j)), j ascending; rows before the first are the tail's.
 * Afterwards the tail holds the last n_taps - 1 inputs. y is not x. */
typedef struct bt_conv {
    float *y;
    const float *x;
    float *tail;       /* [n_taps - 1] rows of [n], oldest first */
    const float *taps; /* [n_taps] rows of [n]: the last one meets the current token */
    size_t y_stride, x_stride, tail_stride, taps_stride; /* in floats */
    size_t n_taps, n_rows, n;                            /* n_taps <= BT_CONV_TAPS_MAX */
} bt_conv;

#define BT_CONV_TAPS_MAX   16u
#define BT_RES_SOURCES_MAX 256u /* of res_mix */

typedef struct bt_kernels {
    bt_cpu_level level; /* of the highest file that overwrote an entry */

    /* rows [r0, r1) of a matrix-vector or matrix-matrix product; by the weight's dtype. scratch needed. */
    void (*linear[BT_N_WEIGHT_DTYPES])(const bt_linear *a, size_t r0, size_t r1);
    uint8_t n_streams[BT_N_WEIGHT_DTYPES]; /* the n_runs that it takes; 1: none */
    /* y[n] = x widened to f32; NULL of BT_MXFP4, whose codes mean nothing without their scales */
    void (*widen[BT_N_WEIGHT_DTYPES])(float *y, const void *x, size_t n);
    /* y[n] of BT_F32, BT_F16 or BT_BF16 = x rounded to nearest even */
    void (*narrow[BT_N_WEIGHT_DTYPES])(void *y, const float *x, size_t n);

    /* Grouped RMSNorm (docs/k2_horizon.md, c.1): n_groups equal contiguous groups, each with its own mean square; times
     * w [n]. y may be x. Squares are summed in f64. */
    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, size_t n_groups, float eps);
    /* Rotates pairs (j, j + half) for j < n_pairs in place: cos = angles[j], sin = angles[n_pairs + j]. */
    void (*rope)(float *x, const float *angles, size_t n_pairs, size_t half);

    void (*add)(float *y, const float *x, size_t n);                        /* y += x */
    void (*scale_add)(float *y, const float *x, float a, size_t n);         /* y += a * x */
    void (*act)(float *y, const float *x, size_t n, bt_act_kind kind);      /* y = act(x); y may be x */
    void (*gate_mul)(float *y, const float *g, size_t n, bt_act_kind kind); /* y *= act(g) */
    void (*act_mul)(float *y, const float *g, const float *u, size_t n,
                    bt_act_kind kind); /* y = act(g) * u; y may be g or u */

    /* y = beta tanh(g / beta) sigmoid(g) * linear_beta tanh(u / linear_beta); linear_beta 0: times u itself. The
     * sigmoid sees the uncapped gate (docs/kimi_k3.md, c.3). y may be g or u. */
    void (*situ_mul)(float *y, const float *g, const float *u, size_t n, float beta, float linear_beta);

    void (*route)(const bt_route *r);

    /* y[t][c - c0] = sum_i x[t][i] * w[i][c] for t in [0, n_x), c in [c0, c1), i ascending over all rows: a product
     * with the transpose, of weights without scales. a->add is honoured, x_rows and y_rows too. scratch needed. */
    void (*linear_t[BT_N_WEIGHT_DTYPES])(const bt_linear *a, size_t c0, size_t c1);

    void (*conv_silu)(const bt_conv *a);
    /* y = x * scale / sqrt(sum x^2 + eps); squares are summed in f64. y may be x. */
    void (*l2_norm)(float *y, const float *x, size_t n, float scale, float eps);
    /* y = exp(g) with g = lower * sigmoid(rate * (z + bias)) where lower < 0, else g = -rate * softplus(z + bias).
     * y may be z. */
    void (*kda_decay)(float *y, const float *z, const float *bias, size_t n, float rate, float lower);
    void (*kda)(const bt_kda *a);
    /* Attention over depth (docs/kimi_k3.md, c.2): s_i = dot(v_i, u) / sqrt(mean(v_i^2) + eps) of n_sources vectors v_i
     * = sources + i * stride; y = sum_i softmax(s)_i v_i, i ascending. Both sums of s_i in f64. y is none of them. At
     * most BT_RES_SOURCES_MAX sources. */
    void (*res_mix)(float *y, const float *sources, size_t stride, size_t n_sources, const float *u, size_t n,
                    float eps);

    void (*attn_tile)(const bt_attn *a);
    /* Merges partial (m2, l2, acc2) into (m, l, acc); l2 == 0 changes nothing, l == 0 copies. */
    void (*attn_merge)(float *m, float *l, float *acc, float m2, float l2, const float *acc2, size_t v_dim);
    /* y = acc / l */
    void (*attn_finish)(float *y, const float *acc, float l, size_t v_dim);
} bt_kernels;

/* The best table for `level` on the machine that called bt_cpu_detect; level must not exceed what that returned. */
void bt_kernels_init(bt_kernels *k, bt_cpu_level level);

/* One per ISA file, called by bt_kernels_init. */
void bt_kernels_add_scalar(bt_kernels *k);
void bt_kernels_add_avx2(bt_kernels *k);
void bt_kernels_add_avx512(bt_kernels *k);

#endif
