/* The files of a model; see files.h. */
#include "tool/files.h"

#include <assert.h>
#include <sys/stat.h>

#include "base/file.h"
#include "model/model.h"

size_t bt_tool_n_files(const bt_model *m)
{
    return bt_tensors_n_shards(m->tensors);
}

void bt_tool_file(const bt_model *m, size_t file_i, const char **path, const void **data, size_t *size)
{
    assert(file_i < bt_tool_n_files(m));
    const bt_shard *s = bt_tensors_shard(m->tensors, file_i);
    *path = s->path;
    *data = s->map.data;
    *size = s->map.size;
}

bool bt_tool_is_same_file(const char *path, const char *other)
{
    struct stat a, b;
    if (path == NULL || other == NULL || stat(path, &a) != 0 || stat(other, &b) != 0) return false;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool bt_tool_is_model_file(const bt_model *m, const char *path)
{
    static const char *const beside[] = {"README.md",
                                         "config.json",
                                         "generation_config.json",
                                         "model.safetensors.index.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "tiktoken.model",
                                         "chat_template.jinja",
                                         "chat_template_generation.jinja"};
    bool found = false;
    for (size_t i = 0; i < bt_tool_n_files(m) && !found; i++)
        found = bt_tool_is_same_file(path, bt_tensors_shard(m->tensors, i)->path);
    for (size_t i = 0; i < sizeof beside / sizeof *beside && !found; i++) {
        char *name = bt_path_join(bt_model_folder(m), beside[i]);
        found = bt_tool_is_same_file(path, name);
        bt_free(name);
    }
    return found;
}
