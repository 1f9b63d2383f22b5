/* The files of a model: those that it maps, for the program's SIGBUS handler, and all, which no output may replace. */
#ifndef TOOL_FILES_H
#define TOOL_FILES_H

#include "baltoro.h"

size_t bt_tool_n_files(const bt_model *m);
/* All borrowed from the model. *data is NULL for an empty file. */
void bt_tool_file(const bt_model *m, size_t file_i, const char **path, const void **data, size_t *size);

/* True if both are there and are one file, under whatever names. NULL is no file. */
bool bt_tool_is_same_file(const char *path, const char *other);
/* True if `path` is there and is one of this model's own files. */
bool bt_tool_is_model_file(const bt_model *m, const char *path);

#endif
