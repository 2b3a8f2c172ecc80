/* SPDX-License-Identifier: BSD-3-Clause */
/* The links between the devices of the active backend. */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "backend/table.h"

static const char operation[] = "connectivity";

static symmem_status fail_pair(symmem_context *context, const char *what, int32_t i, int32_t j,
                               const int32_t *matrix, int32_t count) {
    size_t at = (size_t)i * (size_t)count + (size_t)j;
    size_t back = (size_t)j * (size_t)count + (size_t)i;
    return sm_context_fail(context, SYMMEM_BACKEND, operation, "connectivity",
                           "backend '%s' %s: devices %d and %d have %d links, and %d the other way",
                           context->backend->name, what, (int)i, (int)j, (int)matrix[at],
                           (int)matrix[back]);
}

static symmem_status check_matrix(symmem_context *context, const int32_t *matrix, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j <= i; j++) {
            int32_t links = matrix[(size_t)i * (size_t)count + (size_t)j];
            int32_t back = matrix[(size_t)j * (size_t)count + (size_t)i];
            if (links < 0 || links != back)
                return fail_pair(context, "contradicts itself", i, j, matrix, count);
            if (i == j && links != 0)
                return fail_pair(context, "joins a device with itself", i, j, matrix, count);
        }
    return SYMMEM_OK;
}

/* The instance is entered, all arguments are right. */
static symmem_status ask(symmem_context *context, const char *connection, int32_t count,
                         int32_t *matrix) {
    const size_t entries = (size_t)count * (size_t)count;
    int32_t *answer = calloc(entries, sizeof(*answer));
    if (!answer)
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, operation, "", "no memory");
    symmem_status status =
        context->backend->connectivity(context->instance, connection, count, answer);
    if (status != SYMMEM_OK)
        status = sm_backend_failed(context, status, operation, "connectivity");
    else
        status = check_matrix(context, answer, count);
    if (status == SYMMEM_OK)
        memcpy(matrix, answer, entries * sizeof(*matrix));
    free(answer);
    return status;
}

static symmem_status check_count(symmem_context *context, int32_t device_count) {
    int32_t count = 0;
    symmem_status status = sm_device_count(context, operation, &count);
    if (status != SYMMEM_OK || device_count == count)
        return status;
    (void)sm_context_fail(context, SYMMEM_OUT_OF_RANGE, operation, "device_count",
                          "room for %d devices, the backend has %d", (int)device_count, (int)count);
    return sm_error_sizes((uint64_t)count, (uint64_t)(int64_t)device_count);
}

symmem_status symmem_connectivity(symmem_context *context, const char *connection,
                                  int32_t device_count, int32_t *matrix) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!connection || !matrix)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "", "%s is NULL",
                               connection ? "matrix" : "connection");
    if (strnlen(connection, SYMMEM_NAME_MAX) == SYMMEM_NAME_MAX)
        return sm_context_fail(context, SYMMEM_NOT_FOUND, operation, "",
                               "no kind of link is called '%.*s'", SYMMEM_NAME_MAX, connection);
    status = sm_instance_enter(context, operation);
    if (status != SYMMEM_OK)
        return status;
    status = sm_need_capability(context, SYMMEM_CAP_CONNECTIVITY, operation, "connectivity");
    if (status == SYMMEM_OK)
        status = check_count(context, device_count);
    if (status == SYMMEM_OK)
        status = ask(context, connection, device_count, matrix);
    sm_instance_release(context);
    return status;
}
