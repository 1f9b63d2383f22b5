/* Reading tiktoken.model, and the tokenizer_config.json beside it, into the spec of a tokenizer. */
#ifndef TEXT_TOKENIZER_TIKTOKEN_H
#define TEXT_TOKENIZER_TIKTOKEN_H

#include "text/tokenizer_json.h"

/* The ranks, and how Kimi's tokenizer uses them. s: zeroed, freed by the caller with bt_tokenizer_spec_free. */
bt_status bt_tiktoken_read(const char *model, size_t size, bt_tokenizer_spec *s, bt_error *e);
/* Then the special tokens behind the ranks. */
bt_status bt_tiktoken_config_read(const char *json, size_t size, bt_tokenizer_spec *s, bt_error *e);

#endif
