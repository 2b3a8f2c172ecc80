/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SM-TIMEOUT-16: a rank that lives elsewhere ends, and the other one, which waits for it without a
 * limit, is told. Where the system lets a user make no namespaces, the cases say so and check
 * nothing.
 */
#include "places.h"
#include "unit_child.h"

enum { TOLD_MS = 1000, SLACK_MS = 1500 };

static void ends(const char *name, struct place place) {
    struct room room;
    struct report reports[2];
    room_make(&room);
    place.directory = room.store;
    place.socket_dir = place.socket_dir != NULL ? room.sockets : NULL;
    if (run_ranks(&place, reports)) {
        uint64_t told_ms = reports[0].told_ms - reports[0].began_ms;
        printf("\n    %s: %s after %llu ms", name, symmem_status_name(reports[0].status),
               (unsigned long long)told_ms);
        CU_ASSERT_EQUAL(reports[0].status, SYMMEM_PEER_LOST);
        CU_ASSERT_EQUAL(reports[0].record.failed_rank, 1);
        CU_ASSERT(symmem_error_is_missing(&reports[0].record, 1));
        CU_ASSERT(told_ms < END_AFTER_MS + TOLD_MS + SLACK_MS);
    } else {
        printf("\n    %s: not permitted here, not checked", name);
    }
    room_end(&room);
}

#define ENDS(name, end_, ...) ends(name, (struct place){.end = end_, __VA_ARGS__})

TEST("a rank of another pid namespace") {
    ENDS("together", IN_BARRIER, .flags = {0, 0});
    ENDS("pid", IN_BARRIER, .flags = {0, CLONE_NEWPID});
    ENDS("pid, before it was met", BEFORE_GROUPS, .flags = {0, CLONE_NEWPID});
    ENDS("pid of the one that waits", IN_BARRIER, .flags = {CLONE_NEWPID, 0});
    ENDS("both pid, with one number", IN_BARRIER, .flags = {CLONE_NEWPID, CLONE_NEWPID});
    ENDS("pid and time", IN_BARRIER, .flags = {0, CLONE_NEWPID | CLONE_NEWTIME});
    ENDS("pid and user", IN_BARRIER, .flags = {0, CLONE_NEWUSER | CLONE_NEWPID});
    ENDS("pid and net, sockets in a directory", IN_BARRIER, .socket_dir = "",
         .flags = {0, CLONE_NEWPID | CLONE_NEWNET});
}

TEST("a rank that has its own view of the system") {
    ENDS("all, sockets in a directory", IN_BARRIER, .socket_dir = "", .own = {0, OWN_BOOT_ID},
         .flags = {0, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                          CLONE_NEWTIME});
    ENDS("time", IN_BARRIER, .flags = {0, CLONE_NEWTIME});
    ENDS("boot id and pid", IN_BARRIER, .own = {0, OWN_BOOT_ID},
         .flags = {0, CLONE_NEWNS | CLONE_NEWPID});
    ENDS("boot ids", IN_BARRIER, .own = {OWN_BOOT_ID, OWN_BOOT_ID},
         .flags = {CLONE_NEWNS, CLONE_NEWNS});
    ENDS("no boot id", IN_BARRIER, .own = {OWN_EMPTY_BOOT_ID, OWN_EMPTY_BOOT_ID},
         .flags = {CLONE_NEWNS, CLONE_NEWNS});
    ENDS("no /proc", IN_BARRIER, .own = {0, OWN_NO_PROC}, .flags = {0, CLONE_NEWNS});
    ENDS("the one that waits has no /proc", IN_BARRIER, .own = {OWN_NO_PROC, 0},
         .flags = {CLONE_NEWNS, 0});
}

/* Its process lives on, and is no rank any more. */
TEST("a rank that becomes another program") {
    ENDS("together", BY_EXEC, .flags = {0, 0});
    ENDS("user", BY_EXEC, .flags = {0, CLONE_NEWUSER});
}

/* Both in one pid namespace, /proc another's. In a child: all its children are there from now. */
static void see_others_numbers(void) {
    if (!leave(CLONE_NEWPID)) {
        printf("\n    not permitted here, not checked");
        (void)fflush(NULL);
        _exit(CHOSEN);
    }
    pid_t first = fork(); /* without it the namespace would end */
    if (first == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    if (first < 0)
        _exit(NO_WORLD);
    ENDS("together", IN_BARRIER, .flags = {0, 0});
    ENDS("together, another program", BY_EXEC, .flags = {0, 0});
    kill(first, SIGKILL);
    CU_ASSERT_EQUAL(waitpid(first, NULL, 0), first);
    (void)fflush(NULL);
    _exit(CU_get_number_of_failure_records() == 0 ? CHOSEN : 1);
}

TEST("a rank that sees others' numbers") {
    CU_ASSERT(has_chosen(end_in_child(see_others_numbers)));
}
