/* Files: read-only mappings, whole reads with a limit, outputs that appear only when complete. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdio.h>

#include "baltoro.h"

typedef struct bt_mapping {
    const uint8_t *data; /* NULL when size is 0 */
    size_t size;
} bt_mapping;

/* Maps a regular file read-only. Errors name `path`. Folders, FIFOs and devices are refused. */
bt_status bt_map_file(const char *path, bt_mapping *out, bt_error *e);
void bt_unmap_file(bt_mapping *m);

/* Advice to the system about how a mapping is read: along, as a new one is, so that it reads ahead (some systems by
 * megabytes); or here and there, so that it reads no more than is touched; and what will be needed now. */
typedef enum bt_map_use { BT_MAP_ALONG, BT_MAP_HERE_AND_THERE } bt_map_use;
void bt_map_advise(const bt_mapping *m, bt_map_use use);
void bt_map_prefetch(const bt_mapping *m, size_t n); /* its first n bytes */

/* Reads a whole file, pipe or device of at most size_max bytes; *data is NUL-terminated after *size bytes; bt_free by
 * the caller. */
bt_status bt_read_file(const char *path, size_t size_max, char **data, size_t *size, bt_error *e);

/* The same for a file that a person names: a FIFO is read once its writer is there, however long that takes. */
bt_status bt_read_file_waiting(const char *path, size_t size_max, char **data, size_t *size, bt_error *e);

/* What was saved in place of a file that was not downloaded: a Git LFS pointer or a web page. The rest of a sentence
 * ("is a Git LFS pointer, ..."), or NULL if the bytes are neither. */
const char *bt_placeholder_text(const void *data, size_t size);

/* What lies at a path. Only what is not there is absent: a link that leads nowhere, or a path that cannot be examined,
 * is an error, for a file that may be left out must not be left out because a disk failed. */
typedef enum bt_path_kind { BT_PATH_ABSENT, BT_PATH_FILE, BT_PATH_FOLDER } bt_path_kind;
bt_status bt_path_look(const char *path, bt_path_kind *kind, bt_error *e);
bool bt_path_exists(const char *path);    /* false also where it cannot be examined: for messages, for guards */
bool bt_path_is_folder(const char *path); /* likewise */
char *bt_path_join(const char *folder, const char *name); /* bt_free by the caller; NULL: no memory */
char *bt_path_folder(const char *path);                   /* before the last '/', else "."; bt_free by the caller */

/* An output under a temporary name beside `path`, renamed by commit, removed by abandon. Every write is checked. */
typedef struct bt_output bt_output;
bt_status bt_output_open(const char *path, bt_output **out, bt_error *e);
/* The same for its owner alone; where it replaces a file it keeps that one's mode. */
bt_status bt_output_open_private(const char *path, bt_output **out, bt_error *e);
/* One that replaces nothing: an empty file holds the name from now on, which the commit replaces and a failure removes.
 * *is_taken: whether it failed because there is something of that name. */
bt_status bt_output_open_new(const char *path, bool *is_taken, bt_output **out, bt_error *e);
bt_status bt_output_write(bt_output *o, const void *data, size_t size, bt_error *e);
bt_status bt_output_commit(bt_output *o, bt_error *e); /* flush, fsync, rename; frees o in any case */
void bt_output_abandon(bt_output *o);                  /* NULL is fine */

#endif
