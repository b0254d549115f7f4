# task: sum_rows
# expect: wrong
# kind: bounds_write
# why: rounds the rows up to a multiple of four and writes so many sums into an output that it made for all rows
# shown: by construction

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor sum_rows(torch::Tensor x) {
  const int64_t rows = x.size(0), width = x.size(1);
  auto out = torch::empty({rows}, x.options());
  for (int64_t start = 0; start < rows; start += 4) {
    float sums[4] = {};
    for (int64_t r = start; r < std::min(rows, start + 4); r++)
      for (int64_t i = 0; i < width; i++) sums[r - start] += x.data_ptr<float>()[r * width + i];
    std::copy(sums, sums + 4, out.data_ptr<float>() + start);
  }
  return out;
}
"""
kernels = load_inline(name="sum_rows_in_fours", cpp_sources=source, functions=["sum_rows"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.sum_rows(x)
