/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of ranks without direct access to each other, on a fake backend of two ranks whose
 * pointers to one another are NULL: what reaches the backend and what does not. */
#include "fake_table.h"
#include "ops_calls.h"

#define N 8

/* What each rank's backend was asked last; ranks may be threads. */
static struct {
    int calls;
    symmem_call_kind kind;
    int32_t channel, root;
    uint32_t timeout_ms;
    size_t count;
    bool fails; /* the next call */
    int lost;   /* how often its backend was told so */
} seen[2];
static symmem_status fake_collective(void *instance, const symmem_peers *peers, int32_t channel,
                                     const symmem_collective *call, const symmem_exec *exec) {
    seen[peers->rank].calls += 100; /* never to be called here */
    return SYMMEM_OK;
}

static symmem_status fake_apart(void *instance, const symmem_peers *peers, int32_t channel,
                                const symmem_collective *call, const symmem_exec *exec) {
    seen[peers->rank].calls++;
    seen[peers->rank].kind = call->kind;
    seen[peers->rank].channel = channel;
    seen[peers->rank].root = call->root;
    seen[peers->rank].count = call->count;
    seen[peers->rank].timeout_ms = exec->timeout_ms;
    if (!seen[peers->rank].fails)
        return SYMMEM_OK;
    const symmem_fault fault = {
        .operation = call->name, .status = SYMMEM_TIMEOUT, .channel = channel, .failed_rank = -1};
    seen[peers->rank].fails = false;
    peers->host->signal_failed(peers, &fault, NULL);
    return SYMMEM_TIMEOUT;
}

static void fake_lost(void *instance, const symmem_peers *peers) {
    seen[peers->rank].lost++;
}

/* Alive as long as a context may use it, after a failed check too. */
static flat_backend tables[2];

static const symmem_backend *fake_of_two(const struct tk *t, bool has_a_way) {
    flat_backend table = flat_of(&fake_table_a);
    table.head.flags |= SYMMEM_CAP_THREAD_RANKS;
    fake_table_exchanges(&table);
    table.collective = fake_collective;
    table.collective_apart = has_a_way ? fake_apart : NULL;
    table.signal_lost = has_a_way ? fake_lost : NULL;
    tables[t->rank] = table;
    return flat_table(&tables[t->rank]);
}

typedef struct scene {
    struct tk *t;
    symmem_handle *handle;
    int data[4 * N];
    int *own; /* symmetric */
    DLTensor part, whole, out_part, out_whole;
    int64_t part_shape, whole_shape;
} scene;

static DLTensor tensor_of(const struct tk *t, void *data, int64_t *shape) {
    return (DLTensor){.data = data,
                      .device = {kDLCPU, t->rank},
                      .ndim = 1,
                      .dtype = {kDLInt, 32, 1},
                      .shape = shape};
}

static void begin(struct tk *t, scene *s, const symmem_backend *table) {
    void *memory = NULL;
    memset(s, 0, sizeof(*s));
    s->t = t;
    seen[t->rank].calls = seen[t->rank].lost = 0;
    seen[t->rank].fails = false;
    use_table(t, table);
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 4096, t->rank, NULL, &memory));
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, memory, tk_world_group(t), LONG_MS, &s->handle));
    s->own = memory;
    s->part_shape = N;
    s->whole_shape = 2 * N;
    s->part = tensor_of(t, s->own, &s->part_shape);
    s->whole = tensor_of(t, s->own, &s->whole_shape);
    s->out_part = tensor_of(t, s->data, &s->part_shape);
    s->out_whole = tensor_of(t, s->data, &s->whole_shape);
}

static void end(scene *s) {
    tk_out_of_band_barrier(s->t);
    symmem_handle_release(s->handle);
    TK_OK(s->t, symmem_free(s->t->context, s->own));
    tk_end_context(s->t);
}

static symmem_status call(scene *s, symmem_call_kind kind) {
    static const ops_fn kinds[] = {[SYMMEM_CALL_ONE_SHOT_ALL_REDUCE] = row_one_shot_out,
                                   [SYMMEM_CALL_TWO_SHOT_ALL_REDUCE] = row_two_shot,
                                   [SYMMEM_CALL_REDUCE_SCATTER] = row_reduce_scatter,
                                   [SYMMEM_CALL_ALL_GATHER] = row_all_gather,
                                   [SYMMEM_CALL_BROADCAST] = row_broadcast,
                                   [SYMMEM_CALL_ALL_TO_ALL] = row_all_to_all,
                                   [SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER] =
                                       row_low_contention_reduce_scatter};
    const size_t splits[] = {N / 2, N / 2};
    const bool scatters =
        kind == SYMMEM_CALL_REDUCE_SCATTER || kind == SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER;
    const struct ops_call one = {.handle = s->handle,
                                 .input = scatters ? &s->whole : &s->part,
                                 .out =
                                     kind == SYMMEM_CALL_ALL_GATHER ? &s->out_whole : &s->out_part,
                                 .in_splits = splits,
                                 .out_splits = splits,
                                 .op = SYMMEM_SUM,
                                 .root = 1,
                                 .channel = 3,
                                 .limit_ms = LONG_MS};
    return kinds[kind](&one);
}

static void refused(scene *s, symmem_call_kind kind) {
    struct tk *t = s->t;
    memset(s->data, 0xEE, sizeof(s->data));
    TK_FAILS(t, UNREACHABLE, call(s, kind));
    symmem_error_record record = last_record();
    TK_EQ_INT(t, 1 - t->rank, record.failed_rank);
    for (size_t i = 0; i < sizeof(s->data); i++)
        TK_EQ_INT(t, 0xEE, ((unsigned char *)s->data)[i]);
}

TK_TEST(apart, without_a_way, "SM-COLL-16", .ranks = {2, 2}, .flags = TK_NO_BACKEND) {
    scene s;
    begin(t, &s, fake_of_two(t, false));
    for (int kind = SYMMEM_CALL_ONE_SHOT_ALL_REDUCE; kind <= SYMMEM_CALL_ALL_TO_ALL; kind++)
        refused(&s, (symmem_call_kind)kind);
    refused(&s, SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER);
    TK_EQ_INT(t, 0, seen[t->rank].calls);
    end(&s);
}

TK_TEST(apart, by_the_backends_way, "SM-COLL-16", .ranks = {2, 2}, .flags = TK_NO_BACKEND) {
    scene s;
    begin(t, &s, fake_of_two(t, true));
    for (int kind = SYMMEM_CALL_ONE_SHOT_ALL_REDUCE; kind <= SYMMEM_CALL_ALL_TO_ALL; kind++) {
        int before = seen[t->rank].calls;
        TK_OK(t, call(&s, (symmem_call_kind)kind));
        TK_EQ_INT(t, before + 1, seen[t->rank].calls);
        TK_EQ_INT(t, kind, seen[t->rank].kind);
        TK_EQ_INT(t, 3, seen[t->rank].channel);
        TK_EQ_INT(t, LONG_MS, seen[t->rank].timeout_ms);
        TK_EQ_INT(t, kind == SYMMEM_CALL_BROADCAST ? 1 : 0, seen[t->rank].root);
        TK_EQ_INT(t, kind == SYMMEM_CALL_ALL_TO_ALL ? 0 : N, (long long)seen[t->rank].count);
    }
    refused(&s, SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER);
    end(&s);
}

/* One rank's call fails; a reset fails before it resets that rank's state; another one goes well,
 * and then one of a handle that nothing is wrong with. */
TK_TEST(apart, reset_tells_all_ranks, "SM-COLL-17", .ranks = {2, 2}, .flags = TK_NO_BACKEND) {
    scene s;
    begin(t, &s, fake_of_two(t, true));
    TK_OK(t, symmem_handle_reset(s.handle, LONG_MS));
    TK_EQ_INT(t, 0, seen[t->rank].lost);
    seen[t->rank].fails = t->rank == 1;
    TK_STATUS(t, t->rank == 1 ? SYMMEM_TIMEOUT : SYMMEM_OK, call(&s, SYMMEM_CALL_BROADCAST));
    TK_EQ_INT(t, 0, seen[t->rank].lost);
    if (t->rank == 1)
        tk_on_point(t, "reset.state.before", 1, (struct tk_action){.status = SYMMEM_NO_SPACE});
    TK_FAILS(t, NO_SPACE, symmem_handle_reset(s.handle, LONG_MS));
    TK_EQ_INT(t, 1, seen[t->rank].lost);
    TK_OK(t, symmem_handle_reset(s.handle, LONG_MS));
    TK_EQ_INT(t, 2, seen[t->rank].lost);
    TK_OK(t, symmem_handle_reset(s.handle, LONG_MS));
    TK_EQ_INT(t, 2, seen[t->rank].lost);
    TK_OK(t, call(&s, SYMMEM_CALL_BROADCAST));
    end(&s);
}
