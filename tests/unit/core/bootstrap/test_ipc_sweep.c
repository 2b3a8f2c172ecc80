/* SPDX-License-Identifier: BSD-3-Clause */
/* The sweep removes only socket files at which no process answers, whatever else is in the
 * directory. The store then tells whose a removed file was. */
#include "bootstrap/ipc_socket.h"
#include "bootstrap/session_internal.h"
#include "bootstrap/ipc_sweep.h"
#include "bootstrap/ipc_whose.h"
#include "folder.h"
#include "unit_main.h"

#include <sys/socket.h>
#include <sys/un.h>

static char directory[] = "/tmp/symmem-sweep-XXXXXX";
/* Names of this host, which the sweep may remove if no process answers there. */
enum { NAME_BYTES = SM_IPC_PREFIX_BYTES + 8 };
static char dead[NAME_BYTES], living[NAME_BYTES], plain[NAME_BYTES], linked[NAME_BYTES],
    untold[NAME_BYTES];

static bool exists(const char *name) {
    char path[128];
    struct stat file;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return lstat(path, &file) == 0;
}

/* A bound socket; the caller closes it, and so kills it. */
static int bind_at(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%.60s/%.30s", directory, name);
    CU_ASSERT_EQUAL(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void remove_at(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    CU_ASSERT_EQUAL(unlink(path), 0);
}

TEST("sweep") {
    sm_ipc *alive = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_ipc_create(directory, living, &alive), SYMMEM_OK);
    close(bind_at(dead));
    close(bind_at("other-dead"));
    /* The directory may be shared with other hosts: of their sockets nothing is known here. */
    close(bind_at("symmem-0123456789abcdef"));
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, plain);
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CU_ASSERT(file >= 0);
    close(file);
    snprintf(path, sizeof path, "%s/%s", directory, linked);
    CU_ASSERT_EQUAL(symlink("other-dead", path), 0);

    symmem_clear_error();
    sm_ipc_sweep(directory, NULL);
    CU_ASSERT_FALSE(exists(dead));
    CU_ASSERT_TRUE(exists(living));
    CU_ASSERT_TRUE(exists("other-dead"));
    CU_ASSERT_TRUE(exists("symmem-0123456789abcdef"));
    CU_ASSERT_TRUE(exists(plain));
    CU_ASSERT_TRUE(exists(linked));
    sm_ipc_sweep("/nowhere/at/all", NULL);
    symmem_error_record record;
    symmem_last_error(&record);
    CU_ASSERT_EQUAL(record.status, SYMMEM_OK);

    sm_ipc_destroy(alive);
    remove_at("other-dead");
    remove_at("symmem-0123456789abcdef");
    remove_at(plain);
    remove_at(linked);
}

/* Another store's rank may have been killed. Its file is needed only if that store tells of it. */
TEST("a file that no store tells of") {
    for (int settles = 0; settles < 2; settles++) {
        sm_life_file *file = sm_life_file_begin(directory, 3);
        CU_ASSERT_PTR_NOT_NULL_FATAL(file);
        const char *name = sm_life_file_path(file) + strlen(directory) + 1;
        CU_ASSERT_EQUAL(sm_life_rank_of(name), 3);
        if (settles)
            sm_life_file_settle(file);
        sm_ipc_sweep(directory, NULL);
        CU_ASSERT_TRUE(exists(name));
        sm_life_forget_all(); /* closes the socket, as the end of its process does */
        sm_ipc_sweep(directory, NULL);
        CU_ASSERT_EQUAL(exists(name), settles);
        if (settles)
            remove_at(name);
        sm_life_file_end(file);
    }
    close(bind_at(untold));
    sm_ipc_sweep(directory, NULL);
    CU_ASSERT_FALSE(exists(untold));
}

TEST("the rank in a file's name") {
    static const char *const none[] = {"", ".", ".x000", "+0001", "-0001"};
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s.0a0bff", SM_IPC_PREFIX_BYTES - 1, dead);
    CU_ASSERT_EQUAL(sm_life_rank_of(name), 0xa0b);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        (void)snprintf(name, sizeof name, "%.*s%s", SM_IPC_PREFIX_BYTES - 1, dead, none[i]);
        CU_ASSERT_EQUAL(sm_life_rank_of(name), -1);
    }
}

static int refusals; /* of the next connections */

int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes) {
    errno = ECONNREFUSED;
    return refusals > 0 && refusals-- ? -1 : __real_connect(fd, address, bytes);
}

/* The file of a socket is there a moment before the socket can be found. */
TEST("a socket that is being bound") {
    const int fd = bind_at(living);
    refusals = 1;
    sm_ipc_sweep(directory, NULL);
    CU_ASSERT_EQUAL(refusals, 0);
    CU_ASSERT_TRUE(exists(living));
    refusals = 2;
    sm_ipc_sweep(directory, NULL);
    CU_ASSERT_EQUAL(refusals, 0);
    CU_ASSERT_FALSE(exists(living));
    close(fd);
}

/* A path that is too long for a socket's address belongs to no socket. */
TEST("long path") {
    char path[160], name[80];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(path, sizeof path, "%s/%s", directory, name);
    CU_ASSERT_EQUAL_FATAL(mkdir(path, 0700), 0);
    int own = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, dead, sizeof dead);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL(chdir(path), 0);
    CU_ASSERT_EQUAL(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    sm_ipc_sweep(path, NULL);
    CU_ASSERT_EQUAL(access(dead, F_OK), 0);
    CU_ASSERT_EQUAL(unlink(dead), 0);
    CU_ASSERT_EQUAL(fchdir(own), 0);
    close(own);
    CU_ASSERT_EQUAL(rmdir(path), 0);
}

/* --- whose file it was --------------------------------------------------------------------- */

static symmem_store *store;
static sm_liveness *liveness;

static void open_world(void) {
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(3, &liveness), SYMMEM_OK);
    sm_liveness_read(liveness, store, "w");
}

static void close_world(void) {
    sm_liveness_destroy(liveness);
    symmem_store_close(store);
}

static void be_rank(int32_t rank, const void *value, size_t bytes) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_identity_key("w", rank, key, sizeof(key));
    CU_ASSERT_EQUAL(symmem_store_set(store, key, value, bytes, 0), SYMMEM_OK);
}

static bool is_marked(int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1], value[64];
    size_t bytes = 0;
    sm_liveness_ended_key("w", rank, key, sizeof(key));
    return symmem_store_get(store, key, value, sizeof(value), &bytes, 0) == SYMMEM_OK;
}

TEST("whose file it was") {
    sm_member member;
    memset(&member, 0, sizeof(member));
    open_world();
    sm_copy_text(member.identity.life_file, sizeof(member.identity.life_file), "/a/folder/one");
    be_rank(1, &member, sizeof(member));
    CU_ASSERT(!sm_liveness_mark_ended(liveness, 1, "two"));
    CU_ASSERT(!sm_liveness_mark_ended(liveness, 0, "one"));
    CU_ASSERT(!sm_liveness_mark_ended(liveness, -1, "one"));
    CU_ASSERT(sm_liveness_mark_ended(liveness, 1, "one") && is_marked(1));
    sm_copy_text(member.identity.life_file, sizeof(member.identity.life_file), "three");
    be_rank(7, &member.identity, sizeof(member.identity)); /* some keys hold nothing else */
    CU_ASSERT(sm_liveness_mark_ended(liveness, 7, "three") && is_marked(7)); /* a larger world's */
    sm_copy_text(member.identity.life_file, sizeof(member.identity.life_file), "four");
    be_rank(0, &member, sizeof(member) - 1);
    CU_ASSERT(!sm_liveness_mark_ended(liveness, 0, "four") && !is_marked(0));
    CU_ASSERT(!sm_liveness_mark_ended(NULL, 1, "one"));
    close_world();
}

static atomic_int looks;

static symmem_status counted_get(void *self, const char *key, void *value, size_t capacity,
                                 size_t *bytes_p, uint32_t timeout_ms) {
    atomic_fetch_add(&looks, 1);
    return symmem_store_get(self, key, value, capacity, bytes_p, timeout_ms);
}

static symmem_status passed_set(void *self, const char *key, const void *value, size_t bytes,
                                uint32_t timeout_ms) {
    return symmem_store_set(self, key, value, bytes, timeout_ms);
}

static symmem_status passed_wait(void *self, const char *key, uint32_t timeout_ms) {
    return symmem_store_wait(self, key, timeout_ms);
}

static symmem_status passed_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                                uint32_t timeout_ms) {
    return symmem_store_add(self, key, delta, value_p, timeout_ms);
}

static symmem_status passed_remove(void *self, const char *key, uint32_t timeout_ms) {
    return symmem_store_remove(self, key, timeout_ms);
}

static void passed_close(void *self) {
    symmem_store_close(self);
}

/* The file's name has the rank: one key is read, however many ranks there are. */
TEST("one look at the store") {
    static const symmem_store_ops ops = {sizeof(ops), passed_set,    counted_get, passed_wait,
                                         passed_add,  passed_remove, passed_close};
    sm_member member;
    symmem_store *counted = NULL;
    memset(&member, 0, sizeof(member));
    open_world();
    sm_copy_text(member.identity.life_file, sizeof(member.identity.life_file), "/a/folder/one");
    be_rank(SYMMEM_MAX_WORLD_SIZE - 1, &member, sizeof(member));
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, store, &counted), SYMMEM_OK);
    sm_liveness_read(liveness, counted, "w");
    CU_ASSERT(sm_liveness_mark_ended(liveness, SYMMEM_MAX_WORLD_SIZE - 1, "one"));
    CU_ASSERT(is_marked(SYMMEM_MAX_WORLD_SIZE - 1));
    CU_ASSERT_EQUAL(atomic_load(&looks), 1);
    sm_liveness_destroy(liveness);
    symmem_store_close(counted);
}

static symmem_status cannot_set(void *self, const char *key, const void *value, size_t bytes,
                                uint32_t timeout_ms) {
    return SYMMEM_SYSTEM;
}

/* Then the file stays: without the mark no rank would know that its process has ended. */
TEST("a store that takes no mark") {
    static const symmem_store_ops ops = {sizeof(ops), cannot_set,    counted_get, passed_wait,
                                         passed_add,  passed_remove, passed_close};
    sm_member member;
    symmem_store *faulty = NULL;
    memset(&member, 0, sizeof(member));
    open_world();
    sm_copy_text(member.identity.life_file, sizeof(member.identity.life_file), "one");
    be_rank(1, &member, sizeof(member));
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, store, &faulty), SYMMEM_OK);
    sm_liveness_read(liveness, faulty, "w");
    CU_ASSERT(!sm_liveness_mark_ended(liveness, 1, "one") && !is_marked(1));
    sm_liveness_destroy(liveness);
    symmem_store_close(faulty);
}

/* Then the file stays only for ranks that see its owner by nothing else. */
TEST("a store that has ended") {
    enum { RANKS = 3, OWNER = 1, ELSEWHERE = RANKS, ANOTHER_FILE, NOBODY };
    for (int odd = 0; odd <= NOBODY; odd++) {
        sm_identity identities[RANKS];
        sm_life_file *file = sm_life_file_begin(directory, OWNER);
        CU_ASSERT_PTR_NOT_NULL_FATAL(file);
        const char *name = sm_life_file_path(file) + strlen(directory) + 1;
        sm_life_file_settle(file);
        CU_ASSERT_EQUAL_FATAL(sm_liveness_create(RANKS, &liveness), SYMMEM_OK);
        for (int32_t rank = 0; rank < RANKS; rank++) {
            memset(&identities[rank], 0, sizeof(identities[rank]));
            identities[rank].net_namespace = odd == ELSEWHERE && rank == 2 ? 8 : 7;
            if (rank == OWNER && odd != ANOTHER_FILE)
                sm_copy_text(identities[rank].life_file, sizeof(identities[rank].life_file),
                             sm_life_file_path(file));
            if (odd != rank)
                sm_liveness_learn(liveness, rank, &identities[rank]);
        }
        sm_life_forget_all(); /* closes the socket */
        sm_ipc_sweep(directory, liveness);
        CU_ASSERT_EQUAL(exists(name), odd != NOBODY);
        if (exists(name))
            remove_at(name);
        sm_life_file_end(file);
        sm_liveness_destroy(liveness);
    }
}

TEST("a world without a store") {
    sm_identity identity;
    memset(&identity, 0, sizeof(identity));
    sm_copy_text(identity.life_file, sizeof(identity.life_file), "one");
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(3, &liveness), SYMMEM_OK);
    CU_ASSERT(!sm_liveness_mark_ended(liveness, 1, "one"));
    sm_liveness_learn(liveness, 1, &identity);
    CU_ASSERT(!sm_liveness_mark_ended(liveness, 1, "one"));
    sm_liveness_destroy(liveness);
}

int unit_setup(void) {
    char prefix[SM_IPC_PREFIX_BYTES];
    sm_ipc_prefix(prefix);
    snprintf(dead, sizeof dead, "%s-dead", prefix);
    snprintf(living, sizeof living, "%s-living", prefix);
    snprintf(plain, sizeof plain, "%s-plain", prefix);
    snprintf(linked, sizeof linked, "%s-linked", prefix);
    snprintf(untold, sizeof untold, "%s%c0001", prefix, SM_LIFE_UNTOLD);
    return mkdtemp(directory) == NULL;
}

int unit_teardown(void) {
    return rmdir(directory);
}

/* --- whose a socket is, where the kernel shows one id for all users --------------------------- */

#define HIDDEN_UID 65534u

/* What the system says, if `says` is set. */
static struct system {
    bool says;
    uid_t peer, own;
    const char *uid_map, *sockets; /* text of the files; NULL: there is none */
    int access;
} system_says;

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes_p);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes_p);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes_p) {
    const int result = __real_getsockopt(fd, level, name, value, bytes_p);
    if (system_says.says && result == 0 && name == SO_PEERCRED)
        ((struct ucred *)value)->uid = system_says.peer;
    return result;
}

uid_t __real_geteuid(void);
uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void) {
    return system_says.says ? system_says.own : __real_geteuid();
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode) {
    return system_says.says ? system_says.access : __real_access(path, mode);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode) {
    const char *text = strcmp(path, "/proc/self/uid_map") == 0 ? system_says.uid_map
                       : strcmp(path, "/proc/net/unix") == 0   ? system_says.sockets
                                                               : NULL;
    if (!system_says.says)
        return __real_fopen(path, mode);
    return text == NULL ? NULL : fmemopen((void *)(uintptr_t)text, strlen(text), "r");
}

/* `name` begins with @ where it is abstract. */
static bool is_of_user(const char *name) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct ucred holder;
    int ends[2];
    const size_t length = strlen(name);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    memcpy(to.sun_path, name, length + 1);
    if (name[0] == '@')
        to.sun_path[0] = '\0';
    system_says.says = true;
    const bool is = sm_ipc_ask_user(ends[0], &holder) == 0 &&
                    sm_ipc_is_socket_of_user(
                        &holder, &to, (uint32_t)(offsetof(struct sockaddr_un, sun_path) + length));
    system_says.says = false;
    close(ends[0]);
    close(ends[1]);
    return is;
}

#define SOCKETS(name, inode)                                                                       \
    "Num       RefCount Protocol Flags    Type St Inode Path\n"                                    \
    "0000000000000000: 00000002 00000000 00010000 0005 01 7 /run/else\n"                           \
    "0000000000000000: 00000002 00000000 00010000 0005 01 " inode " " name "\n"

/* Only where a namespace hides users the id proves nothing, and the socket's number has to. */
TEST("an abstract name among hidden users") {
    static const char all_users[] = "0 0 4294967295\n", own[] = "@symmem-00003039";
    static const char sockets[] = SOCKETS("@symmem-00003039", "12345");
    static const struct {
        struct system says;
        const char *name;
        bool is;
    } rows[] = {
        {{true, HIDDEN_UID, HIDDEN_UID, "0 1000 1\n", sockets, 0}, own, true},
        {{true, HIDDEN_UID, HIDDEN_UID, "0 1000 1\n", NULL, 0}, own, false},
        {{true, HIDDEN_UID, HIDDEN_UID, NULL, NULL, 0}, own, false},
        {{true, HIDDEN_UID, HIDDEN_UID, "0\n", NULL, 0}, own, false},
        {{true, HIDDEN_UID, HIDDEN_UID, "5 0 4294967295\n", NULL, 0}, own, false},
        {{true, HIDDEN_UID, HIDDEN_UID, all_users, NULL, 0}, own, true},
        {{true, 1000, 1000, "0 1000 1\n", NULL, 0}, own, true},
        {{true, 0, HIDDEN_UID, "0 1000 1\n", NULL, 0}, own, true},
        {{true, HIDDEN_UID, 1000, "0 1000 1\n", sockets, 0}, own, false},
        {{true, HIDDEN_UID, HIDDEN_UID, "0 1000 1\n", SOCKETS("@symmem-00003039", "12346"), 0},
         own,
         false},
        {{true, HIDDEN_UID, HIDDEN_UID, "0 1000 1\n", SOCKETS("@symmen-00003039", "12345"), 0},
         own,
         false},
        {{true, HIDDEN_UID, HIDDEN_UID, "0 1000 1\n", SOCKETS("/symmem-00003039", "12345"), 0},
         own,
         false},
        {{true, HIDDEN_UID, HIDDEN_UID, "0 1000 1\n", sockets, 0}, "@3039", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        system_says = rows[i].says;
        if (is_of_user(rows[i].name) != rows[i].is)
            printf("\n    row %zu: %d\n", i, !rows[i].is);
        system_says = rows[i].says;
        CU_ASSERT_EQUAL(is_of_user(rows[i].name), rows[i].is);
    }
    system_says = (struct system){.says = false};
}

/* A file that no other user can have made, or put in the place of the right one. */
TEST("a socket's file among hidden users") {
    static const struct {
        mode_t folder, file;
        bool is_socket, writable, is;
    } rows[] = {{0700, 0600, true, true, true},  {0700, 0600, false, true, false},
                {0700, 0620, true, true, false}, {0700, 0600, true, false, false},
                {0770, 0600, true, true, false}, {01777, 0600, true, true, true}};
    char folder[FOLDER_BYTES], path[FOLDER_BYTES + 8];
    CU_ASSERT_FATAL(make_folder(folder));
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const mode_t kind = rows[i].is_socket ? S_IFSOCK : S_IFREG;
        CU_ASSERT_EQUAL_FATAL(mknod(path, kind | 0600, 0), 0);
        CU_ASSERT_EQUAL(chmod(path, rows[i].file), 0);
        CU_ASSERT_EQUAL(chmod(folder, rows[i].folder), 0);
        system_says = (struct system){.peer = HIDDEN_UID,
                                      .own = HIDDEN_UID,
                                      .uid_map = "0 1000 1\n",
                                      .access = rows[i].writable ? 0 : -1};
        CU_ASSERT_EQUAL(is_of_user(path), rows[i].is);
        CU_ASSERT_EQUAL(unlink(path), 0);
    }
    CU_ASSERT(!is_of_user(path)); /* it is gone */
    CU_ASSERT(!is_of_user("socket"));
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}
