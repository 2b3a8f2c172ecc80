/* SPDX-License-Identifier: BSD-3-Clause */
/* symmem_all_reduce: which of the forms it takes. */
#include <stdlib.h>
#include <string.h>

#include "ops/reduce.h"
#include "ops/repeat.h"
#include "ops/all_reduce.h"
#include "backend/query.h"

struct sm_all_reduce_table {
    uint64_t hash; /* of the entries; 0: the built-in ones */
    int32_t count;
    symmem_all_reduce_entry entries[];
};

/* --- the table ---------------------------------------------------------------------- */

/* As symmem-bench --tune measured on the CPU emulation with float32, 256 B to 32 MiB, 2 to 8 ranks
 * on two processors, in several runs. */
static const symmem_all_reduce_entry built_in[] = {
    /* Two ranks read as much either way. With three or four ranks one-shot has fewer barriers and
     * one pass, which outweighs the additional reading (four ranks: up to 4 MiB; at 16 MiB two-shot
     * took 0.6 times as long). */
    {1, 3, UINT64_MAX, SYMMEM_ALL_REDUCE_ONE_SHOT},
    {1, 4, 4u << 20, SYMMEM_ALL_REDUCE_ONE_SHOT},
    /* Between private memory two-shot took 0.65 to 0.95 times as long from 256 KiB on; at 64 KiB
     * 0.9 or 1.1 times, as the machine's processors lay. */
    {0, 2, 64u << 10, SYMMEM_ALL_REDUCE_ONE_SHOT},
    {0, 2, UINT64_MAX, SYMMEM_ALL_REDUCE_TWO_SHOT},
    /* More ranks than processors: 16 KiB to 256 KiB, from run to run. */
    {-1, 0, 64u << 10, SYMMEM_ALL_REDUCE_ONE_SHOT},
};

/* Whether the entry holds for a call. */
static bool fits(const symmem_all_reduce_entry *entry, bool symmetric, int32_t world_size,
                 uint64_t bytes) {
    return (entry->symmetric < 0 || (entry->symmetric != 0) == symmetric) &&
           (entry->max_world_size == 0 || world_size <= entry->max_world_size) &&
           bytes <= entry->max_bytes;
}

symmem_all_reduce_algorithm sm_all_reduce_look_up(const symmem_all_reduce_entry *entries,
                                                  int32_t count, bool symmetric, int32_t world_size,
                                                  uint64_t bytes) {
    for (int32_t i = 0; i < count; i++)
        if (fits(&entries[i], symmetric, world_size, bytes))
            return entries[i].algorithm;
    return SYMMEM_ALL_REDUCE_TWO_SHOT;
}

static symmem_all_reduce_algorithm built_in_choice(bool symmetric, int32_t world_size,
                                                   uint64_t bytes) {
    return sm_all_reduce_look_up(built_in, (int32_t)(sizeof built_in / sizeof built_in[0]),
                                 symmetric, world_size, bytes);
}

/* What the context's table says, and the hash that ranks compare. */
static symmem_all_reduce_algorithm choose(sm_collective_op *op, bool symmetric, uint64_t bytes) {
    symmem_context *context = op->link->context;
    int32_t world_size = op->link->group->world_size;
    /* relaxed: where there is none, there is nothing to look behind */
    if (atomic_load_explicit(&context->all_reduce_table, memory_order_relaxed) == NULL)
        return built_in_choice(symmetric, world_size, bytes);
    symmem_all_reduce_algorithm algorithm;
    pthread_mutex_lock(&context->lock);
    const sm_all_reduce_table *table =
        atomic_load_explicit(&context->all_reduce_table, memory_order_relaxed);
    if (table != NULL) {
        op->detail = table->hash;
        algorithm =
            sm_all_reduce_look_up(table->entries, table->count, symmetric, world_size, bytes);
    } else {
        algorithm = built_in_choice(symmetric, world_size, bytes);
    }
    pthread_mutex_unlock(&context->lock);
    return algorithm;
}

static symmem_status check_entries(symmem_context *context, const char *name,
                                   const symmem_all_reduce_entry *entries, int32_t count) {
    if (count < 0 || count > SYMMEM_ALL_REDUCE_MAX_ENTRIES) {
        (void)sm_context_fail(context, SYMMEM_OUT_OF_RANGE, name, "", "%d entries", (int)count);
        return sm_error_sizes(SYMMEM_ALL_REDUCE_MAX_ENTRIES, (uint64_t)(int64_t)count);
    }
    if (entries == NULL && count > 0)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, name, "", "entries is NULL");
    for (int32_t i = 0; i < count; i++) {
        const symmem_all_reduce_entry *entry = &entries[i];
        if (entry->symmetric < -1 || entry->symmetric > 1 || entry->max_world_size < 0 ||
            (unsigned)entry->algorithm >= SYMMEM_ALL_REDUCE_ALGORITHM_COUNT)
            return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, name, "",
                                   "entry %d is malformed", (int)i);
    }
    return SYMMEM_OK;
}

static uint64_t hash_of(const symmem_all_reduce_entry *entries, int32_t count) {
    uint64_t hash = sm_collective_mix(1, (uint64_t)count);
    for (int32_t i = 0; i < count; i++) {
        hash = sm_collective_mix(hash, (uint64_t)(int64_t)entries[i].symmetric);
        hash = sm_collective_mix(hash, (uint64_t)entries[i].max_world_size);
        hash = sm_collective_mix(hash, entries[i].max_bytes);
        hash = sm_collective_mix(hash, entries[i].algorithm);
    }
    return hash;
}

symmem_status sm_all_reduce_set(symmem_context *context, const char *name,
                                const symmem_all_reduce_entry *entries, int32_t count) {
    sm_all_reduce_table *table = NULL;
    if (entries != NULL) {
        table = malloc(sizeof *table + (size_t)count * sizeof *entries);
        if (table == NULL)
            return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, name, "", "no memory");
        table->hash = hash_of(entries, count);
        table->count = count;
        if (count > 0)
            memcpy(table->entries, entries, (size_t)count * sizeof *entries);
    }
    pthread_mutex_lock(&context->lock);
    /* relaxed: see choose */
    sm_all_reduce_table *old =
        atomic_exchange_explicit(&context->all_reduce_table, table, memory_order_relaxed);
    pthread_mutex_unlock(&context->lock);
    free(old);
    return SYMMEM_OK;
}

symmem_status symmem_set_all_reduce_table(symmem_context *context,
                                          const symmem_all_reduce_entry *entries, int32_t count) {
    SM_PUBLIC_CALL;
    static const char name[] = "set_all_reduce_table";
    symmem_status status = sm_context_check(context, name);
    if (status == SYMMEM_OK)
        status = check_entries(context, name, entries, count);
    return status == SYMMEM_OK ? sm_all_reduce_set(context, name, entries, count) : status;
}

/* --- the forms ---------------------------------------------------------------------- */

/* The call id is never that of the form called by its own name, even where they do the same:
 * another table, or another size, would part them. */
static void take_form(sm_collective_op *op, symmem_all_reduce_algorithm algorithm,
                      sm_reduction_form form) {
    op->call.kind = algorithm == SYMMEM_ALL_REDUCE_ONE_SHOT ? SYMMEM_CALL_ONE_SHOT_ALL_REDUCE
                                                            : SYMMEM_CALL_TWO_SHOT_ALL_REDUCE;
    op->detail = sm_collective_mix(op->detail, (uint64_t)form + 1);
}

/* The input is in the handle's block. */
static symmem_status from_symmetric(sm_reduction_call *call) {
    sm_collective_op *op = &call->op;
    bool in_place = call->out.data == call->input.data && call->input.count > 0;
    symmem_status status = sm_collective_symmetric(op, &call->input, &op->call.offset);
    if (status == SYMMEM_OK && !in_place)
        status = sm_collective_disjoint(op, &call->out, op->call.offset, call->input.bytes);
    if (status != SYMMEM_OK)
        return status;
    symmem_all_reduce_algorithm algorithm = choose(op, true, call->input.bytes);
    if (in_place) {
        take_form(op, SYMMEM_ALL_REDUCE_TWO_SHOT, SM_FORM_IN_PLACE);
        return sm_collective_run(op, NULL, NULL);
    }
    take_form(op, algorithm, SM_FORM_PLAIN);
    op->call.out = call->out.data;
    return sm_collective_run(op, NULL, &call->out);
}

/* Only the output is symmetric, so the operation's barriers and exchanges use its block. */
static symmem_status to_symmetric(sm_reduction_call *call) {
    sm_collective_op *op = &call->op;
    symmem_status status = sm_collective_symmetric(op, &call->out, &op->call.offset);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(op, &call->input, op->call.offset, call->out.bytes);
    if (status != SYMMEM_OK)
        return status;
    (void)choose(op, false, call->input.bytes);
    take_form(op, SYMMEM_ALL_REDUCE_TWO_SHOT, SM_FORM_COPY_IN_PLACE);
    op->call.in = call->input.data;
    return sm_collective_run(op, &call->input, NULL);
}

/* The handle's block from the handle's place on, for use as the way between private tensors. */
static symmem_status find_way(sm_reduction_call *call, size_t *bytes_p) {
    sm_collective_op *op = &call->op;
    const sm_link *link = op->link;
    size_t element = symmem_dtype_size(call->input.dtype);
    size_t end = link->block_offset + link->block_bytes;
    size_t offset = (op->handle->offset + element - 1) / element * element;
    size_t room = offset < end ? (end - offset) / element : 0;
    size_t needed = call->input.count < 3 ? call->input.count : 3;
    op->call.offset = offset;
    op->call.in_row = room;
    *bytes_p = room * element;
    if (room >= needed)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, op->name, "",
                  "the block has room for %zu elements behind the handle's place", room);
    return sm_error_sizes(needed, room);
}

static symmem_status between_private(sm_reduction_call *call) {
    sm_collective_op *op = &call->op;
    size_t way_bytes;
    symmem_status status = find_way(call, &way_bytes);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(op, &call->input, op->call.offset, way_bytes);
    if (status == SYMMEM_OK)
        status = sm_collective_disjoint(op, &call->out, op->call.offset, way_bytes);
    if (status == SYMMEM_OK)
        status = sm_reduction_distinct(op, &call->input, &call->out, true);
    if (status != SYMMEM_OK)
        return status;
    take_form(op, choose(op, false, call->input.bytes), SM_FORM_COPY);
    op->call.in = call->input.data;
    op->call.out = call->out.data;
    return sm_collective_run(op, &call->input, &call->out);
}

symmem_status symmem_all_reduce(symmem_handle *handle, const DLTensor *input, symmem_reduce_op op,
                                const DLTensor *output, int32_t channel, uint32_t timeout_ms,
                                symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_reduction_call call;
    symmem_status status;
    sm_reduction reduction = sm_reduction_of("all_reduce", SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, handle,
                                             input, op, channel, timeout_ms, stream);
    sm_reduction_to(&reduction, output);
    reduction.by_table = true;
    if (sm_repeat_run(&reduction, &status))
        return status;
    status = sm_reduction_begin(&reduction, &call);
    if (status == SYMMEM_OK)
        status = sm_tensor_alike(&call.input, &call.out, reduction.name);
    if (status != SYMMEM_OK)
        return status;
    if (sm_collective_inside(&call.op, &call.input))
        return from_symmetric(&call);
    return sm_collective_inside(&call.op, &call.out) ? to_symmetric(&call) : between_private(&call);
}
