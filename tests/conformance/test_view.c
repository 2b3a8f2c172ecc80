/* SPDX-License-Identifier: BSD-3-Clause */
/* Views of buffers and signal pads. */
#include "case_help.h"

#define BYTES 4096

static const struct {
    symmem_dtype dtype;
    uint8_t code, bits;
} dtypes[] = {
    {SYMMEM_UINT8, kDLUInt, 8},     {SYMMEM_INT8, kDLInt, 8},
    {SYMMEM_INT16, kDLInt, 16},     {SYMMEM_UINT16, kDLUInt, 16},
    {SYMMEM_INT32, kDLInt, 32},     {SYMMEM_UINT32, kDLUInt, 32},
    {SYMMEM_INT64, kDLInt, 64},     {SYMMEM_UINT64, kDLUInt, 64},
    {SYMMEM_FLOAT16, kDLFloat, 16}, {SYMMEM_BFLOAT16, kDLBfloat, 16},
    {SYMMEM_FLOAT32, kDLFloat, 32}, {SYMMEM_FLOAT64, kDLFloat, 64},
};
#define DTYPES ((int)(TK_COUNT(dtypes)))

/* What the handle says. */
struct facts {
    symmem_handle *handle;
    symmem_handle_info info;
    void *const *buffers, *const *pads;
};

static struct facts facts_of(struct tk *t, symmem_handle *handle) {
    return (struct facts){handle, info_of(t, handle), buffers_of(t, handle), pads_of(t, handle)};
}

static struct facts world(struct tk *t) {
    return facts_of(t, tk_handle(t, BYTES, tk_world_group(t)));
}

/* Shape, strides, type, device and place of a tensor; then it is given back. */
static void expect_tensor(struct tk *t, DLManagedTensor *managed, const struct facts *facts,
                          int32_t ndim, const int64_t *sizes, int index, const void *data) {
    const DLTensor *tensor = &managed->dl_tensor;
    int64_t stride = 1;
    TK_EQ_INT(t, ndim, tensor->ndim);
    for (int32_t i = ndim - 1; i >= 0; i--) {
        TK_EQ_INT(t, sizes[i], tensor->shape[i]);
        TK_CHECK(t, tensor->strides == NULL || tensor->strides[i] == stride || sizes[i] == 1);
        stride *= sizes[i];
    }
    TK_EQ_INT(t, dtypes[index].code, tensor->dtype.code);
    TK_EQ_INT(t, dtypes[index].bits, tensor->dtype.bits);
    TK_EQ_INT(t, 1, tensor->dtype.lanes);
    TK_EQ_INT(t, t->device_type, tensor->device.device_type);
    TK_EQ_INT(t, facts->info.device, tensor->device.device_id);
    TK_EQ_SIZE(t, 0, tensor->byte_offset);
    TK_EQ_PTR(t, data, tensor->data);
    managed->deleter(managed);
}

/* --- place and shape -------------------------------------------------------------------------- */

TK_TEST(view, buffers_of_every_type, "SM-VIEW-01", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .max_ranks = 4) {
    struct facts facts = world(t);
    TK_EQ_INT(t, DTYPES, SYMMEM_DTYPE_COUNT);
    for (int i = 0; i < DTYPES; i++) {
        const size_t element = symmem_dtype_size(dtypes[i].dtype);
        const int64_t sizes[] = {3, 5, 7};
        TK_EQ_SIZE(t, dtypes[i].bits / 8, element);
        for (int32_t rank = 0; rank < facts.info.world_size; rank++) {
            DLManagedTensor *view =
                view_by(t, symmem_get_buffer, facts.handle, rank, 3, sizes, dtypes[i].dtype, 11);
            expect_tensor(t, view, &facts, 3, sizes, i, (char *)facts.buffers[rank] + 11 * element);
        }
    }
}

TK_TEST(view, dimensions, "SM-VIEW-01", .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 2) {
    static const int64_t ones[9] = {1, 1, 1, 2, 1, 1, 1, 1, 1};
    struct facts facts = world(t);
    for (int32_t ndim = 0; ndim <= 8; ndim++) {
        DLManagedTensor *view =
            view_by(t, symmem_get_buffer, facts.handle, 0, ndim, ones, SYMMEM_INT16, 2);
        expect_tensor(t, view, &facts, ndim, ones, 2, (char *)facts.buffers[0] + 4);
    }
}

/* Views of the group's ranks, whatever the group looks like. */
ON_EACH_SHAPE(view, peers_of_every_group, "SM-VIEW-01", .needs = SYMMEM_CAP_DIRECT_ACCESS,
              .max_ranks = 8, .flags = TK_PLAIN_MEMORY) {
    struct facts facts = facts_of(t, tk_handle(t, BYTES, group));
    const int64_t size = 8;
    uint8_t own = (uint8_t)(t->rank + 1);
    tk_fill(t, facts.handle, shape->rank, 0, BYTES, own);
    TK_OK(t, symmem_barrier(facts.handle, 0, LONG_MS, NULL));
    for (int32_t rank = 0; rank<shape->count; rank += shape->count> 8 ? 7 : 1) {
        uint8_t byte = 0;
        DLManagedTensor *view =
            view_by(t, symmem_get_buffer, facts.handle, rank, 1, &size, SYMMEM_UINT8, 100);
        TK_OK(t, symmem_copy(t->context, &byte, view->dl_tensor.data, 1, NULL));
        TK_EQ_INT(t, (uint8_t)(shape->ranks[rank] + 1), byte);
        expect_tensor(t, view, &facts, 1, &size, 0, (char *)facts.buffers[rank] + 100);
    }
    TK_OK(t, symmem_barrier(facts.handle, 0, LONG_MS, NULL));
}

TK_TEST(view, remote_tensors_begin_at_the_offset, "SM-VIEW-02,SM-HANDLE-05",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 4) {
    char *memory = tk_alloc(t, BYTES);
    TK_REQ(t, "SM-VIEW-02");
    for (size_t offset = 0; offset < BYTES; offset += 1024) {
        struct facts facts = facts_of(t, tk_rendezvous(t, memory + offset, tk_world_group(t)));
        const int64_t rest = (int64_t)(BYTES - offset) / 4 - 3, beyond = rest + 1;
        for (int32_t rank = 0; rank < facts.info.world_size; rank++) {
            DLManagedTensor *view = view_by(t, symmem_get_remote_tensor, facts.handle, rank, 1,
                                            &rest, SYMMEM_FLOAT32, 3);
            expect_tensor(t, view, &facts, 1, &rest, 10, (char *)facts.buffers[rank] + offset + 12);
            /* The buffer view counts from the base, whatever the offset is. */
            view = view_by(t, symmem_get_buffer, facts.handle, rank, 1, &rest, SYMMEM_FLOAT32, 3);
            expect_tensor(t, view, &facts, 1, &rest, 10, (char *)facts.buffers[rank] + 12);
            TK_FAILS(
                t, OUT_OF_RANGE,
                symmem_get_remote_tensor(facts.handle, rank, 1, &beyond, SYMMEM_FLOAT32, 3, &view));
        }
    }
}

/* --- bounds ----------------------------------------------------------------------------------- */

static const view_fn views[] = {symmem_get_buffer, symmem_get_remote_tensor, symmem_get_signal_pad};

static void refuse(struct tk *t, view_fn view, struct facts *facts, symmem_status expected,
                   int64_t first, int64_t second, symmem_dtype dtype, int64_t offset) {
    const int64_t sizes[] = {first, second};
    DLManagedTensor *const untouched = (DLManagedTensor *)(void *)t;
    DLManagedTensor *tensor = untouched;
    TK_STATUS(t, expected, view(facts->handle, 0, 2, sizes, dtype, offset, &tensor));
    TK_EQ_PTR(t, untouched, tensor);
}

TK_TEST(view, ends_and_overflows, "SM-VIEW-03,SM-ERROR-04", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .max_ranks = 2, .flags = TK_PLAIN_MEMORY) {
    struct facts facts = world(t);
    TK_REQ(t, "SM-VIEW-03");
    for (int v = 0; v < 3; v++) {
        const int64_t bytes = v == 2 ? (int64_t)facts.info.signal_pad_size : BYTES;
        tk_checkpoint(t, "kind %d", v);
        for (int i = 0; i < DTYPES; i++) {
            const int64_t count = bytes / (int64_t)symmem_dtype_size(dtypes[i].dtype);
            const int64_t exact[] = {1, count}, last[] = {1, 1}, none[] = {0, 1};
            DLManagedTensor *view = NULL;
            TK_OK(t, views[v](facts.handle, 0, 2, exact, dtypes[i].dtype, 0, &view));
            view->deleter(view);
            TK_OK(t, views[v](facts.handle, 0, 2, last, dtypes[i].dtype, count - 1, &view));
            view->deleter(view);
            TK_OK(t, views[v](facts.handle, 0, 2, none, dtypes[i].dtype, count, &view));
            view->deleter(view);
            refuse(t, views[v], &facts, SYMMEM_OUT_OF_RANGE, 1, count + 1, dtypes[i].dtype, 0);
            refuse(t, views[v], &facts, SYMMEM_OUT_OF_RANGE, 1, 1, dtypes[i].dtype, count);
            refuse(t, views[v], &facts, SYMMEM_OUT_OF_RANGE, 1, count, dtypes[i].dtype, 1);
            refuse(t, views[v], &facts, SYMMEM_OUT_OF_RANGE, 0, 1, dtypes[i].dtype, count + 1);
        }
        refuse(t, views[v], &facts, SYMMEM_OUT_OF_RANGE, 1, 1, SYMMEM_FLOAT64, INT64_MIN);
        refuse(t, views[v], &facts, SYMMEM_OUT_OF_RANGE, -1, 1, SYMMEM_UINT8, 0);
        refuse(t, views[v], &facts, SYMMEM_OUT_OF_RANGE, -1, -1, SYMMEM_UINT8, 0);
        refuse(t, views[v], &facts, SYMMEM_OUT_OF_RANGE, 1, INT64_MAX, SYMMEM_UINT8, 0);
        refuse(t, views[v], &facts, SYMMEM_OVERFLOW, INT64_MAX, 4, SYMMEM_UINT8, 0);
        refuse(t, views[v], &facts, SYMMEM_OVERFLOW, INT64_C(1) << 32, INT64_C(1) << 32,
               SYMMEM_UINT8, 0);
        refuse(t, views[v], &facts, SYMMEM_OVERFLOW, INT64_C(1) << 31, INT64_C(1) << 30,
               SYMMEM_FLOAT64, 0);
        refuse(t, views[v], &facts, SYMMEM_OVERFLOW, 1, 1, SYMMEM_FLOAT64, INT64_MAX);
    }
}

TK_TEST(view, addresses_are_aligned, "SM-VIEW-05", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .max_ranks = 2) {
    char *memory = tk_alloc(t, BYTES);
    for (size_t offset = 1; offset <= 8; offset++) {
        struct facts facts = facts_of(t, tk_rendezvous(t, memory + offset, tk_world_group(t)));
        for (int i = 0; i < DTYPES; i++) {
            const int64_t one = 1;
            bool aligned = offset % symmem_dtype_size(dtypes[i].dtype) == 0;
            DLManagedTensor *tensor = NULL;
            TK_STATUS(t, aligned ? SYMMEM_OK : SYMMEM_MISALIGNED,
                      symmem_get_remote_tensor(facts.handle, facts.info.world_size - 1, 1, &one,
                                               dtypes[i].dtype, 2, &tensor));
            TK_CHECK(t, (tensor != NULL) == aligned);
            if (tensor != NULL)
                tensor->deleter(tensor);
        }
    }
}

/* --- signal pads ------------------------------------------------------------------------------ */

TK_PORTED(test_get_signal_pad, "SM-VIEW-06,SM-HANDLE-09", .needs = SYMMEM_CAP_DIRECT_ACCESS,
          .max_ranks = 8, .flags = TK_WRITES_PADS) {
    struct facts facts = facts_of(t, tk_handle(t, 4, tk_world_group(t)));
    const int64_t square[] = {8, 8};
    const int64_t words = (int64_t)facts.info.signal_pad_size / 4;
    TK_REQ(t, "SM-VIEW-06");
    for (int i = 0; i < DTYPES; i++) {
        const int64_t entries = (int64_t)facts.info.signal_pad_size / (dtypes[i].bits / 8);
        DLManagedTensor *pad =
            view_by(t, symmem_get_signal_pad, facts.handle, t->next, 0, NULL, dtypes[i].dtype, 0);
        expect_tensor(t, pad, &facts, 1, &entries, i, facts.pads[t->next]);
        pad =
            view_by(t, symmem_get_signal_pad, facts.handle, t->next, 2, square, dtypes[i].dtype, 5);
        expect_tensor(t, pad, &facts, 2, square, i,
                      (char *)facts.pads[t->next] + 5 * (dtypes[i].bits / 8));
    }
    DLManagedTensor *pad =
        view_by(t, symmem_get_signal_pad, facts.handle, t->rank, 0, NULL, SYMMEM_UINT32, 0);
    TK_OK(t, symmem_memset32(t->context, &pad->dl_tensor, 0, 42, words, NULL));
    tk_fill(t, facts.handle, t->rank, 0, 4, 0); /* data and pad do not overlap */
    for (int64_t i = 0; i < words; i++) {
        uint32_t word = 0;
        TK_OK(t, symmem_copy(t->context, &word, (uint32_t *)pad->dl_tensor.data + i, 4, NULL));
        if (word != 42)
            TK_CHECK_MSG(t, false, "word %lld is %u", (long long)i, word);
    }
    pad->deleter(pad);
    tk_expect_bytes(t, facts.handle, t->rank, 0, 4, 0);
}

/* A pad that is no multiple of eight has an entry less of the wide types. */
TK_TEST(view, odd_pads_round_down, "SM-VIEW-06", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .max_ranks = 5) {
    const size_t bytes = 4 * (size_t)t->world_size * 3 + 4 + 4 * (size_t)(t->world_size % 2);
    struct facts facts;
    TK_OK(t, symmem_set_signal_pad_size(t->context, bytes));
    facts = world(t);
    for (int i = 0; i < DTYPES; i++) {
        const int64_t entries = (int64_t)(bytes / symmem_dtype_size(dtypes[i].dtype));
        DLManagedTensor *pad =
            view_by(t, symmem_get_signal_pad, facts.handle, 0, 0, NULL, dtypes[i].dtype, 0);
        expect_tensor(t, pad, &facts, 1, &entries, i, facts.pads[0]);
    }
}

/* --- life ------------------------------------------------------------------------------------- */

TK_TEST(view, views_keep_memory, "SM-VIEW-07", .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 8) {
    const int64_t size = BYTES, words = 4;
    void *memory = tk_alloc(t, BYTES);
    symmem_handle *handle = tk_rendezvous(t, memory, tk_world_group(t));
    DLManagedTensor *own = NULL, *remote = NULL, *pad = NULL;
    uint8_t found[BYTES];
    tk_fill(t, handle, t->rank, 0, BYTES, (uint8_t)(t->rank + 1));
    own = view_by(t, symmem_get_buffer, handle, t->rank, 1, &size, SYMMEM_UINT8, 0);
    remote = view_by(t, symmem_get_remote_tensor, handle, t->next, 1, &size, SYMMEM_UINT8, 0);
    pad = view_by(t, symmem_get_signal_pad, handle, t->next, 1, &words, SYMMEM_UINT32, 0);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_release(t, handle);
    tk_free(t, memory);
    tk_out_of_band_barrier(t); /* all ranks have let go */
    (void)tk_alloc(t, BYTES);  /* may get the address, must not get the memory */
    TK_OK(t, symmem_copy(t->context, found, own->dl_tensor.data, BYTES, NULL));
    TK_CHECK(t, found[0] == (uint8_t)(t->rank + 1) && found[BYTES - 1] == found[0]);
    own->deleter(own);
    TK_OK(t, symmem_copy(t->context, found, remote->dl_tensor.data, BYTES, NULL));
    TK_CHECK(t, found[0] == (uint8_t)(t->next + 1) && found[BYTES - 1] == found[0]);
    remote->deleter(remote);
    TK_OK(t, symmem_memset32(t->context, &pad->dl_tensor, 0, 5, words, NULL));
    TK_OK(t, symmem_copy(t->context, found, pad->dl_tensor.data, 16, NULL));
    TK_CHECK(t, found[0] == 5 && found[12] == 5);
    tk_out_of_band_barrier(t);
    pad->deleter(pad);
}
