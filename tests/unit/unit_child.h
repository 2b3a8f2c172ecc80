/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of how a process ends: it does in a child. */
#ifndef SYMMEM_UNIT_CHILD_H
#define SYMMEM_UNIT_CHILD_H

#include <CUnit/Basic.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define UNIT_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNIT_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef UNIT_ADDRESS_SANITIZER
#define UNIT_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__)
#define UNIT_THREAD_SANITIZER 1
#else
#define UNIT_THREAD_SANITIZER 0
#endif
/* Sanitizers end a process under a limit that leaves their own memory no room. */
#if UNIT_ADDRESS_SANITIZER || UNIT_THREAD_SANITIZER
#define UNIT_SHADOW_MEMORY 1
#else
#define UNIT_SHADOW_MEMORY 0
#endif

/* CHOSEN: by `way`, which ends the child. NO_WORLD: it could not, or did not. */
enum { CHOSEN = 37, NO_WORLD = 99, LONGEST_S = 20 };

/* The child's wait status. */
static inline int end_in_child(void (*way)(void)) {
    int status = -1;
    (void)fflush(NULL);
    pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(LONGEST_S);
        way();
        _exit(NO_WORLD);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(pid, &status, 0), pid);
    return status;
}

static inline bool has_chosen(int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) == CHOSEN;
}

/* The address that touch() reads. The child is killed, or ends with CHOSEN if the byte is 1. */
static const char *touched;

static inline void touch(void) {
    (void)signal(SIGSEGV, SIG_DFL);
    (void)signal(SIGBUS, SIG_DFL);
    if (*(const volatile char *)touched == 1)
        _exit(CHOSEN);
}

static inline bool is_fatal(int status) {
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

#endif
