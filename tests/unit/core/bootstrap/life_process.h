/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that is seen by its socket, and what the kernel says of it. */
#ifndef SYMMEM_LIFE_PROCESS_H
#define SYMMEM_LIFE_PROCESS_H

#include "bootstrap/bootstrap.h"
#include "unit_main.h"

#include <sys/socket.h>
#include <sys/syscall.h>

enum { MANY = 300, LOOKS_MS = 450, SOON_MS = 1000 };

/* --- what the kernel says ----------------------------------------------------------------------
 */

static bool has_no_peer_pidfd, sees_no_number, says_another_user;
static int moves_on;         /* the number that the second answer in a row is off by */
static bool changes_hands;   /* the second answer in a row is another user's */
static bool is_second;       /* the next answer; kernel() begins a new row */
static int peer_pidfd_error; /* of the next call for one; 0: none */

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes) {
    if (level == SOL_SOCKET && name == 77 && has_no_peer_pidfd) {
        errno = ENOPROTOOPT;
        return -1;
    }
    if (level == SOL_SOCKET && name == 77 && peer_pidfd_error != 0) {
        errno = peer_pidfd_error;
        peer_pidfd_error = 0;
        return -1;
    }
    int result = __real_getsockopt(fd, level, name, value, bytes);
    if (result == 0 && level == SOL_SOCKET && name == SO_PEERCRED) {
        struct ucred *owner = value;
        owner->pid = sees_no_number ? 0 : owner->pid;
        owner->pid += is_second ? moves_on : 0;
        if (says_another_user || (is_second && changes_hands))
            owner->uid = geteuid() + 1;
        is_second = !is_second;
    }
    return result;
}

/* What a look at the process finds, if `is_asked`; and the errors of calls, 0: as it is. */
static struct looks {
    bool is_asked, cannot_read, is_later, is_exiting;
    char state;
    long threads;
    int kill_error, open_error;
    int release_error; /* -1: none */
} looks;
static uint64_t ahead_ms;
static struct timespec stopped_at; /* zero: the clock goes on by itself, too */

static bool cannot_listen;

int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog) {
    errno = EADDRINUSE;
    return cannot_listen ? -1 : __real_listen(fd, backlog);
}

int __real_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number) {
    errno = number == 0 ? looks.kill_error : 0;
    return errno != 0 ? -1 : __real_kill(pid, number);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
    const int error = number == SYS_pidfd_open ? looks.open_error
                      : number == 448          ? looks.release_error
                                               : 0;
    if (error < 0)
        return 0;
    errno = error;
    return error != 0 ? -1 : __real_syscall(number, a, b, c, d, e, f);
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    int result = 0;
    if (clock == CLOCK_MONOTONIC && stopped_at.tv_sec != 0)
        *now = stopped_at;
    else
        result = __real_clock_gettime(clock, now);
    now->tv_sec += (time_t)(ahead_ms / 1000);
    now->tv_nsec += (long)(ahead_ms % 1000) * 1000000;
    now->tv_sec += now->tv_nsec / 1000000000;
    now->tv_nsec %= 1000000000;
    return result;
}

bool __real_sm_process_read(int32_t pid, sm_process *process_p);
bool __wrap_sm_process_read(int32_t pid, sm_process *process_p);
bool __wrap_sm_process_read(int32_t pid, sm_process *process_p) {
    bool reads = __real_sm_process_read(pid, process_p);
    if (!looks.is_asked || pid == 0)
        return reads;
    process_p->start_time += looks.is_later ? 1 : 0;
    process_p->state = looks.state != 0 ? looks.state : process_p->state;
    process_p->thread_count = looks.threads;
    process_p->is_exiting = looks.is_exiting;
    return reads && !looks.cannot_read;
}

static inline void kernel(bool no_peer_pidfd, bool no_number) {
    has_no_peer_pidfd = no_peer_pidfd;
    sees_no_number = no_number;
    says_another_user = false;
    is_second = false;
}

/* --- a process ---------------------------------------------------------------------------------
 */

/* What it does when told to. */
typedef struct process {
    pid_t pid;
    int to; /* a byte: the next thing to do */
    sm_identity identity;
} process;

enum { AND_SLEEP = 's', AND_EXEC = 'e', AND_FORK = 'f', AND_END_LIFE = 'u' };

static inline void be_process(int from, int to, const char *in) {
    sm_identity identity;
    sm_life_file *file = NULL;
    char what = AND_SLEEP;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || sm_identity_self(&identity) != SYMMEM_OK ||
        sm_identity_listen(&identity, in, 1, &file) != SYMMEM_OK)
        _exit(1);
    if (file != NULL)
        sm_life_file_settle(file);
    if (write(to, &identity, sizeof(identity)) != sizeof(identity))
        _exit(1);
    while (read(from, &what, 1) == 1) {
        if (what == AND_EXEC)
            execlp("sleep", "sleep", "60", (char *)NULL);
        if (what == AND_END_LIFE)
            sm_identity_unlisten(&identity, file);
        if (what == AND_FORK && fork() == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
            (void)signal(SIGTERM, SIG_IGN);
            (void)write(to, "f", 1);
            sleep(3);
            _exit(0);
        }
        if (what != AND_FORK && write(to, &what, 1) != 1)
            _exit(1);
    }
    _exit(0);
}

static int answers;

/* Seen from elsewhere: its number is another namespace's. */
static inline process start(const char *in) {
    process made = {.pid = -1};
    int back[2], forth[2];
    CU_ASSERT_FATAL(pipe2(back, O_CLOEXEC) == 0 && pipe2(forth, O_CLOEXEC) == 0);
    made.pid = fork();
    if (made.pid == 0) {
        close(forth[1]);
        be_process(forth[0], back[1], in);
    }
    CU_ASSERT_FATAL(made.pid > 1);
    close(back[1]);
    close(forth[0]);
    CU_ASSERT_FATAL(read(back[0], &made.identity, sizeof(made.identity)) == sizeof(made.identity));
    made.to = forth[1];
    answers = back[0];
    made.identity.pid_namespace++;
    return made;
}

static inline void tell(const process *it, char what) {
    char said = 0;
    CU_ASSERT_EQUAL(write(it->to, &what, 1), 1);
    if (what != AND_EXEC)
        CU_ASSERT_EQUAL(read(answers, &said, 1), 1);
}

static inline void end(const process *it) {
    kill(it->pid, SIGKILL);
    CU_ASSERT_EQUAL(waitpid(it->pid, NULL, 0), it->pid);
    close(it->to);
    close(answers);
}

static inline sm_liveness *watch(const process *it) {
    sm_liveness *liveness = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    sm_liveness_learn(liveness, 1, &it->identity);
    return liveness;
}

static inline bool stays_alive(sm_liveness *liveness) {
    bool alive = true;
    for (int ms = 0; ms < LOOKS_MS && alive; ms += 5) {
        alive = sm_liveness_ask(liveness, 1) == SYMMEM_PEER_ALIVE;
        usleep(5000);
    }
    return alive;
}

static inline bool is_lost_soon(sm_liveness *liveness) {
    AWAIT(SOON_MS, sm_liveness_ask(liveness, 1) == SYMMEM_PEER_GONE);
    return sm_liveness_ask(liveness, 1) == SYMMEM_PEER_GONE;
}

static inline void put_identity(symmem_store *store, const process *it) {
    CU_ASSERT_EQUAL(symmem_store_set(store, "w/id/1", &it->identity, sizeof(it->identity), 1000),
                    SYMMEM_OK);
}

#endif
