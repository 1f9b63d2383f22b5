/* devices: what this machine has. */
#include "app/app.h"
#include "tool/info.h"

int bt_command_devices(const bt_options *o)
{
    bt_app a;
    bt_text t = {0};
    bt_app_open(&a, o);
    if (bt_option_is_set(o, BT_OPT_JSON))
        bt_devices_print_json(&t, "");
    else
        bt_devices_print(&t, "");
    return bt_app_close(&a, bt_app_print(&a, &t));
}
