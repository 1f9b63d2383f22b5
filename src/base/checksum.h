/* A checksum of bytes, word by word: detects damage, not malice. Any one flipped bit changes it. */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include "baltoro.h"

/* Of data [size], going on from `seed`: 0, or the checksum of what came before. */
uint64_t bt_checksum(uint64_t seed, const void *data, size_t size);

#endif
