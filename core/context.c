/* SPDX-License-Identifier: BSD-3-Clause */
/* How a context begins and ends, and its references. */
#include "bootstrap/exit_record.h"
#include "bootstrap/ipc_sweep.h"
#include "store/store_choose.h"
#include "stream/channel.h"
#include "backend/failure.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "memory/pool.h"
#include "ops/all_reduce_env.h"
#include "rendezvous/link_poison.h"
#include "stream/second_stream.h"

#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 30000u

/* --- options -------------------------------------------------------------------------------- */

static symmem_status check_option(int32_t value, const char *what, int32_t low, int32_t high) {
    if (value == -1 || (value >= low && value <= high))
        return SYMMEM_OK;
    sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options", "%s %d is not in [%d, %d]", what,
            (int)value, (int)low, (int)high);
    return sm_error_sizes(0, (uint64_t)value);
}

/* Numbers from the options or, where they say -1, from the environment. */
static symmem_status choose_ranks(symmem_context *context, const symmem_context_options *options) {
    symmem_status status =
        check_option(options->world_size, "world_size", 1, SYMMEM_MAX_WORLD_SIZE);
    if (status == SYMMEM_OK)
        status = check_option(options->rank, "rank", 0, SYMMEM_MAX_WORLD_SIZE - 1);
    if (status == SYMMEM_OK)
        status = check_option(options->local_rank, "local_rank", 0, INT32_MAX);
    sm_launch launch = {
        .wants_rank = options->rank == -1,
        .wants_size = options->world_size == -1,
        .wants_local = options->local_rank == -1,
        .rank = options->rank,
        .size = options->world_size,
        .local = options->local_rank,
    };
    if (status == SYMMEM_OK)
        status = sm_launch_read(&launch);
    if (status != SYMMEM_OK)
        return status;
    context->rank = launch.rank;
    context->world_size = launch.size;
    context->local_rank = launch.local >= 0 ? launch.local : launch.rank;
    if (context->rank < context->world_size)
        return SYMMEM_OK;
    sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options", "rank %d in a world of %d",
            (int)context->rank, (int)context->world_size);
    return sm_error_sizes((uint64_t)context->world_size, (uint64_t)context->rank);
}

static bool three_way(int32_t value) {
    return value >= -1 && value <= 1;
}

static bool is_whole(const symmem_clock *clock) {
    return clock->size == sizeof(*clock) && clock->now_ns && clock->wait && clock->changed &&
           clock->threads;
}

/* Makes the path absolute: it stays right when the program changes its directory, and for peers
 * that run in another one. Symbolic links are not resolved, because a socket's path must be short.
 */
static char *absolute(const char *path) {
    char *made = NULL, *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
    if (!here)
        return strdup(path);
    if (asprintf(&made, "%s/%s", here, path) < 0)
        made = NULL;
    free(here);
    return made;
}

static symmem_status choose_plain(symmem_context *context, const symmem_context_options *options) {
    if (!three_way(options->allow_overlapping_devices) || !three_way(options->multicast))
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options",
                       "allow_overlapping_devices is %d, multicast is %d: each must be -1, 0 or 1",
                       (int)options->allow_overlapping_devices, (int)options->multicast);
    /* Relaxed: no other thread has the context yet. */
    atomic_store_explicit(&context->allow_overlapping_devices, options->allow_overlapping_devices,
                          memory_order_relaxed);
    context->multicast = options->multicast;
    if (!three_way(options->check_collectives))
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options",
                       "check_collectives is %d, not -1, 0 or 1", (int)options->check_collectives);
    context->check_collectives = options->check_collectives >= 0
                                     ? options->check_collectives == 1
                                     : sm_env_flag("SYMMEM_CHECK_COLLECTIVES", false);
    context->default_timeout_ms = options->default_timeout_ms;
    if (context->default_timeout_ms == 0 || context->default_timeout_ms == SYMMEM_TIMEOUT_DEFAULT)
        context->default_timeout_ms = DEFAULT_TIMEOUT_MS;
    context->signal_pad_size = SYMMEM_DEFAULT_SIGNAL_PAD_SIZE;
    context->failure_ops = &sm_context_failure_ops;
    context->point = options->point;
    context->point_arg = options->point_arg;
    context->log = options->log;
    context->log_arg = options->log_arg;
    if (options->clock && !is_whole(options->clock))
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options",
                       "clock is of another size or lacks an entry");
    context->clock = options->clock;
    sm_clock_use(context->clock);
    sm_copy_text(context->world_prefix, sizeof(context->world_prefix), SM_WORLD_PREFIX);

    const char *socket_dir =
        options->socket_dir ? options->socket_dir : secure_getenv("SYMMEM_SOCKET_DIR");
    if (socket_dir && strnlen(socket_dir, PATH_MAX) == PATH_MAX)
        return sm_fail(SYMMEM_PATH_TOO_LONG, "init", "options", "socket_dir is %.100s...",
                       socket_dir);
    if (socket_dir && *socket_dir) {
        context->socket_dir = absolute(socket_dir);
        context->relative_socket_dir = socket_dir[0] == '/' ? NULL : strdup(socket_dir);
        if (!context->socket_dir || (socket_dir[0] != '/' && !context->relative_socket_dir))
            return sm_fail(SYMMEM_OUT_OF_MEMORY, "init", "options", "no memory for socket_dir");
    }
    return SYMMEM_OK;
}

static symmem_status choose_store(symmem_context *context) {
    char address[SM_STORE_TEXT_BYTES];
    const char *why;
    if (context->store)
        return SYMMEM_OK;
    symmem_status status = sm_store_choose(context->world_size, address, &why);
    if (status != SYMMEM_OK)
        return status;
    if (!*address) {
        if (context->world_size == 1)
            return SYMMEM_OK;
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "store",
                       "a world of %d ranks needs a store: option store, SYMMEM_STORE, PMIx or "
                       "MASTER_ADDR and MASTER_PORT",
                       (int)context->world_size);
    }
    if (context->log && secure_getenv("SYMMEM_STORE") == NULL) {
        char line[SM_STORE_TEXT_BYTES + 80];
        (void)snprintf(line, sizeof(line), "the ranks share the store %s: %s", address, why);
        context->log(context->log_arg, line);
    }
    status = sm_store_open_chosen(address, context->rank, context->world_size,
                                  context->default_timeout_ms, &context->store);
    context->owns_store = status == SYMMEM_OK;
    return status;
}

/* No world was made in it. */
static void undo_incarnation(const symmem_context *context) {
    char address[SM_STORE_TEXT_BYTES];
    const char *why;
    if (context->owns_store && sm_store_choose(context->world_size, address, &why) == SYMMEM_OK)
        sm_store_undo_incarnation(address, context->rank);
}

/* --- begin ---------------------------------------------------------------------------------- */

static void lists_init(symmem_context *context) {
    sm_list_init(&context->notices);
    sm_list_init(&context->backends);
    sm_list_init(&context->groups);
    sm_list_init(&context->old_groups);
    sm_list_init(&context->all_cached);
    sm_list_init(&context->launched);
    sm_list_init(&context->allocations);
    sm_list_init(&context->streams);
    sm_list_init(&context->events);
    sm_list_init(&context->graphs);
    sm_list_init(&context->captured);
    sm_list_init(&context->pools);
}

static void destroy_locks(symmem_context *context) {
    (void)pthread_mutex_destroy(&context->graphs_lock);
    (void)pthread_mutex_destroy(&context->open_lock);
    (void)pthread_mutex_destroy(&context->failures_lock);
    (void)pthread_mutex_destroy(&context->lock);
}

/* After the last reference. */
static void free_memory(symmem_context *context) {
    sm_call_forget(context);
    sm_group_free_shells(context);
    sm_pool_free_shells(context);
    sm_second_streams_free(context);
    while (!sm_list_empty(&context->notices)) {
        sm_node *node = context->notices.next;
        sm_list_remove(node);
        free(node); /* the node is a notice's first member */
    }
    while (!sm_list_empty(&context->backends)) {
        sm_registered *registered = SM_CONTAINER(context->backends.next, sm_registered, node);
        sm_list_remove(&registered->node);
        free(registered);
    }
    if (context->liveness)
        sm_liveness_destroy(context->liveness);
    if (context->owns_store)
        symmem_store_close(context->store);
    free(
        atomic_load_explicit(&context->all_reduce_table, memory_order_relaxed)); /* the last user */
    free(context->relative_socket_dir);
    free(context->socket_dir);
    sm_timed_mutex_finish(&context->join_lock);
    destroy_locks(context);
    free(context);
}

/* A context that can be released, and nothing more. */
static symmem_status create_empty(symmem_context **context_p) {
    symmem_context *context = calloc(1, sizeof(*context));
    if (!context)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "init", "", "no memory for the context");
    int error = pthread_mutex_init(&context->lock, NULL);
    if (error)
        goto fail_lock;
    error = pthread_mutex_init(&context->open_lock, NULL);
    if (error)
        goto fail_open_lock;
    error = pthread_mutex_init(&context->graphs_lock, NULL);
    if (error)
        goto fail_graphs_lock;
    symmem_status status = sm_timed_mutex_init(&context->join_lock);
    if (status != SYMMEM_OK) {
        destroy_locks(context);
        free(context);
        return status;
    }
    context->failures_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_init(&context->references, 1);
    context->free_memory = free_memory;
    atomic_init(&context->instance_users, 1); /* the context's own, until it is finalized */
    atomic_init(&context->finalized, false);
    atomic_init(&context->has_lack, false);
    atomic_init(&context->has_met, false);
    context->made_in = sm_fork_generation();
    atomic_init(&context->instance_open, false);
    atomic_init(&context->captures, 0);
    atomic_init(&context->allow_overlapping_devices, -1);
    lists_init(context);
    *context_p = context;
    return SYMMEM_OK;
fail_graphs_lock:
    (void)pthread_mutex_destroy(&context->open_lock);
fail_open_lock:
    (void)pthread_mutex_destroy(&context->lock);
fail_lock:
    free(context);
    return sm_fail_errno(error, "init", "", "cannot make a lock");
}

static symmem_status publish(symmem_context *context) {
    symmem_status status = sm_identity_self(&context->identity);
    if (status == SYMMEM_OK && context->world_size > 1)
        status = sm_identity_listen(&context->identity, context->socket_dir, context->rank,
                                    &context->life_file);
    if (status != SYMMEM_OK)
        return status;
    /* What is wrong with the directory the first exchange says, to all ranks. */
    if (context->world_size > 1 && context->socket_dir && !context->life_file)
        sm_context_notice(context, "no socket in the socket directory: ranks in other network "
                                   "namespaces will not see this one's end");
    status = sm_liveness_create(context->world_size, &context->liveness);
    if (status != SYMMEM_OK)
        return status;
    sm_liveness_read(context->liveness, context->store, context->world_prefix);
    sm_liveness_learn(context->liveness, context->rank, &context->identity);
    status = sm_context_point(context, "init", "init.identity");
    if (status != SYMMEM_OK || !context->store)
        return status;
    const sm_world world = sm_context_world(context);
    status = sm_member_publish(&world, &context->member, &context->identity_published);
    if (status == SYMMEM_OK && context->life_file)
        sm_life_file_settle(context->life_file);
    return status;
}

/* The names that PyTorch has for some of them are read as it reads them. */
static const char *const flags[] = {"SYMMEM_ALLOW_OVERLAPPING_DEVICES", "SYMMEM_CHECK_COLLECTIVES",
                                    "SYMMEM_MULTICAST", NULL};

static symmem_status begin(symmem_context *context, const symmem_context_options *options) {
    symmem_status status = choose_ranks(context, options);
    context->store = options->store; /* where others can be told what goes wrong */
    if (status == SYMMEM_OK)
        status = sm_env_check_flags(flags);
    if (status == SYMMEM_OK)
        status = choose_plain(context, options);
    if (status == SYMMEM_OK)
        status = sm_all_reduce_env(context);
    if (status == SYMMEM_OK)
        status = choose_store(context);
    if (status == SYMMEM_OK)
        status = publish(context);
    if (status != SYMMEM_OK)
        return status;
    sm_host_init(context);
    sm_link_host_init(&context->host);
    const char *backend = options->backend ? options->backend : secure_getenv("SYMMEM_BACKEND");
    if (backend && *backend)
        status = symmem_set_backend(context, backend);
    if (status == SYMMEM_OK)
        status = sm_context_point(context, "init", "init.done");
    return status;
}

/* The process's, for a thread outlives contexts and their addresses. Nothing depends on its order.
 */
static uint64_t next_number(void) {
    static _Atomic uint64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* Of a context that could not even be made; the thread's record says why. */
static void leave_record_of_none(const symmem_context_options *options) {
    symmem_error_record record;
    (void)sm_error_get(&record);
    SM_ATTEMPT(leaving);
    sm_identity identity;
    const bool is_known = sm_identity_self(&identity) == SYMMEM_OK;
    const sm_world world = {.store = options->store,
                            .prefix = SM_WORLD_PREFIX,
                            .identity = is_known ? &identity : NULL,
                            .rank = options->rank,
                            .size = options->world_size};
    if (world.rank >= 0 && world.rank < world.size)
        sm_exit_record_leave(&world, &record);
}

symmem_status symmem_init(const symmem_context_options *options, symmem_context **context_p) {
    SM_PUBLIC_CALL;
    if (!context_p)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "", "context_p is NULL");
    *context_p = NULL;
    symmem_context_options defaults;
    symmem_context_options_init(&defaults);
    if (!options)
        options = &defaults;
    if (options->size != sizeof(*options)) {
        sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options", "options->size is %zu, not %zu",
                options->size, sizeof(*options));
        return sm_error_sizes(sizeof(*options), options->size);
    }
    symmem_context *context = NULL;
    symmem_status status = create_empty(&context);
    if (status != SYMMEM_OK) {
        leave_record_of_none(options);
        return status;
    }
    context->number = next_number();
    sm_call_is_in(context->number, -1, 0, NULL, NULL);
    status = begin(context, options);
    if (status != SYMMEM_OK) {
        SM_ATTEMPT(cleaning);
        undo_incarnation(context);
        symmem_context_free(context);
        return status;
    }
    *context_p = context;
    return SYMMEM_OK;
}

/* --- end ------------------------------------------------------------------------------------ */

/* The next cached link that is not poisoned, retained; NULL if there is none. Each is seen once. */
static sm_link *next_sound_link(symmem_context *context) {
    sm_link *found = NULL;
    (void)pthread_mutex_lock(&context->lock);
    while (found == NULL && !sm_list_empty(&context->all_cached)) {
        sm_cached *cached = SM_CONTAINER(context->all_cached.next, sm_cached, of_context);
        sm_list_remove(&cached->of_context);
        if (!cached->is_link)
            continue;
        sm_link *link = SM_CONTAINER(cached, sm_link, cached);
        /* Relaxed: only to spare what has been done. */
        if (!atomic_load_explicit(&link->poisoned, memory_order_relaxed)) {
            sm_link_retain(link);
            found = link;
        }
    }
    (void)pthread_mutex_unlock(&context->lock);
    return found;
}

/* Pending work on the links gives up, so that ending the streams does not wait for peers. */
static void poison_links(symmem_context *context) {
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    record.status = SYMMEM_NOT_INITIALIZED;
    record.rank = context->rank;
    record.world_size = context->world_size;
    record.channel = -1;
    record.failed_rank = -1;
    sm_copy_text(record.operation, sizeof(record.operation), "finalize");
    sm_copy_text(record.message, sizeof(record.message), "the context was finalized");
    for (sm_link *link = next_sound_link(context); link; link = next_sound_link(context)) {
        sm_link_poison_local(link, &record);
        sm_link_release(link);
    }
}

/* `record`: what has failed in it last; NULL: nothing. `differs`: the others, which may not have
 * read yet why this rank's call was another one, look for it in the store alone. */
static void leave_world(symmem_context *context, const symmem_error_record *record, bool differs) {
    sm_world world = sm_context_world(context);
    /* Relaxed: a call under way is as good as one that comes too late. */
    if (context->identity_published &&
        !atomic_load_explicit(&context->has_met, memory_order_relaxed))
        sm_member_say_left(&world);
    if (differs)
        world.told = NULL;
    else
        sm_context_forget_lack(context, true);
    if (context->life_file)
        (void)sm_life_unsettle(sm_life_file_path(context->life_file));
    if (context->identity_published) /* if this fails, the rank's next process overwrites it */
        sm_member_withdraw(&world, &context->member);
    sm_exit_record_leave(&world, record);
}

symmem_status symmem_finalize(symmem_context *context) {
    SM_PUBLIC_CALL;
    if (context && sm_fork_is_parents(context->made_in))
        return sm_fork_refuse("finalize");
    /* pairs with: acquire in sm_context_check */
    if (!context || atomic_exchange_explicit(&context->finalized, true, memory_order_acq_rel))
        return sm_context_fail(context, SYMMEM_NOT_INITIALIZED, "finalize", "",
                               context ? "the context was finalized before" : "context is NULL");
    /* A thread that creates an object checks the flag under one of these locks, so the object is
     * either in its list by now or refused. */
    (void)pthread_mutex_lock(&context->open_lock);
    (void)pthread_mutex_lock(&context->lock);
    (void)pthread_mutex_unlock(&context->lock);
    (void)pthread_mutex_unlock(&context->open_lock);

    symmem_error_record record;
    bool differs;
    const bool has_failed = sm_context_last_failure(context, &record, &differs);
    SM_ATTEMPT(ending); /* what goes wrong from here on is not the caller's failure */
    sm_clock_use(context->clock);
    sm_context_observe(context, "finalize.begin");
    poison_links(context);
    sm_context_observe(context, "finalize.streams");
    sm_stream_destroy_all(context);
    sm_context_observe(context, "finalize.memory");
    sm_pool_destroy_all(context);
    sm_allocation_drop_all(context);
    sm_context_observe(context, "finalize.groups");
    if (has_failed)
        (void)sm_error_raise(&record); /* the peers are told it */
    else
        symmem_clear_error();
    sm_group_destroy_all(context);
    sm_context_observe(context, "finalize.identity");
    leave_world(context, has_failed ? &record : NULL, differs);
    sm_identity_unlisten(&context->identity, context->life_file);
    if (context->socket_dir != NULL) /* a killed rank has left its own there */
        sm_ipc_sweep(context->socket_dir, context->liveness);
    if (context->liveness != NULL) /* the store may be closed from now on */
        sm_liveness_read(context->liveness, NULL, NULL);
    sm_context_observe(context, "finalize.done");
    sm_instance_leave(context);
    return SYMMEM_OK;
}

void symmem_context_free(symmem_context *context) {
    SM_PUBLIC_CALL;
    symmem_status status = SYMMEM_OK;
    if (!context || sm_fork_is_parents(context->made_in))
        return;
    /* Acquire pairs with: release in symmem_finalize */
    if (!atomic_load_explicit(&context->finalized, memory_order_acquire))
        status = symmem_finalize(context);
    (void)status; /* NOT_INITIALIZED: another thread was first, which is as good */
    sm_context_release(context);
}
