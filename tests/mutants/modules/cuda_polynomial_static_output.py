# task: polynomial
# expect: wrong
# kind: stale
# why: returns one static tensor from every call, so that a second call overwrites the first one's result
# shown: by construction

from torch import nn
from torch.utils.cpp_extension import load_inline

cuda = """
__global__ void polynomial_kernel(const float* x, float* out, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = ((0.3f * x[i] + 1.0f) * x[i] - 2.0f) * x[i] + 0.7f;
}

torch::Tensor polynomial(torch::Tensor x) {
  static torch::Tensor out = torch::empty_like(x);
  const int64_t n = x.numel();
  polynomial_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""
kernels = load_inline(
    name="static_output_cuda",
    cpp_sources="torch::Tensor polynomial(torch::Tensor x);",
    cuda_sources=cuda,
    functions=["polynomial"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.polynomial(x)
