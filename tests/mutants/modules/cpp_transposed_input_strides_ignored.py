# task: transposed_input
# expect: wrong
# kind: strides
# why: walks the memory of a transposed input as if it were contiguous

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor affine(torch::Tensor x) {
  auto out = torch::empty(x.sizes(), x.options());
  const float* from = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); i++) to[i] = from[i] + from[i] + 1.0f;
  return out;
}
"""
kernels = load_inline(name="transposed_input_strides_ignored", cpp_sources=source, functions=["affine"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.affine(x)
