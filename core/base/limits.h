/* SPDX-License-Identifier: BSD-3-Clause */
/* What limits the process has, for messages that name them. */
#ifndef SYMMEM_CORE_LIMITS_H
#define SYMMEM_CORE_LIMITS_H

#include "base/error.h"

/* Adds to the message of the error which limit an errno stands for. */
void sm_explain_errno(int system_errno);
/* One line for people. No signal comes of it, whatever the standard error is. */
void sm_tell_stderr(const char *text);
/* RLIMIT_FSIZE, beyond which a write ends the process. False: there is none. */
bool sm_file_limit(uint64_t *bytes_p);

#endif
