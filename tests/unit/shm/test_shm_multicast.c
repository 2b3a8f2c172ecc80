/* SPDX-License-Identifier: BSD-3-Clause */
/* Emulated multicast: ranges, addresses and slots. */
#include "shm.h"
#include "shm_fake_host.h"
#include "unit_child.h"
#include "unit_main.h"

#define RANKS 3
#define BYTES 10000

typedef struct fixture {
    fake_world *world;
    void *object;
    symmem_share share;
    void *multicast[RANKS];
    char *address[RANKS];
} fixture;

static void open_fixture(fixture *f) {
    memset(f, 0, sizeof *f);
    f->world = fake_world_open(RANKS, 1, BYTES);
    fake_rank *ranks = f->world->ranks;
    CU_ASSERT_EQUAL_FATAL(
        backend->multicast->create(ranks[0].instance, 0, RANKS, BYTES, &f->object, &f->share),
        SYMMEM_OK);
    CU_ASSERT_EQUAL(f->share.kind, SYMMEM_SHARE_FD);
    for (int i = 0; i < RANKS; i++) {
        f->share.same_process = i % 2; /* by either way */
        CU_ASSERT_EQUAL_FATAL(
            backend->multicast->attach(ranks[i].instance, i, &f->share, BYTES, &f->multicast[i]),
            SYMMEM_OK);
    }
    for (int i = 0; i < RANKS; i++) {
        void *address;
        CU_ASSERT_EQUAL_FATAL(backend->multicast->bind(ranks[i].instance, f->multicast[i],
                                                       &ranks[i].buffer, &ranks[i].peers, &address),
                              SYMMEM_OK);
        f->address[i] = address;
    }
}

static void close_fixture(fixture *f) {
    backend->memory->unshare(f->world->ranks[0].instance, &f->share);
    for (int i = 0; i < RANKS; i++)
        backend->multicast->release(f->world->ranks[i].instance, f->multicast[i]);
    backend->multicast->release(f->world->ranks[0].instance, f->object);
    fake_world_close(f->world);
}

static char *buffer(fixture *f, int rank) {
    return f->world->ranks[rank].buffer.ptr;
}

static symmem_status store(fixture *f, int rank, const char *address, const void *src, size_t bytes,
                           void *stream) {
    symmem_exec exec = {.stream = stream};
    fake_rank *self = &f->world->ranks[rank];
    return backend->multicast->store(self->instance, &self->peers, (char *)address, src, bytes,
                                     &exec);
}

static symmem_status reduce(fixture *f, int rank, const char *address, void *dst, size_t count,
                            symmem_dtype dtype, symmem_reduce_op op) {
    symmem_exec exec = {0};
    fake_rank *self = &f->world->ranks[rank];
    return backend->multicast->ld_reduce(self->instance, &self->peers, address, dst, count, dtype,
                                         op, &exec);
}

TEST("ranges") {
    fixture f;
    open_fixture(&f);
    char *base = f.address[0];
    char bytes[16] = {0};
    CU_ASSERT_EQUAL(store(&f, 0, base + BYTES, bytes, 0, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(store(&f, 0, base + BYTES, bytes, 1, NULL), SYMMEM_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(store(&f, 0, base + BYTES - 3, bytes, 4, NULL), SYMMEM_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(store(&f, 0, base, bytes, SIZE_MAX, NULL), SYMMEM_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(store(&f, 0, bytes, bytes, 1, NULL), SYMMEM_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(store(&f, 0, buffer(&f, 0), bytes, 1, NULL), SYMMEM_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(reduce(&f, 0, base + 4, bytes, SIZE_MAX / 4, SYMMEM_FLOAT32, SYMMEM_SUM),
                    SYMMEM_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(reduce(&f, 0, base, bytes, SIZE_MAX / 2, SYMMEM_FLOAT32, SYMMEM_SUM),
                    SYMMEM_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(reduce(&f, 0, base + BYTES - 4, bytes, 2, SYMMEM_FLOAT32, SYMMEM_SUM),
                    SYMMEM_OUT_OF_RANGE);
    for (int dtype = -1; dtype <= SYMMEM_DTYPE_COUNT; dtype++)
        for (int op = -1; op <= SYMMEM_REDUCE_OP_COUNT; op++) {
            memset(bytes, 0x55, sizeof bytes);
            bool is_float = dtype >= SYMMEM_FLOAT16 && dtype < SYMMEM_DTYPE_COUNT;
            bool is_integer = dtype >= 0 && dtype < SYMMEM_FLOAT16;
            bool good = op >= 0 && op < SYMMEM_REDUCE_OP_COUNT &&
                        (is_float || (is_integer && op != SYMMEM_AVG));
            symmem_status status =
                reduce(&f, 0, base, bytes, 1, (symmem_dtype)dtype, (symmem_reduce_op)op);
            CU_ASSERT_EQUAL(status, good ? SYMMEM_OK : SYMMEM_UNSUPPORTED);
            CU_ASSERT_EQUAL(bytes[0], good ? 0 : 0x55);
        }
    close_fixture(&f);
}

/* Touching the address itself is fatal. */
TEST("address faults") {
    fixture f;
    open_fixture(&f);
    touched = f.address[0];
    CU_ASSERT(is_fatal(end_in_child(touch)));
    close_fixture(&f);
}

/* An object for more ranks than have attached, and one for others than these. */
TEST("a world of another size") {
    fake_host host;
    void *instance = fake_open(&host), *object, *view, *address;
    for (int32_t made_for = 1; made_for <= 3; made_for++) {
        symmem_share share;
        symmem_memory own = {0};
        const symmem_peers peers = {.world_size = made_for < 3 ? 1 : 2, .host = &host.host};
        CU_ASSERT_EQUAL_FATAL(
            backend->multicast->create(instance, 0, made_for, 100, &object, &share), SYMMEM_OK);
        CU_ASSERT_EQUAL_FATAL(backend->multicast->attach(instance, 0, &share, 100, &view),
                              SYMMEM_OK);
        CU_ASSERT_EQUAL(backend->multicast->bind(instance, view, &own, &peers, &address),
                        made_for == 1 ? SYMMEM_OK : SYMMEM_CORRUPT);
        backend->multicast->release(instance, view);
        backend->multicast->release(instance, object);
        backend->memory->unshare(instance, &share);
    }
    backend->instance->close(instance);
}

TEST("slots") {
    setenv("SYMMEM_SHM_MULTICAST_SLOTS", "2", 1);
    fake_host host;
    void *instance = fake_open(&host);
    unsetenv("SYMMEM_SHM_MULTICAST_SLOTS");
    int descriptors = fake_count_descriptors();
    void *object;
    void *view[3];
    symmem_share share;
    CU_ASSERT_EQUAL_FATAL(backend->multicast->create(instance, 0, 4, 100, &object, &share),
                          SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->multicast->attach(instance, 0, &share, 100, &view[0]), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->multicast->attach(instance, 0, &share, 101, &view[1]),
                    SYMMEM_MISMATCH);
    host.fail_name = "shm.multicast.attached"; /* gives its slot back */
    host.fail_status = SYMMEM_BACKEND;
    CU_ASSERT_EQUAL(backend->multicast->attach(instance, 0, &share, 100, &view[1]), SYMMEM_BACKEND);
    host.fail_name = NULL;
    CU_ASSERT_EQUAL(backend->multicast->attach(instance, 0, &share, 100, &view[1]), SYMMEM_OK);
    view[2] = NULL;
    CU_ASSERT_EQUAL(backend->multicast->attach(instance, 0, &share, 100, &view[2]), SYMMEM_LIMIT);
    CU_ASSERT_PTR_NULL(view[2]);
    CU_ASSERT_EQUAL(backend->multicast->attach(instance, 1, &share, 100, &view[2]), SYMMEM_OK);
    backend->multicast->release(instance, view[0]);
    CU_ASSERT_EQUAL(backend->multicast->attach(instance, 0, &share, 100, &view[0]), SYMMEM_OK);
    for (int i = 0; i < 3; i++)
        backend->multicast->release(instance, view[i]);
    backend->multicast->release(instance, object);
    backend->memory->unshare(instance, &share);
    CU_ASSERT_EQUAL(fake_count_descriptors(), descriptors);
    backend->instance->close(instance);

    setenv("SYMMEM_SHM_MULTICAST_SLOTS", "0", 1);
    instance = fake_open(&host);
    unsetenv("SYMMEM_SHM_MULTICAST_SLOTS");
    CU_ASSERT_EQUAL(backend->multicast->create(instance, 0, 4, 100, &object, &share),
                    SYMMEM_UNSUPPORTED);
    backend->instance->close(instance);
}
