/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The environment: numbers and flags of any bytes. Ranks and world sizes are read as a strict
 * parser of this file's own reads them; a context comes out exactly if they make sense.
 */
#include "fuzz.h"
#include "bootstrap/bootstrap.h"
#include "shm.h"
#include "backend.h"

#define VALUE_BYTES 96

static const char *const numbers[] = {"RANK",     "PMIX_RANK",    "OMPI_COMM_WORLD_RANK",
                                      "PMI_RANK", "SLURM_PROCID", "WORLD_SIZE",
                                      "PMI_SIZE", "LOCAL_RANK"};
/* In the order in which they are asked. */
static const struct launcher {
    const char *name, *rank, *size, *local;
} launchers[] = {
    {"env", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"pmix", "PMIX_RANK", NULL, "PMIX_LOCAL_RANK"},
    {"ompi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};
static const char *const device_names[] = {"SYMMEM_SHM_DEVICES", NULL};
static const char *const slot_names[] = {"SYMMEM_SHM_MULTICAST_SLOTS", NULL};
static const char *const others[] = {"SYMMEM_BACKEND",
                                     "SYMMEM_BACKEND_PATH",
                                     "SYMMEM_SOCKET_DIR",
                                     "SYMMEM_MULTICAST",
                                     "TORCH_SYMM_MEM_DISABLE_MULTICAST",
                                     "SYMMEM_ALLOW_OVERLAPPING_DEVICES",
                                     "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES",
                                     "SYMMEM_SHM_DEVICES",
                                     "SYMMEM_SHM_MULTICAST_SLOTS",
                                     "SYMMEM_SHM_ISA",
                                     "SYMMEM_STORE",
                                     "SYMMEM_ALL_REDUCE_TABLE"};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void forget_all(void) {
    for (size_t i = 0; i < COUNT(launchers); i++) {
        unsetenv(launchers[i].rank);
        unsetenv(launchers[i].local);
        if (launchers[i].size != NULL)
            unsetenv(launchers[i].size);
    }
    unsetenv("SYMMEM_LAUNCHER");
    for (size_t i = 0; i < COUNT(others); i++)
        unsetenv(others[i]);
}

/* --- the parser to compare with: an optional minus sign and digits, nothing else ------- */

static bool read_number(const char *text, int64_t *value_p) {
    bool negative = text[0] == '-';
    const char *at = text + (negative ? 1 : 0);
    const uint64_t limit = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    uint64_t value = 0;
    if (*at == '\0')
        return false;
    for (; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return false;
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *value_p = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* Reads the first name that is set. Returns 1 if it was found, 0 if none is set, -1 if it is set to
 * something else. */
static int expected(const char *const *names, int64_t low, int64_t high, int64_t *value_p) {
    for (; *names != NULL; names++) {
        const char *text = getenv(*names);
        if (text == NULL)
            continue;
        return read_number(text, value_p) && *value_p >= low && *value_p <= high ? 1 : -1;
    }
    return 0;
}

static void compare(fuzz_input *in) {
    static const char *const list[] = {"PMI_RANK", "RANK", NULL};
    int64_t low = (int64_t)fuzz_number(in, 0), high = (int64_t)fuzz_number(in, 1024);
    int64_t value = 4711, wanted = 0;
    symmem_status status = sm_env_int(list, low, high, &value);
    int found = expected(list, low, high, &wanted);
    FUZZ_CHECK(status == (found == 1   ? SYMMEM_OK
                          : found == 0 ? SYMMEM_NOT_FOUND
                                       : SYMMEM_INVALID_ARGUMENT));
    FUZZ_CHECK(value == (found == 1 ? wanted : 4711));
    if (found == -1)
        fuzz_check_failure(status, 1);
    const char *flag = getenv("RANK");
    bool zero = flag != NULL && strcmp(flag, "0") == 0,
         one = flag != NULL && strcmp(flag, "1") == 0;
    FUZZ_CHECK(sm_env_flag("RANK", true) == !zero);
    FUZZ_CHECK(sm_env_flag("RANK", false) == one);
}

/* --- setting them --------------------------------------------------------------------- */

static void any_value(fuzz_input *in, char *value) {
    static const char *const good[] = {"0", "1", "2", "3", "1024", "", "-1", "file:"};
    uint8_t form = fuzz_u8(in);
    if (form % 2 == 0)
        snprintf(value, VALUE_BYTES, "%s", good[form / 2 % COUNT(good)]);
    else if (form % 16 == 15)
        snprintf(value, VALUE_BYTES, "%lld", (long long)fuzz_number(in, 1024));
    else
        fuzz_text(in, value, VALUE_BYTES);
}

/* Nothing outside the folder of this process is opened, made or loaded. */
static void set_other(fuzz_input *in) {
    const char *name = others[fuzz_below(in, COUNT(others))];
    char value[VALUE_BYTES], inside[VALUE_BYTES + 192];
    any_value(in, value);
    if (strcmp(name, "SYMMEM_STORE") == 0 && strncmp(value, "tcp://", 6) == 0)
        value[5] = '_'; /* no wait for a rank, and no port taken */
    if (strcmp(name, "SYMMEM_STORE") == 0 && strncmp(value, "file:", 5) == 0 && value[5] != '\0') {
        for (char *at = value; *at != '\0'; at++)
            if (*at == '/' || *at == '.')
                *at = '_';
        snprintf(inside, sizeof(inside), "file:%s/%s", fuzz_folder(), value + 5);
    } else if (strcmp(name, "SYMMEM_BACKEND") == 0 && strchr(value, '/') != NULL) {
        snprintf(inside, sizeof(inside), "%s/not_elf.so", fuzz_folder());
    } else {
        snprintf(inside, sizeof(inside), "%s", value);
    }
    setenv(name, inside, 1);
}

static void name_launcher(fuzz_input *in) {
    uint8_t form = fuzz_u8(in) % 8;
    if (form == 7)
        setenv("SYMMEM_LAUNCHER", "none", 1);
    else if (form >= 1 && form <= COUNT(launchers))
        setenv("SYMMEM_LAUNCHER", launchers[form - 1].name, 1);
}

static void set_some(fuzz_input *in) {
    char value[VALUE_BYTES];
    for (uint32_t count = fuzz_below(in, 5); count > 0; count--) {
        const char *name = numbers[fuzz_below(in, COUNT(numbers))];
        any_value(in, value);
        setenv(name, value, 1);
    }
    for (uint32_t count = fuzz_below(in, 5); count > 0; count--)
        set_other(in);
}

/* --- a context out of it ----------------------------------------------------------------- */

/* Returns 1 if all machines have it, 0 if this one may, -1 if none does. */
static int has_instruction_set(void) {
    const char *name = getenv("SYMMEM_SHM_ISA");
    if (name == NULL || strcmp(name, "portable") == 0)
        return 1;
    return strcmp(name, "avx2") == 0 || strcmp(name, "avx512") == 0 ? 0 : -1;
}

static void use(symmem_context *context) {
    const char *name = NULL;
    int32_t count = 0;
    bool multicast = false;
    symmem_status status =
        symmem_register_backend(context, symmem_backend_entry(SYMMEM_BACKEND_ABI));
    FUZZ_CHECK(status == SYMMEM_OK || status == SYMMEM_EXISTS);
    FUZZ_CHECK(symmem_get_backend(context, &name) == SYMMEM_OK);
    if (name == NULL)
        status = symmem_set_backend(context, "shm");
    if (name == NULL && status != SYMMEM_OK)
        return;
    status = symmem_device_count(context, &count);
    int64_t devices = 0, slots = 0;
    int has_devices = expected(device_names, 1, SHM_MAX_DEVICES, &devices);
    int has_slots = expected(slot_names, 0, INT32_MAX, &slots);
    int has_set = has_instruction_set();
    FUZZ_CHECK(status != SYMMEM_OK || (has_devices >= 0 && has_slots >= 0 && has_set >= 0));
    FUZZ_CHECK(status == SYMMEM_OK || has_devices < 0 || has_slots < 0 || has_set < 1);
    if (status != SYMMEM_OK) {
        fuzz_check_failure(status, 1024);
        return;
    }
    FUZZ_CHECK(count >= 1 && (has_devices == 0 || count == devices));
    FUZZ_CHECK(symmem_has_multicast_support(context, 1, 0, &multicast) == SYMMEM_OK);
    const char *off = getenv("SYMMEM_MULTICAST");
    FUZZ_CHECK(!multicast || off == NULL || strcmp(off, "0") != 0);
}

/* As expected(), of one variable. NULL: never set. */
static int expected_of(const char *name, int64_t low, int64_t high, int64_t *value_p) {
    const char *const names[] = {name, NULL};
    return expected(names, low, high, value_p);
}

/* The launcher that is named, or the first one that gives both numbers. NULL: there is none.
 * [SM-CONTEXT-13] */
static const struct launcher *choose_launcher(void) {
    const char *name = getenv("SYMMEM_LAUNCHER");
    for (size_t i = 0; i < COUNT(launchers); i++) {
        const struct launcher *one = &launchers[i];
        const bool tells =
            getenv(one->rank) != NULL && one->size != NULL && getenv(one->size) != NULL;
        if (name == NULL ? tells : strcmp(name, one->name) == 0)
            return tells ? one : NULL;
    }
    return NULL;
}

/* Whether another launcher says another number. What is no number is ignored. */
static bool is_contradicted(const struct launcher *chosen, int64_t rank, int64_t world) {
    bool is_other = false;
    int64_t value = 0;
    if (getenv("SYMMEM_LAUNCHER") != NULL)
        return false;
    for (size_t i = 0; i < COUNT(launchers); i++) {
        if (&launchers[i] == chosen)
            continue;
        if (expected_of(launchers[i].rank, 0, INT32_MAX, &value) == 1)
            is_other = is_other || value != rank;
        if (expected_of(launchers[i].size, 0, INT32_MAX, &value) == 1)
            is_other = is_other || value != world;
    }
    return is_other;
}

static void check_context(symmem_context *context, symmem_status status) {
    int64_t world = 0, rank = 0, local = 0;
    int32_t got = 0;
    const struct launcher *chosen = choose_launcher();
    bool good = chosen != NULL &&
                expected_of(chosen->size, 1, SYMMEM_MAX_WORLD_SIZE, &world) == 1 &&
                expected_of(chosen->rank, 0, SYMMEM_MAX_WORLD_SIZE - 1, &rank) == 1 &&
                rank < world && !is_contradicted(chosen, rank, world);
    int has_local = good ? expected_of(chosen->local, 0, INT32_MAX, &local) : 0;
    good = good && has_local >= 0;
    FUZZ_CHECK((status == SYMMEM_OK) == (context != NULL));
    if (!good)
        FUZZ_CHECK(status == SYMMEM_INVALID_ARGUMENT);
    if (status != SYMMEM_OK) {
        fuzz_check_failure(status, SYMMEM_MAX_WORLD_SIZE);
        return;
    }
    FUZZ_CHECK(symmem_context_rank(context, &got) == SYMMEM_OK && got == rank);
    FUZZ_CHECK(symmem_context_world_size(context, &got) == SYMMEM_OK && got == world);
    FUZZ_CHECK(symmem_context_local_rank(context, &got) == SYMMEM_OK &&
               got == (has_local == 1 ? local : rank));
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    char path[192];
    snprintf(path, sizeof(path), "%s/not_elf.so", fuzz_folder());
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, "text", 4) == 4);
    close(fd);
    return 0;
}

static void log_nothing(void *arg, const char *line) {}

void fuzz_one(fuzz_input *in) {
    symmem_context_options options;
    symmem_context *context = NULL;
    forget_all();
    set_some(in);
    compare(in);
    name_launcher(in);
    symmem_context_options_init(&options);
    options.log = log_nothing;
    options.clock = &fuzz_clock;
    symmem_clear_error();
    symmem_status status = symmem_init(&options, &context);
    check_context(context, status);
    if (status == SYMMEM_OK)
        use(context);
    symmem_context_free(context);
    const char *store = getenv("SYMMEM_STORE");
    if (store != NULL && strlen(store) > 5 + strlen(fuzz_folder()) + 1)
        fuzz_remove_tree(store + 5);
    forget_all();
}
