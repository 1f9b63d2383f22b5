/*
 * What the tests of both kinds of tokenizer files share: ids said as a list, refusals, merges of one letter, work that
 * grows with the text, threads, allocations that fail.
 */
#ifndef TESTS_TOKENIZER_UNIT_H
#define TESTS_TOKENIZER_UNIT_H

#include "text_unit.h"

/* ids: "1 2 3" */
void unit_expect_listed(const bt_tokenizer *t, const char *text, unsigned flags, const char *ids);

/* An opening that gave `got` and `e` was refused with `status` and a message that names `named`. */
void unit_expect_refusal(bt_status got, const bt_error *e, bt_status status, const char *named);

/* Merges a text of n letters 'a' to n_tokens tokens of a vocabulary that still has to be finished, and frees it. The
 * steps of merging. */
uint64_t unit_merge_letters(bt_vocab *v, size_t n, size_t n_tokens);

/* Twice as many bytes of `what`, again and again, take about twice as many steps, and few for each byte. `merges_all`:
 * every id is merged, which takes a step; not so where a piece that is a token as a whole is just looked up. */
void unit_expect_linear(const bt_tokenizer *t, const char *what, size_t bytes, bool merges_all);

/* Four threads encode the text with the one tokenizer, each of them always to the same ids. */
void unit_expect_same_in_threads(const bt_tokenizer *t, const char *text);

/* Something that allocates; it frees what it got, and checks it where it succeeds. */
typedef bt_status (*unit_attempt)(void *user, bt_error *e);

/* The n-th allocation fails, for every n: an error that says so, nothing lost, the next attempt fine. (A failure inside
 * PCRE2's JIT compiler only means that there is no JIT.) Wants a build with BT_TEST_BUILD. */
void unit_fail_allocations(unit_attempt attempt, void *user);

#endif
