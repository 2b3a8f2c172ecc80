/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store in which the fuzz input speaks for all other ranks of a group. By default they are
 * honest: they mirror what the one real rank gives, so that every step succeeds and the next one is
 * reached. Each answer takes a byte of the input that may change it. An honest rank tells of no end
 * and no lack of its own; the input may make it do so.
 */
#ifndef SYMMEM_TESTS_EVIL_STORE_H
#define SYMMEM_TESTS_EVIL_STORE_H

#include "fuzz.h"
#include "bootstrap/session_internal.h"

typedef struct evil_store evil_store;

#define EVIL_TOLD_MAX 8

struct evil_store {
    fuzz_input *in;
    int32_t rank; /* the real one */
    int32_t world_size;
    /* Of the evil ranks' sockets; 0 bytes: they share the real rank's. */
    uint8_t address[SM_IPC_ADDRESS_MAX];
    uint32_t address_bytes;
    /* Called when the real rank has given its part; NULL: not wanted. */
    void (*given)(evil_store *evil, void *arg);
    /* Makes the mirrored payload that of `rank`; NULL: all give the same. */
    void (*vary)(const evil_store *evil, int32_t rank, unsigned char *payload, size_t bytes,
                 void *arg);
    void *arg;
    uint32_t calls_left; /* after so many calls every one fails, which ends each wait */
    /* what the real rank has shown */
    bool joined;
    sm_join join;
    unsigned char *part;
    size_t part_bytes;
    /* the latest combined value, and whether the real rank made it */
    unsigned char *all;
    size_t all_bytes;
    bool combined;
    /* the latest part that was answered for each of the first ranks */
    struct {
        unsigned char *value;
        size_t bytes;
    } told[EVIL_TOLD_MAX];
    uint64_t id; /* of the latest exchange */
    /* the real rank's latest value that belongs to no group */
    unsigned char *word;
    size_t word_bytes;
};

/* `in` and `evil` must outlive the store. */
symmem_store *evil_store_open(evil_store *evil, fuzz_input *in, int32_t rank, int32_t world_size);
void evil_store_close(evil_store *evil, symmem_store *store);
/* The honest join record of a rank. */
void evil_join(const evil_store *evil, int32_t rank, sm_join *join_p);

#endif
