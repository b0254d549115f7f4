// A narrow stand-in for torch's own <torch/extension.h>: see types.h beside it.
#pragma once
#include <torch/types.h>
#ifndef __CUDACC__
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
