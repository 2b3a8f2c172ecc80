/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes the n-th system or library call of a thread fail, through the linker's --wrap. Only the
 * program that is linked with these wrappers is affected; the product has no hooks for it.
 */
#ifndef SYMMEM_TESTS_WRAP_H
#define SYMMEM_TESTS_WRAP_H

#include <stdbool.h>

/* From now on the nth wrapped call of the calling thread fails (1 is the next); 0: none. */
void wrap_arm(int nth);
/* True: only calls that a signal may interrupt count, and "failing" is EINTR. Before threads. */
void wrap_interrupt(bool only);
/* Disarms; how many wrapped calls there were. *name_p, if not NULL: which one failed, or NULL. */
int wrap_disarm(const char **name_p);
/* How many allocations and conditions of all threads have been made and not ended. */
int wrap_live(void);

#endif
