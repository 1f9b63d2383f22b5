/*
 * format/safetensors: the input as a file of its own; one that begins with '{' also as the index of a folder whose one
 * shard, a.safetensors, is sound and holds the tensors a and b.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/safetensors.h"

#define INDEX_NAME "model.safetensors.index.json"

static char folder[64]; /* made at the first input, removed at exit */

static void check(bool truth)
{
    if (!truth) abort();
}

/* All that the set promises: order, disjoint ranges inside the files, names that are found. */
static void check_set(const bt_tensors *t)
{
    size_t n = bt_tensors_count(t);
    uint64_t bytes = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        const bt_tensor *x = bt_tensors_at(t, i);
        const bt_mapping *map = &bt_tensors_shard(t, x->shard_i)->map;
        check(x->data >= map->data && x->size <= map->size);
        check((uint64_t)(x->data - map->data) <= map->size - x->size);
        if (i > 0 && bt_tensors_at(t, i - 1)->shard_i == x->shard_i) {
            const bt_tensor *before = bt_tensors_at(t, i - 1);
            check(before->data + before->size == x->data);
        }
        if (x->size > 0) sum += (uint64_t)x->data[0] + x->data[x->size - 1];
        uint64_t n_elements = 1;
        for (unsigned d = 0; d < x->n_dims; d++) n_elements *= x->shape[d];
        check(n_elements == x->n_elements);
        check(strlen(x->name) <= x->name_size && x->name[x->name_size] == '\0');
        if (strlen(x->name) == x->name_size) check(bt_tensors_find(t, x->name) == x);
        bytes += x->size;
    }
    check(bytes < bt_tensors_mapped_bytes(t) && sum < UINT64_MAX);
    check(bt_tensors_private_bytes(t) >= n * sizeof(bt_tensor));
}

static void open_path(const char *path)
{
    bt_tensors *t = NULL;
    bt_error e = {.status = BT_OK};
    bt_status st = bt_tensors_open(path, &t, &e);
    check((st == BT_OK) == (t != NULL));
    check(st == BT_OK || e.message[0] != '\0');
    if (t != NULL) check_set(t);
    bt_tensors_close(t);
}

static void write_file(const char *name, const void *data, size_t size)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    check(f != NULL && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void remove_folder(void)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/a.safetensors", folder);
    (void)unlink(path);
    (void)snprintf(path, sizeof path, "%s/" INDEX_NAME, folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

static void make_folder(void)
{
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[2,3]}}";
    (void)snprintf(folder, sizeof folder, "%s", fuzz_folder());
    check(mkdtemp(folder) != NULL);
    check(atexit(remove_folder) == 0);
    unsigned char shard[8 + sizeof header - 1 + 3] = {sizeof header - 1};
    memcpy(shard + 8, header, sizeof header - 1);
    write_file("a.safetensors", shard, sizeof shard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("input", MFD_CLOEXEC);
    check(fd >= 0);
    check(size == 0 || write(fd, data, size) == (ssize_t)size);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    open_path(path);
    (void)close(fd);
    if (size > 0 && data[0] == '{') {
        if (folder[0] == '\0') make_folder();
        write_file(INDEX_NAME, data, size);
        open_path(folder);
    }
    return 0;
}
