// SPDX-License-Identifier: BSD-3-Clause
// Reductions of matrices that are cut from larger ones. PyTorch's own checks and what they say come
// first, symmem's after.
#include "ops.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace symmem_torch {
namespace {

using std::string;
using Tensor = at::Tensor;

/* The elements of symmem's rows follow each other. Where those of a matrix's columns do, rows and
 * columns change places. The tile decides for its out as well. */
bool is_turned(const Tensor &tile) {
    return tile.stride(0) == 1 && tile.stride(1) != 1;
}

struct Tile {
    Tile(const Tensor &whole, const char *name, bool turned)
        : tensor(turned ? whole.t() : whole), view(View::strided(tensor, name)) {}

    Tensor tensor; /* whose shape the view borrows */
    View view;
};

void check_is_matrix(const Tensor &tensor) {
    TORCH_CHECK(tensor.dim() == 2, "Only 2D tensors are supported (got ", tensor.sizes(), ")");
}

/* --- one root ------------------------------------------------------------------------------- */

void tile_reduce(const Tensor &in_tile, Tensor out_tile, int64_t root, const string &group,
                 const string &op) {
    auto reduce = sum_only(op);
    check_is_matrix(in_tile);
    check_is_matrix(out_tile);
    check_same_shape(in_tile, out_tile);
    TORCH_CHECK(in_tile.strides() == out_tile.strides(),
                "output must have input's strides: ", out_tile.strides(), " and ",
                in_tile.strides());
    check_symmetric(in_tile, "in_tile");
    check_symmetric(out_tile, "out_tile");
    Tile from(in_tile, "in_tile", is_turned(in_tile)), to(out_tile, "out_tile", is_turned(in_tile));
    auto handle = handle_of(in_tile, group);
    check(symmem_tile_reduce(handle->raw(), from.view, reduce, handle->rank_of(root, "root"),
                             to.view, default_channel, handle->timeout_ms(), nullptr));
}

/* --- many roots ----------------------------------------------------------------------------- */

/* Tiles of one handle, as many as ranks at most. */
struct Tiles {
    std::vector<Tensor> tensors;
    std::vector<int32_t> roots;
};

/* One call of symmem's. `out` is of the tile that this rank is the root of, if there is one. */
void reduce_tiles(const Handle &handle, const Tiles &tiles, symmem_reduce_op op,
                  const Tensor &out) {
    std::vector<Tile> views;
    std::vector<const DLTensor *> pointers;
    std::optional<Tile> to;
    views.reserve(tiles.roots.size()); // so that each stays where it is
    for (size_t i = 0; i < tiles.roots.size(); i++) {
        bool turned = is_turned(tiles.tensors[i]);
        pointers.push_back(views.emplace_back(tiles.tensors[i], "in_tile", turned).view);
        if (tiles.roots[i] == handle.info().rank) {
            to.emplace(out, "out_tile", turned);
        }
    }
    check(symmem_multi_root_tile_reduce(handle.raw(), static_cast<int32_t>(pointers.size()),
                                        pointers.data(), tiles.roots.data(), op,
                                        to ? static_cast<const DLTensor *>(to->view) : nullptr,
                                        default_channel, handle.timeout_ms(), nullptr));
}

/* The bytes from the first element to the last one. */
std::pair<uintptr_t, uintptr_t> range_of(const Tensor &tensor) {
    int64_t elements = tensor.numel() > 0;
    for (int64_t d = 0; d < tensor.dim() && elements > 0; d++) {
        elements += (tensor.size(d) - 1) * tensor.stride(d);
    }
    auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    return {begin, begin + static_cast<size_t>(elements) * tensor.element_size()};
}

/* Where symmem does not see both, for they are of several calls. */
void check_apart(const Tensor &out, const Tensor &tile, const char *text) {
    auto [begin, end] = range_of(out);
    auto [from, to] = range_of(tile);
    TORCH_CHECK(end <= from || to <= begin, text);
}

void check_tiles(at::TensorList in_tiles, const Tensor &out_tile, at::IntArrayRef roots) {
    check_is_matrix(out_tile);
    TORCH_CHECK(roots.size() == in_tiles.size(),
                "Number of roots must match number of tiles: ", roots.size(), " and ",
                in_tiles.size());
    TORCH_CHECK(!in_tiles.empty(), "symmem: there must be at least one tile");
    for (const auto &tile : in_tiles) {
        check_is_matrix(tile);
        TORCH_CHECK(tile.scalar_type() == out_tile.scalar_type(),
                    "out_tile must have the dtype of tiles: ", out_tile.scalar_type(), " and ",
                    tile.scalar_type());
        check_symmetric(tile, "in_tile");
    }
    check_symmetric(out_tile, "out_tile");
}

std::vector<int32_t> check_roots(const Handle &handle, at::IntArrayRef roots) {
    std::vector<bool> seen(handle.info().world_size);
    std::vector<int32_t> ranks;
    for (auto root : roots) {
        auto rank = ranks.emplace_back(handle.rank_of(root, "root"));
        TORCH_CHECK(!seen[rank], "Each rank can only be a root once (rank ", rank, " is not)");
        seen[rank] = true;
    }
    return ranks;
}

/* PyTorch's tiles may be of several tensors, symmem's are of one. There is a call for each tensor,
 * in the order of the tiles, which all ranks have. */
using Calls = std::vector<std::pair<HandlePtr, Tiles>>;

void add_tile(Calls &calls, HandlePtr handle, const Tensor &tile, int32_t root) {
    auto is_same = [&](const auto &call) { return call.first == handle; };
    auto call = std::find_if(calls.begin(), calls.end(), is_same);
    if (call == calls.end()) {
        call = calls.insert(call, {std::move(handle), {}});
    }
    call->second.tensors.push_back(tile);
    call->second.roots.push_back(root);
}

/* What symmem cannot see, for it looks at one call: it would write what another one reads. */
void check_other_calls(const Calls &calls, const Tensor &out, int32_t rank) {
    for (const auto &[handle, tiles] : calls) {
        if (std::count(tiles.roots.begin(), tiles.roots.end(), rank) == 0) {
            for (const auto &tile : tiles.tensors) {
                check_apart(out, tile, "symmem: out_tile overlaps a tile of another tensor");
            }
        }
    }
}

void multi_root_tile_reduce(at::TensorList in_tiles, Tensor out_tile, at::IntArrayRef roots,
                            const string &group, const string &op) {
    auto reduce = sum_only(op);
    check_tiles(in_tiles, out_tile, roots);
    auto first = handle_of(in_tiles[0], group);
    auto ranks = check_roots(*first, roots);
    auto own = first->info().rank;
    Calls calls;
    for (size_t i = 0; i < in_tiles.size(); i++) {
        add_tile(calls, handle_of(in_tiles[i], group), in_tiles[i], ranks[i]);
    }
    if (std::count(ranks.begin(), ranks.end(), own) > 0) {
        check_other_calls(calls, out_tile, own);
    }
    for (const auto &[handle, tiles] : calls) {
        reduce_tiles(*handle, tiles, reduce, out_tile);
    }
}

/* --- blocks of rows or columns -------------------------------------------------------------- */

struct Block {
    Tensor tensor;
    int32_t root;
};

std::vector<int64_t> ends_of_blocks(int64_t length, int64_t world_size,
                                    at::OptionalIntArrayRef offsets) {
    if (offsets.has_value()) {
        return offsets->vec();
    }
    TORCH_CHECK(length % world_size == 0, "the group's size does not divide ", length);
    std::vector<int64_t> ends;
    for (int64_t rank = 1; rank <= world_size; rank++) {
        ends.push_back(length / world_size * rank);
    }
    return ends;
}

std::vector<Block> blocks_of(const Tensor &input, int64_t dim, const std::vector<int64_t> &ends,
                             at::OptionalIntArrayRef dst_ranks, const Handle &handle) {
    TORCH_CHECK(!dst_ranks.has_value() || dst_ranks->size() == ends.size(),
                "offsets and dst_ranks must have one length: ", ends.size(), " and ",
                dst_ranks.has_value() ? dst_ranks->size() : 0);
    std::vector<Block> blocks;
    int64_t begin = 0;
    for (size_t i = 0; i < ends.size(); i++) {
        auto dst = dst_ranks.has_value() ? (*dst_ranks)[i]
                                         : static_cast<int64_t>(i) % handle.info().world_size;
        auto root = handle.rank_of(dst, "dst_ranks");
        TORCH_CHECK(begin <= ends[i] && ends[i] <= input.size(dim),
                    "offsets must rise, and not beyond ", input.size(dim), " (got ", ends, ")");
        blocks.push_back({input.narrow(dim, begin, ends[i] - begin), root});
        begin = ends[i];
    }
    return blocks;
}

void check_outs(const Tensor &input, at::TensorList out, const std::vector<Block> &blocks,
                int32_t rank) {
    size_t own = 0;
    for (const auto &block : blocks) {
        if (block.root == rank) {
            TORCH_CHECK(own < out.size() && out[own].sizes() == block.tensor.sizes(),
                        "out must have a tensor of its shape for each block of this rank");
            check_same_shape(block.tensor, out[own]);
            TORCH_CHECK(out[own].is_contiguous(), "out must be contiguous");
            check_apart(out[own], input, "symmem: out overlaps input");
            own++;
        }
    }
    TORCH_CHECK(own == out.size(),
                "out must have a tensor of its shape for each block of this rank");
}

/* A rank may have several blocks, and is the root of one in a call: the first blocks of all ranks
 * come first, then the second ones. */
void reduce_scatter_offset(const Tensor &input, at::TensorList out, const string &group,
                           int64_t dim, at::OptionalIntArrayRef offsets,
                           at::OptionalIntArrayRef dst_ranks, const string &op) {
    auto reduce = sum_only(op);
    TORCH_CHECK(input.dim() == 2 && (dim == 0 || dim == 1),
                "input must have two dimensions, and dim be 0 or 1");
    auto handle = handle_of(input, group);
    const auto &info = handle->info();
    auto ends = ends_of_blocks(input.size(dim), info.world_size, offsets);
    auto blocks = blocks_of(input, dim, ends, dst_ranks, *handle);
    check_outs(input, out, blocks, info.rank);
    std::vector<Tiles> rounds;
    std::vector<size_t> blocks_of_rank(info.world_size);
    for (auto &[tensor, root] : blocks) {
        auto round = blocks_of_rank[root]++;
        rounds.resize(std::max(rounds.size(), round + 1));
        rounds[round].tensors.push_back(std::move(tensor));
        rounds[round].roots.push_back(root);
    }
    for (size_t i = 0; i < rounds.size(); i++) {
        reduce_tiles(*handle, rounds[i], reduce, i < out.size() ? out[i] : Tensor());
    }
}

} // namespace
} // namespace symmem_torch

TORCH_LIBRARY_IMPL(symm_mem, CPU, m) {
    using namespace symmem_torch;
    m.impl("tile_reduce", kernel<&tile_reduce>());
    m.impl("multi_root_tile_reduce", kernel<&multi_root_tile_reduce>());
    m.impl("nccl_reduce_scatter_offset", kernel<&reduce_scatter_offset>());
}
