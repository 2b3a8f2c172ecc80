/* SPDX-License-Identifier: BSD-3-Clause */
/* Events. */
#ifndef SYMMEM_CORE_STREAM_EVENT_H
#define SYMMEM_CORE_STREAM_EVENT_H

#include "stream/stream.h"

void sm_event_destroy_all(symmem_context *context);

#endif
