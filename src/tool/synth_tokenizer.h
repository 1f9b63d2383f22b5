/* The tokenizer of a synthetic checkpoint: byte-level BPE with the vendor's scheme of ids, and filler merges. */
#ifndef TOOL_SYNTH_TOKENIZER_H
#define TOOL_SYNTH_TOKENIZER_H

#include "tool/presets.h"

/* Writes tokenizer.json or tiktoken.model, and tokenizer_config.json, into a folder, streaming. */
bt_status bt_synth_tokenizer(const char *folder, const bt_synth_vocab *v, bt_error *e);
uint64_t bt_synth_tokenizer_bytes(const bt_synth_vocab *v); /* at most */

#endif
