/* SPDX-License-Identifier: BSD-3-Clause */
/* The stores, one by one: what each must do, opening and its refusals, foreign ones, and a process
 * without descriptors. */
#include "store_files.h"
#include "last_record.h"
#include "store/store.h"

#include <netinet/in.h>

static symmem_status forward_set(void *s, const char *k, const void *v, size_t n, uint32_t t) {
    return symmem_store_set(s, k, v, n, t);
}
static symmem_status forward_get(void *s, const char *k, void *v, size_t n, size_t *b, uint32_t t) {
    return symmem_store_get(s, k, v, n, b, t);
}
static symmem_status forward_wait(void *s, const char *k, uint32_t t) {
    return symmem_store_wait(s, k, t);
}
static symmem_status forward_add(void *s, const char *k, int64_t d, int64_t *v, uint32_t t) {
    return symmem_store_add(s, k, d, v, t);
}
static symmem_status forward_remove(void *s, const char *k, uint32_t t) {
    return symmem_store_remove(s, k, t);
}
static void forward_close(void *s) {
    symmem_store_close(s);
}
static const symmem_store_ops forward_ops = {sizeof(forward_ops), forward_set, forward_get,
                                             forward_wait,        forward_add, forward_remove,
                                             forward_close};

static symmem_store *open_custom(void) {
    symmem_store *store = NULL;
    if (symmem_store_open_custom(&forward_ops, open_memory(), &store) != SYMMEM_OK)
        abort();
    return store;
}

/* What every store must do. */
static void check_store(symmem_store *store) {
    char value[16] = "";
    size_t bytes = 99;
    int64_t sum = 0;
    CU_ASSERT_EQUAL(symmem_store_get(store, "k/a", value, 16, &bytes, 100), SYMMEM_NOT_FOUND);
    CU_ASSERT_EQUAL(bytes, 99);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_NOT_FOUND);
    CU_ASSERT_EQUAL(symmem_store_set(store, "k/a", "hello", 6, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_wait(store, "k/a", 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_get(store, "k/a", value, 16, &bytes, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(bytes, 6);
    CU_ASSERT_STRING_EQUAL(value, "hello");
    CU_ASSERT_EQUAL(symmem_store_get(store, "k:a", value, 16, &bytes, 100), SYMMEM_NOT_FOUND);
    CU_ASSERT_EQUAL(symmem_store_get(store, "k", value, 16, &bytes, 100), SYMMEM_NOT_FOUND);
    value[0] = 'z';
    CU_ASSERT_EQUAL(symmem_store_get(store, "k/a", value, 5, &bytes, 100), SYMMEM_OUT_OF_RANGE);
    CU_ASSERT(bytes == 6 && value[0] == 'z');
    CU_ASSERT_EQUAL(symmem_store_set(store, "k/a", NULL, 0, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_get(store, "k/a", NULL, 0, &bytes, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(bytes, 0);
    CU_ASSERT_EQUAL(symmem_store_remove(store, "k/a", 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_remove(store, "k/a", 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_get(store, "k/a", value, 16, &bytes, 100), SYMMEM_NOT_FOUND);

    uint64_t waited_ns = UINT64_MAX; /* of a few tries, on a busy machine */
    for (int i = 0; i < 3 && waited_ns >= 600000000; i++) {
        uint64_t start_ns = sm_now_ns();
        CU_ASSERT_EQUAL(symmem_store_wait(store, "k/a", 120), SYMMEM_TIMEOUT);
        waited_ns = sm_now_ns() - start_ns;
    }
    CU_ASSERT(waited_ns >= 120000000 && waited_ns < 600000000);

    symmem_clear_error();
    CU_ASSERT_EQUAL(symmem_store_add(store, "n", 5, &sum, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(sum, 5);
    CU_ASSERT_EQUAL(symmem_store_add(store, "n", -7, &sum, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(sum, -2);
    CU_ASSERT_EQUAL(last_record().status, SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_set(store, "n", "abc", 3, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_add(store, "n", 1, &sum, 100), SYMMEM_MISMATCH);
    CU_ASSERT_EQUAL(symmem_store_set(store, "n", "abcdefghij", 10, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_add(store, "n", 1, &sum, 100), SYMMEM_MISMATCH);
    CU_ASSERT_EQUAL(sum, -2);
    CU_ASSERT_EQUAL(symmem_store_remove(store, "n", 100), SYMMEM_OK);

    /* The limits of keys and values. */
    char key[SYMMEM_STORE_KEY_MAX + 2];
    memset(key, '/', sizeof(key));
    key[SYMMEM_STORE_KEY_MAX + 1] = '\0';
    CU_ASSERT_EQUAL(symmem_store_set(store, key, "", 0, 100), SYMMEM_INVALID_ARGUMENT);
    key[SYMMEM_STORE_KEY_MAX] = '\0';
    char *large = calloc(1, SYMMEM_STORE_VALUE_MAX + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(large);
    memset(large, 'x', SYMMEM_STORE_VALUE_MAX);
    CU_ASSERT_EQUAL(symmem_store_set(store, key, large, SYMMEM_STORE_VALUE_MAX, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_set(store, key, large, SYMMEM_STORE_VALUE_MAX + 1, 100),
                    SYMMEM_INVALID_ARGUMENT);
    memset(large, 0, SYMMEM_STORE_VALUE_MAX);
    CU_ASSERT_EQUAL(symmem_store_get(store, key, large, SYMMEM_STORE_VALUE_MAX, &bytes, 100),
                    SYMMEM_OK);
    CU_ASSERT(bytes == SYMMEM_STORE_VALUE_MAX && large[SYMMEM_STORE_VALUE_MAX - 1] == 'x');
    free(large);
    CU_ASSERT_EQUAL(symmem_store_remove(store, key, 100), SYMMEM_OK);

    static const char *const bad[] = {"", " ", "a b", "a%b", "\xc3\xa4", "a\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CU_ASSERT_EQUAL(symmem_store_set(store, bad[i], "", 0, 100), SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_EQUAL(symmem_store_get(store, bad[i], value, 1, &bytes, 100),
                        SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_EQUAL(symmem_store_wait(store, bad[i], 100), SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_EQUAL(symmem_store_add(store, bad[i], 1, &sum, 100), SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_EQUAL(symmem_store_remove(store, bad[i], 100), SYMMEM_INVALID_ARGUMENT);
    }
    CU_ASSERT_EQUAL(symmem_store_set(store, "AZaz09._-/:", "", 0, 100), SYMMEM_OK);
    /* Two keys with one hash. */
    CU_ASSERT_EQUAL(symmem_store_set(store, "8yn0iYCKYHlIj4-BwPqk", "a", 1, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_set(store, "GReLUrM4wMqfg9yzV3KQ", "b", 1, 100), SYMMEM_OK);
    for (int i = 0; i < 2; i++) {
        const char *twin = i == 0 ? "8yn0iYCKYHlIj4-BwPqk" : "GReLUrM4wMqfg9yzV3KQ";
        CU_ASSERT_EQUAL(symmem_store_get(store, twin, value, 1, &bytes, 100), SYMMEM_OK);
        CU_ASSERT_EQUAL(value[0], 'a' + i);
    }
    CU_ASSERT_EQUAL(symmem_store_set(store, "..", "", 0, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_set(store, "notify", "", 0, 100), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_set(store, "a", NULL, 1, 100), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_set(store, NULL, "", 0, 100), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_set(NULL, "a", "", 0, 100), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_get(store, "a", NULL, 1, &bytes, 1), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_get(store, "a", value, 1, NULL, 1), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_add(store, "a", 1, NULL, 1), SYMMEM_INVALID_ARGUMENT);
    symmem_store_close(store);
}

/* In a world of one, at a port that was free a moment ago. */
static symmem_store *open_tcp(void) {
    char address[64];
    symmem_store *store = NULL;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&at, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &bytes) != 0)
        abort();
    close(fd);
    snprintf(address, sizeof(address), "tcp://127.0.0.1:%u/w", (unsigned)ntohs(at.sin_port));
    if (symmem_store_open(address, 0, 1, 5000, &store) != SYMMEM_OK)
        abort();
    return store;
}

/* --- a store that does not answer ------------------------------------------------------------- */

static symmem_status answer; /* of the store's calls */

static symmem_status give_set(void *s, const char *k, const void *v, size_t n, uint32_t t) {
    return answer;
}
static symmem_status give_get(void *s, const char *k, void *v, size_t n, size_t *b, uint32_t t) {
    return answer;
}
static symmem_status give_wait(void *s, const char *k, uint32_t t) {
    return answer;
}
static symmem_status give_add(void *s, const char *k, int64_t d, int64_t *v, uint32_t t) {
    return answer;
}
static symmem_status give_remove(void *s, const char *k, uint32_t t) {
    return answer;
}
static void give_up(void *s) {}
static const symmem_store_ops giving_ops = {sizeof(giving_ops), give_set,    give_get, give_wait,
                                            give_add,           give_remove, give_up};

/* Each kind of call, whose answer is looked at. */
static void ask(symmem_store *store, int kind, symmem_status with) {
    char value;
    size_t bytes;
    int64_t sum;
    symmem_status found = SYMMEM_OK;
    answer = with;
    if (kind == 0)
        found = symmem_store_set(store, "k", "v", 1, 100);
    else if (kind == 1)
        found = symmem_store_get(store, "k", &value, 1, &bytes, 100);
    else if (kind == 2)
        found = symmem_store_add(store, "k", 1, &sum, 100);
    else if (kind == 3)
        found = symmem_store_remove(store, "k", 100);
    else
        found = symmem_store_wait(store, "k", 100);
    CU_ASSERT_EQUAL(found, with);
}

TEST("silence makes brief calls briefer") {
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&giving_ops, NULL, &store), SYMMEM_OK);
    const uint32_t usual_ms = sm_store_brief_ms(store);
    for (int kind = 0; kind < 4; kind++) {
        ask(store, kind, SYMMEM_TIMEOUT);
        CU_ASSERT_EQUAL(sm_store_brief_ms(store), usual_ms); /* may be a busy machine's */
        ask(store, kind, SYMMEM_TIMEOUT);
        ask(store, kind, SYMMEM_TIMEOUT);
        CU_ASSERT(sm_store_brief_ms(store) > 0 && 5 * sm_store_brief_ms(store) < usual_ms);
        ask(store, 4, SYMMEM_TIMEOUT);
        CU_ASSERT(sm_store_brief_ms(store) < usual_ms);
        ask(store, (kind + 1) % 4, SYMMEM_NOT_FOUND); /* is an answer */
        CU_ASSERT_EQUAL(sm_store_brief_ms(store), usual_ms);
    }
    for (int i = 0; i < 8; i++)
        ask(store, 4, SYMMEM_TIMEOUT); /* a wait ends by its limit */
    CU_ASSERT_EQUAL(sm_store_brief_ms(store), usual_ms);
    symmem_store_close(store);
}

/* --- what each must do ------------------------------------------------------------------------ */

TEST("basics") {
    check_store(open_memory());
    check_store(open_file());
    check_store(open_tcp());
    check_store(open_custom());
    symmem_store_close(NULL);
    remove_tree(path);
}

/* --- opening ---------------------------------------------------------------------------------- */

static void unprivileged_child(void) {
    symmem_store *store = NULL;
    /* Another user's directory, then an own one that may not be written. */
    if (geteuid() == 0 && setuid(65534) != 0)
        exit(1);
    int result = 0;
    if (geteuid() == 65534 && symmem_store_open_file(path, &store) != SYMMEM_PERMISSION)
        result = 2;
    if (geteuid() == 65534 && symmem_store_open_file("//", &store) != SYMMEM_PERMISSION)
        result = 11;
    char own[] = "/tmp/symmem-store-XXXXXX";
    if (mkdtemp(own) == NULL || chmod(own, 0500) != 0)
        exit(3);
    if (symmem_store_open_file(own, &store) != SYMMEM_PERMISSION)
        result = 4;
    char below[64];
    snprintf(below, sizeof(below), "%s/x", own);
    if (symmem_store_open_file(below, &store) != SYMMEM_PERMISSION)
        result = 5;
    chmod(own, 0700);
    symmem_status status = symmem_store_open_file(own, &store);
    if (status != SYMMEM_OK)
        exit(6);
    /* The directory becomes unusable while in use. */
    chmod(own, 0000);
    size_t bytes;
    int64_t sum;
    char value[8];
    if (symmem_store_set(store, "k", "", 0, 100) != SYMMEM_PERMISSION ||
        symmem_store_get(store, "k", value, 8, &bytes, 100) != SYMMEM_PERMISSION ||
        symmem_store_wait(store, "k", 100) != SYMMEM_PERMISSION ||
        symmem_store_remove(store, "k", 100) != SYMMEM_PERMISSION ||
        symmem_store_add(store, "k", 1, &sum, 100) != SYMMEM_PERMISSION)
        result = 7;
    chmod(own, 0700);
    /* Values that cannot be written. */
    struct rlimit limit, all;
    getrlimit(RLIMIT_FSIZE, &all);
    limit = all;
    limit.rlim_cur = 10;
    setrlimit(RLIMIT_FSIZE, &limit);
    if (symmem_store_set(store, "k", "twelve bytes", 12, 100) != SYMMEM_LIMIT ||
        last_record().system_errno != EFBIG ||
        strstr(last_record().message, "RLIMIT_FSIZE is 10") == NULL)
        result = 8;
    symmem_store *second = NULL;
    char notify[64];
    snprintf(notify, sizeof(notify), "%s/notify", own);
    unlink(notify);
    if (symmem_store_open_file(own, &second) != SYMMEM_LIMIT) /* no room for the notify file */
        result = 9;
    if (count_files(own, 't') != 0)
        result = 10;
    setrlimit(RLIMIT_FSIZE, &all); /* for counts of coverage */
    symmem_store_close(store);
    remove_tree(own);
    exit(result);
}

TEST("opening") {
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL(symmem_store_open_file(NULL, &store), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_open_file("", &store), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_open_file(path, NULL), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_open_memory(NULL), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_open_file("/dev/null", &store), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(symmem_store_open_file("/dev/null/x", &store), SYMMEM_SYSTEM);
    CU_ASSERT_EQUAL(symmem_store_open_file("/nonexistent/a/b", &store), SYMMEM_SYSTEM);
    char name[5000];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    memcpy(name, "/tmp/", 5);
    CU_ASSERT_EQUAL(symmem_store_open_file(name, &store), SYMMEM_PATH_TOO_LONG);
    name[300] = '\0';
    CU_ASSERT_EQUAL(symmem_store_open_file(name, &store), SYMMEM_PATH_TOO_LONG);
    CU_ASSERT_PTR_NULL(store);

    int before = count_files("/proc/self/fd", '\0');
    mode_t mask = umask(0);
    store = open_file();
    CU_ASSERT_EQUAL(symmem_store_set(store, "k", "", 0, 0), SYMMEM_OK);
    umask(mask);
    struct stat about;
    CU_ASSERT(stat(path, &about) == 0 && (about.st_mode & 0777) == 0700);
    snprintf(name, sizeof(name), "%s/kk", path);
    CU_ASSERT(stat(name, &about) == 0 && (about.st_mode & 0777) == 0600);
    snprintf(name, sizeof(name), "%s/notify", path);
    CU_ASSERT(stat(name, &about) == 0 && (about.st_mode & 0777) == 0600);
    symmem_store_close(store);

    /* A notify file that is none. */
    unlink(name);
    CU_ASSERT_EQUAL(symlink("/nonexistent", name), 0);
    CU_ASSERT_EQUAL(symmem_store_open_file(path, &store), SYMMEM_SYSTEM);
    unlink(name);
    CU_ASSERT_EQUAL(reap(start(unprivileged_child)), 0);

    struct rlimit old, tight;
    getrlimit(RLIMIT_NOFILE, &old);
    tight = old;
    int next = dup(0);
    close(next);
    tight.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &tight);
    CU_ASSERT_EQUAL(symmem_store_open_file(path, &store), SYMMEM_LIMIT);
    tight.rlim_cur++;
    setrlimit(RLIMIT_NOFILE, &tight);
    CU_ASSERT_EQUAL(symmem_store_open_file(path, &store), SYMMEM_LIMIT);
    setrlimit(RLIMIT_NOFILE, &old);
    CU_ASSERT_EQUAL(count_files("/proc/self/fd", '\0'), before);
    remove_tree(path);
}

/* --- locks ------------------------------------------------------------------------------------ */

static int flock_error; /* of the next one; 0: it is as it is */
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
    if (flock_error == 0)
        return __real_flock(fd, operation);
    errno = flock_error;
    flock_error = 0;
    return -1;
}

TEST("a lock that cannot be taken") {
    static const struct {
        int error;
        symmem_status status;
    } cases[] = {{ENOLCK, SYMMEM_SYSTEM}, {EINTR, SYMMEM_OK}, {EWOULDBLOCK, SYMMEM_OK}};
    symmem_store *store = open_file();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t sum = 0;
        flock_error = cases[i].error;
        CU_ASSERT_EQUAL(symmem_store_add(store, "n", 1, &sum, 5000), cases[i].status);
        CU_ASSERT_EQUAL(flock_error, 0);
    }
    symmem_store_close(store);
    remove_tree(path);
}

/* --- no descriptor is left: a rank can still tell its peers ----------------------------------- */

/* No open() can succeed until the limit is put back. */
static struct rlimit take_all_descriptors(void) {
    struct rlimit before, none;
    int lowest_free = dup(STDERR_FILENO);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest_free;
    close(lowest_free);
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    CU_ASSERT_EQUAL(dup(STDERR_FILENO), -1);
    return before;
}

static void use(symmem_store *store, const char *counter, int rounds) {
    for (int64_t i = 0; i < rounds; i++) {
        int64_t sum = 0;
        int32_t value = 0;
        size_t bytes = 0;
        EXPECT_OK(symmem_store_set(store, "value", &(int32_t){7}, sizeof(value), 100));
        EXPECT_OK(symmem_store_get(store, "value", &value, sizeof(value), &bytes, 100));
        CU_ASSERT_EQUAL(value, 7);
        EXPECT_OK(symmem_store_add(store, counter, 1, &sum, 100));
        CU_ASSERT_EQUAL(sum, i + 1);
        EXPECT_FAIL(symmem_store_get(store, "absent", &value, sizeof(value), &bytes, 10),
                    SYMMEM_NOT_FOUND, "store_get");
    }
    EXPECT_OK(symmem_store_remove(store, counter, 100));
}

static void without_descriptors(void) {
    symmem_store *store = open_file();
    struct rlimit before = take_all_descriptors();
    use(store, "poor", 20);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    use(store, "rich", 3);
    symmem_store_close(store);
}

TEST("without descriptors") {
    without_descriptors();
    remove_tree(path);
}

/* Nothing of the reserve is left behind, and what is opened afterwards gets the same numbers. */
TEST("gives back") {
    int first = dup(STDERR_FILENO);
    close(first);
    for (int i = 0; i < 3; i++)
        without_descriptors();
    int last = dup(STDERR_FILENO);
    close(last);
    CU_ASSERT_EQUAL(first, last);
    remove_tree(path);
}

TEST("opening needs some") {
    symmem_store *store = NULL;
    struct rlimit before = take_all_descriptors();
    EXPECT_FAIL(symmem_store_open_file(path, &store), SYMMEM_LIMIT, "store_open_file");
    CU_ASSERT_PTR_NULL(store);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
}
