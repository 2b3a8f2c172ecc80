/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A work-around for NCCL's bootstrap root. For each id NCCL has a thread and a listening socket in
 * the process that created the id. They wait without a deadline until all ranks have connected. If
 * a communicator does not come up they wait forever, and NCCL has no call to end them. But a socket
 * that was shut down accepts no connection, and the thread then closes it and ends.
 *
 * The socket is found by its address, which the id carries, as soon as the id exists. Later another
 * socket may have that address. Connecting as an unexpected rank would end the thread too, but then
 * this rank would wait for an answer that never comes, and NCCL frees nothing of a communicator
 * that waits there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl_internal.h"
#include "bootstrap_root.h"

#define PAUSE_NS (200000ull)
#define MAX_PAUSES 250

#define SEARCHED 4096 /* descriptors, if there is no list of them */

struct nccl_bootstrap_root {
    struct nccl_bootstrap_root *next;
    unsigned long long number; /* the socket's; never 0 */
};

/* Returns the bytes of family, port and address. What follows them is padding, or the interface. */
static size_t address_bytes(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET)
        return offsetof(struct sockaddr_in, sin_zero);
    return address->ss_family == AF_INET6 ? offsetof(struct sockaddr_in6, sin6_scope_id) : 0;
}

/* Searches the whole id for the address, because the layout of the id is internal to NCCL. */
static bool has_address(int fd, const ncclUniqueId *id) {
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

/* Asks the file system, because other threads may close the descriptor meanwhile. Returns 0 if it
 * is no socket. */
static unsigned long long socket_number(int fd) {
    char path[40], target[64];
    unsigned long long number = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    return sscanf(target, "socket:[%llu]", &number) == 1 ? number : 0;
}

static bool is_root(int fd, const nccl_bootstrap_root *root) {
    return socket_number(fd) == root->number;
}

/* Sets *root to that socket if it is the id's. */
static bool becomes(nccl_bootstrap_root *root, int fd, const ncclUniqueId *id) {
    root->number = has_address(fd, id) ? socket_number(fd) : 0;
    return root->number != 0;
}

/* Returns the descriptor of the root's socket, which for an id is remembered from now on, or -1. */
static int search(nccl_bootstrap_root *root, const ncclUniqueId *id) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    int found = -1, fd = 0;
    while (found < 0) {
        if (directory == NULL && fd == SEARCHED)
            break;
        if (directory != NULL && (entry = readdir(directory)) == NULL)
            break;
        const int looked_at = directory == NULL ? fd++ : atoi(entry->d_name);
        if (id != NULL ? becomes(root, looked_at, id) : is_root(looked_at, root))
            found = looked_at;
    }
    if (directory != NULL)
        (void)closedir(directory);
    return found;
}

/* The thread needs a moment to close its own descriptor. */
static void shut_down(int fd, int copy, const nccl_bootstrap_root *root) {
    (void)shutdown(copy, SHUT_RDWR);
    for (int i = 0; i < MAX_PAUSES && is_root(fd, root); i++)
        cuda_sleep_ns(PAUSE_NS);
}

/* Uses a copy, because the thread may close the descriptor at any time and its number may be
 * reused. Returns false if no descriptor is available. */
static bool end(nccl_bootstrap_root *root) {
    int fd = search(root, NULL);
    int copy = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (copy < 0)
        return fd < 0 || errno == EBADF;
    if (is_root(copy, root))
        shut_down(fd, copy, root);
    (void)close(copy);
    return true;
}

static nccl_bootstrap_root *take_all(nccl_state *state) {
    pthread_mutex_lock(&state->lock);
    nccl_bootstrap_root *first = state->roots;
    state->roots = NULL;
    pthread_mutex_unlock(&state->lock);
    return first;
}

static void put_back(nccl_state *state, nccl_bootstrap_root *root) {
    pthread_mutex_lock(&state->lock);
    root->next = state->roots;
    state->roots = root;
    pthread_mutex_unlock(&state->lock);
}

nccl_bootstrap_root *nccl_bootstrap_root_find(const ncclUniqueId *id) {
    nccl_bootstrap_root *root = calloc(1, sizeof *root);
    if (root != NULL && search(root, id) >= 0)
        return root;
    free(root);
    return NULL;
}

void nccl_bootstrap_root_end(cuda_instance *instance, nccl_bootstrap_root *root) {
    if (root != NULL && !end(root))
        put_back(nccl_state_of(instance), root);
    else
        free(root);
}

void nccl_bootstrap_roots_end(cuda_instance *instance, bool keep) {
    nccl_state *state = nccl_state_of(instance);
    nccl_bootstrap_root *next;
    for (nccl_bootstrap_root *root = take_all(state); root != NULL; root = next) {
        next = root->next;
        if (!end(root) && keep)
            put_back(state, root);
        else
            free(root);
    }
}
