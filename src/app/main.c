/*
 * baltoro, the program: the standard streams made safe, signals installed, the command found and run. Everything that a
 * command does is in its own file, everything that it takes in table.c.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/app.h"
#include "app/signals.h"

static int (*const commands[BT_N_COMMANDS])(const bt_options *o) = {
    [BT_COMMAND_RUN] = bt_command_run,           [BT_COMMAND_CHAT] = bt_command_chat,
    [BT_COMMAND_LOGITS] = bt_command_logits,     [BT_COMMAND_VERIFY] = bt_command_verify,
    [BT_COMMAND_TOKENIZE] = bt_command_tokenize, [BT_COMMAND_DETOKENIZE] = bt_command_detokenize,
    [BT_COMMAND_RENDER] = bt_command_render,     [BT_COMMAND_INFO] = bt_command_info,
    [BT_COMMAND_DEVICES] = bt_command_devices,   [BT_COMMAND_BENCH] = bt_command_bench,
    [BT_COMMAND_SYNTH] = bt_command_synth,       [BT_COMMAND_HELP] = bt_command_help,
    [BT_COMMAND_VERSION] = bt_command_version,
};

/* A closed stream would be opened again by the next file: a checkpoint as stdout. A stand-in in the wrong direction
 * keeps the number taken and still makes each use fail, as it should. */
static void keep_streams(void)
{
    static const int wrong_way[] = {O_WRONLY, O_RDONLY, O_RDWR};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", wrong_way[fd]) != fd) _exit(BT_EXIT_FAILED);
}

int main(int argc, char **argv)
{
    keep_streams();
    bt_signals_install();
    bt_options o;
    bt_error e;
    bt_status st = bt_options_parse(argc > 0 ? argc - 1 : 0, argv + (argc > 0), getenv, &o, &e);
    if (st != BT_OK) {
        (void)fprintf(stderr, "baltoro: %s\n", e.message);
        return bt_exit_code(st);
    }
    bool wants_help = bt_option_is_set(&o, BT_OPT_HELP);
    int code = wants_help ? bt_command_help(&o) : commands[o.command](&o);
    bt_options_free(&o);
    return code;
}
