# task: sliced_input
# expect: wrong
# kind: strides
# why: takes the width of a slice for the distance of its rows

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor squares(torch::Tensor x) {
  const int64_t rows = x.size(0), width = x.size(1);
  auto out = torch::zeros({rows}, x.options());
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < width; i++) {
      const float v = x.data_ptr<float>()[r * width + i];
      out.data_ptr<float>()[r] += v * v;
    }
  return out;
}
"""
kernels = load_inline(name="row_stride_ignored", cpp_sources=source, functions=["squares"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.squares(x)
