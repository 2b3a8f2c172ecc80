/* SPDX-License-Identifier: BSD-3-Clause */
/* What cases of any area share: one body for every group shape, what an object tells as a value,
 * bytes of the host's, threads and gates. All state is the caller's. */
#ifndef SYMMEM_CONFORMANCE_CASE_HELP_H
#define SYMMEM_CONFORMANCE_CASE_HELP_H

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sync_help.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Like TK_TEST, above a body that runs on each shape's group; it has t, group and shape. */
#define ON_EACH_SHAPE(area_, name_, requirements_, ...)                                            \
    static void on_shape_##name_(struct tk *t, symmem_group *group, const struct tk_shape *shape,  \
                                 void *none_);                                                     \
    TK_TEST(area_, name_, requirements_, __VA_ARGS__) {                                            \
        tk_for_each_group_shape(t, on_shape_##name_, NULL);                                        \
    }                                                                                              \
    static void on_shape_##name_(struct tk *t, symmem_group *group, const struct tk_shape *shape,  \
                                 __attribute__((unused)) void *none_)

/* Whether messages can be sent there: a rank has another socket in the directory, by which others
 * see that it lives. */
static inline bool takes_messages(const struct sockaddr_un *address) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool takes = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0;
    if (fd >= 0)
        close(fd);
    return takes;
}

/* What a case asks of the CPU emulation only. */
static inline bool is_emulation(struct tk *t) {
    return strcmp(backend_name(t), "shm") == 0;
}

/* Like TK_TEST and TK_PORTED, above a body that runs where multicast_allowed gives a context. */
#define ON_MULTICAST(area_, name_, ...)                                                            \
    ON_MULTICAST_NAMED(TK_TEST, name_, area_, name_, __VA_ARGS__)
#define PORTED_ON_MULTICAST(name_, ...) ON_MULTICAST_NAMED(TK_PORTED, name_, name_, __VA_ARGS__)
#define ON_MULTICAST_NAMED(make_, name_, ...)                                                      \
    static void on_multicast_##name_(struct tk *t);                                                \
    make_(__VA_ARGS__) {                                                                           \
        if (multicast_allowed(t))                                                                  \
            on_multicast_##name_(t);                                                               \
    }                                                                                              \
    static void on_multicast_##name_(struct tk *t)

/* --- what an object tells --------------------------------------------------------------------- */

/* By symmem_get_buffer, symmem_get_remote_tensor or symmem_get_signal_pad. */
typedef symmem_status (*view_fn)(symmem_handle *handle, int32_t rank, int32_t ndim,
                                 const int64_t *sizes, symmem_dtype dtype, int64_t storage_offset,
                                 DLManagedTensor **tensor_p);
static inline DLManagedTensor *view_by(struct tk *t, view_fn view, symmem_handle *handle,
                                       int32_t rank, int32_t ndim, const int64_t *sizes,
                                       symmem_dtype dtype, int64_t storage_offset) {
    DLManagedTensor *tensor = NULL;
    TK_REQUIRE_OK(t, view(handle, rank, ndim, sizes, dtype, storage_offset, &tensor));
    return tensor;
}

static inline bool is_reached(struct tk *t, symmem_event *event) {
    bool reached = false;
    TK_OK(t, symmem_event_query(event, &reached));
    return reached;
}

/* --- bytes of the host's ---------------------------------------------------------------------- */

/* How many from the first on are `byte`. */
static inline size_t equal_bytes(const void *bytes, size_t count, uint8_t byte) {
    size_t at = 0;
    while (at < count && ((const uint8_t *)bytes)[at] == byte)
        at++;
    return at;
}
/* One check: all of an array's are. */
#define EXPECT_ALL(t, array, byte)                                                                 \
    TK_EQ_SIZE(t, sizeof(array), equal_bytes(array, sizeof(array), byte))

/* --- a context of the body's own -------------------------------------------------------------- */

/* With a group of all ranks and a block on which they have met. */
struct own_world {
    symmem_context *context;
    symmem_group *group;
    void *memory;
    symmem_handle *handle;
};

/* Of w->context. */
static inline void own_world_meet(struct tk *t, struct own_world *w, size_t bytes) {
    TK_REQUIRE_OK(t, symmem_group_create(w->context, "own", NULL, 0, NULL, &w->group));
    TK_REQUIRE_OK(t, symmem_alloc(w->context, bytes, -1, NULL, &w->memory));
    TK_REQUIRE_OK(t, symmem_rendezvous(w->context, w->memory, w->group, LONG_MS, &w->handle));
}

static inline struct own_world own_world_begin(struct tk *t, const symmem_context_options *options,
                                               size_t bytes) {
    struct own_world w = {0};
    TK_REQUIRE_OK(t, symmem_init(options, &w.context));
    own_world_meet(t, &w, bytes);
    return w;
}

static inline void own_world_end(struct tk *t, const struct own_world *w) {
    symmem_handle_release(w->handle);
    TK_OK(t, symmem_free(w->context, w->memory));
    TK_OK(t, symmem_finalize(w->context));
    symmem_context_free(w->context);
}

/* --- threads and gates ------------------------------------------------------------------------ */

/* The stream goes on when the gate is opened. Until then a body must not be left: no REQUIRE. */
static inline void hold(struct tk *t, symmem_stream *stream, struct gate *gate) {
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, gate));
}

static inline void enqueue_step(struct tk *t, symmem_stream *stream, struct step *step,
                                struct step_log *log, int number) {
    *step = (struct step){.log = log, .number = number};
    TK_OK(t, symmem_stream_host_fn(stream, step_fn, step));
}

static inline void *open_later(void *gate) {
    tk_sleep_ms(60);
    gate_open(gate);
    return NULL;
}

#endif
