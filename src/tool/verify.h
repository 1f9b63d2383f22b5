/*
 * Stored logits against the model's: the proof that the answer is right. An expected file holds pairs of tensors,
 * ids.N I64 [n] and logits.N F32 [m, vocab], the logits of the last m <= n positions; N is any label.
 */
#ifndef TOOL_VERIFY_H
#define TOOL_VERIFY_H

#include "base/json.h"

typedef struct bt_verify_row { /* of one entry, or of all together */
    const char *label;         /* borrowed from the file; "" for all */
    size_t n_ids, n_rows;
    double difference_max;
    double difference_mean;
    double kl_mean; /* of Kullback and Leibler, expected against computed, nats, mean over rows */
    size_t n_same_top;
    size_t n_not_finite; /* values in either that are NaN or infinite: each fails */
} bt_verify_row;

typedef struct bt_verify bt_verify; /* an expected file, opened and checked */

bt_status bt_verify_open(const char *path, size_t n_vocab, bt_verify **out, bt_error *e);
void bt_verify_close(bt_verify *v);
size_t bt_verify_n_entries(const bt_verify *v);
size_t bt_verify_n_ids_max(const bt_verify *v); /* the context that the longest entry needs */

/* The mapping of the expected file, for the program's SIGBUS handler; all borrowed. */
void bt_verify_file(const bt_verify *v, const char **path, const void **data, size_t *size);

/* Runs entry i in a session rewound to its beginning. */
bt_status bt_verify_run(bt_verify *v, size_t entry_i, bt_session *s, size_t chunk, const bt_hook *hook,
                        bt_verify_row *out, bt_error *e);

void bt_verify_add(bt_verify_row *sum, const bt_verify_row *row); /* row into the line for all */
bool bt_verify_passes(const bt_verify_row *row, double tolerance);

/* A table for people, or JSON. */
void bt_verify_print(bt_text *t, const bt_verify_row *rows, size_t n, const bt_verify_row *sum, double tolerance);
void bt_verify_print_json(bt_text *t, const bt_verify_row *rows, size_t n, const bt_verify_row *sum, double tolerance);

#endif
