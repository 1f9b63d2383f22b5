/* Every op against a plain double loop, at the lowest and the best CPU level, with 1 and 3 threads, for odd shapes. */
#include "test_ops_world.h"

#define N_SETTINGS 4u

/* The i-th combination of level and threads. */
static void open_setting(world *w, uint32_t i)
{
    world_open_plan(w, i % 2 == 0 ? BT_CPU_SCALAR : bt_cpu_detect(), i / 2 == 0 ? 1 : 3);
}

static bt_limits limits_of(uint32_t max_rows, uint32_t context, uint32_t n_slots, bt_dtype kv)
{
    return (bt_limits){
        .max_rows = max_rows, .max_logit_rows = 4, .context = context, .n_slots = n_slots, .kv_dtype = kv};
}

static void embed_reads_every_dtype(void **state)
{
    (void)state;
    for (bt_dtype d = BT_F32; d <= BT_F8_E4M3; d++) {
        world w = {.seed = 1};
        uint32_t table = world_linear(&w, 300, 150, d);
        bt_limits limits = limits_of(5, 8, 1, BT_F32);
        world_begin(&w, &limits);
        bt_act y = bt_tape_act(w.b, BT_SPACE_ROWS, 150);
        bt_op_embed(w.b, y, table);
        world_finish_body(&w);
        for (uint32_t i = 0; i < N_SETTINGS; i++) {
            open_setting(&w, i);
            int32_t ids[5] = {0, 299, 7, 130, 7};
            bt_segment g = {.n_rows = 5};
            bt_step s = {.ids = ids, .n_rows = 5, .segments = &g, .n_segments = 1};
            assert_int_equal(bt_cpu_backend.run(w.plan, &s, BT_RUN_ALL, NULL), BT_OK);
            for (uint32_t r = 0; r < 5; r++)
                for (uint32_t c = 0; c < 150; c++) /* one rounding: exactly equal */
                    world_close_to((double)world_row(&w, y, r)[c], world_weight(&w, table, (uint32_t)ids[r], c), 0,
                                   "embed", c);
        }
        world_close(&w);
    }
}

static void check_norm(world *w, bt_act y, const double *x, uint32_t weight, uint32_t n_rows, uint32_t n_groups)
{
    uint32_t m = y.width / n_groups;
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t g = 0; g < n_groups; g++) {
            const double *xg = x + (size_t)r * y.width + g * m;
            double sum = 0;
            for (uint32_t j = 0; j < m; j++) sum += xg[j] * xg[j];
            double scale = 1 / sqrt(sum / m + 1e-6);
            for (uint32_t j = 0; j < m; j++)
                world_close_to((double)world_row(w, y, r)[g * m + j],
                               xg[j] * scale * world_weight(w, weight, 0, g * m + j), 1e-5, "rms_norm", j);
        }
}

static void rms_norm_works_by_group_and_in_place(void **state)
{
    (void)state;
    for (uint32_t n_groups = 1; n_groups <= 3; n_groups += 2) {
        world w = {.seed = 2};
        uint32_t weight = world_vector(&w, 111, BT_BF16), other = world_vector(&w, 111, BT_F32);
        bt_limits limits = limits_of(9, 16, 1, BT_F32);
        world_begin(&w, &limits);
        bt_act x = bt_tape_act(w.b, BT_SPACE_ROWS, 111), y = bt_tape_act(w.b, BT_SPACE_ROWS, 111);
        bt_op_rms_norm(w.b, y, x, weight, n_groups, 1e-6);
        bt_op_rms_norm(w.b, x, x, other, n_groups, 1e-6);
        world_finish_body(&w);
        for (uint32_t i = 0; i < N_SETTINGS; i++) {
            open_setting(&w, i);
            world_fill(&w, x, 9);
            double *before = world_copy(&w, x, 9);
            world_run(&w, 9);
            check_norm(&w, y, before, weight, 9, n_groups);
            check_norm(&w, x, before, other, 9, n_groups);
            free(before);
        }
        world_close(&w);
    }
}

static void check_linear(world *w, bt_act y, const double *x, const double *before, uint32_t weight, uint32_t n_rows)
{
    const bt_view *v = &w->views[weight];
    for (uint32_t t = 0; t < n_rows; t++)
        for (uint32_t r = 0; r < v->n_rows; r++) {
            double sum = before != NULL ? before[(size_t)t * v->n_rows + r] : 0;
            for (uint32_t c = 0; c < v->n_cols; c++)
                sum += world_weight(w, weight, r, c) * x[(size_t)t * v->n_cols + c];
            world_close_to((double)world_row(w, y, t)[r], sum, 2e-5, "linear", r);
        }
}

static void linear_multiplies_every_dtype(void **state)
{
    (void)state;
    static const uint32_t n_rows[] = {1, 2, 9, 40};
    for (bt_dtype d = BT_F32; d <= BT_F8_E4M3; d++) {
        world w = {.seed = 3};
        uint32_t weight = world_linear(&w, 300, 141, d);
        bt_limits limits = limits_of(40, 64, 1, BT_F32);
        world_begin(&w, &limits);
        bt_act x = bt_tape_act(w.b, BT_SPACE_ROWS, 141), y = bt_tape_act(w.b, BT_SPACE_ROWS, 300);
        bt_act z = bt_tape_act(w.b, BT_SPACE_ROWS, 300);
        bt_op_linear(w.b, y, x, weight);
        bt_op_linear_add(w.b, z, x, weight);
        world_finish_body(&w);
        for (uint32_t i = 0; i < N_SETTINGS; i++) {
            open_setting(&w, i);
            world_fill(&w, x, 40);
            world_fill(&w, z, 40);
            double *before_x = world_copy(&w, x, 40), *before_z = world_copy(&w, z, 40);
            world_run(&w, n_rows[i]);
            check_linear(&w, y, before_x, NULL, weight, n_rows[i]);
            check_linear(&w, z, before_x, before_z, weight, n_rows[i]);
            free(before_x);
            free(before_z);
        }
        world_close(&w);
    }
}

/* 11 heads of 18, of whose 9 pairs 7 turn. */
static void rope_turns_pairs_by_position(void **state)
{
    (void)state;
    double frequency[7];
    for (uint32_t j = 0; j < 7; j++) frequency[j] = pow(1e6, -(double)j / 7);
    world w = {.seed = 4};
    bt_limits limits = limits_of(6, 500000, 3, BT_F32);
    world_begin(&w, &limits);
    uint32_t table = bt_tape_constants(w.b, frequency, 7);
    bt_act x = bt_tape_act(w.b, BT_SPACE_ROWS, 11 * 18), angles = bt_tape_act(w.b, BT_SPACE_ROWS, 14);
    bt_op_rope_angles(w.b, angles, table, 1.25);
    bt_op_rope(w.b, x, angles, 11, 18, 7);
    world_finish_body(&w);
    for (uint32_t i = 0; i < N_SETTINGS; i++) {
        open_setting(&w, i);
        world_fill(&w, x, 6);
        double *before = world_copy(&w, x, 6);
        int32_t ids[6] = {0};
        bt_segment g[3] = {
            {.slot = 2, .row = 0, .n_rows = 1, .position = 499999},
            {.slot = 0, .row = 1, .n_rows = 3, .position = 0},
            {.slot = 1, .row = 4, .n_rows = 2, .position = 77},
        };
        static const uint32_t position[6] = {499999, 0, 1, 2, 77, 78};
        bt_step s = {.ids = ids, .n_rows = 6, .segments = g, .n_segments = 3};
        assert_int_equal(bt_cpu_backend.run(w.plan, &s, BT_RUN_ALL, NULL), BT_OK);
        for (uint32_t r = 0; r < 6; r++)
            for (uint32_t h = 0; h < 11; h++)
                for (uint32_t j = 0; j < 9; j++) {
                    const double *p = before + (size_t)r * 198 + h * 18;
                    double angle = position[r] * (j < 7 ? frequency[j] : 0);
                    double c = j < 7 ? 1.25 * cos(angle) : 1, d = j < 7 ? 1.25 * sin(angle) : 0;
                    const float *got = world_row(&w, x, r) + h * 18;
                    world_close_to((double)got[j], p[j] * c - p[j + 9] * d, 1e-6, "rope", j);
                    world_close_to((double)got[j + 9], p[j + 9] * c + p[j] * d, 1e-6, "rope", j + 9);
                }
        free(before);
    }
    world_close(&w);
}

static void activations_at_every_width(void **state)
{
    (void)state;
    static const uint32_t widths[] = {1, 37, 5000};
    for (uint32_t act = 0; act <= 2; act++)
        for (uint32_t n = 0; n < 3; n++) {
            world w = {.seed = 5};
            bt_limits limits = limits_of(3, 8, 1, BT_F32);
            world_begin(&w, &limits);
            bt_act g = bt_tape_act(w.b, BT_SPACE_ROWS, widths[n]), u = bt_tape_act(w.b, BT_SPACE_ROWS, widths[n]);
            bt_act y = bt_tape_act(w.b, BT_SPACE_ROWS, widths[n]);
            bt_op_act_mul(w.b, y, g, u, act);
            bt_op_gate_mul(w.b, u, g, act);
            world_finish_body(&w);
            open_setting(&w, (act + n) % N_SETTINGS);
            world_fill(&w, g, 3);
            world_fill(&w, u, 3);
            double *gb = world_copy(&w, g, 3), *ub = world_copy(&w, u, 3);
            world_run(&w, 3);
            for (uint32_t i = 0; i < 3 * widths[n]; i++) {
                double expected = world_act(gb[i], act) * ub[i];
                uint32_t r = i / widths[n], c = i % widths[n];
                world_close_to((double)world_row(&w, y, r)[c], expected, 1e-5, "act_mul", i);
                world_close_to((double)world_row(&w, u, r)[c], expected, 1e-5, "gate_mul", i);
            }
            free(gb);
            free(ub);
            world_close(&w);
        }
}

/* ---- attention ----------------------------------------------------------------------------------------------------
 */

typedef struct attention_case {
    uint32_t n_heads, n_strips, head_dim, context;
    bt_dtype kv;
} attention_case;

/* What a KV dtype keeps of x. */
static double kept(double x, bt_dtype kv)
{
    if (kv == BT_BF16) return (double)bt_bf16_to_f32(bt_f32_to_bf16((float)x));
    if (kv == BT_F16) return (double)bt_f16_to_f32(bt_f32_to_f16((float)x));
    return x;
}

/* Row t of one timeline from position 0: all of k and v [n][strips * head_dim] are that timeline's history. */
static void check_attention_row(const attention_case *c, const float *y, const double *q, const double *k,
                                const double *v, uint32_t t)
{
    uint32_t group = c->n_heads / c->n_strips, kv_width = c->n_strips * c->head_dim;
    double *p = malloc((t + 1) * sizeof *p);
    assert_non_null(p);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        const double *qh = q + (size_t)h * c->head_dim;
        size_t strip = (size_t)(h / group) * c->head_dim;
        double max = (double)-INFINITY, sum = 0;
        for (uint32_t j = 0; j <= t; j++) {
            p[j] = 0;
            for (uint32_t d = 0; d < c->head_dim; d++) p[j] += qh[d] * kept(k[(size_t)j * kv_width + strip + d], c->kv);
            p[j] *= 0.25;
            max = fmax(max, p[j]);
        }
        for (uint32_t j = 0; j <= t; j++) {
            p[j] = exp(p[j] - max);
            sum += p[j];
        }
        for (uint32_t d = 0; d < c->head_dim; d++) {
            double expected = 0;
            for (uint32_t j = 0; j <= t; j++) expected += p[j] * kept(v[(size_t)j * kv_width + strip + d], c->kv);
            world_close_to((double)y[h * c->head_dim + d], expected / sum, 1e-5, "attention", d);
        }
    }
    free(p);
}

/* A prompt in one step, then single rows: at the end of a tile, over several tiles. */
static void check_attention(const attention_case *c, uint32_t setting)
{
    world w = {.seed = 6};
    bt_limits limits = limits_of(c->context, c->context, 2, c->kv);
    uint32_t kv_width = c->n_strips * c->head_dim, n = c->context - 2, q_width = c->n_heads * c->head_dim;
    world_begin(&w, &limits);
    uint32_t ks = bt_tape_positions(w.b, c->n_strips, c->head_dim);
    uint32_t vs = bt_tape_positions(w.b, c->n_strips, c->head_dim);
    bt_act q = bt_tape_act(w.b, BT_SPACE_ROWS, q_width), y = bt_tape_act(w.b, BT_SPACE_ROWS, q_width);
    bt_act k = bt_tape_act(w.b, BT_SPACE_ROWS, kv_width), v = bt_tape_act(w.b, BT_SPACE_ROWS, kv_width);
    bt_op_store(w.b, ks, k);
    bt_op_store(w.b, vs, v);
    bt_op_attention(w.b, y, q, ks, vs, c->n_heads, c->head_dim, 0.25);
    world_finish_body(&w);
    open_setting(&w, setting);
    world_fill(&w, q, c->context);
    world_fill(&w, k, c->context);
    world_fill(&w, v, c->context);
    double *qb = world_copy(&w, q, c->context), *kb = world_copy(&w, k, c->context);
    double *vb = world_copy(&w, v, c->context);
    int32_t *ids = calloc(c->context, sizeof *ids);
    assert_non_null(ids);
    bt_segment g = {.slot = 1, .n_rows = n};
    bt_step s = {.ids = ids, .n_rows = n, .segments = &g, .n_segments = 1};
    assert_int_equal(bt_cpu_backend.run(w.plan, &s, BT_RUN_ALL, NULL), BT_OK);
    for (uint32_t t = 0; t < n; t += 1 + t / 16)
        check_attention_row(c, world_row(&w, y, t), qb + t * q_width, kb, vb, t);
    for (uint32_t t = n; t < c->context; t++) {
        memcpy(world_row(&w, q, 0), world_row(&w, q, t), q_width * sizeof(float));
        memcpy(world_row(&w, k, 0), world_row(&w, k, t), kv_width * sizeof(float));
        memcpy(world_row(&w, v, 0), world_row(&w, v, t), kv_width * sizeof(float));
        g = (bt_segment){.slot = 1, .n_rows = 1, .position = t};
        s.n_rows = 1;
        assert_int_equal(bt_cpu_backend.run(w.plan, &s, BT_RUN_ALL, NULL), BT_OK);
        check_attention_row(c, world_row(&w, y, 0), qb + (size_t)t * q_width, kb, vb, t);
    }
    free(qb);
    free(kb);
    free(vb);
    free(ids);
    world_close(&w);
}

static void attention_is_causal_softmax(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        {4, 2, 20, 300, BT_F32}, {4, 2, 20, 130, BT_BF16}, {3, 3, 16, 129, BT_F16},
        {8, 1, 6, 400, BT_F32},  {70, 1, 4, 140, BT_F32}, /* more heads in a group than one tile takes */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t setting = 0; setting < N_SETTINGS; setting++) check_attention(&cases[i], setting);
}

/* ---- experts ------------------------------------------------------------------------------------------------------
 */

#define MOE_ROWS    21u
#define MOE_EXPERTS 9u
#define MOE_K       3u
#define MOE_X       75u
#define MOE_WIDTH   83u

typedef struct moe {
    world w;
    uint32_t gate, bias;
    bt_act logits, x, y, v, shared, h;
    bt_routes routes;
} moe;

static void moe_open(moe *m, bt_dtype d)
{
    world *w = &m->w;
    w->seed = 7;
    m->bias = world_vector(w, MOE_EXPERTS, BT_F32);
    m->gate = w->n_views; /* gate, up, down, values of each expert: a stride of four */
    for (uint32_t e = 0; e < MOE_EXPERTS; e++) {
        world_linear(w, MOE_WIDTH, MOE_X, d);
        world_linear(w, MOE_WIDTH, MOE_X, d);
        world_linear(w, MOE_X, MOE_WIDTH, d);
        world_linear(w, MOE_WIDTH, MOE_X, d);
    }
    bt_limits limits = limits_of(MOE_ROWS, 64, 1, BT_F32);
    world_begin(w, &limits);
    m->logits = bt_tape_act(w->b, BT_SPACE_ROWS, MOE_EXPERTS);
    m->x = bt_tape_act(w->b, BT_SPACE_ROWS, MOE_X);
    m->y = bt_tape_act(w->b, BT_SPACE_ROWS, MOE_X);
    m->v = bt_tape_act(w->b, BT_SPACE_ROWS, MOE_WIDTH);
    m->shared = bt_tape_act(w->b, BT_SPACE_ROWS, MOE_X);
    m->h = bt_tape_act(w->b, BT_SPACE_ROWS, MOE_K * MOE_WIDTH);
    m->routes = bt_tape_routes(w->b, MOE_K);
    bt_route_spec spec = {.bias = m->bias, .score = 1, .renormalise = true, .scale = 2.5, .force = -1};
    bt_op_route(w->b, m->routes, m->logits, &spec);
    bt_op_moe_up_gate(w->b, m->h, m->x, m->routes, m->gate, m->gate + 1, 4, MOE_EXPERTS, 1);
    bt_op_moe_values(w->b, m->v, m->x, m->routes, m->gate + 3, 4, MOE_EXPERTS, 1);
    bt_op_moe_down_sum(w->b, m->y, m->h, m->routes, m->gate + 2, 4, MOE_EXPERTS, &m->shared);
    world_finish_body(w);
}

/* The ids must be the best by score + bias, in descending order; the weights the plain scores, normalised, times 2.5.
 */
static void check_routes(const moe *m, uint32_t row)
{
    const float *logits = world_row(&m->w, m->logits, row);
    double score[MOE_EXPERTS], sum = 0, previous = (double)INFINITY;
    bool taken[MOE_EXPERTS] = {false};
    for (uint32_t e = 0; e < MOE_EXPERTS; e++) score[e] = world_act((double)logits[e], 0);
    for (uint32_t s = 0; s < MOE_K; s++) {
        int32_t id = world_row_i32(&m->w, m->routes.ids, row)[s];
        double rank = score[id] + world_weight(&m->w, m->bias, 0, (uint32_t)id);
        assert_true(!taken[id] && rank <= previous);
        taken[id] = true;
        previous = rank;
        sum += score[id];
    }
    for (uint32_t e = 0; e < MOE_EXPERTS; e++)
        if (!taken[e]) assert_true(score[e] + world_weight(&m->w, m->bias, 0, e) <= previous);
    for (uint32_t s = 0; s < MOE_K; s++) {
        int32_t id = world_row_i32(&m->w, m->routes.ids, row)[s];
        world_close_to((double)world_row(&m->w, m->routes.weights, row)[s], score[id] / sum * 2.5, 1e-5, "route", s);
    }
}

static void check_experts(const moe *m, uint32_t row, const double *x, const double *before, const double *shared)
{
    double y[MOE_X] = {0}, v[MOE_WIDTH] = {0}, h[MOE_WIDTH];
    for (uint32_t s = 0; s < MOE_K; s++) {
        uint32_t e = m->gate + 4 * (uint32_t)world_row_i32(&m->w, m->routes.ids, row)[s];
        double weight = (double)world_row(&m->w, m->routes.weights, row)[s];
        for (uint32_t r = 0; r < MOE_WIDTH; r++) {
            h[r] = world_act(world_product(&m->w, e, r, x), 1) * world_product(&m->w, e + 1, r, x);
            v[r] += weight * world_act(world_product(&m->w, e + 3, r, x), 1);
            world_close_to((double)world_row(&m->w, m->h, row)[s * MOE_WIDTH + r], h[r], 3e-5, "moe_up_gate", r);
        }
        for (uint32_t r = 0; r < MOE_X; r++) y[r] += weight * world_product(&m->w, e + 2, r, h);
    }
    for (uint32_t r = 0; r < MOE_X; r++)
        world_close_to((double)world_row(&m->w, m->y, row)[r], before[r] + y[r] + shared[r], 5e-5, "moe_down_sum", r);
    for (uint32_t r = 0; r < MOE_WIDTH; r++)
        world_close_to((double)world_row(&m->w, m->v, row)[r], v[r], 5e-5, "moe_values", r);
}

static void experts_are_routed_and_summed(void **state)
{
    (void)state;
    static const uint32_t n_rows[N_SETTINGS] = {1, 1, MOE_ROWS, MOE_ROWS};
    for (bt_dtype d = BT_F32; d <= BT_F8_E4M3; d++) {
        moe m = {.gate = 0};
        moe_open(&m, d);
        for (uint32_t i = 0; i < N_SETTINGS; i++) {
            open_setting(&m.w, i);
            world_fill(&m.w, m.logits, MOE_ROWS);
            world_fill(&m.w, m.x, MOE_ROWS);
            world_fill(&m.w, m.y, MOE_ROWS);
            world_fill(&m.w, m.shared, MOE_ROWS);
            double *x = world_copy(&m.w, m.x, MOE_ROWS), *y = world_copy(&m.w, m.y, MOE_ROWS);
            double *shared = world_copy(&m.w, m.shared, MOE_ROWS);
            world_run(&m.w, n_rows[i]);
            for (uint32_t row = 0; row < n_rows[i]; row++) {
                check_routes(&m, row);
                check_experts(&m, row, x + row * MOE_X, y + row * MOE_X, shared + row * MOE_X);
            }
            free(x);
            free(y);
            free(shared);
        }
        world_close(&m.w);
    }
}

/* The sum is ((w0 d0 + w1 d1) + shared), then added to y: values that show any other order by cancellation. */
static void experts_are_summed_in_order_of_selection(void **state)
{
    (void)state;
    world w = {.seed = 8};
    float *down = world_blob(&w, 3 * sizeof *down);
    down[0] = 1, down[1] = -1, down[2] = 0x1p-24f;
    for (uint32_t e = 0; e < 3; e++)
        w.views[w.n_views++] = (bt_view){.data = down + e, .n_rows = 1, .n_cols = 1, .dtype = BT_F32};
    bt_limits limits = limits_of(2, 4, 1, BT_F32);
    world_begin(&w, &limits);
    bt_routes routes = bt_tape_routes(w.b, 3);
    bt_act h = bt_tape_act(w.b, BT_SPACE_ROWS, 3), y = bt_tape_act(w.b, BT_SPACE_ROWS, 1);
    bt_act shared = bt_tape_act(w.b, BT_SPACE_ROWS, 1);
    bt_op_moe_down_sum(w.b, y, h, routes, 0, 1, 3, &shared);
    world_finish_body(&w);
    world_open_plan(&w, bt_cpu_detect(), 2);
    static const int32_t order[2][3] = {{0, 1, 2}, {2, 0, 1}};
    for (uint32_t row = 0; row < 2; row++) {
        for (uint32_t s = 0; s < 3; s++) {
            world_row_i32(&w, routes.ids, row)[s] = order[row][s];
            world_row(&w, routes.weights, row)[s] = 1;
            world_row(&w, h, row)[s] = 1;
        }
        world_row(&w, shared, row)[0] = 1;
        world_row(&w, y, row)[0] = -1;
    }
    world_run(&w, 2);
    /* (1 - 1) + 2^-24 is kept, and lost only against shared's 1 (ties to even); with y first it would come back. */
    assert_true(world_row(&w, y, 0)[0] == 0);
    assert_true(world_row(&w, y, 1)[0] == 0);
    for (uint32_t row = 0; row < 2; row++) {
        world_row(&w, shared, row)[0] = 0x1p-24f;
        world_row(&w, y, row)[0] = 0;
    }
    world_run(&w, 2);
    /* ((1 - 1) + 2^-24) + 2^-24, and ((2^-24 + 1) - 1) + 2^-24; with shared first the two would change places. */
    assert_true(world_row(&w, y, 0)[0] == 0x1p-23f);
    assert_true(world_row(&w, y, 1)[0] == 0x1p-24f);
    world_close(&w);
}

/* ---- head ---------------------------------------------------------------------------------------------------------
 */

static void head_runs_in_slices(void **state)
{
    (void)state;
    world w = {.seed = 9};
    uint32_t table = world_linear(&w, 50, 33, BT_F32), head = world_linear(&w, 50, 33, BT_BF16);
    bt_limits limits = limits_of(9, 16, 1, BT_F32);
    world_begin(&w, &limits);
    bt_act x = bt_tape_act(w.b, BT_SPACE_ROWS, 33);
    bt_op_embed(w.b, x, table);
    bt_tape_head(w.b);
    bt_act z = bt_tape_act(w.b, BT_SPACE_LOGITS, 33), logits = bt_tape_act(w.b, BT_SPACE_LOGITS, 50);
    bt_op_select_rows(w.b, z, x);
    bt_op_linear(w.b, logits, z, head);
    world_finish(&w, logits);
    world_open_plan(&w, bt_cpu_detect(), 2);
    static const int32_t ids[9] = {3, 1, 4, 1, 5, 9, 2, 6, 49};
    static const uint32_t slices[2][4] = {{8, 0, 5, 5}, {1, 2, 3, 4}};
    bt_segment g = {.n_rows = 9};
    bt_step s = {.ids = ids, .n_rows = 9, .segments = &g, .n_segments = 1, .logit_rows = slices[0], .n_logit_rows = 4};
    for (uint32_t slice = 0; slice < 2; slice++) {
        s.logit_rows = slices[slice];
        bt_run_part part = slice == 0 ? BT_RUN_ALL : BT_RUN_HEAD;
        assert_int_equal(bt_cpu_backend.run(w.plan, &s, part, NULL), BT_OK);
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t r = 0; r < 50; r++) {
                double sum = 0;
                for (uint32_t c = 0; c < 33; c++)
                    sum += world_weight(&w, head, r, c) * world_weight(&w, table, (uint32_t)ids[slices[slice][i]], c);
                world_close_to((double)bt_cpu_backend.logits(w.plan, i)[r], sum, 1e-5, "logits", r);
            }
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed_reads_every_dtype),       cmocka_unit_test(rms_norm_works_by_group_and_in_place),
        cmocka_unit_test(linear_multiplies_every_dtype), cmocka_unit_test(rope_turns_pairs_by_position),
        cmocka_unit_test(activations_at_every_width),    cmocka_unit_test(attention_is_causal_softmax),
        cmocka_unit_test(experts_are_routed_and_summed), cmocka_unit_test(experts_are_summed_in_order_of_selection),
        cmocka_unit_test(head_runs_in_slices),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
