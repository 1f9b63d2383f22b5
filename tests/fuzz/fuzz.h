/*
 * A fuzz target: one function that gives outside bytes to a reader, which must neither crash nor hang, and must leak
 * nothing. tests/fuzz/fuzz_X.c holds the target X, tests/fuzz/corpus/X/ its inputs.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* Where a target that needs files makes its folder: in memory, where there is such a place. */
static inline const char *fuzz_folder(void)
{
    return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm/baltoro-fuzz-XXXXXX" : "/tmp/baltoro-fuzz-XXXXXX";
}

/* libFuzzer's name and contract: returns 0; data holds exactly size bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
