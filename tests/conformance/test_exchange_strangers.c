/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of strangers at the sockets over which descriptors travel. */
#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "case_help.h"
#include "sync_help.h"

#define MAX_RANKS 4
#define MAX_SOCKETS 16
#define LONGEST 256u /* of junk; more than any message of the library */

/* Those of a directory. */
static int find_sockets(const char *directory, struct sockaddr_un *found) {
    DIR *open_directory = opendir(directory);
    struct dirent *entry;
    int count = 0;
    while (open_directory != NULL && count < MAX_SOCKETS &&
           (entry = readdir(open_directory)) != NULL) {
        struct sockaddr_un *address = &found[count];
        memset(address, 0, sizeof(*address));
        address->sun_family = AF_UNIX;
        int length = snprintf(address->sun_path, sizeof(address->sun_path), "%.60s/%.45s",
                              directory, entry->d_name);
        count += entry->d_name[0] != '.' && length < (int)sizeof(address->sun_path) &&
                 takes_messages(address);
    }
    if (open_directory != NULL)
        closedir(open_directory);
    return count;
}

/* `bytes` bytes of `byte` with a descriptor. False if the socket's queue is full. */
static bool send_junk(const struct sockaddr_un *to, size_t bytes, int byte, int fd) {
    uint8_t body[LONGEST + 4];
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } ancillary;
    memset(body, byte, sizeof(body));
    memset(&ancillary, 0, sizeof(ancillary));
    ancillary.header.cmsg_level = SOL_SOCKET;
    ancillary.header.cmsg_type = SCM_RIGHTS;
    ancillary.header.cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(&ancillary.header), &fd, sizeof(fd));
    struct iovec part = {.iov_base = body, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = ancillary.space,
                             .msg_controllen = sizeof(ancillary.space)};
    int from = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (from < 0)
        return false;
    const bool sent = connect(from, (const struct sockaddr *)to, sizeof(*to)) == 0 &&
                      sendmsg(from, &message, MSG_NOSIGNAL) == (ssize_t)bytes;
    close(from);
    return sent;
}

struct passing {
    symmem_context *context;
    symmem_group *group;
    char directory[64];
    int own; /* what this rank passes */
};

static void passing_begin(struct tk *t, struct passing *passing) {
    symmem_context_options options = tk_options(t);
    tk_short_path(t, "junk", -1, passing->directory);
    if (t->rank == 0)
        TK_CHECK(t, mkdir(passing->directory, 0700) == 0);
    tk_out_of_band_barrier(t);
    options.socket_dir = passing->directory;
    options.backend = NULL;
    passing->own = open("/dev/null", O_RDWR | O_CLOEXEC);
    TK_REQUIRE(t, passing->own >= 0);
    TK_REQUIRE_OK(t, symmem_init(&options, &passing->context));
    TK_REQUIRE_OK(t,
                  symmem_group_create(passing->context, "passing", NULL, 0, NULL, &passing->group));
}

static void passing_end(struct tk *t, struct passing *passing) {
    TK_OK(t, symmem_finalize(passing->context));
    symmem_context_free(passing->context);
    close(passing->own);
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_EQ_INT(t, 0, rmdir(passing->directory));
}

static void pass(struct tk *t, struct passing *passing) {
    struct stat own, got;
    int fds[MAX_RANKS];
    TK_REQUIRE_OK(t, symmem_group_all_gather_fds(passing->group, passing->own, fds, LONG_MS));
    TK_REQUIRE(t, fstat(passing->own, &own) == 0);
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        TK_CHECK_MSG(t, fstat(fds[rank], &got) == 0 && got.st_rdev == own.st_rdev,
                     "rank %d's descriptor is another's", (int)rank);
        close(fds[rank]);
    }
}

/* Junk of each length, of zeroes and ones, to each rank's socket, a few before each gathering. */
TK_TEST(exchange_fds, strangers_are_ignored, "SM-EXCHANGE-13", .ranks = {2, MAX_RANKS},
        .flags = TK_PROCESS_ONLY | TK_NO_BACKEND) {
    struct passing passing = {0};
    struct sockaddr_un sockets[MAX_SOCKETS];
    int pipe_fds[2], sent = 0;
    TK_REQUIRE(t, t->world_size <= MAX_RANKS);
    TK_REQUIRE(t, pipe2(pipe_fds, O_CLOEXEC) == 0);
    passing_begin(t, &passing);
    pass(t, &passing); /* the sockets are there */
    int before = resources_descriptors();
    int count = find_sockets(passing.directory, sockets);
    TK_CHECK_MSG(t, count == t->world_size, "%d sockets", count);
    for (size_t bytes = 1; bytes <= LONGEST && !tk_failed(t); bytes += 7) {
        tk_out_of_band_barrier(t);
        if (t->rank == (int32_t)bytes / 4 % t->world_size)
            for (int i = 0; i < count; i++)
                for (size_t more = 0; more < 4; more++)
                    sent +=
                        send_junk(&sockets[i], bytes + more, more % 2 == 0 ? 0 : 0xFF, pipe_fds[0]);
        tk_out_of_band_barrier(t);
        pass(t, &passing);
    }
    TK_CHECK(t, sent > 0);
    tk_out_of_band_barrier(t);
    TK_EQ_INT(t, before, resources_descriptors());
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    passing_end(t, &passing);
}
