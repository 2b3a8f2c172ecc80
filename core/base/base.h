/* SPDX-License-Identifier: BSD-3-Clause */
/* What all of the core uses. */
#ifndef SYMMEM_CORE_BASE_H
#define SYMMEM_CORE_BASE_H

#include "base/env.h"
#include "base/error.h"
#include "base/index.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/treap.h"
#include "base/process.h"
#include "base/status.h"
#include "base/timed_mutex.h"
#include "base/util.h"

#endif
