/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process holds and what lies about on the machine, for the cases that show that nothing is
 * left behind. Process-wide, so in thread mode only meaningful while the other ranks stand still.
 */
#ifndef SYMMEM_CONFORMANCE_RESOURCES_H
#define SYMMEM_CONFORMANCE_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open descriptors of this process; -1 if they cannot be counted. */
int resources_descriptors(void);
/* Shared mappings of this process. Private ones come and go with malloc and thread stacks. */
int resources_shared_mappings(void);
/* Bytes of address space in those shared mappings. */
uint64_t resources_shared_bytes(void);
/* Bytes of address space in all mappings, 0 if that is not known. */
uint64_t resources_address_space_bytes(void);
/* Bytes of the heap in use by all code; 0 if the C library does not tell. */
uint64_t resources_heap_bytes(void);
/* Threads of this process; -1 if they cannot be counted. */
int resources_threads(void);
/* Entries of a directory and of all below it; -1 if it cannot be read. */
int resources_count_entries(const char *directory);
/* How many of a directory and all below it have rights for anybody but the owner. */
int resources_entries_for_others(const char *directory);
/* Removes a directory and the files in it; false if something stays. */
bool resources_remove_directory(const char *directory);

#define RESOURCES_NAMES_MAX 4096
/* Names in the shared memory and the temporary directory. */
struct resources_names {
    int count;
    uint64_t hashes[RESOURCES_NAMES_MAX];
};
void resources_take_names(struct resources_names *names);
/*
 * Names that came since and stay for half a second, the first copied to `first`. The temporary
 * directory is the case's own, /dev/shm only counts if it is the run's own: others use the machine.
 */
int resources_new_names(const struct resources_names *before, char *first, size_t capacity);

/*
 * Root may write everywhere, which would hide a missing permission check: gives the calling thread
 * an ordinary user's identity for a while. Nothing happens if it has one already.
 */
struct resources_identity {
    bool changed;
    int death_signal;
};
bool resources_become_ordinary(struct resources_identity *saved);
bool resources_become_again(const struct resources_identity *saved);

#endif
