/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's signal state, spoilt by hand, and a descriptor that is not what it stands for. No
 * call gives either, so the active backend's table is registered once more, under another name,
 * with an entry that remembers the one and another that exchanges the other.
 */
#include <sys/mman.h>
#include <sys/types.h>

#include "backend_table.h"
#include "ops_help.h"
#include "sync_help.h"

/* What peers_open saw last, in the rank's own thread. */
struct seen {
    void *state;
    size_t bytes;
};

static _Thread_local struct seen seen;
static void change_entries(flat_backend *table);
static struct table_twin spy = {.name = "suite_spy", .change = change_entries};

static symmem_status remember_peers(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                    void **pads_dev_p) {
    seen = (struct seen){peers->signals[peers->rank], peers->signal_bytes};
    return spy.real->signal->peers_open(instance, peers, buffers_dev_p, pads_dev_p);
}

/* Where the core makes signals of words in the heaps, a reset tells where: it asks the backend to
 * complete what is under way, in a world of one rank, too. */
static symmem_status remember_quiet(void *instance, const symmem_peers *peers,
                                    const symmem_exec *exec) {
    if (peers != NULL)
        seen = (struct seen){peers->signals[peers->rank], peers->signal_bytes};
    return spy.real->reach->quiet(instance, peers, exec);
}

/* While this rank lies, what its peers get is a file of so many bytes. */
static _Thread_local bool lies;
static _Thread_local off_t lie_bytes;

static symmem_status export_or_lie(void *instance, symmem_memory *memory, symmem_share *share) {
    symmem_status status = spy.real->memory->share(instance, memory, share);
    if (status != SYMMEM_OK || !lies || (share->kind & SYMMEM_SHARE_FD) == 0)
        return status;
    int file = memfd_create("symmem-suite-short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file >= 0) { /* sealed, so that its length alone is wrong */
        if (ftruncate(file, lie_bytes) == 0 &&
            fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
            (void)dup3(file, share->fd, O_CLOEXEC);
        close(file);
    }
    return status;
}

static void change_entries(flat_backend *table) {
    if (table->peers_open != NULL)
        table->peers_open = remember_peers;
    else
        table->reach_quiet = remember_quiet;
    if (table->memory_share != NULL)
        table->memory_share = export_or_lie;
}

enum { CHANNEL = 2, SPOILT = 0xDEAD, MOST_WORDS = 64 };

/* Every word of rank 0's state holds what no protocol knows. */
static void all_is_spoilt(struct tk *t, symmem_handle *handle) {
    if (t->rank == 0) {
        int64_t words = (int64_t)(seen.bytes / 4);
        const DLTensor *state = FLAT(seen.state, SYMMEM_UINT32, (size_t)words);
        TK_OK(t, symmem_memset32(t->context, state, 0, SPOILT, words, NULL));
        symmem_status status = symmem_wait_signal(handle, t->last, CHANNEL, 200, NULL);
        TK_CHECK_MSG(
            t, status == SYMMEM_CORRUPT || status == SYMMEM_TIMEOUT || status == SYMMEM_POISONED,
            "0xDEAD in place of a signal: %s", symmem_status_name(status));
        TK_CHECK(t, status != SYMMEM_CORRUPT || last_record().actual == SPOILT);
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
}

/* The words of that rank's state that are 1 while a signal of the last rank's to rank 0 is there,
 * and 0 before and after that: its slot. Others that happen to be so do no harm. */
static int find_slot(struct tk *t, symmem_handle *handle, int32_t owner, size_t slots[MOST_WORDS]) {
    const int32_t source = t->last;
    const size_t words = seen.bytes / 4;
    uint32_t *states[3];
    int found = 0;
    for (int i = 0; i < 3; i++) {
        if (i == 1 && t->rank == source)
            TK_OK(t, symmem_put_signal(handle, 0, CHANNEL, LONG_MS, NULL));
        if (i == 2 && t->rank == 0)
            TK_OK(t, symmem_wait_signal(handle, source, CHANNEL, LONG_MS, NULL));
        tk_out_of_band_barrier(t);
        states[i] = tk_scratch(t, words * 4);
        if (t->rank == owner)
            ops_download(t, states[i], seen.state, words * 4);
        tk_out_of_band_barrier(t);
    }
    for (size_t at = 0; t->rank == owner && at < words && found < MOST_WORDS; at++)
        if (states[0][at] == 0 && states[1][at] == 1 && states[2][at] == 0)
            slots[found++] = at;
    tk_share_u64(t, 8, (uint64_t)found);
    tk_out_of_band_barrier(t);
    return (int)tk_read_u64(t, owner, 8);
}

/* That slot alone, so that nothing else is wrong: it is CORRUPT for a wait and for a put. */
static void slot_is_spoilt(struct tk *t, symmem_handle *handle, bool put, int32_t owner,
                           const size_t *slots, int count) {
    const int32_t source = t->last;
    for (int i = 0; t->rank == owner && i < count; i++) {
        const DLTensor *word = FLAT((char *)seen.state + 4 * slots[i], SYMMEM_UINT32, 1);
        TK_OK(t, symmem_memset32(t->context, word, 0, SPOILT, 1, NULL));
    }
    tk_out_of_band_barrier(t);
    if (t->rank == (put ? source : 0)) {
        TK_FAILS(t, CORRUPT,
                 put ? symmem_put_signal(handle, 0, CHANNEL, tk_limit_ms(t, 2000), NULL)
                     : symmem_wait_signal(handle, source, CHANNEL, tk_limit_ms(t, 2000), NULL));
        symmem_error_record record = last_record();
        TK_EQ_STR(t, put ? "put_signal" : "wait_signal", record.operation);
        TK_EQ_INT(t, CHANNEL, record.channel);
        TK_EQ_INT(t, put ? 0 : source, record.failed_rank);
        TK_EQ_SIZE(t, SPOILT, record.actual);
        TK_CHECK(t, info_of(t, handle).poisoned);
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
}

TK_TEST(signal, spoilt_state_is_no_signal, "SM-TIMEOUT-10,SM-TIMEOUT-07", .max_ranks = 2,
        .flags = TK_NO_BACKEND) {
    size_t slots[MOST_WORDS];
    use_twin(t, &spy);
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    if (spy.real->signal == NULL)
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_REQUIRE(t, seen.state != NULL && seen.bytes >= 4);
    tk_out_of_band_barrier(t);
    all_is_spoilt(t, handle);
    for (int put = 0; put < 2; put++) {
        /* What the core makes of the group reach looks at the source's own word. */
        const int32_t owner = put && spy.real->signal == NULL ? t->last : 0;
        int count = find_slot(t, handle, owner, slots);
        if (count == 0 && t->rank == owner)
            tk_note(t, "no word of the state is the slot");
        if (count > 0)
            slot_is_spoilt(t, handle, put, owner, slots, count);
    }
    ring_signal(t, handle, CHANNEL);
    TK_OK(t, symmem_barrier(handle, CHANNEL, LONG_MS, NULL));
}

/* Code that maps it without a look dies of the first access beyond its end. A backend that shares
 * no descriptors has nothing to be deceived by. */
static void file_for_memory(struct tk *t, off_t bytes) {
    symmem_handle *handle = NULL;
    tk_checkpoint(t, "a file of %lld bytes", (long long)bytes);
    void *ptr = tk_alloc(t, 1 << 16);
    lie_bytes = bytes;
    lies = t->rank == 0;
    symmem_status status = symmem_rendezvous(t->context, ptr, tk_world_group(t), LONG_MS, &handle);
    lies = false;
    tk_share_u64(t, 0, (uint64_t)status);
    tk_out_of_band_barrier(t);
    TK_EQ_INT(t, (int64_t)tk_read_u64(t, 0, 0), (int64_t)status);
    if (status == SYMMEM_OK) { /* then it is the memory after all */
        /* At a place of its own each: ThreadSanitizer sees the ranks of one process. */
        tk_fill(t, handle, 0, (1 << 16) - 8 * ((size_t)t->rank + 1), 8, (uint8_t)t->rank);
        symmem_handle_release(handle);
    }
    tk_out_of_band_barrier(t);
    handle = tk_rendezvous(t, ptr, tk_world_group(t));
    ring_signal(t, handle, 0);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_release(t, handle);
}

TK_TEST(rendezvous, empty_file_for_memory, "SM-RDV-22", .ranks = {2, 2}, .flags = TK_NO_BACKEND) {
    use_twin(t, &spy);
    file_for_memory(t, 0);
    file_for_memory(t, 1 << 15);
}
