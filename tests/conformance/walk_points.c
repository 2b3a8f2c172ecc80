/* SPDX-License-Identifier: BSD-3-Clause */
/* The core's failpoints, as the table in SPEC.md has them. */
#include "walk.h"

#define FAILS_WITH(name_, needs_)                                                                  \
    { .name = name_, .needs = needs_ }
#define FAILS(name_) FAILS_WITH(name_, 0)
#define OBSERVES_WITH(name_, needs_)                                                               \
    { .name = name_, .needs = needs_, .observes = true }
#define OBSERVES(name_) OBSERVES_WITH(name_, 0)
/* With a backend that registers memory collectively. */
#define RARE(name_)                                                                                \
    { .name = name_, .rare = true }

const struct walk_point walk_core_points[] = {
    FAILS("init.identity"),
    FAILS("init.done"),
    FAILS("alloc.persistent"),
    FAILS("alloc.before"),
    FAILS("alloc.done"),
    FAILS("free.before"),
    OBSERVES("free.done"),
    FAILS_WITH("pool.create", SYMMEM_CAP_POOL),
    FAILS_WITH("pool.alloc", SYMMEM_CAP_POOL),
    FAILS_WITH("pool.free", SYMMEM_CAP_POOL),
    FAILS_WITH("pool.destroy", SYMMEM_CAP_POOL),
    FAILS("group.create"),
    FAILS("group.destroy"),
    OBSERVES("group.destroyed"),
    FAILS("session.join.before"),
    FAILS("session.join.published"),
    OBSERVES("session.join.read"),
    OBSERVES("session.join.done"),
    FAILS("exchange.publish.before"),
    OBSERVES("exchange.publish.after"),
    FAILS("exchange.combine.read"),
    OBSERVES("exchange.combine.before"),
    OBSERVES("exchange.wait.before"),
    OBSERVES("exchange.clean.before"),
    OBSERVES("exchange.done"),
    FAILS("ipc.send.before"),
    FAILS("ipc.send.after"),
    FAILS("ipc.recv.after"),
    FAILS("rendezvous.begin"),
    FAILS_WITH("rendezvous.create.before", SYMMEM_CAP_MULTICAST),
    FAILS("rendezvous.metadata.before"),
    FAILS("rendezvous.metadata.after"),
    FAILS("rendezvous.descriptors.before"),
    FAILS("rendezvous.descriptors.after"),
    FAILS("rendezvous.map.before"),
    {.name = "rendezvous.map.peer", .unless = "rendezvous.register.after"},
    RARE("rendezvous.open.after"),
    RARE("rendezvous.register.after"),
    FAILS_WITH("rendezvous.attach.before", SYMMEM_CAP_MULTICAST),
    FAILS_WITH("rendezvous.bind.before", SYMMEM_CAP_MULTICAST),
    FAILS("rendezvous.peers.before"),
    FAILS("rendezvous.map.after"),
    FAILS("rendezvous.commit.before"),
    OBSERVES("rendezvous.commit.after"),
    OBSERVES("barrier.begin"),
    OBSERVES("barrier.done"),
    OBSERVES("put_signal.begin"),
    OBSERVES("put_signal.done"),
    OBSERVES("wait_signal.begin"),
    OBSERVES("wait_signal.done"),
    FAILS_WITH("collective.before", SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS),
    OBSERVES_WITH("collective.begin", SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS),
    OBSERVES_WITH("collective.done", SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS),
    FAILS("copy.before"),
    FAILS("fill.before"),
    FAILS_WITH("multimem.before", SYMMEM_CAP_MULTICAST),
    FAILS_WITH("value.before", SYMMEM_CAP_VALUES),
    FAILS("reset.begin"),
    FAILS("reset.state.before"),
    FAILS("reset.state.after"),
    OBSERVES("reset.done"),
    FAILS_WITH("stream.create", SYMMEM_CAP_STREAMS),
    OBSERVES_WITH("stream.synchronize", SYMMEM_CAP_STREAMS),
    FAILS_WITH("capture.begin", SYMMEM_CAP_CAPTURE),
    OBSERVES_WITH("capture.end", SYMMEM_CAP_CAPTURE),
    FAILS_WITH("graph.launch", SYMMEM_CAP_CAPTURE),
    OBSERVES("finalize.begin"),
    OBSERVES("finalize.streams"),
    OBSERVES("finalize.memory"),
    OBSERVES("finalize.groups"),
    OBSERVES("finalize.identity"),
    OBSERVES("finalize.done"),
};
const int walk_core_point_count = (int)(sizeof(walk_core_points) / sizeof(walk_core_points[0]));

const struct walk_point *walk_core_point(const char *name) {
    for (int i = 0; i < walk_core_point_count; i++)
        if (strcmp(walk_core_points[i].name, name) == 0)
            return &walk_core_points[i];
    return NULL;
}

bool walk_observes(const char *name) {
    const struct walk_point *core = walk_core_point(name);
    size_t length = strlen(name);

    if (core != NULL)
        return core->observes;
    return length > 0 && name[length - 1] == '*';
}
