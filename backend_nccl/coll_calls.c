/* SPDX-License-Identifier: BSD-3-Clause */
/* Converts the core's collectives to NCCL's. */
#include "coll_comm.h"

#define MAX_ROWS 4096 /* of a reduce-scatter, in one call of NCCL */

static size_t element_bytes(symmem_dtype dtype) {
    return symmem_dtype_size(dtype);
}

/* --- support ----------------------------------------------------------------------- */

/* NCCL has no 16-bit integers. */
static bool find_type(symmem_dtype dtype, ncclDataType_t *type_p) {
    static const struct {
        symmem_dtype dtype;
        ncclDataType_t type;
    } types[] = {{SYMMEM_INT8, ncclInt8},       {SYMMEM_UINT8, ncclUint8},
                 {SYMMEM_INT32, ncclInt32},     {SYMMEM_UINT32, ncclUint32},
                 {SYMMEM_INT64, ncclInt64},     {SYMMEM_UINT64, ncclUint64},
                 {SYMMEM_FLOAT16, ncclFloat16}, {SYMMEM_FLOAT32, ncclFloat},
                 {SYMMEM_FLOAT64, ncclDouble},  {SYMMEM_BFLOAT16, ncclBfloat16}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == dtype) {
            *type_p = types[i].type;
            return true;
        }
    return false;
}

/* Without a default, so that compilers name an operation that is new and missing here. */
static bool find_op(symmem_reduce_op op, ncclRedOp_t *op_p) {
    switch (op) {
    case SYMMEM_SUM:
        *op_p = ncclSum;
        return true;
    case SYMMEM_AVG:
        *op_p = ncclAvg;
        return true;
    case SYMMEM_MIN:
        *op_p = ncclMin;
        return true;
    case SYMMEM_MAX:
        *op_p = ncclMax;
        return true;
    case SYMMEM_REDUCE_OP_COUNT:
        break;
    }
    return false;
}

static bool reduces(symmem_call_kind kind) {
    return kind == SYMMEM_CALL_ONE_SHOT_ALL_REDUCE || kind == SYMMEM_CALL_TWO_SHOT_ALL_REDUCE ||
           kind == SYMMEM_CALL_REDUCE_SCATTER;
}

static size_t rows_of(const symmem_collective *call) {
    return call->out_row == 0 ? 0 : call->count / call->out_row;
}

symmem_status nccl_call_check(const cuda_instance *instance, const symmem_collective *call) {
    const symmem_host *host = instance->host;
    ncclDataType_t type;
    ncclRedOp_t op;
    if (call->kind < SYMMEM_CALL_ONE_SHOT_ALL_REDUCE || call->kind > SYMMEM_CALL_ALL_TO_ALL)
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, call->name,
                          "this backend has no such collective");
    if (reduces(call->kind) && !find_type(call->dtype, &type))
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, call->name,
                          "NCCL, which serves this group, does not reduce such elements");
    if (reduces(call->kind) && !find_op(call->op, &op))
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, call->name,
                          "NCCL, which serves this group, does not reduce by operation %d",
                          (int)call->op);
    if (call->kind == SYMMEM_CALL_REDUCE_SCATTER && rows_of(call) > MAX_ROWS)
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, call->name,
                          "NCCL, which serves this group, gets at most %d rows", MAX_ROWS);
    return SYMMEM_OK;
}

/* --- the calls ---------------------------------------------------------------------- */

static char *own_part(const nccl_call *c) {
    return (char *)c->peers->buffers[c->peers->rank] + c->call->offset;
}

/* Moves nothing, and synchronizes all ranks. */
static ncclResult_t meet(const nccl_call *c) {
    return c->library->AllReduce(c->word, c->word, 1, ncclUint32, ncclMax, c->comm, c->native);
}

static ncclResult_t all_reduce(const nccl_call *c) {
    ncclDataType_t type = ncclInt8;
    ncclRedOp_t op = ncclSum;
    (void)find_type(c->call->dtype, &type);
    (void)find_op(c->call->op, &op);
    return c->library->AllReduce(c->call->in != NULL ? c->call->in : own_part(c),
                                 c->call->out != NULL ? c->call->out : own_part(c), c->call->count,
                                 type, op, c->comm, c->native);
}

/* For a call within a group, which NCCL only records. NCCL may answer that with in progress. */
static bool is_noted(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
}

static ncclResult_t end_group(const nccl_call *c, ncclResult_t result) {
    ncclResult_t ended = c->library->GroupEnd();
    return is_noted(result) ? ended : result;
}

static ncclResult_t reduce_scatter(const nccl_call *c) {
    size_t bytes = element_bytes(c->call->dtype);
    ncclDataType_t type = ncclInt8;
    ncclRedOp_t op = ncclSum;
    (void)find_type(c->call->dtype, &type);
    (void)find_op(c->call->op, &op);
    ncclResult_t result = c->library->GroupStart();
    for (size_t row = 0; is_noted(result) && row < rows_of(c->call); row++)
        result = c->library->ReduceScatter(own_part(c) + row * c->call->in_row * bytes,
                                           (char *)c->call->out + row * c->call->out_row * bytes,
                                           c->call->out_row, type, op, c->comm, c->native);
    return end_group(c, result);
}

static ncclResult_t all_gather(const nccl_call *c) {
    bool push = c->call->out == NULL;
    return c->library->AllGather(
        push ? c->call->in : own_part(c), push ? own_part(c) : (char *)c->call->out,
        c->call->count * element_bytes(c->call->dtype), ncclUint8, c->comm, c->native);
}

static ncclResult_t broadcast(const nccl_call *c) {
    return c->library->Broadcast(own_part(c), own_part(c),
                                 c->call->count * element_bytes(c->call->dtype), ncclUint8,
                                 (int)c->call->root, c->comm, c->native);
}

static ncclResult_t all_to_all(const nccl_call *c) {
    size_t bytes = element_bytes(c->call->dtype);
    const char *in = c->call->in;
    char *out = c->call->out;
    size_t in_at = 0, out_at = 0;
    ncclResult_t result = c->library->GroupStart();
    for (int32_t r = 0; is_noted(result) && r < c->peers->world_size; r++) {
        size_t sent = c->call->in_splits[r] * bytes, got = c->call->out_splits[r] * bytes;
        if (sent != 0)
            result = c->library->Send(in + in_at, sent, ncclUint8, (int)r, c->comm, c->native);
        if (got != 0 && is_noted(result))
            result = c->library->Recv(out + out_at, got, ncclUint8, (int)r, c->comm, c->native);
        in_at += sent;
        out_at += got;
    }
    return end_group(c, result);
}

/* An all-to-all may have nothing for some ranks, so all synchronize first. */
int nccl_call_steps(const symmem_collective *call) {
    return call->kind == SYMMEM_CALL_ALL_TO_ALL ? 2 : 1;
}

ncclResult_t nccl_call_step(const nccl_call *c, int step) {
    bool empty = c->call->count == 0 && c->call->kind != SYMMEM_CALL_ALL_TO_ALL;
    if (empty || (step == 0 && c->call->kind == SYMMEM_CALL_ALL_TO_ALL))
        return meet(c);
    switch (c->call->kind) {
    case SYMMEM_CALL_REDUCE_SCATTER:
        return reduce_scatter(c);
    case SYMMEM_CALL_ALL_GATHER:
        return all_gather(c);
    case SYMMEM_CALL_BROADCAST:
        return broadcast(c);
    case SYMMEM_CALL_ALL_TO_ALL:
        return all_to_all(c);
    default:
        return all_reduce(c);
    }
}
