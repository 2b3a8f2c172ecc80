// SPDX-License-Identifier: BSD-3-Clause
// What symmem reports, as an exception of PyTorch's.
#pragma once

#include <string>

#include <symmem/symmem.h>

namespace symmem_torch {

/* The calling thread's record in one line: what failed, how, at which step, who was missing. */
std::string describe(symmem_status status);

/* Throws c10::Error, a RuntimeError in Python, unless the status is SYMMEM_OK. */
void check(symmem_status status);

} // namespace symmem_torch
