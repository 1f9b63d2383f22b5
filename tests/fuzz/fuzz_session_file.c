/*
 * Session files: as they come, and with their checksums set right, so that what lies behind these is reached: the
 * sizes, the messages, and the snapshot in a session of a small model.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "tool/session_file.h"
#include "tool/talk.h"

static void check(bool truth)
{
    if (!truth) abort();
}

/* Opened once: tests run in the repository's root. */
static bt_session *session(void)
{
    static bt_model *model;
    static bt_engine *engine;
    static bt_session *open;
    const bt_engine_options o = {.n_threads = 1, .context = 32, .overcommit = true};
    if (open != NULL) return open;
    check(bt_model_open("tests/data/models/k2-dense", &(bt_model_options){.ablate = NULL}, &model, NULL) == BT_OK);
    check(bt_engine_open(model, &o, &engine, NULL) == BT_OK);
    check(bt_session_open(engine, &open, NULL) == BT_OK);
    return open;
}

static void read_file(const uint8_t *data, size_t size)
{
    bt_session_file f;
    bt_talk *t = NULL;
    if (bt_session_file_parse(data, size, &f, NULL) != BT_OK) return;
    check(f.messages_size <= size && f.snapshot_size <= size - f.messages_size);
    check(memchr(f.kv_dtype, '\0', sizeof f.kv_dtype) != NULL);
    check(memchr(f.cpu_level, '\0', sizeof f.cpu_level) != NULL);
    check(bt_talk_open(&t, NULL) == BT_OK);
    if (bt_talk_read(t, f.messages, f.messages_size, NULL) == BT_OK) {
        bt_text text = {0};
        bt_talk_write(t, &text);
        check(bt_talk_read(t, text.data, text.size, NULL) == BT_OK);
        bt_text_free(&text);
    }
    bt_talk_close(t);
    if (bt_session_restore(session(), f.snapshot, f.snapshot_size, NULL) == BT_OK)
        check(bt_session_length(session()) <= 32);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_file(data, size);
    uint8_t *sealed = malloc(size > 0 ? size : 1);
    check(sealed != NULL);
    if (size > 0) memcpy(sealed, data, size);
    bt_session_file_reseal(sealed, size);
    read_file(sealed, size);
    free(sealed);
    return 0;
}
