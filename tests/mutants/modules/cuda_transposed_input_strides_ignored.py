# task: transposed_input
# expect: wrong
# kind: strides
# why: walks the memory of a transposed input as if it were contiguous, into a contiguous output

from torch import nn
from torch.utils.cpp_extension import load_inline

cuda = """
__global__ void affine_kernel(const float* x, float* out, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i] + 1.0f;
}

torch::Tensor affine(torch::Tensor x) {
  auto out = torch::empty(x.sizes(), x.options());
  const int64_t n = x.numel();
  affine_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""
kernels = load_inline(
    name="strides_ignored_cuda",
    cpp_sources="torch::Tensor affine(torch::Tensor x);",
    cuda_sources=cuda,
    functions=["affine"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.affine(x)
