/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors as arguments of collective operations. */
#include "rendezvous/tensor.h"
#include "backend/device.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/registry.h"

#define MAX_NDIM 64 /* PyTorch's limit */

static const DLDataType dl_types[SYMMEM_DTYPE_COUNT] = {
    [SYMMEM_UINT8] = {kDLUInt, 8, 1},     [SYMMEM_INT8] = {kDLInt, 8, 1},
    [SYMMEM_INT16] = {kDLInt, 16, 1},     [SYMMEM_UINT16] = {kDLUInt, 16, 1},
    [SYMMEM_INT32] = {kDLInt, 32, 1},     [SYMMEM_UINT32] = {kDLUInt, 32, 1},
    [SYMMEM_INT64] = {kDLInt, 64, 1},     [SYMMEM_UINT64] = {kDLUInt, 64, 1},
    [SYMMEM_FLOAT16] = {kDLFloat, 16, 1}, [SYMMEM_BFLOAT16] = {kDLBfloat, 16, 1},
    [SYMMEM_FLOAT32] = {kDLFloat, 32, 1}, [SYMMEM_FLOAT64] = {kDLFloat, 64, 1},
};

DLDataType sm_dtype_to_dl(symmem_dtype dtype) {
    return dl_types[dtype];
}

bool sm_dtype_of(DLDataType type, symmem_dtype *dtype_p) {
    /* By type code and number of whole bytes. */
    static const uint8_t known[5][9] = {
        [kDLInt] = {[1] = 1 + SYMMEM_INT8,
                    [2] = 1 + SYMMEM_INT16,
                    [4] = 1 + SYMMEM_INT32,
                    [8] = 1 + SYMMEM_INT64},
        [kDLUInt] = {[1] = 1 + SYMMEM_UINT8,
                     [2] = 1 + SYMMEM_UINT16,
                     [4] = 1 + SYMMEM_UINT32,
                     [8] = 1 + SYMMEM_UINT64},
        [kDLFloat] = {[2] = 1 + SYMMEM_FLOAT16, [4] = 1 + SYMMEM_FLOAT32, [8] = 1 + SYMMEM_FLOAT64},
        [kDLBfloat] = {[2] = 1 + SYMMEM_BFLOAT16},
    };
    if (type.code >= 5 || type.bits > 64 || type.bits % 8 != 0 || type.lanes != 1)
        return false;
    uint8_t found = known[type.code][type.bits / 8];
    if (found == 0)
        return false;
    *dtype_p = (symmem_dtype)(found - 1);
    return true;
}

static symmem_status refuse(const char *operation, const char *what, const char *why) {
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s %s", what, why);
}

/* Counts the elements and checks that the strides are those of a dense tensor. */
static symmem_status measure(const DLTensor *from, const char *operation, const char *what,
                             size_t *count_p) {
    size_t count = 1;
    bool dense = true, empty = false;
    for (int32_t d = from->ndim - 1; d >= 0; d--) {
        int64_t size = from->shape[d];
        if (size < 0)
            return refuse(operation, what, "has a negative size");
        /* The stride of a dimension of one element means nothing. */
        if (size > 1 && from->strides != NULL && from->strides[d] != (int64_t)count)
            dense = false;
        empty = empty || size == 0;
        if (size > 0 && !sm_mul_size(count, (size_t)size, &count))
            return sm_fail(SYMMEM_OVERFLOW, operation, "", "the size of %s overflows", what);
    }
    *count_p = empty ? 0 : count;
    return dense || empty ? SYMMEM_OK : refuse(operation, what, "is not contiguous");
}

/* Whether the memory is of the backend's devices, or of the host if they reach it. Programs that
 * set no type leave it 0. */
static bool is_served(int32_t served, DLDeviceType type) {
    return (int)type == 0 || (int)type == served || type == kDLCPU || type == kDLCUDAHost ||
           type == kDLCUDAManaged || type == kDLROCMHost;
}

/* A device's type never changes, so the backend is asked for it once. NULL: the table has no entry
 * for the device. */
static atomic_int *type_of(symmem_context *context, int32_t device) {
    return device >= 0 && device < SM_KNOWN_DEVICES ? &context->device_types[device] : NULL;
}

static symmem_status ask_type(symmem_context *context, const DLTensor *from, const char *operation,
                              const char *what, int32_t *type_p) {
    symmem_device_info info = {0};
    int32_t device = from->device.device_id;
    symmem_status status =
        device == -1 ? sm_fail(SYMMEM_OUT_OF_RANGE, operation, "", "%s is of device -1", what)
                     : sm_device_resolve(context, device, operation, &device);
    if (status != SYMMEM_OK)
        return status;
    status = sm_instance_enter(context, operation); /* another thread may finalize meanwhile */
    if (status != SYMMEM_OK)
        return status;
    status = context->backend->device_info(context->instance, device, &info);
    sm_instance_release(context);
    *type_p = info.device_type;
    return status == SYMMEM_OK ? status
                               : sm_backend_failed(context, status, operation, "device_info");
}

static symmem_status check_device(symmem_context *context, const DLTensor *from,
                                  const char *operation, const char *what) {
    atomic_int *known = type_of(context, from->device.device_id);
    /* Relaxed, here and below: nothing else depends on it. */
    int32_t type = known != NULL ? atomic_load_explicit(known, memory_order_relaxed) : 0;
    if (type == 0) {
        symmem_status status = ask_type(context, from, operation, what, &type);
        if (status != SYMMEM_OK)
            return status;
        if (known != NULL)
            atomic_store_explicit(known, type, memory_order_relaxed);
    }
    if (is_served(type, from->device.device_type))
        return SYMMEM_OK;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                   "%s is memory of a device of type %d, the backend's are of type %d", what,
                   (int)from->device.device_type, (int)type);
}

symmem_status sm_tensor_form(symmem_context *context, const DLTensor *from, const char *operation,
                             const char *what) {
    if (from == NULL)
        return refuse(operation, what, "is NULL");
    if (from->ndim < 0 || from->ndim > MAX_NDIM || (from->ndim > 0 && from->shape == NULL))
        return refuse(operation, what, "has no shape, or more than 64 dimensions");
    if (context == NULL || (from->device.device_type == 0 && from->device.device_id == 0))
        return SYMMEM_OK;
    return check_device(context, from, operation, what);
}

symmem_status sm_tensor_locate(const DLTensor *from, const char *operation, const char *what,
                               size_t element, size_t extent, char **data_p) {
    uintptr_t begin = 0, end;
    *data_p = NULL;
    if (from->data == NULL)
        return extent > 0 ? refuse(operation, what, "has no data") : SYMMEM_OK;
    if (__builtin_add_overflow((uintptr_t)from->data, from->byte_offset, &begin) ||
        __builtin_add_overflow(begin, extent, &end))
        return sm_fail(SYMMEM_OVERFLOW, operation, "",
                       "%p + %llu bytes, the place of %s, overflows", from->data,
                       (unsigned long long)from->byte_offset, what);
    if ((begin & (element - 1)) != 0) /* `element` is a power of two */
        return sm_fail(SYMMEM_MISALIGNED, operation, "",
                       "%s at %p is not aligned to elements of %zu bytes", what, (void *)begin,
                       element);
    *data_p = (char *)begin;
    return SYMMEM_OK;
}

symmem_status sm_tensor_read(symmem_context *context, const DLTensor *from, const char *operation,
                             const char *what, sm_tensor *tensor_p) {
    symmem_status status = sm_tensor_form(context, from, operation, what);
    if (status != SYMMEM_OK)
        return status;
    *tensor_p = (sm_tensor){.what = what, .ndim = from->ndim, .shape = from->shape};
    if (!sm_dtype_of(from->dtype, &tensor_p->dtype))
        return refuse(operation, what, "has an unknown dtype");
    status = measure(from, operation, what, &tensor_p->count);
    if (status != SYMMEM_OK)
        return status;
    size_t element = symmem_dtype_size(tensor_p->dtype);
    if (!sm_mul_size(tensor_p->count, element, &tensor_p->bytes))
        return sm_fail(SYMMEM_OVERFLOW, operation, "", "the size of %s overflows", what);
    return sm_tensor_locate(from, operation, what, element, tensor_p->bytes, &tensor_p->data);
}

symmem_status sm_tensor_same_dtype(const sm_tensor *a, const sm_tensor *b, const char *operation) {
    if (a->dtype == b->dtype)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s is of %s, %s of %s", a->what,
                   symmem_dtype_name(a->dtype), b->what, symmem_dtype_name(b->dtype));
}

static symmem_status shapes_differ(const sm_tensor *a, const sm_tensor *b, size_t wanted,
                                   const char *operation) {
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                  "the shapes of %s (%zu elements) and %s (%zu) do not fit", a->what, a->count,
                  b->what, b->count);
    return sm_error_sizes(wanted, b->count);
}

symmem_status sm_tensor_gathers(const sm_tensor *in, const sm_tensor *out, int32_t world_size,
                                const char *operation) {
    symmem_status status = sm_tensor_same_dtype(in, out, operation);
    if (status != SYMMEM_OK)
        return status;
    size_t wanted;
    if (!sm_mul(in->count, (size_t)world_size, &wanted))
        return sm_fail(SYMMEM_OVERFLOW, operation, "", "the size of %s overflows", out->what);
    bool fits = out->ndim == (in->ndim > 0 ? in->ndim : 1) && out->count == wanted;
    for (int32_t d = 1; fits && d < in->ndim; d++)
        fits = in->shape[d] == out->shape[d];
    if (fits) { /* an empty tensor's first dimension is in no count */
        size_t first = in->ndim > 0 ? (size_t)in->shape[0] : 1;
        fits = sm_mul(first, (size_t)world_size, &first) && (size_t)out->shape[0] == first;
    }
    return fits ? SYMMEM_OK : shapes_differ(in, out, wanted, operation);
}

symmem_status sm_tensor_disjoint(const sm_tensor *a, const sm_tensor *b, const char *operation) {
    uintptr_t a_begin = (uintptr_t)a->data, b_begin = (uintptr_t)b->data;
    bool empty = a->bytes == 0 || b->bytes == 0; /* at any address */
    if (empty || a_begin >= b_begin + b->bytes || b_begin >= a_begin + a->bytes)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "%s overlaps %s", a->what, b->what);
}

symmem_status sm_tensor_alike(const sm_tensor *a, const sm_tensor *b, const char *operation) {
    symmem_status status = sm_tensor_same_dtype(a, b, operation);
    if (status != SYMMEM_OK)
        return status;
    bool same = a->ndim == b->ndim;
    for (int32_t d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d];
    return same ? SYMMEM_OK : shapes_differ(a, b, a->count, operation);
}

/* --- names -------------------------------------------------------------------------- */

static const char *const call_names[SYMMEM_CALL_KIND_COUNT] = {
    [SYMMEM_CALL_BARRIER] = "barrier",
    [SYMMEM_CALL_ONE_SHOT_ALL_REDUCE] = "one_shot_all_reduce",
    [SYMMEM_CALL_TWO_SHOT_ALL_REDUCE] = "two_shot_all_reduce",
    [SYMMEM_CALL_REDUCE_SCATTER] = "reduce_scatter",
    [SYMMEM_CALL_ALL_GATHER] = "all_gather",
    [SYMMEM_CALL_BROADCAST] = "broadcast",
    [SYMMEM_CALL_ALL_TO_ALL] = "all_to_all",
    [SYMMEM_CALL_MULTIMEM_ALL_REDUCE] = "multimem_all_reduce",
    [SYMMEM_CALL_MULTIMEM_ONE_SHOT_ALL_REDUCE] = "multimem_one_shot_all_reduce",
    [SYMMEM_CALL_MULTIMEM_ONE_SHOT_REDUCE] = "multimem_one_shot_reduce",
    [SYMMEM_CALL_MULTIMEM_ALL_GATHER] = "multimem_all_gather",
    [SYMMEM_CALL_FUSED_ALL_GATHER_MATMUL] = "fused_all_gather_matmul",
    [SYMMEM_CALL_FUSED_MATMUL_REDUCE_SCATTER] = "fused_matmul_reduce_scatter",
    [SYMMEM_CALL_ALL_TO_ALL_V] = "all_to_all_v",
    [SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER] = "low_contention_reduce_scatter",
    [SYMMEM_CALL_LOW_CONTENTION_ALL_GATHER] = "low_contention_all_gather",
    [SYMMEM_CALL_LOW_CONTENTION_ALL_GATHER_CE_MULTICAST] = "low_contention_all_gather_ce_multicast",
    [SYMMEM_CALL_WAIT_VALUE] = "wait_value",
    [SYMMEM_CALL_ALL_GATHER_V] = "all_gather_v",
    [SYMMEM_CALL_REDUCE_SCATTER_V] = "reduce_scatter_v",
    [SYMMEM_CALL_TILE_REDUCE] = "tile_reduce",
    [SYMMEM_CALL_MULTI_ROOT_TILE_REDUCE] = "multi_root_tile_reduce",
};

const char *sm_call_name(uint32_t kind) {
    const char *name = kind < SYMMEM_CALL_KIND_COUNT ? call_names[kind] : NULL;
    return name != NULL ? name : "?";
}

const char *sm_reduce_op_name(uint32_t op) {
    static const char *const names[SYMMEM_REDUCE_OP_COUNT] = {"sum", "avg", "min", "max"};
    return op < SYMMEM_REDUCE_OP_COUNT ? names[op] : "?";
}
