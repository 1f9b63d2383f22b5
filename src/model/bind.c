/*
 * Binding: every tensor that the family lists is found in the checkpoint by name, its dtype and shape are checked, and
 * becomes a view in the weight table; every tensor of the checkpoint is claimed by the list, or skipped by the family's
 * word. All faults are gathered into one message: a person with a wrong checkpoint wants the whole picture.
 *
 * A tensor's dtype comes from the header, never from config (the 0.9B's config says float32, its tensors are BF16).
 */
#include "model/bind.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct binder {
    bt_model *m;
    const bt_tensor **claimed; /* every tensor that the list uses; sorted by address at the end */
    size_t n_claimed;
    bt_fault_list faults;
} binder;

static void shape_text(const bt_tensor *t, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < t->n_dims && used < size; i++) {
        int n = snprintf(text + used, size - used, "%s%" PRIu64, i == 0 ? "" : ", ", t->shape[i]);
        if (n > 0) used += (size_t)n;
    }
}

static void fault_shape(binder *b, const bt_tensor *t, const char *expected)
{
    char shape[256];
    shape_text(t, shape, sizeof shape);
    bt_fault_add(&b->faults, "%s has shape [%s], the configuration makes it [%s]", t->name, shape, expected);
}

/* The block scales of an FP8 matrix: compressed-tensors calls them weight_scale, method fp8 weight_scale_inv; both
 * multiply (docs/k2_horizon.md, b). */
static void bind_scale(binder *b, const bt_tensor_spec *spec, bt_view *v)
{
    static const char *const suffixes[] = {"_scale", "_scale_inv"};
    const bt_tensor *scale = NULL;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char name[300];
        (void)snprintf(name, sizeof name, "%s%s", spec->name, suffixes[i]);
        const bt_tensor *t = bt_tensors_find(b->m->tensors, name);
        if (t == NULL) continue;
        b->claimed[b->n_claimed++] = t;
        if (scale != NULL) bt_fault_add(&b->faults, "%s has both _scale and _scale_inv", spec->name);
        scale = t;
    }
    if (scale == NULL) {
        bt_fault_add(&b->faults, "%s is F8_E4M3 but has no %s_scale or %s_scale_inv", spec->name, spec->name,
                     spec->name);
        return;
    }
    uint64_t rows = (spec->n_rows + BT_SCALE_BLOCK - 1) / BT_SCALE_BLOCK;
    uint64_t cols = (spec->n_cols + BT_SCALE_BLOCK - 1) / BT_SCALE_BLOCK;
    if (scale->n_dims != 2 || scale->shape[0] != rows || scale->shape[1] != cols) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "%" PRIu64 ", %" PRIu64, rows, cols);
        fault_shape(b, scale, expected);
        return;
    }
    if (scale->dtype != BT_F32 && scale->dtype != BT_BF16 && scale->dtype != BT_F16) {
        bt_fault_add(&b->faults, "%s is %s, expected F32, F16 or BF16", scale->name, scale->dtype_name);
        return;
    }
    v->scale = scale->data;
    v->scale_dtype = (uint8_t)scale->dtype;
    v->bytes += scale->size;
}

static bool has_shape(const bt_tensor_spec *spec, const bt_tensor *t)
{
    if (spec->is_padded) return t->n_elements >= spec->n_cols;
    if (spec->is_vector) return t->n_dims == 1 && t->shape[0] == spec->n_cols;
    if (spec->is_taps)
        return t->n_dims == 3 && t->shape[0] == spec->n_rows && t->shape[1] == 1 && t->shape[2] == spec->n_cols;
    return t->n_dims == 2 && t->shape[0] == spec->n_rows && t->shape[1] == spec->n_cols;
}

static void fault_spec_shape(binder *b, const bt_tensor_spec *spec, const bt_tensor *t)
{
    char expected[64];
    if (spec->is_vector)
        (void)snprintf(expected, sizeof expected, "%u%s", spec->n_cols, spec->is_padded ? " or more" : "");
    else
        (void)snprintf(expected, sizeof expected, "%u, %s%u", spec->n_rows, spec->is_taps ? "1, " : "", spec->n_cols);
    fault_shape(b, t, expected);
}

/* What lies behind a padded vector must not count; if it is not zero we have misunderstood the file. */
static void check_padding(binder *b, const bt_tensor_spec *spec, const bt_tensor *t)
{
    const uint8_t *bytes = t->data;
    for (uint64_t i = t->size / t->n_elements * spec->n_cols; i < t->size; i++) {
        if (bytes[i] == 0) continue;
        bt_fault_add(&b->faults, "%s has values behind the first %u, which should be zeros", t->name, spec->n_cols);
        return;
    }
}

/* One of the two tensors of a packed matrix, [n_rows, n_cols] of U8; NULL, and told, where it is not that. */
static const bt_tensor *find_part(binder *b, const bt_tensor_spec *spec, const char *suffix, uint32_t n_cols)
{
    char name[300], expected[64];
    (void)snprintf(name, sizeof name, "%s%s", spec->name, suffix);
    const bt_tensor *t = bt_tensors_find(b->m->tensors, name);
    if (t == NULL) {
        bt_fault_add(&b->faults, "%s is missing: %s_packed and %s_scale belong together", name, spec->name, spec->name);
        return NULL;
    }
    b->claimed[b->n_claimed++] = t;
    if (t->dtype != BT_U8 && t->dtype != BT_F8_E8M0) {
        bt_fault_add(&b->faults, "%s is %s, expected U8", t->name, t->dtype_name);
        return NULL;
    }
    if (t->n_dims == 2 && t->shape[0] == spec->n_rows && t->shape[1] == n_cols) return t;
    (void)snprintf(expected, sizeof expected, "%u, %u", spec->n_rows, n_cols);
    fault_shape(b, t, expected);
    return NULL;
}

static bool has_part(const binder *b, const bt_tensor_spec *spec, const char *suffix)
{
    char name[300];
    (void)snprintf(name, sizeof name, "%s%s", spec->name, suffix);
    return bt_tensors_find(b->m->tensors, name) != NULL;
}

/* By its codes; or it has lost them, and only its scales are left. */
static bool is_packed(const binder *b, const bt_tensor_spec *spec)
{
    return spec->may_pack && (has_part(b, spec, "_packed") || (has_part(b, spec, "_scale") && !has_part(b, spec, "")));
}

/* NAME_packed [n_rows, n_cols / 2] and NAME_scale [n_rows, n_cols / 32] (docs/kimi_k3.md, b). A plain NAME beside them
 * stays unclaimed, and is told. */
static void bind_packed(binder *b, const bt_tensor_spec *spec, bt_view *v)
{
    const bt_tensor *codes = find_part(b, spec, "_packed", spec->n_cols / 2);
    const bt_tensor *scales = find_part(b, spec, "_scale", spec->n_cols / BT_MXFP4_BLOCK);
    if (spec->n_cols > BT_MXFP4_COLS_MAX)
        bt_fault_add(&b->faults, "%s is packed in rows of %u codes, of which %u are supported at most", spec->name,
                     spec->n_cols, BT_MXFP4_COLS_MAX);
    if (codes == NULL || scales == NULL) return;
    *v = (bt_view){.data = codes->data,
                   .scale = scales->data,
                   .bytes = codes->size + scales->size,
                   .n_rows = spec->n_rows,
                   .n_cols = spec->n_cols,
                   .dtype = BT_MXFP4,
                   .layout = BT_LAYOUT_ROWS,
                   .scale_dtype = BT_F8_E8M0};
    b->m->n_parameters += (uint64_t)spec->n_rows * spec->n_cols;
}

static void bind_one(binder *b, const bt_tensor_spec *spec, bt_view *v)
{
    if (is_packed(b, spec)) {
        bind_packed(b, spec, v);
        return;
    }
    const bt_tensor *t = bt_tensors_find(b->m->tensors, spec->name);
    if (t == NULL) {
        bt_fault_add(&b->faults, "%s is missing", spec->name);
        return;
    }
    b->claimed[b->n_claimed++] = t;
    if (!has_shape(spec, t)) {
        fault_spec_shape(b, spec, t);
        return;
    }
    bool plain = t->dtype == BT_F32 || t->dtype == BT_F16 || t->dtype == BT_BF16;
    if (!plain && !(spec->may_scale && t->dtype == BT_F8_E4M3)) {
        bt_fault_add(&b->faults, "%s is %s, expected F32, F16 or BF16%s", spec->name, t->dtype_name,
                     spec->may_scale ? ", or F8_E4M3 with scales" : "");
        return;
    }
    v->data = t->data;
    v->bytes = t->size;
    v->n_rows = spec->n_rows;
    v->n_cols = spec->n_cols;
    v->dtype = (uint8_t)t->dtype;
    v->layout = BT_LAYOUT_ROWS;
    b->m->n_parameters += t->n_elements;
    if (spec->is_padded) check_padding(b, spec, t);
    if (t->dtype == BT_F8_E4M3) bind_scale(b, spec, v);
}

static int by_address(const void *a, const void *b)
{
    const bt_tensor *x = *(const bt_tensor *const *)a, *y = *(const bt_tensor *const *)b;
    return (x > y) - (x < y);
}

/* A head that is stored although the config ties it to the embedding: fine if it is equal, else one of them is wrong
 * and we cannot know which (case C19). */
static void check_tied_head(binder *b)
{
    const char *name = b->m->family->tied_head(b->m->shape);
    const bt_tensor *head = name == NULL ? NULL : bt_tensors_find(b->m->tensors, name);
    if (head == NULL) return;
    b->claimed[b->n_claimed++] = head;
    for (size_t i = 0; i < b->m->list.n; i++) {
        const bt_tensor_spec *spec = &b->m->list.specs[i];
        const bt_view *v = &b->m->views[i];
        if (spec->class != BT_CLASS_EMBEDDING || v->data == NULL) continue;
        if (head->dtype != v->dtype || head->size != v->bytes || memcmp(head->data, v->data, head->size) != 0) {
            bt_fault_add(&b->faults, "%s differs from %s although tie_word_embeddings is true", name, spec->name);
        }
        b->m->n_skipped++;
        b->m->skipped_bytes += head->size;
        return;
    }
}

/* Tensors that nothing claims: skipped by the family's word, or at fault. */
static void find_unclaimed(binder *b)
{
    qsort(b->claimed, b->n_claimed, sizeof(const bt_tensor *), by_address);
    size_t n = bt_tensors_count(b->m->tensors);
    for (size_t i = 0; i < n; i++) {
        const bt_tensor *t = bt_tensors_at(b->m->tensors, i);
        if (bsearch(&t, b->claimed, b->n_claimed, sizeof(const bt_tensor *), by_address) != NULL) continue;
        if (b->m->family->skip_tensor(t->name)) {
            b->m->n_skipped++;
            b->m->skipped_bytes += t->size;
        } else {
            bt_fault_add(&b->faults, "%s is unknown to this architecture", t->name);
        }
    }
}

bt_status bt_model_bind(bt_model *m, bt_error *e)
{
    binder *b = bt_calloc(1, sizeof *b);
    size_t n = m->list.n;
    m->views = bt_calloc(n, sizeof *m->views);
    m->classes = bt_calloc(n, sizeof *m->classes);
    const bt_tensor **claimed = bt_calloc(3 * n + 1, sizeof *claimed); /* each, at most two scales, a tied head */
    bt_status st = BT_OK;
    if (b == NULL || m->views == NULL || m->classes == NULL || claimed == NULL) {
        st = bt_fail(e, BT_ERR_MEMORY, "no memory to bind %zu tensors", n);
        goto done;
    }
    b->m = m;
    b->claimed = claimed;
    for (size_t i = 0; i < n; i++) {
        bind_one(b, &m->list.specs[i], &m->views[i]);
        m->classes[i] = m->list.specs[i].class;
    }
    check_tied_head(b);
    find_unclaimed(b);
    if (b->faults.n_total > 0) {
        st = bt_fail(e, BT_ERR_FORMAT, "the tensors do not fit %s: %s", bt_config_file(m->config),
                     bt_fault_text(&b->faults));
    }
done:
    bt_free(claimed);
    bt_free(b);
    return st;
}
