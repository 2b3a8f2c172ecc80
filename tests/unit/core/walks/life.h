/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole life of a rank, one step of which is made to fail by whoever includes this: whatever
 * fails, calls return a status with a record, nothing hangs, and no descriptor or mapping is left.
 * Include it in one file of a program.
 */
#ifndef LIFE_H
#define LIFE_H

#include <dirent.h>
#include <fnmatch.h>
#include <ftw.h>
#include <sys/eventfd.h>

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "folder.h"
#include "unit_clock.h"
#include "unit_main.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

enum {
    LIFE_WORKERS = 8,    /* they mostly wait */
    LIFE_LONGEST_S = 30, /* for one run: nothing hangs */
};

/* The first call of the library that failed. */
struct life_failure {
    char call[64]; /* without prefix; "": none */
    int calls;     /* that may fail, up to its end */
    symmem_error_record record;
};

/* How one rank lives. */
struct life {
    int32_t rank, world_size;
    symmem_store *store;    /* NULL: a world of one */
    const char *store_path; /* not NULL: opens a file store of its own */
    const char *socket_dir;
    int32_t multicast;
    bool finalise_first; /* objects outlive their context */
    int nth;             /* the call to fail, 0 none */
    int calls;           /* that may fail, as far as it got */
    bool finished;       /* every step succeeded */
    const char *name;
    const symmem_clock *clock; /* NULL: the machine's */
    const char *failed_in;     /* whose call failed: text of this file */
    struct life_failure first;
};

/* What fails, and how; set by the program before ranks start. */
static struct life_faults {
    const symmem_backend *table;
    /* The nth call of the calling thread fails; 0: none. NULL: life_strikes says so. */
    void (*arm)(int nth);
    int (*disarm)(const char **name_p); /* how many calls there were, which one failed */
    symmem_store *(*open_store)(void);  /* for several ranks; NULL: one in memory */
    symmem_point_fn point;              /* of the contexts; or NULL */
    bool harmless;                      /* what fails is made up for: all goes well */
    /* Not NULL: looks at what a failure has led to, if rank 0 got as far. Waiting takes no time
     * then. */
    void (*judge)(const struct life *lives, int32_t world_size, int nth);
    bool waits;        /* over files by the machine's clock all the same */
    int (*live)(void); /* of what all threads made, how much there is; or NULL */
} life_faults;

/* Set before the ranks start. The other rank waits this long for one that failed; long where
 * nothing fails. */
static uint32_t life_limit_ms;
static bool life_fails; /* in this run some call fails */
static _Thread_local bool life_finalising;
/* Of the calling thread: whose life it is, what it calls, and what it called when a call failed. */
static _Thread_local struct life *life_own;
static _Thread_local const char *life_call, *life_failed_in;
static _Thread_local int life_calls, life_fail_at;
static _Thread_local const char *life_failed;

static void life_arm(int nth) {
    life_calls = 0;
    life_fail_at = nth;
    life_failed = life_failed_in = NULL;
    if (life_faults.arm != NULL)
        life_faults.arm(nth);
}

static int life_disarm(const char **name_p) {
    life_fail_at = 0;
    *name_p = life_failed;
    return life_faults.arm != NULL ? life_faults.disarm(name_p) : life_calls;
}

/* For what may fail: true once, for the call that is to. */
__attribute__((unused)) static bool life_strikes(const char *name) {
    if (++life_calls != life_fail_at)
        return false;
    life_failed = name;
    life_failed_in = life_call;
    return true;
}

/* Of patterns with a NULL behind them. */
__attribute__((unused)) static bool life_is_one_of(const char *name, const char *const *patterns) {
    while (*patterns != NULL && fnmatch(*patterns, name, 0) != 0)
        patterns++;
    return *patterns != NULL;
}

/* --- what may be left --------------------------------------------------------------- */

static int life_count_descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

/* For whoever reads of a failure. */
static void life_list_descriptors(void) {
    char path[32], target[256];
    for (int fd = 0; fd < 64; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        if (length >= 0)
            printf("    %d: %.*s\n", fd, (int)length, target);
    }
}

static int life_count_shared_mappings(void) {
    int count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        if (strstr(line, "(deleted)") != NULL || strstr(line, "memfd:") != NULL ||
            strstr(line, "symmem") != NULL)
            count++;
    if (maps != NULL)
        fclose(maps);
    return count;
}

/* Streams' threads may be at it still. */
static void life_expect_live(int wanted, const struct life *life) {
    for (int i = 0; i < 200 && life_faults.live() != wanted; i++)
        usleep(10000);
    if (life_faults.live() != wanted)
        printf("\n  call %d (%s): %d are left\n", life->nth, life->name,
               life_faults.live() - wanted);
    CU_ASSERT_EQUAL(life_faults.live(), wanted);
}

static int life_remove_entry(const char *path, const struct stat *info, int kind,
                             struct FTW *place) {
    return remove(path);
}

/* --- steps -------------------------------------------------------------------------- */

/* A failing call must leave a record of that status. */
static symmem_status life_note_at(symmem_status status, int line) {
    symmem_error_record record;
    symmem_last_error(&record);
    if (status != SYMMEM_OK) {
        if (life_own->first.call[0] == '\0') {
            (void)sscanf(life_call, "symmem_%63[a-z0-9_]", life_own->first.call);
            life_own->first.record = record;
            if (life_faults.judge != NULL)
                life_own->first.calls = life_disarm(&life_own->name);
        }
        if (record.status != status || !life_fails)
            printf("\n  %s returned by line %d, but the record says %s: %s/%s %s\n",
                   symmem_status_name(status), line, symmem_status_name(record.status),
                   record.operation, record.stage, record.message);
        CU_ASSERT_EQUAL(record.status, status);
        CU_ASSERT_NOT_EQUAL(record.operation[0], '\0');
        CU_ASSERT_NOT_EQUAL(record.message[0], '\0');
    }
    return status;
}

#define life_note(call) (life_call = #call, life_note_at(call, __LINE__))
/* For functions with a variable `status` and a label `out`. */
#define LIFE_TRY(call)                                                                             \
    do {                                                                                           \
        if ((status = life_note(call)) != SYMMEM_OK)                                               \
            goto out;                                                                              \
    } while (0)

static void life_host_noop(void *arg) {}

struct life_objects {
    symmem_context *context;
    symmem_group *group, *second;
    symmem_handle *handle, *kept_handle;
    symmem_stream *stream, *side;
    symmem_event *event;
    symmem_graph *graph;
    symmem_pool *pool;
    symmem_store *own_store;
    DLManagedTensor *view, *twin, *pad, *sum;
    void *ptr, *kept, *one, *two;
    char text[64]; /* outlives the streams' work */
    uint32_t words[16];
    float values[4][64];
};

static symmem_status life_queries(const struct life_objects *own) {
    symmem_status status;
    int32_t count, type;
    bool supported;
    LIFE_TRY(symmem_device_count(own->context, &count));
    LIFE_TRY(symmem_device_type(own->context, &type));
    LIFE_TRY(symmem_has_multicast_support(own->context, type, -1, &supported));
    LIFE_TRY(symmem_has_multicast_support(own->context, type, 0, &supported));
out:
    return status;
}

/* Pairwise and collective exchange between two ranks, or of one with itself. */
static symmem_status life_exchange(const struct life *life, struct life_objects *own) {
    symmem_status status;
    int fds[4] = {-1, -1, -1, -1}, single = -1;
    int32_t peer = (life->rank + 1) % life->world_size;
    uint64_t mine = (uint64_t)life->rank, all[4];
    int given = eventfd(0, EFD_CLOEXEC); /* by a call that does not fail here */
    LIFE_TRY(symmem_group_all_gather(own->group, &mine, sizeof(mine), all, life_limit_ms));
    LIFE_TRY(symmem_group_all_gather_fds(own->group, given, fds, life_limit_ms));
    LIFE_TRY(symmem_group_broadcast_fds(own->group, 0, given, &single, life_limit_ms));
    if (life->world_size > 1) {
        close(single);
        single = -1;
        LIFE_TRY(symmem_group_send_fd(own->group, peer, given, life_limit_ms));
        LIFE_TRY(symmem_group_recv_fd(own->group, peer, &single, life_limit_ms));
    }
out:
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (single >= 0)
        close(single);
    close(given);
    return status;
}

/* Ranks write to places of their own. */
static symmem_status life_one_sided(const struct life *life, struct life_objects *own,
                                    symmem_stream *stream) {
    symmem_status status;
    symmem_handle_info info;
    LIFE_TRY(symmem_put_signal(own->handle, life->rank, 0, life_limit_ms, stream));
    LIFE_TRY(symmem_wait_signal(own->handle, life->rank, 0, life_limit_ms, stream));
    LIFE_TRY(symmem_put(own->handle, life->rank, 16, own->text, 16, stream));
    LIFE_TRY(symmem_get(own->handle, life->rank, 16, own->text, 16, stream));
    LIFE_TRY(symmem_copy(own->context, own->ptr, own->text, 8, stream));
    LIFE_TRY(symmem_memset32(own->context, &own->view->dl_tensor, 1, 7, 4, stream));
    LIFE_TRY(symmem_stream_write_value32(own->context, &own->view->dl_tensor, 2, 9, stream));
    LIFE_TRY(symmem_handle_get_info(own->handle, &info));
    if (info.multicast_ptr != NULL) {
        LIFE_TRY(symmem_multimem_store(own->handle, 1024 + 64 * (size_t)life->rank, own->text, 16,
                                       stream));
        LIFE_TRY(symmem_multimem_ld_reduce(own->handle, 2048, own->words, 4, SYMMEM_UINT32,
                                           SYMMEM_SUM, stream));
    }
out:
    return status;
}

static DLTensor life_matrix(void *data, int64_t shape[2]) {
    return (DLTensor){.data = data, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* What the backend does in one step, of memory that is symmetric or not. */
static symmem_status life_collectives(const struct life *life, struct life_objects *own,
                                      symmem_stream *stream) {
    symmem_status status;
    symmem_handle_info info;
    int64_t part[2] = {2, 4}, whole[2] = {2 * life->world_size, 4};
    DLTensor here = life_matrix((char *)own->ptr + 2304, whole);
    DLTensor one = life_matrix(own->values[0], part), other = life_matrix(own->values[1], part);
    DLTensor all = life_matrix(own->values[2], whole), sum = life_matrix(own->values[3], whole);
    DLTensor mine = life_matrix(here.data, part), line = here, line_part = one;
    line.ndim = line_part.ndim = 1;
#define LIFE_COLLECT(name, ...)                                                                    \
    LIFE_TRY(symmem_##name(own->handle, __VA_ARGS__, 3, life_limit_ms, stream))
    LIFE_COLLECT(all_reduce, &one, SYMMEM_SUM, &other);
    LIFE_COLLECT(two_shot_all_reduce, &here, SYMMEM_MAX);
    LIFE_COLLECT(one_shot_all_reduce_copy_out, &here, &all, SYMMEM_SUM, &sum);
    LIFE_COLLECT(reduce_scatter_out, &line, SYMMEM_SUM, false, &line_part);
    LIFE_COLLECT(low_contention_reduce_scatter, &here, SYMMEM_SUM, &one);
    LIFE_COLLECT(all_gather_out, &mine, &all);
    LIFE_COLLECT(low_contention_all_gather_out, &mine, &all);
    LIFE_COLLECT(broadcast, &here, 0);
    LIFE_COLLECT(all_to_all_out, &here, NULL, &all, NULL);
    LIFE_TRY(symmem_handle_get_info(own->handle, &info));
    if (info.multicast_ptr != NULL) {
        LIFE_COLLECT(multimem_all_reduce, &here, SYMMEM_SUM);
        LIFE_COLLECT(multimem_one_shot_reduce_out, &here, SYMMEM_SUM, 0, &sum);
        LIFE_COLLECT(low_contention_all_gather_ce_multicast_out, &one, &here);
        LIFE_TRY(symmem_memcpy_to_multicast(own->handle, 2304, &all, stream));
    }
out:
    return status;
}

/* What is made of many steps. */
static symmem_status life_products(const struct life *life, struct life_objects *own,
                                   symmem_stream *stream) {
    symmem_status status;
    int64_t part[2] = {2, 4}, whole[2] = {2 * life->world_size, 4}, square[2] = {4, 4};
    int64_t of_part[2] = {2, 1}, of_whole[2] = {2 * life->world_size, 1}, single[2] = {1, 1};
    DLTensor here = life_matrix((char *)own->ptr + 2304, part);
    DLTensor a = life_matrix(own->values[0], whole), b = life_matrix(own->values[1], square);
    DLTensor out = life_matrix(own->values[2], whole), one = life_matrix(own->values[3], part);
    DLTensor scale = life_matrix(own->values[3] + 32, single), one_scale = scale, a_scale = scale;
    const DLTensor *const bs[1] = {&b}, *const scales[1] = {&scale}, *const outs[1] = {&out};
    one_scale.shape = of_part;
    a_scale.shape = of_whole;
    LIFE_TRY(symmem_fused_all_gather_scaled_matmul(own->handle, &one, &one_scale, 0, 1, bs, scales,
                                                   &a, outs, 4, life_limit_ms, stream, NULL));
    LIFE_TRY(symmem_fused_scaled_matmul_reduce_scatter(own->handle, &a, &b, &a_scale, &scale,
                                                       SYMMEM_SUM, 0, &one, 4, life_limit_ms,
                                                       stream, NULL));
    LIFE_TRY(symmem_restride(own->context, &one, &here, stream));
out:
    return status;
}

static symmem_status life_views(const struct life *life, struct life_objects *own) {
    symmem_status status;
    int64_t sizes[1] = {16};
    LIFE_TRY(symmem_get_buffer(own->handle, life->rank, 1, sizes, SYMMEM_UINT32, 0, &own->view));
    LIFE_TRY(symmem_get_remote_tensor(own->handle, 0, 1, sizes, SYMMEM_FLOAT32, 1, &own->twin));
    LIFE_TRY(symmem_get_signal_pad(own->handle, 0, 0, NULL, SYMMEM_UINT32, 0, &own->pad));
out:
    return status;
}

static symmem_status life_capture(const struct life *life, struct life_objects *own) {
    symmem_status status;
    bool capturing;
    LIFE_TRY(symmem_stream_begin_capture(own->stream));
    LIFE_TRY(symmem_stream_is_capturing(own->stream, &capturing));
    LIFE_TRY(symmem_barrier(own->handle, 2, life_limit_ms, own->stream));
    LIFE_TRY(life_one_sided(life, own, own->stream));
    LIFE_TRY(life_products(life, own, own->stream));
    LIFE_TRY(symmem_event_record(own->event, own->stream));
    LIFE_TRY(symmem_stream_wait_event(own->side, own->event));
    LIFE_TRY(symmem_stream_host_fn(own->side, life_host_noop, NULL));
    LIFE_TRY(symmem_put_signal(own->handle, life->rank, 1, life_limit_ms, own->side));
    LIFE_TRY(symmem_event_record(own->event, own->side));
    LIFE_TRY(symmem_stream_wait_event(own->stream, own->event));
    LIFE_TRY(symmem_wait_signal(own->handle, life->rank, 1, life_limit_ms, own->stream));
    LIFE_TRY(symmem_stream_end_capture(own->stream, &own->graph));
    LIFE_TRY(symmem_graph_launch(own->graph, own->stream));
    LIFE_TRY(symmem_graph_launch(own->graph, own->side));
    LIFE_TRY(symmem_stream_synchronize(own->stream, life_limit_ms * 2));
    LIFE_TRY(symmem_stream_synchronize(own->side, life_limit_ms * 2));
out:
    return status;
}

static symmem_status life_streams(const struct life *life, struct life_objects *own) {
    symmem_status status;
    bool reached;
    LIFE_TRY(symmem_stream_create(own->context, -1, &own->stream));
    LIFE_TRY(symmem_stream_create(own->context, -1, &own->side));
    LIFE_TRY(symmem_event_create(own->context, -1, &own->event));
    LIFE_TRY(symmem_barrier(own->handle, 1, life_limit_ms, own->stream));
    LIFE_TRY(symmem_barrier(own->handle, 1, life_limit_ms, own->side));
    LIFE_TRY(life_one_sided(life, own, own->stream));
    LIFE_TRY(life_collectives(life, own, own->stream));
    LIFE_TRY(life_products(life, own, own->stream));
    LIFE_TRY(symmem_stream_synchronize(own->stream, life_limit_ms * 2));
    LIFE_TRY(symmem_stream_synchronize(own->side, life_limit_ms * 2));
    LIFE_TRY(symmem_stream_host_fn(own->stream, life_host_noop, NULL));
    LIFE_TRY(symmem_stream_query(own->stream, &reached));
    LIFE_TRY(symmem_event_record(own->event, own->stream));
    LIFE_TRY(symmem_event_synchronize(own->event, life_limit_ms));
    LIFE_TRY(symmem_event_query(own->event, &reached));
    status = life_capture(life, own);
out:
    return status;
}

/* Pool blocks, and a persistent allocation that comes back with its links. */
static symmem_status life_reuse(struct life_objects *own) {
    symmem_status status;
    symmem_alloc_options persistent;
    symmem_handle *handle = NULL;
    symmem_alloc_options_init(&persistent);
    persistent.alloc_id = 7;
    persistent.default_group = own->group;
    LIFE_TRY(symmem_alloc(own->context, 300, -1, &persistent, &own->kept));
    LIFE_TRY(symmem_rendezvous(own->context, own->kept, NULL, life_limit_ms, &own->kept_handle));
    LIFE_TRY(symmem_free(own->context, own->kept));
    own->kept = NULL;
    LIFE_TRY(symmem_alloc(own->context, 300, -1, &persistent, &own->kept));
    LIFE_TRY(symmem_pool_create(own->context, -1, 1 << 16, &own->pool));
    LIFE_TRY(symmem_pool_alloc(own->pool, 1000, &own->one));
    LIFE_TRY(symmem_pool_alloc(own->pool, 100000, &own->two));
    LIFE_TRY(symmem_rendezvous(own->context, own->one, own->group, life_limit_ms, &handle));
    symmem_handle_release(handle);
    LIFE_TRY(symmem_group_create(own->context, "second", NULL, 0, NULL, &own->second));
    LIFE_TRY(symmem_rendezvous(own->context, own->ptr, own->second, life_limit_ms, &handle));
    symmem_handle_release(handle);
out:
    return status;
}

static void life_give_back(struct life_objects *own, bool finalise_first) {
    DLManagedTensor *views[] = {own->view, own->twin, own->pad, own->sum};
    life_finalising = finalise_first;
    if (finalise_first && own->context != NULL)
        CU_ASSERT_EQUAL(symmem_finalize(own->context), SYMMEM_OK);
    life_finalising = false;
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        if (views[i] != NULL)
            views[i]->deleter(views[i]);
    symmem_status status = symmem_graph_destroy(own->graph);
    if (status != SYMMEM_OK) /* then it is still ours */
        status = symmem_graph_destroy(own->graph);
    /* Its work may go on for longer than twice the limit, for which each try waits. */
    for (time_t begin = time(NULL);
         status == SYMMEM_TIMEOUT && time(NULL) - begin < LIFE_LONGEST_S / 3;)
        status = symmem_graph_destroy(own->graph);
    CU_ASSERT_EQUAL(status, SYMMEM_OK);
    symmem_event_destroy(own->event);
    (void)!symmem_stream_destroy(own->side);
    (void)!symmem_stream_destroy(own->stream);
    symmem_handle_release(own->handle);
    symmem_handle_release(own->kept_handle);
    if (own->two != NULL)
        (void)!symmem_pool_free(own->pool, own->two);
    if (own->one != NULL)
        (void)!symmem_pool_free(own->pool, own->one);
    (void)!symmem_pool_destroy(own->pool);
    if (own->context != NULL) {
        (void)!symmem_free(own->context, own->ptr);
        (void)!symmem_free(own->context, own->kept);
    }
    (void)!symmem_group_destroy(own->second);
    (void)!symmem_group_destroy(own->group);
    symmem_context_free(own->context);
    symmem_store_close(own->own_store);
}

static symmem_status life_begin(const struct life *life, struct life_objects *own) {
    symmem_status status;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = life->rank;
    options.world_size = life->world_size;
    options.local_rank = life->rank;
    options.default_timeout_ms = life_limit_ms * 2;
    options.socket_dir = life->socket_dir;
    options.clock = life->clock;
    options.point = life_faults.point;
    options.multicast = life->multicast;
    options.store = life->store;
    if (life->store_path != NULL) {
        LIFE_TRY(symmem_store_open_file(life->store_path, &own->own_store));
        options.store = own->own_store;
    }
    LIFE_TRY(symmem_init(&options, &own->context));
    LIFE_TRY(symmem_register_backend(own->context, life_faults.table));
    LIFE_TRY(symmem_set_backend(own->context, life_faults.table->name));
    LIFE_TRY(life_queries(own));
    LIFE_TRY(symmem_group_create(own->context, "faults", NULL, 0, NULL, &own->group));
    LIFE_TRY(symmem_alloc(own->context, 5000, -1, NULL, &own->ptr));
    LIFE_TRY(symmem_rendezvous(own->context, own->ptr, own->group, life_limit_ms, &own->handle));
out:
    return status;
}

/* The body of a rank's thread. */
static void *life_live(void *arg) {
    struct life *life = arg;
    struct life_objects own = {.text = "0123456789"};
    symmem_status status;

    life_own = life;
    symmem_clear_error();
    life_arm(life->nth);
    if (life_begin(life, &own) != SYMMEM_OK)
        goto out;
    LIFE_TRY(symmem_barrier(own.handle, 0, life_limit_ms, NULL));
    /* These note their own failures. */
    if (life_exchange(life, &own) != SYMMEM_OK || life_views(life, &own) != SYMMEM_OK ||
        life_one_sided(life, &own, NULL) != SYMMEM_OK ||
        life_collectives(life, &own, NULL) != SYMMEM_OK ||
        life_products(life, &own, NULL) != SYMMEM_OK || life_streams(life, &own) != SYMMEM_OK ||
        life_reuse(&own) != SYMMEM_OK)
        goto out;
    LIFE_TRY(symmem_handle_reset(own.handle, life_limit_ms));
    LIFE_TRY(symmem_group_barrier(own.group, life_limit_ms));
    life->finished = true;
out:
    life_call = "symmem_finalize";
    life_give_back(&own, life->finalise_first);
    life->failed_in = life_failed_in;
    life->calls = life_disarm(&life->name);
    if (life->clock != NULL)
        life->clock->threads(life->clock->arg, -1);
    return NULL;
}

/* --- the walk ----------------------------------------------------------------------- */

static void life_judge(const struct life *lives, int32_t world_size, int nth) {
    unsigned before = CU_get_number_of_failure_records();
    life_faults.judge(lives, world_size, nth);
    if (lives[0].finished)
        CU_ASSERT(world_size == 1 || lives[1].finished);
    if (CU_get_number_of_failure_records() == before)
        return;
    printf("\n  call %d, %s in %.40s\n", nth, lives[0].name, lives[0].failed_in);
    for (int32_t rank = 0; rank < world_size; rank++) {
        const symmem_error_record *record = &lives[rank].first.record;
        printf("    %s: %s %s/%s: %s\n", lives[rank].first.call, symmem_status_name(record->status),
               record->operation, record->stage, record->message);
    }
}

/* Runs all ranks as threads; rank 0's nth call fails. Returns how many calls rank 0 made. */
static int life_run_once(int32_t world_size, int nth, bool files) {
    struct life lives[4] = {0};
    pthread_t threads[4];
    char directory[FOLDER_BYTES];
    symmem_store *store = NULL;
    bool own = files && make_folder(directory); /* a walk makes thousands of files */
    bool by_clock = life_faults.judge != NULL && !(life_faults.waits && files);
    unit_clock *clock = by_clock ? unit_clock_open() : NULL;
    if (clock != NULL)
        unit_clock_threads(clock, world_size - 1);
    life_limit_ms = nth == 0 || life_faults.harmless || clock != NULL ? 10000 : 60;
    life_fails = nth != 0 && !life_faults.harmless;
    time_t begin = time(NULL);
    int before = life_count_descriptors(), mappings = life_count_shared_mappings();
    int live = life_faults.live != NULL ? life_faults.live() : 0;
    if (!own && world_size > 1 && life_faults.open_store != NULL)
        store = life_faults.open_store();
    else if (!own && world_size > 1)
        CU_ASSERT_EQUAL(symmem_store_open_memory(&store), SYMMEM_OK);
    for (int32_t rank = 0; rank < world_size; rank++) {
        lives[rank] = (struct life){.rank = rank, .world_size = world_size, .store = store};
        lives[rank].store_path = own ? directory : NULL;
        lives[rank].socket_dir = own ? directory : NULL;
        lives[rank].multicast = own ? 0 : 1;
        lives[rank].finalise_first = own;
        lives[rank].nth = rank == 0 ? nth : 0;
        lives[rank].clock = clock != NULL ? &clock->clock : NULL;
        if (pthread_create(&threads[rank], NULL, life_live, &lives[rank]) != 0)
            abort();
    }
    for (int32_t rank = 0; rank < world_size; rank++)
        pthread_join(threads[rank], NULL);
    CU_ASSERT_TRUE(time(NULL) - begin < LIFE_LONGEST_S);
    symmem_store_close(store);
    if (own)
        nftw(directory, life_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    /* Work that outlasted the wait for its stream keeps what it needs until it has ended. */
    int after = life_count_descriptors(), mappings_after = life_count_shared_mappings();
    for (int i = 0; i < 500 && (after != before || mappings_after != mappings); i++) {
        usleep(10000);
        after = life_count_descriptors();
        mappings_after = life_count_shared_mappings();
    }
    if (after != before || mappings_after != mappings)
        printf("\n  call %d (%s) of %d ranks: descriptors %d -> %d, mappings %d -> %d\n", nth,
               lives[0].name != NULL ? lives[0].name : "none", world_size, before, after, mappings,
               mappings_after);
    if (after != before)
        life_list_descriptors();
    CU_ASSERT_EQUAL(before, after);
    CU_ASSERT_EQUAL(mappings, mappings_after);
    if (life_faults.live != NULL && nth != 0)
        life_expect_live(live, &lives[0]);
    if (clock != NULL)
        unit_clock_close(clock);
    if (life_faults.judge != NULL && lives[0].name != NULL)
        life_judge(lives, world_size, nth);
    if (!life_fails) {
        for (int32_t rank = 0; rank < world_size; rank++)
            CU_ASSERT_TRUE(lives[rank].finished);
    }
    return lives[0].calls;
}

/* One worker's share of the walk, in a process of its own: most of a run is waiting. */
static void life_work(int32_t world_size, int first, int calls, bool files) {
    unsigned before = CU_get_number_of_failure_records();
    for (int nth = first; nth <= calls; nth += LIFE_WORKERS)
        (void)life_run_once(world_size, nth, files);
    const CU_FailureRecord *failure = CU_get_failure_list();
    for (unsigned i = 0; failure != NULL; failure = failure->pNext, i++)
        if (i >= before)
            printf("\n  %s:%u: %s\n", failure->strFileName, failure->uiLineNumber,
                   failure->strCondition);
    exit(CU_get_number_of_failure_records() == before ? 0 : 1);
}

static void life_walk(int32_t world_size, bool files) {
    pid_t workers[LIFE_WORKERS];
    int calls = life_run_once(world_size, 0, files);
    printf("\n  %d ranks, %s store: %d calls to fail in turn\n", world_size,
           files ? "file" : "memory", calls);
    fflush(stdout);
    /* Of the calls that may be interrupted a rank alone makes few: memory has no name to draw. */
    CU_ASSERT_TRUE(calls > (life_faults.harmless ? 10 : 20));
    for (int i = 0; i < LIFE_WORKERS; i++) {
        pid_t parent = getpid();
        workers[i] = fork();
        CU_ASSERT_NOT_EQUAL(workers[i], -1);
        if (workers[i] == 0) {
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
                _exit(2);
            life_work(world_size, i + 1, calls, files);
        }
    }
    for (int i = 0; i < LIFE_WORKERS; i++) {
        int ended = -1;
        if (workers[i] > 0)
            CU_ASSERT_EQUAL(waitpid(workers[i], &ended, 0), workers[i]);
        CU_ASSERT_EQUAL(ended, 0);
    }
}

TEST("each call of rank 0 of two fails") {
    life_walk(2, false);
}

TEST("each call of one rank fails") {
    if (life_faults.open_store == NULL) /* which is for several ranks */
        life_walk(1, false);
}

TEST("of two over files") {
    if (life_faults.open_store == NULL)
        life_walk(2, true);
}

/* Walks that go with `faults`: alone, two ranks, two ranks over files. The program's exit status.
 */
static int life_main(const char *name, const struct life_faults *faults) {
    life_faults = *faults;
    return unit_main(name);
}

#endif
