/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static void peers_close(void *instance, symmem_peers *peers) {
    (void)instance, (void)peers;
}

void mutate(symmem_backend *table) {
    table->peers_close = peers_close;
}
