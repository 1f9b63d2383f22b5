/*
 * Session files: a conversation as one file, its messages and the snapshot of the session that computed them, so that
 * it goes on elsewhere without computing what is known.
 *
 *   header     magic, version, which model, KV type and CPU level, sizes and checksums, a checksum of itself
 *   messages   JSON, an array in OpenAI's form
 *   snapshot   as bt_session_snapshot makes it: ids, states, logits
 *
 * Every bit is under a checksum: a damaged file is refused before anything of it is used. The model is told by a
 * fingerprint over configuration, tokenizer, every shard's header and the first bytes of every tensor, so that two
 * fine-tunes of one shape differ. Another CPU level is no fault, but the caller may say so: its sums differ in the last
 * bits.
 */
#ifndef TOOL_SESSION_FILE_H
#define TOOL_SESSION_FILE_H

#include "base/file.h"

#define BT_SESSION_NAME_BYTES 16

typedef struct bt_session_file {
    uint64_t model;                                                         /* fingerprint */
    char kv_dtype[BT_SESSION_NAME_BYTES], cpu_level[BT_SESSION_NAME_BYTES]; /* terminated, zeros after */
    const char *messages;                                                   /* [messages_size] JSON; not terminated */
    size_t messages_size;
    const void *snapshot; /* [snapshot_size] */
    size_t snapshot_size;
} bt_session_file;

/* Facts of an engine and its model, with nothing in it yet. */
bt_status bt_session_file_begin(const bt_engine *g, bt_session_file *f, bt_error *e);

/* Writes under a temporary name, then renames. */
bt_status bt_session_file_write(const char *path, const bt_session_file *f, bt_error *e);

/* Checks everything; the parts of *f point into data. */
bt_status bt_session_file_parse(const void *data, size_t size, bt_session_file *f, bt_error *e);
/* Whether the file belongs to this model and KV type; says which does not fit. `mine` is of bt_session_file_begin. */
bt_status bt_session_file_match(const bt_session_file *f, const bt_session_file *mine, bt_error *e);

/* Whether data begins as a session file does, whatever follows. */
bool bt_session_file_begins(const void *data, size_t size);
/* Sets the checksums of a file in memory to what its bytes give (tests and fuzzing: to get past them). */
void bt_session_file_reseal(void *data, size_t size);

#endif
