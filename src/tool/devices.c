/* What this machine has and what this build can use of it; see info.h. */
#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"
#include "base/machine.h"
#include "tool/info.h"

static void print_levels(bt_text *t, const char *separator, const char *quote)
{
    bt_cpu_level best = bt_cpu_detect();
    for (bt_cpu_level l = BT_CPU_SCALAR; l <= best; l++)
        bt_text_printf(t, "%s%s%s%s", l == BT_CPU_SCALAR ? "" : separator, quote, bt_cpu_level_name(l), quote);
}

static void print_backends(bt_text *t, const char *separator, const char *quote)
{
    const bt_backend_vtable *const *all = bt_backends();
    for (size_t i = 0; all[i] != NULL; i++)
        bt_text_printf(t, "%s%s%s%s", i == 0 ? "" : separator, quote, all[i]->name, quote);
}

void bt_devices_print(bt_text *t, const char *root)
{
    bt_machine m;
    bt_machine_read(root, &m);
    bt_text_printf(t, "cpu: %s\n  levels: ", m.cpu_name[0] != '\0' ? m.cpu_name : "unknown");
    print_levels(t, " ", "");
    bt_text_printf(t, "\n  threads: %zu by default; %zu CPUs allowed on %zu cores", m.n_threads_default, m.n_affinity,
                   m.n_physical);
    if (m.cpu_quota > 0) bt_text_printf(t, ", cgroup quota %g", m.cpu_quota);
    bt_text_printf(t, "\n  memory: %" PRIu64 " bytes, %" PRIu64 " available", m.memory_total, m.memory_available);
    if (m.memory_limit > 0) bt_text_printf(t, ", cgroup limit %" PRIu64, m.memory_limit);
    bt_text_puts(t, "\ndevices of this build: ");
    print_backends(t, " ", "");
    bt_text_puts(t, "\n");
}

void bt_devices_print_json(bt_text *t, const char *root)
{
    bt_machine m;
    bt_machine_read(root, &m);
    bt_text_puts(t, "{\"cpu\": {\"name\": ");
    bt_text_json_string(t, m.cpu_name, strlen(m.cpu_name));
    bt_text_puts(t, ", \"levels\": [");
    print_levels(t, ", ", "\"");
    bt_text_printf(t, "], \"threads\": %zu, \"cpus\": %zu, \"cores\": %zu, \"quota\": ", m.n_threads_default,
                   m.n_affinity, m.n_physical);
    if (m.cpu_quota > 0)
        bt_text_json_f64(t, m.cpu_quota);
    else
        bt_text_puts(t, "null");
    bt_text_printf(t, "}, \"memory\": {\"total\": %" PRIu64 ", \"available\": %" PRIu64 ", \"limit\": ", m.memory_total,
                   m.memory_available);
    if (m.memory_limit > 0)
        bt_text_printf(t, "%" PRIu64, m.memory_limit);
    else
        bt_text_puts(t, "null");
    bt_text_puts(t, "}, \"devices\": [");
    print_backends(t, ", ", "\"");
    bt_text_puts(t, "]}\n");
}
