# task: sum_rows
# expect: wrong
# kind: one_size
# why: the width of 7703 stands in the code: right at the task's size, wrong for all others
# shown: by construction

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor sum_rows(torch::Tensor x) {
  auto out = torch::zeros({x.size(0)}, x.options());
  for (int64_t i = 0; i < x.numel(); i++) out.data_ptr<float>()[i / 7703] += x.data_ptr<float>()[i];
  return out;
}
"""
kernels = load_inline(name="one_width", cpp_sources=source, functions=["sum_rows"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.sum_rows(x)
