/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmix_server RANKS FOLDER: a PMIx server for ranks of this host that run already. It prints the
 * environment that rank 0 is to have, a line each and an empty one behind them; other ranks differ
 * in PMIX_RANK. At its end it removes FOLDER and the job's folder in /dev/shm, where Open MPI has
 * its files. SYMMEM_PMIX_SOCKET is for a rank that is up, see give_connections. It ends when
 * its standard input does; after a byte there when the ranks that came have left, or 2 s later.
 */
#include <ftw.h>
#include <pmix_server.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MOST_RANKS 1024
#define OF_A_RANK 6
#define OF_THE_JOB 8
#define LEAVE_MS 2000
#define MOST_FILES 4096
#define MOST_CONNECTIONS 250 /* of one message */

/* Engines name what they share by this: no other job of the host has it. */
static pmix_nspace_t job;
static atomic_int came, left, answered;

/* --- what the library asks of its host ---------------------------------------------------------
 */

static pmix_status_t connected(const pmix_proc_t *rank, void *object, pmix_op_cbfunc_t done_fn,
                               void *arg) {
    (void)rank, (void)object, (void)done_fn, (void)arg;
    came++;
    return PMIX_OPERATION_SUCCEEDED;
}

/* Of a rank whose connection is lost, too. */
static pmix_status_t finalized(const pmix_proc_t *rank, void *object, pmix_op_cbfunc_t done_fn,
                               void *arg) {
    (void)rank, (void)object, (void)done_fn, (void)arg;
    left++;
    return PMIX_OPERATION_SUCCEEDED;
}

/* All ranks are here, so what they say is all there is. */
static pmix_status_t fence(const pmix_proc_t *ranks, size_t rank_count, const pmix_info_t *info,
                           size_t info_count, char *data, size_t bytes, pmix_modex_cbfunc_t done_fn,
                           void *arg) {
    (void)ranks, (void)rank_count, (void)info, (void)info_count;
    done_fn(PMIX_SUCCESS, data, bytes, arg, NULL, NULL);
    return PMIX_SUCCESS;
}

static pmix_server_module_t module = {
    .client_connected = connected, .client_finalized = finalized, .fence_nb = fence};

/* --- the job -----------------------------------------------------------------------------------
 */

static void answer(pmix_status_t status, void *failed_v) {
    *(atomic_bool *)failed_v = status != PMIX_SUCCESS;
    answered++;
}

static void pause_ms(long ms) {
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Waits for answer() unless the call has been enough. */
static bool finish(pmix_status_t status, int before, const atomic_bool *failed) {
    if (status == PMIX_OPERATION_SUCCEEDED)
        return true;
    while (status == PMIX_SUCCESS && atomic_load(&answered) == before)
        pause_ms(1);
    return status == PMIX_SUCCESS && !atomic_load(failed);
}

static void describe_rank(pmix_info_t *info, uint32_t number, const char *node) {
    pmix_rank_t rank = number;
    uint16_t local = (uint16_t)number;
    uint32_t zero = 0;
    pmix_data_array_t *all;
    PMIX_DATA_ARRAY_CREATE(all, OF_A_RANK, PMIX_INFO);
    pmix_info_t *of = all->array;
    PMIX_INFO_LOAD(&of[0], PMIX_RANK, &rank, PMIX_PROC_RANK);
    PMIX_INFO_LOAD(&of[1], PMIX_LOCAL_RANK, &local, PMIX_UINT16);
    PMIX_INFO_LOAD(&of[2], PMIX_NODE_RANK, &local, PMIX_UINT16);
    PMIX_INFO_LOAD(&of[3], PMIX_APPNUM, &zero, PMIX_UINT32);
    PMIX_INFO_LOAD(&of[4], PMIX_NODEID, &zero, PMIX_UINT32);
    PMIX_INFO_LOAD(&of[5], PMIX_HOSTNAME, node, PMIX_STRING);
    PMIX_LOAD_KEY(info->key, PMIX_PROC_DATA);
    info->value.type = PMIX_DATA_ARRAY;
    info->value.data.darray = all;
}

static pmix_info_t *describe_job(uint32_t ranks) {
    static char node[256], list[MOST_RANKS * 5];
    char *nodes = NULL, *places = NULL;
    pmix_info_t *info;
    gethostname(node, sizeof node - 1);
    for (uint32_t r = 0, at = 0; r < ranks; r++)
        at += (uint32_t)snprintf(list + at, sizeof list - at, r == 0 ? "%u" : ",%u", r);
    if (PMIx_generate_regex(node, &nodes) != PMIX_SUCCESS ||
        PMIx_generate_ppn(list, &places) != PMIX_SUCCESS)
        return NULL;
    PMIX_INFO_CREATE(info, OF_THE_JOB + ranks);
    PMIX_INFO_LOAD(&info[0], PMIX_UNIV_SIZE, &ranks, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[1], PMIX_JOB_SIZE, &ranks, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[2], PMIX_LOCAL_SIZE, &ranks, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[3], PMIX_MAX_PROCS, &ranks, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[4], PMIX_LOCAL_PEERS, list, PMIX_STRING);
    PMIX_INFO_LOAD(&info[5], PMIX_NODE_MAP, nodes, PMIX_STRING);
    PMIX_INFO_LOAD(&info[6], PMIX_PROC_MAP, places, PMIX_STRING);
    PMIX_INFO_LOAD(&info[7], PMIX_JOBID, job, PMIX_STRING);
    for (uint32_t r = 0; r < ranks; r++)
        describe_rank(&info[OF_THE_JOB + r], r, node);
    return info;
}

static bool add_job(uint32_t ranks) {
    atomic_bool failed = false;
    int before = answered;
    pmix_info_t *info = describe_job(ranks);
    if (info == NULL || !finish(PMIx_server_register_nspace(job, (int)ranks, info,
                                                            OF_THE_JOB + ranks, answer, &failed),
                                before, &failed))
        return false;
    for (uint32_t r = 0; r < ranks; r++) {
        pmix_proc_t rank;
        PMIX_LOAD_PROCID(&rank, job, r);
        before = answered;
        if (!finish(PMIx_server_register_client(&rank, geteuid(), getegid(), NULL, answer, &failed),
                    before, &failed))
            return false;
    }
    return true;
}

static bool print_environment(void) {
    pmix_proc_t rank;
    char **all = NULL;
    PMIX_LOAD_PROCID(&rank, job, 0);
    if (PMIx_server_setup_fork(&rank, &all) != PMIX_SUCCESS)
        return false;
    for (char **one = all; one != NULL && *one != NULL; one++)
        puts(*one);
    return puts("") >= 0 && fflush(stdout) == 0;
}

/* --- the end ------------------------------------------------------------------------------------
 */

/* This side of the ranks' connections. */
static int find_connections(int *found) {
    struct sockaddr_storage peer;
    int count = 0;
    for (int fd = STDERR_FILENO + 1; fd < MOST_FILES && count < MOST_CONNECTIONS; fd++) {
        socklen_t bytes = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 &&
            (peer.ss_family == AF_INET || peer.ss_family == AF_INET6))
            found[count++] = fd;
    }
    return count;
}

/* A rank whose connection ends is ended by its engine. So ranks that are up hold this side, too,
 * and go on without a server. */
static void give_connections(int listener) {
    int found[MOST_CONNECTIONS];
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof found)];
    } control = {.head = {0}};
    const int count = find_connections(found), fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct ucred who;
    socklen_t bytes = sizeof who;
    char byte = 0;
    struct iovec text = {&byte, 1};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
    if (fd >= 0 && count > 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
        who.uid == geteuid()) {
        const size_t length = sizeof(int) * (size_t)count;
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(length);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(length);
        memcpy(CMSG_DATA(&control.head), found, length);
        (void)sendmsg(fd, &message, MSG_NOSIGNAL);
    }
    if (fd >= 0)
        close(fd);
}

/* Until the end of standard input. True: it came with a byte, for the ranks leave by themselves. */
static bool serve(int listener) {
    struct pollfd both[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = listener, .events = POLLIN}};
    char byte;
    for (;;) {
        if (poll(both, 2, -1) < 0)
            continue;
        if (both[0].revents != 0)
            return read(STDIN_FILENO, &byte, 1) == 1;
        if (both[1].revents != 0)
            give_connections(listener);
    }
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)kind, (void)place;
    (void)remove(path);
    return 0;
}

/* For Open MPI's files and shared memory, which a rank that is killed leaves behind. */
static char memory[sizeof job + sizeof "/dev/shm/"];

static void place_files(const char *folder) {
    printf("OMPI_MCA_orte_tmpdir_base=%s\n", folder);
    snprintf(memory, sizeof memory, "/dev/shm/%s", job);
    if (mkdir(memory, 0700) == 0)
        printf("OMPI_MCA_btl_vader_backing_directory=%s\n", memory);
    else
        memory[0] = '\0';
}

static void remove_folder(const char *path) {
    if (path[0] != '\0')
        (void)nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void await_ranks(void) {
    for (int waited = 0; atomic_load(&left) < atomic_load(&came) && waited < LEAVE_MS; waited++)
        pause_ms(1);
}

static int open_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *name = address.sun_path + 1; /* abstract */
    const int length = snprintf(name, sizeof address.sun_path - 1, "%s", job);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const size_t bytes = offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, (socklen_t)bytes) != 0 ||
        listen(fd, MOST_RANKS) != 0)
        return -1;
    printf("SYMMEM_PMIX_SOCKET=%s\n", name);
    return fd;
}

int main(int argc, char **argv) {
    static const int not_its_end[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP};
    pmix_info_t folder;
    uint64_t number;
    const int ranks = argc == 3 ? atoi(argv[1]) : 0;
    if (ranks < 1 || ranks > MOST_RANKS) {
        fprintf(stderr, "usage: pmix_server RANKS FOLDER\n");
        return 2;
    }
    /* What ends rank 0 ends the standard input, and then this program cleans up. */
    for (size_t i = 0; i < sizeof not_its_end / sizeof not_its_end[0]; i++)
        signal(not_its_end[i], SIG_IGN);
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return 1;
    snprintf(job, sizeof job, "symmem-pmix-%016llx", (unsigned long long)number);
    PMIX_INFO_LOAD(&folder, PMIX_SERVER_TMPDIR, argv[2], PMIX_STRING);
    if (PMIx_server_init(&module, &folder, 1) != PMIX_SUCCESS)
        return 1;
    const int listener = open_socket();
    place_files(argv[2]);
    if (listener < 0 || !add_job((uint32_t)ranks) || !print_environment()) {
        remove_folder(memory);
        return 1;
    }
    if (serve(listener))
        await_ranks();
    /* Without PMIx_server_finalize, which shuts connections down that ranks hold. */
    remove_folder(argv[2]);
    remove_folder(memory);
    _exit(0);
}
