/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks as processes of their own, in a folder of their job's. */
#ifndef SYMMEM_FAULTS_RANKS_H
#define SYMMEM_FAULTS_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { RANKS_PATH = 256 };

long long ranks_now_ns(void);
/* The next number of a process's one series, which the first call's seed begins. */
uint64_t ranks_random(unsigned long seed);
/* In that job's folder: `name`, with the number behind it if that is not below 0. */
void ranks_path(const char *folder, const char *name, int number, char path[RANKS_PATH]);
/* A folder below `parent`, with the folders "store" and "sockets". Ends this process if it cannot.
 */
void ranks_make_folder(const char *parent, char folder[200]);
void ranks_remove_folder(const char *folder);
/* Starts a rank that ends with this process and writes to "out" and its number. Its arguments are a
 * list that ends with NULL; the first is the program. Ends this process if it cannot. */
pid_t ranks_start(const char *folder, int rank, const char *const *arguments);
/* What a directory holds besides those two names. Its number; the first one's name. */
int ranks_left_in(const char *directory, const char *besides, const char *and_besides,
                  char first[128]);

#endif
