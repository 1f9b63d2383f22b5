/*
 * Writing safetensors: the header comes first in the file, so all tensors are declared before the first byte of data.
 * Offsets follow the order of declaration; the header is padded with spaces, so that the data begins on a multiple
 * of 64: a cache line, and what kernels like best.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "format/names.h"
#include "format/safetensors.h"

struct bt_safetensors_writer {
    bt_output *output;
    char *path;
    uint64_t written, declared; /* bytes of data */
};

static bt_name name_of_decl(const void *items, size_t i)
{
    const bt_tensor_decl *decls = items;
    return (bt_name){decls[i].name, strlen(decls[i].name)};
}

static bt_status check_names(const char *path, const bt_tensor_decl *decls, size_t n, bt_error *e)
{
    bt_names names;
    if (!bt_names_init(&names, n, name_of_decl, decls)) return bt_fail(e, BT_ERR_MEMORY, "%s: no memory", path);
    bt_status st = BT_OK;
    for (size_t i = 0; i < n && st == BT_OK; i++) {
        if (strcmp(decls[i].name, "__metadata__") == 0 || bt_names_add(&names, i) != i) {
            st =
                bt_fail(e, BT_ERR_USAGE, "%s: tensor \"%s\" cannot be written: the name is taken", path, decls[i].name);
        }
    }
    bt_names_done(&names);
    return st;
}

/* Bytes of one tensor; false if they cannot be counted, or are no whole number. */
static bool decl_bytes(const bt_tensor_decl *d, uint64_t *bytes)
{
    uint64_t bits = bt_dtype_bits(d->dtype);
    if (bits == 0 || d->n_dims > BT_DIMS_MAX) return false;
    for (unsigned i = 0; i < d->n_dims; i++) {
        if (d->shape[i] != 0 && bits > UINT64_MAX / d->shape[i]) return false;
        bits *= d->shape[i];
    }
    *bytes = bits / 8;
    return bits % 8 == 0;
}

/* The header's JSON; *declared the bytes of all tensors. Before it in the file lie 8 bytes with its length. */
static bt_status describe(bt_text *t, const char *path, const bt_tensor_decl *decls, size_t n, uint64_t *declared,
                          bt_error *e)
{
    uint64_t at = 0;
    bt_text_puts(t, "{\"__metadata__\":{\"format\":\"pt\"}"); /* transformers refuses files without a format */
    for (size_t i = 0; i < n; i++) {
        const bt_tensor_decl *d = &decls[i];
        uint64_t bytes = 0;
        if (!decl_bytes(d, &bytes) || bytes > UINT64_MAX - at) {
            return bt_fail(e, BT_ERR_USAGE, "%s: tensor \"%s\" cannot be written: its size is no number of bytes", path,
                           d->name);
        }
        bt_text_puts(t, ",");
        bt_text_json_string(t, d->name, strlen(d->name));
        bt_text_printf(t, ":{\"dtype\":\"%s\",\"shape\":[", bt_dtype_name(d->dtype));
        for (unsigned k = 0; k < d->n_dims; k++) bt_text_printf(t, "%s%" PRIu64, k == 0 ? "" : ",", d->shape[k]);
        bt_text_printf(t, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + bytes);
        at += bytes;
    }
    bt_text_puts(t, "}");
    while (!t->failed && (8 + t->size) % BT_SAFETENSORS_ALIGN != 0) bt_text_puts(t, " ");
    *declared = at;
    return bt_text_ok(t) ? BT_OK : bt_fail(e, BT_ERR_MEMORY, "%s: no memory for the header", path);
}

bt_status bt_safetensors_header(const char *path, const bt_tensor_decl *decls, size_t n, bt_text *out,
                                uint64_t *data_bytes, bt_error *e)
{
    bt_text json = {NULL, 0, 0, false};
    bt_status st = check_names(path, decls, n, e);
    if (st == BT_OK) st = describe(&json, path, decls, n, data_bytes, e);
    if (st == BT_OK) {
        char length[8]; /* little-endian, whatever this machine is */
        for (unsigned i = 0; i < sizeof length; i++) length[i] = (char)((uint64_t)json.size >> 8 * i & 0xff);
        bt_text_add(out, length, sizeof length);
        bt_text_add(out, json.data, json.size);
        if (!bt_text_ok(out)) st = bt_fail(e, BT_ERR_MEMORY, "%s: no memory for the header", path);
    }
    bt_text_free(&json);
    return st;
}

static bt_status write_header(bt_safetensors_writer *w, const bt_tensor_decl *decls, size_t n, bt_error *e)
{
    bt_text header = {NULL, 0, 0, false};
    bt_status st = bt_safetensors_header(w->path, decls, n, &header, &w->declared, e);
    if (st == BT_OK) st = bt_output_open(w->path, &w->output, e);
    if (st == BT_OK) st = bt_output_write(w->output, header.data, header.size, e);
    bt_text_free(&header);
    return st;
}

bt_status bt_safetensors_create(const char *path, const bt_tensor_decl *decls, size_t n, bt_safetensors_writer **out,
                                bt_error *e)
{
    bt_safetensors_writer *w = bt_calloc(1, sizeof *w);
    if (w != NULL) w->path = bt_strdup(path);
    if (w == NULL || w->path == NULL) {
        bt_safetensors_abandon(w);
        return bt_fail(e, BT_ERR_MEMORY, "%s: no memory to write it", path);
    }
    bt_status st = write_header(w, decls, n, e);
    if (st != BT_OK) {
        bt_safetensors_abandon(w);
        return st;
    }
    *out = w;
    return BT_OK;
}

bt_status bt_safetensors_write(bt_safetensors_writer *w, const void *data, size_t size, bt_error *e)
{
    if (size > w->declared - w->written) {
        return bt_fail(e, BT_ERR_USAGE, "%s: more data than the %" PRIu64 " bytes that were declared", w->path,
                       w->declared);
    }
    bt_status st = bt_output_write(w->output, data, size, e);
    if (st == BT_OK) w->written += size;
    return st;
}

bt_status bt_safetensors_finish(bt_safetensors_writer *w, bt_error *e)
{
    bt_status st = BT_OK;
    if (w->written != w->declared) {
        st = bt_fail(e, BT_ERR_USAGE, "%s: %" PRIu64 " bytes of data were written, %" PRIu64 " declared", w->path,
                     w->written, w->declared);
    } else {
        st = bt_output_commit(w->output, e);
        w->output = NULL; /* freed in any case */
    }
    bt_safetensors_abandon(w);
    return st;
}

void bt_safetensors_abandon(bt_safetensors_writer *w)
{
    if (w == NULL) return;
    bt_output_abandon(w->output);
    bt_free(w->path);
    bt_free(w);
}
