/* The families' presets as one list. */
#include "tool/presets.h"

#include <string.h>

#include "base/error.h"

size_t bt_presets_count(void)
{
    return bt_presets_k2_n + bt_presets_kimi_n;
}

const bt_preset *bt_presets_at(size_t i)
{
    return i < bt_presets_k2_n ? &bt_presets_k2[i] : &bt_presets_kimi[i - bt_presets_k2_n];
}

bt_status bt_preset_find(const char *name, const bt_preset **out, bt_error *e)
{
    bt_fault_list names = {.n_total = 0};
    for (size_t i = 0; i < bt_presets_count(); i++) {
        const bt_preset *p = bt_presets_at(i);
        if (strcmp(name, p->name) == 0) {
            *out = p;
            return BT_OK;
        }
        bt_fault_add(&names, "%s", p->name);
    }
    return bt_fail(e, BT_ERR_USAGE, "there is no preset %s; the presets are: %s", name, bt_fault_text(&names));
}

bool bt_preset_ends_with(const bt_tensor_spec *s, const char *end)
{
    size_t n = strlen(s->name), m = strlen(end);
    return n >= m && strcmp(s->name + n - m, end) == 0;
}
