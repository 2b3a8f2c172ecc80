/* SPDX-License-Identifier: BSD-3-Clause */
/* What a handle tells of group, allocation and peers. */
#include "case_help.h"

#define LIMIT_MS 10000u
#define BYTES 4096

/* --- numbers ---------------------------------------------------------------------------------- */

ON_EACH_SHAPE(handle, numbers_match_group_and_memory,
              "SM-HANDLE-01,SM-HANDLE-02,SM-HANDLE-04,SM-HANDLE-06,SM-ERROR-04", .max_ranks = 16) {
    char *memory = tk_alloc(t, 1000);
    symmem_handle *handle = tk_rendezvous(t, memory, group);
    symmem_handle_info info = info_of(t, handle);
    symmem_alloc_info allocation = {0};
    int32_t global = -1;
    TK_OK(t, symmem_alloc_query(t->context, memory, &allocation));
    TK_EQ_INT(t, shape->rank, info.rank);
    TK_EQ_INT(t, shape->count, info.world_size);
    TK_EQ_INT(t, allocation.device, info.device);
    TK_EQ_SIZE(t, 1000, info.buffer_size);
    TK_EQ_SIZE(t, 1000, info.block_size);
    TK_EQ_SIZE(t, 0, info.offset);
    TK_EQ_SIZE(t, allocation.signal_pad_size, info.signal_pad_size);
    TK_EQ_INT(t, info.signal_pad_size / (4 * (size_t)shape->count), info.channel_count);
    TK_CHECK(t, !info.poisoned);
    TK_EQ_PTR(t, memory, buffers_of(t, handle)[shape->rank]);
    for (int32_t rank = 0; rank < shape->count; rank++) {
        TK_OK(t, symmem_handle_global_rank(handle, rank, &global));
        TK_EQ_INT(t, shape->ranks[rank], global);
    }
    global = 77;
    TK_FAILS(t, OUT_OF_RANGE, symmem_handle_global_rank(handle, -1, &global));
    TK_FAILS(t, OUT_OF_RANGE, symmem_handle_global_rank(handle, shape->count, &global));
    TK_EQ_INT(t, 77, global);
}

TK_TEST(handle, channel_count_rounds_down, "SM-HANDLE-04", .max_ranks = 8) {
    const size_t row = 4 * (size_t)t->world_size;
    const size_t pads[] = {row, row + 4 * (size_t)(t->world_size > 1), row * 2, row * 7 + row - 4,
                           row * 33};
    for (size_t i = 0; i < LENGTH(pads); i++) {
        symmem_handle *handle;
        symmem_handle_info info;
        TK_OK(t, symmem_set_signal_pad_size(t->context, pads[i]));
        handle = tk_handle(t, 64, tk_world_group(t));
        info = info_of(t, handle);
        TK_EQ_SIZE(t, pads[i], info.signal_pad_size);
        TK_EQ_INT(t, pads[i] / row, info.channel_count);
        TK_OK(t, symmem_barrier(handle, info.channel_count - 1, LIMIT_MS, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_barrier(handle, info.channel_count, LIMIT_MS, NULL));
    }
}

TK_PORTED(test_handle_group_name, "SM-HANDLE-08", .max_ranks = 8) {
    int32_t ranks[64];
    void *memory = tk_alloc(t, 256);
    symmem_handle *a, *b;
    const char *name = NULL, *world_name = NULL;
    for (int32_t rank = 0; rank < t->world_size; rank++)
        ranks[rank] = rank;
    a = tk_rendezvous(t, memory, tk_world_group(t));
    b = tk_rendezvous(t, memory, tk_group(t, "second_full-group", ranks, t->world_size));
    TK_OK(t, symmem_group_name(tk_world_group(t), &world_name));
    TK_OK(t, symmem_handle_group_name(a, &name));
    TK_EQ_STR(t, world_name, name);
    TK_OK(t, symmem_handle_group_name(b, &name));
    TK_EQ_STR(t, "second_full-group", name);
}

/* --- pointers --------------------------------------------------------------------------------- */

TK_TEST(handle, tables_in_device_memory, "SM-HANDLE-03", .max_ranks = 8) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const size_t bytes = (size_t)t->world_size * sizeof(void *);
    void **found = tk_scratch(t, bytes), *table = NULL;
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs_dev(handle, &table));
    TK_OK(t, symmem_copy(t->context, found, table, bytes, NULL));
    TK_CHECK(t, memcmp(found, buffers_of(t, handle), bytes) == 0);
    TK_REQUIRE_OK(t, symmem_handle_signal_pad_ptrs_dev(handle, &table));
    TK_OK(t, symmem_copy(t->context, found, table, bytes, NULL));
    TK_CHECK(t, memcmp(found, pads_of(t, handle), bytes) == 0);
    TK_CHECK(t, memcmp(found, buffers_of(t, handle), bytes) != 0);
}

TK_TEST(handle, direct_access_flag, "SM-HANDLE-07", .max_ranks = 8) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    bool all = true;
    for (int32_t rank = 0; rank < t->world_size; rank++)
        all = all && buffers_of(t, handle)[rank] != NULL;
    TK_EQ_INT(t, all, info_of(t, handle).world_within_direct_access);
    TK_CHECK(t, all || (t->capabilities & SYMMEM_CAP_DIRECT_ACCESS) == 0);
}

/* By the CPU itself where it can, else by the device. */
static uint8_t byte_at(struct tk *t, const uint8_t *at) {
    uint8_t byte = 0;
    if ((t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0)
        return *at;
    TK_OK(t, symmem_copy(t->context, &byte, at, 1, NULL));
    return byte;
}

static void set_byte(struct tk *t, uint8_t *at, uint8_t byte) {
    if ((t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0)
        *at = byte;
    else
        TK_OK(t, symmem_copy(t->context, at, &byte, 1, NULL));
}

/* Through the pointers, in every group and both ways. */
ON_EACH_SHAPE(handle, pointers_address_their_rank, "SM-HANDLE-02,SM-RDV-01",
              .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 16) {
    TK_REQ(t, "SM-HANDLE-02");
    uint8_t *memory = tk_alloc(t, BYTES);
    symmem_handle *handle = tk_rendezvous(t, memory, group);
    void *const *buffers = buffers_of(t, handle);
    for (int i = 0; i < BYTES / 2; i += BYTES / 2 - 1)
        set_byte(t, memory + i, (uint8_t)(t->rank + 1));
    set_byte(t, memory + BYTES - 1, (uint8_t)(t->rank + 101));
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    for (int32_t rank = 0; rank < shape->count; rank++) {
        const uint8_t *peer = buffers[rank];
        TK_REQUIRE(t, peer != NULL);
        TK_EQ_INT(t, (uint8_t)(shape->ranks[rank] + 1), byte_at(t, peer));
        TK_EQ_INT(t, (uint8_t)(shape->ranks[rank] + 1), byte_at(t, peer + BYTES / 2 - 1));
        TK_EQ_INT(t, (uint8_t)(shape->ranks[rank] + 101), byte_at(t, peer + BYTES - 1));
    }
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    for (int32_t rank = 0; rank < shape->count && BYTES / 2 + t->rank < BYTES; rank++)
        set_byte(t, (uint8_t *)buffers[rank] + BYTES / 2 + t->rank, (uint8_t)(0x80 + t->rank));
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    for (int32_t rank = 0; rank < shape->count; rank++)
        TK_EQ_INT(t, (uint8_t)(0x80 + shape->ranks[rank]),
                  byte_at(t, memory + BYTES / 2 + shape->ranks[rank]));
    TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
}

/* --- offsets ---------------------------------------------------------------------------------- */

TK_TEST(handle, offsets_count_from_the_pointer, "SM-HANDLE-05", .max_ranks = 4) {
    static const size_t offsets[] = {0, 1, 8, 256, 1000, BYTES - 1};
    char *memory = tk_alloc(t, BYTES);
    symmem_handle *base = tk_rendezvous(t, memory, tk_world_group(t));
    for (size_t i = 0; i < LENGTH(offsets); i++) {
        const size_t offset = offsets[i], rest = BYTES - offset;
        uint8_t byte = (uint8_t)(t->rank * 16 + (int)i + 1);
        symmem_handle *handle = tk_rendezvous(t, memory + offset, tk_world_group(t));
        symmem_handle_info info = info_of(t, handle);
        TK_EQ_SIZE(t, offset, info.offset);
        TK_EQ_SIZE(t, BYTES, info.buffer_size);
        TK_EQ_PTR(t, memory, buffers_of(t, handle)[t->rank]); /* the base all the same */
        tk_fill(t, base, t->rank, 0, BYTES, 0xEE);
        TK_OK(t, symmem_barrier(base, 0, LIMIT_MS, NULL));
        TK_OK(t, symmem_put(handle, t->next, 0, &byte, 1, NULL));
        TK_OK(t, symmem_put(handle, t->next, rest - 1, &byte, 1, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_put(handle, t->next, rest, &byte, 1, NULL));
        TK_OK(t, symmem_barrier(handle, 0, LIMIT_MS, NULL));
        byte = (uint8_t)(t->previous * 16 + (int)i + 1);
        if (offset > 0)
            tk_expect_bytes(t, base, t->rank, 0, offset, 0xEE);
        tk_expect_bytes(t, base, t->rank, offset, 1, byte);
        tk_expect_bytes(t, handle, t->rank, 0, 1, byte);
        if (rest > 2)
            tk_expect_bytes(t, base, t->rank, offset + 1, rest - 2, 0xEE);
        tk_expect_bytes(t, base, t->rank, BYTES - 1, 1, byte);
        TK_OK(t, symmem_barrier(base, 0, LIMIT_MS, NULL));
    }
}

/* --- references ------------------------------------------------------------------------------- */

TK_TEST(handle, references_are_counted, "SM-HANDLE-12", .max_ranks = 4) {
    void *memory = tk_alloc(t, 256);
    symmem_handle *first = NULL, *second = NULL;
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, memory, tk_world_group(t), LIMIT_MS, &first));
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, memory, tk_world_group(t), LIMIT_MS, &second));
    for (int i = 0; i < 3; i++)
        TK_OK(t, symmem_handle_retain(first));
    for (int i = 0; i < 3; i++) {
        symmem_handle_release(first);
        TK_OK(t, symmem_barrier(first, 0, LIMIT_MS, NULL)); /* one is left each time */
    }
    TK_OK(t, symmem_handle_retain(second));
    symmem_handle_release(second);
    symmem_handle_release(first); /* the last one of this handle */
    TK_OK(t, symmem_barrier(second, 0, LIMIT_MS, NULL));
    TK_OK(t, symmem_free(t->context, NULL));
    tk_fill(t, second, t->rank, 0, 256, 0x31);
    tk_expect_bytes(t, second, t->rank, 0, 256, 0x31);
    symmem_handle_release(second);
    symmem_handle_release(NULL);
    /* And the block can be had anew. */
    TK_OK(t, symmem_barrier(tk_rendezvous(t, memory, tk_world_group(t)), 0, LIMIT_MS, NULL));
}
