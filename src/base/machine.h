/*
 * What this machine and its cgroup (v1 and v2) give us. Everything under /proc and /sys is read below `root`, so that
 * tests can make up machines.
 */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

#include "baltoro.h"

typedef struct bt_machine {
    char cpu_name[128];
    size_t n_affinity;         /* CPUs that this process may run on */
    size_t n_physical;         /* distinct cores among them */
    double cpu_quota;          /* CPUs' worth of the tightest cgroup quota; 0: none */
    uint64_t memory_total;     /* bytes of the machine */
    uint64_t memory_available; /* bytes that machine and every enclosing cgroup limit can still give (page cache of the
                                  cgroup counts as available); 0: unknown, 1: none */
    uint64_t memory_limit;     /* the lowest cgroup limit; 0: none */
    size_t n_threads_default;  /* min(affinity, ceil(quota), physical), at least 1 */
} bt_machine;

void bt_machine_read(const char *root, bt_machine *m); /* root "" = the real one; never fails, unknown = 0 */

/* CPU levels, lowest first. Order is meaning: a level includes all before it. */
typedef enum bt_cpu_level {
    BT_CPU_SCALAR,
    BT_CPU_AVX2,
    BT_CPU_AVX512,
    BT_CPU_AVX512VNNI,
    BT_CPU_AMX,
    BT_CPU_N
} bt_cpu_level;
bt_cpu_level bt_cpu_detect(void); /* CPUID and XGETBV, and the kernel's permission for tiles */
const char *bt_cpu_level_name(bt_cpu_level l);
bool bt_cpu_level_parse(const char *name, bt_cpu_level *l);
void bt_cpu_relax(void); /* tells the core that this is a spinning loop */

#endif
