/* SPDX-License-Identifier: BSD-3-Clause */
/* How many links join the devices. */
#include "fake_table.h"
#include "limits_help.h"

#define UNTOUCHED_LINKS (-77)
#define ALL_RANKS_SLOT 5

/* A matrix for `count` devices with one entry more, all of them with a value no call gives. */
static int32_t *fresh_matrix(struct tk *t, int32_t count) {
    size_t entries = (size_t)count * (size_t)count + 1;
    int32_t *matrix = malloc(entries * sizeof(*matrix));
    TK_REQUIRE(t, matrix != NULL);
    for (size_t i = 0; i < entries; i++)
        matrix[i] = UNTOUCHED_LINKS;
    return matrix;
}

static void check_matrix(struct tk *t, const int32_t *matrix, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j <= i; j++) {
            int32_t links = matrix[i * count + j];
            TK_CHECK_MSG(t, links >= 0, "devices %d and %d: %d links", (int)i, (int)j, (int)links);
            TK_CHECK_MSG(t, i != j || links == 0, "device %d is joined with itself", (int)i);
            TK_CHECK_MSG(t, links == matrix[j * count + i], "devices %d and %d: %d and %d links",
                         (int)i, (int)j, (int)links, (int)matrix[j * count + i]);
        }
    TK_EQ_INT(t, UNTOUCHED_LINKS, matrix[count * count]);
}

static uint64_t hash_matrix(const int32_t *matrix, int32_t count) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int32_t i = 0; i < count * count; i++)
        hash = (hash ^ (uint64_t)(uint32_t)matrix[i]) * UINT64_C(1099511628211);
    return hash;
}

/* PyTorch's test of the same name looks at the size only. */
TK_PORTED(test_cuda_nvlink_connectivity_detection, "SM-BACKEND-14",
          .needs = SYMMEM_CAP_CONNECTIVITY, .max_ranks = 4) {
    int32_t count = device_count(t);
    int32_t *matrix = fresh_matrix(t, count);
    int32_t *again = fresh_matrix(t, count);
    TK_REQ(t, "SM-BACKEND-14");
    TK_OK(t, symmem_connectivity(t->context, "nvlink", count, matrix));
    check_matrix(t, matrix, count);
    TK_OK(t, symmem_connectivity(t->context, "nvlink", count, again));
    TK_CHECK(t, memcmp(matrix, again, sizeof(*matrix) * (size_t)(count * count)) == 0);
    tk_share_u64(t, ALL_RANKS_SLOT, hash_matrix(matrix, count));
    tk_out_of_band_barrier(t);
    for (int32_t r = 0; r < t->world_size; r++)
        TK_CHECK_MSG(t, tk_read_u64(t, r, ALL_RANKS_SLOT) == hash_matrix(matrix, count),
                     "rank %d sees other links", (int)r);
    free(again);
    free(matrix);
}

static void check_untouched(struct tk *t, const int32_t *matrix, int32_t count) {
    for (int32_t i = 0; i <= count * count; i++)
        TK_EQ_INT(t, UNTOUCHED_LINKS, matrix[i]);
}

TK_TEST(connectivity, refusals, "SM-BACKEND-15,SM-ERROR-01", .needs = SYMMEM_CAP_CONNECTIVITY,
        .max_ranks = 2) {
    static const char *const unknown[] = {"", "nvlin", "nvlink ", "NVLINK", "pcie", "%s%n"};
    int32_t count = device_count(t);
    int32_t *matrix = fresh_matrix(t, count);
    TK_REQ(t, "SM-BACKEND-15");
    REFUSED(t, INVALID_ARGUMENT, symmem_connectivity(t->context, NULL, count, matrix));
    REFUSED(t, INVALID_ARGUMENT, symmem_connectivity(t->context, "nvlink", count, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_connectivity(t->context, "nvlink", count - 1, matrix));
    REFUSED(t, OUT_OF_RANGE, symmem_connectivity(t->context, "nvlink", count + 1, matrix));
    REFUSED(t, OUT_OF_RANGE, symmem_connectivity(t->context, "nvlink", 0, matrix));
    REFUSED(t, OUT_OF_RANGE, symmem_connectivity(t->context, "nvlink", -1, matrix));
    REFUSED(t, OUT_OF_RANGE, symmem_connectivity(t->context, "nvlink", INT32_MAX, matrix));
    for (size_t i = 0; i < TK_COUNT(unknown); i++)
        REFUSED(t, NOT_FOUND, symmem_connectivity(t->context, unknown[i], count, matrix));
    check_untouched(t, matrix, count);
    free(matrix);
}

/* What the fake of two devices answers. Set in the one rank of the case. */
static int32_t fake_answer[4];

static symmem_status fake_connectivity(void *instance, const char *connection, int32_t count,
                                       int32_t *matrix) {
    memcpy(matrix, fake_answer, sizeof(*matrix) * (size_t)(count * count));
    return SYMMEM_OK;
}

TK_TEST(connectivity, wrong_answers, "SM-BACKEND-16", TK_ON_FAKES) {
    static const int32_t wrong[][4] = {
        {0, -1, -1, 0}, {0, 1, 2, 0}, {1, 2, 2, 0}, {0, 2, 2, 1}, {0, 3, 0, 0}};
    static const int32_t right[4] = {0, 18, 18, 0};
    flat_backend table = flat_of(&fake_table_a);
    int32_t *matrix = fresh_matrix(t, 2);
    table.connectivity = fake_connectivity;
    use_table(t, flat_table(&table));
    TK_EQ_INT(t, 2, device_count(t));
    for (size_t i = 0; i < TK_COUNT(wrong); i++) {
        memcpy(fake_answer, wrong[i], sizeof(fake_answer));
        REFUSED(t, BACKEND, symmem_connectivity(t->context, "nvlink", 2, matrix));
        check_untouched(t, matrix, 2);
    }
    memcpy(fake_answer, right, sizeof(fake_answer));
    TK_OK(t, symmem_connectivity(t->context, "nvlink", 2, matrix));
    TK_CHECK(t, memcmp(matrix, right, sizeof(right)) == 0);
    free(matrix);
    tk_end_context(t); /* before the table on this stack goes */
}
