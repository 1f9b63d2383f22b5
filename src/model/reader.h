/*
 * Reading a family's config: getters that remember the first fault, so that a family reads like a list of its keys, and
 * that note which keys were absent and took the family's documented default.
 */
#ifndef MODEL_READER_H
#define MODEL_READER_H

#include "model/model.h"

#define BT_LAYERS_MAX   1024u
#define BT_WIDTH_MAX    (1u << 20)
#define BT_HEADS_MAX    65536u
#define BT_EXPERTS_MAX  65536u
#define BT_VOCAB_MAX    (1u << 24)
#define BT_HEAD_DIM_MAX 1024u /* what attention kernels hold */

/* Numbers that float32 keeps, with room to divide by them. */
#define BT_NUMBER_MIN 1e-30
#define BT_NUMBER_MAX 1e30

typedef struct bt_defaults {
    const char *keys[32];
    size_t n;
} bt_defaults;

typedef struct bt_reader {
    bt_scope scope; /* the object whose members are read */
    bt_defaults *defaults;
    bt_status st; /* the first fault; later reads do nothing */
    bt_error *e;
} bt_reader;

size_t bt_read_need(bt_reader *r, const char *key, uint64_t max); /* in [1, max], or a fault */
size_t bt_read_count(bt_reader *r, const char *key, uint64_t fallback, uint64_t min, uint64_t max);
bool bt_read_flag(bt_reader *r, const char *key, bool fallback);
double bt_read_number(bt_reader *r, const char *key, double fallback);           /* BT_NUMBER_MIN to BT_NUMBER_MAX */
const char *bt_read_string(bt_reader *r, const char *key, const char *fallback); /* NULL: null says that too */
/* A fault if the condition holds: "FILE: KEY WHY". */
void bt_read_refuse(bt_reader *r, bool bad, const char *key, const char *why);
/* A number that, where it is given, must be the one that changes nothing. */
void bt_read_must_be(bt_reader *r, const char *key, double neutral, const char *why);
void bt_read_note_default(bt_reader *r, const char *key, bool found);
bool bt_read_is_said(const bt_reader *r, const char *key); /* the key is there, be it null */

/* One line for `info`, marked as a default if the key was absent. */
void bt_fact(bt_fact_fn fn, void *user, const bt_defaults *d, const char *key, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same with another value for programs, in JSON: "null" where the line says "none: no limit". */
void bt_fact_as(bt_fact_fn fn, void *user, const bt_defaults *d, const char *key, const char *json, const char *format,
                ...) __attribute__((format(printf, 6, 7)));

/* A number with all digits that count: models that differ must not look the same. */
typedef struct bt_exact {
    char text[40];
} bt_exact;
bt_exact bt_exactly(double v);

#endif
