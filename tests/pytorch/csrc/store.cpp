// SPDX-License-Identifier: BSD-3-Clause
#include "store.h"

#include "error.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace symmem_torch {
namespace {

using Clock = std::chrono::steady_clock;

/* How long a wait looks again and again before it sleeps. A peer in the same call writes its key
 * within some tens of microseconds, and even the shortest sleep takes longer. A look is one access
 * to the store. */
constexpr std::chrono::microseconds without_sleep(200);

struct Wrapped {
    c10::weak_intrusive_ptr<c10d::Store> store;
    std::string prefix;
};

/* The first line of what the store's exception said at the calling thread's last access. */
thread_local std::string said;

std::string first_line(const char *text) {
    const std::string all = text;
    return all.substr(0, std::min<size_t>(all.find('\n'), 200));
}

/* Calls do(store, full key). The store's own exceptions end here: a C library calls. */
template <typename Do> symmem_status with_store(void *self, const char *key, Do &&work) {
    auto wrapped = static_cast<Wrapped *>(self);
    auto store = wrapped->store.lock();
    said.clear();
    if (!store) {
        return SYMMEM_NOT_INITIALIZED;
    }
    try {
        return work(*store, wrapped->prefix + key);
    } catch (const c10::Error &error) {
        said = first_line(error.what_without_backtrace());
    } catch (const std::exception &error) {
        said = first_line(error.what());
    }
    return SYMMEM_SYSTEM;
}

symmem_status store_set(void *self, const char *key, const void *value, size_t bytes, uint32_t) {
    return with_store(self, key, [&](c10d::Store &store, const std::string &name) {
        auto first = static_cast<const uint8_t *>(value);
        store.set(name, std::vector<uint8_t>(first, first + bytes));
        return SYMMEM_OK;
    });
}

/* By compareSet, which neither waits nor changes what it finds, nor adds what is not there: get
 * waits for a key that a peer has removed since check saw it. */
symmem_status store_get(void *self, const char *key, void *value, size_t capacity, size_t *bytes_p,
                        uint32_t) {
    return with_store(self, key, [&](c10d::Store &store, const std::string &name) {
        static const std::vector<uint8_t> absent = {'n', 'o', 't', ' ', 't', 'h', 'e', 'r', 'e'};
        auto found = store.compareSet(name, absent, absent);
        if (found == absent) {
            return SYMMEM_NOT_FOUND;
        }
        *bytes_p = found.size();
        if (found.size() > capacity) {
            return SYMMEM_OUT_OF_RANGE;
        }
        memcpy(value, found.data(), found.size());
        return SYMMEM_OK;
    });
}

/* In short steps: a wait of the store's own would keep its other callers waiting, symmem's threads
 * too. */
symmem_status store_wait(void *self, const char *key, uint32_t timeout_ms) {
    auto begin = Clock::now(), end = begin + std::chrono::milliseconds(timeout_ms);
    auto pause = std::chrono::microseconds(50);
    for (;;) {
        bool found = false;
        auto status = with_store(self, key, [&](c10d::Store &store, const std::string &name) {
            found = store.check({name});
            return SYMMEM_OK;
        });
        if (status != SYMMEM_OK || found) {
            return status;
        }
        auto now = Clock::now();
        if (timeout_ms != 0 && now >= end) {
            return SYMMEM_TIMEOUT;
        }
        if (now < begin + without_sleep) {
            std::this_thread::yield();
            continue;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(5000));
    }
}

symmem_status store_add(void *self, const char *key, int64_t delta, int64_t *value_p, uint32_t) {
    return with_store(self, key, [&](c10d::Store &store, const std::string &name) {
        *value_p = store.add(name, delta);
        return SYMMEM_OK;
    });
}

symmem_status store_remove(void *self, const char *key, uint32_t) {
    return with_store(self, key, [&](c10d::Store &store, const std::string &name) {
        store.deleteKey(name);
        return SYMMEM_OK;
    });
}

void store_close(void *self) {
    delete static_cast<Wrapped *>(self);
}

const symmem_store_ops operations = {sizeof(symmem_store_ops),
                                     store_set,
                                     store_get,
                                     store_wait,
                                     store_add,
                                     store_remove,
                                     store_close};

} // namespace

const std::string &what_store_said() {
    return said;
}

StorePtr wrap_store(const c10::intrusive_ptr<c10d::Store> &store, std::string prefix) {
    symmem_store *wrapped = nullptr;
    check(symmem_store_open_custom(
        &operations, new Wrapped{c10::weak_intrusive_ptr<c10d::Store>(store), std::move(prefix)},
        &wrapped));
    return StorePtr(wrapped);
}

} // namespace symmem_torch
