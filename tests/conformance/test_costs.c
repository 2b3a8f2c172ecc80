/* SPDX-License-Identifier: BSD-3-Clause */
/* What a call costs does not grow with what is kept. */
#include <time.h>

#include "case_help.h"

#define FEW 10
#define ROUNDS 40
#define GROUPS_MS 4000u

struct kept {
    symmem_group *group; /* there throughout, as is the memory */
    char *own;
};

/* The calling thread's own, whatever else runs. */
static uint64_t spent_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void make_group(struct tk *t, const struct kept *kept) {
    symmem_group *made = NULL;
    (void)kept;
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "made", NULL, 0, NULL, &made));
    TK_OK(t, symmem_group_destroy(made));
}

static void find_group(struct tk *t, const struct kept *kept) {
    symmem_group *found = NULL;
    TK_REQUIRE_OK(t, symmem_group_find(t->context, "kept", &found));
    TK_CHECK(t, found == kept->group);
}

static void meet_again(struct tk *t, const struct kept *kept) {
    symmem_handle *handle = NULL;
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, kept->own, kept->group, LONG_MS, &handle));
    symmem_handle_release(handle);
}

static void meet(struct tk *t, const struct kept *kept) {
    symmem_handle *handle = NULL;
    char *ptr = tk_alloc(t, 4096);
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, ptr, kept->group, LONG_MS, &handle));
    symmem_handle_release(handle);
    tk_free(t, ptr);
}

static const struct {
    const char *name;
    void (*call)(struct tk *t, const struct kept *kept);
} calls[] = {{"create and destroy", make_group},
             {"find", find_group},
             {"a rendezvous that was before", meet_again},
             {"a new rendezvous", meet}};

struct costs {
    uint64_t ns[TK_COUNT(calls)];
};
#define NOTHING_YET                                                                                \
    (struct costs) {                                                                               \
        { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX }                                         \
    }

/* Lowers each to the least that a call has taken in some rounds. */
static void measure(struct tk *t, const struct kept *kept, struct costs *costs) {
    for (size_t c = 0; c < TK_COUNT(calls); c++)
        for (int round = 0; round < ROUNDS; round++) {
            const uint64_t begin_ns = spent_ns();
            calls[c].call(t, kept);
            const uint64_t cost_ns = spent_ns() - begin_ns;
            costs->ns[c] = cost_ns < costs->ns[c] ? cost_ns : costs->ns[c];
        }
}

static bool is_more(const struct costs *few, const struct costs *many, size_t call) {
    return many->ns[call] > 2 * few->ns[call] + 5000;
}

/* What is spent is the library's and the driver's, which spins while a device works for others.
 * What is kept costs more at any time, so it is measured again where it is more. */
static void compare(struct tk *t, const char *what, const struct kept *kept,
                    const struct costs *few) {
    struct costs many = NOTHING_YET;
    for (int times = 0; times < 10 && !tk_failed(t); times++) {
        bool more = false;
        if (times > 0)
            tk_sleep_ms(50);
        measure(t, kept, &many);
        for (size_t c = 0; c < TK_COUNT(calls); c++)
            more = more || is_more(few, &many, c);
        if (!more)
            return;
    }
    for (size_t c = 0; c < TK_COUNT(calls); c++)
        TK_CHECK_MSG(t, !is_more(few, &many, c), "%s kept: %s takes %u ns, not %u", what,
                     calls[c].name, (unsigned)many.ns[c], (unsigned)few->ns[c]);
}

static void begin(struct tk *t, struct kept *kept) {
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "kept", NULL, 0, NULL, &kept->group));
    kept->own = tk_alloc(t, 4096);
    meet_again(t, kept);
}

static symmem_group *another_group(struct tk *t, int number) {
    char name[32];
    symmem_group *made = NULL;
    snprintf(name, sizeof name, "another %d", number);
    TK_REQUIRE_OK(t, symmem_group_create(t->context, name, NULL, 0, NULL, &made));
    return made;
}

TK_TEST(costs, of_many_groups, "SM-LIFE-25", .max_ranks = 1) {
    enum { MANY = 4000 };
    struct kept kept = {0};
    struct costs few = NOTHING_YET;
    begin(t, &kept);
    for (int i = 0; i < MANY && !tk_failed(t); i++) {
        symmem_group *other = another_group(t, i);
        if (i % 2 == 0) /* nor with those that were */
            TK_OK(t, symmem_group_destroy(other));
        if (i == FEW)
            measure(t, &kept, &few);
    }
    compare(t, "groups", &kept, &few);
    TK_OK(t, symmem_group_destroy(kept.group));
    tk_free(t, kept.own);
}

/* A group's first rendezvous may make a communicator, whose end may take half a second. */
static uint64_t groups_in_time(struct tk *t) {
    symmem_handle *handle = NULL;
    char *ptr = tk_alloc(t, 4096);
    const uint64_t begin_ms = tk_now_ms();
    symmem_group *group = another_group(t, -1);
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, ptr, group, LONG_MS, &handle));
    symmem_handle_release(handle);
    TK_OK(t, symmem_group_destroy(group));
    const uint64_t one_ms = tk_now_ms() - begin_ms;
    tk_free(t, ptr);
    return GROUPS_MS / (one_ms + 1);
}

/* With a group in each, of which every other one, as far as there is time, is the tensor's. */
TK_TEST(costs, of_many_tensors, "SM-LIFE-25", .max_ranks = 1, .flags = TK_NOT_JOINED) {
    enum { MANY = 300 };
    const symmem_join_options room = {.size = sizeof(room), .heap_bytes = MANY << 20};
    struct kept kept = {0};
    struct costs few = NOTHING_YET;
    symmem_handle *handles[MANY] = {NULL};
    char *places[MANY] = {NULL};
    TK_REQUIRE_OK(t, symmem_join(t->context, &room, LONG_MS));
    begin(t, &kept);
    uint64_t apart_left = groups_in_time(t);
    for (int i = 0; i < MANY && !tk_failed(t); i++) {
        symmem_group *other = another_group(t, i);
        const bool apart = i % 2 == 0 && apart_left > 0;
        apart_left -= apart ? 1 : 0;
        places[i] = tk_alloc(t, 4096);
        TK_REQUIRE_OK(t, symmem_rendezvous(t->context, places[i], apart ? other : kept.group,
                                           LONG_MS, &handles[i]));
        if (i == FEW)
            measure(t, &kept, &few);
    }
    compare(t, "tensors", &kept, &few);
    for (int i = 0; i < MANY; i++) {
        symmem_handle_release(handles[i]);
        tk_free(t, places[i]);
    }
    TK_OK(t, symmem_group_destroy(kept.group));
    tk_free(t, kept.own);
}
