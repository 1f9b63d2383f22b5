/* The engine's inside, for sessions and tools. See baltoro.h for what an engine is. */
#ifndef SESSION_ENGINE_H
#define SESSION_ENGINE_H

#include "backend/backend.h"
#include "model/model.h"

struct bt_engine {
    const bt_model *model;
    const bt_backend_vtable *vtable;
    bt_backend *backend;
    bt_tape *tape;
    bt_plan *plan;
    bt_memory_plan memory;
    bt_session **slots; /* [n_slots]: the session in each, NULL: free */
    /* Copies of recurrent states (kept.h); none in families without. */
    uint8_t *kept; /* [n_slots][n_kept_max][kept_copy_bytes] */
    uint64_t kept_copy_bytes;
    uint32_t n_kept_max;
    /* The step block, filled for each step; allocated once. */
    int32_t *ids;         /* [batch] */
    bt_segment *segments; /* [n_slots] */
    uint32_t *logit_rows; /* [batch] */
};

/* Bytes that steps have handed to kernels since the engine was opened. */
void bt_engine_traffic(const bt_engine *g, bt_traffic *out);

#endif
