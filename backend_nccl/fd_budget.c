/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors. Where one is short NCCL fails at some place within, on one rank, while the others
 * wait there, or makes no window on any rank and says nothing; so it is asked for nothing then.
 * What it takes, measured with 2.28.9 and all ranks on one host: a communicator 24, a registration
 * 5 with two ranks and 8 with four. Networks between hosts take more, which nobody has measured.
 *
 * Ranks that are threads have one table of descriptors, in which each of them looks for its own.
 */
#include <errno.h>
#include <fcntl.h>

#include "nccl_internal.h"

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
        return true; /* NCCL will see */
    for (rlim_t fd = 0; fd < limit.rlim_cur && count > 0; fd++)
        count -= fcntl((int)fd, F_GETFD) < 0;
    return count <= 0;
}

symmem_status nccl_lacks_descriptors(const cuda_instance *instance) {
    return instance->host->fail(instance->host, SYMMEM_LIMIT, EMFILE, "rendezvous",
                                "the process has not enough descriptors left for NCCL");
}

/* A process may make several communicators at once: what the limit was is known only before the
 * first of them, and holds only after the last. */
static pthread_mutex_t limit_lock = PTHREAD_MUTEX_INITIALIZER;
static int limit_users;
static struct rlimit limit_before;

void nccl_limit_keep(void) {
    pthread_mutex_lock(&limit_lock);
    if (limit_users++ == 0)
        (void)getrlimit(RLIMIT_NOFILE, &limit_before);
    pthread_mutex_unlock(&limit_lock);
}

/* The first thing that NCCL's thread for an id does is to raise the soft limit to the hard one. By
 * now it has: all ranks have met there, or it was told to end and given a moment for that. */
void nccl_limit_restore(void) {
    const struct rlimit *before = &limit_before;
    struct rlimit now;
    pthread_mutex_lock(&limit_lock);
    if (--limit_users == 0 && before->rlim_cur != before->rlim_max &&
        getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == before->rlim_max &&
        now.rlim_max == before->rlim_max)
        (void)setrlimit(RLIMIT_NOFILE, before);
    pthread_mutex_unlock(&limit_lock);
}
