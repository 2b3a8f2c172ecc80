/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of the TCPStore of PyTorch, of four of its queries, which have not changed since
 * PyTorch 2.1: validate, set, wait and get. Numbers travel as the machine has them, texts as
 * their length in 64 bits and their bytes. The server answers nothing to validate and set.
 */
#include "store/store_torch.h"
#include "store/store_tcp_address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAGE "torchrun"
#define MAGIC 0x3c85f7ceu
#define KEY_BYTES 256
/* The longest: three queries, two keys and a place, each text with its length. */
#define MESSAGE_BYTES (32 + 2 * (8 + KEY_BYTES) + 8 + SM_TCP_PLACE_BYTES)

enum { VALIDATE = 0, SET = 1, GET = 3, WAIT = 6 };

typedef struct message {
    uint8_t bytes[MESSAGE_BYTES];
    size_t count;
} message;

bool sm_torch_offered(void) {
    const char *agent = secure_getenv("TORCHELASTIC_USE_AGENT_STORE");
    return agent != NULL && strcmp(agent, "True") == 0 && secure_getenv("MASTER_ADDR") != NULL &&
           secure_getenv("MASTER_PORT") != NULL;
}

bool sm_torch_is_local(int32_t world_size) {
    const char *local = secure_getenv("LOCAL_WORLD_SIZE");
    char all[16];
    (void)snprintf(all, sizeof(all), "%d", world_size);
    return local != NULL && strcmp(local, all) == 0;
}

/* --- messages --------------------------------------------------------------------------------- */

static void add(message *to, const void *bytes, size_t count) {
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
}

static void add_query(message *to, uint8_t query) {
    add(to, &query, sizeof(query));
}

static void add_text(message *to, const char *text) {
    const uint64_t bytes = strlen(text);
    add(to, &bytes, sizeof(bytes));
    add(to, text, bytes);
}

static message begin(void) {
    const uint32_t magic = MAGIC;
    message made = {.count = 0};
    add_query(&made, VALIDATE);
    add(&made, &magic, sizeof(magic));
    return made;
}

/* The agent's store outlives a start of the workers, and each start has other ranks. */
static void add_key(message *to, const char *key) {
    char text[KEY_BYTES];
    const char *job = secure_getenv("TORCHELASTIC_RUN_ID");
    const char *restart = secure_getenv("TORCHELASTIC_RESTART_COUNT");
    (void)snprintf(text, sizeof(text), "/%.100s/%.20s/%.60s", job != NULL ? job : "",
                   restart != NULL ? restart : "0", key);
    add_text(to, text);
}

/* --- the connection --------------------------------------------------------------------------- */

static symmem_status fail(int error, const char *name) {
    if (error == ETIMEDOUT)
        return sm_fail(SYMMEM_TIMEOUT, "store_open", STAGE,
                       "torchrun's store at %s did not answer in time", name);
    return sm_fail_errno(error, "store_open", STAGE, "cannot ask torchrun's store at %s", name);
}

static symmem_status connect_to_agent(uint64_t deadline_ns, sm_tcp_place *place, int *fd_p) {
    static const char *const names[] = {"MASTER_PORT", NULL};
    const char *host = secure_getenv("MASTER_ADDR");
    int64_t port = 0;
    symmem_status status = sm_env_int(names, 1, 65535, &port);
    if (status != SYMMEM_OK) {
        symmem_error_record error;
        (void)sm_error_get(&error);
        sm_copy_text(error.operation, sizeof(error.operation), "store_open");
        return sm_error_raise(&error);
    }
    if (host[0] == '\0')
        status = sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open", STAGE, "MASTER_ADDR is empty");
    if (status == SYMMEM_OK)
        status = sm_tcp_place_resolve(host, (uint16_t)port, deadline_ns, place);
    if (status != SYMMEM_OK)
        return status;
    int error = EADDRNOTAVAIL;
    for (int32_t i = 0; error != 0 && i < place->count; i++)
        error = sm_tcp_connect(&place->addresses[i], deadline_ns, fd_p);
    return error != 0 ? fail(error, place->name) : SYMMEM_OK;
}

static symmem_status ask_agent(int fd, const message *asked, const sm_tcp_place *place,
                               void *answer, size_t bytes, uint64_t deadline_ns) {
    size_t done = 0;
    int error = sm_tcp_send(fd, asked->bytes, asked->count, deadline_ns, &done);
    done = 0;
    if (error == 0)
        error = sm_tcp_receive(fd, answer, bytes, deadline_ns, &done);
    return error == 0 ? SYMMEM_OK : fail(error, place->name);
}

/* Behind what `asked` has already. */
static symmem_status wait_for_key(int fd, message *asked, const char *key,
                                  const sm_tcp_place *place, uint64_t deadline_ns) {
    const uint64_t keys = 1;
    uint8_t answer = 0;
    add_query(asked, WAIT);
    add(asked, &keys, sizeof(keys));
    add_key(asked, key);
    const symmem_status status = ask_agent(fd, asked, place, &answer, sizeof(answer), deadline_ns);
    return status == SYMMEM_OK && answer != 0
               ? sm_fail(SYMMEM_CORRUPT, "store_open", STAGE,
                         "what answers at %s is no store of torchrun's", place->name)
               : status;
}

static symmem_status read_value(int fd, const char *key, const sm_tcp_place *place, char *text,
                                size_t capacity, uint64_t deadline_ns) {
    message asked = {.count = 0};
    uint64_t bytes = 0;
    size_t done = 0;
    add_query(&asked, GET);
    add_key(&asked, key);
    const symmem_status status = ask_agent(fd, &asked, place, &bytes, sizeof(bytes), deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    if (bytes == 0 || bytes >= capacity)
        return sm_fail(SYMMEM_CORRUPT, "store_open", STAGE,
                       "torchrun's store at %s has a value of %llu bytes in place of the store's "
                       "address",
                       place->name, (unsigned long long)bytes);
    const int error = sm_tcp_receive(fd, text, (size_t)bytes, deadline_ns, &done);
    text[bytes] = '\0';
    return error == 0 ? SYMMEM_OK : fail(error, place->name);
}

symmem_status sm_torch_publish(const char *key, const char *text, uint64_t deadline_ns) {
    sm_tcp_place place;
    int fd = -1;
    symmem_status status = connect_to_agent(deadline_ns, &place, &fd);
    if (status != SYMMEM_OK)
        return status;
    message asked = begin();
    add_query(&asked, SET);
    add_key(&asked, key);
    add_text(&asked, text);
    status = wait_for_key(fd, &asked, key, &place, deadline_ns); /* set alone has no answer */
    close(fd);
    return status;
}

symmem_status sm_torch_look_up(const char *key, char *text, size_t capacity, uint64_t deadline_ns) {
    sm_tcp_place place;
    int fd = -1;
    symmem_status status = connect_to_agent(deadline_ns, &place, &fd);
    if (status != SYMMEM_OK)
        return status;
    message asked = begin();
    status = wait_for_key(fd, &asked, key, &place, deadline_ns);
    if (status == SYMMEM_OK)
        status = read_value(fd, key, &place, text, capacity, deadline_ns);
    close(fd);
    return status;
}
