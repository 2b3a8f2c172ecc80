/* SPDX-License-Identifier: BSD-3-Clause */
/* What a handle tells of group, allocation and peers. */
#include "case_help.h"

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
    for (size_t i = 0; i < TK_COUNT(pads); i++) {
        symmem_handle *handle;
        symmem_handle_info info;
        TK_OK(t, symmem_set_signal_pad_size(t->context, pads[i]));
        handle = tk_handle(t, 64, tk_world_group(t));
        info = info_of(t, handle);
        TK_EQ_SIZE(t, pads[i], info.signal_pad_size);
        TK_EQ_INT(t, pads[i] / row, info.channel_count);
        TK_OK(t, symmem_barrier(handle, info.channel_count - 1, LONG_MS, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_barrier(handle, info.channel_count, LONG_MS, NULL));
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
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    for (int32_t rank = 0; rank < shape->count; rank++) {
        const uint8_t *peer = buffers[rank];
        TK_REQUIRE(t, peer != NULL);
        TK_EQ_INT(t, (uint8_t)(shape->ranks[rank] + 1), byte_at(t, peer));
        TK_EQ_INT(t, (uint8_t)(shape->ranks[rank] + 1), byte_at(t, peer + BYTES / 2 - 1));
        TK_EQ_INT(t, (uint8_t)(shape->ranks[rank] + 101), byte_at(t, peer + BYTES - 1));
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    for (int32_t rank = 0; rank < shape->count && BYTES / 2 + t->rank < BYTES; rank++)
        set_byte(t, (uint8_t *)buffers[rank] + BYTES / 2 + t->rank, (uint8_t)(0x80 + t->rank));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    for (int32_t rank = 0; rank < shape->count; rank++)
        TK_EQ_INT(t, (uint8_t)(0x80 + shape->ranks[rank]),
                  byte_at(t, memory + BYTES / 2 + shape->ranks[rank]));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* --- offsets ---------------------------------------------------------------------------------- */

TK_TEST(handle, offsets_count_from_the_pointer, "SM-HANDLE-05", .max_ranks = 4) {
    static const size_t offsets[] = {0, 1, 8, 256, 1000, BYTES - 1};
    char *memory = tk_alloc(t, BYTES);
    symmem_handle *base = tk_rendezvous(t, memory, tk_world_group(t));
    for (size_t i = 0; i < TK_COUNT(offsets); i++) {
        const size_t offset = offsets[i], rest = BYTES - offset;
        uint8_t byte = (uint8_t)(t->rank * 16 + (int)i + 1);
        symmem_handle *handle = tk_rendezvous(t, memory + offset, tk_world_group(t));
        symmem_handle_info info = info_of(t, handle);
        TK_EQ_SIZE(t, offset, info.offset);
        TK_EQ_SIZE(t, BYTES, info.buffer_size);
        TK_EQ_PTR(t, memory, buffers_of(t, handle)[t->rank]); /* the base all the same */
        tk_fill(t, base, t->rank, 0, BYTES, 0xEE);
        TK_OK(t, symmem_barrier(base, 0, LONG_MS, NULL));
        TK_OK(t, symmem_put(handle, t->next, 0, &byte, 1, NULL));
        TK_OK(t, symmem_put(handle, t->next, rest - 1, &byte, 1, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_put(handle, t->next, rest, &byte, 1, NULL));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        byte = (uint8_t)(t->previous * 16 + (int)i + 1);
        if (offset > 0)
            tk_expect_bytes(t, base, t->rank, 0, offset, 0xEE);
        tk_expect_bytes(t, base, t->rank, offset, 1, byte);
        tk_expect_bytes(t, handle, t->rank, 0, 1, byte);
        if (rest > 2)
            tk_expect_bytes(t, base, t->rank, offset + 1, rest - 2, 0xEE);
        tk_expect_bytes(t, base, t->rank, BYTES - 1, 1, byte);
        TK_OK(t, symmem_barrier(base, 0, LONG_MS, NULL));
    }
}

/* --- references ------------------------------------------------------------------------------- */

TK_TEST(handle, references_are_counted, "SM-HANDLE-12", .max_ranks = 4) {
    void *memory = tk_alloc(t, 256);
    symmem_handle *first = NULL, *second = NULL;
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, memory, tk_world_group(t), LONG_MS, &first));
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, memory, tk_world_group(t), LONG_MS, &second));
    for (int i = 0; i < 3; i++)
        TK_OK(t, symmem_handle_retain(first));
    for (int i = 0; i < 3; i++) {
        symmem_handle_release(first);
        TK_OK(t, symmem_barrier(first, 0, LONG_MS, NULL)); /* one is left each time */
    }
    TK_OK(t, symmem_handle_retain(second));
    symmem_handle_release(second);
    symmem_handle_release(first); /* the last one of this handle */
    TK_OK(t, symmem_barrier(second, 0, LONG_MS, NULL));
    TK_OK(t, symmem_free(t->context, NULL));
    tk_fill(t, second, t->rank, 0, 256, 0x31);
    tk_expect_bytes(t, second, t->rank, 0, 256, 0x31);
    symmem_handle_release(second);
    symmem_handle_release(NULL);
    /* And the block can be had anew. */
    TK_OK(t, symmem_barrier(tk_rendezvous(t, memory, tk_world_group(t)), 0, LONG_MS, NULL));
}

/* --- The users' signal pads: theirs alone ----------------------------------------------------- */

/* All bytes of a rank's pad. */
static void expect_pad(struct tk *t, symmem_handle *handle, int32_t rank, uint8_t byte) {
    const size_t bytes = info_of(t, handle).signal_pad_size;
    uint8_t *found = tk_scratch(t, bytes);
    TK_OK(t, symmem_copy(t->context, found, pads_of(t, handle)[rank], bytes, NULL));
    TK_CHECK_MSG(t, equal_bytes(found, bytes, byte) == bytes,
                 "byte %zu of the pad of rank %d is not 0x%02x", equal_bytes(found, bytes, byte),
                 rank, byte);
}

/* Dirt of earlier lives is in the memory; no rank may see it, nor lose it by a late zeroing. */
TK_TEST(handle_pad, zero_at_first_sight, "SM-HANDLE-09,SM-ALLOC-02",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 8, .flags = TK_WRITES_PADS) {
    TK_REQ(t, "SM-HANDLE-09");
    for (int round = 0; round < 4; round++) {
        void *memory = tk_alloc(t, BYTES);
        symmem_handle *handle = tk_rendezvous(t, memory, tk_world_group(t));
        expect_pad(t, handle, t->next, 0);
        expect_pad(t, handle, t->rank, 0);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        pad_fill(t, handle, 0xFF);
        tk_fill(t, handle, t->rank, 0, BYTES, 0xFF);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        expect_pad(t, handle, t->next, 0xFF);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_release(t, handle);
        tk_free(t, memory);
    }
}

/* A mark that a peer leaves as soon as its rendezvous returns stays, however late this rank is. */
TK_TEST(handle_pad, early_marks_stay, "SM-HANDLE-09,SM-RDV-13", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .ranks = {2, 8}, .flags = TK_WRITES_PADS) {
    void *memory = tk_alloc(t, 64);
    symmem_handle *handle;
    uint32_t mark = 0xABCD0000u + (uint32_t)t->rank, found = 0;
    TK_REQ(t, "SM-HANDLE-09");
    if (t->rank == 0)
        tk_on_point(t, "rendezvous.commit.after", 1, (struct tk_action){.delay_ms = 60});
    handle = tk_rendezvous(t, memory, tk_world_group(t));
    TK_OK(t, symmem_copy(t->context, (uint32_t *)pads_of(t, handle)[t->next] + t->rank, &mark, 4,
                         NULL));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_copy(t->context, &found, (uint32_t *)pads_of(t, handle)[t->rank] + t->previous,
                         4, NULL));
    TK_EQ_INT(t, 0xABCD0000u + (uint32_t)t->previous, found);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

static bool apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x + a_bytes <= y || y + b_bytes <= x;
}

TK_TEST(handle_pad, lie_apart, "SM-HANDLE-09", .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 8,
        .flags = TK_WRITES_PADS) {
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    const size_t pad_bytes = info_of(t, handle).signal_pad_size;
    void *const *pads = pads_of(t, handle), *const *buffers = buffers_of(t, handle);
    for (int32_t i = 0; i < t->world_size; i++)
        for (int32_t k = 0; k < t->world_size; k++) {
            TK_CHECK(t, apart(pads[i], pad_bytes, buffers[k], BYTES));
            TK_CHECK(t, i == k || apart(pads[i], pad_bytes, pads[k], pad_bytes));
        }
    pad_fill(t, handle, (uint8_t)(t->rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, BYTES, 0);
    for (int32_t rank = 0; rank < t->world_size; rank++)
        expect_pad(t, handle, rank, (uint8_t)(rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_fill(t, handle, t->rank, 0, BYTES, 0x77);
    expect_pad(t, handle, t->rank, (uint8_t)(t->rank + 1));
}

TK_TEST(handle_pad, operations_leave_pads_alone, "SM-HANDLE-09,SM-BARRIER-07",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 8, .flags = TK_WRITES_PADS) {
    symmem_handle *handle = tk_handle(t, BYTES, tk_world_group(t));
    const int32_t right = t->next, last = info_of(t, handle).channel_count - 1;
    TK_REQ(t, "SM-HANDLE-09");
    pad_fill(t, handle, 1); /* looks like a signal in every slot */
    for (int32_t channel = 0; channel <= last; channel += last > 0 ? last : 1) {
        TK_OK(t, symmem_barrier(handle, channel, LONG_MS, NULL));
        TK_OK(t, symmem_put_signal(handle, right, channel, LONG_MS, NULL));
        TK_OK(t, symmem_wait_signal(handle, t->previous, channel, LONG_MS, NULL));
    }
    tk_fill(t, handle, right, 0, BYTES, 0x44);
    /* Unless the neighbor has timed out already and poisoned this one. */
    TK_STATUS_EITHER(t, SYMMEM_TIMEOUT, SYMMEM_POISONED,
                     symmem_wait_signal(handle, t->previous, 0, 40, NULL));
    expect_pad(t, handle, t->rank, 1);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    for (int32_t rank = 0; rank < t->world_size; rank++)
        expect_pad(t, handle, rank, 1);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

TK_PORTED(test_signal_pad_slot_layout, "SM-HANDLE-10", .needs = SYMMEM_CAP_DIRECT_ACCESS,
          .ranks = {2, 16}, .flags = TK_WRITES_PADS) {
    enum { CHANNEL = 3 };
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    const size_t words = info_of(t, handle).signal_pad_size / 4;
    uint32_t *found = tk_scratch(t, words * 4);
    DLManagedTensor *pad =
        view_by(t, symmem_get_signal_pad, handle, t->next, 0, NULL, SYMMEM_UINT32, 0);
    TK_OK(t, symmem_stream_write_value32(t->context, &pad->dl_tensor,
                                         t->world_size * CHANNEL + t->rank, t->rank + 1, NULL));
    pad->deleter(pad);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_copy(t->context, found, pads_of(t, handle)[t->rank], words * 4, NULL));
    for (size_t word = 0; word < words; word++) {
        uint32_t expected =
            word == (size_t)(t->world_size * CHANNEL + t->previous) ? (uint32_t)t->previous + 1 : 0;
        if (found[word] != expected)
            TK_CHECK_MSG(t, false, "word %zu is %u, not %u", word, found[word], expected);
    }
    TK_EQ_INT(t, t->previous + 1, found[t->world_size * CHANNEL + t->previous]);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

TK_TEST(handle_pad, every_link_has_its_own, "SM-HANDLE-11", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .max_ranks = 8, .flags = TK_WRITES_PADS) {
    void *memory = tk_alloc(t, BYTES);
    symmem_handle *handles[3];
    handles[0] = tk_rendezvous(t, memory, tk_world_group(t));
    handles[1] = tk_rendezvous(t, memory, reversed_group(t, "backwards"));
    handles[2] = tk_handle(t, BYTES, tk_world_group(t)); /* another block */
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < i; k++)
            for (int32_t rank = 0; rank < t->world_size; rank++) {
                int32_t twin = (i == 1) != (k == 1) ? t->last - rank : rank;
                TK_CHECK(t, pads_of(t, handles[i])[rank] != pads_of(t, handles[k])[twin]);
            }
    for (int i = 0; i < 3; i++)
        pad_fill(t, handles[i], (uint8_t)(i * 50 + t->rank % 50 + 1));
    TK_OK(t, symmem_barrier(handles[0], 0, LONG_MS, NULL));
    for (int i = 0; i < 3; i++)
        for (int32_t rank = 0; rank < t->world_size; rank++) {
            int32_t global = -1;
            TK_OK(t, symmem_handle_global_rank(handles[i], rank, &global));
            expect_pad(t, handles[i], rank, (uint8_t)(i * 50 + global % 50 + 1));
        }
    TK_OK(t, symmem_barrier(handles[0], 0, LONG_MS, NULL));
}

/* A second rendezvous of the same block on the same group is not another link. */
TK_TEST(handle_pad, handles_of_one_link_share, "SM-HANDLE-11,SM-RDV-02",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 4, .flags = TK_WRITES_PADS) {
    void *memory = tk_alloc(t, BYTES);
    symmem_handle *a = tk_rendezvous(t, memory, tk_world_group(t));
    symmem_handle *b = tk_rendezvous(t, (char *)memory + 64, tk_world_group(t));
    TK_REQ(t, "SM-HANDLE-11");
    for (int32_t rank = 0; rank < t->world_size; rank++)
        TK_EQ_PTR(t, pads_of(t, a)[rank], pads_of(t, b)[rank]);
}
