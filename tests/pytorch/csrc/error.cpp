// SPDX-License-Identifier: BSD-3-Clause
#include "error.h"

#include "store.h"

#include <c10/util/Exception.h>

#include <sstream>

namespace symmem_torch {

std::string describe(symmem_status status) {
    symmem_error_record record;
    symmem_last_error(&record);
    if (record.status != status) {
        return std::string(symmem_status_name(status)) + ": " + symmem_status_text(status);
    }
    std::ostringstream line;
    line << "symmem " << record.operation << ": " << record.message << " ["
         << symmem_status_name(status);
    if (record.stage[0] != 0) {
        line << ", stage " << record.stage;
    }
    if (record.group[0] != 0) {
        line << ", group " << record.group;
    }
    if (record.rank >= 0) {
        line << ", rank " << record.rank;
    }
    if (record.channel >= 0) {
        line << ", channel " << record.channel;
    }
    if (record.failed_rank >= 0) {
        line << ", failed rank " << record.failed_rank;
    }
    const char *separator = ", missing ranks ";
    for (int32_t rank = 0; rank < record.world_size; rank++) {
        if (symmem_error_is_missing(&record, rank)) {
            line << separator << rank;
            separator = " ";
        }
    }
    if (status == SYMMEM_SYSTEM && !what_store_said().empty()) {
        line << ", PyTorch's store said: " << what_store_said();
    }
    line << ", after " << record.elapsed_ns / 1000000 << " ms]";
    return line.str();
}

void check(symmem_status status) {
    TORCH_CHECK(status == SYMMEM_OK, describe(status));
}

} // namespace symmem_torch
