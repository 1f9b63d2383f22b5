/*
 * The machine's limits, measured beside what a model reaches: how fast memory can be read, from the model's own mapping
 * and from huge pages; how fast registers multiply at one CPU level; how long a cache line takes between two cores. On
 * shared machines all three change every few minutes, so a fraction means something only beside the limit of its
 * moment.
 */
#ifndef TOOL_ROOF_H
#define TOOL_ROOF_H

#include "base/machine.h"

typedef struct bt_roof bt_roof; /* threads and loops */

typedef enum bt_roof_source { BT_ROOF_MAPPING, BT_ROOF_HUGE_PAGES, BT_ROOF_N_SOURCES } bt_roof_source;
#define BT_ROOF_N_STREAMS 3u /* 1, 2 and 4 side by side in each thread */

typedef struct bt_span {
    const uint8_t *data;
    size_t size;
} bt_span;

typedef struct bt_roof_sample {
    double read_gb_s[2][BT_ROOF_N_SOURCES][BT_ROOF_N_STREAMS]; /* first: one thread, all threads; 0: not measured */
    double matrix_gflop_s[2];
    double round_trip_ns; /* the median over thread 0 and each other one; 0: one thread only */
} bt_roof_sample;

bt_status bt_roof_open(size_t n_threads, bt_cpu_level level, bt_roof **out, bt_error *e);
void bt_roof_close(bt_roof *r);

/* The model's mapped files; borrowed. At most the first gigabyte is read. */
void bt_roof_set_mapping(bt_roof *r, const bt_span *spans, size_t n_spans);
/* Takes about half a second; the huge pages are given back at the end. */
void bt_roof_measure(bt_roof *r, bt_roof_sample *out);

/* The best of all sources and numbers of streams; all_threads 0 or 1. */
double bt_roof_read_best(const bt_roof_sample *s, int all_threads);
extern const char *const bt_roof_source_names[BT_ROOF_N_SOURCES];

#endif
