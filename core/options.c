/* SPDX-License-Identifier: BSD-3-Clause */
/* The initializers of the option structures. */
#include "stream/channel.h"

#include <string.h>

void symmem_context_options_init(symmem_context_options *options) {
    if (!options)
        return;
    memset(options, 0, sizeof(*options));
    options->size = sizeof(*options);
    options->rank = -1;
    options->world_size = -1;
    options->local_rank = -1;
    options->allow_overlapping_devices = -1;
    options->multicast = -1;
    options->check_collectives = -1;
}

void symmem_alloc_options_init(symmem_alloc_options *options) {
    if (!options)
        return;
    memset(options, 0, sizeof(*options));
    options->size = sizeof(*options);
}
