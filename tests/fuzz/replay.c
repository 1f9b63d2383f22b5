/*
 * Runs a fuzz target without a fuzzing engine, so that stored inputs are ordinary tests: every file of the folders
 * named on the command line as it is, then cut short at up to N_CUTS places, then with single bytes changed, N_CHANGES
 * times. The same every time: the changes come from a fixed seed.
 *
 * Every input lies in a block of exactly its size, so that AddressSanitizer sees a read past its end.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define N_CUTS          64
#define N_CHANGES       192
#define FILE_BYTES_MAX  (1 << 20)
#define FILES_MAX       10000
#define SMALL_BYTES_MAX (1 << 14) /* larger files are run as they are only: time */

static size_t n_runs;

static void run(const unsigned char *bytes, size_t size)
{
    unsigned char *exact = malloc(size > 0 ? size : 1);
    if (exact == NULL) exit(2);
    if (size > 0) memcpy(exact, bytes, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    n_runs++;
}

static void run_cut(const unsigned char *bytes, size_t size)
{
    const size_t step = size / N_CUTS + 1;
    for (size_t n = 0; n < size; n += step) run(bytes, n);
}

/* One byte at a time becomes a random one, or one of those at which readers stumble. */
static void run_changed(unsigned char *bytes, size_t size)
{
    static const unsigned char edges[] = {0x00, 0x7f, 0x80, 0xff, '"', '\\', '{', '}', '[', ']', '-', '9'};
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < N_CHANGES && size > 0; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const size_t at = (size_t)(state >> 33) % size;
        const unsigned char old = bytes[at];
        const size_t pick = (size_t)(state >> 20) % (2 * sizeof edges);
        bytes[at] = pick < sizeof edges ? edges[pick] : (unsigned char)(state >> 8);
        run(bytes, size);
        bytes[at] = old;
    }
}

static int run_file(const char *path)
{
    static unsigned char bytes[FILE_BYTES_MAX];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        return 1;
    }
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    const int whole = feof(f) || fgetc(f) == EOF;
    fclose(f);
    if (!whole) {
        fprintf(stderr, "%s: larger than %d bytes\n", path, FILE_BYTES_MAX);
        return 1;
    }
    printf("%s\n", path); /* the last line before a crash names the input */
    fflush(stdout);
    run(bytes, size);
    if (size > SMALL_BYTES_MAX) return 0;
    run_cut(bytes, size);
    run_changed(bytes, size);
    return 0;
}

static int run_folder(const char *folder)
{
    struct dirent **names = NULL;
    const int n = scandir(folder, &names, NULL, alphasort);
    if (n < 0 || n > FILES_MAX) {
        fprintf(stderr, "%s: no folder of inputs\n", folder);
        return 1;
    }
    int failed = 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        struct stat s;
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (stat(path, &s) == 0 && S_ISREG(s.st_mode)) failed |= run_file(path);
        free(names[i]);
    }
    free(names);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) failed |= run_folder(argv[i]);
    printf("%zu inputs\n", n_runs);
    if (n_runs == 0) fprintf(stderr, "usage: REPLAY FOLDER... (there were no inputs)\n");
    return failed || n_runs == 0;
}
