/* SPDX-License-Identifier: BSD-3-Clause */
/* What /proc says of a process and of the system. */
#ifndef SYMMEM_CORE_PROCESS_H
#define SYMMEM_CORE_PROCESS_H

#include <sys/types.h>
#include "base/error.h"

typedef struct sm_process {
    uint64_t start_time; /* in clock ticks since boot */
    long thread_count;
    char state;      /* of its first thread, as proc(5) has it */
    bool is_exiting; /* its first thread is */
} sm_process;

/* The beginning of a small file, as a string. False with errno if it cannot be read or is empty. */
bool sm_read_text(const char *path, char *text, size_t capacity);
/* False if that cannot be read, which alone proves nothing. `pid` 0: of this process. */
bool sm_process_read(int32_t pid, sm_process *process_p);
/* Whether /proc numbers processes as getpid() does: it may be another namespace's, or not there. */
bool sm_process_numbers_are_ours(void);
/* All threads of that very process have begun to end, so none of its code runs any more. False if
 * that is not known. */
bool sm_process_is_ending(int32_t pid, uint64_t start_time);
/* A hash of the running kernel's boot id, 0 if that cannot be read. */
uint64_t sm_boot_id(void);

#endif
