/*
 * Templates against what Jinja2 makes of them: our own of tests/data/jinja (see tools/make_jinja_cases.py), and,
 * where the shared fixtures are, public chat templates.
 */
#include "jinja_unit.h"

#include <dirent.h>

#define FOLDER "tests/data/jinja"

/* ---- our own ----------------------------------------------------------------------------------------------------- */

/* The text of contexts.json's member `name`. */
static char *named_context(const char *contexts, size_t size, const char *name)
{
    bt_json j;
    char *found = NULL;
    bt_json_begin(&j, contexts, size, BT_JSON_PYTHON, NULL);
    assert_int_equal(bt_json_next(&j), BT_JSON_OBJECT);
    while (found == NULL && bt_json_next(&j) == BT_JSON_KEY) {
        bool here = bt_json_text_is(&j, name);
        char *raw = jinja_raw(&j);
        if (here) {
            found = raw;
        } else {
            free(raw);
        }
    }
    bt_json_done(&j);
    assert_non_null(found);
    return found;
}

typedef struct inputs {
    char *variables, *contexts;
    size_t variables_size, contexts_size;
} inputs;

static int run_own(const inputs *in, const jinja_case *c)
{
    if (c->file == NULL) {
        const char *context = c->context != NULL ? c->context : in->variables;
        return jinja_run_case(c->template, c->template, c->template_size, context, c);
    }
    char label[300];
    size_t size = 0;
    (void)snprintf(label, sizeof label, "%s with '%s'", c->file, c->use);
    char *source = jinja_read(FOLDER, c->file, &size),
         *context = named_context(in->contexts, in->contexts_size, c->use);
    int wrong = jinja_run_case(label, source, size, context, c);
    free(context);
    bt_free(source);
    return wrong;
}

static void test_own(void **state)
{
    (void)state;
    inputs in = {0};
    size_t size = 0, n = 0;
    in.variables = jinja_read(FOLDER, "variables.json", &in.variables_size);
    in.contexts = jinja_read(FOLDER, "contexts.json", &in.contexts_size);
    char *text = jinja_read(FOLDER, "expected.json", &size);
    bt_json j;
    jinja_case c;
    int wrong = 0;
    bt_json_begin(&j, text, size, BT_JSON_PYTHON, NULL);
    assert_int_equal(bt_json_next(&j), BT_JSON_ARRAY);
    for (; jinja_next_case(&j, &c); n++) {
        wrong += run_own(&in, &c);
        jinja_free_case(&c);
    }
    bt_json_done(&j);
    bt_free(text);
    bt_free(in.variables);
    bt_free(in.contexts);
    assert_true(n > 1000);
    assert_int_equal(wrong, 0);
}

/* ---- public templates -------------------------------------------------------------------------------------------- */

static int run_fixture(const char *folder, const char *name, size_t *n)
{
    char template[300], label[400];
    size_t size = 0, cases_size = 0;
    (void)snprintf(template, sizeof template, "%.*s.jinja", (int)(strlen(name) - strlen(".json")), name);
    char *source = jinja_read(folder, template, &size), *text = jinja_read(folder, name, &cases_size);
    bt_json j;
    jinja_case c;
    int wrong = 0;
    bt_json_begin(&j, text, cases_size, BT_JSON_PYTHON, NULL);
    assert_int_equal(bt_json_next(&j), BT_JSON_OBJECT);
    while (bt_json_next(&j) == BT_JSON_KEY) {
        bool cases = bt_json_text_is(&j, "cases");
        bt_json_kind kind = bt_json_next(&j);
        for (; cases && jinja_next_case(&j, &c); (*n)++) {
            (void)snprintf(label, sizeof label, "%s '%s'", template, c.name);
            wrong += jinja_run_case(label, source, size, c.context, &c);
            jinja_free_case(&c);
        }
        if (!cases) assert_true(bt_json_skip(&j, kind));
    }
    bt_json_done(&j);
    bt_free(source);
    bt_free(text);
    return wrong;
}

static void test_fixtures(void **state)
{
    (void)state;
    char folder[4096];
    (void)snprintf(folder, sizeof folder, "%s/jinja", unit_fixtures() == NULL ? "" : unit_fixtures());
    DIR *d = unit_fixtures() == NULL ? NULL : opendir(folder);
    if (d == NULL) skip();
    size_t n = 0;
    int wrong = 0;
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < 200 && length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0) {
            wrong += run_fixture(folder, entry->d_name, &n);
        }
    }
    closedir(d);
    assert_true(n > 0);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_fixtures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
