/* SPDX-License-Identifier: BSD-3-Clause */
/* All of the bootstrap. */
#ifndef SYMMEM_CORE_BOOTSTRAP_H
#define SYMMEM_CORE_BOOTSTRAP_H

#include "base/fork.h"
#include "bootstrap/identity.h"
#include "bootstrap/ipc.h"
#include "bootstrap/launcher.h"
#include "bootstrap/life.h"
#include "bootstrap/liveness.h"
#include "bootstrap/member.h"
#include "bootstrap/session.h"
#include "store/store.h"

#endif
