# task: softmax
# expect: right
# kind: scratch
# why: keeps its scratch memory from call to call, and makes more where rows are longer

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor softmax(torch::Tensor x) {
  static std::vector<double> row;
  if ((int64_t)row.size() < x.size(1)) row.resize(x.size(1));
  auto out = torch::empty_like(x);
  for (int64_t r = 0; r < x.size(0); r++) {
    const float* from = x.data_ptr<float>() + r * x.size(1);
    double sum = 0.0;
    for (int64_t i = 0; i < x.size(1); i++) sum += row[i] = std::exp((double)from[i]);
    for (int64_t i = 0; i < x.size(1); i++) out.data_ptr<float>()[r * x.size(1) + i] = row[i] / sum;
  }
  return out;
}
"""
kernels = load_inline(name="right_softmax_scratch_grows", cpp_sources=source, functions=["softmax"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.softmax(x)
