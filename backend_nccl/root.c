/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For each id NCCL has a thread and a listening socket in the process that asked for it, which wait
 * without a deadline until all ranks have come. Where a communicator did not come up they wait for
 * ever, and NCCL has no call to end them. But a socket that was shut down accepts nobody any more:
 * the thread then closes it and ends. It is known by its address, which the id carries. A rank that
 * NCCL does not expect would end the thread, too, and wait for an answer that never comes; of a
 * communicator that waits there NCCL gives nothing back.
 */
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nccl_internal.h"

#define PAUSE_NS (200000ull)
#define MAX_PAUSES 250

struct nccl_root {
    struct nccl_root *next;
    ncclUniqueId id;
};

/* Family, port and address; what is behind them is padding, or the interface. */
static size_t address_bytes(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET)
        return offsetof(struct sockaddr_in, sin_zero);
    return address->ss_family == AF_INET6 ? offsetof(struct sockaddr_in6, sin6_scope_id) : 0;
}

/* Wherever in the id the address stands: what is in there is NCCL's own affair. */
static bool is_root(int fd, const ncclUniqueId *id) {
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    int listens = 0;
    socklen_t listens_length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_length) != 0 || !listens ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        return false;
    size_t bytes = address_bytes(&address);
    return bytes != 0 && memmem(id->internal, sizeof id->internal, &address, bytes) != NULL;
}

static bool are_same(int fd, int other) {
    struct stat one, two;
    return fstat(fd, &one) == 0 && fstat(other, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

/* The thread needs a moment to close its own descriptor. */
static void shut_down(int fd, int copy) {
    (void)shutdown(copy, SHUT_RDWR);
    for (int i = 0; i < MAX_PAUSES && are_same(fd, copy); i++)
        cuda_sleep_ns(PAUSE_NS);
}

/* By a copy, for the thread may close the descriptor at any time and its number be another's.
 * False: there is no descriptor to be had for it. */
static bool end_at(int fd, const ncclUniqueId *id) {
    if (!is_root(fd, id))
        return true;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return false;
    if (is_root(copy, id))
        shut_down(fd, copy);
    (void)close(copy);
    return true;
}

/* False: it may be there yet. */
static bool end(const ncclUniqueId *id) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    bool ended = directory != NULL;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            ended = end_at(atoi(entry->d_name), id) && ended;
    if (directory != NULL)
        (void)closedir(directory);
    return ended;
}

static nccl_root *take_all(nccl_state *state) {
    pthread_mutex_lock(&state->lock);
    nccl_root *first = state->roots;
    state->roots = NULL;
    pthread_mutex_unlock(&state->lock);
    return first;
}

static void put_back(nccl_state *state, nccl_root *root) {
    pthread_mutex_lock(&state->lock);
    root->next = state->roots;
    state->roots = root;
    pthread_mutex_unlock(&state->lock);
}

void nccl_roots_end(cuda_instance *instance, bool keep) {
    nccl_state *state = nccl_state_of(instance);
    nccl_root *root = take_all(state);
    while (root != NULL) {
        nccl_root *next = root->next;
        if (!end(&root->id) && keep)
            put_back(state, root);
        else
            free(root);
        root = next;
    }
}

void nccl_root_end(cuda_instance *instance, const ncclUniqueId *id) {
    if (end(id))
        return;
    nccl_root *root = calloc(1, sizeof *root);
    if (root == NULL)
        return; /* it waits on */
    root->id = *id;
    put_back(nccl_state_of(instance), root);
}
