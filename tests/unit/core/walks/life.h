/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole life of a rank, of which the including file lets one step fail. Whatever fails, calls
 * return a status with a record, nothing hangs, and no descriptor or mapping is left. Include it in
 * one file of a program.
 */
#ifndef LIFE_H
#define LIFE_H

#include <dirent.h>
#include <fnmatch.h>
#include <ftw.h>
#include <sys/eventfd.h>

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "folder.h"
#include "unit_clock.h"
#include "unit_main.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

enum {
    LIFE_WORKERS = 8,    /* they mostly wait */
    LIFE_LONGEST_S = 30, /* for one run: nothing hangs */
};

/* The first call of the library that failed. */
struct life_failure {
    char call[64]; /* without prefix; "": none */
    int calls;     /* that may fail, up to its end */
    symmem_error_record record;
};

/* How one rank lives. */
struct life {
    int32_t rank, world_size;
    symmem_store *store;    /* NULL: a world of one */
    const char *store_path; /* not NULL: opens a file store of its own */
    const char *socket_dir;
    int32_t multicast;
    bool finalize_first; /* objects outlive their context */
    int nth;             /* the call to fail, 0 none */
    int calls;           /* that may fail, as far as it got */
    bool finished;       /* every step succeeded */
    const char *name;
    const symmem_clock *clock; /* NULL: the machine's */
    const char *failed_in;     /* whose call failed: text of this file */
    struct life_failure first;
};

/* The calls that fail, and how. The program sets them before ranks start. */
static struct life_faults {
    const symmem_backend *table;
    /* The nth call of the calling thread fails; 0: none. NULL: life_strikes says so. */
    void (*arm)(int nth);
    int (*disarm)(const char **name_p); /* how many calls there were, which one failed */
    symmem_store *(*open_store)(void);  /* for several ranks; NULL: one in memory */
    symmem_point_fn point;              /* of the contexts; or NULL */
    bool harmless;                      /* what fails is made up for: all goes well */
    /* Not NULL: looks at what a failure has led to, if the rank got as far; `other` is NULL for a
     * rank alone. Waiting takes no time then. */
    void (*judge)(const struct life *own, const struct life *other, int nth);
    bool goes_on;      /* what ranks agree on leaves all as it was */
    bool waits;        /* over files by the machine's clock all the same */
    int (*live)(void); /* of what all threads made, how much there is; or NULL */
} life_faults;

/* Set before the ranks start. The other rank waits this long for one that failed; long where
 * nothing fails. */
static uint32_t life_limit_ms;
static bool life_fails; /* in this run some call fails */
static _Thread_local bool life_finalizing;
/* The calling thread's rank, its current call, and the call in which a step failed. */
static _Thread_local struct life *life_own;
static _Thread_local const char *life_call, *life_failed_in;
static _Thread_local int life_calls, life_fail_at;
static _Thread_local const char *life_failed;

static void life_arm(int nth) {
    life_calls = 0;
    life_fail_at = nth;
    life_failed = life_failed_in = NULL;
    if (life_faults.arm != NULL)
        life_faults.arm(nth);
}

static int life_disarm(const char **name_p) {
    life_fail_at = 0;
    *name_p = life_failed;
    return life_faults.arm != NULL ? life_faults.disarm(name_p) : life_calls;
}

/* Counts a step that may fail. True once, for the step that fails. */
__attribute__((unused)) static bool life_strikes(const char *name) {
    if (++life_calls != life_fail_at)
        return false;
    life_failed = name;
    life_failed_in = life_call;
    return true;
}

/* `patterns` ends with NULL. */
__attribute__((unused)) static bool life_is_one_of(const char *name, const char *const *patterns) {
    while (*patterns != NULL && fnmatch(*patterns, name, 0) != 0)
        patterns++;
    return *patterns != NULL;
}

/* --- what may be left --------------------------------------------------------------- */

static int life_count_descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

/* Lists the open descriptors when a check of them failed. */
static void life_list_descriptors(void) {
    char path[32], target[256];
    for (int fd = 0; fd < 64; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        if (length >= 0)
            printf("    %d: %.*s\n", fd, (int)length, target);
    }
}

static int life_count_shared_mappings(void) {
    int count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        if (strstr(line, "(deleted)") != NULL || strstr(line, "memfd:") != NULL ||
            strstr(line, "symmem") != NULL)
            count++;
    if (maps != NULL)
        fclose(maps);
    return count;
}

/* Streams' threads may be at it still. */
static void life_expect_live(int wanted, const struct life *life) {
    for (int i = 0; i < 1000 && life_faults.live() != wanted; i++)
        usleep(10000);
    if (life_faults.live() != wanted)
        printf("\n  call %d (%s): %d are left\n", life->nth, life->name,
               life_faults.live() - wanted);
    CU_ASSERT_EQUAL(life_faults.live(), wanted);
}

static int life_remove_entry(const char *path, const struct stat *info, int kind,
                             struct FTW *place) {
    return remove(path);
}

/* A failing call must leave a record of that status. */
static symmem_status life_note_at(symmem_status status, int line) {
    symmem_error_record record;
    symmem_last_error(&record);
    if (status != SYMMEM_OK) {
        if (life_own->first.call[0] == '\0') {
            (void)sscanf(life_call, "symmem_%63[a-z0-9_]", life_own->first.call);
            life_own->first.record = record;
            if (life_faults.judge != NULL)
                life_own->first.calls = life_disarm(&life_own->name);
        }
        if (record.status != status || !life_fails)
            printf("\n  %s returned by line %d, but the record says %s: %s/%s %s\n",
                   symmem_status_name(status), line, symmem_status_name(record.status),
                   record.operation, record.stage, record.message);
        CU_ASSERT_EQUAL(record.status, status);
        CU_ASSERT_NOT_EQUAL(record.operation[0], '\0');
        CU_ASSERT_NOT_EQUAL(record.message[0], '\0');
    }
    return status;
}

#define LIFE_EXPECT CU_ASSERT_TRUE
#include "life_steps.h"

/* --- the life ----------------------------------------------------------------------- */

static symmem_status life_begin(const struct life *life, struct life_objects *own) {
    symmem_status status;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = life->rank;
    options.world_size = life->world_size;
    options.local_rank = life->rank;
    options.default_timeout_ms = life_limit_ms * 2;
    options.socket_dir = life->socket_dir;
    options.clock = life->clock;
    options.point = life_faults.point;
    options.multicast = life->multicast;
    options.store = life->store;
    if (life->store_path != NULL) {
        LIFE_TRY(symmem_store_open_file(life->store_path, &own->own_store));
        options.store = own->own_store;
    }
    LIFE_TRY(symmem_init(&options, &own->context));
    LIFE_TRY(symmem_register_backend(own->context, life_faults.table));
    LIFE_TRY(symmem_set_backend(own->context, life_faults.table->name));
    LIFE_TRY(life_queries(own));
    LIFE_TRY(symmem_group_create(own->context, "faults", NULL, 0, NULL, &own->group));
    LIFE_TRY(symmem_alloc(own->context, 5000, -1, NULL, &own->ptr));
    LIFE_TRY(symmem_rendezvous(own->context, own->ptr, own->group, life_limit_ms, &own->handle));
out:
    return status;
}

/* After a failure that all ranks agreed on the group and the memory are as good as before. */
static void life_go_on(const struct life *life, struct life_objects *own) {
    const struct life_failure *first = &life->first;
    symmem_handle *handle = NULL;
    if (!life_faults.goes_on || own->group == NULL || strcmp(first->call, "rendezvous") != 0 ||
        first->record.failed_rank < 0 || first->record.missing_count != 0)
        return;
    CU_ASSERT_EQUAL(symmem_rendezvous(own->context, own->ptr, own->group, life_limit_ms, &handle),
                    SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_barrier(handle, 5, life_limit_ms, NULL), SYMMEM_OK);
    symmem_handle_release(handle);
}

/* The body of a rank's thread. */
static void *life_live(void *arg) {
    struct life *life = arg;
    struct life_objects own = {.text = "0123456789"};
    symmem_status status;

    life_own = life;
    symmem_clear_error();
    life_arm(life->nth);
    if (life_begin(life, &own) != SYMMEM_OK)
        goto out;
    LIFE_TRY(symmem_barrier(own.handle, 0, life_limit_ms, NULL));
    /* These note their own failures. */
    if (life_exchange(life, &own) != SYMMEM_OK || life_views(life, &own) != SYMMEM_OK ||
        life_one_sided(life, &own, NULL) != SYMMEM_OK ||
        life_collectives(life, &own, NULL) != SYMMEM_OK ||
        life_products(life, &own, NULL) != SYMMEM_OK || life_streams(life, &own) != SYMMEM_OK ||
        life_reuse(&own) != SYMMEM_OK)
        goto out;
    LIFE_TRY(symmem_handle_reset(own.handle, life_limit_ms));
    LIFE_TRY(symmem_group_barrier(own.group, life_limit_ms));
    life->finished = true;
out:
    life_go_on(life, &own);
    life_call = "symmem_finalize";
    life_give_back(&own, life->finalize_first);
    life->failed_in = life_failed_in;
    life->calls = life_disarm(&life->name);
    if (life->clock != NULL)
        life->clock->threads(life->clock->arg, -1);
    return NULL;
}

/* --- the walk ----------------------------------------------------------------------- */

static void life_judge(const struct life *own, const struct life *other, int nth) {
    unsigned before = CU_get_number_of_failure_records();
    life_faults.judge(own, other, nth);
    if (own->finished && own->clock != NULL)
        CU_ASSERT(other == NULL || other->finished);
    if (CU_get_number_of_failure_records() == before)
        return;
    printf("\n  call %d, %s in %.40s\n", nth, own->name, own->failed_in);
    for (const struct life *life = own; life != NULL; life = life == own ? other : NULL) {
        const symmem_error_record *record = &life->first.record;
        printf("    rank %d, %s: %s %s/%s: %s\n", life->rank, life->first.call,
               symmem_status_name(record->status), record->operation, record->stage,
               record->message);
    }
}

/* Work that outlasted the wait for its stream may still end, in threads that go by the clock. */
static void life_close_clock(unit_clock *clock) {
    for (int i = 0; i < 1000 && unit_clock_count(clock) != 0; i++)
        usleep(10000);
    CU_ASSERT_EQUAL(unit_clock_count(clock), 0);
    unit_clock_close(clock);
}

/* Runs all ranks as threads; the nth call of rank 0, over files of the last one, fails. Returns how
 * many calls that rank made. */
static int life_run_once(int32_t world_size, int nth, bool files) {
    struct life lives[4] = {0}, *odd = &lives[files ? world_size - 1 : 0];
    pthread_t threads[4];
    char directory[FOLDER_BYTES];
    symmem_store *store = NULL;
    bool own = files && make_folder(directory); /* a walk makes thousands of files */
    bool by_clock = life_faults.judge != NULL && !(life_faults.waits && files);
    unit_clock *clock = by_clock ? unit_clock_open() : NULL;
    if (clock != NULL)
        unit_clock_threads(clock, world_size - 1);
    life_limit_ms = nth == 0 || life_faults.harmless || clock != NULL ? 10000 : 60;
    life_fails = nth != 0 && !life_faults.harmless;
    time_t begin = time(NULL);
    int before = life_count_descriptors(), mappings = life_count_shared_mappings();
    int live = life_faults.live != NULL ? life_faults.live() : 0;
    if (!own && world_size > 1 && life_faults.open_store != NULL)
        store = life_faults.open_store();
    else if (!own && world_size > 1)
        CU_ASSERT_EQUAL(symmem_store_open_memory(&store), SYMMEM_OK);
    for (int32_t rank = 0; rank < world_size; rank++) {
        lives[rank] = (struct life){.rank = rank, .world_size = world_size, .store = store};
        lives[rank].store_path = own ? directory : NULL;
        lives[rank].socket_dir = own ? directory : NULL;
        lives[rank].multicast = own ? 0 : 1;
        lives[rank].finalize_first = own;
        lives[rank].nth = &lives[rank] == odd ? nth : 0;
        lives[rank].clock = clock != NULL ? &clock->clock : NULL;
        if (pthread_create(&threads[rank], NULL, life_live, &lives[rank]) != 0)
            abort();
    }
    for (int32_t rank = 0; rank < world_size; rank++)
        pthread_join(threads[rank], NULL);
    CU_ASSERT_TRUE(time(NULL) - begin < LIFE_LONGEST_S);
    symmem_store_close(store);
    if (own)
        nftw(directory, life_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    /* Work that outlasted the wait for its stream keeps what it needs until it has ended. */
    int after = life_count_descriptors(), mappings_after = life_count_shared_mappings();
    for (int i = 0; i < 500 && (after != before || mappings_after != mappings); i++) {
        usleep(10000);
        after = life_count_descriptors();
        mappings_after = life_count_shared_mappings();
    }
    if (after != before || mappings_after != mappings)
        printf("\n  call %d (%s) of %d ranks: descriptors %d -> %d, mappings %d -> %d\n", nth,
               odd->name != NULL ? odd->name : "none", world_size, before, after, mappings,
               mappings_after);
    if (after != before)
        life_list_descriptors();
    CU_ASSERT_EQUAL(before, after);
    CU_ASSERT_EQUAL(mappings, mappings_after);
    if (life_faults.live != NULL && nth != 0)
        life_expect_live(live, odd);
    if (life_faults.judge != NULL && odd->name != NULL)
        life_judge(odd, world_size > 1 ? &lives[1 - odd->rank] : NULL, nth);
    if (clock != NULL)
        life_close_clock(clock);
    if (!life_fails) {
        for (int32_t rank = 0; rank < world_size; rank++)
            CU_ASSERT_TRUE(lives[rank].finished);
    }
    return odd->calls;
}

/* Runs one worker's share of the walk in a process of its own, because a run mostly waits. */
static void life_work(int32_t world_size, int first, int calls, bool files) {
    unsigned before = CU_get_number_of_failure_records();
    for (int nth = first; nth <= calls; nth += LIFE_WORKERS)
        (void)life_run_once(world_size, nth, files);
    const CU_FailureRecord *failure = CU_get_failure_list();
    for (unsigned i = 0; failure != NULL; failure = failure->pNext, i++)
        if (i >= before)
            printf("\n  %s:%u: %s\n", failure->strFileName, failure->uiLineNumber,
                   failure->strCondition);
    exit(CU_get_number_of_failure_records() == before ? 0 : 1);
}

static void life_walk(int32_t world_size, bool files) {
    pid_t workers[LIFE_WORKERS];
    int calls = life_run_once(world_size, 0, files);
    printf("\n  %d ranks, %s store: %d calls to fail in turn\n", world_size,
           files ? "file" : "memory", calls);
    fflush(stdout);
    /* A single rank makes few calls that a signal may interrupt, because a memory store draws no
     * name. */
    CU_ASSERT_TRUE(calls > (life_faults.harmless ? 10 : 20));
    for (int i = 0; i < LIFE_WORKERS; i++) {
        pid_t parent = getpid();
        workers[i] = fork();
        CU_ASSERT_NOT_EQUAL(workers[i], -1);
        if (workers[i] == 0) {
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
                _exit(2);
            life_work(world_size, i + 1, calls, files);
        }
    }
    for (int i = 0; i < LIFE_WORKERS; i++) {
        int ended = -1;
        if (workers[i] > 0)
            CU_ASSERT_EQUAL(waitpid(workers[i], &ended, 0), workers[i]);
        CU_ASSERT_EQUAL(ended, 0);
    }
}

TEST("each call of rank 0 of two fails") {
    life_walk(2, false);
}

TEST("each call of one rank fails") {
    if (life_faults.open_store == NULL) /* which is for several ranks */
        life_walk(1, false);
}

TEST("of two over files") {
    if (life_faults.open_store == NULL)
        life_walk(2, true);
}

/* Walks that go with `faults`: alone, two ranks, two ranks over files. The program's exit status.
 */
static int life_main(const char *name, const struct life_faults *faults) {
    life_faults = *faults;
    return unit_main(name);
}

#endif
