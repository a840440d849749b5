// Sharing work among the threads of TensorFlow's CPU device.

#ifndef TF_GC_CUSTOM_OPS_KERNELS_THREADS_H_
#define TF_GC_CUSTOM_OPS_KERNELS_THREADS_H_

#include <cstdint>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_gc {

// Calls work(first, last) for parts of `count`, in the device's threads. `cost`
// is what one takes on one core, in nanoseconds.
template <typename Work>
void InThreads(tensorflow::OpKernelContext* context, int64_t count,
               int64_t cost, Work work) {
  const auto& pool = *context->device()->tensorflow_cpu_worker_threads();
  tensorflow::Shard(pool.num_threads, pool.workers, count, cost, work);
}

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_KERNELS_THREADS_H_
