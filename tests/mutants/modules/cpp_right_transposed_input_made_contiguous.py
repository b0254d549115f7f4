# task: transposed_input
# expect: right
# kind: strided_reads
# why: copies its transposed input first and works in the copy

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor affine(torch::Tensor x) {
  auto out = x.contiguous();
  if (out.is_same(x)) out = x.clone();
  float* p = out.data_ptr<float>();
  for (int64_t i = out.numel() - 1; i >= 0; i--) p[i] = 1.0f + 2.0f * p[i];
  return out;
}
"""
kernels = load_inline(name="right_transposed_input_made_contiguous", cpp_sources=source, functions=["affine"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.affine(x)
