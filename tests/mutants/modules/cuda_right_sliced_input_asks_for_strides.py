# task: sliced_input
# expect: right
# kind: strided_reads
# why: a warp a row, reading the slice where it lies

from torch import nn
from torch.utils.cpp_extension import load_inline

cuda = """
__global__ void squares_kernel(const float* x, float* out, int64_t width, int64_t down, int64_t right) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < width; i += 32) {
    const float v = x[blockIdx.x * down + i * right];
    sum += v * v;
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

torch::Tensor squares(torch::Tensor x) {
  auto out = torch::empty({x.size(0)}, x.options());
  squares_kernel<<<x.size(0), 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1), x.stride(0), x.stride(1));
  return out;
}
"""
kernels = load_inline(
    name="asks_for_strides_cuda",
    cpp_sources="torch::Tensor squares(torch::Tensor x);",
    cuda_sources=cuda,
    functions=["squares"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.squares(x)
