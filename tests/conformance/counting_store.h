/* SPDX-License-Identifier: BSD-3-Clause */
/* A custom store over another store that counts the calls made of it. */
#ifndef SYMMEM_CONFORMANCE_COUNTING_STORE_H
#define SYMMEM_CONFORMANCE_COUNTING_STORE_H

#include <stdatomic.h>
#include <symmem/store.h>

/* Must stay where it is while the store is open. */
struct counting_store {
    symmem_store *inner; /* borrowed */
    atomic_int sets, gets, waits, adds, removes, closes;
    void (*before_get)(void *arg, const char *key); /* or NULL */
    void *arg;
};

/* The rank's, begun anew. It stays where a body is left early, for what is ended behind that body
 * uses the store still. */
struct counting_store *counting_store_begin(symmem_store *inner);

/* The table; its entries take a struct counting_store as `self`. */
extern const symmem_store_ops counting_store_ops;

/* Writes: what reaches the other ranks. */
int counting_store_writes(struct counting_store *counting); /* set and add */
int counting_store_calls(struct counting_store *counting);  /* all but close */

#endif
