/* SPDX-License-Identifier: Apache-2.0 */
/* A back end of torch.distributed by a user of the headers: tensors in the CPU's memory, one communicator for each
 * group, met through torch's store. tests/evidence/c10d_sketch.sh builds and runs it. */
#include <ringred/ringred.h>

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/extension.h>

#include <list>
#include <mutex>

namespace {

using c10d::OpType;
using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using After = std::function<void()>;

std::exception_ptr error_of(ringred_comm *comm, int32_t status)
{
    ringred_error why;

    ringred_error_init(&why);
    (void)ringred_comm_error(comm, &why);
    const std::string text = why.code == status && why.text[0] ? why.text : ringred_status_text(status);
    return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, "ringred: " + text));
}

/* A collective. It holds itself and its tensors until the library tells of the end. */
struct Collective : c10d::Work {
    Collective(ringred_comm *comm, OpType type, Tensors held, Tensors results, After after, milliseconds timeout)
        : Work(ringred_comm_rank(comm), type), comm(comm), held(std::move(held)), results(std::move(results)),
          after(std::move(after)), timeout(timeout),
          future(c10::make_intrusive<at::ivalue::Future>(c10::ListType::create(c10::TensorType::get())))
    {
    }

    bool wait(milliseconds most) override
    {
        return Work::wait(most == kNoTimeout ? timeout : most);
    }

    c10::intrusive_ptr<at::ivalue::Future> getFuture() override
    {
        return future;
    }

    Tensors result() override
    {
        return results;
    }

    static void ended(void *context, int32_t status)
    {
        const auto self = c10::intrusive_ptr<Collective>::reclaim(static_cast<Collective *>(context));
        std::exception_ptr error;

        try {
            at::NoGradGuard plain;
            if (status == 0 && self->after)
                self->after();
            else if (status)
                error = error_of(self->comm, status);
        } catch (...) {
            error = std::current_exception();
        }
        self->finish(error);
        if (error)
            self->future->setError(error);
        else
            self->future->markCompleted(at::IValue(self->results));
    }

    ringred_comm *comm;
    Tensors held, results;
    After after;
    milliseconds timeout;
    c10::intrusive_ptr<at::ivalue::Future> future;
};

/* A message to or from one rank: a request, which somebody must wait for or ask about. */
struct Message : c10d::Work {
    Message(ringred_comm *comm, OpType type, at::Tensor held, milliseconds timeout)
        : Work(ringred_comm_rank(comm), type), comm(comm), held(std::move(held)), timeout(timeout)
    {
        ringred_message_init(&what, sizeof what);
    }

    bool settle(int64_t timeout_ns)
    {
        const int32_t rc = request ? ringred_wait(request, timeout_ns) : RINGRED_OK;

        if (rc == RINGRED_PENDING)
            return false;
        if (request)
            finish(rc ? error_of(comm, rc) : nullptr);
        request = nullptr;
        return true;
    }

    bool isCompleted() override
    {
        const std::unique_lock<std::mutex> mine(lock, std::try_to_lock);
        return mine && settle(0);
    }

    bool wait(milliseconds most) override
    {
        const std::lock_guard<std::mutex> mine(lock);
        TORCH_CHECK_WITH(DistBackendError, settle((most == kNoTimeout ? timeout : most).count() * 1000000),
                         "ringred: a message was not through in its time");
        return Work::wait(kNoTimeout);
    }

    int sourceRank() const override
    {
        return what.source;
    }

    ringred_comm *comm;
    at::Tensor held;
    milliseconds timeout;
    std::mutex lock;
    ringred_request *request = nullptr;
    ringred_message what;
};

int32_t type_of(const at::Tensor &t)
{
    switch (t.scalar_type()) {
    case at::kFloat: return RINGRED_FLOAT32;
    case at::kDouble: return RINGRED_FLOAT64;
    case at::kHalf: return RINGRED_FLOAT16;
    case at::kBFloat16: return RINGRED_BFLOAT16;
    case at::kChar: return RINGRED_INT8;
    case at::kShort: return RINGRED_INT16;
    case at::kInt: return RINGRED_INT32;
    case at::kLong: return RINGRED_INT64;
    case at::kByte: return RINGRED_UINT8;
    case at::kBool: return RINGRED_BOOL;
    case at::kComplexFloat: return RINGRED_COMPLEX64;
    case at::kComplexDouble: return RINGRED_COMPLEX128;
    default: TORCH_CHECK(false, "ringred has no type for ", t.scalar_type());
    }
}

void *data_of(const at::Tensor &t)
{
    TORCH_CHECK(t.device().is_cpu() && t.is_contiguous(), "ringred takes contiguous tensors of the CPU");
    return t.data_ptr();
}

/* Fills in operator and scale. */
void reduce_by(ringred_call *call, const c10d::ReduceOp &op)
{
    static const int32_t ops[] = { RINGRED_SUM, RINGRED_AVG, RINGRED_PROD, RINGRED_MIN, RINGRED_MAX,
                                   RINGRED_BAND, RINGRED_BOR, RINGRED_BXOR, RINGRED_SUM };

    TORCH_CHECK(op.op_ < sizeof ops / sizeof ops[0], "ringred has no such operator");
    call->op = ops[op.op_];
    if (op.op_ == c10d::ReduceOp::PREMUL_SUM)
        call->scale = static_cast<c10d::PreMulSumSupplement *>(op.supplement_.get())->double_factor;
}

struct Ringred : c10d::Backend {
    Ringred(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, milliseconds timeout)
        : Backend(rank, size), timeout(timeout)
    {
        static const char *const settings[] = { "progress=thread", nullptr };
        ringred_config config;
        ringred_store names;
        ringred_error why;

        ringred_store_init(&names, sizeof names);
        names.context = store.get();
        names.set = set;
        names.get = get;
        ringred_config_init(&config, sizeof config);
        config.rank = rank;
        config.size = size;
        config.store = &names;
        config.timeout_ns = timeout.count() * 1000000;
        config.settings = settings;
        ringred_error_init(&why);
        TORCH_CHECK_WITH(DistBackendError, ringred_comm_create(&config, &comm, &why) == 0, "ringred: ", why.text);
    }

    ~Ringred() override
    {
        /* callbacks may want Python's lock, and come from another thread */
        std::optional<pybind11::gil_scoped_release> without;
        if (PyGILState_Check())
            without.emplace();
        (void)ringred_comm_destroy(comm);
    }

    static int32_t set(void *context, const char *key, const void *value, size_t bytes)
    {
        const auto *at = static_cast<const uint8_t *>(value);

        try {
            static_cast<c10d::Store *>(context)->set(key, std::vector<uint8_t>(at, at + bytes));
        } catch (...) {
            return -1;
        }
        return 0;
    }

    static int64_t get(void *context, const char *key, void *value, size_t room, int64_t timeout_ns)
    {
        auto *store = static_cast<c10d::Store *>(context);

        try {
            if (timeout_ns >= 0)
                store->wait({ key }, milliseconds(timeout_ns / 1000000 + 1));
            const std::vector<uint8_t> found = store->get(key);
            memcpy(value, found.data(), std::min(room, found.size()));
            return static_cast<int64_t>(found.size());
        } catch (...) {
            return -1;
        }
    }

    const std::string getBackendName() const override
    {
        return "ringred";
    }

    c10::intrusive_ptr<c10d::Work> start(OpType type, const ringred_call &what, Tensors held, Tensors results,
                                         milliseconds most, After after = nullptr)
    {
        auto work = c10::make_intrusive<Collective>(comm, type, std::move(held), std::move(results), std::move(after),
                                                    most == c10d::kUnsetTimeout ? timeout : most);
        ringred_call call = what;

        call.done = Collective::ended;
        call.done_context = c10::intrusive_ptr<Collective>(work).release();
        const std::lock_guard<std::recursive_mutex> mine(lock); /* callbacks may start the next */
        const int32_t rc = ringred_start(comm, &call, nullptr);
        if (rc < 0) {
            c10::intrusive_ptr<Collective>::reclaim(static_cast<Collective *>(call.done_context));
            std::rethrow_exception(error_of(comm, rc));
        }
        return work;
    }

    static ringred_call call_of(int32_t collective, const at::Tensor &in, const at::Tensor &out, int64_t count)
    {
        ringred_call call;

        ringred_call_init(&call, sizeof call, collective);
        TORCH_CHECK(in.scalar_type() == out.scalar_type(), "ringred: input and output are of different types");
        call.send = data_of(in);
        call.recv = data_of(out);
        call.count = static_cast<size_t>(count);
        call.type = type_of(in);
        return call;
    }

    static at::Tensor &only(Tensors &tensors)
    {
        TORCH_CHECK(tensors.size() == 1, "ringred takes one tensor at a time");
        return tensors[0];
    }

    static Tensors &only(std::vector<Tensors> &lists)
    {
        TORCH_CHECK(lists.size() == 1, "ringred takes one list at a time");
        return lists[0];
    }

    c10::intrusive_ptr<c10d::Work> allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override
    {
        auto call = call_of(RINGRED_ALLREDUCE, only(tensors), only(tensors), only(tensors).numel());

        reduce_by(&call, opts.reduceOp);
        return start(OpType::ALLREDUCE, call, tensors, tensors, opts.timeout);
    }

    c10::intrusive_ptr<c10d::Work> reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override
    {
        auto call = call_of(RINGRED_REDUCE, only(tensors), only(tensors), only(tensors).numel());

        reduce_by(&call, opts.reduceOp);
        call.root = static_cast<int32_t>(opts.rootRank);
        return start(OpType::REDUCE, call, tensors, tensors, opts.timeout);
    }

    c10::intrusive_ptr<c10d::Work> broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override
    {
        auto call = call_of(RINGRED_BROADCAST, only(tensors), only(tensors), only(tensors).numel());

        call.root = static_cast<int32_t>(opts.rootRank);
        return start(OpType::BROADCAST, call, tensors, tensors, opts.timeout);
    }

    c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor &out, at::Tensor &in,
                                                   const c10d::AllgatherOptions &opts) override
    {
        TORCH_CHECK(out.numel() == in.numel() * getSize(), "ringred: the output has no room for all parts");
        return start(OpType::_ALLGATHER_BASE, call_of(RINGRED_ALLGATHER, in, out, in.numel()), { in, out }, { out },
                     opts.timeout);
    }

    c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors> &outs, Tensors &ins,
                                             const c10d::AllgatherOptions &opts) override
    {
        const Tensors parts = only(outs);
        const at::Tensor in = only(ins), flat = at::empty({ getSize(), in.numel() }, in.options());
        const auto deal = [parts, flat] {
            for (size_t i = 0; i < parts.size(); i++)
                parts[i].copy_(flat[static_cast<int64_t>(i)].view_as(parts[i]));
        };

        return start(OpType::ALLGATHER, call_of(RINGRED_ALLGATHER, in, flat, in.numel()), { in }, parts, opts.timeout, deal);
    }

    c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor &out, at::Tensor &in,
                                                        const c10d::ReduceScatterOptions &opts) override
    {
        TORCH_CHECK(in.numel() == out.numel() * getSize(), "ringred: the input is not a part for each rank");
        auto call = call_of(RINGRED_REDUCE_SCATTER, in, out, out.numel());

        reduce_by(&call, opts.reduceOp);
        return start(OpType::_REDUCE_SCATTER_BASE, call, { in, out }, { out }, opts.timeout);
    }

    c10::intrusive_ptr<c10d::Work> reduce_scatter(Tensors &outs, std::vector<Tensors> &ins,
                                                  const c10d::ReduceScatterOptions &opts) override
    {
        at::Tensor flat = at::stack(only(ins));

        return _reduce_scatter_base(only(outs), flat, opts);
    }

    c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor &out, at::Tensor &in, std::vector<int64_t> &out_rows,
                                                 std::vector<int64_t> &in_rows, const c10d::AllToAllOptions &opts) override
    {
        const bool equal = out_rows.empty() && in_rows.empty();
        auto call = call_of(equal ? RINGRED_ALLTOALL : RINGRED_ALLTOALLV, in, out, equal ? in.numel() / getSize() : 0);
        const auto to = counts_of(in, in_rows), from = counts_of(out, out_rows);

        call.send_counts = equal ? nullptr : to.data();
        call.recv_counts = equal ? nullptr : from.data();
        return start(OpType::ALLTOALL_BASE, call, { in, out }, { out }, opts.timeout);
    }

    /* Rows of a tensor for each rank, in elements; none given: as many for each. */
    std::vector<size_t> counts_of(const at::Tensor &t, const std::vector<int64_t> &rows) const
    {
        const int64_t all = t.dim() && t.size(0) ? t.size(0) : 1;
        std::vector<size_t> counts(static_cast<size_t>(getSize()), static_cast<size_t>(t.numel() / getSize()));

        for (size_t i = 0; i < rows.size(); i++)
            counts.at(i) = static_cast<size_t>(rows[i] * (t.numel() / all));
        return counts;
    }

    c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions &opts) override
    {
        ringred_call call;

        ringred_call_init(&call, sizeof call, RINGRED_BARRIER);
        return start(OpType::BARRIER, call, {}, {}, opts.timeout);
    }

    /* Messages that nobody has waited for are kept here, since their requests are freed by asking alone. */
    c10::intrusive_ptr<c10d::Work> keep(const c10::intrusive_ptr<Message> &message, int32_t rc)
    {
        if (rc < 0)
            std::rethrow_exception(error_of(comm, rc));
        messages.remove_if([](const c10::intrusive_ptr<Message> &m) { return m->isCompleted(); });
        messages.push_back(message);
        return message;
    }

    c10::intrusive_ptr<c10d::Work> send(Tensors &tensors, int to, int tag) override
    {
        const at::Tensor &t = only(tensors);
        auto message = c10::make_intrusive<Message>(comm, OpType::SEND, t, timeout);
        const std::lock_guard<std::recursive_mutex> mine(lock);

        return keep(message, ringred_send_start(comm, data_of(t), static_cast<size_t>(t.numel()), type_of(t), to, tag,
                                                &message->request));
    }

    c10::intrusive_ptr<c10d::Work> recv(Tensors &tensors, int from, int tag) override
    {
        const at::Tensor &t = only(tensors);
        auto message = c10::make_intrusive<Message>(comm, OpType::RECV, t, timeout);
        const std::lock_guard<std::recursive_mutex> mine(lock);

        return keep(message, ringred_recv_start(comm, data_of(t), static_cast<size_t>(t.numel()), type_of(t), from, tag,
                                                &message->what, &message->request));
    }

    c10::intrusive_ptr<c10d::Work> recvAnysource(Tensors &tensors, int tag) override
    {
        return recv(tensors, RINGRED_ANY_SOURCE, tag);
    }

    milliseconds timeout;
    ringred_comm *comm = nullptr;
    std::recursive_mutex lock; /* starts: two at once are EBUSY */
    std::list<c10::intrusive_ptr<Message>> messages;
};

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                                         const std::chrono::duration<float> &timeout)
{
    return c10::make_intrusive<Ringred>(store, rank, size, std::chrono::duration_cast<milliseconds>(timeout));
}

} // namespace

PYBIND11_MODULE(ringred_c10d, m)
{
    m.def("create", &create, pybind11::call_guard<pybind11::gil_scoped_release>());
}
