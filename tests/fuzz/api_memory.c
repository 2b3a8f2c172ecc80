/* SPDX-License-Identifier: BSD-3-Clause */
/* The API target's calls on memory: allocations, pools, handles, copies, views. */
#include "api_model.h"

#define UNTOUCHED ((void *)0x7777)

static int free_slot(const model *m) {
    for (int i = 0; i < SLOTS; i++)
        if (m->memory[i].ptr == NULL)
            return i;
    return -1;
}

static size_t any_bytes(model *m) {
    uint64_t bytes = fuzz_number(m->in, 4096);
    return bytes <= PLAIN_MAX ? bytes : bytes | 1ull << 60;
}

static void take_memory(model *m, int slot, void *ptr, size_t bytes, bool pooled) {
    model_memory *memory = &m->memory[slot];
    *memory =
        (model_memory){.ptr = ptr, .bytes = bytes, .pad = m->pad, .active = true, .pooled = pooled};
    FUZZ_CHECK((uintptr_t)ptr % SYMMEM_ALIGNMENT == 0);
    if (model_captures(m) || m->forked)
        return;
    memory->shadow = calloc(1, bytes);
    FUZZ_CHECK(memory->shadow != NULL);
    if (pooled) /* a block that was used before is not zeroed */
        memcpy(memory->shadow, ptr, bytes);
}

static int find_id(const model *m, uint64_t id) {
    for (int i = 0; i < SLOTS; i++)
        if (m->memory[i].ptr != NULL && id != 0 && m->memory[i].id == id)
            return i;
    return -1;
}

static symmem_status predict_alloc(const model *m, size_t bytes, int32_t device, int known) {
    if (m->finalized)
        return SYMMEM_NOT_INITIALIZED;
    if (bytes == 0)
        return SYMMEM_INVALID_ARGUMENT;
    if (bytes > SIZE_MAX - (SYMMEM_ALIGNMENT - 1))
        return SYMMEM_OVERFLOW;
    if (device < -1 || device > 7)
        return SYMMEM_OUT_OF_RANGE;
    if (model_captures(m))
        return SYMMEM_CAPTURE;
    if (known >= 0 && m->memory[known].active)
        return SYMMEM_BUSY;
    if (known >= 0 && m->memory[known].bytes != bytes)
        return SYMMEM_MISMATCH;
    return bytes > PLAIN_MAX ? SYMMEM_NO_SPACE : SYMMEM_OK;
}

void call_alloc(model *m) {
    symmem_alloc_options options;
    void *ptr = UNTOUCHED;
    size_t bytes = any_bytes(m);
    uint8_t form = fuzz_u8(m->in);
    int32_t device = form < 250 ? -1 : form - 253; /* -3 to 2; only the default matters */
    symmem_alloc_options_init(&options);
    options.alloc_id = (form & 3) == 3 ? 1 + form / 4 % 3 : 0;
    int known = find_id(m, options.alloc_id), slot = known >= 0 ? known : free_slot(m);
    if (slot < 0 || device > 0)
        return;
    symmem_status expected = predict_alloc(m, bytes, device, known);
    EXPECT(symmem_alloc(m->context, bytes, device, &options, &ptr), expected);
    if (expected != SYMMEM_OK) {
        FUZZ_CHECK(ptr == UNTOUCHED);
        return;
    }
    if (known >= 0) {
        FUZZ_CHECK(ptr == m->memory[known].ptr);
        m->memory[known].active = true;
        return;
    }
    FUZZ_CHECK(model_find(m, ptr) < 0);
    take_memory(m, slot, ptr, bytes, false);
    m->memory[slot].id = options.alloc_id;
}

void call_free(model *m) {
    void *ptr = model_any_pointer(m);
    int slot = model_find(m, ptr);
    symmem_status expected = SYMMEM_OK;
    if (m->finalized)
        expected = SYMMEM_NOT_INITIALIZED;
    else if (ptr != NULL && slot < 0)
        expected = SYMMEM_NOT_SYMMETRIC;
    else if (ptr != NULL && (m->memory[slot].pooled || ptr != m->memory[slot].ptr))
        expected = SYMMEM_INVALID_ARGUMENT;
    EXPECT(symmem_free(m->context, ptr), expected);
    if (expected != SYMMEM_OK || ptr == NULL)
        return;
    if (m->memory[slot].id != 0)
        m->memory[slot].active = false;
    else
        model_drop_memory(m, slot);
}

void call_query(model *m) {
    void *ptr = model_any_pointer(m);
    int slot = model_find(m, ptr);
    symmem_alloc_info info;
    bool symmetric = slot < 0;
    size_t bytes = 4711;
    if (m->finalized) {
        EXPECT(symmem_alloc_size(m->context, ptr, &bytes), SYMMEM_NOT_INITIALIZED);
        return;
    }
    symmem_status expected = slot >= 0 ? SYMMEM_OK : SYMMEM_NOT_SYMMETRIC;
    EXPECT(symmem_is_symmetric(m->context, ptr, &symmetric), SYMMEM_OK);
    FUZZ_CHECK(symmetric == (slot >= 0));
    EXPECT(symmem_alloc_size(m->context, ptr, &bytes), expected);
    FUZZ_CHECK(bytes == (slot >= 0 ? m->memory[slot].bytes : 4711));
    EXPECT(symmem_alloc_query(m->context, ptr, &info), expected);
    if (slot < 0)
        return;
    FUZZ_CHECK(info.base == m->memory[slot].ptr && info.bytes == m->memory[slot].bytes);
    FUZZ_CHECK(info.alloc_id == m->memory[slot].id && info.signal_pad_size == m->memory[slot].pad);
    FUZZ_CHECK((info.is_pool_block != 0) == m->memory[slot].pooled);
}

void call_pad_size(model *m) {
    size_t bytes = fuzz_number(m->in, 64), found = 0;
    symmem_status expected = SYMMEM_OK;
    if (m->finalized)
        expected = SYMMEM_NOT_INITIALIZED;
    else if (bytes % 4 != 0)
        expected = SYMMEM_MISALIGNED;
    else if (bytes > 1u << 30)
        expected = SYMMEM_OUT_OF_RANGE;
    else if (bytes > PLAIN_MAX)
        return; /* would really be allocated */
    EXPECT(symmem_set_signal_pad_size(m->context, bytes), expected);
    if (expected == SYMMEM_OK)
        m->pad = bytes != 0 ? bytes : SYMMEM_DEFAULT_SIGNAL_PAD_SIZE;
    if (!m->finalized)
        EXPECT(symmem_get_signal_pad_size(m->context, &found), SYMMEM_OK);
    FUZZ_CHECK(m->finalized || found == m->pad);
}

/* --- the pool ------------------------------------------------------------------------------ */

static size_t count_blocks(const model *m) {
    size_t count = 0;
    for (int i = 0; i < SLOTS; i++)
        count += m->memory[i].ptr != NULL && m->memory[i].pooled ? 1 : 0;
    return count;
}

static void pool_alloc(model *m) {
    int slot = free_slot(m);
    size_t bytes = any_bytes(m);
    void *ptr = UNTOUCHED;
    if (slot < 0)
        return;
    symmem_status status = symmem_pool_alloc(m->pool, bytes, &ptr);
    symmem_status expected = SYMMEM_OK;
    if (m->finalized)
        expected = SYMMEM_NOT_INITIALIZED;
    else if (bytes == 0)
        expected = SYMMEM_INVALID_ARGUMENT;
    else if (bytes > SIZE_MAX - 511)
        expected = SYMMEM_OVERFLOW;
    else if (status == SYMMEM_CAPTURE && model_captures(m))
        expected = SYMMEM_CAPTURE; /* it would have needed a new segment */
    else if (bytes > PLAIN_MAX)
        expected = SYMMEM_NO_SPACE;
    EXPECT(status, expected);
    if (status == SYMMEM_OK)
        take_memory(m, slot, ptr, bytes, true);
    else
        FUZZ_CHECK(ptr == UNTOUCHED);
}

static void pool_free(model *m) {
    void *ptr = model_any_pointer(m);
    int slot = model_find(m, ptr);
    symmem_status expected = SYMMEM_OK;
    if (m->finalized)
        expected = SYMMEM_NOT_INITIALIZED;
    else if (ptr != NULL && (slot < 0 || !m->memory[slot].pooled))
        expected = SYMMEM_NOT_SYMMETRIC;
    else if (ptr != NULL && ptr != m->memory[slot].ptr)
        expected = SYMMEM_INVALID_ARGUMENT;
    EXPECT(symmem_pool_free(m->pool, ptr), expected);
    if (expected == SYMMEM_OK && ptr != NULL)
        model_drop_memory(m, slot);
}

void call_pool(model *m) {
    symmem_pool_stats stats;
    uint8_t form = fuzz_u8(m->in);
    if (m->pool == NULL) {
        EXPECT(symmem_pool_create(m->context, -1, 4096, &m->pool),
               m->finalized ? SYMMEM_NOT_INITIALIZED : SYMMEM_OK);
    } else if (form % 8 == 7) {
        symmem_status expected = m->finalized          ? SYMMEM_NOT_INITIALIZED
                                 : count_blocks(m) > 0 ? SYMMEM_BUSY
                                                       : SYMMEM_OK;
        EXPECT(symmem_pool_destroy(m->pool), expected);
        if (expected == SYMMEM_OK)
            m->pool = NULL;
    } else if (form % 2 == 0) {
        pool_alloc(m);
    } else {
        pool_free(m);
    }
    if (m->pool == NULL || m->finalized)
        return;
    EXPECT(symmem_pool_get_stats(m->pool, &stats), SYMMEM_OK);
    FUZZ_CHECK(stats.block_count == count_blocks(m) && stats.used_bytes <= stats.segment_bytes);
}

/* --- handles ----------------------------------------------------------------------------- */

void call_rendezvous(model *m) {
    uint8_t form = fuzz_u8(m->in);
    model_handle *place = &m->handles[form % SLOTS];
    void *ptr = model_any_pointer(m);
    int slot = model_find(m, ptr);
    symmem_handle *handle = UNTOUCHED;
    symmem_group *group = form < 240 ? m->group : NULL; /* no default group either */
    symmem_handle_release(place->handle);
    *place = (model_handle){.memory = -1};
    symmem_status status = symmem_rendezvous(m->context, ptr, group, 2000, &handle);
    symmem_status expected = SYMMEM_OK;
    if (m->finalized)
        expected = SYMMEM_NOT_INITIALIZED;
    else if (slot < 0)
        expected = SYMMEM_NOT_SYMMETRIC;
    else if (group == NULL)
        expected = SYMMEM_INVALID_ARGUMENT;
    else if (model_captures(m) && !m->memory[slot].met)
        expected = SYMMEM_CAPTURE;
    else if (m->memory[slot].pad < 4)
        expected = SYMMEM_OUT_OF_RANGE;
    EXPECT(status, expected);
    FUZZ_CHECK((handle != NULL) == (status == SYMMEM_OK));
    if (status != SYMMEM_OK)
        return;
    model_memory *memory = &m->memory[slot];
    memory->met = true;
    *place = (model_handle){.handle = handle,
                            .memory = slot,
                            .offset = (size_t)((char *)ptr - memory->ptr),
                            .block_bytes = memory->bytes,
                            .pad = memory->pad};
}

void call_handle(model *m) {
    uint8_t form = fuzz_u8(m->in);
    model_handle *place = &m->handles[form % SLOTS];
    symmem_handle_info info;
    symmem_status expected = m->finalized ? SYMMEM_NOT_INITIALIZED : SYMMEM_OK;
    if (place->handle == NULL)
        return;
    EXPECT(symmem_handle_get_info(place->handle, &info), expected);
    if (expected == SYMMEM_OK) {
        FUZZ_CHECK(info.rank == 0 && info.world_size == 1 && info.multicast_ptr == NULL);
        FUZZ_CHECK(info.block_size == place->block_bytes && info.signal_pad_size == place->pad);
        FUZZ_CHECK(info.channel_count == (int32_t)(place->pad / 4));
        if (place->memory >= 0 && !m->memory[place->memory].vague)
            FUZZ_CHECK(info.poisoned == m->memory[place->memory].poisoned);
    }
    if ((form & 0x80) == 0)
        return;
    symmem_handle_release(place->handle);
    *place = (model_handle){.memory = -1};
}

/* A copy without a stream: exactly these bytes, at once. */
void call_transfer(model *m) {
    uint8_t form = fuzz_u8(m->in);
    model_handle *place = &m->handles[form % SLOTS];
    unsigned char bytes[128];
    size_t offset = fuzz_number(m->in, place->block_bytes - place->offset);
    size_t count = fuzz_number(m->in, 32);
    int32_t rank = form < 240 ? 0 : form - 248;
    if (place->handle == NULL || (count > sizeof(bytes) && count < 1u << 30))
        return;
    memset(bytes, form, sizeof(bytes));
    symmem_status expected = m->finalized ? SYMMEM_NOT_INITIALIZED
                             : rank != 0  ? SYMMEM_OUT_OF_RANGE
                                          : model_bounds(place, offset, count);
    /* Memory that only a handle of freed memory reaches has no shadow, but it is still there. */
    if ((form & 8) != 0) {
        EXPECT(symmem_put(place->handle, rank, offset, bytes, count, NULL), expected);
    } else {
        EXPECT(symmem_get(place->handle, rank, offset, bytes, count, NULL), expected);
        if (expected != SYMMEM_OK)
            for (size_t i = 0; i < sizeof(bytes); i++)
                FUZZ_CHECK(bytes[i] == form);
    }
    unsigned char *shadow = place->memory >= 0 ? m->memory[place->memory].shadow : NULL;
    if (expected != SYMMEM_OK || shadow == NULL)
        return;
    if ((form & 8) != 0)
        memcpy(shadow + place->offset + offset, bytes, count);
    FUZZ_CHECK(memcmp(shadow + place->offset + offset, bytes, count) == 0);
}

/* --- views -------------------------------------------------------------------------------- */

/* Elements of a shape, or the status that refuses it. */
static symmem_status predict_shape(const int64_t *sizes, int32_t ndim, int64_t start,
                                   size_t element, size_t limit, const void *base) {
    unsigned __int128 count = 1;
    bool empty = false;
    if (start < 0)
        return SYMMEM_OUT_OF_RANGE;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        if (sizes[d] < 0)
            return SYMMEM_OUT_OF_RANGE;
        count *= sizes[d] == 0 ? 1u : (uint64_t)sizes[d];
        if (count > INT64_MAX)
            return SYMMEM_OVERFLOW;
        empty = empty || sizes[d] == 0;
    }
    unsigned __int128 end = ((unsigned __int128)(uint64_t)start + (empty ? 0 : count)) * element;
    if (end > SIZE_MAX)
        return SYMMEM_OVERFLOW;
    if (end > limit)
        return SYMMEM_OUT_OF_RANGE;
    return (uintptr_t)base % element != 0 ? SYMMEM_MISALIGNED : SYMMEM_OK;
}

void call_view(model *m) {
    uint8_t form = fuzz_u8(m->in);
    model_handle *place = &m->handles[form % SLOTS];
    int64_t sizes[3], start = (int64_t)fuzz_number(m->in, 0);
    symmem_dtype dtype = (symmem_dtype)(fuzz_u8(m->in) % (SYMMEM_DTYPE_COUNT + 1));
    int32_t ndim = form / 4 % 4;
    DLManagedTensor *tensor = UNTOUCHED;
    void *const *buffers = NULL;
    size_t whole = place->block_bytes - place->offset, per = symmem_dtype_size(dtype);
    for (int i = 0; i < 3; i++)
        sizes[i] = (int64_t)fuzz_number(m->in, i == 0 && per != 0 ? whole / per : 1);
    if (place->handle == NULL || m->finalized)
        return;
    EXPECT(symmem_handle_buffer_ptrs(place->handle, &buffers), SYMMEM_OK);
    symmem_handle_info info;
    EXPECT(symmem_handle_get_info(place->handle, &info), SYMMEM_OK);
    char *base = (char *)buffers[0] + info.offset;
    size_t element = symmem_dtype_size(dtype);
    symmem_status expected = element == 0 ? SYMMEM_INVALID_ARGUMENT
                                          : predict_shape(sizes, ndim, start, element,
                                                          place->block_bytes - place->offset, base);
    EXPECT(symmem_get_remote_tensor(place->handle, 0, ndim, sizes, dtype, start, &tensor),
           expected);
    if (expected != SYMMEM_OK) {
        FUZZ_CHECK(tensor == UNTOUCHED);
        return;
    }
    FUZZ_CHECK(tensor->dl_tensor.data == base + (size_t)start * element);
    FUZZ_CHECK(tensor->dl_tensor.ndim == ndim && tensor->dl_tensor.byte_offset == 0);
    if (m->tensor != NULL)
        m->tensor->deleter(m->tensor);
    m->tensor = tensor;
}
