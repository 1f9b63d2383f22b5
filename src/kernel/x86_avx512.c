/*
 * Kernels for the level avx512.
 */
#include "kernel/kernels.h"

#if defined(__x86_64__)
void bt_kernels_add_avx512(bt_kernels *k)
{
    (void)k;
}
#else
typedef int bt_x86_avx512_is_empty;
#endif
