/* SPDX-License-Identifier: BSD-3-Clause */
/* The API target's calls on signals, streams, events and captures. */
#include "api_model.h"

#define SIGNAL_MS 2u
#define WAIT_MS 2000u

/* --- signals of a world of one: to itself ------------------------------------------------- */

static symmem_status predict_signal(const model *m, const model_handle *place, int32_t channel,
                                    bool ready) {
    if (m->finalized)
        return SYMMEM_NOT_INITIALIZED;
    if (channel < 0 || channel >= (int32_t)(place->pad / 4))
        return SYMMEM_OUT_OF_RANGE;
    if (m->memory[place->memory].poisoned)
        return SYMMEM_POISONED;
    return ready ? SYMMEM_OK : SYMMEM_TIMEOUT;
}

static void reset(model *m, const model_handle *place) {
    symmem_status status = symmem_handle_reset(place->handle, WAIT_MS);
    if (m->finalized)
        EXPECT(status, SYMMEM_NOT_INITIALIZED);
    else if (status != SYMMEM_OK)
        fuzz_check_failure(status, 1); /* BUSY with work on streams */
    if (status != SYMMEM_OK)
        return;
    model_memory *memory = &m->memory[place->memory];
    memory->poisoned = memory->vague = false;
    memset(memory->pending, 0, sizeof(memory->pending));
}

void call_signal(model *m) {
    uint8_t form = fuzz_u8(m->in);
    const model_handle *place = &m->handles[form % SLOTS];
    int32_t channel = (int32_t)fuzz_below(m->in, CHANNELS + 2) - 1;
    if (place->handle == NULL || place->memory < 0)
        return;
    model_memory *memory = &m->memory[place->memory];
    if (channel >= CHANNELS && channel < (int32_t)(place->pad / 4))
        return; /* not in the model */
    symmem_stream *stream = (form & 0x80) != 0 ? m->streams[0] : NULL;
    if (form / 4 % 4 == 3) {
        reset(m, place);
        return;
    }
    bool *pending = channel >= 0 && channel < CHANNELS ? &memory->pending[channel] : NULL;
    symmem_status status, expected;
    if (form / 4 % 4 == 0) {
        status = symmem_barrier(place->handle, channel, SIGNAL_MS, stream);
        expected = predict_signal(m, place, channel, true);
    } else if (form / 4 % 4 == 1) {
        status = symmem_put_signal(place->handle, 0, channel, SIGNAL_MS, stream);
        expected = predict_signal(m, place, channel, pending != NULL && !*pending);
    } else {
        status = symmem_wait_signal(place->handle, 0, channel, SIGNAL_MS, stream);
        expected = predict_signal(m, place, channel, pending != NULL && *pending);
    }
    if (stream != NULL || memory->vague) {
        memory->vague = true;
        if (status != SYMMEM_OK)
            fuzz_check_failure(status, 1);
        return;
    }
    EXPECT(status, expected);
    memory->poisoned = memory->poisoned || status == SYMMEM_TIMEOUT;
    if (status == SYMMEM_OK && pending != NULL && form / 4 % 4 != 0)
        *pending = form / 4 % 4 == 1;
}

/* --- streams ------------------------------------------------------------------------------ */

static void run_nothing(void *arg) {}

/* A failure of work on the stream itself may be a signal's: TIMEOUT, POISONED. */
static void check_any(symmem_status status) {
    if (status != SYMMEM_OK)
        fuzz_check_failure(status, 1);
}

static void fill(model *m, symmem_stream *stream) {
    model_memory *memory = &m->memory[fuzz_below(m->in, SLOTS)];
    int64_t words = (int64_t)(memory->bytes / 4);
    if (memory->ptr == NULL || !memory->active)
        return;
    DLTensor tensor = {.data = memory->ptr,
                       .device = {kDLCPU, 0},
                       .ndim = 1,
                       .dtype = {kDLUInt, 32, 1},
                       .shape = &words};
    int64_t offset = (int64_t)fuzz_number(m->in, 0), count = (int64_t)fuzz_number(m->in, 4);
    symmem_status expected = SYMMEM_OK;
    if (m->finalized)
        expected = SYMMEM_NOT_INITIALIZED;
    else if (offset < 0 || count <= 0 || offset > words || count > words - offset)
        expected = SYMMEM_OUT_OF_RANGE;
    if (expected == SYMMEM_OK)
        model_forget_contents(m);
    EXPECT(symmem_memset32(m->context, &tensor, offset, 7, count, stream), expected);
}

void call_stream(model *m) {
    uint8_t form = fuzz_u8(m->in);
    symmem_stream **place = &m->streams[form & 1];
    bool idle = false;
    if (*place == NULL) {
        EXPECT(symmem_stream_create(m->context, -1, place),
               m->finalized ? SYMMEM_NOT_INITIALIZED : SYMMEM_OK);
        return;
    }
    bool captures = m->capturing == (form & 1);
    switch (form / 2 % 8) {
    case 0:
        check_any(symmem_stream_destroy(*place));
        *place = NULL;
        if (captures)
            m->capturing = -1;
        m->forked = m->forked || model_captures(m);
        break;
    case 1:
    case 2: {
        symmem_status status = symmem_stream_synchronize(*place, WAIT_MS);
        if (captures && !m->finalized)
            EXPECT(status, SYMMEM_CAPTURE);
        else
            check_any(status);
        break;
    }
    case 3:
        check_any(symmem_stream_query(*place, &idle));
        break;
    case 4:
        EXPECT(symmem_stream_host_fn(*place, run_nothing, NULL),
               m->finalized ? SYMMEM_NOT_INITIALIZED : SYMMEM_OK);
        break;
    default:
        fill(m, *place);
        break;
    }
}

void call_event(model *m) {
    uint8_t form = fuzz_u8(m->in);
    symmem_event **place = &m->events[form & 1];
    symmem_stream *stream = m->streams[form / 2 & 1];
    bool reached = false;
    if (*place == NULL) {
        EXPECT(symmem_event_create(m->context, -1, place),
               m->finalized ? SYMMEM_NOT_INITIALIZED : SYMMEM_OK);
        return;
    }
    switch (form / 4 % 5) {
    case 0:
        symmem_event_destroy(*place);
        *place = NULL;
        break;
    case 1:
        if (stream != NULL)
            check_any(symmem_event_record(*place, stream));
        break;
    case 2:
        if (stream != NULL)
            check_any(symmem_stream_wait_event(stream, *place));
        m->forked = m->forked || model_captures(m);
        break;
    case 3:
        check_any(symmem_event_synchronize(*place, SIGNAL_MS));
        break;
    default:
        check_any(symmem_event_query(*place, &reached));
        break;
    }
}

/* --- captures ------------------------------------------------------------------------------ */

static void begin(model *m, int which) {
    symmem_status status = symmem_stream_begin_capture(m->streams[which]);
    if (model_captures(m) && m->capturing != which) {
        /* Two captures at once: one is enough for the model. */
        symmem_graph *graph = NULL;
        check_any(status);
        if (status == SYMMEM_OK) {
            status = symmem_stream_end_capture(m->streams[which], &graph);
            check_any(status);
            if (status == SYMMEM_OK)
                check_any(symmem_graph_destroy(graph));
        }
        return;
    }
    if (m->forked)
        check_any(status);
    else
        EXPECT(status, m->finalized            ? SYMMEM_NOT_INITIALIZED
                       : m->capturing == which ? SYMMEM_CAPTURE
                                               : SYMMEM_OK);
    if (status == SYMMEM_OK)
        m->capturing = which;
}

static void end(model *m, int which) {
    symmem_graph *graph = NULL;
    symmem_status status = symmem_stream_end_capture(m->streams[which], &graph);
    if (m->finalized)
        EXPECT(status, SYMMEM_NOT_INITIALIZED);
    else if (m->capturing != which)
        EXPECT(status, SYMMEM_CAPTURE);
    else if (m->forked)
        check_any(status);
    else
        EXPECT(status, SYMMEM_OK);
    FUZZ_CHECK((graph != NULL) == (status == SYMMEM_OK));
    if (m->capturing == which && !m->finalized)
        m->capturing = -1;
    if (graph == NULL)
        return;
    if (m->graph != NULL)
        check_any(symmem_graph_destroy(m->graph));
    m->graph = graph;
}

void call_capture(model *m) {
    uint8_t form = fuzz_u8(m->in);
    int which = form & 1;
    symmem_stream *stream = m->streams[which];
    bool captures = false;
    if (stream == NULL)
        return;
    switch (form / 2 % 4) {
    case 0:
        begin(m, which);
        break;
    case 1:
        end(m, which);
        break;
    case 2:
        if (m->graph != NULL) {
            symmem_status status = symmem_graph_launch(m->graph, stream);
            check_any(status);
            if (status == SYMMEM_OK)
                model_forget_contents(m);
        }
        break;
    default: {
        symmem_status status = symmem_stream_is_capturing(stream, &captures);
        EXPECT(status, m->finalized ? SYMMEM_NOT_INITIALIZED : SYMMEM_OK);
        if (!m->finalized && !m->forked)
            FUZZ_CHECK(captures == (m->capturing == which));
        break;
    }
    }
}
