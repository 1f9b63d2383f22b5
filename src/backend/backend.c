/* The registry of backends: what this build has, and how a --device name finds it or is refused. */
#include "backend/backend.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/error.h"

static const bt_backend_vtable *const BACKENDS[] = {&bt_cpu_backend, NULL};

/* Names that are known to mean something, here or in a later build; each may carry ":N", the N-th such device. */
static const char *const ELSEWHERE[] = {"cuda", "vulkan", "webgpu", "wgpu", "metal"};
#define N_ELSEWHERE (sizeof ELSEWHERE / sizeof *ELSEWHERE)

const bt_backend_vtable *const *bt_backends(void)
{
    return BACKENDS;
}

/* "name" or "name:N" with 1 to 4 digits. */
static bool is_device(const char *device, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(device, name, n) != 0) return false;
    if (device[n] == '\0') return true;
    size_t n_digits = strspn(device + n + 1, "0123456789");
    return device[n] == ':' && n_digits >= 1 && n_digits <= 4 && device[n + 1 + n_digits] == '\0';
}

/* "cpu, vulkan" */
static void list_backends(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; BACKENDS[i] != NULL; i++) {
        size_t n = strlen(BACKENDS[i]->name);
        assert(n + 3 <= size - used);
        if (i > 0) {
            memcpy(text + used, ", ", 2);
            used += 2;
        }
        memcpy(text + used, BACKENDS[i]->name, n + 1);
        used += n;
    }
}

bt_status bt_backend_find(const char *device, const bt_backend_vtable **out, bt_error *e)
{
    assert(device != NULL);
    for (size_t i = 0; BACKENDS[i] != NULL; i++) {
        if (strcmp(device, BACKENDS[i]->name) == 0) {
            *out = BACKENDS[i];
            return BT_OK;
        }
    }
    char list[128];
    list_backends(list, sizeof list);
    for (size_t i = 0; i < N_ELSEWHERE; i++) {
        if (is_device(device, ELSEWHERE[i]))
            return bt_fail(e, BT_ERR_UNSUPPORTED, "device \"%s\" is not built in; this build has: %s", device, list);
    }
    return bt_fail(e, BT_ERR_USAGE, "device \"%s\" is unknown; this build has: %s", device, list);
}
