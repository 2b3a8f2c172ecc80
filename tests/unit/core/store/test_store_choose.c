/* SPDX-License-Identifier: BSD-3-Clause */
/* Which store a context uses, by the variables of launchers, and what can be opened. */
#include "unit.h"

#include "store/store_choose.h"

static const char *const variables[] = {
    "SYMMEM_STORE", "SYMMEM_LAUNCHER",  "MASTER_ADDR",
    "MASTER_PORT",  "PMIX_NAMESPACE",   "TORCHELASTIC_RUN_ID",
    "PMIX_RANK",    "LOCAL_WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE"};

static void set_only(const char *const *settings) {
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    for (; settings[0] != NULL; settings += 2)
        setenv(settings[0], settings[1], 1);
}

/* 300 characters. */
#define H50 "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh"
#define LONG H50 H50 H50 H50 H50 H50

TEST("what names the store") {
    static const struct {
        int32_t world_size;
        const char *settings[9];
        symmem_status status;
        const char *chosen;
    } cases[] = {
        {2, {NULL}, SYMMEM_OK, ""},
        {2, {"MASTER_ADDR", "host"}, SYMMEM_OK, ""},
        {2, {"MASTER_PORT", "29500"}, SYMMEM_OK, ""},
        {2, {"MASTER_ADDR", "host", "MASTER_PORT", "29500"}, SYMMEM_OK, "tcp://host:29501"},
        {2, {"MASTER_ADDR", "::1", "MASTER_PORT", "65535"}, SYMMEM_OK, "tcp://[::1]:65534"},
        {1, {"MASTER_ADDR", "host", "MASTER_PORT", "29500"}, SYMMEM_OK, ""},
        {2, {"MASTER_ADDR", "", "MASTER_PORT", "29500"}, SYMMEM_INVALID_ARGUMENT, NULL},
        {2, {"MASTER_ADDR", LONG, "MASTER_PORT", "29500"}, SYMMEM_INVALID_ARGUMENT, NULL},
        {2, {"MASTER_ADDR", "host", "MASTER_PORT", "0"}, SYMMEM_INVALID_ARGUMENT, NULL},
        {2, {"MASTER_ADDR", "host", "MASTER_PORT", "65536"}, SYMMEM_INVALID_ARGUMENT, NULL},
        {2, {"MASTER_ADDR", "host", "MASTER_PORT", "1x"}, SYMMEM_INVALID_ARGUMENT, NULL},
        {2,
         {"MASTER_ADDR", "host", "MASTER_PORT", "1", "TORCHELASTIC_USE_AGENT_STORE", "True"},
         SYMMEM_OK,
         "torchrun:"},
        {2,
         {"MASTER_ADDR", "host", "MASTER_PORT", "1", "TORCHELASTIC_USE_AGENT_STORE", "False"},
         SYMMEM_OK,
         "tcp://host:2"},
        {2, {"MASTER_ADDR", "host", "TORCHELASTIC_USE_AGENT_STORE", "True"}, SYMMEM_OK, ""},
        {2, {"MASTER_PORT", "1", "TORCHELASTIC_USE_AGENT_STORE", "True"}, SYMMEM_OK, ""},
        {2,
         {"MASTER_ADDR", "host", "MASTER_PORT", "1", "TORCHELASTIC_USE_AGENT_STORE", "True",
          "SYMMEM_STORE", "file:/somewhere"},
         SYMMEM_OK,
         "file:/somewhere"},
        {2,
         {"MASTER_ADDR", "host", "MASTER_PORT", "1", "SYMMEM_STORE", ""},
         SYMMEM_OK,
         "tcp://host:2"},
        {2, {"SYMMEM_STORE", "tcp://" LONG ":12345678901234567890"}, SYMMEM_INVALID_ARGUMENT, NULL},
        {2, {"PMIX_NAMESPACE", "job"}, SYMMEM_OK, ""},
        {2, {"PMIX_NAMESPACE", "job", "PMIX_RANK", "0", "TORCHELASTIC_RUN_ID", "j"}, SYMMEM_OK, ""},
        {2, {"PMIX_NAMESPACE", "job", "PMIX_RANK", "0", "SYMMEM_LAUNCHER", "env"}, SYMMEM_OK, ""},
        {2, {"PMIX_NAMESPACE", "job", "SYMMEM_LAUNCHER", "slurm"}, SYMMEM_OK, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[SM_STORE_TEXT_BYTES];
        const char *why = NULL;
        set_only(cases[i].settings);
        const symmem_status status = sm_store_choose(cases[i].world_size, text, &why);
        CU_ASSERT_EQUAL(status, cases[i].status);
        CU_ASSERT_PTR_NOT_NULL(why);
        if (status == SYMMEM_OK)
            CU_ASSERT_STRING_EQUAL(text, cases[i].chosen);
    }
}

TEST("a folder's path may be longer than an address") {
    const char *const settings[] = {"SYMMEM_STORE", "file:/tmp/" LONG "/" LONG, NULL};
    char text[SM_STORE_TEXT_BYTES];
    const char *why;
    symmem_store *store = NULL;
    set_only(settings);
    CU_ASSERT_EQUAL(sm_store_choose(2, text, &why), SYMMEM_OK);
    EXPECT_FAIL(sm_store_open_chosen(text, 0, 2, 100, &store), SYMMEM_PATH_TOO_LONG, "store_open");
    EXPECT_FAIL(sm_store_open_chosen("tcp:", 0, 2, 100, &store), SYMMEM_INVALID_ARGUMENT,
                "store_open");
}

TEST("what cannot be opened") {
    static const struct {
        const char *address;
        int32_t rank, world_size;
        symmem_status status;
    } cases[] = {{NULL, 0, 1, SYMMEM_INVALID_ARGUMENT},
                 {"tcp://host:1", 0, 0, SYMMEM_INVALID_ARGUMENT},
                 {"tcp://host:1", 0, SYMMEM_MAX_WORLD_SIZE + 1, SYMMEM_INVALID_ARGUMENT},
                 {"tcp://host:1", -1, 2, SYMMEM_INVALID_ARGUMENT},
                 {"tcp://host:1", 2, 2, SYMMEM_INVALID_ARGUMENT},
                 {"tcp://host", 0, 2, SYMMEM_INVALID_ARGUMENT},
                 {"tcp:host:1", 0, 2, SYMMEM_INVALID_ARGUMENT},
                 {"torchrun:", 0, 2, SYMMEM_UNSUPPORTED},
                 {"pmix:", 0, 2, SYMMEM_UNSUPPORTED}};
    const char *const none[] = {NULL};
    symmem_store *store = NULL;
    set_only(none);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        EXPECT_FAIL(
            symmem_store_open(cases[i].address, cases[i].rank, cases[i].world_size, 100, &store),
            cases[i].status, "store_open");
    EXPECT_FAIL(symmem_store_open("tcp://host:1", 0, 1, 100, NULL), SYMMEM_INVALID_ARGUMENT,
                "store_open");
    CU_ASSERT_PTR_NULL(store);
}

/* More addresses than are counted: the oldest one begins anew, and none is refused. */
TEST("worlds at many addresses") {
    symmem_store *store = NULL;
    for (int i = 0; i < 70; i++) {
        char address[64];
        (void)snprintf(address, sizeof(address), "nothing://%d", i);
        EXPECT_FAIL(symmem_store_open(address, 0, 2, 100, &store), SYMMEM_INVALID_ARGUMENT,
                    "store_open");
        sm_store_undo_incarnation(address, i % 2);
    }
}
