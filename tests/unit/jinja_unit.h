/* What the tests of the template interpreter share: rendering at a fixed time, and reading files of cases. */
#ifndef TESTS_JINJA_UNIT_H
#define TESTS_JINJA_UNIT_H

#include "unit.h"

#include "base/file.h"
#include "base/json.h"
#include "text/jinja.h"

/* 2026-11-29 12:00:00, a Sunday: what the expected texts were made with. */
static const struct tm jinja_now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 29, .tm_hour = 12, .tm_yday = 332};

static inline bt_status jinja_render(const char *source, const char *context, const bt_jinja_options *options,
                                     bt_rendered *out, bt_error *e)
{
    bt_jinja_options o = options == NULL ? (bt_jinja_options){.now = &jinja_now} : *options;
    return bt_jinja_render_text("t.jinja", source, strlen(source), context, strlen(context), &o, out, e);
}

/* The text that a template gives; the test fails if there is none. bt_free by the caller. */
static inline char *jinja_text(const char *source, const char *context)
{
    bt_rendered r = {0};
    bt_error e = {BT_OK, ""};
    if (jinja_render(source, context, NULL, &r, &e) != BT_OK) fail_msg("%s: %s", source, e.message);
    bt_free(r.runs);
    return r.text;
}

static inline void jinja_check(const char *source, const char *context, const char *expected)
{
    char *text = jinja_text(source, context);
    assert_string_equal(text, expected);
    bt_free(text);
}

/* The template must fail with just this message. */
static inline void jinja_check_error(const char *source, const char *context, bt_status status, const char *message)
{
    bt_rendered r = {0};
    bt_error e = {BT_OK, ""};
    bt_status got = jinja_render(source, context, NULL, &r, &e);
    bt_rendered_free(&r);
    assert_string_equal(e.message, message);
    assert_int_equal(got, status);
}

static inline char *jinja_read(const char *folder, const char *name, size_t *size)
{
    char path[8192], *text = NULL;
    bt_error e = {BT_OK, ""};
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (bt_read_file(path, (size_t)16 << 20, &text, size, &e) != BT_OK) fail_msg("%s", e.message);
    return text;
}

/* One case of a file: strings are copies, `context` is the JSON text of its object. */
typedef struct jinja_case {
    char *name, *template, *file, *use, *expected, *context;
    size_t template_size, expected_size;
    bool must_fail;
} jinja_case;

static inline char *jinja_copy(const char *text, size_t size)
{
    char *copy = malloc(size + 1);
    assert_non_null(copy);
    if (size > 0) memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

/* The JSON text of the value that comes next. */
static inline char *jinja_raw(bt_json *j)
{
    while (*j->at == ' ' || *j->at == '\n') j->at++;
    const char *start = j->at;
    assert_true(bt_json_skip(j, bt_json_next(j)));
    return jinja_copy(start, (size_t)(j->at - start));
}

static inline void jinja_read_member(bt_json *j, jinja_case *c)
{
    char **into = bt_json_text_is(j, "name")       ? &c->name
                  : bt_json_text_is(j, "template") ? &c->template
                  : bt_json_text_is(j, "file")     ? &c->file
                  : bt_json_text_is(j, "use")      ? &c->use
                  : bt_json_text_is(j, "expected") ? &c->expected
                                                   : NULL;
    if (bt_json_text_is(j, "context")) {
        c->context = jinja_raw(j);
        return;
    }
    bool error = bt_json_text_is(j, "error");
    bt_json_kind kind = bt_json_next(j);
    c->must_fail = c->must_fail || error;
    assert_true(kind == BT_JSON_STRING || (error && kind == BT_JSON_TRUE));
    if (into == NULL) return;
    *into = jinja_copy(j->text, j->size);
    if (into == &c->template) c->template_size = j->size;
    if (into == &c->expected) c->expected_size = j->size;
}

/* The next case of an array of them; false at its end. */
static inline bool jinja_next_case(bt_json *j, jinja_case *c)
{
    *c = (jinja_case){0};
    bt_json_kind kind = bt_json_next(j);
    if (kind == BT_JSON_ARRAY_END) return false;
    assert_int_equal(kind, BT_JSON_OBJECT);
    while ((kind = bt_json_next(j)) == BT_JSON_KEY) jinja_read_member(j, c);
    assert_int_equal(kind, BT_JSON_OBJECT_END);
    assert_true(c->must_fail != (c->expected != NULL));
    return true;
}

static inline void jinja_free_case(jinja_case *c)
{
    free(c->name);
    free(c->template);
    free(c->file);
    free(c->use);
    free(c->expected);
    free(c->context);
}

/* 1 if the case went wrong, with a line that says how. */
static inline int jinja_run_case(const char *label, const char *source, size_t size, const char *context,
                                 const jinja_case *c)
{
    bt_rendered r = {0};
    bt_error e = {BT_OK, ""};
    const bt_jinja_options o = {.now = &jinja_now};
    bt_status status = bt_jinja_render_text("t.jinja", source, size, context, strlen(context), &o, &r, &e);
    bool good = c->must_fail ? status != BT_OK && strstr(e.message, "line ") != NULL
                             : status == BT_OK && r.size == c->expected_size &&
                                   (r.size == 0 || memcmp(r.text, c->expected, r.size) == 0);
    if (!good) {
        print_error("%s: wanted %s\n  got %s\n", label, c->must_fail ? "an error" : c->expected,
                    status == BT_OK ? r.text : e.message);
    }
    bt_rendered_free(&r);
    return !good;
}

#endif
