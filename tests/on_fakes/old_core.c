/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * old_core PLUGIN: the plug-in with a host that ends before deadline_ns, as older cores' do. What
 * lies behind its end cannot be read; with a newer core's host there is more behind it.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bare_core.h"

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

int main(int argc, char **argv) {
    const symmem_backend *backend = argc > 1 ? bare_load(argv[1]) : NULL;
    const symmem_host *older = make_older();
    if (backend == NULL || older == NULL)
        return 1;
    const int bad = use(backend, older, "an older");
    return use(backend, make_newer(), "a newer") + bad;
}
