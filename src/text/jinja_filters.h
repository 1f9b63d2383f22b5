/* The filters that live apart from the table. Private to src/text/jinja*.c. */
#ifndef TEXT_JINJA_FILTERS_H
#define TEXT_JINJA_FILTERS_H

#include "text/jinja_value.h"

/* jinja_sequences.c */
bt_jv bt_filter_batch(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_dictsort(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_first(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_groupby(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_items(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_join(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_last(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_list(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_map(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_max(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_min(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_reject(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_rejectattr(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_reverse(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_select(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_selectattr(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_slice(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_sort(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_sum(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_unique(bt_jx *x, bt_jv v, const bt_jargs *a);

/* jinja_layout.c, jinja_html.c */
bt_jv bt_filter_pprint(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_striptags(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_wordwrap(bt_jx *x, bt_jv v, const bt_jargs *a);

/* jinja_numbers.c */
bt_jv bt_filter_abs(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_filesizeformat(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_float(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_int(bt_jx *x, bt_jv v, const bt_jargs *a);
bt_jv bt_filter_round(bt_jx *x, bt_jv v, const bt_jargs *a);

#endif
