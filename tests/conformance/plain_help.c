/* SPDX-License-Identifier: BSD-3-Clause */
#include "plain_help.h"

#include <symmem/ops_matmul.h>

struct plain plain_begin(struct tk *t, size_t count, bool on_stream) {
    struct plain plain = {.t = t};
    if ((t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0)
        return plain;
    plain.room = tk_alloc(t, count * 4);
    if (on_stream && (t->capabilities & SYMMEM_CAP_STREAMS) != 0)
        plain.stream = tk_stream(t);
    return plain;
}

/* What the stream has enqueued may use the room still. */
static void settle(const struct plain *plain) {
    if (plain->stream != NULL)
        tk_synchronize(plain->t, plain->stream);
}

/* By the device. */
static void move(const struct plain *plain, uint32_t *to, uint32_t *from, size_t count) {
    struct tk *t = plain->t;
    if ((t->capabilities & SYMMEM_CAP_MATMUL) == 0) {
        TK_OK(t, symmem_copy(t->context, to, from, count * 4, plain->stream));
        return;
    }
    TK_OK(t, symmem_restride(t->context, FLAT(from, SYMMEM_UINT32, count),
                             FLAT(to, SYMMEM_UINT32, count), plain->stream));
}

void plain_store(const struct plain *plain, uint32_t *to, const uint32_t *words, size_t at,
                 size_t count) {
    struct tk *t = plain->t;
    if (plain_by_cpu(plain)) {
        for (size_t i = 0; i < count; i++)
            to[i] = words[i];
        return;
    }
    settle(plain);
    TK_OK(t, symmem_copy(t->context, plain->room + at, words, count * 4, NULL));
    move(plain, to, plain->room + at, count);
}

void plain_load(const struct plain *plain, const uint32_t *from, uint32_t *words, size_t at,
                size_t count) {
    struct tk *t = plain->t;
    if (plain_by_cpu(plain)) {
        for (size_t i = 0; i < count; i++)
            words[i] = from[i];
        return;
    }
    move(plain, plain->room + at, (uint32_t *)from, count);
    settle(plain);
    TK_OK(t, symmem_copy(t->context, words, plain->room + at, count * 4, NULL));
}
