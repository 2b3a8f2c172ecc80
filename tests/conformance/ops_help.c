/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops_help.h"

#include <math.h>

#include "reference/matmul.h"

static const DLDataType dl_types[SYMMEM_DTYPE_COUNT] = {
    [SYMMEM_UINT8] = {kDLUInt, 8, 1},     [SYMMEM_INT8] = {kDLInt, 8, 1},
    [SYMMEM_INT16] = {kDLInt, 16, 1},     [SYMMEM_UINT16] = {kDLUInt, 16, 1},
    [SYMMEM_INT32] = {kDLInt, 32, 1},     [SYMMEM_UINT32] = {kDLUInt, 32, 1},
    [SYMMEM_INT64] = {kDLInt, 64, 1},     [SYMMEM_UINT64] = {kDLUInt, 64, 1},
    [SYMMEM_FLOAT16] = {kDLFloat, 16, 1}, [SYMMEM_BFLOAT16] = {kDLBfloat, 16, 1},
    [SYMMEM_FLOAT32] = {kDLFloat, 32, 1}, [SYMMEM_FLOAT64] = {kDLFloat, 64, 1},
};

const DLTensor *ops_shaped(struct ops_tensor *tensor, void *data, symmem_dtype dtype, int32_t ndim,
                           const int64_t *shape) {
    memset(tensor, 0, sizeof *tensor);
    tensor->dl.data = data;
    tensor->dl.dtype = dl_types[dtype];
    tensor->dl.ndim = ndim;
    tensor->dl.shape = tensor->shape;
    for (int32_t d = 0; d < ndim; d++)
        tensor->shape[d] = shape[d];
    return &tensor->dl;
}

const DLTensor *ops_flat(struct ops_tensor *tensor, void *data, symmem_dtype dtype, size_t count) {
    const int64_t shape[1] = {(int64_t)count};
    return ops_shaped(tensor, data, dtype, 1, shape);
}

const char *ops_wrong_member(struct tk *t, DLTensor *dl, int i, bool takes_form,
                             symmem_status *expected_p) {
    static int64_t negative[4] = {-1, -1, -1, -1}, huge[4] = {INT64_MAX, 1, 1, 1};
    const int32_t devices = device_count(t);
    int number = 0;
#define WRONG(status_, change_)                                                                    \
    if (i == number++) {                                                                           \
        *expected_p = SYMMEM_##status_;                                                            \
        change_;                                                                                   \
        return #change_;                                                                           \
    }
    WRONG(MISALIGNED, dl->byte_offset += 2)
    WRONG(OVERFLOW, dl->byte_offset = UINT64_MAX - 3)
    WRONG(OVERFLOW, dl->byte_offset = -(uint64_t)(uintptr_t)dl->data - 4)
    WRONG(INVALID_ARGUMENT, dl->data = NULL)
    WRONG(INVALID_ARGUMENT, dl->dtype.bits = 24)
    WRONG(INVALID_ARGUMENT, dl->dtype.code = UINT8_MAX)
    WRONG(INVALID_ARGUMENT, dl->dtype.lanes = 0)
    WRONG(INVALID_ARGUMENT, dl->dtype.lanes = 2)
    WRONG(INVALID_ARGUMENT, dl->device.device_type = kDLMetal)
    WRONG(OUT_OF_RANGE, dl->device.device_id = -1)
    WRONG(OUT_OF_RANGE, dl->device.device_id = devices)
    if (!takes_form)
        return NULL;
    WRONG(INVALID_ARGUMENT, dl->ndim = -1)
    WRONG(INVALID_ARGUMENT, dl->ndim = INT32_MAX)
    WRONG(INVALID_ARGUMENT, dl->shape = NULL)
    WRONG(INVALID_ARGUMENT, dl->shape = negative)
    WRONG(OVERFLOW, dl->shape = huge)
    WRONG(INVALID_ARGUMENT, dl->strides = negative)
#undef WRONG
    return NULL;
}

char *ops_own(struct tk *t, symmem_handle *handle) {
    symmem_handle_info info = info_of(t, handle);
    return (char *)buffers_of(t, handle)[info.rank] + info.offset;
}

bool ops_is_float(symmem_dtype dtype) {
    return dl_types[dtype].code == kDLFloat || dl_types[dtype].code == kDLBfloat;
}

bool ops_is_unsigned(symmem_dtype dtype) {
    return dl_types[dtype].code == kDLUInt;
}

void ops_encode(void *to, symmem_dtype dtype, int64_t value) {
    uint64_t bits = (uint64_t)value; /* little-endian */
    if (ops_is_float(dtype))
        symmem_reference_store(dtype, &bits, 0, (double)value);
    memcpy(to, &bits, symmem_dtype_size(dtype));
}

void ops_fill(void *host, symmem_dtype dtype, size_t count, int32_t rank, uint32_t generation) {
    size_t element = symmem_dtype_size(dtype);
    for (size_t i = 0; i < count; i++)
        ops_encode((char *)host + i * element, dtype,
                   (int)(word_of(rank, generation, i) >> 7 & 15) - 3);
}

void ops_upload(struct tk *t, void *device, const void *host, size_t bytes) {
    TK_REQUIRE_OK(t, symmem_copy(t->context, device, host, bytes, NULL));
}

void ops_download(struct tk *t, void *host, const void *device, size_t bytes) {
    TK_REQUIRE_OK(t, symmem_copy(t->context, host, device, bytes, NULL));
}

static bool is_nan(symmem_dtype dtype, const void *element) {
    uint64_t bits = 0;
    memcpy(&bits, element, symmem_dtype_size(dtype));
    return ops_is_float(dtype) && isnan(symmem_reference_load(dtype, &bits, 0));
}

bool ops_expect(struct tk *t, const void *expected, const void *actual, symmem_dtype dtype,
                size_t count, const char *what) {
    size_t element = symmem_dtype_size(dtype), wrong = 0;
    const char *e = expected, *a = actual;
    if (memcmp(e, a, count * element) == 0)
        return TK_CHECK(t, true);
    while (wrong < count &&
           (memcmp(e + wrong * element, a + wrong * element, element) == 0 ||
            (is_nan(dtype, e + wrong * element) && is_nan(dtype, a + wrong * element))))
        wrong++;
    if (wrong == count)
        return TK_CHECK(t, true);
    uint64_t got = 0, wanted = 0;
    memcpy(&wanted, e + wrong * element, element);
    memcpy(&got, a + wrong * element, element);
    return TK_CHECK_MSG(t, false, "%s: element %zu of %zu %s has the bits 0x%llx, not 0x%llx", what,
                        wrong, count, symmem_dtype_name(dtype), (unsigned long long)got,
                        (unsigned long long)wanted);
}

bool ops_own_step(struct tk *t, const char *point) {
    const char *backend = backend_name(t);
    const size_t length = strlen(backend);
    return strncmp(point, backend, length) == 0 && point[length] == '.' &&
           point[strlen(point) - 1] != '*';
}
