/* SPDX-License-Identifier: BSD-3-Clause */
/* How long an allocation waits for the device. The device is the suite's own, for those of backends
 * cannot be held up at will; and it says at once how long it would take. */
#include "fake_table.h"
#include "case_help.h"

#define LEAST_MS 1000u /* of the limit, whatever the context's */
#define BEYOND_MS 10000u

static uint32_t needs_ms; /* to come to the zeroing */
static int held;          /* memory that was not released */
static bool is_open;

static symmem_status late_open(const symmem_host *host, const symmem_backend_config *config,
                               void **instance_p) {
    is_open = true;
    *instance_p = (void *)(uintptr_t)host;
    return SYMMEM_OK;
}

static void late_close(void *instance) {
    is_open = false;
}

/* In time to the very end of the limit: it counts from the question, that is, from now or later. */
static symmem_status late_alloc(void *instance, int32_t device, size_t bytes,
                                symmem_memory *memory) {
    const symmem_host *host = instance;
    const uint64_t ready_ns = (tk_now_ms() + needs_ms) * 1000000u;
    const uint64_t deadline_ns = host->deadline_ns(host);
    if (deadline_ns != 0 && ready_ns > deadline_ns)
        return host->fail(host, SYMMEM_TIMEOUT, 0, "zeroing", "the device does not come to it");
    symmem_status status = fake_table_a.memory->alloc(instance, device, bytes, memory);
    held += status == SYMMEM_OK;
    return status;
}

static void late_release(void *instance, symmem_memory *memory) {
    held--;
    fake_table_a.memory->release(instance, memory);
}

/* A new context on it with this default limit. */
static void begin(struct tk *t, uint32_t default_ms) {
    static flat_backend table; /* outlives the context */
    TK_REINIT(t, options.default_timeout_ms = default_ms);
    table = flat_of(&fake_table_a);
    table.head.name = "suite_late";
    table.head.flags |= SYMMEM_CAP_POOL;
    table.open = late_open;
    table.close = late_close;
    table.memory_alloc = late_alloc;
    table.memory_release = late_release;
    use_table(t, flat_table(&table));
    needs_ms = 0;
    held = 0;
}

static void check_limit(struct tk *t, uint32_t default_ms, uint32_t limit_ms) {
    void *memory = NULL;
    tk_checkpoint(t, "the default is %u ms", default_ms);
    begin(t, default_ms);
    needs_ms = limit_ms;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 64, -1, NULL, &memory));
    TK_OK(t, symmem_free(t->context, memory));
    needs_ms = limit_ms + BEYOND_MS;
    TK_FAILS(t, TIMEOUT, symmem_alloc(t->context, 64, -1, NULL, &memory));
}

TK_TEST(alloc, has_a_limit, "SM-ALLOC-16", TK_ON_FAKES) {
    check_limit(t, 20, LEAST_MS);
    check_limit(t, LEAST_MS, LEAST_MS);
    check_limit(t, 3000, 3000);
    check_limit(t, 0, 30000); /* the context's own default */
}

/* Refused, with a record and without an output. */
static void refuse(struct tk *t, const symmem_alloc_options *options) {
    void *const untouched = t;
    void *memory = untouched;
    symmem_clear_error();
    needs_ms = LEAST_MS + BEYOND_MS;
    TK_FAILS(t, TIMEOUT, symmem_alloc(t->context, 4096, -1, options, &memory));
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_TIMEOUT, record.status);
    TK_EQ_STR(t, "alloc", record.operation);
    TK_CHECK(t, record.message[0] != '\0');
    TK_EQ_INT(t, 0, record.missing_count); /* no other rank is waited for */
    TK_EQ_PTR(t, untouched, memory);
    TK_CHECK(t, !is_symmetric(t, memory));
    needs_ms = 0;
}

static void *allocate(struct tk *t, size_t bytes, const symmem_alloc_options *options) {
    void *memory = NULL;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, bytes, -1, options, &memory));
    return memory;
}

TK_TEST(alloc, late_leaves_nothing, "SM-ALLOC-16,SM-ERROR-04", TK_ON_FAKES) {
    symmem_alloc_options persistent;
    char bytes[64], zeroes[64] = {0};
    TK_REQ(t, "SM-ALLOC-16");
    symmem_alloc_options_init(&persistent);
    persistent.alloc_id = 7;
    begin(t, LEAST_MS);
    refuse(t, NULL); /* also as the first use of the backend */
    void *first = allocate(t, 64, NULL);
    TK_EQ_INT(t, 1, memory_info(t, first).ordinal);
    refuse(t, NULL);
    refuse(t, &persistent);
    TK_EQ_INT(t, 1, held);
    /* As if nothing had been: the id goes with another size. */
    void *second = allocate(t, 64, &persistent);
    TK_EQ_INT(t, 2, memory_info(t, second).ordinal);
    TK_OK(t, symmem_copy(t->context, bytes, second, sizeof(bytes), NULL));
    TK_CHECK(t, memcmp(bytes, zeroes, sizeof(bytes)) == 0);
    TK_OK(t, symmem_free(t->context, second));
    TK_OK(t, symmem_free(t->context, first));
    tk_end_context(t);
    TK_EQ_INT(t, 0, held);
    TK_CHECK(t, !is_open);
}

/* A block of a segment that is there waits for nothing. */
TK_TEST(alloc, segment_has_a_limit, "SM-ALLOC-16", TK_ON_FAKES) {
    void *const untouched = t;
    void *first = NULL, *second = untouched;
    symmem_pool *pool = NULL;
    begin(t, LEAST_MS);
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, -1, 4096, &pool));
    needs_ms = LEAST_MS + BEYOND_MS;
    TK_FAILS(t, TIMEOUT, symmem_pool_alloc(pool, 64, &second));
    TK_EQ_PTR(t, untouched, second);
    TK_EQ_INT(t, 0, held);
    needs_ms = LEAST_MS;
    TK_REQUIRE_OK(t, symmem_pool_alloc(pool, 64, &first));
    needs_ms = LEAST_MS + BEYOND_MS;
    TK_OK(t, symmem_pool_alloc(pool, 64, &second));
    TK_EQ_INT(t, 1, held);
    TK_OK(t, symmem_pool_free(pool, second));
    TK_OK(t, symmem_pool_free(pool, first));
    TK_OK(t, symmem_pool_destroy(pool));
    TK_EQ_INT(t, 0, held);
    tk_end_context(t);
}
