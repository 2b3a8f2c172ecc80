/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases that must pass, be skipped or not be planned. */
#include "kit_internal.h"

#include <sys/prctl.h>

#define KEPT_NAME "symmem-kept"

/* No leak of the backend's. */
static void driver_keeps(struct tk *t) {
    extern bool selfcheck_driver_keeps(size_t bytes);
    extern int selfcheck_driver_socket(void);
    extern bool selfcheck_user_keeps(size_t bytes);
    extern bool selfcheck_use_library(size_t bytes, bool asks);
    TK_CHECK(t, selfcheck_driver_keeps(4096));
    if (KIT_OWNS_ALLOCATION) /* a sanitizer finds it at the end */
        TK_CHECK(t, selfcheck_user_keeps(96));
    struct tk_mappings before, now;
    TK_CHECK(t, tk_shared_mappings(&before));
    if (KIT_OWNS_ALLOCATION)
        TK_CHECK(t, selfcheck_use_library(8192, true));
    TK_CHECK(t, tk_shared_mappings(&now));
    TK_EQ_INT(t, now.own, before.own);
    TK_EQ_INT(t, now.librarys, before.librarys + KIT_OWNS_ALLOCATION);
    int fd = selfcheck_driver_socket();
    TK_CHECK(t, fd >= 0);
    TK_EQ_INT(t, KIT_OWNS_ALLOCATION, tk_is_foreign_socket(fd));
    if (!KIT_OWNS_ALLOCATION)
        close(fd);
}

/* What a backend in C++ gets from operator new, and what it gets where there is none. */
static void news_are_given_back(struct tk *t) {
#ifdef SELFCHECK_IN_CXX
    extern bool selfcheck_new_gives_back(size_t bytes);
    extern bool selfcheck_new_throws(void);
    TK_CHECK(t, selfcheck_new_gives_back(96));
    if (KIT_OWNS_ALLOCATION) /* a sanitizer may end the process instead */
        TK_CHECK(t, selfcheck_new_throws());
#else
    (void)t;
#endif
}

static void passes(struct tk *t) {
    TK_REQ(t, "SM-SELF-01");
    if (t->rank == 0)
        driver_keeps(t);
    news_are_given_back(t);
    TK_CHECK(t, t->rank >= 0 && t->rank < t->world_size);
    TK_CHECK(t, t->context != NULL);
    TK_STATUS(t, SYMMEM_OK, SYMMEM_OK);
}

static void must_not_run(struct tk *t) {
    TK_CHECK_MSG(t, false, "this case must not run");
}

static void one_rank_checks(struct tk *t) {
    if (t->rank == 0)
        TK_CHECK(t, true);
}

/* The controller's processes, or 0 where the system does not tell. */
static int controllers_children(void) {
    char path[64];
    int count = 0;
    long pid;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    FILE *file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%ld", &pid) == 1)
        count++;
    if (file != NULL)
        fclose(file);
    return count;
}

static void dies_as_announced(struct tk *t) {
    static int cases; /* of this process: who lives is kept */
    cases++;
    TK_CHECK(t, t->rank >= 0);
    tk_out_of_band_barrier(t);
    if (t->rank == 1)
        tk_kill_self(t);
    tk_expect_death(t, 1);
    TK_CHECK(t, tk_wait_death(t, 1, tk_scaled_ms(5000)));
    if (t->rank == 0)
        tk_note(t, "case %d of its process", cases);
    tk_out_of_band_barrier(t);
}

/* Kept ranks that idle beside a case would hold the device that it uses. */
static void alone(struct tk *t) {
    int children = controllers_children() - 1; /* the one that measures the machine's lateness */
    TK_CHECK_MSG(t, children <= t->world_size, "%d ranks and %d processes", (int)t->world_size,
                 children);
    tk_out_of_band_barrier(t);
}

/* For kept ranks. */
static void ends_slowly(struct tk *t) {
    extern int selfcheck_exit_ms;
    TK_CHECK(t, true);
    selfcheck_exit_ms = 1500;
}

static void waits_under_a_name(struct tk *t) {
    TK_CHECK(t, prctl(PR_SET_NAME, KEPT_NAME) == 0);
}

/* Of the controller's children those which have that name. */
static void ends_the_kept(struct tk *t) {
    char path[64], name[32];
    FILE *children, *comm;
    int pid, ended = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    children = fopen(path, "re");
    TK_REQUIRE(t, children != NULL);
    while (t->rank == 0 && fscanf(children, "%d", &pid) == 1) {
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        comm = fopen(path, "re");
        if (comm != NULL && fgets(name, sizeof(name), comm) != NULL &&
            strcmp(name, KEPT_NAME "\n") == 0 && pid >= 2)
            ended += kill(pid, SIGALRM) == 0;
        if (comm != NULL)
            fclose(comm);
    }
    fclose(children);
    TK_CHECK(t, t->rank != 0 || ended == t->world_size);
}

/* What ranks have met before is the same for all: they were started together. */
static void have_met(struct tk *t) {
    extern int selfcheck_meetings;
    static int32_t ranks; /* of the cases of this process */
    TK_CHECK(t, ranks == 0 || ranks == t->world_size);
    ranks = t->world_size;
    TK_CHECK(t, tk_all_agree(t, 0, selfcheck_meetings >= 3)); /* two by the kit, and this case's */
    tk_share_u64(t, 1, (uint64_t)selfcheck_meetings);
    tk_out_of_band_barrier(t);
    for (int32_t rank = 0; rank < t->world_size; rank++)
        TK_EQ_INT(t, selfcheck_meetings, tk_read_u64(t, rank, 1));
    if (t->rank == 0)
        tk_note(t, "%d meetings", selfcheck_meetings);
}

static void met_and_lost(struct tk *t) {
    have_met(t);
    dies_as_announced(t);
}

static void capped_ranks(struct tk *t) {
    TK_EQ_INT(t, t->world_size < 2 ? t->world_size : 2, t->world_size);
}

static void prints(struct tk *t) {
    TK_CHECK(t, fputs("printed by a rank\n", stderr) >= 0);
}

static const struct tk_case rows[] = {
    TK_CASE("good.passes", passes, "SM-SELF-01"),
    TK_CASE("good.one_rank_checks", one_rank_checks, "SM-SELF-01"),
    TK_CASE("good.skipped", must_not_run, "SM-SELF-01,SM-SELF-02", .needs = SYMMEM_CAP_MULTICAST),
    TK_CASE("good.many_ranks", must_not_run, "SM-SELF-01", .min_ranks = 1024),
    TK_CASE("good.large", passes, "SM-SELF-01", .flags = TK_LARGE),
    TK_CASE("good.capped_ranks", capped_ranks, "SM-SELF-01", .max_ranks = 2),
    TK_CASE("good.dies_as_announced", dies_as_announced, "SM-SELF-01", .min_ranks = 2,
            .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK),
    TK_CASE("alone.has_own_processes", alone, "SM-SELF-01",
            .flags = TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT),
    TK_CASE("kept.ends_slowly", ends_slowly, "SM-SELF-01", .flags = TK_PROCESS_ONLY),
    TK_CASE("kept.waits_under_a_name", waits_under_a_name, "SM-SELF-01", .flags = TK_PROCESS_ONLY),
    TK_CASE("kept.ends_the_kept", ends_the_kept, "SM-SELF-01",
            .flags = TK_PROCESS_ONLY | TK_NO_BACKEND),
    TK_CASE("met.alone", passes, "SM-SELF-01", .max_ranks = 1),
    TK_CASE("met.all", have_met, "SM-SELF-01", .min_ranks = 2),
    TK_CASE("met.all_again", have_met, "SM-SELF-01", .min_ranks = 2),
    TK_CASE("met.alone_again", passes, "SM-SELF-01", .max_ranks = 1),
    TK_CASE("met.two", have_met, "SM-SELF-01", .ranks = {2, 2}),
    TK_CASE("met.lost", met_and_lost, "SM-SELF-01", .min_ranks = 2,
            .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK),
    TK_CASE("good.prints", prints, "SM-SELF-01"),
    TK_CASE("good.threads", passes, "SM-SELF-01", .flags = TK_THREAD_ONLY),
};
TK_SUITE(good, rows);
