# task: linear_relu
# expect: wrong
# kind: stale
# why: transposes the weight in its first call and keeps it, whatever weight comes later

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor linear_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  static torch::Tensor kept = weight.t().contiguous();
  const int64_t inner = kept.size(0), outer = kept.size(1);
  auto out = bias.repeat({x.size(0), 1});
  const float *from = x.data_ptr<float>(), *w = kept.data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.size(0); i++) {
    for (int64_t k = 0; k < inner; k++)
      for (int64_t j = 0; j < outer; j++) to[i * outer + j] += from[i * inner + k] * w[k * outer + j];
    for (int64_t j = 0; j < outer; j++) to[i * outer + j] = std::max(0.0f, to[i * outer + j]);
  }
  return out;
}
"""
kernels = load_inline(name="linear_relu_weight_kept_transposed", cpp_sources=source, functions=["linear_relu"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(257, 100)

    def forward(self, x):
        return kernels.linear_relu(x, self.linear.weight, self.linear.bias)
