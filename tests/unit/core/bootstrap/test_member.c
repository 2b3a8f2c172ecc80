/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes that claim one rank, of which one comes while the other one publishes its key. */
#include "bootstrap/session_internal.h"
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

typedef struct objection { /* as in member.c */
    uint8_t to[16];
    uint32_t kind;
    int32_t rank, world_size;
    uint32_t reserved;
    sm_identity identity;
} objection;

/* What the other process does as soon as this one's key is there. */
typedef void (*other_process)(symmem_store *store, const sm_member *found);
static other_process other;
static counting counts;

static symmem_status set(void *self, const char *key, const void *value, size_t bytes,
                         uint32_t limit_ms) {
    const symmem_status status = c_set(self, key, value, bytes, limit_ms);
    if (strcmp(key, "w/id/0") == 0 && bytes == sizeof(sm_member))
        other(counts.inner, value);
    return status;
}

static sm_identity identity_of_another(const sm_member *one) {
    sm_identity identity = one->identity;
    identity.pid++;
    identity.start_time++;
    identity.life[0] ^= 1;
    return identity;
}

static void object(symmem_store *store, const sm_member *found) {
    objection no;
    memset(&no, 0, sizeof(no));
    memcpy(no.to, found->token, sizeof(no.to));
    no.kind = 1;
    no.world_size = 2;
    no.identity = identity_of_another(found);
    CU_ASSERT_EQUAL(symmem_store_set(store, "w/no/0", &no, sizeof(no), 0), SYMMEM_OK);
}

static void take_its_place(symmem_store *store, const sm_member *found) {
    sm_member member = *found;
    member.identity = identity_of_another(found);
    member.token[0] ^= 1;
    CU_ASSERT_EQUAL(symmem_store_set(store, "w/id/0", &member, sizeof(member), 0), SYMMEM_OK);
}

/* Returns what init's step returned, and *at_first_p what the first group's did. */
static symmem_status publish_with(other_process process, symmem_status *at_first_p) {
    symmem_store_ops ops = counting_ops;
    symmem_store *store = NULL;
    sm_liveness *liveness = NULL;
    sm_identity self;
    sm_member own;
    bool is_published = false;
    memset(&counts, 0, sizeof(counts));
    other = process;
    ops.set = set;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&counts.inner), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, &counts, &store), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    const sm_world world = {.store = store,
                            .prefix = "w",
                            .identity = &self,
                            .liveness = liveness,
                            .size = 2,
                            .timeout_ms = 1000};
    const symmem_status status = sm_member_publish(&world, &own, &is_published);
    CU_ASSERT(is_published);
    *at_first_p = sm_member_check(store, "w", &own, "group_barrier", 1000);
    CU_ASSERT(strstr(last_record().message, "two processes are rank 0") != NULL);
    sm_member_withdraw(&world, &own);
    /* An objection to the other process stays for that one. */
    CU_ASSERT_EQUAL(symmem_store_wait(store, "w/no/0", 1),
                    process == object ? SYMMEM_TIMEOUT : SYMMEM_OK);
    sm_liveness_destroy(liveness);
    symmem_store_close(store);
    return status;
}

/* Of two processes that both ended in init, one that comes later would not be told. */
TEST("an objection waits for the first group") {
    symmem_status at_first;
    CU_ASSERT_EQUAL(publish_with(object, &at_first), SYMMEM_OK);
    CU_ASSERT_EQUAL(at_first, SYMMEM_MISMATCH);
}

TEST("another key in its place ends init") {
    symmem_status at_first;
    CU_ASSERT_EQUAL(publish_with(take_its_place, &at_first), SYMMEM_MISMATCH);
    CU_ASSERT_EQUAL(at_first, SYMMEM_MISMATCH);
}

static sm_member member_of(const sm_identity *identity, int32_t rank, int32_t world_size) {
    sm_member made;
    memset(&made, 0, sizeof(made));
    made.magic = 0x424d454d; /* as in member.c */
    made.identity = *identity;
    made.rank = rank;
    made.world_size = world_size;
    memset(made.token, rank + 1, sizeof(made.token));
    return made;
}

static symmem_status cannot_set(void *self, const char *key, const void *value, size_t bytes,
                                uint32_t limit_ms) {
    return strcmp(key, "w/no/1") == 0 ? SYMMEM_SYSTEM : c_set(self, key, value, bytes, limit_ms);
}

/* An objection stays as long as the process is there that it is for, as its key tells. */
TEST("objections and whom they are for") {
    enum { THERE, GONE, ANOTHERS, UNSAID };
    for (int kind = THERE; kind <= UNSAID; kind++) {
        symmem_store_ops ops = counting_ops;
        symmem_store *store = NULL;
        sm_identity self;
        sm_member published;
        bool is_published = false;
        memset(&counts, 0, sizeof(counts));
        ops.set = kind == UNSAID ? cannot_set : c_set;
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&counts.inner), SYMMEM_OK);
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, &counts, &store), SYMMEM_OK);
        CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
        const sm_world world = {.store = store,
                                .prefix = "w",
                                .identity = &self,
                                .rank = 0,
                                .size = 2,
                                .timeout_ms = 1000};
        CU_ASSERT_EQUAL(sm_member_publish(&world, &published, &is_published), SYMMEM_OK);
        sm_member found = member_of(&self, 1, 3);
        sm_member in_store = found;
        in_store.token[0] ^= kind == ANOTHERS ? 1 : 0;
        if (kind != GONE)
            CU_ASSERT_EQUAL(symmem_store_set(store, "w/id/1", &in_store, sizeof(in_store), 0),
                            SYMMEM_OK);
        CU_ASSERT_EQUAL(sm_member_compare(store, "w", &published, &found, true), SYMMEM_MISMATCH);
        CU_ASSERT_EQUAL(last_record().failed_rank, 1);
        CU_ASSERT_PTR_NOT_NULL(
            strstr(last_record().message, "rank 0 is in a world of 2 ranks, rank 1 in one of 3"));
        CU_ASSERT_EQUAL(symmem_store_wait(store, "w/no/1", 1),
                        kind == THERE ? SYMMEM_OK : SYMMEM_TIMEOUT);
        symmem_store_close(store);
    }
}

/* What is none, or is for another process, is no objection to this one. */
TEST("objections that do not count") {
    symmem_store *store = NULL;
    sm_identity self;
    objection no;
    memset(&no, 0, sizeof(no));
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    const sm_member own = member_of(&self, 0, 2);
    memcpy(no.to, own.token, sizeof(no.to));
    no.kind = 1;
    no.world_size = 2;
    no.identity = identity_of_another(&own);
    const struct {
        size_t bytes;
        uint8_t change;
        symmem_status status;
    } rows[] = {{sizeof(no) - 1, 0, SYMMEM_OK},
                {sizeof(no), 1, SYMMEM_OK},
                {sizeof(no), 0, SYMMEM_MISMATCH}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        no.to[0] = own.token[0] ^ rows[i].change;
        CU_ASSERT_EQUAL(symmem_store_set(store, "w/id/0", &own, sizeof(own), 0), SYMMEM_OK);
        CU_ASSERT_EQUAL(symmem_store_set(store, "w/no/0", &no, rows[i].bytes, 0), SYMMEM_OK);
        CU_ASSERT_EQUAL(sm_member_check(store, "w", &own, "group_barrier", 1000), rows[i].status);
    }
    symmem_store_close(store);
}

/* In a file store a key that is not there leaves a record. Finalize would tell peers of it. */
TEST("a rank that comes leaves no record") {
    char path[FOLDER_BYTES];
    symmem_store *store = NULL;
    symmem_context *context = NULL;
    symmem_context_options options;
    CU_ASSERT_FATAL(make_folder(path));
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_file(path, &store), SYMMEM_OK);
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 2;
    options.store = store;
    symmem_clear_error();
    CU_ASSERT_EQUAL(symmem_init(&options, &context), SYMMEM_OK);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(last_record().message, "");
    symmem_context_free(context);
    symmem_store_close(store);
    remove_tree(path);
}

static sm_member process_as_rank(pid_t pid, int32_t rank) {
    sm_process process = {0};
    sm_member member;
    memset(&member, 0, sizeof(member));
    CU_ASSERT_EQUAL(sm_identity_self(&member.identity), SYMMEM_OK);
    CU_ASSERT_TRUE(sm_process_read(pid, &process));
    member.identity.pid = pid;
    member.identity.start_time = process.start_time;
    member.identity.listens = 0;
    member.identity.life[0] ^= (uint8_t)(rank + 1);
    member.magic = 0x424d454du; /* as in member.c */
    member.rank = rank;
    member.world_size = 2;
    member.published_ns = sm_since_boot_ns();
    return member;
}

static void put(symmem_store *store, const char *key, const sm_member *member) {
    CU_ASSERT_EQUAL(symmem_store_set(store, key, member, sizeof(*member), 0), SYMMEM_OK);
}

/* It ends with this process, also if a check fails. */
static pid_t start_process(void) {
    const pid_t parent = getpid(), pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid != 0)
        return pid;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(1);
    for (;;)
        (void)pause();
}

static void end_process(pid_t pid) {
    CU_ASSERT_FATAL(pid > 1);
    CU_ASSERT_EQUAL(kill(pid, SIGKILL), 0);
    CU_ASSERT_EQUAL(waitpid(pid, NULL, 0), pid);
}

/* Rank 0 comes again while rank 1 lives, which is killed before anybody looks. */
TEST("a peer that lived when a rank came again is lost") {
    symmem_store *store = NULL;
    sm_liveness *liveness = NULL;
    sm_identity self;
    sm_member own;
    bool is_published = false;
    const pid_t earlier = start_process(), peer = start_process();
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    const sm_member ended = process_as_rank(earlier, 0), living = process_as_rank(peer, 1);
    put(store, "w/id/0", &ended);
    put(store, "w/id/1", &living);
    end_process(earlier);
    const sm_world world = {.store = store,
                            .prefix = "w",
                            .identity = &self,
                            .liveness = liveness,
                            .rank = 0,
                            .size = 2,
                            .timeout_ms = 1000};
    CU_ASSERT_EQUAL(sm_member_publish(&world, &own, &is_published), SYMMEM_OK);
    CU_ASSERT_EQUAL(own.took_over, 1);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
    end_process(peer);
    CU_ASSERT_TRUE(sm_liveness_knows(liveness, 1));
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE);
    sm_liveness_destroy(liveness);
    symmem_store_close(store);
}

/* Publishes while a child of this process is the same rank, which ends `life_ms` after that began.
 */
static symmem_status publish_beside(int life_ms, uint64_t *took_ms_p) {
    int begun[2];
    sm_liveness *liveness = NULL;
    symmem_store *store = NULL;
    sm_identity self;
    sm_process process;
    sm_member own;
    bool is_published = false;
    CU_ASSERT_FATAL(pipe(begun) == 0);
    const pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        char byte;
        (void)!read(begun[0], &byte, 1);
        usleep((useconds_t)life_ms * 1000);
        _exit(0);
    }
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_FATAL(sm_process_read(child, &process));
    sm_member member = member_of(&self, 0, 2);
    member.identity.pid = child;
    member.identity.start_time = process.start_time;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_set(store, "w/id/0", &member, sizeof(member), 0), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    const sm_world world = {.store = store,
                            .prefix = "w",
                            .identity = &self,
                            .liveness = liveness,
                            .size = 2,
                            .timeout_ms = 10000};
    const uint64_t begin_ns = sm_now_ns();
    CU_ASSERT_EQUAL(write(begun[1], "b", 1), 1);
    const symmem_status status = sm_member_publish(&world, &own, &is_published);
    sm_refusal refusal;
    const sm_member earlier = {.identity = self, .published_ns = 1};
    CU_ASSERT_EQUAL(sm_member_read_refusal(store, "w", &earlier, &refusal),
                    status == SYMMEM_MISMATCH);
    *took_ms_p = (sm_now_ns() - begin_ns) / 1000000;
    CU_ASSERT_EQUAL(is_published, status == SYMMEM_OK);
    (void)kill(child, SIGKILL);
    close(begun[0]);
    close(begun[1]);
    CU_ASSERT_EQUAL(waitpid(child, NULL, 0), child);
    sm_liveness_destroy(liveness);
    symmem_store_close(store);
    return status;
}

/* A job that is started again does not wait for the last one's processes to be gone.
 * [SM-CONTEXT-16]
 */
TEST("a process of the same rank that is about to end") {
    uint64_t took_ms;
    CU_ASSERT_EQUAL(publish_beside(30, &took_ms), SYMMEM_OK);
    CU_ASSERT_EQUAL(publish_beside(20000, &took_ms), SYMMEM_MISMATCH);
    CU_ASSERT(took_ms < 5000); /* two that live are told soon [SM-CONTEXT-14] */
}

/* What init has refused is told to those who were there, until the rank ends or comes again.
 * [SM-CONTEXT-17] */
TEST("what init refused counts for those who were there") {
    sm_liveness *liveness = NULL;
    symmem_store *store = NULL;
    sm_identity self;
    sm_member own;
    sm_refusal found;
    bool is_published;
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    const sm_world world = {.store = store,
                            .prefix = "w",
                            .identity = &self,
                            .liveness = liveness,
                            .size = 2,
                            .timeout_ms = 10000};
    for (int by_end = 0; by_end < 2; by_end++) {
        sm_refusal left = {.magic = 0x55464552u, .made_ns = sm_since_boot_ns(), .refused = self};
        left.there = self;
        sm_member there = member_of(&self, 1, 2);
        there.published_ns = left.made_ns;
        CU_ASSERT(!sm_member_read_refusal(store, "w", &there, &found));
        CU_ASSERT_EQUAL(symmem_store_set(store, "w/refused", &left, sizeof(left), 0), SYMMEM_OK);
        CU_ASSERT(sm_member_read_refusal(store, "w", &there, &found) && found.rank == 0);
        CU_ASSERT(!sm_member_read_refusal(store, "w", NULL, &found));
        there.published_ns++; /* an earlier start of the job has left it */
        CU_ASSERT(!sm_member_read_refusal(store, "w", &there, &found));
        there.published_ns = 1;
        there.identity.boot_id ^= 1; /* of another host, whose clock is another one */
        CU_ASSERT(!sm_member_read_refusal(store, "w", &there, &found));
        there.identity = self;
        if (by_end == 0)
            CU_ASSERT_EQUAL(sm_member_publish(&world, &own, &is_published), SYMMEM_OK)
        else
            sm_member_withdraw(&world, &own);
        CU_ASSERT(!sm_member_read_refusal(store, "w", &there, &found));
    }
    sm_liveness_destroy(liveness);
    symmem_store_close(store);
}
