/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend that is another backend with something wrong. The plug-in has many of them; which one
 * it is says the environment variable SYMMEM_MUTANT, or else its file's name.
 *
 * The backend underneath is libsymmem_backend_shm.so in the folder above the plug-in's, or the
 * shared object that SYMMEM_MUTANTS_OF names: any that speaks this ABI.
 */
#ifndef SYMMEM_MUTANTS_DECORATOR_H
#define SYMMEM_MUTANTS_DECORATOR_H

#include <symmem/backend.h>

#include "../../flat_backend.h"

/* The table underneath. Its instances, streams and peers are those that the core gets, so an entry
 * that is replaced hands everything on to it. */
extern const flat_backend *real;

/* A put, a wait or a barrier on its way to the table underneath. */
struct signal_call {
    const symmem_peers *peers;
    int32_t rank, channel; /* a barrier has no rank */
    symmem_exec exec;
};

enum { ON_BARRIER = 1, ON_PUT = 2, ON_WAIT = 4, ON_SIGNALS = ON_PUT | ON_WAIT, ON_ALL = 7 };

/* Functions that are NULL change nothing. One that returns a bool says whether the backend
 * underneath is called at all; if not, the call succeeds. */
struct mutant {
    const char *name;
    flat_backend entries; /* that take the place of those underneath */
    int on;               /* which signal operations these two are for */
    bool (*before)(struct signal_call *call);
    void (*after)(symmem_status status, const symmem_peers *peers);
    bool (*collective)(symmem_collective *call, int32_t *channel, symmem_exec *exec);
    void (*reduce)(size_t *count, symmem_dtype *dtype, symmem_reduce_op *op); /* of multimem */
    void (*change)(flat_backend *table); /* at last, when the rest is done */
    void (*rudeness)(void);              /* for bad_backends/rude.c */
    bool watches_imports;                /* mutant_is_a_peers */
};

/* The definition of a hook that makes its statement and lets the call go on. */
#define ON_SIGNAL(name, statement)                                                                 \
    static bool name(struct signal_call *call) {                                                   \
        statement;                                                                                 \
        return true;                                                                               \
    }
#define ON_COLLECTIVE(name, statement)                                                             \
    static bool name(symmem_collective *call, int32_t *channel, symmem_exec *exec) {               \
        (void)call, (void)channel, (void)exec;                                                     \
        statement;                                                                                 \
        return true;                                                                               \
    }
#define ON_REDUCE(name, statement)                                                                 \
    static void name(size_t *count, symmem_dtype *dtype, symmem_reduce_op *op) {                   \
        (void)count, (void)dtype, (void)op;                                                        \
        statement;                                                                                 \
    }

/* The plug-in's mutants: lists, of which each ends with one that has no name, and a NULL. */
extern const struct mutant *const mutant_lists[];
extern const struct mutant *mutant; /* which it is */

void mutant_sleep_ms(unsigned ms);
/* Whether memory was imported in this process. */
bool mutant_is_a_peers(const void *ptr);

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

#endif
