/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks for free descriptors. If one is missing, NCCL fails somewhere inside on one rank while the
 * others wait there, or it makes no window on any rank without an error. So NCCL is not called
 * then. Its needs, measured with 2.28.9 and all ranks on one host: a communicator takes 24, a
 * registration 5 with two ranks and 8 with four. Networks between hosts take more, which has not
 * been measured.
 *
 * Ranks that are threads have one table of descriptors, in which each of them checks for its own.
 */
#include <errno.h>
#include <fcntl.h>

#include "fd_budget.h"

#define COMM_DESCRIPTORS 32

int32_t nccl_window_descriptors(int32_t world_size) {
    return 2 * world_size + 8;
}

int32_t nccl_comm_descriptors(int32_t world_size) {
    return COMM_DESCRIPTORS + nccl_window_descriptors(world_size);
}

bool nccl_has_descriptors(int32_t count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return true; /* NCCL will report it */
    for (rlim_t fd = 0; fd < limit.rlim_cur && count > 0; fd++)
        count -= fcntl((int)fd, F_GETFD) < 0;
    return count <= 0;
}

symmem_status nccl_lacks_descriptors(const cuda_instance *instance) {
    return instance->host->fail(instance->host, SYMMEM_LIMIT, EMFILE, "rendezvous",
                                "the process has not enough descriptors left for NCCL");
}

/* A process may make several communicators at once. The limit is saved before the first of them and
 * restored after the last. */
static pthread_mutex_t limit_lock = PTHREAD_MUTEX_INITIALIZER;
static int limit_users;
static struct rlimit limit_before;

void nccl_fd_limit_keep(void) {
    pthread_mutex_lock(&limit_lock);
    if (limit_users++ == 0)
        (void)getrlimit(RLIMIT_NOFILE, &limit_before);
    pthread_mutex_unlock(&limit_lock);
}

/* NCCL's thread for an id begins by raising the soft limit to the hard one. By now it has done so:
 * either all ranks have connected, or the thread was told to end and given a moment for that. */
void nccl_fd_limit_restore(void) {
    const struct rlimit *before = &limit_before;
    struct rlimit now;
    pthread_mutex_lock(&limit_lock);
    if (--limit_users == 0 && before->rlim_cur != before->rlim_max &&
        getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == before->rlim_max &&
        now.rlim_max == before->rlim_max)
        (void)setrlimit(RLIMIT_NOFILE, before);
    pthread_mutex_unlock(&limit_lock);
}
