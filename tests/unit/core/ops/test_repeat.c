/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions that are called again: repeat.c. What a repeated call hands to the backend, and what
 * is said of one that differs in one argument, is compared with the same call on a channel on which
 * nothing is kept. Runs with an odd argument have no failpoints, the others have.
 */
#include "link_ranks.h"

#include "rendezvous/link_poison.h"
#include "rendezvous/tensor.h"

enum { FRESH = 100, COUNT = 32, PLACES = 8, MOST_REFS = 3 };

/* --- how often tensors are read --------------------------------------------------------------- */

static atomic_int reads;

symmem_status __real_sm_tensor_read(symmem_context *context, const DLTensor *from,
                                    const char *operation, const char *what, sm_tensor *tensor_p);
symmem_status __wrap_sm_tensor_read(symmem_context *context, const DLTensor *from,
                                    const char *operation, const char *what, sm_tensor *tensor_p);
symmem_status __wrap_sm_tensor_read(symmem_context *context, const DLTensor *from,
                                    const char *operation, const char *what, sm_tensor *tensor_p) {
    atomic_fetch_add(&reads, 1);
    return __real_sm_tensor_read(context, from, operation, what, tensor_p);
}

/* --- what the backend is asked for ------------------------------------------------------------ */

static struct asked {
    int times;
    symmem_collective call;
    symmem_call_id id;
    uint32_t timeout_ms;
    void *stream;
    int32_t ref_count;
    void *refs[MOST_REFS];
    symmem_status answer;
} asked;

static symmem_status note(void *instance, const symmem_peers *peers, int32_t channel,
                          const symmem_collective *call, const symmem_exec *exec) {
    asked.times++;
    asked.call = *call;
    asked.id = exec->call;
    asked.timeout_ms = exec->timeout_ms;
    asked.stream = exec->stream;
    asked.ref_count = exec->ref_count;
    for (int32_t i = 0; i < exec->ref_count && i < MOST_REFS; i++)
        asked.refs[i] = exec->refs[i].object;
    if (asked.answer == SYMMEM_TIMEOUT) {
        const symmem_fault fault = {.operation = call->name, .status = asked.answer};
        peers->host->signal_failed(peers, &fault, NULL);
    }
    return asked.answer;
}

/* --- calls ------------------------------------------------------------------------------------ */

typedef enum form_kind { IN_PLACE, TWO_SHOT_OUT, ONE_SHOT, COPY, ALL, SCATTER, FORMS } form_kind;

typedef struct arguments {
    form_kind form;
    symmem_handle *handle;
    DLTensor input, out, buffer;
    int64_t shape[5], out_shape[5], buffer_shape[5], strides[5];
    symmem_reduce_op op;
    uint32_t timeout_ms;
    symmem_stream *stream;
    bool no_input, no_out, split;
} arguments;

static symmem_status call_on(const arguments *a, int32_t channel) {
    DLTensor input = a->input, out = a->out, buffer = a->buffer;
    const DLTensor *in = a->no_input ? NULL : &input, *to = a->no_out ? NULL : &out;
    input.shape = a->input.shape == NULL ? NULL : (int64_t *)a->shape;
    input.strides = a->input.strides == NULL ? NULL : (int64_t *)a->strides;
    out.shape = (int64_t *)a->out_shape;
    buffer.shape = (int64_t *)a->buffer_shape;
    switch (a->form) {
    case IN_PLACE:
        return symmem_two_shot_all_reduce(a->handle, in, a->op, channel, a->timeout_ms, a->stream);
    case TWO_SHOT_OUT:
        return symmem_two_shot_all_reduce_out(a->handle, in, a->op, to, channel, a->timeout_ms,
                                              a->stream);
    case ONE_SHOT:
        return symmem_one_shot_all_reduce_out(a->handle, in, a->op, to, channel, a->timeout_ms,
                                              a->stream);
    case COPY:
        return symmem_one_shot_all_reduce_copy_out(a->handle, &buffer, in, a->op, to, channel,
                                                   a->timeout_ms, a->stream);
    case ALL:
        return symmem_all_reduce(a->handle, in, a->op, to, channel, a->timeout_ms, a->stream);
    default:
        return symmem_reduce_scatter_out(a->handle, in, a->op, a->split, to, channel, a->timeout_ms,
                                         a->stream);
    }
}

static float private_numbers[4][COUNT];

static DLTensor words_at(void *data, int64_t *shape) {
    return (DLTensor){.data = data, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

static arguments arguments_of(form_kind form, symmem_handle *handle, void *ptr) {
    static int64_t any;
    arguments a = {.form = form, .handle = handle, .op = SYMMEM_SUM, .timeout_ms = 1000};
    for (int i = 0; i < 5; i++)
        a.shape[i] = a.out_shape[i] = a.buffer_shape[i] = a.strides[i] = 1;
    a.shape[0] = a.out_shape[0] = a.buffer_shape[0] = COUNT;
    a.input = words_at(form == COPY ? (void *)private_numbers[0] : ptr, &any);
    a.buffer = words_at(ptr, &any);
    a.out = words_at(private_numbers[1], &any);
    return a;
}

/* As what is not zero compares, that names no channel. */
static bool is_alike(const struct asked *a, const struct asked *b) {
    return memcmp(&a->call, &b->call, sizeof a->call) == 0 &&
           memcmp(&a->id, &b->id, sizeof a->id) == 0 && a->timeout_ms == b->timeout_ms &&
           a->stream == b->stream && a->ref_count == b->ref_count &&
           memcmp(a->refs, b->refs, sizeof a->refs) == 0;
}

static struct told {
    symmem_status status;
    struct asked asked;
    symmem_error_record record;
    int reads;
} told;

static struct told tell(const arguments *a, int32_t channel) {
    struct told result = {.status = SYMMEM_OK};
    asked = (struct asked){.times = 0};
    atomic_store(&reads, 0);
    symmem_clear_error();
    result.status = call_on(a, channel);
    result.asked = asked;
    result.reads = atomic_load(&reads);
    result.record = last_record();
    return result;
}

static int32_t next_fresh;

/* Compares the call on channel 0 with one on a channel without anything. */
static void compare(rank_env *env, const arguments *a) {
    told = tell(a, 0);
    const struct told fresh = tell(a, FRESH + next_fresh++);
    CHECK(env, told.status == fresh.status && told.asked.times == fresh.asked.times);
    CHECK(env, is_alike(&told.asked, &fresh.asked));
    CHECK(env, strcmp(told.record.message, fresh.record.message) == 0);
    CHECK(env, strcmp(told.record.operation, fresh.record.operation) == 0);
}

/* It is kept, or has been. */
static void expect_again(rank_env *env, const arguments *a) {
    CHECK_OK(env, call_on(a, 0));
    compare(env, a);
    CHECK(env, told.status == SYMMEM_OK && told.asked.times == 1 && told.reads == 0);
}

static symmem_handle *begin(rank_env *env, void **ptr_p) {
    next_fresh = 0;
    if (env->plan->argument % 2 == 1)
        env->context->point = NULL;
    symmem_handle *handle = env_kept_handle(env, ptr_p);
    env->context->check_collectives = true; /* for the ids */
    return handle;
}

#define PLAN .world = 1, .runs = 2, .entries = {.collective = note}

RANKS_TEST("the same call again", PLAN) {
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr);
    symmem_stream *stream = env_stream(env);
    for (form_kind form = 0; form < FORMS; form++) {
        arguments a = arguments_of(form, handle, ptr);
        CHECK(env, tell(&a, 0).reads > 0);
        expect_again(env, &a);
        a.timeout_ms = 77;
        a.stream = stream;
        expect_again(env, &a);
        CHECK(env, told.asked.timeout_ms == 77 && told.asked.stream == stream->native);
        a.timeout_ms = SYMMEM_TIMEOUT_DEFAULT;
        expect_again(env, &a);
        CHECK(env, told.asked.timeout_ms == env->context->default_timeout_ms);
        a.out.data = (char *)ptr + BYTES / 2; /* the link's own */
        expect_again(env, &a);
        CHECK(env, told.asked.ref_count == 1);
    }
}

/* --- one argument differs --------------------------------------------------------------------- */

static void differ(rank_env *env, const arguments *base, const arguments *other) {
    CHECK_OK(env, call_on(base, 0));
    compare(env, other);
    compare(env, other);
    expect_again(env, base);
}

#define DIFFER(change)                                                                             \
    do {                                                                                           \
        arguments other = base;                                                                    \
        change;                                                                                    \
        differ(env, &base, &other);                                                                \
    } while (0)

static void differ_in_tensors(rank_env *env, arguments base, char *ptr) {
    DIFFER(other.input.data = ptr + 256);
    DIFFER(other.input.data = private_numbers[2]);
    DIFFER(other.input.data = ptr + BYTES - 16);
    DIFFER(other.input.data = ptr + 2);
    DIFFER(other.input.byte_offset = 64);
    DIFFER(other.shape[0] = COUNT / 2);
    DIFFER(other.shape[0] = other.out_shape[0] = other.buffer_shape[0] = COUNT / 2);
    DIFFER(other.shape[0] = BYTES);
    DIFFER(other.shape[0] = -1);
    DIFFER(other.shape[0] = 0);
    DIFFER(other.input.ndim = 0);
    DIFFER(other.input.ndim = other.out.ndim = other.buffer.ndim = 2);
    DIFFER(other.input.ndim = other.out.ndim = other.buffer.ndim = 5);
    DIFFER(other.input.ndim = 65);
    DIFFER(other.input.shape = NULL);
    DIFFER(other.input.strides = other.strides);
    DIFFER(other.input.strides = other.strides; other.strides[0] = 2);
    DIFFER(other.input.dtype.bits = 64);
    DIFFER(other.input.dtype.code = other.out.dtype.code = other.buffer.dtype.code = kDLInt);
    DIFFER(other.input.dtype.lanes = 2);
    DIFFER(other.input.device.device_type = 77);
    DIFFER(other.input.device.device_id = 99);
    DIFFER(other.no_input = true);
    DIFFER(other.out.data = private_numbers[3]);
    DIFFER(other.out.data = ptr);
    DIFFER(other.out.data = NULL);
    DIFFER(other.out_shape[0] = 1);
    DIFFER(other.no_out = true);
    DIFFER(other.buffer.data = ptr + 512);
    DIFFER(other.buffer_shape[0] = 1);
    DIFFER(other.buffer.data = private_numbers[3]);
}

RANKS_TEST("tensors that differ", PLAN) {
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr);
    for (form_kind form = 0; form < FORMS; form++) {
        const arguments a = arguments_of(form, handle, ptr);
        differ_in_tensors(env, a, ptr);
        arguments strided = a;
        strided.input.strides = strided.strides;
        differ_in_tensors(env, strided, ptr);
    }
}

RANKS_TEST("other arguments", PLAN) {
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr), *further;
    symmem_stream *stream = env_stream(env);
    further = env_kept_rendezvous(env, (char *)ptr + 64);
    symmem_stream foreign = {.context = NULL, .device = stream->device};
    symmem_stream away = {.context = env->context, .device = stream->device + 1};
    for (form_kind form = 0; form < FORMS; form++) {
        arguments base = arguments_of(form, handle, ptr);
        base.shape[1] = base.out_shape[1] = 1;
        DIFFER(other.op = SYMMEM_AVG);
        DIFFER(other.op = SYMMEM_REDUCE_OP_COUNT);
        DIFFER(other.stream = stream);
        DIFFER(other.stream = &foreign);
        DIFFER(other.stream = &away);
        DIFFER(other.handle = further);
        DIFFER(other.handle = NULL);
        DIFFER(other.split = true);
        for (int next = 0; next < FORMS; next++) /* the same tensors for another operation */
            if (next != COPY && form != COPY)
                DIFFER(other.form = (form_kind)next);
        if (form == ALL) { /* by way of the block from the handle's place on */
            base.input.data = private_numbers[0];
            DIFFER(other.handle = further);
        }
    }
    CHECK_STATUS(env, call_on(&(arguments){.handle = handle}, -1), SYMMEM_OUT_OF_RANGE);
    CHECK_STATUS(env, call_on(&(arguments){.handle = handle}, 1 << 20), SYMMEM_OUT_OF_RANGE);
}

RANKS_TEST("more than are kept", PLAN) {
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 24; i++) {
            arguments a = arguments_of((form_kind)(i % FORMS), handle, (char *)ptr + 256 * i);
            compare(env, &a);
            CHECK(env, told.status == SYMMEM_OK && told.asked.times == 1);
        }
}

/* --- what changes between two calls ----------------------------------------------------------- */

RANKS_TEST("memory that goes", PLAN) {
    void *ptr = NULL, *other = NULL;
    symmem_handle *handle = begin(env, &ptr);
    arguments a = arguments_of(ONE_SHOT, handle, ptr);
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &other));
    a.out.data = other;
    expect_again(env, &a);
    CHECK(env, told.asked.ref_count == 2 && told.asked.refs[0] == handle->link);
    CHECK_OK(env, symmem_free(env->context, other));
    compare(env, &a);
    CHECK(env, told.reads == 0 && told.asked.ref_count == 1);
    a.out.data = (char *)ptr + BYTES - 16; /* the link's own, with an end behind it */
    compare(env, &a);
    CHECK(env, told.status == SYMMEM_OUT_OF_RANGE && told.asked.times == 0);
    /* Another one in its place, that is shorter. */
    other = env_memory(env);
    a.out.data = (char *)other + BYTES - COUNT * 4;
    expect_again(env, &a);
    CHECK(env, told.asked.ref_count == 2);
    sm_allocation *allocation = sm_allocation_find(env->context, other);
    CHECK(env, allocation != NULL && told.asked.refs[1] == allocation);
    allocation->bytes -= 4;
    compare(env, &a);
    CHECK(env, told.status == SYMMEM_OUT_OF_RANGE && told.asked.times == 0);
    allocation->bytes += 4;
    allocation->device++;
    compare(env, &a);
    CHECK(env, told.status == SYMMEM_INVALID_ARGUMENT && told.asked.times == 0);
    allocation->device--;
    sm_allocation_release(allocation);
}

RANKS_TEST("poison and its end", PLAN) {
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr);
    const arguments a = arguments_of(IN_PLACE, handle, ptr);
    expect_again(env, &a);
    asked.answer = SYMMEM_TIMEOUT;
    CHECK_STATUS(env, call_on(&a, 0), SYMMEM_TIMEOUT);
    compare(env, &a);
    CHECK(env, told.status == SYMMEM_POISONED && told.asked.times == 0);
    CHECK_OK(env, symmem_handle_reset(handle, 1000));
    compare(env, &a);
    CHECK(env, told.status == SYMMEM_OK && told.reads == 0);
}

RANKS_TEST("a table of its own", PLAN) {
    const symmem_all_reduce_entry two_shot = {-1, 0, UINT64_MAX, SYMMEM_ALL_REDUCE_TWO_SHOT};
    const symmem_all_reduce_entry one_shot = {-1, 0, UINT64_MAX, SYMMEM_ALL_REDUCE_ONE_SHOT};
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr);
    const arguments a = arguments_of(ALL, handle, ptr), named = arguments_of(ONE_SHOT, handle, ptr);
    expect_again(env, &a);
    CHECK_OK(env, symmem_set_all_reduce_table(env->context, &two_shot, 1));
    for (int i = 0; i < 2; i++) {
        compare(env, &a);
        CHECK(env, told.asked.call.kind == SYMMEM_CALL_TWO_SHOT_ALL_REDUCE);
    }
    CHECK_OK(env, symmem_set_all_reduce_table(env->context, &one_shot, 1));
    compare(env, &a);
    CHECK(env, told.asked.call.kind == SYMMEM_CALL_ONE_SHOT_ALL_REDUCE);
    expect_again(env, &named); /* its kind is not the table's */
    CHECK_OK(env, symmem_set_all_reduce_table(env->context, NULL, 0));
    expect_again(env, &a);
}

/* Failpoints see each call, and the channel's lock is not held meanwhile. */
RANKS_TEST("failpoints", .world = 1, .entries = {.collective = note}) {
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr);
    const arguments a = arguments_of(IN_PLACE, handle, ptr);
    expect_again(env, &a);
    env->fault_point = "collective.before";
    env->fault_status = SYMMEM_NO_SPACE;
    told = tell(&a, 0);
    CHECK(env, told.status == SYMMEM_NO_SPACE && told.reads == 0 && told.asked.times == 0);
    CHECK(env, strcmp(told.record.stage, "collective.before") == 0);
    const char *const seen[] = {"collective.begin", "collective.done"};
    for (int i = 0; i < 2; i++) {
        env->fault_point = seen[i];
        told = tell(&a, 0);
        CHECK(env, told.status == SYMMEM_OK && told.reads == 0 && env->fault_point == NULL);
    }
    CHECK(env, env->fault_hits == 3);
}

static symmem_status call_inside(void *arg, const char *point) {
    const arguments *a = arg;
    if (strcmp(point, "collective.before") != 0)
        return SYMMEM_OK;
    a->handle->link->context->point = NULL;
    return call_on(a, 0);
}

RANKS_TEST("a call in a failpoint", .world = 1, .entries = {.collective = note}) {
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr);
    arguments a = arguments_of(IN_PLACE, handle, ptr);
    expect_again(env, &a);
    asked.times = 0;
    env->context->point = call_inside;
    env->context->point_arg = &a;
    CHECK_OK(env, call_on(&a, 0));
    env->context->point_arg = env;
    CHECK(env, asked.times == 2);
}

RANKS_TEST("a channel that is taken", PLAN) {
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr);
    arguments a = arguments_of(IN_PLACE, handle, ptr);
    expect_again(env, &a);
    sm_timed_mutex *lock = &atomic_load(&handle->link->channels[0])->call_lock;
    CHECK(env, sm_timed_mutex_try_lock(lock));
    a.timeout_ms = 20;
    told = tell(&a, 0);
    CHECK(env, told.status == SYMMEM_TIMEOUT && strcmp(told.record.stage, "channel") == 0);
    sm_timed_mutex_unlock(lock);
    expect_again(env, &a);
}

RANKS_TEST("after the end", PLAN) {
    void *ptr = NULL;
    symmem_handle *handle = begin(env, &ptr);
    const arguments a = arguments_of(IN_PLACE, handle, ptr);
    expect_again(env, &a);
    atomic_store(&env->context->finalized, true);
    told = tell(&a, 0);
    CHECK(env, told.status == SYMMEM_NOT_INITIALIZED && told.asked.times == 0);
    atomic_store(&env->context->finalized, false);
    env->context->made_in++; /* as in a child of fork */
    told = tell(&a, 0);
    CHECK(env, told.status == SYMMEM_NOT_INITIALIZED && strcmp(told.record.stage, "fork") == 0);
    env->context->made_in--;
    expect_again(env, &a);
}
