/* Session files; see session_file.h. */
#include "tool/session_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "session/engine.h"

enum { VERSION = 1, TENSOR_BYTES = 4096 };
#define MESSAGES_BYTES_MAX ((uint64_t)1 << 32)

typedef struct file_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t model;
    char kv_dtype[BT_SESSION_NAME_BYTES], cpu_level[BT_SESSION_NAME_BYTES];
    uint64_t messages_bytes, messages_checksum;
    uint64_t snapshot_bytes, snapshot_checksum;
    uint64_t header_checksum; /* of what stands above */
} file_header;
_Static_assert(sizeof(file_header) == 96, "the header is written as it lies in memory");

static const char MAGIC[8] = "BTTALK1";

/* ---- which model ------------------------------------------------------------------------------------------------- */

/* One of the tokenizer's files; one that is not there counts as empty. */
static bt_status mix_file(const char *folder, const char *name, uint64_t *h, bt_error *e)
{
    char *path = bt_path_join(folder, name);
    if (path == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a path");
    bt_path_kind kind = BT_PATH_ABSENT;
    bt_mapping map = {.data = NULL};
    bt_status st = bt_path_look(path, &kind, e);
    if (st == BT_OK && kind == BT_PATH_FILE) st = bt_map_file(path, &map, e);
    if (st == BT_OK) *h = bt_checksum(*h, map.data, map.size);
    bt_unmap_file(&map);
    bt_free(path);
    return st;
}

static uint64_t mix_header(const bt_shard *s, uint64_t h)
{
    uint64_t n = 0;
    if (s->map.size < sizeof n) return bt_checksum(h, NULL, 0);
    memcpy(&n, s->map.data, sizeof n); /* checked when the shard was opened, but files change */
    size_t rest = s->map.size - sizeof n;
    return bt_checksum(h, s->map.data, sizeof n + (n < rest ? (size_t)n : rest));
}

static bt_status fingerprint(const bt_model *m, uint64_t *out, bt_error *e)
{
    static const char *const tokenizer_files[] = {"tokenizer.json", "tokenizer_config.json", "tiktoken.model"};
    size_t n;
    const char *config = bt_config_text(m->config, &n);
    uint64_t h = bt_checksum(0, config, n);
    for (size_t i = 0; i < sizeof tokenizer_files / sizeof tokenizer_files[0]; i++) {
        bt_status st = mix_file(bt_model_folder(m), tokenizer_files[i], &h, e);
        if (st != BT_OK) return st;
    }
    for (size_t i = 0; i < bt_tensors_n_shards(m->tensors); i++) h = mix_header(bt_tensors_shard(m->tensors, i), h);
    for (size_t i = 0; i < bt_tensors_count(m->tensors); i++) {
        const bt_tensor *t = bt_tensors_at(m->tensors, i);
        h = bt_checksum(h, t->data, t->size < TENSOR_BYTES ? (size_t)t->size : TENSOR_BYTES);
    }
    *out = h;
    return BT_OK;
}

bt_status bt_session_file_begin(const bt_engine *g, bt_session_file *f, bt_error *e)
{
    memset(f, 0, sizeof *f);
    const char *kv = bt_dtype_name(g->tape->limits.kv_dtype);
    for (size_t i = 0; i < sizeof f->kv_dtype - 1 && kv[i] != '\0'; i++)
        f->kv_dtype[i] = (char)(kv[i] >= 'A' && kv[i] <= 'Z' ? kv[i] + ('a' - 'A') : kv[i]); /* as --kv-dtype has it */
    (void)snprintf(f->cpu_level, sizeof f->cpu_level, "%s", bt_engine_cpu_level(g));
    return fingerprint(g->model, &f->model, e);
}

bt_status bt_session_file_match(const bt_session_file *f, const bt_session_file *mine, bt_error *e)
{
    if (f->model != mine->model)
        return bt_fail(e, BT_ERR_FORMAT,
                       "the session belongs to another model: configuration, tokenizer or weights "
                       "differ");
    if (strcmp(f->kv_dtype, mine->kv_dtype) != 0)
        return bt_fail(e, BT_ERR_FORMAT,
                       "the session was saved with KV type %s, this run has %s: choose it by --kv-dtype", f->kv_dtype,
                       mine->kv_dtype);
    return BT_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static uint64_t header_checksum(const file_header *h)
{
    return bt_checksum(0, h, offsetof(file_header, header_checksum));
}

bt_status bt_session_file_write(const char *path, const bt_session_file *f, bt_error *e)
{
    file_header h = {
        .version = VERSION,
        .header_bytes = sizeof h,
        .model = f->model,
        .messages_bytes = f->messages_size,
        .messages_checksum = bt_checksum(0, f->messages, f->messages_size),
        .snapshot_bytes = f->snapshot_size,
        .snapshot_checksum = bt_checksum(0, f->snapshot, f->snapshot_size),
    };
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.kv_dtype, f->kv_dtype, sizeof h.kv_dtype);
    memcpy(h.cpu_level, f->cpu_level, sizeof h.cpu_level);
    h.header_checksum = header_checksum(&h);
    bt_output *o;
    bt_status st = bt_output_open_private(path, &o, e);
    if (st != BT_OK) return st;
    st = bt_output_write(o, &h, sizeof h, e);
    if (st == BT_OK) st = bt_output_write(o, f->messages, f->messages_size, e);
    if (st == BT_OK) st = bt_output_write(o, f->snapshot, f->snapshot_size, e);
    if (st == BT_OK) return bt_output_commit(o, e);
    bt_output_abandon(o);
    return st;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

bool bt_session_file_begins(const void *data, size_t size)
{
    return size >= sizeof MAGIC && memcmp(data, MAGIC, sizeof MAGIC) == 0;
}

static bool is_name(const char name[BT_SESSION_NAME_BYTES])
{
    size_t n = strnlen(name, BT_SESSION_NAME_BYTES);
    for (size_t i = n; i < BT_SESSION_NAME_BYTES; i++)
        if (name[i] != '\0') return false;
    return n > 0 && n < BT_SESSION_NAME_BYTES;
}

static bt_status check_header(const file_header *h, size_t size, bt_error *e)
{
    if (h->version != VERSION)
        return bt_fail(e, BT_ERR_UNSUPPORTED, "the session file has version %" PRIu32 ", this build reads %d",
                       h->version, VERSION);
    if (h->header_checksum != header_checksum(h))
        return bt_fail(e, BT_ERR_FORMAT, "the session file is damaged: the checksum of its header does not match");
    if (h->header_bytes != sizeof *h || !is_name(h->kv_dtype) || !is_name(h->cpu_level))
        return bt_fail(e, BT_ERR_FORMAT, "the session file's header makes no sense");
    uint64_t rest = size - sizeof *h;
    if (h->messages_bytes > MESSAGES_BYTES_MAX || h->messages_bytes > rest ||
        h->snapshot_bytes != rest - h->messages_bytes)
        return bt_fail(e, BT_ERR_FORMAT,
                       "the session file is %zu bytes long, its header speaks of %" PRIu64 " for messages and %" PRIu64
                       " for the snapshot",
                       size, h->messages_bytes, h->snapshot_bytes);
    return BT_OK;
}

bt_status bt_session_file_parse(const void *data, size_t size, bt_session_file *f, bt_error *e)
{
    const uint8_t *at = data;
    file_header h;
    if (!bt_session_file_begins(data, size)) return bt_fail(e, BT_ERR_FORMAT, "this is no session file");
    if (size < sizeof h)
        return bt_fail(e, BT_ERR_FORMAT, "the session file ends within its header, after %zu bytes", size);
    memcpy(&h, at, sizeof h);
    bt_status st = check_header(&h, size, e);
    if (st != BT_OK) return st;
    bt_session_file out = {
        .model = h.model,
        .messages = (const char *)at + sizeof h,
        .messages_size = (size_t)h.messages_bytes,
        .snapshot = at + sizeof h + h.messages_bytes,
        .snapshot_size = (size_t)h.snapshot_bytes,
    };
    if (bt_checksum(0, out.messages, out.messages_size) != h.messages_checksum)
        return bt_fail(e, BT_ERR_FORMAT, "the session file is damaged: the checksum of its messages does not match");
    if (bt_checksum(0, out.snapshot, out.snapshot_size) != h.snapshot_checksum)
        return bt_fail(e, BT_ERR_FORMAT, "the session file is damaged: the checksum of its snapshot does not match");
    memcpy(out.kv_dtype, h.kv_dtype, sizeof out.kv_dtype);
    memcpy(out.cpu_level, h.cpu_level, sizeof out.cpu_level);
    *f = out;
    return BT_OK;
}

void bt_session_file_reseal(void *data, size_t size)
{
    uint8_t *at = data;
    file_header h;
    if (size < sizeof h) return;
    memcpy(&h, at, sizeof h);
    size_t rest = size - sizeof h, n = h.messages_bytes < rest ? (size_t)h.messages_bytes : rest;
    h.messages_checksum = bt_checksum(0, at + sizeof h, n);
    h.snapshot_checksum = bt_checksum(0, at + sizeof h + n, rest - n);
    h.header_checksum = header_checksum(&h);
    memcpy(at, &h, sizeof h);
}
