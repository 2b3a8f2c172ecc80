/* SPDX-License-Identifier: BSD-3-Clause */
#include "pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective.h"
#include "wait.h"

#define PROGRAM "symmem-pmix-server"
#define TEXT_BYTES 6144 /* of the environment */
#define MOST 32         /* variables */
#define START_MS 10000
#define END_MS 4000 /* the program gives the ranks 2 s */
#define NS_PER_MS UINT64_C(1000000)

extern char **environ;

/* Rank 0's. */
static struct {
    pid_t process, owner; /* 0: none */
    int input;            /* whose end ends it */
    char folder[256];
} server;

/* --- the program -------------------------------------------------------------------------------
 */

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)kind, (void)place;
    return remove(path), 0;
}

static void remove_folder(void) {
    (void)nftw(server.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* What the process has is its parent's, not a child's. */
void symmem_kit_pmix_end(bool in_order) {
    const uint64_t end_ns = symmem_kit_now_ns() + END_MS * NS_PER_MS;
    if (server.process < 2 || server.owner != getpid())
        return;
    if (in_order)
        (void)!write(server.input, "", 1);
    close(server.input);
    while (waitpid(server.process, NULL, WNOHANG) == 0) {
        if (symmem_kit_now_ns() >= end_ns)
            kill(server.process, SIGKILL);
        usleep(1000);
    }
    server.process = 0;
    remove_folder();
}

static void end_at_exit(void) {
    symmem_kit_pmix_end(false);
}

/* False: the plug-in has none, or too long a name. */
static bool find_program(const void *in_plugin, char *path, size_t capacity) {
    Dl_info plugin;
    if (dladdr(in_plugin, &plugin) == 0)
        return false;
    const char *slash = strrchr(plugin.dli_fname, '/');
    const int folder = slash == NULL ? 0 : (int)(slash - plugin.dli_fname) + 1;
    const int length = snprintf(path, capacity, "%.*s" PROGRAM, folder, plugin.dli_fname);
    return length > 0 && (size_t)length < capacity && access(path, X_OK) == 0;
}

/* With the signals that a program begins with. 0 or an errno. */
static int spawn(const char *path, char *const *arguments, int input, int output) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const int error = posix_spawn(&server.process, path, &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

/* Until the empty line. 0 or an errno. */
static int read_text(int fd, char *text, size_t capacity) {
    const uint64_t end_ns = symmem_kit_now_ns() + START_MS * NS_PER_MS;
    struct pollfd output = {.fd = fd, .events = POLLIN};
    for (size_t held = 0; symmem_kit_now_ns() < end_ns;) {
        if (poll(&output, 1, 100) <= 0)
            continue;
        const ssize_t got = read(fd, text + held, capacity - 1 - held);
        if (got <= 0)
            return EPROTO;
        held += (size_t)got;
        text[held] = '\0';
        if (strstr(text, "\n\n") != NULL)
            return 0;
    }
    return ETIMEDOUT;
}

static int begin(const char *path, int32_t ranks, char *text, size_t capacity) {
    char count[16];
    int in[2], out[2];
    const char *folder = getenv("TMPDIR");
    snprintf(server.folder, sizeof server.folder, "%s/symmem-pmix-XXXXXX",
             folder != NULL && *folder != '\0' ? folder : "/tmp");
    if (mkdtemp(server.folder) == NULL || pipe2(in, O_CLOEXEC) != 0)
        return errno;
    if (pipe2(out, O_CLOEXEC) != 0)
        return close(in[0]), close(in[1]), errno;
    snprintf(count, sizeof count, "%d", (int)ranks);
    char *const arguments[] = {(char *)path, count, server.folder, NULL};
    int error = spawn(path, arguments, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    server.input = in[1];
    server.owner = getpid();
    if (error != 0) {
        server.process = 0;
        close(in[1]);
        remove_folder();
    } else {
        error = read_text(out[0], text, capacity);
    }
    close(out[0]);
    if (error != 0)
        symmem_kit_pmix_end(false);
    else
        atexit(end_at_exit); /* also where the engine's own end does not come to it */
    return error;
}

/* --- ranks -------------------------------------------------------------------------------------
 */

static char *names[MOST];
static int name_count;

static void set(const char *name, const char *value) {
    if (name_count == MOST || getenv(name) != NULL)
        return;
    names[name_count] = strdup(name);
    if (names[name_count] != NULL && setenv(name, value, 1) == 0)
        name_count++;
}

/* Of each rank; rank 0's environment counts. */
typedef struct offer {
    int64_t has_manager;
    char text[TEXT_BYTES];
} offer;

static void take(char *text, int32_t rank) {
    char number[16], *rest = NULL;
    snprintf(number, sizeof number, "%d", (int)rank);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, '=');
        if (value == NULL)
            continue;
        *value++ = '\0';
        set(line, strcmp(line, "PMIX_RANK") == 0 ? number : value);
    }
    /* Open MPI 4 does not look for PMIx unless a launcher that it knows has been at work. With this
     * one's mark it does, and asks nothing of that launcher. */
    set("FLUX_JOB_ID", "1");
    set("OMPI_MCA_pmix", "ext3x");
}

/* The descriptors stay for as long as the process. */
static void hold_connections(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval limit = {.tv_sec = 2};
    char byte, control[1024];
    struct iovec text = {&byte, 1};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    const size_t length = strlen(name);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || length + 1 > sizeof address.sun_path)
        return;
    memcpy(address.sun_path + 1, name, length);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (void *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0)
        (void)recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    close(fd);
}

void symmem_kit_pmix_started(bool is_up) {
    const char *name = getenv("SYMMEM_PMIX_SOCKET");
    if (is_up && name != NULL)
        hold_connections(name);
    while (name_count > 0) {
        unsetenv(names[--name_count]);
        free(names[name_count]);
    }
}

static bool has_manager(void) {
    return getenv("PMIX_RANK") != NULL || getenv("PMIX_NAMESPACE") != NULL ||
           getenv("OMPI_COMM_WORLD_RANK") != NULL;
}

symmem_status symmem_kit_pmix_open(const symmem_host *host, const symmem_exchange *exchange,
                                   int32_t rank, int32_t ranks, const void *in_plugin) {
    char path[4096];
    symmem_kit_pmix_started(false); /* of a try that did not come to the engine's start */
    symmem_kit_pmix_end(false);
    offer own = {.has_manager = has_manager()}, *all = NULL;
    void *all_v = NULL;
    int error = 0;
    if (rank == 0 && own.has_manager == 0 && find_program(in_plugin, path, sizeof path))
        error = begin(path, ranks, own.text, sizeof own.text);
    symmem_status status = SYMMEM_OK;
    if (error != 0)
        status = host->fail(host, SYMMEM_SYSTEM, error, "join", "a process manager: %s",
                            strerror(error));
    status = exchange->agree(exchange, status, "pmix.serve");
    if (status == SYMMEM_OK)
        status = symmem_kit_gather(host, exchange, &own, sizeof own, "pmix.environment", &all_v);
    all = all_v;
    bool serves = status == SYMMEM_OK && all[0].text[0] != '\0';
    for (int32_t r = 0; serves && r < ranks; r++)
        serves = all[r].has_manager == 0;
    if (serves)
        take(all[0].text, rank);
    else
        symmem_kit_pmix_end(false);
    free(all_v);
    return status;
}
