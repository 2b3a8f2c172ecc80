/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent allocations: one id, one memory. */
#include "case_help.h"

static symmem_status alloc_id(struct tk *t, uint64_t id, size_t bytes, int32_t device,
                              void **ptr_p) {
    symmem_alloc_options options;
    symmem_alloc_options_init(&options);
    options.default_group = tk_world_group(t);
    options.alloc_id = id;
    return symmem_alloc(t->context, bytes, device, &options, ptr_p);
}

TK_PORTED(test_empty_strided_p2p_persistent,
          "SM-PERSIST-01,SM-PERSIST-02,SM-RDV-04,SM-SIGNAL-01,SM-BARRIER-02", .ranks = {2, 4}) {
    const size_t bytes = 64 * 64 * sizeof(float);
    const uint64_t id = (t->seed | 1) & INT64_MAX;
    void *ptr = NULL;
    void *again = NULL;
    void *first = NULL;
    TK_REQUIRE_OK(t, alloc_id(t, id, bytes, -1, &ptr));
    TK_FAILS(t, BUSY, alloc_id(t, id, bytes, -1, &again));
    TK_CHECK(t, again == NULL);
    first = ptr;
    TK_OK(t, symmem_free(t->context, ptr));
    TK_REQUIRE_OK(t, alloc_id(t, id, bytes, -1, &ptr));
    TK_EQ_PTR(t, first, ptr);
    symmem_handle *handle = tk_rendezvous(t, ptr, NULL);
    verify_symmetric_memory(t, handle);
    tk_release(t, handle);
    TK_OK(t, symmem_free(t->context, ptr));
}

TK_PORTED(test_symm_mem_empty_storage_reuse, "SM-PERSIST-02", .max_ranks = 4) {
    void *first = NULL;
    for (int i = 0; i < 4; i++) {
        void *ptr = NULL;
        void *other = tk_alloc(t, 4096); /* other memory comes and goes meanwhile */
        TK_REQUIRE_OK(t, alloc_id(t, 77, 4096, -1, &ptr));
        first = i ? first : ptr;
        TK_EQ_PTR(t, first, ptr);
        symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_release(t, handle);
        TK_OK(t, symmem_free(t->context, ptr));
        tk_free(t, other);
    }
}

/* The second life's rendezvous is done by one rank while the others are elsewhere. */
TK_TEST(persistent, rendezvous_needs_nobody, "SM-PERSIST-02", .ranks = {2, 4}) {
    void *ptr = NULL;
    void *again = NULL;
    TK_REQUIRE_OK(t, alloc_id(t, 5, 1000, -1, &ptr));
    tk_release(t, tk_rendezvous(t, ptr, tk_world_group(t)));
    TK_OK(t, symmem_free(t->context, ptr));
    for (int32_t active = 0; active < t->world_size; active++) {
        if (t->rank == active) {
            symmem_handle *handle = NULL;
            TK_OK(t, alloc_id(t, 5, 1000, -1, &again));
            TK_EQ_PTR(t, ptr, again);
            TK_OK(t, symmem_rendezvous(t->context, again, NULL, 2000, &handle));
            symmem_handle_release(handle);
        }
        tk_out_of_band_barrier(t);
    }
    symmem_handle *handle = tk_rendezvous(t, again, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    ring_signal(t, handle, 0);
}

TK_TEST(persistent, other_size_or_device_is_mismatch, "SM-PERSIST-03,SM-PERSIST-01",
        .max_ranks = 2) {
    void *ptr = NULL;
    void *none = NULL;
    const int32_t devices = device_count(t);
    TK_REQUIRE_OK(t, alloc_id(t, 9, 4096, -1, &ptr));
    TK_FAILS(t, BUSY, alloc_id(t, 9, 4096, -1, &none));
    TK_OK(t, symmem_free(t->context, ptr));
    TK_FAILS(t, MISMATCH, alloc_id(t, 9, 4097, -1, &none));
    TK_FAILS(t, MISMATCH, alloc_id(t, 9, 4095, -1, &none));
    TK_FAILS(t, MISMATCH, alloc_id(t, 9, 8192, -1, &none));
    int32_t other = (own_device(t) + 1) % devices;
    if (other != own_device(t))
        TK_FAILS(t, MISMATCH, alloc_id(t, 9, 4096, other, &none));
    TK_CHECK(t, none == NULL);
    TK_REQUIRE_OK(t, alloc_id(t, 9, 4096, -1, &none));
    TK_EQ_PTR(t, ptr, none);
    /* Another id is other memory, and may have another size. */
    void *second = NULL;
    TK_REQUIRE_OK(t, alloc_id(t, 10, 8192, -1, &second));
    TK_CHECK(t, second != none);
    symmem_alloc_info info;
    TK_OK(t, symmem_alloc_query(t->context, second, &info));
    TK_EQ_SIZE(t, 10, info.alloc_id);
    TK_EQ_SIZE(t, 8192, info.bytes);
}

TK_TEST(persistent, freed_memory_is_not_symmetric, "SM-PERSIST-04", .max_ranks = 2) {
    void *ptr = NULL;
    size_t bytes = 0;
    TK_REQUIRE_OK(t, alloc_id(t, 3, 4096, -1, &ptr));
    TK_CHECK(t, is_symmetric(t, ptr));
    TK_OK(t, symmem_free(t->context, ptr));
    TK_CHECK(t, !is_symmetric(t, ptr));
    TK_CHECK(t, !is_symmetric(t, (char *)ptr + 100));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_alloc_size(t->context, ptr, &bytes));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_free(t->context, ptr));
    TK_REQUIRE_OK(t, alloc_id(t, 3, 4096, -1, &ptr));
    TK_CHECK(t, is_symmetric(t, ptr));
}
