/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of one rank: everything works, no rank is waited for. */
#include "case_help.h"

static symmem_group *single(struct tk *t) {
    const int32_t own = t->rank;
    return tk_group(t, "single", &own, 1);
}

TK_TEST(group_single, exchanges, "SM-GROUP-08,SM-EXCHANGE-06", .max_ranks = 4) {
    symmem_group *group = single(t);
    uint32_t given = 0xC0FFEE, got = 0;
    int pair[2], fds[2] = {-2, -2};
    TK_REQ(t, "SM-GROUP-08");
    TK_OK(t, symmem_group_all_gather(group, &given, sizeof(given), &got, LONG_MS));
    TK_EQ_INT(t, given, got);
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
    TK_REQUIRE(t, pipe2(pair, O_CLOEXEC) == 0);
    TK_OK(t, symmem_group_all_gather_fds(group, pair[1], &fds[0], LONG_MS));
    TK_OK(t, symmem_group_broadcast_fds(group, 0, pair[1], &fds[1], LONG_MS));
    for (int i = 0; i < 2; i++) {
        char letter = 0;
        TK_CHECK(t, fds[i] >= 0 && fds[i] != pair[1]);
        if (TK_EQ_INT(t, 1, write(fds[i], "w", 1)))
            TK_EQ_INT(t, 1, read(pair[0], &letter, 1));
        TK_EQ_INT(t, 0, close(fds[i]));
    }
    TK_OK(t, symmem_group_all_gather_fds(group, -1, &fds[0], LONG_MS));
    TK_EQ_INT(t, -1, fds[0]);
    close(pair[0]);
    close(pair[1]);
}

TK_TEST(group_single, descriptor_to_itself, "SM-GROUP-08,SM-EXCHANGE-06", .max_ranks = 2) {
    symmem_group *group = single(t);
    int pair[2], fd = -2;
    char letter = 0;
    TK_REQ(t, "SM-GROUP-08");
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
    TK_REQUIRE(t, pipe2(pair, O_CLOEXEC) == 0);
    if (TK_OK(t, symmem_group_send_fd(group, 0, pair[1], LONG_MS)) &&
        TK_OK(t, symmem_group_recv_fd(group, 0, &fd, LONG_MS)) &&
        TK_EQ_INT(t, 1, write(fd, "w", 1)))
        TK_EQ_INT(t, 1, read(pair[0], &letter, 1));
    if (fd >= 0)
        close(fd);
    close(pair[0]);
    close(pair[1]);
}

TK_TEST(group_single, operations, "SM-GROUP-08", .max_ranks = 4) {
    symmem_handle *handle;
    symmem_handle_info info = {0};
    int32_t last;
    handle = tk_handle(t, 4096, single(t));
    TK_OK(t, symmem_handle_get_info(handle, &info));
    TK_EQ_INT(t, 0, info.rank);
    TK_EQ_INT(t, 1, info.world_size);
    last = info.channel_count - 1;
    tk_fill(t, handle, 0, 0, 4096, 0x3C);
    tk_expect_bytes(t, handle, 0, 0, 4096, 0x3C);
    for (int round = 0; round < 3; round++) {
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        TK_OK(t, symmem_barrier(handle, last, 1, NULL));
        TK_OK(t, symmem_put_signal(handle, 0, last, LONG_MS, NULL));
        TK_OK(t, symmem_wait_signal(handle, 0, last, LONG_MS, NULL));
    }
    TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, 0, 0, 50, NULL));
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_put_signal(handle, 1, 0, LONG_MS, NULL));
}

/* A rank's own group does not need the others: they make no call meanwhile. */
TK_TEST(group_single, needs_nobody, "SM-GROUP-08", .ranks = {2, 4}) {
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        if (rank == t->rank)
            TK_OK(t, symmem_barrier(tk_handle(t, 64, single(t)), 0, LONG_MS, NULL));
        tk_out_of_band_barrier(t);
    }
}

TK_TEST(group_single, on_streams, "SM-GROUP-08", .needs = SYMMEM_CAP_STREAMS, .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, single(t));
    symmem_stream *stream = tk_stream(t);
    TK_OK(t, symmem_put_signal(handle, 0, 1, LONG_MS, stream));
    TK_OK(t, symmem_wait_signal(handle, 0, 1, LONG_MS, stream));
    TK_OK(t, symmem_barrier(handle, 1, LONG_MS, stream));
    tk_synchronize(t, stream);
}
