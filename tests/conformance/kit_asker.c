/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which code asked for a shared mapping. A driver makes it for its caller: the backend, which has
 * to give it back, or a library beneath the backend, which may keep it for itself. The call stack
 * at the time tells; it is looked at only when the mapping is left over, for a driver in the middle
 * of its work must not wait for the loader's locks. What a library maps by its own hand, and what
 * was not asked for by known code, counts as the backend's.
 */
#include "kit_internal.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#if KIT_OWNS_ALLOCATION

#include <dlfcn.h>
#include <execinfo.h>

/* The first walk loads what it needs. */
void kit_stack_prepare(void) {
    void *here;
    (void)backtrace(&here, 1);
}

void kit_stack_take(struct kit_stack *stack, const void *caller) {
    enum { OWN = 4 }; /* frames of the runner's, at the most */
    void *frames[KIT_STACK_FRAMES + OWN];
    int count = backtrace(frames, KIT_STACK_FRAMES + OWN), first = 0;
    *stack = (struct kit_stack){.count = 1, .callers = {caller}};
    while (first < OWN && first < count && frames[first] != caller)
        first++;
    if (first == OWN || first >= count)
        return;
    stack->count = count - first < KIT_STACK_FRAMES ? count - first : KIT_STACK_FRAMES;
    memcpy(stack->callers, frames + first, (size_t)stack->count * sizeof(*frames));
}

static const char *base_name(const Dl_info *info) {
    const char *slash = strrchr(info->dli_fname, '/');
    return slash == NULL ? info->dli_fname : slash + 1;
}

/* The object that made the mapping, or a runtime over CUDA's driver: they ask for others. */
static bool passes_on(const Dl_info *maker, const void *caller) {
    Dl_info info;
    return dladdr(caller, &info) != 0 && info.dli_fname != NULL &&
           (info.dli_fbase == maker->dli_fbase || strncmp(base_name(&info), "libcuda", 7) == 0);
}

/* The maker, unless that is neither the program's nor one of ours: then the first above it that
 * does not ask for others. */
static const void *asker(const struct kit_stack *stack) {
    const void *maker = stack->callers[0];
    Dl_info info;
    if (kit_heap_is_others(maker) || kit_is_judged(maker) || dladdr(maker, &info) == 0)
        return maker;
    for (int i = 1; i < stack->count; i++)
        if (!kit_heap_is_others(stack->callers[i]) && !passes_on(&info, stack->callers[i]))
            return stack->callers[i];
    return maker;
}

bool kit_stack_is_librarys(const struct kit_stack *stack) {
    const void *who = asker(stack);
    return who != stack->callers[0] && !kit_is_judged(who);
}

void kit_stack_describe(const struct kit_stack *stack, struct kit_text *text) {
    Dl_info info;
    if (dladdr(asker(stack), &info) != 0 && info.dli_fname != NULL)
        kit_add(text, "asked for by %s", base_name(&info));
}

#else

bool kit_stack_is_librarys(const struct kit_stack *stack) {
    (void)stack;
    return false;
}

void kit_stack_describe(const struct kit_stack *stack, struct kit_text *text) {
    (void)stack, (void)text;
}

#endif

/*
 * Who made a socket. A library beneath a backend may keep sockets, and let programs inherit them,
 * which are not the backend's to give back (SM-LIFE-12): the runner's socket, socketpair and accept
 * stand before the C library's and remember whose code asked. A sanitizer has functions of its own
 * here: then every socket is taken for one of ours.
 */

#if !KIT_OWNS_ALLOCATION

bool tk_is_foreign_socket(int fd) {
    (void)fd;
    return false;
}

#else

#define MAX_SOCKETS 4096
#define EXPORTED __attribute__((visibility("default")))

/* A process-wide thing by nature: descriptors are. By descriptor; a number's last socket counts. No
 * lock, which a child of fork might find taken: the caller counts if its number is the socket's. */
static struct {
    _Atomic uint64_t number;
    _Atomic(const void *) caller;
} origins[MAX_SOCKETS];
static int note(int fd, const void *caller) {
    struct stat info;
    if (fd < 0 || fd >= MAX_SOCKETS || fstat(fd, &info) != 0)
        return fd;
    atomic_store(&origins[fd].number, 0);
    atomic_store(&origins[fd].caller, caller);
    atomic_store(&origins[fd].number, info.st_ino);
    return fd;
}

EXPORTED int socket(int domain, int type, int protocol) {
    return note((int)syscall(SYS_socket, domain, type, protocol), __builtin_return_address(0));
}

EXPORTED int socketpair(int domain, int type, int protocol, int pair[2]) {
    int result = (int)syscall(SYS_socketpair, domain, type, protocol, pair);
    for (int i = 0; result == 0 && i < 2; i++)
        (void)note(pair[i], __builtin_return_address(0));
    return result;
}

EXPORTED int accept(int fd, struct sockaddr *address, socklen_t *bytes) {
    return note((int)syscall(SYS_accept4, fd, address, bytes, 0), __builtin_return_address(0));
}

EXPORTED int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags) {
    return note((int)syscall(SYS_accept4, fd, address, bytes, flags), __builtin_return_address(0));
}

bool tk_is_foreign_socket(int fd) {
    struct stat info;
    if (fd < 0 || fd >= MAX_SOCKETS || fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode))
        return false;
    const void *caller = atomic_load(&origins[fd].caller);
    return caller != NULL && atomic_load(&origins[fd].number) == info.st_ino &&
           !kit_heap_is_others(caller) && !kit_is_judged(caller);
}

#endif
