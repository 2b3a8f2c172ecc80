/* SPDX-License-Identifier: BSD-3-Clause */
/* Who uses a context and its backend's instance, and the end of either with the last of them. */
#ifndef SYMMEM_CORE_BACKEND_INSTANCE_H
#define SYMMEM_CORE_BACKEND_INSTANCE_H

#include "backend/context.h"

void sm_context_retain(symmem_context *context);
void sm_context_release(symmem_context *context);
/* For objects the backend must release: context reference and instance user at once. */
void sm_instance_retain(symmem_context *context);
void sm_instance_release(symmem_context *context);
/* The instance's use alone, closing it if that was the last. */
void sm_instance_leave(symmem_context *context);
/* sm_instance_release in a thread of the backend's, which close may have to wait for: if it was the
 * last use, a thread of its own closes. */
void sm_instance_release_work(symmem_context *context);
/* After the backend has opened an instance: what it has loaded for that is still there when the
 * process's end waits for instances that are being closed. */
void sm_instance_await_at_exit(const symmem_backend *table);
/* For enqueued work that has no other reference. */
symmem_ref sm_instance_ref(symmem_context *context);

#endif
