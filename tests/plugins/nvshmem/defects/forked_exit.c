/* SPDX-License-Identifier: BSD-3-Clause */
/* forked_exit: two PEs, with or without GPUs. One forks a child that calls exit, and NVSHMEM 3.4.5
 * then shuts the parent's connections down: its socket for other PEs listens no more. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../calls.h"

static int listening(void) {
    int count = 0, listens;
    for (int fd = 0; fd < 1024; fd++) {
        socklen_t bytes = sizeof listens;
        count += getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens != 0;
    }
    return count;
}

static int start(int rank, const nvshmemx_uniqueid_t *id) {
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    const int error = nvshmemx_set_attr_uniqueid_args(rank, 2, id, &attr);
    return error != 0 ? error : nvshmemx_hostlib_init_attr(CALLS_WITH_UNIQUEID, &attr);
}

int main(void) {
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    int pipe_ends[2];
    alarm(60);
    if (pipe(pipe_ends) != 0)
        return 1;
    const pid_t other = fork();
    if (other == 0) {
        alarm(60);
        _exit(read(pipe_ends[0], &id, sizeof id) != sizeof id || start(1, &id) != 0 ||
              sleep(2) != 0);
    }
    if (other < 0 || nvshmemx_get_uniqueid(&id) != 0 ||
        write(pipe_ends[1], &id, sizeof id) != sizeof id || start(0, &id) != 0)
        return 1;
    printf("sockets that listen: %d\n", listening());
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        exit(0);
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return 1;
    printf("behind the exit of a child: %d\n", listening());
    fflush(stdout);
    _exit(0);
}
