/* What the tests of both kinds of tokenizer files share; the header says what each does. */
#include "tokenizer_unit.h"

#include <pthread.h>

#include "base/arena.h"
#include "text/bpe.h"

void unit_expect_listed(const bt_tokenizer *t, const char *text, unsigned flags, const char *ids)
{
    int32_t *got = NULL;
    size_t n = 0;
    bt_error e;
    bt_text listed = {0};
    if (bt_tokenizer_encode(t, text, strlen(text), flags, &got, &n, &e) != BT_OK) fail_msg("%s", e.message);
    bt_text_puts(&listed, "");
    for (size_t i = 0; i < n; i++) bt_text_printf(&listed, i == 0 ? "%d" : " %d", (int)got[i]);
    if (strcmp(listed.data, ids) != 0) fail_msg("\"%s\" gives %s, expected %s", text, listed.data, ids);
    bt_text_free(&listed);
    bt_free(got);
}

void unit_expect_refusal(bt_status got, const bt_error *e, bt_status status, const char *named)
{
    if (got == BT_OK) fail_msg("accepted, but should name \"%s\"", named);
    if (strstr(e->message, named) == NULL) fail_msg("\"%s\" does not name \"%s\"", e->message, named);
    if (got != status || e->status != status) fail_msg("status %d for \"%s\"", (int)got, e->message);
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

uint64_t unit_merge_letters(bt_vocab *v, size_t n, size_t n_tokens)
{
    bt_bpe bpe = {0};
    bt_ids ids = {0};
    bt_error e;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, 'a', n);
    assert_int_equal(bt_vocab_finish(v, -1, &e), BT_OK);
    assert_int_equal(bt_bpe_encode(v, &bpe, text, n, &ids, &e), BT_OK);
    assert_int_equal(ids.n, n_tokens);
    uint64_t steps = bpe.n_steps;
    free(text);
    bt_free(ids.data);
    bt_bpe_free(&bpe);
    bt_vocab_free(v);
    return steps;
}

/* Of encoding up to `bytes` bytes of `what`, again and again, which decode to the same again. */
static uint64_t count_steps(const bt_tokenizer *t, const char *what, size_t bytes, bool merges_all)
{
    size_t size = strlen(what), n_ids = 0, back_size = 0;
    char *text = malloc(bytes), *back = NULL;
    int32_t *ids = NULL;
    bt_encode_steps steps;
    bt_error e;
    assert_non_null(text);
    bytes -= bytes % size;
    for (size_t at = 0; at < bytes; at += size) memcpy(text + at, what, size);
    if (bt_tokenizer_encode_counted(t, text, bytes, BT_TEXT_SPECIAL, &ids, &n_ids, &steps, &e) != BT_OK) {
        fail_msg("%s", e.message);
    }
    assert_true(steps.scanned >= bytes);
    assert_true(steps.split >= bytes);
    if (merges_all) assert_true(steps.merged >= n_ids);
    assert_int_equal(bt_tokenizer_decode(t, ids, n_ids, BT_TEXT_SPECIAL, &back, &back_size, &e), BT_OK);
    assert_int_equal(back_size, bytes);
    assert_memory_equal(back, text, bytes);
    free(text);
    bt_free(back);
    bt_free(ids);
    return steps.scanned + steps.split + steps.merged;
}

void unit_expect_linear(const bt_tokenizer *t, const char *what, size_t bytes, bool merges_all)
{
    uint64_t half = count_steps(t, what, bytes, merges_all), whole = count_steps(t, what, 2 * bytes, merges_all);
    if (whole * 10 > half * 23 || whole > (uint64_t)2 * bytes * 20 * 4) {
        fail_msg("\"%s\": %llu steps, then %llu", what, (unsigned long long)half, (unsigned long long)whole);
    }
}

/* ---- threads and memory ------------------------------------------------------------------------------------------ */

typedef struct job {
    const bt_tokenizer *tokenizer;
    const char *text;
} job;

/* NULL if two results differ: cmocka's checks belong to the thread that runs the test. */
static void *encode_often(void *user)
{
    const job *j = user;
    size_t size = strlen(j->text), n_first = 0, n = 0;
    int32_t *first = NULL, *ids = NULL;
    bool same = bt_tokenizer_encode(j->tokenizer, j->text, size, BT_TEXT_SPECIAL, &first, &n_first, NULL) == BT_OK;
    for (int i = 0; i < 200 && same; i++) {
        same = bt_tokenizer_encode(j->tokenizer, j->text, size, BT_TEXT_SPECIAL, &ids, &n, NULL) == BT_OK &&
               n == n_first && memcmp(ids, first, n * sizeof *ids) == 0;
        bt_free(ids);
    }
    bt_free(first);
    return same ? user : NULL;
}

void unit_expect_same_in_threads(const bt_tokenizer *t, const char *text)
{
    job j = {t, text};
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &j), 0);
    for (size_t i = 0; i < 4; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &j);
    }
}

#ifdef BT_TEST_BUILD
void unit_fail_allocations(unit_attempt attempt, void *user)
{
    size_t n_failed = 0, n_fine = 0;
    for (long n = 0; n_fine < 20; n++) {
        bt_error e;
        assert_true(n < 5000);
        long n_live = bt_alloc_n_live();
        bt_alloc_fail_after(n);
        bt_status st = attempt(user, &e);
        bt_alloc_fail_after(-1);
        if (st == BT_OK) {
            n_fine++;
        } else {
            n_failed++;
            n_fine = 0;
            if (st != BT_ERR_MEMORY || e.status != st) fail_msg("allocation %ld: %s", n, e.message);
        }
        assert_int_equal(bt_alloc_n_live(), n_live);
    }
    assert_true(n_failed > 30);
}
#endif
