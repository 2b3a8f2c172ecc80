// SPDX-License-Identifier: BSD-3-Clause
#include "engine.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#include <torch/version.h>

#ifdef SYMMEM_TORCH_NCCL
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace symmem_plugin {
namespace {

namespace symm = c10d::symmetric_memory;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

/* By PyTorch's convention. */
const char world_name[] = "0";
/* Channels enough for symmem's default pad, which is as large as this. */
constexpr size_t signal_pad_bytes = 9216;

/* Never destroyed, for PyTorch may call until the process ends; and not on the heap, where it would
 * be what a backend leaves behind. */
template <typename T> class Kept {
  public:
    template <typename... From> explicit Kept(From &&...from) {
        new (place_) T(std::forward<From>(from)...);
    }
    T &operator*() {
        return *std::launder(reinterpret_cast<T *>(place_));
    }

  private:
    alignas(T) unsigned char place_[sizeof(T)];
};

bool has_chosen(c10::DeviceType type, const std::string &name) {
    return symm::has_allocator(type) && symm::get_allocator(type)->name() == name;
}

/* NAME or NAME@LIBRARY, where the library registers the allocator when it is loaded. */
Choice choose() {
    Choice made;
    auto variable = std::getenv("SYMMEM_TORCH_ALLOCATOR");
    made.name = variable ? variable : "CUDA";
    std::string library;
    auto at = made.name.find('@');
    if (at != std::string::npos) {
        library = made.name.substr(at + 1);
        made.name = made.name.substr(0, at);
        made.name.shrink_to_fit();
    } else if (made.name == "CUDA" || made.name == "NCCL" || made.name == "NVSHMEM") {
        library = "libtorch_cuda.so";
    }
    // Global, for PyTorch's own libraries find each other so.
    if (!library.empty() && !dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
        made.problem = dlerror();
        return made;
    }
    try {
        symm::set_backend(made.name);
    } catch (const c10::Error &error) { // also of one that is chosen without having been set
        made.problem = error.what_without_backtrace();
    }
    made.cpu = has_chosen(c10::kCPU, made.name);
    if (made.cpu || has_chosen(c10::kCUDA, made.name)) {
        std::string().swap(made.problem); // with its memory
        symm::set_signal_pad_size(signal_pad_bytes);
    } else if (made.problem.empty()) {
        made.problem = "allocator \"" + made.name + "\" is neither for CPU nor CUDA tensors";
    }
    return made;
}

c10::DeviceType device_type() {
    return choice().cpu ? c10::kCPU : c10::kCUDA;
}

symm::SymmetricMemoryAllocator &allocator() {
    static Kept<c10::intrusive_ptr<symm::SymmetricMemoryAllocator>> chosen(
        symm::get_allocator(device_type()));
    return **chosen;
}

std::chrono::milliseconds limit_of(uint64_t limit_ms) {
    return std::chrono::milliseconds(limit_ms == 0 ? 86400000 : limit_ms);
}

/*
 * The store of a job's ranks is a file in TMPDIR, which has to be the job's own, as the one that
 * the runner gives each case is. The last rank to open it removes its name, and the file lives on
 * by descriptors, so that ranks which are killed leave none. A lock that PyTorch's own does not
 * touch keeps opening, closing and removing apart.
 */
class JobFile {
  public:
    explicit JobFile(int ranks) {
        auto folder = std::getenv("TMPDIR");
        path_ = std::string(folder ? folder : "/tmp") + "/symmem_backend_torch";
        for (;;) {
            fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            TORCH_CHECK(fd_ >= 0, "cannot open ", path_, ": error ", errno);
            lock();
            if (has_name()) {
                break;
            }
            close(fd_);
        }
        try {
            if (store()->add("ranks", 1) >= ranks) {
                unlink(path_.c_str());
            }
        } catch (...) {
            close(fd_); // with it the lock
            throw;
        }
        unlock();
    }
    JobFile(const JobFile &) = delete;
    JobFile &operator=(const JobFile &) = delete;
    ~JobFile() {
        lock();
        if (has_name() && store()->add("ranks", -1) == 0) {
            unlink(path_.c_str());
        }
        close(fd_);
    }
    StorePtr store() const {
        return c10::make_intrusive<c10d::FileStore>("/proc/self/fd/" + std::to_string(fd_),
                                                    /*numWorkers=*/-1);
    }

  private:
    void lock(short type = F_WRLCK) {
        struct flock whole = {};
        whole.l_type = type;
        fcntl(fd_, F_OFD_SETLKW, &whole);
    }
    void unlock() {
        lock(F_UNLCK);
    }
    bool has_name() const {
        struct stat opened, named;
        return fstat(fd_, &opened) == 0 && stat(path_.c_str(), &named) == 0 &&
               opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
    }
    std::string path_;
    int fd_ = -1;
};

std::unique_ptr<JobFile> &job_file() {
    static Kept<std::unique_ptr<JobFile>> file;
    return *file;
}

/* PyTorch keeps these for good, and cannot be asked for one that there may not be. */
void put_group_info(const std::string &name, int rank, int world_size, const StorePtr &store) {
    try {
        symm::get_group_info(name) = symm::GroupInfo{rank, world_size, store};
    } catch (const c10::Error &) {
        symm::set_group_info(name, rank, world_size, store);
    }
}

#ifdef SYMMEM_TORCH_NCCL
void add_nccl(const ProcessGroupPtr &group, const StorePtr &store, int rank, int world_size,
              int device) {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world_size, options);
    nccl->eagerConnectSingleDevice(at::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
    group->setBackend(c10::kCUDA, c10d::ProcessGroup::BackendType::NCCL,
                      c10::intrusive_ptr<c10d::Backend>(nccl));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
}
#endif

/* A process group has its name from its backend. This one can do nothing else. */
class NamedBackend : public c10d::Backend {
  public:
    using c10d::Backend::Backend;
    const std::string getBackendName() const override {
        return "symmem_backend_torch";
    }
};

void forget_group(const std::string &name) {
    try {
        c10d::unregister_process_group(name);
    } catch (const std::exception &) { // there is none, or the process ends
    }
}

/* PyTorch's registry does not keep it alive. */
ProcessGroupPtr make_group(const std::string &name, int rank, int world_size,
                           [[maybe_unused]] int device, const StorePtr &store) {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, world_size);
    group->setBackend(
        c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
        c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<NamedBackend>(rank, world_size)));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
#ifdef SYMMEM_TORCH_NCCL
    if (!choice().cpu && device >= 0) {
        add_nccl(group, store, rank, world_size, device);
    }
#endif
    group->setGroupName(name);
    forget_group(name); // one that a failed call left; PyTorch before 2.12 cannot be asked
    c10d::register_process_group(name, group);
    put_group_info(name, rank, world_size, store);
    return group;
}

/* NVSHMEM starts in all processes of the job when it first allocates. So on CUDA the world is the
 * job's, by the variables of PyTorch's launchers. */
int job_says(const char *variable, int otherwise) {
    auto text = choice().cpu ? nullptr : std::getenv(variable);
    return text ? std::atoi(text) : otherwise;
}

std::mutex world_mutex;
int world_users;
ProcessGroupPtr &world_group() {
    static Kept<ProcessGroupPtr> group;
    return *group;
}

at::Tensor words_at(void *at, size_t count, int device) {
    auto options =
        at::TensorOptions()
            .dtype(at::kUInt32)
            .device(choice().cpu ? at::Device(c10::kCPU)
                                 : at::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
    return at::from_blob(at, {static_cast<int64_t>(count)}, options);
}

/* Boxed: kernels of one op differ in whether they take a tensor or a reference to one. */
void call_op(const char *name, std::vector<c10::IValue> arguments) {
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&arguments);
}

class TorchMeeting : public Meeting {
  public:
    explicit TorchMeeting(c10::intrusive_ptr<symm::SymmetricMemory> memory)
        : memory_(std::move(memory)) {}
    std::vector<void *> buffers() override {
        return memory_->get_buffer_ptrs();
    }
    void barrier(int channel, size_t timeout_ms) override {
        memory_->barrier(channel, timeout_ms);
    }
    void put_signal(int rank, int channel, size_t timeout_ms) override {
        memory_->put_signal(rank, channel, timeout_ms);
    }
    void wait_signal(int rank, int channel, size_t timeout_ms) override {
        memory_->wait_signal(rank, channel, timeout_ms);
    }

  private:
    c10::intrusive_ptr<symm::SymmetricMemory> memory_;
};

} // namespace

class Group {
  public:
    Group(std::string name, int rank, int world_size, int device, uint64_t limit_ms)
        : name_(std::move(name)),
          store_(c10::make_intrusive<c10d::PrefixStore>(name_, job_file()->store())) {
        store_->setTimeout(limit_of(limit_ms));
        group_ = make_group(name_, rank, world_size, device, store_);
    }
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;
    ~Group() {
        try {
            c10d::unregister_process_group(name_);
            symm::get_group_info(name_).store.reset();
        } catch (const std::exception &) { // of a process that ends
        }
    }
    const std::string &name() const {
        return name_;
    }
    c10d::Store &store() {
        return *store_;
    }

  private:
    std::string name_;
    StorePtr store_;
    ProcessGroupPtr group_;
};

const Choice &choice() {
    static Kept<Choice> chosen(choose());
    return *chosen;
}

const char *torch_version() {
    return TORCH_VERSION;
}

void enter_world(int rank, int world_size) {
    std::lock_guard<std::mutex> lock(world_mutex);
    if (world_users == 0) {
        auto ranks = job_says("WORLD_SIZE", world_size);
        job_file() = std::make_unique<JobFile>(ranks);
        auto store = c10::make_intrusive<c10d::PrefixStore>("world", job_file()->store());
        world_group() = make_group(world_name, job_says("RANK", rank), ranks, -1, store);
    }
    world_users++;
}

void leave_world() {
    std::lock_guard<std::mutex> lock(world_mutex);
    if (--world_users == 0) {
        c10d::unregister_process_group(world_name);
        symm::get_group_info(world_name).store.reset();
        world_group().reset();
        auto release = c10::Dispatcher::singleton().findSchema({"symmem::release_world", ""});
        if (release) { // symmem_torch's, for which there is no other way
            std::vector<c10::IValue> none;
            release->callBoxed(&none);
        }
        job_file().reset();
    }
}

void *allocate(size_t bytes, int device) {
    return allocator().alloc(bytes, device, std::nullopt);
}

void give_back(void *pointer) {
    allocator().free(pointer);
}

std::shared_ptr<Group> open_group(const std::string &name, int rank, int world_size, int device,
                                  uint64_t limit_ms) {
    return std::make_shared<Group>(name, rank, world_size, device, limit_ms);
}

std::shared_ptr<Meeting> meet(const std::shared_ptr<Group> &group, void *pointer,
                              uint64_t limit_ms) {
    group->store().setTimeout(limit_of(limit_ms));
    auto memory = allocator().rendezvous(pointer, group->name());
    TORCH_CHECK(memory, "rendezvous gave no handle: not symmetric memory");
    auto meeting = std::make_shared<TorchMeeting>(std::move(memory));
    meeting->group = group;
    meeting->own = pointer;
    return meeting;
}

void fill32(void *at, uint32_t value, size_t count, int device) {
    call_op("symm_mem::memset32_",
            {words_at(at, count, device), int64_t{0}, int64_t{value}, static_cast<int64_t>(count)});
}

void write_value32(void *at, uint32_t value, int device) {
    call_op("symm_mem::stream_write_value32_",
            {words_at(at, 1, device), int64_t{0}, int64_t{value}});
}

} // namespace symmem_plugin
