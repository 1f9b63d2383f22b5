/*
 * Chat templates: an interpreter for the Jinja2 that checkpoints ship, set up as transformers' apply_chat_template
 * does it (trim_blocks, lstrip_blocks, loop controls, immutable sandbox, tojson without HTML escapes).
 *
 * Every byte of every string knows whether it was written by the template or came from outside with a message, so
 * that the tokenizer can see to it that nobody outside types a control token. The rendered text therefore has runs of
 * origin.
 *
 * A template is outside data too: output, memory, steps and nesting are bounded, and what passes a bound is an error.
 * An unknown tag, filter, test or method is an error with its line and column, never skipped.
 */
#ifndef TEXT_JINJA_H
#define TEXT_JINJA_H

#include <time.h>

#include "baltoro.h"

typedef struct bt_jinja bt_jinja; /* a parsed template; immutable, may be shared between threads */

/* `name` is for messages, e.g. "chat_template.jinja". The source is copied; it must be UTF-8. */
bt_status bt_jinja_parse(const char *name, const char *source, size_t size, bt_jinja **out, bt_error *e);
void bt_jinja_free(bt_jinja *t); /* NULL is fine */

/* A string of the context that counts as template: the one at `path` ("bos_token", "messages[].role"), if it equals one
 * of the NULL-terminated `values`; any string there if `values` is NULL. "[]" stands for every element of an array. */
typedef struct bt_jinja_trust {
    const char *path;
    const char *const *values;
} bt_jinja_trust;

typedef struct bt_jinja_options {  /* all zero = the defaults */
    const bt_jinja_trust *trusted; /* [n_trusted] */
    size_t n_trusted;
    const struct tm *now;    /* what strftime_now shows; NULL: the local time */
    uint64_t steps_max;      /* 0: 50 million */
    size_t output_bytes_max; /* 0: 64 MiB, of text being built at one time */
    size_t memory_bytes_max; /* 0: 512 MiB, of values */
    unsigned depth_max;      /* 0: 1000, of nested evaluation; more is refused */
} bt_jinja_options;

typedef struct bt_origin_run {
    size_t size; /* bytes; never 0 */
    bool from_template;
} bt_origin_run;

typedef struct bt_piece {
    size_t size;   /* bytes; never 0 */
    bool is_token; /* one control token; else text, which holds none */
} bt_piece;

typedef struct bt_rendered { /* free with bt_rendered_free */
    char *text;              /* NUL-terminated after size bytes; UTF-8 */
    size_t size;
    bt_origin_run *runs; /* [n_runs], in order, alternating, covering the whole text */
    size_t n_runs;
    bt_piece *pieces; /* [n_pieces], covering the text, each tokenised by itself; NULL: whoever rendered does not say */
    size_t n_pieces;
} bt_rendered;

/* `context` is the JSON text of an object: the variables of the template. Key order is kept, integers and floats stay
 * apart, NaN and Infinity are accepted. `options` may be NULL. A failing template gives BT_ERR_USAGE if it called
 * raise_exception (the messages do not suit it), another status otherwise; the message names template, line, column. */
bt_status bt_jinja_render(const bt_jinja *t, const char *context, size_t context_size, const bt_jinja_options *options,
                          bt_rendered *out, bt_error *e);
void bt_rendered_free(bt_rendered *r); /* an all-zero one is fine */

/* Parse, render and free in one call. */
bt_status bt_jinja_render_text(const char *name, const char *source, size_t source_size, const char *context,
                               size_t context_size, const bt_jinja_options *options, bt_rendered *out, bt_error *e);

#endif
