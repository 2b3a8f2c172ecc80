/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * symmem-cuda-caller [refused | exit | lost | current]: a program that brings its own streams,
 * products and graphs, as PyTorch does. The suite makes its streams by the library, and so cannot
 * know. Each rank is a process with RANK, WORLD_SIZE and SYMMEM_STORE set, as symmem-run
 * starts them; ranks beyond the number of devices share them, and other jobs must not, for it looks
 * at what is free there. refused: on a driver that has no user objects to give, as the fake one may
 * be. exit: a process that ends with a graph alive. lost: a rank that ends, as in the whole, too.
 * current: only what the thread has current. Exit status: 0 good, 1 bad, 77 nothing to check here.
 */
#include "caller.h"

#include <stdarg.h>
#include <time.h>
#include <dlfcn.h>

void expect(struct caller *c, const char *what, bool good, const char *format, ...) {
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("rank %d: %s: %s: %s\n", c->rank, good ? "good" : "BAD", what, text);
    fflush(stdout);
    c->bad += !good;
}

void expect_status(struct caller *c, const char *what, symmem_status got, symmem_status wanted) {
    symmem_error_record record;
    symmem_last_error(&record);
    expect(c, what, got == wanted, "%s%s%s", symmem_status_name(got), got == wanted ? "" : ": ",
           got == wanted ? "" : record.message);
}

void need(struct caller *c, const char *what, symmem_status status) {
    if (status == SYMMEM_OK)
        return;
    expect_status(c, what, status, SYMMEM_OK);
    exit(1);
}

void need_driver(struct caller *c, const char *what, CUresult result) {
    if (result == CUDA_SUCCESS)
        return;
    expect(c, what, false, "CUresult %d", (int)result);
    exit(1);
}

void host_barrier(struct caller *c) {
    need(c, "the hosts synchronize", symmem_group_barrier(c->group, LIMIT_MS));
}

double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void sleep_ms(int ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

bool is_idle_in(struct caller *c, int ms) {
    const double end_s = now_s() + ms * 1e-3;
    CUresult result;
    while ((result = c->driver.StreamQuery(c->native)) == CUDA_ERROR_NOT_READY && now_s() < end_s)
        sleep_ms(1);
    return result == CUDA_SUCCESS;
}

const DLTensor *vector(struct vector *vector, float *data, int64_t count) {
    memset(vector, 0, sizeof *vector);
    vector->shape[0] = count;
    vector->dl.data = data;
    vector->dl.ndim = 1;
    vector->dl.dtype = (DLDataType){kDLFloat, 32, 1};
    vector->dl.shape = vector->shape;
    return &vector->dl;
}

/* --- beginning and end ------------------------------------------------------------------------ */

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

static void open_device(struct caller *c) {
    CUcontext primary;
    void *host = NULL;
    need_driver(c, "context", c->driver.DevicePrimaryCtxRetain(&primary, c->device));
    need_driver(c, "context", c->driver.CtxPushCurrent(primary));
    need_driver(c, "stream", c->driver.StreamCreate(&c->native, CU_STREAM_NON_BLOCKING));
    need_driver(c, "pinned memory",
                c->driver.MemHostAlloc(&host, 2 * COUNT * sizeof(float), CU_MEMHOSTALLOC_PORTABLE));
    c->host = host;
}

const char *backend_wanted(void) {
    const char *name = getenv("SYMMEM_BACKEND");
    return name != NULL ? name : "cuda";
}

static void open_handle(struct caller *c) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.backend = backend_wanted();
    options.multicast = 0;
    options.check_collectives = 1;
    need(c, "context", symmem_init(&options, &c->context));
    need(c, "group", symmem_group_create(c->context, "caller", NULL, 0, NULL, &c->group));
    need(c, "memory",
         symmem_alloc(c->context, 4 * COUNT * sizeof(float), c->device, NULL, (void **)&c->memory));
    need(c, "memory",
         symmem_alloc(c->context, COUNT * sizeof(float), c->device, NULL, (void **)&c->out));
    need(c, "rendezvous", symmem_rendezvous(c->context, c->memory, c->group, LIMIT_MS, &c->handle));
    need(c, "wrap", symmem_stream_wrap(c->context, c->device, c->native, &c->stream));
}

static void end(struct caller *c) {
    need(c, "the wrapper's end", symmem_stream_destroy(c->stream));
    symmem_handle_release(c->handle);
    need(c, "free", symmem_free(c->context, c->out));
    need(c, "free", symmem_free(c->context, c->memory));
    symmem_context_free(c->context);
    expect(c, "the caller's stream", is_idle_in(c, 1000), "is the caller's still");
    need_driver(c, "pinned memory", c->driver.MemFreeHost(c->host));
    need_driver(c, "the caller's stream", c->driver.StreamDestroy(c->native));
}

static void check(struct caller *c, const char *part) {
    static const struct {
        const char *name;
        void (*check)(struct caller *c);
    } parts[] = {{"refused", check_refused},
                 {"exit", check_exit},
                 {"lost", check_lost},
                 {"current", check_current}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(part, parts[i].name) == 0) {
            parts[i].check(c);
            return;
        }
    check_streams(c);
    check_current(c);
    check_graphs(c);
    check_failures(c);
}

int main(int argc, char **argv) {
    struct caller c = {.rank = number("RANK", 0), .world = number("WORLD_SIZE", 1)};
    int devices = 0;
    if (!driver_load(&c.driver) || c.driver.DeviceGetCount(&devices) != CUDA_SUCCESS ||
        devices == 0) {
        printf("rank %d: nothing to check: no device\n", c.rank);
        return 77;
    }
    c.devices = devices;
    c.device = c.rank % devices;
    setenv("SYMMEM_ALLOW_OVERLAPPING_DEVICES", "1", 1);
    open_device(&c);
    open_handle(&c);
    check(&c, argc > 1 ? argv[1] : "");
    end(&c);
    return c.bad == 0 ? 0 : 1;
}

/* --- the driver's entries ---------------------------------------------------------------- */

bool driver_load(struct driver *driver) {
    static const struct {
        const char *name;
        size_t offset;
    } entries[] = {
#define ENTRY(call) {"cu" #call, offsetof(struct driver, call)},
        DRIVER_CALLS(ENTRY)};
    CUresult (*look)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (symbol == NULL)
        return false;
    memcpy(&look, &symbol, sizeof look);
    driver->is_fake = dlsym(library, "fake_streams_left") != NULL;
    symbol = dlsym(library, "fake_fail_calls");
    memcpy(&driver->fail_calls, &symbol, sizeof symbol);
    symbol = dlsym(library, "cuCtxCreate_v2");
    memcpy(&driver->CtxCreate, &symbol, sizeof symbol);
    if (symbol == NULL)
        return false;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        CUdriverProcAddressQueryResult found;
        if (look(entries[i].name, &symbol, 12000, 0, &found) != CUDA_SUCCESS || symbol == NULL)
            return false;
        memcpy((char *)driver + entries[i].offset, &symbol, sizeof symbol);
    }
    return driver->Init(0) == CUDA_SUCCESS;
}
