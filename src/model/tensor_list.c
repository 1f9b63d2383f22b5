/*
 * The one list of tensors that a family gives: a growing array of specs whose names live in an arena. A failed
 * allocation is remembered and told once, so that families can list without a check per line.
 */
#include "model/model.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bt_tensor_spec *spec_new(bt_tensor_list *l, bt_class class, int layer)
{
    if (l->n_max != 0 && l->n == l->n_max) l->failed = l->is_too_long = true;
    if (l->failed) return NULL;
    if (l->n == l->capacity) {
        size_t capacity = l->capacity == 0 ? 256 : 2 * l->capacity;
        bt_tensor_spec *specs = bt_realloc(l->specs, capacity, sizeof *specs);
        if (specs == NULL) {
            l->failed = true;
            return NULL;
        }
        l->specs = specs;
        l->capacity = capacity;
    }
    bt_tensor_spec *s = &l->specs[l->n];
    memset(s, 0, sizeof *s);
    s->class = (uint8_t) class;
    s->layer = (int16_t)layer;
    return s;
}

static uint32_t spec_name(bt_tensor_list *l, bt_tensor_spec *s, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static uint32_t spec_name(bt_tensor_list *l, bt_tensor_spec *s, const char *format, va_list args)
{
    char name[256];
    int n = vsnprintf(name, sizeof name, format, args);
    assert(n > 0 && (size_t)n < sizeof name);
    s->name = bt_arena_strndup(l->arena, name, (size_t)n);
    if (s->name == NULL) {
        l->failed = true;
        return 0;
    }
    assert(l->n < BT_NONE);
    return (uint32_t)l->n++;
}

uint32_t bt_list_matrix(bt_tensor_list *l, bt_class class, int layer, size_t n_rows, size_t n_cols, const char *format,
                        ...)
{
    assert(n_rows > 0 && n_rows <= UINT32_MAX);
    assert(n_cols > 0 && n_cols <= UINT32_MAX);
    bt_tensor_spec *s = spec_new(l, class, layer);
    if (s == NULL) return 0;
    s->n_rows = (uint32_t)n_rows;
    s->n_cols = (uint32_t)n_cols;
    s->may_scale = true;
    va_list args;
    va_start(args, format);
    uint32_t i = spec_name(l, s, format, args);
    va_end(args);
    return i;
}

uint32_t bt_list_taps(bt_tensor_list *l, bt_class class, int layer, size_t n, size_t n_taps, const char *format, ...)
{
    assert(n > 0 && n <= UINT32_MAX);
    assert(n_taps > 0 && n_taps <= UINT32_MAX);
    bt_tensor_spec *s = spec_new(l, class, layer);
    if (s == NULL) return 0;
    s->n_rows = (uint32_t)n;
    s->n_cols = (uint32_t)n_taps;
    s->is_taps = true;
    va_list args;
    va_start(args, format);
    uint32_t i = spec_name(l, s, format, args);
    va_end(args);
    return i;
}

uint32_t bt_list_vector(bt_tensor_list *l, bt_class class, int layer, size_t n, const char *format, ...)
{
    assert(n > 0 && n <= UINT32_MAX);
    bt_tensor_spec *s = spec_new(l, class, layer);
    if (s == NULL) return 0;
    s->n_rows = 1;
    s->n_cols = (uint32_t)n;
    s->is_vector = true;
    va_list args;
    va_start(args, format);
    uint32_t i = spec_name(l, s, format, args);
    va_end(args);
    return i;
}
