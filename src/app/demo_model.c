/*
 * Where the demo model lies: what commands use when no MODEL is named. It is looked for from the program's own place,
 * never from the working directory or the environment: which weights answer must not depend on where somebody stands.
 */
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "base/file.h"

/* From the program's folder: installed (PREFIX/bin), built (build/), built as a variant (build/test/). */
static const struct {
    size_t n_up; /* folders above the program's own */
    const char *path;
} places[] = {
    {1, "share/baltoro/demo-k2"},
    {1, "models/demo-k2"},
    {2, "models/demo-k2"},
};
enum { N_PLACES = sizeof places / sizeof places[0], PATH_BYTES_MAX = 4096 };

/* The folder that is n_up above the running program's; bt_free by the caller. NULL: not known, or no memory. */
static char *program_folder(size_t n_up)
{
    char path[PATH_BYTES_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || (size_t)n == sizeof path - 1) return NULL; /* the second: it may have been cut */
    path[n] = '\0';
    for (size_t i = 0; i < n_up; i++) {
        char *end = strrchr(path, '/');
        if (end == NULL || end == path) return NULL; /* nothing is above the root */
        *end = '\0';
    }
    return bt_path_folder(path);
}

static bool is_model(const char *folder)
{
    char *config = bt_path_join(folder, "config.json");
    bool is_there = config != NULL && access(config, F_OK) == 0;
    bt_free(config);
    return is_there;
}

char *bt_demo_model_find(void)
{
    for (size_t i = 0; i < N_PLACES; i++) {
        char *folder = program_folder(places[i].n_up);
        char *path = folder != NULL ? bt_path_join(folder, places[i].path) : NULL;
        bt_free(folder);
        if (path != NULL && is_model(path)) return path;
        bt_free(path);
    }
    return NULL;
}
