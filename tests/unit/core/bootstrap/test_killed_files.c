/* SPDX-License-Identifier: BSD-3-Clause */
/* SM-EXCHANGE-23: a rank is killed before or after any call that it makes between init and
 * finalize. The next rank in its store leaves no socket file behind. */
#include "folder.h"
#include "unit.h"
#include "unit_child.h"

#include <sys/socket.h>

/* --- where a process is killed, or lacks something -------------------------------------------- */

enum what { NOTHING, IS_KILLED, LACKS };

/* Of a child, which shares it. A kill has two steps a call: before it and after it. */
static struct fault {
    enum what what;
    int left; /* steps */
    char call[16];
} * fault;

static bool is_next(enum what what, const char *call) {
    if (fault->what != what || fault->left-- != 0)
        return false;
    (void)snprintf(fault->call, sizeof(fault->call), "%s", call);
    return true;
}

static void may_die(const char *call) {
    if (is_next(IS_KILLED, call))
        (void)kill(getpid(), SIGKILL);
}

#define WRAP(name, parameters, arguments, number)                                                  \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters {                                                                 \
        may_die(#name);                                                                            \
        errno = number;                                                                            \
        const int result = is_next(LACKS, #name) ? -1 : __real_##name arguments;                   \
        const int error = errno;                                                                   \
        may_die(#name);                                                                            \
        errno = error;                                                                             \
        return result;                                                                             \
    }
WRAP(bind, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes), ENOSPC)
WRAP(listen, (int fd, int backlog), (fd, backlog), ENOBUFS)
WRAP(socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE)
WRAP(connect, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes),
     ENOMEM)
WRAP(unlink, (const char *path), (path), EIO)
WRAP(unlinkat, (int folder, const char *name, int flags), (folder, name, flags), EIO)
WRAP(rename, (const char *from, const char *to), (from, to), EIO)
WRAP(renameat, (int from_folder, const char *from, int to_folder, const char *to),
     (from_folder, from, to_folder, to), EIO)
WRAP(utimensat, (int folder, const char *name, const struct timespec times[2], int flags),
     (folder, name, times, flags), EIO)

/* --- processes of ranks ------------------------------------------------------------------------
 */

/* Whose socket files have a folder, unless `is_elsewhere`. */
struct life {
    int32_t rank, size;
    bool is_elsewhere;
    bool stays;    /* till it is killed where others finalize */
    bool is_twice; /* it makes another context in its own place */
};

static char store_path[FOLDER_BYTES], sockets[FOLDER_BYTES];

static void live(const struct life *life) {
    symmem_status status;
    symmem_store *store = NULL;
    symmem_context *context = NULL, *second = NULL;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = options.local_rank = life->rank;
    options.world_size = life->size;
    options.socket_dir = life->is_elsewhere ? NULL : sockets;
    if ((status = symmem_store_open_file(store_path, &store)) == SYMMEM_OK) {
        options.store = store;
        status = symmem_init(&options, &context);
        if (life->is_twice && status == SYMMEM_OK)
            status = symmem_init(&options, &second);
        if (life->stays)
            (void)kill(getpid(), SIGKILL);
        symmem_context_free(second);
        symmem_context_free(context);
        symmem_store_close(store);
    }
    _exit(status == SYMMEM_OK || fault->what == LACKS ? CHOSEN : NO_WORLD);
}

/* Returns whether the process came to that step. */
static bool run(const struct life *life, enum what what, int step) {
    int status = -1;
    *fault = (struct fault){.what = what, .left = step};
    (void)fflush(NULL);
    const pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(LONGEST_S);
        live(life);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(pid, &status, 0), pid);
    const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    CU_ASSERT(is_killed ? life->stays || what == IS_KILLED : has_chosen(status));
    return fault->call[0] != '\0';
}

/* --- cases -------------------------------------------------------------------------------------
 */

enum { LIVES = 3, STEPS = 1000 };

/* One life after the other in one store. The fault is in `lives[at]`, once at each of its steps. */
static void walk(const struct life lives[LIVES], int at, enum what what) {
    bool goes_on = true;
    int step = 0;
    for (; goes_on && step < STEPS; step++) {
        char call[sizeof(fault->call)] = "";
        CU_ASSERT_FATAL(make_folder(store_path) && make_folder(sockets));
        for (int i = 0; i < LIVES && lives[i].size > 0; i++) {
            const bool is_there = run(&lives[i], i == at ? what : NOTHING, step);
            if (i == at)
                memcpy(call, fault->call, sizeof(call));
            goes_on = i == at ? is_there : goes_on;
        }
        const int left = count_files(sockets, '\0');
        CU_ASSERT_EQUAL(left, 0);
        if (left != 0)
            printf("\n    %d left, step %d, %s", left, step, call);
        remove_tree(sockets);
        remove_tree(store_path);
    }
    CU_ASSERT(step > 10 && step < STEPS);
}

static const struct life another = {.rank = 0, .size = 3}, successor = {.rank = 2, .size = 3},
                         in_a_smaller_world = {.rank = 0, .size = 2},
                         alone = {.rank = 0, .size = 1},
                         elsewhere = {.rank = 2, .size = 3, .is_elsewhere = true},
                         killed = {.rank = 2, .size = 3, .stays = true},
                         twice = {.rank = 2, .size = 3, .is_twice = true};

TEST("another rank comes after a kill") {
    walk((struct life[LIVES]){successor, another}, 0, IS_KILLED);
}

TEST("its successor comes after a kill") {
    walk((struct life[LIVES]){another, another}, 0, IS_KILLED);
}

TEST("a smaller world comes after a kill") {
    walk((struct life[LIVES]){successor, in_a_smaller_world}, 0, IS_KILLED);
    walk((struct life[LIVES]){successor, alone}, 0, IS_KILLED);
}

TEST("a successor without a folder comes after a kill") {
    walk((struct life[LIVES]){killed, elsewhere, another}, 1, IS_KILLED);
    walk((struct life[LIVES]){killed, elsewhere, another}, 1, LACKS);
}

TEST("a process with two contexts is killed") {
    walk((struct life[LIVES]){twice, another}, 0, IS_KILLED);
    walk((struct life[LIVES]){twice, successor}, 0, IS_KILLED);
}

TEST("who would remove the file is killed") {
    walk((struct life[LIVES]){killed, another, another}, 1, IS_KILLED);
    walk((struct life[LIVES]){killed, successor, another}, 1, IS_KILLED);
}

TEST("who would remove the file lacks something") {
    walk((struct life[LIVES]){killed, another, another}, 1, LACKS);
    walk((struct life[LIVES]){killed, successor, another}, 1, LACKS);
}

TEST("a living rank lacks something") {
    walk((struct life[LIVES]){successor, another}, 0, LACKS);
}

int unit_setup(void) {
    fault = mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return fault == MAP_FAILED;
}
