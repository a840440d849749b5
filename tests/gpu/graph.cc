// The functions can be captured in a CUDA graph, which gives the same results.

#include <cstdint>
#include <string>
#include <vector>

#include "custom_ops/lib/cuda/codec.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/gpu_bucket.h"
#include "tests/gpu/tests.h"

namespace tf_gc::gpu {

void TestGraph() {
  Random random(9);
  const Format format = FormatOf(Codec::kTwoBitAuto);
  Tensors<float> gradients;
  Tensors<float> residuals;
  for (int i = 0; i < 300; ++i) {  // more than one launch
    gradients.push_back(RandomGradient<float>(random, 1000));
    residuals.push_back(RandomResidual(random, 1000));
  }
  Tensors<float> new_residuals = residuals;
  const Bytes first = EncodeOnCpu(format, gradients, 1, -1, &new_residuals);
  const Bytes second = EncodeOnCpu(format, gradients, 1, -1, &new_residuals);
  Tensors<float> sums = gradients;
  DecodeOnCpu(format, {second}, &sums);

  const Inputs<float> inputs(gradients, residuals, true, 0);
  const Outputs<float> outputs(gradients, 0);
  const Array<uint8_t> message(first.size());
  const uint8_t* const row = message.data();
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
        "begin of a capture");
  Check(Encode(format.codec, DType::kFloat, inputs.table.data(), inputs.count(),
               1, -1, 0.0f, message.data(), stream),
        "Encode");
  Check(DecodeSum(format.codec, DType::kFloat, &row, 1, outputs.table.data(),
                  outputs.count(), 0.0f, stream),
        "DecodeSum");
  Check(cudaStreamEndCapture(stream, &graph), "end of a capture");
  Check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (int step = 0; step < 2; ++step) {
    Check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  }
  Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  ExpectSame(message.Read(), second, "the message of a graph");
  inputs.Expect(new_residuals, "encode in a graph");
  outputs.Expect(sums, "decode in a graph");
  Check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  Check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  Check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace tf_gc::gpu
