/* What the system says about this process and this machine, for bench. */
#ifndef TOOL_BENCH_MACHINE_H
#define TOOL_BENCH_MACHINE_H

#include "tool/bench.h"

void bt_bench_look_around(bt_bench_conditions *c); /* all but load_end */
void bt_bench_load_average(double load[3]);
bt_bench_memory bt_bench_memory_now(void);

/* Asks the system to forget a model's files (folder, or one file); best effort. */
void bt_bench_forget_files(const char *path);
/* The part of them that the page cache holds, 0 .. 1. */
double bt_bench_cached(const char *path);

#endif
