/* SPDX-License-Identifier: BSD-3-Clause */
/* Bring-up, exchanges, agreement: ranks as threads and as processes. */
#include "bootstrap/session_internal.h"
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

#include <sys/time.h>

/* --- plain -------------------------------------------------------------------------- */

static int body_plain(test_rank *self) {
    symmem_clear_error();
    for (int i = 0; i < 20; i++)
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    EXPECT(sm_session_id(self->session) != 0);
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    EXPECT(sm_session_agree(self->session, "op", "end", SYMMEM_OK, sm_deadline_ns(10000)) ==
           SYMMEM_OK);
    /* Empty exchanges are barriers. */
    EXPECT(sm_session_all_gather(self->session, "op", "b", NULL, 0, NULL, true, 0) == SYMMEM_OK);
    for (int32_t i = 0; i < self->world_size; i++)
        EXPECT(sm_identity_same_process(sm_session_peer(self->session, i), &self->identity));
    /* Success leaves the record alone. */
    EXPECT(last_record().status == SYMMEM_OK);
    return 0;
}

TEST("alone without store") {
    test_rank ranks[1];
    prepare_ranks(ranks, 1, NULL, body_plain, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 1));
}

/* --- store traffic ------------------------------------------------------------------ */

/* arg: how many rounds. */
static int body_many(test_rank *self) {
    for (int i = 0; i < *(const int *)self->arg; i++)
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    return 0;
}

TEST("keys go") {
    char path[FOLDER_BYTES];
    test_rank ranks[4];
    pid_t pids[4];
    int rounds = 300;
    CU_ASSERT_FATAL(fork_world(ranks, pids, 4, body_many, &rounds, path));
    for (int i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), 0);
    CU_ASSERT_EQUAL(count_files(path, 'k'), 4); /* the identities */
    CU_ASSERT_EQUAL(count_files(path, 't'), 0);
    remove_tree(path);
}

/* --- size and call mismatch, large values ------------------------------------------- */

static int body_mismatch(test_rank *self) {
    uint8_t in[64] = {0}, out[64 * 8];
    uint64_t deadline_ns = sm_deadline_ns(10000);
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    uint64_t id = sm_session_id(self->session);
    EXPECT(sm_session_all_gather(self->session, "op", "s", in, self->rank == 2 ? 60 : 64, out, true,
                                 deadline_ns) == SYMMEM_MISMATCH);
    EXPECT(last_record().failed_rank == 2 && last_record().rank == self->rank);
    EXPECT(last_record().expected == 64 && last_record().actual == 60);
    EXPECT(strcmp(last_record().operation, "op") == 0 && strcmp(last_record().group, "test") == 0);
    EXPECT(sm_session_all_gather(self->session, self->rank == 1 ? "other" : "op", "s", in, 64, out,
                                 true, deadline_ns) == SYMMEM_MISMATCH);
    EXPECT(last_record().failed_rank == 1);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    EXPECT(sm_session_id(self->session) == id); /* agreed failures keep the session */
    return 0;
}

static int body_large(test_rank *self) {
    size_t bytes = 300000, count = (size_t)self->world_size;
    uint8_t *in = malloc(2u << 20), *out = malloc(count * bytes);
    EXPECT(in != NULL && out != NULL);
    memset(in, 'a' + self->rank, 2u << 20);
    uint64_t deadline_ns = sm_deadline_ns(10000);
    /* Together more than a value takes. */
    symmem_status first =
        sm_session_all_gather(self->session, "op", "s", in, bytes, out, true, deadline_ns);
    bool right = true;
    for (size_t i = 0; i < count * bytes; i++)
        right = right && out[i] == 'a' + (int)(i / bytes);
    /* Alone more than a value takes: refused by all. */
    symmem_status second =
        sm_session_all_gather(self->session, "op", "s", in, 2u << 20, NULL, true, deadline_ns);
    /* Only one is too large, or one is larger than the others can hold. */
    symmem_status third = sm_session_all_gather(
        self->session, "op", "s", in, self->rank == 0 ? 2u << 20 : 8, out, true, deadline_ns);
    symmem_status fourth = sm_session_all_gather(
        self->session, "op", "s", in, self->rank == 0 ? 400000 : 8, out, true, deadline_ns);
    free(in);
    free(out);
    EXPECT(first == SYMMEM_OK && right);
    EXPECT(second == SYMMEM_OUT_OF_RANGE);
    EXPECT(third == SYMMEM_MISMATCH && fourth == SYMMEM_MISMATCH);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    return 0;
}

TEST("sizes") {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[4];
    prepare_ranks(ranks, 4, store, body_mismatch, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 4));
    prepare_ranks(ranks, 4, store, body_large, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 4));
    symmem_store_close(store);
}

/* --- agreement ---------------------------------------------------------------------- */

static int body_agree(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    symmem_status own = SYMMEM_OK;
    if (self->rank >= 1) {
        own = sm_fail(self->rank == 1 ? SYMMEM_NO_SPACE : SYMMEM_LIMIT, "rendezvous", "map",
                      "from rank %d", self->rank);
        (void)sm_error_sizes(77, 0);
        (void)sm_error_errno(ENOSPC);
    }
    EXPECT(sm_session_agree(self->session, "op", "end", own, sm_deadline_ns(10000)) ==
           SYMMEM_NO_SPACE);
    const symmem_error_record last = last_record(), *record = &last;
    EXPECT(record->failed_rank == 1 && record->rank == self->rank && record->world_size == 3);
    EXPECT(record->expected == 77 && record->system_errno == ENOSPC);
    EXPECT(strcmp(record->message, "from rank 1") == 0);
    EXPECT(strcmp(record->operation, "rendezvous") == 0 && strcmp(record->stage, "map") == 0);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    /* A record that names another rank keeps naming it. */
    if (self->rank == 0) {
        own = sm_fail(SYMMEM_PEER_LOST, "op", "x", "lost");
        (void)sm_error_missing(2);
    } else {
        own = SYMMEM_OK;
    }
    EXPECT(sm_session_agree(self->session, "op", "end", own, sm_deadline_ns(10000)) ==
           SYMMEM_PEER_LOST);
    EXPECT(last_record().failed_rank == 2);
    EXPECT(last_record().missing_count == 1 && last_is_missing(2));
    return 0;
}

TEST("agree") {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[3];
    prepare_ranks(ranks, 3, store, body_agree, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
}

/* An own failure wins over the exchange's, and the same operation does not start a bring-up. */
static int body_agree_alone(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank != 0)
        return 0;
    uint64_t deadline_ns = sm_deadline_ns(100);
    sm_fail(SYMMEM_LIMIT, "op", "x", "mine");
    EXPECT(sm_session_agree(self->session, "op", "end", SYMMEM_LIMIT, deadline_ns) == SYMMEM_LIMIT);
    EXPECT(strcmp(last_record().message, "mine") == 0);
    EXPECT(sm_session_id(self->session) == 0);
    EXPECT(sm_session_agree(self->session, "op", "end", SYMMEM_OK, deadline_ns) == SYMMEM_TIMEOUT);
    EXPECT(strstr(last_record().message, "an earlier step") != NULL);
    return 0;
}

TEST("agree alone") {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[2];
    prepare_ranks(ranks, 2, store, body_agree_alone, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

/* --- odds and ends ------------------------------------------------------------------ */

static int body_bad_join(test_rank *self) {
    if (self->rank == 0) {
        EXPECT(symmem_store_set(self->store, "g/test/j/1", "nonsense", 8, 0) == SYMMEM_OK);
        EXPECT(gather(self, "op", true, 5000) == SYMMEM_MISMATCH);
        EXPECT(last_record().failed_rank == 1);
    }
    return 0;
}

static int body_bad_socket(test_rank *self) {
    /* Rank 1 cannot make its socket. The bring-up tells all ranks at once. */
    EXPECT(gather(self, "op", true, 5000) == SYMMEM_PATH_TOO_LONG);
    EXPECT(last_record().failed_rank == 1 && last_record().rank == self->rank);
    EXPECT(strcmp(last_record().stage, "join") == 0);
    EXPECT(sm_session_id(self->session) == 0);
    return 0;
}

TEST("odds and ends") {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[3];
    prepare_ranks(ranks, 2, store, body_bad_join, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    CU_ASSERT_EQUAL(symmem_store_remove(store, "g/test/j/1", 0), SYMMEM_OK);
    char directory[200];
    memset(directory, 'x', sizeof(directory) - 1);
    directory[0] = '/';
    directory[sizeof(directory) - 1] = '\0';
    prepare_ranks(ranks, 3, store, body_bad_socket, NULL);
    ranks[1].socket_dir = directory;
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);

    char prefix[190];
    memset(prefix, 'p', sizeof(prefix) - 1);
    prefix[sizeof(prefix) - 1] = '\0';
    sm_session_config config = {.prefix = prefix, .world_size = 2};
    sm_session *session = NULL;
    CU_ASSERT_EQUAL(sm_session_create(&config, &session), SYMMEM_INVALID_ARGUMENT);
    sm_session_destroy(NULL);
}

/* A rank that gives up removes its own join record and not that of a successor that has come
 * meanwhile. Rank 0 acts as the successor of rank 1. */
static int body_successor_joins(test_rank *self) {
    char key[SM_SESSION_KEY_BYTES] = "g/test/j/1";
    sm_join join, found;
    size_t bytes = 0;
    if (self->rank == 1) {
        EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(1500)) == SYMMEM_TIMEOUT);
        EXPECT(symmem_store_set(self->store, "gave-up", NULL, 0, 0) == SYMMEM_OK);
        return 0;
    }
    EXPECT(symmem_store_wait(self->store, key, 10000) == SYMMEM_OK);
    EXPECT(symmem_store_get(self->store, key, &join, sizeof join, &bytes, 0) == SYMMEM_OK);
    join.nonce[0] ^= 1;
    EXPECT(symmem_store_set(self->store, key, &join, sizeof join, 0) == SYMMEM_OK);
    EXPECT(symmem_store_wait(self->store, "gave-up", 10000) == SYMMEM_OK);
    EXPECT(symmem_store_get(self->store, key, &found, sizeof found, &bytes, 0) == SYMMEM_OK);
    EXPECT(memcmp(&join, &found, sizeof join) == 0);
    return 0;
}

TEST("a successor joins") {
    CU_ASSERT_TRUE(run_first(2, 2, body_successor_joins));
}

/* By their identities ranks 0 and 2 are on two hosts, and rank 1 is on the host of both. */
static int body_between(test_rank *self) {
    static const uint64_t boot_ids[] = {11, 0, 22};
    self->identity.boot_id = boot_ids[self->rank];
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    for (int32_t rank = 0; rank < 3; rank++)
        EXPECT(sm_session_same_host(self->session, self->rank, rank));
    EXPECT(sm_session_all_gather(self->session, "op", "", &self->rank, 0, NULL, true,
                                 sm_deadline_ns(10000)) == SYMMEM_OK);
    return 0;
}

TEST("one host by way of another rank") {
    CU_ASSERT_TRUE(run_first(3, 3, body_between));
}
