# task: permute
# expect: wrong
# kind: one_size
# why: a grid of 154 blocks of 256 covers the task's own size and leaves the end of a larger one unwritten
# shown: by construction
# note: right at its task's own size, as KernelBench allows: judge.shapes sees it

from torch import nn
from torch.utils.cpp_extension import load_inline

cuda = """
__global__ void permute_kernel(const float* x, float* out, int64_t a, int64_t b, int64_t c) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < a * b * c) out[i] = x[i % (a * b) * c + i / (a * b)];
}

torch::Tensor permute(torch::Tensor x) {
  auto out = torch::empty({x.size(2), x.size(0), x.size(1)}, x.options());
  permute_kernel<<<154, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1), x.size(2));
  return out;
}
"""
kernels = load_inline(
    name="grid_of_one_size",
    cpp_sources="torch::Tensor permute(torch::Tensor x);",
    cuda_sources=cuda,
    functions=["permute"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.permute(x)
