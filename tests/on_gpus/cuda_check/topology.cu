// SPDX-License-Identifier: BSD-3-Clause
// The links between devices, beside what nvidia-smi topo -m shows of them.
#include "check.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// Reads the cells of a row behind its name, one for each device. NV18 means 18 links, other words
// no NVLink. Returns false if there are fewer cells.
static bool read_cells(char *rest, int devices, std::vector<int32_t> &links) {
    for (int i = 0; i < devices; i++) {
        const char *cell = strtok_r(rest, " \t\n", &rest);
        if (cell == nullptr)
            return false;
        links.push_back(strncmp(cell, "NV", 2) == 0 ? static_cast<int32_t>(atoi(cell + 2)) : 0);
    }
    return true;
}

// Rows begin with "GPU0" and so on; the heading begins otherwise, and other rows have other names.
static bool read_table(FILE *table, int devices, std::vector<int32_t> &links) {
    char line[4096];
    int rows = 0;
    while (rows < devices && fgets(line, sizeof line, table) != nullptr) {
        const std::string name = "GPU" + std::to_string(rows) + "\t";
        if (strncmp(line, name.c_str(), name.size()) != 0)
            continue;
        if (!read_cells(line + name.size(), devices, links))
            return false;
        rows++;
    }
    return rows == devices;
}

static std::string text_of(const std::vector<int32_t> &matrix) {
    std::string text;
    for (int32_t links : matrix)
        text += (text.empty() ? "" : " ") + std::to_string(links);
    return text;
}

void check_topology(check &c) {
    int32_t devices = 0;
    std::vector<int32_t> shown;
    if (c.rank != 0)
        return;
    if (getenv("CUDA_VISIBLE_DEVICES") != nullptr) {
        printf(
            "rank 0: SKIPPED: links between devices: nvidia-smi counts all, CUDA_VISIBLE_DEVICES "
            "hides some\n");
        return;
    }
    need(c, "devices", symmem_device_count(c.context, &devices) == SYMMEM_OK);
    std::vector<int32_t> matrix(static_cast<size_t>(devices) * static_cast<size_t>(devices));
    need(c, "connectivity",
         symmem_connectivity(c.context, "nvlink", devices, matrix.data()) == SYMMEM_OK);
    FILE *table = popen("nvidia-smi topo -m 2>/dev/null", "r");
    const bool read = table != nullptr && read_table(table, devices, shown);
    if (table != nullptr)
        pclose(table);
    expect(c, "links between devices", read && matrix == shown, "%s; nvidia-smi topo -m: %s",
           text_of(matrix).c_str(), read ? text_of(shown).c_str() : "no table of so many devices");
}
