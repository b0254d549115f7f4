# task: transposed_input
# expect: right
# kind: strided_reads
# why: asks for a contiguous copy before it takes the pointer

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor affine(torch::Tensor given) {
  auto x = given.contiguous();
  auto out = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); i++) to[i] = 2.0f * from[i] + 1.0f;
  return out;
}
"""
kernels = load_inline(name="made_contiguous", cpp_sources=source, functions=["affine"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.affine(x)
