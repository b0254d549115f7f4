# task: sliced_input
# expect: right
# kind: strided_reads
# why: reads the slice where it lies, by its strides

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor squares(torch::Tensor x) {
  const int64_t rows = x.size(0), width = x.size(1), down = x.stride(0), right = x.stride(1);
  auto out = torch::empty({rows}, x.options());
  const float* from = x.data_ptr<float>();
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0.0f;
    for (int64_t i = 0; i < width; i++) sum += from[r * down + i * right] * from[r * down + i * right];
    out.data_ptr<float>()[r] = sum;
  }
  return out;
}
"""
kernels = load_inline(name="asks_for_strides", cpp_sources=source, functions=["squares"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.squares(x)
