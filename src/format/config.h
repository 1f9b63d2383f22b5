/*
 * config.json and generation_config.json: getters that never guess. A getter says whether it found the key; a wrong
 * type or a number out of range is an error that names file and key.
 */
#ifndef FORMAT_CONFIG_H
#define FORMAT_CONFIG_H

#include "base/json.h"

typedef struct bt_config bt_config; /* one JSON object with its file's name for messages */

bt_status bt_config_open(const char *path, bt_config **out, bt_error *e);
bt_status bt_config_parse(const char *file, const char *text, size_t size, bt_config **out, bt_error *e);
void bt_config_close(bt_config *c);
const char *bt_config_file(const bt_config *c);
const bt_json_node *bt_config_root(const bt_config *c);
const char *bt_config_text(const bt_config *c, size_t *size); /* the file as it was read; borrowed */

/* `object` is the root or a member of it (rope_parameters); `where` names it in messages ("rope_parameters"), NULL for
 * the root. Absent and null give *found = false and leave *v alone; a value of another type fails. found may be NULL:
 * then absent fails ("config.json: hidden_size is missing"). */
typedef struct bt_scope {
    const bt_config *config;
    const bt_json_node *object;
    const char *where;
} bt_scope;
bt_status bt_get_u64(bt_scope s, const char *key, uint64_t min, uint64_t max, uint64_t *v, bool *found, bt_error *e);
bt_status bt_get_f64(bt_scope s, const char *key, double *v, bool *found, bt_error *e);
bt_status bt_get_bool(bt_scope s, const char *key, bool *v, bool *found, bt_error *e);
bt_status bt_get_string(bt_scope s, const char *key, const char **v, bool *found, bt_error *e); /* borrowed */
/* A number or an array of numbers, each in [0, 2^31): ids to v [n_max]; *n 0 when absent or null. */
bt_status bt_get_ids(bt_scope s, const char *key, int32_t *v, size_t n_max, size_t *n, bt_error *e);
/* The object member; absent or null gives an object of NULL. */
bt_status bt_get_scope(bt_scope s, const char *key, bt_scope *out, bt_error *e);

#endif
