/*
 * Rotary position settings. They have moved between releases of the config format: rope_theta at the top or inside,
 * rope_scaling or rope_parameters, `type` or `rope_type`. All spellings of one setting give one result; two spellings
 * that differ are refused, since a wrong base gives plausible nonsense only at length (case C16).
 */
#include "model/rope.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

static const double PI = 3.14159265358979323846;

/* A key that may stand at the top, in rope_parameters and in rope_scaling: all that are there must agree. */
static bt_status read_theta(const bt_scope *scopes, size_t n, double *theta, bool *found, bt_error *e)
{
    *found = false;
    for (size_t i = 0; i < n; i++) {
        double v = 0;
        bool here = false;
        if (scopes[i].object == NULL) continue;
        bt_status st = bt_get_f64(scopes[i], "rope_theta", &v, &here, e);
        if (st != BT_OK) return st;
        if (!here) continue;
        if (*found && v != *theta) {
            return bt_fail(e, BT_ERR_FORMAT, "%s: rope_theta is given twice and differs: %g and %g",
                           bt_config_file(scopes[i].config), *theta, v);
        }
        *theta = v;
        *found = true;
    }
    return BT_OK;
}

static bt_status read_type(bt_scope s, bt_rope_type *type, bool *is_default, bt_error *e)
{
    const char *a = NULL, *b = NULL;
    bt_status st = bt_get_string(s, "rope_type", &a, &(bool){false}, e);
    if (st == BT_OK) st = bt_get_string(s, "type", &b, &(bool){false}, e);
    if (st != BT_OK) return st;
    if (a != NULL && b != NULL && strcmp(a, b) != 0) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: %s.rope_type is \"%s\" but %s.type is \"%s\"", bt_config_file(s.config),
                       s.where, a, s.where, b);
    }
    const char *name = a != NULL ? a : b != NULL ? b : "default";
    *is_default = a == NULL && b == NULL;
    if (strcmp(name, "default") == 0)
        *type = BT_ROPE_DEFAULT;
    else if (strcmp(name, "yarn") == 0)
        *type = BT_ROPE_YARN;
    else {
        return bt_fail(e, BT_ERR_UNSUPPORTED, "%s: %s.rope_type \"%s\" is not supported (default and yarn are)",
                       bt_config_file(s.config), s.where, name);
    }
    return BT_OK;
}

/* Every key inside the block must be one whose effect we know. */
static bt_status check_keys(bt_scope s, bt_error *e)
{
    static const char *const known[] = {"rope_type",
                                        "type",
                                        "rope_theta",
                                        "factor",
                                        "original_max_position_embeddings",
                                        "beta_fast",
                                        "beta_slow",
                                        "attention_factor",
                                        "mscale",
                                        "mscale_all_dim",
                                        "truncate",
                                        "partial_rotary_factor"};
    for (const bt_json_node *n = s.object->child; n != NULL; n = n->next) {
        bool is_known = n->kind == BT_JSON_NULL;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known = is_known || strcmp(n->key, known[i]) == 0;
        if (!is_known) {
            return bt_fail(e, BT_ERR_UNSUPPORTED, "%s: %s.%s is not supported", bt_config_file(s.config), s.where,
                           n->key);
        }
    }
    double part = 1;
    bt_status st = bt_get_f64(s, "partial_rotary_factor", &part, &(bool){false}, e);
    if (st != BT_OK) return st;
    if (part != 1) {
        return bt_fail(e, BT_ERR_UNSUPPORTED, "%s: %s.partial_rotary_factor %g is not supported (rope_head_dim is)",
                       bt_config_file(s.config), s.where, part);
    }
    return BT_OK;
}

/* A positive finite number; *v holds the default on entry, and *is_default tells of it; NULL: there is none. */
static bt_status read_positive(bt_scope s, const char *key, double *v, bool *is_default, bt_error *e)
{
    bool found = false;
    bt_status st = bt_get_f64(s, key, v, is_default == NULL ? NULL : &found, e);
    if (is_default != NULL) *is_default = !found;
    if (st != BT_OK) return st;
    if (!(*v > 0) || isinf(*v)) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: %s.%s is %g, expected a number above 0", bt_config_file(s.config),
                       s.where, key, *v);
    }
    return BT_OK;
}

static double yarn_scale(double factor, double mscale)
{
    return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

/* attention_factor as given; else the ratio of mscale and mscale_all_dim if both are given; else 0.1 ln s + 1. */
static bt_status read_attention_factor(bt_scope s, bt_rope *r, bt_error *e)
{
    double mscale = 0, mscale_all = 0;
    bool has_factor = false, has_mscale = false, has_all = false;
    bt_status st = bt_get_f64(s, "attention_factor", &r->attention_factor, &has_factor, e);
    if (st == BT_OK) st = bt_get_f64(s, "mscale", &mscale, &has_mscale, e);
    if (st == BT_OK) st = bt_get_f64(s, "mscale_all_dim", &mscale_all, &has_all, e);
    if (st != BT_OK) return st;
    if (has_factor) {
        if (!(r->attention_factor > 0) || isinf(r->attention_factor)) {
            return bt_fail(e, BT_ERR_FORMAT, "%s: %s.attention_factor is %g, expected a number above 0",
                           bt_config_file(s.config), s.where, r->attention_factor);
        }
        return BT_OK;
    }
    bool ratio = has_mscale && has_all && mscale != 0 && mscale_all != 0;
    r->is_default.attention_factor = !ratio;
    r->attention_factor =
        ratio ? yarn_scale(r->factor, mscale) / yarn_scale(r->factor, mscale_all) : yarn_scale(r->factor, 1);
    return BT_OK;
}

static bt_status read_yarn(bt_scope s, bt_rope *r, bt_error *e)
{
    r->factor = 0;
    r->original_positions = 0;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->truncate = true;
    bool has_truncate = false;
    bt_status st = read_positive(s, "factor", &r->factor, NULL, e);
    if (st == BT_OK) st = read_positive(s, "original_max_position_embeddings", &r->original_positions, NULL, e);
    if (st == BT_OK) st = read_positive(s, "beta_fast", &r->beta_fast, &r->is_default.beta_fast, e);
    if (st == BT_OK) st = read_positive(s, "beta_slow", &r->beta_slow, &r->is_default.beta_slow, e);
    if (st == BT_OK) st = bt_get_bool(s, "truncate", &r->truncate, &has_truncate, e);
    r->is_default.truncate = !has_truncate;
    if (st == BT_OK) st = read_attention_factor(s, r, e);
    return st;
}

static bool same_nodes(const bt_json_node *a, const bt_json_node *b)
{
    if (a->n_children != b->n_children) return false;
    for (const bt_json_node *x = a->child; x != NULL; x = x->next) {
        const bt_json_node *y = bt_json_get(b, x->key);
        if (y == NULL || y->kind != x->kind || y->size != x->size) return false;
        if (x->size != 0 && memcmp(x->text, y->text, x->size) != 0) return false;
    }
    return true;
}

bt_status bt_rope_read(const bt_config *c, double theta_default, bt_rope *r, bt_error *e)
{
    *r = (bt_rope){.type = BT_ROPE_DEFAULT, .attention_factor = 1};
    bt_scope top = {c, bt_config_root(c), NULL}, parameters = top, scaling = top;
    bt_status st = bt_get_scope(top, "rope_parameters", &parameters, e);
    if (st == BT_OK) st = bt_get_scope(top, "rope_scaling", &scaling, e);
    if (st != BT_OK) return st;
    if (parameters.object != NULL && scaling.object != NULL && !same_nodes(parameters.object, scaling.object)) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: rope_parameters and rope_scaling are both given and differ",
                       bt_config_file(c));
    }
    bt_scope block = parameters.object != NULL ? parameters : scaling;
    bool has_theta = false;
    st = read_theta((bt_scope[]){top, parameters, scaling}, 3, &r->theta, &has_theta, e);
    if (st != BT_OK) return st;
    r->is_given = has_theta || block.object != NULL;
    if (!r->is_given) return BT_OK;
    r->is_default.type = block.object == NULL;
    r->is_default.theta = !has_theta;
    if (block.object != NULL)
        st = read_type(block, &r->type, &r->is_default.type, e); /* first: others have other keys */
    if (st != BT_OK) return st;
    if (!has_theta) r->theta = theta_default;
    if (!has_theta && theta_default == 0) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: rope_theta is missing (inside rope_parameters or at the top)",
                       bt_config_file(c));
    }
    if (!(r->theta > 1) || isinf(r->theta)) {
        return bt_fail(e, BT_ERR_FORMAT, "%s: rope_theta is %g, expected a number above 1", bt_config_file(c),
                       r->theta);
    }
    if (block.object == NULL) return BT_OK;
    st = check_keys(block, e);
    if (st == BT_OK && r->type == BT_ROPE_YARN) st = read_yarn(block, r, e);
    return st;
}

/* YaRN blends between theta^(-2j/D) and that divided by the factor, over the dimensions whose wavelength makes between
 * beta_slow and beta_fast turns in the original context (arXiv 2309.00071; docs/k2_horizon.md, c.4). */
static double yarn_dimension(const bt_rope *r, double dim, double turns)
{
    return dim * log(r->original_positions / (turns * 2 * PI)) / (2 * log(r->theta));
}

void bt_rope_frequencies(const bt_rope *r, size_t dim, size_t n_pairs, double *frequency)
{
    double d = (double)dim;
    double low = 0, high = 0;
    if (r->type == BT_ROPE_YARN) {
        low = yarn_dimension(r, d, r->beta_fast);
        high = yarn_dimension(r, d, r->beta_slow);
        if (r->truncate) {
            low = floor(low);
            high = ceil(high);
        }
        low = fmax(low, 0);
        high = fmin(high, d - 1);
        if (low == high) high += 0.001;
    }
    for (size_t j = 0; j < n_pairs; j++) {
        double f = pow(r->theta, -2 * (double)j / d);
        if (r->type == BT_ROPE_YARN) {
            double ramp = fmin(fmax(((double)j - low) / (high - low), 0), 1);
            f = f * (1 - ramp) + f / r->factor * ramp;
        }
        frequency[j] = f;
    }
}
