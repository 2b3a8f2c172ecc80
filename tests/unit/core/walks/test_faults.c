/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks every system and library call of a complete run and lets each fail once: whatever fails,
 * calls return a status with a record, nothing hangs, and no descriptor or mapping is left.
 */
#include "life.h"
#include "wrap.h"

/* What a call's failure is told as, and whether the library may do without. */
static const struct known {
    const char *call;
    symmem_status status, other; /* the other is of what a peer got that way; or the same */
    bool may_finish;
} known[] = {
    {"malloc", SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY, true},
    {"calloc", SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY, true},
    {"realloc", SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY, false},
    {"strdup", SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY, false},
    {"mmap", SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY, true},
    {"pthread_mutex_init", SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY, false},
    {"pthread_cond_init", SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY, false},
    {"pthread_condattr_init", SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY, false},
    {"poll", SYMMEM_OUT_OF_MEMORY, SYMMEM_OUT_OF_MEMORY, true},
    {"pthread_create", SYMMEM_LIMIT, SYMMEM_LIMIT, false},
    {"memfd_create", SYMMEM_LIMIT, SYMMEM_LIMIT, true},
    {"socket", SYMMEM_LIMIT, SYMMEM_LIMIT, true},
    {"openat", SYMMEM_LIMIT, SYMMEM_LIMIT, true},
    {"fcntl", SYMMEM_LIMIT, SYMMEM_CORRUPT, true},
    {"bind", SYMMEM_PERMISSION, SYMMEM_PERMISSION, false},
    {"faccessat", SYMMEM_PERMISSION, SYMMEM_PERMISSION, false},
    {"gethostname", SYMMEM_PERMISSION, SYMMEM_PERMISSION, false},
    {"mkdir", SYMMEM_PERMISSION, SYMMEM_PERMISSION, false},
    {"stat", SYMMEM_PERMISSION, SYMMEM_PERMISSION, true},
    {"fchmod", SYMMEM_PERMISSION, SYMMEM_CORRUPT, true},
    {"open", SYMMEM_PERMISSION, SYMMEM_SYSTEM, true}, /* SYSTEM: where /proc is wanted */
    {"posix_fallocate", SYMMEM_NO_SPACE, SYMMEM_CORRUPT, true},
    {"fallocate", SYMMEM_NO_SPACE, SYMMEM_CORRUPT, true},
};

/* Of all others. */
static const struct known unknown = {"", SYMMEM_SYSTEM, SYMMEM_SYSTEM, true};

static void judge(const struct life *own, const struct life *other, int nth) {
    const struct known *found = &unknown;
    const symmem_error_record *record = &own->first.record;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].call, own->name) == 0)
            found = &known[i];
    if (own->finished) {
        /* Without its second socket in the directory a rank goes on, and says so. */
        CU_ASSERT(found->may_finish || (own->socket_dir != NULL && strcmp(own->name, "bind") == 0));
    } else if (own->clock != NULL ||
               (record->status != SYMMEM_TIMEOUT && record->status != SYMMEM_POISONED)) {
        CU_ASSERT(record->status == found->status || record->status == found->other);
    }
    if (own->clock == NULL || other == NULL || other->finished)
        return;
    if (other->first.record.status != record->status &&
        other->first.record.status != SYMMEM_POISONED)
        CU_ASSERT_EQUAL(other->first.record.status, SYMMEM_TIMEOUT);
}

int main(void) {
    struct life_faults faults = {
        .table = symmem_backend_entry(SYMMEM_BACKEND_ABI),
        .arm = wrap_arm,
        .disarm = wrap_disarm,
        .judge = judge,
        .live = wrap_live,
        .waits = true,
    };
    return life_main("faults", &faults);
}
