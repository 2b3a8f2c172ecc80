/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a rank's life, for life.h and for the jobs of tests/faults. */
#ifndef LIFE_STEPS_H
#define LIFE_STEPS_H

/*
 * A file that includes this defines life_note_at, which checks each call's status, life_limit_ms,
 * and LIFE_EXPECT for calls that must not fail.
 */
#ifndef life_note
#define life_note(call) (life_call = #call, life_note_at(call, __LINE__))
#endif
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
    int64_t count = 4;
    const symmem_window_wait counted = {.rank = life->rank, .count = 3};
    DLTensor wide = {.data = own->ptr, .ndim = 1, .dtype = {kDLUInt, 64, 1}, .shape = &count};
    wide.device = own->view->dl_tensor.device;
    LIFE_TRY(symmem_put_signal(own->handle, life->rank, 0, life_limit_ms, stream));
    LIFE_TRY(symmem_wait_signal(own->handle, life->rank, 0, life_limit_ms, stream));
    LIFE_TRY(symmem_put(own->handle, life->rank, 16, own->text, 16, stream));
    LIFE_TRY(symmem_get(own->handle, life->rank, 16, own->text, 16, stream));
    LIFE_TRY(symmem_copy(own->context, own->ptr, own->text, 8, stream));
    LIFE_TRY(symmem_memset32(own->context, &own->view->dl_tensor, 1, 7, 4, stream));
    LIFE_TRY(symmem_stream_write_value32(own->context, &own->view->dl_tensor, 2, 9, stream));
    LIFE_TRY(symmem_put_with_signal(own->handle, life->rank, 48, own->text, 8, 0, life_limit_ms,
                                    stream));
    LIFE_TRY(symmem_wait_signal(own->handle, life->rank, 0, life_limit_ms, stream));
    LIFE_TRY(symmem_window_put_signal(own->handle, life->rank, 56, own->text, 8, 0, life_limit_ms,
                                      stream));
    LIFE_TRY(symmem_window_signal(own->handle, life->rank, 0, 2, life_limit_ms, stream));
    LIFE_TRY(symmem_window_wait_signal(own->handle, 1, &counted, 0, life_limit_ms, stream));
    LIFE_TRY(symmem_stream_write_value64(own->context, &wide, 1, 9, stream));
    LIFE_TRY(symmem_wait_value32(own->handle, life->rank, 8, SYMMEM_EQ, 9, life->rank,
                                 life_limit_ms, stream));
    LIFE_TRY(symmem_wait_value64(own->handle, life->rank, 8, SYMMEM_GE, 9, life->rank,
                                 life_limit_ms, stream));
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

/* Collectives that the backend does in one step, with symmetric and with private memory. */
static symmem_status life_collectives(const struct life *life, struct life_objects *own,
                                      symmem_stream *stream) {
    symmem_status status;
    symmem_handle_info info;
    int64_t part[2] = {2, 4}, whole[2] = {2 * life->world_size, 4};
    DLTensor here = life_matrix((char *)own->ptr + 2304, whole);
    DLTensor one = life_matrix(own->values[0], part), other = life_matrix(own->values[1], part);
    DLTensor all = life_matrix(own->values[2], whole), sum = life_matrix(own->values[3], whole);
    DLTensor mine = life_matrix(here.data, part), line = here, line_part = one;
    const size_t counts[4] = {7, 8, 8, 8};
    int64_t uneven = 8 * life->world_size - 1, uneven_part = (int64_t)counts[life->rank];
    DLTensor joined = all, cut = here, cut_part = one;
    const DLTensor *const tiles[2] = {&here, &here};
    const int32_t roots[2] = {0, life->world_size - 1};
    joined.ndim = cut.ndim = cut_part.ndim = 1;
    joined.shape = cut.shape = &uneven;
    cut_part.shape = &uneven_part;
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
    LIFE_COLLECT(all_gather_v, &mine, counts, &joined);
    LIFE_COLLECT(reduce_scatter_v, &cut, SYMMEM_SUM, counts, &cut_part);
    LIFE_COLLECT(tile_reduce, &here, SYMMEM_SUM, life->world_size - 1, &sum);
    LIFE_COLLECT(multi_root_tile_reduce, life->world_size > 1 ? 2 : 1, tiles, roots, SYMMEM_SUM,
                 &all);
    LIFE_COLLECT(broadcast, &here, 0);
    LIFE_COLLECT(all_to_all_out, &here, NULL, &all, NULL);
    LIFE_TRY(symmem_handle_get_info(own->handle, &info));
    if (info.multicast_ptr != NULL) {
        LIFE_COLLECT(multimem_all_reduce, &here, SYMMEM_SUM);
        LIFE_COLLECT(multimem_one_shot_reduce_out, &here, SYMMEM_SUM, 0, &sum);
        LIFE_COLLECT(low_contention_all_gather_ce_multicast_out, &one, &here);
        /* Each rank its own part: two stores to one address would have no order. Beside `here`: the
         * store runs also behind a collective that failed on the stream, while peers may still read
         * there. */
        LIFE_TRY(
            symmem_memcpy_to_multicast(own->handle, 2560 + 32 * (size_t)info.rank, &one, stream));
        LIFE_TRY(symmem_barrier(own->handle, 3, life_limit_ms, stream));
    }
out:
    return status;
}

/* Operations that consist of many steps. */
static symmem_status life_products(const struct life *life, struct life_objects *own,
                                   symmem_stream *stream) {
    symmem_status status;
    int64_t part[2] = {2, 4}, whole[2] = {2 * life->world_size, 4}, square[2] = {4, 4};
    int64_t of_part[2] = {2, 1}, of_whole[2] = {2 * life->world_size, 1}, single[2] = {1, 1};
    DLTensor copy = life_matrix(own->values[2], part); /* peers may still read the block */
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
    LIFE_TRY(symmem_restride(own->context, &one, &copy, stream));
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

static void life_give_back(struct life_objects *own, bool finalize_first) {
    DLManagedTensor *views[] = {own->view, own->twin, own->pad, own->sum};
    life_finalizing = finalize_first;
    if (finalize_first && own->context != NULL)
        LIFE_EXPECT(symmem_finalize(own->context) == SYMMEM_OK);
    life_finalizing = false;
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        if (views[i] != NULL)
            views[i]->deleter(views[i]);
    symmem_status status = symmem_graph_destroy(own->graph);
    if (status != SYMMEM_OK) /* then it is still ours */
        status = symmem_graph_destroy(own->graph);
    /* The graph's work may take longer than twice the limit, for which each try waits. */
    for (time_t begin = time(NULL);
         status == SYMMEM_TIMEOUT && time(NULL) - begin < LIFE_LONGEST_S / 3;)
        status = symmem_graph_destroy(own->graph);
    LIFE_EXPECT(status == SYMMEM_OK);
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

#endif
