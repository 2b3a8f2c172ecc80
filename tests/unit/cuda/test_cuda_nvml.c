/* SPDX-License-Identifier: BSD-3-Clause */
/* The matrix of NVLinks, from a fake management library. */
#include <dlfcn.h>

#include "fake_nvml.h"
#include "driver/nvml.h"
#include "unit_main.h"

#define COUNT 4
#define UNTOUCHED (-5)

static fake_nvml_state *fake;
static cuda_pci_address places[COUNT];
static int32_t matrix[COUNT * COUNT];
static char reason[200];

static bool ask(int32_t count) {
    for (int i = 0; i < COUNT * COUNT; i++)
        matrix[i] = UNTOUCHED;
    reason[0] = '\0';
    return cuda_nvml_links(UNIT_FAKE_NVML, count, places, matrix, reason, sizeof reason);
}

static void start(void) {
    memset(fake, 0, sizeof *fake);
    fake->unknown_device = -1;
    for (uint32_t i = 0; i < COUNT; i++)
        places[i] = (cuda_pci_address){.bus = 0x10 + i, .device = i};
}

static void expect(const int32_t *expected) {
    CU_ASSERT_TRUE(ask(COUNT));
    for (int i = 0; i < COUNT * COUNT; i++)
        CU_ASSERT_EQUAL(matrix[i], expected[i]);
    CU_ASSERT_EQUAL(fake->starts, 1); /* and not stopped */
}

TEST("no_links") {
    static const int32_t none[COUNT * COUNT] = {0};
    start();
    expect(none);
}

/* 18 each, 18, 16 and 0: the smaller of both. */
TEST("switches") {
    static const int32_t expected[COUNT * COUNT] = {0,  18, 16, 0, 18, 0, 16, 0,
                                                    16, 16, 0,  0, 0,  0, 0,  0};
    start();
    for (int d = 0; d < 3; d++)
        for (int link = 0; link < FAKE_NVML_LINKS; link++)
            fake->links[d][link] = LINK_SWITCH;
    fake->links[2][0] = LINK_OFF; /* does not end the list */
    fake->links[2][9] = LINK_NONE;
    expect(expected);
}

TEST("direct") {
    static const int32_t expected[COUNT * COUNT] = {0, 2, 1, 0, 2, 0, 0, 0, 1, 0, 0, 4, 0, 0, 4, 0};
    start();
    fake->links[0][0] = fake->links[0][1] = LINK_GPU + 1;
    fake->links[1][3] = fake->links[1][4] = LINK_GPU + 0;
    fake->links[0][2] = LINK_GPU + 2;
    fake->links[2][7] = LINK_GPU + 0;
    fake->links[0][5] = LINK_OTHER;   /* a processor */
    fake->links[1][5] = LINK_GPU + 9; /* a device that this process does not see */
    for (int link = 0; link < 3; link++) {
        fake->links[2][link] = LINK_GPU + 3;
        fake->links[3][link] = LINK_GPU + 2;
    }
    fake->links[2][12] = fake->links[3][12] = LINK_SWITCH; /* both kinds add up */
    expect(expected);
}

/* A link that only one end sees does not join the two. */
TEST("one_end") {
    static const int32_t none[COUNT * COUNT] = {0};
    start();
    fake->links[0][0] = LINK_GPU + 1;
    expect(none);
}

TEST("failures") {
    start();
    fake->refuses_start = 1;
    CU_ASSERT_FALSE(ask(COUNT));
    CU_ASSERT_PTR_NOT_NULL(strstr(reason, "does not start (999)"));
    start();
    fake->unknown_device = 2;
    CU_ASSERT_FALSE(ask(COUNT));
    CU_ASSERT_PTR_NOT_NULL(strstr(reason, "00000000:12:02.0"));
    CU_ASSERT_EQUAL(fake->starts, 1); /* and not stopped */
    CU_ASSERT_FALSE(cuda_nvml_links("libnot-there.so.9", COUNT, places, matrix, reason, 30));
    CU_ASSERT_PTR_NOT_NULL(strstr(reason, "no management library"));
    CU_ASSERT_FALSE(cuda_nvml_links("libc.so.6", COUNT, places, matrix, reason, sizeof reason));
    CU_ASSERT_PTR_NOT_NULL(strstr(reason, "has no nvmlInit_v2"));
    for (int i = 0; i < COUNT * COUNT; i++)
        CU_ASSERT_EQUAL(matrix[i], UNTOUCHED);
}

int unit_setup(void) {
    void *library = dlopen(UNIT_FAKE_NVML, RTLD_NOW);
    fake = library != NULL ? dlsym(library, "fake_nvml") : NULL;
    return fake == NULL;
}
