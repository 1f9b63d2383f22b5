/* Token ids and texts as people and programs write them: "1,2,3", "1 2 3", "[1, 2, 3]"; JSON strings and arrays. */
#ifndef TOOL_IDS_H
#define TOOL_IDS_H

#include "base/json.h"

/* Numbers separated by commas or white space, or one JSON array of them; each in [0, 2^31). *ids: bt_free by the
 * caller; *n may be 0. Messages count the ids from 0. */
bt_status bt_ids_parse(const char *text, size_t size, int32_t **ids, size_t *n, bt_error *e);
/* The same, but a JSON array and nothing else. */
bt_status bt_ids_parse_json(const char *text, size_t size, int32_t **ids, size_t *n, bt_error *e);

/* Each below n_vocab, and at least one. */
bt_status bt_ids_check(const int32_t *ids, size_t n, size_t n_vocab, bt_error *e);

void bt_ids_print(bt_text *t, const int32_t *ids, size_t n);      /* 1,2,3 */
void bt_ids_print_json(bt_text *t, const int32_t *ids, size_t n); /* [1, 2, 3] */

/* One JSON string and nothing else. *text [*size]: bt_free by the caller. */
bt_status bt_string_parse_json(const char *line, size_t line_size, char **text, size_t *size, bt_error *e);

#endif
