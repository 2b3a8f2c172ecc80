/* SPDX-License-Identifier: BSD-3-Clause */
/* The limit that a record names, and output whose reader is gone. */
#include "stream/channel.h"

#include "unit.h"
#include "unit_child.h"
#include "last_record.h"

#include <sys/syscall.h>

#define MAPPING_LIMIT 200000ul

/* The message of a failure by that errno, with another limit meanwhile. */
static const char *message_under(int resource, rlim_t limit, int number) {
    struct rlimit before, low;
    CU_ASSERT_EQUAL_FATAL(syscall(SYS_prlimit64, 0, resource, NULL, &before), 0);
    low = (struct rlimit){.rlim_cur = limit, .rlim_max = before.rlim_max};
    CU_ASSERT_EQUAL_FATAL(syscall(SYS_prlimit64, 0, resource, &low, NULL), 0);
    (void)sm_fail_errno(number, "o", "s", "x");
    CU_ASSERT_EQUAL(syscall(SYS_prlimit64, 0, resource, &before, NULL), 0);
    static symmem_error_record record;
    symmem_last_error(&record);
    return record.message;
}

TEST("limits by their errno") {
    static const struct {
        int resource, number;
        const char *name, *text; /* NULL: not named */
    } rows[] = {
        {RLIMIT_NOFILE, EMFILE, "RLIMIT_NOFILE", " (RLIMIT_NOFILE is 200)"},
        {RLIMIT_NOFILE, ENFILE, "RLIMIT_NOFILE", NULL},
        {RLIMIT_NOFILE, ETOOMANYREFS, "RLIMIT_NOFILE", "descriptors in flight, is 200)"},
        {RLIMIT_NPROC, EAGAIN, "RLIMIT_NPROC", " (RLIMIT_NPROC is 200)"},
        {RLIMIT_AS, EAGAIN, "RLIMIT_AS", " (RLIMIT_AS is 200, used are "},
        {RLIMIT_AS, ENOMEM, "RLIMIT_AS", " (RLIMIT_AS is 200, used are "},
        {RLIMIT_DATA, ENOMEM, "RLIMIT_DATA", " (RLIMIT_DATA is 200, used are "},
        {RLIMIT_FSIZE, EFBIG, "RLIMIT_FSIZE", " (RLIMIT_FSIZE is 200)"},
        {RLIMIT_FSIZE, ENOSPC, "RLIMIT_FSIZE", NULL},
        {RLIMIT_NPROC, ENOMEM, "RLIMIT_NPROC", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *message = message_under(rows[i].resource, 200, rows[i].number);
        CU_ASSERT_EQUAL(strstr(message, rows[i].name) != NULL, rows[i].text != NULL);
        CU_ASSERT(rows[i].text == NULL || strstr(message, rows[i].text) != NULL);
    }
    (void)sm_fail_errno(ENFILE, "o", "s", "x");
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "fs.file-max"));
}

static const char *in_place; /* of files of /proc; "": none can be opened */

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode) {
    const bool is_hidden = in_place != NULL && strncmp(path, "/proc/", 6) == 0;
    return __real_fopen(is_hidden ? in_place : path, mode);
}

/* If /proc is absent or holds something else, the record still names the limit. */
TEST("nobody says what is used") {
    static const char *const places[] = {"", "/dev/null", "/etc/passwd"};
    for (int i = 0; i < 3 && UNIT_SHADOW_MEMORY == 0; i++) {
        in_place = places[i];
        const char *message = message_under(RLIMIT_AS, 200, ENOMEM);
        in_place = NULL;
        CU_ASSERT_PTR_NOT_NULL(strstr(message, " (RLIMIT_AS is 200, used are 0)"));
        CU_ASSERT_PTR_NULL(strstr(message, "max_map_count"));
    }
}

/* The use in the record is this process's own and does not depend on the limit. */
TEST("what is used") {
    unsigned long long used = 0, expected = 0;
    (void)message_under(RLIMIT_AS, 200, ENOMEM);
    const symmem_error_record record = last_record();
    const char *text = strstr(record.message, "used are ");
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    CU_ASSERT_EQUAL(sscanf(text, "used are %llu", &used), 1);
    FILE *file = fopen("/proc/self/statm", "re");
    CU_ASSERT_FATAL(file != NULL && fscanf(file, "%llu", &expected) == 1);
    (void)fclose(file);
    expected *= (unsigned long long)sysconf(_SC_PAGESIZE);
    CU_ASSERT(used > expected / 2 && used < expected * 2);
}

TEST("memory that has to be locked") {
    static char page[4096];
    CU_ASSERT_PTR_NULL(strstr(message_under(RLIMIT_MEMLOCK, 5000, ENOMEM), "MEMLOCK"));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(message_under(RLIMIT_MEMLOCK, 5000, EAGAIN), " (RLIMIT_MEMLOCK is 5000, used"));
    if (syscall(SYS_mlock, page, sizeof(page)) != 0) /* sanitizers make nothing of mlock */
        return;                                      /* not even that much is allowed */
    CU_ASSERT_PTR_NOT_NULL(
        strstr(message_under(RLIMIT_MEMLOCK, 5000, ENOMEM), " (RLIMIT_MEMLOCK is 5000, used"));
    CU_ASSERT_EQUAL(syscall(SYS_munlock, page, sizeof(page)), 0);
}

/* In a child: as many mappings as there may be, then one more. */
static void too_many_mappings(void) {
    unsigned long most = 0;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (file == NULL || fscanf(file, "%lu", &most) != 1 || most > MAPPING_LIMIT)
        exit(CHOSEN); /* too much for a test */
    (void)fclose(file);
    char *all =
        mmap(NULL, 2 * most * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t at = 0;
    while (all != MAP_FAILED && at < most && mprotect(all + 2 * at * page, page, PROT_READ) == 0)
        at++;
    (void)sm_fail_errno(errno, "o", "s", "x");
    munmap(all, 2 * most * page);
    exit(strstr(last_record().message, "vm.max_map_count is ") != NULL ? CHOSEN : 1);
}

TEST("mappings") {
    (void)sm_fail_errno(ENOMEM, "o", "s", "x");
    CU_ASSERT_PTR_NULL(strstr(last_record().message, "max_map_count"));
    /* ThreadSanitizer maps memory of its own whatever a thread does, and ends it if it cannot. */
    CU_ASSERT(UNIT_THREAD_SANITIZER || has_chosen(end_in_child(too_many_mappings)));
}

TEST("what a backend adds") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    const symmem_host *host = &context->host;
    EXPECT_FAIL(host->fail(host, SYMMEM_LIMIT, EMFILE, "op", "text"), SYMMEM_LIMIT, "op");
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "text (RLIMIT_NOFILE is "));
    EXPECT_FAIL(host->fail_sizes(host, SYMMEM_NO_SPACE, 0, "op", 5, 3), SYMMEM_NO_SPACE, "op");
    host->explain(host, " in group %d", 7);
    CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "3 available in group 7"));
    CU_ASSERT_EQUAL(last_record().expected, 5);
    for (int i = 0; i < 30; i++)
        host->explain(host, "%s", "ten letters");
    CU_ASSERT_EQUAL(strlen(last_record().message), sizeof(last_record().message) - 1);
    EXPECT_OK(symmem_finalize(context));
    symmem_context_free(context);
}

/* --- the standard error ----------------------------------------------------------------------- */

static void tell_nobody(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0 || close(ends[0]) != 0 || dup2(ends[1], STDERR_FILENO) < 0)
        exit(1);
    sm_tell_stderr("a line");
    exit(CHOSEN);
}

static void tell_full_file(void) {
    struct rlimit all, none;
    const int file = memfd_create("full", MFD_CLOEXEC);
    if (file < 0 || dup2(file, STDERR_FILENO) < 0 || getrlimit(RLIMIT_FSIZE, &all) != 0)
        exit(1);
    none = all;
    none.rlim_cur = 0;
    if (setrlimit(RLIMIT_FSIZE, &none) != 0)
        exit(1);
    sm_tell_stderr("a line");
    (void)setrlimit(RLIMIT_FSIZE, &all); /* for counts of coverage */
    exit(CHOSEN);
}

TEST("lines that nobody gets") {
    CU_ASSERT(has_chosen(end_in_child(tell_nobody)));
    CU_ASSERT(has_chosen(end_in_child(tell_full_file)));
}
