/* SPDX-License-Identifier: BSD-3-Clause */
/* What the suite lets a library beneath a backend keep where a rank died, and no more. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../conformance/own_held.h"
#include "unit_main.h"

#define MOST 4

/* In place of the kit's. */
static bool is_foreign[1024], can_count = true;
static struct tk_mappings mappings;

bool tk_is_foreign_socket(int fd) {
    return fd >= 0 && fd < 1024 && is_foreign[fd];
}

bool tk_shared_mappings(struct tk_mappings *found) {
    *found = mappings;
    return can_count;
}

static struct own_held before;
static char text[512];

static bool is_as_before(void) {
    struct own_held now;
    own_held_take(&now);
    return own_held_is(&now, &before, text, sizeof text);
}

/* So many of the library's sockets more are as before, or not. */
static bool allows_sockets(int count) {
    int fds[MOST];
    for (int i = 0; i < count; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        is_foreign[fds[i]] = true;
    }
    bool allowed = is_as_before();
    for (int i = 0; i < count; i++) {
        is_foreign[fds[i]] = false;
        close(fds[i]);
    }
    return allowed;
}

static bool allows_mappings(int own, int librarys) {
    mappings.own += own;
    mappings.librarys += librarys;
    bool allowed = is_as_before();
    mappings.own -= own;
    mappings.librarys -= librarys;
    return allowed;
}

TEST("of a library's beneath") {
    own_held_take(&before);
    CU_ASSERT(is_as_before());
    CU_ASSERT(allows_sockets(2));
    CU_ASSERT_FALSE(allows_sockets(3));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "and 3 sockets"));
    CU_ASSERT(allows_mappings(0, 1));
    CU_ASSERT_FALSE(allows_mappings(0, 2));
}

TEST("of one's own") {
    own_held_take(&before);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CU_ASSERT_FALSE(is_as_before());
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "/dev/null"));
    close(fd);
    CU_ASSERT(is_as_before());
    CU_ASSERT_FALSE(allows_mappings(1, 0));
    CU_ASSERT_FALSE(allows_mappings(-1, 0));
}

TEST("not known") {
    own_held_take(&before);
    can_count = false;
    CU_ASSERT_FALSE(is_as_before());
    own_held_take(&before);
    can_count = true;
    CU_ASSERT_FALSE(is_as_before());
}
