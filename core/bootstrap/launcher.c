/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank and size of the world from the variables of the launcher that started this process. All
 * values come from one launcher, because an outer launcher that started this one counts its own
 * processes.
 */
#include "bootstrap/bootstrap.h"

#include <stdlib.h>
#include <string.h>

typedef struct launcher {
    const char *name; /* as in SYMMEM_LAUNCHER */
    const char *rank, *size, *local;
} launcher;

/* The first launcher that gives all wanted values is used. PMIx has no variable for the size. */
static const launcher launchers[] = {
    {"env", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"pmix", "PMIX_RANK", NULL, "PMIX_LOCAL_RANK"},
    {"ompi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};
#define LAUNCHERS (sizeof(launchers) / sizeof(launchers[0]))

static bool is_set(const char *variable) {
    return variable != NULL && getenv(variable) != NULL;
}

static bool tells(const launcher *one, const sm_launch *launch) {
    return (!launch->wants_rank || is_set(one->rank)) && (!launch->wants_size || is_set(one->size));
}

static symmem_status read_number(const char *variable, int64_t low, int64_t high,
                                 int32_t *value_p) {
    const char *const names[] = {variable, NULL};
    int64_t value = 0;
    symmem_status status = sm_env_int(names, low, high, &value);
    if (status == SYMMEM_OK)
        *value_p = (int32_t)value;
    return status;
}

static symmem_status fail_named(const launcher *chosen, const sm_launch *launch) {
    const char *missing = launch->wants_rank && !is_set(chosen->rank) ? chosen->rank : chosen->size;
    return missing != NULL
               ? sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options",
                         "SYMMEM_LAUNCHER is %s, and %s is not set", chosen->name, missing)
               : sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options",
                         "%s has no variable for world_size: give it in the options", chosen->name);
}

/* Names the variables that are there. One launcher's rank and another one's size do not belong
 * together. */
static symmem_status fail_missing(const sm_launch *launch) {
    const char *rank = NULL, *size = NULL;
    for (size_t i = 0; i < LAUNCHERS; i++) {
        if (rank == NULL && is_set(launchers[i].rank))
            rank = launchers[i].rank;
        if (size == NULL && is_set(launchers[i].size))
            size = launchers[i].size;
    }
    if (launch->wants_rank && launch->wants_size && rank != NULL && size != NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options",
                       "%s=%.20s and %s=%.20s are not of one launcher", rank, getenv(rank), size,
                       getenv(size));
    const bool lacks_size = launch->wants_size && size == NULL;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options",
                   "%s is neither in the options nor in the environment (%s)",
                   lacks_size ? "world_size" : "rank",
                   lacks_size ? launchers[0].size : launchers[0].rank);
}

/* Reads the other launcher's value, which is ignored if it is no number. */
static bool says(const char *other, int32_t *theirs_p) {
    SM_ATTEMPT(reading);
    return is_set(other) && read_number(other, 0, INT32_MAX, theirs_p) == SYMMEM_OK;
}

static symmem_status contradict(const char *variable, int32_t value, const char *other) {
    int32_t theirs = value;
    if (!says(other, &theirs) || theirs == value)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "options",
                  "launchers contradict each other: %s=%d and %s=%d (unset one, or name the one "
                  "that counts in SYMMEM_LAUNCHER)",
                  variable, value, other, theirs);
    return sm_error_sizes((uint64_t)value, (uint64_t)theirs);
}

static symmem_status compare(const launcher *chosen, const sm_launch *launch) {
    symmem_status status = SYMMEM_OK;
    for (size_t i = 0; i < LAUNCHERS && status == SYMMEM_OK; i++) {
        const launcher *other = &launchers[i];
        if (other == chosen)
            continue;
        if (launch->wants_size)
            status = contradict(chosen->size, launch->size, other->size);
        if (status == SYMMEM_OK && launch->wants_rank)
            status = contradict(chosen->rank, launch->rank, other->rank);
    }
    return status;
}

/* Sets *chosen_p to NULL if no launcher is named. */
static symmem_status named(const launcher **chosen_p) {
    const char *name = getenv("SYMMEM_LAUNCHER");
    *chosen_p = NULL;
    if (name == NULL)
        return SYMMEM_OK;
    for (size_t i = 0; i < LAUNCHERS && *chosen_p == NULL; i++)
        if (strcmp(name, launchers[i].name) == 0)
            *chosen_p = &launchers[i];
    return *chosen_p != NULL ? SYMMEM_OK
                             : sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "environment",
                                       "SYMMEM_LAUNCHER=\"%.40s\" is none of env, pmix, ompi, pmi "
                                       "and slurm",
                                       name);
}

static symmem_status read_local(const launcher *chosen, sm_launch *launch) {
    const char *variable = chosen->local;
    for (size_t i = 0; i < LAUNCHERS && !launch->wants_rank && !is_set(variable); i++)
        variable = launchers[i].local; /* any launcher's */
    launch->local = -1;
    return is_set(variable) ? read_number(variable, 0, INT32_MAX, &launch->local) : SYMMEM_OK;
}

symmem_status sm_launch_read(sm_launch *launch) {
    const launcher *chosen;
    symmem_status status = named(&chosen);
    if (status != SYMMEM_OK)
        return status;
    const bool is_named = chosen != NULL;
    for (size_t i = 0; i < LAUNCHERS && chosen == NULL; i++)
        if (tells(&launchers[i], launch))
            chosen = &launchers[i];
    if (chosen == NULL)
        return fail_missing(launch);
    if (!tells(chosen, launch))
        return fail_named(chosen, launch);
    if (launch->wants_size)
        status = read_number(chosen->size, 1, SYMMEM_MAX_WORLD_SIZE, &launch->size);
    if (status == SYMMEM_OK && launch->wants_rank)
        status = read_number(chosen->rank, 0, SYMMEM_MAX_WORLD_SIZE - 1, &launch->rank);
    if (status == SYMMEM_OK && !is_named)
        status = compare(chosen, launch);
    if (status == SYMMEM_OK && launch->wants_local)
        status = read_local(chosen, launch);
    return status;
}
