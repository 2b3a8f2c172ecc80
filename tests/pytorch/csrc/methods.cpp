// SPDX-License-Identifier: BSD-3-Clause
// A module of Python's: methods of handles. PyTorch's class for handles gets them in place of its
// own when the package is imported. An operator would cost ten times as much. The module is a
// library of its own, for programs without Python use the other one.
#include "buffers.h"
#include "checked.h"
#include "python.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <unistd.h>

namespace symmem_torch {
namespace {

namespace py = pybind11;
using Symmetric = c10d::symmetric_memory::SymmetricMemory;

at::Tensor buffer(Symmetric &memory, int64_t rank, at::IntArrayRef sizes, at::ScalarType dtype,
                  int64_t storage_offset) {
    auto handle = handle_of(memory);
    return handle ? get_buffer(handle, rank, sizes, dtype, storage_offset)
                  : memory.get_buffer(narrow<int>(rank, "rank"), sizes, dtype, storage_offset);
}

at::Tensor remote_tensor(Symmetric &memory, int64_t peer, at::IntArrayRef sizes,
                         at::ScalarType dtype) {
    auto handle = handle_of(memory);
    return handle ? get_remote_tensor(handle, peer, sizes, dtype)
                  : memory.get_remote_tensor(narrow<int>(peer, "peer"), sizes, dtype);
}

at::Tensor signal_pad(Symmetric &memory, int64_t rank, at::IntArrayRef sizes,
                      std::optional<at::ScalarType> dtype, int64_t storage_offset) {
    auto handle = handle_of(memory);
    return handle ? get_signal_pad(handle, rank, sizes, dtype, storage_offset)
                  : memory.get_signal_pad(narrow<int>(rank, "rank"), sizes, dtype, storage_offset);
}

template <typename Function, typename... Arguments>
void replace(const py::object &type, const char *name, Function function,
             const Arguments &...arguments) {
    type.attr(name) = py::cpp_function(torch::wrap_pybind_function(function), py::name(name),
                                       py::is_method(type), arguments...);
}

void replace_methods(const py::object &type) {
    replace(type, "get_buffer", &buffer, py::arg("rank"), py::arg("sizes"), py::arg("dtype"),
            py::arg("storage_offset") = 0);
    replace(type, "get_remote_tensor", &remote_tensor, py::arg("peer"), py::arg("sizes"),
            py::arg("dtype"));
    replace(type, "get_signal_pad", &signal_pad, py::arg("rank"), py::arg("sizes") = py::tuple(),
            py::arg("dtype") = py::none(), py::arg("storage_offset") = 0);
}

void *release() {
    return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}

bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

/* While the interpreter ends, Python would end a daemon thread here, inside a destructor. It stays
 * until the process has ended. */
void acquire(void *state) {
    while (interpreter_ends()) {
        pause();
    }
    PyEval_RestoreThread(static_cast<PyThreadState *>(state));
}

py::object *ranks_function; /* never destroyed: it may be asked for while the process ends */

std::optional<std::vector<int32_t>> ranks_of(const std::string &group) {
    if (!Py_IsInitialized()) {
        return std::nullopt;
    }
    py::gil_scoped_acquire locked;
    try {
        return (*ranks_function)(group).cast<std::vector<int32_t>>();
    } catch (const std::exception &) { /* Python does not know the group */
        return std::nullopt;
    }
}

void set_ranks_function(const py::object &function) {
    static const Python functions = {&release, &acquire, &ranks_of};
    ranks_function = new py::object(function);
    set_python(&functions);
}

} // namespace
} // namespace symmem_torch

PYBIND11_MODULE(symmem_torch_methods, m) {
    m.def("replace_methods", &symmem_torch::replace_methods);
    m.def("set_ranks_function", &symmem_torch::set_ranks_function);
}
