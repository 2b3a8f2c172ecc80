/* SPDX-License-Identifier: BSD-3-Clause */
#include "inside.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000ull
#define RECORDS 64u /* of a queue; divides 2^32 */
#define RECORD_BYTES 1000u
#define YIELDS 200
#define SLEEP_NS 50000

typedef enum kind { PUT, WORD, GET } kind;

typedef struct record {
    uint32_t kind;
    uint32_t bytes;
    uint64_t offset;
    unsigned char data[RECORD_BYTES];
} record;

/* From one rank to another, in the file of the latter. */
typedef struct queue {
    _Atomic uint32_t sent, taken;
    _Atomic int32_t owner; /* the process that takes; 0: it has not begun */
    record records[RECORDS];
} queue;

/* To one rank from another that it has asked, in the file of the former. */
typedef struct reply {
    _Atomic uint32_t number; /* of the record that asked, plus 1 */
    unsigned char data[RECORD_BYTES];
} reply;

/* A word for which its queue had no room. */
typedef struct late {
    struct late *next;
    uint64_t offset;
    uint32_t value;
} late;

typedef struct peer_link {
    queue *out, *in;
    reply *asked;  /* own: what that rank answers */
    reply *answer; /* that rank's: what this one answers */
    late *first, **last_p;
    bool asking;
} peer_link;

struct inside {
    const symmem_host *host;
    int32_t rank, world_size;
    char *heap;
    pthread_mutex_t lock; /* for a record at a time; no thread waits while it holds it */
    peer_link *links;
};

/* --- queues --------------------------------------------------------------------------------- */

static size_t of_one(void) {
    return sizeof(queue) + sizeof(reply);
}

size_t inside_bytes(int32_t world_size) {
    return of_one() * (size_t)world_size;
}

inside *inside_open(const symmem_host *host, int32_t rank, int32_t world_size, char *const *heaps,
                    size_t heap_bytes) {
    inside *self = calloc(1, sizeof *self);
    peer_link *links = calloc((size_t)world_size, sizeof *links);
    if (self == NULL || links == NULL) {
        free(self);
        free(links);
        return NULL;
    }
    *self = (inside){.host = host,
                     .rank = rank,
                     .world_size = world_size,
                     .heap = heaps[rank],
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .links = links};
    for (int32_t r = 0; r < world_size; r++) {
        char *own = heaps[rank] + heap_bytes + of_one() * (size_t)r;
        char *theirs = heaps[r] + heap_bytes + of_one() * (size_t)rank;
        links[r].in = (queue *)(void *)own;
        links[r].asked = (reply *)(void *)(own + sizeof(queue));
        links[r].out = (queue *)(void *)theirs;
        links[r].answer = (reply *)(void *)(theirs + sizeof(queue));
        links[r].last_p = &links[r].first;
        /* Relaxed: until it is there the rank counts as alive. */
        atomic_store_explicit(&links[r].in->owner, (int32_t)getpid(), memory_order_relaxed);
    }
    return self;
}

void inside_close(inside *self) {
    for (int32_t r = 0; self != NULL && r < self->world_size; r++)
        for (late *word = self->links[r].first, *next; word != NULL; word = next) {
            next = word->next;
            free(word);
        }
    if (self == NULL)
        return;
    free(self->links);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

/* False: there is no room. With the lock. */
static bool send_one(const peer_link *to, const record *what, const void *data) {
    queue *out = to->out;
    const uint32_t sent = atomic_load_explicit(&out->sent, memory_order_relaxed);
    /* acquire; pairs with: the taker's release, behind its last look at the record */
    if (sent - atomic_load_explicit(&out->taken, memory_order_acquire) == RECORDS)
        return false;
    record *place = &out->records[sent % RECORDS];
    place->kind = what->kind;
    place->bytes = what->bytes;
    place->offset = what->offset;
    if (data != NULL)
        memcpy(place->data, data, what->bytes);
    /* release; pairs with: take_one */
    atomic_store_explicit(&out->sent, sent + 1, memory_order_release);
    return true;
}

static bool send_word(const peer_link *to, uint64_t offset, uint32_t value) {
    const record what = {.kind = WORD, .bytes = sizeof value, .offset = offset};
    return send_one(to, &what, &value);
}

static void serve(const inside *self, const peer_link *from, const record *what, uint32_t number) {
    char *place = self->heap + what->offset;
    uint32_t value;
    if (what->kind == PUT) {
        memcpy(place, what->data, what->bytes);
    } else if (what->kind == WORD) {
        memcpy(&value, what->data, sizeof value);
        /* release; pairs with: the load of this rank's thread that polls the word */
        atomic_store_explicit((_Atomic uint32_t *)(void *)place, value, memory_order_release);
    } else {
        memcpy(from->answer->data, place, what->bytes);
        /* release; pairs with: inside_get */
        atomic_store_explicit(&from->answer->number, number + 1, memory_order_release);
    }
}

static bool take_one(const inside *self, const peer_link *from) {
    queue *in = from->in;
    const uint32_t taken = atomic_load_explicit(&in->taken, memory_order_relaxed);
    if (atomic_load_explicit(&in->sent, memory_order_acquire) == taken) /* pairs with: send_one */
        return false;
    serve(self, from, &in->records[taken % RECORDS], taken);
    atomic_store_explicit(&in->taken, taken + 1, memory_order_release); /* pairs with: send_one */
    return true;
}

static void send_late(peer_link *to) {
    while (to->first != NULL && send_word(to, to->first->offset, to->first->value)) {
        late *word = to->first;
        to->first = word->next;
        if (to->first == NULL)
            to->last_p = &to->first;
        free(word);
    }
}

void inside_progress(inside *self) {
    pthread_mutex_lock(&self->lock);
    for (int32_t r = 0; r < self->world_size; r++) {
        /* No more than there were at the start: peers may go on sending. */
        for (uint32_t i = 0; i < RECORDS && take_one(self, &self->links[r]); i++) {
        }
        send_late(&self->links[r]);
    }
    pthread_mutex_unlock(&self->lock);
}

/* --- waits ---------------------------------------------------------------------------------- */

typedef struct attempt {
    inside *self;
    const symmem_peers *peers;
    int32_t peer; /* -1: none in particular */
    const char *operation;
    uint64_t end_ns;
    uint32_t turns;
} attempt;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
}

static attempt begin(inside *self, const symmem_peers *peers, int32_t peer, const symmem_exec *exec,
                     const char *operation) {
    return (attempt){.self = self,
                     .peers = peers,
                     .peer = peer,
                     .operation = operation,
                     .end_ns = exec->timeout_ms == 0 ? 0 : now_ns() + exec->timeout_ms * NS_PER_MS};
}

/* Not OK: it is over. */
static symmem_status pause_wait(attempt *wait) {
    const symmem_host *host = wait->self->host;
    inside_progress(wait->self);
    if (wait->turns++ < YIELDS) {
        (void)sched_yield();
        return SYMMEM_OK;
    }
    if (wait->peers != NULL && wait->peer >= 0 &&
        host->peer_state(wait->peers, wait->peer) == SYMMEM_PEER_GONE)
        return host->fail(host, SYMMEM_PEER_LOST, 0, wait->operation, "the peer has ended");
    if (wait->end_ns != 0 && now_ns() >= wait->end_ns)
        return host->fail(host, SYMMEM_TIMEOUT, 0, wait->operation,
                          "a rank that is in no call moves nothing");
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    return SYMMEM_OK;
}

/* --- the entries ---------------------------------------------------------------------------- */

static uint32_t piece_of(size_t bytes) {
    return bytes < RECORD_BYTES ? (uint32_t)bytes : RECORD_BYTES;
}

symmem_status inside_put(inside *self, const symmem_place *to, const void *src, size_t bytes,
                         const symmem_exec *exec) {
    attempt wait = begin(self, to->peers, to->peer, exec, "put");
    symmem_status status = SYMMEM_OK;
    for (size_t done = 0; done < bytes && status == SYMMEM_OK;) {
        const record what = {
            .kind = PUT, .bytes = piece_of(bytes - done), .offset = to->offset + done};
        pthread_mutex_lock(&self->lock);
        const bool sent = send_one(&self->links[to->rank], &what, (const char *)src + done);
        pthread_mutex_unlock(&self->lock);
        if (sent)
            done += what.bytes;
        else
            status = pause_wait(&wait);
    }
    return status;
}

/* One thread at a time asks a peer. */
static bool ask(inside *self, peer_link *from, const record *what, uint32_t *number_p) {
    pthread_mutex_lock(&self->lock);
    const uint32_t number = atomic_load_explicit(&from->out->sent, memory_order_relaxed);
    const bool sent = !from->asking && send_one(from, what, NULL);
    if (sent) {
        from->asking = true;
        *number_p = number + 1;
    }
    pthread_mutex_unlock(&self->lock);
    return sent;
}

/* After a failure the answer may come yet: it is written before that of a later question. */
static void stop_asking(inside *self, peer_link *from) {
    pthread_mutex_lock(&self->lock);
    from->asking = false;
    pthread_mutex_unlock(&self->lock);
}

static symmem_status get_piece(inside *self, attempt *wait, peer_link *from, uint64_t offset,
                               void *dst, uint32_t bytes) {
    const record what = {.kind = GET, .bytes = bytes, .offset = offset};
    symmem_status status = SYMMEM_OK;
    uint32_t number = 0;
    while (status == SYMMEM_OK && !ask(self, from, &what, &number))
        status = pause_wait(wait);
    if (status != SYMMEM_OK)
        return status;
    /* acquire; pairs with: serve */
    while (status == SYMMEM_OK &&
           atomic_load_explicit(&from->asked->number, memory_order_acquire) != number)
        status = pause_wait(wait);
    if (status == SYMMEM_OK)
        memcpy(dst, from->asked->data, bytes);
    stop_asking(self, from);
    return status;
}

symmem_status inside_get(inside *self, const symmem_place *from, void *dst, size_t bytes,
                         const symmem_exec *exec) {
    attempt wait = begin(self, from->peers, from->peer, exec, "get");
    symmem_status status = SYMMEM_OK;
    for (size_t done = 0; done < bytes && status == SYMMEM_OK;) {
        const uint32_t piece = piece_of(bytes - done);
        status = get_piece(self, &wait, &self->links[from->rank], from->offset + done,
                           (char *)dst + done, piece);
        done += piece;
    }
    return status;
}

symmem_status inside_write(inside *self, const symmem_place *to, uint32_t value) {
    peer_link *link = &self->links[to->rank];
    symmem_status status = SYMMEM_OK;
    pthread_mutex_lock(&self->lock);
    send_late(link);
    if (link->first != NULL || !send_word(link, to->offset, value)) {
        late *word = malloc(sizeof *word);
        if (word == NULL) {
            status = self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "write_value32",
                                      "no memory for a word");
        } else {
            *word = (late){.offset = to->offset, .value = value};
            *link->last_p = word;
            link->last_p = &word->next;
        }
    }
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* Also of ranks that are not among the peers. */
static bool has_ended(const peer_link *to) {
    const int32_t owner = atomic_load_explicit(&to->out->owner, memory_order_relaxed);
    return owner > 1 && kill(owner, 0) != 0 && errno == ESRCH;
}

static int32_t peer_of(const symmem_peers *peers, int32_t rank) {
    for (int32_t p = 0; peers != NULL && p < peers->world_size; p++)
        if (peers->global_ranks[p] == rank)
            return p;
    return -1;
}

static bool is_taken(inside *self, const peer_link *to, uint32_t number) {
    pthread_mutex_lock(&self->lock);
    const bool taken =
        to->first == NULL &&
        /* acquire; pairs with: take_one, behind what it has written */
        (int32_t)(atomic_load_explicit(&to->out->taken, memory_order_acquire) - number) >= 0;
    pthread_mutex_unlock(&self->lock);
    return taken;
}

symmem_status inside_quiet(inside *self, const symmem_peers *peers, const symmem_exec *exec) {
    for (int32_t r = 0; r < self->world_size; r++) {
        peer_link *to = &self->links[r];
        attempt wait = begin(self, peers, peer_of(peers, r), exec, "quiet");
        symmem_status status = SYMMEM_OK;
        pthread_mutex_lock(&self->lock);
        const uint32_t number = atomic_load_explicit(&to->out->sent, memory_order_relaxed);
        pthread_mutex_unlock(&self->lock);
        while (status == SYMMEM_OK && !is_taken(self, to, number) && !has_ended(to))
            status = pause_wait(&wait);
        if (status != SYMMEM_OK && status != SYMMEM_PEER_LOST)
            return status;
    }
    return SYMMEM_OK;
}
