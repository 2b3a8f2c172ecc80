/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors go to the sockets of peers only, whatever has taken the name of one. */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "case_help.h"

#define LIMIT_MS 10000u
#define STRANGER 54321 /* a user */

/* The one socket in the directory that takes messages. */
static void name_of_socket(struct tk *t, const char *directory, char *path, size_t capacity) {
    DIR *listing = opendir(directory);
    TK_REQUIRE(t, listing != NULL);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int length = snprintf(address.sun_path, sizeof address.sun_path, "%.60s/%.45s", directory,
                              entry->d_name);
        if (entry->d_name[0] != '.' && length < (int)sizeof address.sun_path &&
            takes_messages(&address))
            snprintf(path, capacity, "%s", address.sun_path);
    }
    closedir(listing);
}

static symmem_status pass_one(struct tk *t, symmem_group *group, const char *directory,
                              uint32_t limit_ms) {
    int fds[4];
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    symmem_status status = symmem_group_all_gather_fds(group, fd, fds, limit_ms);
    close(fd);
    for (int r = 0; status == SYMMEM_OK && r < t->world_size; r++)
        close(fds[r]);
    return status;
}

/* As another user: the kernel says of a socket that it is of who made it listen. */
static bool listen_as_stranger(int fd) {
    const pid_t child = fork();
    int result = -1;
    if (child == 0)
        _exit(setgroups(0, NULL) != 0 || setuid(STRANGER) != 0 || listen(fd, 8) != 0);
    return child > 0 && waitpid(child, &result, 0) == child && result == 0;
}

static int bind_stranger(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t bytes = strlen(path);
    if (bytes >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path, bytes);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
                    !listen_as_stranger(fd))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Whether anything was sent there. */
static bool was_sent_to(int stranger) {
    bool sent = false;
    for (int fd; (fd = accept4(stranger, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;
         close(fd)) {
        char byte;
        sent |= recv(fd, &byte, 1, 0) > 0;
    }
    return sent;
}

/* Rank 0's socket file is exchanged for a plain file, and for root also for another user's
 * socket, though the file is the rank's user's: nobody sends there. */
static void with_another(struct tk *t, bool is_socket) {
    char directory[64], path[512] = "", away[600];
    int other = -1;
    tk_short_path(t, "own", t->rank, directory);
    TK_REQUIRE(t, mkdir(directory, 0700) == 0);
    symmem_context_options options = tk_options(t);
    options.socket_dir = directory;
    tk_reinit(t, &options);
    symmem_group *group = NULL;
    TK_REQUIRE_OK(
        t, symmem_group_create(t->context, is_socket ? "socket" : "file", NULL, 0, NULL, &group));
    TK_OK(t, pass_one(t, group, directory, LIMIT_MS));
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        name_of_socket(t, directory, path, sizeof path);
        snprintf(away, sizeof away, "%s-away", path);
        TK_REQUIRE(t, rename(path, away) == 0);
        other = is_socket ? bind_stranger(path) : open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        TK_REQUIRE(t, other >= 0);
    }
    tk_out_of_band_barrier(t);
    symmem_status status = pass_one(t, group, directory, tk_limit_ms(t, t->rank == 0 ? 300 : 600));
    if (t->rank != 0 && TK_STATUS(t, SYMMEM_PERMISSION, status))
        TK_CHECK(t, strstr(last_record().message, "not the peer's socket") != NULL);
    TK_CHECK(t, status != SYMMEM_OK);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_group_destroy(group));
    tk_end_context(t);
    if (other >= 0) {
        TK_CHECK(t, !is_socket || !was_sent_to(other));
        close(other);
        (void)unlink(path); /* the library may have, as it takes them for its own */
        (void)unlink(away);
    }
    TK_CHECK_MSG(t, rmdir(directory) == 0, "%s is not empty", directory);
}

static bool can_be_a_stranger(void) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const struct sockaddr_un any = {.sun_family = AF_UNIX}; /* the kernel makes a name */
    const bool can = fd >= 0 &&
                     bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) == 0 &&
                     listen_as_stranger(fd);
    if (fd >= 0)
        close(fd);
    return can;
}

TK_TEST(exchange_place, nothing_in_a_sockets_place, "SM-EXCHANGE-14,SM-EXCHANGE-29",
        .ranks = {2, 4}, .timeout_s = 60) {
    with_another(t, false);
    if (can_be_a_stranger())
        with_another(t, true);
}
