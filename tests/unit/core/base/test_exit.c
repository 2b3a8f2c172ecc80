/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways for a process to end, with everything of the library alive or just finalized: it ends
 * with the status it chose, without a crash, and leaves no name behind.
 */
#include <dirent.h>
#include <dlfcn.h>

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "unit.h"
#include "unit_child.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

/* --- a world of one, with one of everything --------------------------------------------------- */

/* Reachable to the end, so that a leak checker takes it for what it is: alive. */
static struct everything {
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    symmem_stream *stream;
    symmem_graph *graph;
    DLManagedTensor *view;
    void *memory;
} alive;

static bool with_streams(void) {
#ifdef __SANITIZE_THREAD__
    return false; /* it takes a thread that lives at the end of the process for a fault */
#else
    return true;
#endif
}

static bool add_streams(struct everything *e) {
    return symmem_stream_create(e->context, -1, &e->stream) == SYMMEM_OK &&
           symmem_stream_begin_capture(e->stream) == SYMMEM_OK &&
           symmem_barrier(e->handle, 1, 1000, e->stream) == SYMMEM_OK &&
           symmem_stream_end_capture(e->stream, &e->graph) == SYMMEM_OK &&
           /* never satisfied: under way when the process ends */
           symmem_wait_signal(e->handle, 0, 2, 0, e->stream) == SYMMEM_OK;
}

static bool make_everything(struct everything *e) {
    const int64_t size = 16;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    const symmem_backend *table = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    return symmem_init(&options, &e->context) == SYMMEM_OK &&
           symmem_register_backend(e->context, table) == SYMMEM_OK &&
           symmem_set_backend(e->context, table->name) == SYMMEM_OK &&
           symmem_group_create(e->context, "all", NULL, 0, NULL, &e->group) == SYMMEM_OK &&
           symmem_alloc(e->context, 4096, -1, NULL, &e->memory) == SYMMEM_OK &&
           symmem_rendezvous(e->context, e->memory, e->group, 5000, &e->handle) == SYMMEM_OK &&
           symmem_get_buffer(e->handle, 0, 1, &size, SYMMEM_UINT8, 0, &e->view) == SYMMEM_OK &&
           symmem_barrier(e->handle, 0, 1000, NULL) == SYMMEM_OK &&
           (!with_streams() || add_streams(e));
}

static void give_everything_back(struct everything *e) {
    symmem_status ignored = symmem_finalize(e->context);
    e->view->deleter(e->view);
    symmem_handle_release(e->handle);
    ignored = symmem_graph_destroy(e->graph);
    ignored = symmem_stream_destroy(e->stream);
    symmem_context_free(e->context);
    memset(e, 0, sizeof(*e));
    (void)ignored;
}

/* --- ways to end ------------------------------------------------------------------------------ */

static void by_exit(void) {
    exit(CHOSEN);
}

static void by_exit_after_the_end(void) {
    give_everything_back(&alive);
    exit(CHOSEN);
}

static void by_exit_with_a_finalized_context(void) {
    if (symmem_finalize(alive.context) != SYMMEM_OK)
        _exit(NO_WORLD);
    exit(CHOSEN);
}

static void by_exit_at_once(void) {
    _exit(CHOSEN);
}

static void by_quick_exit(void) {
    quick_exit(CHOSEN);
}

static void by_abort(void) {
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    abort();
}

/* As the destructor of a static object of the user's does. */
static void end_late(void) {
    give_everything_back(&alive);
}

static void by_a_handler_that_finalizes(void) {
    if (atexit(end_late) != 0)
        _exit(NO_WORLD);
    exit(CHOSEN);
}

static void call_late(void) {
    symmem_error_record record;
    if (symmem_barrier(alive.handle, 0, 100, NULL) != SYMMEM_NOT_INITIALIZED)
        _exit(NO_WORLD);
    symmem_last_error(&record);
    if (record.status != SYMMEM_NOT_INITIALIZED)
        _exit(NO_WORLD);
}

static void by_a_handler_that_calls_after_the_end(void) {
    if (atexit(call_late) != 0 || symmem_finalize(alive.context) != SYMMEM_OK)
        _exit(NO_WORLD);
    exit(CHOSEN);
}

static void *exit_from_thread(void *arg) {
    usleep(20000);
    exit(CHOSEN);
}

static void by_another_thread(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, exit_from_thread, NULL) != 0)
        _exit(NO_WORLD);
    pthread_exit(NULL); /* the main thread is gone before */
}

/* In a forked child, what only another thread's stack refers to looks lost to a leak checker. */
static void exit_of_a_copy(void) {
    if (UNIT_ADDRESS_SANITIZER)
        _exit(CHOSEN);
    exit(CHOSEN);
}

/* A child of the process, which has copies of everything, ends; its parent works on. */
static void after_a_childs_exit(void) {
    int status = 0;
    pid_t pid = fork();
    if (pid < 0)
        _exit(NO_WORLD);
    if (pid == 0)
        exit_of_a_copy();
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != CHOSEN)
        _exit(NO_WORLD);
    memset(alive.memory, 5, 4096);
    if (symmem_barrier(alive.handle, 0, 1000, NULL) != SYMMEM_OK)
        _exit(NO_WORLD);
    by_exit_after_the_end();
}

/* --- children --------------------------------------------------------------------------------- */

/* Names in /dev/shm and /tmp that have the library's name in them. */
static int count_names(void) {
    static const char *const places[] = {"/dev/shm", "/tmp"};
    int count = 0;
    for (int i = 0; i < 2; i++) {
        DIR *directory = opendir(places[i]);
        const struct dirent *entry;
        while (directory != NULL && (entry = readdir(directory)) != NULL)
            count += strncmp(entry->d_name, "symmem", 6) == 0;
        if (directory != NULL)
            closedir(directory);
    }
    return count;
}

/* Whether no more are there than before. Others have names there for a moment: what was left stays.
 */
static bool leaves_no_name(int before) {
    const struct timespec pause = {0, 10000000};
    for (int i = 0; i < 100; i++) {
        if (count_names() <= before)
            return true;
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

static void (*wanted)(void);

static void with_everything(void) {
    if (!make_everything(&alive))
        _exit(NO_WORLD);
    wanted();
}

/* Its wait status. */
static int end_by(void (*way)(void)) {
    wanted = way;
    return end_in_child(with_everything);
}

TEST("every way to end") {
    static const struct {
        const char *name;
        void (*way)(void);
        bool thread_safe; /* also with a sanitizer that dislikes living threads */
    } ways[] = {
        {"exit", by_exit, true},
        {"exit after the end", by_exit_after_the_end, true},
        {"exit with a finalized context", by_exit_with_a_finalized_context, true},
        {"_exit", by_exit_at_once, true},
        {"quick_exit", by_quick_exit, true},
        {"a handler that finalizes", by_a_handler_that_finalizes, true},
        {"a handler that calls after the end", by_a_handler_that_calls_after_the_end, true},
        {"another thread", by_another_thread, false},
        {"after a child's exit", after_a_childs_exit, true},
    };
    int names = count_names();
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (!ways[i].thread_safe && !with_streams())
            continue;
        int status = end_by(ways[i].way);
        bool good = WIFEXITED(status) && WEXITSTATUS(status) == CHOSEN;
        if (!good)
            printf("%s: wait status 0x%x\n", ways[i].name, (unsigned)status);
        CU_ASSERT(good);
    }
    CU_ASSERT(leaves_no_name(names));
}

TEST("abort") {
    int names = count_names();
    int status = end_by(by_abort);
    CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CU_ASSERT(leaves_no_name(names));
}

/* --- the shared library, unloaded ------------------------------------------------------------- */

#define FROM(library, name) ((__typeof__(&(name)))dlsym(library, #name))

/* Loads the library, has it load its backend, ends all and unloads it. */
static bool use_and_unload(void) {
    void *library = dlopen(UNIT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    symmem_context_options options;
    symmem_context *context = NULL;
    void *memory = NULL;
    if (library == NULL)
        return false;
    FROM(library, symmem_context_options_init)(&options);
    options.rank = 0;
    options.world_size = 1;
    options.backend = "shm";
    bool good = FROM(library, symmem_init)(&options, &context) == SYMMEM_OK &&
                FROM(library, symmem_alloc)(context, 4096, -1, NULL, &memory) == SYMMEM_OK;
    if (good)
        memset(memory, 1, 4096);
    FROM(library, symmem_context_free)(context);
    return dlclose(library) == 0 && good;
}

static void by_unloading(void) {
    give_everything_back(&alive);
    for (int i = 0; i < 3; i++)
        if (!use_and_unload())
            _exit(NO_WORLD);
    exit(CHOSEN);
}

TEST("unloading the library") {
    int status = end_by(by_unloading);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == CHOSEN);
}
