/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend to start from, written from symmem's installed headers and SPEC.md alone: ranks are
 * processes of one host, memory is a file without a name that peers map, signals are words in it.
 * It has what core asks for. GUIDE.md leads through it. No variables: contexts would share them.
 */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <symmem/backend.h>

#define NS_PER_MS 1000000ull
/* A wait yields the core so often, then naps, and so often asks whether its peers still live. */
#define YIELDS 1000
#define NAP_NS 100000
#define LOOK_NS (50 * NS_PER_MS)

/* --- the backend and its devices ---------------------------------------------------- */
/* Every Linux has what this one needs. A driver's backend would look for its device. */
static symmem_status example_probe(char *reason, size_t capacity) {
    return SYMMEM_OK;
}

/* It has nothing to remember but the core's services; another would allocate a structure here. */
static symmem_status example_open(const symmem_host *host, const symmem_backend_config *config,
                                  void **instance_p) {
    *instance_p = (void *)(uintptr_t)host;
    return SYMMEM_OK;
}

static void example_close(void *instance) {}

/* One for each possible rank: ranks on one device would have to allow it. */
static symmem_status example_device_count(void *instance, int32_t *count_p) {
    *count_p = SYMMEM_MAX_WORLD_SIZE;
    return SYMMEM_OK;
}

static symmem_status example_device_info(void *instance, int32_t device,
                                         symmem_device_info *info_p) {
    info_p->device_type = 1; /* kDLCPU */
    info_p->granularity = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(info_p->name, sizeof info_p->name, "example device %d", (int)device);
    return SYMMEM_OK;
}

/* --- memory ------------------------------------------------------------------------- */
/* Users branch on the status and read the text, which names the step that failed. */
static symmem_status fail_errno(const symmem_host *host, int error, const char *operation,
                                const char *step) {
    symmem_status status = error == EMFILE || error == ENFILE ? SYMMEM_LIMIT
                           : error == ENOMEM                  ? SYMMEM_OUT_OF_MEMORY
                           : error == ENOSPC                  ? SYMMEM_NO_SPACE
                                                              : SYMMEM_SYSTEM;
    return host->fail(host, status, error, operation, "%s: error %d", step, error);
}

static size_t whole_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Maps the file. Outputs are written on success only, here as everywhere. */
static symmem_status map_file(const symmem_host *host, int fd, const char *operation,
                              symmem_memory made, symmem_memory *memory) {
    made.ptr = mmap(NULL, whole_pages(made.bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (made.ptr == MAP_FAILED)
        return fail_errno(host, errno, operation, "mmap");
    /* A peer's memory is kept by its mapping alone: no descriptor for each peer. */
    made.priv = made.imported ? NULL : (void *)(intptr_t)fd;
    *memory = made;
    return SYMMEM_OK;
}

/* All pages now, so that a shortage is an error here and not a signal later; in pieces, for a
 * kernel that is interrupted gives back all of one. Sealed, or a rank could shorten it under its
 * peers. */
static int reserve(int fd, size_t bytes) {
    const size_t piece = (size_t)1 << 20;
    if (fchmod(fd, 0600) != 0) /* for this user alone */
        return errno;
    for (size_t done = 0; done < bytes;) {
        size_t next = bytes - done < piece ? bytes - done : piece;
        int error = posix_fallocate(fd, (off_t)done, (off_t)next);
        if (error != 0 && error != EINTR)
            return error;
        done += error == 0 ? next : 0;
    }
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 ? 0 : errno;
}

static symmem_status example_alloc(void *instance, int32_t device, size_t bytes,
                                   symmem_memory *memory) {
    const symmem_host *host = instance;
    /* The kernel hands such pages out without a limit, and kills some process once it has none
     * left. So this takes no more than half of the machine, as /dev/shm does it. */
    uint64_t limit = (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
    if (bytes > limit)
        return host->fail_sizes(host, SYMMEM_NO_SPACE, ENOSPC, "alloc", bytes, limit);
    symmem_status status = host->point(host, "example.alloc.create");
    if (status != SYMMEM_OK)
        return status;
    /* A file without a name: if this process is killed now, nothing stays behind. */
    int fd = memfd_create("symmem-example", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return fail_errno(host, errno, "alloc", "memfd_create");
    int error = reserve(fd, whole_pages(bytes));
    symmem_memory made = {.bytes = bytes, .device = device};
    status = error == 0 ? map_file(host, fd, "alloc", made, memory)
                        : fail_errno(host, error, "alloc", "reserving memory");
    if (status != SYMMEM_OK)
        close(fd); /* on failure undo what this call did, and nothing else */
    return status;
}

/* Peers that have mapped the memory keep it: the file lives until its last mapping goes. */
static void example_release(void *instance, symmem_memory *memory) {
    munmap(memory->ptr, whole_pages(memory->bytes));
    if (!memory->imported)
        close((int)(intptr_t)memory->priv);
}

static symmem_status example_share(void *instance, symmem_memory *memory, symmem_share *share) {
    int fd = fcntl((int)(intptr_t)memory->priv, F_DUPFD_CLOEXEC, 0); /* memory_unshare closes it */
    if (fd < 0)
        return fail_errno(instance, errno, "rendezvous", "duplicating a descriptor");
    share->kind = SYMMEM_SHARE_FD;
    share->fd = fd;
    share->mapped_bytes = whole_pages(memory->bytes);
    return SYMMEM_OK;
}

static void example_unshare(void *instance, symmem_share *share) {
    close(share->fd);
    share->fd = -1;
}

static symmem_status example_map(void *instance, int32_t device, const symmem_share *share,
                                 size_t bytes, symmem_memory *memory) {
    const symmem_host *host = instance;
    struct stat file; /* comes from outside, so look: too short a file would be fatal later */
    if (fstat(share->fd, &file) != 0)
        return fail_errno(host, errno, "rendezvous", "looking at a peer's memory");
    if ((uint64_t)file.st_size < whole_pages(bytes))
        return host->fail(host, SYMMEM_MISMATCH, 0, "rendezvous", "%lld of %zu bytes are there",
                          (long long)file.st_size, bytes);
    symmem_memory made = {.bytes = bytes, .device = device, .imported = 1};
    return map_file(host, share->fd, "rendezvous", made, memory);
}

/* --- signal state --------------------------------------------------------------------
 * Words of 32 bits in each rank's memory, all 0 at the start:
 *   poisoned         one word, not 0: this rank has given up; alone in its cache line
 *   table[row][rank] row = channel: a signal, 0 or 1, put by `rank`, consumed by the owner
 *                    row = channels + channel: the number of the last barrier `rank` entered
 *   number[channel]  of the owner's own last barrier; no other rank reads it
 * So a pending signal is never an arrival. A barrier's number lives here and not in a static
 * variable, which two links would share. It wraps; differences are compared. */
#define HEADER_WORDS 16
typedef _Atomic uint32_t word;
_Static_assert(sizeof(word) == 4 && ATOMIC_INT_LOCK_FREE == 2, "processes share these words");

static word *table_word(const symmem_peers *peers, int32_t owner, int32_t row, int32_t rank) {
    return (word *)peers->signals[owner] + HEADER_WORDS + (size_t)row * (size_t)peers->world_size +
           (size_t)rank;
}

static size_t example_signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                                   size_t block_bytes) {
    size_t ranks = (size_t)world_size, channels = (size_t)channel_count;
    return (HEADER_WORDS + 2 * channels * ranks + channels) * sizeof(word);
}

static symmem_status example_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                        void **pads_dev_p) {
    *buffers_dev_p = (void *)(uintptr_t)peers->buffers; /* the CPU reads the host's own tables */
    *pads_dev_p = (void *)(uintptr_t)peers->pads;
    return SYMMEM_OK;
}

static void example_peers_close(void *instance, symmem_peers *peers) {}

static symmem_status example_signal_reset(void *instance, const symmem_peers *peers) {
    word *own = peers->signals[peers->rank];
    for (size_t i = 0; i < peers->signal_bytes / sizeof(word); i++)
        atomic_store_explicit(&own[i], 0, memory_order_relaxed); /* the core's barriers order it */
    return SYMMEM_OK;
}

static void example_signal_poison(void *instance, const symmem_peers *peers) {
    /* release; pairs with: the load in look_around */
    atomic_store_explicit((word *)peers->signals[peers->rank], 1, memory_order_release);
}

/* --- waiting ------------------------------------------------------------------------ */
typedef struct wait {
    const symmem_peers *peers;
    enum { BARRIER, PUT, TAKE } kind;
    int32_t rank, row;           /* rank: the one peer it is about; BARRIER: -1, all others */
    uint32_t number, timeout_ms; /* number: of a BARRIER's round */
    uint64_t start_ns;
    const char *operation; /* that it is a part of; NULL: none */
} wait;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static word *word_of(const wait *w, int32_t rank) {
    int32_t own = w->peers->rank;
    return w->kind == PUT ? table_word(w->peers, rank, w->row, own)
                          : table_word(w->peers, own, w->row, rank);
}

/* Whether `rank` has done its part. Takes nothing. */
static bool is_there(const wait *w, int32_t rank) {
    /* acquire; pairs with: the arrival's store in example_barrier */
    uint32_t value = atomic_load_explicit(word_of(w, rank), memory_order_acquire);
    return w->kind == BARRIER ? (int32_t)(value - w->number) >= 0 : value != (w->kind == PUT);
}

/* Takes what is waited for if it is there; else *found_p is what the word holds. */
static bool take(const wait *w, int32_t rank, uint32_t *found_p) {
    *found_p = w->kind == TAKE;
    if (w->kind == BARRIER)
        return is_there(w, rank);
    /* release of a put, acquire of a wait: the one pairs with the other */
    return atomic_compare_exchange_strong_explicit(word_of(w, rank), found_p, w->kind == PUT,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

/* Whether to go on: not if the time is up, a peer that has still to come is gone or has given up,
 * or we have ourselves. Describes the failure then. */
static void look_around(const wait *w, bool expired, symmem_fault *fault_p) {
    const symmem_peers *peers = w->peers;
    int32_t missing = 0, last = -1;
    for (int32_t rank = 0; rank < peers->world_size; rank++) {
        if (w->rank < 0 ? rank == peers->rank : rank != w->rank)
            continue;
        bool gone = peers->host->peer_state(peers, rank) == SYMMEM_PEER_GONE;
        /* acquire; pairs with: the store in example_signal_poison */
        bool poisoned = atomic_load_explicit((word *)peers->signals[rank], memory_order_acquire);
        if (is_there(w, rank)) /* looked at last: what it did before its end counts */
            continue;
        fault_p->missing[rank / 64] |= 1ull << (rank % 64);
        missing++;
        last = rank;
        if ((gone || poisoned) && fault_p->status == SYMMEM_OK) {
            fault_p->status = gone ? SYMMEM_PEER_LOST : SYMMEM_POISONED;
            fault_p->failed_rank = rank;
        }
    }
    if (fault_p->status == SYMMEM_OK && peers->host->is_poisoned(peers)) {
        fault_p->status = SYMMEM_POISONED;
        fault_p->failed_rank = peers->rank;
    } else if (fault_p->status == SYMMEM_OK && expired && missing > 0) {
        fault_p->status = SYMMEM_TIMEOUT;
        fault_p->failed_rank = missing == 1 ? last : -1;
    }
    if (fault_p->status == SYMMEM_POISONED)
        memset(fault_p->missing, 0, sizeof fault_p->missing); /* no rank is late: all is off */
}

static symmem_status wait_for(const wait *w, int32_t rank) {
    static const char *const names[] = {"barrier", "put_signal", "wait_signal"};
    uint64_t limit_ns = w->timeout_ms * NS_PER_MS, next_look_ns = w->start_ns + LOOK_NS;
    uint32_t found = 0;
    for (uint32_t round = 0; !take(w, rank, &found); round++) {
        symmem_fault fault = {.operation = w->operation ? w->operation : names[w->kind],
                              .channel = w->row % w->peers->channel_count};
        uint64_t now = now_ns();
        bool expired = limit_ns > 0 && now - w->start_ns >= limit_ns; /* 0: no limit */
        if (found > 1) {
            fault.status = SYMMEM_CORRUPT;
            fault.failed_rank = rank;
            fault.actual = found;
        } else if (expired || now >= next_look_ns) {
            look_around(w, expired, &fault);
            next_look_ns = now + LOOK_NS;
        }
        if (fault.status != SYMMEM_OK) {
            fault.elapsed_ns = now - w->start_ns;
            w->peers->host->signal_failed(w->peers, &fault, NULL); /* in place of host->fail */
            return fault.status;
        }
        if (round < YIELDS)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return SYMMEM_OK;
}

static symmem_status example_put_signal(void *instance, const symmem_peers *peers, int32_t dst,
                                        int32_t channel, const symmem_exec *exec) {
    return wait_for(&(wait){peers, PUT, dst, channel, 0, exec->timeout_ms, now_ns(), NULL}, dst);
}

static symmem_status example_wait_signal(void *instance, const symmem_peers *peers, int32_t src,
                                         int32_t channel, const symmem_exec *exec) {
    return wait_for(&(wait){peers, TAKE, src, channel, 0, exec->timeout_ms, now_ns(), NULL}, src);
}

static symmem_status example_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                                     const symmem_exec *exec) {
    int32_t row = peers->channel_count + channel;
    wait w = {peers, BARRIER, -1, row, 0, exec->timeout_ms, now_ns(), exec->operation};
    /* relaxed: only this rank uses the word, and the core serializes a channel's operations. */
    word *number = table_word(peers, peers->rank, 2 * peers->channel_count, channel);
    w.number = atomic_fetch_add_explicit(number, 1, memory_order_relaxed) + 1;
    for (int32_t rank = 0; rank < peers->world_size; rank++)
        if (rank != peers->rank) /* release; pairs with: the load in is_there */
            atomic_store_explicit(table_word(peers, rank, row, peers->rank), w.number,
                                  memory_order_release);
    symmem_status status = SYMMEM_OK;
    for (int32_t rank = 0; rank < peers->world_size && status == SYMMEM_OK; rank++)
        if (rank != peers->rank)
            status = wait_for(&w, rank);
    return status;
}

/* --- bytes: without streams every operation is complete when it returns -------------------- */
static symmem_status example_copy(void *instance, int32_t device, void *dst, const void *src,
                                  size_t bytes, const symmem_exec *exec) {
    if (bytes > 0)
        memmove(dst, src, bytes);
    return SYMMEM_OK;
}

static symmem_status example_memset32(void *instance, int32_t device, void *dst, uint32_t value,
                                      size_t count, const symmem_exec *exec) {
    for (size_t i = 0; i < count; i++)
        ((uint32_t *)dst)[i] = value;
    return SYMMEM_OK;
}

static symmem_status example_write_value32(void *instance, int32_t device, void *dst,
                                           uint32_t value, const symmem_exec *exec) {
    /* release; pairs with: whatever load of the user's waits for the word */
    atomic_store_explicit((word *)dst, value, memory_order_release);
    return SYMMEM_OK;
}

/* --- the table: a group that is not named is NULL ----------------------------------------------
 */

static const symmem_instance_ops instance_ops = {.size = sizeof(symmem_instance_ops),
                                                 .probe = example_probe,
                                                 .open = example_open,
                                                 .close = example_close,
                                                 .device_count = example_device_count,
                                                 .device_info = example_device_info};

static const symmem_memory_ops memory_ops = {.size = sizeof(symmem_memory_ops),
                                             .alloc = example_alloc,
                                             .release = example_release,
                                             .share = example_share,
                                             .unshare = example_unshare,
                                             .map = example_map};

static const symmem_signal_ops signal_ops = {.size = sizeof(symmem_signal_ops),
                                             .bytes = example_signal_bytes,
                                             .peers_open = example_peers_open,
                                             .peers_close = example_peers_close,
                                             .barrier = example_barrier,
                                             .put = example_put_signal,
                                             .wait = example_wait_signal,
                                             .reset = example_signal_reset,
                                             .poison = example_signal_poison};

static const symmem_copy_ops copy_ops = {.size = sizeof(symmem_copy_ops),
                                         .copy = example_copy,
                                         .memset32 = example_memset32,
                                         .write_value32 = example_write_value32};

static const symmem_backend table = {
    .size = sizeof(symmem_backend),
    .abi = SYMMEM_BACKEND_ABI,
    .name = "example",
    .description = "symmem's example backend 1.0, nameless files of this host",
    .flags = SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_DIRECT_ACCESS,
    .instance = &instance_ops,
    .memory = &memory_ops,
    .signal = &signal_ops,
    .copy = &copy_ops};

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
