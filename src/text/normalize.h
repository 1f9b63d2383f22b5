/* Unicode normalisation form C, for tokenizers that ask for it. */
#ifndef TEXT_NORMALIZE_H
#define TEXT_NORMALIZE_H

#include "baltoro.h"

typedef struct bt_nfc_piece { /* of the input, and what became of it */
    size_t from, from_size;
    size_t to, to_size;
} bt_nfc_piece;

typedef struct bt_nfc { /* scratch, reused from text to text; zero it, free it with bt_nfc_free */
    char *text;         /* the result, where it differs from the input */
    size_t text_bytes;
    int32_t *codes;
    size_t n_codes_max;
    uint64_t n_steps;     /* bytes and characters handled: what a growth test counts */
    bool keeps_pieces;    /* set it to have the pieces told; what is between them stays as it is */
    bt_nfc_piece *pieces; /* [n_pieces] of the last text, ascending; none if it is unchanged */
    size_t n_pieces, pieces_capacity;
} bt_nfc;

void bt_nfc_free(bt_nfc *n);

/* *out [*out_size]: the NFC of text [size], which must be valid UTF-8. The text itself where nothing can change, else
 * borrowed until the next call. */
bt_status bt_nfc_apply(bt_nfc *n, const char *text, size_t size, const char **out, size_t *out_size, bt_error *e);

#endif
