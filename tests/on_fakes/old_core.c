/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plug-in with as much of a core as it needs that is asked for memory alone.
 * old_core PLUGIN: with a host that ends before deadline_ns, as older cores' do. What lies behind
 * its end cannot be read; with a newer core's host there is more behind it.
 * old_core PLUGIN share: a share whose bytes have been changed, on the fake driver. Memory that is
 * mapped here already is not taken for larger than it is.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bare_core.h"

/* --- hosts of other sizes --------------------------------------------------------------- */

#define BYTES ((size_t)32 << 20) /* no small memory, so that its zeroing is waited for */

static _Alignas(16) char newer[(size_t)1 << 20]; /* more than there is room for by chance */

static uint64_t no_deadline(const symmem_host *host) {
    return 0;
}

static int use(const symmem_backend *backend, const symmem_host *host, const char *what) {
    const symmem_backend_config config = {.size = sizeof config, .world_size = 1};
    symmem_memory memory = {.ptr = NULL};
    void *instance = NULL;
    symmem_status status = backend->instance->open(host, &config, &instance);
    if (status == SYMMEM_OK)
        status = backend->memory->alloc(instance, 0, BYTES, &memory);
    if (status == SYMMEM_OK)
        backend->memory->release(instance, &memory);
    if (instance != NULL)
        backend->instance->close(instance);
    printf("%s core: %s\n", what, symmem_status_name(status));
    return status != SYMMEM_OK;
}

/* At the very end of what can be read. */
static const symmem_host *make_older(void) {
    const size_t size = offsetof(symmem_host, deadline_ns), page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0)
        return NULL;
    memcpy(pages + page - size, &bare_host, size);
    memcpy(pages + page - size, &size, sizeof size);
    return (const symmem_host *)(const void *)(pages + page - size);
}

static const symmem_host *make_newer(void) {
    symmem_host *host = (symmem_host *)(void *)newer;
    memset(newer, 0xff, sizeof newer);
    *host = bare_host;
    host->size = sizeof newer;
    host->deadline_ns = no_deadline;
    return host;
}

static int check_hosts(const symmem_backend *backend) {
    const symmem_host *older = make_older();
    if (older == NULL)
        return 1;
    const int bad = use(backend, older, "an older");
    return use(backend, make_newer(), "a newer") + bad;
}

/* --- shares ----------------------------------------------------------------------------- */

#define SMALL ((size_t)4096)
#define MORE ((uint64_t)1 << 30)
enum { OFFSET = 2, MAPPED_BYTES = 3, WORDS = 8 }; /* backend_cuda/memory/memory.c: share_bytes */

/* What the share says may lie behind the end of the memory. */
static symmem_status import(const symmem_backend *backend, void *instance, symmem_share share,
                            uint64_t offset, uint64_t mapped_bytes) {
    symmem_memory memory = {.ptr = NULL};
    uint64_t words[WORDS];
    memcpy(words, share.bytes, sizeof words);
    words[OFFSET] = offset;
    words[MAPPED_BYTES] = mapped_bytes;
    memcpy(share.bytes, words, sizeof words);
    symmem_status status = backend->memory->map(instance, 0, &share, SMALL, &memory);
    if (status == SYMMEM_OK)
        backend->memory->release(instance, &memory);
    return status;
}

static int use_shares(const symmem_backend *backend, void *instance) {
    symmem_memory own = {.ptr = NULL};
    symmem_share share = {.fd = -1};
    uint64_t words[WORDS];
    if (backend->memory->alloc(instance, 0, SMALL, &own) != SYMMEM_OK ||
        backend->memory->share(instance, &own, &share) != SYMMEM_OK)
        return 1;
    memcpy(words, share.bytes, sizeof words);
    const symmem_status right =
        import(backend, instance, share, words[OFFSET], words[MAPPED_BYTES]);
    share.mapped_bytes = MORE;
    const symmem_status wrong = import(backend, instance, share, MORE / 2, MORE);
    printf("as it was made: %s; larger: %s\n", symmem_status_name(right),
           symmem_status_name(wrong));
    backend->memory->unshare(instance, &share);
    backend->memory->release(instance, &own);
    return right != SYMMEM_OK || wrong == SYMMEM_OK;
}

static int check_share(const symmem_backend *backend) {
    const symmem_backend_config config = {.size = sizeof config, .world_size = 1};
    void *instance = NULL;
    if (backend->instance->open(&bare_host, &config, &instance) != SYMMEM_OK)
        return 1;
    const int bad = use_shares(backend, instance);
    backend->instance->close(instance);
    return bad;
}

int main(int argc, char **argv) {
    const symmem_backend *backend = argc > 1 ? bare_load(argv[1]) : NULL;
    if (backend == NULL)
        return 1;
    return argc > 2 ? check_share(backend) : check_hosts(backend);
}
