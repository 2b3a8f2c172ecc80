/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * waits WHAT: one of two ranks, of which rank 0 has a device that keeps it waiting. Its calls come
 * back all the same, both ranks are told alike, and once the device gets on all works again. WHAT:
 *   opening     another device of rank 0's is being opened, which takes its time
 *   rendezvous  the device does not get on while a rendezvous needs it, with a limit and without
 *   reset       the same for a reset, then one that works
 *   poison      the device does not get on while a barrier fails
 *   poisons     the same while barriers of two handles fail, one after the other
 *   release     the same while a handle is released and the context ends
 *   ended       the same after a reset that failed
 * With SYMMEM_CUDA_LATE_MS=300, or more where barriers are not to be abandoned.
 */

#include "checks.h"

#define LIMIT_MS 1000u
#define MANY_CHANNELS ((size_t)1 << 14)
#define TELLING_MS 4000u  /* of which rank 0 keeps a second for telling rank 1 */
#define HELD_MS 8000      /* at most, so that a call that does not come back fails and ends */
#define OPENING_MS "5000" /* a device */

static struct own {
    symmem_context *context;
    symmem_group *world;
    symmem_handle *handle;
    void *buffer;
    atomic_bool held;
    pthread_t keeper; /* lets go in the end */
    atomic_int said;
} own;

static void meet(void) {
    need(symmem_group_barrier(own.world, PATIENCE_MS), "the ranks do not come together");
}

/* --- rank 0's device stands still ------------------------------------------------------- */

static void *keep(void *unused) {
    const double end_s = now_s() + HELD_MS / 1e3;
    while (atomic_load(&own.held) && now_s() < end_s)
        sleep_ms(1);
    atomic_store(&own.held, false); /* before what waited comes back */
    fake_hold_all(false);
    return NULL;
}

/* Until it is said that a call waits, and for long enough to be said again. */
static void *keep_until_said(void *unused) {
    for (int i = 0; i < HELD_MS && atomic_load(&own.said) == 0; i++)
        sleep_ms(1);
    sleep_ms(500);
    fake_hold_all(false);
    return NULL;
}

static void hold_by(void *(*keeper)(void *unused)) {
    if (checks.rank != 0)
        return;
    fake_hold_all(true);
    atomic_store(&own.held, true);
    own.keeper = start(keeper, NULL);
}

static void hold(void) {
    hold_by(keep);
}

/* What was called since has not waited for that. */
static void let_go(const char *text) {
    if (checks.rank != 0)
        return;
    expect(atomic_exchange(&own.held, false), "%s", text);
    pthread_join(own.keeper, NULL);
}

/* --- rendezvous ------------------------------------------------------------------------- */

static void *allocate(void) {
    return memory_of(own.context, 64);
}

static symmem_handle *meet_with(void *buffer) {
    return meet_on(own.context, buffer, own.world);
}

static void use(symmem_handle *handle) {
    need(symmem_put_signal(handle, 1 - checks.rank, 3, PATIENCE_MS, NULL), "a signal");
    need(symmem_wait_signal(handle, 1 - checks.rank, 3, PATIENCE_MS, NULL), "its arrival");
    need(symmem_barrier(handle, 3, PATIENCE_MS, NULL), "a barrier");
}

static void rendezvous_without_limit(void) {
    symmem_handle *handle = NULL;
    void *buffer = allocate();
    meet();
    atomic_store(&own.said, 0);
    hold_by(keep_until_said);
    need(symmem_rendezvous(own.context, buffer, own.world, 0, &handle), "one without a limit");
    if (checks.rank == 0) {
        pthread_join(own.keeper, NULL);
        expect(atomic_load(&own.said) == 1, "it is not said that it waits");
    }
    use(handle);
    free_both(own.context, handle, buffer);
}

/* At first both ranks have the same one. Later on rank 0 has a short one, for time, and rank 1
 * hears of its failure in any case, however late the one or the other is. */
static uint32_t limit_of(int round) {
    return round == 0 ? TELLING_MS : checks.rank == 0 ? LIMIT_MS : PATIENCE_MS;
}

/* On both ranks. */
static void check_record(const char *operation) {
    symmem_error_record record;
    symmem_last_error(&record);
    expect(strcmp(record.operation, operation) == 0 && record.failed_rank == 0 &&
               strstr(record.message, "the device did not come to it") != NULL,
           "the record");
}

static void rendezvous_with_limit(uint32_t limit_ms) {
    symmem_handle *handle = NULL;
    void *buffer = allocate();
    meet();
    hold();
    expect_status(symmem_rendezvous(own.context, buffer, own.world, limit_ms, &handle),
                  SYMMEM_TIMEOUT, "a rendezvous that the device does not come to");
    check_record("rendezvous");
    let_go("the rendezvous waited for the device");
    meet();
    handle = meet_with(buffer);
    use(handle);
    free_both(own.context, handle, buffer);
}

/* What was late goes when it is done, which another thread finds. */
static int held_at_rest(int wanted) {
    for (int i = 0; i < 2000 && fake_handles_held() > wanted; i++)
        sleep_ms(1);
    return fake_handles_held();
}

/* Signals of so many channels are no place in a granule, but memory of their own. */
static void have_many_channels(void) {
    need(symmem_set_signal_pad_size(own.context, MANY_CHANNELS * 2 * sizeof(uint32_t)), "pad size");
}

/* Without a limit first: that it waits is said once. */
static void rendezvous(void) {
    rendezvous_without_limit();
    for (int i = 0; i < 2; i++)
        rendezvous_with_limit(limit_of(i));
    have_many_channels();
    const int handles = fake_handles_held();
    for (int i = 2; i < 4; i++)
        rendezvous_with_limit(limit_of(i));
    expect(held_at_rest(handles) <= handles, "memory is left behind");
}

/* --- reset and poison ------------------------------------------------------------------- */

static void fail_to_reset(uint32_t limit_ms) {
    meet();
    hold();
    expect_status(symmem_handle_reset(own.handle, limit_ms), SYMMEM_TIMEOUT,
                  "a reset that the device does not come to");
    check_record("handle_reset");
    expect(symmem_handle_status(own.handle, NULL) != SYMMEM_OK, "the handle is not poisoned");
}

static void reset(void) {
    for (int i = 0; i < 2; i++) {
        fail_to_reset(limit_of(i));
        let_go("the reset waited for the device");
        expect_status(symmem_barrier(own.handle, 3, PATIENCE_MS, NULL), SYMMEM_POISONED,
                      "a barrier after it");
        meet();
        need(symmem_handle_reset(own.handle, PATIENCE_MS), "the next reset");
        use(own.handle);
    }
}

/* Once so many kernels have begun in all. */
static void *hold_then(void *count) {
    for (int i = 0; i < 10000 && fake_kernels_begun() < *(const int *)count; i++)
        sleep_ms(1);
    hold();
    return NULL;
}

/* Its kernel has begun, and fails; what tells peers of that is not written in time. */
static void poison(void) {
    meet();
    if (checks.rank == 0) {
        int count = fake_kernels_begun() + 1;
        pthread_t holder = start(hold_then, &count);
        expect_status(symmem_barrier(own.handle, 3, LIMIT_MS, NULL), SYMMEM_TIMEOUT,
                      "a barrier alone");
        pthread_join(holder, NULL);
        let_go("the barrier waited for its poison");
    }
    meet();
    need(symmem_handle_reset(own.handle, PATIENCE_MS), "the reset after it");
    use(own.handle);
}

/* A barrier alone, and for how long the call goes on beyond its limit. */
typedef struct lonely {
    symmem_handle *handle;
    uint32_t limit_ms;
    double over_s;
} lonely;

static void *be_alone(void *arg) {
    lonely *call = arg;
    const double begin_s = now_s();
    expect_status(symmem_barrier(call->handle, 3, call->limit_ms, NULL), SYMMEM_TIMEOUT,
                  "a barrier alone");
    call->over_s = now_s() - begin_s - call->limit_ms / 1e3;
    return NULL;
}

/* It is the device that does not get on: it is waited for with the first handle, and not with the
 * next; but again once it has. */
static void fail_in_turn(symmem_handle *other) {
    lonely first = {own.handle, LIMIT_MS, 0}, second = {other, 3 * LIMIT_MS, 0};
    int count = fake_kernels_begun() + 2;
    pthread_t holder = start(hold_then, &count), later = start(be_alone, &second);
    be_alone(&first);
    pthread_join(later, NULL);
    pthread_join(holder, NULL);
    let_go("the barriers waited for their poison");
    expect(first.over_s > 0.9, "the first poison is not waited for");
    expect(second.over_s < 0.9, "the second poison is waited for as long");
}

static void poisons(void) {
    void *buffer = allocate();
    symmem_handle *other = meet_with(buffer);
    for (int i = 0; i < 2; i++) {
        meet();
        if (checks.rank == 0)
            fail_in_turn(other);
        meet();
        need(symmem_handle_reset(own.handle, PATIENCE_MS), "the reset of the first");
        need(symmem_handle_reset(other, PATIENCE_MS), "the reset of the second");
        use(own.handle);
        use(other);
    }
    free_both(own.context, other, buffer);
}

/* --- the end ---------------------------------------------------------------------------- */

static void end(void) {
    free_both(own.context, own.handle, own.buffer);
    symmem_context_free(own.context);
    own.context = NULL;
}

static void release(void) {
    meet();
    hold();
    end();
    let_go("the end waited for the device");
    sleep_ms(300);
}

/* What the device then does is done to memory that is still there. A granule would stay in any
 * case. */
static void ended(void) {
    have_many_channels();
    free_both(own.context, own.handle, own.buffer);
    own.buffer = allocate();
    own.handle = meet_with(own.buffer);
    fail_to_reset(limit_of(1));
    end();
    let_go("the end after a reset waited for the device");
    sleep_ms(500);
}

/* --- another device is opened ----------------------------------------------------------- */

static void *open_device(void *arg) {
    end_stream(stream_on(own.context, *(const int32_t *)arg));
    return NULL;
}

static void time_out_meanwhile(void) {
    static const int32_t device = 2;
    symmem_group *alone = NULL;
    void *buffer = allocate();
    const int rank = checks.rank;
    need(symmem_group_create(own.context, "alone", &rank, 1, NULL, &alone), "a group of one");
    symmem_handle *handle = meet_on(own.context, buffer, alone);
    pthread_t opening = start(open_device, (void *)(uintptr_t)&device);
    sleep_ms(100);
    const double begin_s = now_s();
    expect_status(symmem_wait_signal(handle, 0, 0, 100, NULL), SYMMEM_TIMEOUT, "a wait meanwhile");
    expect(now_s() - begin_s < 4, "the wait waited for another device");
    pthread_join(opening, NULL);
    free_both(own.context, handle, buffer);
}

/* The kernel that waits hears of it from the watcher. */
static void lose_peer_meanwhile(void) {
    static const int32_t device = 3;
    symmem_stream *stream = stream_on(own.context, -1);
    need(symmem_wait_signal(own.handle, 1, 0, PATIENCE_MS, stream), "a wait on a stream");
    meet();
    pthread_t opening = start(open_device, (void *)(uintptr_t)&device);
    const double begin_s = now_s();
    expect_status(symmem_stream_synchronize(stream, PATIENCE_MS), SYMMEM_PEER_LOST,
                  "the end of a peer meanwhile");
    expect(now_s() - begin_s < 4, "the loss was told after another device was open");
    pthread_join(opening, NULL);
    end_stream(stream);
}

static void opening(void) {
    if (setenv("FAKE_CUDA_SLOW_OPEN", OPENING_MS, 1) != 0)
        exit(1);
    if (checks.rank == 0)
        time_out_meanwhile();
    if (checks.rank == 0) {
        lose_peer_meanwhile();
    } else {
        meet();
        sleep_ms(200);
        _exit(0);
    }
}

/* ---------------------------------------------------------------------------------------- */

static void listen(void *arg, const char *line) {
    if (strstr(line, "SYMMEM_CUDA_LATE_MS") != NULL)
        atomic_fetch_add(&own.said, 1);
}

static void begin(void) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.log = listen;
    need(symmem_init(&options, &own.context), "init");
    need(symmem_context_rank(own.context, &checks.rank), "rank");
    own.world = group_of_all(own.context, "world");
    own.buffer = allocate();
    own.handle = meet_with(own.buffer);
    use(own.handle);
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {{"opening", opening}, {"rendezvous", rendezvous}, {"reset", reset},
                 {"poison", poison},   {"poisons", poisons},       {"release", release},
                 {"ended", ended}};
    int runs = 0;
    begin();
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (count > 1 && strcmp(arguments[1], modes[i].name) == 0) {
            modes[i].run();
            runs++;
        }
    if (own.context != NULL)
        end();
    return checks_end() == 0 && runs == 1 ? 0 : 1;
}
