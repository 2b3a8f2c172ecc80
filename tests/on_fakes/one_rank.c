/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA backend's streams on the fake driver. A process makes so many when it opens a device,
 * and uses those again, in later contexts too; but none whose work goes on, none of another
 * priority, and none of a device's context that was reset. Its kernels it loads once for each of
 * the device's contexts. And its calls that have no limit. With FAKE_CUDA_REFUSAL: which memory has
 * a fabric handle.
 */
#include <cuda.h>

#include "checks.h"

#define LIMIT_MS 200u /* of what is to be late */
#define LATE_MS 1000  /* SYMMEM_CUDA_LATE_MS */
#define KEPT 128
#define MANY (KEPT + 8)
#define LARGE ((size_t)18 << 20) /* no multiple of what has a fabric handle */

static int loads(void) {
    return fake_calls("cuModuleLoadData");
}

static CUresult (*retain)(CUcontext *context, CUdevice device);
static CUresult (*push)(CUcontext context);
static CUresult (*pop)(CUcontext *context);
static CUresult (*create)(CUstream *stream, unsigned int flags);
static atomic_bool held;
static atomic_int said;

/* What is held for this need not be so any longer. */
static void listen(void *arg, const char *line) {
    if (strstr(line, "SYMMEM_CUDA_LATE_MS") == NULL)
        return;
    atomic_fetch_add(&said, 1);
    atomic_store(&held, false);
}

static symmem_context *begin(void) {
    return begin_alone(LIMIT_MS, listen);
}

static symmem_stream *make(symmem_context *context) {
    return stream_on(context, 0);
}

static void wait_until_let_go(void *arg) {
    while (atomic_load(&held))
        sleep_ms(1);
}

/* How many the driver makes for so many at once. */
static int made_for(symmem_context *context, int count) {
    symmem_stream *streams[MANY];
    const int before = fake_streams_made(false);
    for (int i = 0; i < count; i++)
        streams[i] = make(context);
    const int after = fake_streams_made(false);
    for (int i = 0; i < count; i++)
        need(symmem_stream_synchronize(streams[i], PATIENCE_MS), "nothing is before it");
    for (int i = 0; i < count; i++)
        end_stream(streams[i]);
    return after - before;
}

/* A kernel, which goes with the context of the device that it was loaded into. */
static void run_kernel(symmem_context *context) {
    void *buffer = memory_of(context, 64);
    symmem_handle *handle = meet_on(context, buffer, group_of_all(context, "alone"));
    need(symmem_put_signal(handle, 0, 0, PATIENCE_MS, NULL), "a signal to itself");
    need(symmem_wait_signal(handle, 0, 0, PATIENCE_MS, NULL), "and its arrival");
    free_both(context, handle, buffer);
}

/* A stream that was destroyed ends behind its work, on a thread of its own. */
static int left_at_rest(int wanted) {
    for (int i = 0; i < 5000 && fake_streams_left() != wanted; i++)
        sleep_ms(1);
    return fake_streams_left();
}

static void one_context(void) {
    symmem_context *context = begin();
    end_stream(make(context));
    expect_count(fake_streams_made(false), 1, "made for one");
    expect_count(fake_streams_made(true), 1, "made of a higher priority");
    expect_count(made_for(context, 3), 2, "made for three");
    symmem_stream *all[4] = {make(context), make(context), make(context), NULL};
    fake_fail_calls("cuStreamCreate", 0, 1, CUDA_ERROR_OUT_OF_MEMORY);
    need_status(symmem_stream_create(context, 0, &all[3]), SYMMEM_NO_SPACE, "one that is refused");
    for (int i = 0; i < 3; i++)
        end_stream(all[i]);
    expect_count(made_for(context, KEPT), KEPT - 3, "made for many");
    expect_count(made_for(context, MANY), MANY - KEPT, "made for more");
    expect_count(made_for(context, MANY), MANY - KEPT, "made for more once more");
    expect_count(left_at_rest(KEPT + 1), KEPT + 1, "kept");
    symmem_context_free(context);
    expect_count(left_at_rest(KEPT + 1), KEPT + 1, "kept after the context");
}

/* Once no stream is busy any more, which other threads come to. */
static int made_at_rest(symmem_context *context, int count) {
    int more = made_for(context, count);
    for (int i = 0; i < 5000 && more != 0; i++) {
        sleep_ms(1);
        more = made_for(context, count);
    }
    return more;
}

static void work_goes_on(void) {
    symmem_context *context = begin();
    symmem_stream *busy = make(context);
    atomic_store(&held, true);
    need(symmem_stream_host_fn(busy, wait_until_let_go, NULL), "host function");
    need_status(symmem_stream_destroy(busy), SYMMEM_TIMEOUT, "the end of a busy one");
    expect_count(made_for(context, KEPT), 1, "made beside one that is busy");
    atomic_store(&held, false);
    expect_count(made_at_rest(context, KEPT), 0, "made when it is over");
    symmem_context_free(context);
}

static void contexts(void) {
    symmem_context *context = begin(), *other = begin();
    symmem_stream *one = make(context), *two = make(other);
    const int before = fake_streams_left(), urgent = fake_streams_made(true);
    expect_count(urgent, 2, "made of a higher priority for two contexts");
    expect_count(made_for(other, KEPT - 2), 0, "made by a context that comes later");
    expect_count(made_for(other, KEPT), 2, "made beside one of another context");
    end_stream(one);
    end_stream(two);
    symmem_context_free(other);
    symmem_context_free(context);
    for (int i = 0; i < 10; i++) {
        context = begin();
        (void)memory_of(context, 64);
        expect_count(made_for(context, KEPT), 1, "made beside a private one");
        run_kernel(context);
        symmem_context_free(context);
    }
    expect_count(loads(), 1, "loads of kernels by all of them");
    expect_count(fake_streams_made(true), urgent,
                 "made of a higher priority by contexts that come later");
    expect_count(left_at_rest(before), before, "left of it all");
}

static void other_device(void) {
    symmem_context *context = begin();
    symmem_stream *here = make(context);
    const int before = fake_streams_made(false), before_all = fake_streams_left();
    symmem_stream *there = stream_on(context, 1);
    expect_count(fake_streams_made(false) - before, 1, "made for another device");
    need(symmem_stream_synchronize(there, PATIENCE_MS), "a stream of another device");
    end_stream(here);
    end_stream(there);
    symmem_context_free(context);
    expect_count(fake_streams_left() - before_all, 2, "kept of another device");
    expect_count(loads(), 2, "loads of kernels for both");
}

static void users_own(void) {
    symmem_context *context = begin();
    symmem_stream *wrapper = NULL;
    CUcontext primary;
    CUstream native;
    end_stream(make(context));
    if (retain(&primary, 0) != CUDA_SUCCESS || push(primary) != CUDA_SUCCESS ||
        create(&native, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS || pop(&primary) != CUDA_SUCCESS)
        exit(1);
    const int before = fake_streams_left();
    need(symmem_stream_wrap(context, 0, native, &wrapper), "wrap");
    end_stream(wrapper);
    symmem_context_free(context);
    expect_count(left_at_rest(before), before, "left with the user's own");
}

/* What outlives a reset gives back what is gone. */
static void across_a_reset(void) {
    symmem_context *context = begin();
    symmem_stream *stream = make(context);
    fake_reset_context(0);
    symmem_context *other = begin();
    run_kernel(other);
    end_stream(make(other));
    end_stream(stream);
    symmem_context_free(context);
    expect_count(made_for(other, 1), 0, "made after a late end");
    symmem_context_free(other);
}

static void after_a_reset(void) {
    const int ordinary = fake_streams_made(false), urgent = fake_streams_made(true),
              loaded = loads();
    fake_reset_context(0);
    symmem_context *context = begin();
    expect_count(made_for(context, 2), 2, "made after a reset");
    expect_count(fake_streams_made(false) - ordinary, 2, "made after a reset in all");
    expect_count(fake_streams_made(true) - urgent, 1, "made of a higher priority after a reset");
    expect_count(made_for(context, 2), 0, "made after that");
    run_kernel(context);
    expect_count(loads() - loaded, 1, "loads of kernels after a reset");
    symmem_context_free(context);
}

/* Another thread lets the driver go on, once no test asks for it to be held any more, or when a
 * call would otherwise not return. */
static void *let_go(void *most_ms) {
    const double end_s = now_s() + (double)*(const long *)most_ms * 1e-3;
    while (atomic_load(&held) && now_s() < end_s)
        sleep_ms(1);
    atomic_store(&held, false); /* before what waited comes back */
    fake_hold_all(false);
    fake_hold_calls(false);
    return NULL;
}

/* Of what is held, by one of the two, the other thread. */
static pthread_t hold(void (*it)(bool held), const long *most_ms) {
    it(true);
    atomic_store(&held, true);
    return start(let_go, (void *)(uintptr_t)most_ms);
}

static void release(pthread_t other) {
    atomic_store(&held, false);
    pthread_join(other, NULL);
}

/* Within the device: one of ordinary memory waits in the driver. */
static void copy(symmem_context *context, char *buffer, const char *text, int wanted) {
    need(symmem_copy(context, buffer + 32, buffer, 32, NULL), "copy");
    expect_count(atomic_load(&said), wanted, text);
}

static void copy_late(symmem_context *context, char *buffer, const long *ms, const char *text) {
    const pthread_t other = hold(fake_hold_all, ms);
    copy(context, buffer, text, 1);
    release(other);
}

static void no_limit(void) {
    static const long until_said_ms = 10000, late_ms = LATE_MS + 300;
    symmem_context *context = begin();
    char *buffer = memory_of(context, 64);
    atomic_store(&said, 0);
    copy(context, buffer, "said of a copy that is not late", 0);
    copy_late(context, buffer, &until_said_ms, "said of a late one");
    copy_late(context, buffer, &late_ms, "said again");
    need(symmem_free(context, buffer), "free");
    symmem_context_free(context);
}

/* What is late of it goes when it is done. */
static int handles_at_rest(int wanted) {
    for (int i = 0; i < 5000 && fake_handles_held() > wanted; i++)
        sleep_ms(1);
    return fake_handles_held();
}

/* The device does not get on, by a kernel of the user's say: memory is not zeroed until the
 * context's limit. What nothing uses is free at once. */
static void alloc_late(void) {
    static const long ms = 5000;
    symmem_context *context = begin();
    void *first = memory_of(context, 64), *late = NULL;
    const int before = fake_handles_held();
    const pthread_t other = hold(fake_hold_all, &ms);
    need_status(symmem_alloc(context, LARGE, 0, NULL, &late), SYMMEM_TIMEOUT,
                "memory that the device does not zero");
    need(symmem_free(context, first), "free meanwhile");
    expect(atomic_load(&held), "they waited for the device");
    release(other);
    expect_count(handles_at_rest(before), before, "memory left of what was late");
    need(symmem_free(context, memory_of(context, LARGE)), "free");
    symmem_context_free(context);
}

typedef struct user {
    symmem_context *context;
    symmem_group *group;
    void *memory;
} user;

/* Whether it is in time does not matter. */
static void *free_it(void *arg) {
    const user *own = arg;
    (void)!symmem_free(own->context, own->memory);
    return NULL;
}

static void *meet_on_it(void *arg) {
    const user *own = arg;
    symmem_handle *handle = NULL;
    if (symmem_rendezvous(own->context, own->memory, own->group, LIMIT_MS, &handle) == SYMMEM_OK)
        symmem_handle_release(handle);
    return NULL;
}

/* The driver blocks a thread that frees memory or makes a rendezvous, for a free slot in a full
 * stream or for its first use of a pool. Other threads do not wait with it, nor does the watcher,
 * which may have to tell a kernel to end. */
static void driver_is_slow(void *(*call)(void *arg)) {
    static const long ms = 10000;
    symmem_context *context = begin();
    symmem_stream *full = make(context), *another;
    user own = {context, group_of_all(context, "alone"), memory_of(context, 64)};
    const pthread_t other = hold(fake_hold_calls, &ms), caller = start(call, &own);
    for (int i = 0; i < 5000 && fake_calls_kept() == 0; i++)
        sleep_ms(1);
    expect(fake_calls_kept() > 0, "the driver did not keep it");
    another = make(context);
    expect(fake_calls_kept() > 0, "a call waited for one that waits for the driver");
    release(other);
    pthread_join(caller, NULL);
    end_stream(another);
    end_stream(full);
    symmem_context_free(context);
}

static symmem_status refuse_product(void *arg, const symmem_matmul *product, void *native) {
    return SYMMEM_UNSUPPORTED;
}

/* There is no limit, and the chunks would come from the thread that is in the call. */
static void product_fails(void) {
    symmem_context *context = begin();
    symmem_stream *stream = make(context);
    int64_t shape[2] = {2, 2};
    char *buffer = memory_of(context, 64);
    const DLTensor a = tensor_at(buffer, kDLFloat, 2, shape),
                   b = tensor_at(buffer + 16, kDLFloat, 2, shape),
                   out = tensor_at(buffer + 32, kDLFloat, 2, shape),
                   words = tensor_at(buffer + 48, kDLUInt, 1, shape);
    need(symmem_set_matmul(context, refuse_product, NULL), "a product of one's own");
    alarm(10); /* or it would not end */
    need_status(symmem_async_input_mm(context, &a, &b, &words, 0, &out, 0, NULL),
                SYMMEM_UNSUPPORTED, "one that fails");
    need_status(symmem_async_input_mm(context, &a, &b, &words, 0, &out, 0, stream),
                SYMMEM_UNSUPPORTED, "one that fails on a stream");
    alarm(0);
    end_stream(stream);
    need(symmem_free(context, buffer), "free");
    symmem_context_free(context);
}

/* The driver would say something else, and keep all others waiting for it. */
static void more_than_there_is(void) {
    symmem_context *context = begin();
    void *none = NULL;
    need_status(symmem_alloc(context, (size_t)1 << 46, 0, NULL, &none), SYMMEM_NO_SPACE, "64 TiB");
    symmem_context_free(context);
}

/* The next call finds it. */
static void a_kernel_is_missing(void) {
    void *buffer = NULL;
    symmem_context *context = begin();
    fake_fail_calls("cuModuleGetFunction", 0, 1, CUDA_ERROR_NOT_FOUND);
    need_status(symmem_alloc(context, 64, 0, NULL, &buffer), SYMMEM_BACKEND,
                "a device without a kernel");
    run_kernel(context);
    symmem_context_free(context);
}

static void missing_after_a_reset(void) {
    const int loaded = loads();
    fake_reset_context(0);
    a_kernel_is_missing();
    expect_count(loads() - loaded, 1, "loads of kernels where one was missing");
}

static void nothing_is_kept(void) {
    symmem_context *context = begin();
    const int before = fake_streams_made(false);
    end_stream(make(context));
    end_stream(make(context));
    expect_count(fake_streams_made(false) - before, 2, "made where contexts cannot be told apart");
    symmem_context_free(context);
    expect_count(left_at_rest(0), 0, "left then");
    context = begin();
    run_kernel(context);
    symmem_context_free(context);
    expect_count(loads(), 2, "loads of kernels there");
    a_kernel_is_missing();
    expect_count(loads(), 4, "loads of kernels after one was missing");
    expect_count((int)fake_modules_kept(), 4, "unloaded");
}

/* What has none goes without; what comes next has one, not in the granule of the first. */
static void a_handle_is_refused_once(size_t bytes) {
    symmem_context *context = begin();
    (void)memory_of(context, bytes);
    expect_count(fake_shared_made(), 0, "made for a fabric that refuses");
    (void)memory_of(context, bytes);
    expect_count(fake_shared_made(), 1, "made for a fabric after that");
    symmem_context_free(context);
}

static void find_entry(const char *name, void *function, size_t bytes) {
    CUdriverProcAddressQueryResult found;
    void *symbol = NULL;
    if (cuGetProcAddress(name, &symbol, 12000, 0, &found) != CUDA_SUCCESS)
        exit(1);
    memcpy(function, &symbol, bytes);
}

int main(void) {
    find_entry("cuDevicePrimaryCtxRetain", &retain, sizeof retain);
    find_entry("cuCtxPushCurrent", &push, sizeof push);
    find_entry("cuCtxPopCurrent", &pop, sizeof pop);
    find_entry("cuStreamCreate", &create, sizeof create);
    const char *refusal = getenv("FAKE_CUDA_REFUSAL");
    if (refusal != NULL) {
        a_handle_is_refused_once(strcmp(refusal, "passing") == 0 ? 64 : LARGE);
    } else if (getenv("FAKE_CUDA_NO_ID") != NULL) {
        nothing_is_kept();
    } else {
        one_context();
        work_goes_on();
        contexts();
        other_device();
        users_own();
        after_a_reset();
        across_a_reset();
        missing_after_a_reset();
        no_limit();
        alloc_late();
        driver_is_slow(free_it);
        driver_is_slow(meet_on_it);
        more_than_there_is();
        product_fails();
    }
    return checks_end();
}
