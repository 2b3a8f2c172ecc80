/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the fuzz targets share. A target is one file with fuzz_one; it is linked to
 * libFuzzer in a build with SYMMEM_FUZZ, and to replay.c in every other one, where it runs its
 * corpus as a test.
 */
#ifndef SYMMEM_TESTS_FUZZ_H
#define SYMMEM_TESTS_FUZZ_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/context.h>
#include <symmem/symmem.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Called once before the first input; a target may do without. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* What must hold for every input. Ends the process, which libFuzzer takes for a finding. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fuzz_broken(__FILE__, __LINE__, #condition);                                           \
    } while (0)
void fuzz_broken(const char *file, int line, const char *condition) __attribute__((noreturn));

/* --- the input as a stream of values: what is behind its end reads as zeros ---------- */

typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;

void fuzz_take(fuzz_input *in, void *bytes, size_t count);
uint8_t fuzz_u8(fuzz_input *in);
uint16_t fuzz_u16(fuzz_input *in);
uint32_t fuzz_u32(fuzz_input *in);
uint64_t fuzz_u64(fuzz_input *in);
/* In [0, count); count at most 65536. */
uint32_t fuzz_below(fuzz_input *in, uint32_t count);
/* A size or number of the kind that breaks arithmetic as often as not: small, around `about`,
 * around a power of two, anything. */
uint64_t fuzz_number(fuzz_input *in, uint64_t about);
/* A string of at most capacity - 1 bytes, none of them 0. */
void fuzz_text(fuzz_input *in, char *text, size_t capacity);
/* Overwrites or flips a few bytes of an honest object, as the input says. */
void fuzz_spoil(fuzz_input *in, void *object, size_t bytes);

/* The target: one input, which leaves no descriptor behind. Random bytes of the product repeat with
 * each, so that an input does the same each time (every target is linked with --wrap=getrandom). */
void fuzz_one(fuzz_input *in);

/* --- the process around the target --------------------------------------------------- */

/* For the contexts of targets with one thread: what waits comes to its limit at once. It is what
 * the thread of an input goes by. */
extern const symmem_clock fuzz_clock;
int fuzz_count_descriptors(void);
int fuzz_count_mappings(void); /* of memory that is shared */
uint64_t fuzz_now_ms(void);
/* A folder of this process's own, removed when it ends. */
const char *fuzz_folder(void);
/* Removes what is in a folder, and the folder itself. */
void fuzz_remove_tree(const char *path);
/* A failed call: its status is one of the list, and the thread's record is in order (texts end,
 * ranks lie in a world of world_size, the missing set agrees with its count). */
void fuzz_check_failure(symmem_status status, int32_t world_size);
bool fuzz_is_status(int value);

#endif
