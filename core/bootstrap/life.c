/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Life sockets. Such a socket lives as long as its process runs the program that made it. The
 * socket listens, and peers never send to it. A successful connection tells, from every pid
 * namespace, that the process lives and runs on the same kernel. The kernel also tells which
 * process it is. exec and the child of a fork close the socket.
 *
 * A process with a context has one socket with an abstract name. An abstract name is visible only
 * in its network namespace, so a context with a socket directory has another socket there. A
 * context that ends in good order first takes its identity out of the store, so that no peer
 * mistakes the socket's end for the process's.
 *
 * The file of a killed process tells of its end. It stays until the store tells of it as well, for
 * which the file's name has the rank. While the store may not know the file, the file is unsettled:
 * no peer needs it, and anybody may remove it once its process has ended (ipc_sweep.c). It is
 * unsettled from its making until its rank's key is in the store, and from before that key is
 * removed or replaced on.
 */
#include "base/rights.h"
#include "bootstrap/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
/* Each look leaves an entry in the queue and does not wait. A full queue answers EAGAIN, which
 * proves life as well. */
#define BACKLOG 128
#define SERVING_NS 500000000u
#define LONGEST_NAME 56
#define RANK_DIGITS 4
#define RANDOM_BYTES 14

/* Mark in a file's change time: the store may not know the file. */
#define UNSETTLED_S 1

struct sm_life_file {
    sm_life_file *next; /* in the list of all open ones */
    int fd;
    struct sockaddr_un address;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below; held around a fork */
static bool is_named;
static uint8_t own_id[SM_LIFE_ID_BYTES];
static int own_fd = -1;
static int32_t users; /* contexts that use own_fd */
static sm_life_file *files;

void sm_life_lock_all(void) {
    (void)pthread_mutex_lock(&lock);
}

void sm_life_unlock_all(void) {
    (void)pthread_mutex_unlock(&lock);
}

void sm_life_forget_all(void) {
    if (own_fd >= 0)
        close(own_fd);
    own_fd = -1;
    users = 0;
    is_named = false;
    for (; files != NULL; files = files->next) {
        close(files->fd);
        files->fd = -1;
    }
}

symmem_status sm_life_id(uint8_t id[SM_LIFE_ID_BYTES]) {
    symmem_status status = SYMMEM_OK;
    (void)sm_fork_generation(); /* a child gets another one */
    sm_life_lock_all();
    if (!is_named)
        status = sm_random(own_id, sizeof(own_id));
    is_named = status == SYMMEM_OK;
    if (is_named)
        memcpy(id, own_id, sizeof(own_id));
    sm_life_unlock_all();
    return status;
}

/* --- listening ------------------------------------------------------------------------------ */

static size_t name_of(char mark, int32_t rank, const uint8_t random[RANDOM_BYTES],
                      char name[LONGEST_NAME]) {
    sm_ipc_prefix(name);
    size_t used = strlen(name);
    used += (size_t)snprintf(name + used, LONGEST_NAME - used, "%c%0*x", mark, RANK_DIGITS,
                             (unsigned)rank);
    for (size_t i = 0; i < RANDOM_BYTES; i++)
        used += (size_t)snprintf(name + used, LONGEST_NAME - used, "%02x", random[i]);
    return used;
}

int32_t sm_life_rank_of(const char *name) {
    unsigned rank = 0;
    if (strlen(name) < SM_IPC_PREFIX_BYTES || name[SM_IPC_PREFIX_BYTES - 1] != SM_LIFE_MARK ||
        sscanf(name + SM_IPC_PREFIX_BYTES, "%4x", &rank) != 1)
        return -1;
    return (int32_t)rank;
}

/* The name does not have the boot id, which other containers may see differently. */
static socklen_t abstract_address(const uint8_t id[SM_LIFE_ID_BYTES], struct sockaddr_un *address) {
    static const char prefix[] = "symmem-life-";
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t used = 1 + sizeof(prefix) - 1;
    memcpy(address->sun_path + 1, prefix, sizeof(prefix) - 1);
    for (size_t i = 0; i < SM_LIFE_ID_BYTES; i++)
        used += (size_t)snprintf(address->sun_path + used, sizeof(address->sun_path) - used, "%02x",
                                 id[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + used);
}

/* Returns -1 with errno on failure. A file never has a wider mode than its owner's. */
static int listen_at(const struct sockaddr_un *address, socklen_t bytes) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    const bool is_bound =
        fchmod(fd, 0600) == 0 && bind(fd, (const struct sockaddr *)address, bytes) == 0;
    int error = is_bound && listen(fd, BACKLOG) == 0 ? 0 : errno;
    const bool has_file = is_bound && address->sun_path[0] != '\0';
    if (has_file && error == 0) /* restores what the umask took */
        error = sm_rights_give_at(AT_FDCWD, address->sun_path, 0600);
    if (error == 0)
        return fd;
    if (has_file)
        (void)unlink(address->sun_path);
    close(fd);
    errno = error;
    return -1;
}

symmem_status sm_life_begin(void) {
    uint8_t id[SM_LIFE_ID_BYTES];
    symmem_status status = sm_life_id(id);
    if (status != SYMMEM_OK)
        return status;
    struct sockaddr_un address;
    socklen_t bytes = abstract_address(id, &address);
    sm_life_lock_all();
    if (own_fd < 0)
        own_fd = listen_at(&address, bytes);
    int error = own_fd < 0 ? errno : 0;
    users += own_fd < 0 ? 0 : 1;
    sm_life_unlock_all();
    if (error != 0)
        return sm_fail_errno(error, "identity", "socket", "cannot make a socket");
    return SYMMEM_OK;
}

void sm_life_end(void) {
    sm_life_lock_all();
    if (--users == 0) {
        close(own_fd);
        own_fd = -1;
    }
    sm_life_unlock_all();
}

/* --- files --------------------------------------------------------------------------- */

/* Tries twice: of the last rank to end no other one removes what is left. */
static void remove_file(const char *path) {
    if (unlink(path) != 0 && errno != ENOENT)
        (void)unlink(path);
}

static bool mark_times(const char *path, const struct timespec times[2]) {
    return utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0 ||
           utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0;
}

bool sm_life_unsettle(const char *path) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = UNSETTLED_S}};
    return mark_times(path, times);
}

bool sm_life_is_unsettled(const struct stat *file) {
    return file->st_mtim.tv_sec == UNSETTLED_S;
}

/* A process that is killed before the file is marked as unsettled leaves a name that tells as
 * much. */
static bool make_file(sm_life_file *file, const char *directory, int32_t rank,
                      const uint8_t random[RANDOM_BYTES]) {
    struct sockaddr_un first = {.sun_family = AF_UNIX};
    char name[LONGEST_NAME];
    const size_t offset = strlen(directory) + 1;
    if (offset + name_of(SM_LIFE_UNTOLD, rank, random, name) >= sizeof(first.sun_path))
        return false;
    (void)snprintf(first.sun_path, sizeof(first.sun_path), "%s/%s", directory, name);
    file->address = first;
    file->address.sun_path[offset + SM_IPC_PREFIX_BYTES - 1] = SM_LIFE_MARK;
    file->fd = listen_at(&first, sizeof(first));
    if (file->fd < 0)
        return false;
    if (sm_life_unsettle(first.sun_path) && rename(first.sun_path, file->address.sun_path) == 0)
        return true;
    remove_file(first.sun_path);
    close(file->fd);
    return false;
}

/* The group's own socket reports a faulty directory, and all ranks learn of it. */
sm_life_file *sm_life_file_begin(const char *directory, int32_t rank) {
    uint8_t random[RANDOM_BYTES];
    SM_ATTEMPT(making);
    sm_life_file *file = calloc(1, sizeof(*file));
    (void)sm_fork_generation();
    if (file == NULL || sm_random(random, sizeof(random)) != SYMMEM_OK) {
        free(file);
        return NULL;
    }
    sm_life_lock_all();
    const bool is_made = make_file(file, directory, rank, random);
    if (is_made) {
        file->next = files;
        files = file;
    }
    sm_life_unlock_all();
    if (is_made)
        return file;
    free(file);
    return NULL;
}

const char *sm_life_file_path(const sm_life_file *file) {
    return file->address.sun_path;
}

void sm_life_file_settle(sm_life_file *file) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    sm_life_lock_all();
    if (file->fd >= 0) /* else the parent's */
        (void)mark_times(file->address.sun_path, times);
    sm_life_unlock_all();
}

/* Removes the name first: a name whose socket is closed would mean that the process has ended. */
void sm_life_file_end(sm_life_file *file) {
    if (file == NULL)
        return;
    sm_life_lock_all();
    sm_life_file **place = &files;
    while (*place != NULL && *place != file)
        place = &(*place)->next;
    if (*place != NULL)
        *place = file->next;
    if (file->fd >= 0) {
        remove_file(file->address.sun_path);
        close(file->fd);
    }
    sm_life_unlock_all();
    free(file);
}

/* Serving is not urgent, and a waiting call makes many attempts. */
static bool is_time_to_serve(void) {
    static uint64_t next_ns; /* with the lock */
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    const uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (now_ns < next_ns)
        return false;
    next_ns = now_ns + SERVING_NS;
    return true;
}

static void drain(int fd) {
    for (int entry; (entry = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
        close(entry);
}

void sm_life_serve(void) {
    sm_life_lock_all();
    const bool serves = is_time_to_serve();
    if (serves && own_fd >= 0)
        drain(own_fd);
    for (const sm_life_file *file = files; serves && file != NULL; file = file->next)
        drain(file->fd);
    sm_life_unlock_all();
}

#define OVERFLOW_UID 65534u

/* --- asking --------------------------------------------------------------------------------- */

/* Checks that a connected socket belongs to this user or root, because any user can take a free
 * name. */
static sm_life_state take_answer(int fd, bool wants_process, sm_life_answer *answer) {
    struct ucred owner;
    socklen_t bytes = sizeof(owner);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &bytes) != 0)
        return SM_LIFE_UNKNOWN;
    if (owner.uid == OVERFLOW_UID) /* a user that this namespace does not know */
        return SM_LIFE_UNKNOWN;
    if (owner.uid != geteuid() && owner.uid != 0)
        return SM_LIFE_FOREIGN;
    answer->pid = owner.pid > 0 ? owner.pid : 0;
    if (!wants_process)
        return SM_LIFE_LIVES;
    int pidfd = -1;
    bytes = sizeof(pidfd);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) == 0) /* close-on-exec always */
        answer->pidfd = pidfd;
    else
        answer->cannot_hold = errno == ENOPROTOOPT;
    answer->lacks_descriptor = pidfd < 0 && (errno == EMFILE || errno == ENFILE);
    return SM_LIFE_LIVES;
}

static sm_life_state ask_at(const struct sockaddr_un *address, socklen_t bytes, bool wants_process,
                            sm_life_answer *answer) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    answer->lacks_descriptor = answer->lacks_descriptor || fd < 0;
    if (fd < 0)
        return SM_LIFE_UNKNOWN;
    sm_life_state state = SM_LIFE_UNKNOWN;
    if (connect(fd, (const struct sockaddr *)address, bytes) == 0)
        state = take_answer(fd, wants_process, answer);
    else if (errno == EAGAIN)
        state = SM_LIFE_LIVES; /* its queue is full of other processes' looks */
    else if (errno == ECONNREFUSED)
        state = SM_LIFE_REFUSED;
    close(fd);
    return state;
}

/* Finds the pidfd by number on kernels that report only that, if the process has a number here. The
 * number is that process's if the socket still answers once the descriptor holds the number. */
static void hold_by_number(const struct sockaddr_un *address, socklen_t bytes,
                           sm_life_answer *answer) {
    if (!answer->cannot_hold || answer->pid == 0)
        return;
    sm_life_answer again = {.pidfd = -1};
    int pidfd = (int)syscall(SYS_pidfd_open, answer->pid, 0);
    if (pidfd < 0)
        return;
    if (ask_at(address, bytes, false, &again) == SM_LIFE_LIVES && again.pid == answer->pid)
        answer->pidfd = pidfd;
    else
        close(pidfd);
}

static sm_life_state ask(const struct sockaddr_un *address, socklen_t bytes, bool wants_process,
                         sm_life_answer *answer) {
    sm_life_state state = ask_at(address, bytes, wants_process, answer);
    if (state == SM_LIFE_LIVES)
        hold_by_number(address, bytes, answer);
    return state;
}

void sm_life_ask(const sm_identity *identity, bool wants_process, sm_life_answer *answer) {
    struct sockaddr_un address;
    *answer = (sm_life_answer){.pidfd = -1, .by_file = SM_LIFE_UNKNOWN};
    socklen_t bytes = abstract_address(identity->life, &address);
    answer->by_name = ask(&address, bytes, wants_process, answer);
    memset(&address, 0, sizeof(address));
    address.sun_family = AF_UNIX;
    sm_copy_text(address.sun_path, sizeof(address.sun_path), identity->life_file);
    const char *name = strrchr(address.sun_path, '/');
    if (answer->by_name == SM_LIFE_LIVES || name == NULL || strncmp(name, "/symmem-", 8) != 0)
        return; /* only a socket of symmem is to be tried */
    answer->by_file = ask(&address, sizeof(address), wants_process, answer);
}
