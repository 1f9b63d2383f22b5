/* What the tests of text/ share: stored cases as JSON trees, tokenizers from small texts. */
#ifndef TESTS_TEXT_UNIT_H
#define TESTS_TEXT_UNIT_H

#include "unit.h"

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#define TINY "tests/data/tokenizers/tiny"

static inline const bt_json_node *unit_read_json(bt_arena *a, const char *folder, const char *name)
{
    char path[4400];
    char *data;
    size_t size;
    bt_error e;
    const bt_json_node *root = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (bt_read_file(path, (size_t)64 << 20, &data, &size, &e) != BT_OK) fail_msg("%s", e.message);
    if (bt_json_parse(a, data, size, 0, &root, &e) != BT_OK) fail_msg("%s: %s", path, e.message);
    bt_free(data);
    return root;
}

static inline const bt_json_node *unit_member(const bt_json_node *object, const char *key)
{
    const bt_json_node *n = bt_json_get(object, key);
    if (n == NULL) fail_msg("no member \"%s\"", key);
    return n;
}

static inline int64_t unit_integer(const bt_json_node *n)
{
    int64_t v = 0;
    assert_true(bt_json_i64(n->text, n->size, &v));
    return v;
}

static inline bt_tokenizer *unit_tokenizer(const char *folder)
{
    bt_tokenizer *t = NULL;
    bt_error e;
    if (bt_tokenizer_open(folder, &t, &e) != BT_OK) fail_msg("%s", e.message);
    return t;
}

/* From the text of tokenizer.json and, or NULL, of tokenizer_config.json. */
static inline bt_tokenizer *unit_tokenizer_text(const char *json, const char *config)
{
    bt_tokenizer *t = NULL;
    bt_error e;
    bt_status st = bt_tokenizer_open_text(json, strlen(json), config, config == NULL ? 0 : strlen(config), &t, &e);
    if (st != BT_OK) fail_msg("%s", e.message);
    return t;
}

static inline void unit_expect_ids(const bt_tokenizer *t, const char *text, size_t size, unsigned flags,
                                   const bt_json_node *ids)
{
    int32_t *got = NULL;
    size_t n = 0, i = 0;
    bt_error e;
    if (bt_tokenizer_encode(t, text, size, flags, &got, &n, &e) != BT_OK) fail_msg("\"%s\": %s", text, e.message);
    bool same = n == ids->n_children;
    for (const bt_json_node *id = ids->child; id != NULL && same; id = id->next, i++) same = got[i] == unit_integer(id);
    if (!same) fail_msg("\"%s\": other ids than expected, from index %zu on (%zu ids)", text, i, n);
    bt_free(got);
}

static inline int32_t *unit_id_array(const bt_json_node *ids)
{
    int32_t *array = calloc(ids->n_children + 1, sizeof *array);
    assert_non_null(array);
    size_t i = 0;
    for (const bt_json_node *id = ids->child; id != NULL; id = id->next) array[i++] = (int32_t)unit_integer(id);
    return array;
}

/* Decodes at once, and id by id: each part whole characters, all parts together the same text. */
static inline void unit_expect_text(const bt_tokenizer *t, const bt_json_node *ids, unsigned flags, const char *text,
                                    size_t size)
{
    int32_t *array = unit_id_array(ids);
    char *got = NULL;
    size_t n = 0;
    bt_error e;
    if (bt_tokenizer_decode(t, array, ids->n_children, flags, &got, &n, &e) != BT_OK) fail_msg("%s", e.message);
    if (n != size || memcmp(got, text, n) != 0) fail_msg("decoded \"%s\", expected \"%s\"", got, text);
    assert_int_equal(got[n], '\0');
    bt_decoder *d = NULL;
    bt_text joined = {0};
    const char *part;
    size_t part_size;
    assert_int_equal(bt_decoder_open(t, flags, &d, &e), BT_OK);
    for (size_t i = 0; i < ids->n_children; i++) {
        assert_int_equal(bt_decoder_push(d, array[i], &part, &part_size, &e), BT_OK);
        assert_int_equal(bt_utf8_valid_prefix(part, part_size), part_size);
        bt_text_add(&joined, part, part_size);
    }
    bt_decoder_finish(d, &part, &part_size);
    bt_text_add(&joined, part, part_size);
    if (joined.size != size || memcmp(joined.data, text, size) != 0) fail_msg("streamed \"%s\"", joined.data);
    bt_decoder_close(d);
    bt_text_free(&joined);
    bt_free(got);
    free(array);
}

/* The members of a vocabulary: all 256 bytes with their values as ids, ready for more (", \"x\": 256"). */
static inline void unit_add_byte_vocab(bt_text *out)
{
    for (unsigned b = 0; b < 256; b++) {
        char key[2];
        size_t n = bt_byte_to_char((uint8_t)b, key);
        if (b > 0) bt_text_puts(out, ",");
        bt_text_json_string(out, key, n);
        bt_text_printf(out, ":%u", b);
    }
}

#endif
