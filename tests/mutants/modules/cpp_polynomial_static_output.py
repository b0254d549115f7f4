# task: polynomial
# expect: wrong
# kind: stale
# why: returns one static tensor from every call, so that a second call overwrites the first one's result
# shown: by construction

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor polynomial(torch::Tensor x) {
  static torch::Tensor out = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); i++) to[i] = ((0.3f * from[i] + 1.0f) * from[i] - 2.0f) * from[i] + 0.7f;
  return out;
}
"""
kernels = load_inline(name="static_output", cpp_sources=source, functions=["polynomial"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.polynomial(x)
