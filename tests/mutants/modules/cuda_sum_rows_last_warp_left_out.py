# task: sum_rows
# expect: wrong
# kind: last_block
# why: of eight warps that sum a row the last one is not added

from torch import nn
from torch.utils.cpp_extension import load_inline

cuda = """
__global__ void sum_rows_kernel(const float* x, float* out, int64_t width) {
  __shared__ float part[8];
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < width; i += 256) sum += x[blockIdx.x * width + i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < 7; warp++) sum += part[warp];
  out[blockIdx.x] = sum;
}

torch::Tensor sum_rows(torch::Tensor x) {
  auto out = torch::empty({x.size(0)}, x.options());
  sum_rows_kernel<<<x.size(0), 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
  return out;
}
"""
kernels = load_inline(
    name="sum_rows_last_warp_left_out",
    cpp_sources="torch::Tensor sum_rows(torch::Tensor x);",
    cuda_sources=cuda,
    functions=["sum_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.sum_rows(x)
