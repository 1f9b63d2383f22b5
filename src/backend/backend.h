/*
 * The backend seam: where a tape runs. A backend owns its threads or device; a plan is a tape made ready on it, with
 * the scratch and the slots that the tape's limits ask for. Steps allocate nothing.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/machine.h"
#include "tape/tape.h"

typedef struct bt_backend bt_backend; /* each backend embeds this first */
typedef struct bt_plan bt_plan;

typedef struct bt_backend_options {
    size_t n_threads;       /* >= 1 */
    bt_cpu_level cpu_level; /* the highest to use */
} bt_backend_options;

typedef enum bt_run_part {
    BT_RUN_ALL,  /* the body, then the head for step->logit_rows if there are any */
    BT_RUN_HEAD, /* the head alone, for other rows of the step run last */
} bt_run_part;

/* Bytes handed to kernels since the plan was opened: of weights by class, of keys and values, and of fixed states, read
 * and written; and operations of products, attention and recurrence, two for each multiply-add. What a step reads and
 * does is the difference of two readings. */
typedef struct bt_traffic {
    uint64_t weights[BT_N_CLASSES];
    uint64_t kv;
    uint64_t state;
    uint64_t flops;
} bt_traffic;

typedef struct bt_backend_vtable {
    const char *name; /* "cpu" */
    bt_status (*open)(const bt_backend_options *o, bt_backend **out, bt_error *e);
    void (*close)(bt_backend *be);
    const char *(*level)(const bt_backend *be); /* borrowed; the CPU level or device in use */

    /* Private bytes that plan_open would take for this tape, beside states: computed, nothing is allocated. */
    uint64_t (*plan_scratch_bytes)(const bt_backend_options *o, const bt_tape *t);
    uint64_t (*plan_weight_bytes)(const bt_backend_options *o, const bt_tape *t); /* repacked or widened copies */

    /* The tape (and its weights' mapping) must outlive the plan. States start as zeros. */
    bt_status (*plan_open)(bt_backend *be, const bt_tape *t, bt_plan **out, bt_error *e);
    void (*plan_close)(bt_plan *p);

    bt_status (*run)(bt_plan *p, const bt_step *s, bt_run_part part, bt_error *e);
    /* Logits [n_vocab] of entry i of the logit_rows run last; borrowed until the next run. */
    const float *(*logits)(const bt_plan *p, uint32_t i);
    void (*traffic)(const bt_plan *p, bt_traffic *out); /* between runs */

    /* Bytes of a slot's states. */
    bt_status (*state_read)(const bt_plan *p, uint32_t slot, uint64_t offset, void *to, size_t size, bt_error *e);
    bt_status (*state_write)(bt_plan *p, uint32_t slot, uint64_t offset, const void *from, size_t size, bt_error *e);
    /* What a new timeline reads before it writes: fixed states. Positions need no clearing, none is seen unstored. */
    bt_status (*state_zero)(bt_plan *p, uint32_t slot, bt_error *e);
} bt_backend_vtable;

struct bt_backend {
    const bt_backend_vtable *vtable;
};
struct bt_plan {
    const bt_backend_vtable *vtable;
    const bt_tape *tape;
};

/* NULL-terminated; and the one of a --device name. A known name that this build lacks is refused saying what it has. */
const bt_backend_vtable *const *bt_backends(void);
bt_status bt_backend_find(const char *device, const bt_backend_vtable **out, bt_error *e);

#endif
