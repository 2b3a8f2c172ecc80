/* SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"
#include "bootstrap/bootstrap.h"

#include <ftw.h>
#include <time.h>

void fuzz_broken(const char *file, int line, const char *condition) {
    symmem_error_record record;
    symmem_last_error(&record);
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    fprintf(stderr, "latest record: %s %.31s/%.31s: %.255s\n", symmem_status_name(record.status),
            record.operation, record.stage, record.message);
    abort();
}

/* --- input ---------------------------------------------------------------------------- */

void fuzz_take(fuzz_input *in, void *bytes, size_t count) {
    size_t there = count < in->left ? count : in->left;
    memset(bytes, 0, count);
    if (there == 0)
        return;
    memcpy(bytes, in->at, there);
    in->at += there;
    in->left -= there;
}

#define TAKE(name, type)                                                                           \
    type name(fuzz_input *in) {                                                                    \
        type value;                                                                                \
        fuzz_take(in, &value, sizeof(value));                                                      \
        return value;                                                                              \
    }
TAKE(fuzz_u8, uint8_t)
TAKE(fuzz_u16, uint16_t)
TAKE(fuzz_u32, uint32_t)
TAKE(fuzz_u64, uint64_t)

uint32_t fuzz_below(fuzz_input *in, uint32_t count) {
    return count <= 256 ? fuzz_u8(in) % count : fuzz_u16(in) % count;
}

uint64_t fuzz_number(fuzz_input *in, uint64_t about) {
    uint8_t form = fuzz_u8(in);
    int64_t off = (int8_t)fuzz_u8(in);
    switch (form % 5) {
    case 0:
        return about;
    case 1:
        return about + (uint64_t)off;
    case 2:
        return (uint64_t)(uint8_t)off;
    case 3:
        return (1ull << (form / 5 % 64)) + (uint64_t)off;
    default:
        return fuzz_u64(in);
    }
}

void fuzz_text(fuzz_input *in, char *text, size_t capacity) {
    size_t length = fuzz_below(in, 256);
    if (length >= capacity)
        length = capacity - 1;
    if (length > in->left)
        length = in->left;
    fuzz_take(in, text, length);
    text[length] = '\0';
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\0')
            text[i] = ' ';
}

void fuzz_spoil(fuzz_input *in, void *object, size_t bytes) {
    unsigned char *at = object;
    if (bytes == 0)
        return;
    for (uint32_t count = fuzz_below(in, 4); count > 0; count--) {
        size_t start = fuzz_u16(in) % bytes;
        uint8_t form = fuzz_u8(in);
        unsigned char patch[16];
        size_t length = (size_t)(form & 15) + 1;
        fuzz_take(in, patch, length);
        for (size_t i = 0; i < length && start + i < bytes; i++)
            at[start + i] = (form & 16) != 0 ? (unsigned char)(at[start + i] ^ patch[i]) : patch[i];
    }
}

/* --- time ------------------------------------------------------------------------------- */

static uint64_t slept_ns;

static uint64_t now_ns(void *arg) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + slept_ns;
}

static void sleep_at_once(void *arg, uint64_t until_ns) {
    const uint64_t before_ns = now_ns(arg);
    FUZZ_CHECK(until_ns != UINT64_MAX); /* nothing would ever wake it */
    slept_ns += until_ns > before_ns ? until_ns - before_ns : 0;
}

static void changed(void *arg) {}

static void threads(void *arg, int change) {}

const symmem_clock fuzz_clock = {.size = sizeof(fuzz_clock),
                                 .now_ns = now_ns,
                                 .wait = sleep_at_once,
                                 .changed = changed,
                                 .threads = threads};

/* --- process ---------------------------------------------------------------------------- */

static uint64_t random_state;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in = {data, size};
    /* Different in each process: two of them at once must not take the same socket name. */
    random_state = 0x9e3779b97f4a7c15ull ^ (uint64_t)getpid() << 20;
    symmem_clear_error();
    sm_clock_use(&fuzz_clock);
    const int descriptors = fuzz_count_descriptors();
    fuzz_one(&in);
    FUZZ_CHECK(fuzz_count_descriptors() == descriptors);
    return 0;
}

ssize_t __wrap_getrandom(void *bytes, size_t count, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t count, unsigned flags) {
    unsigned char *to = bytes;
    for (size_t i = 0; i < count; i++) {
        random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (unsigned char)(random_state >> 56);
    }
    return (ssize_t)count;
}

int fuzz_count_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    FUZZ_CHECK(directory != NULL);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 3; /* the two dots and the folder itself */
}

int fuzz_count_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    FUZZ_CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        char mode[5] = "";
        if (sscanf(line, "%*s %4s", mode) == 1 && mode[3] == 's')
            count++;
    }
    fclose(maps);
    return count;
}

uint64_t fuzz_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *walk) {
    (void)remove(path);
    return 0;
}

void fuzz_remove_tree(const char *path) {
    (void)nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static char folder[128];

static void remove_folder(void) {
    fuzz_remove_tree(folder);
}

const char *fuzz_folder(void) {
    if (folder[0] != '\0')
        return folder;
    const char *parent = getenv("TMPDIR");
    if (parent == NULL || strlen(parent) > 80)
        parent = "/tmp";
    snprintf(folder, sizeof(folder), "%s/symmem-fuzz-XXXXXX", parent);
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    FUZZ_CHECK(atexit(remove_folder) == 0);
    return folder;
}

/* --- records ------------------------------------------------------------------------------ */

bool fuzz_is_status(int value) {
    switch (value) {
#define IS_STATUS(name, number, text) case number:
        SYMMEM_STATUS_LIST(IS_STATUS)
#undef IS_STATUS
        return true;
    default:
        return false;
    }
}

static bool ends(const char *text, size_t capacity) {
    return memchr(text, '\0', capacity) != NULL;
}

static uint32_t count_missing(const symmem_error_record *record) {
    uint32_t count = 0;
    for (int32_t rank = 0; rank < SYMMEM_MAX_WORLD_SIZE; rank++)
        count += symmem_error_is_missing(record, rank) ? 1 : 0;
    return count;
}

void fuzz_check_failure(symmem_status status, int32_t world_size) {
    symmem_error_record record;
    symmem_last_error(&record);
    FUZZ_CHECK(status != SYMMEM_OK && fuzz_is_status(status));
    FUZZ_CHECK(record.status == status);
    FUZZ_CHECK(ends(record.operation, sizeof(record.operation)));
    FUZZ_CHECK(ends(record.stage, sizeof(record.stage)));
    FUZZ_CHECK(ends(record.group, sizeof(record.group)));
    FUZZ_CHECK(ends(record.message, sizeof(record.message)));
    FUZZ_CHECK(record.operation[0] != '\0');
    FUZZ_CHECK(record.failed_rank >= -1 && record.failed_rank < world_size);
    FUZZ_CHECK(record.channel >= -1);
    FUZZ_CHECK(record.missing_count == count_missing(&record));
    for (int32_t rank = world_size; rank < SYMMEM_MAX_WORLD_SIZE; rank++)
        FUZZ_CHECK(!symmem_error_is_missing(&record, rank));
}
