/*
 * What there is to know about a model before it runs. One pass gathers the figures, two printers show them: a page for
 * people, an object for programs, from the same numbers.
 */
#include "tool/info.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "tool/ids.h"

typedef struct part { /* tensors that have something in common */
    uint64_t n_tensors, n_parameters, bytes;
} part;

typedef struct figures {
    part all;
    part classes[BT_N_CLASSES];
    part dtypes[BT_N_DTYPES];
    part scales; /* block scales of FP8 tensors; their bytes are in the other parts too */
} figures;

static const char *const class_names[BT_N_CLASSES] = {
    [BT_CLASS_EMBEDDING] = "embedding", [BT_CLASS_NORM] = "norm",
    [BT_CLASS_ATTENTION] = "attention", [BT_CLASS_VALUES] = "value experts",
    [BT_CLASS_ROUTER] = "router",       [BT_CLASS_DENSE] = "dense",
    [BT_CLASS_EXPERTS] = "experts",     [BT_CLASS_SHARED] = "shared experts",
    [BT_CLASS_HEAD] = "head",
};

static void count(part *p, const bt_view *v)
{
    p->n_tensors++;
    p->n_parameters += (uint64_t)v->n_rows * v->n_cols;
    p->bytes += v->bytes;
}

static figures gather(const bt_model *m)
{
    figures f = {0};
    for (size_t i = 0; i < m->list.n; i++) {
        const bt_view *v = &m->views[i];
        count(&f.all, v);
        count(&f.classes[m->list.specs[i].class], v);
        count(&f.dtypes[v->dtype], v);
        if (v->scale != NULL) f.scales.n_tensors++;
    }
    return f;
}

static size_t end_ids(const bt_info *i, const int32_t **ids)
{
    size_t n;
    *ids = bt_model_end_ids(i->model, &n);
    return n;
}

/* Without a tokenizer every end id counts; with one only those that it lists as an added token. */
static bool is_used(const bt_info *i, int32_t id)
{
    return i->tokenizer == NULL || bt_tokenizer_is_added(i->tokenizer, id);
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

static void print_fact(void *user, const char *key, const char *words, const char *json, bool is_default)
{
    (void)json;
    if (words == NULL) return;
    bt_text_printf(user, "  %-28s %s%s\n", key, words, is_default ? "  (default: config.json does not say)" : "");
}

static void print_part(bt_text *t, const char *name, const part *p)
{
    if (p->n_tensors == 0) return;
    bt_text_printf(t, "  %-16s %8" PRIu64 " %18" PRIu64 " %18" PRIu64 "\n", name, p->n_tensors, p->n_parameters,
                   p->bytes);
}

static void print_sizes(bt_text *t, const bt_info *i)
{
    const figures f = gather(i->model);
    bt_text_printf(t, "\nTensors\n  %-16s %8s %18s %18s\n", "class", "tensors", "parameters", "bytes");
    for (size_t c = 0; c < BT_N_CLASSES; c++) print_part(t, class_names[c], &f.classes[c]);
    print_part(t, "all", &f.all);
    bt_text_printf(t, "\n  %-16s %8s %18s %18s\n", "type", "tensors", "parameters", "bytes");
    for (size_t d = 0; d < BT_N_DTYPES; d++) print_part(t, bt_dtype_name((bt_dtype)d), &f.dtypes[d]);
    if (f.scales.n_tensors > 0)
        bt_text_printf(t, "  %" PRIu64 " of them with block scales, whose bytes are counted\n", f.scales.n_tensors);
    bt_text_printf(t, "\n  files: %zu, %" PRIu64 " bytes\n", bt_tensors_n_shards(i->model->tensors),
                   bt_tensors_mapped_bytes(i->model->tensors));
    if (i->model->n_skipped > 0)
        bt_text_printf(t, "  skipped, since nothing uses them: %zu tensors, %" PRIu64 " bytes\n", i->model->n_skipped,
                       i->model->skipped_bytes);
}

static void print_tensors(bt_text *t, const bt_model *m)
{
    bt_text_puts(t, "\nEvery tensor\n");
    for (size_t i = 0; i < m->list.n; i++) {
        const bt_tensor_spec *s = &m->list.specs[i];
        const bt_view *v = &m->views[i];
        bt_text_printf(t, "  %-56s %-8s %-14s ", s->name, bt_dtype_name((bt_dtype)v->dtype), class_names[s->class]);
        if (s->is_vector)
            bt_text_printf(t, "[%u]\n", v->n_cols);
        else
            bt_text_printf(t, "[%u, %u]%s\n", v->n_rows, v->n_cols, v->scale != NULL ? " scaled" : "");
    }
}

static void print_plan(bt_text *t, const bt_info *i)
{
    const bt_memory_plan *p = i->plan;
    bt_text_printf(t, "\nMemory for context %zu, batch %zu, %zu threads (bytes)\n", p->context, p->batch, p->n_threads);
    const struct {
        const char *name;
        uint64_t bytes;
    } lines[] = {
        {"keys and values", p->kv},  {"state", p->state},
        {"scratch", p->scratch},     {"weights, copied", p->weights_private},
        {"tables", p->tables},       {"private", p->private_bytes},
        {"mapped", p->mapped_bytes}, {"available", p->available_bytes},
    };
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
        bt_text_printf(t, "  %-20s %18" PRIu64 "\n", lines[k].name, lines[k].bytes);
    if (i->plan_fault != NULL) bt_text_printf(t, "  does not fit: %s\n", i->plan_fault);
}

static void print_warnings(bt_text *t, const bt_info *i)
{
    const char *lines = i->tokenizer == NULL ? "" : bt_tokenizer_warnings(i->tokenizer);
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\n");
        bt_text_printf(t, "  warning: %.*s\n", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
}

static void print_tokens(bt_text *t, const bt_info *i)
{
    bt_text_puts(t, "\nTokens\n");
    if (i->tokenizer == NULL)
        bt_text_printf(t, "  tokenizer: none (%s)\n", i->tokenizer_fault);
    else
        bt_text_printf(t, "  tokenizer: %zu ids, %s\n", bt_tokenizer_n_vocab(i->tokenizer),
                       bt_tokenizer_file(i->tokenizer));
    if (i->tokenizer != NULL && bt_tokenizer_bos(i->tokenizer) >= 0)
        bt_text_printf(t, "  put before a raw prompt: %d\n", (int)bt_tokenizer_bos(i->tokenizer));
    print_warnings(t, i);
    const int32_t *ids;
    size_t n = end_ids(i, &ids);
    bt_text_puts(t, "  end ids:");
    for (size_t k = 0; k < n; k++)
        bt_text_printf(t, " %d%s", (int)ids[k],
                       is_used(i, ids[k]) ? "" : " (dropped: no added token of the tokenizer)");
    bt_text_puts(t, n == 0 ? " none\n" : "\n");
}

void bt_info_print(bt_text *t, const bt_info *i)
{
    bt_text_printf(t, "%s in %s\n\nConfiguration\n", bt_model_family(i->model), bt_model_folder(i->model));
    bt_model_describe(i->model, print_fact, t);
    print_sizes(t, i);
    print_plan(t, i);
    print_tokens(t, i);
    if (i->with_tensors) print_tensors(t, i->model);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

typedef struct fact_writer {
    bt_text *t;
    bt_text *defaults; /* the keys that were defaults, as list items */
    bool has_one;
} fact_writer;

static bool is_bare(const char *words)
{
    double number;
    return bt_json_f64(words, strlen(words), &number) || strcmp(words, "true") == 0 || strcmp(words, "false") == 0;
}

static void add_json_fact(void *user, const char *key, const char *words, const char *json, bool is_default)
{
    fact_writer *w = user;
    if (json == NULL && is_bare(words)) json = words;
    bt_text_puts(w->t, w->has_one ? ", " : "");
    w->has_one = true;
    bt_text_json_string(w->t, key, strlen(key));
    bt_text_puts(w->t, ": ");
    if (json != NULL)
        bt_text_puts(w->t, json);
    else
        bt_text_json_string(w->t, words, strlen(words));
    if (!is_default) return;
    bt_text_puts(w->defaults, w->defaults->size > 0 ? ", " : "");
    bt_text_json_string(w->defaults, key, strlen(key));
}

static void add_json_part(bt_text *t, const char *name, const part *p, bool *has_one)
{
    if (p->n_tensors == 0) return;
    bt_text_puts(t, *has_one ? ", " : "");
    *has_one = true;
    bt_text_json_string(t, name, strlen(name));
    bt_text_printf(t, ": {\"tensors\": %" PRIu64 ", \"parameters\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", p->n_tensors,
                   p->n_parameters, p->bytes);
}

static void add_json_sizes(bt_text *t, const bt_info *i)
{
    const figures f = gather(i->model);
    bool has_one = false;
    bt_text_printf(
        t, "\"parameters\": %" PRIu64 ", \"tensors\": %" PRIu64 ", \"tensor_bytes\": %" PRIu64 ", \"classes\": {",
        bt_model_n_parameters(i->model), f.all.n_tensors, f.all.bytes);
    for (size_t c = 0; c < BT_N_CLASSES; c++) add_json_part(t, class_names[c], &f.classes[c], &has_one);
    bt_text_puts(t, "}, \"dtypes\": {");
    has_one = false;
    for (size_t d = 0; d < BT_N_DTYPES; d++) add_json_part(t, bt_dtype_name((bt_dtype)d), &f.dtypes[d], &has_one);
    bt_text_printf(
        t, "}, \"files\": %zu, \"file_bytes\": %" PRIu64 ", \"skipped\": {\"tensors\": %zu, \"bytes\": %" PRIu64 "}, ",
        bt_tensors_n_shards(i->model->tensors), bt_tensors_mapped_bytes(i->model->tensors), i->model->n_skipped,
        i->model->skipped_bytes);
}

static void add_json_plan(bt_text *t, const bt_info *i)
{
    const bt_memory_plan *p = i->plan;
    bt_text_printf(t, "\"memory\": {\"context\": %zu, \"batch\": %zu, \"threads\": %zu, ", p->context, p->batch,
                   p->n_threads);
    bt_text_printf(t,
                   "\"kv\": %" PRIu64 ", \"state\": %" PRIu64 ", \"scratch\": %" PRIu64 ", \"weights\": %" PRIu64
                   ", \"tables\": %" PRIu64 ", \"private\": %" PRIu64 ", \"mapped\": %" PRIu64
                   ", \"available\": %" PRIu64,
                   p->kv, p->state, p->scratch, p->weights_private, p->tables, p->private_bytes, p->mapped_bytes,
                   p->available_bytes);
    bt_text_printf(t, ", \"fits\": %s}, ", i->plan_fault == NULL ? "true" : "false");
}

static void add_json_tokens(bt_text *t, const bt_info *i)
{
    const int32_t *ids;
    size_t n = end_ids(i, &ids), n_used = 0;
    bt_text_puts(t, "\"tokenizer\": ");
    if (i->tokenizer == NULL)
        bt_text_puts(t, "null");
    else {
        const char *warnings = bt_tokenizer_warnings(i->tokenizer);
        bt_text_printf(
            t, "{\"ids\": %zu, \"bos\": %d, \"file\": \"%s\", \"warnings\": ", bt_tokenizer_n_vocab(i->tokenizer),
            (int)bt_tokenizer_bos(i->tokenizer), bt_tokenizer_file(i->tokenizer));
        bt_text_json_string(t, warnings, strlen(warnings));
        bt_text_puts(t, "}");
    }
    bt_text_puts(t, ", \"end_ids\": [");
    for (size_t k = 0; k < n; k++)
        if (is_used(i, ids[k])) bt_text_printf(t, "%s%d", n_used++ > 0 ? ", " : "", (int)ids[k]);
    bt_text_puts(t, "]");
}

static void add_json_tensors(bt_text *t, const bt_model *m)
{
    bt_text_puts(t, ", \"list\": [");
    for (size_t i = 0; i < m->list.n; i++) {
        const bt_tensor_spec *s = &m->list.specs[i];
        const bt_view *v = &m->views[i];
        bt_text_puts(t, i > 0 ? ", {\"name\": " : "{\"name\": ");
        bt_text_json_string(t, s->name, strlen(s->name));
        bt_text_printf(t, ", \"dtype\": \"%s\", \"class\": \"%s\", \"shape\": ", bt_dtype_name((bt_dtype)v->dtype),
                       class_names[s->class]);
        if (s->is_vector)
            bt_text_printf(t, "[%u]", v->n_cols);
        else
            bt_text_printf(t, "[%u, %u]", v->n_rows, v->n_cols);
        bt_text_printf(t, ", \"bytes\": %" PRIu64 ", \"scaled\": %s}", v->bytes, v->scale != NULL ? "true" : "false");
    }
    bt_text_puts(t, "]");
}

void bt_info_print_json(bt_text *t, const bt_info *i)
{
    bt_text defaults = {0};
    fact_writer w = {.t = t, .defaults = &defaults};
    bt_text_puts(t, "{\"family\": ");
    bt_text_json_string(t, bt_model_family(i->model), strlen(bt_model_family(i->model)));
    bt_text_puts(t, ", \"folder\": ");
    bt_text_json_string(t, bt_model_folder(i->model), strlen(bt_model_folder(i->model)));
    bt_text_puts(t, ", \"config\": {");
    bt_model_describe(i->model, add_json_fact, &w);
    bt_text_puts(t, "}, \"defaults\": [");
    if (defaults.data != NULL) bt_text_add(t, defaults.data, defaults.size);
    bt_text_puts(t, "], ");
    t->failed = t->failed || defaults.failed;
    bt_text_free(&defaults);
    add_json_sizes(t, i);
    add_json_plan(t, i);
    add_json_tokens(t, i);
    if (i->with_tensors) add_json_tensors(t, i->model);
    bt_text_puts(t, "}\n");
}
