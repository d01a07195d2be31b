/* SPDX-License-Identifier: Apache-2.0 */
/* What every fuzz target offers: the entry that libFuzzer calls, and inputs to begin with. Built
 * with clang and -Dfuzz=true a target is a libFuzzer program; otherwise drive.c feeds it a fixed
 * set of mutations, as an ordinary test. A target aborts on what must never happen. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Writes valid input number `which` and returns its length; 0: there are no more. */
size_t fuzz_seed(int which, uint8_t *to, size_t room);

#endif
