/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake backend as a shared object. The environment says how it presents itself:
 * FAKE_PLUGIN_NAME its name, FAKE_PLUGIN_MODE "none" (no table) or "refused" (a bad one). And a
 * shared object that is no backend, whose entry has another name. */
#include "fake_backend.h"

#ifdef UNIT_PLUGIN_IS_NONE
#define symmem_backend_entry unit_plugin_entry
#endif

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    static flat_backend tables[2];
    const char *name = getenv("FAKE_PLUGIN_NAME");
    const char *mode = getenv("FAKE_PLUGIN_MODE");
    if (abi != SYMMEM_BACKEND_ABI || (mode && strcmp(mode, "none") == 0))
        return NULL;
    fake.devices = FAKE_DEVICES;
    flat_backend *table = &tables[name ? 1 : 0];
    fake_table(table, name ? name : "plugin", FAKE_CAPABILITIES);
    if (mode && strcmp(mode, "refused") == 0)
        table->copy = NULL;
    return flat_table(table);
}
