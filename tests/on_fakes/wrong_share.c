/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A share whose bytes are not as they were made, on the fake driver: memory that is mapped here
 * already is not taken for larger than it is.
 */
#include <stdio.h>
#include <string.h>

#include "bare_core.h"

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

static int run(const symmem_backend *backend, void *instance) {
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

int main(int argc, char **argv) {
    const symmem_backend_config config = {.size = sizeof config, .world_size = 1};
    const symmem_backend *backend = argc > 1 ? bare_load(argv[1]) : NULL;
    void *instance = NULL;
    if (backend == NULL || backend->instance->open(&bare_host, &config, &instance) != SYMMEM_OK)
        return 1;
    const int bad = run(backend, instance);
    backend->instance->close(instance);
    return bad;
}
