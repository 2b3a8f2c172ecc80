// SPDX-License-Identifier: BSD-3-Clause
// Streams for allocators of CUDA tensors. An operation becomes PyTorch's work on its current
// stream; references are given back by the next call that finds the work done, for CUDA's callbacks
// may not free memory.
#include "work.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <list>
#include <mutex>
#include <vector>

namespace symmem_plugin {
namespace {

struct Pending {
    cudaEvent_t event;
    std::vector<symmem_ref> refs;
};

struct Stream {
    explicit Stream(const c10::cuda::CUDAStream &made) : stream(made) {}
    c10::cuda::CUDAStream stream;
    std::mutex mutex;
    std::list<Pending> pending;
};

struct Event {
    int device;
    cudaEvent_t event;
};

c10::DeviceIndex index_of(int device) {
    return static_cast<c10::DeviceIndex>(device);
}

/* What the refs free may come back here, so without the lock. */
void give_back_done(Stream &stream, bool all) {
    std::list<Pending> done;
    {
        std::lock_guard<std::mutex> lock(stream.mutex);
        while (!stream.pending.empty() &&
               (all || cudaEventQuery(stream.pending.front().event) != cudaErrorNotReady)) {
            done.splice(done.end(), stream.pending, stream.pending.begin());
        }
    }
    for (auto &one : done) {
        cudaEventDestroy(one.event);
        for (auto &ref : one.refs) {
            ref.release(ref.object);
        }
    }
}

cudaEvent_t new_event() {
    cudaEvent_t event = nullptr;
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

class CudaWork : public Work {
  public:
    CudaWork(int device, const symmem_exec *exec)
        : exec_(exec), stream_(static_cast<Stream *>(exec->stream)),
          guard_(stream_ ? stream_->stream
                         : c10::cuda::getStreamFromPool(false, index_of(device))) {
        if (stream_) {
            give_back_done(*stream_, false);
        }
    }
    void copy(void *dst, const void *src, size_t bytes) override {
        C10_CUDA_CHECK(
            cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, guard_.current_stream().stream()));
    }
    void done() override {
        auto native = guard_.current_stream().stream();
        if (!stream_) {
            C10_CUDA_CHECK(cudaStreamSynchronize(native));
            return;
        }
        Pending work{new_event(), {exec_->refs, exec_->refs + exec_->ref_count}};
        C10_CUDA_CHECK(cudaEventRecord(work.event, native));
        for (auto &ref : work.refs) {
            ref.retain(ref.object);
        }
        std::lock_guard<std::mutex> lock(stream_->mutex);
        stream_->pending.push_back(std::move(work));
    }

  private:
    const symmem_exec *exec_;
    Stream *stream_;
    c10::cuda::CUDAStreamGuard guard_;
};

/* The instance begins with its services, see backend.cpp. */
const symmem_host *host_of(void *instance) {
    return *static_cast<const symmem_host **>(instance);
}

symmem_status result(void *instance, const char *operation, cudaError_t error) {
    auto host = host_of(instance);
    return error == cudaSuccess ? SYMMEM_OK
                                : host->fail(host, SYMMEM_BACKEND, 0, operation, "CUDA: %s",
                                             cudaGetErrorString(error));
}

template <typename Do> symmem_status tried(void *instance, const char *operation, Do &&work) {
    try {
        work();
        return SYMMEM_OK;
    } catch (const std::exception &error) {
        auto host = host_of(instance);
        return host->fail(host, SYMMEM_BACKEND, 0, operation, "%.*s",
                          static_cast<int>(std::strcspn(error.what(), "\n")), error.what());
    }
}

uint64_t now_ms() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000u +
           static_cast<uint64_t>(now.tv_nsec) / 1000000u;
}

/* Asks until it is no longer "not ready". */
template <typename Ask>
symmem_status await(void *instance, const char *operation, uint32_t timeout_ms, Ask &&ask) {
    auto end = now_ms() + timeout_ms;
    auto error = ask();
    for (; error == cudaErrorNotReady; error = ask()) {
        if (timeout_ms != 0 && now_ms() >= end) {
            auto host = host_of(instance);
            return host->fail(host, SYMMEM_TIMEOUT, 0, operation, "the device is not done");
        }
        timespec pause = {0, 20000};
        nanosleep(&pause, nullptr);
    }
    return result(instance, operation, error);
}

symmem_status stream_create(void *instance, int32_t device, void **stream_p) {
    return tried(instance, "stream_create", [&] {
        *stream_p = new Stream(c10::cuda::getStreamFromPool(false, index_of(device)));
    });
}

void stream_destroy(void *, void *stream) {
    auto self = static_cast<Stream *>(stream);
    give_back_done(*self, true);
    delete self;
}

symmem_status stream_synchronize(void *instance, void *stream, uint32_t timeout_ms,
                                 symmem_error_record *record_p) {
    auto self = static_cast<Stream *>(stream);
    auto native = self->stream.stream();
    auto status =
        await(instance, "stream_synchronize", timeout_ms, [&] { return cudaStreamQuery(native); });
    if (status == SYMMEM_BACKEND) { // a kernel's failure, after which the device's context is lost
        record_p->status = status;
        snprintf(record_p->message, sizeof(record_p->message), "CUDA: %s",
                 cudaGetErrorString(cudaPeekAtLastError()));
    }
    give_back_done(*self, false);
    return status;
}

symmem_status stream_query(void *instance, void *stream, bool *idle_p) {
    auto self = static_cast<Stream *>(stream);
    auto error = cudaStreamQuery(self->stream.stream());
    give_back_done(*self, false);
    *idle_p = error != cudaErrorNotReady;
    return *idle_p ? result(instance, "stream_query", error) : SYMMEM_OK;
}

symmem_status device_synchronize(void *instance, int32_t device, uint32_t timeout_ms) {
    auto status = SYMMEM_OK;
    auto made = tried(instance, "device_synchronize", [&] {
        c10::cuda::CUDAGuard guard(index_of(device));
        auto native = c10::cuda::getDefaultCUDAStream(index_of(device)).stream();
        auto event = new_event(); // the legacy stream's, which is behind all others
        C10_CUDA_CHECK(cudaEventRecord(event, native));
        status = await(instance, "device_synchronize", timeout_ms,
                       [&] { return cudaEventQuery(event); });
        cudaEventDestroy(event);
    });
    return made == SYMMEM_OK ? status : made;
}

symmem_status event_create(void *instance, int32_t device, void **event_p) {
    return tried(instance, "event_create", [&] {
        c10::cuda::CUDAGuard guard(index_of(device));
        *event_p = new Event{device, new_event()};
    });
}

void event_destroy(void *, void *event) {
    auto self = static_cast<Event *>(event);
    cudaEventDestroy(self->event);
    delete self;
}

symmem_status event_record(void *instance, void *event, void *stream) {
    auto self = static_cast<Event *>(event);
    c10::cuda::CUDAGuard guard(index_of(self->device));
    return result(instance, "event_record",
                  cudaEventRecord(self->event, static_cast<Stream *>(stream)->stream.stream()));
}

symmem_status stream_wait_event(void *instance, void *stream, void *event) {
    return result(instance, "stream_wait_event",
                  cudaStreamWaitEvent(static_cast<Stream *>(stream)->stream.stream(),
                                      static_cast<Event *>(event)->event, 0));
}

symmem_status event_synchronize(void *instance, void *event, uint32_t timeout_ms) {
    return await(instance, "event_synchronize", timeout_ms,
                 [&] { return cudaEventQuery(static_cast<Event *>(event)->event); });
}

symmem_status event_query(void *instance, void *event, bool *reached_p) {
    auto error = cudaEventQuery(static_cast<Event *>(event)->event);
    *reached_p = error != cudaErrorNotReady;
    return *reached_p ? result(instance, "event_query", error) : SYMMEM_OK;
}

const symmem_stream_ops stream_ops = {sizeof(symmem_stream_ops),
                                      stream_create,
                                      stream_destroy,
                                      stream_synchronize,
                                      stream_query,
                                      device_synchronize,
                                      event_create,
                                      event_destroy,
                                      event_record,
                                      stream_wait_event,
                                      event_synchronize,
                                      event_query,
                                      nullptr,
                                      nullptr};

} // namespace

std::unique_ptr<Work> cuda_work(int device, const symmem_exec *exec) {
    return std::make_unique<CudaWork>(device, exec);
}

int cuda_device_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/* What importing torch and making a first tensor do: PyTorch's own allocator, which some of its
 * symmetric memory asks, exists only then. */
void cuda_begin() {
    at::globalContext().lazyInitDevice(c10::kCUDA);
}

void cuda_describe(int device, symmem_device_info *info) {
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    info->device_type = 2; /* kDLCUDA */
    info->granularity = size_t{2} << 20;
    snprintf(info->name, sizeof(info->name), "%.*s", static_cast<int>(sizeof(info->name)) - 1,
             properties.name);
    memcpy(info->unique_id, &properties.uuid, sizeof(info->unique_id));
}

void cuda_settle(int device) {
    c10::cuda::CUDAGuard guard(index_of(device));
    C10_CUDA_CHECK(cudaDeviceSynchronize());
}

const symmem_stream_ops *cuda_stream_ops() {
    return &stream_ops;
}

} // namespace symmem_plugin
