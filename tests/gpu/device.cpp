// CUDA devices of torch, simulated on the CPU: every operator runs as the CPU's kernel on the same memory.
//
// What a real device demands is demanded: operands are on the device, products are of floating point numbers, and only
// pinned memory is copied without waiting. Such copies happen late, new memory is full of NaN, and graphs are recorded
// and replayed with the memory of their recording.

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <set>

// Kernels of torch for any device; their headers would take a minute to compile.
namespace at::native {
TORCH_API Tensor as_strided_tensorimpl(const Tensor&, IntArrayRef, IntArrayRef, std::optional<int64_t>);
TORCH_API Tensor view(const Tensor&, IntArrayRef);
TORCH_API Tensor _reshape_alias(const Tensor&, IntArrayRef, IntArrayRef);
TORCH_API Tensor unfold(const Tensor&, int64_t, int64_t, int64_t);
}  // namespace at::native

namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::Device;
using c10::DeviceType;
using c10::IValue;
using Stack = std::vector<IValue>;

const Device CPU(DeviceType::CPU);

c10::DeviceIndex num_devices() {
    static const char* given = std::getenv("SIMULATED_GPUS");
    return given ? static_cast<c10::DeviceIndex>(std::atoi(given)) : 1;
}

thread_local c10::DeviceIndex current = 0;  // each thread begins with the first device

Device current_gpu() { return Device(DeviceType::CUDA, current); }

bool is_on_gpu(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == DeviceType::CUDA; }

// ---- memory

std::atomic<int64_t> allocated{0}, most_allocated{0};

struct Block {
    void* data;
    int64_t size;
};

struct Graph {
    std::vector<std::function<void()>> steps;
    std::set<const void*> own;                                       // memory of the recording
    std::vector<c10::Storage> kept;                                  // the same, which lives as long as the graph
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> borrowed;  // memory that others have to keep
};
thread_local Graph* capturing = nullptr;

void release(void* context) {
    auto* block = static_cast<Block*>(context);
    allocated -= block->size;
    c10::free_cpu(block->data);
    delete block;
}

struct DeviceAllocator final : c10::Allocator {
    c10::DataPtr allocate(size_t size) override {
        void* data = size ? c10::alloc_cpu(size) : nullptr;
        if (data) std::memset(data, 0xFF, size);
        allocated += static_cast<int64_t>(size);
        most_allocated = std::max(most_allocated.load(), allocated.load());
        auto* block = new Block{data, static_cast<int64_t>(size)};
        if (capturing) capturing->own.insert(data);
        return {data, block, &release, current_gpu()};
    }
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
} device_memory;

std::mutex pinned_lock;
std::set<const void*> pinned;

void unpin(void* data) {
    {
        std::lock_guard<std::mutex> lock(pinned_lock);
        pinned.erase(data);
    }
    c10::free_cpu(data);
}

struct PinnedAllocator final : c10::Allocator {
    c10::DataPtr allocate(size_t size) override {
        void* data = c10::alloc_cpu(std::max<size_t>(size, 1));
        std::lock_guard<std::mutex> lock(pinned_lock);
        pinned.insert(data);
        return {data, data, &unpin, CPU};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
    void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
} pinned_memory;

bool is_pinned(const void* data) {
    std::lock_guard<std::mutex> lock(pinned_lock);
    return pinned.count(data) > 0;
}

// ---- work that is queued

std::mutex queue_lock;
std::deque<std::function<void()>> to_device, to_host;  // copies, oldest first
int64_t num_done = 0;                                  // copies to the host
int sync_mode = 0;                                     // 1: warn, 2: raise an error

void run_all(std::deque<std::function<void()>>& queue) {
    for (; !queue.empty(); queue.pop_front()) queue.front()();
}

int64_t position() {
    std::lock_guard<std::mutex> lock(queue_lock);
    return num_done + static_cast<int64_t>(to_host.size());
}

void wait_until(int64_t end) {
    std::lock_guard<std::mutex> lock(queue_lock);
    run_all(to_device);
    for (; num_done < end && !to_host.empty(); ++num_done, to_host.pop_front()) to_host.front()();
}

void wait_because(const std::string& cause) {
    TORCH_CHECK(!capturing, "CUDA error: operation not permitted when stream is capturing: ", cause);
    TORCH_CHECK(sync_mode < 2, "called a synchronizing CUDA operation: ", cause);
    if (sync_mode == 1) TORCH_WARN("called a synchronizing CUDA operation: ", cause);
    wait_until(position());
}

void start_copies() {
    std::lock_guard<std::mutex> lock(queue_lock);
    run_all(to_device);
}

// ---- tensors

Tensor on_cpu(const Tensor& tensor) {
    // The same memory, as a tensor of the CPU.
    if (!is_on_gpu(tensor)) return tensor;
    const auto& storage = tensor.storage();
    c10::DataPtr data(const_cast<void*>(storage.data()), CPU);
    c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), c10::GetCPUAllocator(), true);
    auto alias = at::detail::make_tensor<c10::TensorImpl>(
        std::move(same), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    return alias;
}

Tensor new_on_device(IntArrayRef sizes, IntArrayRef strides, at::ScalarType dtype) {
    return at::detail::empty_strided_generic(
        sizes, strides, &device_memory, c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype);
}

Tensor on_device(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    Tensor copy = new_on_device(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    on_cpu(copy).copy_(tensor);
    return copy;
}

void remember(const Tensor& tensor) {
    // The memory of a tensor that the graph being recorded uses.
    if (!is_on_gpu(tensor)) return;
    if (capturing->own.count(tensor.storage().data()))
        capturing->kept.push_back(tensor.storage());
    else
        capturing->borrowed.push_back(tensor.storage().getWeakStorageImpl());
}

void poison(const c10::Storage& storage) {
    if (storage.nbytes()) std::memset(const_cast<void*>(storage.data()), 0xFF, storage.nbytes());
}

// ---- any operator

template <typename Function>
IValue each_tensor(const IValue& value, Function change) {
    if (value.isTensor()) return change(value.toTensor());
    if (value.isTensorList()) {
        c10::List<Tensor> changed;
        for (const Tensor& one : value.toTensorVector()) changed.push_back(change(one));
        return changed;
    }
    if (value.isOptionalTensorList()) {
        c10::List<std::optional<Tensor>> changed;
        for (const auto& one : value.toOptionalTensorVector())
            changed.push_back(one.has_value() ? std::optional<Tensor>(change(*one)) : std::nullopt);
        return changed;
    }
    if (value.isList() && !value.toListRef().empty() && value.toListRef()[0].isTensorList()) {
        c10::List<c10::List<Tensor>> changed;
        for (const IValue& list : value.toListRef()) changed.push_back(each_tensor(list, change).toTensorList());
        return changed;
    }
    return value;
}

template <typename Function>
void visit_tensors(const IValue& value, Function visit) {
    each_tensor(value, [&](const Tensor& one) {
        visit(one);
        return one;
    });
}

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

const std::set<std::string> WAITING = {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::_unique",
                                       "aten::unique_dim", "aten::unique_consecutive", "aten::bincount",
                                       "aten::equal", "aten::repeat_interleave"};
const std::set<std::string> PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mv",
                                        "aten::addmv", "aten::dot"};

Device check_operands(const std::string& name, const Stack& arguments) {
    // The device of the operands.
    std::optional<Device> gpu;
    for (const IValue& value : arguments)
        visit_tensors(value, [&](const Tensor& one) {
            if (is_on_gpu(one) && !gpu.has_value()) gpu = one.device();
        });
    const bool indexes = starts_with(name, "aten::index") || starts_with(name, "aten::_index_put_impl_");
    for (size_t at = 0; at < arguments.size(); ++at) {
        const IValue& value = arguments[at];
        if (value.isGenerator())
            TORCH_CHECK(value.toGenerator().device().type() == DeviceType::CUDA,
                        "Expected a 'cuda' device type for generator but found 'cpu': ", name);
        if (indexes && value.isOptionalTensorList()) {  // indices of the CPU are copied, masks are read
            for (const auto& one : value.toOptionalTensorVector())
                if (one.has_value() && one->defined() && (one->device() == CPU || one->scalar_type() == at::kBool))
                    wait_because(name + " reads indices");
            continue;
        }
        visit_tensors(value, [&](const Tensor& one) {
            TORCH_CHECK(!one.defined() || one.device() == gpu || (one.device() == CPU && one.dim() == 0),
                        "Expected all tensors to be on the same device: argument ", at, " of ", name, " is on ",
                        one.device());
            TORCH_CHECK(!one.defined() || !PRODUCTS.count(name) || one.is_floating_point(),
                        name, " is not implemented for integers");
        });
    }
    if (WAITING.count(name)) wait_because(name);
    return gpu.value_or(current_gpu());
}

void set_memory(const Tensor& tensor, c10::Storage source, int64_t offset, IntArrayRef size, IntArrayRef stride) {
    auto* impl = tensor.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(std::move(source));
    impl->set_sizes_and_strides(size, stride, offset);
}

void take_size(const Tensor& tensor, const Tensor& alias) {
    // The size that an operator gave to the alias, as to an `out`.
    if (tensor.sizes() == alias.sizes() && tensor.strides() == alias.strides()) return;
    c10::Storage storage = tensor.storage();
    if (alias.storage().data() != storage.data()) {
        const bool is_new = !storage.nbytes() || (capturing && capturing->own.count(storage.data()));
        TORCH_CHECK(!capturing || is_new, "a tensor is resized in a graph");
        storage = on_device(alias).storage();
    }
    set_memory(tensor, storage, alias.storage_offset(), alias.sizes(), alias.strides());
}

void fallback(const c10::OperatorHandle& op, Stack* stack) {
    start_copies();
    const auto& schema = op.schema();
    const std::string name = schema.name();
    const size_t count = schema.arguments().size();
    Stack arguments(stack->end() - static_cast<long>(count), stack->end());
    stack->resize(stack->size() - count);
    const c10::DeviceGuard guard(check_operands(name, arguments));
    Stack aliases;
    for (const IValue& value : arguments)
        aliases.push_back(value.isDevice() ? IValue(CPU) : each_tensor(value, on_cpu));
    Stack results = aliases;
    op.callBoxed(&results);
    for (size_t at = 0; at < count; ++at)
        if (arguments[at].isTensor() && is_on_gpu(arguments[at].toTensor())) {
            take_size(arguments[at].toTensor(), aliases[at].toTensor());
            aliases[at] = on_cpu(arguments[at].toTensor());  // the memory that replays write
        }
    std::vector<Tensor> fresh;
    for (size_t at = 0; at < results.size(); ++at) {
        const auto* alias = schema.returns()[at].alias_info();
        if (alias == nullptr) {
            results[at] = each_tensor(results[at], [&](const Tensor& one) {
                fresh.push_back(on_device(one));
                return fresh.back();
            });
            continue;
        }
        TORCH_CHECK(alias->isWrite(), "the simulated GPU has no kernel for ", name, ", which returns a view");
        for (size_t which = 0; which < count; ++which) {
            const auto* written = schema.arguments()[which].alias_info();
            if (written && written->beforeSets() == alias->beforeSets()) results[at] = arguments[which];
        }
    }
    if (capturing) {
        for (const IValue& value : arguments) visit_tensors(value, remember);
        for (const Tensor& one : fresh) remember(one);
        capturing->steps.push_back([op, aliases, fresh]() {
            Stack again = aliases;
            op.callBoxed(&again);
            size_t next = 0;
            for (size_t at = 0; at < again.size(); ++at)
                if (op.schema().returns()[at].alias_info() == nullptr)
                    visit_tensors(again[at], [&](const Tensor& one) {
                        if (one.defined()) on_cpu(fresh[next]).copy_(one);
                        ++next;
                    });
        });
    }
    stack->insert(stack->end(), results.begin(), results.end());
}

// ---- operators that know the device

Tensor empty(IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
    const c10::OptionalDeviceGuard guard(device);
    return at::detail::empty_generic(size, &device_memory, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                     dtype.value_or(at::get_default_dtype_as_scalartype()), format);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
    const c10::OptionalDeviceGuard guard(device);
    return new_on_device(size, stride, dtype.value_or(at::get_default_dtype_as_scalartype()));
}

Tensor& copy(Tensor& to, const Tensor& from, bool non_blocking) {
    start_copies();
    if (is_on_gpu(to) && is_on_gpu(from)) {
        auto step = [target = on_cpu(to), source = on_cpu(from)]() { target.copy_(source); };
        step();
        if (capturing) {
            remember(to);
            remember(from);
            capturing->steps.push_back(step);
        }
        return to;
    }
    const bool to_gpu = is_on_gpu(to);
    const Tensor& host = to_gpu ? from : to;
    if (!non_blocking || !is_pinned(host.storage().data())) {
        wait_because(to_gpu ? "a copy to the device" : "a copy to the host");
        on_cpu(to).copy_(on_cpu(from));
        return to;
    }
    TORCH_CHECK(!capturing, "a graph may not depend on memory of the host");
    std::lock_guard<std::mutex> lock(queue_lock);
    if (to_gpu) {
        to_device.push_back([to, from]() { on_cpu(to).copy_(from); });
    } else {
        Tensor now = on_cpu(from).clone();
        poison(to.storage());
        to_host.push_back([to, now]() { to.copy_(now); });
    }
    return to;
}

at::Scalar number(const Tensor& tensor) {
    start_copies();
    wait_because("the number of a tensor is read");
    return on_cpu(tensor).item();
}

const Tensor& resize(const Tensor& tensor, IntArrayRef size, std::optional<at::MemoryFormat> format) {
    if (tensor.sizes() == size) return tensor;
    Tensor moved = empty(size, tensor.scalar_type(), {}, tensor.device(), {}, format);
    const auto least = std::min(tensor.storage().nbytes(), moved.storage().nbytes());
    if (least) std::memcpy(const_cast<void*>(moved.storage().data()), tensor.storage().data(), least);
    set_memory(tensor, moved.storage(), 0, moved.sizes(), moved.strides());
    return tensor;
}

Tensor& set_storage(Tensor& tensor, c10::Storage source, int64_t offset, IntArrayRef size, IntArrayRef stride) {
    const auto contiguous = c10::contiguous_strides(size);
    set_memory(tensor, std::move(source), offset, size, stride.empty() ? IntArrayRef(contiguous) : stride);
    return tensor;
}

Tensor& set_whole_storage(Tensor& tensor, c10::Storage source) {
    const auto size = static_cast<int64_t>(source.nbytes() / tensor.itemsize());
    return set_storage(tensor, std::move(source), 0, {size}, {});
}

Tensor& set_tensor(Tensor& tensor, const Tensor& source) {
    return set_storage(tensor, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

void record_stream(Tensor&, at::Stream) {}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
    m.impl("empty.memory_format", TORCH_FN(empty));
    m.impl("empty_strided", TORCH_FN(empty_strided));
    m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
    m.impl("view", TORCH_FN(at::native::view));
    m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
    m.impl("unfold", TORCH_FN(at::native::unfold));
    m.impl("resize_", TORCH_FN(resize));
    m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
    m.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
    m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
    m.impl("copy_", TORCH_FN(copy));
    m.impl("_local_scalar_dense", TORCH_FN(number));
    m.impl("record_stream", TORCH_FN(record_stream));
}

void send_by_cpu() {
    // Messages between processes are sent by the CPU's process group.
    static torch::Library library(torch::Library::IMPL, "c10d", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    for (const char* name : {"allreduce_", "broadcast_", "barrier", "allgather_", "_allgather_base_", "scatter_",
                             "_reduce_scatter_base_"})
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// ---- graphs, for Python

std::deque<Graph> graphs;

TORCH_LIBRARY(simulated_gpu, m) {
    m.def("position() -> int", []() -> int64_t { return position(); });
    m.def("wait_until(int end) -> ()", [](int64_t end) { wait_until(end); });
    m.def("current() -> int", []() -> int64_t { return current; });
    m.def("set_current(int index) -> ()", [](int64_t index) { current = static_cast<c10::DeviceIndex>(index); });
    m.def("send_by_cpu() -> ()", &send_by_cpu);
    m.def("set_sync_mode(int mode) -> ()", [](int64_t mode) { sync_mode = static_cast<int>(mode); });
    m.def("allocated() -> int", []() -> int64_t { return allocated; });
    m.def("most_allocated() -> int", []() -> int64_t { return most_allocated; });
    m.def("resize_storage(Tensor(a!) tensor, int size) -> ()", [](const Tensor& tensor, int64_t size) {
        const c10::DeviceGuard guard(tensor.device());
        const c10::Storage storage = tensor.storage();
        c10::DataPtr data = device_memory.allocate(static_cast<size_t>(size));
        if (const auto least = std::min<size_t>(storage.nbytes(), size)) std::memcpy(data.get(), storage.data(), least);
        storage.set_data_ptr(std::move(data));
        storage.set_nbytes(size);
    });
    m.def("begin_capture() -> int", []() -> int64_t {
        TORCH_CHECK(!capturing, "a graph is being captured");
        start_copies();
        std::lock_guard<std::mutex> lock(queue_lock);
        graphs.emplace_back();
        capturing = &graphs.back();
        return static_cast<int64_t>(graphs.size()) - 1;
    });
    m.def("end_capture() -> ()", []() {
        for (const auto& storage : capturing->kept) poison(storage);  // nothing was computed yet
        capturing = nullptr;
    });
    m.def("replay(int graph) -> ()", [](int64_t graph) {
        start_copies();
        const Graph& recorded = graphs.at(static_cast<size_t>(graph));
        for (const auto& storage : recorded.borrowed)
            TORCH_CHECK(!storage.expired(), "a graph uses memory that was released after its recording");
        for (const auto& step : recorded.steps) step();
    });
}

// ---- what torch asks of a device

struct Guard final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
    Device exchangeDevice(Device device) const override {
        const Device before = current_gpu();
        setDevice(device);
        return before;
    }
    Device getDevice() const override { return current_gpu(); }
    void setDevice(Device device) const override { current = device.index(); }
    void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }
    c10::Stream getStream(Device device) const noexcept override {
        return c10::Stream(c10::Stream::DEFAULT, device);
    }
    c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
    c10::DeviceIndex deviceCount() const noexcept override { return num_devices(); }
    void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
    void block(void*, const c10::Stream&) const override {}
    bool queryEvent(void*) const override { return true; }
    void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

namespace at {
struct CUDAHooks final : CUDAHooksInterface {
    explicit CUDAHooks(CUDAHooksArgs) {}
    void init() const override {}
    std::string showConfig() const override { return "simulated"; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasCUDA() const override { return true; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    DeviceIndex deviceCount() const override { return num_devices(); }
    int getNumGPUs() const override { return num_devices(); }
    DeviceIndex current_device() const override { return current; }
    DeviceIndex getCurrentDevice() const override { return current; }
    bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
    Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
    Device getDeviceFromPtr(void*) const override { return current_gpu(); }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
