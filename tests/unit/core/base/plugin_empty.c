/* SPDX-License-Identifier: BSD-3-Clause */
/* A shared object that is no backend. */
#include <symmem/status.h>

SYMMEM_API int unit_plugin_empty(void);

int unit_plugin_empty(void) {
    return 0;
}
