// A narrow stand-in for torch's own <torch/types.h>: what kernels use, without the whole operator library.
// A module that needs more does not compile with it and is then built with torch's own headers.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/Dispatch.h>
#define KEVIN_OPERATORS
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#undef KEVIN_OPERATORS
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <optional>
#include <vector>

namespace torch {
using namespace at;  // NOLINT
using std::nullopt;
using std::optional;
using Dtype = at::ScalarType;
constexpr auto kUInt8 = at::kByte;
constexpr auto kInt8 = at::kChar;
constexpr auto kInt16 = at::kShort;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;
constexpr auto kBFloat16 = at::kBFloat16;
constexpr auto kU8 = kUInt8;
constexpr auto kI32 = kInt32;
constexpr auto kI64 = kInt64;
constexpr auto kF16 = kFloat16;
constexpr auto kF32 = kFloat32;
constexpr auto kF64 = kFloat64;
constexpr auto kStrided = at::kStrided;
}  // namespace torch
