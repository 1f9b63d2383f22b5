/* Where a model argument points: an existing path, else the Hugging Face cache (design: case C13). Implements bt_locate
 * of baltoro.h; nothing is written into the cache. */
#ifndef FORMAT_LOOKUP_H
#define FORMAT_LOOKUP_H

#include "baltoro.h"

/* The folders looked in, in order, as one string for messages ("a, b"); bt_free by the caller. */
char *bt_cache_folders(const bt_cache_env *env);

#endif
