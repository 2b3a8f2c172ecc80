/* SPDX-License-Identifier: BSD-3-Clause */
/* Which launches are kept for the next call, and what differs in that: plan.c, with the launch
 * replaced. */
#include "cuda_internal.h"
#include "unit_main.h"
#include "signal/plan.h"

enum { CHANNELS = 3 };

static cuda_peers own;
static symmem_peers peers;
static cuda_instance instance;
static cuda_launch launch;

static struct launched {
    int times;
    CUfunction kernel;
    unsigned int blocks, threads;
    symmem_cuda_ll_args args;
    CUstream native;
    CUresult result;
} launched;

CUresult cuda_launch_kernel(const cuda_instance *on, CUfunction kernel, unsigned int blocks,
                            unsigned int threads, void *args, CUstream native) {
    launched.times++;
    launched.kernel = kernel;
    launched.blocks = blocks;
    launched.threads = threads;
    launched.native = native;
    memcpy(&launched.args, args, sizeof launched.args);
    return launched.result;
}

static cuda_stream streams[2];
static symmem_cuda_fault faults[2];
static const symmem_exec on_stream = {
    .stream = &streams[0], .timeout_ms = 7, .capture_known = true};

static CUfunction kernel_of(uintptr_t number) {
    return (CUfunction)number;
}

static symmem_collective call_of(size_t count) {
    return (symmem_collective){.size = sizeof(symmem_collective),
                               .name = "test",
                               .kind = SYMMEM_CALL_TWO_SHOT_ALL_REDUCE,
                               .dtype = SYMMEM_FLOAT32,
                               .count = count};
}

static cuda_plan *plan_of(const symmem_collective *call) {
    return cuda_plan_of(&peers, 1, call, &on_stream);
}

/* As an operation does that is launched for the first time. */
static void launch_new(CUfunction kernel, uint32_t units, bool succeeds) {
    symmem_cuda_ll_args args = {.units = units, .signal = {.fault = &faults[0], .timeout_ms = 7}};
    cuda_plan_forget(&launch);
    if (succeeds)
        cuda_plan_note(&launch, kernel, 5, 96, &CUDA_ARGUMENTS(args));
    launch.begun = launch.begun || succeeds;
}

static void begin_with(cuda_plan *plan) {
    launch = (cuda_launch){.plan = plan};
}

static void begin(void) {
    memset(&launched, 0, sizeof launched);
    own = (cuda_peers){.plans = calloc(CHANNELS, sizeof(cuda_plans *))};
    CU_ASSERT_PTR_NOT_NULL_FATAL(own.plans);
    peers = (symmem_peers){.size = sizeof peers, .priv = &own, .channel_count = CHANNELS};
}

static void end(void) {
    cuda_plans_free(&own, CHANNELS);
    CU_ASSERT_PTR_NULL(own.plans);
}

TEST("the same call again") {
    const symmem_collective call = call_of(10);
    begin();
    cuda_plan *plan = plan_of(&call);
    CU_ASSERT_FATAL(plan != NULL && plan->kernel == NULL);
    begin_with(plan);
    launch_new(kernel_of(1), 3, true);
    CU_ASSERT_FATAL(plan_of(&call) == plan && plan->kernel == kernel_of(1));
    const symmem_exec other = {.stream = &streams[1], .timeout_ms = 9, .capture_known = true};
    streams[1].native = (CUstream)&launched;
    CU_ASSERT_EQUAL(cuda_plan_launch(&instance, plan, &faults[1], &other), CUDA_SUCCESS);
    CU_ASSERT(launched.times == 1 && launched.kernel == kernel_of(1));
    CU_ASSERT(launched.blocks == 5 && launched.threads == 96 && launched.args.units == 3);
    CU_ASSERT(launched.args.signal.fault == &faults[1]);
    CU_ASSERT(launched.args.signal.timeout_ms == 9 && launched.native == streams[1].native);
    CU_ASSERT_EQUAL(launched.args.signal.stream, (uint64_t)(uintptr_t)&streams[1]);
    launched.result = CUDA_ERROR_LAUNCH_FAILED;
    CU_ASSERT_EQUAL(cuda_plan_launch(&instance, plan, &faults[1], &other),
                    CUDA_ERROR_LAUNCH_FAILED);
    end();
}

/* Each of its values counts. */
TEST("another call") {
    symmem_collective calls[10];
    int data;
    begin();
    for (int i = 0; i < 10; i++)
        calls[i] = call_of(10);
    calls[1].kind = SYMMEM_CALL_ONE_SHOT_ALL_REDUCE;
    calls[2].dtype = SYMMEM_BFLOAT16;
    calls[3].op = SYMMEM_AVG;
    calls[4].root = 1;
    calls[5].count = 11;
    calls[6].offset = 16;
    calls[7].in = &data;
    calls[8].out = &data;
    calls[9].in_row = 1;
    for (int first = 0; first < 10; first++) {
        for (int other = 0; other < 10; other++) {
            begin_with(plan_of(&calls[first]));
            launch_new(kernel_of(1 + (uintptr_t)first), 3, true);
            const CUfunction kept = plan_of(&calls[other])->kernel; /* NULL: none is */
            CU_ASSERT(kept == kernel_of(1 + (uintptr_t)other) || (kept == NULL && other != first));
        }
    }
    end();
}

/* Each channel has its own, and a barrier too. */
TEST("elsewhere") {
    const symmem_collective call = call_of(10);
    begin();
    begin_with(plan_of(&call));
    launch_new(kernel_of(1), 3, true);
    CU_ASSERT_PTR_NULL(cuda_plan_of(&peers, 2, &call, &on_stream)->kernel);
    CU_ASSERT_PTR_NULL(plan_of(NULL)->kernel);
    begin_with(plan_of(NULL));
    launch_new(kernel_of(2), 3, true);
    CU_ASSERT(plan_of(NULL)->kernel == kernel_of(2) && plan_of(&call)->kernel == kernel_of(1));
    end();
}

TEST("several kernels") {
    const symmem_collective call = call_of(10);
    begin();
    for (int i = 0; i < 2; i++) {
        const bool succeeds = i == 0; /* or the second one is refused */
        begin_with(plan_of(&call));
        launch_new(kernel_of(1), 3, true);
        launch_new(kernel_of(2), 3, succeeds);
        CU_ASSERT_PTR_NULL(plan_of(&call)->kernel);
    }
    begin_with(plan_of(&call));
    for (int i = 0; i < 3; i++)
        launch_new(kernel_of(1), 3, true);
    CU_ASSERT_PTR_NULL(plan_of(&call)->kernel);
    end();
}

/* What was kept is not used when the same call takes another way. */
TEST("a launch that is refused") {
    const symmem_collective call = call_of(10);
    begin();
    begin_with(plan_of(&call));
    launch_new(kernel_of(1), 3, true);
    begin_with(plan_of(&call));
    launch_new(kernel_of(1), 3, false);
    CU_ASSERT_PTR_NULL(plan_of(&call)->kernel);
    end();
}

TEST("calls without a plan") {
    symmem_composite composite = {.channel = 1};
    symmem_exec exec = on_stream;
    symmem_collective call = call_of(10);
    begin();
    exec.stream = NULL;
    CU_ASSERT_PTR_NULL(cuda_plan_of(&peers, 1, &call, &exec));
    exec = on_stream;
    exec.capture = 5;
    CU_ASSERT_PTR_NULL(cuda_plan_of(&peers, 1, NULL, &exec));
    exec = on_stream;
    exec.capture_known = false;
    CU_ASSERT_PTR_NULL(cuda_plan_of(&peers, 1, NULL, &exec));
    exec = on_stream;
    exec.composite = &composite;
    CU_ASSERT_PTR_NULL(cuda_plan_of(&peers, 1, NULL, &exec));
    exec = on_stream;
    exec.call.kind = (uint32_t)SYMMEM_CALL_BARRIER;
    CU_ASSERT_PTR_NULL(cuda_plan_of(&peers, 1, NULL, &exec));
    call.kind = SYMMEM_CALL_ALL_TO_ALL;
    CU_ASSERT_PTR_NULL(plan_of(&call));
    call = call_of(10);
    call.size = offsetof(symmem_collective, out_splits); /* an older core's */
    CU_ASSERT_PTR_NULL(plan_of(&call));
    end();
    CU_ASSERT_PTR_NULL(plan_of(NULL)); /* no memory */
}
