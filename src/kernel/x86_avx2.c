/*
 * Kernels for the level avx2.
 */
#include "kernel/kernels.h"

#if defined(__x86_64__)
void bt_kernels_add_avx2(bt_kernels *k)
{
    (void)k;
}
#else
typedef int bt_x86_avx2_is_empty;
#endif
