/*
 * Where the demo model lies: what commands use when no MODEL is named. It is looked for from the program's own place,
 * never from the working directory or the environment: which weights answer must not depend on where somebody stands.
 */
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "base/file.h"

/* From the program's folder: installed (PREFIX/bin), built (build/), built as a variant (build/test/). */
static const char *const places[] = {
    "../share/baltoro/demo-k2",
    "../models/demo-k2",
    "../../models/demo-k2",
};
enum { N_PLACES = sizeof places / sizeof places[0], PATH_BYTES_MAX = 4096 };

/* The folder of the running program; bt_free by the caller. NULL: not known, or no memory. */
static char *program_folder(void)
{
    char path[PATH_BYTES_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return NULL;
    path[n] = '\0';
    return bt_path_folder(path);
}

char *bt_demo_model_find(void)
{
    char *folder = program_folder(), *found = NULL;
    for (size_t i = 0; folder != NULL && i < N_PLACES && found == NULL; i++) {
        char *path = bt_path_join(folder, places[i]);
        char *config = path != NULL ? bt_path_join(path, "config.json") : NULL;
        if (config != NULL && access(config, F_OK) == 0) {
            found = path;
            path = NULL;
        }
        bt_free(config);
        bt_free(path);
    }
    bt_free(folder);
    return found;
}
