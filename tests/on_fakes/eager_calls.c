/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank counts the driver calls of an all-reduce and of a barrier on a stream, once the channel
 * and the stream have been used. Each call has an upper bound, so that the host's time does not
 * grow unseen. The watcher may add calls, so the least of several counts is taken. What fails is
 * known to the next call all the same. A thread that works in the device's context enters none.
 */
#include "checks.h"

#define TIMES 40
#define COUNT 64

typedef struct asked {
    const char *name;
    int most;
    int least; /* seen */
} asked;

static struct own {
    symmem_context *context;
    symmem_handle *handle;
    symmem_stream *stream;
    DLTensor words;
    int64_t count;
} own;

static void reduce(void) {
    need(symmem_two_shot_all_reduce(own.handle, &own.words, SYMMEM_SUM, 0, PATIENCE_MS, own.stream),
         "all-reduce");
}

static void meet(void) {
    need(symmem_barrier(own.handle, 1, PATIENCE_MS, own.stream), "barrier");
}

/* Nothing of it is over meanwhile. */
static void count(void (*call)(void), asked *each) {
    call();
    fake_hold_all(true);
    call();
    for (asked *one = each; one->name != NULL; one++)
        one->least = 1000;
    for (int i = 0; i < TIMES; i++) {
        int before[16];
        for (int k = 0; each[k].name != NULL; k++)
            before[k] = fake_calls(each[k].name);
        call();
        for (int k = 0; each[k].name != NULL; k++) {
            const int calls = fake_calls(each[k].name) - before[k];
            each[k].least = calls < each[k].least ? calls : each[k].least;
        }
    }
    fake_hold_all(false);
    need(symmem_stream_synchronize(own.stream, PATIENCE_MS), "the stream");
}

/* is_there: the thread works in the device's context already. */
static void expect_calls(const char *what, void (*call)(void), bool is_there) {
    const int once = is_there ? 0 : 1;
    asked each[] = {
        {"cuCtxGetCurrent", 1, 0},        {"cuCtxPushCurrent", once, 0},
        {"cuCtxPopCurrent", once, 0},     {"cuThreadExchangeStreamCaptureMode", 2 * once, 0},
        {"cuStreamGetCaptureInfo", 1, 0}, {"cuEventQuery", 0, 0},
        {"cuEventCreate", 0, 0},          {"cuEventRecord", 1, 0},
        {"cuLaunchKernel", 1, 0},         {NULL, 0, 0}};
    count(call, each); /* the events that are needed at once are made */
    count(call, each);
    for (const asked *one = each; one->name != NULL; one++) {
        printf("%s: %d x %s\n", what, one->least, one->name);
        expect(one->least <= one->most, "%s: %d x %s and not %d", what, one->least, one->name,
               one->most);
    }
    expect(each[1].least == once, "%s: in the wrong context", what);
}

/* Before the watcher looks, which it may do in between a few times at most. */
static void expect_told_at_once(void) {
    int told = 0;
    for (int i = 0; i < 5; i++) {
        need(symmem_wait_signal(own.handle, 0, 2, 20, own.stream), "a wait");
        while (!fake_is_idle())
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        told += symmem_handle_status(own.handle, NULL) == SYMMEM_TIMEOUT;
        need_status(symmem_stream_synchronize(own.stream, PATIENCE_MS), SYMMEM_TIMEOUT, "the wait");
        need(symmem_handle_reset(own.handle, PATIENCE_MS), "the reset");
    }
    expect_count(told, 5, "failures that the next call knows");
}

/* By the watcher, which slept while there was nothing. */
static void expect_looked_after(void) {
    need(symmem_stream_synchronize(own.stream, PATIENCE_MS), "the stream");
    const int before = fake_calls("cuEventQuery");
    reduce();
    for (uint32_t ms = 0; ms < PATIENCE_MS && fake_calls("cuEventQuery") == before; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    expect(fake_calls("cuEventQuery") > before, "nobody looks after work in flight");
}

/* The entry that it took serves the next one. */
static void expect_failed_launch(void) {
    reduce();
    fake_fail_calls("cuLaunchKernel", 0, 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    need_status(
        symmem_two_shot_all_reduce(own.handle, &own.words, SYMMEM_SUM, 0, PATIENCE_MS, own.stream),
        SYMMEM_BACKEND, "a launch that is refused");
    fake_fail_calls(NULL, 0, 0, CUDA_SUCCESS);
    reduce();
    need(symmem_stream_synchronize(own.stream, PATIENCE_MS), "the stream");
}

/* --- as a program does that uses the device itself ------------------------------------- */

static void find_entry(const char *name, void *entry_p, size_t bytes) {
    void *symbol = NULL;
    CUdriverProcAddressQueryResult found;
    if (cuGetProcAddress(name, &symbol, 12000, 0, &found) != CUDA_SUCCESS)
        symbol = NULL;
    expect(symbol != NULL, "the driver has no %s", name);
    memcpy(entry_p, &symbol, bytes);
}

static CUcontext primary;

static void work_in_context(CUdevice device) {
    CUresult (*retain)(CUcontext * context, CUdevice device);
    CUresult (*push)(CUcontext context);
    find_entry("cuDevicePrimaryCtxRetain", &retain, sizeof retain);
    find_entry("cuCtxPushCurrent", &push, sizeof push);
    expect(retain(&primary, device) == CUDA_SUCCESS && push(primary) == CUDA_SUCCESS,
           "the context");
}

/* It is the program's as before. */
static void leave_context(CUdevice device) {
    CUcontext popped = NULL;
    CUresult (*release)(CUdevice device);
    CUresult (*pop)(CUcontext * context);
    find_entry("cuDevicePrimaryCtxRelease", &release, sizeof release);
    find_entry("cuCtxPopCurrent", &pop, sizeof pop);
    expect(pop(&popped) == CUDA_SUCCESS && popped == primary, "another context");
    expect(release(device) == CUDA_SUCCESS, "the release");
}

int main(void) {
    own.context = begin_alone(PATIENCE_MS, NULL);
    char *memory = memory_of(own.context, COUNT * 4);
    own.handle = meet_on(own.context, memory, group_of_all(own.context, "alone"));
    own.stream = stream_on(own.context, 0);
    own.count = COUNT;
    own.words = tensor_at(memory, kDLFloat, 1, &own.count);
    expect_calls("all-reduce", reduce, false);
    expect_calls("barrier", meet, false);
    work_in_context(1);
    expect_calls("all-reduce in another context", reduce, false);
    leave_context(1);
    work_in_context(0);
    expect_calls("all-reduce in the context", reduce, true);
    expect_calls("barrier in the context", meet, true);
    expect_told_at_once();
    expect_looked_after();
    expect_failed_launch();
    leave_context(0);
    free_both(own.context, own.handle, memory);
    end_stream(own.stream);
    need(symmem_finalize(own.context), "finalize");
    symmem_context_free(own.context);
    expect_count(fake_calls("cuEventDestroy"), fake_calls("cuEventCreate"), "events given back");
    return checks_end();
}
