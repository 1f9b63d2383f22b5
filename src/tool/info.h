/* What there is to know about a model before it runs, and about the machine that would run it. */
#ifndef TOOL_INFO_H
#define TOOL_INFO_H

#include "base/json.h"

typedef struct bt_info {
    const bt_model *model;
    const bt_tokenizer *tokenizer; /* NULL: none */
    const char *tokenizer_fault;   /* why there is none; NULL where there is one */
    const bt_memory_plan *plan;
    const char *plan_fault; /* why it would not run; NULL: it fits */
    bool with_tensors;      /* list every one */
} bt_info;

void bt_info_print(bt_text *t, const bt_info *i);
void bt_info_print_json(bt_text *t, const bt_info *i);

void bt_devices_print(bt_text *t, const char *root); /* root: "" or the folder that holds proc/ and sys/ */
void bt_devices_print_json(bt_text *t, const char *root);

#endif
