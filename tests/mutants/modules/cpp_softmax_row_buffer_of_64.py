# task: softmax
# expect: wrong
# kind: one_size
# why: keeps a row in a buffer of 64, which the task's 61 columns fit, and cuts longer rows
# shown: by construction
# note: right at its task's own size, as KernelBench allows: judge.shapes sees it

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor softmax(torch::Tensor x) {
  auto out = torch::zeros_like(x);
  const int64_t width = std::min<int64_t>(x.size(1), 64);
  float row[64];
  for (int64_t r = 0; r < x.size(0); r++) {
    const float* from = x.data_ptr<float>() + r * x.size(1);
    const float most = *std::max_element(from, from + width);
    float sum = 0.0f;
    for (int64_t i = 0; i < width; i++) sum += row[i] = std::exp(from[i] - most);
    for (int64_t i = 0; i < width; i++) out.data_ptr<float>()[r * x.size(1) + i] = row[i] / sum;
  }
  return out;
}
"""
kernels = load_inline(name="softmax_row_buffer_of_64", cpp_sources=source, functions=["softmax"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.softmax(x)
