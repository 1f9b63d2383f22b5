/*
 * The ops that Kimi's models brought, each against a plain double loop, at the lowest and the best CPU level, with 1
 * and 3 threads; those with a state also in chunks, and for three timelines whose rows share steps.
 */
#include "test_ops_world.h"

#define N_SETTINGS 4u

static void open_setting(world *w, uint32_t i)
{
    world_open_plan(w, i % 2 == 0 ? BT_CPU_SCALAR : bt_cpu_detect(), i / 2 == 0 ? 1 : 3);
}

static bt_limits limits_of(uint32_t max_rows, uint32_t context)
{
    return (bt_limits){.max_rows = max_rows, .max_logit_rows = 1, .context = context, .n_slots = 3, .kv_dtype = BT_F32};
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* ---- timelines ----------------------------------------------------------------------------------------------------
 */

/* Three timelines of ROWS rows each, in several orders of steps. Rows of inputs are copied into scratch, rows of the
 * output out of it. */
#define TIMELINES 3u
#define ROWS      23u
#define ACTS_MAX  6u

typedef struct lines {
    world w;
    bt_act in[ACTS_MAX], out;
    uint32_t n_in;
    float *inputs[ACTS_MAX]; /* [TIMELINES][ROWS][width] */
    float *got;              /* [TIMELINES][ROWS][out.width] */
} lines;

static void lines_fill(lines *l)
{
    for (uint32_t i = 0; i < l->n_in; i++) {
        size_t n = (size_t)TIMELINES * ROWS * l->in[i].width;
        l->inputs[i] = malloc(n * sizeof(float));
        assert_non_null(l->inputs[i]);
        for (size_t j = 0; j < n; j++) l->inputs[i][j] = bt_rng_normal(100 + i, j);
    }
    l->got = calloc((size_t)TIMELINES * ROWS * l->out.width, sizeof(float));
    assert_non_null(l->got);
}

static void lines_close(lines *l)
{
    for (uint32_t i = 0; i < l->n_in; i++) free(l->inputs[i]);
    free(l->got);
    world_close(&l->w);
}

static const float *line_row(const lines *l, uint32_t act, uint32_t timeline, uint32_t row)
{
    return l->inputs[act] + ((size_t)timeline * ROWS + row) * l->in[act].width;
}

static const float *got_row(const lines *l, uint32_t timeline, uint32_t row)
{
    return l->got + ((size_t)timeline * ROWS + row) * l->out.width;
}

static void lines_step(lines *l, const bt_segment *segments, uint32_t n_segments)
{
    for (uint32_t i = 0; i < n_segments; i++)
        for (uint32_t j = 0; j < segments[i].n_rows; j++)
            for (uint32_t a = 0; a < l->n_in; a++)
                memcpy(world_row(&l->w, l->in[a], segments[i].row + j),
                       line_row(l, a, segments[i].slot, segments[i].position + j), l->in[a].width * sizeof(float));
    world_step(&l->w, segments, n_segments);
    for (uint32_t i = 0; i < n_segments; i++)
        for (uint32_t j = 0; j < segments[i].n_rows; j++)
            memcpy(l->got + ((size_t)segments[i].slot * ROWS + segments[i].position + j) * l->out.width,
                   world_row(&l->w, l->out, segments[i].row + j), l->out.width * sizeof(float));
}

/* Each timeline alone, in chunks. */
static void lines_alone(lines *l, uint32_t chunk)
{
    for (uint32_t t = 0; t < TIMELINES; t++)
        for (uint32_t p = 0; p < ROWS; p += chunk) {
            bt_segment g = {.slot = t, .position = p, .n_rows = ROWS - p < chunk ? ROWS - p : chunk};
            lines_step(l, &g, 1);
        }
}

/* All three in every step, with pieces of different lengths and in turning order. */
static void lines_together(lines *l)
{
    uint32_t done[TIMELINES] = {0}, left = TIMELINES * ROWS;
    for (uint32_t turn = 0; left > 0; turn++) {
        bt_segment g[TIMELINES];
        uint32_t n = 0, row = 0;
        for (uint32_t i = 0; i < TIMELINES; i++) {
            uint32_t t = (i + turn) % TIMELINES, rows = 1 + (turn + 3 * t) % 5;
            if (rows > ROWS - done[t]) rows = ROWS - done[t];
            if (rows == 0) continue;
            g[n++] = (bt_segment){.slot = t, .row = row, .n_rows = rows, .position = done[t]};
            row += rows;
            done[t] += rows;
            left -= rows;
        }
        lines_step(l, g, n);
    }
}

typedef void (*check_fn)(const lines *l);

/* The reference holds for whole timelines; every other way gives the same bits at the same level. */
static void check_lines(lines *l, check_fn check)
{
    size_t n = (size_t)TIMELINES * ROWS * l->out.width;
    float *whole = malloc(n * sizeof *whole);
    assert_non_null(whole);
    for (uint32_t level = 0; level < 2; level++) {
        for (uint32_t way = 0; way < 5; way++) {
            world_open_plan(&l->w, level == 0 ? BT_CPU_SCALAR : bt_cpu_detect(), 1 + way % 3);
            memset(l->got, 0, n * sizeof *l->got);
            if (way == 4)
                lines_together(l);
            else
                lines_alone(l, way == 0 ? ROWS : way == 1 ? 1 : way == 2 ? 7 : 16);
            if (way == 0) {
                check(l);
                memcpy(whole, l->got, n * sizeof *whole);
            }
            if (memcmp(whole, l->got, n * sizeof *whole) != 0) fail_msg("level %u, way %u: other bits", level, way);
        }
    }
    free(whole);
}

/* ---- convolution --------------------------------------------------------------------------------------------------
 */

#define CHANNELS 1043u /* three items, of which the last is no whole vector */

static uint32_t conv_weight, conv_taps;

static void check_conv(const lines *l)
{
    for (uint32_t t = 0; t < TIMELINES; t++)
        for (uint32_t row = 0; row < ROWS; row++)
            for (uint32_t c = 0; c < CHANNELS; c++) {
                double sum = 0;
                for (uint32_t j = 0; j < conv_taps && j <= row; j++) /* the last tap meets the current row */
                    sum +=
                        world_weight(&l->w, conv_weight, c, conv_taps - 1 - j) * (double)line_row(l, 0, t, row - j)[c];
                world_close_to((double)got_row(l, t, row)[c], sum * sigmoid(sum), 1e-5, "conv_silu", c);
            }
}

static void convolution_goes_on_from_its_tail(void **state)
{
    (void)state;
    static const struct {
        uint32_t taps;
        bt_dtype dtype;
    } cases[] = {{4, BT_F32}, {2, BT_BF16}, {16, BT_F16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lines l = {.w = {.seed = 20}, .n_in = 1};
        conv_taps = cases[i].taps;
        conv_weight = world_matrix(&l.w, CHANNELS, conv_taps, cases[i].dtype, 0, 0.5, false);
        bt_limits limits = limits_of(64, 64);
        world_begin(&l.w, &limits);
        l.in[0] = bt_tape_act(l.w.b, BT_SPACE_ROWS, CHANNELS);
        l.out = bt_tape_act(l.w.b, BT_SPACE_ROWS, CHANNELS);
        uint32_t tail = bt_tape_fixed(l.w.b, conv_taps - 1, CHANNELS);
        bt_op_conv_silu(l.w.b, l.out, l.in[0], conv_weight, tail);
        world_finish_body(&l.w);
        lines_fill(&l);
        check_lines(&l, check_conv);
        lines_close(&l);
    }
}

/* ---- delta rule ---------------------------------------------------------------------------------------------------
 */

enum { HEADS = 5, KEY = 24, VALUE = 37, KW = HEADS * KEY, VW = HEADS * VALUE };

static uint32_t gate_bias, gate_rate;
static double gate_lower;

/* q, k, decay and beta of a row as the gates leave them. */
static void expect_gates(const lines *l, uint32_t t, uint32_t row, double *q, double *k, double *decay, double *beta)
{
    for (uint32_t h = 0; h < HEADS; h++) {
        double qq = 1e-6, kk = 1e-6, rate = exp(world_weight(&l->w, gate_rate, 0, h));
        for (uint32_t d = 0; d < KEY; d++) {
            q[h * KEY + d] = (double)line_row(l, 0, t, row)[h * KEY + d];
            k[h * KEY + d] = (double)line_row(l, 1, t, row)[h * KEY + d];
            qq += q[h * KEY + d] * q[h * KEY + d];
            kk += k[h * KEY + d] * k[h * KEY + d];
        }
        for (uint32_t d = 0; d < KEY; d++) {
            uint32_t i = h * KEY + d;
            q[i] /= sqrt(qq) * sqrt(KEY);
            k[i] /= sqrt(kk);
            double z = (double)line_row(l, 2, t, row)[i] + world_weight(&l->w, gate_bias, 0, i);
            decay[i] = exp(gate_lower < 0 ? gate_lower * sigmoid(rate * z) : -rate * log1p(exp(z)));
        }
        beta[h] = sigmoid((double)line_row(l, 3, t, row)[h]);
    }
}

static void check_kda(const lines *l)
{
    double *s = malloc((size_t)HEADS * KEY * VALUE * sizeof *s);
    assert_non_null(s);
    for (uint32_t t = 0; t < TIMELINES; t++) {
        memset(s, 0, (size_t)HEADS * KEY * VALUE * sizeof *s);
        for (uint32_t row = 0; row < ROWS; row++) {
            double q[KW], k[KW], decay[KW], beta[HEADS];
            expect_gates(l, t, row, q, k, decay, beta);
            for (uint32_t h = 0; h < HEADS; h++)
                for (uint32_t v = 0; v < VALUE; v++) { /* state: [key][value], as the paper has it */
                    double *column = s + (size_t)h * KEY * VALUE + v, seen = 0, out = 0;
                    for (uint32_t d = 0; d < KEY; d++) {
                        column[d * VALUE] *= decay[h * KEY + d];
                        seen += column[d * VALUE] * k[h * KEY + d];
                    }
                    double delta = beta[h] * ((double)line_row(l, 4, t, row)[h * VALUE + v] - seen);
                    for (uint32_t d = 0; d < KEY; d++) {
                        column[d * VALUE] += k[h * KEY + d] * delta;
                        out += column[d * VALUE] * q[h * KEY + d];
                    }
                    world_close_to((double)got_row(l, t, row)[h * VALUE + v], out, 1e-5, "kda_step", v);
                }
        }
    }
    free(s);
}

/* Both gate forms, on a bias and rates of other dtypes; rates are stored for more heads than there are. */
static void delta_rule_goes_on_from_its_state(void **state)
{
    (void)state;
    for (uint32_t form = 0; form < 2; form++) {
        lines l = {.w = {.seed = 30}, .n_in = 5};
        gate_bias = world_matrix(&l.w, 1, KW, form == 0 ? BT_F32 : BT_BF16, 0, 0.5, false);
        gate_rate = world_matrix(&l.w, 1, form == 0 ? HEADS + 3 : HEADS, form == 0 ? BT_F32 : BT_F16, 0.2, 0.5, false);
        gate_lower = form == 0 ? -5 : 0;
        bt_limits limits = limits_of(64, 64);
        world_begin(&l.w, &limits);
        static const uint32_t widths[5] = {KW, KW, KW, HEADS, VW};
        for (uint32_t i = 0; i < 5; i++) l.in[i] = bt_tape_act(l.w.b, BT_SPACE_ROWS, widths[i]);
        l.out = bt_tape_act(l.w.b, BT_SPACE_ROWS, VW);
        uint32_t s = bt_tape_fixed(l.w.b, HEADS, (size_t)KEY * VALUE);
        bt_op_kda_gates(l.w.b, l.in[0], l.in[1], l.in[2], l.in[3], gate_bias, gate_rate, HEADS, gate_lower);
        bt_op_kda_step(l.w.b, l.out, l.in[0], l.in[1], l.in[4], l.in[2], l.in[3], s, HEADS);
        world_finish_body(&l.w);
        lines_fill(&l);
        check_lines(&l, check_kda);
        lines_close(&l);
    }
}

/* ---- latent attention ---------------------------------------------------------------------------------------------
 */

typedef struct mla_shape {
    uint32_t heads, nope, rest, v_dim, latent;
    bt_dtype dtype, kv;
} mla_shape;

static const mla_shape *mla;
static uint32_t mla_weight;

static double kept(double x)
{
    return mla->kv == BT_BF16 ? (double)bt_bf16_to_f32(bt_f32_to_bf16((float)x)) : x;
}

/* Unabsorbed: keys and values of every position are written out. in: query [heads][nope + rest], latent and rest. */
static void check_mla(const lines *l)
{
    const mla_shape *m = mla;
    uint32_t per_head = m->nope + m->v_dim, dim = m->nope + m->rest;
    double *kv = malloc((size_t)ROWS * per_head * sizeof *kv), *p = malloc(ROWS * sizeof *p);
    assert_non_null(kv);
    assert_non_null(p);
    for (uint32_t t = 0; t < TIMELINES; t++)
        for (uint32_t h = 0; h < m->heads; h++) {
            for (uint32_t j = 0; j < ROWS; j++)
                for (uint32_t d = 0; d < per_head; d++) {
                    double sum = 0;
                    for (uint32_t c = 0; c < m->latent; c++)
                        sum += world_weight(&l->w, mla_weight, h * per_head + d, c) *
                               kept((double)line_row(l, 1, t, j)[c]);
                    kv[(size_t)j * per_head + d] = sum;
                }
            for (uint32_t row = 0; row < ROWS; row++) {
                const float *q = line_row(l, 0, t, row) + h * dim;
                double max = (double)-INFINITY, sum = 0;
                for (uint32_t j = 0; j <= row; j++) {
                    p[j] = 0;
                    for (uint32_t d = 0; d < m->nope; d++) p[j] += (double)q[d] * kv[(size_t)j * per_head + d];
                    for (uint32_t d = 0; d < m->rest; d++)
                        p[j] += (double)q[m->nope + d] * kept((double)line_row(l, 1, t, j)[m->latent + d]);
                    p[j] *= 0.25;
                    max = fmax(max, p[j]);
                }
                for (uint32_t j = 0; j <= row; j++) sum += p[j] = exp(p[j] - max);
                for (uint32_t d = 0; d < m->v_dim; d++) {
                    double y = 0;
                    for (uint32_t j = 0; j <= row; j++) y += p[j] * kv[(size_t)j * per_head + m->nope + d];
                    world_close_to((double)got_row(l, t, row)[h * m->v_dim + d], y / sum, 2e-5, "mla", d);
                }
            }
        }
    free(kv);
    free(p);
}

static void latent_attention_is_attention(void **state)
{
    (void)state;
    static const mla_shape shapes[] = {
        {3, 10, 6, 12, 20, BT_BF16, BT_F32},
        {1, 7, 0, 90, 140, BT_F32, BT_BF16}, /* few heads: outputs are cut; nothing beside the latent */
        {70, 4, 3, 5, 9, BT_F16, BT_F32},    /* more heads than one tile of keys serves at once */
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        mla = &shapes[i];
        lines l = {.w = {.seed = 40}, .n_in = 2};
        mla_weight = world_linear(&l.w, mla->heads * (mla->nope + mla->v_dim), mla->latent, mla->dtype);
        bt_limits limits = limits_of(64, 64);
        limits.kv_dtype = mla->kv;
        world_begin(&l.w, &limits);
        uint32_t width = mla->latent + mla->rest;
        l.in[0] = bt_tape_act(l.w.b, BT_SPACE_ROWS, mla->heads * (mla->nope + mla->rest));
        l.in[1] = bt_tape_act(l.w.b, BT_SPACE_ROWS, width);
        bt_act q = bt_tape_act(l.w.b, BT_SPACE_ROWS, mla->heads * width);
        bt_act o = bt_tape_act(l.w.b, BT_SPACE_ROWS, mla->heads * mla->latent);
        l.out = bt_tape_act(l.w.b, BT_SPACE_ROWS, mla->heads * mla->v_dim);
        uint32_t keys = bt_tape_positions(l.w.b, 1, width);
        bt_op_store(l.w.b, keys, l.in[1]);
        bt_op_mla_absorb(l.w.b, q, l.in[0], mla_weight, mla->heads, mla->nope, mla->rest, mla->v_dim);
        bt_op_mla_attention(l.w.b, o, q, keys, mla->heads, mla->latent, 0.25);
        bt_op_mla_values(l.w.b, l.out, o, mla_weight, mla->heads, mla->nope, mla->v_dim);
        world_finish_body(&l.w);
        lines_fill(&l);
        check_lines(&l, check_mla);
        lines_close(&l);
    }
}

/* Many heads over one strip and several tiles of keys: walked by one thread, or cut along queries and keys, the bits
 * are the same, and keys count once. */
static void latent_attention_is_cut_without_a_trace(void **state)
{
    (void)state;
    enum { N_HEADS = 70, LATENT = 24, REST = 8, CONTEXT = 700 };
    world w = {.seed = 41};
    bt_limits limits = limits_of(CONTEXT, CONTEXT);
    world_begin(&w, &limits);
    bt_act q = bt_tape_act(w.b, BT_SPACE_ROWS, N_HEADS * (LATENT + REST));
    bt_act k = bt_tape_act(w.b, BT_SPACE_ROWS, LATENT + REST), y = bt_tape_act(w.b, BT_SPACE_ROWS, N_HEADS * LATENT);
    uint32_t keys = bt_tape_positions(w.b, 1, LATENT + REST);
    bt_op_store(w.b, keys, k);
    bt_op_mla_attention(w.b, y, q, keys, N_HEADS, LATENT, 0.2);
    world_finish_body(&w);
    float *expected = NULL;
    size_t n = 3 * (size_t)y.width;
    for (uint32_t i = 0; i < 4; i++) {
        static const size_t threads[] = {1, 2, 3, 16};
        world_open_plan(&w, bt_cpu_detect(), threads[i]);
        w.seed = 42;
        world_fill(&w, q, CONTEXT);
        world_fill(&w, k, CONTEXT);
        for (uint32_t slot = 0; slot < 2; slot++) {
            bt_segment g = {.slot = slot, .n_rows = CONTEXT - 3 - 200 * slot};
            world_step(&w, &g, 1);
        }
        bt_traffic before, after;
        bt_cpu_backend.traffic(w.plan, &before);
        static const bt_segment g[2] = {{.slot = 1, .n_rows = 1, .position = CONTEXT - 203},
                                        {.slot = 0, .row = 1, .n_rows = 2, .position = CONTEXT - 3}};
        world_step(&w, g, 2);
        bt_cpu_backend.traffic(w.plan, &after);
        float *got = malloc(n * sizeof *got);
        assert_non_null(got);
        for (uint32_t row = 0; row < 3; row++)
            memcpy(got + row * (size_t)y.width, world_row(&w, y, row), y.width * sizeof(float));
        bool split = false;
        const bt_cpu_plan *plan = (const bt_cpu_plan *)w.plan;
        for (size_t j = 0; j < plan->layout.partials_bytes / sizeof(float); j++) split |= plan->partials[j] != 0;
        assert_true(split == (i > 0));
        uint64_t position_bytes = (LATENT + REST) * sizeof(float);
        assert_true(after.kv - before.kv >= CONTEXT * position_bytes);
        assert_true(after.kv - before.kv <= 4 * CONTEXT * position_bytes);
        if (i == 0)
            expected = got;
        else if (memcmp(expected, got, n * sizeof *got) != 0)
            fail_msg("%zu threads: other bits", threads[i]);
        if (i > 0) free(got);
    }
    free(expected);
    world_close(&w);
}

/* ---- over rows ----------------------------------------------------------------------------------------------------
 */

/* Softmax over sources of normalised scores; entries of the bank beyond the sources are not read. */
static void mix_is_softmax_over_sources(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_sources, width;
    } cases[] = {{1, 19}, {2, 64}, {9, 777}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world w = {.seed = 50};
        uint32_t width = cases[i].width, n = cases[i].n_sources, stride = (width + 15) / 16 * 16;
        uint32_t norm = world_vector(&w, width, BT_BF16), proj = world_matrix(&w, 1, width, BT_F32, 0, 1, false);
        bt_limits limits = limits_of(4, 8);
        world_begin(&w, &limits);
        bt_act bank = bt_tape_act(w.b, BT_SPACE_ROWS, (n + 1) * stride), y = bt_tape_act(w.b, BT_SPACE_ROWS, width);
        bt_op_res_mix(w.b, y, bank, n, norm, proj, 1e-5);
        world_finish_body(&w);
        for (uint32_t setting = 0; setting < N_SETTINGS; setting++) {
            open_setting(&w, setting);
            world_fill(&w, bank, 4);
            for (uint32_t r = 0; r < 4; r++) world_row(&w, bank, r)[n * stride] = NAN;
            world_run(&w, 4);
            for (uint32_t r = 0; r < 4; r++) {
                const float *row = world_row(&w, bank, r);
                double score[9], max = (double)-INFINITY, sum = 0;
                for (uint32_t s = 0; s < n; s++) {
                    double squares = 0, dot = 0;
                    for (uint32_t d = 0; d < width; d++) {
                        double x = (double)row[s * stride + d];
                        squares += x * x;
                        dot += x * world_weight(&w, norm, 0, d) * world_weight(&w, proj, 0, d);
                    }
                    score[s] = dot / sqrt(squares / width + 1e-5);
                    max = fmax(max, score[s]);
                }
                for (uint32_t s = 0; s < n; s++) sum += score[s] = exp(score[s] - max);
                for (uint32_t d = 0; d < width; d++) {
                    double expected = 0;
                    for (uint32_t s = 0; s < n; s++) expected += score[s] / sum * (double)row[s * stride + d];
                    world_close_to((double)world_row(&w, y, r)[d], expected, 1e-5, "res_mix", d);
                }
            }
        }
        world_close(&w);
    }
}

/* One gain for all heads, each with its own mean square; and it is counted once, as stored. */
static void heads_share_a_gain(void **state)
{
    (void)state;
    enum { N = 5, WIDTH = 13 };
    world w = {.seed = 51};
    uint32_t gain = world_vector(&w, WIDTH, BT_BF16);
    bt_limits limits = limits_of(4, 8);
    world_begin(&w, &limits);
    bt_act x = bt_tape_act(w.b, BT_SPACE_ROWS, N * WIDTH), y = bt_tape_act(w.b, BT_SPACE_ROWS, N * WIDTH);
    bt_op_rms_norm_heads(w.b, y, x, gain, N, 1e-5);
    world_finish_body(&w);
    for (uint32_t setting = 0; setting < N_SETTINGS; setting++) {
        open_setting(&w, setting);
        world_fill(&w, x, 4);
        world_run(&w, 4);
        for (uint32_t i = 0; i < 4 * N; i++) {
            const float *head = world_row(&w, x, i / N) + i % N * WIDTH;
            double sum = 0;
            for (uint32_t d = 0; d < WIDTH; d++) sum += (double)head[d] * (double)head[d];
            for (uint32_t d = 0; d < WIDTH; d++)
                world_close_to((double)world_row(&w, y, i / N)[i % N * WIDTH + d],
                               (double)head[d] / sqrt(sum / WIDTH + 1e-5) * world_weight(&w, gain, 0, d), 1e-5,
                               "rms_norm", d);
        }
        bt_traffic t;
        bt_cpu_backend.traffic(w.plan, &t);
        assert_int_equal(t.weights[BT_CLASS_DENSE], 4 * WIDTH * sizeof(float));
    }
    world_close(&w);
}

static double situ(double g, double u, bt_situ s)
{
    double gate = (double)s.beta * tanh(g / (double)s.beta) * sigmoid(g);
    return gate * (s.linear_beta > 0 ? (double)s.linear_beta * tanh(u / (double)s.linear_beta) : u);
}

/* Caps that bite: inputs are about as large as they are. */
static void situ_caps_both_branches(void **state)
{
    (void)state;
    static const bt_situ caps[] = {{1.5f, 0.7f}, {4, 0}};
    for (size_t i = 0; i < 2; i++) {
        world w = {.seed = 52};
        bt_limits limits = limits_of(3, 8);
        world_begin(&w, &limits);
        bt_act g = bt_tape_act(w.b, BT_SPACE_ROWS, 2100), u = bt_tape_act(w.b, BT_SPACE_ROWS, 2100);
        bt_act y = bt_tape_act(w.b, BT_SPACE_ROWS, 2100);
        bt_op_situ_mul(w.b, y, g, u, caps[i]);
        world_finish_body(&w);
        for (uint32_t setting = 0; setting < N_SETTINGS; setting++) {
            open_setting(&w, setting);
            world_fill(&w, g, 3);
            world_fill(&w, u, 3);
            for (uint32_t r = 0; r < 3; r++)
                for (uint32_t c = 0; c < 2100; c++) world_row(&w, g, r)[c] *= 3;
            world_run(&w, 3);
            for (uint32_t r = 0; r < 3; r++)
                for (uint32_t c = 0; c < 2100; c++)
                    world_close_to((double)world_row(&w, y, r)[c],
                                   situ((double)world_row(&w, g, r)[c], (double)world_row(&w, u, r)[c], caps[i]), 2e-6,
                                   "situ_mul", c);
        }
        world_close(&w);
    }
}

/* ---- experts ------------------------------------------------------------------------------------------------------
 */

enum { EXPERTS = 8, K = 3, LATENT = 64, WIDTH = 96, MOE_ROWS = 17 };

typedef struct moe {
    world w;
    uint32_t first, other; /* gate, up, down of each expert; another matrix of the same dtype */
    bt_act logits, x, y, h, z;
    bt_routes routes;
} moe;

static const bt_situ MOE_SITU = {4, 25};

static void moe_open(moe *m, const bt_route_spec *spec)
{
    world *w = &m->w;
    w->seed = 60;
    m->first = w->n_views;
    for (uint32_t e = 0; e < EXPERTS; e++) {
        world_mxfp4(w, WIDTH, LATENT);
        world_mxfp4(w, WIDTH, LATENT);
        world_mxfp4(w, LATENT, WIDTH);
    }
    m->other = world_mxfp4(w, 40, LATENT);
    bt_limits limits = limits_of(MOE_ROWS, 64);
    world_begin(w, &limits);
    m->logits = bt_tape_act(w->b, BT_SPACE_ROWS, EXPERTS);
    m->x = bt_tape_act(w->b, BT_SPACE_ROWS, LATENT);
    m->y = bt_tape_act(w->b, BT_SPACE_ROWS, LATENT);
    m->z = bt_tape_act(w->b, BT_SPACE_ROWS, 40);
    m->h = bt_tape_act(w->b, BT_SPACE_ROWS, K * WIDTH);
    m->routes = bt_tape_routes(w->b, K);
    bt_op_route(w->b, m->routes, m->logits, spec);
    bt_op_linear(w->b, m->z, m->x, m->other);
    bt_op_moe_up_situ(w->b, m->h, m->x, m->routes, m->first, m->first + 1, 3, EXPERTS, MOE_SITU);
    bt_op_moe_down(w->b, m->y, m->h, m->routes, m->first + 2, 3, EXPERTS);
    world_finish_body(w);
}

static void check_moe_row(const moe *m, uint32_t row)
{
    double x[LATENT], y[LATENT] = {0}, h[WIDTH];
    for (uint32_t c = 0; c < LATENT; c++) x[c] = (double)world_row(&m->w, m->x, row)[c];
    for (uint32_t s = 0; s < K; s++) {
        uint32_t e = m->first + 3 * (uint32_t)world_row_i32(&m->w, m->routes.ids, row)[s];
        double weight = (double)world_row(&m->w, m->routes.weights, row)[s];
        for (uint32_t r = 0; r < WIDTH; r++)
            h[r] = situ(world_product(&m->w, e, r, x), world_product(&m->w, e + 1, r, x), MOE_SITU);
        for (uint32_t r = 0; r < LATENT; r++) y[r] += weight * world_product(&m->w, e + 2, r, h);
    }
    for (uint32_t r = 0; r < LATENT; r++)
        world_close_to((double)world_row(&m->w, m->y, row)[r], y[r], 3e-5, "moe_down", r);
    for (uint32_t r = 0; r < 40; r++)
        world_close_to((double)world_row(&m->w, m->z, row)[r], world_product(&m->w, m->other, r, x), 3e-5, "linear", r);
}

/* The sum starts afresh: what y held does not count. Bytes are codes and scales of the chosen experts. */
static void packed_experts_are_summed_afresh(void **state)
{
    (void)state;
    static const uint32_t n_rows[N_SETTINGS] = {1, MOE_ROWS, MOE_ROWS, 1};
    moe m = {.first = 0};
    moe_open(&m, &(bt_route_spec){.bias = BT_NONE, .score = 1, .renormalise = true, .scale = 1, .force = -1});
    for (uint32_t i = 0; i < N_SETTINGS; i++) {
        open_setting(&m.w, i);
        world_fill(&m.w, m.logits, MOE_ROWS);
        world_fill(&m.w, m.x, MOE_ROWS);
        world_fill(&m.w, m.y, MOE_ROWS);
        world_run(&m.w, n_rows[i]);
        for (uint32_t row = 0; row < n_rows[i]; row++) check_moe_row(&m, row);
        if (n_rows[i] > 1) continue;
        bt_traffic t;
        bt_cpu_backend.traffic(m.w.plan, &t);
        assert_int_equal(t.weights[BT_CLASS_DENSE], (K * 3 * WIDTH + 40) * LATENT * 17 / 32);
    }
    world_close(&m.w);
}

/* Four groups of two, of which two compete. */
static void groups_compete_by_their_two_best(void **state)
{
    (void)state;
    moe m = {.first = 0};
    moe_open(&m, &(bt_route_spec){.bias = BT_NONE,
                                  .score = 1,
                                  .renormalise = true,
                                  .scale = 1,
                                  .force = -1,
                                  .n_groups = 4,
                                  .n_active_groups = 2});
    world_open_plan(&m.w, bt_cpu_detect(), 2);
    world_fill(&m.w, m.logits, MOE_ROWS);
    /* The best single expert is 0, but its group's two best sum lower than those of two others. */
    static const float first[EXPERTS] = {3, -9, 1, 1, -1, -1, 0.9f, 1.1f};
    memcpy(world_row(&m.w, m.logits, 0), first, sizeof first);
    world_run(&m.w, MOE_ROWS);
    for (uint32_t row = 0; row < MOE_ROWS; row++) {
        double sum[4];
        for (uint32_t g = 0; g < 4; g++) {
            const float *pair = world_row(&m.w, m.logits, row) + 2 * g;
            sum[g] = sigmoid((double)pair[0]) + sigmoid((double)pair[1]);
        }
        for (uint32_t s = 0; s < K; s++) {
            uint32_t mine = (uint32_t)world_row_i32(&m.w, m.routes.ids, row)[s] / 2, better = 0;
            for (uint32_t g = 0; g < 4; g++) better += sum[g] > sum[mine];
            assert_true(better < 2);
        }
    }
    static const int32_t expected[K] = {7, 2, 3};
    for (uint32_t s = 0; s < K; s++) assert_int_equal(world_row_i32(&m.w, m.routes.ids, 0)[s], expected[s]);
    world_close(&m.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution_goes_on_from_its_tail), cmocka_unit_test(delta_rule_goes_on_from_its_state),
        cmocka_unit_test(latent_attention_is_attention),     cmocka_unit_test(latent_attention_is_cut_without_a_trace),
        cmocka_unit_test(mix_is_softmax_over_sources),       cmocka_unit_test(heads_share_a_gain),
        cmocka_unit_test(situ_caps_both_branches),           cmocka_unit_test(packed_experts_are_summed_afresh),
        cmocka_unit_test(groups_compete_by_their_two_best),
    };
    return cmocka_run_group_tests_name("ops_kimi", tests, NULL, NULL);
}
