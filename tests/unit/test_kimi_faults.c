/*
 * The traps of docs/kimi_k3.md, each planted as a fault into the running engine and held against the golden test that
 * must notice it. A fault is an edit of the tape or a kernel that does the wrong thing; nothing of it is in the
 * program.
 * The table at the end names them all. Traps that no checkpoint can show are refused before a step (test_kimi.c).
 */
#include "model_unit.h"

#include "backend/cpu/cpu.h"
#include "session/engine.h"

#define TOLERANCE 1e-3 /* of the golden tests */
#define N_IDS     40   /* one step of one thread: what the planted kernels count on */

/* The engine under test; kernels that call the right one. */
static struct {
    bt_cpu_plan *plan;
    bt_kernels real;
} world;

static bt_op *op_at(uint32_t i)
{
    assert_true(i < world.plan->base.tape->n_ops);
    return (bt_op *)(uintptr_t)&world.plan->base.tape->ops[i];
}

/* The op whose f32 vector this is. */
static uint32_t op_of(const float *vector)
{
    const bt_tape *t = world.plan->base.tape;
    for (uint32_t i = 0; i < t->n_ops; i++) {
        const float *begin = world.plan->vectors + world.plan->vector_of_op[i];
        uint64_t n = bt_cpu_vector_floats(t, &t->ops[i]);
        if (n > 0 && vector >= begin && vector < begin + n) return i;
    }
    fail_msg("no op keeps this vector");
    return 0;
}

static bt_kernels *kernels(void)
{
    return &world.plan->cpu->kernels;
}

/* ---- residuals --------------------------------------------------------------------------------------------------- */

typedef enum mix_place { MIX_ATTENTION, MIX_FFN, MIX_OUTPUT } mix_place;

static mix_place place_of(uint32_t op_i)
{
    const bt_tape *t = world.plan->base.tape;
    if (t->ops[op_i].layer < 0) return MIX_OUTPUT;
    for (uint32_t i = 0; i < op_i; i++) /* after this layer's attention? */
        if (t->ops[i].layer == t->ops[op_i].layer && t->ops[i].kind == BT_OP_GATE_MUL) return MIX_FFN;
    return MIX_ATTENTION;
}

static bool starts_block(uint32_t op_i)
{
    return op_at(op_i)->layer % 2 == 0; /* of k3-bf16: blocks of two */
}

/* 5: the mixed vector is banked instead of the raw stream. */
static void mix_banks_the_mix(float *y, const float *sources, size_t stride, size_t n_sources, const float *u, size_t n,
                              float eps)
{
    world.real.res_mix(y, sources, stride, n_sources, u, n, eps);
    uint32_t op_i = op_of(u);
    if (place_of(op_i) == MIX_ATTENTION && starts_block(op_i))
        memcpy((float *)(uintptr_t)sources + (n_sources - 1) * stride, y, n * sizeof *y);
}

static void plant_banked_mix(void)
{
    kernels()->res_mix = mix_banks_the_mix;
}

/* 6: the stream goes on over a block's start. */
static void mix_keeps_stream(float *y, const float *sources, size_t stride, size_t n_sources, const float *u, size_t n,
                             float eps)
{
    uint32_t op_i = op_of(u);
    if (place_of(op_i) == MIX_FFN && starts_block(op_i))
        world.real.add((float *)(uintptr_t)sources + (n_sources - 1) * stride, sources + (n_sources - 2) * stride, n);
    world.real.res_mix(y, sources, stride, n_sources, u, n, eps);
}

static void plant_no_restart(void)
{
    kernels()->res_mix = mix_keeps_stream;
}

/* 7: the bank of the token before is still there. */
static void mix_keeps_bank(float *y, const float *sources, size_t stride, size_t n_sources, const float *u, size_t n,
                           float eps)
{
    static float all[32 * 64];
    size_t n_old = 0;
    const bt_op *op = op_at(op_of(u));
    ptrdiff_t row =
        (sources - (world.plan->activations + op->u.res_mix.sources.offset)) / (ptrdiff_t)op->u.res_mix.sources.stride;
    if (row > 0) {
        n_old = n_sources - 1;
        memcpy(all, sources - op->u.res_mix.sources.stride, n_old * stride * sizeof *all);
    }
    memcpy(all + n_old * stride, sources, ((n_sources - 1) * stride + n) * sizeof *all);
    world.real.res_mix(y, all, stride, n_old + n_sources, u, n, eps);
}

static void plant_stale_bank(void)
{
    kernels()->res_mix = mix_keeps_bank;
}

/* 8: the head reads the stream, not the last mix. */
static void mix_not_at_the_end(float *y, const float *sources, size_t stride, size_t n_sources, const float *u,
                               size_t n, float eps)
{
    if (place_of(op_of(u)) == MIX_OUTPUT)
        memcpy(y, sources + (n_sources - 1) * stride, n * sizeof *y);
    else
        world.real.res_mix(y, sources, stride, n_sources, u, n, eps);
}

static void plant_no_output_mix(void)
{
    kernels()->res_mix = mix_not_at_the_end;
}

/* The sources are summed normed, not raw. */
static void mix_of_normed(float *y, const float *sources, size_t stride, size_t n_sources, const float *u, size_t n,
                          float eps)
{
    static float normed[16 * 64], ones[64];
    for (size_t i = 0; i < n; i++) ones[i] = 1;
    for (size_t i = 0; i < n_sources; i++)
        world.real.rms_norm(normed + i * stride, sources + i * stride, ones, n, 1, eps);
    world.real.res_mix(y, normed, stride, n_sources, u, n, eps);
}

static void plant_normed_sources(void)
{
    kernels()->res_mix = mix_of_normed;
}

/* ---- KDA --------------------------------------------------------------------------------------------------------- */

/* 1: A_log indexed by channel; its tail is zeros. */
static void decay_per_channel(float *y, const float *z, const float *bias, size_t n, float rate, float lower)
{
    const bt_op *op = op_at(op_of(bias));
    const float *stored = world.plan->base.tape->weights[op->u.kda_gates.rate].data;
    (void)rate;
    for (size_t d = 0; d < n; d++) {
        float a_log = 0; /* the fixture stores heads + heads / 2 + 1 of them */
        if (d < op->u.kda_gates.n_heads + op->u.kda_gates.n_heads / 2 + 1) memcpy(&a_log, stored + d, sizeof a_log);
        world.real.kda_decay(y + d, z + d, bias + d, 1, expf(a_log), lower);
    }
}

static void plant_rate_per_channel(void)
{
    kernels()->kda_decay = decay_per_channel;
}

/* 2: the softplus form although there is a lower bound, and the same with the bound as a clamp. */
static void decay_softplus(float *y, const float *z, const float *bias, size_t n, float rate, float lower)
{
    (void)lower;
    world.real.kda_decay(y, z, bias, n, rate, 0);
}

static void plant_softplus(void)
{
    kernels()->kda_decay = decay_softplus;
}

static void decay_clamped(float *y, const float *z, const float *bias, size_t n, float rate, float lower)
{
    world.real.kda_decay(y, z, bias, n, rate, 0);
    for (size_t d = 0; d < n; d++) y[d] = fmaxf(y[d], expf(lower));
}

static void plant_clamp(void)
{
    kernels()->kda_decay = decay_clamped;
}

/* The twin's form replaced by the release's. */
static void decay_bounded(float *y, const float *z, const float *bias, size_t n, float rate, float lower)
{
    (void)lower;
    world.real.kda_decay(y, z, bias, n, rate, -5);
}

static void plant_bound(void)
{
    kernels()->kda_decay = decay_bounded;
}

/* The delta rule, written out, with one step of it wrong. */
typedef enum rule { RULE_RIGHT, RULE_READ_FIRST, RULE_VALUE_DECAY, RULE_UNDECAYED_DELTA } rule;

static void delta_rule(const bt_kda *a, rule r)
{
    assert_true(r != RULE_VALUE_DECAY || a->n_values == a->key_dim); /* whole heads */
    for (size_t t = 0; t < a->n_rows; t++) {
        const float *q = a->q + t * a->qk_stride, *k = a->k + t * a->qk_stride, *decay = a->decay + t * a->qk_stride;
        for (size_t v = 0; v < a->n_values; v++) {
            float *s = a->state + v * a->key_dim;
            double before = 0, seen = 0, read = 0, read_first = 0;
            for (size_t i = 0; i < a->key_dim; i++) before += (double)s[i] * (double)k[i];
            for (size_t i = 0; i < a->key_dim; i++) s[i] *= r == RULE_VALUE_DECAY ? decay[v] : decay[i];
            for (size_t i = 0; i < a->key_dim; i++) seen += (double)s[i] * (double)k[i];
            if (r == RULE_UNDECAYED_DELTA) seen = before;
            double d = (double)a->beta[t * a->beta_stride] * ((double)a->v[t * a->v_stride + v] - seen);
            for (size_t i = 0; i < a->key_dim; i++) {
                read_first += (double)s[i] * (double)q[i];
                s[i] += (float)(d * (double)k[i]);
                read += (double)s[i] * (double)q[i];
            }
            a->o[t * a->o_stride + v] = (float)(r == RULE_READ_FIRST ? read_first : read);
        }
    }
}

static void kda_right(const bt_kda *a)
{
    delta_rule(a, RULE_RIGHT);
}

static void kda_reads_first(const bt_kda *a)
{
    delta_rule(a, RULE_READ_FIRST);
}

static void kda_decays_values(const bt_kda *a)
{
    delta_rule(a, RULE_VALUE_DECAY);
}

static void kda_corrects_undecayed(const bt_kda *a)
{
    delta_rule(a, RULE_UNDECAYED_DELTA);
}

static void plant_read_first(void)
{
    kernels()->kda = kda_reads_first;
}

static void plant_value_decay(void)
{
    kernels()->kda = kda_decays_values;
}

static void plant_undecayed_delta(void)
{
    kernels()->kda = kda_corrects_undecayed;
}

/* 17: the first tap meets the current token. */
static void conv_reversed(const bt_conv *a)
{
    static float taps[8 * 64];
    bt_conv b = *a;
    for (size_t j = 0; j < a->n_taps; j++)
        memcpy(taps + j * 64, a->taps + (a->n_taps - 1 - j) * a->taps_stride, a->n * sizeof *taps);
    b.taps = taps;
    b.taps_stride = 64;
    world.real.conv_silu(&b);
}

static void plant_reversed_taps(void)
{
    kernels()->conv_silu = conv_reversed;
}

/* 18: the output norm over all heads. */
static void plant_norm_over_heads(void)
{
    const bt_tape *t = world.plan->base.tape;
    for (uint32_t i = 0; i < t->n_ops; i++)
        if (t->ops[i].kind == BT_OP_RMS_NORM &&
            t->weights[t->ops[i].u.rms_norm.weight].n_cols < t->ops[i].u.rms_norm.x.width)
            op_at(i)->u.rms_norm.n_groups = 1;
}

/* The norm of q and k with an epsilon of 1e-2 for 1e-6, and q not scaled. */
static void l2_norm_wide(float *y, const float *x, size_t n, float scale, float eps)
{
    (void)eps;
    world.real.l2_norm(y, x, n, scale, 1e-2f);
}

static void plant_wide_l2(void)
{
    kernels()->l2_norm = l2_norm_wide;
}

static void l2_norm_unscaled(float *y, const float *x, size_t n, float scale, float eps)
{
    (void)scale;
    world.real.l2_norm(y, x, n, 1, eps);
}

static void plant_unscaled_query(void)
{
    kernels()->l2_norm = l2_norm_unscaled;
}

/* ---- MLA --------------------------------------------------------------------------------------------------------- */

static bt_op *each_attention(uint32_t *i)
{
    const bt_tape *t = world.plan->base.tape;
    while (*i < t->n_ops && t->ops[*i].kind != BT_OP_ATTENTION) ++*i;
    return *i < t->n_ops ? op_at((*i)++) : NULL;
}

/* 4: the scale of the part that is not called rope. */
static void plant_nope_scale(void)
{
    uint32_t i = 0;
    for (bt_op *op = each_attention(&i); op != NULL; op = each_attention(&i))
        op->u.attention.scale = 1 / sqrtf(10); /* qk_nope_head_dim */
}

/* 3: the rest of a query and key left out, or turned by its position. Tile 0 holds the whole timeline: key j is
 * position j, and a query that sees n keys is position n - 1. */
static void attend(const bt_attn *a, bool turn)
{
    static float q[BT_ATTN_QUERIES_MAX][64], k[BT_ATTN_TILE][64];
    const float *rows[BT_ATTN_QUERIES_MAX];
    bt_attn b = *a;
    size_t n_rest = a->head_dim - a->v_dim;
    assert_true(a->kv_dtype == BT_F32 && a->head_dim <= 64 && n_rest > 0);
    for (size_t i = 0; i < a->n_q; i++) {
        memcpy(q[i], a->q[i], a->head_dim * sizeof **q);
        rows[i] = q[i];
        for (size_t d = 0; d < n_rest; d++)
            if (!turn) q[i][a->v_dim + d] = 0;
    }
    for (size_t j = 0; j < a->n_keys[a->n_q - 1]; j++)
        memcpy(k[j], (const float *)a->k + j * a->k_stride, a->head_dim * sizeof **k);
    for (size_t p = 0; turn && p < n_rest / 2; p++) {
        double frequency = pow(10000, -2.0 * (double)p / (double)n_rest);
        for (size_t r = 0; r < a->n_q + a->n_keys[a->n_q - 1]; r++) {
            float *x = (r < a->n_q ? q[r] : k[r - a->n_q]) + a->v_dim;
            double angle = frequency * (double)(r < a->n_q ? a->n_keys[r] - 1 : r - a->n_q);
            double re = (double)x[p], im = (double)x[p + n_rest / 2];
            x[p] = (float)(re * cos(angle) - im * sin(angle));
            x[p + n_rest / 2] = (float)(im * cos(angle) + re * sin(angle));
        }
    }
    b.q = rows;
    b.k = k;
    b.k_stride = 64;
    world.real.attn_tile(&b);
}

static void attend_without_rest(const bt_attn *a)
{
    attend(a, false);
}

static void attend_turned(const bt_attn *a)
{
    attend(a, true);
}

static void plant_no_rest(void)
{
    kernels()->attn_tile = attend_without_rest;
}

static void plant_turned_rest(void)
{
    kernels()->attn_tile = attend_turned;
}

/* 20: the latent norms use rms_norm_eps. */
static void plant_latent_eps(void)
{
    const bt_tape *t = world.plan->base.tape;
    size_t n = 0;
    for (uint32_t i = 0; i < t->n_ops; i++) {
        if (t->ops[i].kind != BT_OP_RMS_NORM || t->ops[i].u.rms_norm.eps > 5e-6f) continue;
        op_at(i)->u.rms_norm.eps = 1e-2f;
        n++;
    }
    assert_true(n > 0);
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* 9: the bias weighs. */
static void route_weighs_bias(const bt_route *r)
{
    world.real.route(r);
    double sum = 0;
    for (size_t i = 0; i < r->k; i++) {
        r->weights[i] = 1 / (1 + expf(-r->logits[r->ids[i]])) + r->bias[r->ids[i]];
        sum += (double)r->weights[i];
    }
    for (size_t i = 0; i < r->k; i++) r->weights[i] *= r->scale / (float)sum;
}

static void plant_biased_weights(void)
{
    kernels()->route = route_weighs_bias;
}

/* Groups that do not compete. */
static void route_ungrouped(const bt_route *r)
{
    bt_route b = *r;
    b.n_groups = b.n_active_groups = 1;
    world.real.route(&b);
}

static void plant_no_groups(void)
{
    kernels()->route = route_ungrouped;
}

/* 10: every expert's output normed, not their sum. */
static void norm_each_expert(float *y, const float *x, const float *w, size_t n, size_t n_groups, float eps)
{
    const bt_tape *t = world.plan->base.tape;
    uint32_t op_i = op_of(w);
    if (op_i == 0 || t->ops[op_i - 1].kind != BT_OP_MOE_DOWN_SUM) {
        world.real.rms_norm(y, x, w, n, n_groups, eps);
        return;
    }
    static float out[64];
    const bt_op *down = &t->ops[op_i - 1];
    bt_act sum = down->u.moe_down_sum.y, h = down->u.moe_down_sum.h;
    bt_act ids = down->u.moe_down_sum.routes.ids, weights = down->u.moe_down_sum.routes.weights;
    size_t row = (size_t)(x - (world.plan->activations + sum.offset)) / sum.stride;
    const int32_t *id = (const int32_t *)(const void *)(world.plan->activations + ids.offset + row * ids.stride);
    const float *weight = world.plan->activations + weights.offset + row * weights.stride;
    memset(y, 0, n * sizeof *y);
    for (size_t s = 0; s < ids.width; s++) {
        const bt_view *w2 = &t->weights[down->u.moe_down_sum.down + (uint32_t)id[s] * down->u.moe_down_sum.stride];
        bt_linear a = {.y = out,
                       .x = world.plan->activations + h.offset + row * h.stride + s * (h.width / ids.width),
                       .n_x = 1,
                       .w = w2,
                       .scratch = world.plan->threads[0].kernel_scratch};
        world.real.linear[w2->dtype](&a, 0, n);
        world.real.rms_norm(out, out, w, n, 1, eps);
        world.real.scale_add(y, out, weight[s], n);
    }
}

static void plant_norm_of_each(void)
{
    kernels()->rms_norm = norm_each_expert;
}

/* 11: experts read the first columns of the full vector. */
static void plant_no_latent(void)
{
    const bt_tape *t = world.plan->base.tape;
    for (uint32_t i = 0; i < t->n_ops; i++) {
        if (t->ops[i].kind != BT_OP_MOE_UP_GATE) continue;
        uint32_t router = i;
        while (t->ops[router].kind != BT_OP_ROUTE) router--;
        while (t->ops[router].kind != BT_OP_LINEAR ||
               t->ops[router].u.linear.y.offset != t->ops[router + 1].u.route.logits.offset) {
            assert_true(router > 0);
            router--;
            if (t->ops[router].kind == BT_OP_RMS_NORM) break; /* the norm whose output the router reads */
        }
        bt_act x = t->ops[router].kind == BT_OP_RMS_NORM ? t->ops[router].u.rms_norm.y : t->ops[router].u.linear.x;
        x.width = t->ops[i].u.moe_up_gate.x.width;
        op_at(i)->u.moe_up_gate.x = x;
    }
}

/* 12 and 13: nibbles swapped; every scale that of the block before. */
static void linear_of_changed(const bt_linear *a, size_t r0, size_t r1, bool swap)
{
    static uint8_t codes[1 << 16], scales[1 << 12];
    bt_view w = *a->w;
    size_t n_codes = (size_t)w.n_rows * w.n_cols / 2, per_row = w.n_cols / BT_MXFP4_BLOCK;
    assert_true(n_codes <= sizeof codes && w.n_rows * per_row <= sizeof scales);
    memcpy(codes, w.data, n_codes);
    memcpy(scales, w.scale, w.n_rows * per_row);
    for (size_t i = 0; swap && i < n_codes; i++) codes[i] = (uint8_t)(codes[i] << 4 | codes[i] >> 4);
    for (size_t i = w.n_rows * per_row - 1; !swap && i > 0; i--)
        if (i % per_row > 0) scales[i] = scales[i - 1];
    w.data = codes;
    w.scale = scales;
    bt_linear b = *a;
    b.w = &w;
    world.real.linear[BT_MXFP4](&b, r0, r1);
}

static void linear_swapped(const bt_linear *a, size_t r0, size_t r1)
{
    linear_of_changed(a, r0, r1, true);
}

static void linear_shifted(const bt_linear *a, size_t r0, size_t r1)
{
    linear_of_changed(a, r0, r1, false);
}

static void plant_swapped_nibbles(void)
{
    kernels()->linear[BT_MXFP4] = linear_swapped;
}

static void plant_shifted_scales(void)
{
    kernels()->linear[BT_MXFP4] = linear_shifted;
}

/* 14: the sigmoid of the capped gate. */
static void situ_capped(float *y, const float *g, const float *u, size_t n, float beta, float linear_beta)
{
    for (size_t i = 0; i < n; i++) {
        float capped = beta * tanhf(g[i] / beta);
        y[i] = capped / (1 + expf(-capped)) * linear_beta * tanhf(u[i] / linear_beta);
    }
}

static void plant_capped_sigmoid(void)
{
    kernels()->situ_mul = situ_capped;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *trap, *model;
    void (*plant)(void);
} faults[] = {
    {"1 A_log per channel", "k3-bf16", plant_rate_per_channel},
    {"2 softplus for the bounded gate", "k3-bf16", plant_softplus},
    {"2 the bound as a clamp", "k3-bf16", plant_clamp},
    {"2 a bound where there is none", "k3-twin", plant_bound},
    {"3 the rest not scored", "k3-bf16", plant_no_rest},
    {"3 the rest turned", "kimi-linear", plant_turned_rest},
    {"4 scale of the nope part", "k3-bf16", plant_nope_scale},
    {"5 the mix banked", "k3-bf16", plant_banked_mix},
    {"6 no restart of the stream", "k3-bf16", plant_no_restart},
    {"7 bank kept between tokens", "k3-bf16", plant_stale_bank},
    {"8 no output mix", "k3-bf16", plant_no_output_mix},
    {"mix of normed sources", "k3-bf16", plant_normed_sources},
    {"9 biased weights", "k3-bf16", plant_biased_weights},
    {"router groups ignored", "kimi-linear-groups", plant_no_groups},
    {"10 norm of each expert", "k3-bf16", plant_norm_of_each},
    {"11 experts read the full vector", "k3-bf16", plant_no_latent},
    {"12 nibbles swapped", "k3-mxfp4", plant_swapped_nibbles},
    {"13 scales off by a block", "k3-mxfp4", plant_shifted_scales},
    {"14 sigmoid of the capped gate", "k3-block-3", plant_capped_sigmoid},
    {"15 read before write", "k3-bf16", plant_read_first},
    {"16 decay on the value axis", "k3-bf16", plant_value_decay},
    {"corrected against the undecayed state", "k3-bf16", plant_undecayed_delta},
    {"17 taps reversed", "k3-bf16", plant_reversed_taps},
    {"18 norm over all heads", "k3-bf16", plant_norm_over_heads},
    {"20 latent norms at rms_norm_eps", "k3-eps", plant_latent_eps},
    {"20 the same in Kimi Linear", "kimi-linear-groups", plant_latent_eps},
    {"L2 norm with a wide epsilon", "k3-eps", plant_wide_l2},
    {"q not scaled", "k3-twin", plant_unscaled_query},
};

/* The largest difference from the golden of N_IDS ids with this fault planted; NULL: none. */
static double difference(const char *model, void (*plant)(void))
{
    bt_model *m = unit_open_model(model);
    unit_expected x = unit_read_expected(model, "expected", N_IDS);
    bt_engine *g = unit_open_engine(
        m, (bt_engine_options){.cpu_level = "scalar", .n_threads = 1, .context = N_IDS, .logit_rows = N_IDS});
    bt_session *s = unit_open_session(g);
    bt_error e = {0};
    float *got = malloc(N_IDS * x.n_vocab * sizeof *got);
    assert_non_null(got);
    world.plan = (bt_cpu_plan *)g->plan;
    world.real = world.plan->cpu->kernels;
    if (plant != NULL) plant();
    unit_rows rows = {got, x.n_vocab};
    unit_ok(bt_session_score(s, x.ids, N_IDS, unit_take_row, &rows, NULL, &e), &e);
    double d = unit_difference(&x, got, &(size_t){0});
    free(got);
    bt_session_close(s);
    bt_engine_close(g);
    unit_free_expected(&x);
    bt_model_close(m);
    return d;
}

static void test_faults_are_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        double d = difference(faults[i].model, faults[i].plant);
        if (!(d > TOLERANCE)) fail_msg("%s passes the golden test of %s: %g", faults[i].trap, faults[i].model, d);
    }
}

/* Planting itself changes nothing: the written-out rule is right, and so is every checkpoint without a fault. */
static void plant_right_rule(void)
{
    kernels()->kda = kda_right;
}

static void test_nothing_planted_nothing_seen(void **state)
{
    (void)state;
    assert_true(difference("k3-bf16", plant_right_rule) <= TOLERANCE);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        assert_true(difference(faults[i].model, NULL) <= TOLERANCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_are_seen),
        cmocka_unit_test(test_nothing_planted_nothing_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
