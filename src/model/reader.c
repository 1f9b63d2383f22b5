/*
 * Every getter checks r->st first and returns something harmless after a fault: a family reads all its keys in a row
 * and looks once.
 */
#include "model/reader.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

void bt_read_note_default(bt_reader *r, const char *key, bool found)
{
    bt_defaults *d = r->defaults;
    if (found || r->st != BT_OK) return;
    assert(d->n < sizeof d->keys / sizeof *d->keys);
    d->keys[d->n++] = key;
}

bool bt_read_is_said(const bt_reader *r, const char *key)
{
    return bt_json_get(r->scope.object, key) != NULL;
}

size_t bt_read_need(bt_reader *r, const char *key, uint64_t max)
{
    uint64_t v = 1;
    if (r->st == BT_OK) r->st = bt_get_u64(r->scope, key, 1, max, &v, NULL, r->e);
    return (size_t)v;
}

size_t bt_read_count(bt_reader *r, const char *key, uint64_t fallback, uint64_t min, uint64_t max)
{
    uint64_t v = fallback;
    bool found = false;
    if (r->st == BT_OK) r->st = bt_get_u64(r->scope, key, min, max, &v, &found, r->e);
    if (r->st == BT_OK && v > max) /* the default, where others are smaller: eight experts a token, of four */
        r->st =
            bt_fail(r->e, BT_ERR_FORMAT, "%s: %s is missing, and its default %zu is more than the %zu possible here",
                    bt_config_file(r->scope.config), key, (size_t)v, (size_t)max);
    bt_read_note_default(r, key, found);
    return (size_t)v;
}

bool bt_read_flag(bt_reader *r, const char *key, bool fallback)
{
    bool v = fallback, found = false;
    if (r->st == BT_OK) r->st = bt_get_bool(r->scope, key, &v, &found, r->e);
    bt_read_note_default(r, key, found);
    return v;
}

double bt_read_number(bt_reader *r, const char *key, double fallback)
{
    double v = fallback;
    bool found = false;
    if (r->st == BT_OK) r->st = bt_get_f64(r->scope, key, &v, &found, r->e);
    bt_read_note_default(r, key, found);
    if (r->st == BT_OK && !(v >= BT_NUMBER_MIN && v <= BT_NUMBER_MAX)) {
        r->st = bt_fail(r->e, BT_ERR_FORMAT, "%s: %s is %g, expected a number from %g to %g",
                        bt_config_file(r->scope.config), key, v, BT_NUMBER_MIN, BT_NUMBER_MAX);
    }
    return v;
}

const char *bt_read_string(bt_reader *r, const char *key, const char *fallback)
{
    const char *v = fallback;
    bool found = false;
    if (r->st == BT_OK) r->st = bt_get_string(r->scope, key, &v, &found, r->e);
    bt_read_note_default(r, key, fallback == NULL ? bt_read_is_said(r, key) : found);
    return v;
}

void bt_read_refuse(bt_reader *r, bool bad, const char *key, const char *why)
{
    if (r->st != BT_OK || !bad) return;
    r->st = bt_fail(r->e, BT_ERR_UNSUPPORTED, "%s: %s %s", bt_config_file(r->scope.config), key, why);
}

void bt_read_must_be(bt_reader *r, const char *key, double neutral, const char *why)
{
    double v = neutral;
    bool found = false;
    if (r->st == BT_OK) r->st = bt_get_f64(r->scope, key, &v, &found, r->e);
    bt_read_refuse(r, found && v != neutral, key, why);
}

static bool is_default(const bt_defaults *d, const char *key)
{
    bool found = false;
    for (size_t i = 0; i < d->n; i++) found = found || strcmp(d->keys[i], key) == 0;
    return found;
}

static __attribute__((format(printf, 6, 0))) void tell_fact(bt_fact_fn fn, void *user, const bt_defaults *d,
                                                            const char *key, const char *json, const char *format,
                                                            va_list args)
{
    char words[256];
    (void)vsnprintf(words, sizeof words, format, args);
    fn(user, key, words, json, is_default(d, key));
}

void bt_fact(bt_fact_fn fn, void *user, const bt_defaults *d, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell_fact(fn, user, d, key, NULL, format, args);
    va_end(args);
}

void bt_fact_as(bt_fact_fn fn, void *user, const bt_defaults *d, const char *key, const char *json, const char *format,
                ...)
{
    va_list args;
    va_start(args, format);
    tell_fact(fn, user, d, key, json, format, args);
    va_end(args);
}

bt_exact bt_exactly(double v)
{
    bt_text t = {NULL, 0, 0, false};
    bt_exact x;
    bt_text_json_f64(&t, v);
    (void)snprintf(x.text, sizeof x.text, "%s", bt_text_ok(&t) ? t.data : "?");
    bt_text_free(&t);
    return x;
}
