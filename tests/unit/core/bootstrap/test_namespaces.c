/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ranks of one machine, one of them in namespaces of its own: they reach each other, or both
 * are told within their limit, and neither hangs. Where the system lets a
 * user make no namespaces, the cases say so and check nothing.
 */
#include "places.h"

/* Both work, or both are told that the other is out of reach. */
static void expect_clear(const char *name, const struct report reports[2]) {
    printf("\n    %s: %s, %s %s", name, symmem_status_name(reports[0].status),
           symmem_status_name(reports[1].status), reports[0].record.message);
    CU_ASSERT_EQUAL(reports[0].status, reports[1].status);
    for (int32_t r = 0; r < 2; r++) {
        CU_ASSERT(reports[r].took_ms < LIMIT_MS);
        if (reports[r].status == SYMMEM_OK)
            continue;
        CU_ASSERT_EQUAL(reports[r].status, SYMMEM_UNREACHABLE);
        CU_ASSERT_EQUAL(reports[r].record.status, SYMMEM_UNREACHABLE);
        /* What the lowest rank found goes to all. */
        CU_ASSERT_EQUAL(reports[r].record.failed_rank, 1);
        CU_ASSERT(symmem_error_is_missing(&reports[r].record, 1));
        CU_ASSERT_PTR_NOT_NULL(strstr(reports[r].record.message, "namespace"));
    }
}

enum sockets { WITHOUT_NAMES = 0, IN_A_DIRECTORY, IN_A_HIDDEN_DIRECTORY, FIRST_IN_A_DIRECTORY };

static void apart(const char *name, int first, int second, enum sockets sockets,
                  symmem_status expected) {
    struct room room;
    struct report reports[2];
    room_make(&room);
    const struct place place = {
        .directory = room.store,
        .socket_dir = sockets == WITHOUT_NAMES ? NULL : room.sockets,
        .own = {0, sockets == IN_A_HIDDEN_DIRECTORY ? OWN_SOCKET_DIR : OWN_NOTHING},
        .of_first = sockets == FIRST_IN_A_DIRECTORY,
        .flags = {first, second}};
    if (run_ranks(&place, reports)) {
        expect_clear(name, reports);
        CU_ASSERT_EQUAL(reports[0].status, expected);
    } else {
        printf("\n    %s: not permitted here, not checked", name);
    }
    room_end(&room);
}

TEST("in one place") {
    struct room room;
    struct report reports[2];
    room_make(&room);
    const struct place place = {.directory = room.store, .socket_dir = NULL, .flags = {0, 0}};
    CU_ASSERT_FATAL(run_ranks(&place, reports));
    expect_clear("together", reports);
    CU_ASSERT_EQUAL(reports[0].status, SYMMEM_OK);
    room_end(&room);
}

TEST("one rank elsewhere") {
    for (enum sockets sockets = WITHOUT_NAMES; sockets <= IN_A_DIRECTORY; sockets++) {
        apart("ipc", 0, CLONE_NEWIPC, sockets, SYMMEM_OK);
        apart("uts", 0, CLONE_NEWUTS, sockets, SYMMEM_OK);
        apart("mount", 0, CLONE_NEWNS, sockets, SYMMEM_OK);
        apart("pid", 0, CLONE_NEWPID, sockets, SYMMEM_OK);
        apart("pid, other rank", CLONE_NEWPID, 0, sockets, SYMMEM_OK);
    }
}

/* Sockets without a file name end at the network namespace, those with one do not. */
TEST("other networks and file systems") {
    apart("net", 0, CLONE_NEWNET, WITHOUT_NAMES, SYMMEM_UNREACHABLE);
    apart("net, other rank", CLONE_NEWNET, 0, WITHOUT_NAMES, SYMMEM_UNREACHABLE);
    apart("net, sockets in a directory", 0, CLONE_NEWNET, IN_A_DIRECTORY, SYMMEM_OK);
    /* The second would reach the first, which does not reach it. */
    apart("net, sockets of one in a directory", 0, CLONE_NEWNET, FIRST_IN_A_DIRECTORY,
          SYMMEM_UNREACHABLE);
    apart("sockets in a hidden directory", 0, CLONE_NEWNS, IN_A_HIDDEN_DIRECTORY,
          SYMMEM_UNREACHABLE);
}

/* Both are process 1 of their namespaces: a pid says nothing. */
TEST("both elsewhere, with one number") {
    apart("both pid", CLONE_NEWPID, CLONE_NEWPID, WITHOUT_NAMES, SYMMEM_OK);
    apart("both pid and net", CLONE_NEWPID | CLONE_NEWNET, CLONE_NEWPID | CLONE_NEWNET,
          IN_A_DIRECTORY, SYMMEM_OK);
}

static void apart_with(const char *name, enum own first, enum own second) {
    struct room room;
    struct report reports[2];
    room_make(&room);
    const struct place place = {
        .directory = room.store,
        .own = {first, second},
        .flags = {first != OWN_NOTHING ? CLONE_NEWNS : 0, second != OWN_NOTHING ? CLONE_NEWNS : 0}};
    if (run_ranks(&place, reports)) {
        expect_clear(name, reports);
        CU_ASSERT_EQUAL(reports[0].status, SYMMEM_OK);
    } else {
        printf("\n    %s: not permitted here, not checked", name);
    }
    room_end(&room);
}

/* They are on one host whatever they take its name to be. */
TEST("one host under several names") {
    apart_with("boot id of its own", OWN_NOTHING, OWN_BOOT_ID);
    apart_with("boot ids of their own", OWN_BOOT_ID, OWN_BOOT_ID);
    apart_with("no boot id", OWN_EMPTY_BOOT_ID, OWN_NOTHING);
    apart_with("no /proc", OWN_NOTHING, OWN_NO_PROC);
    apart_with("neither has /proc", OWN_NO_PROC, OWN_NO_PROC);
    apart("time", 0, CLONE_NEWTIME, WITHOUT_NAMES, SYMMEM_OK);
    apart("user", 0, CLONE_NEWUSER, WITHOUT_NAMES, SYMMEM_OK);
}
