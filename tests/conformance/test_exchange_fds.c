/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors between ranks, and where their sockets live. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "sync_help.h"
#include "resources.h"

/* --- files that tell whose they are -----------------------------------------------------------
 * The number of a rank's file is in its first word; the position in the file belongs to the open
 * file description, which a duplicate shares and a file opened anew does not. */

static int open_own_file(struct tk *t, int32_t number) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/file-%d-%d", t->scratch_dir, t->rank, number);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    TK_REQUIRE(t, fd >= 0);
    TK_EQ_INT(t, sizeof(number), write(fd, &number, sizeof(number)));
    TK_EQ_INT(t, 1000 + number, lseek(fd, 1000 + number, SEEK_SET));
    return fd;
}

static void close_checked(struct tk *t, int fd) {
    TK_EQ_INT(t, 0, close(fd));
}

/* One that was received, and is closed. */
static void take_file(struct tk *t, int fd, int32_t number) {
    int32_t found = -1;
    TK_CHECK(t, fd >= 0);
    TK_EQ_INT(t, sizeof(found), pread(fd, &found, sizeof(found), 0));
    TK_EQ_INT(t, number, found);
    TK_EQ_INT(t, 1000 + number, lseek(fd, 0, SEEK_CUR));
    TK_EQ_INT(t, FD_CLOEXEC, fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close_checked(t, fd);
}

static void gather_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                         void *arg) {
    int32_t *number = arg, numbers[SYMMEM_MAX_WORLD_SIZE];
    int fds[SYMMEM_MAX_WORLD_SIZE];
    int32_t without = shape->count > 2 ? 1 : -1; /* this one has nothing to give */
    *number += t->world_size;                    /* another for each rank and shape */
    int own = shape->rank == without ? -1 : open_own_file(t, *number);
    TK_OK(t, symmem_group_all_gather(group, number, sizeof(*number), numbers, LONG_MS));
    TK_REQUIRE_OK(t, symmem_group_all_gather_fds(group, own, fds, LONG_MS));
    for (int32_t i = 0; i < shape->count; i++) {
        if (i == without) {
            TK_EQ_INT(t, -1, fds[i]);
            continue;
        }
        TK_CHECK(t, fds[i] != own);
        take_file(t, fds[i], numbers[i]);
    }
    tk_group_barrier(t, group); /* all have looked */
    if (own >= 0)
        close_checked(t, own);
}

TK_TEST(exchange_fds, gathered, "SM-EXCHANGE-06", .max_ranks = 16) {
    int32_t number = t->rank;
    tk_for_each_group_shape(t, gather_shape, &number);
}

TK_TEST(exchange_fds, broadcast, "SM-EXCHANGE-06", .max_ranks = 4) {
    symmem_group *group = tk_world_group(t);
    for (int32_t root = 0; root < t->world_size; root++) {
        int own = t->rank == root ? open_own_file(t, root) : -1, fd = -2;
        TK_REQUIRE_OK(t, symmem_group_broadcast_fds(group, root, own, &fd, LONG_MS));
        TK_CHECK(t, fd != own);
        take_file(t, fd, root);
        TK_OK(t, symmem_group_broadcast_fds(group, root, -1, &fd, LONG_MS));
        TK_EQ_INT(t, -1, fd);
        if (own >= 0)
            close_checked(t, own);
    }
}

/* Once round the ring, then in the other direction, several on the way at once. */
TK_TEST(exchange_fds, pairwise, "SM-EXCHANGE-06", .ranks = {2, 8}) {
    symmem_group *group = tk_world_group(t);
    int own[2], fd = -2;
    own[0] = open_own_file(t, t->rank);
    own[1] = open_own_file(t, t->rank + 100);
    tk_group_barrier(t, group);
    for (int i = 0; i < 2; i++)
        TK_OK(t, symmem_group_send_fd(group, t->next, own[i], LONG_MS));
    TK_OK(t, symmem_group_send_fd(group, t->next, -1, LONG_MS));
    for (int i = 0; i < 2; i++) {
        TK_REQUIRE_OK(t, symmem_group_recv_fd(group, t->previous, &fd, LONG_MS));
        take_file(t, fd, t->previous + 100 * i);
    }
    TK_OK(t, symmem_group_recv_fd(group, t->previous, &fd, LONG_MS));
    TK_EQ_INT(t, -1, fd);
    TK_OK(t, symmem_group_send_fd(group, t->previous, own[1], LONG_MS));
    TK_REQUIRE_OK(t, symmem_group_recv_fd(group, t->next, &fd, LONG_MS));
    take_file(t, fd, t->next + 100);
    tk_group_barrier(t, group);
    close_checked(t, own[0]);
    close_checked(t, own[1]);
}

/* After a failed call numbers begin anew, and what was not taken before it is not taken later. */
TK_TEST(exchange_fds, pairwise_starts_afresh, "SM-EXCHANGE-06", .ranks = {2, 2}) {
    symmem_group *group = tk_world_group(t);
    int own[3], fd = -2;
    for (int i = 0; i < 3; i++)
        own[i] = open_own_file(t, 10 * i + t->rank);
    tk_group_barrier(t, group);
    for (int i = 0; t->rank == 0 && i < 2; i++)
        TK_OK(t, symmem_group_send_fd(group, 1, own[i], LONG_MS));
    if (t->rank == 1) {
        TK_REQUIRE_OK(t, symmem_group_recv_fd(group, 0, &fd, LONG_MS));
        take_file(t, fd, 0);
        TK_FAILS(t, TIMEOUT, symmem_group_barrier(group, 10));
    }
    tk_out_of_band_barrier(t);
    tk_group_barrier(t, group);
    if (t->rank == 0)
        TK_OK(t, symmem_group_send_fd(group, 1, own[2], LONG_MS));
    if (t->rank == 1 && TK_OK(t, symmem_group_recv_fd(group, 0, &fd, tk_limit_ms(t, 3000)))) {
        take_file(t, fd, 20);
    }
    tk_group_barrier(t, group);
    for (int i = 0; i < 3; i++)
        close_checked(t, own[i]);
}

/* What the third rank sent first is not what the second is asked for. */
TK_TEST(exchange_fds, sources_are_told_apart, "SM-EXCHANGE-06", .ranks = {3, 3}) {
    symmem_group *group = tk_world_group(t);
    int fd = -2;
    int own = open_own_file(t, t->rank);
    tk_group_barrier(t, group);
    if (t->rank == 2)
        TK_OK(t, symmem_group_send_fd(group, 0, own, LONG_MS));
    tk_out_of_band_barrier(t);
    if (t->rank == 1)
        TK_OK(t, symmem_group_send_fd(group, 0, own, LONG_MS));
    for (int32_t source = 1; t->rank == 0 && source <= 2; source++) {
        TK_REQUIRE_OK(t, symmem_group_recv_fd(group, source, &fd, LONG_MS));
        take_file(t, fd, source);
    }
    tk_out_of_band_barrier(t);
    close_checked(t, own);
}

TK_TEST(exchange_fds, pairwise_is_in_range, "SM-EXCHANGE-06,SM-ERROR-04", .ranks = {2, 4}) {
    symmem_group *group = tk_world_group(t);
    int fd = -2;
    TK_REQ(t, "SM-EXCHANGE-06");
    tk_group_barrier(t, group);
    TK_FAILS(t, OUT_OF_RANGE, symmem_group_send_fd(group, -1, -1, LONG_MS));
    TK_FAILS(t, OUT_OF_RANGE, symmem_group_send_fd(group, t->world_size, -1, LONG_MS));
    TK_FAILS(t, OUT_OF_RANGE, symmem_group_recv_fd(group, -1, &fd, LONG_MS));
    TK_FAILS(t, OUT_OF_RANGE, symmem_group_recv_fd(group, t->world_size, &fd, LONG_MS));
    TK_EQ_INT(t, -2, fd);
    TK_FAILS(t, TIMEOUT, symmem_group_recv_fd(group, 0, &fd, 30));
    TK_EQ_INT(t, -2, fd);
    tk_group_barrier(t, group); /* works on */
}

/* No rank takes what is sent: sooner or later there is no room, which must not last for ever. */
TK_TEST(exchange_fds, nobody_receives, "SM-EXCHANGE-04", .ranks = {2, 2}) {
    enum { MORE_THAN_FITS = 3000 };
    symmem_group *group = tk_world_group(t);
    symmem_status status = SYMMEM_OK;
    uint64_t took_ms = 0;
    int own = open_own_file(t, t->rank);
    tk_group_barrier(t, group);
    for (int i = 0; t->rank == 0 && i < MORE_THAN_FITS && status == SYMMEM_OK; i++) {
        uint64_t begin_ms = tk_now_ms();
        status = symmem_group_send_fd(group, 1, own, 100);
        took_ms = tk_now_ms() - begin_ms;
    }
    if (t->rank == 0) {
        symmem_error_record record = last_record();
        TK_FAILS(t, TIMEOUT, status);
        TK_TIMELY(t, took_ms < tk_limit_ms(t, 2000), "it took %u ms", (unsigned)took_ms);
        TK_CHECK(t, symmem_error_is_missing(&record, 1));
    }
    tk_out_of_band_barrier(t);
    close_checked(t, own);
}

TK_TEST(exchange_fds, repeated_passing_keeps_nothing, "SM-EXCHANGE-06,SM-LIFE-01", .max_ranks = 4,
        .flags = TK_PROCESS_ONLY) {
    symmem_group *group = tk_world_group(t);
    int fds[SYMMEM_MAX_WORLD_SIZE], before = 0;
    TK_REQ(t, "SM-EXCHANGE-06");
    int own = open_own_file(t, t->rank);
    for (int round = 0; round < 12; round++) {
        TK_REQUIRE_OK(t, symmem_group_all_gather_fds(group, own, fds, LONG_MS));
        for (int32_t i = 0; i < t->world_size; i++)
            close_checked(t, fds[i]);
        if (round == 1)
            before = resources_descriptors();
    }
    TK_EQ_INT(t, before, resources_descriptors());
    close_checked(t, own);
}

/* A world in `directory` that has passed a descriptor, or the first failure on the way. */
static symmem_status pass_in(struct tk *t, symmem_store *store, const char *directory,
                             symmem_context **context_p) {
    symmem_context_options options = tk_options(t);
    symmem_group *group = NULL;
    int fds[64];
    options.store = store;
    options.socket_dir = directory;
    options.backend = NULL;
    *context_p = NULL;
    symmem_status status = symmem_init(&options, context_p);
    if (status == SYMMEM_OK)
        status = symmem_group_create(*context_p, "passing", NULL, 0, NULL, &group);
    if (status == SYMMEM_OK)
        status = symmem_group_all_gather_fds(group, -1, fds, LONG_MS);
    return status;
}

TK_TEST(exchange_fds, socket_path_too_long, "SM-EXCHANGE-09,SM-ERROR-12", .ranks = {2, 4}) {
    char path[512];
    symmem_context *context = NULL;
    memset(path, 'r', sizeof(path));
    path[200] = '\0';
    TK_FAILS(t, PATH_TOO_LONG, pass_in(t, t->store, path, &context));
    TK_SAYS(t, "the relative 'rrr");
    symmem_context_free(context);
    tk_out_of_band_barrier(t);
    memset(path, 'd', sizeof(path));
    path[0] = '/';
    path[200] = '\0';
    TK_FAILS(t, PATH_TOO_LONG, pass_in(t, t->store, path, &context));
    symmem_context_free(context);
}

/* Everything of it is done as an ordinary user, since nothing is forbidden to root. */
TK_TEST(exchange_fds, socket_directory_permission, "SM-EXCHANGE-09", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY) {
    char top[64], good[80], bad[80], keys[80];
    symmem_status made = SYMMEM_OK, in_good = SYMMEM_OK, in_bad = SYMMEM_OK;
    struct resources_identity identity;
    symmem_context *context = NULL;
    symmem_store *store = NULL;
    bool directories = true;
    tk_short_path(t, "rights", -1, top);
    snprintf(good, sizeof(good), "%s/good", top);
    snprintf(bad, sizeof(bad), "%s/bad", top);
    snprintf(keys, sizeof(keys), "%s/keys", top);
    TK_REQUIRE(t, resources_become_ordinary(&identity));
    if (t->rank == 0)
        directories = mkdir(top, 0700) == 0 && mkdir(good, 0700) == 0 && mkdir(bad, 0500) == 0;
    tk_out_of_band_barrier(t);
    made = symmem_store_open_file(keys, &store);
    if (made == SYMMEM_OK) {
        in_good = pass_in(t, store, good, &context);
        symmem_context_free(context);
        tk_out_of_band_barrier(t);
        in_bad = pass_in(t, store, bad, &context);
        symmem_context_free(context);
        tk_out_of_band_barrier(t);
        symmem_store_close(store);
    }
    TK_CHECK(t, resources_become_again(&identity));
    TK_CHECK(t, directories);
    TK_OK(t, made);
    TK_OK(t, in_good); /* so the permission is what the other lacks */
    TK_FAILS(t, PERMISSION, in_bad);
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        TK_EQ_INT(t, 0, rmdir(good));
        TK_EQ_INT(t, 0, rmdir(bad));
        TK_CHECK(t, resources_remove_directory(keys)); /* the store's own files are left in it */
        TK_EQ_INT(t, 0, rmdir(top));
    }
}

/* A rank's life with a store of its own and sockets in the folder, from init to the end. */
static symmem_status live_in(struct tk *t, const char *keys, const char *sockets) {
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    symmem_store *store = NULL;
    symmem_group *group = NULL;
    int64_t sum;
    int fds[64];
    symmem_status status = symmem_store_open_file(keys, &store);
    options.store = store;
    options.socket_dir = sockets;
    options.backend = NULL;
    if (status == SYMMEM_OK)
        status = symmem_store_add(store, "count", 1, &sum, LONG_MS);
    if (status == SYMMEM_OK)
        status = symmem_init(&options, &context);
    if (status == SYMMEM_OK)
        status = symmem_group_create(context, "living", NULL, 0, NULL, &group);
    if (status == SYMMEM_OK)
        status = symmem_group_all_gather_fds(group, STDIN_FILENO, fds, LONG_MS);
    for (int32_t rank = 0; status == SYMMEM_OK && rank < t->world_size; rank++)
        close(fds[rank]);
    symmem_context_free(context);
    tk_out_of_band_barrier(t);
    symmem_store_close(store);
    return status;
}

/* Whether each of them is readable and writable by its owner alone. */
static bool all_are_private(const char *folder) {
    DIR *directory = opendir(folder);
    bool are = directory != NULL;
    for (struct dirent *entry; are && (entry = readdir(directory)) != NULL;) {
        struct stat about;
        are = entry->d_name[0] == '.' ||
              (fstatat(dirfd(directory), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
               (about.st_mode & 0777) == 0600);
    }
    if (directory != NULL)
        closedir(directory);
    return are;
}

/* As an ordinary user: root may open what has no rights at all. */
TK_TEST(exchange_fds, any_umask, "SM-LIFE-24,SM-LIFE-07", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY) {
    static const mode_t masks[] = {0, 0177, 0277, 0400, 0777};
    char top[64], sockets[80], keys[80];
    struct resources_identity identity;
    symmem_status lived[TK_COUNT(masks)];
    symmem_error_record records[TK_COUNT(masks)];
    bool directories = true, private = true, ended = true;
    tk_short_path(t, "umask", -1, top);
    snprintf(sockets, sizeof(sockets), "%s/sockets", top);
    snprintf(keys, sizeof(keys), "%s/keys", top);
    TK_REQUIRE(t, resources_become_ordinary(&identity));
    if (t->rank == 0)
        directories = mkdir(top, 0700) == 0 && mkdir(sockets, 0700) == 0;
    for (size_t i = 0; i < TK_COUNT(masks); i++) {
        tk_out_of_band_barrier(t);
        const mode_t mask = umask(masks[i]);
        lived[i] = live_in(t, keys, sockets);
        records[i] = last_record();
        ended = umask(mask) == masks[i] && ended;
        tk_out_of_band_barrier(t);
        if (t->rank == 0) {
            private = all_are_private(keys) && private;
            ended = resources_remove_directory(keys) && ended;
        }
    }
    TK_CHECK(t, resources_become_again(&identity));
    TK_CHECK(t, directories && ended);
    TK_CHECK(t, private);
    for (size_t i = 0; i < TK_COUNT(masks); i++)
        TK_CHECK_MSG(t, lived[i] == SYMMEM_OK, "umask %04o: %s: %s", (unsigned)masks[i],
                     symmem_status_name(lived[i]), records[i].message);
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_CHECK(t, rmdir(sockets) == 0 && rmdir(top) == 0);
}

TK_TEST(exchange_fds, sockets_are_private_and_go, "SM-EXCHANGE-09", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY) {
    char path[64];
    symmem_context *context = NULL;
    mode_t mask = umask(0);
    struct dirent *entry;
    int sockets = 0;
    tk_short_path(t, "ended", -1, path);
    if (t->rank == 0)
        TK_CHECK(t, mkdir(path, 0700) == 0);
    tk_out_of_band_barrier(t);
    symmem_status passed = pass_in(t, t->store, path, &context);
    (void)umask(mask);
    TK_OK(t, passed);
    tk_out_of_band_barrier(t);
    DIR *directory = opendir(path);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        struct stat status;
        if (entry->d_name[0] == '.')
            continue;
        TK_EQ_INT(t, 0, fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW));
        TK_CHECK(t, S_ISSOCK(status.st_mode));
        TK_EQ_INT(t, 0600, status.st_mode & 07777);
        sockets++;
    }
    if (directory != NULL)
        closedir(directory);
    TK_CHECK_MSG(t, sockets >= 1, "the directory is not used");
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_finalize(context));
    tk_out_of_band_barrier(t);
    TK_EQ_INT(t, 0, resources_count_entries(path));
    symmem_context_free(context);
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_EQ_INT(t, 0, rmdir(path));
}
