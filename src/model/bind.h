/* Binding: the family's list against what the checkpoint holds. */
#ifndef MODEL_BIND_H
#define MODEL_BIND_H

#include "model/model.h"

/* Fills m->views. Missing, unknown and misshapen tensors are all named in one message. */
bt_status bt_model_bind(bt_model *m, bt_error *e);

#endif
