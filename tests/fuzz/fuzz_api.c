/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random public calls of a world of one, legal or not, against a model that predicts their statuses
 * (api_model.h). Outputs of failed calls stay as they were, memory holds what was put there, and at
 * the end nothing is left, whether the context was finalized first or last.
 */
#include "api_model.h"
#include "shm.h"
#include "backend.h"

#define STEPS_MAX 40

static void (*const calls[])(model *m) = {
    call_alloc,    call_free,     call_query,  call_pad_size,  call_pool,    call_rendezvous,
    call_handle,   call_signal,   call_stream, call_event,     call_capture, call_view,
    call_transfer, call_transfer, call_alloc,  call_rendezvous};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static void log_nothing(void *arg, const char *line) {}

static void open_model(model *m, fuzz_input *in) {
    symmem_context_options options;
    *m = (model){.in = in, .capturing = -1, .pad = SYMMEM_DEFAULT_SIGNAL_PAD_SIZE};
    for (int i = 0; i < SLOTS; i++)
        m->handles[i].memory = -1;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.local_rank = 0;
    options.backend = "";
    options.default_timeout_ms = 2000;
    options.log = log_nothing;
    FUZZ_CHECK(symmem_init(&options, &m->context) == SYMMEM_OK);
    FUZZ_CHECK(symmem_register_backend(m->context, symmem_backend_entry(SYMMEM_BACKEND_ABI)) ==
               SYMMEM_OK);
    FUZZ_CHECK(symmem_set_backend(m->context, "shm") == SYMMEM_OK);
    FUZZ_CHECK(symmem_group_create(m->context, "world", NULL, 0, NULL, &m->group) == SYMMEM_OK);
}

static void finalize(model *m) {
    EXPECT(symmem_finalize(m->context), m->finalized ? SYMMEM_NOT_INITIALIZED : SYMMEM_OK);
    if (m->finalized)
        return;
    m->finalized = true;
    m->capturing = -1;
    for (int i = 0; i < SLOTS; i++)
        model_drop_memory(m, i);
    m->pool = NULL; /* its shell goes with the context */
}

static void close_model(model *m, bool finalize_first) {
    if (finalize_first && !m->finalized)
        finalize(m);
    if (m->tensor != NULL)
        m->tensor->deleter(m->tensor);
    for (int i = 0; i < SLOTS; i++)
        symmem_handle_release(m->handles[i].handle);
    for (int i = 0; i < 2; i++) {
        symmem_status status = symmem_stream_destroy(m->streams[i]);
        if (status != SYMMEM_OK)
            fuzz_check_failure(status, 1);
        symmem_event_destroy(m->events[i]);
    }
    symmem_status status = symmem_graph_destroy(m->graph);
    FUZZ_CHECK(status == SYMMEM_OK);
    symmem_context_free(m->context);
    for (int i = 0; i < SLOTS; i++)
        free(m->memory[i].shadow);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    unsetenv("SYMMEM_SHM_DEVICES");
    unsetenv("SYMMEM_MULTICAST");
    return 0;
}

void fuzz_one(fuzz_input *in) {
    static model m;
    const bool finalize_first = (in->left & 1) != 0;
    int mappings = fuzz_count_mappings();
    open_model(&m, in);
    for (int steps = 0; steps < STEPS_MAX && in->left > 0; steps++) {
        uint8_t form = fuzz_u8(in);
        symmem_clear_error();
        if (form >= 250)
            finalize(&m);
        else
            calls[form % CALLS](&m);
        model_check_contents(&m);
    }
    close_model(&m, finalize_first);
    FUZZ_CHECK(fuzz_count_mappings() == mappings);
}
