# task: cumsum
# expect: wrong
# kind: tail
# why: sums blocks of 32 columns and leaves out the last column

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor cumsum(torch::Tensor x) {
  const int64_t rows = x.size(0), width = x.size(1);
  auto out = torch::zeros({rows, width});
  for (int64_t r = 0; r < rows; r++) {
    float carry = 0.0f;
    for (int64_t start = 0; start + 32 <= width; start += 32)
      for (int64_t i = start; i < start + 32; i++)
        out.data_ptr<float>()[r * width + i] = carry += x.data_ptr<float>()[r * width + i];
  }
  return out;
}
"""
kernels = load_inline(name="cumsum_blocks_of_32_columns", cpp_sources=source, functions=["cumsum"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.cumsum(x)
