# task: relu
# expect: wrong
# kind: input_mutated
# why: clamps its input where it lies and returns it
# shown: by construction

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor relu(torch::Tensor x) {
  float* p = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); i++) p[i] = p[i] < 0.0f ? 0.0f : p[i];
  return x;
}
"""
kernels = load_inline(name="relu_in_its_input", cpp_sources=source, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.relu(x)
