/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for the driver's management library: what its symbol `fake_nvml` says. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#define FAKE_NVML_DEVICES 8
#define FAKE_NVML_LINKS 18

enum fake_link { LINK_NONE, LINK_OFF, LINK_SWITCH, LINK_OTHER, LINK_GPU /* + the device */ };

typedef struct fake_nvml_state {
    int starts; /* minus the times it was shut down */
    int refuses_start;
    int unknown_device; /* -1: none */
    /* Device d has the PCI place 0:0x10 + d:d. */
    int links[FAKE_NVML_DEVICES][FAKE_NVML_LINKS]; /* fake_link */
} fake_nvml_state;

#endif
