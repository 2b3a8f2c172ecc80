/* SPDX-License-Identifier: BSD-3-Clause */
/* What backends of this repository read from the environment, and where they find memory when its
 * usual place has none. A backend that has none of these settings has nothing to show here. */
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "case_help.h"
#include "limits_help.h"
#include "reduce_help.h"
#include "walk.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MIB ((size_t)1 << 20)
#define LARGE (4 * MIB)
#define ALONE TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT

/* --- numbers and links ------------------------------------------------------------------------ */

/* A new context, and what its backend says with the setting, which is there no more afterwards. */
static symmem_status begin_with(struct tk *t, const char *variable, const char *text,
                                int32_t *devices_p) {
    symmem_context_options options = tk_options(t);
    symmem_status status;
    setenv(variable, text, 1);
    tk_reinit(t, &options);
    status = symmem_device_count(t->context, devices_p);
    unsetenv(variable);
    return status;
}

/* Afterwards the context is as good as new. */
static void refuse_setting(struct tk *t, const char *variable, const char *text) {
    int32_t devices = 77;
    tk_checkpoint(t, "%s=%s", variable, text);
    symmem_clear_error();
    TK_FAILS(t, INVALID_ARGUMENT, begin_with(t, variable, text, &devices));
    TK_SAYS(t, variable);
    TK_EQ_INT(t, 77, devices);
    TK_OK(t, symmem_device_count(t->context, &devices));
    TK_EQ_INT(t, 8, devices);
}

static bool has_multicast(struct tk *t) {
    bool has = false;
    TK_OK(t, symmem_has_multicast_support(t->context, t->device_type, 0, &has));
    return has;
}

TK_TEST(settings, numbers, "SM-BACKEND-17", .max_ranks = 1, .flags = ALONE) {
    static const char *const wrong[] = {
        "", "x", "3x", "3 ", " 3", "+3", "-", "0x3", "99999999999999999999"};
    static const struct {
        const char *variable, *text;
        int32_t devices; /* -1: refused */
        bool multicast;
    } settings[] = {
        {"SYMMEM_SHM_DEVICES", "1", 1, true},
        {"SYMMEM_SHM_DEVICES", "3", 3, true},
        {"SYMMEM_SHM_DEVICES", "1024", 1024, true},
        {"SYMMEM_SHM_DEVICES", "0", -1, false},
        {"SYMMEM_SHM_DEVICES", "-3", -1, false},
        {"SYMMEM_SHM_DEVICES", "1025", -1, false},
        {"SYMMEM_SHM_MULTICAST_SLOTS", "0", 8, false},
        {"SYMMEM_SHM_MULTICAST_SLOTS", "1", 8, true},
        {"SYMMEM_SHM_MULTICAST_SLOTS", "2147483647", 8, true},
        {"SYMMEM_SHM_MULTICAST_SLOTS", "2147483648", -1, false},
        {"SYMMEM_SHM_MULTICAST_SLOTS", "-1", -1, false},
        {"SYMMEM_SHM_ISA", "portable", 8, true},
        {"SYMMEM_SHM_ISA", "", -1, false},
        {"SYMMEM_SHM_ISA", "best", -1, false},
        {"SYMMEM_SHM_ISA", "unknown", -1, false},
        {"SYMMEM_SHM_ISA", "AVX2", -1, false},
    };
    if (!is_emulation(t))
        return;
    int32_t devices = device_count(t);
    TK_EQ_INT(t, 8, devices);
    for (size_t i = 0; i < COUNT(settings); i++) {
        if (settings[i].devices < 0) {
            refuse_setting(t, settings[i].variable, settings[i].text);
            continue;
        }
        TK_OK(t, begin_with(t, settings[i].variable, settings[i].text, &devices));
        TK_EQ_INT(t, settings[i].devices, devices);
        TK_EQ_INT(t, settings[i].multicast, has_multicast(t));
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        refuse_setting(t, "SYMMEM_SHM_DEVICES", wrong[i]);
        refuse_setting(t, "SYMMEM_SHM_MULTICAST_SLOTS", wrong[i]);
    }
    /* A world of more ranks than that has a device for each. */
    TK_REINIT(t, options.world_size = 9);
    TK_OK(t, symmem_device_count(t->context, &devices));
    TK_EQ_INT(t, 9, devices);
}

TK_TEST(settings, links, "SM-BACKEND-17", .needs = SYMMEM_CAP_CONNECTIVITY, .max_ranks = 1,
        .flags = ALONE) {
    static const struct {
        const char *text;
        int32_t matrix[9]; /* of 3 devices; [0] is -1: refused */
    } settings[] = {
        {NULL, {0, 0, 0, 0, 0, 0, 0, 0, 0}},
        {"0", {0, 0, 0, 0, 0, 0, 0, 0, 0}},
        {"1000", {0, 1000, 1000, 1000, 0, 1000, 1000, 1000, 0}},
        {"0,2,1;2,0,4;1,4,0", {0, 2, 1, 2, 0, 4, 1, 4, 0}},
        {"0,1000,9;1000,0,0;9,0,0", {0, 1000, 9, 1000, 0, 0, 9, 0, 0}},
        {"", {-1}},
        {"x", {-1}},
        {"-1", {-1}},
        {"+1", {-1}},
        {"1001", {-1}},
        {"18 ", {-1}},
        {" 18", {-1}},
        {":8", {-1}},
        {"/8", {-1}},
        {"99999999999999999999", {-1}},
        {"0,2,1", {-1}},
        {"0,2,1;2,0,4;1,4", {-1}},
        {"0,2,1;2,0,4;1,4,0;", {-1}},
        {"0,2,1;2,0,4;1,4,0 ", {-1}},
        {"0,2,1;2,0,4;1,4,0,0", {-1}},
        {"0,2,1,2,0,4,1,4,0", {-1}},
        {"0;2;1;2;0;4;1;4;0", {-1}},
        {"0,2;1,2;0,4;1,4;0", {-1}},
        {"0,1001,1;1001,0,4;1,4,0", {-1}},
        {"0,+2,1;2,0,4;1,4,0", {-1}},
        {"0,,1;2,0,4;1,4,0", {-1}},
    };
    int32_t matrix[9], devices;
    if (!is_emulation(t))
        return;
    TK_REQUIRE_OK(t, begin_with(t, "SYMMEM_SHM_DEVICES", "3", &devices));
    for (size_t i = 0; i < COUNT(settings); i++) {
        const bool refused = settings[i].matrix[0] < 0;
        tk_checkpoint(t, "'%s'", settings[i].text);
        if (settings[i].text != NULL)
            setenv("SYMMEM_SHM_NVLINKS", settings[i].text, 1);
        symmem_clear_error();
        TK_STATUS(t, refused ? SYMMEM_INVALID_ARGUMENT : SYMMEM_OK,
                  symmem_connectivity(t->context, "nvlink", 3, matrix));
        TK_CHECK(t, refused ? strstr(last_record().message, "SYMMEM_SHM_NVLINKS") != NULL
                            : memcmp(settings[i].matrix, matrix, sizeof(matrix)) == 0);
    }
    unsetenv("SYMMEM_SHM_NVLINKS");
}

/* --- products --------------------------------------------------------------------------------- */

static void count_plain_loops(void *arg, const char *line) {
    *(int *)arg += strstr(line, "plain loops") != NULL;
}

/* The library of products is looked for at a context's first one, and one that is asked for by name
 * when the backend is opened: what is none is refused. */
TK_TEST(settings, product_libraries, "SM-BACKEND-17",
        .needs = SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_MATMUL, .max_ranks = 1, .flags = ALONE) {
    static const struct {
        const char *text;
        int lines; /* of the log, that tell of plain loops */
    } settings[] = {{"0", 0}, {"", -1}};
    static const char *const wrong[] = {"/nowhere/libblas.so", "libm.so.6", "nonsense"};
    const struct walk_scenario *fused = walk_find("fused");
    for (size_t i = 0; i < COUNT(wrong) && is_emulation(t); i++)
        refuse_setting(t, "SYMMEM_SHM_BLAS", wrong[i]);
    for (size_t i = 0; i < COUNT(settings) && is_emulation(t); i++) {
        struct walk_run run = {.t = t, .number = (int)i, .limit_ms = LONG_MS};
        symmem_context_options options = tk_options(t);
        int lines = 0;
        tk_checkpoint(t, "SYMMEM_SHM_BLAS=%s", settings[i].text);
        options.log = count_plain_loops;
        options.log_arg = &lines;
        setenv("SYMMEM_SHM_BLAS", settings[i].text, 1);
        TK_REQUIRE_OK(t, symmem_init(&options, &run.context));
        fused->prepare(&run);
        TK_OK(t, fused->act(&run));
        setenv("SYMMEM_SHM_BLAS", "/nowhere/else.so", 1); /* not asked for again */
        TK_OK(t, fused->act(&run));
        walk_give_back(&run);
        TK_CHECK(t, settings[i].lines < 0 ? lines <= 1 : lines == settings[i].lines);
    }
    unsetenv("SYMMEM_SHM_BLAS");
}

/* --- instruction sets ------------------------------------------------------------------------- */

/* Each rank with another: they must get the same bits, those of the reference. */
TK_TEST(settings, instruction_sets, "SM-REDUCE-02", .ranks = {2, 2}, .needs = COLLECTIVES,
        .flags = ALONE, .timeout_s = 60) {
    static const char *const names[] = {"portable", "avx2", "avx512"};
    static const enum reduce_form forms[] = {FORM_ONE_SHOT_OUT, FORM_TWO_SHOT, FORM_CHOSEN_OUT};
    const char *mine[COUNT(names)];
    size_t known = 0;
    int32_t devices;
    bool emulation = is_emulation(t);
    for (size_t i = 0; i < COUNT(names) && emulation; i++)
        if (begin_with(t, "SYMMEM_SHM_ISA", names[i], &devices) == SYMMEM_OK)
            mine[known++] = names[i];
    TK_CHECK(t, !emulation || known > 0);
    symmem_clear_error();
    for (size_t turn = 0; turn < known; turn++) {
        const char *own = mine[(turn + (size_t)t->rank) % known];
        TK_REQUIRE_OK(t, begin_with(t, "SYMMEM_SHM_ISA", own, &devices));
        struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), LARGE + 256);
        for (int i = 0; i < reduce_pair_count(); i++) {
            struct reduce_call call = {.form = forms[(size_t)i % COUNT(forms)],
                                       .count = 701 + (size_t)i % 64,
                                       .at = (size_t)i % 8};
            reduce_pair(i, &call.dtype, &call.op);
            tk_checkpoint(t, "%s, pair %d", own, i);
            reduce_check(t, &desk, &call);
        }
        /* So much that results go past the cache, from odd places. */
        for (int i = 0; i < 2; i++) {
            static const symmem_dtype dtypes[] = {SYMMEM_FLOAT16, SYMMEM_FLOAT64};
            const struct reduce_call call = {.form = FORM_ONE_SHOT_OUT,
                                             .dtype = dtypes[i],
                                             .op = SYMMEM_SUM,
                                             .count = LARGE / symmem_dtype_size(dtypes[i]) + 37,
                                             .at = (size_t)i + 1};
            tk_checkpoint(t, "%s, large %d", own, i);
            reduce_check(t, &desk, &call);
        }
        reduce_expect_same_digest(t, &desk);
    }
}

/* --- where memory comes from ------------------------------------------------------------------ */

#define KERNEL_PIECE ((off_t)8 << 20)
#define MOST_CALLS 1000

/* For the one process of the case: what memfd_create and posix_fallocate answer; 0 as the kernel
 * does. */
static atomic_bool ticking;
static atomic_int file_answer, pages_answer;
static atomic_int fallocate_calls;

/* In the C library's place. */
__attribute__((visibility("default"))) int memfd_create(const char *name, unsigned flags) {
    errno = atomic_load(&file_answer);
    return errno != 0 ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

/* This one, too. While it ticks as kernels do that give back all of a piece when a
 * signal comes, with a timer that is faster than a large piece. */
__attribute__((visibility("default"))) int posix_fallocate(int fd, off_t offset, off_t length) {
    int call = atomic_fetch_add(&fallocate_calls, 1), answer = atomic_load(&pages_answer);
    if (answer != 0)
        return answer;
    if (atomic_load(&ticking) && call >= MOST_CALLS)
        return ENOSPC;
    if (atomic_load(&ticking) && (length > KERNEL_PIECE || call % 2 == 0))
        return EINTR;
    return fallocate(fd, 0, offset, length) == 0 ? 0 : errno;
}

static symmem_status allocate(struct tk *t, size_t bytes, void **memory_p) {
    atomic_store(&fallocate_calls, 0);
    symmem_clear_error();
    return symmem_alloc(t->context, bytes, -1, NULL, memory_p);
}

static void count_line(void *arg, const char *line) {
    *(int *)arg += strstr(line, "/dev/shm") != NULL;
}

static void begin_counting(struct tk *t, int *lines_p) {
    TK_REINIT(t, options.log = count_line; options.log_arg = lines_p);
}

/* Memory that is there: writing it finds no shortage. */
static void expect_memory(struct tk *t, size_t bytes) {
    void *memory = NULL;
    if (!TK_OK(t, allocate(t, bytes, &memory)))
        return;
    for (size_t at = 0; at < bytes && (t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0; at += 512)
        ((volatile char *)memory)[at] = 1;
    TK_OK(t, symmem_free(t->context, memory));
}

/* Without the right to mount, a process may be its own root. */
static void without_writing(struct tk *t, void *arg) {
    bool available = false;
    int lines = 0;
    (void)arg;
    if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", MS_RDONLY, "size=2m") != 0) {
        TK_CHECK_MSG(t, true, "not permitted here");
        tk_note(t, "no namespaces here");
        return;
    }
    begin_counting(t, &lines);
    TK_OK(t, symmem_backend_available(t->context, "shm", &available));
    TK_CHECK(t, available);
    expect_memory(t, 8 * MIB);
    expect_memory(t, 1);
    TK_EQ_INT(t, 0, lines); /* it is the other place, and not needed */
    tk_end_context(t);
}

TK_TEST(settings, other_places, "SM-ALLOC-17", .max_ranks = 1,
        .flags = TK_PROCESS_ONLY | TK_FORKS) {
    static const struct {
        int file, pages;
        symmem_status status;
        int calls, lines; /* of the context so far */
    } rows[] = {
        {0, 0, SYMMEM_OK, 1, 0},
        {EMFILE, 0, SYMMEM_LIMIT, 0, 0}, /* what the other place would lack, too */
        {ENFILE, 0, SYMMEM_LIMIT, 0, 0},
        {ENOMEM, 0, SYMMEM_OUT_OF_MEMORY, 0, 0},
        {0, ENOSPC, SYMMEM_NO_SPACE, 1, 0}, /* peers would refuse memory from elsewhere */
        {0, EFBIG, SYMMEM_NO_SPACE, 1, 0},
        {ENOSYS, 0, SYMMEM_OK, 1, 1},
        {EPERM, 0, SYMMEM_OK, 1, 1},
        {ENOSYS, ENOSPC, SYMMEM_NO_SPACE, 1, 1},
        {ENOSYS, EFBIG, SYMMEM_NO_SPACE, 1, 1},
        {ENOSYS, EPERM, SYMMEM_PERMISSION, 1, 1},
        {ENOSYS, EACCES, SYMMEM_PERMISSION, 1, 1},
        {ENOSYS, EROFS, SYMMEM_PERMISSION, 1, 1},
        {ENOSYS, EAGAIN, SYMMEM_LIMIT, 1, 1},
        {ENOSYS, EIO, SYMMEM_SYSTEM, 1, 1},
        {0, 0, SYMMEM_OK, 1, 1},
    };
    int lines = 0;
    if (!is_emulation(t))
        return;
    begin_counting(t, &lines);
    for (size_t i = 0; i < COUNT(rows); i++) {
        void *memory = NULL;
        tk_checkpoint(t, "row %zu", i);
        atomic_store(&file_answer, rows[i].file);
        atomic_store(&pages_answer, rows[i].pages);
        symmem_status status = allocate(t, 4096, &memory);
        atomic_store(&file_answer, 0);
        atomic_store(&pages_answer, 0);
        TK_EQ_INT(t, rows[i].calls, atomic_load(&fallocate_calls));
        TK_EQ_INT(t, rows[i].lines, lines);
        if (TK_STATUS(t, rows[i].status, status) && status == SYMMEM_NO_SPACE)
            TK_EQ_SIZE(t, 4096, last_record().expected);
        if (status == SYMMEM_OK)
            TK_OK(t, symmem_free(t->context, memory));
    }
    tk_end_context(t);
    tk_run_child(t, without_writing, NULL, LONG_MS);
}

TK_TEST(settings, other_place_is_shared, "SM-ALLOC-17", .min_ranks = 2, .flags = TK_PROCESS_ONLY) {
    if (!is_emulation(t))
        return;
    atomic_store(&file_answer, ENOSYS);
    symmem_context_options options = tk_options(t);
    tk_reinit(t, &options);
    const int32_t next = t->next;
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    atomic_store(&file_answer, 0);
    tk_fill(t, handle, next, 0, 64, (uint8_t)(t->rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, 64, (uint8_t)(t->previous + 1));
}

/* --- the log ---------------------------------------------------------------------------------- */

/* No process reads, and a signal for that would end the program. One that the program holds back is
 * its own. */
TK_TEST(settings, log_without_reader, "SM-LIFE-18", .max_ranks = 1, .flags = TK_PROCESS_ONLY) {
    int ends[2];
    sigset_t pipe_only, before, pending;
    if (!is_emulation(t))
        return;
    const int kept = dup(STDERR_FILENO);
    TK_REQUIRE(t, kept >= 0 && pipe2(ends, O_CLOEXEC) == 0 && close(ends[0]) == 0);
    TK_REQUIRE(t, dup2(ends[1], STDERR_FILENO) >= 0 && close(ends[1]) == 0);
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    for (int held = 0; held < 2; held++) {
        TK_REINIT(t, options.log = NULL);
        if (held) {
            pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
            raise(SIGPIPE);
        }
        atomic_store(&file_answer, ENOSYS);
        expect_memory(t, 4096);
        atomic_store(&file_answer, 0);
        sigpending(&pending);
        TK_EQ_INT(t, held, sigismember(&pending, SIGPIPE));
    }
    const struct timespec now = {0, 0};
    TK_EQ_INT(t, SIGPIPE, sigtimedwait(&pipe_only, NULL, &now));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    TK_REQUIRE(t, dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0);
}

/* --- signals ---------------------------------------------------------------------------------- */

TK_TEST(settings, under_signals, "SM-ALLOC-18", .max_ranks = 1, .flags = TK_PROCESS_ONLY) {
    atomic_store(&ticking, true);
    expect_memory(t, 1);
    expect_memory(t, 64 * MIB);
    expect_memory(t, 20 * MIB + 5);
    atomic_store(&ticking, false);
}
