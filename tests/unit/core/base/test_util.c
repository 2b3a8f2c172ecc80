/* SPDX-License-Identifier: BSD-3-Clause */
/* Clock, arithmetic, text, objects in order. */
#include "base/base.h"
#include "base/rights.h"
#include "unit_main.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>

TEST("clock") {
    CU_ASSERT_EQUAL(sm_deadline_ns(0), 0);
    CU_ASSERT_FALSE(sm_expired(0));
    CU_ASSERT_EQUAL(sm_remaining_ms(0, 7), 7);
    uint64_t start_ns = sm_now_ns();
    uint64_t deadline_ns = sm_deadline_ns(20000);
    CU_ASSERT(deadline_ns >= start_ns + 20000000000 && deadline_ns < start_ns + 30000000000);
    CU_ASSERT_FALSE(sm_expired(deadline_ns));
    CU_ASSERT(sm_remaining_ms(deadline_ns, 30000) <= 20000);
    CU_ASSERT(sm_remaining_ms(deadline_ns, 30000) > 10000);
    CU_ASSERT_EQUAL(sm_remaining_ms(deadline_ns, 1), 1);
    uint32_t rounded_ms = 0; /* up, but to nothing if it takes that long to ask */
    for (int i = 0; i < 100 && rounded_ms == 0; i++)
        rounded_ms = sm_remaining_ms(sm_now_ns() + 500000, 1000);
    CU_ASSERT_EQUAL(rounded_ms, 1);
    CU_ASSERT_EQUAL(sm_limit_ms(0), 0);
    CU_ASSERT(sm_limit_ms(deadline_ns) > 10000 && sm_limit_ms(deadline_ns) <= 20000);
    deadline_ns = sm_deadline_ns(50);
    sm_sleep_ns(60000000);
    CU_ASSERT_TRUE(sm_expired(deadline_ns));
    CU_ASSERT_EQUAL(sm_remaining_ms(deadline_ns, 1000), 0);
    CU_ASSERT_EQUAL(sm_limit_ms(deadline_ns), 1); /* 0 would be no limit */
    CU_ASSERT(sm_deadline_ns(UINT32_MAX) > sm_now_ns() + 4000000000000ull);
}

static mode_t rights_of(int fd) {
    struct stat about = {0};
    CU_ASSERT_EQUAL(fstat(fd, &about), 0);
    return about.st_mode & 0777;
}

/* What the umask took from a file of this user's alone is given back; nothing else is changed. */
TEST("rights") {
    char path[] = "/tmp/symm-rights-XXXXXX";
    const int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    static const mode_t rows[][2] = {
        {0, 0600}, {0400, 0600}, {0600, 0600}, {0440, 0440}, {0700, 0700}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CU_ASSERT_EQUAL(fchmod(fd, rows[i][0]), 0);
        CU_ASSERT_EQUAL(sm_rights_give(fd, 0600), 0);
        CU_ASSERT_EQUAL(rights_of(fd), rows[i][1]);
    }
    /* Through a descriptor that can only be looked at they cannot be changed. */
    const int looks = open(path, O_PATH | O_CLOEXEC);
    CU_ASSERT_EQUAL(fchmod(fd, 0600), 0);
    CU_ASSERT_EQUAL(sm_rights_give(looks, 0600), 0); /* there is nothing to do */
    CU_ASSERT_EQUAL(fchmod(fd, 0400), 0);
    CU_ASSERT_EQUAL(sm_rights_give(looks, 0600), EBADF);
    CU_ASSERT_EQUAL(rights_of(fd), 0400);
    close(looks);
    close(fd);
    CU_ASSERT_EQUAL(sm_rights_give(-1, 0600), EBADF);
    CU_ASSERT_EQUAL(unlink(path), 0);
}

static void on_alarm(int number) {}

TEST("interrupted sleep") {
    struct sigaction action = {.sa_handler = on_alarm}, old;
    sigaction(SIGALRM, &action, &old);
    struct itimerval timer = {.it_interval = {0, 5000}, .it_value = {0, 5000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    uint64_t start_ns = sm_now_ns();
    sm_sleep_ns(60000000);
    CU_ASSERT(sm_now_ns() - start_ns >= 60000000);
    timer = (struct itimerval){0};
    setitimer(ITIMER_REAL, &timer, NULL);
    sigaction(SIGALRM, &old, NULL);
}

TEST("random") {
    unsigned char a[1000] = {0}, b[1000] = {0};
    CU_ASSERT_EQUAL(sm_random(a, sizeof(a)), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_random(b, sizeof(b)), SYMMEM_OK);
    CU_ASSERT_NOT_EQUAL(memcmp(a, b, sizeof(a)), 0);
    CU_ASSERT_EQUAL(sm_random(a, 0), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_random((void *)8, 16), SYMMEM_SYSTEM);
}

TEST("arithmetic") {
    size_t value = 99;
    CU_ASSERT_TRUE(sm_mul(6, 7, &value));
    CU_ASSERT_EQUAL(value, 42);
    CU_ASSERT_FALSE(sm_mul(SIZE_MAX, 2, &value));
    CU_ASSERT_TRUE(sm_add(SIZE_MAX - 1, 1, &value));
    CU_ASSERT_EQUAL(value, SIZE_MAX);
    CU_ASSERT_FALSE(sm_add(SIZE_MAX, 1, &value));
    CU_ASSERT_TRUE(sm_round_up(0, 64, &value));
    CU_ASSERT_EQUAL(value, 0);
    CU_ASSERT_TRUE(sm_round_up(65, 64, &value));
    CU_ASSERT_EQUAL(value, 128);
    CU_ASSERT_TRUE(sm_round_up(128, 64, &value));
    CU_ASSERT_EQUAL(value, 128);
    CU_ASSERT_FALSE(sm_round_up(SIZE_MAX - 3, 64, &value));
    CU_ASSERT_EQUAL(value, 128); /* outputs on success only */
}

/* A broken backend may give one address twice: each is taken away by itself. */
TEST("two in one place") {
    sm_treap places = {.root = NULL};
    sm_treap_node at[4] = {{.key = 0}};
    for (int i = 0; i < 3; i++)
        sm_treap_add(&places, &at[i], i < 1 ? 7 : 9);
    sm_treap_remove(&places, &at[3]); /* which is not there */
    CU_ASSERT(sm_treap_at_or_below(&places, 9) == &at[1] &&
              sm_treap_at_or_above(&places, 8) == &at[2]);
    CU_ASSERT_PTR_NULL(sm_treap_at_or_below(&places, 6));
    sm_treap_remove(&places, &at[1]);
    CU_ASSERT(sm_treap_at_or_below(&places, UINT64_MAX) == &at[2]);
    sm_treap_remove(&places, &at[2]);
    sm_treap_remove(&places, &at[0]);
    CU_ASSERT_PTR_NULL(places.root);
}

enum { MANY = 200, KEYS = 64, ROUNDS = 20000 };

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Of those with one key the last one that came is first. */
static const sm_treap_node *model_find(const sm_treap_node *at, const uint32_t *since, uint64_t key,
                                       bool upward) {
    const sm_treap_node *found = NULL;
    for (size_t i = 0; i < MANY; i++) {
        if (since[i] == 0 || (upward ? at[i].key < key : at[i].key > key))
            continue;
        const bool nearer = found == NULL ||
                            (upward ? at[i].key < found->key : at[i].key > found->key) ||
                            (at[i].key == found->key && (since[i] > since[found - at]) == upward);
        found = nearer ? &at[i] : found;
    }
    return found;
}

TEST("places against a model") {
    static sm_treap_node at[MANY];
    static uint32_t since[MANY];
    sm_treap places = {.root = NULL};
    uint32_t state = 1, wrong = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        const uint32_t i = next_random(&state) % MANY;
        if (since[i] == 0)
            sm_treap_add(&places, &at[i], next_random(&state) % KEYS);
        else
            sm_treap_remove(&places, &at[i]);
        since[i] = since[i] == 0 ? round : 0;
        const uint64_t key = next_random(&state) % (KEYS + 2);
        wrong += sm_treap_at_or_below(&places, key) != model_find(at, since, key, false);
        wrong += sm_treap_at_or_above(&places, key) != model_find(at, since, key, true);
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

TEST("an index against a model") {
    static sm_index_node nodes[MANY];
    static bool in[MANY];
    sm_index index = {.chains = NULL};
    uint32_t state = 7, wrong = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t i = next_random(&state) % MANY;
        if (!in[i])
            sm_index_add(&index, &nodes[i], next_random(&state) % KEYS);
        else
            sm_index_remove(&index, &nodes[i]);
        in[i] = !in[i];
        const uint64_t key = next_random(&state) % KEYS;
        int expected = 0, found = 0;
        for (size_t n = 0; n < MANY; n++)
            expected += in[n] && nodes[n].key == key;
        for (const sm_index_node *at = sm_index_first(&index, key); at; at = sm_index_next(at))
            found += at->key == key && in[at - nodes];
        wrong += found != expected;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    size_t left = 0, expected = 0;
    for (size_t n = 0; n < MANY; n++)
        expected += in[n];
    for (size_t n = 0; n < MANY; n++) { /* what is not there, and what never was */
        sm_index_node none = {.key = n % KEYS};
        if (!in[n])
            sm_index_remove(&index, &nodes[n]);
        sm_index_remove(&index, &none);
    }
    for (const sm_index_node *at = sm_index_empty(&index); at; at = at->next)
        left++;
    CU_ASSERT_EQUAL(left, expected);
    CU_ASSERT(index.count == 0 && index.chains == NULL && index.few == NULL);
}

TEST("hash") {
    CU_ASSERT_EQUAL(sm_hash("", 0, SM_HASH_SEED), SM_HASH_SEED);
    /* Published values of FNV-1a. */
    CU_ASSERT_EQUAL(sm_hash("a", 1, SM_HASH_SEED), 0xaf63dc4c8601ec8cull);
    CU_ASSERT_EQUAL(sm_hash("foobar", 6, SM_HASH_SEED), 0x85944171f73967e8ull);
    CU_ASSERT_EQUAL(sm_hash("bar", 3, sm_hash("foo", 3, SM_HASH_SEED)), 0x85944171f73967e8ull);
}

TEST("text") {
    char text[4] = "zzz";
    sm_copy_text(text, sizeof(text), "ab");
    CU_ASSERT_STRING_EQUAL(text, "ab");
    sm_copy_text(text, sizeof(text), "abcdef");
    CU_ASSERT_STRING_EQUAL(text, "abc");
    sm_copy_text(text, 1, "x");
    CU_ASSERT_STRING_EQUAL(text, "");
    sm_copy_text(NULL, 0, "x");
}
