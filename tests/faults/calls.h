/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library that stands before the C library: it counts the calls that symmem's own code makes (the
 * library's and the backend's), lets the n-th of a class fail, and knows what of them has been made
 * and not ended.
 */
#ifndef SYMMEM_TESTS_FAULTS_CALLS_H
#define SYMMEM_TESTS_FAULTS_CALLS_H

typedef enum faults_class {
    FAULTS_MEMORY = 0,
    FAULTS_MAPPINGS,
    FAULTS_SOCKETS,
    FAULTS_FILES,
    FAULTS_THREADS,
    FAULTS_PIDFDS,
    FAULTS_LIBRARIES,
    FAULTS_SYSTEM,
    FAULTS_CLASSES
} faults_class;

/* From now on calls count, and the n-th of that class fails; 0: none does. */
void faults_arm(faults_class of, int nth);
/* No call counts or fails any more. Those of the armed class that there were. */
int faults_disarm(void);
/* Which one failed, with its caller's place: "mmap libsymmem.so.0+1234"; "": none. */
const char *faults_hit(void);
/* Blocks, mappings and conditions that were made since and have not been ended. Named on the
 * standard output, a line each, if `told`. */
int faults_live(int told);

#endif
