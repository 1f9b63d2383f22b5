/* The checksum; see checksum.h. Every step is a bijection of the state, so that no single change can be lost. */
#include "base/checksum.h"

#include <string.h>

uint64_t bt_checksum(uint64_t seed, const void *data, size_t size)
{
    const uint8_t *p = data;
    uint64_t h = seed ^ 0x9e3779b97f4a7c15u ^ size;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    for (; size > 0; p++, size--) h = (h ^ *p) * 0x100000001b3u;
    return h ^ h >> 29;
}
