/* SPDX-License-Identifier: BSD-3-Clause */
/* The registry, where backends are looked for, devices and the host's services. */
#include "unit.h"
#include "stream/channel.h"
#include "last_record.h"
#include "backend/device.h"
#include "backend/instance.h"
#include "backend/loader.h"
#include "backend/registry.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define FAKE_PLUGIN UNIT_PLUGIN_DIR "/libsymmem_backend_plugin_fake.so"

static symmem_context *plain_context(void) {
    symmem_context *context = NULL;
    symmem_context_options options;
    fake_reset();
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    CU_ASSERT_EQUAL_FATAL(symmem_init(&options, &context), SYMMEM_OK);
    return context;
}

static void dummy(void) {}

/* --- registry ----------------------------------------------------------------------- */

TEST("choosing") {
    symmem_context *context = plain_context();
    flat_backend first, second, same_name;
    const char *name = "untouched";
    uint64_t capabilities = 1;
    int32_t count = 0;
    bool yes = true;
    fake_table(&first, "first", FAKE_CAPABILITIES);
    fake_table(&second, "second", FAKE_CAPABILITIES & ~SYMMEM_CAP_POOL);
    fake_table(&same_name, "first", FAKE_CAPABILITIES);
    EXPECT_OK(symmem_get_backend(context, &name));
    CU_ASSERT_PTR_NULL(name);
    EXPECT_FAIL(symmem_backend_capabilities(context, &capabilities), SYMMEM_NOT_FOUND,
                "backend_capabilities");
    EXPECT_FAIL(symmem_device_count(context, &count), SYMMEM_NOT_FOUND, "device_count");
    CU_ASSERT_FALSE(sm_backend_has(context, SYMMEM_CAP_POOL));

    EXPECT_OK(symmem_register_backend(context, flat_table(&first)));
    EXPECT_OK(symmem_register_backend(context, flat_table(&second)));
    EXPECT_FAIL(symmem_register_backend(context, flat_table(&same_name)), SYMMEM_EXISTS,
                "register_backend");
    EXPECT_FAIL(symmem_register_backend(context, flat_table(&first)), SYMMEM_EXISTS,
                "register_backend");
    EXPECT_OK(symmem_backend_available(context, "first", &yes));
    CU_ASSERT_TRUE(yes);
    symmem_error_record record;
    symmem_clear_error();
    EXPECT_OK(symmem_backend_available(context, "third", &yes));
    CU_ASSERT_FALSE(yes);
    EXPECT_OK(symmem_backend_available(context, "NOT a name", &yes));
    CU_ASSERT_FALSE(yes);
    fake.probe_fails = SYMMEM_BACKEND;
    EXPECT_OK(symmem_backend_available(context, "first", &yes));
    CU_ASSERT_FALSE(yes);
    symmem_last_error(&record);
    CU_ASSERT_EQUAL(record.status, SYMMEM_OK);
    EXPECT_FAIL(symmem_set_backend(context, "first"), SYMMEM_UNSUPPORTED, "set_backend");
    symmem_last_error(&record);
    CU_ASSERT_PTR_NOT_NULL(strstr(record.message, "no luck"));
    fake.probe_fails = SYMMEM_OK;

    EXPECT_FAIL(symmem_set_backend(context, "third"), SYMMEM_NOT_FOUND, "set_backend");
    EXPECT_FAIL(symmem_set_backend(context, "Third"), SYMMEM_NOT_FOUND, "set_backend");
    EXPECT_OK(symmem_set_backend(context, "first"));
    EXPECT_OK(symmem_set_backend(context, "second")); /* not in use yet */
    EXPECT_OK(symmem_get_backend(context, &name));
    CU_ASSERT_STRING_EQUAL(name, "second");
    EXPECT_OK(symmem_backend_capabilities(context, &capabilities));
    CU_ASSERT_EQUAL(capabilities, second.head.flags | SYMMEM_CAP_PASSIVE);
    CU_ASSERT_FALSE(sm_backend_has(context, SYMMEM_CAP_POOL));
    CU_ASSERT_TRUE(sm_backend_has(context, SYMMEM_CAP_OVERLAP));
    CU_ASSERT_EQUAL(atomic_load(&fake.opened), 0);

    fake.open_fails = SYMMEM_LIMIT;
    EXPECT_FAIL(symmem_device_count(context, &count), SYMMEM_LIMIT, "device_count");
    symmem_last_error(&record);
    CU_ASSERT_STRING_EQUAL(record.stage, "open");
    CU_ASSERT_EQUAL(record.system_errno, 5);
    fake.open_fails = SYMMEM_OK;
    EXPECT_OK(symmem_device_count(context, &count));
    CU_ASSERT_EQUAL(count, FAKE_DEVICES);
    CU_ASSERT_EQUAL(fake.config.world_size, 1);
    EXPECT_OK(symmem_set_backend(context, "second"));
    EXPECT_FAIL(symmem_set_backend(context, "first"), SYMMEM_BUSY, "set_backend");
    CU_ASSERT_EQUAL(atomic_load(&fake.opened), 1);
    unit_end(context);
}

/* --- loader ------------------------------------------------------------------------- */

/* A file's table must not pass for another of the same name. */
TEST("same name") {
    symmem_context *context = plain_context();
    const char *name = NULL;
    fake_table(&unit_table, "plugin", FAKE_CAPABILITIES);
    EXPECT_OK(symmem_register_backend(context, flat_table(&unit_table)));
    EXPECT_FAIL(symmem_set_backend(context, FAKE_PLUGIN), SYMMEM_EXISTS, "set_backend");
    EXPECT_OK(symmem_get_backend(context, &name));
    CU_ASSERT_PTR_NULL(name);
    unit_end(context);
}

static char **arguments; /* what main got */

TEST("searching") {
    symmem_context *context = plain_context();
    static const char variable[] = "SYMMEM_BACKEND_PATH";
    char own[PATH_MAX] = "";
    char path[PATH_MAX + 64], found[PATH_MAX + 64];
    bool yes = true;
    EXPECT_OK(symmem_backend_available(context, "plugin_fake", &yes));
    CU_ASSERT_FALSE(yes);
    setenv(variable, "::/nonexistent:" UNIT_PLUGIN_DIR, 1);
    /* Said as what it is, where it cannot be opened for want of a descriptor. */
    struct rlimit all, none;
    int next = dup(0);
    close(next);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &all), 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = all.rlim_max};
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    symmem_status status = symmem_set_backend(context, "plugin_empty");
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &all), 0);
    CU_ASSERT_EQUAL(status, SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(last_record().system_errno, EMFILE);
    /* Found, but it calls itself "plugin". */
    EXPECT_FAIL(symmem_set_backend(context, "plugin_fake"), SYMMEM_ABI, "set_backend");
    EXPECT_FAIL(symmem_set_backend(context, "plugin_empty"), SYMMEM_LOAD, "set_backend");
    setenv("FAKE_PLUGIN_NAME", "plugin_fake", 1);
    EXPECT_OK(symmem_backend_available(context, "plugin_fake", &yes));
    CU_ASSERT_TRUE(yes);
    EXPECT_OK(symmem_set_backend(context, "plugin_fake"));
    memset(path, 'x', PATH_MAX);
    path[PATH_MAX] = 0;
    for (int i = 0; i < 2; i++) { /* too long: as if it was not there */
        path[PATH_MAX - 3 * i] = 0;
        setenv(variable, path, 1);
        EXPECT_FAIL(symmem_set_backend(context, "plugin_other"), SYMMEM_NOT_FOUND, "set_backend");
    }
    unsetenv(variable);

    /* Beside the file that contains the core. */
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    CU_ASSERT_FATAL(length > 0);
    *strrchr(own, '/') = 0;
    (void)snprintf(path, sizeof(path), "%s/libsymmem_backend_unit_beside.so", own);
    (void)unlink(path);
    CU_ASSERT_EQUAL_FATAL(symlink(FAKE_PLUGIN, path), 0);
    setenv("FAKE_PLUGIN_NAME", "unit_beside", 1);
    EXPECT_OK(symmem_backend_available(context, "unit_beside", &yes));
    CU_ASSERT_TRUE(yes);
    /* Also if it was started by a relative name that is another file's where the program is now. */
    char *const started_as = arguments[0], *const here = getcwd(NULL, 0);
    CU_ASSERT_EQUAL_FATAL(chdir(UNIT_PLUGIN_DIR), 0);
    arguments[0] = "libsymmem_backend_plugin_fake.so";
    EXPECT_OK(sm_search_backend("unit_beside", "search", found, sizeof(found)));
    CU_ASSERT_STRING_EQUAL(found, path);
    arguments[0] = started_as;
    CU_ASSERT_EQUAL(chdir(here), 0);
    free(here);
    CU_ASSERT_EQUAL(unlink(path), 0);
    EXPECT_FAIL(sm_search_backend("unit_beside", "search", found, sizeof(found)), SYMMEM_NOT_FOUND,
                "search");
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, own));
    unsetenv("FAKE_PLUGIN_NAME");
    unit_end(context);
}

/* What this process may open, what its maps say, and what the linker knows of its code's file. */
static int error_of_open;
static const char *maps;
static const char *linker_name = "as it is";

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    errno = error_of_open;
    return error_of_open != 0 ? -1 : __real_open(path, flags, 0600);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode) {
    if (maps == NULL || strcmp(path, "/proc/self/maps") != 0)
        return __real_fopen(path, mode);
    return *maps != '\0' ? fmemopen((void *)(uintptr_t)maps, strlen(maps), "r") : NULL;
}

int __real_dladdr(const void *address, Dl_info *info);
int __wrap_dladdr(const void *address, Dl_info *info);
int __wrap_dladdr(const void *address, Dl_info *info) {
    const int result = __real_dladdr(address, info);
    if (linker_name == NULL || strcmp(linker_name, "as it is") != 0)
        info->dli_fname = linker_name;
    return result;
}

/* What a file that cannot be loaded is said to lack. */
TEST("a lack of descriptors") {
    static const struct {
        int error;
        symmem_status status;
    } rows[] = {{EMFILE, SYMMEM_LIMIT}, {ENFILE, SYMMEM_LIMIT}, {EACCES, SYMMEM_LOAD}};
    void *library = NULL;
    const symmem_backend *table = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        error_of_open = rows[i].error;
        const symmem_status status = sm_load_table("/nonexistent.so", "load", &library, &table);
        error_of_open = 0;
        CU_ASSERT_EQUAL(status, rows[i].status);
        CU_ASSERT_EQUAL(last_record().system_errno, status == SYMMEM_LIMIT ? rows[i].error : 0);
        CU_ASSERT_PTR_NULL(library);
    }
}

static bool lacks_addresses;

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (!lacks_addresses)
        return __real_mmap(at, bytes, protection, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

TEST("a lack of addresses") {
    void *library = NULL;
    const symmem_backend *table = NULL;
    char no_library[] = "/tmp/unit-XXXXXX";
    const int fd = mkstemp(no_library);
    CU_ASSERT_FATAL(fd >= 0 && write(fd, "text", 4) == 4 && close(fd) == 0);
    lacks_addresses = true;
    const symmem_status lacking = sm_load_table(no_library, "load", &library, &table);
    const symmem_error_record record = last_record();
    const symmem_status absent = sm_load_table("/nonexistent.so", "load", &library, &table);
    lacks_addresses = false;
    CU_ASSERT_EQUAL(lacking, SYMMEM_OUT_OF_MEMORY);
    CU_ASSERT_EQUAL(record.system_errno, ENOMEM);
    CU_ASSERT_PTR_NOT_NULL(strstr(record.message, no_library));
    CU_ASSERT_EQUAL(absent, SYMMEM_LOAD);
    CU_ASSERT_EQUAL(sm_load_table(no_library, "load", &library, &table), SYMMEM_LOAD);
    CU_ASSERT_EQUAL(unlink(no_library), 0);
}

/* The library's own folder by what the linker and the kernel know of it. */
TEST("the library's folder") {
    char here[128], all[64 + PATH_MAX], path[PATH_MAX], own[PATH_MAX] = "";
    static const char anywhere[] = "0-ffffffffffffffff r-xp 0 0:0 0 ";
    const char *const unknown = "the library's folder, which cannot be told";
    char long_name[64 + PATH_MAX];
    snprintf(long_name, sizeof(long_name), "%s/%0*d\n", anywhere, PATH_MAX, 0);
    snprintf(here, sizeof(here), "%s/the/folder/lib.so\n", anywhere);
    snprintf(all, sizeof(all), "1-2 r-xp 0 0:0 0 /another/file.so\n7f00 odd /line\n2-3 rw-p 0\n%s",
             here);
    CU_ASSERT_FATAL(readlink("/proc/self/exe", own, sizeof(own) - 1) > 0);
    *strrchr(own, '/') = '\0';
    const struct {
        const char *linker, *maps, *folder;
    } rows[] = {{NULL, here, "/the/folder,"},
                {"relative", all, "/the/folder,"},
                {"/nonexistent/x", all, "/the/folder,"},
                {"relative", long_name, unknown},
                {"relative", "2-3 rw-p 0\n", unknown},
                {"relative", "", unknown},
                {"/proc/self/exe", "", own}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        linker_name = rows[i].linker;
        maps = rows[i].maps;
        const symmem_status status = sm_search_backend("absent", "search", path, sizeof(path));
        linker_name = "as it is";
        maps = NULL;
        CU_ASSERT_EQUAL(status, SYMMEM_NOT_FOUND);
        CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, rows[i].folder));
    }
}

/* --- devices ------------------------------------------------------------------------ */

static bool multicast(symmem_context *context, int32_t type, int32_t device) {
    bool yes = false;
    EXPECT_OK(symmem_has_multicast_support(context, type, device, &yes));
    return yes;
}

TEST("devices") {
    symmem_context *context = plain_context();
    static const char ask[] = "has_multicast_support";
    int32_t number = -7;
    bool yes = true;
    CU_ASSERT_FALSE(multicast(context, 1, 0)); /* no backend */
    EXPECT_FAIL(symmem_has_multicast_support(NULL, 1, 0, &yes), SYMMEM_NOT_INITIALIZED, ask);
    EXPECT_FAIL(symmem_has_multicast_support(context, 1, 0, NULL), SYMMEM_INVALID_ARGUMENT, ask);
    fake_table(&unit_table, "fake", SYMMEM_CAP_ALL);
    flat_fill(&unit_table, dummy);
    EXPECT_OK(symmem_register_backend(context, flat_table(&unit_table)));
    EXPECT_OK(symmem_set_backend(context, "fake"));
    EXPECT_FAIL(symmem_device_count(NULL, &number), SYMMEM_NOT_INITIALIZED, "device_count");
    EXPECT_FAIL(symmem_device_count(context, NULL), SYMMEM_INVALID_ARGUMENT, "device_count");
    EXPECT_FAIL(symmem_device_type(context, NULL), SYMMEM_INVALID_ARGUMENT, "device_type");
    EXPECT_OK(symmem_device_type(context, &number));
    CU_ASSERT_EQUAL(number, 1);
    CU_ASSERT_FALSE(multicast(context, 1, 0));
    fake.multicast = 1;
    CU_ASSERT_TRUE(multicast(context, 1, 0));
    CU_ASSERT_TRUE(multicast(context, 1, -1));
    CU_ASSERT_FALSE(multicast(context, 2, 99));
    EXPECT_FAIL(symmem_has_multicast_support(context, 1, 99, &yes), SYMMEM_OUT_OF_RANGE, ask);
    setenv("SYMMEM_MULTICAST", "0", 1);
    CU_ASSERT_FALSE(multicast(context, 1, 0));
    unsetenv("SYMMEM_MULTICAST");
    setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1", 1);
    CU_ASSERT_FALSE(multicast(context, 1, 0));
    context->multicast = 1; /* the option wins */
    CU_ASSERT_TRUE(multicast(context, 1, 0));
    unsetenv("TORCH_SYMM_MEM_DISABLE_MULTICAST");
    context->multicast = 0;
    CU_ASSERT_FALSE(multicast(context, 1, 0));
    fake.info_fails = SYMMEM_BACKEND;
    EXPECT_FAIL(symmem_device_type(context, &number), SYMMEM_BACKEND, "device_type");
    EXPECT_FAIL(symmem_has_multicast_support(context, 1, 0, &yes), SYMMEM_BACKEND, ask);
    unit_end(context);
}

TEST("overlap") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    static const char set[] = "set_allow_overlapping_devices";
    CU_ASSERT_FALSE(sm_context_overlap_allowed(context));
    setenv("SYMMEM_ALLOW_OVERLAPPING_DEVICES", "1", 1);
    CU_ASSERT_TRUE(sm_context_overlap_allowed(context));
    EXPECT_OK(symmem_set_allow_overlapping_devices(context, 0));
    CU_ASSERT_FALSE(sm_context_overlap_allowed(context));
    unsetenv("SYMMEM_ALLOW_OVERLAPPING_DEVICES");
    EXPECT_OK(symmem_set_allow_overlapping_devices(context, 1));
    CU_ASSERT_TRUE(sm_context_overlap_allowed(context));
    EXPECT_OK(symmem_set_allow_overlapping_devices(context, -1));
    CU_ASSERT_FALSE(sm_context_overlap_allowed(context));
    setenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1", 1);
    CU_ASSERT_TRUE(sm_context_overlap_allowed(context));
    unsetenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES");
    EXPECT_FAIL(symmem_set_allow_overlapping_devices(context, 2), SYMMEM_INVALID_ARGUMENT, set);
    EXPECT_FAIL(symmem_set_allow_overlapping_devices(context, -2), SYMMEM_INVALID_ARGUMENT, set);
    EXPECT_FAIL(symmem_set_allow_overlapping_devices(NULL, 0), SYMMEM_NOT_INITIALIZED, set);
    unit_end(context);
}

/* --- the host's services ------------------------------------------------------------ */

static int lines;
static char last_line[64];
static void count_line(void *arg, const char *line) {
    (*(int *)arg)++;
    (void)snprintf(last_line, sizeof(last_line), "%s", line);
}

static symmem_status point_times_out(void *arg, const char *point) {
    return strcmp(arg, point) == 0 ? SYMMEM_TIMEOUT : SYMMEM_OK;
}

TEST("services") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    const symmem_host *host = &context->host;
    symmem_error_record record;
    CU_ASSERT_EQUAL(host->size, sizeof(symmem_host));
    CU_ASSERT_FALSE(host->has_points);
    EXPECT_FAIL(host->fail(host, SYMMEM_LIMIT, 24, "op", "number %d", 17), SYMMEM_LIMIT, "op");
    symmem_last_error(&record);
    CU_ASSERT_PTR_NOT_NULL(strstr(record.message, "number 17"));
    CU_ASSERT_EQUAL(record.system_errno, 24);
    CU_ASSERT_EQUAL(record.rank, 0);
    EXPECT_FAIL(host->fail_sizes(host, SYMMEM_NO_SPACE, 28, "op", 5, 3), SYMMEM_NO_SPACE, "op");
    symmem_last_error(&record);
    CU_ASSERT_EQUAL(record.expected, 5);
    CU_ASSERT_EQUAL(record.actual, 3);
    CU_ASSERT_EQUAL(record.system_errno, 28);

    host->notice(host, "once, to standard error");
    context->log = count_line;
    context->log_arg = &lines;
    host->notice(host, "a");
    host->notice(host, "b");
    host->notice(host, "a");
    host->notice(host, "once, to standard error");
    CU_ASSERT_EQUAL(lines, 2);
    CU_ASSERT_STRING_EQUAL(last_line, "b");

    EXPECT_OK(host->point(host, "p"));
    context->point = point_times_out;
    context->point_arg = "p";
    EXPECT_OK(host->point(host, "q"));
    EXPECT_FAIL(host->point(host, "p"), SYMMEM_TIMEOUT, "backend");
    symmem_last_error(&record);
    CU_ASSERT_STRING_EQUAL(record.stage, "p");
    CU_ASSERT(host->signal_failed && host->peer_state && host->is_poisoned && host->peer_is_ending);
    unit_end(context);
}

/* Many threads use the backend first: it is opened once. */
static void *use(void *arg) {
    return sm_context_use_backend(arg, "test") == SYMMEM_OK ? NULL : arg;
}

TEST("opening") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[i], NULL, use, context), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        CU_ASSERT_EQUAL(pthread_join(thread[i], &failed), 0);
        CU_ASSERT_PTR_NULL(failed);
    }
    CU_ASSERT_EQUAL(atomic_load(&fake.opened), 1);
    unit_end(context);

    context = unit_context(FAKE_CAPABILITIES); /* finalized before the first use */
    EXPECT_OK(symmem_finalize(context));
    EXPECT_FAIL(sm_instance_enter(context, "test"), SYMMEM_NOT_INITIALIZED, "test");
    unit_end(context);

    context = unit_context(FAKE_CAPABILITIES); /* finalized after it, still open */
    EXPECT_OK(sm_instance_enter(context, "test"));
    EXPECT_OK(symmem_finalize(context));
    EXPECT_FAIL(sm_instance_enter(context, "test"), SYMMEM_NOT_INITIALIZED, "test");
    CU_ASSERT_EQUAL(atomic_load(&fake.closed), 0);
    sm_instance_release(context);
    CU_ASSERT_EQUAL(atomic_load(&fake.closed), 1);
    unit_end(context);
}

int main(int argc, char **argv) {
    (void)argc;
    arguments = argv;
    return unit_main("registry");
}
