/* SPDX-License-Identifier: BSD-3-Clause */
/* The whole user API. Backend authors include <symmem/backend.h>. */
#ifndef SYMMEM_H
#define SYMMEM_H

#include <symmem/context.h>
#include <symmem/group.h>
#include <symmem/handle.h>
#include <symmem/memory.h>
#include <symmem/ops.h>
#include <symmem/status.h>
#include <symmem/store.h>
#include <symmem/stream.h>
#include <symmem/view.h>
#include <symmem/window.h>
#include <symmem/world.h>

#endif
