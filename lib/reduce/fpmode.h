/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the caller's rounding, flush and trap modes aside while a kernel runs. Another rank's call may
 * evaluate my sum, so the bits must not depend on how its thread has set its floating point unit.
 * The clobbers keep the kernel's loads behind the entry and its stores before the exit. */
#ifndef RR_FPMODE_H
#define RR_FPMODE_H

#include "base/base.h"

#if defined(__x86_64__)

/* MXCSR without its sticky flags: all exceptions masked, to nearest even, no FTZ, no DAZ. */
#define FPMODE_BITS 0xffc0u
#define FPMODE_PLAIN 0x1f80u

static inline uint64_t fpmode_enter(void)
{
    uint32_t was, plain = FPMODE_PLAIN;

    __asm__ __volatile__("stmxcsr %0" : "=m"(was)::"memory");
    if (RR_UNLIKELY((was & FPMODE_BITS) != FPMODE_PLAIN))
        __asm__ __volatile__("ldmxcsr %0" ::"m"(plain) : "memory");
    return was;
}

static inline void fpmode_leave(uint64_t was)
{
    uint32_t back = (uint32_t)was;

    if (RR_UNLIKELY((back & FPMODE_BITS) != FPMODE_PLAIN))
        __asm__ __volatile__("ldmxcsr %0" ::"m"(back) : "memory");
}

#elif defined(__aarch64__)

static inline uint64_t fpmode_enter(void)
{
    uint64_t was;

    __asm__ __volatile__("mrs %0, fpcr" : "=r"(was)::"memory");
    if (RR_UNLIKELY(was != 0))
        __asm__ __volatile__("msr fpcr, %0" ::"r"((uint64_t)0) : "memory");
    return was;
}

static inline void fpmode_leave(uint64_t was)
{
    __asm__ __volatile__("" ::: "memory");
    if (RR_UNLIKELY(was != 0))
        __asm__ __volatile__("msr fpcr, %0" ::"r"(was) : "memory");
}

#endif
#endif
