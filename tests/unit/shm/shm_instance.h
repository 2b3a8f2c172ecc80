/* SPDX-License-Identifier: BSD-3-Clause */
/* One instance of the emulation for all cases of a program. */
#ifndef SHM_INSTANCE_H
#define SHM_INSTANCE_H

#include "shm.h"
#include "shm_fake_host.h"
#include "unit_main.h"

static fake_host host;
static void *instance;

int unit_setup(void) {
    instance = fake_open(&host);
    return 0;
}

int unit_teardown(void) {
    backend->instance->close(instance);
    return 0;
}

__attribute__((unused)) static void *new_stream(void) {
    void *stream = NULL;
    CU_ASSERT_EQUAL_FATAL(backend->stream->create(instance, 0, &stream), SYMMEM_OK);
    return stream;
}

#endif
