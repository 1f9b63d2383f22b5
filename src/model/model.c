/*
 * Opening a model: find the files, read the config, choose the family, bind its list of tensors. Headers and config
 * are read, and the first bytes of each tensor; weights stay in the mapping until a step touches them (but for a head
 * stored beside the embedding that it is tied to: bind.c compares them). Everything is checked before this returns, so
 * that nothing later has to doubt a shape.
 */
#include "model/model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "model/bind.h"
#include "model/quantization.h"

static const bt_family *const families[] = {&bt_family_k2_horizon, &bt_family_llama, &bt_family_kimi_k3,
                                            &bt_family_kimi_linear};
#define N_FAMILIES (sizeof families / sizeof *families)

/* ---- config --------------------------------------------------------------------------------------------------------
 */

static const bt_family *family_by_architecture(const char *name)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        for (const char *const *a = families[i]->architectures; *a != NULL; a++) {
            if (strcmp(*a, name) == 0) return families[i];
        }
    }
    return NULL;
}

static bt_status choose_family(bt_model *m, bt_error *e)
{
    const char *file = bt_config_file(m->config);
    const bt_json_node *list = bt_json_get(bt_config_root(m->config), "architectures");
    if (list == NULL || list->kind != BT_JSON_ARRAY || list->n_children == 0) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: architectures is missing or not a list of names", file);
    }
    const bt_json_node *name = list->child; /* the first decides; several are a contradiction that nobody writes */
    if (name->kind != BT_JSON_STRING)
        return bt_fail(e, BT_ERR_FORMAT, "%s: architectures holds something that is no name", file);
    m->family = family_by_architecture(name->text);
    if (m->family == NULL)
        return bt_fail(e, BT_ERR_UNSUPPORTED,
                       "%s: architectures [\"%s\"] is not supported (K2HorizonForCausalLM, LlamaForCausalLM, "
                       "KimiK3ForConditionalGeneration and KimiLinearForCausalLM are)",
                       file, name->text);
    const char *type = NULL;
    bt_status st =
        bt_get_string((bt_scope){m->config, bt_config_root(m->config), NULL}, "model_type", &type, &(bool){false}, e);
    if (st == BT_OK && type != NULL && strcmp(type, m->family->name) != 0)
        return bt_fail(e, BT_ERR_FORMAT, "%s: model_type is \"%s\" but architectures is [\"%s\"]", file, type,
                       name->text);
    return st;
}

bt_status bt_model_text_scope(const bt_family *family, const bt_config *c, bt_scope *out, bt_error *e)
{
    bt_scope root = {c, bt_config_root(c), NULL};
    *out = root;
    return family->text_config == NULL ? BT_OK : bt_get_scope(root, family->text_config, out, e);
}

/* Both the config and its text member may say how weights are stored. */
static bt_status check_quantization(const bt_family *family, const bt_config *c, bt_error *e)
{
    bt_scope text;
    bt_status st = bt_model_text_scope(family, c, &text, e);
    if (st == BT_OK && text.object != NULL && family->text_config != NULL)
        st = bt_quantization_check(text, family->may_pack, e);
    if (st == BT_OK) st = bt_quantization_check((bt_scope){c, bt_config_root(c), NULL}, family->may_pack, e);
    return st;
}

/* ---- generation_config ------------------------------------------------------------------------------------------- */

#define END_IDS_MAX 64u

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The union of both files' eos_token_id, that of the text member too; 0 is an id like any other (case C17). */
static bt_status read_end_ids(bt_model *m, bt_error *e)
{
    int32_t ids[3 * END_IDS_MAX];
    bt_scope text;
    size_t n = 0, more = 0;
    bt_status st =
        bt_get_ids((bt_scope){m->config, bt_config_root(m->config), NULL}, "eos_token_id", ids, END_IDS_MAX, &n, e);
    if (st == BT_OK) st = bt_model_text_scope(m->family, m->config, &text, e);
    if (st == BT_OK && m->family->text_config != NULL && text.object != NULL)
        st = bt_get_ids(text, "eos_token_id", ids + n, END_IDS_MAX, &more, e);
    n += more;
    more = 0;
    if (st == BT_OK && m->generation_config != NULL) {
        bt_scope g = {m->generation_config, bt_config_root(m->generation_config), NULL};
        st = bt_get_ids(g, "eos_token_id", ids + n, END_IDS_MAX, &more, e);
    }
    if (st != BT_OK) return st;
    n += more;
    qsort(ids, n, sizeof *ids, by_id);
    m->end_ids = bt_calloc(n + 1, sizeof *m->end_ids);
    if (m->end_ids == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for end ids");
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || ids[i] != ids[i - 1]) m->end_ids[m->n_end_ids++] = ids[i];
    }
    return BT_OK;
}

static bt_status read_defaults(bt_model *m, bt_error *e)
{
    bt_generation_defaults *d = &m->defaults;
    if (m->generation_config == NULL) return BT_OK;
    bt_scope g = {m->generation_config, bt_config_root(m->generation_config), NULL};
    uint64_t top_k = 0;
    bt_status st = bt_get_bool(g, "do_sample", &d->do_sample, &d->has_do_sample, e);
    if (st == BT_OK) st = bt_get_f64(g, "temperature", &d->temperature, &d->has_temperature, e);
    if (st == BT_OK) st = bt_get_f64(g, "top_p", &d->top_p, &d->has_top_p, e);
    if (st == BT_OK) st = bt_get_f64(g, "min_p", &d->min_p, &d->has_min_p, e);
    if (st == BT_OK) st = bt_get_f64(g, "repetition_penalty", &d->repetition_penalty, &d->has_repetition_penalty, e);
    if (st == BT_OK) st = bt_get_u64(g, "top_k", 0, INT32_MAX, &top_k, &d->has_top_k, e);
    d->top_k = (int64_t)top_k;
    return st;
}

static bt_status open_configs(bt_model *m, bt_error *e)
{
    char *path = bt_path_join(m->folder, "config.json");
    char *generation = bt_path_join(m->folder, "generation_config.json");
    bt_path_kind main = BT_PATH_ABSENT, defaults = BT_PATH_ABSENT;
    bt_status st = BT_OK;
    if (path == NULL || generation == NULL) st = bt_fail(e, BT_ERR_MEMORY, "no memory for paths");
    if (st == BT_OK) st = bt_path_look(path, &main, e);
    if (st == BT_OK) st = bt_path_look(generation, &defaults, e);
    if (st == BT_OK && main == BT_PATH_ABSENT)
        st = bt_fail(e, BT_ERR_IO, "%s is not there: a model needs its config.json beside the weights", path);
    if (st == BT_OK) st = bt_config_open(path, &m->config, e);
    if (st == BT_OK && defaults != BT_PATH_ABSENT) st = bt_config_open(generation, &m->generation_config, e);
    bt_free(path);
    bt_free(generation);
    return st;
}

/* ---- identity: what a snapshot must agree with ------------------------------------------------------------------- */

#define FINGERPRINT_TENSORS 4096u

static uint64_t mix(uint64_t h, const void *data, size_t size)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x100000001b3u; /* FNV-1a */
    return h;
}

/* The configuration as it is written, names, dtypes and shapes of all tensors, and the first 4 KB of each (where there
 * are more than FINGERPRINT_TENSORS, of about so many): a fine-tune has other bytes there, and the same weights under
 * another rope compute something else. */
static uint64_t fingerprint(const bt_model *m)
{
    uint64_t h = mix(0xcbf29ce484222325u, m->family->name, strlen(m->family->name));
    size_t config_bytes;
    const char *config = bt_config_text(m->config, &config_bytes);
    h = mix(h, config, config_bytes);
    size_t n = m->list.n, one_in = n / FINGERPRINT_TENSORS + 1;
    for (size_t i = 0; i < n; i++) {
        const bt_tensor_spec *spec = &m->list.specs[i];
        const bt_view *v = &m->views[i];
        uint32_t facts[] = {v->n_rows, v->n_cols, v->dtype, v->scale != NULL};
        h = mix(h, spec->name, strlen(spec->name));
        h = mix(h, facts, sizeof facts);
        uint64_t tensor_bytes = (uint64_t)v->n_rows * v->n_cols * bt_dtype_bits(v->dtype) / 8;
        if (bt_rng_u64(0, i) % one_in == 0) h = mix(h, v->data, tensor_bytes < 4096 ? (size_t)tensor_bytes : 4096);
    }
    return h;
}

/* ---- ablation ---------------------------------------------------------------------------------------------------- */

/* "key=value,key=value", for the test build; elsewhere a request is refused. */
static bt_status ablate(bt_model *m, const char *text, bt_error *e)
{
    if (text == NULL || text[0] == '\0') return BT_OK;
    if (m->family->ablate == NULL) return bt_fail(e, BT_ERR_USAGE, "ablate: faults are planted in the test build only");
    while (*text != '\0') {
        char key[64], value[64];
        int used = 0;
        if (sscanf(text, "%63[a-z0-9_]=%63[^,]%n", key, value, &used) != 2) {
            return bt_fail(e, BT_ERR_USAGE, "ablate: \"%s\" is not KEY=VALUE,KEY=VALUE", text);
        }
        bt_status st = m->family->ablate(m->shape, key, value, e);
        if (st != BT_OK) return st;
        text += used;
        if (*text == ',') text++;
    }
    return BT_OK;
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

/* A config of a kilobyte can ask for more tensors than memory has room for their names. Of a list that is much longer
 * than the files' own not each missing tensor has to be told. */
static bt_status list_and_bind(bt_model *m, bt_error *e)
{
    size_t n_stored = bt_tensors_count(m->tensors);
    m->list.n_max = 2 * n_stored + 1000;
    m->list.arena = bt_arena_new();
    if (m->list.arena != NULL) m->family->list_tensors(m->shape, &m->list);
    if (m->list.is_too_long)
        return bt_fail(e, BT_ERR_FORMAT,
                       "%s: it asks for more than %zu tensors, and the files hold %zu: they are not of one model",
                       bt_config_file(m->config), m->list.n_max, n_stored);
    if (m->list.arena == NULL || m->list.failed) return bt_fail(e, BT_ERR_MEMORY, "no memory for the list of tensors");
    return bt_model_bind(m, e);
}

bt_status bt_model_list_tensors(bt_config *config, bt_tensor_list *list, bt_error *e)
{
    bt_model m = {.config = config};
    bt_status st = choose_family(&m, e);
    if (st == BT_OK) st = check_quantization(m.family, config, e);
    if (st != BT_OK) return st;
    m.shape = bt_calloc(1, m.family->shape_bytes);
    list->arena = bt_arena_new();
    if (m.shape == NULL || list->arena == NULL) {
        bt_free(m.shape);
        return bt_fail(e, BT_ERR_MEMORY, "no memory for the list of tensors");
    }
    st = m.family->read_config(config, m.shape, e);
    if (st == BT_OK) m.family->list_tensors(m.shape, list);
    if (st == BT_OK && list->failed) st = bt_fail(e, BT_ERR_MEMORY, "no memory for the list of tensors");
    m.family->release(m.shape);
    bt_free(m.shape);
    return st;
}

bt_status bt_model_open(const char *path, const bt_model_options *options, bt_model **out, bt_error *e)
{
    if (path == NULL) return bt_fail(e, BT_ERR_USAGE, "no path of a model is given");
    bt_model *m = bt_calloc(1, sizeof *m);
    if (m == NULL) return bt_fail(e, BT_ERR_MEMORY, "no memory for a model");
    bt_path_kind kind = BT_PATH_ABSENT;
    bt_status st = bt_path_look(path, &kind, e);
    if (st == BT_OK && kind == BT_PATH_ABSENT) st = bt_fail(e, BT_ERR_IO, "%s: there is no such file or folder", path);
    if (st != BT_OK) goto fail;
    m->folder = kind == BT_PATH_FOLDER ? bt_strdup(path) : bt_path_folder(path);
    if (m->folder == NULL) {
        st = bt_fail(e, BT_ERR_MEMORY, "no memory for paths");
        goto fail;
    }
    st = open_configs(m, e);
    if (st == BT_OK) st = choose_family(m, e);
    if (st == BT_OK) st = check_quantization(m->family, m->config, e);
    if (st != BT_OK) goto fail;
    m->shape = bt_calloc(1, m->family->shape_bytes);
    if (m->shape == NULL) {
        st = bt_fail(e, BT_ERR_MEMORY, "no memory for a model");
        goto fail;
    }
    st = m->family->read_config(m->config, m->shape, e);
    if (st == BT_OK) st = read_end_ids(m, e);
    if (st == BT_OK) st = read_defaults(m, e);
    if (st == BT_OK) st = bt_tensors_open(path, &m->tensors, e);
    if (st != BT_OK) goto fail;
    /* Of many tensors, binding and fingerprint look at a few bytes; of few, at what a step will read anyway. */
    if (bt_tensors_count(m->tensors) > FINGERPRINT_TENSORS) bt_tensors_advise(m->tensors, BT_MAP_HERE_AND_THERE);
    st = list_and_bind(m, e);
    if (st == BT_OK) st = ablate(m, options == NULL ? NULL : options->ablate, e);
    if (st != BT_OK) goto fail;
    m->fingerprint = fingerprint(m);
    bt_tensors_advise(m->tensors, BT_MAP_ALONG);
    *out = m;
    return BT_OK;
fail:
    bt_model_close(m);
    return st;
}

void bt_model_close(bt_model *m)
{
    if (m == NULL) return;
    if (m->shape != NULL) m->family->release(m->shape);
    bt_free(m->shape);
    bt_free(m->views);
    bt_free(m->classes);
    bt_free(m->list.specs);
    bt_arena_free(m->list.arena);
    bt_tensors_close(m->tensors);
    bt_config_close(m->config);
    bt_config_close(m->generation_config);
    bt_free(m->end_ids);
    bt_free(m->folder);
    bt_free(m);
}

const char *bt_model_folder(const bt_model *m)
{
    return m->folder;
}

const char *bt_model_family(const bt_model *m)
{
    return m->family->name;
}

size_t bt_model_n_vocab(const bt_model *m)
{
    return m->family->n_vocab(m->shape);
}

size_t bt_model_max_position(const bt_model *m)
{
    return m->family->max_position(m->shape);
}

uint64_t bt_model_n_parameters(const bt_model *m)
{
    return m->n_parameters;
}

const int32_t *bt_model_end_ids(const bt_model *m, size_t *n)
{
    *n = m->n_end_ids;
    return m->end_ids;
}

const bt_generation_defaults *bt_model_generation_defaults(const bt_model *m)
{
    return &m->defaults;
}

size_t bt_model_private_bytes(const bt_model *m)
{
    return sizeof *m + m->family->shape_bytes + m->list.capacity * sizeof *m->list.specs +
           m->list.n * (sizeof *m->views + sizeof *m->classes) + bt_arena_bytes(m->list.arena) +
           bt_tensors_private_bytes(m->tensors);
}

void bt_model_describe(const bt_model *m, bt_fact_fn fn, void *user)
{
    m->family->describe(m->shape, fn, user);
}
