/* SPDX-License-Identifier: BSD-3-Clause */
/* A shared object that is no backend. */
__attribute__((visibility("default"))) int suite_plugin_without_entry(void);
int suite_plugin_without_entry(void) {
    return 1;
}
