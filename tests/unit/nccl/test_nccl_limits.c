/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long the NCCL backend waits, and what it says then: its calls one by one, with an NCCL that
 * only answers how far it is. Each case that has to be over by a certain time gets several tries,
 * for the machine may be busy.
 */
#include <stdarg.h>

#include "../../quiet_host.h"
#include "coll_comm.h"
#include "unit_child.h"
#include "unit_main.h"

#define TRIES 10
#define MS CUDA_NS_PER_MS

/* In place of both image.c: no kernel runs here. */
const void *cuda_image(void) {
    return NULL;
}

const void *nccl_image(void) {
    return NULL;
}

/* --- what the backend is told ------------------------------------------------------- */

static _Atomic uint64_t begin_ns; /* of a try; the watcher looks there, too */
static uint64_t gone_after_ns;    /* when the peer ends; 0: never */
static uint64_t failed_after_ns;  /* when it tells of a failure; 0: never */
static bool ending;               /* till then the system is at it */
static uint64_t busy_for_ns;      /* how long NCCL is at work */
static ncclResult_t outcome;      /* what it comes to */
static bool poisoned;
static nccl_coll_comm its_span, other_span;
static atomic_int asked_for_own; /* questions whether this rank has ended; none is expected */

static symmem_peer_state state_of(int32_t rank) {
    atomic_fetch_add(&asked_for_own, rank == 0);
    if (gone_after_ns != 0 && cuda_now_ns() - begin_ns >= gone_after_ns)
        return SYMMEM_PEER_GONE;
    return SYMMEM_PEER_ALIVE;
}

static symmem_peer_state peer_in_exchange(const symmem_exchange *exchange, int32_t rank) {
    return state_of(rank);
}

static symmem_peer_state peer_of(const symmem_peers *peers, int32_t rank) {
    return state_of(rank);
}

static bool ending_in_exchange(const symmem_exchange *exchange, int32_t rank) {
    return ending && state_of(rank) == SYMMEM_PEER_ALIVE;
}

static bool ending_of(const symmem_peers *peers, int32_t rank) {
    return ending && state_of(rank) == SYMMEM_PEER_ALIVE;
}

static bool is_poisoned(const symmem_peers *peers) {
    return poisoned;
}

static ncclResult_t async_error(ncclComm_t comm, ncclResult_t *state_p) {
    *state_p = cuda_now_ns() - begin_ns < busy_for_ns ? ncclInProgress : outcome;
    return ncclSuccess;
}

static const char *error_string(ncclResult_t result) {
    return "an error";
}

static const char *last_error(ncclComm_t comm) {
    return NULL;
}

static CUresult capture_mode(CUstreamCaptureMode *mode) {
    return CUDA_SUCCESS;
}

static const symmem_host host = {.size = sizeof host,
                                 .fail = quiet_fail,
                                 .peer_state = peer_of,
                                 .is_poisoned = is_poisoned,
                                 .peer_is_ending = ending_of};
static nccl_state state = {.lock = PTHREAD_MUTEX_INITIALIZER,
                           .work = PTHREAD_COND_INITIALIZER,
                           .library = {.CommGetAsyncError = async_error,
                                       .GetErrorString = error_string,
                                       .GetLastError = last_error}};
static cuda_instance instance = {.host = &host,
                                 .extension = &state,
                                 .driver = {.ThreadExchangeStreamCaptureMode = capture_mode}};

static symmem_status failure_of_peer(const symmem_exchange *exchange) {
    return failed_after_ns != 0 && cuda_now_ns() - begin_ns >= failed_after_ns ? SYMMEM_PERMISSION
                                                                               : SYMMEM_OK;
}

static symmem_exchange within(uint64_t limit_ns, int32_t world) {
    begin_ns = cuda_now_ns();
    return (symmem_exchange){.size = sizeof(symmem_exchange),
                             .rank = 0,
                             .world_size = world,
                             .deadline_ns = limit_ns != 0 ? begin_ns + limit_ns : 0,
                             .peer_state = peer_in_exchange,
                             .peer_is_ending = ending_in_exchange,
                             .peer_failure = failure_of_peer};
}

static uint64_t took_ns(void) {
    return cuda_now_ns() - begin_ns;
}

/* False: it came late, and may be tried again. A wrong answer is no better the next time. */
static bool is_right(symmem_status status, symmem_status wanted, uint64_t most_ns) {
    const bool in_time = took_ns() < most_ns;
    CU_ASSERT_EQUAL(status, wanted);
    return in_time || status != wanted;
}

/* Repeats an attempt that a busy machine may delay. */
#define IN_TIME(attempt)                                                                           \
    do {                                                                                           \
        int tries = 0;                                                                             \
        while (tries < TRIES && !(attempt))                                                        \
            tries++;                                                                               \
        CU_ASSERT_FATAL(tries < TRIES);                                                            \
    } while (0)

static void reset(void) {
    gone_after_ns = busy_for_ns = failed_after_ns = 0;
    outcome = ncclSuccess;
    poisoned = ending = false;
    its_span = other_span = (nccl_coll_comm){.users = 1, .call_lock = PTHREAD_MUTEX_INITIALIZER};
}

/* --- an error of NCCL's ------------------------------------------------------------- */

static bool fails_in(ncclResult_t result, uint64_t limit_ns, int32_t world, symmem_status wanted,
                     uint64_t most_ns) {
    const symmem_exchange exchange = within(limit_ns, world);
    return is_right(nccl_comm_failed(&instance, result, &exchange, "registration"), wanted,
                    most_ns);
}

/* For a peer's end may be the reason. */
TEST("errors are held back") {
    reset();
    (void)fails_in(ncclInternalError, 0, 2, SYMMEM_BACKEND, 0);
    CU_ASSERT(took_ns() >= NCCL_LOSS_MS * MS);
    gone_after_ns = 50 * MS;
    IN_TIME(fails_in(ncclInternalError, 0, 2, SYMMEM_PEER_LOST, NCCL_LOSS_MS * MS));
    gone_after_ns = 1;
    IN_TIME(fails_in(ncclInvalidUsage, 0, 2, SYMMEM_PEER_LOST, NCCL_LOSS_MS * MS));
    gone_after_ns = 2 * NCCL_LOSS_MS * MS;
    ending = true;
    (void)fails_in(ncclInternalError, 0, 2, SYMMEM_PEER_LOST, 0);
    CU_ASSERT(took_ns() >= gone_after_ns);
}

/* Or its failure, of which the broken connection tells before itself does. */
TEST("for what a peer has to tell") {
    reset();
    failed_after_ns = 100 * MS;
    IN_TIME(fails_in(ncclInternalError, 0, 2, SYMMEM_PERMISSION, NCCL_LOSS_MS * MS));
    failed_after_ns = (NCCL_LOSS_MS + 100) * MS;
    IN_TIME(fails_in(ncclRemoteError, 0, 2, SYMMEM_PERMISSION, 2 * NCCL_LOSS_MS * MS));
}

/* Within the limit, and so that there is time to tell the others. */
TEST("but within the limit") {
    reset();
    IN_TIME(fails_in(ncclInternalError, 200 * MS, 2, SYMMEM_BACKEND, 200 * MS));
    IN_TIME(fails_in(ncclSystemError, 1, 2, SYMMEM_BACKEND, 100 * MS)); /* over already */
    IN_TIME(fails_in(ncclRemoteError, 1, 2, SYMMEM_PEER_LOST, 100 * MS));
    ending = true;
    IN_TIME(fails_in(ncclInternalError, 200 * MS, 2, SYMMEM_BACKEND, 200 * MS));
}

/* Errors that no peer can have caused. */
TEST("and not where nobody is to be waited for") {
    reset();
    IN_TIME(fails_in(ncclInvalidUsage, 0, 2, SYMMEM_BACKEND, 200 * MS));
    IN_TIME(fails_in(ncclInvalidArgument, 0, 2, SYMMEM_BACKEND, 200 * MS));
    IN_TIME(fails_in(ncclInternalError, 0, 1, SYMMEM_BACKEND, 200 * MS));
    ending = true;
    IN_TIME(fails_in(ncclInvalidArgument, 0, 2, SYMMEM_BACKEND, 200 * MS));
}

/* --- what NCCL does in the background ----------------------------------------------- */

static bool waits(uint64_t limit_ns, symmem_status wanted, uint64_t most_ns) {
    const symmem_exchange exchange = within(limit_ns, 2);
    return is_right(nccl_comm_wait(&instance, NULL, &exchange, "registration"), wanted, most_ns);
}

TEST("NCCL is waited for") {
    reset();
    busy_for_ns = 60 * MS;
    IN_TIME(waits(0, SYMMEM_OK, 1000 * MS));
    CU_ASSERT(took_ns() >= 60 * MS);
    outcome = ncclInvalidArgument;
    IN_TIME(waits(0, SYMMEM_BACKEND, 300 * MS));
    outcome = ncclInternalError; /* held back */
    gone_after_ns = 90 * MS;
    IN_TIME(waits(0, SYMMEM_PEER_LOST, NCCL_LOSS_MS * MS));
    busy_for_ns = 2000 * MS;
    IN_TIME(waits(0, SYMMEM_PEER_LOST, 1000 * MS));
}

/* A peer that failed before it came ends the wait. A peer that failed after it came does not. */
TEST("not for one that failed") {
    reset();
    busy_for_ns = 3000 * MS;
    failed_after_ns = 50 * MS;
    IN_TIME(waits(0, SYMMEM_PERMISSION, 1000 * MS));
    CU_ASSERT(took_ns() >= 150 * MS);
    busy_for_ns = 100 * MS;
    IN_TIME(waits(0, SYMMEM_OK, 1000 * MS));
}

/* A part of the time is left to tell the others. */
TEST("within the limit") {
    reset();
    busy_for_ns = 1000 * MS;
    IN_TIME(waits(200 * MS, SYMMEM_TIMEOUT, 200 * MS));
    CU_ASSERT(took_ns() >= 100 * MS);
    IN_TIME(waits(1, SYMMEM_TIMEOUT, 100 * MS));
}

/* --- a collective under way --------------------------------------------------------- */

static symmem_cuda_fault fault;
static symmem_cuda_control control;
static cuda_peers own_peers = {.control = &control};
static const symmem_peers peers = {
    .size = sizeof peers, .host = &host, .rank = 0, .world_size = 2, .priv = &own_peers};

static nccl_inflight take_off(uint32_t timeout_ms) {
    memset(&fault, 0, sizeof fault);
    control.failed = 0;
    nccl_inflight flight = {.instance = &instance,
                            .coll = &its_span,
                            .peers = &peers,
                            .fault = &fault,
                            .timeout_ms = timeout_ms};
    begin_ns = cuda_now_ns();
    nccl_inflight_begin(&flight);
    return flight;
}

/* Also to the next check of the handle. */
static symmem_status told(void) {
    CU_ASSERT_EQUAL(control.failed != 0, fault.code != 0);
    return (symmem_status)(-(int32_t)fault.code);
}

/* Asks like the backend until a failure is reported, with an error of NCCL's or without. */
static bool is_told_in(ncclResult_t result, uint32_t timeout_ms, symmem_status wanted,
                       uint64_t most_ns) {
    nccl_inflight flight = take_off(timeout_ms);
    while (took_ns() < 3000 * MS &&
           (result != ncclSuccess ? !nccl_inflight_nccl_error(&flight, result)
                                  : nccl_inflight_check(&flight)))
        cuda_sleep_ns(MS);
    return is_right(told(), wanted, most_ns);
}

TEST("a collective's limit") {
    reset();
    IN_TIME(is_told_in(ncclSuccess, 60, SYMMEM_TIMEOUT, 1000 * MS));
    CU_ASSERT(took_ns() >= 60 * MS);
    nccl_inflight flight = take_off(1);
    atomic_store(&flight.begun_ns, 0); /* the stream has not come to it: its time has not begun */
    cuda_sleep_ns(5 * MS);
    CU_ASSERT(nccl_inflight_check(&flight));
    atomic_store(&flight.called_ns, begin_ns); /* in the call it has */
    CU_ASSERT_FALSE(nccl_inflight_check(&flight));
    CU_ASSERT(told() == SYMMEM_TIMEOUT && fault.elapsed_ns >= 5 * MS);
    flight = take_off(0); /* no limit */
    cuda_sleep_ns(5 * MS);
    CU_ASSERT(nccl_inflight_check(&flight));
}

TEST("a collective that NCCL breaks off") {
    reset();
    (void)is_told_in(ncclInternalError, 0, SYMMEM_BACKEND, 0);
    CU_ASSERT(took_ns() >= NCCL_LOSS_MS * MS);
    IN_TIME(is_told_in(ncclInvalidUsage, 0, SYMMEM_BACKEND, 200 * MS));
    /* At the limit, and that is not the reason. */
    IN_TIME(is_told_in(ncclRemoteError, 60, SYMMEM_PEER_LOST, 300 * MS));
    gone_after_ns = 50 * MS;
    IN_TIME(is_told_in(ncclInternalError, 0, SYMMEM_PEER_LOST, NCCL_LOSS_MS * MS));
    CU_ASSERT(fault.failed_rank == 1 && fault.missing[0] == 2);
    gone_after_ns = 2 * NCCL_LOSS_MS * MS;
    ending = true;
    (void)is_told_in(ncclInternalError, 0, SYMMEM_PEER_LOST, 0);
    CU_ASSERT(took_ns() >= gone_after_ns && fault.failed_rank == 1);
    gone_after_ns = 10000 * MS;
    IN_TIME(is_told_in(ncclInternalError, 60, SYMMEM_BACKEND, 300 * MS)); /* at the limit */
    gone_after_ns = 0;
    ending = false;
    poisoned = true;
    IN_TIME(is_told_in(ncclSuccess, 0, SYMMEM_POISONED, 1000 * MS));
}

/* With the communicator all ends that is under way on it, and nothing else. */
TEST("a communicator is given up") {
    reset();
    symmem_cuda_fault second = {0}, third = {0};
    nccl_inflight one = take_off(0), two = one, three = one;
    two.fault = &second;
    three.fault = &third;
    three.coll = &other_span;
    one.next = &three;
    three.next = &two;
    state.inflights = &one;
    nccl_inflight_fail(&two, SYMMEM_TIMEOUT, -1);
    CU_ASSERT_PTR_NULL(nccl_coll_comm_remove(&instance, &its_span));
    state.inflights = NULL;
    CU_ASSERT_EQUAL(told(), SYMMEM_POISONED);
    CU_ASSERT_EQUAL(second.code, -(uint32_t)SYMMEM_TIMEOUT); /* it had its own */
    CU_ASSERT_EQUAL(third.code, 0);
    CU_ASSERT(!nccl_inflight_check(&one) && nccl_inflight_check(&three));
}

/* For another one, as some rank gave it up: what is under way here does not end well. */
TEST("another one comes in its place") {
    reset();
    nccl_inflight flight = take_off(0);
    state.inflights = &flight;
    nccl_coll_comm_end(&instance, &its_span, NCCL_ANY_SERIAL, 0);
    state.inflights = NULL;
    CU_ASSERT_EQUAL(told(), SYMMEM_POISONED);
}

static nccl_inflight *watched(nccl_coll_comm *span, symmem_cuda_fault *its_fault,
                              uint32_t timeout_ms) {
    nccl_inflight *flight = malloc(sizeof *flight);
    CU_ASSERT_PTR_NOT_NULL_FATAL(flight);
    *flight = take_off(timeout_ms);
    flight->coll = span;
    flight->fault = its_fault;
    CU_ASSERT_EQUAL(nccl_watcher_start(&instance, "collective"), SYMMEM_OK);
    nccl_inflight_add(flight);
    return flight;
}

static bool is_told(const symmem_cuda_fault *its_fault) {
    while (__atomic_load_n(&its_fault->code, __ATOMIC_ACQUIRE) == 0 && took_ns() < 2000 * MS)
        cuda_sleep_ns(MS);
    return __atomic_load_n(&its_fault->code, __ATOMIC_ACQUIRE) != 0;
}

/* The watcher looks while no caller does. One limit is over, and with it all calls on that
 * communicator end. */
TEST("the watcher") {
    static symmem_cuda_fault faults[3];
    reset();
    nccl_inflight *flights[] = {watched(&its_span, &faults[0], 20),
                                watched(&its_span, &faults[1], 0),
                                watched(&other_span, &faults[2], 0)};
    CU_ASSERT(is_told(&faults[0]) && is_told(&faults[1]));
    CU_ASSERT_EQUAL(faults[0].code, -(uint32_t)SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(faults[1].code, -(uint32_t)SYMMEM_POISONED);
    cuda_sleep_ns(50 * MS); /* the watcher has come round again */
    CU_ASSERT_EQUAL(faults[2].code, 0);
    for (int i = 0; i < 3; i++)
        nccl_inflight_end(flights[i]);
    nccl_watcher_stop(&instance);
    CU_ASSERT(its_span.users == 1 && other_span.users == 1);
    CU_ASSERT_EQUAL(atomic_load(&asked_for_own), 0);
}

/* A flight of the communicator before is still there, for its stream has not passed it. */
TEST("the watcher and an old call in flight") {
    static symmem_cuda_fault its_fault;
    nccl_comm comm = {.users = 2};
    reset();
    state.closing = state.has_watcher = false;
    nccl_inflight *flight = watched(&its_span, &its_fault, 20);
    CU_ASSERT(is_told(&its_fault));
    nccl_coll_comm_end(&instance, &its_span, NCCL_ANY_SERIAL, 0);
    nccl_coll_comm_set(&instance, &its_span, &comm);
    CU_ASSERT(
        nccl_coll_comm_end(&instance, &its_span, flight->serial, 0)); /* it has gone already */
    CU_ASSERT(nccl_coll_comm_is_ready(&its_span));
    cuda_sleep_ns(50 * MS);
    pthread_mutex_lock(&its_span.call_lock);
    CU_ASSERT_PTR_EQUAL(its_span.comm, &comm);
    pthread_mutex_unlock(&its_span.call_lock);
    nccl_inflight_end(flight);
    nccl_watcher_stop(&instance);
}

static atomic_bool has_turn, is_to_let_go, has_let_go;

/* Holds the lock like a call that the driver delays. */
static void *keep_turn(void *opaque) {
    pthread_mutex_lock(&its_span.call_lock);
    atomic_store(&has_turn, true);
    AWAIT(5000, atomic_load(&is_to_let_go));
    atomic_store(&has_let_go, true);
    pthread_mutex_unlock(&its_span.call_lock);
    return NULL;
}

static void *have_it_let_go(void *opaque) {
    cuda_sleep_ns(200 * MS);
    atomic_store(&is_to_let_go, true);
    return NULL;
}

/* A thread that gives a communicator up waits for the holder of the call lock until its limit, or
 * without a limit until the lock is free. */
TEST("a turn that is kept") {
    pthread_t keeper, other;
    reset();
    CU_ASSERT_EQUAL_FATAL(pthread_create(&keeper, NULL, keep_turn, NULL), 0);
    while (!atomic_load(&has_turn))
        cuda_sleep_ns(MS);
    begin_ns = cuda_now_ns();
    CU_ASSERT_FALSE(nccl_coll_comm_end(&instance, &its_span, NCCL_ANY_SERIAL, begin_ns + 50 * MS));
    CU_ASSERT(took_ns() >= 50 * MS && !atomic_load(&has_let_go));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&other, NULL, have_it_let_go, NULL), 0);
    CU_ASSERT(nccl_coll_comm_end(&instance, &its_span, NCCL_ANY_SERIAL, 0));
    CU_ASSERT(atomic_load(&has_let_go));
    CU_ASSERT_EQUAL(pthread_join(other, NULL), 0);
    CU_ASSERT_EQUAL(pthread_join(keeper, NULL), 0);
}

/* --- the process's end -------------------------------------------------------------- */

static symmem_cuda_fault *pinned;

/* The driver was loaded before. It takes its time. */
static void take_back(void) {
    (void)mprotect(pinned, sizeof *pinned, PROT_NONE);
    cuda_sleep_ns(400 * MS);
}

/* The limit is over when the driver's memory is no more. */
static void end_under_way(void) {
    if (atexit(take_back) != 0)
        _exit(NO_WORLD);
    cuda_await_at_exit();
    reset();
    (void)watched(&its_span, pinned, 100);
    exit(CHOSEN);
}

TEST("the watcher at the process's end") {
    pinned = mmap(NULL, sizeof *pinned, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(pinned, MAP_FAILED);
    CU_ASSERT(has_chosen(end_in_child(end_under_way)));
    (void)munmap(pinned, sizeof *pinned);
}
