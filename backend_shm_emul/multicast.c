/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Emulated multicast. The object is a page that the ranks share, with the counts that a driver
 * would keep. The address is a reserved range that faults when touched. Only the multimem
 * operations translate it to an offset in every rank's buffer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/float_mode.h"
#include "cpu/reduce.h"
#include "reference/reduce.h"
#include "multicast.h"
#include "error.h"
#include "memory.h"
#include "op.h"
#include "segment.h"
#include "signals.h"

/* In the shared page. */
typedef struct shm_multicast_object {
    shm_word attached;
    shm_word bound;
    int32_t world_size; /* set before the share is handed out */
    uint32_t reserved;
    uint64_t bytes;
} shm_multicast_object;

/* One rank's view, or what create made. */
struct shm_multicast {
    shm_multicast *next; /* with instance->lock */
    shm_segment *segment;
    int32_t device;
    bool has_slot;
    char *address; /* NULL: not bound */
    size_t bytes;
    size_t reserved_bytes;
};

static shm_multicast_object *object_of(const shm_multicast *multicast) {
    return multicast->segment->base;
}

/* Returns NULL without memory; the failure is described. */
static shm_multicast *new_multicast(shm_instance *self, int32_t device, size_t bytes) {
    shm_multicast *multicast = calloc(1, sizeof *multicast);
    if (!multicast) {
        shm_out_of_memory(self->host, "rendezvous");
        return NULL;
    }
    multicast->device = device;
    multicast->bytes = bytes;
    return multicast;
}

symmem_status shm_multicast_create(void *instance, int32_t device, int32_t world_size, size_t bytes,
                                   void **object_p, symmem_share *share) {
    shm_instance *self = instance;
    symmem_status status = shm_failpoint(self->host, "shm.multicast.create");
    if (status != SYMMEM_OK)
        return status;
    if (self->multicast_slots == 0)
        return self->host->fail(self->host, SYMMEM_UNSUPPORTED, 0, "rendezvous",
                                "device %d has no multicast", (int)device);
    shm_multicast *multicast = new_multicast(self, device, bytes);
    if (!multicast)
        return SYMMEM_OUT_OF_MEMORY;
    status =
        shm_segment_create(self, sizeof(shm_multicast_object), "rendezvous", &multicast->segment);
    if (status != SYMMEM_OK)
        goto free_multicast;
    object_of(multicast)->world_size = world_size;
    object_of(multicast)->bytes = bytes;
    symmem_share made;
    status = shm_segment_export(self, multicast->segment, "rendezvous", &made);
    if (status != SYMMEM_OK)
        goto release_segment;
    status = shm_failpoint(self->host, "shm.multicast.created");
    if (status != SYMMEM_OK)
        goto close_share;
    *share = made;
    *object_p = multicast;
    return SYMMEM_OK;

close_share:
    shm_memory_unshare(self, &made);
release_segment:
    shm_segment_release(multicast->segment);
free_multicast:
    free(multicast);
    return status;
}

/* Takes one of the device's slots, which are limited as in hardware. */
static symmem_status take_slot(shm_instance *self, shm_multicast *multicast) {
    pthread_mutex_lock(&self->lock);
    int32_t *used = &self->slots_used[multicast->device];
    multicast->has_slot = *used < self->multicast_slots;
    if (multicast->has_slot)
        ++*used;
    pthread_mutex_unlock(&self->lock);
    if (multicast->has_slot)
        return SYMMEM_OK;
    return self->host->fail(self->host, SYMMEM_LIMIT, 0, "rendezvous",
                            "all %d multicast slots of device %d are in use",
                            (int)self->multicast_slots, (int)multicast->device);
}

static void return_slot(shm_instance *self, shm_multicast *multicast) {
    pthread_mutex_lock(&self->lock);
    if (multicast->has_slot)
        self->slots_used[multicast->device]--;
    pthread_mutex_unlock(&self->lock);
}

symmem_status shm_multicast_attach(void *instance, int32_t device, const symmem_share *share,
                                   size_t bytes, void **multicast_p) {
    shm_instance *self = instance;
    symmem_status status = shm_failpoint(self->host, "shm.multicast.attach");
    if (status != SYMMEM_OK)
        return status;
    shm_multicast *multicast = new_multicast(self, device, bytes);
    if (!multicast)
        return SYMMEM_OUT_OF_MEMORY;
    status = shm_segment_import(self, share, sizeof(shm_multicast_object), "rendezvous",
                                &multicast->segment);
    if (status != SYMMEM_OK)
        goto free_multicast;
    if (object_of(multicast)->bytes != bytes) {
        status = self->host->fail(self->host, SYMMEM_MISMATCH, 0, "rendezvous",
                                  "a multicast object of another size");
        goto release_segment;
    }
    status = take_slot(self, multicast);
    if (status != SYMMEM_OK)
        goto release_segment;
    status = shm_failpoint(self->host, "shm.multicast.attached");
    if (status != SYMMEM_OK)
        goto return_slot;
    /* relaxed: the core makes all ranks agree before any rank binds. */
    atomic_fetch_add_explicit(&object_of(multicast)->attached, 1, memory_order_relaxed);
    *multicast_p = multicast;
    return SYMMEM_OK;

return_slot:
    return_slot(self, multicast);
release_segment:
    shm_segment_release(multicast->segment);
free_multicast:
    free(multicast);
    return status;
}

symmem_status shm_multicast_bind(void *instance, void *multicast, symmem_memory *own,
                                 const symmem_peers *peers, void **address_p) {
    shm_instance *self = instance;
    shm_multicast *bound = multicast;
    const symmem_host *host = self->host;
    (void)own;
    symmem_status status = shm_failpoint(host, "shm.multicast.bind");
    if (status != SYMMEM_OK)
        return status;
    shm_multicast_object *object = object_of(bound);
    uint32_t attached = atomic_load_explicit(&object->attached, memory_order_relaxed);
    if (attached != (uint32_t)peers->world_size || object->world_size != peers->world_size)
        return host->fail(host, SYMMEM_CORRUPT, 0, "rendezvous",
                          "%u of %d ranks are attached to the multicast object", (unsigned)attached,
                          (int)peers->world_size);
    if (!shm_round_to_pages(bound->bytes, &bound->reserved_bytes))
        return host->fail_sizes(host, SYMMEM_NO_SPACE, ENOMEM, "rendezvous", bound->bytes,
                                PTRDIFF_MAX);
    void *address = mmap(NULL, bound->reserved_bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        return shm_fail_errno(host, errno, "rendezvous", "reserving multicast addresses");
    status = shm_failpoint(host, "shm.multicast.bound");
    if (status != SYMMEM_OK) {
        munmap(address, bound->reserved_bytes);
        return status;
    }
    atomic_fetch_add_explicit(&object->bound, 1, memory_order_relaxed);
    pthread_mutex_lock(&self->lock);
    bound->address = address;
    bound->next = self->multicasts;
    self->multicasts = bound;
    pthread_mutex_unlock(&self->lock);
    *address_p = address;
    return SYMMEM_OK;
}

void shm_multicast_release(void *instance, void *multicast_or_object) {
    shm_instance *self = instance;
    shm_multicast *multicast = multicast_or_object;
    shm_failpoint_notify(self->host, "shm.multicast.release*");
    return_slot(self, multicast);
    if (multicast->address) {
        pthread_mutex_lock(&self->lock);
        shm_multicast **link = &self->multicasts;
        while (*link != multicast)
            link = &(*link)->next;
        *link = multicast->next;
        pthread_mutex_unlock(&self->lock);
        munmap(multicast->address, multicast->reserved_bytes);
    }
    shm_segment_release(multicast->segment);
    free(multicast);
}

/* --- operations --------------------------------------------------------------------- */

/* Finds the offset in every rank's buffer that `address` stands for. */
static symmem_status find_offset(shm_instance *self, const symmem_peers *peers, const void *address,
                                 size_t bytes, const char *operation, size_t *offset_p) {
    uintptr_t wanted = (uintptr_t)address;
    bool found = false;
    pthread_mutex_lock(&self->lock);
    for (shm_multicast *multicast = self->multicasts; multicast && !found;
         multicast = multicast->next) {
        size_t offset = wanted - (uintptr_t)multicast->address;
        size_t limit =
            multicast->bytes < peers->buffer_bytes ? multicast->bytes : peers->buffer_bytes;
        found = offset <= limit && bytes <= limit - offset; /* below the range it wraps around */
        if (found)
            *offset_p = offset;
    }
    pthread_mutex_unlock(&self->lock);
    if (found)
        return SYMMEM_OK;
    return self->host->fail(self->host, SYMMEM_OUT_OF_RANGE, 0, operation,
                            "%p and %zu bytes are not inside a multicast range", address, bytes);
}

static symmem_status run_store(const shm_op *op, symmem_error_record *record_p) {
    const symmem_peers *peers = op->u.store.peers;
    symmem_status status = shm_op_failpoint(op, "shm.store", op->u.store.operation, record_p);
    if (status != SYMMEM_OK || op->u.store.bytes == 0)
        return status;
    /* This rank's buffer comes last, because the source may lie in it. */
    for (int32_t i = 1; i <= peers->world_size; i++) {
        int32_t rank = (peers->rank + i) % peers->world_size;
        shm_failpoint_notify(peers->host, "shm.store.peer*");
        memmove((char *)peers->buffers[rank] + op->u.store.offset, op->u.store.src,
                op->u.store.bytes);
    }
    return SYMMEM_OK;
}

symmem_status shm_multimem_store(void *instance, const symmem_peers *peers, void *address,
                                 const void *src, size_t bytes, const symmem_exec *exec) {
    shm_op op;
    shm_op_init(&op, instance, run_store);
    symmem_status status =
        find_offset(instance, peers, address, bytes, "multimem_store", &op.u.store.offset);
    if (status != SYMMEM_OK)
        return status;
    op.u.store.peers = peers;
    op.u.store.src = src;
    op.u.store.bytes = bytes;
    op.u.store.operation = shm_operation(exec, "multimem_store");
    return shm_submit(&op, exec, op.u.store.operation);
}

/* Reduces in rank order, so every rank gets the same bits. */
static symmem_status shm_run_reduce(const shm_op *op, symmem_error_record *record_p) {
    symmem_status status = shm_op_failpoint(op, "shm.reduce", "multimem_ld_reduce", record_p);
    if (status != SYMMEM_OK)
        return status;
    const symmem_peers *peers = op->u.reduce.peers;
    const void *from[SYMMEM_MAX_WORLD_SIZE];
    for (int32_t rank = 0; rank < peers->world_size; rank++)
        from[rank] = (const char *)peers->buffers[rank] + op->u.reduce.offset;
    void *to = op->u.reduce.dst;
    symmem_cpu_reduce_args args = {.dsts = &to,
                                   .dst_count = 1,
                                   .srcs = from,
                                   .src_count = peers->world_size,
                                   .count = op->u.reduce.count};
    uint64_t mode = symmem_cpu_float_begin();
    symmem_cpu_reduce_find(op->instance->isa, op->u.reduce.dtype, op->u.reduce.op)(&args);
    symmem_cpu_float_end(mode);
    return SYMMEM_OK;
}

symmem_status shm_multimem_ld_reduce(void *instance, const symmem_peers *peers, const void *address,
                                     void *dst, size_t count, symmem_dtype dtype,
                                     symmem_reduce_op reduce_op, const symmem_exec *exec) {
    shm_instance *self = instance;
    size_t element_bytes = symmem_reference_element_bytes(dtype, reduce_op);
    if (element_bytes == 0)
        return self->host->fail(self->host, SYMMEM_UNSUPPORTED, 0, "multimem_ld_reduce",
                                "multicast cannot do operation %d on dtype %d", (int)reduce_op,
                                (int)dtype);
    if (count > SIZE_MAX / element_bytes)
        return self->host->fail(self->host, SYMMEM_OUT_OF_RANGE, 0, "multimem_ld_reduce",
                                "%zu elements are more than any range holds", count);
    shm_op op;
    shm_op_init(&op, self, shm_run_reduce);
    symmem_status status = find_offset(self, peers, address, count * element_bytes,
                                       "multimem_ld_reduce", &op.u.reduce.offset);
    if (status != SYMMEM_OK)
        return status;
    op.u.reduce.peers = peers;
    op.u.reduce.dst = dst;
    op.u.reduce.count = count;
    op.u.reduce.dtype = dtype;
    op.u.reduce.op = reduce_op;
    return shm_submit(&op, exec, "multimem_ld_reduce");
}
