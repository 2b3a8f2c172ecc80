/* SPDX-License-Identifier: BSD-3-Clause */
/* The bootstrap root that NCCL keeps for an id whose ranks do not come, and its end: see
 * bootstrap_root.c. */
#include <netinet/in.h>
#include <sys/socket.h>

#include "nccl_ranks.h"
#include "bootstrap_root.h"

static int listen_anywhere(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CU_ASSERT_FATAL(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CU_ASSERT_EQUAL_FATAL(listen(fd, 1), 0);
    return fd;
}

static bool listens(int fd) {
    int found = 0;
    socklen_t length = sizeof found;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &found, &length) == 0 && found != 0;
}

static ncclUniqueId new_id(void) {
    ncclResult_t (*get)(ncclUniqueId *) = NULL;
    ncclUniqueId id = {{0}};
    void *library = dlopen(PLAIN_NCCL, RTLD_NOW);
    void *found = dlsym(library, "ncclGetUniqueId");
    memcpy(&get, &found, sizeof get);
    CU_ASSERT_EQUAL_FATAL(get(&id), ncclSuccess);
    dlclose(library);
    return id;
}

/* Another one's socket, with the address that a root had. */
static int take_address_of(const ncclUniqueId *id, nccl_bootstrap_root *root,
                           cuda_instance *instance) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    int taken = -1;
    for (int fd = 0; fd < 1024 && taken < 0; fd++) {
        socklen_t length = sizeof address;
        if (listens(fd) && getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
            memmem(id->internal, sizeof id->internal, &address, 8) != NULL)
            taken = fd;
    }
    CU_ASSERT_FATAL(taken >= 0);
    nccl_bootstrap_root_end(instance, root);
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL_FATAL(listen(fd, 1), 0);
    return fd;
}

/* Ending a bootstrap root takes a descriptor. Without a free one the root is noted for later.
 * Sockets of other programs stay, whatever their address. */
TEST("what waits for ranks") {
    nccl_state state = {.lock = PTHREAD_MUTEX_INITIALIZER};
    cuda_instance instance = {.extension = &state};
    struct rlimit limit, none;
    use_library(PLAIN_NCCL);
    int strangers = listen_anywhere();
    ncclUniqueId first_id = new_id(), second_id = new_id(), third_id = new_id();
    nccl_bootstrap_root *first = nccl_bootstrap_root_find(&first_id),
                        *second = nccl_bootstrap_root_find(&second_id);
    nccl_bootstrap_root *third = nccl_bootstrap_root_find(&third_id),
                        *again = nccl_bootstrap_root_find(&third_id);
    CU_ASSERT(first != NULL && second != NULL && third != NULL && again != NULL);
    CU_ASSERT_EQUAL(nccl->roots(), 3);
    nccl_bootstrap_root_end(&instance, second);
    CU_ASSERT(roots_come_to(2));
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    nccl_bootstrap_root_end(&instance, first);
    nccl_bootstrap_roots_end(&instance, true);
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CU_ASSERT(roots_come_to(2));
    CU_ASSERT_PTR_NOT_NULL(state.roots);
    nccl_bootstrap_roots_end(&instance, true);
    CU_ASSERT(roots_come_to(1));
    CU_ASSERT_PTR_NULL(state.roots);
    int later = take_address_of(&third_id, third, &instance);
    CU_ASSERT(roots_come_to(0));
    nccl_bootstrap_root_end(&instance, again);
    nccl_bootstrap_root_end(&instance, NULL);
    CU_ASSERT(listens(strangers) && listens(later));
    close(strangers);
    close(later);
}
