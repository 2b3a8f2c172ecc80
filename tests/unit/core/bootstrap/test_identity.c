/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is who, and who has ended. */
#include "identity_child.h"
#include "last_record.h"
#include "backend/context.h"
#include "unit_main.h"
#include "backend/query.h"

#include <fcntl.h>
#include <sys/mman.h>

static const char *child_name;

static bool take_name(void) {
    return prctl(PR_SET_NAME, child_name) == 0;
}

static void do_nothing(void) {}

static pid_t start_named(sm_identity *identity_p, const char *name) {
    child_name = name;
    return start_child(identity_p, take_name, do_nothing);
}

static void end_child(pid_t pid) {
    kill(pid, SIGKILL);
    siginfo_t info;
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT); /* a zombie from here on */
}

TEST("self") {
    sm_identity a, b;
    CU_ASSERT_EQUAL(sm_identity_self(&a), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_identity_self(&b), SYMMEM_OK);
    CU_ASSERT_EQUAL(memcmp(&a, &b, sizeof(a)), 0);
    CU_ASSERT(a.boot_id != 0 && a.pid_namespace != 0 && a.start_time != 0);
    CU_ASSERT_EQUAL(a.pid, getpid());
    CU_ASSERT(a.host[0] != '\0');
    CU_ASSERT_TRUE(sm_identity_same_process(&a, &b));
    b.start_time++;
    CU_ASSERT_TRUE(sm_identity_same_host(&a, &b));
    CU_ASSERT_FALSE(sm_identity_same_process(&a, &b));
    b = a;
    b.pid++;
    CU_ASSERT_FALSE(sm_identity_same_process(&a, &b));
    b = a;
    b.pid_namespace++;
    CU_ASSERT_FALSE(sm_identity_same_process(&a, &b));
    b = a;
    b.boot_id++;
    CU_ASSERT_FALSE(sm_identity_same_host(&a, &b));
    CU_ASSERT_FALSE(sm_identity_same_process(&a, &b));
    /* Without a boot id the name decides. */
    a.boot_id = b.boot_id = 0;
    CU_ASSERT_TRUE(sm_identity_same_host(&a, &b));
    b.host[0] = '!';
    CU_ASSERT_FALSE(sm_identity_same_host(&a, &b));

    char key[64];
    sm_identity_key("w/x", 12, key, sizeof(key));
    CU_ASSERT_STRING_EQUAL(key, "w/x/id/12");
}

static int error_of_hostname;

int __real_gethostname(char *name, size_t capacity);
int __wrap_gethostname(char *name, size_t capacity);
int __wrap_gethostname(char *name, size_t capacity) {
    if (error_of_hostname == 0)
        return __real_gethostname(name, capacity);
    memset(name, 'h', capacity); /* as much as fits */
    errno = error_of_hostname;
    return -1;
}

/* A name that is too long is cut: it only has to differ from others. */
TEST("host names") {
    sm_identity identity;
    error_of_hostname = ENAMETOOLONG;
    CU_ASSERT_EQUAL(sm_identity_self(&identity), SYMMEM_OK);
    CU_ASSERT_EQUAL(strlen(identity.host), sizeof(identity.host) - 1);
    error_of_hostname = EIO;
    CU_ASSERT_EQUAL(sm_identity_self(&identity), SYMMEM_SYSTEM);
    CU_ASSERT_EQUAL(last_record().system_errno, EIO);
    error_of_hostname = 0;
}

TEST("parentheses in the name") {
    sm_identity child = {0};
    pid_t pid = start_named(&child, ") S 1 (x 2 3");
    CU_ASSERT_FATAL(pid > 1);
    sm_identity self;
    CU_ASSERT_EQUAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT(child.start_time >= self.start_time && child.start_time < self.start_time + 1000000);
    end_child(pid);
    waitpid(pid, NULL, 0);
}

/* `tight`: without descriptors for pidfds. */
static void life_and_death(bool tight) {
    sm_identity child = {0}, self, other;
    pid_t pid = start_named(&child, "child");
    CU_ASSERT_FATAL(pid > 1);
    CU_ASSERT_EQUAL(sm_identity_self(&self), SYMMEM_OK);
    sm_liveness *liveness = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(6, &liveness), SYMMEM_OK);
    CU_ASSERT_FALSE(sm_liveness_knows(liveness, 1));
    CU_ASSERT_FALSE(sm_liveness_knows(liveness, -1));
    CU_ASSERT_FALSE(sm_liveness_knows(liveness, 6));
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE); /* unknown */
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 6), SYMMEM_PEER_ALIVE);
    sm_liveness_learn(liveness, 6, &child);
    sm_liveness_learn(liveness, 0, &self);
    sm_liveness_learn(liveness, 1, &child);
    CU_ASSERT_TRUE(sm_liveness_knows(liveness, 1));
    other = child; /* another process had this number before */
    other.start_time--;
    sm_liveness_learn(liveness, 2, &other);
    other = child; /* who knows */
    other.pid_namespace++;
    sm_liveness_learn(liveness, 3, &other);
    other = child;
    other.boot_id++;
    sm_liveness_learn(liveness, 4, &other);

    struct rlimit old, limit;
    getrlimit(RLIMIT_NOFILE, &old);
    limit = old;
    if (tight) {
        /* Exactly one free: /proc can be read, but no pidfd stays beside it. */
        int spare = dup(0);
        close(spare);
        limit.rlim_cur = (rlim_t)spare;
        int filler = dup(0);
        CU_ASSERT_EQUAL(filler, spare);
        setrlimit(RLIMIT_NOFILE, &limit);
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        setrlimit(RLIMIT_NOFILE, &old);
        close(filler);
    }
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 0), SYMMEM_PEER_ALIVE);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 2), SYMMEM_PEER_GONE);
    kill(pid, SIGSTOP);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE); /* stopped is not dead */
    end_child(pid);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE); /* though a zombie */
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE);
    waitpid(pid, NULL, 0);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 3), SYMMEM_PEER_ALIVE);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 4), SYMMEM_PEER_ALIVE);
    sm_liveness_learn(liveness, 1, &child); /* nothing new */
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_GONE);
    sm_liveness_learn(liveness, 5, &child); /* first heard of after its end */
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 5), SYMMEM_PEER_GONE);
    sm_liveness_learn(liveness, 1, &self); /* its successor */
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
    sm_liveness_destroy(liveness);
}

TEST("life and death") {
    life_and_death(false);
    life_and_death(true);
    sm_liveness_destroy(NULL);
}

/* Every descriptor number below the limit is taken. */
static int ask_without_pidfd(const sm_identity *identity) {
    sm_liveness *liveness = NULL;
    if (sm_liveness_create(1, &liveness) != SYMMEM_OK)
        return -1;
    sm_liveness_learn(liveness, 0, identity);
    struct rlimit old, limit;
    getrlimit(RLIMIT_NOFILE, &old);
    limit = old;
    int next = dup(0);
    close(next);
    limit.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &limit);
    int state = (int)sm_liveness_ask(liveness, 0);
    if (dup(0) >= 0)
        state = -2;
    setrlimit(RLIMIT_NOFILE, &old);
    sm_liveness_destroy(liveness);
    return state;
}

TEST("no descriptors") {
    sm_identity child = {0};
    pid_t pid = start_named(&child, "child");
    CU_ASSERT_FATAL(pid > 1);
    CU_ASSERT_EQUAL(ask_without_pidfd(&child), SYMMEM_PEER_ALIVE);
    sm_identity other = child;
    other.start_time--;
    CU_ASSERT_EQUAL(ask_without_pidfd(&other), SYMMEM_PEER_GONE);
    end_child(pid);
    CU_ASSERT_EQUAL(ask_without_pidfd(&child), SYMMEM_PEER_GONE); /* a zombie */
    waitpid(pid, NULL, 0);
    CU_ASSERT_EQUAL(ask_without_pidfd(&child), SYMMEM_PEER_GONE);
}

TEST("descriptors") {
    sm_identity child = {0};
    pid_t pid = start_named(&child, "child");
    CU_ASSERT_FATAL(pid > 1);
    int before = dup(0);
    close(before);
    sm_liveness *liveness = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    for (int i = 0; i < 10; i++) {
        sm_liveness_learn(liveness, 1, &child);
        CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
        sm_identity self;
        CU_ASSERT_EQUAL(sm_identity_self(&self), SYMMEM_OK);
        sm_liveness_learn(liveness, 1, &self);
    }
    sm_liveness_learn(liveness, 1, &child);
    CU_ASSERT_EQUAL(sm_liveness_ask(liveness, 1), SYMMEM_PEER_ALIVE);
    sm_liveness_destroy(liveness);
    int after = dup(0);
    close(after);
    CU_ASSERT_EQUAL(before, after);
    end_child(pid);
    waitpid(pid, NULL, 0);
}

/* --- what /proc says ------------------------------------------------------------------------- */

static const char *stat_text; /* in place of each file of /proc/PID; NULL: as it is */
static int thread_error;      /* of those of threads */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode) {
    if (stat_text == NULL || strncmp(path, "/proc/", 6) != 0 || strstr(path, "/stat") == NULL)
        return __real_open(path, flags, mode);
    errno = strstr(path, "/task/") != NULL ? thread_error : 0;
    if (errno != 0)
        return -1;
    int fd = memfd_create("stat", MFD_CLOEXEC);
    if (write(fd, stat_text, strlen(stat_text)) < 0 || lseek(fd, 0, SEEK_SET) != 0)
        return -1;
    return fd;
}

#define EXITING_STAT "7 (a) b) S 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 55 0"

/* A thread that is gone has ended; one that cannot be looked at may run. */
TEST("what is in the way") {
    static const struct {
        const char *text;
        int thread_error;
        bool is_read, is_ending;
    } rows[] = {{EXITING_STAT, 0, true, true},
                {EXITING_STAT, ENOENT, true, true},
                {EXITING_STAT, ESRCH, true, true},
                {EXITING_STAT, EACCES, true, false},
                {"7 a S 1 1 1", 0, false, false},
                {"7 (a) S 1 1 1", 0, false, false},
                {"", 0, false, false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sm_process process = {.start_time = 1};
        stat_text = rows[i].text;
        thread_error = rows[i].thread_error;
        CU_ASSERT_EQUAL(sm_process_read(getpid(), &process), rows[i].is_read);
        CU_ASSERT_EQUAL(process.start_time, rows[i].is_read ? 55 : 1);
        CU_ASSERT(!rows[i].is_read || (process.state == 'S' && process.thread_count == 3));
        CU_ASSERT_EQUAL(sm_process_is_ending(getpid(), 55), rows[i].is_ending);
        CU_ASSERT_FALSE(sm_process_is_ending(getpid(), 56));
        CU_ASSERT_FALSE(sm_process_is_ending(-5, 55)); /* which has no threads to look at */
        stat_text = NULL;
    }
}

/* --- members of a world --------------------------------------------------------------------- */

static symmem_context *member_of(symmem_store *store, int32_t rank) {
    symmem_context *context = NULL;
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = rank;
    options.world_size = 2;
    options.store = store;
    CU_ASSERT_EQUAL_FATAL(symmem_init(&options, &context), SYMMEM_OK);
    return context;
}

static void put_member(symmem_store *store, const sm_member *member) {
    CU_ASSERT_EQUAL(symmem_store_set(store, "symmem/id/0", member, sizeof(*member), 1000),
                    SYMMEM_OK);
}

/* Another process in the rank's place is one only if it surely lives. */
TEST("a place that is taken") {
    enum { AS_IT_IS, OTHER_BOOT, NO_BOOT, OTHER_NAMESPACE, NO_NAMESPACE, NO_MEMBER, ENDED, WAYS };
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    symmem_context *context = member_of(store, 0);
    const sm_identity self = context->identity;
    sm_member other = context->member;
    pid_t pid = start_named(&other.identity, "member");
    CU_ASSERT_FATAL(pid > 1);
    for (int way = AS_IT_IS; way < WAYS; way++) {
        sm_member found = other;
        context->identity = self;
        if (way == NO_BOOT)
            context->identity.boot_id = found.identity.boot_id = 0;
        if (way == NO_NAMESPACE)
            context->identity.pid_namespace = found.identity.pid_namespace = 0;
        found.identity.boot_id += way == OTHER_BOOT;
        found.identity.pid_namespace += way == OTHER_NAMESPACE;
        found.magic += way == NO_MEMBER;
        if (way == ENDED)
            end_child(pid);
        put_member(store, &found);
        const sm_world world = sm_context_world(context);
        CU_ASSERT_EQUAL(sm_member_publish(&world, &context->member, &context->identity_published),
                        way == AS_IT_IS ? SYMMEM_MISMATCH : SYMMEM_OK);
        CU_ASSERT_EQUAL(context->member.took_over, way != AS_IT_IS && way != NO_MEMBER);
    }
    context->identity = self;
    CU_ASSERT_EQUAL(waitpid(pid, NULL, 0), pid);
    CU_ASSERT_EQUAL(symmem_finalize(context), SYMMEM_OK);
    symmem_context_free(context);
    symmem_store_close(store);
}

/* What an objection says is believed if it is to this very context, and of a known kind. */
TEST("objections") {
    struct {
        uint8_t to[16];
        uint32_t kind;
        int32_t rank, world_size;
        uint32_t reserved;
        sm_identity identity;
    } no;
    static const struct {
        uint32_t kind;
        bool is_ours;
        symmem_status status;
    } rows[] = {{1, true, SYMMEM_MISMATCH},
                {2, true, SYMMEM_MISMATCH},
                {77, true, SYMMEM_OK},
                {1, false, SYMMEM_OK}};
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    symmem_context *context = member_of(store, 0);
    sm_member own = context->member;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(&no, 0, sizeof(no));
        memcpy(no.to, own.token, sizeof(no.to));
        no.to[3] ^= !rows[i].is_ours;
        no.kind = rows[i].kind;
        CU_ASSERT_EQUAL(symmem_store_set(store, "symmem/no/0", &no, sizeof(no), 1000), SYMMEM_OK);
        CU_ASSERT_EQUAL(sm_member_check(store, "symmem", &own, "test", 1000), rows[i].status);
    }
    CU_ASSERT_EQUAL(sm_member_check(store, "symmem", NULL, "test", 1000), SYMMEM_OK);
    own.world_size = 1;
    CU_ASSERT_EQUAL(sm_member_check(store, "symmem", &own, "test", 1000), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_member_compare(store, "symmem", NULL, &own, true), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_finalize(context), SYMMEM_OK);
    symmem_context_free(context);
    symmem_store_close(store);
}

TEST("older members, and what is in their place") {
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    symmem_context *context = member_of(store, 0);
    const sm_trace trace = {.identity = &context->identity, .made_ns = 1};
    CU_ASSERT_FALSE(sm_member_is_older(NULL, trace));
    CU_ASSERT_FALSE(sm_member_is_older(&context->member, trace)); /* which is no successor */
    /* Too large to be compared: it stays. */
    static char large[2000];
    CU_ASSERT_EQUAL(symmem_store_set(store, "k", large, sizeof(large), 1000), SYMMEM_OK);
    sm_store_take_back(store, "k", large, 10, 1000);
    CU_ASSERT_EQUAL(symmem_store_wait(store, "k", 1000), SYMMEM_OK);
    sm_store_take_back(store, "none", large, 10, 1000);
    CU_ASSERT_EQUAL(symmem_finalize(context), SYMMEM_OK);
    symmem_context_free(context);
    symmem_store_close(store);
}

/* What was there before this process began, or goes on from then, may be an earlier job's. */
TEST("earlier processes") {
    enum {
        AS_IT_IS,
        NO_START,
        NO_BOOT,
        OTHER_BOOT,
        OTHER_TIME,
        OTHER_NAMESPACE,
        NOBODY,
        OTHER_START,
        WAYS
    };
    static const bool earlier[WAYS] = {true, true, true, true, true, false, false, false};
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    symmem_context *context = member_of(store, 0);
    sm_member own = context->member;
    const sm_identity self = own.identity;
    uint64_t now_ns = 0;
    for (int way = AS_IT_IS; way < WAYS; way++) {
        sm_identity other = self;
        own.identity = self;
        own.identity.start_time = way == NO_START ? 0 : self.start_time;
        if (way == NO_BOOT)
            own.identity.boot_id = other.boot_id = 0;
        other.boot_id += way == OTHER_BOOT;
        other.time_namespace += way == OTHER_TIME;
        other.pid_namespace += way == OTHER_NAMESPACE;
        other.pid = way == NOBODY ? INT32_MAX : other.pid;
        other.start_time += way == OTHER_START;
        now_ns = sm_since_boot_ns() + 1000000000u;
        sm_trace trace = {.identity = &other, .made_ns = now_ns};
        CU_ASSERT_EQUAL(sm_member_may_be_earlier(&own.identity, trace), earlier[way]);
        own.took_over = 1;
        own.published_ns = now_ns;
        const bool is_elsewhere = way == NO_BOOT || way == OTHER_BOOT || way == OTHER_TIME;
        CU_ASSERT_EQUAL(sm_member_is_older(&own, trace), is_elsewhere); /* not later than it */
        own.published_ns++;
        CU_ASSERT_EQUAL(sm_member_is_older(&own, trace), earlier[way]);
        trace.made_ns = 1;
        CU_ASSERT_TRUE(sm_member_may_be_earlier(&own.identity, trace));
    }
    sm_member found = own;
    CU_ASSERT_EQUAL(sm_member_compare(store, "symmem", &own, &found, true), SYMMEM_OK);
    found.world_size++;
    CU_ASSERT_EQUAL(sm_member_compare(store, "symmem", &own, &found, false), SYMMEM_MISMATCH);
    found.magic++;
    CU_ASSERT_EQUAL(sm_member_compare(store, "symmem", &own, &found, true), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_finalize(context), SYMMEM_OK);
    symmem_context_free(context);
    symmem_store_close(store);
}
