/* Added tokens: finding their texts in a text, as Hugging Face's tokenizers do, flags included. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include "text/split.h"

typedef struct bt_added_token {
    const char *text; /* [size] as written in the file */
    size_t size;
    int32_t id;
    bool single_word; /* only where no word character touches it */
    bool lstrip;      /* takes the white space before it */
    bool rstrip;      /* and behind it */
    bool normalized;  /* is looked for in the normalised text, in its own normalised form */
    bool special;
} bt_added_token;

typedef struct bt_added bt_added; /* a set of tokens to look for */

bt_status bt_added_open(bt_added **out, bt_error *e);
void bt_added_close(bt_added *a);
/* `text` is what to look for; of two equal ones the first counts (*known: this is not the first). The token's flags are
 * copied. */
bt_status bt_added_add(bt_added *a, const char *text, size_t size, const bt_added_token *token, bool *known,
                       bt_error *e);
bool bt_added_is_empty(const bt_added *a);

typedef struct bt_added_scan { /* set text and size, and allowed if need be; zero the rest */
    const char *text;
    size_t size;
    const bt_spans *allowed; /* ascending and apart: a token is found only inside one of them. NULL: everywhere */
    size_t allowed_i;        /* private: the first that does not end before `at` */
    size_t at;               /* private: where to look on */
    size_t done;             /* text before this belongs to a token or was given out */
    uint64_t n_steps;        /* bytes looked at: what a growth test counts */
} bt_added_scan;

/* The next token in the text: *id, and before it the text [*gap, *gap + *gap_size) that belongs to no token (often
 * empty). At the end: false, with the last gap. */
bool bt_added_next(const bt_added *a, bt_added_scan *s, size_t *gap, size_t *gap_size, int32_t *id);

#endif
