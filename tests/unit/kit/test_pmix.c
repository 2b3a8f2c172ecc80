/* SPDX-License-Identifier: BSD-3-Clause */
/* The kit's PMIx server: when one is started, what ranks get of it, and how it ends. The program is
 * a script here, which writes down what it was given. */
#include <dlfcn.h>

#include "folder.h"
#include "unit_main.h"

#include "../../plugins/kit/pmix.h"

static char folder[FOLDER_BYTES]; /* the plug-in's, and of temporary files */
static bool has_program;
static bool peer_has_manager;
static const char *text_of_first; /* for a rank that is not the first */

/* Where the plug-in is. */
int __wrap_dladdr(const void *address, Dl_info *info_p);
int __wrap_dladdr(const void *address, Dl_info *info_p) {
    static char path[FOLDER_BYTES + 16];
    (void)address;
    (void)snprintf(path, sizeof path, "%s/plugin.so", folder);
    info_p->dli_fname = path;
    return 1;
}

static symmem_status fail(const symmem_host *host, symmem_status status, int system_errno,
                          const char *operation, const char *format, ...) {
    (void)host, (void)system_errno, (void)operation, (void)format;
    return status;
}

/* What a rank says begins with whether it has a manager. */
static symmem_status all_gather(const symmem_exchange *exchange, const void *in, size_t bytes,
                                void *out) {
    const int64_t has = peer_has_manager;
    char *first = out, *second = first + bytes, *other = text_of_first == NULL ? second : first;
    (void)exchange;
    memset(out, 0, 2 * bytes);
    memcpy(text_of_first == NULL ? first : second, in, bytes);
    memcpy(other, &has, sizeof has);
    if (text_of_first != NULL)
        memcpy(first + sizeof has, text_of_first, strlen(text_of_first));
    return SYMMEM_OK;
}

static symmem_status agree(const symmem_exchange *exchange, symmem_status own, const char *stage) {
    (void)exchange, (void)stage;
    return own;
}

static const symmem_host host = {.size = sizeof(symmem_host), .fail = fail};
static const symmem_exchange exchange = {
    .size = sizeof(symmem_exchange), .world_size = 2, .all_gather = all_gather, .agree = agree};

static const char *const variables[] = {"PMIX_RANK", "PMIX_NAMESPACE", "FLUX_JOB_ID",
                                        "OMPI_MCA_pmix", "SYMMEM_TEST_OTHERS"};

/* `script`: the program; NULL: there is none. */
static void begin(const char *script) {
    char path[FOLDER_BYTES + 32];
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        (void)unsetenv(variables[i]);
    peer_has_manager = false;
    text_of_first = NULL;
    (void)snprintf(folder, sizeof folder, "/tmp/symmem-unit-XXXXXX"); /* programs run from there */
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    has_program = script != NULL;
    CU_ASSERT_EQUAL(setenv("TMPDIR", folder, 1), 0);
    (void)snprintf(path, sizeof path, "%s/symmem-pmix-server", folder);
    if (!has_program)
        return;
    FILE *file = fopen(path, "we");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    (void)fprintf(file, "#!/bin/sh\n%s\n", script);
    CU_ASSERT_EQUAL(fclose(file), 0);
    CU_ASSERT_EQUAL(chmod(path, 0700), 0);
}

/* What the script has left, without the line's end. */
static const char *written(const char *name) {
    static char text[64];
    char path[FOLDER_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return "nothing";
    text[0] = '\0';
    (void)!fgets(text, sizeof text, file);
    (void)fclose(file);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* The server's own folder is gone, and no process is left. */
static void end(void) {
    CU_ASSERT_EQUAL(count_files(folder, 's'), has_program ? 1 : 0);
    CU_ASSERT_EQUAL(waitpid(-1, NULL, WNOHANG), -1);
    remove_tree(folder);
}

static const char *value_of(const char *name) {
    const char *value = getenv(name);
    return value == NULL ? "none" : value;
}

static void expect_no_manager(void) {
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        CU_ASSERT_PTR_NULL(getenv(variables[i]));
}

/* Says what ranks are to have, and notes how many bytes come until its input ends. */
#define SERVES                                                                                     \
    "[ \"$1\" = 2 ] && [ -d \"$2\" ] || exit 1\n"                                                  \
    "printf 'PMIX_RANK=0\\nPMIX_NAMESPACE=job=1\\nno "                                             \
    "variable\\nSYMMEM_TEST_OTHERS=theirs\\n\\n'\n"                                                \
    "count=$(wc -c | tr -d ' ') && echo \"$count\" >\"$(dirname \"$0\")/ended\""

TEST("rank 0 has a server until it ends it") {
    begin(SERVES);
    CU_ASSERT_EQUAL(setenv("SYMMEM_TEST_OTHERS", "mine", 1), 0);
    CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 0, 2, &host), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(value_of("PMIX_RANK"), "0");
    CU_ASSERT_STRING_EQUAL(value_of("PMIX_NAMESPACE"), "job=1");
    CU_ASSERT_STRING_EQUAL(value_of("FLUX_JOB_ID"), "1");
    CU_ASSERT_STRING_EQUAL(value_of("SYMMEM_TEST_OTHERS"), "mine");
    symmem_kit_pmix_started(true);
    CU_ASSERT_STRING_EQUAL(value_of("SYMMEM_TEST_OTHERS"), "mine");
    CU_ASSERT_EQUAL(unsetenv("SYMMEM_TEST_OTHERS"), 0);
    expect_no_manager();
    CU_ASSERT_EQUAL(count_files(folder, 's'), 2);
    symmem_kit_pmix_end(true);
    CU_ASSERT_STRING_EQUAL(written("ended"), "1");
    symmem_kit_pmix_end(true); /* there is none */
    end();
}

TEST("a rank that does not leave in order tells its server nothing") {
    begin(SERVES);
    CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 0, 2, &host), SYMMEM_OK);
    symmem_kit_pmix_end(false);
    CU_ASSERT_STRING_EQUAL(written("ended"), "0");
    symmem_kit_pmix_started(false);
    expect_no_manager();
    end();
}

TEST("a later try has a server of its own") {
    begin(SERVES);
    CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 0, 2, &host), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 0, 2, &host), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(value_of("PMIX_RANK"), "0");
    CU_ASSERT_EQUAL(count_files(folder, 's'), 2);
    symmem_kit_pmix_started(true);
    symmem_kit_pmix_end(true);
    end();
}

TEST("what a child of fork has is its parent's") {
    begin(SERVES);
    CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 0, 2, &host), SYMMEM_OK);
    const pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0) {
        symmem_kit_pmix_end(true);
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(pid, NULL, 0), pid);
    CU_ASSERT_STRING_EQUAL(written("ended"), "nothing");
    symmem_kit_pmix_started(true);
    symmem_kit_pmix_end(false);
    CU_ASSERT_STRING_EQUAL(written("ended"), "0");
    end();
}

TEST("the other ranks have it from rank 0") {
    begin(SERVES);
    text_of_first = "PMIX_RANK=0\nPMIX_NAMESPACE=job\n\n";
    CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 1, 2, &host), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(value_of("PMIX_RANK"), "1");
    CU_ASSERT_STRING_EQUAL(value_of("PMIX_NAMESPACE"), "job");
    CU_ASSERT_STRING_EQUAL(written("ended"), "nothing");
    symmem_kit_pmix_started(true);
    symmem_kit_pmix_end(true);
    end();
}

TEST("a launcher's is left alone, also where only another rank has it") {
    begin(SERVES);
    peer_has_manager = true;
    CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 0, 2, &host), SYMMEM_OK);
    expect_no_manager();
    CU_ASSERT_STRING_EQUAL(written("ended"), "0");
    end();
    begin(SERVES);
    CU_ASSERT_EQUAL(setenv("PMIX_RANK", "7", 1), 0);
    CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 0, 2, &host), SYMMEM_OK);
    symmem_kit_pmix_started(true);
    CU_ASSERT_STRING_EQUAL(value_of("PMIX_RANK"), "7");
    CU_ASSERT_STRING_EQUAL(written("ended"), "nothing");
    end();
}

TEST("a plug-in without the program, and programs that serve nobody") {
    static const char *const useless[] = {"exit 3", "printf 'PMIX_RANK=0\\n'", "kill -9 $$",
                                          "head -c 20000 /dev/zero | tr '\\0' x; sleep 1"};
    begin(NULL);
    CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 0, 2, &host), SYMMEM_OK);
    expect_no_manager();
    end();
    for (size_t i = 0; i < sizeof useless / sizeof useless[0]; i++) {
        begin(useless[i]);
        CU_ASSERT_EQUAL(symmem_kit_pmix_open(&host, &exchange, 0, 2, &host), SYMMEM_SYSTEM);
        expect_no_manager();
        end();
    }
}
