/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that come from elsewhere and are not what they should be: values in the store, files in its
 * folder, peers' records. Each was let through once. */
#include "bootstrap/exchange.h"
#include "bootstrap/exchange_value.h"
#include "bootstrap/exit_record.h"
#include "rendezvous/rendezvous.h"
#include "stream/channel.h"
#include "unit_main.h"
#include "last_record.h"
#include "rendezvous/rendezvous_record.h"

#include <sys/socket.h>
#include <sys/un.h>

#define ALL_MAGIC 0x204c4c41u
#define BYTES 8u

/* --- the folder of a file store ----------------------------------------------------------- */

static char folder[] = "/tmp/symmem-outside-XXXXXX";

static void name_in_folder(char *name, size_t capacity, const char *file) {
    snprintf(name, capacity, "%s/%s", folder, file);
}

static void make_socket(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, name, strlen(name));
    CU_ASSERT_EQUAL(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
}

/* Neither waits nor reads: says what it is. */
static void expect_corrupt(symmem_store *store, const char *key) {
    char value[16] = "unchanged";
    size_t bytes = 99;
    uint64_t start_ns = sm_now_ns();
    symmem_clear_error();
    CU_ASSERT_EQUAL(symmem_store_get(store, key, value, sizeof(value), &bytes, 1000),
                    SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_CORRUPT);
    CU_ASSERT(bytes == 99 && strcmp(value, "unchanged") == 0);
    CU_ASSERT(sm_now_ns() - start_ns < 10000000000u);
}

TEST("files that are no values") {
    static const char *const keys[] = {"pipe", "socket", "link", "folder", "long"};
    char name[128];
    symmem_store *store = NULL;
    name_in_folder(name, sizeof(name), "kpipe");
    CU_ASSERT_EQUAL(mkfifo(name, 0600), 0);
    name_in_folder(name, sizeof(name), "ksocket");
    make_socket(name);
    name_in_folder(name, sizeof(name), "klink");
    CU_ASSERT_EQUAL(symlink("/dev/zero", name), 0);
    name_in_folder(name, sizeof(name), "kfolder");
    CU_ASSERT_EQUAL(mkdir(name, 0700), 0);
    name_in_folder(name, sizeof(name), "klong");
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CU_ASSERT(fd >= 0 && ftruncate(fd, (off_t)1 << 40) == 0);
    close(fd);
    /* Opened now: what is put in the place of a key later need not be seen (SM-STORE-09). */
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_file(folder, &store), SYMMEM_OK);
    (void)alarm(60); /* the pipe held a reader for good */
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        expect_corrupt(store, keys[i]);
    (void)alarm(0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(name, sizeof(name), "%s/k%s", folder, keys[i]);
        (void)remove(name);
    }
    symmem_store_close(store);
}

/* The lock is the store's own file, not one that a link leads to. */
TEST("the lock is no link") {
    char name[128], target[128];
    int64_t value = 42;
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_file(folder, &store), SYMMEM_OK);
    name_in_folder(name, sizeof(name), "lock");
    name_in_folder(target, sizeof(target), "elsewhere");
    CU_ASSERT_EQUAL(symlink("elsewhere", name), 0);
    CU_ASSERT_NOT_EQUAL(symmem_store_add(store, "n", 1, &value, 100), SYMMEM_OK);
    CU_ASSERT(value == 42 && access(target, F_OK) != 0);
    CU_ASSERT_EQUAL(unlink(name), 0);
    symmem_store_close(store);
}

/* --- another program's store ----------------------------------------------------------------- */

static size_t claimed_bytes;

static symmem_status other_set(void *self, const char *key, const void *value, size_t bytes,
                               uint32_t timeout_ms) {
    return SYMMEM_OK;
}

static symmem_status other_get(void *self, const char *key, void *value, size_t capacity,
                               size_t *bytes_p, uint32_t timeout_ms) {
    *bytes_p = claimed_bytes;
    return claimed_bytes > SYMMEM_STORE_VALUE_MAX ? SYMMEM_OUT_OF_RANGE : SYMMEM_OK;
}

static symmem_status other_wait(void *self, const char *key, uint32_t timeout_ms) {
    return SYMMEM_OK;
}

static symmem_status other_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                               uint32_t timeout_ms) {
    *value_p = delta;
    return SYMMEM_OK;
}

static void other_close(void *self) {}

TEST("another's store") {
    const symmem_store_ops ops = {.size = sizeof(ops),
                                  .set = other_set,
                                  .get = other_get,
                                  .wait = other_wait,
                                  .add = other_add,
                                  .remove = other_wait,
                                  .close = other_close};
    char value[8];
    size_t bytes = 99;
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, NULL, &store), SYMMEM_OK);
    claimed_bytes = 9; /* more than there is room for, as a success */
    CU_ASSERT_EQUAL(symmem_store_get(store, "k", value, 8, &bytes, 10), SYMMEM_CORRUPT);
    claimed_bytes = (size_t)SYMMEM_STORE_VALUE_MAX + 1; /* a caller would make room for that */
    CU_ASSERT_EQUAL(symmem_store_get(store, "k", value, 8, &bytes, 10), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(bytes, 99);
    claimed_bytes = 8;
    CU_ASSERT_EQUAL(symmem_store_get(store, "k", value, 8, &bytes, 10), SYMMEM_OK);
    CU_ASSERT_EQUAL(bytes, 8);
    symmem_store_close(store);
}

/* --- values of an exchange ------------------------------------------------------------------ */

typedef struct all_value {
    sm_all_head head;
    sm_summary summaries[2];
    uint8_t payloads[2][BYTES];
} all_value;

typedef struct exchange_test {
    symmem_store *store;
    sm_session session;
    uint8_t mine[BYTES], out[2][BYTES];
} exchange_test;

static uint64_t hash_of_kind(void) {
    return sm_hash("kind", 4, SM_HASH_SEED);
}

static void put_value(exchange_test *t, const char *name, const void *value, size_t bytes) {
    char key[SM_SESSION_KEY_BYTES];
    sm_exchange_key(&t->session, 5, 0, name, key);
    CU_ASSERT_EQUAL(symmem_store_set(t->store, key, value, bytes, 100), SYMMEM_OK);
}

static void open_exchange(exchange_test *t) {
    memset(t, 0, sizeof(*t));
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&t->store), SYMMEM_OK);
    t->session.config = (sm_session_config){
        .store = t->store, .prefix = "g/outside", .group_name = "outside", .world_size = 2};
}

/* One of two ranks in an exchange of 8 bytes, with `value` in the store under `name`. Rank 0
 * combines the peer's part, and rank 1 takes the combined value. */
static symmem_status exchange_with(const char *name, const void *value, size_t bytes,
                                   exchange_test *t) {
    open_exchange(t);
    memset(t->mine, 1, sizeof(t->mine));
    memset(t->out, 0x77, sizeof(t->out));
    put_value(t, name, value, bytes);
    t->session.config.rank = strcmp(name, "1") == 0 ? 0 : 1;
    const sm_call call = sm_call_start("all_gather", "data", sm_deadline_ns(1000));
    symmem_clear_error();
    sm_outcome outcome = sm_exchange(&t->session, &call, "kind", 5, 0,
                                     &(sm_contribution){.data = t->mine, .bytes = BYTES}, t->out);
    symmem_store_close(t->store);
    if (outcome.status != SYMMEM_OK)
        CU_ASSERT(t->out[0][0] == 0x77 && t->out[1][BYTES - 1] == 0x77);
    return outcome.status;
}

static all_value honest_all(void) {
    all_value value = {.head = {.magic = ALL_MAGIC, .failed_rank = -1}};
    for (int rank = 0; rank < 2; rank++) {
        value.summaries[rank] = (sm_summary){.bytes = BYTES, .kind = hash_of_kind()};
        memset(value.payloads[rank], rank + 1, BYTES);
    }
    return value;
}

TEST("combined values") {
    exchange_test t;
    all_value value = honest_all();
    CU_ASSERT_EQUAL(exchange_with("all", &value, sizeof(value), &t), SYMMEM_OK);
    CU_ASSERT(t.out[0][0] == 1 && t.out[1][BYTES - 1] == 2);
    /* Without payloads, though all ranks gave alike: nothing to deliver. */
    size_t head_bytes = offsetof(all_value, payloads);
    CU_ASSERT_EQUAL(exchange_with("all", &value, head_bytes, &t), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(exchange_with("all", &value, sizeof(value.head), &t), SYMMEM_CORRUPT);
    /* Other sizes or another call than this rank's own. */
    value.summaries[0].bytes = value.summaries[1].bytes = BYTES + 1;
    CU_ASSERT_EQUAL(exchange_with("all", &value, sizeof(value), &t), SYMMEM_CORRUPT);
    value = honest_all();
    value.summaries[0].kind = value.summaries[1].kind = 3;
    CU_ASSERT_EQUAL(exchange_with("all", &value, sizeof(value), &t), SYMMEM_CORRUPT);
    /* A difference that this rank knows of stays a MISMATCH. */
    value = honest_all();
    value.summaries[0].bytes = BYTES + 1;
    CU_ASSERT_EQUAL(exchange_with("all", &value, head_bytes, &t), SYMMEM_MISMATCH);
}

/* Too large for one value, so that every rank's part is read on its own. */
TEST("parts read one by one") {
    static const uint64_t claimed[] = {600000, 0, 600001};
    exchange_test t;
    size_t bytes = 600000;
    unsigned char *mine = calloc(1, bytes), *out = malloc(2 * bytes);
    unsigned char *part = calloc(1, sizeof(sm_part) + bytes + 1);
    CU_ASSERT_FATAL(mine != NULL && out != NULL && part != NULL);
    for (size_t i = 0; i < 3; i++) {
        size_t part_bytes = sizeof(sm_part) + claimed[i];
        all_value value = honest_all();
        sm_part head = {.magic = SM_PART_MAGIC, .bytes = claimed[i], .kind = hash_of_kind()};
        value.summaries[0].bytes = value.summaries[1].bytes = bytes;
        memcpy(part, &head, sizeof(head));
        open_exchange(&t);
        put_value(&t, "all", &value, offsetof(all_value, payloads));
        put_value(&t, "0", part, part_bytes);
        t.session.config.rank = 1;
        const sm_call call = sm_call_start("all_gather", "data", sm_deadline_ns(1000));
        const sm_contribution given = {.data = mine, .bytes = bytes};
        sm_outcome outcome = sm_exchange(&t.session, &call, "kind", 5, 0, &given, out);
        CU_ASSERT_EQUAL(outcome.status, i == 0 ? SYMMEM_OK : SYMMEM_CORRUPT);
        symmem_store_close(t.store);
    }
    free(mine);
    free(out);
    free(part);
}

static sm_verdict honest_verdict(void) {
    symmem_error_record record = {.status = SYMMEM_NO_SPACE, .channel = -1, .failed_rank = -1};
    sm_verdict verdict;
    sm_verdict_make(&record, &verdict);
    return verdict;
}

/* The verdict comes once as the result of all ranks, and once as a peer's part that this rank
 * combines. */
static void expect_verdict(const sm_verdict *verdict, symmem_status expected) {
    exchange_test t;
    sm_failed_all all = {.head = {.magic = ALL_MAGIC, .failed_rank = 1}, .verdict = *verdict};
    sm_failed_part part = {
        .part = {.magic = SM_PART_MAGIC, .flags = SM_PART_FAILED, .kind = hash_of_kind()},
        .verdict = *verdict};
    CU_ASSERT_EQUAL(exchange_with("all", &all, sizeof(all), &t), expected);
    CU_ASSERT(last_record().failed_rank >= -1 && last_record().failed_rank < 2);
    CU_ASSERT_EQUAL(exchange_with("1", &part, sizeof(part), &t), expected);
    CU_ASSERT(last_record().failed_rank >= -1 && last_record().failed_rank < 2);
}

TEST("verdicts") {
    sm_verdict verdict = honest_verdict();
    expect_verdict(&verdict, SYMMEM_NO_SPACE);
    verdict.status = SYMMEM_OK; /* was success without data */
    expect_verdict(&verdict, SYMMEM_CORRUPT);
    verdict.status = 4711;
    expect_verdict(&verdict, SYMMEM_CORRUPT);
    verdict = honest_verdict();
    verdict.failed_rank = 2; /* a program would look that rank up */
    expect_verdict(&verdict, SYMMEM_CORRUPT);
    verdict.failed_rank = -2;
    expect_verdict(&verdict, SYMMEM_CORRUPT);
    verdict = honest_verdict();
    verdict.missing_count = 1;
    expect_verdict(&verdict, SYMMEM_CORRUPT);
    verdict.missing[0] = 2;
    expect_verdict(&verdict, SYMMEM_NO_SPACE);
    verdict.missing[0] = 4; /* rank 2 of two */
    expect_verdict(&verdict, SYMMEM_CORRUPT);
    verdict = honest_verdict();
    verdict.channel = -2;
    expect_verdict(&verdict, SYMMEM_CORRUPT);
}

/* --- rendezvous records ------------------------------------------------------------------------
 */

TEST("status of a record") {
    sm_rendezvous_record records[2] = {{.magic = SM_RDV_MAGIC}, {.magic = SM_RDV_MAGIC}};
    symmem_group group = {.world_size = 2};
    sm_rendezvous rendezvous = {.group = &group, .records = records};
    records[1].status = SYMMEM_NO_SPACE;
    CU_ASSERT_EQUAL(sm_rdv_records_check(&rendezvous), SYMMEM_NO_SPACE);
    records[1].status = 4711;
    CU_ASSERT_EQUAL(sm_rdv_records_check(&rendezvous), SYMMEM_CORRUPT);
    CU_ASSERT_EQUAL(last_record().failed_rank, 1);
}

int unit_setup(void) {
    return mkdtemp(folder) == NULL;
}

int unit_teardown(void) {
    char name[128];
    name_in_folder(name, sizeof(name), "notify");
    (void)unlink(name);
    (void)rmdir(folder);
    return 0;
}
