/*
 * config.json and generation_config.json as a model reads them, with sound weights beside them. The input's first byte
 * chooses the weights; config.json follows, and behind the first byte 0xff generation_config.json, where there is one.
 * What opens must run: odd but possible shapes meet the tape, the memory plan and the kernels here.
 */
#include "fuzz.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "baltoro.h"

#define PRIVATE_BYTES_MAX ((uint64_t)64 << 20)

static const char *const weights[] = {"own-llama", "own-moe-top1", "own-mova-top1", "own-yarn-step"};
#define N_WEIGHTS (sizeof weights / sizeof *weights)

static char folders[N_WEIGHTS][64]; /* made at the first input, removed at exit */

static void require(bool truth)
{
    if (!truth) abort();
}

static const char *path_of(size_t i, const char *name)
{
    static char path[200];
    (void)snprintf(path, sizeof path, "%.63s/%.100s", folders[i], name);
    return path;
}

static void remove_folders(void)
{
    for (size_t i = 0; i < N_WEIGHTS; i++) {
        (void)unlink(path_of(i, "config.json"));
        (void)unlink(path_of(i, "generation_config.json"));
        (void)unlink(path_of(i, "model.safetensors"));
        (void)rmdir(folders[i]);
    }
}

static void make_folders(void)
{
    for (size_t i = 0; i < N_WEIGHTS; i++) {
        char relative[200], absolute[4096];
        (void)snprintf(relative, sizeof relative, "tests/data/models/%s/model.safetensors", weights[i]);
        require(realpath(relative, absolute) != NULL);
        (void)snprintf(folders[i], sizeof folders[i], "%s", fuzz_folder());
        require(mkdtemp(folders[i]) != NULL);
        require(symlink(absolute, path_of(i, "model.safetensors")) == 0);
    }
    require(atexit(remove_folders) == 0);
}

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    require(f != NULL && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void run(const bt_model *m)
{
    bt_error e = {.status = BT_OK};
    size_t most = bt_model_max_position(m), n_vocab = bt_model_n_vocab(m);
    const bt_engine_options o = {.n_threads = 1, .context = most < 4 ? most : 4, .batch = 3, .overcommit = true};
    bt_memory_plan plan;
    bt_engine *g = NULL;
    bt_session *s = NULL;
    if (bt_engine_plan(m, &o, &plan, &e) != BT_OK) {
        require(e.message[0] != '\0');
        return;
    }
    if (plan.private_bytes > PRIVATE_BYTES_MAX) return; /* possible, but not here */
    require(bt_engine_open(m, &o, &g, &e) == BT_OK && bt_session_open(g, &s, &e) == BT_OK);
    const int32_t ids[4] = {0, (int32_t)(n_vocab - 1), (int32_t)(n_vocab / 2), 0};
    require(bt_session_extend(s, ids, plan.context, NULL, &e) == BT_OK);
    require(bt_session_logits(s) != NULL && bt_session_length(s) == plan.context);
    bt_session_close(s);
    bt_engine_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (folders[0][0] == '\0') make_folders();
    size_t i = data[0] % N_WEIGHTS;
    const uint8_t *config = data + 1, *border = memchr(config, 0xff, size - 1);
    size_t config_size = border == NULL ? size - 1 : (size_t)(border - config);
    write_file(path_of(i, "config.json"), config, config_size);
    (void)unlink(path_of(i, "generation_config.json"));
    if (border != NULL) write_file(path_of(i, "generation_config.json"), border + 1, size - 2 - config_size);
    bt_model *m = NULL;
    bt_error e = {.status = BT_OK};
    bt_status st = bt_model_open(folders[i], NULL, &m, &e);
    require((st == BT_OK) == (m != NULL));
    if (st != BT_OK) {
        require(e.status == st && strstr(e.message, ".json") != NULL); /* the weights are sound */
        return 0;
    }
    size_t n;
    const int32_t *end = bt_model_end_ids(m, &n);
    for (size_t k = 0; k < n; k++) require(end[k] >= 0 && (k == 0 || end[k] > end[k - 1]));
    const bt_generation_defaults *d = bt_model_generation_defaults(m);
    require(isfinite(d->temperature) && isfinite(d->top_p) && isfinite(d->min_p) && isfinite(d->repetition_penalty));
    run(m);
    bt_model_close(m);
    return 0;
}
