/* Logits of given ids into a safetensors file, row by row: memory does not grow with the number of ids. */
#ifndef TOOL_LOGITS_H
#define TOOL_LOGITS_H

#include "baltoro.h"

/* Scores ids in calls of `chunk` (0: one call); the sink sees rows counted from the first id. */
bt_status bt_score_in_chunks(bt_session *s, const int32_t *ids, size_t n, size_t chunk, bt_logits_fn sink, void *user,
                             const bt_hook *hook, bt_error *e);

/* Writes tensor `logits` [n, n_vocab] F32 to `path`, which appears when it is complete. *n_odd: values that are not
 * finite. */
bt_status bt_logits_write(bt_session *s, size_t n_vocab, const int32_t *ids, size_t n, size_t chunk, const char *path,
                          const bt_hook *hook, size_t *n_odd, bt_error *e);

#endif
