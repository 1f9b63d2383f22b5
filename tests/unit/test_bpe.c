/* Merging: the fast order is the slow order, and its steps grow as n log n. */
#include "tokenizer_unit.h"

#include "text/bpe.h"

#define N_LETTERS 3

/* A vocabulary over 'a', 'b', 'c' with random merges, the first `n` of which can be made from what is there. */
static void random_vocab(bt_vocab *v, size_t n, uint32_t *random)
{
    char keys[64][32] = {"a", "b", "c"}, parts[64][2][32];
    size_t n_keys = N_LETTERS, n_merges = 0;
    bt_error e;
    while (n_merges < n) {
        *random = *random * 1664525u + 1013904223u;
        const char *left = keys[(*random >> 8) % n_keys], *right = keys[(*random >> 20) % n_keys];
        char joined[64];
        (void)snprintf(joined, sizeof joined, "%s%s", left, right);
        if (strlen(joined) > 12) continue;
        bool known = false;
        for (size_t i = 0; i < n_keys; i++) known |= strcmp(keys[i], joined) == 0;
        memcpy(parts[n_merges][0], left, strlen(left) + 1);
        memcpy(parts[n_merges][1], right, strlen(right) + 1);
        n_merges++;
        if (!known) memcpy(keys[n_keys++], joined, strlen(joined) + 1);
    }
    for (size_t i = 0; i < n_keys; i++) {
        assert_int_equal(bt_vocab_add_key(v, keys[i], strlen(keys[i]), &e), BT_OK);
        v->keys[i].id = (int32_t)(i * 7 % 101); /* ids say nothing about ranks */
    }
    assert_int_equal(bt_vocab_index(v, &e), BT_OK);
    for (size_t i = 0; i < n_merges; i++) {
        const char *left = parts[i][0], *right = parts[i][1];
        assert_int_equal(bt_vocab_add_merge(v, left, strlen(left), right, strlen(right), &e), BT_OK);
    }
    assert_int_equal(bt_vocab_finish(v, -1, &e), BT_OK);
}

/* The definition: the pair of lowest rank, the leftmost of those, again and again. */
static size_t merge_slowly(const bt_vocab *v, int32_t *ids, size_t n)
{
    for (;;) {
        size_t best_at = 0;
        const bt_merge *best = NULL;
        for (size_t rank = 0; rank < v->n_merges && best == NULL; rank++) {
            for (size_t i = 0; i + 1 < n && best == NULL; i++) {
                if (ids[i] != v->merges[rank].left || ids[i + 1] != v->merges[rank].right) continue;
                best = &v->merges[rank];
                best_at = i;
            }
        }
        if (best == NULL) return n;
        ids[best_at] = best->merged;
        for (size_t i = best_at + 1; i + 1 < n; i++) ids[i] = ids[i + 1];
        n--;
    }
}

static void test_same_as_definition(void **state)
{
    (void)state;
    uint32_t random = 3;
    bt_bpe bpe = {0};
    bt_ids got = {0};
    bt_error e;
    for (int round = 0; round < 300; round++) {
        bt_vocab v = {0};
        random_vocab(&v, 1 + (size_t)round % 24, &random);
        for (int k = 0; k < 20; k++) {
            char text[48];
            int32_t ids[48];
            random = random * 1664525u + 1013904223u;
            size_t n = 1 + (random >> 24) % 48;
            for (size_t i = 0; i < n; i++) {
                random = random * 1664525u + 1013904223u;
                text[i] = (char)('a' + (random >> 16) % N_LETTERS);
                ids[i] = v.byte_ids[(uint8_t)text[i]];
            }
            got.n = 0;
            assert_int_equal(bt_bpe_encode(&v, &bpe, text, n, &got, &e), BT_OK);
            size_t n_expected = merge_slowly(&v, ids, n);
            assert_int_equal(got.n, n_expected);
            assert_memory_equal(got.data, ids, n_expected * sizeof *ids);
        }
        bt_vocab_free(&v);
    }
    bt_bpe_free(&bpe);
    bt_free(got.data);
}

/* aa, aaaa, aaaaaaaa ...: every letter merges, level by level. */
static uint64_t count_steps(size_t n)
{
    bt_vocab v = {0};
    bt_error e;
    char key[1025];
    memset(key, 'a', sizeof key);
    for (size_t size = 1, i = 0; size <= 1024; size *= 2, i++) {
        assert_int_equal(bt_vocab_add_key(&v, key, size, &e), BT_OK);
        v.keys[i].id = (int32_t)i;
    }
    assert_int_equal(bt_vocab_index(&v, &e), BT_OK);
    for (size_t size = 1; size < 1024; size *= 2) {
        assert_int_equal(bt_vocab_add_merge(&v, key, size, key, size, &e), BT_OK);
    }
    return unit_merge_letters(&v, n, n / 1024);
}

static void test_growth(void **state)
{
    (void)state;
    uint64_t before = count_steps(1 << 16);
    for (size_t log_n = 17; log_n <= 20; log_n++) {
        size_t n = (size_t)1 << log_n;
        uint64_t steps = count_steps(n);
        if (steps * 10 > before * 23) fail_msg("%zu letters: %llu steps", n, (unsigned long long)steps);
        assert_true(steps < 4 * n * log_n);
        assert_true(steps > n); /* it does count */
        before = steps;
    }
}

static void test_repeated_merge(void **state)
{
    (void)state;
    bt_vocab v = {0};
    bt_error e;
    const char *keys[] = {"a", "b", "c", "ab", "bc"};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(bt_vocab_add_key(&v, keys[i], strlen(keys[i]), &e), BT_OK);
        v.keys[i].id = (int32_t)i;
    }
    assert_int_equal(bt_vocab_index(&v, &e), BT_OK);
    assert_int_equal(bt_vocab_add_merge(&v, "a", 1, "b", 1, &e), BT_OK);
    assert_int_equal(bt_vocab_add_merge(&v, "b", 1, "c", 1, &e), BT_OK);
    assert_int_equal(bt_vocab_add_merge(&v, "a", 1, "b", 1, &e), BT_OK);
    assert_int_equal(bt_vocab_finish(&v, -1, &e), BT_OK);
    assert_int_equal(bt_vocab_rank(&v, 0, 1), 0); /* and not 2, which would make it a|bc */
    bt_bpe bpe = {0};
    bt_ids ids = {0};
    assert_int_equal(bt_bpe_encode(&v, &bpe, "abc", 3, &ids, &e), BT_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.data[0], 3);
    assert_int_equal(ids.data[1], 2);
    assert_int_equal(bt_bpe_encode(&v, &bpe, "abd", 3, &ids, &e), BT_ERR_FORMAT); /* no token for d */
    assert_non_null(strstr(e.message, "0x64"));
    bt_bpe_free(&bpe);
    bt_free(ids.data);
    bt_vocab_free(&v);
}

static void test_alphabet(void **state)
{
    (void)state;
    bool used[0x200] = {false};
    for (unsigned b = 0; b < 256; b++) {
        char key[2], back[2];
        size_t size = 0, n = bt_byte_to_char((uint8_t)b, key);
        uint32_t c = 0;
        assert_int_equal(bt_utf8_decode(key, n, &c), n);
        assert_true(c < 0x200);
        assert_false(used[c]);
        used[c] = true;
        assert_true(bt_key_to_bytes(key, n, back, &size));
        assert_int_equal(size, 1);
        assert_int_equal((uint8_t)back[0], b);
    }
    char key[2], bytes[8];
    size_t size;
    assert_int_equal(bt_byte_to_char(' ', key), 2); /* the one everybody knows */
    assert_memory_equal(key, "Ġ", 2);
    assert_int_equal(bt_byte_to_char('\n', key), 2);
    assert_memory_equal(key, "Ċ", 2);
    assert_false(bt_key_to_bytes("a b", 3, bytes, &size));
    assert_false(bt_key_to_bytes("世", 3, bytes, &size));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_definition),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_repeated_merge),
        cmocka_unit_test(test_alphabet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
