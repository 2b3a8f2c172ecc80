/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA backend's streams on the fake driver. A process makes so many when it opens a device,
 * and uses those again, in later contexts too; but none whose work goes on, none of another
 * priority, and none of a device's context that was reset.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/symmem.h>
#include <time.h>

#define LIMIT_MS 200u
#define KEPT 32
#define KEPT_URGENT 8
#define MANY (KEPT + 8)

static int (*made)(bool urgent);
static void (*reset_context)(int device);
static void (*hold_all)(bool held);
static atomic_bool held;
static int bad, said;

static void expect(int got, int wanted, const char *text) {
    if (got == wanted)
        return;
    printf("BAD: %s: %d and not %d\n", text, got, wanted);
    bad++;
}

static void need(symmem_status status, symmem_status wanted, const char *text) {
    symmem_error_record record;
    symmem_last_error(&record);
    if (status == wanted)
        return;
    printf("BAD: %s: %s: %s\n", text, symmem_status_name(status), record.message);
    exit(1);
}

static void listen(void *arg, const char *line) {
    (void)arg;
    said += strstr(line, "SYMMEM_CUDA_LATE_MS") != NULL;
}

static symmem_context *begin(void) {
    symmem_context_options options;
    symmem_context *context = NULL;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.default_timeout_ms = LIMIT_MS;
    options.log = listen;
    need(symmem_init(&options, &context), SYMMEM_OK, "init");
    return context;
}

static symmem_stream *make(symmem_context *context) {
    symmem_stream *stream = NULL;
    need(symmem_stream_create(context, 0, &stream), SYMMEM_OK, "stream");
    return stream;
}

static void end(symmem_stream *stream) {
    need(symmem_stream_destroy(stream), SYMMEM_OK, "its end");
}

static void wait_until_let_go(void *arg) {
    (void)arg;
    while (atomic_load(&held))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* How many the driver makes for so many at once. */
static int made_for(symmem_context *context, int count) {
    symmem_stream *streams[MANY];
    const int before = made(false);
    for (int i = 0; i < count; i++)
        streams[i] = make(context);
    const int after = made(false);
    for (int i = 0; i < count; i++)
        need(symmem_stream_synchronize(streams[i], LIMIT_MS), SYMMEM_OK, "nothing is before it");
    for (int i = 0; i < count; i++)
        end(streams[i]);
    return after - before;
}

static void one_context(void) {
    symmem_context *context = begin();
    end(make(context));
    expect(made(false), KEPT, "made when the device was opened");
    expect(made(true), KEPT_URGENT, "made of a higher priority then");
    expect(made_for(context, KEPT), 0, "made for as many");
    expect(made_for(context, MANY), MANY - KEPT, "made for more");
    expect(made_for(context, MANY), MANY - KEPT, "made for more once more");
    symmem_context_free(context);
}

static void work_goes_on(void) {
    symmem_context *context = begin();
    symmem_stream *busy = make(context);
    atomic_store(&held, true);
    need(symmem_stream_host_fn(busy, wait_until_let_go, NULL), SYMMEM_OK, "host function");
    need(symmem_stream_destroy(busy), SYMMEM_TIMEOUT, "the end of a busy one");
    expect(made_for(context, KEPT), 1, "made beside one that is busy");
    atomic_store(&held, false);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    expect(made_for(context, KEPT), 0, "made when it is over");
    symmem_context_free(context);
}

static void contexts(void) {
    symmem_context *context = begin(), *other = begin();
    const int urgent = made(true);
    symmem_stream *one = make(context), *two = make(other);
    expect(made_for(other, KEPT - 2), 0, "made by a context that comes later");
    expect(made_for(other, KEPT), 2, "made beside one of another context");
    expect(made(true) - urgent, 0, "made of a higher priority by later contexts");
    end(one);
    end(two);
    symmem_context_free(other);
    symmem_context_free(context);
}

static void after_a_reset(void) {
    const int ordinary = made(false), urgent = made(true);
    reset_context(0);
    symmem_context *context = begin();
    expect(made_for(context, 1), KEPT, "made after a reset");
    expect(made(false) - ordinary, KEPT, "made after a reset in all");
    expect(made(true) - urgent, KEPT_URGENT, "made of a higher priority after a reset");
    expect(made_for(context, KEPT), 0, "made after that");
    symmem_context_free(context);
}

static void *let_go(void *arg) {
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    hold_all(false);
    return NULL;
}

/* Within the device: one of ordinary memory waits in the driver. */
static void copy(symmem_context *context, char *buffer, const char *text, int wanted) {
    need(symmem_copy(context, buffer + 32, buffer, 32, NULL), SYMMEM_OK, "copy");
    expect(said, wanted, text);
}

static void copy_late(symmem_context *context, char *buffer, const char *text, int wanted) {
    pthread_t other;
    hold_all(true);
    if (pthread_create(&other, NULL, let_go, NULL) != 0)
        exit(1);
    copy(context, buffer, text, wanted);
    pthread_join(other, NULL);
}

static void no_limit(void) {
    symmem_context *context = begin();
    char *buffer = NULL;
    need(symmem_alloc(context, 64, 0, NULL, (void **)&buffer), SYMMEM_OK, "alloc");
    said = 0;
    copy(context, buffer, "said of a copy that is not late", 0);
    copy_late(context, buffer, "said of a late one", 1);
    copy_late(context, buffer, "said again", 1);
    need(symmem_free(context, buffer), SYMMEM_OK, "free");
    symmem_context_free(context);
}

static void *find(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = driver != NULL ? dlsym(driver, name) : NULL;
    if (symbol == NULL)
        exit(1);
    return symbol;
}

int main(void) {
    void *symbol = find("fake_streams_made");
    memcpy(&made, &symbol, sizeof symbol);
    symbol = find("fake_reset_context");
    memcpy(&reset_context, &symbol, sizeof symbol);
    symbol = find("fake_hold_all");
    memcpy(&hold_all, &symbol, sizeof symbol);
    one_context();
    work_goes_on();
    contexts();
    after_a_reset();
    no_limit();
    printf("%d bad\n", bad);
    return bad == 0 ? 0 : 1;
}
