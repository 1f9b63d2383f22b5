/*
 * What this machine can give us: CPUs by affinity, cores and quota; memory by the machine and by every cgroup limit
 * that encloses this process. Nothing here fails: what cannot be read is unknown (0), and the caller's plan says so.
 *
 * A cgroup's limit counts at every level above the process too, so each is walked up to the root of its mount. Where
 * the path that /proc/self/cgroup names is not visible (a container that sees its own group as the root of the mount),
 * the mount's root is the process's group. Both hierarchies may exist side by side; of several limits the tightest
 * counts.
 */
#include "base/machine.h"

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"

#define N_CPUS_MAX      8192 /* the kernel's own limit */
#define TEXT_BYTES_MAX  ((size_t)16 << 20)
#define PATH_BYTES_MAX  4096
#define N_LEVELS_MAX    64
#define UNLIMITED_BYTES ((uint64_t)1 << 62) /* version 1 says "no limit" with a number near 2^63 */

/* ---- small files ----------------------------------------------------------------------------------------------------
 */

/* The text of root/path, or NULL; bt_free by the caller. */
static char *read_text(const char *root, const char *path)
{
    char full[2 * PATH_BYTES_MAX];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    char *text = NULL;
    size_t size;
    if (n < 0 || (size_t)n >= sizeof full) return NULL;
    return bt_read_file(full, TEXT_BYTES_MAX, &text, &size, NULL) == BT_OK ? text : NULL;
}

static bool read_number(const char *root, const char *folder, const char *file, int64_t *v)
{
    char path[PATH_BYTES_MAX];
    (void)snprintf(path, sizeof path, "%.3800s/%s", folder, file);
    char *text = read_text(root, path);
    if (text == NULL) return false;
    bool ok = bt_json_i64(text, strcspn(text, " \n"), v);
    bt_free(text);
    return ok;
}

/* The line of `text` that begins with `key`, after it and blanks and ':'; NULL if there is none. */
static const char *find_line(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, n) == 0 && strchr(" \t:", line[n]) != NULL && line[n] != '\0') {
            return line + n + strspn(line + n, " \t:");
        }
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    return NULL;
}

/* The number in that line; false if there is no such line. */
static bool find_number(const char *text, const char *key, uint64_t *v)
{
    const char *value = text == NULL ? NULL : find_line(text, key);
    return value != NULL && bt_json_u64(value, strspn(value, "0123456789"), v);
}

/* ---- CPUs -----------------------------------------------------------------------------------------------------------
 */

typedef struct cpu_list {
    unsigned char has[N_CPUS_MAX];
    size_t n;
} cpu_list;

/* "0-3,8": the kernel's way to write a set. */
static void parse_cpu_list(const char *text, cpu_list *l)
{
    memset(l, 0, sizeof *l);
    while (*text >= '0' && *text <= '9') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < N_CPUS_MAX; i++) {
            l->n += l->has[i] == 0;
            l->has[i] = 1;
        }
        text = *end == ',' ? end + 1 : end;
    }
}

static void read_affinity(const char *root, cpu_list *l)
{
    memset(l, 0, sizeof *l);
    char *status = root[0] == '\0' ? NULL : read_text(root, "/proc/self/status");
    const char *allowed = status == NULL ? NULL : find_line(status, "Cpus_allowed_list");
    if (allowed != NULL) {
        parse_cpu_list(allowed, l);
    } else {
        const size_t bytes = CPU_ALLOC_SIZE(N_CPUS_MAX);
        cpu_set_t *set = bt_calloc(bytes, 1);
        if (set != NULL && sched_getaffinity(0, bytes, set) == 0) {
            for (size_t i = 0; i < N_CPUS_MAX; i++) {
                if (!CPU_ISSET_S(i, bytes, set)) continue;
                l->has[i] = 1;
                l->n++;
            }
        }
        bt_free(set);
    }
    bt_free(status);
}

/* The CPUs that share cpu_i's core, in `l`; false if the kernel does not say. */
static bool read_siblings(const char *root, size_t cpu_i, cpu_list *l)
{
    static const char *const files[] = {"core_cpus_list", "thread_siblings_list"}; /* the second is its older name */
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        char path[PATH_BYTES_MAX];
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/%s", cpu_i, files[k]);
        char *text = read_text(root, path);
        if (text == NULL) continue;
        parse_cpu_list(text, l);
        bt_free(text);
        if (l->n > 0) return true;
    }
    return false;
}

/* (package, core) as one number; false if the kernel does not say. */
static bool read_core(const char *root, size_t cpu_i, uint64_t *core)
{
    char folder[PATH_BYTES_MAX];
    (void)snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu%zu/topology", cpu_i);
    int64_t package = 0, id = 0;
    if (!read_number(root, folder, "core_id", &id)) return false;
    if (!read_number(root, folder, "physical_package_id", &package)) package = 0;
    *core = (uint64_t)package << 32 | ((uint64_t)id & 0xffffffffu);
    return true;
}

/* Distinct cores among the allowed CPUs: each CPU that shares a core with none before it counts. */
static size_t count_cores(const char *root, const cpu_list *allowed)
{
    cpu_list *seen = bt_calloc(1, sizeof *seen), *siblings = bt_calloc(1, sizeof *siblings);
    uint64_t *cores = bt_calloc(allowed->n, sizeof *cores);
    size_t n = 0, n_cores = 0;
    for (size_t i = 0; i < N_CPUS_MAX && seen != NULL && siblings != NULL && cores != NULL; i++) {
        if (!allowed->has[i] || seen->has[i]) continue;
        uint64_t core;
        bool again = false;
        if (read_siblings(root, i, siblings)) {
            for (size_t k = 0; k < N_CPUS_MAX; k++) seen->has[k] |= siblings->has[k];
        } else if (read_core(root, i, &core)) {
            for (size_t k = 0; k < n_cores && !again; k++) again = cores[k] == core;
            if (!again) cores[n_cores++] = core;
        }
        n += !again; /* nothing known: a core of its own */
    }
    bt_free(cores);
    bt_free(siblings);
    bt_free(seen);
    return n;
}

static void read_cpu_name(const char *root, bt_machine *m)
{
    char *text = read_text(root, "/proc/cpuinfo");
    const char *name = text == NULL ? NULL : find_line(text, "model name");
    if (name != NULL) (void)snprintf(m->cpu_name, sizeof m->cpu_name, "%.*s", (int)strcspn(name, "\n"), name);
    bt_free(text);
}

/* ---- cgroups --------------------------------------------------------------------------------------------------------
 */

/* A controller's hierarchy as this process sees it. */
typedef struct hierarchy {
    char mount[PATH_BYTES_MAX / 2]; /* folder under which it is mounted */
    char path[PATH_BYTES_MAX];      /* folder of the process's own group, below or equal to `mount` */
} hierarchy;

/* True if `list` ("cpu,cpuacct") has the word. */
static bool list_has(const char *list, size_t n, const char *word)
{
    size_t m = strlen(word);
    for (size_t i = 0; i + m <= n; i++) {
        bool starts = i == 0 || list[i - 1] == ',', ends = i + m == n || list[i + m] == ',';
        if (starts && ends && memcmp(list + i, word, m) == 0) return true;
    }
    return false;
}

/* The process's path in the hierarchy of `controller` (NULL: version 2) from /proc/self/cgroup ("4:memory:/a/b"). */
static bool own_path(const char *text, const char *controller, char *path, size_t bytes)
{
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *controllers = strchr(line, ':'), *end = strchr(line, '\n');
        size_t n = end == NULL ? strlen(line) : (size_t)(end - line);
        const char *name = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (name != NULL && name < line + n) {
            size_t n_controllers = (size_t)(name - controllers - 1), n_path = (size_t)(line + n - name - 1);
            bool match = controller == NULL ? n_controllers == 0 && strncmp(line, "0:", 2) == 0
                                            : list_has(controllers + 1, n_controllers, controller);
            if (match && n_path < bytes) {
                memcpy(path, name + 1, n_path);
                path[n_path] = '\0';
                return true;
            }
        }
        line = end == NULL ? NULL : end + 1;
    }
    return false;
}

/* One line of mountinfo: "36 35 98:0 /ROOT /MOUNT rw ... - cgroup cgroup rw,memory". */
static bool parse_mount(const char *line, size_t n, const char *controller, char *root, char *mount)
{
    char copy[PATH_BYTES_MAX], type[16], options[512];
    if (n >= sizeof copy) return false;
    memcpy(copy, line, n);
    copy[n] = '\0';
    const char *after = strstr(copy, " - ");
    if (after == NULL || sscanf(after + 3, "%15s %*s %511s", type, options) != 2) return false;
    bool match = controller == NULL ? strcmp(type, "cgroup2") == 0
                                    : strcmp(type, "cgroup") == 0 && list_has(options, strlen(options), controller);
    return match && sscanf(copy, "%*s %*s %*s %2047s %2047s", root, mount) == 2;
}

/* Where the hierarchy is mounted, and which of its groups is the root of the mount. */
static bool find_mount(const char *mounts, const char *controller, char *root, char *mount)
{
    for (const char *line = mounts; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        size_t n = end == NULL ? strlen(line) : (size_t)(end - line);
        if (parse_mount(line, n, controller, root, mount)) return true;
        line = end == NULL ? NULL : end + 1;
    }
    return false;
}

static bool is_folder_below(const char *root, const char *path)
{
    char full[2 * PATH_BYTES_MAX];
    (void)snprintf(full, sizeof full, "%.4000s%.4000s", root, path);
    return bt_path_is_folder(full);
}

/* Fills *h; false if this machine has no such hierarchy. */
static bool find_hierarchy(const char *root, const char *controller, hierarchy *h)
{
    char *groups = read_text(root, "/proc/self/cgroup"), *mounts = read_text(root, "/proc/self/mountinfo");
    char path[PATH_BYTES_MAX / 2], mount_root[PATH_BYTES_MAX / 2];
    bool found = groups != NULL && own_path(groups, controller, path, sizeof path);
    if (found && (mounts == NULL || !find_mount(mounts, controller, mount_root, h->mount))) {
        (void)snprintf(h->mount, sizeof h->mount, "/sys/fs/cgroup%s%s", controller == NULL ? "" : "/",
                       controller == NULL ? "" : controller);
        (void)snprintf(mount_root, sizeof mount_root, "/");
    }
    bt_free(groups);
    bt_free(mounts);
    if (!found) return false;
    /* The path counts from the hierarchy's root; what is visible begins at the mount's. */
    size_t n = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    bool inside =
        strncmp(path, mount_root, n) == 0 && (path[n] == '/' || path[n] == '\0') && strstr(path, "..") == NULL;
    (void)snprintf(h->path, sizeof h->path, "%s%s", h->mount, inside ? path + n : "");
    for (size_t i = strlen(h->path); i > 1 && h->path[i - 1] == '/'; i--) h->path[i - 1] = '\0';
    if (!is_folder_below(root, h->path)) (void)snprintf(h->path, sizeof h->path, "%s", h->mount);
    return is_folder_below(root, h->path);
}

/* Steps to the parent group; false at the root of the mount. */
static bool step_up(hierarchy *h)
{
    if (strlen(h->path) <= strlen(h->mount)) return false;
    char *slash = strrchr(h->path, '/');
    assert(slash != NULL);
    *slash = '\0';
    return strlen(h->path) >= strlen(h->mount);
}

/* ---- limits ---------------------------------------------------------------------------------------------------------
 */

/* One group's limit: what it has left is the limit less what is used, page cache not counted as used, since it yields.
 * tmpfs is in "file" but not in the two lists, and does not yield. */
static void apply_memory_limit(const char *root, const char *folder, bool version2, uint64_t limit, bt_machine *m)
{
    int64_t current = 0;
    (void)read_number(root, folder, version2 ? "memory.current" : "memory.usage_in_bytes", &current);
    char path[PATH_BYTES_MAX];
    (void)snprintf(path, sizeof path, "%.3800s/memory.stat", folder);
    char *stat = read_text(root, path);
    uint64_t inactive = 0, active = 0;
    (void)find_number(stat, version2 ? "inactive_file" : "total_inactive_file", &inactive);
    (void)find_number(stat, version2 ? "active_file" : "total_active_file", &active);
    bt_free(stat);
    uint64_t used = current > 0 ? (uint64_t)current : 0;
    uint64_t cache = inactive + active;
    used -= cache < used ? cache : used;
    uint64_t left = limit > used ? limit - used : 0;
    if (m->memory_limit == 0 || limit < m->memory_limit) m->memory_limit = limit;
    if (left < m->memory_available) m->memory_available = left;
}

static void apply_cpu_quota(double quota, bt_machine *m)
{
    if (quota > 0 && (m->cpu_quota <= 0 || quota < m->cpu_quota)) m->cpu_quota = quota;
}

static void read_version2(const char *root, bt_machine *m)
{
    hierarchy h;
    if (!find_hierarchy(root, NULL, &h)) return;
    size_t n_levels = 0;
    do {
        static const char *const limits[] = {"memory.max", "memory.high"}; /* above the second, work crawls */
        int64_t bytes;
        for (size_t i = 0; i < 2; i++) {
            if (read_number(root, h.path, limits[i], &bytes)) {
                apply_memory_limit(root, h.path, true, (uint64_t)(bytes > 0 ? bytes : 0), m);
            }
        }
        char path[PATH_BYTES_MAX + 16];
        (void)snprintf(path, sizeof path, "%s/cpu.max", h.path);
        char *text = read_text(root, path);
        long long quota, period; /* "max 100000" or "150000 100000", in microseconds */
        if (text != NULL && sscanf(text, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
            apply_cpu_quota((double)quota / (double)period, m);
        }
        bt_free(text);
    } while (++n_levels < N_LEVELS_MAX && step_up(&h));
}

static void read_version1(const char *root, bt_machine *m)
{
    hierarchy h;
    size_t n_levels = 0;
    if (find_hierarchy(root, "memory", &h)) {
        do {
            int64_t bytes;
            if (!read_number(root, h.path, "memory.limit_in_bytes", &bytes) || bytes < 0) continue;
            if ((uint64_t)bytes < UNLIMITED_BYTES) apply_memory_limit(root, h.path, false, (uint64_t)bytes, m);
        } while (++n_levels < N_LEVELS_MAX && step_up(&h));
    }
    n_levels = 0;
    if (find_hierarchy(root, "cpu", &h)) {
        do {
            int64_t quota, period;
            if (!read_number(root, h.path, "cpu.cfs_quota_us", &quota)) continue;
            if (!read_number(root, h.path, "cpu.cfs_period_us", &period) || period <= 0) continue;
            apply_cpu_quota((double)quota / (double)period, m);
        } while (++n_levels < N_LEVELS_MAX && step_up(&h));
    }
}

void bt_machine_read(const char *root, bt_machine *m)
{
    assert(root != NULL);
    memset(m, 0, sizeof *m);
    read_cpu_name(root, m);

    cpu_list *allowed = bt_calloc(1, sizeof *allowed);
    if (allowed != NULL) {
        read_affinity(root, allowed);
        m->n_affinity = allowed->n;
        m->n_physical = count_cores(root, allowed);
    }
    bt_free(allowed);

    char *meminfo = read_text(root, "/proc/meminfo");
    uint64_t total_kb = 0, available_kb = 0;
    (void)find_number(meminfo, "MemTotal", &total_kb);
    bool known = find_number(meminfo, "MemAvailable", &available_kb);
    bt_free(meminfo);
    m->memory_total = total_kb <= UINT64_MAX / 1024 ? total_kb * 1024 : 0;
    m->memory_available = known && available_kb <= UINT64_MAX / 1024 ? available_kb * 1024 : UINT64_MAX;
    read_version2(root, m);
    read_version1(root, m);
    if (m->memory_available == 0) m->memory_available = 1; /* nothing left is not the same as nothing known */
    if (m->memory_available == UINT64_MAX) m->memory_available = 0;

    size_t n = m->n_affinity;
    if (m->n_physical > 0 && m->n_physical < n) n = m->n_physical;
    if (m->cpu_quota > 0 && ceil(m->cpu_quota) < (double)n) n = (size_t)ceil(m->cpu_quota);
    m->n_threads_default = n > 0 ? n : 1;
}
