/* Sampling parameters and where each came from: flag or environment, generation_config.json, or the default. */
#ifndef APP_SAMPLING_H
#define APP_SAMPLING_H

#include "app/app.h"

/* Chooses, and says on stderr what was chosen and by whom. */
int bt_sampling_choose(bt_app *a, bt_sample_params *p);
void bt_sampling_print_json(bt_text *t, const bt_sample_params *p); /* "sampling": {...} */

#endif
