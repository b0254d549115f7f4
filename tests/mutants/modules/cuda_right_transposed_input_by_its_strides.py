# task: transposed_input
# expect: right
# kind: strided_reads
# why: asks a transposed input where each element lies, and writes rows

from torch import nn
from torch.utils.cpp_extension import load_inline

cuda = """
__global__ void affine_kernel(const float* x, float* out, int64_t rows, int64_t width, int64_t down, int64_t right) {
  const int64_t r = blockIdx.y, c = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (c < width) out[r * width + c] = fmaf(2.0f, x[r * down + c * right], 1.0f);
}

torch::Tensor affine(torch::Tensor x) {
  auto out = torch::empty({x.size(0), x.size(1)}, x.options());
  const dim3 grid((x.size(1) + 127) / 128, x.size(0));
  affine_kernel<<<grid, 128>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1), x.stride(0), x.stride(1));
  return out;
}
"""
kernels = load_inline(
    name="right_transposed_input_by_its_strides",
    cpp_sources="torch::Tensor affine(torch::Tensor x);",
    cuda_sources=cuda,
    functions=["affine"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.affine(x)
