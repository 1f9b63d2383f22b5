/*
 * The tape's builder: places activations in scratch and states in a slot, finds where ops must wait, hands out the
 * finished tape. Every activation has a place of its own: scratch is small beside weights and KV, and a family that
 * wants to reuse a place names the same activation again. Sizes are checked 64-bit products: one that does not fit is
 * reported by finish as memory that no machine has. What an op may look like is in ops.c.
 */
#include "tape/builder.h"

#include <assert.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"

#define WORD_ALIGN  16u /* words: rows of activations start on a cache line */
#define STATE_ALIGN 64u /* bytes */

bt_status bt_tape_begin(const bt_limits *limits, const bt_view *weights, size_t n_weights, bt_tape_builder **out,
                        bt_error *e)
{
    assert(limits->max_rows > 0);
    assert(limits->max_logit_rows > 0);
    assert(limits->context > 0);
    assert(limits->n_slots > 0);
    assert(limits->kv_dtype == BT_F32 || limits->kv_dtype == BT_BF16 || limits->kv_dtype == BT_F16);
    assert(n_weights < BT_NONE);
    bt_tape_builder *b = bt_calloc(1, sizeof *b);
    if (b == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for the tape's builder (%zu bytes)", sizeof *b);
    b->tape.limits = *limits;
    b->tape.weights = weights;
    b->tape.n_weights = (uint32_t)n_weights;
    b->layer = -1;
    *out = b;
    return BT_OK;
}

void bt_tape_classes(bt_tape_builder *b, const uint8_t *classes)
{
    for (uint32_t i = 0; i < b->tape.n_weights; i++) assert(classes[i] < BT_N_CLASSES);
    b->tape.classes = classes;
}

static void free_tables(bt_table *tables, size_t n)
{
    for (size_t i = 0; i < n; i++) bt_free((void *)(uintptr_t)tables[i].values);
    bt_free(tables);
}

void bt_tape_abandon(bt_tape_builder *b)
{
    if (b == NULL) return;
    free_tables(b->tables, b->tape.n_tables);
    bt_free(b->ops);
    bt_free(b->states);
    bt_free(b);
}

bt_status bt_tape_finish(bt_tape_builder *b, bt_act logits, bt_tape **out, bt_error *e)
{
    bt_tape *t = b->failed ? NULL : bt_calloc(1, sizeof *t);
    if (t == NULL) {
        bt_limits l = b->tape.limits;
        bt_tape_abandon(b);
        return bt_fail(e, BT_ERR_MEMORY,
                       "no memory for a tape of %u rows in a step, %u positions of context and %u timelines",
                       l.max_rows, l.context, l.n_slots);
    }
    assert(b->has_head);
    assert(logits.space == BT_SPACE_LOGITS);
    assert(logits.dtype == BT_F32);
    *t = b->tape;
    t->ops = b->ops;
    t->states = b->states;
    t->tables = b->tables;
    t->logits = logits;
    bt_free(b);
    *out = t;
    return BT_OK;
}

void bt_tape_free(bt_tape *t)
{
    if (t == NULL) return;
    free_tables((bt_table *)(uintptr_t)t->tables, t->n_tables);
    bt_free((void *)(uintptr_t)t->ops);
    bt_free((void *)(uintptr_t)t->states);
    bt_free(t);
}

/* Room for one more of `size` bytes in *items; false (and remembered) if there is none. */
static bool grow(bt_tape_builder *b, void **items, size_t *capacity, size_t n, size_t size)
{
    if (b->failed) return false;
    if (n < *capacity) return true;
    size_t wanted = *capacity == 0 ? 32 : *capacity * 2;
    void *p = n < INT32_MAX ? bt_realloc(*items, wanted, size) : NULL;
    if (p == NULL) {
        b->failed = true;
        return false;
    }
    *items = p;
    *capacity = wanted;
    return true;
}

/* a * b and a + b that remember when they do not fit. */
static uint64_t times(bt_tape_builder *b, uint64_t x, uint64_t y)
{
    if (x != 0 && y > UINT64_MAX / x) {
        b->failed = true;
        return 0;
    }
    return x * y;
}

static uint64_t plus(bt_tape_builder *b, uint64_t x, uint64_t y)
{
    if (y > UINT64_MAX - x) {
        b->failed = true;
        return 0;
    }
    return x + y;
}

static uint64_t round_up(bt_tape_builder *b, uint64_t x, uint64_t multiple)
{
    return plus(b, x, multiple - 1) / multiple * multiple;
}

/* ---- activations and states ---------------------------------------------------------------------------------------
 */

static uint32_t space_rows(const bt_tape_builder *b, uint8_t space)
{
    return space == BT_SPACE_LOGITS ? b->tape.limits.max_logit_rows : b->tape.limits.max_rows;
}

static bt_act place(bt_tape_builder *b, bt_space space, size_t width, bt_dtype dtype)
{
    assert(width > 0);
    uint64_t stride = round_up(b, width, WORD_ALIGN);
    if (stride > UINT32_MAX) b->failed = true;
    bt_act a = {
        .offset = b->tape.scratch_words,
        .stride = (uint32_t)stride,
        .width = (uint32_t)width,
        .space = (uint8_t)space,
        .dtype = (uint8_t)dtype,
    };
    uint64_t end = plus(b, a.offset, times(b, stride, space_rows(b, a.space)));
    /* In bytes scratch must be an object that C can have. */
    if (end > PTRDIFF_MAX / sizeof(float)) b->failed = true;
    if (!b->failed) b->tape.scratch_words = end;
    return a;
}

bt_act bt_tape_act(bt_tape_builder *b, bt_space space, size_t width)
{
    return place(b, space, width, BT_F32);
}

bt_routes bt_tape_routes(bt_tape_builder *b, size_t k)
{
    bt_act ids = place(b, BT_SPACE_ROWS, k, BT_I32);
    return (bt_routes){.ids = ids, .weights = place(b, BT_SPACE_ROWS, k, BT_F32)};
}

bt_act bt_tape_part(bt_act a, size_t begin, size_t width)
{
    assert(begin % WORD_ALIGN == 0);
    assert(width > 0);
    assert(begin < a.width && width <= a.width - begin);
    a.offset += begin;
    a.width = (uint32_t)width;
    return a;
}

/* A state whose strips have n_rows rows of `width` elements. */
static uint32_t place_state(bt_tape_builder *b, size_t n_strips, size_t width, size_t n_rows, bt_dtype dtype,
                            bool per_position)
{
    assert(n_strips > 0);
    assert(width > 0);
    uint64_t element = bt_dtype_bits(dtype) / 8;
    uint64_t strip = round_up(b, times(b, times(b, n_rows, width), element), STATE_ALIGN);
    uint64_t end = plus(b, b->tape.slot_bytes, times(b, strip, n_strips));
    if (n_strips > UINT32_MAX || width > UINT32_MAX) b->failed = true;
    uint64_t all = times(b, end, b->tape.limits.n_slots);
    if (all > PTRDIFF_MAX) b->failed = true;
    if (!grow(b, (void **)&b->states, &b->states_capacity, b->tape.n_states, sizeof *b->states)) return 0;
    b->states[b->tape.n_states] = (bt_state){
        .offset = b->tape.slot_bytes,
        .strip_bytes = strip,
        .n_strips = (uint32_t)n_strips,
        .width = (uint32_t)width,
        .dtype = (uint8_t)dtype,
        .per_position = per_position,
    };
    b->tape.slot_bytes = end;
    return b->tape.n_states++;
}

uint32_t bt_tape_positions(bt_tape_builder *b, size_t n_strips, size_t width)
{
    return place_state(b, n_strips, width, b->tape.limits.context, b->tape.limits.kv_dtype, true);
}

uint32_t bt_tape_fixed(bt_tape_builder *b, size_t n_strips, size_t width)
{
    return place_state(b, n_strips, width, 1, BT_F32, false);
}

uint32_t bt_tape_constants(bt_tape_builder *b, const double *values, size_t n)
{
    assert(n > 0);
    assert(n <= UINT32_MAX);
    if (!grow(b, (void **)&b->tables, &b->tables_capacity, b->tape.n_tables, sizeof *b->tables)) return 0;
    double *copy = bt_malloc(n, sizeof *copy);
    if (copy == NULL) {
        b->failed = true;
        return 0;
    }
    memcpy(copy, values, n * sizeof *copy);
    b->tables[b->tape.n_tables] = (bt_table){.values = copy, .n = (uint32_t)n};
    return b->tape.n_tables++;
}

void bt_tape_layer(bt_tape_builder *b, int layer)
{
    assert(layer >= -1);
    assert(layer <= INT16_MAX);
    b->layer = (int16_t)layer;
}

void bt_tape_head(bt_tape_builder *b)
{
    assert(!b->has_head);
    b->has_head = true;
    b->barrier_next = true; /* the head may also run alone, again and again */
    b->tape.head_begin = b->tape.n_ops;
}

/* ---- hazards ------------------------------------------------------------------------------------------------------
 */

static bt_area act_area(const bt_tape_builder *b, bt_act a)
{
    uint64_t rows = space_rows(b, a.space);
    return (bt_area){
        .begin = a.offset, .end = a.offset + (rows - 1) * a.stride + a.width, .stride = a.stride, .width = a.width};
}

/* Rows with the same stride share a word only if their columns do: two parts of one activation. */
static bool areas_overlap(const bt_area *x, const bt_area *y)
{
    if (x->is_state != y->is_state || x->begin >= y->end || y->begin >= x->end) return false;
    if (x->is_state || x->stride != y->stride) return true;
    const bt_area *first = x->begin <= y->begin ? x : y, *other = first == x ? y : x;
    uint64_t column = (other->begin - first->begin) % first->stride;
    return column < first->width || column + other->width > first->stride;
}

bool bt_acts_overlap(const bt_tape_builder *b, bt_act x, bt_act y)
{
    bt_area ax = act_area(b, x), ay = act_area(b, y);
    return !b->failed && areas_overlap(&ax, &ay);
}

static void touch(bt_tape_builder *b, bt_area area)
{
    assert(b->n_touched < BT_OP_AREAS_MAX);
    b->touched[b->n_touched++] = area;
}

void bt_tape_reads(bt_tape_builder *b, bt_act a)
{
    touch(b, act_area(b, a));
}

void bt_tape_writes(bt_tape_builder *b, bt_act a)
{
    bt_area area = act_area(b, a);
    area.is_written = true;
    touch(b, area);
}

static void touch_state(bt_tape_builder *b, uint32_t state, bool is_written)
{
    if (b->failed) return;
    assert(state < b->tape.n_states);
    const bt_state *s = &b->states[state];
    touch(b, (bt_area){.begin = s->offset,
                       .end = s->offset + s->strip_bytes * s->n_strips,
                       .is_state = true,
                       .is_written = is_written});
}

void bt_tape_reads_state(bt_tape_builder *b, uint32_t state)
{
    touch_state(b, state, false);
}

void bt_tape_writes_state(bt_tape_builder *b, uint32_t state)
{
    touch_state(b, state, true);
}

static bool must_wait(const bt_tape_builder *b)
{
    if (b->n_touched > BT_OPEN_AREAS_MAX - b->n_open) return true;
    for (size_t i = 0; i < b->n_touched; i++)
        for (size_t j = 0; j < b->n_open; j++) {
            bool conflict = b->touched[i].is_written || b->open[j].is_written;
            if (conflict && areas_overlap(&b->touched[i], &b->open[j])) return true;
        }
    return false;
}

void bt_tape_append(bt_tape_builder *b, const bt_op *op)
{
    bool wait = b->barrier_next || must_wait(b);
    if (wait) b->n_open = 0;
    memcpy(b->open + b->n_open, b->touched, b->n_touched * sizeof *b->touched);
    b->n_open += b->n_touched;
    b->n_touched = 0;
    b->barrier_next = false;
    if (!grow(b, (void **)&b->ops, &b->ops_capacity, b->tape.n_ops, sizeof *b->ops)) return;
    bt_op *placed = &b->ops[b->tape.n_ops++];
    *placed = *op;
    placed->barrier = wait;
    placed->layer = b->layer;
}
