/*
 * Two kinds of cuts, in characters: after every 400,000, and within such a block where more than 25,000 in a row are
 * all white space (as Python's str.isspace has it) or all not: before the 25,001st, from which counting begins anew.
 * They were made to spare a library long pieces, which we would not need; but nothing is recognised or merged across
 * them, not even a special token, so they show in the ids of long texts and must be reproduced to the character.
 */
#include "text/cut.h"

#include "base/utf8.h"
#include "text/pytext.h"

#define BLOCK_CHARS_MAX 400000
#define RUN_CHARS_MAX   25000

bool bt_cut_next(bt_cutter *c, size_t *at, size_t *size)
{
    if (c->at == c->size) return false;
    size_t end = c->at, n_in_run = 0;
    bool run_is_space = false;
    if (c->n_in_block == BLOCK_CHARS_MAX) c->n_in_block = 0;
    if (c->size <= RUN_CHARS_MAX) end = c->size; /* so few bytes are no more characters */
    while (end < c->size && c->n_in_block < BLOCK_CHARS_MAX) {
        uint32_t character = 0;
        size_t length = bt_utf8_decode(c->text + end, c->size - end, &character);
        bool is_space = bt_py_is_space(character);
        n_in_run = n_in_run > 0 && is_space == run_is_space ? n_in_run + 1 : 1;
        run_is_space = is_space;
        if (n_in_run > RUN_CHARS_MAX) break;
        c->n_in_block++;
        end += length;
    }
    *at = c->at;
    *size = end - c->at;
    c->n_scanned += *size;
    c->at = end;
    return true;
}
