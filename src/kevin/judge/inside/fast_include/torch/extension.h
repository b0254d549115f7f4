// A narrow stand-in for torch's own <torch/extension.h>: see types.h beside it.
#pragma once
#include <torch/types.h>
#if !defined(__CUDACC__) || defined(KEVIN_BINDINGS)
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
