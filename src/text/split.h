/*
 * Pre-tokenising: cutting text into the pieces that are merged on their own. A split finds the matches of a pattern and
 * says what becomes of them and of the text between; a tokenizer applies several in turn.
 */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include "baltoro.h"

typedef struct bt_span { /* of a text */
    size_t at, size;
} bt_span;

typedef struct bt_spans { /* a growing list; bt_free(data) when done */
    bt_span *data;
    size_t n, capacity;
} bt_spans;

bt_status bt_spans_add(bt_spans *list, size_t at, size_t size, bt_error *e);

typedef enum bt_split_behavior { /* what becomes of a match, by Hugging Face's names */
                                 BT_SPLIT_REMOVED,
                                 BT_SPLIT_ISOLATED,             /* a piece of its own */
                                 BT_SPLIT_MERGED_WITH_PREVIOUS, /* joins the text before it */
                                 BT_SPLIT_MERGED_WITH_NEXT,     /* joins the text behind it */
                                 BT_SPLIT_CONTIGUOUS,           /* adjacent matches become one piece */
} bt_split_behavior;

typedef struct bt_splitter bt_splitter; /* a compiled pattern and its use; immutable, may be shared */

/* The pattern is Oniguruma's (see pattern.h), or with `literal` a text to be found as it is. With `invert` the text
 * between matches counts as the match and the matches as the text between. */
bt_status bt_splitter_open(const char *pattern, size_t n, bool literal, bt_split_behavior behavior, bool invert,
                           bt_splitter **out, bt_error *e);
void bt_splitter_close(bt_splitter *s);

typedef struct bt_splitting bt_splitting; /* scratch of one encoding */

/* For texts of up to text_bytes in all, each going through up to n_splits splits: that bounds the work, so that no
 * pattern can run on for ever. With `counted` every byte that the matcher touches, forwards and backwards, is counted
 * (slow: for tests of growth). */
bt_status bt_splitting_open(size_t text_bytes, size_t n_splits, bool counted, bt_splitting **out, bt_error *e);
void bt_splitting_close(bt_splitting *w);
uint64_t bt_splitting_n_steps(const bt_splitting *w); /* bytes touched so far; 0 unless counted */

/* Appends to *out the pieces of piece `in` of the text, none of them empty. The pattern sees nothing outside `in`. The
 * text must be valid UTF-8. */
bt_status bt_split(const bt_splitter *s, bt_splitting *w, const char *text, bt_span in, bt_spans *out, bt_error *e);

#endif
