/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What holds for every collective, shown by one_shot_all_reduce: arguments. Calls:
 * test_coll_calls.c. What each operation computes is tested with its family.
 */
#include "../strange_floats.h"
#include "coll_help.h"
#include "ops_help.h"
#include "reduce_help.h"
#include "timeout_help.h"
#include "work_after.h"

#include <sys/mman.h>
#include <time.h>

static symmem_status sum_of(symmem_handle *handle, const DLTensor *input, const DLTensor *out,
                            uint32_t limit_ms) {
    return symmem_one_shot_all_reduce_out(handle, input, SYMMEM_SUM, out, 0, limit_ms, NULL);
}

/* One wrong thing about a tensor that is right otherwise. */
struct flaw {
    const char *what;
    symmem_status status;
    void (*apply)(struct ops_tensor *tensor);
};

static int64_t odd_strides[1] = {2}; /* not const, for DLPack; never written */

#define FLAW(name, ...)                                                                            \
    static void name(struct ops_tensor *tensor) {                                                  \
        __VA_ARGS__;                                                                               \
    }
FLAW(no_data, tensor->dl.data = NULL)
FLAW(no_shape, tensor->dl.shape = NULL)
FLAW(negative_ndim, tensor->dl.ndim = -1)
FLAW(negative_size, tensor->shape[0] = -1)
FLAW(unknown_bits, tensor->dl.dtype.bits = 24)
FLAW(lanes, tensor->dl.dtype.lanes = 4)
FLAW(other_dtype, tensor->dl.dtype.code = kDLInt)
FLAW(other_count, tensor->shape[0]--)
FLAW(gaps, tensor->dl.strides = odd_strides)
FLAW(misaligned, tensor->dl.byte_offset = 2)

static void huge_size(struct ops_tensor *tensor) {
    tensor->dl.ndim = 3;
    tensor->shape[0] = tensor->shape[1] = tensor->shape[2] = INT64_C(1) << 40;
}

static void other_shape(struct ops_tensor *tensor) {
    tensor->dl.ndim = 2;
    tensor->shape[0] = COUNT / 2;
    tensor->shape[1] = 2;
}

static const struct flaw flaws[] = {
    {"no data", SYMMEM_INVALID_ARGUMENT, no_data},
    {"no shape", SYMMEM_INVALID_ARGUMENT, no_shape},
    {"negative ndim", SYMMEM_INVALID_ARGUMENT, negative_ndim},
    {"negative size", SYMMEM_INVALID_ARGUMENT, negative_size},
    {"a size that overflows", SYMMEM_OVERFLOW, huge_size},
    {"24 bits", SYMMEM_INVALID_ARGUMENT, unknown_bits},
    {"lanes", SYMMEM_INVALID_ARGUMENT, lanes},
    {"another dtype", SYMMEM_INVALID_ARGUMENT, other_dtype},
    {"another count", SYMMEM_INVALID_ARGUMENT, other_count},
    {"another shape", SYMMEM_INVALID_ARGUMENT, other_shape},
    {"gaps", SYMMEM_INVALID_ARGUMENT, gaps},
    {"misaligned", SYMMEM_MISALIGNED, misaligned},
};
#define FLAW_COUNT ((int)TK_COUNT(flaws))

/* Every flaw of either tensor on one rank is refused there at once, with nothing written. */
TK_TEST(coll, malformed_tensors, "SM-COLL-02,SM-COLL-20", .needs = COLLECTIVES) {
    struct sum s = sum_begin(t, tk_world_group(t));
    struct ops_tensor input, out;
    out_mark(t, &s);
    for (int i = 0; i < 2 * FLAW_COUNT; i++) {
        const struct flaw *flaw = &flaws[i / 2];
        (void)ops_flat(&input, s.own, SYMMEM_FLOAT32, COUNT);
        (void)ops_flat(&out, s.out, SYMMEM_FLOAT32, COUNT);
        flaw->apply(i % 2 ? &out : &input);
        symmem_status status = sum_of(s.handle, &input.dl, &out.dl, 50);
        TK_CHECK_MSG(t, status == flaw->status, "%s with %s: %s", i % 2 ? "out" : "input",
                     flaw->what, symmem_status_name(status));
        TK_EQ_STR(t, "one_shot_all_reduce_out", last_record().operation);
    }
    (void)ops_flat(&input, s.own, SYMMEM_FLOAT32, COUNT);
    (void)ops_flat(&out, s.out, SYMMEM_FLOAT32, COUNT);
    TK_FAILS(t, INVALID_ARGUMENT, sum_of(s.handle, NULL, &out.dl, 50));
    TK_FAILS(t, INVALID_ARGUMENT, sum_of(s.handle, &input.dl, NULL, 50));
    TK_FAILS(t, INVALID_ARGUMENT, sum_of(NULL, &input.dl, &out.dl, 50));
    out_untouched(t, &s);
    TK_CHECK(t, !info_of(t, s.handle).poisoned);
    /* A stride says nothing where there is one element or none. */
    int64_t strange = -7;
    input.shape[0] = out.shape[0] = 1;
    input.dl.strides = out.dl.strides = &strange;
    TK_OK(t, sum_of(s.handle, &input.dl, &out.dl, s.limit_ms));
}

TK_TEST(coll, channels, "SM-COLL-02", .needs = COLLECTIVES) {
    struct sum s = sum_begin(t, tk_world_group(t));
    int32_t count = info_of(t, s.handle).channel_count;
    TK_FAILS(t, OUT_OF_RANGE, sum_run(&s, -1, 50, NULL));
    TK_FAILS(t, OUT_OF_RANGE, sum_run(&s, count, 50, NULL));
    TK_EQ_SIZE(t, (uint64_t)count, last_record().expected);
    sum_load(t, &s, 1);
    TK_OK(t, sum_run(&s, count - 1, s.limit_ms, NULL));
    sum_expect(t, &s, 1, "the last channel");
}

TK_TEST(coll, places, "SM-COLL-03,SM-COLL-04", .needs = COLLECTIVES, .flags = TK_PLAIN_MEMORY) {
    enum { BYTES = COUNT * 4 };
    struct ops_tensor input, out;
    symmem_handle *handle = tk_handle(t, 2 * BYTES, tk_world_group(t));
    char *own = ops_own(t, handle), *elsewhere = tk_alloc(t, BYTES);
    symmem_handle_info info = info_of(t, handle);
    const DLTensor *result = ops_flat(&out, elsewhere, SYMMEM_FLOAT32, COUNT);
    float on_host[COUNT] = {0};
    TK_REQ(t, "SM-COLL-03");
    const struct {
        void *at;
        symmem_status status;
    } inputs[] = {
        {elsewhere, SYMMEM_NOT_SYMMETRIC},      {on_host, SYMMEM_NOT_SYMMETRIC},
        {own - 4, SYMMEM_NOT_SYMMETRIC},        {own + 2 * BYTES - 4, SYMMEM_OUT_OF_RANGE},
        {own + BYTES + 4, SYMMEM_OUT_OF_RANGE}, {own + info.block_size, SYMMEM_NOT_SYMMETRIC},
    };
    for (size_t i = 0; i < TK_COUNT(inputs); i++) {
        symmem_status status =
            sum_of(handle, ops_flat(&input, inputs[i].at, SYMMEM_FLOAT32, COUNT), result, 50);
        TK_CHECK_MSG(t, status == inputs[i].status, "place %zu: %s", i, symmem_status_name(status));
    }
    TK_OK(t, sum_of(handle, ops_flat(&input, own + BYTES, SYMMEM_FLOAT32, COUNT), result, LONG_MS));
    /* out beside the input in the same block is no overlap; one element into it is. */
    TK_REQ(t, "SM-COLL-04");
    (void)ops_flat(&input, own, SYMMEM_FLOAT32, COUNT);
    TK_OK(t,
          sum_of(handle, &input.dl, ops_flat(&out, own + BYTES, SYMMEM_FLOAT32, COUNT), LONG_MS));
    TK_FAILS(t, INVALID_ARGUMENT,
             sum_of(handle, &input.dl, ops_flat(&out, own + BYTES - 4, SYMMEM_FLOAT32, COUNT), 50));
    TK_FAILS(t, INVALID_ARGUMENT, sum_of(handle, &input.dl, &input.dl, 50));
    void *const *buffers = buffers_of(t, handle);
    int32_t next = (info.rank + 1) % info.world_size;
    TK_FAILS(t, INVALID_ARGUMENT,
             sum_of(handle, &input.dl,
                    ops_flat(&out, (char *)buffers[next] + info.offset, SYMMEM_FLOAT32, COUNT),
                    50));
}

TK_TEST(coll, supported_pairs, "SM-COLL-05", .needs = COLLECTIVES) {
    struct sum s = sum_begin(t, tk_world_group(t));
    for (int dtype = 0; dtype < SYMMEM_DTYPE_COUNT; dtype++)
        for (int op = 0; op < SYMMEM_REDUCE_OP_COUNT; op++) {
            bool is_float = dtype >= SYMMEM_FLOAT16 && dtype <= SYMMEM_FLOAT64;
            bool supported = op != SYMMEM_AVG || is_float;
            TK_EQ_INT(t, supported,
                      symmem_reduce_supported((symmem_dtype)dtype, (symmem_reduce_op)op));
            out_mark(t, &s);
            symmem_status status =
                sum_count(&s, (symmem_dtype)dtype, 8, (symmem_reduce_op)op, 0, s.limit_ms, NULL);
            TK_CHECK_MSG(t, status == (supported ? SYMMEM_OK : SYMMEM_UNSUPPORTED), "%s, op %d: %s",
                         symmem_dtype_name((symmem_dtype)dtype), op, symmem_status_name(status));
            if (!supported)
                out_untouched(t, &s);
        }
    TK_CHECK(t, !symmem_reduce_supported(SYMMEM_DTYPE_COUNT, SYMMEM_SUM));
    TK_CHECK(t, !symmem_reduce_supported((symmem_dtype)-1, SYMMEM_SUM));
    TK_CHECK(t, !symmem_reduce_supported(SYMMEM_FLOAT32, SYMMEM_REDUCE_OP_COUNT));
    TK_CHECK(t, !symmem_reduce_supported(SYMMEM_FLOAT32, (symmem_reduce_op)-1));
    TK_FAILS(t, INVALID_ARGUMENT,
             sum_count(&s, SYMMEM_FLOAT32, 8, SYMMEM_REDUCE_OP_COUNT, 0, 50, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             sum_count(&s, SYMMEM_FLOAT32, 8, (symmem_reduce_op)-1, 0, 50, NULL));
}

/*
 * The limit of a collective is for all its rendezvous together. The last rank comes to the first
 * one late and cannot come to the second one in time: what it writes between them lies on a page
 * that is not there until a while after it was touched, as of a program that brings memory in by
 * itself. Without HOST_ACCESS no rank can be held up between them: there it comes to none in time.
 */

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
    enum { FEW = 16 };
    const uint32_t limit_ms = tk_limit_ms(t, 600);
    const bool splits = (t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0;
    symmem_handle *handle = tk_handle(t, FEW * sizeof(int32_t), tk_world_group(t));
    char *result = tk_alloc(t, FEW * sizeof(int32_t));
    struct ops_tensor in;
    TK_REQ(t, "SM-COLL-08");
    if (!splits && t->rank == 0)
        tk_note(t, "a device's memory is there at once: the last rank comes to no meeting in time");
    if (splits && t->rank == t->last) {
        slow_begin(t, limit_ms * 12 / 10);
        result = slow.page;
    }
    (void)ops_flat(&in, ops_own(t, handle), SYMMEM_INT32, FEW);
    const DLTensor *out = FLAT(result, SYMMEM_INT32, FEW);
    tk_out_of_band_barrier(t);
    if (t->rank == t->last) {
        tk_sleep_ms(splits ? limit_ms * 9 / 10 : limit_ms * 2);
        /* What becomes of it is no matter of the limit's: no other rank may need it by then. */
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

/* What callers of collectives may bring along: empty tensors, options, a state of their floats. */

/* All ranks send to rank 0 alone; what the others receive, nothing, lies inside of their input, or
 * of a peer's. */
TK_TEST(coll, empty_tensors_overlap_nothing, "SM-COLL-13", .needs = COLLECTIVES, .min_ranks = 2,
        .flags = TK_PLAIN_MEMORY) {
    symmem_handle *handle = tk_handle(t, COUNT * sizeof(float), tk_world_group(t));
    char *own = ops_own(t, handle);
    struct ops_tensor in, out;
    size_t to[SYMMEM_MAX_WORLD_SIZE] = {COUNT}, from[SYMMEM_MAX_WORLD_SIZE] = {0};
    void *const *buffers = buffers_of(t, handle);
    size_t offset = info_of(t, handle).offset;
    char *all = tk_alloc(t, COUNT * sizeof(float) * (size_t)t->world_size);
    for (int32_t r = 0; r < t->world_size; r++)
        from[r] = t->rank == 0 ? COUNT : 0;
    for (int32_t r = 0; r < t->world_size; r++) {
        char *inside = (char *)buffers[r] + offset + 8;
        (void)ops_flat(&in, own, SYMMEM_FLOAT32, COUNT);
        (void)ops_flat(&out, t->rank == 0 ? all : inside, SYMMEM_FLOAT32,
                       t->rank == 0 ? COUNT * (size_t)t->world_size : 0);
        TK_OK(t, symmem_all_to_all_out(handle, &in.dl, to, &out.dl, from, 0, LONG_MS, NULL));
    }
}

TK_TEST(coll, some_ranks_check, "SM-COLL-14", .needs = COLLECTIVES, .min_ranks = 2) {
    int32_t odd = 1 + (int32_t)(t->seed % (uint64_t)(t->last));
    symmem_handle *handle = NULL;
    TK_REINIT(t, options.check_collectives = t->rank == odd);
    void *memory = tk_alloc(t, 64);
    TK_FAILS(t, MISMATCH,
             symmem_rendezvous(t->context, memory, tk_world_group(t), LONG_MS, &handle));
    TK_EQ_INT(t, odd, last_record().failed_rank);
    TK_EQ_PTR(t, NULL, handle);
}

/* One rank's thread, or its stream's, has such an environment. */
TK_TEST(coll, float_environment, "SM-COLL-11", .needs = COLLECTIVES, .min_ranks = 2) {
    enum { MANY = 300 };
    symmem_handle *handle = tk_handle(t, MANY * sizeof(double), tk_world_group(t));
    char *own = ops_own(t, handle), *out = tk_alloc(t, MANY * sizeof(double));
    int32_t odd = (int32_t)(t->seed % (uint64_t)t->world_size);
    for (int i = 0; i < 8; i++) {
        struct reduce_data data;
        symmem_dtype dtype = (symmem_dtype)(SYMMEM_FLOAT16 + i % 4);
        bool strange = t->rank == odd;
        reduce_data_begin(t, &data, dtype, i < 4 ? SYMMEM_SUM : SYMMEM_AVG, MANY, t->world_size,
                          (uint32_t)i);
        ops_upload(t, own, data.inputs + (size_t)t->rank * data.bytes, data.bytes);
        const DLTensor *from = FLAT(own, dtype, MANY);
        const DLTensor *to = FLAT(out, dtype, MANY);
        uint32_t usual = strange ? strange_floats(STRANGE_TRAPS) : 0;
        symmem_status status =
            symmem_one_shot_all_reduce_out(handle, from, data.op, to, 0, LONG_MS, NULL);
        TK_CHECK_MSG(t, !strange || usual_floats(STRANGE_TRAPS, usual),
                     "the environment was changed");
        char got[MANY * sizeof(double)];
        if (TK_OK(t, status)) {
            ops_download(t, got, out, data.bytes);
            TK_CHECK_MSG(t, memcmp(got, data.expected, data.bytes) == 0, "%s: other bits",
                         symmem_dtype_name(dtype));
        }
        reduce_data_end(&data);
    }
}
