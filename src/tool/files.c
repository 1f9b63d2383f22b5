/* The files that a model maps; see files.h. */
#include "tool/files.h"

#include <assert.h>

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
