/* Unicode normalisation form C, for tokenizers that ask for it. */
#ifndef TEXT_NORMALIZE_H
#define TEXT_NORMALIZE_H

#include "baltoro.h"

typedef struct bt_nfc { /* scratch, reused from text to text; zero it, free it with bt_nfc_free */
    char *text;         /* the result, where it differs from the input */
    size_t text_bytes;
    int32_t *codes;
    size_t n_codes_max;
    uint64_t n_steps; /* bytes and characters handled: what a growth test counts */
} bt_nfc;

void bt_nfc_free(bt_nfc *n);

/* *out [*out_size]: the NFC of text [size], which must be valid UTF-8. The text itself where nothing can change, else
 * borrowed until the next call. */
bt_status bt_nfc_apply(bt_nfc *n, const char *text, size_t size, const char **out, size_t *out_size, bt_error *e);

#endif
