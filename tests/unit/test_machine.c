/* base/machine: made-up machines below a root folder, each with the limits that some real one has. */
#include "unit.h"

#include <math.h>
#include <sys/stat.h>

#include "base/machine.h"

#define GIB ((uint64_t)1 << 30)

/* Writes root/path with the text, and the folders on the way. */
static void put(const char *root, const char *path, const char *text)
{
    char full[4400];
    (void)snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(full, 0755);
        *p = '/';
    }
    unit_write_file(root, path, text, strlen(text));
}

static void put_bytes(const char *root, const char *path, uint64_t bytes)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%llu\n", (unsigned long long)bytes);
    put(root, path, text);
}

/* Eight CPUs on four cores, 64 GiB of which 48 are available. */
static char *make_machine(const char *allowed)
{
    char *root = unit_make_folder(), text[200];
    (void)snprintf(text, sizeof text, "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\nMems_allowed:\t1\n",
                   allowed);
    put(root, "proc/self/status", text);
    put(root, "proc/cpuinfo", "processor\t: 0\nvendor_id\t: V\nmodel name\t: Made Up CPU @ 3 GHz\n");
    put(root, "proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   50331648 kB\n");
    for (int i = 0; i < 8; i++) {
        char path[100];
        (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        (void)snprintf(text, sizeof text, "%d,%d\n", i % 4, i % 4 + 4);
        put(root, path, text);
    }
    return root;
}

static void drop(char *root)
{
    unit_remove_folder(root);
    free(root);
}

static void read_machine(const char *root, bt_machine *m)
{
    memset(m, 0xff, sizeof *m);
    bt_machine_read(root, m);
}

static void cpus_and_cores(void **state)
{
    (void)state;
    static const struct {
        const char *allowed;
        size_t n_affinity, n_physical;
    } cases[] = {{"0-7", 8, 4}, {"0-3", 4, 4}, {"0,4", 2, 1}, {"1,5,6", 3, 2}, {"7", 1, 1}, {"0-1,3,5-7", 6, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *root = make_machine(cases[i].allowed);
        bt_machine m;
        read_machine(root, &m);
        assert_int_equal(m.n_affinity, cases[i].n_affinity);
        assert_int_equal(m.n_physical, cases[i].n_physical);
        assert_int_equal(m.n_threads_default, cases[i].n_physical);
        assert_string_equal(m.cpu_name, "Made Up CPU @ 3 GHz");
        assert_true(m.memory_total == 64 * GIB);
        assert_true(m.memory_available == 48 * GIB);
        assert_true(m.memory_limit == 0);
        assert_true(m.cpu_quota == 0);
        drop(root);
    }
}

static void cores_by_id_where_siblings_are_unknown(void **state)
{
    (void)state;
    char *root = unit_make_folder();
    put(root, "proc/self/status", "Cpus_allowed_list:\t0-5\n");
    static const char *const ids[6] = {"0", "1", "0", "1", "0", "0"}, *const packages[6] = {"0", "0", "0",
                                                                                            "0", "1", "1"};
    for (int i = 0; i < 6; i++) {
        char path[100];
        (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/core_id", i);
        put(root, path, ids[i]);
        (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        put(root, path, packages[i]);
    }
    bt_machine m;
    read_machine(root, &m);
    assert_int_equal(m.n_affinity, 6);
    assert_int_equal(m.n_physical, 3);
    drop(root);
}

static void nothing_known(void **state)
{
    (void)state;
    char *root = unit_make_folder();
    bt_machine m;
    read_machine(root, &m); /* the affinity is the real one, all else unknown */
    assert_true(m.n_affinity >= 1);
    assert_int_equal(m.n_physical, m.n_affinity);
    assert_true(m.memory_total == 0 && m.memory_available == 0 && m.memory_limit == 0 && m.cpu_quota == 0);
    assert_string_equal(m.cpu_name, "");
    put(root, "proc/self/status", "Cpus_allowed_list:\tgarbage\n");
    put(root, "proc/meminfo", "MemTotal: many kB\nMemAvailable: 99999999999999999999 kB\n");
    put(root, "proc/self/cgroup", "garbage\n0::\n:::::\n1:memory\n");
    put(root, "proc/self/mountinfo", "garbage - cgroup2 x y\n\n - \n");
    read_machine(root, &m);
    assert_int_equal(m.n_threads_default, 1);
    assert_true(m.memory_total == 0 && m.memory_available == 0);
    drop(root);
}

static void version2_tightest_of_all_levels(void **state)
{
    (void)state;
    char *root = make_machine("0-7");
    put(root, "proc/self/cgroup", "0::/user/job/step\n");
    put(root, "proc/self/mountinfo", "31 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
    put(root, "sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    put(root, "sys/fs/cgroup/user/memory.max", "max\n");
    put(root, "sys/fs/cgroup/user/cpu.max", "350000 100000\n");
    put_bytes(root, "sys/fs/cgroup/user/job/memory.max", 10 * GIB);
    put_bytes(root, "sys/fs/cgroup/user/job/memory.current", 6 * GIB);
    put(root, "sys/fs/cgroup/user/job/memory.stat",
        "anon 1\nfile 2147483648\nshmem 0\ninactive_file 1073741824\nactive_file 1073741824\n");
    put(root, "sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    put_bytes(root, "sys/fs/cgroup/user/job/step/memory.max", 20 * GIB);
    put_bytes(root, "sys/fs/cgroup/user/job/step/memory.current", 1 * GIB);
    put(root, "sys/fs/cgroup/user/job/step/cpu.max", "800000 100000\n");
    bt_machine m;
    read_machine(root, &m);
    assert_true(m.memory_limit == 10 * GIB);
    assert_true(m.memory_available == 6 * GIB); /* 10 - (6 - 2 of page cache) */
    assert_true(fabs(m.cpu_quota - 3.5) < 1e-9);
    assert_int_equal(m.n_threads_default, 4); /* rounded up, and four cores */

    put_bytes(root, "sys/fs/cgroup/user/job/step/memory.high", 3 * GIB); /* beyond it the kernel throttles */
    read_machine(root, &m);
    assert_true(m.memory_available == 2 * GIB);
    put_bytes(root, "sys/fs/cgroup/user/job/memory.current", 30 * GIB); /* beyond the limit: nothing is left */
    read_machine(root, &m);
    assert_true(m.memory_available == 1); /* 0 would mean that nothing is known, and no plan would be refused */
    assert_true(m.memory_limit == 3 * GIB);
    put(root, "sys/fs/cgroup/user/cpu.max", "50000 100000\n");
    read_machine(root, &m);
    assert_int_equal(m.n_threads_default, 1);
    drop(root);
}

static void version2_inside_a_container(void **state)
{
    (void)state;
    char *root = make_machine("0-7");
    /* The path counts from the host's root, the mount shows the container's own group. */
    put(root, "proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
    put(root, "proc/self/mountinfo",
        "31 23 0:26 /system.slice/docker-1234.scope /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put_bytes(root, "sys/fs/cgroup/memory.max", 8 * GIB);
    put_bytes(root, "sys/fs/cgroup/memory.current", 1 * GIB);
    put(root, "sys/fs/cgroup/cpu.max", "200000 100000\n");
    bt_machine m;
    read_machine(root, &m);
    assert_true(m.memory_available == 7 * GIB);
    assert_int_equal(m.n_threads_default, 2);
    put(root, "proc/self/mountinfo", "31 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"); /* path not visible */
    read_machine(root, &m);
    assert_true(m.memory_available == 7 * GIB);
    put(root, "proc/self/cgroup", "0::/../other\n"); /* outside of the namespace's root */
    read_machine(root, &m);
    assert_true(m.memory_available == 7 * GIB);
    drop(root);
    root = make_machine("0-7"); /* no mountinfo: the usual place */
    put(root, "proc/self/cgroup", "0::/a\n");
    put_bytes(root, "sys/fs/cgroup/a/memory.max", 5 * GIB);
    read_machine(root, &m);
    assert_true(m.memory_available == 5 * GIB);
    drop(root);
}

static void version1_each_controller_its_own_path(void **state)
{
    (void)state;
    char *root = make_machine("0-7");
    put(root, "proc/self/cgroup",
        "9:name=systemd:/x\n5:cpuset:/\n4:memory:/box/one\n2:cpu,cpuacct:/quota\n0::/ignored\n");
    put(root, "proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
        "33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory\n");
    put_bytes(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712u); /* none */
    put_bytes(root, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", 4 * GIB);
    put_bytes(root, "sys/fs/cgroup/memory/box/memory.usage_in_bytes", 3 * GIB);
    put(root, "sys/fs/cgroup/memory/box/memory.stat",
        "inactive_file 5\ntotal_inactive_file 1073741824\ntotal_active_file 0\n");
    put_bytes(root, "sys/fs/cgroup/memory/box/one/memory.limit_in_bytes", 9223372036854771712u);
    put(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put(root, "sys/fs/cgroup/cpu,cpuacct/quota/cpu.cfs_quota_us", "150000\n");
    put(root, "sys/fs/cgroup/cpu,cpuacct/quota/cpu.cfs_period_us", "100000\n");
    bt_machine m;
    read_machine(root, &m);
    assert_true(m.memory_limit == 4 * GIB);
    put_bytes(root, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", 9223372036854771712u);
    read_machine(root, &m);
    assert_true(m.memory_limit == 0);
    assert_true(m.memory_available == 48 * GIB);
    put_bytes(root, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", 4 * GIB);
    read_machine(root, &m);
    assert_true(m.memory_available == 2 * GIB);
    assert_true(fabs(m.cpu_quota - 1.5) < 1e-9);
    assert_int_equal(m.n_threads_default, 2);
    drop(root);

    root = make_machine("0-7"); /* a container: the mount's root is the group, its path means nothing here */
    put(root, "proc/self/cgroup", "4:memory:/docker/77\n2:cpu:/docker/77\n");
    put_bytes(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", 2 * GIB);
    put_bytes(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", 1 * GIB);
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    read_machine(root, &m);
    assert_true(m.memory_limit == 2 * GIB);
    assert_true(m.memory_available == 1 * GIB);
    assert_int_equal(m.n_threads_default, 3);
    drop(root);
}

static void the_real_machine(void **state)
{
    (void)state;
    bt_machine m;
    read_machine("", &m);
    assert_true(m.n_affinity >= 1);
    assert_true(m.n_physical >= 1 && m.n_physical <= m.n_affinity);
    assert_true(m.n_threads_default >= 1 && m.n_threads_default <= m.n_physical);
    assert_true(m.memory_total > 0);
    assert_true(m.memory_available > 0 && m.memory_available <= m.memory_total);
}

static void cpu_levels(void **state)
{
    (void)state;
    for (unsigned i = 0; i < BT_CPU_N; i++) {
        bt_cpu_level back = BT_CPU_N;
        assert_true(bt_cpu_level_parse(bt_cpu_level_name((bt_cpu_level)i), &back));
        assert_int_equal(back, i);
    }
    bt_cpu_level level = BT_CPU_AVX2;
    assert_false(bt_cpu_level_parse("AVX2", &level));
    assert_false(bt_cpu_level_parse("", &level));
    assert_int_equal(level, BT_CPU_AVX2);
    assert_string_equal(bt_cpu_level_name(BT_CPU_N), "unknown");
    level = bt_cpu_detect();
    assert_true((unsigned)level < BT_CPU_N);
    assert_int_equal(bt_cpu_detect(), level);
    /* The kernel's list of flags is an independent witness. */
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[8192];
    while (f != NULL && fgets(line, sizeof line, f) != NULL && strncmp(line, "flags", 5) != 0) continue;
    if (f == NULL || strncmp(line, "flags", 5) != 0) skip();
    (void)fclose(f);
    assert_int_equal(level >= BT_CPU_AVX2,
                     strstr(line, " avx2") != NULL && strstr(line, " fma") && strstr(line, " f16c"));
    assert_int_equal(level >= BT_CPU_AVX512, strstr(line, " avx512f") != NULL && strstr(line, " avx512bw") != NULL &&
                                                 strstr(line, " avx512dq") != NULL &&
                                                 strstr(line, " avx512vl") != NULL);
    assert_int_equal(level >= BT_CPU_AVX512VNNI, strstr(line, " avx512_vnni") != NULL && strstr(line, " avx512_bf16"));
    if (level == BT_CPU_AMX) assert_non_null(strstr(line, " amx_tile"));
    bt_cpu_relax();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpus_and_cores),
        cmocka_unit_test(cores_by_id_where_siblings_are_unknown),
        cmocka_unit_test(nothing_known),
        cmocka_unit_test(version2_tightest_of_all_levels),
        cmocka_unit_test(version2_inside_a_container),
        cmocka_unit_test(version1_each_controller_its_own_path),
        cmocka_unit_test(the_real_machine),
        cmocka_unit_test(cpu_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
