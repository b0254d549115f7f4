// task: elu
// expect: right
// kind: template
// why: an expression of templates, lambdas and a virtual function

#include <cmath>
#include <functional>

struct Activation {
  virtual float operator()(float v) const = 0;
  virtual ~Activation() = default;
};

template <int Tenths>
struct Elu final : Activation {
  float operator()(float v) const override { return v > 0.0f ? v : Tenths / 10.0f * std::expm1(v); }
};

template <typename F>
static void each(int64_t n, F&& f) {
  for (int64_t i = 0; i < n; i++) f(i);
}

extern "C" void launch(const float* x, float* out) {
  const Elu<7> elu;
  const std::function<float(float)> act = [&elu](float v) { return elu(v); };
  each(x_size, [&](int64_t i) { out[i] = act(x[i]); });
}
