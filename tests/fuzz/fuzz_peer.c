/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A whole rendezvous with evil peers. One real context on the emulation; all others mirror its join
 * records, rendezvous records, agreements and descriptors, except where the input changes them.
 * Afterwards they overwrite parts of the shared signal state. Every call ends with success or a
 * proper failure, and everything is given back.
 */
#include "evil_store.h"
#include "bootstrap/exchange.h"
#include "rendezvous/rendezvous.h"
#include "stream/channel.h"
#include "shm.h"
#include "backend.h"

#define WORLD_MAX 3
#define BYTES 8192u
#define SHARED_BYTES (1u << 18)
#define LIMIT_MS 25u
#define SIGNAL_MS 2u
#define PATIENCE_MS 8000u

typedef struct world {
    evil_store evil;
    fuzz_input *in;
    symmem_context *context;
    symmem_group *group;
    sm_ipc *peer;
    uint64_t fd_sequence;
    sm_join answered; /* the join that the sequence counts from */
    int signals_fd, data_fd, multicast_fd;
    unsigned char *signals; /* the evil ranks', as they see them */
    int32_t rank, size;
} world;

/* --- what the peers do ------------------------------------------------------------------- */

/* A field that says how memory is shared takes another value of a likely kind. */
static void spoil_field(fuzz_input *in, sm_rendezvous_record *record) {
    sm_rdv_share *const shares[] = {&record->data, &record->signals, &record->multicast};
    uint8_t form = fuzz_u8(in);
    sm_rdv_share *share = shares[form / 4 % 3];
    switch (form % 4) {
    case 1:
        share->mapped_bytes = fuzz_number(in, share->mapped_bytes);
        break;
    case 2:
        share->kind = fuzz_u8(in);
        break;
    case 3:
        record->flags = fuzz_u8(in);
        break;
    default:
        break;
    }
}

/* Ranks differ in their device; rank 0 offers a multicast object. */
static void vary(const evil_store *evil, int32_t rank, unsigned char *payload, size_t bytes,
                 void *arg) {
    sm_rendezvous_record record;
    if (bytes != sizeof(record))
        return;
    memcpy(&record, payload, sizeof(record));
    if (record.magic != SM_RDV_MAGIC)
        return;
    record.device = rank;
    if (rank == 0 && (record.flags & SM_RDV_MULTICAST) != 0) {
        record.multicast.kind = SYMMEM_SHARE_FD;
        record.multicast.mapped_bytes = 4096;
    }
    spoil_field(evil->in, &record);
    memcpy(payload, &record, sizeof(record));
}

static void send_descriptors(world *self, int32_t source, uint32_t kind, int count, int per_rank) {
    const sm_join *to = &self->evil.join;
    int fds[3 * WORLD_MAX];
    sm_ipc_tag tag = {.group = self->evil.id, .sequence = self->fd_sequence, .source = source};
    tag.kind = kind;
    for (int32_t rank = 0; rank < self->size; rank++) {
        sm_join join = self->evil.join;
        if (rank != self->rank)
            evil_join(&self->evil, rank, &join);
        for (size_t i = 0; i < sizeof(tag.nonce); i++)
            tag.nonce[i] = (uint8_t)(tag.nonce[i] ^ join.nonce[i]);
    }
    uint8_t form = fuzz_u8(self->in);
    if ((form & 1) != 0)
        fuzz_spoil(self->in, &tag, sizeof(tag));
    for (int i = 0; i < count; i++)
        fds[i] = i % per_rank == 0   ? self->signals_fd
                 : i % per_rank == 1 ? self->data_fd
                                     : self->multicast_fd;
    if ((form & 2) != 0)
        fds[fuzz_below(self->in, (uint32_t)count)] = -1;
    if ((form & 4) != 0)
        count = (int)fuzz_below(self->in, (uint32_t)count + 1);
    (void)sm_ipc_send(self->peer, to->address, to->address_bytes, &tag, fds, count, 1);
}

/* The real rank has told of its memory: descriptors are next, so they are sent now. */
static void given(evil_store *evil, void *arg) {
    world *self = arg;
    sm_rendezvous_record record;
    if (evil->part_bytes != sizeof(sm_part) + sizeof(record))
        return;
    memcpy(&record, evil->part + sizeof(sm_part), sizeof(record));
    if (record.status != SYMMEM_OK)
        return;
    SM_ATTEMPT(answering);
    if (memcmp(&self->answered, &evil->join, sizeof(evil->join)) != 0)
        self->fd_sequence = 0;
    self->answered = evil->join;
    bool multicast = (record.flags & SM_RDV_MULTICAST) != 0;
    int count = multicast ? 3 : record.mapping_generation != 0 ? 1 : 2;
    for (int32_t rank = 1; self->rank == 0 && rank < self->size; rank++)
        send_descriptors(self, rank, 1, count, count);
    if (self->rank != 0)
        send_descriptors(self, 0, 2, count * self->size, count);
    self->fd_sequence++;
}

static void log_nothing(void *arg, const char *line) {}

/* --- life ---------------------------------------------------------------------------------- */

static int shared_file(void) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, SHARED_BYTES) == 0);
    return fd;
}

static void make_multicast(world *self) {
    /* As the emulation lays it out: two counts, the world's size, and the bytes. */
    const struct {
        uint32_t attached, bound;
        int32_t world_size;
        uint32_t reserved;
        uint64_t bytes;
    } object = {.attached = (uint32_t)self->size - 1, .world_size = self->size, .bytes = BYTES};
    FUZZ_CHECK(pwrite(self->multicast_fd, &object, sizeof(object), 0) == sizeof(object));
}

static void open_world(world *self, fuzz_input *in) {
    symmem_context_options options;
    memset(self, 0, sizeof(*self));
    self->in = in;
    self->size = 2 + (int32_t)fuzz_below(in, WORLD_MAX - 1);
    self->rank = (int32_t)fuzz_below(in, (uint32_t)self->size);
    self->signals_fd = shared_file();
    self->data_fd = shared_file();
    self->multicast_fd = shared_file();
    make_multicast(self);
    self->signals =
        mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, self->signals_fd, 0);
    FUZZ_CHECK(self->signals != MAP_FAILED);
    FUZZ_CHECK(sm_ipc_create(NULL, NULL, &self->peer) == SYMMEM_OK);
    symmem_context_options_init(&options);
    options.rank = self->rank;
    options.world_size = self->size;
    options.local_rank = self->rank;
    static fuzz_input nothing; /* honest until the context is there */
    options.store = evil_store_open(&self->evil, &nothing, self->rank, self->size);
    options.allow_overlapping_devices = fuzz_u8(in) & 1;
    options.multicast = fuzz_u8(in) & 1;
    options.backend = "";
    options.log = log_nothing;
    FUZZ_CHECK(symmem_init(&options, &self->context) == SYMMEM_OK);
    FUZZ_CHECK(symmem_register_backend(self->context, symmem_backend_entry(SYMMEM_BACKEND_ABI)) ==
               SYMMEM_OK);
    FUZZ_CHECK(symmem_set_backend(self->context, "shm") == SYMMEM_OK);
    FUZZ_CHECK(symmem_group_create(self->context, "fuzz", NULL, 0, NULL, &self->group) ==
               SYMMEM_OK);
    self->evil.in = in;
    self->evil.given = given;
    self->evil.vary = vary;
    self->evil.arg = self;
    sm_ipc_address(self->peer, self->evil.address, &self->evil.address_bytes);
}

static void close_world(world *self, symmem_store *store) {
    symmem_context_free(self->context);
    sm_ipc_destroy(self->peer);
    evil_store_close(&self->evil, store);
    munmap(self->signals, SHARED_BYTES);
    close(self->signals_fd);
    close(self->data_fd);
    close(self->multicast_fd);
}

/* --- what the real rank does --------------------------------------------------------------- */

static void check(const world *self, symmem_status status, uint64_t start_ms) {
    FUZZ_CHECK(fuzz_now_ms() - start_ms < PATIENCE_MS);
    if (status != SYMMEM_OK)
        fuzz_check_failure(status, self->size);
}

static symmem_status operate(world *self, symmem_handle *handle, uint8_t form) {
    unsigned char bytes[64] = {0};
    int32_t peer = form / 8 % self->size, channel = form / 64;
    switch (form % 8) {
    case 0:
        return symmem_put(handle, peer, fuzz_number(self->in, BYTES - 64), bytes, sizeof(bytes),
                          NULL);
    case 1:
        return symmem_get(handle, peer, fuzz_number(self->in, BYTES - 64), bytes, sizeof(bytes),
                          NULL);
    case 2:
        return symmem_put_signal(handle, peer, channel, SIGNAL_MS, NULL);
    case 3:
        if (channel == 3) /* a word of the peer's, which may hold anything */
            return symmem_wait_value64(handle, peer, fuzz_number(self->in, BYTES - 8),
                                       (symmem_compare)(form / 8 % 7), form, peer, SIGNAL_MS, NULL);
        return symmem_wait_signal(handle, peer, channel, SIGNAL_MS, NULL);
    case 4:
        return symmem_barrier(handle, channel, SIGNAL_MS, NULL);
    case 5:
        return symmem_handle_reset(handle, LIMIT_MS);
    case 6:
        return symmem_multimem_store(handle, fuzz_number(self->in, 0), bytes, sizeof(bytes), NULL);
    default:
        fuzz_spoil(self->in, self->signals, SHARED_BYTES / 8);
        return SYMMEM_OK;
    }
}

static void use(world *self, symmem_handle *handle) {
    void *const *buffers = NULL;
    symmem_handle_info info;
    FUZZ_CHECK(symmem_handle_get_info(handle, &info) == SYMMEM_OK);
    FUZZ_CHECK(info.world_size == self->size && info.block_size == BYTES);
    FUZZ_CHECK(symmem_handle_buffer_ptrs(handle, &buffers) == SYMMEM_OK);
    for (int32_t rank = 0; rank < self->size; rank++) {
        volatile unsigned char *buffer = buffers[rank];
        FUZZ_CHECK(buffer != NULL);
        buffer[0] = buffer[BYTES - 1] = 1;
    }
    for (uint32_t steps = fuzz_below(self->in, 6); steps > 0; steps--) {
        uint64_t start_ms = fuzz_now_ms();
        symmem_clear_error();
        check(self, operate(self, handle, fuzz_u8(self->in)), start_ms);
    }
}

static void meet(world *self) {
    symmem_handle *handle = NULL;
    void *ptr = NULL;
    uint64_t start_ms = fuzz_now_ms();
    FUZZ_CHECK(symmem_alloc(self->context, BYTES, -1, NULL, &ptr) == SYMMEM_OK);
    symmem_clear_error();
    symmem_status status = symmem_rendezvous(self->context, ptr, self->group, LIMIT_MS, &handle);
    check(self, status, start_ms);
    FUZZ_CHECK((status == SYMMEM_OK) == (handle != NULL));
    if (handle != NULL)
        use(self, handle);
    symmem_handle_release(handle);
    FUZZ_CHECK(symmem_free(self->context, ptr) == SYMMEM_OK);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    unsetenv("SYMMEM_SHM_DEVICES");
    unsetenv("SYMMEM_SHM_MULTICAST_SLOTS");
    return 0;
}

void fuzz_one(fuzz_input *in) {
    static world self;
    int mappings = fuzz_count_mappings();
    open_world(&self, in);
    symmem_store *store = self.context->store;
    for (uint32_t rounds = 1 + fuzz_below(in, 2); rounds > 0; rounds--)
        meet(&self);
    close_world(&self, store);
    FUZZ_CHECK(fuzz_count_mappings() == mappings);
}
