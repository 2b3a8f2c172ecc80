/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of the fused operations on two streams, as a backend gets them: what runs beside what,
 * which steps come after which, and which may run though another one has failed. In the notes `a`
 * is the caller's stream and `b` the second one; behind that stand a letter for the entry, `!` of
 * the first barrier, and of other parts `~` of a loose one, `+` where it keeps what it works on.
 */
#include "link_ranks.h"

#include <symmem/ops_matmul.h>

#define ROWS 2
#define SIDE 4
#define LIMIT_MS 20000u

static const symmem_backend *shm(void) {
    return symmem_backend_entry(SYMMEM_BACKEND_ABI);
}

/* --- notes of what is enqueued ------------------------------------------------------ */

static _Thread_local char notes[512];
static _Thread_local bool noting;
static _Thread_local void *first_stream;
static _Thread_local int fails_at; /* which product from here on, counted from 1 */

static void note(void *stream, char entry, const symmem_exec *exec) {
    const size_t length = strlen(notes);
    if (!noting)
        return;
    if (first_stream == NULL)
        first_stream = stream;
    const bool is_step = exec != NULL && entry != 'B';
    snprintf(notes + length, sizeof notes - length, "%c%c%s%s%s ",
             stream == first_stream ? 'a' : 'b', entry, exec != NULL && exec->first ? "!" : "",
             is_step && exec->loose ? "~" : "", is_step && exec->ref_count > 0 ? "+" : "");
}

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    note(exec->stream, 'B', exec);
    return shm()->signal->barrier(instance, peers, channel, exec);
}

static symmem_status copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                          const symmem_exec *exec) {
    note(exec->stream, 'C', exec);
    return shm()->copy->copy(instance, device, dst, src, bytes, exec);
}

static symmem_status copy_strided(void *instance, int32_t device, const symmem_strided_copy *some,
                                  const symmem_exec *exec) {
    note(exec->stream, 'S', exec);
    return shm()->matmul->copy_strided(instance, device, some, exec);
}

static symmem_status matmul(void *instance, int32_t device, const symmem_matmul *product,
                            const symmem_exec *exec) {
    note(exec->stream, 'X', exec);
    if (fails_at > 0 && --fails_at == 0)
        return SYMMEM_LIMIT;
    return shm()->matmul->multiply(instance, device, product, exec);
}

static symmem_status reduce_local(void *instance, int32_t device, const symmem_local_reduce *some,
                                  const symmem_exec *exec) {
    note(exec->stream, 'R', exec);
    return shm()->matmul->reduce_local(instance, device, some, exec);
}

static symmem_status event_record(void *instance, void *event, void *stream) {
    note(stream, 'r', NULL);
    return shm()->stream->event_record(instance, event, stream);
}

static symmem_status stream_wait_event(void *instance, void *stream, void *event) {
    note(stream, 'w', NULL);
    return shm()->stream->wait_event(instance, stream, event);
}

#define NOTING                                                                                     \
    {                                                                                              \
        .barrier = barrier, .copy = copy, .copy_strided = copy_strided, .matmul = matmul,          \
        .reduce_local = reduce_local, .event_record = event_record,                                \
        .stream_wait_event = stream_wait_event                                                     \
    }

/* --- the operations ----------------------------------------------------------------- */

typedef struct tensor {
    DLTensor dl;
    int64_t shape[2], strides[2];
    float values[64];
} tensor;

static const DLTensor *make(tensor *t, int64_t rows, int64_t columns, bool turned) {
    t->shape[0] = rows;
    t->shape[1] = columns;
    t->strides[0] = turned ? 1 : columns;
    t->strides[1] = turned ? rows : 1;
    for (int64_t i = 0; i < rows * columns; i++)
        t->values[i] = 1;
    t->dl = (DLTensor){.data = t->values, .ndim = 2, .dtype = {kDLFloat, 32, 1}};
    t->dl.shape = t->shape;
    t->dl.strides = t->strides;
    return &t->dl;
}

/* Of the enqueueing alone, which ranks do not wait for each other in. */
static void expect(rank_env *env, symmem_status status, symmem_stream *stream, const char *wanted) {
    noting = false;
    CHECK_OK(env, status);
    CHECK_OK(env, symmem_stream_synchronize(stream, LIMIT_MS));
    CHECK(env, strcmp(notes, wanted) == 0);
    if (strcmp(notes, wanted) != 0)
        fprintf(stderr, "\"%s\", not \"%s\"\n", notes, wanted);
}

static void begin_notes(void) {
    notes[0] = '\0';
    first_stream = NULL;
    noting = true;
}

/* On another stream it waits for what the channel did before, from its first step on. */
static void check_behind(rank_env *env, symmem_handle *handle, const DLTensor *a, const DLTensor *b,
                         const DLTensor *part) {
    symmem_stream *other = NULL;
    CHECK_OK(env, symmem_stream_create(env->context, -1, &other));
    begin_notes();
    CHECK_OK(env, symmem_fused_matmul_reduce_scatter(handle, a, b, SYMMEM_SUM, 0, part, 0, LIMIT_MS,
                                                     other, NULL));
    noting = false;
    CHECK(env, strncmp(notes, "aw ", 3) == 0);
    CHECK_OK(env, symmem_stream_destroy(other));
}

/* What each of the three is to look like. */
typedef struct wanted {
    const char *gather, *turned, *scatter;
} wanted;

static void body(rank_env *env) {
    static const wanted all[] = {
        /* The rank's product is not held up by the barrier and the transfer; the last one follows
         * its transfer on that stream. */
        {.gather = "ar bw aC~ aB! ar aC~ bX~ aX~ br aw aB ar ",
         .turned = "aS~ ar bw aB! ar aC~ bX~ aX~ br aw aB ar ",
         .scatter = "aX~ ar bw aB! ar aC~ bX~ br aw aR~ aB ar "},
        /* One transfer is ahead of the products; a chunk is overwritten when all have met since. */
        {.gather = "ar bw aC~ aB! ar aC~ bX~ ar bw aC~ bX~ aX~ br aw aB ar ",
         .turned = "aS~ ar bw aB! ar aC~ bX~ ar bw aC~ bX~ aX~ br aw aB ar ",
         .scatter = "aX~ ar bw aB! ar aC~ bX~ br aw aB ar ar bw aC~ bX~ br aw aR~ aB ar "},
    };
    static const wanted compared = {.gather = "aB! ar ar bw aC+ aB ar aC+ bX+ aX+ br aw aB ar ",
                                    .turned = "aB! ar aS+ ar bw aB ar aC+ bX+ aX+ br aw aB ar ",
                                    .scatter = "aB! ar aX+ ar bw aB ar aC+ bX+ br aw aR+ aB ar "};
    const wanted *w = env->plan->argument != 0 ? &compared : &all[env->world - 2];
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    symmem_stream *stream = NULL;
    tensor shard, b, out, a, part;
    const DLTensor *bs[1] = {make(&b, SIDE, SIDE, false)};
    const DLTensor *outs[1] = {make(&out, ROWS * env->world, SIDE, false)};
    make(&a, ROWS * env->world, SIDE, false);
    make(&part, ROWS, SIDE, false);
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    for (int turned = 0; turned < 2; turned++) {
        make(&shard, ROWS, SIDE, turned != 0);
        for (int i = 0; i < 2; i++) { /* the first one makes the second stream and the events */
            begin_notes();
            expect(env,
                   symmem_fused_all_gather_matmul(handle, &shard.dl, 0, 1, bs, NULL, outs, 0,
                                                  LIMIT_MS, stream, NULL),
                   stream, turned ? w->turned : w->gather);
        }
    }
    begin_notes();
    expect(env,
           symmem_fused_matmul_reduce_scatter(handle, &a.dl, &b.dl, SYMMEM_SUM, 0, &part.dl, 0,
                                              LIMIT_MS, stream, NULL),
           stream, w->scatter);
    for (int i = 0; i < ROWS * SIDE; i++)
        CHECK(env, part.values[i] == (float)(SIDE * env->world));
    check_behind(env, handle, &a.dl, &b.dl, &part.dl);
    CHECK_OK(env, symmem_stream_destroy(stream));
    env_meet(env);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

TEST("steps") {
    for (int world = 2; world <= 3; world++)
        run_threads((plan){.world = world, .body = body, .entries = NOTING});
}

/* Where calls are compared nothing is written before, or if they differ. */
TEST("compared") {
    setenv("SYMMEM_CHECK_COLLECTIVES", "1", 1);
    run_threads((plan){.world = 2, .body = body, .entries = NOTING, .argument = 1});
    unsetenv("SYMMEM_CHECK_COLLECTIVES");
}

/* The channel's mark is behind what an operation enqueued before it failed. */
RANKS_TEST("rest", .world = 2, .entries = NOTING) {
    void *ptr = NULL;
    symmem_handle *handle = env_handle(env, &ptr);
    symmem_stream *stream = NULL;
    tensor shard, b, out;
    const DLTensor *bs[1] = {make(&b, SIDE, SIDE, false)};
    const DLTensor *outs[1] = {make(&out, ROWS * env->world, SIDE, false)};
    CHECK_OK(env, symmem_stream_create(env->context, -1, &stream));
    make(&shard, ROWS, SIDE, false);
    begin_notes();
    fails_at = 2;
    CHECK(env, symmem_fused_all_gather_matmul(handle, &shard.dl, 0, 1, bs, NULL, outs, 0, LIMIT_MS,
                                              stream, NULL) == SYMMEM_LIMIT);
    noting = false;
    CHECK(env, strcmp(notes, "ar bw aC~ aB! ar aC~ bX~ aX~ br aw ar ") == 0);
    const symmem_status late = symmem_stream_synchronize(stream, LIMIT_MS);
    CHECK(env, late == SYMMEM_OK || late == SYMMEM_POISONED);
    CHECK_OK(env, symmem_stream_destroy(stream));
    env_meet(env);
    CHECK_OK(env, symmem_handle_reset(handle, LIMIT_MS));
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}
