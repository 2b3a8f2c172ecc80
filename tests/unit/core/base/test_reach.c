/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals of peers without pointers, by a peer that this file makes. */
#include "backend/reach.h"
#include "backend/instance.h"
#include "unit.h"

enum { PEER = 1, BYTES = 1 << 16 };

static uint32_t signals[BYTES / 4];
static size_t arrival_offset; /* of the word that this rank wrote to the peer, and its value */
static uint32_t arrival;
static bool arrives; /* just before it ends */
static symmem_fault failure;

static symmem_status write_word(void *instance, const symmem_place *to, uint32_t value,
                                const symmem_exec *exec) {
    arrival_offset = to->offset;
    arrival = value;
    return SYMMEM_OK;
}

static symmem_status quiet(void *instance, const symmem_peers *peers, const symmem_exec *exec) {
    return SYMMEM_OK;
}

/* The peer's words stand beside this rank's. */
static symmem_peer_state ends(const symmem_peers *peers, int32_t rank) {
    if (arrives)
        signals[arrival_offset / sizeof(signals[0]) + PEER] = arrival;
    return SYMMEM_PEER_GONE;
}

static bool is_sound(const symmem_peers *peers) {
    return false;
}

static void note(const symmem_peers *peers, const symmem_fault *fault,
                 symmem_error_record *record) {
    failure = *fault;
}

/* What a rank did before it ended counts, also if it came while this rank asked for its state. */
TEST("an arrival just before an end") {
    for (int i = 0; i < 2; i++) {
        sm_backend table = {.reach_write_value32 = write_word, .reach_quiet = quiet};
        symmem_context context = {.backend = &table};
        const symmem_host host = {
            .self = &context, .peer_state = ends, .is_poisoned = is_sound, .signal_failed = note};
        void *all_signals[2] = {signals, NULL};
        size_t offsets[2] = {0, 0};
        int32_t ranks[2] = {0, PEER};
        symmem_peers peers = {.host = &host, .world_size = 2, .global_ranks = ranks};
        const symmem_exec exec = {.timeout_ms = 5000};
        peers.signals = all_signals;
        peers.signal_offsets = offsets;
        peers.channel_count = 4;
        sm_reach_signals(&table);
        memset(signals, 0, sizeof(signals));
        memset(&failure, 0, sizeof(failure));
        arrives = i == 0;
        CU_ASSERT_EQUAL(table.barrier(NULL, &peers, 0, &exec),
                        arrives ? SYMMEM_OK : SYMMEM_PEER_LOST);
        CU_ASSERT_EQUAL(failure.status, arrives ? SYMMEM_OK : SYMMEM_PEER_LOST);
        CU_ASSERT_EQUAL(failure.missing[0], arrives ? 0 : 1u << PEER);
    }
}
