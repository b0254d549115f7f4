# task: sum_rows
# expect: wrong
# kind: uninitialised
# why: adds to memory that it takes from empty and never clears

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor sum_rows(torch::Tensor x) {
  auto old = torch::ones({x.size(0)}, x.options());
  old.reset();
  auto out = torch::empty({x.size(0)}, x.options());
  for (int64_t r = 0; r < x.size(0); r++)
    for (int64_t i = 0; i < x.size(1); i++) out.data_ptr<float>()[r] += x.data_ptr<float>()[r * x.size(1) + i];
  return out;
}
"""
kernels = load_inline(name="sum_rows_adds_to_empty", cpp_sources=source, functions=["sum_rows"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.sum_rows(x)
