/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file store in a folder where others have been before: values of any bytes, files that are
 * none, names and keys of all kinds. A call answers at once and within the caller's buffer; what
 * was set is what is read.
 */
#include "fuzz.h"

#include <symmem/store.h>

#define VALUE_MAX 96
#define KEYS 6
#define PATIENCE_MS 8000u
#define WAIT_MS 2u

/* What is known of a key of the list. */
typedef struct known {
    bool sure; /* its file was not meddled with since */
    bool there;
    bool odd;    /* what stands in its place is no file, and the store has to see it */
    bool missed; /* it was absent while a store had the folder open, which then need not see what
                    was put in its place by other means [SM-STORE-09] */
    unsigned char value[VALUE_MAX];
    size_t bytes;
} known;

static const char *const keys[KEYS] = {"a", "b/c", "w/id/0", "g/x:1/2", "A.-_", "notify"};
static char path[192];

/* --- meddling ------------------------------------------------------------------------ */

/* The file of a key, or one of the store's own (NULL). */
static known *victim(fuzz_input *in, char *name, size_t capacity, known *table) {
    uint8_t which = fuzz_u8(in);
    if (which % 8 == 7) {
        snprintf(name, capacity, "%s/lock", path);
        return NULL;
    } else if (which % 8 == 6) {
        snprintf(name, capacity, "%s/notify", path);
    } else {
        snprintf(name, capacity, "%s/k%s", path, keys[which % 8]);
        for (char *at = name + strlen(path) + 1; *at != '\0'; at++)
            if (*at == '/')
                *at = '%';
        table[which % 8].sure = false;
        return &table[which % 8];
    }
    return NULL;
}

static void put_file(fuzz_input *in, const char *name, uint8_t form) {
    unsigned char bytes[VALUE_MAX];
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0)
        return;
    size_t count = fuzz_below(in, VALUE_MAX);
    fuzz_take(in, bytes, count);
    (void)!write(fd, bytes, count);
    if ((form & 0x80) != 0) /* far longer than any value may be, and not there */
        (void)!ftruncate(fd, (off_t)1 << 40);
    (void)fchmod(fd, (form & 0x40) != 0 ? 0 : 0600);
    close(fd);
}

static void put_socket(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || strlen(name) >= sizeof(address.sun_path)) {
        if (fd >= 0)
            close(fd);
        return;
    }
    memcpy(address.sun_path, name, strlen(name));
    (void)!bind(fd, (const struct sockaddr *)&address, sizeof(address));
    close(fd);
}

/* `opened`: a store has mapped the notify file, which must not become shorter from then on. */
static void meddle(fuzz_input *in, known *table, bool opened) {
    static const char *const targets[] = {"/dev/null", "nowhere", "notify", ".", "ka", "/dev/zero"};
    char name[256];
    uint8_t form = fuzz_u8(in);
    struct stat about;
    known *entry = victim(in, name, sizeof(name), table);
    if (strstr(name, "/notify") != NULL && opened)
        return;
    (void)unlink(name);
    (void)rmdir(name);
    switch (form % 6) {
    case 0:
        put_file(in, name, form);
        break;
    case 1:
        (void)!mkfifo(name, 0600);
        break;
    case 2:
        (void)!mkdir(name, 0700);
        break;
    case 3:
        (void)!symlink(targets[form / 8 % 6], name);
        break;
    case 4:
        put_socket(name);
        break;
    default:
        break;
    }
    if (entry != NULL)
        entry->odd = !entry->missed && lstat(name, &about) == 0 && !S_ISREG(about.st_mode);
}

/* --- calls ------------------------------------------------------------------------------ */

static bool key_is_good(const char *key) {
    size_t length = strlen(key);
    return length >= 1 && length <= SYMMEM_STORE_KEY_MAX &&
           strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/:") ==
               length;
}

static void call_get(symmem_store *store, fuzz_input *in, known *entry, const char *key) {
    size_t capacity = fuzz_below(in, VALUE_MAX), bytes = (size_t)-1;
    unsigned char *value = malloc(capacity + 1); /* its last byte is a guard */
    FUZZ_CHECK(value != NULL);
    memset(value, 0xa5, capacity + 1);
    symmem_status status = symmem_store_get(store, key, value, capacity, &bytes, WAIT_MS);
    entry->missed = entry->missed || status == SYMMEM_NOT_FOUND;
    FUZZ_CHECK(value[capacity] == 0xa5);
    FUZZ_CHECK(!entry->odd || status == SYMMEM_CORRUPT);
    if (entry->sure && entry->there && entry->bytes <= capacity) {
        FUZZ_CHECK(status == SYMMEM_OK && bytes == entry->bytes);
        FUZZ_CHECK(memcmp(value, entry->value, bytes) == 0);
    } else if (entry->sure && entry->there) {
        FUZZ_CHECK(status == SYMMEM_OUT_OF_RANGE && bytes == entry->bytes);
    } else if (entry->sure) {
        FUZZ_CHECK(status == SYMMEM_NOT_FOUND);
    }
    if (status == SYMMEM_OK)
        FUZZ_CHECK(bytes <= capacity);
    else
        fuzz_check_failure(status, 1);
    for (size_t i = 0; status == SYMMEM_OUT_OF_RANGE && i < capacity; i++)
        FUZZ_CHECK(value[i] == 0xa5);
    FUZZ_CHECK(status == SYMMEM_OK || status == SYMMEM_OUT_OF_RANGE || bytes == (size_t)-1);
    free(value);
}

static void call_set(symmem_store *store, fuzz_input *in, known *entry, const char *key) {
    unsigned char value[VALUE_MAX];
    size_t bytes = fuzz_below(in, VALUE_MAX);
    fuzz_take(in, value, bytes);
    symmem_status status = symmem_store_set(store, key, value, bytes, WAIT_MS);
    FUZZ_CHECK(!entry->sure || status == SYMMEM_OK);
    if (status != SYMMEM_OK) {
        fuzz_check_failure(status, 1);
        return;
    }
    entry->sure = entry->there = true;
    entry->odd = entry->missed = false;
    entry->bytes = bytes;
    memcpy(entry->value, value, bytes);
}

static void call_add(symmem_store *store, fuzz_input *in, known *entry, const char *key) {
    int64_t delta = (int64_t)fuzz_number(in, 1), value = 42;
    uint64_t before = 0;
    symmem_status status = symmem_store_add(store, key, delta, &value, WAIT_MS);
    if (status != SYMMEM_OK) {
        fuzz_check_failure(status, 1);
        FUZZ_CHECK(value == 42);
        return;
    }
    FUZZ_CHECK(!entry->sure || !entry->there || entry->bytes == sizeof(before));
    if (entry->sure && entry->there)
        memcpy(&before, entry->value, sizeof(before));
    FUZZ_CHECK(!entry->sure || (uint64_t)value == before + (uint64_t)delta);
    FUZZ_CHECK(!entry->odd);
    entry->sure = entry->there = true;
    entry->missed = false;
    entry->bytes = sizeof(value);
    memcpy(entry->value, &value, sizeof(value));
}

static void call_rest(symmem_store *store, known *entry, const char *key, bool remove) {
    symmem_status status =
        remove ? symmem_store_remove(store, key, WAIT_MS) : symmem_store_wait(store, key, WAIT_MS);
    if (status != SYMMEM_OK)
        fuzz_check_failure(status, 1);
    const bool need_not_look = entry->missed && !entry->sure;
    entry->missed = entry->missed || status == (remove ? SYMMEM_OK : SYMMEM_TIMEOUT);
    FUZZ_CHECK(remove || !entry->odd || status == SYMMEM_OK);
    if (remove) {
        FUZZ_CHECK(status == SYMMEM_OK || !entry->sure);
        entry->there = false;
        entry->sure = status == SYMMEM_OK && !need_not_look;
        entry->odd = entry->odd && status != SYMMEM_OK;
    } else if (entry->sure) {
        FUZZ_CHECK(status == (entry->there ? SYMMEM_OK : SYMMEM_TIMEOUT));
    }
}

/* A key out of the input: refused or not by its letters alone. Its file is a new one each time. */
static void call_with_text(symmem_store *store, fuzz_input *in) {
    char key[SYMMEM_STORE_KEY_MAX + 8];
    int64_t value = 0;
    fuzz_text(in, key, sizeof(key));
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(key, keys[i]) == 0)
            return;
    symmem_status status = symmem_store_add(store, key, 5, &value, WAIT_MS);
    if (key_is_good(key))
        FUZZ_CHECK(status != SYMMEM_INVALID_ARGUMENT);
    else
        FUZZ_CHECK(status == SYMMEM_INVALID_ARGUMENT);
    if (status == SYMMEM_OK)
        FUZZ_CHECK(symmem_store_remove(store, key, WAIT_MS) == SYMMEM_OK);
    else
        fuzz_check_failure(status, 1);
}

static void step(symmem_store *store, fuzz_input *in, known *table) {
    uint8_t form = fuzz_u8(in);
    size_t which = form / 8u % KEYS;
    uint64_t start_ms = fuzz_now_ms();
    symmem_clear_error();
    switch (form % 8) {
    case 0:
        call_set(store, in, &table[which], keys[which]);
        break;
    case 1:
    case 7:
        call_get(store, in, &table[which], keys[which]);
        break;
    case 2:
        call_add(store, in, &table[which], keys[which]);
        break;
    case 3:
    case 4:
        call_rest(store, &table[which], keys[which], form % 8 == 3);
        break;
    case 5:
        call_with_text(store, in);
        break;
    default:
        meddle(in, table, true);
        break;
    }
    FUZZ_CHECK(fuzz_now_ms() - start_ms < PATIENCE_MS);
}

static bool has_any_key(void) {
    DIR *listing = opendir(path);
    bool has_any = false;
    for (const struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;)
        has_any = has_any || entry->d_name[0] == 'k';
    if (listing != NULL)
        closedir(listing);
    return has_any;
}

void fuzz_one(fuzz_input *in) {
    known table[KEYS] = {{.sure = false}};
    symmem_store *store = NULL;
    snprintf(path, sizeof(path), "%s/store", fuzz_folder());
    fuzz_remove_tree(path);
    for (size_t i = 0; i < KEYS; i++)
        table[i].sure = true;
    uint32_t before = fuzz_below(in, 4);
    if (before > 0)
        FUZZ_CHECK(mkdir(path, 0700) == 0);
    for (; before > 0; before--)
        meddle(in, table, false);
    const bool counts_all = !has_any_key(); /* otherwise the store looks for each key once */
    for (size_t i = 0; i < KEYS; i++)
        table[i].missed = counts_all;
    symmem_status status = symmem_store_open_file(path, &store);
    if (status == SYMMEM_OK)
        for (uint32_t steps = 1 + fuzz_below(in, 16); steps > 0; steps--)
            step(store, in, table);
    else
        fuzz_check_failure(status, 1);
    FUZZ_CHECK((status == SYMMEM_OK) == (store != NULL));
    symmem_store_close(store);
    fuzz_remove_tree(path);
}
