/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The members of a store's world: each rank has one key, from init to finalize. Two processes that
 * claim the same rank, or worlds of different sizes, can never complete a rendezvous. The process
 * that finds this out leaves the other one an objection. That process looks for objections while it
 * waits, so both are told.
 *
 * Keys, below the world's prefix:
 *   id/<rank>           who that is
 *   no/<rank>           an objection to it, which it removes
 *   refused             the last process that init has refused, because another one is its rank;
 *                       that other one removes it
 *   left/<rank>         a rank that met no other one was there and has been finalized; `any` in the
 *                       rank's place: there is some. The last rank that goes removes them
 *   dead/<rank>         a process that was this rank has ended, see sm_liveness_mark_ended; the
 *                       rank's next process removes it
 *   exit/<rank>         why it has ended before others have met it, see exit_record.c
 */
#include "bootstrap/session_internal.h"
#include "bootstrap/exit_record.h"
#include "bootstrap/ipc_sweep.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A process of the same rank may be about to end: a job is started again as soon as its ranks are
 * sent their signals. */
#define MAY_END_NS 300000000u
#define MAY_END_SLEEP_NS 5000000u
#define MEMBER_MAGIC 0x424d454du  /* "MEMB" */
#define REFUSAL_MAGIC 0x55464552u /* "REFU" */

enum { SAME_RANK = 1, OTHER_SIZE = 2 };

typedef struct objection {
    uint8_t to[16]; /* the other process's token */
    uint32_t kind;
    int32_t rank, world_size;
    uint32_t reserved;
    sm_identity identity;
} objection;

static void objection_key(const char *world_prefix, int32_t rank, char *key, size_t capacity) {
    (void)snprintf(key, capacity, "%s/no/%d", world_prefix, rank);
}

static void refusal_key(const char *world_prefix, char *key, size_t capacity) {
    (void)snprintf(key, capacity, "%s/refused", world_prefix);
}

/* When a context of this process last ended. The process may take part in several jobs. */
static _Atomic uint64_t last_end_ns;

uint64_t sm_since_boot_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sm_since_1970_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec;
}

/* Answers NOT_FOUND without a record if the key holds no valid member. */
static symmem_status read_member(symmem_store *store, const char *key, uint32_t limit_ms,
                                 sm_member *member_p) {
    SM_ATTEMPT(reading);
    size_t bytes = 0;
    symmem_status status =
        symmem_store_get(store, key, member_p, sizeof(*member_p), &bytes, limit_ms);
    if (status != SYMMEM_OK && status != SYMMEM_NOT_FOUND && status != SYMMEM_OUT_OF_RANGE) {
        (void)sm_error_raise(&reading.error);
        return status;
    }
    if (status != SYMMEM_OK || bytes != sizeof(*member_p) || member_p->magic != MEMBER_MAGIC)
        return SYMMEM_NOT_FOUND;
    member_p->identity.host[sizeof(member_p->identity.host) - 1] = '\0';
    member_p->identity.life_file[sizeof(member_p->identity.life_file) - 1] = '\0';
    return SYMMEM_OK;
}

static bool is_own(const sm_member *own, const sm_member *found) {
    return memcmp(own->token, found->token, sizeof(own->token)) == 0;
}

/* --- contradictions ----------------------------------------------------------------- */

static symmem_status fail_same_rank(const char *operation, const sm_identity *one,
                                    const sm_identity *other, int32_t rank, int32_t world_size) {
    (void)sm_fail(SYMMEM_MISMATCH, operation, "identity",
                  "two processes are rank %d in this store: %d on %.60s and %d on %.60s", rank,
                  one->pid, one->host, other->pid, other->host);
    (void)sm_error_caller(rank, world_size);
    (void)sm_error_failed_rank(rank);
    return sm_error_sizes((uint64_t)one->pid, (uint64_t)other->pid);
}

static symmem_status fail_other_size(const char *operation, int32_t own_rank, int32_t own_size,
                                     int32_t rank, int32_t size) {
    (void)sm_fail(SYMMEM_MISMATCH, operation, "identity",
                  "rank %d is in a world of %d ranks, rank %d in one of %d", own_rank, own_size,
                  rank, size);
    (void)sm_error_caller(own_rank, own_size);
    (void)sm_error_failed_rank(rank);
    return sm_error_sizes((uint64_t)own_size, (uint64_t)size);
}

static void remove_key(symmem_store *store, const char *key) {
    symmem_status status = symmem_store_remove(store, key, sm_store_brief_ms(store));
    (void)status;
}

/* Leaves an objection. The thread's record stays. The other process removes first its key and then
 * the objections. */
static void object_to(symmem_store *store, const char *world_prefix, const sm_member *own,
                      uint32_t kind, const sm_member *found) {
    SM_ATTEMPT(objecting);
    char key[SYMMEM_STORE_KEY_MAX + 1], its_key[SYMMEM_STORE_KEY_MAX + 1];
    objection no;
    memset(&no, 0, sizeof(no)); /* sent as bytes */
    memcpy(no.to, found->token, sizeof(no.to));
    no.kind = kind;
    no.rank = own->rank;
    no.world_size = own->world_size;
    no.identity = own->identity;
    objection_key(world_prefix, found->rank, key, sizeof(key));
    sm_identity_key(world_prefix, found->rank, its_key, sizeof(its_key));
    sm_member there;
    if (symmem_store_set(store, key, &no, sizeof(no), sm_store_brief_ms(store)) == SYMMEM_OK &&
        (read_member(store, its_key, sm_store_brief_ms(store), &there) != SYMMEM_OK ||
         !is_own(found, &there)))
        remove_key(store, key);
}

/* Returns the kind of an objection to `own`, or 0. */
static uint32_t read_objection(symmem_store *store, const char *world_prefix, const sm_member *own,
                               uint32_t limit_ms, objection *no_p) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    size_t bytes = 0;
    objection_key(world_prefix, own->rank, key, sizeof(key));
    symmem_status status = symmem_store_get(store, key, no_p, sizeof(*no_p), &bytes, limit_ms);
    if (status != SYMMEM_OK || bytes != sizeof(*no_p) ||
        memcmp(no_p->to, own->token, sizeof(no_p->to)) != 0)
        return 0;
    no_p->identity.host[sizeof(no_p->identity.host) - 1] = '\0';
    return no_p->kind;
}

/* --- who comes and leaves ------------------------------------------------------------ */

typedef struct left_word {
    sm_identity identity;
    uint64_t made_ns; /* since boot */
} left_word;

/* Writes the key of the rank's word. -1: the key of the sign that there is one. */
static void left_key(const char *world_prefix, int32_t rank, char *key, size_t capacity) {
    if (rank < 0)
        (void)snprintf(key, capacity, "%s/left/any", world_prefix);
    else
        (void)snprintf(key, capacity, "%s/left/%d", world_prefix, rank);
}

static void remove_word(const sm_world *world, int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    left_key(world->prefix, rank, key, sizeof(key));
    remove_key(world->store, key);
}

bool sm_member_has_key(const sm_world *world, int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    uint8_t first[1];
    size_t bytes = 0;
    sm_identity_key(world->prefix, rank, key, sizeof(key));
    const symmem_status status = symmem_store_get(world->store, key, first, sizeof(first), &bytes,
                                                  sm_store_brief_ms(world->store));
    return status == SYMMEM_OK || status == SYMMEM_OUT_OF_RANGE;
}

static bool rank_is_there(const sm_world *world, int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_member there;
    sm_identity_key(world->prefix, rank, key, sizeof(key));
    const symmem_status status =
        read_member(world->store, key, sm_store_brief_ms(world->store), &there);
    if (status != SYMMEM_OK)
        return status != SYMMEM_NOT_FOUND; /* a store without an answer tells of no end */
    return there.world_size == world->size &&
           sm_liveness_ask_of(world->liveness, rank, &there.identity) != SYMMEM_PEER_GONE;
}

/* Whether another rank is there. Ranks begin at different ones, and most find the next one. */
static bool any_is_there(const sm_world *world) {
    bool any = false;
    for (int32_t i = 1; i < world->size && !any; i++)
        any = rank_is_there(world, (world->rank + i) % world->size);
    return any;
}

static bool is_left_there(const sm_world *world, int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1], first[1];
    size_t bytes = 0;
    left_key(world->prefix, rank, key, sizeof(key));
    const symmem_status status = symmem_store_get(world->store, key, first, sizeof(first), &bytes,
                                                  sm_store_brief_ms(world->store));
    return status == SYMMEM_OK || status == SYMMEM_OUT_OF_RANGE;
}

static bool is_said(const sm_world *world) {
    return is_left_there(world, -1);
}

void sm_member_say_left(const sm_world *world) {
    SM_ATTEMPT(telling);
    char key[SYMMEM_STORE_KEY_MAX + 1];
    left_word word;
    if (!any_is_there(world))
        return;
    memset(&word, 0, sizeof(word)); /* sent as bytes */
    word.identity = *world->identity;
    word.made_ns = sm_since_boot_ns();
    /* In this order: ranks look for the sign first. */
    left_key(world->prefix, world->rank, key, sizeof(key));
    if (symmem_store_set(world->store, key, &word, sizeof(word), sm_store_brief_ms(world->store)) !=
        SYMMEM_OK)
        return;
    left_key(world->prefix, -1, key, sizeof(key));
    if (!is_said(world) &&
        symmem_store_set(world->store, key, "1", 1, sm_store_brief_ms(world->store)) != SYMMEM_OK)
        remove_word(world, world->rank);
}

/* Removes all words if no rank is there that could read them. This rank's key is gone by now, so
 * that of two ranks that go at the same time one sees that the other one has gone. */
static void forget_words(const sm_world *world) {
    if (!is_said(world) || any_is_there(world) || !is_said(world))
        return; /* another one may have removed them meanwhile */
    for (int32_t rank = -1; rank < world->size; rank++)
        if (rank < 0 || is_left_there(world, rank))
            remove_word(world, rank);
}

bool sm_member_hears_of_left(symmem_store *store, const char *world_prefix, const sm_member *own) {
    const sm_world world = {.store = store, .prefix = world_prefix};
    SM_ATTEMPT(look);
    return own != NULL && is_said(&world);
}

/* Whether both processes use one clock. */
static bool are_comparable(const sm_identity *one, const sm_identity *other) {
    return one->boot_id != 0 && one->boot_id == other->boot_id &&
           one->time_namespace == other->time_namespace;
}

bool sm_member_read_left(symmem_store *store, const char *world_prefix, const sm_member *own,
                         int32_t rank, sm_identity *identity_p) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    left_word word;
    size_t bytes = 0;
    SM_ATTEMPT(look);
    left_key(world_prefix, rank, key, sizeof(key));
    const symmem_status status =
        symmem_store_get(store, key, &word, sizeof(word), &bytes, sm_store_brief_ms(store));
    if (status != SYMMEM_OK || bytes != sizeof(word))
        return false;
    /* A rank that left before this one was there may have been an earlier job's, which was killed
     * before it removed the word. */
    if (are_comparable(&own->identity, &word.identity) && word.made_ns < own->published_ns)
        return false;
    *identity_p = word.identity;
    identity_p->host[sizeof(identity_p->host) - 1] = '\0';
    return true;
}

/* --- this process's key ------------------------------------------------------------- - */

/* Whether that very process runs, as far as this one can tell. */
static bool surely_lives(const sm_world *world, const sm_identity *other) {
    const sm_identity *own = world->identity;
    return own->boot_id != 0 && own->boot_id == other->boot_id && own->pid_namespace != 0 &&
           own->pid_namespace == other->pid_namespace &&
           sm_liveness_ask_of(world->liveness, world->rank, other) == SYMMEM_PEER_ALIVE;
}

/* --- a process that init refuses ------------------------------------------------------------- */

static void leave_refusal(const sm_world *world, const sm_identity *there) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_refusal left;
    SM_ATTEMPT(leaving);
    memset(&left, 0, sizeof(left)); /* sent as bytes */
    left.magic = REFUSAL_MAGIC;
    left.rank = world->rank;
    left.world_size = world->size;
    left.made_ns = sm_since_boot_ns();
    left.there = *there;
    left.refused = *world->identity;
    refusal_key(world->prefix, key, sizeof(key));
    (void)!symmem_store_set(world->store, key, &left, sizeof(left),
                            sm_store_brief_ms(world->store));
}

static bool read_refusal(symmem_store *store, const char *world_prefix, sm_refusal *found_p) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    size_t bytes = 0;
    SM_ATTEMPT(look);
    refusal_key(world_prefix, key, sizeof(key));
    if (symmem_store_get(store, key, found_p, sizeof(*found_p), &bytes, sm_store_brief_ms(store)) !=
            SYMMEM_OK ||
        bytes != sizeof(*found_p) || found_p->magic != REFUSAL_MAGIC)
        return false;
    found_p->there.host[sizeof(found_p->there.host) - 1] = '\0';
    found_p->refused.host[sizeof(found_p->refused.host) - 1] = '\0';
    return true;
}

/* For the rank that it is about: its next process, or its orderly end. */
static void forget_refusal(const sm_world *world) {
    sm_refusal found;
    char key[SYMMEM_STORE_KEY_MAX + 1];
    if (!read_refusal(world->store, world->prefix, &found) || found.rank != world->rank)
        return;
    SM_ATTEMPT(forgetting);
    refusal_key(world->prefix, key, sizeof(key));
    remove_key(world->store, key);
}

bool sm_member_read_refusal(symmem_store *store, const char *world_prefix, const sm_member *own,
                            sm_refusal *found_p) {
    return own != NULL && read_refusal(store, world_prefix, found_p) &&
           are_comparable(&own->identity, &found_p->refused) &&
           found_p->made_ns >= own->published_ns;
}

symmem_status sm_member_fail_refused(const sm_refusal *found, const char *operation) {
    return fail_same_rank(operation, &found->there, &found->refused, found->rank,
                          found->world_size);
}

/* Reads the rank's key. While another living process holds it, waits up to MAY_END_NS for that one
 * to end, and returns true if it has not. *found_p: valid if `*is_there_p`. */
static bool read_living(const sm_world *world, const char *key, sm_member *found_p,
                        bool *is_there_p) {
    const uint64_t until_ns = sm_now_ns() + MAY_END_NS;
    SM_ATTEMPT(look); /* a store without an answer is no failure */
    *is_there_p = read_member(world->store, key, world->timeout_ms, found_p) == SYMMEM_OK;
    for (;;) {
        /* A process may have several contexts. */
        if (!*is_there_p || sm_identity_same_process(world->identity, &found_p->identity) ||
            !surely_lives(world, &found_p->identity))
            return false;
        if (sm_expired(until_ns))
            return true;
        sm_sleep_ns(MAY_END_SLEEP_NS);
        sm_member now;
        const symmem_status status =
            read_member(world->store, key, sm_store_brief_ms(world->store), &now);
        if (status == SYMMEM_OK)
            *found_p = now;
        *is_there_p = status != SYMMEM_NOT_FOUND; /* without an answer it is as it was */
    }
}

static symmem_status refuse_taken(const sm_world *world, sm_member *own, const char *key) {
    sm_member found;
    bool is_there;
    const bool lives = read_living(world, key, &found, &is_there);
    if (!is_there)
        return SYMMEM_OK;
    const bool is_same = sm_identity_same_process(world->identity, &found.identity);
    if (!lives) {
        own->took_over = is_same ? 0 : 1;
        /* Only the rank's key tells of that file, and it will tell of another one. */
        sm_ipc_sweep_one(found.identity.life_file, world->liveness);
        return SYMMEM_OK;
    }
    fail_same_rank("init", &found.identity, world->identity, world->rank, world->size);
    object_to(world->store, world->prefix, own, SAME_RANK, &found);
    leave_refusal(world, &found.identity);
    return SYMMEM_MISMATCH;
}

/* Another process's key in the place of this one's. */
static symmem_status look_for_another(symmem_store *store, const char *world_prefix,
                                      const sm_member *own, const char *operation,
                                      uint32_t limit_ms) {
    sm_member found;
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_identity_key(world_prefix, own->rank, key, sizeof(key));
    {
        SM_ATTEMPT(look); /* a store without an answer is no failure */
        if (read_member(store, key, limit_ms, &found) != SYMMEM_OK ||
            sm_identity_same_process(&own->identity, &found.identity))
            return SYMMEM_OK;
    }
    fail_same_rank(operation, &own->identity, &found.identity, own->rank, own->world_size);
    object_to(store, world_prefix, own, SAME_RANK, &found);
    return SYMMEM_MISMATCH;
}

/* Removes the word that an earlier process of this rank has left. */
static void forget_earlier_word(const sm_world *world) {
    SM_ATTEMPT(forgetting);
    if (is_said(world))
        remove_word(world, world->rank);
}

/* A peer that lives when this process takes an ended one's place is this job's. If it ends before
 * this rank looks for it, it is lost. It is not what an earlier job has left. */
static void learn_living_peers(const sm_world *world) {
    SM_ATTEMPT(look);
    const uint64_t until_ns =
        sm_now_ns() + SM_LAST_LOOKS_NS; /* init does not wait for a slow store */
    for (int32_t rank = 0; rank < world->size && sm_now_ns() < until_ns; rank++) {
        char key[SYMMEM_STORE_KEY_MAX + 1];
        sm_member there;
        sm_identity_key(world->prefix, rank, key, sizeof(key));
        if (rank != world->rank &&
            read_member(world->store, key, sm_store_brief_ms(world->store), &there) == SYMMEM_OK &&
            there.world_size == world->size &&
            sm_liveness_ask_of(world->liveness, rank, &there.identity) != SYMMEM_PEER_GONE &&
            !sm_liveness_is_ending(world->liveness, &there.identity))
            sm_liveness_learn(world->liveness, rank, &there.identity);
    }
}

symmem_status sm_member_publish(const sm_world *world, sm_member *own, bool *published_p) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    *published_p = false;
    memset(own, 0, sizeof(*own)); /* sent as bytes */
    own->identity = *world->identity;
    own->magic = MEMBER_MAGIC;
    own->rank = world->rank;
    own->world_size = world->size;
    own->published_ns = sm_since_boot_ns();
    symmem_status status = sm_random(own->token, sizeof(own->token));
    if (status != SYMMEM_OK || world->size == 1)
        return status; /* a world of one rank has no peers that look for it */
    sm_identity_key(world->prefix, world->rank, key, sizeof(key));
    status = refuse_taken(world, own, key);
    if (status == SYMMEM_OK)
        forget_earlier_word(world);
    if (status == SYMMEM_OK && own->took_over != 0)
        learn_living_peers(world);
    if (status == SYMMEM_OK)
        status = symmem_store_set(world->store, key, own, sizeof(*own), world->timeout_ms);
    *published_p = status == SYMMEM_OK;
    if (status == SYMMEM_OK) {
        sm_exit_record_clear(world);
        forget_refusal(world);
    }
    /* Another process may have looked before this one had set the key. What one objects that has
     * found this key waits for the first group: if both ended here, ranks that come later would not
     * be told. */
    if (status == SYMMEM_OK)
        status = look_for_another(world->store, world->prefix, own, "init", world->timeout_ms);
    return status;
}

symmem_status sm_member_check(symmem_store *store, const char *world_prefix, const sm_member *own,
                              const char *operation, uint32_t limit_ms) {
    objection no;
    uint32_t kind;
    if (own == NULL || own->world_size == 1)
        return SYMMEM_OK;
    symmem_status status = look_for_another(store, world_prefix, own, operation, limit_ms);
    if (status != SYMMEM_OK)
        return status;
    {
        SM_ATTEMPT(look); /* the first one may have taken the limit */
        const uint32_t brief_ms = sm_store_brief_ms(store);
        kind = read_objection(store, world_prefix, own, limit_ms < brief_ms ? limit_ms : brief_ms,
                              &no);
    }
    if (kind == SAME_RANK)
        fail_same_rank(operation, &own->identity, &no.identity, own->rank, own->world_size);
    else if (kind == OTHER_SIZE)
        fail_other_size(operation, own->rank, own->world_size, no.rank, no.world_size);
    return kind == SAME_RANK || kind == OTHER_SIZE ? SYMMEM_MISMATCH : SYMMEM_OK;
}

#define WITHDRAW_MS 1000u /* for each call that takes the key back */

/* Removes the key first: a process that objects later then removes its objection itself. */
void sm_member_withdraw(const sm_world *world, const sm_member *own) {
    sm_member found;
    objection no;
    char key[SYMMEM_STORE_KEY_MAX + 1];
    SM_ATTEMPT(withdrawing);
    /* Relaxed: the caller orders what follows in this process. */
    atomic_store_explicit(&last_end_ns, sm_since_boot_ns(), memory_order_relaxed);
    const uint32_t limit_ms =
        world->timeout_ms != 0 && world->timeout_ms < WITHDRAW_MS ? world->timeout_ms : WITHDRAW_MS;
    sm_identity_key(world->prefix, world->rank, key, sizeof(key));
    symmem_status status = read_member(world->store, key, limit_ms, &found);
    if (status != SYMMEM_OK && status != SYMMEM_NOT_FOUND && status != SYMMEM_TIMEOUT)
        status = read_member(world->store, key, limit_ms, &found);
    if (status == SYMMEM_OK && is_own(own, &found))
        sm_store_take_back(world->store, key, &found, sizeof(found), limit_ms);
    forget_words(world);
    forget_refusal(world);
    if (own->took_over != 0) {
        sm_liveness_ended_key(world->prefix, world->rank, key, sizeof(key));
        remove_key(world->store, key);
    }
    if (read_objection(world->store, world->prefix, own, sm_store_brief_ms(world->store), &no) !=
        0) {
        objection_key(world->prefix, world->rank, key, sizeof(key));
        remove_key(world->store, key);
    }
}

/* --- others' keys ------------------------------------------------------------------- */

bool sm_member_differs(const sm_member *own, const sm_member *found) {
    return own != NULL && found->magic == MEMBER_MAGIC && found->world_size != own->world_size;
}

symmem_status sm_member_compare(symmem_store *store, const char *world_prefix, const sm_member *own,
                                const sm_member *found, bool lives) {
    if (!sm_member_differs(own, found))
        return SYMMEM_OK;
    fail_other_size("init", own->rank, own->world_size, found->rank, found->world_size);
    if (lives)
        object_to(store, world_prefix, own, OTHER_SIZE, found);
    return SYMMEM_MISMATCH;
}

/* Whether the other process goes on under its number. A process that started another program does,
 * and began long ago. */
static bool goes_on(const sm_identity *own, const sm_identity *other) {
    sm_process process;
    return own->pid_namespace == other->pid_namespace && sm_process_read(other->pid, &process) &&
           process.start_time == other->start_time;
}

bool sm_member_may_be_earlier(const sm_identity *own, sm_trace trace) {
    const long ticks = sysconf(_SC_CLK_TCK);
    if (own->start_time == 0 || !are_comparable(own, trace.identity))
        return true;
    /* The start time is rounded down, by at most one tick. */
    const uint64_t tick_ns = 1000000000u / (uint64_t)(ticks > 0 ? ticks : 1);
    return trace.made_ns <= (own->start_time + 1) * tick_ns ||
           trace.made_ns <= atomic_load_explicit(&last_end_ns, memory_order_relaxed) ||
           goes_on(own, trace.identity);
}

bool sm_member_is_older(const sm_member *own, sm_trace trace) {
    return own != NULL && own->took_over != 0 &&
           (!are_comparable(&own->identity, trace.identity) || trace.made_ns < own->published_ns) &&
           sm_member_may_be_earlier(&own->identity, trace);
}
