/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The limit of a collective is for all its meetings together. The last rank comes to the first one
 * late and cannot come to the second one in time: what it writes between them lies on a page that
 * is not there until a while after it was touched, as of a program that brings memory in by itself.
 * Without HOST_ACCESS no rank can be held up between them: there it comes to no meeting in time.
 */
#include <sys/mman.h>
#include <time.h>

#include "ops_help.h"
#include "timeout_help.h"
#include "work_after.h"

/* One rank alone has such a page at a time, if ranks are threads too. */
static struct {
    char *page;
    size_t bytes;
    struct timespec hold;
    atomic_int touched;
    struct sigaction before;
} slow;

/* For any other address the fault comes again, and means what it meant before. */
static void bring_in(int signal_number, siginfo_t *info, void *context) {
    char *at = info->si_addr;
    if (at < slow.page || at >= slow.page + slow.bytes) {
        (void)sigaction(signal_number, &slow.before, NULL);
        return;
    }
    atomic_fetch_add(&slow.touched, 1);
    (void)nanosleep(&slow.hold, NULL);
    (void)mprotect(slow.page, slow.bytes, PROT_READ | PROT_WRITE);
}

static void slow_begin(struct tk *t, uint32_t hold_ms) {
    struct sigaction action = {.sa_sigaction = bring_in, .sa_flags = SA_SIGINFO};
    slow.bytes = (size_t)sysconf(_SC_PAGESIZE);
    slow.page = mmap(NULL, slow.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TK_REQUIRE(t, slow.page != MAP_FAILED);
    slow.hold = (struct timespec){hold_ms / 1000, hold_ms % 1000 * 1000000L};
    atomic_store(&slow.touched, 0);
    TK_REQUIRE(t, sigaction(SIGSEGV, &action, &slow.before) == 0);
}

static void slow_end(struct tk *t) {
    TK_EQ_INT(t, 0, sigaction(SIGSEGV, &slow.before, NULL));
    TK_EQ_INT(t, 0, munmap(slow.page, slow.bytes));
}

TK_TEST(coll, one_limit_for_all_meetings, "SM-COLL-08,SM-TIMEOUT-14", .needs = COLLECTIVES,
        .ranks = {2, 3}) {
    enum { COUNT = 16 };
    const uint32_t limit_ms = tk_limit_ms(t, 600);
    const bool splits = (t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0;
    symmem_handle *handle = tk_handle(t, COUNT * sizeof(int32_t), tk_world_group(t));
    char *result = tk_alloc(t, COUNT * sizeof(int32_t));
    struct ops_tensor in;
    TK_REQ(t, "SM-COLL-08");
    if (!splits && t->rank == 0)
        tk_note(t, "a device's memory is there at once: the last rank comes to no meeting in time");
    if (splits && t->rank == t->last) {
        slow_begin(t, limit_ms * 12 / 10);
        result = slow.page;
    }
    (void)ops_flat(&in, ops_own(t, handle), SYMMEM_INT32, COUNT);
    const DLTensor *out = FLAT(result, SYMMEM_INT32, COUNT);
    tk_out_of_band_barrier(t);
    if (t->rank == t->last) {
        tk_sleep_ms(splits ? limit_ms * 9 / 10 : limit_ms * 2);
        /* What becomes of it is no matter of the limit's: nobody else may need it by then. */
        symmem_status status =
            symmem_one_shot_all_reduce_out(handle, &in.dl, SYMMEM_SUM, out, 0, LONG_MS, NULL);
        TK_CHECK_MSG(t, status == SYMMEM_OK || status == SYMMEM_POISONED || slow.touched == 0,
                     "the rank that is late got %s", symmem_status_name(status));
        if (splits)
            slow_end(t);
    } else {
        uint64_t begin_ms = tk_now_ms();
        symmem_status status =
            symmem_one_shot_all_reduce_out(handle, &in.dl, SYMMEM_SUM, out, 0, limit_ms, NULL);
        uint64_t took_ms = tk_now_ms() - begin_ms;
        symmem_error_record record = last_record();
        /* On a busy machine it may be so late itself that the last rank was not. */
        if (status == SYMMEM_OK && took_ms < limit_ms)
            tk_note(t, "all of it took %u of %u ms: no limit was over", (unsigned)took_ms,
                    limit_ms);
        else
            TK_CHECK_MSG(t, status == SYMMEM_TIMEOUT || status == SYMMEM_POISONED,
                         "got %s after %u of %u ms", symmem_status_name(status), (unsigned)took_ms,
                         limit_ms);
        TK_TIMELY(t, took_ms < limit_ms * 3 / 2 + tk_late_ms(t, begin_ms),
                  "it took %u ms with a limit of %u", (unsigned)took_ms, limit_ms);
        if (status == SYMMEM_TIMEOUT) {
            TK_AT_LEAST(t, limit_ms, took_ms + 1);
            TK_CHECK(t, symmem_error_is_missing(&record, t->last));
        }
    }
    tk_out_of_band_barrier(t);
    work_after(t, NULL);
}
