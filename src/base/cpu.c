/*
 * What this CPU can run. A feature counts only if the CPU has it (CPUID) and the operating system saves its registers
 * (XGETBV; for tiles Linux must also grant permission): a CPUID bit alone ends in SIGILL under some kernels and
 * hypervisors. The only file outside src/kernel that speaks to the CPU directly.
 */
#include <stddef.h>
#include <string.h>

#include "base/machine.h"

static const char *const level_names[BT_CPU_N] = {
    [BT_CPU_SCALAR] = "scalar",         [BT_CPU_AVX2] = "avx2", [BT_CPU_AVX512] = "avx512",
    [BT_CPU_AVX512VNNI] = "avx512vnni", [BT_CPU_AMX] = "amx",
};

const char *bt_cpu_level_name(bt_cpu_level l)
{
    return (unsigned)l < BT_CPU_N ? level_names[l] : "unknown";
}

bool bt_cpu_level_parse(const char *name, bt_cpu_level *l)
{
    for (unsigned i = 0; i < BT_CPU_N; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *l = (bt_cpu_level)i;
            return true;
        }
    }
    return false;
}

#if defined(__x86_64__)

#    include <cpuid.h>
#    include <sys/syscall.h>
#    include <unistd.h>

#    define REQUEST_XCOMP_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM of arch_prctl(2) */
#    define XFEATURE_TILE_DATA       18

typedef struct registers {
    unsigned a, b, c, d;
} registers;

static registers cpuid(unsigned leaf, unsigned subleaf)
{
    registers r = {0, 0, 0, 0};
    (void)__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d); /* all zero where the leaf is missing */
    return r;
}

static bool has(unsigned flags, unsigned bits)
{
    return (flags & bits) == bits;
}

static unsigned bit(unsigned n)
{
    return 1u << n;
}

static unsigned read_xcr0(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bt_cpu_level bt_cpu_detect(void)
{
    registers one = cpuid(1, 0), seven = cpuid(7, 0);
    const unsigned osxsave = bit(27), avx = bit(28), fma = bit(12), f16c = bit(29);
    if (!has(one.c, osxsave | avx | fma | f16c)) return BT_CPU_SCALAR;
    unsigned xcr0 = read_xcr0();
    if (!has(xcr0, bit(1) | bit(2))) return BT_CPU_SCALAR;                        /* xmm, ymm */
    if (!has(seven.b, bit(5))) return BT_CPU_SCALAR;                              /* AVX2 */
    if (!has(xcr0, bit(5) | bit(6) | bit(7))) return BT_CPU_AVX2;                 /* masks and zmm */
    if (!has(seven.b, bit(16) | bit(17) | bit(30) | bit(31))) return BT_CPU_AVX2; /* F, DQ, BW, VL */
    registers seven_one = seven.a >= 1 ? cpuid(7, 1) : (registers){0, 0, 0, 0};
    if (!has(seven.c, bit(11)) || !has(seven_one.a, bit(5))) return BT_CPU_AVX512; /* VNNI, BF16 */
    if (!has(seven.d, bit(22) | bit(24) | bit(25))) return BT_CPU_AVX512VNNI;      /* AMX BF16, TILE, INT8 */
    if (!has(xcr0, bit(17) | bit(18))) return BT_CPU_AVX512VNNI;                   /* tile config and data */
    bool granted = syscall(SYS_arch_prctl, REQUEST_XCOMP_PERMISSION, XFEATURE_TILE_DATA) == 0;
    return granted ? BT_CPU_AMX : BT_CPU_AVX512VNNI;
}

void bt_cpu_relax(void)
{
    __asm__ volatile("pause");
}

#else

bt_cpu_level bt_cpu_detect(void)
{
    return BT_CPU_SCALAR;
}

void bt_cpu_relax(void)
{
#    if defined(__aarch64__)
    __asm__ volatile("yield");
#    endif
}

#endif
