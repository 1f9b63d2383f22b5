/* help and version: pages made of the tables. */
#include "app/app.h"

int bt_command_help(const bt_options *o)
{
    bt_app a;
    bt_text t = {0};
    bt_app_open(&a, o);
    if (bt_option_is_set(o, BT_OPT_COMPLETION))
        bt_help_completion(&t, o->values[BT_OPT_COMPLETION].text);
    else if (bt_option_is_set(o, BT_OPT_MAN))
        bt_help_man(&t);
    else if (bt_option_is_set(o, BT_OPT_HELP))
        bt_help_command(&t, o->command);
    else if (o->topic != BT_N_COMMANDS)
        bt_help_command(&t, o->topic);
    else
        bt_help_overview(&t);
    return bt_app_close(&a, bt_app_print(&a, &t));
}

int bt_command_version(const bt_options *o)
{
    bt_app a;
    bt_text t = {0};
    bt_app_open(&a, o);
    bt_text_printf(&t, "baltoro %s\n", bt_version());
    return bt_app_close(&a, bt_app_print(&a, &t));
}
