/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the kernels of this machine, once per process: the only place that asks the CPU. A plain
 * x86-64 runs the reference; AVX2 and AVX-512 are used where both the CPU and the system offer them. */
#include "reduce/kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

struct family {
    const char *name;
    rr_reduce_fn any, sum_float32, sum_float64;
    rr_copy_fn copy; /* NULL: memcpy */
};

enum { HAS_AVX2 = 1, HAS_AVX512 = 2, LIKES_AVX512 = 4, ASKED = 8 };

static const struct family plain = { "c", rr_reduce_ref, rr_reduce_ref_float32, rr_reduce_ref_float64, NULL };
#if defined(__x86_64__)
static const struct family avx2 = { "avx2", rr_reduce_avx2, rr_reduce_avx2_float32, rr_reduce_avx2_float64,
                                    rr_copy_avx2 };
static const struct family avx512 = { "avx512", rr_reduce_avx512, rr_reduce_avx512_float32,
                                      rr_reduce_avx512_float64, rr_copy_avx512 };

/* Which register files the system saves: XCR0. Only after CPUID has said OSXSAVE. */
static unsigned saved_state(void)
{
    unsigned low, high;

    __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Where 512-bit vectors pay. Intel's first generations slow their clock for them; those with VBMI2
 * do not. AMD's Zen 4 runs them in halves, and streams from memory a quarter faster with AVX2. */
static bool likes_avx512(unsigned leaf7_ecx)
{
    unsigned a, b, c, d, family;

    if (!(leaf7_ecx & bit_AVX512VBMI2) || !__get_cpuid(0, &a, &b, &c, &d))
        return false;
    if (b != signature_AMD_ebx)
        return true;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return false;
    family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
    return family > 0x19;
}

static unsigned ask_cpu(void)
{
    const unsigned sse_avx = 0x6, opmask_zmm = 0xe0;
    const unsigned f_bw_dq_vl = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    unsigned a, b, c, d, has = ASKED, state, first;

    if (!__get_cpuid(1, &a, &b, &first, &d) || !(first & bit_OSXSAVE) || !(first & bit_AVX))
        return has;
    state = saved_state();
    if ((state & sse_avx) != sse_avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return has;
    if ((b & bit_AVX2) && (first & bit_F16C))
        has |= HAS_AVX2;
    if ((b & f_bw_dq_vl) == f_bw_dq_vl && (state & opmask_zmm) == opmask_zmm)
        has |= HAS_AVX512;
    if ((has & HAS_AVX512) && likes_avx512(c))
        has |= LIKES_AVX512;
    return has;
}

static unsigned cpu_has(void)
{
    static atomic_uint known; /* relaxed: every thread finds the same */
    unsigned has = atomic_load_explicit(&known, memory_order_relaxed);

    if (RR_UNLIKELY(has == 0)) {
        has = ask_cpu(); /* traps in virtual machines: tens of microseconds */
        atomic_store_explicit(&known, has, memory_order_relaxed);
    }
    return has;
}

static const struct family *best(void)
{
    const unsigned has = cpu_has();

    return (has & LIKES_AVX512) ? &avx512 : (has & HAS_AVX2) ? &avx2 : &plain;
}

static const struct family *named(const char *name)
{
    if (strcmp(name, avx512.name) == 0)
        return (cpu_has() & HAS_AVX512) ? &avx512 : NULL;
    if (strcmp(name, avx2.name) == 0)
        return (cpu_has() & HAS_AVX2) ? &avx2 : NULL;
    return strcmp(name, plain.name) == 0 ? &plain : NULL;
}

#else
static const struct family neon = { "neon", rr_reduce_neon, rr_reduce_neon_float32, rr_reduce_neon_float64,
                                    NULL };

static const struct family *best(void)
{
    return &neon; /* part of the architecture */
}

static const struct family *named(const char *name)
{
    if (strcmp(name, neon.name) == 0)
        return &neon;
    return strcmp(name, plain.name) == 0 ? &plain : NULL;
}
#endif

static rr_reduce_fn kernel_of(const struct family *f, int type, int op)
{
    if (f == NULL || !rr_op_legal(type, op))
        return NULL;
    if (op == RINGRED_SUM || op == RINGRED_AVG) {
        if (type == RINGRED_FLOAT32)
            return f->sum_float32;
        if (type == RINGRED_FLOAT64)
            return f->sum_float64;
    }
    return f->any;
}

rr_reduce_fn rr_reduce_kernel(int type, int op)
{
    return kernel_of(best(), type, op);
}

rr_reduce_fn rr_reduce_reference(int type, int op)
{
    return kernel_of(&plain, type, op);
}

rr_reduce_fn rr_reduce_named(const char *name, int type, int op)
{
    return kernel_of(named(name), type, op);
}

const char *rr_reduce_name(void)
{
    return best()->name;
}

void rr_copy(void *to, const void *from, size_t bytes)
{
    const rr_copy_fn wide = bytes < 256 ? NULL : best()->copy;

    if (wide)
        wide(to, from, bytes);
    else if (bytes > 0)
        memcpy(to, from, bytes);
}
