// SPDX-License-Identifier: BSD-3-Clause
// The table. What PyTorch has no words for is not made up here: a wait ends when PyTorch ends it,
// and peers learn of a failure only if the allocator tells them.
#include "engine.h"
#include "work.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <new>

#include <unistd.h>

namespace symmem_plugin {
namespace {

/* The plug-in's own state behind the pad: none, but the core wants some. */
constexpr size_t state_bytes = SYMMEM_ALIGNMENT;

struct Instance {
    Instance(const symmem_host *the_host, int32_t the_rank, int32_t the_size)
        : host(the_host), rank(the_rank), world_size(the_size) {}
    Instance(const Instance &) = delete;
    Instance &operator=(const Instance &) = delete;
    ~Instance() {
        if (is_in_world) {
            leave_world();
        }
    }
    const symmem_host *const host;
    const int32_t rank, world_size;
    std::mutex mutex;
    bool is_in_world = false;
    /* By this rank's address and the group's. */
    std::map<std::pair<void *, Group *>, std::weak_ptr<Meeting>> meetings;
};

/* A mapping of one rank's memory, this rank's too. */
struct Mapping {
    std::shared_ptr<Meeting> meeting;
};

Instance &of(void *instance) {
    return *static_cast<Instance *>(instance);
}

/* The instance's ranks are to find each other in PyTorch's store, too. Only once PyTorch is needed:
 * ranks that are done with an instance before that do not wait for each other, and would find each
 * other's next one. */
void need_world(Instance &instance) {
    std::lock_guard<std::mutex> lock(instance.mutex);
    if (!instance.is_in_world) {
        enter_world(instance.rank, instance.world_size);
        instance.is_in_world = true;
    }
}

/* PyTorch's exceptions are text. A status is what the text names, in symmem's words or in those of
 * PyTorch's own allocators. */
symmem_status status_of(const char *text) {
    static const struct {
        const char *words;
        symmem_status status;
    } known[] = {
#define NAMED(name, value, meaning) {"[" #name, SYMMEM_##name},
        SYMMEM_STATUS_LIST(NAMED)
#undef NAMED
            {"imed out", SYMMEM_TIMEOUT},
        {"imeout", SYMMEM_TIMEOUT},
        {"out of memory", SYMMEM_NO_SPACE},
        {"NYI", SYMMEM_UNSUPPORTED},
        {"not implemented", SYMMEM_UNSUPPORTED},
        {"not supported", SYMMEM_UNSUPPORTED}};
    for (const auto &one : known) {
        if (one.status != SYMMEM_OK && std::strstr(text, one.words)) {
            return one.status;
        }
    }
    return SYMMEM_BACKEND;
}

/* The first line; what follows is where in PyTorch it was. */
std::string first_line(const char *text) {
    return std::string(text, std::strcspn(text, "\n"));
}

/* Runs work; an exception becomes the entry's failure. */
template <typename Do>
symmem_status guarded(const symmem_host *host, const char *operation, Do &&work) {
    try {
        work();
        return SYMMEM_OK;
    } catch (const std::bad_alloc &) {
        return host->fail(host, SYMMEM_OUT_OF_MEMORY, 0, operation, "no memory");
    } catch (const std::exception &error) {
        return host->fail(host, status_of(error.what()), 0, operation, "%s",
                          first_line(error.what()).c_str());
    }
}

uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

/* Milliseconds until then, 1 at least; 0: no limit. */
uint64_t left_ms(uint64_t deadline_ns) {
    auto now = now_ns();
    return deadline_ns == 0 ? 0 : deadline_ns <= now ? 1 : (deadline_ns - now) / 1000000 + 1;
}

class HostWork : public Work {
    void copy(void *dst, const void *src, size_t bytes) override {
        if (bytes > 0) {
            std::memmove(dst, src, bytes);
        }
    }
    void done() override {}
};

std::unique_ptr<Work> work_on(int device, const symmem_exec *exec) {
#ifdef SYMMEM_TORCH_CUDA
    if (!choice().cpu) {
        return cuda_work(device, exec);
    }
#endif
    (void)device, (void)exec;
    return std::make_unique<HostWork>();
}

/* --- the backend and its devices -------------------------------------------------------- */
symmem_status probe(char *reason, size_t capacity) {
    auto problem = choice().problem;
#ifdef SYMMEM_TORCH_CUDA
    if (problem.empty() && !choice().cpu && cuda_device_count() < 1) {
        problem = "PyTorch sees no CUDA device";
    }
#else
    if (problem.empty() && !choice().cpu) {
        problem = "this plug-in was built without CUDA's headers";
    }
#endif
    auto text = problem.empty() ? std::string("PyTorch ") + torch_version() : problem;
    snprintf(reason, capacity, "%s", first_line(text.c_str()).c_str());
    return problem.empty() ? SYMMEM_OK : SYMMEM_UNSUPPORTED;
}

symmem_status open_instance(const symmem_host *host, const symmem_backend_config *config,
                            void **instance_p) {
    return guarded(host, "init", [&] {
#ifdef SYMMEM_TORCH_CUDA
        if (!choice().cpu) {
            cuda_begin();
        }
#endif
        *instance_p = new Instance(host, config->rank, config->world_size);
    });
}

void close_instance(void *instance) {
    delete &of(instance);
}

symmem_status device_count(void *, int32_t *count_p) {
    *count_p = SYMMEM_MAX_WORLD_SIZE;
#ifdef SYMMEM_TORCH_CUDA
    if (!choice().cpu) {
        *count_p = cuda_device_count();
    }
#endif
    return SYMMEM_OK;
}

symmem_status device_info(void *instance, int32_t device, symmem_device_info *info) {
    return guarded(of(instance).host, "device", [&] {
        info->device_type = 1; /* kDLCPU */
        info->granularity = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        snprintf(info->name, sizeof(info->name), "PyTorch %s %d", choice().name.c_str(),
                 static_cast<int>(device));
#ifdef SYMMEM_TORCH_CUDA
        if (!choice().cpu) {
            cuda_describe(device, info);
        }
#endif
    });
}

/* --- memory --------------------------------------------------------------------------- */
/* How much there was, PyTorch does not say. */
symmem_status no_space(const symmem_host *host, size_t bytes, const char *text) {
    auto status = host->fail_sizes(host, SYMMEM_NO_SPACE, 0, "alloc", bytes, 0);
    host->explain(host, "%s", first_line(text).c_str());
    return status;
}

symmem_status memory_alloc(void *instance, int32_t device, size_t bytes, symmem_memory *memory) {
    auto host = of(instance).host;
    auto status = SYMMEM_OK;
    auto made = guarded(host, "alloc", [&] {
        need_world(of(instance));
        try {
            memory->ptr = allocate(bytes, device);
        } catch (const std::exception &error) {
            if (status_of(error.what()) != SYMMEM_NO_SPACE) {
                throw;
            }
            status = no_space(host, bytes, error.what());
            return;
        }
        memory->bytes = bytes;
        memory->device = device;
#ifdef SYMMEM_TORCH_CUDA
        if (!choice().cpu) {
            cuda_settle(device);
        }
#endif
    });
    return status == SYMMEM_OK ? made : status;
}

void memory_release(void *instance, symmem_memory *memory) {
    if (memory->priv) {
        delete static_cast<Mapping *>(memory->priv);
    } else {
        (void)guarded(of(instance).host, "free", [&] { give_back(memory->ptr); });
    }
}

/* The handle that there is, or a new one, for which all ranks come here together. */
std::shared_ptr<Meeting> meeting_of(Instance &instance, const std::shared_ptr<Group> &group,
                                    void *own, uint64_t deadline_ns) {
    const std::pair<void *, Group *> key(own, group.get());
    {
        std::lock_guard<std::mutex> lock(instance.mutex);
        auto known = instance.meetings[key].lock();
        if (known) {
            return known;
        }
    }
    auto made = meet(group, own, left_ms(deadline_ns));
    std::lock_guard<std::mutex> lock(instance.mutex);
    instance.meetings[key] = made;
    return made;
}

symmem_status memory_exchange(void *instance, void *group, symmem_memory *own,
                              const symmem_exchange *exchange, symmem_memory *peers) {
    auto &self = of(instance);
    auto status = guarded(self.host, "rendezvous", [&] {
        auto meeting = meeting_of(self, *static_cast<std::shared_ptr<Group> *>(group), own->ptr,
                                  exchange->deadline_ns);
        auto buffers = meeting->buffers();
        for (int32_t rank = 0; rank < exchange->world_size; rank++) {
            peers[rank] = *own;
            peers[rank].ptr = rank == exchange->rank ? own->ptr : buffers.at(rank);
            peers[rank].imported = rank != exchange->rank;
            peers[rank].priv = new Mapping{meeting};
        }
    });
    if (status != SYMMEM_OK) {
        for (int32_t rank = 0; rank < exchange->world_size; rank++) {
            if (exchange->peer_state(exchange, rank) == SYMMEM_PEER_GONE) {
                status = self.host->fail(self.host, SYMMEM_PEER_LOST, 0, "rendezvous",
                                         "rank %d ended", static_cast<int>(rank));
            }
        }
    }
    return status;
}

symmem_status group_open(void *instance, const symmem_exchange *exchange, int32_t device,
                         void **group_p) {
    return guarded(of(instance).host, "rendezvous", [&] {
        need_world(of(instance));
        char id[24];
        snprintf(id, sizeof(id), ".%llx", static_cast<unsigned long long>(exchange->group_id));
        *group_p = new std::shared_ptr<Group>(open_group(std::string(exchange->group_name) + id,
                                                         exchange->rank, exchange->world_size,
                                                         device, left_ms(exchange->deadline_ns)));
    });
}

void group_close(void *, void *group) {
    delete static_cast<std::shared_ptr<Group> *>(group);
}

/* --- signals: those of the allocation's own handle, whose state is PyTorch's ----------------- */
size_t signal_bytes(void *, int32_t, int32_t, size_t) {
    return state_bytes;
}

/* The group is known by the pad, which is of this group alone. Another group may have mapped the
 * data before this one, and then PyTorch's rendezvous has still to be made for it. */
symmem_status peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                         void **pads_dev_p) {
    auto &self = of(instance);
    return guarded(self.host, "rendezvous", [&] {
        std::shared_ptr<Group> group;
        {
            std::lock_guard<std::mutex> lock(self.mutex);
            for (const auto &[key, one] : self.meetings) {
                auto meeting = key.first == peers->pads[peers->rank] ? one.lock() : nullptr;
                group = meeting ? meeting->group : group;
            }
        }
        if (!group) {
            throw std::runtime_error("no rank has met for the pad");
        }
        peers->priv = new Mapping{meeting_of(self, group, peers->buffers[peers->rank],
                                             self.host->deadline_ns(self.host))};
        *buffers_dev_p = const_cast<void **>(peers->buffers);
        *pads_dev_p = const_cast<void **>(peers->pads);
    });
}

void peers_close(void *, symmem_peers *peers) {
    delete static_cast<Mapping *>(peers->priv);
    peers->priv = nullptr;
}

/* Ranks that the text names, as symmem's record has them; else the peers that can be meant. */
void add_missing(symmem_fault *fault, const symmem_peers *peers, int32_t peer, const char *text) {
    auto named = std::strstr(text, "missing ranks");
    int32_t count = 0, last = -1;
    auto add = [&](int32_t rank) {
        if (rank >= 0 && rank < peers->world_size) {
            fault->missing[rank / 64] |= uint64_t{1} << (rank % 64);
            last = rank;
            count++;
        }
    };
    if (named) {
        char *end = nullptr;
        named += std::strlen("missing ranks");
        for (long rank = std::strtol(named, &end, 10); end != named;
             named = end, rank = std::strtol(named, &end, 10)) {
            add(static_cast<int32_t>(rank));
        }
    } else {
        for (int32_t rank = 0; rank < peers->world_size; rank++) {
            add(peer >= 0 ? peer : rank == peers->rank ? -1 : rank);
            rank = peer >= 0 ? peers->world_size : rank;
        }
    }
    fault->failed_rank = count == 1 ? last : -1;
}

template <typename Do>
symmem_status signal(const symmem_peers *peers, const char *operation, int32_t peer,
                     int32_t channel, const symmem_exec *exec, Do &&work) {
    symmem_fault fault = {};
    fault.operation = exec->operation ? exec->operation : operation;
    fault.channel = channel;
    fault.failed_rank = peer;
    auto start = now_ns();
    try {
        auto on = work_on(peers->device, exec);
        work(*static_cast<Mapping *>(peers->priv)->meeting);
        on->done();
        return SYMMEM_OK;
    } catch (const std::exception &error) {
        fault.status = status_of(error.what());
        fault.elapsed_ns = now_ns() - start;
        if (fault.status == SYMMEM_TIMEOUT || fault.status == SYMMEM_PEER_LOST) {
            add_missing(&fault, peers, peer, error.what());
        }
        peers->host->signal_failed(peers, &fault, nullptr);
        return fault.status;
    }
}

symmem_status barrier(void *, const symmem_peers *peers, int32_t channel, const symmem_exec *exec) {
    return signal(peers, "barrier", -1, channel, exec,
                  [&](Meeting &meeting) { meeting.barrier(channel, exec->timeout_ms); });
}

symmem_status put_signal(void *, const symmem_peers *peers, int32_t dst, int32_t channel,
                         const symmem_exec *exec) {
    return signal(peers, "put_signal", dst, channel, exec,
                  [&](Meeting &meeting) { meeting.put_signal(dst, channel, exec->timeout_ms); });
}

symmem_status wait_signal(void *, const symmem_peers *peers, int32_t src, int32_t channel,
                          const symmem_exec *exec) {
    return signal(peers, "wait_signal", src, channel, exec,
                  [&](Meeting &meeting) { meeting.wait_signal(src, channel, exec->timeout_ms); });
}

/* PyTorch has none: what a failure has left in a pad stays there. */
symmem_status signal_reset(void *instance, const symmem_peers *) {
    auto host = of(instance).host;
    return host->fail(host, SYMMEM_UNSUPPORTED, 0, "reset", "PyTorch's handles cannot be reset");
}

/* --- bytes ---------------------------------------------------------------------------- */
symmem_status copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                   const symmem_exec *exec) {
    return guarded(of(instance).host, "copy", [&] {
        auto on = work_on(device, exec);
        on->copy(dst, src, bytes);
        on->done();
    });
}

symmem_status memset32(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                       const symmem_exec *exec) {
    return guarded(of(instance).host, "memset32", [&] {
        need_world(of(instance));
        auto on = work_on(device, exec);
        if (count > 0) {
            fill32(dst, value, count, device);
        }
        on->done();
    });
}

symmem_status set_value32(void *instance, int32_t device, void *dst, uint32_t value,
                          const symmem_exec *exec) {
    return guarded(of(instance).host, "write_value32", [&] {
        need_world(of(instance));
        auto on = work_on(device, exec);
        write_value32(dst, value, device);
        on->done();
    });
}

/* --- the table ------------------------------------------------------------------------ */
const symmem_instance_ops instance_ops = {
    sizeof(symmem_instance_ops), probe, open_instance, close_instance, device_count, device_info};
const symmem_memory_ops memory_ops = {sizeof(symmem_memory_ops),
                                      memory_alloc,
                                      memory_release,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      memory_exchange};
const symmem_signal_ops signal_ops = {sizeof(symmem_signal_ops),
                                      signal_bytes,
                                      peers_open,
                                      peers_close,
                                      barrier,
                                      put_signal,
                                      wait_signal,
                                      signal_reset,
                                      nullptr,
                                      nullptr,
                                      nullptr};
const symmem_copy_ops copy_ops = {sizeof(symmem_copy_ops), copy, memset32, set_value32};
const symmem_group_ops group_ops = {sizeof(symmem_group_ops), group_open, group_close, nullptr};

symmem_backend make_table() {
    static char description[128];
    snprintf(description, sizeof(description), "PyTorch %s, symmetric memory of allocator %s",
             torch_version(), choice().name.c_str());
    symmem_backend made = {};
    made.size = sizeof(made);
    made.abi = SYMMEM_BACKEND_ABI;
    made.name = "torch";
    made.description = description;
    made.flags = SYMMEM_CAP_PROCESS_RANKS;
    if (choice().cpu) {
        made.flags |= SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_DIRECT_ACCESS;
    }
    made.instance = &instance_ops;
    made.memory = &memory_ops;
    made.signal = &signal_ops;
    made.copy = &copy_ops;
    made.group = &group_ops;
#ifdef SYMMEM_TORCH_CUDA
    if (!choice().cpu) {
        made.stream = cuda_stream_ops();
    }
#endif
    return made;
}

} // namespace
} // namespace symmem_plugin

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    static const symmem_backend table = symmem_plugin::make_table();
    return abi == SYMMEM_BACKEND_ABI ? &table : nullptr;
}
