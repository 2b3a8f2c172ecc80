/* SPDX-License-Identifier: BSD-3-Clause */
/* Clock, arithmetic, text. */
#include "bootstrap/bootstrap.h"
#include "unit_main.h"

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
    deadline_ns = sm_deadline_ns(50);
    sm_sleep_ns(60000000);
    CU_ASSERT_TRUE(sm_expired(deadline_ns));
    CU_ASSERT_EQUAL(sm_remaining_ms(deadline_ns, 1000), 0);
    CU_ASSERT(sm_deadline_ns(UINT32_MAX) > sm_now_ns() + 4000000000000ull);
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
