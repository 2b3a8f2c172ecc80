/* SPDX-License-Identifier: BSD-3-Clause */
/* The user's communicators, which a backend takes in place of its own. */
#include "memory/mapping.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"

static const char operation[] = "group_set_communicator";

/* The caller holds the group's call lock. */
static symmem_status set(symmem_group *group, void *communicator) {
    const symmem_context *context = group->context;
    symmem_status status = SYMMEM_OK;
    if (group->backend_group_open)
        return sm_fail(SYMMEM_BUSY, operation, "", "group '%s' is in use", group->name);
    if (communicator)
        status = context->backend->communicator_check(context->instance, communicator, group->rank,
                                                      group->world_size);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, operation, "communicator_check");
    group->communicator = communicator;
    return SYMMEM_OK;
}

/* Never waits, because the holder of the call lock uses the communicator. The backend is open. */
static symmem_status take_and_set(symmem_group *group, void *communicator) {
    symmem_context *context = group->context;
    if (!context->backend->communicator_check)
        return sm_context_fail(context, SYMMEM_UNSUPPORTED, operation, "",
                               "backend '%s' takes no communicators", context->backend->name);
    symmem_status status = sm_group_take(group, operation, 1);
    if (status == SYMMEM_TIMEOUT)
        return sm_context_fail(context, SYMMEM_BUSY, operation, "",
                               "a collective call on group '%s' is under way", group->name);
    if (status != SYMMEM_OK)
        return status;
    status = set(group, communicator);
    sm_group_leave(group);
    return status;
}

symmem_status symmem_group_set_communicator(symmem_group *group, void *communicator) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_group_check(group, operation);
    if (status != SYMMEM_OK)
        return status;
    symmem_context *context = group->context;
    status = sm_instance_enter(context, operation);
    if (status != SYMMEM_OK)
        return status;
    status = take_and_set(group, communicator);
    sm_instance_release(context);
    return status;
}
